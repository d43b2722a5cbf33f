/* partition/branch.c -- list scheduling: ops of a graph on several devices or streams, and whole models on devices. */
#include "partition/partition.h"

typedef struct lister {
    const nnc_branch_problem *p;
    int64_t *rank; /* by op: longest path from its start to the end, transfers included */
    int64_t *end; /* by op */
    int64_t *free_at; /* by place */
    int *user_start, *user; /* the reverse of `need` */
    int *waits; /* by op: operands not yet scheduled */
} lister;

static int64_t send_ns(const nnc_branch_problem *p, int op, int from, int to)
{
    return p->bytes ? nnc_links_p2p(p->links, from, to, p->bytes[op]) : 0;
}

/* Longest path first, then the order of the ops. */
static bool before(const void *ctx, uint32_t a, uint32_t b)
{
    const lister *l = ctx;
    return l->rank[a] != l->rank[b] ? l->rank[a] > l->rank[b] : a < b;
}

static bool prepare_lister(lister *l, nnc_arena *a)
{
    const nnc_branch_problem *p = l->p;
    const int n = p->n_op, edges = p->start[n];
    l->rank = ARENA_NEW(a, int64_t, n + 1);
    l->end = ARENA_NEW(a, int64_t, n + 1);
    l->free_at = ARENA_NEW(a, int64_t, p->n_place);
    l->user_start = ARENA_NEW(a, int, n + 2);
    l->user = ARENA_NEW(a, int, edges + 1);
    l->waits = ARENA_NEW(a, int, n + 1);
    if (!(l->rank && l->end && l->free_at && l->user_start && l->user && l->waits))
        return false;
    for (int k = 0; k < edges; k++)
        l->user_start[p->need[k] + 2]++;
    for (int i = 2; i <= n; i++)
        l->user_start[i] += l->user_start[i - 1];
    for (int i = 0; i < n; i++) {
        l->waits[i] = p->start[i + 1] - p->start[i];
        for (int k = p->start[i]; k < p->start[i + 1]; k++)
            l->user[l->user_start[p->need[k] + 1]++] = i;
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = l->user_start[i]; k < l->user_start[i + 1]; k++) {
            const int64_t send = p->n_place > 1 ? send_ns(p, i, 0, 1) : 0;
            l->rank[i] = nnc_max64(l->rank[i], nnc_add_sat(send, l->rank[l->user[k]]));
        }
        l->rank[i] = nnc_add_sat(l->rank[i], p->time[i]);
    }
    return true;
}

/* Puts op i where it ends first. */
static void put_op(lister *l, int i, int *place, int64_t *begin)
{
    const nnc_branch_problem *p = l->p;
    int64_t best = INT64_MAX;
    place[i] = 0;
    for (int at = 0; at < p->n_place; at++) {
        int64_t t = l->free_at[at];
        for (int k = p->start[i]; k < p->start[i + 1]; k++) {
            const int from = p->need[k];
            t = nnc_max64(t, nnc_add_sat(l->end[from], send_ns(p, from, place[from], at)));
        }
        if (t < best) {
            best = t;
            place[i] = at;
        }
    }
    begin[i] = best;
    l->end[i] = l->free_at[place[i]] = nnc_add_sat(best, p->time[i]);
}

nnc_status nnc_branch_list(
    const nnc_branch_problem *p, int *place, int64_t *begin, int64_t *total, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    lister l = {.p = p};
    NNC_NEED(prepare_lister(&l, &a), sink);
    nnc_heap ready = {.at = ARENA_NEW(&a, uint32_t, p->n_op + 1), .before = before, .ctx = &l};
    NNC_NEED(ready.at, sink);
    *total = 0;
    for (int i = 0; i < p->n_op; i++)
        if (!l.waits[i])
            nnc_heap_push(&ready, (uint32_t)i);
    while (ready.n) {
        const int i = (int)nnc_heap_pop(&ready);
        put_op(&l, i, place, begin);
        *total = nnc_max64(*total, l.end[i]);
        for (int k = l.user_start[i]; k < l.user_start[i + 1]; k++)
            if (!--l.waits[l.user[k]])
                nnc_heap_push(&ready, (uint32_t)l.user[k]);
    }
    return NNC_OK;
}

/* ---- several models ---------------------------------------------------------------------------------- */

static bool longer(const void *ctx, uint32_t a, uint32_t b)
{
    const int64_t *time = ctx;
    return time[a] != time[b] ? time[a] > time[b] : a < b;
}

nnc_status nnc_models_lpt(const int64_t *time, const int64_t *bytes, int n, int n_device,
    const int64_t *capacity, int *device, int64_t *total, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_heap left = {.at = ARENA_NEW(&a, uint32_t, n + 1), .before = longer, .ctx = time};
    int64_t *load = ARENA_NEW(&a, int64_t, n_device), *used = ARENA_NEW(&a, int64_t, n_device);
    NNC_NEED(left.at && load && used, sink);
    for (int i = 0; i < n; i++)
        nnc_heap_push(&left, (uint32_t)i);
    *total = 0;
    while (left.n) {
        const uint32_t i = nnc_heap_pop(&left);
        const int64_t need = bytes ? bytes[i] : 0;
        int at = -1;
        for (int d = 0; d < n_device; d++) {
            const bool room = !capacity || nnc_add_sat(used[d], need) <= capacity[d];
            if (room && (at < 0 || load[d] < load[at]))
                at = d;
        }
        device[i] = at;
        if (at < 0)
            continue;
        load[at] = nnc_add_sat(load[at], time[i]);
        used[at] = nnc_add_sat(used[at], need);
        *total = nnc_max64(*total, load[at]);
    }
    return NNC_OK;
}

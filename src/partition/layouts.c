/* partition/layouts.c -- which tensors of a graph are split over a group of devices, and which are whole on each of them.
 *
 * Layers are passed in order. A state is the set of live results that are split, with the cheapest choices that lead to it:
 *
 *     cost(state after layer i) = min over states before it, ways of layer i:  cost + way + conversions of its operands
 *
 * A result leaves the state after its last user. */
#include "partition/internal.h"
#include <stdlib.h>

enum { SLOTS = 64 };

typedef struct state {
    uint64_t split; /* by slot */
    int64_t cost;
    int32_t from; /* state before the layer */
    uint8_t way;
} state;

typedef struct walk {
    const nnc_layout_problem *p;
    int *slot; /* by layer: of its result; -1: not live, or whole */
    int *last; /* by layer: last user of its result, -1: none */
    int *first_in, *in; /* edges that a layer reads: in[first_in[i] .. first_in[i + 1]) */
    uint64_t taken; /* slots */
    state **after; /* by layer: states, n_after[i] of them */
    int *n_after;
    bool exact;
    nnc_arena a;
} walk;

static bool list_operands(walk *w)
{
    const nnc_layout_problem *p = w->p;
    int all = 0;
    for (int e = 0; e < p->n_edge; e++)
        for (int k = 0; k < p->edge[e].n_user; k++)
            if (p->edge[e].user[k] < p->n_layer)
                w->first_in[p->edge[e].user[k] + 1]++;
    for (int i = 0; i < p->n_layer; i++)
        w->first_in[i + 1] += w->first_in[i];
    all = w->first_in[p->n_layer];
    w->in = ARENA_NEW(&w->a, int, all + 1);
    int *at = ARENA_NEW(&w->a, int, p->n_layer + 1);
    if (!w->in || !at)
        return false;
    for (int e = 0; e < p->n_edge; e++)
        for (int k = 0; k < p->edge[e].n_user; k++) {
            const int user = p->edge[e].user[k];
            if (user >= p->n_layer)
                continue;
            w->in[w->first_in[user] + at[user]++] = e;
            if (p->edge[e].maker >= 0 && user > w->last[p->edge[e].maker])
                w->last[p->edge[e].maker] = user;
        }
    return true;
}

static bool prepare(walk *w)
{
    const size_t n = (size_t)w->p->n_layer + 1;
    w->slot = ARENA_NEW(&w->a, int, n);
    w->last = ARENA_NEW(&w->a, int, n);
    w->first_in = ARENA_NEW(&w->a, int, n + 1);
    w->after = ARENA_NEW(&w->a, state *, n);
    w->n_after = ARENA_NEW(&w->a, int, n);
    if (!w->slot || !w->last || !w->first_in || !w->after || !w->n_after)
        return false;
    for (size_t i = 0; i < n; i++)
        w->slot[i] = w->last[i] = -1;
    return list_operands(w);
}

/* Conversions of layer i's operands for a way that reads them split or whole. */
static int64_t conversions(const walk *w, int i, uint64_t split, bool wants)
{
    int64_t ns = 0;
    for (int k = w->first_in[i]; k < w->first_in[i + 1]; k++) {
        const int e = w->in[k], maker = w->p->edge[e].maker, slot = maker < 0 ? -1 : w->slot[maker];
        const bool is = slot >= 0 && split >> slot & 1;
        if (is != wants)
            ns = nnc_add_sat(ns, wants ? w->p->to_split[e] : w->p->to_whole[e]);
    }
    return ns;
}

static int compare(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->split != y->split)
        return x->split < y->split ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->way > y->way) - (x->way < y->way);
}

static int by_cost(const void *a, const void *b)
{
    const state *x = a, *y = b;
    return x->cost != y->cost ? (x->cost < y->cost ? -1 : 1) : compare(a, b);
}

/* Keeps the cheapest of equal states, and at most as many as there may be. */
static int merge(walk *w, state *s, int n)
{
    const int most = w->p->max_states > 0 ? w->p->max_states : 4096;
    int k = 0;
    qsort(s, (size_t)n, sizeof *s, compare);
    for (int i = 0; i < n; i++)
        if (!k || s[i].split != s[k - 1].split)
            s[k++] = s[i];
    if (k > most) {
        qsort(s, (size_t)k, sizeof *s, by_cost);
        w->exact = false;
        k = most;
    }
    return k;
}

/* Slots of results whose last user is layer i become free. */
static uint64_t ended(walk *w, int i)
{
    uint64_t mask = 0;
    for (int l = 0; l <= i; l++)
        if (w->slot[l] >= 0 && w->last[l] <= i) {
            mask |= UINT64_C(1) << w->slot[l];
            w->slot[l] = -1;
        }
    w->taken &= ~mask;
    return mask;
}

static bool pass(walk *w, int i)
{
    const nnc_layout_problem *p = w->p;
    static const state start = {.from = -1};
    const state *before = i ? w->after[i - 1] : &start;
    const int n = i ? w->n_after[i - 1] : 1;
    int slot = -1, k = 0;
    state *s = ARENA_NEW(&w->a, state, (size_t)n * LAYOUT_WAYS + 1);
    if (!s)
        return false;
    for (int b = 0; b < SLOTS && slot < 0 && w->last[i] > i; b++)
        slot = w->taken >> b & 1 ? -1 : b;
    w->exact = w->exact && (slot >= 0 || w->last[i] <= i);
    for (int j = 0; j < n; j++)
        for (int x = 0; x < p->n_way[i]; x++) {
            const nnc_layout_way *way = &p->way[i][x];
            if (way->out && slot < 0 && w->last[i] > i)
                continue;
            const int64_t cost = nnc_add_sat(before[j].cost,
                nnc_add_sat(way->cost, conversions(w, i, before[j].split, way->in)));
            const uint64_t bit = slot >= 0 && way->out ? UINT64_C(1) << slot : 0;
            s[k++] = (state){before[j].split | bit, cost, j, (uint8_t)x};
        }
    w->slot[i] = slot;
    if (slot >= 0)
        w->taken |= UINT64_C(1) << slot;
    const uint64_t gone = ended(w, i);
    for (int j = 0; j < k; j++)
        s[j].split &= ~gone;
    w->after[i] = s;
    w->n_after[i] = merge(w, s, k);
    return true;
}

static void walk_deinit(walk *w)
{
    nnc_arena_deinit(&w->a);
}

nnc_status nnc_layout_graph(
    const nnc_layout_problem *p, int *choice, int64_t *total, bool *exact, nnc_sink *sink)
{
    NNC_LOCAL(walk) w = {.p = p, .exact = true};
    *total = 0;
    NNC_NEED(prepare(&w), sink);
    for (int i = 0; i < p->n_layer; i++) {
        NNC_NEED(pass(&w, i), sink);
        if (!w.n_after[i])
            return nnc_fail0(sink, NNC_E_FIT, "no ways of layers 0 to %d fit together", i);
    }
    *exact = w.exact;
    if (!p->n_layer)
        return NNC_OK;
    const int end = p->n_layer - 1;
    int at = 0;
    for (int j = 1; j < w.n_after[end]; j++)
        if (w.after[end][j].cost < w.after[end][at].cost)
            at = j;
    *total = w.after[end][at].cost;
    for (int i = end; i >= 0; i--) {
        choice[i] = w.after[i][at].way;
        at = w.after[i][at].from;
    }
    return NNC_OK;
}

/* plan/devices.c -- the order of the commands of several devices whose nodes have one stream each, where tasks or collectives connect them.
 *
 * Each device has its own sequence (sequence.c), so that a device's order does not depend on the others. The common list orders commands by
 * the time when they would begin. Each device has a clock; the node that can start first is next. Where there are several collectives, they
 * have a second stream.
 *
 * Two sequences may need each other in different orders, as when each begins with another one of two collectives. Then the first node whose
 * operands are ready goes on. */
#include "plan/maker.h"

typedef struct merge {
    maker *m;
    uint32_t *at[NNC_MAX_DEVICES], n[NNC_MAX_DEVICES],
        head[NNC_MAX_DEVICES]; /* by device: its sequence */
    int64_t now[NNC_MAX_DEVICES],
        lane[NNC_MAX_DEVICES]; /* when the device is free; its stream of collectives */
    uint32_t *waiting; /* by node: operands that are not computed yet */
    int64_t *ready; /* by node: when its latest operand so far is ready */
    bool *done;
    nnc_section section;
    uint32_t next; /* all nodes before it are done */
} merge;

bool make_has_collective(const maker *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->g->n_node && !any; i++)
        any = is_collective(&m->g->node[i]) && runs_in_main(m, &m->g->node[i]);
    return any;
}

/* ---- the list ------------------------------------------------------------------------------------------------------------ */

static int64_t time_of(const merge *w, uint32_t i)
{
    const maker *m = w->m;
    const nnc_node *n = &m->g->node[i];
    const int dev = is_collective(n) ? m->home[n->out] : device_of_node(n);
    return nnc_node_ns(target_of(m, dev), m->g, n);
}

/* The clock of node i on device d: collectives have their own, if the device has a second stream. */
static const int64_t *clock_of(const merge *w, uint32_t i, int d)
{
    return w->m->o->streams > 1 && is_collective(&w->m->g->node[i]) ? &w->lane[d] : &w->now[d];
}

/* When node i can start; -1: it has to wait for others, or is not next on all its devices. */
static int64_t start_of(const merge *w, uint32_t i)
{
    const maker *m = w->m;
    int64_t at = w->ready[i];
    if (w->waiting[i] || m->section[i] != w->section)
        return -1;
    for (int d = 0; d < m->n_dev; d++) {
        if (!runs_on(m, &m->g->node[i], d))
            continue;
        if (w->head[d] >= w->n[d] || w->at[d][w->head[d]] != i)
            return -1;
        at = nnc_max64(at, *clock_of(w, i, d));
    }
    return at;
}

/* The node that can start first; NNC_NONE: none. */
static uint32_t next_of(const merge *w, int64_t *start)
{
    uint32_t best = NNC_NONE;
    for (int d = 0; d < w->m->n_dev; d++) {
        const uint32_t i = w->head[d] < w->n[d] ? w->at[d][w->head[d]] : NNC_NONE;
        const int64_t at = i == NNC_NONE ? -1 : start_of(w, i);
        if (at < 0 || (best != NNC_NONE && (at > *start || (at == *start && i >= best))))
            continue;
        best = i;
        *start = at;
    }
    return best;
}

/* The section's first node in program order whose operands are computed; NNC_NONE: the section is done. */
static uint32_t any_of(merge *w)
{
    const maker *m = w->m;
    while (w->next < m->g->n_node && (w->done[w->next] || m->section[w->next] < w->section ||
                                         !runs_in_main(m, &m->g->node[w->next])))
        w->next++;
    for (uint32_t i = w->next; i < m->g->n_node; i++)
        if (!w->done[i] && !w->waiting[i] && m->section[i] == w->section &&
            runs_in_main(m, &m->g->node[i]))
            return i;
    return NNC_NONE;
}

static void place_node(merge *w, uint32_t i, int64_t start)
{
    const maker *m = w->m;
    const int64_t end = nnc_add_sat(start, time_of(w, i));
    w->done[i] = true;
    for (int d = 0; d < m->n_dev; d++) {
        int64_t *now = (int64_t *)clock_of(w, i, d);
        if (runs_on(m, &m->g->node[i], d))
            *now = nnc_max64(*now, end);
        while (w->head[d] < w->n[d] && w->done[w->at[d][w->head[d]]])
            w->head[d]++;
    }
    for (uint32_t k = m->to.first[i]; k < m->to.first[i + 1]; k++) {
        w->waiting[m->to.at[k]]--;
        w->ready[m->to.at[k]] = nnc_max64(w->ready[m->to.at[k]], end);
    }
}

static nnc_status merge_all(merge *w, uint32_t *order, uint32_t *n)
{
    maker *m = w->m;
    const size_t nodes = (size_t)m->g->n_node + 2;
    NNC_NEED(ARENA_ARRAYS(&m->scratch, nodes, w->waiting, w->ready, w->done), m->sink);
    for (uint32_t i = 0; i < m->g->n_node; i++)
        w->waiting[i] = m->from.first[i + 1] - m->from.first[i];
    *n = 0;
    for (w->section = SEC_main; w->section < SEC__COUNT; w->section++) {
        int64_t start = 0;
        w->next = 0;
        for (;;) {
            uint32_t i = next_of(w, &start);
            i = i == NNC_NONE ? any_of(w) : i;
            if (i == NNC_NONE)
                break;
            order[(*n)++] = i;
            place_node(w, i, start);
        }
    }
    return NNC_OK;
}

/* The kind of walk for replicas, one for all devices. Each then computes gradients in the same order, for which the others wait in
 * collectives. */
static nnc_status find_walk(merge *w, int *kind)
{
    maker *m = w->m;
    int64_t best = INT64_MAX;
    for (int k = 0; k < WALK_best; k++) {
        int64_t most = 0, peak;
        for (int d = 0; d < m->n_dev; d++) {
            NNC_TRY(make_device_sequence(m, d, k, w->at[d], &w->n[d], &peak));
            most = nnc_max64(most, peak);
        }
        if (most < best) {
            best = most;
            *kind = k;
        }
    }
    return NNC_OK;
}

/* Moves nodes that wait for a collective, such as updates, to the end of their task: meanwhile the device computes the next gradients. */
static nnc_status delay_updates(merge *w, int d)
{
    const maker *m = w->m;
    uint32_t *at = w->at[d], *late = ARENA_NEW(&w->m->scratch, uint32_t, w->n[d] + 1);
    bool *after = ARENA_NEW(&w->m->scratch, bool, m->g->n_node + 1);
    NNC_NEED(late && after, m->sink);
    for (uint32_t i = 0; i < m->g->n_node; i++)
        for (int k = 0; k < m->g->node[i].n_in && !after[i]; k++) {
            const uint32_t p = m->g->value[m->g->node[i].in[k]].node;
            after[i] = after[p] || is_collective(&m->g->node[p]);
        }
    for (uint32_t i = 0, to = 0, n = 0; i < w->n[d]; i++) {
        const uint32_t now = at[i], next = i + 1 < w->n[d] ? at[i + 1] : now;
        *(after[now] ? &late[n++] : &at[to++]) = now;
        const bool ends = i + 1 == w->n[d] || m->section[now] != m->section[next] ||
                          (m->task && m->task[now] != m->task[next]);
        for (uint32_t k = 0; ends && k < n; k++)
            at[to++] = late[k];
        n = ends ? 0 : n;
    }
    return NNC_OK;
}

nnc_status make_device_sequences(maker *m, uint32_t *order, uint32_t *n)
{
    merge w = {.m = m};
    const bool replicas = make_has_collective(m);
    int kind = WALK_best;
    int64_t peak;
    if (!m->task && !replicas)
        return make_sequence(m, order, n);
    for (int d = 0; d < m->n_dev; d++) {
        w.at[d] = ARENA_NEW(&m->scratch, uint32_t, m->g->n_node + 1);
        NNC_NEED(w.at[d], m->sink);
    }
    if (replicas)
        NNC_TRY(find_walk(&w, &kind));
    for (int d = 0; d < m->n_dev; d++) {
        NNC_TRY(make_device_sequence(m, d, kind, w.at[d], &w.n[d], &peak));
        make_hoisted_sections(m, w.at[d], w.n[d]);
        if (m->o->streams > 1)
            NNC_TRY(delay_updates(&w, d));
    }
    return merge_all(&w, order, n);
}

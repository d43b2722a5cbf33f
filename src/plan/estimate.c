/* plan/estimate.c -- estimates memory and time of a step whose ops are not fused yet, in a small part of the time that a plan takes. It
 * ranks graphs with the same results. Nothing is lowered to kernels. Instead elementwise ops and concats are absorbed where kernels of
 * their own section compute them as they read. They have no memory, and their consumers read their operands. The order is found like that
 * of a plan (sequence.c), with fewer attempts. */
#include "plan/maker.h"

enum { MANY = 64 }; /* limit of values read instead of absorbed ones, on average over all nodes */

/* By value: the values that its consumers read instead, at[first .. first + n). */
typedef struct stands {
    maker *m;
    uint32_t *first, *n;
    nnc_ref *at;
    size_t used, cap;
    uint32_t *stamp, now; /* by value */
} stands;

static bool is_view(const maker *m, const nnc_node *n)
{
    return nnc_op_class(n->op) != CL_leaf && nnc_is_view(m->g, n);
}

/* Must v be in memory for its consumer i? Parts of a concat are computed in its memory. */
static bool needs_memory(const maker *m, uint32_t i, nnc_ref v, const bool *stored)
{
    const nnc_node *n = &m->g->node[i];
    const uint32_t d = m->g->value[v].node;
    if (is_view(m, n))
        return stored[n->out];
    return m->g->node[d].op != OP_concat &&
           (m->section[d] != m->section[i] || n->op == OP_concat ||
               !(nnc_is_elementwise(n) || nnc_op_class(n->op) == CL_reduce));
}

/* Is node i a new state, cut from the new values of several? These are computed in the states' memory. */
static bool is_cut(const maker *m, const nnc_node *n)
{
    bool all = n->op == OP_slice || n->op == OP_split;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        all = all && m->state_of[m->root[v]] != NNC_NONE;
    return all;
}

static nnc_status find_absorbed(maker *m)
{
    const nnc_graph *g = m->g;
    bool *stored = ARENA_NEW(&m->scratch, bool, g->n_value + 1),
         *absorbed = ARENA_NEW(&m->scratch, bool, g->n_node + 1);
    m->in_states = ARENA_NEW(&m->scratch, bool, g->n_value + 1);
    NNC_NEED(stored && absorbed && m->in_states, m->sink);
    for (uint32_t i = g->n_node; i-- > 0;) {
        const nnc_node *n = &g->node[i];
        if (is_cut(m, n))
            m->in_states[m->root[n->in[0]]] = true;
        absorbed[i] = nnc_is_elementwise(n) || n->op == OP_concat;
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
            absorbed[i] = absorbed[i] && !stored[v] && !m->is_out[m->root[v]] && !m->is_static[v];
        for (int k = 0; k < n->n_in; k++)
            stored[n->in[k]] = stored[n->in[k]] || needs_memory(m, i, n->in[k], stored);
    }
    m->absorbed = absorbed;
    return NNC_OK;
}

/* Appends the values that are read instead of v, once each; false: out of memory. */
static bool append_value(stands *s, nnc_ref v)
{
    for (uint32_t k = 0; k < s->n[v]; k++) {
        const nnc_ref r = s->at[s->first[v] + k];
        if (s->stamp[r] == s->now)
            continue;
        s->stamp[r] = s->now;
        if (!ARENA_ROOM(&s->m->scratch, s->at, s->cap, s->used + 1))
            return false;
        s->at[s->used++] = r;
    }
    return true;
}

/* Fills the values that each node reads, m->read_at[m->read[i] ..]: for operands that are absorbed or views, the values read instead. */
static nnc_status find_reads(maker *m)
{
    const nnc_graph *g = m->g;
    stands s = {.m = m,
        .first = ARENA_NEW(&m->scratch, uint32_t, g->n_value + 1),
        .n = ARENA_NEW(&m->scratch, uint32_t, g->n_value + 1),
        .stamp = ARENA_NEW(&m->scratch, uint32_t, g->n_value + 1)};
    NNC_NEED(
        s.first && s.n && s.stamp && ARENA_ARRAYS(&m->scratch, g->n_node + 1, m->read, m->n_read),
        m->sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        m->read[i] = (uint32_t)s.used;
        s.now++;
        for (int k = 0; k < n->n_in; k++)
            NNC_NEED(append_value(&s, n->in[k]), m->sink);
        const uint32_t many = m->n_read[i] = (uint32_t)s.used - m->read[i];
        m->absorbed[i] = m->absorbed[i] && s.used <= MANY * (size_t)g->n_node;
        const bool through = m->absorbed[i] || is_view(m, n);
        NNC_NEED(ARENA_ROOM(&m->scratch, s.at, s.cap, s.used + n->n_out), m->sink);
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++) {
            s.first[v] = through ? m->read[i] : (uint32_t)s.used;
            s.n[v] = through ? many : 1;
            if (!through)
                s.at[s.used++] = v;
        }
    }
    m->read_at = s.at;
    return NNC_OK;
}

nnc_status make_estimate(maker *m, int64_t *bytes, int64_t *ns)
{
    const nnc_graph *g = m->g;
    NNC_TRY(find_absorbed(m));
    NNC_TRY(find_reads(m));
    NNC_TRY(make_edges(m));
    NNC_TRY(make_rough_peak(m, bytes));
    *ns = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (runs_in_main(m, n) && !m->absorbed[i])
            *ns = nnc_add_sat(*ns, nnc_node_ns(target_of(m, m->home[n->out]), g, n));
    }
    return NNC_OK;
}

/* plan/edges.c -- which nodes of main read what which others compute, through views and concats in place. */
#include "plan/maker.h"

int make_operands(const maker *m, uint32_t i, const nnc_ref **out)
{
    *out = m->read ? m->read_at + m->read[i] : m->g->node[i].in;
    return m->read ? (int)m->n_read[i] : m->g->node[i].n_in;
}

static nnc_status find_producers(maker *m)
{
    const nnc_graph *g = m->g;
    size_t cap = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_ref *in, *source;
        const int n_in = make_operands(m, i, &in);
        m->from.first[i] = n;
        for (int k = 0; k < n_in && runs_in_main(m, &g->node[i]); k++) {
            int many = make_sources(m, in[k], &source);
            NNC_NEED(many >= 0, m->sink);
            NNC_NEED(ARENA_ROOM(&m->scratch, m->from.at, cap, n + (size_t)many), m->sink);
            while (many-- > 0) {
                const uint32_t p = g->value[source[many]].node;
                if (runs_in_main(m, &g->node[p]))
                    m->from.at[n++] = p;
            }
        }
    }
    m->from.first[g->n_node] = n;
    return NNC_OK;
}

nnc_status make_edges(maker *m)
{
    const uint32_t n = m->g->n_node;
    m->from.first = ARENA_NEW(&m->scratch, uint32_t, n + 1);
    m->to.first = ARENA_NEW(&m->scratch, uint32_t, n + 2);
    NNC_NEED(m->from.first && m->to.first, m->sink);
    NNC_TRY(find_producers(m));
    m->to.at = ARENA_NEW(&m->scratch, uint32_t, m->from.first[n] + 1);
    NNC_NEED(m->to.at, m->sink);
    /* first[p + 1] moves from the begin of p's users to their end while they are filled in */
    for (uint32_t e = 0; e < m->from.first[n]; e++)
        m->to.first[m->from.at[e] + 2]++;
    for (uint32_t p = 0; p < n; p++)
        m->to.first[p + 2] += m->to.first[p + 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++)
            m->to.at[m->to.first[m->from.at[e] + 1]++] = i;
    return NNC_OK;
}

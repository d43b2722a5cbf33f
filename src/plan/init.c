/* plan/init.c -- the section init, executed once: weights, values that depend only on weights. Each is computed on
 * every device that needs it, just before its first use, so that init needs little memory. */
#include "plan/maker.h"

typedef struct stack {
    nnc_ref *v;
    size_t n, cap;
} stack;

static nnc_status push(maker *m, stack *s, nnc_ref v)
{
    NNC_NEED(ARENA_ROOM(&m->scratch, s->v, s->cap, s->n + 1), m->sink);
    s->v[s->n++] = v;
    return NNC_OK;
}

static bool made(const maker *m, nnc_ref r, int dev)
{
    return m->made[slot(m, r, dev)];
}

static nnc_status add_weight(maker *m, nnc_ref r, int dev)
{
    const nnc_node *n = nnc_def(m->g, r);
    if (!nnc_type_is_row_major(nnc_typeof(m->g, r)))
        return nnc_fail(m->sink, NNC_E_MODEL, n->loc,
            "a weight is stored row-major; give another layout with relayout");
    job *j = make_job(&m->init, &m->scratch, J_weight);
    NNC_NEED(j, m->sink);
    j->value = r;
    j->device = (int16_t)dev;
    m->made[slot(m, r, dev)] = 1;
    return NNC_OK;
}

static nnc_status add_node(maker *m, nnc_ref r, int dev)
{
    const nnc_node *n = nnc_def(m->g, r);
    job *j = make_job(&m->init, &m->scratch, J_node);
    NNC_NEED(j, m->sink);
    j->node = (uint32_t)(n - m->g->node);
    j->device = (int16_t)dev;
    j->cost = nnc_node_cost(m->g, n);
    for (int k = 0; k < n->n_out; k++)
        m->made[slot(m, n->out + (nnc_ref)k, dev)] = 1;
    return make_select(m, j, -1);
}

/* Schedules root r after everything that it depends on. Uses an explicit stack, since static chains may be long. */
static nnc_status need(maker *m, nnc_ref r, int dev)
{
    stack s = {0};
    NNC_TRY(push(m, &s, r));
    while (s.n) {
        nnc_ref v = s.v[s.n - 1];
        const nnc_node *n = nnc_def(m->g, v);
        size_t before = s.n;
        if (made(m, v, dev)) {
            s.n--;
            continue;
        }
        for (int i = n->n_in; i-- > 0;)
            if (!made(m, m->root[n->in[i]], dev))
                NNC_TRY(push(m, &s, m->root[n->in[i]]));
        if (s.n > before)
            continue;
        s.n--;
        NNC_TRY(n->weight ? add_weight(m, v, dev) : add_node(m, v, dev));
    }
    return NNC_OK;
}

/* Notes that main reads value v on dev. */
static nnc_status want(maker *m, nnc_ref v, int dev)
{
    nnc_ref r = v == NNC_NONE ? v : m->root[v];
    if (r == NNC_NONE || !m->is_static[r])
        return NNC_OK;
    m->want[slot(m, r, dev)] = 1;
    return need(m, r, dev);
}

static nnc_status want_call(maker *m, const job *j)
{
    NNC_TRY(want(m, j->args.src, j->device));
    NNC_TRY(want(m, j->args.wei, j->device));
    NNC_TRY(want(m, j->args.bias, j->device));
    for (int i = 0; i < j->args.n_sum; i++)
        NNC_TRY(want(m, j->args.sum[i], j->device));
    return NNC_OK;
}

nnc_status make_init(maker *m)
{
    for (int32_t i = 0; i < m->main.n; i++) {
        job *j = &m->main.at[i];
        if (j->kind == J_collective)
            NNC_TRY(want(m, m->g->node[j->node].in[j->item], j->device));
        if (j->kind != J_node)
            continue;
        if (j->is_call) {
            NNC_TRY(want_call(m, j));
            continue;
        }
        const nnc_node *n = &m->g->node[j->node];
        for (int k = 0; k < n->n_in; k++)
            NNC_TRY(want(m, n->in[k], j->device));
    }
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        const nnc_node *n = &m->g->node[i];
        if (!n->state)
            continue;
        m->want[slot(m, m->root[n->out], m->home[n->out])] = 1;
        NNC_TRY(need(m, n->out, m->home[n->out]));
    }
    for (uint32_t i = 0; i < m->g->n_output; i++)
        NNC_TRY(want(m, m->g->output[i], m->home[m->root[m->g->output[i]]]));
    return NNC_OK;
}

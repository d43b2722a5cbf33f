/* passes/attention_mask.c -- takes the ops that make a mask of an attention out of its region,
 *
 *     fused(q, k, v, seen) { .. s + select(seen, 0, -1e18) .. }   ->   m = select(seen, 0, -1e18); fused(q, k, v, m) { .. s + m .. }
 *
 * since libraries add masks that lie in memory. Layers with one mask share what is made: nodes of equal op, attributes and operands are
 * built once. */
#include "passes/products.h"

typedef struct walk {
    pass *p;
    mask_list *made;
    const nnc_graph *body;
    const nnc_node *region;
    bool *after; /* by value of the body: computed from a product */
    nnc_ref *to; /* by value of the body: the same outside, NNC_NONE: not built */
} walk;

/* ---- what the mask is ------------------------------------------------------------------------------------------------- */

static bool find_after(walk *w)
{
    w->after = PASS_NEW(w->p, bool, w->body->n_value + 1);
    for (uint32_t i = 0; w->after && i < w->body->n_node; i++) {
        const nnc_node *n = &w->body->node[i];
        bool after = nnc_op_class(n->op) == CL_contract;
        for (int k = 0; k < n->n_in; k++)
            after |= w->after[n->in[k]];
        for (int r = 0; r < n->n_out; r++)
            w->after[n->out + (nnc_ref)r] = after;
    }
    return w->after;
}

/* Is v computed elementwise from inputs and constants, without indices? */
static bool is_made(const walk *w, nnc_ref v, int depth)
{
    const nnc_node *n = nnc_def(w->body, v);
    if (n->op == OP_input || n->op == OP_constant)
        return true;
    if (depth == 0 || n->n_out != 1 ||
        !(nnc_op_is_ewise(n->op) || n->op == OP_reshape || n->op == OP_broadcast))
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (!is_made(w, n->in[k], depth - 1))
            return false;
    return true;
}

/* The computed value that is added to a product's result; NNC_NONE: there is none. */
static nnc_ref find_mask(const walk *w)
{
    enum { DEEP = 8 };
    for (uint32_t i = 0; i < w->body->n_node; i++) {
        const nnc_node *n = &w->body->node[i];
        for (int k = 0; n->op == OP_add && k < 2; k++) {
            const nnc_ref m = n->in[k];
            const nnc_op producer = nnc_def(w->body, m)->op;
            if (w->after[n->in[!k]] && !w->after[m] && producer != OP_input &&
                producer != OP_constant && nnc_typeof(w->body, m)->dtype == DT_f32 &&
                is_made(w, m, DEEP))
                return m;
        }
    }
    return NNC_NONE;
}

/* ---- outside ---------------------------------------------------------------------------------------------------------- */

static bool same_constant(const pass *p, nnc_ref v, const walk *w, nnc_ref u)
{
    double x, y;
    return nnc_const_scalar(p->g, v, &x) && nnc_const_scalar(w->body, u, &y) && x == y &&
           nnc_type_same_shape(type_of(p, v), nnc_typeof(w->body, u));
}

static bool same_attributes(const nnc_node *a, const nnc_node *b)
{
    return a->n_attr == 0 && b->n_attr == 0; /* ops with attributes are built twice */
}

/* A node built for another mask that equals node n of the body with these operands; or NNC_NONE. */
static nnc_ref find_made(const walk *w, const nnc_node *n, const nnc_ref *in)
{
    for (size_t i = 0; i < w->made->n; i++) {
        const nnc_ref v = w->made->at[i];
        const nnc_node *m = def_of(w->p, v);
        bool same = m->op == n->op && m->n_in == n->n_in && m->device == w->region->device &&
                    m->task == w->region->task && !w->p->e.dead[node_index(w->p, m)];
        if (n->op == OP_constant)
            same = same && same_constant(w->p, v, w, n->out);
        else
            same = same && same_attributes(m, n);
        for (int k = 0; same && k < n->n_in; k++)
            same = m->in[k] == in[k];
        if (same)
            return v;
    }
    return NNC_NONE;
}

static nnc_ref build(walk *w, nnc_ref v)
{
    enum { MOST = 8 };
    const nnc_node *n = nnc_def(w->body, v);
    nnc_ref in[MOST];
    if (w->to[v] != NNC_NONE)
        return w->to[v];
    for (int k = 0; k < n->n_in; k++)
        if (n->n_in > MOST || (in[k] = build(w, n->in[k])) == NNC_NONE)
            return NNC_NONE;
    nnc_ref r = find_made(w, n, in);
    if (r == NNC_NONE) {
        w->p->g->device = w->region->device;
        w->p->g->task = w->region->task;
        r = nnc_copy_node(w->p->g, w->body, n, in);
        if (r == NNC_NONE || !PASS_ROOM(w->p, w->made->at, w->made->cap, w->made->n + 1)) {
            pass_nomem(w->p);
            return NNC_NONE;
        }
        w->made->at[w->made->n++] = r;
    }
    return w->to[v] = r;
}

/* ---- the region ------------------------------------------------------------------------------------------------------- */

/* Marks the nodes that the outputs need if m becomes an input. */
static bool *needed(const walk *w, nnc_ref m)
{
    bool *need = PASS_NEW(w->p, bool, w->body->n_node);
    for (uint32_t i = 0; need && i < w->body->n_output; i++)
        need[w->body->value[w->body->output[i]].node] = true;
    for (uint32_t i = w->body->n_node; need && i-- > 0;)
        for (int k = 0; need[i] && k < w->body->node[i].n_in; k++)
            if (w->body->node[i].in[k] != m)
                need[w->body->value[w->body->node[i].in[k]].node] = true;
    return need;
}

/* Rebuilds the region with m as its last operand `mask`. */
static nnc_ref rebuild(walk *w, nnc_ref m, nnc_ref mask)
{
    const nnc_graph *b = w->body;
    bool *need = needed(w, m);
    nnc_ref *to = PASS_NEW(w->p, nnc_ref, b->n_value + 1),
            *in = PASS_NEW(w->p, nnc_ref, w->region->n_in + 1);
    nnc_graph *g = need && to && in ? nnc_graph_create("body", w->p->sink) : NULL;
    int n_in = 0;
    if (!g) {
        pass_nomem(w->p);
        return NNC_NONE;
    }
    for (uint32_t i = 0, k = 0; i < b->n_node; i++) {
        const nnc_node *n = &b->node[i];
        if (n->op != OP_input)
            continue;
        if (need[i]) {
            to[n->out] = nnc_copy_node(g, b, n, NULL);
            in[n_in++] = w->region->in[k];
        }
        k++;
    }
    to[m] = nnc_input(g, "mask", nnc_typeof(b, m));
    in[n_in++] = mask;
    for (uint32_t i = 0; i < b->n_node; i++) {
        const nnc_node *n = &b->node[i];
        if (n->op == OP_input || !need[i] || n->out == m)
            continue;
        nnc_ref *arg = PASS_NEW(w->p, nnc_ref, n->n_in + 1);
        if (!arg)
            break;
        for (int k = 0; k < n->n_in; k++)
            arg[k] = to[n->in[k]];
        const nnc_ref r = nnc_copy_node(g, b, n, arg);
        for (int o = 0; r != NNC_NONE && o < n->n_out; o++)
            to[n->out + (nnc_ref)o] = r + (nnc_ref)o;
    }
    for (uint32_t i = 0; i < b->n_output; i++)
        nnc_output(g, to[b->output[i]], b->output_name[i]);
    edit_at(w->p, node_index(w->p, w->region));
    return nnc_fused(w->p->g, g, n_in, in);
}

nnc_ref attention_mask_outside(pass *p, nnc_ref v, mask_list *made)
{
    const nnc_node region = *def_of(p, v); /* the array of nodes may move */
    walk w = {.p = p, .made = made, .body = region.body, .region = def_of(p, v)};
    w.to = PASS_NEW(p, nnc_ref, region.body->n_value + 1);
    if (!w.to || !find_after(&w))
        return NNC_NONE;
    const nnc_ref m = find_mask(&w);
    if (m == NNC_NONE)
        return NNC_NONE;
    memset(w.to, 0xff, sizeof *w.to * (region.body->n_value + 1));
    for (uint32_t i = 0, k = 0; i < region.body->n_node; i++)
        if (region.body->node[i].op == OP_input)
            w.to[region.body->node[i].out] = region.in[k++];
    edit_at(p, p->g->value[v].node);
    w.region = &region;
    const nnc_ref mask = build(&w, m);
    w.region = def_of(p, v);
    const nnc_ref r = mask == NNC_NONE ? mask : rebuild(&w, m, mask);
    return edit_sync(p) ? r : NNC_NONE;
}

/* codegen/lower_graph.c -- the graph that a lowering works on: the node (or the body of a fused node) with composites
 * replaced by primitives, operands as inputs, numbers as constants. */
#include "codegen/lower.h"

#include <string.h>

static nnc_status broken(lw *l, const char *what)
{
    if (l->g->status != NNC_OK)
        return l->g->status;
    return nnc_fail0(l->sink, NNC_E_BUG, "lowering: %s", what);
}

/* Copies or expands node n of src; map: values of src to values of l->g. */
static nnc_status add_node(lw *l, const nnc_graph *src, const nnc_node *n, nnc_ref *map)
{
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    nnc_ref *in = ARENA_NEW(&l->scratch, nnc_ref, n->n_in + 1);
    if (!in)
        return nnc_nomem(l->sink);
    for (int i = 0; i < n->n_in; i++)
        in[i] = map[n->in[i]];
    bool named = cls == CL_ecomp || cls == CL_comp;
    nnc_ref r = named ? nnc_expand(l->g, src, n, in) : nnc_copy_node(l->g, src, n, in);
    if (r == NNC_NONE)
        return broken(l, nnc_ops[n->op].name);
    for (int i = 0; i < n->n_out; i++)
        map[n->out + (nnc_ref)i] = r + (nnc_ref)i;
    return NNC_OK;
}

/* An operand of the node in l->g: its number when it is one, else an input. */
static nnc_status add_operand(lw *l, const nnc_graph *g, nnc_ref v, nnc_ref *out)
{
    double f;
    const nnc_node *d = nnc_def(g, v);
    if (nnc_const_scalar(g, v, &f) && d->op == OP_constant)
        *out = nnc_copy_node(l->g, g, d, NULL);
    else
        *out = nnc_input(l->g, NULL, nnc_typeof(g, v));
    return *out == NNC_NONE ? broken(l, "operand") : NNC_OK;
}

static nnc_status add_operands(lw *l, const nnc_graph *g, const nnc_node *n, nnc_ref *in)
{
    nnc_type *ty = ARENA_NEW(&l->scratch, nnc_type, n->n_in + 1);
    l->operand = ARENA_NEW(&l->scratch, nnc_ref, n->n_in + 1);
    l->operand_type = ty;
    if (!ty || !l->operand)
        return nnc_nomem(l->sink);
    for (int i = 0; i < n->n_in; i++) {
        int j = 0;
        while (j < i && n->in[j] != n->in[i])
            j++;
        if (j < i) {
            in[i] = in[j];
            continue;
        }
        NNC_TRY(add_operand(l, g, n->in[i], &in[i]));
        ty[l->n_operand] = *nnc_typeof(g, n->in[i]);
        l->operand[l->n_operand++] = in[i];
    }
    return NNC_OK;
}

static nnc_status add_body(lw *l, const nnc_node *n, const nnc_ref *in)
{
    const nnc_graph *b = n->body;
    nnc_ref *map = ARENA_NEW(&l->scratch, nnc_ref, b->n_value + 1);
    if (!map)
        return nnc_nomem(l->sink);
    int next = 0;
    for (uint32_t i = 0; i < b->n_node; i++) {
        const nnc_node *m = &b->node[i];
        if (m->op != OP_input)
            NNC_TRY(add_node(l, b, m, map));
        else if (next < n->n_in)
            map[m->out] = in[next++];
        else
            return broken(l, "a fused node's body has more inputs than operands");
    }
    for (int i = 0; i < l->n_result; i++)
        l->result[i] = map[b->output[i]];
    return NNC_OK;
}

static nnc_status add_single(lw *l, const nnc_graph *g, const nnc_node *n, const nnc_ref *in)
{
    nnc_node m = *n; /* over the operands of l->g: nnc_expand and nnc_copy_node read types of src for nothing else */
    nnc_ref r = NNC_NONE;
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    if (cls == CL_ecomp || cls == CL_comp)
        r = nnc_expand(l->g, g, &m, in);
    else
        r = nnc_copy_node(l->g, g, &m, in);
    if (r == NNC_NONE)
        return broken(l, nnc_ops[n->op].name);
    for (int i = 0; i < l->n_result; i++)
        l->result[i] = r + (nnc_ref)i;
    return NNC_OK;
}

nnc_status lw_open_graph(lw *l, const nnc_graph *g, const nnc_node *n)
{
    l->g = nnc_graph_create("kernel", l->sink);
    nnc_ref *in = ARENA_NEW(&l->scratch, nnc_ref, n->n_in + 1);
    l->n_result = n->n_out;
    l->result = ARENA_NEW(&l->scratch, nnc_ref, n->n_out + 1);
    l->result_type = ARENA_NEW(&l->scratch, nnc_type, n->n_out + 1);
    if (!l->g || !in || !l->result || !l->result_type)
        return nnc_nomem(l->sink);
    for (int i = 0; i < n->n_out; i++)
        l->result_type[i] = *nnc_typeof(g, n->out + (nnc_ref)i);
    NNC_TRY(add_operands(l, g, n, in));
    NNC_TRY(n->op == OP_fused ? add_body(l, n, in) : add_single(l, g, n, in));
    l->node = ARENA_NEW(&l->scratch, uint32_t, l->g->n_node + 1);
    if (!l->node)
        return nnc_nomem(l->sink);
    for (uint32_t i = 0; i < l->g->n_node; i++) {
        nnc_op op = (nnc_op)l->g->node[i].op;
        if (nnc_op_class(op) != CL_leaf || op == OP_iota)
            l->node[l->n_node++] = i;
    }
    return l->g->status;
}

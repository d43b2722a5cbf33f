/* kernel/lower_graph.c -- the graph that a lowering works on: the node (or the body of a fused
 * node) with composites replaced by primitives, operands as inputs, numbers as constants.
 *
 * 16-bit floats are f32 in it, as they are in the kernel: only loads, stores and casts know of
 * them. So the constants of a composite's lowering are those of f32, not rounded to 16 bits. */
#include "kernel/lower.h"

#include <string.h>

static nnc_status broken(lw *l, const char *what)
{
    if (l->g->status != NNC_OK)
        return l->g->status;
    return nnc_fail0(l->sink, NNC_E_BUG, "lowering: %s", what);
}

static bool is_half(nnc_dtype d)
{
    return nnc_kdtype(d) != d;
}

static nnc_ref to_f32(lw *l, nnc_ref r)
{
    bool half = r != NNC_NONE && is_half((nnc_dtype)nnc_typeof(l->g, r)->dtype);
    return half ? nnc_cast(l->g, r, DT_f32) : r;
}

/* A number as a value of v's shape. */
static nnc_ref number(lw *l, const nnc_graph *src, nnc_ref v, double f)
{
    const nnc_type *t = nnc_typeof(src, v);
    if (!is_half((nnc_dtype)t->dtype))
        return nnc_copy_node(l->g, src, nnc_def(src, v), NULL);
    nnc_ref r = nnc_scalar(l->g, DT_f32, f);
    return t->rank ? nnc_broadcast(l->g, r, t->rank, t->dim) : r;
}

/* Copies or expands node n of src over `in`; out: its n_out results. */
static nnc_status add_node(
    lw *l, const nnc_graph *src, const nnc_node *n, const nnc_ref *in, nnc_ref *out)
{
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    bool named = cls == CL_ecomp || cls == CL_comp;
    double f;
    nnc_ref r;
    if (n->op == OP_constant && nnc_const_scalar(src, n->out, &f))
        r = number(l, src, n->out, f);
    else if (cls == CL_leaf && n->op != OP_iota)
        return broken(l, "data inside a kernel; it must be an operand");
    else
        r = named ? nnc_expand(l->g, src, n, in) : nnc_copy_node(l->g, src, n, in);
    if (r == NNC_NONE)
        return broken(l, nnc_ops[n->op].name);
    for (int i = 0; i < n->n_out; i++)
        out[i] = to_f32(l, r + (nnc_ref)i);
    return l->g->status;
}

/* An operand of the node in l->g: its number when it is one, else an input. */
static nnc_status add_operand(lw *l, const nnc_graph *g, nnc_ref v, nnc_ref *out)
{
    double f;
    nnc_type t = *nnc_typeof(g, v);
    t.dtype = (uint8_t)nnc_kdtype((nnc_dtype)t.dtype);
    if (nnc_const_scalar(g, v, &f) && nnc_def(g, v)->op == OP_constant)
        *out = number(l, g, v, f);
    else
        *out = nnc_input(l->g, NULL, &t);
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
        if (m->op != OP_input) {
            nnc_ref *args = ARENA_NEW(&l->scratch, nnc_ref, m->n_in + 1);
            if (!args)
                return nnc_nomem(l->sink);
            for (int j = 0; j < m->n_in; j++)
                args[j] = map[m->in[j]];
            NNC_TRY(add_node(l, b, m, args, &map[m->out]));
        } else if (next < n->n_in)
            map[m->out] = in[next++];
        else
            return broken(l, "a fused node's body has more inputs than operands");
    }
    for (int i = 0; i < l->n_result; i++)
        l->result[i] = map[b->output[i]];
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
    NNC_TRY(n->op == OP_fused ? add_body(l, n, in) : add_node(l, g, n, in, l->result));
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

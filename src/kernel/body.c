/* kernel/body.c -- the kernel of one node: builds the graph to be traced, which is the node (or the body of a fused node) with named
 * reductions (softmax, layernorm) expanded, operands as inputs and numbers as constants.
 *
 * 16-bit floats are f32 there, as in the kernel: only loads, stores and casts handle 16-bit types. So the constants of an expansion
 * are f32 numbers, not rounded to 16 bits. */
#include "kernel/trace.h"

#include <string.h>

typedef struct body {
    nnc_graph *g;
    nnc_sink *sink;
    nnc_arena scratch;
    nnc_ref *operand; /* distinct operands as values of g; the buffer of a number is unused */
    nnc_ref *result;
    nnc_kbuf *buf; /* of the operands, then the results */
    nnc_type *type; /* of the results */
    uint32_t *node;
    int n_operand, n_result, n_node;
    nx *t;
} body;

static nnc_status broken(body *b, const char *what)
{
    if (b->g->status != NNC_OK)
        return b->g->status;
    return nnc_fail0(b->sink, NNC_E_BUG, "lowering: %s", what);
}

static bool is_half(nnc_dtype d)
{
    return nnc_kdtype(d) != d;
}

static nnc_ref to_f32(body *b, nnc_ref r)
{
    bool half = r != NNC_NONE && is_half((nnc_dtype)nnc_typeof(b->g, r)->dtype);
    return half ? nnc_cast(b->g, r, DT_f32) : r;
}

/* A number broadcast to v's shape. */
static nnc_ref number(body *b, const nnc_graph *src, nnc_ref v, double f)
{
    const nnc_type *t = nnc_typeof(src, v);
    if (!is_half((nnc_dtype)t->dtype))
        return nnc_copy_node(b->g, src, nnc_def(src, v), NULL);
    nnc_ref r = nnc_scalar(b->g, DT_f32, f);
    return t->rank ? nnc_broadcast(b->g, r, t->rank, t->dim) : r;
}

/* Copies or expands node n of src over `in`; out: its n_out results. */
static nnc_status add_node(
    body *b, const nnc_graph *src, const nnc_node *n, const nnc_ref *in, nnc_ref *out)
{
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    double f;
    nnc_ref r;
    if (n->op == OP_constant && nnc_const_scalar(src, n->out, &f))
        r = number(b, src, n->out, f);
    else if (cls == CL_leaf && n->op != OP_iota)
        return broken(b, "data inside a kernel; it must be an operand");
    else
        r = cls == CL_comp ? nnc_expand(b->g, n, in) : nnc_copy_node(b->g, src, n, in);
    if (r == NNC_NONE)
        return broken(b, nnc_ops[n->op].name);
    for (int i = 0; i < n->n_out; i++)
        out[i] = to_f32(b, r + (nnc_ref)i);
    return b->g->status;
}

/* An operand of the node in b->g: its value when it is a number, otherwise an input. */
static nnc_status add_operand(body *b, const nnc_graph *g, nnc_ref v, nnc_ref *out)
{
    double f;
    nnc_type t = *nnc_typeof(g, v);
    b->buf[b->n_operand] =
        (nnc_kbuf){.role = KB_in, .dtype = (nnc_dtype)t.dtype, .numel = nnc_type_span(&t)};
    t.dtype = (uint8_t)nnc_kdtype((nnc_dtype)t.dtype);
    if (nnc_const_scalar(g, v, &f) && nnc_def(g, v)->op == OP_constant)
        *out = number(b, g, v, f);
    else {
        const nnc_type dense = nnc_type_dense(&t);
        *out = nnc_input(b->g, NULL, &dense);
        if (*out != NNC_NONE)
            b->g->value[*out].type = t; /* perhaps a part of a larger tensor */
    }
    b->operand[b->n_operand++] = *out;
    return *out == NNC_NONE ? broken(b, "operand") : NNC_OK;
}

static nnc_status add_operands(body *b, const nnc_graph *g, const nnc_node *n, nnc_ref *in)
{
    for (int i = 0; i < n->n_in; i++) {
        int j = 0;
        while (n->in[j] != n->in[i])
            j++;
        if (j < i)
            in[i] = in[j];
        else
            NNC_TRY(add_operand(b, g, n->in[i], &in[i]));
    }
    return NNC_OK;
}

static nnc_status add_nodes(body *b, const nnc_node *n, const nnc_ref *in)
{
    const nnc_graph *src = n->body;
    nnc_ref *map = ARENA_NEW(&b->scratch, nnc_ref, src->n_value + 1);
    if (!map)
        return nnc_nomem(b->sink);
    int next = 0;
    for (uint32_t i = 0; i < src->n_node; i++) {
        const nnc_node *m = &src->node[i];
        if (m->op != OP_input) {
            nnc_ref *args = ARENA_NEW(&b->scratch, nnc_ref, m->n_in + 1);
            if (!args)
                return nnc_nomem(b->sink);
            for (int j = 0; j < m->n_in; j++)
                args[j] = map[m->in[j]];
            NNC_TRY(add_node(b, src, m, args, &map[m->out]));
        } else if (next < n->n_in)
            map[m->out] = in[next++];
        else
            return broken(b, "a fused node's body has more inputs than operands");
    }
    for (int i = 0; i < b->n_result; i++)
        b->result[i] = map[src->output[i]];
    return NNC_OK;
}

static nnc_status open_body(body *b, const nnc_graph *g, const nnc_node *n, nnc_arena *a)
{
    b->g = nnc_graph_create("kernel", b->sink);
    nnc_ref *in = ARENA_NEW(&b->scratch, nnc_ref, n->n_in + 1);
    b->operand = ARENA_NEW(&b->scratch, nnc_ref, n->n_in + 1);
    b->n_result = n->n_out;
    b->result = ARENA_NEW(&b->scratch, nnc_ref, n->n_out + 1);
    b->type = ARENA_NEW(&b->scratch, nnc_type, n->n_out + 1);
    b->buf = ARENA_NEW(a, nnc_kbuf, n->n_in + n->n_out + NX_REUSED);
    if (!b->g || !in || !b->operand || !b->result || !b->type || !b->buf)
        return nnc_nomem(b->sink);
    NNC_TRY(add_operands(b, g, n, in));
    NNC_TRY(n->op == OP_fused ? add_nodes(b, n, in) : add_node(b, g, n, in, b->result));
    for (int i = 0; i < n->n_out; i++) {
        b->type[i] = *nnc_typeof(g, n->out + (nnc_ref)i);
        b->buf[b->n_operand + i] = (nnc_kbuf){.role = KB_out,
            .dtype = (nnc_dtype)b->type[i].dtype,
            .numel = nnc_type_span(&b->type[i])};
    }
    b->node = ARENA_NEW(&b->scratch, uint32_t, b->g->n_node + 1);
    if (!b->node)
        return nnc_nomem(b->sink);
    for (uint32_t i = 0; i < b->g->n_node; i++) {
        nnc_op op = (nnc_op)b->g->node[i].op;
        if (nnc_op_class(op) != CL_leaf || op == OP_iota)
            b->node[b->n_node++] = i;
    }
    return b->g->status;
}

static nnc_status build(
    body *b, const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_kernel **out)
{
    NNC_TRY(open_body(b, g, n, a));
    nx_set set = {.g = b->g,
        .node = b->node,
        .n = b->n_node,
        .out = b->result,
        .type = b->type,
        .n_out = b->n_result,
        .input = b->operand,
        .n_input = b->n_operand,
        .spare = -1};
    nx *t = ARENA_NEW(&b->scratch, nx, 1);
    const char *why = NULL;
    if (!t || b->n_operand + b->n_result + NX_REUSED > NNC_KMAX_BUF)
        return nnc_nomem(b->sink);
    b->t = t;
    if (nx_trace(t, &set, &b->scratch, &why)) {
        t->k->buf = b->buf;
        t->k->n_buf = b->n_operand + b->n_result;
        *out = nx_link(t, &b->scratch, a, &why);
    }
    if (*out)
        return NNC_OK;
    return why ? nnc_fail0(b->sink, NNC_E_BUG, "%s (%s): no kernel: %s", nnc_ops[n->op].name,
                     n->origin ? n->origin : "", why)
               : nnc_nomem(b->sink);
}

nnc_kernel *nnc_kernel_build(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink)
{
    body b = {.sink = sink};
    nnc_kernel *k = NULL;
    nnc_arena_init(&b.scratch, 0);
    if (build(&b, g, n, a, &k) != NNC_OK)
        k = NULL;
    if (b.t)
        nnc_free(b.t->ins);
    nnc_graph_destroy(b.g);
    nnc_arena_deinit(&b.scratch);
    return k;
}

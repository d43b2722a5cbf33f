/* plan/call.c -- lowers graph nodes to library calls: contractions, with an epilogue (a `fused` body) or without. The
 * epilogue becomes post-operations, in order; an op without a post-operation prevents the call. */
#include "plan/maker.h"

/* ---- windows ------------------------------------------------------------------------------- */

static void spatial_attrs(const nnc_node *n, nnc_call *c)
{
    const int64_t *v;
    int k = nnc_attr_ints(n, AT_strides, &v);
    for (int i = 0; i < c->spatial; i++)
        c->stride[i] = i < k ? v[i] : 1;
    k = nnc_attr_ints(n, AT_dilations, &v);
    for (int i = 0; i < c->spatial; i++)
        c->dilation[i] = i < k ? v[i] : 1;
    k = nnc_attr_ints(n, AT_pads, &v);
    for (int i = 0; i < c->spatial && k == 2 * c->spatial; i++) {
        c->pad_lo[i] = v[i];
        c->pad_hi[i] = v[i + c->spatial];
    }
    c->groups = nnc_attr_int(n, AT_groups, 1);
}

static void window_call(const nnc_graph *g, const nnc_node *n, nnc_call *c)
{
    c->src = *nnc_typeof(g, n->in[0]);
    c->dst = g->value[n->out].type;
    c->spatial = (uint8_t)(c->src.rank - 2);
    spatial_attrs(n, c);
    c->kind = n->op == OP_conv         ? CALL_conv
              : n->op == OP_conv_wgrad ? CALL_conv_wgrad
                                       : CALL_conv_transpose;
    c->wei = *nnc_typeof(g, n->in[1]);
    for (int i = 0; i < c->spatial; i++)
        c->kernel[i] = c->kind == CALL_conv_wgrad ? c->dst.dim[2 + i] : c->wei.dim[2 + i];
}

/* ---- matmul -------------------------------------------------------------------------------- */

/* [batch.., m, k] x [k, n]: merges the batch into the rows where they are contiguous; [k] (of linear) is one row. */
static void flatten_rows(nnc_call *c)
{
    if (c->src.rank == 2 || c->wei.rank != 2 || c->trans_a || !nnc_type_is_row_major(&c->src) ||
        !nnc_type_is_row_major(&c->dst))
        return;
    int64_t k = c->src.dim[c->src.rank - 1], n = c->dst.dim[c->dst.rank - 1];
    int64_t src[2] = {nnc_type_numel(&c->src) / k, k}, dst[2] = {nnc_type_numel(&c->dst) / n, n};
    c->src = nnc_type_make(c->src.dtype, 2, src);
    c->dst = nnc_type_make(c->dst.dtype, 2, dst);
}

static void matmul_call(const nnc_graph *g, const nnc_node *n, nnc_call *c)
{
    c->kind = CALL_matmul;
    c->trans_a = nnc_attr_int(n, AT_transpose_a, 0) != 0;
    c->trans_b = n->op == OP_linear || nnc_attr_int(n, AT_transpose_b, 0);
    c->src = *nnc_typeof(g, n->in[0]);
    c->wei = *nnc_typeof(g, n->in[1]);
    c->dst = g->value[n->out].type;
    flatten_rows(c);
}

/* n is a contraction. */
static void core_call(const nnc_graph *g, const nnc_node *n, nnc_call *c)
{
    if (n->op == OP_matmul || n->op == OP_linear)
        matmul_call(g, n, c);
    else
        window_call(g, n, c);
}

/* The call's bias is a vector over output channels. */
static void set_bias(nnc_call *c, const nnc_type *t)
{
    int64_t d = nnc_type_numel(t);
    c->has_bias = true;
    c->bias = nnc_type_make(t->dtype, 1, &d);
}

/* ---- epilogues ----------------------------------------------------------------------------- */

static bool push_post(nnc_call *c, int kind, const char **why)
{
    if (c->n_post == NNC_MAX_POST) {
        *why = "more post-operations than a call can hold";
        return false;
    }
    c->post[c->n_post++] = (nnc_post){.kind = (uint8_t)kind};
    return true;
}

/* Unary ops that are post-operations. */
static bool unary_post(nnc_call *c, const nnc_node *n, const char **why)
{
    nnc_post post;
    if (n->op == OP_identity || n->op == OP_dropout)
        return true;
    *why = "an op in the epilogue is no post-operation of any library";
    return nnc_node_post(n, &post) && push_post(c, post.kind, why);
}

/* True when t, broadcast to `to`, varies along dimension `ch` only (and fully). */
static bool per_channel(const nnc_type *t, const nnc_type *to, int ch)
{
    int shift = to->rank - t->rank;
    if (shift < 0 || ch < shift || t->dim[ch - shift] != to->dim[ch])
        return false;
    return nnc_type_numel(t) == to->dim[ch];
}

/* State of the walk along a fused node's body, from the contraction to the result. */
typedef struct walk {
    const nnc_graph *body;
    const nnc_node *outer;
    nnc_call *c;
    call_args *args;
    const char **why;
    nnc_ref *
        /* by body value: the fused node's operand that it equals, through views; or NNC_NONE */
        outside;
    nnc_type result; /* of the contraction, before flattening */
    int channel; /* dimension of its output channels */
} walk;

static bool add_post(walk *w, nnc_ref other)
{
    const nnc_type *t = nnc_typeof(w->body, other);
    nnc_ref outer = w->outside[other];
    double v;
    if (outer == NNC_NONE) {
        *w->why = nnc_const_scalar(w->body, other, &v)
                      ? "adding a constant number is no post-operation"
                      : "an epilogue operand is computed inside the region";
        return false;
    }
    if (!w->c->has_bias && w->c->n_post == 0 && per_channel(t, &w->result, w->channel)) {
        set_bias(w->c, t);
        w->args->bias = outer;
        return true;
    }
    if (!nnc_type_same_memory(t, &w->result) || t->dtype != w->result.dtype) {
        *w->why = "an added tensor is neither a bias nor of the result's shape and layout";
        return false;
    }
    w->args->sum_post[w->args->n_sum] = w->c->n_post;
    if (!push_post(w->c, PO_sum, w->why))
        return false;
    w->args->sum[w->args->n_sum++] = outer;
    return true;
}

/* Lowers one node that uses the current value `cur`. */
static bool step(walk *w, const nnc_node *n, nnc_ref cur)
{
    if (n->n_in == 1)
        return unary_post(w->c, n, w->why);
    nnc_ref other = n->in[0] == cur ? n->in[1] : n->in[0];
    double v;
    if (n->n_in == 2 && other != cur && n->op == OP_add)
        return add_post(w, other);
    if (n->n_in == 2 && other != cur && (n->op == OP_max || n->op == OP_min) &&
        nnc_const_scalar(w->body, other, &v) && v == v)
        return push_post(w->c, n->op == OP_max && v == 0 ? PO_relu : PO_clip, w->why);
    *w->why = "an op in the epilogue is no post-operation of any library";
    return false;
}

/* Finds the operand of the fused node that each value of its body corresponds to, through views. */
static void find_outside(walk *w)
{
    int k = 0;
    for (uint32_t i = 0; i < w->body->n_node; i++) {
        const nnc_node *n = &w->body->node[i];
        for (int r = 0; r < n->n_out; r++)
            w->outside[n->out + (nnc_ref)r] = NNC_NONE;
        if (n->op == OP_input && k < w->outer->n_in)
            w->outside[n->out] = w->outer->in[k++];
        else if (n->n_in == 1 && nnc_op_class(n->op) != CL_leaf && nnc_is_view(w->body, n))
            w->outside[n->out] = w->outside[n->in[0]];
    }
}

static const nnc_node *find_core(const nnc_graph *b)
{
    const nnc_node *core = NULL;
    for (uint32_t i = 0; i < b->n_node; i++) {
        nnc_class k = nnc_op_class(b->node[i].op);
        if (k != CL_contract && k != CL_window)
            continue;
        if (core)
            return NULL;
        core = &b->node[i];
    }
    return core && nnc_op_class(core->op) == CL_contract ? core : NULL;
}

static bool uses(const nnc_node *n, nnc_ref v)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == v)
            return true;
    return false;
}

/* Walks the chain from the contraction: every node, and nothing else, must use the current value. */
static bool walk_chain(walk *w, const nnc_node *core)
{
    nnc_ref cur = core->out;
    for (const nnc_node *n = core + 1; n < w->body->node + w->body->n_node; n++) {
        if (nnc_op_class(n->op) == CL_leaf || w->outside[n->out] != NNC_NONE)
            continue;
        if (!uses(n, cur) || n->n_out != 1 ||
            !nnc_type_same_memory(nnc_typeof(w->body, n->out), &w->result)) {
            *w->why = "the region is no chain after its contraction";
            return false;
        }
        if (!step(w, n, cur))
            return false;
        for (const nnc_node *later = n + 1; later < w->body->node + w->body->n_node; later++)
            if (uses(later, cur)) {
                *w->why = "a value inside the region is used twice";
                return false;
            }
        cur = n->out;
    }
    w->c->dst.dtype = nnc_typeof(w->body, cur)->dtype;
    *w->why = "the region's result is not its last op's";
    return w->body->n_output == 1 && w->body->output[0] == cur;
}

static bool fused_call(
    const nnc_node *n, nnc_call *c, call_args *args, const char **why, nnc_arena *a)
{
    const nnc_graph *b = n->body;
    const nnc_node *core = find_core(b);
    *why = "no contraction in it";
    if (!core)
        return false;
    core_call(b, core, c);
    *why = "libraries compute the gradient of a weight without an epilogue";
    if (c->kind == CALL_conv_wgrad)
        return false;
    walk w = {.body = b, .outer = n, .c = c, .args = args, .why = why};
    w.outside = ARENA_NEW(a, nnc_ref, b->n_value + 1);
    *why = NULL;
    if (!w.outside)
        return false;
    find_outside(&w);
    w.result = *nnc_typeof(b, core->out);
    w.channel = c->kind == CALL_matmul ? w.result.rank - 1 : 1;
    for (int i = 0; i < core->n_in; i++)
        if (w.outside[core->in[i]] == NNC_NONE) {
            *why = "the contraction's operand is computed inside the region";
            return false;
        }
    args->src = w.outside[core->in[0]];
    args->wei = w.outside[core->in[1]];
    if (core->n_in > 2) {
        set_bias(c, nnc_typeof(b, core->in[2]));
        args->bias = w.outside[core->in[2]];
    }
    return walk_chain(&w, core);
}

bool make_call(
    const nnc_graph *g, const nnc_node *n, nnc_call *c, call_args *args, const char **why)
{
    *c = (nnc_call){.groups = 1};
    *args = (call_args){.wei = NNC_NONE, .bias = NNC_NONE};
    bool dense = nnc_type_is_dense(nnc_typeof(g, n->out));
    for (int i = 0; i < n->n_in; i++)
        dense = dense && nnc_type_is_dense(nnc_typeof(g, n->in[i]));
    if (!dense) {
        *why = "an operand or the result is a part of a larger tensor";
        return false;
    }
    if (n->op == OP_fused) {
        NNC_LOCAL(nnc_arena) a = {0};
        return fused_call(n, c, args, why, &a);
    }
    core_call(g, n, c);
    args->src = n->in[0];
    args->wei = n->in[1];
    if (n->n_in > 2) {
        set_bias(c, nnc_typeof(g, n->in[2]));
        args->bias = n->in[2];
    }
    return true;
}

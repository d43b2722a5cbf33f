/* passes/fold_batchnorm.c -- (w x + b - mean) s + beta = (w s) x + (b - mean) s + beta, with s = gamma / sqrt(var + eps), per output
 * channel. The new weights are nodes that depend on params only: `init` computes them once, and compiling reads no weight. A batchnorm
 * that remains is two ops with static operands for the fusion passes. Terminates: every application removes a batchnorm. */
#include "passes/internal.h"

/* Weights of 16-bit models are folded in f32, so that they are rounded once instead of four times. */
static nnc_ref widen(pass *p, nnc_ref v)
{
    nnc_dtype d = type_of(p, v)->dtype;
    return d == DT_f16 || d == DT_bf16 ? nnc_cast(p->g, v, DT_f32) : v;
}

static nnc_ref narrow(pass *p, nnc_ref v, nnc_dtype d)
{
    if (v == NNC_NONE || type_of(p, v)->dtype == d)
        return v;
    return nnc_cast(p->g, v, d);
}

/* Scales w per output channel: dimension 0 for conv and linear, 0 and 1 for conv_transpose [C, K/groups, ...]. */
static nnc_ref scale_weights(pass *p, const nnc_node *c, nnc_ref w, nnc_ref s)
{
    nnc_type t = *type_of(p, w);
    int64_t dim[NNC_MAX_RANK],
        wide[NNC_MAX_RANK]; /* weights of a convolution have rank 5 at most */
    if (c->op != OP_conv_transpose) {
        dim[0] = t.dim[0];
        for (int i = 1; i < t.rank; i++)
            dim[i] = 1;
        return nnc_build2(p->g, OP_mul, w, nnc_reshape(p->g, s, t.rank, dim));
    }
    int64_t groups = nnc_attr_int(c, AT_groups, 1);
    wide[0] = dim[0] = groups;
    wide[1] = t.dim[0] / groups, dim[1] = 1;
    wide[2] = dim[2] = t.dim[1];
    for (int i = 2; i < t.rank; i++)
        wide[i + 1] = t.dim[i], dim[i + 1] = 1;
    nnc_ref scaled = nnc_build2(p->g, OP_mul, nnc_reshape(p->g, w, t.rank + 1, wide),
        nnc_reshape(p->g, s, t.rank + 1, dim));
    return nnc_reshape(p->g, scaled, t.rank, t.dim);
}

static const char *blocker(pass *p, const nnc_node *bn)
{
    const nnc_node *c = def_of(p, bn->in[0]);
    for (int k = 1; k < 5; k++)
        if (!edit_static(p, bn->in[k]))
            return "its statistics or factors are computed at run time";
    if (c->op != OP_conv && c->op != OP_linear && c->op != OP_conv_transpose)
        return remark_text(p,
            "its operand comes from %s, which has no weights to fold it into; it is fused as two "
            "elementwise ops",
            nnc_ops[c->op].name);
    if (c->op == OP_linear && type_of(p, c->out)->rank != 2)
        return "the channels of batchnorm are dimension 1, the features of linear the last one";
    if (!(nnc_attr_float(bn, AT_eps, 1e-5) > 0)) /* inf - inf between its products would be NaN */
        return "its eps is 0: a variance of 0 would make the weights infinite";
    if (edit_is_output(p, bn->in[0]))
        return remark_text(
            p, "the result of %s is also an output of the graph", nnc_ops[c->op].name);
    if (p->e.n_use[bn->in[0]] != 1)
        return remark_text(
            p, "the result of %s has %u consumers", nnc_ops[c->op].name, p->e.n_use[bn->in[0]]);
    for (int k = 1; k < c->n_in; k++)
        if (!edit_static(p, c->in[k]))
            return "the weights are computed at run time";
    return NULL;
}

static void fold(pass *p, uint32_t i)
{
    nnc_graph *g = p->g;
    nnc_node bn = g->node[i];
    uint32_t ci = g->value[bn.in[0]].node;
    nnc_node c = g->node[ci];
    layers l = layers_of(p, ci, i);
    nnc_dtype d = type_of(p, c.in[1])->dtype;
    nnc_type type = *type_of(p, bn.out);
    edit_at(p, i);
    nnc_ref gamma = widen(p, bn.in[1]), beta = widen(p, bn.in[2]), mean = widen(p, bn.in[3]);
    nnc_ref var = widen(p, bn.in[4]), w = widen(p, c.in[1]);
    if (p->status != NNC_OK || g->status != NNC_OK) {
        edit_sync(p);
        return;
    }
    nnc_ref eps = nnc_scalar(g, type_of(p, var)->dtype, nnc_attr_float(&bn, AT_eps, 1e-5));
    nnc_ref s =
        nnc_build2(g, OP_div, gamma, nnc_build1(g, OP_sqrt, nnc_build2(g, OP_add, var, eps)));
    nnc_ref shift =
        c.n_in == 3 ? nnc_build2(g, OP_sub, widen(p, c.in[2]), mean) : nnc_build1(g, OP_neg, mean);
    nnc_ref b = nnc_build2(g, OP_add, nnc_build2(g, OP_mul, shift, s), beta);
    nnc_ref in[3] = {c.in[0], NNC_NONE, NNC_NONE};
    in[1] = g->status == NNC_OK ? narrow(p, scale_weights(p, &c, w, s), d) : NNC_NONE;
    in[2] = narrow(p, b, d);
    g->origin = c.origin && bn.origin ? remark_text(p, "%s+%s", c.origin, bn.origin) : bn.origin;
    nnc_ref y = nnc_build_typed(g, c.op, 3, in, c.n_attr, c.attr, &type);
    edit_sync(p);
    edit_replace(p, bn.out, y);
    remark_applied(p, &l, "batchnorm into weights",
        "scale and shift are folded into the weights and the bias of the %s, once, when weights "
        "are loaded",
        nnc_ops[c.op].name);
}

nnc_status pass_fold_batchnorm(pass *p)
{
    uint32_t n_node = p->g->n_node;
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        const nnc_node *n = &p->g->node[i];
        if (n->op != OP_batchnorm || p->e.dead[i] || edit_static(p, n->out))
            continue;
        const char *why = blocker(p, n);
        if (!why) {
            fold(p, i);
            continue;
        }
        layers l = layers_of(p, p->g->value[n->in[0]].node, i);
        remark_declined(p, &l, "batchnorm into weights", "%s", why);
    }
    return p->status ? p->status : merge_of_tasks(p);
}

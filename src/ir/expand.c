/* ir/expand.c -- the lowering of named ops (relu, gelu, softmax, batchnorm, ...) to simpler ones.
 *
 * Everything stays in the operand's dtype (16-bit kernels compute in f32 internally), constants too. Parts that depend on weights only
 * are built separately from the data, so that they are static and computed once (batchnorm's scale and shift). The evaluator has
 * formulas of its own for these ops; tests compare the two. */
#include "ir/eval_internal.h"
#include "ir/graph.h"

#include <math.h>
#include <string.h>

typedef struct ex {
    nnc_graph *g;
    const nnc_node *n;
    const nnc_ref *in;
    nnc_ref x; /* operand 0 */
    nnc_dtype d;
    const nnc_expander *to; /* NULL: adds nodes to g */
} ex;

static nnc_ref num(ex *e, double v)
{
    return e->to ? e->to->number(e->to->ctx, v) : nnc_scalar(e->g, e->d, v);
}
static nnc_ref un(ex *e, nnc_op op, nnc_ref a)
{
    return e->to ? e->to->op(e->to->ctx, op, 1, &a) : nnc_build1(e->g, op, a);
}
static nnc_ref bin(ex *e, nnc_op op, nnc_ref a, nnc_ref b)
{
    return e->to ? e->to->op(e->to->ctx, op, 2, (nnc_ref[]){a, b}) : nnc_build2(e->g, op, a, b);
}
static nnc_ref binc(ex *e, nnc_op op, nnc_ref a, double b)
{
    return bin(e, op, a, num(e, b));
}

double ev_attr_value(nnc_dtype d, double v)
{
    if (nnc_is_float(d))
        return v;
    if (v != v)
        return 0;
    int bits = nnc_dtype_size(d) * 8;
    nnc_dkind k = nnc_dtype_kind(d);
    double lo = k == NNC_INT ? -ldexp(1, bits - 1) : 0;
    double hi = k == NNC_BOOL ? 1 : ldexp(1, k == NNC_INT ? bits - 1 : bits) - 1;
    if (bits == 64) /* 2^63 - 1 is not a double: use the largest below */
        hi = nextafter(ldexp(1, k == NNC_INT ? 63 : 64), 0);
    v = trunc(v);
    return v < lo ? lo : v > hi ? hi : v;
}

/* min(max(x, lo), hi), without bounds that never apply. */
static nnc_ref clip(ex *e, nnc_ref x, double lo, double hi)
{
    nnc_ref y = x;
    if (lo != -INFINITY)
        y = binc(e, OP_max, y, ev_attr_value(e->d, lo));
    if (hi != INFINITY)
        y = binc(e, OP_min, y, ev_attr_value(e->d, hi));
    return y == x ? un(e, OP_identity, x) : y;
}

/* x > 0 ? x : other */
static nnc_ref positive_or(ex *e, nnc_ref other)
{
    nnc_ref in[] = {binc(e, OP_gt, e->x, 0), e->x, other};
    return e->to ? e->to->op(e->to->ctx, OP_select, 3, in)
                 : nnc_build3(e->g, OP_select, in[0], in[1], in[2]);
}

static nnc_ref gelu(ex *e)
{
    const nnc_attr *form = nnc_attr_find(e->n, AT_approximate);
    nnc_ref half = binc(e, OP_mul, e->x, 0.5);
    nnc_ref t;
    if (form && form->word && !strcmp(form->word, "tanh")) {
        /* x + 0.044715 x^3 = x (1 + 0.044715 x^2) */
        nnc_ref x2 = bin(e, OP_mul, e->x, e->x);
        nnc_ref p = binc(e, OP_add, binc(e, OP_mul, x2, 0.044715), 1);
        nnc_ref q = binc(e, OP_mul, bin(e, OP_mul, e->x, p), 0.7978845608028654);
        t = un(e, OP_tanh, q);
    } else {
        t = un(e, OP_erf, binc(e, OP_mul, e->x, 0.7071067811865476));
    }
    return bin(e, OP_mul, half, binc(e, OP_add, t, 1));
}

static nnc_ref softplus(ex *e)
{
    nnc_ref tail = un(e, OP_log1p, un(e, OP_exp, un(e, OP_neg, un(e, OP_abs, e->x))));
    return bin(e, OP_add, binc(e, OP_max, e->x, 0), tail);
}

/* alpha (e^x - 1) */
static nnc_ref scaled_expm1(ex *e, double alpha)
{
    return binc(e, OP_mul, un(e, OP_expm1, e->x), alpha);
}

static nnc_ref hard_gate(ex *e, double alpha, double beta)
{
    return clip(e, binc(e, OP_add, binc(e, OP_mul, e->x, alpha), beta), 0, 1);
}

static nnc_ref expand_ewise(ex *e)
{
    const nnc_node *n = e->n;
    switch (n->op) {
    case OP_relu: return binc(e, OP_max, e->x, 0);
    case OP_leaky_relu: {
        double alpha = ev_attr_value(e->d, nnc_attr_float(n, AT_alpha, 0.01));
        return positive_or(e, binc(e, OP_mul, e->x, alpha));
    }
    case OP_prelu: return positive_or(e, bin(e, OP_mul, e->in[1], e->x));
    case OP_relu6: return clip(e, e->x, 0, 6);
    case OP_clip:
        return clip(
            e, e->x, nnc_attr_float(n, AT_lo, -INFINITY), nnc_attr_float(n, AT_hi, INFINITY));
    case OP_gelu: return gelu(e);
    case OP_silu: return bin(e, OP_mul, e->x, un(e, OP_sigmoid, e->x));
    case OP_hardswish: return bin(e, OP_mul, e->x, hard_gate(e, 1.0 / 6, 0.5));
    case OP_hardsigmoid:
        return hard_gate(e, nnc_attr_float(n, AT_alpha, 1.0 / 6), nnc_attr_float(n, AT_beta, 0.5));
    case OP_softplus: return softplus(e);
    case OP_softsign: return bin(e, OP_div, e->x, binc(e, OP_add, un(e, OP_abs, e->x), 1));
    case OP_elu: return positive_or(e, scaled_expm1(e, nnc_attr_float(n, AT_alpha, 1)));
    case OP_selu:
        return binc(
            e, OP_mul, positive_or(e, scaled_expm1(e, 1.6732632423543772)), 1.0507009873554805);
    case OP_mish: return bin(e, OP_mul, e->x, un(e, OP_tanh, softplus(e)));
    case OP_square: return bin(e, OP_mul, e->x, e->x);
    case OP_dropout: return un(e, OP_identity, e->x);
    default: return NNC_NONE;
    }
}

/* Reduction over dimensions first..last, which keep extent 1. */
static nnc_ref over(ex *e, nnc_op op, nnc_ref x, int first, int last)
{
    int64_t axes[NNC_MAX_RANK] = {0};
    for (int d = first; d <= last; d++)
        axes[d - first] = d;
    return nnc_reduce(e->g, op, x, last - first + 1, axes, true);
}

/* A per-channel vector [C] reshaped to broadcast over [N,C,spatial...]. */
static nnc_ref per_channel(ex *e, nnc_ref v, int rank)
{
    int64_t dim[NNC_MAX_RANK];
    if (v == NNC_NONE || rank <= 2)
        return v;
    dim[0] = nnc_typeof(e->g, v)->dim[0];
    for (int d = 1; d < rank - 1; d++)
        dim[d] = 1;
    return nnc_reshape(e->g, v, rank - 1, dim);
}

/* 1/sqrt(v + eps). An eps that rounds to zero in the dtype becomes its smallest number, so that a constant row stays finite. */
static nnc_ref inverse_deviation(ex *e, nnc_ref v)
{
    double eps = nnc_attr_float(e->n, AT_eps, 1e-5);
    if (e->d == DT_f16 && eps > 0 && eps < 0x1p-24)
        eps = 0x1p-24;
    return un(e, OP_rsqrt, binc(e, OP_add, v, eps));
}

static nnc_ref expand_softmax(ex *e, bool log_form)
{
    int axis = (int)nnc_attr_int(e->n, AT_axis, nnc_typeof(e->g, e->x)->rank - 1);
    nnc_ref z = bin(e, OP_sub, e->x, over(e, OP_reduce_max, e->x, axis, axis));
    nnc_ref ez = un(e, OP_exp, z);
    nnc_ref sum = over(e, OP_reduce_sum, ez, axis, axis);
    return log_form ? bin(e, OP_sub, z, un(e, OP_log, sum)) : bin(e, OP_div, ez, sum);
}

/* y = x scale + shift, scale = gamma rsqrt(var + eps), shift = beta - mean scale: both static for inference. */
static nnc_ref expand_batchnorm(ex *e, int rank)
{
    nnc_ref scale = bin(e, OP_mul, e->in[1], inverse_deviation(e, e->in[4]));
    nnc_ref shift = bin(e, OP_sub, e->in[2], bin(e, OP_mul, e->in[3], scale));
    nnc_ref y = bin(e, OP_mul, e->x, per_channel(e, scale, rank));
    return bin(e, OP_add, y, per_channel(e, shift, rank));
}

/* (x - mean) / sqrt(var + eps) over dimensions first..last. */
static nnc_ref normalise(ex *e, nnc_ref x, int first, int last)
{
    nnc_ref c = bin(e, OP_sub, x, over(e, OP_reduce_mean, x, first, last));
    nnc_ref var = over(e, OP_reduce_mean, bin(e, OP_mul, c, c), first, last);
    return bin(e, OP_mul, c, inverse_deviation(e, var));
}

static nnc_ref affine(ex *e, nnc_ref y, nnc_ref gamma, nnc_ref beta)
{
    if (gamma != NNC_NONE)
        y = bin(e, OP_mul, y, gamma);
    if (beta != NNC_NONE)
        y = bin(e, OP_add, y, beta);
    return y;
}

static nnc_ref expand_groupnorm(ex *e, nnc_ref gamma, nnc_ref beta)
{
    nnc_type t = *nnc_typeof(e->g, e->x);
    int64_t groups = nnc_attr_int(e->n, AT_num_groups, 1);
    int64_t dim[3] = {t.dim[0], groups, nnc_type_numel(&t) / t.dim[0] / groups};
    nnc_ref y = normalise(e, nnc_reshape(e->g, e->x, 3, dim), 2, 2);
    y = nnc_reshape(e->g, y, t.rank, t.dim);
    return affine(e, y, per_channel(e, gamma, t.rank), per_channel(e, beta, t.rank));
}

static nnc_ref expand_nest(ex *e)
{
    const nnc_node *n = e->n;
    int rank = nnc_typeof(e->g, e->x)->rank;
    nnc_ref gamma = n->n_in > 1 ? e->in[1] : NNC_NONE, beta = n->n_in > 2 ? e->in[2] : NNC_NONE;
    int axis = (int)nnc_attr_int(n, AT_axis, rank - 1);
    switch (n->op) {
    case OP_global_avgpool: return over(e, OP_reduce_mean, e->x, 2, rank - 1);
    case OP_global_maxpool: return over(e, OP_reduce_max, e->x, 2, rank - 1);
    case OP_softmax: return expand_softmax(e, false);
    case OP_log_softmax: return expand_softmax(e, true);
    case OP_batchnorm: return expand_batchnorm(e, rank);
    case OP_layernorm: return affine(e, normalise(e, e->x, axis, rank - 1), gamma, beta);
    case OP_rmsnorm: {
        nnc_ref ms = over(e, OP_reduce_mean, bin(e, OP_mul, e->x, e->x), axis, rank - 1);
        return affine(e, bin(e, OP_mul, e->x, inverse_deviation(e, ms)), gamma, NNC_NONE);
    }
    case OP_groupnorm: return expand_groupnorm(e, gamma, beta);
    default: return NNC_NONE;
    }
}

nnc_ref nnc_expand_ewise(const nnc_node *n, nnc_dtype d, const nnc_ref *in, const nnc_expander *f)
{
    ex e = {.n = n, .in = in, .x = in[0], .d = d, .to = f};
    return expand_ewise(&e);
}

nnc_ref nnc_expand(nnc_graph *g, const nnc_node *n, const nnc_ref *in)
{
    for (int i = 0; i < n->n_in; i++)
        if (in[i] == NNC_NONE)
            return NNC_NONE;
    nnc_class cls = nnc_op_class(n->op);
    if ((cls != CL_ecomp && cls != CL_comp) || g->status != NNC_OK)
        return NNC_NONE;

    const nnc_node before = nnc_take_place(g, n);
    ex e = {g, n, in, in[0], nnc_typeof(g, in[0])->dtype, NULL};
    nnc_ref r = cls == CL_ecomp ? expand_ewise(&e) : expand_nest(&e);
    nnc_take_place(g, &before);
    return r;
}

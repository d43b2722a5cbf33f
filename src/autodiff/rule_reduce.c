/* autodiff/rule_reduce.c -- reductions, softmax and the norms. */
#include "autodiff/internal.h"

/* The dimensions that a reduction reduces. */
static int axes_of(const visit *a, const int64_t **axes)
{
    return nnc_attr_ints(&a->n, AT_axes, axes);
}

/* r, of a reduction's result type, with the reduced dimensions kept with extent 1, so that it broadcasts to the operand. */
static nnc_ref kept(visit *a, nnc_ref r)
{
    const int64_t *axes;
    nnc_type t = *in_type(a, 0);
    int n = axes_of(a, &axes);
    for (int i = 0; i < n; i++)
        t.dim[axes[i]] = 1;
    return nnc_reshape(a->g, r, t.rank, t.dim);
}

static int64_t count_of(const visit *a)
{
    const int64_t *axes;
    int64_t count = 1;
    int n = axes_of(a, &axes);
    for (int i = 0; i < n; i++)
        count *= in_type(a, 0)->dim[axes[i]];
    return count;
}

void sum_rule(visit *a)
{
    nnc_ref r = kept(a, a->dy[0]);
    if (a->n.op == OP_reduce_mean)
        r = with_number(a, OP_mul, r, 1.0 / (double)count_of(a));
    give(a, 0, nnc_broadcast(a->g, r, in_type(a, 0)->rank, in_type(a, 0)->dim));
}

/* Equal elements share it. */
void extreme_rule(visit *a)
{
    const int64_t *axes;
    int n = axes_of(a, &axes);
    nnc_ref x = a->n.in[0];
    nnc_dtype d = dtype_of(a, x);
    nnc_ref is = nnc_build2(a->g, OP_eq, x, kept(a, a->n.out));
    nnc_ref count = nnc_reduce(a->g, OP_reduce_sum, nnc_cast(a->g, is, d), n, axes, true);
    nnc_ref share = nnc_build2(a->g, OP_div, kept(a, a->dy[0]), count);
    give(a, 0, nnc_build3(a->g, OP_select, is, share, nnc_scalar(a->g, d, 0)));
}

/* The product of all other elements is the product before times the product after, so zeros do no harm. The operand is [kept,
 * reduced], its reduced dimensions last. */
void prod_rule(visit *a)
{
    const int64_t *axes;
    const nnc_type x = *in_type(a, 0);
    int n = axes_of(a, &axes), k = 0;
    int64_t perm[NNC_MAX_RANK] = {0}, back[NNC_MAX_RANK] = {0}, dim[2] = {1, 1};
    bool reduced[NNC_MAX_RANK] = {false};
    for (int i = 0; i < n; i++)
        reduced[axes[i]] = true;
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < x.rank; d++)
            if (reduced[d] == (pass == 1)) {
                dim[pass] *= x.dim[d];
                perm[k++] = d;
            }
    nnc_ref turned = nnc_transpose(a->g, a->n.in[0], perm);
    nnc_ref rows = nnc_reshape(a->g, turned, 2, dim), part[2];
    if (rows == NNC_NONE)
        return;
    for (int side = 0; side < 2; side++) {
        const nnc_attr at[] = {
            nnc_ai(AT_axis, 1), nnc_ai(AT_exclusive, 1), nnc_ai(AT_reverse, side)};
        part[side] = nnc_build(a->g, OP_cumprod, 1, &rows, 3, at);
    }
    const nnc_type t = *nnc_typeof(a->g, turned);
    for (int d = 0; d < x.rank; d++)
        back[perm[d]] = d;
    nnc_ref others = nnc_build2(a->g, OP_mul, part[0], part[1]);
    others = nnc_transpose(a->g, nnc_reshape(a->g, others, t.rank, t.dim), back);
    give(a, 0, nnc_build2(a->g, OP_mul, kept(a, a->dy[0]), others));
}

/* ---- softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - e^y sum(dy) ------------------------------------------------- */

void softmax_rule(visit *a)
{
    nnc_ref y = a->n.out, dy = a->dy[0];
    int64_t axis = nnc_attr_int(&a->n, AT_axis, in_type(a, 0)->rank - 1);
    if (a->n.op == OP_log_softmax) {
        nnc_ref sum = nnc_reduce(a->g, OP_reduce_sum, dy, 1, &axis, true);
        nnc_ref p = nnc_build2(a->g, OP_mul, nnc_build1(a->g, OP_exp, y), sum);
        give(a, 0, nnc_build2(a->g, OP_sub, dy, p));
        return;
    }
    nnc_ref sum = nnc_reduce(a->g, OP_reduce_sum, nnc_build2(a->g, OP_mul, dy, y), 1, &axis, true);
    give(a, 0, nnc_build2(a->g, OP_mul, y, nnc_build2(a->g, OP_sub, dy, sum)));
}

/* ---- norms ---------------------------------------------------------------------------------------------------------------- */

/* xh = (x - mean) r, r = 1/sqrt(var + eps) over dimensions first..last, of which rmsnorm leaves out the mean:
 *
 *     dx = r (dxh - mean(dxh) - xh mean(dxh xh)) */
typedef struct norm {
    nnc_ref xh, r;
    int64_t axes[NNC_MAX_RANK];
    int n;
    bool centred;
} norm;

static nnc_ref mean_of(visit *a, const norm *m, nnc_ref x)
{
    return nnc_reduce(a->g, OP_reduce_mean, x, m->n, m->axes, true);
}

static void normalise(visit *a, norm *m, nnc_ref x, int first, int last)
{
    m->n = 0;
    for (int d = first; d <= last; d++)
        m->axes[m->n++] = d;
    if (m->centred)
        x = nnc_build2(a->g, OP_sub, x, mean_of(a, m, x));
    nnc_ref var = mean_of(a, m, nnc_build2(a->g, OP_mul, x, x));
    double eps = nnc_attr_float(&a->n, AT_eps, 1e-5);
    m->r = nnc_build1(a->g, OP_rsqrt, with_number(a, OP_add, var, eps));
    m->xh = nnc_build2(a->g, OP_mul, x, m->r);
}

static nnc_ref norm_backward(visit *a, const norm *m, nnc_ref dxh)
{
    nnc_ref along = mean_of(a, m, nnc_build2(a->g, OP_mul, dxh, m->xh)), r = dxh;
    if (m->centred)
        r = nnc_build2(a->g, OP_sub, r, mean_of(a, m, dxh));
    r = nnc_build2(a->g, OP_sub, r, nnc_build2(a->g, OP_mul, m->xh, along));
    return nnc_build2(a->g, OP_mul, r, m->r);
}

/* layernorm and rmsnorm: y = xh gamma + beta, gamma and beta over the dimensions from axis on. */
void layernorm_rule(visit *a)
{
    int rank = in_type(a, 0)->rank, axis = (int)nnc_attr_int(&a->n, AT_axis, rank - 1);
    norm m = {.centred = a->n.op == OP_layernorm};
    nnc_ref dy = a->dy[0];
    normalise(a, &m, a->n.in[0], axis, rank - 1);
    if (wanted(a, 1))
        give(a, 1, nnc_build2(a->g, OP_mul, dy, m.xh));
    give(a, 2, dy);
    if (wanted(a, 0))
        give(a, 0,
            norm_backward(a, &m, a->n.n_in > 1 ? nnc_build2(a->g, OP_mul, dy, a->n.in[1]) : dy));
}

/* [C] so that it broadcasts over [N,C,spatial...] */
static nnc_ref per_channel(visit *a, nnc_ref v, int rank)
{
    int64_t dim[NNC_MAX_RANK] = {nnc_typeof(a->g, v)->dim[0]};
    for (int d = 1; d < rank - 1; d++)
        dim[d] = 1;
    return rank > 2 ? nnc_reshape(a->g, v, rank - 1, dim) : v;
}

/* The sum of r over all dimensions but that of the channels. */
static nnc_ref channel_sum(visit *a, nnc_ref r)
{
    int64_t axes[NNC_MAX_RANK] = {0};
    int n = 1, rank = r == NNC_NONE ? 0 : nnc_typeof(a->g, r)->rank;
    for (int d = 2; d < rank; d++)
        axes[n++] = d;
    return r == NNC_NONE ? r : nnc_reduce(a->g, OP_reduce_sum, r, n, axes, false);
}

void groupnorm_rule(visit *a)
{
    const nnc_type t = *in_type(a, 0);
    int64_t groups = nnc_attr_int(&a->n, AT_num_groups, 1);
    const int64_t dim[] = {t.dim[0], groups, nnc_type_numel(&t) / t.dim[0] / groups};
    norm m = {.centred = true};
    nnc_ref dy = a->dy[0], dxh = dy;
    normalise(a, &m, nnc_reshape(a->g, a->n.in[0], 3, dim), 2, 2);
    if (m.xh == NNC_NONE)
        return;
    if (wanted(a, 1))
        give(a, 1,
            channel_sum(a, nnc_build2(a->g, OP_mul, dy, nnc_reshape(a->g, m.xh, t.rank, t.dim))));
    if (wanted(a, 2))
        give(a, 2, channel_sum(a, dy));
    if (!wanted(a, 0))
        return;
    if (a->n.n_in > 1)
        dxh = nnc_build2(a->g, OP_mul, dy, per_channel(a, a->n.in[1], t.rank));
    dxh = norm_backward(a, &m, nnc_reshape(a->g, dxh, 3, dim));
    give(a, 0, nnc_reshape(a->g, dxh, t.rank, t.dim));
}

/* The node that computes v, through reshapes. */
static const nnc_node *through_reshapes(const visit *a, nnc_ref v)
{
    while (nnc_def(a->g, v)->op == OP_reshape)
        v = nnc_def(a->g, v)->in[0];
    return nnc_def(a->g, v);
}

/* Is n a mean over all dimensions but that of the channels? */
static bool is_channel_mean(const visit *a, const nnc_node *n)
{
    const int64_t *axes;
    if (n->op != OP_reduce_mean)
        return false;
    const int k = nnc_attr_ints(n, AT_axes, &axes);
    return k == nnc_typeof(a->g, n->in[0])->rank - 1 && axes[0] == 0 && (k == 1 || axes[1] == 2);
}

/* Are the mean and the variance of a batch norm those of its operand x: mean(x) and mean((x - mean(x))^2)? */
static bool is_of_batch(const visit *a)
{
    const nnc_node *mean = through_reshapes(a, a->n.in[3]), *var = through_reshapes(a, a->n.in[4]);
    if (!is_channel_mean(a, mean) || mean->in[0] != a->n.in[0] || !is_channel_mean(a, var))
        return false;
    const nnc_node *square = nnc_def(a->g, var->in[0]);
    if (square->op != OP_mul || square->in[0] != square->in[1])
        return false;
    const nnc_node *centred = nnc_def(a->g, square->in[0]);
    return centred->op == OP_sub && centred->in[0] == a->n.in[0] &&
           through_reshapes(a, centred->in[1]) == mean;
}

/* The gradient of x if mean and variance are computed from x, including their share. With c = x - mean, whose M elements of a channel have
 * the sum 0, dx = scale (dy - sum(dy) / M - c r^2 sum(dy c) / M). By its parts, each sum would wait for a pass over memory. The gradient of
 * the mean through the variance, which is 0, would wait for one more. c is written as x + -mean, and dy is multiplied last. So the kernel
 * after the sums needs neither a c nor a product of the kernel of the sums from memory. */
static nnc_ref batch_dx(visit *a, nnc_ref scale, nnc_ref r, nnc_ref sum, nnc_ref dot, int rank)
{
    const nnc_type *t = in_type(a, 0);
    const double part = -1.0 / ((double)nnc_type_numel(t) / (double)t->dim[1]);
    nnc_ref k0 = with_number(a, OP_mul, sum, part);
    nnc_ref k1 =
        nnc_build2(a->g, OP_mul, nnc_build2(a->g, OP_mul, r, r), with_number(a, OP_mul, dot, part));
    nnc_ref less = nnc_build1(a->g, OP_neg, a->n.in[3]);
    nnc_ref c = nnc_build2(a->g, OP_add, a->n.in[0], per_channel(a, less, rank));
    nnc_ref by_c = nnc_build2(a->g, OP_mul, c, per_channel(a, k1, rank));
    nnc_ref rest = nnc_build2(a->g, OP_add, by_c, per_channel(a, k0, rank));
    return nnc_build2(
        a->g, OP_mul, nnc_build2(a->g, OP_add, a->dy[0], rest), per_channel(a, scale, rank));
}

/* x, gamma, beta, mean, var: y = (x - mean) r gamma + beta with r = 1/sqrt(var + eps), per channel. mean and var are operands like the
 * others, except where they are those of x. */
void batchnorm_rule(visit *a)
{
    const bool of_batch = wanted(a, 0) && is_of_batch(a);
    const bool to_mean = wanted(a, 3) && !of_batch, to_var = wanted(a, 4) && !of_batch;
    int rank = in_type(a, 0)->rank;
    const nnc_ref *in = a->n.in;
    nnc_ref dy = a->dy[0], gamma = in[1], dot = NNC_NONE;
    double eps = nnc_attr_float(&a->n, AT_eps, 1e-5);
    nnc_ref r = nnc_build1(a->g, OP_rsqrt, with_number(a, OP_add, in[4], eps));
    nnc_ref scale = nnc_build2(a->g, OP_mul, gamma, r);
    if (scale == NNC_NONE)
        return;
    if (wanted(a, 0) && !of_batch)
        give(a, 0, nnc_build2(a->g, OP_mul, dy, per_channel(a, scale, rank)));
    nnc_ref sum = wanted(a, 2) || of_batch || to_mean ? channel_sum(a, dy) : NNC_NONE;
    if (wanted(a, 1) || of_batch || to_var) {
        nnc_ref c = nnc_build2(a->g, OP_sub, in[0], per_channel(a, in[3], rank));
        dot = channel_sum(a, nnc_build2(a->g, OP_mul, dy, c));
    }
    if (wanted(a, 2))
        give(a, 2, sum);
    if (wanted(a, 1))
        give(a, 1, nnc_build2(a->g, OP_mul, dot, r));
    if (of_batch)
        give(a, 0, batch_dx(a, scale, r, sum, dot, rank));
    if (to_mean)
        give(a, 3, nnc_build1(a->g, OP_neg, nnc_build2(a->g, OP_mul, sum, scale)));
    if (to_var) { /* dr/dvar = -r^3 / 2 */
        nnc_ref r2 = with_number(a, OP_mul, nnc_build2(a->g, OP_mul, r, r), -0.5);
        give(a, 4, nnc_build2(a->g, OP_mul, nnc_build2(a->g, OP_mul, dot, scale), r2));
    }
}

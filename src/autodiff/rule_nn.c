/* autodiff/rule_nn.c -- contractions, windows and activations with a rule of their own. */
#include "autodiff/internal.h"

#include <string.h>

/* ---- products --------------------------------------------------------------------------------------------------------- */

static nnc_ref product(visit *a, nnc_ref x, nnc_ref y, bool tx, bool ty)
{
    const nnc_ref in[] = {x, y};
    const nnc_attr at[] = {nnc_ai(AT_transpose_a, tx), nnc_ai(AT_transpose_b, ty)};
    return nnc_build(a->g, OP_matmul, 2, in, 2, at);
}

/* y = A B, where A is a or its transpose: dA = dy B^T, dB = A^T dy. */
void matmul_rule(visit *a)
{
    nnc_ref x = a->n.in[0], w = a->n.in[1], dy = a->dy[0];
    bool tx = nnc_attr_int(&a->n, AT_transpose_a, 0), tw = nnc_attr_int(&a->n, AT_transpose_b, 0);
    if (wanted(a, 0))
        give(a, 0, tx ? product(a, w, dy, tw, true) : product(a, dy, w, false, !tw));
    if (wanted(a, 1))
        give(a, 1, tw ? product(a, dy, x, true, tx) : product(a, x, dy, !tx, false));
}

/* All dimensions but the last as one. */
static nnc_ref rows_of(visit *a, nnc_ref x)
{
    const nnc_type *t = nnc_typeof(a->g, x);
    const int64_t last = t->dim[t->rank - 1], dim[] = {nnc_type_numel(t) / last, last};
    return nnc_reshape(a->g, x, 2, dim);
}

void linear_rule(visit *a)
{
    const nnc_type x = *in_type(a, 0);
    const int64_t first = 0;
    nnc_ref dy = rows_of(a, a->dy[0]);
    if (wanted(a, 0)) {
        nnc_ref dx = product(a, dy, a->n.in[1], false, false);
        give(a, 0, nnc_reshape(a->g, dx, x.rank, x.dim));
    }
    if (wanted(a, 1))
        give(a, 1, product(a, dy, rows_of(a, a->n.in[0]), true, false));
    if (wanted(a, 2))
        give(a, 2, nnc_reduce(a->g, OP_reduce_sum, dy, 1, &first, false));
}

/* ---- windows ---------------------------------------------------------------------------------------------------------- */

#define SPATIAL 3

typedef struct window {
    int s; /* spatial dimensions */
    int64_t stride[SPATIAL], dilation[SPATIAL], lo[SPATIAL], hi[SPATIAL], kernel[SPATIAL];
    int64_t groups;
} window;

static void read_ints(const nnc_node *n, nnc_akey key, int s, int64_t dflt, int64_t *to)
{
    const int64_t *v;
    int k = nnc_attr_ints(n, key, &v);
    for (int i = 0; i < s; i++)
        to[i] = k ? v[i] : dflt;
}

static window window_of(const visit *a)
{
    window w = {.s = in_type(a, 0)->rank - 2, .groups = nnc_attr_int(&a->n, AT_groups, 1)};
    int64_t pads[2 * SPATIAL];
    read_ints(&a->n, AT_strides, w.s, 1, w.stride);
    read_ints(&a->n, AT_dilations, w.s, 1, w.dilation);
    read_ints(&a->n, AT_pads, 2 * w.s, 0, pads);
    memcpy(w.lo, pads, sizeof *pads * (size_t)w.s);
    memcpy(w.hi, pads + w.s, sizeof *pads * (size_t)w.s);
    if (nnc_attr_find(&a->n, AT_kernel))
        read_ints(&a->n, AT_kernel, w.s, 1, w.kernel);
    else
        memcpy(w.kernel, in_type(a, 1)->dim + 2, sizeof *w.kernel * (size_t)w.s);
    return w;
}

static nnc_ref convolution(visit *a, nnc_op op, const window *w, nnc_ref x, nnc_ref k,
    const int64_t *hi, const int64_t *extra)
{
    int64_t pads[2 * SPATIAL];
    const nnc_ref in[] = {x, k};
    memcpy(pads, w->lo, sizeof *pads * (size_t)w->s);
    memcpy(pads + w->s, hi, sizeof *pads * (size_t)w->s);
    const nnc_attr at[] = {nnc_av(AT_strides, w->s, w->stride), nnc_av(AT_pads, 2 * w->s, pads),
        nnc_av(AT_dilations, w->s, w->dilation), nnc_ai(AT_groups, w->groups),
        nnc_av(AT_output_padding, w->s, extra)};
    return nnc_build(a->g, op, 2, in, op == OP_conv_transpose ? 5 : 4, at);
}

/* The transposed convolution of dy whose result has the spatial extents of x. */
static nnc_ref transposed(visit *a, const window *w, nnc_ref dy, nnc_ref k, const nnc_type *x)
{
    int64_t hi[SPATIAL] = {0}, extra[SPATIAL] = {0};
    if (dy == NNC_NONE)
        return dy;
    const nnc_type *t = nnc_typeof(a->g, dy);
    for (int i = 0; i < w->s; i++) {
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t end = (t->dim[2 + i] - 1) * w->stride[i] + reach - w->lo[i];
        hi[i] = nnc_max64(end - x->dim[2 + i], 0);
        extra[i] = nnc_max64(x->dim[2 + i] - end, 0);
    }
    return convolution(a, OP_conv_transpose, w, dy, k, hi, extra);
}

/* The convolution of x, without the results beyond `to`, which output_padding may give. */
static nnc_ref convolved(visit *a, const window *w, nnc_ref x, nnc_ref k, const nnc_type *to)
{
    int64_t axes[SPATIAL], from[SPATIAL] = {0}, none[SPATIAL] = {0};
    nnc_ref y = convolution(a, OP_conv, w, x, k, w->hi, none);
    for (int i = 0; i < w->s; i++)
        axes[i] = 2 + i;
    const nnc_attr at[] = {nnc_av(AT_axes, w->s, axes), nnc_av(AT_starts, w->s, from),
        nnc_av(AT_ends, w->s, to->dim + 2)};
    return y == NNC_NONE || nnc_type_same_shape(nnc_typeof(a->g, y), to)
               ? y
               : nnc_build(a->g, OP_slice, 1, &y, 3, at);
}

/* The gradient of a convolution's weight [K,C/groups,k..], from its source and the gradient of its result. */
static nnc_ref weight_grad(visit *a, const window *w, nnc_ref x, nnc_ref dy)
{
    int64_t pads[2 * SPATIAL];
    const nnc_ref in[] = {x, dy};
    memcpy(pads, w->lo, sizeof *pads * (size_t)w->s);
    memcpy(pads + w->s, w->hi, sizeof *pads * (size_t)w->s);
    const nnc_attr at[] = {nnc_av(AT_kernel, w->s, w->kernel), nnc_av(AT_strides, w->s, w->stride),
        nnc_av(AT_pads, 2 * w->s, pads), nnc_av(AT_dilations, w->s, w->dilation),
        nnc_ai(AT_groups, w->groups)};
    return nnc_build(a->g, OP_conv_wgrad, 2, in, 5, at);
}

static nnc_ref bias_grad(visit *a)
{
    int64_t axes[NNC_MAX_RANK] = {0};
    int n = 1;
    for (int d = 2; d < in_type(a, 0)->rank; d++)
        axes[n++] = d;
    return nnc_reduce(a->g, OP_reduce_sum, a->dy[0], n, axes, false);
}

void conv_rule(visit *a)
{
    const window w = window_of(a);
    const nnc_type x = *in_type(a, 0);
    if (wanted(a, 0))
        give(a, 0, transposed(a, &w, a->dy[0], a->n.in[1], &x));
    if (wanted(a, 1))
        give(a, 1, weight_grad(a, &w, a->n.in[0], a->dy[0]));
    if (wanted(a, 2))
        give(a, 2, bias_grad(a));
}

/* y is the gradient of a convolution's source: here x plays the gradient of its result, and dy its source. */
void conv_transpose_rule(visit *a)
{
    const window w = window_of(a);
    const nnc_type x = *in_type(a, 0);
    if (wanted(a, 0))
        give(a, 0, convolved(a, &w, a->dy[0], a->n.in[1], &x));
    if (wanted(a, 1))
        give(a, 1, weight_grad(a, &w, a->dy[0], a->n.in[0]));
    if (wanted(a, 2))
        give(a, 2, bias_grad(a));
}

/* Linear in both operands, as a convolution is: here the gradient of the result plays the weight. */
void conv_wgrad_rule(visit *a)
{
    const window w = window_of(a);
    const nnc_type x = *in_type(a, 0), dy = *in_type(a, 1);
    if (wanted(a, 0))
        give(a, 0, transposed(a, &w, a->n.in[1], a->dy[0], &x));
    if (wanted(a, 1))
        give(a, 1, convolved(a, &w, a->n.in[0], a->dy[0], &dy));
}

/* ---- pooling ---------------------------------------------------------------------------------------------------------- */

/* For each window along dimension i of x, the number of elements that it counts. */
static void counts_along(const window *w, int i, int64_t in, int64_t out, bool pads, double *count)
{
    for (int64_t o = 0; o < out; o++) {
        int64_t from = o * w->stride[i] - w->lo[i], to = from + w->kernel[i];
        count[o] = pads ? (double)(nnc_min64(to, in + w->hi[i]) - from)
                        : (double)(nnc_min64(to, in) - nnc_max64(from, 0));
    }
}

/* dy divided by the number of elements of each window. */
static nnc_ref divided(visit *a, const window *w, nnc_ref dy)
{
    bool pads = nnc_attr_int(&a->n, AT_count_include_pad, 0);
    for (int i = 0; i < w->s && dy != NNC_NONE; i++) {
        const nnc_type t = *nnc_typeof(a->g, dy);
        int64_t out = t.dim[2 + i], dim[NNC_MAX_RANK];
        nnc_type line = nnc_type_make(t.dtype, 1, &out);
        NNC_FREED double *count = nnc_malloc((size_t)out * sizeof *count);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(&line));
        if (!count || !data) {
            no_memory(a->g);
            return NNC_NONE;
        }
        counts_along(w, i, in_type(a, 0)->dim[2 + i], out, pads, count);
        bool equal = true;
        for (int64_t o = 0; o < out; o++) {
            nnc_set_f64(t.dtype, data, o, 1 / count[o]);
            equal = equal && count[o] == count[0];
        }
        if (equal) {
            dy = with_number(a, OP_mul, dy, 1 / count[0]);
            continue;
        }
        for (int d = 0; d < t.rank; d++)
            dim[d] = d == 2 + i ? out : 1;
        dy = nnc_build2(
            a->g, OP_mul, dy, nnc_reshape(a->g, nnc_constant(a->g, &line, data), t.rank, dim));
    }
    return dy;
}

/* Each element gets the shares of the windows that it is in: a transposed depthwise convolution with ones. */
void avgpool_rule(visit *a)
{
    window w = window_of(a);
    const nnc_type x = *in_type(a, 0);
    nnc_type ones = nnc_type_make(x.dtype, x.rank, x.dim);
    ones.dim[0] = w.groups = x.dim[1];
    ones.dim[1] = 1;
    memcpy(ones.dim + 2, w.kernel, sizeof *w.kernel * (size_t)w.s);
    ones = nnc_type_make(x.dtype, x.rank, ones.dim);
    nnc_ref dy = divided(a, &w, a->dy[0]);
    give(a, 0, transposed(a, &w, dy, full_like(a, &ones, 1), &x));
}

/* The first largest element of each window gets it; its index is kept in a byte where it fits. */
void maxpool_rule(visit *a)
{
    const window w = window_of(a);
    const nnc_type x = *in_type(a, 0);
    int64_t taps = 1;
    nnc_attr at[NNC_MAX_RANK];
    int n = 0;
    for (int i = 0; i < w.s; i++)
        taps = nnc_mul_sat(taps, w.kernel[i]);
    nnc_ref index = nnc_build(a->g, OP_argmaxpool, 1, a->n.in, a->n.n_attr, a->n.attr);
    if (taps <= 256)
        index = nnc_cast(a->g, nnc_cast(a->g, index, DT_u8), DT_i64);
    for (int i = 0; i < a->n.n_attr; i++)
        if (a->n.attr[i].key != AT_ceil_mode)
            at[n++] = a->n.attr[i];
    at[n++] = nnc_av(AT_shape, x.rank, x.dim);
    const nnc_ref in[] = {a->dy[0], index};
    if (index != NNC_NONE)
        give(a, 0, nnc_build(a->g, OP_maxpool_grad, 2, in, n, at));
}

/* ---- activations ------------------------------------------------------------------------------------------------------ */

/* 0 at the bounds, by the result alone, so that the operand need not be kept; a NaN lets it pass. */
void relu_rule(visit *a)
{
    nnc_ref y = a->n.out, zero = nnc_scalar(a->g, dtype_of(a, y), 0);
    nnc_ref flat = with_number(a, OP_le, y, 0);
    if (a->n.op == OP_relu6)
        flat = nnc_build2(a->g, OP_or, flat, with_number(a, OP_ge, y, 6));
    give(a, 0, nnc_build3(a->g, OP_select, flat, zero, a->dy[0]));
}

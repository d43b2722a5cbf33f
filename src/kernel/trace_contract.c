/* kernel/trace_contract.c -- contractions as loop nests: each result is a sum of products of two operands, over axes of its own.
 *
 *   matmul, linear    k
 *   conv              the channels of a group, then the window's elements
 *   conv_transpose    the channels of a group, then per dimension the window's elements t, which determine the source index; or,
 *                     where the stride exceeds 1, the source indices q, which determine the element; or both, where the window
 *                     is dilated too. Result p = q stride + t dilation - pad.
 *
 * Elements outside the source count as 0. Depthwise convolutions are computed like this where the target says so; others where no
 * engine supports them. */
#include "kernel/trace.h"

#include <string.h>

static const nnc_type *type_of(const nx *t, nnc_ref v)
{
    return nnc_typeof(t->g, v);
}

static bool is_product(const nnc_node *n)
{
    return n->op == OP_matmul || n->op == OP_linear;
}

/* Attributes of a convolution along spatial dimension d. */
typedef struct step {
    int64_t stride, dilation, pad;
} step;

static step step_of(const nnc_node *n, int d)
{
    const int64_t *s = NULL, *p = NULL, *l = NULL;
    int ns = nnc_attr_ints(n, AT_strides, &s), np = nnc_attr_ints(n, AT_pads, &p);
    int nl = nnc_attr_ints(n, AT_dilations, &l);
    return (step){ns ? s[d] : 1, nl ? l[d] : 1, np ? p[d] : 0};
}

/* True when the sum of a transposed convolution iterates over source indices / window elements. */
static bool over_source(step s)
{
    return s.stride > 1;
}

static bool over_window(step s)
{
    return s.stride == 1 || s.dilation > 1;
}

/* Input channels per group. */
static int64_t each_of(const nx *t, const nnc_node *n)
{
    return type_of(t, n->in[0])->dim[1] / nnc_attr_int(n, AT_groups, 1);
}

int nx_summed(const nx *t, const nnc_node *n, int64_t *dim)
{
    const nnc_type *x = type_of(t, n->in[0]), *w = type_of(t, n->in[1]);
    int k = 0;
    if (is_product(n)) {
        bool turned = n->op == OP_matmul && nnc_attr_int(n, AT_transpose_a, 0) != 0;
        dim[0] = x->dim[x->rank - 1 - turned];
        return 1;
    }
    if (each_of(t, n) > 1)
        dim[k++] = each_of(t, n);
    for (int d = 0; d < w->rank - 2; d++) {
        step s = step_of(n, d);
        if (n->op == OP_conv_transpose && over_source(s))
            dim[k++] = x->dim[d + 2];
        if (n->op == OP_conv || over_window(s))
            dim[k++] = w->dim[d + 2];
    }
    return k;
}

/* ---- where the operands are read ------------------------------------------------------------------------------------- */

/* Group and index within it of an output channel; false: not possible as loops, or a restart. */
static bool group_of(
    nx *t, const nnc_node *n, const nnc_affine *channel, nnc_affine *group, nnc_affine *place)
{
    int64_t groups = nnc_attr_int(n, AT_groups, 1), each = type_of(t, n->out)->dim[1] / groups;
    *group = *place = (nnc_affine){0};
    if (groups == 1)
        *place = *channel;
    else if (each == 1)
        *group = *channel;
    else if (!nx_divide(t, channel, each, group, place))
        return nx_fail(t, n->out,
                   "has several outputs per group, at indices that loops cannot compute") == 0;
    return true;
}

/* The input channel of a convolution. Afterwards `win` is at its first spatial map. */
static bool input_channel(nx *t, const nnc_node *n, const nnc_affine *channel,
    const nnc_affine *const **win, nnc_affine *in)
{
    nnc_affine group, place;
    if (!group_of(t, n, channel, &group, &place))
        return false;
    *in = (nnc_affine){0};
    nnc_affine_add(in, &group, each_of(t, n));
    if (each_of(t, n) > 1)
        nnc_affine_add(in, *(*win)++, 1);
    return true;
}

/* Source index and window element of a transposed convolution along dimension d; `e` is the result's index. */
static void transposed_place(const nnc_node *n, int d, const nnc_affine *e,
    const nnc_affine *const **win, nnc_affine *q, nnc_affine *tap)
{
    step s = step_of(n, d);
    *q = *tap = (nnc_affine){0};
    if (over_source(s))
        *q = **(*win)++;
    if (over_window(s))
        *tap = **(*win)++;
    nnc_affine *other = over_source(s) ? tap : q;
    if (over_source(s) && over_window(s))
        return;
    nnc_affine_add(other, e, 1);
    other->c += s.pad;
    nnc_affine_add(other, over_source(s) ? q : tap, over_source(s) ? -s.stride : -s.dilation);
}

/* The guards under which source and window contribute to a result. -2: out of memory. */
static int32_t transposed_guard(nx *t, const nnc_node *n, int d, const nnc_affine *e,
    const nnc_affine *q, const nnc_affine *tap, int32_t guard)
{
    step s = step_of(n, d);
    if (!over_source(s))
        return nx_guard(t, guard, q, 0, type_of(t, n->in[0])->dim[d + 2]);
    if (!over_window(s))
        return nx_guard(t, guard, tap, 0, type_of(t, n->in[1])->dim[d + 2]);
    nnc_affine rest = *e; /* p + pad - q stride - t dilation is 0 */
    rest.c += s.pad;
    nnc_affine_add(&rest, q, -s.stride);
    nnc_affine_add(&rest, tap, -s.dilation);
    return nx_guard(t, guard, &rest, 0, 1);
}

static const nnc_affine *product_source(
    nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *k)
{
    const nnc_type *x = type_of(t, n->in[0]), *y = type_of(t, n->out);
    nnc_affine *in = nx_maps(t, x->rank);
    if (!in)
        return NULL;
    if (n->op == OP_linear) {
        memcpy(in, idx, sizeof *in * (x->rank - 1u));
        in[x->rank - 1] = *k;
        return in;
    }
    bool turned = nnc_attr_int(n, AT_transpose_a, 0) != 0;
    for (int d = 0; d < x->rank - 2; d++)
        if (x->dim[d] != 1)
            in[d] = idx[d + y->rank - x->rank];
    in[x->rank - 2 + turned] = idx[y->rank - 2];
    in[x->rank - 1 - turned] = *k;
    return in;
}

const nnc_affine *nx_source(nx *t, const nnc_node *n, const nnc_affine *idx,
    const nnc_affine *const *win, int32_t *guard, const nnc_affine **start)
{
    const nnc_type *x = type_of(t, n->in[0]);
    if (is_product(n))
        return product_source(t, n, idx, win[0]);
    nnc_affine channel, tap;
    if (!input_channel(t, n, &idx[1], &win, &channel))
        return NULL;
    if (n->op == OP_conv) {
        nnc_affine *in = nx_window(t, n, idx, win, guard, start);
        if (in)
            in[1] = channel;
        return in;
    }
    nnc_affine *in = nx_maps(t, x->rank);
    if (!in)
        return NULL;
    in[0] = idx[0];
    in[1] = channel;
    for (int d = 0; d < x->rank - 2; d++) {
        transposed_place(n, d, &idx[d + 2], &win, &in[d + 2], &tap);
        if ((*guard = transposed_guard(t, n, d, &idx[d + 2], &in[d + 2], &tap, *guard)) == -2)
            return NULL;
    }
    return in;
}

/* The map of the second operand. */
static bool weight_place(
    nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *const *win, nnc_affine *at)
{
    const nnc_type *w = type_of(t, n->in[1]), *y = type_of(t, n->out);
    nnc_affine group, place, q;
    if (n->op == OP_linear) {
        at[0] = idx[y->rank - 1];
        at[1] = *win[0];
        return true;
    }
    if (n->op == OP_matmul) {
        bool turned = nnc_attr_int(n, AT_transpose_b, 0) != 0;
        for (int d = 0; d < w->rank - 2; d++)
            if (w->dim[d] != 1)
                at[d] = idx[d + y->rank - w->rank];
        at[w->rank - 2 + turned] = *win[0];
        at[w->rank - 1 - turned] = idx[y->rank - 1];
        return true;
    }
    bool conv = n->op == OP_conv;
    if (!conv && !group_of(t, n, &idx[1], &group, &place))
        return false;
    at[0] = idx[1];
    if (!conv) {
        at[1] = place;
        at[0] = (nnc_affine){0};
        nnc_affine_add(&at[0], &group, each_of(t, n));
    }
    if (each_of(t, n) > 1)
        nnc_affine_add(&at[conv], *win++, 1);
    for (int d = 0; d < w->rank - 2; d++) {
        if (conv)
            at[d + 2] = *win[d];
        else
            transposed_place(n, d, &idx[d + 2], &win, &q, &at[d + 2]);
    }
    return true;
}

/* An f32 product is written x w + 0, so that its sum is rounded once (fused multiply-add). */
static int32_t product(nx *t, nx_place at, nnc_dtype d, const int32_t *arg)
{
    if (d == DT_f32)
        return nx_sop(t, at, SC_fma, d, arg[0], arg[1], nx_const(t, d, 0));
    return nx_sop(t, at, SC_mul, d, arg[0], arg[1], -1);
}

int32_t nx_product(nx *t, int ctx, const nnc_node *n, const nnc_affine *idx, const nnc_affine *in,
    const nnc_affine *const *win, int32_t guard, int32_t inner)
{
    nnc_affine *at = nx_maps(t, type_of(t, n->in[1])->rank);
    if (!at || !weight_place(t, n, idx, win, at))
        return -1;
    int32_t arg[2] = {nx_demand(t, ctx, n->in[0], in, inner), -1};
    if (arg[0] < 0)
        return -1;
    nnc_dtype d = nx_dtype(t, n->out);
    if (inner != guard) {
        nx_place p = nx_beside(t, ctx, 1, arg);
        p.axes |= nx_guard_axes(t, inner);
        arg[0] =
            nx_count(t, n->out) ? nx_filled(t, p, arg[0], inner, guard, nx_const(t, d, 0)) : -1;
        if (arg[0] < 0)
            return -1;
    }
    arg[1] = nx_demand(t, ctx, n->in[1], at, n->op == OP_conv_transpose ? inner : guard);
    if (arg[1] < 0 || !nx_count(t, n->out))
        return -1;
    return product(t, nx_beside(t, ctx, 2, arg), d, arg);
}

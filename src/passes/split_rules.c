/* passes/split_rules.c -- which part of its operands a part of an op's result needs. */
#include "passes/split.h"

static int rank_of(const nnc_graph *s, nnc_ref v)
{
    return nnc_typeof(s, v)->rank;
}

/* Result axis r of rank R of an operand that is broadcast. */
static int8_t broadcast_axis(const nnc_graph *s, nnc_ref v, int R, int r)
{
    const nnc_type *t = nnc_typeof(s, v);
    const int a = r - (R - t->rank);
    return (int8_t)(a < 0 || t->dim[a] == 1 ? L_full : a);
}

static bool in_list(const nnc_node *x, nnc_akey key, int axis)
{
    const int64_t *v;
    const int n = nnc_attr_ints(x, key, &v);
    for (int i = 0; i < n; i++)
        if (v[i] == axis)
            return true;
    return false;
}

static bool all_axes(const nnc_node *x, int r, int8_t *in)
{
    for (int k = 0; k < x->n_in; k++)
        in[k] = (int8_t)r;
    return true;
}

/* ---- movement -------------------------------------------------------------------------------- */

/* Divides the dimensions of both shapes into groups with equal products. True when the result's axis r and an operand's axis begin the same
 * group, and the same parts of both are the same elements. */
static bool reshape_axis(const nnc_type *x, const nnc_type *y, int r, int n, int8_t *in)
{
    int i = 0, k = 0;
    while (i < x->rank && k < y->rank) {
        while (i < x->rank && x->dim[i] == 1)
            i++;
        while (k < y->rank && y->dim[k] == 1)
            k++;
        if (i == x->rank || k == y->rank || k > r)
            return false;
        const int first_in = i, first_out = k;
        int64_t p = x->dim[i++], q = y->dim[k++];
        while (p != q)
            if (p < q)
                p *= x->dim[i++];
            else
                q *= y->dim[k++];
        if (first_out != r)
            continue;
        const int64_t a = x->dim[first_in], b = y->dim[r];
        for (int d = 0; d <= n; d++)
            if (split_cut(a, n, d) * (p / a) != split_cut(b, n, d) * (q / b))
                return false;
        *in = (int8_t)first_in;
        return true;
    }
    return false;
}

static bool gather_axes(const nnc_graph *s, const nnc_node *x, int r, int8_t *in)
{
    const int axis = (int)nnc_attr_int(x, AT_axis, 0), index = rank_of(s, x->in[1]);
    const bool indexed = r >= axis && r < axis + index;
    in[0] = (int8_t)(indexed ? L_full : r < axis ? r : r - index + 1);
    in[1] = (int8_t)(indexed ? r - axis : L_full);
    return true;
}

static bool pads_axis(const nnc_graph *s, const nnc_node *x, int r)
{
    const int64_t *v;
    const int n = nnc_attr_ints(x, AT_pads, &v), rank = rank_of(s, x->in[0]);
    return n == 2 * rank && (v[r] || v[r + rank]);
}

static bool move_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in)
{
    const nnc_type *y = nnc_typeof(s, x->out);
    const int64_t *v;
    switch (x->op) {
    case OP_reshape: return reshape_axis(nnc_typeof(s, x->in[0]), y, r, n, in);
    case OP_transpose:
        nnc_attr_ints(x, AT_perm, &v);
        in[0] = (int8_t)v[r];
        return true;
    case OP_broadcast: in[0] = broadcast_axis(s, x->in[0], y->rank, r); return in[0] != L_full;
    case OP_slice: return !in_list(x, AT_axes, r) && all_axes(x, r, in);
    case OP_flip: return !in_list(x, AT_axes, r) && all_axes(x, r, in);
    case OP_pad: return !pads_axis(s, x, r) && all_axes(x, r, in);
    case OP_concat:
    case OP_split: return r != nnc_attr_int(x, AT_axis, 0) && all_axes(x, r, in);
    case OP_gather: return gather_axes(s, x, r, in);
    default: return false;
    }
}

/* ---- reductions, norms ------------------------------------------------------------------------- */

static bool reduce_axes(const nnc_graph *s, const nnc_node *x, int r, int8_t *in)
{
    const bool list = nnc_attr_find(x, AT_axes) != NULL;
    const int64_t one = nnc_attr_int(x, AT_axis, 0);
    const int rank = rank_of(s, x->in[0]);
    for (int a = 0, at = 0; a < rank; a++) {
        const bool gone = list ? in_list(x, AT_axes, a) : a == one;
        if (!gone && at == r) {
            in[0] = (int8_t)a;
            return true;
        }
        at += !gone || nnc_attr_int(x, AT_keepdims, 1);
    }
    return false;
}

static bool comp_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in)
{
    const int rank = rank_of(s, x->in[0]);
    const int8_t own = (int8_t)(r == 1 ? 0 : L_full);
    in[0] = (int8_t)r;
    for (int k = 1; k < x->n_in; k++)
        in[k] = own;
    switch (x->op) {
    case OP_global_avgpool:
    case OP_global_maxpool: return r < 2;
    case OP_softmax:
    case OP_log_softmax: return r != nnc_attr_int(x, AT_axis, 0);
    case OP_batchnorm: return true;
    case OP_layernorm:
    case OP_rmsnorm:
        for (int k = 1; k < x->n_in; k++)
            in[k] = L_full;
        return r < nnc_attr_int(x, AT_axis, rank - 1);
    case OP_groupnorm: return r == 0 || (r == 1 && nnc_attr_int(x, AT_num_groups, 1) % n == 0);
    default: return false;
    }
}

/* ---- windows ----------------------------------------------------------------------------------- */

static int64_t int_at(const nnc_node *x, nnc_akey key, int i, int64_t otherwise)
{
    const int64_t *v;
    return nnc_attr_ints(x, key, &v) > i ? v[i] : otherwise;
}

bool split_window(const nnc_graph *s, const nnc_node *x, int r, nnc_window *w)
{
    const bool pool = x->op == OP_maxpool || x->op == OP_avgpool;
    const nnc_type *t = r >= 2 && (pool || x->op == OP_conv) ? nnc_typeof(s, x->in[0]) : NULL;
    if (!t || (nnc_attr_int(x, AT_ceil_mode, 0) && nnc_attr_int(x, AT_count_include_pad, 0)))
        return false;
    const int i = r - 2, spatial = t->rank - 2;
    *w = (nnc_window){.in = t->dim[r],
        .kernel = pool ? int_at(x, AT_kernel, i, 1) : nnc_typeof(s, x->in[1])->dim[r],
        .stride = int_at(x, AT_strides, i, 1),
        .dilation = int_at(x, AT_dilations, i, 1),
        .lo = int_at(x, AT_pads, i, 0),
        .hi = int_at(x, AT_pads, i + spatial, 0)};
    return true;
}

bool split_window_range(
    const nnc_window *w, int64_t a, int64_t b, int64_t *from, int64_t *to, int64_t *lo, int64_t *hi)
{
    const int64_t reach = (w->kernel - 1) * w->dilation + 1;
    const int64_t first = a * w->stride - w->lo, end = (b - 1) * w->stride - w->lo + reach;
    *from = nnc_max64(first, 0);
    *to = nnc_min64(end, w->in);
    *lo = *from - first;
    *hi = end - *to;
    return a < b && *from < *to && *lo >= 0 && *hi >= 0 && *lo < reach && *hi < reach &&
           *to - *from >= w->dilation;
}

static bool window_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in)
{
    nnc_window w;
    const int64_t extent = nnc_typeof(s, x->out)->dim[r];
    int64_t v[4];
    if (!split_window(s, x, r, &w))
        return false;
    for (int d = 0; d < n; d++)
        if (!split_window_range(&w, split_cut(extent, n, d), split_cut(extent, n, d + 1), &v[0],
                &v[1], &v[2], &v[3]))
            return false;
    for (int k = 0; k < x->n_in; k++)
        in[k] = (int8_t)(k ? L_full : r);
    return true;
}

/* ---- contractions ------------------------------------------------------------------------------ */

int split_summed_axis(const nnc_graph *s, const nnc_node *x)
{
    const int rank = x->n_in ? rank_of(s, x->in[0]) : 0;
    switch (x->op) {
    case OP_matmul: return rank - 1 - (nnc_attr_int(x, AT_transpose_a, 0) ? 1 : 0);
    case OP_linear: return rank - 1;
    case OP_conv:
    case OP_conv_transpose: return 1;
    default: return -1;
    }
}

int split_feature_axis(const nnc_graph *s, const nnc_node *x)
{
    switch (x->op) {
    case OP_matmul:
    case OP_linear:
    case OP_gather: return rank_of(s, x->out) - 1;
    case OP_conv:
    case OP_conv_transpose: return 1;
    default: return -1;
    }
}

static void matmul_axes(const nnc_graph *s, const nnc_node *x, int r, int8_t *in)
{
    const int R = rank_of(s, x->out), ra = rank_of(s, x->in[0]), rb = rank_of(s, x->in[1]);
    const int ta = nnc_attr_int(x, AT_transpose_a, 0) != 0,
              tb = nnc_attr_int(x, AT_transpose_b, 0) != 0;
    if (r == R - 1) {
        in[0] = L_full;
        in[1] = (int8_t)(rb - 1 - tb);
    } else if (r == R - 2) {
        in[0] = (int8_t)(ra - 2 + ta);
        in[1] = L_full;
    } else {
        in[0] = broadcast_axis(s, x->in[0], R, r);
        in[1] = broadcast_axis(s, x->in[1], R, r);
    }
}

static bool contract_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in)
{
    const int64_t groups = nnc_attr_int(x, AT_groups, 1);
    const bool features = r == split_feature_axis(s, x);
    if (x->op == OP_conv_wgrad)
        return false;
    if (x->op == OP_matmul) {
        matmul_axes(s, x, r, in);
        return true;
    }
    if (x->op != OP_linear && r >= 2)
        return window_axes(s, x, r, n, in);
    in[0] = (int8_t)(features ? L_full : r);
    in[1] = (int8_t)(!features ? L_full : x->op == OP_conv_transpose ? 1 : 0);
    if (x->n_in > 2)
        in[2] = (int8_t)(features ? 0 : L_full);
    if (!features || groups == 1)
        return true;
    in[0] = 1;
    return x->op == OP_conv && groups % n == 0;
}

bool split_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in)
{
    const nnc_type *y = nnc_typeof(s, x->out);
    if (r < 0 || r >= y->rank || y->dim[r] < n || x->body)
        return false;
    switch (nnc_op_class(x->op)) {
    case CL_ewise:
    case CL_ecomp:
        for (int k = 0; k < x->n_in; k++)
            in[k] = broadcast_axis(s, x->in[k], y->rank, r);
        return true;
    case CL_reduce: return reduce_axes(s, x, r, in);
    case CL_move: return move_axes(s, x, r, n, in);
    case CL_window:
        if (x->op != OP_maxpool && x->op != OP_avgpool)
            return false;
        return r < 2 ? all_axes(x, r, in) : window_axes(s, x, r, n, in);
    case CL_contract: return contract_axes(s, x, r, n, in);
    case CL_comp: return comp_axes(s, x, r, n, in);
    case CL_loop:
        return (x->op == OP_cumsum || x->op == OP_cumprod) && r != nnc_attr_int(x, AT_axis, 0) &&
               all_axes(x, r, in);
    default: return false;
    }
}

bool split_inner(const nnc_graph *s, const nnc_node *x, int axis, int n, int8_t *in)
{
    if (!x->n_in || axis < 0 || axis >= rank_of(s, x->in[0]) ||
        nnc_typeof(s, x->in[0])->dim[axis] < n)
        return false;
    in[0] = (int8_t)axis;
    if (x->n_in > 2)
        in[2] = L_sum;
    switch (x->op) {
    case OP_reduce_sum:
    case OP_reduce_mean: return in_list(x, AT_axes, axis);
    case OP_global_avgpool: return axis >= 2;
    case OP_matmul:
        in[1] = (int8_t)(rank_of(s, x->in[1]) - 2 + (nnc_attr_int(x, AT_transpose_b, 0) ? 1 : 0));
        return axis == split_summed_axis(s, x);
    case OP_linear:
    case OP_conv: in[1] = (int8_t)(x->op == OP_linear ? rank_of(s, x->in[1]) - 1 : 1); break;
    case OP_conv_transpose: in[1] = 0; break;
    default: return false;
    }
    return axis == split_summed_axis(s, x) && nnc_attr_int(x, AT_groups, 1) == 1;
}

/* onnx/build_reduce.c -- reductions, and softmax. */
#include "onnx/internal.h"
#include <math.h>
#include <string.h>

static nnc_ref reduce(ox_build *b, nnc_op op, nnc_ref x, int n, const int64_t *axes, bool keep)
{
    return n ? ox_reduced(b, op, x, n, axes, keep) : x;
}

/* m + log sum e^(x - m), m the maximum, or 0 where that is infinite. */
static nnc_ref log_sum_exp(ox_build *b, nnc_ref x, int n, const int64_t *axes, bool keep)
{
    nnc_ref top = reduce(b, OP_reduce_max, x, n, axes, true);
    nnc_ref m = ox_select(b, ox_1(b, OP_isinf, top), ox_num(b, ox_dt(b, x), 0), top);
    nnc_ref sum = reduce(b, OP_reduce_sum, ox_1(b, OP_exp, ox_2(b, OP_sub, x, m)), n, axes, true);
    nnc_ref r = ox_2(b, OP_add, ox_1(b, OP_log, sum), m);
    return keep ? r : reduce(b, OP_reduce_sum, r, n, axes, false);
}

/* The result of a reduction of no elements. Mean: 0 as in ONNX Runtime, and as in the EmbeddingBag that PyTorch writes with it. */
static double identity_of(const char *kind)
{
    static const struct {
        const char *kind;
        double v;
    } rows[] = {{"Prod", 1}, {"Max", -INFINITY}, {"Min", INFINITY}, {"LogSum", -INFINITY},
        {"LogSumExp", -INFINITY}};
    for (size_t i = 0; i < NNC_COUNT(rows); i++)
        if (!strcmp(kind, rows[i].kind))
            return rows[i].v;
    return 0;
}

/* The same as a number of type d. Integers have ends, where floats have infinities. */
static nnc_ref of_nothing(ox_build *b, const char *kind, nnc_dtype d)
{
    const double v = identity_of(kind);
    const nnc_type t = nnc_type_make(d, 0, NULL);
    int64_t end = 0;
    if (nnc_is_float(d) || !isinf(v))
        return ox_num(b, d, v);
    nnc_set_i64(d, &end, 0, nnc_int_end(d, v > 0));
    return nnc_constant(b->x->g, &t, &end);
}

static bool reduce_empty(
    ox_build *b, const char *kind, const nnc_type *t, int n, const int64_t *axes, bool keep)
{
    int64_t d[NNC_MAX_RANK];
    int rank = 0;
    nnc_dtype dt = t->dtype;
    for (int i = 0, k = 0; i < t->rank; i++) {
        bool gone = k < n && axes[k] == i;
        k += gone;
        if (!gone || keep)
            d[rank++] = gone ? 1 : t->dim[i];
    }
    if (ox_any_0(rank, d))
        return ox_none(b, 0, dt, rank, d);
    return ox_give(b, ox_broadcast(b, of_nothing(b, kind, dt), rank, d));
}

bool ox_reduce(ox_build *b)
{
    const char *kind = b->n->op + strlen("Reduce");
    nnc_ref x = ox_in(b, 0);
    nnc_type t = ox_shape_of(b, 0);
    int64_t axes[NNC_MAX_RANK];
    bool given, keep = ox_int(b, "keepdims", 1) != 0, truth = t.dtype == DT_bool;
    int n;
    if (!ox_axes(b, 1, t.rank, &n, axes, &given))
        return false;
    if (n == 0 && !ox_int(b, "noop_with_empty_axes", 0))
        for (; n < t.rank; n++)
            axes[n] = n;
    bool l2 = !strcmp(kind, "L2"), log_sum = !strcmp(kind, "LogSum"),
         log_exp = !strcmp(kind, "LogSumExp");
    const bool whole_mean = !strcmp(kind, "Mean") && !nnc_is_float(t.dtype);
    if ((l2 || log_sum || log_exp) && !nnc_is_float(t.dtype))
        return ox_refuse(b, "integers are unsupported");
    if (b->in[0].state == OX_empty)
        return reduce_empty(b, kind, &t, n, axes, keep);
    if (log_exp)
        return ox_give(b, log_sum_exp(b, x, n, axes, keep));
    if (!strcmp(kind, "L1"))
        x = ox_1(b, OP_abs, x);
    if (l2 || !strcmp(kind, "SumSquare"))
        x = ox_1(b, OP_square, x);
    x = reduce(
        b, whole_mean ? OP_reduce_sum : b->row->op, truth ? ox_to(b, x, DT_u8) : x, n, axes, keep);
    if (whole_mean) {
        double count = 1;
        for (int i = 0; i < n; i++)
            count *= (double)t.dim[axes[i]];
        x = ox_2n(b, OP_div, x, count);
    }
    x = l2 ? ox_1(b, OP_sqrt, x) : log_sum ? ox_1(b, OP_log, x) : x;
    return ox_give(b, truth ? ox_to(b, x, DT_bool) : x);
}

bool ox_arg(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    bool last = ox_int(b, "select_last_index", 0) != 0;
    int axis;
    if (!ox_axis(b, ox_int(b, "axis", 0), t.rank, &axis))
        return false;
    int64_t at = axis;
    nnc_attr a = nnc_av(AT_axes, 1, &at);
    if (last)
        x = ox_op(b, OP_flip, 1, &x, 1, &a);
    nnc_ref r = ox_reduced(b, b->row->op, x, 1, &at, ox_int(b, "keepdims", 1) != 0);
    nnc_ref end = last ? ox_num(b, DT_i64, (double)(t.dim[axis] - 1)) : r;
    return ox_give(b, last ? ox_2(b, OP_sub, end, r) : r);
}

/* Before opset 13 the dimensions from axis on count as one. The axis of x so joined; -1: reported. */
static int joined_axis(ox_build *b, nnc_ref *x)
{
    const nnc_type t = *ox_type(b, *x);
    int axis;
    if (!ox_axis(b, ox_int(b, "axis", b->opset < 13 ? 1 : -1), t.rank, &axis))
        return -1;
    int64_t d[2] = {1, 1};
    for (int i = 0; i < t.rank; i++)
        d[i >= axis] *= t.dim[i];
    if (b->opset >= 13 || axis == t.rank - 1)
        return axis;
    *x = ox_reshape(b, *x, 2, d);
    return 1;
}

bool ox_softmax(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    int axis = joined_axis(b, &x);
    if (axis < 0)
        return false;
    nnc_ref r = ox_on_axis(b, b->row->op, 1, &x, axis);
    return ox_give(b, x == ox_in(b, 0) ? r : ox_reshape(b, r, t.rank, t.dim));
}

/* 1 at the first largest element along the axis, 0 elsewhere. */
bool ox_hardmax(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    int axis = joined_axis(b, &x);
    if (axis < 0)
        return false;
    const nnc_type *j = ox_type(b, x);
    int rank = j->rank;
    int64_t at = axis, n = j->dim[axis];
    nnc_ref top = ox_reduced(b, OP_argmax, x, 1, &at, true);
    nnc_ref index = ox_along(b, ox_iota(b, DT_i64, n), rank, axis);
    nnc_ref r = ox_to(b, ox_2(b, OP_eq, index, top), t.dtype);
    return ox_give(b, x == ox_in(b, 0) ? r : ox_reshape(b, r, t.rank, t.dim));
}

/* ir/infer_move.c -- shape rules of movement (reshape ... relayout) and of reductions. */
#include "ir/infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */

/* The operand's type without the axes of the set (or with extent 1); its memory order is kept. */
static void reduced(infer *c, nnc_dtype d, uint32_t axes, bool keepdims)
{
    const nnc_type *x = arg(c, 0);
    nnc_type t = {0};
    int place[NNC_MAX_RANK]; /* dimension of the result, -1: removed */
    for (int i = 0; i < x->rank; i++) {
        bool gone = axes >> i & 1;
        place[i] = gone && !keepdims ? -1 : t.rank;
        if (place[i] >= 0)
            t.dim[t.rank++] = gone ? 1 : x->dim[i];
    }
    nnc_infer_set(c, d, t.rank, t.dim);
    uint8_t order[NNC_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (place[x->order[i]] >= 0)
            order[n++] = (uint8_t)place[x->order[i]];
    nnc_type_set_order(&c->out[0], order);
}

nnc_status nnc_infer_reduce(infer *c)
{
    const int64_t *axes;
    int n = nnc_attr_ints(c->n, AT_axes, &axes);
    NNC_TRY(nnc_infer_number(c, 0));
    if (nnc_ops[c->n->op].flags & OF_float)
        NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(nnc_infer_axes(c, axes, n, arg(c, 0)->rank));
    uint32_t set = 0;
    for (int i = 0; i < n; i++)
        set |= 1u << axes[i];
    reduced(c, arg(c, 0)->dtype, set, nnc_attr_int(c->n, AT_keepdims, 1));
    return NNC_OK;
}

nnc_status nnc_infer_arg(infer *c)
{
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    NNC_TRY(nnc_infer_number(c, 0));
    NNC_TRY(nnc_infer_axis(c, axis, arg(c, 0)->rank, "axis"));
    reduced(c, DT_i64, 1u << axis, nnc_attr_int(c->n, AT_keepdims, 1));
    return NNC_OK;
}

/* ---- movement -------------------------------------------------------------------------------- */

/* The attribute `shape` as a type of x's dtype. */
static nnc_status shape_attr(infer *c, nnc_type *t)
{
    const int64_t *dim;
    const char *what;
    int n = nnc_attr_ints(c->n, AT_shape, &dim);
    if (n > NNC_MAX_RANK)
        return fail(c, "the shape has %d dimensions; at most %d are possible", n, NNC_MAX_RANK);
    for (int i = 0; i < n; i++)
        if (dim[i] < 1)
            return fail(c, "dimension %d of the shape [%s] is %" PRId64 "; it must be at least 1",
                i, nnc_infer_list(c, dim, n, ','), dim[i]);
    *t = nnc_type_make(arg(c, 0)->dtype, n, dim);
    if (!nnc_type_check(t, &what))
        return fail(c, "the shape [%s]: %s", nnc_infer_list(c, dim, n, ','), what);
    return NNC_OK;
}

nnc_status nnc_infer_reshape(infer *c)
{
    nnc_type t;
    NNC_TRY(shape_attr(c, &t));
    int64_t have = nnc_type_numel(arg(c, 0)), want = nnc_type_numel(&t);
    if (have != want) {
        for (int i = 0; i < t.rank; i++) {
            int64_t rest = want / t.dim[i];
            if (have % rest == 0)
                return fail(c,
                    "%s has %" PRId64 " elements, but the shape %s has %" PRId64
                    "; it fits with %" PRId64 " for dimension %d",
                    nnc_infer_show(c, arg(c, 0)), have, nnc_infer_dims(c, &t), want, have / rest,
                    i);
        }
        return fail(c, "%s has %" PRId64 " elements, but the shape %s has %" PRId64,
            nnc_infer_show(c, arg(c, 0)), have, nnc_infer_dims(c, &t), want);
    }
    c->out[0] = t;
    return NNC_OK;
}

/* Checks that v[0..n) is a permutation of 0..rank-1. */
static nnc_status permutation(infer *c, const int64_t *v, int n, int rank, const char *name)
{
    uint32_t seen = 0;
    for (int i = 0; i < n; i++)
        if (v[i] >= 0 && v[i] < rank)
            seen |= 1u << v[i];
    if (n == rank && seen == (1u << rank) - 1)
        return NNC_OK;
    if (rank == 0)
        return fail(c, "%s [%s] must be empty: the operand is a scalar", name,
            nnc_infer_list(c, v, n, ','));
    return fail(c, "%s [%s] must name each of the dimensions 0 to %d once", name,
        nnc_infer_list(c, v, n, ','), rank - 1);
}

nnc_status nnc_infer_transpose(infer *c)
{
    const nnc_type *x = arg(c, 0);
    const int64_t *perm;
    int n = nnc_attr_ints(c->n, AT_perm, &perm);
    int64_t dim[NNC_MAX_RANK];
    NNC_TRY(permutation(c, perm, n, x->rank, "perm"));
    for (int i = 0; i < n; i++)
        dim[i] = x->dim[perm[i]];
    return nnc_infer_set(c, x->dtype, n, dim);
}

nnc_status nnc_infer_broadcast_to(infer *c)
{
    const nnc_type *x = arg(c, 0);
    nnc_type t, both;
    NNC_TRY(shape_attr(c, &t));
    NNC_TRY(nnc_infer_broadcast(c, x, &t, &both));
    if (!nnc_type_same_shape(&both, &t))
        return fail(c, "%s does not broadcast to %s: a dimension grows from 1 only",
            nnc_infer_dims(c, x), nnc_infer_dims(c, &t));
    c->out[0] = t;
    return nnc_infer_follow(c, 0, x);
}

nnc_status nnc_infer_slice(infer *c)
{
    const nnc_type *x = arg(c, 0);
    const int64_t *axes, *starts, *ends, *steps;
    int n = nnc_attr_ints(c->n, AT_axes, &axes);
    int ns = nnc_attr_ints(c->n, AT_starts, &starts), ne = nnc_attr_ints(c->n, AT_ends, &ends);
    int nt = nnc_attr_ints(c->n, AT_steps, &steps);
    NNC_TRY(nnc_infer_axes(c, axes, n, x->rank));
    if (ns != n || ne != n || (nt != 0 && nt != n))
        return fail(c, "%d axes, but %d starts, %d ends, %d steps; each axis has one of each", n,
            ns, ne, nt);
    nnc_type t = nnc_type_make(x->dtype, x->rank, x->dim);
    for (int i = 0; i < n; i++) {
        int64_t d = x->dim[axes[i]], step = nt ? steps[i] : 1;
        if (step < 1)
            return fail(c, "step %" PRId64 " along dimension %" PRId64 "; it must be at least 1%s",
                step, axes[i], step < 0 ? " (flip reverses)" : "");
        if (starts[i] < 0 || starts[i] >= ends[i] || ends[i] > d)
            return fail(c,
                "[%" PRId64 ":%" PRId64 "] along dimension %" PRId64
                " takes nothing or too much: it has extent %" PRId64
                ", so 0 <= start < end <= %" PRId64,
                starts[i], ends[i], axes[i], d, d);
        t.dim[axes[i]] = (ends[i] - starts[i] - 1) / step + 1;
    }
    c->out[0] = t;
    return nnc_infer_follow(c, 0, x);
}

static nnc_status check_fill(infer *c)
{
    double v = nnc_attr_float(c->n, AT_value, 0);
    nnc_dtype d = arg(c, 0)->dtype;
    uint64_t room = 0;
    if (nnc_is_float(d))
        return NNC_OK;
    if (v != floor(v) || !(fabs(v) <= 0x1p53))
        return fail(c, "the value %g for a %s must be an integer up to 2^53", v, nnc_dtype_name(d));
    nnc_set_f64(d, &room, 0, v);
    if (nnc_get_f64(d, &room, 0) != v)
        return fail(c, "the value %.17g does not fit in %s", v, nnc_dtype_name(d));
    return NNC_OK;
}

nnc_status nnc_infer_pad(infer *c)
{
    const nnc_type *x = arg(c, 0);
    const int64_t *pads;
    int n = nnc_attr_ints(c->n, AT_pads, &pads);
    const nnc_attr *mode = nnc_attr_find(c->n, AT_mode);
    bool reflect = mode && !strcmp(mode->word, "reflect");
    if (n != 2 * x->rank)
        return fail(c,
            "pads has %d numbers; a value of rank %d needs %d: the begin of every dimension, then "
            "the end of every one",
            n, x->rank, 2 * x->rank);
    NNC_TRY(check_fill(c));
    nnc_type t = nnc_type_make(x->dtype, x->rank, x->dim);
    for (int i = 0; i < x->rank; i++) {
        int64_t b = pads[i], e = pads[i + x->rank];
        if (b < 0 || e < 0)
            return fail(c,
                "dimension %d is padded by %" PRId64 " and %" PRId64
                "; it must not be negative (use slice to crop)",
                i, b, e);
        if (reflect && (b >= x->dim[i] || e >= x->dim[i]))
            return fail(c,
                "dimension %d of extent %" PRId64 " is reflected by %" PRId64 " and %" PRId64
                "; at most %" PRId64 " elements can be reflected",
                i, x->dim[i], b, e, x->dim[i] - 1);
        if (!nnc_add_ok(t.dim[i], b, &t.dim[i]) || !nnc_add_ok(t.dim[i], e, &t.dim[i]))
            return fail(c, "dimension %d is padded beyond 64 bits", i);
    }
    c->out[0] = t;
    return nnc_infer_follow(c, 0, x);
}

nnc_status nnc_infer_concat(infer *c)
{
    const nnc_type *x = arg(c, 0);
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    nnc_type t = nnc_type_make(x->dtype, x->rank, x->dim);
    for (int i = 1; i < c->n->n_in; i++) {
        const nnc_type *y = arg(c, i);
        if (y->rank != x->rank)
            return fail(c, "operand 1 is %s but operand %d is %s; they must have equal rank",
                nnc_infer_dims(c, x), i + 1, nnc_infer_dims(c, y));
        for (int d = 0; d < x->rank; d++)
            if (d != axis && y->dim[d] != x->dim[d])
                return fail(c,
                    "operand 1 is %s but operand %d is %s; they may differ along axis %" PRId64
                    " only",
                    nnc_infer_dims(c, x), i + 1, nnc_infer_dims(c, y), axis);
        if (!nnc_add_ok(t.dim[axis], y->dim[axis], &t.dim[axis]))
            return fail(c, "the sum of the extents along axis %" PRId64 " is beyond 64 bits", axis);
    }
    c->out[0] = t;
    return nnc_infer_follow(c, 0, x);
}

nnc_status nnc_infer_split(infer *c)
{
    const nnc_type *x = arg(c, 0);
    const int64_t *sizes;
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0), sum = 0;
    int n = nnc_attr_ints(c->n, AT_sizes, &sizes);
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    if (n == 0)
        return fail(c, "sizes is empty; name the extent of at least one result");
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1)
            return fail(
                c, "result %d has extent %" PRId64 "; it must be at least 1", i + 1, sizes[i]);
        if (!nnc_add_ok(sum, sizes[i], &sum))
            return fail(c, "the sum of sizes is beyond 64 bits");
    }
    if (sum != x->dim[axis])
        return fail(c,
            "sizes [%s] add up to %" PRId64 ", but dimension %" PRId64 " of %s is %" PRId64,
            nnc_infer_list(c, sizes, n, ','), sum, axis, nnc_infer_dims(c, x), x->dim[axis]);
    for (int i = 0; i < n; i++) {
        c->out[i] = nnc_type_make(x->dtype, x->rank, x->dim);
        c->out[i].dim[axis] = sizes[i];
        nnc_infer_follow(c, i, x);
    }
    return NNC_OK;
}

nnc_status nnc_infer_gather(infer *c)
{
    const nnc_type *x = arg(c, 0), *at = arg(c, 1);
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    NNC_TRY(nnc_infer_integer(c, 1));
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    if (x->rank - 1 + at->rank > NNC_MAX_RANK)
        return fail(c, "%s taken at %s has %d dimensions; at most %d are possible",
            nnc_infer_dims(c, x), nnc_infer_dims(c, at), x->rank - 1 + at->rank, NNC_MAX_RANK);
    int64_t dim[NNC_MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis; i++)
        dim[n++] = x->dim[i];
    for (int i = 0; i < at->rank; i++)
        dim[n++] = at->dim[i];
    for (int64_t i = axis + 1; i < x->rank; i++)
        dim[n++] = x->dim[i];
    return nnc_infer_set(c, x->dtype, n, dim);
}

nnc_status nnc_infer_flip(infer *c)
{
    const int64_t *axes;
    int n = nnc_attr_ints(c->n, AT_axes, &axes);
    NNC_TRY(nnc_infer_axes(c, axes, n, arg(c, 0)->rank));
    c->out[0] = *arg(c, 0);
    return NNC_OK;
}

nnc_status nnc_infer_relayout(infer *c)
{
    const nnc_type *x = arg(c, 0);
    const int64_t *order;
    uint8_t small[NNC_MAX_RANK];
    int n = nnc_attr_ints(c->n, AT_order, &order);
    NNC_TRY(permutation(c, order, n, x->rank, "order"));
    for (int i = 0; i < n; i++)
        small[i] = (uint8_t)order[i];
    c->out[0] = *x;
    nnc_type_set_order(&c->out[0], small);
    return NNC_OK;
}

/* ir/infer_loop.c -- shape rules of ops that run in order along an axis, and of movement by computed indices. */
#include "ir/infer.h"

#include <inttypes.h>
#include <string.h>

nnc_status nnc_infer_scan(infer *c)
{
    const nnc_type *x = arg(c, 0);
    NNC_TRY(nnc_infer_number(c, 0));
    NNC_TRY(nnc_infer_axis(c, nnc_attr_int(c->n, AT_axis, 0), x->rank, "axis"));
    return nnc_infer_set(c, x->dtype, x->rank, x->dim);
}

nnc_status nnc_infer_linear_scan(infer *c)
{
    const nnc_type *a = arg(c, 0), *b = arg(c, 1);
    NNC_TRY(nnc_infer_scan(c));
    NNC_TRY(nnc_infer_float(c, 0));
    nnc_type first = nnc_type_make(a->dtype, a->rank, a->dim);
    if (b->dtype != a->dtype || !nnc_type_same_shape(a, b))
        return fail(c, "b is %s; it must be as a, %s", nnc_infer_show(c, b), nnc_infer_show(c, a));
    first.dim[nnc_attr_int(c->n, AT_axis, 0)] = 1;
    if (c->n->n_in > 2 && (arg(c, 2)->dtype != a->dtype || !nnc_type_same_shape(arg(c, 2), &first)))
        return fail(
            c, "y0 is %s; it must be %s", nnc_infer_show(c, arg(c, 2)), nnc_infer_show(c, &first));
    return NNC_OK;
}

nnc_status nnc_infer_topk(infer *c)
{
    const nnc_type *x = arg(c, 0);
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0), k = nnc_attr_int(c->n, AT_k, 1);
    NNC_TRY(nnc_infer_number(c, 0));
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    if (k < 1 || k > x->dim[axis])
        return fail(c,
            "k is %" PRId64 "; dimension %" PRId64 " of %s has 1 to %" PRId64 " elements", k, axis,
            nnc_infer_dims(c, x), x->dim[axis]);
    c->out[0] = nnc_type_make(x->dtype, x->rank, x->dim);
    c->out[0].dim[axis] = k;
    c->out[1] = nnc_type_make(DT_i64, x->rank, c->out[0].dim);
    return NNC_OK;
}

/* Checks the index: any extent along the axis, and elsewhere at most x's. */
static nnc_status elements(infer *c)
{
    const nnc_type *x = arg(c, 0), *at = arg(c, 1);
    int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    NNC_TRY(nnc_infer_integer(c, 1));
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    bool ok = x->rank == at->rank;
    for (int d = 0; d < x->rank && ok; d++)
        ok = d == axis || at->dim[d] <= x->dim[d];
    return ok ? NNC_OK
              : fail(c,
                    "the index is %s and x %s; they must have equal rank, and the index no longer "
                    "dimension but along axis %" PRId64,
                    nnc_infer_dims(c, at), nnc_infer_dims(c, x), axis);
}

nnc_status nnc_infer_gather_elements(infer *c)
{
    NNC_TRY(elements(c));
    return nnc_infer_set(c, arg(c, 0)->dtype, arg(c, 1)->rank, arg(c, 1)->dim);
}

/* Checks that updates have x's dtype, and that it has the arithmetic that the reduction needs. */
static nnc_status updated(infer *c)
{
    const nnc_type *x = arg(c, 0), *u = arg(c, 2);
    const nnc_attr *how = nnc_attr_find(c->n, AT_reduction);
    if (x->dtype != u->dtype)
        return fail(c, "the updates are %s but x is %s; cast them", nnc_dtype_name(u->dtype),
            nnc_dtype_name(x->dtype));
    if (how && strcmp(how->word, "none"))
        NNC_TRY(nnc_infer_number(c, 0));
    return nnc_infer_set(c, x->dtype, x->rank, x->dim);
}

nnc_status nnc_infer_scatter(infer *c)
{
    NNC_TRY(elements(c));
    if (!nnc_type_same_shape(arg(c, 1), arg(c, 2)))
        return fail(c, "the updates are %s; they must be %s as the index is",
            nnc_infer_dims(c, arg(c, 2)), nnc_infer_dims(c, arg(c, 1)));
    return updated(c);
}

/* *k: number of dimensions, after the first `batch`, that an index tuple (the indices' last dimension) names. */
static nnc_status tuples(infer *c, int64_t batch, int *k)
{
    const nnc_type *x = arg(c, 0), *at = arg(c, 1);
    NNC_TRY(nnc_infer_integer(c, 1));
    if (at->rank == 0)
        return fail(c, "the indices are a scalar; their last dimension is that of an index");
    int64_t n = at->dim[at->rank - 1];
    if (n > x->rank - batch)
        return fail(c, "the indices %s name %" PRId64 " dimensions, but x %s has %" PRId64,
            nnc_infer_dims(c, at), n, nnc_infer_dims(c, x), x->rank - batch);
    *k = (int)n;
    return NNC_OK;
}

nnc_status nnc_infer_gather_nd(infer *c)
{
    const nnc_type *x = arg(c, 0), *at = arg(c, 1);
    int64_t batch = nnc_attr_int(c->n, AT_batch_dims, 0), dim[2 * NNC_MAX_RANK];
    int k = 0, n = 0;
    if (batch < 0 || batch >= at->rank || batch > x->rank)
        return fail(c, "batch_dims is %" PRId64 "; x %s and the indices %s share fewer dimensions",
            batch, nnc_infer_dims(c, x), nnc_infer_dims(c, at));
    NNC_TRY(tuples(c, batch, &k));
    for (int d = 0; d < batch; d++)
        if (x->dim[d] != at->dim[d])
            return fail(c, "dimension %d of x %s and of the indices %s differ", d,
                nnc_infer_dims(c, x), nnc_infer_dims(c, at));
    for (int d = 0; d < at->rank - 1; d++)
        dim[n++] = at->dim[d];
    for (int d = (int)batch + k; d < x->rank; d++)
        dim[n++] = x->dim[d];
    if (n > NNC_MAX_RANK)
        return fail(c, "the result has %d dimensions; at most %d are possible", n, NNC_MAX_RANK);
    return nnc_infer_set(c, x->dtype, n, dim);
}

nnc_status nnc_infer_scatter_nd(infer *c)
{
    const nnc_type *x = arg(c, 0), *at = arg(c, 1), *u = arg(c, 2);
    int k = 0;
    NNC_TRY(tuples(c, 0, &k));
    bool ok = u->rank == at->rank - 1 + x->rank - k;
    for (int d = 0; ok && d < u->rank; d++)
        ok = u->dim[d] == (d < at->rank - 1 ? at->dim[d] : x->dim[d - (at->rank - 1) + k]);
    if (!ok)
        return fail(c,
            "the updates are %s; they have the dimensions of the indices %s but the last, and "
            "those of x %s from %d on",
            nnc_infer_dims(c, u), nnc_infer_dims(c, at), nnc_infer_dims(c, x), k);
    return updated(c);
}

/* ---- recurrence ------------------------------------------------------------------------------- */

/* Checks that operand i is [rows, H], or [H] if rows is 0. */
static nnc_status state(infer *c, int i, const char *name, int64_t rows, int64_t h)
{
    const nnc_type *t = arg(c, i);
    nnc_type want = nnc_type_make(arg(c, 0)->dtype, rows ? 2 : 1, (int64_t[]){rows ? rows : h, h});
    if (t->dtype == want.dtype && nnc_type_same_shape(t, &want))
        return NNC_OK;
    return fail(c, "%s is %s; it must be %s", name, nnc_infer_show(c, t), nnc_infer_show(c, &want));
}

/* Checks x[T,B,gates H] and R[gates H,H], in floats; `lengths`: the index of an optional last operand. */
static nnc_status recurrent(infer *c, int gates, int lengths, int64_t *b, int64_t *h)
{
    const nnc_type *x = arg(c, 0), *r = arg(c, 1);
    NNC_TRY(nnc_infer_float(c, 0));
    if (x->rank != 3 || x->dim[2] % gates)
        return fail(c, "x is %s; it must be [T,B,%d H]", nnc_infer_dims(c, x), gates);
    *b = x->dim[1];
    *h = x->dim[2] / gates;
    const bool fits = r->rank == 4
                          ? r->dim[0] * r->dim[3] == *h && r->dim[1] == *h && r->dim[2] == gates
                          : r->rank == 2 && r->dim[0] == *h && r->dim[1] == x->dim[2];
    if (!fits || r->dtype != x->dtype)
        return fail(c, "R is %s; it must be %s[%" PRId64 ",%" PRId64 "]", nnc_infer_show(c, r),
            nnc_dtype_name(x->dtype), *h, x->dim[2]);
    if (c->n->n_in > lengths) {
        NNC_TRY(nnc_infer_integer(c, lengths));
        NNC_TRY(nnc_infer_vector(c, lengths, *b, "lengths"));
    }
    return nnc_infer_set(c, x->dtype, 3, (int64_t[]){x->dim[0], *b, *h});
}

nnc_status nnc_infer_lstm(infer *c)
{
    int64_t b = 0, h = 0;
    NNC_TRY(recurrent(c, 4, 4, &b, &h));
    NNC_TRY(state(c, 2, "h0", b, h));
    NNC_TRY(state(c, 3, "c0", b, h));
    c->out[1] = nnc_type_make(arg(c, 0)->dtype, 2, (int64_t[]){b, h});
    return NNC_OK;
}

nnc_status nnc_infer_gru(infer *c)
{
    int64_t b = 0, h = 0;
    NNC_TRY(recurrent(c, 3, 4, &b, &h));
    NNC_TRY(state(c, 2, "the bias", 0, h));
    return state(c, 3, "h0", b, h);
}

nnc_status nnc_infer_rnn(infer *c)
{
    int64_t b = 0, h = 0;
    NNC_TRY(recurrent(c, 1, 3, &b, &h));
    return state(c, 2, "h0", b, h);
}

nnc_status nnc_infer_recurrent_grad(infer *c)
{
    const nnc_type *dy = arg(c, 0), *p = arg(c, 1), *w = arg(c, 2);
    const nnc_dtype d = dy->dtype;
    NNC_TRY(nnc_infer_float(c, 0));
    if (dy->rank != 3 || p->rank != 3 || p->dtype != d || p->dim[0] != dy->dim[0] ||
        p->dim[1] != dy->dim[1] || p->dim[2] % dy->dim[2])
        return fail(c, "dy is %s and p is %s; they must be [T,B,H] and [T,B,G H]",
            nnc_infer_show(c, dy), nnc_infer_show(c, p));
    const int64_t h = dy->dim[2];
    const bool fits = w->rank == 3 ? w->dim[0] * w->dim[2] == h && w->dim[1] == p->dim[2]
                                   : w->rank == 2 && w->dim[0] == p->dim[2] && w->dim[1] == h;
    if (!fits || w->dtype != d)
        return fail(c, "W is %s; it must be %s[%" PRId64 ",%" PRId64 "]", nnc_infer_show(c, w),
            nnc_dtype_name(d), p->dim[2], h);
    if (c->n->n_in == 4)
        return fail(c, "phi needs e0 beside it");
    for (int i = 3; i < c->n->n_in; i += 2)
        if (arg(c, i)->dtype != d || !nnc_type_same_shape(arg(c, i), dy))
            return fail(c, "%s is %s; it must be as dy, %s", i == 3 ? "phi" : "alpha",
                nnc_infer_show(c, arg(c, i)), nnc_infer_show(c, dy));
    if (c->n->n_in > 4)
        NNC_TRY(state(c, 4, "e0", dy->dim[1], h));
    nnc_infer_set(c, d, 3, p->dim);
    c->out[1] = nnc_type_make(d, 3, dy->dim);
    return NNC_OK;
}

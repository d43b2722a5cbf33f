/* ir/infer_nest.c -- shape rules of matmul and linear, and of the named ops with reductions (softmax, normalisations, global pools). */
#include "ir/infer.h"

#include <inttypes.h>
#include <string.h>

nnc_status nnc_infer_matmul(infer *c)
{
    const nnc_type *a = arg(c, 0), *b = arg(c, 1);
    bool ta = nnc_attr_int(c->n, AT_transpose_a, 0), tb = nnc_attr_int(c->n, AT_transpose_b, 0);
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_number(c, 0));
    for (int i = 0; i < 2; i++)
        if (arg(c, i)->rank < 2)
            return fail(c,
                "operand %d is %s; it must have at least 2 dimensions: reshape it to "
                "a row or a column",
                i + 1, nnc_infer_show(c, arg(c, i)));
    int64_t m = a->dim[a->rank - 2 + ta], k = a->dim[a->rank - 1 - ta];
    int64_t k2 = b->dim[b->rank - 2 + tb], n = b->dim[b->rank - 1 - tb];
    if (k != k2) {
        const char *hint =
            n == k    ? (tb ? "; it fits without transpose_b" : "; it fits with transpose_b=1")
            : m == k2 ? (ta ? "; it fits without transpose_a" : "; it fits with transpose_a=1")
                      : "";
        return fail(c,
            "%s%s times %s%s: the inner extents %" PRId64 " and %" PRId64 " must be equal%s",
            nnc_infer_dims(c, a), ta ? " transposed" : "", nnc_infer_dims(c, b),
            tb ? " transposed" : "", k, k2, hint);
    }
    nnc_type p = *a, q = *b, t = {0};
    p.rank = (uint8_t)(p.rank - 2);
    q.rank = (uint8_t)(q.rank - 2);
    NNC_TRY(nnc_infer_broadcast(c, &p, &q, &t));
    t.dim[t.rank] = m;
    t.dim[t.rank + 1] = n;
    return nnc_infer_set(c, a->dtype, t.rank + 2, t.dim);
}

nnc_status nnc_infer_linear(infer *c)
{
    const nnc_type *x = arg(c, 0), *w = arg(c, 1);
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_number(c, 0));
    if (x->rank < 1)
        return fail(c, "the input is a scalar; it must have features: [..,in]");
    if (w->rank != 2)
        return fail(c, "the weight is %s; it must be [out,in]", nnc_infer_dims(c, w));
    int64_t in = x->dim[x->rank - 1];
    if (w->dim[1] != in) {
        const int64_t flat = nnc_type_extents(x, 1, x->rank); /* of a checked type: no overflow */
        return fail(c,
            "the input %s has %" PRId64 " features, but the weight %s is for %" PRId64 "%s",
            nnc_infer_dims(c, x), in, nnc_infer_dims(c, w), w->dim[1],
            w->dim[0] == in     ? "; it is [out,in], and seems transposed"
            : flat == w->dim[1] ? "; flatten the input first"
                                : "");
    }
    if (c->n->n_in == 3)
        NNC_TRY(nnc_infer_vector(c, 2, w->dim[0], "the bias"));
    int64_t dim[NNC_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] = w->dim[0];
    return nnc_infer_set(c, x->dtype, x->rank, dim);
}

/* Result 0 has the type of operand 0. */
static nnc_status like_first(infer *c)
{
    c->out[0] = *arg(c, 0);
    return NNC_OK;
}

nnc_status nnc_infer_global_pool(infer *c)
{
    const nnc_type *x = arg(c, 0);
    NNC_TRY(nnc_infer_number(c, 0));
    if (nnc_ops[c->n->op].flags & OF_float)
        NNC_TRY(nnc_infer_float(c, 0));
    if (x->rank < 3)
        return fail(c, "its input is %s; it must be [N,C,spatial...]", nnc_infer_show(c, x));
    NNC_TRY(like_first(c));
    for (int i = 2; i < x->rank; i++)
        c->out[0].dim[i] = 1;
    return NNC_OK;
}

nnc_status nnc_infer_softmax(infer *c)
{
    NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(nnc_infer_axis(c, nnc_attr_int(c->n, AT_axis, 0), arg(c, 0)->rank, "axis"));
    return like_first(c);
}

nnc_status nnc_infer_batchnorm(infer *c)
{
    static const char *const name[] = {"", "gamma", "beta", "the mean", "the variance"};
    const nnc_type *x = arg(c, 0);
    NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(nnc_infer_same_dtype(c));
    if (x->rank < 2)
        return fail(c, "its input is %s; it must be [N,C,...]", nnc_infer_show(c, x));
    for (int i = 1; i < 5; i++)
        NNC_TRY(nnc_infer_vector(c, i, x->dim[1], name[i]));
    return like_first(c);
}

nnc_status nnc_infer_layernorm(infer *c)
{
    const nnc_type *x = arg(c, 0);
    int64_t axis = nnc_attr_int(c->n, AT_axis, x->rank - 1);
    NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_axis(c, axis, x->rank, "axis"));
    nnc_type want = nnc_type_make(x->dtype, x->rank - (int)axis, x->dim + axis);
    for (int i = 1; i < c->n->n_in; i++)
        if (!nnc_type_same_shape(arg(c, i), &want))
            return fail(c, "%s has the shape %s; dimensions %" PRId64 " and on of the input are %s",
                i == 1 ? "gamma" : "beta", nnc_infer_dims(c, arg(c, i)), axis,
                nnc_infer_dims(c, &want));
    return like_first(c);
}

nnc_status nnc_infer_groupnorm(infer *c)
{
    const nnc_type *x = arg(c, 0);
    int64_t groups = nnc_attr_int(c->n, AT_num_groups, 1);
    NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(nnc_infer_same_dtype(c));
    if (x->rank < 2)
        return fail(c, "its input is %s; it must be [N,C,...]", nnc_infer_show(c, x));
    int64_t ch = x->dim[1], down = nnc_max64(1, nnc_min64(groups, ch));
    while (ch % down)
        down--;
    if (groups < 1 || ch % groups)
        return fail(c,
            "num_groups %" PRId64 " does not divide the %" PRId64 " channels; %" PRId64 " would",
            groups, ch, down);
    for (int i = 1; i < c->n->n_in; i++)
        NNC_TRY(nnc_infer_vector(c, i, ch, i == 1 ? "gamma" : "beta"));
    return like_first(c);
}

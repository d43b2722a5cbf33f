/* onnx/build_norm.c -- normalisations. */
#include "onnx/internal.h"
#include <math.h>

/* "epsilon", which the IR's ops take within [0, 1]. */
static nnc_attr eps(ox_build *b)
{
    return nnc_af(AT_eps, ox_float(b, "epsilon", 1e-5));
}

/* Normalisation by the batch itself: its mean and variance replace v[3] and v[4], whose running averages are results 1 and 2. Before
 * operator set 14 they are results 3 and 4. */
static bool by_batch(ox_build *b, nnc_ref v[5])
{
    const nnc_type x = *ox_type(b, v[0]);
    const double momentum = ox_float(b, "momentum", 0.9);
    int64_t axes[NNC_MAX_RANK];
    for (int i = 0; i < x.rank; i++)
        axes[i] = i < 1 ? 0 : i + 1;
    nnc_ref mean = ox_reduced(b, OP_reduce_mean, v[0], x.rank - 1, axes, true);
    nnc_ref square = ox_1(b, OP_square, ox_2(b, OP_sub, v[0], mean));
    nnc_ref of[2] = {ox_reduced(b, OP_reduce_mean, v[0], x.rank - 1, axes, false),
        ox_reduced(b, OP_reduce_mean, square, x.rank - 1, axes, false)};
    for (int i = 0; i < 2; i++) {
        nnc_ref was = ox_2n(b, OP_mul, v[3 + i], momentum),
                now = ox_2n(b, OP_mul, of[i], 1 - momentum);
        if (ox_wants(b, 1 + i) &&
            !ox_set(b, 1 + i, ox_to(b, ox_2(b, OP_add, was, now), ox_dt(b, ox_in(b, 3 + i)))))
            return false;
        if (ox_wants(b, 3 + i) && !ox_set(b, 3 + i, of[i]))
            return false;
        v[3 + i] = of[i];
    }
    return true;
}

/* A batch without elements has no mean and no variance. */
static bool of_nothing(ox_build *b, const nnc_type *x)
{
    for (int i = 1; i < b->n_out; i++)
        if (ox_wants(b, i) &&
            !ox_set(b, i, ox_broadcast(b, ox_num(b, x->dtype, NAN), 1, &x->dim[1])))
            return false;
    return ox_none(b, 0, x->dtype, x->rank, x->dim);
}

bool ox_batchnorm(ox_build *b)
{
    nnc_attr a = eps(b);
    nnc_ref v[5];
    const nnc_type x = ox_shape_of(b, 0);
    if (b->opset < 7 && !ox_int(b, "is_test", 0))
        return ox_refuse(b, "training is unsupported");
    if (!ox_int(b, "spatial", 1))
        return ox_refuse(b, "spatial=0 is unsupported");
    if (ox_any_0(x.rank, x.dim))
        return x.rank > 1 && x.dim[1] ? of_nothing(b, &x) : ox_empty_results(b);
    for (int i = 0; i < 5; i++)
        v[i] = ox_to(b, ox_in(b, i), ox_dt(b, ox_in(b, 0)));
    if (x.rank == 1) /* a batch of one channel */
        v[0] = ox_reshape(b, v[0], 2, (int64_t[]){x.dim[0], 1});
    const bool train = ox_int(b, "training_mode", 0) || (b->opset < 14 && b->n_out > 1);
    if (v[0] != NNC_NONE && train && !by_batch(b, v))
        return false;
    nnc_ref r = ox_op(b, OP_batchnorm, 5, v, 1, &a);
    return ox_give(b, x.rank == 1 ? ox_reshape(b, r, 1, x.dim) : r);
}

static bool groupnorm(ox_build *b, int64_t groups, nnc_ref gamma, nnc_ref beta)
{
    nnc_attr a[2] = {nnc_ai(AT_num_groups, groups), eps(b)};
    nnc_ref v[3] = {ox_in(b, 0), gamma, beta};
    return ox_give(b, ox_op(b, OP_groupnorm, 3, v, 2, a));
}

bool ox_instancenorm(ox_build *b)
{
    const nnc_type *x = ox_type(b, ox_in(b, 0));
    if (x->rank < 3)
        return ox_wrong(b, "it expects spatial dimensions");
    return groupnorm(b, x->dim[1], ox_in(b, 1), ox_in(b, 2));
}

/* Until opset 20 scale and bias are of groups: each is repeated for the channels of its group. A single one is for all channels. */
static nnc_ref per_channel(ox_build *b, nnc_ref v, int64_t groups, int64_t channels)
{
    if (v != NNC_NONE && nnc_type_numel(ox_type(b, v)) == 1)
        return ox_broadcast(b, ox_reshape(b, v, 0, NULL), 1, &channels);
    if (b->opset >= 21 || channels % groups)
        return v;
    nnc_ref r = ox_reshape(b, v, 2, (int64_t[]){groups, 1});
    r = ox_broadcast(b, r, 2, (int64_t[]){groups, channels / groups});
    return ox_reshape(b, r, 1, &channels);
}

bool ox_groupnorm(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    int64_t groups = ox_int(b, "num_groups", 0);
    if (x.rank < 2 || groups < 1)
        return ox_wrong(b, "it expects channels and num_groups");
    return groupnorm(b, groups, per_channel(b, ox_in(b, 1), groups, x.dim[1]),
        per_channel(b, ox_in(b, 2), groups, x.dim[1]));
}

/* The results 1 and 2: the mean, and the inverse of the standard deviation. */
static bool statistics(ox_build *b, int axis)
{
    nnc_ref x = ox_to(b, ox_in(b, 0), DT_f32);
    int64_t axes[NNC_MAX_RANK];
    int n = 0;
    for (int i = axis; i < ox_type(b, x)->rank; i++)
        axes[n++] = i;
    nnc_ref mean = ox_reduced(b, OP_reduce_mean, x, n, axes, true);
    nnc_ref square = ox_1(b, OP_square, ox_2(b, OP_sub, x, mean));
    nnc_ref var = ox_reduced(b, OP_reduce_mean, square, n, axes, true);
    nnc_ref inverse = ox_1(b, OP_rsqrt, ox_2n(b, OP_add, var, ox_float(b, "epsilon", 1e-5)));
    return ox_set(b, 1, mean) && ox_set(b, 2, inverse);
}

bool ox_layernorm(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    int axis, n = 1;
    if (!ox_axis(b, ox_int(b, "axis", -1), x.rank, &axis))
        return false;
    nnc_attr a[2] = {nnc_ai(AT_axis, axis), eps(b)};
    nnc_type want = nnc_type_make(x.dtype, x.rank - axis, &x.dim[axis]);
    nnc_ref v[3] = {ox_in(b, 0)};
    bool whole = true; /* gamma and beta have the normalised dimensions, and are not broadcast */
    for (int i = 1; i < 3; i++)
        whole = whole && (!ox_has(b, i) || nnc_type_equal(ox_type(b, ox_in(b, i)), &want));
    for (int i = 1; i < 3 && whole; i++)
        if (ox_has(b, i))
            v[n++] = ox_in(b, i);
    nnc_ref r = ox_op(b, b->row->op, n, v, 2, a);
    if (!whole) {
        r = ox_2(b, OP_mul, r, ox_to(b, ox_in(b, 1), x.dtype));
        r = ox_has(b, 2) ? ox_2(b, OP_add, r, ox_to(b, ox_in(b, 2), x.dtype)) : r;
    }
    if (b->row->op == OP_layernorm && (ox_wants(b, 1) || ox_wants(b, 2)) && !statistics(b, axis))
        return false;
    return ox_give(b, r);
}

/* x / (bias + alpha mean of x^2)^beta, the mean over `size` channels around each, of which those outside count as 0. */
bool ox_lrn(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    const int64_t size = ox_int(b, "size", 1), rest = nnc_type_extents(&x, 2, x.rank);
    if (x.rank < 2 || size < 1 || size > NNC_MAX_STEP)
        return ox_wrong(b, "it expects channels, and a size");
    nnc_attr a[3] = {nnc_av(AT_kernel, 2, (int64_t[]){size, 1}),
        nnc_av(AT_pads, 4, (int64_t[]){(size - 1) / 2, 0, size / 2, 0}),
        nnc_ai(AT_count_include_pad, 1)};
    nnc_ref v =
        ox_reshape(b, ox_1(b, OP_square, ox_in(b, 0)), 4, (int64_t[]){x.dim[0], 1, x.dim[1], rest});
    v = ox_reshape(b, ox_op(b, OP_avgpool, 1, &v, 3, a), x.rank, x.dim);
    v = ox_2n(b, OP_add, ox_2n(b, OP_mul, v, ox_float(b, "alpha", 1e-4)), ox_float(b, "bias", 1));
    return ox_give(b, ox_2(b, OP_div, ox_in(b, 0), ox_2n(b, OP_pow, v, ox_float(b, "beta", 0.75))));
}

/* (x - mean) / (standard deviation + 1e-9) */
bool ox_mvn(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    int rank = ox_type(b, x)->rank, n;
    int64_t axes[NNC_MAX_RANK] = {0, 2, 3}; /* unless given */
    bool given;
    if (!ox_axes(b, 1, rank, &n, axes, &given))
        return false;
    if (!given && rank < 4)
        return ox_wrong(b, "without axes it expects four dimensions or more");
    n = given ? n : 3;
    if (n == 0)
        return ox_wrong(b, "its axes are empty");
    nnc_ref d = ox_2(b, OP_sub, x, ox_reduced(b, OP_reduce_mean, x, n, axes, true));
    nnc_ref var = ox_reduced(b, OP_reduce_mean, ox_1(b, OP_square, d), n, axes, true);
    return ox_give(b, ox_2(b, OP_div, d, ox_2n(b, OP_add, ox_1(b, OP_sqrt, var), 1e-9)));
}

/* x / norm along an axis, 0 where the norm is. */
bool ox_lp_norm(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    int64_t p = ox_int(b, "p", 2);
    int axis;
    if (p != 1 && p != 2)
        return ox_wrong(b, "p is %lld; 1 or 2 is expected", (long long)p);
    if (!ox_axis(b, ox_int(b, "axis", -1), ox_type(b, x)->rank, &axis))
        return false;
    int64_t at = axis;
    nnc_ref v = ox_reduced(b, OP_reduce_sum, ox_1(b, p == 1 ? OP_abs : OP_square, x), 1, &at, true);
    nnc_ref none = ox_2n(b, OP_eq, v, 0), zero = ox_num(b, ox_dt(b, x), 0);
    nnc_ref norm = ox_select(b, none, ox_num(b, ox_dt(b, x), 1), v);
    norm = p == 2 ? ox_1(b, OP_sqrt, norm) : norm;
    return ox_give(b, ox_select(b, none, zero, ox_2(b, OP_div, x, norm)));
}

/* ---- ONNX Runtime's -------------------------------------------------------------------------- */

static bool normalised(ox_build *b, nnc_ref x, int gamma, int beta)
{
    const ox_attr a = {
        .name = "epsilon", .type = OXA_float, .f = ox_float(b, "epsilon", (double)1e-12f)};
    nnc_ref v[3] = {x, ox_in(b, gamma), beta < 0 ? NNC_NONE : ox_optional(b, beta)};
    return ox_give(
        b, ox_inner(b, b->row->op == OP_rmsnorm ? "RMSNormalization" : "LayerNormalization", 23,
               2 + (v[2] != NNC_NONE), v, 1, &a));
}

/* x + skip + bias, which is result 3, normalised. */
bool ox_skip_layernorm(ox_build *b)
{
    const bool rms = b->row->op == OP_rmsnorm;
    nnc_ref x = ox_2(b, OP_add, ox_in(b, 0), ox_in(b, 1));
    if (ox_has(b, rms ? 3 : 4))
        x = ox_2(b, OP_add, x, ox_in(b, rms ? 3 : 4));
    return ox_set(b, 3, x) && normalised(b, x, 2, rms ? -1 : 3);
}

/* Rows of the tables of words, positions and segments, whose sum is result 2, normalised. Result 1: the lengths by the mask. */
bool ox_embed_layernorm(ox_build *b)
{
    const nnc_type ids = *ox_type(b, ox_in(b, 0));
    const int64_t last = 1;
    nnc_ref word[2] = {ox_in(b, 2), ox_in(b, 0)}, place[2] = {ox_in(b, 3), ox_optional(b, 8)},
            segment[2] = {ox_optional(b, 4), ox_optional(b, 1)};
    if (ids.rank != 2)
        return ox_wrong(b, "its words have %d dimensions; 2 are expected", ids.rank);
    nnc_ref x = ox_2(b, OP_add, ox_on_axis(b, OP_gather, 2, word, 0),
        ox_has(b, 8) ? ox_on_axis(b, OP_gather, 2, place, 0)
                     : ox_slice(b, place[0], 0, 0, ids.dim[1]));
    if (ox_has(b, 1) && ox_has(b, 4))
        x = ox_2(b, OP_add, x, ox_on_axis(b, OP_gather, 2, segment, 0));
    nnc_ref length = ox_broadcast(b, ox_num(b, DT_i32, 0), 1, ids.dim);
    if (ox_has(b, 7))
        length = ox_reduced(
            b, OP_reduce_sum, ox_to(b, ox_2n(b, OP_eq, ox_in(b, 7), 1), DT_i32), 1, &last, false);
    return ox_set(b, 1, length) && ox_set(b, 2, x) && normalised(b, x, 5, 6);
}

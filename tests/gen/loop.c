/* tests/gen/loop.c -- graphs of one op that runs in order along an axis, or that computes its indices, of any shape, type and memory
 * order. */
#include "gen.h"

typedef struct loop {
    uint64_t key, count;
    nnc_graph *g;
} loop;

static int64_t between(loop *l, int64_t lo, int64_t hi)
{
    uint64_t span = (uint64_t)(hi - lo + 1);
    return lo + (int64_t)((uint64_t)nnc_rng_u32(l->key, l->count++) * span >> 32);
}

static nnc_dtype number_type(loop *l)
{
    static const nnc_dtype often[] = {DT_f32, DT_f32, DT_f16, DT_bf16, DT_f64, DT_i32};
    nnc_dtype d = (nnc_dtype)between(l, 0, DT__COUNT - 1);
    return d == DT_bool || between(l, 0, 1) ? often[between(l, 0, 5)] : d;
}

/* A type of 1 to 4 dimensions, `axis` the longest; half are in another memory order. */
static nnc_type shape(loop *l, nnc_dtype d, int *axis)
{
    int64_t dim[4];
    uint8_t order[4] = {0, 1, 2, 3};
    int rank = (int)between(l, 1, 4);
    *axis = (int)between(l, 0, rank - 1);
    for (int i = 0; i < rank; i++)
        dim[i] = i == *axis ? between(l, 1, 3) * between(l, 1, 20) : between(l, 1, 9);
    if (between(l, 0, 5) == 0) /* vectors along the last dimension */
        dim[rank - 1] += 40;
    nnc_type t = nnc_type_make(d, rank, dim);
    for (int i = rank - 1; i > 0; i--) {
        int j = (int)between(l, 0, i);
        uint8_t o = order[i];
        order[i] = order[j];
        order[j] = o;
    }
    if (between(l, 0, 1))
        nnc_type_set_order(&t, order);
    return t;
}

static nnc_ref scan(loop *l)
{
    int axis;
    nnc_type t = shape(l, number_type(l), &axis);
    nnc_ref x = nnc_input(l->g, "x", &t);
    nnc_attr at[3] = {nnc_ai(AT_axis, axis), nnc_ai(AT_exclusive, between(l, 0, 1)),
        nnc_ai(AT_reverse, between(l, 0, 1))};
    return nnc_build(l->g, between(l, 0, 2) ? OP_cumsum : OP_cumprod, 1, &x, 3, at);
}

static nnc_ref topk(loop *l)
{
    int axis;
    nnc_type t = shape(l, number_type(l), &axis);
    if (!between(l, 0, 2)) /* several blocks, or sorted runs */
        t.dim[axis] = between(l, 60, 150);
    nnc_ref x = nnc_input(l->g, "x", &t);
    int64_t n = t.dim[axis], k = between(l, 0, 2) ? between(l, 1, nnc_min64(n, 5)) : n;
    nnc_attr at[3] = {nnc_ai(AT_axis, axis), nnc_ai(AT_k, k), nnc_ai(AT_largest, between(l, 0, 1))};
    return nnc_build(l->g, OP_topk, 1, &x, 3, at);
}

static nnc_dtype index_type(loop *l)
{
    static const nnc_dtype d[] = {DT_i64, DT_i64, DT_i32, DT_i32, DT_i8, DT_u8, DT_u32, DT_u64};
    return d[between(l, 0, NNC_COUNT(d) - 1)];
}

/* Updates of 16-bit floats are rounded one by one: none that add up. */
static nnc_attr reduction(loop *l, const nnc_type *t)
{
    static const char *const words[] = {"none", "min", "max", "add", "mul"};
    bool narrow = t->dtype == DT_f16 || t->dtype == DT_bf16;
    return nnc_aw(AT_reduction, words[between(l, 0, narrow ? 2 : 4)]);
}

static nnc_ref scatter(loop *l)
{
    int axis;
    nnc_type t = shape(l, number_type(l), &axis), at = nnc_type_make(index_type(l), t.rank, t.dim),
             u;
    for (int d = 0; d < t.rank; d++)
        at.dim[d] = d == axis ? between(l, 1, 20) : t.dim[d] - (t.dim[d] > 1 && !between(l, 0, 3));
    u = nnc_type_make((nnc_dtype)t.dtype, at.rank, at.dim);
    nnc_ref in[3] = {nnc_input(l->g, "x", &t), nnc_input(l->g, "index", &at), NNC_NONE};
    in[2] = nnc_input(l->g, "updates", &u);
    nnc_attr attr[2] = {nnc_ai(AT_axis, axis), reduction(l, &t)};
    return nnc_build(l->g, OP_scatter, 3, in, 2, attr);
}

static nnc_ref scatter_nd(loop *l)
{
    int axis, q = (int)between(l, 0, 2), n = 0;
    nnc_type t = shape(l, number_type(l), &axis);
    int k = (int)between(l, 1, t.rank);
    int64_t dim[NNC_MAX_RANK], all[NNC_MAX_RANK];
    for (; n < q; n++)
        dim[n] = all[n] = between(l, 1, 6);
    dim[q] = k;
    for (int d = k; d < t.rank; d++)
        all[n++] = t.dim[d];
    nnc_type at = nnc_type_make(index_type(l), q + 1, dim),
             u = nnc_type_make((nnc_dtype)t.dtype, n, all);
    nnc_ref in[3] = {nnc_input(l->g, "x", &t), nnc_input(l->g, "indices", &at), NNC_NONE};
    in[2] = nnc_input(l->g, "updates", &u);
    nnc_attr attr = reduction(l, &t);
    return nnc_build(l->g, OP_scatter_nd, 3, in, 1, &attr);
}

static nnc_ref gather_elements(loop *l)
{
    int axis;
    nnc_type t = shape(l, number_type(l), &axis), at = nnc_type_make(index_type(l), t.rank, t.dim);
    for (int d = 0; d < t.rank; d++)
        at.dim[d] = d == axis ? between(l, 1, 20) : t.dim[d] - (t.dim[d] > 1 && !between(l, 0, 3));
    nnc_ref in[2] = {nnc_input(l->g, "x", &t), nnc_input(l->g, "index", &at)};
    nnc_attr attr = nnc_ai(AT_axis, axis);
    return nnc_build(l->g, OP_gather_elements, 2, in, 1, &attr);
}

static nnc_ref gather_nd(loop *l)
{
    int axis, n = 0;
    nnc_type t = shape(l, number_type(l), &axis);
    int batch = (int)between(l, 0, t.rank - 1), k = (int)between(l, 1, t.rank - batch);
    int64_t dim[NNC_MAX_RANK];
    for (; n < batch; n++)
        dim[n] = t.dim[n];
    for (int q = (int)between(l, 0, 2); q > 0; q--)
        dim[n++] = between(l, 1, 7);
    dim[n++] = k;
    nnc_type at = nnc_type_make(index_type(l), n, dim);
    nnc_ref in[2] = {nnc_input(l->g, "x", &t), nnc_input(l->g, "indices", &at)};
    nnc_attr attr = nnc_ai(AT_batch_dims, batch);
    return nnc_build(l->g, OP_gather_nd, 2, in, 1, &attr);
}

static nnc_ref floats(loop *l, const char *name, nnc_dtype d, int rank, const int64_t *dim)
{
    nnc_type t = nnc_type_make(d, rank, dim);
    return nnc_input(l->g, name, &t);
}

static nnc_ref recurrent(loop *l)
{
    static const nnc_op ops[] = {OP_lstm, OP_gru, OP_rnn};
    static const int gates[] = {4, 3, 1};
    static const nnc_dtype types[] = {DT_f32, DT_f32, DT_f64, DT_f16, DT_bf16};
    const int which = (int)between(l, 0, 2);
    const nnc_dtype d = types[between(l, 0, 4)];
    const int64_t h = between(l, 0, 3) ? between(l, 1, 9)
                                       : between(l, 1, 3) * 16 + between(l, 0, 1),
                  b = between(l, 0, 1) ? between(l, 1, 4) : between(l, 5, 40), t = between(l, 1, 4),
                  g = gates[which] * h, panel = h % 16 ? 1 : 16;
    nnc_ref in[5];
    int n = 0;
    in[n++] = floats(l, "x", d, 3, (int64_t[]){t, b, g});
    in[n++] = between(l, 0, 1)
                  ? floats(l, "r", d, 2, (int64_t[]){h, g})
                  : floats(l, "r", d, 4, (int64_t[]){h / panel, h, gates[which], panel});
    if (which == 1)
        in[n++] = floats(l, "bias", d, 1, &h);
    in[n++] = floats(l, "h0", d, 2, (int64_t[]){b, h});
    if (which == 0)
        in[n++] = floats(l, "c0", d, 2, (int64_t[]){b, h});
    if (between(l, 0, 1))
        in[n++] = floats(l, "lengths", index_type(l), 1, &b);
    nnc_attr at = nnc_aw(AT_activation, between(l, 0, 1) ? "tanh" : "relu");
    return nnc_build(l->g, ops[which], n, in, which == 2 && h < 8, &at);
}

/* A linear scan along a short axis, or the backward pass of a recurrent op. */
static nnc_ref backward(loop *l)
{
    static const nnc_dtype types[] = {DT_f32, DT_f32, DT_f64, DT_f16};
    const nnc_dtype d = types[between(l, 0, 3)];
    int64_t t = between(l, 1, 4);
    const int64_t b = between(l, 1, 9), h = between(l, 0, 1) ? between(l, 1, 4) : between(l, 5, 40),
                  g = between(l, 1, 4);
    nnc_ref in[6];
    int n = 0;
    if (between(l, 0, 1)) {
        int64_t dim[3] = {t, b, h};
        const int axis = (int)between(l, 0, 2);
        dim[axis] = t;
        in[n++] = floats(l, "a", d, 3, dim);
        in[n++] = floats(l, "b", d, 3, dim);
        dim[axis] = 1;
        if (between(l, 0, 1))
            in[n++] = floats(l, "y0", d, 3, dim);
        const nnc_attr at[] = {nnc_ai(AT_axis, axis), nnc_ai(AT_reverse, between(l, 0, 1))};
        return nnc_build(l->g, OP_linear_scan, n, in, 2, at);
    }
    if (h > 4)
        t = nnc_min64(t, 2); /* numbers grow from step to step */
    in[n++] = floats(l, "dy", d, 3, (int64_t[]){t, b, h});
    in[n++] = floats(l, "p", d, 3, (int64_t[]){t, b, g * h});
    in[n++] = h % 4 || between(l, 0, 1) ? floats(l, "w", d, 2, (int64_t[]){g * h, h})
                                        : floats(l, "w", d, 3, (int64_t[]){h / 4, g * h, 4});
    if (between(l, 0, 2)) {
        in[n++] = floats(l, "phi", d, 3, (int64_t[]){t, b, h});
        in[n++] = floats(l, "e0", d, 2, (int64_t[]){b, h});
        if (between(l, 0, 1))
            in[n++] = floats(l, "alpha", d, 3, (int64_t[]){t, b, h});
    }
    return nnc_build(l->g, OP_recurrent_grad, n, in, 0, NULL);
}

/* The indices of maxima over windows, or, of dy and indices (some of no element), the gradient of the operand. */
static nnc_ref largest(loop *l)
{
    static const nnc_dtype types[] = {DT_f32, DT_f32, DT_f64, DT_i32, DT_u8, DT_f16};
    int64_t dim[5] = {between(l, 1, 3), between(l, 1, 20)}, kernel[3], stride[3], pads[6],
            dilation[3];
    const int s = (int)between(l, 1, 3);
    for (int d = 0; d < s; d++) {
        kernel[d] = between(l, 1, s == 3 ? 2 : 4);
        stride[d] = between(l, 1, 4);
        dilation[d] = between(l, 0, 2) ? 1 : 2;
        int64_t reach = (kernel[d] - 1) * dilation[d] + 1;
        pads[d] = between(l, 0, (reach - 1) / 2);
        pads[s + d] = between(l, 0, (reach - 1) / 2);
        dim[2 + d] = nnc_max64(reach, 2) + between(l, 0, s == 3 ? 5 : 12);
    }
    const nnc_dtype dtype = types[between(l, 0, 5)];
    nnc_type t = nnc_type_make(dtype, 2 + s, dim);
    if (between(l, 0, 2) == 0)
        nnc_type_set_order(
            &t, (const uint8_t[][5]){{0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}}[s - 1]);
    nnc_attr at[5] = {nnc_av(AT_kernel, s, kernel), nnc_av(AT_strides, s, stride),
        nnc_av(AT_pads, 2 * s, pads), nnc_av(AT_dilations, s, dilation),
        nnc_ai(AT_ceil_mode, between(l, 0, 1))};
    if (between(l, 0, 2) == 0) {
        nnc_ref x = nnc_input(l->g, "x", &t);
        return nnc_build(l->g, OP_argmaxpool, 1, &x, 5, at);
    }
    nnc_type y = t;
    for (int d = 0; d < s; d++)
        y.dim[2 + d] =
            (dim[2 + d] + pads[d] + pads[s + d] - (kernel[d] - 1) * dilation[d] - 1) / stride[d] +
            1;
    nnc_type index = y;
    index.dtype = DT_i64;
    nnc_ref in[] = {nnc_input(l->g, "dy", &y), nnc_input(l->g, "index", &index)};
    if (between(l, 0, 1))
        in[1] = nnc_cast(l->g, nnc_cast(l->g, in[1], DT_u8), DT_i64);
    at[4] = nnc_av(AT_shape, 2 + s, dim);
    return nnc_build(l->g, OP_maxpool_grad, 2, in, 5, at);
}

static nnc_graph *drawn(uint64_t seed, nnc_ref (*const *op)(loop *), int n, nnc_sink *sink)
{
    loop l = {.key = nnc_rng_key("gen_loop", seed), .g = nnc_graph_create("loop", sink)};
    if (!l.g)
        return NULL;
    nnc_ref r = op[between(&l, 0, n - 1)](&l);
    for (int i = 0; r != NNC_NONE && i < nnc_def(l.g, r)->n_out; i++)
        nnc_output(l.g, r + (nnc_ref)i, NULL);
    if (l.g->status == NNC_OK && nnc_verify(l.g, sink) == NNC_OK)
        return l.g;
    nnc_graph_destroy(l.g);
    return NULL;
}

nnc_graph *gen_loop(uint64_t seed, nnc_sink *sink)
{
    static nnc_ref (*const op[])(loop *) = {
        scan, topk, scatter, scatter_nd, gather_elements, gather_nd};
    return drawn(seed, op, NNC_COUNT(op), sink);
}

nnc_graph *gen_recurrent(uint64_t seed, nnc_sink *sink)
{
    static nnc_ref (*const op[])(loop *) = {recurrent};
    return drawn(seed, op, NNC_COUNT(op), sink);
}

nnc_graph *gen_backward(uint64_t seed, nnc_sink *sink)
{
    static nnc_ref (*const op[])(loop *) = {backward};
    return drawn(seed, op, NNC_COUNT(op), sink);
}

nnc_graph *gen_largest(uint64_t seed, nnc_sink *sink)
{
    static nnc_ref (*const op[])(loop *) = {largest};
    return drawn(seed, op, NNC_COUNT(op), sink);
}

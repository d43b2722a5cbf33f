/* onnx/build_nn.c -- contractions and windows. */
#include "onnx/internal.h"
#include <math.h>
#include <string.h>

static bool read_list(ox_build *b, const char *name, int want, int64_t dflt, int64_t lo, int64_t *v)
{
    int n;
    if (!ox_ints(b, name, 2 * NNC_MAX_RANK, &n, (int64_t[2 * NNC_MAX_RANK]){0})) {
        for (int i = 0; i < want; i++)
            v[i] = dflt;
        return !b->x->status;
    }
    if (n != want)
        return ox_wrong(b, "%s has %d numbers; %d are expected", name, n, want);
    ox_ints(b, name, want, &n, v);
    for (int i = 0; i < want; i++)
        if (v[i] < lo || v[i] > NNC_MAX_STEP)
            return ox_wrong(
                b, "%s has the number %lld, which is out of range", name, (long long)v[i]);
    return true;
}

/* auto_pad: "" for stated pads, 'U' and 'L' for those that keep ceil(extent / stride), 'V' for none. */
static char auto_pad(ox_build *b)
{
    const char *word = ox_word(b, "auto_pad", "NOTSET");
    return !strcmp(word, "SAME_UPPER")   ? 'U'
           : !strcmp(word, "SAME_LOWER") ? 'L'
           : !strcmp(word, "VALID")      ? 'V'
                                         : 0;
}

/* Padding that keeps ceil(in / stride). */
static void same(nnc_window *w, bool lower)
{
    int64_t out = nnc_ceildiv(w->in, w->stride);
    int64_t need = nnc_max64((out - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - w->in, 0);
    w->lo = lower ? need - need / 2 : need / 2;
    w->hi = need - w->lo;
}

/* Reads the window of x. Without the attribute kernel_shape, w->kernel holds the weight's extents. */
bool ox_read_window(ox_build *b, const nnc_type *x, ox_window *w)
{
    w->n = x->rank - 2;
    if (w->n < 1 || w->n > 3)
        return ox_refuse(b, "%d spatial dimensions; 1 to 3 are supported", w->n);
    if ((ox_has_attr(b, "kernel_shape") && !read_list(b, "kernel_shape", w->n, 1, 1, w->kernel)) ||
        !read_list(b, "strides", w->n, 1, 1, w->strides) ||
        !read_list(b, "dilations", w->n, 1, 1, w->dilations) ||
        !read_list(b, "pads", 2 * w->n, 0, 0, w->pads) ||
        !read_list(b, "output_padding", w->n, 0, 0, w->extra))
        return false;
    char pad = auto_pad(b);
    for (int i = 0; i < w->n && pad; i++) {
        nnc_window d = {.in = x->dim[2 + i],
            .kernel = w->kernel[i],
            .stride = w->strides[i],
            .dilation = w->dilations[i]};
        if (pad != 'V')
            same(&d, pad == 'L');
        w->pads[i] = d.lo;
        w->pads[w->n + i] = d.hi;
    }
    return true;
}

int ox_window_attrs(const ox_window *w, nnc_attr *a)
{
    a[0] = nnc_av(AT_strides, w->n, w->strides);
    a[1] = nnc_av(AT_pads, 2 * w->n, w->pads);
    a[2] = nnc_av(AT_dilations, w->n, w->dilations);
    return 3;
}

/* The weight's extents, which kernel_shape must repeat. */
static bool read_kernel(ox_build *b, const nnc_type *weight, ox_window *w)
{
    int n;
    int64_t stated[NNC_MAX_RANK];
    for (int i = 0; i < 3 && i + 2 < weight->rank; i++)
        w->kernel[i] = weight->dim[2 + i];
    if (!ox_ints(b, "kernel_shape", NNC_MAX_RANK, &n, stated))
        return !b->x->status;
    for (int i = 0; i < n && i < 3; i++)
        if (stated[i] != w->kernel[i])
            return ox_wrong(b, "kernel_shape and the weight differ in dimension %d", i);
    return true;
}

/* The convolution of x by w, and a bias where it is a value. */
static nnc_ref conv(ox_build *b, nnc_ref x, nnc_ref k, nnc_ref bias)
{
    nnc_attr a[5];
    ox_window w = {0};
    if (x == NNC_NONE || k == NNC_NONE)
        return NNC_NONE;
    const nnc_type tx = *ox_type(b, x);
    if (!read_kernel(b, ox_type(b, k), &w) || !ox_read_window(b, &tx, &w))
        return NNC_NONE;
    int n = ox_window_attrs(&w, a);
    a[n++] = nnc_ai(AT_groups, ox_int(b, "group", 1));
    nnc_ref v[3] = {x, k, bias};
    return ox_op(b, OP_conv, 2 + (bias != NNC_NONE), v, n, a);
}

bool ox_conv(ox_build *b)
{
    return ox_give(b, conv(b, ox_in(b, 0), ox_in(b, 1), ox_has(b, 2) ? ox_in(b, 2) : NNC_NONE));
}

/* The pads that give the stated or, with auto_pad, the usual output shape. */
static bool transposed_pads(ox_build *b, const nnc_type *x, ox_window *w)
{
    int64_t out[3];
    int n;
    char pad = auto_pad(b);
    bool stated = ox_ints(b, "output_shape", 3, &n, out);
    if (b->x->status || (stated && n != w->n))
        return ox_wrong(b, "output_shape has %d numbers", n);
    for (int i = 0; i < w->n && (stated || pad == 'U' || pad == 'L'); i++) {
        int64_t in = x->dim[2 + i], reach = (w->kernel[i] - 1) * w->dilations[i] + 1;
        int64_t want = stated ? out[i] : in * w->strides[i];
        int64_t all = w->strides[i] * (in - 1) + w->extra[i] + reach - want;
        w->extra[i] -= nnc_min64(all, 0);
        all = nnc_max64(all, 0);
        w->pads[i] = pad == 'U' ? all / 2 : all - all / 2;
        w->pads[w->n + i] = all - w->pads[i];
    }
    return true;
}

bool ox_conv_transpose(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    nnc_attr a[5];
    ox_window w = {0};
    if (!read_kernel(b, ox_type(b, ox_in(b, 1)), &w) || !ox_read_window(b, &x, &w) ||
        !transposed_pads(b, &x, &w))
        return false;
    int n = ox_window_attrs(&w, a);
    a[n++] = nnc_av(AT_output_padding, w.n, w.extra);
    a[n++] = nnc_ai(AT_groups, ox_int(b, "group", 1));
    nnc_ref v[3] = {ox_in(b, 0), ox_in(b, 1), ox_has(b, 2) ? ox_in(b, 2) : NNC_NONE};
    return ox_give(b, ox_op(b, OP_conv_transpose, 2 + ox_has(b, 2), v, n, a));
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* numpy's product: a vector is a row on the left and a column on the right, and its dimension is dropped. */
static nnc_ref matmul(ox_build *b, nnc_ref x, nnc_ref y)
{
    if (x == NNC_NONE || y == NNC_NONE)
        return NNC_NONE;
    const nnc_type tx = *ox_type(b, x), ty = *ox_type(b, y);
    if (tx.rank == 1)
        x = ox_reshape(b, x, 2, (int64_t[]){1, tx.dim[0]});
    if (ty.rank == 1)
        y = ox_reshape(b, y, 2, (int64_t[]){ty.dim[0], 1});
    nnc_ref r = ox_2(b, OP_matmul, x, y);
    if (r == NNC_NONE || (tx.rank > 1 && ty.rank > 1))
        return r;
    const nnc_type t = *ox_type(b, r);
    int64_t d[NNC_MAX_RANK];
    int n = 0;
    for (int i = 0; i < t.rank; i++)
        if (!(tx.rank == 1 && i == t.rank - 2) && !(ty.rank == 1 && i == t.rank - 1))
            d[n++] = t.dim[i];
    return ox_reshape(b, r, n, d);
}

/* A product with an operand without elements: as many as its result has, 0 without what would be summed. */
static bool empty_product(ox_build *b, bool ta, bool tb, nnc_ref add)
{
    const nnc_type x = ox_shape_of(b, 0), w = ox_shape_of(b, 1);
    nnc_type t = x.rank > w.rank ? x : w;
    if (b->in[0].state != OX_empty && b->in[1].state != OX_empty)
        return ox_wrong(b, "its operands have shapes that do not fit");
    if (x.rank < 2 || w.rank < 2)
        return ox_refuse(b, "an operand of 1 dimension without elements");
    for (int k = 3; k <= t.rank; k++) { /* from the end */
        const int64_t p = k <= x.rank ? x.dim[x.rank - k] : 1,
                      q = k <= w.rank ? w.dim[w.rank - k] : 1;
        if (p != q && p != 1 && q != 1)
            return ox_wrong(b, "its operands have shapes that do not fit");
        t.dim[t.rank - k] = p == 1 ? q : p;
    }
    if (x.dim[x.rank - 1 - ta] != w.dim[w.rank - 2 + tb])
        return ox_wrong(b, "its operands have shapes that do not fit");
    t.dim[t.rank - 2] = x.dim[x.rank - 2 + ta];
    t.dim[t.rank - 1] = w.dim[w.rank - 1 - tb];
    if (ox_any_0(t.rank, t.dim))
        return ox_none(b, 0, x.dtype, t.rank, t.dim);
    nnc_ref sum = ox_num(b, x.dtype, 0);
    return ox_give(b, ox_broadcast(b, add == NNC_NONE ? sum : add, t.rank, t.dim));
}

bool ox_matmul(ox_build *b)
{
    if (ox_has_empty(b))
        return empty_product(b, false, false, NNC_NONE);
    return ox_give(b, matmul(b, ox_in(b, 0), ox_in(b, 1)));
}

bool ox_gemm(ox_build *b)
{
    double alpha = ox_float(b, "alpha", 1), beta = ox_float(b, "beta", 1);
    bool ta = ox_int(b, "transA", 0) != 0, tb = ox_int(b, "transB", 0) != 0,
         c = ox_has(b, 2) && beta != 0;
    const nnc_type w = ox_shape_of(b, 1);
    nnc_ref v[3] = {NNC_NONE, NNC_NONE, c && b->in[2].state != OX_empty ? ox_in(b, 2) : NNC_NONE};
    if (ox_has_empty(b))
        return empty_product(
            b, ta, tb, v[2] != NNC_NONE && beta != 1 ? ox_2n(b, OP_mul, v[2], beta) : v[2]);
    v[0] = ox_in(b, 0);
    v[1] = ox_in(b, 1);
    const nnc_type bias = *ox_type(b, v[2]);
    if (!nnc_is_float(w.dtype) && (alpha != 1 || (c && beta != 1)))
        return ox_refuse(b, "integers with alpha or beta are unsupported");
    bool row = bias.rank == 1 && w.rank == 2 && bias.dim[0] == w.dim[!tb];
    if (!ta && tb && alpha == 1 && (!c || (beta == 1 && row)))
        return ox_give(b, ox_op(b, OP_linear, 2 + c, v, 0, NULL));
    nnc_attr a[2] = {nnc_ai(AT_transpose_a, ta), nnc_ai(AT_transpose_b, tb)};
    nnc_ref r = ox_op(b, OP_matmul, 2, v, 2, a);
    r = alpha == 1 ? r : ox_2n(b, OP_mul, r, alpha);
    if (c)
        r = ox_2(b, OP_add, r, beta == 1 ? v[2] : ox_2n(b, OP_mul, v[2], beta));
    return ox_give(b, r);
}

/* ---- integers, by zero points ---------------------------------------------------------------- */

/* x - zero point, if there is one, as i32. A list of zero points goes along `axis`. */
static nnc_ref from_zero(ox_build *b, nnc_ref x, nnc_ref zero, int axis)
{
    nnc_ref r = ox_to(b, x, DT_i32);
    if (zero == NNC_NONE)
        return r;
    return ox_2(b, OP_sub, r, ox_per_index(b, ox_to(b, zero, DT_i32), ox_type(b, x)->rank, axis));
}

static nnc_ref centred(ox_build *b, nnc_ref x, int zero, int axis)
{
    return from_zero(b, x, ox_optional(b, zero), axis);
}

bool ox_matmul_integer(ox_build *b)
{
    int left = ox_type(b, ox_in(b, 0))->rank, right = ox_type(b, ox_in(b, 1))->rank;
    nnc_ref x = centred(b, ox_in(b, 0), 2, nnc_max64(left - 2, 0)),
            y = centred(b, ox_in(b, 1), 3, right - 1);
    return ox_give(b, matmul(b, x, y));
}

bool ox_conv_integer(ox_build *b)
{
    return ox_give(
        b, conv(b, centred(b, ox_in(b, 0), 2, 1), centred(b, ox_in(b, 1), 3, 0), NNC_NONE));
}

/* A scale of one number, or one for each channel of the weight along `axis`. */
static nnc_ref scale(ox_build *b, int i, int rank, int axis)
{
    return ox_per_index(b, ox_to(b, ox_in(b, i), DT_f32), rank, axis);
}

/* round(sum as_ bs / ys) + zero point, saturated. */
static bool requantize(ox_build *b, nnc_ref sum, int as_, int bs, int ys, int axis)
{
    int rank = sum == NNC_NONE ? 0 : ox_type(b, sum)->rank;
    nnc_ref s = ox_2(b, OP_div,
        ox_2(b, OP_mul, scale(b, as_, rank, nnc_max64(rank - 2, 0)), scale(b, bs, rank, axis)),
        scale(b, ys, rank, axis));
    nnc_ref r = ox_2(b, OP_mul, ox_to(b, sum, DT_f32), s);
    return ox_give(b, ox_saturate(b, ox_1(b, OP_round, r), ox_in(b, ys + 1), 0));
}

bool ox_qlinear_matmul(ox_build *b)
{
    int left = ox_type(b, ox_in(b, 0))->rank, right = ox_type(b, ox_in(b, 3))->rank;
    nnc_ref x = centred(b, ox_in(b, 0), 2, nnc_max64(left - 2, 0)),
            y = centred(b, ox_in(b, 3), 5, right - 1);
    nnc_ref sum = matmul(b, x, y);
    return ox_give(b, sum) && requantize(b, sum, 1, 4, 6, ox_type(b, sum)->rank - 1);
}

bool ox_qlinear_conv(ox_build *b)
{
    const bool last = ox_int(b, "channels_last", 0) != 0; /* ONNX Runtime's */
    nnc_ref x = last ? ox_channels_first(b, ox_in(b, 0)) : ox_in(b, 0),
            k = centred(b, ox_in(b, 3), 5, 0);
    nnc_ref sum = conv(b, centred(b, x, 2, 1), k, ox_optional(b, 8));
    if (!ox_give(b, sum) || !requantize(b, sum, 1, 4, 6, 1))
        return false;
    return !last || ox_give(b, ox_channels_last(b, b->out[0].ref));
}

/* ---- ONNX Runtime's -------------------------------------------------------------------------- */

/* x through the operator that the attribute "activation" names, with its numbers as that operator's attributes. */
static nnc_ref activated(ox_build *b, nnc_ref x)
{
    static const char *const names[] = {"alpha", "beta", "gamma"}, *const bounds[] = {"min", "max"};
    const char *op = ox_word(b, "activation", "");
    const ox_attr *list = ox_attr_find(b, "activation_params", OXA_floats);
    ox_attr a[3];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "activation_%s", names[i]);
        const double v = list && (size_t)i < list->n ? list->floats[i] : ox_float(b, name, NAN);
        if (!isnan(v))
            a[n++] = (ox_attr){.name = i < 2 && !strcmp(op, "Clip") ? bounds[i] : names[i],
                .type = OXA_float,
                .f = v};
    }
    return *op ? ox_inner(b, op, 10, 1, &x, n, a) : x;
}

bool ox_fused_conv(ox_build *b)
{
    nnc_ref r = conv(b, ox_in(b, 0), ox_in(b, 1), ox_optional(b, 2));
    return ox_give(b, activated(b, ox_has(b, 3) ? ox_2(b, OP_add, r, ox_in(b, 3)) : r));
}

bool ox_fused_gemm(ox_build *b)
{
    return ox_gemm(b) && ox_give(b, activated(b, b->out[0].ref));
}

/* transBatch: the first dimension is the matrix's, and the batch dimensions are after it. */
bool ox_fused_matmul(ox_build *b)
{
    nnc_ref v[2] = {ox_in(b, 0), ox_in(b, 1)};
    const nnc_attr a[2] = {nnc_ai(AT_transpose_a, ox_int(b, "transA", 0) != 0),
        nnc_ai(AT_transpose_b, ox_int(b, "transB", 0) != 0)};
    const double alpha = ox_float(b, "alpha", 1);
    for (int i = 0; i < 2; i++) {
        const int rank = ox_type(b, v[i])->rank;
        int64_t perm[NNC_MAX_RANK];
        for (int k = 0; k < rank; k++)
            perm[k] = k < rank - 2 ? k + 1 : k < rank - 1 ? 0 : k;
        if (rank > 2 && ox_int(b, i ? "transBatchB" : "transBatchA", 0))
            v[i] = ox_transposed(b, v[i], perm);
    }
    nnc_ref r = a[0].i || a[1].i ? ox_op(b, OP_matmul, 2, v, 2, a) : matmul(b, v[0], v[1]);
    return ox_give(b, alpha == 1 ? r : ox_2n(b, OP_mul, r, alpha));
}

nnc_ref ox_integer_product(ox_build *b, const nnc_ref v[7])
{
    const int left = ox_type(b, v[0])->rank, right = ox_type(b, v[3])->rank;
    nnc_ref sum = matmul(
        b, from_zero(b, v[0], v[2], nnc_max64(left - 2, 0)), from_zero(b, v[3], v[5], right - 1));
    nnc_ref s = ox_2(b, OP_mul, ox_per_index(b, ox_to(b, v[1], DT_f32), 0, 0),
        ox_to(b, ox_per_index(b, v[4], 1, 0), DT_f32));
    nnc_ref r = ox_2(b, OP_mul, ox_to(b, sum, DT_f32), s);
    return v[6] == NNC_NONE ? r : ox_2(b, OP_add, r, v[6]);
}

bool ox_matmul_integer_to_float(ox_build *b)
{
    return ox_give(b,
        ox_integer_product(b, (nnc_ref[]){ox_in(b, 0), ox_in(b, 2), ox_optional(b, 4), ox_in(b, 1),
                                  ox_in(b, 3), ox_optional(b, 5), ox_optional(b, 6)}));
}

bool ox_dynamic_quantize_matmul(ox_build *b)
{
    nnc_ref x[3];
    ox_to_u8(b, ox_in(b, 0), x);
    return ox_give(b, ox_integer_product(b, (nnc_ref[]){x[0], x[1], x[2], ox_in(b, 1), ox_in(b, 2),
                                                ox_optional(b, 3), ox_optional(b, 4)}));
}

/* alpha (a b + c), quantised where the result has a scale. */
bool ox_qgemm(ox_build *b)
{
    const bool tb = ox_int(b, "transB", 0) != 0;
    const nnc_attr a[2] = {
        nnc_ai(AT_transpose_a, ox_int(b, "transA", 0) != 0), nnc_ai(AT_transpose_b, tb)};
    nnc_ref v[2] = {centred(b, ox_in(b, 0), 2, 0), centred(b, ox_in(b, 3), 5, tb ? 0 : 1)};
    nnc_ref sum = ox_op(b, OP_matmul, 2, v, 2, a);
    if (ox_has(b, 6))
        sum = ox_2(b, OP_add, sum, ox_in(b, 6));
    nnc_ref s = ox_2n(
        b, OP_mul, ox_2(b, OP_mul, scale(b, 1, 2, 0), scale(b, 4, 2, 1)), ox_float(b, "alpha", 1));
    if (ox_has(b, 7))
        s = ox_2(b, OP_div, s, scale(b, 7, 2, 0));
    nnc_ref r = ox_2(b, OP_mul, ox_to(b, sum, DT_f32), s);
    if (!ox_has(b, 7))
        return ox_give(b, r);
    r = ox_1(b, OP_round, r);
    return ox_give(b, ox_has(b, 8) ? ox_saturate(b, r, ox_in(b, 8), 0)
                                   : ox_saturate_to(b, r, ox_dt(b, ox_in(b, 0)), 0));
}

/* rows x n bytes as rows x (n 8 / bits) numbers, those of the low bits first. */
static nnc_ref unpacked(ox_build *b, nnc_ref x, int64_t rows, int64_t n, int64_t bits)
{
    nnc_ref part[8];
    const int parts = (int)(8 / bits);
    x = ox_reshape(b, x, 3, (int64_t[]){rows, n, 1});
    for (int i = 0; i < parts; i++)
        part[i] = ox_2n(
            b, OP_bit_and, ox_2n(b, OP_shr, x, (double)(i * bits)), (double)((1 << bits) - 1));
    return ox_reshape(b, ox_joined(b, parts, part, 2), 2, (int64_t[]){rows, n * parts});
}

/* x W^T, W of N rows of K numbers of few bits, in blocks with a scale and a zero point each. */
bool ox_matmul_nbits(ox_build *b)
{
    const int64_t k = ox_int(b, "K", 0), n = ox_int(b, "N", 0), block = ox_int(b, "block_size", 0),
                  bits = ox_int(b, "bits", 4);
    if (bits != 2 && bits != 4 && bits != 8)
        return ox_refuse(b, "%lld bits; 2, 4 and 8 are supported", (long long)bits);
    if (ox_dt(b, ox_in(b, 1)) != DT_u8)
        return ox_refuse(
            b, "weights of %s; u8 is supported", nnc_dtype_name(ox_dt(b, ox_in(b, 1))));
    if (ox_has(b, 4) || ox_int(b, "weight_prepacked", 0))
        return ox_refuse(b, "%s is unsupported", ox_has(b, 4) ? "g_idx" : "weight_prepacked");
    if (k < 1 || n < 1 || block < 8 / bits || k > NNC_MAX_STEP || n > NNC_MAX_STEP ||
        block > NNC_MAX_STEP)
        return ox_wrong(b, "K, N or block_size is missing or out of range");
    const int64_t blocks = nnc_ceildiv(k, block), each[3] = {n, blocks, 1};
    const nnc_dtype d = ox_dt(b, ox_in(b, 0));
    nnc_ref w = unpacked(b, ox_in(b, 1), n, blocks * block * bits / 8, bits), zero;
    w = ox_to(b, ox_reshape(b, w, 3, (int64_t[]){n, blocks, block}), d);
    if (!ox_has(b, 3))
        zero = ox_num(b, d, (double)(1 << (bits - 1)));
    else if (nnc_is_float(ox_dt(b, ox_in(b, 3))))
        zero = ox_reshape(b, ox_in(b, 3), 3, each);
    else
        zero = ox_reshape(b,
            ox_slice(
                b, unpacked(b, ox_in(b, 3), n, nnc_ceildiv(blocks * bits, 8), bits), 1, 0, blocks),
            3, each);
    w = ox_2(b, OP_mul, ox_2(b, OP_sub, w, ox_to(b, zero, d)),
        ox_to(b, ox_reshape(b, ox_in(b, 2), 3, each), d));
    w = ox_reshape(b, w, 2, (int64_t[]){n, blocks * block});
    nnc_ref v[3] = {ox_in(b, 0), w == NNC_NONE || blocks * block == k ? w : ox_slice(b, w, 1, 0, k),
        ox_optional(b, 5)};
    return ox_give(b, ox_op(b, OP_linear, 2 + ox_has(b, 5), v, 0, NULL));
}

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
        return !b->x->status && ox_wrong(b, "output_shape has %d numbers", n);
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

bool ox_matmul(ox_build *b)
{
    return ox_give(b, matmul(b, ox_in(b, 0), ox_in(b, 1)));
}

bool ox_gemm(ox_build *b)
{
    double alpha = ox_float(b, "alpha", 1), beta = ox_float(b, "beta", 1);
    bool ta = ox_int(b, "transA", 0) != 0, tb = ox_int(b, "transB", 0) != 0,
         c = ox_has(b, 2) && beta != 0;
    nnc_ref v[3] = {ox_in(b, 0), ox_in(b, 1), c ? ox_in(b, 2) : NNC_NONE};
    const nnc_type w = *ox_type(b, v[1]), bias = *ox_type(b, v[2]);
    if (!nnc_is_float((nnc_dtype)w.dtype) && (alpha != 1 || (c && beta != 1)))
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

/* x - zero point as i32. A list of zero points goes along `axis`. */
static nnc_ref centred(ox_build *b, nnc_ref x, int zero, int axis)
{
    nnc_ref r = ox_to(b, x, DT_i32);
    if (!ox_has(b, zero))
        return r;
    nnc_ref z = ox_to(b, ox_in(b, zero), DT_i32);
    return ox_2(b, OP_sub, r, ox_per_index(b, z, ox_type(b, x)->rank, axis));
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
    nnc_ref x = centred(b, ox_in(b, 0), 2, 1), k = centred(b, ox_in(b, 3), 5, 0);
    nnc_ref sum = conv(b, x, k, ox_has(b, 8) ? ox_in(b, 8) : NNC_NONE);
    return ox_give(b, sum) && requantize(b, sum, 1, 4, 6, 1);
}

/* onnx/build_transform.c -- Fourier transforms as products with constants, and Col2Im as a transposed convolution by ones. */
#include "onnx/internal.h"
#include <math.h>

enum { MOST = 1 << 22 }; /* numbers of a constant */

/* Number i of a constant that `how` describes. */
typedef double number_of(const int64_t *how, int64_t i);

static nnc_ref table(
    ox_build *b, nnc_dtype d, int rank, const int64_t *dim, number_of *value, const int64_t *how)
{
    const nnc_type t = nnc_type_make(DT_f64, rank, dim);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n = nnc_mul_sat(n, dim[i]);
    if (n > MOST)
        return ox_refuse(b, "its constant of %lld numbers is too large", (long long)n), NNC_NONE;
    NNC_FREED double *v = nnc_malloc((size_t)n * sizeof *v);
    if (!v)
        return ox_nomem(b->x), NNC_NONE;
    for (int64_t i = 0; i < n; i++)
        v[i] = value(how, i);
    return ox_to(b, nnc_constant(b->x->g, &t, v), d);
}

/* x [.., length, 1 or 2] times a matrix [length, width] for its real numbers, plus one for its imaginary ones, for which how[0] is 1. */
static nnc_ref products(ox_build *b, nnc_ref x, int64_t width, number_of *value, int64_t *how)
{
    const nnc_type t = *ox_type(b, x);
    const int last = t.rank - 1;
    const int64_t dim[2] = {t.dim[last - 1], width};
    nnc_ref sum = NNC_NONE;
    for (int i = 0; i < t.dim[last]; i++) {
        how[0] = i;
        nnc_ref part = ox_reshape(b, ox_slice(b, x, last, i, i + 1), last, t.dim);
        nnc_ref r = ox_2(b, OP_matmul, part, table(b, t.dtype, 2, dim, value, how));
        sum = i ? ox_2(b, OP_add, sum, r) : r;
    }
    return sum;
}

/* how = {imaginary, length, m, turn}. Row n has m real numbers, then m imaginary ones. Number k is e^(i a) with a = turn 2 pi n k / length
 * and turn 1 or -1; for imaginary operands i e^(i a). */
static double wave(const int64_t *how, int64_t i)
{
    const int64_t length = how[1], m = how[2], n = i / (2 * m), j = i % (2 * m), k = j % m;
    const double a = 2 * M_PI * (double)(how[3] * (n * k % length)) / (double)length;
    const bool sine = (j >= m) != (how[0] != 0);
    const double v = sine ? sin(a) : cos(a);
    return sine && how[0] ? -v : v;
}

/* x [.., length, 1 or 2] transformed along its last dimension but one: [.., m, 2]. */
static nnc_ref transformed(ox_build *b, nnc_ref x, int64_t m, bool inverse)
{
    if (x == NNC_NONE)
        return x;
    nnc_type t = *ox_type(b, x);
    const int last = t.rank - 1;
    const int64_t length = t.dim[last - 1];
    nnc_ref sum = products(b, x, 2 * m, wave, (int64_t[]){0, length, m, inverse ? 1 : -1});
    if (inverse)
        sum = ox_2n(b, OP_div, sum, (double)length);
    t.dim[last - 1] = 2;
    t.dim[last] = m;
    int64_t perm[NNC_MAX_RANK];
    for (int i = 0; i <= last; i++)
        perm[i] = i < last - 1 ? i : i == last ? last - 1 : last;
    return ox_transposed(b, ox_reshape(b, sum, t.rank, t.dim), perm);
}

/* how = {imaginary, length}. Contribution of number k of a spectrum's first half to number n of the real signal. It includes that of the
 * conjugate number in the other half. */
static double real_wave(const int64_t *how, int64_t i)
{
    const int64_t length = how[1], k = i / length, n = i % length;
    const double a = 2 * M_PI * (double)(n * k % length) / (double)length;
    const double both = k == 0 || 2 * k == length ? 1 : 2;
    return both * (how[0] ? -sin(a) : cos(a)) / (double)length;
}

/* The real signal of `length` numbers whose first half spectrum x [.., length / 2 + 1, 2] is: [.., length, 1]. */
static nnc_ref real_signal(ox_build *b, nnc_ref x, int64_t length)
{
    if (x == NNC_NONE)
        return x;
    nnc_type t = *ox_type(b, x);
    nnc_ref sum = products(b, x, length, real_wave, (int64_t[]){0, length});
    t.dim[t.rank - 2] = length;
    t.dim[t.rank - 1] = 1;
    return ox_reshape(b, sum, t.rank, t.dim);
}

/* x with `axis` and the last dimension but one changed for each other. */
static nnc_ref exchanged(ox_build *b, nnc_ref x, int axis)
{
    int64_t perm[NNC_MAX_RANK];
    const int rank = ox_type(b, x)->rank;
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[axis] = rank - 2;
    perm[rank - 2] = axis;
    return axis == rank - 2 ? x : ox_transposed(b, x, perm);
}

bool ox_dft(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    const bool inverse = ox_int(b, "inverse", 0) != 0, one = ox_int(b, "onesided", 0) != 0;
    int64_t at = ox_int(b, "axis", b->opset < 20 ? 1 : -2), length;
    int axis;
    if (ox_has(b, 2) && !ox_const_int(b, 2, &at))
        return false;
    if (!ox_axis(b, at, t.rank, &axis))
        return false;
    if (axis == t.rank - 1 || t.dim[t.rank - 1] > 2)
        return ox_wrong(b, "its last dimension is of numbers, 1 or 2");
    if (inverse && one && t.dim[t.rank - 1] != 2)
        return ox_wrong(b, "a spectrum has real and imaginary numbers");
    length = inverse && one ? 2 * t.dim[axis] - 2 : t.dim[axis];
    if (ox_has(b, 1) && !ox_const_int(b, 1, &length))
        return false;
    if (length < 1 || length > MOST)
        return ox_wrong(b, "dft_length is %lld", (long long)length);
    const int64_t read = inverse && one ? length / 2 + 1 : length;
    int64_t pads[2 * NNC_MAX_RANK] = {0};
    pads[t.rank + axis] = nnc_max64(read - t.dim[axis], 0);
    const nnc_attr a = nnc_av(AT_pads, 2 * t.rank, pads);
    x = pads[t.rank + axis] ? ox_op(b, OP_pad, 1, &x, 1, &a) : ox_slice(b, x, axis, 0, read);
    if (x == NNC_NONE)
        return false;
    x = exchanged(b, x, axis);
    x = inverse && one ? real_signal(b, x, length)
                       : transformed(b, x, one ? length / 2 + 1 : length, inverse);
    return x != NNC_NONE && ox_give(b, exchanged(b, x, axis));
}

/* Frames of the signal [batch, length, 1 or 2], times a window, transformed: [batch, frames, m, 2]. */
bool ox_stft(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    nnc_type t = *ox_type(b, x);
    const bool one = ox_int(b, "onesided", 1) != 0;
    int64_t step, length = ox_has(b, 2) ? nnc_type_numel(ox_type(b, ox_in(b, 2))) : 0;
    if (!ox_const_int(b, 1, &step) || (ox_has(b, 3) && !ox_const_int(b, 3, &length)))
        return false;
    if (t.rank == 2) {
        x = ox_add_dim(b, x, 2);
        t = *ox_type(b, x);
    }
    if (t.rank != 3 || step < 1 || length < 1 || length > t.dim[1])
        return ox_wrong(b, "frames of %lld do not fit its signal", (long long)length);
    const int64_t frames = (t.dim[1] - length) / step + 1;
    nnc_ref at = ox_2(b, OP_add,
        ox_along(b, ox_2n(b, OP_mul, ox_iota(b, DT_i64, frames), (double)step), 2, 0),
        ox_along(b, ox_iota(b, DT_i64, length), 2, 1));
    nnc_ref v[2] = {x, at};
    x = ox_on_axis(b, OP_gather, 2, v, 1); /* [batch, frames, length, 1 or 2] */
    if (ox_has(b, 2))
        x = ox_2(b, OP_mul, x, ox_along(b, ox_in(b, 2), 4, 2));
    return ox_give(b, transformed(b, x, one ? length / 2 + 1 : length, false));
}

/* Channel, and place in the block, of a column go to that place of the channel. */
static double same_place(const int64_t *how, int64_t i)
{
    return i / how[0] % how[0] == i % how[0];
}

bool ox_col2im(ox_build *b)
{
    const nnc_type t = *ox_type(b, ox_in(b, 0));
    int64_t image[NNC_MAX_RANK], block[NNC_MAX_RANK],
        in[NNC_MAX_RANK] = {t.dim[0], t.dim[1]}, k[NNC_MAX_RANK] = {t.dim[1], 1}, taps = 1, all = 1;
    int n, n_block;
    nnc_attr a[5];
    if (!ox_const_ints(b, 1, 3, &n, image) || !ox_const_ints(b, 2, 3, &n_block, block))
        return false;
    if (n < 1 || n != n_block || t.rank != 3)
        return ox_wrong(b, "its image, block and columns do not fit");
    nnc_type like = {.rank = (uint8_t)(n + 2)};
    ox_window w = {.n = n};
    if (!ox_read_window(b, &like, &w))
        return false;
    for (int i = 0; i < n; i++) {
        if (block[i] < 1 || block[i] > NNC_MAX_STEP || image[i] < 1 || image[i] > NNC_MAX_STEP)
            return ox_wrong(b, "its image or block is out of range");
        const int64_t reach = (block[i] - 1) * w.dilations[i] + 1,
                      room = image[i] + w.pads[i] + w.pads[n + i] - reach;
        if (room < 0)
            return ox_wrong(b, "its block is larger than its image");
        w.extra[i] = room % w.strides[i];
        in[2 + i] = room / w.strides[i] + 1;
        k[2 + i] = block[i];
        if (!nnc_mul_ok(taps, block[i], &taps) || !nnc_mul_ok(all, in[2 + i], &all))
            return ox_wrong(b, "its image or block is out of range");
    }
    if (all != t.dim[2] || t.dim[1] % taps)
        return ox_wrong(b, "its columns do not fit its image");
    nnc_ref v[2] = {
        ox_reshape(b, ox_in(b, 0), n + 2, in), table(b, t.dtype, n + 2, k, same_place, &taps)};
    int count = ox_window_attrs(&w, a);
    a[count++] = nnc_av(AT_output_padding, n, w.extra);
    a[count++] = nnc_ai(AT_groups, t.dim[1] / taps);
    return ox_give(b, ox_op(b, OP_conv_transpose, 2, v, count, a));
}

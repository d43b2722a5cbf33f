/* onnx/build_pool.c -- pooling: by the IR's ops where they have what is asked for, else as sums and as slices. */
#include "onnx/internal.h"
#include <assert.h>
#include <math.h>

/* Results along dimension i, and the window as the IR sees it. */
static bool reach(
    ox_build *b, const nnc_type *x, const ox_window *w, int i, nnc_window *d, int64_t *out)
{
    bool ceil_mode = ox_int(b, "ceil_mode", 0) != 0;
    *d = (nnc_window){.in = x->dim[2 + i],
        .kernel = w->kernel[i],
        .stride = w->strides[i],
        .dilation = w->dilations[i],
        .lo = w->pads[i],
        .hi = w->pads[w->n + i]};
    return nnc_window_extent(d, ceil_mode ? NNC_WINDOW_ceil : NNC_WINDOW_floor, out) ||
           ox_wrong(b, "its window is larger than its input in dimension %d", 2 + i);
}

/* The sum over each window: a convolution by ones, channel by channel. */
static nnc_ref window_sum(ox_build *b, nnc_ref x, const ox_window *w)
{
    const nnc_type t = *ox_type(b, x);
    int64_t in[NNC_MAX_RANK] = {t.dim[0] * t.dim[1], 1}, k[NNC_MAX_RANK] = {1, 1},
            out[NNC_MAX_RANK] = {t.dim[0], t.dim[1]};
    ox_window all = *w;
    nnc_attr a[3];
    for (int i = 0; i < w->n; i++) {
        nnc_window d;
        if (!reach(b, &t, w, i, &d, &out[2 + i]))
            return NNC_NONE;
        int64_t end = (out[2 + i] - 1) * d.stride + (d.kernel - 1) * d.dilation + 1;
        all.pads[w->n + i] =
            nnc_max64(end - d.in - d.lo, 0); /* with ceil_mode the last may end later */
        in[2 + i] = d.in;
        k[2 + i] = d.kernel;
        if (end < d.in + d.lo) /* rows that no window reaches */
            all.pads[w->n + i] = 0;
    }
    nnc_ref ones = ox_broadcast(b, ox_num(b, t.dtype, 1), t.rank, k);
    nnc_ref v[2] = {ox_reshape(b, x, t.rank, in), ones};
    nnc_ref r = ox_op(b, OP_conv, 2, v, ox_window_attrs(&all, a), a);
    return ox_reshape(b, r, t.rank, out);
}

/* The number of elements of each window, those of the padding too if they count: a product over the dimensions. */
static nnc_ref divided_by_count(ox_build *b, nnc_ref sum, const nnc_type *x, const ox_window *w)
{
    bool padding = ox_int(b, "count_include_pad", 0) != 0;
    for (int i = 0; i < w->n; i++) {
        nnc_window d;
        int64_t n;
        if (!reach(b, x, w, i, &d, &n))
            return NNC_NONE;
        double *count = ARENA_NEW(&b->x->a, double, n);
        if (!count)
            return ox_nomem(b->x), NNC_NONE;
        int64_t lo = padding ? -d.lo : 0, hi = padding ? d.in + d.hi : d.in;
        for (int64_t k = 0; k < n; k++) {
            count[k] = 0;
            for (int64_t j = 0, at = k * d.stride - d.lo; j < d.kernel; j++, at += d.dilation)
                count[k] += at >= lo && at < hi;
        }
        nnc_type t = nnc_type_make(DT_f64, 1, &n);
        nnc_ref c = ox_to(b, nnc_constant(b->x->g, &t, count), x->dtype);
        sum = ox_2(b, OP_div, sum, ox_along(b, c, x->rank, 2 + i));
    }
    return sum;
}

/* The place of each window's maximum y in x, counted through all of x: a select for each element of the window, the first last. */
static nnc_ref places(ox_build *b, nnc_ref x, nnc_ref y, const ox_window *w)
{
    const nnc_type t = *ox_type(b, x), out = *ox_type(b, y);
    int64_t pads[2 * NNC_MAX_RANK] = {0}, taps = 1, step[NNC_MAX_RANK] = {0}, inner = 1;
    bool columns = ox_int(b, "storage_order", 0) != 0;
    assert(w->n <= 3); /* by ox_read_window */
    for (int i = 0; i < w->n; i++) { /* neighbours along dimension i are step[i] apart */
        step[i] = 1;
        for (int k = columns ? 0 : i + 1; k < (columns ? i : w->n); k++)
            step[i] *= t.dim[2 + k];
        inner *= t.dim[2 + i];
        taps *= w->kernel[i];
        int64_t end =
            (out.dim[2 + i] - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilations[i] + 1;
        pads[2 + i] = w->pads[i];
        pads[t.rank + 2 + i] = nnc_max64(end - t.dim[2 + i] - w->pads[i], 0);
    }
    if (taps > 64)
        return ox_refuse(b, "indices of windows of more than 64 elements are unsupported"),
               NNC_NONE;
    double low = nnc_is_float(t.dtype)                 ? -INFINITY
                 : nnc_dtype_kind(t.dtype) == NNC_UINT ? 0
                                                       : (double)nnc_int_end(t.dtype, false);
    nnc_attr pad[2] = {nnc_av(AT_pads, 2 * t.rank, pads), nnc_af(AT_value, low)};
    nnc_ref wide = ox_op(b, OP_pad, 1, &x, 2, pad), r = NNC_NONE;
    nnc_ref base = ox_reshape(b, ox_iota(b, DT_i64, t.dim[0] * t.dim[1]), 2, t.dim);
    int64_t head[NNC_MAX_RANK] = {t.dim[0], t.dim[1], 1, 1, 1, 1, 1, 1};
    base = ox_reshape(b, ox_2n(b, OP_mul, base, (double)inner), t.rank, head);
    for (int i = 0; i < w->n; i++) { /* of the first element of each window */
        nnc_ref at =
            ox_2n(b, OP_mul, ox_iota(b, DT_i64, out.dim[2 + i]), (double)(w->strides[i] * step[i]));
        base = ox_2(b, OP_add, base,
            ox_along(b, ox_2n(b, OP_sub, at, (double)(w->pads[i] * step[i])), t.rank, 2 + i));
    }
    for (int64_t tap = taps - 1; tap >= 0; tap--) {
        nnc_ref v = wide;
        int64_t rest = tap, ahead = 0, axes[3] = {0}, from[3] = {0}, to[3] = {0};
        for (int i = w->n - 1; i >= 0; i--, rest /= w->kernel[i + 1]) {
            axes[i] = 2 + i;
            from[i] = rest % w->kernel[i] * w->dilations[i];
            to[i] = from[i] + (out.dim[2 + i] - 1) * w->strides[i] + 1;
            ahead += from[i] * step[i];
        }
        nnc_attr a[4] = {nnc_av(AT_axes, w->n, axes), nnc_av(AT_starts, w->n, from),
            nnc_av(AT_ends, w->n, to), nnc_av(AT_steps, w->n, w->strides)};
        v = ox_op(b, OP_slice, 1, &v, 4, a);
        nnc_ref here = ox_2n(b, OP_add, base, (double)ahead);
        r = r == NNC_NONE ? here : ox_select(b, ox_2(b, OP_eq, v, y), here, r);
    }
    return r;
}

bool ox_pool(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    nnc_ref v = ox_in(b, 0), y;
    bool avg = b->row->op == OP_avgpool, dilated = false;
    nnc_attr a[6];
    ox_window w = {.kernel = {1, 1, 1}};
    if (!ox_read_window(b, &x, &w))
        return false;
    for (int i = 0; avg && i < w.n; i++)
        dilated = dilated || w.dilations[i] != 1;
    if (dilated)
        return ox_give(b, divided_by_count(b, window_sum(b, v, &w), &x, &w));
    int n = ox_window_attrs(&w, a) - avg;
    a[n++] = nnc_av(AT_kernel, w.n, w.kernel);
    a[n++] = nnc_ai(AT_ceil_mode, ox_int(b, "ceil_mode", 0) != 0);
    if (avg)
        a[n++] = nnc_ai(AT_count_include_pad, ox_int(b, "count_include_pad", 0) != 0);
    y = ox_op(b, b->row->op, 1, &v, n, a);
    if (y != NNC_NONE && !avg && ox_wants(b, 1) && !ox_set(b, 1, places(b, v, y, &w)))
        return false;
    return ox_give(b, y);
}

/* |x|^p, and with 1/p its inverse. */
static nnc_ref power(ox_build *b, nnc_ref x, double p)
{
    return p == 1     ? x
           : p == 2   ? ox_1(b, OP_square, x)
           : p == 0.5 ? ox_1(b, OP_sqrt, x)
                      : ox_2n(b, OP_pow, x, p);
}

bool ox_lp_pool(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    double p = (double)ox_int(b, "p", 2);
    ox_window w = {.kernel = {1, 1, 1}};
    if (!ox_read_window(b, &x, &w))
        return false;
    nnc_ref v = window_sum(b, power(b, ox_1(b, OP_abs, ox_in(b, 0)), p), &w);
    return ox_give(b, power(b, v, 1 / p));
}

bool ox_global_lp_pool(ox_build *b)
{
    double p = (double)ox_int(b, "p", 2);
    int rank = ox_type(b, ox_in(b, 0))->rank;
    int64_t axes[NNC_MAX_RANK];
    if (rank < 3)
        return ox_wrong(b, "it expects spatial dimensions");
    for (int i = 2; i < rank; i++)
        axes[i - 2] = i;
    nnc_ref v = power(b, ox_1(b, OP_abs, ox_in(b, 0)), p);
    v = ox_reduced(b, OP_reduce_sum, v, rank - 2, axes, true);
    return ox_give(b, power(b, v, 1 / p));
}

bool ox_nhwc_max_pool(ox_build *b)
{
    nnc_ref x = ox_channels_first(b, ox_in(b, 0));
    return ox_give(b, ox_channels_last(b, ox_inner(b, "MaxPool", 12, 1, &x, 0, NULL)));
}

/* engines/loops_window.c -- pooling and depthwise convolution: nothing is shared between
 * channels, so a row of accumulators takes one tap after the other. Rows run along channels
 * where channels are nearest in memory (NHWC), else along the last spatial dimension (NCHW). */
#include "engines/loops.h"
#include <math.h>
#include <string.h>

typedef struct window {
    const lp_handle *h;
    const lp_args *a;
    const char *weights; /* depthwise: [tap][channel] accumulators */
    char *work; /* rows of the threads */
    bool along_c;
    int64_t taps, rows; /* rows: units of work */
} window;

static void split(const int64_t *dim, int n, int64_t i, int64_t *at)
{
    for (int d = n - 1; d >= 0; d--) {
        at[d] = i % dim[d];
        i /= dim[d];
    }
}

/* Taps of one dimension that count for average pooling at output o. */
static int64_t counted(const nnc_call *c, int d, int64_t o)
{
    int64_t n = 0, lo = c->count_pad ? -c->pad_lo[d] : 0;
    int64_t hi = c->src.dim[2 + d] + (c->count_pad ? c->pad_hi[d] : 0);
    for (int64_t t = 0; t < c->kernel[d]; t++) {
        int64_t p = o * c->stride[d] + t * c->dilation[d] - c->pad_lo[d];
        n += p >= lo && p < hi;
    }
    return n;
}

/* What no element changes: 0 for sums, the smallest value for max. */
static void start(const lp_handle *h, int64_t n, void *row)
{
    nnc_dkind kind = nnc_dtype_kind(h->c.src.dtype);
    for (int64_t i = 0; i < n; i++)
        if (h->c.kind != CALL_maxpool)
            memset((char *)row + i * h->esize, 0, (size_t)h->esize);
        else if (h->acc == LP_F32)
            ((float *)row)[i] = -INFINITY;
        else if (h->acc == LP_F64)
            ((double *)row)[i] = -INFINITY;
        else
            ((int64_t *)row)[i] = kind == NNC_INT ? INT64_MIN : 0;
}

static void max_int(bool is_signed, int64_t n, const int64_t *x, int64_t *acc)
{
    for (int64_t i = 0; i < n; i++)
        if (is_signed ? x[i] > acc[i] : (uint64_t)x[i] > (uint64_t)acc[i])
            acc[i] = x[i];
}

/* row[0..n) takes the elements at off, off + stride, ... under the tap whose weights are w. */
static void take(const window *w, int64_t off, int64_t stride, int64_t n, const char *weight,
    char *row, char *tmp)
{
    const lp_handle *h = w->h;
    nnc_dtype d = h->c.src.dtype;
    const char *x = tmp;
    if (stride == 1 && ((h->acc == LP_F32 && d == DT_f32) || (h->acc == LP_F64 && d == DT_f64)))
        x = w->a->src + off * h->esize;
    else
        lp_load(h->acc, d, w->a->src, off, stride, n, tmp);
    if (h->c.kind == CALL_conv && w->along_c)
        h->k->fma(n, x, weight, row);
    else if (h->c.kind == CALL_conv)
        h->k->fma1(n, x, weight, row);
    else if (h->c.kind == CALL_avgpool)
        h->k->add(n, x, row);
    else if (h->acc == LP_I64)
        max_int(nnc_dtype_kind(d) == NNC_INT, n, (const int64_t *)x, (int64_t *)row);
    else
        h->k->max(n, x, row);
}

static void scale(const lp_handle *h, int64_t i, int64_t count, char *row)
{
    if (h->acc == LP_F32)
        ((float *)row)[i] /= (float)count;
    else if (h->acc == LP_F64)
        ((double *)row)[i] /= (double)count;
}

/* One output position, all channels, LP_ROW at a time. */
static void channels_row(const window *w, int64_t unit, char *row, char *tmp)
{
    const lp_handle *h = w->h;
    const nnc_call *c = &h->c;
    const int64_t C = c->dst.dim[1];
    int64_t at[4], dims[4] = {c->dst.dim[0]}, dst = 0, count = 1;
    memcpy(dims + 1, c->dst.dim + 2, sizeof(int64_t) * (size_t)c->spatial);
    split(dims, c->spatial + 1, unit, at);
    for (int d = 0; d < c->spatial; d++) {
        dst += at[1 + d] * h->ys[2 + d];
        count *= c->kind == CALL_avgpool ? counted(c, d, at[1 + d]) : 1;
    }
    for (int64_t c0 = 0; c0 < C; c0 += LP_ROW) {
        int64_t n = C - c0 < LP_ROW ? C - c0 : LP_ROW;
        start(h, n, row);
        for (int64_t t = 0; t < w->taps; t++) {
            int64_t tap[3], off = at[0] * h->xs[0] + c0 * h->xs[1], p;
            bool inside = true;
            split(c->kernel, c->spatial, t, tap);
            for (int d = 0; d < c->spatial && inside; d++) {
                inside = lp_position(c, d, at[1 + d], tap[d], &p);
                off += inside ? p * h->xs[2 + d] : 0;
            }
            if (inside)
                take(w, off, h->xs[1], n, w->weights + (t * C + c0) * h->esize, row, tmp);
        }
        if (c->kind == CALL_avgpool)
            for (int64_t i = 0; i < n; i++)
                scale(h, i, count, row);
        lp_finish(h, w->a, row, n, c0, 1, at[0] * h->ys[0] + c0 * h->ys[1] + dst, h->ys[1]);
    }
}

/* One channel and all but the last spatial position; the row runs along the last dimension. */
static void spatial_row(const window *w, int64_t unit, char *row, char *tmp)
{
    const lp_handle *h = w->h;
    const nnc_call *c = &h->c;
    const int last = c->spatial - 1, e = h->esize;
    const int64_t C = c->dst.dim[1], W = c->dst.dim[2 + last];
    int64_t at[4], src, dst, outer = 1;
    split(c->dst.dim, c->spatial + 1, unit, at);
    dst = at[0] * h->ys[0] + at[1] * h->ys[1];
    for (int d = 0; d < last; d++) {
        dst += at[2 + d] * h->ys[2 + d];
        outer *= c->kind == CALL_avgpool ? counted(c, d, at[2 + d]) : 1;
    }
    for (int64_t o0 = 0; o0 < W; o0 += LP_ROW) {
        int64_t n = W - o0 < LP_ROW ? W - o0 : LP_ROW;
        start(h, n, row);
        for (int64_t t = 0; t < w->taps; t++) {
            int64_t tap[3], p, lo, hi;
            bool inside = true;
            split(c->kernel, c->spatial, t, tap);
            src = at[0] * h->xs[0] + at[1] * h->xs[1];
            for (int d = 0; d < last && inside; d++) {
                inside = lp_position(c, d, at[2 + d], tap[d], &p);
                src += inside ? p * h->xs[2 + d] : 0;
            }
            lp_inside(c, last, tap[last], &lo, &hi);
            lo = lo < o0 ? o0 : lo;
            hi = hi > o0 + n ? o0 + n : hi;
            if (!inside || lo >= hi)
                continue;
            p = lo * c->stride[last] + tap[last] * c->dilation[last] - c->pad_lo[last];
            take(w, src + p * h->xs[2 + last], c->stride[last] * h->xs[2 + last], hi - lo,
                w->weights + (t * C + at[1]) * e, row + (lo - o0) * e, tmp);
        }
        if (c->kind == CALL_avgpool)
            for (int64_t i = 0; i < n; i++)
                scale(h, i, outer * counted(c, last, o0 + i), row);
        lp_finish(h, w->a, row, n, at[1], 0, dst + o0 * h->ys[2 + last], h->ys[2 + last]);
    }
}

static void run_part(void *ctx, int part, int parts)
{
    const window *w = ctx;
    char *row = w->work + (int64_t)part * 2 * LP_ROW * w->h->esize,
         *tmp = row + LP_ROW * w->h->esize;
    int64_t i, end;
    nnc_par_range(w->rows, 1, part, parts, &i, &end);
    for (; i < end; i++)
        if (w->along_c)
            channels_row(w, i, row, tmp);
        else
            spatial_row(w, i, row, tmp);
}

/* [tap][channel] of a depthwise convolution's weights. */
static void load_weights(const window *w, char *out)
{
    const lp_handle *h = w->h;
    const int64_t C = h->c.dst.dim[1];
    for (int64_t t = 0; t < w->taps; t++) {
        int64_t tap[3], off = 0;
        split(h->c.kernel, h->c.spatial, t, tap);
        for (int d = 0; d < h->c.spatial; d++)
            off += tap[d] * h->ws[2 + d];
        lp_load(h->acc, h->c.wei.dtype, w->a->wei, off, h->ws[0], C, out + t * C * h->esize);
    }
}

static int64_t weight_bytes(const lp_handle *h)
{
    int64_t n = h->c.kind == CALL_conv ? h->c.dst.dim[1] : 0;
    for (int d = 0; d < h->c.spatial; d++)
        n *= h->c.kernel[d];
    return nnc_align_up(n * h->esize, 64);
}

static nnc_status run_window(const lp_handle *h, const lp_args *a, char *work)
{
    const nnc_call *c = &h->c;
    window w = {.h = h, .a = a, .weights = work, .work = work + weight_bytes(h), .taps = 1};
    w.along_c = h->xs[1] <= h->xs[1 + c->spatial];
    w.rows = c->dst.dim[0];
    if (!w.along_c)
        w.rows *= c->dst.dim[1];
    for (int d = 0; d < c->spatial; d++) {
        w.taps *= c->kernel[d];
        if (w.along_c || d < c->spatial - 1)
            w.rows *= c->dst.dim[2 + d];
    }
    if (c->kind == CALL_conv)
        load_weights(&w, work);
    nnc_par_run(c->threads, run_part, &w);
    return NNC_OK;
}

void lp_prepare_window(lp_handle *h)
{
    h->work =
        weight_bytes(h) + (int64_t)(h->c.threads > 1 ? h->c.threads : 1) * 2 * LP_ROW * h->esize;
    h->run = run_window;
}

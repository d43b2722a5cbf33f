/* data/resize.c -- bilinear resizing with antialiasing, as PyTorch's interpolate(mode="bilinear", antialias=True) and Pillow's
 * BILINEAR of numbers (mode F) define it. Pillow's 8-bit modes round to 8 bits after each of the two passes, this does not.
 *
 * Along each axis output i is a weighted mean of the inputs around c = (i + 1/2) s, s = in / out: input j has the weight
 * max(0, 1 - |j + 1/2 - c| / max(s, 1)). Rows first, then columns. */
#include "data/internal.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4 }; /* that are resized together: as many sums do not wait for each other */

/* Weights along one axis: output i is the sum of n[i] inputs from first[i] on, times weights of row i. */
typedef struct axis {
    int32_t *first, *n;
    float *weight;
    int most; /* weights of a row */
} axis;

static void fill_axis(const axis *a, int in, int out)
{
    const double scale = (double)in / out, width = fmax(scale, 1);
    for (int i = 0; i < out; i++) {
        const double at = (i + 0.5) * scale;
        const int from = (int)fmax(at - width + 0.5, 0), to = (int)fmin(at + width + 0.5, in);
        float *w = a->weight + (size_t)i * (size_t)a->most;
        double sum = 0;
        for (int j = from; j < to; j++)
            sum += fmax(0, 1 - fabs((j - at + 0.5) / width));
        for (int j = from; j < to; j++)
            w[j - from] = (float)(fmax(0, 1 - fabs((j - at + 0.5) / width)) / sum);
        a->first[i] = from;
        a->n[i] = to - from;
    }
}

/* Memory for both axes in s->weights: integers are stored as floats' 4 bytes. */
static nnc_status make_axes(
    axis a[2], const int in[2], const int out[2], nnc_scratch *s, nnc_sink *sink)
{
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        a[i].most = 2 * (int)ceil(fmax((double)in[i] / out[i], 1)) + 1;
        n += (int64_t)out[i] * (a[i].most + 2);
    }
    if (n > INT32_MAX)
        return nnc_nomem(sink);
    NNC_TRY(nnc_picture_size(&s->weights, 1, 1, (int)n, sink));
    float *at = s->weights.at;
    for (int i = 0; i < 2; i++) {
        a[i].first = (int32_t *)(void *)at;
        a[i].n = a[i].first + out[i];
        a[i].weight = at + 2 * (size_t)out[i];
        at = a[i].weight + (size_t)out[i] * (size_t)a[i].most;
        fill_axis(&a[i], in[i], out[i]);
    }
    return NNC_OK;
}

/* `rows` rows of `in` numbers become rows of w. */
static inline __attribute__((always_inline)) void along_some(
    const axis *a, const float *from, int rows, int in, int w, float *to)
{
    for (int x = 0; x < w; x++) {
        const float *f = from + a->first[x], *k = a->weight + (size_t)x * (size_t)a->most;
        float sum[ROWS] = {0};
        for (int j = 0; j < a->n[x]; j++)
            for (int r = 0; r < rows; r++)
                sum[r] += f[(size_t)r * (size_t)in + (size_t)j] * k[j];
        for (int r = 0; r < rows; r++)
            to[(size_t)r * (size_t)w + (size_t)x] = sum[r];
    }
}

NNC_BODY along_rows_body(const axis *a, const float *from, int64_t rows, int in, int w, float *to)
{
    int64_t y = 0;
    for (; y + ROWS <= rows; y += ROWS)
        along_some(a, from + y * in, ROWS, in, w, to + y * w);
    for (; y < rows; y++)
        along_some(a, from + y * in, 1, in, w, to + y * w);
}
NNC_DISPATCH(along_rows, (const axis *a, const float *from, int64_t rows, int in, int w, float *to),
    (a, from, rows, in, w, to))

/* Columns of a channel. */
NNC_BODY along_columns_body(const axis *a, const float *from, int h, int w, float *restrict to)
{
    for (int y = 0; y < h; y++, to += w) {
        const float *k = a->weight + (size_t)y * (size_t)a->most;
        memset(to, 0, (size_t)w * sizeof *to);
        for (int j = 0; j < a->n[y]; j++) {
            const float *row = from + (size_t)(a->first[y] + j) * (size_t)w;
            for (int x = 0; x < w; x++)
                to[x] += row[x] * k[j];
        }
    }
}
NNC_DISPATCH(along_columns, (const axis *a, const float *from, int h, int w, float *restrict to),
    (a, from, h, w, to))

nnc_status nnc_resize(int h, int w, nnc_scratch *s, nnc_sink *sink)
{
    axis a[2];
    const nnc_picture *p = &s->now;
    const int c = p->c, old = p->h;
    if (p->h == h && p->w == w)
        return NNC_OK;
    NNC_TRY(make_axes(a, (int[]){p->h, p->w}, (int[]){h, w}, s, sink));
    NNC_TRY(nnc_picture_size(&s->rows, c, old, w, sink));
    NNC_TRY(nnc_picture_size(&s->next, c, h, w, sink));
    along_rows(&a[1], p->at, (int64_t)c * old, p->w, w, s->rows.at);
    for (int i = 0; i < c; i++)
        along_columns(&a[0], s->rows.at + (size_t)i * (size_t)old * (size_t)w, h, w,
            s->next.at + (size_t)i * (size_t)h * (size_t)w);
    nnc_scratch_swap(s);
    return NNC_OK;
}

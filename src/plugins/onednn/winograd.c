/* plugins/onednn/winograd.c -- Winograd's F(4x4, 3x3), channels last: tiles of 4x4 results from 6x6 elements of the source. Each is
 * transformed to 36 points, where a convolution is a product of matrices, with a quarter of the multiplications.
 *
 * The points are 0, +-3/4, +-3/2 and infinity instead of the usual 0, +-1, +-2: the transforms are as exact, and the error's square
 * is a quarter (128 channels, uniform numbers: nmse 1.3e-12, 5.4e-12).
 *
 * Two orders of work. With few channels, whose transformed weights stay in the caches, they are transformed first; threads then take
 * chunks of tiles, whose points stay in a core's cache. Otherwise all tiles of a large chunk are transformed first, and threads take
 * panels of outputs, for which they transform the weights themselves: these would be several times the cache. */
#include "plugins/onednn/winograd.h"
#include "base/par.h"
#include "plugins/onednn/product.h"
#include "plugins/onednn/tail.h"

enum {
    TILE = 4,
    SIDE = 6,
    POINTS = SIDE * SIDE,
    WINDOW = 3,
    PAD = DN_LANES, /* rows of points are apart by no multiple of a page */
    CHUNK =
        56, /* tiles whose points fit a core's cache with 64 channels: four full register blocks */
    FEW_WEIGHTS = 128 * 128, /* channels times outputs */
    SHARED_FLOATS = 3 << 20, /* points of a large chunk */
    MOST_CHANNELS = SHARED_FLOATS / (POINTS * DN_ROWS) - PAD /* a chunk fills a register block */
};

typedef struct image {
    int64_t channels, height, width; /* in memory order: height, width, channels */
} image;

typedef struct winograd {
    const nnc_call *c;
    image x, y;
    int64_t pad[2], rows, columns, tiles; /* rows and columns of tiles in an image */
    int64_t stride_out, stride_in, stride_window[2]; /* of the weights, by output and input */
    bool flip; /* the weights' window runs backwards: the gradient of a source */
    bool few; /* few weights: the first order of work */
    int64_t chunk, sub, row; /* tiles of a chunk, and of a product; floats of a tile's point */
    int64_t shared, own; /* floats in the workspace, and of each thread in it */
    const float *src, *wei, *bias;
    float *dst, *work;
    int64_t first, n; /* tiles of the large chunk at work */
} winograd;

/* ---- transforms ------------------------------------------------------------------------------------------------------
 * Of six values at stride s to the points a = 3/4, b = 3/2: products of polynomials with a root at each other point. */

#define A 0.75f
#define B 1.5f
#define INLINE static inline __attribute__((always_inline)) DN_AVX512

INLINE void source_line(const dn_vec *d, int s, dn_vec *o)
{
    const dn_vec ea = d[4 * s] - B * B * d[2 * s], oa = A * (d[3 * s] - B * B * d[s]);
    const dn_vec eb = d[4 * s] - A * A * d[2 * s], ob = B * (d[3 * s] - A * A * d[s]);
    o[0] = A * A * B * B * d[0] - (A * A + B * B) * d[2 * s] + d[4 * s];
    o[s] = ea + oa;
    o[2 * s] = ea - oa;
    o[3 * s] = eb + ob;
    o[4 * s] = eb - ob;
    o[5 * s] = A * A * B * B * d[s] - (A * A + B * B) * d[3 * s] + d[5 * s];
}

INLINE void weight_line(const dn_vec *g, int s, dn_vec *o)
{
    const float at0 = 1 / (A * A * B * B), at_a = 1 / (2 * A * A * (A * A - B * B)),
                at_b = 1 / (2 * B * B * (B * B - A * A));
    const dn_vec ea = at_a * (g[0] + A * A * g[2 * s]), oa = at_a * A * g[s];
    const dn_vec eb = at_b * (g[0] + B * B * g[2 * s]), ob = at_b * B * g[s];
    o[0] = at0 * g[0];
    o[s] = ea + oa;
    o[2 * s] = ea - oa;
    o[3 * s] = eb + ob;
    o[4 * s] = eb - ob;
    o[5 * s] = g[2 * s];
}

INLINE void result_line(const dn_vec *m, int s, dn_vec *o)
{
    const dn_vec ea = m[s] + m[2 * s], oa = m[s] - m[2 * s];
    const dn_vec eb = m[3 * s] + m[4 * s], ob = m[3 * s] - m[4 * s];
    o[0] = m[0] + ea + eb;
    o[s] = A * oa + B * ob;
    o[2 * s] = A * A * ea + B * B * eb;
    o[3 * s] = A * A * A * oa + B * B * B * ob + m[5 * s];
}

/* Tiles from..to to v[point][tile - from][row], points `plane` floats apart. */
static DN_AVX512 void transform_source(
    const winograd *w, int64_t from, int64_t to, float *v, int64_t plane)
{
    const image *x = &w->x;
    for (int64_t t = from; t < to; t++, v += w->row) {
        const int64_t y0 = t / w->columns % w->rows * TILE - w->pad[0];
        const int64_t x0 = t % w->columns * TILE - w->pad[1];
        const float *src = w->src + t / (w->rows * w->columns) * x->height * x->width * x->channels;
        for (int64_t c = 0; c < x->channels; c += DN_LANES) {
            dn_vec d[POINTS], e[POINTS];
            for (int i = 0; i < POINTS; i++) {
                const int64_t py = y0 + i / SIDE, px = x0 + i % SIDE;
                const bool in = py >= 0 && py < x->height && px >= 0 && px < x->width;
                d[i] = in ? *(const dn_vec *)(src + (py * x->width + px) * x->channels + c)
                          : (dn_vec){0};
            }
            for (int j = 0; j < SIDE; j++)
                source_line(d + j, SIDE, e + j);
            for (int i = 0; i < POINTS; i += SIDE)
                source_line(e + i, 1, d + i);
            for (int p = 0; p < POINTS; p++)
                *(dn_vec *)(v + p * plane + c) = d[p];
        }
    }
}

/* The panel of outputs from k0 to u[point][channel][DN_PANEL]. */
static DN_AVX512 void transform_weights(const winograd *w, int64_t k0, float *u)
{
    const int64_t plane = w->x.channels * DN_PANEL;
    for (int64_t c = 0; c < w->x.channels; c++)
        for (int l = 0; l < DN_PANEL; l += DN_LANES, u += DN_LANES) {
            dn_vec g[WINDOW * WINDOW], e[SIDE * WINDOW], d[POINTS];
            const float *wei = w->wei + (k0 + l) * w->stride_out + c * w->stride_in;
            for (int i = 0; i < WINDOW * WINDOW; i++) {
                const int at = w->flip ? WINDOW * WINDOW - 1 - i : i;
                const float *from =
                    wei + at / WINDOW * w->stride_window[0] + at % WINDOW * w->stride_window[1];
                for (int k = 0; k < DN_LANES; k++)
                    ((float *)&g[i])[k] = from[k * w->stride_out];
            }
            for (int j = 0; j < WINDOW; j++)
                weight_line(g + j, WINDOW, e + j);
            for (int i = 0; i < SIDE; i++)
                weight_line(e + i * WINDOW, 1, d + i * SIDE);
            for (int p = 0; p < POINTS; p++)
                *(dn_vec *)(u + p * plane) = d[p];
        }
}

/* m[point][tile - from][DN_PANEL] to the results of outputs k0.., with bias and post-operations. */
static DN_AVX512 void transform_result(
    const winograd *w, int64_t from, int64_t to, const float *m, int64_t plane, int64_t k0)
{
    const image *y = &w->y;
    dn_vec bias[2] = {{0}};
    for (int l = 0; l < 2 && w->bias; l++)
        bias[l] = *(const dn_vec *)(w->bias + k0 + l * DN_LANES);
    for (int64_t t = from; t < to; t++, m += DN_PANEL) {
        const int64_t y0 = t / w->columns % w->rows * TILE, x0 = t % w->columns * TILE;
        const int64_t base = t / (w->rows * w->columns) * y->height * y->width;
        dn_vec r[2][TILE * SIDE];
        for (int l = 0; l < 2; l++) {
            dn_vec d[POINTS], e[TILE * SIDE];
            for (int p = 0; p < POINTS; p++)
                d[p] = *(const dn_vec *)(m + p * plane + l * DN_LANES);
            for (int j = 0; j < SIDE; j++)
                result_line(d + j, SIDE, e + j);
            for (int i = 0; i < TILE; i++)
                result_line(e + i * SIDE, 1, r[l] + i * SIDE);
        }
        for (int64_t i = 0; i < TILE && y0 + i < y->height; i++)
            for (int64_t j = 0; j < TILE && x0 + j < y->width; j++) {
                float *to_y = w->dst + (base + (y0 + i) * y->width + x0 + j) * y->channels + k0;
                for (int l = 0; l < 2; l++)
                    ((dn_vec *)to_y)[l] = r[l][i * SIDE + j] + bias[l];
                if (w->c->n_post)
                    dn_tail_values(w->c, to_y, DN_PANEL);
            }
    }
}

/* ---- orders of work -------------------------------------------------------------------------------------------------- */

/* Products of tiles from..to, `sub` at a time, for the panel of outputs k0, whose transformed weights are u; v: the points of tiles from
 * `from`. */
static void multiply(const winograd *w, int64_t from, int64_t to, const float *v, int64_t plane,
    const float *u, int64_t k0, float *m)
{
    for (int64_t t = from; t < to; t += w->sub) {
        const int64_t n = nnc_min64(w->sub, to - t);
        for (int p = 0; p < POINTS; p++)
            dn_multiply(&(dn_product){.a = v + p * plane + (t - from) * w->row,
                .b = u + p * w->x.channels * DN_PANEL,
                .c = m + p * n * DN_PANEL,
                .a_row = w->row,
                .c_row = DN_PANEL,
                .rows = n,
                .terms = w->x.channels});
        transform_result(w, t, t + n, m, n * DN_PANEL, k0);
    }
}

static float *own_of(const winograd *w, int part)
{
    return w->work + w->shared + part * w->own;
}

static void weights_part(void *ctx, int part, int parts)
{
    const winograd *w = ctx;
    int64_t k0, end;
    nnc_par_range(w->y.channels, DN_PANEL, part, parts, &k0, &end);
    for (; k0 < end; k0 += DN_PANEL)
        transform_weights(w, k0, w->work + k0 * POINTS * w->x.channels);
}

static void chunks_part(void *ctx, int part, int parts)
{
    const winograd *w = ctx;
    float *v = own_of(w, part), *m = v + POINTS * w->chunk * w->row;
    int64_t t, end;
    nnc_par_range(w->tiles, w->chunk, part, parts, &t, &end);
    for (; t < end; t += w->chunk) {
        const int64_t to = nnc_min64(t + w->chunk, end), plane = (to - t) * w->row;
        transform_source(w, t, to, v, plane);
        for (int64_t k0 = 0; k0 < w->y.channels; k0 += DN_PANEL)
            multiply(w, t, to, v, plane, w->work + k0 * POINTS * w->x.channels, k0, m);
    }
}

static void source_part(void *ctx, int part, int parts)
{
    const winograd *w = ctx;
    int64_t t, end;
    nnc_par_range(w->n, 1, part, parts, &t, &end);
    transform_source(w, w->first + t, w->first + end, w->work + t * w->row, w->n * w->row);
}

static void panels_part(void *ctx, int part, int parts)
{
    const winograd *w = ctx;
    float *u = own_of(w, part), *m = u + POINTS * w->x.channels * DN_PANEL;
    int64_t k0, end;
    nnc_par_range(w->y.channels, DN_PANEL, part, parts, &k0, &end);
    for (; k0 < end; k0 += DN_PANEL) {
        transform_weights(w, k0, u);
        multiply(w, w->first, w->first + w->n, w->work, w->n * w->row, u, k0, m);
    }
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

/* Channels last without gaps? Fills the extents. */
static bool channels_last(const nnc_type *t, image *out)
{
    int64_t s[NNC_MAX_RANK];
    nnc_type_strides(t, s);
    *out = (image){t->dim[1], t->dim[2], t->dim[3]};
    return s[1] == 1 && s[3] == t->dim[1] && s[2] == t->dim[3] * s[3] && s[0] == t->dim[2] * s[2];
}

/* n items in parts of at most `most`, equal but for one, as many as fill the threads. */
static int64_t even(int64_t n, int64_t most, int64_t threads)
{
    const int64_t parts = nnc_align_up((n + most - 1) / most, threads);
    return (n + parts - 1) / parts;
}

static void lay_out(winograd *w)
{
    const int64_t threads = nnc_max64(w->c->threads, 1), channels = w->x.channels;
    w->row = channels + PAD;
    w->few = channels * w->y.channels <= FEW_WEIGHTS;
    const int64_t of_panel = POINTS * channels * DN_PANEL;
    if (w->few) {
        w->sub = w->chunk = even(w->tiles, CHUNK, threads);
        w->shared = of_panel * (w->y.channels / DN_PANEL);
        w->own = POINTS * w->chunk * w->row;
    } else {
        w->chunk = even(w->tiles, SHARED_FLOATS / (POINTS * w->row), 1);
        w->sub = even(w->chunk, CHUNK, 1);
        w->shared = POINTS * w->chunk * w->row;
        w->own = of_panel;
    }
    w->own += POINTS * w->sub * DN_PANEL;
}

/* false: not a 3x3 convolution of whole vectors, channels last. */
static bool describe(winograd *w, const nnc_call *c)
{
    const nnc_type *wei = &c->wei;
    int64_t s[NNC_MAX_RANK];
    *w = (winograd){.c = c, .flip = c->kind == CALL_conv_transpose};
    bool ok = (c->kind == CALL_conv || w->flip) && !c->exact && nnc_call_fits_32_bits(c) &&
              c->spatial == 2 && c->groups == 1 && c->src.dtype == DT_f32 && wei->dtype == DT_f32 &&
              c->dst.dtype == DT_f32 && channels_last(&c->src, &w->x) &&
              channels_last(&c->dst, &w->y) && w->x.channels % DN_LANES == 0 &&
              w->x.channels <= MOST_CHANNELS && w->y.channels % DN_PANEL == 0;
    for (int d = 0; d < 2 && ok; d++) {
        ok = c->kernel[d] == WINDOW && c->stride[d] == 1 && c->dilation[d] == 1;
        w->pad[d] = w->flip ? WINDOW - 1 - c->pad_lo[d] : c->pad_lo[d];
    }
    for (int i = 0; i < c->n_post && ok; i++)
        ok = c->post[i].kind != PO_sum;
    if (!ok)
        return false;
    nnc_type_strides(wei, s);
    w->stride_out = s[w->flip];
    w->stride_in = s[!w->flip];
    w->stride_window[0] = s[2];
    w->stride_window[1] = s[3];
    w->rows = (w->y.height + TILE - 1) / TILE;
    w->columns = (w->y.width + TILE - 1) / TILE;
    w->tiles = c->dst.dim[0] * w->rows * w->columns;
    lay_out(w);
    return true;
}

/* Expected to take less than three quarters of a direct convolution's time? In nanoseconds of one thread with 100 GFLOP/s; a transformed
 * number takes 0.5 ns (AMD, Zen 4). */
static bool pays(const winograd *w)
{
    const double flop = 0.01, move = 0.5, in = (double)w->x.channels, out = (double)w->y.channels;
    const double places = (double)w->c->dst.dim[0] * (double)w->y.height * (double)w->y.width;
    const double tiles = (double)w->tiles;
    const double direct = 2 * WINDOW * WINDOW * in * out * places * flop;
    const double products = 2 * POINTS * in * out * tiles * flop;
    const double moved = POINTS * (in * out + tiles * (in + out)) * move;
    return products + moved < 0.75 * direct;
}

bool dn_winograd_takes(const nnc_call *c)
{
    winograd w;
    return !c->packed && dn_products() && describe(&w, c) && pays(&w);
}

int64_t dn_winograd_bytes(const nnc_call *c)
{
    winograd w;
    return describe(&w, c) ? (w.shared + w.own * nnc_max64(c->threads, 1)) * (int64_t)sizeof(float)
                           : 0;
}

void dn_winograd_run(const nnc_call *c, void *const *args, void *work)
{
    winograd w;
    if (!describe(&w, c))
        return;
    w.src = args[0];
    w.wei = args[1];
    w.bias = c->has_bias ? args[2] : NULL;
    w.dst = args[2 + c->has_bias];
    w.work = work;
    if (w.few) {
        nnc_par_run(c->threads, weights_part, &w);
        nnc_par_run(c->threads, chunks_part, &w);
        return;
    }
    for (w.first = 0; w.first < w.tiles; w.first += w.n) {
        w.n = nnc_min64(w.chunk, w.tiles - w.first);
        nnc_par_run(c->threads, source_part, &w);
        nnc_par_run(c->threads, panels_part, &w);
    }
}

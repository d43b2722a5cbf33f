/* ir/winograd.c -- Winograd's convolution F(n x n, 3 x 3), as an op: tiles of n x n results from (n + 2)^2 elements of the source. Each is
 * transformed to as many points, where a convolution is a product of matrices over the channels. That takes (n + 2)^2 / n^2 multiplications
 * for each result instead of 9 (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, 2016).
 *
 * The points of F(4 x 4) are 0, +-3/4, +-3/2 and infinity instead of the usual 0, +-1, +-2. The transforms are as exact in binary
 * arithmetic, and the error's square is a quarter. */
#include "ir/eval_internal.h"

/* Coefficients, the lowest first, of the product of (t - point[i]) over all i except `without`. */
static void roots(const double *point, int n, int without, double *c)
{
    int degree = 0;
    c[0] = 1;
    for (int i = 0; i < n; i++) {
        if (i == without)
            continue;
        c[++degree] = 0;
        for (int k = degree; k > 0; k--)
            c[k] = c[k - 1] - point[i] * c[k];
        c[0] *= -point[i];
    }
}

static double power(double x, int n)
{
    double p = 1;
    while (n-- > 0)
        p *= x;
    return p;
}

bool nnc_winograd_of(int64_t points, nnc_winograd *w)
{
    static const double four[] = {0, 0.75, -0.75, 1.5, -1.5}, two[] = {0, 1, -1};
    if (points != 36 && points != 16)
        return false;
    const double *a = points == 36 ? four : two;
    *w = (nnc_winograd){.tile = points == 36 ? 4 : 2, .side = points == 36 ? 6 : 4};
    const int last = w->side - 1; /* the point at infinity */
    for (int i = 0; i < last; i++) {
        double others = 1;
        for (int k = 0; k < last; k++)
            others *= k == i ? 1 : a[i] - a[k];
        roots(a, last, i, w->source[i]);
        for (int k = 0; k < NNC_WINOGRAD_TAPS; k++)
            w->weight[i][k] = power(a[i], k) / others;
        for (int k = 0; k < w->tile; k++)
            w->result[k][i] = power(a[i], k);
    }
    roots(a, last, -1, w->source[last]);
    w->weight[last][NNC_WINOGRAD_TAPS - 1] = 1;
    w->result[w->tile - 1][last] = 1;
    return true;
}

bool nnc_halves(const nnc_graph *g, const nnc_node *n)
{
    const int64_t *v;
    bool ok = nnc_typeof(g, n->in[0])->rank == 4 && !nnc_attr_int(n, AT_ceil_mode, 0) &&
              nnc_attr_ints(n, AT_kernel, &v) == 2 && v[0] == 2 && v[1] == 2 &&
              nnc_attr_ints(n, AT_strides, &v) == 2 && v[0] == 2 && v[1] == 2;
    for (int i = nnc_attr_ints(n, AT_pads, &v); i-- > 0;)
        ok = ok && v[i] == 0;
    for (int i = nnc_attr_ints(n, AT_dilations, &v); i-- > 0;)
        ok = ok && v[i] == 1;
    return ok;
}

int64_t nnc_winograd_points(const nnc_graph *g, const nnc_node *n)
{
    const int64_t side = nnc_attr_int(n, AT_tile, 0) + NNC_WINOGRAD_TAPS - 1;
    return n->op == OP_winograd ? nnc_typeof(g, n->in[1])->dim[0] : side * side;
}

void nnc_winograd_block(
    const nnc_node *n, int64_t all_images, int64_t all_rows, int64_t *images, int64_t *rows)
{
    const int64_t *block;
    *images = *rows = 1;
    if (nnc_attr_ints(n, AT_block, &block) == 2) {
        *images = all_images % nnc_max64(block[0], 1) ? 1 : nnc_max64(block[0], 1);
        *rows = nnc_min64(nnc_max64(block[1], 1), all_rows);
    }
}

/* ---- reference evaluation -------------------------------------------------------------------------------------------- */

typedef struct tiles {
    nnc_winograd w;
    const ev_arg *in;
    ev_arg *out;
    nnc_sink *sink;
    int64_t pad[2], rows, columns; /* of tiles in an image */
} tiles;

/* sum of m[k] x[k step]; terms with m[k] = 0 are omitted, even if x is infinite. */
static double combine(const double *m, const double *x, int n, int step)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += m[k] != 0 ? m[k] * x[k * step] : 0;
    return sum;
}

/* y = m x m^T for square x; m has `rows` rows of a stride of NNC_WINOGRAD_SIDE. */
static void transform(const double *m, int rows, int side, const double *x, double *y)
{
    double t[NNC_WINOGRAD_SIDE * NNC_WINOGRAD_SIDE] = {0};
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < side; j++)
            t[i * side + j] = combine(m + i * NNC_WINOGRAD_SIDE, x + j, side, side);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++)
            y[i * rows + j] = combine(m + j * NNC_WINOGRAD_SIDE, t + i * side, side, 1);
}

/* The points of channel c for the tile at row y0, column x0 of image n. */
static void source_points(
    const tiles *s, int64_t n, int64_t c, int64_t y0, int64_t x0, double *points)
{
    const nnc_type *x = s->in[0].type;
    const double *plane = s->in[0].f + (n * x->dim[1] + c) * x->dim[2] * x->dim[3];
    double d[NNC_WINOGRAD_SIDE * NNC_WINOGRAD_SIDE] = {0};
    const int side = s->w.side;
    for (int i = 0; i < side * side; i++) {
        const int64_t py = y0 - s->pad[0] + i / side, px = x0 - s->pad[1] + i % side;
        const bool inside = py >= 0 && py < x->dim[2] && px >= 0 && px < x->dim[3];
        d[i] = inside ? plane[py * x->dim[3] + px] : 0;
    }
    transform(s->w.source[0], side, side, d, points);
}

static nnc_status run_tiles(void *ctx, int64_t begin, int64_t end)
{
    const tiles *s = ctx;
    const nnc_type *u = s->in[1].type, *y = s->out->type;
    const int64_t points = u->dim[0], channels = u->dim[2], outputs = y->dim[1];
    const int tile = s->w.tile;
    double *v = nnc_calloc((size_t)(points * channels), sizeof *v);
    double m[NNC_WINOGRAD_SIDE * NNC_WINOGRAD_SIDE] = {0},
                                 r[NNC_WINOGRAD_TILE * NNC_WINOGRAD_TILE] = {0};
    NNC_NEED(v, s->sink);
    for (int64_t t = begin; t < end; t++) {
        const int64_t n = t / (s->rows * s->columns), y0 = t / s->columns % s->rows * tile,
                      x0 = t % s->columns * tile;
        for (int64_t c = 0; c < channels; c++)
            source_points(s, n, c, y0, x0, v + c * points);
        for (int64_t o = 0; o < outputs; o++) {
            for (int64_t p = 0; p < points; p++) {
                const double *g =
                    s->in[1].f + (p * u->dim[1] + o / u->dim[3]) * channels * u->dim[3];
                m[p] = 0;
                for (int64_t c = 0; c < channels; c++)
                    m[p] += v[c * points + p] * g[c * u->dim[3] + o % u->dim[3]];
            }
            transform(s->w.result[0], tile, s->w.side, m, r);
            double *plane = s->out->f + (n * outputs + o) * y->dim[2] * y->dim[3];
            for (int i = 0; i < tile * tile; i++)
                if (y0 + i / tile < y->dim[2] && x0 + i % tile < y->dim[3])
                    plane[(y0 + i / tile) * y->dim[3] + x0 + i % tile] = r[i];
        }
    }
    nnc_free(v);
    return NNC_OK;
}

nnc_status ev_winograd(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *u = in[1].type, *y = out->type;
    const int64_t *pads;
    tiles s = {.in = in, .out = out, .sink = e->sink};
    if (!nnc_winograd_of(u->dim[0], &s.w))
        return nnc_fail0(e->sink, NNC_E_BUG, "no transform has %lld points", (long long)u->dim[0]);
    if (nnc_attr_ints(n, AT_pads, &pads))
        memcpy(s.pad, pads, sizeof s.pad);
    s.rows = nnc_ceildiv(y->dim[2], s.w.tile);
    s.columns = nnc_ceildiv(y->dim[3], s.w.tile);
    return ev_for(e, y->dim[0] * s.rows * s.columns, 1, nnc_type_numel(u), run_tiles, &s);
}

/* A work item of winograd_wgrad: the direct sums of one channel in one block of dy's rows. */
typedef struct gradient {
    const ev_arg *in;
    ev_arg *out;
    int64_t pad[2], images, rows; /* of a block: images, rows of dy */
    int64_t row_blocks;
} gradient;

/* sum over the rows from `y0` of image n: x[n, c, y + i - pad, x + j - pad] dy[n, k, y, x]. */
static double tap(const gradient *s, int64_t n, int64_t y0, int64_t c, int64_t k, int i, int j)
{
    const nnc_type *x = s->in[0].type, *dy = s->in[1].type;
    const double *from = s->in[0].f + (n * x->dim[1] + c) * x->dim[2] * x->dim[3],
                 *g = s->in[1].f + (n * dy->dim[1] + k) * dy->dim[2] * dy->dim[3];
    double sum = 0;
    for (int64_t y = y0; y < y0 + s->rows && y < dy->dim[2]; y++)
        for (int64_t column = 0; column < dy->dim[3]; column++) {
            const int64_t py = y + i - s->pad[0], px = column + j - s->pad[1];
            if (py >= 0 && py < x->dim[2] && px >= 0 && px < x->dim[3])
                sum += from[py * x->dim[3] + px] * g[y * dy->dim[3] + column];
        }
    return sum;
}

static nnc_status run_gradient(void *ctx, int64_t begin, int64_t end)
{
    const gradient *s = ctx;
    const int64_t channels = s->in[0].type->dim[1], outputs = s->in[1].type->dim[1];
    for (int64_t at = begin; at < end; at++) {
        const int64_t block = at / channels, c = at % channels,
                      n0 = block / s->row_blocks * s->images, y0 = block % s->row_blocks * s->rows;
        for (int t = 0; t < NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS; t++)
            for (int64_t k = 0; k < outputs; k++) {
                double sum = 0;
                for (int64_t n = n0; n < n0 + s->images; n++)
                    sum += tap(s, n, y0, c, k, t / NNC_WINOGRAD_TAPS, t % NNC_WINOGRAD_TAPS);
                s->out->f[((block * NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS + t) * outputs + k) *
                              channels +
                          c] = sum;
            }
    }
    return NNC_OK;
}

nnc_status ev_winograd_wgrad(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *dy = in[1].type;
    const int64_t *pads, tile = nnc_attr_int(n, AT_tile, 4), rows = nnc_ceildiv(dy->dim[2], tile);
    gradient s = {.in = in, .out = out};
    if (nnc_attr_ints(n, AT_pads, &pads))
        memcpy(s.pad, pads, sizeof s.pad);
    nnc_winograd_block(n, dy->dim[0], rows, &s.images, &s.rows);
    s.row_blocks = nnc_ceildiv(rows, s.rows);
    s.rows *= tile;
    return ev_for(e, out->type->dim[0] * in[0].type->dim[1], 1,
        NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS * nnc_type_numel(dy) / out->type->dim[0],
        run_gradient, &s);
}

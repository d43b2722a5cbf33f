/* onnx/build_spatial.c -- grids of places, and tensors sampled at computed places: each corner around a place is gathered by an index, and
 * weighted. */
#include "onnx/internal.h"
#include <string.h>

/* The coordinates of n places in -1..1: those of the corners, or of the centres of n parts. */
static nnc_ref places(ox_build *b, int64_t n, bool corners)
{
    double *v = ARENA_NEW(&b->x->a, double, n);
    nnc_type t = nnc_type_make(DT_f64, 1, &n);
    if (!v)
        return ox_nomem(b->x), NNC_NONE;
    for (int64_t i = 0; i < n; i++)
        v[i] = corners ? (n > 1 ? -1 + 2.0 * (double)i / (double)(n - 1) : 0)
                       : -1 + (2.0 * (double)i + 1) / (double)n;
    return nnc_constant(b->x->g, &t, v);
}

/* Each place (x, y, 1), or (x, y, z, 1), times theta's rows. */
bool ox_affine_grid(ox_build *b)
{
    nnc_ref theta = ox_in(b, 0), v[4];
    const nnc_type t = *ox_type(b, theta);
    bool corners = ox_int(b, "align_corners", 0) != 0;
    int64_t size[NNC_MAX_RANK], d[NNC_MAX_RANK], all = 1;
    int n;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, size))
        return false;
    int dims = n - 2;
    if ((dims != 2 && dims != 3) || t.rank != 3 || t.dim[1] != dims || t.dim[2] != dims + 1)
        return ox_wrong(b, "its operands have shapes that do not fit");
    for (int i = 0; i < dims; i++) {
        d[i] = size[2 + i];
        if (d[i] < 1 || !nnc_mul_ok(all, d[i], &all))
            return ox_wrong(b, "an extent is %lld", (long long)d[i]);
    }
    d[dims] = 1;
    for (int i = 0; i <= dims; i++) { /* x first: the last dimension */
        nnc_ref c = i < dims ? places(b, d[dims - 1 - i], corners) : ox_num(b, DT_f64, 1);
        c = ox_to(b, c, t.dtype);
        v[i] = ox_broadcast(b, i < dims ? ox_along(b, c, dims + 1, dims - 1 - i) : c, dims + 1, d);
    }
    nnc_attr tb = nnc_ai(AT_transpose_b, 1);
    nnc_ref grid = ox_joined(b, dims + 1, v, dims);
    nnc_ref m[2] = {ox_reshape(b, grid, 2, (int64_t[]){all, dims + 1}), theta};
    nnc_ref r = ox_op(b, OP_matmul, 2, m, 1, &tb);
    int64_t out[5] = {t.dim[0], d[0], d[1], dims == 3 ? d[2] : dims, dims};
    return ox_give(b, ox_reshape(b, r, dims + 2, out));
}

/* ---- sampling -------------------------------------------------------------------------------- */

enum { MAX_SIDE = 4 };

/* The elements around a place along one dimension: their indices (as floats) and weights. */
typedef struct side {
    int n;
    nnc_ref at[MAX_SIDE], weight[MAX_SIDE];
} side;

static nnc_ref clamp(ox_build *b, nnc_ref x, double lo, double hi)
{
    return ox_2n(b, OP_min, ox_2n(b, OP_max, x, lo), hi);
}

/* The rows of x, [..., channels], at indices (one value for each dimension, of equal shapes): [shape of an index ..., channels]. */
static nnc_ref rows_at(ox_build *b, nnc_ref x, int n, const nnc_ref *index, int batch_dims)
{
    nnc_ref v[NNC_MAX_RANK] = {0};
    int rank = ox_type(b, index[0])->rank;
    for (int i = 0; i < n; i++)
        v[i] = ox_add_dim(b, ox_to(b, index[i], DT_i64), rank);
    nnc_attr batch = nnc_ai(AT_batch_dims, batch_dims);
    nnc_ref both[2] = {x, ox_joined(b, n, v, rank)};
    return ox_op(b, OP_gather_nd, 2, both, 1, &batch);
}

/* Reflected at lo and hi until it is between them. */
static nnc_ref reflect(ox_build *b, nnc_ref x, double lo, double hi)
{
    double range = hi - lo;
    if (range <= 0)
        return ox_2n(b, OP_mul, x, 0);
    nnc_ref t = ox_2n(b, OP_mod, ox_1(b, OP_abs, ox_2n(b, OP_sub, x, lo)), 2 * range);
    nnc_ref back = ox_2(b, OP_sub, ox_num(b, ox_dt(b, x), 2 * range), t);
    return ox_2n(b, OP_add, ox_2(b, OP_min, t, back), lo);
}

typedef struct sampler { /* of one dimension of GridSample */
    char padding; /* 'z'eros, 'b'order, 'r'eflection */
    char mode; /* 'n'earest, 'l'inear, 'c'ubic */
    bool corners;
    int64_t n;
    double lo, hi; /* where the input ends */
} sampler;

/* A place in -1..1 as a coordinate, moved inside as the padding says. */
static nnc_ref coordinate(ox_build *b, const sampler *s, nnc_ref g)
{
    double n = (double)s->n;
    nnc_ref x = ox_2n(b, OP_mul, ox_2n(b, OP_add, g, 1), 0.5 * (s->corners ? n - 1 : n));
    if (!s->corners)
        x = ox_2n(b, OP_sub, x, 0.5);
    if (s->mode == 'n')
        x = ox_1(b, OP_round, x);
    if (s->padding == 'r' && s->mode != 'c')
        return reflect(b, x, s->lo, s->hi);
    if (s->padding == 'z' || s->mode == 'c') /* of a cubic, each element's place is moved inside */
        return x;
    nnc_ref outside = ox_2(b, OP_or, ox_2n(b, OP_lt, x, s->lo), ox_2n(b, OP_gt, x, s->hi));
    return ox_select(b, outside, clamp(b, x, 0, n - 1), x);
}

/* Weights of the four elements around a place, at distance t after the second: Keys' kernel with -0.75. */
static void cubic(ox_build *b, nnc_ref t, nnc_ref w[4])
{
    static const double c[4][4] = {/* of t^3, t^2, t, 1 */
        {-0.75, 1.5, -0.75, 0}, {1.25, -2.25, 0, 1}, {-1.25, 1.5, 0.75, 0}, {0.75, -0.75, 0, 0}};
    for (int k = 0; k < 4; k++) {
        w[k] = ox_2n(b, OP_add, ox_2n(b, OP_mul, t, c[k][0]), c[k][1]);
        w[k] = ox_2n(b, OP_add, ox_2(b, OP_mul, w[k], t), c[k][2]);
        w[k] = ox_2n(b, OP_add, ox_2(b, OP_mul, w[k], t), c[k][3]);
    }
}

static void neighbours(ox_build *b, const sampler *s, nnc_ref x, side *out)
{
    double last = (double)(s->n - 1);
    nnc_ref low = s->mode == 'n' ? x : ox_1(b, OP_floor, x), t = ox_2(b, OP_sub, x, low);
    nnc_ref one = ox_num(b, ox_dt(b, x), 1), zero = ox_num(b, ox_dt(b, x), 0);
    out->n = s->mode == 'n' ? 1 : s->mode == 'l' ? 2 : 4;
    if (s->mode == 'c') {
        cubic(b, t, out->weight);
    } else {
        out->weight[0] = s->mode == 'n' ? one : ox_2(b, OP_sub, one, t);
        out->weight[1] = t;
    }
    for (int k = 0; k < out->n; k++) {
        nnc_ref at = ox_2n(b, OP_add, low, s->mode == 'c' ? k - 1 : k);
        if (s->padding == 'z') {
            nnc_ref inside = ox_2(b, OP_and, ox_2n(b, OP_ge, at, 0), ox_2n(b, OP_le, at, last));
            out->weight[k] = ox_select(b, inside, out->weight[k], zero);
        } else if (s->padding == 'r') {
            at = reflect(b, at, s->lo, s->hi);
        }
        out->at[k] = clamp(b, at, 0, last);
    }
}

/* The sum over all combinations of neighbours. */
static nnc_ref interpolate(ox_build *b, nnc_ref x, int dims, const side *sides)
{
    nnc_ref sum = NNC_NONE, index[3] = {0}, weight = NNC_NONE;
    int all = 1;
    for (int i = 0; i < dims; i++)
        all *= sides[i].n;
    for (int k = 0; k < all; k++) {
        for (int i = dims - 1, rest = k; i >= 0; i--) {
            int j = rest % sides[i].n;
            rest /= sides[i].n;
            index[i] = sides[i].at[j];
            weight =
                i == dims - 1 ? sides[i].weight[j] : ox_2(b, OP_mul, weight, sides[i].weight[j]);
        }
        nnc_ref v = rows_at(b, x, dims, index, 1);
        if (ox_type(b, weight)->rank)
            weight = ox_add_dim(b, weight, ox_type(b, weight)->rank);
        v = ox_2(b, OP_mul, v, ox_to(b, weight, ox_dt(b, v)));
        sum = k ? ox_2(b, OP_add, sum, v) : v;
    }
    return sum;
}

bool ox_grid_sample(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0)), g = *ox_type(b, ox_in(b, 1));
    const char *mode = ox_word(b, "mode", "linear");
    side sides[3] = {{0}};
    int dims = x.rank - 2;
    sampler s = {.padding = *ox_word(b, "padding_mode", "zeros"),
        .mode = !strcmp(mode, "bilinear")  ? 'l'
                : !strcmp(mode, "bicubic") ? 'c'
                                           : *mode,
        .corners = ox_int(b, "align_corners", 0) != 0};
    if (dims < 1 || dims > 3 || g.rank != x.rank || g.dim[dims + 1] != dims)
        return ox_refuse(
            b, "a grid of shape that does not fit its input, or more than 3 dimensions");
    if (!s.padding || !strchr("zbr", s.padding) || !s.mode || !strchr("nlc", s.mode))
        return ox_wrong(b, "the mode %s or its padding_mode is unknown", mode);
    for (int i = 0; i < dims; i++) { /* the grid has the last dimension first */
        s.n = x.dim[2 + i];
        s.lo = s.corners ? 0 : -0.5;
        s.hi = (double)s.n - (s.corners ? 1 : 0.5);
        nnc_ref one = ox_slice(b, ox_in(b, 1), dims + 1, dims - 1 - i, dims - i);
        neighbours(b, &s, coordinate(b, &s, ox_reshape(b, one, dims + 1, g.dim)), &sides[i]);
    }
    nnc_ref r = interpolate(b, ox_channels_last(b, ox_in(b, 0)), dims, sides);
    return ox_give(b, ox_channels_first(b, r));
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Along one dimension of RoiAlign: coordinates [regions, parts, samples], and how many of the samples are outside. */
static nnc_ref sample_places(ox_build *b, nnc_ref rois, int axis, int64_t parts, int64_t samples)
{
    double scale = ox_float(b, "spatial_scale", 1);
    bool half = b->opset >= 16 &&
                !strcmp(ox_word(b, "coordinate_transformation_mode", "half_pixel"), "half_pixel");
    int64_t n = ox_type(b, rois)->dim[0], d[3] = {n, 1, 1};
    nnc_ref from =
                ox_2n(b, OP_mul, ox_reshape(b, ox_slice(b, rois, 1, axis, axis + 1), 3, d), scale),
            to = ox_2n(
                b, OP_mul, ox_reshape(b, ox_slice(b, rois, 1, axis + 2, axis + 3), 3, d), scale);
    nnc_dtype dt = ox_dt(b, rois);
    nnc_ref extent = ox_2(b, OP_sub, to, from);
    if (half)
        from = ox_2n(b, OP_sub, from, 0.5);
    else
        extent = ox_2n(b, OP_max, extent, 1);
    nnc_ref part = ox_2n(b, OP_div, extent, (double)parts);
    nnc_ref sample =
        ox_2n(b, OP_div, ox_2n(b, OP_add, ox_iota(b, dt, samples), 0.5), (double)samples);
    nnc_ref at =
        ox_2(b, OP_add, ox_along(b, ox_iota(b, dt, parts), 3, 1), ox_along(b, sample, 3, 2));
    return ox_2(b, OP_add, from, ox_2(b, OP_mul, at, part));
}

/* The two elements around each place; those more than 1 outside count nothing. */
static void around(ox_build *b, nnc_ref at, int64_t n, side *out)
{
    nnc_dtype d = ox_dt(b, at);
    nnc_ref zero = ox_num(b, d, 0), one = ox_num(b, d, 1);
    nnc_ref inside = ox_2(b, OP_and, ox_2n(b, OP_ge, at, -1), ox_2n(b, OP_le, at, (double)n));
    nnc_ref x = clamp(b, at, 0, (double)(n - 1)), low = ox_1(b, OP_floor, x),
            t = ox_2(b, OP_sub, x, low);
    out->n = 2;
    out->at[0] = low;
    out->at[1] = clamp(b, ox_2n(b, OP_add, low, 1), 0, (double)(n - 1));
    out->weight[0] = ox_select(b, inside, ox_2(b, OP_sub, one, t), zero);
    out->weight[1] = ox_select(b, inside, t, zero);
}

/* v, [regions, parts, samples] of rows or columns, as [regions, rows, columns, samples of rows, samples of columns]. */
static nnc_ref spread(ox_build *b, nnc_ref v, bool columns, const int64_t full[5])
{
    const nnc_type t = *ox_type(b, v);
    int64_t rows[5] = {t.dim[0], t.dim[1], 1, t.dim[2], 1},
            cols[5] = {t.dim[0], 1, t.dim[1], 1, t.dim[2]};
    return ox_broadcast(b, ox_reshape(b, v, 5, columns ? cols : rows), 5, full);
}

/* Weighted corners of all samples: their sum, or for "max" their maximum. */
static nnc_ref corners(ox_build *b, nnc_ref x, nnc_ref batch, const side *rows, const side *cols,
    const int64_t full[5], bool max)
{
    nnc_ref r = NNC_NONE;
    for (int k = 0; k < 4; k++) {
        int i = k / 2, j = k % 2;
        nnc_ref index[3] = {
            batch, spread(b, rows->at[i], false, full), spread(b, cols->at[j], true, full)};
        nnc_ref w = ox_2(b, OP_mul, spread(b, rows->weight[i], false, full),
            spread(b, cols->weight[j], true, full));
        nnc_ref v = ox_2(b, OP_mul, rows_at(b, x, 3, index, 0), ox_add_dim(b, w, 5));
        r = k ? ox_2(b, max ? OP_max : OP_add, r, v) : v;
    }
    return r;
}

bool ox_roi_align(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0)), rois = *ox_type(b, ox_in(b, 1));
    int64_t h = ox_int(b, "output_height", 1), w = ox_int(b, "output_width", 1),
            n = ox_int(b, "sampling_ratio", 0);
    bool max = !strcmp(ox_word(b, "mode", "avg"), "max");
    if (x.rank != 4 || rois.rank != 2 || rois.dim[1] != 4 || h < 1 || w < 1)
        return ox_wrong(b, "its operands have shapes that do not fit");
    if (n < 1 || n > 64)
        return ox_refuse(
            b, "sampling_ratio %lld: the number of samples depends on data", (long long)n);
    const int64_t full[5] = {rois.dim[0], h, w, n, n}, axes[2] = {3, 4};
    side rows, cols;
    around(b, sample_places(b, ox_in(b, 1), 1, h, n), x.dim[2], &rows);
    around(b, sample_places(b, ox_in(b, 1), 0, w, n), x.dim[3], &cols);
    nnc_ref batch =
        ox_reshape(b, ox_to(b, ox_in(b, 2), DT_i64), 5, (int64_t[]){full[0], 1, 1, 1, 1});
    nnc_ref v = corners(b, ox_channels_last(b, ox_in(b, 0)), ox_broadcast(b, batch, 5, full), &rows,
        &cols, full, max);
    v = ox_reduced(b, max ? OP_reduce_max : OP_reduce_mean, v, 2, axes, false);
    return ox_give(b, ox_channels_first(b, v));
}

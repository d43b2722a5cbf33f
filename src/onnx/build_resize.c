/* onnx/build_resize.c -- Resize and Upsample: along one dimension after another, each result is a sum of few elements at fixed places. */
#include "onnx/internal.h"
#include <math.h>
#include <string.h>

enum { MAX_TAPS = 64 };

/* How one dimension is resized. */
typedef struct resize {
    const char *where, *nearest; /* coordinate_transformation_mode, nearest_mode or "" */
    int radius; /* of the interpolation: 0 nearest, 1 linear, 2 cubic */
    double a; /* cubic_coeff_a */
    bool exclude; /* elements outside count nothing */
    bool antialias;
    bool whole; /* align_corners: between the ends of the result, whose length is a whole number */
    double scale, from, to; /* from, to: the part of the input that is resized, of its length */
    int64_t in, out;
} resize;

static bool cropped(const resize *r)
{
    return !strcmp(r->where, "tf_crop_and_resize");
}

/* `nearest` computes in f32, as PyTorch and ONNX Runtime: 3 / 0.6 is 5 there, and 4.9999999 for the scale 0.60000002 in f64. */
static double unscaled(const resize *r, double x)
{
    return r->radius ? x / r->scale : (float)x / (float)r->scale;
}

/* The coordinate in the input of result i. */
static double origin(const resize *r, int64_t i)
{
    double x = (double)i, wide = r->scale * (double)r->in;
    if (!strcmp(r->where, "align_corners") && r->whole)
        return r->out == 1 ? 0 : x * (double)(r->in - 1) / (double)(r->out - 1);
    if (!strcmp(r->where, "align_corners"))
        return wide == 1 ? 0 : x * (double)(r->in - 1) / (wide - 1);
    /* Crops in f32 like roi, so that halves of a decimal roi are halves, as in ONNX Runtime. */
    if (cropped(r)) {
        const float from = (float)r->from, to = (float)r->to, last = (float)(r->in - 1);
        return r->out == 1 ? 0.5f * (from + to) * last
                           : from * last + (float)x * (to - from) * last / (float)(r->out - 1);
    }
    if (!strcmp(r->where, "asymmetric"))
        return unscaled(r, x);
    if (!strcmp(r->where, "pytorch_half_pixel") && r->out == 1)
        return 0;
    double at = unscaled(r, x + 0.5) - 0.5;
    if (!strcmp(r->where, "half_pixel_symmetric"))
        at += (double)r->in / 2 * (1 - (double)r->out / wide);
    return at;
}

static double rounded(const char *mode, double x)
{
    return !strcmp(mode, "floor")               ? floor(x)
           : !strcmp(mode, "ceil")              ? ceil(x)
           : !strcmp(mode, "round_prefer_ceil") ? floor(x + 0.5)
                                                : ceil(x - 0.5);
}

/* Without a mode, before operator set 11: as ONNX Runtime and ONNX's test of that set. */
static const char *nearest_mode(const resize *r)
{
    return *r->nearest ? r->nearest : r->scale < 1 ? "ceil" : "floor";
}

/* Linear: a triangle. Cubic: Keys' kernel with the coefficient a. */
static double kernel(const resize *r, double x)
{
    double a = r->a;
    x = fabs(x);
    if (r->radius == 1)
        return x < 1 ? 1 - x : 0;
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Places and weights of the elements that result i is the sum of. Places outside are those of the edge. */
static void taps(const resize *r, int64_t i, int n, int64_t *place, double *weight)
{
    double x = origin(r, i), s = r->antialias && r->scale < 1 ? r->scale : 1, sum = 0;
    double first = r->radius ? floor(x - r->radius / s) + 1 : rounded(nearest_mode(r), x);
    for (int k = 0; k < n; k++) {
        double at = first + k;
        bool outside = at < 0 || at > (double)(r->in - 1);
        place[k] = (int64_t)fmax(0, fmin(at, (double)(r->in - 1)));
        weight[k] = !r->radius ? 1 : outside && r->exclude ? 0 : kernel(r, (at - x) * s);
        sum += weight[k];
    }
    for (int k = 0; k < n; k++)
        weight[k] /= sum;
}

/* Results whose place is outside the input get a number. */
static nnc_ref extrapolate(ox_build *b, nnc_ref x, int axis, const resize *r)
{
    const nnc_type t = *ox_type(b, x), in = nnc_type_make(DT_bool, 1, &r->out);
    bool *inside = ARENA_NEW(&b->x->a, bool, r->out);
    if (!inside)
        return ox_nomem(b->x), NNC_NONE;
    for (int64_t i = 0; i < r->out; i++)
        inside[i] = origin(r, i) >= 0 && origin(r, i) <= (double)(r->in - 1);
    nnc_ref c = ox_along(b, nnc_constant(b->x->g, &in, inside), t.rank, axis);
    nnc_ref v = ox_num(b, t.dtype, ox_float(b, "extrapolation_value", 0));
    return ox_select(b, c, x, v);
}

static nnc_ref resize_axis(ox_build *b, nnc_ref x, int axis, const resize *r)
{
    const nnc_type t = *ox_type(b, x);
    double s = r->antialias && r->scale < 1 ? r->scale : 1;
    if (!(2 * r->radius / s < MAX_TAPS) || r->out > 1 << 20)
        return ox_refuse(b, "a dimension is scaled too far"), NNC_NONE;
    int n = r->radius ? (int)ceil(2 * r->radius / s) : 1;
    size_t all = (size_t)n * (size_t)r->out;
    int64_t *place = ARENA_NEW(&b->x->a, int64_t, all), one[MAX_TAPS];
    double *weight = ARENA_NEW(&b->x->a, double, all), w[MAX_TAPS];
    if (!place || !weight)
        return ox_nomem(b->x), NNC_NONE;
    for (int64_t i = 0; i < r->out; i++) {
        taps(r, i, n, one, w);
        for (int k = 0; k < n; k++) {
            place[k * r->out + i] = one[k];
            weight[k * r->out + i] = w[k];
        }
    }
    nnc_type wt = nnc_type_make(DT_f64, 1, &r->out);
    nnc_ref sum = NNC_NONE;
    for (int k = 0; k < n; k++) {
        nnc_ref v[2] = {x, ox_list(b, (int)r->out, place + k * r->out)};
        nnc_ref g = ox_on_axis(b, OP_gather, 2, v, axis);
        if (r->radius) {
            nnc_ref c = nnc_constant(b->x->g, &wt, weight + k * r->out);
            g = ox_2(b, OP_mul, g, ox_along(b, ox_to(b, c, t.dtype), t.rank, axis));
        }
        sum = k ? ox_2(b, OP_add, sum, g) : g;
    }
    return cropped(r) ? extrapolate(b, sum, axis, r) : sum;
}

/* The scale of each dimension, and the extents: from scales, or from sizes with their policy. */
static bool read_scales(ox_build *b, const nnc_type *x, resize r[NNC_MAX_RANK])
{
    int64_t axes[NNC_MAX_RANK], size[NNC_MAX_RANK];
    double scale[NNC_MAX_RANK];
    int n_axes, n = 0, at = b->opset < 11 ? 1 : 2;
    if (!ox_ints(b, "axes", NNC_MAX_RANK, &n_axes, axes))
        for (n_axes = 0; n_axes < x->rank; n_axes++)
            axes[n_axes] = n_axes;
    const ox_attr *list = b->opset < 9 ? ox_attr_find(b, "scales", OXA_floats) : NULL;
    for (; list && n < (int)list->n && n < NNC_MAX_RANK; n++)
        scale[n] = list->floats[n];
    if (!list && ox_has(b, at) && !ox_const_floats(b, at, NNC_MAX_RANK, &n, scale))
        return false;
    bool sizes = n == 0 && ox_has(b, 3);
    if (sizes && !ox_const_ints(b, 3, NNC_MAX_RANK, &n, size))
        return false;
    for (int i = 0; sizes && i < n; i++) /* of a batch of 0 */
        size[i] = size[i] ? size[i] : b->stand_in;
    if (n != n_axes || n == 0)
        return ox_wrong(b, "it has %d scales for %d dimensions", n, n_axes);
    const char *policy = ox_word(b, "keep_aspect_ratio_policy", "stretch");
    double common = 0;
    int axis;
    for (int i = 0; i < n; i++) {
        if (!ox_axis(b, axes[i], x->rank, &axis))
            return false;
        double s = sizes ? (double)size[i] / (double)x->dim[axis] : scale[i];
        if (!(s > 0 && s * (double)x->dim[axis] >= 1 && s < 1e6))
            return ox_wrong(b, "the scale of dimension %d is %g", axis, s);
        bool larger = !strcmp(policy, "not_smaller");
        common = i == 0 ? s : larger ? fmax(common, s) : fmin(common, s);
        r[axis].scale = s;
        r[axis].out = sizes ? size[i] : (int64_t)floor(s * (double)x->dim[axis]);
    }
    for (int i = 0; i < n && sizes && strcmp(policy, "stretch"); i++) {
        ox_axis(b, axes[i], x->rank, &axis);
        r[axis].scale = common;
        r[axis].out = (int64_t)floor(common * (double)x->dim[axis] + 0.5);
    }
    return true;
}

/* roi: where each of the axes begins, then where each ends. */
static bool read_crop(ox_build *b, const nnc_type *x, resize r[NNC_MAX_RANK])
{
    int64_t axes[NNC_MAX_RANK];
    double v[2 * NNC_MAX_RANK];
    int n_axes, n, axis;
    if (!ox_ints(b, "axes", NNC_MAX_RANK, &n_axes, axes))
        for (n_axes = 0; n_axes < x->rank; n_axes++)
            axes[n_axes] = n_axes;
    if (!ox_has(b, 1) || !ox_const_floats(b, 1, 2 * NNC_MAX_RANK, &n, v))
        return b->refused ? false : ox_wrong(b, "it has no roi");
    if (n != 2 * n_axes)
        return ox_wrong(b, "roi has %d numbers for %d dimensions", n, n_axes);
    for (int i = 0; i < n_axes && ox_axis(b, axes[i], x->rank, &axis); i++) {
        r[axis].from = v[i];
        r[axis].to = v[n_axes + i];
    }
    return !b->x->status;
}

bool ox_resize(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    const char *mode = ox_word(b, "mode", "nearest");
    bool old = b->opset < 11;
    resize r[NNC_MAX_RANK];
    int radius = !strcmp(mode, "nearest") ? 0 : !strcmp(mode, "cubic") ? 2 : 1;
    const char *where =
        ox_word(b, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    const bool whole = radius && !nnc_is_float(t.dtype);
    if (whole && (radius == 2 || ox_int(b, "antialias", 0)))
        return ox_refuse(b, "cubic and antialiased interpolation of integers are unsupported");
    x = whole ? ox_to(b, x, DT_f32) : x;
    for (int i = 0; i < t.rank; i++)
        r[i] = (resize){.where = where,
            .nearest = ox_word(b, "nearest_mode", old ? "" : "round_prefer_floor"),
            .radius = radius,
            .a = ox_float(b, "cubic_coeff_a", -0.75),
            .exclude = ox_int(b, "exclude_outside", 0) != 0,
            .antialias = radius && ox_int(b, "antialias", 0),
            /* PyTorch, and ONNX Runtime, take the result's length, 10, where ONNX's own tests take 1.7 * 6 */
            .whole = b->x->m.of_pytorch,
            .scale = 1,
            .to = 1,
            .in = t.dim[i],
            .out = t.dim[i]};
    if (!read_scales(b, &t, r) || (t.rank && cropped(&r[0]) && !read_crop(b, &t, r)))
        return false;
    for (int i = 0; i < t.rank && x != NNC_NONE; i++)
        if (r[i].scale != 1 || r[i].out != r[i].in || r[i].from != 0 || r[i].to != 1)
            x = resize_axis(b, x, i, &r[i]);
    if (whole) /* the cast truncates: 2^-10 more, so that rounding errors below a whole number do not count */
        x = ox_2(b, OP_add, x, ox_2n(b, OP_mul, ox_1(b, OP_sign, x), 0x1p-10));
    return x == NNC_NONE ? false : ox_give(b, ox_to(b, x, t.dtype));
}

/* ir/infer_window.c -- shape rules of convolution, transposed convolution and pooling: x[N,C,spatial...] with 1 to 3 spatial
 * dimensions. All sums are overflow-checked, since a model file may contain any numbers. */
#include "ir/infer.h"

#include <inttypes.h>

#define MAX_SPATIAL 3

typedef struct window {
    int s; /* spatial dimensions */
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    int64_t begin[MAX_SPATIAL], end[MAX_SPATIAL], extra[MAX_SPATIAL];
    int64_t reach[MAX_SPATIAL]; /* extent of the dilated kernel */
} window;

bool nnc_window_extent(const nnc_window *w, nnc_window_rule rule, int64_t *out)
{
    const int64_t at_least_1[] = {w->kernel, w->stride, w->dilation};
    const int64_t at_least_0[] = {w->lo, w->hi, w->extra};
    int64_t reach, room;
    for (int i = 0; i < 3; i++)
        if (at_least_1[i] < 1 || at_least_1[i] > NNC_MAX_STEP || at_least_0[i] < 0 ||
            at_least_0[i] > NNC_MAX_STEP)
            return false;
    if (!nnc_mul_ok(w->dilation, w->kernel - 1, &reach) || ++reach > NNC_MAX_STEP ||
        !nnc_add_ok(w->in, w->lo + w->hi - reach, &room))
        return false;
    if (rule == NNC_WINDOW_transposed)
        return w->extra <= nnc_max64(w->stride, w->dilation) - 1 &&
               nnc_mul_ok(w->in - 1, w->stride, out) &&
               nnc_add_ok(*out, reach + w->extra - w->lo - w->hi, out) && *out >= 1;
    if (rule == NNC_WINDOW_floor) {
        *out = room / w->stride + 1;
        return room >= 0;
    }
    *out = nnc_ceildiv(room, w->stride) + 1;
    *out -= (*out - 1) * w->stride >= w->in + w->lo;
    return *out >= 1;
}

/* Reads an attribute of s (or 2s, for pads) numbers, each in lo..NNC_MAX_STEP, with a default. */
static nnc_status read_ints(infer *c, nnc_akey key, int s, int64_t lo, int64_t dflt, int64_t *to)
{
    const int64_t *v;
    const char *name = nnc_attrs[key].name;
    int n = nnc_attr_ints(c->n, key, &v);
    for (int i = 0; i < s; i++)
        to[i] = dflt;
    if (!nnc_attr_find(c->n, key))
        return NNC_OK;
    if (n != s)
        return fail(c, "%s [%s] has %d number%s; %d spatial dimension%s need%s %d%s", name,
            nnc_infer_list(c, v, n, ','), n, n == 1 ? "" : "s", key == AT_pads ? s / 2 : s,
            (key == AT_pads ? s / 2 : s) == 1 ? "" : "s",
            (key == AT_pads ? s / 2 : s) == 1 ? "s" : "", s,
            key == AT_pads ? ": every begin, then every end" : "");
    for (int i = 0; i < s; i++) {
        if (v[i] < lo || v[i] > NNC_MAX_STEP)
            return fail(c, "%s [%s]: %" PRId64 " is out of range; each must be at %s %" PRId64,
                name, nnc_infer_list(c, v, n, ','), v[i], v[i] < lo ? "least" : "most",
                v[i] < lo ? lo : NNC_MAX_STEP);
        to[i] = v[i];
    }
    return NNC_OK;
}

/* Reads everything of the window except the kernel, which the caller has set. */
static nnc_status read_window(infer *c, window *w)
{
    int64_t pads[2 * MAX_SPATIAL] = {0};
    NNC_TRY(read_ints(c, AT_strides, w->s, 1, 1, w->stride));
    NNC_TRY(read_ints(c, AT_dilations, w->s, 1, 1, w->dilation));
    NNC_TRY(read_ints(c, AT_pads, 2 * w->s, 0, 0, pads));
    NNC_TRY(read_ints(c, AT_output_padding, w->s, 0, 0, w->extra));
    for (int i = 0; i < w->s; i++) {
        w->begin[i] = pads[i];
        w->end[i] = pads[i + w->s];
        if (!nnc_mul_ok(w->dilation[i], w->kernel[i] - 1, &w->reach[i]) ||
            w->reach[i] > NNC_MAX_STEP)
            return fail(c, "kernel %" PRId64 " with dilation %" PRId64 " is too large",
                w->kernel[i], w->dilation[i]);
        w->reach[i]++;
    }
    return NNC_OK;
}

static bool extent(const window *w, int i, int64_t in, nnc_window_rule rule, int64_t *out)
{
    const nnc_window d = {
        in, w->kernel[i], w->stride[i], w->dilation[i], w->begin[i], w->end[i], w->extra[i]};
    return nnc_window_extent(&d, rule, out);
}

static nnc_status check_rank(infer *c, const nnc_type *x)
{
    if (x->rank >= 3 && x->rank <= 2 + MAX_SPATIAL)
        return NNC_OK;
    return fail(c, "its input is %s; it must be [N,C,spatial...] with 1 to %d spatial dimensions%s",
        nnc_infer_show(c, x), MAX_SPATIAL,
        x->rank == 2 ? ": reshape it to [N,C,1,1], or use linear" : "");
}

/* Checks that the kernel fits the padded input. With `ceil_mode` it may extend beyond the end by less than a stride. */
static nnc_status check_fit(infer *c, const window *w, const nnc_type *x, bool ceil_mode)
{
    int64_t padded[MAX_SPATIAL], more = 0;
    for (int i = 0; i < w->s; i++) {
        padded[i] = x->dim[2 + i] + w->begin[i] + w->end[i];
        more = nnc_max64(more, w->reach[i] - padded[i] - (ceil_mode ? w->stride[i] - 1 : 0));
    }
    if (more <= 0)
        return NNC_OK;
    return fail(c,
        "kernel %s%s%s is larger than its padded input %s; pad by %" PRId64
        " more, or use a kernel whose reach is at most %s",
        nnc_infer_list(c, w->kernel, w->s, 'x'), w->reach[0] != w->kernel[0] ? " with reach " : "",
        w->reach[0] != w->kernel[0] ? nnc_infer_list(c, w->reach, w->s, 'x') : "",
        nnc_infer_list(c, padded, w->s, 'x'), more, nnc_infer_list(c, padded, w->s, 'x'));
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* Every window must contain an element: padding alone has no maximum and no mean. */
static nnc_status check_pool_pads(infer *c, const window *w, const nnc_type *x)
{
    for (int i = 0; i < w->s; i++) {
        int64_t most = nnc_max64(w->begin[i], w->end[i]);
        if (most >= w->reach[i])
            return fail(c,
                "padding %" PRId64 " along spatial dimension %d: a window of %" PRId64
                " would see padding only; at most %" PRId64,
                most, i, w->reach[i], w->reach[i] - 1);
        if (most > 0 && w->kernel[i] > 1 && w->dilation[i] > x->dim[2 + i])
            return fail(c,
                "dilation %" PRId64 " along spatial dimension %d steps over the whole input of "
                "extent %" PRId64 " between two paddings",
                w->dilation[i], i, x->dim[2 + i]);
    }
    return NNC_OK;
}

nnc_status nnc_infer_pool(infer *c)
{
    const nnc_type *x = arg(c, 0);
    window w = {.s = x->rank - 2};
    NNC_TRY(check_rank(c, x));
    NNC_TRY(nnc_infer_number(c, 0));
    if (nnc_ops[c->n->op].flags & OF_float)
        NNC_TRY(nnc_infer_float(c, 0));
    NNC_TRY(read_ints(c, AT_kernel, w.s, 1, 1, w.kernel));
    NNC_TRY(read_window(c, &w));
    bool ceil_mode = nnc_attr_int(c->n, AT_ceil_mode, 0);
    NNC_TRY(check_fit(c, &w, x, ceil_mode));
    NNC_TRY(check_pool_pads(c, &w, x));
    int64_t dim[NNC_MAX_RANK] = {x->dim[0], x->dim[1]};
    for (int i = 0; i < w.s; i++) {
        nnc_window_rule rule = ceil_mode ? NNC_WINDOW_ceil : NNC_WINDOW_floor;
        if (!extent(&w, i, x->dim[2 + i], rule, &dim[2 + i]))
            return fail(c, "no window begins inside spatial dimension %d", i);
    }
    nnc_infer_set(c, c->n->op == OP_argmaxpool ? DT_i64 : x->dtype, x->rank, dim);
    return nnc_infer_follow(c, 0, x);
}

/* Checks that dy has the shape of the result of pooling `shape`, with or without ceil_mode. */
nnc_status nnc_infer_pool_grad(infer *c)
{
    const nnc_type *dy = arg(c, 0), *at = arg(c, 1);
    const int64_t *shape;
    window w = {.s = dy->rank - 2};
    NNC_TRY(check_rank(c, dy));
    NNC_TRY(nnc_infer_number(c, 0));
    if (at->dtype != DT_i64 || !nnc_type_same_shape(at, dy))
        return fail(c, "the indices are %s; they must be i64 and of dy's shape %s",
            nnc_infer_show(c, at), nnc_infer_dims(c, dy));
    int n = nnc_attr_ints(c->n, AT_shape, &shape);
    if (n != dy->rank || shape[0] != dy->dim[0] || shape[1] != dy->dim[1])
        return fail(c,
            "shape is [%s]; it must be [%" PRId64 ",%" PRId64
            ",spatial...] as dy's with %d spatial dimensions",
            nnc_infer_list(c, shape, n, ','), dy->dim[0], dy->dim[1], w.s);
    nnc_type x = nnc_type_make(dy->dtype, n, shape);
    const char *what;
    if (!nnc_type_check(&x, &what))
        return fail(c, "shape [%s]: %s", nnc_infer_list(c, shape, n, ','), what);
    NNC_TRY(read_ints(c, AT_kernel, w.s, 1, 1, w.kernel));
    NNC_TRY(read_window(c, &w));
    NNC_TRY(check_pool_pads(c, &w, &x));
    for (int i = 0; i < w.s; i++) {
        int64_t whole, ceiled;
        bool fits = extent(&w, i, shape[2 + i], NNC_WINDOW_floor, &whole);
        if (!extent(&w, i, shape[2 + i], NNC_WINDOW_ceil, &ceiled))
            ceiled = 0;
        if (!(fits && dy->dim[2 + i] == whole) && dy->dim[2 + i] != ceiled)
            return fail(c,
                "dy has extent %" PRId64 " along spatial dimension %d; windows over %" PRId64
                " give %" PRId64,
                dy->dim[2 + i], i, shape[2 + i], fits ? whole : ceiled);
    }
    nnc_infer_set(c, dy->dtype, n, shape);
    return nnc_infer_follow(c, 0, dy);
}

/* ---- convolution ----------------------------------------------------------------------------- */

static nnc_status check_weight(infer *c, window *w)
{
    const nnc_type *x = arg(c, 0), *k = arg(c, 1);
    NNC_TRY(check_rank(c, x));
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_number(c, 0));
    if (k->rank != x->rank)
        return fail(c, "the weight is %s but the input is %s; they must have equal rank",
            nnc_infer_dims(c, k), nnc_infer_dims(c, x));
    w->s = x->rank - 2;
    for (int i = 0; i < w->s; i++)
        w->kernel[i] = k->dim[2 + i];
    return NNC_OK;
}

static nnc_status check_groups(infer *c, int64_t groups, int64_t channels, const char *which)
{
    if (groups < 1)
        return fail(c, "groups is %" PRId64 "; it must be at least 1", groups);
    if (channels % groups == 0)
        return NNC_OK;
    int64_t down = nnc_min64(groups, channels);
    while (channels % down)
        down--;
    return fail(c, "groups %" PRId64 " does not divide the %" PRId64 " %s; %" PRId64 " would",
        groups, channels, which, down);
}

/* Sets the result: these channels, and an element for each window that fits operand 0. */
static nnc_status convolved(infer *c, window *w, int64_t channels)
{
    const nnc_type *x = arg(c, 0);
    int64_t dim[NNC_MAX_RANK] = {x->dim[0], channels};
    NNC_TRY(read_window(c, w));
    NNC_TRY(check_fit(c, w, x, false));
    for (int i = 0; i < w->s; i++)
        if (!extent(w, i, x->dim[2 + i], NNC_WINDOW_floor, &dim[2 + i]))
            return fail(c, "no window fits spatial dimension %d", i);
    nnc_infer_set(c, x->dtype, x->rank, dim);
    return nnc_infer_follow(c, 0, x);
}

nnc_status nnc_infer_conv(infer *c)
{
    window w = {0};
    NNC_TRY(check_weight(c, &w));
    const nnc_type *x = arg(c, 0), *k = arg(c, 1);
    int64_t groups = nnc_attr_int(c->n, AT_groups, 1), channels = x->dim[1];
    NNC_TRY(check_groups(c, groups, channels, "input channels"));
    if (k->dim[1] != channels / groups) {
        bool other = channels % k->dim[1] == 0 && k->dim[0] % (channels / k->dim[1]) == 0;
        char hint[64] = "";
        if (other)
            snprintf(hint, sizeof hint, ", or groups %" PRId64, channels / k->dim[1]);
        return fail(c,
            "the input has %" PRId64 " channels in %" PRId64
            " group%s, but the weight %s is for %" PRId64 " channels a group; it needs %" PRId64
            " for its dimension 1%s",
            channels, groups, groups == 1 ? "" : "s", nnc_infer_dims(c, k), k->dim[1],
            channels / groups, hint);
    }
    NNC_TRY(check_groups(c, groups, k->dim[0], "output channels"));
    if (c->n->n_in == 3)
        NNC_TRY(nnc_infer_vector(c, 2, k->dim[0], "the bias"));
    return convolved(c, &w, k->dim[0]);
}

nnc_status nnc_infer_winograd(infer *c)
{
    const nnc_type *x = arg(c, 0), *u = arg(c, 1);
    window w = {.s = 2, .kernel = {NNC_WINOGRAD_TAPS, NNC_WINOGRAD_TAPS}};
    NNC_TRY(nnc_infer_same_dtype(c));
    if (x->dtype != DT_f32)
        return fail(c, "the input is %s; it must be f32", nnc_infer_show(c, x));
    if (x->rank != 4 || u->rank != 4 || u->dim[2] != x->dim[1] ||
        !nnc_winograd_of(u->dim[0], &(nnc_winograd){0}))
        return fail(c,
            "the input is %s and the weight %s; they must be [N,C,h,w] and [p,K/k,C,k], with 16 or "
            "36 points p",
            nnc_infer_dims(c, x), nnc_infer_dims(c, u));
    return convolved(c, &w, u->dim[1] * u->dim[3]);
}

nnc_status nnc_infer_winograd_wgrad(infer *c)
{
    const nnc_type *x = arg(c, 0), *dy = arg(c, 1);
    window w = {.s = 2, .kernel = {NNC_WINOGRAD_TAPS, NNC_WINOGRAD_TAPS}};
    const int64_t tile = nnc_attr_int(c->n, AT_tile, 0);
    int64_t images, rows;
    NNC_TRY(nnc_infer_same_dtype(c));
    if (x->dtype != DT_f32 || x->rank != 4 || dy->rank != 4 || dy->dim[0] != x->dim[0] ||
        (tile != 2 && tile != 4))
        return fail(c,
            "x is %s and dy %s, in tiles of %" PRId64
            "; they must be f32[N,C,h,w] and f32[N,K,r,s], and tiles 4 or 2",
            nnc_infer_show(c, x), nnc_infer_show(c, dy), tile);
    NNC_TRY(read_window(c, &w));
    NNC_TRY(check_fit(c, &w, x, false));
    for (int i = 0; i < w.s; i++) {
        int64_t most = 0;
        if (!extent(&w, i, x->dim[2 + i], NNC_WINDOW_floor, &most) || dy->dim[2 + i] != most)
            return fail(c,
                "dy has extent %" PRId64 " along spatial dimension %d; the convolution has %" PRId64
                " results there",
                dy->dim[2 + i], i, most);
    }
    const int64_t all_rows = nnc_ceildiv(dy->dim[2], tile);
    nnc_winograd_block(c->n, x->dim[0], all_rows, &images, &rows);
    const int64_t dim[] = {x->dim[0] / images * nnc_ceildiv(all_rows, rows), NNC_WINOGRAD_TAPS,
        NNC_WINOGRAD_TAPS, dy->dim[1], x->dim[1]};
    return nnc_infer_set(c, DT_f32, NNC_COUNT(dim), dim);
}

/* Extents that dy may have along dimension i. *most: that of the convolution's result. Less, down to *least, if dy is the source of a
 * transposed convolution with output_padding. False: there are none. */
static bool wgrad_extent(const window *w, int i, int64_t in, int64_t *least, int64_t *most)
{
    if (!extent(w, i, in, NNC_WINDOW_floor, most))
        return false;
    const int64_t left = in + w->begin[i] + w->end[i] - w->reach[i] - (*most - 1) * w->stride[i];
    const int64_t more = nnc_max64(w->stride[i], w->dilation[i]) - 1 - left;
    *least = nnc_max64(*most - more / w->stride[i], 1);
    return true;
}

nnc_status nnc_infer_conv_wgrad(infer *c)
{
    const nnc_type *x = arg(c, 0), *dy = arg(c, 1);
    window w = {.s = x->rank - 2};
    NNC_TRY(check_rank(c, x));
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(nnc_infer_number(c, 0));
    if (dy->rank != x->rank || dy->dim[0] != x->dim[0])
        return fail(c, "dy is %s and x %s; they must have equal rank and as many images",
            nnc_infer_dims(c, dy), nnc_infer_dims(c, x));
    int64_t groups = nnc_attr_int(c->n, AT_groups, 1);
    NNC_TRY(check_groups(c, groups, x->dim[1], "input channels"));
    NNC_TRY(check_groups(c, groups, dy->dim[1], "output channels"));
    NNC_TRY(read_ints(c, AT_kernel, w.s, 1, 1, w.kernel));
    NNC_TRY(read_window(c, &w));
    NNC_TRY(check_fit(c, &w, x, false));
    int64_t dim[NNC_MAX_RANK] = {dy->dim[1], x->dim[1] / groups};
    for (int i = 0; i < w.s; i++) {
        int64_t least = 0, most = 0;
        if (!wgrad_extent(&w, i, x->dim[2 + i], &least, &most) || dy->dim[2 + i] < least ||
            dy->dim[2 + i] > most)
            return fail(c,
                "dy has extent %" PRId64 " along spatial dimension %d; the convolution has %" PRId64
                " results there",
                dy->dim[2 + i], i, most);
        dim[2 + i] = w.kernel[i];
    }
    return nnc_infer_set(c, x->dtype, x->rank, dim);
}

/* out = (in - 1) stride - pads + reach + output_padding */
static nnc_status transposed_extent(infer *c, const window *w, int i, int64_t in, int64_t *out)
{
    if (w->extra[i] >= nnc_max64(w->stride[i], w->dilation[i]))
        return fail(c,
            "output_padding %" PRId64
            " along spatial dimension %d must be below the stride %" PRId64
            " or the dilation %" PRId64,
            w->extra[i], i, w->stride[i], w->dilation[i]);
    if (extent(w, i, in, NNC_WINDOW_transposed, out))
        return NNC_OK;
    int64_t v;
    if (!nnc_mul_ok(in - 1, w->stride[i], &v) || !nnc_add_ok(v, w->reach[i] + w->extra[i], &v))
        return fail(c, "the result is too large along spatial dimension %d", i);
    return fail(c,
        "the pads %" PRId64 " and %" PRId64 " along spatial dimension %d take away the whole "
        "result; together at most %" PRId64,
        w->begin[i], w->end[i], i, v - 1);
}

nnc_status nnc_infer_conv_transpose(infer *c)
{
    window w = {0};
    NNC_TRY(check_weight(c, &w));
    const nnc_type *x = arg(c, 0), *k = arg(c, 1);
    int64_t groups = nnc_attr_int(c->n, AT_groups, 1), channels;
    NNC_TRY(check_groups(c, groups, x->dim[1], "input channels"));
    if (k->dim[0] != x->dim[1])
        return fail(c,
            "the input has %" PRId64 " channels, but the weight %s is for %" PRId64
            "; it needs %" PRId64 " for its dimension 0 ([C,K/groups,k..])",
            x->dim[1], nnc_infer_dims(c, k), k->dim[0], x->dim[1]);
    if (!nnc_mul_ok(k->dim[1], groups, &channels))
        return fail(c, "groups %" PRId64 " gives too many channels", groups);
    if (c->n->n_in == 3)
        NNC_TRY(nnc_infer_vector(c, 2, channels, "the bias"));
    NNC_TRY(read_window(c, &w));
    int64_t dim[NNC_MAX_RANK] = {x->dim[0], channels};
    for (int i = 0; i < w.s; i++)
        NNC_TRY(transposed_extent(c, &w, i, x->dim[2 + i], &dim[2 + i]));
    nnc_infer_set(c, x->dtype, x->rank, dim);
    return nnc_infer_follow(c, 0, x);
}

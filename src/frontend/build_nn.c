/* frontend/build_nn.c -- layers with weights, windows and norms: checks in the user's words,
 * then a few nodes each. What shape inference can say as well is left to it: the layer's place
 * stands on the graph while it builds. */
#include "frontend/internal.h"
#include <string.h>

static const nnc_type *in_type(const fe_layer *l)
{
    return nnc_typeof(l->f->g, l->in[0]);
}

/* The input as N, C and 1 to 3 spatial dimensions; the number of the latter, 0 on error. */
static int spatial_rank(fe_layer *l)
{
    const nnc_type *x = in_type(l);
    if (x->rank >= 3 && x->rank <= 5)
        return x->rank - 2;
    fe_bad(l, NULL,
        "%s expects an input with batch, channels and 1 to 3 spatial dimensions, found %s%s",
        l->row.name, fe_type_text(l->f, x),
        x->rank == 2 ? "; is this after flatten or linear?" : "");
    return 0;
}

typedef struct window {
    int n; /* spatial dimensions */
    int64_t kernel[3], stride[3], pad[6], dilation[3], ceil;
} window;

/* "pad": "same" keeps ceil(in / stride); the odd zero goes to the end (as ONNX's SAME_UPPER and
 * TensorFlow). */
static bool read_pad(fe_layer *l, window *w)
{
    const cJSON *v = fe_key(l, "pad");
    const nnc_type *x = in_type(l);
    int64_t p[2 * NNC_MAX_RANK];
    int n = 0;
    if (!v)
        return true;
    if (cJSON_IsString(v) && !strcmp(v->valuestring, "same")) {
        for (int i = 0; i < w->n; i++) {
            int64_t in = x->dim[2 + i], out = nnc_ceildiv(in, w->stride[i]);
            int64_t need = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - in;
            need = nnc_max64(need, 0);
            w->pad[i] = need / 2;
            w->pad[w->n + i] = need - need / 2;
        }
        return true;
    }
    if (cJSON_IsString(v) && nnc_nearest(v->valuestring, (const char *const[]){"same"}, 1) &&
        !strncmp(v->valuestring, "s", 1))
        return fe_bad(l, "pad", "pad: `%.20s` is not a way to pad; did you mean `same`?",
                   v->valuestring) != NNC_NONE;
    if (!fe_ints(l, "pad", 0, INT32_MAX, &n, p))
        return false;
    bool one = !cJSON_IsArray(v);
    if (!one && n != w->n && n != 2 * w->n)
        return fe_bad(l, "pad",
                   "pad: expected \"same\", one number, %d (one per spatial dimension) or %d "
                   "(begins, then ends), found %d",
                   w->n, 2 * w->n, n) != NNC_NONE;
    for (int i = 0; i < 2 * w->n; i++)
        w->pad[i] = p[one ? 0 : i % n];
    return true;
}

static bool fits(fe_layer *l, const window *w)
{
    const nnc_type *x = in_type(l);
    int64_t padded[3], reach[3], more = 0;
    bool small = false, dilated = false;
    for (int i = 0; i < w->n; i++) {
        padded[i] = x->dim[2 + i] + w->pad[i] + w->pad[w->n + i];
        reach[i] = (w->kernel[i] - 1) * w->dilation[i] + 1;
        small |=
            reach[i] > padded[i] + (w->ceil ? w->stride[i] - 1 : 0); /* may hang over the end */
        dilated |= w->dilation[i] > 1;
        more = nnc_max64(more, w->pad[i] + (reach[i] - padded[i] + 1) / 2);
    }
    if (!small)
        return true;
    const char *k = fe_dims_text(l->f, w->n, w->kernel);
    const char *r = dilated ? nnc_arena_printf(&l->f->a, " (%s with its dilation)",
                                  fe_dims_text(l->f, w->n, reach))
                            : "";
    return fe_bad(l, "kernel",
               "%s kernel %s%s is larger than its padded input %s: expected a kernel of at most "
               "that, or \"pad\" of at least %lld",
               l->row.name, k, r ? r : "", fe_dims_text(l->f, w->n, padded),
               (long long)more) != NNC_NONE;
}

/* Reads kernel, stride, pad, dilation and ceil, and checks that one window fits. */
static bool read_window(fe_layer *l, window *w, bool stride_is_kernel, bool transposed)
{
    *w = (window){.n = spatial_rank(l)};
    for (int i = 0; i < w->n; i++)
        w->stride[i] = w->dilation[i] = 1;
    bool ceil = false;
    if (w->n == 0 || !fe_spatial(l, "kernel", w->n, 1, w->kernel))
        return false;
    if (stride_is_kernel)
        memcpy(w->stride, w->kernel, sizeof w->stride);
    if (!fe_spatial(l, "stride", w->n, 1, w->stride))
        return false;
    if (fe_row_has(&l->row, "dilation") && !fe_spatial(l, "dilation", w->n, 1, w->dilation))
        return false;
    if (fe_row_has(&l->row, "ceil") && !fe_bool(l, "ceil", &ceil))
        return false;
    w->ceil = ceil;
    if (transposed && cJSON_IsString(fe_key(l, "pad")) &&
        !strcmp(fe_key(l, "pad")->valuestring, "same"))
        return fe_bad(l, "pad", "pad: conv_transpose takes numbers, not \"same\"") != NNC_NONE;
    return read_pad(l, w) && (transposed || fits(l, w));
}

static bool any_not(const int64_t *v, int n, int64_t usual)
{
    for (int i = 0; i < n; i++)
        if (v[i] != usual)
            return true;
    return false;
}

/* The attributes that differ from their defaults. */
static int window_attrs(const window *w, nnc_attr *a)
{
    int n = 0;
    if (any_not(w->stride, w->n, 1))
        a[n++] = nnc_av(AT_strides, w->n, w->stride);
    if (any_not(w->pad, 2 * w->n, 0))
        a[n++] = nnc_av(AT_pads, 2 * w->n, w->pad);
    if (any_not(w->dilation, w->n, 1))
        a[n++] = nnc_av(AT_dilations, w->n, w->dilation);
    return n;
}

static nnc_ref conv_with(fe_layer *l, const window *w, int64_t channels, int64_t groups)
{
    const nnc_type x = *in_type(l);
    int64_t in = x.dim[1], d[5] = {channels, in / groups};
    bool bias = true;
    nnc_attr a[4];
    if (!fe_bool(l, "bias", &bias))
        return NNC_NONE;
    double fan = (double)d[1];
    for (int i = 0; i < w->n; i++) {
        d[2 + i] = w->kernel[i];
        fan *= (double)w->kernel[i];
    }
    nnc_type wt = nnc_type_make((nnc_dtype)x.dtype, x.rank, d),
             bt = nnc_type_make((nnc_dtype)x.dtype, 1, d);
    nnc_ref v[3] = {l->in[0], fe_weight(l, "weight", &wt, 1, 0), NNC_NONE};
    if (bias)
        v[2] = fe_weight(l, "bias", &bt, 0.05f, 0);
    int n = window_attrs(w, a);
    if (groups != 1)
        a[n++] = nnc_ai(AT_groups, groups);
    nnc_ref y = nnc_build(l->f->g, OP_conv, 2 + bias, v, n, a);
    return fe_scale_later(l->f, v[1], y, fan) ? y : NNC_NONE;
}

static bool divides(
    fe_layer *l, const char *key, const char *what, int64_t channels, int64_t groups)
{
    if (channels % groups == 0)
        return true;
    int64_t down = channels;
    for (down = nnc_min64(groups, channels); channels % down; down--)
        ;
    return fe_bad(l, key,
               "%s: %lld groups do not divide the %lld %s channels; the nearest below that does is "
               "%lld",
               l->row.name, (long long)groups, (long long)channels, what,
               (long long)down) != NNC_NONE;
}

nnc_ref fe_build_conv(fe_layer *l)
{
    window w;
    int64_t channels = 0, groups = 1;
    if (!fe_int(l, "channels", 1, INT32_MAX, &channels) ||
        !fe_int(l, "groups", 1, INT32_MAX, &groups) || !read_window(l, &w, false, false) ||
        !divides(l, "groups", "input", in_type(l)->dim[1], groups) ||
        !divides(l, "groups", "output", channels, groups))
        return NNC_NONE;
    return conv_with(l, &w, channels, groups);
}

nnc_ref fe_build_depthwise(fe_layer *l)
{
    window w;
    int64_t many = 1, channels;
    if (!fe_int(l, "multiplier", 1, INT32_MAX, &many) || !read_window(l, &w, false, false))
        return NNC_NONE;
    int64_t in = in_type(l)->dim[1];
    if (!nnc_mul_ok(in, many, &channels))
        return fe_bad(l, "multiplier", "multiplier: too many channels");
    return conv_with(l, &w, channels, in);
}

nnc_ref fe_build_deconv(fe_layer *l)
{
    window w;
    int64_t channels = 0, groups = 1, extra[3] = {0};
    bool bias = true;
    if (!fe_int(l, "channels", 1, INT32_MAX, &channels) ||
        !fe_int(l, "groups", 1, INT32_MAX, &groups) || !read_window(l, &w, false, true) ||
        !divides(l, "groups", "input", in_type(l)->dim[1], groups) ||
        !divides(l, "groups", "output", channels, groups) ||
        !fe_spatial(l, "output_padding", w.n, 0, extra) || !fe_bool(l, "bias", &bias))
        return NNC_NONE;
    const nnc_type x = *in_type(l);
    int64_t d[5] = {x.dim[1], channels / groups};
    int64_t group_in = x.dim[1] / groups;
    double fan = (double)group_in;
    for (int i = 0; i < w.n; i++) {
        d[2 + i] = w.kernel[i];
        fan *= (double)nnc_ceildiv(w.kernel[i], w.stride[i]);
    }
    nnc_type wt = nnc_type_make((nnc_dtype)x.dtype, x.rank, d),
             bt = nnc_type_make((nnc_dtype)x.dtype, 1, &channels);
    nnc_ref v[3] = {l->in[0], fe_weight(l, "weight", &wt, 1, 0), NNC_NONE};
    if (bias)
        v[2] = fe_weight(l, "bias", &bt, 0.05f, 0);
    nnc_attr a[5];
    int n = window_attrs(&w, a);
    if (groups != 1)
        a[n++] = nnc_ai(AT_groups, groups);
    if (any_not(extra, w.n, 0))
        a[n++] = nnc_av(AT_output_padding, w.n, extra);
    nnc_ref y = nnc_build(l->f->g, OP_conv_transpose, 2 + bias, v, n, a);
    return fe_scale_later(l->f, v[1], y, fan) ? y : NNC_NONE;
}

nnc_ref fe_build_pool(fe_layer *l)
{
    window w;
    bool whole = false, avg = !strcmp(l->row.name, "avgpool");
    nnc_attr a[6];
    if (!read_window(l, &w, true, false) || !fe_bool(l, "count_include_pad", &whole))
        return NNC_NONE;
    for (int i = 0; i < w.n; i++) {
        int64_t reach = (w.kernel[i] - 1) * w.dilation[i] + 1;
        if (w.pad[i] >= reach || w.pad[w.n + i] >= reach)
            return fe_bad(l, "pad",
                "%s: pad %lld is not smaller than the window's extent %lld: a window would see "
                "padding alone",
                l->row.name, (long long)nnc_max64(w.pad[i], w.pad[w.n + i]), (long long)reach);
    }
    int n = window_attrs(&w, a);
    a[n++] = nnc_av(AT_kernel, w.n, w.kernel);
    if (w.ceil)
        a[n++] = nnc_ai(AT_ceil_mode, 1);
    if (whole)
        a[n++] = nnc_ai(AT_count_include_pad, 1);
    return nnc_build(l->f->g, avg ? OP_avgpool : OP_maxpool, 1, l->in, n, a);
}

nnc_ref fe_build_linear(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t d[2] = {0, 0};
    bool bias = true;
    if (!fe_int(l, "out", 1, INT32_MAX, &d[0]) || !fe_bool(l, "bias", &bias))
        return NNC_NONE;
    if (x.rank < 1)
        return fe_bad(
            l, NULL, "linear expects an input with features, found %s", fe_type_text(l->f, &x));
    d[1] = x.dim[x.rank - 1];
    nnc_type wt = nnc_type_make((nnc_dtype)x.dtype, 2, d),
             bt = nnc_type_make((nnc_dtype)x.dtype, 1, d);
    nnc_ref v[3] = {l->in[0], fe_weight(l, "weight", &wt, 1, 0), NNC_NONE};
    if (bias)
        v[2] = fe_weight(l, "bias", &bt, 0.05f, 0);
    nnc_ref y = nnc_build(l->f->g, OP_linear, 2 + bias, v, 0, NULL);
    return fe_scale_later(l->f, v[1], y, (double)d[1]) ? y : NNC_NONE;
}

static bool read_eps(fe_layer *l, nnc_attr *a, int *n)
{
    double eps = 1e-5;
    if (!fe_key(l, "eps"))
        return true;
    if (!fe_float(l, "eps", &eps))
        return false;
    if (!(eps >= 0 && eps <= 1))
        return fe_bad(l, "eps", "eps: expected a number from 0 to 1, found %g", eps) != NNC_NONE;
    a[(*n)++] = nnc_af(AT_eps, eps);
    return true;
}

static bool need_channels(fe_layer *l)
{
    const nnc_type *x = in_type(l);
    return x->rank >= 2 || fe_bad(l, NULL, "%s expects an input with batch and channels, found %s",
                               l->row.name, fe_type_text(l->f, x)) != NNC_NONE;
}

nnc_ref fe_build_batchnorm(fe_layer *l)
{
    nnc_attr a[1];
    int n = 0;
    if (!need_channels(l) || !read_eps(l, a, &n))
        return NNC_NONE;
    const nnc_type x = *in_type(l);
    nnc_type t = nnc_type_make((nnc_dtype)x.dtype, 1, &x.dim[1]);
    nnc_ref v[5] = {l->in[0], fe_weight(l, "weight", &t, 0.1f, 1),
        fe_weight(l, "bias", &t, 0.1f, 0), fe_weight(l, "running_mean", &t, 0.1f, 0),
        fe_weight(l, "running_var", &t, 0.2f, 1)};
    return nnc_build(l->f->g, OP_batchnorm, 5, v, n, a);
}

/* layernorm, rmsnorm, groupnorm: weights over the normalised dimensions, or one per channel. */
nnc_ref fe_build_norm(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    nnc_op op = !strcmp(l->row.name, "layernorm") ? OP_layernorm
                : !strcmp(l->row.name, "rmsnorm") ? OP_rmsnorm
                                                  : OP_groupnorm;
    nnc_attr a[2];
    int n = 0, m = 1;
    bool affine = true;
    nnc_type t;
    if (op == OP_groupnorm) {
        int64_t groups = 1;
        if (!need_channels(l) || !fe_int(l, "groups", 1, INT32_MAX, &groups) ||
            !divides(l, "groups", "input", x.dim[1], groups))
            return NNC_NONE;
        a[n++] = nnc_ai(AT_num_groups, groups);
        t = nnc_type_make((nnc_dtype)x.dtype, 1, &x.dim[1]);
    } else {
        int64_t axis = -1;
        if (x.rank == 0)
            return fe_bad(l, NULL, "%s expects an input with dimensions, found %s", l->row.name,
                fe_type_text(l->f, &x));
        if (!fe_axis(l, "axis", x.rank, &axis))
            return NNC_NONE;
        a[n++] = nnc_ai(AT_axis, axis);
        t = nnc_type_make((nnc_dtype)x.dtype, x.rank - (int)axis, &x.dim[axis]);
    }
    if (!read_eps(l, a, &n) || !fe_bool(l, "affine", &affine))
        return NNC_NONE;
    nnc_ref v[3] = {l->in[0], NNC_NONE, NNC_NONE};
    if (affine) {
        v[m++] = fe_weight(l, "weight", &t, 0.1f, 1);
        if (op != OP_rmsnorm)
            v[m++] = fe_weight(l, "bias", &t, 0.1f, 0);
    }
    return nnc_build(l->f->g, op, m, v, n, a);
}

nnc_ref fe_build_prelu(fe_layer *l)
{
    if (!need_channels(l))
        return NNC_NONE;
    const nnc_type x = *in_type(l);
    int64_t d[NNC_MAX_RANK];
    nnc_type t = nnc_type_make((nnc_dtype)x.dtype, 1, &x.dim[1]);
    nnc_ref slope = fe_weight(l, "weight", &t, 0.1f, 0.25f);
    for (int i = 0; i < x.rank - 1; i++)
        d[i] = i == 0 ? x.dim[1] : 1;
    if (x.rank > 2)
        slope = nnc_reshape(l->f->g, slope, x.rank - 1, d);
    return nnc_build2(l->f->g, OP_prelu, l->in[0], slope);
}

nnc_ref fe_build_embedding(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t d[2] = {1, 1};
    if (!fe_int(l, "rows", 1, FE_MAX_DIM, &d[0]) || !fe_int(l, "channels", 1, INT32_MAX, &d[1]))
        return NNC_NONE;
    nnc_dkind k = nnc_dtype_kind((nnc_dtype)x.dtype);
    if (k != NNC_INT && k != NNC_UINT)
        return fe_bad(l, NULL,
            "embedding expects integer indices, found %s; give the input \"dtype\": \"i64\" or "
            "\"i32\"",
            fe_type_text(l->f, &x));
    nnc_dtype dt = l->dtype >= 0 ? (nnc_dtype)l->dtype : DT_f32;
    nnc_type t = nnc_type_make(dt, 2, d);
    nnc_ref v[2] = {fe_weight(l, "weight", &t, 1.7320508f, 0), l->in[0]};
    nnc_attr a = nnc_ai(AT_axis, 0);
    return nnc_build(l->f->g, OP_gather, 2, v, 1, &a);
}

static bool read_layer_shape(fe_layer *l, nnc_type *t)
{
    nnc_dtype dt = l->dtype >= 0 ? (nnc_dtype)l->dtype : DT_f32;
    const cJSON *v = fe_key(l, "shape");
    *t = nnc_type_make(dt, 0, NULL);
    return !v || fe_read_shape(l->f, v, l->path, l->ctx->env, dt, t);
}

nnc_ref fe_build_param(fe_layer *l)
{
    nnc_type t;
    double scale = 1;
    if (!read_layer_shape(l, &t) || !fe_float(l, "scale", &scale))
        return NNC_NONE;
    if (!(scale >= 0 && scale <= 1e30))
        return fe_bad(l, "scale", "scale: expected a number from 0 to 1e30, found %g", scale);
    return fe_weight(l, NULL, &t, (float)scale, 0);
}

nnc_ref fe_build_constant(fe_layer *l)
{
    nnc_type t;
    double v = 0;
    if (!read_layer_shape(l, &t) || !fe_number(l, "value", (nnc_dtype)t.dtype, "the constant", &v))
        return NNC_NONE;
    nnc_ref r = nnc_scalar(l->f->g, (nnc_dtype)t.dtype, v);
    return t.rank ? nnc_broadcast(l->f->g, r, t.rank, t.dim) : r;
}

nnc_ref fe_build_iota(fe_layer *l)
{
    nnc_type t;
    int64_t dim = 0;
    if (!read_layer_shape(l, &t))
        return NNC_NONE;
    if (t.rank == 0)
        return fe_bad(l, "shape", "iota: expected a shape with a dimension to count along");
    if (!fe_axis(l, "dim", t.rank, &dim))
        return NNC_NONE;
    nnc_attr a = nnc_ai(AT_dim, dim);
    return nnc_build_typed(l->f->g, OP_iota, 0, NULL, 1, &a, &t);
}

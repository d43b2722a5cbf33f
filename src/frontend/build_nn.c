/* frontend/build_nn.c -- builders of layers with weights, windows and norms: each checks and normalises an fe_spec, then adds a few
 * nodes. Errors that shape inference detects too are left to it; it reports them at the layer's location. */
#include "frontend/internal.h"
#include <assert.h>
#include <string.h>

/* The numbers of a window for each of n spatial dimensions. */
typedef struct window {
    int n;
    int64_t kernel[3], stride[3], pad[6], dilation[3], output_padding[3];
} window;

/* Reads one number for all spatial dimensions, or one each; `usual` where the layer has no such key. */
static bool spread(fe_layer *l, fe_key key, int n, int64_t usual, int64_t out[3])
{
    const fe_list *v = (const fe_list *)((const char *)&l->s + fe_keys[key].at);
    bool each = v->n > 0 && !v->one;
    if (each && v->n != n)
        return FE_FALSE(l, fe_keys[key].name,
            "%s: expected one number, or %d (one per spatial dimension of the input), found "
            "%d",
            fe_keys[key].name, n, v->n);
    for (int i = 0; i < n; i++)
        out[i] = v->n > 0 ? v->v[each ? i : 0] : usual;
    return true;
}

/* "same" padding keeps ceil(extent / stride), as ONNX's SAME_UPPER (TensorFlow's "same") and SAME_LOWER. */
static bool make_pad(fe_layer *l, window *w)
{
    const fe_list *p = &l->s.pad;
    if (p->n < 0 && l->row.op == OP_conv_transpose)
        return FE_FALSE(l, "pad", "pad: conv_transpose takes numbers, not \"same\"");
    if ((p->n > 0 || fe_has(l, FK_pad)) && p->n >= 0 && !p->one && p->n != w->n && p->n != 2 * w->n)
        return FE_FALSE(l, "pad",
            "pad: expected \"same\", one number, %d (one per spatial dimension) or %d "
            "(begins, then "
            "ends), found %d",
            w->n, 2 * w->n, p->n);
    for (int i = 0; i < 2 * w->n && p->n > 0; i++)
        w->pad[i] = p->v[p->one ? 0 : i % p->n];
    for (int i = 0; i < w->n && p->n < 0; i++) {
        assert(w->stride[i] > 0); /* by the table of keys */
        int64_t in = fe_in_type(l)->dim[2 + i], out = nnc_ceildiv(in, w->stride[i]);
        int64_t need =
            nnc_max64((out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - in, 0);
        w->pad[i] = p->n == FE_SAME_LOWER ? need - need / 2 : need / 2;
        w->pad[w->n + i] = need - w->pad[i];
    }
    return true;
}

static bool window_fits(fe_layer *l, const window *w)
{
    const nnc_type *x = fe_in_type(l);
    int64_t padded[3], extent[3], more = 0;
    bool small = false, dilated = false;
    for (int i = 0; i < w->n; i++) {
        padded[i] = x->dim[2 + i] + w->pad[i] + w->pad[w->n + i];
        extent[i] = (w->kernel[i] - 1) * w->dilation[i] + 1;
        small |= extent[i] >
                 padded[i] + (l->s.ceil ? w->stride[i] - 1 : 0); /* may extend beyond the end */
        dilated |= w->dilation[i] > 1;
        more = nnc_max64(more, w->pad[i] + (extent[i] - padded[i] + 1) / 2);
    }
    if (!small)
        return true;
    const char *with = dilated ? nnc_arena_printf(&l->f->a, " (%s with its dilation)",
                                     fe_dims_text(l->f, w->n, extent))
                               : "";
    return FE_FALSE(l, "kernel",
        "%s kernel %s%s is larger than its padded input %s: expected a kernel of at most "
        "that, or \"pad\" "
        "of at least %lld",
        l->row.name, fe_dims_text(l->f, w->n, w->kernel), with ? with : "",
        fe_dims_text(l->f, w->n, padded), (long long)more);
}

static bool make_window(fe_layer *l, window *w)
{
    const nnc_type *x = fe_in_type(l);
    *w = (window){.n = x->rank - 2};
    if (x->rank < 3 || x->rank > 5)
        return FE_FALSE(l, NULL,
            "%s expects an input with batch, channels and 1 to 3 spatial dimensions, found "
            "%s%s",
            l->row.name, fe_type_text(l->f, x),
            x->rank == 2 ? "; is this after flatten or linear?" : "");
    if (!spread(l, FK_kernel, w->n, 1, w->kernel) || !spread(l, FK_stride, w->n, 1, w->stride) ||
        !spread(l, FK_dilation, w->n, 1, w->dilation) ||
        !spread(l, FK_output_padding, w->n, 0, w->output_padding))
        return false;
    if (l->s.stride.n == 0) /* pooling */
        memcpy(w->stride, w->kernel, sizeof w->stride);
    return make_pad(l, w) && (l->row.op == OP_conv_transpose || window_fits(l, w));
}

/* Appends the attribute unless all its numbers have the usual value. */
static int put_attr(nnc_attr *a, int n, nnc_akey key, int n_v, const int64_t *v, int64_t usual)
{
    for (int i = 0; i < n_v; i++)
        if (v[i] != usual) {
            a[n] = nnc_av(key, n_v, v);
            return n + 1;
        }
    return n;
}

static int window_attrs(const window *w, nnc_attr *a)
{
    int n = put_attr(a, 0, AT_strides, w->n, w->stride, 1);
    n = put_attr(a, n, AT_pads, 2 * w->n, w->pad, 0);
    return put_attr(a, n, AT_dilations, w->n, w->dilation, 1);
}

static bool divides(fe_layer *l, const char *what, int64_t channels, int64_t groups)
{
    int64_t down = nnc_min64(groups, channels);
    if (channels % groups == 0)
        return true;
    while (channels % down)
        down--;
    return FE_FALSE(l, "groups",
        "%s: %lld groups do not divide the %lld %s channels; the nearest below that does is "
        "%lld",
        l->row.name, (long long)groups, (long long)channels, what, (long long)down);
}

/* Adds the contraction of x with a weight of shape d, and a bias of `out` elements if wanted. */
static nnc_ref contract(fe_layer *l, int rank, const int64_t *d, int64_t out, double fan_in,
    int n_attr, const nnc_attr *attr)
{
    nnc_dtype dt = fe_in_type(l)->dtype;
    nnc_type wt = nnc_type_make(dt, rank, d), bt = nnc_type_make(dt, 1, &out);
    nnc_ref v[3] = {l->in[0], fe_weight(l, "weight", &wt, 1, 0), NNC_NONE};
    if (l->s.bias)
        v[2] = fe_weight(l, "bias", &bt, 0.05f, 0);
    nnc_ref y = nnc_build(l->f->g, l->row.op, 2 + l->s.bias, v, n_attr, attr);
    return fe_scale_later(l->f, v[1], y, fan_in) ? y : NNC_NONE;
}

nnc_ref fe_build_conv(fe_layer *l)
{
    window w;
    nnc_attr a[5];
    bool back = l->row.op == OP_conv_transpose, depthwise = fe_row_takes(&l->row, FK_multiplier);
    if (!make_window(l, &w))
        return NNC_NONE;
    int64_t in = fe_in_type(l)->dim[1], groups = depthwise ? in : l->s.groups,
            channels = l->s.channels;
    if (depthwise && !nnc_mul_ok(in, l->s.multiplier, &channels))
        return fe_bad(l, "multiplier", "multiplier: too many channels");
    if (!divides(l, "input", in, groups) || !divides(l, "output", channels, groups))
        return NNC_NONE;
    int64_t d[5] = {back ? in : channels, (back ? channels : in) / groups};
    const int64_t group_channels = in / groups;
    double fan_in = (double)group_channels;
    for (int i = 0; i < w.n; i++) {
        d[2 + i] = w.kernel[i];
        assert(w.stride[i] > 0);
        fan_in *= (double)(back ? nnc_ceildiv(w.kernel[i], w.stride[i]) : w.kernel[i]);
    }
    int n = put_attr(a, window_attrs(&w, a), AT_output_padding, w.n, w.output_padding, 0);
    if (groups != 1)
        a[n++] = nnc_ai(AT_groups, groups);
    return contract(l, 2 + w.n, d, channels, fan_in, n, a);
}

nnc_ref fe_build_linear(fe_layer *l)
{
    const nnc_type x = *fe_in_type(l);
    if (x.rank < 1)
        return fe_bad(
            l, NULL, "linear expects an input with features, found %s", fe_type_text(l->f, &x));
    int64_t d[2] = {l->s.out, x.dim[x.rank - 1]};
    return contract(l, 2, d, d[0], (double)d[1], 0, NULL);
}

nnc_ref fe_build_pool(fe_layer *l)
{
    window w;
    nnc_attr a[6];
    if (!make_window(l, &w))
        return NNC_NONE;
    for (int i = 0; i < w.n; i++) {
        int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1,
                most = nnc_max64(w.pad[i], w.pad[w.n + i]);
        if (most >= extent)
            return fe_bad(l, "pad",
                "%s: pad %lld is not smaller than the window's extent %lld: a window would see "
                "padding alone",
                l->row.name, (long long)most, (long long)extent);
    }
    int n = window_attrs(&w, a);
    a[n++] = nnc_av(AT_kernel, w.n, w.kernel);
    if (l->s.ceil)
        a[n++] = nnc_ai(AT_ceil_mode, 1);
    if (l->s.count_include_pad)
        a[n++] = nnc_ai(AT_count_include_pad, 1);
    return nnc_build(l->f->g, l->row.op, 1, l->in, n, a);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Appends eps if given. */
static bool put_eps(fe_layer *l, nnc_attr *a, int *n)
{
    if (!(l->s.eps >= 0 && l->s.eps <= 1))
        return FE_FALSE(l, "eps", "eps: expected a number from 0 to 1, found %g", l->s.eps);
    if (fe_has(l, FK_eps))
        a[(*n)++] = nnc_af(AT_eps, l->s.eps);
    return true;
}

static bool need_channels(fe_layer *l)
{
    const nnc_type *x = fe_in_type(l);
    return x->rank >= 2 ||
           FE_FALSE(l, NULL, "%s expects an input with batch and channels, found %s", l->row.name,
               fe_type_text(l->f, x));
}

nnc_ref fe_build_batchnorm(fe_layer *l)
{
    nnc_attr a[2];
    int n = 0;
    if (!need_channels(l) || !put_eps(l, a, &n))
        return NNC_NONE;
    if (strcmp(l->s.bn, "auto") != 0)
        a[n++] = nnc_aw(AT_bn, l->s.bn);
    const nnc_type x = *fe_in_type(l);
    nnc_type t = nnc_type_make(x.dtype, 1, &x.dim[1]);
    nnc_ref v[5] = {l->in[0], NNC_NONE, NNC_NONE};
    for (int i = 0; i < 2; i++)
        v[1 + i] = l->s.affine
                       ? fe_weight(l, i ? "bias" : "weight", &t, 0.1f, i ? 0 : 1)
                       : nnc_broadcast(l->f->g, nnc_scalar(l->f->g, x.dtype, i ? 0 : 1), 1, t.dim);
    v[3] = fe_weight(l, "running_mean", &t, 0.1f, 0);
    v[4] = fe_weight(l, "running_var", &t, 0.2f, 1);
    return nnc_build(l->f->g, OP_batchnorm, 5, v, n, a);
}

/* layernorm, rmsnorm, groupnorm: weights over the normalised dimensions, or one per channel. */
nnc_ref fe_build_norm(fe_layer *l)
{
    const nnc_type x = *fe_in_type(l);
    nnc_attr a[2];
    int n = 0, m = 1;
    int64_t from = l->s.axis;
    nnc_type t = nnc_type_make(x.dtype, 1, &x.dim[1]);
    if (l->row.op == OP_groupnorm) {
        if (!need_channels(l) || !divides(l, "input", x.dim[1], l->s.groups))
            return NNC_NONE;
        a[n++] = nnc_ai(AT_num_groups, l->s.groups);
    } else {
        if (x.rank == 0)
            return fe_bad(l, NULL, "%s expects an input with dimensions, found %s", l->row.name,
                fe_type_text(l->f, &x));
        if (!fe_axis(l, "axis", x.rank, &from))
            return NNC_NONE;
        a[n++] = nnc_ai(AT_axis, from);
        t = nnc_type_make(x.dtype, x.rank - (int)from, &x.dim[from]);
    }
    if (!put_eps(l, a, &n))
        return NNC_NONE;
    nnc_ref v[3] = {l->in[0], NNC_NONE, NNC_NONE};
    if (l->s.affine)
        v[m++] = fe_weight(l, "weight", &t, 0.1f, 1);
    if (l->s.affine && l->row.op != OP_rmsnorm && (l->s.bias || !fe_row_takes(&l->row, FK_bias)))
        v[m++] = fe_weight(l, "bias", &t, 0.1f, 0);
    return nnc_build(l->f->g, l->row.op, m, v, n, a);
}

nnc_ref fe_build_prelu(fe_layer *l)
{
    if (!need_channels(l))
        return NNC_NONE;
    const nnc_type x = *fe_in_type(l);
    int64_t n = fe_has(l, FK_slopes) ? l->s.slopes : x.dim[1], d[NNC_MAX_RANK];
    if (n != 1 && n != x.dim[1])
        return fe_bad(l, "slopes", "slopes: expected 1 or %lld (one per channel), found %lld",
            (long long)x.dim[1], (long long)n);
    nnc_type t = nnc_type_make(x.dtype, 1, &n);
    nnc_ref slope = fe_weight(l, "weight", &t, 0.1f, 0.25f);
    for (int i = 0; i < x.rank - 1; i++)
        d[i] = i == 0 ? n : 1;
    if (x.rank > 2 && n > 1)
        slope = nnc_reshape(l->f->g, slope, x.rank - 1, d);
    return nnc_build2(l->f->g, OP_prelu, l->in[0], slope);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

nnc_ref fe_build_embedding(fe_layer *l)
{
    const nnc_type x = *fe_in_type(l);
    int64_t d[2] = {l->s.rows, l->s.channels};
    nnc_dkind k = nnc_dtype_kind(x.dtype);
    if (k != NNC_INT && k != NNC_UINT)
        return fe_bad(l, NULL,
            "embedding expects integer indices, found %s; give the input \"dtype\": \"i64\" or "
            "\"i32\"",
            fe_type_text(l->f, &x));
    nnc_type t = nnc_type_make(l->dtype >= 0 ? l->dtype : DT_f32, 2, d);
    nnc_ref v[2] = {fe_weight(l, "weight", &t, 1.7320508f, 0), l->in[0]};
    nnc_attr a = nnc_ai(AT_axis, 0);
    return nnc_build(l->f->g, OP_gather, 2, v, 1, &a);
}

/* The type that "shape" and "dtype" of a layer without inputs state. */
static bool make_type(fe_layer *l, nnc_type *t)
{
    const fe_list *s = &l->s.shape;
    const char *why;
    if (s->n > NNC_MAX_RANK)
        return FE_FALSE(
            l, "shape", "shape: %d dimensions; expected at most %d", s->n, NNC_MAX_RANK);
    for (int i = 0; i < s->n; i++)
        if (s->v[i] < 1)
            return FE_FALSE(l, "shape", "shape: %lld: expected at least 1", (long long)s->v[i]);
    *t = nnc_type_make(l->dtype >= 0 ? l->dtype : DT_f32, s->n, s->v);
    return nnc_type_check(t, &why) || FE_FALSE(l, "shape", "shape: %s", why);
}

nnc_ref fe_build_param(fe_layer *l)
{
    nnc_type t;
    if (!make_type(l, &t))
        return NNC_NONE;
    if (!(l->s.scale >= 0 && l->s.scale <= 1e30))
        return fe_bad(l, "scale", "scale: expected a number from 0 to 1e30, found %g", l->s.scale);
    return fe_weight(l, NULL, &t, (float)l->s.scale, 0);
}

nnc_ref fe_build_constant(fe_layer *l)
{
    nnc_type t = {0};
    if (!make_type(l, &t) || !fe_fits(l, "value", l->s.value, t.dtype, "the constant"))
        return NNC_NONE;
    nnc_ref r = nnc_scalar(l->f->g, t.dtype, l->s.value);
    return t.rank ? nnc_broadcast(l->f->g, r, t.rank, t.dim) : r;
}

nnc_ref fe_build_iota(fe_layer *l)
{
    nnc_type t = {0};
    int64_t dim = l->s.dim;
    if (!make_type(l, &t))
        return NNC_NONE;
    if (t.rank == 0)
        return fe_bad(l, "shape", "iota: expected a shape with a dimension to count along");
    if (!fe_axis(l, "dim", t.rank, &dim))
        return NNC_NONE;
    nnc_attr a = nnc_ai(AT_dim, dim);
    return nnc_build_typed(l->f->g, OP_iota, 0, NULL, 1, &a, &t);
}

/* tests/cudnn/oracle.c -- see oracle.h. The oracle is written for obviousness: every output
 * element by itself. */
#include "oracle.h"
#include <math.h>
#include <stdlib.h>

/* ---- making calls ---------------------------------------------------------------------------- */

void call_fix_dst(nnc_call *c)
{
    for (int d = 0; d < c->spatial; d++) {
        int64_t reach = (c->kernel[d] - 1) * c->dilation[d] + 1, in = c->src.dim[2 + d];
        c->dst.dim[2 + d] = c->kind == CALL_conv_transpose
                                ? (in - 1) * c->stride[d] + reach - c->pad_lo[d] - c->pad_hi[d]
                                : (in + c->pad_lo[d] + c->pad_hi[d] - reach) / c->stride[d] + 1;
    }
}

static void fill_window(nnc_call *c, int spatial, int64_t n, int64_t ch, int64_t size,
    int64_t kernel, int64_t stride, int64_t pad)
{
    int64_t dim[5] = {n, ch, size, size, size};
    c->spatial = (uint8_t)spatial;
    c->groups = 1;
    c->src = c->dst = nnc_type_make(DT_f32, spatial + 2, dim);
    for (int d = 0; d < spatial; d++) {
        c->kernel[d] = kernel;
        c->stride[d] = stride;
        c->dilation[d] = 1;
        c->pad_lo[d] = c->pad_hi[d] = pad;
    }
}

nnc_call conv_call(int spatial, int64_t n, int64_t ch, int64_t size, int64_t k, int64_t kernel,
    int64_t stride, int64_t pad)
{
    nnc_call c = {.kind = CALL_conv};
    int64_t dim[5] = {k, ch, kernel, kernel, kernel};
    fill_window(&c, spatial, n, ch, size, kernel, stride, pad);
    c.wei = nnc_type_make(DT_f32, spatial + 2, dim);
    c.dst.dim[1] = k;
    call_fix_dst(&c);
    return c;
}

nnc_call matmul_call(int64_t m, int64_t n, int64_t k, bool trans_b)
{
    nnc_call c = {.kind = CALL_matmul, .trans_b = trans_b};
    c.src = nnc_type_make(DT_f32, 2, (int64_t[]){m, k});
    c.wei = nnc_type_make(DT_f32, 2, trans_b ? (int64_t[]){n, k} : (int64_t[]){k, n});
    c.dst = nnc_type_make(DT_f32, 2, (int64_t[]){m, n});
    return c;
}

void call_dtype(nnc_call *c, nnc_dtype d)
{
    c->src.dtype = c->wei.dtype = c->dst.dtype = (uint8_t)d;
    if (c->has_bias)
        c->bias.dtype = (uint8_t)d;
}

void call_bias(nnc_call *c)
{
    int64_t n = c->kind == CALL_matmul ? c->dst.dim[c->dst.rank - 1] : c->dst.dim[1];
    c->has_bias = true;
    c->bias = nnc_type_make((nnc_dtype)c->dst.dtype, 1, &n);
}

void call_post(nnc_call *c, nnc_post_kind kind)
{
    c->post[c->n_post++] = (nnc_post){.kind = (uint8_t)kind, .in_place = kind == PO_sum};
}

void call_channels_last(nnc_call *c)
{
    nnc_type_channels_last(&c->src);
    nnc_type_channels_last(c->kind == CALL_conv_wgrad ? &c->wei : &c->dst);
}

void call_wgrad(nnc_call *c)
{
    const nnc_type weights = c->wei;
    c->kind = CALL_conv_wgrad;
    c->wei = c->dst;
    c->dst = weights;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

typedef struct operands {
    void *src, *wei, *bias, *sum[NNC_MAX_POST], *dst;
    int64_t xs[NNC_MAX_RANK], ws[NNC_MAX_RANK], ys[NNC_MAX_RANK]; /* strides */
} operands;

static double at(const nnc_type *t, const int64_t *stride, const void *p, const int64_t *i)
{
    int64_t off = 0;
    for (int d = 0; d < t->rank; d++)
        off += i[d] * stride[d];
    return nnc_is_float((nnc_dtype)t->dtype) ? nnc_get_f64((nnc_dtype)t->dtype, p, off)
                                             : (double)nnc_get_i64((nnc_dtype)t->dtype, p, off);
}

static double post(const nnc_post *p, double v, double sum)
{
    switch (p->kind) {
    case PO_sum: return v + sum;
    case PO_relu: return v < 0 ? 0 : v;
    case PO_gelu_tanh: return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    default: return NAN;
    }
}

static double matmul_at(const nnc_call *c, const operands *o, const int64_t *y)
{
    int64_t a[NNC_MAX_RANK], b[NNC_MAX_RANK], ra = c->src.rank, rb = c->wei.rank, rc = c->dst.rank;
    int64_t K = c->src.dim[ra - (c->trans_a ? 2 : 1)];
    double v = 0;
    for (int64_t k = 0; k < K; k++) {
        for (int d = 0; d < ra - 2; d++)
            a[d] = c->src.dim[d] == 1 ? 0 : y[d + rc - ra];
        for (int d = 0; d < rb - 2; d++)
            b[d] = c->wei.dim[d] == 1 ? 0 : y[d + rc - rb];
        a[ra - 2] = c->trans_a ? k : y[rc - 2];
        a[ra - 1] = c->trans_a ? y[rc - 2] : k;
        b[rb - 2] = c->trans_b ? y[rc - 1] : k;
        b[rb - 1] = c->trans_b ? k : y[rc - 1];
        v += at(&c->src, o->xs, o->src, a) * at(&c->wei, o->ws, o->wei, b);
    }
    return v;
}

/* Sum over all images and places of the gradient of the result. */
static double wgrad_at(const nnc_call *c, const operands *o, const int64_t *w)
{
    const nnc_type *dy = &c->wei;
    double v = 0;
    for (int64_t i = 0; i < nnc_type_numel(dy) / dy->dim[1]; i++) {
        int64_t x[NNC_MAX_RANK], y[NNC_MAX_RANK], rest = i;
        bool inside = true;
        for (int d = c->spatial - 1; d >= 0; d--) {
            y[2 + d] = rest % dy->dim[2 + d];
            rest /= dy->dim[2 + d];
            x[2 + d] = y[2 + d] * c->stride[d] + w[2 + d] * c->dilation[d] - c->pad_lo[d];
            inside = inside && x[2 + d] >= 0 && x[2 + d] < c->src.dim[2 + d];
        }
        x[0] = y[0] = rest;
        y[1] = w[0];
        x[1] = w[0] / (dy->dim[1] / c->groups) * c->dst.dim[1] + w[1];
        if (inside)
            v += at(&c->src, o->xs, o->src, x) * at(dy, o->ws, o->wei, y);
    }
    return v;
}

/* Sum over all taps and input channels of the group. */
static double window_at(const nnc_call *c, const operands *o, const int64_t *y)
{
    const bool t = c->kind == CALL_conv_transpose;
    const int64_t ocg = c->dst.dim[1] / c->groups, icg = c->src.dim[1] / c->groups, g = y[1] / ocg;
    int64_t taps = 1;
    double v = 0;
    for (int d = 0; d < c->spatial; d++)
        taps *= c->kernel[d];
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t x[NNC_MAX_RANK] = {y[0]}, w[NNC_MAX_RANK], rest = tap;
        bool inside = true;
        for (int d = c->spatial - 1; d >= 0; d--) {
            int64_t k = rest % c->kernel[d], p;
            rest /= c->kernel[d];
            w[2 + d] = k;
            p = t ? y[2 + d] + c->pad_lo[d] - k * c->dilation[d]
                  : y[2 + d] * c->stride[d] + k * c->dilation[d] - c->pad_lo[d];
            if (t && p % c->stride[d])
                inside = false;
            p = t ? p / c->stride[d] : p;
            inside = inside && p >= 0 && p < c->src.dim[2 + d] &&
                     (!t || y[2 + d] + c->pad_lo[d] - k * c->dilation[d] >= 0);
            x[2 + d] = p;
        }
        for (int64_t i = 0; inside && i < icg; i++) {
            x[1] = g * icg + i;
            w[0] = t ? x[1] : y[1];
            w[1] = t ? y[1] % ocg : i;
            v += at(&c->src, o->xs, o->src, x) * at(&c->wei, o->ws, o->wei, w);
        }
    }
    return v;
}

/* Integers live in their own type between steps. */
static double wrap(nnc_dtype d, double v)
{
    int64_t w = 0;
    if (nnc_is_float(d))
        return v;
    nnc_set_i64(d, &w, 0, (int64_t)v);
    return (double)nnc_get_i64(d, &w, 0);
}

static double expected(const nnc_call *c, const operands *o, const int64_t *y)
{
    nnc_dtype d = (nnc_dtype)c->dst.dtype;
    double v = c->kind == CALL_matmul       ? matmul_at(c, o, y)
               : c->kind == CALL_conv_wgrad ? wgrad_at(c, o, y)
                                            : window_at(c, o, y);
    if (c->has_bias)
        v +=
            at(&c->bias, (int64_t[]){1}, o->bias, &y[c->kind == CALL_matmul ? c->dst.rank - 1 : 1]);
    for (int p = 0; p < c->n_post; p++)
        v = post(&c->post[p], wrap(d, v),
            c->post[p].kind == PO_sum ? at(&c->dst, o->ys, o->sum[p], y) : 0);
    return wrap(d, v);
}

/* ---- running --------------------------------------------------------------------------------- */

call_operand call_nan_in = CALL_NONE;

enum { GUARD = 4096 }; /* bytes behind operands and workspace */

static void *random_operand(const nnc_type *t, uint64_t seed)
{
    int64_t n = nnc_type_numel(t);
    const size_t bytes = (size_t)nnc_align_up(nnc_type_bytes(t), 64);
    void *p = nnc_aligned_alloc(64, bytes + GUARD);
    memset(p, 0xff, bytes + GUARD); /* the bytes after it are NaN */
    uint64_t key = nnc_rng_key("operand", seed ^ test_seed);
    for (int64_t i = 0; i < n; i++) {
        double v = 2.0 * nnc_rng_uniform(key, (uint64_t)i) - 1;
        if (nnc_is_float((nnc_dtype)t->dtype))
            nnc_set_f64((nnc_dtype)t->dtype, p, i, v);
        else
            nnc_set_i64((nnc_dtype)t->dtype, p, i, (int64_t)(v * 5));
    }
    return p;
}

int64_t call_samples = 200;

/* In the middle, and in the middle of a kernel, which never lies on padding: there, libraries differ about 0 NaN. */
static void put_nan(const nnc_call *c, call_operand which, const nnc_type *t, void *p)
{
    int64_t taps = 1;
    for (int d = 0; which == CALL_WEI && d < c->spatial; d++)
        taps *= c->kernel[d];
    if (p && which == call_nan_in)
        nnc_set_f64((nnc_dtype)t->dtype, p, nnc_type_numel(t) / taps / 2 * taps + taps / 2, NAN);
}

int *call_found;

/* Large results by sample: a stride without a common factor with rows and channels. */
static void compare(const nnc_call *c, const operands *o, double tol, const char *what)
{
    int64_t n = nnc_type_numel(&c->dst), step = n > call_samples ? n / call_samples | 1 : 1,
            bad = 0;
    double largest = 0;
    for (int pass = 0; pass < 2; pass++) /* first the scale, then the comparison */
        for (int64_t i = 0; i < n; i += step) {
            int64_t y[NNC_MAX_RANK], rest = i;
            for (int d = c->dst.rank - 1; d >= 0; d--) {
                y[d] = rest % c->dst.dim[d];
                rest /= c->dst.dim[d];
            }
            double want = expected(c, o, y), got = at(&c->dst, o->ys, o->dst, y);
            if (pass == 0)
                largest = fmax(largest, fabs(want));
            else if (!(isnan(want) && isnan(got)) && !(fabs(want - got) <= tol * (1 + largest)) &&
                     bad++ < 3) {
                if (call_found)
                    ++*call_found;
                else
                    test_fail(__FILE__, __LINE__, "%s: element %lld is %.9g, not %.9g (seed %llu)",
                        what, (long long)i, got, want, (unsigned long long)test_seed);
            }
        }
}

static void run_twice(const nnc_engine *e, nnc_plan *p, const operands *o, void *work)
{
    void *args[16], *handle;
    int n = 0, sum = -1;
    const nnc_call *c = &p->call[0];
    args[n++] = o->src;
    args[n++] = o->wei;
    if (c->has_bias)
        args[n++] = o->bias;
    for (int i = 0; i < c->n_post; i++)
        if (c->post[i].kind == PO_sum && c->post[i].in_place)
            sum = i;
        else if (c->post[i].kind == PO_sum)
            args[n++] = o->sum[i];
    args[n++] = o->dst;
    nnc_team *team = NULL;
    nnc_status s = e->load_call(&(nnc_load){.plan = p, .item = 0}, &handle, test_sink);
    CHECK_OK(s);
    CHECK_OK(nnc_team_create(1, &team, test_sink));
    nnc_team_enter(team);
    for (int i = 0; i < 2 && s == NNC_OK; i++) {
        if (sum >= 0)
            memcpy(o->dst, o->sum[sum], (size_t)nnc_type_bytes(&c->dst));
        else
            memset(o->dst, 0x5a, (size_t)nnc_type_bytes(&c->dst));
        CHECK_OK(e->run(handle, args, work));
    }
    nnc_team_leave(team);
    nnc_team_destroy(team);
    if (s == NNC_OK)
        e->unload(handle);
}

bool call_check(const nnc_engine *e, const nnc_call *asked, double tol, const char *what)
{
    nnc_call call = *asked, *c = &call;
    nnc_plan p = {.call = c, .n_call = 1};
    nnc_choice choice;
    CHECK_OK(e->choose(c, &choice, test_sink));
    if (!choice.ok) {
        CHECK(choice.reason != NULL);
        return false;
    }
    c->work_bytes = choice.workspace_bytes;
    operands o = {.src = random_operand(&c->src, 1), .dst = random_operand(&c->dst, 9)};
    nnc_type_strides(&c->src, o.xs);
    nnc_type_strides(&c->wei, o.ws);
    nnc_type_strides(&c->dst, o.ys);
    o.wei = random_operand(&c->wei, 2);
    o.bias = c->has_bias ? random_operand(&c->bias, 3) : NULL;
    for (int i = 0; i < c->n_post; i++)
        o.sum[i] = c->post[i].kind == PO_sum ? random_operand(&c->dst, 4 + (uint64_t)i) : NULL;
    put_nan(c, CALL_SRC, &c->src, o.src);
    put_nan(c, CALL_WEI, &c->wei, o.wei);
    put_nan(c, CALL_BIAS, &c->bias, o.bias);
    for (int i = 0; i < c->n_post; i++)
        put_nan(c, CALL_SUM, &c->dst, o.sum[i]);
    void *work = nnc_aligned_alloc(64, (size_t)nnc_align_up(choice.workspace_bytes + GUARD, 64));
    /* a run must not read what it has not written, nor reach beyond what it asked for */
    memset(work, 0xff, (size_t)choice.workspace_bytes); /* NaN */
    memset((char *)work + choice.workspace_bytes, 0xa5, GUARD);
    run_twice(e, &p, &o, work);
    compare(c, &o, tol, what);
    for (int i = 0; i < GUARD; i++)
        if (((unsigned char *)work)[choice.workspace_bytes + i] != 0xa5) {
            test_fail(__FILE__, __LINE__, "%s: wrote beyond its workspace", what);
            break;
        }
    nnc_free(o.src);
    nnc_free(o.wei);
    nnc_free(o.bias);
    nnc_free(o.dst);
    nnc_free(work);
    for (int i = 0; i < c->n_post; i++)
        nnc_free(o.sum[i]);
    return true;
}

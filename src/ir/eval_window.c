/* ir/eval_window.c -- reference evaluation of argmaxpool and maxpool_grad, element by element. */
#include "ir/eval_internal.h"

typedef struct pooling {
    const nnc_node *n;
    const ev_arg *in;
    const ev_arg *out;
    int rank; /* spatial dimensions */
    int64_t x[3], y[3], kernel[3], stride[3], lo[3], dilation[3];
} pooling;

static pooling pooling_of(
    const nnc_node *n, const ev_arg *in, const ev_arg *out, const nnc_type *x, const nnc_type *y)
{
    const int64_t *kernel, *stride, *pads, *dilation;
    pooling p = {.n = n, .in = in, .out = out, .rank = x->rank - 2};
    nnc_attr_ints(n, AT_kernel, &kernel);
    int ns = nnc_attr_ints(n, AT_strides, &stride), np = nnc_attr_ints(n, AT_pads, &pads);
    int nd = nnc_attr_ints(n, AT_dilations, &dilation);
    for (int d = 0; d < p.rank; d++) {
        p.x[d] = x->dim[2 + d];
        p.y[d] = y->dim[2 + d];
        p.kernel[d] = kernel[d];
        p.stride[d] = ns ? stride[d] : 1;
        p.lo[d] = np ? pads[d] : 0;
        p.dilation[d] = nd ? dilation[d] : 1;
    }
    return p;
}

static int64_t product(const int64_t *v, int n)
{
    int64_t all = 1;
    for (int d = 0; d < n; d++)
        all *= v[d];
    return all;
}

/* Element `tap` of window `o`, both row-major: its place in a plane of x; -1: it is padding. */
static int64_t element(const pooling *p, int64_t o, int64_t tap)
{
    int64_t at = 0, step = 1;
    for (int d = p->rank - 1; d >= 0; d--) {
        int64_t i = o % p->y[d] * p->stride[d] - p->lo[d] + tap % p->kernel[d] * p->dilation[d];
        if (i < 0 || i >= p->x[d])
            return -1;
        at += i * step;
        step *= p->x[d];
        o /= p->y[d];
        tap /= p->kernel[d];
    }
    return at;
}

int64_t nnc_window_elements(
    const nnc_node *n, const nnc_type *x, const nnc_type *y, int64_t i, int64_t *at)
{
    const pooling p = pooling_of(n, NULL, NULL, x, y);
    const int64_t taps = product(p.kernel, p.rank), windows = product(p.y, p.rank);
    int64_t found = 0;
    for (int64_t t = 0; t < taps; t++) {
        const int64_t e = element(&p, i % windows, t);
        if (e >= 0)
            at[found++] = i / windows * product(p.x, p.rank) + e;
    }
    return found;
}

/* Is element b of operand 0 larger than a, the first NaN being largest? */
static bool larger(const pooling *p, int64_t a, int64_t b)
{
    nnc_dtype d = (nnc_dtype)p->in[0].type->dtype;
    if (!nnc_is_float(d))
        return d == DT_u64 ? p->in[0].w[b] > p->in[0].w[a] : p->in[0].i[b] > p->in[0].i[a];
    double x = p->in[0].f[a], y = p->in[0].f[b];
    return x == x && (y != y || y > x);
}

static nnc_status search(void *ctx, int64_t begin, int64_t end)
{
    const pooling *p = ctx;
    int64_t taps = product(p->kernel, p->rank), plane = product(p->x, p->rank);
    int64_t windows = product(p->y, p->rank);
    for (int64_t i = begin; i < end; i++) {
        int64_t base = i / windows * plane, best = -1, at = 0;
        for (int64_t t = 0; t < taps; t++) {
            int64_t e = element(p, i % windows, t);
            if (e < 0 || (best >= 0 && !larger(p, best, base + e)))
                continue;
            best = base + e;
            at = t;
        }
        p->out->i[i] = at;
    }
    return NNC_OK;
}

/* Planes begin..end-1. */
static nnc_status add_back(void *ctx, int64_t begin, int64_t end)
{
    const pooling *p = ctx;
    int64_t taps = product(p->kernel, p->rank), plane = product(p->x, p->rank);
    int64_t windows = product(p->y, p->rank);
    bool is_float = nnc_is_float((nnc_dtype)p->in[0].type->dtype);
    memset(p->out->w + begin * plane, 0, (size_t)((end - begin) * plane) * sizeof *p->out->w);
    for (int64_t i = begin * windows; i < end * windows; i++) {
        int64_t tap = p->in[1].i[i];
        int64_t e = tap < 0 || tap >= taps ? -1 : element(p, i % windows, tap);
        int64_t to = i / windows * plane + e;
        if (e >= 0 && is_float)
            p->out->f[to] += p->in[0].f[i];
        else if (e >= 0)
            p->out->i[to] = nnc_sop_eval_i64(
                SC_add, (nnc_dtype)p->in[0].type->dtype, p->out->i[to], p->in[0].i[i], 0);
    }
    return NNC_OK;
}

nnc_status ev_argmaxpool(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    pooling p = pooling_of(n, in, out, in[0].type, out->type);
    return ev_for(e, nnc_type_numel(out->type), 1, product(p.kernel, p.rank), search, &p);
}

nnc_status ev_maxpool_grad(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    pooling p = pooling_of(n, in, out, out->type, in[0].type);
    return ev_for(
        e, in[0].type->dim[0] * in[0].type->dim[1], 1, product(p.y, p.rank), add_back, &p);
}

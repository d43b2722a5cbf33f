/* ir/eval_window.c -- reference evaluation of argmaxpool and maxpool_grad, element by element. */
#include "ir/eval_internal.h"

typedef struct pooling {
    const ev_arg *in;
    const ev_arg *out;
    ev_window s;
} pooling;

static pooling pooling_of(
    const nnc_node *n, const ev_arg *in, const ev_arg *out, const nnc_type *x, const nnc_type *y)
{
    const int64_t *kernel;
    nnc_attr_ints(n, AT_kernel, &kernel);
    return (pooling){in, out, ev_window_shape(n, x, y, kernel)};
}

/* Element `tap` of window `o`, both row-major: its place in a plane of x; -1: it is padding. */
static int64_t element(const ev_window *s, int64_t o, int64_t tap)
{
    int64_t at = 0, step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        int64_t i = o % s->out[d] * s->stride[d] - s->begin[d] + tap % s->k[d] * s->dil[d];
        if (i < 0 || i >= s->in[d])
            return -1;
        at += i * step;
        step *= s->in[d];
        o /= s->out[d];
        tap /= s->k[d];
    }
    return at;
}

int64_t nnc_window_elements(
    const nnc_node *n, const nnc_type *x, const nnc_type *y, int64_t i, int64_t *at)
{
    const ev_window s = pooling_of(n, NULL, NULL, x, y).s;
    int64_t found = 0;
    for (int64_t t = 0; t < s.elements; t++) {
        const int64_t e = element(&s, i % s.results, t);
        if (e >= 0)
            at[found++] = i / s.results * s.plane + e;
    }
    return found;
}

/* Is element b of operand 0 larger than a, the first NaN being largest? */
static bool larger(const pooling *p, int64_t a, int64_t b)
{
    nnc_dtype d = p->in[0].type->dtype;
    if (!nnc_is_float(d))
        return d == DT_u64 ? p->in[0].w[b] > p->in[0].w[a] : p->in[0].i[b] > p->in[0].i[a];
    double x = p->in[0].f[a], y = p->in[0].f[b];
    return x == x && (y != y || y > x);
}

static nnc_status search(void *ctx, int64_t begin, int64_t end)
{
    const pooling *p = ctx;
    const ev_window *s = &p->s;
    for (int64_t i = begin; i < end; i++) {
        int64_t base = i / s->results * s->plane, best = -1, at = 0;
        for (int64_t t = 0; t < s->elements; t++) {
            int64_t e = element(s, i % s->results, t);
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
    const ev_window *s = &p->s;
    bool is_float = nnc_is_float(p->in[0].type->dtype);
    memset(p->out->w + begin * s->plane, 0, (size_t)((end - begin) * s->plane) * sizeof *p->out->w);
    for (int64_t i = begin * s->results; i < end * s->results; i++) {
        int64_t tap = p->in[1].i[i];
        int64_t e = tap < 0 || tap >= s->elements ? -1 : element(s, i % s->results, tap);
        int64_t to = i / s->results * s->plane + e;
        if (e >= 0 && is_float)
            p->out->f[to] += p->in[0].f[i];
        else if (e >= 0)
            p->out->i[to] =
                nnc_sop_eval_i64(SC_add, p->in[0].type->dtype, p->out->i[to], p->in[0].i[i], 0);
    }
    return NNC_OK;
}

nnc_status ev_argmaxpool(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    pooling p = pooling_of(n, in, out, in[0].type, out->type);
    return ev_for(e, nnc_type_numel(out->type), 1, p.s.elements, search, &p);
}

nnc_status ev_maxpool_grad(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    pooling p = pooling_of(n, in, out, out->type, in[0].type);
    return ev_for(e, in[0].type->dim[0] * in[0].type->dim[1], 1, p.s.results, add_back, &p);
}

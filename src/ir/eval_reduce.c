/* ir/eval_reduce.c -- reference evaluation of reductions over any axes, of pooling, argmax and argmin. Also of the named ops made of
 * reductions (softmax, norms, global pooling), from their formulas and not from their lowering.
 *
 * The operand is read as kept x reduced points. Where the innermost dimension is reduced, a result is computed from blocks of partial sums.
 * Where it is kept, a row of results is accumulated at once, so that memory is read in order. */
#include "ir/eval_internal.h"

#include <math.h>
#include <string.h>

enum { ROW = 512 }; /* elements at once */

typedef enum fold_kind { FOLD_sum, FOLD_prod, FOLD_max, FOLD_min } fold_kind;

typedef struct reduction {
    fold_kind kind;
    bool mean;
    nnc_dtype d;
    bool rows; /* x visits the points (reduced, kept), otherwise (kept, reduced) */
    ev_walk x;
    int64_t kept, count; /* number of results; elements per result */
    uint64_t *y;
} reduction;

/* ---- folding ---- */

static double fold_f64(fold_kind k, double a, double b)
{
    switch (k) {
    case FOLD_sum: return a + b;
    case FOLD_prod: return a * b;
    case FOLD_max: return a != a || a > b ? a : b;
    default: return a != a || a < b ? a : b;
    }
}

static int64_t fold_i64(fold_kind k, nnc_dtype d, int64_t a, int64_t b)
{
    static const nnc_sop sop[] = {SC_add, SC_mul, SC_max, SC_min};
    return nnc_sop_eval_i64(sop[k], d, a, b, 0);
}

/* acc[i] = fold(acc[i], x[i]) */
static void fold_row(const reduction *r, uint64_t *acc, const uint64_t *x, int64_t n)
{
    if (!nnc_is_float(r->d)) {
        int64_t *a = (int64_t *)acc;
        for (int64_t i = 0; i < n; i++)
            a[i] = fold_i64(r->kind, r->d, a[i], (int64_t)x[i]);
        return;
    }
    double *a = (double *)acc;
    const double *v = (const double *)x;
    if (r->kind == FOLD_sum)
        for (int64_t i = 0; i < n; i++)
            a[i] += v[i];
    else
        for (int64_t i = 0; i < n; i++)
            a[i] = fold_f64(r->kind, a[i], v[i]);
}

/* Folds n elements into one through eight partial results (fewer successive roundings, and vectorised). */
static uint64_t fold_run(const reduction *r, uint64_t acc, const uint64_t *x, int64_t n)
{
    int64_t i = 0;
    if (n >= 16) {
        uint64_t part[8];
        memcpy(part, x, sizeof part);
        for (i = 8; i + 8 <= n; i += 8)
            fold_row(r, part, x + i, 8);
        for (int w = 4; w >= 1; w /= 2)
            fold_row(r, part, part + w, w);
        fold_row(r, &acc, part, 1);
    }
    for (; i < n; i++)
        fold_row(r, &acc, x + i, 1);
    return acc;
}

static uint64_t neutral(fold_kind kind, nnc_dtype d)
{
    static const double none[] = {0, 1, -INFINITY, INFINITY};
    if (nnc_is_float(d) || kind < FOLD_max)
        return ev_bits(d, none[kind]);
    return (uint64_t)nnc_int_end(d, kind == FOLD_min);
}

static nnc_status reduce_range(void *ctx, int64_t begin, int64_t end)
{
    const reduction *r = ctx;
    const uint64_t none = neutral(r->kind, r->d);
    uint64_t tmp[ROW];
    const int64_t n = nnc_min64(r->count, ROW),
                  per = r->rows ? ROW : ROW / n; /* elements of a result, results at once */
    for (int64_t i = begin; i < end; i += per) {
        const int64_t m = nnc_min64(per, end - i);
        uint64_t *y = r->y + i;
        for (int64_t k = 0; k < m; k++)
            y[k] = none;
        for (int64_t j = 0; r->rows && j < r->count; j++)
            fold_row(r, y, ev_gather(&r->x, j * r->kept + i, m, tmp), m);
        for (int64_t j = 0; !r->rows && j < r->count; j += n) {
            const int64_t run = nnc_min64(n, r->count - j);
            const uint64_t *x = ev_gather(&r->x, i * r->count + j, m * run, tmp);
            for (int64_t k = 0; k < m; k++)
                y[k] = fold_run(r, y[k], x + k * run, run);
        }
        for (int64_t k = 0; r->mean && k < m; k++)
            ((double *)y)[k] /= (double)r->count;
    }
    return NNC_OK;
}

static nnc_status run_reduction(const ev *e, const ev_arg *x, reduction *r)
{
    r->x.src = x->w;
    return ev_for(e, r->kept, r->rows ? ROW : 1, r->count, reduce_range, r);
}

/* Reduces x over the dimensions in `mask` (bit d) into y. */
static nnc_status fold_axes(
    const ev *e, const ev_arg *x, unsigned mask, fold_kind kind, bool mean, uint64_t *y)
{
    const nnc_type *t = x->type;
    reduction r = {.kind = kind, .mean = mean, .d = t->dtype, .y = y, .kept = 1, .count = 1};
    int64_t stride[NNC_MAX_RANK];
    ev_strides(t, stride);
    for (int d = 0; d < t->rank; d++) {
        *(mask >> d & 1 ? &r.count : &r.kept) *= t->dim[d];
        r.rows = t->dim[d] == 1 ? r.rows : !(mask >> d & 1);
    }
    for (int second = 0; second < 2; second++)
        for (int d = 0; d < t->rank; d++)
            if ((mask >> d & 1) == (r.rows != second))
                ev_walk_add(&r.x, t->dim[d], stride[d]);
    return run_reduction(e, x, &r);
}

/* ---- pooling ---- */

typedef struct pool {
    ev_window s;
    bool whole; /* count_include_pad */
    double *y;
} pool;

/* Divides sums by the number of elements in their window. Where it extends beyond the padded input (ceil_mode), count_include_pad counts
 * the elements inside the padded input, as PyTorch and ONNX do. */
static nnc_status divide_range(void *ctx, int64_t begin, int64_t end)
{
    const pool *p = ctx;
    const ev_window *s = &p->s;
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, count = 1;
        for (int d = s->rank - 1; d >= 0; d--) {
            int64_t at = rest % s->out[d] * s->stride[d] - s->begin[d];
            int64_t to = nnc_ceildiv(s->in[d] + (p->whole ? s->end[d] : 0) - at, s->dil[d]);
            count *=
                nnc_min64(s->k[d], to) - (p->whole || at >= 0 ? 0 : nnc_ceildiv(-at, s->dil[d]));
            rest /= s->out[d];
        }
        p->y[i] /= (double)count;
    }
    return NNC_OK;
}

nnc_status ev_pool(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    if (n->op == OP_argmaxpool || n->op == OP_maxpool_grad)
        return (n->op == OP_argmaxpool ? ev_argmaxpool : ev_maxpool_grad)(e, n, in, out);
    const nnc_type *x = in[0].type;
    const fold_kind kind = n->op == OP_maxpool ? FOLD_max : FOLD_sum;
    const int64_t *kernel = NULL;
    pool p = {.whole = nnc_attr_int(n, AT_count_include_pad, 0) != 0, .y = out->f};
    nnc_attr_ints(n, AT_kernel, &kernel);
    NNC_TRY(ev_window_of(e, &p.s, n, x, out->type, kernel));
    reduction r = {.kind = kind, .d = x->dtype, .y = out->w, .count = p.s.elements};
    r.kept = nnc_type_numel(out->type);
    r.x.fill = neutral(kind, r.d);
    ev_walk_add(&r.x, x->dim[0] * x->dim[1], p.s.plane);
    ev_walk_window(&r.x, &p.s, false, 1, 0);
    nnc_status status = run_reduction(e, &in[0], &r);
    if (status == NNC_OK && n->op == OP_avgpool)
        status = ev_for(e, r.kept, 1, 1, divide_range, &p);
    nnc_free(p.s.table);
    return status;
}

/* ---- argmax, argmin ---- */

typedef struct arg_search {
    bool want_max;
    nnc_dtype d;
    int64_t n, inner;
    const uint64_t *x;
    int64_t *y;
} arg_search;

/* True when b is better than a. The first NaN wins. */
static bool better(const arg_search *s, uint64_t a, uint64_t b)
{
    if (!nnc_is_float(s->d))
        return nnc_sop_eval_i64(s->want_max ? SC_gt : SC_lt, s->d, (int64_t)b, (int64_t)a, 0) != 0;
    double fa, fb;
    memcpy(&fa, &a, 8);
    memcpy(&fb, &b, 8);
    if (fa != fa || fb != fb)
        return fa == fa;
    return s->want_max ? fb > fa : fb < fa;
}

static nnc_status arg_range(void *ctx, int64_t begin, int64_t end)
{
    const arg_search *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t *x = s->x + i / s->inner * s->n * s->inner + i % s->inner;
        int64_t at = 0;
        for (int64_t j = 1; j < s->n; j++)
            if (better(s, x[at * s->inner], x[j * s->inner]))
                at = j;
        s->y[i] = at;
    }
    return NNC_OK;
}

static nnc_status run_arg(const ev *e, const nnc_node *n, const ev_arg *x, ev_arg *out)
{
    int axis = (int)nnc_attr_int(n, AT_axis, 0);
    arg_search s = {.want_max = n->op == OP_argmax, .d = x->type->dtype};
    s.n = x->type->dim[axis];
    s.inner = nnc_type_extents(x->type, axis + 1, x->type->rank);
    s.x = x->w;
    s.y = out->i;
    return ev_for(e, nnc_type_numel(out->type), 1, s.n, arg_range, &s);
}

nnc_status ev_reduce(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    static const struct {
        nnc_op op;
        fold_kind kind;
        bool mean;
    } row[] = {
        {OP_reduce_sum, FOLD_sum, false},
        {OP_reduce_mean, FOLD_sum, true},
        {OP_reduce_max, FOLD_max, false},
        {OP_reduce_min, FOLD_min, false},
        {OP_reduce_prod, FOLD_prod, false},
    };
    if (n->op == OP_argmax || n->op == OP_argmin)
        return run_arg(e, n, &in[0], out);
    const int64_t *axes = NULL;
    int na = nnc_attr_ints(n, AT_axes, &axes);
    unsigned mask = 0;
    for (int k = 0; k < na; k++)
        mask |= 1u << axes[k];
    for (size_t k = 0; k < NNC_COUNT(row); k++)
        if (row[k].op == n->op)
            return fold_axes(e, &in[0], mask, row[k].kind, row[k].mean, out->w);
    return nnc_fail(e->sink, NNC_E_BUG, n->loc, "no reference for %s", nnc_ops[n->op].name);
}

/* ---- named ops ----------------------------------------------------------------------------------------------------- */

/* x consists of lines of n elements `inner` apart (inner 1: contiguous). gamma and beta are read at (position / g_div) % g_mod, a
 * batchnorm's parameters at line % g_mod. */
typedef struct lines {
    nnc_op op;
    int64_t n, inner;
    const double *x, *gamma, *beta;
    const double *mean, *var; /* of batchnorm */
    int64_t g_div, g_mod;
    double eps;
    double *y;
} lines;

static nnc_status softmax_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *l = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i / l->inner * l->n * l->inner + i % l->inner;
        const double *x = l->x + at;
        double *y = l->y + at, max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < l->n; j++)
            max = fold_f64(FOLD_max, max, x[j * l->inner]);
        for (int64_t j = 0; j < l->n; j++) {
            double z = x[j * l->inner] - max, ez = exp(z);
            sum += ez;
            y[j * l->inner] = l->op == OP_softmax ? ez : z;
        }
        double log_sum = log(sum);
        for (int64_t j = 0; j < l->n; j++)
            y[j * l->inner] =
                l->op == OP_softmax ? y[j * l->inner] / sum : y[j * l->inner] - log_sum;
    }
    return NNC_OK;
}

/* Computes x s + t, as the lowering does. With a variance of 0 and no eps, or infinite operands, (x - mean) s would give other infinities
 * and NaN. */
static nnc_status batchnorm_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *l = ctx;
    for (int64_t i = begin; i < end; i++) {
        const int64_t c = i % l->g_mod;
        const double s = l->gamma[c] * (1 / sqrt(l->var[c] + l->eps)),
                     t = l->beta[c] - l->mean[c] * s;
        for (int64_t j = i * l->n; j < (i + 1) * l->n; j++)
            l->y[j] = l->x[j] * s + t;
    }
    return NNC_OK;
}

static nnc_status norm_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *l = ctx;
    for (int64_t i = begin; i < end; i++) {
        const double *x = l->x + i * l->n;
        double *y = l->y + i * l->n, mean = 0, var = 0;
        for (int64_t j = 0; l->op != OP_rmsnorm && j < l->n; j++)
            mean += x[j];
        mean /= (double)l->n;
        for (int64_t j = 0; j < l->n; j++)
            var += (x[j] - mean) * (x[j] - mean);
        var /= (double)l->n;
        double inv = 1 / sqrt(var + l->eps);
        for (int64_t j = 0; j < l->n; j++) {
            int64_t c = (i * l->n + j) / l->g_div % l->g_mod;
            double v = (x[j] - mean) * inv;
            v = l->gamma ? v * l->gamma[c] : v;
            y[j] = l->beta ? v + l->beta[c] : v;
        }
    }
    return NNC_OK;
}

static nnc_status run_norm(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *t = in[0].type;
    lines l = {.op = n->op, .inner = 1, .x = in[0].f, .y = out->f, .g_div = 1};
    l.eps = nnc_attr_float(n, AT_eps, 1e-5);
    l.gamma = n->n_in > 1 ? in[1].f : NULL;
    l.beta = n->n_in > 2 ? in[2].f : NULL;
    if (l.op == OP_groupnorm) {
        l.n = nnc_type_extents(t, 1, t->rank) / nnc_attr_int(n, AT_num_groups, 1);
        l.g_div = nnc_type_extents(t, 2, t->rank);
        l.g_mod = t->dim[1];
    } else if (l.op == OP_batchnorm) {
        l.n = nnc_type_extents(t, 2, t->rank);
        l.g_mod = t->dim[1];
        l.mean = in[3].f;
        l.var = in[4].f;
        return ev_for(e, nnc_type_numel(t) / l.n, 1, l.n, batchnorm_lines, &l);
    } else {
        l.n = nnc_type_extents(t, (int)nnc_attr_int(n, AT_axis, t->rank - 1), t->rank);
        l.g_mod = n->n_in > 1 ? nnc_type_numel(in[1].type) : 1;
    }
    return ev_for(e, nnc_type_numel(t) / l.n, 1, l.n, norm_lines, &l);
}

nnc_status ev_comp(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *t = in[0].type;
    unsigned spatial = ((1u << t->rank) - 1) & ~3u;
    switch (n->op) {
    case OP_global_avgpool: return fold_axes(e, &in[0], spatial, FOLD_sum, true, out->w);
    case OP_global_maxpool: return fold_axes(e, &in[0], spatial, FOLD_max, false, out->w);
    case OP_softmax:
    case OP_log_softmax: {
        int axis = (int)nnc_attr_int(n, AT_axis, t->rank - 1);
        lines l = {.op = n->op, .n = t->dim[axis], .x = in[0].f, .y = out->f};
        l.inner = nnc_type_extents(t, axis + 1, t->rank);
        return ev_for(e, nnc_type_numel(t) / l.n, 1, 8 * l.n, softmax_lines, &l);
    }
    default: return run_norm(e, n, in, out);
    }
}

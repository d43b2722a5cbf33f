/* ir/eval_rounding.c -- evaluation with simulated rounding: perturbs values by the rounding errors of a device. The difference of two
 * evaluations shows the effect of rounding on a model's outputs (Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002, 1997).
 *
 * A result is multiplied by 1 + a (s + r)/2 and rounded to its dtype. Here `a` is the op's relative error, s = +1 or -1 is common to all
 * elements (bias), r is uniform in [-1, 1) per element. The terms of a sum are perturbed too, since its error is relative to them and not
 * to the result. Named ops are perturbed in their lowering: gelu cancels where 1 + erf does.
 *
 * Results beyond their dtype's range become infinite. A sum or product may also overflow on the way to a result within the range. That
 * depends on the order, and inf - inf or inf * 0 follows: such results become NaN. */
#include "ir/eval_internal.h"

#include <float.h>
#include <math.h>

enum { LONGEST_CHAIN = 8 };

/* Relative rounding error: half a unit in the last place. */
static double unit_roundoff(nnc_dtype d)
{
    return d == DT_f64 ? 0x1p-53 : d == DT_f16 ? 0x1p-11 : d == DT_bf16 ? 0x1p-8 : 0x1p-24;
}

bool ev_is_recurrent(const nnc_node *n)
{
    return nnc_op_class(n->op) == CL_loop && nnc_ops[n->op].flags & OF_float;
}

/* Number of terms per element of n's result; 0: n computes no sum. */
static double terms(const nnc_graph *g, const nnc_node *n)
{
    const nnc_type *x = nnc_typeof(g, n->in[0]), *y = nnc_typeof(g, n->out);
    double results = fmax((double)nnc_type_numel(y), 1);
    switch (nnc_op_class(n->op)) {
    case CL_contract:
    case CL_window: return fmax(ev_node_ops(g, n) / results, 1);
    case CL_loop: /* steps; a recurrence sums over the state at each */
        return (double)x->dim[nnc_attr_int(n, AT_axis, 0)] +
               (ev_is_recurrent(n) ? (double)y->dim[2] : 0);
    case CL_reduce: return fmax((double)nnc_type_numel(x) / results, 1);
    case CL_collective: return n->op == OP_allgather ? 0 : n->n_in;
    default: return 0;
    }
}

/* Does elementwise node n end a chain of at most `depth` operations with a function (exp, sin, ...) in it? A kernel may compute such a
 * chain as one polynomial (docs/math.md). Its error is relative to the chain's value: for erf(x) + 2, to the sum. */
static bool ends_function_chain(const nnc_graph *g, const nnc_node *n, int depth)
{
    if (nnc_op_class(n->op) != CL_ewise || n->op == OP_cast)
        return false;
    bool found = nnc_ops[n->op].flags & OF_float;
    for (int i = 0; !found && depth > 1 && i < n->n_in; i++)
        found = ends_function_chain(g, nnc_def(g, n->in[i]), depth - 1);
    return found;
}

ev_errors ev_errors_of(const ev *e, const nnc_graph *g, const nnc_node *n)
{
    const nnc_rounding *r = e->rounding;
    nnc_dtype d = nnc_typeof(g, n->out)->dtype;
    bool exact = nnc_ops[n->op].flags & OF_exact || n->op == OP_cast;
    ev_errors a = {0};
    if (exact || !n->n_in || !nnc_is_float(nnc_typeof(g, n->in[0])->dtype))
        return a;
    double sum = terms(g, n), unit = unit_roundoff(d);
    const double wide = unit_roundoff(d == DT_f64 ? DT_f64 : DT_f32); /* of accumulators */
    const double growth = wide * sqrt(sum); /* of partial sums */
    nnc_class class = nnc_op_class(n->op);
    const bool recurrent = ev_is_recurrent(n); /* each step rounds the states that it stores */
    const bool function = recurrent || ends_function_chain(g, n, LONGEST_CHAIN);
    const double ulps = 5 * (recurrent ? wide : unit); /* 2.5 ulp */
    if (class == CL_contract)
        a.operand = r->operand_unit;
    a.operand += growth;
    if (nnc_is_float(d))
        a.result = fmax(fmax(function ? ulps : 0, unit), r->result_unit) + growth;
    if (function && a.result < r->function_error)
        a.result = r->function_error;
    if (!nnc_is_float(d))
        return a;
    if (class != CL_loop) /* scans accumulate in f64, recurrences store every state */
        a.terms = sum;
    else if (n->op == OP_scatter || n->op == OP_scatter_nd)
        a.terms = 1 + (double)nnc_type_numel(nnc_typeof(g, n->in[2]));
    return a;
}

nnc_graph *ev_expanded(const nnc_graph *g, nnc_sink *sink)
{
    nnc_graph *h = nnc_graph_clone(g, sink);
    for (uint32_t i = 0, n_node = g->n_node; h && i < n_node; i++) {
        nnc_node n = h->node[i];
        nnc_class class = nnc_op_class(n.op);
        if (class != CL_ecomp && class != CL_comp)
            continue;
        nnc_replace_uses(h, n.out, nnc_expand(h, &n, n.in));
    }
    if (h && (h->status != NNC_OK || nnc_graph_tidy(h) != NNC_OK)) {
        nnc_graph_destroy(h);
        h = NULL;
    }
    return h;
}

static ev_noise noise_of(const ev *e, const nnc_node *n, int operand, const nnc_type *t, double a)
{
    const uint64_t key = nnc_hash64(&n->out, sizeof n->out, e->rounding->seed + (uint64_t)operand);
    const bool half =
        e->rounding->result_unit == 0x1p-11; /* f16, whose subnormals are 2^-24 apart */
    return (ev_noise){.d = t->dtype,
        .round = operand < 0,
        .a = a,
        .bias = key & 1 ? 1 : -1,
        .least = half ? 0x1p-25 : 0,
        .key = key};
}

ev_noise ev_noise_of_result(const ev *e, const nnc_node *n, int k, const nnc_type *t)
{
    return e->errors.result > 0 ? noise_of(e, n, -1 - k, t, e->errors.result) : (ev_noise){0};
}

static ev_noise unrounded(const ev *e, const nnc_node *n, int which, const nnc_type *t, double a)
{
    ev_noise w = noise_of(e, n, which, t, a);
    w.round = false;
    w.least = 0;
    return w;
}

ev_noise ev_noise_of_gates(const ev *e, const nnc_node *n, const nnc_type *t)
{
    if (!(e->errors.result > 0))
        return (ev_noise){0};
    const double wide = unit_roundoff(t->dtype == DT_f64 ? DT_f64 : DT_f32);
    return unrounded(e, n, -3, t, fmax(5 * wide, e->rounding->function_error));
}

ev_noise ev_noise_of_terms(const ev *e, const nnc_node *n, const nnc_type *t)
{
    return e->errors.operand > 0 ? unrounded(e, n, -4, t, e->errors.operand) : (ev_noise){0};
}

double ev_noisy(const ev_noise *w, int64_t i, double x)
{
    uint64_t cell = 0;
    if (w->a == 0)
        return x;
    const double r = 2 * (double)nnc_rng_uniform(w->key, (uint64_t)i) - 1;
    double v = x * (1 + w->a * (w->bias + r) / 2);
    if (x != 0)
        v += w->least * (w->bias + r) / 2;
    if (w->round) {
        nnc_set_f64(w->d, &cell, 0, v);
        v = nnc_get_f64(w->d, &cell, 0);
    }
    return v;
}

typedef struct job {
    ev_noise noise;
    const double *x;
    double *y;
} job;

static nnc_status perturb_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    for (int64_t i = begin; i < end; i++)
        j->y[i] = ev_noisy(&j->noise, i, j->x[i]);
    return NNC_OK;
}

nnc_status ev_perturb(const ev *e, const nnc_node *n, int operand, const nnc_type *t, double a,
    const double *x, double *y)
{
    job j = {noise_of(e, n, operand, t, a), x, y};
    return ev_for(e, nnc_type_numel(t), 1, 8, perturb_range, &j);
}

/* ---- range ---- */

static bool is_product(const nnc_node *n)
{
    const nnc_attr *how = nnc_attr_find(n, AT_reduction);
    return n->op == OP_reduce_prod || (how && how->word && !strcmp(how->word, "mul"));
}

static double largest(const ev_arg *x)
{
    double most = 1;
    for (int64_t i = nnc_type_numel(x->type); i-- > 0;)
        most = fmax(most, fabs(x->f[i]));
    return most;
}

/* The operands of the largest partial result: |x| of a sum, max(|x|, 1) of a product. */
static double *growing(const ev_arg *x, bool product, nnc_arena *a)
{
    const int64_t n = nnc_type_numel(x->type);
    double *y = ARENA_NEW(a, double, n + 1);
    for (int64_t i = 0; y && i < n; i++)
        y[i] = fmax(fabs(x->f[i]), product);
    return y;
}

nnc_status ev_mark_overflow(
    const ev *e, const nnc_node *n, double terms, ev_run *run, const ev_arg *in)
{
    const bool product = is_product(n), wide = in[n->n_in].type->dtype == DT_f64;
    const double most = wide ? DBL_MAX : FLT_MAX, least = wide ? 0x1p-1074 : 0x1p-149,
                 all = n->op == OP_reduce_mean || n->op == OP_avgpool ? terms : 1;
    NNC_LOCAL(nnc_arena) a = {0};
    const ev_arg *out = in + n->n_in;
    double bound = terms;
    for (int k = 0; k < n->n_in; k++)
        bound *= nnc_is_float(in[k].type->dtype) ? largest(&in[k]) : 1;
    if (!product && bound <= most)
        return NNC_OK;
    ev_arg *grown = nnc_arena_memdup(&a, in, sizeof *in * ((size_t)n->n_in + n->n_out));
    NNC_NEED(grown, e->sink);
    for (int k = 0; k < n->n_in + n->n_out; k++)
        if (nnc_is_float(in[k].type->dtype))
            NNC_NEED(grown[k].f = growing(&in[k], product, &a), e->sink);
    NNC_TRY(run(e, n, grown, grown + n->n_in));
    for (int k = 0; k < n->n_out; k++) {
        ev_noise w = unrounded(e, n, -5, out[k].type, DBL_EPSILON);
        for (int64_t i = 0; i < nnc_type_numel(out[k].type); i++) {
            const double partial = all * grown[n->n_in + k].f[i];
            w.least = product ? least * partial : 0; /* a subnormal factor's error, multiplied */
            if (isfinite(out[k].f[i]))
                out[k].f[i] = partial <= most ? ev_noisy(&w, i, out[k].f[i]) : NAN;
        }
    }
    return NNC_OK;
}

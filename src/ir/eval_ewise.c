/* ir/eval_ewise.c -- reference evaluation of elementwise ops with numpy broadcasting.
 *
 * The result is computed in blocks: operands of a block are gathered, then one loop evaluates the op. The result may share memory with
 * an operand of the same shape, since a block is read before it is written. */
#include "ir/eval_internal.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

typedef struct ewise {
    const nnc_node *n;
    nnc_op op;
    nnc_sop sop;
    nnc_dtype d; /* of the operands; of a and b for select */
    nnc_dtype to; /* of the result */
    int n_in;
    ev_walk in[3];
    uint64_t *out;
    double alpha, beta, lo, hi;
    bool tanh_form;
} ewise;

/* ---- one block of each kind ---- */

#define LOOP(e) \
    for (int i = 0; i < n; i++) \
        y[i] = (e); \
    return

static void scalar_f64(const ewise *w, int n, const double *a, const double *b, double *y)
{
    switch (w->sop) {
    case SC_add: LOOP(a[i] + b[i]);
    case SC_sub: LOOP(a[i] - b[i]);
    case SC_mul: LOOP(a[i] * b[i]);
    case SC_div: LOOP(a[i] / b[i]);
    default:
        if (w->n_in == 1) {
            LOOP(nnc_sop_eval_f64(w->sop, a[i], 0, 0));
        }
        LOOP(nnc_sop_eval_f64(w->sop, a[i], b[i], 0));
    }
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}
static double keep_nan_max(double a, double b)
{
    return a != a || a > b ? a : b;
}
static double keep_nan_min(double a, double b)
{
    return a != a || a < b ? a : b;
}
static double clip(double x, double lo, double hi)
{
    return keep_nan_min(keep_nan_max(x, lo), hi);
}

static double gelu(double x, bool tanh_form)
{
    if (tanh_form)
        return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x / 2 * erfc(-x * 0.7071067811865476);
}

static void named_f64(const ewise *w, int n, const double *a, const double *b, double *y)
{
    double alpha = w->alpha;
    switch (w->op) {
    case OP_relu: LOOP(keep_nan_max(a[i], 0));
    case OP_leaky_relu: LOOP(a[i] > 0 ? a[i] : alpha * a[i]);
    case OP_prelu: LOOP(a[i] > 0 ? a[i] : b[i] * a[i]);
    case OP_relu6:
    case OP_clip: LOOP(clip(a[i], w->lo, w->hi));
    case OP_gelu: LOOP(gelu(a[i], w->tanh_form));
    case OP_silu: LOOP(a[i] * nnc_sop_eval_f64(SC_sigmoid, a[i], 0, 0));
    case OP_hardswish: LOOP(a[i] * clip(a[i] / 6 + 0.5, 0, 1));
    case OP_hardsigmoid: LOOP(clip(alpha * a[i] + w->beta, 0, 1));
    case OP_softplus: LOOP(a[i] != a[i] ? a[i] : softplus(a[i]));
    case OP_softsign: LOOP(a[i] / (1 + fabs(a[i])));
    case OP_elu: LOOP(a[i] > 0 ? a[i] : alpha * expm1(a[i]));
    case OP_selu: LOOP(1.0507009873554805 * (a[i] > 0 ? a[i] : 1.6732632423543772 * expm1(a[i])));
    case OP_mish: LOOP(a[i] != a[i] ? a[i] : a[i] * tanh(softplus(a[i])));
    case OP_square: LOOP(a[i] * a[i]);
    default: memmove(y, a, (size_t)n * 8);
    }
}

/* Float comparisons and tests: bool results. */
static void test_f64(const ewise *w, int n, const double *a, const double *b, int64_t *y)
{
    switch (w->sop) {
    case SC_gt: LOOP(a[i] > b[i]);
    case SC_lt: LOOP(a[i] < b[i]);
    default:
        if (w->n_in == 1) {
            LOOP(nnc_sop_eval_f64(w->sop, a[i], 0, 0) != 0);
        }
        LOOP(nnc_sop_eval_f64(w->sop, a[i], b[i], 0) != 0);
    }
}

static int64_t named_i64(const ewise *w, int64_t a)
{
    nnc_dtype d = w->d;
    switch (w->op) {
    case OP_relu: return nnc_sop_eval_i64(SC_max, d, a, 0, 0);
    case OP_relu6:
    case OP_clip:
        if (w->lo != -INFINITY)
            a = nnc_sop_eval_i64(SC_max, d, a, ev_int(d, w->lo), 0);
        return w->hi != INFINITY ? nnc_sop_eval_i64(SC_min, d, a, ev_int(d, w->hi), 0) : a;
    case OP_square: return nnc_sop_eval_i64(SC_mul, d, a, a, 0);
    default: return a;
    }
}

/* The only place where the reference rounds: to the numbers of the target type. */
static void cast_block(const ewise *w, int n, const uint64_t *a, uint64_t *y)
{
    bool from_float = nnc_is_float(w->d), to_float = nnc_is_float(w->to);
    for (int i = 0; i < n; i++) {
        uint64_t cell = 0;
        double v;
        if (from_float) {
            memcpy(&v, &a[i], 8);
            nnc_set_f64(w->to, &cell, 0, v);
        } else if (w->d == DT_u64 && to_float) {
            /* one rounding for f64 and f32; narrower types may overflow or round once more */
            nnc_set_f64(w->to, &cell, 0, w->to == DT_f32 ? (double)(float)a[i] : (double)a[i]);
        } else if (to_float) {
            int64_t k = (int64_t)a[i];
            nnc_set_f64(w->to, &cell, 0, w->to == DT_f32 ? (double)(float)k : (double)k);
        } else {
            nnc_set_i64(w->to, &cell, 0, (int64_t)a[i]);
        }
        if (to_float) {
            v = nnc_get_f64(w->to, &cell, 0);
            memcpy(&y[i], &v, 8);
        } else {
            y[i] = (uint64_t)nnc_get_i64(w->to, &cell, 0);
        }
    }
}

static void run_block(const ewise *w, int n, const void *const *in, uint64_t *out)
{
    bool named = nnc_op_class(w->op) == CL_ecomp;
    if (!named && w->sop == SC_cast) {
        cast_block(w, n, in[0], out);
    } else if (!named && w->sop == SC_select) {
        const uint64_t *c = in[0], *a = in[1], *b = in[2], *pick;
        for (int i = 0; i < n; i++) {
            pick = c[i] ? a : b;
            out[i] = pick[i];
        }
    } else if (nnc_is_float(w->d)) {
        if (named)
            named_f64(w, n, in[0], in[1], (double *)out);
        else if (w->to == DT_bool)
            test_f64(w, n, in[0], in[1], (int64_t *)out);
        else
            scalar_f64(w, n, in[0], in[1], (double *)out);
    } else {
        const int64_t *a = in[0], *b = in[1];
        for (int i = 0; i < n; i++)
            out[i] = (uint64_t)(named ? named_i64(w, a[i])
                                      : nnc_sop_eval_i64(w->sop, w->d, a[i], b[i], 0));
    }
}

static nnc_status run_range(void *ctx, int64_t begin, int64_t end)
{
    const ewise *w = ctx;
    uint64_t tmp[3][BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int n = (int)nnc_min64(BLOCK, end - i);
        const void *in[3];
        for (int k = 0; k < 3; k++) /* an op with fewer operands repeats the first */
            in[k] = k == 0 || k < w->n_in ? ev_gather(&w->in[k], i, n, tmp[k]) : in[0];
        run_block(w, n, in, w->out + i);
    }
    return NNC_OK;
}

nnc_status ev_ewise(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    ewise w = {.n = n, .op = n->op, .n_in = n->n_in, .out = out->w};
    if (nnc_op_class(w.op) == CL_ewise && !nnc_sop_of(w.op, &w.sop))
        return nnc_fail(e->sink, NNC_E_BUG, n->loc, "no scalar op for %s", nnc_ops[w.op].name);
    w.d = (nnc_dtype)in[w.op == OP_select ? 1 : 0].type->dtype;
    w.to = out->type->dtype;
    for (int k = 0; k < n->n_in; k++) {
        w.in[k].src = in[k].w;
        ev_walk_broadcast(&w.in[k], in[k].type, out->type, 0);
    }
    bool is6 = w.op == OP_relu6;
    double dflt = w.op == OP_leaky_relu ? 0.01 : w.op == OP_hardsigmoid ? 1.0 / 6 : 1;
    const nnc_attr *form = nnc_attr_find(n, AT_approximate);
    w.alpha = ev_attr_value(w.d, nnc_attr_float(n, AT_alpha, dflt));
    w.beta = nnc_attr_float(n, AT_beta, 0.5);
    w.lo = is6 ? 0 : nnc_attr_float(n, AT_lo, -INFINITY);
    w.hi = is6 ? 6 : nnc_attr_float(n, AT_hi, INFINITY);
    if (w.lo != -INFINITY)
        w.lo = ev_attr_value(w.d, w.lo);
    if (w.hi != INFINITY)
        w.hi = ev_attr_value(w.d, w.hi);
    w.tanh_form = form && form->word && !strcmp(form->word, "tanh");
    return ev_for(e, nnc_type_numel(out->type), BLOCK, 1, run_range, &w);
}

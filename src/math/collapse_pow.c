/* math/collapse_pow.c -- rewrites powers with a constant exponent as products and roots, and quotients as products, with the same
 * results for zeros, infinities and NaN.
 *
 * x / y becomes x (1/y) where y does not vary along an inner axis, so that 1/y is computed once (softmax). The range of y must keep 1/y a
 * normal number. This adds one rounding. The option --math=fast allows every such y, and any constant. */
#include "math/collapse.h"

#include <math.h>

enum { MOST = 64, EXTRA = 24 };

typedef struct simplifier {
    const nnc_kernel *k;
    nnc_math math;
    uint32_t *axes; /* axes that a value depends on, by instruction */
    int n_pow, n_div, n_quot;
} simplifier;

/* ---- quotients ---- */

/* Axes that values depend on; a reduction's result does not depend on its reduce axes. */
static void find_axes(simplifier *s)
{
    const nnc_kernel *k = s->k;
    for (int g = 0; g < k->n_stage; g++)
        for (int i = k->stage[g].body0; i < k->stage[g].post1; i++) {
            const nnc_kins *in = &k->ins[i];
            uint32_t d = in->op == KO_store ? 0 : nnc_kins_axes(in);
            for (int j = 0; j < 3; j++)
                d |= in->arg[j] >= 0 ? s->axes[in->arg[j]] : 0;
            s->axes[i] = in->op == KO_reduce && !in->running ? d & ~nnc_reduce_axes(k, i) : d;
        }
}

/* x / y: for every value of y, y and its reciprocal are normal numbers. */
static bool has_reciprocal(const nnc_kernel *k, const nnc_kins *in)
{
    const nnc_kins *y = &k->ins[in->arg[1]];
    if (in->dtype != DT_f32 || y->op == KO_const || y->lo > y->hi)
        return false;
    return (y->lo >= 0x1p-125 && y->hi <= 0x1p125) || (y->hi <= -0x1p-125 && y->lo >= -0x1p125);
}

/* True when x / y should use 1/y: the reciprocal serves several x, or is cheap. */
static bool quotient_goes(const simplifier *s, const nnc_kins *in)
{
    if (s->math == MATH_exact || !has_reciprocal(s->k, in))
        return false;
    uint32_t x = s->axes[in->arg[0]], y = s->axes[in->arg[1]], more = x & ~y;
    uint32_t inner = ~((1u << s->k->n_outer) - 1);
    int64_t times = 1;
    for (int a = 0; a < s->k->n_axis; a++)
        times *= more >> a & 1 ? s->k->axis[a].extent : 1;
    return s->math == MATH_fast || (times >= 4 && (y & ~x & inner) == 0);
}

/* Gets the value of operand j when it is a constant. */
static bool constant(const nnc_kernel *k, const nnc_kins *in, int j, double *v)
{
    const nnc_kins *c = &k->ins[in->arg[j]];
    *v = nnc_is_float((nnc_dtype)c->dtype) ? c->f : (double)c->i;
    return c->op == KO_const;
}

/* True when c is a power of two and 1/c a normal number: x/c = x (1/c) exactly. */
static bool is_exact_divisor(nnc_dtype d, double c)
{
    int e;
    int most = d == DT_f32 ? 126 : 1022;
    return fabs(frexp(c, &e)) == 0.5 && e - 1 >= -most && e - 1 <= most;
}

/* True when 1/c is a normal number, under --math=fast. */
static bool is_divisor(const simplifier *s, nnc_dtype d, double c)
{
    return is_exact_divisor(d, c) ||
           (s->math == MATH_fast && d == DT_f32 && fabs(c) >= 0x1p-125 && fabs(c) <= 0x1p125);
}

/* True when the power with this exponent can be rewritten. */
static bool power_goes(const simplifier *s, const nnc_kins *in, double e)
{
    nnc_dtype d = (nnc_dtype)in->dtype;
    if (!nnc_is_float(d))
        return d != DT_bool && e >= 0 && e <= 16;
    if (e == -1 || e == 0 || e == 1 || e == 2 || e == 0.5)
        return true;
    if (s->math == MATH_exact)
        return false;
    if (e == 1.5 || e == -0.5)
        return s->k->ins[in->arg[0]].lo >= 0;
    return e == nearbyint(e) && fabs(e) <= MOST && (d == DT_f32 || e == 3 || e == 4);
}

static bool goes(const simplifier *s, const nnc_kins *in)
{
    double c;
    nnc_dtype d = (nnc_dtype)in->dtype;
    if (in->op != KO_sop || (in->sop != SC_div && in->sop != SC_pow))
        return false;
    if (!constant(s->k, in, 1, &c))
        return in->sop == SC_div && quotient_goes(s, in);
    return in->sop == SC_pow ? power_goes(s, in, c) : nnc_is_float(d) && is_divisor(s, d, c);
}

static int32_t times(nnc_kedit *e, nnc_dtype d, int32_t x, int32_t y)
{
    return nnc_kedit_sop(e, SC_mul, d, x, y, -1);
}

/* x^n, n >= 1, by repeated squaring. */
static int32_t product(nnc_kedit *e, nnc_dtype d, int32_t x, int n)
{
    int32_t y = -1;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            y = y < 0 ? x : times(e, d, y, x);
        if (n > 1)
            x = times(e, d, x, x);
    }
    return y;
}

/* A square root without a negative zero: (-0)^0.5 is 0. */
static int32_t root(nnc_kedit *e, nnc_dtype d, int32_t x)
{
    int32_t r = nnc_kedit_sop(e, SC_sqrt, d, x, -1, -1);
    return nnc_kedit_sop(e, SC_add, d, r, nnc_kedit_const(e, d, 0), -1);
}

/* (-infinity)^0.5 is infinity. */
static int32_t half_power(nnc_kedit *e, nnc_dtype d, int32_t x, const nnc_kins *arg)
{
    int32_t r = arg->lo > 0 ? nnc_kedit_sop(e, SC_sqrt, d, x, -1, -1) : root(e, d, x);
    if (arg->lo > -INFINITY)
        return r;
    int32_t far = nnc_kedit_sop(e, SC_eq, d, x, nnc_kedit_const(e, d, -INFINITY), -1);
    int32_t inf = nnc_kedit_const(e, d, INFINITY);
    return nnc_kedit_sop(e, SC_select, d, far, inf, r);
}

static int32_t power(nnc_kedit *e, const nnc_kins *in, int32_t x, double n)
{
    nnc_dtype d = (nnc_dtype)in->dtype;
    const nnc_kins *arg = &e->k->ins[in->arg[0]];
    if (n == 0)
        return nnc_kedit_const(e, d, 1);
    if (n == 0.5)
        return half_power(e, d, x, arg);
    if (n == -0.5)
        return nnc_kedit_sop(e, SC_recip, d, root(e, d, x), -1, -1);
    if (n == 1.5)
        return times(e, d, x, nnc_kedit_sop(e, SC_sqrt, d, x, -1, -1));
    if (n == -1)
        return nnc_kedit_sop(e, SC_recip, d, x, -1, -1);
    if (!nnc_is_float(d) || (n > 0 && n <= 4))
        return product(e, d, x, (int)n);
    /* in f64: its rounding does not show, and x^n stays in range where 1 / x^n does not */
    int32_t y = product(e, DT_f64, nnc_kedit_sop(e, SC_cast, DT_f64, x, -1, -1), (int)fabs(n));
    if (n < 0)
        y = nnc_kedit_sop(e, SC_recip, DT_f64, y, -1, -1);
    return nnc_kedit_sop(e, SC_cast, DT_f32, y, -1, -1);
}

static void rewrite(void *ctx, nnc_kedit *e, int i)
{
    simplifier *s = ctx;
    const nnc_kins *in = &e->k->ins[i];
    double c;
    if (!goes(s, in)) {
        nnc_kedit_copy(e, i);
        return;
    }
    nnc_dtype d = (nnc_dtype)in->dtype;
    int32_t x = e->map[in->arg[0]];
    if (!constant(s->k, in, 1, &c)) {
        s->n_quot++;
        e->map[i] = times(e, d, x, nnc_kedit_sop(e, SC_recip, d, e->map[in->arg[1]], -1, -1));
        return;
    }
    double r = d == DT_f32 ? (double)(float)(1 / c) : 1 / c;
    e->map[i] = in->sop == SC_pow ? power(e, in, x, c) : times(e, d, x, nnc_kedit_const(e, d, r));
    s->n_pow += in->sop == SC_pow;
    s->n_div += in->sop == SC_div;
}

static void explain(const simplifier *s, nnc_text *note)
{
    static const char *const by[] = {"a power of two", "a constant"};
    if (s->n_pow)
        nnc_printf(note, "%d power%s with a constant exponent: rewritten as products and roots\n",
            s->n_pow, s->n_pow > 1 ? "s" : "");
    if (s->n_div)
        nnc_printf(note, "%d division%s by %s: multiplied\n", s->n_div, s->n_div > 1 ? "s" : "",
            by[s->math == MATH_fast]);
    if (s->n_quot)
        nnc_printf(note, "%d quotient%s: rewritten as a product with the reciprocal\n", s->n_quot,
            s->n_quot > 1 ? "s" : "");
}

bool nnc_kernel_simplify(nnc_kernel *k, nnc_math math, nnc_arena *a, nnc_text *note, bool *changed)
{
    simplifier s = {.k = k, .math = math};
    int n = 0;
    *changed = false;
    s.axes = nnc_calloc((size_t)k->n_ins + 1, sizeof *s.axes);
    if (!s.axes)
        return false;
    find_axes(&s);
    for (int i = 0; i < k->n_ins; i++)
        n += goes(&s, &k->ins[i]);
    *changed = n > 0;
    nnc_kedit e;
    bool ok = n == 0 || nnc_kedit_begin(&e, k, n * EXTRA, a);
    if (ok && n > 0) {
        nnc_kedit_run(&e, rewrite, &s);
        explain(&s, note);
    }
    nnc_free(s.axes);
    return ok;
}

/* codegen/collapse_pow.c -- powers with a constant exponent as products and roots, division by a
 * power of two as a product: same results for zeros, infinities and NaN. */
#include "codegen/collapse.h"

#include <math.h>

enum { MOST = 64, EXTRA = 24 };

typedef struct simplifier {
    const nnc_kernel *k;
    bool exact;
    int n_pow, n_div;
} simplifier;

/* The constant operand j of an instruction. */
static bool constant(const nnc_kernel *k, const nnc_kins *in, int j, double *v)
{
    const nnc_kins *c = &k->ins[in->arg[j]];
    *v = nnc_is_float((nnc_dtype)c->dtype) ? c->f : (double)c->i;
    return c->op == KO_const;
}

/* 1/c is a normal number and c a power of two: x/c = x (1/c) to the bit. */
static bool is_exact_divisor(nnc_dtype d, double c)
{
    int e;
    int most = d == DT_f32 ? 126 : 1022;
    return fabs(frexp(c, &e)) == 0.5 && e - 1 >= -most && e - 1 <= most;
}

static bool is_integer(double e)
{
    return e == nearbyint(e) && fabs(e) <= MOST;
}

/* Does the power with this exponent go? */
static bool power_goes(const simplifier *s, const nnc_kins *in, double e)
{
    nnc_dtype d = (nnc_dtype)in->dtype;
    if (!nnc_is_float(d))
        return d != DT_bool && e >= 0 && e <= 16;
    if (e == -1 || e == 0 || e == 1 || e == 2 || e == 0.5)
        return true;
    if (s->exact)
        return false;
    if (e == 1.5 || e == -0.5)
        return s->k->ins[in->arg[0]].lo >= 0;
    return is_integer(e) && (d == DT_f32 || e == 3 || e == 4);
}

static bool goes(const simplifier *s, const nnc_kins *in)
{
    double c;
    if (in->op != KO_sop || (in->sop != SC_div && in->sop != SC_pow) || !constant(s->k, in, 1, &c))
        return false;
    return in->sop == SC_pow
               ? power_goes(s, in, c)
               : nnc_is_float((nnc_dtype)in->dtype) && is_exact_divisor((nnc_dtype)in->dtype, c);
}

static int32_t times(nnc_kedit *e, nnc_dtype d, int32_t x, int32_t y)
{
    return nnc_kedit_sop(e, SC_mul, d, x, y, -1);
}

/* x^n, n >= 1, by squares. */
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

/* A square root that has no negative zero: x^0.5 of -0 is 0. */
static int32_t root(nnc_kedit *e, nnc_dtype d, int32_t x)
{
    int32_t r = nnc_kedit_sop(e, SC_sqrt, d, x, -1, -1);
    return nnc_kedit_sop(e, SC_add, d, r, nnc_kedit_const(e, d, 0), -1);
}

/* x^0.5 of -infinity is infinity. */
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
    /* in f64: no rounding that shows, and x^n is in range where 1 / x^n is not */
    int32_t y = product(e, DT_f64, nnc_kedit_sop(e, SC_cast, DT_f64, x, -1, -1), (int)fabs(n));
    if (n < 0)
        y = nnc_kedit_sop(e, SC_recip, DT_f64, y, -1, -1);
    return nnc_kedit_sop(e, SC_cast, DT_f32, y, -1, -1);
}

static void put(void *ctx, nnc_kedit *e, int i)
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
    (void)constant(s->k, in, 1, &c);
    e->map[i] =
        in->sop == SC_pow ? power(e, in, x, c) : times(e, d, x, nnc_kedit_const(e, d, 1 / c));
    s->n_pow += in->sop == SC_pow;
    s->n_div += in->sop == SC_div;
}

bool nnc_kernel_simplify(nnc_kernel *k, bool exact, nnc_arena *a, nnc_text *note, bool *changed)
{
    simplifier s = {.k = k, .exact = exact};
    int n = 0;
    for (int i = 0; i < k->n_ins; i++)
        n += goes(&s, &k->ins[i]);
    *changed = n > 0;
    if (n == 0)
        return true;
    nnc_kedit e;
    if (!nnc_kedit_begin(&e, k, n * EXTRA, a))
        return false;
    nnc_kedit_run(&e, put, &s);
    if (s.n_pow)
        nnc_printf(note, "%d power%s with a constant exponent: products and roots\n", s.n_pow,
            s.n_pow > 1 ? "s" : "");
    if (s.n_div)
        nnc_printf(
            note, "%d division%s by a power of two: multiplied\n", s.n_div, s.n_div > 1 ? "s" : "");
    return true;
}

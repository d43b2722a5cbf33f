/* math/ranges.c -- interval analysis of a kernel's instructions: the range of each value, and whether it can be NaN.
 *
 * Bounds hold for all inputs (infinities and NaN included): [lo, hi] bounds a value unless it is NaN. Bounds of rounded results are widened
 * by a relative 2^-20, those of fast forms (KH_fast, within 2^-15) by 2^-14. Zero stays where it is, so that a sum of squares is known to
 * be non-negative. Subnormal bounds become zero or the least normal number. Integers beyond 2^53, which doubles cannot represent, are
 * bounded by their type only. A max, min, select, comparison or abs whose result is known is removed only where the result is the same for
 * NaN too. (The sign of zeros is not guaranteed: docs/math.md.) Values that become unused are removed as well. */
#include "math/collapse.h"
#include "math/poly.h"

#include <math.h>
#include <string.h>

typedef nnc_range range;

static const range anything = {-INFINITY, INFINITY, true};

static range of_dtype(nnc_dtype d)
{
    switch (nnc_dtype_kind(d)) {
    case NNC_FLOAT: return anything;
    case NNC_BOOL: return (range){0, 1, false};
    case NNC_UINT:
        return (range){0, ldexp(1, 8 * nnc_dtype_size(d)) - (nnc_dtype_size(d) < 8), false};
    default:
        return (range){-ldexp(1, 8 * nnc_dtype_size(d) - 1),
            ldexp(1, 8 * nnc_dtype_size(d) - 1) - (nnc_dtype_size(d) < 8), false};
    }
}

static range range_union(range a, range b)
{
    return (range){fmin(a.lo, b.lo), fmax(a.hi, b.hi), a.nan || b.nan};
}

static bool has_inf(range a)
{
    return a.lo == -INFINITY || a.hi == INFINITY;
}
static bool has_zero(range a)
{
    return a.lo <= 0 && a.hi >= 0;
}

/* Integers that may wrap, or that doubles would round (a bound of 2^53 may be a larger one), have their type's range. */
static range wrapped(range r, nnc_dtype d)
{
    range all = of_dtype(d);
    bool exact = nnc_dtype_size(d) < 8 || (r.lo > -0x1p53 && r.hi < 0x1p53);
    return exact && r.lo >= all.lo && r.hi <= all.hi ? r : all;
}

/* Subnormal numbers have no relative rounding bound: bounds become 0 or `least`. */
static range past_subnormal(range r, double least)
{
    if (r.lo < least && r.lo > -least && r.lo != 0)
        r.lo = r.lo > 0 ? 0 : -least;
    if (r.hi < least && r.hi > -least && r.hi != 0)
        r.hi = r.hi < 0 ? 0 : least;
    return r;
}

/* Widens by the rounding error of type d, at most `rel` of the result. */
static range widened(range r, nnc_dtype d, double rel)
{
    const double most = d == DT_f32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    r.lo -= fabs(r.lo) * rel;
    r.hi += fabs(r.hi) * rel;
    if (r.lo != r.lo || r.lo < -most)
        r.lo = -INFINITY;
    if (r.hi != r.hi || r.hi > most)
        r.hi = INFINITY;
    return past_subnormal(r, d == DT_f32 ? 0x1p-126 : 0x1p-1022);
}

static range rounded(range r, nnc_dtype d)
{
    return nnc_is_float(d) ? widened(r, d, 0x1p-20) : wrapped(r, d);
}

/* Product of bounds, where 0 * inf is 0, the limit of finite values. */
static double times(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static range mul(range a, range b, bool same)
{
    if (same) {
        double l = has_zero(a) ? 0 : fmin(fabs(a.lo), fabs(a.hi)), h = fmax(fabs(a.lo), fabs(a.hi));
        return (range){l * l, h * h, a.nan};
    }
    double p[4] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)};
    range r = {p[0], p[0], a.nan || b.nan};
    for (int i = 1; i < 4; i++) {
        r.lo = fmin(r.lo, p[i]);
        r.hi = fmax(r.hi, p[i]);
    }
    r.nan |= (has_inf(a) && has_zero(b)) || (has_inf(b) && has_zero(a));
    return r;
}

static range add(range a, range b)
{
    bool clash = (a.hi == INFINITY && b.lo == -INFINITY) || (a.lo == -INFINITY && b.hi == INFINITY);
    double lo = a.lo + b.lo, hi = a.hi + b.hi;
    return (range){lo != lo ? -INFINITY : lo, hi != hi ? INFINITY : hi, a.nan || b.nan || clash};
}

/* [0, x] contains -0, whose reciprocal is -inf. */
static range recip(range a)
{
    if (a.lo > 0 || a.hi < 0)
        return (range){1 / a.hi, 1 / a.lo, a.nan};
    return (range){-INFINITY, INFINITY, a.nan};
}

static range range_quotient(range a, range b, nnc_dtype d)
{
    if (!nnc_is_float(d)) { /* towards zero, x/0 = 0, and -min wraps */
        double h = fmax(fabs(a.lo), fabs(a.hi));
        return a.lo >= 0 && b.lo >= 0 ? (range){0, a.hi, false} : (range){-h, h, false};
    }
    range r = mul(a, recip(b), false);
    r.nan = a.nan || b.nan || (has_zero(a) && has_zero(b)) || (has_inf(a) && has_inf(b));
    return r;
}

/* True when a function of a v other than 0 can underflow, so that nnc_steady_f64 returns 0. */
static bool underflows(double v)
{
    return (v != 0 && fabs(v) < 0x1p-1000) || v < -700;
}

/* Functions that do not fall, and their domains. */
static const struct {
    bool is;
    double lo, hi;
} rising[SC__COUNT] = {
#define RISES(name, lo, hi) [SC_##name] = {true, lo, hi}
    RISES(floor, -INFINITY, INFINITY),
    RISES(ceil, -INFINITY, INFINITY),
    RISES(round, -INFINITY, INFINITY),
    RISES(trunc, -INFINITY, INFINITY),
    RISES(sqrt, 0, INFINITY),
    RISES(exp, -INFINITY, INFINITY),
    RISES(exp2, -INFINITY, INFINITY),
    RISES(expm1, -INFINITY, INFINITY),
    RISES(log, 0, INFINITY),
    RISES(log2, 0, INFINITY),
    RISES(log1p, -1, INFINITY),
    RISES(tanh, -INFINITY, INFINITY),
    RISES(erf, -INFINITY, INFINITY),
    RISES(sigmoid, -INFINITY, INFINITY),
    RISES(atan, -INFINITY, INFINITY),
    RISES(sinh, -INFINITY, INFINITY),
    RISES(asin, -1, 1),
};

/* Range of such a function, from the ends of its operand's range inside the domain. */
static range monotone(nnc_sop op, range a)
{
    double dom_lo = rising[op].lo, dom_hi = rising[op].hi;
    double lo = fmax(a.lo, dom_lo), hi = fmin(a.hi, dom_hi);
    range r = {nnc_steady_f64(op, lo, 0, 0), nnc_steady_f64(op, hi, 0, 0),
        a.nan || a.lo < dom_lo || a.hi > dom_hi};
    if (r.lo == 0 && lo < 0 && underflows(lo))
        r.lo = fmax(-0x1p-1022, nnc_sops[op].lo);
    if (r.hi == 0 && underflows(hi))
        r.hi = 0x1p-1022;
    if (r.lo != r.lo)
        r.lo = -INFINITY;
    if (r.hi != r.hi)
        r.hi = INFINITY;
    return r;
}

/* True when [lo, hi] contains a point `at` + 2 pi k, or comes near it. */
static bool holds(range a, double at)
{
    const double turn = 0x1.921fb54442d18p2;
    double k = ceil((a.lo - 1e-3 - at) / turn);
    return at + k * turn <= a.hi + 1e-3;
}

/* sin x, or cos x = sin(x + pi/2): the values at the ends, and 1 or -1 where an extremum lies between. */
static range sine(nnc_sop op, range a)
{
    range r = {-1, 1, a.nan || has_inf(a)};
    if (!(a.lo >= -0x1p16 && a.hi <= 0x1p16))
        return r;
    const double half = 0x1.921fb54442d18p0, top = op == SC_sin ? half : 0;
    double u = nnc_steady_f64(op, a.lo, 0, 0), v = nnc_steady_f64(op, a.hi, 0, 0);
    r.lo = holds(a, top - 2 * half) ? -1 : fmin(u, v);
    r.hi = holds(a, top) ? 1 : fmax(u, v);
    return r;
}

/* An op without a rule here: the bounds of its row; NaN is possible only through operands. */
static range from_table(nnc_sop op, range a, range b)
{
    range r = {nnc_sops[op].lo, nnc_sops[op].hi, true};
    if (op == SC_tan && !has_inf(a))
        r.nan = a.nan || b.nan;
    return r;
}

static range unary(nnc_sop op, range a)
{
    switch (op) {
    case SC_identity: return a;
    case SC_neg: return (range){-a.hi, -a.lo, a.nan};
    case SC_abs:
        return (range){
            has_zero(a) ? 0 : fmin(fabs(a.lo), fabs(a.hi)), fmax(fabs(a.lo), fabs(a.hi)), a.nan};
    case SC_sign:
        return (range){a.lo > 0 ? 1 : a.lo >= 0 ? 0 : -1, a.hi < 0 ? -1 : a.hi <= 0 ? 0 : 1, a.nan};
    case SC_rsqrt: /* of -0: -inf */
        return (range){has_zero(a) ? -INFINITY
                       : a.hi > 0  ? 1 / sqrt(a.hi)
                                   : 0,
            a.lo > 0 ? 1 / sqrt(a.lo) : INFINITY, a.nan || a.lo < 0};
    case SC_recip: return recip(a);
    case SC_acos: {
        range r = monotone(SC_asin, a);
        const double half = 0x1.921fb54442d18p0;
        return (range){fmax(half - r.hi, 0), half - r.lo, r.nan};
    }
    case SC_cosh: {
        double h = fmax(fabs(a.lo), fabs(a.hi)), l = has_zero(a) ? 0 : fmin(fabs(a.lo), fabs(a.hi));
        return (range){nnc_steady_f64(op, l, 0, 0), nnc_steady_f64(op, h, 0, 0), a.nan};
    }
    case SC_sin:
    case SC_cos: return sine(op, a);
    default: return rising[op].is ? monotone(op, a) : from_table(op, a, a);
    }
}

/* 1 true, 0 false, -1 unknown. A comparison with NaN is false, except ne. */
static int decide(nnc_sop op, range a, range b)
{
    bool nan = a.nan || b.nan;
    switch (op) {
    case SC_lt: return a.lo >= b.hi ? 0 : a.hi < b.lo && !nan ? 1 : -1;
    case SC_le: return a.lo > b.hi ? 0 : a.hi <= b.lo && !nan ? 1 : -1;
    case SC_gt: return a.hi <= b.lo ? 0 : a.lo > b.hi && !nan ? 1 : -1;
    case SC_ge: return a.hi < b.lo ? 0 : a.lo >= b.hi && !nan ? 1 : -1;
    case SC_eq: return a.hi < b.lo || a.lo > b.hi ? 0 : -1;
    case SC_ne: return a.hi < b.lo || a.lo > b.hi ? 1 : -1;
    case SC_isnan: return a.nan ? -1 : 0;
    case SC_isinf: return has_inf(a) ? -1 : 0;
    case SC_not: return a.lo > 0 ? 0 : a.hi < 1 ? 1 : -1;
    case SC_and: return a.hi < 1 || b.hi < 1 ? 0 : a.lo > 0 && b.lo > 0 ? 1 : -1;
    case SC_or: return a.lo > 0 || b.lo > 0 ? 1 : a.hi < 1 && b.hi < 1 ? 0 : -1;
    default: return -1;
    }
}

static range cast_to(range a, nnc_dtype to)
{
    range all = of_dtype(to);
    if (a.lo == a.hi && !a.nan && a.lo == trunc(a.lo) && fabs(a.lo) <= 128 && to != DT_bool &&
        a.lo >= all.lo && a.lo <= all.hi)
        return a; /* exact in all these types; zero may be -0 */
    if (to == DT_f16 || to == DT_bf16) { /* 11 or 8 bits */
        range r = widened(a, DT_f32, 0x1p-7);
        double most = to == DT_f16 ? 65504 : INFINITY;
        r = past_subnormal(r, to == DT_f16 ? 0x1p-14 : 0x1p-126);
        return (range){r.lo < -most ? -INFINITY : r.lo, r.hi > most ? INFINITY : r.hi, a.nan};
    }
    if (nnc_is_float(to))
        return rounded(a, to);
    if (to == DT_bool || a.nan)
        return all;
    return wrapped((range){trunc(a.lo), trunc(a.hi), false}, to);
}

/* Has the sign of a, is nearer to 0 than b and not farther than a. */
static range modulo(range a, range b, nnc_dtype d)
{
    double most = fmax(fabs(b.lo), fabs(b.hi));
    range r = {fmax(fmin(a.lo, 0), -most), fmin(fmax(a.hi, 0), most), false};
    r.nan = nnc_is_float(d) && (a.nan || b.nan || has_inf(a) || has_zero(b));
    return r;
}

/* Non-negative bases: monotone in each operand, so the corner values bound it. */
static range power(range a, range b)
{
    if (a.lo < 0 || has_inf(b))
        return a.lo > 0 ? (range){0, INFINITY, true} : anything;
    double base[2] = {a.lo, a.hi}, e[2] = {b.lo, b.hi};
    range r = {INFINITY, 0, a.nan || b.nan};
    for (int i = 0; i < 4; i++) {
        double v = nnc_steady_f64(SC_pow, base[i & 1], e[i >> 1], 0);
        r.lo = fmin(r.lo, v);
        r.hi = fmax(r.hi, v);
    }
    if (a.lo < 1 && a.hi > 1 && (b.lo < 0) != (b.hi < 0)) { /* 1 lies between */
        r.lo = fmin(r.lo, 1);
        r.hi = fmax(r.hi, 1);
    }
    if (has_zero(a) && b.lo < 0) /* -0 to an odd power */
        r.lo = -INFINITY;
    return r;
}

range nnc_range_of_sop(const nnc_kins *in, range a, range b, range c)
{
    nnc_dtype d = (nnc_dtype)in->dtype;
    switch ((nnc_sop)in->sop) {
    case SC_cast: return cast_to(a, (nnc_dtype)in->cast_to);
    case SC_add: return rounded(add(a, b), d);
    case SC_sub: return rounded(add(a, (range){-b.hi, -b.lo, b.nan}), d);
    case SC_mul: return rounded(mul(a, b, in->arg[0] == in->arg[1]), d);
    case SC_fma: return rounded(add(rounded(mul(a, b, in->arg[0] == in->arg[1]), d), c), d);
    case SC_div: return rounded(range_quotient(a, b, d), d);
    case SC_min: return (range){fmin(a.lo, b.lo), fmin(a.hi, b.hi), a.nan || b.nan};
    case SC_max: return (range){fmax(a.lo, b.lo), fmax(a.hi, b.hi), a.nan || b.nan};
    case SC_select: return a.lo > 0 ? b : a.hi < 1 ? c : range_union(b, c);
    case SC_mod: return rounded(modulo(a, b, d), d);
    case SC_pow: return nnc_is_float(d) ? rounded(power(a, b), d) : of_dtype(d);
    case SC_bit_and:
        if (a.lo >= 0 && b.lo >= 0)
            return (range){0, fmin(a.hi, b.hi), false};
        return of_dtype(d);
    case SC_shr: return (range){fmin(a.lo, 0), fmax(a.hi, 0), false};
    case SC_bit_or:
    case SC_bit_xor:
    case SC_shl: return of_dtype(d);
    default: break;
    }
    if (nnc_sops[in->sop].res == SR_bool) {
        int known = decide((nnc_sop)in->sop, a, b);
        return known < 0 ? (range){0, 1, false} : (range){known, known, false};
    }
    if (d == DT_bool) /* and, or, not, xor */
        return (range){0, 1, false};
    range r = unary((nnc_sop)in->sop, a);
    return in->hint & KH_fast ? widened(r, d, 0x1p-14) : rounded(r, d);
}

/* Each of `count` additions may round away from zero. Partial sums that overflow with both signs give NaN. */
static range of_sum(range a, double count, nnc_dtype d)
{
    range r = {times(fmin(a.lo, 0), count), times(fmax(a.hi, 0), count), a.nan};
    if (!nnc_is_float(d))
        return wrapped(r, d);
    double grow = count * (d == DT_f32 ? 0x1p-24 : 0x1p-53);
    r = widened(r, d, grow < 1 ? 2 * grow + 0x1p-20 : INFINITY);
    r.nan |= r.lo == -INFINITY && r.hi == INFINITY;
    return r;
}

static range of_reduce(const nnc_kins *in, range a, double count)
{
    switch ((nnc_kred)in->sop) {
    case KR_sum: return of_sum(a, count, (nnc_dtype)in->dtype);
    case KR_max:
    case KR_min: /* all masked: the type's extreme value */
        return in->arg[1] < 0 ? a : range_union(a, of_dtype((nnc_dtype)in->dtype));
    case KR_argmax:
    case KR_argmin: return (range){0, count - 1, false};
    default: { /* prod: only the sign is tracked */
        range r = of_dtype((nnc_dtype)in->dtype);
        if (nnc_is_float((nnc_dtype)in->dtype)) {
            r.lo = a.lo >= 0 ? 0 : r.lo;
            if (a.lo >= -1 && a.hi <= 1)
                r = (range){a.lo >= 0 ? 0 : -1, 1, a.nan};
        }
        return r;
    }
    }
}

/* ---- the pass ---- */

static range get(const nnc_kernel *k, int32_t id)
{
    return id < 0 ? anything : (range){k->ins[id].lo, k->ins[id].hi, k->ins[id].maybe_nan};
}

/* Range of a load: its type's, or that of all values stored to a tmp buffer before. Where points run in order, a store may come later in
 * the text, so the type's range counts. */
static range of_load(const nnc_kernel *k, int id)
{
    const nnc_kins *in = &k->ins[id];
    const nnc_kbuf *b = &k->buf[in->buf];
    range r = of_dtype(b->dtype);
    bool stored = false;
    const int n = b->role == KB_tmp && !nnc_kernel_in_order(k) ? id : 0;
    for (int i = 0; i < n; i++)
        if (k->ins[i].op == KO_store && k->ins[i].buf == in->buf) {
            range v = get(k, k->ins[i].arg[0]);
            v = nnc_kdtype(b->dtype) == b->dtype ? v : cast_to(v, b->dtype);
            r = stored ? range_union(r, v) : v;
            stored = true;
        }
    return in->n_guard > 0 ? range_union(r, get(k, in->arg[1])) : r;
}

static double reduce_count(const nnc_kernel *k, int id)
{
    double n = 1;
    uint32_t axes = nnc_reduce_axes(k, id);
    for (int a = 0; a < k->n_axis; a++)
        n *= axes >> a & 1 ? (double)k->axis[a].extent : 1;
    return n;
}

/* x - max(x), taken over all elements of x, is at most 0. The maximum's operand is x itself or, in a later stage, the same element of
 * an input, loaded again. */
static bool is_below_its_max(const nnc_kernel *k, const nnc_kins *in)
{
    if (in->op != KO_sop || in->sop != SC_sub || !nnc_is_float((nnc_dtype)in->dtype))
        return false;
    const nnc_kins *m = &k->ins[in->arg[1]];
    if (m->op != KO_reduce || m->sop != KR_max || m->arg[1] >= 0)
        return false;
    const nnc_kins *x = &k->ins[in->arg[0]], *y = &k->ins[m->arg[0]];
    return x == y || (x->op == KO_load && y->op == KO_load && x->buf == y->buf &&
                         k->buf[x->buf].role == KB_in && x->arg[0] < 0 && y->arg[0] < 0 &&
                         x->n_guard == 0 && y->n_guard == 0 && nnc_affine_equal(&x->at, &y->at));
}

static range of_const(const nnc_kins *in)
{
    double v = nnc_is_float((nnc_dtype)in->dtype) ? in->f
               : in->dtype == DT_u64              ? (double)(uint64_t)in->i
                                                  : (double)in->i;
    if (v != v)
        return (range){INFINITY, INFINITY, true};
    if (!nnc_is_float((nnc_dtype)in->dtype) && fabs(v) >= 0x1p53) /* v may be rounded */
        return (range){nextafter(v, -INFINITY), nextafter(v, INFINITY), false};
    return (range){v, v, false};
}

/* The sum of exp(x - max x) over at least the elements of the maximum: one term is e^0, none is negative. */
static bool has_a_one(const nnc_kernel *k, int id)
{
    const nnc_kins *in = &k->ins[id], *e = &k->ins[in->arg[0]];
    if (in->sop != KR_sum || in->arg[1] >= 0 || e->op != KO_sop ||
        (e->sop != SC_exp && e->sop != SC_exp2))
        return false;
    const nnc_kins *d = &k->ins[e->arg[0]];
    return is_below_its_max(k, d) && (nnc_reduce_axes(k, d->arg[1]) & ~nnc_reduce_axes(k, id)) == 0;
}

static range compute(const nnc_kernel *k, int id)
{
    const nnc_kins *in = &k->ins[id];
    switch (in->op) {
    case KO_const: return of_const(in);
    case KO_index: return (range){0, (double)k->axis[in->i].extent - 1, false};
    case KO_load: return of_load(k, id);
    case KO_reduce: {
        range r = of_reduce(in, get(k, in->arg[0]), reduce_count(k, id));
        r.lo =
            has_a_one(k, id) ? fmax(r.lo, 0.5) : r.lo; /* 1, less the error of fast forms of exp */
        return r;
    }
    case KO_sop: {
        range r = nnc_range_of_sop(in, get(k, in->arg[0]), get(k, in->arg[1]), get(k, in->arg[2]));
        if (is_below_its_max(k, in) && r.lo <= 0)
            r.hi = fmin(r.hi, 0);
        return r;
    }
    default: return get(k, in->arg[0]);
    }
}

/* The operand that the instruction always equals, or -1. */
static int32_t same_as(const nnc_kernel *k, const nnc_kins *in)
{
    range a = get(k, in->arg[0]), b = get(k, in->arg[1]);
    switch ((nnc_sop)in->sop) {
    case SC_identity: return in->arg[0];
    case SC_cast:
        return k->ins[in->arg[0]].dtype == in->dtype && in->cast_to == in->dtype ? in->arg[0] : -1;
    case SC_abs: /* a range from 0 may hold -0, as sqrt's does */
        return a.lo > 0 || (a.lo == 0 && !nnc_is_float((nnc_dtype)in->dtype)) ? in->arg[0] : -1;
    case SC_max:
        return in->arg[0] == in->arg[1] || (a.lo >= b.hi && !b.nan) ? in->arg[0]
               : b.lo >= a.hi && !a.nan                             ? in->arg[1]
                                                                    : -1;
    case SC_min:
        return in->arg[0] == in->arg[1] || (a.hi <= b.lo && !b.nan) ? in->arg[0]
               : b.hi <= a.lo && !a.nan                             ? in->arg[1]
                                                                    : -1;
    case SC_select:
        return in->arg[1] == in->arg[2] || a.lo > 0 ? in->arg[1] : a.hi < 1 ? in->arg[2] : -1;
    case SC_mul: /* exact, for NaN and zeros too */
        return b.lo == 1 && b.hi == 1 && !b.nan   ? in->arg[0]
               : a.lo == 1 && a.hi == 1 && !a.nan ? in->arg[1]
                                                  : -1;
    case SC_and: return b.lo > 0 ? in->arg[0] : a.lo > 0 ? in->arg[1] : -1;
    case SC_or: return b.hi < 1 ? in->arg[0] : a.hi < 1 ? in->arg[1] : -1;
    default: return -1;
    }
}

static uint8_t hints(const nnc_kernel *k, const nnc_kins *in)
{
    uint8_t h = KH_nonan;
    if (in->op != KO_sop || !nnc_is_float((nnc_dtype)k->ins[in->arg[0]].dtype))
        return 0;
    for (int i = 0; i < nnc_sops[in->sop].arity; i++)
        if (get(k, in->arg[i]).nan)
            h = 0;
    range a = get(k, in->arg[0]);
    double most = fmax(fabs(a.lo), fabs(a.hi));
    return h | (most <= 65536 ? KH_bounded : 0) | (most <= 1.5707963267948966 ? KH_halfpi : 0) |
           (a.lo >= 0 ? KH_nonneg : 0);
}

void nnc_kernel_compact(nnc_kernel *k, int32_t *map)
{
    for (int i = k->n_ins - 1; i >= 0; i--) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store)
            map[i] = 1;
        for (int j = 0; map[i] && j < 3; j++)
            if (in->arg[j] >= 0)
                map[in->arg[j]] = 1;
    }
    int n = 0, stages = 0;
    for (int s = 0; s < k->n_stage; s++) {
        nnc_kstage *g = &k->stage[s], to = {.axes = g->axes, .body0 = n};
        for (int i = g->body0; i < g->post1; i++) {
            if (i == g->post0)
                to.body1 = n;
            if (!map[i])
                continue;
            nnc_kins in = k->ins[i];
            for (int j = 0; j < 3; j++)
                if (in.arg[j] >= 0)
                    in.arg[j] = map[in.arg[j]];
            map[i] = n;
            k->ins[n++] = in;
        }
        if (g->post0 == g->post1)
            to.body1 = n;
        to.post0 = to.body1;
        to.post1 = n;
        if (to.body0 < n)
            k->stage[stages++] = to;
    }
    k->n_ins = n;
    k->n_stage = stages;
}

static void analyse(nnc_kernel *k, int32_t *same)
{
    for (int i = 0; i < k->n_ins; i++) {
        nnc_kins *in = &k->ins[i];
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                in->arg[j] = same[in->arg[j]];
        range r = compute(k, i);
        in->lo = r.lo;
        in->hi = r.hi;
        in->maybe_nan = r.nan;
        in->hint = hints(k, in) | (in->hint & (KH_exact | KH_fast));
        same[i] = i;
        int32_t s = in->op == KO_sop ? same_as(k, in) : -1;
        if (s >= 0)
            same[i] = s;
        else if (in->op == KO_sop && r.lo == r.hi && fabs(r.lo) < 0x1p53 && !r.nan &&
                 (!nnc_is_float((nnc_dtype)in->dtype) || in->sop == SC_cast))
            *in = (nnc_kins){.op = KO_const,
                .dtype = in->dtype,
                .buf = -1,
                .arg = {-1, -1, -1},
                .i = (int64_t)r.lo,
                .f = r.lo,
                .lo = r.lo,
                .hi = r.hi};
    }
}

bool nnc_kernel_ranges(nnc_kernel *k)
{
    NNC_FREED int32_t *map = nnc_calloc((size_t)k->n_ins + 1, sizeof *map);
    if (!map)
        return false;
    analyse(k, map);
    memset(map, 0, sizeof *map * (size_t)k->n_ins);
    nnc_kernel_compact(k, map);
    return true;
}

/* math/formula.c -- the methods of the math functions (formula.h). Error bounds: docs/math.md, measured over all 2^32 inputs.
 *
 * Each method is written once over its working type: f32 on machines with fused multiply-add; f64 without it, where f32 would be too
 * inaccurate, and under --math=exact. Both use the same coefficients (minimax.def: accurate to 2^-26 or better). f64 without fused
 * multiply-add is slower, but its results equal the f32 method's. Comparisons are false for NaN, so that NaN is kept. Rounding to an
 * integer adds and subtracts 1.5 * 2^23 (2^52) instead of converting, which would lose NaN. f64 functions are the C library's. */
#include "math/formula.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const nnc_fop_info nnc_fops[FO__COUNT] = {
#define FO(name, arity, f32, f64) {#name, arity, {f32, f64}},
#include "math/formula.def"
};

const uint32_t nnc_two_over_pi[NNC_TWO_OVER_PI] = {0xa2, 0xa2f9, 0xa2f983, 0xa2f9836e, 0xf9836e4e,
    0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1, 0x2757d1f5,
    0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599, 0x6295993c,
    0x95993c43, 0x993c4390, 0x3c439041};

#define MM(name, ...) static const double name[] = {__VA_ARGS__};
#include "math/minimax.def"

/* ---- steps ---- */

typedef struct fb {
    nnc_formula *f;
    nnc_machine m;
} fb;
typedef int16_t R; /* a step */

static bool same_step(const nnc_fstep *p, const nnc_fstep *q)
{
    return p->op == q->op && p->type == q->type && memcmp(p->arg, q->arg, sizeof p->arg) == 0 &&
           p->n == q->n && p->i == q->i && p->c == q->c && memcmp(&p->f, &q->f, sizeof p->f) == 0;
}

/* The builders below are called by hundreds of lines: inlined, they take the compiler twice as long. */
#define BUILDER __attribute__((noinline)) static R

/* Appends a step, or finds an earlier one that computes the same; returns its number. */
BUILDER add_step(fb *b, nnc_fstep s)
{
    for (int i = 0; i < b->f->n; i++)
        if (same_step(&b->f->step[i], &s))
            return (R)i;
    assert(b->f->n < NNC_FSTEPS);
    b->f->step[b->f->n] = s;
    return (R)b->f->n++;
}

static nnc_ftype type_of(const fb *b, R x)
{
    return (nnc_ftype)b->f->step[x].type;
}

static bool is_wide(const fb *b, R x)
{
    return type_of(b, x) == FT_f64 || type_of(b, x) == FT_i64;
}

BUILDER op(fb *b, nnc_fop o, nnc_ftype t, R p, R q, R r)
{
    return add_step(b, (nnc_fstep){.op = (uint8_t)o, .type = (uint8_t)t, .arg = {p, q, r}});
}

BUILDER same(fb *b, nnc_fop o, R p, R q, R r)
{
    return op(b, o, type_of(b, p), p, q, r);
}

BUILDER num(fb *b, R like, double v)
{
    nnc_ftype t = type_of(b, like);
    return add_step(b, (nnc_fstep){.op = FO_num,
                           .type = (uint8_t)t,
                           .arg = {-1, -1, -1},
                           .f = t == FT_f32 ? (double)(float)v : v});
}

BUILDER whole(fb *b, R like, int64_t v)
{
    return add_step(
        b, (nnc_fstep){.op = FO_num, .type = b->f->step[like].type, .arg = {-1, -1, -1}, .i = v});
}

/* Shorthands: p, q, r are steps, x determines the type of K's constants. */
#define ADD(p, q) same(b, FO_add, (p), (q), -1)
#define SUB(p, q) same(b, FO_sub, (p), (q), -1)
#define MUL(p, q) same(b, FO_mul, (p), (q), -1)
#define DIV(p, q) same(b, FO_div, (p), (q), -1)
#define FMA(p, q, r) fma_(b, (p), (q), (r))
#define NEG(p) same(b, FO_neg, (p), -1, -1)
#define ABS(p) same(b, FO_abs, (p), -1, -1)
#define SQRT(p) same(b, FO_sqrt, (p), -1, -1)
#define FLOOR(p) same(b, FO_floor, (p), -1, -1)
#define COPYSIGN(p, q) same(b, FO_copysign, (p), (q), -1)
#define LT(p, q) op(b, FO_lt, FT_bool, (p), (q), -1)
#define GT(p, q) op(b, FO_gt, FT_bool, (p), (q), -1)
#define EQ(p, q) op(b, FO_eq, FT_bool, (p), (q), -1)
#define AND(p, q) same(b, FO_and, (p), (q), -1)
#define OR(p, q) same(b, FO_or, (p), (q), -1)
#define NOT(p) same(b, FO_not, (p), -1, -1)
#define SEL(c, p, q) op(b, FO_select, type_of(b, (p)), (c), (p), (q))
#define BRANCH(c, p, q) op(b, FO_branch, type_of(b, (p)), (c), (p), (q))
#define BITS(p) op(b, FO_bits, is_wide(b, (p)) ? FT_i64 : FT_i32, (p), -1, -1)
#define FLOAT(p) op(b, FO_float, is_wide(b, (p)) ? FT_f64 : FT_f32, (p), -1, -1)
#define ITOF(p) op(b, FO_itof, is_wide(b, (p)) ? FT_f64 : FT_f32, (p), -1, -1)
#define IADD(p, q) same(b, FO_iadd, (p), (q), -1)
#define ISUB(p, q) same(b, FO_isub, (p), (q), -1)
#define IMUL(p, q) same(b, FO_imul, (p), (q), -1)
#define XOR(p, q) same(b, FO_xor, (p), (q), -1)
#define SHL(p, q) same(b, FO_shl, (p), (q), -1)
#define LSHR(p, q) same(b, FO_lshr, (p), (q), -1)
#define ASHR(p, q) same(b, FO_ashr, (p), (q), -1)
#define ODD(p) op(b, FO_odd, FT_bool, (p), -1, -1)
#define ZEXT(p) op(b, FO_wide, FT_i64, (p), -1, -1)
#define K(v) num(b, x, (v))
#define I(like, v) whole(b, (like), (v))
#define POLY(x, c) poly(b, (x), (c), (int)NNC_COUNT(c))

static R fma_(fb *b, R p, R q, R r)
{
    return b->m.fma ? same(b, FO_fma, p, q, r) : ADD(MUL(p, q), r);
}

static R poly(fb *b, R x, const double *c, int n)
{
    return add_step(b, (nnc_fstep){.op = FO_poly,
                           .type = b->f->step[x].type,
                           .arg = {x, -1, -1},
                           .n = (int16_t)n,
                           .c = c});
}

static R call(fb *b, nnc_sop f, R x)
{
    return add_step(
        b, (nnc_fstep){.op = FO_call, .type = FT_f64, .arg = {x, -1, -1}, .n = (int16_t)f});
}

static R widen(fb *b, R x)
{
    return is_wide(b, x) ? x : op(b, FO_wide, FT_f64, x, -1, -1);
}

static R narrow(fb *b, R x)
{
    return is_wide(b, x) ? op(b, FO_narrow, FT_f32, x, -1, -1) : x;
}

/* ---- building blocks ---- */

static R at_most(fb *b, R x, double c)
{
    return SEL(GT(x, K(c)), K(c), x);
}

static R at_least(fb *b, R x, double c)
{
    return SEL(LT(x, K(c)), K(c), x);
}

/* Adding this constant rounds to an integer, kept in the low bits of the sum. */
static R magic(fb *b, R x)
{
    return K(is_wide(b, x) ? 0x1.8p52 : 0x1.8p23);
}

/* 2^(n + off) from t = n + magic; n + off must be the exponent of a normal number. */
static R exp2i(fb *b, R t, int off)
{
    R i = BITS(t);
    int shift = is_wide(b, t) ? 52 : 23;
    int64_t one = (is_wide(b, t) ? 1023 : 127) + off;
    return FLOAT(IADD(SHL(i, I(i, shift)), I(i, one << shift)));
}

/* p 2^n, rounded once, from t = n + magic. Without the hardware instruction, f32 uses two factors unless n stays within the exponents
 * of normal numbers. */
static R scale(fb *b, R p, R t, bool normal)
{
    if (b->m.scale && !is_wide(b, p))
        return same(b, FO_scale, p, SUB(t, magic(b, t)), -1);
    if (normal || is_wide(b, p))
        return MUL(p, exp2i(b, t, 0));
    R i = BITS(t), n = ISUB(i, I(i, 0x4b400000)), h = ASHR(n, I(i, 1)), rest = ISUB(n, h),
      one = I(i, 0x3f800000), s = I(i, 23);
    R first = FLOAT(IADD(SHL(h, s), one)), second = FLOAT(IADD(SHL(rest, s), one));
    return MUL(MUL(p, first), second);
}

/* p / q within 1 ulp, 2^-126 <= |q| <= 2^126, |p / q| < 2^126. A GPU corrects an estimate of 1/q once, as its division does, but
 * without the branch for other operands. */
static R quotient(fb *b, R p, R q)
{
    if (!b->m.gpu || is_wide(b, p))
        return DIV(p, q);
    R r = same(b, FO_rcp, q, -1, -1);
    bool one = b->f->step[p].op == FO_num && b->f->step[p].f == 1;
    R y = one ? r : MUL(p, r);
    return FMA(FMA(NEG(q), y, p), r, y);
}

/* 1 / sqrt x. A GPU's quotient and root take forty instructions and a branch each, its estimate, corrected by one step, seven (1 ulp).
 * Where x is 0 or infinite the estimate is the result, and the step gives NaN. */
static R rsqrt_(fb *b, R x)
{
    if (!b->m.gpu || is_wide(b, x))
        return DIV(K(1), SQRT(x));
    R y = same(b, FO_rsqrt, x, -1, -1), e = FMA(NEG(MUL(x, y)), y, K(1));
    return SEL(LT(ABS(e), K(1)), FMA(MUL(y, K(0.5)), e, y), y);
}

/* p / q within 2^-21, p finite: for --math=fast. */
static R quick(fb *b, R p, R q)
{
    if (!b->m.gpu)
        return same(b, FO_quick, p, q, -1);
    R r = same(b, FO_rcp, q, -1, -1);
    return b->f->step[p].op == FO_num && b->f->step[p].f == 1 ? r : MUL(p, r);
}

/* ---- exponentials ---- */

/* x = n ln2 + r, |r| <= ln2/2; *t = n + off + magic. */
static R exp_reduce(fb *b, R x, int off, R *t)
{
    R c = K((is_wide(b, x) ? 0x1.8p52 : 0x1.8p23) + off), n;
    *t = FMA(x, K(M_LOG2E), c);
    n = SUB(*t, c);
    return FMA(n, K(0x1.05c610ca86c39p-29), FMA(n, K(-0x1.62e43p-1), x));
}

/* An exponent whose power of 2 is 0, of the arguments below which all results are 0. Exponents nearer to 0 would take the CPU's slow path
 * for products that underflow. AVX-512's instruction leaves it below -512, and the two factors must be normal. */
static double vanishing(const fb *b, R x)
{
    return b->m.scale && !is_wide(b, x) ? -600 : -240;
}

/* e^x, |x| <= ln2/2 */
static R exp_near(fb *b, R x)
{
    return ADD(FMA(MUL(x, x), POLY(x, EXP), x), K(1));
}

/* low, top: x >= -87 and x <= 88 are known to hold. */
static R exp_(fb *b, R x, bool low, bool top)
{
    if (!top)
        x = at_most(b, x, is_wide(b, x) ? 100 : 89);
    if (!low)
        x = at_least(b, x, vanishing(b, x) * M_LN2);
    R t, r = exp_reduce(b, x, 0, &t);
    return scale(b, exp_near(b, r), t, low && top);
}

static R exp2_(fb *b, R x)
{
    x = at_least(b, at_most(b, x, 129), vanishing(b, x));
    R c = magic(b, x), t = ADD(x, c), r = SUB(x, SUB(t, c));
    return scale(b, FMA(r, POLY(r, EXP2), K(1)), t, false);
}

static R expm1_(fb *b, R x)
{
    R t, r = exp_reduce(b, at_least(b, at_most(b, x, 89), -18), 0, &t),
         p = FMA(MUL(r, r), POLY(r, EXPM1), r);
    bool wide = is_wide(b, x); /* f32: 2^(n-1), since 2^128 overflows */
    R s = exp2i(b, t, wide ? 0 : -1), y = FMA(p, s, SUB(s, K(wide ? 1 : 0.5)));
    return SEL(LT(ABS(x), K(0x1p-25)), x, wide ? y : ADD(y, y));
}

/* 2^off (e^x + 1), where 2^off e^x is a normal number. */
static R exp_and_one(fb *b, R x, int off)
{
    if (b->m.gpu && !is_wide(b, x)) {
        R e = exp_(b, x, true, true);
        return ADD(e, K(1));
    }
    const bool wide = is_wide(b, x); /* the exponent's bits are those of n + off + 127 (1023) */
    R t, r = exp_reduce(b, x, off + (wide ? 1023 : 127), &t), i = BITS(t),
         s = FLOAT(SHL(i, I(i, wide ? 52 : 23)));
    return FMA(exp_near(b, r), s, K(ldexp(1, off)));
}

/* 1 / (1 + e^-x), in f32 1 from x = 18 on and 0 below -104. Where e^-x may exceed f32, both sides of the quotient are multiplied by 2^-64,
 * so that only the quotient can be subnormal, and is rounded once. Then 2^-64 e^-x is no normal number from x = 44 on. On
 * GPUs e^-|x| serves both signs, with which ptxas keeps more loads in flight. */
static R sigmoid_(fb *b, R x, bool low, bool top)
{
    if (b->m.gpu && !is_wide(b, x)) {
        R e = exp_(b, NEG(ABS(x)), low && top, true);
        return quotient(b, SEL(LT(x, K(0)), e, K(1)), ADD(e, K(1)));
    }
    const int off = low || is_wide(b, x) ? 0 : -64;
    if (!top || off)
        x = at_most(b, x, 18);
    if (!low)
        x = at_least(b, x, -106);
    return quotient(b, K(ldexp(1, off)), exp_and_one(b, NEG(x), off));
}

static R tanh_(fb *b, R x, bool is_short)
{
    R z = MUL(x, x), near = FMA(MUL(x, z), POLY(z, TANH), x);
    if (is_short)
        return COPYSIGN(near, x);
    R a = ABS(x), c = at_most(b, a, 10), e1 = exp_and_one(b, ADD(c, c), 0);
    R y = SUB(K(1), quotient(b, K(2), e1)), is_near = LT(a, K(0.625));
    return COPYSIGN(is_wide(b, x) ? BRANCH(is_near, near, y) : SEL(is_near, near, y), x);
}

/* f64 only */
static R sinh_(fb *b, R x, bool cosh)
{
    R a = ABS(x), e = exp_(b, a, true, false), r = DIV(K(1), e);
    if (cosh)
        return MUL(ADD(e, r), K(0.5));
    R z = MUL(x, x), near = FMA(MUL(x, z), POLY(z, SINH), x);
    return BRANCH(LT(a, K(1)), near, COPYSIGN(MUL(SUB(e, r), K(0.5)), x));
}

static R erf_(fb *b, R x)
{
    R near = MUL(x, POLY(MUL(x, x), ERF)), a = ABS(x),
      e = exp_(b, POLY(at_most(b, a, 4), ERFC), true, true);
    return BRANCH(LT(a, K(0.927)), near, COPYSIGN(SUB(K(1), e), x));
}

/* ---- logarithms ---- */

/* x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2), for finite x > 0; f32: normal unless `subnormal`. */
static R split(fb *b, R x, R *f, bool subnormal)
{
    bool d = is_wide(b, x);
    R tiny = LT(x, K(0x1p-126));
    if (!d && subnormal)
        x = SEL(tiny, MUL(x, K(0x1p23)), x);
    R i = BITS(x), sh = I(i, d ? 52 : 23),
      e = ASHR(ISUB(i, I(i, d ? 0x3fe6a09e667f3bcd : 0x3f3504f3)), sh);
    *f = SUB(FLOAT(ISUB(i, SHL(e, sh))), K(1));
    if (d) /* CPUs before AVX-512 cannot convert 64-bit integers: use the bits of 1.5 * 2^52 + e */
        return SUB(FLOAT(IADD(e, I(i, 0x4338000000000000))), K(0x1.8p52));
    R n = ITOF(e);
    return subnormal ? SEL(tiny, SUB(n, K(23)), n) : n;
}

/* Special cases: NaN below zero, -inf at zero, inf and NaN unchanged. */
static R log_ends(fb *b, R x, R y, int reach)
{
    if (!(reach & FR_top))
        y = SEL(EQ(x, K(INFINITY)), x, y);
    if (reach & FR_sure)
        return y;
    return SEL(GT(x, K(0)), y, reach & FR_low ? x : SEL(EQ(x, K(0)), K(-INFINITY), K(NAN)));
}

static R log_(fb *b, R x, int reach)
{
    R f, e = split(b, x, &f, !(reach & FR_low)), s = MUL(f, f);
    R t = FMA(e, K(-0x1.05c610ca86c39p-29), FMA(MUL(f, s), POLY(f, LOG), MUL(s, K(-0.5))));
    return log_ends(b, x, FMA(e, K(0x1.62e43p-1), ADD(f, t)), reach);
}

static R log2_(fb *b, R x, int reach)
{
    R f, e = split(b, x, &f, !(reach & FR_low)),
         t = FMA(MUL(f, f), POLY(f, LOG2), MUL(f, K(0x1.4ae0cp-26)));
    return log_ends(b, x, ADD(e, FMA(f, K(0x1.715476p0), t)), reach);
}

/* f64 only: 1 + x is accurate enough there. */
static R log1p_(fb *b, R x)
{
    R y = log_(b, ADD(x, K(1)), 0), a = ABS(x),
      near = FMA(MUL(x, x), FMA(x, K(1.0 / 3), K(-0.5)), x);
    return BRANCH(LT(a, K(0x1p-10)), SEL(EQ(x, K(0)), x, near), y);
}

/* f64 only: |x|^y = 2^(y log2 |x|), then C's special cases. */
static R pow_(fb *b, R x, R y)
{
    R a = ABS(x), f, e = split(b, a, &f, false), s = DIV(f, ADD(f, K(2)));
    R l = SEL(LT(a, K(INFINITY)), FMA(s, POLY(MUL(s, s), POWLOG2), e), a);
    l = SEL(EQ(a, K(0)), K(-INFINITY), l);
    R unit = AND(EQ(a, K(1)), LT(K(0), ABS(y))); /* avoids 0 * inf */
    R t = SEL(OR(OR(EQ(x, K(1)), EQ(y, K(0))), unit), K(0), MUL(y, l));
    t = at_least(b, at_most(b, t, 200), -200);
    R c = magic(b, x), n = ADD(t, c), r = SUB(t, SUB(n, c)),
      p = scale(b, FMA(r, POLY(r, EXP2D), K(1)), n, true);
    R h = MUL(y, K(0.5)), integer = EQ(FLOOR(y), y), even = EQ(FLOOR(h), h);
    R of_odd = SEL(AND(integer, NOT(even)), COPYSIGN(p, x), p);
    R bad = AND(AND(LT(x, K(0)), GT(x, K(-INFINITY))), AND(NOT(integer), LT(ABS(y), K(INFINITY))));
    return BRANCH(GT(x, K(0)), p, SEL(bad, K(NAN), of_odd));
}

/* ---- circular functions ---- */

/* f64 only. asin and acos share s + s z P(z) on [0, 1/2]; above, asin a = pi/2 - 2 asin sqrt((1-a)/2). */
static R asin_(fb *b, R x, bool acos)
{
    R a = ABS(x), big = GT(a, K(0.5)), z = SEL(big, MUL(SUB(K(1), a), K(0.5)), MUL(a, a)),
      s = SEL(big, SQRT(z), a);
    R p = FMA(MUL(s, z), POLY(z, ASIN), s);
    if (!acos)
        return COPYSIGN(SEL(big, SUB(K(M_PI_2), ADD(p, p)), p), x);
    R far = SEL(LT(x, K(0)), SUB(K(M_PI), ADD(p, p)), ADD(p, p));
    return BRANCH(big, far, SUB(K(M_PI_2), COPYSIGN(p, x)));
}

static R atan_(fb *b, R x)
{
    R a = ABS(x), inverse = GT(a, K(1)), t = SEL(inverse, DIV(K(1), a), a);
    R z = MUL(t, t), p = FMA(MUL(t, z), POLY(z, ATAN), t);
    R beyond = is_wide(b, x) ? SUB(K(M_PI_2), p) : ADD(SUB(K(0x1.921fb6p0), p), K(-0x1.777a5cp-25));
    return COPYSIGN(SEL(inverse, beyond, p), x);
}

/* Argument reduction for |x| > NNC_FAR, inf or NaN, f32: sin x = sin r, cos x = sin r; tan: r in f64, whose last bit selects tan x =
 * -1 / tan r. |x| 2/pi modulo 4 as a 64-bit fraction (2^62 is pi/2) from the bits of |x| >= 120 and 96 bits of 2/pi (Payne and Hanek). */
static R far_(fb *b, nnc_sop f, R x, nnc_ftype t)
{
    R w[3], bits = BITS(x), m = AND(bits, I(bits, 0x7fffffff)),
            at = AND(LSHR(m, I(m, 26)), I(m, 15));
    for (int i = 0; i < 3; i++)
        w[i] = ZEXT(op(b, FO_word, FT_i32, IADD(at, I(m, 4 * i)), -1, -1));
    R shift = AND(LSHR(m, I(m, 23)), I(m, 7));
    R v = ZEXT(SHL(OR(AND(m, I(m, 0xffffff)), I(m, 0x800000)), shift)), s32 = I(v, 32);
    R y = IADD(OR(SHL(IMUL(v, w[0]), s32), LSHR(IMUL(v, w[2]), s32)), IMUL(v, w[1]));
    int quarter = f == SC_tan ? 62 : 63;
    if (f == SC_cos)
        y = IADD(y, I(y, INT64_C(1) << 62));
    R n = LSHR(IADD(y, I(y, INT64_C(1) << (quarter - 1))), I(y, quarter));
    R fraction = ITOF(ISUB(y, SHL(n, I(y, quarter)))),
      r = MUL(fraction, num(b, fraction, 0x1.921fb54442d18p-62));
    R minus = ZEXT(LSHR(bits, I(bits, 31))), flip = f == SC_sin   ? XOR(minus, n)
                                                    : f == SC_cos ? n
                                                                  : minus;
    R word = XOR(BITS(r), SHL(flip, I(y, 63)));
    if (f == SC_tan)
        word = OR(AND(word, I(y, -2)), AND(n, I(y, 1)));
    r = FLOAT(word);
    r = SEL(LT(m, I(m, 0x7f800000)), r, num(b, r, NAN));
    return t == FT_f64 ? r : narrow(b, r);
}

/* Negates r where the low bit of t's integer is set. */
static R flip(fb *b, R r, R t)
{
    R i = BITS(t);
    return FLOAT(XOR(BITS(r), SHL(i, I(i, is_wide(b, t) ? 63 : 31))));
}

/* sin x or cos x = sin r: x = n pi + r, or (n - 1/2) pi + r. */
static R sin_reduce(fb *b, R x, bool cos)
{
    R c = magic(b, x), by = K(is_wide(b, x) ? 0x1.45f306dc9c883p-2 : 0x1.45f306p-2);
    R t = cos ? ADD(FMA(x, by, K(0.5)), c) : FMA(x, by, c), n = SUB(t, c), r;
    if (cos)
        n = SUB(n, K(0.5));
    if (is_wide(b, x) && b->m.fma)
        r = FMA(n, K(-0x1.1a62633145c07p-53), FMA(n, K(-0x1.921fb54442d18p1), x));
    else
        /* all negative: -0 stays -0 */
        r = FMA(n, K(-0x1.84698ap-47), FMA(n, K(-0x1.4442dp-23), FMA(n, K(-0x1.921fb4p1), x)));
    return flip(b, r, t);
}

static R far_step(fb *b, nnc_sop f, R x32, R r)
{
    return add_step(
        b, (nnc_fstep){
               .op = FO_far, .type = b->f->step[r].type, .arg = {x32, r, -1}, .n = (int16_t)f});
}

static R sin_cos(fb *b, nnc_fkey key, R x32, R x)
{
    bool cos = key.sop == SC_cos;
    R r;
    if (!(key.reach & (FR_short | FR_half))) {
        r = sin_reduce(b, x, cos);
        if (!(key.reach & FR_near))
            r = far_step(b, (nnc_sop)key.sop, x32, r);
    } else if (cos) {
        R a = ABS(x);
        r = is_wide(b, x) ? SUB(K(M_PI_2), a) : SUB(SUB(K(0x1.921fb6p0), a), K(0x1.777a5cp-25));
    } else {
        r = x;
    }
    R z = MUL(r, r), p;
    if (key.policy & KH_fast)
        p = key.reach & FR_short ? POLY(z, FAST_SIN_SHORT) : POLY(z, FAST_SIN);
    else
        p = key.reach & FR_short ? POLY(z, SIN_SHORT) : POLY(z, SIN);
    return COPYSIGN(FMA(MUL(z, r), p, r), r);
}

/* f64 only: x = n pi/2 + r, tan x = tan r or -1 / tan r. */
static R tan_(fb *b, R x32, R x, bool near)
{
    R c = magic(b, x), t = ADD(MUL(x, K(0x1.45f306dc9c883p-1)), c), n = SUB(t, c), last = BITS(t);
    R r = FMA(n, K(-0x1.0b4611a626331p-34),
        FMA(n, K(-0x1.921fb544p0), x)); /* 33 bits of pi/2: exact for |n| < 2^20 */
    if (!near) {
        R w = BITS(r);
        r = far_step(b, SC_tan, x32, FLOAT(OR(AND(w, I(w, -2)), AND(last, I(w, 1)))));
        last = BITS(r);
    }
    R z = MUL(r, r), y = FMA(MUL(z, r), POLY(z, TAN), r), odd = ODD(last);
    return BRANCH(odd, DIV(K(-1), y), y);
}

/* ---- --math=fast: relative error <= 2^-15; results below 2^-126 may be zero ---- */

/* 2^x. low: x >= -126 is known to hold; top: x <= 128. On a CPU 2^n 2^r, n = floor x; 2^128 is infinity. Without AVX-512's
 * instructions, subnormal results are zero. */
static R fast_exp2(fb *b, R x, bool low, bool top)
{
    if (b->m.gpu)
        return same(b, FO_ex2, x, -1, -1);
    if (b->m.scale) {
        R r = same(b, FO_fract, x, -1, -1);
        return same(b, FO_scale, FMA(r, POLY(r, FAST_EXP2), K(1)), x, -1);
    }
    if (!low)
        x = at_least(b, x, -127);
    if (!top)
        x = at_most(b, x, 128);
    R n = FLOOR(x), r = SUB(x, n);
    return MUL(FMA(r, POLY(r, FAST_EXP2), K(1)), exp2i(b, ADD(n, K(0x1.8p23)), 0));
}

/* 1 - 2 / (1 + e^(2 x)); a polynomial near 0. */
static R fast_tanh(fb *b, R x, bool is_short)
{
    R z = MUL(x, x), near = COPYSIGN(FMA(MUL(x, z), POLY(z, FAST_TANH), x), x);
    if (is_short)
        return near;
    R y = MUL(x, K(2 * M_LOG2E));
    if (!b->m.gpu)
        y = at_most(b, y, 40);
    R d = ADD(fast_exp2(b, y, false, true), K(1));
    R far = b->m.gpu ? FMA(quick(b, K(1), d), K(-2), K(1)) : SUB(K(1), quick(b, K(2), d));
    return SEL(LT(ABS(x), K(0.4)), near, far);
}

/* 1 / (1 + e^-x). Unless the result is known to be normal, 2^25 times it is computed, which is normal: subnormal results keep their
 * precision, and so does x / (1 + e^-x). From e^-x = 2^126 on the result is 0. */
static R fast_sigmoid(fb *b, R x, bool low)
{
    R c = K(low ? 1 : 0x1p-25), y = low ? MUL(x, K(-M_LOG2E)) : FMA(x, K(-M_LOG2E), K(-25));
    if (!b->m.gpu && !low)
        y = at_most(b, y, 126);
    R s = quick(b, K(1), ADD(fast_exp2(b, y, false, true), c));
    return low ? s : MUL(s, c);
}

static R fast_erf(fb *b, R x)
{
    R near = MUL(x, POLY(MUL(x, x), FAST_ERF)), a = ABS(x), c = at_most(b, a, 4);
    R far = SUB(K(1), fast_exp2(b, MUL(c, POLY(c, FAST_ERFC)), true, true));
    return BRANCH(LT(a, K(0.5)), near, COPYSIGN(far, x));
}

/* 1 + erf x = erfc(-x), from 2^32 e^(-x^2), so that small results stay accurate: only the last product can be subnormal or 0. */
static R fast_erf1(fb *b, R x)
{
    R a = b->m.gpu ? ABS(x) : at_most(b, ABS(x), 10.5), t = quick(b, K(1), FMA(a, K(0.43), K(1)));
    R e = FMA(MUL(x, x), K(-M_LOG2E), K(32));
    R y = MUL(fast_exp2(b, e, false, true), MUL(t, POLY(t, FAST_ERFC_TAIL)));
    return SEL(LT(x, K(0)), y, SUB(K(2), y));
}

/* The fast form, or -1: the function has none. */
static R fast(fb *b, nnc_fkey key, R x)
{
    switch (key.sop) {
    case SC_exp: return fast_exp2(b, MUL(x, K(M_LOG2E)), key.reach & FR_low, key.reach & FR_top);
    case SC_exp2: return fast_exp2(b, x, false, false);
    case SC_tanh: return fast_tanh(b, x, key.reach & FR_short);
    case SC_sigmoid: return fast_sigmoid(b, x, key.reach & FR_low);
    case SC_erf: return fast_erf(b, x);
    case SC_erf1: return fast_erf1(b, x);
    case SC_recip:
        return key.reach & FR_middle ? quick(b, K(1), x)
               : b->m.gpu            ? same(b, FO_rcp_any, x, -1, -1)
                                     : -1;
    case SC_rsqrt: return b->m.gpu ? same(b, FO_rsqrt, x, -1, -1) : -1;
    default: return -1;
    }
}

/* ---- dispatch ---- */

static R work(fb *b, nnc_fkey key, R x32, R x, R y)
{
    int reach = key.reach;
    switch (key.sop) {
    case SC_exp: return exp_(b, x, reach & FR_low, reach & FR_top);
    case SC_exp2: return exp2_(b, x);
    case SC_expm1: return expm1_(b, x);
    case SC_log: return log_(b, x, reach);
    case SC_log2: return log2_(b, x, reach);
    case SC_log1p: return log1p_(b, x);
    case SC_sin:
    case SC_cos: return sin_cos(b, key, x32, x);
    case SC_tan: return tan_(b, x32, x, reach & FR_near);
    case SC_asin:
    case SC_acos: return asin_(b, x, key.sop == SC_acos);
    case SC_atan: return atan_(b, x);
    case SC_sinh:
    case SC_cosh: return sinh_(b, x, key.sop == SC_cosh);
    case SC_tanh: return tanh_(b, x, reach & FR_short);
    case SC_sigmoid: return sigmoid_(b, x, reach & FR_low, reach & FR_top);
    case SC_erf: return erf_(b, x);
    case SC_erf1: /* the C library's erfc */ return call(b, SC_erf1, NEG(x));
    case SC_rsqrt: return rsqrt_(b, x);
    case SC_recip: return reach & FR_middle ? quotient(b, K(1), x) : DIV(K(1), x);
    default: return pow_(b, x, y);
    }
}

/* f64: calls of the C library, which lacks sigmoid. */
static R of_f64(fb *b, nnc_fkey key, R x, R y)
{
    switch (key.sop) {
    case SC_sigmoid: {
        R e = call(b, SC_exp, NEG(ABS(x)));
        return DIV(SEL(LT(x, K(0)), e, K(1)), ADD(e, K(1)));
    }
    case SC_erf1:
    case SC_rsqrt:
    case SC_recip: return work(b, key, x, x, y);
    default: {
        R r = call(b, (nnc_sop)key.sop, x);
        b->f->step[r].arg[1] = y;
        return r;
    }
    }
}

static bool is_f64_only(nnc_sop f)
{
    return f == SC_log1p || f == SC_tan || f == SC_asin || f == SC_acos || f == SC_sinh ||
           f == SC_cosh || f == SC_pow || f == SC_erf1;
}

/* Removes steps that the last one does not use. */
static void prune(nnc_formula *f, R last)
{
    bool live[NNC_FSTEPS] = {false};
    int16_t map[NNC_FSTEPS];
    live[last] = true;
    for (int i = last; i >= 0; i--)
        for (int j = 0; live[i] && j < 3; j++)
            if (f->step[i].arg[j] >= 0)
                live[f->step[i].arg[j]] = true;
    f->n = 0;
    for (int i = 0; i <= last; i++) {
        if (!live[i])
            continue;
        nnc_fstep s = f->step[i];
        for (int j = 0; j < 3; j++)
            s.arg[j] = s.arg[j] < 0 ? -1 : map[s.arg[j]];
        map[i] = (int16_t)f->n;
        f->step[f->n++] = s;
    }
}

void nnc_formula_make(nnc_formula *f, nnc_fkey key, nnc_machine m)
{
    fb builder = {f, m}, *b = &builder;
    const nnc_ftype in = key.far ? FT_f32 : (nnc_ftype)key.type;
    f->n = 0;
    R x = add_step(b, (nnc_fstep){.op = FO_arg, .type = (uint8_t)in, .arg = {-1, -1, -1}}), y = -1,
      r = -1;
    if (nnc_sops[key.sop].arity == 2)
        y = add_step(
            b, (nnc_fstep){.op = FO_arg, .type = (uint8_t)in, .arg = {-1, -1, -1}, .n = 1});
    if (key.far)
        r = far_(b, (nnc_sop)key.sop, x, (nnc_ftype)key.type);
    else if (key.type == FT_f64)
        r = of_f64(b, key, x, y);
    else if (key.policy & KH_fast && m.fma)
        r = fast(b, key, x);
    if (r < 0) {
        bool plain = key.sop == SC_recip || (key.sop == SC_rsqrt && !(key.policy & KH_exact));
        bool wide = !plain && (!m.fma || key.policy & KH_exact || is_f64_only((nnc_sop)key.sop));
        r = narrow(b,
            wide ? work(b, key, x, widen(b, x), y < 0 ? y : widen(b, y)) : work(b, key, x, x, y));
    }
    prune(f, r);
}

/* ---- keys ---- */

bool nnc_has_formula(nnc_sop f, nnc_dtype d)
{
    return nnc_is_float(d) && ((f >= SC_rsqrt && f <= SC_erf) || f == SC_pow);
}

bool nnc_formula_differs(nnc_sop f, uint8_t policy)
{
    nnc_formula a, b;
    if (!nnc_has_formula(f, DT_f32))
        return false;
    nnc_formula_make(
        &a, (nnc_fkey){.sop = (uint8_t)f, .type = FT_f32}, (nnc_machine){.fma = true, .gpu = true});
    nnc_formula_make(&b, (nnc_fkey){.sop = (uint8_t)f, .type = FT_f32, .policy = policy},
        (nnc_machine){.fma = true, .gpu = true});
    bool differ = a.n != b.n;
    for (int i = 0; i < a.n && !differ; i++)
        differ = !same_step(&a.step[i], &b.step[i]);
    return differ;
}

/* The strongest facts about the operand that the function's methods use. */
static uint8_t reach_of(nnc_sop f, bool fast, double lo, double hi, double most, uint8_t hint)
{
    bool half = most <= 1.5707 || hint & KH_halfpi,
         near = most <= NNC_FAR || hint & (KH_bounded | KH_halfpi);
    switch (f) {
    case SC_exp: return (uint8_t)((lo >= -87 ? FR_low : 0) | (hi <= 88 ? FR_top : 0));
    case SC_sigmoid: return (uint8_t)((lo >= -87 ? FR_low : 0) | (hi <= 87 ? FR_top : 0));
    case SC_log:
    case SC_log2:
        return (uint8_t)((lo >= 0x1p-126 ? FR_low : 0) |
                         (hi < INFINITY && hint & KH_nonan ? FR_top : 0) |
                         (lo > 0 && hint & KH_nonan ? FR_sure : 0));
    case SC_sin: return most <= (fast ? 1 : 0.842) ? FR_short : half ? FR_half : near ? FR_near : 0;
    case SC_cos: return half ? FR_half : near ? FR_near : 0;
    case SC_tan: return near ? FR_near : 0;
    case SC_tanh: return most <= (fast ? 0.4 : 0.625) ? FR_short : 0;
    case SC_recip:
        return (lo >= 0x1p-125 && hi <= 0x1p125) || (hi <= -0x1p-125 && lo >= -0x1p125) ? FR_middle
                                                                                        : 0;
    default: return 0;
    }
}

nnc_fkey nnc_formula_key(const nnc_kernel *k, const nnc_kins *in)
{
    const nnc_kins *x = &k->ins[in->arg[0]];
    nnc_fkey key = {.sop = in->sop, .type = x->dtype == DT_f64 ? FT_f64 : FT_f32};
    if (key.type == FT_f64)
        return key;
    key.policy = in->hint & (KH_exact | KH_fast);
    bool known =
        x->lo < x->hi || (x->lo == x->hi && x->lo != 0); /* kernels without ranges have 0 and 0 */
    double lo = known ? x->lo : -INFINITY, hi = known ? x->hi : INFINITY;
    if (in->hint & KH_nonneg)
        lo = fmax(lo, 0);
    double most = fmax(-lo, hi);
    if (x->op == KO_load &&
        k->buf[x->buf].dtype == DT_f16) /* its infinities give NaN without the far reduction */
        most = fmin(most, 65504);
    key.reach = reach_of((nnc_sop)in->sop, key.policy & KH_fast, lo, hi, most, in->hint);
    return key;
}

void nnc_formula_name(char *out, size_t n, nnc_fkey key)
{
    static const char *const reach[] = {
        "_low", "_top", "_short", "_half", "_near", "_sure", "_middle"};
    size_t at = (size_t)snprintf(out, n, "nnc_%s%s%s%s",
        key.policy & KH_exact  ? "exact_"
        : key.policy & KH_fast ? "fast_"
                               : "",
        key.far ? "far_" : "", nnc_sops[key.sop].name, key.type == FT_f64 ? "_f64" : "");
    for (size_t i = 0; i < NNC_COUNT(reach) && at < n; i++)
        if (key.reach >> i & 1)
            at += (size_t)snprintf(out + at, n - at, "%s", reach[i]);
}

/* plugins/llvm/math.c -- functions of f32 as inline polynomials: no calls, everything stays in
 * registers.
 *
 * Each function is written once over its working type: f32 where the target has fused multiply-
 * add, f64 where it has not or where f32 would cost accuracy (then the same coefficients serve:
 * they are good to 2^-26 or better). Working in f64 without FMA is slower, but exact where FMA
 * would have been. Bounds: docs/math.md, measured over all 2^32 inputs. Coefficients:
 * codegen/minimax.def. Comparisons are ordered so that NaN
 * stays NaN. Rounding to integer adds and subtracts 1.5 * 2^23 (2^52): never fptosi, which is
 * poison for NaN. True f64 functions go to libm (lanes.c). */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <math.h>

/* Local shorthands for readable formulas. */
#define ADD(p, q) LLVMBuildFAdd(m->b, (p), (q), "")
#define SUB(p, q) LLVMBuildFSub(m->b, (p), (q), "")
#define MUL(p, q) LLVMBuildFMul(m->b, (p), (q), "")
#define DIV(p, q) LLVMBuildFDiv(m->b, (p), (q), "")
#define K(v) ll_fk(x, (v))
#define LT(p, q) LLVMBuildFCmp(m->b, LLVMRealOLT, (p), (q), "")
#define GT(p, q) LLVMBuildFCmp(m->b, LLVMRealOGT, (p), (q), "")
#define EQ(p, q) LLVMBuildFCmp(m->b, LLVMRealOEQ, (p), (q), "")
#define SEL(c, p, q) LLVMBuildSelect(m->b, (c), (p), (q), "")
#define POLY(x, c) ll_poly(m, (x), (c), (int)NNC_COUNT(c))

#define MM(name, ...) static const double name[] __attribute__((unused)) = {__VA_ARGS__};
#include "codegen/minimax.def"

V ll_fma(ll_mod *m, V a, V b, V c)
{
    if (!m->fma)
        return ADD(MUL(a, b), c);
    V arg[3] = {a, b, c};
    return ll_call(m, "llvm.fma", LLVMTypeOf(a), arg, 3);
}

V ll_poly(ll_mod *m, V x, const double *c, int n)
{
    V y = K(c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        y = ll_fma(m, y, x, K(c[i]));
    return y;
}

V ll_copysign(ll_mod *m, V magnitude, V sign)
{
    V arg[2] = {magnitude, sign};
    return ll_call(m, "llvm.copysign", LLVMTypeOf(sign), arg, 2);
}

static bool is_f64(ll_mod *m, V x)
{
    return ll_elem(x) == m->f64;
}

static V fabs_(ll_mod *m, V x)
{
    return ll_un(m, "llvm.fabs", x);
}

static V at_most(ll_mod *m, V x, double c)
{
    return SEL(GT(x, K(c)), K(c), x);
}

static V at_least(ll_mod *m, V x, double c)
{
    return SEL(LT(x, K(c)), K(c), x);
}

/* max and min that are one instruction where NaN cannot come from the first operand: the
 * machine's max gives the second operand when either is NaN. */
V ll_max(ll_mod *m, V a, V b, bool is_max, bool nonan)
{
    double c;
    if (!nonan && ll_const_float(b, &c) && !isnan(c)) {
        V t = a;
        a = b;
        b = t;
    }
    bool one = nonan || (ll_const_float(a, &c) && !isnan(c));
    ll_match(m, &a, &b);
    V r = SEL(is_max ? GT(a, b) : LT(a, b), a, b);
    return one ? r : SEL(LLVMBuildFCmp(m->b, LLVMRealUNO, a, a, ""), a, r);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Adding this rounds to an integer, kept in the low bits of the sum. */
static V magic(ll_mod *m, V x)
{
    return K(is_f64(m, x) ? 0x1.8p52 : 0x1.8p23);
}

/* 2^(n + off) from t = n + magic; n + off must be a normal exponent. */
static V exp2i(ll_mod *m, V t, int off)
{
    V i = ll_bits(m, t);
    int64_t one = is_f64(m, t) ? INT64_C(1023) + off : INT64_C(127) + off;
    int shift = is_f64(m, t) ? 52 : 23;
    i = LLVMBuildShl(m->b, i, ll_ik(i, shift), "");
    return ll_float(m, LLVMBuildAdd(m->b, i, ll_ik(i, one * (INT64_C(1) << shift)), ""));
}

static V joined(ll_mod *m, V a, V b)
{
    V c[256];
    int n = 2 * ll_lanes(a);
    for (int i = 0; i < n; i++)
        c[i] = LLVMConstInt(m->i32, (unsigned)i, 0);
    return LLVMBuildShuffleVector(m->b, a, b, LLVMConstVector(c, (unsigned)n), "");
}

bool ll_has_scalef(const ll_mod *m, V p)
{
    return m->scalef && ll_elem(p) == m->f32 && ll_lanes(p) >= 16;
}

/* Sixteen lanes each. */
V ll_scalef(ll_mod *m, V p, V n)
{
    int lanes = ll_lanes(p);
    if (lanes > 16) {
        int half = lanes / 2;
        V a = ll_scalef(m, ll_part(m, p, 0, half), ll_part(m, n, 0, half));
        V b = ll_scalef(m, ll_part(m, p, half, half), ll_part(m, n, half, half));
        return joined(m, a, b);
    }
    V arg[5] = {p, n, p, LLVMConstAllOnes(m->i16), LLVMConstInt(m->i32, 4, 0)};
    return ll_call(m, "llvm.x86.avx512.mask.scalef.ps.512", NULL, arg, 5);
}

/* p 2^n, rounded once. Without AVX-512's instruction f32 takes two factors when n may leave the
 * exponents of normal numbers. */
static V scale(ll_mod *m, V p, V t, bool small)
{
    if (ll_has_scalef(m, p))
        return ll_scalef(m, p, SUB(t, magic(m, t)));
    if (small || is_f64(m, p))
        return MUL(p, exp2i(m, t, 0));
    V i = ll_bits(m, t);
    i = LLVMBuildSub(m->b, i, ll_ik(i, 0x4b400000), "");
    V h = LLVMBuildAShr(m->b, i, ll_ik(i, 1), ""), r = LLVMBuildSub(m->b, i, h, "");
    V one = ll_ik(i, 0x3f800000), s = ll_ik(i, 23);
    V f = ll_float(m, LLVMBuildAdd(m->b, LLVMBuildShl(m->b, h, s, ""), one, ""));
    V g = ll_float(m, LLVMBuildAdd(m->b, LLVMBuildShl(m->b, r, s, ""), one, ""));
    return MUL(MUL(p, f), g);
}

/* x = n ln2 + r, |r| <= ln2/2; *t = n + magic. */
static V reduce_exp(ll_mod *m, V x, V *t)
{
    V c = magic(m, x);
    *t = ADD(MUL(x, K(1.4426950408889634)), c);
    if (m->fma)
        *t = ll_fma(m, x, K(1.4426950408889634), c);
    V n = SUB(*t, c);
    V r = ll_fma(m, n, K(-0x1.62e43p-1), x);
    return ll_fma(m, n, K(0x1.05c610ca86c39p-29), r);
}

static V exp_(ll_mod *m, V x, double lo, double hi)
{
    bool known = lo <= hi;
    if (!(known && hi <= 88))
        x = at_most(m, x, is_f64(m, x) ? 100 : 89);
    if (!(known && lo >= -104))
        x = at_least(m, x, -104);
    V t, r = reduce_exp(m, x, &t);
    V p = ll_fma(m, MUL(r, r), POLY(r, EXP), r);
    return scale(m, ADD(p, K(1)), t, known && lo >= -87 && hi <= 88);
}

static V exp2_(ll_mod *m, V x)
{
    x = at_least(m, at_most(m, x, 129), -151);
    V c = magic(m, x), t = ADD(x, c), r = SUB(x, SUB(t, c));
    return scale(m, ll_fma(m, r, POLY(r, EXP2), K(1)), t, false);
}

static V expm1_(ll_mod *m, V x)
{
    V c = at_least(m, at_most(m, x, 89), -18), t, r = reduce_exp(m, c, &t);
    V p = ll_fma(m, MUL(r, r), POLY(r, EXPM1), r);
    V s = exp2i(m, t, -1); /* 2^(n-1): 2^128 is no f32 */
    V y = ll_fma(m, p, s, SUB(s, K(0.5)));
    return SEL(LT(fabs_(m, x), K(0x1p-25)), x, ADD(y, y));
}

/* x = 2^e (1+f), 1+f in [sqrt 1/2, sqrt 2); x > 0 and finite, else nonsense. */
static V split(ll_mod *m, V x, V *f, bool subnormal)
{
    bool d = is_f64(m, x);
    V adj = NULL;
    if (!d && subnormal) {
        V tiny = LT(x, K(0x1p-126));
        adj = SEL(tiny, K(23), K(0));
        x = SEL(tiny, MUL(x, K(0x1p23)), x);
    }
    int sh = d ? 52 : 23;
    V i = ll_bits(m, x);
    V e = LLVMBuildSub(m->b, i, ll_ik(i, d ? 0x3fe6a09e667f3bcd : 0x3f3504f3), "");
    e = LLVMBuildAShr(m->b, e, ll_ik(i, sh), "");
    V mant = LLVMBuildSub(m->b, i, LLVMBuildShl(m->b, e, ll_ik(i, sh), ""), "");
    *f = SUB(ll_float(m, mant), K(1));
    V ef;
    if (d) /* no 64-bit conversions before AVX-512: through the bits of 1.5 * 2^52 + e */
        ef = SUB(ll_float(m, LLVMBuildAdd(m->b, e, ll_ik(e, 0x4338000000000000), "")), K(0x1.8p52));
    else
        ef = LLVMBuildSIToFP(m->b, e, LLVMTypeOf(x), "");
    return adj ? SUB(ef, adj) : ef;
}

/* Logarithm's ends: NaN below zero, -inf at zero, inf and NaN as they are. */
static V log_ends(ll_mod *m, V x, V y, const ll_fact *f)
{
    bool known = f && f->lo <= f->hi;
    if (!(known && f->hi < INFINITY))
        y = SEL(EQ(x, K(INFINITY)), x, y);
    if (known && f->lo > 0 && (f->hint & KH_nonan))
        return y;
    return SEL(GT(x, K(0)), y, SEL(EQ(x, K(0)), K(-INFINITY), K(NAN)));
}

static V log_(ll_mod *m, V x, const ll_fact *fact)
{
    bool normal = fact && fact->lo <= fact->hi && fact->lo >= 0x1p-126;
    V f, e = split(m, x, &f, !normal), s = MUL(f, f);
    V t = ll_fma(m, MUL(f, s), POLY(f, LOG), MUL(s, K(-0.5)));
    t = ll_fma(m, e, K(-0x1.05c610ca86c39p-29), t);
    return log_ends(m, x, ll_fma(m, e, K(0x1.62e43p-1), ADD(f, t)), fact);
}

static V log2_(ll_mod *m, V x, const ll_fact *fact)
{
    bool normal = fact && fact->lo <= fact->hi && fact->lo >= 0x1p-126;
    V f, e = split(m, x, &f, !normal);
    V t = ll_fma(m, MUL(f, f), POLY(f, LOG2), MUL(f, K(0x1.4ae0cp-26)));
    t = ll_fma(m, f, K(0x1.715476p0), t);
    return log_ends(m, x, ADD(e, t), fact);
}

/* Works in f64 only: 1 + x is exact enough there. */
static V log1p_(ll_mod *m, V x)
{
    V y = log_(m, ADD(x, K(1)), NULL), a = fabs_(m, x);
    V near = ll_fma(m, MUL(x, x), ll_fma(m, x, K(1.0 / 3), K(-0.5)), x);
    return SEL(LT(a, K(0x1p-10)), SEL(EQ(x, K(0)), x, near), y);
}

/* ---- functions over the pieces --------------------------------------------------------------- */

/* f64 only. asin and acos share s + s z P(z) on [0, 1/2]; beyond, asin a = pi/2 - 2 asin
 * sqrt((1-a)/2). */
static V asin_(ll_mod *m, V x, bool acos)
{
    V a = fabs_(m, x), big = GT(a, K(0.5));
    V z = SEL(big, MUL(SUB(K(1), a), K(0.5)), MUL(a, a));
    V s = SEL(big, ll_un(m, "llvm.sqrt", z), a);
    V p = ll_fma(m, MUL(s, z), POLY(z, ASIN), s);
    if (!acos)
        return ll_copysign(m, SEL(big, SUB(K(M_PI_2), ADD(p, p)), p), x);
    V far = SEL(LT(x, K(0)), SUB(K(M_PI), ADD(p, p)), ADD(p, p));
    return SEL(big, far, SUB(K(M_PI_2), ll_copysign(m, p, x)));
}

static V atan_(ll_mod *m, V x)
{
    V a = fabs_(m, x), inv = GT(a, K(1));
    V t = DIV(SEL(inv, K(1), a), SEL(inv, a, K(1)));
    V z = MUL(t, t), p = ll_fma(m, MUL(t, z), POLY(z, ATAN), t);
    V far = ADD(SUB(K(0x1.921fb6p0), p), K(-0x1.777a5cp-25));
    return ll_copysign(m, SEL(inv, far, p), x);
}

/* f64 only */
static V sinh_(ll_mod *m, V x, bool cosh)
{
    V a = fabs_(m, x), e = exp_(m, a, 1, 0), r = DIV(K(1), e);
    if (cosh)
        return MUL(ADD(e, r), K(0.5));
    V z = MUL(x, x), near = ll_fma(m, MUL(x, z), POLY(z, SINH), x);
    return SEL(LT(a, K(1)), near, ll_copysign(m, MUL(SUB(e, r), K(0.5)), x));
}

static V tanh_(ll_mod *m, V x, const ll_fact *f)
{
    V z = MUL(x, x), near = ll_fma(m, MUL(x, z), POLY(z, TANH), x);
    if (f && f->lo <= f->hi && f->lo >= -0.625 && f->hi <= 0.625)
        return near;
    V a = fabs_(m, x), a2 = at_most(m, a, 10);
    V e = exp_(m, ADD(a2, a2), 0, 20);
    V y = SUB(K(1), DIV(K(2), ADD(e, K(1))));
    return SEL(LT(a, K(0.625)), near, ll_copysign(m, y, x));
}

/* Both sides by e^-|x|, so that small results keep their accuracy. */
static V sigmoid_(ll_mod *m, V x, const ll_fact *f)
{
    bool in = f && f->lo <= f->hi && f->lo >= -87 && f->hi <= 87;
    V e = exp_(m, LLVMBuildFNeg(m->b, fabs_(m, x), ""), in ? -87 : -INFINITY, 0);
    return DIV(SEL(LT(x, K(0)), e, K(1)), ADD(e, K(1)));
}

static V erf_(ll_mod *m, V x)
{
    V near = MUL(x, POLY(MUL(x, x), ERF)), a = fabs_(m, x);
    V e = exp_(m, POLY(at_most(m, a, 4), ERFC), -18, 0);
    return SEL(LT(a, K(0.927)), near, ll_copysign(m, SUB(K(1), e), x));
}

/* f64 only: |x|^y = 2^(y log2|x|), then C's special cases. */
static V pow_(ll_mod *m, V x, V y)
{
    V a = fabs_(m, x), f, e = split(m, a, &f, false);
    V s = DIV(f, ADD(f, K(2)));
    V l = ll_fma(m, s, POLY(MUL(s, s), POWLOG2), e);
    l = SEL(LT(a, K(INFINITY)), l, a);
    l = SEL(EQ(a, K(0)), K(-INFINITY), l);
    V t = MUL(y, l);
    V one = LLVMBuildOr(m->b, EQ(x, K(1)), EQ(y, K(0)), "");
    V unit = LLVMBuildAnd(m->b, EQ(a, K(1)), LT(K(0), fabs_(m, y)), ""); /* 0 * inf else */
    t = SEL(LLVMBuildOr(m->b, one, unit, ""), K(0), t);
    t = at_least(m, at_most(m, t, 200), -200);
    V c = K(0x1.8p52), n = ADD(t, c), r = SUB(t, SUB(n, c));
    V p = scale(m, ll_fma(m, r, POLY(r, EXP2D), K(1)), n, true);
    /* integers: y == trunc y; odd: y/2 is not one */
    V h = MUL(y, K(0.5)), isint = EQ(SUB(ADD(fabs_(m, y), K(0x1p52)), K(0x1p52)), fabs_(m, y));
    V half = EQ(SUB(ADD(fabs_(m, h), K(0x1p52)), K(0x1p52)), fabs_(m, h));
    V neg = LLVMBuildAnd(m->b, isint, LLVMBuildNot(m->b, half, ""), "");
    p = SEL(neg, ll_copysign(m, p, x), p);
    V bad = LLVMBuildAnd(m->b, LT(x, K(0)), GT(x, K(-INFINITY)), "");
    bad = LLVMBuildAnd(m->b, bad, LLVMBuildNot(m->b, isint, ""), "");
    return SEL(LLVMBuildAnd(m->b, bad, LT(fabs_(m, y), K(INFINITY)), ""), K(NAN), p);
}

/* a - trunc(a/b) b: exact while the quotient is small; any other lane sends the vector to libm's
 * fmodf. */
static V fmod_(ll_mod *m, V a, V b)
{
    if (is_f64(m, a))
        return ll_lanes_call(m, "fmod", a, b);
    ll_match(m, &a, &b);
    V x = fabs_(m, m->fma ? a : ll_wide(m, a)), y = fabs_(m, m->fma ? b : ll_wide(m, b));
    V c = K(m->fma ? 0x1p23 : 0x1p52), q = DIV(x, y), t = SUB(ADD(q, c), c);
    V r = ll_fma(m, LLVMBuildFNeg(m->b, t, ""), y, x); /* t: nearest, so r in [-y, y] */
    r = SEL(LT(r, K(0)), ADD(r, y), r);
    r = SEL(LT(r, y), r, SUB(r, y));
    r = ll_copysign(m, m->fma ? r : ll_narrow(m, r), a);
    V ok = LLVMBuildAnd(m->b, LT(q, K(0x1p22)), LT(y, K(INFINITY)), "");
    V far = ll_any(m, LLVMBuildNot(m->b, ok, ""));
    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->b), slow = ll_block(m, "fmod.far");
    LLVMBasicBlockRef next = ll_block(m, "");
    LLVMBuildCondBr(m->b, far, slow, next);
    LLVMPositionBuilderAtEnd(m->b, slow);
    V s = ll_lanes_call(m, "fmodf", a, b);
    LLVMBasicBlockRef from[2] = {here, LLVMGetInsertBlock(m->b)};
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
    V phi = LLVMBuildPhi(m->b, LLVMTypeOf(r), ""), in[2] = {r, s};
    LLVMAddIncoming(phi, in, from, 2);
    return phi;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static V work(ll_mod *m, nnc_sop op, V x, V y, const ll_fact *f)
{
    switch (op) {
    case SC_exp:
        return exp_(m, x, f->lo, f->hi);
    case SC_exp2:
        return exp2_(m, x);
    case SC_expm1:
        return expm1_(m, x);
    case SC_log:
        return log_(m, x, f);
    case SC_log2:
        return log2_(m, x, f);
    case SC_log1p:
        return log1p_(m, x);
    case SC_asin:
    case SC_acos:
        return asin_(m, x, op == SC_acos);
    case SC_atan:
        return atan_(m, x);
    case SC_sinh:
    case SC_cosh:
        return sinh_(m, x, op == SC_cosh);
    case SC_tanh:
        return tanh_(m, x, f);
    case SC_sigmoid:
        return sigmoid_(m, x, f);
    case SC_erf:
        return erf_(m, x);
    case SC_erf1: /* f64 only */
        return ll_lanes_call(m, "erfc", LLVMBuildFNeg(m->b, x, ""), NULL);
    case SC_pow:
        return pow_(m, x, y);
    default:
        assert(0 && "no such function");
        return x;
    }
}

/* libm has no sigmoid: 1 / (1 + e^-x) by its two sides. */
static V sigmoid64(ll_mod *m, V x)
{
    V e = ll_lanes_call(m, "exp", LLVMBuildFNeg(m->b, fabs_(m, x), ""), NULL);
    return DIV(SEL(LT(x, K(0)), e, K(1)), ADD(e, K(1)));
}

V ll_math(ll_mod *m, nnc_sop op, V x, V y, const ll_fact *known)
{
    static const ll_fact nothing = {1, 0, 0};
    const ll_fact *f = known ? known : &nothing;
    double c;
    if (op == SC_mod)
        return fmod_(m, x, y);
    if (op == SC_pow && ll_const_float(y, &c) && c == 2)
        return MUL(x, x);
    if (is_f64(m, x) && op == SC_erf1)
        return work(m, op, x, NULL, f);
    if (is_f64(m, x))
        return op == SC_sigmoid ? sigmoid64(m, x) : ll_lanes_call(m, nnc_sops[op].name, x, y);
    if (op == SC_sin || op == SC_cos || op == SC_tan)
        return ll_trig(m, op, x, f);
    if (y)
        ll_match(m, &x, &y);
    V fast = f->hint & KH_fast ? ll_fast(m, op, x, f) : NULL;
    if (fast)
        return fast;
    bool wide = !m->fma || f->hint & KH_exact || op == SC_log1p || op == SC_asin || op == SC_acos ||
                op == SC_sinh || op == SC_cosh || op == SC_pow || op == SC_erf1;
    if (!wide)
        return work(m, op, x, y, f);
    return ll_narrow(m, work(m, op, ll_wide(m, x), y ? ll_wide(m, y) : NULL, f));
}

/* plugins/llvm/fast.c -- short forms of functions of f32 for --math=fast: within 2^-15 of the value (docs/math.md).
 *
 * All need fused multiply-add. NaN gives NaN, infinities what they must; results below 2^-126 may be zero. Quotients by numbers
 * that stand far from zero and infinity become products with an estimate of the reciprocal and one step of Newton's method,
 * which the flags "arcp" and "ninf" ask of LLVM. */
#include "plugins/llvm/internal.h"

#include <math.h>

#define ADD(p, q) LLVMBuildFAdd(m->b, (p), (q), "")
#define SUB(p, q) LLVMBuildFSub(m->b, (p), (q), "")
#define MUL(p, q) LLVMBuildFMul(m->b, (p), (q), "")
#define K(v) ll_fk(x, (v))
#define LT(p, q) LLVMBuildFCmp(m->b, LLVMRealOLT, (p), (q), "")
#define GT(p, q) LLVMBuildFCmp(m->b, LLVMRealOGT, (p), (q), "")
#define SEL(c, p, q) LLVMBuildSelect(m->b, (c), (p), (q), "")
#define POLY(x, c) ll_poly(m, (x), (c), (int)NNC_COUNT(c))

#define MM(name, ...) static const double name[] __attribute__((unused)) = {__VA_ARGS__};
#include "codegen/minimax.def"

/* p / q, 2^-126 <= |q| <= 2^126 or NaN, p no infinity */
static V quotient(ll_mod *m, V p, V q)
{
    V y = LLVMBuildFDiv(m->b, p, q, "");
    if (LLVMIsAInstruction(y))
        LLVMSetFastMathFlags(y, LLVMFastMathAllowReciprocal | LLVMFastMathNoInfs);
    return y;
}

static V at_least(ll_mod *m, V x, V lo)
{
    return SEL(LT(x, lo), lo, x);
}

static V at_most(ll_mod *m, V x, double hi)
{
    return SEL(GT(x, K(hi)), K(hi), x);
}

/* The x from which on exp2_near gives zero: AVX-512's instruction makes subnormal numbers, the other way zero of them all. */
static V least(ll_mod *m, V x)
{
    return K(ll_has_scalef(m, x) ? -151 : -127);
}

/* 2^x, least <= x <= 128: 2^n 2^r, n = floor x; 2^128 is infinity. */
static V exp2_near(ll_mod *m, V x)
{
    V n = ll_un(m, "llvm.floor", x), r = SUB(x, n), t = ADD(n, K(0x1.8p23));
    V p = ll_fma(m, r, POLY(r, FAST_EXP2), K(1)), i = ll_bits(m, t);
    if (ll_has_scalef(m, p))
        return ll_scalef(m, p, n);
    i = LLVMBuildShl(m->b, i, ll_ik(i, 23), "");
    i = LLVMBuildAdd(m->b, i, ll_ik(i, INT64_C(127) << 23), "");
    return MUL(p, ll_float(m, i));
}

static V exp_(ll_mod *m, V x, const ll_fact *f)
{
    bool known = f->lo <= f->hi, low = known && f->lo >= -87, high = known && f->hi <= 88;
    V y = MUL(x, K(1.4426950408889634));
    if (!low)
        y = at_least(m, y, least(m, y));
    if (!high)
        y = at_most(m, y, 128);
    return exp2_near(m, y);
}

/* 1 - 2 / (1 + e^(2 x)); near 0 a polynomial. */
static V tanh_(ll_mod *m, V x, const ll_fact *f)
{
    V z = MUL(x, x), near = ll_fma(m, MUL(x, z), POLY(z, FAST_TANH), x);
    if (f->lo <= f->hi && f->lo >= -0.4 && f->hi <= 0.4)
        return near;
    V y = at_least(m, at_most(m, MUL(x, K(2 * 1.4426950408889634)), 40), K(-40));
    V far = SUB(K(1), quotient(m, K(2), ADD(exp2_near(m, y), K(1))));
    return SEL(LT(ll_un(m, "llvm.fabs", x), K(0.4)), near, far);
}

/* 1 / (1 + e^-x); zero where that is below the normal numbers. */
static V sigmoid_(ll_mod *m, V x, const ll_fact *f)
{
    V y = at_least(m, MUL(x, K(-1.4426950408889634)), K(-127));
    V s = quotient(m, K(1), ADD(exp2_near(m, y), K(1)));
    return f->lo <= f->hi && f->lo >= -87 ? s : SEL(GT(y, K(126)), K(0), s);
}

static V erf_(ll_mod *m, V x)
{
    V near = MUL(x, POLY(MUL(x, x), FAST_ERF)), a = ll_un(m, "llvm.fabs", x);
    V b = SEL(GT(a, K(4)), K(4), a);
    V far = SUB(K(1), exp2_near(m, MUL(b, POLY(b, FAST_ERFC))));
    return SEL(LT(a, K(0.5)), near, ll_copysign(m, far, x));
}

/* 1 + erf x = erfc(-x), from 2^32 e^(-x^2): the last product is a subnormal number or 0 when it must be. */
static V erf1_(ll_mod *m, V x)
{
    V a = at_most(m, ll_un(m, "llvm.fabs", x), 10.5);
    V t = quotient(m, K(1), ll_fma(m, a, K(0.43), K(1)));
    V e = at_least(m, ll_fma(m, MUL(x, x), K(-1.4426950408889634), K(32)), K(-127));
    V y = MUL(exp2_near(m, e), MUL(t, POLY(t, FAST_ERFC_TAIL)));
    return SEL(LT(x, K(0)), y, SUB(K(2), y));
}

/* Operands that 1/x is a normal number of. */
static bool is_middle(const ll_fact *f)
{
    return f->lo <= f->hi &&
           ((f->lo >= 0x1p-125 && f->hi <= 0x1p125) || (f->hi <= -0x1p-125 && f->lo >= -0x1p125));
}

V ll_fast(ll_mod *m, nnc_sop op, V x, const ll_fact *f)
{
    if (!m->fma || ll_elem(x) != m->f32)
        return NULL;
    switch (op) {
    case SC_exp:
        return exp_(m, x, f);
    case SC_exp2:
        return exp2_near(m, at_least(m, at_most(m, x, 128), least(m, x)));
    case SC_tanh:
        return tanh_(m, x, f);
    case SC_sigmoid:
        return sigmoid_(m, x, f);
    case SC_erf:
        return erf_(m, x);
    case SC_erf1:
        return erf1_(m, x);
    case SC_recip:
        return is_middle(f) ? quotient(m, K(1), x) : NULL;
    default:
        return NULL;
    }
}

V ll_fast_sin(ll_mod *m, V r, bool small)
{
    V z = MUL(r, r);
    V p = small ? POLY(z, FAST_SIN_SHORT) : POLY(z, FAST_SIN);
    V zr = MUL(z, r);
    return ll_fma(m, zr, p, r);
}

/* plugins/llvm/trig.c -- sin, cos and tan of f32. Up to |x| = 105615 the argument is reduced by
 * pi in three parts, without a branch; beyond (and for inf and NaN) one lane sends the whole
 * vector through a helper, which reduces lane by lane with 96 bits of 2/pi (Payne and Hanek), so
 * every f32 argument is right. Known ranges skip what they make needless: nested sines have
 * arguments in [-1, 1] and cost six instructions. */
#include "plugins/llvm/internal.h"

#include <math.h>

#define ADD(p, q) LLVMBuildFAdd(m->b, (p), (q), "")
#define SUB(p, q) LLVMBuildFSub(m->b, (p), (q), "")
#define MUL(p, q) LLVMBuildFMul(m->b, (p), (q), "")
#define K(v) ll_fk(x, (v))

#define FAR 105615.0

#define MM(name, ...) static const double name[] __attribute__((unused)) = {__VA_ARGS__};
#include "codegen/minimax.def"

/* 2/pi in overlapping 32-bit words, eight bits further each. */
static const uint32_t TWO_OVER_PI[24] = {0xa2, 0xa2f9, 0xa2f983, 0xa2f9836e, 0xf9836e4e, 0x836e4e44,
    0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1, 0x2757d1f5, 0x57d1f534,
    0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599, 0x6295993c, 0x95993c43,
    0x993c4390, 0x3c439041};

static V odd_poly(ll_mod *m, V x, const double *c, int n)
{
    V z = MUL(x, x);
    return ll_fma(m, MUL(z, x), ll_poly(m, z, c, n), x);
}

/* ---- the far helper
 * --------------------------------------------------------------------------- */

static V table(ll_mod *m)
{
    V g = LLVMGetNamedGlobal(m->m, "nnc.two_over_pi");
    if (g)
        return g;
    V c[NNC_COUNT(TWO_OVER_PI)];
    for (size_t i = 0; i < NNC_COUNT(c); i++)
        c[i] = LLVMConstInt(m->i32, TWO_OVER_PI[i], 0);
    V init = LLVMConstArray2(m->i32, c, NNC_COUNT(c));
    g = LLVMAddGlobal(m->m, LLVMTypeOf(init), "nnc.two_over_pi");
    LLVMSetInitializer(g, init);
    LLVMSetGlobalConstant(g, 1);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    return g;
}

/* |x| 2/pi modulo 4 as a 64-bit fraction (2^62 is pi/2), from the bits of |x| >= 120. */
static V turns(ll_mod *m, V xi)
{
    LLVMBuilderRef b = m->b;
    V word[3], tab = table(m);
    V at = LLVMBuildAnd(b, LLVMBuildLShr(b, xi, ll_ik(xi, 26), ""), ll_ik(xi, 15), "");
    for (int i = 0; i < 3; i++) {
        V j = LLVMBuildAdd(b, at, ll_ik(at, 4 * i), "");
        word[i] = LLVMBuildLoad2(b, m->i32, LLVMBuildGEP2(b, m->i32, tab, &j, 1, ""), "");
        word[i] = LLVMBuildZExt(b, word[i], m->i64, "");
    }
    V shift = LLVMBuildAnd(b, LLVMBuildLShr(b, xi, ll_ik(xi, 23), ""), ll_ik(xi, 7), "");
    V f = LLVMBuildOr(b, LLVMBuildAnd(b, xi, ll_ik(xi, 0xffffff), ""), ll_ik(xi, 0x800000), "");
    f = LLVMBuildZExt(b, LLVMBuildShl(b, f, shift, ""), m->i64, "");
    V hi = LLVMBuildShl(b, LLVMBuildMul(b, f, word[0], ""), ll_ik(f, 32), "");
    V lo = LLVMBuildLShr(b, LLVMBuildMul(b, f, word[2], ""), ll_ik(f, 32), "");
    return LLVMBuildAdd(b, LLVMBuildOr(b, hi, lo, ""), LLVMBuildMul(b, f, word[1], ""), "");
}

/* Body of the helper for one far x (f32): its reduced argument in type w with the sign of the
 * result folded in; tan: *odd = quadrant & 1. */
static V reduce_far(ll_mod *m, nnc_sop op, V x, T w, V *odd)
{
    LLVMBuilderRef b = m->b;
    int quarter = op == SC_tan ? 62 : 63;
    V bits = ll_bits(m, x), sign = LLVMBuildLShr(b, bits, ll_ik(bits, 31), "");
    V y = turns(m, LLVMBuildAnd(b, bits, ll_ik(bits, 0x7fffffff), ""));
    if (op == SC_cos)
        y = LLVMBuildAdd(b, y, ll_ik(y, INT64_C(1) << 62), "");
    V n = LLVMBuildAdd(b, y, ll_ik(y, INT64_C(1) << (quarter - 1)), "");
    n = LLVMBuildLShr(b, n, ll_ik(n, quarter), "");
    y = LLVMBuildSub(b, y, LLVMBuildShl(b, n, ll_ik(n, quarter), ""), "");
    V r = LLVMBuildSIToFP(b, y, m->f64, "");
    r = LLVMBuildFMul(b, r, ll_fk(r, 0x1.921fb54442d18p-62), "");
    *odd = LLVMBuildTrunc(b, n, m->i1, "");
    V flip = LLVMBuildTrunc(b, sign, m->i1, "");
    if (op != SC_tan)
        flip = op == SC_sin ? LLVMBuildXor(b, flip, *odd, "") : *odd;
    r = LLVMBuildSelect(b, flip, LLVMBuildFNeg(b, r, ""), r, "");
    V finite = LLVMBuildFCmp(b, LLVMRealOLT, ll_un(m, "llvm.fabs", x), ll_fk(x, INFINITY), "");
    r = LLVMBuildSelect(b, finite, r, ll_fk(r, NAN), "");
    return w == m->f64 ? r : LLVMBuildFPTrunc(b, r, w, "");
}

/* define internal void @nnc.far.op(ptr x, ptr r, ptr odd, i64 n): patches the lanes whose |x| <=
 * FAR is false */
static V helper(ll_mod *m, nnc_sop op, T w)
{
    char sym[32];
    snprintf(sym, sizeof sym, "nnc.far.%s%s", nnc_sops[op].name, w == m->f64 ? ".wide" : "");
    ll_helper h;
    if (!ll_helper_begin(m, &h, sym, 3))
        return h.fn;
    V x = ll_helper_at(m, &h, 0, m->f32), r = ll_helper_at(m, &h, 1, w), odd;
    x = LLVMBuildLoad2(m->b, m->f32, x, "");
    LLVMBasicBlockRef far = ll_block(m, "far"), next = ll_block(m, "next");
    V near = LLVMBuildFCmp(m->b, LLVMRealOLE, ll_un(m, "llvm.fabs", x), K(FAR), "");
    LLVMBuildCondBr(m->b, near, next, far);
    LLVMPositionBuilderAtEnd(m->b, far);
    LLVMBuildStore(m->b, reduce_far(m, op, x, w, &odd), r);
    if (op == SC_tan) {
        V o = ll_helper_at(m, &h, 2, m->i8);
        LLVMBuildStore(m->b, LLVMBuildZExt(m->b, odd, m->i8, ""), o);
    }
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
    ll_helper_end(m, &h);
    return h.fn;
}

/* Branches around the helper: r and (tan) odd, an i1 per lane, come back right for far lanes of
 * x too. */
static V patch_far(ll_mod *m, nnc_sop op, V x, V r, V *odd)
{
    int lanes = ll_lanes(x);
    V ok = LLVMBuildFCmp(m->b, LLVMRealOLE, ll_un(m, "llvm.fabs", x), K(FAR), "");
    V any = ll_any(m, LLVMBuildNot(m->b, ok, ""));
    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->b), slow = ll_block(m, "far");
    LLVMBasicBlockRef next = ll_block(m, "");
    LLVMBuildCondBr(m->b, any, slow, next);
    LLVMPositionBuilderAtEnd(m->b, slow);
    V f = helper(m, op, ll_elem(r)), arg[4] = {ll_slot_put(m, 0, x), ll_slot_put(m, 1, r)};
    T bytes = ll_vec(m->i8, lanes);
    arg[2] = odd ? ll_slot_put(m, 2, LLVMBuildZExt(m->b, *odd, bytes, "")) : arg[0];
    arg[3] = ll_i64(m, lanes ? lanes : 1);
    LLVMBuildCall2(m->b, LLVMGlobalGetValueType(f), f, arg, 4, "");
    V r2 = ll_slot_get(m, 1, LLVMTypeOf(r)), odd2 = NULL;
    if (odd)
        odd2 = LLVMBuildTrunc(m->b, ll_slot_get(m, 2, bytes), ll_vec(m->i1, lanes), "");
    LLVMBasicBlockRef from[2] = {here, LLVMGetInsertBlock(m->b)};
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
    V phi = LLVMBuildPhi(m->b, LLVMTypeOf(r), ""), in[2] = {r, r2};
    LLVMAddIncoming(phi, in, from, 2);
    if (odd) {
        V o[2] = {*odd, odd2};
        *odd = LLVMBuildPhi(m->b, LLVMTypeOf(*odd), "");
        LLVMAddIncoming(*odd, o, from, 2);
    }
    return phi;
}

/* ---- the functions
 * ---------------------------------------------------------------------------- */

/* Flips the sign of r where the low bit of t's integer is set. */
static V flip(ll_mod *m, V r, V t)
{
    V i = ll_bits(m, t);
    int top = ll_elem(t) == m->f64 ? 63 : 31;
    i = LLVMBuildShl(m->b, i, ll_ik(i, top), "");
    return ll_float(m, LLVMBuildXor(m->b, ll_bits(m, r), i, ""));
}

/* sin x or cos x = sin r. */
static V reduce(ll_mod *m, V x, bool cos)
{
    V c = K(ll_elem(x) == m->f64 ? 0x1.8p52 : 0x1.8p23), t, n;
    if (cos) { /* x = (n - 1/2) pi + r: n is the nearest integer to x/pi + 1/2 */
        t = ADD(ll_fma(m, x, K(0x1.45f306p-2), K(0.5)), c);
        n = SUB(SUB(t, c), K(0.5));
    } else {
        t = ll_fma(m, x, K(0x1.45f306p-2), c);
        n = SUB(t, c);
    }
    V r = ll_fma(m, n, K(-0x1.921fb6p1), x);
    r = ll_fma(m, n, K(0x1.777a5cp-24), r);
    return flip(m, ll_fma(m, n, K(0x1.ee59dap-49), r), t);
}

static V sin_cos(ll_mod *m, nnc_sop op, V x, const ll_fact *f)
{
    bool cos = op == SC_cos, known = f->lo <= f->hi;
    double most = known ? fmax(-f->lo, f->hi) : INFINITY;
    bool wide = !m->fma || (f->hint & KH_exact) != 0, fast = !wide && (f->hint & KH_fast) != 0;
    V w = wide ? ll_wide(m, x) : x, r;
    if ((f->hint & KH_halfpi) || most <= 1.5707) {
        r = w;
        if (cos) {
            V a = ll_un(m, "llvm.fabs", w);
            r = SUB(SUB(ll_fk(w, 0x1.921fb6p0), a), ll_fk(w, 0x1.777a5cp-25));
        }
    } else {
        r = reduce(m, w, cos);
        if (!(f->hint & KH_bounded) && most > FAR)
            r = patch_far(m, op, x, r, NULL);
    }
    if (fast)
        return ll_fast_sin(m, r, !cos && most <= 1);
    V y = !cos && most <= 0.842 ? odd_poly(m, r, SIN_SHORT, NNC_COUNT(SIN_SHORT))
                                : odd_poly(m, r, SIN, NNC_COUNT(SIN));
    return wide ? ll_narrow(m, y) : y;
}

/* In f64: x = n pi/2 + r, tan x = tan r or -1 / tan r. */
static V tan_(ll_mod *m, V x32, const ll_fact *f)
{
    V x = ll_wide(m, x32), odd = NULL;
    double most = f->lo <= f->hi ? fmax(-f->lo, f->hi) : INFINITY;
    V c = K(0x1.8p52), t = ADD(MUL(x, K(0x1.45f306dc9c883p-1)), c), n = SUB(t, c);
    V r = ll_fma(m, n, K(-0x1.921fb544p0), x); /* 33 bits of pi/2: exact for |n| < 2^20 */
    r = ll_fma(m, n, K(-0x1.0b4611a626331p-34), r);
    V i = ll_bits(m, t);
    odd = LLVMBuildTrunc(m->b, i, ll_vec(m->i1, ll_lanes(x)), "");
    if (!(f->hint & (KH_bounded | KH_halfpi)) && most > FAR)
        r = patch_far(m, SC_tan, x32, r, &odd);
    V y = odd_poly(m, r, TAN, NNC_COUNT(TAN));
    V num = LLVMBuildSelect(m->b, odd, K(-1), y, ""), den = LLVMBuildSelect(m->b, odd, y, K(1), "");
    return ll_narrow(m, LLVMBuildFDiv(m->b, num, den, ""));
}

V ll_trig(ll_mod *m, nnc_sop op, V x, const ll_fact *f)
{
    return op == SC_tan ? tan_(m, x, f) : sin_cos(m, op, x, f);
}

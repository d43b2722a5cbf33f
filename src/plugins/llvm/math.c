/* plugins/llvm/math.c -- math functions: emits the steps of their formulas (math/formula.h) inline, so that values stay in registers.
 * Two cases branch, and only for vectors with an unusual lane: arguments of sin, cos and tan beyond NNC_FAR, and quotients of mod
 * beyond 2^22. f64 functions call the C library (lanes.c). */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <math.h>

#define LT(p, q) LLVMBuildFCmp(m->b, LLVMRealOLT, (p), (q), "")
#define GT(p, q) LLVMBuildFCmp(m->b, LLVMRealOGT, (p), (q), "")
#define SEL(c, p, q) LLVMBuildSelect(m->b, (c), (p), (q), "")

V ll_fma(ll_mod *m, V a, V b, V c)
{
    if (!m->fma)
        return LLVMBuildFAdd(m->b, LLVMBuildFMul(m->b, a, b, ""), c, "");
    V arg[3] = {a, b, c};
    return ll_call(m, "llvm.fma", LLVMTypeOf(a), arg, 3);
}

V ll_copysign(ll_mod *m, V magnitude, V sign)
{
    V arg[2] = {magnitude, sign};
    return ll_call(m, "llvm.copysign", LLVMTypeOf(sign), arg, 2);
}

/* max or min as one instruction where the first operand cannot be NaN: the hardware's maximum returns the second operand when either
 * is NaN. */
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

/* ---- steps -------------------------------------------------------------------------------------------------------- */

static T type_of(ll_mod *m, nnc_ftype t, int lanes)
{
    const T of[] = {[FT_bool] = m->i1,
        [FT_f32] = m->f32,
        [FT_f64] = m->f64,
        [FT_i32] = m->i32,
        [FT_i64] = m->i64};
    return ll_vec(of[t], lanes);
}

static V joined(ll_mod *m, V a, V b)
{
    return ll_row(m, a, b, 0, 1, 2 * ll_lanes(a));
}

/* AVX-512's scalef (p 2^floor n), or reduce (p - floor p) where n is NULL, sixteen lanes at a time. */
static V scalef(ll_mod *m, V p, V n)
{
    int lanes = ll_lanes(p), half = lanes / 2;
    if (lanes > 16)
        return joined(m, scalef(m, ll_part(m, p, 0, half), n ? ll_part(m, n, 0, half) : NULL),
            scalef(m, ll_part(m, p, half, half), n ? ll_part(m, n, half, half) : NULL));
    V all = LLVMConstAllOnes(m->i16), round = LLVMConstInt(m->i32, 4, 0);
    if (!n) /* 9: keep no fraction bits, round down, suppress exceptions */
        return ll_call(m, "llvm.x86.avx512.mask.reduce.ps.512", NULL,
            (V[]){p, LLVMConstInt(m->i32, 9, 0), p, all, round}, 5);
    return ll_call(m, "llvm.x86.avx512.mask.scalef.ps.512", NULL, (V[]){p, n, p, all, round}, 5);
}

/* Reciprocal estimate and one Newton step: LLVM's code for a division with these flags. */
static V quick(ll_mod *m, V p, V q)
{
    V y = LLVMBuildFDiv(m->b, p, q, "");
    if (LLVMIsAInstruction(y))
        LLVMSetFastMathFlags(y, LLVMFastMathAllowReciprocal | LLVMFastMathNoInfs);
    return y;
}

/* A word of 2/pi; i is a scalar. */
static V word(ll_mod *m, V i)
{
    V c[NNC_TWO_OVER_PI];
    for (int j = 0; j < NNC_TWO_OVER_PI; j++)
        c[j] = LLVMConstInt(m->i32, nnc_two_over_pi[j], 0);
    V g = ll_table(m, "nnc.two_over_pi", LLVMConstArray2(m->i32, c, NNC_TWO_OVER_PI), 0);
    return LLVMBuildLoad2(m->b, m->i32, LLVMBuildGEP2(m->b, m->i32, g, &i, 1, ""), "");
}

static V far(ll_mod *m, const nnc_fstep *s, V x, V r);

static V poly(ll_mod *m, const nnc_fstep *s, V x)
{
    V y = ll_fk(x, s->c[s->n - 1]);
    for (int i = s->n - 2; i >= 0; i--)
        y = ll_fma(m, y, x, ll_fk(x, s->c[i]));
    return y;
}

static V compare(ll_mod *m, int op, V a, V b)
{
    const bool whole = LLVMGetTypeKind(ll_elem(a)) == LLVMIntegerTypeKind;
    const nnc_sop by = op == FO_lt ? SC_lt : op == FO_gt ? SC_gt : SC_eq;
    return ll_compare(m, by, whole ? DT_u32 : DT_f32, a, b);
}

static V step(ll_mod *m, const nnc_fstep *s, V a, V b, V c)
{
    static const LLVMOpcode binary[FO__COUNT] = {[FO_add] = LLVMFAdd,
        [FO_sub] = LLVMFSub,
        [FO_mul] = LLVMFMul,
        [FO_div] = LLVMFDiv,
        [FO_and] = LLVMAnd,
        [FO_or] = LLVMOr,
        [FO_iadd] = LLVMAdd,
        [FO_isub] = LLVMSub,
        [FO_imul] = LLVMMul,
        [FO_xor] = LLVMXor,
        [FO_shl] = LLVMShl,
        [FO_lshr] = LLVMLShr,
        [FO_ashr] = LLVMAShr};
    static const LLVMOpcode convert[FO__COUNT] = {[FO_bits] = LLVMBitCast,
        [FO_float] = LLVMBitCast,
        [FO_odd] = LLVMTrunc,
        [FO_itof] = LLVMSIToFP,
        [FO_narrow] = LLVMFPTrunc,
        [FO_wide] = LLVMFPExt};
    if (binary[s->op])
        return LLVMBuildBinOp(m->b, binary[s->op], a, b, "");
    if (convert[s->op])
        return LLVMBuildCast(m->b,
            s->type == FT_i64 && s->op == FO_wide ? LLVMZExt : convert[s->op], a,
            type_of(m, (nnc_ftype)s->type, ll_lanes(a)), "");
    switch (s->op) {
    case FO_quick: return quick(m, a, b);
    case FO_fma: return ll_fma(m, a, b, c);
    case FO_poly: return poly(m, s, a);
    case FO_neg: return LLVMBuildFNeg(m->b, a, "");
    case FO_not: return LLVMBuildNot(m->b, a, "");
    case FO_abs: return ll_un(m, "llvm.fabs", a);
    case FO_copysign: return ll_copysign(m, a, b);
    case FO_sqrt: return ll_un(m, "llvm.sqrt", a);
    case FO_floor: return ll_round(m, SC_floor, a);
    case FO_lt:
    case FO_gt:
    case FO_eq: return compare(m, s->op, a, b);
    case FO_select:
    case FO_branch: return SEL(a, b, c);
    case FO_scale:
    case FO_fract: return scalef(m, a, b);
    case FO_far: return far(m, s, a, b);
    case FO_word: return word(m, a);
    default:
        assert(s->op == FO_call);
        return ll_lanes_call(m, s->n == SC_erf1 ? "erfc" : nnc_sops[s->n].name, a, b);
    }
}

static V run(ll_mod *m, nnc_fkey key, V x, V y)
{
    nnc_formula f;
    nnc_machine machine = {
        .fma = m->fma, .scale = m->scalef && ll_elem(x) == m->f32 && ll_lanes(x) >= 16};
    nnc_formula_make(&f, key, machine);
    V v[NNC_FSTEPS];
    int lanes = ll_lanes(x);
    for (int i = 0; i < f.n; i++) {
        const nnc_fstep *s = &f.step[i];
        if (s->op == FO_arg)
            v[i] = s->n ? y : x;
        else if (s->op == FO_num && s->type <= FT_f64)
            v[i] = ll_splat(m, LLVMConstReal(type_of(m, (nnc_ftype)s->type, 0), s->f), lanes);
        else if (s->op == FO_num)
            v[i] = ll_splat(m,
                LLVMConstInt(type_of(m, (nnc_ftype)s->type, 0), (unsigned long long)s->i, 0),
                lanes);
        else
            v[i] = step(m, s, v[s->arg[0]], s->arg[1] < 0 ? NULL : v[s->arg[1]],
                s->arg[2] < 0 ? NULL : v[s->arg[2]]);
    }
    return v[f.n - 1];
}

/* ---- far arguments ------------------------------------------------------------------------------------------------ */

/* define internal void @nnc.far.op(ptr x, ptr r, i64 n): r[i] of the lanes whose |x| <= NNC_FAR is false */
static V far_helper(ll_mod *m, nnc_fkey key, T w)
{
    char sym[48];
    nnc_formula_name(sym, sizeof sym, key);
    ll_helper h;
    if (!ll_helper_begin(m, &h, sym, 2))
        return h.fn;
    V x = LLVMBuildLoad2(m->b, m->f32, ll_helper_at(m, &h, 0, m->f32), ""),
      r = ll_helper_at(m, &h, 1, w);
    LLVMBasicBlockRef far = ll_block(m, "far"), next = ll_block(m, "next");
    V near = LLVMBuildFCmp(m->b, LLVMRealOLE, ll_un(m, "llvm.fabs", x), ll_fk(x, NNC_FAR), "");
    LLVMBuildCondBr(m->b, near, next, far);
    LLVMPositionBuilderAtEnd(m->b, far);
    LLVMBuildStore(m->b, run(m, key, x, NULL), r);
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
    ll_helper_end(m, &h);
    return h.fn;
}

/* Branch for lanes where `usual` is false: executes what `slow` appends to the block. The result is `fast` or slow's value. Lanes that do
 * not exist hold anything, as 0/0, and never branch. */
typedef struct detour {
    LLVMBasicBlockRef here, next;
    V fast;
} detour;

static detour detour_begin(ll_mod *m, V usual, V fast)
{
    if (m->live && ll_lanes(usual) == ll_lanes(m->live))
        usual = LLVMBuildOr(m->b, usual, LLVMBuildNot(m->b, m->live, ""), "");
    detour d = {LLVMGetInsertBlock(m->b), NULL, fast};
    LLVMBasicBlockRef slow = ll_block(m, "far");
    d.next = ll_block(m, "");
    LLVMBuildCondBr(m->b, ll_any(m, LLVMBuildNot(m->b, usual, "")), slow, d.next);
    LLVMPositionBuilderAtEnd(m->b, slow);
    return d;
}

static V detour_end(ll_mod *m, const detour *d, V slow)
{
    LLVMBasicBlockRef from[2] = {d->here, LLVMGetInsertBlock(m->b)};
    LLVMBuildBr(m->b, d->next);
    LLVMPositionBuilderAtEnd(m->b, d->next);
    V phi = LLVMBuildPhi(m->b, LLVMTypeOf(d->fast), ""), in[2] = {d->fast, slow};
    LLVMAddIncoming(phi, in, from, 2);
    return phi;
}

static V far(ll_mod *m, const nnc_fstep *s, V x, V r)
{
    nnc_fkey key = {.sop = (uint8_t)s->n, .type = s->type, .far = true};
    int lanes = ll_lanes(x);
    V near = LLVMBuildFCmp(m->b, LLVMRealOLE, ll_un(m, "llvm.fabs", x), ll_fk(x, NNC_FAR), "");
    detour d = detour_begin(m, near, r);
    V f = far_helper(m, key, ll_elem(r));
    V arg[3] = {ll_slot_put(m, 0, x), ll_slot_put(m, 1, r), ll_i64(m, lanes ? lanes : 1)};
    LLVMBuildCall2(m->b, LLVMGlobalGetValueType(f), f, arg, 3, "");
    return detour_end(m, &d, ll_slot_get(m, 1, LLVMTypeOf(r)));
}

/* a - trunc(a/b) b, exact while the quotient is small; any other lane sends the vector to libm's fmodf. */
static V fmod_(ll_mod *m, V a, V b)
{
    if (ll_elem(a) == m->f64)
        return ll_lanes_call(m, "fmod", a, b);
    ll_match(m, &a, &b);
    V x = ll_un(m, "llvm.fabs", m->fma ? a : ll_wide(m, a)),
      y = ll_un(m, "llvm.fabs", m->fma ? b : ll_wide(m, b));
    V c = ll_fk(x, m->fma ? 0x1p23 : 0x1p52), q = LLVMBuildFDiv(m->b, x, y, "");
    V t = LLVMBuildFSub(m->b, LLVMBuildFAdd(m->b, q, c, ""), c, "");
    V r = ll_fma(
        m, LLVMBuildFNeg(m->b, t, ""), y, x); /* t is rounded to nearest, so r is in [-y, y] */
    r = SEL(LT(r, ll_fk(x, 0)), LLVMBuildFAdd(m->b, r, y, ""), r);
    r = SEL(LT(r, y), r, LLVMBuildFSub(m->b, r, y, ""));
    r = ll_copysign(m, m->fma ? r : ll_narrow(m, r), a);
    detour d = detour_begin(
        m, LLVMBuildAnd(m->b, LT(q, ll_fk(x, 0x1p22)), LT(y, ll_fk(x, INFINITY)), ""), r);
    return detour_end(m, &d, ll_lanes_call(m, "fmodf", a, b));
}

V ll_math(ll_mod *m, nnc_fkey key, V x, V y)
{
    if (key.sop == SC_mod)
        return fmod_(m, x, y);
    if (y)
        ll_match(m, &x, &y);
    return run(m, key, x, y);
}

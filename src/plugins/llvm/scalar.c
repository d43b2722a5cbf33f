/* plugins/llvm/scalar.c -- scalar ops of the kernel IR for all types: arithmetic, comparisons, conversions. Semantics are those of
 * ir/scalar.c; integers wrap, x/0 and x%0 are 0, a bool result is "not zero". */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <math.h>

static bool is_signed(nnc_dtype d)
{
    return nnc_dtype_kind(d) == NNC_INT;
}

/* ---- conversions -------------------------------------------------------------------------------------------------- */

/* f64 to f32 with rounding to odd, after which a second rounding to fewer bits is correct. */
static V narrow_odd(ll_mod *m, V d)
{
    LLVMBuilderRef b = m->b;
    V f = ll_narrow(m, d), back = ll_wide(m, f), i = ll_bits(m, f);
    V over =
        LLVMBuildFCmp(b, LLVMRealOGT, ll_un(m, "llvm.fabs", back), ll_un(m, "llvm.fabs", d), "");
    V down = LLVMBuildSub(b, i, LLVMBuildZExt(b, over, LLVMTypeOf(i), ""), "");
    V inexact = LLVMBuildFCmp(b, LLVMRealONE, back, d, "");
    V odd = LLVMBuildOr(b, down, ll_ik(i, 1), "");
    return ll_float(m, LLVMBuildSelect(b, inexact, odd, i, ""));
}

static V to_bf16(ll_mod *m, V x)
{
    LLVMBuilderRef b = m->b;
    V i = ll_bits(m, x), hi = LLVMBuildLShr(b, i, ll_ik(i, 16), "");
    V r = LLVMBuildAdd(b, LLVMBuildAnd(b, hi, ll_ik(i, 1), ""), ll_ik(i, 0x7fff), "");
    r = LLVMBuildLShr(b, LLVMBuildAdd(b, i, r, ""), ll_ik(i, 16), "");
    V nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
    r = LLVMBuildSelect(b, nan, LLVMBuildOr(b, hi, ll_ik(i, 0x40), ""), r, "");
    return LLVMBuildTrunc(b, r, ll_vec(m->i16, ll_lanes(x)), "");
}

/* f32 to binary16 on machines without the instruction (the method of Maratyszcza's FP16 library). Scaling turns overflow into
 * infinity; adding a power of two with the result's spacing rounds. */
static V to_f16_soft(ll_mod *m, V x)
{
    LLVMBuilderRef b = m->b;
    V i = ll_bits(m, x), w2 = LLVMBuildShl(b, i, ll_ik(i, 1), "");
    V base = LLVMBuildFMul(b, ll_un(m, "llvm.fabs", x), ll_fk(x, 0x1p112), "");
    base = LLVMBuildFMul(b, base, ll_fk(x, 0x1p-110), "");
    V bias = LLVMBuildAnd(b, w2, ll_ik(i, 0xff000000), "");
    V small = LLVMBuildICmp(b, LLVMIntULT, bias, ll_ik(i, 0x71000000), "");
    bias = LLVMBuildSelect(b, small, ll_ik(i, 0x71000000), bias, "");
    bias = LLVMBuildAdd(b, LLVMBuildLShr(b, bias, ll_ik(i, 1), ""), ll_ik(i, 0x07800000), "");
    V r = ll_bits(m, LLVMBuildFAdd(b, ll_float(m, bias), base, ""));
    V e = LLVMBuildAnd(b, LLVMBuildLShr(b, r, ll_ik(i, 13), ""), ll_ik(i, 0x7c00), "");
    r = LLVMBuildAdd(b, e, LLVMBuildAnd(b, r, ll_ik(i, 0xfff), ""), "");
    V nan = LLVMBuildICmp(b, LLVMIntUGT, w2, ll_ik(i, 0xff000000), "");
    r = LLVMBuildSelect(b, nan, ll_ik(i, 0x7e00), r, "");
    V sign = LLVMBuildAnd(b, LLVMBuildLShr(b, i, ll_ik(i, 16), ""), ll_ik(i, 0x8000), "");
    return LLVMBuildTrunc(b, LLVMBuildOr(b, sign, r, ""), ll_vec(m->i16, ll_lanes(x)), "");
}

V ll_to16(ll_mod *m, V x, nnc_dtype d)
{
    if (ll_elem(x) == m->f64)
        x = narrow_odd(m, x);
    if (d == DT_bf16)
        return to_bf16(m, x);
    if (!m->f16c)
        return to_f16_soft(m, x);
    int lanes = ll_lanes(x);
    V h = LLVMBuildFPTrunc(m->b, x, ll_vec(LLVMHalfTypeInContext(m->c), lanes), "");
    return LLVMBuildBitCast(m->b, h, ll_vec(m->i16, lanes), "");
}

V ll_from16(ll_mod *m, V h, nnc_dtype d)
{
    LLVMBuilderRef b = m->b;
    int lanes = ll_lanes(h);
    if (d == DT_f16 && m->f16c) {
        h = LLVMBuildBitCast(b, h, ll_vec(LLVMHalfTypeInContext(m->c), lanes), "");
        return LLVMBuildFPExt(b, h, ll_vec(m->f32, lanes), "");
    }
    V i = LLVMBuildZExt(b, h, ll_vec(m->i32, lanes), "");
    if (d == DT_bf16)
        return ll_float(m, LLVMBuildShl(b, i, ll_ik(i, 16), ""));
    V low = LLVMBuildAnd(b, i, ll_ik(i, 0x7fff), "");
    V f = ll_float(m, LLVMBuildShl(b, low, ll_ik(i, 13), ""));
    f = ll_bits(m, LLVMBuildFMul(b, f, ll_fk(f, 0x1p112), ""));
    V special = LLVMBuildICmp(b, LLVMIntUGE, low, ll_ik(i, 0x7c00), "");
    f = LLVMBuildSelect(b, special, LLVMBuildOr(b, f, ll_ik(i, 0x7f800000), ""), f, "");
    V sign = LLVMBuildShl(b, LLVMBuildAnd(b, i, ll_ik(i, 0x8000), ""), ll_ik(i, 16), "");
    return ll_float(m, LLVMBuildOr(b, f, sign, ""));
}

/* Rounds towards zero and wraps; NaN and values outside of 64 bits give 0. */
static V float_to_int(ll_mod *m, V x, nnc_dtype to)
{
    LLVMBuilderRef b = m->b;
    int lanes = ll_lanes(x);
    T i64 = ll_vec(m->i64, lanes);
    V lo = LLVMBuildFCmp(b, LLVMRealOGE, x, ll_fk(x, -0x1p63), "");
    V hi = LLVMBuildFCmp(b, LLVMRealOLT, x, ll_fk(x, 0x1p63), "");
    V ok = LLVMBuildAnd(b, lo, hi, "");
    V i = LLVMBuildFPToSI(b, LLVMBuildSelect(b, ok, x, ll_fk(x, 0), ""), i64, "");
    if (to == DT_u64) {
        V up = LLVMBuildFSub(b, x, ll_fk(x, 0x1p63), "");
        V fits = LLVMBuildAnd(b, LLVMBuildFCmp(b, LLVMRealOGE, up, ll_fk(x, 0), ""),
            LLVMBuildFCmp(b, LLVMRealOLT, up, ll_fk(x, 0x1p63), ""), "");
        V j = LLVMBuildFPToSI(b, LLVMBuildSelect(b, fits, up, ll_fk(x, 0), ""), i64, "");
        i = LLVMBuildSelect(b, fits, LLVMBuildXor(b, j, ll_ik(j, INT64_MIN), ""), i, "");
    }
    return LLVMBuildTrunc(b, i, ll_vec(ll_dtype(m, to), lanes), "");
}

static V int_to(ll_mod *m, V x, nnc_dtype from, nnc_dtype to)
{
    LLVMBuilderRef b = m->b;
    T t = ll_vec(ll_dtype(m, to), ll_lanes(x));
    if (nnc_is_float(to))
        return is_signed(from) ? LLVMBuildSIToFP(b, x, t, "") : LLVMBuildUIToFP(b, x, t, "");
    int wf = from == DT_bool ? 0 : nnc_dtype_size(from), wt = nnc_dtype_size(to);
    if (wt == wf)
        return x;
    if (wt < wf)
        return LLVMBuildTrunc(b, x, t, "");
    return is_signed(from) ? LLVMBuildSExt(b, x, t, "") : LLVMBuildZExt(b, x, t, "");
}

V ll_cast(ll_mod *m, V x, nnc_dtype from, nnc_dtype to)
{
    if (to == DT_f16 || to == DT_bf16) { /* rounded, still f32 */
        if (!nnc_is_float(from))
            x = int_to(m, x, from, DT_f64);
        return ll_from16(m, ll_to16(m, x, to), to);
    }
    if (nnc_is_float(from)) {
        if (to == DT_bool)
            return LLVMBuildFCmp(m->b, LLVMRealUNE, x, ll_fk(x, 0), "");
        if (!nnc_is_float(to))
            return float_to_int(m, x, to);
        bool wide = ll_elem(x) == m->f64;
        return wide == (to == DT_f64) ? x : wide ? ll_narrow(m, x) : ll_wide(m, x);
    }
    if (to == DT_bool)
        return from == DT_bool ? x : LLVMBuildICmp(m->b, LLVMIntNE, x, ll_ik(x, 0), "");
    return int_to(m, x, from, to);
}

/* ---- integers ----------------------------------------------------------------------------------------------------- */

static V idiv(ll_mod *m, V a, V c, bool sign, bool rem)
{
    LLVMBuilderRef b = m->b;
    V zero = LLVMBuildICmp(b, LLVMIntEQ, c, ll_ik(c, 0), ""), bad = zero, minus = NULL;
    if (sign) {
        minus = LLVMBuildICmp(b, LLVMIntEQ, c, ll_ik(c, -1), "");
        bad = LLVMBuildOr(b, zero, minus, "");
    }
    V d = LLVMBuildSelect(b, bad, ll_ik(c, 1), c, "");
    V q = sign  ? rem ? LLVMBuildSRem(b, a, d, "") : LLVMBuildSDiv(b, a, d, "")
           : rem ? LLVMBuildURem(b, a, d, "")
                : LLVMBuildUDiv(b, a, d, "");
    if (sign && !rem)
        q = LLVMBuildSelect(b, minus, LLVMBuildNeg(b, a, ""), q, "");
    return LLVMBuildSelect(b, zero, ll_ik(c, 0), q, "");
}

/* a^n by squaring, one step per bit of n (wrapping; a negative exponent gives 0, except for a = 1 and -1). */
static V ipow(ll_mod *m, V a, V n, nnc_dtype d)
{
    LLVMBuilderRef b = m->b;
    V phi[3] = {ll_ik(a, 1), a, n}, node[3];
    ll_loop l;
    ll_loop_begin(
        m, &l, ll_i64(m, 0), ll_i64(m, nnc_dtype_size(d) * 8), ll_i64(m, 1), phi, node, 3);
    V odd = LLVMBuildAnd(b, phi[2], ll_ik(n, 1), "");
    odd = LLVMBuildICmp(b, LLVMIntNE, odd, ll_ik(n, 0), "");
    phi[0] = LLVMBuildSelect(b, odd, LLVMBuildMul(b, phi[0], phi[1], ""), phi[0], "");
    phi[1] = LLVMBuildMul(b, phi[1], phi[1], "");
    phi[2] = LLVMBuildLShr(b, phi[2], ll_ik(n, 1), "");
    ll_loop_end(m, &l);
    if (!is_signed(d))
        return phi[0];
    V neg = LLVMBuildICmp(b, LLVMIntSLT, n, ll_ik(n, 0), "");
    V one = LLVMBuildICmp(b, LLVMIntEQ, a, ll_ik(a, 1), "");
    V minus = LLVMBuildICmp(b, LLVMIntEQ, a, ll_ik(a, -1), "");
    V keep = LLVMBuildOr(b, one, minus, "");
    V r = LLVMBuildSelect(b, keep, phi[0], ll_ik(a, 0), "");
    return LLVMBuildSelect(b, neg, r, phi[0], "");
}

static V int_minmax(ll_mod *m, V a, V b, bool is_max, bool sign)
{
    LLVMIntPredicate p = sign ? LLVMIntSLT : LLVMIntULT;
    V less = LLVMBuildICmp(m->b, p, a, b, "");
    return is_max ? LLVMBuildSelect(m->b, less, b, a, "") : LLVMBuildSelect(m->b, less, a, b, "");
}

/* On i1. A result is "not zero": sums saturate, a difference is inequality. */
static V bool_arith(ll_mod *m, nnc_sop op, V a, V b)
{
    switch (op) {
    case SC_add:
    case SC_max: return LLVMBuildOr(m->b, a, b, "");
    case SC_sub: return LLVMBuildXor(m->b, a, b, "");
    case SC_mod: return ll_ik(a, 0);
    case SC_pow: return LLVMBuildOr(m->b, a, LLVMBuildNot(m->b, b, ""), "");
    default: /* mul, min, div (x/0 = 0) */ return LLVMBuildAnd(m->b, a, b, "");
    }
}

/* The count is compared as an unsigned number: beyond the bits only the sign is left. */
static V shift(ll_mod *m, V a, V n, bool left, bool sign)
{
    LLVMBuilderRef b = m->b;
    const int bits = (int)LLVMGetIntTypeWidth(ll_elem(a));
    V fits = LLVMBuildICmp(b, LLVMIntULT, n, ll_ik(n, bits), "");
    V by = LLVMBuildSelect(b, fits, n, ll_ik(n, bits - 1), "");
    if (sign && !left)
        return LLVMBuildAShr(b, a, by, "");
    V r = left ? LLVMBuildShl(b, a, by, "") : LLVMBuildLShr(b, a, by, "");
    return LLVMBuildSelect(b, fits, r, ll_ik(a, 0), "");
}

static V int_arith(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b)
{
    bool sign = is_signed(d);
    if (d == DT_bool)
        return bool_arith(m, op, a, b);
    switch (op) {
    case SC_add: return LLVMBuildAdd(m->b, a, b, "");
    case SC_sub: return LLVMBuildSub(m->b, a, b, "");
    case SC_mul: return LLVMBuildMul(m->b, a, b, "");
    case SC_div:
    case SC_mod: return idiv(m, a, b, sign, op == SC_mod);
    case SC_pow: return ipow(m, a, b, d);
    case SC_bit_and: return LLVMBuildAnd(m->b, a, b, "");
    case SC_bit_or: return LLVMBuildOr(m->b, a, b, "");
    case SC_bit_xor: return LLVMBuildXor(m->b, a, b, "");
    case SC_shl:
    case SC_shr: return shift(m, a, b, op == SC_shl, sign);
    default: return int_minmax(m, a, b, op == SC_max, sign);
    }
}

static V int_unary(ll_mod *m, nnc_sop op, nnc_dtype d, V a)
{
    bool sign = is_signed(d);
    V zero = ll_ik(a, 0), neg = sign ? LLVMBuildICmp(m->b, LLVMIntSLT, a, zero, "") : NULL;
    switch (op) {
    case SC_neg: return d == DT_bool ? a : LLVMBuildNeg(m->b, a, "");
    case SC_abs: return sign ? LLVMBuildSelect(m->b, neg, LLVMBuildNeg(m->b, a, ""), a, "") : a;
    case SC_sign: {
        if (d == DT_bool)
            return a;
        V some = LLVMBuildICmp(m->b, LLVMIntNE, a, zero, "");
        V one = LLVMBuildSelect(m->b, some, ll_ik(a, 1), zero, "");
        return sign ? LLVMBuildSelect(m->b, neg, ll_ik(a, -1), one, "") : one;
    }
    default: return a; /* floor, ceil, round, trunc, identity */
    }
}

/* ---- floats ------------------------------------------------------------------------------------------------------- */

/* floor, ceil, rint, trunc before SSE4.1: adding and subtracting 2^23 (2^52) rounds to nearest. */
static V round_soft(ll_mod *m, nnc_sop op, V x)
{
    LLVMBuilderRef b = m->b;
    bool d = ll_elem(x) == m->f64;
    V big = ll_fk(x, d ? 0x1p52 : 0x1p23), a = ll_un(m, "llvm.fabs", x);
    V r = LLVMBuildFSub(b, LLVMBuildFAdd(b, a, big, ""), big, "");
    if (op == SC_trunc) {
        V up = LLVMBuildFCmp(b, LLVMRealOGT, r, a, "");
        r = LLVMBuildSelect(b, up, LLVMBuildFSub(b, r, ll_fk(x, 1), ""), r, "");
    }
    r = ll_copysign(m, r, x);
    if (op == SC_floor || op == SC_ceil) {
        V off = LLVMBuildFCmp(b, op == SC_floor ? LLVMRealOGT : LLVMRealOLT, r, x, "");
        V fix = LLVMBuildFAdd(b, r, ll_fk(x, op == SC_floor ? -1 : 1), "");
        r = ll_copysign(m, LLVMBuildSelect(b, off, fix, r, ""), x);
    }
    return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, a, big, ""), r, x, "");
}

V ll_round(ll_mod *m, nnc_sop op, V x)
{
    static const char *name[] = {[SC_floor] = "llvm.floor",
        [SC_ceil] = "llvm.ceil",
        [SC_round] = "llvm.rint",
        [SC_trunc] = "llvm.trunc"};
    return m->rounds ? ll_un(m, name[op], x) : round_soft(m, op, x);
}

static V sign_(ll_mod *m, V x)
{
    V one = ll_copysign(m, ll_fk(x, 1), x);
    V some = LLVMBuildFCmp(m->b, LLVMRealONE, x, ll_fk(x, 0), ""); /* neither 0 nor NaN */
    return LLVMBuildSelect(m->b, some, one, x, "");
}

/* a b + c with one rounding; without the instruction in f64, where a b is exact (adding c may round twice). */
static V fma_(ll_mod *m, V a, V b, V c)
{
    ll_match(m, &a, &b);
    ll_match(m, &a, &c);
    ll_match(m, &b, &c);
    if (m->fma)
        return ll_fma(m, a, b, c);
    if (ll_elem(a) == m->f64)
        return ll_fma(m, a, b, c);
    return ll_narrow(m, ll_fma(m, ll_wide(m, a), ll_wide(m, b), ll_wide(m, c)));
}

static V float_unary(ll_mod *m, nnc_sop op, V x)
{
    LLVMBuilderRef b = m->b;
    switch (op) {
    case SC_identity: return x;
    case SC_neg: return LLVMBuildFNeg(b, x, "");
    case SC_abs: return ll_un(m, "llvm.fabs", x);
    case SC_sign: return sign_(m, x);
    case SC_floor:
    case SC_ceil:
    case SC_round:
    case SC_trunc: return ll_round(m, op, x);
    case SC_sqrt: return ll_un(m, "llvm.sqrt", x);
    case SC_isnan: return LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
    default:
        assert(op == SC_isinf);
        return LLVMBuildFCmp(b, LLVMRealOEQ, ll_un(m, "llvm.fabs", x), ll_fk(x, INFINITY), "");
    }
}

static V float_arith(ll_mod *m, nnc_sop op, V x, V y, bool nonan)
{
    if (op == SC_max || op == SC_min)
        return ll_max(m, x, y, op == SC_max, nonan);
    ll_match(m, &x, &y);
    switch (op) {
    case SC_add: return LLVMBuildFAdd(m->b, x, y, "");
    case SC_sub: return LLVMBuildFSub(m->b, x, y, "");
    case SC_mul: return LLVMBuildFMul(m->b, x, y, "");
    default: assert(op == SC_div); return LLVMBuildFDiv(m->b, x, y, "");
    }
}

/* ---- dispatch ----------------------------------------------------------------------------------------------------- */

V ll_arith(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b, bool nonan)
{
    if (nnc_is_float(d))
        return float_arith(m, op, a, b, nonan);
    ll_match(m, &a, &b);
    return int_arith(m, op, d, a, b);
}

V ll_compare(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b)
{
    static const struct {
        LLVMRealPredicate real;
        LLVMIntPredicate sint, uint;
    } is[] = {[SC_eq] = {LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ},
        [SC_ne] = {LLVMRealUNE, LLVMIntNE, LLVMIntNE},
        [SC_lt] = {LLVMRealOLT, LLVMIntSLT, LLVMIntULT},
        [SC_le] = {LLVMRealOLE, LLVMIntSLE, LLVMIntULE},
        [SC_gt] = {LLVMRealOGT, LLVMIntSGT, LLVMIntUGT},
        [SC_ge] = {LLVMRealOGE, LLVMIntSGE, LLVMIntUGE}};
    ll_match(m, &a, &b);
    if (nnc_is_float(d))
        return LLVMBuildFCmp(m->b, is[op].real, a, b, "");
    return LLVMBuildICmp(m->b, is_signed(d) ? is[op].sint : is[op].uint, a, b, "");
}

static V logic(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b)
{
    a = ll_cast(m, a, d, DT_bool);
    if (op == SC_not)
        return LLVMBuildNot(m->b, a, "");
    b = ll_cast(m, b, d, DT_bool);
    ll_match(m, &a, &b);
    return op == SC_and  ? LLVMBuildAnd(m->b, a, b, "")
           : op == SC_or ? LLVMBuildOr(m->b, a, b, "")
                         : LLVMBuildXor(m->b, a, b, "");
}

static V cast_op(ll_mod *m, const nnc_kins *ins, nnc_dtype from, V x)
{
    nnc_dtype to = (nnc_dtype)ins->dtype;
    if (to == DT_f32 && (ins->cast_to == DT_f16 || ins->cast_to == DT_bf16))
        to = (nnc_dtype)ins->cast_to;
    return ll_cast(m, x, from, to);
}

V ll_sop(ll_mod *m, const nnc_kernel *k, const nnc_kins *ins, V *arg)
{
    nnc_sop op = (nnc_sop)ins->sop;
    const nnc_kins *a = &k->ins[ins->arg[0]];
    nnc_dtype d = (nnc_dtype)a->dtype;
    if (nnc_has_formula(op, d) || (op == SC_mod && nnc_is_float(d)))
        return ll_math(m, nnc_formula_key(k, ins), arg[0], ins->arg[1] < 0 ? NULL : arg[1]);
    switch (op) {
    case SC_cast: return cast_op(m, ins, d, arg[0]);
    case SC_select: return ll_select(m, ll_cast(m, arg[0], d, DT_bool), arg[1], arg[2]);
    case SC_fma: return fma_(m, arg[0], arg[1], arg[2]);
    case SC_eq:
    case SC_ne:
    case SC_lt:
    case SC_le:
    case SC_gt:
    case SC_ge: return ll_compare(m, op, d, arg[0], arg[1]);
    case SC_and:
    case SC_or:
    case SC_xor:
    case SC_not: return logic(m, op, d, arg[0], arg[1]);
    default: break;
    }
    if (nnc_sops[op].arity == 1)
        return nnc_is_float(d) ? float_unary(m, op, arg[0]) : int_unary(m, op, d, arg[0]);
    return ll_arith(m, op, d, arg[0], arg[1], ins->hint & KH_nonan);
}

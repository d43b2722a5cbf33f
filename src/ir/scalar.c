/* ir/scalar.c -- the definition of every scalar op on doubles and on 64-bit integers. The reference evaluator and constant folding use
 * these definitions; kernels and engines are tested against them.
 *
 * Integers are passed as int64_t: a value of a narrower type is extended, u64 has the same bits. `d` is the type of the operands (of
 * the result for cast); results wrap to it. */
#include "ir/ir.h"

#include <assert.h>
#include <math.h>

/* 1/(1+e^-x) without overflow for either sign. */
static double sigmoid(double x)
{
    if (x >= 0)
        return 1 / (1 + exp(-x));
    double e = exp(x);
    return e / (1 + e);
}

double nnc_sop_eval_f64(nnc_sop op, double a, double b, double c)
{
    switch (op) {
/* clang-format off */
#define F(function) function
#define SC(name, arity, res, flags, lo, hi, cost, ulp, value, cuda, deriv, doc) \
    case SC_##name: return value;
#include "ir/scalar.def" /* the formatter would join it to the macro */
        /* clang-format on */
    default: assert(0 && "not a scalar op"); return NAN;
    }
}

/* The value of type `d` with the same low bits. */
static int64_t wrap(nnc_dtype d, uint64_t v)
{
    switch (d) {
    case DT_i8: return (int8_t)v;
    case DT_i16: return (int16_t)v;
    case DT_i32: return (int32_t)v;
    case DT_u8: return (uint8_t)v;
    case DT_u16: return (uint16_t)v;
    case DT_u32: return (uint32_t)v;
    case DT_bool: return v != 0;
    default: return (int64_t)v;
    }
}

/* a^b by squaring, wrapping. A negative exponent gives the truncated quotient: 0 unless a is 1 or -1. */
static uint64_t ipow(int64_t a, int64_t b, bool is_unsigned)
{
    if (!is_unsigned && b < 0)
        return a == 1 ? 1 : a == -1 ? ((b & 1) ? UINT64_MAX : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (uint64_t n = (uint64_t)b; n; n >>= 1, x *= x)
        if (n & 1)
            r *= x;
    return r;
}

/* Rounds towards zero; x/0 = 0 and x%0 = 0; the only overflow, min / -1, wraps. */
static uint64_t idiv(int64_t a, int64_t b, bool is_unsigned)
{
    if (b == 0)
        return 0;
    if (is_unsigned)
        return (uint64_t)a / (uint64_t)b;
    return b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
}

static uint64_t imod(int64_t a, int64_t b, bool is_unsigned)
{
    if (b == 0 || (!is_unsigned && b == -1))
        return 0;
    return is_unsigned ? (uint64_t)a % (uint64_t)b : (uint64_t)(a % b);
}

/* a shifted by b, which counts as unsigned: beyond the bits of d only the sign is left. */
static uint64_t shift(nnc_dtype d, int64_t a, int64_t b, bool left)
{
    const uint64_t bits = 8 * (uint64_t)nnc_dtype_size(d), n = (uint64_t)b;
    if (left)
        return n < bits ? (uint64_t)a << n : 0;
    if (nnc_dtype_kind(d) == NNC_UINT)
        return n < bits ? (uint64_t)a >> n : 0;
    return (uint64_t)(a >> (n < bits ? n : bits - 1));
}

int64_t nnc_sop_eval_i64(nnc_sop op, nnc_dtype d, int64_t a, int64_t b, int64_t c)
{
    bool is_u = d == DT_u64;
    bool less = is_u ? (uint64_t)a < (uint64_t)b : a < b;
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (op) {
    case SC_identity:
    case SC_floor:
    case SC_ceil:
    case SC_round:
    case SC_trunc: return a;
    case SC_cast: return wrap(d, ua);
    case SC_neg: return wrap(d, 0 - ua);
    case SC_abs: return nnc_dtype_kind(d) == NNC_INT && a < 0 ? wrap(d, 0 - ua) : a;
    case SC_sign: return nnc_dtype_kind(d) == NNC_INT ? (a > 0) - (a < 0) : a != 0;
    case SC_not: return a == 0;
    case SC_add: return wrap(d, ua + ub);
    case SC_sub: return wrap(d, ua - ub);
    case SC_mul: return wrap(d, ua * ub);
    case SC_div: return wrap(d, idiv(a, b, is_u));
    case SC_mod: return wrap(d, imod(a, b, is_u));
    case SC_pow: return wrap(d, ipow(a, b, is_u));
    case SC_min: return less ? a : b;
    case SC_max: return less ? b : a;
    case SC_eq: return a == b;
    case SC_ne: return a != b;
    case SC_lt: return less;
    case SC_le: return less || a == b;
    case SC_gt: return !less && a != b;
    case SC_ge: return !less;
    case SC_and: return a != 0 && b != 0;
    case SC_or: return a != 0 || b != 0;
    case SC_xor: return (a != 0) != (b != 0);
    case SC_bit_and: return a & b;
    case SC_bit_or: return a | b;
    case SC_bit_xor: return a ^ b;
    case SC_shl:
    case SC_shr: return wrap(d, shift(d, a, b, op == SC_shl));
    case SC_select: return a ? b : c;
    default: assert(0 && "a float-only scalar op on integers"); return 0;
    }
}

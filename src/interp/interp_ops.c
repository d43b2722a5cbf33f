/* interp/interp_ops.c -- one instruction on a block of values, as loops that the compiler vectorises. f32 is computed in f32, f64 in
 * f64; integers wrap to their type. Math functions: math/formula_run.c. */
#include "interp/internal.h"

#include <math.h>
#include <string.h>

#define SIGN(x) ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))

#define UNARY(name, expr) \
    case SC_##name: \
        for (int i = 0; i < n; i++) { \
            T x = a[i]; \
            y[i] = expr; \
        } \
        return;
#define BINARY(name, expr) \
    case SC_##name: \
        for (int i = 0; i < n; i++) { \
            T u = a[i], v = b[i]; \
            y[i] = expr; \
        } \
        return;
#define TEST2(name, op) \
    case SC_##name: \
        for (int i = 0; i < n; i++) \
            z[i] = a[i] op b[i]; \
        return;

/* clang-format off */
#define FLOAT_OPS(F) \
    switch (op) { \
    UNARY(identity, x) UNARY(neg, -x) UNARY(abs, F(fabs)(x)) UNARY(sign, SIGN(x)) \
    UNARY(floor, F(floor)(x)) UNARY(ceil, F(ceil)(x)) UNARY(round, F(rint)(x)) \
    UNARY(trunc, F(trunc)(x)) \
    UNARY(sqrt, F(sqrt)(x)) \
    BINARY(add, u + v) BINARY(sub, u - v) BINARY(mul, u * v) BINARY(div, u / v) \
    BINARY(mod, F(fmod)(u, v)) \
    BINARY(min, u != u || u < v ? u : v) BINARY(max, u != u || u > v ? u : v) \
    TEST2(eq, ==) TEST2(ne, !=) TEST2(lt, <) TEST2(le, <=) TEST2(gt, >) TEST2(ge, >=) \
    case SC_isnan: for (int i = 0; i < n; i++) z[i] = a[i] != a[i]; return; \
    case SC_isinf: for (int i = 0; i < n; i++) z[i] = isinf(a[i]) != 0; return; \
    case SC_fma: for (int i = 0; i < n; i++) y[i] = F(fma)(a[i], b[i], c[i]); return; \
    default: return; \
    }
/* clang-format on */

NNC_BODY ops_f32_body(
    nnc_sop op, int n, const float *a, const float *b, const float *c, float *y, int64_t *z)
{
    typedef float T;
#define F32(fn) fn##f
    FLOAT_OPS(F32)
}
NNC_DISPATCH(ops_f32,
    (nnc_sop op, int n, const float *a, const float *b, const float *c, float *y, int64_t *z),
    (op, n, a, b, c, y, z))

NNC_BODY ops_f64_body(
    nnc_sop op, int n, const double *a, const double *b, const double *c, double *y, int64_t *z)
{
    typedef double T;
#define F64(fn) fn
    FLOAT_OPS(F64)
}
NNC_DISPATCH(ops_f64,
    (nnc_sop op, int n, const double *a, const double *b, const double *c, double *y, int64_t *z),
    (op, n, a, b, c, y, z))

#define LOOP(expr) \
    for (int i = 0; i < n; i++) \
        y[i] = (int64_t)(expr); \
    break;

/* Wraps to the type: sign- or zero-extends the low bits; a bool is "not zero". */
static void wrap_lanes(nnc_dtype d, int n, int64_t *y)
{
    int bits = 8 * nnc_dtype_size(d), s = 64 - bits;
    if (s == 0)
        return;
    if (d == DT_bool)
        for (int i = 0; i < n; i++)
            y[i] = y[i] != 0;
    else if (nnc_dtype_kind(d) == NNC_INT)
        for (int i = 0; i < n; i++)
            y[i] = (int64_t)((uint64_t)y[i] << s) >> s;
    else
        for (int i = 0; i < n; i++)
            y[i] = (int64_t)((uint64_t)y[i] << s >> s);
}

static void ops_int(nnc_sop op, nnc_dtype d, int n, const int64_t *a, const int64_t *b, int64_t *y)
{
    const uint64_t *ua = (const uint64_t *)a, *ub = (const uint64_t *)b;
    bool big = d == DT_u64;
    switch (op) {
    case SC_add: LOOP(ua[i] + ub[i])
    case SC_sub: LOOP(ua[i] - ub[i])
    case SC_mul: LOOP(ua[i] * ub[i])
    case SC_eq: LOOP(a[i] == b[i]) return;
    case SC_ne: LOOP(a[i] != b[i]) return;
    case SC_and:
    case SC_bit_and: LOOP(a[i] & b[i]) return;
    case SC_or:
    case SC_bit_or: LOOP(a[i] | b[i]) return;
    case SC_xor:
    case SC_bit_xor: LOOP(a[i] ^ b[i]) return;
    case SC_lt: LOOP(big ? ua[i] < ub[i] : a[i] < b[i]) return;
    case SC_ge: LOOP(big ? ua[i] >= ub[i] : a[i] >= b[i]) return;
    default:
        for (int i = 0; i < n; i++)
            y[i] = nnc_sop_eval_i64(op, d, a[i], b ? b[i] : 0, 0);
        return;
    }
    wrap_lanes(d, n, y);
}

/* ---- cast and select ---- */

static void round_f32(nnc_dtype to, int n, const float *a, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = to == DT_f16    ? nnc_f16_to_f32(nnc_f32_to_f16(a[i]))
               : to == DT_bf16 ? nnc_bf16_to_f32(nnc_f32_to_bf16(a[i]))
                               : a[i];
}

static void cast_from_double(nnc_dtype to, int n, const double *a, void *y)
{
    for (int i = 0; i < n; i++) {
        uint64_t cell = 0;
        if (to == DT_f64) {
            ((double *)y)[i] = a[i];
            continue;
        }
        nnc_set_f64(to, &cell, 0, a[i]);
        if (nnc_is_float(to))
            ((float *)y)[i] = (float)nnc_get_f64(to, &cell, 0);
        else
            ((int64_t *)y)[i] = nnc_get_i64(to, &cell, 0);
    }
}

static void cast_from_int(nnc_dtype from, nnc_dtype to, int n, const int64_t *a, void *y)
{
    if (!nnc_is_float(to)) {
        int64_t *z = y;
        memmove(z, a, sizeof *z * (size_t)n);
        wrap_lanes(to, n, z);
        return;
    }
    bool big = from == DT_u64;
    for (int i = 0; i < n; i++) {
        if (to == DT_f64) {
            ((double *)y)[i] = big ? (double)(uint64_t)a[i] : (double)a[i];
            continue;
        }
        float f = big ? (float)(uint64_t)a[i] : (float)a[i];
        if (to == DT_f32)
            ((float *)y)[i] = f;
        else { /* directly from the integer, so that it is rounded once */
            double v = big ? (double)(uint64_t)a[i] : (double)a[i];
            cast_from_double(to, 1, &v, (float *)y + i);
        }
    }
}

static void cast_lanes(nnc_dtype from, nnc_dtype to, int n, const void *a, void *y)
{
    nnc_lane l = nnc_lane_of(from);
    if (l == LANE_int) {
        cast_from_int(from, to, n, a, y);
    } else if (l == LANE_f64) {
        cast_from_double(to, n, a, y);
    } else if (nnc_lane_of(to) == LANE_f32) {
        round_f32(to, n, a, y);
    } else {
        const float *x = a;
        for (int i = 0; i < n; i++) {
            double v = x[i];
            cast_from_double(to, 1, &v, (char *)y + 8 * i);
        }
    }
}

static void select_lanes(nnc_lane l, int n, const int64_t *c, const void *a, const void *b, void *y)
{
    if (l == LANE_f32) {
        const float *u = a, *v = b;
        for (int i = 0; i < n; i++)
            ((float *)y)[i] = c[i] ? u[i] : v[i];
    } else {
        const uint64_t *u = a, *v = b;
        for (int i = 0; i < n; i++)
            ((uint64_t *)y)[i] = c[i] ? u[i] : v[i];
    }
}

void nnc_lanes_sop(
    const nnc_kins *in, nnc_dtype from, int n, const void *a, const void *b, const void *c, void *y)
{
    nnc_sop op = (nnc_sop)in->sop;
    if (op == SC_cast)
        cast_lanes(from, (nnc_dtype)in->cast_to, n, a, y);
    else if (op == SC_select)
        select_lanes(nnc_lane_of((nnc_dtype)in->dtype), n, a, b, c, y);
    else if (nnc_lane_of(from) == LANE_f32)
        ops_f32(op, n, a, b, c, y, y);
    else if (nnc_lane_of(from) == LANE_f64)
        ops_f64(op, n, a, b, c, y, y);
    else
        ops_int(op, from, n, a, b, y);
}

/* ---- memory ---- */

/* Element types: in memory, in lanes, and the conversions between the two. */
#define TYPES(X) \
    X(f64, double, double, , ) \
    X(f32, float, float, , ) \
    X(f16, uint16_t, float, nnc_f16_to_f32, nnc_f32_to_f16) \
    X(bf16, uint16_t, float, nnc_bf16_to_f32, nnc_f32_to_bf16) \
    X(i8, int8_t, int64_t, , ) \
    X(i16, int16_t, int64_t, , ) \
    X(i32, int32_t, int64_t, , ) \
    X(i64, int64_t, int64_t, , ) \
    X(u8, uint8_t, int64_t, , ) \
    X(u16, uint16_t, int64_t, , ) \
    X(u32, uint32_t, int64_t, , ) \
    X(u64, uint64_t, int64_t, (int64_t), ) \
    X(bool, uint8_t, int64_t, 0 !=, 0 !=)

#define LOAD(D, C, Y, load, store) \
    case DT_##D: { \
        const C *p = (const C *)buf + at; \
        Y *z = y; \
        if (stride == 1) \
            for (int i = 0; i < n; i++) \
                z[i] = load(p[i]); \
        else \
            for (int i = 0; i < n; i++) \
                z[i] = load(p[i * stride]); \
        break; \
    }

void nnc_lanes_load(nnc_dtype d, const void *buf, int64_t at, int64_t stride, int n, void *y)
{
    switch (d) {
        TYPES(LOAD)
    default: break;
    }
}

#define STORE(D, C, Y, load, store) \
    case DT_##D: { \
        C *p = (C *)buf + at; \
        const Y *z = x; \
        if (stride == 1) \
            for (int i = 0; i < n; i++) \
                p[i] = (C)store(z[i]); \
        else \
            for (int i = 0; i < n; i++) \
                p[i * stride] = (C)store(z[i]); \
        break; \
    }

void nnc_lanes_store(nnc_dtype d, void *buf, int64_t at, int64_t stride, int n, const void *x)
{
    switch (d) {
        TYPES(STORE)
    default: break;
    }
}

void nnc_lanes_fill(nnc_lane l, void *y, int from, int to, const void *one)
{
    if (l == LANE_f32) {
        float f = *(const float *)one;
        for (int i = from; i < to; i++)
            ((float *)y)[i] = f;
    } else {
        uint64_t w = *(const uint64_t *)one;
        for (int i = from; i < to; i++)
            ((uint64_t *)y)[i] = w;
    }
}

/* ---- reductions ---- */

#define FOLD(r, expr) \
    case r: \
        for (int i = 0; !mask && i < n; i++) \
            acc[i] = expr; \
        for (int i = 0; mask && i < n; i++) \
            if (mask[i]) \
                acc[i] = expr; \
        break;
#define FOLD_ARG(r, better) \
    case r: \
        for (int i = 0; i < n; i++) \
            if ((!mask || mask[i]) && (at[i] < 0 || (better))) { \
                acc[i] = x[i]; \
                at[i] = first + i * step; \
            } \
        break;
/* NaN wins over everything; the first index wins ties. */
#define FOLD_FLOAT(T) \
    T *acc = acc_; \
    const T *x = x_; \
    switch (r) { \
        FOLD(KR_sum, acc[i] + x[i]) \
        FOLD(KR_prod, acc[i] * x[i]) \
        FOLD(KR_max, acc[i] != acc[i] || acc[i] > x[i] ? acc[i] : x[i]) \
        FOLD(KR_min, acc[i] != acc[i] || acc[i] < x[i] ? acc[i] : x[i]) \
        FOLD_ARG(KR_argmax, acc[i] == acc[i] && (x[i] != x[i] || x[i] > acc[i])) \
        FOLD_ARG(KR_argmin, acc[i] == acc[i] && (x[i] != x[i] || x[i] < acc[i])) \
    }

#define FOLD_OF(name, T) \
    NNC_BODY name##_body(nnc_kred r, int n, void *acc_, int64_t *at, const void *x_, \
        const int64_t *mask, int64_t first, int64_t step){FOLD_FLOAT(T)} NNC_DISPATCH(name, \
        (nnc_kred r, int n, void *acc, int64_t *at, const void *x, const int64_t *mask, \
            int64_t first, int64_t step), \
        (r, n, acc, at, x, mask, first, step))
FOLD_OF(fold_f32, float)
FOLD_OF(fold_f64, double)

static void fold_int(nnc_kred r, nnc_dtype d, int n, int64_t *acc, int64_t *at, const int64_t *x,
    const int64_t *mask, int64_t first, int64_t step)
{
    bool big = d == DT_u64;
#define LESS(u, v) (big ? (uint64_t)(u) < (uint64_t)(v) : (u) < (v))
    switch (r) {
        FOLD(KR_sum, nnc_sop_eval_i64(SC_add, d, acc[i], x[i], 0))
        FOLD(KR_prod, nnc_sop_eval_i64(SC_mul, d, acc[i], x[i], 0))
        FOLD(KR_max, LESS(acc[i], x[i]) ? x[i] : acc[i])
        FOLD(KR_min, LESS(x[i], acc[i]) ? x[i] : acc[i])
        FOLD_ARG(KR_argmax, LESS(acc[i], x[i]))
        FOLD_ARG(KR_argmin, LESS(x[i], acc[i]))
    }
}

void nnc_lanes_fold(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at, const void *x,
    const int64_t *mask, int64_t first, int64_t step)
{
    switch (nnc_lane_of(d)) {
    case LANE_f32: fold_f32(r, n, acc, at, x, mask, first, step); break;
    case LANE_f64: fold_f64(r, n, acc, at, x, mask, first, step); break;
    default: fold_int(r, d, n, acc, at, x, mask, first, step);
    }
}

void nnc_lanes_start(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at)
{
    double f = r == KR_prod ? 1 : r == KR_max ? -INFINITY : r == KR_min ? INFINITY : 0;
    float f32 = (float)f;
    int64_t i64 = r == KR_prod ? 1 : r == KR_max || r == KR_min ? nnc_int_end(d, r == KR_min) : 0;
    nnc_lane l = nnc_lane_of(d);
    nnc_lanes_fill(l, acc, 0, n,
        l == LANE_f32   ? (void *)&f32
        : l == LANE_f64 ? (void *)&f
                        : (void *)&i64);
    for (int i = 0; at && i < n; i++)
        at[i] = -1;
}

/* Combines lane i of an argmax or argmin into lane 0: the smaller index wins ties. */
static void take_lane(nnc_kred r, nnc_dtype d, void *acc, int64_t *at, int i)
{
    size_t size = nnc_lane_of(d) == LANE_f32 ? 4 : 8;
    char *one = (char *)acc + size * (size_t)i;
    if (at[i] < 0)
        return;
    int64_t now = at[0], kept;
    uint64_t was = 0;
    memcpy(&was, acc, size);
    nnc_lanes_fold(r, d, 1, acc, at, one, NULL, at[i], 0);
    if (at[0] != now || now < at[i])
        return;
    /* not better: equal (or both NaN) with a smaller index? then neither wins the reversed comparison */
    kept = at[i];
    uint64_t back = 0;
    memcpy(&back, one, size);
    nnc_lanes_fold(r, d, 1, &back, &kept, &was, NULL, now, 0);
    if (kept == at[i])
        at[0] = at[i];
}

void nnc_lanes_finish(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at, void *y)
{
    const size_t size = nnc_lane_of(d) == LANE_f32 ? 4 : 8;
    if (r < KR_argmax) {
        for (int half = n / 2; n > 1; n -= half, half = n / 2)
            nnc_lanes_fold(
                r, d, half, acc, NULL, (char *)acc + size * (size_t)(n - half), NULL, 0, 0);
        memmove(y, acc, size);
        return;
    }
    for (int i = 1; i < n; i++)
        take_lane(r, d, acc, at, i);
    ((int64_t *)y)[0] = at[0] < 0 ? 0 : at[0];
}

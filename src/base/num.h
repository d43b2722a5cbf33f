/* base/num.h -- numbers: checked arithmetic, 16-bit floats, hashing, counter-based random numbers, time. */
#ifndef NNC_NUM_H
#define NNC_NUM_H

#include "base/status.h"

/* Checked arithmetic: true when the result fits (the builtins, negated). */
static inline bool nnc_mul_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool nnc_add_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
/* Saturating, for sums and products of costs >= 0. */
static inline int64_t nnc_mul_sat(int64_t a, int64_t b) { return nnc_mul_ok(a, b, &a) ? a : INT64_MAX; }
static inline int64_t nnc_add_sat(int64_t a, int64_t b) { return nnc_add_ok(a, b, &a) ? a : INT64_MAX; }
static inline int64_t nnc_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t nnc_max64(int64_t a, int64_t b) { return a > b ? a : b; }
/* b > 0; rounds towards minus infinity / up. */
static inline int64_t nnc_floordiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static inline int64_t nnc_ceildiv(int64_t a, int64_t b) { return -nnc_floordiv(-a, b); }
static inline int64_t nnc_gcd(int64_t a, int64_t b) { return b ? nnc_gcd(b, a % b) : a; }
static inline int64_t nnc_align_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }
void nnc_sort64(int64_t *v, size_t n); /* ascending */
/* -1, 0 or 1: the order of two numbers; and by the first of two orders that tells them apart. */
static inline int nnc_cmp(int64_t a, int64_t b) { return (a > b) - (a < b); }
static inline int nnc_then(int first, int second) { return first ? first : second; }
/* Defines a comparison of the elements a and b, for qsort and bsearch: by the first of `...` that is not 0, as in
 * NNC_ORDER(by_start, span, nnc_cmp(a->start, b->start), strcmp(a->name, b->name)). */
#define NNC_ORDER(name, type, ...) \
    static int name(const void *x_, const void *y_) \
    { \
        const type *a = x_, *b = y_; \
        const int by[] = {__VA_ARGS__}; \
        size_t i = 0; \
        while (!by[i] && i + 1 < sizeof by / sizeof *by) \
            i++; \
        return by[i]; \
    }
/* For these elements: uint32_t, or int32_t that are not negative; int64_t; char *. */
int nnc_by_index(const void *x, const void *y);
int nnc_by_number(const void *x, const void *y);
int nnc_by_text(const void *x, const void *y);

/* IEEE binary16 and bfloat16, round to nearest even, NaN kept quiet. */
float nnc_f16_to_f32(uint16_t h);
uint16_t nnc_f64_to_f16(double d); /* one rounding, not two */
static inline uint16_t nnc_f32_to_f16(float f) { return nnc_f64_to_f16(f); }
float nnc_bf16_to_f32(uint16_t h);
uint16_t nnc_f32_to_bf16(float f);
uint16_t nnc_f64_to_bf16(double d);

/* 64- and 128-bit content hashes (xxHash: XXH3). Stable across machines of the same byte order. */
uint64_t nnc_hash64(const void *p, size_t n, uint64_t seed);
typedef struct nnc_hash128 { uint64_t lo, hi; } nnc_hash128;
nnc_hash128 nnc_hash(const void *p, size_t n);
void nnc_hash_hex(nnc_hash128 h, char out[33]);

/* Counter-based generator (Philox 4x32-10, Salmon et al., SC'11): element i of the stream of `key` does not depend on order or
 * threads. key = nnc_hash64(name) ^ seed mixing, see nnc_rng_key. */
uint64_t nnc_rng_key(const char *name, uint64_t seed);
uint32_t nnc_rng_u32(uint64_t key, uint64_t i);
/* [0,1), 24 bits */
static inline float nnc_rng_uniform(uint64_t key, uint64_t i) { return (float)(nnc_rng_u32(key, i) >> 8) * 0x1p-24f; }
/* Fills dst[0..n) with elements first.. of the stream: uniform in [-scale, scale), bit-identical on all machines (no libm). Generated
 * weights and inputs have this distribution. */
void nnc_rng_fill(uint64_t key, uint64_t first, size_t n, float scale, float *dst);

/* Monotonic clock, nanoseconds. */
int64_t nnc_now_ns(void);
/* Test hook: replaces the clock by that of simulated devices; NULL: the real one. Not thread-safe. */
void nnc_set_clock(int64_t (*now_ns)(void));

/* A binary heap (heap.c) of different numbers in the caller's array; `before` says which of two comes out first. */
typedef struct nnc_heap {
    uint32_t *at, n;
    bool (*before)(const void *ctx, uint32_t a, uint32_t b);
    const void *ctx;
} nnc_heap;
void nnc_heap_push(nnc_heap *h, uint32_t x);
uint32_t nnc_heap_pop(nnc_heap *h);

#endif

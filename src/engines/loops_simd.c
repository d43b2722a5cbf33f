/* engines/loops_simd.c -- instances of the inner loops (loops_tile.h) for float, double and
 * 64-bit integers, and on x86-64 for three instruction sets, chosen when first asked for.
 * Integers are unsigned: they wrap without undefined behaviour, and modulo 2^64 signed and
 * unsigned sums are the same bits. */
#include "engines/loops.h"

typedef uint64_t u64;

#define T float
#define V 4
#define R 4
#define X(n) f32_##n
#include "engines/loops_tile.h"
#define T double
#define V 2
#define R 4
#define X(n) f64_##n
#include "engines/loops_tile.h"
#define T u64
#define V 2
#define R 2
#define X(n) i64_##n
#include "engines/loops_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define T float
#define V 8
#define R 6
#define X(n) f32_avx2_##n
#include "engines/loops_tile.h"
#define T double
#define V 4
#define R 6
#define X(n) f64_avx2_##n
#include "engines/loops_tile.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")
#define T float
#define V 16
#define R 12
#define X(n) f32_avx512_##n
#include "engines/loops_tile.h"
#define T double
#define V 8
#define R 12
#define X(n) f64_avx512_##n
#include "engines/loops_tile.h"
#define T u64
#define V 8
#define R 6
#define X(n) i64_avx512_##n
#include "engines/loops_tile.h"
#pragma GCC pop_options

static const lp_kernels *choose(lp_acc a)
{
    static const lp_kernels *const base[] = {&f32_table, &f64_table, &i64_table};
    static const lp_kernels *const avx2[] = {&f32_avx2_table, &f64_avx2_table, &i64_table};
    static const lp_kernels *const avx512[] = {
        &f32_avx512_table, &f64_avx512_table, &i64_avx512_table};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return avx512[a];
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return avx2[a];
    return base[a];
}
#else
static const lp_kernels *choose(lp_acc a)
{
    static const lp_kernels *const base[] = {&f32_table, &f64_table, &i64_table};
    return base[a];
}
#endif

const lp_kernels *lp_kernels_of(lp_acc a)
{
    return choose(a);
}

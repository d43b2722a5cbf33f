/* codegen/cuda_prelude.c -- what kernels call, as CUDA C. A part is printed when the kernels or a
 * later part name it, so that a unit holds nothing it does not use.
 *
 * Functions of f32 are those of plugins/llvm/math.c and trig.c: the same formulas over the same
 * coefficients (minimax.def), with the same bounds (docs/math.md). $NAME$ in a text becomes the
 * coefficients. f16 and bf16 are converted by PTX on a GPU and by integer arithmetic elsewhere. */
#include "codegen/cuda.h"

#include <ctype.h>
#include <string.h>

typedef struct part {
    const char *name, *text;
} part;

typedef struct coefs {
    const char *name;
    int n;
    double c[12];
} coefs;

static const coefs tables[] = {
#define MM(name, ...) {#name, sizeof((double[]){__VA_ARGS__}) / sizeof(double), {__VA_ARGS__}},
#include "codegen/minimax.def"
};

/* clang-format off */
static const part parts[] = {
/* ---- memory ---- */
{"nnc_inf", "NNC_FN float nnc_inf() { return __uint_as_float(0x7f800000u); }\n"},
{"nnc_nan", "NNC_FN float nnc_nan() { return __uint_as_float(0x7fc00000u); }\n"},
{"nnc_vec",
"/* N values that move together. */\n"
"template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) nnc_vec {\n"
"    T v[N];\n"
"    NNC_FN T &operator[](int i) { return v[i]; }\n"
"    NNC_FN const T &operator[](int i) const { return v[i]; }\n"
"};\n"},
{"nnc_splat",
"template <int N, typename T> NNC_FN nnc_vec<T, N> nnc_splat(T x)\n"
"{\n"
"    nnc_vec<T, N> y;\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++)\n"
"        y[i] = x;\n"
"    return y;\n"
"}\n"},
{"nnc_bool", "struct nnc_bool { unsigned char bits; }; /* anything but 0 is true */\n"},
{"nnc_f16", "struct nnc_f16 { unsigned short bits; };\n"},
{"nnc_bf16", "struct nnc_bf16 { unsigned short bits; };\n"},
{"nnc_half_of",
"/* To binary16, to nearest, ties to even. Portable form: the method of Maratyszcza's FP16 library. */\n"
"NNC_FN unsigned short nnc_half_of(float x)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    unsigned short h;\n"
"    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
"    return h;\n"
"#else\n"
"    const unsigned w = __float_as_uint(x), w2 = w << 1;\n"
"    unsigned bias = w2 & 0xff000000u;\n"
"    bias = ((bias < 0x71000000u ? 0x71000000u : bias) >> 1) + 0x07800000u;\n"
"    const unsigned r = __float_as_uint(__uint_as_float(bias) + fabsf(x) * 0x1p112f * 0x1p-110f);\n"
"    const unsigned h = w2 > 0xff000000u ? 0x7e00u : ((r >> 13) & 0x7c00u) + (r & 0xfffu);\n"
"    return (unsigned short)((w >> 16 & 0x8000u) | h);\n"
"#endif\n"
"}\n"},
{"nnc_of_half",
"NNC_FN float nnc_of_half(unsigned short h)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    float x;\n"
"    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n"
"    return x;\n"
"#else\n"
"    const unsigned low = h & 0x7fffu;\n"
"    const float x = __uint_as_float(low << 13) * 0x1p112f;\n"
"    const unsigned w = __float_as_uint(x) | (low >= 0x7c00u ? 0x7f800000u : 0u);\n"
"    return __uint_as_float(w | (h & 0x8000u) << 16);\n"
"#endif\n"
"}\n"},
{"nnc_bfloat_of",
"/* To bfloat16, to nearest, ties to even. */\n"
"NNC_FN unsigned short nnc_bfloat_of(float x)\n"
"{\n"
"#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800\n"
"    unsigned short h;\n"
"    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
"    return h;\n"
"#else\n"
"    const unsigned w = __float_as_uint(x);\n"
"    if (x != x)\n"
"        return (unsigned short)(w >> 16 | 0x40u);\n"
"    return (unsigned short)((w + 0x7fffu + (w >> 16 & 1u)) >> 16);\n"
"#endif\n"
"}\n"},
{"nnc_narrow",
"/* To f32, rounded to odd: a second rounding to fewer bits is then right. */\n"
"NNC_FN float nnc_narrow(double x)\n"
"{\n"
"    const float y = (float)x;\n"
"    unsigned w = __float_as_uint(y);\n"
"    if (x != x || (double)y == x)\n"
"        return y;\n"
"    if (fabs((double)y) > fabs(x))\n"
"        w--;\n"
"    return __uint_as_float(w | 1u);\n"
"}\n"},
{"nnc_get",
"/* An element of memory as the value that kernels compute with, and back. */\n"
"template <typename T> NNC_FN T nnc_get(T x) { return x; }\n"
"$if nnc_bool$NNC_FN bool nnc_get(nnc_bool x) { return x.bits != 0; }\n$end$"
"$if nnc_f16$NNC_FN float nnc_get(nnc_f16 x) { return nnc_of_half(x.bits); }\n$end$"
"$if nnc_bf16$NNC_FN float nnc_get(nnc_bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }\n$end$"},
{"nnc_same",
"template <typename A, typename B> constexpr bool nnc_same = false;\n"
"template <typename A> constexpr bool nnc_same<A, A> = true;\n"},
{"nnc_single",
"NNC_FN float nnc_single(float x) { return x; }\n"
"$if double$NNC_FN float nnc_single(double x) { return nnc_narrow(x); }\n$end$"},
{"nnc_put",
"template <typename T, typename V> NNC_FN T nnc_put(V x)\n"
"{\n"
"    if constexpr (nnc_same<T, V>)\n"
"        return x;\n"
"$if nnc_f16$"
"    else if constexpr (nnc_same<T, nnc_f16>)\n"
"        return T{nnc_half_of(nnc_single(x))};\n"
"$end$$if nnc_bf16$"
"    else if constexpr (nnc_same<T, nnc_bf16>)\n"
"        return T{nnc_bfloat_of(nnc_single(x))};\n"
"$end$"
"    else\n"
"        return T{x};\n"
"}\n"},
{"nnc_load",
"/* N neighbouring elements from an address that is a multiple of their size (16 bytes at most). */\n"
"template <int N, typename S> NNC_FN auto nnc_load(const S *p)\n"
"{\n"
"$if nnc_bf16$"
"    if constexpr (nnc_same<S, nnc_bf16> && N % 2 == 0) { /* an instruction each: half a word is a float's upper half */\n"
"        const nnc_vec<unsigned, N / 2> w = *reinterpret_cast<const nnc_vec<unsigned, N / 2> *>(p);\n"
"        nnc_vec<float, N> y;\n"
"#pragma unroll\n"
"        for (int i = 0; i < N; i++)\n"
"            y[i] = __uint_as_float(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);\n"
"        return y;\n"
"    } else {\n"
"$end$"
"    const nnc_vec<S, N> s = *reinterpret_cast<const nnc_vec<S, N> *>(p);\n"
"    nnc_vec<decltype(nnc_get(s[0])), N> x;\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++)\n"
"        x[i] = nnc_get(s[i]);\n"
"    return x;\n"
"$if nnc_bf16$    }\n$end$"
"}\n"},
{"nnc_raw",
"/* The same without conversion. */\n"
"template <int N, typename S> NNC_FN nnc_vec<S, N> nnc_raw(const S *p)\n"
"{\n"
"    return *reinterpret_cast<const nnc_vec<S, N> *>(p);\n"
"}\n"},
{"nnc_load_some",
"/* The first `left` of them, when there are fewer than N. */\n"
"template <int N, typename S, typename I> NNC_FN auto nnc_load_some(const S *p, I left)\n"
"{\n"
"    if (left >= N)\n"
"        return nnc_load<N>(p);\n"
"    decltype(nnc_load<N>(p)) x = {};\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++)\n"
"        if (i < left)\n"
"            x[i] = nnc_get(p[i]);\n"
"    return x;\n"
"}\n"},
{"nnc_store",
"template <int N, typename S, typename T> NNC_FN void nnc_store(S *p, const nnc_vec<T, N> &x)\n"
"{\n"
"    nnc_vec<S, N> s;\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++)\n"
"        s[i] = nnc_put<S>(x[i]);\n"
"    *reinterpret_cast<nnc_vec<S, N> *>(p) = s;\n"
"}\n"},
{"nnc_store_some",
"template <int N, typename S, typename T, typename I>\n"
"NNC_FN void nnc_store_some(S *p, const nnc_vec<T, N> &x, I left)\n"
"{\n"
"    if (left >= N) {\n"
"        nnc_store<N>(p, x);\n"
"        return;\n"
"    }\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++)\n"
"        if (i < left)\n"
"            p[i] = nnc_put<S>(x[i]);\n"
"}\n"},
{"nnc_clamp",
"/* Indices outside 0 .. limit-1 are brought to the nearest end. */\n"
"template <typename T> NNC_FN long long nnc_clamp(T i, long long limit)\n"
"{\n"
"    if (i < 0)\n"
"        return 0;\n"
"    return (unsigned long long)i < (unsigned long long)limit ? (long long)i : limit - 1;\n"
"}\n"},
/* ---- integers ---- */
{"nnc_unsigned",
"/* Arithmetic that wraps to T: in 64 bits without sign. */\n"
"template <typename T> NNC_FN unsigned long long nnc_unsigned(T x) { return (unsigned long long)x; }\n"},
{"nnc_add",
"template <typename T> NNC_FN T nnc_add(T a, T b) { return (T)(nnc_unsigned(a) + nnc_unsigned(b)); }\n"
"NNC_FN bool nnc_add(bool a, bool b) { return a | b; }\n"},
{"nnc_sub",
"template <typename T> NNC_FN T nnc_sub(T a, T b) { return (T)(nnc_unsigned(a) - nnc_unsigned(b)); }\n"
"NNC_FN bool nnc_sub(bool a, bool b) { return a != b; }\n"},
{"nnc_mul",
"template <typename T> NNC_FN T nnc_mul(T a, T b) { return (T)(nnc_unsigned(a) * nnc_unsigned(b)); }\n"
"NNC_FN bool nnc_mul(bool a, bool b) { return a & b; }\n"},
{"nnc_div",
"/* Towards zero; x / 0 is 0, and so is x % 0. */\n"
"template <typename T> NNC_FN T nnc_div(T a, T b)\n"
"{\n"
"    return b == 0 ? (T)0 : T(-1) < T(0) && b == (T)-1 ? (T)(0 - nnc_unsigned(a)) : (T)(a / b);\n"
"}\n"
"NNC_FN bool nnc_div(bool a, bool b) { return a & b; }\n"},
{"nnc_mod",
"template <typename T> NNC_FN T nnc_mod(T a, T b)\n"
"{\n"
"    return b == 0 || (T(-1) < T(0) && b == (T)-1) ? (T)0 : (T)(a % b);\n"
"}\n"
"NNC_FN bool nnc_mod(bool, bool) { return false; }\n"},
{"nnc_ipow",
"/* By squaring, wrapping; a negative exponent: 1 and -1 keep, others give 0. */\n"
"template <typename T> NNC_FN T nnc_ipow(T a, T n)\n"
"{\n"
"    if (n < (T)0 && a != (T)1 && a != (T)-1)\n"
"        return 0;\n"
"    unsigned long long y = 1, x = nnc_unsigned(a);\n"
"    for (unsigned long long m = nnc_unsigned(n), i = 8 * sizeof(T); i && m; i--, m >>= 1, x *= x)\n"
"        y = m & 1 ? y * x : y;\n"
"    return (T)y;\n"
"}\n"
"NNC_FN bool nnc_ipow(bool a, bool b) { return a | !b; }\n"},
{"nnc_neg",
"template <typename T> NNC_FN T nnc_neg(T x) { return (T)(0 - nnc_unsigned(x)); }\n"
"NNC_FN bool nnc_neg(bool x) { return x; }\n"},
{"nnc_abs",
"template <typename T> NNC_FN T nnc_abs(T x) { return x < (T)0 ? nnc_neg(x) : x; }\n"},
{"nnc_int",
"/* Towards zero, wrapped to T; NaN and what no 64-bit integer holds is 0. */\n"
"template <typename T, typename F> NNC_FN T nnc_int(F x)\n"
"{\n"
"    if (x >= (F)-0x1p63 && x < (F)0x1p63)\n"
"        return (T)(long long)x;\n"
"    if (sizeof(T) == 8 && T(-1) > T(0) && x >= (F)0x1p63 && x < (F)0x1p64)\n"
"        return (T)((unsigned long long)(long long)(x - (F)0x1p63) ^ 1ull << 63);\n"
"    return 0;\n"
"}\n"},
/* ---- of every type ---- */
{"nnc_sign",
"template <typename T> NNC_FN T nnc_sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; }\n"},
{"nnc_max",
"/* NaN if either is. */\n"
"template <typename T> NNC_FN T nnc_max(T a, T b) { return a > b || a != a ? a : b; }\n"
"#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800\n"
"NNC_FN float nnc_max(float a, float b)\n"
"{\n"
"    float y;\n"
"    asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
"    return y;\n"
"}\n"
"#endif\n"},
{"nnc_min",
"template <typename T> NNC_FN T nnc_min(T a, T b) { return a < b || a != a ? a : b; }\n"
"#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800\n"
"NNC_FN float nnc_min(float a, float b)\n"
"{\n"
"    float y;\n"
"    asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
"    return y;\n"
"}\n"
"#endif\n"},
{"nnc_argmax_take",
"/* The first of the largest; a NaN is larger than all. at < 0: none yet. */\n"
"template <typename T, typename I> NNC_FN void nnc_argmax_take(T &best, I &at, T x, I i)\n"
"{\n"
"    if (at < 0 || (best == best && (x != x || x > best))) {\n"
"        best = x;\n"
"        at = i;\n"
"    }\n"
"}\n"},
{"nnc_argmin_take",
"/* The first of the smallest; a NaN is smaller than all. at < 0: none yet. */\n"
"template <typename T, typename I> NNC_FN void nnc_argmin_take(T &best, I &at, T x, I i)\n"
"{\n"
"    if (at < 0 || (best == best && (x != x || x < best))) {\n"
"        best = x;\n"
"        at = i;\n"
"    }\n"
"}\n"},
/* ---- groups of threads ---- */
{"NNC_DYNAMIC",
"#ifndef NNC_DYNAMIC\n"
"#define NNC_DYNAMIC(name) extern __shared__ __align__(16) char name[]\n"
"#endif\n"},
{"nnc_join_sum",
"struct nnc_join_sum {\n"
"    NNC_FN float operator()(float a, float b) const { return a + b; }\n"
"    NNC_FN double operator()(double a, double b) const { return a + b; }\n"
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_add(a, b); }\n"
"};\n"},
{"nnc_join_prod",
"struct nnc_join_prod {\n"
"    NNC_FN float operator()(float a, float b) const { return a * b; }\n"
"    NNC_FN double operator()(double a, double b) const { return a * b; }\n"
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_mul(a, b); }\n"
"};\n"},
{"nnc_join_max",
"struct nnc_join_max {\n"
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_max(a, b); }\n"
"};\n"},
{"nnc_join_min",
"struct nnc_join_min {\n"
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_min(a, b); }\n"
"};\n"},
{"nnc_join_argmax",
"/* Of equals the smaller index. at < 0: none. */\n"
"struct nnc_join_argmax {\n"
"    template <typename T, typename I> NNC_FN void operator()(T &best, I &at, T x, I i) const\n"
"    {\n"
"        const bool over = best == best && (x != x || x > best);\n"
"        const bool under = x == x && (best != best || best > x);\n"
"        if (i >= 0 && (at < 0 || over || (!under && i < at))) {\n"
"            best = x;\n"
"            at = i;\n"
"        }\n"
"    }\n"
"};\n"},
{"nnc_join_argmin",
"/* Of equals the smaller index. at < 0: none. */\n"
"struct nnc_join_argmin {\n"
"    template <typename T, typename I> NNC_FN void operator()(T &best, I &at, T x, I i) const\n"
"    {\n"
"        const bool under = best == best && (x != x || x < best);\n"
"        const bool over = x == x && (best != best || best < x);\n"
"        if (i >= 0 && (at < 0 || under || (!over && i < at))) {\n"
"            best = x;\n"
"            at = i;\n"
"        }\n"
"    }\n"
"};\n"},
{"nnc_other",
"/* The value of the lane whose number differs in the bits of o. */\n"
"template <typename T> NNC_FN T nnc_other(T x, int o)\n"
"{\n"
"    if constexpr (sizeof(T) < 4)\n"
"        return (T)__shfl_xor_sync(0xffffffffu, (int)x, o);\n"
"    else\n"
"        return __shfl_xor_sync(0xffffffffu, x, o);\n"
"}\n"},
{"nnc_warp",
"/* What G neighbouring lanes hold, joined; all of them get the same bits. */\n"
"template <int G, typename F, typename T> NNC_FN T nnc_warp(T x)\n"
"{\n"
"#pragma unroll\n"
"    for (int o = G / 2; o > 0; o /= 2)\n"
"        x = F()(x, nnc_other(x, o));\n"
"    return x;\n"
"}\n"},
{"nnc_block",
"/* The same of G threads, whole warps; part: one element a warp of the block. */\n"
"template <int G, typename F, typename T> NNC_FN T nnc_block(T x, T *part)\n"
"{\n"
"    const int first = threadIdx.x / G * (G / 32);\n"
"    x = nnc_warp<32, F>(x);\n"
"    if (threadIdx.x % 32 == 0)\n"
"        part[threadIdx.x / 32] = x;\n"
"    __syncthreads();\n"
"    x = part[first];\n"
"#pragma unroll\n"
"    for (int w = 1; w < G / 32; w++)\n"
"        x = F()(x, part[first + w]);\n"
"    return x;\n"
"}\n"},
{"nnc_column",
"/* What the threads of one column of the block hold, G rows of 32; part: one element a thread and lane. */\n"
"template <int G, typename F, typename T> NNC_FN T nnc_column(T x, T *part)\n"
"{\n"
"    part[threadIdx.x] = x;\n"
"    __syncthreads();\n"
"    x = part[threadIdx.x % 32];\n"
"#pragma unroll\n"
"    for (int g = 1; g < G; g++)\n"
"        x = F()(x, part[g * 32 + threadIdx.x % 32]);\n"
"    return x;\n"
"}\n"
"$if nnc_vec$template <int G, typename F, typename T, int N> NNC_FN nnc_vec<T, N> nnc_column(nnc_vec<T, N> x, T *part)\n"
"{\n"
"#pragma unroll\n"
"    for (int e = 0; e < N; e++)\n"
"        part[e * G * 32 + threadIdx.x] = x[e];\n"
"    __syncthreads();\n"
"#pragma unroll\n"
"    for (int e = 0; e < N; e++) {\n"
"        x[e] = part[e * G * 32 + threadIdx.x % 32];\n"
"#pragma unroll\n"
"        for (int g = 1; g < G; g++)\n"
"            x[e] = F()(x[e], part[e * G * 32 + g * 32 + threadIdx.x % 32]);\n"
"    }\n"
"    return x;\n"
"}\n$end$"},
{"nnc_column_arg",
"template <int G, typename F, typename T, typename I>\n"
"NNC_FN void nnc_column_arg(T &best, I &at, T *part, I *place)\n"
"{\n"
"    part[threadIdx.x] = best;\n"
"    place[threadIdx.x] = at;\n"
"    __syncthreads();\n"
"    best = part[threadIdx.x % 32];\n"
"    at = place[threadIdx.x % 32];\n"
"#pragma unroll\n"
"    for (int g = 1; g < G; g++)\n"
"        F()(best, at, part[g * 32 + threadIdx.x % 32], place[g * 32 + threadIdx.x % 32]);\n"
"}\n"},
{"nnc_warp_arg",
"template <int G, typename F, typename T, typename I> NNC_FN void nnc_warp_arg(T &best, I &at)\n"
"{\n"
"#pragma unroll\n"
"    for (int o = G / 2; o > 0; o /= 2) {\n"
"        const T x = nnc_other(best, o);\n"
"        const I i = nnc_other(at, o);\n"
"        F()(best, at, x, i);\n"
"    }\n"
"}\n"},
{"nnc_block_arg",
"template <int G, typename F, typename T, typename I>\n"
"NNC_FN void nnc_block_arg(T &best, I &at, T *part, I *place)\n"
"{\n"
"    const int first = threadIdx.x / G * (G / 32);\n"
"    nnc_warp_arg<32, F>(best, at);\n"
"    if (threadIdx.x % 32 == 0) {\n"
"        part[threadIdx.x / 32] = best;\n"
"        place[threadIdx.x / 32] = at;\n"
"    }\n"
"    __syncthreads();\n"
"    best = part[first];\n"
"    at = place[first];\n"
"#pragma unroll\n"
"    for (int w = 1; w < G / 32; w++)\n"
"        F()(best, at, part[first + w], place[first + w]);\n"
"}\n"},
/* ---- functions ---- */
{"nnc_poly",
"/* c0 + x (c1 + x (...)) */\n"
"template <typename T> NNC_FN T nnc_poly(T, T c) { return c; }\n"
"template <typename T, typename... C> NNC_FN T nnc_poly(T x, T c, C... rest)\n"
"{\n"
"    if constexpr (sizeof(T) == 8)\n"
"        return fma(nnc_poly(x, rest...), x, c);\n"
"    else\n"
"        return fmaf(nnc_poly(x, rest...), x, c);\n"
"}\n"},
{"nnc_exp_reduce",
"/* x = n ln2 + r, |r| <= ln2/2; t = n + 1.5 * 2^23 holds n in its low bits. */\n"
"NNC_FN float nnc_exp_reduce(float x, float &t)\n"
"{\n"
"    t = fmaf(x, 1.44269504f, 12582912.0f);\n"
"    const float n = t - 12582912.0f;\n"
"    return fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e43p-1f, x));\n"
"}\n"},
{"nnc_exp2_of",
"/* 2^(n + off) from that t; n + off must be the exponent of a normal number. */\n"
"NNC_FN float nnc_exp2_of(float t, int off)\n"
"{\n"
"    return __uint_as_float((__float_as_uint(t) << 23) + ((unsigned)(127 + off) << 23));\n"
"}\n"},
{"nnc_scale",
"/* p 2^n in two steps: a subnormal result rounds once. */\n"
"NNC_FN float nnc_scale(float p, float t)\n"
"{\n"
"    const int n = (int)(__float_as_uint(t) - 0x4b400000u), h = n >> 1;\n"
"    return p * __uint_as_float((unsigned)(h + 127) << 23) *\n"
"           __uint_as_float((unsigned)(n - h + 127) << 23);\n"
"}\n"},
{"nnc_exp_normal",
"/* -87 <= x <= 88, or NaN */\n"
"NNC_FN float nnc_exp_normal(float x)\n"
"{\n"
"    float t;\n"
"    const float r = nnc_exp_reduce(x, t);\n"
"    return (fmaf(r * r, nnc_poly(r, $EXP$), r) + 1.0f) * nnc_exp2_of(t, 0);\n"
"}\n"},
{"nnc_exp",
"NNC_FN float nnc_exp(float x)\n"
"{\n"
"    float t;\n"
"    x = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;\n"
"    const float r = nnc_exp_reduce(x, t);\n"
"    return nnc_scale(fmaf(r * r, nnc_poly(r, $EXP$), r) + 1.0f, t);\n"
"}\n"
"$if double$NNC_FN double nnc_exp(double x) { return exp(x); }\n$end$"},
{"nnc_exp2",
"NNC_FN float nnc_exp2(float x)\n"
"{\n"
"    x = x > 129.0f ? 129.0f : x < -151.0f ? -151.0f : x;\n"
"    const float t = x + 12582912.0f, r = x - (t - 12582912.0f);\n"
"    return nnc_scale(fmaf(r, nnc_poly(r, $EXP2$), 1.0f), t);\n"
"}\n"
"$if double$NNC_FN double nnc_exp2(double x) { return exp2(x); }\n$end$"},
{"nnc_expm1",
"NNC_FN float nnc_expm1(float x)\n"
"{\n"
"    float t;\n"
"    const float r = nnc_exp_reduce(x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x, t);\n"
"    const float s = nnc_exp2_of(t, -1); /* 2^(n-1): 2^128 is no f32 */\n"
"    const float y = fmaf(fmaf(r * r, nnc_poly(r, $EXPM1$), r), s, s - 0.5f);\n"
"    return fabsf(x) < 0x1p-25f ? x : y + y;\n"
"}\n"
"$if double$NNC_FN double nnc_expm1(double x) { return expm1(x); }\n$end$"},
{"nnc_split",
"/* x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2), of a normal x > 0 */\n"
"NNC_FN float nnc_split(float x, float &f)\n"
"{\n"
"    const unsigned w = __float_as_uint(x);\n"
"    const int e = (int)(w - 0x3f3504f3u) >> 23;\n"
"    f = __uint_as_float(w - ((unsigned)e << 23)) - 1.0f;\n"
"    return (float)e;\n"
"}\n"},
{"nnc_split_any",
"/* The same of any x > 0. */\n"
"NNC_FN float nnc_split_any(float x, float &f)\n"
"{\n"
"    const bool tiny = x < 0x1p-126f;\n"
"    const float e = nnc_split(tiny ? x * 0x1p23f : x, f);\n"
"    return tiny ? e - 23.0f : e;\n"
"}\n"},
{"nnc_log_of",
"NNC_FN float nnc_log_of(float e, float f)\n"
"{\n"
"    const float s = f * f;\n"
"    const float t = fmaf(f * s, nnc_poly(f, $LOG$), s * -0.5f);\n"
"    return fmaf(e, 0x1.62e43p-1f, f + fmaf(e, -0x1.05c610p-29f, t));\n"
"}\n"},
{"nnc_log_ends",
"/* NaN below 0, -inf at 0, infinity and NaN as they are. */\n"
"template <typename T> NNC_FN T nnc_log_ends(T x, T y)\n"
"{\n"
"    y = x == (T)nnc_inf() ? x : y;\n"
"    return x > (T)0 ? y : x == (T)0 ? (T)-nnc_inf() : (T)nnc_nan();\n"
"}\n"},
{"nnc_log_normal",
"/* 2^-126 <= x < infinity */\n"
"NNC_FN float nnc_log_normal(float x)\n"
"{\n"
"    float f;\n"
"    const float e = nnc_split(x, f);\n"
"    return nnc_log_of(e, f);\n"
"}\n"},
{"nnc_log",
"NNC_FN float nnc_log(float x)\n"
"{\n"
"    float f;\n"
"    const float e = nnc_split_any(x, f);\n"
"    return nnc_log_ends(x, nnc_log_of(e, f));\n"
"}\n"
"$if double$NNC_FN double nnc_log(double x) { return log(x); }\n$end$"},
{"nnc_log2",
"NNC_FN float nnc_log2(float x)\n"
"{\n"
"    float f;\n"
"    const float e = nnc_split_any(x, f);\n"
"    const float t = fmaf(f * f, nnc_poly(f, $LOG2$), f * 0x1.4ae0cp-26f);\n"
"    return nnc_log_ends(x, e + fmaf(f, 0x1.715476p0f, t));\n"
"}\n"
"$if double$NNC_FN double nnc_log2(double x) { return log2(x); }\n$end$"},
{"nnc_log1p",
"/* In f64, where 1 + x is exact enough. */\n"
"NNC_FN float nnc_log1p(float x32)\n"
"{\n"
"    const double x = x32, z = 1.0 + x;\n"
"    if (fabs(x) < 0x1p-10)\n"
"        return x32 == 0.0f ? x32 : (float)fma(x * x, fma(x, 1.0 / 3, -0.5), x);\n"
"    const long long w = __double_as_longlong(z), e = (w - 0x3fe6a09e667f3bcdll) >> 52;\n"
"    const double f = __longlong_as_double(w - (long long)((unsigned long long)e << 52)) - 1.0;\n"
"    const double s = f * f, t = fma(f * s, nnc_poly(f, $LOG:d$), s * -0.5);\n"
"    const double y = fma((double)e, 0x1.62e43p-1, f + fma((double)e, -0x1.05c610ca86c39p-29, t));\n"
"    return (float)nnc_log_ends(z, y);\n"
"}\n"
"$if double$NNC_FN double nnc_log1p(double x) { return log1p(x); }\n$end$"},
{"nnc_two_over_pi",
"/* 2/pi in overlapping 32-bit words, eight bits further each. */\n"
"static __device__ const unsigned nnc_two_over_pi[24] = {0xa2, 0xa2f9, 0xa2f983, 0xa2f9836e,\n"
"    0xf9836e4e, 0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1,\n"
"    0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599,\n"
"    0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041};\n"},
{"nnc_turns",
"/* |x| 2/pi modulo 4 as a 64-bit fraction (2^62 is pi/2), from the bits of |x| >= 120: Payne and Hanek. */\n"
"static __device__ __noinline__ unsigned long long nnc_turns(unsigned m)\n"
"{\n"
"    const unsigned *w = nnc_two_over_pi + (m >> 26 & 15u);\n"
"    const unsigned long long f = ((m & 0xffffffu) | 0x800000u) << (m >> 23 & 7u);\n"
"    return (f * w[0] << 32 | f * w[8] >> 32) + f * w[4];\n"
"}\n"},
{"nnc_far",
"/* Far x (|x| > 105615, inf, NaN): sin x = sin r, cos x = sin r (quarter 63), or tan x = tan r, and -1 / tan r\n"
" * when odd (quarter 62). */\n"
"NNC_FN double nnc_far(float x, bool cosine, int quarter, bool &odd)\n"
"{\n"
"    const unsigned m = __float_as_uint(x) & 0x7fffffffu;\n"
"    const unsigned long long y = nnc_turns(m) + (cosine ? 1ull << 62 : 0ull);\n"
"    const unsigned long long n = (y + (1ull << (quarter - 1))) >> quarter;\n"
"    const double r = (double)(long long)(y - (n << quarter)) * 0x1.921fb54442d18p-62;\n"
"    const bool minus = x < 0.0f;\n"
"    odd = n & 1;\n"
"    if (m >= 0x7f800000u)\n"
"        return (double)nnc_nan();\n"
"    return (quarter == 62 ? minus : cosine ? odd : minus != odd) ? -r : r;\n"
"}\n"},
{"nnc_sin_short",
"/* |x| <= 0.842 */\n"
"NNC_FN float nnc_sin_short(float x)\n"
"{\n"
"    const float z = x * x;\n"
"    return fmaf(z * x, nnc_poly(z, $SIN_SHORT$), x);\n"
"}\n"},
{"nnc_sin_half",
"/* |x| <= pi/2 */\n"
"NNC_FN float nnc_sin_half(float x)\n"
"{\n"
"    const float z = x * x;\n"
"    return fmaf(z * x, nnc_poly(z, $SIN$), x);\n"
"}\n"},
{"nnc_cos_half",
"NNC_FN float nnc_cos_half(float x)\n"
"{\n"
"    return nnc_sin_half(0x1.921fb6p0f - fabsf(x) - 0x1.777a5cp-25f);\n"
"}\n"},
{"nnc_sin_reduce",
"/* |x| <= 105615: sin x = sin r; x is n pi + r, pi in three parts. */\n"
"NNC_FN float nnc_sin_reduce(float x)\n"
"{\n"
"    const float t = fmaf(x, 0x1.45f306p-2f, 12582912.0f), n = t - 12582912.0f;\n"
"    float r = fmaf(n, -0x1.921fb6p1f, x);\n"
"    r = fmaf(n, 0x1.ee59dap-49f, fmaf(n, 0x1.777a5cp-24f, r));\n"
"    return __uint_as_float(__float_as_uint(r) ^ __float_as_uint(t) << 31);\n"
"}\n"},
{"nnc_cos_reduce",
"/* The same of x = (n - 1/2) pi + r. */\n"
"NNC_FN float nnc_cos_reduce(float x)\n"
"{\n"
"    const float t = fmaf(x, 0x1.45f306p-2f, 0.5f) + 12582912.0f, n = t - 12582912.0f - 0.5f;\n"
"    float r = fmaf(n, -0x1.921fb6p1f, x);\n"
"    r = fmaf(n, 0x1.ee59dap-49f, fmaf(n, 0x1.777a5cp-24f, r));\n"
"    return __uint_as_float(__float_as_uint(r) ^ __float_as_uint(t) << 31);\n"
"}\n"},
{"nnc_sin_near", "NNC_FN float nnc_sin_near(float x) { return nnc_sin_half(nnc_sin_reduce(x)); }\n"},
{"nnc_cos_near", "NNC_FN float nnc_cos_near(float x) { return nnc_sin_half(nnc_cos_reduce(x)); }\n"},
{"nnc_sin",
"NNC_FN float nnc_sin(float x)\n"
"{\n"
"    bool odd;\n"
"    return nnc_sin_half(fabsf(x) <= 105615.0f ? nnc_sin_reduce(x) : (float)nnc_far(x, false, 63, odd));\n"
"}\n"
"$if double$NNC_FN double nnc_sin(double x) { return sin(x); }\n$end$"},
{"nnc_cos",
"NNC_FN float nnc_cos(float x)\n"
"{\n"
"    bool odd;\n"
"    return nnc_sin_half(fabsf(x) <= 105615.0f ? nnc_cos_reduce(x) : (float)nnc_far(x, true, 63, odd));\n"
"}\n"
"$if double$NNC_FN double nnc_cos(double x) { return cos(x); }\n$end$"},
{"nnc_tan",
"/* In f64: x = n pi/2 + r, tan x = tan r or -1 / tan r. */\n"
"NNC_FN float nnc_tan(float x32)\n"
"{\n"
"    const double x = x32, t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = t - 0x1.8p52;\n"
"    double r = fma(n, -0x1.0b4611a626331p-34, fma(n, -0x1.921fb544p0, x));\n"
"    bool odd = __double_as_longlong(t) & 1;\n"
"    if (!(fabs(x) <= 105615.0))\n"
"        r = nnc_far(x32, false, 62, odd);\n"
"    const double z = r * r, y = fma(z * r, nnc_poly(z, $TAN:d$), r);\n"
"    return (float)(odd ? -1.0 / y : y);\n"
"}\n"
"$if double$NNC_FN double nnc_tan(double x) { return tan(x); }\n$end$"},
{"nnc_asin_of",
"/* asin a of 0 <= a <= 1/2 for both: beyond, pi/2 - 2 asin sqrt((1-a)/2). */\n"
"NNC_FN double nnc_asin_of(double a, bool big)\n"
"{\n"
"    const double z = big ? (1.0 - a) * 0.5 : a * a, s = big ? sqrt(z) : a;\n"
"    return fma(s * z, nnc_poly(z, $ASIN:d$), s);\n"
"}\n"},
{"nnc_asin",
"NNC_FN float nnc_asin(float x)\n"
"{\n"
"    const double a = fabs((double)x), p = nnc_asin_of(a, a > 0.5);\n"
"    return (float)copysign(a > 0.5 ? 0x1.921fb54442d18p0 - (p + p) : p, (double)x);\n"
"}\n"
"$if double$NNC_FN double nnc_asin(double x) { return asin(x); }\n$end$"},
{"nnc_acos",
"NNC_FN float nnc_acos(float x)\n"
"{\n"
"    const double a = fabs((double)x), p = nnc_asin_of(a, a > 0.5);\n"
"    if (a > 0.5)\n"
"        return (float)(x < 0.0f ? 0x1.921fb54442d18p1 - (p + p) : p + p);\n"
"    return (float)(0x1.921fb54442d18p0 - copysign(p, (double)x));\n"
"}\n"
"$if double$NNC_FN double nnc_acos(double x) { return acos(x); }\n$end$"},
{"nnc_atan",
"NNC_FN float nnc_atan(float x)\n"
"{\n"
"    const float a = fabsf(x);\n"
"    const bool inv = a > 1.0f;\n"
"    const float t = inv ? 1.0f / a : a, z = t * t;\n"
"    const float p = fmaf(t * z, nnc_poly(z, $ATAN$), t);\n"
"    return copysignf(inv ? 0x1.921fb6p0f - p + -0x1.777a5cp-25f : p, x);\n"
"}\n"
"$if double$NNC_FN double nnc_atan(double x) { return atan(x); }\n$end$"},
{"nnc_exp2_wide",
"/* 2^n from n + 1.5 * 2^52 */\n"
"NNC_FN double nnc_exp2_wide(double t)\n"
"{\n"
"    return __longlong_as_double((long long)(((unsigned long long)__double_as_longlong(t) + 1023) << 52));\n"
"}\n"},
{"nnc_exp_wide",
"/* e^x in f64, to f32's accuracy, 0 <= x */\n"
"NNC_FN double nnc_exp_wide(double x)\n"
"{\n"
"    x = x > 100.0 ? 100.0 : x;\n"
"    const double t = x * 1.4426950408889634 + 0x1.8p52, n = t - 0x1.8p52;\n"
"    const double r = fma(n, 0x1.05c610ca86c39p-29, fma(n, -0x1.62e43p-1, x));\n"
"    const double p = fma(r * r, nnc_poly(r, $EXP:d$), r) + 1.0;\n"
"    return p * nnc_exp2_wide(t);\n"
"}\n"},
{"nnc_sinh",
"NNC_FN float nnc_sinh(float x32)\n"
"{\n"
"    const double x = x32, e = nnc_exp_wide(fabs(x)), z = x * x;\n"
"    if (fabs(x) < 1.0)\n"
"        return (float)fma(x * z, nnc_poly(z, $SINH:d$), x);\n"
"    return (float)copysign((e - 1.0 / e) * 0.5, x);\n"
"}\n"
"$if double$NNC_FN double nnc_sinh(double x) { return sinh(x); }\n$end$"},
{"nnc_cosh",
"NNC_FN float nnc_cosh(float x)\n"
"{\n"
"    const double e = nnc_exp_wide(fabs((double)x));\n"
"    return (float)((e + 1.0 / e) * 0.5);\n"
"}\n"
"$if double$NNC_FN double nnc_cosh(double x) { return cosh(x); }\n$end$"},
{"nnc_tanh_short",
"/* |x| <= 0.625 */\n"
"NNC_FN float nnc_tanh_short(float x)\n"
"{\n"
"    const float z = x * x;\n"
"    return fmaf(x * z, nnc_poly(z, $TANH$), x);\n"
"}\n"},
{"nnc_tanh",
"NNC_FN float nnc_tanh(float x)\n"
"{\n"
"    const float a = fabsf(x), b = a > 10.0f ? 10.0f : a;\n"
"    const float y = 1.0f - 2.0f / (nnc_exp_normal(b + b) + 1.0f);\n"
"    return a < 0.625f ? nnc_tanh_short(x) : copysignf(y, x);\n"
"}\n"
"$if double$NNC_FN double nnc_tanh(double x) { return tanh(x); }\n$end$"},
{"nnc_sigmoid",
"/* Both sides by e^-|x|, so that small results keep their accuracy. */\n"
"NNC_FN float nnc_sigmoid(float x)\n"
"{\n"
"    const float e = nnc_exp(-fabsf(x));\n"
"    return (x < 0.0f ? e : 1.0f) / (e + 1.0f);\n"
"}\n"
"NNC_FN double nnc_sigmoid(double x)\n"
"{\n"
"    const double e = exp(-fabs(x));\n"
"    return (x < 0.0 ? e : 1.0) / (e + 1.0);\n"
"}\n"},
{"nnc_erf",
"NNC_FN float nnc_erf(float x)\n"
"{\n"
"    const float a = fabsf(x);\n"
"    const float e = nnc_exp_normal(nnc_poly(a > 4.0f ? 4.0f : a, $ERFC$));\n"
"    return a < 0.927f ? x * nnc_poly(x * x, $ERF$) : copysignf(1.0f - e, x);\n"
"}\n"
"$if double$NNC_FN double nnc_erf(double x) { return erf(x); }\n$end$"},
{"nnc_rsqrt",
"NNC_FN float nnc_rsqrt(float x) { return 1.0f / sqrtf(x); }\n"
"$if double$NNC_FN double nnc_rsqrt(double x) { return 1.0 / sqrt(x); }\n$end$"},
{"nnc_isinf",
"NNC_FN bool nnc_isinf(float x) { return fabsf(x) == nnc_inf(); }\n"
"NNC_FN bool nnc_isinf(double x) { return fabs(x) == (double)nnc_inf(); }\n"},
{"nnc_pow",
"/* |x|^y = 2^(y log2 |x|) in f64, then C's special cases. */\n"
"NNC_FN float nnc_pow(float x, float y32)\n"
"{\n"
"    const double a = fabs((double)x), y = y32, inf = (double)nnc_inf();\n"
"    const long long w = __double_as_longlong(a), e = (w - 0x3fe6a09e667f3bcdll) >> 52;\n"
"    const double f = __longlong_as_double(w - (long long)((unsigned long long)e << 52)) - 1.0;\n"
"    const double s = f / (f + 2.0);\n"
"    double l = fma(s, nnc_poly(s * s, $POWLOG2:d$), (double)e);\n"
"    l = a == 0.0 ? -inf : a < inf ? l : a;\n"
"    double t = y * l;\n"
"    if (x == 1.0f || y == 0.0 || (a == 1.0 && fabs(y) > 0.0)) /* 0 * infinity is NaN */\n"
"        t = 0.0;\n"
"    t = t > 200.0 ? 200.0 : t < -200.0 ? -200.0 : t;\n"
"    const double m = t + 0x1.8p52, r = t - (m - 0x1.8p52);\n"
"    double p = fma(r, nnc_poly(r, $EXP2D:d$), 1.0);\n"
"    p *= nnc_exp2_wide(m);\n"
"    const bool whole = rint(y) == y;\n"
"    if (whole && rint(y * 0.5) != y * 0.5)\n"
"        p = copysign(p, (double)x);\n"
"    if (x < 0.0f && a < inf && !whole && fabs(y) < inf)\n"
"        p = (double)nnc_nan();\n"
"    return (float)p;\n"
"}\n"
"$if double$NNC_FN double nnc_pow(double x, double y) { return pow(x, y); }\n$end$"},
};
/* clang-format on */

/* ---- printing ---- */

static bool is_word(char ch)
{
    return isalnum((unsigned char)ch) || ch == '_';
}

static bool names(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = text; (p = strstr(p, name)); p += n)
        if ((p == text || !is_word(p[-1])) && !is_word(p[n]))
            return true;
    return false;
}

static void put_coefs(nnc_text *t, const char *name, size_t n, bool wide)
{
    for (size_t i = 0; i < NNC_COUNT(tables); i++) {
        const coefs *c = &tables[i];
        if (strlen(c->name) != n || memcmp(c->name, name, n) != 0)
            continue;
        for (int j = 0; j < c->n; j++) {
            nnc_printf(t, wide ? "%s%.17g" : "%s%.9g", j ? ", " : "", c->c[j]);
            if (!wide)
                nnc_puts(t, "f");
        }
    }
}

/* A part with its $...$: coefficients ($EXP$ of f32, $EXP:d$ of f64), $if name$ text $end$ where
 * `used` (what is printed anyway) names name. */
static void put_part(nnc_text *t, const char *s, const char *used)
{
    while (*s) {
        const char *d = strchr(s, '$'), *end;
        if (!d) {
            nnc_puts(t, s);
            return;
        }
        nnc_putn(t, s, (size_t)(d - s));
        end = strchr(d + 1, '$');
        if (memcmp(d, "$if ", 4) == 0) {
            char name[32];
            snprintf(name, sizeof name, "%.*s", (int)(end - d - 4), d + 4);
            s = end + 1;
            if (!names(used, name))
                s = strstr(s, "$end$") + 5;
        } else {
            bool wide = end[-1] == 'd' && end[-2] == ':';
            if (memcmp(d, "$end$", 5) != 0)
                put_coefs(t, d + 1, (size_t)(end - d - 1) - (wide ? 2 : 0), wide);
            s = end + 1;
        }
    }
}

void cu_prelude(nnc_text *t, const char *text)
{
    bool use[NNC_COUNT(parts)] = {false};
    nnc_text used = {0}, one = {0};
    nnc_puts(&used, text);
    for (bool grew = true; grew;) { /* parts name parts on either side of them */
        grew = false;
        for (size_t i = 0; i < NNC_COUNT(parts); i++)
            if (!use[i] && names(nnc_text_str(&used), parts[i].name)) {
                use[i] = grew = true;
                nnc_text_clear(&one);
                put_part(&one, parts[i].text, text);
                nnc_puts(&used, nnc_text_str(&one));
            }
    }
    nnc_puts(t,
        "/* Written by nnc. Compile as C++17 without contraction: --std=c++17 --fmad=false. */\n"
        "#define NNC_FN __device__ __forceinline__\n\n");
    for (size_t i = 0; i < NNC_COUNT(parts); i++)
        if (use[i])
            put_part(t, parts[i].text, text);
    if (used.oom || one.oom)
        t->oom = true;
    nnc_text_deinit(&used);
    nnc_text_deinit(&one);
}

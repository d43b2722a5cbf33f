/* codegen/cuda_prelude.c -- CUDA C helpers that kernels call. A part is printed when the kernels or a later part use it.
 *
 * Math functions: cuda_formula.c. f16 and bf16 are converted by PTX on a GPU and by integer arithmetic elsewhere. */
#include "codegen/cuda.h"

#include <ctype.h>
#include <string.h>

/* clang-format off */
/* Extremes of 8-bit values by an instruction. The compiler would make extremes of 16 bits or unsigned ones, where ptxas spilled registers
 * of kernels with several results (pooling of u8). */
#define NARROW_EXTREME(name, type) \
"#ifdef __CUDA_ARCH__\n" \
"NNC_FN " type " nnc_" name "(" type " a, " type " b)\n" \
"{\n" \
"    int y;\n" \
"    asm(\"" name ".s32 %0, %1, %2;\" : \"=r\"(y) : \"r\"((int)a), \"r\"((int)b));\n" \
"    return (" type ")y;\n" \
"}\n" \
"#endif\n"
/* Parts that differ by a word: `op` compares values, a GPU instruction computes an approximation, `cpu` one of equal accuracy. */
#define EXTREME(name, op) {"nnc_" name, \
"/* NaN if either is. */\n" \
"template <typename T> NNC_FN T nnc_" name "(T a, T b) { return a " op " b || a != a ? a : b; }\n" \
"#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800\n" \
"NNC_FN float nnc_" name "(float a, float b)\n" \
"{\n" \
"    float y;\n" \
"    asm(\"" name ".NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n" \
"    return y;\n" \
"}\n" \
"#endif\n" \
"$if unsigned char$" NARROW_EXTREME(name, "unsigned char") "$end$" \
"$if signed char$" NARROW_EXTREME(name, "signed char") "$end$"}
#define ARG_TAKE(name, most, more, op) {"nnc_arg" name "_take", \
"/* The first of the " most "; a NaN is " more " than all. at < 0: none so far. */\n" \
"template <typename T, typename I> NNC_FN void nnc_arg" name "_take(T &best, I &at, T x, I i)\n" \
"{\n" \
"    if (at < 0 || (best == best && (x != x || x " op " best))) {\n" \
"        best = x;\n" \
"        at = i;\n" \
"    }\n" \
"}\n"}
#define COMBINE(name) {"nnc_combine_" name, \
"struct nnc_combine_" name " {\n" \
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_" name "(a, b); }\n" \
"};\n"}
#define COMBINE_SUM(name, op, word) {"nnc_combine_" name, \
"struct nnc_combine_" name " {\n" \
"    NNC_FN float operator()(float a, float b) const { return a " op " b; }\n" \
"    NNC_FN double operator()(double a, double b) const { return a " op " b; }\n" \
"    template <typename T> NNC_FN T operator()(T a, T b) const { return nnc_" word "(a, b); }\n" \
"};\n"}
#define COMBINE_ARG(name, op) {"nnc_combine_arg" name, \
"/* The smaller index wins ties. at < 0: none. */\n" \
"struct nnc_combine_arg" name " {\n" \
"    template <typename T, typename I> NNC_FN void operator()(T &best, I &at, T x, I i) const\n" \
"    {\n" \
"        const bool better = best == best && (x != x || x " op " best);\n" \
"        const bool worse = x == x && (best != best || best " op " x);\n" \
"        if (i >= 0 && (at < 0 || better || (!worse && i < at))) {\n" \
"            best = x;\n" \
"            at = i;\n" \
"        }\n" \
"    }\n" \
"};\n"}
#define APPROX(name, doc, ptx, cpu) {"nnc_" name, \
"/* " doc " */\n" \
"NNC_FN float nnc_" name "(float x)\n" \
"{\n" \
"#ifdef __CUDA_ARCH__\n" \
"    float y;\n" \
"    asm(\"" ptx ".f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n" \
"    return y;\n" \
"#else\n" \
"    return " cpu ";\n" \
"#endif\n" \
"}\n"}
static const struct part {
    const char *name, *text;
} parts[] = {
/* ---- memory ---- */
{"nnc_inf", "NNC_FN float nnc_inf() { return __uint_as_float(0x7f800000u); }\n"},
{"nnc_nan", "NNC_FN float nnc_nan() { return __uint_as_float(0x7fc00000u); }\n"},
{"nnc_vec",
"/* N values loaded or stored together. */\n"
"template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) nnc_vec {\n"
"    T v[N];\n"
"    NNC_FN T &operator[](int i) { return v[i]; }\n"
"    NNC_FN const T &operator[](int i) const { return v[i]; }\n"
"};\n"},
{"nnc_kept",
"/* N values, of which the last are in shared memory: the R-th at rest[0], the next S later. */\n"
"template <typename T, int R, int S> struct nnc_kept {\n"
"    T own[R];\n"
"    T *rest;\n"
"    NNC_FN T &operator[](int k) { return k < R ? own[k] : rest[(k - R) * S]; }\n"
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
"/* To f32, rounded to odd: a second rounding to fewer bits is then correct. */\n"
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
"/* Conversions between memory and compute types. */\n"
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
"/* N consecutive elements from an address aligned to their size (16 bytes at most). */\n"
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
{"nnc_words",
"/* The same as words, without conversion. */\n"
"template <int N, typename S> NNC_FN nnc_vec<unsigned, N * sizeof(S) / 4> nnc_words(const S *p)\n"
"{\n"
"    return *reinterpret_cast<const nnc_vec<unsigned, N * sizeof(S) / 4> *>(p);\n"
"}\n"},
{"nnc_widened",
"/* The elements of words as floats, which are in registers from here on: they are not converted again at each use. */\n"
"template <typename S, int W> NNC_FN auto nnc_widened(const nnc_vec<unsigned, W> &w)\n"
"{\n"
"    constexpr int N = W * 4 / sizeof(S);\n"
"    nnc_vec<float, N> x;\n"
"#pragma unroll\n"
"    for (int i = 0; i < N; i++) {\n"
"        if constexpr (nnc_same<S, float>)\n"
"            x[i] = __uint_as_float(w[i]);\n"
"$if nnc_f16$"
"        else if constexpr (nnc_same<S, nnc_f16>)\n"
"            x[i] = nnc_of_half((unsigned short)(w[i / 2] >> i % 2 * 16));\n"
"$end$$if nnc_bf16$"
"        else if constexpr (nnc_same<S, nnc_bf16>)\n"
"            x[i] = __uint_as_float(i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);\n"
"$end$"
"#ifdef __CUDA_ARCH__\n"
"        asm volatile(\"\" : \"+f\"(x[i]));\n"
"#endif\n"
"    }\n"
"    return x;\n"
"}\n"},
{"nnc_load_some",
"/* The first `left` elements, when fewer than N remain. */\n"
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
"    if constexpr (sizeof(s) % 4 == 0) { /* as words: stores of elements under conditions are not split from it */\n"
"        nnc_vec<unsigned, sizeof(s) / 4> w;\n"
"        memcpy(&w, &s, sizeof(s));\n"
"        *reinterpret_cast<nnc_vec<unsigned, sizeof(s) / 4> *>(p) = w;\n"
"    } else {\n"
"        *reinterpret_cast<nnc_vec<S, N> *>(p) = s;\n"
"    }\n"
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
"/* Clamps an index to 0 .. limit-1. */\n"
"template <typename T> NNC_FN long long nnc_clamp(T i, long long limit)\n"
"{\n"
"    if (i < 0)\n"
"        return 0;\n"
"    return (unsigned long long)i < (unsigned long long)limit ? (long long)i : limit - 1;\n"
"}\n"},
/* ---- integers ---- */
{"nnc_unsigned",
"/* Wrapping arithmetic is done in 64-bit unsigned integers. */\n"
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
"/* Rounds towards zero; x / 0 and x % 0 are 0. */\n"
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
"/* By squaring, wrapping; negative exponents give 0, except for 1 and -1. */\n"
"template <typename T> NNC_FN T nnc_ipow(T a, T n)\n"
"{\n"
"    if (n < (T)0 && a != (T)1 && a != (T)-1)\n"
"        return 0;\n"
"    unsigned long long y = 1, x = nnc_unsigned(a);\n"
"#pragma unroll 1\n"
"    for (unsigned long long m = nnc_unsigned(n), i = 8 * sizeof(T); i && m; i--, m >>= 1, x *= x)\n"
"        y = m & 1 ? y * x : y;\n"
"    return (T)y;\n"
"}\n"
"NNC_FN bool nnc_ipow(bool a, bool b) { return a | !b; }\n"},
{"nnc_shl",
"/* By at most the bits of T less 1, as an unsigned number; farther only the sign is left. */\n"
"template <typename T> NNC_FN T nnc_shl(T a, T b)\n"
"{\n"
"    return nnc_unsigned(b) < 8 * sizeof(T) ? (T)(nnc_unsigned(a) << nnc_unsigned(b)) : (T)0;\n"
"}\n"},
{"nnc_shr",
"template <typename T> NNC_FN T nnc_shr(T a, T b)\n"
"{\n"
"    return nnc_unsigned(b) < 8 * sizeof(T) ? (T)(a >> b) : a < (T)0 ? (T)-1 : (T)0;\n"
"}\n"},
{"nnc_neg",
"template <typename T> NNC_FN T nnc_neg(T x) { return (T)(0 - nnc_unsigned(x)); }\n"
"NNC_FN bool nnc_neg(bool x) { return x; }\n"},
{"nnc_abs",
"template <typename T> NNC_FN T nnc_abs(T x) { return x < (T)0 ? nnc_neg(x) : x; }\n"},
{"nnc_int",
"/* Rounds towards zero and wraps to T; NaN and values outside of 64 bits give 0. */\n"
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
EXTREME("max", ">"), EXTREME("min", "<"),
ARG_TAKE("max", "largest", "larger", ">"), ARG_TAKE("min", "smallest", "smaller", "<"),
/* ---- extents as arguments ---- */
{"nnc_size",
"/* An extent; for 0 <= x < 2^31, x / n is x * mul >> 32 >> shift. */\n"
"struct nnc_size {\n"
"    int n;\n"
"    unsigned mul;\n"
"    int shift;\n"
"    NNC_FN operator int() const { return n; }\n"
"};\n"
"NNC_FN unsigned operator/(unsigned x, const nnc_size &d) { return __umulhi(x, d.mul) >> d.shift; }\n"
"NNC_FN unsigned operator%(unsigned x, const nnc_size &d) { return x - x / d * d.n; }\n"
"NNC_FN int operator/(int x, const nnc_size &d) { return (int)((unsigned)x / d); }\n"
"NNC_FN int operator%(int x, const nnc_size &d) { return (int)((unsigned)x % d); }\n"},
{"nnc_power",
"/* An extent that is a power of two. */\n"
"struct nnc_power {\n"
"    int n, shift;\n"
"    NNC_FN operator int() const { return n; }\n"
"};\n"
"NNC_FN unsigned operator/(unsigned x, const nnc_power &d) { return x >> d.shift; }\n"
"NNC_FN unsigned operator%(unsigned x, const nnc_power &d) { return x & (d.n - 1); }\n"
"NNC_FN int operator/(int x, const nnc_power &d) { return (int)((unsigned)x / d); }\n"
"NNC_FN int operator%(int x, const nnc_power &d) { return (int)((unsigned)x % d); }\n"},
/* ---- groups of threads ---- */
{"NNC_DYNAMIC",
"#ifndef NNC_DYNAMIC\n"
"#define NNC_DYNAMIC(name) extern __shared__ __align__(16) char name[]\n"
"#endif\n"},
{"NNC_CLUSTER",
"#ifndef NNC_CLUSTER /* blocks that run at once, and wait for one another */\n"
"#define NNC_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)\n"
"#endif\n"},
{"NNC_CLUSTER_SYNC",
"#ifndef NNC_CLUSTER_SYNC /* what the blocks stored before it, all of them see after it */\n"
"#define NNC_CLUSTER_SYNC(blocks) asm volatile(\"barrier.cluster.arrive.release;\\n\\tbarrier.cluster.wait.acquire;\" ::: \"memory\")\n"
"#endif\n"},
/* ---- tensor cores: mma, ldmatrix and cp.async of the PTX ISA; on a CPU what NNC_TENSOR(name) names ---- */
{"nnc_shared_at",
"#ifdef __CUDA_ARCH__\n"
"NNC_FN unsigned nnc_shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }\n"
"#endif\n"},
{"nnc_copy16",
"/* 16 bytes to shared memory, or zeros; they are there after nnc_wait. nnc_commit ends a group of copies. */\n"
"template <typename S> NNC_FN void nnc_copy16(S *to, const S *from, bool in)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" ::\"r\"(nnc_shared_at(to)), \"l\"(from), \"r\"(in ? 16 : 0)\n"
"                 : \"memory\");\n"
"#else\n"
"    NNC_TENSOR(copy16)(to, from, in);\n"
"#endif\n"
"}\n"},
{"nnc_commit",
"NNC_FN void nnc_commit()\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n"
"#else\n"
"    NNC_TENSOR(commit)();\n"
"#endif\n"
"}\n"},
{"nnc_wait",
"/* Waits for the thread's groups of copies, but for the last N. */\n"
"template <int N> NNC_FN void nnc_wait()\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    asm volatile(\"cp.async.wait_group %0;\" ::\"n\"(N) : \"memory\");\n"
"#else\n"
"    NNC_TENSOR(wait)(N);\n"
"#endif\n"
"}\n"},
{"nnc_matrices",
"/* Four matrices of 8x8 elements of 16 bits. Lane l has the address of row l % 8 of matrix l / 8, and receives of each matrix elements\n"
" * 2 (l % 4) and the next of row l / 4. */\n"
"template <typename S> NNC_FN nnc_vec<unsigned, 4> nnc_matrices(const S *p)\n"
"{\n"
"    nnc_vec<unsigned, 4> x;\n"
"#ifdef __CUDA_ARCH__\n"
"    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
"                 : \"=r\"(x[0]), \"=r\"(x[1]), \"=r\"(x[2]), \"=r\"(x[3])\n"
"                 : \"r\"(nnc_shared_at(p)) : \"memory\");\n"
"#else\n"
"    NNC_TENSOR(matrices)(&x[0], p);\n"
"#endif\n"
"    return x;\n"
"}\n"},
{"nnc_mma",
"/* c += a b: 16 rows, 8 columns, 16 terms of type S. */\n"
"template <typename S> NNC_FN void nnc_mma(float (&c)[4], const nnc_vec<unsigned, 4> &a, unsigned b0, unsigned b1)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"#define NNC_MMA(type) \\\n"
"    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.\" type \".\" type \".f32 \" \\\n"
"                 \"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\" \\\n"
"                 : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) \\\n"
"                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1))\n"
"$if nnc_f16$"
"    if constexpr (nnc_same<S, nnc_f16>)\n"
"        NNC_MMA(\"f16\");\n"
"$end$$if nnc_bf16$"
"    if constexpr (nnc_same<S, nnc_bf16>)\n"
"        NNC_MMA(\"bf16\");\n"
"$end$"
"#else\n"
"    NNC_TENSOR(mma)(c, &a[0], b0, b1, [](unsigned h) { return nnc_get(S{(unsigned short)h}); });\n"
"#endif\n"
"}\n"},
COMBINE_SUM("sum", "+", "add"), COMBINE_SUM("prod", "*", "mul"), COMBINE("max"), COMBINE("min"),
COMBINE_ARG("max", ">"), COMBINE_ARG("min", "<"),
{"nnc_other",
"/* The value of the lane whose number differs by the bits of o. */\n"
"template <typename T> NNC_FN T nnc_other(T x, int o)\n"
"{\n"
"    if constexpr (sizeof(T) < 4)\n"
"        return (T)__shfl_xor_sync(0xffffffffu, (int)x, o);\n"
"    else\n"
"        return __shfl_xor_sync(0xffffffffu, x, o);\n"
"}\n"},
{"nnc_warp",
"/* Combines the values of G neighbouring lanes; all of them get the same bits. */\n"
"template <int G, typename F, typename T> NNC_FN T nnc_warp(T x)\n"
"{\n"
"#pragma unroll\n"
"    for (int o = G / 2; o > 0; o /= 2)\n"
"        x = F()(x, nnc_other(x, o));\n"
"    return x;\n"
"}\n"},
{"nnc_block",
"/* Combines the values of G threads (whole warps); part: one element per warp of the block. */\n"
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
{"nnc_block_all",
"/* Combines R values of each of G threads (whole warps) for the first of these threads; the others have no results. Lanes exchange\n"
" * halves of their values until each has one value of its warp: R shuffles instead of 5 R. part: R elements per warp of the block. */\n"
"template <int G, int R, typename F, typename T> NNC_FN void nnc_block_all(T (&x)[R], T *part)\n"
"{\n"
"    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = threadIdx.x / G * (G / 32);\n"
"#pragma unroll\n"
"    for (int n = R / 2, o = 16; n > 0; n /= 2, o /= 2) {\n"
"        const bool upper = lane & o;\n"
"#pragma unroll\n"
"        for (int i = 0; i < n; i++) {\n"
"            const T mine = upper ? x[i + n] : x[i], other = upper ? x[i] : x[i + n];\n"
"            x[i] = F()(mine, nnc_other(other, o));\n"
"        }\n"
"    }\n"
"    x[0] = nnc_warp<32 / R, F>(x[0]);\n"
"    if (lane % (32 / R) == 0)\n"
"        part[warp * R + lane / (32 / R)] = x[0];\n"
"    __syncthreads();\n"
"    if (warp == first) {\n"
"        x[0] = part[warp * R + lane % R];\n"
"#pragma unroll\n"
"        for (int w = 1; w < G / 32; w++)\n"
"            x[0] = F()(x[0], part[(warp + w) * R + lane % R]);\n"
"        __syncwarp();\n"
"        if (lane < R)\n"
"            part[warp * R + lane] = x[0];\n"
"        __syncwarp();\n"
"#pragma unroll\n"
"        for (int i = 0; i < R; i++)\n"
"            x[i] = part[warp * R + i];\n"
"    }\n"
"}\n"},
{"nnc_list",
"/* Lists the n of the block's threads with `hit`, in order; returns how many. list: an element per thread, then one per warp. */\n"
"template <int N> NNC_FN int nnc_list(bool hit, int n, int *list)\n"
"{\n"
"    const unsigned hits = __ballot_sync(0xffffffffu, hit);\n"
"    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
"    int at = __popc(hits & ((1u << lane) - 1)), all = 0;\n"
"    if (lane == 0)\n"
"        list[N + warp] = __popc(hits);\n"
"    __syncthreads();\n"
"#pragma unroll\n"
"    for (int w = 0; w < N / 32; w++) {\n"
"        at += w < warp ? list[N + w] : 0;\n"
"        all += list[N + w];\n"
"    }\n"
"    if (hit)\n"
"        list[at] = n;\n"
"    __syncthreads();\n"
"    return all;\n"
"}\n"},
{"nnc_column",
"/* Combines the values of a column of the block, G rows of 32; part: one element per thread and lane. Not ALL: for the first row,\n"
" * the others have no results. */\n"
"template <int G, typename F, bool ALL, typename T> NNC_FN T nnc_column(T x, T *part)\n"
"{\n"
"    part[threadIdx.x] = x;\n"
"    __syncthreads();\n"
"    if (!ALL && threadIdx.x >= 32)\n"
"        return x;\n"
"    x = part[threadIdx.x % 32];\n"
"#pragma unroll\n"
"    for (int g = 1; g < G; g++)\n"
"        x = F()(x, part[g * 32 + threadIdx.x % 32]);\n"
"    return x;\n"
"}\n"
"$if nnc_vec$/* The same of N values of each thread: one thread combines each of the block's 32 N columns. part: N elements per thread,\n"
" * in words of up to 16 bytes, those of neighbouring threads side by side. */\n"
"template <int G, typename F, bool ALL, typename T, int N> NNC_FN nnc_vec<T, N> nnc_column(nnc_vec<T, N> x, T *part)\n"
"{\n"
"    constexpr int most = 16 / (int)sizeof(T), V = N < most ? N : most;\n"
"    nnc_vec<T, V> *const word = reinterpret_cast<nnc_vec<T, V> *>(part);\n"
"#pragma unroll\n"
"    for (int h = 0; h < N / V; h++)\n"
"        memcpy(&word[h * G * 32 + threadIdx.x], &x[h * V], sizeof(*word));\n"
"    __syncthreads();\n"
"#pragma unroll\n"
"    for (int e = 0; e < N; e += G) {\n"
"        const int c = e * 32 + threadIdx.x;\n"
"        if (c < N * 32) {\n"
"            T *const from = part + c / (32 * V) * (G - 1) * 32 * V + c;\n"
"            T y = from[0];\n"
"#pragma unroll\n"
"            for (int g = 1; g < G; g++)\n"
"                y = F()(y, from[g * 32 * V]);\n"
"            from[0] = y;\n"
"        }\n"
"    }\n"
"    __syncthreads();\n"
"    if (ALL || threadIdx.x < 32)\n"
"#pragma unroll\n"
"        for (int h = 0; h < N / V; h++)\n"
"            memcpy(&x[h * V], &word[h * G * 32 + threadIdx.x % 32], sizeof(*word));\n"
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
/* ---- steps of formulas ---- */
{"NNC_APPROX",
"/* On a CPU, a value of the same accuracy: within `bits` of its last 23 bits. */\n"
"#ifndef NNC_APPROX\n"
"#define NNC_APPROX(y, bits) (float)(y)\n"
"#endif\n"},
APPROX("rcp", "1/x to 1 ulp, 2^-126 <= |x| <= 2^126; beyond, 0 or infinity", "rcp.approx.ftz",
    "NNC_APPROX(1.0 / (double)x, 1.0)"),
APPROX("ex2", "2^x to 2^-22; below 2^-126 it is 0", "ex2.approx.ftz",
    "x < -126.0f ? 0.0f : NNC_APPROX(exp2((double)x), 2.0)"),
APPROX("rsqrt_any", "1 / sqrt x to 2^-22", "rsqrt.approx", "NNC_APPROX(1.0 / sqrt((double)x), 2.0)"),
APPROX("rcp_any", "1/x to 1 ulp, for every x", "rcp.approx", "NNC_APPROX(1.0 / (double)x, 1.0)"),
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
{"nnc_two_over_pi",
"/* 2/pi in overlapping 32-bit words, each shifted by eight bits. */\n"
"static __device__ const unsigned nnc_two_over_pi[24] = {0xa2, 0xa2f9, 0xa2f983, 0xa2f9836e,\n"
"    0xf9836e4e, 0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1,\n"
"    0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599,\n"
"    0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041};\n"},
{"nnc_isinf",
"NNC_FN bool nnc_isinf(float x) { return fabsf(x) == nnc_inf(); }\n"
"NNC_FN bool nnc_isinf(double x) { return fabs(x) == (double)nnc_inf(); }\n"},
};
/* clang-format on */

/* ---- printing ---- */

static bool is_word(char ch)
{
    return isalnum((unsigned char)ch) || ch == '_';
}

bool cu_names(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = text; (p = strstr(p, name)); p += n)
        if ((p == text || !is_word(p[-1])) && !is_word(p[n]))
            return true;
    return false;
}

/* Prints a part; text in $if name$ ... $end$ only if `used` (the text printed anyway) contains the name. */
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
        s = end + 1;
        if (memcmp(d, "$if ", 4) == 0) {
            char name[32];
            snprintf(name, sizeof name, "%.*s", (int)(end - d - 4), d + 4);
            if (!cu_names(used, name))
                s = strstr(s, "$end$") + 5;
        }
    }
}

void cu_prelude(nnc_text *t, const char *text)
{
    bool use[NNC_COUNT(parts)] = {false};
    NNC_LOCAL(nnc_text) used = {0}, one = {0};
    nnc_puts(&used, text);
    for (bool grew = true; grew;) { /* parts may use parts before and after them */
        grew = false;
        for (size_t i = 0; i < NNC_COUNT(parts); i++)
            if (!use[i] && cu_names(nnc_text_str(&used), parts[i].name)) {
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
}

/* codegen/cuda_math.c -- functions of floats as CUDA C: parts of the prelude (cuda_prelude.c).
 *
 * Those of f32 are the functions of plugins/llvm/math.c and trig.c: the same formulas over the same coefficients, with the same
 * bounds (docs/math.md). Quotients whose divisor is known to be near 1 go by an estimate of the reciprocal that is put right. */
#include "codegen/cuda.h"

/* clang-format off */
const cu_part cu_math_parts[] = {
/* ---- what the special function unit gives ---- */
{"NNC_APPROX",
"/* Elsewhere a value as good as that: off by at most `bits` of its last 23. */\n"
"#ifndef NNC_APPROX\n"
"#define NNC_APPROX(y, bits) (float)(y)\n"
"#endif\n"},
{"nnc_rcp",
"/* 1/x to 1 ulp, 2^-126 <= |x| <= 2^126; beyond, 0 or infinity */\n"
"NNC_FN float nnc_rcp(float x)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    float y;\n"
"    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
"    return y;\n"
"#else\n"
"    return NNC_APPROX(1.0 / (double)x, 1.0);\n"
"#endif\n"
"}\n"},
{"nnc_ex2",
"/* 2^x to 2^-22; below 2^-126 it is 0 */\n"
"NNC_FN float nnc_ex2(float x)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    float y;\n"
"    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
"    return y;\n"
"#else\n"
"    return x < -126.0f ? 0.0f : NNC_APPROX(exp2((double)x), 2.0);\n"
"#endif\n"
"}\n"},
{"nnc_fast_rsqrt",
"/* 1 / sqrt x to 2^-22 */\n"
"NNC_FN float nnc_fast_rsqrt(float x)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    float y;\n"
"    asm(\"rsqrt.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
"    return y;\n"
"#else\n"
"    return NNC_APPROX(1.0 / sqrt((double)x), 2.0);\n"
"#endif\n"
"}\n"},
{"nnc_fast_recip",
"/* 1/x of any x to 1 ulp */\n"
"NNC_FN float nnc_fast_recip(float x)\n"
"{\n"
"#ifdef __CUDA_ARCH__\n"
"    float y;\n"
"    asm(\"rcp.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
"    return y;\n"
"#else\n"
"    return NNC_APPROX(1.0 / (double)x, 1.0);\n"
"#endif\n"
"}\n"},
{"nnc_quotient",
"/* a / b to 1 ulp, 2^-126 <= |b| <= 2^126, |a / b| < 2^126: what a division does without asking for the rest. */\n"
"NNC_FN float nnc_quotient(float a, float b)\n"
"{\n"
"    const float r = nnc_rcp(b), q = a * r;\n"
"    return fmaf(fmaf(-b, q, a), r, q);\n"
"}\n"},
{"nnc_recip_near",
"NNC_FN float nnc_recip_near(float b)\n"
"{\n"
"    const float r = nnc_rcp(b);\n"
"    return fmaf(fmaf(-b, r, 1.0f), r, r);\n"
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
"    const unsigned long long w = (unsigned long long)__double_as_longlong(z);\n"
"    const long long e = (long long)(w - 0x3fe6a09e667f3bcdull) >> 52;\n"
"    const double f = __longlong_as_double((long long)(w - ((unsigned long long)e << 52))) - 1.0;\n"
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
"    const float y = 1.0f - nnc_quotient(2.0f, nnc_exp_normal(b + b) + 1.0f);\n"
"    return a < 0.625f ? nnc_tanh_short(x) : copysignf(y, x);\n"
"}\n"
"$if double$NNC_FN double nnc_tanh(double x) { return tanh(x); }\n$end$"},
{"nnc_sigmoid",
"/* Both sides by e^-|x|, so that small results keep their accuracy. */\n"
"NNC_FN float nnc_sigmoid(float x)\n"
"{\n"
"    const float e = nnc_exp(-fabsf(x));\n"
"    return nnc_quotient(x < 0.0f ? e : 1.0f, e + 1.0f);\n"
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
{"nnc_erf1",
"NNC_FN float nnc_erf1(float x) { return (float)erfc(-(double)x); }\n"
"$if double$NNC_FN double nnc_erf1(double x) { return erfc(-x); }\n$end$"},
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
"    const unsigned long long w = (unsigned long long)__double_as_longlong(a);\n"
"    const long long e = (long long)(w - 0x3fe6a09e667f3bcdull) >> 52;\n"
"    const double f = __longlong_as_double((long long)(w - ((unsigned long long)e << 52))) - 1.0;\n"
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

const int cu_n_math_part = (int)NNC_COUNT(cu_math_parts);

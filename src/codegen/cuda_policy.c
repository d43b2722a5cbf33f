/* codegen/cuda_policy.c -- the forms of functions that --math=fast and --math=exact take (docs/math.md): parts of the prelude. */
#include "codegen/cuda.h"

/* clang-format off */
const cu_part cu_policy_parts[] = {
/* ---- --math=fast: within 2^-15 of the value ---- */
{"nnc_fast_exp",
"NNC_FN float nnc_fast_exp(float x) { return nnc_ex2(x * 1.44269504f); }\n"},
{"nnc_fast_exp2",
"NNC_FN float nnc_fast_exp2(float x) { return nnc_ex2(x); }\n"},
{"nnc_fast_sigmoid",
"NNC_FN float nnc_fast_sigmoid(float x) { return nnc_rcp(nnc_ex2(x * -1.44269504f) + 1.0f); }\n"},
{"nnc_fast_tanh",
"NNC_FN float nnc_fast_tanh(float x)\n"
"{\n"
"    const float z = x * x, near = fmaf(x * z, nnc_poly(z, $FAST_TANH$), x);\n"
"    const float far = fmaf(nnc_rcp(nnc_ex2(x * 2.88539008f) + 1.0f), -2.0f, 1.0f);\n"
"    return fabsf(x) < 0.4f ? near : far;\n"
"}\n"},
{"nnc_fast_erf",
"NNC_FN float nnc_fast_erf(float x)\n"
"{\n"
"    const float a = fabsf(x), b = a > 4.0f ? 4.0f : a, near = x * nnc_poly(x * x, $FAST_ERF$);\n"
"    return a < 0.5f ? near : copysignf(1.0f - nnc_ex2(b * nnc_poly(b, $FAST_ERFC$)), x);\n"
"}\n"},
{"nnc_fast_erf1",
"/* 1 + erf x = erfc(-x): e^(-x^2) is taken apart, so that small results keep their digits. ex2 flushes subnormal numbers:\n"
" * 2^32 keeps it from them. */\n"
"NNC_FN float nnc_fast_erf1(float x)\n"
"{\n"
"    const float t = nnc_rcp(fmaf(fabsf(x), 0.43f, 1.0f));\n"
"    const float y = nnc_ex2(fmaf(x * x, -1.44269504f, 32.0f)) * (t * nnc_poly(t, $FAST_ERFC_TAIL$));\n"
"    return x < 0.0f ? y : 2.0f - y;\n"
"}\n"},
{"nnc_fast_sin_short",
"/* |x| <= 1 */\n"
"NNC_FN float nnc_fast_sin_short(float x)\n"
"{\n"
"    const float z = x * x;\n"
"    return fmaf(z * x, nnc_poly(z, $FAST_SIN_SHORT$), x);\n"
"}\n"},
{"nnc_fast_sin_half",
"/* |x| <= pi/2 */\n"
"NNC_FN float nnc_fast_sin_half(float x)\n"
"{\n"
"    const float z = x * x;\n"
"    return fmaf(z * x, nnc_poly(z, $FAST_SIN$), x);\n"
"}\n"},
{"nnc_fast_cos_half",
"NNC_FN float nnc_fast_cos_half(float x)\n"
"{\n"
"    return nnc_fast_sin_half(0x1.921fb6p0f - fabsf(x) - 0x1.777a5cp-25f);\n"
"}\n"},
{"nnc_fast_sin_near",
"NNC_FN float nnc_fast_sin_near(float x) { return nnc_fast_sin_half(nnc_sin_reduce(x)); }\n"},
{"nnc_fast_sin",
"NNC_FN float nnc_fast_sin(float x)\n"
"{\n"
"    bool odd;\n"
"    return nnc_fast_sin_half(\n"
"        fabsf(x) <= 105615.0f ? nnc_sin_reduce(x) : (float)nnc_far(x, false, 63, odd));\n"
"}\n"},
{"nnc_fast_cos_near",
"NNC_FN float nnc_fast_cos_near(float x) { return nnc_fast_sin_half(nnc_cos_reduce(x)); }\n"},
{"nnc_fast_cos",
"NNC_FN float nnc_fast_cos(float x)\n"
"{\n"
"    bool odd;\n"
"    return nnc_fast_sin_half(\n"
"        fabsf(x) <= 105615.0f ? nnc_cos_reduce(x) : (float)nnc_far(x, true, 63, odd));\n"
"}\n"},
/* ---- --math=exact: in f64, rounded once ---- */
{"nnc_exact_reduce",
"/* x = n ln2 + r; t = n + 1.5 * 2^52. */\n"
"NNC_FN double nnc_exact_reduce(double x, double &t)\n"
"{\n"
"    t = fma(x, 1.4426950408889634, 0x1.8p52);\n"
"    const double n = t - 0x1.8p52;\n"
"    return fma(n, 0x1.05c610ca86c39p-29, fma(n, -0x1.62e43p-1, x));\n"
"}\n"},
{"nnc_exact_exp_of",
"/* -110 <= x <= 100, or NaN */\n"
"NNC_FN double nnc_exact_exp_of(double x)\n"
"{\n"
"    double t;\n"
"    const double r = nnc_exact_reduce(x, t);\n"
"    return (fma(r * r, nnc_poly(r, $EXP:d$), r) + 1.0) * nnc_exp2_wide(t);\n"
"}\n"},
{"nnc_exact_clamp",
"NNC_FN double nnc_exact_clamp(double x, double lo, double hi) { return x > hi ? hi : x < lo ? lo : x; }\n"},
{"nnc_exact_exp",
"NNC_FN float nnc_exact_exp(float x) { return (float)nnc_exact_exp_of(nnc_exact_clamp(x, -104.0, 100.0)); }\n"},
{"nnc_exact_exp2",
"NNC_FN float nnc_exact_exp2(float x32)\n"
"{\n"
"    const double x = nnc_exact_clamp(x32, -151.0, 129.0), t = x + 0x1.8p52, r = x - (t - 0x1.8p52);\n"
"    return (float)(fma(r, nnc_poly(r, $EXP2:d$), 1.0) * nnc_exp2_wide(t));\n"
"}\n"},
{"nnc_exact_expm1",
"NNC_FN float nnc_exact_expm1(float x)\n"
"{\n"
"    double t;\n"
"    const double r = nnc_exact_reduce(nnc_exact_clamp(x, -18.0, 89.0), t), s = nnc_exp2_wide(t);\n"
"    const double y = fma(fma(r * r, nnc_poly(r, $EXPM1:d$), r), s, s - 1.0);\n"
"    return fabsf(x) < 0x1p-25f ? x : (float)y;\n"
"}\n"},
{"nnc_exact_split",
"/* x = 2^e (1 + f) of x > 0 */\n"
"NNC_FN double nnc_exact_split(double x, double &f)\n"
"{\n"
"    const unsigned long long w = (unsigned long long)__double_as_longlong(x);\n"
"    const long long e = (long long)(w - 0x3fe6a09e667f3bcdull) >> 52;\n"
"    f = __longlong_as_double((long long)(w - ((unsigned long long)e << 52))) - 1.0;\n"
"    return (double)e;\n"
"}\n"},
{"nnc_exact_log",
"NNC_FN float nnc_exact_log(float x)\n"
"{\n"
"    double f;\n"
"    const double e = nnc_exact_split(x, f), s = f * f, t = fma(f * s, nnc_poly(f, $LOG:d$), s * -0.5);\n"
"    return (float)nnc_log_ends((double)x, fma(e, 0x1.62e43p-1, f + fma(e, -0x1.05c610ca86c39p-29, t)));\n"
"}\n"},
{"nnc_exact_log2",
"NNC_FN float nnc_exact_log2(float x)\n"
"{\n"
"    double f;\n"
"    const double e = nnc_exact_split(x, f), t = fma(f * f, nnc_poly(f, $LOG2:d$), f * 0x1.4ae0cp-26);\n"
"    return (float)nnc_log_ends((double)x, e + fma(f, 0x1.715476p0, t));\n"
"}\n"},
{"nnc_exact_sin_of",
"/* sin r, |r| <= pi/2 */\n"
"NNC_FN float nnc_exact_sin_of(double r)\n"
"{\n"
"    const double z = r * r;\n"
"    return (float)fma(z * r, nnc_poly(z, $SIN:d$), r);\n"
"}\n"},
{"nnc_exact_sin",
"NNC_FN float nnc_exact_sin(float x32)\n"
"{\n"
"    const double x = x32, t = fma(x, 0x1.45f306dc9c883p-2, 0.0) + 0x1.8p52, n = t - 0x1.8p52 - 0.0;\n"
"    double r = fma(n, -0x1.1a62633145c07p-53, fma(n, -0x1.921fb54442d18p1, x));\n"
"    bool odd = __double_as_longlong(t) & 1;\n"
"    if (!(fabs(x) <= 105615.0))\n"
"        return nnc_exact_sin_of(nnc_far(x32, false, 63, odd));\n"
"    return nnc_exact_sin_of(odd ? -r : r);\n"
"}\n"},
{"nnc_exact_cos",
"NNC_FN float nnc_exact_cos(float x32)\n"
"{\n"
"    const double x = x32, t = fma(x, 0x1.45f306dc9c883p-2, 0.5) + 0x1.8p52, n = t - 0x1.8p52 - 0.5;\n"
"    double r = fma(n, -0x1.1a62633145c07p-53, fma(n, -0x1.921fb54442d18p1, x));\n"
"    bool odd = __double_as_longlong(t) & 1;\n"
"    if (!(fabs(x) <= 105615.0))\n"
"        return nnc_exact_sin_of(nnc_far(x32, true, 63, odd));\n"
"    return nnc_exact_sin_of(odd ? -r : r);\n"
"}\n"},
{"nnc_exact_sin_half", "NNC_FN float nnc_exact_sin_half(float x) { return nnc_exact_sin_of((double)x); }\n"},
{"nnc_exact_cos_half",
"NNC_FN float nnc_exact_cos_half(float x) { return nnc_exact_sin_of(0x1.921fb54442d18p0 - fabs((double)x)); }\n"},
{"nnc_exact_atan",
"NNC_FN float nnc_exact_atan(float x)\n"
"{\n"
"    const double a = fabs((double)x);\n"
"    const bool inv = a > 1.0;\n"
"    const double t = inv ? 1.0 / a : a, z = t * t, p = fma(t * z, nnc_poly(z, $ATAN:d$), t);\n"
"    return (float)copysign(inv ? 0x1.921fb54442d18p0 - p : p, (double)x);\n"
"}\n"},
{"nnc_exact_tanh",
"NNC_FN float nnc_exact_tanh(float x)\n"
"{\n"
"    const double a = fabs((double)x), b = a > 10.0 ? 10.0 : a, z = (double)x * x;\n"
"    const double y = 1.0 - 2.0 / (nnc_exact_exp_of(b + b) + 1.0);\n"
"    return (float)(a < 0.625 ? fma(x * z, nnc_poly(z, $TANH:d$), (double)x) : copysign(y, (double)x));\n"
"}\n"},
{"nnc_exact_sigmoid",
"NNC_FN float nnc_exact_sigmoid(float x)\n"
"{\n"
"    const double e = nnc_exact_exp_of(nnc_exact_clamp(-fabs((double)x), -104.0, 0.0));\n"
"    return (float)((x < 0.0f ? e : 1.0) / (e + 1.0));\n"
"}\n"},
{"nnc_exact_erf",
"NNC_FN float nnc_exact_erf(float x32)\n"
"{\n"
"    const double x = x32, a = fabs(x), e = nnc_exact_exp_of(nnc_poly(a > 4.0 ? 4.0 : a, $ERFC:d$));\n"
"    return (float)(a < 0.927 ? x * nnc_poly(x * x, $ERF:d$) : copysign(1.0 - e, x));\n"
"}\n"},
{"nnc_exact_rsqrt",
"NNC_FN float nnc_exact_rsqrt(float x) { return (float)(1.0 / sqrt((double)x)); }\n"},
};
/* clang-format on */

const int cu_n_policy_part = (int)NNC_COUNT(cu_policy_parts);

/* math/poly_math.c -- scalar functions in double, bit-identical on all machines.
 *
 * Value ranges and polynomial coefficients are part of a kernel's text and so of its hash; libm's last bit differs between versions
 * and processors. Only +, -, *, / and sqrt are used, which IEEE 754 defines exactly, in an order that the compiler may not change (the
 * build sets -ffp-contract=off). Relative errors are a few 2^-53, except near zeros other than at 0. */
#include "math/poly.h"

#include <math.h>

static const double LN2_HI = 0x1.62e42fee00000p-1, LN2_LO = 0x1.a39ef35793c76p-33;
static const double LN2 = 0x1.62e42fefa39efp-1, PI_2 = 0x1.921fb54442d18p0;

/* 1/n!, 1/(2n+1)! and 1/(2n)! with signs, 1/(2n+1) */
static const double EXP[] = {0x1p+0, 0x1p-1, 0x1.5555555555555p-3, 0x1.5555555555555p-5,
    0x1.1111111111111p-7, 0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-16,
    0x1.71de3a556c734p-19, 0x1.27e4fb7789f5cp-22, 0x1.ae64567f544e4p-26, 0x1.1eed8eff8d898p-29,
    0x1.6124613a86d09p-33, 0x1.93974a8c07c9dp-37};
static const double SIN[] = {0x1p+0, -0x1.5555555555555p-3, 0x1.1111111111111p-7,
    -0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33,
    -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49, -0x1.2f49b46814157p-57};
static const double COS[] = {0x1p+0, -0x1p-1, 0x1.5555555555555p-5, -0x1.6c16c16c16c17p-10,
    0x1.a01a01a01a01ap-16, -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29, -0x1.93974a8c07c9dp-37,
    0x1.ae7f3e733b81fp-45, -0x1.6827863b97d97p-53};
static const double ODD[] = {0x1p+0, 0x1.5555555555555p-2, 0x1.999999999999ap-3,
    0x1.2492492492492p-3, 0x1.c71c71c71c71cp-4, 0x1.745d1745d1746p-4, 0x1.3b13b13b13b14p-4,
    0x1.1111111111111p-4, 0x1.e1e1e1e1e1e1ep-5, 0x1.af286bca1af28p-5, 0x1.8618618618618p-5,
    0x1.642c8590b2164p-5, 0x1.47ae147ae147bp-5, 0x1.2f684bda12f68p-5};

static double series(const double *c, int n, double x)
{
    double p = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        p = p * x + c[i];
    return p;
}
#define SERIES(c, x) series((c), (int)NNC_COUNT(c), (x))

/* e^x - 1 for |x| <= 0.35 */
static double expm1_near(double x)
{
    return SERIES(EXP, x) * x;
}

static double exp_(double x)
{
    if (x != x)
        return x;
    if (x > 1000)
        return INFINITY;
    if (x < -1000)
        return 0;
    double n = nearbyint(x / LN2);
    return ldexp(1 + expm1_near((x - n * LN2_HI) - n * LN2_LO), (int)n);
}

static double exp2_(double x)
{
    if (!(fabs(x) < 1100))
        return x != x ? x : x > 0 ? INFINITY : 0;
    double n = nearbyint(x);
    return ldexp(1 + expm1_near((x - n) * LN2), (int)n);
}

static double expm1_(double x)
{
    return fabs(x) < 0.35 ? expm1_near(x) : exp_(x) - 1;
}

/* 2 atanh s, |s| <= 0.21 */
static double atanh2(double s)
{
    return 2 * s * SERIES(ODD, s * s);
}

static double log_(double x)
{
    if (!(x > 0 && x < INFINITY))
        return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    return e * LN2_HI + (atanh2((m - 1) / (m + 1)) + e * LN2_LO);
}

static double log1p_(double x)
{
    return fabs(x) < 0.4 ? atanh2(x / (2 + x)) : log_(1 + x);
}

/* sin and cos by Taylor series around multiples of pi/2. NaN beyond 2^20, where the reduction would lose digits. */
static double sin_cos(double x, int quarter)
{
    if (!(fabs(x) <= 0x1p20))
        return NAN;
    double n = nearbyint(x / PI_2);
    double r = x - n * 0x1.921fb544p0; /* 33 bits: exact */
    r -= n * 0x1.0b4611a626331p-34;
    int q = ((int)n + quarter) & 3;
    double y = q & 1 ? SERIES(COS, r * r) : r * SERIES(SIN, r * r);
    return q & 2 ? -y : y;
}

static double atan_(double x)
{
    double a = fabs(x), t = a > 1 ? 1 / a : a;
    t = t / (1 + sqrt(1 + t * t));
    t = t / (1 + sqrt(1 + t * t));
    double p = 4 * t * SERIES(ODD, -(t * t));
    return copysign(a > 1 ? PI_2 - p : p, x);
}

static double asin_(double x)
{
    if (!(fabs(x) < 1))
        return fabs(x) == 1 ? copysign(PI_2, x) : NAN;
    return atan_(x / sqrt((1 - x) * (1 + x)));
}

static double acos_(double x)
{
    if (!(fabs(x) <= 1))
        return NAN;
    return x == -1 ? 2 * PI_2 : 2 * atan_(sqrt((1 - x) / (1 + x)));
}

static double sinh_(double x)
{
    double e = expm1_(fabs(x));
    return copysign(e < INFINITY ? (e + e / (e + 1)) / 2 : e, x);
}

static double tanh_(double x)
{
    double e = expm1_(2 * fmin(fabs(x), 30));
    return x != x ? x : copysign(e / (e + 2), x);
}

static double sigmoid_(double x)
{
    double e = exp_(-fabs(x));
    return x != x ? x : (x < 0 ? e : 1) / (1 + e);
}

/* 2/sqrt(pi) e^(-x^2) sum (2 x^2)^n x / (1 3 5 .. (2n+1)): all terms have one sign. */
static double erf_(double x)
{
    if (!(fabs(x) < 6))
        return x != x ? x : copysign(1, x);
    double t = x, s = x;
    for (int n = 1; n < 200 && fabs(t) > fabs(s) * 0x1p-58; n++) {
        t *= 2 * x * x / (2 * n + 1);
        s += t;
    }
    return 0x1.20dd750429b6dp0 * exp_(-x * x) * s;
}

/* Positive bases; others follow C only where ranges need it: 0 and infinity. */
static double pow_(double a, double b)
{
    if (b == 0 || a == 1)
        return 1;
    if (a == 0 || a == INFINITY)
        return (a == 0) == (b > 0) ? 0 : INFINITY;
    return exp_(b * log_(a));
}

/* Functions of scalar.def: those above, and those that IEEE 754 defines exactly. */
#define log2_(a) (log_(a) / LN2)
#define sin_(a) sin_cos(a, 0)
#define cos_(a) sin_cos(a, 1)
#define tan_(a) (sin_cos(a, 0) / sin_cos(a, 1))
#define cosh_(a) ((exp_(a) + exp_(-(a))) / 2)
#define erfc_(a) (1 - erf_(a))
#define fma_(a, b, c) ((a) * (b) + (c))
#define fabs_ fabs
#define floor_ floor
#define ceil_ ceil
#define rint_ rint
#define trunc_ trunc
#define sqrt_ sqrt
#define fmod_ fmod

double nnc_steady_f64(nnc_sop op, double a, double b, double c)
{
    switch (op) {
/* clang-format off */
#define F(function) function##_
#define SC(name, arity, res, flags, lo, hi, cost, ulp, value, cuda, deriv, doc) \
    case SC_##name: return value;
#include "ir/scalar.def" /* the formatter would join it to the macro */
        /* clang-format on */
    default: return NAN;
    }
}

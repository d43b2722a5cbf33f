/* tests/cudac/math.c -- accuracy of every function of f32 as CUDA C, against libm in f64. Covers bit patterns of all exponents, all special
 * values, and the neighbourhoods of the places where a method changes. The bounds are those of the CPU's code (docs/math.md), and the
 * results are the CPU's to the bit. Only those of the special function unit differ, which the shim makes as inaccurate as they may be. */
#include "ct.h"
#include "math/formula.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 65536, STEP = 20011, FAST = 256 };

/* Large numbers are multiplied by it: unlike others' its results below 2^-126 may not become 0. */
static double erf1_d(double x)
{
    return erfc(-x);
}

static double sigmoid_d(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double rsqrt_d(double x)
{
    return 1 / sqrt(x);
}

static double recip_d(double x)
{
    return 1 / x;
}

static const struct fn {
    const char *op;
    double (*ref)(double);
    double bound; /* ulp */
    double lo, hi; /* of the argument, when lo < hi: the variants for known ranges */
    const char *form; /* --math: exact, fast */
} fns[] = {
    {"exp", exp, 1.1, 0, 0},
    {"exp2", exp2, 1.1, 0, 0},
    {"expm1", expm1, 1.6, 0, 0},
    {"log", log, 1.1, 0, 0},
    {"log2", log2, 1.5, 0, 0},
    {"log1p", log1p, 0.7, 0, 0},
    {"sin", sin, 2.5, 0, 0},
    {"cos", cos, 2.5, 0, 0},
    {"tan", tan, 0.7, 0, 0},
    {"asin", asin, 0.6, 0, 0},
    {"acos", acos, 0.6, 0, 0},
    {"atan", atan, 1.9, 0, 0},
    {"sinh", sinh, 0.7, 0, 0},
    {"cosh", cosh, 0.7, 0, 0},
    {"tanh", tanh, 1.6, 0, 0},
    {"sigmoid", sigmoid_d, 2.5, 0, 0},
    {"erf", erf, 2.5, 0, 0},
    {"erf1", erf1_d, 0.6, 0, 0},
    {"sqrt", sqrt, 0.5, 0, 0},
    {"rsqrt", rsqrt_d, 1.5, 0, 0},
    {"exp", exp, 1.1, -87, 88},
    {"log", log, 1.1, 0x1p-126, 1e30},
    {"sin", sin, 2.5, -0.84, 0.84},
    {"sin", sin, 2.5, -1.57, 1.57},
    {"sin", sin, 2.5, -105615, 105615},
    {"cos", cos, 2.5, -1.57, 1.57},
    {"cos", cos, 2.5, -105615, 105615},
    {"tanh", tanh, 1.6, -0.625, 0.625},
    {"recip", recip_d, 1, 0x1p-125, 0x1p125},
    {"recip", recip_d, 1, -100, -0.5},
    {"exp", exp, 0.6, 0, 0, "exact"},
    {"exp2", exp2, 0.6, 0, 0, "exact"},
    {"expm1", expm1, 0.6, 0, 0, "exact"},
    {"log", log, 0.6, 0, 0, "exact"},
    {"log2", log2, 0.6, 0, 0, "exact"},
    {"sin", sin, 0.7, 0, 0, "exact"},
    {"cos", cos, 0.7, 0, 0, "exact"},
    {"sin", sin, 0.7, -1.57, 1.57, "exact"},
    {"cos", cos, 0.7, -1.57, 1.57, "exact"},
    {"atan", atan, 0.8, 0, 0, "exact"},
    {"tanh", tanh, 0.6, 0, 0, "exact"},
    {"sigmoid", sigmoid_d, 0.6, 0, 0, "exact"},
    {"erf", erf, 0.6, 0, 0, "exact"},
    {"rsqrt", rsqrt_d, 0.502, 0, 0, "exact"},
    {"exp", exp, FAST, 0, 0, "fast"},
    {"exp2", exp2, FAST, 0, 0, "fast"},
    {"sin", sin, FAST, 0, 0, "fast"},
    {"sin", sin, FAST, -105615, 105615, "fast"},
    {"sin", sin, FAST, -1.57, 1.57, "fast"},
    {"sin", sin, FAST, -1, 1, "fast"},
    {"cos", cos, FAST, 0, 0, "fast"},
    {"cos", cos, FAST, -105615, 105615, "fast"},
    {"cos", cos, FAST, -1.57, 1.57, "fast"},
    {"tanh", tanh, FAST, 0, 0, "fast"},
    {"sigmoid", sigmoid_d, FAST, 0, 0, "fast"},
    {"erf", erf, FAST, 0, 0, "fast"},
    {"erf1", erf1_d, FAST, 0, 0, "fast"},
    {"rsqrt", rsqrt_d, FAST, 0, 0, "fast"},
    {"recip", recip_d, FAST, 0, 0, "fast"},
    {"recip", recip_d, FAST, 0.5, 4096, "fast"},
};

/* Error of y in ulps of f32 at the true value r; a huge number for NaN against a number and the
 * like. */
static double ulps(float y, double r)
{
    if (isnan(r) || isnan(y))
        return isnan(r) && isnan(y) ? 0 : 1e30;
    if (isinf(r) || r == 0)
        return y == (float)r ? 0 : r == 0 ? fabs(y) * 0x1p149 : 1e30;
    int e;
    frexp(r, &e);
    double ulp = e - 24 < -149 ? 0x1p-149 : ldexp(1, e - 24), v = y;
    if (isinf(y))
        v = copysign(0x1p128, y);
    if (fabs(r) >= 0x1p128) /* beyond every f32: infinity is right */
        return isinf(y) && (y > 0) == (r > 0) ? 0 : 1e30;
    return fabs(v - r) / ulp;
}

/* Special values and +-8 neighbours of where methods change, both signs; then every STEP-th bit pattern. */
static int sample(float *x, int max)
{
    static const float at[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-25f, 0x1p-10f, 0x1p-12f, 0.5f, 0.625f,
        0.7071068f, 0.842f, 0.9270f, 0.93f, 1, 1.4142135f, 1.5707964f, 3.1415927f, 4, 9.01f, 9.4f,
        10, 10.5f, 17.33f, 18, 87.33f, 88, 88.72f, 89, 103.97f, 104, 126, 127, 128, 149, 150, 151,
        105615, 65536, 0x1p22f, 0x1p23f, 0x1p24f, 1e10f, 0x1p100f, 3.4028235e38f, INFINITY};
    int n = 0;
    for (size_t i = 0; i < NNC_COUNT(at); i++)
        for (int d = -8; d <= 8; d++)
            for (uint32_t s = 0; s < 2; s++) {
                uint32_t u;
                memcpy(&u, &at[i], 4);
                u = (u + (uint32_t)d) ^ s << 31;
                memcpy(&x[n++], &u, 4);
            }
    for (uint64_t u = test_seed % STEP; u < UINT64_C(1) << 32 && n < max; u += STEP) {
        uint32_t w = (uint32_t)u;
        memcpy(&x[n++], &w, 4);
    }
    return n;
}

static const nnc_kernel *parse(ct_set *s, const struct fn *f, int number)
{
    char text[700], range[80] = "";
    nnc_scan scan;
    if (f->lo < f->hi)
        snprintf(range, sizeof range, "range(%.17g, %.17g) hint(nonan)", f->lo, f->hi);
    snprintf(text, sizeof text,
        "kernel k_%s_%d { axis i0 outer %d buf x0 in f32 %d buf y0 out f32 %d\n"
        "schedule cuda point along i0 threads 256 vec 4 blocks 64\n"
        "stage { %%0 = load f32 x0[i0] %.*s %%1 = %s f32 %%0 hint(%s %s) %%2 = store f32 y0[i0] "
        "%%1 } }",
        f->op, number, BLOCK, BLOCK, BLOCK, (int)(strcspn(range, "h")), range, f->op,
        *range ? "nonan" : "", f->form ? f->form : "");
    nnc_scan_init(&scan, "k", text, strlen(text));
    const nnc_kernel *k = nnc_schedule_parse(&scan, &s->arena, test_sink);
    if (!k) {
        test_fail(__FILE__, __LINE__, "%s", text);
        nnc_sink_print(test_sink, stderr);
    }
    return k;
}

/* The formula that a CPU with fused multiply-add takes. False: a GPU's asks its special function unit, so the results may differ. */
static bool equals_cpu(const nnc_kernel *k, nnc_formula *f)
{
    const nnc_kins *in = &k->ins[1];
    if (!nnc_has_formula((nnc_sop)in->sop, DT_f32))
        return false;
    nnc_fkey key = nnc_formula_key(k, in);
    nnc_formula_make(f, key, (nnc_machine){.fma = true, .gpu = true});
    for (int i = 0; i < f->n; i++)
        if (f->step[i].op >= FO_ex2 && f->step[i].op <= FO_rsqrt)
            return false;
    nnc_formula_make(f, key, (nnc_machine){.fma = true});
    return true;
}

static void check(ct_set *s, int i, const struct fn *f, const float *x, int n)
{
    nnc_formula cpu;
    static float want[BLOCK];
    const bool equal = equals_cpu(s->k[i], &cpu);
    void *base[2], *arg[2] = {ct_guarded(4 * BLOCK, &base[0]), ct_guarded(4 * BLOCK, &base[1])};
    double worst = 0, at = 0;
    for (int b = 0; b < n; b += BLOCK) {
        for (int j = 0; j < BLOCK; j++) {
            float v = x[b + j < n ? b + j : 0];
            ((float *)arg[0])[j] = f->lo < f->hi && !(v >= f->lo && v <= f->hi) ? (float)f->hi : v;
        }
        const char *bad = ct_call(s, i, arg);
        if (bad)
            test_fail(__FILE__, __LINE__, "%s: %s", f->op, bad);
        if (equal)
            nnc_formula_run(&cpu, BLOCK, arg[0], NULL, want);
        for (int j = 0; j < BLOCK && equal; j++) {
            const float got = ((float *)arg[1])[j];
            if (memcmp(&got, &want[j], 4) == 0 || (isnan(got) && isnan(want[j])))
                continue;
            test_fail(__FILE__, __LINE__, "%s %s at %a: %a by CUDA C, %a on a CPU", f->op,
                f->form ? f->form : "", (double)((float *)arg[0])[j], (double)got, (double)want[j]);
            break;
        }
        for (int j = 0; j < BLOCK; j++) {
            double r = f->ref(((float *)arg[0])[j]), y = ((float *)arg[1])[j];
            bool tiny = f->form && *f->form == 'f' && f->ref != erf1_d && f->ref != sigmoid_d &&
                        fabs(y - r) <= 0x1p-126;
            double e = tiny ? 0 : ulps((float)y, r);
            if (f->form && *f->form == 'f' && f->ref == sigmoid_d &&
                r < 0x1p-126) /* silu multiplies it by up to 2^7 */
                e = fabs(y - r) <= r * 0x1p-16 + 0x1p-149 ? 0 : FAST + 1;
            if (!(e <= worst)) {
                worst = e;
                at = ((float *)arg[0])[j];
            }
        }
    }
    if (getenv("NNC_VERBOSE"))
        fprintf(stderr, "%-8s %s %g..%g: %.3f ulp at %a\n", f->op, f->form ? f->form : "", f->lo,
            f->hi, worst, at);
    if (!(worst <= f->bound))
        test_fail(__FILE__, __LINE__, "%s %s is off by %g ulp at %a (%.9g), bound %g", f->op,
            f->form ? f->form : "", worst, at, at, f->bound);
    ct_unguard(base[0], 4 * BLOCK);
    ct_unguard(base[1], 4 * BLOCK);
}

TEST(math_f32)
{
    enum { MAX = 4 * BLOCK };
    ct_set s = {.open = true};
    float *x = nnc_malloc(sizeof *x * MAX);
    int n = sample(x, MAX);
    nnc_arena_init(&s.arena, 0);
    for (size_t i = 0; i < NNC_COUNT(fns); i++) {
        const nnc_kernel *k = parse(&s, &fns[i], (int)i);
        if (k)
            ct_add(&s, k);
    }
    CHECK_INT(s.n, NNC_COUNT(fns));
    if (s.n == (int)NNC_COUNT(fns) && ct_build(&s, NULL))
        for (int i = 0; i < s.n; i++)
            check(&s, i, &fns[i], x, n);
    ct_set_deinit(&s);
    nnc_free(x);
}

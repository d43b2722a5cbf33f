/* tests/llvm/math.c -- accuracy of every function of f32, against libm in f64: all special
 * values, neighbourhoods of the places where the method changes, and every 1009th bit pattern.
 * NNC_EXHAUSTIVE=1 (or a function's name) goes through all 2^32 arguments and prints the largest
 * error; docs/math.md holds the table. */
#include "kb.h"
#include "math/formula.h"

#include <math.h>
#include <stdlib.h>

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
    nnc_sop op;
    double (*ref)(double);
    double bound, exact; /* ulp: the default, --math=exact */
} fns[] = {
    {SC_exp, exp, 1.1, 0.6},
    {SC_exp2, exp2, 1.1, 0.6},
    {SC_expm1, expm1, 1.6, 0.6},
    {SC_log, log, 1.1, 0.6},
    {SC_log2, log2, 1.5, 0.6},
    {SC_log1p, log1p, 0.7, 0.6},
    {SC_sin, sin, 2.5, 0.7},
    {SC_cos, cos, 2.5, 0.7},
    {SC_tan, tan, 0.7, 0.6},
    {SC_asin, asin, 0.6, 0.6},
    {SC_acos, acos, 0.6, 0.6},
    {SC_atan, atan, 1.9, 0.8},
    {SC_sinh, sinh, 0.7, 0.6},
    {SC_cosh, cosh, 0.7, 0.6},
    {SC_tanh, tanh, 1.6, 0.6},
    {SC_sigmoid, sigmoid_d, 2.5, 0.6},
    {SC_erf, erf, 2.5, 0.6},
    {SC_erf1, erf1_d, 0.6, 0.6},
    {SC_sqrt, sqrt, 0.5, 0.5},
    {SC_rsqrt, rsqrt_d, 1.5, 0.502},
    {SC_recip, recip_d, 0.5, 0.5},
};

#define BLOCK 65536

/* --math=fast: results below 2^-126 may be zero (not those of erf1 and sigmoid, which large numbers are multiplied by), all else is a
 * matter of FAST ulp. */
enum { FAST = 256 };

/* What the instruction says of itself, and of its operand. */
struct form {
    const char *name;
    uint8_t hint;
    float lo, hi;
};
static const struct form plain = {"", 0, 0, 0};

static kb b; /* the kernel of the latest compile */

/* y = op(x) over BLOCK elements. */
static bool compile(nnc_sop op, const struct form *o, const nnc_target *t, kb_code *c)
{
    kb_init(&b, "k_math");
    int a = kb_axis(&b, KA_outer, BLOCK);
    int x = kb_buf(&b, KB_in, DT_f32, BLOCK), y = kb_buf(&b, KB_out, DT_f32, BLOCK);
    kb_stage(&b, 0);
    int v = kb_load(&b, x, (nnc_affine){.k = {1}}), r = kb_op(&b, op, DT_f32, v, -1, -1);
    b.ins[r].hint = o->hint;
    if (o->lo < o->hi) {
        b.ins[v].lo = o->lo;
        b.ins[v].hi = o->hi;
    }
    kb_store(&b, y, (nnc_affine){.k = {1}}, r);
    kb_done(&b, a, 32, 0);
    return kb_compile(&b, t, c);
}

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

typedef struct worst {
    double ulp;
    float at;
} worst;

/* x comes into the range, where there is one. */
static void run_block(
    const kb_code *c, const struct form *o, double (*ref)(double), float *x, int n, worst *w)
{
    static float y[BLOCK];
    void *args[2] = {x, y};
    for (int i = 0; i < n && o->lo < o->hi; i++)
        if (!(x[i] >= o->lo && x[i] <= o->hi))
            x[i] = x[i] > o->hi ? o->hi : o->lo;
    c->fn(args, 0, 1, NULL);
    for (int i = 0; i < n; i++) {
        double r = ref(x[i]);
        bool tiny =
            o->hint & KH_fast && ref != erf1_d && ref != sigmoid_d && fabs(y[i] - r) <= 0x1p-126;
        double e = tiny ? 0 : ulps(y[i], r);
        if (o->hint & KH_fast && ref == sigmoid_d &&
            r < 0x1p-126) /* silu multiplies it by up to 2^7 */
            e = fabs(y[i] - r) <= r * 0x1p-16 + 0x1p-149 ? 0 : FAST + 1;
        if (!(e <= w->ulp)) {
            w->ulp = e;
            w->at = x[i];
        }
    }
}

static double bound_of(const struct fn *f, uint8_t hint)
{
    return hint & KH_exact ? f->exact : hint & KH_fast ? FAST : f->bound;
}

/* Every step-th bit pattern from `first` on. */
static void sweep(const kb_code *c, const struct form *o, double (*ref)(double), uint64_t first,
    uint64_t step, worst *w)
{
    static float x[BLOCK];
    for (uint64_t at = first; at < UINT64_C(1) << 32;) {
        int n = 0;
        for (; n < BLOCK && at < UINT64_C(1) << 32; n++, at += step) {
            uint32_t u = (uint32_t)at;
            memcpy(&x[n], &u, 4);
        }
        run_block(c, o, ref, x, n, w);
    }
}

/* Special values and +-40 neighbours of where methods change, both signs. */
static void places(const kb_code *c, const struct form *o, double (*ref)(double), worst *w)
{
    static const float at[] = {0, 0x1p-149f, 0x1p-126f, 0x1p-25f, 0x1p-10f, 0x1p-12f, 0.5f, 0.625f,
        0.7071068f, 0.842f, 0.9270f, 0.93f, 1, 1.4142135f, 1.5707964f, 3.1415927f, 4, 9.01f, 9.4f,
        10, 10.5f, 17.33f, 18, 87.33f, 88, 88.72f, 89, 103.97f, 104, 126, 127, 128, 149, 150, 151,
        105615, 65536, 0x1p22f, 0x1p23f, 0x1p24f, 1e10f, 0x1p100f, 3.4028235e38f, INFINITY};
    static float x[BLOCK];
    int n = 0;
    for (size_t i = 0; i < NNC_COUNT(at); i++)
        for (int d = -40; d <= 40; d++)
            for (uint32_t s = 0; s < 2; s++) {
                uint32_t u;
                memcpy(&u, &at[i], 4);
                u = (u + (uint32_t)d) ^ s << 31;
                memcpy(&x[n++], &u, 4);
            }
    run_block(c, o, ref, x, n, w);
}

static void check_one(
    const struct fn *f, const struct form *o, const nnc_target *t, uint64_t step, const char *set)
{
    kb_code c;
    worst w = {0, 0};
    double bound = bound_of(f, o->hint);
    if (!compile(f->op, o, t, &c))
        return;
    places(&c, o, f->ref, &w);
    sweep(&c, o, f->ref, test_seed % step, step, &w);
    if (step == 1 || getenv("NNC_VERBOSE"))
        fprintf(stderr, "%-8s %s%s %.3f ulp at %a\n", nnc_sops[f->op].name, set, o->name, w.ulp,
            (double)w.at);
    if (!(w.ulp <= bound))
        test_fail(__FILE__, __LINE__, "%s (%s%s) is off by %g ulp at %a (%.9g), bound %g",
            nnc_sops[f->op].name, set, o->name, w.ulp, (double)w.at, (double)w.at, bound);
    kb_free(&c);
}

static void check_all(const nnc_target *t, uint64_t step, const char *set, const char *only)
{
    for (size_t i = 0; i < NNC_COUNT(fns); i++)
        if (!only || strcmp(only, nnc_sops[fns[i].op].name) == 0)
            check_one(&fns[i], &plain, t, step, set);
}

TEST(math_f32)
{
    const char *all = getenv("NNC_EXHAUSTIVE");
    if (kb_emitter())
        check_all(kb_host(),
            all                ? 1
            : test_takes(0, 8) ? 1009
                               : 5003,
            "fma", all && strcmp(all, "1") ? all : NULL);
}

TEST(math_f32_without_fma)
{
    const char *all = getenv("NNC_EXHAUSTIVE");
    nnc_target t = *kb_host();
    t.fma = false;
    if (kb_emitter())
        check_all(&t, all ? 1 : 10007, "no fma", all && strcmp(all, "1") ? all : NULL);
}

TEST(math_f32_plain_x86_64)
{
    const nnc_target t = kb_plain();
    if (kb_emitter())
        check_all(&t, 100003, "x86-64", NULL);
}

/* The short forms where the exponential has no instruction of AVX-512 at its end. */
TEST(math_f32_fast_with_avx2)
{
    nnc_target t = *kb_host();
    if (nnc_target_core(t.core)) {
        test_skip("no AVX2");
        return;
    }
    t.cpu = "haswell";
    t.features = "";
    t.vector_bits = 256;
    t.avx512_bf16 = false;
    for (size_t i = 0; kb_emitter() && t.fma && i < NNC_COUNT(fns); i++)
        check_one(&fns[i], &(struct form){" fast", KH_fast, 0, 0}, &t, 20011, "avx2");
}

/* --math=exact and fast, with what ranges say of operands. */
TEST(math_f32_by_policy)
{
    static const struct {
        nnc_sop op;
        float lo, hi;
    } known[] = {{SC_exp, -80, 80}, {SC_exp, -200, 0}, {SC_exp, 0, 200}, {SC_tanh, -0.4f, 0.4f},
        {SC_sin, -1, 1}, {SC_sin, -1.5f, 1.5f}, {SC_sin, -60000, 60000}, {SC_cos, -1.5f, 1.5f},
        {SC_sigmoid, -5, 5}, {SC_sigmoid, -200, 60}, {SC_sigmoid, -60, 200},
        {SC_recip, 0x1p-125f, 0x1p125f}, {SC_recip, -100, -0.5f}, {SC_recip, 0.5f, 4097}};
    const char *env = getenv("NNC_EXHAUSTIVE"), *only = env && strcmp(env, "1") ? env : NULL;
    uint64_t step = env ? 1 : test_takes(1, 8) ? 5003 : 20011;
    for (size_t i = 0; kb_emitter() && i < 2 * NNC_COUNT(fns); i++) {
        struct form o = {i % 2 ? " fast" : " exact", i % 2 ? KH_fast : KH_exact, 0, 0};
        if (!only || strcmp(only, nnc_sops[fns[i / 2].op].name) == 0)
            check_one(&fns[i / 2], &o, kb_host(), step, "fma");
    }
    for (size_t i = 0; kb_emitter() && i < 2 * NNC_COUNT(known); i++)
        for (size_t j = 0; j < NNC_COUNT(fns); j++) {
            struct form o = {i % 2 ? " fast, known" : " known", i % 2 ? KH_fast : 0,
                known[i / 2].lo, known[i / 2].hi};
            if (fns[j].op == known[i / 2].op &&
                (!only || strcmp(only, nnc_sops[fns[j].op].name) == 0))
                check_one(&fns[j], &o, kb_host(), step, "fma");
        }
}

/* Steps whose results a machine may round in its own way: a quotient by an estimate, the exponent of a subnormal result. */
static bool may_differ(nnc_fkey key)
{
    static nnc_formula f;
    nnc_formula_make(&f, key, (nnc_machine){.fma = true, .scale = true});
    for (int i = 0; i < f.n; i++)
        if (f.step[i].op == FO_quick || (f.step[i].op == FO_scale && key.policy & KH_fast))
            return true;
    return false;
}

/* Round r of the arguments: every 65537th bit pattern, or the r-th block of all. */
static void arguments(float *x, uint32_t r, bool all, const struct form *o)
{
    for (uint32_t j = 0; j < BLOCK; j++) {
        const uint32_t u = all ? r * BLOCK + j : j * 65537 + (uint32_t)test_seed % 65537;
        memcpy(&x[j], &u, 4);
        if (o->lo < o->hi && !(x[j] >= o->lo && x[j] <= o->hi))
            x[j] = o->lo + (o->hi - o->lo) * (float)j / BLOCK;
    }
}

/* Does y differ from z by more than it may? */
static bool differ(const float *y, const float *z, bool exact, int64_t *differing, int *at)
{
    for (*at = 0; *at < BLOCK; ++*at) {
        const float u = y[*at], v = z[*at];
        if (memcmp(&u, &v, 4) == 0 || (isnan(u) && isnan(v)))
            continue;
        ++*differing;
        if (exact || !(fabsf(u - v) <= fabsf(u) * 0x1p-20f + 0x1p-126f))
            return true;
    }
    return false;
}

/* Machine code with fused multiply-add and the interpreter run the same steps, so they are equal to the bit. Of may_differ few
 * results differ, by 2^-20 or where they are subnormal. NNC_EXHAUSTIVE as above. */
TEST(math_equals_the_interpreter)
{
    static const struct form forms[] = {{"", 0, 0, 0}, {" exact", KH_exact, 0, 0},
        {" fast", KH_fast, 0, 0}, {" near", 0, -60000, 60000}, {" half", KH_nonan, -1.5f, 1.5f},
        {" short", 0, -0.4f, 0.4f}, {" positive", KH_nonan, 0.5f, 4097}};
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    const char *env = getenv("NNC_EXHAUSTIVE"), *only = env && strcmp(env, "1") ? env : NULL;
    void *args[2][2] = {{x, y}, {x, z}};
    for (size_t i = 0; kb_emitter() && kb_host()->fma && i < NNC_COUNT(fns) * NNC_COUNT(forms);
         i++) {
        const struct fn *f = &fns[i / NNC_COUNT(forms)];
        const struct form *o = &forms[i % NNC_COUNT(forms)];
        const char *name = nnc_sops[f->op].name;
        int64_t differing = 0;
        int at;
        kb_code c;
        if ((only && strcmp(only, name) != 0) || (env ? o->lo < o->hi : !test_takes(i, 4)))
            continue;
        if (!compile(f->op, o, kb_host(), &c))
            return;
        nnc_interp *s = nnc_interp_create(&b.k);
        const bool exact = f->op == SC_sqrt || !may_differ(nnc_formula_key(&b.k, &b.ins[1]));
        for (uint32_t r = 0; r < (env ? UINT64_C(1) << 32 : BLOCK) / BLOCK; r++) {
            arguments(x, r, env != NULL, o);
            c.fn(args[0], 0, 1, NULL);
            nnc_interp_run(s, args[1], 0, 1, NULL);
            if (differ(y, z, exact, &differing, &at)) {
                test_fail(__FILE__, __LINE__,
                    "%s%s at %a: %a by machine code, %a by the interpreter", name, o->name,
                    (double)x[at], (double)y[at], (double)z[at]);
                break;
            }
        }
        if (env)
            fprintf(stderr, "%s%s: %lld results differ\n", name, o->name, (long long)differing);
        nnc_interp_destroy(s);
        kb_free(&c);
    }
}

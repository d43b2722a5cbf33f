/* tests/llvm/chains.c -- random chains of functions as machine code at each --math, in f32, f16 and bf16, against f64 with the bound
 * that docs/math.md gives the chain; with and without fused multiply-add. */
#include "gen/chain.h"
#include "kb.h"

#include <math.h>

enum { CHAINS = 200, SET = 20 };

typedef struct one {
    chain c;
    const nnc_kernel *plain, *k[CHAIN_MATHS];
} one;

static bool lower_all(one *o, int i, const nnc_target *t, nnc_arena *a)
{
    static const nnc_dtype dtypes[] = {DT_f32, DT_f16, DT_f32, DT_bf16};
    chain_random(&o->c, test_seed, i, dtypes[i % 4]);
    for (int m = 0; m < CHAIN_MATHS; m++) {
        o->k[m] = chain_lower(&o->c, t, (chain_math)m, a, test_sink);
        if (!o->k[m]) {
            test_fail(__FILE__, __LINE__, "no kernel:\n%s", nnc_text_str(&o->c.text));
            return false;
        }
    }
    o->plain = o->k[CHAIN_exact];
    return true;
}

static void run_one(const one *o, int i, const nnc_object *code, chain_math m)
{
    static _Alignas(64) float x[CHAIN_N], y[CHAIN_N];
    void *args[2] = {x, y}, *p = nnc_object_symbol(code, o->k[m]->name);
    nnc_kernel_fn fn;
    char why[160] = "";
    memcpy(&fn, &p, sizeof p);
    CHECK(p != NULL);
    if (!p)
        return;
    chain_fill(&o->c, x);
    fn(args, 0, o->k[m]->sched.domain, NULL);
    if (!chain_check(&o->c, o->plain, m, x, y, why))
        test_fail(__FILE__, __LINE__, "chain %d (seed %llu): %s\n%s", i,
            (unsigned long long)test_seed, why, nnc_text_str(&o->c.text));
}

/* Chains first .. first + SET - 1 as one object. */
static void some(int first, const nnc_target *t)
{
    static one o[SET];
    const nnc_kernel *k[SET * CHAIN_MATHS];
    nnc_arena a;
    char *bytes = NULL;
    size_t size = 0;
    const char *why = NULL;
    int n = 0;
    bool ok = true;
    nnc_arena_init(&a, 0);
    for (int i = 0; i < SET; i++) {
        ok &= lower_all(&o[i], first + i, t, &a);
        for (int m = 0; ok && m < CHAIN_MATHS; m++) {
            bool have = false;
            for (int j = 0; j < n; j++)
                have |= strcmp(k[j]->name, o[i].k[m]->name) == 0;
            if (!have)
                k[n++] = o[i].k[m];
        }
    }
    ok = ok && kb_emitter()->emit(k, n, t, EMIT_object, &bytes, &size, test_sink) == NNC_OK;
    nnc_object *code = ok ? nnc_object_load(bytes, size, &why) : NULL;
    if (!code)
        test_fail(__FILE__, __LINE__, "no code: %s", why ? why : "");
    for (int i = 0; code && i < SET; i++)
        for (int m = 0; m < CHAIN_MATHS; m++)
            run_one(&o[i], first + i, code, (chain_math)m);
    nnc_object_unload(code);
    nnc_free(bytes);
    for (int i = 0; i < SET; i++)
        chain_deinit(&o[i].c);
    nnc_arena_deinit(&a);
}

TEST(chains_at_each_math)
{
    for (int i = 0; kb_emitter() && i < test_draws(CHAINS); i += SET)
        some(i, kb_host());
}

TEST(chains_at_each_math_without_fma)
{
    nnc_target t = *kb_host();
    t.fma = false;
    for (int i = 0; kb_emitter() && i < test_draws(2 * SET); i += SET)
        some(CHAINS + i, &t);
}

/* ---- short forms where results are infinite, zero, or nearly ---- */

static double truth(const char *op, double x)
{
    double s = 1 / (1 + exp(-x));
    return strcmp(op, "exp") == 0 ? exp(x) : strcmp(op, "silu") == 0 ? x * s : s;
}

/* Below the normal numbers (silu: times its x) zero will do, but nothing else that is not the value. */
static bool is_near(double got, double want, double eps)
{
    double allowed = fabs(want) < 0x1p-119 ? fabs(want) : eps * fabs(want);
    return (got != got && want != want) || got == want || fabs(got - want) <= allowed;
}

static void at_the_ends(const char *op, nnc_dtype d, const nnc_target *t)
{
    static const double at[] = {-87, -87.25, -88, -89, -100, -104, -104.5, -166, -415, -416.5, -1e4,
        -1e30, -1e38, -3.3e38, -INFINITY, NAN, INFINITY, 3.3e38, 89, 88, 1, 0};
    static _Alignas(64) char x[4 * CHAIN_N], y[4 * CHAIN_N];
    chain c = {.dtype = d};
    void *args[2] = {x, y};
    kb_code code;
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_printf(&c.text, "graph @t {\n%%x = input : %s[%d]\n%%y = %s %%x\nreturn %%y }",
        nnc_dtype_name(d), CHAIN_N, op);
    for (int i = 0; i < CHAIN_N; i++)
        nnc_set_f64(d, x, i, at[i % NNC_COUNT(at)]);
    const nnc_kernel *k = chain_lower(&c, t, d == DT_f32 ? CHAIN_fast : CHAIN_ulp2, &a, test_sink);
    CHECK(k != NULL);
    if (k && kb_compile_kernel(k, t, &code)) {
        code.fn(args, 0, k->sched.domain, NULL);
        for (int i = 0; i < CHAIN_N; i++) {
            double v = nnc_get_f64(d, x, i), got = nnc_get_f64(d, y, i), want = truth(op, v);
            if (is_near(got, want, d == DT_f32 ? 0x1p-15 : 0x1p-7) || (isinf(got) && want > 3.3e38))
                continue;
            test_fail(__FILE__, __LINE__, "%s of %s %g is %g, not %g", op, nnc_dtype_name(d), v,
                got, want);
            break;
        }
        kb_free(&code);
    }
    chain_deinit(&c);
    nnc_arena_deinit(&a);
}

TEST(short_forms_at_the_ends)
{
    static const char *const op[] = {"exp", "sigmoid", "silu"};
    for (int i = 0; kb_emitter() && i < 3; i++)
        for (int bits = 128; bits <= 512; bits *= 2) {
            nnc_target t = *kb_host();
            t.vector_bits = (int)nnc_min64(bits, t.vector_bits);
            at_the_ends(op[i], DT_f32, &t);
            at_the_ends(op[i], DT_bf16, &t);
        }
}

/* tests/cudac/chains.c -- random chains of functions as CUDA C at each --math, in f32, f16 and bf16, against f64 with the bound that
 * docs/math.md gives the chain. */
#include "ct.h"
#include "gen/chain.h"

enum { CHAINS = 200, SET = 40 };

/* Chains first .. first + SET - 1, built together. */
static int some(int first)
{
    static const nnc_dtype dtypes[] = {DT_f32, DT_f16, DT_f32, DT_bf16};
    static chain c[SET];
    static const nnc_kernel *plain[SET];
    ct_set s = {.open = true};
    int good = 0, of[SET * CHAIN_MATHS], math[SET * CHAIN_MATHS];
    nnc_arena_init(&s.arena, 0);
    for (int i = 0; i < SET; i++) {
        chain_random(&c[i], test_seed, first + i, dtypes[i % 4]);
        for (int m = 0; m < CHAIN_MATHS; m++) {
            const nnc_kernel *k = chain_lower(&c[i], ct_h200(), (chain_math)m, &s.arena, test_sink);
            int n = s.n;
            if (k)
                ct_add(&s, k);
            else
                test_fail(__FILE__, __LINE__, "no kernel:\n%s", nnc_text_str(&c[i].text));
            plain[i] = m == CHAIN_exact ? k : plain[i];
            for (; n < s.n; n++) {
                of[n] = i;
                math[n] = m;
            }
        }
    }
    bool built = ct_build(&s, NULL);
    for (int n = 0; built && n < s.n; n++) {
        void *base[2],
            *arg[2] = {ct_guarded(4 * CHAIN_N, &base[0]), ct_guarded(4 * CHAIN_N, &base[1])};
        char why[160] = "";
        chain_fill(&c[of[n]], arg[0]);
        const char *bad = ct_call(&s, n, arg);
        if (bad || !chain_check(&c[of[n]], plain[of[n]], (chain_math)math[n], arg[0], arg[1], why))
            test_fail(__FILE__, __LINE__, "chain %d (seed %llu): %s\n%s", first + of[n],
                (unsigned long long)test_seed, bad ? bad : why, nnc_text_str(&c[of[n]].text));
        else
            good++;
        ct_unguard(base[0], 4 * CHAIN_N);
        ct_unguard(base[1], 4 * CHAIN_N);
    }
    good = built ? good : -1;
    ct_set_deinit(&s);
    for (int i = 0; i < SET; i++)
        chain_deinit(&c[i]);
    return good;
}

TEST(chains_at_each_math)
{
    const int sets = test_draws(CHAINS / SET);
    int good = 0;
    for (int i = 0; i < sets * SET; i += SET) {
        int n = some(i);
        if (n < 0)
            return;
        good += n;
    }
    CHECK_USUAL(good > 2 * sets * SET); /* of a chain that no policy changes there is one kernel */
}

/* sin x = x - x^3/6 + ..., the sixth a little wrong. */
static void spoil(char *text)
{
    char *p = strstr(text, "-0.1666");
    CHECK(p != NULL);
    if (p)
        p[5] = '7';
}

/* Is the sine of each policy what it should be? */
static int sines(void (*edit)(char *), bool *built)
{
    ct_set s = {.open = true};
    chain c = {.dtype = DT_f32, .lo = 1, .hi = 0};
    const nnc_kernel *k[CHAIN_MATHS];
    int good = 0;
    nnc_arena_init(&s.arena, 0);
    nnc_printf(&c.text, "graph @t {\n%%x = input : f32[%d]\n%%y = sin %%x\nreturn %%y }", CHAIN_N);
    *built = true;
    for (int m = 0; m < CHAIN_MATHS; m++) {
        ct_set one = {.open = true};
        void *base[2],
            *arg[2] = {ct_guarded(4 * CHAIN_N, &base[0]), ct_guarded(4 * CHAIN_N, &base[1])};
        char why[160];
        nnc_arena_init(&one.arena, 0);
        k[m] = chain_lower(&c, ct_h200(), (chain_math)m, &s.arena, test_sink);
        CHECK(k[m] != NULL);
        if (k[m])
            ct_add(&one, k[m]);
        chain_fill(&c, arg[0]);
        if (k[m] && ct_build(&one, edit))
            good += !ct_call(&one, 0, arg) &&
                    chain_check(&c, k[CHAIN_exact], (chain_math)m, arg[0], arg[1], why);
        else
            *built = false;
        ct_set_deinit(&one);
        ct_unguard(base[0], 4 * CHAIN_N);
        ct_unguard(base[1], 4 * CHAIN_N);
    }
    ct_set_deinit(&s);
    chain_deinit(&c);
    return good;
}

TEST(chains_find_a_wrong_coefficient)
{
    bool built;
    int good = sines(NULL, &built);
    if (!built)
        return;
    CHECK_INT(good, CHAIN_MATHS);
    CHECK_INT(sines(spoil, &built), 0);
}

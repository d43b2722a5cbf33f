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
            nnc_target t = chain_target(ct_h200(), (chain_math)m);
            const nnc_kernel *k = chain_lower(&c[i], &t, &s.arena, test_sink);
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
    int good = 0;
    for (int i = 0; i < CHAINS; i += SET) {
        int n = some(i);
        if (n < 0)
            return;
        good += n;
    }
    CHECK(good > 2 * CHAINS); /* of a chain that no policy changes there is one kernel */
}

/* tests/codegen/hostile.c -- changed texts that the verifier lets pass run without a crash, and inside their memory. */
#include "help.h"

#include "../gen/hostile.h"

#include <stdlib.h>

static int try_one(uint64_t seed, nnc_text *text)
{
    nnc_arena a;
    gen_guarded g = {0};
    nnc_arena_init(&a, 64 << 20);
    nnc_sink_clear(test_sink);
    nnc_kernel *k = gen_hostile(seed, &ck_target, text, &a, test_sink);
    if (k && getenv("NNC_VERBOSE"))
        fprintf(stderr, "seed %llu\n%s\n", (unsigned long long)seed, nnc_text_str(text));
    nnc_interp *s = k ? nnc_interp_create(k) : NULL;
    if (s && gen_guard(&g, k))
        nnc_interp_run(s, g.arg, 0, k->sched.domain, g.scratch);
    gen_unguard(&g);
    nnc_interp_destroy(s);
    nnc_arena_deinit(&a);
    return k != NULL;
}

TEST(changed_kernels_stay_inside)
{
    nnc_text text = {0};
    int n = getenv("NNC_BODIES") ? atoi(getenv("NNC_BODIES")) : 4000, ran = 0;
    for (int i = 0; i < n; i++)
        ran += try_one(test_seed * 10000 + (uint64_t)i, &text);
    CHECK(ran > n / 50);
    nnc_text_deinit(&text);
}

/* tests/codegen/hostile.c -- changed texts that the verifier lets pass run without a crash, and inside their memory. */
#include "help.h"

#include "../gen/hostile.h"

#include <pthread.h>
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
    const int n = test_draws(4000);
    int ran = 0;
    for (int i = 0; i < n; i++)
        ran += try_one(test_seed * 10000 + (uint64_t)i, &text);
    CHECK_USUAL(ran > n / 50);
    nnc_text_deinit(&text);
}

/* Many accumulators on a thread of little stack: blocks shrink until they fit. */
static void *run_small(void *kernel)
{
    static int64_t x[4] = {3, 1, 4, 1}, y[1];
    void *args[2] = {x, y};
    nnc_interp *p = kernel ? nnc_interp_create(kernel) : NULL;
    CHECK(p != NULL);
    if (p)
        nnc_interp_run(p, args, 0, 1, NULL);
    CHECK_INT(y[0], 2);
    nnc_interp_destroy(p);
    return NULL;
}

TEST(many_values_fit_the_stack)
{
    enum { N = 10000 };
    nnc_text t = {0};
    nnc_scan s;
    nnc_arena a;
    pthread_t thread;
    pthread_attr_t small;
    nnc_puts(&t, "kernel k_test { axis r0 reduce 4 buf x0 in i64 4 buf y0 out i64 1 "
                 "schedule vector r0 8 parallel 1 grain 1 stage r0 { %0 = load i64 x0[r0]\n");
    for (int i = 1; i < N; i++)
        nnc_printf(&t, "%%%d = reduce argmax i64 %%0\n", i);
    nnc_printf(&t, "post %%%d = store i64 y0[0] %%%d\n } }", N, N - 1);
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    CHECK_INT(pthread_create(&thread, &small, run_small, nnc_schedule_parse(&s, &a, test_sink)), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
    nnc_arena_deinit(&a);
    nnc_text_deinit(&t);
}

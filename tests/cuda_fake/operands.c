/* tests/cuda_fake/operands.c -- kernels of a hundred and of most operands on the fake GPU, against float64. */
#include "session/session.h"
#include "fake.h"
#include "help.h"

/* The sum of n inputs, or with `joined` 1 + their concat. */
static nnc_graph *graph_of(int n, bool joined)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, "graph @g {\n%one = constant : f32[] = [1]\n");
    for (int i = 0; i < n; i++)
        nnc_printf(&t, "%%x%d = input : f32[33]\n", i);
    for (int i = 1; i < n && !joined; i++)
        nnc_printf(&t, "%%y%d = add %%%s%d, %%x%d\n", i, i > 1 ? "y" : "x", i - 1, i);
    for (int i = 0; i < n && joined; i++)
        nnc_printf(&t, "%s%%x%d", i ? ", " : "%c = concat ", i);
    nnc_printf(&t, joined ? " {axis=0}\n%%y%d = add %%c, %%one\n" : "", n - 1);
    nnc_printf(&t, "return %%y%d\n}\n", n - 1);
    nnc_scan scan;
    nnc_scan_init(&scan, "operands", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK(g != NULL);
    return g;
}

TEST(kernels_of_many_operands)
{
    static const int count[] = {100, 100, 440};
    if (no_compiler())
        return;
    for (int k = 0; k < 3; k++) {
        nnc_env *e = NULL;
        nnc_artifact *a = NULL;
        NNC_LOCAL(nnc_text) t = {0};
        char why[512];
        nnc_graph *g = graph_of(count[k], k > 0);
        const nnc_compare_options o = {
            .compile = nnc_compile_defaults, .warmup = 1, .iterations = 1, .tolerance = 1e-11};
        fake_begin((uint64_t)k);
        CHECK_OK(
            nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
        if (!e || !g || !compared(e, g, &o, &t))
            test_fail(__FILE__, __LINE__, "graph %d differs\n%s", k, nnc_text_str(&t));
        CHECK_OK(e && g ? nnc_compile(e, g, &o.compile, &a, test_sink) : NNC_E_BUG);
        int most = 0;
        for (int i = 0; a && i < a->plan->n_kernel; i++)
            most = a->plan->kernel[i].n_args > most ? a->plan->kernel[i].n_args : most;
        CHECK_INT(most, count[k] + 1);
        nnc_artifact_destroy(a);
        nnc_graph_destroy(g);
        nnc_env_destroy(e);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "graph %d: %s", k, why);
    }
}

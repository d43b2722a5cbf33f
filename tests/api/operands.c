/* tests/api/operands.c -- kernels of a hundred operands and results, as machine code and interpreted, against float64. */
#include "help.h"

/* A sum of n inputs, their concat, or a split into n. */
static void put_graph(nnc_text *t, int kind, int n)
{
    nnc_puts(t, "graph @t {\n");
    if (kind == 2)
        nnc_printf(t, "%%x = input : f32[%d]\n", 5 * n);
    for (int i = 0; i < n && kind < 2; i++)
        nnc_printf(t, "%%x%d = input : f32[7]\n", i);
    for (int i = 1; i < n && kind == 0; i++)
        nnc_printf(t, "%%y%d = add %%%s%d, %%x%d\n", i, i > 1 ? "y" : "x", i - 1, i);
    for (int i = 0; i < n && kind == 1; i++)
        nnc_printf(t, "%s%%x%d", i ? ", " : "%y = concat ", i);
    for (int i = 0; i < n && kind == 2; i++)
        nnc_printf(t, "%s%%s%d", i ? ", " : "", i);
    nnc_puts(t, kind == 1 ? " {axis=0}\n" : kind == 2 ? " = split %x {axis=0, sizes=[" : "");
    for (int i = 0; i < n && kind == 2; i++)
        nnc_printf(t, "%s5", i ? ", " : "");
    nnc_puts(t, kind == 2 ? "]}\n" : "");
    for (int i = 0; i < n && kind == 2; i++)
        nnc_printf(t, "%%y%d = neg %%s%d\n", i, i);
    for (int i = kind < 2 ? n - 1 : 0; i < n; i++)
        nnc_printf(t, kind == 1 ? "return %%y" : i && kind == 2 ? ", %%y%d" : "return %%y%d", i);
    nnc_puts(t, "\n}\n");
}

static void check(int kind, int level, bool no_llvm)
{
    NNC_LOCAL(nnc_text) t = {0}, why = {0};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    nnc_scan scan;
    api_data d = {0};
    api_run r = {0};
    o.level = level;
    put_graph(&t, kind, 100);
    nnc_scan_init(&scan, "t", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){TEST_CACHED, .threads = 2, .no_llvm = no_llvm}, &e, test_sink));
    bool ok =
        g && e && api_inputs(&d, g, test_seed, false) && api_truth(&d, g, test_sink) == NNC_OK;
    ok = ok && api_compile_and_run(e, g, &o, &d, &r, &why, test_sink);
    for (int i = 0; ok && i < r.n_out; i++) {
        const api_diff x = api_compare(nnc_typeof(g, g->output[i]), r.out[i], &d.want[i]);
        ok = x.wrong == 0 && x.nmse < 1e-11;
        nnc_printf(&why, "result %d: nmse %g, %lld wrong", i, x.nmse, (long long)x.wrong);
    }
    if (!ok)
        test_fail(__FILE__, __LINE__, "-O%d, graph %d%s: %s", level, kind,
            no_llvm ? ", interpreted" : "", nnc_text_str(&why));
    /* one kernel adds them */
    CHECK(!ok || kind || level == 0 || nnc_artifact_plan(r.a)->n_kernel == 1);
    api_run_free(&r);
    api_data_free(&d);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

TEST(hundred_operands)
{
    for (int kind = 0; kind < 3; kind++)
        for (int k = 0; k < 4; k++)
            check(kind, k % 2 ? 2 : 0, k > 1);
}

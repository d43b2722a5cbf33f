/* tests/api/products.c -- attention of several lengths, widths and masks through all of nnc, on several threads and both devices of a CPU.
 * The numbers are those of float64, remarks account for the plans, and blocks of rows are one kernel with their products. */
#include "help.h"

#include <string.h>

typedef struct at {
    int tokens, keys, heads, width;
    int mask; /* 0 none, 1 bool, 2 added, 3 causal, 4 more added than a kernel has arguments */
    const char *type;
} at;

static void put_masks(nnc_text *t, const at *c)
{
    enum { MANY = 100 };
    nnc_puts(t, "%t0 = neg %s\n");
    for (int i = 0; i < MANY; i++)
        nnc_printf(t, "%%m%d = input : %s[%d]\n%%t%d = add %%t%d, %%m%d\n", i, c->type, c->keys,
            i + 1, i, i);
    nnc_printf(t, "%%t = neg %%t%d\n", MANY);
}

static void put_graph(nnc_text *t, const at *c)
{
    const int w = c->heads * c->width, h = c->heads;
    static const char *const name[] = {"q", "k", "v"};
    nnc_puts(t, "graph @t {\n");
    for (int i = 0; i < 3; i++) {
        const int n = i ? c->keys : c->tokens;
        nnc_printf(t, "%%%s0 = input : %s[2,%d,%d]\n", name[i], c->type, n, w);
        nnc_printf(
            t, "%%%s1 = reshape %%%s0 {shape=[2,%d,%d,%d]}\n", name[i], name[i], n, h, c->width);
        nnc_printf(t, "%%%s = transpose %%%s1 {perm=[0,2,1,3]}\n", name[i], name[i]);
    }
    nnc_printf(
        t, "%%f = constant : %s[] = [0.25]\n%%low = constant : %s[] = [-inf]\n", c->type, c->type);
    nnc_puts(t, "%s0 = matmul %q, %k {transpose_b=1}\n%s = mul %s0, %f\n");
    if (c->mask == 1)
        nnc_printf(t,
            "%%m = input : bool[2,1,1,%d]\n%%low2 = constant : %s[] = [-30]\n%%t = select %%m, "
            "%%s, %%low2\n",
            c->keys, c->type);
    if (c->mask == 2)
        nnc_printf(t, "%%m = input : %s[%d,%d]\n%%t = add %%s, %%m\n", c->type, c->tokens, c->keys);
    if (c->mask == 3)
        nnc_printf(t,
            "%%i = iota {dim=0} : i32[%d,%d]\n%%j = iota {dim=1} : i32[%d,%d]\n%%m = ge %%i, "
            "%%j\n%%t = select %%m, %%s, %%low\n",
            c->tokens, c->keys, c->tokens, c->keys);
    if (c->mask == 4)
        put_masks(t, c);
    nnc_printf(t, "%%p = softmax %%%s {axis=3}\n%%y0 = matmul %%p, %%v\n", c->mask ? "t" : "s");
    nnc_printf(t,
        "%%y1 = transpose %%y0 {perm=[0,2,1,3]}\n%%y = reshape %%y1 {shape=[2,%d,%d]}\nreturn %%y "
        "}",
        c->tokens, w);
}

static int fused(const nnc_artifact *a)
{
    const nnc_remarks *r = nnc_artifact_remarks(a);
    int n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->at[i].applied && !strcmp(r->at[i].pass, "fuse_products");
    return n;
}

/* Returns the number of fusions; -1: a check failed. */
static int check(const at *c, int threads, bool no_llvm)
{
    NNC_LOCAL(nnc_text) t = {0}, why = {0};
    nnc_scan scan;
    nnc_env *e = NULL;
    api_data d = {0};
    api_run r = {0};
    put_graph(&t, c);
    nnc_scan_init(&scan, "t", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){TEST_CACHED, .threads = threads, .no_llvm = no_llvm}, &e, test_sink));
    bool ok =
        g && e && api_inputs(&d, g, test_seed, false) && api_truth(&d, g, test_sink) == NNC_OK;
    ok = ok && api_compile_and_run(e, g, &nnc_compile_defaults, &d, &r, &why, test_sink);
    int n = -1;
    if (ok) {
        const api_diff x = api_compare(nnc_typeof(g, g->output[0]), r.out[0], &d.want[0]);
        n = fused(r.a);
        ok = x.wrong == 0 && x.nmse < (strcmp(c->type, "f16") ? 1e-11 : 1e-5);
        nnc_printf(&why, "nmse %g, %lld wrong", x.nmse, (long long)x.wrong);
    }
    if (!ok)
        test_fail(__FILE__, __LINE__,
            "%d tokens, %d keys, %d heads of %d, mask %d, %s, %d threads%s: %s", c->tokens, c->keys,
            c->heads, c->width, c->mask, c->type, threads, no_llvm ? ", interpreted" : "",
            nnc_text_str(&why));
    api_run_free(&r);
    api_data_free(&d);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    return ok ? n : -1;
}

TEST(attention_in_blocks_of_rows)
{
    static const at cases[] = {{1, 1, 2, 8, 0, "f32"}, {1, 64, 2, 16, 1, "f32"},
        {7, 7, 3, 5, 3, "f32"}, {64, 64, 4, 32, 0, "f32"}, {64, 64, 4, 16, 1, "f32"},
        {197, 197, 3, 20, 0, "f32"}, {197, 197, 2, 64, 3, "f32"}, {300, 300, 2, 17, 2, "f32"},
        {40, 300, 2, 33, 1, "f32"}, {300, 40, 3, 16, 2, "f64"}, {64, 97, 2, 13, 3, "f64"},
        {64, 64, 2, 32, 2, "f16"}, {256, 256, 2, 32, 4, "f64"}};
    static const int threads[] = {1, 2, 4};
    int n = 0;
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        for (size_t k = 0; k < NNC_COUNT(threads); k++) {
            if (!test_takes(i + k, 2))
                continue;
            const bool interpreted = api_sanitized || (i + k) % 3 == 0;
            const int got = check(&cases[i], threads[k], interpreted && cases[i].tokens < 300);
            CHECK(!interpreted || cases[i].tokens >= 300 || got <= 0);
            n += got > 0;
        }
    printf("  %d fused\n", n);
    CHECK(n > 3 || api_sanitized);
}

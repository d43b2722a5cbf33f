/* tests/llvm/edges.c -- what machine code leaves out: terms beyond the edges of an image, additions of a bias. */
#include "kb.h"
#include <math.h>

/* One convolution of ones with infinite weights, by machine code and by the interpreter. 0 times infinity is NaN: the interpreter and
 * --math=exact compute the terms beyond the edge; otherwise machine code may leave them out. `rows`: it leaves out rows of the window. */
static void infinite_weights(
    const nnc_target *t, int channels, int groups, const char *order, nnc_math math, bool rows)
{
    enum { C = 32, N = 14, ALL = C * N * N };
    static float x[ALL], w[C * C * 9], y[2][ALL];
    char text[300];
    nnc_arena a;
    nnc_scan scan;
    kb_code c;
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : f32[1,%d,14,14]{0,2,3,1}\n%%w = input : f32[%d,%d,3,3]%s\n%%y = "
        "conv %%x, %%w {pads=[1,1,1,1], groups=%d}\nreturn %%y }",
        channels, channels, channels / groups, order, groups);
    nnc_scan_init(&scan, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    nnc_arena_init(&a, 0);
    const nnc_kernel *k = g ? nnc_lower(g, &g->node[g->n_node - 1], t, math, &a, test_sink) : NULL;
    CHECK(k != NULL && k->n_stage > 0);
    for (int i = 0; i < ALL; i++)
        x[i] = 1;
    for (size_t i = 0; i < NNC_COUNT(w); i++)
        w[i] = INFINITY;
    nnc_interp *s = k ? nnc_interp_create(k) : NULL;
    if (s && kb_emitter() && kb_compile_kernel(k, t, &c)) {
        c.fn((void *[]){x, w, y[0]}, 0, k->sched.domain, NULL);
        nnc_interp_run(s, (void *[]){x, w, y[1]}, 0, k->sched.domain, NULL);
        for (int i = 0; i < 2 * channels * N * N; i++) {
            int at = i % (channels * N * N), row = at / channels / N, col = at / channels % N;
            bool end = row == 0 || row == N - 1, side = col == 0 || col == N - 1;
            bool open = i < channels * N * N && math != MATH_exact;
            float v = y[i / (channels * N * N)][at];
            CHECK(isinf(v) || (isnan(v) && (end || side)));
            CHECK(isnan(v) || !(end || side) || open);
            CHECK(isinf(v) || !open || !rows || side);
        }
        kb_free(&c);
    }
    nnc_interp_destroy(s);
    nnc_arena_deinit(&a);
    nnc_graph_destroy(g);
}

TEST(infinite_weights_at_the_edge)
{
    for (int i = 0; i < 4; i++) {
        nnc_target t = *kb_host();
        const bool exact = i % 2;
        t.fma = t.fma && i < 2;
        infinite_weights(&t, 32, 32, "{2,3,0,1}", exact ? MATH_exact : MATH_ulp2, true);
        infinite_weights(&t, 32, 1, "{2,3,1,0}", exact ? MATH_exact : MATH_ulp2, true);
        infinite_weights(&t, 8, 2, "{2,3,1,0}", exact ? MATH_exact : MATH_ulp2, false);
    }
}

/* A register block's sums begin with the bias: no instruction adds it, unless something else needs the sum. */
TEST(sums_begin_with_a_bias)
{
    static const struct {
        const char *bias, *store;
        int adds;
    } at[] = {{"i1", "%6", 0}, {"i1", "%4", 14}, {"i0*32 + i1", "%6", 14}};
    const nnc_emitter *e = kb_emitter();
    for (size_t i = 0; e && i < NNC_COUNT(at); i++) {
        char text[800], *code = NULL;
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_scan scan;
        size_t n;
        int adds = 0;
        snprintf(text, sizeof text,
            "kernel k_test { axis i0 outer 42 axis i1 outer 32 axis r0 reduce 24\n"
            "buf x0 in f32 1344 buf x1 in f32 768 buf x2 in f32 1344 buf y0 out f32 1344 "
            "buf y1 out f32 1344\n"
            "schedule tile i0 42 order i0 i1 vector i1 32 unroll i0 14 parallel 1 grain 1\n"
            "stage r0 { %%0 = load f32 x0[i0*32 + r0] %%1 = load f32 x1[r0*32 + i1]\n"
            "%%2 = const f32 0 %%3 = fma f32 %%0 %%1 %%2 %%4 = reduce sum f32 %%3\n"
            "post %%5 = load f32 x2[%s] %%6 = add f32 %%4 %%5 %%7 = store f32 y0[i0*32 + i1] %%6\n"
            "%%8 = store f32 y1[i0*32 + i1] %s } }",
            at[i].bias, at[i].store);
        nnc_scan_init(&scan, "t", text, strlen(text));
        const nnc_kernel *k = nnc_schedule_parse(&scan, &a, test_sink);
        CHECK(k != NULL);
        if (k)
            CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_llvm, &code, &n, test_sink));
        for (const char *t = code; t && (t = strstr(t, " fadd ")); t++)
            adds++;
        if (kb_host()->fma)
            CHECK_INT(adds, at[i].adds);
        nnc_free(code);
    }
}

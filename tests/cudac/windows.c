/* tests/cudac/windows.c -- windows by the hundred: depthwise convolutions and pooling of every stride, dilation, border, memory order and
 * element type, in strips where the schedule makes them. */
#include "ct.h"
#include "gen/gen.h"

#include <math.h>

/* Does the kernel compute strips: several results by one thread along an axis? */
static bool in_strips(const nnc_kernel *k)
{
    int stores = 0;
    for (int i = 0; i < k->n_ins; i++)
        stores += k->ins[i].op == KO_store;
    return stores > 1;
}

static void random_windows(int from, int full, bool tiny, bool pool, int least)
{
    const int n = test_draws(full);
    ct_set s = {.tiny = tiny};
    int strips = 0;
    for (int i = from; i < from + n; i++) {
        nnc_text t = {0};
        gen_window(&t, test_seed + (uint64_t)i, pool);
        ct_add_fused(&s, nnc_text_str(&t));
        nnc_text_deinit(&t);
    }
    CHECK_INT(s.n, n);
    for (int i = 0; i < s.n; i++) {
        strips += in_strips(s.k[i]);
    }
    CHECK_USUAL(strips >= least * n / full);
    if (ct_build(&s, NULL))
        CHECK_INT(ct_run_all(&s, test_seed), n);
    ct_set_deinit(&s);
}

TEST(depthwise_windows)
{
    random_windows(0, 80, true, false, 30);
    random_windows(80, 30, false, false, 0);
}

TEST(pooling_windows)
{
    random_windows(0, 60, true, true, 12);
}

static bool walks(const nnc_kernel *k)
{
    nnc_walk w;
    return nnc_walk_of(k, &w);
}

/* 5x5 windows of EfficientNets on an H200: row by row where that leaves enough threads. */
TEST(rows_and_strips_of_windows)
{
    static const struct {
        int batch, size, channels;
        const char *as;
    } w[] = {{128, 57, 384, "rows"}, {128, 29, 768, "rows"}, {128, 19, 816, "rows"},
        {128, 28, 240, "rows"}, {128, 15, 1824, "rows"}, {128, 7, 1152, "rows"},
        {32, 28, 240, "strips"}, {32, 29, 240, "strips"}, {1, 28, 240, "strips"}};
    for (size_t i = 0; i < NNC_COUNT(w); i++) {
        ct_set s = {0};
        char text[300];
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f16[%d,%d,%d,%d]{0,2,3,1}\n"
            "%%w = input : f16[%d,1,5,5]{2,3,1,0}\n"
            "%%c = conv %%x, %%w {groups=%d, pads=[2,2,2,2]}\nreturn %%c }",
            w[i].batch, w[i].channels, w[i].size, w[i].size, w[i].channels, w[i].channels);
        ct_add_fused(&s, text);
        CHECK_INT(s.n, 1);
        const char *as = s.n != 1 ? "none" : walks(s.k[0]) ? "rows" : "strips";
        if (strcmp(as, w[i].as) != 0)
            test_fail(
                __FILE__, __LINE__, "%d of %dx%d in %s", w[i].batch, w[i].size, w[i].size, as);
        ct_set_deinit(&s);
    }
}

/* 0 times infinity is NaN: --math=exact leaves no row of the window out, and a strip asks for none of its columns either. */
TEST(infinite_weights_at_the_edge)
{
    enum { C = 4, N = 9 };
    static float x[C * N * N], w[C * 9], y[C * N * N];
    ct_set s = {.open = true};
    nnc_graph *g = ct_parse("graph @t {\n%x = input : f32[1,4,9,9]\n%w = input : f32[4,1,3,3]\n"
                            "%y = conv %x, %w {pads=[1,1,1,1], groups=4}\nreturn %y }");
    nnc_arena_init(&s.arena, 0);
    CHECK(g != NULL);
    const nnc_kernel *k =
        g ? nnc_lower(g, &g->node[g->n_node - 1], ct_tiny(), MATH_exact, &s.arena, test_sink)
          : NULL;
    CHECK(k != NULL);
    if (k)
        ct_add(&s, k);
    for (int i = 0; i < C * N * N; i++)
        x[i] = 1;
    for (int i = 0; i < C * 9; i++)
        w[i] = INFINITY;
    if (k && ct_build(&s, NULL)) {
        const char *bad = ct_call(&s, 0, (void *[]){x, w, y});
        if (bad)
            test_fail(__FILE__, __LINE__, "%s", bad);
        for (int i = 0; i < C * N * N; i++) {
            int row = i / N % N, col = i % N;
            bool edge = row == 0 || row == N - 1 || col == 0 || col == N - 1;
            CHECK(edge ? isnan(y[i]) : isinf(y[i]));
        }
    }
    ct_set_deinit(&s);
    nnc_graph_destroy(g);
}

/* Loops follow memory, also where borders are those of columns alone: threads that are neighbours read neighbouring columns. CPUs have
 * the other order (few_last in kernel/axes.c). */
TEST(rows_of_a_window_are_the_outer_loop)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_graph *g = ct_parse("graph @t {\n%x = input : f32[1,3,40,40]\n"
                            "%y = maxpool %x {kernel=[3,3], pads=[0,1,0,1]}\nreturn %y }");
    const nnc_kernel *k =
        g ? nnc_lower(g, &g->node[g->n_node - 1], ct_tiny(), MATH_ulp2, &a, test_sink) : NULL;
    int64_t last = 0;
    CHECK(k != NULL);
    for (int i = 0; k && i < k->n_ins; i++)
        for (int x = 0; x < k->n_axis && k->ins[i].op == KO_load; x++)
            last = k->axis[x].kind == KA_reduce ? k->ins[i].at.k[x] : last;
    CHECK_INT(last, 1);
    nnc_graph_destroy(g);
}

/* Moved about in front and after; those that are no single loop nest are left out. */
static void moved_windows(int n, bool pool)
{
    ct_set s = {.open = true};
    nnc_arena_init(&s.arena, 0);
    for (int i = 0; i < n; i++) {
        nnc_text t = {0};
        gen_moved_window(&t, test_seed + (uint64_t)i, pool);
        nnc_graph *g = ct_parse(nnc_text_str(&t)), *f = g ? ct_fuse(g) : NULL;
        const nnc_kernel *k =
            f ? nnc_lower(f, &f->node[f->n_node - 1], ct_tiny(), MATH_ulp2, &s.arena, test_sink)
              : NULL;
        if (k)
            ct_add(&s, k);
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
        nnc_text_deinit(&t);
    }
    nnc_sink_clear(test_sink);
    CHECK_USUAL(s.n > n / 2);
    if (ct_build(&s, NULL))
        CHECK_INT(ct_run_all(&s, test_seed), s.n);
    ct_set_deinit(&s);
}

TEST(moved_windows)
{
    moved_windows(test_draws(50), false);
    moved_windows(test_draws(40), true);
}

static int with_runs(const ct_set *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        char *text = NULL;
        size_t size;
        CHECK_OK(nnc_emitter_cuda.emit(&s->k[i], 1, ct_tiny(), EMIT_cuda, &text, &size, test_sink));
        n += text && strstr(text, "const auto run_");
        nnc_free(text);
    }
    return n;
}

/* Windows side by side, which one access loads together where they begin as it wants, and element by element elsewhere. Widths, rests
 * and beginnings of rows are of all kinds. */
TEST(windows_side_by_side)
{
    static const char *const types[] = {"f32", "f16", "bf16", "f64", "u8", "i32"};
    static const char *const pools[] = {"maxpool", "avgpool"};
    ct_set s = {.tiny = true};
    for (int k = 2; k <= 8; k++)
        for (size_t i = 0; i < NNC_COUNT(types); i++)
            for (int rest = 0; rest < 3; rest += 2) {
                char text[400];
                int out = 8 + 4 * ((k + (int)i) % 3) + (k == 5);
                bool avg = types[i][0] != 'u' && types[i][0] != 'i' && k % 2;
                snprintf(text, sizeof text,
                    "graph @t {\n%%x = input : %s[2,3,%d,%d]\n%%p = %s %%x {kernel=[2,%d], "
                    "strides=[2,%d]}\nreturn %%p }",
                    types[i], 6 + rest, out * k + rest, pools[avg], k, k);
                ct_add_fused(&s, text);
            }
    CHECK_INT(s.n, 7 * 6 * 2);
    int runs = with_runs(&s);
    CHECK(runs > s.n / 4 && runs < s.n);
    ct_all_agree(&s);
}

/* Outputs of one row, whose windows' guards are of the reduce axis alone; other reduce axes stay loops. */
TEST(windows_of_one_row)
{
    static const struct {
        int h, w, kh, kw, pad, side, across, groups,
            per; /* across: stride; per: results of a group */
    } w[] = {{3, 27, 5, 3, 1, 0, 3, 8, 1}, {3, 9, 5, 3, 1, 0, 1, 8, 1}, {3, 9, 5, 3, 1, 1, 1, 8, 1},
        {3, 9, 5, 3, 1, 0, 1, 4, 2}, {14, 14, 5, 5, 2, 2, 1, 8, 2}};
    for (int tiny = 0; tiny < 2; tiny++) {
        ct_set s = {.tiny = tiny};
        for (size_t i = 0; i < NNC_COUNT(w); i++) {
            char text[500];
            const int per = 8 / w[i].groups, out = w[i].groups * w[i].per;
            snprintf(text, sizeof text,
                "graph @t {\n%%x = input : f16[2,8,%d,%d]{0,2,3,1}\n%%w = input : "
                "f16[%d,%d,%d,%d]{2,3,1,0}\n%%c = conv %%x, %%w {groups=%d, strides=[1,%d], "
                "pads=[%d,%d,%d,%d]}\n"
                "return %%c }",
                w[i].h, w[i].w, out, per, w[i].kh, w[i].kw, w[i].groups, w[i].across, w[i].pad,
                w[i].side, w[i].pad, w[i].side);
            ct_add_fused(&s, text);
        }
        ct_all_agree(&s);
    }
}

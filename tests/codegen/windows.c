/* tests/codegen/windows.c -- windows as kernels: depthwise convolutions and pooling of every stride, dilation, border and memory order,
 * interpreted and compared with the reference. */
#include "help.h"

#include "../gen/gen.h"

static const ck_bound sums = {1e-5, 3e-5};

/* A GPU so small that windows are computed in strips. */
static const nnc_target one_sm = {.kind = NNC_T_cuda,
    .name = "tiny",
    .cpu = "",
    .features = "",
    .vector_bits = 128,
    .fma = true,
    .sms = 1,
    .sm_threads = 32,
    .shared_bytes = 48 << 10,
    .sm = 90};

static void random_windows(int n, bool pool, const nnc_target *t)
{
    ck_lowered_for = t;
    for (int i = 0; i < n; i++) {
        nnc_text text = {0};
        gen_window(&text, test_seed + (uint64_t)i, pool);
        nnc_sink_clear(test_sink);
        if (!ck_text(nnc_text_str(&text), sums)) {
            nnc_sink_print(test_sink, stderr);
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&text));
        }
        nnc_text_deinit(&text);
    }
    ck_lowered_for = &ck_target;
}

TEST(depthwise_convolutions)
{
    random_windows(400, false, &ck_target);
    random_windows(400, false, &one_sm);
}

TEST(poolings)
{
    random_windows(200, true, &ck_target);
    random_windows(200, true, &one_sm);
}

/* Windows over computed values: stored in a buffer, in a ring of rows, or computed for each window. */
TEST(windows_over_computed_values)
{
    int stored[2] = {0}, rings = 0; /* stored: of convolutions, of pooling */
    for (int i = 0; i < test_draws(600); i++) {
        nnc_text text = {0};
        nnc_arena a;
        nnc_kernel *k = NULL;
        nnc_arena_init(&a, 0);
        nnc_sink_clear(test_sink);
        gen_fed_window(&text, test_seed + (uint64_t)i, i % 2);
        nnc_graph *g = ck_parse(nnc_text_str(&text));
        bool typed = g || test_has_diag("must be a");
        if (!typed || (g && !ck_check(g, sums, 3, "window", &a, &k))) {
            nnc_sink_print(test_sink, stderr);
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&text));
        }
        stored[i % 2] += k && k->scratch_bytes > 0;
        rings += k && nnc_sched_has(&k->sched, KD_ring);
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
        nnc_text_deinit(&text);
    }
    CHECK_USUAL(stored[0] > test_draws(50));
    CHECK_USUAL(stored[1] > test_draws(50));
    CHECK_USUAL(rings > test_draws(30));
}

/* Along the last axis the stored values differ only by the border, which only a guard knows. */
TEST(windows_over_borders_alone)
{
    nnc_arena a;
    nnc_kernel *k = NULL;
    nnc_arena_init(&a, 0);
    nnc_graph *g = ck_parse(
        "graph @t {\n%x = input : f32[1,2,8,1]\n%p = pad %x {pads=[0,0,0,1,0,0,0,1], value=0.5}\n"
        "%e = exp %p\n%y = maxpool %e {kernel=[3,1]}\nreturn %y }");
    CHECK(g && ck_check(g, sums, 3, "window", &a, &k));
    CHECK(k && k->scratch_bytes > 0);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

/* Rows that exceed the nearest caches are computed for each window. */
TEST(windows_over_long_rows)
{
    for (int i = 0; i < 2; i++) {
        nnc_arena a;
        nnc_text t = {0};
        nnc_arena_init(&a, 0);
        nnc_printf(&t,
            "graph @t {\n%%x = input : f32[1,1,64,%d]\n%%e = exp %%x\n"
            "%%y = maxpool %%e {kernel=[3,3]}\nreturn %%y }",
            i ? 4000000 : 4000);
        nnc_graph *g = ck_parse(nnc_text_str(&t));
        nnc_graph *f = g ? ck_fuse(g) : NULL;
        nnc_kernel *k = f ? ck_lower(f, &a) : NULL;
        CHECK(k != NULL);
        CHECK_INT(k && k->scratch_bytes > 0, !i);
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
        nnc_text_deinit(&t);
        nnc_arena_deinit(&a);
    }
}

/* What moves in front of a window and after it: those that are one loop nest. */
static int moved_windows(int n, bool pool, const nnc_target *t)
{
    int ran = 0;
    ck_lowered_for = t;
    for (int i = 0; i < n; i++) {
        nnc_text text = {0};
        nnc_arena a;
        const char *why;
        nnc_arena_init(&a, 0);
        gen_moved_window(&text, test_seed + (uint64_t)i, pool);
        nnc_sink_clear(test_sink);
        nnc_graph *g = ck_parse(nnc_text_str(&text));
        bool one = g && ck_one_kernel(g, &a, &why);
        ran += one;
        if (!g || (one && !ck_check(g, sums, 3, "window", &a, NULL))) {
            nnc_sink_print(test_sink, stderr);
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&text));
        }
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
        nnc_text_deinit(&text);
    }
    ck_lowered_for = &ck_target;
    return ran;
}

TEST(windows_among_movement)
{
    CHECK_USUAL(moved_windows(300, false, &ck_target) > 150);
    CHECK_USUAL(moved_windows(300, true, &one_sm) > 150);
    CHECK_USUAL(moved_windows(300, false, &one_sm) > 150);
}

/* Written out, a reduction over a border has places that are always, or never, inside: such guards go, and so do such loads. */
TEST(strips_settle_guards)
{
    ck_lowered_for = &one_sm;
    CHECK(ck_text("graph @t {\n%x = input : f32[2,2,4,10]\n"
                  "%p = pad %x {pads=[0,2,0,1,2,0,0,2]}\n"
                  "%m = reduce_mean %p {axes=[1,2]}\nreturn %m }",
        sums));
    ck_lowered_for = &ck_target;
}

/* Where windows reach over a border, the sum of an offset's positive terms is larger than any element's number. */
TEST(offsets_fit_in_any_order)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    ck_lowered_for = &one_sm;
    nnc_graph *g = ck_parse("graph @t {\n%x = input : f32[1,1,1023,2098000]\n"
                            "%y = maxpool %x {kernel=[2,1], strides=[2,1], pads=[1,0,0,0]}\n"
                            "return %y }");
    nnc_kernel *k = g ? ck_lower(g, &a) : NULL;
    CHECK(k != NULL);
    CHECK_INT(k ? k->buf[0].numel < INT32_MAX : 0, 1);
    CHECK_INT(k ? k->grid.index : 0, 64);
    ck_lowered_for = &ck_target;
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

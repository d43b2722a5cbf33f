/* tests/passes/idle.c -- kernels that would leave most of a GPU idle are several. */
#include "help.h"
#include <stdlib.h>
#include "kernel/kernel.h"
#include "schedule/schedule.h"

/* A batch norm's gradient is one kernel where its channels fill the GPU. 64 channels are 64 blocks for 132 SMs. The sums, divided over
 * blocks, and the rest take less in a kernel each, though one of all takes less than one for each op. */
TEST(sums_apart_from_the_rest)
{
    static const struct {
        int channels;
        bool apart;
    } cases[] = {{64, true}, {1024, false}};
    nnc_target t;
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    const char *pass = "fuse";
    const nnc_pass_options o = {.level = 2, .target = &t, .only = &pass, .n_only = 1};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        const int c = cases[i].channels;
        nnc_text text = {0};
        nnc_remarks r;
        nnc_remarks_init(&r);
        nnc_printf(&text,
            "graph @g { %%x = input : f32[32,%d,64,64]\n%%e = input : f32[32,%d,64,64]\n"
            "%%m = input : f32[1,%d,1,1]\n%%v = input : f32[1,%d,1,1]\n"
            "%%d = sub %%x, %%m loc \"/n\"\n%%n = mul %%d, %%v loc \"/n\"\n"
            "%%a = reduce_sum %%e {axes=[0,2,3], keepdims=1} loc \"/n\"\n"
            "%%p = mul %%e, %%n loc \"/n\"\n"
            "%%b = reduce_sum %%p {axes=[0,2,3], keepdims=1} loc \"/n\"\n"
            "%%q = mul %%n, %%b loc \"/n\"\n%%s = add %%q, %%a loc \"/n\"\n"
            "%%w = sub %%e, %%s loc \"/n\"\n%%y = mul %%w, %%v loc \"/n\"\nreturn %%y, %%a, %%b "
            "}\n",
            c, c, c, c);
        nnc_graph *g = help_parse("gradient", nnc_text_str(&text), text.n);
        CHECK(g != NULL);
        if (g) {
            CHECK_OK(nnc_passes_run(&g, &o, &r, test_sink));
            CHECK_INT(nnc_graph_cost(g).launches > 1, cases[i].apart);
        }
        nnc_remarks_deinit(&r);
        nnc_text_deinit(&text);
        nnc_graph_destroy(g);
    }
    nnc_target_deinit(&t);
}

/* What a kernel reads again costs less where the GPU's L2 cache has it: the rows of all SMs, or all columns. */
TEST(rows_read_again_from_the_cache)
{
    static const char text[] =
        "graph @g { %x = input : f32[1056,200000]\n%m = reduce_max %x {axes=[1], keepdims=1}\n"
        "%d = sub %x, %m\n%e = exp %d\n%s = reduce_sum %e {axes=[1], keepdims=1}\nreturn %s }\n";
    nnc_target t;
    nnc_arena mem;
    const char *why;
    nnc_arena_init(&mem, 0);
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    nnc_graph *g = help_parse("rows", text, sizeof text - 1);
    const uint32_t nodes[] = {1, 2, 3, 4};
    nnc_kernel *k = g ? nnc_kernel_of(g, nodes, 4, g->output, 1, &mem, &why) : NULL;
    CHECK(k && nnc_kernel_arrange(k, &t, &mem) && k->grid.keep == 0);
    if (k) {
        t.l3_bytes = (int64_t)1 << 30;
        const int64_t cached = nnc_kernel_ns(k, &t, NULL, &mem);
        t.l3_bytes = 0;
        const int64_t far = nnc_kernel_ns(k, &t, NULL, &mem);
        CHECK(cached > 0 && far > cached + cached / 4);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&mem);
    nnc_target_deinit(&t);
}

/* The time of an LSTM layer's kernel on an H200, without its launch. */
static int64_t lstm_ns(int steps, int batch, int hidden)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_target t;
    nnc_arena mem;
    int64_t ns = -1;
    nnc_arena_init(&mem, 0);
    nnc_printf(&text,
        "graph @g { %%x = input : f32[%d,%d,%d]\n%%r = input : f32[%d,%d]\n%%h = input : "
        "f32[%d,%d]\n"
        "%%c = input : f32[%d,%d]\n%%y, %%d = lstm %%x, %%r, %%h, %%c\nreturn %%y, %%d }\n",
        steps, batch, 4 * hidden, hidden, 4 * hidden, batch, hidden, batch, hidden);
    CHECK_OK(nnc_target_cuda(&t, "cuda:sm_90", test_sink));
    nnc_graph *g = help_parse("lstm", nnc_text_str(&text), text.n);
    nnc_kernel *k = g ? nnc_kernel_build(g, &g->node[4], &mem, test_sink) : NULL;
    CHECK(k && nnc_kernel_arrange(k, &t, &mem) && k->grid.cls == KC_steps);
    if (k)
        ns = nnc_kernel_ns(k, &t, NULL, &mem) - t.launch_ns;
    nnc_graph_destroy(g);
    nnc_arena_deinit(&mem);
    nnc_target_deinit(&t);
    return ns;
}

/* Steps follow each other. With few rows a step is its barrier and the weights, of 4 MB, that a cluster reads from the L2 cache. With
 * many, as many blocks as there are SMs go through it at once, and the rest after them. */
TEST(recurrences_take_their_steps)
{
    const int64_t one = lstm_ns(64, 8, 512), twice = lstm_ns(128, 8, 512);
    CHECK(one > 0 && llabs(twice - 2 * one) <= 2);
    const double barrier = 2 * 900 / 1.98, weights = 512 * 2048 * 4 / 8 / 64 / 1.98; /* ns */
    CHECK((double)one / 64 > weights && (double)one / 64 < 2 * weights + barrier);
    CHECK(lstm_ns(64, 8, 32) < one / 4 && (double)lstm_ns(64, 8, 32) > 64 * barrier / 2);
    const int64_t few = lstm_ns(64, 64, 512), many = lstm_ns(64, 4096, 512);
    CHECK(few >= one && many > 4 * few && many < 64 * few);
}

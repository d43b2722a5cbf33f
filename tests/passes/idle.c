/* tests/passes/idle.c -- kernels that would leave most of a GPU idle are several. */
#include "help.h"
#include "kernel/kernel.h"
#include "schedule/schedule.h"

/* A batch norm's gradient is one kernel where its channels fill the GPU. 64 channels are 64 blocks for 132 SMs: the sums, divided over
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
        const int64_t cached = nnc_cuda_kernel_ns(k, &t);
        t.l3_bytes = 0;
        const int64_t far = nnc_cuda_kernel_ns(k, &t);
        CHECK(cached > 0 && far > cached + cached / 4);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&mem);
    nnc_target_deinit(&t);
}

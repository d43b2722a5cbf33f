/* tests/cudac/kernels.c -- kernels of generated graphs and of the example models, and shapes chosen for each schedule. */
#include "ct.h"
#include "frontend/frontend.h"
#include "gen/gen.h"
#include "passes/passes.h"

static nnc_status optimise(nnc_graph **g)
{
    nnc_remarks r;
    nnc_remarks_init(&r);
    nnc_pass_options o = {.level = 2, .target = ct_h200()};
    nnc_status s = nnc_passes_run(g, &o, &r, test_sink);
    nnc_remarks_deinit(&r);
    return s;
}

static const uint32_t TYPES[] = {0, 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16,
    1u << DT_i32 | 1u << DT_f32, 1u << DT_i8 | 1u << DT_u64 | 1u << DT_f64,
    1u << DT_bool | 1u << DT_i64 | 1u << DT_f32};

/* Graphs from..from+n-1, every other one optimised first; half of the calls for a tiny GPU. */
static int generated(uint64_t from, int n)
{
    ct_set s = {.tiny = from % 60 == 0};
    for (int i = 0; i < n; i++) {
        uint64_t seed = test_seed + from + (uint64_t)i;
        gen_options o = {.seed = seed,
            .nodes = 10,
            .dtypes = TYPES[seed % NNC_COUNT(TYPES)],
            .classes = seed % 4 == 1 ? ~0u : 0,
            .max_elements = 600};
        nnc_graph *g = gen_graph(&o, test_sink);
        CHECK(g != NULL);
        if (g && seed % 2)
            CHECK_OK(optimise(&g));
        if (g)
            ct_add_graph(&s, g);
        nnc_graph_destroy(g);
    }
    int good = ct_build(&s, NULL) ? ct_run_all(&s, test_seed) : 0;
    CHECK(good == s.n || !*NNC_TEST_CXX);
    ct_set_deinit(&s);
    return good;
}

/* Ops that run in order along an axis. */
TEST(in_order)
{
    ct_set s = {0};
    for (uint64_t i = 0; i < 84; i++) {
        nnc_graph *g = (i < 45   ? gen_loop
                        : i < 60 ? gen_recurrent
                        : i < 72 ? gen_backward
                                 : gen_largest)(i < 45 ? test_seed + i : i, test_sink);
        CHECK(g != NULL);
        if (g)
            ct_add_graph(&s, g);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(s.n > 40);
    ct_all_agree(&s);
}

TEST(generated_graphs)
{
    const int sets = test_draws(10);
    int kernels = 0;
    for (int i = 0; i < sets; i++)
        kernels += generated((uint64_t)(30 * i), 30);
    CHECK_USUAL(kernels > 60 * sets || !*NNC_TEST_CXX);
}

/* Every kernel of every example model, small: fused as the compiler does it, and op by op. */
TEST(example_models)
{
    static const struct model {
        const char *file;
        nnc_set set[4];
    } models[] = {
        {"conv", {{"batch", 1}}},
        {"conv_fc_stack", {{"batch", 2}, {"image", 16}}},
        {"efficientnet_b0", {{"batch", 2}, {"image", 33}}},
        {"layernorm", {{"batch", 9}, {"cols", 500}}},
        {"linear", {{"batch", 3}}},
        {"matmul", {{"dim", 40}}},
        {"maxpool", {{"batch", 1}}},
        {"mlp", {{"batch", 3}}},
        {"nested_sin", {{"n", 5000}}},
        {"relu", {{"batch", 1}}},
        {"softmax", {{"batch", 9}, {"cols", 777}}},
        {"transformer_mlp", {{"batch", 2}, {"tokens", 5}, {"dim", 48}}},
        {"vgg16", {{"image", 32}}},
    };
    ct_set s = {.most = 1000000}; /* fibers are slow */
    for (size_t i = 0; i < 2 * NNC_COUNT(models); i++) {
        const struct model *m = &models[i / 2];
        char file[64];
        int n = 0;
        while (n < 4 && m->set[n].name)
            n++;
        snprintf(file, sizeof file, "models/%s.json", m->file);
        nnc_model_options o = {.set = m->set, .n_set = n, .seed = 1};
        nnc_graph *g = nnc_model_load(file, &o, test_sink);
        if (g && i % 2)
            CHECK_OK(optimise(&g));
        if (g)
            ct_add_graph(&s, g);
        else {
            test_fail(__FILE__, __LINE__, "%s", file);
            nnc_sink_print(test_sink, stderr);
        }
        nnc_graph_destroy(g);
    }
    CHECK(s.n > 20);
    ct_all_agree(&s);
}

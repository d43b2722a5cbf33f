/* tests/cudac/kernels.c -- kernels of generated graphs and of the example models, and shapes chosen for each schedule. */
#include "ct.h"
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

/* Graphs count..count+n-1, every other one optimised first. */
static int generated(uint64_t from, int n)
{
    ct_set s = {0};
    for (int i = 0; i < n; i++) {
        uint64_t seed = test_seed + from + (uint64_t)i;
        gen_options o = {.seed = seed,
            .nodes = 10,
            .dtypes = TYPES[seed % NNC_COUNT(TYPES)],
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

TEST(generated_graphs)
{
    int kernels = 0;
    for (int i = 0; i < 10; i++)
        kernels += generated((uint64_t)(30 * i), 30);
    CHECK(kernels > 600 || !*NNC_TEST_CXX);
}

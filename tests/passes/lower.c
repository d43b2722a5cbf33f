/* tests/passes/lower.c -- what fuse makes, codegen can lower: passes ask nnc_kernel_possible of a set in the graph, codegen gets a body. */
#include "codegen/codegen.h"
#include "gen/gen.h"
#include "help.h"

static bool has_contraction(const nnc_graph *body)
{
    for (uint32_t i = 0; i < body->n_node; i++)
        if (nnc_op_class(body->node[i].op) == CL_contract)
            return true;
    return false;
}

TEST(regions_lower)
{
    nnc_target t = help_target(true);
    int regions = 0;
    for (int k = 0; k < 150; k++) {
        gen_options o = {.seed = test_seed + 20000 + (uint64_t)k, .nodes = 40};
        nnc_graph *g = gen_graph(&o, test_sink);
        nnc_pass_options po = {.level = 2, .target = &t};
        nnc_arena a;
        nnc_arena_init(&a, 0);
        CHECK(g != NULL);
        if (g)
            CHECK_OK(nnc_passes_run(&g, &po, NULL, test_sink));
        for (uint32_t i = 0; g && i < g->n_node; i++) {
            const nnc_node *n = &g->node[i];
            if (n->op != OP_fused || has_contraction(n->body))
                continue;
            regions++;
            if (!nnc_lower(g, n, &t, MATH_ulp2, &a, test_sink)) {
                test_fail(__FILE__, __LINE__, "seed %llu: node %u does not lower",
                    (unsigned long long)o.seed, i);
                nnc_sink_print(test_sink, stderr);
                nnc_sink_clear(test_sink);
            }
        }
        nnc_arena_deinit(&a);
        nnc_graph_destroy(g);
    }
    CHECK(regions > 100);
    printf("  %d regions\n", regions);
}

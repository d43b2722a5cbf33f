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
    nnc_target t = help_target();
    int regions = 0;
    for (int k = 0; k < test_draws(150); k++) {
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
    CHECK_USUAL(regions > test_draws(100));
    printf("  %d regions\n", regions);
}

/* `expand` makes many ops of one; `fuse` takes them together first, by their path, also where the text names no layers. */
TEST(ops_without_a_path_are_layers)
{
    static const char text[] = "graph @t { %x = input : f32[20,6]\n%a = silu %x\n"
                               "%c = layernorm %a\nreturn %c }";
    nnc_target t = help_kernels();
    nnc_pass_options po = {
        .level = 2, .skip = (const char *const[]){"fuse"}, .n_skip = 1, .target = &t};
    nnc_graph *g = help_parse("norm", text, sizeof text - 1);
    int n = 0;
    CHECK(g && nnc_passes_run(&g, &po, NULL, test_sink) == NNC_OK);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        n += g->node[i].origin && !strcmp(g->node[i].origin, "%c");
    CHECK(n > 5);
    nnc_graph_destroy(g);
}

/* The kernel of %y and what follows, of which `stored` stores lie in bodies of reductions. */
static void stores_early(const char *text, int stages, int stored)
{
    nnc_target t = help_target();
    nnc_arena a;
    nnc_graph *g = help_parse("early", text, strlen(text));
    nnc_arena_init(&a, 0);
    for (uint32_t i = 0; g && i < g->n_node; i++) {
        if (g->node[i].op != OP_fused)
            continue;
        const nnc_kernel *k = nnc_lower(g, &g->node[i], &t, MATH_ulp2, &a, test_sink);
        int early = 0;
        CHECK(k != NULL);
        for (int s = 0; k && s < k->n_stage; s++)
            for (int j = k->stage[s].body0; j < k->stage[s].body1; j++)
                early += k->ins[j].op == KO_store && k->buf[k->ins[j].buf].role == KB_out &&
                         k->stage[s].post1 > k->stage[s].post0;
        if (k && (k->n_stage != stages || early != stored))
            test_fail(__FILE__, __LINE__,
                "%d stages, %d stores of results in sums, not %d, %d:\n%s", k->n_stage, early,
                stages, stored, text);
    }
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

#define FUSED(dims, body, results) \
    "graph @g {\n%x = input : f32[" dims "]\n" results " = fused %x {\n%x = input : f32[" dims \
    "]\n" body "}\nreturn " results "\n}\n"

/* A result that a sum reads is stored where it is summed, if nothing else is left for its own loops. */
TEST(results_are_stored_where_they_are_summed)
{
    stores_early(FUSED("2,5,7,48",
                     "%v = silu %x\n%w = reduce_mean %v {axes=[1,2], keepdims=1}\n"
                     "return %v, %w\n",
                     "%y, %m"),
        1, 1);
    stores_early(FUSED("2,5,7,48",
                     "%v = silu %x\n%w = reduce_mean %v {axes=[2]}\n"
                     "return %v, %w\n",
                     "%y, %m"),
        1, 1);
    stores_early(
        FUSED("6,48", "%v = exp %x\n%w = reduce_sum %v {axes=[1]}\nreturn %v, %w\n", "%y, %m"), 1,
        1);
    stores_early(FUSED("6,48",
                     "%v = exp %x\n%t = transpose %v {perm=[1,0]}\n"
                     "%w = reduce_sum %v {axes=[1]}\nreturn %t, %w\n",
                     "%y, %m"),
        1, 1);
    /* its loops have other results to store, or the sum is not of it */
    stores_early(FUSED("6,48",
                     "%v = exp %x\n%w = reduce_sum %v {axes=[1], keepdims=1}\n"
                     "%z = sub %v, %w\nreturn %v, %z\n",
                     "%y, %m"),
        2, 0);
    stores_early(FUSED("6,48",
                     "%v = exp %x\n%u = sin %v\n%w = reduce_sum %v {axes=[1]}\n"
                     "return %u, %w\n",
                     "%y, %m"),
        2, 0);
}

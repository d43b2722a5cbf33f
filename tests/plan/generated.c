/* tests/plan/generated.c -- generated graphs on 1 to 4 streams and 1 or 2 devices. The verifier
 * accepts the plan, the text form is exact, costs add up, and a plan is the same when made twice. */
#include "gen/gen.h"
#include "help.h"
#include "passes/passes.h"

static void check_sums(const nnc_graph *g, const nnc_plan *p)
{
    int64_t flops = 0, bytes = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        if (p->cmd[i].kind != CMD_copy) {
            flops += p->cmd[i].flops;
            bytes += p->cmd[i].bytes;
        }
    nnc_cost want = nnc_graph_cost(g);
    CHECK_INT(flops, want.flops);
    CHECK_INT(bytes, want.bytes);
}

static nnc_status optimise(nnc_graph **g)
{
    nnc_target t;
    nnc_remarks r;
    help_target(&t, 4);
    nnc_remarks_init(&r);
    nnc_pass_options o = {.level = 2, .target = &t};
    nnc_status s = nnc_passes_run(g, &o, &r, test_sink);
    nnc_remarks_deinit(&r);
    return s;
}

static void check_case(uint64_t seed, int streams, int devices, int level)
{
    gen_options o = {.seed = seed, .nodes = 8 + (int)(seed % 24), .wild = seed % 3 == 0};
    nnc_graph *g = gen_graph(&o, test_sink);
    CHECK(g != NULL);
    if (!g)
        return;
    uint64_t key = nnc_rng_key("place", seed);
    for (uint32_t i = 0; devices > 1 && i < g->n_node; i++)
        g->node[i].device = (int16_t)(nnc_rng_u32(key, i) % (uint32_t)devices);
    size_t errors = nnc_sink_errors(test_sink);
    if (level > 0)
        CHECK_OK(optimise(&g));
    nnc_plan *p = help_plan(g, streams, devices), *q = help_plan(g, streams, devices);
    if (p && q) {
        help_check(p);
        check_sums(g, p);
        nnc_hash128 a = nnc_plan_hash(p), b = nnc_plan_hash(q);
        CHECK(a.lo == b.lo && a.hi == b.hi);
        for (int d = 0; d < p->n_device; d++)
            CHECK(p->device[d].arena_bytes >= p->device[d].lower_bound);
    } else {
        test_fail(__FILE__, __LINE__, "no plan");
    }
    if (nnc_sink_errors(test_sink) > errors) {
        test_fail(__FILE__, __LINE__, "seed %llu, %d streams, %d devices, -O%d",
            (unsigned long long)seed, streams, devices, level);
        nnc_sink_print(test_sink, stderr);
        nnc_sink_clear(test_sink);
    }
    nnc_plan_destroy(p);
    nnc_plan_destroy(q);
    nnc_graph_destroy(g);
}

TEST(generated_plans)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(160); i++)
        check_case(test_seed + i, 1 + (int)(i % 4), 1 + (int)(i / 4 % 2), i % 3 == 0 ? 2 : 0);
}

/* tests/plan/engine.c -- a call goes to the target's first engine that supports it. */
#include "help.h"

static bool first_ok, second_ok;

static nnc_status choose_first(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)c, (void)sink;
    *out = (nnc_choice){.ok = first_ok, .reason = first_ok ? "one" : "not today"};
    return NNC_OK;
}

static nnc_status choose_second(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)c, (void)sink;
    *out = (nnc_choice){.ok = second_ok, .reason = second_ok ? "two" : "nor here"};
    return NNC_OK;
}

/* The plan of a product for a target with two libraries and interpreted kernels. */
static nnc_plan *plan(void)
{
    static const char text[] = "graph @t {\n%x = input : f32[64,32]\n"
                               "%w = param : f32[32,32] = gen(\"w\", seed=1, scale=0.1)\n"
                               "%y = matmul %x, %w loc \"/y\"\nreturn %y }";
    static const nnc_engine first = {.name = "first", .version = "1", .choose = choose_first},
                            second = {.name = "second", .version = "1", .choose = choose_second};
    static const nnc_engine *const engines[] = {&first, &second, &fake_kernels};
    nnc_target t;
    help_target(&t, 4);
    t.n_engines = 3;
    t.engine[0] = (nnc_target_engine){.name = "first", .efficiency = 0.9};
    t.engine[1] = (nnc_target_engine){.name = "second", .efficiency = 0.9};
    t.engine[2] = (nnc_target_engine){.name = "interp", .efficiency = 0.9};
    const nnc_plan_options o = {
        .target = &t, .engine = engines, .n_engine = 3, .jobs = 1, .streams = 1, .devices = 1};
    nnc_graph *g = help_graph(text);
    nnc_plan *p = NULL;
    if (g)
        CHECK_OK(nnc_plan_make(g, &o, &p, test_sink));
    nnc_graph_destroy(g);
    return p;
}

TEST(first_engine_that_supports_a_call)
{
    static const struct {
        bool first, second;
        const char *engine, *reason;
    } cases[] = {{true, true, "first", "one"}, {true, false, "first", "one"},
        {false, true, "second", "two"},
        {false, false, "interp", "interpreted: the target has no engine for machine code"}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        first_ok = cases[i].first;
        second_ok = cases[i].second;
        nnc_plan *p = plan();
        const nnc_cmd *c = p ? help_cmd(p, "/y") : NULL;
        if (c) {
            CHECK_STR(p->engine[c->engine], cases[i].engine);
            CHECK_STR(c->reason, cases[i].reason);
        }
        nnc_plan_destroy(p);
    }
}

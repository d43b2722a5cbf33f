/* tests/plan/compete.c -- engines compete by the time that they expect: two fake libraries and generated kernels. */
#include "help.h"

static int64_t first_ns, second_ns;

static nnc_status answer(int64_t ns, const char *reason, nnc_choice *out)
{
    *out = (nnc_choice){.ok = ns > 0, .time_ns = ns, .reason = reason};
    return NNC_OK;
}

static nnc_status choose_first(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)c, (void)sink;
    return answer(first_ns, first_ns ? "quick:one" : "not today", out);
}

static nnc_status choose_second(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)c, (void)sink;
    return answer(second_ns, "quick:two", out);
}

static nnc_plan *plan_with(
    const nnc_target *t, const nnc_engine *const *engine, int n, const char *text)
{
    const nnc_plan_options o = {
        .target = t, .engine = engine, .n_engine = n, .jobs = 1, .streams = 1, .devices = 1};
    nnc_graph *g = help_graph(text);
    nnc_plan *p = NULL;
    if (g)
        CHECK_OK(nnc_plan_make(g, &o, &p, test_sink));
    nnc_graph_destroy(g);
    return p;
}

static nnc_plan *plan(const char *text, bool kernels)
{
    static const nnc_engine first = {.name = "first", .version = "1", .choose = choose_first},
                            second = {.name = "second", .version = "1", .choose = choose_second};
    const nnc_engine *engines[] = {&first, &second, &fake_kernels};
    nnc_target t;
    help_target(&t, 4);
    t.n_engines = 2;
    t.engine[0] = (nnc_target_engine){.name = "first", .efficiency = 0.9};
    t.engine[1] = (nnc_target_engine){.name = "second", .efficiency = 0.9};
    if (kernels)
        t.engine[t.n_engines++] = (nnc_target_engine){.name = "interp", .efficiency = 0.9};
    return plan_with(&t, engines, 3, text);
}

#define PRODUCT(form) \
    "graph @t {\n%x = input : f32[64,32]\n%w = param : f32[32,32] = gen(\"w\", seed=1, " \
    "scale=0.1)\n" \
    "%y = matmul %x, %w" form " loc \"/y\"\nreturn %y }"

#define COLUMN(terms, outputs) \
    "graph @t {\n%x = input : f32[64," #terms "]\n%w = param : f32[" #outputs "," #terms \
    "] = gen(\"w\", seed=1, scale=0.1)\n%y = linear %x, %w loc \"/y\"\nreturn %y }"

TEST(engines_compete)
{
    static const struct {
        const char *text;
        int64_t first, second;
        bool kernels;
        const char *winner, *reason; /* the winner NULL: a generated kernel */
    } cases[] = {
        {PRODUCT(""), 2000, 3000, false, "first",
            "quick:one, 2.00 us by estimate (second 3.00 us)"},
        {PRODUCT(""), 3000, 2000, false, "second",
            "quick:two, 2.00 us by estimate (first 3.00 us)"},
        {PRODUCT(""), 2000, 2000, false, "first",
            "quick:one, 2.00 us by estimate (second the same)"},
        {PRODUCT(""), 0, 2000, false, "second", "quick:two"},
        {PRODUCT(""), 1, 2, true, "first",
            "quick:one, 0.001 us by estimate (second 0.002 us, a generated kernel"},
        {PRODUCT(""), 500000000, 400000000, true, NULL, "interpreted"},
        {PRODUCT(" {transpose_b=1}"), 500000000, 400000000, true, "second", "quick:two"},
        {COLUMN(1, 1), 500000000, 400000000, true, NULL, "interpreted"},
        {COLUMN(1, 8), 500000000, 400000000, true, NULL, "interpreted"},
        {COLUMN(4, 8), 500000000, 400000000, true, "second", "quick:two"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        first_ns = cases[i].first;
        second_ns = cases[i].second;
        nnc_plan *p = plan(cases[i].text, cases[i].kernels);
        const nnc_cmd *c = p ? help_cmd(p, "/y") : NULL;
        if (c) {
            CHECK_INT(c->kind, cases[i].winner ? CMD_call : CMD_kernel);
            CHECK_STR(p->engine[c->engine], cases[i].winner ? cases[i].winner : "interp");
            if (strncmp(c->reason, cases[i].reason, strlen(cases[i].reason)) != 0)
                CHECK_STR(c->reason, cases[i].reason);
            if (!strchr(cases[i].reason, ','))
                CHECK(!strstr(c->reason, "a generated kernel"));
        }
        nnc_plan_destroy(p);
    }
}

#define FUSED_LINEAR(weights, bias) \
    "graph @t {\n%x = input : f32[8,256]\n%b = " bias "\n%w = " weights \
    "\n%y = fused %x, %b, %w {\n%p = input : f32[8,256]\n%r = input : f32[64]\n" \
    "%q = input : f32[64,256]\n%l = linear %p, %q, %r\n%z = relu %l\nreturn %z } " \
    "loc \"/y\"\nreturn %y }"

/* oneDNN leaves products of a few rows to kernels where it cannot pack the weights. These may be any operand of a fused node, also its
 * only one. */
TEST(weights_of_fused_products)
{
    static const nnc_engine library = {.name = "onednn", .version = "1", .choose = choose_second};
    static const nnc_engine *const engines[] = {&library, &fake_kernels};
    static const struct {
        const char *text;
        nnc_cmd_kind kind;
    } cases[] = {
        {FUSED_LINEAR("param : f32[64,256] = gen(\"w\", seed=1, scale=1)", "input : f32[64]"),
            CMD_call},
        {FUSED_LINEAR("input : f32[64,256]", "param : f32[64] = gen(\"b\", seed=1, scale=1)"),
            CMD_kernel},
        {"graph @t {\n%x = input : f32[8,256]\n%y = fused %x {\n%p = input : f32[8,256]\n"
         "%l = matmul %p, %p {transpose_b=1}\n%z = relu %l\nreturn %z } loc \"/y\"\nreturn %y }",
            CMD_kernel},
    };
    nnc_target t;
    help_target(&t, 4);
    t.n_engines = 3;
    t.engine[0] = (nnc_target_engine){.name = "onednn", .efficiency = 0.9};
    t.engine[1] = (nnc_target_engine){.name = "llvm", .efficiency = 0.9};
    t.engine[2] = (nnc_target_engine){.name = "interp", .efficiency = 0.9};
    second_ns = 1000;
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_plan *p = plan_with(&t, engines, 2, cases[i].text);
        const nnc_cmd *c = p ? help_cmd(p, "/y") : NULL;
        if (c && c->kind != cases[i].kind)
            test_fail(__FILE__, __LINE__, "case %d: %s", (int)i, c->reason);
        nnc_plan_destroy(p);
    }
}

/* tests/nvrtc/over.c -- the budget finds what is over it: machine code made worse than its schedule, by a change of the CUDA C between
 * emitter and NVRTC. Without its change each kernel is within the budget. */
#include "budget.h"
#include "compile.h"
#include "plan/plan.h"
#include "test.h"

typedef struct change {
    const char *model, *from[2], *to[2]; /* each `from` at every place in the text */
    const char *finds;
} change;

static const change changes[] = {
    {"models/layernorm.json", {"__launch_bounds__(256)\n"}, {"__maxnreg__(20)\n"},
        "loads and stores of local memory"},
    {"models/relu.json", {"nnc_load<4>(x0 + i0)"}, {"{x0[i0], x0[i0 + 1], x0[i0 + 2], x0[i0 + 3]}"},
        "loads of 0x8 0x16 8x32"},
    {"models/relu.json", {"nnc_store<4>(&y0[i0], max_2)"},
        {"for (int e = 0; e < 4; e++) y0[i0 + e] = max_2[e]"}, "stores of 0x8 0x16 8x32"},
    {"models/relu.json", {"nnc_store<4>(&y0[i0], max_2)"},
        {"float a[32]; for (int e = 0; e < 32; e++) a[e] = max_2[e % 4] * e; "
         "for (int e = 0; e < 4; e++) y0[i0 + e] = a[(i0 + e) % 31]"},
        "of them of arrays; 128 bytes"},
    {"models/nested_sin.json", {"u < 2;", "x0_0[2];"}, {"u < 24;", "x0_0[24];"}, "registers"},
    {"models/nested_sin.json", {"mul_2 = sin_1 * sin_1;"}, {"mul_2 = powf(expf(sin_1), sin_1);"},
        "instructions on the usual path"},
};

/* Every `from` replaced in place of the text; false: there is none. */
static bool replace(nnc_text *t, const char *from, const char *to)
{
    nnc_text out = {0};
    int n = 0;
    const char *p = nnc_text_str(t);
    for (const char *q; (q = strstr(p, from)); p = q + strlen(from), n++) {
        nnc_putn(&out, p, (size_t)(q - p));
        nnc_puts(&out, to);
    }
    nnc_puts(&out, p);
    nnc_text_deinit(t);
    *t = out;
    return n > 0;
}

/* The budget's answer for the plan's only kernel, compiled from `source`; "" where it is content. */
static void judge(const nnc_plan *p, const char *source, char why[256])
{
    static const char *const option[] = {"--fmad=false"};
    nnc_nvrtc_unit u = {.name = "changed.cu", .source = source};
    nnc_arena a;
    nnc_cubin_kernel *c;
    nnc_scan s;
    int n = 0, sm;
    nnc_arena_init(&a, 0);
    CHECK_OK(nnc_nvrtc_compile(
        &u, 1, &(nnc_nvrtc_options){.sm = 80, .option = option, .n_option = 1}, test_sink));
    if (u.code)
        CHECK_OK(nnc_cubin_read(u.code, u.n, &a, &c, &n, &sm, test_sink));
    nnc_scan_init(&s, "k", p->kernel[0].ir, strlen(p->kernel[0].ir));
    const nnc_kernel *k = nnc_schedule_parse(&s, &a, test_sink);
    CHECK(n == 1 && k);
    if (n != 1 || !k || !budget_check(k, &c[0], true, why))
        why[0] = 0;
    nnc_free(u.code);
    nnc_arena_deinit(&a);
}

static void check_change(nnc_env *e, const change *x)
{
    nnc_artifact *a = NULL;
    nnc_text t = {0};
    char why[256];
    nnc_model *g = nnc_model_open(x->model, &(nnc_open_options){0}, test_sink);
    CHECK_OK(nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink));
    CHECK_OK(nnc_emit_text(e, a, "cuda", &t, test_sink));
    judge(nnc_artifact_plan(a), nnc_text_str(&t), why);
    CHECK_STR(why, "");
    for (int i = 0; i < 2 && x->from[i]; i++)
        if (!replace(&t, x->from[i], x->to[i]))
            test_fail(
                __FILE__, __LINE__, "%s: no %s in\n%s", x->model, x->from[i], nnc_text_str(&t));
    judge(nnc_artifact_plan(a), nnc_text_str(&t), why);
    if (!strstr(why, x->finds))
        test_fail(__FILE__, __LINE__, "%s with %s: found is \"%s\", not \"%s\"", x->model, x->to[0],
            why, x->finds);
    nnc_text_deinit(&t);
    nnc_artifact_destroy(a);
    nnc_model_close(g);
}

TEST(nvrtc_over_budget)
{
    nnc_env *e;
    if (compile_absent())
        return;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_80", .no_cache = true}, &e, test_sink));
    for (size_t i = 0; e && i < NNC_COUNT(changes); i++)
        check_change(e, &changes[i]);
    nnc_env_destroy(e);
}

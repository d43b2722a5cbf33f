/* tests/nvrtc/contract.c -- machine code of contractions on tensor cores, in every tile that the schedule chooses. Products are as the
 * schedule counts them; there is no stack, and registers suffice for the resident threads that it counts on. */
#include "budget.h"
#include "codegen/codegen.h"
#include "compile.h"
#include "cuda/cuda.h"
#include "test.h"

static const int archs[] = {80, 90, 100};

/* Rows in images, terms, columns; the group and vec of its tile on an H200 (sm_90). */
static const struct {
    int images, rows, terms, columns, group, vec;
    const char *type, *before, *after;
} cases[] = {
    {128, 3136, 96, 24, 128, 32, "f16", "%u = mul %x, %g", "%y = add %s, %b"},
    {128, 12544, 16, 96, 128, 32, "f16", "%u = identity %x", "%t = add %s, %b\n%y = silu %t"},
    {128, 784, 240, 80, 128, 128, "bf16", "%t = mul %x, %g\n%u = relu %t", "%y = gelu %s"},
    {64, 784, 144, 60, 128, 64, "bf16", "%t = add %x, %g\n%u = tanh %t", "%y = sigmoid %s"},
    {128, 196, 672, 112, 64, 128, "f16", "%u = mul %x, %g", "%y = add %s, %b"},
    {128, 784, 240, 40, 64, 64, "f16", "%u = mul %x, %g", "%y = add %s, %b"},
    {128, 196, 512, 512, 128, 128, "f16", "%t = sub %x, %g\n%u = relu %t",
        "%t2 = add %s, %b\n%y = relu %t2"},
    {2, 49, 1152, 192, 64, 32, "f16", "%u = mul %x, %g", "%y = add %s, %b"},
    {2, 49, 320, 128, 64, 32, "bf16", "%u = identity %x", "%y = silu %s"},
};

static const nnc_kernel *kernel_of(size_t i, const nnc_target *t, nnc_arena *a)
{
    char text[1500], body[400];
    nnc_scan s;
    const int n = cases[i].images, m = cases[i].rows, k = cases[i].terms, c = cases[i].columns;
    const char *d = cases[i].type;
    snprintf(body, sizeof body,
        "%%x = input : %s[%d,%d,%d]\n%%w = input : %s[%d,%d]\n%%g = input : %s[%d,1,%d]\n"
        "%%b = input : %s[%d]\n",
        d, n, m, k, d, c, k, d, n, k, d, c);
    snprintf(text, sizeof text,
        "graph @t {\n%s%%z = fused %%x, %%w, %%g, %%b {\n%s%s\n%%s = linear %%u, %%w "
        "{as_kernel=1}\n%s\n"
        "return %%y\n} : %s[%d,%d,%d]\nreturn %%z }",
        body, body, cases[i].before, cases[i].after, d, n, m, c);
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    const nnc_kernel *found = NULL;
    for (uint32_t v = 0; g && v < g->n_node; v++)
        if (g->node[v].op == OP_fused)
            found = nnc_lower(g, &g->node[v], t, MATH_ulp2, a, test_sink);
    nnc_graph_destroy(g);
    CHECK(found && found->grid.cls == KC_contract);
    return found && found->grid.cls == KC_contract ? found : NULL;
}

static void check(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_arena *a)
{
    char *text = NULL, why[256];
    size_t bytes = 0;
    nnc_cubin_kernel *code = NULL;
    int found = 0, sm = 0;
    CHECK_OK(nnc_emitter_cuda.emit(k, n, t, EMIT_cuda, &text, &bytes, test_sink));
    nnc_nvrtc_unit u = {.name = "contract.cu", .source = text};
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &(nnc_nvrtc_options){.sm = t->sm, .jobs = 1}, test_sink));
    if (u.code)
        CHECK_OK(nnc_cubin_read(u.code, u.n, a, &code, &found, &sm, test_sink));
    CHECK_INT(found, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < found; j++)
            if (!strcmp(code[j].name, k[i]->name)) {
                const char *bad = budget_check(k[i], &code[j], true, why);
                if (bad)
                    test_fail(__FILE__, __LINE__, "sm_%d: %s: %s", t->sm, k[i]->name, bad);
            }
    nnc_free(u.code);
    nnc_free(text);
}

TEST(nvrtc_contractions)
{
    if (compile_absent())
        return;
    for (size_t i = 0; i < NNC_COUNT(archs); i++) {
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_target t;
        char name[16];
        const nnc_kernel *k[NNC_COUNT(cases)];
        int n = 0;
        snprintf(name, sizeof name, "cuda:sm_%d", archs[i]);
        CHECK_OK(nnc_target_cuda(&t, name, test_sink));
        for (size_t j = 0; j < NNC_COUNT(cases); j++) {
            k[n] = kernel_of(j, &t, &a);
            if (k[n] && archs[i] == 90) {
                CHECK_INT(k[n]->grid.group, cases[j].group);
                CHECK_INT(k[n]->grid.vec, cases[j].vec);
            }
            n += k[n] != NULL;
        }
        check(k, n, &t, &a);
        nnc_target_deinit(&t);
    }
}

/* tests/api/aarch64.c -- described AArch64 CPUs on any machine: plans, reports, machine code, and its refusal where it cannot run. */
#include "help.h"
#include "report/report.h"
#include <string.h>

static int lines_with(const char *text, const char *word)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, word)) != NULL; s++)
        n++;
    return n;
}

/* Vectors of four floats, multiply-adds, and nothing of another machine. */
static void check_code(nnc_env *e, const nnc_artifact *a)
{
    nnc_text asm_ = {0}, llvm = {0}, kernels = {0};
    CHECK_OK(nnc_emit_text(e, a, "asm", &asm_, test_sink));
    CHECK_OK(nnc_emit_text(e, a, "llvm", &llvm, test_sink));
    CHECK_OK(nnc_emit_text(e, a, "kernels", &kernels, test_sink));
    CHECK(lines_with(nnc_text_str(&asm_), "\tfmla\tv") > 0);
    CHECK(lines_with(nnc_text_str(&asm_), ".4s") > 0 && !strstr(nnc_text_str(&asm_), "xmm"));
    CHECK(strstr(nnc_text_str(&llvm), "target triple = \"aarch64-") != NULL);
    CHECK(!strstr(nnc_text_str(&llvm), "llvm.x86.") && kernels.n > 0);
    nnc_text_deinit(&kernels);
    nnc_text_deinit(&llvm);
    nnc_text_deinit(&asm_);
}

/* Code of another architecture is refused before it runs. */
static void check_refused(nnc_env *e, const nnc_artifact *a)
{
    nnc_session *s = NULL;
    nnc_target host;
    CHECK_OK(nnc_target_host(&host, 0, 1, true, test_sink));
    if (!nnc_target_core(host.core)) {
        CHECK_INT(nnc_session_create(e, a, &s, test_sink), NNC_E_DEVICE);
        CHECK_DIAG("AArch64 instructions");
        nnc_sink_clear(test_sink);
    }
    CHECK(s == NULL);
    nnc_session_destroy(s);
    nnc_target_deinit(&host);
}

/* False: LLVM has no code generator for AArch64. */
static bool plans_and_emits(const char *core, const char *file)
{
    char target[32];
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_text why = {0};
    const nnc_compile_options o = nnc_compile_defaults;
    snprintf(target, sizeof target, "cpu:%s", core);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = target, .threads = 2, TEST_CACHED}, &e, test_sink));
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){0}, test_sink);
    CHECK(e && m);
    const nnc_status st = e && m ? nnc_compile(e, m, &o, &a, test_sink) : NNC_E_BUG;
    const bool lacks = st == NNC_E_DEVICE && test_has_diag("LLVM has no code generator");
    if (lacks)
        nnc_sink_clear(test_sink);
    else
        CHECK_OK(st);
    if (a && !api_check_artifact(a, &why, test_sink))
        test_fail(__FILE__, __LINE__, "%s for %s: %s", file, target, nnc_text_str(&why));
    if (a && nnc_env_emitter()) {
        check_code(e, a);
        check_refused(e, a);
    }
    nnc_text_deinit(&why);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
    return !lacks;
}

TEST(aarch64_plans_and_code)
{
    static const char *const file[] = {
        "models/mlp.json", "models/conv.json", "models/lstm_classifier.json"};
    bool ok = true;
    for (int i = 0; nnc_target_core_at(i) && ok; i++)
        for (size_t k = 0; k < NNC_COUNT(file) && ok; k++)
            ok = plans_and_emits(nnc_target_core_at(i)->name, file[k]);
    if (!ok)
        test_skip("LLVM has no code generator for AArch64");
}

/* tests/nvrtc/dump.c -- what --dump-dir says of the machine code: each kernel of the plan once and in its order, with the layers of its
 * launches and the counts of its own code. */
#include "compile.h"
#include "plan/plan.h"
#include "test.h"
#include <stdlib.h>

static void check_text(const nnc_plan *p, const char *text)
{
    char line[300];
    const char *at = text;
    for (int i = 0; i < p->n_kernel; i++) {
        const char *symbol = p->kernel[i].symbol;
        snprintf(line, sizeof line, "%s in unit0.cu\n", symbol);
        at = at ? strstr(at, line) : NULL;
        if (!at) {
            test_fail(__FILE__, __LINE__, "no %s in its place in\n%s", line, text);
            return;
        }
        CHECK(!strstr(at + 1, line));
        for (int c = 0; c < p->n_cmd; c++)
            if (p->cmd[c].kind == CMD_kernel && p->cmd[c].item == i)
                CHECK(strstr(at, p->cmd[c].layers) != NULL);
        snprintf(line, sizeof line, "\n  %s: ", symbol);
        const char *code = strstr(at, line);
        CHECK(code && strstr(code, " registers, ") && strstr(code, " on the usual path"));
    }
}

static void check_dump(nnc_env *e, const char *file)
{
    char dir[] = "/tmp/nnc-dump-XXXXXX", path[64], command[64], *text = NULL;
    size_t n;
    nnc_artifact *a = NULL;
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){0}, test_sink);
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(nnc_compile(e, m, &nnc_compile_defaults, &a, test_sink));
    CHECK_OK(nnc_dump(e, a, dir, test_sink));
    snprintf(path, sizeof path, "%s/code.txt", dir);
    CHECK_OK(nnc_file_read(path, 0, &text, &n, test_sink));
    if (a && text)
        check_text(nnc_artifact_plan(a), text);
    nnc_free(text);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
}

TEST(nvrtc_dump)
{
    static const char *const models[] = {"models/softmax.json", "models/vgg16.json"};
    nnc_env *e;
    if (compile_absent())
        return;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    for (size_t i = 0; e && i < NNC_COUNT(models); i++)
        check_dump(e, models[i]);
    nnc_env_destroy(e);
}

/* tests/nvrtc/dump.c -- what --dump-dir says of the machine code. Each kernel of the plan is there once and in its order, with the
 * layers of its launches and the counts of its own code. NVRTC compiles what stands above each kernel of the source as it is written. */
#include "compile.h"
#include "cuda/cuda.h"
#include "plan/plan.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

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
        CHECK(code && strstr(code, " registers, ") && strstr(code, " instructions: "));
    }
}

/* The comment above kernel i has a layer and the types of all arguments of its first launch. */
static void check_head(const nnc_plan *p, int i, const char *source)
{
    char line[400];
    const nnc_cmd *c = NULL;
    for (int k = 0; k < p->n_cmd && !c; k++)
        if (p->cmd[k].kind == CMD_kernel && p->cmd[k].item == i)
            c = &p->cmd[k];
    snprintf(line, sizeof line, "\n/* %s\n *   %s ", p->kernel[i].symbol,
        c - p->cmd < nnc_plan_first(p, SEC_main) ? "at load" : "layers");
    const char *at = strstr(source, line), *end = at ? strstr(at, " */\n") : NULL;
    char *head = end ? strndup(at, (size_t)(end - at)) : NULL;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(c->layers, "+"), c->layers);
    CHECK(head && strstr(head, line));
    for (int k = 0; head && k < c->n_arg; k++) {
        nnc_text t = {0};
        int written = k - (c->n_arg - p->kernel[i].n_out);
        nnc_printf(&t, "\n *   %c%-8d ", written < 0 ? 'x' : 'y', written < 0 ? k : written);
        nnc_put_type(&t, &p->tensor[c->arg[k]].type);
        CHECK(strstr(head, nnc_text_str(&t)) != NULL);
        nnc_text_deinit(&t);
    }
    free(head);
}

static void check_source(const nnc_plan *p, const char *text)
{
    nnc_nvrtc_unit u = {.name = "dumped.cu", .source = text};
    static const char *const fmad[] = {"--fmad=false"};
    nnc_nvrtc_options o = {.sm = 90, .jobs = 1, .option = fmad, .n_option = 1};
    for (int i = 0; i < p->n_kernel; i++)
        check_head(p, i, text);
    CHECK_OK(nnc_nvrtc_compile(&u, 1, &o, test_sink));
    CHECK_INT(u.n, p->object[0].n);
    nnc_free(u.code);
}

static void read_dumped(const char *dir, const char *name, char **text)
{
    char path[64];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(nnc_file_read(path, 0, text, &n, test_sink));
}

/* The fallback for a GPU that NVRTC does not support is noted once, however many units there are. */
static void check_said_once(void)
{
    int n = 0;
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++)
        n += strstr(nnc_sink_at(test_sink, i)->message, "does not support sm_999") != NULL;
    CHECK_INT(n, 1);
}

static void dump(nnc_env *e, const char *file, const char *dir, nnc_artifact **a)
{
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){0}, test_sink);
    CHECK_OK(nnc_compile(e, m, &nnc_compile_defaults, a, test_sink));
    CHECK_OK(nnc_dump(e, *a, dir, test_sink));
    nnc_model_close(m);
}

static void remove_dump(const char *dir)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_INT(system(command), 0);
}

static void check_dump(nnc_env *e, const char *file)
{
    char dir[] = "/tmp/nnc-dump-XXXXXX", *text = NULL, *source = NULL;
    nnc_artifact *a = NULL;
    CHECK(mkdtemp(dir) != NULL);
    dump(e, file, dir, &a);
    read_dumped(dir, "code.txt", &text);
    read_dumped(dir, "unit0.cu", &source);
    if (a && text)
        check_text(nnc_artifact_plan(a), text);
    if (a && source)
        check_source(nnc_artifact_plan(a), source);
    nnc_free(text);
    nnc_free(source);
    nnc_artifact_destroy(a);
    remove_dump(dir);
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

TEST(nvrtc_dump_for_the_unknown)
{
    char dir[] = "/tmp/nnc-dump-XXXXXX";
    nnc_env *e;
    nnc_artifact *a = NULL;
    if (compile_absent())
        return;
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_999", .no_cache = true}, &e, test_sink));
    dump(e, "models/relu.json", dir, &a);
    check_said_once();
    nnc_sink_clear(test_sink);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    remove_dump(dir);
}

/* What NVRTC makes for a dump is kept in the cache, from which the same dump comes again. */
TEST(nvrtc_dump_again)
{
    char dir[] = "/tmp/nnc-dump-XXXXXX", cache[] = "/tmp/nnc-cache-XXXXXX", *ptx[2] = {NULL, NULL};
    char command[64];
    if (compile_absent())
        return;
    CHECK(mkdtemp(dir) != NULL && mkdtemp(cache) != NULL);
    for (int i = 0; i < 2; i++) {
        nnc_env *e;
        nnc_artifact *a = NULL;
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = "cuda:sm_90", .cache_dir = cache}, &e, test_sink));
        dump(e, "models/softmax.json", dir, &a);
        read_dumped(dir, "unit0.ptx", &ptx[i]);
        nnc_artifact_destroy(a);
        nnc_env_destroy(e);
    }
    snprintf(command, sizeof command, "ls %s | grep -q ^ptx-", cache);
    CHECK_INT(system(command), 0);
    CHECK(ptx[0] && ptx[1] && !strcmp(ptx[0], ptx[1]));
    nnc_free(ptx[0]);
    nnc_free(ptx[1]);
    remove_dump(dir);
    remove_dump(cache);
}

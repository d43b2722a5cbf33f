/* tests/api/oom.c -- memory runs out at every allocation of opening, compiling, saving, loading and running a model. Each time
 * there is NNC_E_NOMEM with a message, or the same artifact. Nothing is leaked (the sanitizer build looks), nothing half done. */
#include "help.h"

#include <stdlib.h>
#include <unistd.h>

static char dir[256];
static char saved[300];

typedef struct attempt {
    nnc_env *env;
    nnc_model *model;
    nnc_artifact *artifact, *loaded;
    nnc_session *session;
    nnc_text text;
    float *out;
} attempt;

static void release(attempt *a)
{
    nnc_session_destroy(a->session);
    nnc_artifact_destroy(a->loaded);
    nnc_artifact_destroy(a->artifact);
    nnc_model_close(a->model);
    nnc_env_destroy(a->env);
    nnc_text_deinit(&a->text);
    free(a->out);
}

static nnc_status run(attempt *a)
{
    for (int i = 0; i < nnc_session_inputs(a->session); i++) {
        static float zero[1 << 16];
        NNC_TRY(nnc_session_input(a->session, i, zero, test_sink));
    }
    NNC_TRY(nnc_session_run(a->session, test_sink));
    a->out = calloc(1, (size_t)nnc_type_bytes(nnc_session_output_type(a->session, 0)));
    return nnc_session_output(a->session, 0, a->out, test_sink);
}

static nnc_status everything(
    attempt *a, const char *file, const nnc_arg *arg, int n_arg, int level, bool no_llvm)
{
    nnc_env_options eo = {.threads = 1, .no_cache = true, .no_llvm = no_llvm};
    nnc_compile_options o = nnc_compile_defaults;
    bool fits;
    o.level = level;
    o.jobs = 1;
    NNC_TRY(nnc_env_create(&eo, &a->env, test_sink));
    a->model = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n_arg}, test_sink);
    if (!a->model)
        return nnc_sink_cause(test_sink, NNC_E_BUG);
    NNC_TRY(nnc_compile(a->env, a->model, &o, &a->artifact, test_sink));
    NNC_TRY(nnc_report_explain(a->artifact, NNC_TEXT, true, &a->text));
    NNC_TRY(nnc_report_memory(a->env, a->artifact, NNC_JSON, &a->text, &fits));
    NNC_TRY(nnc_report_show(a->model, NNC_TEXT, &a->text));
    NNC_TRY(nnc_artifact_save(a->artifact, saved, true, test_sink));
    NNC_TRY(nnc_artifact_load(a->env, saved, &a->loaded, test_sink));
    NNC_TRY(nnc_session_create(a->env, a->loaded, &a->session, test_sink));
    return run(a);
}

static bool same_bytes(const char *want, size_t n)
{
    char *got = NULL;
    size_t n_got = 0;
    CHECK_OK(nnc_file_read(saved, 0, &got, &n_got, test_sink));
    bool same = got && n_got == n && !memcmp(got, want, n);
    nnc_free(got);
    return same;
}

static void sweep(const char *file, const nnc_arg *arg, int n_arg, int level, bool no_llvm)
{
    int fine = 0; /* attempts in a row that an absent allocation did not hurt */
    int tried = 0, dense = api_sanitized ? 100 : 300;
    char *want = NULL;
    size_t n_want = 0;
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(saved, sizeof saved, "%s/m.nnc", dir);
    {
        attempt warm = {0}; /* plug-ins load once in a process, teams of threads start */
        CHECK_OK(everything(&warm, file, arg, n_arg, level, no_llvm));
        CHECK_OK(nnc_file_read(saved, 0, &want, &n_want, test_sink));
        release(&warm);
    }
    for (int64_t n = 1; fine < 40 && n < 2000000;
         n += tried < dense ? 1 : 1 + n / test_draws(api_sanitized ? 60 : 100)) {
        attempt a = {0};
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_status st = everything(&a, file, arg, n_arg, level, no_llvm);
        nnc_fail_alloc_after(0);
        fine = st == NNC_OK ? fine + 1 : 0;
        tried++;
        if (st != NNC_OK && st != NNC_E_NOMEM && st != NNC_E_FIT) { /* FIT: of a device */
            test_fail(__FILE__, __LINE__, "%s -O%d, allocation %lld: %s", file, level, (long long)n,
                nnc_status_name(st));
            nnc_sink_print(test_sink, stderr);
        }
        if (st == NNC_OK && !same_bytes(want, n_want))
            test_fail(__FILE__, __LINE__, "%s -O%d, allocation %lld: another artifact", file, level,
                (long long)n);
        release(&a);
    }
    nnc_free(want);
    CHECK_INT(fine, 40);
    printf("  %s -O%d: %d attempts\n", file, level, tried);
    api_rmdir(dir);
}

TEST(out_of_memory_mlp)
{
    static const nnc_arg arg[] = {{"batch", "2"}, {"hidden", "8"}, {"depth", "1"}};
    sweep("models/mlp.json", arg, 3, 2, false);
}

TEST(out_of_memory_conv)
{
    static const nnc_arg arg[] = {{"batch", "1"}, {"image", "5"}, {"conv", "1"}, {"fc", "1"},
        {"channels", "8"}, {"features", "8"}};
    sweep("models/conv_fc_stack.json", arg, 6, 2, false);
}

TEST(out_of_memory_nest)
{
    static const nnc_arg arg[] = {{"batch", "1"}, {"tokens", "3"}, {"dim", "8"}, {"blocks", "1"}};
    sweep("models/transformer_mlp.json", arg, 4, 3, true);
    sweep("models/transformer_mlp.json", arg, 4, 0, true);
}

/* A value that overlapping windows read is stored in a ring of rows, or not: that too is asked by building kernels. */
TEST(out_of_memory_windows)
{
    static const char model[] =
        "{\"inputs\":{\"x\":[1,2,12,40]},\"layers\":[{\"op\":\"gelu\"},"
        "{\"op\":\"maxpool\",\"kernel\":3,\"stride\":1,\"pad\":1},{\"op\":\"sigmoid\"}]}";
    char file[] = "/tmp/nnc-oom-XXXXXX.json";
    int fd = mkstemps(file, 5);
    CHECK(fd >= 0);
    CHECK_OK(nnc_file_write(file, model, sizeof model - 1, false, test_sink));
    sweep(file, NULL, 0, 2, true);
    close(fd);
    unlink(file);
}

TEST(out_of_memory_compare)
{
    static const nnc_arg arg[] = {{"batch", "3"}, {"cols", "17"}};
    int fine = 0;
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.threads = 1, .no_cache = true, .no_llvm = true}, &e, test_sink));
    nnc_model *m = nnc_model_open(
        "models/softmax.json", &(nnc_open_options){.arg = arg, .n_arg = 2}, test_sink);
    CHECK(m != NULL);
    for (int64_t n = 0, tried = 0; e && m && fine < 20 && n < 2000000;
         n += tried < 60 ? 1 : 1 + n / test_draws(25), tried++) {
        nnc_compare_options o = {
            .compile = nnc_compile_defaults, .warmup = 1, .iterations = 1, .steps = true};
        o.compile.jobs = 1;
        nnc_text t = {0};
        bool agrees = false;
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_status st = nnc_compare(e, m, &o, NNC_TEXT, &t, &agrees, test_sink);
        nnc_fail_alloc_after(0);
        fine = n > 0 && st == NNC_OK ? fine + 1 : 0;
        if (st != NNC_OK && st != NNC_E_NOMEM && st != NNC_E_FIT) { /* FIT: of a device */
            test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(st));
            nnc_sink_print(test_sink, stderr);
        }
        CHECK(st != NNC_OK || agrees);
        nnc_text_deinit(&t);
    }
    CHECK_INT(fine, 20);
    nnc_model_close(m);
    nnc_env_destroy(e);
}

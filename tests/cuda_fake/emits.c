/* tests/cuda_fake/emits.c -- every stage of models in 16 bits as text, and the dump of all of them. Each layer's kernels are emitted as at
 * their own size, under AddressSanitizer too. Nothing runs, so sizes cost nothing; a batch decides how a kernel is scheduled. */
#include "session/session.h"
#include "help.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const stages[] = {"graph", "plan", "kernels", "dot", "remarks", "cuda", "ptx"};

/* Every file of the dump has something in it. */
static int count_files(const char *dir, const char *pattern)
{
    char path[160];
    glob_t found = {0};
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, pattern);
    int n = glob(path, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    for (int i = 0; i < n; i++)
        CHECK(stat(found.gl_pathv[i], &st) == 0 && st.st_size > 0);
    globfree(&found);
    return n;
}

static void check_dump(nnc_env *e, const nnc_artifact *a, const char *what)
{
    char dir[] = "/tmp/nnc_emits_XXXXXX", command[64];
    const int units = nnc_artifact_plan(a)->n_object;
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(nnc_dump(e, a, dir, test_sink));
    if (count_files(dir, "*.txt") != 4 - (units == 0) || count_files(dir, "unit*.cu") != units)
        test_fail(__FILE__, __LINE__, "%s: the dump of %d units is incomplete", what, units);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_INT(system(command), 0);
}

static void check(nnc_env *e, const char *file, nnc_precision precision, const nnc_arg *arg, int n)
{
    char what[200];
    nnc_artifact *a = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n}, test_sink);
    o.precision = precision;
    snprintf(what, sizeof what, "%s, %s, %s", file, nnc_precision_name(precision),
        n ? arg[0].value : "");
    if (m)
        CHECK_OK(nnc_compile(e, m, &o, &a, test_sink));
    for (size_t i = 0; a && i < NNC_COUNT(stages); i++) {
        nnc_text t = {0};
        CHECK_OK(nnc_emit_text(e, a, stages[i], &t, test_sink));
        if (!t.n && nnc_artifact_plan(a)->n_kernel)
            test_fail(__FILE__, __LINE__, "%s: no %s", what, stages[i]);
        nnc_text_deinit(&t);
    }
    if (a)
        check_dump(e, a, what);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
}

static const nnc_precision both[] = {NNC_PRECISION_f16, NNC_PRECISION_bf16};

TEST(emits_vgg16)
{
    static const char *const batch[] = {"1", "64", "128"}, *const image[] = {"224", "64"};
    static const char *const order[] = {"relu-pool", "pool-relu"};
    nnc_env *e = NULL;
    fake_begin(0);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    for (int i = 0; e && i < 24; i++) {
        const nnc_arg arg[] = {
            {"batch", batch[i % 3]}, {"image", image[i / 3 % 2]}, {"order", order[i / 6 % 2]}};
        check(e, "models/vgg16.json", both[i / 12], arg, 3);
    }
    nnc_env_destroy(e);
    char why[512];
    CHECK(!fake_end(why));
}

TEST(emits_models)
{
    glob_t files = {0};
    nnc_env *e = NULL;
    fake_begin(0);
    CHECK_INT(glob("models/*.json", 0, NULL, &files), 0);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    for (size_t i = 0; e && i < files.gl_pathc * NNC_COUNT(both); i++)
        if (test_takes(i / NNC_COUNT(both), 4))
            check(e, files.gl_pathv[i / NNC_COUNT(both)], both[i % NNC_COUNT(both)], NULL, 0);
    nnc_env_destroy(e);
    globfree(&files);
    char why[512];
    CHECK(!fake_end(why));
}

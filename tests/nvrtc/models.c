/* tests/nvrtc/models.c -- what NVRTC makes of every generated kernel of every model, at full size, on four architectures. Nothing is
 * spilled, nothing is in local memory but a slow sine's table. Accesses are as wide as the schedules say, registers and instructions
 * within the budget. */
#include "budget.h"
#include "compile.h"
#include "plan/plan.h"
#include "test.h"
#include <glob.h>
#include <string.h>

static const char *const archs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};

/* By default half of the models are compiled, each for one of them: the same for all its variants, which share kernels. */
static bool is_taken(const char *file, size_t arch)
{
    return test_takes(nnc_rng_key(file, 1) % 8 + 2 * arch, 8);
}

/* Besides each model as its file has it. */
static const compile_job variants[] = {
    {.file = "models/conv_fc_stack.json", .arg = {{"batch", "128"}}, .n_arg = 1},
    {.file = "models/efficientnet_b0.json", .arg = {{"batch", "128"}}, .n_arg = 1},
    {.file = "models/efficientnet_b0.json", .precision = NNC_PRECISION_tf32},
    {.file = "models/efficientnet_b0.json", .precision = NNC_PRECISION_f16},
    {.file = "models/efficientnet_b0.json",
        .arg = {{"batch", "128"}},
        .n_arg = 1,
        .precision = NNC_PRECISION_bf16},
    {.file = "models/layernorm.json", .arg = {{"cols", "1024"}}, .n_arg = 1},
    {.file = "models/layernorm.json", .arg = {{"cols", "50257"}}, .n_arg = 1},
    {.file = "models/mlp.json", .arg = {{"act", "gelu"}}, .n_arg = 1},
    {.file = "models/mlp.json", .arg = {{"act", "sigmoid"}}, .n_arg = 1},
    {.file = "models/mlp.json", .arg = {{"act", "silu"}}, .n_arg = 1},
    {.file = "models/mlp.json", .arg = {{"act", "tanh"}}, .n_arg = 1},
    {.file = "models/nested_sin.json", .arg = {{"depth", "1"}}, .n_arg = 1},
    {.file = "models/nested_sin.json", .arg = {{"depth", "16"}}, .n_arg = 1},
    {.file = "models/nested_sin.json", .arg = {{"depth", "64"}}, .n_arg = 1},
    {.file = "models/nested_sin.json", .arg = {{"depth", "4"}, {"dtype", "bf16"}}, .n_arg = 2},
    {.file = "models/nested_sin.json", .arg = {{"depth", "4"}, {"dtype", "f16"}}, .n_arg = 2},
    {.file = "models/nested_sin.json", .arg = {{"depth", "16"}, {"dtype", "f16"}}, .n_arg = 2},
    {.file = "models/nested_sin.json", .arg = {{"depth", "4"}, {"dtype", "f64"}}, .n_arg = 2},
    {.file = "models/nested_sin.json", .arg = {{"depth", "4"}, {"n", "4294967296"}}, .n_arg = 2},
    {.file = "models/nested_sin.json", .arg = {{"depth", "4"}, {"n", "16777217"}}, .n_arg = 2},
    {.file = "models/conv_fc_stack.json", .precision = NNC_PRECISION_bf16},
    {.file = "models/mlp.json", .precision = NNC_PRECISION_f16},
    {.file = "models/transformer_mlp.json", .precision = NNC_PRECISION_f16},
    {.file = "models/transformer_mlp.json", .precision = NNC_PRECISION_bf16},
    {.file = "models/vgg16.json", .precision = NNC_PRECISION_f16},
    {.file = "models/vgg16.json",
        .arg = {{"batch", "128"}},
        .n_arg = 1,
        .precision = NNC_PRECISION_bf16},
    {.file = "models/softmax.json", .arg = {{"cols", "1000"}}, .n_arg = 1},
    {.file = "models/softmax.json", .arg = {{"cols", "50257"}}, .n_arg = 1},
    {.file = "models/transformer_mlp.json", .arg = {{"gelu", "tanh"}}, .n_arg = 1},
    {.file = "models/vgg16.json", .arg = {{"batch", "128"}}, .n_arg = 1},
    {.file = "models/vgg16.json", .arg = {{"bn", "1"}}, .n_arg = 1},
    {.file = "models/vgg16.json", .arg = {{"order", "pool-relu"}}, .n_arg = 1},
    {.file = "models/vgg16.json", .arg = {{"order", "pool-relu"}, {"bn", "1"}}, .n_arg = 2},
    {.file = "models/linear.json", .arg = {{"batch", "1"}}, .n_arg = 1},
};

/* For sm_90 alone: an sm_75 has no room for two such rows. */
static const compile_job shares[] = {
    {.file = "models/layernorm.json", .arg = {{"cols", "32768"}}, .n_arg = 1},
    {.file = "models/softmax.json", .arg = {{"cols", "32768"}}, .n_arg = 1},
    {.file = "models/efficientnet_b0.json",
        .arg = {{"batch", "128"}},
        .n_arg = 1,
        .precision = NNC_PRECISION_f16},
};

TEST(nvrtc_models)
{
    enum { MAX = 400 };
    static compile_job job[MAX];
    glob_t files;
    int n = 0;
    if (compile_absent())
        return;
    CHECK_INT(glob("models/*.json", 0, NULL, &files), 0);
    CHECK((files.gl_pathc + NNC_COUNT(variants)) * NNC_COUNT(archs) + files.gl_pathc +
              NNC_COUNT(shares) <=
          MAX);
    for (size_t t = 0; t < NNC_COUNT(archs); t++) {
        for (size_t i = 0; i < files.gl_pathc && n < MAX; i++)
            if (is_taken(files.gl_pathv[i], t))
                job[n++] = (compile_job){.file = files.gl_pathv[i], .target = archs[t]};
        for (size_t i = 0; i < NNC_COUNT(variants) && n < MAX; i++)
            if (is_taken(variants[i].file, t)) {
                job[n] = variants[i];
                job[n++].target = archs[t];
            }
    }
    for (size_t i = 0; i < files.gl_pathc && n < MAX; i++) /* for shares; f32 is above */
        if (is_taken(files.gl_pathv[i], 2))
            job[n++] = (compile_job){
                .file = files.gl_pathv[i], .target = archs[2], .precision = NNC_PRECISION_f16};
    for (size_t i = 0; i < NNC_COUNT(shares) && n < MAX; i++) {
        job[n] = shares[i];
        job[n++].target = archs[2];
    }
    compile_all("models", job, n);
    globfree(&files);
}

static bool has_batch(const char *file)
{
    char *text = NULL;
    size_t n;
    CHECK_OK(nnc_file_read(file, 1 << 20, &text, &n, test_sink));
    const bool has = text && strstr(text, "\"batch\": {");
    nnc_free(text);
    return has;
}

static bool has_weights(const char *file)
{
    static const char *const none[] = {
        "matmul.json", "maxpool.json", "nested_sin.json", "relu.json", "softmax.json"};
    for (size_t i = 0; i < NNC_COUNT(none); i++)
        if (!strcmp(strrchr(file, '/') + 1, none[i]))
            return false;
    return true;
}

/* Training steps of batches of 32, for sm_90: by default an eighth of the models in each precision. Instructions have twice the budget: its
 * numbers were fitted to inference. */
TEST(nvrtc_steps)
{
    enum { MAX = 100 };
    static const nnc_precision precision[] = {NNC_PRECISION_f32, NNC_PRECISION_bf16};
    static compile_job job[MAX];
    glob_t files;
    int n = 0;
    if (compile_absent())
        return;
    CHECK_INT(glob("models/*.json", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        for (size_t k = 0; k < NNC_COUNT(precision) && n < MAX; k++)
            if (has_weights(files.gl_pathv[i]) &&
                test_takes(nnc_rng_key(files.gl_pathv[i], 2) % 8 + 4 * k, 8))
                job[n++] = (compile_job){.file = files.gl_pathv[i],
                    .arg = {{"batch", "32"}},
                    .n_arg = has_batch(files.gl_pathv[i]),
                    .target = archs[2],
                    .precision = precision[k],
                    .step = true};
    compile_all("steps", job, n);
    globfree(&files);
}

/* The same bytes whatever compiled beside, and from the cache without any compiling. */
TEST(nvrtc_artifact_is_the_same_twice)
{
    if (compile_absent())
        return;
    nnc_env *e;
    nnc_artifact *a[2] = {0};
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_80", .no_cache = true}, &e, test_sink));
    nnc_model *g = nnc_model_open("models/layernorm.json", &(nnc_open_options){0}, test_sink);
    nnc_compile_options o = nnc_compile_defaults;
    for (int i = 0; e && g && i < 2; i++) {
        o.jobs = i ? 4 : 1;
        CHECK_OK(nnc_compile(e, g, &o, &a[i], test_sink));
    }
    if (a[0] && a[1]) {
        const nnc_plan *p = nnc_artifact_plan(a[0]), *q = nnc_artifact_plan(a[1]);
        CHECK_INT(p->n_object, q->n_object);
        for (int i = 0; i < p->n_object; i++)
            CHECK(p->object[i].n == q->object[i].n &&
                  !memcmp(p->object[i].data, q->object[i].data, p->object[i].n));
    }
    for (int i = 0; i < 2; i++)
        nnc_artifact_destroy(a[i]);
    nnc_model_close(g);
    nnc_env_destroy(e);
}

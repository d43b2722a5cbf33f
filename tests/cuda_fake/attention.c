/* tests/cuda_fake/attention.c -- encoders on the fake GPU, fused and unfused against float64. Attention of lengths that fill no block, with
 * masks of keys, causal, in f32, tf32, f16 and bf16, is one command. */
#include "session/session.h"
#include "fake.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fusions(const nnc_artifact *a)
{
    const nnc_remarks *r = a ? nnc_artifact_remarks(a) : NULL;
    int n = 0;
    for (size_t i = 0; r && i < r->n; i++)
        n += r->at[i].applied && !strcmp(r->at[i].pass, "fuse_products");
    return n;
}

/* Commands of main that run by cuDNN as kernels do: attentions. */
static int by_cudnn(const nnc_artifact *a)
{
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    int n = 0;
    for (int i = 0; p && i < p->n_cmd; i++)
        n += p->cmd[i].kind == CMD_kernel && !strcmp(p->engine[p->cmd[i].engine], "cudnn");
    return n;
}

/* `want` of the model's attentions become one command, `calls` of these one of cuDNN. */
static void compare(nnc_precision precision, const char *file, const nnc_arg *arg, int n,
    uint64_t seed, int want, int calls)
{
    fake_begin(seed);
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_text t = {0};
    char why[512];
    bool agrees = false;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n}, test_sink);
    nnc_compare_options o = {
        .compile = nnc_compile_defaults, .warmup = 1, .iterations = 1, .arg = arg, .n_arg = n};
    o.compile.precision = precision;
    if (e && m) {
        CHECK_OK(nnc_compare(e, m, &o, NNC_TEXT, &t, &agrees, test_sink));
        CHECK_OK(nnc_compile(e, m, &o.compile, &a, test_sink));
    }
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s, %s differs\n%s", file, nnc_precision_name(precision),
            nnc_text_str(&t));
    CHECK_INT(fusions(a), want);
    CHECK_INT(by_cudnn(a), calls);
    nnc_text_deinit(&t);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s: %s", file, why);
}

static bool no_compiler(void)
{
    if (*NNC_TEST_CXX)
        return false;
    test_skip("no C++ compiler to build kernels for the CPU");
    return true;
}

TEST(attention_of_encoders)
{
    static const nnc_arg bert[] = {{"tokens", "37"}, {"batch", "2"}, {"vocabulary", "50"},
        {"layers", "2"}, {"dim", "48"}, {"heads", "3"}, {"inner", "40"}};
    static const nnc_arg vit[] = {{"image", "64"}, {"layers", "1"}, {"dim", "40"}, {"heads", "2"},
        {"mlp", "24"}, {"classes", "5"}};
    if (no_compiler())
        return;
    for (int p = NNC_PRECISION_default; p <= NNC_PRECISION_bf16; p++) {
        if (test_takes((uint64_t)p, 4))
            compare((nnc_precision)p, "models/bert_base.json", bert, NNC_COUNT(bert), 3, 2, 0);
        if (test_takes((uint64_t)p + 2, 4))
            compare((nnc_precision)p, "models/vit_b16.json", vit, NNC_COUNT(vit), 4, 1, 0);
    }
}

/* Longer ones in 16 bits are cuDNN's, masked ones too; and where it has no plan, the generated kernel runs. */
TEST(attention_of_cudnn)
{
    static const nnc_arg bert[] = {{"tokens", "320"}, {"batch", "2"}, {"vocabulary", "50"},
        {"layers", "1"}, {"dim", "48"}, {"heads", "3"}, {"inner", "40"}};
    static const nnc_arg vit[] = {{"image", "224"}, {"layers", "1"}, {"dim", "48"}, {"heads", "2"},
        {"mlp", "24"}, {"classes", "5"}};
    if (no_compiler())
        return;
    for (int nothing = 0; nothing < 2; nothing++) {
        for (int p = NNC_PRECISION_f16; p <= NNC_PRECISION_bf16 - nothing; p++) {
            fake_plans_nothing(nothing);
            if (test_takes((uint64_t)(p + nothing), 2))
                compare((nnc_precision)p, "models/bert_base.json", bert, NNC_COUNT(bert), 3, 1, 1);
            fake_plans_nothing(nothing);
            if (test_takes((uint64_t)(p + nothing + 1), 2))
                compare((nnc_precision)p, "models/vit_b16.json", vit, NNC_COUNT(vit), 4, 1, 1);
        }
        bool said = false;
        for (size_t i = 0; i < nnc_sink_count(test_sink); i++)
            said = said || strstr(nnc_sink_at(test_sink, i)->message,
                               "cuDNN does not compute an attention of the model here");
        CHECK(said == (nothing == 1));
    }
    fake_plans_nothing(false);
    nnc_sink_clear(test_sink);
}

/* The scale folded into the queries, a causal mask, one head of keys for all of the queries'; and what keeps two commands. */
TEST(attention_of_text)
{
    static const struct {
        const char *text;
        int fused, half,
            cudnn; /* attentions that are one command in f32, in f16, and of those by cuDNN */
    } c[] = {
        {"{\"inputs\": {\"x\": [2, 270, 64]}, \"layers\": [{\"op\": \"multihead_attention\", "
         "\"heads\": 4, \"causal\": true}]}",
            1, 1, 1},
        {"{\"inputs\": {\"q\": [2, 33, 32], \"k\": [2, 90, 32], \"v\": [2, 90, 16]}, \"layers\": ["
         "{\"op\": \"attention\", \"in\": [\"q\", \"k\", \"v\"], \"heads\": 4}]}",
            1, 1, 0},
        {"graph @t {\n%q = input : f32[2,4,33,16]\n%k = input : f32[2,4,20,16]\n%v = input : "
         "f32[2,4,20,8]\n"
         "%f = constant : f32[] = [0.5]\n%q1 = mul %q, %f\n%k1 = mul %k, %f\n"
         "%s = matmul %q1, %k1 {transpose_b=1}\n%p = softmax %s {axis=3}\n%y = matmul %p, "
         "%v\nreturn %y as \"y\" }\n",
            1, 1, 0},
        /* rows without keys are zeros: a softmax and two products */
        {"graph @t {\n%q = input : f32[2,4,33,16]\n%k = input : f32[2,4,20,16]\n%v = input : "
         "f32[2,4,20,8]\n"
         "%m = input : bool[2,1,33,20]\n%low = constant : f32[] = [-inf]\n%zero = constant : f32[] "
         "= [0]\n"
         "%s0 = matmul %q, %k {transpose_b=1}\n%s = select %m, %s0, %low\n"
         "%t = reduce_max %s {axes=[3], keepdims=1}\n%e = eq %t, %low\n%p0 = softmax %s {axis=3}\n"
         "%p = select %e, %zero, %p0\n%y = matmul %p, %v\nreturn %y as \"y\" }\n",
            0, 0, 0},
    };
    if (no_compiler())
        return;
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        char file[] = "/tmp/nnc_fake_XXXXXX.json";
        if (c[i].text[0] != '{')
            memcpy(strrchr(file, '.'), ".text", 5);
        int fd = mkstemps(file, 5);
        CHECK(fd >= 0 && write(fd, c[i].text, strlen(c[i].text)) == (ssize_t)strlen(c[i].text));
        close(fd);
        if (test_takes(i, 2))
            compare(NNC_PRECISION_default, file, NULL, 0, 1, c[i].fused, 0);
        if (test_takes(i + 1, 2))
            compare(NNC_PRECISION_f16, file, NULL, 0, 2, c[i].half, c[i].cudnn);
        unlink(file);
    }
}

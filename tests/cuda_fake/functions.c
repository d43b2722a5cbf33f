/* tests/cuda_fake/functions.c -- how much code training steps are for a GPU: functions and bytes of source, by which NVRTC's time goes. */
#include "session/session.h"
#include "fake.h"
#include "help.h"
#include "test.h"
#include "train/train.h"

/* The plan's text names functions and sizes, and is read back. */
static void check_text(const nnc_plan *p)
{
    nnc_text t = {0}, again = {0};
    nnc_scan s;
    nnc_plan_print(&t, p);
    nnc_scan_init(&s, "plan", nnc_text_str(&t), t.n);
    nnc_plan *q = nnc_plan_parse(&s, test_sink);
    CHECK(q != NULL);
    if (q) {
        nnc_plan_print(&again, q);
        CHECK_INT(nnc_plan_functions(q), nnc_plan_functions(p));
        CHECK(strstr(nnc_text_str(&again), " code=\"k_") != NULL);
        CHECK(again.n == t.n && !memcmp(again.s, t.s, t.n));
    }
    nnc_plan_destroy(q);
    nnc_text_deinit(&t);
    nnc_text_deinit(&again);
}

/* The source is what the fake NVRTC gives as machine code. */
static void check_plan(const char *file, const nnc_plan *p, int functions, size_t kib)
{
    size_t bytes = 0;
    const int n = nnc_plan_functions(p);
    for (int i = 0; i < p->n_object; i++)
        bytes += p->object[i].n;
    if (n > functions || bytes > kib << 10)
        test_fail(__FILE__, __LINE__,
            "%s: a step is %d functions and %zu KiB of source, %d and %zu allowed", file, n,
            bytes >> 10, functions, kib);
    CHECK(n < p->n_kernel && bytes > kib << 9); /* else the limits say nothing */
    CHECK_INT(p->n_object, (n + 23) / 24);
    check_text(p);
}

/* bf16 steps of a batch of 32: kernels of the same layer in several sizes share functions, of 122, 276 and 424 kernels. */
TEST(steps_are_few_functions)
{
    static const struct {
        const char *file;
        int functions;
        size_t kib;
    } of[] = {{"models/resnet50.json", 96, 480}, {"models/efficientnet_b0.json", 210, 920},
        {"models/densenet121.json", 335, 1450}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        if (!test_takes(i, 3))
            continue;
        char why[512];
        const nnc_arg arg = {"batch", "32"};
        nnc_training t = nnc_training_defaults;
        nnc_compile_options o = nnc_compile_defaults;
        nnc_env *e = NULL;
        nnc_artifact *a = NULL;
        nnc_graph *step = NULL;
        t.momentum = 0.9;
        o.precision = NNC_PRECISION_bf16;
        fake_begin(i);
        nnc_model *m =
            nnc_model_open(of[i].file, &(nnc_open_options){.arg = &arg, .n_arg = 1}, test_sink);
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
        if (m && e)
            CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
        if (step)
            CHECK_OK(nnc_compile(e, step, &o, &a, test_sink));
        if (a)
            check_plan(of[i].file, nnc_artifact_plan(a), of[i].functions, of[i].kib);
        nnc_artifact_destroy(a);
        nnc_env_destroy(e);
        nnc_graph_destroy(step);
        nnc_model_close(m);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "%s: %s", of[i].file, why);
    }
}

/* Commands of BERT's plan in f16, without the pass `skip`. */
static int commands_without(const char *skip)
{
    static const nnc_arg arg[] = {{"batch", "1"}, {"layers", "2"}};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    o.precision = NNC_PRECISION_f16;
    o.skip = &skip;
    o.n_skip = skip != NULL;
    nnc_model *m = nnc_model_open(
        "models/bert_base.json", &(nnc_open_options){.arg = arg, .n_arg = 2}, test_sink);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    if (m && e)
        CHECK_OK(nnc_compile(e, m, &o, &a, test_sink));
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    const int n = p ? p->n_cmd - nnc_plan_first(p, SEC_main) : 0;
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_model_close(m);
    return n;
}

/* fuse leaves copies of sums of 16-bit tensors outside of the kernels that duplicate made them for: they are undone. */
TEST(copies_that_do_not_pay_are_undone)
{
    char why[512];
    fake_begin(0);
    const int with = commands_without(NULL), without = commands_without("duplicate");
    CHECK(with > 0);
    if (with > without)
        test_fail(__FILE__, __LINE__, "%d commands, %d without the pass duplicate", with, without);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

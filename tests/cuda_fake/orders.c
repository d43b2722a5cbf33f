/* tests/cuda_fake/orders.c -- convolutions in both memory orders on the fake GPU, against float64: strict f32 row-major, with tf32 allowed
 * channels last with turned weights. */
#include "fake.h"
#include "session/session.h"
#include "plan/plan.h"
#include "test.h"

static void compare(bool fast, uint64_t seed)
{
    char why[512];
    nnc_env *e = NULL;
    nnc_text t = {0};
    bool agrees = false;
    fake_begin(seed);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    nnc_model *m = nnc_model_open("tests/cudnn/residual.nnc", &(nnc_open_options){0}, test_sink);
    nnc_compare_options o = {.compile = nnc_compile_defaults, .warmup = 1, .iterations = 1};
    o.compile.math = fast ? MATH_fast : MATH_ulp2;
    CHECK(e && m);
    if (e && m)
        CHECK_OK(nnc_compare(e, m, &o, NNC_TEXT, &t, &agrees, test_sink));
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s differs\n%s", fast ? "channels last" : "row-major",
            nnc_text_str(&t));
    CHECK(fake_count.library_calls > 0);
    nnc_text_deinit(&t);
    nnc_model_close(m);
    nnc_env_destroy(e);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

TEST(convolutions_in_both_orders)
{
    if (!*NNC_TEST_CXX) {
        test_skip("no C++ compiler to build kernels for the CPU");
        return;
    }
    for (uint64_t seed = 0; seed < 2; seed++) {
        compare(false, seed);
        compare(true, seed);
    }
}

/* Convolutions of a model that may be rounded to tf32: how many are, and how many stay strict since their tensors stay row-major. */
static void count(const char *file, const nnc_arg *arg, int n, int want_tf32, int want_strict)
{
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    int tf32 = 0, strict = 0;
    fake_begin(0);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n}, test_sink);
    nnc_compile_options o = nnc_compile_defaults;
    o.precision = NNC_PRECISION_tf32;
    if (e && m)
        CHECK_OK(nnc_compile(e, m, &o, &a, test_sink));
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    for (int i = 0; p && i < p->n_call; i++)
        if (p->call[i].kind == CALL_conv) {
            tf32 += p->call[i].tf32;
            strict += !p->call[i].tf32 && nnc_type_is_row_major(&p->call[i].src);
        }
    CHECK_INT(tf32, want_tf32);
    CHECK_INT(strict, want_strict);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
    CHECK(!fake_end((char[512]){0}));
}

/* On an H200 one convolution of 3 channels to 128 took 7.0 ms in tf32, 3.2 of it relayouts, and 5.1 in strict f32. */
TEST(a_convolution_alone_stays_row_major)
{
    count("models/conv.json", (nnc_arg[]){{"batch", "64"}}, 1, 0, 1);
    count("models/vgg16.json", (nnc_arg[]){{"batch", "16"}, {"image", "64"}}, 2, 13, 0);
}

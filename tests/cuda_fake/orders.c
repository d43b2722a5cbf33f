/* tests/cuda_fake/orders.c -- convolutions in both memory orders on the fake GPU, against float64: strict f32 row-major, with tf32 allowed
 * channels last with turned weights. */
#include "fake.h"
#include "api/api.h"
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

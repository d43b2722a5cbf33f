/* tests/api/nan.c -- NaN survives relu, clip and max pooling: in kernels, and at the end of a library's
 * convolution or product. */
#include "session/session.h"
#include "ir/ir.h"
#include "test.h"
#include <math.h>

/* conv 1x1 with one NaN in its input, relu, then max pooling; how many of the four pooled results are NaN. */
static int count_nan(bool exact, int threads, const char *body)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_scan scan;
    float x[4 * 16], clean[4 * 16], y[8 * 16];
    int n = 0;
    o.math = exact ? MATH_exact : MATH_ulp2;
    for (int i = 0; i < 64; i++)
        x[i] = clean[i] = (float)i - 32;
    x[5] = NAN;
    nnc_scan_init(&scan, "nan", body, strlen(body));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = threads}, &e, test_sink));
    CHECK(g != NULL);
    CHECK_OK(nnc_compile(e, g, &o, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    for (int i = 0; i < 3; i++) /* a NaN in the second run; the third is not checked any more */
        if (!s || nnc_session_input(s, 0, i ? x : clean, test_sink) ||
            nnc_session_run(s, test_sink))
            test_fail(__FILE__, __LINE__, "run %d", i);
    CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    for (int64_t i = 0; i < nnc_type_numel(nnc_session_output_type(s, 0)); i++)
        n += isnan(y[i]);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    return n;
}

TEST(nan_survives_relu_and_pooling_in_kernels)
{
    CHECK_INT(
        count_nan(false, 1,
            "graph @k {\n  %x = input : f32[1,4,4,4]\n  %r = relu %x\n  %c = clip %r {lo=0, hi=9}\n"
            "  %p = maxpool %c {kernel=[2,2], strides=[2,2]}\n  return %p\n}\n"),
        1);
}

#define HEAD "graph @c {\n  %x = input : f32[1,4,4,4]\n"
#define WEIGHTS "  %w = param : f32[8,4,1,1] = gen(\"w\", seed=1, scale=1)\n"

/* One pixel of the input is NaN: that pixel of all channels, whatever ends the call. */
TEST(nan_survives_what_ends_a_call)
{
    static const struct {
        const char *body;
        int nan;
    } cases[] = {
        {HEAD WEIGHTS "  %c = conv %x, %w\n  %r = relu %c\n  return %r\n}\n", 8},
        {HEAD WEIGHTS "  %c = conv %x, %w\n  %r = relu6 %c\n  return %r\n}\n", 8},
        {HEAD WEIGHTS "  %c = conv %x, %w\n  %r = clip %c {lo=-1, hi=2}\n  return %r\n}\n", 8},
        {HEAD WEIGHTS "  %c = conv %x, %w\n  %s = sin %c\n  %d = conv %x, %w\n"
                      "  %a = add %d, %s\n  %r = relu %a\n  return %r\n}\n",
            8},
        {HEAD WEIGHTS "  %c = conv %x, %w\n  %s = sin %c\n  %d = conv %x, %w\n"
                      "  %r = relu %d\n  %a = add %r, %s\n  return %a\n}\n",
            8},
        {HEAD "  %w = param : f32[6,4] = gen(\"w\", seed=1, scale=1)\n"
              "  %c = linear %x, %w\n  %r = relu %c\n  return %r\n}\n",
            6},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        for (int threads = 1; threads <= 2; threads++) {
            CHECK_INT(count_nan(false, threads, cases[i].body), cases[i].nan);
            CHECK_INT(count_nan(true, threads, cases[i].body), cases[i].nan);
        }
}

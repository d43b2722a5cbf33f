/* tests/api/nan.c -- NaN survives relu and max pooling: always in kernels; inside a library's convolution when --math=exact says so. */
#include "api/nnc.h"
#include "ir/ir.h"
#include "test.h"
#include <math.h>

/* conv 1x1 with one NaN in its input, relu, then max pooling; how many of the four pooled results are NaN. */
static int count_nan(bool exact, const char *body)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_scan scan;
    float x[4 * 16], y[8 * 16];
    int n = 0;
    o.math_exact = exact;
    for (int i = 0; i < 64; i++)
        x[i] = (float)i - 32;
    x[5] = NAN;
    nnc_scan_init(&scan, "nan", body, strlen(body));
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true}, &e, test_sink));
    CHECK(g != NULL);
    CHECK_OK(nnc_compile(e, g, &o, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_OK(nnc_session_input(s, 0, x, test_sink));
    CHECK_OK(nnc_session_run(s, test_sink));
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
        count_nan(false,
            "graph @k {\n  %x = input : f32[1,4,4,4]\n  %r = relu %x\n  %c = clip %r {lo=0, hi=9}\n"
            "  %p = maxpool %c {kernel=[2,2], strides=[2,2]}\n  return %p\n}\n"),
        1);
}

TEST(nan_survives_relu_after_a_convolution_when_exact)
{
    static const char body[] = "graph @c {\n  %x = input : f32[1,4,4,4]\n  %w = param : "
                               "f32[8,4,1,1] = gen(\"w\", seed=1, scale=1)\n"
                               "  %c = conv %x, %w\n  %r = relu %c\n  return %r\n}\n";
    CHECK_INT(count_nan(true, body), 8); /* one pixel, all channels */
}

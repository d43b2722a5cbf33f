/* tests/onnx/gradient_test.c -- gradients through operators that become several ops: at zeros, and where one of their pieces overflows. */
#include "autodiff/autodiff.h"
#include "writer.h"

#include <math.h>

/* The derivative of the operator's result at x, one number in each of 4 dimensions. */
static double slope(const char *op, const char *attributes, bool exponent, float x)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "1 1 1 1");
    om_floats(&m, "zero", "1", 0);
    om_node(&m, op, exponent ? "x zero" : "x", "y", attributes);
    om_output(&m, "y");
    nnc_graph *g = om_parse(&m, NULL);
    CHECK(g != NULL);
    if (!g)
        return NAN;
    nnc_ref y = g->output[0], v = NNC_NONE, d = NNC_NONE;
    for (uint32_t i = 0; i < g->n_node; i++)
        v = g->node[i].op == OP_input ? g->node[i].out : v;
    CHECK_OK(nnc_gradients(g, 1, &y, NULL, 1, &v, &d, test_sink));
    g->n_output = 0;
    nnc_output(g, d, "dx");
    nnc_rval out = {0};
    const void *in[] = {&x};
    CHECK_OK(nnc_eval(g, in, 1, &out, test_sink));
    double dx = out.f ? out.f[0] : NAN;
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
    return dx;
}

TEST(gradients_at_zeros_and_far_away)
{
    static const struct {
        const char *op, *attributes;
        float x;
        double dx; /* PyTorch's */
    } at[] = {
        {"Atanh", "", 0, 1},
        {"Atanh", "", -0.5f, 4.0 / 3},
        {"Asinh", "", 0, 1},
        {"Asinh", "", 2e4f, 5e-5},
        {"Asinh", "", -1e30f, 1e-30},
        {"Acosh", "", 2, 0.57735026918962576},
        {"Acosh", "", 2e4f, 5.0000000062500002e-5},
        {"Softplus", "", 0, 0.5},
        {"Mish", "", 0, 0.6},
        {"Celu", "alpha=0.5", 0, 1},
        {"Celu", "alpha=0.5", -1, 0.1353352832366127},
        {"Celu", "", 200, 1},
        {"Elu", "alpha=0.5", 0, 0.5},
        {"Elu", "", 200, 1},
        {"Selu", "", 200, 1.0507009873554805},
        {"ReduceL2", "", 0, 0},
        {"ReduceL2", "", -3, -1},
        {"ReduceL1", "", 0, 0},
        {"LpNormalization", "", 0, 0},
        {"LpNormalization", "p=1", 0, 0},
        {"LpPool", "kernel_shape=1,1", 0, 0},
        {"LpPool", "kernel_shape=1,1 p=3", 0, 0},
        {"GlobalLpPool", "", 0, 0},
        {"MeanVarianceNormalization", "axes=[1]", 5, 0},
    };
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        double dx = slope(at[i].op, at[i].attributes, false, at[i].x);
        if (!(fabs(dx - at[i].dx) <= 2e-6 * fabs(at[i].dx)))
            test_fail(__FILE__, __LINE__, "%s'(%g) is %.9g, not %.9g", at[i].op, (double)at[i].x,
                dx, at[i].dx);
    }
    CHECK(slope("Pow", "", true, 0) == 0);
    CHECK(slope("Pow", "", true, -2) == 0);
}

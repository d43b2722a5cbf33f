/* tests/onnx/pytorch_test.c -- what PyTorch's exporters write: its results, for numbers written here. */
#include "ir/ir.h"
#include "writer.h"

#include <math.h>
#include <stdlib.h>

/* Output `out` of the model for the input x. */
static void check_output(om *m, const void *x, int out, int n, const double *want)
{
    nnc_graph *g = om_parse(m, NULL);
    CHECK(g != NULL);
    if (!g)
        return;
    nnc_rval *v = calloc(g->n_output, sizeof *v);
    CHECK_OK(nnc_eval(g, &x, 1, v, test_sink));
    for (int i = 0; v[out].f && i < n; i++)
        if (!(fabs(v[out].f[i] - want[i]) <= 1e-6 * fabs(want[i])))
            test_fail(__FILE__, __LINE__, "element %d is %.9g, not %.9g", i, v[out].f[i], want[i]);
    CHECK(v[out].f != NULL);
    for (size_t i = 0; i < g->n_output; i++)
        nnc_rval_free(&v[i]);
    free(v);
    nnc_graph_destroy(g);
}
#define GIVES(m, x, ...) \
    check_output(m, x, 0, NNC_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

/* 3 / 0.6 is 5 in f32, and less in f64, where the scale is 0.60000002. */
TEST(nearest_element_by_a_fraction)
{
    om m = {0};
    nnc_text t = {0};
    const float scale = 0.6f, x[] = {0, 1, 2, 3, 4, 5, 6, 7};
    om_input(&m, "x", OM_F32, "8");
    om_tensor(&t, "scales", OM_F32, "1", &scale, sizeof scale);
    pb_msg(&m.graph, 5, &t);
    om_node(&m, "Resize", "x - scales", "y",
        "mode='nearest' coordinate_transformation_mode='asymmetric' nearest_mode='floor'");
    om_output(&m, "y");
    GIVES(&m, x, 0, 1, 3, 5);
}

/* The loss cross_entropy of logits [3,2], with weights of the classes and a target that is ignored. */
static void put_loss(om *m, const char *op, const char *attrs, int64_t last)
{
    om_input(m, "x", OM_F32, "3 2");
    om_ints(m, "target", 3, (int64_t[]){1, 0, last});
    om_floats(m, "w", "2", 1);
    om_node(m, op, "x target w", "y", attrs);
    om_output(m, "y");
}

TEST(losses_of_classes)
{
    const float x[] = {0, 0, 0, 1, -1, 2};
    om m = {0};
    put_loss(&m, "SoftmaxCrossEntropyLoss", "reduction='none'", 1);
    GIVES(&m, x, 0.69314718, 0, 0.04858735);
    put_loss(&m, "SoftmaxCrossEntropyLoss", "", 1); /* the weights are 0 and 1 */
    GIVES(&m, x, 0.37086727);
    put_loss(&m, "SoftmaxCrossEntropyLoss", "ignore_index=-100", -100);
    GIVES(&m, x, 0.69314718);
    put_loss(&m, "NegativeLogLikelihoodLoss", "reduction='sum'", 1);
    GIVES(&m, x, -2);
    om_input(&m, "x", OM_F32, "3 2");
    om_ints(&m, "target", 2, (int64_t[]){1, 0});
    om_node(&m, "SoftmaxCrossEntropyLoss", "x target", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("its targets have another shape");
}

/* Before operator set 14 five results say that the statistics are the batch's. */
TEST(five_results_of_a_batchnorm)
{
    om m = {.opset = 11};
    const float x[] = {1, 3};
    om_input(&m, "x", OM_F32, "2 1");
    om_floats(&m, "s", "1", 1);
    om_node(&m, "Exp", "s", "one", "");
    om_node(&m, "BatchNormalization", "x one s s one", "y mean var saved savedvar",
        "epsilon=0.0 momentum=0.75");
    om_output(&m, "y");
    om_output(&m, "mean");
    om_output(&m, "var");
    om_output(&m, "saved");
    GIVES(&m, x, -1, 1);
}

/* log(sigmoid(x)) and log(1 - sigmoid(x)), which LogSigmoid and BCEWithLogits become. */
TEST(logarithms_of_sigmoids)
{
    om m = {0};
    const float x[] = {-1000, 0, 1000};
    om_input(&m, "x", OM_F32, "3");
    om_node(&m, "Sigmoid", "x", "s", "");
    om_node(&m, "Log", "s", "y", "");
    om_output(&m, "y");
    GIVES(&m, x, -1000, -0.69314718, 0);
    const float one = 1;
    nnc_text t = {0};
    om_tensor(&t, "one", OM_F32, "", &one, sizeof one);
    pb_msg(&m.graph, 5, &t);
    om_input(&m, "x", OM_F32, "3");
    om_node(&m, "Sigmoid", "x", "s", "");
    om_node(&m, "Sub", "one s", "rest", "");
    om_node(&m, "Log", "rest", "y", "");
    om_output(&m, "y");
    GIVES(&m, x, 0, -0.69314718, -1000);
}

/* x[x > 0] = 7, or masked_scatter with the elements of x. */
static void put_mask(om *m, bool scatter)
{
    nnc_text t = {0};
    const float zero = 0, seven = 7;
    om_input(m, "x", OM_F32, "2 3");
    om_tensor(&t, "zero", OM_F32, "", &zero, sizeof zero);
    pb_msg(&m->graph, 5, &t);
    om_tensor(&t, "seven", OM_F32, "", &seven, sizeof seven);
    pb_msg(&m->graph, 5, &t);
    om_ints(m, "flat", 1, (int64_t[]){-1});
    om_ints(m, "none", 1, (int64_t[]){0});
    om_node(m, "Greater", "x zero", "mask", "");
    om_node(m, "NonZero", "mask", "places", "");
    om_node(m, "Transpose", "places", "turned", "perm=1,0");
    om_node(m, "Reshape", scatter ? "x flat" : "mask flat", "all", "");
    if (scatter) {
        om_node(m, "Shape", "turned", "size", "");
        om_node(m, "Gather", "size none", "n", "axis=0");
        om_node(m, "Slice", "all none n none", "from", "");
    } else {
        om_node(m, "Cast", "all", "i", "to=7");
        om_node(m, "ReduceSum", "i", "n", "keepdims=1");
        om_node(m, "Expand", "seven n", "from", "");
    }
    om_node(m, "ScatterND", "x turned from", "y", "");
    om_output(m, "y");
}

/* They are written by the number of true elements. */
TEST(assignments_by_masks)
{
    om m = {0};
    const float x[] = {-1, 2, -3, 4, 5, -6};
    put_mask(&m, false);
    GIVES(&m, x, -1, 7, -3, 7, 7, -6);
    put_mask(&m, true);
    GIVES(&m, x, -1, -1, -3, 2, -3, -6);
}

/* An attribute `body` that appends the negated x to a sequence, iteration by iteration. */
static void put_body(nnc_text *node)
{
    nnc_text g = {0}, attr = {0};
    om_put_node(&g, 1, "Neg", "", "x", "minus", "");
    om_put_node(&g, 1, "SequenceInsert", "", "q minus", "more", "");
    om_put_node(&g, 1, "Identity", "", "c", "go", "");
    om_port(&g, 11, "i", OM_I64, "");
    om_port(&g, 11, "c", OM_BOOL, "");
    om_port(&g, 11, "q", OM_F32, NULL);
    om_port(&g, 12, "go", OM_BOOL, "");
    om_port(&g, 12, "more", OM_F32, NULL);
    pb_str(&attr, 1, "body");
    pb_msg(&attr, 6, &g);
    pb_int(&attr, 20, 5);
    pb_msg(node, 5, &attr);
}

/* A scripted loop that appends to a list. */
TEST(sequences_that_loops_make)
{
    om m = {0};
    const float x[] = {1, 2};
    nnc_text node = {0};
    om_input(&m, "x", OM_F32, "2");
    om_ints(&m, "n", 1, (int64_t[]){2});
    om_node(&m, "SequenceConstruct", "x", "q", "");
    pb_str(&node, 1, "n");
    pb_str(&node, 1, "");
    pb_str(&node, 1, "q");
    pb_str(&node, 2, "list");
    pb_str(&node, 4, "Loop");
    put_body(&node);
    pb_msg(&m.graph, 1, &node);
    om_node(&m, "ConcatFromSequence", "list", "y", "axis=0");
    om_output(&m, "y");
    GIVES(&m, x, 1, 2, -1, -2, -1, -2);
}

/* An EmbeddingBag's mean of an empty bag: the rows that no index names. */
TEST(mean_of_an_empty_bag)
{
    om m = {0};
    const float x[] = {1, 2, 3, 4};
    om_input(&m, "x", OM_F32, "2 2");
    om_ints(&m, "one", 1, (int64_t[]){1});
    om_node(&m, "Slice", "x one one", "none", "");
    om_node(&m, "ReduceMean", "none", "mean", "axes=[0] keepdims=0");
    om_node(&m, "Add", "x mean", "y", "");
    om_output(&m, "y");
    m.opset = 13;
    GIVES(&m, x, 1, 2, 3, 4);
}

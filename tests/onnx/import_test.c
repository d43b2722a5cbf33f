/* tests/onnx/import_test.c -- what models become: ops, shapes, constants, refusals. */
#include "writer.h"
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void small_net(om *m)
{
    om_input(m, "x", OM_F32, "batch 3 8 8");
    om_floats(m, "w", "4 3 3 3", 0.1f);
    om_floats(m, "b", "4", 0.5f);
    om_node(m, "Conv", "x w b", "c", "pads=1,1,1,1 strides=2,2 kernel_shape=3,3");
    om_node(m, "Relu", "c", "r", "");
    om_node(m, "GlobalAveragePool", "r", "p", "");
    om_node(m, "Flatten", "p", "y", "");
    om_output(m, "y");
}

TEST(a_small_net)
{
    om m = {0};
    small_net(&m);
    HAS(om_parse(&m, NULL), "%x = input : f32[1,3,8,8]", "%w = param : f32[4,3,3,3]",
        "conv %x, %w, %b {strides=[2,2], pads=[1,1,1,1]", "loc \"/c\"", "reshape", "as \"y\"");
    CHECK_DIAG("its first dimension (batch) is taken as 1; --shapes sets it");
}

/* As exporters write a model that is not trained yet: equal tensors are one. Training moves the statistics and the weights apart. */
TEST(statistics_that_are_weights)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 4 8 8");
    om_floats(&m, "s", "4", 1);
    om_floats(&m, "b", "4", 0.5f);
    om_floats(&m, "mean", "4", 0.1f);
    om_node(&m, "BatchNormalization", "x s b b s", "y1", "");
    om_node(&m, "BatchNormalization", "y1 s b mean s", "y2", "");
    om_output(&m, "y2");
    HAS(om_parse(&m, NULL), "batchnorm %x, %s, %b, %\"/y1.running_mean\", %\"/y1.running_var\"",
        "%s, %b, %mean, %\"/y2.running_var\"", "\"/y1.running_mean\"", "\"/y1.running_var\"",
        "\"/y2.running_var\"", "!\"/y2.running_mean\"");
}

TEST(shapes_are_given)
{
    om m = {0};
    const nnc_shape s[] = {{"x", 4, {5, 3, 8, 8}}, {"z", 1, {5}}}, bad = {"x", 4, {5, 4, 8, 8}};
    small_net(&m);
    HAS(om_parse(&m, &(nnc_onnx_options){.shape = s, .n_shape = 1}), "f32[5,3,8,8]", ": f32[5,4]");
    small_net(&m);
    CHECK(!om_parse(&m, &(nnc_onnx_options){.shape = &bad, .n_shape = 1}));
    CHECK_DIAG("input `x` has the shape ?x3x8x8, which 5x4x8x8 does not fit");
    small_net(&m);
    CHECK(!om_parse(&m, &(nnc_onnx_options){.shape = s + 1, .n_shape = 1}));
    CHECK_DIAG("the model has no input `z` (it has: x)");
}

/* A file's shape completes what the model leaves open; where it contradicts, both are named. */
TEST(shapes_of_files)
{
    om m = {0};
    const nnc_shape file = {"x", 4, {5, 3, 8, 8}, "in.npz", NULL},
                    rows = {"x", 4, {-1, 3, 8, 8}, "in.npz", NULL},
                    bad = {"x", 4, {5, 4, 8, 8}, "in.npz", NULL},
                    odd = {"x", -1, {0}, "in.npz", "its dtype is a text"},
                    flag = {"x", 4, {2, 3, 8, 8}, NULL, NULL};
    small_net(&m);
    HAS(om_parse(&m, &(nnc_onnx_options){.input = &file, .n_input = 1}), "f32[5,3,8,8]",
        ": f32[5,4]");
    small_net(&m);
    HAS(om_parse(&m, &(nnc_onnx_options){.input = &rows, .n_input = 1}), "f32[1,3,8,8]");
    small_net(&m);
    CHECK(!om_parse(&m, &(nnc_onnx_options){.input = &bad, .n_input = 1}));
    CHECK_DIAG("input `x` has the shape ?x3x8x8, which 5x4x8x8 in in.npz does not fit");
    small_net(&m);
    CHECK(!om_parse(&m, &(nnc_onnx_options){.input = &odd, .n_input = 1}));
    CHECK_DIAG("input `x` in in.npz: its dtype is a text");
    small_net(&m);
    CHECK(!om_parse(
        &m, &(nnc_onnx_options){.input = &file, .n_input = 1, .shape = &flag, .n_shape = 1}));
    CHECK_DIAG("input `x` is 2x3x8x8 by --shapes, and 5x3x8x8 in in.npz");
    small_net(&m);
    HAS(om_parse(
            &m, &(nnc_onnx_options){.input = &odd, .n_input = 1, .shape = &flag, .n_shape = 1}),
        "f32[2,3,8,8]");
}

TEST(named_dimensions_are_equal)
{
    om m = {0};
    const nnc_shape s = {"a", 2, {2, 7}};
    om_input(&m, "a", OM_F32, "2 seq");
    om_input(&m, "b", OM_F32, "2 seq");
    om_node(&m, "Add", "a b", "y", "");
    om_output(&m, "y");
    nnc_text t = {0};
    om_put(&m, &t);
    nnc_graph *g = nnc_onnx_parse(
        "m.onnx", nnc_text_str(&t), t.n, &(nnc_onnx_options){.shape = &s, .n_shape = 1}, test_sink);
    HAS(g, "%b = input : f32[2,7]");
    CHECK(!nnc_onnx_parse("m.onnx", nnc_text_str(&t), t.n, NULL, test_sink));
    CHECK_DIAG("input `a` 2x?: dimension 1 (seq) has no extent: give the shape, as in --shapes=a:");
    nnc_text_deinit(&t);
}

/* The operators' own domain has two names. */
TEST(domain_ai_onnx)
{
    om m = {.domain = "ai.onnx"};
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "relu %x");
}

TEST(values_have_the_input_type)
{
    om m = {0};
    int64_t one[] = {1, 2};
    const nnc_tensor value = {.type = nnc_type_make(DT_i64, 1, (int64_t[]){2}), .data = one};
    om_input(&m, "x", OM_F32, "2");
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, &(nnc_onnx_options){.value = &value, .n_value = 1}));
    CHECK_DIAG("input `x` is f32, its value i64");
}

TEST(gemm_reads_no_operand_times_zero)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_input(&m, "c", OM_F32, "2 4");
    om_floats(&m, "w", "3 4", 1);
    om_node(&m, "Gemm", "x w c", "y", "beta=0.0");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "matmul %x, %w", "!= add", "!= mul");
}

/* Beyond the border, each of the four elements is the last one; the place is not moved first. */
TEST(cubic_sampling_at_the_border)
{
    om m = {0};
    const float at[] = {1.2f, 0};
    om_floats(&m, "x", "1 1 1 4", 1); /* 0 1 -2 3 */
    om_input(&m, "g", OM_F32, "1 1 1 2");
    om_node(&m, "GridSample", "x g", "y", "mode='cubic' padding_mode='border' align_corners=1");
    om_output(&m, "y");
    m.opset = 20;
    nnc_graph *g = om_parse(&m, NULL);
    nnc_rval out = {0};
    CHECK(g != NULL);
    CHECK_OK(nnc_eval(g, (const void *const[]){at}, 1, &out, test_sink));
    CHECK_NEAR(out.f ? out.f[0] : 0, 3.55125, 1e-5);
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
}

TEST(shape_arithmetic_folds)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3 4");
    om_ints(&m, "zero", 1, (int64_t[]){0});
    om_ints(&m, "rest", 1, (int64_t[]){-1});
    om_node(&m, "Shape", "x", "s", "");
    om_node(&m, "Gather", "s zero", "n", "");
    om_node(&m, "Concat", "n rest", "to", "axis=0");
    om_node(&m, "Reshape", "x to", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "reshape %x {shape=[2,12]}", "!gather", "!concat", "!constant");
}

/* y = c ? then(x) : other(x) */
static void put_if_of(om *m, const char *then, const char *other, const char *x)
{
    nnc_text node = {0}, attr = {0}, branch = {0};
    pb_str(&node, 1, "c");
    pb_str(&node, 2, "y");
    pb_str(&node, 4, "If");
    for (int k = 0; k < 2; k++) {
        om_put_node(&branch, 1, k ? then : other, "", x, "r", "");
        om_port(&branch, 12, "r", OM_F32, NULL);
        pb_str(&attr, 1, k ? "then_branch" : "else_branch");
        pb_msg(&attr, 6, &branch);
        pb_int(&attr, 20, 5);
        pb_msg(&node, 5, &attr);
    }
    pb_msg(&m->graph, 1, &node);
}

static void put_if(om *m, bool yes, const char *then, const char *other, const char *x)
{
    nnc_text value = {0};
    om_tensor(&value, "c", OM_BOOL, "", (char[]){(char)yes}, 1);
    pb_msg(&m->graph, 5, &value);
    put_if_of(m, then, other, x);
}

TEST(constants_choose_branches)
{
    for (int yes = 0; yes < 2; yes++) {
        om m = {0};
        om_input(&m, "x", OM_F32, "2");
        put_if(&m, yes, "Exp", "Neg", "x");
        om_output(&m, "y");
        HAS(om_parse(&m, NULL), yes ? "= exp %x" : "= neg %x", yes ? "!neg" : "!exp");
    }
}

/* An input whose value decides a shape becomes a constant, also where only a branch reads it. */
TEST(inputs_that_decide_shapes_in_branches)
{
    om m = {0};
    const float x[6] = {0};
    const int64_t to[2] = {3, 2};
    bool bound[2] = {true, false};
    const nnc_tensor v[2] = {
        {.type = nnc_type_make(DT_f32, 2, (int64_t[]){2, 3}), .data = (void *)(uintptr_t)x},
        {.type = nnc_type_make(DT_i64, 1, (int64_t[]){2}), .data = (void *)(uintptr_t)to}};
    om_input(&m, "x", OM_F32, "2 3");
    om_input(&m, "s", OM_I64, "2");
    put_if(&m, true, "Identity", "Neg", "s");
    om_node(&m, "Reshape", "x y", "z", "");
    om_output(&m, "z");
    HAS(om_parse(&m, &(nnc_onnx_options){.value = v, .n_value = 2, .bound = bound}),
        "reshape %x {shape=[3,2]}");
    CHECK(!bound[0] && bound[1]);
}

TEST(extents_of_no_tensor)
{
    static const int64_t wrong[] = {INT64_MIN, -1, INT64_MAX};
    for (size_t i = 0; i < NNC_COUNT(wrong); i++) {
        om m = {.opset = 18};
        om_input(&m, "x", OM_F32, "2 3");
        om_ints(&m, "e", 2, (int64_t[]){2, wrong[i]});
        om_node(&m, "CenterCropPad", "x e", "y", "");
        om_output(&m, "y");
        CHECK(!om_parse(&m, NULL));
        CHECK_DIAG("an extent is ");
    }
}

/* Data choose a branch: both are computed. */
TEST(data_choose_between_branches)
{
    for (int fits = 0; fits < 2; fits++) {
        om m = {0};
        om_input(&m, "x", OM_F32, "2 3");
        om_node(&m, "ReduceSum", "x", "sum", "keepdims=0");
        om_node(&m, "Cast", "sum", "c", "to=9");
        put_if_of(&m, "Relu", fits ? "Neg" : "ReduceSum", "x");
        om_output(&m, "y");
        if (fits) {
            HAS(om_parse(&m, NULL), "relu %x", "neg %x", "= select %", " as \"y\"");
            continue;
        }
        CHECK(!om_parse(&m, NULL));
        CHECK_DIAG("its condition is not a constant, and its branches differ in the shape or type");
    }
}

/* Nodes in any order, one inside a branch that reads a later result. */
TEST(nodes_in_any_order)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "Sub", "b y", "z", "");
    put_if(&m, true, "Relu", "Neg", "b");
    om_node(&m, "Add", "a x", "b", "");
    om_node(&m, "Exp", "x", "a", "");
    om_output(&m, "z");
    HAS(om_parse(&m, NULL), "%1 = exp %x", "%2 = add %1, %x", "%3 = relu %2", "sub %2, %3");
}

/* Nothing uses it: its type does not matter. */
TEST(initializers_that_nothing_uses)
{
    om m = {0};
    nnc_text t = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_tensor(&t, "names", OM_STRING, "1", "", 0);
    pb_msg(&m.graph, 5, &t);
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "relu %x");
}

/* A single scale is that of all groups, and of all channels. */
TEST(groups_of_one_scale)
{
    for (int opset = 18; opset <= 21; opset += 3) {
        om m = {.opset = opset};
        om_input(&m, "x", OM_F32, "2 4 3");
        om_floats(&m, "one", "1", 2);
        om_node(&m, "GroupNormalization", "x one one", "y", "num_groups=2");
        om_output(&m, "y");
        HAS(om_parse(&m, NULL), "{shape=[4]} : f32[4]", "groupnorm %x");
    }
}

/* A sum that could overflow is not taken. */
TEST(acosh_of_large_numbers)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2");
    om_node(&m, "Acosh", "x", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "log1p", "log %", "select");
}

/* Lists of values exist while the model is read. */
TEST(sequences_of_known_length)
{
    om m = {0};
    const int64_t size[] = {3, 2, 2}, last = -1, one = 1;
    om_input(&m, "x", OM_F32, "2 7");
    om_ints(&m, "size", 3, size);
    om_ints(&m, "last", 1, &last);
    om_ints(&m, "one", 1, &one);
    om_node(&m, "SplitToSequence", "x size", "q", "axis=1");
    om_node(&m, "SequenceAt", "q last", "y", "");
    om_node(&m, "SequenceErase", "q one", "q2", "");
    om_node(&m, "SequenceInsert", "q2 y one", "q3", "");
    om_node(&m, "ConcatFromSequence", "q3", "z", "axis=1");
    om_node(&m, "SequenceLength", "q3", "n", "");
    om_node(&m, "Neg", "n", "w", "");
    om_output(&m, "y");
    om_output(&m, "z");
    om_output(&m, "w");
    HAS(om_parse(&m, NULL), "slice %x {axes=[1], starts=[5], ends=[7]", "concat %1, %2, %2",
        ": f32[2,7]", "[-3]");
    om_input(&m, "x", OM_F32, "2 7");
    om_node(&m, "SplitToSequence", "x", "q", "");
    om_node(&m, "Neg", "q", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("its input 0 is a sequence");
    om_input(&m, "x", OM_F32, "2 7");
    om_ints(&m, "two", 1, (int64_t[]){2});
    om_node(&m, "SplitToSequence", "x", "q", "");
    om_node(&m, "SequenceErase", "q two", "q2", "");
    om_node(&m, "ConcatFromSequence", "q2", "y", "axis=0");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("place 2 of a sequence of 2");
    om_input(&m, "x", OM_F32, "2 7"); /* parts of a constant are constants */
    om_ints(&m, "at", 1, (int64_t[]){1});
    om_ints(&m, "dims", 4, (int64_t[]){1, 1, 14, 1});
    om_ints(&m, "half", 2, (int64_t[]){2, 2});
    om_node(&m, "SplitToSequence", "dims half", "q", "");
    om_node(&m, "SequenceAt", "q at", "d", "");
    om_node(&m, "Reshape", "x d", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "f32[14,1]");
}

TEST(not_of_numbers)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "Not", "x", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "ne %x", "not %");
}

/* A function of the model that scales by an attribute, called twice. */
static void with_function(om *m)
{
    nnc_text f = {0}, opset = {0}, node = {0}, attr = {0};
    pb_str(&f, 1, "Scaled");
    pb_str(&f, 10, "own");
    pb_str(&f, 4, "a");
    pb_str(&f, 5, "b");
    pb_str(&f, 6, "slope");
    pb_str(&node, 1, "a");
    pb_str(&node, 2, "b");
    pb_str(&node, 4, "LeakyRelu");
    pb_str(&attr, 1, "alpha");
    pb_str(&attr, 21, "slope");
    pb_int(&attr, 20, 1);
    pb_msg(&node, 5, &attr);
    pb_msg(&f, 7, &node);
    pb_int(&opset, 2, 17);
    pb_msg(&f, 9, &opset);
    pb_msg(&m->rest, 25, &f);
    om_input(m, "x", OM_F32, "2");
    om_put_node(&m->graph, 1, "Scaled", "own", "x", "u", "slope=0.5");
    om_put_node(&m->graph, 1, "Scaled", "own", "u", "y", "slope=0.25");
    om_output(m, "y");
}

TEST(functions_are_inlined)
{
    om m = {0};
    with_function(&m);
    HAS(om_parse(&m, NULL), "leaky_relu %x {alpha=0.5}", "{alpha=0.25}", "loc \"/u/LeakyRelu_2\"");
}

/* x[mask] of a constant mask, as PyTorch's exporter writes it. */
TEST(non_zero_of_a_constant)
{
    om m = {0};
    nnc_text t = {0};
    om_input(&m, "x", OM_F32, "4");
    om_ints(&m, "mask", 4, (int64_t[]){1, 0, -2, 1});
    om_node(&m, "NonZero", "mask", "at", "");
    om_node(&m, "Squeeze", "at", "i", "");
    om_node(&m, "Gather", "x i", "y", "axis=0");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "i64[3] = [0, 2, 3]", "gather %x");
    om_input(&m, "x", OM_F32, "2 2"); /* rows, then columns */
    om_tensor(&t, "mask", OM_BOOL, "2 2", "\0\1\1\1", 4);
    pb_msg(&m.graph, 5, &t);
    om_node(&m, "NonZero", "mask", "at", "");
    om_node(&m, "Transpose", "at", "i", "perm=1,0");
    om_node(&m, "GatherND", "x i", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "i64[3,2] = [0, 1, 1, 0, 1, 1]");
}

/* align_corners by a scale: 4 elements times 1.7 are 6, whose ends lie on the ends. ONNX's own tests divide by 6.8 - 1. */
TEST(resize_as_pytorch_means_it)
{
    for (int torch = 0; torch < 2; torch++) {
        om m = {0};
        nnc_text t = {0};
        const float scales[] = {1.7f};
        om_input(&m, "x", OM_F32, "4");
        om_tensor(&t, "scales", OM_F32, "1", scales, sizeof scales);
        pb_msg(&m.graph, 5, &t);
        om_node(&m, "Resize", "x - scales", "y",
            "mode='linear' coordinate_transformation_mode='align_corners'");
        om_output(&m, "y");
        pb_str(&m.rest, 2, torch ? "pytorch" : "other");
        HAS(om_parse(&m, NULL),
            torch ? "i64[6] = [0, 0, 1, 1, 2, 3]" : "i64[6] = [0, 0, 1, 1, 2, 2]");
    }
}

/* A single element of the result is the first one of the operand. */
TEST(resize_to_one_element)
{
    om m = {0};
    const int64_t one = 1;
    om_input(&m, "x", OM_F32, "4");
    om_ints(&m, "size", 1, &one);
    om_node(&m, "Resize", "x - - size", "y",
        "mode='cubic' coordinate_transformation_mode='pytorch_half_pixel'");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "f64[1] = [1]");
}

/* The result's length is scale times length, whatever part is resized. One element is the first one, or the middle of the part. */
TEST(resize_by_scales_to_whole_lengths)
{
    static const struct {
        const char *attrs, *want;
        float scale;
    } rows[] = {
        {"mode='nearest' coordinate_transformation_mode='tf_crop_and_resize'", "i64[8] = ", 2},
        {"mode='nearest' coordinate_transformation_mode='tf_crop_and_resize'", "i64[1] = [1]",
            0.4f},
        {"mode='linear' coordinate_transformation_mode='pytorch_half_pixel'", "f64[1] = [1]",
            0.4f}};
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        om m = {0};
        NNC_LOCAL(nnc_text) t = {0}, r = {0};
        const float roi[] = {0.2f, 0.8f}; /* the middle is 1.5 in f32, and more in f64 */
        om_input(&m, "x", OM_F32, "4");
        om_tensor(&t, "scales", OM_F32, "1", &rows[i].scale, sizeof(float));
        pb_msg(&m.graph, 5, &t);
        om_tensor(&r, "roi", OM_F32, "2", roi, sizeof roi);
        pb_msg(&m.graph, 5, &r);
        om_node(&m, "Resize", "x roi scales", "y", rows[i].attrs);
        om_output(&m, "y");
        HAS(om_parse(&m, NULL), rows[i].want);
    }
}

/* The least of no integers is the largest of their type. */
TEST(least_of_no_integers)
{
    om m = {0};
    om_input(&m, "x", OM_I64, "0");
    om_node(&m, "ReduceMin", "x", "y", "keepdims=0");
    om_node(&m, "ReduceMax", "x", "z", "keepdims=0");
    om_output(&m, "y");
    om_output(&m, "z");
    HAS(om_parse(&m, NULL), "9223372036854775807", "-9223372036854775808");
}

/* Indices of no numbers name all of x: the last update stays, and each index takes a copy. */
TEST(indices_of_no_numbers)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "3 2");
    om_input(&m, "u", OM_F32, "2 3 2");
    om_input(&m, "i", OM_I64, "2 0");
    om_input(&m, "none", OM_I64, "0 1");
    om_node(&m, "ScatterND", "x i u", "y", "");
    om_node(&m, "GatherND", "x i", "z", "");
    om_node(&m, "GatherND", "x none", "e", "");
    om_output(&m, "y");
    om_output(&m, "z");
    om_output(&m, "e");
    HAS(om_parse(&m, NULL), "= scatter_nd %", "{batch_dims=0} : f32[2,3,2]", "empty \"e\" f32 0 2");
}

TEST(sign_of_minus_0)
{
    om m = {0};
    const float x[] = {-0.0f, -2};
    om_input(&m, "x", OM_F32, "2");
    om_node(&m, "Sign", "x", "y", "");
    om_output(&m, "y");
    nnc_graph *g = om_parse(&m, NULL);
    nnc_rval out = {0};
    CHECK(g != NULL);
    CHECK_OK(nnc_eval(g, (const void *const[]){x}, 1, &out, test_sink));
    CHECK(out.f && out.f[0] == 0 && !signbit(out.f[0]) && out.f[1] == -1);
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
}

TEST(more_scanned_inputs_than_inputs)
{
    static const char *const number[] = {"-2147483648", "0", "2", "4294967297"};
    for (size_t i = 0; i < NNC_COUNT(number); i++) {
        om m = {0};
        char attrs[40], why[60];
        om_input(&m, "x", OM_F32, "2");
        snprintf(attrs, sizeof attrs, "num_scan_inputs=%s", number[i]);
        om_node(&m, "Scan", "x", "y", attrs);
        om_output(&m, "y");
        CHECK(!om_parse(&m, NULL));
        snprintf(why, sizeof why, "it has 1 inputs, %s of them scanned", number[i]);
        CHECK_DIAG(why);
    }
}

/* y, ys = Loop(0, -, x) of a body that doubles x: no iteration gives ys a row. */
TEST(loop_without_iterations)
{
    om m = {0};
    nnc_text node = {0}, attr = {0}, body = {0};
    om_input(&m, "x", OM_F32, "2");
    om_ints(&m, "trips", 1, (int64_t[]){0});
    om_put_node(&body, 1, "Add", "", "s s", "t", "");
    om_put_node(&body, 1, "Identity", "", "c", "d", "");
    for (const char *const *p = (const char *const[]){"n", "c", "s", NULL}; *p; p++)
        om_port(&body, 11, *p, OM_F32, NULL);
    for (const char *const *p = (const char *const[]){"d", "t", "t", NULL}; *p; p++)
        om_port(&body, 12, *p, OM_F32, NULL);
    pb_str(&node, 1, "trips");
    pb_str(&node, 1, "");
    pb_str(&node, 1, "x");
    pb_str(&node, 2, "y");
    pb_str(&node, 2, "ys");
    pb_str(&node, 4, "Loop");
    pb_str(&attr, 1, "body");
    pb_msg(&attr, 6, &body);
    pb_int(&attr, 20, 5);
    pb_msg(&node, 5, &attr);
    pb_msg(&m.graph, 1, &node);
    om_output(&m, "y");
    om_output(&m, "ys");
    HAS(om_parse(&m, NULL), "return %x as \"y\"", "empty \"ys\" f32 0 2", "!add");
}

/* Operator set 10 names no way to round: as ONNX's test and ONNX Runtime, up where the scale is below 1. */
TEST(resize_before_there_were_modes)
{
    om m = {.opset = 10};
    const float scale = 0.6f;
    NNC_LOCAL(nnc_text) t = {0};
    om_input(&m, "x", OM_F32, "6");
    om_tensor(&t, "scales", OM_F32, "1", &scale, sizeof scale);
    pb_msg(&m.graph, 5, &t);
    om_node(&m, "Resize", "x scales", "y", "mode='nearest'");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "i64[3] = [0, 2, 4]");
}

TEST(pad_with_data)
{
    om m = {.opset = 13};
    const int64_t pads[] = {1, 2};
    om_input(&m, "x", OM_F32, "3");
    om_input(&m, "v", OM_F32, "");
    om_ints(&m, "pads", 2, pads);
    om_node(&m, "Pad", "x pads v", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "bool[6]", "select ", "pads=[1,2]");
}

TEST(unsupported_operators_are_listed)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "Relu", "x", "r", "");
    om_node(&m, "NonZero", "r", "n", "");
    om_node(&m, "Frobnicate", "n", "f", "");
    om_node(&m, "DeformConv", "f", "l", "");
    om_node(&m, "NonZero", "x", "n2", "");
    om_node(&m, "Relu", "l", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG(
        "NonZero: unsupported: needs a result whose shape depends on data (2 nodes: /n, /n2)");
    CHECK_DIAG("Frobnicate: no operator of ONNX (1 node: /f)");
    CHECK_DIAG("DeformConv: unsupported: needs a decomposition");
    CHECK_DIAG("4 of the 6 nodes that were read cannot be imported");
}

/* The message says which inputs of the model a shape depends on. */
TEST(shapes_that_data_decide)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "4");
    om_input(&m, "n", OM_I64, "1");
    om_input(&m, "k", OM_I64, "1");
    om_node(&m, "Add", "n k", "to", "");
    om_node(&m, "Reshape", "x to", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG(
        "the value of its input 1 decides a shape, and is computed from the model's inputs `k`, "
        "`n`: shapes are static");
}

TEST(attributes_are_known)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "Relu", "x", "y", "colour=1");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("Relu: its attribute `colour` is unsupported");
    om_input(&m, "x", OM_F32, "2 3");
    om_node(&m, "ReduceSum", "x", "y", "axes=[0]");
    om_output(&m, "y");
    m.opset = 17;
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("ReduceSum: `axes` is no attribute since operator set 13 but an input, and this "
               "model imports 17");
}

TEST(coverage_is_reported)
{
    om m = {0};
    nnc_text t = {0};
    small_net(&m);
    nnc_graph_destroy(om_parse(&m, &(nnc_onnx_options){.coverage = &t}));
    CHECK(strstr(nnc_text_str(&t), "4 nodes of 4 operators, all of them supported") != NULL);
    nnc_text_clear(&t);
    with_function(&m); /* calls of the model's own functions do not count */
    nnc_graph_destroy(om_parse(&m, &(nnc_onnx_options){.coverage = &t}));
    CHECK_STR(nnc_text_str(&t),
        "2 nodes of 1 operator, all of them supported\n  LeakyRelu                2\n");
    nnc_text_deinit(&t);
}

TEST(shapes_are_read)
{
    nnc_arena a;
    nnc_shape s;
    nnc_arena_init(&a, 0);
    CHECK_OK(nnc_shape_parse("in:0:1x3x224", &s, &a, test_sink));
    CHECK_STR(s.name, "in:0");
    CHECK_INT(s.rank, 3);
    CHECK_INT(s.dim[2], 224);
    CHECK_OK(nnc_shape_parse("x:", &s, &a, test_sink));
    CHECK_INT(s.rank, 0);
    CHECK_OK(nnc_shape_parse("x:0x3", &s, &a, test_sink));
    CHECK_INT(s.dim[0], 0);
    static const char *const bad[] = {
        "x", ":1", "x:1x", "x:1x-2", "x:1x2x3x4x5x6x7x8x9", "x:99999999999999999999", "x:1y2"};
    for (size_t i = 0; i < NNC_COUNT(bad); i++)
        CHECK(nnc_shape_parse(bad[i], &s, &a, test_sink) == NNC_E_USAGE);
    nnc_arena_deinit(&a);
}

TEST(out_of_memory)
{
    bool done = false;
    for (int64_t i = 1; i < 5000 && !done; i++) {
        om m = {0};
        nnc_text t = {0};
        nnc_sink *s = nnc_sink_create();
        i % 2 ? with_function(&m) : small_net(&m);
        om_put(&m, &t);
        nnc_fail_alloc_after(i / 2 + 1);
        nnc_graph *g = nnc_onnx_parse("m.onnx", nnc_text_str(&t), t.n, NULL, s);
        nnc_fail_alloc_after(0);
        done = g != NULL && i % 2 == 0;
        if (!g)
            CHECK(nnc_sink_errors(s) > 0);
        nnc_graph_destroy(g);
        nnc_sink_destroy(s);
        nnc_text_deinit(&t);
    }
    CHECK(done);
}

/* ---- again, for other shapes ------------------------------------------------------------------ */

/* An initializer whose data lie in a file beside the model. */
static void outside(om *m, const char *name, int code, const char *dims, int64_t at, int64_t length)
{
    nnc_text t = {0}, e = {0}, n = {0};
    const struct {
        const char *key;
        int64_t v;
    } entry[] = {{"location", 0}, {"offset", at}, {"length", length}};
    om_tensor(&t, name, code, dims, NULL, 0);
    for (int i = 0; i < 3; i++) {
        nnc_text_clear(&n);
        nnc_printf(&n, "%lld", (long long)entry[i].v);
        pb_str(&e, 1, entry[i].key);
        pb_str(&e, 2, i ? nnc_text_str(&n) : "again.data");
        pb_msg(&t, 13, &e);
    }
    pb_int(&t, 14, 1);
    pb_msg(&m->graph, 5, &t);
    nnc_text_deinit(&n);
}

/* A large weight in the model, another one and a constant, which decides a shape, in a file beside it. */
static void spread_net(om *m)
{
    om_input(m, "x", OM_F32, "batch 160");
    om_input(m, "y", OM_F32, "batch 8");
    om_floats(m, "small", "8", 0.25f);
    om_floats(m, "w", "160 160", 0.1f);
    outside(m, "v", OM_F32, "160 128", 0, 160L * 128 * 4);
    outside(m, "shape", OM_I64, "2", 160L * 128 * 4, 16);
    om_node(m, "MatMul", "x w", "a", "");
    om_node(m, "MatMul", "a v", "b", "");
    om_node(m, "Reshape", "b shape", "c", "");
    om_node(m, "Add", "y small", "d", "");
    om_output(m, "c");
    om_output(m, "d");
}

static bool write_spread(void)
{
    om m = {0};
    NNC_LOCAL(nnc_text) t = {0};
    size_t n = 160 * 128 * sizeof(float) + 16;
    NNC_FREED char *data = nnc_calloc(n, 1);
    memcpy(data + n - 16, (const int64_t[]){-1, 64}, 16);
    spread_net(&m);
    om_put(&m, &t);
    return !nnc_file_write("again.onnx", nnc_text_str(&t), t.n, false, test_sink) &&
           !nnc_file_write("again.data", data, n, false, test_sink);
}

/* As in Hugging Face's cache: the model and its data are links to files that lie side by side elsewhere. */
TEST(models_that_are_links)
{
    char here[PATH_MAX], dir[] = "/tmp/nnc-links-XXXXXX";
    CHECK(getcwd(here, sizeof here) && mkdtemp(dir) && chdir(dir) == 0);
    CHECK(write_spread());
    CHECK(!mkdir("blobs", 0700) && !mkdir("model", 0700) && !mkdir("other", 0700));
    CHECK(!rename("again.onnx", "blobs/1") && !rename("again.data", "blobs/2"));
    CHECK(!symlink("../blobs/1", "model/again.onnx") && !symlink("../blobs/2", "model/again.data"));
    nnc_graph *g = nnc_onnx_load("model/again.onnx", NULL, test_sink);
    CHECK(g != NULL);
    nnc_graph_destroy(g);
    CHECK(!rename("blobs/2", "other/2") && !remove("model/again.data") &&
          !symlink("../other/2", "model/again.data"));
    CHECK(!nnc_onnx_load("model/again.onnx", NULL, test_sink));
    CHECK_DIAG("its data are in the file `again.data`, which is not in the model's folder");
    CHECK(!remove("model/again.data") && !remove("model/again.onnx") && !remove("blobs/1") &&
          !remove("other/2") && !rmdir("blobs") && !rmdir("model") && !rmdir("other"));
    CHECK(chdir(here) == 0 && rmdir(dir) == 0);
}

/* What is kept of the files is enough, and small: the graph is the same as one from the files, weights' places included. */
TEST(again_from_what_was_kept)
{
    char here[PATH_MAX], dir[] = "/tmp/nnc-again-XXXXXX";
    CHECK(getcwd(here, sizeof here) && mkdtemp(dir) && chdir(dir) == 0);
    const nnc_shape s[] = {{"x", 2, {5, 160}}, {"y", 2, {5, 8}}};
    nnc_onnx_options o = {.shape = s, .n_shape = 1};
    NNC_LOCAL(nnc_text) x = {0}, y = {0};
    CHECK(write_spread());
    nnc_graph *first = nnc_onnx_load("again.onnx", NULL, test_sink),
              *want = nnc_onnx_load("again.onnx", &o, test_sink);
    CHECK(first && first->given && want);
    CHECK(remove("again.onnx") == 0 && remove("again.data") == 0);
    if (first && want) {
        int64_t kept = 0;
        for (int i = 0; i < first->given->n_piece; i++)
            kept += first->given->piece[i].size;
        CHECK(kept < 2000);
        o.given = first->given;
        nnc_graph *again = nnc_onnx_again(&o, test_sink);
        CHECK(again && again->given == first->given);
        nnc_graph_print(&x, want);
        if (again)
            nnc_graph_print(&y, again);
        CHECK_STR(nnc_text_str(&y), nnc_text_str(&x));
        CHECK(strstr(nnc_text_str(&x), "reshape") && strstr(nnc_text_str(&x), "f32[10,64]"));
        nnc_graph_destroy(again);
        o.given->piece[o.given->n_piece - 1].size--; /* a constant that was not kept */
        CHECK(!nnc_onnx_again(&o, test_sink));
        CHECK_DIAG("other shapes need its numbers, which were not kept");
        o.given->file[1].name = "other";
        CHECK(!nnc_onnx_again(&o, test_sink));
        CHECK_DIAG("its data are in the file `again.data`, of which nothing was kept");
    }
    nnc_graph_destroy(first);
    nnc_graph_destroy(want);
    CHECK(chdir(here) == 0 && rmdir(dir) == 0);
}

/* Extents that are not given are those from before, unless a dimension of the same name has another one now. */
TEST(again_with_some_shapes)
{
    om m = {0};
    const nnc_shape was[] = {{"x", 2, {3, 4}}, {"y", 2, {3, 6}}}, now = {"x", 2, {7, 4}};
    om_input(&m, "x", OM_F32, "batch 4");
    om_input(&m, "y", OM_F32, "batch n");
    om_node(&m, "Relu", "x", "a", "");
    om_node(&m, "Relu", "y", "b", "");
    om_output(&m, "a");
    om_output(&m, "b");
    nnc_graph *g = om_parse(&m, &(nnc_onnx_options){.shape = was, .n_shape = 2});
    CHECK(g != NULL);
    nnc_onnx_options o = {.given = g ? g->given : NULL, .was = was, .n_was = 2};
    if (g)
        HAS(nnc_onnx_again(&o, test_sink), "%x = input : f32[3,4]", "%y = input : f32[3,6]");
    o.shape = &now;
    o.n_shape = 1;
    if (g)
        HAS(nnc_onnx_again(&o, test_sink), "%x = input : f32[7,4]", "%y = input : f32[7,6]");
    nnc_graph_destroy(g);
}

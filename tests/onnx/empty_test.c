/* tests/onnx/empty_test.c -- tensors without elements, which exist only while the model is read. */
#include "writer.h"

TEST(outputs_without_elements)
{
    for (int both = 0; both < 2; both++) {
        om m = {0};
        om_input(&m, "x", OM_F32, "0 3");
        om_input(&m, "z", OM_F32, "2");
        om_node(&m, "Relu", "x", "y", "");
        om_node(&m, "Neg", "z", "w", "");
        om_output(&m, "y");
        if (both)
            om_output(&m, "w");
        nnc_graph *g = om_parse(&m, NULL);
        HAS(g, "empty \"y\" f32 0 3", both ? "return %1 as \"w\"" : "return");
    }
}

/* They vanish again, or nothing is summed. */
TEST(operands_without_elements)
{
    om m = {0};
    const int64_t times[] = {1, 2}, none[] = {0, 1};
    om_input(&m, "x", OM_F32, "0 3");
    om_input(&m, "e", OM_F32, "2 0");
    om_input(&m, "z", OM_F32, "1 8");
    om_floats(&m, "w", "3 4", 1);
    om_ints(&m, "times", 2, times);
    om_ints(&m, "none", 2, none);
    om_node(&m, "MatMul", "x w", "p", "");
    om_node(&m, "Softmax", "p", "q", "axis=1");
    om_node(&m, "Tile", "q times", "r", "");
    om_node(&m, "Tile", "z none", "s", "");
    om_node(&m, "Concat", "r z s", "y", "axis=0");
    om_node(&m, "Transpose", "e", "f", "perm=[1,0]");
    om_node(&m, "Gemm", "e f", "g", "");
    om_output(&m, "y");
    om_output(&m, "g");
    HAS(om_parse(&m, NULL), "return %z as \"y\"", "f32[2,2] = splat 0");
}

/* What sums, pads, chooses or normalises nothing. */
TEST(results_of_nothing)
{
    om m = {0};
    const int64_t pads[] = {1, 0, 1, 0}, cut[] = {-1, 0, 0, 0}, two = 2, depth = 4;
    om_input(&m, "e", OM_F32, "0 3");
    om_input(&m, "x", OM_F32, "1 3");
    om_input(&m, "i", OM_I64, "0");
    om_input(&m, "b", OM_F32, "0 3 2 2");
    om_ints(&m, "pads", 4, pads);
    om_ints(&m, "cut", 4, cut);
    om_ints(&m, "two", 1, &two);
    om_ints(&m, "depth", 1, &depth);
    om_floats(&m, "w", "3", 1);
    om_floats(&m, "off_on", "2", 1);
    om_node(&m, "Pad", "e pads", "p", "");
    om_node(&m, "Pad", "x cut", "q", "");
    om_node(&m, "ArgMax", "e", "a", "axis=1 keepdims=0");
    om_node(&m, "OneHot", "i depth off_on", "h", "");
    om_node(&m, "TopK", "e two", "v k", "");
    om_node(&m, "BatchNormalization", "b w w w w", "n", "");
    for (const char *const *o = (const char *const[]){"p", "q", "a", "h", "v", "k", "n", NULL}; *o;
         o++)
        om_output(&m, *o);
    HAS(om_parse(&m, NULL), "as \"p\"", "empty \"q\" f32 0 3", "empty \"a\" i64 0",
        "empty \"h\" f32 0 4", "empty \"v\" f32 0 2", "empty \"k\" i64 0 2",
        "empty \"n\" f32 0 3 2 2");
}

/* Statistics of a batch without elements, its range, its centre; a padding value that only the run knows. */
TEST(numbers_of_nothing)
{
    om m = {.opset = 18};
    om_input(&m, "e", OM_F32, "0 3");
    om_input(&m, "b", OM_F32, "0 3 2 2");
    om_input(&m, "x", OM_F32, "4 3");
    om_input(&m, "fill", OM_F32, "");
    om_ints(&m, "pads", 4, (int64_t[]){1, 0, 1, 0});
    om_ints(&m, "none", 2, (int64_t[]){0, 2});
    om_ints(&m, "some", 2, (int64_t[]){4, 2});
    om_floats(&m, "w", "3", 1);
    om_node(&m, "Pad", "e pads fill", "p", "");
    om_node(&m, "DynamicQuantizeLinear", "e", "q scale zero", "");
    om_node(&m, "CenterCropPad", "e none", "c", "");
    om_node(&m, "CenterCropPad", "e some", "d", "");
    om_node(&m, "CenterCropPad", "x none", "f", "");
    om_node(&m, "BatchNormalization", "b w w w w", "n mean var", "training_mode=1");
    for (const char *const *o = (const char *const[]){"p", "q", "scale", "zero", "c", "d", "f", "n",
             "mean", "var", NULL};
         *o; o++)
        om_output(&m, *o);
    HAS(om_parse(&m, NULL), "broadcast %2 {shape=[2,3]}", "empty \"q\" u8 0 3", "f32[] = [1]",
        "u8[] = [0]", "empty \"c\" f32 0 2", "f32[4,2] = splat 0", "empty \"f\" f32 0 2",
        "empty \"n\" f32 0 3 2 2", "f32[3] = splat nan");
}

/* Parts without rows, and parts of nothing. */
TEST(sequences_of_nothing)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "2 3");
    om_input(&m, "e", OM_F32, "0 3");
    om_ints(&m, "parts", 2, (int64_t[]){0, 2});
    om_ints(&m, "none", 2, (int64_t[]){0, 0});
    om_node(&m, "SplitToSequence", "x parts", "s", "");
    om_node(&m, "ConcatFromSequence", "s", "y", "axis=0");
    om_node(&m, "SplitToSequence", "e none", "t", "");
    om_node(&m, "ConcatFromSequence", "t", "z", "axis=1");
    om_node(&m, "ConcatFromSequence", "t", "u", "axis=0 new_axis=1");
    om_node(&m, "SplitToSequence", "e", "v", "");
    om_node(&m, "SequenceLength", "v", "n", "");
    om_node(&m, "Neg", "n", "w", "");
    for (const char *const *o = (const char *const[]){"y", "z", "u", "w", NULL}; *o; o++)
        om_output(&m, *o);
    HAS(om_parse(&m, NULL), "return %1 as \"y\"", "empty \"z\" f32 0 6", "empty \"u\" f32 2 0 3",
        "i64[] = [0]");
}

/* Extents of 0 become those of the results. Keys before, without a row, are as if left out. */
TEST(batches_of_0)
{
    static const struct {
        const char *op, *in, *attrs, *want;
        int opset;
    } rows[] = {
        {"Conv", "x w", "pads=1,1,1,1 strides=2,2", "0 4 3 4", 0},
        {"ConvTranspose", "x w2", "strides=2,2", "0 4 14 18", 0},
        {"MaxPool", "x", "kernel_shape=2,2", "0 4 5 7", 0},
        {"AveragePool", "x", "kernel_shape=3,3 ceil_mode=1 strides=2,2", "0 4 3 4", 0},
        {"GlobalAveragePool", "x", "", "0 4 1 1", 0},
        {"Resize", "x - - sizes", "mode='linear'", "0 4 9 5", 0},
        {"Resize", "x - scales", "", "0 4 12 12", 0},
        {"DepthToSpace", "x", "blocksize=2", "0 1 12 16", 0},
        {"SpaceToDepth", "x", "blocksize=2", "0 16 3 4", 0},
        {"GridSample", "x grid", "", "0 4 5 3", 0},
        {"InstanceNormalization", "x c c", "", "0 4 6 8", 0},
        {"LayerNormalization", "x e8", "", "0 4 6 8", 0},
        {"RMSNormalization", "x e8", "", "0 4 6 8", 23},
        {"LpNormalization", "x", "axis=1", "0 4 6 8", 0}, {"LRN", "x", "size=3", "0 4 6 8", 0},
        {"GRU", "steps wi wh", "hidden_size=2", "5 1 0 2", 0},
        {"Attention", "x x x", "", "0 4 6 8", 23}, {"Attention", "q q q - past past", "", NULL, 23},
        {"Einsum", "e i", "equation=ab,b->ab", "0 3", 0}, {"Flatten", "x", "axis=3", "0 8", 0},
        {"Trilu", "x", "", "0 4 6 8", 0}, {"CastLike", "x c", "", "0 4 6 8", 19},
        {"CastLike", "q x", "", NULL, 19}, /* only the type of the second operand is read */
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        om m = {.opset = rows[i].opset};
        nnc_text t = {0};
        const float scales[] = {1, 1, 2, 1.5f};
        char want[64];
        om_input(&m, "x", OM_F32, "0 4 6 8");
        om_input(&m, "grid", OM_F32, "0 5 3 2");
        om_input(&m, "steps", OM_F32, "5 0 3");
        om_input(&m, "past", OM_F32, "1 4 0 8");
        om_input(&m, "q", OM_F32, "1 4 6 8");
        om_input(&m, "e", OM_F32, "0 3");
        om_floats(&m, "i", "3", 1);
        om_floats(&m, "w", "4 4 3 3", 1);
        om_floats(&m, "w2", "4 4 4 4", 1);
        om_floats(&m, "c", "4", 1);
        om_floats(&m, "e8", "8", 1);
        om_floats(&m, "wi", "1 6 3", 1);
        om_floats(&m, "wh", "1 6 2", 1);
        om_ints(&m, "sizes", 4, (int64_t[]){0, 4, 9, 5});
        om_tensor(&t, "scales", OM_F32, "4", scales, sizeof scales);
        pb_msg(&m.graph, 5, &t);
        om_node(&m, rows[i].op, rows[i].in, "y", rows[i].attrs);
        om_output(&m, "y");
        snprintf(want, sizeof want, "empty \"y\" f32 %s", rows[i].want ? rows[i].want : "");
        HAS(om_parse(&m, NULL), rows[i].want ? want : "as \"y\"");
    }
}

/* What has elements without those of its operand, and what does not fit. */
TEST(batches_of_0_that_are_refused)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "1 3 0 4");
    om_node(&m, "GlobalAveragePool", "x", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("its result has elements, an operand has none");
    om_input(&m, "x", OM_F32, "0 3 4 4");
    om_floats(&m, "w", "2 5 3 3", 1);
    om_node(&m, "Conv", "x w", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("an operand has no elements; with 2 in place of 0: ");
    om_input(&m, "x", OM_F32, "0 1");
    om_ints(&m, "to", 2, (int64_t[]){3, 4});
    om_node(&m, "Expand", "x to", "y", "");
    om_output(&m, "y");
    CHECK(!om_parse(&m, NULL));
    CHECK_DIAG("it expands 0 elements to 3");
    om_ints(&m, "none", 0, (int64_t[]){0}); /* its value is read while the model is */
    om_node(&m, "NonZero", "none", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "empty \"y\" i64 1 0");
}

/* Indices without elements take nothing, and k = 0 elements are none: what is joined with them stays. */
TEST(results_without_elements_vanish)
{
    om m = {0};
    const int64_t none = 0;
    om_input(&m, "x", OM_F32, "3 2");
    om_ints(&m, "e", 0, &none);
    om_ints(&m, "k", 1, &none);
    om_node(&m, "Gather", "x e", "g", "axis=0");
    om_node(&m, "TopK", "x k", "v i", "axis=0");
    om_node(&m, "Concat", "g x v", "y", "axis=0");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "return %x as \"y\"");
}

TEST(what_is_not_0_of_nothing)
{
    om m = {0};
    NNC_LOCAL(nnc_text) t = {0};
    om_tensor(&t, "x", OM_F32, "2 0", NULL, 0);
    pb_msg(&m.graph, 5, &t);
    om_input(&m, "a", OM_F32, "3");
    om_node(&m, "NonZero", "x", "n", "");
    om_node(&m, "Shape", "n", "s", "");
    om_node(&m, "Cast", "s", "f", "to=1");
    om_node(&m, "ReduceSum", "f", "r", "");
    om_node(&m, "Add", "a r", "y", "");
    om_output(&m, "y");
    HAS(om_parse(&m, NULL), "= [2]");
}

/* tests/onnx/empty_test.c -- tensors without elements, which exist only while the model is read. */
#include "writer.h"
#include <stdlib.h>

/* Adds one statement: an input "f32 x 0 3" or "i64 x 0 3", weights "floats w 3 4", the numbers "ints n 0 1", outputs "return y z". Or a
 * node "y z = Op(a b) axis=1" as om_node takes it. */
static void add(om *m, char *s)
{
    char *op = strstr(s, " = ");
    if (op) {
        char *in = strchr(op, '('), *attrs = strchr(op, ')');
        *op = *in = *attrs = 0;
        om_node(m, op + 3, in + 1, s, attrs + 1);
        return;
    }
    char *name = strchr(s, ' ') + 1, *dims = name + strcspn(name, " ");
    if (!strncmp(s, "return", 6)) {
        for (char *rest, *y = strtok_r(name, " ", &rest); y; y = strtok_r(NULL, " ", &rest))
            om_output(m, y);
        return;
    }
    if (*dims)
        *dims++ = 0;
    if (!strncmp(s, "floats", 6)) {
        om_floats(m, name, dims, 1);
    } else if (!strncmp(s, "ints", 4)) {
        int64_t v[8] = {0};
        int n = 0;
        for (char *end; *dims; dims = end)
            v[n++] = strtoll(dims, &end, 10);
        om_ints(m, name, n, v);
    } else {
        om_input(m, name, *s == 'f' ? OM_F32 : OM_I64, dims);
    }
}

/* Adds statements, each up to a ';'. */
static void add_all(om *m, const char *model)
{
    char text[1024], *rest = text;
    snprintf(text, sizeof text, "%s", model);
    for (char *s; (s = strtok_r(NULL, ";", &rest));)
        add(m, s + strspn(s, " "));
}

TEST(models_of_nothing)
{
    static const struct {
        int opset;
        const char *model, *want[12];
    } rows[] = {
        /* outputs without elements */
        {0, "f32 x 0 3; f32 z 2; y = Relu(x); w = Neg(z); return y",
            {"empty \"y\" f32 0 3", "return"}},
        {0, "f32 x 0 3; f32 z 2; y = Relu(x); w = Neg(z); return y w",
            {"empty \"y\" f32 0 3", "return %1 as \"w\""}},
        /* operands without elements: they vanish again, or nothing is summed */
        {0,
            "f32 x 0 3; f32 e 2 0; f32 z 1 8; floats w 3 4; ints times 1 2; ints none 0 1;"
            "p = MatMul(x w); q = Softmax(p) axis=1; r = Tile(q times); s = Tile(z none);"
            "y = Concat(r z s) axis=0; f = Transpose(e) perm=[1,0]; g = Gemm(e f); return y g",
            {"return %z as \"y\"", "f32[2,2] = splat 0"}},
        /* what sums, pads, chooses or normalises nothing */
        {0,
            "f32 e 0 3; f32 x 1 3; i64 i 0; f32 b 0 3 2 2; ints pads 1 0 1 0; ints cut -1 0 0 0;"
            "ints two 2; ints depth 4; floats w 3; floats off_on 2; p = Pad(e pads);"
            "q = Pad(x cut); a = ArgMax(e) axis=1 keepdims=0; h = OneHot(i depth off_on);"
            "v k = TopK(e two); n = BatchNormalization(b w w w w); return p q a h v k n",
            {"as \"p\"", "empty \"q\" f32 0 3", "empty \"a\" i64 0", "empty \"h\" f32 0 4",
                "empty \"v\" f32 0 2", "empty \"k\" i64 0 2", "empty \"n\" f32 0 3 2 2"}},
        /* statistics of a batch without elements, its range, its centre; a padding value that only the run knows */
        {18,
            "f32 e 0 3; f32 b 0 3 2 2; f32 x 4 3; f32 fill; ints pads 1 0 1 0; ints none 0 2;"
            "ints some 4 2; floats w 3; p = Pad(e pads fill);"
            "q scale zero = DynamicQuantizeLinear(e); c = CenterCropPad(e none);"
            "d = CenterCropPad(e some); f = CenterCropPad(x none);"
            "n mean var = BatchNormalization(b w w w w) training_mode=1;"
            "return p q scale zero c d f n mean var",
            {"broadcast %2 {shape=[2,3]}", "empty \"q\" u8 0 3", "f32[] = [1]", "u8[] = [0]",
                "empty \"c\" f32 0 2", "f32[4,2] = splat 0", "empty \"f\" f32 0 2",
                "empty \"n\" f32 0 3 2 2", "f32[3] = splat nan"}},
        /* sequences: parts without rows, and parts of nothing */
        {0,
            "f32 x 2 3; f32 e 0 3; ints parts 0 2; ints none 0 0; s = SplitToSequence(x parts);"
            "y = ConcatFromSequence(s) axis=0; t = SplitToSequence(e none);"
            "z = ConcatFromSequence(t) axis=1; u = ConcatFromSequence(t) axis=0 new_axis=1;"
            "v = SplitToSequence(e); n = SequenceLength(v); w = Neg(n); return y z u w",
            {"return %1 as \"y\"", "empty \"z\" f32 0 6", "empty \"u\" f32 2 0 3", "i64[] = [0]"}},
        /* indices without elements take nothing, and k = 0 elements are none: what is joined with them stays */
        {0,
            "f32 x 3 2; ints e; ints k 0; g = Gather(x e) axis=0; v i = TopK(x k) axis=0;"
            "y = Concat(g x v) axis=0; return y",
            {"return %x as \"y\""}},
        /* what is not 0 of nothing */
        {0,
            "floats x 2 0; f32 a 3; n = NonZero(x); s = Shape(n); f = Cast(s) to=1;"
            "r = ReduceSum(f); y = Add(a r); return y",
            {"= [2]"}},
        {0, "ints none; y = NonZero(none); return y", {"empty \"y\" i64 1 0"}},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        om m = {.opset = rows[i].opset};
        add_all(&m, rows[i].model);
        om_check(om_parse(&m, NULL), rows[i].want);
    }
}

/* Extents of 0 become those of the results. Keys before, without a row, are as if left out. */
TEST(batches_of_0)
{
    static const struct {
        const char *node, *want;
        int opset;
    } rows[] = {
        {"Conv(x w) pads=1,1,1,1 strides=2,2", "0 4 3 4", 0},
        {"ConvTranspose(x w2) strides=2,2", "0 4 14 18", 0},
        {"MaxPool(x) kernel_shape=2,2", "0 4 5 7", 0},
        {"AveragePool(x) kernel_shape=3,3 ceil_mode=1 strides=2,2", "0 4 3 4", 0},
        {"GlobalAveragePool(x)", "0 4 1 1", 0}, {"Resize(x - - sizes) mode='linear'", "0 4 9 5", 0},
        {"Resize(x - scales)", "0 4 12 12", 0}, {"DepthToSpace(x) blocksize=2", "0 1 12 16", 0},
        {"SpaceToDepth(x) blocksize=2", "0 16 3 4", 0}, {"GridSample(x grid)", "0 4 5 3", 0},
        {"InstanceNormalization(x c c)", "0 4 6 8", 0}, {"LayerNormalization(x e8)", "0 4 6 8", 0},
        {"RMSNormalization(x e8)", "0 4 6 8", 23}, {"LpNormalization(x) axis=1", "0 4 6 8", 0},
        {"LRN(x) size=3", "0 4 6 8", 0}, {"GRU(steps wi wh) hidden_size=2", "5 1 0 2", 0},
        {"Attention(x x x)", "0 4 6 8", 23}, {"Attention(q q q - past past)", NULL, 23},
        {"Einsum(e i) equation=ab,b->ab", "0 3", 0}, {"Flatten(x) axis=3", "0 8", 0},
        {"Trilu(x)", "0 4 6 8", 0}, {"CastLike(x c)", "0 4 6 8", 19},
        {"CastLike(q x)", NULL, 19}, /* only the type of the second operand is read */
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        om m = {.opset = rows[i].opset};
        nnc_text t = {0};
        char text[128];
        add_all(&m,
            "f32 x 0 4 6 8; f32 grid 0 5 3 2; f32 steps 5 0 3; f32 past 1 4 0 8;"
            "f32 q 1 4 6 8; f32 e 0 3; floats i 3; floats w 4 4 3 3; floats w2 4 4 4 4;"
            "floats c 4; floats e8 8; floats wi 1 6 3; floats wh 1 6 2; ints sizes 0 4 9 5");
        om_tensor(&t, "scales", OM_F32, "4", (float[]){1, 1, 2, 1.5f}, 4 * sizeof(float));
        pb_msg(&m.graph, 5, &t);
        snprintf(text, sizeof text, "y = %s; return y", rows[i].node);
        add_all(&m, text);
        snprintf(text, sizeof text, "empty \"y\" f32 %s", rows[i].want ? rows[i].want : "");
        HAS(om_parse(&m, NULL), rows[i].want ? text : "as \"y\"");
    }
}

/* What has elements without those of its operand, and what does not fit. */
TEST(batches_of_0_that_are_refused)
{
    static const char *const rows[][2] = {
        {"f32 x 1 3 0 4; y = GlobalAveragePool(x); return y",
            "its result has elements, an operand has none"},
        {"f32 x 0 3 4 4; floats w 2 5 3 3; y = Conv(x w); return y",
            "an operand has no elements; with 2 in place of 0: "},
        {"f32 x 0 1; ints to 3 4; y = Expand(x to); return y", "it expands 0 elements to 3"},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        om m = {0};
        add_all(&m, rows[i][0]);
        CHECK(!om_parse(&m, NULL));
        CHECK_DIAG(rows[i][1]);
    }
}

/* tests/ir/errors_test.c -- wrong nodes: each is rejected with words that name what is wrong and
 * what would be right. */
#include "help.h"

static const struct row {
    const char *inputs, *op, *attrs, *message;
} rows[] = {
    /* dtypes */
    {"f32[4];i64[4]", "add", "",
        "operand 1 is f32 but operand 2 is i64; nothing is converted silently: cast operand 2 to "
        "f32"},
    {"i8[4];i32[4]", "mul", "", "cast operand 1 to i32"},
    {"f16[4];f32[4]", "max", "", "cast operand 1 to f32"},
    {"bool[4];i32[4]", "eq", "", "cast operand 1 to i32"},
    {"i32[4]", "sqrt", "", "sqrt: operand 1 is i32; it must be a float: cast it to f32"},
    {"bool[4]", "neg", "", "operand 1 is bool, which has no arithmetic"},
    {"bool[4];bool[4]", "add", "", "cast it to i32 or f32"},
    {"f32[4]", "not", "", "must be bool (a comparison gives one)"},
    {"bool[4];f32[4]", "and", "", "operand 2 is f32; it must be bool"},
    {"f32[4];f32[4];f32[4]", "select", "", "the condition is f32; it must be bool"},
    {"bool[4];f32[4];f64[4]", "select", "", "cast operand 2 to f64"},
    {"i32[2,3]", "reduce_mean", "{axes=[0]}", "must be a float"},
    {"bool[2,3]", "reduce_sum", "{axes=[0]}", "cast it to i32"},
    {"i32[2]", "softmax", "{axis=0}", "cast it to f32"},
    {"f32[2,3];f32[3]", "gather", "", "the index is f32; it must be an integer: cast it to i64"},
    {"i32[3]", "leaky_relu", "", "must be a float"},
    {"f32[2,3];f16[4,3]", "linear", "", "cast operand 2 to f32"},
    {"i8[1,2,3]", "avgpool", "{kernel=[2]}", "must be a float"},
    /* broadcasting and shapes */
    {"f32[1,64,8,8];f32[1,32,8,8]", "add", "",
        "shapes [1,64,8,8] and [1,32,8,8] do not broadcast: dimension 3 from the right is 64 "
        "against 32"},
    {"f32[2];f32[3]", "mul", "", "must be equal, or one of them 1"},
    {"f32[2,6]", "reshape", "{shape=[5,2]}",
        "has 12 elements, but the shape [5,2] has 10; it fits with 6 for dimension 0"},
    {"f32[7]", "reshape", "{shape=[2,3]}", "has 7 elements, but the shape [2,3] has 6"},
    {"f32[7]", "reshape", "{shape=[-1]}",
        "dimension 0 of the shape [-1] is -1; it must be at least 1"},
    {"f32[1]", "reshape", "{shape=[1,1,1,1,1,1,1,1,1]}", "at most 8"},
    {"f32[2,3]", "transpose", "{perm=[0,0]}",
        "perm [0,0] must name each of the dimensions 0 to 1 once"},
    {"f32[2,3]", "transpose", "{perm=[1]}", "must name each"},
    {"f32[]", "transpose", "{perm=[0]}", "must be empty"},
    {"f32[3]", "broadcast", "{shape=[2]}", "do not broadcast"},
    {"f32[3]", "broadcast", "{shape=[1]}", "grows from 1 only"},
    {"f32[2,3]", "relayout", "{order=[0,2]}", "order [0,2] must name each"},
    /* axes */
    {"f32[2,3]", "softmax", "{axis=2}", "axis is 2, but the operand has dimensions 0 to 1"},
    {"f32[2,3]", "softmax", "{axis=-1}", "counts from the front only: write 1"},
    {"f32[]", "softmax", "{axis=0}", "scalar: it has no dimensions"},
    {"f32[2,3]", "reduce_sum", "{axes=[]}", "name at least one dimension"},
    {"f32[2,3]", "reduce_sum", "{axes=[1,0]}", "axes [1,0] must ascend"},
    {"f32[2,3]", "reduce_sum", "{axes=[1,1]}", "each named once"},
    {"f32[2,3]", "flip", "{axes=[5]}", "an axis is 5"},
    {"f32[2,3]", "argmax", "{axis=7}", "dimensions 0 to 1"},
    /* slice, pad, concat, split, gather */
    {"f32[10]", "slice", "{axes=[0], starts=[3], ends=[11]}",
        "[3:11] along dimension 0 takes nothing or too much: it has extent 10"},
    {"f32[10]", "slice", "{axes=[0], starts=[3], ends=[3]}", "0 <= start < end <= 10"},
    {"f32[10]", "slice", "{axes=[0], starts=[0], ends=[5], steps=[-1]}", "flip reverses"},
    {"f32[10]", "slice", "{axes=[0], starts=[0,1], ends=[5]}", "1 axes, but 2 starts"},
    {"f32[2,3]", "pad", "{pads=[1,1]}", "a value of rank 2 needs 4"},
    {"f32[2,3]", "pad", "{pads=[0,0,-1,0]}", "it must not be negative"},
    {"f32[2,3]", "pad", "{pads=[2,0,0,0], mode=reflect}", "at most 1 elements can be reflected"},
    {"u8[2]", "pad", "{pads=[1,1], value=300}", "the value 300 does not fit in u8"},
    {"i8[2]", "pad", "{pads=[1,1], value=-129}", "the value -129 does not fit in i8"},
    {"f32[2]", "pad", "{pads=[1,1], mode=reflct}",
        "mode is \"reflct\"; it must be constant, reflect or edge"},
    {"i32[2]", "pad", "{pads=[1,1], value=0.5}", "must be an integer"},
    {"bool[2]", "pad", "{pads=[1,1], value=2}", "the value 2 does not fit in bool"},
    {"f32[2,3];f32[3,3]", "concat", "{axis=1}", "they may differ along axis 1 only"},
    {"f32[2,3];f32[2]", "concat", "{axis=0}", "equal rank"},
    {"f32[2,3];i32[2,3]", "concat", "{axis=0}", "cast operand 2 to f32"},
    {"f32[5]", "split", "{axis=0, sizes=[4]}", "add up to 4, but dimension 0 of [5] is 5"},
    {"f32[1,1,1,1,1,1,1,1];i32[1,1]", "gather", "", "9 dimensions; at most 8"},
    {"f32[4];i32[2]", "gather", "{axis=1}", "axis is 1"},
    /* attributes and counts */
    {"f32[4]", "relu", "{alpha=1}", "there is no attribute \"alpha\"; it has: none"},
    {"f32[4]", "softmax", "", "the attribute \"axis\" is missing"},
    {"f32[4]", "softmax", "{axis=0, axis=0}", "\"axis\" is given twice"},
    {"f32[4]", "gelu", "{approximate=erf}", "it must be none or tanh"},
    {"f32[4]", "gelu", "{approximate=tan}", "none or tanh; did you mean \"tanh\"?"},
    {"f32[4];f32[4]", "relu", "", "relu: 2 operands; it takes 1"},
    {"f32[4]", "add", "", "add: 1 operand; it takes 2"},
    {"f32[4]", "linear", "", "it takes 2 to 3"},
    {"f32[2,3]", "reduce_sum", "{axes=[0], keepdims=2}", "keepdims is 2; it must be 0 or 1"},
    {"f32[4]", "clip", "{lo=2, hi=1}", "lo 2 is above hi 1"},
    {"f32[4]", "dropout", "{alpha=20}",
        "alpha 20 is no probability: expected a number from 0 to 1"},
    {"f32[4]", "dropout", "{alpha=-0.1}", "alpha -0.1 is no probability"},
    {"f32[4]", "clip", "{lo=nan}", "lo is nan"},
    {"i8[4]", "clip", "{hi=0.5}", "the bound 0.5 of a i8 must be an integer"},
    {"f32[4]", "leaky_relu", "{alpha=inf}", "finite"},
    {"f32[4]", "layernorm", "{eps=-1}", "eps is -1; it must not be negative"},
    {"f32[4]", "rleu", "", "there is no op \"rleu\"; did you mean \"relu\"?"},
    {"f32[4]", "softmax", "{axes=[0]}", "there is no attribute \"axes\"; it has: axis"},
    {"f32[4]", "softmax", "{axsi=0}", "did you mean \"axis\"?"},
    /* windows */
    {"f32[1,3,5,5];f32[8,3,7,7]", "conv", "",
        "kernel 7x7 is larger than its padded input 5x5; pad by 2 more, or use a kernel whose "
        "reach is at most 5x5"},
    {"f32[1,3,5];f32[8,3,3]", "conv", "{dilations=[3]}",
        "kernel 3 with reach 7 is larger than its padded input 5"},
    {"f32[1,64,8,8];f32[8,32,3,3]", "conv", "",
        "the input has 64 channels in 1 group, but the weight [8,32,3,3] is for 32 channels a "
        "group; it needs 64 for its dimension 1, or groups 2"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{groups=4}",
        "groups 4 does not divide the 6 input channels; 3 would"},
    {"f32[1,6,8,8];f32[8,2,3,3]", "conv", "{groups=3}",
        "does not divide the 8 output channels; 2 would"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{groups=0}", "groups is 0; it must be at least 1"},
    {"f32[1,6,8,8];f32[8,6,3,3];f32[6]", "conv", "", "the bias has the shape [6]; it must be [8]"},
    {"f32[1,6,8,8];f32[8,6,3]", "conv", "", "equal rank"},
    {"f32[6,8];f32[8,6]", "conv", "", "reshape it to [N,C,1,1], or use linear"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{strides=[2]}",
        "strides [2] has 1 number; 2 spatial dimensions need 2"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{pads=[1,1]}", "every begin, then every end"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{strides=[0,1]}", "each must be at least 1"},
    {"f32[1,6,8,8];f32[8,6,3,3]", "conv", "{pads=[-1,0,0,0]}",
        "-1 is out of range; each must be at least 0"},
    {"f32[1,6,8];f32[4,6,3]", "conv_transpose", "",
        "the input has 6 channels, but the weight [4,6,3] is for 4"},
    {"f32[1,6,8];f32[6,2,3]", "conv_transpose", "{output_padding=[1]}",
        "must be below the stride 1 or the dilation 1"},
    {"f32[1,6,1];f32[6,2,3]", "conv_transpose", "{pads=[2,2]}", "together at most 2"},
    {"f32[1,1,5]", "maxpool", "{kernel=[2], pads=[2,0]}", "would see padding only; at most 1"},
    {"f32[1,1,5]", "maxpool", "{kernel=[6]}", "larger than its padded input 5; pad by 1 more"},
    {"f32[1,1,2]", "maxpool", "{kernel=[2], dilations=[3], pads=[2,2]}",
        "steps over the whole input"},
    {"f32[1,1,5]", "avgpool", "{kernel=[2,2]}",
        "kernel [2,2] has 2 numbers; 1 spatial dimension needs 1"},
    {"f32[5,5]", "global_avgpool", "", "it must be [N,C,spatial...]"},
    /* contractions and nests */
    {"f32[3,4];f32[5,4]", "matmul", "",
        "the inner extents 4 and 5 must be equal; it fits with transpose_b=1"},
    {"f32[4,3];f32[4,5]", "matmul", "", "it fits with transpose_a=1"},
    {"f32[3,4];f32[4,5]", "matmul", "{transpose_b=1}", "it fits without transpose_b"},
    {"f32[4];f32[4,5]", "matmul", "", "at least 2 dimensions"},
    {"f32[2,3,4];f32[5,4,6]", "matmul", "", "do not broadcast"},
    {"f32[2,10];f32[10,5]", "linear", "", "it is [out,in], and seems transposed"},
    {"f32[2,4,5];f32[7,20]", "linear", "", "flatten the input first"},
    {"f32[2,4];f32[7,4];f32[4]", "linear", "", "the bias has the shape [4]; it must be [7]"},
    {"f32[];f32[7,4]", "linear", "", "the input is a scalar"},
    {"f32[2,3,4];f32[3];f32[3];f32[4];f32[3]", "batchnorm", "",
        "the mean has the shape [4]; it must be [3]"},
    {"f32[2,3,4];f32[3]", "layernorm", "",
        "gamma has the shape [3]; dimensions 2 and on of the input are [4]"},
    {"f32[2,6,4]", "groupnorm", "{num_groups=4}",
        "num_groups 4 does not divide the 6 channels; 3 would"},
    {"f32[2,6,4];f32[6];f32[4]", "groupnorm", "{num_groups=3}",
        "beta has the shape [4]; it must be [6]"},
    /* the written type */
    {"f32[2]", "relu", ": f32[3]", "relu: the result is given as f32[3], but is f32[2]"},
    {"f32[2,3]", "relayout", "{order=[1,0]} : f32[2,3]", "but is f32[2,3]{1,0}"},
    {"f32[2]", "relu", ": f64[2]", "but is f32[2]"},
    {"f32[2]", "relu", ": f32[2], f32[2]", "has 1 results here, but 1 names and 2 types"},
    {"f32[2]", "relu", "frozen", "only a param can be frozen"},
    {"f32[2]", "relu", "= [1]", "only param and constant hold numbers"},
};

TEST(errors_each)
{
    CHECK(NNC_COUNT(rows) >= 60);
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        const struct row *r = &rows[i];
        nnc_sink_clear(test_sink);
        nnc_graph *g = parse_node_text(r->inputs, r->op, r->attrs, 1);
        if (g)
            test_fail(__FILE__, __LINE__, "%s(%s) %s is accepted", r->op, r->inputs, r->attrs);
        else if (!test_has_diag(r->message)) {
            test_fail(__FILE__, __LINE__, "%s(%s) %s: no message has: %s", r->op, r->inputs,
                r->attrs, r->message);
            nnc_sink_print(test_sink, stderr);
        }
        nnc_graph_destroy(g);
    }
    nnc_sink_clear(test_sink);
}

TEST(errors_name_place)
{
    CHECK(!parse_text("graph @t {\n  %x = input : f32[2]\n  %y = sqrt %x\n"
                      "  %z = softmax %y {axis=3} loc \"/head/softmax\"\n  return %z\n}\n"));
    CHECK_DIAG("t:4:");
    CHECK_DIAG("/head/softmax");
    CHECK_DIAG("softmax: axis is 3, but the operand has dimensions 0 to 0");
}

TEST(errors_texts)
{
    static const char *const bad[][2] = {
        {"graph @g { %a = input : f32[2] return %a empty \"e\" f32 2 3 }", "one of which is 0"},
        {"graph @g { %a = input : f32[2] return %a empty \"e\" f32 4611686018427387904 4 0 }",
            "beyond 2^46"},
        {"", "expected"},
        {"graph @", "the name of the graph"},
        {"graph @t", "`{`"},
        {"graph @t {", "a value such as %x"},
        {"graph @t { return %x }", "%x is not defined before its use"},
        {"graph @t { %x = input : f32[2] %x = input : f32[2] return }", "%x is defined twice"},
        {"graph @t { %\"\" = input : f32[2] return %\"\" }", "a name needs a character"},
        {"graph @t { %\"\\n0\" = input : f32[2] return %0 }", "no control characters"},
        {"graph @t { %x = input return %x }", "input needs its type"},
        {"graph @t { %x = input : f32[0] return %x }", "a dimension below 1"},
        {"graph @t { %x = param : f32[2] return %x }", "its numbers are missing"},
        {"graph @t { %x = constant : f32[2] = [1] return %x }", "`,`"},
        {"graph @t { %x = constant : f32[2] = hex \"00\" return %x }", "two hexadecimal digits"},
        {"graph @t { %x = constant : i8[2] = [1, 300] return %x }", "300 does not fit in i8"},
        {"graph @t { %x = constant : f32[4000000000] = [1] return %x }", "at most 268435456"},
        {"graph @t { %x = constant : f32[9999999] = [1] return %x }", "as many numbers"},
        {"graph @t { %x = constant : f32[2] = gen(\"w\", seed=1, scale=1) return %x }",
            "make it a param"},
        {"graph @t { %x = param : f32[2] = file(\"f\", offset=0, size=4) return %x }",
            "f32[2] needs 8"},
        {"graph @t { %x = iota {dim=1} : i32[3] return %x }", "dim is 1"},
        {"graph @t { %x = input : f32[2] device 99999 return %x }", "a device number"},
        {"graph @t { %x = input : f32[2] loc x return %x }", "a string in double quotes"},
        {"graph @t { %x = input : f32[2] return %x", "`}`"},
        {"graph @t { %x = input : f32[2] return %x update %x <- %x }",
            "only a param can be updated"},
        {"graph @t { %x = input : f32[3] %w = param : f32[2] = gen(\"w\", seed=1, scale=1) "
         "return %x update %w <- %x }",
            "update: the new value has another type than the param"},
        {"graph @t { %x = input : f32[2] %w = param : f32[2] = gen(\"w\", seed=1, scale=1) "
         "return %x update %w <- %x update %w <- %x }",
            "updated twice"},
        {"graph @t { %x = input : f32[2] %w = param : f32[2] = gen(\"w\", seed=1, scale=1) "
         "return %x update %w %x }",
            "<"},
        {"graph @t { %x = input : f32[2] %f = fused %x { %a = input : f32[3] return %a } return %f "
         "}",
            "operand 1 is f32[2], but the body's input is f32[3]"},
        {"graph @t { %x = input : f32[2] %f = fused %x { %a = constant : f32[] = [1] return %a } "
         "return %f }",
            "1 operands, but the body has 0 inputs"},
        {"graph @t { %f = fused { %a = fused { return } return %a } return %f }",
            "a body holds no fused"},
        {"graph @t { %x = input : f32[1,3,2]{0,2,1} %f = fused %x { %a = input : f32[1,3,2] return "
         "%a } return %f }",
            "in another memory order"},
    };
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_sink_clear(test_sink);
        CHECK(!parse_text(bad[i][0]));
        CHECK_DIAG(bad[i][1]);
    }
}

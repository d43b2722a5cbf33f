/* tests/ir/infer_test.c -- shape inference: every op with results known on paper. A row without a
 * test for some op fails. */
#include "help.h"

static const struct row {
    const char *inputs, *op, *attrs, *results;
} rows[] = {
    /* elementwise: shape, dtype and memory order follow */
    {"f32[2,3];f32[2,3]", "allreduce", "", "f32[2,3];f32[2,3]"},
    {"f32[1,3,4,4]{0,2,3,1};f32[1,3,4,4]{0,2,3,1}", "allreduce", "{reduction=max}",
        "f32[1,3,4,4]{0,2,3,1};f32[1,3,4,4]{0,2,3,1}"},
    {"i8[2,3];i8[4,3]", "allgather", "", "i8[6,3];i8[6,3]"},
    {"f16[2,3];f16[2,4]", "allgather", "{axis=1}", "f16[2,7];f16[2,7]"},
    {"f32[4,6];f32[4,6]", "reduce_scatter", "{axis=1}", "f32[4,3];f32[4,3]"},
    {"f32[4,6];f32[4,6]", "reduce_scatter", "", "f32[2,6];f32[2,6]"},
    {"f32[2,3]", "identity", "", "f32[2,3]"},
    {"bool[2]", "identity", "", "bool[2]"},
    {"f32[2,3]", "cast", "{to=f16}", "f16[2,3]"},
    {"i64[]", "cast", "{to=bool}", "bool[]"},
    {"f32[1,3,4,4]{0,2,3,1}", "cast", "{to=bf16}", "bf16[1,3,4,4]{0,2,3,1}"},
    {"i8[4]", "neg", "", "i8[4]"},
    {"i32[4]", "abs", "", "i32[4]"},
    {"f64[4]", "sign", "", "f64[4]"},
    {"f32[4]", "floor", "", "f32[4]"},
    {"f32[4]", "ceil", "", "f32[4]"},
    {"f32[4]", "round", "", "f32[4]"},
    {"f32[4]", "trunc", "", "f32[4]"},
    {"f16[4]", "sqrt", "", "f16[4]"},
    {"f32[4]", "rsqrt", "", "f32[4]"},
    {"f32[4]", "recip", "", "f32[4]"},
    {"f32[4]", "exp", "", "f32[4]"},
    {"f32[4]", "exp2", "", "f32[4]"},
    {"f32[4]", "expm1", "", "f32[4]"},
    {"f32[4]", "log", "", "f32[4]"},
    {"f32[4]", "log2", "", "f32[4]"},
    {"f32[4]", "log1p", "", "f32[4]"},
    {"f32[4]", "sin", "", "f32[4]"},
    {"f32[4]", "cos", "", "f32[4]"},
    {"f32[4]", "tan", "", "f32[4]"},
    {"f32[4]", "asin", "", "f32[4]"},
    {"f32[4]", "acos", "", "f32[4]"},
    {"f32[4]", "atan", "", "f32[4]"},
    {"f32[4]", "sinh", "", "f32[4]"},
    {"f32[4]", "cosh", "", "f32[4]"},
    {"f32[4]", "tanh", "", "f32[4]"},
    {"f32[4]", "sigmoid", "", "f32[4]"},
    {"f32[4]", "erf", "", "f32[4]"},
    {"f32[4]", "isnan", "", "bool[4]"},
    {"f32[4]", "isinf", "", "bool[4]"},
    {"bool[4]", "not", "", "bool[4]"},
    {"f32[2,3];f32[3]", "add", "", "f32[2,3]"},
    {"f32[2,1];f32[1,3]", "sub", "", "f32[2,3]"},
    {"f32[];f32[1,3,4,4]{0,2,3,1}", "mul", "", "f32[1,3,4,4]{0,2,3,1}"},
    {"f32[1,3,1,1];f32[2,3,4,4]{0,2,3,1}", "add", "", "f32[2,3,4,4]{0,2,3,1}"},
    {"i32[5];i32[5]", "div", "", "i32[5]"},
    {"i32[5];i32[1]", "mod", "", "i32[5]"},
    {"f32[5];f32[]", "pow", "", "f32[5]"},
    {"u8[5];u8[5]", "min", "", "u8[5]"},
    {"f32[5];f32[4,1]", "max", "", "f32[4,5]"},
    {"bool[5];bool[5]", "eq", "", "bool[5]"},
    {"i64[5];i64[5]", "ne", "", "bool[5]"},
    {"f32[5];f32[5]", "lt", "", "bool[5]"},
    {"f32[5];f32[5]", "le", "", "bool[5]"},
    {"f32[5];f32[5]", "gt", "", "bool[5]"},
    {"f32[5];f32[5]", "ge", "", "bool[5]"},
    {"bool[5];bool[]", "and", "", "bool[5]"},
    {"bool[5];bool[]", "or", "", "bool[5]"},
    {"bool[5];bool[]", "xor", "", "bool[5]"},
    {"i8[5];i8[]", "bit_and", "", "i8[5]"},
    {"u64[5];u64[3,1]", "bit_or", "", "u64[3,5]"},
    {"i32[5];i32[]", "bit_xor", "", "i32[5]"},
    {"u16[];u16[2]", "shl", "", "u16[2]"},
    {"i64[5];i64[]", "shr", "", "i64[5]"},
    {"bool[2,1];f32[3];f32[]", "select", "", "f32[2,3]"},
    {"bool[2];bool[2];bool[2]", "select", "", "bool[2]"},
    {"i32[4]", "relu", "", "i32[4]"},
    {"f32[4]", "leaky_relu", "{alpha=0.2}", "f32[4]"},
    {"f32[2,3,4];f32[3,1]", "prelu", "", "f32[2,3,4]"},
    {"f32[4]", "relu6", "", "f32[4]"},
    {"i8[4]", "clip", "{lo=-3, hi=inf}", "i8[4]"},
    {"f32[4]", "gelu", "{approximate=tanh}", "f32[4]"},
    {"f32[4]", "silu", "", "f32[4]"},
    {"f32[4]", "hardswish", "", "f32[4]"},
    {"f32[4]", "hardsigmoid", "{alpha=0.2, beta=0.5}", "f32[4]"},
    {"f32[4]", "softplus", "", "f32[4]"},
    {"f32[4]", "softsign", "", "f32[4]"},
    {"f32[4]", "elu", "{alpha=2}", "f32[4]"},
    {"f32[4]", "selu", "", "f32[4]"},
    {"f32[4]", "mish", "", "f32[4]"},
    {"i64[4]", "square", "", "i64[4]"},
    {"f32[4]", "dropout", "{alpha=0.5}", "f32[4]"},
    /* reductions */
    {"i32[2,3,4]", "reduce_sum", "{axes=[0,2]}", "i32[1,3,1]"},
    {"f32[2,3,4]", "reduce_sum", "{axes=[0,2], keepdims=0}", "f32[3]"},
    {"f32[2,3,4,5]{0,2,3,1}", "reduce_max", "{axes=[2], keepdims=0}", "f32[2,3,5]{0,2,1}"},
    {"f32[2,3,4,5]{0,2,3,1}", "reduce_mean", "{axes=[1]}", "f32[2,1,4,5]{0,2,3,1}"},
    {"f32[2,3]", "reduce_min", "{axes=[0,1], keepdims=0}", "f32[]"},
    {"f32[2,3]", "reduce_prod", "{axes=[1]}", "f32[2,1]"},
    {"f32[2,3]", "argmax", "{axis=1}", "i64[2,1]"},
    {"u8[2,3]", "argmin", "{axis=0, keepdims=0}", "i64[3]"},
    /* movement */
    {"f32[2,3,4]", "reshape", "{shape=[6,4]}", "f32[6,4]"},
    {"f32[1,1]", "reshape", "{shape=[]}", "f32[]"},
    {"f32[2,3,4]", "transpose", "{perm=[2,0,1]}", "f32[4,2,3]"},
    {"f32[3,1]", "broadcast", "{shape=[2,3,4]}", "f32[2,3,4]"},
    {"f32[10,6]", "slice", "{axes=[0,1], starts=[1,0], ends=[10,6], steps=[4,1]}", "f32[3,6]"},
    {"f32[10,6]", "slice", "{axes=[1], starts=[2], ends=[3]}", "f32[10,1]"},
    {"f32[2,3]", "pad", "{pads=[1,0,0,2], value=-inf}", "f32[3,5]"},
    {"f32[2,3]", "pad", "{pads=[1,2,1,2], mode=reflect}", "f32[4,7]"},
    {"bool[2]", "pad", "{pads=[1,1], value=1, mode=constant}", "bool[4]"},
    {"f32[2,3];f32[2,1];f32[2,3]", "concat", "{axis=1}", "f32[2,7]"},
    {"f32[2,6]", "split", "{axis=1, sizes=[1,2,3]}", "f32[2,1];f32[2,2];f32[2,3]"},
    {"f32[2,6]", "split", "{axis=0, sizes=[2]}", "f32[2,6]"},
    {"f32[9,5];i32[3,4]", "gather", "", "f32[3,4,5]"},
    {"f32[9,5];u8[]", "gather", "{axis=1}", "f32[9]"},
    {"f32[2,3]", "flip", "{axes=[0]}", "f32[2,3]"},
    {"f32[1,3,4,5]", "relayout", "{order=[0,2,3,1]}", "f32[1,3,4,5]{0,2,3,1}"},
    /* windows; ceil_mode: the last window must start inside the input or its begin padding */
    {"f32[1,64,112,112]", "maxpool", "{kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}",
        "f32[1,64,56,56]"},
    {"f32[1,1,7]", "maxpool", "{kernel=[2], strides=[2]}", "f32[1,1,3]"},
    {"f32[1,1,7]", "maxpool", "{kernel=[2], strides=[2], ceil_mode=1}", "f32[1,1,4]"},
    {"f32[1,1,4]", "avgpool", "{kernel=[2], strides=[3], pads=[1,1], ceil_mode=1}", "f32[1,1,2]"},
    {"f32[1,1,5]", "maxpool", "{kernel=[2], strides=[3], pads=[1,1], ceil_mode=1}", "f32[1,1,2]"},
    {"f32[1,1,6]", "avgpool", "{kernel=[1], strides=[4], ceil_mode=1}", "f32[1,1,2]"},
    {"f32[1,1,2,2]", "maxpool", "{kernel=[3,3], strides=[2,2], ceil_mode=1}", "f32[1,1,1,1]"},
    {"f32[1,2,5]{0,2,1}", "argmaxpool", "{kernel=[2], strides=[3], pads=[1,1], ceil_mode=1}",
        "i64[1,2,2]{0,2,1}"},
    {"f32[1,2,3,3];i64[1,2,3,3]", "maxpool_grad",
        "{kernel=[3,2], strides=[2,2], pads=[1,0,1,0], shape=[1,2,6,7]}", "f32[1,2,6,7]"},
    {"f32[5,2,3];f32[5,2,3];f32[1,2,3]", "linear_scan", "{axis=0, reverse=1}", "f32[5,2,3]"},
    {"f32[5,2,3];f32[5,2,12];f32[12,3]", "recurrent_grad", "", "f32[5,2,12];f32[5,2,3]"},
    {"f32[5,2,8];f32[5,2,16];f32[2,16,4]", "recurrent_grad", "", "f32[5,2,16];f32[5,2,8]"},
    {"f32[5,2,3];f32[5,2,9];f32[9,3];f32[5,2,3];f32[2,3];f32[5,2,3]", "recurrent_grad", "",
        "f32[5,2,9];f32[5,2,3]"},
    {"f32[1,1,9,9,9]", "maxpool", "{kernel=[3,3,3], dilations=[1,2,4]}", "f32[1,1,7,5,1]"},
    {"f32[1,2,4,4]{0,2,3,1}", "avgpool", "{kernel=[2,2], strides=[2,2], count_include_pad=1}",
        "f32[1,2,2,2]{0,2,3,1}"},
    /* contractions */
    {"f32[3,4];f32[4,5]", "matmul", "", "f32[3,5]"},
    {"f32[2,1,3,4];f32[7,5,4]", "matmul", "{transpose_b=1}", "f32[2,7,3,5]"},
    {"f32[4,3];f32[4,5]", "matmul", "{transpose_a=1}", "f32[3,5]"},
    {"i8[4,3];i8[5,4]", "matmul", "{transpose_a=1, transpose_b=1}", "i8[3,5]"},
    {"f32[2,7,10];f32[5,10];f32[5]", "linear", "", "f32[2,7,5]"},
    {"f32[10];f32[5,10]", "linear", "", "f32[5]"},
    {"f32[1,3,224,224];f32[64,3,7,7]", "conv", "{strides=[2,2], pads=[3,3,3,3]}",
        "f32[1,64,112,112]"},
    {"f32[1,8,10];f32[8,1,3];f32[8]", "conv", "{groups=8, pads=[2,0]}", "f32[1,8,10]"},
    {"f32[1,4,9,9]{0,2,3,1};f32[2,4,3,3]", "conv", "{dilations=[2,3]}", "f32[1,2,5,3]{0,2,3,1}"},
    {"f32[2,4,5,6,7];f32[6,2,1,2,3]", "conv", "{groups=2}", "f32[2,6,5,5,5]"},
    {"f32[1,8,7,7];f32[8,4,3,3];f32[4]", "conv_transpose",
        "{strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]}", "f32[1,4,14,14]"},
    {"f32[1,8,5];f32[8,2,4]", "conv_transpose", "{groups=4, dilations=[3]}", "f32[1,8,14]"},
    {"f32[2,6,9,8];f32[2,4,4,3]", "conv_wgrad",
        "{kernel=[3,2], strides=[2,3], pads=[1,0,2,1], dilations=[2,1], groups=2}", "f32[4,3,3,2]"},
    {"f32[1,4,9]{0,2,1};f32[1,4,4]{0,2,1}", "conv_wgrad", "{kernel=[3], dilations=[2], groups=4}",
        "f32[4,1,3]"},
    {"f32[2,4,9,8]{0,2,3,1};f32[36,3,4,2]", "winograd", "{pads=[1,0,1,1], block=[1,2]}",
        "f32[2,6,9,7]{0,2,3,1}"},
    {"f32[1,4,3,8];f32[16,1,4,5]", "winograd", "", "f32[1,5,1,6]"},
    {"f32[4,3,9,8]{0,2,3,1};f32[4,5,9,7]{0,2,3,1}", "winograd_wgrad",
        "{pads=[1,0,1,1], block=[2,2], tile=4}", "f32[4,3,3,5,3]"},
    /* named ops with reductions */
    {"f32[1,512,7,7]{0,2,3,1}", "global_avgpool", "", "f32[1,512,1,1]{0,2,3,1}"},
    {"i8[1,4,9]", "global_maxpool", "", "i8[1,4,1]"},
    {"f32[2,10]", "softmax", "{axis=1}", "f32[2,10]"},
    {"f32[2,10]", "log_softmax", "{axis=0}", "f32[2,10]"},
    {"f32[2,3,4,4];f32[3];f32[3];f32[3];f32[3]", "batchnorm", "{eps=0.001}", "f32[2,3,4,4]"},
    {"f32[2,3,4]", "layernorm", "", "f32[2,3,4]"},
    {"f32[2,3,4];f32[3,4];f32[3,4]", "layernorm", "{axis=1}", "f32[2,3,4]"},
    {"f32[2,3,4];f32[4]", "rmsnorm", "{eps=0}", "f32[2,3,4]"},
    {"f16[2,3]{1,0}", "cumsum", "{axis=1, exclusive=1}", "f16[2,3]"},
    {"f32[2,9]{1,0}", "topk", "{axis=1, k=3, largest=0}", "f32[2,3];i64[2,3]"},
    {"bool[4,5];i32[3,5];bool[3,5]", "scatter", "{axis=0}", "bool[4,5]"},
    {"f32[4,5];i64[3,2];f32[3,2]", "scatter", "{axis=0, reduction=add}", "f32[4,5]"},
    {"f32[4,5,6];i64[7,2];f32[7,6]", "scatter_nd", "{reduction=max}", "f32[4,5,6]"},
    {"f32[4,5];u8[3,9]", "gather_elements", "{axis=1}", "f32[3,9]"},
    {"f32[4,5,6];i64[4,8,1]", "gather_nd", "{batch_dims=1}", "f32[4,8,6]"},
    {"f32[5,2,12];f32[3,12];f32[2,3];f32[2,3];i32[2]", "lstm", "", "f32[5,2,3];f32[2,3]"},
    {"f16[5,2,9];f16[3,9];f16[3];f16[2,3]", "gru", "", "f16[5,2,3]"},
    {"f16[5,2,9];f16[3,3,3,1];f16[3];f16[2,3]", "gru", "", "f16[5,2,3]"},
    {"f64[5,2,3];f64[3,3];f64[2,3]", "rnn", "{activation=relu}", "f64[5,2,3]"},
    {"u8[2,3]", "cumprod", "{axis=0, reverse=1}", "u8[2,3]"},
    {"f32[2,6,4,4];f32[6];f32[6]", "groupnorm", "{num_groups=3}", "f32[2,6,4,4]"},
};

static int count_types(const char *s)
{
    int n = 1;
    for (; *s; s++)
        n += *s == ';';
    return n;
}

TEST(infer_every_op)
{
    bool seen[OP__COUNT] = {0};
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        const struct row *r = &rows[i];
        nnc_graph *g = parse_node_text(r->inputs, r->op, r->attrs, count_types(r->results));
        if (!g) {
            test_fail(__FILE__, __LINE__, "%s(%s) %s is rejected", r->op, r->inputs, r->attrs);
            nnc_sink_print(test_sink, stderr);
            nnc_sink_clear(test_sink);
            continue;
        }
        nnc_text t = {0};
        for (uint32_t k = 0; k < g->n_output; k++) {
            nnc_puts(&t, k ? ";" : "");
            nnc_put_type(&t, nnc_typeof(g, g->output[k]));
        }
        if (strcmp(nnc_text_str(&t), r->results))
            test_fail(__FILE__, __LINE__, "%s(%s) %s gives %s, not %s", r->op, r->inputs, r->attrs,
                nnc_text_str(&t), r->results);
        CHECK_OK(nnc_verify(g, test_sink));
        seen[nnc_def(g, g->output[0])->op] = true;
        nnc_text_deinit(&t);
        nnc_graph_destroy(g);
    }
    for (int i = 0; i < OP__COUNT; i++)
        if (!seen[i] && nnc_ops[i].cls != CL_leaf && i != OP_fused)
            test_fail(__FILE__, __LINE__, "no shape is tested for %s", nnc_ops[i].name);
}

TEST(infer_huge)
{
    /* 2^46 bytes are allowed, one element more is not; nothing overflows on the way. */
    nnc_graph *g = parse_node_text("u8[8388608,8388608]", "identity", "", 1);
    CHECK(g != NULL);
    nnc_graph_destroy(g);
    CHECK(!parse_node_text("u8[8388608,1];u8[1,8388609]", "max", "", 1));
    CHECK_DIAG("too large");
    nnc_sink_clear(test_sink);
    CHECK(!parse_node_text("u8[2,3]", "pad", "{pads=[9223372036854775807,0,1,0]}", 1));
    CHECK_DIAG("beyond 64 bits");
    nnc_sink_clear(test_sink);
    CHECK(!parse_node_text("f32[1,1,9];f32[1,1,3]", "conv", "{dilations=[2147483648]}", 1));
    CHECK_DIAG("too large");
    nnc_sink_clear(test_sink);
    CHECK(!parse_node_text(
        "f32[1,1,70368];f32[1,1,3]", "conv_transpose", "{strides=[2147483648]}", 1));
    CHECK_DIAG("too large");
    nnc_sink_clear(test_sink);
    CHECK(!parse_node_text("f32[1,1,9];f32[1,1,3]", "conv", "{strides=[2147483649]}", 1));
    CHECK_DIAG("2147483649 is out of range; each must be at most 2147483648");
    nnc_sink_clear(test_sink);
    CHECK(!parse_node_text(
        "f32[1,2,9];f32[2,9223372,3]", "conv_transpose", "{groups=9223372036854775807}", 1));
    CHECK_DIAG("groups");
}

TEST(infer_concat_many)
{
    /* A concat of 70000 operands is an error, not a wrapped 16-bit count. */
    nnc_graph *g = nnc_graph_create("t", test_sink);
    nnc_type t = nnc_type_make(DT_f32, 1, (int64_t[]){1});
    nnc_ref x = nnc_input(g, "x", &t);
    nnc_ref *in = nnc_malloc(70000 * sizeof *in);
    for (int i = 0; i < 70000; i++)
        in[i] = x;
    nnc_attr a = nnc_ai(AT_axis, 0);
    CHECK_INT(nnc_build(g, OP_concat, 70000, in, 1, &a), NNC_NONE);
    CHECK_INT(g->status, NNC_E_MODEL);
    CHECK_DIAG("70000 operands");
    nnc_free(in);
    nnc_graph_destroy(g);
}

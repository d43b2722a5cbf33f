/* tests/frontend/layers.c -- every layer type builds what it should: result types known on
 * paper, names, scopes, inheritance. */
#include "frontend/internal.h"
#include "test.h"

#include <float.h>
#include <math.h>

/* Generated weights of integers are -3 to 3 unless they state a scale. */
static const char INTEGERS[] =
    "{\"inputs\": {\"x\": {\"shape\": [2, 3], \"dtype\": \"i32\"}}, \"layers\": [{\"op\": "
    "\"linear\", \"out\": "
    "4}, {\"op\": \"param\", \"shape\": [1, 2, 4], \"dtype\": \"i32\", \"scale\": 2}]}";

static nnc_graph *parse(const char *inputs, const char *rest)
{
    nnc_text t = {0};
    nnc_printf(&t, "{\"inputs\": {%s}, %s}", inputs, rest);
    nnc_graph *g = nnc_model_parse("m", nnc_text_str(&t), t.n, NULL, test_sink);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s", nnc_text_str(&t));
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&t);
    return g;
}

static void yields(const char *inputs, const char *layers, const char *want)
{
    nnc_text t = {0}, l = {0};
    nnc_printf(&l, "\"layers\": [%s]", layers);
    nnc_graph *g = parse(inputs, nnc_text_str(&l));
    if (g) {
        CHECK_OK(nnc_verify(g, test_sink));
        nnc_put_type(&t, nnc_typeof(g, g->output[0]));
        if (strcmp(nnc_text_str(&t), want) != 0)
            test_fail(__FILE__, __LINE__, "%s gives %s, not %s", layers, nnc_text_str(&t), want);
    }
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
    nnc_text_deinit(&l);
}

#define IMG "\"x\": [2, 6, 8, 9]"
#define ROW "\"x\": [4, 6]"

TEST(windows)
{
    yields(IMG,
        "{\"op\": \"conv\", \"channels\": 4, \"kernel\": [3, 2], \"stride\": [2, 1], \"pad\": [1, "
        "0]}",
        "f32[2,4,4,8]");
    yields(IMG,
        "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 3, \"stride\": 2, \"pad\": \"same\"}",
        "f32[2,4,4,5]");
    yields(IMG, "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 2, \"pad\": [1, 0, 0, 3]}",
        "f32[2,4,8,11]");
    yields(IMG,
        "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 3, \"dilation\": 2, \"groups\": 2, "
        "\"bias\": false}",
        "f32[2,4,4,5]");
    yields("\"x\": [2, 6, 8]", "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 3}", "f32[2,4,6]");
    yields("\"x\": [1, 2, 4, 5, 6]",
        "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 3, \"pad\": \"same\"}", "f32[1,4,4,5,6]");
    yields(IMG, "{\"op\": \"depthwise\", \"kernel\": 3, \"pad\": 1, \"multiplier\": 2}",
        "f32[2,12,8,9]");
    yields(IMG, "{\"op\": \"conv_transpose\", \"channels\": 4, \"kernel\": 2, \"stride\": 2}",
        "f32[2,4,16,18]");
    /* the odd zero: begins 1, ends 2 of the rows, or the other way round */
    yields(IMG,
        "{\"op\": \"conv\", \"channels\": 4, \"kernel\": 4, \"stride\": 3, \"pad\": "
        "\"same_lower\"}",
        "f32[2,4,3,3]");
    yields(IMG, "{\"op\": \"maxpool\", \"kernel\": 2}", "f32[2,6,4,4]");
    yields(IMG, "{\"op\": \"maxpool\", \"kernel\": 2, \"ceil\": true}", "f32[2,6,4,5]");
    yields("\"x\": [1, 4, 2, 2]", /* the last layers of a deep net on a small image */
        "{\"op\": \"maxpool\", \"kernel\": 3, \"stride\": 2, \"ceil\": true}", "f32[1,4,1,1]");
    yields(IMG,
        "{\"op\": \"avgpool\", \"kernel\": 3, \"stride\": 1, \"pad\": 1, \"count_include_pad\": "
        "true}",
        "f32[2,6,8,9]");
    yields(IMG, "\"global_avgpool\"", "f32[2,6,1,1]");
    yields(IMG, "\"global_maxpool\", \"squeeze\"", "f32[2,6]");
}

TEST(norms_and_weights)
{
    yields(IMG,
        "\"batchnorm\", {\"op\": \"groupnorm\", \"groups\": 3}, \"layernorm\", {\"op\": "
        "\"layernorm\", \"axis\": 1}, \"rmsnorm\", \"prelu\"",
        "f32[2,6,8,9]");
    yields("\"x\": {\"shape\": [2, 5], \"dtype\": \"i64\"}",
        "{\"op\": \"embedding\", \"rows\": 100, \"channels\": 8}", "f32[2,5,8]");
    yields("\"x\": {\"shape\": [2, 5], \"dtype\": \"i32\"}",
        "{\"op\": \"embedding\", \"rows\": 100, \"channels\": 8, \"dtype\": \"bf16\"}",
        "bf16[2,5,8]");
    yields(ROW,
        "{\"op\": \"param\", \"name\": \"p\", \"shape\": [6]}, {\"op\": \"add\", \"in\": [\"x\", "
        "\"p\"]}",
        "f32[4,6]");
    yields(ROW,
        "{\"op\": \"constant\", \"value\": 2, \"shape\": [6], \"name\": \"c\"}, {\"op\": \"mul\", "
        "\"in\": [\"x\", \"c\"]}",
        "f32[4,6]");
    yields(
        ROW, "{\"op\": \"iota\", \"shape\": [3, 4], \"dim\": -1, \"dtype\": \"i32\"}", "i32[3,4]");
    yields("\"x\": {\"shape\": [2, 5], \"dtype\": \"f16\"}", "{\"op\": \"linear\", \"out\": 3}",
        "f16[2,3]");
    yields(ROW, "{\"op\": \"linear\", \"out\": 3, \"dtype\": \"f16\"}, \"relu\"", "f16[4,3]");
}

static int params(const nnc_graph *g)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += g->node[i].op == OP_param;
    return n;
}

/* nn.LayerNorm(bias=False) and nn.PReLU() with one slope; the begin has the odd zero with same_lower. */
TEST(weights_of_integers)
{
    nnc_graph *g = nnc_model_parse("m", INTEGERS, sizeof INTEGERS - 1, NULL, test_sink);
    CHECK(g && params(g) == 3);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        if (g->node[i].op == OP_param)
            CHECK_NEAR(
                g->node[i].weight->scale, nnc_typeof(g, g->node[i].out)->rank == 3 ? 2 : 4, 0);
    nnc_graph_destroy(g);
}

TEST(weights_that_are_left_out)
{
    nnc_graph *g =
        parse(IMG, "\"layers\": [{\"op\": \"layernorm\", \"bias\": false}, {\"op\": \"prelu\", "
                   "\"slopes\": 1}]");
    CHECK(g && params(g) == 2);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        if (g->node[i].op == OP_param)
            CHECK_INT(nnc_type_numel(nnc_typeof(g, g->node[i].out)),
                g->node[i].weight->shift == 1 ? 9 : 1);
    nnc_graph_destroy(g);
    static const char *const pads[] = {"same", "same_lower"};
    for (int k = 0; k < 2; k++) {
        char rest[160];
        const int64_t *v = NULL;
        snprintf(rest, sizeof rest,
            "\"layers\": [{\"op\": \"maxpool\", \"kernel\": 2, \"stride\": 1, \"pad\": \"%s\"}]",
            pads[k]);
        g = parse(IMG, rest);
        CHECK(g && nnc_attr_ints(nnc_def(g, g->output[0]), AT_pads, &v) == 4);
        if (v)
            CHECK(v[0] == k && v[1] == k && v[2] == 1 - k && v[3] == 1 - k);
        nnc_graph_destroy(g);
    }
}

TEST(movement)
{
    yields(IMG, "\"flatten\"", "f32[2,432]");
    yields(IMG, "{\"op\": \"flatten\", \"axis\": -2}", "f32[2,6,72]");
    yields(ROW, "{\"op\": \"unsqueeze\", \"axes\": [0, -1]}", "f32[1,4,6,1]");
    yields(ROW, "{\"op\": \"unsqueeze\", \"axes\": 1}, {\"op\": \"squeeze\", \"axes\": [1]}",
        "f32[4,6]");
    yields(IMG, "{\"op\": \"reshape\", \"shape\": [0, 3, -1, \"2 + 1\"]}", "f32[2,3,48,3]");
    yields(IMG, "\"transpose\"", "f32[2,6,9,8]");
    yields(IMG, "{\"op\": \"transpose\", \"perm\": [0, 2, 3, 1]}", "f32[2,8,9,6]");
    yields(IMG, "{\"op\": \"slice\", \"axes\": [1, 3], \"starts\": [1, -4], \"ends\": [99, -1]}",
        "f32[2,5,8,3]");
    yields(ROW, "{\"op\": \"slice\", \"starts\": 1, \"ends\": 4, \"steps\": 2}", "f32[2,6]");
    yields(ROW, "{\"op\": \"slice\", \"starts\": [1, -2]}", "f32[3,2]");
    yields(ROW, "{\"op\": \"slice\", \"starts\": [-9, -7], \"ends\": [-2, 7]}", "f32[2,6]");
    yields("\"i\": {\"shape\": [5], \"dtype\": \"i64\"}",
        "{\"op\": \"add\", \"value\": 3000000000}", "i64[5]");
    yields(ROW, "{\"op\": \"pad\", \"pads\": [0, 1, 2, 3], \"value\": 7}", "f32[6,10]");
    yields(ROW, "{\"op\": \"pad\", \"pads\": [1, 1, 1, 1], \"mode\": \"reflect\"}", "f32[6,8]");
    yields(ROW, "{\"op\": \"concat\", \"in\": [\"x\", \"x\", \"x\"], \"axis\": 0}", "f32[12,6]");
    yields(ROW,
        "{\"op\": \"split\", \"sizes\": [1, 5], \"name\": \"s\"}, {\"op\": \"relu\", \"in\": "
        "\"s:1\"}",
        "f32[4,5]");
    yields(ROW, "{\"op\": \"broadcast\", \"shape\": [3, 4, 6]}", "f32[3,4,6]");
    yields(ROW, "{\"op\": \"flip\", \"axes\": [-1]}", "f32[4,6]");
    yields(ROW ", \"i\": {\"shape\": [5], \"dtype\": \"i64\"}",
        "{\"op\": \"gather\", \"in\": [\"x\", \"i\"], \"axis\": 1}", "f32[4,5]");
}

TEST(reductions_and_products)
{
    yields(ROW, "\"reduce_sum\"", "f32[1,1]");
    yields(ROW, "{\"op\": \"reduce_mean\", \"axes\": [-1], \"keepdims\": false}", "f32[4]");
    yields(ROW, "{\"op\": \"argmax\", \"keepdims\": false}", "i64[4]");
    yields(ROW, "{\"op\": \"softmax\", \"axis\": 0}, \"log_softmax\"", "f32[4,6]");
    yields("\"a\": [2, 3, 4], \"b\": [5, 4]",
        "{\"op\": \"matmul\", \"in\": [\"a\", \"b\"], \"transpose_b\": true}", "f32[2,3,5]");
    yields("\"c\": {\"shape\": [4, 1], \"dtype\": \"bool\"}, \"x\": [4, 6]",
        "{\"op\": \"select\", \"in\": [\"c\", \"x\", \"x\"]}", "f32[4,6]");
    yields(ROW,
        "{\"op\": \"gt\", \"value\": 0.5}, {\"op\": \"cast\", \"to\": \"i8\"}, {\"op\": \"mul\", "
        "\"value\": 3}",
        "i8[4,6]");
}

/* Every elementwise op of one operand, by name alone. */
TEST(all_elementwise)
{
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        if (r.own || !nnc_op_is_ewise(r.op) || r.n_max != 1 || r.op == OP_cast)
            continue;
        bool logic = r.op == OP_not;
        nnc_text l = {0};
        nnc_printf(&l, "\"%s\"", r.name);
        yields(logic ? "\"x\": {\"shape\": [4], \"dtype\": \"bool\"}" : "\"x\": [4]",
            nnc_text_str(&l), nnc_ops[r.op].flags & OF_bool ? "bool[4]" : "f32[4]");
        nnc_text_deinit(&l);
    }
}

static const nnc_node *named(const nnc_graph *g, const char *weight)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && !strcmp(g->node[i].weight->name, weight))
            return &g->node[i];
    test_fail(__FILE__, __LINE__, "no weight %s", weight);
    return &g->node[0];
}

TEST(names_paths_inheritance)
{
    nnc_graph *g =
        parse(ROW, "\"blocks\": {\"b\": {\"args\": [\"n\"], \"layers\": [{\"op\": \"linear\", "
                   "\"out\": \"n\"}, {\"name\": \"in\", \"layers\": ["
                   "{\"op\": \"linear\", \"name\": \"fc\", \"out\": 6, \"frozen\": false}]}]}},"
                   "\"layers\": [{\"op\": \"b\", \"name\": \"s\", \"repeat\": 2, \"n\": \"i + 1\", "
                   "\"frozen\": true, \"device\": 3},\n"
                   "{\"op\": \"relu\", \"when\": false, \"name\": \"gone\"}, {\"op\": \"add\", "
                   "\"in\": [\"gone\", \"s\"]},"
                   "{\"op\": \"linear\", \"out\": 6, \"weights\": \"t\", \"bias\": false}, "
                   "{\"op\": \"linear\", \"out\": 6, \"weights\": \"t\", \"bias\": false}]");
    if (!g)
        return;
    const nnc_node *a = named(g, "s.1.0.weight"), *b = named(g, "s.1.in.fc.bias");
    CHECK_STR(a->origin, "/layers/0/s[1]/0/linear");
    CHECK_STR(b->origin, "/layers/0/s[1]/1/in/0/fc");
    CHECK(a->frozen && !b->frozen);
    CHECK_INT(a->device, 3);
    CHECK_INT(nnc_typeof(g, a->out)->dim[0], 2);
    CHECK_INT(a->weight->seed, 0);
    int64_t parameters, statistics;
    CHECK(nnc_param_count(g, &parameters, &statistics));
    CHECK_INT(statistics, 0);
    CHECK_INT(parameters, (6 + 1 + 6 + 6) + (12 + 2 + 12 + 6) + 36); /* t counts once */
    const nnc_node *add = NULL;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_add)
            add = &g->node[i];
    CHECK(add && add->in[0] == add->in[1] && add->device == -1 && add->loc.line == 2);
    nnc_graph_destroy(g);
}

/* "weights" of a group, a block and a repeat: all inside shares by the names within. */
TEST(weights_of_groups_and_blocks)
{
    static const struct {
        const char *rest, *name;
        int n;
    } cases[] = {
        {"\"layers\": [{\"weights\": \"f\", \"layers\": [{\"op\": \"linear\", \"name\": \"l\", "
         "\"out\": 6}]}, "
         "{\"weights\": \"f\", \"layers\": [{\"op\": \"linear\", \"name\": \"l\", \"out\": 6}]}]",
            "f.l.weight", 2},
        {"\"blocks\": {\"b\": {\"layers\": [{\"op\": \"linear\", \"name\": \"l\", \"out\": 6}]}}, "
         "\"layers\": [{\"op\": \"b\", \"name\": \"one\"}, {\"op\": \"b\", \"weights\": \"one\"}]",
            "one.l.bias", 2},
        {"\"layers\": [{\"weights\": \"w\", \"repeat\": 3, \"layers\": [{\"op\": \"linear\", "
         "\"out\": 6}]}]",
            "w.0.weight", 2},
        {"\"layers\": [{\"weights\": \"w${i % 2}\", \"repeat\": 4, \"layers\": [{\"op\": "
         "\"linear\", "
         "\"out\": 6, \"bias\": false}]}]",
            "w1.0.weight", 2},
        {"\"layers\": [{\"weights\": \"f\", \"layers\": [{\"name\": \"g\", \"layers\": [{\"op\": "
         "\"linear\", "
         "\"name\": \"own\", \"out\": 6, \"weights\": \"t\"}, {\"op\": \"linear\", \"name\": "
         "\"l\", \"out\": 6}]}]}]",
            "f.g.l.weight", 4},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_graph *g = parse(ROW, cases[i].rest);
        if (g) {
            named(g, cases[i].name);
            CHECK_INT(params(g), cases[i].n);
            CHECK_INT(nnc_sink_count(test_sink), 0);
        }
        nnc_graph_destroy(g);
    }
}

/* "dtype" of a layer converts integers, too, but neither indices nor conditions; that of a group converts integers where a
 * layer is for floats. */
TEST(dtype_converts_integers)
{
#define U8 "\"x\": {\"shape\": [1, 2, 4, 4], \"dtype\": \"u8\"}"
    yields(U8, "{\"op\": \"conv\", \"channels\": 3, \"kernel\": 3, \"dtype\": \"f32\"}",
        "f32[1,3,2,2]");
    yields(U8, "{\"op\": \"linear\", \"out\": 3, \"dtype\": \"f16\"}", "f16[1,2,4,3]");
    yields(U8, "{\"op\": \"relu\", \"dtype\": \"f32\"}", "f32[1,2,4,4]");
    yields(U8, "{\"op\": \"div\", \"value\": 255.0, \"dtype\": \"f32\"}", "f32[1,2,4,4]");
    yields(U8,
        "{\"dtype\": \"f32\", \"layers\": [{\"op\": \"conv\", \"channels\": 3, \"kernel\": 3}]}",
        "f32[1,3,2,2]");
    yields(U8, "{\"dtype\": \"f32\", \"layers\": [\"batchnorm\", \"gelu\"]}", "f32[1,2,4,4]");
    yields("\"x\": {\"shape\": [3], \"dtype\": \"i64\"}",
        "{\"dtype\": \"bf16\", \"layers\": [{\"op\": \"add\", \"value\": 1}, {\"op\": "
        "\"embedding\", "
        "\"rows\": 9, \"channels\": 2}]}",
        "bf16[3,2]");
    yields(ROW ", \"i\": {\"shape\": [5], \"dtype\": \"i64\"}",
        "{\"op\": \"gather\", \"in\": [\"x\", \"i\"], \"dtype\": \"f16\"}", "f16[5,6]");
    yields("\"c\": {\"shape\": [4, 1], \"dtype\": \"bool\"}, \"x\": {\"shape\": [4, 6], \"dtype\": "
           "\"i8\"}",
        "{\"op\": \"select\", \"in\": [\"c\", \"x\", \"x\"], \"dtype\": \"f32\"}", "f32[4,6]");
}

/* The number that `value` gives a constant layer. */
static double constant_of(const char *args, const char *value)
{
    nnc_text t = {0};
    double v = 0;
    nnc_printf(&t, "%s\"layers\": [{\"op\": \"constant\", \"value\": %s}]", args, value);
    nnc_graph *g = parse(ROW, nnc_text_str(&t));
    CHECK(g && nnc_const_scalar(g, g->output[0], &v));
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
    return v;
}

TEST(float_literals)
{
    CHECK_NEAR(constant_of("", "-1e30"), (double)-1e30f, 0);
    CHECK_NEAR(constant_of("", "1e16"), (double)1e16f, 0);
    CHECK_NEAR(constant_of("", "-3.4028234663852886e38"), -(double)FLT_MAX, 0);
    CHECK_NEAR(constant_of("", "\"2.5e-3\""), (double)2.5e-3f, 0);
    CHECK_NEAR(constant_of("", "\"2*3\""), 6, 0);
    CHECK_NEAR(constant_of("\"args\": {\"slope\": \"0.25\"}, ", "\"slope\""), 0.25, 0);
    CHECK_NEAR(constant_of("\"args\": {\"slope\": 0.25}, ", "\"slope\""), 0.25, 0);
    CHECK(isinf(constant_of("", "\"inf\"")) && constant_of("", "\"inf\"") > 0);
    CHECK(isinf(constant_of("", "\"-inf\"")) && constant_of("", "\"-inf\"") < 0);
    CHECK(isnan(constant_of("", "\"nan\"")));
    yields(ROW,
        "{\"op\": \"clip\", \"lo\": \"-inf\", \"hi\": 1e30}, {\"op\": \"max\", \"value\": "
        "\"-inf\"}",
        "f32[4,6]");
    yields(ROW, "{\"op\": \"pad\", \"pads\": [0, 1, 0, 1], \"value\": \"-inf\"}", "f32[4,8]");
}

/* Floats as args of models and blocks, and by --set. */
TEST(float_args)
{
    static const char text[] = "{\"args\": {\"slope\": 0.25}, \"blocks\": {\"b\": {\"args\": "
                               "{\"s\": 1e-3}, \"layers\": [{\"op\": \"leaky_relu\", "
                               "\"alpha\": \"s\"}]}}, \"inputs\": {\"x\": [4]}, \"layers\": "
                               "[\"b\", {\"op\": \"b\", \"s\": 0.5}, {\"op\": "
                               "\"b\", \"s\": \"slope\"}]}";
    static const double want[3][3] = {{1e-3, 0.5, 0.25}, {1e-3, 0.5, 0.125}, {1e-3, 0.5, 2}};
    const nnc_set_word word = {"slope", "0.125"};
    const nnc_set whole = {"slope", 2};
    for (int k = 0; k < 3; k++) {
        nnc_model_options o = {.word = &word, .n_word = k == 1, .set = &whole, .n_set = k == 2};
        nnc_graph *g = nnc_model_parse("m", text, sizeof text - 1, &o, test_sink);
        CHECK(g && g->n_node == 4);
        for (int i = 0; g && i < 3; i++)
            CHECK_NEAR(nnc_attr_float(&g->node[1 + i], AT_alpha, 0), want[k][i], 0);
        nnc_graph_destroy(g);
    }
}

static void warns(const char *inputs, const char *rest, int n, const char *want)
{
    nnc_sink_clear(test_sink);
    nnc_graph *g = parse(inputs, rest);
    CHECK_INT(nnc_sink_count(test_sink), n);
    if (n)
        CHECK_DIAG(want);
    nnc_graph_destroy(g);
}

/* Keys without effect are told, once for a layer of the file however often it is repeated. */
TEST(warnings)
{
    warns(ROW, "\"layers\": [{\"op\": \"relu\", \"frozen\": true, \"repeat\": 5}]", 1,
        "\"frozen\" has no effect: this layer has no weights");
    warns(ROW, "\"layers\": [{\"op\": \"layernorm\", \"affine\": false, \"weights\": \"w\"}]", 1,
        "\"weights\" has no effect");
    warns(ROW,
        "\"layers\": [{\"repeat\": 4, \"layers\": [\"relu\", {\"op\": \"tanh\", \"in\": "
        "\"input\"}]}]",
        1, "/layers/0/group[0]/0/relu: nothing uses the result of this layer");
    warns(ROW, "\"layers\": [{\"op\": \"split\", \"parts\": 2, \"name\": \"s\"}, \"relu\"]", 1,
        "nothing uses result 1 of this layer; without \"in\", the next layer takes result 0");
    warns(ROW, "\"layers\": [{\"op\": \"split\", \"parts\": 3}, \"relu\"]", 1,
        "nothing uses results 1, 2 of this layer");
    warns(ROW,
        "\"layers\": [{\"op\": \"split\", \"parts\": 2, \"name\": \"s\"}, {\"op\": \"add\", "
        "\"in\": [\"s:0\", \"s:1\"]}]",
        0, NULL);
    const char *const some[] = {
        "\"lstm\", \"hidden\": 4, \"num_layers\": 2, \"bidirectional\": true",
        "\"gru\", \"hidden\": 4", "\"rnn\", \"hidden\": 4", "\"topk\", \"k\": 2, \"axis\": 1",
        "\"sort\", \"axis\": 1"};
    for (size_t i = 0; i < NNC_COUNT(some); i++) { /* of several results one is used, or none */
        NNC_LOCAL(nnc_text) used = {0};
        NNC_LOCAL(nnc_text) unused = {0};
        nnc_printf(&used, "\"layers\": [{\"op\": %s}, \"relu\"]", some[i]);
        warns("\"x\": [5, 2, 8]", nnc_text_str(&used), 0, NULL);
        nnc_printf(
            &unused, "\"layers\": [{\"op\": %s}, {\"op\": \"relu\", \"in\": \"x\"}]", some[i]);
        warns(
            "\"x\": [5, 2, 8]", nnc_text_str(&unused), 1, "nothing uses the result of this layer");
    }
}

/* As many layers as are allowed, in a time that shows no square: 100,000 layers, half of them
 * named and looked up. */
TEST(many_layers)
{
    nnc_text t = {0};
    nnc_puts(&t, "\"layers\": [\"relu\"");
    for (int i = 0; i < 49998; i++)
        nnc_printf(&t, ",\n\"relu\", {\"op\": \"tanh\", \"name\": \"l%d\", \"in\": \"prev\"}", i);
    nnc_puts(&t, "]");
    int64_t start = nnc_now_ns();
    nnc_graph *g = parse(ROW, nnc_text_str(&t));
    CHECK(nnc_now_ns() - start < INT64_C(20000000000));
    if (g)
        CHECK_INT(g->n_node, 99998);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

/* Names of outputs are those of the text, each its own. */
TEST(outputs_of_graph_text)
{
    static const char text[] = "graph @g {\n  %x = input : f32[2]\n  %y = relu %x\n  %3 = tanh %x\n"
                               "  %4 = sin %x\n  return %y, %y, %3, %4, %y as \"y_3\", %x\n}\n";
    static const char *const want[] = {"y", "y_2", "output", "output_2", "y_3", "x"};
    static const char twice[] =
        "graph @g {\n  %x = input : f32[2]\n  return %x as \"a\", %x as \"a\"\n}\n";
    nnc_graph *g = nnc_model_parse("g.nnc", text, sizeof text - 1, NULL, test_sink);
    CHECK(g && g->n_output == NNC_COUNT(want));
    for (size_t i = 0; g && i < NNC_COUNT(want); i++)
        CHECK_STR(g->output_name[i], want[i]);
    nnc_graph_destroy(g);
    CHECK(nnc_model_parse("g.nnc", twice, sizeof twice - 1, NULL, test_sink) == NULL);
    CHECK_DIAG("two outputs are called \"a\"");
}

TEST(files_by_content)
{
    static const char text[] =
        "# a comment\ngraph @g {\n  %x = input : f32[2]\n  %y = relu %x : f32[2]\n  return %y\n}\n";
    nnc_model_options o = {.set = &(nnc_set){"n", 1}, .n_set = 1};
    nnc_graph *g = nnc_model_parse("g.nnc", text, sizeof text - 1, NULL, test_sink);
    nnc_sink_print(test_sink, stderr);
    CHECK(g != NULL);
    nnc_graph_destroy(g);
    CHECK(nnc_model_parse("g.nnc", text, sizeof text - 1, &o, test_sink) == NULL);
    CHECK_DIAG("has no args");
    CHECK(nnc_model_parse("e", " \n", 2, NULL, test_sink) == NULL);
    CHECK_DIAG("the model file is empty");
    CHECK(nnc_model_parse("e", "\x89PNG", 4, NULL, test_sink) == NULL);
    CHECK_DIAG("is neither");
    CHECK(nnc_model_load("/nonexistent.json", NULL, test_sink) == NULL);
    static const char bom[] = "\xef\xbb\xbf{\"inputs\": {\"x\": [1]}, \"layers\": [\"relu\"]}";
    g = nnc_model_parse("bom", bom, sizeof bom - 1, NULL, test_sink);
    CHECK(g != NULL);
    nnc_graph_destroy(g);
}

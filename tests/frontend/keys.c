/* tests/frontend/keys.c -- no key is accepted and ignored. Two values of each key of each layer type give two graphs, and defaults
 * are what the tables state. Keys that every layer takes, and those of groups, blocks, args and inputs, count too. */
#include "frontend/internal.h"
#include "schema.h"
#include "test.h"
#include <math.h>

static const char inputs[] =
    "\"x\": [2, 4, 6, 6], \"y\": [2, 4, 6, 6], \"b\": {\"shape\": [2, 4, "
    "6, 6], \"dtype\": \"bool\"}, "
    "\"c\": {\"shape\": [2, 4, 6, 6], \"dtype\": \"bool\"}, \"i\": "
    "{\"shape\": [3], \"dtype\": \"i64\"}, \"e\": {\"shape\": [2, 4, 6, 6], \"dtype\": "
    "\"i64\"}, \"z\": [3, 2, 4], \"t\": {\"shape\": [2, 1], \"dtype\": \"i64\"}";

/* Value that a key has where a layer needs it, and two other values; `with`: other keys without which those mean nothing. Rows
 * for one layer type stand before those for all. */
static const struct {
    const char *layer;
    fe_key key;
    const char *base, *one, *two, *with;
} values[] = {
    {"conv_transpose", FK_output_padding, NULL, "0", "1", "\"stride\": 2"},
    {"prelu", FK_slopes, NULL, "1", "4", ""},
    {"unsqueeze", FK_axes, "0", "1", "[0, 1]", ""},
    {"squeeze", FK_axes, NULL, "[0]", "[0, 1]", ""},
    {"reshape", FK_shape, "[8, -1]", "[4, -1]", "[0, 2, -1]", ""},
    {"broadcast", FK_shape, "[1, 2, 4, 6, 6]", "[3, 2, 4, 6, 6]", "[2, 2, 4, 6, 6]", ""},
    {"slice", FK_axes, NULL, "[1]", "[2]", ""},
    {"interpolate", FK_mode, NULL, "\"nearest\"", "\"linear\"", "\"size\": 9"},
    {"attention", FK_scale, NULL, "2", "3", ""},
    {"groupnorm", FK_groups, "2", "1", "4", ""},
    {"and", FK_value, NULL, "0", "1", ""},
    {"or", FK_value, NULL, "0", "1", ""},
    {"xor", FK_value, NULL, "0", "1", ""},
    {"bit_and", FK_value, NULL, "0", "1", ""},
    {"bit_or", FK_value, NULL, "0", "1", ""},
    {"bit_xor", FK_value, NULL, "0", "1", ""},
    {"shl", FK_value, NULL, "0", "1", ""},
    {"shr", FK_value, NULL, "0", "1", ""},
    {NULL, FK_channels, "4", "2", "8", ""},
    {NULL, FK_out, "4", "5", "6", ""},
    {NULL, FK_rows, "4", "5", "6", ""},
    {NULL, FK_kernel, "3", "2", "1", ""},
    {NULL, FK_stride, NULL, "1", "2", ""},
    {NULL, FK_pad, NULL, "1", "[0, 1]", ""},
    {NULL, FK_dilation, NULL, "1", "2", ""},
    {NULL, FK_groups, NULL, "1", "2", ""},
    {NULL, FK_multiplier, NULL, "2", "3", ""},
    {NULL, FK_bias, NULL, "true", "false", ""},
    {NULL, FK_affine, NULL, "true", "false", ""},
    {NULL, FK_ceil, NULL, "true", "false", ""},
    {NULL, FK_count_include_pad, NULL, "true", "false", "\"pad\": 1"},
    {NULL, FK_eps, NULL, "1e-3", "1e-4", ""},
    {NULL, FK_bn, NULL, "\"train\"", "\"eval\"", ""},
    {NULL, FK_alpha, NULL, "0.25", "0.5", ""},
    {NULL, FK_beta, NULL, "0.25", "0.75", ""},
    {NULL, FK_lo, NULL, "-1", "\"-inf\"", ""},
    {NULL, FK_hi, NULL, "1", "2.5e30", ""},
    {NULL, FK_value, "1", "0", "\"nan\"", ""},
    {NULL, FK_scale, NULL, "2", "3", ""},
    {NULL, FK_to, "\"f16\"", "\"i8\"", "\"bf16\"", ""},
    {NULL, FK_axes, "[0]", "[1]", "[-1, 0]", ""},
    {NULL, FK_dim, NULL, "0", "1", ""},
    {"cumsum", FK_axis, "1", "1", "-1", ""},
    {"cumprod", FK_axis, "1", "1", "-1", ""},
    {NULL, FK_axis, NULL, "2", "-1", ""},
    {NULL, FK_k, "1", "2", "1", ""},
    {NULL, FK_largest, NULL, "true", "false", ""},
    {NULL, FK_descending, NULL, "true", "false", ""},
    {NULL, FK_reduction, NULL, "\"add\"", "\"none\"", ""},
    {NULL, FK_batch_dims, NULL, "0", "1", ""},
    {NULL, FK_hidden, "3", "2", "4", ""},
    {NULL, FK_num_layers, NULL, "1", "2", ""},
    {NULL, FK_bidirectional, NULL, "true", "false", ""},
    {NULL, FK_batch_first, NULL, "true", "false", ""},
    {NULL, FK_activation, NULL, "\"tanh\"", "\"relu\"", ""},
    {NULL, FK_exclusive, NULL, "true", "false", ""},
    {NULL, FK_reverse, NULL, "true", "false", ""},
    {NULL, FK_keepdims, NULL, "true", "false", ""},
    {NULL, FK_shape, "[2, 3]", "[4, 3]", "[2, 2]", ""},
    {NULL, FK_perm, NULL, "[1, 0, 2, 3]", "[0, 1, 3, 2]", ""},
    {NULL, FK_starts, "[0]", "[0]", "[-1]", ""},
    {NULL, FK_ends, NULL, "[1]", "2147483648", ""},
    {NULL, FK_steps, NULL, "[1]", "[2]", ""},
    {NULL, FK_pads, "[0, 0, 1, 1, 0, 0, 1, 1]", "[1, 0, 0, 0, 0, 0, 0, 0]",
        "[0, 0, 0, 0, 0, 0, 0, 1]", ""},
    {NULL, FK_mode, NULL, "\"edge\"", "\"reflect\"", ""},
    {NULL, FK_sizes, NULL, "[1, 3]", "[3, 1]", ""},
    {NULL, FK_parts, NULL, "2", "4", ""},
    {NULL, FK_size, NULL, "9", "[9, 12]", ""},
    {NULL, FK_scale_factor, NULL, "2", "1.5", ""},
    {NULL, FK_align_corners, NULL, "true", "false", "\"size\": 9, \"mode\": \"linear\""},
    {NULL, FK_output_size, "2", "3", "4", ""},
    {NULL, FK_heads, "2", "1", "3", ""},
    {NULL, FK_causal, NULL, "true", "false", ""},
    {NULL, FK_transpose_a, NULL, "true", "false", ""},
    {NULL, FK_transpose_b, NULL, "true", "false", ""},
    {NULL, FK_approximate, NULL, "\"tanh\"", "\"none\"", ""},
};

static int row_of(const char *layer, fe_key key)
{
    for (size_t i = 0; i < NNC_COUNT(values); i++)
        if (values[i].key == key && (!values[i].layer || !strcmp(values[i].layer, layer)))
            return (int)i;
    test_fail(__FILE__, __LINE__, "no values for key %s", fe_keys[key].name);
    return 0;
}

static const char *operands(const fe_row *r)
{
    bool logic = r->op == OP_not || r->op == OP_and || r->op == OP_or || r->op == OP_xor;
    if (nnc_ops[r->op].flags & OF_int)
        return ", \"in\": [\"i\", \"i\"]";
    if (r->n_max == 0)
        return "";
    if (!strcmp(r->name, "squeeze")) /* what unsqueeze made */
        return ", \"in\": \"u\"";
    if (!strcmp(r->name, "embedding"))
        return ", \"in\": \"i\"";
    if (r->op == OP_lstm || r->op == OP_gru || r->op == OP_rnn)
        return ", \"in\": \"z\"";
    if (r->op == OP_gather_elements)
        return ", \"in\": [\"x\", \"e\"]";
    if (r->op == OP_scatter)
        return ", \"in\": [\"x\", \"e\", \"y\"]";
    if (r->op == OP_gather_nd)
        return ", \"in\": [\"x\", \"t\"]";
    if (r->op == OP_scatter_nd)
        return ", \"in\": [\"x\", \"t\", \"y\"]";
    if (!strcmp(r->name, "gather"))
        return ", \"in\": [\"x\", \"i\"]";
    if (r->op == OP_select)
        return ", \"in\": [\"b\", \"x\", \"y\"]";
    if (r->n_min == 3)
        return ", \"in\": [\"x\", \"y\", \"x\"]";
    if (r->n_max == 1 || !strcmp(r->name, "multihead_attention"))
        return logic ? ", \"in\": \"b\"" : ", \"in\": \"x\"";
    return logic ? ", \"in\": [\"b\", \"c\"]" : ", \"in\": [\"x\", \"y\"]";
}

/* A layer of the type with what it needs; `key`: text of one more key, or NULL. */
static void put_layer(nnc_text *t, const fe_row *r, int skip, const char *more)
{
    fe_use u;
    bool one_input = strstr(more, "\"value\"") && !r->own && r->n_max == 2;
    const char *in = operands(r);
    nnc_printf(t, "{\"op\": \"%s\", \"name\": \"it\"%s", r->name,
        !one_input            ? in
        : strstr(in, "\"b\"") ? ", \"in\": \"b\""
        : strstr(in, "\"i\"") ? ", \"in\": \"i\""
                              : ", \"in\": \"x\"");
    for (const char *p = r->keys; fe_use_next(&p, &u);)
        if (u.must && (int)u.key != skip)
            nnc_printf(t, ", \"%s\": %s", fe_keys[u.key].name, values[row_of(r->name, u.key)].base);
    if (!strcmp(r->name, "split") && skip != FK_sizes && skip != FK_parts)
        nnc_puts(t, ", \"parts\": 2");
    if (!strcmp(r->name, "interpolate") && skip < 0)
        nnc_puts(t, ", \"size\": 9");
    nnc_printf(t, "%s%s}", *more ? ", " : "", more);
}

static nnc_graph *load(const char *layer)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "{\"inputs\": {%s}, \"layers\": [{\"op\": \"unsqueeze\", \"axes\": [0, 1], \"in\": \"x\", "
        "\"name\": \"u\"}, %s]}",
        inputs, layer);
    nnc_sink_clear(test_sink);
    nnc_graph *g = nnc_model_parse("m", nnc_text_str(&t), t.n, NULL, test_sink);
    if (!schema_accepts(nnc_text_str(&t)))
        test_fail(__FILE__, __LINE__, "the schema refuses %s", layer);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s", layer);
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&t);
    return g;
}

static void put_graph(nnc_text *t, const fe_row *r, int skip, const char *more)
{
    nnc_text layer = {0};
    put_layer(&layer, r, skip, more);
    nnc_graph *g = load(nnc_text_str(&layer));
    if (g)
        nnc_graph_print(t, g);
    nnc_graph_destroy(g);
    nnc_text_deinit(&layer);
}

TEST(every_key_counts)
{
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        fe_use u;
        for (const char *p = r.keys; fe_use_next(&p, &u);) {
            int v = row_of(r.name, u.key);
            const char *const two[2] = {values[v].one, values[v].two};
            nnc_text got[2] = {{0}, {0}};
            for (int k = 0; k < 2; k++) {
                nnc_text more = {0};
                nnc_printf(&more, "\"%s\": %s%s%s", fe_keys[u.key].name, two[k],
                    *values[v].with ? ", " : "", values[v].with);
                put_graph(&got[k], &r, (int)u.key, nnc_text_str(&more));
                nnc_text_deinit(&more);
            }
            if (!strcmp(nnc_text_str(&got[0]), nnc_text_str(&got[1])))
                test_fail(
                    __FILE__, __LINE__, "%s: %s changes nothing", r.name, fe_keys[u.key].name);
            nnc_text_deinit(&got[0]);
            nnc_text_deinit(&got[1]);
        }
    }
}

static nnc_rval evaluate(const nnc_graph *g)
{
    static float x[288], y[288];
    static uint8_t b[288];
    static int64_t e[288];
    const int64_t i[3] = {0, 1, 1}, t[2] = {1, 0};
    nnc_rval out[8] = {{{0}, NULL, NULL}};
    for (int k = 0; k < 288; k++) {
        x[k] = (float)(k % 13) / 4 - 1.6f;
        y[k] = (float)(k % 7) / 2 - 1.3f;
        b[k] = k % 3 == 0;
        e[k] = k % 2;
    }
    const void *in[8] = {x, y, b, b, i, e, x, t};
    CHECK(g->n_output <= 8);
    CHECK_OK(nnc_eval(g, in, 1, out, test_sink));
    for (uint32_t k = 1; k < g->n_output; k++)
        nnc_rval_free(&out[k]);
    return out[0];
}

/* A key left out computes what the default of the tables does. Words such as "all" are told by the docs of their keys. */
TEST(defaults_are_true)
{
    int count = 0;
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        fe_use u;
        for (const char *p = r.keys; fe_use_next(&p, &u);) {
            nnc_text more = {0}, layer[2] = {{0}, {0}};
            bool word =
                fe_keys[u.key].kind == LK_word || !strcmp(u.dflt, "inf") || !strcmp(u.dflt, "-inf");
            const char *all = !strcmp(r.name, "squeeze") ? "[0, 1]" : "[0, 1, 2, 3]";
            const char *dflt = !strcmp(u.dflt, "all")        ? all
                               : !strcmp(u.dflt, "kernel")   ? "3"
                               : !strcmp(u.dflt, "channels") ? "4"
                               : !strcmp(u.dflt, "1/6")      ? "0.16666666666666667"
                                                             : u.dflt;
            if (!*u.dflt)
                continue;
            nnc_printf(&more, word ? "\"%s\": \"%s\"" : "\"%s\": %s", fe_keys[u.key].name, dflt);
            put_layer(&layer[0], &r, -1, "");
            put_layer(&layer[1], &r, -1, nnc_text_str(&more));
            nnc_graph *g = load(nnc_text_str(&layer[0])), *h = load(nnc_text_str(&layer[1]));
            nnc_rval a = g ? evaluate(g) : (nnc_rval){0}, c = h ? evaluate(h) : (nnc_rval){0};
            bool same = g && h && nnc_type_equal(&a.type, &c.type);
            for (int64_t k = 0; same && k < nnc_type_numel(&a.type); k++)
                same =
                    a.f ? a.f[k] == c.f[k] || (isnan(a.f[k]) && isnan(c.f[k])) : a.i[k] == c.i[k];
            if (!same)
                test_fail(__FILE__, __LINE__, "%s: %s is not %s when left out", r.name,
                    fe_keys[u.key].name, u.dflt);
            count++;
            nnc_rval_free(&a);
            nnc_rval_free(&c);
            nnc_graph_destroy(g);
            nnc_graph_destroy(h);
            nnc_text_deinit(&more);
            nnc_text_deinit(&layer[0]);
            nnc_text_deinit(&layer[1]);
        }
    }
    CHECK(count > 60);
}

static void put_model(nnc_text *t, const char *json, int want_errors, int want_warnings)
{
    nnc_sink_clear(test_sink);
    nnc_graph *g = nnc_model_parse("m", json, strlen(json), NULL, test_sink);
    if (g && want_errors == 0)
        nnc_graph_print(t, g);
    if (!g != (want_errors > 0) || (int)nnc_sink_count(test_sink) != want_errors + want_warnings) {
        test_fail(__FILE__, __LINE__, "%s", json);
        nnc_sink_print(test_sink, stderr);
    }
    nnc_graph_destroy(g);
}

/* The keys that any layer takes: on a layer with weights, a group and a block. */
TEST(common_keys_count)
{
    static const char *const where[] = {"\"op\": \"linear\", \"out\": 4",
        "\"layers\": [{\"op\": \"linear\", \"out\": 4, \"name\": \"l\"}, {\"op\": \"tanh\", "
        "\"name\": \"h\"}]",
        "\"op\": \"b\""};
    static const char *const keys[] = {"\"name\": \"n\"", "\"in\": \"y\"", "\"device\": 1",
        "\"dtype\": \"f16\"", "\"frozen\": true", "\"frozen\": 1", "\"when\": false",
        "\"repeat\": 2", "\"weights\": \"w\""};
    for (size_t i = 0; i < NNC_COUNT(where); i++)
        for (size_t k = 0; k <= NNC_COUNT(keys); k++) {
            nnc_text t = {0}, plain = {0}, got = {0};
            static const char form[] =
                "{\"blocks\": {\"b\": {\"layers\": [{\"op\": \"linear\", \"out\": 4}, \"relu\"]}}, "
                "\"inputs\": {\"x\": [2, 4], "
                "\"y\": [3, 4]}, \"layers\": [{\"op\": \"tanh\", \"in\": \"y\", \"name\": \"t\"}, "
                "{\"op\": \"sin\", \"in\": \"x\", "
                "\"name\": \"s\"}, {%s%s%s}], \"outputs\": [\"prev\", \"t\", \"s\"]}";
            bool output = k == NNC_COUNT(keys);
            const char *key = output ? "\"output\": \"l\"" : keys[k];
            if (output && i != 1)
                continue;
            nnc_printf(&t, form, where[i], "", "");
            put_model(&plain, nnc_text_str(&t), 0, 0);
            nnc_text_clear(&t);
            nnc_printf(&t, form, where[i], ", ", key);
            put_model(&got, nnc_text_str(&t), 0, output);
            if (!strcmp(nnc_text_str(&plain), nnc_text_str(&got)))
                test_fail(__FILE__, __LINE__, "{%s, %s}: the key changes nothing", where[i], key);
            nnc_text_deinit(&t);
            nnc_text_deinit(&plain);
            nnc_text_deinit(&got);
        }
}

/* What cannot count is refused. */
TEST(keys_without_effect)
{
    static const char *const refused[] = {
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"cast\", \"to\": \"f16\", \"dtype\": "
        "\"f16\"}]}",
        "{\"inputs\": {\"x\": [4], \"y\": [4]}, \"layers\": [{\"in\": [\"x\", \"y\"], \"layers\": "
        "[\"relu\"]}]}",
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"relu\", \"index\": \"k\"}]}",
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"constant\", \"value\": 1, \"in\": "
        "\"x\"}]}",
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"relu\", \"output\": \"x\"}]}",
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"pad\", \"pads\": [1, 1], \"mode\": "
        "\"edge\", \"value\": 1}]}",
        "{\"inputs\": {\"x\": [4]}, \"layers\": [{\"op\": \"relu\", \"doc\": 7}]}",
        "{\"inputs\": {\"x\": {\"shape\": [4], \"doc\": 7}}, \"layers\": [\"relu\"]}",
        "{\"doc\": [], \"inputs\": {\"x\": [4]}, \"layers\": [\"relu\"]}",
        "{\"$schema\": 1, \"inputs\": {\"x\": [4]}, \"layers\": [\"relu\"]}",
        "{\"args\": {\"n\": {\"default\": 4, \"min\": \"5\"}}, \"inputs\": {\"x\": [\"n\"]}, "
        "\"layers\": [\"relu\"]}",
        "{\"args\": {\"n\": {\"default\": 4, \"choices\": 4}}, \"inputs\": {\"x\": [\"n\"]}, "
        "\"layers\": [\"relu\"]}",
        "{\"args\": {\"n\": {\"default\": 4, \"choices\": [4, 1.5]}}, \"inputs\": {\"x\": "
        "[\"n\"]}, \"layers\": [\"relu\"]}",
        "{\"args\": {\"n\": {\"default\": 4, \"choices\": [4, 5], \"min\": 5}}, \"inputs\": "
        "{\"x\": [\"n\"]}, \"layers\": "
        "[\"relu\"]}",
        "{\"blocks\": {\"b\": {\"inputs\": 5, \"layers\": [\"relu\"]}}, \"inputs\": {\"x\": [4]}, "
        "\"layers\": [\"relu\"]}",
    };
    nnc_text t = {0};
    for (size_t i = 0; i < NNC_COUNT(refused); i++)
        put_model(&t, refused[i], 1, 0);
    nnc_text_deinit(&t);
}

/* A builder needs no JSON: defaults, then fields set by hand, as a reader of another format does. */
static nnc_ref build_conv(fe *f, nnc_ref *x, fe_list kernel, int pad)
{
    static const fe_ctx ctx = {.device = -1, .dtype = -1};
    fe_layer l = {.f = f,
        .ctx = &ctx,
        .path = "conv_7",
        .weights = "conv_7",
        .n_in = 1,
        .in = x,
        .dtype = -1,
        .loc = {.file = "m.onnx", .path = "conv_7"},
        .n_out = 1};
    CHECK(fe_layer_find("conv", &l.row) && fe_read_spec(&l));
    l.s.channels = 4;
    l.s.kernel = kernel;
    l.s.pad = (fe_list){.n = pad};
    l.s.bias = false;
    return l.row.build(&l);
}

TEST(builders_take_plain_structs)
{
    nnc_model_options o = {0};
    fe f = {.o = &o, .sink = test_sink};
    int64_t d[4] = {1, 2, 8, 8};
    const int64_t *pads = NULL;
    nnc_type t = nnc_type_make(DT_f32, 4, d);
    nnc_arena_init(&f.a, 0);
    f.g = nnc_graph_create("g", test_sink);
    nnc_ref x = nnc_input(f.g, "x", &t);
    nnc_ref y = build_conv(&f, &x, (fe_list){2, false, {2, 2}}, FE_SAME_LOWER);
    CHECK(y != NNC_NONE && nnc_def(f.g, y)->n_in == 2);
    CHECK_INT(nnc_typeof(f.g, y)->dim[3], 8);
    CHECK_INT(nnc_attr_ints(nnc_def(f.g, y), AT_pads, &pads), 4);
    CHECK(pads && pads[0] == 1 && pads[2] == 0);
    CHECK(build_conv(&f, &x, (fe_list){2, false, {9, 9}}, 0) == NNC_NONE);
    CHECK_DIAG("conv_7: conv kernel 9x9 is larger than its padded input 8x8");
    nnc_graph_destroy(f.g);
    nnc_arena_deinit(&f.a);
}

/* tests/onnx/broken_test.c -- damaged and hostile files: each is rejected with a message, and with little memory. */
#include "writer.h"
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct broken {
    const char *name, *want; /* part of the message */
    void (*make)(om *m); /* the model, or NULL: x, constants, and this node */
    const char *op, *in, *attrs;
} broken;

/* The input x, f32[2,3], and constants. */
static void begin(om *m)
{
    om_input(m, "x", OM_F32, "2 3");
    om_floats(m, "five", "5", 1);
    om_ints(m, "zero", 1, (int64_t[]){0});
    om_ints(m, "two", 1, (int64_t[]){2});
    om_ints(m, "four_four", 2, (int64_t[]){4, 4});
    om_ints(m, "open_open", 2, (int64_t[]){-1, -1});
    om_ints(m, "open_four", 2, (int64_t[]){-1, 4});
    om_ints(m, "huge", 3, (int64_t[]){INT64_C(1) << 45, 2, 3});
}

static void end(om *m, const char *op, const char *in, const char *attrs)
{
    om_node(m, op, in, "y", attrs);
    om_output(m, "y");
}

/* An initializer `w` with these fields, added to the input. */
static void with_tensor(om *m, nnc_text *t)
{
    begin(m);
    pb_msg(&m->graph, 5, t);
    end(m, "Add", "x w", "");
}

/* The same with raw data of so many bytes. */
static void with_raw(om *m, int code, const char *dims, size_t bytes)
{
    nnc_text t = {0};
    om_tensor(&t, "w", code, dims, "12345678", bytes);
    with_tensor(m, &t);
}

static void short_raw(om *m)
{
    with_raw(m, OM_F32, "2 3", 8);
}

static void huge_dims(om *m)
{
    with_raw(m, OM_F32, "1000000000000 1000000000000", 8);
}

static void large_without_data(om *m)
{
    nnc_text t = {0};
    pb_int(&t, 1, 1000000000);
    pb_int(&t, 2, OM_F32);
    pb_str(&t, 8, "w");
    with_tensor(m, &t);
}

static void negative_dim(om *m)
{
    with_raw(m, OM_F32, "-1", 4);
}

static void nine_dims(om *m)
{
    with_raw(m, OM_F32, "1 1 1 1 1 1 1 1 1", 4);
}

static void string_tensor(om *m)
{
    with_raw(m, OM_STRING, "1", 4);
}

static void cut_number(om *m)
{
    nnc_text t = {0}, numbers = {0};
    pb_int(&t, 1, 2);
    pb_int(&t, 2, OM_I64);
    pb_str(&t, 8, "w");
    nnc_putn(&numbers, "\x01\xff", 2);
    pb_msg(&t, 7, &numbers);
    with_tensor(m, &t);
}

/* Two floats, the second without its last bytes. */
static void cut_floats(om *m)
{
    nnc_text t = {0};
    pb_int(&t, 1, 2);
    pb_int(&t, 2, OM_F32);
    pb_str(&t, 8, "w");
    pb_bytes(&t, 4, "123456", 6);
    with_tensor(m, &t);
}

static void many_dims(om *m)
{
    nnc_text t = {0};
    for (int i = 0; i < 5000; i++)
        pb_int(&t, 1, 1);
    pb_int(&t, 2, OM_F32);
    pb_str(&t, 8, "w");
    pb_bytes(&t, 9, "1234", 4);
    with_tensor(m, &t);
}

/* External data at this place; length: NULL, none is given. */
static void external_of(om *m, const char *location, const char *offset, const char *length)
{
    nnc_text t = {0}, pair = {0};
    pb_int(&t, 1, 3);
    pb_int(&t, 2, OM_F32);
    pb_str(&t, 8, "w");
    pb_int(&t, 14, 1);
    if (location) {
        pb_str(&pair, 1, "location");
        pb_str(&pair, 2, location);
        pb_msg(&t, 13, &pair);
    }
    pb_str(&pair, 1, "offset");
    pb_str(&pair, 2, offset);
    pb_msg(&t, 13, &pair);
    if (length) {
        pb_str(&pair, 1, "length");
        pb_str(&pair, 2, length);
        pb_msg(&t, 13, &pair);
    }
    with_tensor(m, &t);
}

static void external_at(om *m, const char *location, const char *offset)
{
    external_of(m, location, offset, NULL);
}

static void outside(om *m)
{
    external_at(m, "../../../../../../etc/passwd", "0");
}

static void absolute(om *m)
{
    external_at(m, "/etc/passwd", "0");
}

/* It is there, read from the model's folder. */
static void absolute_inside(om *m)
{
    external_at(m, "/README.md", "0");
}

static void other_length(om *m)
{
    external_of(m, "README.md", "0", "13");
}

static void large_offset(om *m)
{
    external_at(m, "README.md", "18446744073709551616");
}

static void no_location(om *m)
{
    external_at(m, NULL, "0");
}

static void bad_offset(om *m)
{
    external_at(m, "README.md", "-5");
}

static void far_offset(om *m)
{
    external_at(m, "README.md", "9223372036854775807");
}

static void not_there(om *m)
{
    external_at(m, "no-such-file", "0");
}

static void cycle(om *m)
{
    begin(m);
    om_node(m, "Relu", "b", "a", "");
    om_node(m, "Add", "x a", "b", "");
    end(m, "Relu", "a", "");
}

static void defined_twice(om *m)
{
    begin(m);
    om_node(m, "Relu", "x", "a", "");
    om_node(m, "Exp", "x", "a", "");
    end(m, "Relu", "a", "");
}

static void initialized_twice(om *m)
{
    nnc_text t = {0};
    om_floats(m, "w", "2 3", 1);
    om_tensor(&t, "w", OM_F32, "1", "1234", 4);
    with_tensor(m, &t);
}

/* A node with an attribute of these words, of AttributeProto's field and type. */
static void with_words(om *m, const char *op, const char *name, int n, const char *word)
{
    nnc_text node = {0}, attr = {0};
    pb_str(&attr, 1, name);
    for (int i = 0; i < n; i++)
        pb_str(&attr, 9, word);
    pb_int(&attr, 20, 8);
    pb_str(&node, 1, "x");
    pb_str(&node, 2, "y");
    pb_str(&node, 4, op);
    pb_msg(&node, 5, &attr);
    begin(m);
    pb_msg(&m->graph, 1, &node);
    om_output(m, "y");
}

/* A node with attribute alpha: a list of floats (field 7), or these bytes of its message. */
static void with_cut(om *m, const char *op, int field, const void *bytes, size_t n)
{
    nnc_text node = {0}, attr = {0};
    pb_str(&attr, 1, "alpha");
    pb_int(&attr, 20, field == 7 ? 6 : 1);
    if (field == 7)
        pb_bytes(&attr, 7, bytes, n);
    else
        nnc_putn(&attr, bytes, n);
    pb_str(&node, 1, "x");
    pb_str(&node, 2, "y");
    pb_str(&node, 4, op);
    pb_msg(&node, 5, &attr);
    begin(m);
    pb_msg(&m->graph, 1, &node);
    om_output(m, "y");
}

static void cut_alpha(om *m)
{
    with_cut(m, "Elu", 2, "\x15\x00\x00", 3); /* field 2, four bytes */
}

static void cut_list(om *m)
{
    with_cut(m, "Elu", 7, "123456", 6);
}

static void zero_in_a_name(om *m)
{
    nnc_text node = {0};
    pb_str(&node, 1, "x");
    pb_str(&node, 2, "y");
    pb_bytes(&node, 4, "Re\0lu", 6);
    begin(m);
    pb_msg(&m->graph, 1, &node);
    om_output(m, "y");
}

static void nine_input_dims(om *m)
{
    om_input(m, "x", OM_F32, "1 1 1 1 1 1 1 1 1");
    om_node(m, "Relu", "x", "y", "");
    om_output(m, "y");
}

static void words_for_a_number(om *m)
{
    with_words(m, "Softmax", "axis", 1, "0");
}

/* Each word is appended to a copy of those before it. */
static void many_words(om *m)
{
    with_words(m, "Softmax", "axis", 5000, "w");
}

/* Function F of domain own, b = op(a), under that overload (NULL: none), and a call of F. */
static void with_function(om *m, const char *overload, const char *op, const char *domain)
{
    nnc_text f = {0};
    pb_str(&f, 1, "F");
    pb_str(&f, 10, "own");
    if (overload)
        pb_str(&f, 13, overload);
    pb_str(&f, 4, "a");
    pb_str(&f, 5, "b");
    om_put_node(&f, 7, op, domain, "a", "b", "");
    pb_msg(&m->rest, 25, &f);
    begin(m);
    om_put_node(&m->graph, 1, "F", "own", "x", "y", "");
    om_output(m, "y");
}

static void no_overload(om *m)
{
    with_function(m, "other", "Relu", "");
}

static void call_with_two(om *m)
{
    om_put_node(&m->graph, 1, "F", "own", "x x", "z", "");
    with_function(m, NULL, "Relu", "");
}

static void no_output(om *m)
{
    begin(m);
    om_node(m, "Relu", "x", "a", "");
}

static void output_unknown(om *m)
{
    begin(m);
    om_node(m, "Relu", "x", "a", "");
    om_output(m, "z");
}

static void conv_pads(om *m)
{
    om_input(m, "x", OM_F32, "1 3 8 8");
    om_floats(m, "w", "4 3 3 3", 1);
    end(m, "Conv", "x w", "pads=1,1");
}

static void conv_stride(om *m)
{
    om_input(m, "x", OM_F32, "1 3 8 8");
    om_floats(m, "w", "4 3 3 3", 1);
    end(m, "Conv", "x w", "strides=0,1");
}

static void range_endless(om *m)
{
    begin(m);
    om_node(m, "Constant", "", "a", "value_int=0");
    om_node(m, "Constant", "", "b", "value_int=9");
    om_node(m, "Range", "a b a", "r", "");
    end(m, "Add", "x r", "");
}

static void no_opset(om *m)
{
    begin(m);
    end(m, "Relu", "x", "");
    m->opset = -1; /* as a huge varint, that no operator has */
}

static void old_opset(om *m)
{
    begin(m);
    end(m, "Relu", "x", "");
    m->opset = 5;
}

/* A function that calls itself. */
static void recursion(om *m)
{
    with_function(m, NULL, "F", "own");
}

/* Functions that call the next one twice: 2^15 nodes of 15 functions, and each 64 more. */
static void explosion(om *m)
{
    for (int i = 0; i < 15; i++) {
        nnc_text f = {0};
        char name[16], next[16];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(next, sizeof next, "F%d", i + 1);
        pb_str(&f, 1, name);
        pb_str(&f, 10, "own");
        pb_str(&f, 4, "v0");
        pb_str(&f, 5, "v9");
        for (int k = 0; k < 9; k++) {
            char in[16], out[16];
            snprintf(in, sizeof in, "v%d", k);
            snprintf(out, sizeof out, "v%d", k + 1);
            om_put_node(&f, 7, next, "own", in, out, "");
        }
        pb_msg(&m->rest, 25, &f);
    }
    begin(m);
    om_put_node(&m->graph, 1, "F0", "own", "x", "y", "");
    om_output(m, "y");
}

static void sparse(om *m)
{
    begin(m);
    pb_str(&m->graph, 15, "");
    end(m, "Relu", "x", "");
}

static void no_graph(om *m)
{
    nnc_text_deinit(&m->graph);
    m->graph = (nnc_text){0};
}

static void input_kind(om *m)
{
    nnc_text port = {0}, type = {0};
    pb_str(&port, 1, "x");
    pb_str(&type, 4, "");
    pb_msg(&port, 2, &type);
    pb_msg(&m->graph, 11, &port);
    end(m, "Relu", "x", "");
}

static void group_field(om *m)
{
    begin(m);
    nnc_putn(&m->graph, "\x0b", 1); /* field 1, "start of a group" */
    end(m, "Relu", "x", "");
}

static void field_zero(om *m)
{
    begin(m);
    end(m, "Relu", "x", "");
    nnc_putn(&m->graph, "\x00\x01", 2);
}

static void long_length(om *m)
{
    begin(m);
    end(m, "Relu", "x", "");
    nnc_putn(&m->graph, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10);
}

static const broken cases[] = {
    {"short_raw", "its raw data have another size than its shape and type say", short_raw},
    {"huge_dims", "initializer `w`:", huge_dims},
    {"large_without_data", "initializer `w`: it has fewer numbers", large_without_data},
    {"negative_dim", "has a negative dimension", negative_dim},
    {"nine_dims", "it has more than 8 dimensions", nine_dims},
    {"string_tensor", "input `w`, an initializer, has the type string, which is unsupported",
        string_tensor},
    {"cut_number", "initializer `w`: a number is cut off", cut_number},
    {"cut_floats", "initializer `w`: a number is cut off", cut_floats},
    {"many_dims", "it has more than 8 dimensions", many_dims},
    {"outside", "../etc/passwd`, which is not in the model's folder", outside},
    {"absolute_inside", "is not in the model's folder", absolute_inside},
    {"other_length", "external data have another size", other_length},
    {"large_offset", "offset \"18446744073709551616\" is not a number", large_offset},
    {"absolute", "is not in the model's folder", absolute},
    {"no_location", "lies in another file, and names none", no_location},
    {"bad_offset", "offset \"-5\" is not a number", bad_offset},
    {"far_offset", "beyond the end of their file", far_offset},
    {"not_there", "its data are in the file `no-such-file`, which does not exist", not_there},
    {"unknown_value", "/y: Add: its input `nowhere` is computed by no node", NULL, "Add",
        "x nowhere", ""},
    {"cycle", "the node that computes `a` needs its own result", cycle},
    {"defined_twice", "the value `a` is defined twice", defined_twice},
    {"initialized_twice", "the value `w` is defined twice", initialized_twice},
    {"cut_alpha", "is cut off", cut_alpha},
    {"cut_list", "the numbers of attribute `alpha` are cut off", cut_list},
    {"zero_in_a_name", "is not a text", zero_in_a_name},
    {"nine_input_dims", "`x` has more than 8 dimensions", nine_input_dims},
    {"call_with_two", "the function has 1 inputs and 1 outputs, the node 2 and 1", call_with_two},
    {"field_zero", "is cut off, or its fields are no protocol buffer", field_zero},
    {"words_for_a_number", "its attribute `axis` has another type", words_for_a_number},
    {"many_words", "attribute `axis` has too many words", many_words},
    {"integer_alpha", "its attribute `alpha` has another type", NULL, "Elu", "x", "alpha=1"},
    {"word_axis", "its attribute `axis` has another type", NULL, "Concat", "x x", "axis='one'"},
    {"float_list", "its attribute `value_ints` has another type", NULL, "Constant", "",
        "value_ints=0.5"},
    {"no_overload", "operators of domain own are unsupported", no_overload},
    {"quantized_float", "the type f32 is unsupported", NULL, "QuantizeLinear", "x two",
        "output_dtype=1"},
    {"no_extent", "no extent for -1 gives the shape 6 elements", NULL, "Reshape", "x open_four",
        ""},
    {"no_output", "the graph has no outputs", no_output},
    {"output_unknown", "no node computes the output `z`", output_unknown},
    {"few_inputs", "Add: it has 1 inputs; expected 2", NULL, "Add", "x", ""},
    {"many_inputs", "Relu: it has 3 inputs; expected 1", NULL, "Relu", "x x x", ""},
    {"bad_axis", "/y: Softmax: axis 7 of a tensor with 2 dimensions", NULL, "Softmax", "x",
        "axis=7"},
    {"bad_reshape", "/y: reshape:", NULL, "Reshape", "x four_four", ""},
    {"open_twice", "two dimensions of the shape are -1", NULL, "Reshape", "x open_open", ""},
    {"shapes_differ", "do not broadcast", NULL, "Add", "x five", ""},
    {"step_zero", "a step is 0", NULL, "Slice", "x zero two zero zero", ""},
    {"conv_pads", "pads has 2 numbers; 4 are expected", conv_pads},
    {"conv_stride", "strides has the number 0", conv_stride},
    {"expand_huge", "/y: broadcast:", NULL, "Expand", "x huge", ""},
    {"range_endless", "it has no end, or too many elements", range_endless},
    {"no_opset", "", no_opset},
    {"old_opset", "unsupported in operator set 5", old_opset},
    {"recursion", "nested more than 16 deep", recursion},
    {"explosion", "when its functions are inlined", explosion},
    {"sparse", "sparse initializers", sparse},
    {"no_graph", "", no_graph},
    {"input_kind", "input `x` is a sequence; tensors are supported", input_kind},
    {"group_field", "is cut off, or its fields are no protocol buffer", group_field},
    {"long_length", "is cut off, or its fields are no protocol buffer", long_length},
};

TEST(each_damage_has_a_message)
{
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        om m = {0};
        if (cases[i].make) {
            cases[i].make(&m);
        } else {
            begin(&m);
            end(&m, cases[i].op, cases[i].in, cases[i].attrs);
        }
        nnc_sink_clear(test_sink);
        nnc_graph *g = om_parse(&m, NULL);
        if (g)
            test_fail(__FILE__, __LINE__, "%s is accepted", cases[i].name);
        else if (!test_has_diag(cases[i].want) || !nnc_sink_errors(test_sink)) {
            test_fail(__FILE__, __LINE__, "%s: no message has: %s", cases[i].name, cases[i].want);
            nnc_sink_print(test_sink, stderr);
        }
        for (size_t k = 0; k < nnc_sink_count(test_sink); k++)
            CHECK(nnc_exit_code(nnc_sink_at(test_sink, k)->code) != 70);
        nnc_graph_destroy(g);
        om_deinit(&m);
    }
}

/* Models whose end is missing. */
TEST(no_byte_behind_the_end_is_read)
{
    om m = {0};
    begin(&m);
    end(&m, "Add", "x five", "");
    nnc_text t = {0};
    om_put(&m, &t);
    for (size_t n = 0; n < t.n; n++) {
        nnc_sink_clear(test_sink);
        CHECK(!om_parse_bytes(nnc_text_str(&t), n, NULL));
        CHECK(nnc_sink_errors(test_sink) > 0);
    }
    nnc_text_deinit(&t);
}

/* ---- random damage ------------------------------------------------------------------------------ */

static void put_all(nnc_text *t)
{
    om m = {0};
    om_input(&m, "x", OM_F32, "n 3 8 8");
    om_floats(&m, "w", "4 3 3 3", 0.1f);
    om_ints(&m, "s", 2, (int64_t[]){0, -1});
    om_ints(&m, "one", 1, (int64_t[]){1});
    om_node(&m, "Conv", "x w", "c", "pads=1,1,1,1 group=1 auto_pad='NOTSET'");
    om_node(&m, "MaxPool", "c", "p", "kernel_shape=2,2 strides=2,2 ceil_mode=1");
    om_node(&m, "Shape", "p", "h", "start=1");
    om_node(&m, "ReduceProd", "h", "k", "axes=[0] keepdims=1");
    om_node(&m, "Concat", "one k", "to", "axis=0");
    om_node(&m, "Reshape", "p to", "f", "");
    om_node(&m, "Slice", "f one k one", "sl", "");
    om_node(&m, "LeakyRelu", "sl", "l", "alpha=0.5");
    om_node(&m, "Transpose", "l", "t", "perm=1,0");
    om_node(&m, "Unsqueeze", "t one", "u", "");
    om_node(&m, "Softmax", "u", "y", "axis=-1");
    om_output(&m, "y");
    om_put(&m, t);
}

static void damage(nnc_text *t, uint64_t key, uint64_t *at)
{
    for (uint32_t k = nnc_rng_u32(key, (*at)++) % 4 + 1; k > 0 && t->n; k--) {
        size_t pos = nnc_rng_u32(key, (*at)++) % t->n;
        uint32_t how = nnc_rng_u32(key, (*at)++) % 8, v = nnc_rng_u32(key, (*at)++);
        if (how < 4)
            t->s[pos] = (char)(how == 0   ? v
                               : how == 1 ? (unsigned char)t->s[pos] ^ 1u << v % 8
                               : how == 2 ? 0x7fu
                                          : 0xffu);
        else if (how < 6)
            t->s[pos] = (char)(t->s[pos] + (v % 2 ? 1 : -1));
        else if (how == 6)
            t->n = pos + 1;
        else
            memmove(t->s + pos, t->s + v % t->n,
                nnc_min64((int64_t)(t->n - pos), (int64_t)(t->n - v % t->n)) / 2);
    }
}

/* Damaged models in memory; NNC_FUZZ_SECONDS: for so long, otherwise a few thousand. */
/* Models to damage: our own, and with NNC_FUZZ_FILES in the environment those that this pattern names. */
static nnc_text *corpus(int *n)
{
    const char *pattern = getenv("NNC_FUZZ_FILES");
    glob_t files = {0};
    int found = pattern && glob(pattern, 0, NULL, &files) == 0 ? (int)files.gl_pathc : 0;
    nnc_text *t = calloc((size_t)found + 1, sizeof *t);
    put_all(&t[0]);
    *n = 1;
    for (int i = 0; i < found; i++) {
        char *data = NULL;
        size_t size = 0;
        if (nnc_file_read(files.gl_pathv[i], 1 << 16, &data, &size, test_sink) == NNC_OK)
            nnc_putn(&t[(*n)++], data, size);
        nnc_free(data);
    }
    globfree(&files);
    return t;
}

TEST(random_damage)
{
    const char *seconds = getenv("NNC_FUZZ_SECONDS");
    int64_t until = seconds ? nnc_now_ns() + strtoll(seconds, NULL, 10) * 1000000000 : 0;
    uint64_t key = nnc_rng_key("onnx", test_seed), at = 0;
    int good = 0, rounds = 0, n;
    nnc_text *whole = corpus(&n);
    for (; seconds ? nnc_now_ns() < until : rounds < 3000; rounds++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_putn(&t, nnc_text_str(&whole[rounds % n]), whole[rounds % n].n);
        damage(&t, key, &at);
        nnc_sink_clear(test_sink);
        nnc_graph *g = om_parse_bytes(nnc_text_str(&t), t.n, NULL);
        if (!g && nnc_sink_errors(test_sink) == 0)
            test_fail(__FILE__, __LINE__, "rejected without a word (round %d)", rounds);
        for (size_t i = 0; !g && i < nnc_sink_count(test_sink); i++)
            if (nnc_sink_at(test_sink, i)->code == NNC_E_BUG)
                test_fail(
                    __FILE__, __LINE__, "round %d: %s", rounds, nnc_sink_at(test_sink, i)->message);
        if (g && nnc_verify(g, test_sink) != NNC_OK)
            test_fail(__FILE__, __LINE__, "round %d does not verify", rounds);
        good += g != NULL;
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(good > rounds / 100);
    if (seconds)
        printf("%d rounds, %d of them models\n", rounds, good);
    for (int i = 0; i < n; i++)
        nnc_text_deinit(&whole[i]);
    free(whole);
}

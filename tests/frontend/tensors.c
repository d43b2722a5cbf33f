/* tests/frontend/tensors.c -- .npy and safetensors: round trips, byte orders, and files that
 * lie. */
#include "frontend/frontend.h"
#include "test.h"
#include <stdlib.h>
#include <unistd.h>

static char path[64];

static const char *temp(const void *data, size_t n)
{
    snprintf(path, sizeof path, "/tmp/nnc-test-%ld", (long)getpid());
    CHECK_OK(nnc_file_write(path, data, n, false, test_sink));
    return path;
}

TEST(npy_round_trip)
{
    int64_t dims[3] = {2, 3, 5};
    for (int d = 0; d < DT__COUNT; d++)
        for (int rank = 0; rank <= 3; rank++) {
            nnc_type t = nnc_type_make((nnc_dtype)d, rank, dims);
            uint8_t data[240];
            nnc_tensor in;
            for (size_t i = 0; i < sizeof data; i++)
                data[i] = d == DT_bool ? i % 3 == 0 : (uint8_t)(i * 7);
            temp("", 0);
            CHECK_OK(nnc_npy_save(path, &t, data, test_sink));
            CHECK_OK(nnc_npy_load(path, &in, test_sink));
            CHECK(nnc_type_equal(&in.type, &t));
            CHECK(in.data && !memcmp(in.data, data, (size_t)nnc_type_bytes(&t)));
            nnc_tensor_deinit(&in);
        }
    unlink(path);
}

/* A file from its dictionary and data; version 1 to 3. */
static const char *npy(int version, const char *dict, const void *data, size_t n)
{
    nnc_text t = {0};
    size_t len = strlen(dict);
    char head[12] = {'\x93', 'N', 'U', 'M', 'P', 'Y', (char)version, 0, (char)(len & 255),
        (char)(len >> 8), 0, 0};
    nnc_putn(&t, head, version == 1 ? 10 : 12);
    nnc_puts(&t, dict);
    nnc_putn(&t, data, n);
    temp(nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    return path;
}

TEST(npy_foreign)
{
    static const uint8_t bytes[12] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    nnc_tensor t;
    /* big-endian 2x3, column-major: columns (1,2), (3,4), (5,6) */
    CHECK_OK(nnc_npy_load(
        npy(2, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", bytes, 12), &t,
        test_sink));
    int16_t want[6] = {1, 3, 5, 2, 4, 6};
    CHECK(t.data && !memcmp(t.data, want, 12));
    nnc_tensor_deinit(&t);
    CHECK_OK(nnc_npy_load(
        npy(3, "{\"shape\":(2L,3L),\"fortran_order\":False,\"descr\":\">u2\"}\n", bytes, 12), &t,
        test_sink));
    CHECK(t.data && ((uint16_t *)t.data)[5] == 6);
    CHECK_INT(t.type.rank, 2);
    nnc_tensor_deinit(&t);
    unlink(path);
}

static void npy_fails(const char *file, const char *want)
{
    nnc_tensor t;
    nnc_sink_clear(test_sink);
    CHECK(nnc_npy_load(file, &t, test_sink) != NNC_OK);
    CHECK(t.data == NULL);
    CHECK_DIAG(want);
}

TEST(npy_hostile)
{
    npy_fails(temp("", 0), "its first bytes are not");
    npy_fails(temp("\x93NUMPY\x01\x00\xff\xff{}", 12), "it ends in its header");
    npy_fails(npy(9, "{}", "", 0), "its version");
    npy_fails(npy(1, "{}", "", 0), "lacks descr");
    npy_fails(npy(1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "12345678", 8),
        "its dtype is unsupported");
    npy_fails(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234", 4),
        "structured");
    npy_fails(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234", 4),
        "its shape needs 8 bytes of data, the file has 4");
    npy_fails(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "12345678", 8),
        "its shape needs 4 bytes of data, the file has 8");
    npy_fails(
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "", 0),
        "64 bits");
    npy_fails(
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,4)}", "", 0),
        "not a .npy file");
    npy_fails(
        npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "1234", 4),
        "more than 8");
    npy_fails(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "", 0), "damaged");
    npy_fails(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", "", 0),
        "not a .npy file");
    npy_fails("/nonexistent/x.npy", "cannot open");
    unlink(path);
}

/* A safetensors file with this header; data NULL: bytes 0, 1, ... */
static const char *st_write(const char *header, const void *data, size_t n_data)
{
    nnc_text t = {0};
    char len[8] = {(char)strlen(header), (char)(strlen(header) >> 8)};
    nnc_putn(&t, len, 8);
    nnc_puts(&t, header);
    for (size_t i = 0; i < n_data; i++)
        nnc_putc(&t, data ? ((const char *)data)[i] : (char)i);
    temp(nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    return path;
}

static const char *st_file(const char *header, size_t n_data)
{
    return st_write(header, NULL, n_data);
}

static void st_fails(const char *file, const char *want)
{
    nnc_safetensors *s;
    nnc_sink_clear(test_sink);
    CHECK(nnc_safetensors_open(file, &s, test_sink) != NNC_OK);
    CHECK(s == NULL);
    CHECK_DIAG(want);
}

TEST(safetensors_hostile)
{
    st_fails(temp("1234", 4), "not a safetensors file");
    st_fails(temp("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "its header would have");
    st_fails(st_file("[]", 0), "not an object");
    st_fails(st_file("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "its dtype");
    st_fails(st_file("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8),
        "leave a hole"); /* places are checked of what is not read, too */
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4),
        "its shape");
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4),
        "ascending");
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4),
        "do not match");
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 2),
        "beyond the end");
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5),
        "the file holds 5");
    st_fails(st_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8),
        "leave a hole");
    st_fails(st_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{"
                     "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
                 6),
        "overlap");
    st_fails(
        st_file(
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
            4),
        "damaged");
    st_fails(st_file("{\"a\":7}", 0), "its dtype");
    unlink(path);
}

static const char model[] = "{\"inputs\": {\"x\": [1, 3]}, \"layers\": [{\"op\": \"linear\", "
                            "\"name\": \"fc\", \"out\": 2}]}";

TEST(safetensors_weights)
{
    const struct {
        float w[6];
        uint16_t b[4];
    } data = {{1, 2, 3, 4, 5, 6}, {0x3f80, 0x4000, 7, 8}}; /* bf16 1, 2 */
    float read[6];
    st_write("{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
             "\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]},"
             "\"other\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[28,32]}}",
        &data, sizeof data);
    nnc_model_options o = {.weights = path};
    nnc_graph *g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    nnc_weight_files files = {NULL};
    CHECK(g != NULL);
    CHECK_DIAG("1 of 3 tensors are not used by the model: other");
    for (uint32_t i = 0; g && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op != OP_param)
            continue;
        CHECK_INT(n->weight->kind, NNC_W_file);
        CHECK_OK(nnc_weight_read(n->weight, nnc_typeof(g, n->out), 0,
            nnc_type_numel(nnc_typeof(g, n->out)), read, &files, test_sink));
        CHECK(!memcmp(read, !strcmp(n->weight->name, "fc.bias") ? (const void *)data.b : data.w,
            (size_t)n->weight->size));
    }
    nnc_weight_files_deinit(&files);
    nnc_graph_destroy(g);
    nnc_sink_clear(test_sink);
    st_file("{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
            "\"fc.bais\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]}}",
        28);
    g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    CHECK(g == NULL);
    CHECK_DIAG("has no tensor `fc.bias` (f32[2]); did you mean `fc.bais`?");
    st_file("{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
            "\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]}}",
        28);
    g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    CHECK(g == NULL);
    CHECK_DIAG("weight `fc.weight`: the model needs f32[2,3]");
    unlink(path);
}

/* Tensors that nnc cannot read are in nobody's way until a weight asks for them. */
TEST(safetensors_beside_the_weights)
{
    static const char others[] =
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[32,32]},"
        "\"fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[32,36]},"
        "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[36,40]},"
        "\"bn.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[40,48]}}";
    static const struct {
        const char *weight, *want;
    } cases[] = {
        {"\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "3 of 6 tensors are not used by the model: deep, empty, fp8"},
        {"\"fc.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "cannot give it: it has a dtype that nnc does not read"},
        {"\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"pad\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "has no tensor `fc.bias` (f32[2]); without one, the layer wants \"bias\": false"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        char header[1000];
        snprintf(header, sizeof header, "{%s%s", cases[i].weight, others);
        nnc_model_options o = {.weights = st_file(header, 48)};
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
        CHECK(!g == (i > 0));
        CHECK_DIAG(cases[i].want);
        nnc_graph_destroy(g);
    }
    unlink(path);
}

/* A graph's parameters keep their own weights without --weights, and take those of their names with it; all of them must be there. */
TEST(safetensors_weights_of_graph_text)
{
    static const char text[] =
        "graph @g {\n"
        "  %x = input : f32[1,3]\n"
        "  %w = param : f32[2,3] = gen(\"fc.weight\", seed=0, scale=1, shift=0)\n"
        "  %b = param : f32[2] = gen(\"fc.bias\", seed=0, scale=1, shift=0)\n"
        "  %y = linear %x, %w, %b : f32[1,2]\n"
        "  return %y\n"
        "}\n";
    static const float data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const struct {
        const char *header, *want;
    } cases[] = {
        {"{\"other\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
         "\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]}}",
            NULL},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
            "has no tensor `fc.bias`"},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[24,26]}}",
            "weight `fc.bias` of "},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}",
            "weight `fc.weight` in "},
    };
    nnc_model_options o = {.weights = path};
    for (size_t c = 0; c < NNC_COUNT(cases); c++) {
        st_write(cases[c].header, data, c == 0 ? 36 : c == 1 ? 24 : c == 2 ? 26 : 32);
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_model_parse("g.nnc", text, sizeof text - 1, &o, test_sink);
        CHECK(!g == (c > 0));
        if (cases[c].want)
            CHECK_DIAG(cases[c].want);
        nnc_weight_files files = {NULL};
        for (uint32_t i = 0; g && i < g->n_node; i++) {
            const nnc_node *n = &g->node[i];
            float read[6];
            if (n->op != OP_param)
                continue;
            CHECK_INT(n->weight->kind, NNC_W_file);
            CHECK_OK(nnc_weight_read(n->weight, nnc_typeof(g, n->out), 0,
                nnc_type_numel(nnc_typeof(g, n->out)), read, &files, test_sink));
            bool bias = !strcmp(n->weight->name, "fc.bias");
            CHECK(!memcmp(read, data + (bias ? 1 : 3), (bias ? 2 : 6) * sizeof *data));
        }
        nnc_weight_files_deinit(&files);
        nnc_graph_destroy(g);
    }
    unlink(path);
}

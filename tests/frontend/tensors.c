/* tests/frontend/tensors.c -- weights from files of tensors: names, types, and what is said about those that do not fit. */
#include "frontend/frontend.h"
#include "tensors/tensors.h"
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
    static const nnc_arg without[] = {{"other", "-"}};
    nnc_model_options o = {.weights = path};
    nnc_graph *g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    CHECK(g == NULL);
    CHECK_DIAG("weights do not match the model: 1 extra\n  extra `other`, found bf16[2]\n"
               "  --rename=NAME=- leaves a tensor of the file out");
    nnc_sink_clear(test_sink);
    o.rename = without;
    o.n_rename = 1;
    g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    nnc_weight_files files = {NULL};
    CHECK(g != NULL);
    CHECK_INT(nnc_sink_count(test_sink), 0);
    o.n_rename = 0;
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
    CHECK_INT(nnc_sink_count(test_sink), 1);
    CHECK_DIAG("1 missing, 1 extra\n"
               "  missing `fc.bias`: expected f32[2], for /layers/0/fc; did you mean `fc.bais`?\n"
               "  extra `fc.bais`, found bf16[2]\n");
    nnc_sink_clear(test_sink);
    st_file("{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
            "\"fc.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]}}",
        28);
    g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
    CHECK(g == NULL);
    CHECK_INT(nnc_sink_count(test_sink), 1);
    CHECK_DIAG("1 of another type or shape\n"
               "  differs `fc.weight`: expected f32[2,3], found f32[3,2], for /layers/0/fc");
    unlink(path);
}

/* Tensors that nnc cannot read are an error only for the weight that asks for them; PyTorch's num_batches_tracked is in nobody's way. */
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
            NULL},
        {"\"fc.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "differs `fc.weight`: expected f32[2,3], found one that nnc does not read: its dtype "
            "is "
            "unsupported, for /layers/0/fc"},
        {"\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"pad\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "1 missing, 1 extra\n  missing `fc.bias`: expected f32[2], for /layers/0/fc; without "
            "one, "
            "the layer wants \"bias\": false\n  extra `pad`, found f32[2]"},
        {"\"module.fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"module.fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},",
            "\n  all names begin with `module.` in the file: --rename='module.*=*' takes it "
            "away\n"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        char header[1000];
        snprintf(header, sizeof header, "{%s%s", cases[i].weight, others);
        static const nnc_arg out[] = {{"deep", "-"}, {"empty", "-"}, {"fp8", "-"}};
        nnc_model_options o = {.weights = st_file(header, 48), .rename = out, .n_rename = 3};
        nnc_sink_clear(test_sink);
        nnc_graph *g = nnc_model_parse("m", model, sizeof model - 1, &o, test_sink);
        CHECK(!g == (i > 0));
        if (cases[i].want)
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
            "missing `fc.bias`: expected f32[2]"},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[24,26]}}",
            "differs `fc.bias`: expected f32[2], found one that nnc does not read"},
        {"{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
         "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}",
            "differs `fc.weight`: expected f32[2,3], found f32[3,2]"},
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

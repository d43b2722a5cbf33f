/* tests/onnx/microsoft_test.c -- ONNX Runtime's own operators give what it gives (microsoft.def). */
#include "writer.h"
#include <math.h>
#include <stdlib.h>

#define MS "com.microsoft"

static const struct row {
    const char *domain, *op, *operands, *attrs, *results, *want;
} rows[] = {
#define CASE(domain, op, operands, attrs, results, want) \
    {domain, op, operands, attrs, results, want},
#include "microsoft.def"
#undef CASE
};

/* Operand k, an initializer `name`: what microsoft.def says of such a word. */
static void put_operand(om *m, const char *word, const char *name, int k)
{
    static const char kinds[] = "fusilb";
    static const struct {
        int code, size;
    } of[] = {{OM_F32, 4}, {2, 1}, {3, 1}, {6, 4}, {OM_I64, 8}, {OM_BOOL, 1}};
    const char *kind = strchr(kinds, *word), *list = strchr(word, '[');
    char data[4096] = {0}, dims[32] = "", *end;
    const int t = kind ? (int)(kind - kinds) : 0;
    int n = 1;
    for (const char *p = word + 1; kind && *p && *p != '['; p = end + (*end == 'x')) {
        const long d = strtol(p, &end, 10);
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%ld ", d);
        n *= (int)d;
    }
    CHECK(n * of[t].size <= (int)sizeof data);
    for (int i = 0; i < n; i++) {
        const int64_t drawn = (int64_t)i * 37 + 11 * k;
        int64_t v = drawn % 256 - (t == 2 ? 128 : 0);
        float f = kind ? (float)(drawn % 17) / 8 - 1 : strtof(word, NULL);
        if (list) {
            v = strtol(list + 1, &end, 10);
            f = (float)v;
            list = end;
        }
        memcpy(data + (size_t)i * (size_t)of[t].size, t == 0 ? (void *)&f : (void *)&v,
            (size_t)of[t].size);
    }
    nnc_text tensor = {0};
    om_tensor(&tensor, name, of[t].code, dims, data, (size_t)(n * of[t].size));
    pb_msg(&m->graph, 5, &tensor);
}

static nnc_graph *build(const struct row *c)
{
    om m = {.opset = 18};
    NNC_LOCAL(nnc_text) names = {0}, opset = {0};
    char word[64], name[16];
    int used, k = 0;
    for (const char *p = c->operands; sscanf(p, "%63s%n", word, &used) == 1; p += used, k++) {
        snprintf(name, sizeof name, *word == '-' ? "-" : "i%d", k);
        nnc_printf(&names, "%s ", name);
        if (*word != '-')
            put_operand(&m, word, name, k);
    }
    om_put_node(&m.graph, 1, c->op, c->domain, nnc_text_str(&names), c->results, c->attrs);
    for (const char *p = c->results; sscanf(p, "%63s%n", word, &used) == 1; p += used)
        if (*word != '-')
            om_output(&m, word);
    pb_str(&opset, 1, MS);
    pb_int(&opset, 2, 1);
    pb_msg(&m.rest, 8, &opset);
    return om_parse(&m, NULL);
}

TEST(operators_of_onnx_runtime)
{
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        const struct row *c = &rows[i];
        nnc_graph *g = build(c);
        nnc_rval out[4];
        if (!g) {
            test_fail(__FILE__, __LINE__, "%s %s: refused", c->op, c->attrs);
            nnc_sink_print(test_sink, stderr);
            continue;
        }
        CHECK_OK(nnc_eval(g, NULL, 0, out, test_sink));
        const char *p = c->want;
        for (uint32_t o = 0; o < g->n_output; o++) {
            double got[2] = {0, 0};
            for (int64_t e = 0; e < nnc_type_numel(&out[o].type); e++) {
                const double v = out[o].f ? out[o].f[e] : (double)out[o].i[e];
                got[0] += v;
                got[1] += v * (double)(e % 7 + 1);
            }
            for (int s = 0; s < 2; s++) {
                char *end;
                const double want = nnc_strtod(p, &end);
                if (end == p || !(fabs(got[s] - want) <= 1e-4 * fmax(1, fabs(want))))
                    test_fail(__FILE__, __LINE__, "%s %s, %s: result %u: sum %d is %.8g, not %.8g",
                        c->op, c->operands, c->attrs, o, s, got[s], want);
                p = end;
            }
            nnc_rval_free(&out[o]);
        }
        CHECK_STR(p, "");
        nnc_graph_destroy(g);
    }
}

/* What is not covered is refused with its reason. */
TEST(what_onnx_runtime_has_besides)
{
    static const struct {
        struct row row;
        const char *why;
    } c[] = {{{MS, "BeamSearch", "f2x3", "", "y", ""}, "except those in docs/onnx.md"},
        {{MS, "MatMulNBits", "f2x32 u4x2x8 f8", "K=32 N=4 bits=3 block_size=16", "y", ""},
            "3 bits"},
        {{MS, "Attention", "f2x4x8 f8x24 f24", "num_heads=2 do_rotary=1", "y", ""}, "do_rotary"},
        {{MS, "Attention", "f2x4x8 f8x24 f24 i8[1,1,1,1,1,1,1,1]", "num_heads=2", "y", ""},
            "a mask of 1 dimensions"},
        {{MS, "SkipLayerNormalization", "f2x3x8 f2x3x8 f8", "", "y z", ""}, "output 1"},
        {{MS, "QLinearSigmoid", "u4 f2 u[1] 0.5 u[1]", "", "y", ""}, "elements"},
        {{MS, "FusedConv", "f1x2x5x5 f3x2x3x3", "activation='Compress'", "y", ""}, "Compress"},
        {{MS, "GroupQueryAttention", "f1x1x32 f1x1x16 f1x1x16 - - i1[4] i[5]",
             "num_heads=4 kv_num_heads=2", "y", ""},
            "5 keys, and no cache"}};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        CHECK(!build(&c[i].row));
        CHECK_DIAG(c[i].why);
        nnc_sink_clear(test_sink);
    }
}

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
            "5 keys, and no cache"},
        {{MS, "GroupQueryAttention", "f1x2x32 f1x2x16 f1x2x16 - - i1[4] i[1]",
             "num_heads=4 kv_num_heads=2", "y", ""},
            "1 keys of 2 new rows"},
        {{MS, "GroupQueryAttention", "f1x2x33 - - - - i1[4] i[2]", "num_heads=4 kv_num_heads=2",
             "y", ""},
            "33 numbers are not as many"},
        {{MS, "MatMulNBits", "f2x32 s4x2x8 f8", "K=32 N=4 bits=4 block_size=16", "y", ""},
            "weights of i8"},
        {{"", "STFT", "f1x8 l0 f4", "", "y", ""}, "its input 1 has no elements"}};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        CHECK(!build(&c[i].row));
        CHECK_DIAG(c[i].why);
        nnc_sink_clear(test_sink);
    }
}

/* ---- other operands ----------------------------------------------------------------------------- */

typedef struct drawing {
    uint64_t key, at;
} drawing;

static uint32_t draw(drawing *d, uint32_t n)
{
    return nnc_rng_u32(d->key, d->at++) % n;
}

/* A word of operands, changed: left out, of another type, extent or rank. */
static void put_changed(nnc_text *t, const char *word, drawing *d)
{
    static const char kinds[] = "fusilb";
    uint32_t n = 0, dim[9] = {0};
    char *end;
    int64_t all = 1;
    for (const char *p = word + 1; strchr(kinds, *word) && *p && *p != '[' && n < 8;
         p = end + (*end == 'x'))
        dim[n++] = (uint32_t)strtol(p, &end, 10);
    const uint32_t how = draw(d, 5), place = n ? draw(d, n) : 0;
    if (how == 0 || !strchr(kinds, *word)) {
        nnc_puts(t, "- ");
        return;
    }
    if (how == 1 && n)
        dim[place] = 1 + draw(d, 9);
    else if (how == 2)
        dim[n++] = 1 + draw(d, 4);
    else if (how == 3 && n)
        n--;
    for (uint32_t i = 0; i < n; i++)
        all *= dim[i];
    nnc_putc(t, how == 4 ? kinds[draw(d, 6)] : *word);
    for (uint32_t i = 0; i < n && all <= 512; i++)
        nnc_printf(t, "%s%u", i ? "x" : "", dim[i]);
    nnc_putc(t, ' ');
}

/* The row with other operands, or another number among its attributes; changes are in t. */
static struct row changed_row(const struct row *c, nnc_text t[2], drawing *d)
{
    char word[64];
    int used;
    const uint32_t which = draw(d, 12);
    uint32_t k = 0;
    for (const char *p = c->operands; sscanf(p, "%63s%n", word, &used) == 1; p += used, k++)
        if (k == which)
            put_changed(&t[0], word, d);
        else
            nnc_printf(&t[0], "%s ", word);
    if (which >= 10)
        nnc_puts(&t[0], "f2");
    nnc_puts(&t[1], c->attrs);
    for (size_t i = draw(d, 40); i < t[1].n; i++)
        if (t[1].s[i] >= '0' && t[1].s[i] <= '9') {
            t[1].s[i] = (char)('0' + draw(d, 10));
            break;
        }
    return (struct row){c->domain, c->op, nnc_text_str(&t[0]), nnc_text_str(&t[1]), c->results, ""};
}

/* They are read, or refused with a reason. */
TEST(operators_with_other_operands)
{
    drawing d = {.key = nnc_rng_key("microsoft", test_seed)};
    int good = 0, n = test_draws(80) * (int)NNC_COUNT(rows);
    for (int i = 0; i < n; i++) {
        nnc_text t[2] = {{0}, {0}};
        const struct row c = changed_row(&rows[(size_t)i % NNC_COUNT(rows)], t, &d);
        nnc_sink_clear(test_sink);
        nnc_graph *g = build(&c);
        bool bug = !g && nnc_sink_errors(test_sink) == 0;
        for (size_t k = 0; !g && k < nnc_sink_count(test_sink); k++)
            bug = bug || nnc_sink_at(test_sink, k)->code == NNC_E_BUG;
        if (bug || (g && nnc_verify(g, test_sink) != NNC_OK)) {
            test_fail(__FILE__, __LINE__, "--seed %llu: %s, %s, %s", (unsigned long long)test_seed,
                c.op, c.operands, c.attrs);
            nnc_sink_print(test_sink, stderr);
        }
        good += g != NULL;
        nnc_graph_destroy(g);
        nnc_text_deinit(&t[0]);
        nnc_text_deinit(&t[1]);
    }
    nnc_sink_clear(test_sink);
    CHECK_USUAL(good > n / 10);
}

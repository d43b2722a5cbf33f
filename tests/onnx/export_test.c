/* tests/onnx/export_test.c -- random graphs are written as ONNX and read back: the same inputs, outputs and numbers. */
#include "gen/gen.h"
#include "onnx/onnx.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { GRAPHS = 500, PORTS = 64 };

typedef struct run {
    const void *in[PORTS];
    nnc_rval out[PORTS];
} run;

static const nnc_node *input_at(const nnc_graph *g, int i)
{
    for (uint32_t k = 0; k < g->n_node; k++)
        if (g->node[k].op == OP_input && i-- == 0)
            return &g->node[k];
    return NULL;
}

static double number(const nnc_rval *v, int64_t i)
{
    return v->f ? v->f[i] : (double)v->i[i];
}

/* Is every number near? Attributes of ONNX are f32, so that alpha and eps differ in the 8th digit. */
static bool same(const nnc_rval *a, const nnc_rval *b)
{
    double most = 0, worst = 0;
    if (a->type.dtype != b->type.dtype || !nnc_type_same_shape(&a->type, &b->type))
        return false;
    for (int64_t i = 0; i < nnc_type_numel(&a->type); i++) {
        const double x = number(a, i), y = number(b, i);
        if (isnan(x) != isnan(y) || isinf(x) != isinf(y))
            return false;
        if (isfinite(x)) {
            most = fmax(most, fabs(x));
            worst = fmax(worst, fabs(x - y));
        }
    }
    return worst <= 1e-6 * fmax(most, 1);
}

static bool eval(const nnc_graph *g, run *r)
{
    return g->n_output <= PORTS && nnc_eval(g, r->in, 1, r->out, test_sink) == NNC_OK;
}

static void fail(const nnc_graph *g, const nnc_graph *back, const char *why)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_graph_print(&t, g);
    if (back)
        nnc_graph_print(&t, back);
    nnc_sink_put(test_sink, &t);
    test_fail(__FILE__, __LINE__, "%s:\n%s", why, nnc_text_str(&t));
}

static char data_path[64];

static void remove_data(void)
{
    remove(data_path);
}

/* The file of weights beside a model: at the end it is removed. */
static const char *data_file(void)
{
    if (!*data_path) {
        snprintf(data_path, sizeof data_path, "/tmp/nnc-export-%d.data", (int)getpid());
        atexit(remove_data);
    }
    return data_path;
}

/* Every second graph has its larger weights in another file. */
static void round_trip(nnc_graph *g, uint64_t seed)
{
    NNC_LOCAL(nnc_text) bytes = {0};
    run a = {{NULL}}, b = {{NULL}};
    nnc_graph *back = NULL;
    const nnc_onnx_place place = {data_file(), seed % 2 ? 1500 : 0};
    const nnc_type none = nnc_type_make(DT_i64, 2, (int64_t[]){0, 3});
    nnc_output_empty(g, &none, "none");
    nnc_sink_clear(test_sink);
    nnc_status st = nnc_onnx_export(g, &place, &bytes, test_sink);
    if (st == NNC_E_MODEL && seed % 2 && test_has_diag("the constants and small weights take"))
        return;
    if (st == NNC_OK)
        back = nnc_onnx_parse("/tmp/x.onnx", bytes.s, bytes.n, &(nnc_onnx_options){0}, test_sink);
    if (!back) {
        fail(g, NULL, "not written, or not read");
        return;
    }
    bool ok = back->n_output == nnc_result_outputs(g) && back->n_empty == 1 &&
              !strcmp(back->empty[0].name, "none") && back->empty[0].type.rank == 2 &&
              back->empty[0].type.dim[0] == 0 && back->empty[0].type.dim[1] == 3;
    for (int i = 0; ok && i < PORTS && input_at(g, i); i++) {
        const nnc_node *n = input_at(g, i), *m = input_at(back, i);
        const nnc_type *t = nnc_typeof(g, n->out);
        void *data = malloc((size_t)nnc_type_bytes(t));
        gen_fill_input(t, seed, i, data);
        a.in[i] = b.in[i] = data;
        ok = m && t->dtype == nnc_typeof(back, m->out)->dtype &&
             nnc_type_same_shape(t, nnc_typeof(back, m->out)); /* memory orders are left out */
    }
    if (ok && eval(g, &a) && eval(back, &b)) {
        for (uint32_t o = 0; o < back->n_output; o++) {
            ok &= same(&a.out[o], &b.out[o]);
            nnc_rval_free(&a.out[o]);
            nnc_rval_free(&b.out[o]);
        }
        if (!ok)
            fail(g, back, "other numbers");
    } else {
        fail(g, back, "other inputs or outputs, or not evaluated");
    }
    for (int i = 0; i < PORTS; i++)
        free((void *)a.in[i]);
    nnc_graph_destroy(back);
}

static void graphs(const gen_options *o, bool fused)
{
    for (int i = 0; i < GRAPHS; i++) {
        gen_options with = *o;
        with.seed = test_seed + (uint64_t)i;
        with.no_gradients = true;
        nnc_graph *g = gen_graph(&with, test_sink),
                  *f = g && fused ? gen_fused(g, test_sink) : NULL;
        CHECK(g != NULL);
        if (f || (g && !fused))
            round_trip(f ? f : g, with.seed);
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
    }
}

/* a: 4000 bytes, b: 12, c: 8192, which is random. */
static nnc_graph *weights(const float *a)
{
    nnc_graph *g = nnc_graph_create("weights", test_sink);
    const nnc_type t[] = {nnc_type_make(DT_f32, 2, (int64_t[]){10, 100}),
        nnc_type_make(DT_f32, 1, (int64_t[]){3}), nnc_type_make(DT_f64, 2, (int64_t[]){16, 64})};
    const nnc_weight w[] = {{.kind = NNC_W_inline, .name = "a", .data = a, .size = 4000},
        {.kind = NNC_W_inline, .name = "b", .data = a, .size = 12},
        {.kind = NNC_W_gen, .name = "c", .seed = 1, .scale = 1}};
    for (int i = 0; i < 3; i++)
        nnc_output(g, nnc_build1(g, OP_neg, nnc_param(g, &t[i], &w[i])), w[i].name);
    return g;
}

/* Beyond the limit, weights of 1 KiB and more lie in the other file, each at a multiple of 4096. */
TEST(export_to_two_files)
{
    static const struct {
        int64_t most;
        size_t bytes; /* of the other file */
    } c[] = {{0, 0}, {4000 + 12 + 8192, 0}, {4000 + 12 + 8191, 4096 + 8192}, {12, 4096 + 8192}};
    float a[1000];
    for (int i = 0; i < 1000; i++)
        a[i] = (float)i;
    nnc_graph *g = weights(a);
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        NNC_LOCAL(nnc_text) t = {0};
        const nnc_onnx_place place = {data_file(), c[i].most};
        char *data = NULL;
        size_t n = 0;
        remove(place.data);
        CHECK_OK(nnc_onnx_export(g, &place, &t, test_sink));
        CHECK(nnc_file_exists(place.data) == (c[i].bytes > 0));
        CHECK((t.n < 1000) == (c[i].bytes > 0));
        if (c[i].bytes && nnc_file_read(place.data, 0, &data, &n, test_sink) == NNC_OK)
            CHECK(n == c[i].bytes && !memcmp(data, a, 4000) && !data[4000] && !data[4095]);
        nnc_free(data);
    }
    round_trip(g, 1);
    CHECK(nnc_file_exists(data_file()));
    NNC_LOCAL(nnc_text) t = {0};
    CHECK(nnc_onnx_export(g, &(nnc_onnx_place){NULL, 12203}, &t, test_sink) == NNC_E_MODEL);
    CHECK_DIAG("the weights take 12204 bytes, and an ONNX file holds at most 2 GiB: give");
    CHECK(nnc_onnx_export(g, &(nnc_onnx_place){data_file(), 11}, &t, test_sink) == NNC_E_MODEL);
    CHECK_DIAG("the constants and small weights take 12 bytes");
    CHECK(nnc_onnx_export(g, &(nnc_onnx_place){"/no/such/x", 12}, &t, test_sink) == NNC_E_IO);
    nnc_graph_destroy(g);
}

TEST(export_floats)
{
    graphs(&(gen_options){.max_elements = 500}, false);
}

TEST(export_quirks)
{
    graphs(&(gen_options){.max_elements = 500, .quirks = true}, false);
}

TEST(export_functions)
{
    graphs(&(gen_options){.max_elements = 500}, true);
}

TEST(export_types)
{
    graphs(&(gen_options){.max_elements = 500,
               .dtypes = 1 << DT_f32 | 1 << DT_f64 | 1 << DT_i32 | 1 << DT_i64 | 1 << DT_bool},
        false);
}

/* Running sums and products, topk, scatters and gathers; recurrences, whose lengths are at least 1 in ONNX. */
TEST(export_loops)
{
    for (int i = 0; i < GRAPHS; i++) {
        nnc_graph *g = i % 2 ? gen_loop(test_seed + (uint64_t)i, test_sink)
                             : gen_recurrent(test_seed + (uint64_t)i, test_sink);
        CHECK(g != NULL);
        if (g)
            round_trip(g, test_seed + (uint64_t)i);
        nnc_graph_destroy(g);
    }
}

/* tests/cuda_fake/rows.c -- products of few rows on the fake GPU, fused and unfused against float64. Generated shapes, few of them
 * multiples of a vector, have weights in rows along the sum, transposed and batched, with activations inside. */
#include "session/session.h"
#include "fake.h"
#include "help.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "test.h"
#include <string.h>

enum { PRODUCTS = 10 };

static const double limit[NNC_PRECISION__COUNT] = {
    [NNC_PRECISION_f32] = 1e-11, [NNC_PRECISION_f16] = 1e-5, [NNC_PRECISION_bf16] = 1e-3};

/* Shapes that the random ones rarely are: groups of several warps, as many results at once as there are. Also one term too few for a
 * row, one row too many. */
static const struct {
    int rows, terms, outputs;
} chosen[] = {{4, 2000, 8}, {3, 1234, 5}, {4, 40, 2112}, {2, 64, 1056}, {3, 7, 9}, {5, 64, 32}};

typedef struct shape {
    int kind, matrices, rows, terms, outputs;
} shape;

static shape shape_of(const char *of, uint64_t seed, int i)
{
    const uint64_t k = nnc_rng_key(of, seed);
    const uint64_t at = 8 * (uint64_t)i;
    shape s = {.kind = (int)(nnc_rng_u32(k, at) % 4),
        .matrices = 1,
        .rows = 1 + (int)(nnc_rng_u32(k, at + 1) % 4),
        .terms = 16 + (int)(nnc_rng_u32(k, at + 2) % 600),
        .outputs = 1 + (int)(nnc_rng_u32(k, at + 3) % 70)};
    if (i < (int)NNC_COUNT(chosen)) {
        s.kind = i % 2;
        s.rows = chosen[i].rows;
        s.terms = chosen[i].terms;
        s.outputs = chosen[i].outputs;
    }
    s.matrices = s.kind == 2 ? 3 : 1;
    return s;
}

/* Appends product i: a linear layer with a bias, by a matrix [terms, outputs], by one for each of several, or a convolution of one
 * place. */
static void put_product(nnc_text *t, const shape *s, int i)
{
    static const char *const after[] = {"relu", "sigmoid", "gelu", "neg"};
    static const char *const text[] = {
        "%%w%d = param : f32[%d,%d] = gen(\"w\", seed=%d, scale=0.2)\n%%b%d = param : f32[%d] = "
        "gen(\"b\", seed=%d, scale=1)\n%%y%d = linear %%x%d, %%w%d, %%b%d\n",
        "%%w%d = param : f32[%d,%d] = gen(\"w\", seed=%d, scale=0.2)\n%%y%d = matmul %%x%d, "
        "%%w%d\n",
        "%%w%d = param : f32[3,%d,%d] = gen(\"w\", seed=%d, scale=0.2)\n%%y%d = matmul %%x%d, "
        "%%w%d\n",
        "%%w%d = param : f32[%d,%d,1,1] = gen(\"w\", seed=%d, scale=0.2)\n%%y%d = conv %%x%d, "
        "%%w%d\n"};
    const bool rows = s->kind == 0 || s->kind == 3; /* of the weights lie along the sum */
    const int a = rows ? s->outputs : s->terms, b = rows ? s->terms : s->outputs;
    if (s->kind == 2)
        nnc_printf(t, "%%x%d = input : f32[3,%d,%d]\n", i, s->rows, s->terms);
    else
        nnc_printf(
            t, "%%x%d = input : f32[%d,%d%s]\n", i, s->rows, s->terms, s->kind == 3 ? ",1,1" : "");
    if (s->kind == 0)
        nnc_printf(t, text[0], i, a, b, i, i, a, i, i, i, i, i);
    else
        nnc_printf(t, text[s->kind], i, a, b, i, i, i, i);
    nnc_printf(t, "%%z%d = %s %%y%d\n", i, after[i % 4], i);
}

static nnc_graph *graph_of(uint64_t seed, int *few)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, "graph @g {\n");
    *few = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        const shape s = shape_of("rows", seed, i);
        put_product(&t, &s, i);
        *few += s.rows <= NNC_ROWS;
    }
    nnc_puts(&t, "return ");
    for (int i = 0; i < PRODUCTS; i++)
        nnc_printf(&t, "%s%%z%d", i ? ", " : "", i);
    nnc_puts(&t, "\n}\n");
    nnc_scan scan;
    nnc_scan_init(&scan, "rows", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK(g != NULL);
    return g;
}

/* Products that became generated kernels, by the remarks. */
static int kernels(const nnc_artifact *a)
{
    const nnc_remarks *r = a ? nnc_artifact_remarks(a) : NULL;
    int n = 0;
    for (size_t i = 0; r && i < r->n; i++)
        n += r->at[i].applied && !strcmp(r->at[i].pass, "few_rows");
    return n;
}

TEST(products_of_few_rows)
{
    if (no_compiler())
        return;
    for (nnc_precision p = NNC_PRECISION_f32; p < NNC_PRECISION__COUNT; p++) {
        nnc_env *e = NULL;
        nnc_artifact *a = NULL;
        nnc_text t = {0};
        bool agrees = false;
        char why[512];
        int few = 0;
        if (p == NNC_PRECISION_tf32 || !test_takes((uint64_t)p, 2)) /* tf32: on the fake as f32 */
            continue;
        nnc_graph *g = graph_of(test_seed + (uint64_t)p, &few);
        nnc_compare_options o = {
            .compile = nnc_compile_defaults, .warmup = 1, .iterations = 1, .tolerance = limit[p]};
        o.compile.precision = p;
        fake_begin((uint64_t)p);
        CHECK_OK(
            nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
        if (e && g) {
            agrees = compared(e, g, &o, &t);
            CHECK_OK(nnc_compile(e, g, &o.compile, &a, test_sink));
        }
        if (!agrees)
            test_fail(
                __FILE__, __LINE__, "%s differs\n%s", nnc_precision_name(p), nnc_text_str(&t));
        CHECK_INT(kernels(a), few);
        nnc_text_deinit(&t);
        nnc_artifact_destroy(a);
        nnc_graph_destroy(g);
        nnc_env_destroy(e);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "%s: %s", nnc_precision_name(p), why);
    }
}

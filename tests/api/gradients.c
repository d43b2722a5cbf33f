/* tests/api/gradients.c -- gradients of drawn graphs on every device of this machine: the backward graph optimised, compiled and run,
 * against the float64 reference of the same graph. (That the graph is the gradient, tests/autodiff checks.) */
#include "autodiff/autodiff.h"
#include "gen/gen.h"
#include "help.h"

static const struct {
    const char *name;
    nnc_env_options env;
    int level, streams;
} ways[] = {
    {"-O2", {.threads = 1}, 2, 1},
    {"-O0, interpreter", {.threads = 2, .no_llvm = true}, 0, 1},
    {"-O2, 2 threads", {.threads = 2}, 2, 1},
    {"-O3, 2 streams", {.threads = 2}, 3, 2},
    {"-O1, interpreter", {.threads = 1, .no_llvm = true}, 1, 1},
};

/* A drawn graph whose outputs are the gradients of the sum of its first output with respect to all inputs. NULL: it has none. */
static nnc_graph *backward_of(uint64_t seed, nnc_dtype d)
{
    gen_options o = {.seed = seed, .nodes = 8, .dtypes = 1u << d, .max_elements = 2048};
    nnc_ref x[64], dx[64];
    int n = 0;
    bool missing = false;
    nnc_graph *g = gen_graph(&o, test_sink);
    for (uint32_t i = 0; g && i < g->n_node && n < 64; i++) {
        bool leaf = g->node[i].op == OP_input || g->node[i].op == OP_param;
        if (leaf && nnc_is_float((nnc_dtype)nnc_typeof(g, g->node[i].out)->dtype))
            x[n++] = g->node[i].out;
        nnc_has_gradient((nnc_op)g->node[i].op, &missing);
        if (missing)
            break;
    }
    if (!g || missing || nnc_gradients(g, 1, g->output, NULL, n, x, dx, test_sink) != NNC_OK) {
        nnc_graph_destroy(g);
        return NULL;
    }
    uint32_t before = g->n_output;
    for (int i = 0; i < n; i++)
        if (dx[i] != NNC_NONE)
            nnc_output(g, dx[i], NULL);
    bool any = g->n_output > before;
    if (!any || nnc_graph_tidy(g) != NNC_OK) {
        nnc_graph_destroy(g);
        return NULL;
    }
    return g;
}

static void check_way(const nnc_graph *g, const api_data *d, size_t way, const char *cache,
    double bound, uint64_t seed)
{
    NNC_LOCAL(nnc_text) why = {0};
    nnc_env_options eo = ways[way].env;
    eo.cache_dir = cache;
    nnc_env *e = NULL;
    api_run r = {0};
    nnc_compile_options o = nnc_compile_defaults;
    o.level = ways[way].level;
    o.streams = ways[way].streams;
    o.jobs = 1;
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    if (e && !api_compile_and_run(e, g, &o, d, &r, &why, test_sink))
        test_fail(__FILE__, __LINE__, "seed %llu, %s: %s", (unsigned long long)seed, ways[way].name,
            nnc_text_str(&why));
    for (uint32_t i = 0; i < d->n_out && r.out; i++) {
        api_diff a = api_compare(nnc_typeof(g, g->output[i]), r.out[i], &d->want[i]);
        if (a.wrong ||
            (!(a.nmse <= bound) && !api_is_conditioned(g, d, (nnc_rounding){0}, i, r.out[i])))
            test_fail(__FILE__, __LINE__,
                "seed %llu, %s: output %u: nmse %g, %lld wrong, first %g instead of %g",
                (unsigned long long)seed, ways[way].name, i, a.nmse, (long long)a.wrong, a.got,
                a.want);
    }
    api_run_free(&r);
    nnc_env_destroy(e);
}

typedef struct backward {
    uint64_t seed;
    double bound;
    const char *cache;
} backward;

static void check_backward(const nnc_graph *g, const void *ctx)
{
    const backward *b = ctx;
    api_data d = {0};
    CHECK(api_inputs(&d, g, b->seed, false));
    CHECK_OK(api_truth(&d, g, test_sink));
    if (d.want) {
        check_way(g, &d, 0, b->cache, b->bound, b->seed);
        check_way(g, &d, 1 + b->seed % (NNC_COUNT(ways) - 1), b->cache, b->bound, b->seed);
    }
    api_data_free(&d);
}

static int check_seed(uint64_t seed, nnc_dtype dtype, double bound, const char *cache)
{
    nnc_graph *g = backward_of(seed, dtype);
    if (g)
        gen_check(g, check_backward, &(backward){seed, bound, cache});
    return g != NULL;
}

TEST(drawn_gradients)
{
    char cache[256];
    const int n = test_draws(40);
    int seen = 0;
    CHECK(api_tmpdir(cache, sizeof cache));
    for (uint64_t k = 0; k < (uint64_t)n; k++) {
        seen += check_seed(test_seed + 5000 + k, DT_f64, 1e-20, cache);
        seen += check_seed(test_seed + 6000 + k, DT_f32, 1e-9, cache);
    }
    CHECK_USUAL(seen > n + n / 2);
    CHECK(check_seed(
        3513350704, DT_f64, 1e-20, cache)); /* sums of a pool's gradient, dy a constant */
    api_rmdir(cache);
}

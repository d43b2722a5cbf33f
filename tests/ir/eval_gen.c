/* tests/ir/eval_gen.c -- properties of the reference on generated graphs. Numbers are the same on any number of threads,
 * after a print and a parse, and with every named op replaced by its lowering. It fails cleanly wherever memory runs out. */
#include "eval_util.h"
#include "gen/gen.h"

typedef struct run {
    void **in;
    int n_in;
    nnc_rval *out;
    uint32_t n_out;
} run;

static void end(run *r)
{
    for (int i = 0; i < r->n_in; i++)
        nnc_free(r->in[i]);
    for (uint32_t o = 0; r->out && o < r->n_out; o++)
        nnc_rval_free(&r->out[o]);
    nnc_free(r->in);
    nnc_free(r->out);
}

static bool begin(run *r, const nnc_graph *g, uint64_t seed)
{
    *r = (run){.in = nnc_calloc(g->n_node + 1, sizeof(void *)), .n_out = g->n_output};
    r->out = nnc_calloc(g->n_output + 1, sizeof *r->out);
    bool ok = r->in && r->out;
    for (uint32_t i = 0; ok && i < g->n_node; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            r->in[r->n_in] = nnc_malloc((size_t)nnc_type_bytes(t));
            ok = r->in[r->n_in] != NULL;
            if (ok)
                gen_fill_input(t, seed, r->n_in, r->in[r->n_in]);
            r->n_in++;
        }
    return ok;
}

static nnc_status eval_into(
    const nnc_graph *g, const run *r, int threads, nnc_rval *out, nnc_sink *sink)
{
    return nnc_eval(g, (const void *const *)r->in, threads, out, sink);
}

/* Largest difference, NaNs equal; integers as doubles. */
static double distance(const nnc_rval *a, const nnc_rval *b)
{
    double most = nnc_type_equal(&a->type, &b->type) ? 0 : INFINITY;
    for (int64_t i = 0; most < INFINITY && i < nnc_type_numel(&a->type); i++) {
        double x = a->f ? a->f[i] : (double)a->i[i], y = b->f ? b->f[i] : (double)b->i[i];
        double d = x == y || (x != x && y != y) ? 0 : fabs(x - y);
        most = d == d && d < most ? most : d == d ? d : INFINITY;
    }
    return most;
}

/* Every CL_ecomp and CL_comp node replaced by its lowering. */
static nnc_graph *expanded(const nnc_graph *g)
{
    nnc_graph *e = nnc_graph_create("expanded", test_sink);
    nnc_ref *map = nnc_calloc(g->n_value + 1, sizeof *map);
    for (uint32_t i = 0; e && map && i < g->n_node && e->status == NNC_OK; i++) {
        const nnc_node *n = &g->node[i];
        nnc_ref in[64];
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]];
        nnc_class c = nnc_op_class((nnc_op)n->op);
        nnc_ref r =
            c == CL_ecomp || c == CL_comp ? nnc_expand(e, n, in) : nnc_copy_node(e, g, n, in);
        for (int k = 0; k < n->n_out; k++)
            map[n->out + (nnc_ref)k] = r + (nnc_ref)k;
    }
    for (uint32_t o = 0; e && map && o < g->n_output && e->status == NNC_OK; o++)
        nnc_output(e, map[g->output[o]], g->output_name[o]);
    nnc_free(map);
    return e;
}

static void compare(
    const nnc_graph *a, const nnc_graph *b, uint64_t seed, double tol, const char *what)
{
    run r;
    nnc_rval *other = nnc_calloc(a->n_output + 1, sizeof *other);
    if (begin(&r, a, seed) && other) {
        CHECK_OK(eval_into(a, &r, 1, r.out, test_sink));
        CHECK_OK(eval_into(b, &r, 3, other, test_sink));
        for (uint32_t o = 0; o < a->n_output; o++) {
            double d = distance(&r.out[o], &other[o]);
            if (!(d <= tol)) {
                test_fail(__FILE__, __LINE__, "%s: seed %llu output %u differs by %g", what,
                    (unsigned long long)seed, (unsigned)o, d);
                nnc_text t = {0};
                nnc_graph_print(&t, a);
                fputs(nnc_text_str(&t), stderr);
                nnc_text_deinit(&t);
                break;
            }
        }
        for (uint32_t o = 0; o < a->n_output; o++)
            nnc_rval_free(&other[o]);
    }
    nnc_free(other);
    end(&r);
}

/* The first op that a generated graph should hold and none held; OP__COUNT: none. */
static int never_seen(const int64_t *seen)
{
    for (int op = 0; op < OP__COUNT; op++)
        if (op != OP_fused && op != OP_iota && !seen[op] &&
            !nnc_op_is_winograd((nnc_op)op) && /* tests/codegen/winograd.c */
            nnc_op_class((nnc_op)op) != CL_collective) /* tests/plan/collective.c */
            return op;
    return OP__COUNT;
}

/* Draws graph number s twice and counts its ops. False after a failed check. */
static bool drawn_twice(uint64_t s, int64_t *seen)
{
    gen_options o = {.seed = test_seed + s, .nodes = 16};
    o.dtypes = s % 3 == 0   ? 1u << DT_f32
               : s % 3 == 1 ? (1u << DT__COUNT) - 1
                            : 1u << DT_f32 | 1u << DT_f16 | 1u << DT_i32;
    o.wild = s % 5 == 4;
    o.classes = s % 5 == 3 ? ~0u : 0;
    nnc_graph *g = gen_graph(&o, test_sink), *again = gen_graph(&o, test_sink);
    nnc_text a = {0}, b = {0};
    bool ok = g && again;
    CHECK(ok);
    if (ok) {
        nnc_graph_print(&a, g);
        nnc_graph_print(&b, again);
        CHECK_STR(nnc_text_str(&a), nnc_text_str(&b));
        for (uint32_t i = 0; i < g->n_node; i++)
            seen[g->node[i].op]++;
    } else {
        fprintf(stderr, "seed %llu\n", (unsigned long long)o.seed);
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    nnc_graph_destroy(g);
    nnc_graph_destroy(again);
    return ok;
}

/* Draws a graph of one kind and counts the op that makes its output. */
static bool drawn_kind(nnc_graph *(*kind)(uint64_t seed, nnc_sink *), uint64_t s, int64_t *seen)
{
    nnc_graph *g = kind(test_seed + s, test_sink);
    CHECK(g != NULL);
    if (g)
        seen[nnc_def(g, g->output[0])->op]++;
    nnc_graph_destroy(g);
    return g != NULL;
}

/* Few graphs hold a rare op: the first 300 lack one for some seeds. More are drawn until each op was seen. */
TEST(gen_graphs_are_valid_and_repeat)
{
    int64_t seen[OP__COUNT] = {0};
    bool ok = true;
    for (uint64_t s = 0; ok && s < 60; s++)
        ok = drawn_kind(gen_loop, s, seen) && (s % 3 || drawn_kind(gen_recurrent, s, seen)) &&
             (s % 3 || drawn_kind(gen_backward, s, seen));
    for (uint64_t s = 0; ok && s < 3000 && (s < 300 || never_seen(seen) < OP__COUNT); s++)
        ok = drawn_twice(s, seen) && (s % 10 || drawn_kind(gen_largest, s, seen));
    int op = never_seen(seen);
    if (ok && op < OP__COUNT)
        test_fail(__FILE__, __LINE__, "3000 graphs hold no %s", nnc_ops[op].name);
}

TEST(eval_same_on_any_threads)
{
    for (uint64_t s = 0; s < (uint64_t)test_draws(100); s++) {
        gen_options o = {.seed = test_seed + 1000 + s,
            .dtypes = s % 2 ? 0 : (1u << DT__COUNT) - 1,
            .wild = s % 7 == 0};
        nnc_graph *g = gen_graph(&o, test_sink);
        CHECK(g != NULL);
        if (g)
            compare(g, g, o.seed, 0, "threads");
        nnc_graph_destroy(g);
    }
}

TEST(expand_equals_formulas)
{
    for (uint64_t s = 0; s < (uint64_t)test_draws(200); s++) {
        gen_options o = {.seed = test_seed + 2000 + s,
            .nodes = 8,
            .dtypes = 1u << DT_f64,
            .classes = 1u << CL_ecomp | 1u << CL_comp | 1u << CL_ewise};
        nnc_graph *g = gen_graph(&o, test_sink), *e = g ? expanded(g) : NULL;
        CHECK(g && e && e->status == NNC_OK);
        if (g && e && e->status == NNC_OK) {
            CHECK_OK(nnc_verify(e, test_sink));
            compare(g, e, o.seed, 1e-9, "expand");
        }
        nnc_graph_destroy(e);
        nnc_graph_destroy(g);
    }
}

/* The generator's promise: values within bounds, and small changes of the inputs stay small. */
TEST(gen_is_well_conditioned)
{
    double worst = 0;
    for (uint64_t s = 0; s < (uint64_t)test_draws(200); s++) {
        gen_options o = {.seed = test_seed + 5000 + s, .nodes = 16, .dtypes = 1u << DT_f64};
        nnc_graph *g = gen_graph(&o, test_sink);
        run a = {0}, b = {0};
        CHECK(g && begin(&a, g, s) && begin(&b, g, s));
        for (int i = 0, k = 0; g && i < (int)g->n_node; i++) {
            if (g->node[i].op != OP_input)
                continue;
            int64_t n = nnc_type_numel(nnc_typeof(g, g->node[i].out));
            for (double *x = b.in [k++]; n > 0; n--)
                x[n - 1] *= 1 + 1e-10 * (n % 3 - 1.0);
        }
        CHECK_OK(eval_into(g, &a, 1, a.out, test_sink));
        CHECK_OK(eval_into(g, &b, 1, b.out, test_sink));
        for (uint32_t k = 0; k < a.n_out; k++) {
            double d = distance(&a.out[k], &b.out[k]);
            worst = d > worst ? d : worst;
            if (!(d <= 1e-10 * 16 * 1000))
                test_fail(__FILE__, __LINE__, "seed %llu output %u moves by %g",
                    (unsigned long long)o.seed, (unsigned)k, d);
            for (int64_t i = 0; a.out[k].f && i < nnc_type_numel(&a.out[k].type); i++)
                if (!(fabs(a.out[k].f[i]) <= 16.0001)) {
                    test_fail(__FILE__, __LINE__, "seed %llu output %u has %g",
                        (unsigned long long)o.seed, (unsigned)k, a.out[k].f[i]);
                    break;
                }
        }
        end(&a);
        end(&b);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(worst > 0);
}

/* All nodes but leaves in one fused node. */
static nnc_graph *wrapped(const nnc_graph *g)
{
    nnc_graph *w = nnc_graph_create("wrapped", test_sink),
              *body = nnc_graph_create("body", test_sink);
    nnc_ref *map = nnc_calloc(g->n_value + 1, sizeof *map),
            *arg = nnc_calloc(g->n_value + 1, sizeof *arg);
    int n_arg = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op == OP_input || n->op == OP_param) {
            arg[n_arg++] = nnc_copy_node(w, g, n, NULL);
            map[n->out] = nnc_input(body, NULL, nnc_typeof(g, n->out));
            continue;
        }
        nnc_ref in[64];
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]];
        nnc_ref r = nnc_copy_node(body, g, n, in);
        for (int k = 0; k < n->n_out; k++)
            map[n->out + (nnc_ref)k] = r + (nnc_ref)k;
    }
    for (uint32_t o = 0; o < g->n_output; o++)
        nnc_output(body, map[g->output[o]], NULL);
    nnc_ref r = nnc_fused(w, body, n_arg, arg);
    for (uint32_t o = 0; r != NNC_NONE && o < g->n_output; o++)
        nnc_output(w, r + o, g->output_name[o]);
    nnc_free(map);
    nnc_free(arg);
    return w;
}

TEST(eval_fused_bodies)
{
    for (uint64_t s = 0; s < (uint64_t)test_draws(60); s++) {
        gen_options o = {.seed = test_seed + 3000 + s};
        nnc_graph *g = gen_graph(&o, test_sink), *w = g ? wrapped(g) : NULL;
        CHECK(g && w && w->status == NNC_OK);
        if (g && w && w->status == NNC_OK)
            compare(g, w, o.seed, 0, "fused");
        nnc_graph_destroy(w);
        nnc_graph_destroy(g);
    }
}

TEST(eval_out_of_memory)
{
    gen_options o = {.seed = test_seed + 7, .nodes = 20};
    nnc_graph *g = gen_graph(&o, test_sink);
    run r = {0};
    CHECK(g && begin(&r, g, 1));
    nnc_status s = NNC_E_NOMEM;
    for (int64_t n = 1; g && n < 5000 && s != NNC_OK; n++) {
        nnc_fail_alloc_after(n);
        s = eval_into(g, &r, 1, r.out, NULL);
        nnc_fail_alloc_after(0);
        if (s != NNC_OK)
            CHECK_INT(s, NNC_E_NOMEM);
    }
    CHECK_INT(s, NNC_OK);
    end(&r);
    nnc_graph_destroy(g);
}

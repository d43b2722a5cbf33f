/* tests/plan/run.c -- generated graphs run from their plans (by the interpreter), twice in a row, on several streams
 * and devices. Compared with the float64 reference: what is reused or done in place must not show in the numbers. */
#include "gen/gen.h"
#include "help.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include <math.h>

enum { MOST_IN = 64 };

static const nnc_engine *const engines[] = {&nnc_engine_interp};

static void target(nnc_target *t)
{
    help_target(t, 2);
    t->engine[0].name = engines[0]->name;
    t->n_engines = 1;
}

static nnc_plan *plan(nnc_graph **g, int streams, int devices, int level)
{
    nnc_target t;
    nnc_plan *p = NULL;
    target(&t);
    nnc_remarks r;
    nnc_remarks_init(&r);
    nnc_pass_options po = {.level = level, .target = &t};
    nnc_status s = level ? nnc_passes_run(g, &po, &r, test_sink) : NNC_OK;
    nnc_remarks_deinit(&r);
    nnc_plan_options o = {.target = &t,
        .engine = engines,
        .n_engine = 1,
        .jobs = 1,
        .streams = streams,
        .devices = devices};
    if (s == NNC_OK)
        s = nnc_plan_make(*g, &o, &p, test_sink);
    if (s == NNC_OK)
        s = nnc_plan_verify(p, test_sink);
    if (s == NNC_OK)
        return p;
    nnc_plan_destroy(p);
    return NULL;
}

/* Largest |got - want| over output k; got lies in the plan's memory order, row-major here. */
static double worst(const nnc_type *t, const void *got, const nnc_rval *want)
{
    double most = 0;
    int64_t stride[NNC_MAX_RANK], at[NNC_MAX_RANK] = {0}, off = 0, n = nnc_type_numel(t);
    nnc_type_strides(t, stride);
    for (int64_t i = 0; i < n; i++) {
        double a = nnc_get_f64((nnc_dtype)t->dtype, got, off);
        double b = want->f ? want->f[i] : (double)want->i[i];
        double e = isnan(a) || isnan(b) ? (isnan(a) && isnan(b) ? 0 : INFINITY)
                   : a == b             ? 0
                                        : fabs(a - b);
        most = e > most ? e : most;
        for (int d = t->rank - 1; d >= 0; d--) {
            off += stride[d];
            if (++at[d] < t->dim[d])
                break;
            off -= at[d] * stride[d];
            at[d] = 0;
        }
    }
    return most;
}

static double run(const nnc_plan *p, void *const *in, const nnc_rval *want)
{
    nnc_exec *e = NULL;
    nnc_exec_options eo = {.device = (const nnc_device_api *[]){&nnc_device_cpu},
        .n_device = 1,
        .engine = engines,
        .n_engine = 1};
    double most = 0;
    if (nnc_exec_create(p, &eo, &e, test_sink) != NNC_OK)
        return INFINITY;
    for (int i = 0; i < p->n_input; i++)
        CHECK_OK(nnc_exec_upload(e, i, in[i]));
    CHECK_OK(nnc_exec_run(e, test_sink));
    CHECK_OK(nnc_exec_run(e, test_sink));
    for (int k = 0; k < p->n_output; k++) {
        const nnc_ptensor *t = &p->tensor[p->output[k]];
        void *out = nnc_malloc((size_t)t->bytes);
        CHECK_OK(nnc_exec_download(e, k, out));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        double w = worst(&t->type, out, &want[k]);
        most = w > most ? w : most;
        nnc_free(out);
    }
    nnc_exec_destroy(e);
    return most;
}

/* Runs the graph and takes it over. */
static void check_graph(
    nnc_graph *g, uint64_t seed, int streams, int devices, int level, double bound)
{
    void *in[MOST_IN] = {0};
    int n_in = 0;
    for (uint32_t i = 0; i < g->n_node && n_in < MOST_IN; i++)
        if (g->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(g, g->node[i].out);
            in[n_in] = nnc_malloc((size_t)nnc_type_bytes(t));
            gen_fill_input(t, seed, n_in, in[n_in]);
            n_in++;
        }
    nnc_rval *want = nnc_calloc(g->n_output + 1, sizeof *want);
    uint32_t n_out = g->n_output;
    CHECK_OK(nnc_eval(g, (const void *const *)in, 1, want, test_sink));
    uint64_t key = nnc_rng_key("place", seed);
    for (uint32_t i = 0; devices > 1 && i < g->n_node; i++)
        g->node[i].device = (int16_t)(nnc_rng_u32(key, i) % (uint32_t)devices);
    nnc_plan *p = plan(&g, streams, devices, level);
    double most = p ? run(p, in, want) : INFINITY;
    if (!(most <= bound)) {
        test_fail(__FILE__, __LINE__, "seed %llu, %d streams, %d devices, -O%d: off by %g, not %g",
            (unsigned long long)seed, streams, devices, level, most, bound);
        nnc_sink_print(test_sink, stderr);
        nnc_sink_clear(test_sink);
    }
    nnc_plan_destroy(p);
    for (uint32_t i = 0; i < n_out; i++)
        nnc_rval_free(&want[i]);
    nnc_free(want);
    for (int i = 0; i < n_in; i++)
        nnc_free(in[i]);
    nnc_graph_destroy(g);
}

static void check_case(uint64_t seed, int streams, int devices, int level)
{
    gen_options o = {.seed = seed, .nodes = 10 + (int)(seed % 16)};
    nnc_graph *g = gen_graph(&o, test_sink);
    check_graph(g, seed, streams, devices, level, 10.0 * o.nodes * 16 * 1.2e-7);
}

/* A linear layer of one vector is one row of a product; with an epilogue, too. */
TEST(run_of_a_vector)
{
    for (int level = 0; level <= 2; level += 2)
        check_graph(help_graph("graph @t {\n"
                               "%v = input : f32[7]\n"
                               "%w = param : f32[9,7] = gen(\"w\", seed=1, scale=0.5)\n"
                               "%b = param : f32[9] = gen(\"b\", seed=1, scale=0.5)\n"
                               "%x = linear %v, %w, %b\n"
                               "%z = linear %v, %w, %b\n"
                               "%y = relu %z\n"
                               "return %x, %y }"),
            1, 1, 1, level, 1e-5);
}

/* A command on a CPU may have any number of arguments (on a GPU 511): a concat of 600 operands, run from its plan. */
TEST(run_of_many_arguments)
{
    enum { MANY = 600, EACH = 3 };
    nnc_text t = {0};
    static float x[MANY * EACH], out[MANY * EACH];
    for (int i = 0; i < MANY * EACH; i++)
        x[i] = (float)i;
    nnc_printf(&t, "graph @t {\n%%x = input : f32[%d]\n", MANY * EACH);
    for (int i = 0; i < MANY; i++)
        nnc_printf(&t, "%%s%d = slice %%x {axes=[0], starts=[%d], ends=[%d]}\n", i,
            EACH * (MANY - 1 - i), EACH * (MANY - i));
    nnc_puts(&t, "%y = concat ");
    for (int i = 0; i < MANY; i++)
        nnc_printf(&t, "%s%%s%d", i ? ", " : "", i);
    nnc_puts(&t, " {axis=0} loc \"/many\"\nreturn %y }");
    nnc_graph *g = help_graph(nnc_text_str(&t));
    nnc_plan *p = g ? plan(&g, 2, 1, 0) : NULL;
    nnc_exec *e = NULL;
    nnc_exec_options eo = {.device = (const nnc_device_api *[]){&nnc_device_cpu},
        .n_device = 1,
        .engine = engines,
        .n_engine = 1};
    CHECK(p && help_cmd(p, "/many")->n_arg == MANY + 1);
    if (p && nnc_exec_create(p, &eo, &e, test_sink) == NNC_OK) {
        CHECK_OK(nnc_exec_upload(e, 0, x));
        CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, out));
        CHECK_OK(nnc_exec_sync(e, test_sink));
    }
    for (int i = 0; i < MANY * EACH; i++)
        CHECK_NEAR(out[i], EACH * (MANY - 1 - i / EACH) + i % EACH, 0);
    nnc_exec_destroy(e);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

/* ---- state ----------------------------------------------------------------------------------- */

/* y = x w + b, loss gradient by hand: g = x^T (y - t) / 8; SGD with momentum: v2 = 0.9 v + g, w2 = w - lr v2, b2 = b - lr mean(y - t).
 * The momentum and the bias stand on their own device. */
static const char sgd[] = "graph @sgd {\n"
                          "%x = input : f32[8,6]\n"
                          "%t = input : f32[8,4]\n"
                          "%w = param : f32[6,4] = gen(\"w\", seed=1, scale=0.5)\n"
                          "%b = param : f32[4] = gen(\"b\", seed=1, scale=0.5)\n"
                          "%v = param : f32[6,4] = gen(\"v\", seed=1, scale=0)\n"
                          "%fixed = param : f32[4] = gen(\"fixed\", seed=1, scale=0.5)\n"
                          "%lr = constant : f32[] = [0.05]\n"
                          "%m = constant : f32[] = [0.9]\n"
                          "%n = constant : f32[] = [0.125]\n"
                          "%xw = matmul %x, %w loc \"/xw\"\n"
                          "%y0 = add %xw, %b loc \"/y0\"\n"
                          "%y = add %y0, %fixed loc \"/y\"\n"
                          "%e = sub %y, %t loc \"/e\"\n"
                          "%xe = matmul %x, %e {transpose_a=1} loc \"/xe\"\n"
                          "%g = mul %xe, %n loc \"/g\"\n"
                          "%mv = mul %v, %m loc \"/mv\"\n"
                          "%v2 = add %mv, %g device 1 loc \"/v2\"\n"
                          "%step = mul %v2, %lr loc \"/step\"\n"
                          "%w2 = sub %w, %step loc \"/w2\"\n"
                          "%eb = reduce_mean %e {axes=[0], keepdims=0} device 1 loc \"/eb\"\n"
                          "%bs = mul %eb, %lr loc \"/bs\"\n"
                          "%b2 = sub %b, %bs loc \"/b2\"\n"
                          "return %y as \"y\"\n"
                          "update %w <- %w2\n"
                          "update %b <- %b2\n"
                          "update %v <- %v2\n"
                          "}\n";

enum { STEPS = 25 };

/* Runs only main every third time: it must not change the state. */
static void check_sgd(int streams, int devices, int level)
{
    static float x[48], t[32], y[32];
    const void *in[] = {x, t};
    nnc_rval before[4] = {0}, after[4];
    nnc_graph *g = help_graph(sgd), *source = g ? nnc_graph_clone(g, test_sink) : NULL;
    for (uint32_t i = 0; source && devices == 1 && i < g->n_node; i++)
        g->node[i].device = -1;
    nnc_plan *p = source ? plan(&g, streams, devices, level) : NULL;
    nnc_exec *e = NULL;
    nnc_exec_options eo = {.device = (const nnc_device_api *[]){&nnc_device_cpu},
        .n_device = 1,
        .engine = engines,
        .n_engine = 1};
    for (int i = 0; i < 48; i++)
        x[i] = (float)(i * 7 % 11 - 5) * 0.2f;
    for (int i = 0; i < 32; i++)
        t[i] = (float)(i * 5 % 13 - 6) * 0.1f;
    CHECK(p != NULL);
    if (!p || nnc_exec_create(p, &eo, &e, test_sink) != NNC_OK)
        return;
    help_check(p);
    CHECK_INT(p->n_update, 3);
    CHECK_INT(p->n_output, 1);
    CHECK(p->end[SEC_main] < p->end[SEC_step]);
    CHECK_OK(nnc_exec_upload(e, 0, x));
    CHECK_OK(nnc_exec_upload(e, 1, t));
    double first = 0, last = 0;
    for (int s = 0; s < STEPS; s++) {
        CHECK_OK(nnc_eval_step(source, in, 1, s ? before : NULL, after, test_sink));
        if (s % 3 == 0)
            CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_step(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, y));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        last = 0;
        for (int i = 0; i < 32; i++) {
            CHECK_NEAR(y[i], after[0].f[i], 2e-5);
            last += (y[i] - t[i]) * (y[i] - t[i]);
        }
        first = s ? first : last;
        for (int k = 0; k < 4; k++) {
            nnc_rval_free(&before[k]);
            before[k] = after[k];
        }
    }
    CHECK(last < 0.7 * first); /* it learns */
    for (int k = 0; k < 4; k++)
        nnc_rval_free(&before[k]);
    nnc_exec_destroy(e);
    nnc_plan_destroy(p);
    nnc_graph_destroy(g);
    nnc_graph_destroy(source);
}

TEST(state_sgd)
{
    for (int streams = 1; streams <= 3; streams++)
        for (int devices = 1; devices <= 2; devices++)
            for (int level = 0; level <= 2; level += 2)
                check_sgd(streams, devices, level);
}

TEST(generated_runs)
{
    for (uint64_t i = 0; i < (uint64_t)test_draws(80); i++)
        check_case(
            test_seed + 1000 + i, 1 + (int)(i % 3), 1 + (int)(i / 3 % 2), i % 5 == 0 ? 2 : 0);
}

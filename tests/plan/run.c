/* tests/plan/run.c -- generated graphs run from their plans (plain loops and the interpreter), twice in
 * a row, on several streams and devices, against the float64 reference: what is reused or done in
 * place must not show in the numbers. */
#include "gen/gen.h"
#include "help.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include <math.h>

enum { MOST_IN = 64 };

static const nnc_engine *const engines[] = {&nnc_engine_loops, &nnc_engine_interp};

static void target(nnc_target *t)
{
    help_target(t, 2);
    t->engine[0].name = "loops";
    t->engine[0].pools = true;
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
        .n_engine = 2,
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
        .n_engine = 2};
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

static void check_case(uint64_t seed, int streams, int devices, int level)
{
    gen_options o = {.seed = seed, .nodes = 10 + (int)(seed % 16)};
    nnc_graph *g = gen_graph(&o, test_sink);
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
    CHECK_OK(nnc_eval(g, (const void *const *)in, NULL, 1, want, test_sink));
    uint64_t key = nnc_rng_key("place", seed);
    for (uint32_t i = 0; devices > 1 && i < g->n_node; i++)
        g->node[i].device = (int16_t)(nnc_rng_u32(key, i) % (uint32_t)devices);
    double bound = 10.0 * o.nodes * 16 * 1.2e-7;
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

/* A command may have any number of arguments: a concat of 100 operands, run from its plan. */
TEST(run_of_many_arguments)
{
    enum { MANY = 100, EACH = 3 };
    nnc_text t = {0};
    static float x[MANY * EACH], out[MANY * EACH];
    for (int i = 0; i < MANY * EACH; i++)
        x[i] = (float)i;
    nnc_puts(&t, "graph @t {\n%x = input : f32[300]\n");
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
        .n_engine = 2};
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

TEST(generated_runs)
{
    for (uint64_t i = 0; i < 80; i++)
        check_case(
            test_seed + 1000 + i, 1 + (int)(i % 3), 1 + (int)(i / 3 % 2), i % 5 == 0 ? 2 : 0);
}

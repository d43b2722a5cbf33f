/* bench/device/check.c -- the part "check": every model at a small size through nnc_compare, each op alone and generated graphs, all
 * against the float64 reference, on the device itself. */
#include "session/session.h"
#include "device.h"
#include "gen/gen.h"
#include "train/train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 20 }; /* graphs of one result */

/* ---- models -------------------------------------------------------------------------------------------------------- */

static nnc_status compare_model(job *j, nnc_env *e, const cell *c, nnc_text *t)
{
    nnc_model *m = NULL, *step = NULL;
    nnc_training training;
    nnc_compare_options o = {.training = c->training ? &training : NULL,
        .warmup = 2, /* the second run writes a graph down, the third replays it */
        .iterations = 1,
        .steps = cell_has(c, "steps"),
        .arg = c->set,
        .n_arg = c->n_set};
    bool agrees = false;
    nnc_status st = cell_graphs(c, &m, &training, &step, j->sink);
    if (!st)
        st = cell_options(c, &o.compile, j->sink);
    nnc_puts(t, "\"compare\": ");
    if (!st)
        st = nnc_compare(e, step ? step : m, &o, NNC_JSON, t, &agrees, j->sink);
    nnc_printf(t, ", \"agrees\": %s", agrees ? "true" : "false");
    nnc_graph_destroy(step);
    nnc_model_close(m);
    if (!st && !agrees)
        st = nnc_fail0(j->sink, NNC_E_DIFFERS, "differs: %s", nnc_text_str(t));
    return st;
}

static void check_model(job *j, nnc_env *e, const cell *c)
{
    nnc_text t = {0};
    if (!results_begin(&j->results, c->id))
        return;
    nnc_sink_clear(j->sink);
    turn_take(&j->turn, false);
    nnc_status st = compare_model(j, e, c, &t);
    turn_give(&j->turn);
    if (!st)
        st = results_end(&j->results, c->id, &t, j->sink);
    if (st)
        results_fail(&j->results, c->id, st, j->sink);
    nnc_text_deinit(&t);
}

static nnc_status check_models(job *j, nnc_env *e)
{
    cells c;
    nnc_status st = cells_read(j->cells, &c, j->sink);
    for (int i = 0; !st && i < c.n; i++)
        if (cell_has_all(&c.cell[i], j->only))
            check_model(j, e, &c.cell[i]);
    cells_deinit(&c);
    return st;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

typedef struct graph_case {
    nnc_graph *g;
    void *in[64];
    int n_in;
    nnc_rval *want;
    nnc_artifact *a;
    nnc_session *s;
} graph_case;

static void drop(graph_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        nnc_free(c->in[i]);
    for (uint32_t i = 0; c->want && i < c->g->n_output; i++)
        nnc_rval_free(&c->want[i]);
    nnc_free(c->want);
    nnc_session_destroy(c->s);
    nnc_artifact_destroy(c->a);
    nnc_graph_destroy(c->g);
}

static nnc_status make_inputs(graph_case *c, uint64_t seed, nnc_sink *sink)
{
    for (uint32_t i = 0; i < c->g->n_node; i++) {
        if (c->g->node[i].op != OP_input)
            continue;
        const nnc_type *t = nnc_typeof(c->g, c->g->node[i].out);
        char name[16];
        snprintf(name, sizeof name, "x%d", c->n_in);
        nnc_set_name(c->g, c->g->node[i].out, name);
        if (c->n_in == 64 ||
            !(c->in[c->n_in] = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t) + 64)))
            return nnc_nomem(sink);
        gen_fill_input(t, seed, c->n_in, c->in[c->n_in]);
        c->n_in++;
    }
    return c->g->status;
}

/* The input that the generator gave number k, by its name: passes may reorder or drop inputs. */
static nnc_status upload(graph_case *c, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_inputs(c->s); i++) {
        const char *name = nnc_session_input_name(c->s, i);
        int k = name[0] == 'x' ? atoi(name + 1) : -1;
        if (k < 0 || k >= c->n_in)
            return nnc_fail0(sink, NNC_E_BUG, "input %s is not an input of the graph", name);
        NNC_TRY(nnc_session_input(c->s, i, c->in[k], sink));
    }
    return NNC_OK;
}

/* Sum of squared errors over that of squares (at least 1/100 an element), NaN where one side alone is finite or integers differ. */
static double error_of(const nnc_type *t, const void *got, const nnc_rval *want)
{
    double d2 = 0, w2 = 0;
    int64_t n = nnc_type_numel(t);
    nnc_dtype d = (nnc_dtype)t->dtype;
    for (int64_t i = 0; i < n; i++) {
        if (!want->f) {
            if (nnc_get_i64(d, got, i) != want->i[i])
                return NAN;
            continue;
        }
        double a = nnc_get_f64(d, got, i), b = want->f[i];
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        if (!isfinite(a) || !isfinite(b))
            return NAN;
        d2 += (a - b) * (a - b);
        w2 += b * b;
    }
    return d2 == 0 ? 0 : d2 / fmax(w2, 0.01 * (double)n);
}

/* What an nmse may be by the coarsest float among the graph's values, as in tests/api/generated.c. */
static double bound_of(const nnc_graph *g)
{
    double bound = 0;
    for (uint32_t i = 0; i < g->n_value; i++) {
        nnc_dtype d = (nnc_dtype)g->value[i].type.dtype;
        if (nnc_is_float(d))
            bound = fmax(bound, d == DT_f64 ? 1e-24 : d == DT_f32 ? 1e-9 : 1e-2);
    }
    return bound;
}

static nnc_status check_outputs(graph_case *c, double *worst, nnc_sink *sink)
{
    double bound = bound_of(c->g);
    for (uint32_t i = 0; i < c->g->n_output; i++) {
        const nnc_type *t = nnc_session_output_type(c->s, (int)i);
        void *got = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t) + 64);
        nnc_status st = got ? nnc_session_output(c->s, (int)i, got, sink) : nnc_nomem(sink);
        double e = st ? NAN : error_of(t, got, &c->want[i]);
        nnc_free(got);
        NNC_TRY(st);
        if (!(e <= bound))
            return nnc_fail0(
                sink, NNC_E_DIFFERS, "output %u has nmse %g, more than %g", i, e, bound);
        *worst = fmax(*worst, e);
    }
    return NNC_OK;
}

static nnc_status run_graph(
    nnc_env *e, graph_case *c, uint64_t seed, int streams, double *worst, nnc_sink *sink)
{
    nnc_compile_options o = nnc_compile_defaults;
    o.streams = streams;
    NNC_TRY(make_inputs(c, seed, sink));
    c->want = nnc_calloc(c->g->n_output + 1, sizeof *c->want);
    if (!c->want)
        return nnc_nomem(sink);
    NNC_TRY(nnc_eval(c->g, (const void *const *)c->in, 1, c->want, sink));
    NNC_TRY(nnc_compile(e, c->g, &o, &c->a, sink));
    NNC_TRY(nnc_session_create(e, c->a, &c->s, sink));
    NNC_TRY(upload(c, sink));
    for (int i = 0; i < 3; i++) /* command by command, then captured, then replayed */
        NNC_TRY(nnc_session_run(c->s, sink));
    return check_outputs(c, worst, sink);
}

static gen_options options_of(uint64_t seed)
{
    static const uint32_t dtypes[] = {1u << DT_f32, 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16,
        1u << DT_f32, 1u << DT_f64 | 1u << DT_f32,
        1u << DT_f32 | 1u << DT_f16 | 1u << DT_i32 | 1u << DT_i64 | 1u << DT_u8};
    static const uint32_t classes[] = {0, 0,
        1u << CL_ewise | 1u << CL_ecomp | 1u << CL_reduce | 1u << CL_move | 1u << CL_comp, 0,
        1u << CL_ewise | 1u << CL_ecomp | 1u << CL_contract | 1u << CL_window};
    return (gen_options){.seed = seed,
        .nodes = 4 + (int)(seed * 7 % 24),
        .dtypes = dtypes[seed % NNC_COUNT(dtypes)],
        .classes = classes[seed / 5 % NNC_COUNT(classes)]};
}

static void count_ops(const nnc_graph *g, int *ops)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        ops[g->node[i].op]++;
}

typedef struct chunk {
    int bad, lacks, ops[OP__COUNT];
    double worst;
    nnc_text why, lacking; /* sentences; JSON strings */
} chunk;

/* What no engine of this GPU computes is no wrong number: it is listed. (Generated kernels take what libraries do not.) */
static void add_failure(chunk *k, uint64_t seed, nnc_status st, const nnc_sink *sink)
{
    size_t n = nnc_sink_count(sink);
    const char *text = n ? nnc_sink_at(sink, n - 1)->message : nnc_status_name(st);
    if (st == NNC_E_DEVICE && strstr(text, "no engine computes")) {
        nnc_puts(&k->lacking, k->lacks++ ? ", " : "");
        nnc_put_json_string(&k->lacking, text);
    } else if (++k->bad <= 4) {
        nnc_printf(&k->why, "seed %llu: %s; ", (unsigned long long)seed, text);
    }
}

static void put_chunk(const chunk *k, int n, nnc_text *t)
{
    const char *comma = "";
    nnc_printf(t, "\"graphs\": %d, \"worst_nmse\": %.3g, \"unsupported\": [%s], \"ops\": {",
        n - k->lacks, k->worst, nnc_text_str(&k->lacking));
    for (int i = 0; i < OP__COUNT; i++)
        if (k->ops[i]) {
            nnc_printf(t, "%s\"%s\": %d", comma, nnc_ops[i].name, k->ops[i]);
            comma = ", ";
        }
    nnc_puts(t, "}");
}

/* Seeds first .. first + n - 1. All are run: a failure's text names each that differs. */
static nnc_status check_chunk(job *j, nnc_env *e, uint64_t first, int n, nnc_text *t)
{
    chunk k = {0};
    for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
        gen_options o = options_of(seed);
        nnc_sink_clear(j->sink);
        graph_case c = {.g = gen_graph(&o, j->sink)};
        nnc_status st = c.g ? run_graph(e, &c, seed, 1 + (int)(seed % 3), &k.worst, j->sink)
                            : nnc_sink_cause(j->sink, NNC_E_NOMEM);
        if (st)
            add_failure(&k, seed, st, j->sink);
        else
            count_ops(c.g, k.ops);
        if (c.g)
            drop(&c);
        if (st && device_lost())
            break;
    }
    put_chunk(&k, n, t);
    nnc_sink_clear(j->sink);
    nnc_status st = k.bad ? nnc_fail0(j->sink, NNC_E_DIFFERS, "%d of %d graphs: %s", k.bad, n,
                                nnc_text_str(&k.why))
                          : NNC_OK;
    nnc_text_deinit(&k.why);
    nnc_text_deinit(&k.lacking);
    return st;
}

static void check_graphs(job *j, nnc_env *e)
{
    for (int first = 0; first < j->graphs; first += CHUNK) {
        char id[64];
        nnc_text t = {0};
        int n = (int)nnc_min64(CHUNK, j->graphs - first);
        snprintf(id, sizeof id, "graphs,%d-%d", first, first + n - 1);
        if (!results_begin(&j->results, id))
            continue;
        turn_take(&j->turn, false);
        nnc_status st = check_chunk(j, e, (uint64_t)first, n, &t);
        turn_give(&j->turn);
        if (!st)
            st = results_end(&j->results, id, &t, j->sink);
        if (st)
            results_fail(&j->results, id, st, j->sink);
        nnc_text_deinit(&t);
    }
}

int part_check(job *j)
{
    nnc_env *e = NULL;
    nnc_status st = nnc_env_create(
        &(nnc_env_options){.target = j->target, .cache_dir = j->cache_dir}, &e, j->sink);
    if (!st)
        st = check_models(j, e);
    if (!st)
        check_graphs(j, e);
    else
        nnc_sink_print(j->sink, stderr);
    nnc_env_destroy(e);
    return st ? nnc_exit_code(st) : results_exit(&j->results);
}

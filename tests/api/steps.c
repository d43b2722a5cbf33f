/* tests/api/steps.c -- see steps.h. */
#include "steps.h"
#include "help.h"
#include "steps_batch.h"
#include "test.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { STEPS = 4 };

const steps_model steps_models[STEPS_MODELS] = {
    {"mlp", "{\"inputs\": {\"x\": [6, 9]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
            "\"out\": 40}, \"gelu\", "
            "{\"op\": \"dropout\", \"alpha\": 0.25}, {\"op\": \"linear\", \"name\": \"b\", "
            "\"out\": 5}]}"},
    {"cnn", "{\"inputs\": {\"x\": [4, 3, 9, 8]}, \"layers\": [{\"op\": \"conv\", \"name\": \"c\", "
            "\"channels\": 8, \"kernel\": 3, \"pad\": 1, "
            "\"bias\": false}, {\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": "
            "\"maxpool\", \"kernel\": 3, \"stride\": 2, "
            "\"pad\": 1}, {\"op\": \"depthwise\", \"name\": \"d\", \"kernel\": 3, \"pad\": 1}, "
            "\"silu\", {\"op\": \"conv\", \"name\": \"e\", "
            "\"channels\": 6, \"kernel\": 1, \"frozen\": true}, {\"op\": \"avgpool\", \"kernel\": "
            "2}, \"flatten\", {\"op\": \"linear\", \"name\": "
            "\"f\", \"out\": 5}]}"},
    {"encoder", "{\"inputs\": {\"x\": [2, 7, 12]}, \"layers\": [{\"op\": \"layernorm\", \"name\": "
                "\"l\"}, {\"op\": \"multihead_attention\", "
                "\"name\": \"m\", \"heads\": 3}, {\"op\": \"add\", \"in\": [\"m\", \"x\"]}, "
                "{\"op\": \"reduce_mean\", \"axes\": [1], "
                "\"keepdims\": false}, {\"op\": \"linear\", \"name\": \"h\", \"out\": 5}]}"},
};

nnc_training steps_training(int i)
{
    nnc_training t = nnc_training_defaults;
    t.optimizer = (nnc_optimizer)(i % 3);
    t.loss = (nnc_loss)(i / 3 % 3);
    t.label_smoothing = i % 2 ? 0.1 : 0;
    t.momentum = 0.9;
    t.nesterov = i % 4 == 0;
    t.weight_decay = 0.01;
    t.clip_norm = i % 5 == 3 ? 0.5 : 0;
    t.bn = i % 7 == 6 ? NNC_BN_eval : NNC_BN_auto;
    t.accumulate = i % 4 == 1 || i == 3 ? 3 : 0;
    t.loss_scale = i == 2 || i == 3 || i == 4 || i == 6 ? 1024 : 0;
    t.scale_growth = 2;
    t.ignore_index = i % 2 ? -100 : NNC_IGNORE_none;
    return t;
}

/* Limits of the relative error of losses after a few steps of 16-bit contractions: some units in the last place of their numbers. */
static double loss_limit(nnc_precision p)
{
    return p == NNC_PRECISION_bf16 ? 3e-2 : p == NNC_PRECISION_f16 ? 4e-3 : 1e-4;
}

/* An input of a batch: small numbers, classes, the learning rate. */
void *steps_input(const nnc_graph *g, const nnc_node *n, int step, bool first)
{
    const nnc_type t = nnc_type_dense(nnc_typeof(g, n->out));
    const char *name = g->value[n->out].name;
    void *data = calloc(1, (size_t)nnc_type_bytes(&t));
    for (int64_t i = 0; i < nnc_type_numel(&t); i++) {
        double u = (double)nnc_rng_uniform(nnc_rng_key(name, (uint64_t)step), (uint64_t)i);
        double v = !strcmp(name, "lr") ? 0.05 : t.rank == 0 && t.dtype == DT_f32 ? 1.5 : 2 * u - 1;
        if (!strcmp(name, "target") && t.dtype == DT_f32)
            v = u;
        if (nnc_is_float((nnc_dtype)t.dtype))
            nnc_set_f64((nnc_dtype)t.dtype, data, i, v);
        else
            nnc_set_i64((nnc_dtype)t.dtype, data, i,
                t.dtype == DT_bool                      ? first
                : !strcmp(name, "target") && i % 3 == 1 ? -100
                : t.dtype == DT_u32                     ? (int64_t)(u * 4e9)
                                                        : (int64_t)(u * 5));
    }
    return data;
}

/* The session's states, by output of g. */
static nnc_status read_states(nnc_session *s, const nnc_graph *g, void **data)
{
    for (uint32_t k = nnc_result_outputs(g); k < g->n_output; k++)
        for (int i = 0; i < nnc_session_states(s); i++)
            if (!strcmp(nnc_session_state_name(s, i), g->value[g->output_state[k]].name)) {
                if (!data[k])
                    data[k] = nnc_malloc((size_t)nnc_type_bytes(nnc_session_state_type(s, i)));
                NNC_TRY(nnc_session_state(s, i, data[k], test_sink));
            }
    return NNC_OK;
}

static void free_states(const nnc_graph *g, void **data)
{
    for (uint32_t k = 0; k < g->n_output; k++)
        nnc_free(data[k]);
}

/* States as the reference has them. */
static void widen_states(const nnc_graph *g, void *const *data, nnc_rval *v)
{
    for (uint32_t k = nnc_result_outputs(g); k < g->n_output; k++) {
        const nnc_type t = nnc_type_dense(nnc_typeof(g, g->output[k]));
        const int64_t n = nnc_type_numel(&t);
        v[k] = (nnc_rval){.type = t, .f = nnc_malloc(8 * (size_t)n)};
        for (int64_t i = 0; i < n; i++)
            v[k].f[i] = nnc_get_f64((nnc_dtype)t.dtype, data[k], i);
    }
}

static nnc_status first_states(nnc_session *s, const nnc_graph *g, nnc_rval *v)
{
    NNC_FREED void **data = calloc(g->n_output, sizeof *data);
    const nnc_status st = read_states(s, g, data);
    if (!st)
        widen_states(g, data, v);
    free_states(g, data);
    return st;
}

/* The reference after a batch that takes no step: of the states, only those that accumulate are new. */
static void keep_states(const nnc_graph *g, nnc_rval *before, nnc_rval *now)
{
    for (uint32_t k = nnc_result_outputs(g); k < g->n_output; k++)
        if (!nnc_def(g, g->output_state[k])->accumulates) {
            nnc_rval v = before[k];
            before[k] = now[k];
            now[k] = v;
        }
}

static void free_values(nnc_rval *v, uint32_t n)
{
    for (uint32_t i = 0; v && i < n; i++)
        nnc_rval_free(&v[i]);
    free(v);
}

enum { MOST_BATCHES = 16 };

/* Some steps of a session, and of the reference from the same first states. */
typedef struct steps_run {
    const nnc_graph *g;
    nnc_precision precision;
    int batches; /* of a step */
    float loss[MOST_BATCHES];
    double want[MOST_BATCHES];
    void **got; /* states, by output of g */
    nnc_rval *before; /* those of the reference */
} steps_run;

static bool near(const steps_run *r, float loss, double want)
{
    return fabs((double)loss - want) <= loss_limit(r->precision) * fabs(want);
}

static nnc_status set_inputs(nnc_session *s, const steps_run *r, int at, void **in)
{
    int n = 0;
    for (uint32_t i = 0; i < r->g->n_node; i++)
        if (r->g->node[i].op == OP_input) {
            in[n] = steps_input(r->g, &r->g->node[i], at, at % r->batches == 0);
            NNC_TRY(nnc_session_input(s, n, in[n], test_sink));
            n++;
        }
    return NNC_OK;
}

static nnc_status run_batch(nnc_session *s, int at, bool steps, float *loss)
{
    if (at % 3 == 2) { /* in two calls, as the trainer does */
        NNC_TRY(nnc_session_run(s, test_sink));
        NNC_TRY(nnc_session_update(s, steps, test_sink));
    } else {
        NNC_TRY((steps ? nnc_session_step : nnc_session_accumulate)(s, test_sink));
    }
    return nnc_session_output(s, 0, loss, test_sink);
}

/* One batch of the session and of the reference. */
static nnc_status take_batch(nnc_session *s, steps_run *r, int at)
{
    const bool steps = at % r->batches == r->batches - 1;
    void *in[16] = {0};
    nnc_rval *now = calloc(r->g->n_output, sizeof *now);
    nnc_status st = set_inputs(s, r, at, in);
    if (!st)
        st = nnc_eval_step(r->g, (const void *const *)in, 1, r->before, now, test_sink);
    if (!st)
        st = run_batch(s, at, steps, &r->loss[at]);
    for (size_t i = 0; i < NNC_COUNT(in); i++)
        free(in[i]);
    if (st) {
        free_values(now, r->g->n_output);
        return st;
    }
    r->want[at] = now[0].f[0];
    if (!steps)
        keep_states(r->g, r->before, now);
    free_values(r->before, r->g->n_output);
    r->before = now;
    return NNC_OK;
}

static nnc_status run(nnc_session *s, steps_run *r)
{
    r->before = calloc(r->g->n_output, sizeof *r->before);
    r->got = calloc(r->g->n_output, sizeof *r->got);
    CHECK_INT(nnc_session_states(s), r->g->n_output - nnc_result_outputs(r->g));
    NNC_TRY(first_states(s, r->g, r->before));
    for (int at = 0; at < STEPS * r->batches; at++)
        NNC_TRY(take_batch(s, r, at));
    return read_states(s, r->g, r->got);
}

static void free_run(steps_run *r)
{
    free_values(r->before, r->g->n_output);
    if (r->got)
        free_states(r->g, r->got);
    free(r->got);
}

static bool agrees(const steps_run *r)
{
    const steps_batch b = {.g = r->g, .after = r->got, .steps = true, .precision = r->precision};
    bool ok = true;
    for (int at = 0; at < STEPS * r->batches; at++)
        ok &= near(r, r->loss[at], r->want[at]);
    for (uint32_t k = nnc_result_outputs(r->g); k < r->g->n_output; k++)
        ok &= steps_state_error(&b, k, r->before) <= 1;
    return ok;
}

/* ---- batch by batch -------------------------------------------------------------------------------- */

/* The loss of a batch from the session's states. */
static nnc_status check_loss(const steps_run *r, const steps_batch *b, float loss, const char *what)
{
    nnc_rval *before = calloc(r->g->n_output, sizeof *before);
    nnc_rval *now = calloc(r->g->n_output, sizeof *now);
    widen_states(r->g, b->before, before);
    const nnc_status st =
        nnc_eval_step(r->g, (const void *const *)b->in, 1, before, now, test_sink);
    if (!st && !near(r, loss, now[0].f[0]))
        test_fail(
            __FILE__, __LINE__, "%s: loss %.7g instead of %.7g", what, (double)loss, now[0].f[0]);
    free_values(before, r->g->n_output);
    free_values(now, r->g->n_output);
    return st;
}

/* Takes batch `at` once more; b->before: the states before it, then those after it. */
static nnc_status check_batch(
    nnc_session *s, const steps_run *r, steps_batch *b, int at, const char *what)
{
    float loss = NAN;
    b->steps = at % r->batches == r->batches - 1;
    NNC_TRY(set_inputs(s, r, at, b->in));
    NNC_TRY(run_batch(s, at, b->steps, &loss));
    NNC_TRY(read_states(s, r->g, b->after));
    if (memcmp(&loss, &r->loss[at], sizeof loss) != 0)
        test_fail(__FILE__, __LINE__, "%s: loss %.9g, before %.9g", what, (double)loss,
            (double)r->loss[at]);
    NNC_TRY(check_loss(r, b, loss, what));
    NNC_TRY(steps_batch_check(b, what));
    void **was = b->before;
    b->before = b->after;
    b->after = was;
    return NNC_OK;
}

/* Where errors of a few steps together are beyond their limits: the same steps, of which each begins with the session's states. */
static nnc_status check_batches(nnc_session *s, const steps_run *r, const char *what)
{
    void *in[16];
    NNC_FREED void **before = calloc(r->g->n_output, sizeof *before);
    NNC_FREED void **after = calloc(r->g->n_output, sizeof *after);
    steps_batch b = {r->g, r->precision, in, before, after, false};
    nnc_status st = read_states(s, r->g, b.before);
    for (int at = 0; at < STEPS * r->batches && !st; at++) {
        char batch[700];
        snprintf(batch, sizeof batch, "%s, batch %d", what, at);
        memset(in, 0, sizeof in);
        st = check_batch(s, r, &b, at, batch);
        for (size_t i = 0; i < NNC_COUNT(in); i++)
            free(in[i]);
    }
    for (uint32_t k = nnc_result_outputs(r->g); k < r->g->n_output && !st; k++)
        if (!api_same(nnc_typeof(r->g, r->g->output_state[k]), b.before[k], r->got[k]))
            test_fail(__FILE__, __LINE__, "%s: state %s has other bits in a second run", what,
                r->g->value[r->g->output_state[k]].name);
    free_states(r->g, before);
    free_states(r->g, after);
    return st;
}

nnc_status steps_take(
    nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, int accumulate, const char *what)
{
    nnc_artifact *a = NULL;
    nnc_session *s = NULL, *again = NULL;
    steps_run r = {.g = g, .precision = o->precision, .batches = accumulate > 1 ? accumulate : 1};
    assert(STEPS * r.batches <= MOST_BATCHES);
    nnc_status st = nnc_compile(e, g, o, &a, test_sink);
    if (!st)
        st = nnc_session_create(e, a, &s, test_sink);
    if (!st)
        st = run(s, &r);
    if (!st && !agrees(&r)) {
        st = nnc_session_create(e, a, &again, test_sink);
        if (!st)
            st = check_batches(again, &r, what);
    }
    free_run(&r);
    nnc_session_destroy(s);
    nnc_session_destroy(again);
    nnc_artifact_destroy(a);
    return st;
}

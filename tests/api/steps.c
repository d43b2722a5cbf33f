/* tests/api/steps.c -- see steps.h. */
#include "steps.h"
#include "help.h"

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

/* Limits of the relative error of losses and of the nmse of states after a few steps of 16-bit contractions: some units in the last place
 * of their numbers, bf16 having 8 bits and f16 11, but fewer for gradients below 2^-14. */
static double loss_limit(nnc_precision p)
{
    return p == NNC_PRECISION_bf16 ? 3e-2 : p == NNC_PRECISION_f16 ? 4e-3 : 1e-4;
}

static double state_limit(nnc_precision p)
{
    return p == NNC_PRECISION_bf16 ? 1e-4 : p == NNC_PRECISION_f16 ? 2e-5 : 1e-7;
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

/* nmse of a state or output. */
static double error_of(const nnc_type *t, const void *got, const nnc_rval *want)
{
    api_diff d = api_compare(t, got, want);
    return d.wrong ? INFINITY : d.nmse;
}

static nnc_status compare_states(
    nnc_session *s, const nnc_graph *g, const nnc_rval *want, double limit, const char *what)
{
    uint32_t first = nnc_result_outputs(g);
    CHECK_INT(nnc_session_states(s), g->n_output - first);
    for (int i = 0; i < nnc_session_states(s); i++) {
        const nnc_type *t = nnc_session_state_type(s, i);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(t));
        NNC_TRY(nnc_session_state(s, i, data, test_sink));
        if (!strncmp(nnc_session_state_name(s, i), "m.in_proj_bias", 14))
            continue; /* the gradient of a key's bias is 0: what is left are rounding errors, which adam scales up */
        for (uint32_t k = first; k < g->n_output; k++) {
            const char *name = g->value[g->output_state[k]].name;
            if (strcmp(name, nnc_session_state_name(s, i)) != 0)
                continue;
            double e = error_of(t, data, &want[k]);
            const char *end = strrchr(name, '.');
            const bool sum =
                end && !strcmp(end, ".grad"); /* no weight, of which it is a small part */
            if (!(e <= (sum ? 50 * limit : limit)))
                test_fail(__FILE__, __LINE__, "%s: state %s: nmse %g", what, name, e);
        }
    }
    return NNC_OK;
}

/* The states before the first step as the reference has them: by output. */
static nnc_status first_states(nnc_session *s, const nnc_graph *g, nnc_rval *v)
{
    for (uint32_t k = nnc_result_outputs(g); k < g->n_output; k++) {
        const nnc_type t = nnc_type_dense(nnc_typeof(g, g->output[k]));
        const int64_t n = nnc_type_numel(&t);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(&t));
        for (int i = 0; i < nnc_session_states(s); i++)
            if (!strcmp(nnc_session_state_name(s, i), g->value[g->output_state[k]].name))
                NNC_TRY(nnc_session_state(s, i, data, test_sink));
        v[k] = (nnc_rval){.type = t, .f = nnc_malloc(8 * (size_t)n)};
        for (int64_t i = 0; i < n; i++)
            v[k].f[i] = nnc_get_f64((nnc_dtype)t.dtype, data, i);
    }
    return NNC_OK;
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

/* One batch of the session and of the reference: from `before` to `now`. */
static nnc_status take_batch(nnc_session *s, const nnc_graph *g, int at, int batches,
    nnc_rval *before, nnc_rval *now, float *loss)
{
    const bool steps = at % batches == batches - 1;
    void *in[16] = {0};
    int n = 0;
    nnc_status st = NNC_OK;
    for (uint32_t i = 0; i < g->n_node && !st; i++)
        if (g->node[i].op == OP_input) {
            in[n] = steps_input(g, &g->node[i], at, at % batches == 0);
            st = nnc_session_input(s, n, in[n], test_sink);
            n++;
        }
    if (!st)
        st = nnc_eval_step(g, (const void *const *)in, 1, before, now, test_sink);
    if (!st && at % 3 == 2) { /* in two calls, as the trainer does */
        st = nnc_session_run(s, test_sink);
        st = st ? st : nnc_session_update(s, steps, test_sink);
    } else if (!st) {
        st = (steps ? nnc_session_step : nnc_session_accumulate)(s, test_sink);
    }
    if (!st)
        st = nnc_session_output(s, 0, loss, test_sink);
    for (int i = 0; i < n; i++)
        free(in[i]);
    if (!st && !steps)
        keep_states(g, before, now);
    return st;
}

static nnc_status take(nnc_session *s, const nnc_graph *g, nnc_precision precision, int batches,
    nnc_rval **before, const char *what)
{
    NNC_TRY(first_states(s, g, *before));
    for (int at = 0; at < STEPS * batches; at++) {
        nnc_rval *now = calloc(g->n_output, sizeof *now);
        float loss = NAN;
        nnc_status st = take_batch(s, g, at, batches, *before, now, &loss);
        free_values(*before, g->n_output);
        *before = now;
        if (st)
            return st;
        const double want = now[0].f[0];
        if (!(fabs((double)loss - want) <= loss_limit(precision) * fabs(want)))
            test_fail(__FILE__, __LINE__, "%s, batch %d: loss %.7g instead of %.7g", what, at,
                (double)loss, want);
    }
    return compare_states(s, g, *before, state_limit(precision), what);
}

nnc_status steps_take(
    nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, int accumulate, const char *what)
{
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_rval *before = calloc(g->n_output, sizeof *before);
    nnc_status st = nnc_compile(e, g, o, &a, test_sink);
    if (!st)
        st = nnc_session_create(e, a, &s, test_sink);
    if (!st)
        st = take(s, g, o->precision, accumulate > 1 ? accumulate : 1, &before, what);
    free_values(before, g->n_output);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    return st;
}

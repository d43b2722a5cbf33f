/* tests/api/budget.c -- memory of training steps: budgets, what fills the memory, frozen layers; recomputing changes no number. */
#include "api/memory.h"
#include "frontend/frontend.h"
#include "help.h"
#include "train/train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 12, RESULT = 4 * 16 * 32 * 32 * 4 }; /* bytes of a convolution's result */

/* Blocks of a convolution, a batch norm and a silu; `frozen`: all layers but the last. */
static nnc_graph *model(bool frozen)
{
    nnc_text t = {0};
    const char *f = frozen ? ", \"frozen\": true" : "";
    nnc_puts(&t, "{\"name\": \"net\", \"inputs\": {\"x\": [4, 3, 32, 32]}, \"layers\": [");
    for (int i = 0; i < BLOCKS; i++)
        nnc_printf(&t,
            "{\"op\": \"conv\", \"name\": \"c%d\", \"channels\": 16, \"kernel\": 3, \"pad\": 1%s}, "
            "{\"op\": \"batchnorm\", \"name\": \"n%d\"%s}, \"silu\", ",
            i, f, i, f);
    nnc_puts(&t, "\"global_avgpool\", \"flatten\", {\"op\": \"linear\", \"out\": 5}]}");
    nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(&t), t.n, NULL, test_sink);
    CHECK(g != NULL);
    nnc_text_deinit(&t);
    return g;
}

static nnc_graph *step_of(bool frozen)
{
    nnc_graph *g = model(frozen), *step = NULL;
    nnc_training t = nnc_training_defaults;
    t.momentum = 0.9;
    CHECK_OK(g ? nnc_train_graph(g, &t, &step, test_sink) : NNC_E_MODEL);
    nnc_graph_destroy(g);
    return step;
}

static nnc_artifact *compile(nnc_env *e, const nnc_graph *g, const char *budget)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_artifact *a = NULL;
    o.memory_budget = budget;
    CHECK_OK(g ? nnc_compile(e, g, &o, &a, test_sink) : NNC_E_MODEL);
    return a;
}

static int64_t arena(const nnc_artifact *a)
{
    return a ? a->plan->device[0].arena_bytes : 0;
}

/* The states after three steps, one after the other; the caller frees them. */
static float *states_after(nnc_env *e, const nnc_artifact *a, size_t *n)
{
    nnc_session *s = NULL;
    float *all = NULL;
    *n = 0;
    CHECK_OK(a ? nnc_session_create(e, a, &s, test_sink) : NNC_E_MODEL);
    for (int i = 0; s && i < nnc_session_inputs(s); i++) {
        const nnc_type *t = nnc_session_input_type(s, i);
        void *data = malloc((size_t)nnc_type_bytes(t));
        if (!strcmp(nnc_session_input_name(s, i), NNC_TRAIN_LR))
            *(float *)data = 0.1f;
        else if (!strcmp(nnc_session_input_name(s, i), NNC_TRAIN_TARGET))
            for (int k = 0; k < 4; k++)
                ((int64_t *)data)[k] = k;
        else
            nnc_fill_input(nnc_session_input_name(s, i), t, 1, data);
        CHECK_OK(nnc_session_input(s, i, data, test_sink));
        free(data);
    }
    for (int i = 0; s && i < 3; i++)
        CHECK_OK(nnc_session_step(s, test_sink));
    for (int i = 0; s && i < nnc_session_states(s); i++) {
        const int64_t count = nnc_type_numel(nnc_session_state_type(s, i));
        all = realloc(all, (*n + (size_t)count) * sizeof *all);
        CHECK_OK(nnc_session_state(s, i, all + *n, test_sink));
        *n += (size_t)count;
    }
    nnc_session_destroy(s);
    return all;
}

static void check_equal(nnc_env *e, const nnc_artifact *a, const nnc_artifact *b)
{
    size_t n, m;
    double worst = 0;
    float *x = states_after(e, a, &n), *y = states_after(e, b, &m);
    CHECK(n > 1000 && n == m);
    for (size_t i = 0; i < n && n == m; i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]) / (1e-3 + fabs((double)x[i])));
    CHECK_NEAR(worst, 0, 2e-4);
    free(x);
    free(y);
}

TEST(budget_of_a_step)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true, .threads = 2}, &e, test_sink));
    nnc_graph *g = step_of(false);
    nnc_artifact *usual = compile(e, g, NULL), *half = compile(e, g, "80%"), *none = NULL;
    CHECK(arena(half) > 0 && arena(half) * 5 < arena(usual) * 4);
    check_equal(e, usual, half);
    bool said = false;
    for (size_t i = 0; half && i < half->remarks.n; i++)
        said = said || !strcmp(half->remarks.at[i].rule, "memory budget");
    CHECK(said);
    nnc_compile_options o = nnc_compile_defaults;
    static const struct {
        const char *budget, *says;
        nnc_status code;
    } bad[] = {{"20KiB", "the smallest plan found needs", NNC_E_FIT},
        {"many", "expected bytes", NNC_E_USAGE}, {"-5", "expected bytes", NNC_E_USAGE},
        {"5 apples", "expected bytes", NNC_E_USAGE}};
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        o.memory_budget = bad[i].budget;
        CHECK_INT(nnc_compile(e, g, &o, &none, test_sink), bad[i].code);
        CHECK_DIAG(bad[i].says);
    }
    nnc_graph_destroy(g);
    g = model(false);
    CHECK_INT(nnc_compile(e, g, &o, &none, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--mode=step");
    nnc_graph_destroy(g);
    nnc_artifact_destroy(usual);
    nnc_artifact_destroy(half);
    nnc_env_destroy(e);
}

/* The numbers of the report add up, and a session requests them. */
TEST(fill_of_a_step)
{
    nnc_env *e = NULL;
    nnc_session *s = NULL;
    int64_t fill[FILL__COUNT], persist = 0, live = 0;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true, .threads = 2}, &e, test_sink));
    nnc_graph *g = step_of(false);
    nnc_artifact *a = compile(e, g, NULL);
    CHECK_OK(a ? nnc_session_create(e, a, &s, test_sink) : NNC_E_MODEL);
    if (s) {
        const nnc_plan_device *d = &a->plan->device[0];
        const nnc_exec_memory m = nnc_exec_requested(s->exec, 0);
        nnc_find_fill(a->plan, 0, fill);
        for (int k = 0; k < FILL__COUNT; k++)
            *(k <= FILL_optimizer ? &persist : &live) += fill[k];
        CHECK_INT(persist, d->persist_bytes);
        CHECK_INT(live, d->lower_bound);
        CHECK_INT(m.arena, d->arena_bytes);
        CHECK_INT(m.persist, d->persist_bytes);
        /* what is learnt has moments of its size; statistics have none */
        CHECK(fill[FILL_optimizer] > fill[FILL_weights] / 2 &&
              fill[FILL_optimizer] < fill[FILL_weights]);
        CHECK(fill[FILL_kept] > BLOCKS / 2 * RESULT); /* convolutions' results */
        CHECK(fill[FILL_kept] <
              2 * 6 * 4 * 16 * 32 * 32 * 4); /* but no batch norm's and no silu's beside it */
    }
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}

/* A step of a frozen base with a head keeps no activations: it needs little more than inference. */
TEST(frozen_layers_keep_nothing)
{
    nnc_env *e = NULL;
    int64_t fill[FILL__COUNT];
    CHECK_OK(nnc_env_create(&(nnc_env_options){.no_cache = true, .threads = 2}, &e, test_sink));
    nnc_graph *g = step_of(true), *m = model(true);
    nnc_artifact *step = compile(e, g, NULL), *run = compile(e, m, NULL);
    CHECK(arena(step) > 0 && arena(step) < arena(run) * 5 / 4);
    if (step) {
        CHECK_INT(step->plan->n_update, 4); /* weight, bias, and their momentum */
        nnc_find_fill(step->plan, 0, fill);
        CHECK(fill[FILL_kept] < 4096);
    }
    nnc_artifact_destroy(step);
    nnc_artifact_destroy(run);
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

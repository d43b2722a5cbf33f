/* tests/api/budget.c -- memory of training steps: budgets, what fills the memory, frozen layers; recomputing changes no number. */
#include "report/report.h"
#include "session/session.h"
#include "frontend/frontend.h"
#include "help.h"
#include "steps.h"
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

/* The states after some steps from the states `from` (NULL: the first), one after the other; the caller frees them. */
static float *states_after(
    nnc_env *e, const nnc_artifact *a, int steps, const float *from, size_t *n)
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
    for (int i = 0; s && from && i < nnc_session_states(s); i++) {
        CHECK_OK(nnc_session_set_state(s, i, from, test_sink));
        from += nnc_type_numel(nnc_session_state_type(s, i));
    }
    for (int i = 0; s && i < steps; i++)
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

/* How many batches the drawn step g has that takes several. */
static int batches_of(const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input && !strcmp(g->value[g->node[i].out].name, NNC_TRAIN_FIRST))
            return 2;
    return 0;
}

/* Three steps of g's programs within a budget and without, each from the same states. Where rounding decides a relu or the sign of a
 * gradient otherwise, all that follows moves: then each program is judged by itself, against float64. */
static void check_equal(nnc_env *e, const nnc_graph *g, const char *budget, const nnc_artifact *a,
    const nnc_artifact *b)
{
    size_t n, m;
    double worst = 0;
    float *from = states_after(e, a, 0, NULL, &n);
    CHECK(n > 100);
    for (int step = 0; from && step < 3; step++) {
        float *x = states_after(e, a, 1, from, &n), *y = states_after(e, b, 1, from, &m);
        CHECK(x && y && n == m);
        for (size_t i = 0; i < n && n == m; i++)
            worst = fmax(worst, fabs((double)x[i] - (double)y[i]) / (1e-3 + fabs((double)x[i])));
        free(from);
        free(y);
        from = x;
    }
    free(from);
    for (int i = 0; i < 2 && !(worst <= 2e-4); i++) {
        nnc_compile_options o = nnc_compile_defaults;
        o.memory_budget = i ? budget : NULL;
        CHECK_OK(steps_take(e, g, &o, batches_of(g), i ? "within a budget" : "without a budget"));
    }
}

TEST(budget_of_a_step)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    nnc_graph *g = step_of(false);
    nnc_artifact *usual = compile(e, g, NULL), *half = compile(e, g, "80%"), *none = NULL;
    CHECK(arena(half) > 0 && arena(half) * 5 < arena(usual) * 4);
    check_equal(e, g, "80%", usual, half);
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
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
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
        /* but no batch norm's and no silu's beside it; the gradient that is computed then may lie in one of them */
        CHECK(fill[FILL_kept] < (BLOCKS + 1) * RESULT);
    }
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}

/* ---- drawn steps ------------------------------------------------------------------------------------------------------ */

enum { DRAWN = 4, DRAWN_SIZE = 16 };

static int pick(uint64_t key, int at, int n)
{
    return (int)(nnc_rng_u32(key, (uint64_t)at) % (uint32_t)n);
}

/* Convolutions, norms, activations, poolings, dropouts and residual blocks, as `key` says. No bias before a norm: its gradient is 0 but for
 * rounding, which Adam divides by its own size. */
static nnc_graph *draw_step(uint64_t key)
{
    static const char *const act[] = {"relu", "silu", "tanh", "gelu", "sigmoid"};
    nnc_text t = {0};
    nnc_graph *g = NULL, *step = NULL;
    nnc_training how = nnc_training_defaults;
    const int channels = 4 + 4 * pick(key, 0, 3), blocks = 4 + pick(key, 1, 5);
    int pools = 0;
    nnc_printf(&t,
        "{\"name\": \"drawn\", \"inputs\": {\"x\": [4, 3, %d, %d]}, \"layers\": ["
        "{\"op\": \"conv\", \"channels\": %d, \"kernel\": 3, \"pad\": 1}",
        DRAWN_SIZE, DRAWN_SIZE, channels);
    for (int i = 0; i < blocks; i++) {
        const int at = 10 * i + 10;
        const bool norm = pick(key, at + 2, 3) > 0;
        nnc_printf(&t,
            ", {\"op\": \"identity\", \"name\": \"i%d\"}, {\"op\": \"conv\", \"channels\": %d, "
            "\"kernel\": %d, \"pad\": %d, \"bias\": %d}",
            i, channels, pick(key, at + 1, 2) ? 3 : 1, pick(key, at + 1, 2), !norm);
        if (norm)
            nnc_puts(&t, ", {\"op\": \"batchnorm\"}");
        if (!pick(key, at + 4, 4))
            nnc_puts(&t, ", {\"op\": \"dropout\", \"alpha\": 0.25}");
        nnc_printf(&t, ", {\"op\": \"%s\", \"name\": \"a%d\"}",
            act[pick(key, at + 3, (int)NNC_COUNT(act))], i);
        if (pick(key, at, 2))
            nnc_printf(&t, ", {\"op\": \"add\", \"in\": [\"i%d\", \"a%d\"]}", i, i);
        if (pools < 2 && !pick(key, at + 5, 3) && ++pools)
            nnc_puts(&t, ", {\"op\": \"maxpool\", \"kernel\": 2}");
    }
    nnc_puts(&t, ", \"global_avgpool\", \"flatten\", {\"op\": \"linear\", \"out\": 5}]}");
    how.optimizer = pick(key, 2, 2) ? NNC_OPT_adamw : NNC_OPT_sgd;
    how.momentum = how.optimizer == NNC_OPT_sgd ? 0.9 : 0;
    how.accumulate = 1 + pick(key, 3, 2);
    g = nnc_model_parse("drawn.json", nnc_text_str(&t), t.n, NULL, test_sink);
    CHECK_OK(g ? nnc_train_graph(g, &how, &step, test_sink) : NNC_E_MODEL);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
    return step;
}

/* The numbers of the report add up, and a session requests them. */
static void check_fill(nnc_env *e, const nnc_artifact *a)
{
    nnc_session *s = NULL;
    int64_t fill[FILL__COUNT], persist = 0, live = 0;
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    if (!s)
        return;
    const nnc_plan_device *d = &a->plan->device[0];
    const nnc_exec_memory m = nnc_exec_requested(s->exec, 0);
    nnc_find_fill(a->plan, 0, fill);
    for (int k = 0; k < FILL__COUNT; k++) {
        CHECK(fill[k] >= 0);
        *(k <= FILL_optimizer ? &persist : &live) += fill[k];
    }
    CHECK_INT(persist, d->persist_bytes);
    CHECK_INT(live, d->lower_bound);
    CHECK_INT(m.arena, d->arena_bytes);
    CHECK_INT(m.persist, d->persist_bytes);
    nnc_session_destroy(s);
}

static bool same_bits(nnc_env *e, const nnc_artifact *a, const nnc_artifact *b)
{
    size_t n, m;
    float *x = states_after(e, a, 3, NULL, &n), *y = states_after(e, b, 3, NULL, &m);
    const bool same = x && y && n == m && !memcmp(x, y, n * sizeof *x);
    free(x);
    free(y);
    return same;
}

/* Compiles g at a price of memory, with the forward pass in so many segments, as a budget may choose them. */
static nnc_artifact *compile_way(nnc_env *e, const nnc_graph *g, int price, int segments)
{
    nnc_compile_options o = nnc_compile_defaults;
    o.level = 1;
    nnc_artifact *a = nnc_artifact_create(&o);
    a->memory_price = price;
    a->segments = segments;
    a->chunks = 1;
    a->source = nnc_graph_clone(g, test_sink);
    a->graph = nnc_graph_clone(g, test_sink);
    CHECK_OK(nnc_compile_graph(e, &o, true, a, test_sink));
    return a;
}

/* With a kernel for each op (-O1) computing again changes no bit. Returns how many ways compute something again. */
static int check_ways(nnc_env *e, const nnc_graph *g, uint64_t key)
{
    static const int way[][2] = {{300, 0}, {100000, 0}, {1000, 1}, {100000, 2}, {100000, 5}};
    nnc_artifact *keeps = compile_way(e, g, 0, 0);
    int again = 0;
    for (size_t i = 0; i < NNC_COUNT(way); i++) {
        nnc_artifact *a = compile_way(e, g, way[i][0], way[i][1]);
        again += a->plan && keeps->plan && a->plan->n_cmd > keeps->plan->n_cmd;
        if (a->plan)
            check_fill(e, a);
        if (!same_bits(e, keeps, a))
            test_fail(__FILE__, __LINE__, "drawn step %llu: other bits at price %d in %d segments",
                (unsigned long long)key, way[i][0], way[i][1]);
        nnc_artifact_destroy(a);
    }
    nnc_artifact_destroy(keeps);
    return again;
}

/* In fused kernels sums may be in another order. Returns how many budgets were met. */
static int check_budgets(nnc_env *e, const nnc_graph *g)
{
    static const char *const budgets[] = {"97%", "85%", "70%"};
    nnc_artifact *usual = compile(e, g, NULL);
    nnc_compile_options o = nnc_compile_defaults;
    nnc_status st = NNC_OK;
    int met = 0;
    for (size_t i = 0; usual && !st && i < NNC_COUNT(budgets); i++) {
        nnc_artifact *within = NULL;
        o.memory_budget = budgets[i];
        st = nnc_compile(e, g, &o, &within, test_sink);
        if (st == NNC_E_FIT) {
            nnc_sink_clear(test_sink);
            break;
        }
        CHECK_OK(st);
        if (!within)
            continue;
        met++;
        check_fill(e, within);
        check_equal(e, g, budgets[i], usual, within);
        nnc_artifact_destroy(within);
    }
    nnc_artifact_destroy(usual);
    return met;
}

TEST(budgets_of_drawn_steps)
{
    nnc_env *native = NULL, *interpreted = NULL;
    const int drawn = test_draws(2 * DRAWN);
    int again = 0, met = 0;
    char cache[256]; /* the programs of one step share most kernels */
    CHECK(api_tmpdir(cache, sizeof cache));
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){.cache_dir = cache, .threads = 2}, &native, test_sink));
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){TEST_CACHED, .threads = 2, .no_llvm = true}, &interpreted, test_sink));
    for (uint64_t i = 0; i < (uint64_t)drawn && native && interpreted; i++) {
        const uint64_t key = nnc_rng_key("budget", test_seed + i);
        nnc_graph *g = draw_step(key);
        if (!g)
            continue;
        again += check_ways(i % 2 ? native : interpreted, g, key);
        met += check_budgets(native, g);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(again > 2 * drawn && met >= drawn);
    nnc_env_destroy(native);
    nnc_env_destroy(interpreted);
    api_rmdir(cache);
}

/* What runs once a step is not computed for each batch: new weights are written in place, and need no memory. */
TEST(accumulated_step_fits)
{
    nnc_env *e = NULL;
    nnc_graph *m = model(false), *g = NULL;
    nnc_training t = nnc_training_defaults;
    t.momentum = 0.9;
    t.accumulate = 4;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    CHECK_OK(m ? nnc_train_graph(m, &t, &g, test_sink) : NNC_E_MODEL);
    nnc_graph *once = step_of(false);
    nnc_artifact *a = compile(e, g, NULL), *b = compile(e, once, NULL);
    CHECK(arena(a) > 0 && arena(a) < arena(b) + arena(b) / 8);
    for (int i = 0; a && i < a->plan->n_cmd; i++)
        CHECK(a->plan->cmd[i].kind != CMD_copy || a->plan->cmd[i].bytes < 4096); /* statistics */
    nnc_artifact_destroy(a);
    nnc_artifact_destroy(b);
    nnc_graph_destroy(once);
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

/* A step of a frozen base with a head keeps no activations: it needs little more than inference. */
TEST(frozen_layers_keep_nothing)
{
    nnc_env *e = NULL;
    int64_t fill[FILL__COUNT];
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
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

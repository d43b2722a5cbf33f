/* tests/api/train.c -- training steps on every device of this machine: losses and states against the float64 reference of the same graph,
 * step after step. (That the steps are PyTorch's, bench/train_check.py shows.) */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "frontend/frontend.h"
#include "help.h"
#include "steps.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *name;
    nnc_env_options env;
    int level;
    nnc_precision precision;
} ways[] = {
    {"-O2", {.threads = 2}, 2, NNC_PRECISION_default},
    {"-O2, 1 thread", {.threads = 1}, 2, NNC_PRECISION_default},
    {"-O0, interpreter", {.threads = 2, .no_llvm = true}, 0, NNC_PRECISION_default},
    {"-O2, bf16", {.threads = 2}, 2, NNC_PRECISION_bf16},
    {"-O2, f16", {.threads = 2}, 2, NNC_PRECISION_f16},
    {"-O2, bf16, interpreter", {.threads = 1, .no_llvm = true}, 2, NNC_PRECISION_bf16},
};

TEST(training_steps)
{
    char cache[256];
    CHECK(api_tmpdir(cache, sizeof cache));
    for (size_t w = 0; w < NNC_COUNT(ways); w++) {
        nnc_env_options eo = ways[w].env;
        nnc_compile_options o = nnc_compile_defaults;
        nnc_env *e = NULL;
        o.level = ways[w].level;
        o.precision = ways[w].precision;
        eo.cache_dir = cache;
        CHECK_OK(nnc_env_create(&eo, &e, test_sink));
        for (int i = 0; e && i < 9; i++) {
            const size_t m = (size_t)(i / 3 + i) % STEPS_MODELS;
            const nnc_training t = steps_training(i);
            if (!test_takes(w + (size_t)i, 4))
                continue;
            if (ways[w].precision && t.optimizer != NNC_OPT_sgd)
                continue; /* adam scales the rounding errors of gradients near 0 up */
            nnc_graph *g = nnc_model_parse("m.json", steps_models[m].json,
                          strlen(steps_models[m].json), NULL, test_sink),
                      *step = NULL;
            char what[128];
            CHECK(g != NULL);
            snprintf(
                what, sizeof what, "%s, training %d, %s", steps_models[m].name, i, ways[w].name);
            CHECK_OK(nnc_train_graph(g, &t, &step, test_sink));
            if (step)
                CHECK_OK(steps_take(e, step, &o, t.accumulate, what));
            nnc_graph_destroy(step);
            nnc_graph_destroy(g);
        }
        nnc_env_destroy(e);
    }
    api_rmdir(cache);
}

TEST(frozen_layers_are_left_alone)
{
    const nnc_training t = nnc_training_defaults;
    nnc_graph *g = nnc_model_parse(
                  "m.json", steps_models[1].json, strlen(steps_models[1].json), NULL, test_sink),
              *step = NULL;
    CHECK_OK(nnc_train_graph(g, &t, &step, test_sink));
    int states = 0;
    for (uint32_t i = nnc_result_outputs(step); i < step->n_output; i++, states++)
        CHECK(strncmp(step->value[step->output_state[i]].name, "e.", 2) != 0);
    CHECK_INT(states, 9); /* c.weight, n's four, d's two, f's two */
    nnc_graph_destroy(step);
    nnc_graph_destroy(g);
}

static nnc_status train_graph_of(const char *json, nnc_loss loss, nnc_graph **step)
{
    nnc_training t = nnc_training_defaults;
    t.loss = loss;
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    CHECK(g != NULL);
    nnc_status s = nnc_train_graph(g, &t, step, test_sink);
    nnc_graph_destroy(g);
    return s;
}

/* Graph text has inputs without names: they are no error of the step. */
TEST(steps_of_unnamed_inputs)
{
    static const char text[] =
        "graph @u {\n%0 = input : f32[2,3]\n%w = param : f32[3,3] = gen(\"w\", seed=0, scale=1)\n"
        "%y = matmul %0, %w\nreturn %y as \"y\"\n}";
    nnc_graph *step = NULL;
    nnc_scan scan;
    nnc_scan_init(&scan, "u", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK(g != NULL);
    CHECK_OK(nnc_train_graph(g, &nnc_training_defaults, &step, test_sink));
    nnc_graph_destroy(step);
    nnc_graph_destroy(g);
}

static nnc_status train_text(const char *middle, nnc_graph **step)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_scan scan;
    nnc_printf(&t, "graph @u {\n%%x = input : f32[4,3]\n");
    for (const char *p = "gbmv"; *p; p++)
        nnc_printf(&t, "%%%c = param : f32[3] = gen(\"%c\", seed=0, scale=1)\n", *p, *p);
    nnc_printf(&t, "%s\nreturn %%y as \"y\"\n}", middle);
    nnc_scan_init(&scan, "u", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK(g != NULL);
    nnc_status s = nnc_train_graph(g, &nnc_training_defaults, step, test_sink);
    nnc_graph_destroy(g);
    return s;
}

/* Statistics that two layers share have one update; those that are computed have none. */
TEST(shared_and_computed_statistics)
{
    nnc_graph *step = NULL;
    CHECK_OK(
        train_text("%z = batchnorm %x, %g, %b, %m, %v\n%y = batchnorm %z, %g, %b, %m, %v", &step));
    if (step)
        CHECK_INT(step->n_output - nnc_result_outputs(step), 4);
    nnc_graph_destroy(step);
    CHECK_OK(train_text("%w = mul %v, %v\n%y = batchnorm %x, %g, %b, %m, %w", &step));
    nnc_graph_destroy(step);
}

/* The losses of logits leave out what the model ends with: softmax, sigmoid, also of a type that is cast. */
TEST(losses_of_logits)
{
    static const struct {
        const char *json;
        nnc_loss loss;
        nnc_op op;
    } cases[] = {
        {"{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
         "\"out\": 3}, \"sigmoid\"]}",
            NNC_LOSS_bce, OP_sigmoid},
        {"{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
         "\"out\": 3}, {\"op\": \"cast\", \"to\": \"f16\"}, \"softmax\"]}",
            NNC_LOSS_cross_entropy, OP_softmax},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_graph *step = NULL;
        CHECK_OK(train_graph_of(cases[i].json, cases[i].loss, &step));
        for (uint32_t k = 0; step && k < step->n_node; k++)
            CHECK(step->node[k].op != cases[i].op ||
                  (step->node[k].origin && strstr(step->node[k].origin, "/backward")));
        nnc_graph_destroy(step);
    }
}

/* Losses of logits warn of predictions that are none, but not of the softmax or sigmoid that they leave out. */
TEST(predictions_that_are_no_logits)
{
    static const struct {
        const char *last;
        nnc_loss loss;
        bool warns;
    } cases[] = {{"relu", NNC_LOSS_cross_entropy, true}, {"sigmoid", NNC_LOSS_cross_entropy, true},
        {"softmax", NNC_LOSS_cross_entropy, false}, {"sigmoid", NNC_LOSS_bce, false},
        {"softmax", NNC_LOSS_bce, true}, {"tanh", NNC_LOSS_bce, true},
        {"relu", NNC_LOSS_mse, false}, {"leaky_relu", NNC_LOSS_cross_entropy, false}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        char json[200];
        nnc_training t = nnc_training_defaults;
        nnc_graph *g = NULL;
        t.loss = cases[i].loss;
        snprintf(json, sizeof json,
            "{\"inputs\": {\"x\": [4, 3]}, \"layers\": [{\"op\": \"linear\", \"out\": 3}, \"%s\"]}",
            cases[i].last);
        nnc_graph *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
        if (test_has_diag("takes logits, which have any value") != cases[i].warns)
            test_fail(__FILE__, __LINE__, "%s", json);
        nnc_graph_destroy(g);
        nnc_graph_destroy(m);
    }
}

TEST(models_that_cannot_be_trained)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{\"inputs\": {\"key\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
         "\"out\": 3}]}",
            "training adds an input named key"},
        {"{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
         "\"out\": 3, \"dtype\": \"f16\"}, {\"op\": \"linear\", \"name\": \"b\", \"out\": 3}]}",
            "the weight a.weight is f16"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_graph *step = NULL;
        CHECK_INT(train_graph_of(cases[i].json, NNC_LOSS_cross_entropy, &step), NNC_E_MODEL);
        CHECK_DIAG(cases[i].says);
        CHECK(step == NULL);
    }
}

/* Layers may be called as the inputs that training adds: the step has these, and the same loss. */
TEST(layers_called_as_inputs_of_training)
{
    static const char *const names[] = {"target", "lr", "first", "key"};
    for (size_t i = 0; i < NNC_COUNT(names); i++) {
        char json[300];
        nnc_training t = nnc_training_defaults;
        nnc_graph *g = NULL;
        t.accumulate = 2;
        snprintf(json, sizeof json,
            "{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"%s\", "
            "\"out\": 5}, {\"op\": \"dropout\"}, {\"op\": \"linear\", \"out\": 3}]}",
            names[i]);
        nnc_graph *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
        int found = 0;
        for (uint32_t k = 0; g && k < g->n_node; k++)
            for (size_t j = 0; j < NNC_COUNT(names) && g->node[k].op == OP_input; j++)
                found += !strcmp(g->value[g->node[k].out].name, names[j]);
        CHECK_INT(found, 4);
        nnc_graph_destroy(g);
        nnc_graph_destroy(m);
    }
}

/* Steps of several batches are those of a large batch, where no layer sees the batch. */
TEST(accumulated_batches_are_one)
{
    enum { PARTS = 4 };
    static const char model[] =
        "{\"args\": {\"n\": 3}, \"inputs\": {\"x\": [\"n\", 7]}, \"layers\": "
        "[{\"op\": \"linear\", \"name\": \"a\", \"out\": 20}, \"silu\", "
        "{\"op\": \"linear\", \"name\": \"b\", \"out\": 5}]}";
    static const nnc_set whole = {"n", 12};
    const nnc_model_options large = {.set = &whole, .n_set = 1};
    nnc_env *e = NULL;
    nnc_graph *m[2], *g[2] = {0};
    nnc_artifact *a[2] = {0};
    nnc_session *s[2] = {0};
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    for (int k = 0; k < 2; k++) {
        nnc_training t = nnc_training_defaults;
        t.optimizer = NNC_OPT_adamw;
        t.weight_decay = 0.01;
        t.clip_norm = 0.1;
        t.accumulate = k ? 0 : PARTS;
        m[k] = nnc_model_parse("m.json", model, sizeof model - 1, k ? &large : NULL, test_sink);
        CHECK_OK(nnc_train_graph(m[k], &t, &g[k], test_sink));
        CHECK_OK(nnc_compile(e, g[k], NULL, &a[k], test_sink));
        CHECK_OK(nnc_session_create(e, a[k], &s[k], test_sink));
    }
    for (int step = 0; step < 5; step++) {
        float x[12 * 7];
        int64_t y[12];
        for (int i = 0; i < 12 * 7; i++)
            x[i] = nnc_rng_uniform(nnc_rng_key("x", (uint64_t)step), (uint64_t)i);
        for (int i = 0; i < 12; i++)
            y[i] = (i + step) % 5;
        for (int k = 0; k < 2; k++)
            for (int part = 0; part < (k ? 1 : PARTS); part++) {
                for (int i = 0; i < nnc_session_inputs(s[k]); i++) {
                    const char *name = nnc_session_input_name(s[k], i);
                    const float number =
                        !strcmp(name, "lr") ? 0.02f : 1 / (1 - powf(0.9f, (float)step + 1));
                    const bool first = part == 0;
                    const void *data = !strcmp(name, "x")        ? (const void *)(x + part * 21)
                                       : !strcmp(name, "target") ? (const void *)(y + part * 3)
                                       : !strcmp(name, "first")  ? (const void *)&first
                                                                 : &number;
                    CHECK_OK(nnc_session_input(s[k], i, data, test_sink));
                }
                CHECK_OK((k || part == PARTS - 1 ? nnc_session_step : nnc_session_accumulate)(
                    s[k], test_sink));
            }
    }
    for (int i = 0; i < nnc_session_states(s[0]); i++)
        for (int k = 0; k < nnc_session_states(s[1]); k++) {
            float parts[140], one[140];
            if (strcmp(nnc_session_state_name(s[0], i), nnc_session_state_name(s[1], k)) != 0)
                continue;
            const int64_t n = nnc_type_numel(nnc_session_state_type(s[0], i));
            CHECK_OK(nnc_session_state(s[0], i, parts, test_sink));
            CHECK_OK(nnc_session_state(s[1], k, one, test_sink));
            for (int64_t j = 0; j < n; j++)
                CHECK_NEAR(parts[j], one[j], 1e-5 * fmax(1, fabs((double)one[j])));
        }
    for (int k = 0; k < 2; k++) {
        nnc_session_destroy(s[k]);
        nnc_artifact_destroy(a[k]);
        nnc_graph_destroy(g[k]);
        nnc_graph_destroy(m[k]);
    }
    nnc_env_destroy(e);
}

/* An evaluation with the states of a training sees its steps, is not changed by its own, and outlives it. */
TEST(sessions_with_the_states_of_another)
{
    const nnc_training t = nnc_training_defaults;
    nnc_env *e = NULL;
    nnc_graph *m = nnc_model_parse(
        "m.json", steps_models[1].json, strlen(steps_models[1].json), NULL, test_sink);
    nnc_graph *g[2] = {0};
    nnc_artifact *a[2] = {0};
    nnc_session *s[2] = {0};
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    CHECK_OK(nnc_train_graph(m, &t, &g[0], test_sink));
    CHECK_OK(nnc_evaluation_graph(m, &t, &g[1], test_sink));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(nnc_compile(e, g[k], NULL, &a[k], test_sink));
        CHECK_OK(nnc_session_create_with(e, a[k], k ? s[0] : NULL, &s[k], test_sink));
    }
    const nnc_plan *p = nnc_artifact_plan(a[1]);
    const int64_t own = nnc_exec_requested(s[1]->exec, 0).persist, all = p->device[0].persist_bytes;
    CHECK(own < all / 2); /* what is left: packed weights of frozen layers, alignment */
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < nnc_session_inputs(s[k]); i++) {
                void *data = NULL;
                for (uint32_t n = 0, at = 0; n < g[k]->n_node; n++)
                    if (g[k]->node[n].op == OP_input && (int)at++ == i)
                        data = steps_input(g[k], &g[k]->node[n], step, true);
                CHECK_OK(nnc_session_input(s[k], i, data, test_sink));
                free(data);
            }
        CHECK_OK(nnc_session_step(s[0], test_sink));
        CHECK_OK(nnc_session_step(s[1], test_sink));
        for (int i = 0; i < nnc_session_states(s[1]); i++) {
            float theirs[512] = {0}, ours[512] = {1};
            CHECK(nnc_type_bytes(nnc_session_state_type(s[1], i)) <= (int64_t)sizeof ours);
            CHECK_OK(nnc_session_state(s[1], i, ours, test_sink));
            for (int k = 0; k < nnc_session_states(s[0]); k++)
                if (!strcmp(nnc_session_state_name(s[0], k), nnc_session_state_name(s[1], i)))
                    CHECK_OK(nnc_session_state(s[0], k, theirs, test_sink));
            if (strncmp(nnc_session_state_name(s[1], i), "e.", 2) !=
                0) /* frozen: no state of training */
                CHECK(
                    !memcmp(ours, theirs, (size_t)nnc_type_bytes(nnc_session_state_type(s[1], i))));
        }
    }
    float loss[2] = {0};
    CHECK_OK(nnc_session_run(s[1], test_sink));
    CHECK_OK(nnc_session_output(s[1], 0, &loss[0], test_sink));
    nnc_session_destroy(s[0]);
    CHECK_OK(nnc_session_run(s[1], test_sink));
    CHECK_OK(nnc_session_output(s[1], 0, &loss[1], test_sink));
    CHECK(loss[0] == loss[1] && loss[0] > 0);
    nnc_session_destroy(s[1]);
    for (int k = 0; k < 2; k++) {
        nnc_artifact_destroy(a[k]);
        nnc_graph_destroy(g[k]);
    }
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

TEST(learning_rates)
{
    static const char *const at[] = {"2", "35steps"};
    const nnc_rate rates[] = {
        {.lr = 1, .warmup = 4},
        {.lr = 1, .gamma = 0.5, .schedule = NNC_LR_step, .every = "15steps"},
        {.lr = 1, .gamma = 0.1, .schedule = NNC_LR_step, .at = at, .n_at = 2},
        {.lr = 2, .schedule = NNC_LR_cosine, .min = 1, .warmup = 10},
    };
    static const struct {
        int rate, step;
        double want;
    } cases[] = {{0, 0, 0.25}, {0, 3, 1}, {0, 39, 1}, {1, 14, 1}, {1, 15, 0.5}, {1, 39, 0.25},
        {2, 19, 1}, {2, 20, 0.1}, {2, 34, 0.1}, {2, 35, 0.01}, {3, 4, 1}, {3, 10, 2}, {3, 25, 1.5},
        {3, 40, 1}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) /* of 40, 10 an epoch */
        CHECK_NEAR(nnc_rate_at(&rates[cases[i].rate], cases[i].step, 40, 10), cases[i].want, 1e-12);
    for (size_t i = 0; i < NNC_COUNT(rates); i++)
        CHECK_OK(nnc_rate_check(&rates[i], test_sink));
    const nnc_rate wrong[] = {{.schedule = NNC_LR_step}, {.schedule = NNC_LR_step, .every = "0"},
        {.schedule = NNC_LR_step, .every = "3x"}, {.every = "3"}};
    static const char *const says[] = {
        "needs --decay-every", "found `0`", "found `3x`", "belong to"};
    for (size_t i = 0; i < NNC_COUNT(wrong); i++) {
        CHECK_INT(nnc_rate_check(&wrong[i], test_sink), NNC_E_USAGE);
        CHECK_DIAG(says[i]);
    }
}

static double state_of(nnc_session *s, const char *name, float *all, int n)
{
    for (int i = 0; i < nnc_session_states(s); i++)
        if (!strcmp(nnc_session_state_name(s, i), name)) {
            CHECK(nnc_type_numel(nnc_session_state_type(s, i)) <= n);
            CHECK_OK(nnc_session_state(s, i, all, test_sink));
            return (double)all[0];
        }
    test_fail(__FILE__, __LINE__, "no state %s", name);
    return 0;
}

/* Where the scaled loss has infinite gradients, the step changes nothing but the scale; steps that were skipped do not count for adam. */
TEST(steps_with_infinite_gradients)
{
    static const char json[] = "{\"inputs\": {\"x\": [2, 3]}, \"layers\": [{\"op\": \"linear\", "
                               "\"name\": \"a\", \"out\": 4}]}";
    nnc_training t = nnc_training_defaults;
    nnc_graph *m = nnc_model_parse("m.json", json, sizeof json - 1, NULL, test_sink), *g = NULL;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    float was[16], now[16], x[6] = {1e3f, -2e3f, 3e3f, 1e3f, 2e3f, 1e3f}, y[8] = {0}, lr = 0.01f;
    t.loss = NNC_LOSS_mse;
    t.optimizer = NNC_OPT_adam;
    t.loss_scale = 0x1p120;
    t.scale_growth = 3;
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
    CHECK_OK(nnc_compile(e, g, NULL, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_INT(nnc_session_inputs(s), 3); /* no factors of adam's moments */
    int skipped = 0, grown = 0, in_row = 0;
    for (int i = 0; i < 30; i++) {
        for (int k = 0; k < nnc_session_inputs(s); k++) {
            const char *name = nnc_session_input_name(s, k);
            CHECK_OK(nnc_session_input(s, k,
                !strcmp(name, "x")    ? x
                : !strcmp(name, "lr") ? &lr
                                      : y,
                test_sink));
        }
        const double before = state_of(s, "loss_scale", now, 16);
        state_of(s, "a.weight", was, 16);
        CHECK_OK(nnc_session_step(s, test_sink));
        const double after = state_of(s, "loss_scale", now, 16);
        state_of(s, "a.weight", now, 16);
        const bool same = !memcmp(was, now, 12 * sizeof *was);
        in_row = same ? 0 : in_row + 1;
        CHECK(same == (after == before / 2));
        CHECK(same || after == (in_row % 3 ? before : 2 * before));
        skipped += same;
        grown += after > before;
        if (!same && in_row == 1 && !grown) /* adam's first step is one of lr */
            CHECK_NEAR(fabs((double)now[0] - (double)was[0]), 0.01, 1e-5);
        for (int k = 0; k < 12; k++)
            CHECK(isfinite(now[k]));
    }
    CHECK(skipped > 3 && grown > 2);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
}

/* Statistics and weights of a batch norm are left alone or not, each by itself. */
TEST(statistics_apart_from_frozen)
{
    static const char *const keys[] = {
        "", ", \"bn\": \"auto\"", ", \"bn\": \"train\"", ", \"bn\": \"eval\""};
    for (int i = 0; i < 24; i++) {
        const bool frozen = i % 2;
        const int key = i / 6; /* of the layer; --bn overrides it */
        char json[300];
        nnc_training t = nnc_training_defaults;
        nnc_graph *g = NULL;
        t.bn = (nnc_bn)(i / 2 % 3);
        snprintf(json, sizeof json,
            "{\"inputs\": {\"x\": [4, 3, 5, 5]}, \"layers\": [{\"op\": \"batchnorm\", \"name\": "
            "\"n\"%s%s}, "
            "\"flatten\", {\"op\": \"linear\", \"name\": \"f\", \"out\": 3}]}",
            frozen ? ", \"frozen\": true" : "", keys[key]);
        nnc_graph *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
        int weights = 0, statistics = 0, by_batch = 0;
        for (uint32_t k = nnc_result_outputs(g); k < g->n_output; k++) {
            const char *name = g->value[g->output_state[k]].name;
            weights += !strcmp(name, "n.weight") || !strcmp(name, "n.bias");
            statistics += !strcmp(name, "n.running_mean") || !strcmp(name, "n.running_var");
        }
        for (uint32_t k = 0; k < g->n_node; k++)
            by_batch += g->node[k].op == OP_reduce_mean && g->node[k].origin &&
                        strstr(g->node[k].origin, "/n") != NULL;
        const bool moves =
            t.bn == NNC_BN_train || (t.bn == NNC_BN_auto && (key < 2 ? !frozen : key == 2));
        CHECK_INT(weights, frozen ? 0 : 2);
        CHECK_INT(statistics, moves ? 2 : 0);
        CHECK((by_batch > 0) == moves);
        nnc_graph_destroy(g);
        nnc_graph_destroy(m);
    }
}

/* A state whose update is itself stays, and may be set. */
TEST(states_that_stay)
{
    static const char text[] =
        "graph @u {\n%x = input : f32[2,3]\n%w = param : f32[3,3] = gen(\"w\", seed=0, scale=1)\n"
        "%y = matmul %x, %w\n%z = identity %w\nreturn %y as \"y\"\nupdate %w <- %z\n}";
    static const float x[6] = {1, 0, 0, 0, 2, 0}, w[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float y[6], back[9];
    nnc_scan scan;
    nnc_scan_init(&scan, "u", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    CHECK_OK(nnc_compile(e, g, NULL, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_INT(nnc_session_states(s), 1);
    CHECK_OK(nnc_session_set_state(s, 0, w, test_sink));
    CHECK_OK(nnc_session_input(s, 0, x, test_sink));
    CHECK_OK(nnc_session_step(s, test_sink));
    CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    CHECK(y[0] == 1 && y[2] == 3 && y[3] == 8 && y[5] == 12);
    CHECK_OK(nnc_session_state(s, 0, back, test_sink));
    CHECK(!memcmp(back, w, sizeof w));
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

/* ---- nnc_train: files of samples, validation, saved weights ---------------------------------------------------------------- */

enum { ROWS = 128, WIDE = 8 };

static void write_samples(const char *dir, int classes)
{
    float x[ROWS][WIDE];
    int64_t y[ROWS];
    for (int r = 0; r < ROWS; r++) {
        y[r] = r % classes;
        for (int i = 0; i < WIDE; i++)
            x[r][i] = (float)(i == r % classes) +
                      0.3f * nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    CHECK_OK(nnc_write_output(api_in(dir, "x.npy"), &tx, x, test_sink));
    CHECK_OK(nnc_write_output(api_in(dir, "y.npy"), &ty, y, test_sink));
}

static const char samples_model[] = "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": "
                                    "\"linear\", \"name\": \"a\", \"out\": 16}, \"relu\", "
                                    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 4}]}";

TEST(files_of_samples)
{
    char dir[256], x[300], y[300], w[300], log[300];
    CHECK(api_tmpdir(dir, sizeof dir));
    write_samples(dir, 4);
    snprintf(x, sizeof x, "%s/x.npy", dir);
    snprintf(y, sizeof y, "%s/y.npy", dir);
    snprintf(w, sizeof w, "%s/w.safetensors", dir);
    snprintf(log, sizeof log, "%s/log", dir);
    nnc_env *e = NULL;
    NNC_LOCAL(nnc_text) out = {0}, again = {0};
    nnc_graph *g =
        nnc_model_parse("m.json", samples_model, sizeof samples_model - 1, NULL, test_sink);
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    nnc_train_options o = nnc_train_defaults;
    o.data.path = x;
    o.data.labels = y;
    o.rate.lr = 0.2;
    o.training.momentum = 0.9;
    o.epochs = 10;
    o.data.validation = 0.25;
    o.save = w;
    CHECK_OK(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink));
    CHECK(strstr(nnc_text_str(&out), "epoch 10: loss 0.0") != NULL);
    CHECK(strstr(nnc_text_str(&out), "accuracy 100.00 %; ") != NULL);
    CHECK(access(w, R_OK) == 0);
    CHECK_OK(nnc_train(e, g, &o, NNC_CSV, &again, test_sink));
    CHECK(!strncmp(
        nnc_text_str(&again), "epoch,steps,loss,samples_per_s,accuracy,validation_loss", 40));
    o.data.validation = 0.001;
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--validation=0.001 of 128 samples is less than 1");
    o.data.validation = 0;
    o.rate.lr = 1e60;
    o.steps = 1; /* whose loss is still that of the weights before it */
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_DIFFERS);
    CHECK_DIAG("step 1: its update makes a.weight infinite or NaN");
    o.steps = 0;
    o.rate.lr = 1e30;
    o.log = log;
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_DIFFERS);
    CHECK_DIAG("a smaller --lr");
    CHECK(!test_has_diag("-nan"));
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(nnc_file_read(log, 0, &text, &n, test_sink));
    CHECK(text && strstr(text, "\"loss\": null, \"lr\": ") && !strstr(text, "nan"));
    nnc_free(text);
    o.log = "/no/such/folder/log";
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_IO);
    CHECK_DIAG("cannot write");
    o.log = NULL;
    write_samples(dir, 5);
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_MODEL);
    CHECK_DIAG("has class 4");
    o.data.path = y;
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_MODEL);
    CHECK_DIAG("the rows of x are i64[128]");
    o.data.path = x;
    o.data.labels = NULL;
    o.training.loss = NNC_LOSS_mse;
    CHECK_INT(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_MODEL);
    CHECK_DIAG("there is no tensor named target");
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
    api_rmdir(dir);
}

/* Targets with several indices a sample: accuracy is a share of all of them. */
TEST(accuracy_of_dense_targets)
{
    static const char json[] = "{\"inputs\": {\"x\": [2, 3, 4]}, \"layers\": [{\"op\": "
                               "\"conv\", \"name\": \"c\", \"channels\": 3, \"kernel\": 1}]}";
    static const float x[4 * 3 * 4] = {0};
    static const int64_t y[4 * 4] = {0}, dim[] = {4, 3, 4}, dim_y[] = {4, 4};
    char dir[256], of_x[300], of_y[300];
    CHECK(api_tmpdir(dir, sizeof dir));
    const nnc_type tx = nnc_type_make(DT_f32, 3, dim), ty = nnc_type_make(DT_i64, 2, dim_y);
    snprintf(of_x, sizeof of_x, "%s/x.npy", dir);
    snprintf(of_y, sizeof of_y, "%s/y.npy", dir);
    CHECK_OK(nnc_write_output(of_x, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(of_y, &ty, y, test_sink));
    nnc_env *e = NULL;
    NNC_LOCAL(nnc_text) out = {0};
    nnc_graph *g = nnc_model_parse("m.json", json, sizeof json - 1, NULL, test_sink);
    CHECK(g != NULL);
    CHECK_OK(nnc_env_create(NULL, &e, test_sink));
    nnc_train_options o = nnc_train_defaults;
    o.data.path = of_x;
    o.data.labels = of_y;
    o.epochs = 20;
    o.rate.lr = 1;
    CHECK_OK(nnc_train(e, g, &o, NNC_TEXT, &out, test_sink));
    CHECK(strstr(nnc_text_str(&out), "accuracy 100.00 %;") != NULL);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
    api_rmdir(dir);
}

/* tests/api/train_loss.c -- cross entropy with ignored targets and with classes in the last dimension; frozen weights by pattern; what a
 * batch norm cannot do. */
#include "session/session.h"
#include "train/train.h"
#include "frontend/frontend.h"
#include "help.h"

#include <math.h>
#include <stdlib.h>

enum { N = 2, T = 3, C = 4 };

static nnc_graph *model(const char *json)
{
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    CHECK(g != NULL);
    return g;
}

/* The value of an output of the training graph in float64; the model is x itself, as x > 0, by a prelu. */
static double value_of(const nnc_graph *g, const char *name, const float *x, const int64_t *target)
{
    void *in[8] = {0};
    float number = 0.5f;
    double v = NAN;
    int n = 0;
    nnc_rval *out = calloc(g->n_output, sizeof *out);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input) {
            const char *is = g->value[g->node[i].out].name;
            in[n++] = !strcmp(is, "x")        ? (void *)(uintptr_t)x
                      : !strcmp(is, "target") ? (void *)(uintptr_t)target
                                              : (void *)&number;
        }
    CHECK_OK(nnc_eval_step(g, (const void *const *)in, 1, NULL, out, test_sink));
    for (uint32_t i = 0; i < nnc_result_outputs(g); i++)
        if (!strcmp(g->output_name[i], name))
            v = out[i].f[0];
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_rval_free(&out[i]);
    free(out);
    return v;
}

/* Mean over the targets that are not -1; the logits of sample n and place t begin at x, `step` apart. */
static double want(const float *x, int of_t, int step, const int64_t *target, double *right)
{
    double sum = 0, all = 0;
    *right = 0;
    for (int i = 0; i < N * T; i++) {
        const float *l = x + i / T * T * C + i % T * of_t;
        double total = 0;
        int best = 0;
        for (int c = 0; c < C; c++) {
            total += exp((double)l[c * step]);
            best = l[c * step] > l[best * step] ? c : best;
        }
        if (target[i] < 0)
            continue;
        sum += log(total) - (double)l[target[i] * step];
        *right += best == target[i];
        all++;
    }
    return sum / all;
}

TEST(targets_that_are_ignored_and_classes_in_the_last_dimension)
{
    static const int64_t all[N * T] = {0, 3, 1, 2, 2, 1}, some[N * T] = {0, -1, 1, -1, 2, -1};
    float x[N * T * C];
    for (int i = 0; i < N * T * C; i++)
        x[i] = 4 * nnc_rng_uniform(nnc_rng_key("l", 3), (uint64_t)i) + 0.1f;
    for (int i = 0; i < 4; i++) {
        const bool last = i & 1, ignore = i & 2;
        nnc_training t = nnc_training_defaults;
        nnc_graph *step = NULL;
        double right;
        t.class_axis = last ? -1 : 1;
        t.ignore_index = ignore ? -1 : NNC_IGNORE_none;
        nnc_graph *g =
            model(last ? "{\"inputs\": {\"x\": [2, 3, 4]}, \"layers\": [{\"op\": \"prelu\"}]}"
                       : "{\"inputs\": {\"x\": [2, 4, 3]}, \"layers\": [{\"op\": \"prelu\"}]}");
        CHECK_OK(nnc_train_graph(g, &t, &step, test_sink));
        const int64_t *target = ignore ? some : all;
        const double loss = want(x, last ? C : 1, last ? 1 : T, target, &right);
        if (step) {
            CHECK_NEAR(value_of(step, "loss", x, target), loss, 1e-9);
            CHECK_NEAR(value_of(step, "correct", x, target), right, 0);
        }
        if (step && ignore)
            CHECK_NEAR(value_of(step, "counted", x, target), 3, 0);
        nnc_graph_destroy(step);
        nnc_graph_destroy(g);
    }
}

static nnc_status step_of(const char *json, const nnc_training *t, nnc_graph **step)
{
    nnc_graph *g = model(json);
    const nnc_status s = nnc_train_graph(g, t, step, test_sink);
    nnc_graph_destroy(g);
    return s;
}

TEST(batch_norms_of_one_number)
{
    nnc_training t = nnc_training_defaults;
    nnc_graph *step = NULL;
    static const char json[] =
        "{\"inputs\": {\"x\": [1, 4]}, \"layers\": [{\"op\": \"batchnorm\"}]}";
    CHECK_INT(step_of(json, &t, &step), NNC_E_MODEL);
    CHECK_DIAG("has one number a channel");
    t.bn = NNC_BN_eval;
    CHECK_OK(step_of(json, &t, &step));
    nnc_graph_destroy(step);
}

static int states_named(const nnc_graph *g, const char *part)
{
    int n = 0;
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++)
        n += strstr(g->value[g->output_state[i]].name, part) != NULL;
    return n;
}

TEST(weights_frozen_by_pattern)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [4, 4]}, \"layers\": [{\"name\": \"base\", \"layers\": [{\"op\": "
        "\"linear\", \"name\": \"a\", \"out\": 4}, {\"op\": \"batchnorm\", \"name\": \"n\"}]}, "
        "{\"op\": \"linear\", \"name\": \"head\", \"out\": 2}]}";
    static const struct {
        const char *freeze, *only;
        int base, head;
    } cases[] = {{NULL, NULL, 6, 2}, {"base.*", NULL, 0, 2}, {"0/base/*", NULL, 0, 2},
        {"base.a", NULL, 4, 2}, {NULL, "head", 0, 2}, {"head.weight", "base.a,head.*", 2, 1},
        {"base", NULL, 0, 2}, {"/layers/0/base", NULL, 0, 2}, {"0", NULL, 0, 2},
        {NULL, "bas?", 6, 0}, {NULL, "1/head", 0, 2}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_training t = nnc_training_defaults;
        nnc_graph *step = NULL;
        const char *only[] = {"base.a", "head.*"};
        t.freeze = &cases[i].freeze;
        t.n_freeze = cases[i].freeze != NULL;
        t.only = cases[i].only && strchr(cases[i].only, ',') ? only : &cases[i].only;
        t.n_only = !cases[i].only ? 0 : strchr(cases[i].only, ',') ? 2 : 1;
        CHECK_OK(step_of(json, &t, &step));
        if (step && (states_named(step, "base") != cases[i].base ||
                        states_named(step, "head") != cases[i].head))
            test_fail(__FILE__, __LINE__, "case %zu: %d and %d", i, states_named(step, "base"),
                states_named(step, "head"));
        nnc_graph_destroy(step);
    }
    nnc_training t = nnc_training_defaults;
    nnc_graph *step = NULL;
    const char *typo = "bas.*";
    t.freeze = &typo;
    t.n_freeze = 1;
    CHECK_INT(step_of(json, &t, &step), NNC_E_USAGE);
    CHECK_DIAG("--freeze=bas.* matches no weight");
}

/* Some layers have weights with names of two parts: they are the layer's, too. */
TEST(weights_of_attention_frozen_by_layer)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [4, 3, 4]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
        "\"out\": 4}, {\"op\": \"multihead_attention\", \"name\": \"b\", \"heads\": 2}, "
        "\"flatten\"]}";
    const char *layer = "b";
    nnc_training t = nnc_training_defaults;
    nnc_graph *step = NULL;
    t.only = &layer;
    t.n_only = 1;
    CHECK_OK(step_of(json, &t, &step));
    CHECK_INT(states_named(step, "b."), 4);
    CHECK_INT(states_named(step, "a."), 0);
    nnc_graph_destroy(step);
}

/* tests/cuda_fake/parallel.c -- n models beside each other, as people write them, trained on the fake GPU. Drawn ones are compared with
 * the float64 reference of the same graph. A step has as many commands as one model's. */
#include "api/steps.h"
#include "session/session.h"
#include "train/train.h"
#include "fake.h"
#include "frontend/frontend.h"
#include "help.h"
#include "test.h"

#include <string.h>

/* ---- drawn models ----------------------------------------------------------------------------------------------------------- */

typedef struct draws {
    uint64_t key, n;
} draws;

static int below(draws *d, int n)
{
    return (int)(nnc_rng_u32(d->key, d->n++) % (uint32_t)n);
}

enum { MOST_LAYERS = 3 };

typedef struct drawn {
    int models, rows, length, layers; /* length 0: linear layers; else convolutions */
    int width[MOST_LAYERS + 1], kernel[MOST_LAYERS], groups[MOST_LAYERS], act[MOST_LAYERS];
    bool bias[MOST_LAYERS];
    bool one_input, tokens; /* all models read x; x has a dimension of tokens */
    int axis; /* of the concat */
} drawn;

static drawn draw(draws *d)
{
    static const int width[] = {16, 32, 48, 10}, models[] = {2, 3, 5, 8, 13, 70};
    drawn m = {.models = models[below(d, 12) ? below(d, 5) : 5], .rows = 1 + below(d, 6)};
    m.layers = 1 + below(d, m.models > 20 ? 1 : MOST_LAYERS);
    m.length = below(d, 2) ? 1 + below(d, 7) : 0;
    m.one_input = below(d, 4) == 0;
    m.tokens = !m.length && below(d, 4) == 0;
    m.axis = below(d, 4) ? 1 : 0;
    for (int i = 0; i <= m.layers; i++)
        m.width[i] = width[below(d, 12) ? below(d, 3) : 3];
    for (int i = 0; i < m.layers; i++) {
        m.kernel[i] = below(d, 2) ? 1 : 3;
        m.groups[i] = below(d, 4) ? 1 : 2;
        m.act[i] = below(d, 4);
        m.bias[i] = below(d, 4) > 0;
    }
    return m;
}

static void put_layer(nnc_text *t, const drawn *m, int k, int i, const char *in)
{
    static const char *const act[] = {"relu", "tanh", "silu"};
    const char *bias = m->bias[i] ? "" : ", \"bias\": false";
    if (m->length)
        nnc_printf(t,
            ", {\"op\": \"conv\", \"name\": \"m%d.l%d\", \"in\": \"%s\", \"channels\": %d, "
            "\"kernel\": "
            "%d, \"pad\": %d, \"groups\": %d%s}",
            k, i, in, m->width[i + 1], m->kernel[i], m->kernel[i] / 2, m->groups[i], bias);
    else
        nnc_printf(t,
            ", {\"op\": \"linear\", \"name\": \"m%d.l%d\", \"in\": \"%s\", \"out\": %d%s}", k, i,
            in, m->width[i + 1], bias);
    if (m->act[i] < 3)
        nnc_printf(t, ", {\"op\": \"%s\", \"name\": \"m%d.a%d\"}", act[m->act[i]], k, i);
}

static void put_model(nnc_text *t, const drawn *m)
{
    const int last = m->layers - 1, axis = m->tokens ? 2 : 1;
    const int in = m->width[0] * (m->one_input ? 1 : m->models);
    nnc_printf(t, "{\"inputs\": {\"x\": [%d", m->rows);
    if (m->tokens)
        nnc_puts(t, ", 3");
    nnc_printf(t, ", %d", in);
    if (m->length)
        nnc_printf(t, ", %d", m->length);
    nnc_puts(t, "]}, \"layers\": [");
    if (m->one_input)
        nnc_puts(t, "{\"op\": \"identity\", \"name\": \"all\", \"in\": \"x\"}");
    else
        nnc_printf(t,
            "{\"op\": \"split\", \"name\": \"part\", \"in\": \"x\", \"parts\": %d, \"axis\": %d}",
            m->models, axis);
    for (int k = 0; k < m->models; k++)
        for (int i = 0; i < m->layers; i++) {
            char of[40];
            if (i == 0)
                snprintf(of, sizeof of, m->one_input ? "x" : "part:%d", k);
            else
                snprintf(of, sizeof of, m->act[i - 1] < 3 ? "m%d.a%d" : "m%d.l%d", k, i - 1);
            put_layer(t, m, k, i, of);
        }
    nnc_printf(
        t, ", {\"op\": \"concat\", \"name\": \"y\", \"axis\": %d, \"in\": [", m->axis ? axis : 0);
    for (int k = 0; k < m->models; k++)
        nnc_printf(t, "%s\"m%d.%c%d\"", k ? ", " : "", k, m->act[last] < 3 ? 'a' : 'l', last);
    nnc_puts(t, "]}]}");
}

static nnc_training training_of(draws *d)
{
    nnc_training t = nnc_training_defaults;
    t.loss = NNC_LOSS_mse;
    t.optimizer = (nnc_optimizer)below(d, 3);
    t.momentum = below(d, 2) ? 0.9 : 0;
    t.weight_decay = below(d, 2) * 0.01;
    t.clip_norm = below(d, 5) ? 0 : 0.5;
    t.accumulate = below(d, 4) ? 0 : 2;
    t.loss_scale = below(d, 4) ? 0 : 1024;
    t.scale_growth = 2;
    return t;
}

static nnc_graph *step_of(const char *json, const nnc_training *t)
{
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink), *step = NULL;
    if (g)
        CHECK_OK(nnc_train_graph(g, t, &step, test_sink));
    else
        test_fail(__FILE__, __LINE__, "no model: %s", json);
    nnc_graph_destroy(g);
    return step;
}

static void train_drawn(uint64_t seed)
{
    draws d = {.key = nnc_rng_key("parallel", seed)};
    NNC_LOCAL(nnc_text) json = {0};
    char what[600], why[512];
    const drawn m = draw(&d);
    nnc_training t = training_of(&d);
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    o.precision = (nnc_precision)below(&d, NNC_PRECISION_bf16 + 1);
    o.streams = 1 + below(&d, 3);
    if (o.precision >= NNC_PRECISION_f16)
        t.optimizer = NNC_OPT_sgd; /* adam scales the rounding errors of gradients near 0 up */
    put_model(&json, &m);
    snprintf(what, sizeof what, "seed %llu, %s, optimizer %d: %.400s", (unsigned long long)seed,
        nnc_precision_name(o.precision), (int)t.optimizer, nnc_text_str(&json));
    nnc_graph *step = step_of(nnc_text_str(&json), &t);
    if (!step)
        return;
    fake_begin(seed);
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    if (e && steps_take(e, step, &o, t.accumulate, what))
        test_fail(__FILE__, __LINE__, "%s", what);
    nnc_env_destroy(e);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s: %s", what, why);
    nnc_graph_destroy(step);
}

TEST(parallel_models_are_trained)
{
    const int cases = test_draws(16);
    if (no_compiler())
        return;
    for (int i = 0; i < cases; i++)
        train_drawn(test_seed + (uint64_t)i);
    train_drawn(20260115); /* bf16 decides a relu otherwise than float64 in two of its batches */
    train_drawn(8550007); /* adam scales gradients up that are hardly more than rounding errors */
    train_drawn(1412588586); /* a concat of 71 operands */
    train_drawn(
        287622627); /* sums of gradients are one state, but read one by one: not at a multiple of 64 bytes */
    train_drawn(7550008); /* one function casts a tensor and the first 800 elements of another */
}

/* ---- commands of a step ------------------------------------------------------------------------------------------------------ */

typedef struct commands {
    int kernels, calls, copies, loops; /* loops: calls that cuBLASLt makes one after the other */
} commands;

static commands commands_of(
    const char *file, const nnc_arg *arg, int n, const nnc_training *t, nnc_precision precision)
{
    commands c = {0};
    nnc_compile_options o = nnc_compile_defaults;
    nnc_graph *g = NULL;
    nnc_artifact *a = NULL;
    nnc_env *e = NULL;
    char why[512];
    o.precision = precision;
    fake_begin(0);
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = arg, .n_arg = n}, test_sink);
    CHECK(m != NULL);
    CHECK_OK(nnc_train_graph(m, t, &g, test_sink));
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    CHECK_OK(nnc_compile(e, g, &o, &a, test_sink));
    for (int i = a ? nnc_plan_first(a->plan, SEC_main) : 0; a && i < a->plan->n_cmd; i++) {
        const nnc_cmd *k = &a->plan->cmd[i];
        c.kernels += k->kind == CMD_kernel;
        c.calls += k->kind == CMD_call;
        c.copies += k->kind == CMD_copy;
        const char *reason = k->kind == CMD_call ? k->reason : NULL;
        c.loops += reason && strstr(reason, " calls") && !strstr(reason, ", 1 calls");
    }
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    nnc_model_close(m);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
    return c;
}

/* Where one kernel computes the loss and its gradient, a comparison says so. */
TEST(comparisons_say_where_the_loss_is_computed)
{
    static const nnc_arg arg[] = {{"models", "4"}, {"batch", "4"}, {"in", "32"}, {"out", "32"}};
    nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    NNC_LOCAL(nnc_text) text = {0};
    nnc_graph *g = NULL;
    nnc_env *e = NULL;
    bool agrees = false;
    char why[512];
    if (no_compiler())
        return;
    t.loss = NNC_LOSS_mse;
    o.training = &t;
    o.iterations = 1;
    o.steps = false;
    fake_begin(0);
    nnc_model *m = nnc_model_open("models/multi_linear.json",
        &(nnc_open_options){.arg = arg, .n_arg = NNC_COUNT(arg)}, test_sink);
    CHECK(m != NULL);
    CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
    CHECK_OK(nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
    CHECK_OK(nnc_compare(e, g, &o, NNC_TEXT, &text, &agrees, test_sink));
    const char *loss = strstr(nnc_text_str(&text), "\n  loss          time ");
    const char *end = loss ? strstr(loss, "\n  backward pass time ") : NULL,
               *said = loss ? strstr(loss, "in kernels that count for another part: backward pass")
                            : NULL;
    if (!agrees || !end || !said || said > end)
        test_fail(__FILE__, __LINE__, "%s", nnc_text_str(&text));
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
    nnc_model_close(m);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* A step of n models has the commands of one, whatever n. */
TEST(steps_of_parallel_models_have_few_commands)
{
    static const struct {
        const char *file, *models, *in, *out, *batch, *length;
        nnc_optimizer optimizer;
        nnc_precision precision;
        int calls, all;
    } cases[] = {
        {"multi_linear", "64", "256", "512", "32", NULL, NNC_OPT_sgd, NNC_PRECISION_f32, 2, 7},
        {"multi_linear", "256", "256", "512", "32", NULL, NNC_OPT_sgd, NNC_PRECISION_f32, 2, 7},
        {"multi_linear", "64", "256", "512", "32", NULL, NNC_OPT_adamw, NNC_PRECISION_f32, 2, 7},
        {"multi_linear", "64", "256", "512", "32", NULL, NNC_OPT_adam, NNC_PRECISION_tf32, 2, 7},
        {"multi_linear", "64", "256", "512", "32", NULL, NNC_OPT_sgd, NNC_PRECISION_f16, 2, 10},
        {"multi_linear", "8", "256", "512", "32", NULL, NNC_OPT_sgd, NNC_PRECISION_bf16, 2, 10},
        {"multi_linear", "64", "32", "16", "8", NULL, NNC_OPT_adamw, NNC_PRECISION_f32, 2, 5},
        {"multi_linear", "256", "16", "1", "16", NULL, NNC_OPT_adamw, NNC_PRECISION_f32, 2, 5},
        {"multi_linear", "8", "64", "10", "32", NULL, NNC_OPT_sgd, NNC_PRECISION_f32, 2, 5},
        {"multi_conv1d", "64", "256", "512", "32", "1", NNC_OPT_sgd, NNC_PRECISION_f32, 2, 7},
        {"multi_conv1d", "64", "256", "512", "32", "16", NNC_OPT_sgd, NNC_PRECISION_f32, 2, 7},
        {"multi_conv1d", "256", "8", "10", "4", "16", NNC_OPT_adam, NNC_PRECISION_f32, 2, 7},
        {"multi_gconv1d", "64", "256", "512", "32", "16", NNC_OPT_sgd, NNC_PRECISION_f32, 2, 7},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        if (!test_takes(i, 4))
            continue;
        char file[64];
        const nnc_arg arg[] = {{"models", cases[i].models}, {"in", cases[i].in},
            {"out", cases[i].out}, {"batch", cases[i].batch}, {"length", cases[i].length}};
        snprintf(file, sizeof file, "models/%s.json", cases[i].file);
        nnc_training t = nnc_training_defaults;
        t.loss = NNC_LOSS_mse;
        t.optimizer = cases[i].optimizer;
        const commands c = commands_of(file, arg, cases[i].length ? 5 : 4, &t, cases[i].precision);
        printf("%s, %s models of %s x %s, %s: %d kernels, %d calls, %d copies\n", cases[i].file,
            cases[i].models, cases[i].in, cases[i].out, nnc_precision_name(cases[i].precision),
            c.kernels, c.calls, c.copies);
        CHECK_INT(c.calls, cases[i].calls);
        CHECK_INT(c.loops, 0);
        CHECK(c.kernels + c.calls + c.copies <= cases[i].all);
    }
}

/* The same with what looks at all gradients before it uses any, and with sums of several batches. */
TEST(steps_with_scaling_clipping_and_sums_have_few_commands)
{
    static const nnc_arg arg[] = {{"models", "64"}, {"batch", "32"}};
    static const struct {
        double clip, scale;
        int accumulate, all;
        nnc_optimizer optimizer;
        nnc_precision precision;
    } cases[] = {
        {0, 65536, 1, 15, NNC_OPT_sgd, NNC_PRECISION_f16},
        {1, 0, 1, 10, NNC_OPT_sgd, NNC_PRECISION_f32},
        {0, 0, 4, 9, NNC_OPT_sgd, NNC_PRECISION_f32},
        {1, 65536, 4, 24, NNC_OPT_adamw, NNC_PRECISION_f16},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_training t = nnc_training_defaults;
        t.loss = NNC_LOSS_mse;
        t.optimizer = cases[i].optimizer;
        t.clip_norm = cases[i].clip;
        t.loss_scale = cases[i].scale;
        t.scale_growth = 100;
        t.accumulate = cases[i].accumulate;
        const commands c = commands_of("models/multi_linear.json", arg, 2, &t, cases[i].precision);
        if (c.calls != 2 || c.kernels + c.calls + c.copies > cases[i].all)
            test_fail(__FILE__, __LINE__, "case %zu: %d kernels, %d calls, %d copies", i, c.kernels,
                c.calls, c.copies);
    }
}

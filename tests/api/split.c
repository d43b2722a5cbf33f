/* tests/api/split.c -- models split over virtual CPU devices. Outputs are the float64 reference's of the model on one device, and the bits
 * of one device where no sum is divided. Losses of split training steps are those of one device. */
#include "frontend/frontend.h"
#include "gen/gen.h"
#include "help.h"
#include "steps.h"

#include <math.h>
#include <stdlib.h>

/* ---- inference --------------------------------------------------------------------------------- */

typedef struct split_case {
    const char *model;
    nnc_arg arg[6];
    const char *strategy, *split;
    bool same_bits; /* no sum is divided */
} split_case;

static const split_case cases[] = {
    {"mlp", {{"batch", "5"}, {"hidden", "48"}}, "tensor", NULL, false},
    {"mlp", {{"batch", "4"}, {"hidden", "64"}}, NULL, "fc=columns", true},
    {"mlp", {{"batch", "8"}, {"hidden", "48"}}, NULL, "fc=batch", false},
    {"transformer_mlp", {{"batch", "2"}, {"tokens", "5"}, {"dim", "24"}}, "tensor", NULL, false},
    {"bert_base",
        {{"batch", "2"}, {"tokens", "6"}, {"vocabulary", "50"}, {"layers", "2"}, {"dim", "48"},
            {"inner", "40"}},
        "tensor", NULL, false},
    {"vit_b16", {{"image", "32"}, {"patch", "8"}, {"layers", "2"}, {"dim", "24"}, {"mlp", "40"}},
        "tensor", NULL, false},
    {"vgg16", {{"image", "32"}, {"slim", "4"}}, "channel", NULL, false},
    {"vgg16", {{"image", "32"}, {"slim", "4"}}, "spatial", NULL, true},
    {"vgg16", {{"image", "32"}, {"slim", "4"}, {"bn", "1"}, {"batch", "2"}}, "spatial", NULL, true},
    {"resnet50", {{"image", "33"}, {"width", "8"}, {"layers3", "2"}, {"classes", "5"}}, "channel",
        NULL, false},
    {"resnet50", {{"image", "64"}, {"width", "8"}, {"layers3", "2"}, {"classes", "5"}}, "spatial",
        NULL, false},
    {"mobilenet_v2", {{"batch", "2"}, {"image", "33"}, {"classes", "10"}}, "channel", NULL, false},
    {"googlenet", {{"image", "33"}, {"slim", "8"}, {"classes", "5"}}, "spatial", NULL, true},
    {"unet", {{"image", "32"}, {"channels", "4"}}, "spatial", NULL, true},
    {"densenet121",
        {{"batch", "2"}, {"image", "32"}, {"layers2", "3"}, {"layers3", "2"}, {"layers4", "2"},
            {"growth", "8"}},
        "channel", NULL, false},
};

static int n_args(const split_case *c)
{
    int n = 0;
    while (n < 6 && c->arg[n].name)
        n++;
    return n;
}

static nnc_model *open_case(const split_case *c)
{
    char file[128];
    snprintf(file, sizeof file, "models/%s.json", c->model);
    const nnc_open_options o = {.arg = c->arg, .n_arg = n_args(c), .seed = test_seed};
    nnc_model *m = nnc_model_open(file, &o, test_sink);
    CHECK(m != NULL);
    return m;
}

/* Devices that commands of main run on. */
static int devices_used(const nnc_plan *p)
{
    bool used[NNC_MAX_DEVICES] = {false};
    int n = 0;
    for (int i = p->end[SEC_init]; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel || p->cmd[i].kind == CMD_call)
            used[p->cmd[i].device] = true;
    for (int d = 0; d < p->n_device; d++)
        n += used[d];
    return n;
}

/* Bytes that the plan's copies and collectives send, over all links. */
static int64_t bytes_sent(const nnc_plan *p)
{
    int64_t bytes = 0;
    for (int i = p->end[SEC_init]; i < p->end[SEC_main]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_copy)
            bytes += p->tensor[c->arg[0]].bytes;
        if (c->kind != CMD_collective)
            continue;
        const nnc_collective *k = &p->collective[c->item];
        const int64_t part = p->tensor[c->arg[0]].bytes;
        bytes += k->kind == COLL_allreduce   ? 2 * (k->n - 1) * part / k->n
                 : k->kind == COLL_allgather ? (k->n - 1) * part
                                             : (k->n - 1) * part / k->n;
    }
    return bytes;
}

/* What the remarks say is sent is sent, or less: what two layers read may have been sent once. */
static void check_bytes(
    const split_case *c, const nnc_model *m, const nnc_compile_options *o, const nnc_plan *p)
{
    nnc_graph *g = nnc_graph_clone(m, test_sink);
    nnc_split_cost cost = {0};
    CHECK_OK(nnc_split_graph(o, false, &g, &cost, NULL, test_sink));
    const double sent = (double)bytes_sent(p), said = (double)cost.bytes;
    if (!(sent <= 1.01 * said && sent >= 0.8 * said))
        test_fail(__FILE__, __LINE__, "%s, %d devices: %.0f bytes are sent, by the remarks %.0f",
            c->model, o->devices, sent, said);
    nnc_graph_destroy(g);
}

/* bits: kernels sum in the same order whatever their sizes are. */
static void check_run(nnc_env *e, bool bits, const split_case *c, const nnc_model *m,
    const api_data *d, int n, const api_run *one)
{
    const nnc_compile_options o = {
        .level = 2, .streams = 1, .devices = n, .strategy = c->strategy, .split = c->split};
    const char *how = c->strategy ? c->strategy : c->split;
    NNC_LOCAL(nnc_text) why = {0};
    api_run r = {0};
    nnc_artifact *a = NULL;
    CHECK_OK(nnc_compile(e, m, &o, &a, test_sink));
    if (!a)
        return;
    CHECK_INT(devices_used(nnc_artifact_plan(a)), n);
    if (!api_check_artifact(a, &why, test_sink))
        test_fail(
            __FILE__, __LINE__, "%s, %s, %d devices: %s", c->model, how, n, nnc_text_str(&why));
    check_bytes(c, m, &o, nnc_artifact_plan(a));
    if (!api_run_artifact(e, a, d, &r, &why, test_sink))
        test_fail(
            __FILE__, __LINE__, "%s, %s, %d devices: %s", c->model, how, n, nnc_text_str(&why));
    for (int i = 0; i < r.n_out && i < one->n_out; i++) {
        const nnc_type *t = &d->want[i].type;
        const api_diff x = api_compare(t, r.out[i], &d->want[i]);
        if (x.wrong || !(x.nmse < 1e-11))
            test_fail(__FILE__, __LINE__, "%s, %s, %d devices: output %d differs, nmse %g",
                c->model, how, n, i, x.nmse);
        if (bits && c->same_bits && !api_same(t, r.out[i], one->out[i]))
            test_fail(__FILE__, __LINE__, "%s, %s, %d devices: output %d has other bits", c->model,
                how, n, i);
    }
    nnc_artifact_destroy(r.a == a ? NULL : a);
    api_run_free(&r);
}

/* Generated inputs, as nnc run has them: indices are in range. */
static bool make_inputs(nnc_env *e, const split_case *c, const nnc_model *m, api_data *d)
{
    const nnc_compile_options o = {.level = 0, .streams = 1, .devices = 1};
    const nnc_compare_options with = {.arg = c->arg, .n_arg = n_args(c)};
    nnc_artifact *a = NULL;
    if (!api_inputs(d, m, 7, false) || nnc_compile(e, m, &o, &a, test_sink))
        return false;
    for (int i = 0; i < d->n_in; i++) {
        nnc_free(d->in[i]);
        d->in[i] = NULL;
    }
    const bool ok = nnc_artifact_make_inputs(a, &with, 7, d->in, test_sink) == NNC_OK;
    nnc_artifact_destroy(a);
    return ok;
}

static void check_models(bool bits)
{
    nnc_env *e = NULL;
    const nnc_env_options with = {
        .target = bits ? "tests/cli/machine.json" : NULL, .threads = 1, .no_llvm = bits};
    CHECK_OK(nnc_env_create(&with, &e, test_sink));
    for (size_t i = 0; e && i < NNC_COUNT(cases); i++) {
        if (bits && api_sanitized && i > 1) /* the interpreter takes minutes */
            break;
        const nnc_compile_options o = {.level = 2, .streams = 1, .devices = 1};
        NNC_LOCAL(nnc_text) why = {0};
        nnc_model *m = bits && !cases[i].same_bits ? NULL : open_case(&cases[i]);
        api_data d;
        api_run one = {0};
        if (!m)
            continue;
        CHECK(make_inputs(e, &cases[i], m, &d));
        CHECK_OK(api_truth(&d, m, test_sink));
        CHECK(api_compile_and_run(e, m, &o, &d, &one, &why, test_sink));
        for (int n = 2; n <= 4; n += 2)
            check_run(e, bits, &cases[i], m, &d, n, &one);
        api_run_free(&one);
        api_data_free(&d);
        nnc_model_close(m);
    }
    nnc_env_destroy(e);
}

TEST(split_models)
{
    check_models(false);
}

/* Interpreted kernels have one order of sums where both plans have the same layouts. So it is on the described machine, for which they are
 * planned. */
TEST(split_models_bits)
{
    check_models(true);
}

enum { MOST_NODES = 512 };

typedef struct split_graph {
    nnc_env *e;
    uint64_t seed;
    int *ran; /* outputs that were compared */
} split_graph;

/* Ways to split over n devices that g's ops can take, at random. */
static void draw_split(const nnc_graph *g, int n, uint64_t seed, uint8_t by[MOST_NODES])
{
    static const nnc_split_by any[] = {
        NNC_SPLIT_follow, NNC_SPLIT_batch, NNC_SPLIT_space, NNC_SPLIT_features, NNC_SPLIT_columns};
    const nnc_split_options with = {.n_device = n, .by = by};
    nnc_sink *quiet = nnc_sink_create();
    for (uint32_t i = 0; i < g->n_node && i < MOST_NODES; i++) {
        nnc_graph *many = NULL;
        by[i] = (uint8_t)any[nnc_rng_u32(nnc_rng_key("by", seed), i) % NNC_COUNT(any)];
        nnc_sink_clear(quiet);
        if (nnc_split(g, &with, &many, NULL, NULL, quiet))
            by[i] = NNC_SPLIT_follow;
        nnc_graph_destroy(many);
    }
    nnc_sink_destroy(quiet);
}

static void check_split(const nnc_graph *g, const void *ctx)
{
    const split_graph *s = ctx;
    const int n = 2 + (int)(s->seed % 3);
    uint8_t by[MOST_NODES] = {0};
    const nnc_split_options with = {.n_device = n, .by = by};
    const nnc_compile_options c = {
        .level = (int)(s->seed % 3), .streams = 1 + (int)(s->seed % 2), .devices = n};
    NNC_LOCAL(nnc_text) why = {0};
    nnc_graph *many = NULL;
    api_data d;
    api_run r = {0};
    draw_split(g, n, s->seed, by);
    CHECK_OK(nnc_split(g, &with, &many, NULL, NULL, test_sink));
    CHECK(api_inputs(&d, g, s->seed, false));
    CHECK_OK(api_truth(&d, g, test_sink));
    if (!many || !api_compile_and_run(s->e, many, &c, &d, &r, &why, test_sink))
        test_fail(
            __FILE__, __LINE__, "seed %llu: %s", (unsigned long long)s->seed, nnc_text_str(&why));
    for (int i = 0; i < r.n_out; i++) {
        const api_diff x = api_compare(&d.want[i].type, r.out[i], &d.want[i]);
        if (x.wrong || (!(x.nmse < 1e-9) &&
                           !api_is_conditioned(g, &d, (nnc_rounding){0}, (uint32_t)i, r.out[i])))
            test_fail(__FILE__, __LINE__, "seed %llu, output %d: nmse %g, %lld wrong",
                (unsigned long long)s->seed, i, x.nmse, (long long)x.wrong);
        ++*s->ran;
    }
    api_run_free(&r);
    api_data_free(&d);
    nnc_graph_destroy(many);
}

/* Generated graphs, split at random, on devices. */
TEST(split_generated_runs)
{
    nnc_env *e = NULL;
    const int graphs = test_draws(api_sanitized ? 20 : 60);
    int ran = 0;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    for (uint64_t seed = 1; e && seed <= (uint64_t)graphs; seed++) {
        const gen_options o = {.seed = 1000 * test_seed + seed, .nodes = 12, .max_elements = 2048};
        gen_check(gen_graph(&o, test_sink), check_split, &(split_graph){e, seed, &ran});
    }
    CHECK_USUAL(ran > graphs / 2);
    nnc_env_destroy(e);
}

TEST(split_refused)
{
    static const struct {
        const char *strategy, *split;
        int devices;
        const char *why;
    } bad[] = {{"tensors", NULL, 2, "unknown strategy `tensors`; did you mean tensor"},
        {"tensor", NULL, 1, "it needs --devices=N"},
        {"spatial", NULL, 2, "has no convolution or pooling to split"},
        {NULL, "fc=collumns", 2, "HOW is one of columns, rows, channels"},
        {NULL, "fc=height", 2, "`fc=height`: no op of these layers can be split so"},
        {NULL, "fd=columns", 2, "--split: no layer is named `fd`"},
        {NULL, "fc=columns,fc=rows", 2, "is split twice"},
        {NULL, "fc=batch", 6, "dimension 0 of f32[5,48] has only 5"}};
    nnc_env *e = NULL;
    nnc_model *m = open_case(&cases[0]);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    for (size_t i = 0; m && i < NNC_COUNT(bad); i++) {
        const nnc_compile_options o = {.level = 2,
            .streams = 1,
            .devices = bad[i].devices,
            .strategy = bad[i].strategy,
            .split = bad[i].split};
        nnc_artifact *a = NULL;
        CHECK_INT(nnc_compile(e, m, &o, &a, test_sink), NNC_E_USAGE);
        CHECK_DIAG(bad[i].why);
    }
    nnc_model_close(m);
    nnc_env_destroy(e);
}

/* ---- training ---------------------------------------------------------------------------------- */

enum { STEPS = 3 };

/* The first output, the loss, of some steps in float64. */
static void losses(const nnc_graph *g, double *loss)
{
    nnc_rval *out = nnc_calloc((size_t)STEPS * g->n_output, sizeof *out);
    for (int s = 0; out && s < STEPS; s++) {
        const void *in[16] = {0};
        int n = 0;
        for (uint32_t i = 0; i < g->n_node && n < 16; i++)
            if (g->node[i].op == OP_input)
                in[n++] = steps_input(g, &g->node[i], s, true);
        CHECK_OK(nnc_eval_step(g, in, 1, s ? out + (size_t)(s - 1) * g->n_output : NULL,
            out + (size_t)s * g->n_output, test_sink));
        loss[s] = out[(size_t)s * g->n_output].f ? out[(size_t)s * g->n_output].f[0] : NAN;
        while (n > 0)
            free((void *)(uintptr_t)in[--n]);
    }
    for (size_t i = 0; out && i < (size_t)STEPS * g->n_output; i++)
        nnc_rval_free(&out[i]);
    nnc_free(out);
}

static void check_steps(
    const nnc_graph *m, const nnc_training *t, const nnc_compile_options *o, const char *what)
{
    nnc_training with = *t;
    nnc_graph *one = NULL, *many = NULL;
    double a[STEPS] = {0}, b[STEPS] = {0};
    nnc_split_training(&with, o);
    CHECK_OK(nnc_train_graph(m, t, &one, test_sink));
    CHECK_OK(nnc_train_graph(m, &with, &many, test_sink));
    int away = 0;
    for (uint32_t i = 0; many && i < many->n_node; i++)
        away += many->node[i].device > 0;
    CHECK(away > 10);
    if (one && many) {
        losses(one, a);
        losses(many, b);
    }
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(a[s] - b[s]) <=
                1e-7 *
                    fmax(1, fabs(a[s])))) /* adam scales up gradients that are 0 but for rounding */
            test_fail(__FILE__, __LINE__, "%s: loss of step %d is %.12g, of one device %.12g", what,
                s, b[s], a[s]);
    CHECK(!one || a[0] != a[STEPS - 1]);
    nnc_graph_destroy(one);
    nnc_graph_destroy(many);
}

/* Models with dropout, batch norms by the statistics of the batch, pooling, attention; optimizers, losses and what changes gradients. */
TEST(split_steps)
{
    static const char *const strategies[] = {"tensor", "channel", "spatial"};
    for (int k = 0; k < STEPS_MODELS; k++)
        for (int i = 0; i < 9; i++)
            for (int w = 0; w < 3; w++) {
                const char *json = steps_models[k].json;
                const nnc_compile_options o = {.devices = 2 + i % 3, .strategy = strategies[w]};
                const nnc_training t = steps_training(i);
                char what[80];
                if (w != 1 && (w == 2) != (k == 1)) /* what the strategy has nothing for */
                    continue;
                nnc_model *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
                CHECK(m != NULL);
                snprintf(what, sizeof what, "%s, %s, training %d, %d devices", steps_models[k].name,
                    strategies[w], i, o.devices);
                if (m)
                    check_steps(m, &t, &o, what);
                nnc_model_close(m);
            }
}

/* Patterns and open ranges mean the layers of the model, and not the loss, whose sum over the batch cannot be divided so. */
TEST(split_steps_of_all_layers)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [8, 6]}, \"layers\": [{\"op\": \"linear\", \"out\": 12}, "
        "\"tanh\", {\"op\": \"linear\", \"out\": 8}]}";
    static const char *const all[] = {"*=batch", "0-=batch", "*=columns"};
    nnc_model *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    for (size_t i = 0; m && i < NNC_COUNT(all); i++) {
        const nnc_compile_options o = {.devices = 2, .split = all[i]};
        const nnc_training t = nnc_training_defaults;
        check_steps(m, &t, &o, all[i]);
    }
    nnc_model_close(m);
}

/* The states of some steps in float64, and those of copies: equal to the first one's. */
static int equal_copies(const nnc_graph *g, const char *what)
{
    const uint32_t first = nnc_result_outputs(g);
    nnc_rval *out = nnc_calloc(g->n_output, sizeof *out);
    const void *in[16] = {0};
    int n = 0, copies = 0;
    for (uint32_t i = 0; i < g->n_node && n < 16; i++)
        if (g->node[i].op == OP_input)
            in[n++] = steps_input(g, &g->node[i], 0, true);
    CHECK_OK(nnc_eval_step(g, in, 1, NULL, out, test_sink));
    for (uint32_t i = first; i < g->n_output; i++)
        for (uint32_t k = first; k < i; k++) {
            const nnc_node *x = nnc_def(g, g->output_state[i]), *y = nnc_def(g, g->output_state[k]);
            const nnc_type *t = nnc_typeof(g, x->out);
            if (x->accumulates || x->weight->n_part ||
                strcmp(x->weight->name, y->weight->name) != 0)
                continue;
            copies++;
            CHECK(x->device != y->device);
            if (!out[i].f || !out[k].f ||
                memcmp(out[i].f, out[k].f, (size_t)nnc_type_numel(t) * sizeof *out[i].f) != 0)
                test_fail(__FILE__, __LINE__, "%s: copies of %s differ after a step", what,
                    x->weight->name);
            break;
        }
    while (n > 0)
        free((void *)(uintptr_t)in[--n]);
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_rval_free(&out[i]);
    nnc_free(out);
    return copies;
}

/* Copies between devices of what a batch does (its step, and where it accumulates) from tensors that are states. */
static int copies_of_states(const nnc_plan *p)
{
    int n = 0;
    for (int i = p->end[SEC_init]; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_copy || p->tensor[c->arg[0]].device == p->tensor[c->arg[1]].device)
            continue;
        for (int k = 0; k < p->n_update; k++)
            n += p->update[k].state == c->arg[0];
    }
    return n;
}

/* Weights that all devices read whole, as images are divided. Each device trains a copy of its own and sends sums of gradients, once a
 * step, in as many collectives as the optimizer has kernels. They were sent from device 0 for each batch, and gradients back. */
TEST(split_steps_keep_copies)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    for (int i = 0; e && i < 6; i++) {
        const char *json = steps_models[1].json;
        const nnc_compile_options split = {.devices = 2 + i % 3, .strategy = "spatial"},
                                  o = {.level = 2, .streams = 1, .devices = split.devices};
        nnc_training t = steps_training(i);
        nnc_model *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        nnc_graph *step = NULL;
        nnc_artifact *a = NULL;
        char what[40];
        snprintf(what, sizeof what, "training %d, %d devices", i, split.devices);
        nnc_split_training(&t, &split);
        CHECK(m && !nnc_train_graph(m, &t, &step, test_sink));
        if (step) {
            int sums = 0;
            for (uint32_t k = 0; k < step->n_node; k++) {
                const nnc_node *x = &step->node[k];
                sums +=
                    x->op == OP_allreduce && x->origin && !strcmp(x->origin, NNC_TRAIN_OPTIMIZER);
            }
            CHECK_INT(sums, 1);
            /* of c, n's two and d's two, and their moments */
            CHECK(equal_copies(step, what) >= 5 * (split.devices - 1));
            CHECK_OK(nnc_compile(e, step, &o, &a, test_sink));
            if (a)
                CHECK_INT(copies_of_states(nnc_artifact_plan(a)), 0);
        }
        nnc_artifact_destroy(a);
        nnc_graph_destroy(step);
        nnc_model_close(m);
    }
    nnc_env_destroy(e);
}

/* Steps on devices, against the float64 reference of the split step. */
TEST(split_steps_run)
{
    static const struct {
        int model, training;
        const char *strategy;
    } runs[] = {{0, 1, "tensor"}, {1, 4, "spatial"}, {1, 2, "channel"}, {2, 0, "tensor"}};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    for (size_t i = 0; e && i < NNC_COUNT(runs); i++) {
        const char *json = steps_models[runs[i].model].json;
        const nnc_compile_options split = {.devices = 2, .strategy = runs[i].strategy},
                                  o = {.level = 2, .streams = 1, .devices = 2};
        nnc_training t = steps_training(runs[i].training);
        nnc_model *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        nnc_graph *step = NULL;
        nnc_split_training(&t, &split);
        CHECK(m && !nnc_train_graph(m, &t, &step, test_sink));
        if (step)
            CHECK_OK(steps_take(e, step, &o, t.accumulate, runs[i].strategy));
        nnc_graph_destroy(step);
        nnc_model_close(m);
    }
    nnc_env_destroy(e);
}

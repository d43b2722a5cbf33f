/* tests/cuda_fake/steps.c -- training steps on the fake GPU, against the float64 reference of the same graph. Covers losses,
 * optimizers, accumulation and 16 bits with loss scaling, in orders of streams that differ. */
#include "api/steps.h"
#include "session/session.h"
#include "train/train.h"
#include "fake.h"
#include "frontend/frontend.h"
#include "help.h"
#include "test.h"

typedef struct way {
    nnc_precision precision;
    int level, streams;
    const char *target;
} way;
static const way ways[] = {
    {NNC_PRECISION_f32, 2, 1, "cuda:sm_90"},
    {NNC_PRECISION_f32, 0, 1, "cuda:sm_75"},
    {NNC_PRECISION_f32, 2, 3, "cuda:sm_80"},
    {NNC_PRECISION_tf32, 2, 2, "cuda:sm_90"},
    {NNC_PRECISION_f16, 2, 1, "cuda:sm_75"},
    {NNC_PRECISION_bf16, 2, 2, "cuda:sm_90"},
};

/* Steps of a model with training i; the status is that of nnc. */
static nnc_status take_model(const char *name, const char *json, int i, const way *w)
{
    const nnc_training t = steps_training(i);
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink), *step = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    char what[128];
    o.level = w->level;
    o.precision = w->level ? w->precision : NNC_PRECISION_default;
    o.streams = w->streams;
    snprintf(what, sizeof what, "%s, training %d, %s, %s, %d streams", name, i,
        nnc_precision_name(w->precision), w->target, w->streams);
    nnc_status st = g ? nnc_train_graph(g, &t, &step, test_sink) : NNC_E_MODEL;
    if (!st)
        st = nnc_env_create(
            &(nnc_env_options){.target = w->target, .no_cache = true}, &e, test_sink);
    if (!st)
        st = steps_take(e, step, &o, t.accumulate, what);
    nnc_env_destroy(e);
    nnc_graph_destroy(step);
    nnc_graph_destroy(g);
    return st;
}

static nnc_status take(int m, int i, const way *w)
{
    return take_model(steps_models[m].name, steps_models[m].json, i, w);
}

TEST(training_steps_on_a_gpu)
{
    if (no_compiler())
        return;
    for (size_t w = 0; w < NNC_COUNT(ways); w++)
        for (int i = 0; i < 9; i++) {
            char why[512];
            const bool narrow = ways[w].precision >= NNC_PRECISION_f16;
            if (!test_takes(w + (size_t)i, 4))
                continue;
            if (narrow && steps_training(i).optimizer != NNC_OPT_sgd)
                continue; /* adam scales the rounding errors of gradients near 0 up */
            fake_begin((uint64_t)(w + 9 * (size_t)i));
            CHECK_OK(take((i / 3 + i + (int)w) % STEPS_MODELS, i, &ways[w]));
            /* of four steps all but the first replay what computes gradients, most also the update */
            CHECK(fake_count.replays >= (steps_training(i).accumulate ? 11 : 3));
            if (fake_end(why))
                test_fail(__FILE__, __LINE__, "way %zu, training %d: %s", w, i, why);
        }
}

/* Results of half a MiB, as in networks of a real size. Kernels compute again what they read (duplicate), residual sums too. Statistics
 * are computed in one pass, and several weights are cast at once. */
static const char large_results[] =
    "{\"inputs\": {\"x\": [4, 8, 32, 32]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 32, \"kernel\": 1, \"bias\": 0}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, {\"op\": \"relu\", \"name\": \"r\"}, "
    "{\"op\": \"conv\", \"name\": \"d\", \"channels\": 32, \"kernel\": 3, \"pad\": 1, \"groups\": "
    "4, \"bias\": 0}, "
    "{\"op\": \"batchnorm\", \"name\": \"o\"}, {\"op\": \"add\", \"in\": [\"o\", \"r\"]}, {\"op\": "
    "\"relu\", \"name\": \"s\"}, "
    "{\"op\": \"conv\", \"name\": \"e\", \"channels\": 32, \"kernel\": 1, \"bias\": 0}, "
    "{\"op\": \"batchnorm\", \"name\": \"p\"}, {\"op\": \"add\", \"in\": [\"p\", \"s\"]}, "
    "\"silu\", "
    "\"global_avgpool\", \"flatten\", {\"op\": \"linear\", \"name\": \"f\", \"out\": 5}]}";

/* Do these passes change the step? */
static void check_passes(const way *w, int i, int n_pass, const char *const *pass)
{
    const nnc_training t = steps_training(i);
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_graph *step = NULL;
    nnc_graph *g = nnc_model_parse("m.json", large_results, strlen(large_results), NULL, test_sink);
    o.precision = w->precision;
    CHECK(g != NULL);
    CHECK_OK(nnc_train_graph(g, &t, &step, test_sink));
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){.target = w->target, .no_cache = true}, &e, test_sink));
    CHECK_OK(nnc_compile(e, step, &o, &a, test_sink));
    for (int j = 0; j < n_pass; j++) {
        int n = 0;
        for (size_t k = 0; a && k < a->remarks.n; k++)
            n += a->remarks.at[k].applied && !strcmp(a->remarks.at[k].pass, pass[j]);
        if (!n)
            test_fail(__FILE__, __LINE__, "%s changes nothing in %s", pass[j],
                nnc_precision_name(w->precision));
    }
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(step);
    nnc_graph_destroy(g);
}

TEST(steps_of_large_results)
{
    static const way some[] = {
        {NNC_PRECISION_tf32, 2, 3, "cuda:sm_80"}, {NNC_PRECISION_bf16, 2, 2, "cuda:sm_90"}};
    static const char *const pass[] = {"one_pass", "duplicate", "join_casts"};
    if (no_compiler())
        return;
    for (size_t w = 0; w < NNC_COUNT(some); w++) {
        char why[512];
        if (!test_takes(w, 2))
            continue;
        fake_begin((uint64_t)w);
        check_passes(&some[w], 3, w ? 3 : 2, pass);
        CHECK_OK(take_model("large results", large_results, 3, &some[w]));
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "way %zu: %s", w, why);
    }
}

/* Gradients, and what follows them, are captured apart: each batch replays one of both, or both. */
TEST(whole_steps_are_replayed)
{
    static const struct {
        int training, replays;
    } some[] = {{4, 3 + 3}, {1, 11 + 7 + 3}};
    char why[512];
    if (no_compiler())
        return;
    for (size_t i = 0; i < NNC_COUNT(some); i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            fake_begin(seed);
            CHECK_OK(take(1, some[i].training, &(way){NNC_PRECISION_f32, 2, 3, "cuda:sm_90"}));
            CHECK_INT(fake_count.replays, some[i].replays);
            if (fake_end(why))
                test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, why);
        }
}

/* Each call of a training fails once, each seventeenth of those that take steps. The training ends with it, or goes on with right numbers
 * where it can (a capture), and gives everything back. */
TEST(any_call_of_a_step_may_fail)
{
    const way w = {NNC_PRECISION_bf16, 2, 2, "cuda:sm_90"};
    int at = 1, failed = 0, went = 0;
    if (no_compiler())
        return;
    for (bool all = false; !all && at < 4000; at += at < 40 ? 1 : 17) {
        char why[512];
        fake_begin(1);
        fake_fail_with = 46;
        fake_fail_at = at;
        fake_calls = 0;
        const nnc_status s = take(0, 3, &w);
        all = fake_calls < at;
        failed += s != NNC_OK;
        went += s == NNC_OK;
        CHECK(s == NNC_OK || s == NNC_E_DEVICE);
        fake_fail_at = fake_fail_with = 0;
        const int wrong = fake_end(why);
        if (s == NNC_OK ? wrong : fake_left)
            test_fail(__FILE__, __LINE__, "call %d fails: %s", at, why);
        nnc_sink_clear(test_sink);
    }
    CHECK(failed > 40 && went > 0);
}

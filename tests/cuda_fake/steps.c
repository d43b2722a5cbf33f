/* tests/cuda_fake/steps.c -- training steps on the fake GPU, against the float64 reference of the same graph: losses, optimizers,
 * accumulation, 16 bits with loss scaling, in orders of streams that differ. */
#include "api/steps.h"
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

/* Steps of model m with training i; the status is that of nnc. */
static nnc_status take(int m, int i, const way *w)
{
    const nnc_training t = steps_training(i);
    nnc_graph *g = nnc_model_parse(
                  "m.json", steps_models[m].json, strlen(steps_models[m].json), NULL, test_sink),
              *step = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_env *e = NULL;
    char what[128];
    o.level = w->level;
    o.precision = w->level ? w->precision : NNC_PRECISION_default;
    o.streams = w->streams;
    snprintf(what, sizeof what, "%s, training %d, %s, %s, %d streams", steps_models[m].name, i,
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

TEST(training_steps_on_a_gpu)
{
    if (no_compiler())
        return;
    for (size_t w = 0; w < NNC_COUNT(ways); w++)
        for (int i = 0; i < 9; i++) {
            char why[512];
            const bool narrow = ways[w].precision >= NNC_PRECISION_f16;
            if (narrow && steps_training(i).optimizer != NNC_OPT_sgd)
                continue; /* adam scales the rounding errors of gradients near 0 up */
            fake_begin((uint64_t)(w + 9 * (size_t)i));
            CHECK_OK(take((i / 3 + i + (int)w) % STEPS_MODELS, i, &ways[w]));
            if (fake_end(why))
                test_fail(__FILE__, __LINE__, "way %zu, training %d: %s", w, i, why);
        }
}

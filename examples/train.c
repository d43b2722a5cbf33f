/* Trains a model that tells two classes of points apart, with a loop of its own. It has steps, an evaluation, a checkpoint, and a second
 * trainer that goes on from it with the same numbers. Usage: train DIR, which gets points.json, points.safetensors and
 * weights.safetensors. */
#include <nnc/nnc.h>
#include <stdlib.h>

static const char model_json[] =
    "{\"name\": \"points\", \"args\": {\"batch\": 32}, \"inputs\": {\"x\": [\"batch\", 2]},\n"
    " \"layers\": [{\"op\": \"linear\", \"name\": \"hidden\", \"out\": 16}, \"relu\",\n"
    "            {\"op\": \"linear\", \"name\": \"out\", \"out\": 2}]}\n";

enum { BATCH = 32, STEPS = 400 };

/* Points of the square from -1 to 1: class 1 lies within a circle of half its area. The numbers follow from the step. */
static void make_batch(unsigned step, float x[BATCH][2], int64_t target[BATCH])
{
    unsigned state = step * 2654435761u + 1;
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < 2; k++) {
            state = state * 1664525u + 1013904223u;
            x[i][k] = (float)(state >> 8) / (1 << 23) - 1;
        }
        target[i] = x[i][0] * x[i][0] + x[i][1] * x[i][1] < 0.64f;
    }
}

/* Steps from..to-1. A trainer takes the batch's arrays in the order of its inputs: x, target. */
static nnc_status steps(nnc_trainer *t, unsigned from, unsigned to, nnc_sink *sink)
{
    float x[BATCH][2];
    int64_t target[BATCH];
    const void *batch[] = {x, target};
    nnc_status st = NNC_OK;
    for (unsigned i = from; !st && i < to; i++) {
        make_batch(i, x, target);
        st = nnc_trainer_step(t, batch, sink);
    }
    return st;
}

/* Share of right answers on points that are in no step. */
static nnc_status accuracy(nnc_trainer *t, double *share, nnc_sink *sink)
{
    float x[BATCH][2];
    int64_t target[BATCH];
    const void *batch[] = {x, target};
    nnc_status st = NNC_OK;
    *share = 0;
    for (unsigned i = 0; !st && i < 10; i++) {
        make_batch(STEPS + i, x, target);
        st = nnc_trainer_evaluate(t, batch, sink);
        *share += nnc_trainer_correct(t) / (10 * BATCH);
    }
    return st;
}

static nnc_status open_trainer(
    nnc_env *env, const nnc_model *model, nnc_trainer **t, nnc_sink *sink)
{
    nnc_train_options *o = nnc_train_options_create();
    nnc_status st = nnc_train_options_set(o, "optimizer", "adamw", sink);
    if (!st)
        st = nnc_train_options_set(o, "lr", "0.01", sink);
    if (!st)
        st = nnc_trainer_create(env, model, o, t, sink);
    nnc_train_options_destroy(o); /* the trainer has copied them */
    return st;
}

/* The first trainer stops half-way, after a checkpoint; the second one goes on and saves the weights. */
static nnc_status train(const char *dir, nnc_env *env, const nnc_model *model, nnc_sink *sink)
{
    nnc_trainer *first = NULL, *second = NULL;
    char checkpoint[1024], weights[1024];
    double before = 0, after = 0;
    snprintf(checkpoint, sizeof checkpoint, "%s/points.safetensors", dir);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", dir);
    nnc_status st = open_trainer(env, model, &first, sink);
    if (!st)
        st = accuracy(first, &before, sink);
    if (!st)
        st = steps(first, 0, STEPS / 2, sink);
    if (!st)
        st = nnc_trainer_write_checkpoint(first, checkpoint, sink);
    nnc_trainer_destroy(first);
    if (!st)
        st = open_trainer(env, model, &second, sink);
    if (!st)
        st = nnc_trainer_read_checkpoint(second, checkpoint, sink);
    if (!st)
        st = steps(second, STEPS / 2, STEPS, sink);
    if (!st)
        st = accuracy(second, &after, sink);
    if (!st)
        st = nnc_trainer_save(second, weights, sink);
    if (!st)
        printf("after %lld steps: loss %.4f, accuracy %.1f %% (at first %.1f %%)\n",
            (long long)nnc_trainer_steps(second), nnc_trainer_loss(second), 100 * after,
            100 * before);
    nnc_trainer_destroy(second);
    return st;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    char file[1024];
    snprintf(file, sizeof file, "%s/points.json", dir);
    FILE *f = fopen(file, "w");
    if (!f || fputs(model_json, f) < 0 || fclose(f)) {
        fprintf(stderr, "%s: cannot write\n", file);
        return nnc_exit_code(NNC_E_IO);
    }
    nnc_sink *sink = nnc_sink_create();
    nnc_env *env = NULL;
    nnc_model *model = NULL;
    nnc_status st = nnc_env_create(NULL, &env, sink);
    if (!st)
        st =
            (model = nnc_model_open(file, NULL, sink)) ? train(dir, env, model, sink) : NNC_E_MODEL;
    nnc_sink_print(sink, stderr);
    nnc_model_close(model);
    nnc_env_destroy(env);
    nnc_sink_destroy(sink);
    return nnc_exit_code(st);
}

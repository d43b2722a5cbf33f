/* cli/train.c -- nnc train. */
#include "cli/cli.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include <stdio.h>

/* A line of the report as soon as there is one. */
static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    progress_end();
    fputs(line, stdout);
    fflush(stdout);
}

/* Before the first step: warnings are read before the work, not after it. */
static void ready(void *ctx, nnc_sink *sink)
{
    (void)ctx;
    print_warnings(sink);
}

nnc_status cmd_train(const options *o, work *w, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    options with = *o;
    nnc_train_options *t = &with.train;
    with.model.trains = true;
    if (!o->model.n_shape) /* pictures may be cropped to the shapes that are given */
        NNC_TRY(
            nnc_given_rows(o->train.data.path, &a, &with.model.value, &with.model.n_value, sink));
    NNC_TRY(open_model(&with, w, sink));
    print_warnings(sink);
    NNC_TRY(nnc_train_read(w->model, t, &a, sink));
    if (!t->data.path)
        return nnc_fail0(sink, NNC_E_USAGE,
            "there is nothing to train on: give --data=PATH, or \"data\" in the model file's "
            "\"train\"");
    t->seed = o->model.has_seed ? o->model.seed : t->seed;
    t->trace = o->trace;
    t->predict = o->predict;
    t->ready = ready;
    t->report = print_line;
    t->progress = progress;
    t->ctx = (void *)o;
    t->stop = &stopped;
    t->compile = compile_options(o, w);
    with.env.ranked = true;
    NNC_TRY(share_among_ranks(
        &with, t->strategy != NNC_STRATEGY_layers || t->replicas > 1, &t->compile.devices, sink));
    NNC_TRY(open_env(&with, w, sink));
    if (t->checkpoint) /* without one there is nothing to finish the step for */
        catch_stop("finishing the step");
    const nnc_status st = nnc_train(w->env, w->model, t, o->format, &w->text, sink);
    return note_advice(o, w, MODE_step, st, sink);
}

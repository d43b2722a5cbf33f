/* cli/train.c -- nnc train. */
#include "cli/cli.h"

/* A line of the report as soon as there is one. */
static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    progress_end();
    fputs(line, stdout);
    fflush(stdout);
}

nnc_status cmd_train(const options *o, work *w, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    options with = *o;
    nnc_train_options *t = &with.train;
    with.model.trains = true;
    NNC_TRY(open_model(&with, w, sink));
    NNC_TRY(nnc_train_read(w->model, t, &a, sink));
    if (!t->data.path)
        return nnc_fail0(sink, NNC_E_USAGE,
            "there is nothing to train on: give --data=PATH, or \"data\" in the model file's "
            "\"train\"");
    t->seed = o->model.has_seed ? o->model.seed : t->seed;
    t->report = print_line;
    t->compile = compile_options(o, w);
    NNC_TRY(nnc_env_create(&o->env, &w->env, sink));
    return nnc_train(w->env, w->model, t, o->format, &w->text, sink);
}

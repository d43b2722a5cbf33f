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
    nnc_train_options t = o->train;
    if (!t.data)
        return nnc_fail0(sink, NNC_E_USAGE, "there is nothing to train on: give --data=FILE");
    t.seed = o->model.seed;
    t.report = print_line;
    NNC_TRY(open_model(o, w, sink));
    t.compile = compile_options(o, w);
    NNC_TRY(nnc_env_create(&o->env, &w->env, sink));
    return nnc_train(w->env, w->model, &t, o->format, &w->text, sink);
}

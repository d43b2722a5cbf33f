/* cli/memory.c -- nnc memory: the memory that a model needs, whether it fits, advice if not, and the largest model that fits. */
#include "cli/cli.h"
#include "fit/fit.h"
#include "report/report.h"
#include <string.h>

/* The report's last line: what would fit, or which command searches for that. */
static nnc_status put_advice(const options *o, work *w, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    if (o->format != NNC_TEXT || o->n_file > 1)
        return NNC_E_FIT;
    NNC_TRY(advise(o, w, o->mode, &t, sink));
    if (!can_advise(o))
        nnc_puts(&w->text, "To search for what fits, run nnc memory on the model file.\n");
    else if (t.n)
        nnc_printf(&w->text, "What fits, as planned: %s.\n", nnc_text_str(&t));
    else
        nnc_puts(&w->text,
            "No smaller batch, precision or way to compute results again was found that fits.\n");
    return NNC_E_FIT;
}

/* NAME=LO..HI, one or two of them. */
static nnc_status read_ranges(const options *o, nnc_fit_arg *arg, nnc_sink *sink)
{
    if (o->n_fit > 2)
        return nnc_fail0(sink, NNC_E_USAGE, "--fit: expected one or two args, found %d", o->n_fit);
    for (int i = 0; i < o->n_fit; i++) {
        NNC_TRY(nnc_fit_parse(&o->fit[i], &arg[i], sink));
        for (int k = 0; k < o->model.n_arg; k++)
            if (!strcmp(o->model.arg[k].name, arg[i].name))
                return nnc_fail0(sink, NNC_E_USAGE,
                    "--set %s=%s and --fit %s=%s both set the arg: leave one out", arg[i].name,
                    o->model.arg[k].value, arg[i].name, o->fit[i].value);
    }
    return NNC_OK;
}

nnc_status fit_memory(const options *o, work *w, bool *fits, int64_t *largest, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    options with = *o;
    nnc_fit_arg arg[2] = {{0}};
    if (!can_advise(o))
        return nnc_fail0(
            sink, NNC_E_USAGE, "--fit reads the model again for each size: name one model file");
    if (o->sharing == NNC_STRATEGY_data)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--fit with --strategy=data: each device has the whole model and samples of its own; "
            "search with one device");
    if (o->replicas > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--fit searches with one of the replicas: leave --replicas=%d out, and give "
            "--devices=N "
            "those of one",
            o->replicas);
    if (nnc_is_pipeline(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--fit does not search pipelines: leave --strategy=pipeline out, or give nnc memory a "
            "size, as in --set %s=N",
            o->fit[0].name);
    if (o->svg)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--svg draws one plan, and --fit makes many: draw the largest that fits, without "
            "--fit");
    NNC_TRY(read_ranges(o, arg, sink));
    nnc_reopen model = {reopen, &with, 1, NULL};
    nnc_fit_options f = {.arg = arg,
        .n_arg = o->n_fit,
        .model = &model,
        .place = o->model.place,
        .torch = o->allocator == ALLOCATOR_torch,
        .progress = progress,
        .progress_ctx = (void *)o};
    if (o->mode == MODE_step) {
        NNC_TRY(read_training(o, &with.train, &a, sink));
        model.training = &with.train.training;
    }
    NNC_TRY(open_env(o, w, sink));
    f.compile = compile_options(o, w);
    nnc_model *first = NULL;
    char low[2][24];
    nnc_arg least[2];
    for (int i = 0; i < o->n_fit; i++) {
        snprintf(low[i], sizeof low[i], "%lld", (long long)arg[i].lo);
        least[i] = (nnc_arg){arg[i].name, low[i]};
    }
    const nnc_reopening how = {.arg = least, .n_arg = o->n_fit, .forward = true};
    const nnc_status opened = reopen(&with, &how, &first, sink);
    for (int i = 0; i < o->n_fit && opened && opened != NNC_E_NOMEM; i++)
        nnc_note(sink, (nnc_loc){0}, "%s=%s is where --fit %s=%s begins", arg[i].name, low[i],
            arg[i].name, o->fit[i].value);
    NNC_TRY(opened);
    print_warnings(sink);
    f.placed = nnc_names_devices(first) || nnc_is_split(o->sharing) || o->compare.compile.split;
    nnc_model_close(first);
    return nnc_fit_report(w->env, &f, o->format, &w->text, fits, largest, sink);
}

nnc_status cmd_memory(const options *o, work *w, nnc_sink *sink)
{
    bool fits = false;
    int64_t largest;
    if (o->n_fit) {
        NNC_TRY(fit_memory(o, w, &fits, &largest, sink));
        return fits ? NNC_OK : NNC_E_FIT;
    }
    if (o->allocator == ALLOCATOR_torch && !o->env.hardware)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--allocator=torch-caching is replayed on described hardware: give its file, as in "
            "--hardware=models/hardware/gtx1080ti_x2.json");
    if (o->allocator == ALLOCATOR_torch && o->format != NNC_TEXT)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--allocator=torch-caching is printed as text; --fit also takes --format=json and csv");
    options with = *o;
    with.looks = true;
    NNC_TRY(open_and_compile(&with, w, sink));
    NNC_TRY(nnc_report_memory(w->env, w->artifact, o->format, &w->text, &fits));
    if (o->allocator == ALLOCATOR_torch && o->format == NNC_TEXT)
        NNC_TRY(nnc_report_torch(w->env, w->artifact, o->format, &w->text, sink));
    if (o->svg)
        NNC_TRY(nnc_draw_memory(w->env, w->artifact, o->svg, sink));
    return fits ? NNC_OK : put_advice(o, w, sink);
}

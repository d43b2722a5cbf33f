/* cli/common.c -- shared by the commands: open the machine and the model, compile, write text. */
#include "cli/cli.h"
#include "fit/fit.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include <string.h>
#include <sys/stat.h>

static bool wants_print(const options *o, const char *pass)
{
    for (int i = 0; i < o->n_print_after; i++)
        if (!strcmp(o->print_after[i], "all") || !strcmp(o->print_after[i], pass))
            return true;
    return false;
}

static void after_pass(void *ctx, const char *pass, const nnc_model *g, int changed, int64_t ns)
{
    const options *o = ctx;
    if (o->time_passes)
        fprintf(stderr, "%-20s %9.3f ms  %d change%s\n", pass, (double)ns * 1e-6, changed,
            changed == 1 ? "" : "s");
    if (!wants_print(o, pass))
        return;
    NNC_LOCAL(nnc_text) t = {0};
    nnc_print_model(g, &t);
    fprintf(stderr, "# after %s\n%s", pass, nnc_text_str(&t));
}

nnc_status share_among_ranks(const options *o, bool divided, int *devices, nnc_sink *sink)
{
    int world = 1;
    if (!divided || o->has_devices)
        return NNC_OK;
    NNC_TRY(nnc_env_options_world(&o->env, &world, sink));
    *devices = world > *devices ? world : *devices;
    return NNC_OK;
}

nnc_compile_options compile_options(const options *o, const work *w)
{
    nnc_compile_options c = w->artifact ? *nnc_artifact_options(w->artifact) : o->compare.compile;
    c.jobs = o->compare.compile.jobs;
    if (o->mode == MODE_step && !w->artifact) /* the step has been made of the split model */
        c.strategy = c.split = NULL;
    if (o->time_passes || o->n_print_after)
        c.after_pass = after_pass;
    c.ctx = (void *)o;
    return c;
}

bool other_shapes(const options *o)
{
    return o->model.n_arg || o->model.n_shape;
}

/* The artifact's model for the args and shapes that are given: planned, or where there is no machine only read. */
static nnc_status open_other(const options *o, work *w, nnc_sink *sink)
{
    nnc_artifact *a = w->artifact;
    const nnc_open_options shapes = {.arg = o->model.arg,
        .n_arg = o->model.n_arg,
        .shape = o->model.shape,
        .n_shape = o->model.n_shape,
        .trains = o->model.trains,
        .has_seed = o->model.has_seed,
        .coverage = o->model.coverage};
    if (o->no_machine) {
        w->model = nnc_artifact_model(a, &shapes, sink);
        return w->model ? NNC_OK : nnc_sink_cause(sink, NNC_E_MODEL);
    }
    progress((void *)o, "planning", NULL);
    nnc_status st = nnc_artifact_for(w->env, a, &shapes, &w->artifact, sink);
    nnc_artifact_destroy(a);
    print_warnings(sink);
    return st;
}

/* Without --threads an artifact that does not load here gets as many threads as it was compiled for. */
static nnc_status take_threads(const options *o, work *w, nnc_sink *sink)
{
    nnc_artifact *a = NULL;
    nnc_sink *quiet = nnc_sink_create();
    NNC_NEED(quiet, sink);
    options with = *o;
    if (nnc_artifact_load(w->env, o->file[0], &a, quiet) == NNC_E_DEVICE &&
        nnc_env_world(w->env) == 1 && !nnc_artifact_load(NULL, o->file[0], &a, quiet))
        with.env.threads = nnc_artifact_threads(a);
    nnc_artifact_destroy(a);
    nnc_sink_destroy(quiet);
    if (!with.env.threads)
        return NNC_OK;
    nnc_env_destroy(w->env);
    w->env = NULL;
    return nnc_env_create(&with.env, &w->env, sink);
}

static nnc_status open_artifact(const options *o, work *w, nnc_sink *sink)
{
    if (o->mode == MODE_step)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already: compile its model with --mode=step");
    if (o->compile_flag)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already: %s has no effect on it; compile the model again with it",
            o->compile_flag);
    if (!o->no_machine)
        NNC_TRY(open_env(o, w, sink));
    if (!o->no_machine && !o->env.threads)
        NNC_TRY(take_threads(o, w, sink));
    NNC_TRY(nnc_artifact_load(w->env, o->file[0], &w->artifact, sink));
    if (o->model.weights)
        NNC_TRY(nnc_artifact_use_weights(w->artifact, o->model.weights, sink));
    return other_shapes(o) ? open_other(o, w, sink) : NNC_OK;
}

nnc_status check_reports(const options *o, nnc_sink *sink)
{
    const char *const file[] = {
        o->json, o->html, o->svg, o->trace, o->sweep.file, o->reduce, o->out, o->partition.trace};
    const bool folder = o->dump_dir || o->partition.svg; /* made later, it may have the last two */
    for (size_t i = 0; i < NNC_COUNT(file) - (folder ? 2 : 0); i++)
        if (file[i] && strcmp(file[i], "-") != 0)
            NNC_TRY(nnc_file_can_write(file[i], sink));
    return NNC_OK;
}

nnc_status open_env(const options *o, work *w, nnc_sink *sink)
{
    if (w->env)
        return NNC_OK;
    NNC_TRY(nnc_env_create(&o->env, &w->env, sink));
    return nnc_env_rank(w->env) ? NNC_OK : check_reports(o, sink);
}

nnc_status open_either(const options *o, work *w, nnc_sink *sink)
{
    return o->n_file < 2 && nnc_is_artifact(o->file[0]) ? open_artifact(o, w, sink)
                                                        : open_model(o, w, sink);
}

static nnc_status open_forward(const options *o, work *w, nnc_sink *sink)
{
    if (nnc_is_artifact(o->file[0])) {
        options any = *o;
        any.no_machine = true;
        any.mode = MODE_forward;
        NNC_TRY(open_artifact(&any, w, sink));
        return w->model ? NNC_OK : open_other(&any, w, sink);
    }
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_open_options with = o->model;
    if (!with.value)
        NNC_TRY(nnc_given_inputs(&o->compare, &a, &with.value, &with.n_value, sink));
    w->model = nnc_model_open(o->file[0], &with, sink);
    if (w->model && w->model->head && o->verbose) {
        print_warnings(sink);
        fputs(w->model->head, stderr);
    }
    return w->model ? NNC_OK : nnc_sink_cause(sink, NNC_E_MODEL);
}

static int replicas_of(const options *o)
{
    return o->sharing == NNC_STRATEGY_data ? o->compare.compile.devices
           : o->replicas > 1               ? o->replicas
                                           : 1;
}

/* accumulate: batches of a step; 0: as the flags and the file say. *had: what they say. */
static nnc_status open_step(const options *o, int accumulate, int *had, work *w, nnc_sink *sink)
{
    options with = *o;
    NNC_LOCAL(nnc_arena) a = {0};
    with.model.trains = true;
    NNC_TRY(open_forward(&with, w, sink));
    nnc_model *forward = w->model;
    nnc_status st = nnc_train_read(forward, &with.train, &a, sink);
    if (o->compare.compile.precision == NNC_PRECISION_f16 && with.train.training.loss_scale == 0)
        with.train.training.loss_scale =
            1; /* the graph that nnc train has; its scale might skip the step */
    *had = with.train.training.accumulate > 1 ? with.train.training.accumulate : 1;
    if (accumulate)
        with.train.training.accumulate = accumulate;
    with.train.training.shards = o->zero ? replicas_of(o) : 0;
    if (o->replicas > 1)
        with.compare.compile.devices /= o->replicas;
    nnc_split_training(&with.train.training, &with.compare.compile);
    if (!st)
        st = nnc_train_graph(forward, &with.train.training, &w->model, sink);
    if (w->model != forward)
        nnc_model_close(forward);
    return st;
}

nnc_status open_one(const options *o, work *w, nnc_sink *sink)
{
    int had;
    return o->mode == MODE_step ? open_step(o, 0, &had, w, sink) : open_forward(o, w, sink);
}

nnc_status open_model(const options *o, work *w, nnc_sink *sink)
{
    return o->n_file > 1 ? open_several(o, w, sink) : open_one(o, w, sink);
}

/* The args of `how` in place of those that were given. */
static nnc_status other_args(
    const options *o, const nnc_reopening *how, nnc_arg **out, int *n, nnc_sink *sink)
{
    nnc_arg *arg = nnc_calloc((size_t)o->model.n_arg + (size_t)how->n_arg + 1, sizeof *arg);
    NNC_NEED(arg, sink);
    *out = arg;
    *n = 0;
    for (int i = 0; i < o->model.n_arg; i++) {
        bool other = false;
        for (int k = 0; k < how->n_arg; k++)
            other = other || !strcmp(o->model.arg[i].name, how->arg[k].name);
        if (!other)
            arg[(*n)++] = o->model.arg[i];
    }
    for (int k = 0; k < how->n_arg; k++)
        arg[(*n)++] = how->arg[k];
    return NNC_OK;
}

nnc_status reopen(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink)
{
    const options *o = ctx;
    options with = *o;
    work w = {0};
    int had;
    nnc_arg *arg = NULL;
    NNC_TRY(other_args(o, how, &arg, &with.model.n_arg, sink));
    with.model.arg = arg;
    with.model.place = how->place ? how->place : o->model.place;
    with.model.trains = o->mode == MODE_step;
    with.verbose = false;
    const nnc_status st = o->n_file > 1 ? open_several(&with, &w, sink)
                          : o->mode == MODE_step && !how->forward
                              ? open_step(&with, how->accumulate, &had, &w, sink)
                              : open_forward(&with, &w, sink);
    nnc_free(arg);
    close_several(&w.several);
    nnc_env_destroy(w.env);
    if (st)
        nnc_model_close(w.model);
    else
        *out = w.model;
    return st;
}

nnc_status read_training(const options *o, nnc_train_options *t, nnc_arena *a, nnc_sink *sink)
{
    options with = *o;
    work w = {0};
    with.model.trains = true;
    nnc_status st = open_forward(&with, &w, sink);
    if (!st)
        st = nnc_train_read(w.model, t, a, sink);
    nnc_model_close(w.model);
    return st;
}

bool can_advise(const options *o)
{
    struct stat there;
    return o->n_file < 2 && strcmp(o->file[0], "-") != 0 && stat(o->file[0], &there) == 0 &&
           S_ISREG(there.st_mode) && !nnc_is_artifact(o->file[0]);
}

/* Opens the model again for advice. The warnings about it have been printed. */
static nnc_status open_quietly(
    const options *o, nnc_reopen *other, options *train, nnc_arena *a, work *again, nnc_sink *sink)
{
    nnc_sink *quiet = nnc_sink_create();
    NNC_NEED(quiet, sink);
    nnc_status st = NNC_OK;
    if (o->mode == MODE_step) {
        st = read_training(o, &train->train, a, quiet);
        other->training = &train->train.training;
        if (!st)
            st = open_step(o, 0, &other->accumulate, again, quiet);
    } else {
        st = open_forward(o, again, quiet);
    }
    nnc_sink_destroy(quiet);
    return st == NNC_E_NOMEM ? nnc_nomem(sink) : st;
}

nnc_status advise(const options *o, const work *w, mode as, nnc_text *t, nnc_sink *sink)
{
    options with = *o;
    work again = {0};
    nnc_compile_options c = o->compare.compile;
    nnc_reopen other = {reopen, &with, 1, NULL};
    NNC_LOCAL(nnc_arena) a = {0};
    options train = *o;
    if (as == MODE_step)
        c.strategy = c.split = NULL;
    if (!w->env || !can_advise(o))
        return NNC_OK;
    with.mode = as;
    with.verbose = false;
    nnc_status st = open_quietly(&with, &other, &train, &a, &again, sink);
    if (!st) {
        progress((void *)o, "looking for what fits", NULL);
        st = nnc_advise_memory(w->env, again.model, &c, &other, w->artifact, t) ? nnc_nomem(sink)
                                                                                : NNC_OK;
    }
    nnc_model_close(again.model); /* also where the model was opened, and its step was not made */
    return st == NNC_E_NOMEM ? st : NNC_OK;
}

nnc_status note_advice(const options *o, const work *w, mode as, nnc_status st, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    if (st != NNC_E_FIT)
        return st;
    NNC_TRY(advise(o, w, as, &t, sink));
    if (t.n)
        nnc_note(sink, (nnc_loc){0}, "what fits, as planned: %s", nnc_text_str(&t));
    return st;
}

/* The step becomes that of all replicas: a batch for each. */
static nnc_status replicate_step(const options *o, work *w, nnc_sink *sink)
{
    nnc_model *all;
    if (nnc_is_pipeline(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--strategy=pipeline is of the model itself: pipelines of training steps are run by "
            "nnc train");
    const int devices = o->compare.compile.devices / replicas_of(o);
    const nnc_distribution d = {.replicas = replicas_of(o),
        .micro = 1,
        .devices = devices,
        .batches = 1,
        .stages = devices,
        .zero = o->zero};
    NNC_TRY(nnc_distribute(w->model, &d, &all, sink));
    nnc_model_close(w->model);
    w->model = all;
    return NNC_OK;
}

/* The model becomes that of all devices, for strategies that divide its batch. */
static nnc_status share_model(const options *o, nnc_compile_options *c, work *w, nnc_sink *sink)
{
    nnc_model *all;
    const int replicas = replicas_of(o);
    if (o->sharing == NNC_STRATEGY_layers || (nnc_is_split(o->sharing) && replicas < 2))
        return NNC_OK;
    if (o->n_file > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--strategy=%s divides one model; several are on a device each",
            nnc_strategy_names[o->sharing]);
    if (c->devices < 2)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--strategy=%s needs --devices=N of 2 or more, or ranks: one device for each is the "
            "default then",
            nnc_strategy_names[o->sharing]);
    c->strategy = NULL; /* the graph has it */
    if (o->mode == MODE_step)
        return replicate_step(o, w, sink);
    const int micro = !nnc_is_pipeline(o->sharing) ? 1
                      : o->parts                   ? o->parts
                                                   : 2 * c->devices / replicas;
    NNC_TRY(nnc_shared_model(w->env, w->model, c, o->sharing, replicas, micro, &all, sink));
    nnc_model_close(w->model);
    w->model = all;
    return NNC_OK;
}

nnc_status check_split_only(const options *o, const char *name, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) splits = {0};
    nnc_put_strategies(&splits, nnc_is_split, " and ");
    if (o->replicas > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--replicas: nnc run and nnc train execute replicas, with the results of one device; "
            "leave it out of nnc %s",
            name);
    return !nnc_is_pipeline(o->sharing) && o->sharing != NNC_STRATEGY_data
               ? NNC_OK
               : nnc_fail0(sink, NNC_E_USAGE,
                     "--strategy=%s: nnc %s takes %s, and layers. nnc run and nnc train execute "
                     "pipelines and replicas, with the results of one device",
                     nnc_strategy_names[o->sharing], name, nnc_text_str(&splits));
}

/* When --devices is known: of nnc run over ranks it may be their number. */
static nnc_status check_replicas(const options *o, nnc_sink *sink)
{
    const int devices = o->compare.compile.devices;
    if (o->replicas > 1 && (devices % o->replicas || devices == o->replicas))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--replicas=%d of --devices=%d: each needs an equal part of the devices, of 2 or more",
            o->replicas, devices);
    return NNC_OK;
}

nnc_status open_whole(const options *o, work *w, nnc_compile_options *c, nnc_sink *sink)
{
    NNC_TRY(check_replicas(o, sink));
    NNC_TRY(open_either(o, w, sink));
    if (w->artifact && o->sharing != NNC_STRATEGY_layers)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already: --strategy has no effect on it");
    if (w->artifact)
        return NNC_OK;
    NNC_TRY(open_env(o, w, sink));
    progress((void *)o, "compiling", NULL);
    *c = compile_options(o, w);
    return share_model(o, c, w, sink);
}

nnc_status open_and_compile(const options *o, work *w, nnc_sink *sink)
{
    nnc_compile_options c;
    NNC_TRY(open_whole(o, w, &c, sink));
    if (w->artifact)
        return NNC_OK;
    nnc_status st =
        (o->looks ? nnc_compile_plan : nnc_compile)(w->env, w->model, &c, &w->artifact, sink);
    print_warnings(sink);
    return note_advice(o, w, o->mode, st, sink);
}

void close_work(work *w)
{
    nnc_text_deinit(&w->text);
    nnc_text_deinit(&w->json);
    nnc_session_destroy(w->session);
    nnc_model_close(w->model);
    close_several(&w->several);
    nnc_artifact_destroy(w->artifact);
    nnc_env_destroy(w->env);
}

void put_word(nnc_text *t, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=,+@%-";
    const bool quoted = word[strspn(word, plain)] || !*word;
    nnc_puts(t, quoted ? "'" : "");
    for (const char *p = word; *p; p++)
        *p == '\'' ? nnc_puts(t, "'\\''") : nnc_putc(t, *p);
    nnc_puts(t, quoted ? "'" : "");
}

nnc_status deliver(const options *o, const nnc_text *t, nnc_sink *sink)
{
    progress_end();
    if (t->oom)
        return nnc_nomem(sink);
    if (o->out && strcmp(o->out, "-"))
        return nnc_file_write(o->out, nnc_text_str(t), t->n, true, sink);
    bool lost = fwrite(nnc_text_str(t), 1, t->n, stdout) != t->n || fflush(stdout) != 0;
    return lost ? NNC_E_IO : NNC_OK; /* main reports the error of stdout */
}

void print_warnings(nnc_sink *sink)
{
    if (nnc_sink_errors(sink) || !nnc_sink_count(sink))
        return;
    progress_end();
    fflush(stdout);
    nnc_sink_flush(sink, stderr);
    nnc_sink_clear(sink);
}

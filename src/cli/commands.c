/* cli/commands.c -- the commands that compile and report; run and compare are in run.c. */
#include "cli/cli.h"
#include "check/check.h"
#include "report/report.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include <string.h>
#include <sys/stat.h>

nnc_status cmd_explain(const options *o, work *w, nnc_sink *sink)
{
    options any = *o;
    any.looks = true;
    any.no_machine =
        nnc_is_artifact(o->file[0]) && !other_shapes(o); /* its decisions are in the file */
    NNC_TRY(open_and_compile(&any, w, sink));
    return nnc_report_explain(w->artifact, o->format, o->verbose, &w->text);
}

/* Flags of nnc partition that say nothing about several models. */
static nnc_status check_several(const nnc_partition_options *p, const char *place, nnc_sink *sink)
{
    const struct {
        const char *flag;
        bool given;
    } all[] = {{"--strategy", p->n_strategy}, {"--measure", p->measure}, {"--layers", p->layers},
        {"--place", place}, {"--run", p->run}, {"--sensitivity", p->sensitivity}, {"--svg", p->svg},
        {"--trace", p->trace}, {"--dot", p->dot}, {"--batches", p->micro}, {"--chunks", p->chunks}};
    for (size_t i = 0; i < NNC_COUNT(all); i++)
        if (all[i].given)
            return nnc_fail0(sink, NNC_E_USAGE,
                "%s is of one model; several are compared alone, on streams and on devices (nnc "
                "run measures that)",
                all[i].flag);
    return NNC_OK;
}

static nnc_status partition_several(const options *o, work *w, nnc_sink *sink)
{
    bool fits = false;
    nnc_partition_options p = o->partition;
    NNC_TRY(check_several(&p, o->model.place, sink));
    NNC_TRY(open_each(o, w, sink));
    print_warnings(sink);
    NNC_TRY(open_env(o, w, sink));
    progress((void *)o, "compiling", NULL);
    p.compile = compile_options(o, w);
    if (!o->has_devices)
        p.compile.devices = 0;
    NNC_TRY(nnc_partition_several_report(w->env, w->several.model, w->several.name, w->several.n,
        o->mode == MODE_step, &p, o->format, &w->text, &fits, sink));
    return fits ? NNC_OK : NNC_E_FIT;
}

nnc_status cmd_partition(const options *o, work *w, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    options with = *o;
    bool fits = false;
    const int ms = o->partition.run_ms, n = o->partition.run_iterations;
    if (!o->partition.run && (ms || n))
        return nnc_fail0(sink, NNC_E_USAGE, "%s says how long strategies run: it needs --run",
            ms ? "--duration" : "--iterations");
    if (ms && n)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--iterations and --duration both say how long to measure: leave one out");
    if (o->n_file > 1)
        return partition_several(o, w, sink);
    if (o->train.training.accumulate > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--accumulate=%d: nnc partition compares iterations of equally many batches, which "
            "strategies divide among their devices: give their number, as in --batches=%d",
            o->train.training.accumulate, o->train.training.accumulate);
    if (nnc_is_artifact(o->file[0]))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already: nnc partition takes the model");
    with.mode = MODE_forward;
    with.model.trains = o->mode == MODE_step;
    NNC_TRY(open_model(&with, w, sink));
    if (o->mode == MODE_step)
        NNC_TRY(nnc_train_read(w->model, &with.train, &a, sink));
    with.env.ranked = o->partition.run;
    NNC_TRY(open_env(&with, w, sink));
    progress((void *)o, o->partition.run ? "compiling and running" : "compiling", NULL);
    nnc_partition_options p = o->partition;
    NNC_LOCAL(nnc_text) typed = {0};
    nnc_putc(&typed, ' ');
    put_word(&typed, o->file[0]);
    nnc_puts(&typed, o->typed ? o->typed : "");
    p.typed = nnc_text_str(&typed);
    NNC_NEED(!typed.oom, sink);
    p.columns = o->out ? 0 : terminal_columns();
    p.compile = compile_options(o, w);
    if (!o->has_devices)
        p.compile.devices = 0;
    NNC_TRY(nnc_partition_model_report(w->env, w->model,
        o->mode == MODE_step ? &with.train.training : NULL, &p, o->format, &w->text, &fits, sink));
    w->no_text = nnc_env_rank(w->env) > 0;
    if (w->no_text)
        NNC_TRY(nnc_env_follow(w->env, sink));
    return fits ? NNC_OK : NNC_E_FIT;
}

/* Prints the compile time; to standard error when the artifact goes to standard output or another pipe. */
static void say_saved(const options *o, const char *file, const nnc_compile_stats *s)
{
    struct stat there;
    bool regular = stat(file, &there) == 0 && S_ISREG(there.st_mode);
    FILE *f = regular && strcmp(o->out, "-") && strncmp(file, "/dev/", 5) ? stdout : stderr;
    int kernels = s->cache_hits + s->cache_misses;
    if (o->quiet)
        return;
    fprintf(f, "%s: compiled in %.1f ms (passes %.1f, kernels %.1f, plan %.1f)", o->out,
        (double)s->total_ns * 1e-6, (double)s->passes_ns * 1e-6, (double)s->codegen_ns * 1e-6,
        (double)s->plan_ns * 1e-6);
    if (kernels)
        fprintf(f, "; %d of %d kernel%s from the cache", s->cache_hits, kernels,
            kernels == 1 ? "" : "s");
    fputc('\n', f);
}

static nnc_status save(const options *o, const nnc_artifact *a, nnc_sink *sink)
{
    const char *file = strcmp(o->out, "-") ? o->out : "/dev/stdout";
    NNC_TRY(nnc_artifact_save(a, file, o->embed, sink));
    progress_end();
    say_saved(o, file, nnc_artifact_stats(a));
    return NNC_OK;
}

static nnc_status save_weights(const options *o, const nnc_artifact *a, nnc_sink *sink)
{
    if (nnc_artifact_reads(a, o->save_weights))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->save_weights},
            "holds the model's weights: name another file for --save-weights");
    return nnc_model_write_weights(nnc_artifact_source(a), o->save_weights, sink);
}

/* ONNX has no op that takes weights in the points of Winograd's algorithm. */
static nnc_status skip_winograd(nnc_compile_options *c, nnc_arena *a, nnc_sink *sink)
{
    const char **skip = ARENA_NEW(a, const char *, c->n_skip + 1);
    NNC_NEED(skip, sink);
    for (int i = 0; i < c->n_skip; i++)
        skip[i] = c->skip[i];
    skip[c->n_skip++] = "winograd";
    c->skip = skip;
    return NNC_OK;
}

nnc_status cmd_compile(const options *o, work *w, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    if (!o->emit && !o->out && !o->dump_dir && !o->save_weights)
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc compile needs -o FILE for the artifact, --emit=STAGE for text, --dump-dir=FOLDER "
            "for all stages, or --save-weights=FILE");
    if (o->emit && o->embed)
        return nnc_fail0(sink, NNC_E_USAGE, "--embed-weights is for artifacts, not for --emit");
    if (!o->emit && !o->dump_dir && !o->save_weights && nnc_is_artifact(o->file[0]) &&
        !other_shapes(o))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already; --emit=STAGE prints what is in it, and --set or --shapes compile "
            "it "
            "for other shapes");
    options with = *o;
    with.looks = o->emit && strcmp(o->emit, "cubin") != 0 && !o->dump_dir;
    if (o->emit && !strcmp(o->emit, "onnx"))
        NNC_TRY(skip_winograd(&with.compare.compile, &a, sink));
    NNC_TRY(open_and_compile(&with, w, sink));
    if (o->dump_dir)
        NNC_TRY(nnc_dump(w->env, w->artifact, o->dump_dir, sink));
    if (o->save_weights)
        NNC_TRY(save_weights(o, w->artifact, sink));
    w->no_text = o->out && strcmp(o->out, "-");
    progress_end();
    if (o->emit && w->no_text)
        return nnc_emit_file(w->env, w->artifact, o->emit, o->out, sink);
    if (o->emit)
        return nnc_emit_text(w->env, w->artifact, o->emit, &w->text, sink);
    w->no_text = true;
    return o->out ? save(o, w->artifact, sink) : NNC_OK;
}

nnc_status cmd_show(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(open_either(o, w, sink));
    return nnc_report_show(
        w->model ? w->model : nnc_artifact_source(w->artifact), o->format, &w->text);
}

nnc_status cmd_check(const options *o, work *w, nnc_sink *sink)
{
    options with = *o;
    if (!o->quiet)
        with.model.coverage = &w->text;
    NNC_TRY(open_either(&with, w, sink));
    if (w->artifact)
        NNC_TRY(nnc_artifact_check_weights(w->artifact, sink));
    if (!o->quiet)
        nnc_printf(&w->text, "%s: ok\n", strcmp(o->file[0], "-") ? o->file[0] : "<stdin>");
    return NNC_OK;
}

static nnc_status verify_folder(const options *o, work *w, bool *agrees, nnc_sink *sink)
{
    const nnc_verify_options v = {.compile = compile_options(o, w),
        .by = o->reference ? NNC_BY_REFERENCE : NNC_BY_PLAN,
        .rtol = o->rtol,
        .atol = o->atol};
    const struct {
        bool given;
        const char *flag;
    } no[] = {{o->model.n_arg > 0, "--set"}, {o->model.weights != NULL, "--weights"},
        {o->model.n_shape > 0, "--shapes"}, {o->compare.n_input > 0, "--input"},
        {o->mode == MODE_step, "--mode=step"}, {o->compare.inputs != NULL, "--inputs"},
        {o->against != NULL, "--against"}, {o->reduce != NULL, "--reduce"},
        {o->compare.tolerance != 0, "--tolerance"}, {o->format != NNC_TEXT, "--format"},
        {o->json != NULL, "--json"}};
    for (size_t i = 0; i < NNC_COUNT(no); i++)
        if (no[i].given)
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
                "is a test folder, which has its own model, inputs and outputs: leave %s out",
                no[i].flag);
    return nnc_verify_folder(w->env, o->file[0], &v, &w->text, agrees, sink);
}

/* Writes the smallest failing model. */
static nnc_status reduce(const options *o, work *w, const nnc_compare_options *c, nnc_sink *sink)
{
    nnc_model *small = NULL;
    NNC_LOCAL(nnc_text) text = {0};
    progress((void *)o, "reducing", NULL);
    NNC_TRY(nnc_smallest_failing(w->env, w->model, c, &small, sink));
    if (!small)
        return NNC_OK;
    nnc_print_model(small, &text);
    nnc_model_close(small);
    if (text.oom)
        return nnc_nomem(sink);
    return nnc_file_write(o->reduce, nnc_text_str(&text), text.n, true, sink);
}

nnc_status cmd_verify(const options *o, work *w, nnc_sink *sink)
{
    struct stat there;
    bool agrees = false, folder = stat(o->file[0], &there) == 0 && S_ISDIR(there.st_mode);
    nnc_compare_options c = o->compare;
    c.seed = o->model.seed;
    c.json = o->json ? &w->json : NULL;
    c.training = o->mode == MODE_step ? &o->train.training : NULL;
    NNC_TRY(check_split_only(o, "verify", sink));
    if (!folder && o->reference)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--reference is for test folders: of a model, float64 is always computed");
    if (!folder)
        NNC_TRY(open_model(o, w, sink));
    c.compile = compile_options(o, w);
    NNC_TRY(open_env(o, w, sink));
    progress((void *)o, "verifying", NULL);
    if (folder)
        NNC_TRY(verify_folder(o, w, &agrees, sink));
    else
        NNC_TRY(
            nnc_verify_model(w->env, w->model, &c, o->against, o->format, &w->text, &agrees, sink));
    if (agrees && o->reduce)
        nnc_note(sink, (nnc_loc){.file = o->reduce}, "not written: all layers agree");
    if (!agrees && o->reduce)
        NNC_TRY(reduce(o, w, &c, sink));
    return agrees ? NNC_OK : NNC_E_DIFFERS;
}

nnc_status cmd_opt(const options *o, work *w, nnc_sink *sink)
{
    nnc_compile_options c = compile_options(o, w);
    NNC_TRY(open_model(o, w, sink));
    NNC_TRY(open_env(o, w, sink));
    NNC_TRY(nnc_optimize(w->env, &w->model, o->pass, o->n_pass, &c, sink));
    nnc_print_model(w->model, &w->text);
    return NNC_OK;
}

nnc_status cmd_devices(const options *o, work *w, nnc_sink *sink)
{
    if (o->hardware && o->env.target)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--hardware and --target both name a machine to describe: leave one out");
    if (o->hardware)
        return nnc_report_hardware(o->hardware, o->format, &w->text, sink);
    if (o->format == NNC_CSV)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--format=csv is for --hardware=FILE; this machine is described as text or json");
    NNC_TRY(nnc_env_create(&o->env, &w->env, sink));
    return nnc_report_devices(w->env, o->format, &w->text);
}

nnc_status cmd_doctor(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(nnc_env_create(&o->env, &w->env, sink));
    return nnc_report_doctor(w->env, o->format, &w->text);
}

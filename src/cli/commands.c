/* cli/commands.c -- the commands that compile and report; run and compare are in run.c. */
#include "cli/cli.h"
#include <string.h>
#include <sys/stat.h>

typedef nnc_status report(const options *o, work *w);

/* Opens, compiles, reports, prints. */
static nnc_status compiled_report(const options *o, report *print, nnc_sink *sink)
{
    work w = {0};
    nnc_status st = open_and_compile(o, &w, sink), fit = NNC_OK;
    if (!st)
        fit = print(o, &w);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st ? st : fit;
}

static nnc_status explain(const options *o, work *w)
{
    return nnc_report_explain(w->artifact, o->format, o->verbose, &w->text);
}

nnc_status cmd_explain(const options *o, nnc_sink *sink)
{
    return compiled_report(o, explain, sink);
}

static nnc_status memory(const options *o, work *w)
{
    bool fits = false;
    nnc_status st = nnc_report_memory(w->env, w->artifact, o->format, &w->text, &fits);
    return st ? st : fits ? NNC_OK : NNC_E_FIT;
}

nnc_status cmd_memory(const options *o, nnc_sink *sink)
{
    return compiled_report(o, memory, sink);
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

static nnc_status emit(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(nnc_emit_text(w->env, w->artifact, o->emit, &w->text, sink));
    return deliver(o, &w->text, sink);
}

nnc_status cmd_compile(const options *o, nnc_sink *sink)
{
    work w = {0};
    if (!o->emit && !o->out && !o->dump_dir)
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc compile needs -o FILE for the artifact, --emit=STAGE for text, or "
            "--dump-dir=FOLDER for all stages");
    if (o->emit && o->embed)
        return nnc_fail0(sink, NNC_E_USAGE, "--embed-weights is for artifacts, not for --emit");
    if (!o->emit && !o->dump_dir && nnc_is_artifact(o->file[0]))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->file[0]},
            "is compiled already; --emit=STAGE prints what is in it");
    nnc_status st = open_and_compile(o, &w, sink);
    if (!st && o->dump_dir)
        st = nnc_dump(w.env, w.artifact, o->dump_dir, sink);
    if (!st && (o->emit || o->out))
        st = o->emit ? emit(o, &w, sink) : save(o, w.artifact, sink);
    close_work(&w);
    return st;
}

nnc_status cmd_show(const options *o, nnc_sink *sink)
{
    work w = {0};
    nnc_status st = open_either(o, &w, sink);
    if (!st)
        st = nnc_report_show(
            w.model ? w.model : nnc_artifact_source(w.artifact), o->format, &w.text);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st;
}

nnc_status cmd_check(const options *o, nnc_sink *sink)
{
    work w = {0};
    nnc_status st = open_either(o, &w, sink);
    if (!st && w.artifact)
        st = nnc_artifact_check_weights(w.artifact, sink);
    if (!st && !o->quiet)
        printf("%s: ok\n", strcmp(o->file[0], "-") ? o->file[0] : "<stdin>");
    close_work(&w);
    return st;
}

nnc_status cmd_opt(const options *o, nnc_sink *sink)
{
    work w = {.model = open_model(o, sink)};
    nnc_status st = w.model ? nnc_env_create(&o->env, &w.env, sink) : model_failed(sink);
    nnc_compile_options c = compile_options(o);
    if (!st)
        st = nnc_optimize(w.env, &w.model, o->pass, o->n_pass, &c, sink);
    if (!st) {
        nnc_print_model(w.model, &w.text);
        st = deliver(o, &w.text, sink);
    }
    close_work(&w);
    return st;
}

nnc_status cmd_layers(const options *o, nnc_sink *sink)
{
    nnc_text t = {0};
    nnc_report_layers(o->format, &t);
    return deliver(o, &t, sink);
}

nnc_status cmd_ops(const options *o, nnc_sink *sink)
{
    nnc_text t = {0};
    nnc_report_ops(o->format, &t);
    return deliver(o, &t, sink);
}

nnc_status cmd_passes(const options *o, nnc_sink *sink)
{
    nnc_text t = {0};
    nnc_report_passes(o->format, &t);
    return deliver(o, &t, sink);
}

static nnc_status machine_report(
    const options *o, nnc_status (*print)(nnc_env *, nnc_format, nnc_text *), nnc_sink *sink)
{
    work w = {0};
    nnc_status st = nnc_env_create(&o->env, &w.env, sink);
    if (!st)
        st = print(w.env, o->format, &w.text);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st;
}

nnc_status cmd_devices(const options *o, nnc_sink *sink)
{
    return machine_report(o, nnc_report_devices, sink);
}

nnc_status cmd_doctor(const options *o, nnc_sink *sink)
{
    return machine_report(o, nnc_report_doctor, sink);
}

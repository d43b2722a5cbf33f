/* cli/commands.c -- the commands that compile and report. run and compare have files of their own. */
#include "cli/cli.h"
#include <string.h>
#include <sys/stat.h>

typedef nnc_status report(nnc_env *e, const nnc_artifact *a, const options *o, nnc_text *t);

/* Opens, compiles, reports, prints. */
static nnc_status compiled_report(const options *o, report *print, nnc_sink *sink)
{
    nnc_env *e;
    nnc_artifact *a;
    nnc_text t = {0};
    nnc_status st = open_and_compile(o, &e, &a, true, sink), fit = NNC_OK;
    if (!st)
        fit = print(e, a, o, &t);
    if (!st)
        st = deliver(o, &t, sink);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    return st ? st : fit;
}

static nnc_status explain(nnc_env *e, const nnc_artifact *a, const options *o, nnc_text *t)
{
    (void)e;
    return nnc_report_explain(a, o->format, o->verbose, t);
}

nnc_status cmd_explain(const options *o, nnc_sink *sink)
{
    return compiled_report(o, explain, sink);
}

static nnc_status memory(nnc_env *e, const nnc_artifact *a, const options *o, nnc_text *t)
{
    bool fits = false;
    nnc_status st = nnc_report_memory(e, a, o->format, t, &fits);
    return st ? st : fits ? NNC_OK : NNC_E_FIT;
}

nnc_status cmd_memory(const options *o, nnc_sink *sink)
{
    return compiled_report(o, memory, sink);
}

/* What was made and in what time; on stderr where the artifact itself goes to stdout or another pipe. */
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

nnc_status cmd_compile(const options *o, nnc_sink *sink)
{
    nnc_env *e;
    nnc_artifact *a;
    nnc_text t = {0};
    if (!o->emit && !o->out)
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc compile wants -o FILE for the artifact, or --emit=STAGE for text");
    nnc_status st = open_and_compile(o, &e, &a, o->emit != NULL, sink);
    if (!st && o->embed && o->emit)
        st = nnc_fail0(sink, NNC_E_USAGE, "--embed-weights is for artifacts, not for --emit");
    if (!st && o->emit) {
        st = nnc_emit_text(e, a, o->emit, &t, sink);
        if (!st)
            st = deliver(o, &t, sink);
        nnc_text_deinit(&t);
    } else if (!st) {
        st = save(o, a, sink);
    }
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    return st;
}

/* The model of a file, or the one that an artifact was made from; the caller closes *m, or else *a and *e. */
static nnc_status open_either(
    const options *o, nnc_env **e, nnc_artifact **a, nnc_model **m, nnc_sink *sink)
{
    if (!nnc_is_artifact(o->file[0])) {
        *m = open_model(o, sink);
        return *m ? NNC_OK : model_failed(sink);
    }
    NNC_TRY(open_env(o, e, sink));
    return open_artifact(o, *e, a, sink);
}

nnc_status cmd_show(const options *o, nnc_sink *sink)
{
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_model *m = NULL;
    nnc_text t = {0};
    nnc_status st = open_either(o, &e, &a, &m, sink);
    if (!st)
        st = nnc_report_show(m ? m : nnc_artifact_source(a), o->format, &t);
    if (!st)
        st = deliver(o, &t, sink);
    nnc_text_deinit(&t);
    nnc_model_close(m);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    return st;
}

nnc_status cmd_check(const options *o, nnc_sink *sink)
{
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_model *m = NULL;
    nnc_status st = open_either(o, &e, &a, &m, sink);
    if (!st && !o->quiet)
        printf("%s: ok\n", strcmp(o->file[0], "-") ? o->file[0] : "<stdin>");
    nnc_model_close(m);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    return st;
}

nnc_status cmd_opt(const options *o, nnc_sink *sink)
{
    nnc_env *e = NULL;
    nnc_text t = {0};
    nnc_model *m = open_model(o, sink);
    if (!m)
        return model_failed(sink);
    nnc_status st = open_env(o, &e, sink);
    nnc_compile_options c = compile_options(o);
    if (!st)
        st = nnc_optimize(e, &m, o->pass, o->n_pass, &c, sink);
    if (!st) {
        nnc_print_model(m, &t);
        st = deliver(o, &t, sink);
    }
    nnc_model_close(m);
    nnc_env_destroy(e);
    return st;
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
    nnc_env *e;
    nnc_text t = {0};
    NNC_TRY(open_env(o, &e, sink));
    nnc_status st = print(e, o->format, &t);
    if (!st)
        st = deliver(o, &t, sink);
    nnc_env_destroy(e);
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

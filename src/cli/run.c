/* cli/run.c -- nnc run: inputs from files or the seed, timed iterations, outputs to files or as a summary. And nnc compare. */
#include "cli/cli.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const char *name_of(const nnc_artifact *a, int i);

/* Do the files that the user named belong to inputs (outputs) of the model? Asked before weights are loaded. */
static nnc_status check_names(const nnc_artifact *a, const char *what, name_of *name,
    const nnc_arg *file, int n_file, nnc_sink *sink)
{
    for (int k = 0; k < n_file; k++) {
        nnc_text t = {0};
        bool known = false;
        for (int i = 0; name(a, i); i++) {
            known |= !strcmp(name(a, i), file[k].name);
            nnc_printf(&t, "%s%s", i ? ", " : "", name(a, i));
        }
        nnc_status st = known ? NNC_OK
                              : nnc_fail0(sink, NNC_E_USAGE, "the model has no %s `%s`; it has %s",
                                    what, file[k].name, nnc_text_str(&t));
        nnc_text_deinit(&t);
        NNC_TRY(st);
    }
    return NNC_OK;
}

static nnc_status set_inputs(const options *o, nnc_session *s, nnc_sink *sink)
{
    int n = nnc_session_inputs(s);
    for (int i = 0; i < n; i++) {
        const char *name = nnc_session_input_name(s, i), *file = NULL;
        const nnc_type *t = nnc_session_input_type(s, i);
        void *data = NULL;
        nnc_status st = NNC_OK;
        for (int k = 0; k < o->n_input; k++)
            file = !strcmp(o->input[k].name, name) ? o->input[k].value : file;
        if (file) {
            st = nnc_read_input(file, name, t, &data, sink);
        } else {
            data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
            if (data)
                nnc_fill_input(name, t, (uint64_t)o->seed, data);
            else
                st = nnc_nomem(sink);
        }
        if (!st)
            st = nnc_session_input(s, i, data, sink);
        nnc_free(data);
        NNC_TRY(st);
    }
    return NNC_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------- */

/* A line that tells whether the result is plausible: range, mean, first numbers. */
static void describe(const char *name, const nnc_type *t, const void *data, nnc_text *out)
{
    double lo = INFINITY, hi = -INFINITY, sum = 0;
    int64_t n = nnc_type_numel(t), bad = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = nnc_get_f64((nnc_dtype)t->dtype, data, i);
        if (!isfinite(v)) {
            bad++;
            continue;
        }
        lo = fmin(lo, v);
        hi = fmax(hi, v);
        sum += v;
    }
    nnc_printf(out, "%s ", name);
    nnc_put_type(out, t);
    if (n > bad)
        nnc_printf(out, ": min %.6g, mean %.6g, max %.6g", lo, sum / (double)(n - bad), hi);
    if (bad)
        nnc_printf(
            out, "%s %lld of %lld not finite", n > bad ? "," : ":", (long long)bad, (long long)n);
    nnc_puts(out, "; first");
    for (int64_t i = 0; i < n && i < 4; i++)
        nnc_printf(out, " %.6g", nnc_get_f64((nnc_dtype)t->dtype, data, i));
    nnc_putc(out, '\n');
}

static nnc_status get_outputs(const options *o, nnc_session *s, nnc_text *out, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_outputs(s); i++) {
        const nnc_type *t = nnc_session_output_type(s, i);
        const char *name = nnc_session_output_name(s, i);
        void *data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        nnc_status st = data ? nnc_session_output(s, i, data, sink) : nnc_nomem(sink);
        for (int k = 0; !st && k < o->n_output; k++)
            if (!strcmp(o->output[k].name, name))
                st = nnc_write_output(o->output[k].value, t, data, sink);
        if (!st && o->format == NNC_TEXT)
            describe(name, t, data, out);
        nnc_free(data);
        NNC_TRY(st);
    }
    return NNC_OK;
}

/* ---- timing ------------------------------------------------------------------------------------------ */

typedef struct times {
    int64_t *ns;
    int n, cap;
} times;

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static nnc_status timed_runs(const options *o, nnc_session *s, times *t, nnc_sink *sink)
{
    int64_t t0 = nnc_now_ns(), goal = (o->duration ? o->duration : 1000) * 1000000;
    for (int64_t i = 0; o->warmup ? i < o->warmup : i < 1 || nnc_now_ns() - t0 < 50000000; i++)
        NNC_TRY(nnc_session_run(s, sink));
    t0 = nnc_now_ns();
    while (o->iterations ? t->n < o->iterations : t->n < 3 || nnc_now_ns() - t0 < goal) {
        int64_t a = nnc_now_ns();
        NNC_TRY(nnc_session_run(s, sink));
        if (t->n == t->cap) {
            int cap = t->cap ? t->cap * 2 : 256;
            int64_t *more = nnc_realloc(t->ns, (size_t)cap * sizeof *more);
            if (!more)
                return nnc_nomem(sink);
            t->ns = more;
            t->cap = cap;
        }
        t->ns[t->n++] = nnc_now_ns() - a;
    }
    assert(t->n > 0); /* --iterations is at least 1, --duration runs three times or more */
    qsort(t->ns, (size_t)t->n, sizeof *t->ns, by_value);
    return NNC_OK;
}

/* Between two runs: in proportion. */
static double ms_at(const times *t, double percent)
{
    double x = percent / 100 * (t->n - 1);
    int i = (int)x, j = i + 1 < t->n ? i + 1 : i;
    return ((double)t->ns[i] + (double)(t->ns[j] - t->ns[i]) * (x - i)) * 1e-6;
}

/* min, median, mean, p10, p90, percentile: as the flags and docs/formats.md name them. */
static void print_times(const options *o, const times *t, const nnc_artifact *a, nnc_text *out)
{
    double sum = 0, p = o->percentile > 0 ? o->percentile : 99, median = ms_at(t, 50);
    int64_t flops, bytes, launches;
    nnc_artifact_work(a, &flops, &bytes, &launches);
    for (int i = 0; i < t->n; i++)
        sum += (double)t->ns[i] * 1e-6;
    if (o->format == NNC_JSON)
        nnc_printf(out,
            "{\"iterations\": %d, \"io\": \"exclude\", \"min_ms\": %.6f, \"median_ms\": %.6f, "
            "\"mean_ms\": %.6f, \"p10_ms\": %.6f, \"p90_ms\": %.6f, "
            "\"percentile\": %g, \"percentile_ms\": %.6f, \"launches\": %lld, \"flops\": %lld, "
            "\"bytes_moved\": %lld}\n",
            t->n, ms_at(t, 0), median, sum / t->n, ms_at(t, 10), ms_at(t, 90), p, ms_at(t, p),
            (long long)launches, (long long)flops, (long long)bytes);
    else if (o->format == NNC_CSV)
        nnc_printf(out,
            "iterations,min_ms,median_ms,mean_ms,p10_ms,p90_ms,percentile,percentile_ms,launches,"
            "flops,bytes_moved\n%d,%.6f,%.6f,%.6f,%.6f,%.6f,%g,%.6f,%lld,%lld,%lld\n",
            t->n, ms_at(t, 0), median, sum / t->n, ms_at(t, 10), ms_at(t, 90), p, ms_at(t, p),
            (long long)launches, (long long)flops, (long long)bytes);
    else
        nnc_printf(out,
            "%d run%s: median %.3f ms, mean %.3f, min %.3f, p90 %.3f, p%g %.3f; copies to and from "
            "the device not timed\n%lld launch%s a run, %.4g GFLOP/s, %.4g GB/s\n",
            t->n, t->n == 1 ? "" : "s", median, sum / t->n, ms_at(t, 0), ms_at(t, 90), p,
            ms_at(t, p), (long long)launches, launches == 1 ? "" : "es",
            (double)flops / median * 1e-6, (double)bytes / median * 1e-6);
}

static nnc_status load(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(check_names(w->artifact, "input", nnc_artifact_input_name, o->input, o->n_input, sink));
    NNC_TRY(
        check_names(w->artifact, "output", nnc_artifact_output_name, o->output, o->n_output, sink));
    progress((void *)o, "loading weights", NULL);
    NNC_TRY(nnc_session_create(w->env, w->artifact, &w->session, sink));
    print_warnings(sink);
    return set_inputs(o, w->session, sink);
}

static nnc_status time_session(const options *o, work *w, nnc_sink *sink)
{
    times t = {0};
    progress((void *)o, "running", NULL);
    nnc_status st = timed_runs(o, w->session, &t, sink);
    if (!st)
        st = get_outputs(o, w->session, &w->text, sink);
    if (!st)
        print_times(o, &t, w->artifact, &w->text);
    nnc_free(t.ns);
    return st;
}

nnc_status cmd_run(const options *o, nnc_sink *sink)
{
    work w = {0};
    nnc_status st = open_and_compile(o, &w, sink);
    if (!st)
        st = load(o, &w, sink);
    if (!st)
        st = time_session(o, &w, sink);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st;
}

/* ---- compare ----------------------------------------------------------------------------------------- */

nnc_status cmd_compare(const options *o, nnc_sink *sink)
{
    bool agrees = false;
    work w = {.model = open_model(o, sink)};
    nnc_status st = w.model ? open_env(o, &w.env, sink) : model_failed(sink);
    nnc_compare_options c = {
        .compile = compile_options(o),
        .seed = (uint64_t)o->seed,
        .warmup = (int)o->warmup,
        .iterations = (int)o->iterations,
        .duration_ms = (int)o->duration,
        .steps = !o->no_steps,
        .no_reference = o->no_reference,
        .tolerance = o->tolerance,
        .input = o->input,
        .n_input = o->n_input,
        .arg = o->set,
        .n_arg = o->n_set,
        .progress = progress,
        .progress_ctx = (void *)o,
    };
    if (!st)
        st = nnc_compare(w.env, w.model, &c, o->format, &w.text, &agrees, sink);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st ? st : agrees ? NNC_OK : NNC_E_DIFFERS;
}

/* cli/run.c -- nnc run: inputs from files or the seed, timed iterations, outputs to files or as a summary; and nnc compare. */
#include "cli/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const char *name_of(const nnc_artifact *a, int i);

/* Checks that the names in --input (--output) are inputs (outputs) of the model, before weights are loaded. */
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

static nnc_status set_inputs(
    const options *o, const nnc_artifact *a, nnc_session *s, nnc_sink *sink)
{
    int n = nnc_session_inputs(s);
    for (int i = 0; i < n; i++) {
        const char *name = nnc_session_input_name(s, i), *file = NULL;
        const nnc_type *t = nnc_session_input_type(s, i);
        void *data = NULL;
        nnc_status st = NNC_OK;
        for (int k = 0; k < o->compare.n_input; k++)
            file = !strcmp(o->compare.input[k].name, name) ? o->compare.input[k].value : file;
        if (file) {
            st = nnc_read_input(file, name, t, &data, sink);
        } else {
            data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
            st = data ? nnc_artifact_fill_input(a, i, o->model.seed, data, sink) : nnc_nomem(sink);
        }
        if (!st)
            st = nnc_session_input(s, i, data, sink);
        nnc_free(data);
        NNC_TRY(st);
    }
    return NNC_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------- */

/* A line to judge whether the result is plausible: range, mean, first numbers. */
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

static nnc_status keep_time(times *t, int64_t ns, nnc_sink *sink)
{
    if (t->n == t->cap) {
        int cap = t->cap ? t->cap * 2 : 256;
        int64_t *more = nnc_realloc(t->ns, (size_t)cap * sizeof *more);
        if (!more)
            return nnc_nomem(sink);
        t->ns = more;
        t->cap = cap;
    }
    t->ns[t->n++] = ns;
    return NNC_OK;
}

enum { WARMUP_NS = 50000000, DURATION_MS = 1000, LEAST_RUNS = 3 };

/* Runs without copies: inputs are on the device, outputs stay there. */
static nnc_status timed_runs(const nnc_compare_options *o, nnc_session *s, times *t, nnc_sink *sink)
{
    int64_t t0 = nnc_now_ns(),
            goal = (o->duration_ms ? o->duration_ms : DURATION_MS) * INT64_C(1000000);
    for (int i = 0; o->warmup ? i < o->warmup : i < 1 || nnc_now_ns() - t0 < WARMUP_NS; i++)
        NNC_TRY(nnc_session_run(s, sink));
    t0 = nnc_now_ns();
    while (o->iterations ? t->n < o->iterations : t->n < LEAST_RUNS || nnc_now_ns() - t0 < goal) {
        int64_t a = nnc_now_ns();
        NNC_TRY(nnc_session_run(s, sink));
        NNC_TRY(keep_time(t, nnc_now_ns() - a, sink));
    }
    return NNC_OK;
}

/* Runs with their copies, pipelined: --iterations of them, or as many as fit into the time. */
static nnc_status streamed_runs(
    const nnc_compare_options *o, nnc_session *s, times *t, nnc_sink *sink)
{
    int64_t ns[NNC_STREAM_RUNS],
        goal = (o->duration_ms ? o->duration_ms : DURATION_MS) * INT64_C(1000000);
    int64_t least = o->warmup ? o->warmup : LEAST_RUNS, t0 = nnc_now_ns();
    int64_t each = goal / LEAST_RUNS + 1;
    for (int64_t left = least; left > 0; left -= NNC_STREAM_RUNS)
        NNC_TRY(
            nnc_session_stream(s, left < NNC_STREAM_RUNS ? (int)left : NNC_STREAM_RUNS, ns, sink));
    if (least > 0)
        each = (nnc_now_ns() - t0) / least + 1;
    nnc_session_stream_reset(s);
    t0 = nnc_now_ns();
    for (bool more = true; more;) {
        int64_t left = o->iterations ? o->iterations - t->n : (goal - (nnc_now_ns() - t0)) / each;
        left = left < LEAST_RUNS && !o->iterations ? LEAST_RUNS : left;
        int n = left < NNC_STREAM_RUNS ? (int)left : NNC_STREAM_RUNS;
        NNC_TRY(nnc_session_stream(s, n, ns, sink));
        for (int i = 0; i < n; i++)
            NNC_TRY(keep_time(t, ns[i], sink));
        more = o->iterations ? t->n < o->iterations : nnc_now_ns() - t0 < goal;
    }
    return NNC_OK;
}

/* Percentile of the sorted times, interpolated linearly. */
static double ms_at(const times *t, double percent)
{
    double x = percent / 100 * (t->n - 1);
    int i = (int)x, j = i + 1 < t->n ? i + 1 : i;
    return ((double)t->ns[i] + (double)(t->ns[j] - t->ns[i]) * (x - i)) * 1e-6;
}

static double mean_ms(const times *t)
{
    double sum = 0;
    for (int i = 0; i < t->n; i++)
        sum += (double)t->ns[i] * 1e-6;
    return sum / t->n;
}

/* Members of a JSON object: min, median, mean, p10, p90, percentile, named as in docs/formats.md. */
static void json_times(const options *o, const times *t, nnc_json_writer *w)
{
    NNC_JSON(w, J_MS("min_ms", ms_at(t, 0)), J_MS("median_ms", ms_at(t, 50)),
        J_MS("mean_ms", mean_ms(t)), J_MS("p10_ms", ms_at(t, 10)), J_MS("p90_ms", ms_at(t, 90)),
        J_REAL("percentile", o->percentile), J_MS("percentile_ms", ms_at(t, o->percentile)));
}

static void text_times(const options *o, const times *t, const char *what, nnc_text *out)
{
    double p = o->percentile;
    nnc_printf(out, "%d run%s: median %.3f ms, mean %.3f, min %.3f, p90 %.3f, p%g %.3f; %s\n", t->n,
        t->n == 1 ? "" : "s", ms_at(t, 50), mean_ms(t), ms_at(t, 0), ms_at(t, 90), p, ms_at(t, p),
        what);
}

/* Times of runs without copies, with copies, or both. */
typedef struct timing {
    nnc_io io_of; /* what is timed: as asked, but a model in chunks always with its copies */
    int64_t chunks;
    times run, io;
    nnc_io_report report;
    int64_t flops, bytes, launches; /* per run */
} timing;

static void print_json(const options *o, const timing *g, const nnc_session *s, nnc_text *out)
{
    static const char *const names[] = {"exclude", "include", "both"};
    const times *t = g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run;
    nnc_json_writer writer = {.out = out}, *w = &writer;
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_INT("iterations", t->n), J_STRING("io", names[g->io_of]));
    json_times(o, t, w);
    NNC_JSON(w, J_INT("launches", g->launches), J_INT("flops", g->flops),
        J_INT("bytes_moved", g->bytes));
    if (g->io_of == NNC_IO_BOTH) {
        nnc_json_open(w, "with_copies", '{');
        NNC_JSON(w, J_INT("iterations", g->io.n));
        json_times(o, &g->io, w);
        nnc_json_close(w, '}');
    }
    if (g->io_of != NNC_IO_EXCLUDE)
        nnc_report_io_json(&g->report, w);
    nnc_report_first_run_json(s, w);
    if (g->chunks > 1)
        NNC_JSON(w, J_INT("chunks", g->chunks));
    nnc_json_close(w, '}');
    nnc_putc(out, '\n');
}

static void print_csv(const options *o, const timing *g, nnc_text *out)
{
    const times *t = g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run;
    double p = o->percentile;
    bool both = g->io_of == NNC_IO_BOTH;
    nnc_printf(out,
        "iterations,min_ms,median_ms,mean_ms,p10_ms,p90_ms,percentile,percentile_ms,launches,"
        "flops,bytes_moved%s\n%d,%.6f,%.6f,%.6f,%.6f,%.6f,%g,%.6f,%lld,%lld,%lld",
        both ? ",with_copies_median_ms" : "", t->n, ms_at(t, 0), ms_at(t, 50), mean_ms(t),
        ms_at(t, 10), ms_at(t, 90), p, ms_at(t, p), (long long)g->launches, (long long)g->flops,
        (long long)g->bytes);
    if (both)
        nnc_printf(out, ",%.6f", ms_at(&g->io, 50));
    nnc_putc(out, '\n');
}

static void print_text(const options *o, const timing *g, const nnc_session *s, nnc_text *out)
{
    const times *t = g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run;
    if (g->io_of != NNC_IO_INCLUDE)
        text_times(o, &g->run, "copies to and from the device not timed", out);
    if (g->io_of != NNC_IO_EXCLUDE) {
        text_times(o, &g->io, "copies to and from the device timed", out);
        nnc_report_io(&g->report, "  ", out);
    }
    if (g->chunks > 1)
        nnc_printf(out, "a run is %lld chunks, since the model is larger than the device\n",
            (long long)g->chunks);
    nnc_printf(out, "%lld launch%s a run, %.4g GFLOP/s, %.4g GB/s\n", (long long)g->launches,
        g->launches == 1 ? "" : "es", (double)g->flops / ms_at(t, 50) * 1e-6,
        (double)g->bytes / ms_at(t, 50) * 1e-6);
    nnc_report_first_run(s, out);
}

static void print_timing(const options *o, const timing *g, const nnc_session *s, nnc_text *out)
{
    if (o->format == NNC_JSON)
        print_json(o, g, s, out);
    else if (o->format == NNC_CSV)
        print_csv(o, g, out);
    else
        print_text(o, g, s, out);
}

static nnc_status load(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(check_names(
        w->artifact, "input", nnc_artifact_input_name, o->compare.input, o->compare.n_input, sink));
    NNC_TRY(
        check_names(w->artifact, "output", nnc_artifact_output_name, o->output, o->n_output, sink));
    for (int i = 0; i < o->n_output; i++)
        if (nnc_artifact_reads(w->artifact, o->output[i].value))
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = o->output[i].value},
                "holds the model's weights: name another file for output %s", o->output[i].name);
    progress((void *)o, "loading weights", NULL);
    NNC_TRY(nnc_session_create(w->env, w->artifact, &w->session, sink));
    print_warnings(sink);
    if (o->compare.io != NNC_IO_EXCLUDE)
        NNC_TRY(nnc_session_stream_open(w->session, sink));
    return set_inputs(o, w->artifact, w->session, sink);
}

static nnc_status measure(const options *o, nnc_session *s, timing *g, nnc_sink *sink)
{
    if (g->io_of != NNC_IO_INCLUDE)
        NNC_TRY(timed_runs(&o->compare, s, &g->run, sink));
    if (g->io_of != NNC_IO_EXCLUDE) {
        NNC_TRY(streamed_runs(&o->compare, s, &g->io, sink));
        g->report = nnc_session_stream_report(s);
    }
    if (g->run.n)
        qsort(g->run.ns, (size_t)g->run.n, sizeof *g->run.ns, by_value);
    if (g->io.n)
        qsort(g->io.ns, (size_t)g->io.n, sizeof *g->io.ns, by_value);
    return NNC_OK;
}

static nnc_status time_session(const options *o, work *w, nnc_sink *sink)
{
    timing g = {.io_of = o->compare.io, .chunks = nnc_artifact_chunks(w->artifact)};
    if (g.chunks > 1)
        g.io_of = NNC_IO_INCLUDE;
    progress((void *)o, "running", NULL);
    nnc_status st = measure(o, w->session, &g, sink);
    if (!st)
        st = get_outputs(o, w->session, &w->text, sink);
    nnc_artifact_work(w->artifact, &g.flops, &g.bytes, &g.launches);
    if (!st)
        print_timing(o, &g, w->session, &w->text);
    nnc_free(g.run.ns);
    nnc_free(g.io.ns);
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
    nnc_status st = w.model ? nnc_env_create(&o->env, &w.env, sink) : model_failed(sink);
    nnc_compare_options c = o->compare;
    c.compile = compile_options(o);
    c.seed = o->model.seed;
    c.arg = o->model.arg;
    c.n_arg = o->model.n_arg;
    c.progress = progress;
    c.progress_ctx = (void *)o;
    if (!st)
        st = nnc_compare(w.env, w.model, &c, o->format, &w.text, &agrees, sink);
    if (!st)
        st = deliver(o, &w.text, sink);
    close_work(&w);
    return st ? st : agrees ? NNC_OK : NNC_E_DIFFERS;
}

/* cli/run.c -- nnc run: inputs from files or the seed, timed iterations, outputs to files or as a summary; and nnc compare. */
#include "cli/cli.h"
#include "check/check.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

/* ---- outputs ----------------------------------------------------------------------------------------- */

/* A line to judge whether the result is plausible: range, mean, first numbers. */
static void describe(const char *name, const nnc_type *t, const void *data, nnc_text *out)
{
    double lo = INFINITY, hi = -INFINITY, sum = 0;
    int64_t n = nnc_type_numel(t), bad = 0;
    if (n == 0) {
        nnc_printf(out, "%s ", name);
        nnc_put_type(out, t);
        nnc_puts(out, ": no elements\n");
        return;
    }
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
        const void *there = nnc_session_output_memory(s, i);
        NNC_FREED void *copy = there ? NULL : nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        if (!there && !copy)
            return nnc_nomem_for(sink, "output %s", name);
        const void *data = there ? there : copy;
        nnc_status st = there ? NNC_OK : nnc_session_output(s, i, copy, sink);
        for (int k = 0; !st && k < o->n_output; k++)
            if (!strcmp(o->output[k].name, name))
                st = nnc_write_output(o->output[k].value, t, data, sink);
        if (!st && o->format == NNC_TEXT)
            describe(name, t, data, out);
        NNC_TRY(st);
    }
    return o->outputs ? nnc_session_write(s, o->outputs, sink) : NNC_OK;
}

/* ---- timing ------------------------------------------------------------------------------------------ */

enum { TIMES = 8 };

/* Number, minimum, median, mean, p10, p90, percentile, named as in docs/formats.md: TIMES members. */
static void times_members(const options *o, const nnc_times *t, nnc_json_member *m)
{
    const double p = o->percentile;
    const nnc_json_member times[TIMES] = {J_INT("iterations", t->n),
        J_MS("min_ms", nnc_times_at(t, 0)), J_MS("median_ms", nnc_times_at(t, 0.5)),
        J_MS("mean_ms", nnc_times_mean(t)), J_MS("p10_ms", nnc_times_at(t, 0.1)),
        J_MS("p90_ms", nnc_times_at(t, 0.9)), J_REAL("percentile", p),
        J_MS("percentile_ms", nnc_times_at(t, p / 100))};
    memcpy(m, times, sizeof times);
}

static void text_times(const options *o, const nnc_times *t, const char *what, nnc_text *out)
{
    double p = o->percentile;
    const struct {
        const char *before;
        double ms;
    } at[] = {{"median ", nnc_times_at(t, 0.5)}, {" ms, mean ", nnc_times_mean(t)},
        {", min ", nnc_times_at(t, 0)}, {", p90 ", nnc_times_at(t, 0.9)},
        {NULL, nnc_times_at(t, p / 100)}};
    nnc_printf(out, "%d run%s: ", t->n, t->n == 1 ? "" : "s");
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        if (at[i].before)
            nnc_puts(out, at[i].before);
        else
            nnc_printf(out, ", p%g ", p);
        nnc_put_ms(out, at[i].ms, 0);
    }
    nnc_printf(out, "; %s\n", what);
}

/* Times of runs without copies, with copies, or both. */
typedef struct timing {
    nnc_io io_of; /* what is timed: as asked, but a model in chunks always with its copies */
    int64_t chunks;
    nnc_times run, io;
    nnc_io_report report;
    int64_t flops, bytes, launches; /* per run */
    bool parts; /* it is a training step, of which these are known */
    double part_ms[PART__COUNT];
    nnc_together together; /* of several models; n 0: there is one */
    nnc_power power;
} timing;

static void print_rows(const options *o, const timing *g, const nnc_session *s, nnc_json_writer *w)
{
    static const char *const names[] = {"exclude", "include", "both"};
    const bool both = g->io_of == NNC_IO_BOTH;
    const nnc_json_member counts[] = {J_INT("launches", g->launches), J_INT("flops", g->flops),
        J_INT("bytes_moved", g->bytes),
        J_MS("with_copies_median_ms", both ? nnc_times_at(&g->io, 0.5) : 0)};
    nnc_json_member m[TIMES + NNC_COUNT(counts)];
    times_members(o, g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run, m);
    memcpy(m + TIMES, counts, sizeof counts);
    if (w->csv) {
        nnc_json_row(w, 0, m, TIMES + 3 + both);
        return;
    }
    nnc_json_open(w, NULL, '{');
    nnc_json_members(w, m, TIMES + 3);
    NNC_JSON(w, J_STRING("io", names[g->io_of]));
    if (both) {
        times_members(o, &g->io, m);
        nnc_json_open(w, "with_copies", '{');
        nnc_json_members(w, m, TIMES);
        nnc_json_close(w, '}');
    }
    if (g->io_of != NNC_IO_EXCLUDE)
        nnc_report_io_json(&g->report, w);
    if (g->parts)
        nnc_report_parts_json(g->part_ms, w);
    if (g->together.n)
        nnc_report_together_json(&g->together, w);
    nnc_report_first_run_json(s, w);
    nnc_power_json(&g->power, nnc_times_at(g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run, 0.5), w);
    if (g->chunks > 1)
        NNC_JSON(w, J_INT("chunks", g->chunks));
    nnc_json_end(w, '}');
}

static void print_text(const options *o, const timing *g, const nnc_session *s, nnc_text *out)
{
    const nnc_times *t = g->io_of == NNC_IO_INCLUDE ? &g->io : &g->run;
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
        g->launches == 1 ? "" : "es", (double)g->flops / nnc_times_at(t, 0.5) * 1e-6,
        (double)g->bytes / nnc_times_at(t, 0.5) * 1e-6);
    if (g->parts)
        nnc_report_parts(s, g->part_ms, out);
    nnc_report_first_run(s, out);
    if (!isnan(g->power.watts)) {
        nnc_power_put(&g->power, nnc_times_at(t, 0.5), out);
        nnc_putc(out, '\n');
    }
    if (g->together.n)
        nnc_report_together(&g->together, out);
}

static nnc_status load(const options *o, work *w, nnc_sink *sink)
{
    NNC_TRY(
        nnc_artifact_check_names(w->artifact, false, o->compare.input, o->compare.n_input, sink));
    NNC_TRY(nnc_artifact_check_names(w->artifact, true, o->output, o->n_output, sink));
    for (int i = 0; i < o->n_output; i++)
        NNC_TRY(nnc_artifact_check_output(w->artifact, o->output[i].value, false, sink));
    if (o->outputs)
        NNC_TRY(nnc_artifact_check_output(w->artifact, o->outputs, true, sink));
    progress((void *)o, "loading weights", NULL);
    NNC_TRY(nnc_session_create(w->env, w->artifact, &w->session, sink));
    print_warnings(sink);
    if (nnc_env_rank(w->env) > 0)
        return NNC_OK;
    return nnc_session_make_inputs(w->session, &o->compare, o->model.seed, sink);
}

/* Several models: together and alone. */
static nnc_status compare_alone(const options *o, work *w, nnc_together *out, nnc_sink *sink)
{
    const several *s = &w->several;
    nnc_compare_options c = o->compare;
    if (!s->n)
        return NNC_OK;
    c.seed = o->model.seed;
    c.progress = progress;
    c.progress_ctx = (void *)o;
    return nnc_measure_together(
        w->env, &o->env, w->artifact, w->session, s->model, s->name, s->n, &c, out, sink);
}

static nnc_status measure(const options *o, nnc_session *s, timing *g, nnc_sink *sink)
{
    if (g->io_of != NNC_IO_INCLUDE)
        NNC_TRY(nnc_session_time(s, &o->compare, false, &g->run, sink));
    if (g->io_of != NNC_IO_EXCLUDE) {
        NNC_TRY(nnc_session_time(s, &o->compare, true, &g->io, sink));
        g->report = nnc_session_stream_report(s);
    }
    return NNC_OK;
}

static nnc_status time_session(const options *o, work *w, nnc_sink *sink)
{
    timing g = {.io_of = o->compare.io, .chunks = nnc_artifact_chunks(w->artifact)};
    if (g.chunks > 1)
        g.io_of = NNC_IO_INCLUDE;
    progress((void *)o, "running", NULL);
    nnc_status st = compare_alone(o, w, &g.together, sink);
    nnc_power_begin(&g.power, w->session->ranks > 1 ? NULL : w->session->plan, NULL, false);
    if (!st)
        st = measure(o, w->session, &g, sink);
    nnc_power_end(&g.power);
    if (!st && o->trace)
        st = nnc_session_trace(
            w->env, w->session, o->compare.training != NULL, o->trace, o->predict, sink);
    g.parts = o->compare.training != NULL;
    if (!st && g.parts)
        st = nnc_session_part_times(w->session, g.part_ms, sink);
    if (!st)
        st = get_outputs(o, w->session, &w->text, sink);
    (o->compare.training ? nnc_artifact_step_work : nnc_artifact_work)(
        w->artifact, &g.flops, &g.bytes, &g.launches);
    nnc_json_writer json = {.out = &w->text, .csv = o->format == NNC_CSV};
    if (!st && o->format == NNC_TEXT)
        print_text(o, &g, w->session, &w->text);
    else if (!st)
        print_rows(o, &g, w->session, &json);
    nnc_free(g.run.ns);
    nnc_free(g.io.ns);
    nnc_together_free(&g.together);
    return st;
}

nnc_status cmd_run(const options *o, work *w, nnc_sink *sink)
{
    options with = *o;
    with.compare.training = o->mode == MODE_step ? &o->train.training : NULL;
    with.env.ranked = true;
    NNC_TRY(share_among_ranks(&with, o->sharing != NNC_STRATEGY_layers || o->compare.compile.split,
        &with.compare.compile.devices, sink));
    NNC_TRY(open_and_compile(&with, w, sink));
    NNC_TRY(note_advice(&with, w, o->mode, nnc_check_room(w->env, w->artifact, 0, sink), sink));
    NNC_TRY(load(&with, w, sink));
    w->no_text = nnc_env_rank(w->env) > 0;
    if (w->no_text)
        return nnc_env_follow(w->env, sink);
    return time_session(&with, w, sink);
}

/* ---- compare ----------------------------------------------------------------------------------------- */

nnc_status cmd_compare(const options *o, work *w, nnc_sink *sink)
{
    bool agrees = false;
    nnc_compare_options c = o->compare;
    NNC_TRY(check_split_only(o, "compare", sink));
    NNC_TRY(open_model(o, w, sink));
    NNC_TRY(open_env(o, w, sink));
    c.compile = compile_options(o, w);
    c.seed = o->model.seed;
    c.json = o->json ? &w->json : NULL;
    c.arg = o->model.arg;
    c.n_arg = o->model.n_arg;
    c.progress = progress;
    c.progress_ctx = (void *)o;
    c.training = o->mode == MODE_step ? &o->train.training : NULL;
    NNC_TRY(nnc_compare(w->env, w->model, &c, o->format, &w->text, &agrees, sink));
    return agrees ? NNC_OK : NNC_E_DIFFERS;
}

/* ---- profile ----------------------------------------------------------------------------------------- */

static nnc_status profile_here(
    const options *o, work *w, nnc_profile *p, nnc_together *together, nnc_sink *sink)
{
    const bool step = o->compare.training != NULL;
    NNC_TRY(note_advice(o, w, o->mode, nnc_check_room(w->env, w->artifact, 0, sink), sink));
    NNC_TRY(load(o, w, sink));
    w->no_text = nnc_env_rank(w->env) > 0;
    if (w->no_text)
        return nnc_env_follow(w->env, sink);
    NNC_TRY(compare_alone(o, w, together, sink)); /* first, on states that no run has changed */
    progress((void *)o, "profiling", NULL);
    NNC_TRY(nnc_profile_measure(w->env, w->session, step, &o->compare, &o->profile, p, sink));
    return o->trace ? nnc_session_trace(w->env, w->session, step, o->trace, o->predict, sink)
                    : NNC_OK;
}

static nnc_status profile_described(
    const options *o, work *w, nnc_profile *p, nnc_together *together, nnc_sink *sink)
{
    NNC_TRY(nnc_profile_predict(
        w->env, w->artifact, o->compare.training != NULL, &o->profile, p, sink));
    return compare_alone(o, w, together, sink);
}

static nnc_status write_html(const options *o, work *w, const nnc_profile *p, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) page = {0};
    NNC_TRY(nnc_profile_html(w->env, p, &page, sink));
    return nnc_write_picture(&page, o->html, sink);
}

/* Reads and compiles. An artifact of a step says so itself, and how it trains. */
static nnc_status open_profiled(const options *o, options *with, work *w, nnc_sink *sink)
{
    const bool compiled = nnc_is_artifact(o->file[0]);
    const nnc_status opened = open_and_compile(with, w, sink);
    if (opened && with->env.hardware && compiled)
        nnc_note(sink, (nnc_loc){.file = o->file[0]},
            "--hardware predicts an artifact on the machine that it was compiled for; name its "
            "model to plan it for that hardware");
    NNC_TRY(opened);
    if (compiled && nnc_is_step(w->artifact->plan))
        with->compare.training = &o->train.training;
    with->profile.model = w->several.name;
    with->profile.n_model = w->several.n;
    return NNC_OK;
}

nnc_status cmd_profile(const options *o, work *w, nnc_sink *sink)
{
    options with = *o;
    nnc_profile p = {0};
    nnc_profile_old old = {0};
    nnc_together together = {0};
    const bool described = o->env.hardware != NULL;
    with.compare.training = o->mode == MODE_step ? &o->train.training : NULL;
    with.env.ranked = !described;
    with.looks = described;
    if (described && o->trace)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--trace is of a measured run: nnc partition --trace draws the predicted ones");
    if (o->profile.sort == SORT_change && !o->against)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--sort=change is by the difference from another profile: it needs --against=FILE");
    NNC_TRY(share_among_ranks(&with, o->sharing != NNC_STRATEGY_layers || o->compare.compile.split,
        &with.compare.compile.devices, sink));
    nnc_status st = open_profiled(o, &with, w, sink);
    if (!st && o->against && !nnc_env_rank(w->env)) /* other ranks' hosts may not have the file */
        st = nnc_profile_read(o->against, o->profile.by, &old, sink);
    if (!st)
        st = (described ? profile_described : profile_here)(&with, w, &p, &together, sink);
    p.together = together.n ? &together : NULL;
    p.old = o->against ? &old : NULL;
    if (!st && !w->no_text)
        st = nnc_profile_print(w->env, &p, &o->profile, o->format, &w->text, sink);
    if (!st && !w->no_text && o->json)
        st = nnc_profile_print(w->env, &p, &o->profile, NNC_JSON, &w->json, sink);
    if (!st && !w->no_text && o->html)
        st = write_html(o, w, &p, sink);
    nnc_arena_deinit(&p.arena);
    nnc_arena_deinit(&old.arena);
    nnc_together_free(&together);
    return st;
}

/* profile/print.c -- a profile as text, CSV and JSON. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

static double share_of(const nnc_profile *p, double ms)
{
    return p->wall_ms > 0 ? ms / (p->wall_ms * p->lanes) : 0;
}

/* Least time over time; NaN where there is nothing to compute or move. */
static double reached(const nnc_profile_row *r)
{
    return r->least_ms > 0 && r->ms > 0 ? r->least_ms / r->ms : NAN;
}

static double rate(double work, double ms)
{
    return ms > 0 ? work / ms * 1e-6 : 0;
}

/* ---- text ------------------------------------------------------------------------------------------------ */

static void text_head(nnc_text *t, nnc_env *e, const nnc_profile *p, const nnc_session *s)
{
    nnc_printf(t, "%s on %s, %d thread%s: ", p->artifact->source->name, nnc_env_target(e),
        nnc_env_threads(e), nnc_plural(nnc_env_threads(e), "s"));
    nnc_puts(t, "a run takes ");
    if (p->predicted) {
        nnc_put_ms(t, p->wall_ms, 0);
        nnc_puts(t, " ms, predicted by the simulator, not measured\n");
        return;
    }
    nnc_put_ms(t, p->median_ms, 0);
    nnc_printf(t, " ms (median); with time stamps around each command ");
    nnc_put_ms(t, p->wall_ms, 0);
    nnc_printf(t, " ms (%+.1f %%; %d run%s, mean of the middle half)\n",
        100 * (p->wall_ms / p->median_ms - 1), p->active, nnc_plural(p->active, "s"));
    if (p->artifact->chunks > 1)
        nnc_printf(
            t, "A run is %lld chunks; this is one of them.\n", (long long)p->artifact->chunks);
    if (s)
        nnc_report_first_run(s, t);
}

static void text_row(nnc_text *t, const nnc_profile *p, const nnc_profile_row *r, bool module)
{
    const double share = reached(r);
    nnc_puts(t, r->divided && !module ? " ~" : "  ");
    nnc_put_ms(t, r->ms, 9);
    nnc_printf(t, "%7.1f %%%7d", 100 * share_of(p, r->ms), r->calls);
    r->flops > 0 ? nnc_printf(t, "%9.1f", rate(r->flops, r->ms)) : nnc_printf(t, "%9s", "-");
    r->bytes > 0 ? nnc_printf(t, "%8.1f", rate(r->bytes, r->ms)) : nnc_printf(t, "%8s", "-");
    if (isfinite(share))
        nnc_printf(t, "%6.0f %% %-10s ", 100 * share, nnc_level_names[nnc_profile_bound(r)]);
    else
        nnc_printf(t, "%8s %-10s ", "-", "");
    nnc_printf(t, "%-11s", r->engine);
    if (!module)
        nnc_printf(t, "%-22s ", r->calls == 1 ? r->shape : "");
    nnc_put_layers(t, r->name, 60);
    const nnc_profile_spread on = nnc_profile_spread_of(p, r);
    if (on.devices > 1) {
        nnc_printf(t, " (%d devices: mean ", on.devices);
        nnc_put_ms(t, on.mean_ms, 0);
        nnc_puts(t, ", slowest ");
        nnc_put_ms(t, on.slowest_ms, 0);
        nnc_puts(t, " ms, ");
        nnc_profile_put_device(t, p, on.slowest);
        nnc_putc(t, ')');
    }
    nnc_trim(t);
    nnc_putc(t, '\n');
}

static void text_sum(nnc_text *t, const nnc_profile *p, double ms, const char *what)
{
    nnc_puts(t, "  ");
    nnc_put_ms(t, ms, 9);
    nnc_printf(t, "%7.1f %%  %s\n", 100 * share_of(p, ms), what);
}

/* The time of the row that `n` rows at most exceed. Modules are printed in the order of their paths, those that take longest. */
static double nth_time(const nnc_profile_rows *rows, int n)
{
    double at = 0;
    for (int i = 0; i < rows->n; i++) {
        int more = 0;
        for (int k = 0; k < rows->n; k++)
            more += rows->row[k].ms > rows->row[i].ms;
        if (more < n && (at == 0 || rows->row[i].ms < at))
            at = rows->row[i].ms;
    }
    return at;
}

static void text_rows(
    nnc_text *t, const nnc_profile *p, const nnc_profile_options *o, const nnc_profile_rows *rows)
{
    const int top = o->top && o->top < rows->n ? o->top : rows->n;
    const bool module = o->by == BY_module;
    const double least = module ? nth_time(rows, top) : 0;
    double rest = 0;
    nnc_printf(t, "\n%11s%9s%7s%9s%8s%8s %-10s %-11s%s%s\n", "ms", "share", "calls", "GFLOP/s",
        "GB/s", "limit", "of", "engine", module ? "" : "result                 ",
        nnc_profile_by_names[o->by]);
    for (int i = 0; i < rows->n; i++)
        if (module ? rows->row[i].ms >= least : i < top)
            text_row(t, p, &rows->row[i], module);
        else
            rest += rows->row[i].ms;
    NNC_LOCAL(nnc_text) what = {0};
    nnc_printf(&what, "%d more (--top=0 lists all)", rows->n - top);
    if (top < rows->n && !module)
        text_sum(t, p, rest, nnc_text_str(&what));
    text_sum(t, p, p->idle_ms, "idle: no command runs");
    nnc_text_deinit(&what);
    if (p->lanes > 1)
        nnc_printf(&what, "%d streams for ", p->lanes);
    else
        nnc_puts(&what, "a run of ");
    nnc_put_ms(&what, p->wall_ms, 0);
    nnc_puts(&what, " ms");
    text_sum(t, p, p->wall_ms * p->lanes, nnc_text_str(&what));
    t->oom |= what.oom;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------------------- */

void nnc_profile_rows_json(nnc_json_writer *w, const nnc_profile *p, const nnc_profile_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        const nnc_profile_row *r = &rows->row[i];
        const nnc_profile_spread on = nnc_profile_spread_of(p, r);
        NNC_JSON_ROW(w, 2, J_STRING("name", r->name), J_MS("ms", r->ms),
            J_REAL("share", nnc_decimals(share_of(p, r->ms), 6)), J_INT("calls", r->calls),
            J_BOOL("divided", r->divided), J_INT("flops", (int64_t)r->flops),
            J_INT("bytes_moved", (int64_t)r->bytes), J_MS("least_ms", r->least_ms),
            J_STRING("limit", r->least_ms > 0 ? nnc_level_names[nnc_profile_bound(r)] : ""),
            J_STRING("engine", r->engine), J_STRING("op", r->op),
            J_STRING("result", r->calls == 1 ? r->shape : ""), J_INT("devices", on.devices),
            J_MS("slowest_ms", on.slowest_ms), J_INT("slowest_device", on.slowest));
    }
    NNC_JSON_ROW(w, 2, J_STRING("name", "idle"), J_MS("ms", p->idle_ms),
        J_REAL("share", nnc_decimals(share_of(p, p->idle_ms), 6)), J_INT("calls", 0),
        J_BOOL("divided", false), J_INT("flops", 0), J_INT("bytes_moved", 0), J_MS("least_ms", 0),
        J_STRING("limit", ""), J_STRING("engine", ""), J_STRING("op", ""), J_STRING("result", ""),
        J_INT("devices", p->artifact->plan->n_device), J_MS("slowest_ms", 0),
        J_INT("slowest_device", 0));
}

void nnc_profile_head_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p)
{
    NNC_LOCAL(nnc_text) verdict = {0};
    nnc_profile_verdict(p, &verdict);
    NNC_JSON(w, J_STRING("model", p->artifact->source->name), J_STRING("target", nnc_env_target(e)),
        J_INT("threads", nnc_env_threads(e)), J_BOOL("predicted", p->predicted),
        J_MS("median_ms", p->median_ms), J_MS("wall_ms", p->wall_ms), J_INT("runs", p->active),
        J_INT("streams", p->lanes), J_INT("chunks", p->artifact->chunks),
        J_STRING("verdict", nnc_text_str(&verdict)));
    nnc_profile_devices_json(w, p);
    w->out->oom |= verdict.oom;
}

static void print_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p,
    const nnc_profile_options *o, const nnc_profile_rows *rows, const nnc_session *s)
{
    if (w->csv) {
        nnc_profile_rows_json(w, p, rows);
        return;
    }
    nnc_json_open(w, NULL, '{');
    nnc_profile_head_json(w, e, p);
    NNC_JSON(w, J_STRING("by", nnc_profile_by_names[o->by]));
    if (s)
        nnc_report_first_run_json(s, w);
    nnc_json_line(w, 1);
    nnc_json_open(w, "rows", '[');
    nnc_profile_rows_json(w, p, rows);
    nnc_json_close(w, ']');
    nnc_json_end(w, '}');
}

nnc_status nnc_profile_print(nnc_env *e, const nnc_profile *p, const nnc_profile_options *o,
    const nnc_session *s, nnc_format f, nnc_text *out, nnc_sink *sink)
{
    nnc_profile_rows rows;
    nnc_status st = nnc_profile_group(p, o, &rows, sink);
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    if (!st && f != NNC_TEXT)
        print_json(&w, e, p, o, &rows, s);
    if (!st && f == NNC_TEXT) {
        text_head(out, e, p, s);
        text_rows(out, p, o, &rows);
        nnc_profile_devices_text(out, p);
        NNC_LOCAL(nnc_text) verdict = {0};
        nnc_profile_verdict(p, &verdict);
        nnc_putc(out, '\n');
        nnc_put_wrapped(out, nnc_text_str(&verdict), 0, 0, REPORT_WIDTH);
        nnc_putc(out, '\n');
    }
    nnc_arena_deinit(&rows.arena);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}

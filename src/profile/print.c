/* profile/print.c -- a profile as text, CSV and JSON. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <string.h>
#include <time.h>

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

const char *const nnc_profile_phases[PHASE__COUNT] = {
    "compile", "load", "pack weights", "first run", "capture", "steady state"};

double nnc_profile_phase_ms(const nnc_profile *p, nnc_profile_phase phase)
{
    const int64_t *ns = p->first_run.ns;
    int64_t load = 0;
    for (int i = 0; i < NNC_PH_prepare; i++)
        load += ns[i];
    switch (phase) {
    case PHASE_compile: return (double)nnc_artifact_stats(p->artifact)->total_ns * 1e-6;
    case PHASE_load: return (double)load * 1e-6;
    case PHASE_pack: return (double)ns[NNC_PH_prepare] * 1e-6;
    case PHASE_first: return (double)ns[NNC_PH_first] * 1e-6;
    case PHASE_capture: return (double)ns[NNC_PH_capture] * 1e-6;
    default: return p->median_ms;
    }
}

/* Words as lines; clears them. */
static void text_words(nnc_text *out, nnc_text *words)
{
    if (words->n) {
        nnc_put_wrapped(out, nnc_text_str(words), 0, 0, REPORT_WIDTH);
        nnc_putc(out, '\n');
    }
    nnc_text_clear(words);
}

static void text_phases(nnc_text *t, const nnc_profile *p)
{
    nnc_printf(t, "\n%11s  phase\n", "ms");
    for (nnc_profile_phase k = 0; k < PHASE__COUNT; k++) {
        const double ms = nnc_profile_phase_ms(p, k);
        if (!(ms > 0))
            continue;
        nnc_puts(t, "  ");
        nnc_put_ms(t, ms, 9);
        NNC_LOCAL(nnc_text) words = {.into = t};
        nnc_puts(&words, nnc_profile_phases[k]);
        if (k == PHASE_load)
            nnc_put_loading(&words, &p->first_run);
        nnc_puts(t, "  ");
        nnc_put_wrapped(t, nnc_text_str(&words), 13, 13, REPORT_WIDTH);
        nnc_putc(t, '\n');
    }
}

/* When the rates were measured that least times follow from. */
static void text_rates(nnc_text *t, const nnc_profile *p)
{
    const int64_t age = nnc_max64((int64_t)time(NULL) - p->rates.since_s, 0);
    if (!p->rates.since_s)
        return;
    nnc_puts(t, "Least times are by this machine's rates, measured ");
    if (age < 60)
        nnc_puts(t, "now");
    else if (age < 2 * 3600)
        nnc_printf(t, "%lld min ago", (long long)(age / 60));
    else if (age < 48 * 3600)
        nnc_printf(t, "%lld h ago", (long long)(age / 3600));
    else
        nnc_printf(t, "%lld days ago", (long long)(age / 86400));
    nnc_puts(t, age < 60 ? "" : " (--no-cache measures again)");
    nnc_puts(t, ":");
    if (p->rates.flops_s > 0)
        nnc_printf(t, " %.4g GFLOP/s", p->rates.flops_s * 1e-9);
    for (int l = 0; l < LEVEL_arithmetic; l++)
        if (p->rates.bytes_s[l] > 0)
            nnc_printf(t, "; %s %.4g GB/s", nnc_level_names[l], p->rates.bytes_s[l] * 1e-9);
    nnc_puts(t, ".");
}

/* What measures the times of commands. */
static const char *clock_of(const nnc_profile *p)
{
    const nnc_plan *plan = p->artifact->plan;
    bool gpu = false, cpu = false;
    for (int d = 0; d < plan->n_device; d++)
        *(nnc_plan_on_gpu(&plan->device[d]) ? &gpu : &cpu) = true;
    return p->predicted        ? "the simulator"
           : !gpu              ? "the host's clock"
           : cpu               ? "the host's clock and CUDA events"
           : p->clock.activity ? "CUPTI"
                               : "CUDA events";
}

static void put_outside(nnc_text *t, const nnc_profile *p, const char *before, const char *after)
{
    if (!(p->outside_ms > 0))
        return;
    nnc_puts(t, before);
    nnc_put_ms(t, p->outside_ms, 0);
    nnc_puts(t, after);
}

static void text_profiled(nnc_text *t, const nnc_profile *p)
{
    nnc_puts(t, "Profiled from its first command to its last ");
    nnc_put_ms(t, p->wall_ms, 0);
    nnc_printf(
        t, " ms (mean of the middle half of %d run%s)", p->active, nnc_plural(p->active, "s"));
    put_outside(t, p, ", before and after them ", " ms");
    nnc_printf(t,
        p->clock.activity ? "; times of commands are those of %s's records of activity"
                          : "; time stamps around each command are by %s",
        clock_of(p));
    if (*p->clock.why)
        nnc_printf(t, " (not CUPTI: %s)", p->clock.why);
    const nnc_ratio *o = &p->overhead;
    if (o->ratio < 1 || (isfinite(o->low) && !nnc_significant(o)))
        nnc_puts(t, "; their cost is not significant");
    else if (isfinite(o->ratio))
        nnc_printf(t, "; they cost %.1f %%", 100 * (o->ratio - 1));
    if (isfinite(o->low))
        nnc_printf(t, " (95 %% CI %.1f to %.1f %%)", 100 * (o->low - 1), 100 * (o->high - 1));
    nnc_puts(t, ".");
    if (p->cycles > 1) {
        nnc_printf(t, " Means of %d cycles:", p->cycles);
        for (int i = 0; i < p->cycles; i++) {
            nnc_puts(t, i ? ", " : " ");
            nnc_put_ms(t, p->cycle_ms[i], 0);
        }
        nnc_puts(t, " ms.");
    }
}

static void text_head(nnc_text *t, nnc_env *e, const nnc_profile *p)
{
    NNC_LOCAL(nnc_text) words = {.into = t};
    const long long chunks = p->artifact->chunks;
    nnc_printf(t, "%s on %s, %d thread%s: ", p->artifact->source->name, nnc_env_target(e),
        nnc_env_threads(e), nnc_plural(nnc_env_threads(e), "s"));
    nnc_puts(t, p->predicted && chunks > 1 ? "a chunk takes " : "a run takes ");
    nnc_put_ms(t, p->predicted ? p->wall_ms + p->outside_ms : p->median_ms, 0);
    if (!p->predicted) {
        nnc_puts(t, " ms (median)\n");
        text_profiled(&words, p);
    } else {
        nnc_puts(t, " ms, predicted by the simulator, not measured\n");
        put_outside(&words, p, "Of it, before its first command and after its last: ", " ms.");
    }
    text_words(t, &words);
    if (chunks > 1)
        nnc_printf(t, "A run is %lld chunks; this is one of them.\n", chunks);
    if (p->predicted)
        return;
    text_rates(&words, p);
    text_words(t, &words);
    nnc_power_put(&p->power, p->median_ms, &words);
    text_words(t, &words);
    text_phases(t, p);
}

/* Time in the file of --against, and the ratio of now to then. */
static void text_was(nnc_text *t, double ms, double was)
{
    if (isnan(was)) {
        nnc_printf(t, "%10s%7s", "-", "new");
        return;
    }
    nnc_putc(t, ' ');
    nnc_put_ms(t, was, 9);
    ms > 0 && was > 0 ? nnc_printf(t, "%7.2f", ms / was)
                      : nnc_printf(t, "%7s", ms > 0 || was <= 0 ? "-" : "gone");
}

static void text_row(nnc_text *t, const nnc_profile *p, const nnc_profile_row *r, nnc_profile_by by)
{
    const bool module = by == BY_module, compared = nnc_profile_compared(p, by);
    const double share = reached(r);
    nnc_puts(t, r->divided && !module ? " ~" : "  ");
    nnc_put_ms(t, r->ms, 9);
    nnc_printf(t, "%7.1f %%", 100 * share_of(p, r->ms));
    if (module)
        nnc_put_ms(t, r->self_ms, 10);
    if (compared)
        text_was(t, r->ms, r->was_ms);
    nnc_printf(t, "%7d", r->calls);
    r->flops > 0 ? nnc_printf(t, "%9.1f", rate(r->flops, r->ms)) : nnc_printf(t, "%9s", "-");
    r->bytes > 0 ? nnc_printf(t, "%8.1f", rate(r->bytes, r->ms)) : nnc_printf(t, "%8s", "-");
    nnc_printf(t, "%9.2f", (double)r->alive / (1 << 20));
    if (isfinite(share))
        nnc_printf(t, "%6.0f %% %-10s ", 100 * share, nnc_level_names[nnc_profile_bound(r)]);
    else
        nnc_printf(t, "%8s %-10s ", "-", "");
    nnc_printf(t, "%-9s", r->engine);
    if (!module && !compared)
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

/* was: with --against. */
static void text_sum(
    nnc_text *t, const nnc_profile *p, nnc_profile_by by, double ms, double was, const char *what)
{
    nnc_puts(t, "  ");
    nnc_put_ms(t, ms, 9);
    nnc_printf(t, "%7.1f %%%*s", 100 * share_of(p, ms), by == BY_module ? 10 : 0, "");
    if (nnc_profile_compared(p, by))
        text_was(t, ms, was);
    nnc_printf(t, "  %s\n", what);
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
    const bool module = o->by == BY_module, compared = nnc_profile_compared(p, o->by);
    const double least = module ? nth_time(rows, top) : 0;
    double rest = 0, was = 0;
    nnc_printf(t, "\n%11s%9s%s%s%7s%9s%8s%9s%8s %-10s %-9s%s%s\n", "ms", "share",
        module ? "   self ms" : "", compared ? " there, ms  ratio" : "", "calls", "GFLOP/s", "GB/s",
        "MiB", "limit", "of", "engine", module || compared ? "" : "result                 ",
        nnc_profile_by_names[o->by]);
    for (int i = 0; i < rows->n; i++) {
        const nnc_profile_row *r = &rows->row[i];
        if (module ? r->ms >= least : i < top) {
            text_row(t, p, r, o->by);
        } else {
            rest += r->ms;
            was += isnan(r->was_ms) ? 0 : r->was_ms;
        }
    }
    NNC_LOCAL(nnc_text) what = {.into = t};
    nnc_printf(&what, "%d more (--top=0 lists all)", rows->n - top);
    if (top < rows->n && !module)
        text_sum(t, p, o->by, rest, was, nnc_text_str(&what));
    text_sum(t, p, o->by, p->idle_ms, compared ? p->old->idle_ms : 0, "idle: no command runs");
    nnc_text_clear(&what);
    if (p->lanes > 1)
        nnc_printf(&what, "%d streams for ", p->lanes);
    else
        nnc_puts(&what, "a run of ");
    nnc_put_ms(&what, p->wall_ms, 0);
    nnc_puts(&what, " ms");
    text_sum(t, p, o->by, p->wall_ms * p->lanes, compared ? p->old->wall_ms * p->old->lanes : 0,
        nnc_text_str(&what));
}

/* A library may compute a convolution by Winograd's algorithm, of which the plan does not know. */
static void text_beyond(nnc_text *t, const nnc_profile_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        const nnc_profile_row *r = &rows->row[i];
        if (reached(r) > 1 && nnc_profile_bound(r) == LEVEL_arithmetic &&
            nnc_engine_has_winograd(r->engine)) {
            nnc_puts(t, "Above 100 % of the limit: FLOPs count direct sums, and cuDNN's algorithm "
                        "needs fewer (Winograd's).\n");
            return;
        }
    }
}

/* ---- JSON and CSV ---------------------------------------------------------------------------------------- */

static void row_json(
    nnc_json_writer *w, const nnc_profile *p, const nnc_profile_row *r, bool compared)
{
    const nnc_profile_spread on = nnc_profile_spread_of(p, r);
    const nnc_json_member m[] = {J_STRING("name", r->name), J_MS("ms", r->ms),
        J_MS("self_ms", r->self_ms), J_REAL("share", nnc_decimals(share_of(p, r->ms), 6)),
        J_INT("calls", r->calls), J_BOOL("divided", r->divided), J_INT("flops", (int64_t)r->flops),
        J_INT("bytes_moved", (int64_t)r->bytes), J_MS("least_ms", r->least_ms),
        J_STRING("limit", r->least_ms > 0 ? nnc_level_names[nnc_profile_bound(r)] : ""),
        J_STRING("engine", r->engine), J_STRING("op", r->op),
        J_STRING("result", r->calls == 1 ? r->shape : ""), J_INT("memory_bytes", r->alive),
        J_INT("allocated_bytes", (int64_t)r->allocated),
        J_REAL(
            "joules", nnc_decimals(p->power.watts * p->median_ms * 1e-3 * share_of(p, r->ms), 9)),
        J_INT("devices", on.devices), J_MS("slowest_ms", on.slowest_ms),
        J_INT("slowest_device", on.slowest), J_MS("was_ms", r->was_ms),
        J_REAL("ratio", r->was_ms > 0 ? nnc_decimals(r->ms / r->was_ms, 6) : NAN)};
    nnc_json_row(w, 2, m, NNC_COUNT(m) - (compared ? 0 : 2));
}

void nnc_profile_rows_json(
    nnc_json_writer *w, const nnc_profile *p, nnc_profile_by by, const nnc_profile_rows *rows)
{
    const bool compared = nnc_profile_compared(p, by);
    const nnc_profile_row idle = {.name = "idle",
        .shape = "",
        .engine = "",
        .op = "",
        .ms = p->idle_ms,
        .self_ms = p->idle_ms,
        .was_ms = compared ? p->old->idle_ms : NAN};
    for (int i = 0; i < rows->n; i++)
        row_json(w, p, &rows->row[i], compared);
    row_json(w, p, &idle, compared);
}

void nnc_profile_against_json(
    nnc_json_writer *w, const nnc_profile *p, const nnc_profile_rows *rows)
{
    const nnc_profile_old *old = p->old;
    NNC_LOCAL(nnc_text) words = {.into = w->out};
    nnc_profile_put_against(p, rows, &words);
    NNC_JSON_OBJECT(w, "against", J_STRING("file", old->file), J_STRING("model", old->model),
        J_STRING("target", old->target), J_INT("threads", old->threads),
        J_BOOL("predicted", old->predicted), J_MS("wall_ms", old->wall_ms),
        J_REAL("ratio", nnc_decimals(p->wall_ms / old->wall_ms, 6)),
        J_STRING("differences", nnc_text_str(&words)));
}

static void rates_json(nnc_json_writer *w, const nnc_profile *p)
{
    const double *bytes = p->rates.bytes_s;
    NNC_JSON_OBJECT(w, "rates", J_INT("measured_s", p->rates.since_s),
        J_REAL("flops_s", nnc_decimals(p->rates.flops_s, 0)),
        J_REAL("L1_bytes_s", nnc_decimals(bytes[LEVEL_l1], 0)),
        J_REAL("L2_bytes_s", nnc_decimals(bytes[LEVEL_l2], 0)),
        J_REAL("L3_bytes_s", nnc_decimals(bytes[LEVEL_l3], 0)),
        J_REAL("memory_bytes_s", nnc_decimals(bytes[LEVEL_memory], 0)));
}

static void phases_json(nnc_json_writer *w, const nnc_profile *p)
{
    nnc_json_open(w, "phases", '[');
    for (nnc_profile_phase k = 0; k < PHASE__COUNT; k++)
        NNC_JSON_OBJECT(w, NULL, J_STRING("name", nnc_profile_phases[k]),
            J_MS("ms", nnc_profile_phase_ms(p, k)));
    nnc_json_close(w, ']');
}

void nnc_profile_head_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p)
{
    NNC_LOCAL(nnc_text) verdict = {.into = w->out};
    nnc_profile_verdict(p, &verdict);
    NNC_JSON(w, J_STRING("model", p->artifact->source->name), J_STRING("target", nnc_env_target(e)),
        J_INT("threads", nnc_env_threads(e)), J_BOOL("predicted", p->predicted),
        J_STRING("clock", clock_of(p)), J_STRING("clock_why", p->clock.why),
        J_MS("median_ms", p->median_ms), J_MS("wall_ms", p->wall_ms), J_INT("runs", p->active),
        J_REAL("overhead", nnc_decimals(p->overhead.ratio - 1, 6)),
        J_REAL("overhead_low", nnc_decimals(p->overhead.low - 1, 6)),
        J_REAL("overhead_high", nnc_decimals(p->overhead.high - 1, 6)),
        J_MS("outside_ms", p->outside_ms), J_REAL("cpu_share", nnc_decimals(p->cpu_share, 6)),
        J_INT("streams", p->lanes), J_INT("chunks", p->artifact->chunks),
        J_STRING("verdict", nnc_text_str(&verdict)));
    if (!p->predicted) {
        nnc_put_first_run_json(w, &p->first_run);
        nnc_power_json(&p->power, p->median_ms, w);
        rates_json(w, p);
        phases_json(w, p);
    }
    nnc_json_open(w, "cycles_ms", '[');
    for (int i = 0; i < p->cycles; i++)
        NNC_JSON(w, J_MS(NULL, p->cycle_ms[i]));
    nnc_json_close(w, ']');
    nnc_profile_devices_json(w, p);
}

static void print_json(nnc_json_writer *w, nnc_env *e, const nnc_profile *p,
    const nnc_profile_options *o, const nnc_profile_rows *rows)
{
    if (w->csv) {
        nnc_profile_rows_json(w, p, o->by, rows);
        return;
    }
    nnc_json_open(w, NULL, '{');
    nnc_profile_head_json(w, e, p);
    NNC_JSON(w, J_STRING("by", nnc_profile_by_names[o->by]));
    if (nnc_profile_compared(p, o->by))
        nnc_profile_against_json(w, p, rows);
    nnc_json_line(w, 1);
    nnc_json_open(w, "rows", '[');
    nnc_profile_rows_json(w, p, o->by, rows);
    nnc_json_close(w, ']');
    nnc_json_end(w, '}');
}

nnc_status nnc_profile_print(nnc_env *e, const nnc_profile *p, const nnc_profile_options *o,
    nnc_format f, nnc_text *out, nnc_sink *sink)
{
    nnc_profile_rows rows;
    nnc_status st = nnc_profile_group(p, o, &rows, sink);
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    if (!st && f != NNC_TEXT)
        print_json(&w, e, p, o, &rows);
    if (!st && f == NNC_TEXT) {
        text_head(out, e, p);
        text_rows(out, p, o, &rows);
        text_beyond(out, &rows);
        nnc_profile_devices_text(out, p);
        NNC_LOCAL(nnc_text) words = {.into = out};
        nnc_profile_verdict(p, &words);
        nnc_putc(out, '\n');
        text_words(out, &words);
        if (nnc_profile_compared(p, o->by)) {
            nnc_putc(out, '\n');
            nnc_profile_put_against(p, &rows, &words);
            text_words(out, &words);
        }
    }
    nnc_arena_deinit(&rows.arena);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}

/* profile/measure.c -- times of a run's commands: measured around each command in some runs, or simulated on described hardware. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 5, MOST_RUNS = 50, ENOUGH_MS = 200 };

/* Times of one profiled run. */
typedef struct run {
    int64_t wall_ps;
    int64_t *ps; /* by command from main on: its time; -1: it did not run */
} run;

static bool is_counted(const nnc_cmd *c)
{
    return c->kind != CMD_record && c->kind != CMD_wait;
}

static int by_wall(const void *a, const void *b)
{
    const run *x = a, *y = b;
    return (x->wall_ps > y->wall_ps) - (x->wall_ps < y->wall_ps);
}

/* Sets r from start and end times of n commands from `first` on. */
static bool keep(nnc_arena *a, run *r, const nnc_plan *p, int32_t first, int n,
    const int64_t *start, const int64_t *end)
{
    int64_t from = INT64_MAX, to = 0;
    r->ps = ARENA_NEW(a, int64_t, n + 1);
    for (int i = 0; r->ps && i < n; i++) {
        const bool ran = is_counted(&p->cmd[first + i]) && start[i] >= 0 && end[i] >= start[i];
        r->ps[i] = ran ? end[i] - start[i] : -1;
        from = ran ? nnc_min64(from, start[i]) : from;
        to = ran ? nnc_max64(to, end[i]) : to;
    }
    r->wall_ps = from < to ? to - from : 0;
    return r->ps != NULL;
}

/* Streams that have commands which ran. */
static int count_lanes(const nnc_plan *p, const nnc_profile *out)
{
    int n = 0;
    for (int i = 0; i < out->n; i++) {
        const nnc_cmd *c = &p->cmd[out->cmd[i].cmd];
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) {
            const nnc_cmd *o = &p->cmd[out->cmd[k].cmd];
            seen = o->device == c->device && o->stream == c->stream;
        }
        n += !seen;
    }
    return n;
}

/* Sets the commands' times to means over runs r[from .. to - 1], and what follows from them. */
static nnc_status conclude(nnc_env *e, nnc_profile *out, int32_t first, int n, const run *r,
    int from, int to, nnc_sink *sink)
{
    const nnc_plan *p = out->artifact->plan;
    double busy = 0;
    out->cmd = ARENA_NEW(&out->arena, nnc_profile_cmd, n + 1);
    NNC_NEED(out->cmd, sink);
    for (int k = from; k < to; k++)
        out->wall_ms += (double)r[k].wall_ps * 1e-9 / (to - from);
    for (int i = 0; i < n; i++) {
        nnc_profile_cmd c = {.cmd = first + i};
        const nnc_cmd *of = &p->cmd[first + i];
        if (r[from].ps[i] < 0)
            continue;
        for (int k = from; k < to; k++)
            c.ms += (double)r[k].ps[i] * 1e-9 / (to - from);
        c.least_ms = 1e-6 * nnc_command_least_ns(&out->rates, p,
                                nnc_target_on(e->target, e->n_target, of->device), of, &c.bound);
        busy += c.ms;
        out->cmd[out->n++] = c;
    }
    out->target = nnc_target_on(e->target, e->n_target, 0);
    out->lanes = count_lanes(p, out);
    out->idle_ms = fmax(out->wall_ms * out->lanes - busy, 0);
    return NNC_OK;
}

static nnc_status profile_runs(nnc_tracing *x, nnc_profile *out, nnc_section last, int want, run *r,
    int *n_run, nnc_sink *sink)
{
    const nnc_plan *p = out->artifact->plan;
    const int32_t first = nnc_plan_first(p, SEC_main);
    const int n = p->end[last] - first;
    NNC_FREED int64_t *start = nnc_calloc((size_t)n + 1, sizeof *start),
                      *end = nnc_calloc((size_t)n + 1, sizeof *end);
    double spent = 0;
    NNC_NEED(start && end, sink);
    for (int i = -2; i < (want ? want : MOST_RUNS); i++) { /* two warm up */
        run *to = &r[i < 0 ? 0 : i];
        if (!want && i >= LEAST_RUNS && spent > ENOUGH_MS)
            break;
        NNC_TRY(nnc_tracing_times(x, SEC_main, last, start, end, sink));
        NNC_NEED(keep(&out->arena, to, p, first, n, start, end), sink);
        spent += i < 0 ? 0 : (double)to->wall_ps * 1e-9;
        *n_run = i + 1;
    }
    return NNC_OK;
}

nnc_status nnc_profile_measure(nnc_env *e, nnc_session *s, bool step, const nnc_compare_options *t,
    const nnc_profile_options *o, nnc_profile *out, nnc_sink *sink)
{
    const nnc_section last = step ? SEC_step : SEC_main;
    nnc_times times = {0};
    NNC_OWNED(nnc_tracing) *x = NULL;
    int n = 0;
    *out = (nnc_profile){.artifact = s->a};
    run *r = ARENA_NEW(&out->arena, run, o->active ? o->active : MOST_RUNS);
    NNC_NEED(r, sink);
    nnc_status st = nnc_session_time(s, t, false, &times, sink);
    out->median_ms = nnc_times_at(&times, 0.5);
    nnc_free(times.ns);
    if (!st)
        st = nnc_tracing_create(s, &x, sink);
    if (!st) {
        nnc_tracing_behind(x, e);
        st = profile_runs(x, out, last, o->active, r, &n, sink);
    }
    NNC_TRY(st);
    out->active = n;
    qsort(r, (size_t)n, sizeof *r, by_wall);
    const int32_t first = nnc_plan_first(s->plan, SEC_main);
    return conclude(e, out, first, s->plan->end[last] - first, r, n / 4, n - n / 4, sink);
}

nnc_status nnc_profile_predict(
    nnc_env *e, const nnc_artifact *a, bool step, nnc_profile *out, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const nnc_sim_plan_options o = {.first = SEC_main, .last = step ? SEC_step : SEC_main};
    NNC_LOCAL(nnc_sim_plan) s = {0};
    run r = {0};
    *out = (nnc_profile){.artifact = a, .predicted = true, .median_ms = NAN, .active = 1};
    nnc_rates_described(&out->rates, nnc_target_on(e->target, e->n_target, 0));
    NNC_TRY(nnc_sim_plan_run(&s, p, e->cluster, &o, sink));
    NNC_FREED int64_t *start = nnc_calloc((size_t)s.n_cmd + 1, sizeof *start),
                      *end = nnc_calloc((size_t)s.n_cmd + 1, sizeof *end);
    NNC_NEED(start && end, sink);
    for (int i = 0; i < s.n_cmd; i++) {
        start[i] = s.span[i].start_ps;
        end[i] = s.span[i].end_ps;
    }
    NNC_NEED(keep(&out->arena, &r, p, s.first, s.n_cmd, start, end), sink);
    return conclude(e, out, s.first, s.n_cmd, &r, 0, 1, sink);
}

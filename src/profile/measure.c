/* profile/measure.c -- times of a run's commands: measured around each command in some runs, or simulated on described hardware. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_RUNS = 5,
    MOST_RUNS = 50,
    ENOUGH_MS = 200,
    WARMUP_RUNS = 2,
    LEAST_PAIRS = 3,
    INTERVAL = 6, /* pairs that have an interval (nnc_pairs) */
    MOST_PAIRS = 25 /* of runs with and without profiling */
};

static const nnc_ratio NO_RATIO = {0, NAN, NAN, NAN};

/* Times of one profiled run. */
typedef struct run {
    int64_t wall_ps, host_ns; /* from the first start to the last end, and for the host */
    int64_t *ps; /* by command from main on: its time; -1: it did not run */
    nnc_shares *device;
    int64_t together_ps; /* of several models */
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

/* Sets r from the times of a run. */
static nnc_status keep(
    nnc_arena *a, run *r, const nnc_plan_times *t, const nnc_profile_options *o, nnc_sink *sink)
{
    const nnc_plan *p = t->plan;
    int64_t from = INT64_MAX, to = 0;
    r->ps = ARENA_NEW(a, int64_t, t->n + 1);
    r->device = ARENA_NEW(a, nnc_shares, p->n_device + 1);
    NNC_NEED(r->ps && r->device, sink);
    for (int i = 0; i < t->n; i++) {
        const int64_t start = t->start_ps[i], end = t->end_ps[i];
        const bool ran = is_counted(&p->cmd[t->first + i]) && start >= 0 && end >= start;
        r->ps[i] = ran ? end - start : -1;
        from = ran ? nnc_min64(from, start) : from;
        to = ran ? nnc_max64(to, end) : to;
    }
    r->wall_ps = from < to ? to - from : 0;
    NNC_TRY(nnc_profile_overlap(t, o, &r->together_ps, sink));
    return nnc_add_shares(t, 1, r->device, sink);
}

/* Sets *x, zeros, to device d's mean over n runs. */
static void mean_shares(nnc_shares *x, int d, const run *r, int n)
{
    for (int k = 0; k < n; k++)
        nnc_sum_shares(x, &r[k].device[d], 1);
    for (int k = 0; k < PART__COUNT; k++)
        x->part[k] /= n;
    x->waits /= n;
    x->hidden /= n;
    x->idle /= n;
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

/* Sets the commands' least times. Kept rates of a time when the machine was busy are measured again if a command is faster than they
 * allow. */
static void add_least(nnc_env *e, nnc_profile *out)
{
    const nnc_plan *p = out->artifact->plan;
    bool again;
    if (!out->predicted)
        nnc_rates_open(&out->rates, e);
    do {
        again = false;
        for (int i = 0; i < out->n; i++) {
            nnc_profile_cmd *c = &out->cmd[i];
            const nnc_cmd *of = &p->cmd[c->cmd];
            c->least_ms =
                1e-6 * nnc_command_least_ns(&out->rates, p,
                           nnc_target_on(e->target, e->n_target, of->device), of, &c->bound);
            again = again || nnc_rates_again(&out->rates, c->least_ms, c->ms);
        }
    } while (again);
    if (!out->predicted)
        nnc_rates_close(&out->rates, e);
}

/* Adds the bytes of arena tensors to their device's commands while they are live, and to the commands that first write them. */
static void add_memory(nnc_profile *out)
{
    const nnc_plan *p = out->artifact->plan;
    for (int32_t t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        if (x->space != SP_arena || x->alias_of >= 0)
            continue;
        const int64_t bytes = nnc_align_up(x->bytes, nnc_plan_align(&p->device[x->device]));
        for (int i = 0; i < out->n; i++) {
            nnc_profile_cmd *c = &out->cmd[i];
            if (p->cmd[c->cmd].device != x->device || c->cmd < x->first || c->cmd > x->last)
                continue;
            c->alive += bytes;
            c->allocated += c->cmd == x->first ? bytes : 0;
        }
    }
}

/* Sets the commands' times to means over runs r[from .. to - 1], and what follows from them. */
static nnc_status conclude(nnc_env *e, nnc_profile *out, int32_t first, int n, const run *r,
    int from, int to, nnc_sink *sink)
{
    const nnc_plan *p = out->artifact->plan;
    double busy = 0;
    out->cmd = ARENA_NEW(&out->arena, nnc_profile_cmd, n + 1);
    out->device = ARENA_NEW(&out->arena, nnc_shares, p->n_device + 1);
    NNC_NEED(out->cmd && out->device, sink);
    for (int k = from; k < to; k++) {
        out->wall_ms += (double)r[k].wall_ps * 1e-9 / (to - from);
        out->together_ms += (double)r[k].together_ps * 1e-9 / (to - from);
    }
    for (int d = 0; d < p->n_device; d++)
        mean_shares(&out->device[d], d, r + from, to - from);
    for (int i = 0; i < n; i++) {
        nnc_profile_cmd c = {.cmd = first + i};
        if (r[from].ps[i] < 0)
            continue;
        for (int k = from; k < to; k++)
            c.ms += (double)r[k].ps[i] * 1e-9 / (to - from);
        busy += c.ms;
        out->cmd[out->n++] = c;
    }
    add_least(e, out);
    add_memory(out);
    out->target = nnc_target_on(e->target, e->n_target, 0);
    out->lanes = count_lanes(p, out);
    out->idle_ms = fmax(out->wall_ms * out->lanes - busy, 0);
    return NNC_OK;
}

/* What a measurement works on. */
typedef struct profiler {
    nnc_tracing *x;
    const nnc_tracing_clock *clock;
    nnc_session *s;
    const nnc_profile_options *o;
    nnc_profile *out;
    nnc_section last;
    int n; /* commands */
    int64_t *start, *end; /* by command, ps */
    nnc_sink *sink;
} profiler;

/* One run without profiling. *ns: its time. */
static nnc_status plain_run(const profiler *f, int64_t *ns)
{
    const int64_t t0 = nnc_now_ns();
    NNC_TRY(f->last == SEC_step ? nnc_session_step(f->s, f->sink) : nnc_session_run(f->s, f->sink));
    *ns = nnc_now_ns() - t0;
    return NNC_OK;
}

/* One profiled run. *ns: its time for the host, without that of collecting CUPTI's records. */
static nnc_status profiled_run(const profiler *f, int64_t *ns)
{
    const int64_t t0 = nnc_now_ns();
    NNC_TRY(nnc_tracing_times(f->x, SEC_main, f->last, f->start, f->end, f->sink));
    *ns = f->clock->activity ? f->clock->host_ns : nnc_now_ns() - t0;
    return NNC_OK;
}

/* The profiler's own time, from runs with and without it in turn. */
static nnc_status measure_overhead(const profiler *f)
{
    double ratio[MOST_PAIRS];
    int64_t with, without, spent = 0;
    int n = 0;
    while (n < MOST_PAIRS &&
           (n < LEAST_PAIRS || spent < (n < INTERVAL ? 5 : 1) * ENOUGH_MS * INT64_C(1000000))) {
        NNC_TRY(plain_run(f, &without));
        NNC_TRY(profiled_run(f, &with));
        spent += with + without;
        ratio[n++] = (double)with / (double)nnc_max64(without, 1);
    }
    f->out->overhead = nnc_pairs(ratio, n);
    return NNC_OK;
}

/* A cycle of the schedule (torch.profiler.schedule): runs that are not profiled, runs whose profile is dropped, and those that count, in
 * r[0 .. *n - 1]. */
static nnc_status run_cycle(const profiler *f, int warmup, run *r, int *n)
{
    const int want = f->o->active;
    int64_t ns;
    double spent = 0;
    for (int i = 0; i < f->o->wait; i++)
        NNC_TRY(plain_run(f, &ns));
    for (int i = 0; i < warmup; i++)
        NNC_TRY(profiled_run(f, &ns));
    for (*n = 0; *n < (want ? want : MOST_RUNS); (*n)++) {
        if (!want && *n >= LEAST_RUNS && spent > ENOUGH_MS)
            break;
        const nnc_plan_times times = {.plan = f->s->plan,
            .first = nnc_plan_first(f->s->plan, SEC_main),
            .n = f->n,
            .start_ps = f->start,
            .end_ps = f->end};
        NNC_TRY(profiled_run(f, &ns));
        NNC_TRY(keep(&f->out->arena, &r[*n], &times, f->o, f->sink));
        r[*n].host_ns = ns;
        spent += (double)r[*n].wall_ps * 1e-9;
    }
    return NNC_OK;
}

static nnc_status profile_runs(const profiler *f, int warmup, run *r, int *n)
{
    nnc_profile *out = f->out;
    const int cycles = f->o->repeat ? f->o->repeat : 1;
    out->cycle_ms = ARENA_NEW(&out->arena, double, cycles);
    NNC_NEED(out->cycle_ms, f->sink);
    for (int k = 0, more; k < cycles; k++, *n += more) {
        NNC_TRY(run_cycle(f, warmup, r + *n, &more));
        for (int i = 0; i < more; i++)
            out->cycle_ms[k] += (double)r[*n + i].wall_ps * 1e-9 / more;
        out->cycles = k + 1;
    }
    return NNC_OK;
}

/* Measures the overhead, of GPUs by the times of the runs that are profiled, and runs the schedule: again by events where CUPTI fails. */
static nnc_status measure_runs(profiler *f, nnc_env *e, int warmup, run *r, int *n)
{
    NNC_FREED int64_t *start = f->start = nnc_calloc((size_t)f->n + 1, sizeof *start),
                      *end = f->end = nnc_calloc((size_t)f->n + 1, sizeof *end);
    NNC_NEED(start && end, f->sink);
    nnc_tracing_behind(f->x, e, f->last, f->o->gpu_times == GPU_TIMES_events);
    f->clock = nnc_tracing_clock_of(f->x);
    bool activity;
    if (!nnc_env_profile_after(e) && f->s->a->chunks == 1)
        NNC_TRY(measure_overhead(f));
    do {
        activity = f->clock->activity;
        *n = 0;
        NNC_TRY(profile_runs(f, warmup, r, n));
    } while (activity != f->clock->activity);
    f->out->clock = *f->clock;
    return NNC_OK;
}

nnc_status nnc_profile_measure(nnc_env *e, nnc_session *s, bool step, const nnc_compare_options *t,
    const nnc_profile_options *o, nnc_profile *out, nnc_sink *sink)
{
    const nnc_section last = step ? SEC_step : SEC_main;
    const int32_t first = nnc_plan_first(s->plan, SEC_main);
    profiler f = {.s = s, .o = o, .out = out, .last = last, .sink = sink};
    nnc_times times = {0};
    NNC_OWNED(nnc_tracing) *x = NULL;
    int n = 0;
    f.n = s->plan->end[last] - first;
    *out = (nnc_profile){.artifact = s->a,
        .overhead = NO_RATIO,
        .world = nnc_env_world(e),
        .model = o->model,
        .n_model = o->n_model};
    run *r = ARENA_NEW(&out->arena, run,
        (size_t)(o->active ? o->active : MOST_RUNS) * (size_t)nnc_max64(o->repeat, 1));
    NNC_NEED(r, sink);
    nnc_power_begin(&out->power, s->ranks > 1 ? NULL : s->plan, NULL, true);
    nnc_status st = nnc_session_time(s, t, false, &times, sink);
    nnc_power_end(&out->power);
    out->cpu_share = times.cpu_share;
    out->median_ms = nnc_times_at(&times, 0.5);
    out->first_run = nnc_exec_first_run(s->exec);
    nnc_free(times.ns);
    if (!st)
        st = nnc_tracing_create(s, &x, sink);
    f.x = x;
    if (!st)
        st = measure_runs(&f, e, t->warmup ? (int)nnc_max64(t->warmup, 0) : WARMUP_RUNS, r, &n);
    NNC_TRY(st);
    out->active = n;
    qsort(r, (size_t)n, sizeof *r, by_wall);
    NNC_TRY(conclude(e, out, first, f.n, r, n / 4, n - n / 4, sink));
    const int half = n - 2 * (n / 4);
    const bool gpu = nnc_env_profile_after(e);
    /* with events, the host's time includes the runs before the profiled one */
    for (int k = n / 4; (!gpu || out->clock.activity) && k < n - n / 4; k++)
        out->outside_ms += ((double)r[k].host_ns * 1e-6 - (double)r[k].wall_ps * 1e-9) / half;
    if (gpu && s->a->chunks == 1)
        out->overhead.ratio = (out->wall_ms + out->outside_ms) / out->median_ms;
    return NNC_OK;
}

nnc_status nnc_profile_predict(nnc_env *e, const nnc_artifact *a, bool step,
    const nnc_profile_options *o, nnc_profile *out, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const nnc_sim_plan_options of = {.first = SEC_main, .last = step ? SEC_step : SEC_main};
    NNC_LOCAL(nnc_sim_plan) s = {0};
    run r = {0};
    *out = (nnc_profile){.artifact = a,
        .predicted = true,
        .median_ms = NAN,
        .overhead = NO_RATIO,
        .cpu_share = NAN,
        .active = 1,
        .world = 1,
        .model = o->model,
        .n_model = o->n_model};
    nnc_rates_described(&out->rates, nnc_target_on(e->target, e->n_target, 0), true);
    NNC_TRY(nnc_sim_plan_run(&s, p, e->cluster, &of, sink));
    const nnc_plan_times t = {
        .plan = p, .first = s.first, .n = s.n_cmd, .start_ps = s.start_ps, .end_ps = s.end_ps};
    NNC_TRY(keep(&out->arena, &r, &t, o, sink));
    out->outside_ms = (double)nnc_max64(s.total_ps - r.wall_ps, 0) * 1e-9;
    return conclude(e, out, s.first, s.n_cmd, &r, 0, 1, sink);
}

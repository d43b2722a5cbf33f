/* report/trace.c -- a run of a plan as a trace: measured, and beside it as the simulator predicts it; the memory of a plan as a picture. */
#include "report/report.h"
#include "session/session.h"
#include "sim/sim.h"
#include <string.h>

nnc_status nnc_write_picture(const nnc_text *t, const char *file, nnc_sink *sink)
{
    return t->oom ? nnc_nomem(sink) : nnc_file_write(file, nnc_text_str(t), t->n, false, sink);
}

bool nnc_is_svg(const char *file)
{
    const size_t n = strlen(file);
    return n > 4 && !strcmp(file + n - 4, ".svg");
}

/* The same as a Gantt chart. */
static nnc_status draw_trace(
    const nnc_timeline *const *t, int n, const char *title, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) out = {0};
    NNC_LOCAL(nnc_text) note = {0};
    NNC_OWNED(nnc_timeline) *all = nnc_timeline_beside(t, n);
    NNC_NEED(all, sink);
    for (int i = 0; i < n; i++) {
        nnc_printf(&note, "%s%s: ", i ? "; " : "", t[i]->name);
        nnc_put_ms(&note, (double)t[i]->total_ps * 1e-9, 0);
        nnc_puts(&note, " ms");
    }
    nnc_gantt_put(all, title, nnc_text_str(&note), &out);
    NNC_NEED(!note.oom, sink);
    return nnc_write_picture(&out, file, sink);
}

nnc_status nnc_write_trace(
    const nnc_timeline *const *t, int n, const char *title, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) out = {0};
    if (nnc_is_svg(file))
        return draw_trace(t, n, title, file, sink);
    nnc_trace_put(t, n, &out);
    return nnc_write_picture(&out, file, sink);
}

static void set_capacities(const nnc_env *e, nnc_timeline *t)
{
    for (int d = 0; d < t->n_device; d++)
        t->capacity[d] = nnc_target_on(e->target, e->n_target, d)->memory_bytes;
}

/* ---- measured -------------------------------------------------------------------------------------------- */

struct nnc_tracing {
    nnc_session *s;
    nnc_timeline *t;
    bool begun;
    nnc_tracing_clock clock;
    int before; /* runs of main that are submitted first (nnc_exec_profile_behind) */
    int64_t host,
        device
            [NNC_MAX_DEVICES]; /* ns: where the clocks stood at the first command; device: of each GPU */
};

nnc_status nnc_tracing_create(nnc_session *s, nnc_tracing **out, nnc_sink *sink)
{
    nnc_tracing *x = *out = nnc_calloc(1, sizeof *x);
    NNC_NEED(x, sink);
    x->s = s;
    return nnc_timeline_of_plan("measured", s->plan, &x->t, sink);
}

static void use_activity(nnc_tracing *x, bool use, const char *why)
{
    if (x->clock.activity && !use)
        nnc_exec_activity_end(x->s->exec);
    x->clock.activity = use;
    snprintf(x->clock.why, sizeof x->clock.why, "%s", why);
}

void nnc_tracing_behind(nnc_tracing *x, const nnc_env *e, nnc_section last, bool events)
{
    x->before = nnc_env_profile_after(e);
    if (!x->before)
        return;
    NNC_OWNED(nnc_sink) *why = nnc_sink_create();
    const bool use = !events && nnc_exec_activity_begin(x->s->exec, last, why) == NNC_OK;
    use_activity(x, use,
        use                          ? ""
        : events                     ? "--gpu-times"
        : why && nnc_sink_count(why) ? nnc_sink_at(why, 0)->message
                                     : "out of memory");
}

const nnc_tracing_clock *nnc_tracing_clock_of(const nnc_tracing *x)
{
    return &x->clock;
}

void nnc_tracing_destroy(nnc_tracing *x)
{
    if (x) {
        use_activity(x, false, "");
        nnc_timeline_destroy(x->t);
    }
    nnc_free(x);
}

/* The CPUs of a process have one clock, and ranks are put on one (profile.c). Each GPU has its own, and its first command was given after
 * all devices had waited for each other. */
static void find_zero(nnc_tracing *x, int32_t first, int n, const int64_t *start)
{
    const nnc_plan *p = x->s->plan;
    x->host = INT64_MAX;
    for (int d = 0; d < p->n_device; d++)
        x->device[d] = INT64_MAX;
    for (int i = 0; i < n; i++) {
        const int d = p->cmd[first + i].device;
        int64_t *zero = nnc_plan_on_gpu(&p->device[d]) ? &x->device[d] : &x->host;
        if (start[i] >= 0)
            *zero = nnc_min64(*zero, start[i]);
    }
    x->begun = true;
}

static void begin_at_zero(const nnc_tracing *x, int32_t first, int n, int64_t *start, int64_t *end)
{
    const nnc_plan *p = x->s->plan;
    for (int i = 0; i < n; i++) {
        const int d = p->cmd[first + i].device;
        const int64_t zero = nnc_plan_on_gpu(&p->device[d]) ? x->device[d] : x->host;
        if (start[i] < 0)
            continue;
        start[i] = nnc_mul_sat(nnc_max64(start[i] - zero, 0), 1000);
        end[i] = nnc_mul_sat(nnc_max64(end[i] - zero, 0), 1000);
    }
}

/* Runs until a run has all records. Where each loses some, times are by events from now on. */
static nnc_status activity_times(
    nnc_tracing *x, nnc_section last, int64_t *start, int64_t *end, nnc_sink *sink)
{
    enum { TRIES = 3 };
    bool whole = false;
    for (int i = 0; i < TRIES && !whole; i++)
        NNC_TRY(
            nnc_exec_activity_run(x->s->exec, last, start, end, &x->clock.host_ns, &whole, sink));
    if (!whole)
        use_activity(x, false, "it lacks records of commands");
    x->begun = x->begun && whole;
    return NNC_OK;
}

nnc_status nnc_tracing_times(nnc_tracing *x, nnc_section first, nnc_section last, int64_t *start_ps,
    int64_t *end_ps, nnc_sink *sink)
{
    const nnc_plan *p = x->s->plan;
    const int32_t from = nnc_plan_first(p, first);
    const int n = p->end[last] - from;
    if (x->clock.activity)
        NNC_TRY(activity_times(x, last, start_ps, end_ps, sink));
    if (!x->clock.activity)
        NNC_TRY(
            nnc_exec_profile_behind(x->s->exec, x->before, first, last, start_ps, end_ps, sink));
    if (!x->begun)
        find_zero(x, from, n, start_ps);
    begin_at_zero(x, from, n, start_ps, end_ps);
    return NNC_OK;
}

nnc_status nnc_tracing_run(
    nnc_tracing *x, nnc_section first, nnc_section last, int micro, nnc_sink *sink)
{
    const nnc_plan *p = x->s->plan;
    const int32_t from = nnc_plan_first(p, first);
    const int n = p->end[last] - from;
    NNC_FREED int64_t *start = nnc_calloc((size_t)n + 1, sizeof *start),
                      *end = nnc_calloc((size_t)n + 1, sizeof *end);
    NNC_NEED(start && end, sink);
    NNC_TRY(nnc_tracing_times(x, first, last, start, end, sink));
    const nnc_plan_times of = {
        .plan = p, .first = from, .n = n, .start_ps = start, .end_ps = end, .micro = micro};
    return nnc_timeline_add_run(x->t, &of, sink);
}

/* ---- predicted ------------------------------------------------------------------------------------------- */

/* Simulates runs first .. end - 1 of an iteration, which are equal, and appends them. */
static nnc_status simulate(nnc_timeline *t, const nnc_plan *p, const nnc_cluster *c,
    nnc_section last, int first, int end, nnc_sink *sink)
{
    const nnc_sim_plan_options o = {.first = SEC_main, .last = last};
    NNC_LOCAL(nnc_sim_plan) s = {0};
    if (first >= end)
        return NNC_OK;
    NNC_TRY(nnc_sim_plan_run(&s, p, c, &o, sink));
    return nnc_timeline_add_simulated(t, p, &s, first, end, sink);
}

nnc_status nnc_timeline_add_simulated(
    nnc_timeline *t, const nnc_plan *p, const nnc_sim_plan *s, int first, int end, nnc_sink *sink)
{
    nnc_plan_times of = {.plan = p,
        .first = s->first,
        .n = s->n_cmd,
        .start_ps = s->start_ps,
        .end_ps = s->end_ps,
        .offset_ps = t->total_ps};
    for (of.micro = first; of.micro < end; of.micro++, of.offset_ps += s->total_ps)
        NNC_TRY(nnc_timeline_add_run(t, &of, sink));
    t->total_ps = of.offset_ps;
    return NNC_OK;
}

/* The same runs of the plan on described hardware: all but the last accumulate. */
static nnc_status predict(const nnc_plan *p, const char *hardware, nnc_section last, int runs,
    nnc_timeline **out, nnc_sink *sink)
{
    NNC_OWNED(nnc_cluster) *c = nnc_cluster_load(hardware, sink);
    if (!c)
        return nnc_sink_cause(sink, NNC_E_USAGE);
    NNC_TRY(nnc_timeline_of_plan("predicted", p, out, sink));
    NNC_TRY(simulate(*out, p, c, SEC_accumulate, 0, runs - 1, sink));
    const int first = runs > 1 ? runs - 1 : -1; /* a single run has no number */
    return simulate(*out, p, c, last, first, first + 1, sink);
}

nnc_status nnc_tracing_write(const nnc_tracing *x, const nnc_env *e, const char *file,
    const char *hardware, nnc_section last, int runs, nnc_sink *sink)
{
    NNC_OWNED(nnc_timeline) *predicted = NULL;
    if (hardware)
        NNC_TRY(predict(x->s->plan, hardware, last, runs, &predicted, sink));
    set_capacities(e, x->t);
    const nnc_timeline *const order[] = {predicted ? predicted : x->t, x->t};
    return nnc_write_trace(order, predicted ? 2 : 1, x->s->a->source->name, file, sink);
}

nnc_status nnc_session_trace(
    nnc_env *e, nnc_session *s, bool step, const char *file, const char *hardware, nnc_sink *sink)
{
    const nnc_section last = step ? SEC_step : SEC_main;
    NNC_OWNED(nnc_tracing) *warm = NULL, *x = NULL;
    NNC_TRY(nnc_tracing_create(s, &warm, sink));
    NNC_TRY(nnc_tracing_create(s, &x, sink));
    nnc_tracing_behind(x, e, last, false);
    NNC_TRY(nnc_tracing_run(warm, SEC_main, last, -1, sink)); /* the first one creates events */
    NNC_TRY(nnc_tracing_run(x, SEC_main, last, -1, sink));
    return nnc_tracing_write(x, e, file, hardware, last, 1, sink);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

nnc_status nnc_draw_memory(nnc_env *e, const nnc_artifact *a, const char *file, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const int32_t first = nnc_plan_first(p, SEC_main);
    NNC_OWNED(nnc_timeline) *t = NULL;
    NNC_LOCAL(nnc_text) svg = {0};
    NNC_LOCAL(nnc_text) title = {0};
    NNC_FREED int64_t *start = nnc_calloc((size_t)p->n_cmd + 1, sizeof *start),
                      *end = nnc_calloc((size_t)p->n_cmd + 1, sizeof *end);
    NNC_NEED(start && end, sink);
    nnc_plan_clock(e, p, SEC_main, SEC_step, start, end);
    NNC_TRY(nnc_timeline_of_plan("predicted", p, &t, sink));
    const nnc_plan_times of = {.plan = p,
        .first = first,
        .n = p->n_cmd - first,
        .start_ps = start + first,
        .end_ps = end + first,
        .micro = -1};
    NNC_TRY(nnc_timeline_add_run(t, &of, sink));
    set_capacities(e, t);
    nnc_printf(&title, "planned memory of %s", a->source->name);
    nnc_holds_put(
        t, nnc_text_str(&title), NULL, "time by the cost rules of the target, not measured", &svg);
    return title.oom ? nnc_nomem(sink) : nnc_write_picture(&svg, file, sink);
}

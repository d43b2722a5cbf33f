/* api/trace.c -- a run of a plan as a trace: measured, and beside it as the simulator predicts it; the memory of a plan as a picture. */
#include "api/timeline.h"
#include "sim/sim.h"
#include <string.h>

nnc_status nnc_write_picture(const nnc_text *t, const char *file, nnc_sink *sink)
{
    return t->oom ? nnc_nomem(sink) : nnc_file_write(file, nnc_text_str(t), t->n, false, sink);
}

nnc_status nnc_write_trace(const nnc_timeline *const *t, int n, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) out = {0};
    nnc_trace_put(t, n, &out);
    return nnc_write_picture(&out, file, sink);
}

static void set_capacities(const nnc_env *e, nnc_timeline *t)
{
    for (int d = 0; d < t->n_device; d++)
        t->capacity[d] = nnc_target_on(e->target, e->n_target, d)->memory_bytes;
}

/* ---- measured -------------------------------------------------------------------------------------------- */

/* Start and end of each command, from the first start on. The CPUs of a process have one clock, ranks are put on one (profile.c); each GPU
 * has its own, and its first command was given after all devices had waited for each other. */
static void begin_at_zero(const nnc_plan *p, int32_t first, int n, int64_t *start, int64_t *end)
{
    int64_t earliest[NNC_MAX_DEVICES], host = INT64_MAX;
    for (int d = 0; d < p->n_device; d++)
        earliest[d] = INT64_MAX;
    for (int i = 0; i < n; i++) {
        const int d = p->cmd[first + i].device;
        if (start[i] < 0)
            continue;
        earliest[d] = nnc_min64(earliest[d], start[i]);
        if (!nnc_plan_on_gpu(&p->device[d]))
            host = nnc_min64(host, start[i]);
    }
    for (int i = 0; i < n; i++) {
        const int d = p->cmd[first + i].device;
        const int64_t zero = nnc_plan_on_gpu(&p->device[d]) ? earliest[d] : host;
        if (start[i] < 0)
            continue;
        start[i] = nnc_mul_sat(start[i] - zero, 1000);
        end[i] = nnc_mul_sat(nnc_max64(end[i] - zero, 0), 1000);
    }
}

static nnc_status measure(nnc_session *s, nnc_section last, nnc_timeline *t, nnc_sink *sink)
{
    const nnc_plan *p = s->plan;
    const int32_t first = nnc_plan_first(p, SEC_main);
    const int n = p->end[last] - first;
    NNC_FREED int64_t *start = nnc_calloc((size_t)n + 1, sizeof *start),
                      *end = nnc_calloc((size_t)n + 1, sizeof *end);
    NNC_NEED(start && end, sink);
    NNC_TRY(nnc_exec_profile(s->exec, SEC_main, last, start, end, sink)); /* also warms up */
    NNC_TRY(nnc_exec_profile(s->exec, SEC_main, last, start, end, sink));
    begin_at_zero(p, first, n, start, end);
    const nnc_plan_times of = {
        .plan = p, .first = first, .n = n, .start_ps = start, .end_ps = end, .micro = -1};
    return nnc_timeline_add_run(t, &of, sink);
}

/* ---- predicted ------------------------------------------------------------------------------------------- */

static nnc_status simulate(
    const nnc_plan *p, nnc_section last, const nnc_cluster *c, nnc_timeline *t, nnc_sink *sink)
{
    const nnc_sim_plan_options o = {.first = SEC_main, .last = last};
    nnc_sim_plan s;
    NNC_TRY(nnc_sim_plan_run(&s, p, c, &o, sink));
    NNC_FREED int64_t *start = nnc_calloc((size_t)s.n_cmd + 1, sizeof *start),
                      *end = nnc_calloc((size_t)s.n_cmd + 1, sizeof *end);
    nnc_status st = start && end ? NNC_OK : nnc_nomem(sink);
    for (int i = 0; !st && i < s.n_cmd; i++) {
        start[i] = s.span[i].start_ps;
        end[i] = s.span[i].end_ps;
    }
    const nnc_plan_times of = {
        .plan = p, .first = s.first, .n = s.n_cmd, .start_ps = start, .end_ps = end, .micro = -1};
    if (!st)
        st = nnc_timeline_add_run(t, &of, sink);
    nnc_sim_plan_deinit(&s);
    return st;
}

/* Appends the prediction to t[*n]. */
static nnc_status add_predicted(const nnc_plan *p, nnc_section last, const char *hardware,
    nnc_timeline **t, int *n, nnc_sink *sink)
{
    nnc_cluster *c = nnc_cluster_load(hardware, sink);
    if (!c)
        return nnc_sink_cause(sink, NNC_E_USAGE);
    nnc_status st = nnc_timeline_of_plan("predicted", p, &t[*n], sink);
    *n += t[*n] != NULL;
    if (!st)
        st = simulate(p, last, c, t[*n - 1], sink);
    nnc_cluster_destroy(c);
    return st;
}

nnc_status nnc_session_trace(
    nnc_env *e, nnc_session *s, bool step, const char *file, const char *hardware, nnc_sink *sink)
{
    const nnc_section last = step ? SEC_step : SEC_main;
    nnc_timeline *t[2] = {NULL, NULL};
    int n = 0;
    nnc_status st = hardware ? add_predicted(s->plan, last, hardware, t, &n, sink) : NNC_OK;
    if (!st)
        st = nnc_timeline_of_plan("measured", s->plan, &t[n], sink);
    n += !st;
    if (!st)
        st = measure(s, last, t[n - 1], sink);
    if (!st) {
        set_capacities(e, t[n - 1]);
        st = nnc_write_trace((const nnc_timeline *const *)t, n, file, sink);
    }
    nnc_timeline_destroy(t[0]);
    nnc_timeline_destroy(t[1]);
    return st;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

nnc_status nnc_draw_memory(nnc_env *e, const nnc_artifact *a, const char *file, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const int32_t first = nnc_plan_first(p, SEC_main);
    nnc_timeline *t = NULL;
    NNC_LOCAL(nnc_text) svg = {0};
    NNC_LOCAL(nnc_text) title = {0};
    NNC_FREED int64_t *start = nnc_calloc((size_t)p->n_cmd + 1, sizeof *start),
                      *end = nnc_calloc((size_t)p->n_cmd + 1, sizeof *end);
    NNC_NEED(start && end, sink);
    nnc_plan_clock(e, p, SEC_main, SEC_step, start, end);
    nnc_status st = nnc_timeline_of_plan("predicted", p, &t, sink);
    const nnc_plan_times of = {.plan = p,
        .first = first,
        .n = p->n_cmd - first,
        .start_ps = start + first,
        .end_ps = end + first,
        .micro = -1};
    if (!st)
        st = nnc_timeline_add_run(t, &of, sink);
    if (!st) {
        set_capacities(e, t);
        nnc_printf(&title, "planned memory of %s", a->source->name);
        nnc_holds_put(t, nnc_text_str(&title), NULL,
            "time by the cost rules of the target, not measured", &svg);
        st = title.oom ? nnc_nomem(sink) : nnc_write_picture(&svg, file, sink);
    }
    nnc_timeline_destroy(t);
    return st;
}

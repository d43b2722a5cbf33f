/* api/timeline.h -- timelines of plans, simulated or measured, and of strategies. Internal to api/. */
#ifndef NNC_API_TIMELINE_H
#define NNC_API_TIMELINE_H

#include "api/internal.h"
#include "picture/picture.h"
#include "sim/sim.h"

/* ---- timeline_plan.c ---- */

/* A timeline with a lane for each stream of the plan's devices. */
nnc_status nnc_timeline_of_plan(const char *name, const nnc_plan *p, nnc_timeline **out, nnc_sink *sink) NNC_MUST;

/* When the plan's commands first .. first + n - 1 started and ended; start < 0: it did not run here. */
typedef struct nnc_plan_times {
    const nnc_plan *plan;
    int32_t first;
    int n;
    const int64_t *start_ps, *end_ps;
    int64_t offset_ps; /* to add */
    int32_t micro;     /* number of this run in an iteration */
} nnc_plan_times;
/* Adds the commands as spans, arrows for copies between devices, and the memory of each device while they run. */
nnc_status nnc_timeline_add_run(nnc_timeline *t, const nnc_plan_times *r, nnc_sink *sink) NNC_MUST;

/* Times of commands by the targets' cost rules, each stream in order, events and collectives waited for. start, end: of all commands. */
void nnc_plan_clock(const nnc_env *e, const nnc_plan *p, nnc_section first, nnc_section last, int64_t *start_ps, int64_t *end_ps);

/* ---- trace.c ---- */

/* Measures runs of a session, command by command, one after the other on one time axis. */
typedef struct nnc_tracing nnc_tracing;
nnc_status nnc_tracing_create(nnc_session *s, nnc_tracing **out, nnc_sink *sink) NNC_MUST;
void nnc_tracing_destroy(nnc_tracing *x);
/* Runs these sections as nnc_exec_profile does. micro: of the iteration, -1: none. */
nnc_status nnc_tracing_run(nnc_tracing *x, nnc_section first, nnc_section last, int micro, nnc_sink *sink) NNC_MUST;
/* Writes them; hardware: beside as many runs that the simulator predicts there, all but the last up to accumulate; NULL: alone. */
nnc_status nnc_tracing_write(const nnc_tracing *x, const nnc_env *e, const char *file, const char *hardware, nnc_section last, int runs,
    nnc_sink *sink) NNC_MUST;
/* Appends runs first .. end - 1 of an iteration, which are alike, as simulated. */
nnc_status nnc_timeline_simulate(nnc_timeline *t, const nnc_plan *p, const nnc_cluster *c, nnc_section last, int first, int end,
    nnc_sink *sink) NNC_MUST;
nnc_status nnc_timeline_add_simulated(nnc_timeline *t, const nnc_plan *p, const nnc_sim_plan *s, int first, int end,
    nnc_sink *sink) NNC_MUST;

bool nnc_is_svg(const char *file); /* by the end of its name */
/* Writes timelines side by side as Chrome's trace; where the file's name ends in .svg, as a Gantt chart. */
nnc_status nnc_write_trace(const nnc_timeline *const *t, int n, const char *title, const char *file, nnc_sink *sink) NNC_MUST;
/* Writes text; a missing folder of `file` is an error as for any other file. */
nnc_status nnc_write_picture(const nnc_text *t, const char *file, nnc_sink *sink) NNC_MUST;

#endif

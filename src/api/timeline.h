/* api/timeline.h -- timelines of plans, simulated or measured, and of strategies. Internal to api/. */
#ifndef NNC_API_TIMELINE_H
#define NNC_API_TIMELINE_H

#include "api/internal.h"
#include "picture/picture.h"

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

/* Writes timelines side by side as Chrome's trace. */
nnc_status nnc_write_trace(const nnc_timeline *const *t, int n, const char *file, nnc_sink *sink) NNC_MUST;
/* Writes text; a missing folder of `file` is an error as for any other file. */
nnc_status nnc_write_picture(const nnc_text *t, const char *file, nnc_sink *sink) NNC_MUST;

#endif

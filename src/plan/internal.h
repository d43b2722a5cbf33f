/* plan/internal.h -- shared by the files of plan/ only. */
#ifndef NNC_PLAN_INTERNAL_H
#define NNC_PLAN_INTERNAL_H

#include "plan/plan.h"
#include <string.h>

/* Most pairs of an operand and a result of a kernel in place: each is compared. */
enum { PLAN_PAIRS = 4096 };

/* ---- accesses of commands (access.c) ------------------------------------------------------------------------------- */

/* The tensor that an in-place sum of this call reads besides its arguments, or -1. */
int32_t plan_sum_operand(const nnc_plan *p, const nnc_cmd *c);

/* ---- order of commands (order.c) ---------------------------------------------------------------------------------
 * A lane is one stream of one device; commands of a lane run in list order. A clock says how many commands of each lane are certainly
 * done. A lane learns of others by waiting for their events, so all commands between two waits share one clock. Init and a run are
 * separate: all of init is done before. */
typedef struct plan_clock {
    int32_t refs;
    int32_t done[]; /* by lane; the lane's own entry is implied by the command's position */
} plan_clock;

typedef struct plan_order {
    const nnc_plan *p;
    nnc_arena *a;
    int n_lane;
    int32_t *lane;      /* of each command */
    int32_t *pos;       /* by command: its number in its lane */
    plan_clock **now;   /* by lane: its clock at the current position; NULL: knows nothing */
    plan_clock **event; /* by event: the clock of its record, while waits remain */
    int32_t *record, *waits; /* by event: the recording command, or -1; remaining waits */
    plan_clock *spare;  /* free clocks, linked by their first words */
    size_t entries;     /* number of entries in all clocks */
    const int32_t *here; /* clock of the current command at its start; NULL: nothing known */
    const int32_t **at; /* by command: its clock at its start; NULL: not kept */
} plan_order;

/* Devices, streams and events must be valid, each event recorded before it is waited for. With `keep` it steps over all commands and keeps
 * their clocks. Otherwise the caller steps, and asks only about the latest command. False: out of memory, or a plan from a file needs too
 * much. */
bool plan_order_init(plan_order *o, const nnc_plan *p, bool keep, nnc_arena *a);
bool plan_order_step(plan_order *o, int32_t cmd);
/* True when position `pos` of a lane is certainly done when command j starts. */
static inline bool plan_done(const plan_order *o, int32_t lane, int32_t pos, int32_t j)
{
    const int32_t *clock = o->at ? o->at[j] : o->here;
    return lane == o->lane[j] ? pos < o->pos[j] : clock && clock[lane] > pos;
}
static inline bool plan_before(const plan_order *o, int32_t i, int32_t j)
{
    return plan_done(o, o->lane[i], o->pos[i], j);
}

/* The last command of each lane that accesses a tensor. */
typedef struct plan_touch { int32_t lane, pos, next; } plan_touch;
typedef struct plan_touches {
    int32_t *head; /* by tensor, -1 */
    plan_touch *at;
    int32_t n;
    size_t cap;
} plan_touches;
bool plan_touch_add(plan_touches *s, const plan_order *o, int32_t tensor, int32_t cmd);
/* True when all accesses to the tensor are certainly done when command j starts. */
bool plan_touches_done(const plan_touches *s, const plan_order *o, int32_t tensor, int32_t j);

/* ---- live ranges (access.c) ---------------------------------------------------------------------------------------- */

/* Fills first and last of all tensors from the commands, as defined in plan.h. `root` gets each tensor's root (n_tensor; alias chains
 * followed). */
void plan_lifetimes(const nnc_plan *p, int32_t *first, int32_t *last, int32_t *root);

/* ---- parts of tensors (access.c) --------------------------------------------------------------------------------- */

/* True when tensor `part` is a box of tensor `whole`: the same strides, first element at index from[]. Also true when `part` has another
 * rank and is a run of consecutive elements; from[] is not set then. */
bool plan_box(const nnc_plan *p, int32_t whole, int32_t part, int64_t from[NNC_MAX_RANK]);
/* Whether two tensors inside `whole` may have an element in common. Exact for boxes of it. */
bool plan_overlap(const nnc_plan *p, int32_t whole, int32_t a, int32_t b);

/* ---- rows (verify.c) ---------------------------------------------------------------------------------------------- */

/* The part of nnc_plan_verify that checks each row separately. Also used by the planner, so that a plan that cannot be loaded is not
 * produced. */
nnc_status plan_check_rows(const nnc_plan *p, nnc_sink *sink) NNC_MUST;

/* ---- calls (verify_call.c) --------------------------------------------------------------------------------------- */

/* True when a call's shapes are consistent, so that an engine that trusts them stays inside its buffers; otherwise *why is the reason
 * (static). */
bool plan_call_ok(const nnc_call *c, const char **why);

#endif

/* plan/internal.h -- shared by the files of plan/ only. */
#ifndef NNC_PLAN_INTERNAL_H
#define NNC_PLAN_INTERNAL_H

#include "plan/plan.h"

/* ---- what commands touch (access.c) ---------------------------------------------------------------------------- */

/* How many of cmd's last arguments it writes; the others are read. The workspace is neither: it belongs to the command. */
int plan_n_written(const nnc_plan *p, const nnc_cmd *c);
/* The tensor that an in-place sum of this call command reads beside its arguments, or -1. */
int32_t plan_sum_operand(const nnc_plan *p, const nnc_cmd *c);

/* ---- order of commands (order.c) ---------------------------------------------------------------------------------
 * A lane is one stream of one device; commands of a lane run in list order. A clock says how many commands of each lane are done for
 * certain; a lane learns of others by waiting for their events, so all commands between two waits share one clock. Init and a run are
 * separate: all of init is done before. */
typedef struct plan_clock {
    int32_t refs;
    int32_t done[]; /* by lane; the lane whose clock it is knows its own by the command's position */
} plan_clock;

typedef struct plan_order {
    const nnc_plan *p;
    nnc_arena *a;
    int n_lane;
    int32_t *lane;      /* of each command */
    int32_t *pos;       /* of each command: its number in its lane */
    plan_clock **now;   /* by lane: its clock where the walk stands; NULL: knows nothing */
    plan_clock **event; /* by event: the clock of its record, while there are waits to come */
    int32_t *record, *waits; /* by event: the command that records it, or -1; waits to come */
    plan_clock *spare;  /* one that is free, linked by their first words */
    size_t entries;     /* of all clocks */
    const int32_t *here; /* the clock's `done` when the command of the latest step starts; NULL: nothing known */
    const int32_t **at; /* the same of each command; NULL: not kept */
} plan_order;

/* Needs valid devices, streams and events (each recorded before it is waited for). `keep`: all commands are stepped over and their clocks
 * kept; else the caller steps, and asks of the command of the latest step alone. False: out of memory (or a plan from a file asks for
 * too much). */
bool plan_order_init(plan_order *o, const nnc_plan *p, bool keep, nnc_arena *a);
bool plan_order_step(plan_order *o, int32_t cmd);
/* Is position `pos` of a lane done for certain when command j starts? */
static inline bool plan_done(const plan_order *o, int32_t lane, int32_t pos, int32_t j)
{
    const int32_t *clock = o->at ? o->at[j] : o->here;
    return lane == o->lane[j] ? pos < o->pos[j] : clock && clock[lane] > pos;
}
static inline bool plan_before(const plan_order *o, int32_t i, int32_t j)
{
    return plan_done(o, o->lane[i], o->pos[i], j);
}

/* The last command of each lane that touches a tensor. */
typedef struct plan_touch { int32_t lane, pos, next; } plan_touch;
typedef struct plan_touches {
    int32_t *head; /* by tensor, -1 */
    plan_touch *at;
    int32_t n;
    size_t cap;
} plan_touches;
bool plan_touch_add(plan_touches *s, const plan_order *o, int32_t tensor, int32_t cmd);
/* Is everything that touched the tensor done for certain when command j starts? */
bool plan_touches_done(const plan_touches *s, const plan_order *o, int32_t tensor, int32_t j);

/* ---- lifetimes (access.c) ---------------------------------------------------------------------------------------- */

/* Fills first and last of all tensors from the commands: what the header says of them. `root` of each tensor in `root`
 * (n_tensor; alias chains followed). */
void plan_lifetimes(const nnc_plan *p, int32_t *first, int32_t *last, int32_t *root);

/* ---- parts of tensors (access.c) --------------------------------------------------------------------------------- */

/* Is tensor `part`, as it lies, a box of tensor `whole`'s index space: the same strides, first element at index from[]? */
bool plan_box(const nnc_plan *p, int32_t whole, int32_t part, int64_t from[NNC_MAX_RANK]);
/* May two tensors that lie inside `whole` have an element in common? Exact for boxes of it. */
bool plan_overlap(const nnc_plan *p, int32_t whole, int32_t a, int32_t b);

/* ---- rows (verify.c) ---------------------------------------------------------------------------------------------- */

/* The part of nnc_plan_verify that looks at each row by itself. The maker asks as well: what cannot be loaded is not compiled. */
nnc_status plan_check_rows(const nnc_plan *p, nnc_sink *sink) NNC_MUST;

/* ---- calls (verify_call.c) --------------------------------------------------------------------------------------- */

/* Are the shapes of a call consistent, so that an engine that trusts them stays inside its buffers? Why not in *why (static). */
bool plan_call_ok(const nnc_call *c, const char **why);
/* Arguments of a call: how many. */
int plan_call_args(const nnc_call *c);

#endif

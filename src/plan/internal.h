/* plan/internal.h -- shared by the files of plan/ only. */
#ifndef NNC_PLAN_INTERNAL_H
#define NNC_PLAN_INTERNAL_H

#include "plan/plan.h"

/* ---- what commands touch (access.c) ---------------------------------------------------------------------------- */

/* How many of cmd's last arguments it writes; the others are read. The workspace is neither: it belongs to the command. */
int plan_n_written(const nnc_plan *p, const nnc_cmd *c);
/* The tensor that an in-place sum of this call command reads beside its arguments, or -1. */
int32_t plan_sum_operand(const nnc_plan *p, const nnc_cmd *c);

/* ---- order of commands (access.c) -------------------------------------------------------------------------------
 * A lane is one stream of one device; commands of a lane run in list order. clock[i * n_lane + l] = how many commands of
 * lane l are done for certain when command i starts (its own lane: those before it). Init and main are separate runs;
 * all of init is done before main. */
typedef struct plan_order {
    int n_lane;
    int32_t *lane;  /* of each command */
    int32_t *pos;   /* of each command: its number in its lane */
    int32_t *clock;
} plan_order;

/* Needs valid devices, streams and events (each recorded before it is waited for). False: out of memory. */
bool plan_order_make(const nnc_plan *p, plan_order *o, nnc_arena *a);
/* Is command i done for certain when command j starts? */
static inline bool plan_before(const plan_order *o, int32_t i, int32_t j)
{
    return o->clock[(size_t)j * (size_t)o->n_lane + (size_t)o->lane[i]] > o->pos[i];
}

/* ---- lifetimes (access.c) ---------------------------------------------------------------------------------------- */

/* Fills first and last of all tensors from the commands: what the header says of them. `root` of each tensor in `root`
 * (n_tensor; alias chains followed). */
void plan_lifetimes(const nnc_plan *p, int32_t *first, int32_t *last, int32_t *root);

/* ---- memory (memory.c) -------------------------------------------------------------------------------------------- */

/* What offsets of this device's memory are multiples of: 64 bytes; 256 on GPUs, as cudaMalloc aligns, which cuBLASLt asks of its
 * workspace (its kernels for Hopper fail without). */
int64_t plan_align(const nnc_plan_device *d);

/* ---- calls (verify_call.c) --------------------------------------------------------------------------------------- */

/* Are the shapes of a call consistent, so that an engine that trusts them stays inside its buffers? Why not in *why (static). */
bool plan_call_ok(const nnc_call *c, const char **why);
/* Arguments of a call: how many. */
int plan_call_args(const nnc_call *c);

#endif

/* base/par.h -- parallel loops inside one command, and the teams of threads that run them. */
#ifndef NNC_PAR_H
#define NNC_PAR_H

#include "base/status.h"

/* body(ctx, part, parts): called once for each part in 0..parts-1, concurrently, part 0 on the caller's thread, others perhaps too. */
typedef void (*nnc_par_body)(void *ctx, int part, int parts);

/* Runs body over `threads` parts and returns when all are done. Uses the team that the calling thread has entered, else threads started
 * for this call. threads <= 1 and calls from inside a part run on the calling thread. Never fails: with fewer threads than parts,
 * threads take several parts in turn. */
void nnc_par_run(int threads, nnc_par_body body, void *ctx);

/* As many parts of n work items as there are threads, but at least `grain` items for each; at least 1. */
static inline int64_t nnc_par_parts(int64_t n, int64_t grain, int64_t threads)
{
    int64_t parts = grain > 1 ? n / grain : n;
    parts = parts < threads ? parts : threads;
    return parts > 1 ? parts : 1;
}

/* Splits 0..n into `parts` near-equal ranges, boundaries at multiples of `grain` (>= 1). Deterministic. */
static inline void nnc_par_range(int64_t n, int64_t grain, int part, int parts, int64_t *begin, int64_t *end)
{
    int64_t units = (n + grain - 1) / grain;
    int64_t b = units * part / parts * grain, e = units * (part + 1) / parts * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

/* A team: `threads` threads, the one that enters it included. Inside (between enter and leave) its threads spin while they wait for
 * the next loop, so loops start and end without system calls. Outside they sleep. Waits are bounded: see par.c. The threads that it
 * starts take no signals (signals.h). In a process that fork() made, a team that nobody was inside starts its threads again. */
typedef struct nnc_team nnc_team;
/* NNC_E_DEVICE: so many threads cannot be started. threads <= 1: *out is NULL, which the other functions accept. */
nnc_status nnc_team_create(int threads, nnc_team **out, nnc_sink *sink) NNC_MUST;
void nnc_team_destroy(nnc_team *t); /* nobody is inside */
/* One thread at a time is inside a team, and in one team at a time. */
void nnc_team_enter(nnc_team *t);
void nnc_team_leave(nnc_team *t);

/* Number of forks that lie between this process and the one that called this first. Only the thread that forked is in the new process:
 * what was started at another number is gone. */
uint32_t nnc_forks(void);

int nnc_cpu_count(void); /* CPUs this process may run on (affinity and cgroup quota respected), >= 1 */

#endif

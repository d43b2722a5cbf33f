/* base/par.h -- data parallelism inside one command. One implementation is chosen per process: OpenMP's team when the
 * plug-in is there (shared with oneDNN, which would fight a second pool), else a pthread pool per calling thread. */
#ifndef NNC_PAR_H
#define NNC_PAR_H

#include "base/status.h"

/* body(ctx, part, parts): called once for each part in 0..parts-1, concurrently, part 0 on the caller's thread. */
typedef void (*nnc_par_body)(void *ctx, int part, int parts);

/* Runs body over `threads` parts and returns when all are done. threads <= 1 calls body directly.
 * Any thread may call it; every calling thread gets its own team. Never fails: with fewer threads available the
 * parts are run one after the other. */
void nnc_par_run(int threads, nnc_par_body body, void *ctx);

/* Splits 0..n into `parts` near-equal ranges, boundaries at multiples of `grain` (>= 1). Deterministic. */
static inline void nnc_par_range(int64_t n, int64_t grain, int part, int parts, int64_t *begin, int64_t *end)
{
    int64_t units = (n + grain - 1) / grain;
    int64_t b = units * part / parts * grain, e = units * (part + 1) / parts * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

/* How many of `threads` threads, the caller's included, can be alive at once: starts and ends them. OpenMP's runtime ends the process
 * when it cannot start one, so whoever is about to make a team asks first. */
int nnc_par_available(int threads);
/* NNC_E_DEVICE when they cannot. */
nnc_status nnc_par_check(int threads, nnc_sink *sink) NNC_MUST;

int nnc_cpu_count(void); /* CPUs this process may run on (affinity and cgroup quota respected), >= 1 */

/* Replaces the implementation (the OpenMP plug-in does, before first use). NULL restores pthreads. */
void nnc_par_set(void (*run)(int threads, nnc_par_body body, void *ctx));
/* Frees the calling thread's pthread pool, if it has one. */
void nnc_par_thread_exit(void);

#endif

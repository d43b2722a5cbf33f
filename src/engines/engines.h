/* engines/engines.h -- what the built-in engines share: running a kernel's domain over the
 * threads of its plan entry, and keeping what engines of GPUs settled. */
#ifndef NNC_ENGINES_H
#define NNC_ENGINES_H

#include "plan/plan.h"

/* Runs units begin..end of a kernel; ctx is the engine's own. scratch: k->scratch_bytes of this
 * worker, 64-byte aligned. */
typedef void (*nnc_domain_fn)(void *ctx, void *const *args, int64_t begin, int64_t end, void *scratch);

/* Bytes of workspace that a kernel needs at run time: one slice per worker, each 64-byte
 * aligned. */
static inline int64_t nnc_domain_work_bytes(const nnc_pkernel *k)
{
    return nnc_align_up(k->scratch_bytes, 64) * (k->threads > 1 ? k->threads : 1);
}

/* Splits 0..k->domain into ranges of whole grains for at most k->threads workers and calls fn
 * once for each that has work. `work`: nnc_domain_work_bytes(k), may be NULL when the kernel
 * has no scratch. Returns when all are done. */
void nnc_run_domain(nnc_domain_fn fn, void *ctx, const nnc_pkernel *k, void *const *args, void *work);

/* Where engines of GPUs keep algorithms that they settled: nowhere, until it is switched on; `dir` as nnc_cache_open takes it. Reads and
 * writes are nnc_cache_get's and nnc_cache_put's. Thread-safe. */
void nnc_engines_keep(bool on, const char *dir);
bool nnc_engines_kept(const char *kind, nnc_hash128 key, char **out, size_t *n);
void nnc_engines_put(const char *kind, nnc_hash128 key, const void *data, size_t n);

/* Algorithms of cuDNN and cuBLASLt by measured time: `file` holds the choices of an earlier time, which are replayed; `measure`: the others
 * are measured when a plan is loaded, and added to it (it need not exist). NULL: the libraries' own order. The choices of a file are
 * those of its libraries' versions and GPUs; for others it holds nothing. NNC_E_MODEL: it is no such file. Thread-safe. */
nnc_status nnc_engines_tune(const char *file, bool measure, nnc_sink *sink) NNC_MUST;

#endif

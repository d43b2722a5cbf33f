/* engines/engines.h -- shared by the built-in engines: running a kernel's domain over the threads of its plan entry, and the cache of
 * algorithms selected on GPUs. */
#ifndef NNC_ENGINES_H
#define NNC_ENGINES_H

#include "plan/plan.h"

/* Runs work items begin..end of a kernel; ctx is the engine's own. scratch: k->scratch_bytes for this worker, 64-byte aligned. */
typedef void (*nnc_domain_fn)(void *ctx, void *const *args, int64_t begin, int64_t end, void *scratch);

/* Bytes of workspace that a kernel needs at run time: one slice per worker, each 64-byte aligned. */
static inline int64_t nnc_domain_work_bytes(const nnc_pkernel *k)
{
    return nnc_align_up(k->scratch_bytes, 64) * (k->threads > 1 ? k->threads : 1);
}

/* Splits 0..k->domain into ranges of whole grains for at most k->threads workers and calls fn once per non-empty range. `work`:
 * nnc_domain_work_bytes(k) bytes, NULL when the kernel has no scratch. Returns when all are done. */
void nnc_run_domain(nnc_domain_fn fn, void *ctx, const nnc_pkernel *k, void *const *args, void *work);

/* Directory where GPU engines cache the algorithms that they select; off by default. `dir` as in nnc_cache_open; get and put are
 * nnc_cache_get and nnc_cache_put. Thread-safe. */
void nnc_engines_keep(bool on, const char *dir);
bool nnc_engines_kept(const char *kind, nnc_hash128 key, char **out, size_t *n);
void nnc_engines_put(const char *kind, nnc_hash128 key, const void *data, size_t n);

/* Selects algorithms of cuDNN and cuBLASLt by measured time: choices recorded in `file` are replayed; with `measure`, missing ones are
 * measured when a plan is loaded and added to it (the file need not exist). NULL: the libraries' own order. Recorded choices are valid
 * for the library versions and GPUs that they were measured on. NNC_E_MODEL: not such a file. Thread-safe. */
nnc_status nnc_engines_tune(const char *file, bool measure, nnc_sink *sink) NNC_MUST;

#endif

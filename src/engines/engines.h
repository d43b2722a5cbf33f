/* engines/engines.h -- shared by the built-in engines: running a kernel's domain over the threads of its plan entry, and
 * algorithms selected by measured time. */
#ifndef NNC_ENGINES_H
#define NNC_ENGINES_H

#include "plan/plan.h"

/* Runs work items begin..end of a kernel; ctx is the engine's own. scratch: k->scratch_bytes for this worker, 64-byte aligned. */
typedef void (*nnc_domain_fn)(void *ctx, void *const *args, int64_t begin, int64_t end, void *scratch);

/* Splits 0..k->domain into ranges of whole grains for at most k->threads workers and calls fn once per non-empty range. `work`: a slice
 * of k->scratch_bytes per worker, each 64-byte aligned; NULL when the kernel has no scratch. Returns when all are done. */
void nnc_run_domain(nnc_domain_fn fn, void *ctx, const nnc_pkernel *k, void *const *args, void *work);

/* Algorithms of cuDNN and cuBLASLt selected by measured time. Choices recorded in `file` are replayed. With `measure`, missing ones are
 * measured when a plan is loaded, and added to the file, which need not exist. Recorded choices are valid for the library versions and
 * GPUs that they were measured on. NNC_E_MODEL: not such a file. Thread-safe. If two use one file, the last to record wins. */
typedef struct nnc_tuning nnc_tuning;
nnc_status nnc_tuning_open(const char *file, bool measure, nnc_tuning **out, nnc_sink *sink) NNC_MUST;
void nnc_tuning_close(nnc_tuning *t); /* or NULL */

#endif

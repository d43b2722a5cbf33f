/* runtime/progress.h -- commands of GPUs that exchange data through host memory. Internal to runtime/. */
#ifndef NNC_RUNTIME_PROGRESS_H
#define NNC_RUNTIME_PROGRESS_H

#include "runtime/exec.h"

typedef struct progress progress;

/* Allocates pinned memory for commands of this process's GPUs that need the host: copies to and from other ranks, and collectives. Does
 * nothing for other plans. Called after nnc_exec_fill. */
nnc_status nnc_progress_create(nnc_exec *e, nnc_sink *sink);
void nnc_progress_destroy(nnc_exec *e, bool streams); /* first call (`streams`): its streams; second call, after all streams: the rest */
/* Submits commands first..end-1 of this process's devices, each stream in its order. Returns when all are submitted and their messages to
 * other ranks begun. timed: records e->clock's events around each command. *at: command that failed. */
nnc_status nnc_progress_run(nnc_exec *e, int32_t first, int32_t end, bool timed, int32_t *at);
/* Memory that copy k of ranks.recv arrives in. */
void *nnc_progress_receive(const nnc_exec *e, int k);
/* Stream of a GPU for incoming copies. */
nnc_stream *nnc_progress_uploads(const nnc_exec *e, int device);
nnc_status nnc_progress_finish(nnc_exec *e); /* waits for sent messages */
nnc_status nnc_progress_sync(nnc_exec *e, nnc_sink *sink); /* waits for its streams */

#endif

/* runtime/progress.h -- commands of GPUs that exchange data through host memory. Internal to runtime/. */
#ifndef NNC_RUNTIME_PROGRESS_H
#define NNC_RUNTIME_PROGRESS_H

#include "runtime/exec.h"

typedef struct progress progress;

/* Where this process has a GPU whose commands need the host (copies to and from other ranks, collectives): allocates pinned memory for
 * them; nothing for other plans. Arguments are filled (nnc_exec_fill). */
nnc_status nnc_progress_create(nnc_exec *e, nnc_sink *sink);
void nnc_progress_destroy(nnc_exec *e, bool streams); /* its streams (they wait); then the rest, after all streams */
/* Submits commands first..end-1 of this process's devices, each stream in its order; returns when all are submitted and their messages to
 * other ranks begun. timed: between e->clock's events. *at: the command that failed. */
nnc_status nnc_progress_run(nnc_exec *e, int32_t first, int32_t end, bool timed, int32_t *at);
/* Where copy k of ranks.recv arrives. */
void *nnc_progress_receive(const nnc_exec *e, int k);
/* The stream of copies that come to a GPU. */
nnc_stream *nnc_progress_uploads(const nnc_exec *e, int device);
/* Waits for messages that were sent; for the streams. */
nnc_status nnc_progress_finish(nnc_exec *e);
nnc_status nnc_progress_sync(nnc_exec *e, nnc_sink *sink);

#endif

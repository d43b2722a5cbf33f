/* runtime/nccl.h -- collectives of GPUs, and copies between them, through NCCL. Internal to runtime/. */
#ifndef NNC_RUNTIME_NCCL_H
#define NNC_RUNTIME_NCCL_H

#include "runtime/exec.h"

/* Decides which collectives use NCCL, and connects their devices. All ranks call it after nnc_exec_find_collectives, with all devices
 * open. If no collective can use NCCL, the reason is a note (auto) or a failure (nccl). */
nnc_status nnc_nccl_create(nnc_exec *e, nnc_comm_by by, nnc_sink *sink);
bool nnc_nccl_takes(const nnc_exec *e, int32_t cmd); /* whether command `cmd`, a participant, uses NCCL */
bool nnc_nccl_takes_all(const nnc_exec *e);          /* whether all participants on this process's GPUs do */
/* Called before a part's commands are submitted. */
void nnc_nccl_begin(nnc_exec *e, int32_t first);
/* Called when a stream has reached command `cmd`. Submits the collective once the streams of all participants of this process have
 * reached it. first: the first call for cmd in this part. *done: it is submitted. */
nnc_status nnc_nccl_try(nnc_exec *e, int32_t cmd, bool first, bool *done);
bool nnc_nccl_copies(const nnc_exec *e, int32_t cmd); /* whether command `cmd`, a copy between ranks, uses NCCL */
nnc_status nnc_nccl_send(nnc_exec *e, int32_t cmd, bool *done); /* sends, once the stream has reached the copy */
/* Whether a copy from another rank is the next call in the plan's order; nnc_nccl_receive receives it on stream `on`. */
bool nnc_nccl_is_next(nnc_exec *e, int32_t cmd);
nnc_status nnc_nccl_receive(nnc_exec *e, int32_t cmd, nnc_stream *on, bool *done);
nnc_event *nnc_nccl_event(const nnc_exec *e, int32_t cmd); /* event that fires after it */
/* NNC_E_PEER: a communicator has failed, which GPUs do not report themselves, or a rank is lost. what: what the host waits for. */
nnc_status nnc_nccl_look(nnc_exec *e, const char *what);
/* Waits for the submitted calls. Aborts them at the deadline. */
nnc_status nnc_nccl_wait(nnc_exec *e);
void nnc_nccl_abort(nnc_exec *e);
void nnc_nccl_destroy(nnc_exec *e); /* after captures are destroyed */

#endif

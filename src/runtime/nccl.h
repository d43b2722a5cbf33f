/* runtime/nccl.h -- collectives of GPUs, and copies between them, through NCCL. Internal to runtime/. */
#ifndef NNC_RUNTIME_NCCL_H
#define NNC_RUNTIME_NCCL_H

#include "runtime/exec.h"

/* On all ranks, after nnc_exec_find_collectives and with all devices open: decides which collectives go through NCCL, and connects their
 * devices. Where none can: why, as a note (auto) or failure (nccl). */
nnc_status nnc_nccl_create(nnc_exec *e, nnc_comm_by by, nnc_sink *sink);
/* Does command `cmd`, a participant, go through NCCL? Do all participants of this process's GPUs? */
bool nnc_nccl_takes(const nnc_exec *e, int32_t cmd);
bool nnc_nccl_takes_all(const nnc_exec *e);
/* Before a part's commands are submitted. */
void nnc_nccl_begin(nnc_exec *e, int32_t first);
/* Command `cmd`, whose stream has come to it: submitted with those of this process's other participants, once all have come. first: of
 * the calls for it in this part. *done: it is. */
nnc_status nnc_nccl_try(nnc_exec *e, int32_t cmd, bool first, bool *done);
/* Copies between ranks: does command `cmd` go through NCCL? This process's side, whose stream has come to it; is it the turn of one from
 * another rank, and this side of it on stream `on`. */
bool nnc_nccl_copies(const nnc_exec *e, int32_t cmd);
nnc_status nnc_nccl_send(nnc_exec *e, int32_t cmd, bool *done);
bool nnc_nccl_is_next(nnc_exec *e, int32_t cmd);
nnc_status nnc_nccl_receive(nnc_exec *e, int32_t cmd, nnc_stream *on, bool *done);
nnc_event *nnc_nccl_event(const nnc_exec *e, int32_t cmd); /* after it */
/* NNC_E_PEER: a communicator has failed, which its GPUs do not tell. what: the host waits for. */
nnc_status nnc_nccl_look(nnc_exec *e, const char *what);
/* Waits for what were submitted, at most until the deadline; then they are aborted. */
nnc_status nnc_nccl_wait(nnc_exec *e);
void nnc_nccl_abort(nnc_exec *e);
void nnc_nccl_destroy(nnc_exec *e); /* after captures */

#endif

/* runtime/collective.h -- a participant of a collective, shared by what moves its messages. Internal to runtime/. */
#ifndef NNC_RUNTIME_COLLECTIVE_H
#define NNC_RUNTIME_COLLECTIVE_H

#include "runtime/job.h"

typedef struct participant {
    nnc_exec *e;
    const nnc_collective *c;
    nnc_comm *comm;
    int me, tag; /* tag: of messages from 0 to 0; from i to k: tag + i n + k */
    const int *rank; /* by participant */
    const int64_t *src_bytes; /* by participant: of its operand */
    int64_t dst_bytes, numel; /* numel: of the operand */
    nnc_dtype type;
    nnc_message *m; /* 2 n */
    char what[96];
    char *src, *dst, *work; /* of the current run, in host memory */
    int phase;
} participant;

/* Begins a run with an operand, result and workspace (nnc_collective_work) in host memory, apart from each other. */
void nnc_collective_start(participant *p, char *src, char *dst, char *work);
/* The next phase, once the messages of the one before are done (p->m, 2 n): computes, and begins messages. *over: dst is complete. */
nnc_status nnc_collective_step(participant *p, bool *over) NNC_MUST;

#endif

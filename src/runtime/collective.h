/* runtime/collective.h -- a participant of a collective, shared by the files that move its messages. Internal to runtime/. */
#ifndef NNC_RUNTIME_COLLECTIVE_H
#define NNC_RUNTIME_COLLECTIVE_H

#include "runtime/job.h"

typedef struct participant {
    nnc_exec *e;
    const nnc_collective *c;
    nnc_comm *comm;
    int me, tag; /* messages from participant i to k have the tag `tag` + i n + k */
    const int *rank; /* by participant */
    const int64_t *src_bytes; /* by participant: size of its operand */
    int64_t dst_bytes, numel; /* numel: elements of the operand */
    nnc_dtype type;
    nnc_message *m; /* 2 n */
    char what[96];
    char *src, *dst, *work; /* of the current run, in host memory */
    int phase;
} participant;

/* Begins a run. Operand, result and workspace (nnc_collective_work) are in host memory and do not overlap. */
void nnc_collective_start(participant *p, char *src, char *dst, char *work);
/* Executes the next phase, once all messages of the previous one (p->m, 2 n) are done: computes, and begins messages. *over: dst is
 * complete. */
nnc_status nnc_collective_step(participant *p, bool *over) NNC_MUST;

#endif

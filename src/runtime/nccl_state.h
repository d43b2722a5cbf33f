/* runtime/nccl_state.h -- shared by nccl.c and nccl_run.c. Internal to them. */
#ifndef NNC_RUNTIME_NCCL_STATE_H
#define NNC_RUNTIME_NCCL_STATE_H

#include "cuda/cuda.h"
#include "runtime/collective.h"
#include "runtime/nccl.h"

/* Participants on the same devices in the same order. */
typedef struct clique {
    int n;
    int *device; /* by participant */
    nccl_comm *end; /* by participant; NULL: another process's */
    nccl_id id;
} clique;

typedef struct meeting {
    const nnc_collective *c;
    int32_t *cmd; /* by participant */
    int n; /* so far */
    int clique; /* -1: not through NCCL */
    int own, here; /* of this process; those whose streams have come to it, in this part */
    int op; /* the process's; -1: none */
} meeting;

/* A call of this process: a collective, or its side of a copy between ranks. */
typedef struct nccl_op {
    meeting *m; /* NULL: a copy */
    int32_t cmd;
    int clique;
    bool sends;
    bool given, done; /* submitted; and NCCL is ready for more */
} nccl_op;

typedef struct nccl {
    const nnc_cuda_nccl *api;
    clique *clique;
    int n_clique;
    meeting *meeting; /* by collective */
    int copies; /* the clique of copies between ranks; -1: they are staged */
    nccl_op *op; /* in the plan's order */
    int n_op, turn; /* turn: the next one */
    int *op_of; /* by command; -1 */
    nnc_event **event; /* by command: after it, over ranks */
    nnc_event **last; /* by device: after its latest call, where there are several communicators */
    bool *called; /* by device: in this part */
    bool broken;
    char why[160]; /* what NCCL cannot do here */
} nccl;


/* nccl.c. The communicator for failures; keeps what failed, for all ends of this process; after the deadline. */
nnc_comm *nccl_comm_of(const nnc_exec *e);
nnc_status nccl_broken(nnc_exec *e, nccl_comm c, int result, const char *what);
nnc_status nccl_late(nnc_exec *e, const char *what);
/* Have the communicator's ends of this process done what they were asked for? */
nnc_status nccl_settled(nnc_exec *e, const clique *c, const char *what, bool *yes);
/* nccl_run.c: the process's calls in the plan's order. */
nnc_status nccl_find_ops(nccl *q, nnc_exec *e, nnc_sink *sink);
int nccl_type(nnc_dtype d); /* ncclDataType_t; -1: none */

#endif

/* runtime/nccl_state.h -- shared by nccl.c and nccl_run.c. Internal to them. */
#ifndef NNC_RUNTIME_NCCL_STATE_H
#define NNC_RUNTIME_NCCL_STATE_H

#include "cuda/cuda.h"
#include "runtime/collective.h"
#include "runtime/nccl.h"

/* Devices of collectives whose participants are the same, in the same order. They share communicators. */
typedef struct clique {
    int n;
    int *device; /* by participant */
    nccl_comm *end; /* by participant: its communicator; NULL: of another process */
    nccl_id id;
} clique;

/* A collective and its progress in the current part. */
typedef struct meeting {
    const nnc_collective *c;
    int32_t *cmd; /* by participant */
    int n; /* entries of cmd so far */
    int clique; /* -1: it does not use NCCL */
    int own, here; /* participants of this process; those of them whose streams have reached it in this part */
    int op; /* index of this process's call; -1: none */
} meeting;

/* A call of this process: a collective, or its side of a copy between ranks. */
typedef struct nccl_op {
    meeting *m; /* NULL: a copy */
    int32_t cmd;
    int clique;
    bool sends;
    bool given, done; /* submitted; accepted by NCCL, which is ready for more */
} nccl_op;

typedef struct nccl {
    const nnc_cuda_nccl *api;
    clique *clique;
    int n_clique;
    meeting *meeting; /* by collective */
    int copies; /* clique of copies between ranks; -1: they are staged */
    nccl_op *op; /* calls in the plan's order */
    int n_op, turn; /* turn: index of the next call */
    int *op_of; /* by command: index of its call; -1: none */
    nnc_event **event; /* by command: fires after it, over ranks */
    nnc_event **last; /* by device: fires after its latest call, if there are several communicators */
    bool *called; /* by device: it had a call in this part */
    bool broken;
    char why[160]; /* why NCCL cannot be used */
} nccl;


/* nccl.c. Records a failure for all communicators of this process: of an NCCL call, or by the deadline. */
nnc_status nccl_broken(nnc_exec *e, nccl_comm c, int result, const char *what);
nnc_status nccl_late(nnc_exec *e, const char *what);
/* NNC_E_PEER: a rank is lost, for which a call would wait until the deadline; the calls are aborted. */
nnc_status nccl_look_for_ranks(nnc_exec *e, const char *what);
/* Whether this process's communicators of the clique have completed their latest call. */
nnc_status nccl_settled(nnc_exec *e, const clique *c, const char *what, bool *yes);
/* nccl_run.c: lists the process's calls in the plan's order. */
nnc_status nccl_find_ops(nccl *q, nnc_exec *e, nnc_sink *sink);
int nccl_type(nnc_dtype d); /* ncclDataType_t; -1: none */

#endif

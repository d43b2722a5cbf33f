/* engines/cudnn.h -- lowering of calls to cuDNN graphs. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_H
#define NNC_ENGINES_CUDNN_H

#include "cuda/cudnn.h"
#include "plan/plan.h"

/* How a call is lowered to graphs. Tensor ids are the positions of the call's arguments; `zeros` follows them. */
typedef struct cudnn_lowering {
    bool split;     /* one graph for the convolution and its bias, a second one for the epilogue, in place */
    bool zero_bias; /* adds a bias of zeros, written into the workspace at each run; precompiled engines need a bias before epilogues */
} cudnn_lowering;

/* Lowers the call to cuDNN's precompiled engines; false: cuDNN does not support the call, reason in *why. */
bool cudnn_lower(const nnc_call *c, cudnn_lowering *w, const char **why);
int cudnn_n_args(const nnc_call *c); /* number of arguments of the call */
/* Bit set of the ids that a graph, the core or the tail, reads or writes. */
uint32_t cudnn_used_ids(const nnc_call *c, const cudnn_lowering *w, bool tail);

/* Add a part of the call to an empty graph. The caller then calls nnc_cudnn_finish. */
void cudnn_describe_core(nnc_cudnn *g, const nnc_call *c, const cudnn_lowering *w);
void cudnn_describe_tail(nnc_cudnn *g, const nnc_call *c);

/* Filter for configurations that the call allows, with at most `limit` bytes of workspace. */
nnc_cudnn_filter cudnn_filter_of(const nnc_call *c, int64_t limit);
/* Lists configurations; if some use tensor cores, only those. Returns their number; -1: out of memory. */
int cudnn_query(nnc_cudnn *g, nnc_cudnn_filter f);
/* Makes the plan of the first of g's n configurations that can be finalized. Returns its index; -1: none. */
int cudnn_plan_first(nnc_cudnn *g, const nnc_call *c, int n, int64_t limit);

enum { CUDNN_ALIGN = 256 };
/* Bytes of zeros at the end of the workspace, which begin at a multiple of CUDNN_ALIGN. */
int64_t cudnn_zero_bytes(const nnc_call *c, const cudnn_lowering *w);

/* cudnn_rule.c: the engine's choose(). */
nnc_status cudnn_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink);

#endif

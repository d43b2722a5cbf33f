/* engines/cudnn.h -- lowering of calls to cuDNN graphs. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_H
#define NNC_ENGINES_CUDNN_H

#include "cuda/cudnn.h"
#include "plan/plan.h"

/* How a call is lowered to graphs. Tensor ids are the positions of the call's arguments; `zeros` follows them. */
typedef struct cudnn_lowering {
    bool whole;     /* one graph with the epilogue in the call's order, by a runtime-compiled engine */
    bool split;     /* the convolution with its bias, then a second graph for the epilogue, in place */
    bool zero_bias; /* a bias of zeros, written into the workspace at each run: precompiled engines support epilogues only after a bias */
} cudnn_lowering;

/* Lowers the call to cuDNN's precompiled engines; false: cuDNN does not support the call, reason in *why. */
bool cudnn_lower(const nnc_call *c, cudnn_lowering *w, const char **why);
/* True where the call is supported by cuDNN but its epilogue needs a runtime-compiled engine; *w is that lowering. */
bool cudnn_lower_whole(const nnc_call *c, cudnn_lowering *w);
int cudnn_n_args(const nnc_call *c); /* number of arguments of the call */
/* Ids that a graph reads or writes, as bits: of the core or the tail. */
uint32_t cudnn_used_ids(const nnc_call *c, const cudnn_lowering *w, bool tail);

/* Add a part of the call to an empty graph; nnc_cudnn_finish comes after. */
void cudnn_describe_core(nnc_cudnn *g, const nnc_call *c, const cudnn_lowering *w);
void cudnn_describe_tail(nnc_cudnn *g, const nnc_call *c);

/* What configurations the call allows, within so many bytes of workspace. */
nnc_cudnn_filter cudnn_filter_of(const nnc_call *c, const cudnn_lowering *w, int64_t limit);
/* Makes the plan of one of the n configurations of g: the first that can be finalized, by rule. Returns its index, -1: none. */
int cudnn_plan_first(nnc_cudnn *g, const nnc_call *c, int n, int64_t limit);

/* The GPU that cuDNN is asked about. Strings belong to the target. */
void cudnn_device_of(const struct nnc_target *t, nnc_cudnn_device *d);

/* cuDNN's answer for a call at compile time: the first engine that can be finalized (for `whole`: the first listed, since finalizing
 * takes a second each), or why there is none. */
typedef struct cudnn_answer {
    bool ok;
    int64_t version;    /* of cuDNN: 91900 */
    int64_t engine, workspace;
    uint32_t numerical; /* notes */
    bool fallback;
    char why[192];
} cudnn_answer;

/* Loads the answer of an earlier compile by cuDNN's files, the target, the call's graph and the filter. Damaged entries are ignored. */
bool cudnn_answer_load(const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f, cudnn_answer *a);
/* Stores the answer of the open cuDNN. */
void cudnn_answer_store(const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f, const cudnn_answer *a);

#endif

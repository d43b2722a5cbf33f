/* engines/cudnn.h -- calls as graphs of cuDNN. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_H
#define NNC_ENGINES_CUDNN_H

#include "cuda/cudnn.h"
#include "plan/plan.h"

/* How a call becomes graphs. Ids of tensors are the call's arguments, in order; behind them `zeros`. */
typedef struct dn_way {
    bool whole;     /* all of it in the call's order, by a kernel that cuDNN compiles */
    bool split;     /* the convolution with its bias, then a second graph of what follows, in place */
    bool zero_bias; /* the precompiled engines end a convolution only behind a bias: zeros, written into the workspace at each run */
} dn_way;

/* The way that keeps cuDNN's precompiled engines; false: cuDNN does not compute the call, and why. */
bool dn_way_of(const nnc_call *c, dn_way *w, const char **why);
/* Has a call that cuDNN computes an end for which it would have to compile one kernel? Then it is *w. */
bool dn_way_whole(const nnc_call *c, dn_way *w);
int dn_args(const nnc_call *c); /* how many the call has */
/* Ids that a graph reads or writes, as bits: the core's or the tail's. */
uint32_t dn_used(const nnc_call *c, const dn_way *w, bool tail);

/* Describe a part of the call into an empty graph; nnc_cudnn_finish comes after. */
void dn_describe_core(nnc_cudnn *g, const nnc_call *c, const dn_way *w);
void dn_describe_tail(nnc_cudnn *g, const nnc_call *c);

/* The GPU that cuDNN is asked about. Strings are the target's. */
void dn_device_of(const struct nnc_target *t, nnc_cudnn_device *d);

/* What cuDNN says of a call at compile time: its first engine that becomes a plan (of the way `whole`: its first engine, since each plan
 * of those takes a second), or why there is none. */
typedef struct dn_answer {
    bool ok;
    int64_t version;    /* of cuDNN: 91900 */
    int64_t engine, workspace;
    uint32_t numerical; /* notes */
    bool fallback;
    char why[192];
} dn_answer;

/* The answer of an earlier compile, by the files of cuDNN that would be opened, the target, the call's graph and the filter. What is
 * damaged is none. */
bool dn_answer_kept(const nnc_call *c, const dn_way *w, const nnc_cudnn_filter *f, dn_answer *a);
/* Keeps what the open cuDNN said. */
void dn_answer_keep(const nnc_call *c, const dn_way *w, const nnc_cudnn_filter *f, const dn_answer *a);

#endif

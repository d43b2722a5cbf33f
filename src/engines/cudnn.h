/* engines/cudnn.h -- calls as graphs of cuDNN. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_H
#define NNC_ENGINES_CUDNN_H

#include "cuda/cudnn.h"
#include "plan/plan.h"

/* How a call becomes graphs. Ids of tensors are the call's arguments, in order; behind them `zeros`. */
typedef struct dn_way {
    bool split;     /* the convolution with its bias, then a second graph of what follows, in place */
    bool zero_bias; /* the precompiled engines end a convolution only behind a bias: zeros, written into the workspace at each run */
} dn_way;

/* The way that keeps cuDNN's precompiled engines; false: cuDNN does not compute the call, and why. */
bool dn_way_of(const nnc_call *c, dn_way *w, const char **why);
int dn_args(const nnc_call *c); /* how many the call has */
/* Ids that a graph reads or writes, as bits: the core's or the tail's. */
uint32_t dn_used(const nnc_call *c, const dn_way *w, bool tail);

/* Describe a part of the call into an empty graph; nnc_cudnn_finish comes after. */
void dn_describe_core(nnc_cudnn *g, const nnc_call *c, const dn_way *w);
void dn_describe_tail(nnc_cudnn *g, const nnc_call *c);

#endif

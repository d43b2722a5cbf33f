/* engines/cudnn_attend.h -- attention by cuDNN: a generated kernel's text (schedule/attend.c) as a graph. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_ATTEND_H
#define NNC_ENGINES_CUDNN_ATTEND_H

#include "cuda/cudnn.h"
#include "codegen/codegen.h"
#include "plan/plan.h"

/* Ids of the graph's tensors that have memory, in order. mask is -1 without one. */
typedef struct attend_ids {
    int q, k, v, y, scale, mask, low, stats;
} attend_ids;
/* Adds the kernel's attention to an empty graph. The kernel has a library (nnc_attend_library). */
void attend_describe(nnc_cudnn *g, const nnc_kernel *k, attend_ids *id);

/* A kernel that cuDNN runs. If cuDNN has no plan for it, the generated code runs, and a note says so. */
typedef struct attend_handle attend_handle;
nnc_status attend_load(const nnc_load *l, attend_handle **out, nnc_sink *sink) NNC_MUST;
nnc_status attend_run(attend_handle *h, void *const *args, void *work) NNC_MUST;
void attend_unload(attend_handle *h); /* or NULL */

#endif

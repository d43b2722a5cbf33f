/* engines/cudnn.h -- lowering of calls to cuDNN graphs. Internal to engines/. */
#ifndef NNC_ENGINES_CUDNN_H
#define NNC_ENGINES_CUDNN_H

#include "cuda/cudnn.h"
#include "plan/plan.h"

/* Does the call fit cuDNN's precompiled engines? Otherwise *why says why not. */
bool cudnn_supports(const nnc_call *c, const char **why);
/* Is a bias of zeros added, which each run writes into the workspace? Precompiled engines need a bias before other epilogues. */
bool cudnn_adds_zeros(const nnc_call *c);

/* Adds the call to an empty graph. Tensor ids are positions of arguments, behind which come the zeros. nnc_cudnn_finish comes next. */
void cudnn_describe(nnc_cudnn *g, const nnc_call *c);

/* Filter for configurations that the call allows, with at most `limit` bytes of workspace. */
nnc_cudnn_filter cudnn_filter_of(const nnc_call *c, int64_t limit);
/* Lists configurations; if some use tensor cores, only those. Returns their number; -1: out of memory. */
int cudnn_query(nnc_cudnn *g, nnc_cudnn_filter f);
/* Makes the plan of the first of g's n configurations that can be finalized. Returns its index; -1: none. */
int cudnn_plan_first(nnc_cudnn *g, const nnc_call *c, int n, int64_t limit);

enum { CUDNN_ALIGN = 256 };
/* Bytes of zeros at the end of the workspace, which begin at a multiple of CUDNN_ALIGN. */
int64_t cudnn_zero_bytes(const nnc_call *c);

/* cudnn_rule.c: the engine's choose(). */
nnc_status cudnn_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink);

#endif

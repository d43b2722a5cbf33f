/* plugins/onednn/tail.h -- nnc's own code for the tail of a call: from the first post-operation that drops NaN in oneDNN. */
#ifndef NNC_ONEDNN_TAIL_H
#define NNC_ONEDNN_TAIL_H

#include "plan/plan.h"

/* Applies post-operations first.. of c to the whole of dst, keeping NaN: dst[i] = post(from[i]), sums adding dst's former contents.
 * from: of dst's type, and dst itself unless there is a sum. On c->threads threads. */
void dn_tail(const nnc_call *c, int first, const void *from, void *dst);
/* Applies all post-operations, without sums, to n values, keeping NaN. */
void dn_tail_values(const nnc_call *c, float *values, int n);

#endif

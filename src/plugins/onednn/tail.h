/* plugins/onednn/tail.h -- the end of a call in our own code: from the first post-operation on that loses a NaN in oneDNN. */
#ifndef NNC_ONEDNN_TAIL_H
#define NNC_ONEDNN_TAIL_H

#include "plan/plan.h"

/* Post-operations first.. of c, NaN kept, over the whole of dst: dst[i] = post(from[i]), sums adding what dst held. from: of dst's
 * type, and dst itself unless there is a sum. On c->threads threads. */
void dn_tail(const nnc_call *c, int first, const void *from, void *dst);

#endif

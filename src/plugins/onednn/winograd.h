/* plugins/onednn/winograd.h -- 3x3 convolutions, and gradients of their sources, by Winograd's algorithm. Internal to the plug-in. */
#ifndef NNC_ONEDNN_WINOGRAD_H
#define NNC_ONEDNN_WINOGRAD_H

#include "plan/plan.h"

/* Is c computed here? Not with packed weights, as in inference, nor where sums must be exact. */
bool dn_winograd_takes(const nnc_call *c);
int64_t dn_winograd_bytes(const nnc_call *c); /* of the workspace */
/* args: source, weights, bias if any, result. */
void dn_winograd_run(const nnc_call *c, void *const *args, void *work);

#endif

/* plugins/onednn/wgrad.h -- the gradient of a convolution's weights. Internal to the plug-in. */
#ifndef NNC_ONEDNN_WGRAD_H
#define NNC_ONEDNN_WGRAD_H

#include "plugins/onednn/calls.h"

typedef struct dn_grad dn_grad;
int64_t dn_grad_bytes(const dn_call *d); /* of the workspace */
dn_grad *dn_grad_load(const dn_call *d); /* NULL: out of memory */
void dn_grad_free(dn_grad *g);
/* args: source, gradient of the result, gradient of the weights. */
nnc_status dn_grad_run(dn_grad *g, dnnl_stream_t stream, void *const *args, void *work);

#endif

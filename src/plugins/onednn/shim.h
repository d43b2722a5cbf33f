/* plugins/onednn/shim.h -- oneDNN 2.x and 3.x behind one interface. Differences: 2.x describes operations by structs, from which a
 * second call makes a primitive descriptor, and passes memory descriptors by value; 3.x has one call per operation and opaque
 * descriptors. The rest of the C API is common and used directly.
 * Sources: oneDNN's "Transition from v2.x to v3.x" guide and both versions' dnnl.h. */
#ifndef NNC_ONEDNN_SHIM_H
#define NNC_ONEDNN_SHIM_H

#include "base/base.h"
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdint.h>

#if DNNL_VERSION_MAJOR >= 3
typedef struct dn_md { dnnl_memory_desc_t own; bool set; } dn_md;
typedef const_dnnl_memory_desc_t dn_ref; /* a descriptor, borrowed */
#else
typedef struct dn_md { dnnl_memory_desc_t own; bool set; } dn_md;
typedef const dnnl_memory_desc_t *dn_ref;
#endif

/* stride NULL: the implementation chooses the layout. Strides in elements. */
dnnl_status_t dn_md_init(dn_md *m, int rank, const int64_t *dim, dnnl_data_type_t type, const int64_t *stride);
dnnl_status_t dn_md_copy(dn_md *m, dn_ref from); /* m: uninitialised */
void dn_md_deinit(dn_md *m);
/* A hash of type, extents and the order of the elements in memory; false: it has a format that is not described by blocks. */
bool dn_md_layout(dn_ref m, nnc_hash128 *out);
dn_ref dn_md_ref(const dn_md *m); /* NULL when not initialised */

dnnl_status_t dn_append_sum(dnnl_post_ops_t p);
dnnl_status_t dn_append_eltwise(dnnl_post_ops_t p, dnnl_alg_kind_t alg, float alpha, float beta);

typedef struct dn_window { dnnl_dims_t kernel, stride, dilation, pad_lo, pad_hi; } dn_window; /* dilation 0 = dense */

/* Forward inference. bias may be NULL. */
dnnl_status_t dn_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t e, bool transposed, dn_ref src, dn_ref wei,
    dn_ref bias, dn_ref dst, const dn_window *w, const_dnnl_primitive_attr_t attr);
/* The gradient of a convolution's weights, without a bias, from its source and the gradient of its result. alg: direct, or
 * Winograd's, which 3.x does not implement for weights: its status says so. */
dnnl_status_t dn_conv_wgrad(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei, dn_ref dst,
    const dn_window *w, dnnl_alg_kind_t alg, const_dnnl_primitive_attr_t attr);
dnnl_status_t dn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei, dn_ref bias,
    dn_ref dst, const_dnnl_primitive_attr_t attr);
dnnl_status_t dn_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_alg_kind_t alg, dn_ref src, dn_ref dst,
    const dn_window *w, const_dnnl_primitive_attr_t attr);

#endif

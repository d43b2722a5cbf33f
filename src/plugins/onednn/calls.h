/* plugins/onednn/calls.h -- translation of nnc_call to oneDNN's primitive descriptors. Internal to the plug-in. */
#ifndef NNC_ONEDNN_CALLS_H
#define NNC_ONEDNN_CALLS_H

#include "plan/plan.h"
#include "plugins/onednn/shim.h"

/* A call described for oneDNN, and the implementation that the library offers. */
typedef struct dn_call {
    dnnl_primitive_desc_t pd; /* NULL: see why */
    const char *why;          /* reason when pd is NULL; static */
    const char *impl;         /* implementation name; lives as long as pd */
    dn_md wei;                /* weights, or their gradient, as in the call, with group dimension; unset for pools */
    dn_md src, dst;           /* of the gradient of weights: source, and gradient of the result, as in the call */
    bool reorders;            /* weights must be reordered from `wei` to pd's layout, once or at each run */
} dn_call;

dnnl_engine_t dn_engine(void); /* NULL: oneDNN cannot be initialized */
/* Layout of the weights: the call's type, the implementation's choice, or that of another description. */
typedef struct dn_form { bool any; dn_ref like; } dn_form;
/* Describes c with its first n_post post-operations only. d->pd is NULL when oneDNN has no fast implementation. */
void dn_describe(dn_call *d, const nnc_call *c, int n_post, dn_form form);
void dn_call_deinit(dn_call *d);
static inline dn_ref dn_query(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}
static inline int64_t dn_scratch_bytes(const_dnnl_primitive_desc_t pd)
{
    dn_ref md = dn_query(pd, dnnl_query_scratchpad_md);
    return md ? (int64_t)dnnl_memory_desc_get_size(md) : 0;
}

/* Index of the first post-operation that drops NaN in oneDNN; n_post: none. */
int dn_tail_first(const nnc_call *c);

/* openmp.c. Sets the number of threads of oneDNN's parallel regions on the calling thread, to which it binds primitives when they are made;
 * returns the number before. */
int dn_threads(int n);
/* oneDNN's parallel regions run on nnc's team. Known once a primitive has been described. */
bool dn_has_team(void);

#endif

/* interp/interp.h -- runs a kernel without compiling it. */
#ifndef NNC_INTERP_H
#define NNC_INTERP_H

#include "kernel/kernel.h"

/* An interpreter for kernels, with the contract of nnc_kernel_fn. nnc_interp_create returns NULL when out of memory; nnc_interp_run
 * may be called by many threads at once. */
typedef struct nnc_interp nnc_interp;
nnc_interp *nnc_interp_create(const nnc_kernel *k); /* k must outlive it */
void nnc_interp_run(const nnc_interp *s, void *const *args, int64_t begin, int64_t end, void *scratch);
void nnc_interp_destroy(nnc_interp *s);

#endif

/* math/math.h -- the scalar body of a kernel: which values it can take, and functions in the form that is cheapest for them. */
#ifndef NNC_MATH_H
#define NNC_MATH_H

#include "kernel/kernel.h"

/* Interval analysis over the scalar body; removes decided max/min/select/clip, sets hints. Part of nnc_kernel_improve. */
void nnc_kernel_ranges(nnc_kernel *k);
/* Ranges, and what they make cheaper on target t (NULL: for no target in particular), with a line for each in k->note. Memory is in `a`.
 * False: out of memory. */
bool nnc_kernel_improve(nnc_kernel *k, const nnc_target *t, nnc_arena *a);

#endif

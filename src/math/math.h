/* math/math.h -- simplification of a kernel's scalar body: value ranges, and the cheapest form of each math function. */
#ifndef NNC_MATH_H
#define NNC_MATH_H

#include "kernel/kernel.h"

/* Interval analysis of the scalar body; removes max/min/select/clip whose result is known and sets hints. Part of nnc_kernel_improve.
 * False: out of memory. */
bool nnc_kernel_ranges(nnc_kernel *k);
/* Computes ranges and applies the simplifications that use them for target t (NULL: target-independent), with a line for each in
 * k->note. Memory is in `a`. False: out of memory. */
bool nnc_kernel_improve(nnc_kernel *k, const nnc_target *t, nnc_math math, nnc_arena *a);

#endif

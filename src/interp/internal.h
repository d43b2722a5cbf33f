/* interp/internal.h -- blocks of values: shared by interp.c (loops) and interp_ops.c (one instruction on a block). */
#ifndef NNC_INTERP_INTERNAL_H
#define NNC_INTERP_INTERNAL_H

#include "interp/interp.h"

typedef enum nnc_lane { LANE_f32, LANE_f64, LANE_int } nnc_lane; /* ints of every type and bool: int64_t */

static inline nnc_lane nnc_lane_of(nnc_dtype d)
{
    return d == DT_f64 ? LANE_f64 : nnc_is_float(d) ? LANE_f32 : LANE_int;
}

/* y[0..n) = op(a, b, c); from: dtype of the operands (of b and c for select), to: of the result. */
void nnc_lanes_sop(const nnc_kins *in, nnc_dtype from, int n, const void *a, const void *b, const void *c, void *y);
/* Loads n elements of a buffer, `stride` apart from p, into lanes; stores them. */
void nnc_lanes_load(nnc_dtype d, const void *buf, int64_t at, int64_t stride, int n, void *y);
void nnc_lanes_store(nnc_dtype d, void *buf, int64_t at, int64_t stride, int n, const void *x);
void nnc_lanes_fill(nnc_lane l, void *y, int from, int to, const void *one); /* y[from..to) = *one */
/* acc[i] = fold(acc[i], x[i]) where mask is set (NULL: everywhere). argmax, argmin: at[i] is the best element's index, first + i step
 * for x[i]. */
void nnc_lanes_fold(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at, const void *x, const int64_t *mask,
    int64_t first, int64_t step);
/* Initial accumulators; and combining lanes 0..n into lane 0 of y (argmax, argmin: the index). */
void nnc_lanes_start(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at);
void nnc_lanes_finish(nnc_kred r, nnc_dtype d, int n, void *acc, int64_t *at, void *y);

/* A factor's first element, and elements from one step to the next and from one lane to the next. */
typedef struct nnc_factor {
    const void *at;
    int64_t step, lane;
} nnc_factor;
/* acc[0..n) += the products of `steps` steps, in order, each sum rounded once. */
void nnc_product_steps(nnc_dtype d, int n, nnc_factor x, nnc_factor w, int64_t steps, void *acc);

#endif

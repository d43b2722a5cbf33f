/* tests/gen/rounding.h -- operands of kernels drawn at random, and whether rounding alone explains how far a result is off. */
#ifndef NNC_TESTS_ROUNDING_H
#define NNC_TESTS_ROUNDING_H

#include "codegen/codegen.h"

/* Fills an operand: floats in [-2, 2), integers -8 to 7. */
void gen_fill_operand(const nnc_kbuf *b, uint64_t key, void *dst);
/* The same kernel in f64. NULL: it computes in no f32, or rounds on purpose. */
nnc_kernel *gen_widened(const nnc_kernel *k, nnc_arena *arena);
/* A copy of an operand for the widened kernel; nnc_free. */
void *gen_widen(const nnc_kbuf *b, const void *data);
void gen_interpret(const nnc_kernel *k, void *const *arg);
/* Is `got`, element i of k's buffer `of`, as near to the f64 answer as rounding lets it be? The run was on operands
 * gen_fill_operand(&k->buf[j], seed + j). Long sums that cancel, sums of such sums, and 16-bit states that later steps multiply lose
 * more than a few ulps. The limit is four times the largest error that the interpreter has at this element over sixteen draws of
 * neighbouring operands. Of errors spread as a Gauss curve, one in about a million is above it. False without an f64 answer. */
bool gen_is_rounding(const nnc_kernel *k, uint64_t seed, const nnc_kbuf *of, int64_t i, double got);

#endif

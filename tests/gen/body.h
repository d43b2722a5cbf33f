/* tests/gen/body.h -- random bodies for kernels: one stage of scalar operations over values as extreme as their types
 * have. Every value is stored, so that what is said of it can be compared with what it is. */
#ifndef NNC_TESTS_BODY_H
#define NNC_TESTS_BODY_H

#include "codegen/codegen.h"

typedef struct gen_body_options {
    uint64_t seed;
    int ops;
    int64_t points;  /* extent of the only axis */
    bool functions;  /* exp, sin, ...: else every result is the same to the bit wherever it is computed */
    int lines;       /* outputs: 0 = every value, else this many of the last ones */
} gen_body_options;

/* Without ranges and without a schedule. NULL: out of memory. The name is "k_body_<seed>". */
nnc_kernel *gen_body(const gen_body_options *o, nnc_arena *a);
/* Reductions of one stage whose results do not depend on their order (max, min, argmax, argmin; sums and products of integers).
 * They are of every type, masked and not, over one or two axes that lie along memory or across it. Schedule and ranges as above. */
nnc_kernel *gen_rows(uint64_t seed, nnc_arena *a);
/* Fills an input: zeros of both signs, infinities, NaN, least and greatest numbers, powers of two and their neighbours, any bits. */
void gen_body_fill(const nnc_kbuf *b, uint64_t seed, void *dst);
/* Element i of both is the same number, or both are NaN. Zeros are equal; *zeros becomes true where their signs differ, which is
 * not promised: what is computed from them may be anything. */
bool gen_same_element(nnc_dtype d, const void *x, const void *y, int64_t i, bool *zeros);

#endif

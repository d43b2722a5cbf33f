/* tests/gen/chain.h -- random chains of functions of one value, and the error bound of each result: for tests of emitted code at
 * each --math. */
#ifndef NNC_TESTS_CHAIN_H
#define NNC_TESTS_CHAIN_H

#include "codegen/codegen.h"

enum { CHAIN_N = 2048 + 64 }; /* elements: even ones, then special values */

/* in nnc_math's order */
typedef enum chain_math { CHAIN_exact, CHAIN_ulp2, CHAIN_fast, CHAIN_MATHS } chain_math;
extern const char *const chain_math_names[CHAIN_MATHS];

typedef struct chain {
    nnc_text text; /* the graph: one input, one output, of `dtype` */
    nnc_dtype dtype;
    double lo, hi; /* x is clipped to this, or any number when lo > hi */
    int n;         /* values so far */
} chain;

/* Chain number i of a seed: two to seven functions, sums and products after a bounded value. */
void chain_random(chain *c, uint64_t seed, int i, nnc_dtype d);
void chain_deinit(chain *c);
void chain_fill(const chain *c, void *x);
/* One kernel of it in `a`. NULL: told in the sink. */
nnc_kernel *chain_lower(const chain *c, const nnc_target *t, chain_math m, nnc_arena *a, nnc_sink *sink);
/* The answers in f64 for CHAIN_N elements of x, and how far off each may be. Every function has what docs/math.md allows this
 * --math, every sum and product half an ulp. Errors are carried along the chain, and the rounding to dtype is added. `plain` is
 * chain_lower's kernel of --math=exact, whose instructions are the chain's. */
void chain_answers(const nnc_kernel *plain, chain_math m, const void *x, double *want, double *allowed);
/* Compares. False: told in why. */
bool chain_check(const chain *c, const nnc_kernel *plain, chain_math m, const void *x, const void *y, char why[160]);

#endif

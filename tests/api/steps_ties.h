/* tests/api/steps_ties.h -- choices of a training step that rounding decides: an operand of a relu is 1e-4 in bf16 and -1e-4 in float64.
 * Both are right, but an element of the gradient is the one time dy and the other time 0. */
#ifndef NNC_TESTS_API_STEPS_TIES_H
#define NNC_TESTS_API_STEPS_TIES_H

#include "help.h"

typedef struct steps_batch {
    const nnc_graph *g;
    void *const *in;        /* the batch, by input of g */
    const nnc_rval *before; /* by output of g: the reference's states before it */
    void *const *got;       /* the device's states after it */
    bool steps;             /* with an update; else only states that accumulate are new */
    nnc_precision precision;
} steps_batch;

/* Error of the state that output k updates, in units of its limit. want: by output. */
double steps_state_error(const steps_batch *b, uint32_t k, const nnc_rval *want);
/* Evaluates the step again with the near ties that the device decided otherwise than `now`, as far as they are what its states show: the
 * reference follows them, within the same limits. */
nnc_status steps_follow(const steps_batch *b, nnc_rval *now);

#endif

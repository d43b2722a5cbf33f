/* tests/api/steps_batch.h -- one batch of a training step by itself: what a device makes of its own states, which are the reference's, too.
 * Within limits that allow for what rounding does to a right program:
 * - Choices: an operand of a relu is 1e-4 in bf16 and -1e-4 in float64, so that an element of the gradient is the one time dy and the
 *   other time 0. The reference follows near ties that explain the device's states (check/ties.h).
 * - Conditioning: adam moves a weight as far by a gradient of 1e-9, which is rounding errors, as by one of 1. What simulated rounding
 *   changes is allowed. */
#ifndef NNC_TESTS_API_STEPS_BATCH_H
#define NNC_TESTS_API_STEPS_BATCH_H

#include "session/session.h"
#include "ir/ir.h"

typedef struct steps_batch {
    const nnc_graph *g;
    nnc_precision precision;
    void **in;              /* by input of g */
    void **before, **after; /* the device's states, by output of g that updates them */
    bool steps;             /* with an update; else only states that accumulate are new */
} steps_batch;

/* Error of the state that output k updates, in units of its limit, against want[k]. */
double steps_state_error(const steps_batch *b, uint32_t k, const nnc_rval *want);
/* Is each state right, as far as the one before it? Failures of the test begin with `what`. */
nnc_status steps_batch_check(const steps_batch *b, const char *what);

#endif

/* tests/api/steps.h -- training steps of small models on a device: losses and states against the float64 reference of the same graph, step
 * after step. Shared with the tests of devices that are fakes. */
#ifndef NNC_TESTS_API_STEPS_H
#define NNC_TESTS_API_STEPS_H

#include "session/session.h"
#include "ir/ir.h"
#include "train/train.h"

enum { STEPS_MODELS = 3 };
typedef struct steps_model {
    const char *name, *json;
} steps_model;
extern const steps_model steps_models[STEPS_MODELS];

/* Options of which each differs from its neighbours: losses, optimizers, clipping, accumulation, loss scaling. */
nnc_training steps_training(int i);
/* An input of a batch: small numbers, classes, the learning rate. The caller frees it. */
void *steps_input(const nnc_graph *g, const nnc_node *n, int step, bool first);
/* Takes a few steps; `accumulate`: of so many batches each. Differences are failures of the test; the status is the first one of nnc's
 * functions that failed. */
nnc_status steps_take(
    nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, int accumulate, const char *what);

#endif

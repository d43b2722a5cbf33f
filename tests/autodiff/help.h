/* tests/autodiff/help.h -- gradients against central differences. */
#ifndef TESTS_AUTODIFF_HELP_H
#define TESTS_AUTODIFF_HELP_H

#include "autodiff/autodiff.h"
#include "test.h"

/* The gradients of a weighted sum of g's float outputs with respect to its float inputs (f64, of values data[i]), along a random
 * direction, against central differences. Adds nodes to g. */
void help_check_gradients(nnc_graph *g, void *const *data, uint64_t seed);
/* A number of [-1, 1). */
double help_draw(uint64_t seed, uint64_t stream, int64_t i);
/* Numbers for input number i of this type: uniform in [-2, 2), integers 0 or 1. Freed by the caller. */
void *help_fill(const nnc_type *t, uint64_t seed, int i);
/* Parses a graph, fills its inputs, and checks its gradients. */
void help_check_text(const char *text, uint64_t seed);

#endif

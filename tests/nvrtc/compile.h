/* tests/nvrtc/compile.h -- many models compiled for many GPUs at the same time, each on a thread of its own, and their machine code held
 * against the budget. */
#ifndef TEST_NVRTC_COMPILE_H
#define TEST_NVRTC_COMPILE_H

#include "session/session.h"

bool compile_absent(void); /* skips the test where there is no NVRTC */

/* One model for one GPU: from a file with arguments, or a generated graph. */
typedef struct compile_job {
    const char *file; /* NULL: a graph from `seed` */
    nnc_arg arg[2];
    int n_arg;
    nnc_precision precision;
    bool step; /* of a training by gradient descent with momentum */
    uint64_t seed;
    const char *target;
} compile_job;

/* Compiles all, two at a time or as many as there are CPUs, through one cache that is gone afterwards. Prints how many kernels there were
 * and what the budget saw; `what` begins the line. */
void compile_all(const char *what, const compile_job *job, int n);

#endif

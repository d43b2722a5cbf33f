/* tests/cuda_fake/loadable/state.h -- what the loadable fake's machine is like, by environment variables. They say whose the GPUs are,
 * whether they are divided, how old the driver is, and which calls fail. */
#ifndef TEST_FAKE_STATE_H
#define TEST_FAKE_STATE_H

#include "../fake.h"

/* The tables that the fake for tests lacks. */
extern const nnc_cuda_driver state_driver;
extern const nnc_cuda_nvml state_nvml;

int state_number(const char *variable, int otherwise);
/* Reads the variables; after fake_begin. */
void state_begin(void);
/* Replaces what the state of the machine changes. */
void state_of_runtime(nnc_cuda_cudart *rt);
/* A function that returns the error of FAKE_CUDA_ERROR for `name`; NULL: that function does not fail. */
void *state_error(const char *name);

#endif

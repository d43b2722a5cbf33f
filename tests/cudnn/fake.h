/* tests/cudnn/fake.h -- false libraries behind the tables of cuda/: cuDNN and cuBLASLt that compute on the CPU, and as much of CUDA's
 * runtime as engines need. They refuse what the real ones refuse, as far as nnc's engines depend on it. */
#ifndef TEST_CUDNN_FAKE_H
#define TEST_CUDNN_FAKE_H

#include "cuda/cuda.h"

void fake_install(void); /* all three in place of the real ones */
void fake_remove(void);
/* As cuDNN has descriptors, as cuBLASLt has: those made and not destroyed. */
extern int fake_alive;
extern int fake_handles; /* of both libraries */
/* Plans of cuDNN made: precompiled engines take conv [[+ sum] + bias [+ relu]] alone. */
extern int fake_precompiled, fake_compiled; /* compiled: when the plan is made */
extern int fake_multiplies; /* calls of cublasLtMatmul */

#endif

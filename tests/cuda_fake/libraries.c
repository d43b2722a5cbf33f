/* tests/cuda_fake/libraries.c -- cuBLASLt and cuDNN of tests/cudnn, which compute at once, given to streams instead. */
#include "../cudnn/fake.h"
#include "fake.h"
#include <stdlib.h>

static nnc_cuda_cublaslt lt, lt_now;

void fake_libraries_begin(void)
{
    fake_install();
    lt = lt_now = *NNC_CUDA(cublaslt, NULL);
    nnc_cuda_override(CUDA_cublaslt, &lt);
}

void fake_libraries_end(void)
{
    nnc_cuda_forget();
}

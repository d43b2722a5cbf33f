/* cuda/current.c -- the calling thread's current stream: tells an engine where to submit its work. */
#include "cuda/cuda.h"

static _Thread_local cuda_stream current;

cuda_stream nnc_cuda_current(void)
{
    return current;
}

void nnc_cuda_set_current(cuda_stream s)
{
    current = s;
}

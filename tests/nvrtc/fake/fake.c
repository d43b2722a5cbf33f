/* tests/nvrtc/fake/fake.c -- a library of CUDA that does nothing: every function of one table (FAKE names it) returns 0, and those that
 * ask for versions and devices say FAKE_VERSION. With FAKE_LACKS the first needed function is left out. */
#include "cuda/cuda.h"
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define FN(ret, name, args, needed) \
    EXPORT ret name args \
    { \
        return (ret)0; \
    }
#define cat_(a, b) a##b
#define cat(a, b) cat_(a, b)

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wpedantic"

#if defined FAKE_CUDART
#define cudaRuntimeGetVersion nothing_runtime
#define cudaGetDeviceCount nothing_count
#define cudaDeviceGetAttribute nothing_attribute
#ifdef FAKE_LACKS
#define cudaLibraryLoadData nothing_load
#endif
#define CUDART FN
#include "cuda/symbols.def"
#undef cudaRuntimeGetVersion
#undef cudaGetDeviceCount
#undef cudaDeviceGetAttribute
EXPORT int cudaRuntimeGetVersion(int *version)
{
    return *version = FAKE_VERSION, 0;
}
EXPORT int cudaGetDeviceCount(int *n)
{
    return *n = 2, 0;
}
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == CUDA_ATTR_MAJOR   ? 9
             : attribute == CUDA_ATTR_MINOR ? 0
                                            : attribute * 10 + device;
    return 0;
}
#elif defined FAKE_DRIVER
#define cuDriverGetVersion nothing_version
#define cuDeviceGetName nothing_name
#define DRIVER FN
#include "cuda/symbols.def"
#undef cuDriverGetVersion
#undef cuDeviceGetName
EXPORT int cuDriverGetVersion(int *version)
{
    return *version = FAKE_VERSION, 0;
}
EXPORT int cuDeviceGetName(char *name, int n, int device)
{
    return snprintf(name, (size_t)n, "Fake GPU"), 0;
}
#elif defined FAKE_CUDNN
#define cudnnGetVersion nothing_version
#define cudnnGetCudartVersion nothing_cudart
#define CUDNN FN
#include "cuda/symbols.def"
#undef cudnnGetVersion
#undef cudnnGetCudartVersion
EXPORT size_t cudnnGetVersion(void)
{
    return 91900;
}
EXPORT size_t cudnnGetCudartVersion(void)
{
    return FAKE_VERSION;
}
#else
#define cublasLtGetVersion nothing_version
#define CUBLASLT FN
#define NVML FN
#define NCCL FN
#include "cuda/symbols.def"
#undef cublasLtGetVersion
EXPORT size_t cublasLtGetVersion(void)
{
    return 130101;
}
#endif

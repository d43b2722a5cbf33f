/* tests/cudnn/fake/libcuda.c -- a driver's library without a driver: what cuDNN's runtime-compiled engines ask for while a plan is
 * made. Loading a kernel succeeds, anything on a device is never reached. */
#include <stdlib.h>

#define NOTHING(name) \
    int name(void) \
    { \
        return 0; \
    }

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "false driver";
    return 0;
}

int cuGetErrorName(int error, const char **text)
{
    return cuGetErrorString(error, text);
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return 100; /* no device */
}

int cuDeviceGetCount(int *n)
{
    *n = 0;
    return 0;
}

int cuLibraryLoadData(void **library)
{
    return (*library = malloc(1)) ? 0 : 2;
}

int cuLibraryGetKernel(void **kernel)
{
    static char something;
    *kernel = &something;
    return 0;
}

int cuLibraryUnload(void *library)
{
    free(library);
    return 0;
}

NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetName)
NOTHING(cuDeviceTotalMem_v2)
NOTHING(cuKernelGetAttribute)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)

/* tests/cuda_fake/loadable/loadable.c -- the fake of CUDA as shared libraries: one file under all the names that nnc looks for, so that
 * whole programs run on it (NNC_CUDA_PATH names its folder). Every function of symbols.def is there; those that the fake lacks fail
 * with cudaErrorNotSupported, or CUBLAS's, cuDNN's status of the same number. */
#include "../fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The address of what each function does stands in a variable; the function itself jumps there, its arguments untouched. */
#if defined __x86_64__
#define JUMP(name) "jmp *fake_slot_" #name "(%rip)\n"
#elif defined __aarch64__
#define JUMP(name) \
    "adrp x16, fake_slot_" #name "\nldr x16, [x16, :lo12:fake_slot_" #name "]\nbr x16\n"
#else
#error "one instruction that jumps to what a variable holds"
#endif
#define SLOT(name) \
    __attribute__((visibility("hidden"))) void *fake_slot_##name; \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name \
            ":\n" JUMP(name) ".size " #name ", .-" #name "\n");

#define DRIVER(ret, name, args, needed) SLOT(name)
#define CUDART(ret, name, args, needed) SLOT(name)
#define NVRTC(ret, name, args, needed) SLOT(name)
#define CUBLASLT(ret, name, args, needed) SLOT(name)
#define CUDNN(ret, name, args, needed) SLOT(name)
#define NVML(ret, name, args, needed) SLOT(name)
#define NCCL(ret, name, args, needed) SLOT(name)
#include "cuda/symbols.def"

static int not_supported(void)
{
    return 801;
}

/* ---- what the fake for tests has no table of ----------------------------------------------------------------------- */

static int driver_version(int *v)
{
    *v = 13000;
    return 0;
}

static int device_get(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < 0 || ordinal >= FAKE_DEVICES;
}

static int device_name(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "Fake GPU %d", device);
    return 0;
}

static int device_bytes(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return 0;
}

static int init(unsigned flags)
{
    return flags != 0;
}

static const nnc_cuda_driver driver = {init, driver_version, device_get, device_name, device_bytes};

static int nvml_init(void)
{
    return 0;
}

static int nvml_handle(const char *id, nvml_device *d)
{
    *d = (nvml_device)(uintptr_t)&nvml_init;
    return !strchr(id, ':');
}

static int nvml_text(char *out, unsigned n)
{
    snprintf(out, n, "580.0 (fake)");
    return 0;
}

static int nvml_watts(nvml_device d, unsigned *milliwatts)
{
    *milliwatts = d ? 100000 : 0;
    return 0;
}

/* 100 W, by the host's clock. */
static int nvml_energy(nvml_device d, unsigned long long *millijoules)
{
    *millijoules = (unsigned long long)nnc_now_ns() / 10000;
    return !d;
}

static int nvml_clock(nvml_device d, int clock, unsigned *mhz)
{
    *mhz = clock == 2 ? 3201 : 1980;
    return !d;
}

static const char *nvml_error(int error)
{
    return error ? "the fake refuses" : "no error";
}

static const nnc_cuda_nvml nvml = {.nvmlInit_v2 = nvml_init,
    .nvmlShutdown = nvml_init,
    .nvmlErrorString = nvml_error,
    .nvmlSystemGetDriverVersion = nvml_text,
    .nvmlDeviceGetHandleByPciBusId_v2 = nvml_handle,
    .nvmlDeviceGetPowerUsage = nvml_watts,
    .nvmlDeviceGetEnforcedPowerLimit = nvml_watts,
    .nvmlDeviceGetTotalEnergyConsumption = nvml_energy,
    .nvmlDeviceGetClockInfo = nvml_clock,
    .nvmlDeviceGetMaxClockInfo = nvml_clock};

/* ---- filling in ---------------------------------------------------------------------------------------------------- */

static void *pick(const void *field)
{
    void *fn, *none = NULL;
    int (*lacks)(void) = not_supported;
    memcpy(&fn, field, sizeof fn);
    if (!fn)
        memcpy(&none, &lacks, sizeof none);
    return fn ? fn : none;
}

/* ---- faults, for what must survive them ----------------------------------------------------------------------------- */

extern int fake_sticky; /* the error that every call gives */
static int (*launch)(const cuda_launch *l, cuda_kernel k, void **args);

static bool named(const char *variable, cuda_kernel k)
{
    const char *part = getenv(variable);
    return part && *part && strstr(((const fake_kernel *)k)->name, part);
}

/* FAKE_CUDA_CRASH, FAKE_CUDA_HANG and FAKE_CUDA_BREAK: a part of a kernel's name, the launch of which ends the process, never ends, or is
 * an illegal address (error 700), after which every call fails. */
static int launch_or_not(const cuda_launch *l, cuda_kernel k, void **args)
{
    if (named("FAKE_CUDA_CRASH", k))
        abort();
    while (named("FAKE_CUDA_HANG", k))
        pause();
    if (named("FAKE_CUDA_BREAK", k))
        fake_sticky = 700;
    return launch(l, k, args);
}

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static size_t cudart_version(void)
{
    return 13000;
}

__attribute__((constructor)) static void fill(void)
{
    fake_begin((uint64_t)number("FAKE_CUDA_SEED", 0));
    /* number of GPUs and memory of each; NCCL's faults, by the number of a call */
    fake_devices = number("FAKE_CUDA_DEVICES", FAKE_DEVICES);
    fake_gpu.memory_bytes = (size_t)number("FAKE_CUDA_MIB", 1024) << 20;
    /* number of a call of the runtime that fails, once */
    fake_fail_at = number("FAKE_CUDA_FAIL", 0);
    fake_fail_with = 999;
    fake_nccl_error = number("FAKE_NCCL_ERROR", 0);
    fake_nccl_hang = number("FAKE_NCCL_HANG", 0);
    nnc_cuda_cudart runtime = *NNC_CUDA(cudart, NULL), *cudart = &runtime;
    launch = runtime.cudaLaunchKernelExC;
    runtime.cudaLaunchKernelExC = launch_or_not;
    const nnc_cuda_nvrtc *nvrtc = NNC_CUDA(nvrtc, NULL);
    nnc_cuda_cublaslt blas = *NNC_CUDA(cublaslt, NULL), *cublaslt = &blas;
    nnc_cuda_cudnn dnn = *NNC_CUDA(cudnn, NULL), *cudnn = &dnn;
    const nnc_cuda_nccl *nccl = NNC_CUDA(nccl, NULL);
    blas.cublasLtGetCudartVersion = dnn.cudnnGetCudartVersion = cudart_version;
#define DRIVER(ret, name, args, needed) fake_slot_##name = pick(&driver.name);
#define CUDART(ret, name, args, needed) fake_slot_##name = pick(&cudart->name);
#define NVRTC(ret, name, args, needed) fake_slot_##name = pick(&nvrtc->name);
#define CUBLASLT(ret, name, args, needed) fake_slot_##name = pick(&cublaslt->name);
#define CUDNN(ret, name, args, needed) fake_slot_##name = pick(&cudnn->name);
#define NVML(ret, name, args, needed) fake_slot_##name = pick(&nvml.name);
#define NCCL(ret, name, args, needed) fake_slot_##name = pick(&nccl->name);
#include "cuda/symbols.def"
}

/* What a test would have been told by fake_end, while the program ran. */
__attribute__((destructor)) static void say_wrong(void)
{
    const char *why = fake_said();
    if (getenv("FAKE_CUDA_COUNTS"))
        fprintf(stderr, "the fake of CUDA: %d collectives of NCCL, %lld bytes uploaded\n",
            fake_count.collectives, (long long)fake_count.bytes_up);
    if (!why)
        return;
    fprintf(stderr, "the fake of CUDA: %s\n", why);
    _exit(99);
}

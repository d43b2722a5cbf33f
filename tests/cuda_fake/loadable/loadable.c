/* tests/cuda_fake/loadable/loadable.c -- the fake of CUDA as shared libraries. It is one file under all names that nnc looks for, so
 * that whole programs run on it (NNC_CUDA_PATH names its folder). Every function of symbols.def is there; those that the fake lacks
 * fail with cudaErrorNotSupported, or CUBLAS's, cuDNN's status of the same number. */
#include "state.h"
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
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", %function\n" #name \
            ":\n" JUMP(name) ".size " #name ", .-" #name "\n.popsection\n");

#define DRIVER(ret, name, args, needed) SLOT(name)
#define CUDART(ret, name, args, needed) SLOT(name)
#define NVRTC(ret, name, args, needed) SLOT(name)
#define CUBLASLT(ret, name, args, needed) SLOT(name)
#define CUDNN(ret, name, args, needed) SLOT(name)
#define NVML(ret, name, args, needed) SLOT(name)
#define NCCL(ret, name, args, needed) SLOT(name)
#define CUPTI(ret, name, args, needed) SLOT(name)
#include "cuda/symbols.def"

static int not_supported(void)
{
    return 801;
}

/* ---- filling in ---------------------------------------------------------------------------------------------------- */

/* What a function does: it gives an error (FAKE_CUDA_ERROR), it is the fake's, or it fails as what the fake lacks. */
static void *pick(const char *name, const void *field)
{
    void *fn = state_error(name), *none = NULL;
    int (*lacks)(void) = not_supported;
    if (fn)
        return fn;
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

/* FAKE_CUDA_CRASH, FAKE_CUDA_HANG and FAKE_CUDA_BREAK: a part of a kernel's name. Its launch ends the process, never ends, or is an
 * illegal address (error 700), after which every call fails. */
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

static size_t cudart_version(void)
{
    return 13000;
}

__attribute__((constructor)) static void fill(void)
{
    fake_begin((uint64_t)state_number("FAKE_CUDA_SEED", 0));
    /* number of GPUs and memory of each; NCCL's faults, by the number of a call */
    fake_devices = state_number("FAKE_CUDA_DEVICES", FAKE_USUAL_DEVICES);
    fake_gpu.memory_bytes = (size_t)state_number("FAKE_CUDA_MIB", 1024) << 20;
    state_begin();
    /* number of a call of the runtime that fails, once */
    fake_fail_at = (int)state_number("FAKE_CUDA_FAIL", 0);
    fake_fail_with = 999;
    fake_nccl_error = state_number("FAKE_NCCL_ERROR", 0);
    fake_nccl_hang = state_number("FAKE_NCCL_HANG", 0);
    nnc_cuda_cudart runtime = *NNC_CUDA(cudart, NULL), *cudart = &runtime;
    launch = runtime.cudaLaunchKernelExC;
    runtime.cudaLaunchKernelExC = launch_or_not;
    state_of_runtime(&runtime);
    const nnc_cuda_nvrtc *nvrtc = NNC_CUDA(nvrtc, NULL);
    nnc_cuda_cublaslt blas = *NNC_CUDA(cublaslt, NULL), *cublaslt = &blas;
    nnc_cuda_cudnn dnn = *NNC_CUDA(cudnn, NULL), *cudnn = &dnn;
    const nnc_cuda_nccl *nccl = NNC_CUDA(nccl, NULL);
    const nnc_cuda_cupti *cupti = NNC_CUDA(cupti, NULL);
    blas.cublasLtGetCudartVersion = dnn.cudnnGetCudartVersion = cudart_version;
#define DRIVER(ret, name, args, needed) fake_slot_##name = pick(#name, &state_driver.name);
#define CUDART(ret, name, args, needed) fake_slot_##name = pick(#name, &cudart->name);
#define NVRTC(ret, name, args, needed) fake_slot_##name = pick(#name, &nvrtc->name);
#define CUBLASLT(ret, name, args, needed) fake_slot_##name = pick(#name, &cublaslt->name);
#define CUDNN(ret, name, args, needed) fake_slot_##name = pick(#name, &cudnn->name);
#define NVML(ret, name, args, needed) fake_slot_##name = pick(#name, &state_nvml.name);
#define NCCL(ret, name, args, needed) fake_slot_##name = pick(#name, &nccl->name);
#define CUPTI(ret, name, args, needed) fake_slot_##name = pick(#name, &cupti->name);
#include "cuda/symbols.def"
}

/* What a test would have been told by fake_end, while the program ran. */
__attribute__((destructor)) static void say_wrong(void)
{
    const char *why = fake_said();
    if (getenv("FAKE_CUDA_COUNTS"))
        fprintf(stderr,
            "the fake of CUDA: %d collectives of NCCL, %d replays, %lld bytes uploaded\n",
            fake_count.collectives, fake_count.replays, (long long)fake_count.bytes_up);
    if (!why)
        return;
    fprintf(stderr, "the fake of CUDA: %s\n", why);
    _exit(99);
}

/* engines/cuda.c -- the engine "cuda": kernels for NVIDIA GPUs, as machine code or PTX in the plan's objects. NVRTC compiled the
 * objects earlier, perhaps on another machine. Launch dimensions come from the kernel's text.
 * An object holds many kernels; CUDA loads it once for all devices. */
#include "codegen/codegen.h"
#include "cuda/cuda.h"
#include "engines/engines.h"

#include <string.h>

enum {
    PLAIN_SHARED = 48 << 10, /* shared memory that a kernel gets without a function attribute */
    MOST_ARGS = 511, /* pointers besides the scratch pointer in CUDA's 4 KiB of parameters */
    ATTRIBUTES = 1024, /* bytes, more than cudaFuncAttributes has */
};

typedef struct library {
    const nnc_cuda_cudart *rt;
    cuda_library cuda;
} library;

typedef struct handle {
    const nnc_cuda_cudart *rt;
    const library *from;
    cuda_kernel kernel,
        finish; /* finish: combines partial results; NULL where no sum is split over blocks */
    nnc_kgrid grid;
    int n_arg;
    int n_size; /* sizes that its function gets after the pointers, where kernels share one */
    _Alignas(4) unsigned char size[NNC_CUDA_SIZES][NNC_CUDA_ARGUMENT];
} handle;

/* ---- objects ------------------------------------------------------------------------------------------------------ */

/* The target of the plan's GPUs. */
static const char *target_of(const nnc_plan *p)
{
    for (int d = 0; d < p->n_device; d++)
        if (nnc_plan_on_gpu(&p->device[d]))
            return p->device[d].target;
    return "another";
}

static nnc_status failed(
    const nnc_cuda_cudart *rt, const nnc_plan *p, const char *what, int error, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    int device = 0;
    (void)rt->cudaGetLastError();
    if (rt->cudaGetDevice(&device))
        device = -1;
    nnc_status st = nnc_cuda_explain(&t, error, device);
    const char *target = target_of(p);
    return nnc_fail0(sink, st, "%s for %.*s cannot be loaded on this GPU: %s", what,
        (int)strcspn(target, "#"), target, nnc_text_str(&t));
}

static nnc_status load_object(const nnc_plan *p, const nnc_blob *b, void **out, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, sink);
    if (!rt)
        return NNC_E_DEVICE;
    library *l = nnc_malloc(sizeof *l);
    NNC_NEED(l, sink);
    l->rt = rt;
    int error = rt->cudaLibraryLoadData(&l->cuda, b->data, NULL, NULL, 0, NULL, NULL, 0);
    if (error) {
        nnc_free(l);
        return failed(rt, p, "machine code", error, sink);
    }
    *out = l;
    return NNC_OK;
}

static void unload_object(void *object)
{
    NNC_FREED library *l = object;
    l->rt->cudaLibraryUnload(l->cuda);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------ */

/* Reads the launch dimensions from the kernel's text, against which the entry of a plan from a file was verified. */
static nnc_status read_grid(const nnc_pkernel *pk, nnc_kgrid *grid, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_scan s;
    nnc_scan_init(&s, pk->symbol, pk->ir, strlen(pk->ir));
    const nnc_kernel *k = nnc_schedule_parse(&s, &a, sink);
    if (!k)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    *grid = k->grid;
    return grid->cls != KC_none
               ? NNC_OK
               : nnc_fail0(sink, NNC_E_DEVICE, "kernel %s is not for a GPU", pk->symbol);
}

/* The bytes of static shared memory are cudaFuncAttributes' first field. Where they and dynamic memory exceed a block's default, the
 * function's limit becomes all that the GPU has. Kernels that share the function may need more, and the last one loaded would lower it. */
static nnc_status ask_shared(const handle *h, const nnc_plan *p, const char *name, int64_t dynamic,
    const void *attributes, int device, cuda_kernel k, nnc_sink *sink)
{
    size_t fixed;
    int most = 0;
    memcpy(&fixed, attributes, sizeof fixed);
    const int64_t bytes = dynamic + (int64_t)fixed;
    if (bytes <= PLAIN_SHARED)
        return NNC_OK;
    int error = h->rt->cudaDeviceGetAttribute(&most, CUDA_ATTR_SHARED_BYTES, device);
    if (!error && bytes > most) {
        NNC_LOCAL(nnc_text) need = {0}, has = {0};
        const char *target = target_of(p);
        nnc_put_bytes(&need, bytes);
        nnc_put_bytes(&has, most);
        return nnc_fail0(sink, NNC_E_DEVICE,
            "kernel %s for %.*s needs %s of shared memory for a block, and this GPU has %s: "
            "compile "
            "for this one (--target=cuda)",
            name, (int)strcspn(target, "#"), target, nnc_text_str(&need), nnc_text_str(&has));
    }
    if (!error)
        error = h->rt->cudaKernelSetAttributeForDevice(
            k, CUDA_FUNC_SHARED_BYTES, most - (int)fixed, device);
    return error ? failed(h->rt, p, name, error, sink) : NNC_OK;
}

/* Finds a kernel on the current device and loads it now: neither in the first timed run nor during graph capture. */
static nnc_status find_kernel(const handle *h, const nnc_plan *p, const char *name, int64_t shared,
    cuda_kernel *out, nnc_sink *sink)
{
    _Alignas(16) char attributes[ATTRIBUTES];
    char what[200];
    int device = 0, error = h->rt->cudaLibraryGetKernel(out, h->from->cuda, name);
    error = error ? error : h->rt->cudaGetDevice(&device);
    error = error ? error : h->rt->cudaFuncGetAttributes(attributes, *out);
    if (!error)
        return ask_shared(h, p, name, shared, attributes, device, *out, sink);
    snprintf(what, sizeof what, "kernel %.180s", name);
    return failed(h->rt, p, what, error, sink);
}

/* Reads the function's name and the sizes that it gets. */
static nnc_status read_code(
    handle *h, const nnc_pkernel *pk, char name[NNC_CODE_NAME], nnc_sink *sink)
{
    const char *at;
    const size_t n = nnc_pkernel_function(pk, &at);
    if (n >= NNC_CODE_NAME)
        return nnc_fail0(
            sink, NNC_E_MODEL, "kernel %.60s...: its function's name is too long", pk->symbol);
    snprintf(name, NNC_CODE_NAME, "%.*s", (int)n, at);
    for (at += n; pk->code && *at; h->n_size++)
        if (h->n_size == NNC_CUDA_SIZES || !nnc_cuda_argument(&at, h->size[h->n_size]))
            return nnc_fail0(
                sink, NNC_E_MODEL, "kernel %s: its sizes are not read: %.60s", pk->symbol, at);
    return NNC_OK;
}

static nnc_status prepare_fn(handle *h, const nnc_plan *p, const nnc_pkernel *pk, nnc_sink *sink)
{
    char name[NNC_CODE_NAME], finish[NNC_CODE_NAME + 8];
    h->n_arg = pk->n_args;
    if (h->n_arg > MOST_ARGS)
        return nnc_fail0(sink, NNC_E_BUG, "kernel %s has %d arguments", pk->symbol, h->n_arg);
    NNC_TRY(read_grid(pk, &h->grid, sink));
    NNC_TRY(read_code(h, pk, name, sink));
    NNC_TRY(find_kernel(h, p, name, h->grid.shared, &h->kernel, sink));
    if (h->grid.finish == 0)
        return NNC_OK;
    snprintf(finish, sizeof finish, "%s_finish", name);
    return find_kernel(h, p, finish, 0, &h->finish, sink);
}

static void unload(void *p)
{
    nnc_free(p);
}

static nnc_status load_kernel(const nnc_load *l, void **out, nnc_sink *sink)
{
    const nnc_pkernel *k = &l->plan->kernel[l->item];
    *out = NULL;
    if (!l->object)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "kernel %s has no machine code: the model was compiled without NVRTC (nnc "
            "doctor)",
            k->symbol);
    handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    h->from = l->object;
    h->rt = h->from->rt;
    nnc_status s = prepare_fn(h, l->plan, k, sink);
    if (s == NNC_OK)
        *out = h;
    else
        unload(h);
    return s;
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

static int launch(const handle *h, cuda_kernel k, int64_t blocks, int64_t shared, void **params)
{
    cuda_launch l = {.grid = {(unsigned)blocks, 1, 1},
        .block = {(unsigned)h->grid.threads, 1, 1},
        .shared_bytes = (size_t)shared,
        .stream = nnc_cuda_current()};
    return h->rt->cudaLaunchKernelExC(&l, k, params);
}

static nnc_status run_kernel(void *p, void *const *args, void *work)
{
    handle *h = p;
    void *value[MOST_ARGS + 1], *param[MOST_ARGS + 1 + NNC_CUDA_SIZES];
    int n = h->n_arg;
    for (int i = 0; i < h->n_arg; i++)
        value[i] = args[i];
    if (h->grid.work > 0 || !h->n_size) /* ignored by CUDA where the kernel has no such parameter */
        value[n++] = work;
    for (int i = 0; i < n; i++)
        param[i] = &value[i];
    for (int i = 0; i < h->n_size; i++)
        param[n++] = h->size[i];
    int error = launch(h, h->kernel, h->grid.blocks, h->grid.shared, param);
    if (!error && h->finish)
        error = launch(h, h->finish, h->grid.finish, 0, param);
    return error ? NNC_E_DEVICE : NNC_OK;
}

const nnc_engine nnc_engine_cuda = {
    .name = "cuda",
    .version = "compiles",
    .load_kernel = load_kernel,
    .load_object = load_object,
    .unload_object = unload_object,
    .run = run_kernel,
    .unload = unload,
};

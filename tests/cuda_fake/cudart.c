/* tests/cuda_fake/cudart.c -- the table "cudart" over queue.c: as much of CUDA's runtime as nnc calls, and it refuses what the real one
 * would refuse. */
#include "internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    PEER_ENABLED = 704,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURED_EVENT = 907,
    PLAIN_SHARED = 48 << 10, /* of a block, static and dynamic; more is asked for by an attribute */
    MOST_SHARED = 227 << 10,
};

static const fake_card h200 = {132, 1980000, 3201000, 6016, 60 << 20, (size_t)1 << 30};
fake_card fake_gpu;
bool fake_no_pinned;
int fake_devices = FAKE_USUAL_DEVICES, fake_fail_at, fake_fail_with, fake_calls, fake_break_launch;
static int device, last_error;
static cuda_stream default_stream[FAKE_DEVICES];
static bool peer[FAKE_DEVICES][FAKE_DEVICES];
static size_t used[FAKE_DEVICES];
size_t fake_taken; /* of each device, by other processes */

int fake_gives(int error)
{
    if (!error && ++fake_calls == fake_fail_at)
        error = fake_fail_with;
    if (fake_sticky)
        error = fake_sticky;
    if (error && error != NOT_READY)
        last_error = error;
    return error;
}

/* At the top of what changes something: a call that fails does nothing. */
#define ENTER() \
    do { \
        int error_ = fake_gives(0); \
        if (error_) \
            return error_; \
    } while (0)

cuda_stream fake_stream_of(cuda_stream s)
{
    return s ? s : default_stream[device];
}

/* ---- devices ------------------------------------------------------------------------------------------------------- */

static int version(int *v)
{
    *v = 13000;
    return 0;
}

/* As CUDA 13.0 calls and describes them. */
static const struct described {
    int error;
    const char *name, *text;
} described[] = {
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {34, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {35, "cudaErrorInsufficientDriver",
        "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "cudaErrorCallRequiresNewerDriver",
        "API call is not supported in the installed CUDA driver"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {102, "cudaErrorDeviceNotLicensed", "device doesn't have valid Grid license"},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {220, "cudaErrorNvlinkUncorrectable",
        "uncorrectable NVLink error detected during the execution"},
    {221, "cudaErrorJitCompilerNotFound", "PTX JIT compiler library not found"},
    {222, "cudaErrorUnsupportedPtxVersion",
        "the provided PTX was compiled with an unsupported toolchain."},
    {226, "cudaErrorContained",
        "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {802, "cudaErrorSystemNotReady", "system not yet initialized"},
    {803, "cudaErrorSystemDriverMismatch",
        "system has unsupported display driver / cuda driver combination"},
    {804, "cudaErrorCompatNotSupportedOnDevice",
        "forward compatibility was attempted on non supported HW"},
    {805, "cudaErrorMpsConnectionFailed",
        "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {806, "cudaErrorMpsRpcFailure",
        "the remote procedural call between the MPS server and the MPS client failed"},
    {807, "cudaErrorMpsServerNotReady",
        "MPS server is not ready to accept new MPS client requests"},
    {808, "cudaErrorMpsMaxClientsReached",
        "the hardware resources required to create MPS client have been exhausted"},
    {809, "cudaErrorMpsMaxConnectionsReached",
        "the hardware resources required to support device connections have been exhausted"},
    {810, "cudaErrorMpsClientTerminated", "the MPS client has been terminated by the server"},
    {999, "cudaErrorUnknown", "unknown error"},
};

static const struct described *described_as(int error)
{
    for (size_t i = 0; i < sizeof described / sizeof *described; i++)
        if (described[i].error == error)
            return &described[i];
    return NULL;
}

static const char *error_name(int error)
{
    const struct described *d = described_as(error);
    return d ? d->name : error ? "cudaErrorOfTheFake" : "cudaSuccess";
}

static const char *error_string(int error)
{
    const struct described *d = described_as(error);
    return d ? d->text : "the fake refuses";
}

int fake_last_error(void)
{
    return last_error;
}

static int get_last_error(void)
{
    int error = last_error;
    last_error = fake_sticky;
    return error;
}

static int device_count(int *n)
{
    *n = fake_devices;
    return fake_gives(0);
}

static int set_device(int d)
{
    if (d < 0 || d >= fake_devices)
        return fake_gives(INVALID_DEVICE);
    device = d;
    return fake_sticky ? fake_gives(0) : 0;
}

static int get_device(int *d)
{
    *d = device;
    return 0;
}

static int get_attribute(int *value, int attribute, int d)
{
    const int values[128] = {[CUDA_ATTR_CLOCK_KHZ] = fake_gpu.clock_khz,
        [CUDA_ATTR_SMS] = fake_gpu.sms,
        [CUDA_ATTR_MEMORY_KHZ] = fake_gpu.memory_khz,
        [CUDA_ATTR_BUS_BITS] = fake_gpu.bus_bits,
        [CUDA_ATTR_L2_BYTES] = fake_gpu.l2_bytes,
        [CUDA_ATTR_SM_THREADS] = 2048,
        [CUDA_ATTR_MAJOR] = 9,
        [CUDA_ATTR_SHARED_BYTES] = 227 << 10};
    if (attribute < 0 || attribute >= 128 || d < 0 || d >= FAKE_DEVICES)
        return fake_gives(INVALID_VALUE);
    *value = values[attribute];
    return fake_gives(0);
}

static int pci_id(char *id, int n, int d)
{
    snprintf(id, (size_t)n, "0000:%02x:00.0", d);
    return fake_gives(0);
}

static int can_access(int *can, int from, int to)
{
    *can = from != to && (from ^ to) != 3; /* two of four cannot */
    return fake_gives(0);
}

static int enable_peer(int to, unsigned flags)
{
    int can;
    if (flags || can_access(&can, device, to) || !can)
        return fake_gives(INVALID_VALUE);
    if (peer[device][to])
        return fake_gives(PEER_ENABLED);
    peer[device][to] = true;
    return fake_gives(0);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static int mem_info(size_t *free_bytes, size_t *total)
{
    *total = fake_gpu.memory_bytes;
    *free_bytes = fake_gpu.memory_bytes - fake_taken - used[device];
    return fake_gives(0);
}

static int mem_alloc(void **p, size_t bytes)
{
    ENTER();
    *p = NULL;
    if (fake_capturing)
        return fake_gives(CAPTURE_UNSUPPORTED);
    if (bytes > fake_gpu.memory_bytes - fake_taken - used[device])
        return fake_gives(OUT_OF_MEMORY);
    *p = fake_memory_create(bytes, device);
    used[device] += bytes;
    return 0;
}

static int mem_free(void *p)
{
    memory *m = fake_memory_of(p);
    fake_until_idle(); /* as CUDA waits here */
    if (m && m->device >= 0)
        used[m->device] -= m->bytes;
    return fake_memory_destroy(p, false) ? fake_gives(0) : fake_gives(INVALID_VALUE);
}

static int host_alloc(void **p, size_t bytes)
{
    ENTER();
    if (fake_no_pinned)
        return fake_gives(OUT_OF_MEMORY);
    *p = fake_memory_create(bytes, -1);
    return 0;
}

static int host_free(void *p)
{
    return fake_memory_destroy(p, true) ? fake_gives(0) : fake_gives(INVALID_VALUE);
}

typedef struct copy {
    void *to;
    const void *from;
    size_t n;
    void *kept; /* pageable memory is read when the copy is asked for */
} copy;

static void run_copy(void *ctx)
{
    const copy *c = ctx;
    memmove(c->to, c->kept ? c->kept : c->from, c->n);
    free(c->kept);
}

static bool on_device(const void *p)
{
    const memory *m = fake_memory_of(p);
    return m && m->device >= 0;
}

static void add_copy(cuda_stream s, void *to, const void *from, size_t n, bool any_device)
{
    copy *c = calloc(1, sizeof *c);
    fake_access a[2];
    int k = 0;
    *c = (copy){.to = to, .from = from, .n = n};
    if (fake_memory_of(from))
        a[k++] = (fake_access){from, n, false};
    if (fake_memory_of(to))
        a[k++] = (fake_access){to, n, true};
    if (!fake_memory_of(from)) {
        c->kept = malloc(n + 1);
        memcpy(c->kept, from, n);
    }
    command *given = fake_push_work(s, run_copy, c, a, k, "a copy");
    fake_count.bytes_up += on_device(to) && !on_device(from) ? (int64_t)n : 0;
    given->any_device = any_device;
    given->engine = on_device(from) == on_device(to) ? E_compute : on_device(to) ? E_up : E_down;
    fake_count.copies++;
}

static int memcpy_async(void *to, const void *from, size_t n, int kind, cuda_stream s)
{
    bool from_device = kind == CUDA_MEMCPY_TO_HOST || kind == CUDA_MEMCPY_ON_DEVICE;
    bool to_device = kind == CUDA_MEMCPY_TO_DEVICE || kind == CUDA_MEMCPY_ON_DEVICE;
    ENTER();
    if (on_device(from) != from_device || on_device(to) != to_device ||
        fake_stream_of(s)->device != device)
        return fake_gives(INVALID_VALUE);
    if (fake_capturing && kind != CUDA_MEMCPY_ON_DEVICE)
        return fake_gives(CAPTURE_UNSUPPORTED);
    add_copy(fake_stream_of(s), to, from, n, false);
    return fake_memory_of(to) ? 0
                              : fake_until_empty(fake_stream_of(s)); /* pageable: the call waits */
}

static int memcpy_peer(
    void *to, int to_device, const void *from, int from_device, size_t n, cuda_stream s)
{
    ENTER();
    const memory *a = fake_memory_of(from), *b = fake_memory_of(to);
    if (!a || !b || a->device != from_device || b->device != to_device ||
        fake_stream_of(s)->device != device)
        return fake_gives(INVALID_VALUE);
    add_copy(fake_stream_of(s), to, from, n, true);
    fake_count.peer_copies++;
    return 0;
}

typedef struct fill {
    void *p;
    int value;
    size_t n;
} fill;

static void run_fill(void *ctx)
{
    const fill *f = ctx;
    memset(f->p, f->value, f->n);
}

static int memset_async(void *p, int value, size_t bytes, cuda_stream s)
{
    fill *f = malloc(sizeof *f);
    *f = (fill){p, value, bytes};
    fake_enqueue(fake_stream_of(s), run_fill, f, &(fake_access){p, bytes, true}, 1, "a fill");
    return fake_gives(0);
}

/* ---- streams and events -------------------------------------------------------------------------------------------- */

static int stream_create(cuda_stream *s, unsigned flags, int priority)
{
    (void)priority;
    ENTER();
    if (flags != CUDA_STREAM_NON_BLOCKING)
        fake_wrong("a stream that waits for the default stream");
    *s = fake_stream_create(device);
    fake_count.streams += *s != NULL;
    return *s ? 0 : fake_gives(OUT_OF_MEMORY);
}

static int stream_destroy(cuda_stream s)
{
    fake_count.streams -= fake_stream_destroy(s);
    return fake_gives(0);
}

static int stream_sync(cuda_stream s)
{
    if (fake_stream_of(s)->capturing)
        return fake_gives(CAPTURE_UNSUPPORTED);
    int error = fake_until_empty(fake_stream_of(s));
    return fake_gives(error);
}

static int event_create(cuda_event *e, unsigned flags)
{
    ENTER();
    *e = calloc(1, sizeof **e);
    (*e)->device = device;
    (*e)->timed = !(flags & CUDA_EVENT_DISABLE_TIMING);
    fake_count.events++;
    return 0;
}

static int event_destroy(cuda_event e)
{
    free(e);
    fake_count.events--;
    return fake_gives(0);
}

static int event_record(cuda_event e, cuda_stream s)
{
    ENTER();
    if (e->device != fake_stream_of(s)->device)
        return fake_gives(INVALID_HANDLE);
    e->latest = fake_firing();
    e->latest->graph = fake_stream_of(s)->capturing;
    fake_push(fake_stream_of(s), C_record, "a record")->f = e->latest;
    return 0;
}

static int stream_wait(cuda_stream s, cuda_event e, unsigned flags)
{
    ENTER();
    if (flags)
        return fake_gives(INVALID_VALUE);
    if (!e->latest)
        return 0;
    int error = fake_graph_join(fake_stream_of(s), e->latest);
    if (error)
        return fake_gives(error);
    fake_push(fake_stream_of(s), C_wait, "a wait")->f = e->latest;
    return 0;
}

static int event_sync(cuda_event e)
{
    if (e->latest && e->latest->graph)
        return fake_gives(CAPTURED_EVENT);
    return fake_gives(e->latest ? fake_until_fired(e->latest) : 0);
}

static int event_query(cuda_event e)
{
    if (e->latest && e->latest->graph)
        return fake_gives(CAPTURED_EVENT);
    if (fake_sticky)
        return fake_gives(0);
    if (e->latest && !e->latest->fired) { /* who asks again and again gives the device time */
        (void)fake_step();
        if (!e->latest->fired)
            return NOT_READY;
    }
    if (e->latest)
        fake_host_after(e->latest);
    return fake_gives(0);
}

static int event_elapsed(float *ms, cuda_event a, cuda_event b)
{
    if (!a->timed || !b->timed || !a->latest || !b->latest || a->device != b->device)
        return fake_gives(INVALID_HANDLE);
    if (fake_sticky)
        return fake_gives(0);
    if (!a->latest->fired || !b->latest->fired)
        return NOT_READY;
    *ms = (float)((double)(b->latest->ns - a->latest->ns) * 1e-6);
    return fake_gives(0);
}

typedef struct call {
    void (*fn)(void *);
    void *ctx;
} call;

static void run_call(void *ctx)
{
    const call *c = ctx;
    c->fn(c->ctx);
}

static int host_func(cuda_stream s, void (*fn)(void *), void *ctx)
{
    ENTER();
    call *c = malloc(sizeof *c);
    *c = (call){fn, ctx};
    return fake_enqueue(fake_stream_of(s), run_call, c, NULL, 0, "a host function");
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */

static int library_load(cuda_library *l, const void *code, const int *jit, void **jit_values,
    unsigned n_jit, const int *options, void **values, unsigned n)
{
    ENTER();
    if (jit || jit_values || n_jit || options || values || n)
        return fake_gives(INVALID_VALUE);
    int error = fake_library_load(code, (fake_library **)l);
    fake_count.libraries += !error;
    return error ? fake_gives(error) : 0;
}

static int library_unload(cuda_library l)
{
    fake_library_unload((fake_library *)l);
    fake_count.libraries--;
    return fake_gives(0);
}

static int get_kernel(cuda_kernel *out, cuda_library l, const char *name)
{
    fake_library *f = (fake_library *)l;
    ENTER();
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->k[i].name, name) == 0) {
            *out = (cuda_kernel)&f->k[i];
            return 0;
        }
    return fake_gives(NOT_FOUND);
}

static int set_attribute(cuda_kernel k, int attribute, int value, int d)
{
    ENTER();
    if (attribute != CUDA_FUNC_SHARED_BYTES || d != device ||
        (size_t)value + ((const fake_kernel *)k)->static_bytes > MOST_SHARED)
        return fake_gives(INVALID_VALUE);
    ((fake_kernel *)(uintptr_t)k)->shared_limit = value;
    return 0;
}

static int get_attributes(void *attributes, cuda_kernel k)
{
    memset(attributes, 0, 64);
    if (k) /* cudaFuncAttributes begins with sharedSizeBytes */
        memcpy(attributes, &((const fake_kernel *)k)->static_bytes, sizeof(size_t));
    return fake_gives(k ? 0 : INVALID_HANDLE);
}

typedef struct launch {
    const fake_kernel *k;
    long long blocks, shared;
    int threads, number;
    void *arg[FAKE_ARGS + 1 + FAKE_SIZES]; /* with its work, and pointers to its sizes */
    unsigned char size[FAKE_SIZES][12];
} launch;

static void run_launch(void *ctx)
{
    const launch *l = ctx;
    if (l->number == fake_break_launch) {
        fake_sticky = 700;
        return;
    }
    const char *bad = l->k->launch(
        l->k->thunk, l->arg, l->blocks, 0, l->blocks, l->threads, l->shared, l->number & 1);
    if (bad)
        fake_wrong("%s: %s", l->k->name, bad);
}

/* Copies the sizes and finds how much of each argument the function accesses with them. Kernels of the plan that call it with the same
 * sizes may say different numbers, where one is given a part of a tensor. The least is true of all. */
static fake_shape take_sizes(launch *l, void **size, int at)
{
    const fake_kernel *k = l->k;
    const fake_shape *found = NULL;
    fake_shape least = {0};
    for (int i = 0; i < k->n_size; i++) {
        memcpy(l->size[i], size[i], (size_t)k->size_bytes[i]);
        l->arg[at + i] = l->size[i];
    }
    for (int s = 0; s < k->n_shape; s++) {
        const fake_shape *shape = &k->shape[s];
        bool same = !shape->blocks || shape->blocks == l->blocks;
        for (int i = 0; i < k->n_size; i++)
            same &= !memcmp(l->size[i], &shape->size[i], 4);
        for (int i = 0; same && i < k->n_in + k->n_out; i++)
            if (!found || shape->bytes[i] < least.bytes[i])
                least.bytes[i] = shape->bytes[i];
        found = same ? shape : found;
    }
    if (!found)
        fake_wrong("%s: no kernel has these sizes and blocks", k->name);
    return least;
}

static int launch_kernel(const cuda_launch *c, cuda_kernel kernel, void **args)
{
    const fake_kernel *k = (const fake_kernel *)kernel;
    int n = k->n_in + k->n_out;
    fake_access a[FAKE_ARGS + 1];
    ENTER();
    if (c->grid[0] < 1 || c->grid[1] != 1 || c->grid[2] != 1 || c->block[1] != 1 ||
        c->block[2] != 1 || c->block[0] < 1 || (int)c->block[0] > k->max_threads ||
        c->n_attribute || fake_stream_of(c->stream)->device != device ||
        (c->shared_bytes + k->static_bytes > PLAIN_SHARED &&
            (int)c->shared_bytes > k->shared_limit))
        return fake_gives(INVALID_VALUE);
    launch *l = calloc(1, sizeof *l);
    *l = (launch){k, c->grid[0], (long long)c->shared_bytes, (int)c->block[0],
        ++fake_count.launches, {NULL}, {{0}}};
    const fake_shape shape = take_sizes(l, args + n + k->work, n + k->work);
    for (int i = 0; i < n + k->work; i++) {
        l->arg[i] = *(void **)args[i];
        a[i] = (fake_access){l->arg[i], i < n ? shape.bytes[i] : 64, i >= k->n_in};
        if ((uintptr_t)l->arg[i] % 16)
            fake_wrong("%s: argument %d is not aligned", k->name, i);
    }
    int error = fake_enqueue(fake_stream_of(c->stream), run_launch, l, a, n + k->work, k->name);
    return error || !fake_speed.blocking ? error : fake_until_empty(fake_stream_of(c->stream));
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static nnc_cuda_cudart cudart = {
    .cudaDriverGetVersion = version,
    .cudaRuntimeGetVersion = version,
    .cudaGetErrorName = error_name,
    .cudaGetErrorString = error_string,
    .cudaGetLastError = get_last_error,
    .cudaGetDeviceCount = device_count,
    .cudaSetDevice = set_device,
    .cudaGetDevice = get_device,
    .cudaDeviceGetAttribute = get_attribute,
    .cudaDeviceGetPCIBusId = pci_id,
    .cudaDeviceCanAccessPeer = can_access,
    .cudaDeviceEnablePeerAccess = enable_peer,
    .cudaMemGetInfo = mem_info,
    .cudaMalloc = mem_alloc,
    .cudaFree = mem_free,
    .cudaMallocHost = host_alloc,
    .cudaFreeHost = host_free,
    .cudaMemcpyAsync = memcpy_async,
    .cudaMemcpyPeerAsync = memcpy_peer,
    .cudaMemsetAsync = memset_async,
    .cudaStreamCreateWithPriority = stream_create,
    .cudaStreamDestroy = stream_destroy,
    .cudaStreamSynchronize = stream_sync,
    .cudaStreamWaitEvent = stream_wait,
    .cudaLaunchHostFunc = host_func,
    .cudaEventCreateWithFlags = event_create,
    .cudaEventDestroy = event_destroy,
    .cudaEventRecord = event_record,
    .cudaEventSynchronize = event_sync,
    .cudaEventQuery = event_query,
    .cudaEventElapsedTime = event_elapsed,
    .cudaLibraryLoadData = library_load,
    .cudaLibraryUnload = library_unload,
    .cudaLibraryGetKernel = get_kernel,
    .cudaKernelSetAttributeForDevice = set_attribute,
    .cudaFuncGetAttributes = get_attributes,
    .cudaLaunchKernelExC = launch_kernel,
};

void fake_begin(uint64_t seed)
{
    fake_queues_begin(seed);
    fake_fail_at = fake_fail_with = fake_calls = fake_break_launch = 0;
    device = last_error = fake_graph_fail = 0;
    memset(peer, 0, sizeof peer);
    memset(used, 0, sizeof used);
    fake_gpu = h200;
    fake_no_pinned = false;
    for (int d = 0; d < FAKE_DEVICES; d++)
        default_stream[d] = fake_stream_create(d);
    fake_libraries_begin();
    fake_nccl_begin();
    fake_cupti_begin(seed);
    fake_graph_table(&cudart);
    nnc_cuda_override(CUDA_driver, NULL);
    nnc_cuda_override(CUDA_cudart, &cudart);
    nnc_cuda_override(CUDA_nvrtc, &fake_nvrtc);
    nnc_cuda_override(CUDA_nvrtc12, NULL);
}

/* tests/cuda_fake/loadable/state.c -- the machine of the loadable fake: driver, NVML, and errors as NVIDIA documents them.
 *
 *     FAKE_CUDA_TAKEN=PID:MIB            process PID has so much of each GPU; with all of it, no context can be made (error 2)
 *     FAKE_CUDA_MODE=exclusive           a GPU that another process has (FAKE_CUDA_TAKEN) gives no context (error 46)
 *     FAKE_CUDA_MODE=prohibited          no GPU gives a context (error 46)
 *     FAKE_CUDA_MIG=empty | slice        divided GPUs without an instance (error 100: no device), or one instance of an eighth
 *     FAKE_CUDA_DRIVER=12080             a driver of CUDA 12.8, which is too old for this runtime (error 35)
 *     FAKE_CUDA_L2_KIB=N                 the size of the L2 cache
 *     FAKE_CUDA_ERROR=CALL=NUMBER,...    these functions return these errors, whatever they are asked */
#include "state.h"
#include "../internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNTIME = 13000,
    OUT_OF_MEMORY = 2,
    TOO_OLD = 35,
    UNAVAILABLE = 46,
    NO_DEVICE = 100,
    MOST_ERRORS = 4
};

static unsigned taken_by;
static bool exclusive, prohibited, divided, slice;
static int driver_number = RUNTIME;

int state_number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static bool is(const char *variable, const char *value)
{
    const char *text = getenv(variable);
    return text && !strcmp(text, value);
}

void state_begin(void)
{
    const char *taken = getenv("FAKE_CUDA_TAKEN");
    unsigned mib = 0;
    if (taken && sscanf(taken, "%u:%u", &taken_by, &mib) == 2)
        fake_taken = (size_t)mib << 20;
    exclusive = is("FAKE_CUDA_MODE", "exclusive");
    prohibited = is("FAKE_CUDA_MODE", "prohibited");
    slice = is("FAKE_CUDA_MIG", "slice");
    divided = slice || is("FAKE_CUDA_MIG", "empty");
    driver_number = state_number("FAKE_CUDA_DRIVER", RUNTIME);
    fake_gpu.l2_bytes = state_number("FAKE_CUDA_L2_KIB", fake_gpu.l2_bytes >> 10) << 10;
    if (slice) { /* as an H200's 1g.18gb is: 16 SMs, an eighth of the memory and of its bus */
        fake_devices = 1;
        fake_gpu.sms = 16;
        fake_gpu.bus_bits /= 8;
        fake_gpu.l2_bytes /= 8;
        fake_gpu.memory_bytes /= 8;
    }
}

/* ---- the runtime ---------------------------------------------------------------------------------------------------- */

static int (*device_count)(int *n), (*set_device)(int device);

static int count(int *n)
{
    *n = 0;
    if (driver_number / 1000 < RUNTIME / 1000)
        return fake_gives(TOO_OLD);
    if (divided && !slice)
        return fake_gives(NO_DEVICE);
    return device_count(n);
}

static int no_context(void)
{
    return prohibited || (exclusive && taken_by) ? UNAVAILABLE
           : fake_taken >= fake_gpu.memory_bytes ? OUT_OF_MEMORY
                                                 : 0;
}

/* Makes the device's context, as CUDA 12 and 13 do here. */
static int set(int device)
{
    int error = no_context();
    return error ? fake_gives(error) : set_device(device);
}

static int (*mem_info)(size_t *free_bytes, size_t *total);

static int info(size_t *free_bytes, size_t *total)
{
    int error = no_context();
    return error ? fake_gives(error) : mem_info(free_bytes, total);
}

static int driver_version(int *v)
{
    *v = driver_number;
    return 0;
}

void state_of_runtime(nnc_cuda_cudart *rt)
{
    device_count = rt->cudaGetDeviceCount;
    rt->cudaGetDeviceCount = count;
    set_device = rt->cudaSetDevice;
    rt->cudaSetDevice = set;
    rt->cudaDriverGetVersion = driver_version;
    mem_info = rt->cudaMemGetInfo;
    rt->cudaMemGetInfo = info;
}

/* ---- calls that fail ------------------------------------------------------------------------------------------------ */

static int error_of[MOST_ERRORS];
static bool of_runtime[MOST_ERRORS];

static int gives(int i)
{
    return of_runtime[i] ? fake_gives(error_of[i]) : error_of[i];
}

static int gives_0(void)
{
    return gives(0);
}

static int gives_1(void)
{
    return gives(1);
}

static int gives_2(void)
{
    return gives(2);
}

static int gives_3(void)
{
    return gives(3);
}

void *state_error(const char *name)
{
    static int (*const fails[MOST_ERRORS])(void) = {gives_0, gives_1, gives_2, gives_3};
    const char *list = getenv("FAKE_CUDA_ERROR");
    size_t n = strlen(name);
    void *fn = NULL;
    for (int i = 0; list && *list && i < MOST_ERRORS; i++) {
        if (!strncmp(list, name, n) && list[n] == '=') {
            error_of[i] = atoi(list + n + 1);
            of_runtime[i] = !strncmp(name, "cuda", 4);
            memcpy(&fn, &fails[i], sizeof fn);
        }
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return fn;
}

/* ---- the driver and NVML -------------------------------------------------------------------------------------------- */

static int device_get(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < 0 || ordinal >= FAKE_DEVICES;
}

static int device_name(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "Fake GPU %d%s", device, slice ? " MIG 1g.0gb" : "");
    return 0;
}

static int device_bytes(size_t *bytes, int device)
{
    (void)device;
    *bytes = fake_gpu.memory_bytes;
    return 0;
}

static int init(unsigned flags)
{
    return flags != 0;
}

const nnc_cuda_driver state_driver = {init, driver_version, device_get, device_name, device_bytes};

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

static int nvml_count(unsigned *n)
{
    *n = (unsigned)fake_devices;
    return 0;
}

static int nvml_handle_of(unsigned i, nvml_device *d)
{
    (void)i;
    return nvml_handle(":", d);
}

static int nvml_mode(nvml_device d, int *mode)
{
    *mode = prohibited ? 2 : exclusive ? 3 : 0;
    return !d;
}

static int nvml_mig(nvml_device d, unsigned *now, unsigned *after_reset)
{
    *now = *after_reset = divided;
    return !d;
}

/* Memory of the whole GPU, also where it is divided. */
static int nvml_bytes(nvml_device d, nvml_memory *m)
{
    const size_t total = fake_gpu.memory_bytes * (slice ? 8 : 1);
    *m = (nvml_memory){total, total - fake_taken, fake_taken};
    return !d;
}

static int nvml_processes(nvml_device d, unsigned *n, nvml_process *p)
{
    if (*n < (taken_by != 0))
        return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    *n = taken_by != 0;
    if (taken_by)
        *p = (nvml_process){taken_by, fake_taken, ~0u, ~0u};
    return !d;
}

const nnc_cuda_nvml state_nvml = {.nvmlInit_v2 = nvml_init,
    .nvmlShutdown = nvml_init,
    .nvmlErrorString = nvml_error,
    .nvmlSystemGetDriverVersion = nvml_text,
    .nvmlDeviceGetHandleByPciBusId_v2 = nvml_handle,
    .nvmlDeviceGetPowerUsage = nvml_watts,
    .nvmlDeviceGetEnforcedPowerLimit = nvml_watts,
    .nvmlDeviceGetTotalEnergyConsumption = nvml_energy,
    .nvmlDeviceGetClockInfo = nvml_clock,
    .nvmlDeviceGetMaxClockInfo = nvml_clock,
    .nvmlDeviceGetCount_v2 = nvml_count,
    .nvmlDeviceGetHandleByIndex_v2 = nvml_handle_of,
    .nvmlDeviceGetMemoryInfo = nvml_bytes,
    .nvmlDeviceGetComputeMode = nvml_mode,
    .nvmlDeviceGetMigMode = nvml_mig,
    .nvmlDeviceGetComputeRunningProcesses_v3 = nvml_processes};

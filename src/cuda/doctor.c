/* cuda/doctor.c -- versions of NVIDIA's libraries, mismatches among them, and the GPUs that the driver lists. */
#include "cuda/internal.h"

/* ---- versions ----------------------------------------------------------------------------------------------------- */

/* Sets the number and text of a CUDA version: 13000 is "13.0". */
static void cuda_number(nnc_cuda_found *f, int number)
{
    f->number = number;
    snprintf(f->version, sizeof f->version, "%d.%d", number / 1000, number % 1000 / 10);
}

/* Sets the text of a cuDNN, cuBLAS or NCCL version: 91900 is "9.19.0". */
static void dotted(nnc_cuda_found *f, size_t v)
{
    snprintf(f->version, sizeof f->version, "%zu.%zu.%zu", v / 10000, v % 10000 / 100, v % 100);
}

static void driver_text(nnc_cuda_found *f)
{
    const nnc_cuda_nvml *l = NNC_CUDA(nvml, NULL);
    if (!l || l->nvmlInit_v2())
        return;
    if (l->nvmlSystemGetDriverVersion(f->version, sizeof f->version))
        f->version[0] = 0;
    l->nvmlShutdown();
}

void cuda_version(nnc_cuda_lib lib, nnc_cuda_found *f)
{
    int v = 0, minor = 0;
    switch (lib) {
    case CUDA_driver:
        if (!NNC_CUDA(driver, NULL)->cuDriverGetVersion(&v))
            cuda_number(f, v);
        break;
    case CUDA_cudart:
        if (!NNC_CUDA(cudart, NULL)->cudaRuntimeGetVersion(&v))
            cuda_number(f, v);
        break;
    case CUDA_nvrtc:
    case CUDA_nvrtc12:
        if (!((const nnc_cuda_nvrtc *)nnc_cuda_table(lib, NULL))->nvrtcVersion(&v, &minor))
            cuda_number(f, v * 1000 + minor * 10);
        break;
    case CUDA_cublaslt:
        dotted(f, NNC_CUDA(cublaslt, NULL)->cublasLtGetVersion());
        f->number = (int)NNC_CUDA(cublaslt, NULL)->cublasLtGetCudartVersion();
        break;
    case CUDA_cudnn:
        dotted(f, NNC_CUDA(cudnn, NULL)->cudnnGetVersion());
        f->number = (int)NNC_CUDA(cudnn, NULL)->cudnnGetCudartVersion();
        break;
    case CUDA_nvml: driver_text(f); break;
    case CUDA_nccl:
        if (!NNC_CUDA(nccl, NULL)->ncclGetVersion(&v))
            dotted(f, (size_t)v);
        break;
    case CUDA_cupti: /* has a number of its own */
    case CUDA__LIBS: break;
    }
}

/* ---- mismatches --------------------------------------------------------------------------------------------------- */

/* A driver supports its own CUDA major version and older ones; libraries that share device memory and streams must
 * be of one major version. */
int nnc_cuda_mismatches(nnc_text *out)
{
    static const nnc_cuda_lib of_runtime[] = {CUDA_nvrtc, CUDA_cublaslt, CUDA_cudnn};
    nnc_cuda_found driver, runtime, other;
    int n = 0;
    nnc_cuda_look(CUDA_driver, &driver);
    nnc_cuda_look(CUDA_cudart, &runtime);
    if (driver.ok && runtime.ok && driver.number && driver.number / 1000 < runtime.number / 1000) {
        nnc_printf(out,
            "the driver supports CUDA %s at most, but the runtime is CUDA %s (%s): install a newer "
            "driver, or the libraries of CUDA %d\n",
            driver.version, runtime.version, runtime.path, driver.number / 1000);
        n++;
    }
    for (size_t i = 0; i < NNC_COUNT(of_runtime) && runtime.ok; i++) {
        nnc_cuda_look(of_runtime[i], &other);
        if (!other.ok || !other.number || other.number / 1000 == runtime.number / 1000)
            continue;
        nnc_printf(out,
            "%s %s is for CUDA %d, but the runtime is CUDA %s: both should be of one CUDA version "
            "(set NNC_CUDA_PATH)\n",
            other.name, other.version, other.number / 1000, runtime.version);
        n++;
    }
    return n;
}

/* ---- GPUs --------------------------------------------------------------------------------------------------------- */

static int attribute(const nnc_cuda_cudart *rt, int what, int device)
{
    int v = 0;
    return rt->cudaDeviceGetAttribute(&v, what, device) ? 0 : v;
}

/* Memory size from the runtime, which creates a context for it: used where the driver does not answer. */
static int64_t memory_of(const nnc_cuda_cudart *rt, int device)
{
    size_t free_bytes, total = 0;
    int before = 0;
    bool ok = !rt->cudaGetDevice(&before) && !rt->cudaSetDevice(device) &&
              !rt->cudaMemGetInfo(&free_bytes, &total);
    (void)rt->cudaSetDevice(before);
    (void)rt->cudaGetLastError();
    return ok ? (int64_t)total : 0;
}

/* Creates no context where a driver is present. */
static void describe(const nnc_cuda_cudart *rt, int i, nnc_cuda_device *d)
{
    const nnc_cuda_driver *driver = NNC_CUDA(driver, NULL);
    int handle;
    size_t bytes = 0;
    *d = (nnc_cuda_device){.name = "GPU"};
    if (driver && !driver->cuInit(0) && !driver->cuDeviceGet(&handle, i)) {
        if (driver->cuDeviceGetName(d->name, sizeof d->name, handle))
            snprintf(d->name, sizeof d->name, "GPU");
        d->memory_bytes = driver->cuDeviceTotalMem_v2(&bytes, handle) ? 0 : (int64_t)bytes;
    }
    if (!d->memory_bytes)
        d->memory_bytes = memory_of(rt, i);
    if (rt->cudaDeviceGetPCIBusId(d->pci, sizeof d->pci, i))
        d->pci[0] = 0;
    d->sm = attribute(rt, CUDA_ATTR_MAJOR, i) * 10 + attribute(rt, CUDA_ATTR_MINOR, i);
    d->sms = attribute(rt, CUDA_ATTR_SMS, i);
    d->sm_threads = attribute(rt, CUDA_ATTR_SM_THREADS, i);
    d->shared_bytes = attribute(rt, CUDA_ATTR_SHARED_BYTES, i);
    d->l2_bytes = attribute(rt, CUDA_ATTR_L2_BYTES, i);
    d->clock_hz = (int64_t)attribute(rt, CUDA_ATTR_CLOCK_KHZ, i) * 1000;
    /* two transfers a clock */
    d->bytes_s = (int64_t)attribute(rt, CUDA_ATTR_MEMORY_KHZ, i) * 2000 *
                 (attribute(rt, CUDA_ATTR_BUS_BITS, i) / 8);
}

int nnc_cuda_devices(nnc_cuda_device *d, int max, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    int n = 0, error = rt ? rt->cudaGetDeviceCount(&n) : 0;
    if (!rt || error) {
        NNC_LOCAL(nnc_text) why = {0};
        if (!rt)
            nnc_puts(&why, "the CUDA runtime is missing");
        else if (!NNC_CUDA(driver, NULL))
            nnc_puts(&why, "there is no driver");
        else
            (void)nnc_cuda_explain(&why, error, -1);
        nnc_note(sink, (nnc_loc){0}, "no GPU: %s", nnc_text_str(&why));
        return 0;
    }
    for (int i = 0; i < n && i < max; i++)
        describe(rt, i, &d[i]);
    return n;
}

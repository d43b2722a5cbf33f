/* cuda/failure.c -- what errors of CUDA's runtime mean to the user: busy, divided and exclusive GPUs, MPS, drivers that are too old or
 * not started. The meaning of each error is that of driver_types.h (CUDA 12.8 to 13.2). Causes come from the driver and NVML, which
 * answer also where no context can be made. */
#include "cuda/internal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Values of NVML's enumerations (nvml.h). */
enum { MODE_PROHIBITED = 2, MODE_EXCLUSIVE = 3, MOST_PROCESSES = 64, MOST_NAMED = 4 };

/* ---- what NVML knows of a GPU ------------------------------------------------------------------------------------- */

typedef struct gpu_state {
    bool known, mig;
    int mode;
    nvml_memory memory; /* of the whole GPU, also where it is divided; total 0: unknown */
    nvml_process process
        [MOST_PROCESSES]; /* other than this one; none of a divided GPU, whose slices do not share memory */
    unsigned n_process;
} gpu_state;

static void ask_processes(const nnc_cuda_nvml *l, nvml_device d, gpu_state *s)
{
    unsigned n = MOST_PROCESSES;
    if (!l->nvmlDeviceGetComputeRunningProcesses_v3 ||
        l->nvmlDeviceGetComputeRunningProcesses_v3(d, &n, s->process))
        return;
    for (unsigned i = 0; i < n; i++)
        if (s->process[i].pid != (unsigned)getpid())
            s->process[s->n_process++] = s->process[i];
}

static void ask_device(const nnc_cuda_nvml *l, nvml_device d, gpu_state *s)
{
    unsigned mig = 0, after_reset;
    s->known = true;
    if (l->nvmlDeviceGetMigMode && !l->nvmlDeviceGetMigMode(d, &mig, &after_reset))
        s->mig = mig == 1;
    if (!l->nvmlDeviceGetComputeMode || l->nvmlDeviceGetComputeMode(d, &s->mode))
        s->mode = 0;
    if (!l->nvmlDeviceGetMemoryInfo || l->nvmlDeviceGetMemoryInfo(d, &s->memory))
        s->memory = (nvml_memory){0};
    if (!s->mig)
        ask_processes(l, d, s);
}

/* The GPU of an ordinal, which NVML finds by its bus id. */
static gpu_state state_of(int ordinal)
{
    gpu_state s = {0};
    const nnc_cuda_nvml *l = NNC_CUDA(nvml, NULL);
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    nvml_device d;
    char pci[24];
    if (!l || !rt || ordinal < 0 || rt->cudaDeviceGetPCIBusId(pci, sizeof pci, ordinal) ||
        l->nvmlInit_v2())
        return s;
    if (!l->nvmlDeviceGetHandleByPciBusId_v2(pci, &d))
        ask_device(l, d, &s);
    l->nvmlShutdown();
    return s;
}

/* GPUs that the driver has, visible to CUDA or not, and how many of them are divided (MIG). -1: NVML does not tell. */
static int count_all(int *divided)
{
    const nnc_cuda_nvml *l = NNC_CUDA(nvml, NULL);
    unsigned n = 0, mig, after_reset;
    nvml_device d;
    *divided = 0;
    if (!l || !l->nvmlDeviceGetCount_v2 || l->nvmlInit_v2())
        return -1;
    bool known = !l->nvmlDeviceGetCount_v2(&n);
    for (unsigned i = 0; known && i < n && l->nvmlDeviceGetHandleByIndex_v2; i++)
        if (l->nvmlDeviceGetMigMode && !l->nvmlDeviceGetHandleByIndex_v2(i, &d) &&
            !l->nvmlDeviceGetMigMode(d, &mig, &after_reset))
            *divided += mig == 1;
    l->nvmlShutdown();
    return known ? (int)n : -1;
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

/* "process 4242 (python3)"; the name is that of /proc, where this process may see the other one. */
static void put_process(nnc_text *out, unsigned pid)
{
    char path[48], *name = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    nnc_printf(out, "process %u", pid);
    if (!nnc_file_read(path, 64, &name, &n, NULL) && n)
        nnc_printf(out, " (%.*s)", (int)strcspn(name, "\n"), name);
    nnc_free(name);
}

static void put_processes(nnc_text *out, const gpu_state *s)
{
    for (unsigned i = 0; i < s->n_process && i < MOST_NAMED; i++) {
        nnc_puts(out, i ? ", " : "");
        put_process(out, s->process[i].pid);
        if (s->process[i].bytes != ~0ull) {
            nnc_puts(out, " uses ");
            nnc_put_bytes(out, (int64_t)s->process[i].bytes);
        }
    }
    if (s->n_process > MOST_NAMED)
        nnc_printf(out, " and %u others", s->n_process - MOST_NAMED);
}

static void put_users(nnc_text *out, const gpu_state *s)
{
    if (s->n_process) {
        nnc_puts(out, "; ");
        put_processes(out, s);
    }
}

/* Where there is no memory even for a context, the runtime does not tell, and NVML does. */
void nnc_cuda_room(nnc_text *out, int ordinal)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    gpu_state s = state_of(ordinal);
    size_t room = 0, total = 0;
    if (!rt || rt->cudaMemGetInfo(&room, &total) || !total) {
        room = s.mig ? 0 : (size_t)s.memory.free;
        total = s.mig ? 0 : (size_t)s.memory.total;
    }
    if (total) {
        nnc_puts(out, ": ");
        nnc_put_bytes(out, (int64_t)room);
        nnc_puts(out, " of ");
        nnc_put_bytes(out, (int64_t)total);
        nnc_puts(out, " are free");
    }
    put_users(out, &s);
    if (getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"))
        nnc_puts(out, "; CUDA_MPS_PINNED_DEVICE_MEM_LIMIT limits this process further");
    nnc_puts(out, ". A smaller batch may fit, chunks of it (--memory-limit), or another GPU "
                  "(CUDA_VISIBLE_DEVICES)");
}

/* ---- causes ------------------------------------------------------------------------------------------------------- */

static void say_versions(nnc_text *out, int ordinal)
{
    nnc_cuda_found driver, runtime;
    (void)ordinal;
    nnc_cuda_look(CUDA_driver, &driver);
    nnc_cuda_look(CUDA_cudart, &runtime);
    if (!driver.ok) {
        nnc_printf(out, ": there is no driver (%s)", driver.why);
        return;
    }
    if (driver.number && runtime.number)
        nnc_printf(out, ": the driver supports CUDA %s, the runtime is CUDA %s (%s)",
            driver.version, runtime.version, runtime.path);
    nnc_puts(out, ". Install a newer driver (580 or newer for CUDA 13, 525 or newer for CUDA 12)");
    if (driver.number && driver.number < runtime.number)
        nnc_printf(out, ", or the libraries of CUDA %d (NNC_CUDA_PATH)", driver.number / 1000);
}

/* Names the driver's library that was found. */
static void put_driver(nnc_text *out)
{
    nnc_cuda_found driver;
    nnc_cuda_look(CUDA_driver, &driver);
    nnc_printf(out, ": %s ", driver.ok ? driver.path : "libcuda.so.1");
}

static void say_path_of_driver(nnc_text *out, int ordinal)
{
    (void)ordinal;
    put_driver(out);
    nnc_puts(out, "is the toolkit's, for linking only. Take its folder out of LD_LIBRARY_PATH, or "
                  "install the driver");
}

static void say_compat(nnc_text *out, int ordinal)
{
    (void)ordinal;
    put_driver(out);
    nnc_puts(out,
        "is of the package cuda-compat, which works on data-centre GPUs only. Take its folder out "
        "of LD_LIBRARY_PATH, or show CUDA only GPUs that it supports (CUDA_VISIBLE_DEVICES)");
}

static void say_busy(nnc_text *out, int ordinal)
{
    gpu_state s = state_of(ordinal < 0 ? 0 : ordinal);
    int at = ordinal < 0 ? 0 : ordinal;
    if (s.mode == MODE_PROHIBITED) {
        nnc_printf(out,
            ": its compute mode is prohibited. nvidia-smi -i %d -c DEFAULT allows programs", at);
    } else if (s.mode == MODE_EXCLUSIVE) {
        nnc_puts(out, ": its compute mode is exclusive-process, and another process has it");
        put_users(out, &s);
        nnc_printf(
            out, ". Wait for its end, share it through MPS, or nvidia-smi -i %d -c DEFAULT", at);
    } else {
        put_users(out, &s);
        nnc_puts(out, ". It may be exclusive to another process, prohibited (nvidia-smi -q -d "
                      "COMPUTE), or without memory for one more");
    }
}

/* Why CUDA sees no GPU. */
static void say_no_gpu(nnc_text *out, int ordinal)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int divided, n = count_all(&divided);
    (void)ordinal;
    if (visible && n != 0)
        nnc_printf(out,
            ": CUDA_VISIBLE_DEVICES=%s hides all, or names first one that is not there "
            "(nvidia-smi -L lists them)",
            visible);
    if (divided)
        nnc_printf(out,
            "%s MIG is enabled on %d of the %d GPUs: it needs instances (nvidia-smi mig -cgi ... "
            "-C), or nvidia-smi -mig 0",
            visible ? ";" : ":", divided, n);
    else if (!visible && n > 0)
        nnc_printf(out,
            ": the driver has %d, and may not use them here (a container needs their device files: "
            "docker run --gpus all)",
            n);
    else if (n <= 0)
        nnc_puts(out, ": nvidia-smi tells whether the driver has one. A container needs its device "
                      "files (docker run --gpus all)");
}

static void say_mps(nnc_text *out, int ordinal)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"), *log = getenv("CUDA_MPS_LOG_DIRECTORY");
    (void)ordinal;
    nnc_printf(out, " (MPS: its pipes are in %s, its log is %s/control.log)",
        pipe ? pipe : "/tmp/nvidia-mps", log ? log : "/var/log/nvidia-mps");
}

/* ---- the errors --------------------------------------------------------------------------------------------------- */

static const struct failure {
    int error; /* cudaError_t */
    void (*cause)(nnc_text *out, int ordinal); /* what this machine says of it; or NULL */
    const char *help; /* what would help; or NULL */
} failures[] = {
    {2, nnc_cuda_room, NULL},
    {3, NULL,
        ". In a process forked from one that used CUDA it always fails: start a new program "
        "instead (exec; \"spawn\" of Python's multiprocessing). Otherwise nvidia-smi tells whether "
        "the driver works"},
    {34, say_path_of_driver, NULL},
    {35, say_versions, NULL},
    {36, say_versions, NULL},
    {46, say_busy, NULL},
    {100, say_no_gpu, NULL},
    {101, NULL, ". nvidia-smi -L lists the GPUs, and CUDA_VISIBLE_DEVICES which of them are used"},
    {102, NULL, ". A virtual GPU needs a licence (nvidia-smi -q)"},
    {214, NULL,
        ". Its memory is damaged: see nvidia-smi -q -d ECC,ROW_REMAPPER. A new process may use it "
        "after nvidia-smi --gpu-reset"},
    {220, NULL, ". See nvidia-smi nvlink -e. The links are usable after nvidia-smi --gpu-reset"},
    {221, NULL,
        ". libnvidia-ptxjitcompiler.so.1 of the driver is missing (a container needs "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"},
    {222, NULL, ". The driver is older than the compiler that wrote this PTX: install a newer one"},
    {226, NULL, ". Only a new process can use the GPU again"},
    {802, NULL,
        ". Where GPUs are joined by NVSwitch, the fabric manager must run (systemctl status "
        "nvidia-fabricmanager), in the driver's version"},
    {803, NULL,
        ". The driver's libraries and its kernel module are of two versions: restart after an "
        "update, and take cuda-compat out of LD_LIBRARY_PATH"},
    {804, say_compat, NULL},
    {805, say_mps,
        ". Start it (nvidia-cuda-mps-control -d), or end what is left of it and its pipes, to run "
        "without"},
    {806, say_mps, ". Restart it (echo quit | nvidia-cuda-mps-control)"},
    {807, say_mps,
        ". It is starting, or waits for the end of programs after the fault of one of them: try "
        "again, or end them"},
    {808, say_mps, ". As many programs use the GPU as MPS allows: wait for the end of one"},
    {809, say_mps,
        ". Fewer programs at once, or fewer connections of each (CUDA_DEVICE_MAX_CONNECTIONS)"},
    {810, say_mps, ". Only a new process can use the GPU again"},
    {999, NULL, ". The kernel's log may tell more (dmesg | grep -e NVRM -e Xid)"},
};

nnc_status nnc_cuda_explain(nnc_text *out, int error, int ordinal)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    if (!rt)
        return NNC_E_DEVICE;
    nnc_printf(out, "%s (%s)", rt->cudaGetErrorString(error), rt->cudaGetErrorName(error));
    for (size_t i = 0; i < NNC_COUNT(failures); i++) {
        if (failures[i].error != error)
            continue;
        if (failures[i].cause)
            failures[i].cause(out, ordinal);
        nnc_puts(out, failures[i].help ? failures[i].help : "");
    }
    return error == failures[0].error ? NNC_E_FIT : NNC_E_DEVICE;
}

void nnc_cuda_limits(nnc_text *out, int ordinal)
{
    gpu_state s = state_of(ordinal);
    const char *share = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (s.mode == MODE_EXCLUSIVE)
        nnc_puts(out, "; for one process at a time (compute mode exclusive-process)");
    if (s.mode == MODE_PROHIBITED)
        nnc_puts(out, "; for no process (compute mode prohibited)");
    if (s.mig)
        nnc_puts(
            out, "; MIG is enabled: an instance of a GPU, power and clocks are the whole GPU's");
    else if (s.memory.total) {
        nnc_puts(out, "; ");
        nnc_put_bytes(out, (int64_t)s.memory.free);
        nnc_puts(out, " free");
    }
    put_users(out, &s);
    if (share)
        nnc_printf(out,
            "; MPS gives this process %s %% of its threads (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)",
            share);
}

nnc_status nnc_cuda_try(int ordinal, nnc_text *why)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    size_t room, total;
    if (!rt)
        return NNC_E_DEVICE;
    int error = rt->cudaSetDevice(ordinal);
    error = error ? error : rt->cudaMemGetInfo(&room, &total);
    (void)rt->cudaGetLastError();
    return error ? nnc_cuda_explain(why, error, ordinal) : NNC_OK;
}

/* cuda/load.c -- opens a library on first use and fills its table from symbols.def. */
#include "cuda/internal.h"
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <string.h>

/* Every row of symbols.def with its library. */
static const struct symbol {
    nnc_cuda_lib lib;
    bool needed;
    const char *name;
} symbols[] = {
#define ROW(lib, name, needed) {lib, needed, #name},
#define DRIVER(ret, name, args, needed) ROW(CUDA_driver, name, needed)
#define CUDART(ret, name, args, needed) ROW(CUDA_cudart, name, needed)
#define NVRTC(ret, name, args, needed) ROW(CUDA_nvrtc, name, needed)
#define CUBLASLT(ret, name, args, needed) ROW(CUDA_cublaslt, name, needed)
#define CUDNN(ret, name, args, needed) ROW(CUDA_cudnn, name, needed)
#define NVML(ret, name, args, needed) ROW(CUDA_nvml, name, needed)
#define NCCL(ret, name, args, needed) ROW(CUDA_nccl, name, needed)
#define CUPTI(ret, name, args, needed) ROW(CUDA_cupti, name, needed)
#include "cuda/symbols.def"
};

static nnc_cuda_driver driver;
static nnc_cuda_cudart cudart;
static nnc_cuda_nvrtc nvrtc;
static nnc_cuda_nvrtc12 nvrtc12;
static nnc_cuda_cublaslt cublaslt;
static nnc_cuda_cudnn cudnn;
static nnc_cuda_nvml nvml;
static nnc_cuda_nccl nccl;
static nnc_cuda_cupti cupti;

/* A table is an array of function pointers, one per symbol, in order. */
#define LIB(lib, with, driver_s, needs, does, ...) \
    { \
        .name = #lib, .what = does, .soname = {__VA_ARGS__}, .of_driver = driver_s, \
        .symbols_of = CUDA_##with, .table = &lib, .since = needs \
    }

typedef enum state { UNKNOWN, OPEN, ABSENT, REPLACED } state;

static struct lib {
    const char *name, *what, *since;
    const char *soname[3];
    bool of_driver; /* installed with the driver, not with CUDA */
    nnc_cuda_lib symbols_of;
    void *table;
    state state;
    const void *replaced; /* REPLACED: the table, or NULL */
    cuda_file file; /* OPEN */
    char why[256]; /* ABSENT */
} libs[CUDA__LIBS] = {
    LIB(driver, driver, true, "driver 525", "the GPU driver", "libcuda.so.1"),
    LIB(cudart, cudart, false, "CUDA 12.8", "memory, streams, launches", "libcudart.so.13",
        "libcudart.so.12"),
    LIB(nvrtc, nvrtc, false, "CUDA 12.0", "compiles kernels", "libnvrtc.so.13", "libnvrtc.so.12"),
    LIB(nvrtc12, nvrtc, false, "CUDA 12.0", "compiles kernels for sm_61 and sm_70",
        "libnvrtc.so.12"),
    LIB(cublaslt, cublaslt, false, "CUDA 12.0", "matrix products", "libcublasLt.so.13",
        "libcublasLt.so.12"),
    LIB(cudnn, cudnn, false, "cuDNN 9.0", "convolutions", "libcudnn.so.9"),
    LIB(nvml, nvml, true, "driver 525", "power and clocks", "libnvidia-ml.so.1"),
    LIB(nccl, nccl, false, "NCCL 2.14", "sums over several GPUs", "libnccl.so.2"),
    LIB(cupti, cupti, false, "CUDA 12.0", "times of kernels in profiles", "libcupti.so.13",
        "libcupti.so.12"),
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Fills the table from an open library. Returns the name of a missing required function, or NULL. */
static const char *fill(struct lib *l, void *handle)
{
    void **entry = l->table;
    for (size_t i = 0; i < NNC_COUNT(symbols); i++) {
        if (symbols[i].lib != l->symbols_of)
            continue;
        void *fn = dlsym(handle, symbols[i].name);
        if (!fn && symbols[i].needed)
            return symbols[i].name;
        memcpy(entry++, &fn, sizeof fn);
    }
    return NULL;
}

/* NVRTC opens its builtins library by name when it first compiles. Loading it here makes that succeed where its
 * folder is not on the loader's path (wheels); it stays open. */
static void open_builtins(const char *nvrtc_path)
{
    const char *slash = strrchr(nvrtc_path, '/');
    NNC_LOCAL(nnc_text) pattern = {0};
    glob_t found = {0};
    if (!slash)
        return;
    nnc_printf(&pattern, "%.*s/libnvrtc-builtins.so.*", (int)(slash - nvrtc_path), nvrtc_path);
    if (!pattern.oom && glob(nnc_text_str(&pattern), 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            (void)dlopen(
                found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL); /* after a failure NVRTC reports it */
    globfree(&found);
}

/* MiB of address space that a library takes with those that it opens itself. Where there is less (ulimit -v), cuDNN calls abort or its C++
 * exceptions end the process. */
static const int rooms[CUDA__LIBS] = {[CUDA_cudart] = 64,
    [CUDA_nvrtc] = 256,
    [CUDA_nvrtc12] = 256,
    [CUDA_cublaslt] = 640,
    [CUDA_cudnn] = 768,
    [CUDA_nccl] = 512,
    [CUDA_cupti] = 256};

/* Opens the first file that loads and has every required function. `why` gets the reason for the first file that
 * exists; an unknown name is the reason only when no file exists. */
static void open_lib(struct lib *l)
{
    l->state = ABSENT;
    snprintf(l->why, sizeof l->why, "%s was not found", l->soname[0]);
    bool reason = false;
    const int room = rooms[l - libs];
    for (int skip = 0; cuda_search(l->soname, l->of_driver, skip, &l->file); skip++) {
        if (!nnc_has_room((size_t)room << 20)) {
            snprintf(l->why, sizeof l->why,
                "out of host memory: %d MiB of address space are wanted to load %.160s", room,
                l->file.path);
            return;
        }
        void *handle = dlopen(l->file.path, RTLD_NOW | RTLD_LOCAL);
        const char *error = handle ? NULL : dlerror();
        const char *lacks = handle ? fill(l, handle) : NULL;
        if (handle && !lacks) {
            if (l->symbols_of == CUDA_nvrtc)
                open_builtins(l->file.path);
            l->state = OPEN;
            return;
        }
        bool there = handle || strchr(l->file.path, '/');
        if (there && !reason) {
            reason = true;
            if (lacks)
                snprintf(l->why, sizeof l->why, "%.160s lacks %s: nnc needs %s or newer",
                    l->file.path, lacks, l->since);
            else
                snprintf(l->why, sizeof l->why, "%s", error ? error : "does not load");
        }
        if (handle)
            dlclose(handle);
    }
}

static struct lib *look(nnc_cuda_lib lib)
{
    struct lib *l = &libs[lib];
    if (l->state == UNKNOWN)
        open_lib(l);
    return l;
}

const void *nnc_cuda_table(nnc_cuda_lib lib, nnc_sink *sink)
{
    pthread_mutex_lock(&lock);
    struct lib *l = look(lib);
    const void *t = l->state == OPEN ? l->table : l->state == REPLACED ? l->replaced : NULL;
    pthread_mutex_unlock(&lock);
    if (!t)
        (void)nnc_fail0(sink, NNC_E_DEVICE, "%s is missing: %s (nnc doctor)", l->name,
            l->state == REPLACED ? "it is disabled" : l->why);
    return t;
}

void nnc_cuda_override(nnc_cuda_lib lib, const void *table)
{
    libs[lib].state = REPLACED;
    libs[lib].replaced = table;
}

void nnc_cuda_forget(void)
{
    for (int i = 0; i < CUDA__LIBS; i++)
        libs[i].state = UNKNOWN;
}

/* The absolute file name, which the loader reports even where it chose the folder. */
static void file_name(const struct lib *l, char *out, size_t n)
{
    void *fn;
    Dl_info info;
    memcpy(&fn, l->table, sizeof fn);
    bool known = !strchr(l->file.path, '/') && dladdr(fn, &info) && info.dli_fname;
    snprintf(out, n, "%s", known ? info.dli_fname : l->file.path);
}

bool cuda_file_of(nnc_cuda_lib lib, cuda_file *out)
{
    pthread_mutex_lock(&lock);
    const struct lib *l = &libs[lib];
    bool found = l->state == OPEN;
    if (found) {
        *out = l->file;
        file_name(l, out->path, sizeof out->path);
    } else if (l->state == UNKNOWN) {
        found = cuda_search(l->soname, l->of_driver, 0, out);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void nnc_cuda_look(nnc_cuda_lib lib, nnc_cuda_found *out)
{
    pthread_mutex_lock(&lock);
    const struct lib *l = look(lib);
    *out = (nnc_cuda_found){.name = l->name,
        .what = l->what,
        .ok = l->state == OPEN || (l->state == REPLACED && l->replaced)};
    if (l->state == OPEN) {
        file_name(l, out->path, sizeof out->path);
        snprintf(out->place, sizeof out->place, "%s", l->file.place);
    } else if (l->state == REPLACED) {
        snprintf(out->place, sizeof out->place, "replaced");
    }
    if (!out->ok)
        snprintf(out->why, sizeof out->why, "%s", l->state == REPLACED ? "it is disabled" : l->why);
    pthread_mutex_unlock(&lock);
    if (out->ok)
        cuda_version(lib, out);
}

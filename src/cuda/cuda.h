/* cuda/cuda.h -- NVIDIA's libraries, opened on first use, so that the same program runs with and without them.
 *
 * Each library is a table of function pointers with nnc's own declarations (symbols.def): building nnc needs no CUDA
 * header. Search order:
 *   1. $NNC_CUDA_PATH, a colon-separated list of folders (each also with lib64/ and lib/, and as a Python environment); where the
 *      variable is set, nothing else is searched;
 *   2. the toolkit: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*;
 *   3. the loader's path (LD_LIBRARY_PATH, ld.so.conf);
 *   4. NVIDIA's wheels in the active Python environment: nvidia/<part>/lib in the site-packages of $VIRTUAL_ENV.
 * The driver's own libraries are always looked up on the loader's path. CUDA 13's library is preferred to CUDA 12's
 * in each place. All functions except nnc_cuda_override and nnc_cuda_forget are thread-safe. */
#ifndef NNC_CUDA_H
#define NNC_CUDA_H

#include "base/base.h"

/* ---- the libraries ------------------------------------------------------------------------------------------------ */

typedef struct cuda_stream_of *cuda_stream;
typedef struct cuda_event_of *cuda_event;
typedef struct cuda_graph_of *cuda_graph;
typedef struct cuda_graph_exec_of *cuda_graph_exec;
typedef struct cuda_library_of *cuda_library;
typedef const struct cuda_kernel_of *cuda_kernel;
typedef struct nvrtc_program_of *nvrtc_program;
typedef struct nvml_device_of *nvml_device;
typedef struct nvml_memory { /* nvmlMemory_t: bytes */
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long bytes; /* all ones: unknown */
    unsigned gpu_instance, compute_instance;
} nvml_process;
typedef struct nccl_comm_of *nccl_comm;
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
/* The first fields of ncclConfig_t, as NCCL 2.14 has them: later ones read what `size` says, and take their defaults for fields that are
 * newer than `version`. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int unset; /* padding; of later versions cgaClusterSize, not read for this version */
} nccl_config;
#define NCCL_CONFIG(blocks) \
    {sizeof(nccl_config), 0xcafebeef, 21400, (blocks), INT32_MIN}

/* cudaLaunchConfig_t */
typedef struct cuda_launch {
    unsigned grid[3], block[3];
    size_t shared_bytes;
    cuda_stream stream;
    void *attribute; /* n_attribute entries; NULL = none */
    unsigned n_attribute;
} cuda_launch;

/* Values of CUDA enumerations. */
enum nnc_cuda_value {
    CUDA_MEMCPY_TO_DEVICE = 1, CUDA_MEMCPY_TO_HOST = 2, CUDA_MEMCPY_ON_DEVICE = 3,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
    CUDA_FUNC_SHARED_BYTES = 8, /* cudaFuncAttributeMaxDynamicSharedMemorySize */
    CUDA_ATTR_CLOCK_KHZ = 13, CUDA_ATTR_SMS = 16, CUDA_ATTR_MEMORY_KHZ = 36, CUDA_ATTR_BUS_BITS = 37, CUDA_ATTR_L2_BYTES = 38,
    CUDA_ATTR_SM_THREADS = 39, CUDA_ATTR_MAJOR = 75, CUDA_ATTR_MINOR = 76,
    CUDA_ATTR_SHARED_BYTES = 97, /* maximum of one block, on request */
    NCCL_SUCCESS = 0,
    NCCL_IN_PROGRESS = 7, /* of a communicator that does not block */
    NCCL_SUM = 0, NCCL_MAX = 2, NCCL_MIN = 3,
};

#define CUDA_FIELD(ret, name, args, needed) ret(*name) args;
typedef struct nnc_cuda_driver {
#define DRIVER CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_driver;
typedef struct nnc_cuda_cudart {
#define CUDART CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cudart;
typedef struct nnc_cuda_nvrtc {
#define NVRTC CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_nvrtc;
typedef nnc_cuda_nvrtc nnc_cuda_nvrtc12; /* CUDA 12's, beside CUDA 13's: for sm_61 and sm_70 */
typedef struct nnc_cuda_cublaslt {
#define CUBLASLT CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cublaslt;
typedef struct nnc_cuda_cudnn {
#define CUDNN CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cudnn;
typedef struct nnc_cuda_nvml {
#define NVML CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_nvml;
typedef struct nnc_cuda_nccl {
#define NCCL CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_nccl;
typedef struct nnc_cuda_cupti {
#define CUPTI CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cupti;
#undef CUDA_FIELD

typedef enum nnc_cuda_lib {
    CUDA_driver, CUDA_cudart, CUDA_nvrtc, CUDA_nvrtc12, CUDA_cublaslt, CUDA_cudnn, CUDA_nvml, CUDA_nccl, CUDA_cupti,
    CUDA__LIBS
} nnc_cuda_lib;

/* Returns the table of a library, opening it on the first call. NULL when it is missing or lacks a required function (NNC_E_DEVICE,
 * reason in the sink). The table lives as long as the process. NNC_CUDA(cudart, sink)->cudaMalloc(...) is the typed form. */
const void *nnc_cuda_table(nnc_cuda_lib lib, nnc_sink *sink);
#define NNC_CUDA(lib, sink) ((const nnc_cuda_##lib *)nnc_cuda_table(CUDA_##lib, sink))

/* Replaces a library's table by `table` (borrowed); NULL makes the library absent. For tests and simulated devices. */
void nnc_cuda_override(nnc_cuda_lib lib, const void *table);
/* Drops all overrides and search results, so that the next call searches again (open libraries stay open). For
 * tests. */
void nnc_cuda_forget(void);

/* Facts about a library after searching for it. */
typedef struct nnc_cuda_found {
    const char *name; /* "cudart" */
    const char *what; /* what nnc uses it for */
    bool ok;
    char version[32]; /* "13.0.88", "" when absent */
    int number;       /* major * 1000 + minor * 10 of the CUDA release it belongs to, 0 = unknown */
    char path[512];   /* of the file */
    char place[24];   /* "toolkit", "loader's path", "Python wheels", "NNC_CUDA_PATH", "replaced" */
    char why[256];    /* reason when it is missing */
} nnc_cuda_found;
void nnc_cuda_look(nnc_cuda_lib lib, nnc_cuda_found *out);

/* Appends a line for each mismatch: a driver older than the runtime, libraries of different CUDA versions, versions
 * below nnc's minimum. Returns their number. */
int nnc_cuda_mismatches(nnc_text *out);

/* A GPU that the driver lists. */
typedef struct nnc_cuda_device {
    char name[96], pci[24];
    int sm, sms, sm_threads;
    int64_t memory_bytes, shared_bytes, l2_bytes, clock_hz;
    int64_t bytes_s; /* memory bandwidth from clock and bus width; 0 = unknown */
} nnc_cuda_device;
/* Fills d[0..max) and returns the number of GPUs (0 without a driver; the reason goes to the sink as a note). */
int nnc_cuda_devices(nnc_cuda_device *d, int max, nnc_sink *sink);

/* Appends an error of CUDA's runtime as a message for the user: NVIDIA's text and name of it, its cause, and what would help. The driver
 * and NVML tell causes: versions, compute mode, MIG, other processes. `ordinal`: the GPU; -1: none was reached. Returns the status that the
 * error stands for: NNC_E_FIT: no device memory; NNC_E_DEVICE: any other. */
nnc_status nnc_cuda_explain(nnc_text *out, int error, int ordinal);
/* Appends how much of a GPU's memory is free, which other processes use it, and what would help. Messages about a library's failed
 * allocation lack that. */
void nnc_cuda_room(nnc_text *out, int ordinal);
/* Makes a context on a GPU, as running on it would; the reason is appended where that fails. */
nnc_status nnc_cuda_try(int ordinal, nnc_text *why) NNC_MUST;
/* Appends what limits the use of a GPU now: memory in use, compute mode, MIG. Nothing where nothing does. Creates no context. */
void nnc_cuda_limits(nnc_text *out, int ordinal);

/* The calling thread's current stream: devices set it around each library call, and the wrappers of the libraries
 * read it. NULL: the default stream. */
cuda_stream nnc_cuda_current(void);
void nnc_cuda_set_current(cuda_stream s);

/* ---- CUPTI -------------------------------------------------------------------------------------------------------- */

/* Times of marked work of a run, by CUPTI's activity records. One user in a process, from one thread. nnc_cupti_open fails (NNC_E_DEVICE)
 * where CUPTI is missing or belongs to another profiler. calls: also of work outside of graphs, which costs more. */
nnc_status nnc_cupti_open(bool calls, nnc_sink *sink) NNC_MUST;
void nnc_cupti_close(void);
/* Commands that the thread submits or captures from now on belong to `mark`; -1: to nothing. Nodes of graphs that are captured while it
 * is open keep their marks. */
void nnc_cupti_mark(int32_t mark);
/* Forgets what was recorded before, while the GPUs are idle. */
void nnc_cupti_begin(void);
/* Begin and end of the work of marks first .. first + n - 1 since then, while the GPUs are idle. -1: no record, as for all marks if some
 * were lost. Some records come late: `all` waits for none of them any more. */
void nnc_cupti_read(bool all, int64_t *start_ns, int64_t *end_ns, int32_t first, int n);

/* ---- NVRTC -------------------------------------------------------------------------------------------------------- */

typedef struct nnc_nvrtc_options {
    int sm;                    /* 90 = sm_90 */
    bool ptx;                  /* PTX for compute_<sm> instead of machine code */
    bool lineinfo;             /* source lines for profilers */
    bool fast;                 /* compile faster, produce slower code: for tests */
    int jobs;                  /* threads; the result does not depend on it */
    nnc_cache *cache;          /* NULL: none */
    const char *const *option; /* further NVRTC options */
    int n_option;
} nnc_nvrtc_options;

/* One translation unit of CUDA C. */
typedef struct nnc_nvrtc_unit {
    const char *name;   /* "relu.cu", for messages */
    const char *source; /* NUL-terminated; borrowed */
    char *code;         /* out: cubin or PTX text (its NUL counted), to be freed by the caller with nnc_free; NULL
                         * after an error */
    size_t n;
    bool is_ptx;        /* PTX was asked for, or is the fallback for a GPU newer than this NVRTC */
    bool cached;
    int64_t ns;         /* compile time */
} nnc_nvrtc_unit;

/* The code that the available NVRTC compiles for a GPU. */
typedef struct nnc_nvrtc_target {
    nnc_cuda_lib lib; /* CUDA_nvrtc, or CUDA_nvrtc12 where only CUDA 12 supports the GPU */
    int arch;         /* architecture compiled for; not sm where NVRTC does not support that */
    bool ptx;
    char version[32]; /* "13.0" and a mark that distinguishes its builds; part of cache keys */
} nnc_nvrtc_target;

/* Chooses machine code for `sm`. The first fallback is machine code for an older GPU of the same generation, which sm runs as it is. The
 * second is PTX, which the driver compiles. Fallbacks are noted in the sink. NNC_E_DEVICE: no NVRTC, or none that supports a GPU this old;
 * the message says what to install. `cache` (or NULL) keeps the list of supported architectures, so that NVRTC need not be opened for
 * it. */
nnc_status nnc_nvrtc_resolve(int sm, bool ptx, nnc_cache *cache, nnc_nvrtc_target *w, nnc_sink *sink) NNC_MUST;

/* Compiles the units that are not in the cache (key: source, options, NVRTC's version, architecture), `jobs` at a
 * time. Compiler errors are NNC_E_BUG, located at unit and line, with the kernel's name. After an error no unit
 * holds code. */
nnc_status nnc_nvrtc_compile(nnc_nvrtc_unit *u, int n, const nnc_nvrtc_options *o, nnc_sink *sink) NNC_MUST;

/* ---- cubins ------------------------------------------------------------------------------------------------------- */

/* Instruction classes, assigned by opcodes.def; `unknown`: opcodes missing there. */
typedef enum nnc_cubin_class {
    CC_nothing, /* padding */
    CC_real,    /* arithmetic, comparison and conversion of floats */
    CC_mufu,    /* special function unit: 16 lanes per clock and SM, others 64 or 128 */
    CC_tensor, CC_integer, CC_move, CC_branch, CC_barrier,
    CC_shuffle, /* shuffles and votes */
    CC_load_global, CC_store_global, CC_load_shared, CC_store_shared, CC_load_local, CC_store_local, CC_load_const, CC_atomic,
    CC_unknown,
    CC__COUNT
} nnc_cubin_class;

/* Statistics of one kernel's machine code, read from a cubin (sm_70 and newer: 16 bytes per instruction). Counts are
 * static and include out-of-line slow paths. */
enum { CUBIN_WIDTHS = 5, CUBIN_OPS = 512 };

typedef struct nnc_cubin_kernel {
    const char *name;
    int registers;    /* per thread */
    int stack_bytes;  /* per thread: local arrays and spilled registers */
    int shared_bytes; /* static; without the 1 KB that sm_90 and newer reserve */
    int instructions; /* without padding */
    int n[CC__COUNT]; /* all, by class */
    int op[CUBIN_OPS];               /* by the low nine bits; names: nnc_cubin_op */
    int load_bits[CUBIN_WIDTHS];     /* global loads of the whole kernel */
    int store_bits[CUBIN_WIDTHS];
    const uint8_t *code;             /* n_code instructions of 16 bytes, in the cubin that was read */
    int64_t n_code;
    int sm;
} nnc_cubin_kernel;

const char *nnc_cubin_op(int bits); /* "FFMA"; NULL: unknown opcode */
/* Reads the kernels of a cubin into `a`, in section order. NNC_E_MODEL: damaged, or not a cubin of these GPUs. */
nnc_status nnc_cubin_read(const void *cubin, size_t n, nnc_arena *a, nnc_cubin_kernel **k, int *n_kernel, int *sm, nnc_sink *sink) NNC_MUST;
/* Appends one line for each kernel: registers, stack, shared memory, instructions by class, widths of global accesses. */
void nnc_cubin_print(nnc_text *out, const nnc_cubin_kernel *k, int n);

#endif

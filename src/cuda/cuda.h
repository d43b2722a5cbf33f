/* cuda/cuda.h -- NVIDIA's libraries, opened when they are first needed: one program runs where they are and where they are not.
 *
 * Each library is a table of function pointers, with nnc's own declarations (symbols.def): no header of CUDA is needed to build nnc.
 * A library is looked for in
 *   1. $NNC_CUDA_PATH, a list of folders separated by colons (each as it is, its lib64/ and lib/, and as a Python environment); where
 *      the variable is set, nowhere else;
 *   2. the toolkit: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*;
 *   3. the loader's path (LD_LIBRARY_PATH, ld.so.conf);
 *   4. NVIDIA's wheels in the active Python environment: nvidia/<part>/lib in the site-packages of $VIRTUAL_ENV.
 * The driver's own libraries are on the loader's path whatever NNC_CUDA_PATH says. In each place CUDA 13's library is tried before
 * CUDA 12's. All functions are thread-safe but nnc_cuda_override and nnc_cuda_forget. */
#ifndef NNC_CUDA_H
#define NNC_CUDA_H

#include "base/base.h"

/* ---- the libraries ------------------------------------------------------------------------------------------------- */

typedef struct cuda_stream_of *cuda_stream;
typedef struct cuda_event_of *cuda_event;
typedef struct cuda_graph_of *cuda_graph;
typedef struct cuda_graph_exec_of *cuda_graph_exec;
typedef struct cuda_library_of *cuda_library;
typedef const struct cuda_kernel_of *cuda_kernel;
typedef struct nvrtc_program_of *nvrtc_program;
typedef struct nvml_device_of *nvml_device;
typedef struct nccl_comm_of *nccl_comm;
typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* cudaLaunchConfig_t */
typedef struct cuda_launch {
    unsigned grid[3], block[3];
    size_t shared_bytes;
    cuda_stream stream;
    void *attribute; /* of n_attribute; NULL = none */
    unsigned n_attribute;
} cuda_launch;

/* Values of CUDA's enumerations that nnc uses. */
enum nnc_cuda_value {
    CUDA_MEMCPY_TO_DEVICE = 1,
    CUDA_MEMCPY_TO_HOST = 2,
    CUDA_MEMCPY_ON_DEVICE = 3,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
    CUDA_FUNC_SHARED_BYTES = 8, /* cudaFuncAttributeMaxDynamicSharedMemorySize */
    CUDA_ATTR_CLOCK_KHZ = 13,
    CUDA_ATTR_SMS = 16,
    CUDA_ATTR_MEMORY_KHZ = 36,
    CUDA_ATTR_BUS_BITS = 37,
    CUDA_ATTR_L2_BYTES = 38,
    CUDA_ATTR_SM_THREADS = 39,
    CUDA_ATTR_MAJOR = 75,
    CUDA_ATTR_MINOR = 76,
    CUDA_ATTR_SHARED_BYTES = 97, /* of one block, on request */
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
typedef nnc_cuda_nvrtc nnc_cuda_nvrtc12; /* CUDA 12's beside 13's: for sm_61 and sm_70 */
typedef struct nnc_cuda_cublaslt {
#define CUBLASLT CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cublaslt;
typedef struct nnc_cuda_cudnn {
#define CUDNN CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cudnn;
typedef struct nnc_cuda_cupti {
#define CUPTI CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_cupti;
typedef struct nnc_cuda_nvml {
#define NVML CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_nvml;
typedef struct nnc_cuda_nccl {
#define NCCL CUDA_FIELD
#include "cuda/symbols.def"
} nnc_cuda_nccl;
#undef CUDA_FIELD

typedef enum nnc_cuda_lib {
    CUDA_driver,
    CUDA_cudart,
    CUDA_nvrtc,
    CUDA_nvrtc12,
    CUDA_cublaslt,
    CUDA_cudnn,
    CUDA_cupti,
    CUDA_nvml,
    CUDA_nccl,
    CUDA__LIBS
} nnc_cuda_lib;

/* The table of a library, opened on the first call; NULL when it is not there or lacks a needed function (NNC_E_DEVICE and why in the
 * sink). The table lives as long as the process. NNC_CUDA(cudart, sink)->cudaMalloc(...) is the typed form. */
const void *nnc_cuda_table(nnc_cuda_lib lib, nnc_sink *sink);
#define NNC_CUDA(lib, sink) ((const nnc_cuda_##lib *)nnc_cuda_table(CUDA_##lib, sink))

/* Puts `table` (borrowed) in the place of a library; NULL makes it absent. For tests and simulated devices. */
void nnc_cuda_override(nnc_cuda_lib lib, const void *table);
/* Forgets all overrides and what was found, so that the next call looks anew (open libraries stay open). For tests. */
void nnc_cuda_forget(void);

/* What is known of a library after looking for it. */
typedef struct nnc_cuda_found {
    const char *name; /* "cudart" */
    const char *what; /* what nnc does with it */
    bool ok;
    char version[32]; /* "13.0.88", "" when absent */
    int number;       /* major * 1000 + minor * 10 of the CUDA that it is from, 0 = it does not say */
    char path[512];   /* of the file */
    char place[24];   /* "toolkit", "loader's path", "Python wheels", "NNC_CUDA_PATH", "replaced" */
    char why[256];    /* why not */
} nnc_cuda_found;
void nnc_cuda_look(nnc_cuda_lib lib, nnc_cuda_found *out);

/* Appends what tells the library's files from others, without opening them: the key under which its answers can be kept, here or, as
 * build ids are the same everywhere, on another machine (files without one: paths, sizes, times). False: it is not there, or a test's
 * table stands for it. Before the library is open this is the file that would be; what is kept belongs under the text as it is once it
 * is open. */
bool nnc_cuda_identity(nnc_cuda_lib lib, nnc_text *out);

/* Appends a line for each thing that does not match: a driver older than the runtime, libraries of different CUDA versions,
 * versions below what nnc needs. Returns how many. */
int nnc_cuda_mismatches(nnc_text *out);

/* The GPUs that the driver shows. */
typedef struct nnc_cuda_device {
    char name[96], pci[24];
    int sm, sms, sm_threads;
    int64_t memory_bytes, shared_bytes, l2_bytes, clock_hz;
    int64_t bytes_s; /* of the memory, by its clock and width; 0 = unknown */
} nnc_cuda_device;
/* Fills d[0..max) and returns how many there are (0 without a driver; why in the sink, as a note). */
int nnc_cuda_devices(nnc_cuda_device *d, int max, nnc_sink *sink);

/* The stream that the calling thread's device gives its commands to: set around each library call that a device launches, read by the
 * libraries' wrappers. NULL: the default stream. */
cuda_stream nnc_cuda_current(void);
void nnc_cuda_set_current(cuda_stream s);

/* ---- NVRTC --------------------------------------------------------------------------------------------------------- */

typedef struct nnc_nvrtc_options {
    int sm;                    /* 90 = sm_90 */
    bool ptx;                  /* PTX for compute_<sm> instead of machine code */
    bool lineinfo;             /* source lines for profilers */
    bool fast;                 /* compiles quicker, runs slower: tests */
    int jobs;                  /* threads; never changes a byte of the result */
    nnc_cache *cache;          /* NULL: none */
    const char *const *option; /* more of NVRTC's own */
    int n_option;
} nnc_nvrtc_options;

/* One translation unit of CUDA C. */
typedef struct nnc_nvrtc_unit {
    const char *name;   /* "relu.cu", for messages */
    const char *source; /* NUL-terminated; borrowed */
    char *code;         /* out: cubin, or PTX text with its NUL counted; the caller's (nnc_free), NULL after an error */
    size_t n;
    bool is_ptx;        /* asked for, or the fallback for a GPU newer than this NVRTC */
    bool cached;
    int64_t ns;         /* that compiling took */
} nnc_nvrtc_unit;

/* How a GPU's code is made by the NVRTC that is there. */
typedef struct nnc_nvrtc_way {
    nnc_cuda_lib lib; /* CUDA_nvrtc, or CUDA_nvrtc12 where only CUDA 12 knows the GPU */
    int arch;         /* what is compiled for; differs from sm where NVRTC does not know it */
    bool ptx;
    char version[32]; /* "13.0", and what tells builds of it apart; part of cache keys */
} nnc_nvrtc_way;

/* Decides: machine code for `sm`; else for an older GPU of the same generation, which sm runs as it is; else PTX, which the driver
 * compiles (both noted in the sink). NNC_E_DEVICE: no NVRTC, or none that knows a GPU so old, with what to install. `cache` (or
 * NULL) remembers what an NVRTC knows, so that it need not be opened to be asked. */
nnc_status nnc_nvrtc_way_to(int sm, bool ptx, nnc_cache *cache, nnc_nvrtc_way *w, nnc_sink *sink) NNC_MUST;

/* Compiles n units, `jobs` at a time, those that the cache has not (key: source, options, NVRTC's version, architecture). Errors of the
 * compiler are NNC_E_BUG, located at unit and line, with the kernel's name. After an error no unit holds code. */
nnc_status nnc_nvrtc_compile(nnc_nvrtc_unit *u, int n, const nnc_nvrtc_options *o, nnc_sink *sink) NNC_MUST;

/* ---- cubins -------------------------------------------------------------------------------------------------------- */

/* Classes of instructions, as opcodes.def gives them; `unknown` are those that it does not list. */
typedef enum nnc_cubin_class {
    CC_nothing, /* padding */
    CC_real,    /* arithmetic, comparison and conversion of floats */
    CC_mufu,    /* the special function unit: 16 lanes a clock and SM, others 64 or 128 */
    CC_tensor,
    CC_integer,
    CC_move,
    CC_branch,
    CC_barrier,
    CC_shuffle, /* and votes */
    CC_load_global,
    CC_store_global,
    CC_load_shared,
    CC_store_shared,
    CC_load_local,
    CC_store_local,
    CC_load_const,
    CC_atomic,
    CC_unknown,
    CC__COUNT
} nnc_cubin_class;

/* What machine code of one kernel looks like, read from a cubin (sm_70 and newer: 16 bytes an instruction). Counts are static: of the
 * code as it stands, out-of-line slow paths included. */
enum { CUBIN_WIDTHS = 5, CUBIN_OPS = 512 };
typedef struct nnc_cubin_kernel {
    const char *name;
    int registers;    /* of one thread */
    int stack_bytes;  /* of one thread: local arrays and what did not fit the registers */
    int shared_bytes; /* static; without the 1 KB that sm_90 and newer keep for themselves */
    int instructions; /* without padding */
    int path;         /* of them on the way from entry to exit that stores the most to global memory and is then the shortest: what
                       * a thread executes that meets no slow path and no rest of a row. A loop counts once, or not at all where it may
                       * be passed over. */
    int path_n[CC__COUNT]; /* the same, by class */
    int path_stored;  /* bytes that this way stores to global memory */
    int path_load_bits[CUBIN_WIDTHS]; /* its loads from global memory of 8, 16, 32, 64 and 128 bits */
    int path_store_bits[CUBIN_WIDTHS];
    int n[CC__COUNT]; /* all, by class */
    int op[CUBIN_OPS];               /* by the low nine bits; names: nnc_cubin_op */
    int load_bits[CUBIN_WIDTHS];     /* the same of all instructions */
    int store_bits[CUBIN_WIDTHS];
} nnc_cubin_kernel;

const char *nnc_cubin_op(int bits); /* "FFMA"; NULL: not in the table */
/* Reads the kernels of a cubin into `a`, in the order of its sections. NNC_E_MODEL: damaged, or not a cubin of these GPUs. */
nnc_status nnc_cubin_read(const void *cubin, size_t n, nnc_arena *a, nnc_cubin_kernel **k, int *n_kernel, int *sm, nnc_sink *sink) NNC_MUST;
/* Appends one line for each kernel: registers, stack, shared memory, instructions by class, widths of global accesses. */
void nnc_cubin_print(nnc_text *out, const nnc_cubin_kernel *k, int n);

#endif

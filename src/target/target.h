/* target/target.h -- the machine file: what a device can do and what each engine on it supports and costs. Read by
 * passes, codegen, plan and the simulator; measured (`nnc calibrate`) or described by hand. docs/schema/machine.schema.json. */
#ifndef NNC_TARGET_H
#define NNC_TARGET_H

#include "base/base.h"

typedef enum nnc_tkind { NNC_T_cpu, NNC_T_cuda } nnc_tkind;

#define NNC_T_ENGINES 8
/* Memory of the process beside a plan: program, libraries, graph and plan, machine code, threads. */
#define NNC_T_PROCESS_BYTES ((int64_t)96 << 20)
#define NNC_T_MEMORY_CORES 10 /* number of cores that reach the copy bandwidth of a described CPU */

/* An engine, identified by its name: engines.c has its capabilities, machine files hold only numbers. */
typedef struct nnc_target_engine {
    const char *name;            /* "llvm", "interp", "cudnn", ... as the engines are named */
    double efficiency;           /* share of peak FLOPs that contractions reach */
} nnc_target_engine;

typedef struct nnc_target {
    nnc_tkind kind;
    const char *name;       /* "cpu", "cuda:sm_90"; strings are owned by the target's arena */
    bool host;              /* this machine (nnc_target_host), not described by a file or a name */
    const char *cpu;        /* LLVM CPU name, "" = host (files: nnc_target_load names the generic one) */
    const char *features;   /* LLVM feature string, "" = of the CPU */
    const char *core;       /* a CPU's family, by which cost/ prices instructions: "amd"; a row of aarch64.c, which makes it an AArch64
                             * CPU; all others as Intel's */
    int vector_bits;        /* width of vector registers: 128, 256, 512 */
    bool fma, f16c, avx512_bf16; /* instruction sets that codegen uses */
    int cores;              /* physical cores usable by nnc */
    int threads;            /* intra-op threads that plans are made for (an input of every plan) */
    int64_t memory_bytes;   /* of the device. For this machine's CPU: what the process may use (base/limits.h), without
                             * NNC_T_PROCESS_BYTES */
    int64_t l1_bytes, l2_bytes, l3_bytes; /* per core, per core, shared (a GPU: per SM, 0, the L2 of all SMs) */
    int64_t flops_f32;      /* peak FLOP/s, all cores */
    int64_t copy_bytes_s;   /* copy bandwidth, read + written, from memory */
    int64_t cache_bytes_s;  /* the same within caches */
    int64_t launch_ns;      /* cost of one command */
    bool measured;          /* numbers were measured, not described */
    /* GPUs only; 0 elsewhere. `cores` is the number of SMs, `vector_bits` the widest access of one thread. */
    const char *card;       /* "H200 SXM": the card described; "" elsewhere */
    int sm;                 /* compute capability: 90 = sm_90 */
    int sms;                /* streaming multiprocessors */
    int sm_threads;         /* resident threads of one SM */
    int64_t shared_bytes;   /* maximum shared memory of a block */
    int64_t clock_hz;
    int64_t flops_tf32, flops_f16; /* tensor cores, dense, f32 accumulation; 0 = none */
    /* Versions of NVIDIA's libraries on the GPU's machine ("9.19"), which plans and predictions assume; "": none. The machine that
     * compiles need not have them. Calls of cuDNN and cuBLASLt are planned only where there is one (`engine` lacks it otherwise). */
    const char *cudnn, *cublaslt, *nccl;
    bool no_clusters;       /* kernels do not use clusters of blocks, for comparisons */
    bool asked;             /* sms, sm_threads, shared_bytes, clock, memory and L2 come from the driver; peaks are derived from them and
                             * the description */
    int n_engines;          /* in order of preference */
    nnc_target_engine engine[NNC_T_ENGINES];
    nnc_arena arena;
} nnc_target;

/* An AArch64 core (aarch64.c), and a machine that has it. */
typedef struct nnc_core {
    const char *name, *llvm; /* of --target=cpu:NAME; of LLVM's scheduling model */
    int part; /* implementer << 12 | part number of MIDR_EL1; 0: any */
    double vectors, loads, stores; /* instructions on vectors of 128 bits that start in a cycle: arithmetic, loads, stores */
    double op_latency, load_latency; /* cycles: of a multiply-add, of a vector from L1 */
    double divide, divide_latency;   /* cycles from one division of a vector to the next, and to its result */
    int window; /* instructions that wait for their results */
    const char *machine;
    int cores, mhz, l1_kib, l2_kib, l3_mib, memory_gib; /* l1, l2: of a core */
    double gb_s; /* peak bandwidth of the memory */
} nnc_core;
const nnc_core *nnc_target_core_at(int i); /* in the table's order; NULL: no more */
const nnc_core *nnc_target_core(const char *name); /* by a target's `core`, which may be NULL; NULL: not an AArch64 core */
/* Describes the machine of an AArch64 core ("cpu:neoverse-n1"). threads 0: as many as it has cores. NNC_E_USAGE: no such row. */
nnc_status nnc_target_aarch64(nnc_target *t, const char *name, int threads, nnc_sink *sink) NNC_MUST;

/* Describes this machine from what the system reports (no measurement, ~1 ms). threads 0 = all cores. Lists the engines that are
 * present: `have_llvm` comes from the caller, who knows the plug-ins. cores: of the machine, where this process is bound to
 * some of them; 0: those that it may use. */
nnc_status nnc_target_host(nnc_target *t, int cores, int threads, bool have_llvm, nnc_sink *sink) NNC_MUST;
/* Removes absent engines. If none is left that runs kernels, the interpreter does. */
void nnc_target_restrict(nnc_target *t, bool have_llvm);
/* The first feature (static text, LLVM's name) that code made for `t` may use and this machine's CPU lacks; NULL: none known. A GPU
 * target: NULL. */
const char *nnc_target_host_lacks(const nnc_target *t);
void nnc_target_host_name(nnc_text *t); /* appends this machine's CPU for people: "Intel(R) Xeon(R) Gold 6448Y with AVX-512 and AMX" */
/* Describes the GPU `name` ("cuda:sm_90") from a table of data sheets, without a driver. An architecture missing from the table gets
 * the numbers of the next older one, and a note says so. NNC_E_USAGE: not a GPU's name. */
nnc_status nnc_target_cuda(nnc_target *t, const char *name, nnc_sink *sink) NNC_MUST;
/* A driver's report about a GPU; 0: unknown. */
typedef struct nnc_target_gpu {
    const char *card;
    int sms, sm_threads;
    int64_t shared_bytes, l2_bytes, memory_bytes, clock_hz;
    int64_t bytes_s; /* peak bandwidth of the memory bus */
} nnc_target_gpu;
/* Replaces the numbers of nnc_target_cuda by these. Peak FLOP/s scale with SMs times clock. */
nnc_status nnc_target_cuda_ask(nnc_target *t, const nnc_target_gpu *g, nnc_sink *sink) NNC_MUST;
/* Architecture i of the table, in ascending order; 0: no more. */
int nnc_target_cuda_sm(int i);
nnc_status nnc_target_load(nnc_target *t, const char *file, nnc_sink *sink) NNC_MUST; /* JSON machine file */
/* Reads a device described in another JSON file; messages begin with `what`. For the name "cpu", `machine` has the members of a machine
 * file, and NULL fills in nothing. For a GPU's name, its members (or NULL) replace those of the described GPU, except kind, name, cores
 * and gpu.sm. */
nnc_status nnc_target_described(nnc_target *t, const char *name, const char *what, const nnc_json *json, const nnc_item *machine,
    nnc_sink *sink) NNC_MUST;
void nnc_target_print_json(nnc_text *out, const nnc_target *t);
/* Appends a GPU's libraries for people: "cuDNN 9.10, cuBLASLt 12.9, no NCCL". */
void nnc_target_put_libraries(nnc_text *out, const nnc_target *t);
/* The version of "cudnn", "cublaslt" or "nccl" that a GPU of t's architecture has by default; "" for a CPU. Static text. */
const char *nnc_target_library_default(const nnc_target *t, const char *library);
/* The first architecture that this version of the library supports; 0: any. */
int nnc_target_library_first_sm(const char *library, int major, int minor);
/* Appends a GPU's libraries as a machine file's member "libraries": {"cudnn": "9.10", "cublaslt": "12.9", "nccl": null}. */
void nnc_target_libraries_json(nnc_text *out, const nnc_target *t);
void nnc_target_deinit(nnc_target *t);
/* Target of a device among the targets of n devices. Further devices have the last one; device -1 counts as 0. n 0: all have *of. */
static inline const nnc_target *nnc_target_on(const nnc_target *of, int n, int device)
{
    return n < 2 || device < 1 ? of : &of[device < n ? device : n - 1];
}
/* Kinds of contractions, which engines compute. */
typedef enum nnc_ask_kind { ASK_conv, ASK_conv_transpose, ASK_conv_wgrad, ASK_matmul } nnc_ask_kind;
/* The engine for contractions of this kind: a CPU's generated kernels, a GPU's library; or NULL. */
const nnc_target_engine *nnc_target_engine_for(const nnc_target *t, nnc_ask_kind kind);
/* The engine that runs generated kernels, which also compute contractions that no other engine takes; or NULL. */
const nnc_target_engine *nnc_target_for_kernels(const nnc_target *t);
/* Whether the engine may compute a convolution by Winograd's algorithm, of which plans do not know: with fewer FLOPs than they count. */
bool nnc_engine_has_winograd(const char *name);
const nnc_target_engine *nnc_target_engine_named(const nnc_target *t, const char *name);
/* Are generated kernels interpreted, some 20 times slower than machine code? */
bool nnc_target_interprets(const nnc_target *t);
/* Whether convolutions and pooling of type d are fastest in channels-last order. */
bool nnc_target_channels_last(const nnc_target *t, nnc_dtype d, bool tf32);
/* Kind of device that the engine of this name runs on; false: unknown. */
bool nnc_target_engine_kind(const char *name, nnc_tkind *kind);
/* Whether it runs generated kernels; whether it interprets them. */
bool nnc_target_runs_kernels(const nnc_target_engine *e);
bool nnc_target_engine_interprets(const nnc_target_engine *e);

/* Number of vector registers of a CPU. t NULL: the least. */
static inline int nnc_target_registers(const nnc_target *t)
{
    return t && (t->vector_bits >= 512 || nnc_target_core(t->core)) ? 32 : 16;
}
/* Bytes that one worker's tmp buffers may have, so that they stay in its nearest caches: half of the L2 cache. t may be NULL. */
int64_t nnc_target_local_bytes(const nnc_target *t);
/* True when there are engines for contractions of this float type. GPUs before sm_80 have none for bf16. */
bool nnc_target_contracts(const nnc_target *t, nnc_dtype d);
/* Multiple to which the channels of a channels-last source are padded inside convolutions of type d with windows of that many
 * elements. 1: no padding. */
int64_t nnc_target_channel_step(const nnc_target *t, nnc_dtype d, int64_t window);
/* Cache key: hash of everything that affects generated code. When out of memory, a value that matches nothing, hi all ones. */
nnc_hash128 nnc_target_hash(const nnc_target *t);

#endif

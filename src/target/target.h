/* target/target.h -- the machine file: what a device can do and what each engine on it supports and costs. Read by
 * passes, codegen, plan and the simulator; measured (`nnc calibrate`) or described by hand. docs/schema/machine.schema.json. */
#ifndef NNC_TARGET_H
#define NNC_TARGET_H

#include "base/base.h"
#include "base/post.h"

typedef enum nnc_tkind { NNC_T_cpu, NNC_T_cuda } nnc_tkind;

#define NNC_T_ENGINES 8
#define NNC_T_KERNEL_NS 40 /* time to start a CPU kernel whose code is in the caches */
#define NNC_T_WAKE_NS 400 /* additional time until other threads run it */
#define NNC_T_GRAIN_NS 1200 /* least work for which another thread pays */
/* Memory of the process beside a plan: program, libraries, graph and plan, machine code, threads. */
#define NNC_T_PROCESS_BYTES ((int64_t)96 << 20)
#define NNC_T_MEMORY_CORES 10 /* number of cores that reach the copy bandwidth of a described CPU */

/* An engine, identified by its name: its capabilities are its answer to nnc_target_offer; machine files hold only numbers. */
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
    const char *core;       /* a CPU's family, by which schedule/ prices instructions: "amd"; all others as Intel's */
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
/* What a driver reports about a GPU; 0: unknown. */
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
/* The first engine that supports f32 convolutions / matrix products, or NULL. */
const nnc_target_engine *nnc_target_for_convs(const nnc_target *t);
const nnc_target_engine *nnc_target_for_matmuls(const nnc_target *t);
/* The first engine that runs generated kernels, which also compute contractions that no other engine takes; that computes attention in
 * one call; or NULL. */
const nnc_target_engine *nnc_target_for_kernels(const nnc_target *t);
const nnc_target_engine *nnc_target_for_attention(const nnc_target *t);
const nnc_target_engine *nnc_target_engine_named(const nnc_target *t, const char *name);
/* True when generated kernels should compute a convolution of one input channel per group, with `taps` weights of type d per result,
 * instead of the engine for convolutions. Decided by bytes and FLOPs; *why (may be NULL; static per thread) explains it. */
bool nnc_target_depthwise(const nnc_target *t, nnc_dtype d, int64_t taps, const char **why);
/* A product y[rows, outputs] of few rows on a GPU, for each of `matrices` weights of [outputs, terms]. */
#define NNC_ROWS 4 /* rows whose sums a kernel keeps in registers */
typedef struct nnc_row_product {
    int64_t rows, terms, outputs, matrices;
    nnc_dtype dtype; /* of the weights in memory */
    bool tf32;
    const nnc_target_engine *library; /* that computes it otherwise; NULL: none */
} nnc_row_product;
/* True when a generated row kernel (schedule/contract.c, few_row_strips) is expected to take no longer than the library; *why (may be
 * NULL; static per thread) has both estimates, where there is a library and a kernel. */
bool nnc_target_row_product(const nnc_target *t, const nnc_row_product *r, const char **why);
/* Are generated kernels interpreted, some 20 times slower than machine code? */
bool nnc_target_interprets(const nnc_target *t);
/* Estimated nanoseconds of reading and writing so many bytes on `threads` of a CPU's cores (0: all); data that fits the caches moves
 * at their bandwidth. */
int64_t nnc_target_move_ns(const nnc_target *t, int64_t bytes, int64_t threads);
/* Least nanoseconds of moving `bytes` and computing `flops` in this type at the same time (roofline). */
int64_t nnc_target_least_ns(const nnc_target *t, nnc_dtype d, bool tf32, int64_t flops, int64_t bytes);
/* Estimated nanoseconds of a command that moves `bytes` and does `flops` in f32: the least, plus launch. */
int64_t nnc_target_time_ns(const nnc_target *t, int64_t flops, int64_t bytes);
/* Estimated nanoseconds of copying `bytes` between devices of different kinds, without the launch. */
int64_t nnc_target_link_ns(int64_t bytes);
/* ---- offers (offer.c) -------------------------------------------------------------------------------------------------------- */

typedef enum nnc_ask_kind { ASK_conv, ASK_conv_transpose, ASK_conv_wgrad, ASK_matmul } nnc_ask_kind;

/* A contraction with its epilogue, as a question to engines before there is a plan. */
typedef struct nnc_ask {
    uint8_t kind;                  /* nnc_ask_kind */
    uint8_t dtype;                 /* of operands and result */
    bool bias;                     /* a bias per channel is added first */
    bool exact;                    /* --math=exact */
    bool tf32;                     /* f32 operands may be rounded to tf32 */
    bool grouped;
    int n_post;
    nnc_post post[NNC_MAX_POST];
    bool dynamic;                  /* its second operand is computed at run time */
    bool dynamic_k_major;          /* it is dynamic, and contiguous along the sum, as the weight of a trained linear layer */
    bool static_k_major;           /* it is static, and contiguous along the sum, as the weight of a linear layer or 1x1 convolution */
    bool packable;                 /* its second operand is computed in init, so that packing it into panels costs nothing */
    bool strided;                  /* an operand or the result is a part of a larger tensor: generated kernels only */
    int64_t flops, bytes;          /* of the contraction; bytes include added tensors */
    int64_t results, result_bytes;
    int64_t outputs; /* results of one place: channels of a group, columns of a product; 0: unknown */
    int64_t channels; /* of a convolution's group that are summed */
    int64_t groups; /* of a convolution; 0: unknown */
    int64_t width; /* of a channel's results, the length of the innermost dimension */
    int64_t places; /* of a convolution's channel in one image, the number of results; 0: unknown */
    int64_t weights; /* elements of each matrix that a product multiplies by, where they and the rows are row-major; 0: other */
    int64_t matrices; /* of a batched product, each for rows of its own; 0, 1: one for all rows */
    bool nchw; /* a convolution of row-major tensors: a channel's elements are neighbours */
    int64_t prologue; /* FLOPs of elementwise ops that compute an element of the first operand; 0: it is in memory */
} nnc_ask;

/* Sets matrices and weights of a product of x, not transposed, and w; a convolution of one place in one group is one, too. */
void nnc_ask_product(nnc_ask *a, const nnc_type *x, const nnc_type *w);

typedef struct nnc_offer {
    bool ok;
    int64_t time_ns;  /* estimate */
    const char *why;  /* not ok: the reason; valid until the thread's next offer */
} nnc_offer;

/* Engine e's offer, by rules and without its library, so that the answer is the same on every machine. An engine with an unknown name
 * supports everything without an epilogue. */
nnc_offer nnc_target_offer(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a);
/* The engine that expects to take least time for it, the first of equals, and its offer (may be NULL); NULL: none takes it. */
const nnc_target_engine *nnc_target_fastest(const nnc_target *t, const nnc_ask *a, nnc_offer *best);
/* Estimated nanoseconds of the contraction with `flops` operations by engine e. */
int64_t nnc_target_contraction_ns(
    const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, int64_t flops);
/* Estimated nanoseconds of a convolution of f32 in one group that may be rounded to tf32, by a GPU's library e: of channels-last tensors,
 * which it multiplies on tensor cores as they are; of row-major tensors the least of two ways: strict f32 engines, which copy nothing
 * (*strict, may be NULL), and tensor cores between copies of source and result. */
int64_t nnc_target_tf32_conv_ns(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a, bool planes, bool *strict);
/* Whether the engine computes convolutions and pooling of type d fastest in channels-last order. */
bool nnc_target_channels_last(const nnc_target *t, const nnc_target_engine *e, nnc_dtype d, bool tf32);
/* True when its convolutions need weights in the memory order of their activations; otherwise any order is as good. */
bool nnc_target_weights_follow(const nnc_target_engine *e);
/* Kind of device that the engine of this name runs on; false: unknown. */
bool nnc_target_engine_kind(const char *name, nnc_tkind *kind);
/* True when it runs generated kernels. */
bool nnc_target_runs_kernels(const nnc_target_engine *e);
/* True when it interprets them. */
bool nnc_target_engine_interprets(const nnc_target_engine *e);

/* Number of exp-like evaluations that cost as much as one kernel launch, over the whole device. */
int64_t nnc_target_spare_ops(const nnc_target *t);
/* Bytes that one worker's tmp buffers may have, so that they stay in its nearest caches: half of the L2 cache. t may be NULL. */
int64_t nnc_target_local_bytes(const nnc_target *t);
/* True when there are engines for contractions of this float type. GPUs before sm_80 have none for bf16. */
bool nnc_target_contracts(const nnc_target *t, nnc_dtype d);
/* Multiple to which the channels of a channels-last source are padded inside convolutions of type d with windows of that many
 * elements. 1: no padding. */
int64_t nnc_target_channel_step(const nnc_target *t, nnc_dtype d, int64_t window);
/* Peak FLOP/s of contractions of this element type, on tensor cores where there are some; tf32: f32 may use them. */
int64_t nnc_target_peak_flops(const nnc_target *t, nnc_dtype d, bool tf32);
/* Cache key: hash of everything that affects generated code. When out of memory, a value that matches nothing, hi all ones. */
nnc_hash128 nnc_target_hash(const nnc_target *t);

#endif

/* target/target.h -- the machine file: what a device can do and what each engine on it supports and costs. Read by
 * passes, codegen, plan and the simulator; measured (`nnc calibrate`) or described by hand. docs/schema/machine.schema.json. */
#ifndef NNC_TARGET_H
#define NNC_TARGET_H

#include "base/base.h"
#include "base/post.h"

typedef enum nnc_tkind { NNC_T_cpu, NNC_T_cuda } nnc_tkind;

#define NNC_T_ENGINES 8

/* Engines are known by their names: what one supports is its answer to nnc_target_offer, and only numbers stand in machine files. */
typedef struct nnc_target_engine {
    const char *name;            /* "onednn", "llvm", "interp", ... as the engines are named */
    double efficiency;           /* reached share of peak FLOPs on contractions */
    double compiled_efficiency;  /* the same of kernels that the engine compiles when a plan is loaded; 0: it compiles none */
} nnc_target_engine;

typedef struct nnc_target {
    nnc_tkind kind;
    const char *name;       /* "cpu", "cuda:sm_90"; strings are owned by the target's arena */
    const char *cpu;        /* LLVM CPU name, "" = host */
    const char *features;   /* LLVM feature string, "" = of the CPU */
    int vector_bits;        /* widest registers: 128, 256, 512 */
    bool fma, f16c, avx512_bf16; /* instructions codegen must know of */
    int cores;              /* physical parallelism usable by nnc */
    int threads;            /* intra-op threads that plans are made for (an input of every plan) */
    bool math_exact;        /* kernels keep every function as it is written, in its tightest form (--math=exact; an input of every plan,
                             * not of the hash: kernels say it themselves) */
    bool math_fast;         /* kernels take the shortest form of a function (--math=fast; the same) */
    int64_t memory_bytes;   /* of the device */
    int64_t l1_bytes, l2_bytes, l3_bytes; /* per core, per core, shared share (a GPU: per SM, 0, the L2 that all SMs share) */
    int64_t flops_f32;      /* peak FLOP/s, all cores */
    int64_t copy_bytes_s;   /* copy bandwidth, read + written, from memory */
    int64_t cache_bytes_s;  /* the same within caches */
    int64_t launch_ns;      /* cost of one command */
    bool measured;          /* numbers were measured, not described */
    /* of a GPU alone; 0 elsewhere. `cores` is its SMs, `vector_bits` the widest access of one thread. */
    const char *card;       /* "H200 SXM": whose numbers these are; "" elsewhere */
    int sm;                 /* compute capability: 90 = sm_90 */
    int sms;                /* streaming multiprocessors */
    int sm_threads;         /* resident threads of one SM */
    int64_t shared_bytes;   /* shared memory that one block may ask for */
    int64_t clock_hz;
    int64_t flops_tf32, flops_f16; /* tensor cores, dense, sums in f32; 0 = none */
    bool asked;             /* the driver gave sms, sm_threads, shared_bytes, clock, memory and L2; peaks follow from the description */
    bool tf32;              /* contractions may round f32 operands to tf32: nnc_target_allow_tf32 */
    bool compiles;          /* engines may compile kernels of their own when a plan is loaded: nnc_target_allow_compiling */
    int n_engines;          /* in order of preference */
    nnc_target_engine engine[NNC_T_ENGINES];
    nnc_arena arena;
} nnc_target;

/* Describes this machine from what the system tells (no measurement, ~1 ms). threads 0 = all cores. The engines listed
 * are those present: `have_onednn`, `have_llvm` come from the caller, who knows the plug-ins. */
nnc_status nnc_target_host(nnc_target *t, int threads, bool have_onednn, bool have_llvm, nnc_sink *sink) NNC_MUST;
/* The first feature (static text, LLVM's name) that code made for `t` may use and this machine's CPU has not; NULL: the code runs here as
 * far as is known. A GPU's target: NULL. */
const char *nnc_target_host_lacks(const nnc_target *t);
void nnc_target_host_name(nnc_text *t); /* appends this machine's CPU for people: "Intel(R) Xeon(R) Gold 6448Y with AVX-512 and AMX" */
/* Describes the GPU that `name` ("cuda:sm_90") stands for, from a table of data sheets: no driver is asked. An architecture
 * between or above the known ones takes the numbers of the next older one, and a note says so. NNC_E_USAGE: no such name. */
nnc_status nnc_target_cuda(nnc_target *t, const char *name, nnc_sink *sink) NNC_MUST;
/* What a driver says of a GPU; 0: it does not say. */
typedef struct nnc_target_gpu {
    const char *card;
    int sms, sm_threads;
    int64_t shared_bytes, l2_bytes, memory_bytes, clock_hz;
    int64_t bytes_s; /* that the memory's bus could carry */
} nnc_target_gpu;
/* Puts these numbers in the place of those that nnc_target_cuda described; peak FLOP/s grow as SMs times clock do. */
nnc_status nnc_target_cuda_ask(nnc_target *t, const nnc_target_gpu *g, nnc_sink *sink) NNC_MUST;
/* The architectures of the table, ascending; returns how many. */
int nnc_target_cuda_sms(const int **sm);
nnc_status nnc_target_load(nnc_target *t, const char *file, nnc_sink *sink) NNC_MUST; /* JSON machine file */
void nnc_target_print_json(nnc_text *out, const nnc_target *t);
void nnc_target_deinit(nnc_target *t);
/* Lets contractions of f32 round their operands to 10 bits of mantissa on tensor cores, or not (how a target begins). Without tensor
 * cores for tf32 it stays off. Calls of a plan say it one by one; it changes no generated kernel and not the hash. */
void nnc_target_allow_tf32(nnc_target *t, bool on);
/* Lets engines compile kernels of their own when a plan is loaded, a second each the first time, or not (how a target begins). It changes
 * no generated kernel and not the hash. */
void nnc_target_allow_compiling(nnc_target *t, bool on);
/* The first engine that takes convolutions / matrix products / pooling of f32, or NULL. */
const nnc_target_engine *nnc_target_for_convs(const nnc_target *t);
const nnc_target_engine *nnc_target_for_matmuls(const nnc_target *t);
const nnc_target_engine *nnc_target_for_pools(const nnc_target *t);
const nnc_target_engine *nnc_target_engine_named(const nnc_target *t, const char *name);
/* Do generated kernels compute a convolution of one input channel a group, with `taps` weights of type d for each result, rather than
 * the engine for convolutions? A rule by bytes and flops; *why (may be NULL; static for the thread) says it for people. */
bool nnc_target_depthwise(const nnc_target *t, nnc_dtype d, int64_t taps, const char **why);
/* Do generated kernels compute contractions that no other engine takes? */
bool nnc_target_kernels_contract(const nnc_target *t);
/* Predicted nanoseconds of a command that moves `bytes` and does `flops` (roofline, plus launch). */
int64_t nnc_target_time_ns(const nnc_target *t, int64_t flops, int64_t bytes);
/* The same of a contraction of type d by engine e, in a kernel that e compiles or one that it has. */
int64_t nnc_target_contraction_ns(
    const nnc_target *t, const nnc_target_engine *e, nnc_dtype d, bool compiled, int64_t flops, int64_t bytes);
/* ---- offers (offer.c) -------------------------------------------------------------------------------------------------------- */

typedef enum nnc_ask_kind { ASK_conv, ASK_conv_transpose, ASK_matmul, ASK_pool } nnc_ask_kind;

/* A contraction or pooling with its epilogue, as engines are asked about it before there is a plan. */
typedef struct nnc_ask {
    uint8_t kind;                  /* nnc_ask_kind */
    uint8_t dtype;                 /* of operands and result */
    bool bias;                     /* one number a channel is added first */
    bool exact;                    /* --math=exact */
    bool compiled;                 /* the engine may compile a kernel for it when the plan is loaded */
    bool grouped;
    int n_post;
    nnc_post post[NNC_MAX_POST];   /* a sum's in_place: the tensor added is not needed afterwards */
    bool dynamic;                  /* its second operand is computed at run time */
    int64_t flops, bytes;          /* of the contraction; bytes: with the tensors that are added */
    int64_t results, result_bytes;
    int64_t outputs;               /* results of one place: channels of a group, columns of a product; 0: unknown */
    int64_t channels;              /* of a convolution's group that are summed */
} nnc_ask;

typedef struct nnc_offer {
    bool ok;
    bool compiled;    /* by a kernel that the engine compiles when the plan is loaded */
    int64_t time_ns;  /* estimate */
    const char *why;  /* not ok: the engine's reason; valid until the thread's next offer */
} nnc_offer;

/* What engine e answers by rules alone, without its library: so the answer is the same on every machine. An engine that is not known by its
 * name takes everything without an epilogue. */
nnc_offer nnc_target_offer(const nnc_target *t, const nnc_target_engine *e, const nnc_ask *a);
/* The engine that expects to take least time for it, the first of equals, and its offer (may be NULL); NULL: none takes it. */
const nnc_target_engine *nnc_target_fastest(const nnc_target *t, const nnc_ask *a, nnc_offer *best);
/* Memory order of convolutions and pooling of type d that the engine computes fastest: channels last? */
bool nnc_target_channels_last(const nnc_target *t, const nnc_target_engine *e, nnc_dtype d);
/* Do its convolutions read weights in the memory order of their activations? Else any order is as good. */
bool nnc_target_weights_follow(const nnc_target_engine *e);
/* Does it run generated kernels? */
bool nnc_target_runs_kernels(const nnc_target_engine *e);

/* So many evaluations of an op that costs like an exp take as long as a launch, spread over all of the device. */
int64_t nnc_target_spare_ops(const nnc_target *t);
/* Are there engines for contractions of this float type? bf16 has none on GPUs before sm_80. */
bool nnc_target_contracts(const nnc_target *t, nnc_dtype d);
/* Convolutions of type d with windows of so many elements read channels-last sources in steps of so many channels; others are copied,
 * padded, inside the call. 1: as they are. */
int64_t nnc_target_channel_step(const nnc_target *t, nnc_dtype d, int64_t window);
/* Peak FLOP/s of contractions of this element type: what tensor cores give where they may be used. */
int64_t nnc_target_peak_flops(const nnc_target *t, nnc_dtype d);
/* Everything that changes generated code, as a key for caches. Out of memory: a number that nothing else has, hi all ones. */
nnc_hash128 nnc_target_hash(const nnc_target *t);

#endif

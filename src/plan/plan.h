/* plan/plan.h -- the plan: an explicit list of commands with offsets in one arena per device. Plain data; the runtime and the engines
 * include only this and base. Text form, parser and verifier: nnc_plan_print, _parse, _verify. */
#ifndef NNC_PLAN_H
#define NNC_PLAN_H

#include "base/base.h"
#include "base/post.h"

#include <string.h>

/* Where a tensor's bytes live. */
typedef enum nnc_space {
    SP_arena,   /* main's arena of its device, reused by liveness */
    SP_persist, /* while the plan is loaded: weights, packed weights, results of init */
    SP_init,    /* init's own arena, freed after init */
} nnc_space;

typedef struct nnc_ptensor {
    const char *name;  /* value name or the layer's path; unique not required */
    nnc_type type;     /* opaque bytes (workspace): u8[n] */
    int16_t device;
    uint8_t space;     /* nnc_space */
    bool is_input, is_output;
    int64_t offset;    /* bytes in its space, 64-byte aligned; 256 on GPUs, as libraries require */
    int64_t bytes;     /* allocated */
    int32_t alias_of;  /* shares the memory of an earlier tensor (view, in place), or -1 */
    int32_t first, last; /* live range: commands that define and last use it (indices into cmd); inputs begin at -1. Outputs and persistent
                          * tensors live to the end. A root's range (alias_of -1) includes those of its aliases */
} nnc_ptensor;

typedef enum nnc_call_kind {
    CALL_conv, CALL_conv_transpose, CALL_conv_wgrad, CALL_matmul, CALL__COUNT
} nnc_call_kind;

/* A library call. Arguments at run time: src, weights (conv, matmul: b), bias if any, operands of out-of-place sums in order, dst.
 * Tensor types have logical dims (NCHW, weights OIHW / grouped O,I/g,H,W; matmul [..,m,k] [..,k,n]) and memory order. */
typedef struct nnc_call {
    uint8_t kind;
    uint8_t spatial;     /* spatial dimensions of a convolution, 1..3 */
    bool has_bias, trans_a, trans_b;
    nnc_type src, wei, bias, dst; /* as stored: with trans_a src is [..,k,m]; bias is [channels]; conv_transpose's wei I,O/g,H,W.
                                   * conv_wgrad: wei is the gradient of the convolution's result, dst that of its weights */
    int64_t kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
    int64_t groups;
    int n_post;
    nnc_post post[NNC_MAX_POST];
    bool tf32;           /* f32 operands may be rounded to tf32 (10 bits of mantissa); accumulation stays in f32 */
    bool exact;          /* excludes convolution algorithms that transform the operands (Winograd, FFT) */
    const struct nnc_engine_env *env; /* only during choose() and load_call(). NULL in a plan */
    int64_t work_bytes;  /* of the workspace; load_call rejects a call that needs more, since a plan file may be wrong */
} nnc_call;

/* Number of arguments of a call. */
static inline int nnc_call_args(const nnc_call *c)
{
    int n = 3 + c->has_bias;
    for (int i = 0; i < c->n_post; i++)
        n += c->post[i].kind == PO_sum && !c->post[i].in_place;
    return n;
}

/* True when the extents of a call's tensors, a product's merged rows, and its window's numbers are below 2^31. Libraries keep some of
 * them in 32 bits, and 2^32 rows cause a division by zero, so engines that call a library decline others first. */
static inline bool nnc_call_fits_32_bits(const nnc_call *c)
{
    const nnc_type *const type[] = {&c->src, &c->wei, &c->bias, &c->dst};
    const int64_t *const window[] = {c->kernel, c->stride, c->dilation, c->pad_lo, c->pad_hi};
    for (int t = 0; t < 4; t++) {
        int64_t rows = 1;
        for (int i = 0; i < type[t]->rank; i++) {
            rows = c->kind == CALL_matmul && i < type[t]->rank - 1 ? rows * type[t]->dim[i] : 1;
            if (type[t]->dim[i] > INT32_MAX || rows > INT32_MAX)
                return false;
        }
    }
    for (int w = 0; w < 5; w++)
        for (int i = 0; i < c->spatial && i < 3; i++)
            if (window[w][i] > INT32_MAX)
                return false;
    return c->groups <= INT32_MAX;
}

typedef struct nnc_pkernel {
    const char *symbol;
    const char *ir;      /* kernel IR text (for the interpreter and artifacts) */
    int n_args, n_out;   /* the last n_out arguments are written */
    int64_t domain, grain, scratch_bytes; /* work items, minimum per thread, bytes per worker */
    int threads;
    int object;          /* index into object[], which may be empty (nnc_pkernel_code); -1: interpreted */
    const char *code;    /* NULL: its function in the object is `symbol`. Otherwise it shares a function that gets sizes as further
                          * arguments; this is the function's name and those sizes (nnc_cuda_share) */
} nnc_pkernel;           /* several commands may use a kernel, on any streams. cmd.work holds its scratch: threads times scratch_bytes
                          * rounded up to 64 */

/* Sets *name to the kernel's function in its object, and returns the name's length. */
static inline size_t nnc_pkernel_function(const nnc_pkernel *k, const char **name)
{
    *name = k->code ? k->code : k->symbol;
    return k->code ? strcspn(k->code, " ") : strlen(k->symbol);
}

/* Whether two kernels for one target launch the same function. */
static inline bool nnc_pkernel_shares(const nnc_pkernel *a, const nnc_pkernel *b)
{
    const char *x, *y;
    const size_t n = nnc_pkernel_function(a, &x);
    return a->code && b->code && nnc_pkernel_function(b, &y) == n && !memcmp(x, y, n);
}

typedef enum nnc_collective_kind { COLL_allreduce, COLL_allgather, COLL_reduce_scatter, COLL__COUNT } nnc_collective_kind;
typedef enum nnc_reduction { RED_add, RED_min, RED_max, RED__COUNT } nnc_reduction;

/* A collective of several devices. Each participant has a CMD_collective with its operand and result. These commands are consecutive in the
 * list. Between them are only records, and waits for commands before the first of them. */
typedef struct nnc_collective {
    uint8_t kind, reduction;
    int n;         /* participants */
    int64_t outer; /* allgather, reduce_scatter: rows (product of dimensions before the axis), gathered or divided one by one */
} nnc_collective;

/* Bytes of each part that a reduction processes in a round. Rounds bound its workspace, which would otherwise be as large as the operand.
 * */
#define NNC_COLLECTIVE_ROUND ((int64_t)1 << 20)
static inline int64_t nnc_collective_round(const nnc_collective *c, int64_t part)
{
    return c->outer > 1 || part < NNC_COLLECTIVE_ROUND ? part : NNC_COLLECTIVE_ROUND;
}
/* Bytes of a participant's workspace on a CPU: parts of the others, 64-byte aligned, and packed rows. src and dst are the bytes of its
 * tensors, size those of an element. */
static inline int64_t nnc_collective_work(const nnc_collective *c, int64_t src, int64_t dst, int64_t size)
{
    const int64_t n = c->n, chunk = (src / size + n - 1) / n * size;
    if (n < 2)
        return 0;
    if (c->kind == COLL_allgather)
        return c->outer > 1 ? dst + 64 * n : 0;
    const int64_t part = nnc_collective_round(c, c->kind == COLL_allreduce ? chunk : dst);
    return n * nnc_align_up(part, 64) * (c->kind == COLL_reduce_scatter && c->outer > 1 ? 2 : 1);
}

typedef struct nnc_blob { const void *data; size_t n; } nnc_blob;

typedef enum nnc_cmd_kind { CMD_weight, CMD_kernel, CMD_call, CMD_copy, CMD_record, CMD_wait, CMD_collective, CMD__COUNT } nnc_cmd_kind;
typedef struct nnc_cmd {
    uint8_t kind;
    int16_t device, stream;
    int32_t micro;        /* micro-batch of a pipeline or of replicas, counted from 1; 0: none */
    int16_t engine;       /* index into plan.engine: kernel, call */
    int32_t item;         /* kernel, call, weight, collective index; record/wait: event */
    int n_arg;
    int32_t *arg;         /* tensors: kernel and call arguments in order; copy, collective: src, dst; weight: dst */
    int32_t work;         /* workspace tensor, or -1 */
    const char *layers;   /* the user's layers: "/layers/3/conv+/layers/4/relu" */
    const char *op_class; /* "conv3x3", "ewise", "reduce", "pool", "matmul", "move", ... */
    int64_t flops, bytes; /* of nnc_node_cost */
    const char *reason;   /* why this engine */
} nnc_cmd;

/* Consecutive sections of the command list. A run is `main`, or `main` and `accumulate`, or all three from `main` to `step`. Between runs
 * the executor synchronises all streams. */
typedef enum nnc_section {
    SEC_init, /* once, when the plan is loaded; complete on all devices before the first run */
    SEC_main, /* computes the outputs; changes no persistent memory */
    SEC_accumulate, /* reads main's results in the arenas and updates the states that accumulate */
    SEC_step, /* reads the results of both and updates the other states */
    SEC__COUNT
} nnc_section;

typedef struct nnc_plan_device {
    const char *name;     /* "cpu:0": its kind, and its number among those of the kind */
    const char *target;   /* target of its commands: name and hash */
    const char *libraries; /* NVIDIA's libraries that a GPU is assumed to have, for reports; NULL on a CPU */
    int threads;          /* intra-op, of the target */
    int64_t arena_bytes, persist_bytes, init_bytes; /* bytes that the executor allocates */
    int64_t workspace_bytes; /* part of arena_bytes that is workspace at the peak (for reports) */
    int64_t lower_bound;  /* lower bound of arena_bytes: most bytes live at any command */
    int32_t peak_cmd;     /* the command with that maximum */
    int streams;
} nnc_plan_device;

/* An update of a state. `state` is persistent and filled by init; `value` is an alias of it that a command of step or accumulate writes.
 * The state has its new value once that command is done. */
typedef struct nnc_plan_update { int32_t state, value; } nnc_plan_update;

typedef struct nnc_plan {
    nnc_arena arena;      /* owns everything below */
    nnc_precision precision; /* requested; calls and tensor types implement it; default = f32 */
    int n_engine; const char **engine;
    int n_device; nnc_plan_device *device;
    int n_tensor; nnc_ptensor *tensor;
    int n_kernel; nnc_pkernel *kernel;
    int n_object; nnc_blob *object;    /* machine code; empty where the compiling machine had no compiler for the target */
    int n_call; nnc_call *call;
    int n_collective; nnc_collective *collective;
    int n_weight; nnc_weight *weight;   /* how CMD_weight fills tensors */
    int n_event;
    int n_cmd; nnc_cmd *cmd;
    int32_t end[SEC__COUNT]; /* end of each section: one past its last command. A section begins where the previous one ends */
    int n_update; nnc_plan_update *update;
    int n_input; int32_t *input; const char **input_name;   /* tensors */
    int n_output; int32_t *output; const char **output_name;
} nnc_plan;

/* The kernel's machine code; NULL: there is none. */
static inline const nnc_blob *nnc_pkernel_code(const nnc_plan *p, const nnc_pkernel *k)
{
    return k->object >= 0 && k->object < p->n_object && p->object[k->object].n ? &p->object[k->object] : NULL;
}

/* Number of functions that the plan's kernels launch. A shared function counts once. */
static inline int nnc_plan_functions(const nnc_plan *p)
{
    int n = 0;
    for (int i = 0, j; i < p->n_kernel; i++) {
        for (j = 0; j < i && !nnc_pkernel_shares(&p->kernel[i], &p->kernel[j]); j++)
            ;
        n += j == i;
    }
    return n;
}

/* Whether a command connects devices: a collective, or a copy from one to another. */
static inline bool nnc_plan_connects(const nnc_plan *p, const nnc_cmd *c)
{
    return c->kind == CMD_collective ||
           (c->kind == CMD_copy && p->tensor[c->arg[0]].device != p->tensor[c->arg[1]].device);
}
/* Whether it is a kernel, a call, or a copy within a device. */
static inline bool nnc_plan_computes(const nnc_plan *p, const nnc_cmd *c)
{
    return c->kind == CMD_kernel || c->kind == CMD_call || (c->kind == CMD_copy && !nnc_plan_connects(p, c));
}

static inline int32_t nnc_plan_first(const nnc_plan *p, nnc_section s) { return s > SEC_init ? p->end[s - 1] : 0; }
/* Whether the sections cover all commands in order. */
static inline bool nnc_plan_sections_ok(const nnc_plan *p)
{
    bool ok = p->end[SEC_init] >= 0 && p->end[SEC_step] == p->n_cmd;
    for (int s = SEC_init; s < SEC_step; s++)
        ok = ok && p->end[s] <= p->end[s + 1];
    return ok;
}

/* Index of the first argument that the command writes. It reads the arguments before and writes all others. The workspace is no
 * argument. */
int nnc_plan_first_written(const nnc_plan *p, const nnc_cmd *c);
/* The tensor whose memory t shares, or t. */
int32_t nnc_plan_root(const nnc_plan *p, int32_t t);
/* Bytes that the plan needs on device d. */
int64_t nnc_device_needs(const nnc_plan *p, int d);

nnc_plan *nnc_plan_create(void);
void nnc_plan_destroy(nnc_plan *p);
/* Text form without objects (stored as blobs); parse(print(p)) prints the same. Inline weights print as hex. */
void nnc_plan_print(nnc_text *t, const nnc_plan *p);
nnc_plan *nnc_plan_parse(nnc_scan *s, nnc_sink *sink);
/* Checks that every index is in range, and that every read follows its write by stream order or events. No two live tensors may overlap,
 * all must be inside their space, and aliases must have the size of their root's memory. A plan from a file is verified before it runs, so
 * anything dangerous must be rejected. */
nnc_status nnc_plan_verify(const nnc_plan *p, nnc_sink *sink) NNC_MUST;
nnc_hash128 nnc_plan_hash(const nnc_plan *p);
/* Alignment of offsets in this device's memory: 64 bytes; 256 on GPUs, as cudaMalloc aligns and cuBLASLt requires for its workspace
 * (its kernels for Hopper fail otherwise). */
int64_t nnc_plan_align(const nnc_plan_device *d);
bool nnc_plan_on_gpu(const nnc_plan_device *d);

/* ---- engines --------------------------------------------------------------------------------------------------- */

/* What the owner of engines shares with them; outlives plans and handles. NULL: none. */
typedef struct nnc_engine_env {
    const struct nnc_target *target; /* target that calls are chosen for */
    nnc_cache *cache;                /* keeps the algorithms that GPU libraries select */
    struct nnc_tuning *tuning;       /* measured algorithms (engines/engines.h); NULL: the libraries' own order */
} nnc_engine_env;

/* A call or kernel to prepare. */
typedef struct nnc_load {
    const nnc_plan *plan;
    int item;                  /* plan->call[item], plan->kernel[item] */
    void *object;              /* result of load_object for a kernel with machine code; unloaded after the kernel's handle */
    const nnc_engine_env *env; /* NULL: an empty one */
} nnc_load;

/* The call to prepare, with a valid env. */
static inline nnc_call nnc_load_call(const nnc_load *l)
{
    static const nnc_engine_env empty;
    nnc_call c = l->plan->call[l->item];
    c.env = l->env ? l->env : &empty;
    return c;
}

typedef struct nnc_choice {
    bool ok;                 /* supported */
    int64_t workspace_bytes;
    const char *reason;      /* implementation name, or why not supported; valid until the thread's next question */
} nnc_choice;

/* An engine: a way to execute calls or kernels. `handle` is a prepared call or kernel: created once, run many times, by one thread at
 * a time. */
typedef struct nnc_engine nnc_engine;
struct nnc_engine {
    const char *name;
    const char *version;
    /* compile time; does not keep the call. NULL: runs kernels only */
    nnc_status (*choose)(const nnc_call *c, nnc_choice *out, nnc_sink *sink);
    /* load time; one of the two may be NULL */
    nnc_status (*load_call)(const nnc_load *l, void **handle, nnc_sink *sink);
    nnc_status (*load_kernel)(const nnc_load *l, void **handle, nnc_sink *sink);
    /* Machine code shared by kernels; NULL: the engine needs none. The blob outlives the object. */
    nnc_status (*load_object)(const nnc_plan *p, const nnc_blob *b, void **object, nnc_sink *sink);
    void (*unload_object)(void *object);
    nnc_status (*run)(void *handle, void *const *args, void *work);
    void (*unload)(void *handle);
};

/* Engines of CPUs: interp (interprets kernels), llvm (machine code; its emitter is a plug-in, its loader is not). session/ builds the
 * list in order of preference. On NVIDIA GPUs: cudnn (convolutions), cublaslt (matrix products), cuda (kernels that NVRTC compiled). */
extern const nnc_engine nnc_engine_cudnn, nnc_engine_cublaslt, nnc_engine_cuda;
extern const nnc_engine nnc_engine_interp, nnc_engine_llvm;

#endif

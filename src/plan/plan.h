/* plan/plan.h -- the plan: an explicit list of commands with offsets in one arena per device. Plain data; the runtime
 * and the engines include this and base only. Text form, parser and verifier: nnc_plan_print, _parse, _verify. */
#ifndef NNC_PLAN_H
#define NNC_PLAN_H

#include "base/base.h"
#include "base/post.h"

/* Where a tensor's bytes live. */
typedef enum nnc_space {
    SP_arena,   /* main's arena of its device, reused by liveness */
    SP_persist, /* as long as the plan is loaded: weights, packed weights, results of init */
    SP_init,    /* init's own arena, given back after init */
} nnc_space;

typedef struct nnc_ptensor {
    const char *name;  /* value name or the layer's path; unique not required */
    nnc_type type;     /* opaque bytes (packed weights, workspace): u8[n] */
    int16_t device;
    uint8_t space;     /* nnc_space */
    bool is_input, is_output;
    int64_t offset;    /* bytes in its space, 64-aligned; 256 on GPUs, where libraries ask for that */
    int64_t bytes;     /* as allocated */
    int32_t alias_of;  /* shares the memory of an earlier tensor (view, in place), or -1 */
    int32_t first, last; /* commands that define and last use it (indices into cmd), -1 = before the first. Inputs: -1, outputs and
                            everything persistent: to the end. A root (alias_of -1): of its memory, so of all its aliases too */
} nnc_ptensor;

typedef enum nnc_call_kind {
    CALL_conv, CALL_conv_transpose, CALL_matmul, CALL_maxpool, CALL_avgpool, CALL_pack, CALL__COUNT
} nnc_call_kind;

/* What a library is asked to do. Arguments at run time: src, weights (conv, matmul: b), bias if any, sum operands that are not in
 * place in order, dst. Tensor types carry logical dims (NCHW, weights OIHW / grouped O,I/g,H,W; matmul [..,m,k] [..,k,n]) and
 * memory order. */
typedef struct nnc_call {
    uint8_t kind;
    uint8_t spatial;     /* spatial dimensions of conv and pooling, 1..3 */
    bool has_bias, trans_a, trans_b, count_pad;
    bool packed;         /* weights come in the engine's own format (made by a CALL_pack in init). choose(): true when the weights
                            are static; the sizes are those of a packed call then. An engine that declines or wants no packing
                            (packed_bytes 0) is asked again with false */
    nnc_type src, wei, bias, dst; /* as stored: with trans_a src is [..,k,m]; bias is [channels]; conv_transpose's wei I,O/g,H,W */
    int64_t kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
    int64_t groups;
    int n_post;
    nnc_post post[NNC_MAX_POST];
    int32_t pack_for;    /* CALL_pack: index of the call whose weights it packs: args raw, packed */
    int threads;         /* intra-op */
    bool tf32;           /* f32 operands may be rounded to tf32 (10 bits of mantissa); sums stay f32 */
    bool compiled;       /* the engine ends it in one kernel that it compiles when the call is loaded. choose(): it may */
    const struct nnc_target *target; /* during choose() alone: what is compiled for. NULL in a plan */
    int64_t packed_bytes, work_bytes; /* of the choice: sizes of the buffers that the run gets. load_call refuses a call that needs
                                         more (a plan from a file may lie) */
} nnc_call;

/* Are the extents of a call's tensors, rows of a product together, and its window's numbers below 2^31? Libraries keep some of them in 32
 * bits, and 2^32 rows become a division by zero: engines that call one decline all others before it sees them. */
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
    const char *ir;      /* kernel IR text (the interpreter's and the artifact's form) */
    int n_args, n_out;   /* the last n_out arguments are written */
    int64_t domain, grain, scratch_bytes; /* units, units worth a thread, bytes per worker */
    int threads;
    int object;          /* index into object[], -1: interpret */
} nnc_pkernel;           /* several commands, on any streams, may share one; scratch: threads times scratch_bytes rounded up
                          * to 64, in cmd.work */

typedef struct nnc_blob { const void *data; size_t n; } nnc_blob;

typedef enum nnc_cmd_kind { CMD_weight, CMD_kernel, CMD_call, CMD_copy, CMD_record, CMD_wait, CMD__COUNT } nnc_cmd_kind;
typedef struct nnc_cmd {
    uint8_t kind;
    int16_t device, stream;
    int16_t engine;       /* index into plan.engine: kernel, call */
    int32_t item;         /* kernel, call, weight index; record/wait: event */
    int n_arg;
    int32_t *arg;         /* tensors: kernel and call arguments in order; copy: src, dst; weight: dst */
    int32_t work;         /* workspace tensor, or -1 */
    const char *layers;   /* the user's layers: "/layers/3/conv+/layers/4/relu" */
    const char *op_class; /* "conv", "ewise", "reduce", "pool", "matmul", "move", ... */
    int64_t flops, bytes; /* nnc_node_cost's */
    const char *reason;   /* why this engine */
} nnc_cmd;

/* Sections of the command list, one behind the other. A run is `main`, or `main` and then `step`; between runs the executor lets all
 * streams meet. */
typedef enum nnc_section {
    SEC_init, /* once, when the plan is loaded; done on all devices before the first run */
    SEC_main, /* computes the outputs and changes nothing that lasts */
    SEC_step, /* goes on with what main left in the arenas and updates the state */
    SEC__COUNT
} nnc_section;

typedef struct nnc_plan_device {
    const char *name;     /* "cpu:0" */
    int64_t arena_bytes, persist_bytes, init_bytes; /* what the run requests, to the byte */
    int64_t workspace_bytes; /* part of arena_bytes that is workspace at the peak (information) */
    int64_t lower_bound;  /* of arena_bytes: most live bytes at any command */
    int32_t peak_cmd;     /* where */
    int streams;
} nnc_plan_device;

/* After a step, the memory of `state` (persistent, filled by init) holds `value`: an alias of it that a command of step writes. */
typedef struct nnc_plan_update { int32_t state, value; } nnc_plan_update;

typedef struct nnc_plan {
    nnc_arena arena;      /* owns everything below */
    const char *target;   /* target name and hash */
    int threads;
    nnc_precision precision; /* that was asked for, contraction by contraction in types and calls; default = f32 */
    int n_engine; const char **engine;
    int n_device; nnc_plan_device *device;
    int n_tensor; nnc_ptensor *tensor;
    int n_kernel; nnc_pkernel *kernel;
    int n_object; nnc_blob *object;    /* machine code */
    int n_call; nnc_call *call;
    int n_weight; nnc_weight *weight;   /* how CMD_weight fills tensors */
    int n_event;
    int n_cmd; nnc_cmd *cmd;
    int32_t end[SEC__COUNT]; /* of each section: one past its last command. A section begins where the one before ends */
    int n_update; nnc_plan_update *update;
    int n_input; int32_t *input; const char **input_name;   /* tensors */
    int n_output; int32_t *output; const char **output_name;
} nnc_plan;

static inline int32_t nnc_plan_first(const nnc_plan *p, nnc_section s) { return s > SEC_init ? p->end[s - 1] : 0; }
static inline nnc_section nnc_plan_section(const nnc_plan *p, int32_t cmd)
{
    return cmd < p->end[SEC_init] ? SEC_init : cmd < p->end[SEC_main] ? SEC_main : SEC_step;
}

nnc_plan *nnc_plan_create(void);
void nnc_plan_destroy(nnc_plan *p);
/* Text form without objects (they travel as blobs); parse(print(p)) prints the same. Inline weights print as hex. */
void nnc_plan_print(nnc_text *t, const nnc_plan *p);
nnc_plan *nnc_plan_parse(nnc_scan *s, nnc_sink *sink);
/* Every index in range, every read after its write by stream order or events, no two live tensors overlap, all inside their
 * space, aliases same size. A plan from a file passes through here before it runs: it must reject anything dangerous. */
nnc_status nnc_plan_verify(const nnc_plan *p, nnc_sink *sink) NNC_MUST;
nnc_hash128 nnc_plan_hash(const nnc_plan *p);
/* What offsets of this device's memory are multiples of: 64 bytes; 256 on GPUs, as cudaMalloc aligns, which cuBLASLt asks of its
 * workspace (its kernels for Hopper fail without). */
int64_t nnc_plan_align(const nnc_plan_device *d);

/* ---- engines --------------------------------------------------------------------------------------------------- */

typedef struct nnc_choice {
    bool ok;                 /* supported */
    int64_t workspace_bytes; /* with call.threads */
    int64_t packed_bytes;    /* > 0: wants its weights packed in `init` */
    int64_t time_ns;         /* estimate; 0: the target's offer (nnc_target_offer) */
    bool compiled;           /* by a kernel that is compiled when the call is loaded (call.compiled alone) */
    const char *apart;       /* why not, where call.compiled is set and matters; as `reason`; else NULL */
    const char *reason;      /* static or plan-arena text: implementation name, or why not */
} nnc_choice;

/* A check that an engine makes once a run of main rather than in each call: oneDNN's relu loses NaN, and flags of the processor tell
 * afterwards whether there was one (plugins/onednn/watch.h). All three are called on the thread that runs the handles. */
typedef struct nnc_watch {
    bool (*wanted)(const void *handle); /* does the check save a pass over the handle's result? */
    void (*begin)(void);                /* before main's first command */
    /* After main's last command. true: results of this run are wrong. Handles that run outside begin and end keep NaN: main, run again
     * at once, gives the right ones. */
    bool (*end)(void);
} nnc_watch;

/* One way to execute calls or kernels. `handle` is a prepared call or kernel: made once, run many times, by one thread at a time. */
typedef struct nnc_engine {
    const char *name;
    const char *version;
    /* compile time; the call is not kept. NULL: runs kernels only */
    nnc_status (*choose)(const nnc_call *c, nnc_choice *out, nnc_sink *sink);
    /* load time: prepares plan->call[item] or plan->kernel[item]; exactly one of the two is not NULL */
    nnc_status (*load_call)(const nnc_plan *p, int item, void **handle, nnc_sink *sink);
    nnc_status (*load_kernel)(const nnc_plan *p, int item, void **handle, nnc_sink *sink);
    nnc_status (*run)(void *handle, void *const *args, void *work);
    void (*unload)(void *handle);
    const nnc_watch *watch; /* NULL: none */
} nnc_engine;

/* Engines built in: interp (interprets kernels), llvm (machine code; its emitter is a plug-in, its loader is not).
 * oneDNN is the plug-in "onednn", symbol "nnc_engine_onednn". api/ builds the list in order of preference. */
/* On NVIDIA GPUs: cudnn (convolutions), cublaslt (matrix products), cuda (kernels that NVRTC compiled). */
extern const nnc_engine nnc_engine_cudnn, nnc_engine_cublaslt, nnc_engine_cuda;
extern const nnc_engine nnc_engine_interp, nnc_engine_llvm;

#endif

/* plan/make.h -- graph to plan: engine selection, kernels, order, streams, memory. The compiling half of plan/, included by session/ and
 * above (the runtime includes plan.h). */
#ifndef NNC_PLAN_MAKE_H
#define NNC_PLAN_MAKE_H

#include "codegen/codegen.h"
#include "ir/ir.h"
#include "plan/plan.h"
#include "target/target.h"

enum { NNC_MAX_DEVICES = 64 };
/* How the kernels of a device get machine code. */
typedef struct nnc_compiler {
    const nnc_emitter *(*emitter)(void); /* called by an emitting thread on a cache miss. NULL or NULL result: kernels are interpreted */
    const char *version;             /* part of the key; known without loading */
    int unit;                        /* functions per object, from consecutive kernels of the target; 0 = 1. With one function, models share
                                      * objects in the cache. More suit compilers with a high fixed cost */
    /* Finds kernels that share a function (nnc_cuda_share), which are put into one object. NULL: none do */
    nnc_status (*share)(const nnc_kernel *const *k, int n, nnc_arena *a, const char **code, nnc_sink *sink);
} nnc_compiler;

typedef struct nnc_plan_options {
    const nnc_target *target;        /* of each device (nnc_target_on) */
    const nnc_compiler *compiler;    /* one per target; NULL: kernels are interpreted */
    int n_target;
    const nnc_engine *const *engine; /* for all targets, in order of preference */
    int n_engine;
    nnc_cache *cache;                /* keeps machine code; NULL: none */
    int jobs;                        /* threads for code generation; does not affect the result */
    int streams;                     /* per device, >= 1 */
    bool ios;                        /* schedule inference of one device on several streams by IOS, not by list scheduling */
    int lanes;                       /* CPU streams that share the threads, including other programs' streams; 0: the plan's own */
    nnc_policy policy;
    int devices;                     /* 1..NNC_MAX_DEVICES; nodes' device numbers are below it */
    bool own_threads;                /* each CPU device has its own threads; otherwise all share this machine's */
    /* statistics, optional */
    int64_t *codegen_ns;
    int *cache_hits, *cache_misses;
    /* called with each lowered kernel and the layers it computes (--emit=kernels), before the kernel is emitted on another thread */
    void (*on_kernel)(void *ctx, const nnc_kernel *k, const char *layers);
    void *on_kernel_ctx;
} nnc_plan_options;

/* Appends "cpu#<hash>", and for a GPU that its driver described also the numbers that the hash omits. A plan stores it for each device, and
 * artifacts are checked against it. */
void nnc_plan_target_text(nnc_text *out, const nnc_target *t);

/* The class of ops (nnc_cmd.op_class, docs/hardware.md) of the command of node n of g; static text. */
const char *nnc_plan_class(const nnc_graph *g, const nnc_node *n);
nnc_status nnc_plan_make(const nnc_graph *g, const nnc_plan_options *o, nnc_plan **out, nnc_sink *sink) NNC_MUST;

/* Memo of the workspaces that engines answered for contractions, shared by the estimates of several graphs. Starts as zeros. Allocated in
 * the arena. */
typedef struct nnc_work_memo {
    nnc_arena *arena;
    struct nnc_known_work *at;
    size_t n, cap;
} nnc_work_memo;
/* Estimates a plan's arena and the time of its commands from a graph whose ops are not fused. Used to choose among graphs that compute the
 * same. */
nnc_status nnc_plan_estimate(const nnc_graph *g, const nnc_plan_options *o, nnc_work_memo *memo, int64_t *bytes, int64_t *ns,
    nnc_sink *sink) NNC_MUST;


/* Converts a call with the cost of its command into a question to the target. */
nnc_ask nnc_plan_ask(const nnc_call *c, int64_t flops, int64_t bytes);

/* Assigns offsets to blocks with live ranges [first,last] (inclusive, in any unit), and returns the arena size. INT64_MAX: that or more;
 * -1: out of memory. It keeps the best of six greedy orders. Within its size, blocks move to where `threads` threads find lines of their
 * own; with 1 none does. *lower_bound is the largest number of bytes live at once. align is a power of two. Blocks conflict when their
 * ranges overlap. With several streams, blocks i and j also conflict if j starts between i's last and i's `reach`, and
 * conflict(ctx, i, j) is true. */
typedef struct nnc_block { int64_t bytes; int32_t first, last; int64_t offset; int32_t reach; } nnc_block;
int64_t nnc_pack_blocks(nnc_block *b, int n, int64_t align, int threads, bool (*conflict)(void *ctx, int i, int j), void *ctx,
    int64_t *lower_bound, nnc_arena *scratch);

#endif

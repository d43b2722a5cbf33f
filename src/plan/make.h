/* plan/make.h -- graph to plan: engine choice, kernels, order, streams, memory. The half of plan/ that compiles; only
 * api/ includes it (the runtime includes plan.h alone). */
#ifndef NNC_PLAN_MAKE_H
#define NNC_PLAN_MAKE_H

#include "codegen/codegen.h"
#include "ir/ir.h"
#include "plan/plan.h"
#include "target/target.h"

enum { NNC_MAX_UNIT = 32 };
typedef struct nnc_plan_options {
    const nnc_target *target;
    const nnc_engine *const *engine; /* in order of preference */
    int n_engine;
    const nnc_emitter *(*emitter)(void); /* called on a cache miss only (loads libLLVM); NULL result or pointer: kernels are interpreted */
    const char *emitter_version;     /* enters the key; known without loading */
    nnc_cache *cache;                /* NULL: none */
    int unit;                        /* kernels that share an object, in the plan's order, at most NNC_MAX_UNIT; 0 = 1. One each lets models
                                      * share objects in the cache; more is for compilers that take long for a little */
    int jobs;                        /* threads for emission; never changes a byte */
    int streams;                     /* per device, >= 1 */
    nnc_precision precision;         /* of contractions, to be recorded; default = f32 */
    int devices;                     /* virtual devices, >= 1; nodes' device numbers are below it */
    /* statistics, optional */
    int64_t *codegen_ns;
    int *cache_hits, *cache_misses;
    /* called with each lowered kernel and the layers it computes (--emit=kernels) */
    void (*on_kernel)(void *ctx, const nnc_kernel *k, const char *layers);
    void *on_kernel_ctx;
} nnc_plan_options;

/* "cpu#<hash>", and of a GPU whose driver was asked the numbers that the hash leaves out. What plan->target holds and an artifact is
 * checked against. */
void nnc_plan_target_text(nnc_text *out, const nnc_target *t);

nnc_status nnc_plan_make(const nnc_graph *g, const nnc_plan_options *o, nnc_plan **out, nnc_sink *sink) NNC_MUST;

/* Would the engine that computes fused node n of g compile one kernel for it when the plan is loaded? *why not: until the next question of
 * this thread. `o`: target and engines alone. */
nnc_status nnc_plan_compiles(const nnc_plan_options *o, const nnc_graph *g, const nnc_node *n, bool *yes, const char **why,
    nnc_sink *sink) NNC_MUST;

/* Offset assignment for blocks with lifetimes [first,last] (inclusive, in any units): fills offset[], returns the arena size.
 * Six greedy orders, the best kept (notes: ratio to the lower bound is in *lower_bound). Blocks conflict when their intervals overlap or
 * `conflict` (optional) says so -- how happens-before between streams enters. align: power of two. -1: out of memory. */
typedef struct nnc_block { int64_t bytes; int32_t first, last; int64_t offset; } nnc_block;
int64_t nnc_pack_blocks(nnc_block *b, int n, int64_t align, bool (*conflict)(void *ctx, int i, int j), void *ctx,
    int64_t *lower_bound, nnc_arena *scratch);

#endif

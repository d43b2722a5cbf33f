/* partition/partition.h -- algorithms that divide work among devices: contiguous cuts, pipeline schedules, replicated stages, branches,
 * several models, data parallelism, layouts of split tensors. Pure functions from arrays of integer costs (nanoseconds, bytes) to
 * assignments and orders. Ties are broken by index, so equal inputs give equal outputs. Nothing here knows graphs, plans or targets:
 * strategy/ measures a model, these functions decide, and sim/ or a run evaluates the decision (docs/partition.md).
 *
 * Costs are >= 0, and the sum of all costs of a problem is below 2^62. Results are allocated in the arena passed in. Where no other
 * status is named, the only failure is NNC_E_NOMEM. */
#ifndef NNC_PARTITION_H
#define NNC_PARTITION_H

#include "base/base.h"

/* ---- links (links.c) --------------------------------------------------------------------------------------------------- */

/* Communication times of a machine's devices; filled by a description of hardware or by two numbers (nnc_flat_links). */
typedef struct nnc_links {
    int64_t (*p2p_ns)(const void *ctx, int src, int dst, int64_t bytes);
    int64_t (*allreduce_ns)(const void *ctx, const int *device, int n, int64_t bytes);
    const void *ctx;
} nnc_links;

/* n equal devices, each pair connected by its own link of bandwidth b. Sending S bytes takes latency + S/b, a ring allreduce
 * 2(n-1)(latency + S/(n b)). */
typedef struct nnc_flat_links {
    int64_t bytes_per_s; /* > 0; of each direction */
    int64_t latency_ns;
} nnc_flat_links;
nnc_links nnc_links_flat(const nnc_flat_links *f); /* borrows f */
int64_t nnc_links_p2p(const nnc_links *l, int src, int dst, int64_t bytes); /* 0 for src == dst, no bytes, or l NULL */
int64_t nnc_links_allreduce(const nnc_links *l, const int *device, int n, int64_t bytes); /* 0 for n < 2 */

/* ---- tensors between layers (boundary.c) ------------------------------------------------------------------------------- */

/* A tensor of a model whose layers are in topological order. */
typedef struct nnc_edge {
    int64_t bytes;
    int maker;        /* layer that computes it; -1: an input of the model */
    int n_user;
    const int *user;  /* layers that read it; n_layer: it is an output of the model */
} nnc_edge;

/* Sets at[i], for i = 0 .. n_layer, to the bytes of tensors made before layer i and used at i or later. A pipeline that is cut there sends
 * them. A tensor counts once, however many users follow. */
void nnc_edges_boundary(const nnc_edge *e, int n, int n_layer, int64_t *at);
/* Sets traffic[from * n_device + to] to the bytes sent directly between devices, each tensor once per destination. device[] is by layer.
 * The model's inputs and outputs are on no device and not counted. */
void nnc_edges_traffic(const nnc_edge *e, int n, int n_layer, const int *device, int n_device, int64_t *traffic);

/* ---- contiguous cuts (cut.c, baselines.c) ----------------------------------------------------------------- */

/* Stage s of n_stage runs layers cut[s] .. cut[s+1]-1, at least one; cut[0] = 0, cut[n_stage] = n_layer. */
typedef struct nnc_cut_problem {
    int n_layer, n_stage;
    const int64_t *time;     /* by layer: all passes of one micro-batch */
    /* Bytes that cross position i, forward and backward together, n_layer + 1 of them. NULL: no transfers */
    const int64_t *boundary;
    const nnc_links *links;
    const int *device;       /* by stage, for links; NULL: stage s is device s */
    /* Memory, where `capacity` (by stage) is not NULL: sum fixed + in_flight (sum saved + kept),
     *   kept: bytes of the stage's input at cut[s] */
    const int64_t *capacity, *fixed, *saved, *kept;
    const int *in_flight;    /* by stage (nnc_pipeline_in_flight); NULL: 1 */
} nnc_cut_problem;

/* Time with transfers, which overlap with computing, and memory, of stage s if it has layers i .. j-1. */
int64_t nnc_cut_stage_ns(const nnc_cut_problem *p, int s, int i, int j);
int64_t nnc_cut_stage_bytes(const nnc_cut_problem *p, int s, int i, int j);

typedef struct nnc_cut_result {
    bool ok;       /* false: no cut fits the memory, or there are fewer layers than stages */
    int64_t max;   /* largest stage time */
    int64_t sum;   /* of all stage times */
} nnc_cut_result;

/* Finds the cut with the least maximum of stage times, exactly, by dynamic programming from the last stage backwards in
 * O(n_stage n_layer^2). Among equals it takes the most even loads (least sum of squares, to 28 bits of the maximum). */
nnc_status nnc_cut_min_max(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* Finds the cut with the least sum T_s + (micro - 1) max T_s, the time of one synchronous iteration. It walks down the Pareto front of
 * (sum, max): after the least sum under a limit of max, the next limit is that cut's max - 1. */
nnc_status nnc_cut_min_latency(const nnc_cut_problem *p, int micro, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* Finds the cut with the least memory of the fullest stage. Times are ignored; r->max and r->sum are bytes. */
nnc_status nnc_cut_min_memory(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* Cuts weight[0..n) into n_stage <= n blocks with the least maximum of their sums. Weights may be counts, parameters, FLOPs, ... */
nnc_status nnc_cut_balance(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink) NNC_MUST;

/* Baselines, written from their descriptions. Block partition (Barany and Grinberg 2015, as torchgpipe uses it) moves elements from large
 * to small blocks. It ends when max <= min + the largest weight; weights are reduced by their minimum. */
nnc_status nnc_cut_block_partition(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink) NNC_MUST;
/* DeepSpeed's partition_balanced since 2023: dynamic programming that minimises max - min of the blocks and keeps the best of each
 * prefix. */
nnc_status nnc_cut_max_min(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink) NNC_MUST;

/* ---- strategies (strategies.def, strategies.c) ----------------------------------------------------------------------------- */

typedef enum nnc_strategy {
#define STRATEGY(id, ...) NNC_STRATEGY_##id,
#include "partition/strategies.def"
    NNC_STRATEGY__COUNT
} nnc_strategy;

enum { NNC_IN_none, NNC_IN_forward, NNC_IN_step, NNC_IN_both };
typedef struct nnc_strategy_info {
    uint8_t modes;   /* NNC_IN_..: where nnc partition has a row */
    int8_t schedule; /* nnc_pipeline_kind in training steps; -1: no pipeline */
    uint8_t zero;    /* ZeRO stage */
} nnc_strategy_info;
extern const nnc_strategy_info nnc_strategies[NNC_STRATEGY__COUNT];
extern const char *const nnc_strategy_names[NNC_STRATEGY__COUNT];
/* Words of --strategy in nnc run and nnc train, each after a '|'. */
extern const char nnc_run_strategies[], nnc_train_strategies[];

nnc_strategy nnc_strategy_named(const char *name); /* NNC_STRATEGY__COUNT: none */
bool nnc_is_pipeline(nnc_strategy s);
bool nnc_is_split(nnc_strategy s); /* whether it splits ops (nnc_compile_options.strategy) */
/* Appends the names that `shown` accepts, as "tensor, channel or spatial" if `last` is " or ". */
void nnc_put_strategies(nnc_text *out, bool (*shown)(nnc_strategy), const char *last);
/* Reports NNC_E_USAGE with the expected names. `all`: "all" is one of them. */
nnc_status nnc_unknown_strategy(const char *name, bool (*shown)(nnc_strategy), bool all, nnc_sink *sink) NNC_MUST;

/* ZeRO stages that nnc executes. */
#define NNC_ZERO_STAGES "0|1|2"
enum { NNC_ZERO_MOST = 2 };

/* ---- pipeline schedules (pipeline.c, pipeline_time.c) -------------------------------------------------------------------- */

/* PIPE_forward is inference, which has only forward passes. The others are schedules of training steps. */
typedef enum nnc_pipeline_kind {
#define SCHEDULE(id, ...) PIPE_##id,
#define STRATEGY(...)
#include "partition/strategies.def"
    PIPE__COUNT
} nnc_pipeline_kind;
const char *nnc_schedule_name(nnc_pipeline_kind k);
nnc_strategy nnc_strategy_of(nnc_pipeline_kind k);

typedef enum nnc_task_kind { TASK_forward, TASK_backward, TASK_weight } nnc_task_kind;

/* Pass `kind` of micro-batch `micro` through virtual stage `stage` = device + devices * chunk. In a pipeline without `split`, a backward
 * pass also computes the gradients of weights. */
typedef struct nnc_task {
    uint8_t kind;
    int stage, micro;
} nnc_task;

/* A schedule: for each device the list of its tasks, in order. */
typedef struct nnc_pipeline {
    nnc_pipeline_kind kind;
    int devices, micro, chunks;
    bool split;
    int n_task;      /* of each device */
    nnc_task **task; /* [device][i] */
} nnc_pipeline;

/* Whether the schedule exists for these numbers. If not, *why (a static string) says what it needs. */
bool nnc_pipeline_possible(nnc_pipeline_kind k, int devices, int micro, int chunks, const char **why);
nnc_status nnc_pipeline_make(nnc_pipeline_kind k, int devices, int micro, int chunks, nnc_arena *a, nnc_pipeline *out,
    nnc_sink *sink) NNC_MUST;
/* Largest number of micro-batches whose saved tensors device d holds at once, counted by walking its list. If interleaved, each chunk of a
 * micro-batch counts. */
int nnc_pipeline_in_flight(const nnc_pipeline *p, int d);

/* Costs by virtual stage, of which there are devices * chunks. NULL: 0. */
typedef struct nnc_pipeline_costs {
    const int64_t *forward, *backward, *weight; /* nanoseconds; without `split` a backward task takes backward + weight */
    const int64_t *send; /* nanoseconds of sending stage s's result to s + 1, and a gradient of it back: send[devices * chunks - 1] is
                          * not used. Sends do not share links */
    bool senders_wait;   /* a send takes its device's time, as copies on the stream that computes; otherwise it overlaps with computing */
} nnc_pipeline_costs;

typedef struct nnc_pipeline_time {
    int64_t total;      /* from the first start to the last end */
    int64_t *busy;      /* by device */
    int64_t *first, *last; /* by device: start of its first task, end of its last */
    int64_t **start, **end; /* by device and position in its list */
} nnc_pipeline_time;

/* Computes the times. Each task starts when its device is free and its operands have arrived. NNC_E_BUG: the lists deadlock. */
nnc_status nnc_pipeline_run(const nnc_pipeline *p, const nnc_pipeline_costs *c, nnc_arena *a, nnc_pipeline_time *out,
    nnc_sink *sink) NNC_MUST;

/* ---- branches, several models (branch.c, ios.c) ------------------------------------------------------------------------------ */

/* Ops in topological order. Op i reads the results of need[start[i] .. start[i+1]). */
typedef struct nnc_branch_problem {
    int n_op;
    const int64_t *time;
    const int *start, *need;
    const int64_t *bytes;    /* by op: size of its result; NULL: 0 */
    int n_place;             /* devices, or streams of one device */
    const nnc_links *links;  /* between devices; NULL: places are streams, and nothing is sent */
} nnc_branch_problem;

/* List scheduling (HEFT without insertion): takes the ready op with the longest remaining path, and places it where it ends earliest.
 * place[] and begin[] are by op; *total is the end of the last one. */
nnc_status nnc_branch_list(const nnc_branch_problem *p, int *place, int64_t *begin, int64_t *total, nnc_sink *sink) NNC_MUST;

/* IOS (Ding et al. 2021): a sequence of stages. The connected components of a stage's ops run concurrently on streams of one device. A
 * stage takes sync + max(longest component, sum of time x share / 1000), where an op by itself fills `share` of the device. */
typedef struct nnc_ios_problem {
    int n_op;                /* at most 64 */
    const int64_t *time;
    const int *share;        /* by op, per mille; NULL: 0, so streams do not slow each other */
    const int *start, *need;
    int streams;             /* largest number of components in a stage */
    int64_t sync_ns;         /* per stage */
    int group_ops;           /* largest number of ops in a component; 0: any */
    int64_t max_steps;       /* limit of the search, in pairs (set of finished ops, next stage); 0: 1 << 24 */
} nnc_ios_problem;
/* Sets stage[] by op, numbered from 0, and ns[] by stage (NULL: not requested). NNC_E_FIT: more than max_steps pairs
 * (the graph is too wide), or more than 64 ops. */
nnc_status nnc_ios_solve(const nnc_ios_problem *p, int *stage, int64_t *ns, int64_t *total, nnc_sink *sink) NNC_MUST;

/* The same for any number of ops in topological order, segment by segment. max_steps is per segment; 0: 1 << 18. Then *exact is false if a
 * segment was too wide or too large: its components were limited to 3 ops, or it was solved in halves. */
nnc_status nnc_ios_segments(const nnc_ios_problem *p, int *stage, int64_t *ns, int64_t *total, bool *exact, nnc_sink *sink) NNC_MUST;

/* Puts each model on one device: longest first, on the least loaded device with room for it (LPT). Unless memory limits it, the result is
 * within 4/3 - 1/(3n) of the best. device[i] -1: model i fits nowhere. capacity NULL: unlimited. */
nnc_status nnc_models_lpt(const int64_t *time, const int64_t *bytes, int n, int n_device, const int64_t *capacity, int *device,
    int64_t *total, nnc_sink *sink) NNC_MUST;

/* ---- search over combinations (search.c, search_cost.c) ------------------------------------------------------------------------- */

/* Costs of one device's share of each layer, at tensor degree `tensor` and for micro-batches of `size` samples. Arrays are by layer. */
typedef struct nnc_search_costs {
    int tensor, size;
    const int64_t *forward, *backward, *weight; /* nanoseconds of computing, as in nnc_pipeline_costs */
    const int64_t *forward_comm, *backward_comm; /* nanoseconds of collectives within the tensor group; NULL: none */
    const int64_t *optimizer;                   /* nanoseconds, once an iteration */
    const int64_t *weights, *gradients, *states; /* bytes */
    const int64_t *saved, *working;             /* bytes of one micro-batch: kept for the backward pass; peak of all others */
    const int64_t *boundary;                    /* n_layer + 1: bytes that a device sends over position i, in one direction */
    const int64_t *input;                       /* n_layer + 1: bytes that a device keeps of what crosses position i; NULL: as `boundary` */
    const int64_t *accumulate;                  /* extra nanoseconds per micro-batch for adding gradients, if there are several */
    const int64_t *small;                       /* bytes of `gradients` that one last collective reduces for all layers of a device; each
                                                 * layer's other gradients have their own. NULL: buckets of bucket_bytes */
} nnc_search_costs;

typedef enum nnc_search_collective { SEARCH_allreduce, SEARCH_reduce_scatter, SEARCH_allgather } nnc_search_collective;
/* Bytes of layer i that replicas exchange: its gradients, or in an allgather the weights that they update. */
int64_t nnc_exchanged_bytes(const nnc_search_costs *of, nnc_search_collective kind, int i);

/* Communication times of the machine, in nanoseconds. Times do not fall as bytes grow, and k times the bytes take at most k times as long.
 * `beside` neighbours do the same at the same time and share links. Neighbour i sends from src + i to dst + i, or is a group of devices
 * first + i + k * stride, k < n. */
typedef struct nnc_search_links {
    int64_t (*send_ns)(const void *ctx, int src, int dst, int beside, int64_t bytes);
    int64_t (*collective_ns)(const void *ctx, nnc_search_collective kind, int first, int stride, int n, int beside, int64_t bytes);
    const void *ctx;
} nnc_search_links;

/* A combination of parallelism on data x tensor x pipeline devices. Each replica runs `micro` micro-batches of `size` samples. Devices of a
 * tensor group are neighbours. The next dimension is the stages of a replica or, with data_first, the replicas of a stage. */
typedef struct nnc_combination {
    int data, tensor, pipeline, chunks, size, micro;
    uint8_t schedule, zero; /* nnc_pipeline_kind (1F1B without a pipeline), ZeRO stage */
    bool recompute, data_first;
} nnc_combination;

typedef struct nnc_search_result nnc_search_result;
typedef struct nnc_search_problem {
    int n_layer, devices;
    int64_t samples;                /* of an iteration */
    int n_costs;
    const nnc_search_costs *costs;  /* by tensor degree and size */
    nnc_search_links links;
    int64_t capacity;               /* bytes of a device */
    const bool *segment;            /* by layer: recomputation keeps its input and recomputes up to the next such layer; NULL: none */
    int64_t bucket_bytes;           /* a collective reduces as many bytes of gradients, or more by a layer's */
    int slowdown;                   /* per mille: computing takes slowdown / 1000 times as long while a collective runs */
    /* Time of a result, as a simulation of its tasks has it, of which the search's own is a lower bound; 0: not known. NULL: the latter
     * counts */
    nnc_status (*clock)(void *ctx, const nnc_search_result *r, int64_t *ns);
    void *clock_ctx;
    bool serial;                    /* gradients are reduced after the last backward pass instead of during it */
    /* Model nnc's own plans: a send occupies its device, and the reductions and updates after a pipeline's passes begin on all devices
     * together */
    bool planned;
    /* Overrides `serial` for combinations without a pipeline; NULL: no */
    bool (*is_serial)(const void *ctx, const nnc_combination *c);
    const void *serial_ctx;
    /* Whether a combination is tried; NULL: all are */
    bool (*takes)(const void *ctx, const nnc_combination *c);
    const void *takes_ctx;
    int max_chunks;                 /* interleaved schedules try 2, 4, .. chunks (with `even` any number); 0: 4; 1: no interleaving */
    bool forward;                   /* inference: no backward passes, no gradients */
    bool even;                      /* stages have equal numbers of layers (Megatron-LM) instead of the best cut */
} nnc_search_problem;

/* Device that is number `rank` in the tensor group of a replica's stage. */
int nnc_combination_device(const nnc_combination *c, int replica, int stage, int rank);
/* Appends "data 16 x tensor 8 x pipeline 8, 1f1b, zero1". */
void nnc_combination_name(const nnc_combination *c, nnc_text *out);

typedef enum nnc_prune {
    PRUNE_none,
    PRUNE_layers,   /* more stages than layers, or they are not divided evenly */
    PRUNE_samples,  /* replicas x size does not divide the number of samples */
    PRUNE_schedule, /* the schedule does not exist for the numbers */
    PRUNE_memory,   /* no cut fits */
    PRUNE_slower,   /* a lower bound of its time is above the times of combinations already evaluated */
    PRUNE__COUNT
} nnc_prune;
extern const char *const nnc_prune_reasons[PRUNE__COUNT];

/* What fills a device's memory. */
enum { FILLED_weights, FILLED_gradients, FILLED_optimizer, FILLED_saved, FILLED_working, SEARCH_FILLS };
typedef struct nnc_search_stage {
    int64_t busy;   /* nanoseconds of a device, including collectives of its tensor group and its update */
    int64_t tensor; /* of these: the collectives */
    int64_t fill[SEARCH_FILLS], bytes;
} nnc_search_stage;

struct nnc_search_result {
    nnc_combination c;
    nnc_prune pruned;   /* PRUNE_none: the rest is filled */
    int64_t ns;         /* of an iteration: the sum of the next six, each a mean over the stages */
    int64_t clock_ns;   /* by nnc_search_problem.clock; 0: not known */
    int64_t compute, tensor, bubble, send, data, optimizer; /* send, data: exposed only */
    int64_t hidden;     /* of the slowest stage: sends and gradient collectives that computing hides */
    int64_t bytes;      /* of the fullest device */
    int *cut;           /* pipeline * chunks + 1 */
    int64_t *pass[3];   /* by nnc_task_kind and virtual stage: nanoseconds of a pass, including collectives and recomputation */
    nnc_search_stage *stage; /* by stage of the pipeline */
};
/* The time that counts. */
static inline int64_t nnc_search_ns(const nnc_search_result *r)
{
    return r->clock_ns ? r->clock_ns : r->ns;
}

/* Evaluates combination c. */
nnc_status nnc_search_evaluate(const nnc_search_problem *p, const nnc_combination *c, nnc_arena *a, nnc_search_result *out,
    nnc_sink *sink) NNC_MUST;

typedef struct nnc_search_found {
    int n;                       /* at most `keep`; best first, each with other degrees (data, tensor, pipeline) */
    nnc_search_result *best;
    int64_t tried, evaluated, pruned[PRUNE__COUNT];
} nnc_search_found;
/* Finds the `keep` best combinations, exactly: a combination is skipped only if a lower bound of its time is above theirs. Among equals
 * the first enumerated wins (smaller tensor degree, then pipeline, data, schedule, ...). */
nnc_status nnc_search(const nnc_search_problem *p, int keep, nnc_arena *a, nnc_search_found *out, nnc_sink *sink) NNC_MUST;

#endif

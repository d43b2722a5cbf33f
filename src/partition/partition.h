/* partition/partition.h -- algorithms that divide work among devices: contiguous cuts, pipeline schedules, replicated stages, branches,
 * several models, data parallelism, layouts of split tensors. Pure functions from arrays of integer costs (nanoseconds, bytes) to
 * assignments and orders; ties are broken by index, so that equal inputs give equal outputs. Nothing here knows graphs, plans or
 * targets: api/ measures a model, these decide, src/sim or a run says what the decision is worth. docs/partition.md.
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

/* n equal devices, every two of them connected by a link of their own: p2p latency + S/b; ring allreduce 2(n-1)(latency + S/(n b)). */
typedef struct nnc_flat_links {
    int64_t bytes_per_s; /* > 0; of each direction */
    int64_t latency_ns;
} nnc_flat_links;
nnc_links nnc_links_flat(const nnc_flat_links *f); /* borrows f */
int64_t nnc_links_p2p(const nnc_links *l, int src, int dst, int64_t bytes); /* 0 for src == dst or no bytes; l may be NULL: 0 */
int64_t nnc_links_allreduce(const nnc_links *l, const int *device, int n, int64_t bytes); /* 0 for n < 2 */

/* ---- tensors between layers (boundary.c) ------------------------------------------------------------------------------- */

/* A tensor of a model whose layers are in topological order. */
typedef struct nnc_edge {
    int64_t bytes;
    int maker;        /* layer that computes it; -1: an input of the model */
    int n_user;
    const int *user;  /* layers that read it; n_layer: it is an output of the model */
} nnc_edge;

/* at[0..n_layer]: bytes of tensors made before position i and used at i or later: what stage after stage of a pipeline passes on when
 * the model is cut there. A tensor counts once, however many users follow. */
void nnc_edges_boundary(const nnc_edge *e, int n, int n_layer, int64_t *at);
/* traffic[from * n_device + to]: bytes sent directly between devices, each tensor once per destination. device[layer]; model inputs and
 * outputs are on no device and not counted. */
void nnc_edges_traffic(const nnc_edge *e, int n, int n_layer, const int *device, int n_device, int64_t *traffic);

/* ---- contiguous cuts (cut.c, baselines.c) ----------------------------------------------------------------- */

/* Stage s of n_stage runs layers cut[s] .. cut[s+1]-1, at least one; cut[0] = 0, cut[n_stage] = n_layer. */
typedef struct nnc_cut_problem {
    int n_layer, n_stage;
    const int64_t *time;     /* by layer: of one micro-batch, all passes, at speed 1000 */
    const int64_t *speed;    /* by stage, 1000 = as `time` says; NULL: all 1000 */
    /* Transfers: position i of n_layer + 1 takes boundary[i] bytes, forwards and backwards together. NULL: none */
    const int64_t *boundary;
    const nnc_links *links;
    const int *device;       /* by stage, for links; NULL: stage s is device s */
    bool serial;             /* transfers stop the stage's computing (T + in + out); otherwise they overlap: max(T, in, out) */
    /* Memory, where `capacity` (by stage) is not NULL:
     *   keep:      sum fixed + in_flight (sum saved + kept)
     *   recompute: sum fixed + in_flight kept + sum saved,  kept: bytes of the stage's input at cut[s] */
    const int64_t *capacity, *fixed, *saved, *kept;
    const int *in_flight;    /* by stage (nnc_pipeline_in_flight); NULL: 1 */
    bool recompute;
} nnc_cut_problem;

/* Stage s of layers i .. j-1: its time with transfers; its memory. */
int64_t nnc_cut_stage_ns(const nnc_cut_problem *p, int s, int i, int j);
int64_t nnc_cut_stage_bytes(const nnc_cut_problem *p, int s, int i, int j);

typedef struct nnc_cut_result {
    bool ok;       /* false: no cut fits the memory, or there are fewer layers than stages */
    int64_t max;   /* of the stages' times */
    int64_t sum;
} nnc_cut_result;

/* The cut with the least max of stage times, exactly, by dynamic programming from the last stage backwards, O(n_stage n_layer^2);
 * among these the one whose loads are most even (least sum of squares, to 28 bits of the maximum). */
nnc_status nnc_cut_min_max(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* The cut with the least sum T_s + (micro - 1) max T_s, the time of one synchronous iteration. Walks down the Pareto front of
 * (sum, max): with the least sum under a limit known, the next limit is its max - 1. */
nnc_status nnc_cut_min_latency(const nnc_cut_problem *p, int micro, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* The same problem with the memory of the fullest stage, in bytes, as the objective; times are ignored. */
nnc_status nnc_cut_min_memory(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink) NNC_MUST;
/* The least max of sums of weight[0..n) over n_stage blocks: by count (all 1), parameters, FLOPs, bytes, time. n_stage <= n. */
nnc_status nnc_cut_balance(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink) NNC_MUST;

/* Baselines, written from their descriptions. Block partition (Barany and Grinberg 2015, as torchgpipe uses it): weights less their
 * minimum, elements moved from large to small blocks until max <= min + the largest weight. */
nnc_status nnc_cut_block_partition(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink) NNC_MUST;
/* DeepSpeed's partition_balanced since 2023: dynamic programming over max - min of the blocks, keeping the best of each prefix. */
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
    int8_t schedule; /* nnc_pipeline_kind of a training step; -1: no pipeline */
    uint8_t zero;    /* ZeRO's stage */
} nnc_strategy_info;
extern const nnc_strategy_info nnc_strategies[NNC_STRATEGY__COUNT];
extern const char *const nnc_strategy_names[NNC_STRATEGY__COUNT];
/* Words of --strategy in nnc run and nnc train, each after a '|'. */
extern const char nnc_run_strategies[], nnc_train_strategies[];

nnc_strategy nnc_strategy_named(const char *name); /* NNC_STRATEGY__COUNT: none */
bool nnc_is_pipeline(nnc_strategy s);
bool nnc_is_split(nnc_strategy s); /* ops are split: nnc_compile_options.strategy */
/* Appends names, "tensor, channel or spatial" where `last` is " or ". */
void nnc_put_strategies(nnc_text *out, bool (*shown)(nnc_strategy), const char *last);
/* NNC_E_USAGE, with the names that were expected; `all` is one. */
nnc_status nnc_unknown_strategy(const char *name, bool (*shown)(nnc_strategy), bool all, nnc_sink *sink) NNC_MUST;

/* ZeRO's stages that nnc executes. */
#define NNC_ZERO_STAGES "0|1|2"
enum { NNC_ZERO_MOST = 2 };

/* ---- pipeline schedules (pipeline.c, pipeline_time.c) -------------------------------------------------------------------- */

/* PIPE_forward: inference, forward passes alone. The others are of training steps. */
typedef enum nnc_pipeline_kind {
#define SCHEDULE(id, ...) PIPE_##id,
#define STRATEGY(...)
#include "partition/strategies.def"
    PIPE__COUNT
} nnc_pipeline_kind;
const char *nnc_schedule_name(nnc_pipeline_kind k);
nnc_strategy nnc_strategy_of(nnc_pipeline_kind k);

typedef enum nnc_task_kind { TASK_forward, TASK_backward, TASK_weight } nnc_task_kind;

/* A task: pass `kind` of micro-batch `micro` through virtual stage `stage` (device + devices * chunk). Without `split` a backward pass
 * computes the gradients of weights, too. */
typedef struct nnc_task {
    uint8_t kind;
    int stage, micro;
} nnc_task;

/* Orders of tasks, one list a device. */
typedef struct nnc_pipeline {
    nnc_pipeline_kind kind;
    int devices, micro, chunks;
    bool split;
    int n_task;      /* of each device */
    nnc_task **task; /* [device][i] */
} nnc_pipeline;

/* True when the schedule exists for these numbers; otherwise *why, static, says what it needs. */
bool nnc_pipeline_possible(nnc_pipeline_kind k, int devices, int micro, int chunks, const char **why);
nnc_status nnc_pipeline_make(nnc_pipeline_kind k, int devices, int micro, int chunks, nnc_arena *a, nnc_pipeline *out,
    nnc_sink *sink) NNC_MUST;
/* Largest number of micro-batches whose saved tensors device d holds at once, counted by walking its list; interleaved: of chunks. */
int nnc_pipeline_in_flight(const nnc_pipeline *p, int d);

/* Costs by virtual stage, devices * chunks of each; NULL: 0. */
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

/* Runs the lists: each task starts when its device is free and its operands have arrived. NNC_E_BUG when they deadlock. */
nnc_status nnc_pipeline_run(const nnc_pipeline *p, const nnc_pipeline_costs *c, nnc_arena *a, nnc_pipeline_time *out,
    nnc_sink *sink) NNC_MUST;

/* ---- replicated stages (hybrid.c) ------------------------------------------------------------------------------------------ */

/* PipeDream's planner: contiguous stages, each on one or more equal devices that take turns with micro-batches and sum their gradients. */
typedef struct nnc_hybrid_problem {
    int n_layer;
    const int64_t *time;     /* by layer, one micro-batch, all passes */
    const int64_t *weight;   /* by layer, bytes of gradients to sum */
    const int64_t *boundary; /* n_layer + 1: bytes over position i, both directions together */
    int n_level;             /* 1: devices; 2: devices in servers */
    int count[2];            /* devices of a server (or all devices), servers */
    nnc_links links[2];      /* within a server, between servers */
    /* Memory of one level, where capacity > 0: (fixed + saved) x versions; versions = ceil(devices from this stage on / those of the
     * stage), the weights and saved tensors that asynchronous pipelining stashes */
    int64_t capacity;
    const int64_t *fixed, *saved;
} nnc_hybrid_problem;

typedef struct nnc_hybrid_stage { int first, end, replicas; /* layers first .. end-1 */ } nnc_hybrid_stage;
typedef struct nnc_hybrid_plan {
    bool ok;
    int64_t ns;      /* per micro-batch in the steady state: of the slowest stage or transfer */
    int n_stage;
    nnc_hybrid_stage *stage; /* of the top level; replicas in devices (a multiple of a server's on two levels), fewer than all where
                              * that is faster */
    int64_t data_parallel_ns; /* all layers on all devices, for comparison */
} nnc_hybrid_plan;
nnc_status nnc_hybrid_solve(const nnc_hybrid_problem *p, nnc_arena *a, nnc_hybrid_plan *out, nnc_sink *sink) NNC_MUST;

/* ---- branches, several models (branch.c, ios.c) ------------------------------------------------------------------------------ */

/* Ops in topological order with the ops they need: need[start[i] .. start[i+1]). */
typedef struct nnc_branch_problem {
    int n_op;
    const int64_t *time;
    const int *start, *need;
    const int64_t *bytes;    /* by op: of its result; NULL: none */
    int n_place;             /* devices, or streams of one device */
    const nnc_links *links;  /* between places; NULL: streams, nothing is sent */
} nnc_branch_problem;

/* List scheduling: the ready op with the longest remaining path first, on the place where it ends earliest (HEFT without insertion).
 * place[], begin[] by op; *total: the end of the last. */
nnc_status nnc_branch_list(const nnc_branch_problem *p, int *place, int64_t *begin, int64_t *total, nnc_sink *sink) NNC_MUST;

/* IOS (Ding et al. 2021): a sequence of stages; the connected components of a stage's ops run side by side on streams of one device. A
 * stage takes sync + max(longest component, sum of time x share / 1000): `share` is the part of the device that an op fills alone. */
typedef struct nnc_ios_problem {
    int n_op;                /* at most 64 */
    const int64_t *time;
    const int *share;        /* by op, per mille; NULL: 0, streams do not slow each other */
    const int *start, *need;
    int streams;             /* most components of a stage */
    int64_t sync_ns;         /* per stage */
    int group_ops;           /* most ops of a component; 0: any */
    int64_t max_steps;       /* pairs of a set of finished ops and a next stage to look at; 0: 1 << 24 */
} nnc_ios_problem;
/* stage[] by op, numbered from 0. NNC_E_FIT when there are more than max_steps pairs (the graph is too wide) or 64 ops. */
nnc_status nnc_ios_solve(const nnc_ios_problem *p, int *stage, int64_t *total, nnc_sink *sink) NNC_MUST;

/* The same for any number of ops in topological order, segment by segment. *exact false: a segment was too wide or too large for the best
 * stages, and has those of components of 3 ops, or of its halves. max_steps is of a segment; 0: 1 << 18. */
nnc_status nnc_ios_segments(const nnc_ios_problem *p, int *stage, int64_t *total, bool *exact, nnc_sink *sink) NNC_MUST;

/* Several models, each on one device: longest first on the least loaded device with room for it (LPT, at most 4/3 - 1/(3n) of the best
 * where memory does not bind). device[i] -1: fits nowhere. capacity NULL: any. */
nnc_status nnc_models_lpt(const int64_t *time, const int64_t *bytes, int n, int n_device, const int64_t *capacity, int *device,
    int64_t *total, nnc_sink *sink) NNC_MUST;

/* ---- data parallelism (data_parallel.c) ---------------------------------------------------------------------------------------- */

/* A bucket's collective, from the start of the backward pass. */
typedef struct nnc_bucket { int64_t start, end, bytes; } nnc_bucket;
typedef struct nnc_buckets_problem {
    int n_layer;
    const int64_t *backward; /* nanoseconds by layer; run from the last layer to the first */
    const int64_t *gradient; /* bytes by layer; 0: frozen, or none */
    int64_t bucket_bytes;    /* a bucket is closed when it has as many; 0: one a layer */
    const nnc_links *links;
    const int *device;
    int n_device;
    int slowdown;            /* per mille: speed of computing while a collective runs is 1000/slowdown; 1000: not slowed */
    nnc_bucket *bucket;      /* filled in order, at most n_layer of them; NULL: not asked for */
} nnc_buckets_problem;
typedef struct nnc_buckets_time {
    int n_bucket;
    int64_t end;          /* of backward pass and collectives, from the start of the backward pass */
    int64_t compute;      /* end of the backward pass, slowed */
    int64_t collective;   /* sum of the collectives' times */
    int64_t hidden, exposed; /* of these: while computing; after it */
} nnc_buckets_time;
nnc_buckets_time nnc_buckets_run(const nnc_buckets_problem *p);

/* Bytes of one device under ZeRO stage 0 (plain data parallelism) .. 3, of n devices. */
typedef struct nnc_zero_bytes {
    int64_t weights, gradients, optimizer;
    int64_t gathered; /* stage 3: the largest unit's weights while it runs, twice with prefetch */
    int64_t traffic;  /* sent by a device in a step */
} nnc_zero_bytes;
nnc_zero_bytes nnc_zero(int stage, int n, int64_t weights, int64_t gradients, int64_t optimizer, int64_t largest_unit, bool prefetch);

/* ---- splits of tensors (split.c) ------------------------------------------------------------------------------------------------- */

/* Bytes that each of n devices sends so that all have the sum (allreduce), or all parts (allgather, reduce-scatter), of S bytes: ring. */
int64_t nnc_allreduce_bytes(int n, int64_t bytes);
int64_t nnc_allgather_bytes(int n, int64_t bytes);

/* The cheapest ways to compute layers whose tensors are whole on each device of a group or split over them. */
typedef struct nnc_layout_way {
    bool in, out;  /* operands, results: split */
    int64_t cost;
} nnc_layout_way;
enum { LAYOUT_WAYS = 4 };
typedef struct nnc_layout_problem {
    int n_layer, n_edge;
    const nnc_edge *edge;       /* a maker of -1: whole */
    const int64_t *to_whole, *to_split; /* by edge: cost for each user that needs it otherwise than it is made */
    const int *n_way;           /* by layer, 1 .. LAYOUT_WAYS */
    const nnc_layout_way (*way)[LAYOUT_WAYS];
    int max_states;             /* 0: 4096 */
} nnc_layout_problem;
/* choice[] by layer: its way. Dynamic programming over the layouts of live results: exact while there are at most max_states of them and
 * 64 live results (*exact), otherwise the cheapest states go on and further results stay whole. NNC_E_FIT: no ways fit together. */
nnc_status nnc_layout_graph(const nnc_layout_problem *p, int *choice, int64_t *total, bool *exact, nnc_sink *sink) NNC_MUST;

/* ---- search over combinations (search.c, search_cost.c) ------------------------------------------------------------------------- */

/* Costs of a device's share of the layers at tensor degree `tensor`, for micro-batches of `size` samples. */
typedef struct nnc_search_costs {
    int tensor, size;
    const int64_t *forward, *backward, *weight; /* nanoseconds of computing, by layer: as nnc_pipeline_costs */
    const int64_t *forward_comm, *backward_comm; /* nanoseconds of collectives within the tensor group; NULL: none */
    const int64_t *optimizer;                   /* nanoseconds, once an iteration */
    const int64_t *weights, *gradients, *states; /* bytes */
    const int64_t *saved, *working;             /* bytes of one micro-batch: kept for the backward pass; most of all others */
    const int64_t *boundary;                    /* bytes that a device sends over position i of n_layer + 1, in one direction */
    const int64_t *input;                       /* bytes that a device keeps of what crosses position i; NULL: as `boundary` */
    const int64_t *accumulate;                  /* nanoseconds more of each of several micro-batches, whose gradients are added */
    const int64_t *small;                       /* bytes of `gradients` that one collective reduces for all layers of a device, after those
                                                 * of the layers' other gradients, one each; NULL: buckets of bucket_bytes */
} nnc_search_costs;

typedef enum nnc_search_collective { SEARCH_allreduce, SEARCH_reduce_scatter, SEARCH_allgather } nnc_search_collective;

/* Communication of the machine, nanoseconds. Times do not fall as bytes grow, and k times the bytes take at most k times as long.
 * `beside`: as many neighbours do the same at the same time and share links: sends from src + i to dst + i, groups of devices
 * first + i + k * stride, k < n. */
typedef struct nnc_search_links {
    int64_t (*send_ns)(const void *ctx, int src, int dst, int beside, int64_t bytes);
    int64_t (*collective_ns)(const void *ctx, nnc_search_collective kind, int first, int stride, int n, int beside, int64_t bytes);
    const void *ctx;
} nnc_search_links;

/* data x tensor x pipeline devices; each replica runs `micro` micro-batches of `size` samples. Tensor groups are neighbours; then come the
 * stages of a replica, or, with data_first, the replicas of a stage. */
typedef struct nnc_combination {
    int data, tensor, pipeline, chunks, size, micro;
    uint8_t schedule, zero; /* nnc_pipeline_kind; without a pipeline 1F1B */
    bool recompute, data_first;
} nnc_combination;

typedef struct nnc_search_problem {
    int n_layer, devices;
    int64_t samples;                /* of an iteration */
    int n_costs;
    const nnc_search_costs *costs;  /* by tensor degree and size */
    nnc_search_links links;
    int64_t capacity;               /* bytes of a device */
    const bool *segment;            /* by layer: recomputation keeps its input and computes again up to the next one; NULL: none */
    int64_t bucket_bytes;           /* as nnc_buckets_problem */
    int slowdown;
    bool serial;                    /* gradients are reduced after the last backward pass instead of beside it */
    /* As nnc's plans are: a send takes its device's time, and what follows a pipeline's passes, reductions and updates, begins on all
     * devices together */
    bool planned;
    /* serial, of a combination without a pipeline; NULL: as `serial` says */
    bool (*is_serial)(const void *ctx, const nnc_combination *c);
    const void *serial_ctx;
    /* What is tried. 0: all */
    int max_chunks;                 /* interleaved: 2, 4, .. chunks (even: any number); 0: 4; 1: no interleaving */
    int data, tensor, pipeline, size; /* only these degrees */
    unsigned schedules;             /* bits 1 << nnc_pipeline_kind; 0: the five of training, or PIPE_forward where forward is set */
    unsigned zeros;                 /* bits 1 << stage of ZeRO; 0: all */
    unsigned recomputes;            /* bit 0: without, bit 1: with; 0: both where there are segments */
    bool forward;                   /* inference: no backward passes, no gradients */
    bool even;                      /* stages have equal numbers of layers (Megatron-LM) instead of the best cut */
    bool data_first;                /* only placements where replicas are neighbours */
} nnc_search_problem;

/* Device of part `rank` of the tensor group of a stage (not of a chunk) of a replica. */
int nnc_combination_device(const nnc_combination *c, int replica, int stage, int rank);
/* Appends "data 16 x tensor 8 x pipeline 8, 1f1b, zero1". */
void nnc_combination_name(const nnc_combination *c, nnc_text *out);

typedef enum nnc_prune {
    PRUNE_none,
    PRUNE_layers,   /* more stages than layers, or they are not divided evenly */
    PRUNE_samples,  /* replicas x size does not divide the samples */
    PRUNE_schedule, /* the schedule does not exist for the numbers */
    PRUNE_memory,   /* no cut fits */
    PRUNE_slower,   /* a bound of its time is above that of combinations already evaluated */
    PRUNE__COUNT
} nnc_prune;
extern const char *const nnc_prune_reasons[PRUNE__COUNT];

/* What fills a device's memory. */
enum { FILLED_weights, FILLED_gradients, FILLED_optimizer, FILLED_saved, FILLED_working, SEARCH_FILLS };
typedef struct nnc_search_stage {
    int64_t busy;   /* nanoseconds of a device, collectives of its tensor group and its update included */
    int64_t tensor; /* of these: the collectives */
    int64_t fill[SEARCH_FILLS], bytes;
} nnc_search_stage;

typedef struct nnc_search_result {
    nnc_combination c;
    nnc_prune pruned;   /* PRUNE_none: the rest is filled */
    int64_t ns;         /* of an iteration; the sum of the following, each as the mean of the stages */
    int64_t compute, tensor, bubble, send, data, optimizer; /* send, data: exposed only */
    int64_t hidden;     /* sends and collectives of data parallelism that computing hides, of the slowest stage */
    int64_t bytes;      /* of the fullest device */
    int *cut;           /* pipeline * chunks + 1 */
    int64_t *pass[3];   /* by nnc_task_kind: nanoseconds of each virtual stage's pass, collectives and recomputation included */
    nnc_search_stage *stage; /* by stage of the pipeline */
} nnc_search_result;

/* What combination c costs. */
nnc_status nnc_search_evaluate(const nnc_search_problem *p, const nnc_combination *c, nnc_arena *a, nnc_search_result *out,
    nnc_sink *sink) NNC_MUST;

typedef struct nnc_search_found {
    int n;                       /* best first, each of other degrees (data, tensor, pipeline); at most as many as asked for */
    nnc_search_result *best;
    int64_t tried, evaluated, pruned[PRUNE__COUNT];
} nnc_search_found;
/* The `keep` best combinations, exactly: those that are not evaluated have a bound of their time above these. Ties: the one that is
 * enumerated first (smaller tensor degree, then pipeline, data, schedule, ...). */
nnc_status nnc_search(const nnc_search_problem *p, int keep, nnc_arena *a, nnc_search_found *out, nnc_sink *sink) NNC_MUST;

#endif

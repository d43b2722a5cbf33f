/* strategy/strategy.h -- how devices share a model. Makes the graph of all devices for the strategies that nnc executes. Measures a model's
 * layers, and predicts what each strategy makes of them. */
#ifndef NNC_STRATEGY_H
#define NNC_STRATEGY_H

#include "partition/partition.h"
#include "report/report.h"
#include "session/train.h"
#include "train/train.h"
#include <string.h>

static inline double nnc_ms(int64_t ns)
{
    return (double)ns * 1e-6;
}

/* ---- inference over several devices (strategy.c) -------------------------------------------------------------------------- */

/* Makes the model of all of o's devices, by a strategy of nnc run. Its inputs and outputs are m's.
 *   pipeline: `micro` parts of the batch pass through stages. Stages are the placement of m's layers, or cut as nnc partition does.
 *   data: each device has a replica.
 *   tensor, channel, spatial: ops are split.
 * Each of `replicas` has an equal part of the devices and of the batch. NNC_E_USAGE: the batch cannot be divided equally, or the placement
 * is not a pipeline. NNC_E_MODEL: rows of the batch depend on each other. */
nnc_status nnc_shared_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_strategy strategy, int replicas, int micro,
    nnc_model **out, nnc_sink *sink) NNC_MUST;

/* ---- partitions (docs/partition.md) -------------------------------------------------------------------------------------- */

typedef struct nnc_partition_options {
    nnc_compile_options compile; /* compile.devices: how many; 0: as many as --place names, at least 2 */
    const char *const *strategy; /* names; none or "all": all */
    int n_strategy;
    int micro;                   /* micro-batches of an iteration, each of the model's batch size; 0: 4 for each device */
    int chunks;                  /* stages of a device in interleaved pipelines; 0: 2 */
    double link_gbs, link_us;    /* of each link: bandwidth in each direction, 10^9 bytes a second; latency. 0: those of e's hardware file,
                                  * or 10 and 5. Negative link_us: no latency */
    double bucket_mb;            /* gradient buckets, 10^6 bytes; 0: none, in the search 25; negative: one a block */
    double slowdown;             /* factor of computing time while a collective runs; 0: that of e's hardware file, otherwise 1 */
    bool measure;                /* measure the plan's commands on this machine instead of predicting their times */
    bool simulate;               /* also simulate the plans of executable strategies; needs a hardware file */
    bool run;                    /* also run executable strategies here, on this process's virtual devices or over the ranks */
    int run_ms;                  /* with `run`: least time for each strategy; 0: 2000 */
    int run_iterations;          /* with `run`: iterations of each strategy; 0: as many as fit run_ms */
    bool layers;                 /* text: list the blocks of layers with their costs first */
    int columns;                 /* width of the terminal; 0: unlimited */
    bool sensitivity;            /* also predict times for other link bandwidths */
    const char *typed;           /* parts of printed commands: the model and its flags, its batch, its placement. NULL: none */
    const char *typed_batch, *typed_place;
    const char *svg;             /* pictures are written to this file (.svg) or folder; NULL: none */
    const char *trace, *dot;     /* files of a Chrome trace, and of the graph coloured by device (.dot, or .svg by Graphviz); NULL: none */
} nnc_partition_options;
/* Predicts what strategies make of m, or of its training step if `training` is not NULL, and appends the table. The devices are equal
 * ones of e's target, with the links of e's hardware file, if any. *fits: at least one strategy fits the devices' memory. */
nnc_status nnc_partition_model_report(nnc_env *e, const nnc_model *m, const struct nnc_training *training,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;

/* Predicts the times of several models or their steps: each alone, in sequence on one device, on its streams, and spread over devices,
 * longest first. *fits: spread over the devices, they fit the memory. */
nnc_status nnc_partition_several_report(nnc_env *e, nnc_model *const *m, const char *const *name, int n, bool step,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;

/* Cuts the layers for the least memory of the fullest device, as a text for --place. NNC_E_FIT: fewer blocks than devices. */
nnc_status nnc_sequential_place(nnc_env *e, const nnc_model *forward, const struct nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_text *place, nnc_sink *sink) NNC_MUST;

/* Costs of one micro-batch, the model as it is, by layer or by block of layers. */
typedef struct nnc_layer_costs {
    int64_t *forward, *backward, *weight; /* nanoseconds of the forward pass, of input gradients, of weight gradients */
    int64_t *optimizer;                   /* nanoseconds of the update, once an iteration */
    int64_t *accumulate;                  /* extra nanoseconds of a micro-batch that adds its gradients to those of others */
    int64_t *filled;                      /* nanoseconds of the forward pass times the share of the device that it keeps busy */
    int64_t *flops;                       /* FLOPs of all of the above */
    int64_t *weights, *gradients, *states; /* bytes of parameters, and of the trained ones' gradients and optimizer states */
    int64_t *small;                       /* bytes of gradients whose weights are updated together (see nnc_train_updates_alone) */
    int64_t *saved;                       /* bytes kept for the backward pass */
    int64_t *working;                     /* most bytes of all other tensors and workspaces while one of its commands runs */
} nnc_layer_costs;

/* A model as partitions see it: its layers in order, grouped in blocks. A block is a run of consecutive layers that commands of the forward
 * pass join; cuts lie between blocks. All memory is in the arena given to nnc_partition_measure. */
typedef struct nnc_partition_model {
    const char *name;
    bool step;
    int64_t batch;             /* samples of a micro-batch */
    int n_layer, n_block;
    const char **layer;        /* paths, in order */
    int *device;               /* by layer: device by --place or "device"; -1: none */
    bool *generated;           /* by layer: its forward convolutions, products and poolings are generated kernels. These can read an operand
                                * in pieces; library calls need it whole */
    int *first;                /* by block: its first layer; [n_block] = n_layer */
    nnc_layer_costs cost;      /* by block */
    int n_edge;
    nnc_edge *edge;            /* between blocks */
    int64_t *boundary;         /* n_block + 1: bytes over each position (nnc_edges_boundary) */
    int64_t plan_bytes;        /* memory of the whole model's plan on one device */
    struct nnc_command_times *times; /* with --measure: times of the plan's commands; otherwise NULL */
} nnc_partition_model;

/* Compiles m (with `training`: its step) for one device of e and attributes the plan's commands and tensors to layers. */
nnc_status nnc_partition_measure(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, nnc_partition_model *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

/* Expected nanoseconds of a command on e's first device. Described hardware: the simulator's time. Otherwise a call takes what its engine
 * offers. A kernel takes the launch plus the roofline at its engine's efficiency, with cold caches, or its schedule's time if more. */
int64_t nnc_predict_command_ns(const nnc_env *e, const nnc_plan *p, const nnc_cmd *c);

/* Compiles a plan of g. With `code` it can run; without, it can only be examined. */
nnc_status nnc_partition_compile(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, bool code, nnc_artifact **out,
    nnc_sink *sink) NNC_MUST;

/* place.c: a cut. Device d has the blocks cut[d] .. cut[d + 1] - 1, block b the layers first[b] .. first[b + 1] - 1. */
typedef struct nnc_sequential {
    int devices, n_block;
    int *first, *cut;
} nnc_sequential;
/* Finds the cut with the least memory of the fullest device, by estimates of nnc_layer_costs. NNC_E_FIT: fewer blocks than devices. */
nnc_status nnc_sequential_cut(nnc_env *e, const nnc_model *forward, const nnc_training *training, const nnc_compile_options *o,
    int devices, nnc_sequential *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;
void nnc_put_cut(const nnc_sequential *s, nnc_text *place); /* appends it as a text for --place */

/* Value of a numeric option, where 0 stands for the default and a negative number for 0. */
static inline double nnc_option_or(double v, double otherwise)
{
    return v > 0 ? v : v < 0 ? 0 : otherwise;
}
#define NNC_LINK_GBS 10.0
#define NNC_LINK_US 5.0
#define NNC_BUCKET_MB 25.0

/* times.c: a table of times, by what a command computes. Equal commands of different layers share an entry. Allocated in the arena. */
typedef struct nnc_command_times nnc_command_times;
nnc_command_times *nnc_command_times_create(nnc_arena *a); /* NULL: out of memory */
bool nnc_command_times_add(nnc_command_times *t, const nnc_plan *p, const nnc_cmd *c, int64_t ns); /* false: out of memory */
/* Picoseconds of an equal command; -1: none. ctx is the table. A callback of nnc_sim_plan_options. */
int64_t nnc_command_times_ps(void *ctx, const nnc_plan *p, const nnc_cmd *c);

/* Times the plan's commands from main on, on this machine, into ns[n_cmd]. Only rank 0 measures; all ranks get its times. */
nnc_status nnc_partition_time_plan(nnc_env *e, const nnc_artifact *a, const nnc_training *training, int64_t *ns, nnc_sink *sink) NNC_MUST;
/* Measures and adds the commands of the plan that t does not have. */
nnc_status nnc_partition_time_others(
    nnc_env *e, const nnc_artifact *a, const nnc_training *training, nnc_command_times *t, nnc_sink *sink) NNC_MUST;

/* Generates the inputs of a session's runs. A step gets a learning rate of 0. */
nnc_status nnc_partition_set_inputs(nnc_session *run, const nnc_training *training, nnc_sink *sink) NNC_MUST;

enum { NNC_FILL_KINDS = SEARCH_FILLS };
extern const char *const nnc_partition_fill[NNC_FILL_KINDS];

typedef struct nnc_device_use {
    const char *layers; /* "0-13", "0-3,8-11"; "" for none */
    int64_t busy_ns;
    int64_t fill[NNC_FILL_KINDS]; /* estimates */
    int64_t bytes;                /* their sum, or the plan's memory if the row has a plan */
} nnc_device_use;

/* Results of the search over combinations (auto.c). */
typedef struct nnc_auto_search {
    nnc_search_found found;
    const char **name;      /* "data 16 x tensor 8 x pipeline 8, 1f1b, zero1" */
} nnc_auto_search;
enum { NNC_BANDWIDTHS = 4 };
extern const double nnc_partition_bandwidth[NNC_BANDWIDTHS]; /* 1/4, 1/2, 2, 4: factors */
/* Measured iterations on this machine. */
typedef struct nnc_partition_measured {
    int n;
    int64_t median_ns, least_ns, p10_ns, p90_ns;
    struct nnc_shares *shares; /* by device, of an iteration (report.h) */
} nnc_partition_measured;

/* How nnc train or nnc run executes a strategy. */
typedef struct nnc_partition_way {
    int runs;             /* runs of the plan in an iteration; 0: nnc cannot execute the strategy for this model */
    nnc_strategy strategy; /* --strategy */
    int devices;          /* of the plan */
    int replicas, micro;  /* --replicas (for `data` the number of devices), --micro-batches, of inference --batch-parts; 0: 1 */
    int chunks;           /* --chunks; 0: the default */
    int zero;             /* --zero */
    int streams;          /* --streams, if more than the options' number: collectives use the second stream; 0: that of the options */
    nnc_schedule_by schedule; /* --streams-by */
    bool buckets;         /* print --bucket-mb if it was given */
} nnc_partition_way;

typedef struct nnc_partition_row {
    nnc_strategy id;
    const char *strategy;   /* its name; for `auto` with the combination found */
    const char *why_not;    /* why the strategy is impossible here; NULL: it is possible, and the rest is filled */
    bool lacks_memory;      /* why_not is that nothing fits the memory, not that the strategy is wrong for the model */
    const char *place;      /* its --place text; NULL: no placement of layers */
    int *cut;               /* sequential: device d has the blocks cut[d] .. cut[d + 1] - 1 */
    nnc_partition_way way;
    const char *note;       /* or NULL */
    bool executable, fits;
    bool planned;           /* use[].bytes and fits come from the plan; false: they are estimates */
    bool open;              /* unknown whether it fits: the estimate is too close, and no plan was made */
    bool refused;           /* the planner rejects it */
    nnc_device_use *use;    /* by device */
    int64_t iteration_ns, exposed_ns, hidden_ns;
    double bubble;          /* idle share of all devices' time */
    /* With scaled link bandwidth: time of an iteration, and the strategy's name. 0: not requested, or impossible */
    int64_t at_bandwidth_ns[NNC_BANDWIDTHS];
    const char *at_bandwidth[NNC_BANDWIDTHS];
    const char *not_simulated; /* why the planner rejected the plan on described hardware; or NULL */
    const nnc_auto_search *search; /* auto; or NULL */
    struct nnc_timeline *timeline; /* of the simulated plan, or else of the estimate's tasks; the row's own. NULL: not asked for, or none */
    /* By device, of an iteration: all times of the row are those of its plan, by the simulator. NULL: they are estimates by tasks */
    struct nnc_shares *simulated_shares;
    const nnc_partition_measured *measured; /* by --run; NULL: it was not run */
    const char *not_run;       /* why --run did not run it; or NULL */
} nnc_partition_row;

typedef struct nnc_partition_table {
    const nnc_partition_model *m;
    const nnc_graph *graph; /* the model as written, without its training step, that m was measured on; NULL: splits are not evaluated */
    const struct nnc_training *training; /* NULL: inference, or splits are not evaluated */
    int n_size;
    const nnc_partition_model *size; /* m measured for other micro-batch sizes, for `auto` */
    const nnc_partition_options *o;
    const nnc_target *target;
    const nnc_cluster *cluster; /* described hardware, whose first devices are used; NULL: equal links, as o says */
    int devices, micro;
    int gpus;               /* GPUs of this machine that can run the target's code; 0 for described hardware, unless plans are run */
    double bandwidth;       /* factor of all link bandwidths; 0: 1 */
    bool sets_batch;        /* --set batch= changes the model's batch size */
    int n_row;
    nnc_partition_row *row;
} nnc_partition_table;

/* Bytes of the fullest device. */
int64_t nnc_partition_fullest(const nnc_partition_table *t, const nnc_partition_row *row);
/* Bytes that tensors may take on a device. */
static inline int64_t nnc_partition_capacity(const nnc_partition_table *t)
{
    return t->cluster ? nnc_cluster_usable_bytes(t->cluster, 0) : t->target->memory_bytes;
}
/* rows.c: evaluates the strategies of o. */
nnc_status nnc_partition_fill_table(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* Before the model is compiled: NNC_E_USAGE for options that nothing can be made of. */
nnc_status nnc_partition_check(
    const nnc_partition_options *o, const nnc_model *m, bool step, nnc_sink *sink) NNC_MUST;
nnc_status nnc_refuse_dot(nnc_sink *sink) NNC_MUST; /* --dot of a table with several graphs */
/* sense.c: fills at_bandwidth_ns of all rows. */
nnc_status nnc_partition_sense(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* Are all rows asked for by their names? They have plans. */
static inline bool nnc_partition_named(const nnc_partition_table *t)
{
    return t->o->n_strategy > 0 && t->n_row <= t->o->n_strategy;
}
/* simulate.c: makes the plan that nnc executes for a row without one, and takes its memory. Where hardware is described and all rows have
 * plans, it takes times by the simulator, too, so that a table has times of one kind. A row whose plan is refused keeps its estimates; so
 * do others that are not executed. */
nnc_status nnc_partition_plan_row(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_partition_row *row, nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* The same for all rows. */
nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* Takes the numbers of another row with the same plan. False: there is none, or pictures of each row are asked for. */
bool nnc_partition_take_equal(const nnc_partition_table *t, nnc_partition_row *row);
/* rows.c: whether o asks for a row of the strategy, by its name or with all; "all": for all of them. */
bool nnc_partition_wants(const nnc_partition_options *o, const char *strategy);
/* Measures m for the other micro-batch sizes that the search tries. */
nnc_status nnc_partition_sizes(nnc_env *e, const nnc_model *m, const nnc_training *training, nnc_partition_table *t, nnc_arena *a,
    nnc_sink *sink) NNC_MUST;
/* auto_report.c: print what the search found, as lines and as a JSON member of the row. */
void nnc_partition_put_search(const nnc_auto_search *s, nnc_text *out);
void nnc_partition_json_search(nnc_json_writer *w, const nnc_auto_search *s);
/* partition.c: appends a strategy's placement over `devices`, as in "0-9=0,10-=1". NNC_E_USAGE: the strategy has none. */
nnc_status nnc_partition_place(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_options *o,
    int devices, nnc_strategy strategy, nnc_text *place, nnc_sink *sink) NNC_MUST;
/* Whether o requests timelines. A single picture of several strategies needs only their numbers. */
static inline bool nnc_partition_has_timelines(const nnc_partition_options *o)
{
    const size_t n = o->svg ? strlen(o->svg) : 0;
    const bool folder = n && (n < 5 || strcmp(o->svg + n - 4, ".svg") != 0);
    return o->trace || folder || (o->svg && o->n_strategy == 1);
}
/* pictures.c: writes the pictures and the trace that t->o requests. */
nnc_status nnc_partition_draw(
    nnc_env *e, const nnc_model *m, const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* Why a plan was refused: the first error of a sink. */
const char *nnc_partition_refusal(const nnc_sink *s);
/* Makes the plan that nnc executes for the row. Each device runs it *runs times in an iteration. If nnc cannot execute the strategy, *runs
 * is 0 and *out NULL. */
nnc_status nnc_partition_execution(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    const nnc_partition_row *row, bool code, nnc_artifact **out, int *runs, nnc_sink *sink) NNC_MUST;
/* memory.c: decides which rows fit, and makes plans if the estimates are too close. */
nnc_status nnc_partition_decide(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* run.c: runs the executable strategies of t by turns. All ranks of a job call it; rank 0 gets the times. */
nnc_status nnc_partition_run(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* run_report.c: prints what was run: members of a row's JSON object, columns of the CSV, the text's table. */
void nnc_partition_run_json(nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r);
enum { NNC_RUN_COLUMNS = 4 };
/* Columns of the CSV line for device d; "nan" if there is no number. Returns their number. */
int nnc_partition_run_columns(const nnc_partition_row *r, int d, nnc_json_member *out);
void nnc_partition_run_text(const nnc_partition_table *t, nnc_text *out);
/* report.c */
void nnc_partition_print(const nnc_partition_table *t, nnc_format f, nnc_text *out);

typedef struct nnc_sharing {
    nnc_strategy strategy;
    int devices;  /* of the plan */
    int replicas; /* groups of devices that share the batch; data: as many as devices */
    int micro;   /* micro-batches of a run */
    int batches; /* runs of a step (--accumulate); 1 for inference */
    int chunks;  /* stages of a device in an interleaved pipeline */
    int64_t bucket_bytes; /* bucket of gradients that replicas reduce together; 0: the gradients of each optimizer kernel */
    int zero;    /* ZeRO stage, 0 to 2 (nnc_distribution); from 1 on nnc_training.shards is `replicas` */
} nnc_sharing;

/* Whether a layer of g is placed on another device than 0. */
bool nnc_is_placed(const nnc_graph *g);
/* Places m as `nnc partition` cuts it for this strategy. The caller closes *out. training NULL: inference. */
nnc_status nnc_strategy_place(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_compile_options *compile,
    const nnc_sharing *o, nnc_model **out, nnc_sink *sink) NNC_MUST;
/* Makes the graph of all devices and micro-batches from g: a step, an evaluation (`forward`), or a model. g is not changed. *out is NULL if
 * g already is that graph. */
nnc_status nnc_strategy_graph(const nnc_graph *g, const nnc_sharing *o, bool forward, nnc_graph **out, nnc_sink *sink) NNC_MUST;

#endif

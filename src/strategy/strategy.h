/* strategy/strategy.h -- how devices share a model: strategies that nnc executes, as graphs of all devices; a model's layers and their
 * costs, and what each strategy would make of them. */
#ifndef NNC_STRATEGY_H
#define NNC_STRATEGY_H

#include "partition/partition.h"
#include "report/report.h"
#include "session/train.h"
#include "train/train.h"
#include <string.h>

/* ---- inference over several devices (strategy.c) -------------------------------------------------------------------------- */

/* The model m over o's devices, by a strategy of nnc run. `pipeline`: `micro` parts of the batch follow each other through the stages,
 * which are where m's layers are placed, or otherwise as nnc_partition_model_report cuts them; `data`: a replica on each device;
 * `tensor`, `channel`, `spatial`: ops are split. Each of `replicas` has an equal part of the devices and of the batch. Inputs and outputs
 * are m's. NNC_E_USAGE: the batch does not have so many equal parts, or the placement is no pipeline; NNC_E_MODEL: its rows depend on each
 * other. */
nnc_status nnc_shared_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_strategy strategy, int replicas, int micro,
    nnc_model **out, nnc_sink *sink) NNC_MUST;

/* ---- partitions (docs/partition.md) -------------------------------------------------------------------------------------- */

typedef struct nnc_partition_options {
    nnc_compile_options compile; /* compile.devices: how many; 0: as many as --place names, at least 2 */
    const char *const *strategy; /* names; none or "all": all */
    int n_strategy;
    int micro;                   /* micro-batches of an iteration, each the model as it is; 0: 4 for each device */
    int chunks;                  /* of a device, interleaved; 0: 2 */
    double link_gbs, link_us;    /* each link: 10^9 bytes a second in each direction, latency; 0: 10 and 5, or those of e's hardware file;
                                  * negative: no latency */
    double bucket_mb;            /* of gradients, 10^6 bytes; 0: as the plan without them, in the search 25; negative: one a block */
    double slowdown;             /* of computing while a collective runs; 0: 1, or as e's hardware file says */
    bool measure;                /* times of the plan's commands on this machine instead of its target's cost rules, or a hardware file's */
    bool simulate;               /* e has a hardware file: what nnc executes is also simulated, from its own plans */
    bool run;                    /* what nnc executes is run on this machine, on this process's virtual devices or over the ranks */
    int run_ms;                  /* run: for each strategy, at least; 0: 2000 */
    int run_iterations;          /* run: of each strategy instead; 0: as many as fit run_ms */
    bool layers;                 /* text: list the blocks of layers with their costs first */
    int columns;                 /* of the terminal that shows the text; 0: any */
    bool sensitivity;            /* also times with links of other bandwidths */
    const char *typed;           /* of the commands that are printed: the model and its flags; its batch, its placement. NULL: none */
    const char *typed_batch, *typed_place;
    const char *svg;             /* pictures are written to this file (.svg) or folder; NULL: none */
    const char *trace, *dot;     /* file of a Chrome trace; of the graph, coloured by device (.dot, or .svg by Graphviz); NULL: none */
} nnc_partition_options;
/* Predicts what strategies make of m (of its training step, where `training` is not NULL) on equal devices of e's target, connected as
 * its hardware file says, if it has one, and appends the table. *fits: one of them fits the devices' memory. */
nnc_status nnc_partition_model_report(nnc_env *e, const nnc_model *m, const struct nnc_training *training,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;

/* Predicts what several models (or their steps) take: each alone, one after the other on a device, on streams of one device, and on
 * devices, the longest first (LPT). *fits: the latter fit the memory. */
nnc_status nnc_partition_several_report(nnc_env *e, nnc_model *const *m, const char *const *name, int n, bool step,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink) NNC_MUST;

/* Layers on devices, cut for the least memory of the fullest one, as --place takes it. NNC_E_FIT: fewer blocks than devices. */
nnc_status nnc_sequential_place(nnc_env *e, const nnc_model *forward, const struct nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_text *place, nnc_sink *sink) NNC_MUST;

/* Costs of one micro-batch, the model as it is, by layer or by block of layers. */
typedef struct nnc_layer_costs {
    int64_t *forward, *backward, *weight; /* nanoseconds; of backward passes: input gradients, weight gradients */
    int64_t *optimizer;                   /* nanoseconds of the update, once an iteration */
    int64_t *accumulate;                  /* nanoseconds more of a micro-batch whose gradients are added to those of others */
    int64_t *filled;                      /* nanoseconds of the forward pass times the share of the device that is busy then */
    int64_t *flops;                       /* of all of these */
    int64_t *weights, *gradients, *states; /* bytes: of parameters, of the trained ones' gradients and the optimizer's states */
    int64_t *small;                       /* bytes of those gradients whose weights are updated together (nnc_train_updates_alone) */
    int64_t *saved;                       /* bytes kept for the backward pass */
    int64_t *working;                     /* bytes, at most, of all other tensors and workspaces while a command of it runs */
} nnc_layer_costs;

/* A model as partitions see it: its layers in order, and blocks of consecutive layers that commands of the forward pass join, between
 * which it may be cut. All memory is in the arena given to nnc_partition_measure. */
typedef struct nnc_partition_model {
    const char *name;
    bool step;
    int64_t batch;             /* samples of a micro-batch */
    int n_layer, n_block;
    const char **layer;        /* paths, in order */
    int *device;               /* by layer, of --place and "device"; -1: none */
    bool *generated;           /* by layer: its forward convolutions, products and poolings are generated kernels, which read an operand in
                                * pieces; libraries' calls need it whole */
    int *first;                /* by block: its first layer; [n_block] = n_layer */
    nnc_layer_costs cost;      /* by block */
    int n_edge;
    nnc_edge *edge;            /* between blocks */
    int64_t *boundary;         /* n_block + 1 */
    int64_t plan_bytes;        /* of the whole model's plan on one device */
    struct nnc_command_times *times; /* with --measure: of the plan's commands; otherwise NULL */
} nnc_partition_model;

/* Compiles m (with `training`: its step) for one device of e and attributes the plan's commands and tensors to layers. */
nnc_status nnc_partition_measure(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, nnc_partition_model *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

/* Expected nanoseconds of a command on e's first device: of described hardware, the simulator's; else an engine's offer for a call;
 * roofline with the engine's efficiency, and the launch, of a kernel. */
int64_t nnc_predict_command_ns(const nnc_env *e, const nnc_plan *p, const nnc_cmd *c);

/* A plan that is only looked at, or (code) run. */
nnc_status nnc_partition_compile(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, bool code, nnc_artifact **out,
    nnc_sink *sink) NNC_MUST;

/* place.c: device d has the blocks cut[d] .. cut[d + 1] - 1, and block b the layers first[b] .. first[b + 1] - 1. */
typedef struct nnc_sequential {
    int devices, n_block;
    int *first, *cut;
} nnc_sequential;
/* The cut for the least memory of the fullest device, by the ledger. NNC_E_FIT: fewer blocks than devices. */
nnc_status nnc_sequential_cut(nnc_env *e, const nnc_model *forward, const nnc_training *training, const nnc_compile_options *o,
    int devices, nnc_sequential *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;
void nnc_put_cut(const nnc_sequential *s, nnc_text *place); /* as --place takes it */

/* The number of an option: 0 stands for the default, a negative one for 0. */
static inline double nnc_option_or(double v, double otherwise)
{
    return v > 0 ? v : v < 0 ? 0 : otherwise;
}
#define NNC_LINK_GBS 10.0
#define NNC_LINK_US 5.0
#define NNC_BUCKET_MB 25.0

/* times.c: times of commands by what they compute, whatever layer they are of. In the arena. */
typedef struct nnc_command_times nnc_command_times;
nnc_command_times *nnc_command_times_create(nnc_arena *a); /* NULL: out of memory */
bool nnc_command_times_add(nnc_command_times *t, const nnc_plan *p, const nnc_cmd *c, int64_t ns); /* false: out of memory */
/* Picoseconds of an equal command, -1: there is none. ctx: the times, as nnc_sim_plan_options asks for them. */
int64_t nnc_command_times_ps(void *ctx, const nnc_plan *p, const nnc_cmd *c);

/* Times the plan's commands on this machine (rank 0 alone; all ranks get its times): ns[n_cmd], from main on. */
nnc_status nnc_partition_time_plan(nnc_env *e, const nnc_artifact *a, const nnc_training *training, int64_t *ns, nnc_sink *sink) NNC_MUST;
/* Adds the times of the plan's commands that t does not have. */
nnc_status nnc_partition_time_others(
    nnc_env *e, const nnc_artifact *a, const nnc_training *training, nnc_command_times *t, nnc_sink *sink) NNC_MUST;
/* A kernel, a call, or a copy within a device. */
static inline bool nnc_plan_computes(const nnc_plan *p, const nnc_cmd *c)
{
    return c->kind == CMD_kernel || c->kind == CMD_call ||
           (c->kind == CMD_copy && p->tensor[c->arg[0]].device == p->tensor[c->arg[1]].device);
}

/* Generates the inputs of a session's runs; of a step with a learning rate of 0. */
nnc_status nnc_partition_set_inputs(nnc_session *run, const nnc_training *training, nnc_sink *sink) NNC_MUST;

enum { NNC_FILL_KINDS = SEARCH_FILLS };
extern const char *const nnc_partition_fill[NNC_FILL_KINDS];

typedef struct nnc_device_use {
    const char *layers; /* "0-13", "0-3,8-11"; "" for none */
    int64_t busy_ns;
    int64_t fill[NNC_FILL_KINDS]; /* estimates */
    int64_t bytes;                /* their sum; of a row with a plan that plan's */
} nnc_device_use;

/* What the search over combinations found (auto.c). */
typedef struct nnc_auto_search {
    nnc_search_found found;
    int64_t *simulated_ns;  /* by combination, of the clock of tasks; 0: the clock did not run. Combinations are in this order */
    const char **name;      /* "data 16 x tensor 8 x pipeline 8, 1f1b, zero1" */
    const char *slow, *fast; /* the best one where links have a quarter, four times the bandwidth; NULL: none fits */
    int64_t slow_ns, fast_ns;
    int64_t same_slow_ns, same_fast_ns; /* what the best one takes there; 0: it is the best one there, too */
} nnc_auto_search;
enum { NNC_BANDWIDTHS = 4 };
extern const double nnc_partition_bandwidth[NNC_BANDWIDTHS]; /* 1/4, 1/2, 2, 4: factors */
/* Iterations on this machine. */
typedef struct nnc_partition_measured {
    int n;
    int64_t median_ns, least_ns, p10_ns, p90_ns;
    int64_t *busy_ns, *communication_ns; /* by device, of an iteration: commands that compute; copies between devices and collectives */
} nnc_partition_measured;

/* How nnc train (of a step) or nnc run executes a strategy. */
typedef struct nnc_partition_way {
    int runs;             /* of the plan, in an iteration; 0: nnc does not execute the strategy, or not of this model */
    nnc_strategy strategy; /* --strategy */
    int devices;          /* of the plan */
    int replicas, micro;  /* --replicas (of `data` the devices), --micro-batches of a pipeline; 0: 1 */
    int chunks;           /* --chunks; 0: the default */
    int zero;             /* --zero */
    int streams;          /* --streams, where it is more than the options': collectives have the second one; 0: theirs */
    nnc_schedule_by schedule; /* --streams-by */
    bool buckets;         /* --bucket-mb, where it is given */
} nnc_partition_way;

typedef struct nnc_partition_row {
    nnc_strategy id;
    const char *strategy;   /* its name; of a search with the combination that it found */
    const char *why_not;    /* the strategy does not exist here; NULL: it does, and the rest is filled */
    const char *place;      /* --place of it; NULL: no placement of layers */
    nnc_partition_way way;
    const char *note;       /* or NULL */
    bool executable, fits;
    bool planned;           /* use[].bytes and fits are those of the plan; false: they are estimates */
    bool open;              /* the estimate does not tell whether it fits, and no plan was made */
    bool refused;           /* the planner refuses it */
    nnc_device_use *use;    /* by device */
    int64_t iteration_ns, exposed_ns, hidden_ns;
    double bubble;          /* idle share of all devices' time */
    int64_t at_bandwidth_ns[NNC_BANDWIDTHS]; /* an iteration with such links; 0: not asked for, or not possible */
    /* By the simulator, of the plan that nnc executes: an iteration; memory of the fullest device. 0: not simulated */
    int64_t simulated_ns, simulated_bytes;
    const char *not_simulated; /* the plan that was asked for was refused: why; or NULL */
    const nnc_auto_search *search; /* auto; or NULL */
    /* Owned timelines of the estimate and of the simulated plan. NULL: not asked for, or there is none */
    struct nnc_timeline *predicted, *simulated;
    int64_t *simulated_busy_ns; /* by device: commands that compute; NULL: not simulated */
    const nnc_partition_measured *measured; /* by --run; NULL: it was not run */
    const char *not_run;       /* with --run: why; or NULL */
} nnc_partition_row;

typedef struct nnc_partition_table {
    const nnc_partition_model *m;
    const nnc_graph *graph; /* the model that m was measured of, as written, without its training step; NULL: nothing is split */
    const struct nnc_training *training; /* of a step; NULL: inference, or splits are not asked for */
    int n_size;
    const nnc_partition_model *size; /* m for other micro-batches, for auto */
    const nnc_partition_options *o;
    const nnc_target *target;
    const nnc_cluster *cluster; /* described hardware, of which the devices are the first; NULL: equal links of o */
    int devices, micro;
    int gpus;               /* GPUs of this machine that the target's code runs on; 0 for a described one, unless plans are run */
    double bandwidth;       /* factor of all links'; 0: 1 */
    bool sets_batch;        /* --set batch= gives the model another batch */
    int n_row;
    nnc_partition_row *row;
} nnc_partition_table;

/* Bytes of a device that tensors may take. */
static inline int64_t nnc_partition_capacity(const nnc_partition_table *t)
{
    return t->cluster ? nnc_cluster_usable_bytes(t->cluster, 0) : t->target->memory_bytes;
}
/* rows.c: evaluates the strategies of o. */
nnc_status nnc_partition_fill_table(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* sense.c: fills at_bandwidth_ns of all rows. */
nnc_status nnc_partition_sense(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* simulate.c: simulates the strategies of t that nnc executes on its described hardware. */
nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* auto.c: does o ask for the search; measures m for other micro-batches than its own, for the search. */
bool nnc_partition_wants_auto(const nnc_partition_options *o);
nnc_status nnc_partition_sizes(nnc_env *e, const nnc_model *m, const nnc_training *training, nnc_partition_table *t, nnc_arena *a,
    nnc_sink *sink) NNC_MUST;
/* auto_report.c: what the search found, as lines and as a member of the row. */
void nnc_partition_put_search(const nnc_partition_table *t, const nnc_auto_search *s, nnc_text *out);
void nnc_partition_json_search(nnc_json_writer *w, const nnc_auto_search *s);
/* partition.c: appends the placement ("0-9=0,10-=1") of a strategy on so many devices. NNC_E_USAGE: it does not exist for them. */
nnc_status nnc_partition_place(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_options *o,
    int devices, nnc_strategy strategy, nnc_text *place, nnc_sink *sink) NNC_MUST;
/* Does o ask for what strategies do when? One picture of several strategies needs only their numbers. */
static inline bool nnc_partition_has_timelines(const nnc_partition_options *o)
{
    const size_t n = o->svg ? strlen(o->svg) : 0;
    const bool folder = n && (n < 5 || strcmp(o->svg + n - 4, ".svg") != 0);
    return o->trace || folder || (o->svg && o->n_strategy == 1);
}
/* pictures.c: writes the pictures and the trace that t->o asks for. */
nnc_status nnc_partition_draw(
    nnc_env *e, const nnc_model *m, const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* The plan that nnc executes for the row; *runs: how many times each device runs it in an iteration. 0: the strategy is not executed, and
 * *out is NULL. */
nnc_status nnc_partition_execution(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    const nnc_partition_row *row, bool code, nnc_artifact **out, int *runs, nnc_sink *sink) NNC_MUST;
/* Do both rows execute the same plan, as pipelines do whose cuts are equal? */
bool nnc_partition_same_plan(const nnc_partition_row *a, const nnc_partition_row *b);
/* memory.c: decides which rows fit, by plans where estimates are not clear; takes a plan's bytes. */
nnc_status nnc_partition_decide(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_sink *sink) NNC_MUST;
void nnc_partition_take_plan(const nnc_env *e, const nnc_partition_table *t, nnc_partition_row *row, const nnc_artifact *a);
/* run.c: runs the strategies of t that nnc executes, in turn. Over ranks: called by all of them, and rank 0 has the times. */
nnc_status nnc_partition_run(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* run_report.c: members of a row's object; the table of what was run. */
void nnc_partition_run_json(nnc_json_writer *w, const nnc_partition_table *t, const nnc_partition_row *r);
enum { NNC_RUN_COLUMNS = 5 };
/* Columns of the CSV form's line for device d; "nan" where there is no number. Returns how many. */
int nnc_partition_run_columns(const nnc_partition_row *r, int d, nnc_json_member *out);
void nnc_partition_run_text(const nnc_partition_table *t, nnc_text *out);
/* report.c */
void nnc_partition_print(const nnc_partition_table *t, nnc_format f, nnc_text *out);

typedef struct nnc_sharing {
    nnc_strategy strategy;
    int devices;  /* of the plan */
    int replicas; /* that they are divided among; data: as many as devices */
    int micro;   /* micro-batches of a run */
    int batches; /* runs of a step (--accumulate); 1 for inference */
    int chunks;  /* interleaved: stages of a device */
    int64_t bucket_bytes; /* of gradients that replicas sum together; 0: those of each kernel of the optimizer */
    int zero;    /* ZeRO's stage, 0 to 2 (nnc_distribution); beyond 0 nnc_training.shards is `replicas` */
} nnc_sharing;

/* Is a layer of g placed on another device than 0? */
bool nnc_is_placed(const nnc_graph *g);
/* m placed as `nnc partition` cuts it for this strategy. The caller closes *out. training NULL: inference. */
nnc_status nnc_strategy_place(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_compile_options *compile,
    const nnc_sharing *o, nnc_model **out, nnc_sink *sink) NNC_MUST;
/* The graph of all devices and micro-batches of g, a step, an evaluation (`forward`) or a model; g itself stays. *out NULL: g is that
 * graph. */
nnc_status nnc_strategy_graph(const nnc_graph *g, const nnc_sharing *o, bool forward, nnc_graph **out, nnc_sink *sink) NNC_MUST;

#endif

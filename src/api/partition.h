/* api/partition.h -- a model's layers and their costs, and what a strategy makes of them. Internal to api/. */
#ifndef NNC_API_PARTITION_H
#define NNC_API_PARTITION_H

#include "api/internal.h"
#include "partition/partition.h"
#include "train/train.h"

/* Costs of one micro-batch, the model as it is, by layer or by block of layers. */
typedef struct nnc_layer_costs {
    int64_t *forward, *backward, *weight; /* nanoseconds; of backward passes: input gradients, weight gradients */
    int64_t *optimizer;                   /* nanoseconds of the update, once an iteration */
    int64_t *accumulate;                  /* nanoseconds more of a micro-batch whose gradients are added to those of others */
    int64_t *flops;                       /* of all of these */
    int64_t *weights, *gradients, *states; /* bytes: of parameters, of the trained ones' gradients and the optimizer's states */
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
    int *first;                /* by block: its first layer; [n_block] = n_layer */
    nnc_layer_costs of;        /* by block */
    int n_edge;
    nnc_edge *edge;            /* between blocks */
    int64_t *boundary;         /* n_block + 1 */
    int64_t plan_bytes;        /* of the whole model's plan on one device */
} nnc_partition_model;

/* Compiles m (with `training`: its step) for one device of e and attributes the plan's commands and tensors to layers. */
nnc_status nnc_partition_measure(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, nnc_partition_model *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

/* A plan that is only looked at. A GPU's is the same without machine code; a CPU's kernels would be interpreted then, which is slower. */
nnc_status nnc_partition_compile(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o, nnc_artifact **out,
    nnc_sink *sink) NNC_MUST;

/* The number of an option: 0 stands for the default, a negative one for 0. */
static inline double nnc_option_or(double v, double otherwise)
{
    return v > 0 ? v : v < 0 ? 0 : otherwise;
}
#define NNC_LINK_GBS 10.0
#define NNC_LINK_US 5.0
#define NNC_BUCKET_MB 25.0

enum { NNC_FILL_KINDS = 5 }; /* weights, gradients, optimizer, saved, working */
extern const char *const nnc_partition_fill[NNC_FILL_KINDS];

typedef struct nnc_device_use {
    const char *layers; /* "0-13", "0-3,8-11"; "" for none */
    int64_t busy_ns;
    int64_t fill[NNC_FILL_KINDS], bytes; /* their sum */
} nnc_device_use;

/* What the search over combinations found (partition_auto.c). */
typedef struct nnc_auto_search {
    nnc_search_found found;
    int64_t *simulated_ns;  /* by combination, of the event simulator; 0: not simulated. Combinations are in the order of these then */
    const char **name;      /* "data 16 x tensor 8 x pipeline 8, 1f1b, zero1" */
    const char *slow, *fast; /* the best one where links have a quarter, four times the bandwidth; NULL: none fits */
    int64_t slow_ns, fast_ns;
    int64_t same_slow_ns, same_fast_ns; /* what the best one takes there; 0: it is the best one there, too */
} nnc_auto_search;

typedef struct nnc_partition_row {
    const char *strategy;
    const char *why_not;    /* the strategy does not exist here; NULL: it does, and the rest is filled */
    const char *place;      /* --place of it; NULL: no placement of layers */
    const char *note;       /* or NULL */
    bool executable, fits;
    nnc_device_use *use;    /* by device */
    int64_t iteration_ns, exposed_ns, hidden_ns;
    double bubble;          /* idle share of all devices' time */
    /* By the simulator, of the plan that nnc executes: an iteration; memory of the fullest device. 0: not simulated */
    int64_t simulated_ns, simulated_bytes;
    const char *not_simulated; /* the plan that was asked for was refused: why; or NULL */
    const nnc_auto_search *search; /* auto; or NULL */
} nnc_partition_row;

typedef struct nnc_partition_table {
    const nnc_partition_model *m;
    const nnc_graph *graph;     /* of m, as written; NULL: auto divides no tensors */
    int n_size;
    const nnc_partition_model *size; /* m for other micro-batches, for auto */
    const nnc_partition_options *o;
    const nnc_target *target;
    const nnc_cluster *cluster; /* described hardware, of which the devices are the first; NULL: equal links of o */
    int devices, micro;
    int n_row;
    nnc_partition_row *row;
} nnc_partition_table;

/* Bytes of a device that tensors may take. */
static inline int64_t nnc_partition_capacity(const nnc_partition_table *t)
{
    return t->cluster ? nnc_cluster_usable_bytes(t->cluster, 0) : t->target->memory_bytes;
}
/* partition_rows.c: evaluates the strategies of o. */
nnc_status nnc_partition_fill_table(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* partition_simulate.c: simulates the strategies of t that nnc executes on its described hardware. */
nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* partition_auto.c: does o ask for the search; measures m for other micro-batches than its own, for the search. */
bool nnc_partition_wants_auto(const nnc_partition_options *o);
nnc_status nnc_partition_sizes(nnc_env *e, const nnc_model *m, const nnc_training *training, nnc_partition_table *t, nnc_arena *a,
    nnc_sink *sink) NNC_MUST;
/* partition_auto_report.c: what the search found, as lines and as a member of the row. */
void nnc_partition_put_search(const nnc_partition_table *t, const nnc_auto_search *s, nnc_text *out);
void nnc_partition_json_search(nnc_json_writer *w, const nnc_auto_search *s);
/* partition_report.c */
void nnc_partition_print(const nnc_partition_table *t, nnc_format f, nnc_text *out);

#endif

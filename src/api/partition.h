/* api/partition.h -- a model's layers and their costs, and what a strategy makes of them. Internal to api/. */
#ifndef NNC_API_PARTITION_H
#define NNC_API_PARTITION_H

#include "api/internal.h"
#include "partition/partition.h"
#include "train/train.h"
#include <string.h>

/* Costs of one micro-batch, the model as it is, by layer or by block of layers. */
typedef struct nnc_layer_costs {
    int64_t *forward, *backward, *weight; /* nanoseconds; of backward passes: input gradients, weight gradients */
    int64_t *optimizer;                   /* nanoseconds of the update, once an iteration */
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

enum { NNC_BANDWIDTHS = 4 };
extern const double nnc_partition_bandwidth[NNC_BANDWIDTHS]; /* 1/4, 1/2, 2, 4: factors */

typedef struct nnc_partition_row {
    const char *strategy;
    const char *why_not;    /* the strategy does not exist here; NULL: it does, and the rest is filled */
    const char *place;      /* --place of it; NULL: no placement of layers */
    const char *note;       /* or NULL */
    bool executable, fits;
    nnc_device_use *use;    /* by device */
    int64_t iteration_ns, exposed_ns, hidden_ns;
    double bubble;          /* idle share of all devices' time */
    int64_t at_bandwidth_ns[NNC_BANDWIDTHS]; /* an iteration with such links; 0: not asked for, or not possible */
    /* By the simulator, of the plan that nnc executes: an iteration; memory of the fullest device. 0: not simulated */
    int64_t simulated_ns, simulated_bytes;
    const char *not_simulated; /* the plan that was asked for was refused: why; or NULL */
    /* Owned timelines of the estimate and of the simulated plan. NULL: not asked for, or there is none */
    struct nnc_timeline *predicted, *simulated;
} nnc_partition_row;

typedef struct nnc_partition_table {
    const nnc_partition_model *m;
    const nnc_partition_options *o;
    const nnc_target *target;
    const nnc_cluster *cluster; /* described hardware, of which the devices are the first; NULL: equal links of o */
    int devices, micro;
    double bandwidth;       /* factor of all links'; 0: 1 */
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
/* partition_sense.c: fills at_bandwidth_ns of all rows. */
nnc_status nnc_partition_sense(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* partition_simulate.c: simulates the strategies of t that nnc executes on its described hardware. */
nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_partition_table *t,
    nnc_arena *arena, nnc_sink *sink) NNC_MUST;
/* Does o ask for what strategies do when? One picture of several strategies needs only their numbers. */
static inline bool nnc_partition_has_timelines(const nnc_partition_options *o)
{
    const size_t n = o->svg ? strlen(o->svg) : 0;
    const bool folder = n && (n < 5 || strcmp(o->svg + n - 4, ".svg") != 0);
    return o->trace || folder || (o->svg && o->n_strategy == 1);
}
/* partition_pictures.c: writes the pictures and the trace that t->o asks for. */
nnc_status nnc_partition_draw(
    nnc_env *e, const nnc_model *m, const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink) NNC_MUST;
/* partition_report.c */
void nnc_partition_print(const nnc_partition_table *t, nnc_format f, nnc_text *out);

#endif

/* strategy/row.h -- shared by the files that evaluate strategies. */
#ifndef NNC_STRATEGY_ROW_H
#define NNC_STRATEGY_ROW_H

#include "strategy/strategy.h"

typedef struct rows {
    nnc_partition_table *t;
    const nnc_partition_model *m;
    int n, micro, chunks; /* devices, micro-batches, chunks of a device */
    bool here;            /* this machine can run plans of all devices: they are CPUs, or it has as many GPUs */
    int zero;             /* ZeRO stage of the current row */
    const nnc_flat_links *flat; /* equal links; not used for described hardware */
    nnc_links links;
    nnc_links half;       /* reduce-scatters and allgathers in place of allreduces */
    struct auto_links *shared; /* times of groups that share links */
    int slowdown;         /* per mille: computing takes so much longer while a collective runs */
    int64_t capacity;     /* bytes that tensors may take on a device */
    nnc_arena *a;
    nnc_sink *sink;
} rows;

/* Fill the row of the strategy row->id. */
#define STRATEGY(id, name, mode, by, row, ...) nnc_status row_##row(rows *r, nnc_partition_row *) NNC_MUST;
#include "partition/strategies.def"

/* Returns the sum of v[i .. j-1]. */
int64_t row_range(const int64_t *v, int i, int j);
/* Nanoseconds that adding gradients costs each of a device's k micro-batches. */
int64_t row_adding_ns(const rows *r, int i, int j, int k);
/* Adds the memory of blocks i .. j-1, with n micro-batches in flight, to a device. */
void row_add_blocks(const rows *r, nnc_device_use *u, int i, int j, int64_t n);
/* Adds what blocks i .. j-1 hold of all batches of a run, beside one: inputs, and outputs or targets as large. */
void row_add_batches(const rows *r, nnc_device_use *u, int i, int j, int batches);
/* Appends the layer indices of blocks i .. j-1 ("0-3,8-11") to `before`. NULL: out of memory. */
const char *row_layers(const rows *r, const char *before, int i, int j);
/* How nnc executes replicas on all devices, with k micro-batches each. */
nnc_partition_way row_way_of_data(const rows *r, int k, int zero);
/* Whether their gradients are reduced during the backward pass. */
bool row_is_beside(const rows *r, int k, int zero);
/* Records how nnc executes the row. way.devices 0: on all devices. */
void row_executes(const rows *r, nnc_partition_row *row, nnc_partition_way way);
/* Whether a batch can be divided. Always true for a step, which gets micro-batches; false for inference if rows depend on each other. */
nnc_status row_can_divide(const rows *r, bool *can) NNC_MUST;
/* The --place text of stages that are dealt to the devices in turn. NULL: out of memory. */
const char *row_place_of_stages(const rows *r, int devices, int stages, const int *cut);
/* Fills the row of a pipeline with these stages on all devices. */
nnc_status row_stages(rows *r, nnc_partition_row *row, nnc_pipeline_kind kind, int chunks, const int *cut) NNC_MUST;
nnc_status row_finish(rows *r, nnc_partition_row *row) NNC_MUST;

/* auto_links.c: makes r->shared, r->links and r->half, with the table's factor of bandwidth. */
nnc_status row_make_links(rows *r) NNC_MUST;

/* links.c: overheads of described CPU devices, beside their commands: of each run of a plan; of waking up after a wait of `waited_ns`. */
int64_t row_run_ns(const rows *r);
int64_t row_wake_ns(const rows *r, int64_t waited_ns);
/* Least time in which the cores that all devices share can do busy_ns of work. */
int64_t row_cores_ns(const rows *r, int64_t busy_ns);

/* ios.c: lists the blocks that each block reads. Block b reads need[start[b] .. start[b + 1]). */
nnc_status row_operands(const rows *r, int **start, int **need) NNC_MUST;
/* ---- tasks (tasks.c) ------------------------------------------------------------------------------------------------- */

/* A unit of work of a part. A part is a device, or several devices that do the same. */
typedef struct row_task {
    uint8_t kind;          /* nnc_work_kind; communication: a transfer or a collective */
    uint8_t chunk;
    bool collective;       /* computing of the part is slower beside it */
    bool holds;            /* of a send: the part computes nothing meanwhile, as in plans */
    bool free;             /* of a send: it waits for no other one */
    bool all;              /* of all parts: what was added before ends first, what is added later begins afterwards */
    uint8_t op;            /* nnc_group_op of a collective over links */
    int32_t part, micro;   /* micro-batch, -1: none */
    int64_t ns, bytes;     /* bytes: of communication */
    /* Over the links of row_tasks.first: n neighbouring devices send to as many of part `to` on. Or `groups` neighbouring groups of n
     * devices, `stride` apart, have a collective. n 0: the task takes ns */
    int32_t n, to, stride, groups;
    const char *name;
} row_task;
typedef struct row_wait { int32_t task, on; } row_wait;
/* A device that does what a part does (-1: nothing). It computes only the first `micro` micro-batches, numbered from `first`. */
typedef struct row_copy { int32_t part, first, micro; } row_copy;

typedef struct row_tasks {
    rows *r;
    row_task *task;        /* tasks of the same part run in this order */
    row_wait *wait;
    size_t cap_task, cap_wait;
    int n, n_wait, parts;
    const int32_t *first;  /* by part: its first device; where hardware is described, transfers share its links. NULL: they take their ns */
    row_copy *copy;        /* by device */
    bool copied;           /* some device differs from the part of its index */
    const char *lane;      /* name of the communication lane in timelines */
    int repeat, each;      /* repetitions of the tasks before `once`, and micro-batches of each repetition */
    int once;              /* first task after the last repetition, where all parts meet; -1: none */
    bool oom;
} row_tasks;
/* Makes an empty list, in which device i does what part i does. */
nnc_status row_tasks_make(rows *r, int parts, row_tasks *out) NNC_MUST;
void row_tasks_copy(row_tasks *t, int device, row_copy c);
/* Return the new task's index. Running out of memory sets t->oom. An index of -1 means no task. */
int row_task_add(row_tasks *t, row_task x);
int row_task_compute(row_tasks *t, int part, int kind, int micro, int64_t ns);
int row_task_move(row_tasks *t, row_task x, int after);
void row_task_wait(row_tasks *t, int task, int on);
void row_tasks_meet(row_tasks *t); /* tasks added from here on run once */
/* Simulates the tasks. Fills the row's iteration, exposed and hidden times, and adds to the devices' busy times. Makes the timeline if a
 * picture or a trace is requested. */
nnc_status row_tasks_run(const row_tasks *t, nnc_partition_row *row) NNC_MUST;
/* Only times: of one repetition, of the iteration. */
nnc_status row_tasks_time(const row_tasks *t, int64_t *one, int64_t *ns) NNC_MUST;

/* stages.c: adds the tasks of a pipeline. Those of device d go to part d. */
typedef struct row_pipeline_passes {
    const nnc_pipeline *pipe;
    nnc_pipeline_costs costs;
    const int64_t *late;  /* by virtual stage: of costs.weight, what follows the send of the pass's gradient; NULL: nothing */
    const int64_t *bytes; /* by virtual stage: of costs.send */
    const int32_t *senders; /* by device: its neighbours, and itself, that send at the same time (row_task.n); NULL: 0 */
    /* Adds a pass that reduces gradients; returns its last task, -1: it is another pass. NULL: there are none */
    int (*reduce)(void *ctx, row_tasks *t, int d, const nnc_task *pass, int *first);
    void *ctx;
} row_pipeline_passes;
nnc_status row_add_stages(row_tasks *t, const row_pipeline_passes *of) NNC_MUST;

/* split_tasks.c: finds the block of a node by the node's path, searching from layer `last`. Nodes of the loss belong to the last layer's
 * block. -1: none. */
int row_block_of(const nnc_partition_model *m, const char *origin, int last);
/* Sums the expected nanoseconds of a graph's nodes by block and pass (forward, backward). Each node counts as a command of its own, unless
 * it is fused into another one. pieces[block] is set if the block has slices or concats. */
nnc_status row_node_times(const rows *r, const nnc_graph *g, double *sum[2], bool *pieces) NNC_MUST;
typedef struct row_spent { int64_t *pass[2]; } row_spent; /* nanoseconds by block, forward and backward; NULL: not asked for */
/* A graph of several devices, whose optimizer does not count. A node takes factor[pass][block] times its expected time. Slices and concats
 * take their expected time if their block has none on one device. */
typedef struct row_graph {
    const nnc_graph *g;
    const double *factor[2];
    const bool *pieces;
    row_spent compute, moves; /* what device 0 does is added */
} row_graph;
/* Adds the tasks of a run of it; device d is part d. */
nnc_status row_add_graph(const rows *r, const row_graph *g, row_tasks *t) NNC_MUST;
/* split.c: a split over the first n devices. *ok is false if the strategy splits nothing. */
typedef struct row_split_cost {
    row_spent compute, moves; /* of device 0, in a micro-batch; together they are its time */
    int64_t *saved, *working; /* bytes by block of device 0 */
    double weights;           /* share of the weights' bytes that the fullest device has */
    int64_t once;             /* nanoseconds once a step: reducing gradients and updating */
} row_split_cost;
nnc_status row_split_costs(const rows *r, nnc_strategy strategy, int n, row_split_cost *out, bool *ok) NNC_MUST;

/* data.c */
/* ZeRO's stage 3, of a micro-batch: each block's weights are gathered while the block before it runs; backwards its gradients are
 * scattered, too. */
typedef struct row_gathered {
    row_tasks *t;
    int blocks;
    const int64_t *forward, *backward, *weights, *gradients; /* by block; backward with the gradients of weights */
    int (*move)(void *ctx, bool scatters, int64_t bytes, int after); /* adds a collective, if it takes time; otherwise returns `after` */
    void *ctx;
} row_gathered;
int row_add_gathered(const row_gathered *x, bool back, int last); /* after task `last`; returns the last task */

#endif

/* strategy/row.h -- shared by the files that evaluate strategies. */
#ifndef NNC_STRATEGY_ROW_H
#define NNC_STRATEGY_ROW_H

#include "strategy/strategy.h"

typedef struct rows {
    nnc_partition_table *t;
    const nnc_partition_model *m;
    int n, micro, chunks; /* devices, micro-batches, chunks of a device */
    bool here;            /* nnc runs plans of all devices on this machine: they are CPUs, or as many GPUs as it has */
    int zero;             /* of the current row: ZeRO's stage */
    const nnc_flat_links *flat; /* of equal links; not used where hardware is described */
    nnc_links links;
    nnc_links half;       /* reduce-scatters and allgathers in place of allreduces */
    int slowdown;         /* per mille, of computing while a collective runs */
    int64_t capacity;     /* bytes of a device that tensors may take */
    nnc_arena *a;
    nnc_sink *sink;
} rows;

/* Fill the row of the strategy row->id. */
#define STRATEGY(id, name, mode, by, row, ...) nnc_status row_##row(rows *r, nnc_partition_row *) NNC_MUST;
#include "partition/strategies.def"

/* Sum of v[i .. j-1]; nanoseconds of all passes of one micro-batch through blocks i .. j-1. */
int64_t row_range(const int64_t *v, int i, int j);
int64_t row_pass_ns(const rows *r, int i, int j);
/* Of adding gradients, for each of a device's k micro-batches. */
int64_t row_adding_ns(const rows *r, int i, int j, int k);
/* Adds the memory of blocks i .. j-1, with n micro-batches in flight, to a device. */
void row_add_blocks(const rows *r, nnc_device_use *u, int i, int j, int64_t n);
/* Their layers' indices, after those before. NULL: out of memory. */
const char *row_layers(const rows *r, const char *before, int i, int j);
/* How replicas on all devices, with k micro-batches each, are executed; are their gradients reduced beside the backward pass? */
nnc_partition_way row_way_of_data(const rows *r, int k, int zero);
bool row_is_beside(const rows *r, int k, int zero);
/* Says how nnc executes the row; way.devices 0: on all devices. */
void row_executes(const rows *r, nnc_partition_row *row, nnc_partition_way way);
/* Can a batch be divided? Of a step it is given as micro-batches; of inference *can false where rows depend on each other. */
nnc_status row_can_divide(const rows *r, bool *can) NNC_MUST;
/* --place of stages that go round the devices. NULL: out of memory. */
const char *row_place_of_stages(const rows *r, int devices, int stages, const int *cut);
/* The row of a pipeline on all devices with these stages. */
nnc_status row_stages(rows *r, nnc_partition_row *row, nnc_pipeline_kind kind, int chunks, const int *cut) NNC_MUST;
nnc_status row_finish(rows *r, nnc_partition_row *row) NNC_MUST;

/* links.c: r->links of described hardware; those of `units` groups of `each` neighbouring devices, whose bandwidth is
 * multiplied by a factor. */
nnc_status row_described_links(rows *r, const nnc_cluster *c) NNC_MUST;
nnc_links row_described_half(const rows *r); /* r->half of them */
nnc_status row_level_links(rows *r, const nnc_cluster *c, int each, int units, double bandwidth, nnc_links *out) NNC_MUST;

/* What CPU devices of a described machine cost beside their commands: a run of the plan; a wait of so long, until the device goes on. */
int64_t row_run_ns(const rows *r);
int64_t row_wake_ns(const rows *r, int64_t waited_ns);
/* Time in which so much work of all devices is done at best, by the cores that they share. */
int64_t row_cores_ns(const rows *r, int64_t busy_ns);

/* ios.c: the blocks that each block reads: need[start[b] .. start[b + 1]). */
nnc_status row_operands(const rows *r, int **start, int **need) NNC_MUST;
/* clocks.c: the block of a node by its path, looked for around layer `last`; nodes of the loss count as the last layer's. -1:
 * none. */
int row_block_of(const nnc_partition_model *m, const char *origin, int last);
/* Nanoseconds of a graph's nodes by block and pass (forwards, backwards), each node that is not fused into another one as a command by
 * itself. pieces[block]: there are slices or concats. */
nnc_status row_node_times(const rows *r, const nnc_graph *g, double *sum[2], bool *pieces) NNC_MUST;
/* A run of a graph of n devices (without an optimizer), with a clock for each. A node takes factor[pass][block] times its own time; slices
 * and concats of blocks that have none on one device take their own. */
typedef struct row_run {
    const nnc_graph *g;
    int n;
    const double *factor[2];
    const bool *pieces;
    const nnc_links *links, *half; /* NULL: transfers take no time */
    int64_t *busy;                 /* by device: computing; added to */
    int64_t sent;                  /* nanoseconds of all transfers; added to */
    int64_t total;
} row_run;
nnc_status row_run_clocks(const rows *r, row_run *run) NNC_MUST;
/* split.c: nanoseconds of a split over the first n devices: of a micro-batch; of sums of gradients and the update, once a step. */
typedef struct row_split_costs {
    bool ok; /* false: the strategy splits nothing */
    int64_t total, once, optimizer;
} row_split_costs;
nnc_status row_split_cost(const rows *r, nnc_strategy strategy, int n, row_split_costs *out) NNC_MUST;

/* ---- tasks (tasks.c) ------------------------------------------------------------------------------------------------- */

/* What a part, a device or several that do the same, does at some time. */
typedef struct row_task {
    uint8_t kind;          /* nnc_work_kind; communication: a transfer or a collective */
    uint8_t chunk;
    bool collective;       /* computing of the part is slower beside it */
    bool holds;            /* of a send: the part computes nothing meanwhile, as in plans */
    bool free;             /* of a send: it waits for no other one */
    uint8_t op;            /* nnc_group_op of a collective over links */
    int32_t part, micro;   /* micro-batch, -1: none */
    int64_t ns, bytes;     /* bytes: of communication */
    /* Over the links of row_tasks.first: n neighbouring devices send to as many of part `to` on; `groups` neighbouring groups of n devices,
     * `stride` apart, have a collective. n 0: the task takes ns */
    int32_t n, to, stride, groups;
    const char *name;
} row_task;
typedef struct row_wait { int32_t task, on; } row_wait;
/* A device does what this part does (-1: nothing), but computes only the first `micro` of its micro-batches, which are called `first` and
 * so on. */
typedef struct row_copy { int32_t part, first, micro; } row_copy;

typedef struct row_tasks {
    rows *r;
    row_task *task;        /* those of one part in their order */
    row_wait *wait;
    size_t cap_task, cap_wait;
    int n, n_wait, parts;
    const int32_t *first;  /* by part: its first device; where hardware is described, transfers share its links. NULL: they take their ns */
    row_copy *copy;        /* by device */
    bool copied;           /* devices are not just the parts */
    const char *lane;      /* what communication is called */
    int repeat, each;      /* times of all tasks before `once`, and micro-batches of each */
    int once;              /* tasks from here on follow the last repetition, on all parts together; -1: there are none */
    bool oom;
} row_tasks;
/* No tasks; devices 0 .. parts - 1 are the parts. */
nnc_status row_tasks_make(rows *r, int parts, row_tasks *out) NNC_MUST;
void row_tasks_copy(row_tasks *t, int device, row_copy c);
/* Each returns the task; out of memory is noted in t. Tasks, and what they wait for, may be -1: none. */
int row_task_add(row_tasks *t, row_task x);
int row_task_compute(row_tasks *t, int part, int kind, int micro, int64_t ns);
int row_task_move(row_tasks *t, row_task x, int after);
void row_task_wait(row_tasks *t, int task, int on);
void row_tasks_meet(row_tasks *t); /* what follows is done once */
/* Runs the tasks by the simulator: fills the row's iteration, exposed and hidden times, adds to the devices' busy ones, and makes the
 * timeline, where a picture or a trace is asked for. */
nnc_status row_tasks_run(const row_tasks *t, nnc_partition_row *row) NNC_MUST;
nnc_status row_tasks_time(const row_tasks *t, int64_t *ns) NNC_MUST; /* only the iteration's time */

/* stages.c: adds the tasks of a pipeline, device d's to part d. */
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

/* sense.c: r->links with so many times the bandwidth. */
nnc_status row_scale_links(rows *r, double factor) NNC_MUST;

/* data.c */
nnc_links row_half_links(rows *r); /* r->half, after r->links */

#endif

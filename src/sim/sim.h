/* sim/sim.h -- discrete-event simulation of work on described hardware: tasks with dependencies on lanes (streams, copy engines, host
 * threads) and links. Time is integer picoseconds, ties go to the task that was added first, and the same tasks give the same bytes of
 * trace on every machine. docs/hardware.md describes the model.
 *
 * A task starts when its dependencies have finished, it is first in each of its lanes, its launch, if it has one, is done, and a copy
 * engine is free, if it needs one. While tasks run, ops share their device's multiprocessors and memory, and transfers their links,
 * max-min fairly; shares are computed again at each start and finish. Ops of a device are slower by its `overlap` while a collective
 * runs there. */
#ifndef NNC_SIM_H
#define NNC_SIM_H

#include "base/base.h"
#include "cluster/cluster.h"
#include "plan/plan.h"

/* ---- time of an op ------------------------------------------------------------------------------------------------------ */

typedef struct nnc_sim_op {
    const char *op_class;  /* docs/hardware.md; an unknown class is timed as "other" */
    nnc_dtype dtype;
    bool tf32;             /* f32 operands may be rounded to tf32 */
    bool raw;              /* a library's contraction whose weights it has not packed: those of a training step */
    int64_t flops, bytes;
    int64_t epilogue_bytes; /* beside `bytes`: read and written by a fused epilogue, at the whole copy bandwidth */
    int64_t blocks;        /* thread blocks, for the wave correction; 0: unknown */
    int blocks_per_sm;     /* that are resident at the same time; 0: 1 */
} nnc_sim_op;

/* Picoseconds of the op alone on a device of this kind, without launch: from measured points, or else from the roofline with its class's
 * efficiency. *how (may be NULL; static text): "table", "compute", "memory". */
int64_t nnc_sim_op_ps(const nnc_cluster_kind *k, const nnc_sim_op *op, const char **how);
/* Cores of the node that each of the op's threads takes while other devices compute: 1, or as the file says. */
double nnc_sim_op_contention(const nnc_cluster_kind *k, const nnc_sim_op *op);
/* Does the table of the class go by FLOPs? Others go by bytes. */
bool nnc_sim_class_contracts(const char *op_class);
/* The class of tables for a contraction of few FLOPs per byte, such as a product of one row, whose time is that of its bytes: "conv_thin",
 * with weights as the user has them "conv_raw_thin", and so on. NULL: it is none. It applies where a file has a row for it. */
const char *nnc_sim_thin_class(const nnc_sim_op *op);

/* ---- tasks -------------------------------------------------------------------------------------------------------------- */

typedef struct nnc_sim nnc_sim; /* one thread at a time */

typedef enum nnc_sim_kind { SIM_op, SIM_transfer, SIM_collective, SIM_event, SIM_launch } nnc_sim_kind; /* launch: internal */

/* Change of the memory in use on a device when the task starts (an allocation) and when it ends (a release: negative). */
typedef struct nnc_sim_memory { int32_t device; int64_t at_start, at_end; } nnc_sim_memory;

/* Everything is copied but `name`: static, or as long as the simulation. */
typedef struct nnc_sim_task {
    uint8_t kind;
    const char *name;
    int32_t device;      /* op: where; transfer: whose copy engine does it. -1: none */
    int n_lane;
    const int32_t *lane; /* occupied for the whole task; a collective has a lane of each of its devices */
    bool wakes;          /* starts late where its lanes have waited, as the cluster's wake_ns says; without other latency */
    bool launched;       /* `host` first spends launch_ps on it, in the order of its tasks */
    int32_t host;        /* lane */
    int64_t launch_ps;
    int n_dep;
    const int32_t *dep;
    int64_t latency_ps;  /* op: until it takes part in sharing, as a launch does */
    int64_t work_ps;     /* op: alone at full speed */
    double cores;        /* op: of those that CPU devices of its node share, that it takes; 0: it takes none */
    double compute, memory; /* op: shares, 0..1, of the device's multiprocessors and of its memory bandwidth that it uses alone. Both 0:
                             * all of the multiprocessors */
    int64_t bytes;       /* transfer, collective: payload */
    const nnc_transfer *transfer;
    double unit;         /* ... of how many bytes on its most loaded link sharing regards as one; 0: as that has. Less where the task
                          * represents several transfers over that link */
    int n_memory;
    const nnc_sim_memory *mem;
} nnc_sim_task;

/* c (borrowed) may be NULL: then there are n_device devices, and the links of nnc_sim_link. NULL: out of memory. */
nnc_sim *nnc_sim_create(const nnc_cluster *c, int n_device);
void nnc_sim_destroy(nnc_sim *s);
/* A lane. device -1: a host thread. Returns its number, or -1: out of memory. */
int nnc_sim_lane(nnc_sim *s, int device);
/* A link beyond those of the cluster; transfers name it in their uses. */
int nnc_sim_link(nnc_sim *s, int64_t bytes_s);
/* Number of transfers that the device's copy engines do at the same time; others wait in the order in which they become ready (default:
 * the cluster's; without a cluster: any). */
void nnc_sim_engines(nnc_sim *s, int device, int n);
/* Factor by which ops of the device are slower while a collective runs there (default: the cluster's). */
void nnc_sim_overlap(nnc_sim *s, int device, double factor);
/* Returns the task's number, larger than those before, or -1: out of memory. */
int nnc_sim_add(nnc_sim *s, const nnc_sim_task *t);
/* One more dependency, which may have been added later than the task. */
bool nnc_sim_after(nnc_sim *s, int task, int dep);
/* Transfers through the cluster, as nnc_sim_add of what nnc_cluster_p2p and nnc_cluster_collective return. With collapsed replicas one
 * task represents `n_group` collectives of `n` devices each, or n_group copies, that run at the same time: it has all of their uses and
 * the lanes of t. Returns -1 on failure, with a message in the sink. */
int nnc_sim_copies(nnc_sim *s, const nnc_sim_task *t, const int32_t *src, const int32_t *dst, int n_group, nnc_sink *sink);
int nnc_sim_collectives(
    nnc_sim *s, const nnc_sim_task *t, nnc_group_op kind, const int32_t *device, int n, int n_group, nnc_sink *sink);

/* Runs all tasks from time 0. NNC_E_MODEL: tasks wait for each other for ever; the message names a cycle. */
nnc_status nnc_sim_run(nnc_sim *s, nnc_sink *sink) NNC_MUST;

/* ---- results ------------------------------------------------------------------------------------------------------------ */

typedef struct nnc_sim_span { int64_t ready_ps, start_ps, end_ps; } nnc_sim_span; /* ready: dependencies and launch done */
nnc_sim_span nnc_sim_span_of(const nnc_sim *s, int task);
int64_t nnc_sim_end_ps(const nnc_sim *s);                 /* of the last task */
int64_t nnc_sim_lane_busy_ps(const nnc_sim *s, int lane); /* sum of its tasks' durations */
/* Time during which at least one op, transfer or collective with a lane of the device ran. */
int64_t nnc_sim_device_busy_ps(const nnc_sim *s, int device);
int64_t nnc_sim_peak_bytes(const nnc_sim *s, int device, int *task); /* of the ledger; *task (may be NULL): that reached it, -1: none */

/* ---- PyTorch's caching allocator ---------------------------------------------------------------------------------------- */

/* c10/cuda/CUDACachingAllocator.cpp's rules, to explain where a framework runs out of memory: sizes rounded to 512 bytes; segments of
 * 2 MiB for requests up to 1 MiB, of 20 MiB for less than 10 MiB, else of the size rounded up to 2 MiB; best fit within the stream's free
 * blocks; a large block is split when more than 1 MiB remains; on failure unused segments are released and the request is repeated. */
typedef struct nnc_caching nnc_caching;
typedef struct nnc_caching_stats {
    int64_t allocated, reserved, peak_allocated, peak_reserved;
    int segments, releases; /* releases: times that cached segments were given back to make room */
} nnc_caching_stats;
nnc_caching *nnc_caching_create(int64_t capacity); /* bytes that segments may take. NULL: out of memory */
void nnc_caching_destroy(nnc_caching *c);
int nnc_caching_alloc(nnc_caching *c, int64_t bytes, int stream); /* a handle; -1: out of device memory; -2: of host memory */
void nnc_caching_free(nnc_caching *c, int handle);
nnc_caching_stats nnc_caching_get(const nnc_caching *c);

/* ---- a plan ------------------------------------------------------------------------------------------------------------- */

typedef enum nnc_sim_policy { SIM_nnc, SIM_torch_caching } nnc_sim_policy;

typedef struct nnc_sim_plan_options {
    const int32_t *device;  /* of the cluster, by device of the plan; NULL: the same numbers */
    nnc_section first, last; /* both 0: main only */
    int64_t host_ns;        /* host time per command on a GPU; 0: none, commands are replayed as a captured graph */
    bool host_each;         /* a host thread for each device, as ranks have; else one for all */
    nnc_sim_policy policy;
    /* Picoseconds of a command that computes, its launch included, instead of the device's table; -1: by the table. NULL: all of them */
    int64_t (*command_ps)(void *ctx, const nnc_plan *p, const nnc_cmd *c);
    void *ctx;
} nnc_sim_plan_options;

typedef struct nnc_sim_device {
    int32_t device;         /* of the cluster */
    int64_t busy_ps, idle_ps;
    int64_t compute_ps;     /* commands that compute: sum of their times */
    int64_t bytes;          /* that the policy requests from the device, context and libraries included */
    int64_t tensor_bytes;   /* maximum of live tensors */
    int64_t capacity;
    bool fits;
    int32_t fails_at;       /* command whose allocation fails, -1: none */
} nnc_sim_device;

typedef struct nnc_sim_plan {
    nnc_sim *sim;           /* for the trace */
    int64_t total_ps;
    int32_t first;          /* command of span[0] */
    int n_cmd;
    nnc_sim_span *span;     /* by command; record and wait: when they were reached */
    int n_device;
    nnc_sim_device *by_device;
    nnc_arena arena;
} nnc_sim_plan;

/* Predicts a run of the plan on the cluster. NNC_E_USAGE: the plan has more devices than the cluster, or of other kinds. */
nnc_status nnc_sim_plan_run(
    nnc_sim_plan *out, const nnc_plan *p, const nnc_cluster *c, const nnc_sim_plan_options *o, nnc_sink *sink) NNC_MUST;
void nnc_sim_plan_deinit(nnc_sim_plan *s);
/* Picoseconds of a command that computes, alone on a device of kind k: the launch and the op that nnc_sim_plan_run makes of it. */
int64_t nnc_sim_command_ps(const nnc_plan *p, const nnc_cmd *c, const nnc_cluster_kind *k);
/* Share, above 0 and at most 1, of a device of this target that the command keeps busy alone. */
double nnc_sim_command_share(const nnc_plan *p, const nnc_cmd *c, const nnc_target *t);
/* The class of a convolution, of its kind, window, groups and channels alone. */
const char *nnc_sim_conv_class(const nnc_call *c);
/* That op. */
nnc_sim_op nnc_sim_command_op(const nnc_plan *p, const nnc_cmd *c);

#endif

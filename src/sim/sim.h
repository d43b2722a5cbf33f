/* sim/sim.h -- discrete-event simulation of work on described hardware: tasks with dependencies on lanes (streams, copy engines, host
 * threads) and links. Time is integer picoseconds, and ties go to the task that was added first. So the same tasks give the same bytes
 * of trace on every machine. docs/hardware.md describes the model.
 *
 * A task starts when its dependencies have finished and it is first in each of its lanes. Its launch, if any, must be done, and a copy
 * engine free if it needs one. Running ops share their device's multiprocessors and memory, and transfers their links, max-min fairly.
 * Shares are computed again at each start and finish. Ops are slower by their device's `overlap` while a collective runs there. */
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
    bool trains;           /* of a plan that trains: its weights change, and caches hold other layers' tensors */
    int64_t flops, bytes;
    int64_t epilogue_bytes; /* bytes beside `bytes` that a fused epilogue reads and writes, at the whole copy bandwidth */
    int64_t blocks;        /* thread blocks, for the wave correction; 0: unknown */
    int blocks_per_sm;     /* resident blocks of an SM; 0: 1 */
} nnc_sim_op;

/* Picoseconds of the op alone on a device of this kind, without launch. Computed from measured points, otherwise from the roofline with the
 * efficiency of its class. *how (may be NULL; static text): "table", "compute", "memory". */
int64_t nnc_sim_op_ps(const nnc_cluster_kind *k, const nnc_sim_op *op, const char **how);
/* Cores of the node that each of the op's threads takes while other devices compute: 1, or as the file says. */
double nnc_sim_op_contention(const nnc_cluster_kind *k, const nnc_sim_op *op);
/* Whether the table of the class is by FLOPs. Others are by bytes. */
bool nnc_sim_class_contracts(const char *op_class);
/* Share of an engine's efficiency in contractions that kernels of the class reach; 0: others'. */
double nnc_sim_engine_share(const char *op_class);
/* Name of the row that counts for the op: its class, then "_thin" for a contraction with few FLOPs per byte, whose bytes decide its time.
 * In a plan that trains "_step" follows. Where a hardware file has no such row, that of the name without its last suffix counts. */
enum { NNC_SIM_CLASS = 48 };
void nnc_sim_row_class(const nnc_sim_op *op, char name[NNC_SIM_CLASS]);

/* ---- tasks -------------------------------------------------------------------------------------------------------------- */

typedef struct nnc_sim nnc_sim; /* one thread at a time */

typedef enum nnc_sim_kind { SIM_op, SIM_transfer, SIM_collective, SIM_event, SIM_launch } nnc_sim_kind; /* launch: internal */

/* nnc_sim_add copies all but `name`, which must live as long as the simulation. */
typedef struct nnc_sim_task {
    uint8_t kind;
    const char *name;
    int32_t device;      /* op: device that runs it; transfer: device whose copy engine runs it. -1: none */
    int n_lane;
    const int32_t *lane; /* occupied for the whole task; a collective has a lane of each of its devices */
    bool wakes;          /* starts late if its lanes have waited (wake_ns of the cluster); it has no other latency */
    bool launched;       /* `host` first spends launch_ps on it; a host launches its tasks in order */
    int32_t host;        /* lane */
    int64_t launch_ps;
    int n_dep;
    const int32_t *dep;
    int64_t latency_ps;  /* op: time, such as a launch, before it takes part in sharing */
    int64_t work_ps;     /* op: time alone at full speed */
    double cores;        /* op: cores that it takes of those that CPU devices of its node share; 0: none */
    double compute, memory; /* op: shares, 0..1, of the device's multiprocessors and memory bandwidth that it uses alone. Both 0: all of
                             * the multiprocessors */
    int64_t bytes;       /* transfer, collective: payload */
    const nnc_transfer *transfer;
    double unit;         /* bytes on its most loaded link per payload byte of one transfer; 0: the link's weight. Less if the task
                          * represents several transfers over that link */
} nnc_sim_task;

/* Creates a simulation of c (borrowed). With c NULL it has n_device devices, and only links added by nnc_sim_link. NULL: out of memory. */
nnc_sim *nnc_sim_create(const nnc_cluster *c, int n_device);
void nnc_sim_destroy(nnc_sim *s);
/* Adds a lane. device -1: a host thread. Returns its number, or -1: out of memory. */
int nnc_sim_lane(nnc_sim *s, int device);
/* Adds a link to those of the cluster; transfers name it in their uses. */
int nnc_sim_link(nnc_sim *s, int64_t bytes_s);
/* Sets the number of transfers that the device's copy engines do at the same time. Others wait in the order in which they become ready.
 * Default: the cluster's; without a cluster unlimited. */
void nnc_sim_engines(nnc_sim *s, int device, int n);
/* Sets the factor by which the device's ops are slower while a collective runs there (default: the cluster's). */
void nnc_sim_overlap(nnc_sim *s, int device, double factor);
/* Adds a task. Returns its number, larger than all before, or -1: out of memory. */
int nnc_sim_add(nnc_sim *s, const nnc_sim_task *t);
/* Adds a dependency, which may have been added later than the task. */
bool nnc_sim_after(nnc_sim *s, int task, int dep);
/* Add a transfer through the cluster, as by nnc_cluster_p2p or nnc_cluster_collective. One task can represent n_group equal copies, or
 * n_group collectives of n devices each, of replicas that run at the same time. It has all of their uses and the lanes of t. Return -1 on
 * failure, with a message in the sink. */
int nnc_sim_copies(nnc_sim *s, const nnc_sim_task *t, const int32_t *src, const int32_t *dst, int n_group, nnc_sink *sink);
int nnc_sim_collectives(
    nnc_sim *s, const nnc_sim_task *t, nnc_group_op kind, const int32_t *device, int n, int n_group, nnc_sink *sink);

/* Runs all tasks from time 0. NNC_E_MODEL: tasks wait for each other for ever; the message names a cycle. */
nnc_status nnc_sim_run(nnc_sim *s, nnc_sink *sink) NNC_MUST;

/* ---- results ------------------------------------------------------------------------------------------------------------ */

typedef struct nnc_sim_span { int64_t start_ps, end_ps; } nnc_sim_span;
nnc_sim_span nnc_sim_span_of(const nnc_sim *s, int task);
int64_t nnc_sim_end_ps(const nnc_sim *s);                 /* end of the last task */
/* Time during which at least one op, transfer or collective with a lane of the device ran. */
int64_t nnc_sim_device_busy_ps(const nnc_sim *s, int device);

/* ---- PyTorch's caching allocator ---------------------------------------------------------------------------------------- */

/* The rules of c10/cuda/CUDACachingAllocator.cpp, to explain where a framework runs out of memory:
 *   sizes are rounded up to 512 bytes;
 *   segments have 2 MiB for requests up to 1 MiB, 20 MiB for less than 10 MiB, otherwise the size rounded up to 2 MiB;
 *   the best fit among the stream's free blocks is taken, and a large block is split if more than 1 MiB remains;
 *   on failure unused segments are released, and the request is repeated. */
typedef struct nnc_caching nnc_caching;
typedef struct nnc_caching_stats {
    int64_t allocated, reserved, peak_allocated, peak_reserved;
    int segments, releases; /* releases: how often cached segments were released to make room */
} nnc_caching_stats;
nnc_caching *nnc_caching_create(int64_t capacity); /* bytes that segments may take. NULL: out of memory */
void nnc_caching_destroy(nnc_caching *c);
int nnc_caching_alloc(nnc_caching *c, int64_t bytes, int stream); /* a handle; -1: out of device memory; -2: of host memory */
void nnc_caching_free(nnc_caching *c, int handle);
nnc_caching_stats nnc_caching_get(const nnc_caching *c);

/* ---- a plan ------------------------------------------------------------------------------------------------------------- */

typedef enum nnc_sim_policy { SIM_nnc, SIM_torch_caching } nnc_sim_policy;

typedef struct nnc_sim_plan_options {
    const int32_t *device;  /* by device of the plan: device of the cluster; NULL: the same numbers */
    nnc_section first, last; /* both 0: main only */
    int64_t host_ns;        /* host time per command on a GPU; 0: none, commands are replayed as a captured graph */
    bool host_each;         /* a host thread for each device, as with ranks; otherwise one for all */
    nnc_sim_policy policy;
    /* Overrides the device's table: picoseconds of a computing command with its launch; -1: use the table. NULL: no overrides */
    int64_t (*command_ps)(void *ctx, const nnc_plan *p, const nnc_cmd *c);
    void *ctx;
} nnc_sim_plan_options;

typedef struct nnc_sim_device {
    int32_t device;         /* of the cluster */
    int64_t busy_ps, idle_ps;
    int64_t bytes;          /* requested from the device by the policy, with context and libraries */
    int64_t tensor_bytes;   /* maximum of live tensors */
    int64_t capacity;
    bool fits;
    int32_t fails_at;       /* command whose allocation fails; -1: none */
} nnc_sim_device;

typedef struct nnc_sim_plan {
    nnc_sim *sim;           /* for the trace */
    int64_t total_ps;
    int32_t first;          /* command of span[0] */
    int n_cmd;
    nnc_sim_span *span;     /* by command; of record and wait the time when they were reached */
    int64_t *start_ps, *end_ps; /* the same */
    int n_device;
    nnc_sim_device *by_device;
    nnc_arena arena;
} nnc_sim_plan;

/* Predicts a run of the plan on the cluster. NNC_E_USAGE: the plan has more devices than the cluster, or of other kinds. */
nnc_status nnc_sim_plan_run(
    nnc_sim_plan *out, const nnc_plan *p, const nnc_cluster *c, const nnc_sim_plan_options *o, nnc_sink *sink) NNC_MUST;
void nnc_sim_plan_deinit(nnc_sim_plan *s);
/* Picoseconds of a computing command, alone on a device of kind k, with its launch. */
int64_t nnc_sim_command_ps(const nnc_plan *p, const nnc_cmd *c, const nnc_cluster_kind *k);
/* Share, above 0 and at most 1, of a device of this target that the command by itself keeps busy. */
double nnc_sim_command_share(const nnc_plan *p, const nnc_cmd *c, const nnc_target *t);
/* The op that nnc_sim_plan_run makes of a command. */
nnc_sim_op nnc_sim_command_op(const nnc_plan *p, const nnc_cmd *c);

#endif

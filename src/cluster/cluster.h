/* cluster/cluster.h -- described hardware: nodes of devices with their links (models/hardware/, docs/hardware.md), and the times of
 * transfers and collectives on them. The partitioner and the simulator read it; the hardware need not be present.
 *
 * Times are integer picoseconds. A transfer takes latency + bytes / rate and occupies links, which the simulator shares among concurrent
 * transfers. Alone it takes nnc_transfer_ps. A cluster does not change after it is loaded, so threads may share it. */
#ifndef NNC_CLUSTER_H
#define NNC_CLUSTER_H

#include "base/base.h"
#include "target/target.h"

#define NNC_HOST (-1) /* as a transfer's source or destination: the host memory of the other end's node */

/* ---- devices --------------------------------------------------------------------------------------------------------- */

typedef struct nnc_point { int64_t work, ns; } nnc_point;

/* Speed of a class of ops on one kind of device: time = ramp + max(flops / (peak * efficiency), bytes / (copy bandwidth * memory)).
 * Points are measured times by work (FLOPs of contractions, bytes of other classes), interpolated in log(work). They replace the first
 * term for contractions and the second one for other ops. The other term then counts only if the file gives its share. */
typedef struct nnc_op_speed {
    const char *op_class;  /* "conv3x3", "matmul", "ewise", ...: docs/hardware.md */
    nnc_dtype dtype;       /* of the operands */
    bool any_dtype;
    bool tf32;             /* f32 operands that may be rounded to tf32 */
    double efficiency;     /* share of the dtype's peak; above 1 where an algorithm saves FLOPs (Winograd) */
    double memory;         /* share of the copy bandwidth */
    int64_t ramp_ns;       /* time to fill and drain the device; equals e(work) = efficiency * work / (work + half) */
    double contention;     /* cores of the node that each of the op's threads takes while other devices compute; above 1 if they share
                            * caches and memory; 0: 1 */
    double spread;         /* of the measured times, (p90 - p10) / median; not used */
    int n_point;
    nnc_point *point;      /* by increasing work */
} nnc_op_speed;

/* Time of `work` by n points, interpolated in log(work). Below the first point half of its time remains; above the last one its rate
 * holds. */
double nnc_measured_ns(const nnc_point *p, int n, double work);

/* A group of equal devices. */
typedef struct nnc_cluster_kind {
    nnc_target target;      /* for code generation, cost rules and the simulator; owned by the kind */
    const char *source;     /* where the numbers come from */
    int count;              /* per node */
    int64_t flops[DT__COUNT]; /* dense peak FLOP/s by dtype of contractions; 0: no such units */
    int64_t command_ns;     /* cost of a command beside the op's own time, measured; -1: the target's launch_ns */
    int64_t host_ns;        /* GPUs: host time to submit a single command, without graph capture; 0: unknown */
    int64_t run_ns;         /* GPUs: time to submit a captured run and wait for it, beside its commands */
    int64_t context_bytes;  /* device memory that the driver's context takes before the first tensor */
    int64_t library_bytes;  /* ... and the libraries' handles; NCCL's buffers are those of a plan (nnc_group_buffers) */
    int copy_engines;       /* number of concurrent copies of a device, beside kernels */
    double overlap;         /* factor by which ops are slower while a collective runs on the device; 1: none */
    int n_op;
    nnc_op_speed *op;
} nnc_cluster_kind;

/* ---- links ------------------------------------------------------------------------------------------------------------ */

typedef enum nnc_link_kind {
    LINK_nvlink,     /* all NVLinks of a pair of GPUs, one direction */
    LINK_nvswitch,   /* a GPU's ports into or out of the switch */
    LINK_pcie,       /* a device's lanes, up or down */
    LINK_switch,     /* a PCIe switch's lanes, to or from its socket */
    LINK_socket,     /* a socket's links to the other sockets, out or in */
    LINK_memory,     /* a socket's memory, read + written */
    LINK_nic,        /* a NIC, out or in */
    LINK__COUNT
} nnc_link_kind;

typedef struct nnc_link {
    uint8_t kind;     /* nnc_link_kind */
    int32_t node;
    int16_t from, to; /* nvlink: devices of the node. Others: `from` is the index (device, switch, socket, NIC), `to` is 0 for out or up,
                       * 1 for in or down; memory: 0 */
    int64_t bytes_s;  /* rate that transfers reach, one direction */
} nnc_link;

typedef struct nnc_cluster {
    const char *name, *source, *file; /* owned by the arena */
    int n_node, per_node, n_device;   /* n_device = n_node * per_node; device i is in node i / per_node */
    int n_kind;
    nnc_cluster_kind *kind;
    uint8_t *kind_of;                 /* by device of a node */
    int n_link;
    nnc_link *link;
    struct nnc_fabric *fabric;        /* connections within a node, private */
    nnc_arena arena;
} nnc_cluster;

/* Reads a hardware file. NULL: rejected; messages state file, line and column. */
nnc_cluster *nnc_cluster_load(const char *file, nnc_sink *sink);
nnc_cluster *nnc_cluster_parse(const char *file, const char *text, size_t n, nnc_sink *sink); /* the same for a text; file: for messages */
void nnc_cluster_destroy(nnc_cluster *c);
NNC_OWNER(nnc_cluster, nnc_cluster_destroy)

static inline int nnc_cluster_node(const nnc_cluster *c, int device) { return device / c->per_node; }
static inline const nnc_cluster_kind *nnc_cluster_kind_of(const nnc_cluster *c, int device)
{
    return &c->kind[c->kind_of[device % c->per_node]];
}
static inline const nnc_target *nnc_cluster_target(const nnc_cluster *c, int device) { return &nnc_cluster_kind_of(c, device)->target; }
/* Resources that CPU devices of a node share. */
typedef struct nnc_cluster_host {
    double cores;      /* number of shared cores; if more of their threads compute, all are slower. 0: each device has its own */
    int64_t run_ns;    /* time of a run of a plan on several devices, beside its commands */
    /* A device that has waited for wake_after_ns or longer continues wake_ns late, in addition to transfers, and less after shorter waits.
     * After waits below wake_from_ns it continues at once, above it at least a quarter as late; 0: no such threshold */
    int64_t wake_ns;
    int64_t wake_after_ns;
    int64_t wake_from_ns;
    bool processes;    /* each device is a process; all wait for each other between the sections of a plan */
} nnc_cluster_host;
nnc_cluster_host nnc_cluster_host_of(const nnc_cluster *c);
/* Bytes that tensors may take: the memory that the driver reports, less context and libraries. */
int64_t nnc_cluster_usable_bytes(const nnc_cluster *c, int device);
/* Appends "node 3: nvlink 0 -> 4". */
void nnc_cluster_link_name(const nnc_cluster *c, int link, nnc_text *out);

/* ---- transfers ---------------------------------------------------------------------------------------------------------- */

typedef struct nnc_use {
    int32_t link;
    double weight; /* bytes on this link for each byte of the payload */
} nnc_use;

typedef struct nnc_transfer {
    int64_t latency_ps;
    double bytes_s;      /* payload bytes per second when no other transfer shares its links */
    const char *how;     /* static text: "nvlink", "host-staged", "ring", "tree", ... */
    int n_use;
    nnc_use *use;        /* in the caller's arena, each link once */
} nnc_transfer;

/* Finds how `src` sends to `dst`; either, but not both, may be NNC_HOST. */
nnc_status nnc_cluster_p2p(const nnc_cluster *c, int src, int dst, nnc_transfer *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

typedef enum nnc_group_op { GROUP_allreduce, GROUP_reduce_scatter, GROUP_allgather, GROUP_broadcast, GROUP__COUNT } nnc_group_op;
extern const char *const nnc_group_op_names[GROUP__COUNT];

/* Finds the fastest collective of n different devices, among ring, tree, in-switch reduction and hierarchical. `bytes` is the size of the
 * tensor that each rank has before (allreduce, reduce_scatter) or after it (allgather, broadcast). n 1: takes no time. */
nnc_status nnc_cluster_collective(const nnc_cluster *c, nnc_group_op kind, const int32_t *device, int n, int64_t bytes,
    nnc_transfer *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

int64_t nnc_transfer_ps(const nnc_transfer *t, int64_t bytes);
/* Only the times. INT64_MAX: out of memory, or not connected. */
int64_t nnc_cluster_p2p_ps(const nnc_cluster *c, int src, int dst, int64_t bytes);
int64_t nnc_cluster_collective_ps(const nnc_cluster *c, nnc_group_op kind, const int32_t *device, int n, int64_t bytes);
/* Number of edge-disjoint directed NVLink rings through these devices of a node; 0: none. *relayed: some hops pass through another of the
 * devices. */
int nnc_cluster_rings(const nnc_cluster *c, const int32_t *device, int n, bool *relayed);

/* ---- buffers ------------------------------------------------------------------------------------------------------------ */

/* Estimated bytes of NCCL's buffers. The first: on each GPU of a group whose collectives it computes. The second: on one end of a pair
 * that copies in one direction. The devices are c's, or with c NULL GPUs `t` of one node. allreduce: some of the collectives are. */
int64_t nnc_group_buffers(const nnc_cluster *c, const nnc_target *t, const int32_t *device, int n, bool allreduce);
int64_t nnc_peer_buffers(const nnc_cluster *c, const nnc_target *t, int32_t from, int32_t to, bool receives);

#endif

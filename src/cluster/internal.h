/* cluster/internal.h -- shared by the files of cluster/ only. */
#ifndef NNC_CLUSTER_INTERNAL_H
#define NNC_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

enum {
    CL_MAX_NODE = 64,  /* devices of a node */
    CL_MAX_MESH = 16,  /* devices of a node with NVLinks to each other */
    CL_MAX_RINGS = 36, /* rings, and links of a pair */
};

typedef enum p2p_reach { P2P_none, P2P_switch, P2P_socket, P2P_all } p2p_reach; /* pairs that copy through PCIe without host memory */

typedef struct measured {
    int devices;       /* of one node */
    nnc_group_op kind;
    int n;
    nnc_point *point;  /* bytes, ns */
} measured;

/* Connections of the devices of one node, as the file says. Link numbers are relative to the node's first; -1: none. */
typedef struct nnc_fabric {
    int n; /* devices */
    bool has_nvlink, has_nvswitch, has_pcie, has_nics;
    int64_t nvlink_bytes_s, nvlink_latency_ns;
    double relay_share; /* share of a link's rate for a ring that passes through a GPU without stopping there; 0: not possible */
    uint8_t *pair;      /* n x n: NVLinks between two devices */
    int32_t *pair_link; /* n x n, directed */
    int64_t nvswitch_bytes_s, nvswitch_latency_ns; /* of one GPU, one direction */
    int64_t reduce_bytes_s, reduce_latency_ns;     /* in-switch reductions: bus bandwidth of an allreduce; 0: none */
    int32_t *port_out, *port_in;
    int64_t pcie_bytes_s, uplink_bytes_s, pcie_latency_ns, staged_latency_ns;
    int64_t pageable_bytes_s; /* rate of pageable host memory; only for reports */
    p2p_reach p2p;
    double staged_share; /* share of PCIe's rate that copies through host memory reach */
    int n_switch;
    int *switch_of;      /* by device, -1: none (a CPU) */
    int *switch_socket;
    int32_t *up, *down, *switch_up, *switch_down;
    int n_socket;
    nnc_cluster_host host;
    int64_t socket_bytes_s, memory_bytes_s, host_copy_bytes_s, socket_latency_ns;
    int *socket_of;      /* by device */
    int32_t *socket_out, *socket_in, *memory;
    int n_nic;
    int64_t nic_bytes_s, nic_latency_ns;
    int *nic_of;         /* by device */
    int32_t *nic_out, *nic_in;
    int n_size, n_nodes; /* efficiency of rings through NICs: rows by size, columns by number of nodes */
    int64_t *size;
    int *nodes;
    double *share;
    int64_t base_ns, hop_ns, net_hop_ns, tree_hop_ns, local_bytes_s;
    int n_measured;
    measured *measured;
    int n_link;
} nnc_fabric;

/* read.c */
nnc_status cluster_read(nnc_cluster *c, const nnc_json *json, nnc_sink *sink);

/* An NVLink ring: devices in order. via[i] is the device that the hop from at[i] passes through; -1: none. */
typedef struct ring { int n; int8_t at[CL_MAX_MESH], via[CL_MAX_MESH]; } ring;
/* Finds edge-disjoint directed rings through n devices (numbers within the node) of a mesh. Returns their number, at most CL_MAX_RINGS. */
int cluster_rings(const nnc_fabric *f, const int *device, int n, ring *out, bool *relayed);

/* Accumulates uses of links. A copy uses few links, kept in a list. A collective has an array with a number for each link (usage_init). */
enum { CL_FEW = 24 };
typedef struct usage {
    const nnc_cluster *c;
    double *weight;   /* by link; NULL: few_link is used */
    int32_t *touched; /* links with a weight, n of them; NULL: few_link is used */
    int n;
    int32_t few_link[CL_FEW];
    double few_weight[CL_FEW];
} usage;
static inline int usage_link(const usage *u, int i) { return u->weight ? u->touched[i] : u->few_link[i]; }
static inline double usage_weight(const usage *u, int i)
{
    return u->weight ? u->weight[u->touched[i]] : u->few_weight[i];
}
bool usage_init(usage *u, const nnc_cluster *c);
void usage_deinit(usage *u);
void usage_clear(usage *u);
void usage_add(usage *u, int link, double weight);
/* Payload bytes per second that the links allow. */
double usage_rate(const usage *u);

/* A copy without its links: its latency, rate, share of the links' rate, and how it goes. */
typedef struct hop { int64_t latency_ps; double bytes_s; double share; const char *how; } hop;
/* Finds a copy from src to dst, and adds its links with `weight`. */
void p2p_path(const nnc_cluster *c, int src, int dst, double weight, usage *u, hop *out);
/* Stores what u holds in t. */
bool usage_store(const usage *u, nnc_transfer *t, nnc_arena *a);

#endif

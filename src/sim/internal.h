/* sim/internal.h -- shared by the files of sim/ only. */
#ifndef NNC_SIM_INTERNAL_H
#define NNC_SIM_INTERNAL_H

#include "sim/sim.h"

typedef enum sim_state { ST_waiting, ST_latency, ST_active, ST_done } sim_state;

/* A resource that running tasks share: a link, or a device's multiprocessors or memory bandwidth. */
typedef struct sim_resource {
    double capacity; /* work per picosecond: bytes on a link, 1 on a device */
    int32_t *active; /* running tasks */
    int n_active, cap_active;
    double frozen;   /* during sharing: capacity taken by tasks whose rate is fixed; see share.c */
    uint32_t mark;
} sim_resource;

typedef struct sim_use { int32_t resource; double weight; } sim_use;

typedef struct sim_task {
    uint8_t kind, state;
    const char *name;
    int32_t device;
    int n_lane, n_use, n_next, cap_next;
    int32_t *lane;
    sim_use *use;
    int32_t *next;      /* tasks that depend on it */
    int n_wait;         /* unfinished dependencies, and lanes in which it is not first */
    int64_t latency_ps;
    double work, left;  /* picoseconds of an op at full speed, bytes of a transfer */
    double most;        /* rate when alone: work per picosecond */
    double unit;        /* capacity of its most loaded resource that a unit of rate takes, for one of the transfers that it represents */
    double rate;
    int64_t since_ps;   /* time at which `left` was computed */
    uint32_t version;   /* of its valid event; others in the queue are outdated */
    uint32_t mark;
    bool fixed;         /* during sharing: its rate is fixed */
    bool wakes;
    bool has_engine;    /* it got a copy engine while it waited */
    int32_t queued;     /* next transfer in the queue for a copy engine; -1: none */
    nnc_sim_span span;
} sim_task;

typedef struct sim_lane {
    int32_t device;
    int32_t *task;
    int n, cap, head;
    int64_t free_ps;    /* time since which its head may start */
} sim_lane;

typedef struct sim_event { int64_t ps; int32_t task; uint32_t version; } sim_event;

typedef struct sim_device {
    int collectives;    /* number of collectives that run on it */
    int running;        /* number of running tasks with a lane of it */
    int64_t since_ps, busy_ps;
    double overlap;
    int engines;        /* free copy engines */
    int32_t waiting, last_waiting; /* queue of transfers for a copy engine, linked by sim_task.queued; -1: empty */
} sim_device;

struct nnc_sim {
    const nnc_cluster *c;
    nnc_cluster_host host;
    nnc_arena arena;
    int n_task;
    size_t cap_task, cap_lane, cap_resource;
    sim_task *task;
    int n_lane;
    sim_lane *lane;
    int n_link, n_device, n_resource; /* resources: links of the cluster, two per device, cores of each node, added links */
    sim_resource *resource;
    sim_device *device;
    sim_event *heap;
    size_t n_heap, cap_heap;
    int32_t *ready, *dirty, *flow, *found; /* tasks to start; resources to share again; tasks and resources of a component */
    int n_ready, n_dirty;
    uint32_t mark;
    int64_t now_ps;
    int n_done;
    bool oom;
};

/* share.c: computes the rates of all tasks connected with dirty resources, and queues events for their new ends. */
void sim_share(nnc_sim *s);
/* run.c */
void sim_push(nnc_sim *s, int64_t ps, int32_t task);
static inline int sim_cores_of(const nnc_sim *s, int device)
{
    return s->n_link + 2 * s->n_device + (s->c ? nnc_cluster_node(s->c, device) : 0);
}
static inline int sim_compute_of(const nnc_sim *s, int device) { return s->n_link + 2 * device; }

#endif

/* strategy/links.c -- communication times of a hardware file's devices behind the partitioner's functions (nnc_links). */
#include "session/session.h"
#include "strategy/row.h"
#include <math.h>

static int64_t ns_of(int64_t ps)
{
    return ps == INT64_MAX ? ps : nnc_ceildiv(ps, 1000);
}

/* ---- devices ------------------------------------------------------------------------------------------------------ */

/* A copy's time is its latency and bytes over a rate, which searching the way again for each number of bytes would not change. */
typedef struct pair {
    int src, dst; /* src == dst: not filled */
    nnc_transfer way;
} pair;

enum { PAIRS = 1024 };
struct described_links {
    const nnc_cluster *c;
    pair known[PAIRS];
};

static int64_t device_p2p(const void *ctx, int src, int dst, int64_t bytes)
{
    struct described_links *l = (struct described_links *)ctx;
    pair *p = &l->known[((uint32_t)src * 31 + (uint32_t)dst) % PAIRS];
    if (p->src != src || p->dst != dst || src == dst) {
        NNC_LOCAL(nnc_arena) a = {0};
        *p = (pair){.src = src, .dst = dst};
        if (nnc_cluster_p2p(l->c, src, dst, &p->way, &a, NULL)) {
            *p = (pair){0};
            return INT64_MAX;
        }
        p->way.use = NULL; /* in the arena */
        p->way.n_use = 0;
    }
    return ns_of(nnc_transfer_ps(&p->way, bytes));
}

static int64_t device_allreduce(const void *ctx, const int *device, int n, int64_t bytes)
{
    const struct described_links *l = ctx;
    return ns_of(nnc_cluster_collective_ps(l->c, GROUP_allreduce, device, n, bytes));
}

/* An allgather takes as long as a reduce-scatter. */
static int64_t device_half(const void *ctx, const int *device, int n, int64_t bytes)
{
    const struct described_links *l = ctx;
    return ns_of(nnc_cluster_collective_ps(l->c, GROUP_reduce_scatter, device, n, bytes));
}

nnc_links row_described_half(const rows *r)
{
    return (nnc_links){NULL, device_half, r->links.ctx};
}

nnc_status row_described_links(rows *r, const nnc_cluster *c)
{
    struct described_links *l = ARENA_NEW(r->a, struct described_links, 1);
    NNC_NEED(l, r->sink);
    l->c = c;
    r->links = (nnc_links){device_p2p, device_allreduce, l};
    return NNC_OK;
}

/* ---- CPUs ----------------------------------------------------------------------------------------------------------- */

static bool is_cpu(const rows *r)
{
    return r->t->cluster && r->t->target->kind == NNC_T_cpu;
}

int64_t row_run_ns(const rows *r)
{
    return is_cpu(r) ? nnc_cluster_host_of(r->t->cluster).run_ns : 0;
}

/* As the simulator has it (sim/run.c). */
int64_t row_wake_ns(const rows *r, int64_t waited_ns)
{
    if (!is_cpu(r))
        return 0;
    const nnc_cluster_host h = nnc_cluster_host_of(r->t->cluster);
    const double least = h.wake_from_ns ? 0.25 : 0, after = (double)h.wake_after_ns;
    const double part =
        after > 0 && (double)waited_ns < after ? fmax((double)waited_ns / after, least) : 1;
    return waited_ns > 0 && waited_ns >= h.wake_from_ns ? (int64_t)(part * (double)h.wake_ns) : 0;
}

int64_t row_cores_ns(const rows *r, int64_t busy_ns)
{
    const double cores = is_cpu(r) ? nnc_cluster_host_of(r->t->cluster).cores : 0;
    return cores > 0 ? (int64_t)((double)busy_ns * r->t->target->threads / cores) : 0;
}

/* strategy/links.c -- overheads of described CPU devices, beside their commands. */
#include "strategy/row.h"
#include <math.h>

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

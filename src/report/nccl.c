/* report/nccl.c -- estimate of NCCL's buffers (cluster/buffers.c), which a plan takes beside its arena and weights. They are those of
 * communicators, one for each set of participants (runtime/nccl.c), and of copies between ranks. */
#include "report/report.h"
#include "session/session.h"

typedef struct group {
    uint64_t devices; /* a set: NNC_MAX_DEVICES is 64 */
    bool sums; /* some of its collectives are allreduces */
} group;

static void keep(group *known, int *n, group g)
{
    int k = 0;
    while (k < *n && known[k].devices != g.devices)
        k++;
    known[k] = (group){g.devices, g.sums || (k < *n && known[k].sums)};
    *n += k == *n;
}

/* The groups with device d whose collectives NCCL computes: of equal parts. Returns their number. */
static int find_groups(const nnc_plan *p, int d, group *known)
{
    uint64_t devices = 0;
    int64_t bytes = 0;
    bool even = false;
    int n = 0, here = 0;
    for (int32_t i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_collective)
            continue;
        const nnc_collective *m = &p->collective[c->item];
        const int64_t own = p->tensor[c->arg[0]].bytes;
        if (!here++) {
            devices = 0;
            bytes = own;
            even = m->outer == 1 && m->n > 1;
        }
        devices |= UINT64_C(1) << c->device;
        even = even && own == bytes;
        if (here < m->n)
            continue;
        here = 0;
        if (even && devices >> d & 1)
            keep(known, &n, (group){devices, m->kind == COLL_allreduce});
    }
    return n;
}

static int64_t group_bytes(const nnc_env *e, const nnc_plan *p, int d)
{
    const nnc_target *t = nnc_target_on(e->target, e->n_target, d);
    NNC_FREED group *known = nnc_calloc((size_t)p->n_collective + 1, sizeof *known);
    const int n = known ? find_groups(p, d, known) : 0;
    int64_t bytes = 0;
    for (int k = 0; k < n; k++) {
        int32_t device[NNC_MAX_DEVICES];
        int count = 0;
        for (int i = 0; i < p->n_device; i++)
            if (known[k].devices >> i & 1)
                device[count++] = i;
        bytes += nnc_group_buffers(e->cluster, t, device, count, known[k].sums);
    }
    return bytes;
}

/* Of copies between ranks: those in one process need none. */
static int64_t peer_bytes(const nnc_env *e, const nnc_plan *p, int d)
{
    const nnc_target *t = nnc_target_on(e->target, e->n_target, d);
    uint64_t known[2] = {0};
    int64_t bytes = 0;
    for (int32_t i = nnc_plan_first(p, SEC_main); e->ranks.world > 1 && i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_copy)
            continue;
        const int from = p->tensor[c->arg[0]].device, to = p->tensor[c->arg[1]].device;
        const uint64_t other = UINT64_C(1) << (from == d ? to : from);
        if ((from != d && to != d) || known[to == d] & other ||
            nnc_rank_of(from, p->n_device, e->ranks.world) ==
                nnc_rank_of(to, p->n_device, e->ranks.world))
            continue;
        known[to == d] |= other;
        bytes += nnc_peer_buffers(e->cluster, t, from, to, to == d);
    }
    return bytes;
}

int64_t nnc_nccl_bytes(const nnc_env *e, const nnc_plan *p, int d)
{
    bool takes = nnc_target_on(e->target, e->n_target, d)->nccl && e->comm_by != NNC_COMM_staged;
    for (int i = 0; i < p->n_device; i++) /* with CPUs all is staged */
        takes = takes && nnc_plan_on_gpu(&p->device[i]);
    return takes ? group_bytes(e, p, d) + peer_bytes(e, p, d) : 0;
}

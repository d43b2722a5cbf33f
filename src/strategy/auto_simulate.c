/* strategy/auto_simulate.c -- a combination of data, tensor and pipeline parallelism by the event simulator: transfers share links,
 * collectives slow computing down and wait for each other. All replicas do the same, so that one is simulated: its transfers and
 * collectives stand for those of the replicas beside it in the same nodes. Collectives of tensor groups are part of the passes. */
#include "session/session.h"
#include "strategy/auto.h"
#include "sim/sim.h"
#include <string.h>

enum { MOST_TASKS = 400000 };

typedef struct simulated {
    rows *r;
    const nnc_search_problem *p;
    const nnc_search_costs *costs;
    const nnc_search_result *x;
    const nnc_combination *c;
    nnc_sim *s;
    nnc_pipeline pipe;
    int *lane, *net; /* by stage: of its device */
    int *first, *last; /* by kind, virtual stage and micro-batch: tasks of a pass */
    int *reduced; /* by stage: its last collective; -1: none */
    int *final; /* by stage: its last pass */
    int32_t *device; /* of groups */
} simulated;

static int *task_at(const simulated *m, int *of, int kind, int stage, int micro)
{
    const int stages = m->c->pipeline * m->c->chunks;
    return &of[((size_t)kind * (size_t)stages + (size_t)stage) * (size_t)m->c->micro +
               (size_t)micro];
}

static int op(const simulated *m, int d, const char *name, int64_t ns)
{
    return nnc_sim_add(m->s, &(nnc_sim_task){.kind = SIM_op,
                                 .name = name,
                                 .device = nnc_combination_device(m->c, 0, d, 0),
                                 .n_lane = 1,
                                 .lane = &m->lane[d],
                                 .work_ps = nnc_mul_sat(ns, 1000)});
}

/* How many of n neighbours from `device` on are in its node. */
static int in_node(const simulated *m, int device, int n)
{
    const int node = m->r->t->cluster->per_node, rest = node - device % node;
    return n < rest ? n : rest;
}

/* A collective of the replicas of stage d, of each rank of the tensor group at the same time. */
static int collective(simulated *m, int d, nnc_group_op kind, int64_t bytes, int after)
{
    const nnc_combination *c = m->c;
    const int first = nnc_combination_device(c, 0, d, 0), groups = in_node(m, first, c->tensor);
    if (c->data < 2 || bytes <= 0)
        return after;
    for (int g = 0; g < groups; g++)
        for (int k = 0; k < c->data; k++)
            m->device[g * c->data + k] = nnc_combination_device(c, k, d, g);
    const nnc_sim_task t = {.kind = SIM_collective,
        .name = nnc_group_op_names[kind],
        .device = first,
        .n_lane = 1,
        .lane = &m->net[d],
        .n_dep = 1,
        .dep = &after,
        .bytes = bytes};
    return nnc_sim_collectives(m->s, &t, kind, m->device, c->data, groups, m->r->sink);
}

static int send(simulated *m, int from, int to, int64_t bytes, int after)
{
    const nnc_combination *c = m->c;
    const int src = nnc_combination_device(c, 0, from, 0),
              dst = nnc_combination_device(c, 0, to, 0),
              n = in_node(m, src, c->data_first ? c->tensor * c->data : c->tensor);
    int32_t *a = m->device, *b = m->device + n;
    for (int i = 0; i < n; i++) {
        a[i] = src + i;
        b[i] = dst + i;
    }
    const nnc_sim_task t = {.kind = SIM_transfer,
        .name = "send",
        .device = src,
        .n_dep = 1,
        .dep = &after,
        .bytes = bytes};
    return nnc_sim_copies(m->s, &t, a, b, n, m->r->sink);
}

/* The last pass that computes gradients, layer by layer, with a collective for each bucket that is full. */
static int reducing_pass(simulated *m, int d, int stage, int kind, int *first)
{
    const int *cut = m->x->cut;
    const nnc_search_costs *of = m->costs;
    const nnc_group_op how = m->c->zero ? GROUP_reduce_scatter : GROUP_allreduce;
    int64_t open = 0, left = m->x->pass[kind][stage], all = 0;
    int task = -1;
    if (kind == TASK_backward)
        left = nnc_add_sat(left, m->x->pass[TASK_weight][stage]);
    for (int i = cut[stage]; i < cut[stage + 1]; i++)
        all = nnc_add_sat(all, of->backward[i] + of->weight[i] + 1);
    const int64_t whole = left;
    for (int i = cut[stage + 1] - 1; i >= cut[stage]; i--) {
        const double share = (double)(of->backward[i] + of->weight[i] + 1) / (double)all;
        const int64_t ns =
            i == cut[stage] ? left : nnc_min64(left, (int64_t)(share * (double)whole));
        left -= ns;
        task = op(m, d, "backward", ns);
        if (task < 0)
            return -1;
        *first = *first < 0 ? task : *first;
        open = nnc_add_sat(open, of->gradients[i]);
        if (open > 0 && (open >= m->p->bucket_bytes || i == cut[stage])) {
            m->reduced[d] = collective(m, d, how, open, task);
            if (m->reduced[d] < 0)
                return -1;
            open = 0;
        }
    }
    return task;
}

static bool reduces(const simulated *m, const nnc_task *t)
{
    const nnc_task_kind kind = m->pipe.split ? TASK_weight : TASK_backward;
    bool last = true; /* of this chunk's passes in the device's list */
    if (m->c->data < 2 || t->kind != kind || m->p->forward)
        return false;
    const int d = t->stage % m->c->pipeline;
    for (const nnc_task *u = t + 1; u < m->pipe.task[d] + m->pipe.n_task; u++)
        last = last && !(u->kind == kind && u->stage == t->stage);
    return last || m->c->zero == 2;
}

/* All tasks of the devices in their lists' order; dependencies follow. */
static bool add_passes(simulated *m)
{
    static const char *const names[] = {"forward", "backward", "weight"};
    for (int d = 0; d < m->c->pipeline; d++)
        for (int i = 0; i < m->pipe.n_task; i++) {
            const nnc_task *t = &m->pipe.task[d][i];
            int64_t ns = m->x->pass[t->kind][t->stage];
            int first = -1, last;
            if (t->kind == TASK_backward && !m->pipe.split)
                ns = nnc_add_sat(ns, m->x->pass[TASK_weight][t->stage]);
            if (reduces(m, t))
                last = reducing_pass(m, d, t->stage, t->kind, &first);
            else
                first = last = op(m, d, names[t->kind], ns);
            if (last < 0)
                return false;
            *task_at(m, m->first, t->kind, t->stage, t->micro) = first;
            *task_at(m, m->last, t->kind, t->stage, t->micro) = last;
            m->final[d] = last;
        }
    return true;
}

static bool add_sends(simulated *m)
{
    const int p = m->c->pipeline, stages = p * m->c->chunks;
    for (int s = 0; s + 1 < stages; s++) {
        const int64_t bytes = m->costs->boundary[m->x->cut[s + 1]];
        for (int i = 0; i < m->c->micro; i++)
            for (int kind = TASK_forward; kind <= TASK_backward; kind++) {
                const int from = kind == TASK_forward ? s : s + 1,
                          to = kind == TASK_forward ? s + 1 : s;
                if (kind == TASK_backward && m->p->forward)
                    continue;
                const int after = *task_at(m, m->last, kind, from, i),
                          next = *task_at(m, m->first, kind, to, i),
                          sent = send(m, from % p, to % p, bytes, after);
                if (sent < 0 || !nnc_sim_after(m->s, next, sent))
                    return false;
            }
    }
    return true;
}

/* Updates, each after its device's passes and collectives; ZeRO gathers the weights then. */
static bool add_updates(simulated *m)
{
    const nnc_combination *c = m->c;
    for (int d = 0; d < c->pipeline && !m->p->forward; d++) {
        int64_t ns = 0, trained = 0;
        for (int k = 0; k < c->chunks; k++)
            for (int i = m->x->cut[k * c->pipeline + d]; i < m->x->cut[k * c->pipeline + d + 1];
                 i++) {
                ns = nnc_add_sat(ns, m->costs->optimizer[i]);
                trained =
                    nnc_add_sat(trained, nnc_min64(m->costs->weights[i], m->costs->gradients[i]));
            }
        const int task = op(m, d, "update", c->zero ? nnc_ceildiv(ns, c->data) : ns);
        if (task < 0 || (m->reduced[d] >= 0 && !nnc_sim_after(m->s, task, m->reduced[d])))
            return false;
        if (c->zero && collective(m, d, GROUP_allgather, trained, task) < 0)
            return false;
    }
    return true;
}

static nnc_status prepare(simulated *m)
{
    const nnc_combination *c = m->c;
    const size_t n = (size_t)c->pipeline, passes = 3 * n * (size_t)c->chunks * (size_t)c->micro;
    m->lane = ARENA_NEW(m->r->a, int, n);
    m->net = ARENA_NEW(m->r->a, int, n);
    m->reduced = ARENA_NEW(m->r->a, int, n);
    m->final = ARENA_NEW(m->r->a, int, n);
    m->first = ARENA_NEW(m->r->a, int, passes);
    m->last = ARENA_NEW(m->r->a, int, passes);
    m->device = ARENA_NEW(m->r->a, int32_t, 2 * m->r->n + 2);
    NNC_NEED(m->lane && m->net && m->reduced && m->final && m->first && m->last && m->device,
        m->r->sink);
    NNC_NEED(m->s = nnc_sim_create(m->r->t->cluster, 0), m->r->sink);
    for (int d = 0; d < c->pipeline; d++) {
        const int device = nnc_combination_device(c, 0, d, 0);
        m->reduced[d] = -1;
        m->lane[d] = nnc_sim_lane(m->s, device);
        m->net[d] = nnc_sim_lane(m->s, device);
        NNC_NEED(m->lane[d] >= 0 && m->net[d] >= 0, m->r->sink);
        nnc_sim_overlap(m->s, device, (double)m->p->slowdown / 1000);
    }
    return nnc_pipeline_make(
        c->schedule, c->pipeline, c->micro, c->chunks, m->r->a, &m->pipe, m->r->sink);
}

nnc_status auto_simulate(
    rows *r, const nnc_search_problem *p, const nnc_search_result *x, int64_t *ns)
{
    simulated m = {.r = r, .p = p, .x = x, .c = &x->c};
    const nnc_combination *c = &x->c;
    *ns = 0;
    for (int i = 0; i < p->n_costs; i++)
        if (p->costs[i].tensor == c->tensor && p->costs[i].size == c->size)
            m.costs = &p->costs[i];
    if (c->zero >= 3 || (int64_t)c->pipeline * c->chunks * c->micro * 4 > MOST_TASKS)
        return NNC_OK;
    nnc_status st = prepare(&m);
    if (!st && (!add_passes(&m) || !add_sends(&m) || !add_updates(&m)))
        st = nnc_sink_cause(r->sink, NNC_OK) ? nnc_sink_cause(r->sink, NNC_OK) : nnc_nomem(r->sink);
    if (!st)
        st = nnc_sim_run(m.s, r->sink);
    if (!st)
        *ns = nnc_ceildiv(nnc_sim_end_ps(m.s), 1000);
    nnc_sim_destroy(m.s);
    return st;
}

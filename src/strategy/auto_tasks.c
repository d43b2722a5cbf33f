/* strategy/auto_tasks.c -- the tasks of a combination of data, tensor and pipeline parallelism. All replicas do the same, so one of them
 * is listed. On described hardware its transfers and collectives also stand for those of its neighbours, with which they share links.
 * Collectives of tensor groups are part of the passes. */
#include "strategy/auto.h"
#include "picture/picture.h"

enum { MOST_TASKS = 400000, FEW_TASKS = 8192 };

typedef struct combined {
    rows *r;
    const nnc_search_problem *p;
    const nnc_search_costs *costs;
    const nnc_search_result *x;
    const nnc_combination *c;
    row_tasks t;
    nnc_pipeline pipe;
    bool serial; /* gradients are reduced after the passes */
    int *reduced; /* by stage: its last collective; -1: none */
} combined;

/* How many of n neighbours from `device` on are in its node. */
static int in_node(const rows *r, int device, int n)
{
    const nnc_cluster *c = r->t->cluster;
    const int rest = c ? c->per_node - device % c->per_node : n;
    return n < rest ? n : rest;
}

/* A collective of the replicas of stage d, of each rank of the tensor group at the same time. */
static int collective(combined *m, int d, nnc_search_collective kind, int64_t bytes, int after)
{
    static const char *const name[] = {
        "sum a bucket of gradients", "sum a bucket of gradients", "gather weights"};
    const nnc_combination *c = m->c;
    const nnc_search_links *l = &m->p->links;
    const int first = nnc_combination_device(c, 0, d, 0);
    if (c->data < 2 || bytes <= 0)
        return after;
    row_task x = {.collective = true,
        .op = (uint8_t)auto_group_op[kind],
        .holds = m->serial,
        .part = d,
        .micro = -1,
        .n = c->data,
        .stride = nnc_combination_device(c, 1, d, 0) - first,
        .groups = in_node(m->r, first, c->tensor),
        .bytes = bytes,
        .name = name[kind]};
    x.ns = l->collective_ns(l->ctx, kind, first, x.stride, x.n, c->tensor, bytes);
    return row_task_move(&m->t, x, after);
}

static nnc_search_collective reduction_of(const combined *m)
{
    return m->c->zero ? SEARCH_reduce_scatter : SEARCH_allreduce;
}

/* Collectives of the gradients of stage d, or of the weights that they update, after a task. There is one; where plans have small ones
 * apart, one of each block's large gradients and one of all small ones. Returns the last one. */
static int exchange(combined *m, int d, nnc_search_collective kind, int after)
{
    const nnc_combination *c = m->c;
    const nnc_search_costs *of = m->costs;
    int64_t together = 0;
    for (int s = d; s < c->pipeline * c->chunks; s += c->pipeline)
        for (int b = m->x->cut[s]; b < m->x->cut[s + 1]; b++) {
            const int64_t all = nnc_exchanged_bytes(of, kind, b),
                          small = of->small ? nnc_min64(of->small[b], all) : all;
            together = nnc_add_sat(together, small);
            after = collective(m, d, kind, all - small, after);
        }
    return collective(m, d, kind, together, after);
}

/* Does the task compute gradients that are reduced: is it the last such pass of its chunk, or does ZeRO keep parts of them? */
static bool reduces(const combined *m, const nnc_task *t, int d)
{
    const nnc_task_kind kind = m->pipe.split ? TASK_weight : TASK_backward;
    bool last = !m->serial; /* of this chunk's passes in the device's list */
    if (m->c->data < 2 || t->kind != kind || m->p->forward)
        return false;
    for (const nnc_task *u = t + 1; u < m->pipe.task[d] + m->pipe.n_task; u++)
        last = last && !(u->kind == kind && u->stage == t->stage);
    return last || m->c->zero == 2;
}

/* A pass that reduces gradients, layer by layer, with a collective for each bucket that is full. */
static int reducing_pass(void *ctx, row_tasks *t, int d, const nnc_task *k, int *first)
{
    combined *m = ctx;
    const int *cut = m->x->cut + k->stage;
    const nnc_search_costs *of = m->costs;
    int64_t open = 0, all = 0, left = m->x->pass[k->kind][k->stage];
    int task = -1;
    if (!reduces(m, k, d))
        return -1;
    if (k->kind == TASK_backward)
        left = nnc_add_sat(left, m->x->pass[TASK_weight][k->stage]);
    if (m->serial) {
        *first = task = row_task_compute(t, d, WORK_backward, k->micro, left);
        m->reduced[d] = exchange(m, d, reduction_of(m), task);
        return task;
    }
    for (int i = cut[0]; i < cut[1]; i++)
        all = nnc_add_sat(all, of->backward[i] + of->weight[i] + 1);
    const int64_t whole = left;
    for (int i = cut[1] - 1; i >= cut[0]; i--) {
        const double share = (double)(of->backward[i] + of->weight[i] + 1) / (double)all;
        const int64_t ns = i == cut[0] ? left : nnc_min64(left, (int64_t)(share * (double)whole));
        const bool starts = task < 0;
        left -= ns;
        task = row_task_compute(
            t, d, k->kind == TASK_weight ? WORK_weight : WORK_backward, k->micro, ns);
        *first = starts ? task : *first;
        open = nnc_add_sat(open, of->gradients[i] - (of->small ? of->small[i] : 0));
        if (open < (of->small ? 0 : m->p->bucket_bytes) && i > cut[0])
            continue;
        if (open > 0)
            m->reduced[d] = collective(m, d, reduction_of(m), open, task);
        open = 0;
    }
    if (of->small)
        m->reduced[d] =
            collective(m, d, reduction_of(m), row_range(of->small, cut[0], cut[1]), task);
    return task;
}

/* Passes, and what they send. */
static nnc_status add_passes(combined *m)
{
    const nnc_combination *c = m->c;
    const nnc_search_links *l = &m->p->links;
    const int stages = c->pipeline * c->chunks,
              beside_send = c->data_first ? c->tensor * c->data : c->tensor;
    int64_t *send = ARENA_NEW(m->r->a, int64_t, stages + 1),
            *bytes = ARENA_NEW(m->r->a, int64_t, stages + 1);
    int32_t *senders = ARENA_NEW(m->r->a, int32_t, c->pipeline);
    NNC_NEED(send && bytes && senders, m->r->sink);
    for (int d = 0; d < c->pipeline; d++)
        senders[d] = in_node(m->r, m->t.first[d], beside_send);
    for (int s = 0; s + 1 < stages; s++) {
        bytes[s] = m->costs->boundary[m->x->cut[s + 1]];
        send[s] = l->send_ns(l->ctx, nnc_combination_device(c, 0, s % c->pipeline, 0),
            nnc_combination_device(c, 0, (s + 1) % c->pipeline, 0), beside_send, bytes[s]);
    }
    const row_pipeline_passes passes = {.pipe = &m->pipe,
        .costs = {m->x->pass[TASK_forward], m->x->pass[TASK_backward], m->x->pass[TASK_weight],
            send, .senders_wait = m->p->planned},
        .bytes = bytes,
        .senders = senders,
        .reduce = reducing_pass,
        .ctx = m};
    return row_add_stages(&m->t, &passes);
}

static int move_gathered(void *ctx, bool scatters, int64_t bytes, int after)
{
    return collective(ctx, 0, scatters ? SEARCH_reduce_scatter : SEARCH_allgather, bytes, after);
}

/* ZeRO's stage 3, which has no pipeline. */
static nnc_status add_gathered(combined *m)
{
    const nnc_search_costs *of = m->costs;
    int64_t *pass[2];
    for (int k = 0; k < 2; k++)
        NNC_NEED(pass[k] = ARENA_NEW(m->r->a, int64_t, m->p->n_layer + 1), m->r->sink);
    for (int b = 0; b < m->p->n_layer; b++) {
        pass[0][b] = nnc_add_sat(of->forward[b], of->forward_comm[b]);
        pass[1][b] = nnc_add_sat(nnc_add_sat(of->backward[b], of->backward_comm[b]),
            nnc_add_sat(of->weight[b], m->c->micro > 1 ? of->accumulate[b] : 0));
        if (m->c->recompute)
            pass[1][b] = nnc_add_sat(pass[1][b], pass[0][b]);
    }
    const row_gathered x = {
        &m->t, m->p->n_layer, pass[0], pass[1], of->weights, of->gradients, move_gathered, m};
    m->t.repeat = m->c->micro;
    m->t.each = 1;
    m->t.lane = "collectives";
    const int last = row_add_gathered(&x, false, -1);
    if (!m->p->forward)
        (void)row_add_gathered(&x, true, last);
    return NNC_OK;
}

/* The update of stage d, after its passes and collectives; ZeRO gathers the weights then. */
static void add_update(combined *m, int d)
{
    const nnc_combination *c = m->c;
    int64_t ns = 0;
    for (int s = d; s < c->pipeline * c->chunks; s += c->pipeline)
        ns = nnc_add_sat(ns, row_range(m->costs->optimizer, m->x->cut[s], m->x->cut[s + 1]));
    if (m->serial && c->zero < 2)
        m->reduced[d] = exchange(m, d, reduction_of(m), -1);
    const int task =
        row_task_compute(&m->t, d, WORK_update, -1, c->zero ? nnc_ceildiv(ns, c->data) : ns);
    row_task_wait(&m->t, task, m->reduced[d]);
    if (c->zero == 1 || c->zero == 2)
        (void)exchange(m, d, SEARCH_allgather, task);
}

/* Plans begin what follows their passes on all devices together. */
static nnc_status list(combined *m)
{
    const nnc_combination *c = m->c;
    int32_t *first = ARENA_NEW(m->r->a, int32_t, c->pipeline);
    NNC_NEED(first && (m->reduced = ARENA_NEW(m->r->a, int, c->pipeline)), m->r->sink);
    m->serial = m->p->planned && (c->pipeline > 1 || m->p->is_serial(m->p->serial_ctx, c));
    for (int i = 0; i < m->p->n_costs; i++)
        if (m->p->costs[i].tensor == c->tensor && m->p->costs[i].size == c->size)
            m->costs = &m->p->costs[i];
    NNC_TRY(row_tasks_make(m->r, c->pipeline, &m->t));
    m->t.first = first;
    for (int s = 0; s < c->pipeline; s++) {
        first[s] = nnc_combination_device(c, 0, s, 0);
        m->reduced[s] = -1;
        for (int d = 0; d < c->data * c->tensor; d++)
            row_tasks_copy(&m->t, nnc_combination_device(c, d / c->tensor, s, d % c->tensor),
                (row_copy){s, d / c->tensor * c->micro, INT32_MAX});
    }
    NNC_TRY(nnc_pipeline_make(
        c->schedule, c->pipeline, c->micro, c->chunks, m->r->a, &m->pipe, m->r->sink));
    NNC_TRY(c->zero == 3 ? add_gathered(m) : add_passes(m));
    if (m->p->planned || c->zero == 3)
        row_tasks_meet(&m->t);
    for (int s = 0; s < c->pipeline && !m->p->forward; s++)
        add_update(m, s);
    return NNC_OK;
}

static bool is_large(const nnc_combination *c, int most)
{
    return (int64_t)c->pipeline * c->chunks * c->micro * 4 > most;
}

nnc_status auto_clock(
    rows *r, const nnc_search_problem *p, const nnc_search_result *x, bool few, int64_t *ns)
{
    combined m = {.r = r, .p = p, .x = x, .c = &x->c};
    int64_t one;
    *ns = 0;
    if (is_large(m.c, few ? FEW_TASKS : MOST_TASKS))
        return NNC_OK;
    NNC_TRY(list(&m));
    return row_tasks_time(&m.t, &one, ns);
}

nnc_status auto_run(
    rows *r, nnc_partition_row *row, const nnc_search_problem *p, const nnc_search_result *x)
{
    combined m = {.r = r, .p = p, .x = x, .c = &x->c};
    if (!is_large(m.c, MOST_TASKS) || nnc_partition_has_timelines(r->t->o)) {
        NNC_TRY(list(&m));
        return row_tasks_run(&m.t, row);
    }
    row->iteration_ns = x->ns;
    row->exposed_ns = x->send + x->data;
    row->hidden_ns = x->hidden;
    return NNC_OK;
}

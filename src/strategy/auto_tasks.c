/* strategy/auto_tasks.c -- the tasks of a combination of data, tensor and pipeline parallelism. All replicas do the same, so that one of
 * them is listed: on described hardware its transfers and collectives also stand for those of its neighbours, with which they share links.
 * Collectives of tensor groups are part of the passes. */
#include "strategy/auto.h"
#include "picture/picture.h"

enum { MOST_TASKS = 400000 };

typedef struct combined {
    rows *r;
    const nnc_search_problem *p;
    const nnc_search_costs *costs;
    const nnc_search_result *x;
    const nnc_combination *c;
    row_tasks t;
    nnc_pipeline pipe;
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
    const nnc_combination *c = m->c;
    const nnc_search_links *l = &m->p->links;
    const int first = nnc_combination_device(c, 0, d, 0);
    if (c->data < 2 || bytes <= 0)
        return after;
    row_task x = {.collective = true,
        .op = (uint8_t)auto_group_op[kind],
        .part = d,
        .micro = -1,
        .n = c->data,
        .stride = nnc_combination_device(c, 1, d, 0) - first,
        .groups = in_node(m->r, first, c->tensor),
        .bytes = bytes,
        .name = kind == SEARCH_allgather ? "gather what was updated" : "sum a bucket of gradients"};
    x.ns = l->collective_ns(l->ctx, kind, first, x.stride, x.n, c->tensor, bytes);
    return row_task_move(&m->t, x, after);
}

/* Does the task compute gradients that are reduced: is it the last such pass of its chunk, or does ZeRO keep parts of them? */
static bool reduces(const combined *m, const nnc_task *t, int d)
{
    const nnc_task_kind kind = m->pipe.split ? TASK_weight : TASK_backward;
    bool last = true; /* of this chunk's passes in the device's list */
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
        open = nnc_add_sat(open, of->gradients[i]);
        if (open < m->p->bucket_bytes && i > cut[0])
            continue;
        if (open > 0)
            m->reduced[d] =
                collective(m, d, m->c->zero ? SEARCH_reduce_scatter : SEARCH_allreduce, open, task);
        open = 0;
    }
    return task;
}

/* Passes, and what they send. */
static nnc_status add_passes(combined *m, bool beside)
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
        .reduce = beside ? reducing_pass : NULL,
        .ctx = m};
    return row_add_stages(&m->t, &passes);
}

/* The update of stage d, after its passes and collectives; ZeRO gathers the weights then. */
static void add_update(combined *m, int d)
{
    const nnc_combination *c = m->c;
    int64_t ns = 0, trained = 0;
    for (int k = 0; k < c->chunks; k++) {
        const int *cut = &m->x->cut[k * c->pipeline + d];
        for (int i = cut[0]; i < cut[1]; i++) {
            ns = nnc_add_sat(ns, m->costs->optimizer[i]);
            trained = nnc_add_sat(trained, nnc_min64(m->costs->weights[i], m->costs->gradients[i]));
        }
    }
    const int task =
        row_task_compute(&m->t, d, WORK_update, -1, c->zero ? nnc_ceildiv(ns, c->data) : ns);
    row_task_wait(&m->t, task, m->reduced[d]);
    if (c->zero)
        (void)collective(m, d, SEARCH_allgather, trained, task);
}

/* What the search's estimate adds to the passes, where tasks do not say it: ZeRO's stage 3, and plans, which begin what follows their
 * passes on all devices together. */
static void add_rest(combined *m, int d)
{
    const row_task sum = {.collective = true,
        .part = d,
        .micro = -1,
        .ns = m->x->data,
        .name = "sum gradients: what computing does not hide"};
    const int task = row_task_move(&m->t, sum, -1);
    row_task_wait(&m->t, row_task_compute(&m->t, d, WORK_update, -1, m->x->optimizer), task);
}

static bool is_listed(const nnc_search_problem *p, const nnc_combination *c)
{
    return c->zero < 3 && !p->planned;
}

static nnc_status list(combined *m)
{
    const nnc_combination *c = m->c;
    const bool beside = is_listed(m->p, c);
    int32_t *first = ARENA_NEW(m->r->a, int32_t, c->pipeline);
    NNC_NEED(first && (m->reduced = ARENA_NEW(m->r->a, int, c->pipeline)), m->r->sink);
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
    NNC_TRY(add_passes(m, beside));
    if (!beside)
        row_tasks_meet(&m->t);
    for (int s = 0; s < c->pipeline && !m->p->forward; s++)
        if (beside)
            add_update(m, s);
        else
            add_rest(m, s);
    return NNC_OK;
}

static bool is_large(const nnc_combination *c)
{
    return (int64_t)c->pipeline * c->chunks * c->micro * 4 > MOST_TASKS;
}

nnc_status auto_clock(rows *r, const nnc_search_problem *p, const nnc_search_result *x, int64_t *ns)
{
    combined m = {.r = r, .p = p, .x = x, .c = &x->c};
    int64_t one;
    *ns = 0;
    if (!is_listed(p, m.c) || is_large(m.c))
        return NNC_OK;
    NNC_TRY(list(&m));
    return row_tasks_time(&m.t, &one, ns);
}

nnc_status auto_run(
    rows *r, nnc_partition_row *row, const nnc_search_problem *p, const nnc_search_result *x)
{
    combined m = {.r = r, .p = p, .x = x, .c = &x->c};
    const bool run = !is_large(m.c) || nnc_partition_has_timelines(r->t->o);
    if (run) {
        NNC_TRY(list(&m));
        NNC_TRY(row_tasks_run(&m.t, row));
    }
    if (run && is_listed(p, m.c))
        return NNC_OK;
    row->iteration_ns = x->ns;
    row->exposed_ns = x->send + x->data;
    row->hidden_ns = x->hidden;
    return NNC_OK;
}

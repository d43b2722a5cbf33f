/* strategy/stages.c -- the tasks of a pipeline: each device's passes in the order of its schedule, each result sent when it is there. */
#include "strategy/row.h"
#include "picture/picture.h"

typedef struct pipeline {
    row_tasks *t;
    const row_pipeline_passes *passes;
    /* by nnc_task_kind, virtual stage and micro-batch: the pass; the task after which its result is where it is read */
    int *pass[3], *there[3];
} pipeline;

static int *at(const pipeline *x, int *const *of, int kind, int stage, int micro)
{
    return &of[kind][(size_t)stage * (size_t)x->passes->pipe->micro + (size_t)micro];
}

/* Sends the result of a pass to the stage that follows in its direction; returns the task after which it is there. */
static int send_result(const pipeline *x, int d, const nnc_task *k, int task)
{
    const bool forward = k->kind == TASK_forward;
    const nnc_pipeline *p = x->passes->pipe;
    const int to = forward ? k->stage + 1 : k->stage - 1, link = forward ? k->stage : to;
    if (k->kind == TASK_weight || to < 0 || to >= p->devices * p->chunks || to % p->devices == d)
        return task;
    const row_task send = {.part = d,
        .micro = k->micro,
        .holds = x->passes->costs.senders_wait,
        .free = !x->passes->costs.senders_wait,
        .ns = x->passes->costs.send[link],
        .bytes = x->passes->bytes[link],
        .n = x->passes->senders ? x->passes->senders[d] : 0,
        .to = to % p->devices,
        .name = forward ? "send a result" : "send a gradient"};
    return row_task_move(x->t, send, task);
}

/* Without a split a backward pass computes the gradients of weights, too: those of the stage's first block after it has sent. */
static void add_pass(const pipeline *x, int d, const nnc_task *k)
{
    static const uint8_t work[] = {WORK_forward, WORK_backward, WORK_weight};
    const nnc_pipeline_costs *c = &x->passes->costs;
    const bool both = k->kind == TASK_backward && !x->passes->pipe->split;
    const int64_t late = both && x->passes->late ? x->passes->late[k->stage] : 0;
    row_task task = {.kind = work[k->kind],
        .chunk = (uint8_t)(k->stage / x->passes->pipe->devices),
        .part = d,
        .micro = k->micro,
        .ns = k->kind == TASK_forward  ? c->forward[k->stage]
              : k->kind == TASK_weight ? c->weight[k->stage]
                                       : c->backward[k->stage]};
    if (both)
        task.ns = nnc_add_sat(task.ns, c->weight[k->stage] - late);
    int first, id = x->passes->reduce ? x->passes->reduce(x->passes->ctx, x->t, d, k, &first) : -1;
    if (id < 0)
        id = first = row_task_add(x->t, task);
    *at(x, x->pass, k->kind, k->stage, k->micro) = first;
    *at(x, x->there, k->kind, k->stage, k->micro) = send_result(x, d, k, id);
    task.kind = WORK_weight;
    task.ns = late;
    if (late)
        (void)row_task_add(x->t, task);
}

nnc_status row_add_stages(row_tasks *t, const row_pipeline_passes *of)
{
    const nnc_pipeline *p = of->pipe;
    const int all = p->devices * p->chunks;
    pipeline x = {.t = t, .passes = of};
    t->lane = "sends";
    for (int k = 0; k < 3; k++) {
        NNC_NEED(ARENA_ARRAYS(t->r->a, (size_t)all * (size_t)p->micro + 1, x.pass[k], x.there[k]),
            t->r->sink);
    }
    for (int d = 0; d < p->devices; d++)
        for (int i = 0; i < p->n_task; i++)
            add_pass(&x, d, &p->task[d][i]);
    for (int s = 1; s < all; s++)
        for (int m = 0; m < p->micro; m++) {
            row_task_wait(
                t, *at(&x, x.pass, TASK_forward, s, m), *at(&x, x.there, TASK_forward, s - 1, m));
            if (p->kind != PIPE_forward)
                row_task_wait(t, *at(&x, x.pass, TASK_backward, s - 1, m),
                    *at(&x, x.there, TASK_backward, s, m));
        }
    return NNC_OK;
}

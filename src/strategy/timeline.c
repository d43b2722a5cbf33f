/* strategy/timeline.c -- what a strategy does when, as its row's times were computed: pipelines from the schedule's task times,
 * placements one micro-batch after the other, data parallelism with its buckets. Only where a picture or a trace is asked for. */
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"

static bool is_wanted(const rows *r)
{
    return nnc_partition_has_timelines(r->t->o);
}

/* A timeline with a lane for computing and a thin one for sending on each device. */
static nnc_status create(rows *r, nnc_partition_row *row, const char *sends)
{
    nnc_timeline *t = row->predicted = nnc_timeline_create("predicted", r->n);
    NNC_NEED(t, r->sink);
    for (int d = 0; d < r->n; d++) {
        (void)nnc_timeline_lane(t, d, "computing", false); /* a failure is noted in t */
        (void)nnc_timeline_lane(t, d, sends, true);
        t->capacity[d] = r->capacity;
    }
    return t->oom ? nnc_nomem(r->sink) : NNC_OK;
}

static int add(nnc_timeline *t, int device, nnc_work_kind kind, int micro, int64_t start,
    int64_t ns, int64_t bytes, const char *name)
{
    if (ns <= 0 && !bytes)
        return -1;
    return nnc_timeline_add(t, (nnc_slice){.start_ps = nnc_mul_sat(start, 1000),
                                   .end_ps = nnc_mul_sat(nnc_add_sat(start, ns), 1000),
                                   .lane = 2 * device + (kind == WORK_communication),
                                   .micro = micro,
                                   .kind = (uint8_t)kind,
                                   .bytes = bytes,
                                   .name = name});
}

static nnc_status finish(rows *r, const nnc_timeline *t)
{
    return t->oom ? nnc_nomem(r->sink) : NNC_OK;
}

/* ---- pipelines ------------------------------------------------------------------------------------------- */

typedef struct pipeline {
    rows *r;
    const nnc_pipeline *p;
    const nnc_pipeline_time *time;
    const nnc_pipeline_costs *costs;
    const int *cut;
    nnc_timeline *t;
    int64_t until; /* tasks that start later are left out */
    int32_t *span; /* [kind][stage][micro]: of its task */
} pipeline;

/* Tasks are spread evenly in time: as many as a timeline holds start until then. */
static int64_t until_of(const nnc_pipeline *p, const nnc_pipeline_time *time)
{
    const double tasks = (double)p->devices * p->n_task, most = NNC_MOST_SPANS / 2.0;
    return tasks <= most ? INT64_MAX : (int64_t)((double)time->total * most / tasks);
}

static int32_t *span_of(const pipeline *x, int kind, int stage, int micro)
{
    const size_t stages = (size_t)x->p->devices * (size_t)x->p->chunks, m = (size_t)x->p->micro;
    return &x->span[((size_t)kind * stages + (size_t)stage) * m + (size_t)micro];
}

/* The transfer of a task's result to the stage that follows it in its direction. */
static void send_result(const pipeline *x, int d, const nnc_task *k, int64_t end)
{
    const int stages = x->p->devices * x->p->chunks;
    const bool forward = k->kind == TASK_forward;
    const int to = forward ? k->stage + 1 : k->stage - 1, link = forward ? k->stage : to;
    if (k->kind == TASK_weight || to < 0 || to >= stages || to % x->p->devices == d)
        return;
    const int64_t ns = x->costs->send ? x->costs->send[link] : 0;
    const int s = add(x->t, d, WORK_communication, k->micro, end, ns,
        x->r->m->boundary[x->cut[link + 1]], forward ? "send a result" : "send a gradient");
    const int32_t by = *span_of(x, k->kind, to, k->micro);
    if (s >= 0 && by >= 0)
        nnc_timeline_arrow(x->t, s, by);
}

static nnc_status add_tasks(pipeline *x)
{
    static const nnc_work_kind work[] = {WORK_forward, WORK_backward, WORK_weight};
    const nnc_pipeline *p = x->p;
    const size_t n = 3 * (size_t)p->devices * (size_t)p->chunks * (size_t)p->micro;
    x->span = ARENA_NEW(&x->t->arena, int32_t, n + 1);
    NNC_NEED(x->span, x->r->sink);
    for (size_t i = 0; i < n; i++)
        x->span[i] = -1;
    for (int d = 0; d < p->devices; d++)
        for (int i = 0; i < p->n_task; i++) {
            const nnc_task *k = &p->task[d][i];
            const int64_t start = x->time->start[d][i];
            if (start > x->until)
                break;
            const int32_t id = *span_of(x, k->kind, k->stage, k->micro) =
                add(x->t, d, work[k->kind], k->micro, start, x->time->end[d][i] - start, 0, NULL);
            if (id >= 0)
                x->t->span[id].chunk = (uint8_t)(k->stage / p->devices);
        }
    for (int d = 0; d < p->devices; d++)
        for (int i = 0; i < p->n_task && x->time->start[d][i] <= x->until; i++)
            send_result(x, d, &p->task[d][i], x->time->end[d][i]);
    return NNC_OK;
}

/* Each device updates its weights when all have done their tasks, as the row counts it. */
static void add_updates(const pipeline *x)
{
    for (int d = 0; d < x->p->devices; d++) {
        int64_t ns = 0;
        for (int k = 0; k < x->p->chunks; k++) {
            const int s = k * x->p->devices + d;
            ns += row_range(x->r->m->of.optimizer, x->cut[s], x->cut[s + 1]);
        }
        (void)add(x->t, d, WORK_update, -1, x->time->total, ns, 0, NULL);
    }
}

nnc_status row_pipeline_timeline(rows *r, nnc_partition_row *row, const nnc_pipeline *p,
    const nnc_pipeline_time *time, const nnc_pipeline_costs *costs, const int *cut)
{
    if (!is_wanted(r))
        return NNC_OK;
    NNC_TRY(create(r, row, "sends"));
    pipeline x = {r, p, time, costs, cut, row->predicted, until_of(p, time), NULL};
    NNC_TRY(add_tasks(&x));
    add_updates(&x);
    if (x.until < INT64_MAX)
        x.t->known_ps = nnc_mul_sat(x.until, 1000);
    return finish(r, x.t);
}

/* The tasks of one replica's part of each stage, on devices device[stage], and what follows them. */
static nnc_status add_replica(pipeline *x, const row_replica *of, const int *device)
{
    static const nnc_work_kind work[] = {WORK_forward, WORK_backward, WORK_weight};
    const nnc_pipeline *p = x->p;
    for (int d = 0; d < p->devices; d++) {
        int64_t now = x->time->total;
        for (int i = 0; i < p->n_task && x->time->start[d][i] <= x->until; i++) {
            const nnc_task *k = &p->task[d][i];
            const int64_t start = x->time->start[d][i];
            const int id = add(x->t, device[d], work[k->kind], of->replica * p->micro + k->micro,
                start, x->time->end[d][i] - start, 0, NULL);
            if (id >= 0)
                x->t->span[id].chunk = (uint8_t)(k->stage / p->devices);
        }
        (void)add(x->t, device[d], WORK_communication, -1, now, of->reduce_ns, 0,
            "sum gradients: what computing does not hide");
        now = nnc_add_sat(now, of->reduce_ns);
        (void)add(x->t, device[d], WORK_update, -1, now, of->update_ns, 0, NULL);
    }
    return finish(x->r, x->t);
}

nnc_status row_combination_timeline(rows *r, nnc_partition_row *row, const nnc_combination *c,
    const nnc_pipeline *p, const nnc_pipeline_time *time, const row_replica *each)
{
    int *device = ARENA_NEW(r->a, int, p->devices + 1);
    row_replica of = *each;
    NNC_NEED(device, r->sink);
    NNC_TRY(create(r, row, "exposed communication"));
    pipeline x = {r, p, time, NULL, NULL, row->predicted, INT64_MAX, NULL};
    const double tasks = (double)p->devices * p->n_task * c->data * c->tensor;
    if (tasks > NNC_MOST_SPANS / 2.0)
        x.until = (int64_t)((double)time->total * (NNC_MOST_SPANS / 2.0) / tasks);
    for (of.replica = 0; of.replica < c->data; of.replica++)
        for (int rank = 0; rank < c->tensor; rank++) {
            for (int s = 0; s < p->devices; s++)
                device[s] = nnc_combination_device(c, of.replica, s, rank);
            NNC_TRY(add_replica(&x, &of, device));
        }
    if (x.until < INT64_MAX)
        x.t->known_ps = nnc_mul_sat(x.until, 1000);
    return finish(r, x.t);
}

/* ---- placements ------------------------------------------------------------------------------------------ */

typedef struct placed {
    rows *r;
    nnc_timeline *t;
    const int *device; /* by block */
    const int64_t *traffic; /* [from * used + to] */
    int used;
    int64_t now;
} placed;

/* What device d sends in one direction, after the last of its blocks there. */
static void send_all(placed *x, int d, int micro, bool forward)
{
    for (int to = 0; to < x->used; to++) {
        const int from = forward ? d : to, at = forward ? to : d;
        const int64_t bytes = x->traffic[(size_t)from * (size_t)x->used + (size_t)at],
                      ns = nnc_links_p2p(&x->r->links, from, at, bytes);
        if (!bytes)
            continue;
        (void)add(x->t, d, WORK_communication, micro, x->now, ns, bytes,
            forward ? "send a result" : "send a gradient");
        x->now = nnc_add_sat(x->now, ns);
    }
}

/* One pass: runs of blocks on a device one after the other. */
static void add_pass(placed *x, int micro, bool forward)
{
    const nnc_layer_costs *of = &x->r->m->of;
    const int n = x->r->m->n_block;
    for (int i = 0, end; i < n; i = end) {
        const int first = forward ? i : n - 1 - i, d = x->device[first];
        bool last = true;
        int64_t ns = 0, weight = 0;
        for (end = i; end < n && x->device[forward ? end : n - 1 - end] == d; end++) {
            const int b = forward ? end : n - 1 - end;
            ns = nnc_add_sat(ns, forward ? of->forward[b] : of->backward[b]);
            if (!forward)
                weight = nnc_add_sat(
                    weight, nnc_add_sat(of->weight[b], row_adding_ns(x->r, b, b + 1, x->r->micro)));
        }
        for (int k = end; k < n; k++)
            last = last && x->device[forward ? k : n - 1 - k] != d;
        ns = nnc_add_sat(ns, weight);
        (void)add(x->t, d, forward ? WORK_forward : WORK_backward, micro, x->now, ns, 0, NULL);
        x->now = nnc_add_sat(x->now, ns);
        if (last)
            send_all(x, d, micro, forward);
    }
}

nnc_status row_placed_timeline(
    rows *r, nnc_partition_row *row, const int *device, const int64_t *traffic, int used)
{
    if (!is_wanted(r))
        return NNC_OK;
    NNC_TRY(create(r, row, "sends"));
    placed x = {r, row->predicted, device, traffic, used, 0};
    for (int m = 0; m < r->micro; m++) {
        add_pass(&x, m, true);
        if (r->m->step)
            add_pass(&x, m, false);
        if (x.t->n_span < NNC_MOST_SPANS)
            continue;
        x.t->known_ps = nnc_mul_sat(x.now, 1000); /* the others are like these */
        x.now = nnc_mul_sat(x.now / (m + 1), r->micro);
        break;
    }
    for (int d = 0; d < used; d++) {
        int64_t ns = 0;
        for (int b = 0; b < r->m->n_block; b++)
            ns = nnc_add_sat(ns, device[b] == d ? r->m->of.optimizer[b] : 0);
        (void)add(x.t, d, WORK_update, -1, x.now, ns, 0, NULL);
    }
    return finish(r, x.t);
}

/* Branches: blocks begin when the list scheduler says; micro-batches follow each other. */
nnc_status row_branches_timeline(
    rows *r, nnc_partition_row *row, const int *device, const int64_t *begin, int64_t ns)
{
    if (!is_wanted(r))
        return NNC_OK;
    nnc_timeline_destroy(row->predicted); /* of the same placement, one block after the other */
    NNC_TRY(create(r, row, "sends"));
    for (int m = 0; m < r->micro; m++)
        for (int b = 0; b < r->m->n_block; b++)
            (void)add(row->predicted, device[b], WORK_forward, m,
                nnc_add_sat(nnc_mul_sat(m, ns), begin[b]), r->m->of.forward[b], 0,
                r->m->layer[r->m->first[b]]);
    return finish(r, row->predicted);
}

/* ---- replicas -------------------------------------------------------------------------------------------- */

nnc_status row_data_timeline(rows *r, nnc_partition_row *row, const nnc_buckets_time *t,
    const nnc_bucket *bucket, int n, int passes, int64_t gather, int64_t update)
{
    const nnc_layer_costs *of = &r->m->of;
    const int blocks = r->m->n_block;
    const int64_t forward = row_range(of->forward, 0, blocks);
    const int most = (r->micro + n - 1) / n;
    const int64_t backward = nnc_add_sat(row_adding_ns(r, 0, blocks, most),
        nnc_add_sat(row_range(of->backward, 0, blocks), row_range(of->weight, 0, blocks)));
    if (!is_wanted(r))
        return NNC_OK;
    NNC_TRY(create(r, row, "collectives"));
    nnc_timeline *x = row->predicted;
    for (int d = 0; d < n; d++) {
        const int own = r->micro / n + (d < r->micro % n);
        int64_t now = 0;
        for (int k = 0; k < most; k++) {
            const bool reduces = r->m->step && n > 1 && k >= most - passes, idles = k >= own;
            if (!idles)
                (void)add(x, d, WORK_forward, d * most + k, now, forward, 0, NULL);
            now = nnc_add_sat(now, forward);
            for (int b = 0; reduces && b < t->n_bucket; b++)
                (void)add(x, d, WORK_communication, -1, nnc_add_sat(now, bucket[b].start),
                    bucket[b].end - bucket[b].start, bucket[b].bytes, "sum a bucket of gradients");
            if (r->m->step && !idles)
                (void)add(x, d, WORK_backward, d * most + k, now, reduces ? t->compute : backward,
                    0, NULL);
            now = nnc_add_sat(now, reduces ? t->end : backward);
        }
        if (gather)
            (void)add(x, d, WORK_communication, -1, now, gather, 0, "gather what was updated");
        (void)add(x, d, WORK_update, -1, nnc_add_sat(now, gather), update, 0, NULL);
    }
    return finish(r, x);
}

/* One pass with its collectives, from `now` on; returns its end. */
static int64_t add_gathered(nnc_timeline *t, int device, nnc_work_kind kind, int micro, bool idles,
    int64_t now, const row_gathered *step, int n)
{
    int64_t end = now;
    for (int i = 0; i < n; i++) {
        const int64_t start = nnc_add_sat(now, step[i].start);
        if (!idles)
            (void)add(t, device, kind, micro, start, step[i].run, 0, NULL);
        if (step[i].moves)
            (void)add(t, device, WORK_communication, micro, start, step[i].moves, step[i].bytes,
                "gather weights, scatter gradients");
        end = nnc_add_sat(start, nnc_max64(step[i].run, step[i].moves));
    }
    return end;
}

nnc_status row_gathered_timeline(rows *r, nnc_partition_row *row, const row_gathered *forward,
    const row_gathered *backward, int n, int64_t update)
{
    if (!is_wanted(r))
        return NNC_OK;
    NNC_TRY(create(r, row, "collectives"));
    nnc_timeline *t = row->predicted;
    const int most = (r->micro + n - 1) / n, parts = r->m->n_block + 2;
    for (int d = 0; d < n; d++) {
        const int own = r->micro / n + (d < r->micro % n);
        int64_t now = 0;
        for (int k = 0; k < most; k++) {
            const int micro = d * most + k;
            now = add_gathered(t, d, WORK_forward, micro, k >= own, now, forward, parts);
            now = add_gathered(t, d, WORK_backward, micro, k >= own, now, backward, parts);
        }
        (void)add(t, d, WORK_update, -1, now, update, 0, NULL);
    }
    return finish(r, t);
}

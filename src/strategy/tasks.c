/* strategy/tasks.c -- the clock of all strategies. A strategy lists its tasks, and the event simulator runs them. The row's times and its
 * timeline are read from that run.
 *
 * A part is a device, or several that do the same. It computes in one lane and communicates in another, each in the order in which tasks
 * were added. */
#include "strategy/row.h"
#include "picture/picture.h"
#include "sim/sim.h"
#include <stdlib.h>
#include <string.h>

nnc_status row_tasks_make(rows *r, int parts, row_tasks *out)
{
    *out = (row_tasks){.r = r, .parts = parts, .repeat = 1, .once = -1};
    NNC_NEED(out->copy = ARENA_NEW(r->a, row_copy, r->n), r->sink);
    for (int d = 0; d < r->n; d++)
        out->copy[d] = (row_copy){.part = d < parts ? d : -1, .micro = INT32_MAX};
    return NNC_OK;
}

int row_task_add(row_tasks *t, row_task x)
{
    if (t->oom || !ARENA_ROOM(t->r->a, t->task, t->cap_task, t->n + 1)) {
        t->oom = true;
        return 0;
    }
    t->task[t->n] = x;
    return t->n++;
}

void row_task_wait(row_tasks *t, int task, int on)
{
    if (task < 0 || on < 0 || t->oom)
        return;
    if (!ARENA_ROOM(t->r->a, t->wait, t->cap_wait, t->n_wait + 1)) {
        t->oom = true;
        return;
    }
    t->wait[t->n_wait++] = (row_wait){task, on};
}

int row_task_compute(row_tasks *t, int part, int kind, int micro, int64_t ns)
{
    return row_task_add(
        t, (row_task){.kind = (uint8_t)kind, .part = part, .micro = micro, .ns = ns});
}

int row_task_move(row_tasks *t, row_task x, int after)
{
    x.kind = WORK_communication;
    const int id = row_task_add(t, x);
    row_task_wait(t, id, after);
    return id;
}

void row_tasks_copy(row_tasks *t, int device, row_copy c)
{
    t->copy[device] = c;
    t->copied = true;
}

void row_tasks_meet(row_tasks *t)
{
    t->once = row_task_add(t, (row_task){.all = true, .micro = -1, .name = "all devices"});
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

typedef struct run {
    nnc_sim *s;
    int *id; /* by task: the simulator's */
    int *lane; /* by part: computes; then by part: communicates */
    bool bare; /* transfers take no time */
    bool linked; /* transfers share the links of the described hardware */
    bool slows; /* computing is slower beside some of the tasks */
    int32_t *device; /* of the transfer that is added */
    int *first,
        *own; /* tasks by part, in their order: those of part p are own[first[p]] to own[first[p + 1] - 1] */
} run;

static int device_of(const run *u, const row_tasks *t, int part)
{
    return u->linked ? t->first[part] : part;
}

/* A transfer over the links of the described hardware. */
static int add_linked(const run *u, const row_tasks *t, const row_task *x, nnc_sim_task s)
{
    int32_t *to = u->device + x->n;
    const int first = s.device = t->first[x->part];
    s.bytes = x->bytes;
    for (int k = 0; k < x->n * (x->collective ? x->groups : 1); k++)
        u->device[k] = x->collective ? first + k / x->n + k % x->n * x->stride : first + k;
    if (x->collective)
        return nnc_sim_collectives(
            u->s, &s, (nnc_group_op)x->op, u->device, x->n, x->groups, t->r->sink);
    for (int k = 0; k < x->n; k++)
        to[k] = t->first[x->to] + k;
    return nnc_sim_copies(u->s, &s, u->device, to, x->n, t->r->sink);
}

static int add_to(const run *u, const row_tasks *t, const row_task *x)
{
    const bool moves = x->kind == WORK_communication;
    const int32_t lane[] = {u->lane[moves ? t->parts + x->part : x->part], u->lane[x->part]};
    nnc_sim_task s = {.kind = !moves          ? SIM_op
                              : x->collective ? SIM_collective
                                              : SIM_transfer,
        .name = x->name ? x->name : nnc_work_names[x->kind],
        .device = moves || !u->slows ? -1 : device_of(u, t, x->part),
        .n_lane = x->free  ? 0
                  : x->all ? 2 * t->parts
                           : 1 + x->holds,
        .lane = x->all ? u->lane : lane};
    if (moves && u->linked && x->n && !u->bare)
        return add_linked(u, t, x, s);
    s.work_ps = moves && u->bare ? 0 : nnc_mul_sat(x->ns, 1000);
    return nnc_sim_add(u->s, &s);
}

static bool add_all(run *u, const row_tasks *t)
{
    const int lanes = 2 * t->parts;
    for (int k = 0; k < lanes; k++)
        if ((u->lane[k] = nnc_sim_lane(u->s, device_of(u, t, k % t->parts))) < 0)
            return false;
    for (int i = 0; i < t->n && t->r->slowdown > 1000; i++)
        u->slows = u->slows || t->task[i].collective;
    for (int p = 0; p < t->parts; p++)
        nnc_sim_overlap(u->s, device_of(u, t, p), (double)t->r->slowdown / 1000);
    for (int i = 0; i < t->n; i++) {
        if ((u->id[i] = add_to(u, t, &t->task[i])) < 0)
            return false;
    }
    for (int k = 0; k < t->n_wait; k++)
        if (!nnc_sim_after(u->s, u->id[t->wait[k].task], u->id[t->wait[k].on]))
            return false;
    return true;
}

static nnc_status run_tasks(const row_tasks *t, bool bare, run *u)
{
    rows *r = t->r;
    const bool linked = t->first && r->t->cluster && !(r->t->bandwidth > 0);
    *u = (run){.bare = bare,
        .linked = linked,
        .s = nnc_sim_create(linked ? r->t->cluster : NULL, t->parts),
        .id = ARENA_NEW(r->a, int, t->n + 1),
        .lane = ARENA_NEW(r->a, int, 2 * t->parts),
        .device = ARENA_NEW(r->a, int32_t, 2 * r->n + 2)};
    nnc_status st = u->s && u->id && u->lane && u->device && !t->oom ? NNC_OK : nnc_nomem(r->sink);
    if (!st && !add_all(u, t)) {
        st = nnc_sink_cause(r->sink, NNC_OK);
        st = st ? st : nnc_nomem(r->sink);
    }
    st = st ? st : nnc_sim_run(u->s, r->sink);
    if (st) {
        nnc_sim_destroy(u->s);
        u->s = NULL;
    }
    return st;
}

/* Picoseconds of what is repeated, and of all repetitions and what follows them. */
static int64_t one_ps(const row_tasks *t, const run *u)
{
    return t->once >= 0 ? nnc_sim_span_of(u->s, u->id[t->once]).end_ps : nnc_sim_end_ps(u->s);
}

static int64_t all_ps(const run *u, const row_tasks *t)
{
    return nnc_add_sat(nnc_mul_sat(t->repeat - 1, one_ps(t, u)), nnc_sim_end_ps(u->s));
}

/* ---- the timeline ---------------------------------------------------------------------------------------------- */

static nnc_status find_own(const row_tasks *t, run *u)
{
    int all = 0;
    for (int i = 0; i < t->n; i++)
        all += t->task[i].all;
    u->first = ARENA_NEW(t->r->a, int, t->parts + 2);
    u->own = ARENA_NEW(t->r->a, int, t->n + all * t->parts + 1);
    NNC_NEED(u->first && u->own, t->r->sink);
    for (int pass = 0; pass < 2; pass++) { /* counted, then listed */
        for (int i = 0; i < t->n; i++) {
            const row_task *x = &t->task[i];
            for (int p = x->all ? 0 : x->part; p < (x->all ? t->parts : x->part + 1); p++)
                if (pass)
                    u->own[u->first[p + 1]++] = i;
                else
                    u->first[p + 2]++;
        }
        for (int p = 0; p < t->parts && !pass; p++)
            u->first[p + 2] += u->first[p + 1];
    }
    return NNC_OK;
}

/* Does device d have repetition k of a task of its part? */
static bool is_done(const row_tasks *t, const row_task *x, int k, int d)
{
    return x->kind == WORK_communication || x->micro < 0 ||
           x->micro + k * t->each < t->copy[d].micro;
}

/* When spans begin to be too many: the start of the first one that is left out; INT64_MAX: none. */
static nnc_status known_until(const row_tasks *t, const run *u, int64_t *until)
{
    const int once = t->once < 0 ? t->n : t->once;
    int copies = 0;
    size_t n = 0, most;
    for (int d = 0; d < t->r->n; d++)
        copies += t->copy[d].part >= 0;
    most = (size_t)(NNC_MOST_SPANS * (double)t->parts / copies);
    *until = INT64_MAX;
    if ((double)once * t->repeat + t->n - once <= (double)most)
        return NNC_OK;
    NNC_FREED int64_t *start = nnc_malloc(((size_t)once + 1) * sizeof *start);
    NNC_NEED(start, t->r->sink);
    for (int i = 0; i < once; i++)
        start[n++] = nnc_sim_span_of(u->s, u->id[i]).start_ps;
    nnc_sort64(start, n);
    if (n)
        *until = nnc_add_sat(nnc_mul_sat((int64_t)(most / n), one_ps(t, u)), start[most % n]);
    return NNC_OK;
}

/* Adds repetition k of the tasks from .. to - 1 on device d; span[]: by task, -1: none. */
static void draw(nnc_timeline *to, const row_tasks *t, const run *u, int d, int from, int end,
    int k, int64_t until, int32_t *span)
{
    const int part = t->copy[d].part;
    const int64_t past = nnc_mul_sat(k, one_ps(t, u));
    for (int j = part < 0 ? 0 : u->first[part]; part >= 0 && j < u->first[part + 1]; j++) {
        const int i = u->own[j];
        const row_task *x = &t->task[i];
        const nnc_sim_span s = nnc_sim_span_of(u->s, u->id[i]);
        const int64_t start = nnc_add_sat(past, s.start_ps);
        if (i < from || i >= end || !is_done(t, x, k, d) || start > until ||
            (s.end_ps <= s.start_ps && !x->bytes))
            continue;
        span[i] = nnc_timeline_add(
            to, (nnc_slice){.start_ps = start,
                    .end_ps = nnc_add_sat(past, s.end_ps),
                    .lane = 2 * d + (x->kind == WORK_communication),
                    .micro = x->micro < 0 ? -1 : t->copy[d].first + x->micro + k * t->each,
                    .kind = x->kind,
                    .chunk = x->chunk,
                    .bytes = x->bytes,
                    .name = x->name});
    }
}

static void draw_arrows(nnc_timeline *to, const row_tasks *t, const int32_t *span)
{
    for (int k = 0; k < t->n_wait; k++) {
        const row_wait *w = &t->wait[k];
        const bool sent = t->task[w->on].kind == WORK_communication && !t->task[w->on].collective;
        if (sent && span[w->on] >= 0 && span[w->task] >= 0)
            nnc_timeline_arrow(to, span[w->on], span[w->task]);
    }
}

static nnc_status draw_timeline(nnc_partition_row *row, const row_tasks *t, run *u)
{
    rows *r = t->r;
    const int once = t->once < 0 ? t->n : t->once;
    int64_t until;
    nnc_timeline *to = row->timeline = nnc_timeline_create("predicted", r->n);
    NNC_FREED int32_t *span = nnc_malloc(((size_t)t->n + 1) * sizeof *span);
    NNC_NEED(to && span, r->sink);
    NNC_TRY(find_own(t, u));
    NNC_TRY(known_until(t, u, &until));
    for (int d = 0; d < r->n; d++) {
        (void)nnc_timeline_lane(to, d, "computing", false); /* a failure is noted */
        (void)nnc_timeline_lane(to, d, t->lane, true);
        to->capacity[d] = r->capacity;
    }
    for (int k = 0; k < t->repeat && nnc_mul_sat(k, one_ps(t, u)) <= until; k++) {
        memset(span, 0xff, ((size_t)t->n + 1) * sizeof *span);
        for (int d = 0; d < r->n; d++)
            draw(to, t, u, d, 0, once, k, until, span);
        draw_arrows(to, t, span);
    }
    for (int d = 0; d < r->n; d++)
        draw(to, t, u, d, once, t->n, t->repeat - 1, INT64_MAX, span);
    if (until < INT64_MAX)
        to->known_ps = until;
    return to->oom ? nnc_nomem(r->sink) : NNC_OK;
}

/* ---- the row --------------------------------------------------------------------------------------------------- */

/* How many of so many repetitions of a task device d has. */
static int times_on(const row_tasks *t, const row_task *x, int times, int d)
{
    const row_copy *c = &t->copy[d];
    if (c->part != x->part || x->micro >= c->micro)
        return 0;
    return x->micro < 0 || !t->each
               ? times
               : (int)nnc_min64(times, nnc_ceildiv(c->micro - x->micro, t->each));
}

/* Computing of the devices, without being slowed; *moves: transfers of one part, repeated. */
static void sum_up(const row_tasks *t, const run *u, nnc_partition_row *row, int64_t *moves)
{
    const int once = t->once < 0 ? t->n : t->once;
    *moves = 0;
    for (int i = 0; i < t->n; i++) {
        const row_task *x = &t->task[i];
        const int times = i < once ? t->repeat : 1;
        const nnc_sim_span s = nnc_sim_span_of(u->s, u->id[i]);
        if (x->kind == WORK_communication)
            *moves = nnc_add_sat(
                *moves, nnc_mul_sat(times, u->linked ? (s.end_ps - s.start_ps) / 1000 : x->ns));
        const int first = t->copied ? 0 : x->part, end = t->copied ? t->r->n : first + 1;
        for (int d = first; d < end && x->kind != WORK_communication; d++)
            row->use[d].busy_ns =
                nnc_add_sat(row->use[d].busy_ns, nnc_mul_sat(times_on(t, x, times, d), x->ns));
    }
}

nnc_status row_tasks_time(const row_tasks *t, int64_t *one, int64_t *ns)
{
    run u;
    NNC_TRY(run_tasks(t, false, &u));
    *one = nnc_ceildiv(one_ps(t, &u), 1000);
    *ns = nnc_ceildiv(all_ps(&u, t), 1000);
    nnc_sim_destroy(u.s);
    return NNC_OK;
}

nnc_status row_tasks_run(const row_tasks *t, nnc_partition_row *row)
{
    int64_t moves;
    run u;
    NNC_TRY(run_tasks(t, false, &u));
    sum_up(t, &u, row, &moves);
    const int64_t total = nnc_ceildiv(all_ps(&u, t), 1000);
    const nnc_status st =
        nnc_partition_has_timelines(t->r->t->o) ? draw_timeline(row, t, &u) : NNC_OK;
    nnc_sim_destroy(u.s);
    NNC_TRY(st);
    row->iteration_ns = total;
    int64_t bare = total;
    if (moves) {
        NNC_TRY(run_tasks(t, true, &u));
        bare = nnc_ceildiv(all_ps(&u, t), 1000);
        nnc_sim_destroy(u.s);
    }
    row->exposed_ns = total - bare;
    row->hidden_ns = moves - row->exposed_ns;
    return NNC_OK;
}

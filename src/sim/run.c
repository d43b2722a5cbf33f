/* sim/run.c -- the event loop. Events are ordered by time, then by task; all that happens at one time is done before rates are computed
 * again. */
#include "sim/internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- events: a binary heap ----------------------------------------------------------------------------------------- */

static bool before(const sim_event *a, const sim_event *b)
{
    return a->ps != b->ps ? a->ps < b->ps : a->task < b->task;
}

void sim_push(nnc_sim *s, int64_t ps, int32_t task)
{
    if (s->n_heap == s->cap_heap) {
        size_t cap = s->cap_heap ? 2 * s->cap_heap : 1024;
        sim_event *p = nnc_realloc(s->heap, cap * sizeof *p);
        s->oom = s->oom || !p;
        if (!p)
            return;
        s->heap = p;
        s->cap_heap = cap;
    }
    const sim_event e = {ps, task, ++s->task[task].version};
    size_t i = s->n_heap++;
    for (; i && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static sim_event pop(nnc_sim *s)
{
    const sim_event first = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t k = 1; k < s->n_heap; k = 2 * i + 1) {
        k += k + 1 < s->n_heap && before(&s->heap[k + 1], &s->heap[k]);
        if (!before(&s->heap[k], &last))
            break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return first;
}

/* ---- starts and ends ------------------------------------------------------------------------------------------------ */

static void mark_dirty(nnc_sim *s, int resource)
{
    if (s->resource[resource].mark == s->mark)
        return;
    s->resource[resource].mark = s->mark;
    s->dirty[s->n_dirty++] = resource;
}

/* A task with a lane of the device starts (by 1) or ends (by -1) there. */
static void change_device(nnc_sim *s, const sim_task *t, int lane, int by)
{
    const int device = s->lane[lane].device;
    if (device < 0)
        return;
    sim_device *d = &s->device[device];
    if (by > 0 && !d->running)
        d->since_ps = s->now_ps;
    d->running += by;
    if (by < 0 && !d->running)
        d->busy_ps += s->now_ps - d->since_ps;
    if (t->kind == SIM_collective) {
        d->collectives += by;
        if (d->overlap > 1)
            mark_dirty(s, sim_compute_of(s, device));
    }
}

/* The task's work begins: its latency is over. */
static void activate(nnc_sim *s, int32_t id)
{
    sim_task *t = &s->task[id];
    t->state = ST_active;
    t->left = t->work;
    t->since_ps = s->now_ps;
    t->rate = 0;
    if (t->work <= 0) {
        sim_push(s, s->now_ps, id);
        return;
    }
    if (!t->n_use) {
        t->rate = t->most;
        sim_push(s, s->now_ps + (int64_t)(t->work / t->most + 0.5), id);
        return;
    }
    for (int i = 0; i < t->n_use; i++) {
        sim_resource *r = &s->resource[t->use[i].resource];
        size_t cap = (size_t)r->cap_active;
        if (!ARENA_ROOM(&s->arena, r->active, cap, r->n_active + 1)) {
            s->oom = true;
            return;
        }
        r->cap_active = (int)cap;
        r->active[r->n_active++] = id;
        mark_dirty(s, t->use[i].resource);
    }
}

static bool needs_engine(const sim_task *t)
{
    return t->kind == SIM_transfer && t->device >= 0;
}

/* Takes a copy engine of the task's device; false: none is free, and the task waits for one. */
static bool take_engine(nnc_sim *s, int32_t id)
{
    sim_device *d = &s->device[s->task[id].device];
    if (s->task[id].has_engine || d->engines > 0) {
        d->engines -= !s->task[id].has_engine;
        return true;
    }
    if (d->last_waiting >= 0)
        s->task[d->last_waiting].queued = id;
    else
        d->waiting = id;
    d->last_waiting = id;
    return false;
}

/* Returns the task's copy engine, or hands it to the first that waits for one. */
static void return_engine(nnc_sim *s, const sim_task *t)
{
    sim_device *d = &s->device[t->device];
    if (d->waiting < 0) {
        d->engines++;
        return;
    }
    s->task[d->waiting].has_engine = true;
    s->ready[s->n_ready++] = d->waiting;
    d->waiting = s->task[d->waiting].queued;
    if (d->waiting < 0)
        d->last_waiting = -1;
}

/* How late the task notices that it may start: in proportion to the longest wait of its lanes. */
static int64_t wake_ps(const nnc_sim *s, const sim_task *t)
{
    int64_t waited = 0;
    for (int i = 0; i < t->n_lane; i++)
        waited = nnc_max64(waited, s->now_ps - s->lane[t->lane[i]].free_ps);
    const double after = (double)s->host.wake_after_ns * 1000,
                 least = s->host.wake_from_ns ? 0.25 : 0;
    double part = after > 0 && (double)waited < after ? (double)waited / after : 1;
    part = part < least ? least : part;
    return waited > 0 && waited >= s->host.wake_from_ns * 1000
               ? (int64_t)(part * (double)s->host.wake_ns * 1000)
               : 0;
}

static void start(nnc_sim *s, int32_t id)
{
    sim_task *t = &s->task[id];
    if (needs_engine(t) && !take_engine(s, id))
        return;
    t->span.start_ps = s->now_ps;
    if (t->wakes)
        t->latency_ps += wake_ps(s, t);
    for (int i = 0; i < t->n_lane; i++)
        change_device(s, t, t->lane[i], 1);
    if (t->latency_ps > 0) {
        t->state = ST_latency;
        sim_push(s, s->now_ps + t->latency_ps, id);
    } else {
        activate(s, id);
    }
}

/* One reason less to wait. */
static void release(nnc_sim *s, int32_t id)
{
    sim_task *t = &s->task[id];
    if (--t->n_wait == 0)
        s->ready[s->n_ready++] = id;
}

static void leave_resources(nnc_sim *s, const sim_task *t, int32_t id)
{
    for (int i = 0; i < t->n_use && t->work > 0; i++) {
        sim_resource *r = &s->resource[t->use[i].resource];
        int k = 0;
        while (r->active[k] != id)
            k++;
        memmove(&r->active[k], &r->active[k + 1], (size_t)(r->n_active - k - 1) * sizeof id);
        r->n_active--;
        mark_dirty(s, t->use[i].resource);
    }
}

static void finish(nnc_sim *s, int32_t id)
{
    sim_task *t = &s->task[id];
    t->state = ST_done;
    t->span.end_ps = s->now_ps;
    s->n_done++;
    leave_resources(s, t, id);
    if (needs_engine(t))
        return_engine(s, t);
    for (int i = 0; i < t->n_lane; i++) {
        sim_lane *l = &s->lane[t->lane[i]];
        change_device(s, t, t->lane[i], -1);
        l->free_ps = s->now_ps;
        if (++l->head < l->n)
            release(s, l->task[l->head]);
    }
    for (int i = 0; i < t->n_next; i++)
        release(s, t->next[i]);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------- */

static void start_ready(nnc_sim *s)
{
    qsort(s->ready, (size_t)s->n_ready, sizeof *s->ready, nnc_by_index);
    for (int i = 0; i < s->n_ready; i++)
        start(s, s->ready[i]);
    s->n_ready = 0;
}

static void handle(nnc_sim *s, sim_event e)
{
    if (s->task[e.task].version != e.version)
        return;
    if (s->task[e.task].state == ST_latency)
        activate(s, e.task);
    else
        finish(s, e.task);
}

/* A task that has not finished and that task `id` waits for; -1: none. */
static int32_t blocker(const nnc_sim *s, int32_t id)
{
    const sim_task *t = &s->task[id];
    for (int i = 0; i < t->n_lane; i++) {
        const sim_lane *l = &s->lane[t->lane[i]];
        if (l->task[l->head] != id)
            return l->task[l->head];
    }
    for (int32_t d = 0; d < s->n_task; d++)
        for (int i = 0; i < s->task[d].n_next && s->task[d].state != ST_done; i++)
            if (s->task[d].next[i] == id)
                return d;
    return -1;
}

static nnc_status stuck(const nnc_sim *s, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) cycle = {0};
    int32_t id = 0;
    enum { SHOWN = 8 };
    while (s->task[id].state == ST_done)
        id++;
    for (int i = 0; i < s->n_task && blocker(s, id) >= 0 && i < 10000; i++)
        id = blocker(s, id); /* now in a cycle */
    const int32_t first = id;
    int n = 0;
    do {
        if (n++ < SHOWN)
            nnc_printf(&cycle, "%s`%s`", n > 1 ? ", which waits for " : "", s->task[id].name);
        id = blocker(s, id);
    } while (id >= 0 && id != first && n < 100000);
    return nnc_fail0(sink, NNC_E_MODEL,
        "%d of %d tasks can never start: %s%s, which waits for `%s`", s->n_task - s->n_done,
        s->n_task, nnc_text_str(&cycle), n > SHOWN ? ", ..." : "", s->task[first].name);
}

nnc_status nnc_sim_run(nnc_sim *s, nnc_sink *sink)
{
    const size_t tasks = (size_t)s->n_task + 1, resources = (size_t)s->n_resource + 1;
    NNC_NEED(ARENA_ARRAYS(&s->arena, tasks, s->ready, s->flow) &&
                 ARENA_ARRAYS(&s->arena, resources, s->dirty, s->found),
        sink);
    s->mark = 1;
    for (int32_t id = 0; id < s->n_task; id++)
        if (!s->task[id].n_wait)
            s->ready[s->n_ready++] = id;
    while (!s->oom) {
        start_ready(s);
        if (s->n_dirty)
            sim_share(s);
        if (!s->n_heap)
            break;
        s->now_ps = s->heap[0].ps;
        while (s->n_heap && s->heap[0].ps == s->now_ps)
            handle(s, pop(s));
    }
    NNC_NEED(!s->oom, sink);
    return s->n_done == s->n_task ? NNC_OK : stuck(s, sink);
}

/* ---- results -------------------------------------------------------------------------------------------------------------- */

nnc_sim_span nnc_sim_span_of(const nnc_sim *s, int task)
{
    return s->task[task].span;
}

int64_t nnc_sim_end_ps(const nnc_sim *s)
{
    int64_t end = 0;
    for (int i = 0; i < s->n_task; i++)
        end = nnc_max64(end, s->task[i].span.end_ps);
    return end;
}

int64_t nnc_sim_device_busy_ps(const nnc_sim *s, int device)
{
    return s->device[device].busy_ps;
}

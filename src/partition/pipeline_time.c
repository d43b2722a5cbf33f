/* partition/pipeline_time.c -- what a pipeline's lists take: a clock for each device, and for each task the time at which its operand
 * arrives. Links are not shared and hosts take no time: src/sim knows these. */
#include "partition/partition.h"

enum { UNKNOWN = -1 };

typedef struct machine {
    const nnc_pipeline *p;
    const nnc_pipeline_costs *c;
    int64_t *done[3]; /* [kind][stage * micro + micro batch]: end of a task */
    int64_t *now; /* by device */
    int *at; /* by device: its next task */
} machine;

static int64_t at(const int64_t *v, int i)
{
    return v ? v[i] : 0;
}

static int64_t duration(const machine *m, const nnc_task *t)
{
    const nnc_pipeline_costs *c = m->c;
    if (t->kind == TASK_forward)
        return at(c->forward, t->stage);
    if (t->kind == TASK_weight)
        return at(c->weight, t->stage);
    const int64_t ns = at(c->backward, t->stage);
    return m->p->split ? ns : nnc_add_sat(ns, at(c->weight, t->stage));
}

/* How long the result of t is sent before the device does anything else. */
static int64_t sending(const machine *m, const nnc_task *t)
{
    const int last = m->p->devices * m->p->chunks - 1;
    if (!m->c->senders_wait)
        return 0;
    if (t->kind == TASK_forward)
        return t->stage < last ? at(m->c->send, t->stage) : 0;
    return t->kind == TASK_backward && t->stage > 0 ? at(m->c->send, t->stage - 1) : 0;
}

static int64_t done(const machine *m, nnc_task_kind k, int stage, int micro)
{
    return m->done[k][(size_t)stage * (size_t)m->p->micro + (size_t)micro];
}

/* The later of two times, or UNKNOWN. */
static int64_t later(int64_t a, int64_t b)
{
    return a == UNKNOWN || b == UNKNOWN ? UNKNOWN : nnc_max64(a, b);
}

/* When the operands of t have arrived; UNKNOWN: not yet scheduled. */
static int64_t arrival(const machine *m, const nnc_task *t)
{
    const int last = m->p->devices * m->p->chunks - 1;
    if (t->kind == TASK_weight)
        return done(m, TASK_backward, t->stage, t->micro);
    if (t->kind == TASK_forward && t->stage == 0)
        return 0;
    int64_t own = 0, from = 0, ns = 0;
    if (t->kind == TASK_forward) {
        from = done(m, TASK_forward, t->stage - 1, t->micro);
        ns = at(m->c->send, t->stage - 1);
    } else {
        own = done(m, TASK_forward, t->stage, t->micro);
        if (t->stage < last) {
            from = done(m, TASK_backward, t->stage + 1, t->micro);
            ns = at(m->c->send, t->stage);
        }
    }
    return from == UNKNOWN ? UNKNOWN : later(own, nnc_add_sat(from, ns));
}

/* Runs tasks of device d for as long as their operands are known; returns how many. */
static int advance(machine *m, int d, nnc_pipeline_time *out)
{
    int n = 0;
    for (; m->at[d] < m->p->n_task; n++, m->at[d]++) {
        const int i = m->at[d];
        const nnc_task *t = &m->p->task[d][i];
        const int64_t ready = arrival(m, t);
        if (ready == UNKNOWN)
            break;
        const int64_t start = nnc_max64(m->now[d], ready), ns = duration(m, t);
        if (!i)
            out->first[d] = start;
        out->start[d][i] = start;
        const int64_t end = nnc_add_sat(start, ns);
        out->end[d][i] = out->last[d] = end;
        out->busy[d] += ns;
        m->done[t->kind][(size_t)t->stage * (size_t)m->p->micro + (size_t)t->micro] = end;
        m->now[d] = nnc_add_sat(end, sending(m, t));
    }
    return n;
}

static bool prepare_machine(machine *m, nnc_arena *mine, nnc_arena *a, nnc_pipeline_time *out)
{
    const size_t n = (size_t)m->p->devices, tasks = n * (size_t)m->p->chunks * (size_t)m->p->micro;
    m->now = ARENA_NEW(mine, int64_t, n);
    m->at = ARENA_NEW(mine, int, n);
    bool ok = m->now && m->at;
    for (int k = 0; k < 3; k++) {
        m->done[k] = ARENA_NEW(mine, int64_t, tasks);
        ok = ok && m->done[k];
        for (size_t i = 0; ok && i < tasks; i++)
            m->done[k][i] = UNKNOWN;
    }
    int64_t **by_device[] = {&out->busy, &out->first, &out->last};
    for (size_t k = 0; k < NNC_COUNT(by_device); k++)
        ok = (*by_device[k] = ARENA_NEW(a, int64_t, n)) && ok;
    out->start = ARENA_NEW(a, int64_t *, n);
    out->end = ARENA_NEW(a, int64_t *, n);
    ok = ok && out->start && out->end;
    for (size_t d = 0; ok && d < n; d++) {
        out->start[d] = ARENA_NEW(a, int64_t, m->p->n_task);
        out->end[d] = ARENA_NEW(a, int64_t, m->p->n_task);
        ok = out->start[d] && out->end[d];
    }
    return ok;
}

nnc_status nnc_pipeline_run(const nnc_pipeline *p, const nnc_pipeline_costs *c, nnc_arena *a,
    nnc_pipeline_time *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) mine = {0};
    machine m = {.p = p, .c = c};
    *out = (nnc_pipeline_time){0};
    NNC_NEED(prepare_machine(&m, &mine, a, out), sink);
    int left = p->devices;
    for (bool moves = true; moves;) {
        moves = false;
        left = 0;
        for (int d = 0; d < p->devices; d++) {
            moves = advance(&m, d, out) > 0 || moves;
            left += m.at[d] < p->n_task;
        }
    }
    for (int d = 0; d < p->devices && left; d++)
        if (m.at[d] < p->n_task) {
            const nnc_task *t = &p->task[d][m.at[d]];
            return nnc_fail0(sink, NNC_E_BUG,
                "%s deadlocks: device %d waits before task %d (stage %d, micro-batch %d)",
                nnc_schedule_name(p->kind), d, m.at[d], t->stage, t->micro);
        }
    int64_t begin = INT64_MAX, end = 0;
    for (int d = 0; d < p->devices; d++) {
        begin = nnc_min64(begin, out->first[d]);
        end = nnc_max64(end, out->last[d]);
    }
    out->total = end - begin;
    return NNC_OK;
}

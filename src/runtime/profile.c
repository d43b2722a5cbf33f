/* runtime/profile.c -- times of single commands over several ranks: each rank times its own, and rank 0 puts them on its clock.
 *
 * Clocks of hosts differ. Rank 0 asks each rank for its time several times and takes the fastest answer, which was read about half way
 * between question and answer. The error is at most half of that time (some microseconds on one host, or over a fast network). */
#include "runtime/job.h"

enum { QUESTIONS = 16 };

/* *ahead: by how much the rank's clock is ahead of this one. */
static nnc_status compare_clocks(nnc_exec *e, int rank, int64_t *ahead)
{
    nnc_job *j = e->ranks->job;
    const order o = {.kind = OR_clock, .exec = e->ranks->id};
    int64_t fastest = INT64_MAX;
    NNC_TRY(nnc_job_tell(j, rank, &o, "comparing clocks"));
    for (int i = 0; i < QUESTIONS; i++) {
        int64_t theirs = 0;
        const int64_t asked = nnc_now_ns();
        NNC_TRY(nnc_comm_send(j->comm, NULL, 0, rank, TAG_data, "comparing clocks"));
        NNC_TRY(nnc_comm_recv(j->comm, &theirs, sizeof theirs, rank, TAG_data, "comparing clocks"));
        const int64_t answered = nnc_now_ns();
        if (answered - asked < fastest) {
            fastest = answered - asked;
            *ahead = theirs - (asked + fastest / 2);
        }
    }
    return NNC_OK;
}

nnc_status nnc_exec_follow_clock(nnc_exec *e)
{
    nnc_comm *c = e->ranks->job->comm;
    for (int i = 0; i < QUESTIONS; i++) {
        NNC_TRY(nnc_comm_recv(c, NULL, 0, 0, TAG_data, "comparing clocks"));
        const int64_t now = nnc_now_ns();
        NNC_TRY(nnc_comm_send(c, &now, sizeof now, 0, TAG_data, "comparing clocks"));
    }
    return NNC_OK;
}

/* time[2i], [2i + 1]: start and end of command from + i; -1 where it is another rank's. */
static void own_times(const nnc_exec *e, int32_t from, int32_t end, int64_t *time)
{
    const nnc_plan *p = e->p;
    for (int32_t i = from; i < end; i++)
        for (int k = 0; k < 2; k++) {
            const dev *d = &e->dev[p->cmd[i].device];
            const nnc_event *v = e->clock[2 * (i - p->end[SEC_init]) + k];
            time[2 * (i - from) + k] =
                nnc_exec_owns(e, p->cmd[i].device) && v ? d->api->event_ns(v) : -1;
        }
}

nnc_status nnc_exec_follow_times(nnc_exec *e, const order *o)
{
    const nnc_plan *p = e->p;
    if (o->item < SEC_main || o->item >= SEC__COUNT || o->offset < SEC_main ||
        o->offset > o->item || !e->clock)
        return NNC_E_BUG;
    const int32_t from = nnc_plan_first(p, (nnc_section)o->offset), n = p->end[o->item] - from;
    NNC_FREED int64_t *time = nnc_calloc(2 * (size_t)n + 1, sizeof *time);
    NNC_NEED(time, NULL);
    own_times(e, from, p->end[o->item], time);
    return nnc_comm_send(e->ranks->job->comm, time, 2 * (int64_t)n * (int64_t)sizeof *time, 0,
        TAG_data, "sending times of commands");
}

/* Another rank's times, on the clock of this one. */
static nnc_status take_times(nnc_exec *e, int rank, nnc_section first, nnc_section last,
    int64_t *time, int64_t *start_ns, int64_t *end_ns)
{
    nnc_job *j = e->ranks->job;
    const nnc_plan *p = e->p;
    const int32_t from = nnc_plan_first(p, first), n = p->end[last] - from;
    int64_t ahead = 0;
    NNC_TRY(compare_clocks(e, rank, &ahead));
    const order o = {.kind = OR_times, .exec = e->ranks->id, .item = last, .offset = first};
    NNC_TRY(nnc_job_tell(j, rank, &o, "asking for times of commands"));
    NNC_TRY(nnc_comm_recv(j->comm, time, 2 * (int64_t)n * (int64_t)sizeof *time, rank, TAG_data,
        "asking for times of commands"));
    for (int32_t i = 0; i < n; i++) {
        if (e->ranks->owner[p->cmd[from + i].device] != rank)
            continue;
        start_ns[i] = time[2 * i] < 0 ? -1 : time[2 * i] - ahead;
        end_ns[i] = time[2 * i + 1] < 0 ? -1 : time[2 * i + 1] - ahead;
    }
    return NNC_OK;
}

static nnc_status run_timed(nnc_exec *e, nnc_section first, nnc_section last, nnc_sink *sink)
{
    NNC_TRY(nnc_exec_clock_events(e, sink));
    e->timed = true;
    nnc_status st = first == SEC_main ? nnc_exec_run(e, sink) : NNC_OK;
    if (!st && last > SEC_main)
        st = nnc_exec_update(e, last == SEC_step, sink);
    if (!st)
        st = nnc_exec_sync(e, sink);
    e->timed = false;
    return st;
}

nnc_status nnc_exec_profile_ranks(nnc_exec *e, nnc_section first, nnc_section last,
    int64_t *start_ns, int64_t *end_ns, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const int32_t from = nnc_plan_first(p, first), n = p->end[last] - from;
    NNC_FREED int64_t *time = nnc_calloc(2 * (size_t)n + 1, sizeof *time);
    NNC_NEED(time, sink);
    NNC_TRY(run_timed(e, first, last, sink));
    own_times(e, from, p->end[last], time);
    for (int32_t i = 0; i < n; i++) {
        start_ns[i] = time[2 * i];
        end_ns[i] = time[2 * i + 1];
    }
    nnc_status st = NNC_OK;
    for (int r = 1; !st && r < nnc_comm_world(e->ranks->comm); r++)
        st = take_times(e, r, first, last, time, start_ns, end_ns);
    if (st)
        (void)nnc_comm_failure(e->ranks->job->comm, sink);
    return st;
}

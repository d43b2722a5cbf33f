/* runtime/profile.c -- profiles over ranks: every rank runs its commands between records of time, and rank 0 gathers the times. */
#include "runtime/job.h"
#include <string.h>

/* What a rank says of commands first..end-1: starts, then ends; -1 for those of other ranks. */
nnc_status nnc_exec_send_times(nnc_exec *e, nnc_section last)
{
    const int first = nnc_exec_first(e, last), n = e->p->end[last] - first;
    NNC_FREED int64_t *ns = nnc_malloc(((size_t)n * 2 + 1) * sizeof *ns);
    NNC_NEED(ns, NULL);
    if (n > 0 && !e->clock)
        return NNC_E_BUG; /* the run before was not profiled */
    nnc_exec_read_clock(e, first, e->p->end[last], ns, ns + n);
    return nnc_comm_send(e->ranks->job->comm, ns, (int64_t)n * 2 * (int64_t)sizeof *ns, 0, TAG_data,
        "sending the times of commands");
}

/* Rank 0: the times of a rank's commands. */
static nnc_status receive_times(
    nnc_exec *e, int rank, nnc_section last, int64_t *start_ns, int64_t *end_ns)
{
    nnc_job *j = e->ranks->job;
    const int first = nnc_exec_first(e, last), n = e->p->end[last] - first;
    const order o = {.kind = OR_times, .exec = e->ranks->id, .item = last};
    NNC_FREED int64_t *ns = nnc_malloc(((size_t)n * 2 + 1) * sizeof *ns);
    NNC_NEED(ns, NULL);
    NNC_TRY(nnc_job_tell(j, rank, &o, "asking for the times of commands"));
    NNC_TRY(nnc_comm_recv(j->comm, ns, (int64_t)n * 2 * (int64_t)sizeof *ns, rank, TAG_data,
        "receiving the times of commands"));
    for (int i = 0; i < n; i++)
        if (e->ranks->owner[e->p->cmd[first + i].device] == rank) {
            start_ns[i] = ns[i];
            end_ns[i] = ns[n + i];
        }
    return NNC_OK;
}

/* Runs a part of the commands on all ranks. */
static nnc_status profile_part(
    nnc_exec *e, nnc_section last, int64_t *start_ns, int64_t *end_ns, nnc_sink *sink)
{
    e->ranks->timed = true;
    nnc_status st = nnc_exec_order_run(e, last, sink);
    if (!st)
        st = nnc_exec_run_part(e, last, sink);
    e->ranks->timed = false;
    NNC_TRY(st);
    NNC_TRY(nnc_exec_sync_ranks(e, sink));
    nnc_exec_read_clock(e, nnc_exec_first(e, last), e->p->end[last], start_ns, end_ns);
    for (int r = 1; r < nnc_job_world(e->ranks->job) && !st; r++)
        st = receive_times(e, r, last, start_ns, end_ns);
    if (st)
        (void)nnc_comm_failure(e->ranks->job->comm, sink);
    return st;
}

nnc_status nnc_exec_profile_ranks(nnc_exec *e, nnc_section first, nnc_section last,
    int64_t *start_ns, int64_t *end_ns, nnc_sink *sink)
{
    const int main = e->p->end[SEC_main] - nnc_exec_first(e, SEC_main);
    if (e->ranks->rank != 0 || (first != SEC_main && (first != SEC_accumulate || last == SEC_main)))
        return nnc_fail0(sink, NNC_E_BUG, "rank %d: a profile of sections %d to %d", e->ranks->rank,
            first, last);
    if (first == SEC_main)
        NNC_TRY(profile_part(e, SEC_main, start_ns, end_ns, sink));
    if (last == SEC_main)
        return NNC_OK;
    const int at = first == SEC_main ? main : 0;
    return profile_part(e, last, start_ns + at, end_ns + at, sink);
}

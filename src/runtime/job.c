/* runtime/job.c -- rank 0 leads, the others follow: orders, what they carry, and their answers.
 *
 *   run    all followers run their part of main, or of what follows it, and answer with their status when it is done
 *   clock  the rank says what time it is, some times; times: and when its commands started and ended (profile.c)
 *   put    the owner of an input or state gets its data
 *   get    the owner of an output or state sends its data
 *   end    no more orders */
#include "runtime/job.h"
#include <stdarg.h>

nnc_status nnc_job_create(nnc_comm *c, nnc_job **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_job *j = nnc_calloc(1, sizeof *j);
    NNC_NEED(j, sink);
    nnc_status st = nnc_comm_split(c, &j->comm, sink);
    if (st) {
        nnc_arena_deinit(&j->arena);
        nnc_free(j);
        return st;
    }
    *out = j;
    return NNC_OK;
}

int nnc_job_rank(const nnc_job *j)
{
    return nnc_comm_rank(j->comm);
}

int nnc_job_world(const nnc_job *j)
{
    return nnc_comm_world(j->comm);
}

void nnc_job_watch(nnc_job *j, bool (*is_asked)(const volatile void *ctx), const volatile void *ctx)
{
    j->is_asked = is_asked;
    j->ctx = ctx;
}

bool nnc_job_stops(const nnc_job *j)
{
    return j->stops;
}

nnc_status nnc_job_tell(nnc_job *j, int to, const order *o, const char *what)
{
    return nnc_comm_send(j->comm, o, sizeof *o, to, TAG_order, what);
}

nnc_status nnc_job_pause(nnc_job *j)
{
    const order end = {.kind = OR_end};
    nnc_status st = NNC_OK;
    for (int r = 1; nnc_job_rank(j) == 0 && r < nnc_job_world(j) && !st; r++)
        st = nnc_job_tell(j, r, &end, "the end of the job");
    return st;
}

void nnc_job_destroy(nnc_job *j)
{
    if (!j)
        return;
    const nnc_status told = nnc_job_pause(j);
    (void)told; /* where it is broken, its user aborts it */
    nnc_comm_close(j->comm);
    nnc_arena_deinit(&j->arena);
    nnc_free(j);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

nnc_status nnc_exec_order_run(nnc_exec *e, nnc_section last, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    if (k->rank != 0)
        return NNC_OK;
    NNC_TRY(nnc_exec_sync_ranks(
        e, sink)); /* followers take an order when they are done with the last */
    const order o = {.kind = OR_run, .exec = k->id, .item = last, .timed = e->timed};
    for (int r = 1; r < nnc_job_world(k->job); r++)
        if (nnc_job_tell(k->job, r, &o, "starting a run") != NNC_OK) {
            (void)nnc_comm_failure(k->job->comm, sink);
            return NNC_E_PEER;
        }
    k->running = 1;
    return NNC_OK;
}

/* Keeps the first failure until somebody with a sink asks. */
static nnc_status keep(nnc_job *j, nnc_status st, const char *fmt, ...) NNC_PRINTF(3, 4);
static nnc_status keep(nnc_job *j, nnc_status st, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!j->untold)
        vsnprintf(j->words, sizeof j->words, fmt, args);
    va_end(args);
    j->untold = j->untold ? j->untold : st;
    return st;
}

bool nnc_job_failure(nnc_job *j, nnc_sink *sink)
{
    const nnc_status st = sink ? j->untold : NNC_OK;
    if (st) {
        (void)nnc_fail0(sink, st, "%s", j->words);
        j->untold = NNC_OK;
    }
    return st != NNC_OK;
}

/* The followers' reports of the run. */
static nnc_status collect(nnc_exec *e, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    nnc_status first = NNC_OK;
    for (int r = 1; k->running && r < nnc_job_world(k->job); r++) {
        run_report theirs = {0};
        nnc_status st = nnc_comm_recv(
            k->job->comm, &theirs, sizeof theirs, r, TAG_done, "waiting for the end of the run");
        if (st) {
            (void)nnc_comm_failure(k->job->comm, sink);
            first = first ? first : st;
            break;
        }
        k->job->stops = k->job->stops || theirs.stops;
        if (theirs.status && !first)
            first = keep(k->job, (nnc_status)theirs.status, "rank %d failed: %s", r,
                nnc_status_name((nnc_status)theirs.status));
    }
    k->running = 0;
    (void)nnc_job_failure(k->job, sink);
    return first;
}

/* A stream's command that failed for a lost rank has less to say than the communicator, and the same. */
nnc_status nnc_exec_sync_reported(nnc_exec *e, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    nnc_status st = nnc_exec_sync_own(e, k->said);
    if (!st)
        return NNC_OK;
    const bool lost = (st == NNC_E_PEER || st == NNC_E_NOMEM) && nnc_comm_failure(k->comm, sink);
    if (!lost && st != NNC_E_PEER)
        (void)keep(k->job, st, "rank %d: %s", k->rank,
            nnc_sink_count(k->said) ? nnc_sink_at(k->said, 0)->message : nnc_status_name(st));
    (void)nnc_job_failure(k->job, sink);
    nnc_sink_clear(k->said);
    return st;
}

nnc_status nnc_exec_sync_ranks(nnc_exec *e, nnc_sink *sink)
{
    NNC_TRY(nnc_exec_sync_reported(e, sink));
    NNC_TRY(nnc_job_told(e->ranks->comm, nnc_exec_finish_messages(e), sink));
    return e->ranks->rank == 0 ? collect(e, sink) : NNC_OK;
}

nnc_status nnc_exec_put_remote(nnc_exec *e, int32_t tensor, const void *data)
{
    exec_ranks *k = e->ranks;
    const nnc_ptensor *t = &e->p->tensor[tensor];
    const int64_t bytes = nnc_type_bytes(&t->type);
    const order o = {.kind = OR_put, .exec = k->id, .item = tensor, .bytes = bytes};
    if (k->rank != 0)
        return NNC_E_BUG;
    NNC_TRY(nnc_exec_sync_ranks(e, NULL));
    NNC_TRY(nnc_job_tell(k->job, k->owner[t->device], &o, t->name));
    return nnc_comm_send(k->job->comm, data, bytes, k->owner[t->device], TAG_data, t->name);
}

nnc_status nnc_exec_get_remote(
    nnc_exec *e, int32_t tensor, int64_t offset, int64_t bytes, void *data)
{
    exec_ranks *k = e->ranks;
    const nnc_ptensor *t = &e->p->tensor[tensor];
    const order o = {
        .kind = OR_get, .exec = k->id, .item = tensor, .offset = offset, .bytes = bytes};
    if (k->rank != 0)
        return NNC_E_BUG;
    NNC_TRY(nnc_exec_sync_ranks(e, NULL));
    NNC_TRY(nnc_job_tell(k->job, k->owner[t->device], &o, t->name));
    return nnc_comm_recv(k->job->comm, data, bytes, k->owner[t->device], TAG_data, t->name);
}

/* ---- the others ------------------------------------------------------------------------------ */

static nnc_status follow_run(nnc_exec *e, const order *o, nnc_sink *sink)
{
    e->timed = o->timed;
    if (e->timed)
        NNC_TRY(nnc_exec_clock_events(e, sink));
    nnc_status st = nnc_exec_run_part(e, (nnc_section)o->item, sink);
    nnc_status synced = nnc_exec_sync_ranks(e, st ? NULL : sink);
    st = st ? st : synced;
    nnc_job *j = e->ranks->job;
    const run_report said = {st, j->is_asked && j->is_asked(j->ctx)};
    nnc_status told =
        nnc_comm_send(j->comm, &said, sizeof said, 0, TAG_done, "reporting the end of a run");
    return st ? st : told;
}

/* The same for a device whose memory the host does not see. */
static nnc_status follow_hidden(
    nnc_job *j, const dev *d, const order *o, char *at, const char *what)
{
    NNC_FREED char *host = nnc_malloc((size_t)o->bytes + 1);
    nnc_status st = host ? NNC_OK : NNC_E_NOMEM;
    if (!st && o->kind == OR_put) {
        st = nnc_comm_recv(j->comm, host, o->bytes, 0, TAG_data, what);
        st = st ? st : d->api->upload(d->stream[0], at, host, o->bytes);
        return st ? st : d->api->sync(d->stream[0], NULL);
    }
    st = st ? st : d->api->download(d->stream[0], host, at, o->bytes);
    st = st ? st : d->api->sync(d->stream[0], NULL);
    return st ? st : nnc_comm_send(j->comm, host, o->bytes, 0, TAG_data, what);
}

/* A tensor's data between rank 0 and this rank's device, whose streams are idle. */
static nnc_status follow_copy(nnc_exec *e, const order *o)
{
    nnc_job *j = e->ranks->job;
    const nnc_ptensor *t = o->item >= 0 && o->item < e->p->n_tensor ? &e->p->tensor[o->item] : NULL;
    if (!t || !nnc_exec_owns(e, t->device) || o->offset < 0 || o->bytes < 0 ||
        o->offset > t->bytes || o->bytes > t->bytes - o->offset)
        return NNC_E_BUG;
    char *at = (char *)nnc_exec_address(e, o->item) + o->offset;
    const dev *d = &e->dev[t->device];
    if (!d->api->host_memory)
        return follow_hidden(j, d, o, at, t->name);
    return o->kind == OR_put ? nnc_comm_recv(j->comm, at, o->bytes, 0, TAG_data, t->name)
                             : nnc_comm_send(j->comm, at, o->bytes, 0, TAG_data, t->name);
}

nnc_status nnc_job_follow(nnc_job *j, nnc_sink *sink)
{
    for (;;) {
        order o;
        nnc_status st =
            nnc_comm_recv(j->comm, &o, sizeof o, 0, TAG_order, "waiting for the next run");
        if (!st && o.kind == OR_end)
            return NNC_OK;
        nnc_exec *e = !st && o.exec >= 0 && o.exec < j->n_exec ? j->exec[o.exec] : NULL;
        if (!st && !e)
            return nnc_fail0(sink, NNC_E_PEER,
                "rank %d: rank 0 runs a plan that this rank has not loaded", nnc_job_rank(j));
        if (!st)
            st = o.kind == OR_run     ? follow_run(e, &o, sink)
                 : o.kind == OR_clock ? nnc_exec_follow_clock(e)
                 : o.kind == OR_times ? nnc_exec_follow_times(e, &o)
                                      : follow_copy(e, &o);
        NNC_TRY(nnc_job_told(j->comm, st, sink));
    }
}

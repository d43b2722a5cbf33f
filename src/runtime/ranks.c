/* runtime/ranks.c -- one plan over several ranks. The plan is the one that a process would execute alone. Each rank executes the commands
 * of its own devices, in the plan's order. Connections between devices of two ranks become messages whose tag is the command's number:
 *
 *   copy from an own device to another rank's   the data; its message begins on the copy's stream, which goes on (sends.c)
 *   copy from another rank's to an own device   received into place; begun when the part of the run begins
 *   wait for an event of another rank           a message without data, sent after the record; and the copies that come before the record
 *                                               in the plan are waited for
 *
 * A copy may be received from the beginning on, as in one process: its data comes when its stream comes to it. By then nobody uses the
 * bytes that it overwrites: the verifier has shown that by the events, which are messages here. Nothing deadlocks: a command waits only
 * for commands before it in the plan. So of those that are not done the first in the plan can always go on.
 *
 * GPUs do the same through pinned memory (progress.c).
 *
 * Parts of a run (main; what follows it) begin when this rank's streams and messages are done with the one before. */
#include "runtime/job.h"
#include "runtime/nccl.h"
#include "runtime/progress.h"
#include <string.h>

static int owner_of(const nnc_exec *e, int32_t tensor)
{
    return e->ranks->owner[e->p->tensor[tensor].device];
}

/* ---- joining --------------------------------------------------------------------------------- */

static void describe(crossing *x, const nnc_cmd *c, const char *does)
{
    snprintf(
        x->what, sizeof x->what, "%.60s: %s", c->layers && *c->layers ? c->layers : "plan", does);
}

static nnc_status alloc_ranks(nnc_exec *e, exec_ranks *k, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    k->owner = ARENA_NEW(&e->arena, int, p->n_device);
    k->first_wait = ARENA_NEW(&e->arena, int, p->n_event + 1);
    NNC_NEED(k->owner && k->first_wait &&
                 ARENA_ARRAYS(&e->arena, p->n_cmd + 1, k->at, k->recv, k->recv_cmd, k->first_lent,
                     k->n_lent, k->lent, k->signal, k->signalled, k->next_wait),
        sink);
    memset(k->first_wait, 0xff, ((size_t)p->n_event + 1) * sizeof *k->first_wait);
    for (int d = 0; d < p->n_device; d++)
        k->owner[d] = nnc_rank_of(d, p->n_device, nnc_comm_world(k->comm));
    return NNC_OK;
}

/* Does the command just before the record, on its stream, send data to this rank? */
static bool told_by_copy(const nnc_exec *e, int32_t record, int rank)
{
    const nnc_plan *p = e->p;
    const nnc_cmd *r = &p->cmd[record];
    for (int32_t i = record; i-- > 0;) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->device == r->device && c->stream == r->stream)
            return c->kind == CMD_copy && owner_of(e, c->arg[1]) == rank;
    }
    return false;
}

static void find_copy(nnc_exec *e, int32_t i)
{
    exec_ranks *k = e->ranks;
    const nnc_cmd *c = &e->p->cmd[i];
    const int from = k->owner[c->device], to = owner_of(e, c->arg[1]);
    crossing *x = &k->at[i];
    if (from == to)
        return;
    describe(x, c, "copy to another rank");
    x->crosses = from == k->rank;
    x->peer = to;
    if (to != k->rank)
        return;
    k->recv_cmd[k->n_recv] = i;
    k->recv[k->n_recv++] =
        (nnc_message){.bytes = e->p->tensor[c->arg[1]].bytes, .peer = from, .tag = i, .done = true};
}

static void find_wait(nnc_exec *e, int32_t i)
{
    exec_ranks *k = e->ranks;
    const nnc_cmd *c = &e->p->cmd[i];
    const int32_t record = e->record[c->item];
    const int from = k->owner[e->p->cmd[record].device], to = k->owner[c->device];
    crossing *x = &k->at[i];
    if (from == to)
        return;
    x->is_told = told_by_copy(e, record, to);
    x->crosses = to == k->rank;
    x->peer = from;
    while (x->n_recv < k->n_recv && k->recv_cmd[x->n_recv] < record)
        x->n_recv++;
    describe(x, &e->p->cmd[record ? record - 1 : 0], "waiting for another rank");
    if (from == k->rank && !x->is_told) {
        k->next_wait[i] = k->first_wait[c->item];
        k->first_wait[c->item] = i;
        k->signal[i] = (nnc_message){.peer = to, .tag = i, .sends = true, .done = true};
        k->signalled[k->n_signalled++] = i;
    }
}

static nnc_status find_crossings(nnc_exec *e, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    const nnc_plan *p = e->p;
    for (int32_t i = 0; i < p->n_cmd; i++) {
        k->at[i] = (crossing){.e = e, .cmd = i, .event = -1, .lender = -1};
        k->next_wait[i] = -1;
        if (p->cmd[i].kind == CMD_record)
            e->record[p->cmd[i].item] = i;
    }
    for (int32_t i = 0; i < p->n_cmd; i++) {
        const int before = k->n_recv;
        if (p->cmd[i].kind == CMD_copy)
            find_copy(e, i);
        if (p->cmd[i].kind == CMD_wait)
            find_wait(e, i);
        if (i < p->end[SEC_init] && (k->at[i].crosses || k->n_recv > before))
            return nnc_fail0(sink, NNC_E_BUG,
                "plan: command %d: weights are prepared without other ranks, and it needs one", i);
    }
    return NNC_OK;
}

/* ---- memory of receives ----------------------------------------------------------------------- */

bool nnc_exec_overlap(const nnc_ptensor *a, const nnc_ptensor *b)
{
    return a->device == b->device && a->space == b->space && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static bool uses(const nnc_plan *p, const nnc_cmd *c, const nnc_ptensor *x)
{
    bool yes = c->work >= 0 && nnc_exec_overlap(&p->tensor[c->work], x);
    for (int a = 0; a < c->n_arg && !yes; a++)
        yes = nnc_exec_overlap(&p->tensor[c->arg[a]], x);
    return yes;
}

/* Finds the last command of each stream that uses the memory of receive r before it comes. Finds all sends from that memory, too, which
 * their streams do not wait for. */
static nnc_status find_lenders_of(nnc_exec *e, int r, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    const nnc_plan *p = e->p;
    const int32_t cmd = k->recv_cmd[r];
    const nnc_ptensor *x = &p->tensor[p->cmd[cmd].arg[1]];
    const int32_t first = p->end[cmd < p->end[SEC_main] ? SEC_init : SEC_main];
    NNC_FREED bool *seen = nnc_calloc((size_t)p->device[x->device].streams, sizeof *seen);
    NNC_NEED(seen, sink);
    k->first_lent[r] = (int)k->n_lender;
    for (int32_t i = cmd; i-- > first;) {
        const nnc_cmd *c = &p->cmd[i];
        const bool sends = nnc_sends_holds(k, i);
        if (c->device != x->device || (seen[c->stream] && !sends) || !uses(p, c, x))
            continue;
        seen[c->stream] = true;
        NNC_NEED(ARENA_ROOM(&e->arena, k->lender, k->cap_lender, k->n_lender + 1), sink);
        k->lender[k->n_lender] = (struct lender){i, r, k->at[i].lender};
        k->at[i].lender = (int)k->n_lender++;
        k->n_lent[r]++;
    }
    return NNC_OK;
}

nnc_status nnc_exec_find_lenders(nnc_exec *e, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    for (int r = 0; k && r < k->n_recv; r++)
        if (e->dev[e->p->tensor[e->p->cmd[k->recv_cmd[r]].arg[1]].device].api->host_memory ||
            nnc_nccl_copies(e, k->recv_cmd[r])) /* others come to pinned memory */
            NNC_TRY(find_lenders_of(e, r, sink));
    return NNC_OK;
}

nnc_status nnc_exec_lend(nnc_exec *e, int cmd)
{
    exec_ranks *k = e->ranks;
    for (int i = k->at[cmd].lender; i >= 0; i = k->lender[i].next) {
        const int r = k->lender[i].recv;
        if (r >= k->begun && r < k->end && atomic_fetch_sub(&k->lent[r], 1) == 1)
            NNC_TRY(nnc_comm_start(k->comm, &k->recv[r], "copies from other ranks"));
    }
    return NNC_OK;
}

static nnc_status run_lent(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    (void)args, (void)work;
    return nnc_exec_lend(x->e, x->cmd);
}

nnc_status nnc_ranks_gather(
    exec_ranks *k, const void *mine, void *all, int64_t bytes, const char *what)
{
    nnc_comm *c = k->job->comm;
    if (k->rank != 0)
        return nnc_comm_send(c, mine, bytes, 0, TAG_join, what);
    memcpy(all, mine, (size_t)bytes);
    for (int r = 1; r < nnc_comm_world(c); r++)
        NNC_TRY(nnc_comm_recv(c, (char *)all + r * bytes, bytes, r, TAG_join, what));
    return NNC_OK;
}

nnc_status nnc_ranks_spread(exec_ranks *k, void *data, int64_t bytes, const char *what)
{
    nnc_comm *c = k->job->comm;
    if (k->rank != 0)
        return nnc_comm_recv(c, data, bytes, 0, TAG_join, what);
    for (int r = 1; r < nnc_comm_world(c); r++)
        NNC_TRY(nnc_comm_send(c, data, bytes, r, TAG_join, what));
    return NNC_OK;
}

/* Rank 0 collects `mine` of all ranks, and they get its own. all: by rank, on rank 0. */
static nnc_status exchange(
    exec_ranks *k, const void *mine, void *all, void *first, int64_t bytes, const char *what)
{
    memcpy(first, mine, (size_t)bytes);
    NNC_TRY(nnc_ranks_gather(k, mine, all, bytes, what));
    return nnc_ranks_spread(k, first, bytes, what);
}

/* This rank is 0, or `rank` itself. */
static nnc_status fail_plan(
    nnc_exec *e, int rank, nnc_hash128 theirs, nnc_hash128 first, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) why = {0};
    char a[33], b[33];
    nnc_hash_hex(theirs, a);
    nnc_hash_hex(first, b);
    const nnc_status st = nnc_ranks_difference(e->ranks, e->p, rank, &why);
    if (st)
        nnc_text_clear(&why); /* the plans differ all the same */
    return nnc_fail0(sink, NNC_E_PEER,
        "rank %d has another plan (%s) than rank 0 (%s)%s; all ranks take the same model, flags "
        "and version of nnc; on hosts that differ, name the machine: --target=FILE --threads=N",
        rank, a, b, nnc_text_str(&why));
}

static nnc_status compare_plans(nnc_exec *e, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    const int world = nnc_comm_world(k->comm);
    const nnc_hash128 mine = nnc_plan_hash(e->p);
    nnc_hash128 first;
    nnc_status st = NNC_OK;
    NNC_FREED nnc_hash128 *all = nnc_calloc((size_t)world, sizeof *all);
    NNC_NEED(all && (mine.lo || mine.hi), sink);
    NNC_TRY(exchange(k, &mine, all, &first, sizeof mine, "comparing plans"));
    for (int r = 1; k->rank == 0 && r < world; r++)
        if (all[r].lo != mine.lo || all[r].hi != mine.hi)
            st = fail_plan(e, r, all[r], mine, sink);
    return mine.lo == first.lo && mine.hi == first.hi ? st
                                                      : fail_plan(e, k->rank, mine, first, sink);
}

static nnc_status check_devices(const nnc_exec *e, const exec_ranks *k, nnc_sink *sink)
{
    const int world = nnc_comm_world(k->comm);
    if (e->p->n_device < world)
        return nnc_fail0(sink, NNC_E_USAGE,
            "%d ranks, but a plan of %d device%s: expected a device or more for each rank "
            "(--devices=%d, and layers that name them)",
            world, e->p->n_device, e->p->n_device == 1 ? "" : "s", world);
    if (e->p->n_cmd > nnc_comm_most_tag(k->comm))
        return nnc_fail0(
            sink, NNC_E_FIT, "the plan's %d commands are more than MPI has tags", e->p->n_cmd);
    return NNC_OK;
}

nnc_status nnc_exec_join(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink)
{
    nnc_job *j = o->job;
    if (!j)
        return NNC_OK;
    exec_ranks *k = ARENA_NEW(&e->arena, exec_ranks, 1);
    NNC_NEED(k && ARENA_ROOM(&j->arena, j->exec, j->cap, j->n_exec + 1), sink);
    k->job = j;
    k->rank = nnc_job_rank(j);
    k->id = j->n_exec++; /* the same on all ranks, also where the rest fails on one */
    j->exec[k->id] = NULL;
    NNC_TRY(nnc_comm_split(j->comm, &k->comm, sink));
    nnc_status st = alloc_ranks(e, k, sink);
    if (st) {
        nnc_comm_close(k->comm);
        return st;
    }
    j->exec[k->id] = e;
    e->ranks = k; /* from here on nnc_exec_leave takes it out of the job and closes it */
    st = compare_plans(e, sink);
    if (st == NNC_E_PEER)
        (void)nnc_comm_failure(k->comm, sink);
    NNC_TRY(st);
    NNC_TRY(check_devices(e, k, sink));
    k->said = nnc_sink_create();
    NNC_NEED(k->said, sink);
    return find_crossings(e, sink);
}

nnc_status nnc_exec_meet(nnc_exec *e, nnc_status loaded, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    int32_t mine = loaded, first = 0;
    if (!k || loaded == NNC_E_PEER)
        return loaded;
    const int world = nnc_comm_world(k->comm);
    NNC_FREED int32_t *theirs = nnc_calloc((size_t)world, sizeof *theirs);
    NNC_NEED(theirs, sink);
    const nnc_status st = exchange(k, &mine, theirs, &first, sizeof mine, "loading the weights");
    NNC_TRY(nnc_job_told(k->comm, st, sink));
    for (int r = 1; k->rank == 0 && r < world; r++)
        if (theirs[r] && !loaded)
            return nnc_fail0(sink, NNC_E_PEER, "rank %d could not load its part of the model: %s",
                r, nnc_status_name((nnc_status)theirs[r]));
    if (first && !loaded && k->rank)
        return nnc_fail0(sink, NNC_E_PEER, "rank 0 could not load its part of the model: %s",
            nnc_status_name((nnc_status)first));
    return loaded;
}

void nnc_exec_leave(nnc_exec *e)
{
    if (!e->ranks)
        return;
    e->ranks->job->exec[e->ranks->id] = NULL;
    nnc_comm_close(e->ranks->comm);
    nnc_free(e->ranks->stage);
    nnc_sink_destroy(e->ranks->said);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Work of streams. It always runs: where a command failed, the others still get their messages, and the failure is reported by the
 * stream that had it. */
static nnc_status run_send(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    const nnc_plan *p = x->e->p;
    (void)work;
    return nnc_comm_send(x->e->ranks->comm, args[0], p->tensor[p->cmd[x->cmd].arg[0]].bytes,
        x->peer, x->cmd, x->what);
}

static nnc_status run_wait(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    (void)args, (void)work;
    if (!x->is_told)
        NNC_TRY(nnc_comm_recv(k->comm, NULL, 0, x->peer, x->cmd, x->what));
    const int n = x->n_recv - k->begun;
    return n > 0 ? nnc_comm_finish(k->comm, k->recv + k->begun, n, x->what) : NNC_OK;
}

/* Signals are begun only: where the other rank first waits for a later command of this stream, it takes them later. */
static nnc_status run_signal(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    (void)args, (void)work;
    for (int w = k->first_wait[x->event]; w >= 0; w = k->next_wait[w])
        if (w < k->part_end)
            NNC_TRY(nnc_comm_start(k->comm, &k->signal[w], "signalling that work is done"));
    return NNC_OK;
}

static nnc_status submit(
    nnc_exec *e, crossing *x, nnc_status (*run)(void *handle, void *const *args, void *work))
{
    const nnc_cmd *c = &e->p->cmd[x->cmd];
    const nnc_work w = {.run = run,
        .handle = x,
        .args = e->use->arg + e->first_arg[x->cmd],
        .n_arg = c->n_arg,
        .name = c->layers && *c->layers ? c->layers : NULL,
        .bytes = c->bytes,
        .op_class = "copy",
        .always = true};
    return e->dev[c->device].api->launch(e->dev[c->device].stream[c->stream], &w);
}

nnc_status nnc_exec_submit_crossing(
    nnc_exec *e, int cmd, nnc_status (*run)(void *handle, void *const *args, void *work))
{
    return submit(e, &e->ranks->at[cmd], run);
}

bool nnc_exec_between_ranks(const nnc_exec *e, int32_t cmd)
{
    const nnc_cmd *c = &e->p->cmd[cmd];
    return e->ranks && c->kind == CMD_copy && e->ranks->owner[c->device] != owner_of(e, c->arg[1]);
}

bool nnc_exec_crosses(const nnc_exec *e, int cmd)
{
    return e->ranks && e->ranks->at[cmd].crosses;
}

nnc_status nnc_exec_issue_across(nnc_exec *e, int cmd)
{
    if (e->ranks->send_of[cmd] >= 0)
        return nnc_sends_submit(e, cmd);
    return submit(e, &e->ranks->at[cmd], e->p->cmd[cmd].kind == CMD_copy ? run_send : run_wait);
}

nnc_status nnc_exec_signal(nnc_exec *e, int cmd)
{
    const int event = e->p->cmd[cmd].item;
    if (!e->ranks || e->ranks->first_wait[event] < 0)
        return NNC_OK;
    e->ranks->at[cmd].event = event;
    return submit(e, &e->ranks->at[cmd], run_signal);
}

nnc_status nnc_exec_lent(nnc_exec *e, int cmd)
{
    const bool own = e->dev[e->p->cmd[cmd].device].api->host_memory; /* of a GPU: progress.c */
    const bool later = nnc_sends_holds(e->ranks, cmd); /* when its message is done: sends.c */
    return e->ranks->at[cmd].lender < 0 || !own || later ? NNC_OK
                                                         : submit(e, &e->ranks->at[cmd], run_lent);
}

static nnc_status run_poke(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    (void)args, (void)work;
    (void)nnc_comm_poke(k->comm, k->recv + k->begun, k->end - k->begun);
    nnc_sends_look(x->e);
    return NNC_OK;
}

/* MPI moves data only while a rank calls it, and a rank that sends a large tensor waits until the receiver has taken it. So a device
 * that computes looks for messages now and then. Rates are a core's, roughly; a look takes less than a microsecond. */
nnc_status nnc_exec_poke(nnc_exec *e, int cmd)
{
    enum { EVERY_NS = 20000, FLOPS_PER_NS = 50, BYTES_PER_NS = 10 };
    exec_ranks *k = e->ranks;
    const nnc_cmd *c = &e->p->cmd[cmd];
    if ((k->begun == k->end && k->sent_begun == k->sent_end) || !e->dev[c->device].api->host_memory)
        return NNC_OK;
    k->unpolled_ns += nnc_max64(c->flops / FLOPS_PER_NS, c->bytes / BYTES_PER_NS);
    if (k->unpolled_ns < EVERY_NS)
        return NNC_OK;
    k->unpolled_ns = 0;
    return submit(e, &k->at[cmd], run_poke);
}

nnc_status nnc_exec_finish_messages(nnc_exec *e)
{
    exec_ranks *k = e->ranks;
    const int n = k->end - k->begun;
    nnc_status st =
        n > 0 ? nnc_comm_finish(k->comm, k->recv + k->begun, n, "copies from other ranks") : NNC_OK;
    for (int i = 0; i < k->n_signalled && !st; i++)
        st = nnc_comm_finish(
            k->comm, &k->signal[k->signalled[i]], 1, "signalling that work is done");
    if (e->progress && !st)
        st = nnc_progress_finish(e);
    k->begun = k->end;
    return st;
}

/* Begins the copies that arrive in commands first..end-1, except into memory that is in use. */
static nnc_status begin_receives(nnc_exec *e, int32_t first, int32_t end)
{
    exec_ranks *k = e->ranks;
    k->part_end = end;
    nnc_sends_begin(e, first, end);
    k->begun = 0;
    while (k->begun < k->n_recv && k->recv_cmd[k->begun] < first)
        k->begun++;
    for (k->end = k->begun; k->end < k->n_recv && k->recv_cmd[k->end] < end; k->end++) {
        nnc_message *m = &k->recv[k->end];
        void *pinned = e->progress ? nnc_progress_receive(e, k->end) : NULL;
        m->data = pinned ? pinned : nnc_exec_address(e, e->p->cmd[k->recv_cmd[k->end]].arg[1]);
        m->done = nnc_nccl_copies(e, k->recv_cmd[k->end]);
        m->request = NULL;
        if (m->done)
            continue;
        atomic_store(&k->lent[k->end], k->n_lent[k->end]);
        if (!k->n_lent[k->end])
            NNC_TRY(nnc_comm_start(k->comm, m, "copies from other ranks"));
    }
    return NNC_OK;
}

nnc_status nnc_exec_run_part(nnc_exec *e, nnc_section last, nnc_sink *sink)
{
    int32_t at = nnc_exec_first(e, last);
    NNC_TRY(nnc_exec_sync_reported(e, sink));
    nnc_status st = nnc_exec_finish_messages(e);
    if (!st)
        st = begin_receives(e, at, e->p->end[last]);
    if (!st)
        st = nnc_exec_issue_part(e, last, &at);
    const nnc_status ended = nnc_sends_end(e);
    st = st ? st : ended;
    return st && !nnc_comm_failure(e->ranks->comm, sink) ? nnc_exec_refused(e, st, at, "run", sink)
                                                         : st;
}

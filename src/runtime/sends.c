/* runtime/sends.c -- copies to other ranks that do not hold their stream. MPI takes a large message only when the receiver looks for it,
 * and a receiver that computes looks between two commands. A sender that waited for it would lose a command's time for each message.
 *
 * So the copy begins its message, and the stream goes on. Planned memory is mostly used again soon. Where the part does so, a message of up
 * to 1 MiB is copied to a block of its own first, 16 MiB in all. Until the message of another is done, nobody writes what it reads:
 *
 *   commands of this rank that overwrite it      wait for the message first: of each stream the first such command
 *   copies from other ranks into that memory     their receives begin when the message is done (the copy is one of their lenders)
 *   the end of the part                          each stream waits for what it has sent
 *
 * Nothing deadlocks. All of these come after the copy in the plan. Whoever waits for a message looks at all sends meanwhile, and begins the
 * receives that waited for them. So of the commands and messages that are not done, the first in the plan can still always go on.
 *
 * CPUs only: GPUs copy to pinned memory first (progress.c). */
#include "runtime/job.h"
#include <string.h>

enum { MOST_STAGED = 1 << 20, ALL_STAGED = 16 << 20 };

struct sent {
    int32_t cmd;
    nnc_message m;
    int64_t staged; /* its place in the block; -1: it is sent from where it is */
    bool begun; /* in this part; its stream's */
    _Atomic bool settled; /* done, and the receives that waited for it have one less to wait for */
};

/* A command's list of sends. */
struct held {
    int sent, next; /* next: -1 */
};

/* ---- which wait for which ----------------------------------------------------------------------- */

static int32_t part_end(const nnc_plan *p, int32_t cmd)
{
    return cmd < p->end[SEC_main] ? p->end[SEC_main] : p->n_cmd;
}

static int lane_of(const nnc_plan *p, const nnc_cmd *c)
{
    int lane = c->stream;
    for (int d = 0; d < c->device; d++)
        lane += p->device[d].streams;
    return lane;
}

static bool overwrites(const nnc_plan *p, const nnc_cmd *c, const nnc_ptensor *x)
{
    bool yes = c->work >= 0 && nnc_exec_overlap(&p->tensor[c->work], x);
    for (int a = nnc_plan_first_written(p, c); a < c->n_arg && !yes; a++)
        yes = nnc_exec_overlap(&p->tensor[c->arg[a]], x);
    return yes;
}

/* Does the part use the memory again, for results of this rank or receives? */
static bool is_reused(const nnc_exec *e, int32_t cmd)
{
    const nnc_plan *p = e->p;
    const int32_t end = part_end(p, cmd);
    const nnc_ptensor *x = &p->tensor[p->cmd[cmd].arg[0]];
    bool yes = false;
    for (int32_t i = cmd + 1; i < end && !yes; i++)
        yes = overwrites(p, &p->cmd[i], x);
    return yes;
}

/* The first command of the part that overwrites what send s reads, one for each stream. */
static nnc_status find_held(nnc_exec *e, int s, bool *seen, int n_lane, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    const nnc_plan *p = e->p;
    const int32_t cmd = k->sent[s].cmd, end = part_end(p, cmd);
    const nnc_ptensor *x = &p->tensor[p->cmd[cmd].arg[0]];
    int left = n_lane;
    memset(seen, 0, (size_t)n_lane * sizeof *seen);
    for (int32_t i = cmd + 1; i < end && left > 0; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (!nnc_exec_owns(e, c->device) || !overwrites(p, c, x))
            continue;
        const int lane = lane_of(p, c);
        if (seen[lane])
            continue;
        seen[lane] = true;
        left--;
        NNC_NEED(ARENA_ROOM(&e->arena, k->held, k->cap_held, k->n_held + 1), sink);
        k->held[k->n_held] = (struct held){s, k->first_held[i]};
        k->first_held[i] = (int)k->n_held++;
    }
    return NNC_OK;
}

static void look(void *e)
{
    nnc_sends_look(e);
}

/* The copies to other ranks; *bytes: of the block. */
static void list_sends(nnc_exec *e, bool host, bool stage, int64_t *bytes)
{
    exec_ranks *k = e->ranks;
    const nnc_plan *p = e->p;
    *bytes = 0;
    for (int32_t i = 0; i < p->n_cmd; i++) {
        k->send_of[i] = k->first_held[i] = -1;
        if (!host || p->cmd[i].kind != CMD_copy || !k->at[i].crosses)
            continue;
        struct sent *s = &k->sent[k->n_sent];
        k->send_of[i] = k->n_sent++;
        s->cmd = i;
        s->m = (nnc_message){.bytes = p->tensor[p->cmd[i].arg[0]].bytes,
            .peer = k->at[i].peer,
            .tag = i,
            .sends = true,
            .done = true};
        const bool room = stage && s->m.bytes <= MOST_STAGED && *bytes + s->m.bytes <= ALL_STAGED;
        s->staged = room && is_reused(e, i) ? *bytes : -1;
        *bytes += s->staged < 0 ? 0 : nnc_align_up(s->m.bytes, 64);
    }
}

nnc_status nnc_sends_find(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink)
{
    exec_ranks *k = e->ranks;
    const nnc_plan *p = e->p;
    int n_lane = 0;
    bool host = true;
    int64_t bytes;
    if (!k)
        return NNC_OK;
    for (int d = 0; d < p->n_device; d++) {
        host = host && (!nnc_exec_owns(e, d) || e->dev[d].api->host_memory);
        n_lane += p->device[d].streams;
    }
    k->send_of = ARENA_NEW(&e->arena, int, p->n_cmd + 1);
    k->first_held = ARENA_NEW(&e->arena, int, p->n_cmd + 1);
    k->sent = ARENA_NEW(&e->arena, struct sent, p->n_cmd + 1);
    NNC_FREED bool *seen = nnc_calloc((size_t)n_lane, sizeof *seen);
    NNC_NEED(k->send_of && k->first_held && k->sent && seen, sink);
    list_sends(e, host, !o->no_stage, &bytes);
    if (bytes)
        NNC_NEED(k->stage = nnc_aligned_alloc(64, (size_t)bytes), sink);
    for (int s = 0; s < k->n_sent; s++)
        if (k->sent[s].staged < 0)
            NNC_TRY(find_held(e, s, seen, n_lane, sink));
    if (k->n_sent)
        nnc_comm_while_waiting(k->comm, look, e);
    return NNC_OK;
}

bool nnc_sends_holds(const exec_ranks *k, int cmd)
{
    return k->send_of[cmd] >= 0 && k->sent[k->send_of[cmd]].staged < 0;
}

/* ---- messages ----------------------------------------------------------------------------------- */

void nnc_sends_begin(nnc_exec *e, int32_t first, int32_t end)
{
    exec_ranks *k = e->ranks;
    k->sent_begun = 0;
    while (k->sent_begun < k->n_sent && k->sent[k->sent_begun].cmd < first)
        k->sent_begun++;
    for (k->sent_end = k->sent_begun; k->sent_end < k->n_sent && k->sent[k->sent_end].cmd < end;
         k->sent_end++) {
        struct sent *s = &k->sent[k->sent_end];
        s->begun = s->m.done = false;
        s->m.request = NULL;
        atomic_store(&s->settled, false);
    }
    atomic_store(&k->in_flight, 0);
}

static nnc_status run_begin(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    struct sent *s = &k->sent[k->send_of[x->cmd]];
    (void)work;
    s->m.data = s->staged < 0 ? args[0] : k->stage + s->staged;
    if (s->staged >= 0)
        memcpy(s->m.data, args[0], (size_t)s->m.bytes);
    s->begun = true;
    atomic_fetch_add(&k->in_flight, 1);
    return nnc_comm_start(k->comm, &s->m, x->what);
}

nnc_status nnc_sends_submit(nnc_exec *e, int cmd)
{
    return nnc_exec_submit_crossing(e, cmd, run_begin);
}

/* Its message is done: the receives that waited for it have one less to wait for. */
static nnc_status settle(nnc_exec *e, struct sent *s)
{
    if (atomic_exchange(&s->settled, true))
        return NNC_OK;
    atomic_fetch_sub(&e->ranks->in_flight, 1);
    return s->staged < 0 ? nnc_exec_lend(e, s->cmd) : NNC_OK;
}

static nnc_status finish(nnc_exec *e, struct sent *s)
{
    exec_ranks *k = e->ranks;
    if (!atomic_load(&s->settled))
        NNC_TRY(nnc_comm_finish(k->comm, &s->m, 1, k->at[s->cmd].what));
    return settle(e, s);
}

void nnc_sends_look(nnc_exec *e)
{
    exec_ranks *k = e->ranks;
    if (!atomic_load(&k->in_flight))
        return;
    for (int i = k->sent_begun; i < k->sent_end; i++) {
        struct sent *s = &k->sent[i];
        /* a failure is found by whoever waits */
        if (!atomic_load(&s->settled) && nnc_comm_poke(k->comm, &s->m, 1))
            (void)settle(e, s);
    }
}

static nnc_status run_before(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    (void)args, (void)work;
    for (int h = k->first_held[x->cmd]; h >= 0; h = k->held[h].next)
        NNC_TRY(finish(x->e, &k->sent[k->held[h].sent]));
    return NNC_OK;
}

nnc_status nnc_sends_before(nnc_exec *e, int cmd)
{
    return !e->ranks || e->ranks->first_held[cmd] < 0
               ? NNC_OK
               : nnc_exec_submit_crossing(e, cmd, run_before);
}

/* The end of a stream's part: what it has sent is done. */
static nnc_status run_end(void *handle, void *const *args, void *work)
{
    const crossing *x = handle;
    exec_ranks *k = x->e->ranks;
    const nnc_cmd *last = &x->e->p->cmd[x->cmd];
    nnc_status st = NNC_OK;
    (void)args, (void)work;
    for (int i = k->sent_begun; i < k->sent_end && !st; i++) {
        const nnc_cmd *c = &x->e->p->cmd[k->sent[i].cmd];
        if (c->device == last->device && c->stream == last->stream && k->sent[i].begun)
            st = finish(x->e, &k->sent[i]);
    }
    return st;
}

nnc_status nnc_sends_end(nnc_exec *e)
{
    exec_ranks *k = e->ranks;
    nnc_status st = NNC_OK;
    for (int i = k->sent_begun; i < k->sent_end && !st; i++) {
        const nnc_cmd *c = &e->p->cmd[k->sent[i].cmd];
        bool last = true;
        for (int j = i + 1; j < k->sent_end && last; j++) {
            const nnc_cmd *after = &e->p->cmd[k->sent[j].cmd];
            last = after->device != c->device || after->stream != c->stream;
        }
        if (last)
            st = nnc_exec_submit_crossing(e, k->sent[i].cmd, run_end);
    }
    return st;
}

/* runtime/progress.c -- GPUs whose commands need the host: copies between ranks, and collectives without NCCL, go through pinned memory.
 *
 *     copy to another rank     download on its stream | event | message
 *     copy from another rank   message, begun with the part of the run | upload on a stream of the device's own
 *     wait for another rank    message; the stream waits for the uploads before the record, as a GPU's does that waits for a CPU
 *     collective               download | event | its phases (collective.c) | upload
 *
 * One thread, the caller's, looks at all of them in turn and never waits for one. The next command of each stream is submitted as soon as
 * it can be. A record waits until its events' users need nothing, a wait until the event has been recorded. A command that needs a message
 * waits until that has come. So each stream has its commands in the plan's order, and no stream waits for another's messages. Nothing
 * deadlocks, as on CPUs: of the commands that are not done, the first in the plan can always go on.
 *
 * Uploads need no other order than their message. It is sent after all earlier uses of the memory, since the sender's stream waited for
 * them. */
#include "runtime/progress.h"
#include "runtime/collective.h"
#include "runtime/nccl.h"

/* A command that the host takes part in. */
typedef struct hosted {
    char *host; /* pinned; NULL: no data */
    nnc_event *event; /* of what the host waits for */
    nnc_message m; /* to another rank; of a wait: from it */
    int step; /* done so far in this run */
} hosted;

/* Commands of one stream. */
typedef struct queue {
    int device, stream;
    int32_t first, end; /* in progress.order */
    int32_t at, stop; /* in this part: the next one, one past the last one */
    bool begun; /* the next one has been tried, and its beginning recorded */
} queue;

/* A GPU of this process. */
typedef struct card {
    nnc_stream *up; /* of copies from other ranks */
    nnc_event *uploaded;
    bool used; /* uploaded is recorded in this part */
    char *block; /* pinned, of one collective at a time */
    nnc_event *empty; /* the block is uploaded */
    bool filled;
} card;

struct progress {
    nnc_exec *e;
    queue *queue;
    int n_queue;
    int32_t *order; /* own commands by stream */
    bool *issued; /* by command, in this part */
    hosted **hosted; /* by command; NULL: it is only submitted */
    int32_t *sending; /* copies and records whose messages wait for an event */
    int n_sending;
    int32_t *sent; /* copies whose messages were begun in this part */
    int n_sent;
    char **receive; /* by recv: pinned; NULL: its place in a CPU's memory */
    bool *arrived; /* by recv: uploaded */
    bool *
        asked; /* by recv: through NCCL, and its stream waits for those that use its memory before */
    nnc_event **lent; /* by command: after it, where a receive through NCCL waits for it */
    card *card; /* by device */
    bool timed;
    nnc_message *left; /* what the last look waited for; NULL: a GPU */
    int32_t left_cmd;
    bool moved; /* something went on since the last look at the clock */
};

static bool on_gpu(const nnc_exec *e, int device)
{
    return nnc_exec_owns(e, device) && !e->dev[device].api->host_memory;
}

static dev *dev_of(const progress *g, int32_t cmd)
{
    return &g->e->dev[g->e->p->cmd[cmd].device];
}

static nnc_stream *stream_of(const progress *g, int32_t cmd)
{
    return dev_of(g, cmd)->stream[g->e->p->cmd[cmd].stream];
}

/* Keeps what a look waited for first. */
static void wait_for(progress *g, int32_t cmd, nnc_message *m, bool done)
{
    if (done || g->left_cmd)
        return;
    g->left = m;
    g->left_cmd = cmd + 1;
}

/* Has the event fired that command `cmd` recorded? Also where its stream has failed, which sync reports. */
static bool fired(progress *g, int32_t cmd, nnc_event *event)
{
    const nnc_device_api *api = dev_of(g, cmd)->api;
    const bool yes = api->fired ? api->fired(stream_of(g, cmd), event) : api->event_ns(event) >= 0;
    wait_for(g, cmd, NULL, yes);
    return yes;
}

/* Are these messages done? */
static nnc_status look(
    progress *g, int32_t cmd, nnc_comm *c, nnc_message *m, int n, const char *what, bool *done)
{
    nnc_message *left;
    NNC_TRY(nnc_comm_test(c, m, n, what, &left));
    *done = !left;
    wait_for(g, cmd, left, *done);
    return NNC_OK;
}

/* ---- commands: *done: it is submitted, and its stream may go on --------------------------------------------------------- */

/* A copy from a GPU to another rank: the message follows the event. */
static nnc_status send_copy(progress *g, int32_t i)
{
    const nnc_cmd *c = &g->e->p->cmd[i];
    const nnc_device_api *api = dev_of(g, i)->api;
    hosted *h = g->hosted[i];
    NNC_TRY(api->download(stream_of(g, i), h->host, nnc_exec_address(g->e, c->arg[0]), h->m.bytes));
    NNC_TRY(api->record(stream_of(g, i), h->event));
    g->sending[g->n_sending++] = i;
    return NNC_OK;
}

static nnc_status record(progress *g, int32_t i)
{
    const nnc_exec *e = g->e;
    const int event = e->p->cmd[i].item;
    NNC_TRY(dev_of(g, i)->api->record(stream_of(g, i), e->event[event]));
    if (e->ranks && e->ranks->first_wait[event] >= 0)
        g->sending[g->n_sending++] = i;
    return NNC_OK;
}

/* Begins the messages of copies and records whose events have fired. */
static nnc_status send_what_is_ready(progress *g)
{
    exec_ranks *k = g->e->ranks;
    int n = 0;
    for (int s = 0; s < g->n_sending; s++) {
        const int32_t i = g->sending[s];
        const nnc_cmd *c = &g->e->p->cmd[i];
        hosted *h = g->hosted[i];
        if (!fired(g, i, h ? h->event : g->e->event[c->item])) {
            g->sending[n++] = i;
            continue;
        }
        g->moved = true;
        if (h) {
            NNC_TRY(nnc_comm_start(k->comm, &h->m, k->at[i].what));
            g->sent[g->n_sent++] = i;
            continue;
        }
        for (int w = k->first_wait[c->item]; w >= 0; w = k->next_wait[w])
            if (w < k->part_end)
                NNC_TRY(nnc_comm_start(k->comm, &k->signal[w], "signalling that work is done"));
    }
    g->n_sending = n;
    return NNC_OK;
}

/* Receives through NCCL, in turn, when the commands are submitted that use its memory before. */
static nnc_status receive(progress *g, int r)
{
    nnc_exec *e = g->e;
    const exec_ranks *k = e->ranks;
    const int32_t cmd = k->recv_cmd[r];
    const int device = e->p->tensor[e->p->cmd[cmd].arg[1]].device;
    const dev *d = &e->dev[device];
    const card *c = &g->card[device];
    const struct lender *l = k->lender + k->first_lent[r];
    bool ready = nnc_nccl_is_next(e, cmd) || g->asked[r];
    for (int i = 0; i < k->n_lent[r] && ready; i++)
        ready = g->issued[l[i].cmd];
    for (int i = 0; i < k->n_lent[r] && ready && !g->asked[r]; i++)
        NNC_TRY(d->api->wait(c->up, g->lent[l[i].cmd]));
    if (!ready)
        return NNC_OK;
    g->asked[r] = true;
    NNC_TRY(nnc_nccl_receive(e, cmd, c->up, &g->arrived[r]));
    g->moved = g->moved || g->arrived[r];
    return NNC_OK;
}

/* Uploads a copy that has come. */
static nnc_status upload(progress *g, int r)
{
    nnc_exec *e = g->e;
    const exec_ranks *k = e->ranks;
    const int32_t to = e->p->cmd[k->recv_cmd[r]].arg[1];
    const dev *d = &e->dev[e->p->tensor[to].device];
    card *c = &g->card[e->p->tensor[to].device];
    g->arrived[r] = g->moved = true;
    if (!g->receive[r])
        return NNC_OK;
    NNC_TRY(d->api->upload(c->up, nnc_exec_address(e, to), g->receive[r], k->recv[r].bytes));
    c->used = true;
    return d->api->record(c->up, c->uploaded);
}

static nnc_status take_what_has_come(progress *g)
{
    nnc_exec *e = g->e;
    exec_ranks *k = e->ranks;
    nnc_message *left;
    if (!k || k->end == k->begun)
        return NNC_OK;
    NNC_TRY(nnc_comm_test(
        k->comm, k->recv + k->begun, k->end - k->begun, "copies from other ranks", &left));
    for (int r = k->begun; r < k->end; r++) {
        if (g->arrived[r])
            continue;
        if (nnc_nccl_copies(e, k->recv_cmd[r]))
            NNC_TRY(receive(g, r));
        else if (k->recv[r].done)
            NNC_TRY(upload(g, r));
    }
    return NNC_OK;
}

/* The stream of wait i goes on after the first n copies from other ranks, as far as they come to GPUs. */
static nnc_status wait_for_copies(progress *g, int32_t i, int n, bool *done)
{
    nnc_exec *e = g->e;
    exec_ranks *k = e->ranks;
    for (int r = k->begun; r < n && *done; r++) {
        *done = g->arrived[r];
        wait_for(g, i, &k->recv[r], *done);
    }
    for (int d = 0; d < e->p->n_device && *done; d++)
        if (g->card[d].used && e->dev[d].api == dev_of(g, i)->api)
            NNC_TRY(e->dev[d].api->wait(stream_of(g, i), g->card[d].uploaded));
    /* not for a later receive, which may need what this stream does next */
    for (int r = k->begun; r < n && *done; r++)
        if (nnc_nccl_copies(e, k->recv_cmd[r]))
            NNC_TRY(dev_of(g, i)->api->wait(stream_of(g, i), nnc_nccl_event(e, k->recv_cmd[r])));
    return NNC_OK;
}

/* For an event of another rank: its message, and the copies before the record. */
static nnc_status wait_across(progress *g, int32_t i, bool *done)
{
    const crossing *x = &g->e->ranks->at[i];
    nnc_comm *comm = g->e->ranks->comm;
    hosted *h = g->hosted[i];
    if (!x->is_told && !h->step) {
        NNC_TRY(nnc_comm_start(comm, &h->m, x->what));
        h->step = 1;
    }
    if (!x->is_told)
        NNC_TRY(look(g, i, comm, &h->m, 1, x->what, done));
    return wait_for_copies(g, i, x->n_recv, done);
}

/* For an event of this process: recorded, and for another kind of device fired. A CPU that waited for another rank did not wait for the
 * uploads of what came from there. So a GPU that waits for the CPU waits for these uploads, too. */
static nnc_status wait_here(progress *g, int32_t i, bool *done)
{
    nnc_exec *e = g->e;
    const exec_ranks *k = e->ranks;
    const int event = e->p->cmd[i].item;
    const int32_t from = e->record[event];
    const nnc_device_api *api = dev_of(g, i)->api;
    *done = g->issued[from];
    if (*done && api == dev_of(g, from)->api)
        return api->wait(stream_of(g, i), e->event[event]);
    *done = *done && fired(g, from, e->event[event]);
    int n = k ? k->begun : 0;
    while (k && n < k->end && k->recv_cmd[n] < from)
        n++;
    return k && !api->host_memory ? wait_for_copies(g, i, n, done) : NNC_OK;
}

/* Through the card's block, which the last collective may still be uploaded from. */
static nnc_status collective(progress *g, int32_t i, bool *done)
{
    nnc_exec *e = g->e;
    participant *p = e->collective[i];
    hosted *h = g->hosted[i];
    card *c = &g->card[e->p->cmd[i].device];
    const nnc_device_api *api = dev_of(g, i)->api;
    const int64_t src = p->src_bytes[p->me], to = nnc_align_up(src, 256);
    const int64_t work = to + nnc_align_up(p->dst_bytes, 256);
    bool over = false;
    *done = false;
    if (nnc_nccl_takes(e, i)) {
        const bool first = h->step == 0;
        h->step = 1;
        NNC_TRY(nnc_nccl_try(e, i, first, done));
        wait_for(g, i, NULL, *done);
        return NNC_OK;
    }
    if (h->step == 0) {
        if (c->filled && !fired(g, i, c->empty))
            return NNC_OK;
        void *from = nnc_exec_address(e, e->p->cmd[i].arg[0]);
        NNC_TRY(api->download(stream_of(g, i), c->block, from, src));
        NNC_TRY(api->record(stream_of(g, i), h->event));
        nnc_collective_start(p, c->block, c->block + to, c->block + work);
        h->step = 1;
        g->moved = true;
    }
    if (h->step == 1 && !fired(g, i, h->event))
        return NNC_OK;
    for (bool ready = true; !over;) {
        if (h->step == 2)
            NNC_TRY(look(g, i, p->comm, p->m, 2 * p->c->n, p->what, &ready));
        if (!ready)
            return NNC_OK;
        h->step = 2;
        g->moved = true;
        NNC_TRY(nnc_collective_step(p, &over));
    }
    void *result = nnc_exec_address(e, e->p->cmd[i].arg[1]);
    NNC_TRY(api->upload(stream_of(g, i), result, c->block + to, p->dst_bytes));
    NNC_TRY(api->record(stream_of(g, i), c->empty));
    c->filled = *done = true;
    return NNC_OK;
}

/* A copy between kinds of devices: from a CPU the host waits for its stream first (between.c). */
static nnc_status copy(progress *g, int32_t i, bool *done)
{
    nnc_exec *e = g->e;
    hosted *h = g->hosted[i];
    if (h && !h->step) {
        NNC_TRY(dev_of(g, i)->api->record(stream_of(g, i), h->event));
        h->step = 1;
    }
    *done = !h || fired(g, i, h->event);
    return *done ? nnc_exec_issue(e, i) : NNC_OK;
}

static nnc_status attempt(progress *g, int32_t i, bool *done)
{
    nnc_exec *e = g->e;
    const nnc_cmd *c = &e->p->cmd[i];
    const bool gpu = on_gpu(e, c->device), crosses = nnc_exec_crosses(e, i);
    *done = true;
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_copy:
        if (!crosses)
            return copy(g, i, done);
        if (nnc_nccl_copies(e, i)) {
            NNC_TRY(nnc_nccl_send(e, i, done));
            wait_for(g, i, NULL, *done);
            return NNC_OK;
        }
        return gpu ? send_copy(g, i) : nnc_exec_issue(e, i);
    case CMD_record: return gpu ? record(g, i) : nnc_exec_issue(e, i);
    case CMD_wait:
        if (!crosses)
            return wait_here(g, i, done);
        return gpu ? wait_across(g, i, done) : nnc_exec_issue(e, i);
    case CMD_collective: return gpu ? collective(g, i, done) : nnc_exec_issue(e, i);
    default: return nnc_exec_issue(e, i);
    }
}

/* ---- a part of a run ------------------------------------------------------------------------------------------------ */

static nnc_status stamp(progress *g, int32_t i, bool end)
{
    const nnc_exec *e = g->e;
    if (!g->timed)
        return NNC_OK;
    return dev_of(g, i)->api->record(
        stream_of(g, i), e->clock[2 * (i - e->p->end[SEC_init]) + end]);
}

/* Submits what can be of one stream. A part begins when all streams are done with the one before, except between timed ones of one process:
 * ranks send no signals across parts. */
static nnc_status advance(progress *g, queue *q, int32_t first, int32_t *at)
{
    const nnc_plan *p = g->e->p;
    first = g->timed && !g->e->ranks ? p->end[SEC_init] : first;
    while (q->at < q->stop) {
        const int32_t i = *at = g->order[q->at];
        const nnc_cmd *c = &p->cmd[i];
        bool done = true;
        if (c->kind != CMD_wait || g->e->record[c->item] >= first) {
            if (!q->begun)
                NNC_TRY(stamp(g, i, false));
            q->begun = true;
            NNC_TRY(attempt(g, i, &done));
            if (!done)
                return NNC_OK;
            NNC_TRY(stamp(g, i, true));
        }
        if (g->lent[i])
            NNC_TRY(dev_of(g, i)->api->record(stream_of(g, i), g->lent[i]));
        g->issued[i] = g->moved = true;
        q->begun = false;
        q->at++;
    }
    return NNC_OK;
}

static void begin(progress *g, int32_t first, int32_t end)
{
    for (int s = 0; s < g->n_queue; s++) {
        queue *q = &g->queue[s];
        q->at = q->first;
        q->begun = false;
        while (q->at < q->end && g->order[q->at] < first)
            q->at++;
        q->stop = q->at;
        while (q->stop < q->end && g->order[q->stop] < end)
            q->stop++;
    }
    for (int32_t i = first; i < end; i++) {
        g->issued[i] = false;
        if (g->hosted[i])
            g->hosted[i]->step = 0;
    }
    for (int d = 0; d < g->e->p->n_device; d++)
        g->card[d].used = false;
    for (int r = 0; g->e->ranks && r < g->e->ranks->n_recv; r++)
        g->arrived[r] = g->asked[r] = false;
    g->n_sending = g->n_sent = 0;
}

static bool is_over(const progress *g)
{
    const exec_ranks *k = g->e->ranks;
    bool over = g->n_sending == 0;
    for (int s = 0; s < g->n_queue && over; s++)
        over = g->queue[s].at == g->queue[s].stop;
    for (int r = k ? k->begun : 0; k && r < k->end && over; r++)
        over = g->arrived[r] || (!g->receive[r] && !nnc_nccl_copies(g->e, k->recv_cmd[r]));
    return over;
}

static const char *what_of(const progress *g, int32_t i)
{
    const nnc_exec *e = g->e;
    return e->collective && e->collective[i] ? e->collective[i]->what
           : e->ranks                        ? e->ranks->at[i].what
                                             : "a run";
}

/* After the deadline: names the command that was looked at first, and the rank or GPU that it waits for. */
static nnc_status give_up(progress *g, int32_t *at)
{
    const nnc_exec *e = g->e;
    NNC_LOCAL(nnc_text) t = {0};
    if (!g->left_cmd) {
        int r = e->ranks->begun;
        while (r < e->ranks->end - 1 && g->arrived[r])
            r++;
        return nnc_comm_late(exec_comm(e), &e->ranks->recv[r], "copies from other ranks");
    }
    *at = g->left_cmd - 1;
    if (g->left)
        return nnc_comm_late(exec_comm(e), g->left, what_of(g, *at));
    nnc_printf(&t, "rank %d: %s: %s has not come to it for %g s (--comm-timeout)",
        e->ranks ? e->ranks->rank : 0, what_of(g, *at), e->p->device[e->p->cmd[*at].device].name,
        nnc_comm_timeout(exec_comm(e)));
    nnc_comm_break(exec_comm(e), nnc_text_str(&t));
    return NNC_E_PEER;
}

nnc_status nnc_progress_run(nnc_exec *e, int32_t first, int32_t end, bool timed, int32_t *at)
{
    progress *g = e->progress;
    int64_t since = 0;
    g->timed = timed;
    begin(g, first, end);
    if (e->nccl)
        nnc_nccl_begin(e, first);
    for (;;) {
        g->moved = false;
        g->left_cmd = 0;
        NNC_TRY(take_what_has_come(g));
        NNC_TRY(send_what_is_ready(g));
        for (int s = 0; s < g->n_queue; s++)
            NNC_TRY(advance(g, &g->queue[s], first, at));
        if (is_over(g))
            return NNC_OK;
        const int64_t now = nnc_now_ns();
        if (g->moved || !since) {
            since = now;
            continue;
        }
        if (e->nccl) /* also where all that is waited for are messages */
            NNC_TRY(nnc_nccl_look(e, g->left_cmd ? what_of(g, g->left_cmd - 1) : "a run"));
        if (nnc_comm_is_late(exec_comm(e), now - since))
            return give_up(g, at);
        nnc_comm_pause(now - since);
    }
}

void *nnc_progress_receive(const nnc_exec *e, int k)
{
    return e->progress->receive[k];
}

nnc_stream *nnc_progress_uploads(const nnc_exec *e, int device)
{
    return e->progress->card[device].up;
}

nnc_status nnc_progress_finish(nnc_exec *e)
{
    progress *g = e->progress;
    nnc_status st = NNC_OK;
    for (int s = 0; s < g->n_sent && !st; s++)
        st = nnc_comm_finish(
            e->ranks->comm, &g->hosted[g->sent[s]]->m, 1, e->ranks->at[g->sent[s]].what);
    g->n_sent = 0;
    return st;
}

nnc_status nnc_progress_sync(nnc_exec *e, nnc_sink *sink)
{
    nnc_status first = NNC_OK;
    for (int d = 0; d < e->p->n_device; d++) {
        const card *c = &e->progress->card[d];
        nnc_status st = c->up ? e->dev[d].api->sync(c->up, first ? NULL : sink) : NNC_OK;
        first = first ? first : st;
    }
    return first;
}

/* ---- loading -------------------------------------------------------------------------------------------------------- */

/* Bytes of a participant's operand, result and workspace in the block. */
static int64_t block_bytes(const nnc_exec *e, const nnc_cmd *c)
{
    const nnc_collective *k = &e->p->collective[c->item];
    const nnc_ptensor *x = &e->p->tensor[c->arg[0]];
    const int64_t to = e->p->tensor[c->arg[1]].bytes;
    return nnc_align_up(x->bytes, 256) + nnc_align_up(to, 256) +
           nnc_collective_work(k, x->bytes, to, nnc_dtype_size(x->type.dtype));
}

/* What the host does for command i; *bytes: of pinned memory for it alone. */
static nnc_status prepare(progress *g, int32_t i, int64_t *bytes, nnc_sink *sink)
{
    nnc_exec *e = g->e;
    const nnc_cmd *c = &e->p->cmd[i];
    const bool gpu = on_gpu(e, c->device), crosses = nnc_exec_crosses(e, i);
    const bool from_cpu =
        c->kind == CMD_copy && !gpu && !crosses && on_gpu(e, e->p->tensor[c->arg[1]].device);
    const bool sends = c->kind == CMD_copy && gpu && crosses && !nnc_nccl_copies(e, i);
    const bool waits = c->kind == CMD_wait && gpu && crosses && !e->ranks->at[i].is_told;
    const bool meets = c->kind == CMD_collective && gpu;
    *bytes = 0;
    if (gpu && e->ranks && e->ranks->at[i].lender >= 0)
        NNC_TRY(nnc_exec_event(&e->events, &e->arena, dev_of(g, i), &g->lent[i], sink));
    if (!from_cpu && !sends && !waits && !meets)
        return NNC_OK;
    hosted *h = g->hosted[i] = ARENA_NEW(&e->arena, hosted, 1);
    NNC_NEED(h, sink);
    if (!waits)
        NNC_TRY(nnc_exec_event(&e->events, &e->arena, dev_of(g, i), &h->event, sink));
    if (sends || waits)
        h->m = (nnc_message){.peer = e->ranks->at[i].peer, .tag = i, .sends = sends, .done = true};
    if (sends)
        *bytes = h->m.bytes = e->p->tensor[c->arg[0]].bytes;
    return NNC_OK;
}

static nnc_status pin(progress *g, int device, int64_t bytes, char **out, nnc_sink *sink)
{
    const dev *d = &g->e->dev[device];
    void *p = NULL;
    NNC_TRY(d->api->host_alloc(d->device, bytes, &p, sink));
    *out = p;
    return NNC_OK;
}

static nnc_status prepare_card(progress *g, int device, int64_t block, nnc_sink *sink)
{
    nnc_exec *e = g->e;
    dev *d = &e->dev[device];
    card *c = &g->card[device];
    if (e->ranks) {
        NNC_TRY(d->api->stream_create(d->device, 1, false, &c->up, sink));
        NNC_TRY(nnc_exec_event(&e->events, &e->arena, d, &c->uploaded, sink));
    }
    NNC_TRY(nnc_exec_event(&e->events, &e->arena, d, &c->empty, sink));
    return block ? pin(g, device, block, &c->block, sink) : NNC_OK;
}

static nnc_status prepare_receives(progress *g, nnc_sink *sink)
{
    const exec_ranks *k = g->e->ranks;
    for (int r = 0; k && r < k->n_recv; r++) {
        const int device = g->e->p->tensor[g->e->p->cmd[k->recv_cmd[r]].arg[1]].device;
        if (on_gpu(g->e, device) && k->recv[r].bytes && !nnc_nccl_copies(g->e, k->recv_cmd[r]))
            NNC_TRY(pin(g, device, k->recv[r].bytes, &g->receive[r], sink));
    }
    return NNC_OK;
}

/* Own commands by stream. */
static nnc_status sort(progress *g, nnc_sink *sink)
{
    const nnc_exec *e = g->e;
    const nnc_plan *p = e->p;
    int32_t n = 0;
    for (int d = 0; d < p->n_device; d++)
        for (int s = 0; s < p->device[d].streams && nnc_exec_owns(e, d); s++) {
            queue *q = &g->queue[g->n_queue++];
            *q = (queue){.device = d, .stream = s, .first = n};
            for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++)
                if (p->cmd[i].device == d && p->cmd[i].stream == s)
                    g->order[n++] = i;
            q->end = n;
        }
    NNC_NEED(g->n_queue > 0, sink);
    return NNC_OK;
}

static bool needs_host(const nnc_exec *e)
{
    bool gpu = false, meets = false;
    for (int d = 0; d < e->p->n_device; d++)
        gpu = gpu || on_gpu(e, d);
    for (int32_t i = 0; i < e->p->n_cmd; i++)
        meets = meets || (e->p->cmd[i].kind == CMD_collective && on_gpu(e, e->p->cmd[i].device));
    return gpu && (e->ranks || meets);
}

static nnc_status alloc(progress *g, nnc_sink *sink)
{
    nnc_exec *e = g->e;
    nnc_arena *a = &e->arena;
    const int n_recv = e->ranks ? e->ranks->n_recv : 0;
    int streams = 0;
    for (int d = 0; d < e->p->n_device; d++)
        streams += e->p->device[d].streams;
    g->queue = ARENA_NEW(a, queue, streams);
    g->card = ARENA_NEW(a, card, e->p->n_device);
    NNC_NEED(g->queue && g->card &&
                 ARENA_ARRAYS(a, e->p->n_cmd + 1, g->order, g->issued, g->hosted, g->sending,
                     g->sent, g->lent) &&
                 ARENA_ARRAYS(a, n_recv + 1, g->receive, g->arrived, g->asked),
        sink);
    return NNC_OK;
}

nnc_status nnc_progress_create(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    if (!needs_host(e))
        return NNC_OK;
    progress *g = ARENA_NEW(&e->arena, progress, 1);
    NNC_NEED(g, sink);
    g->e = e;
    NNC_TRY(alloc(g, sink));
    e->progress = g;
    NNC_TRY(sort(g, sink));
    for (int d = 0; d < p->n_device; d++) {
        int64_t block = 0;
        for (int32_t i = p->end[SEC_init]; i < p->n_cmd && on_gpu(e, d); i++) {
            const nnc_cmd *c = &p->cmd[i];
            int64_t bytes = 0;
            if (c->device != d)
                continue;
            if (c->kind == CMD_collective && !nnc_nccl_takes(e, i))
                block = nnc_max64(block, block_bytes(e, c));
            NNC_TRY(prepare(g, i, &bytes, sink));
            if (bytes)
                NNC_TRY(pin(g, d, bytes, &g->hosted[i]->host, sink));
            if (bytes)
                g->hosted[i]->m.data = g->hosted[i]->host;
        }
        if (on_gpu(e, d))
            NNC_TRY(prepare_card(g, d, block, sink));
        else
            for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++) {
                int64_t none;
                if (p->cmd[i].device == d && nnc_exec_owns(e, d))
                    NNC_TRY(prepare(g, i, &none, sink));
            }
    }
    return prepare_receives(g, sink);
}

static void unpin(const nnc_exec *e, int device, char *p)
{
    if (p)
        e->dev[device].api->host_free(e->dev[device].device, p);
}

void nnc_progress_destroy(nnc_exec *e, bool streams)
{
    progress *g = e->progress;
    const nnc_plan *p = e->p;
    if (!g)
        return;
    for (int d = 0; d < p->n_device; d++) {
        if (streams && g->card[d].up)
            e->dev[d].api->stream_destroy(g->card[d].up);
        if (!streams)
            unpin(e, d, g->card[d].block);
    }
    for (int32_t i = 0; i < p->n_cmd && !streams; i++)
        if (g->hosted[i])
            unpin(e, p->cmd[i].device, g->hosted[i]->host);
    for (int r = 0; e->ranks && r < e->ranks->n_recv && !streams; r++)
        unpin(e, p->tensor[p->cmd[e->ranks->recv_cmd[r]].arg[1]].device, g->receive[r]);
}

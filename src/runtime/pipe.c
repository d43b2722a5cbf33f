/* runtime/pipe.c -- runs of a plan with overlapped copies: three streams of each device, two slots.
 *
 *     up       | in 0 | in 1 |      | in 2 |      | in 3 |
 *     compute         | run 0       | run 1       | run 2       |
 *     down                          | out 0 |     | out 1 |
 *
 * A slot is a table of addresses in which inputs and outputs lie elsewhere than the plan has them, so nothing is copied on the device.
 * The first slot takes the plan's own inputs (they are nobody else's during main); outputs never (a run before may have used their
 * bytes for something else, while they still go down). Order: a slot is filled once the run before with it has read it, run once it is
 * filled and what it made before has gone down, and emptied once it has run. */
#include "runtime/exec.h"
#include <string.h>

enum { SLOTS = 2 };

/* A slot on one device. */
typedef struct turn {
    nnc_event *filled, *ran, *emptied;
} turn;

typedef struct slot {
    table t;
    void **block; /* by tensor: memory owned by the slot */
    turn *turn; /* by device */
} slot;

enum { U0, U1, R0, R1, D0, D1, MARKS };

struct nnc_pipe {
    nnc_exec *e;
    slot slot[SLOTS];
    nnc_stream **up, **down; /* by device; NULL: it has no inputs, no outputs */
    int64_t *bytes; /* by device */
    int up_dev, down_dev; /* devices whose copies are timed: the first with inputs, with outputs */
    nnc_event *mark[NNC_PIPE_SPANS][MARKS];
    int64_t given[NNC_PIPE_SPANS][2];
};

/* ---- slots ------------------------------------------------------------------------------------ */

static int root_of(const nnc_plan *p, int t)
{
    while (p->tensor[t].alias_of >= 0)
        t = p->tensor[t].alias_of;
    return t;
}

/* Allocates memory for the root of t, once. Results of init are not moved, since main only reads them. */
static nnc_status move(nnc_pipe *q, slot *s, int t, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    int root = root_of(e->p, t);
    const nnc_ptensor *r = &e->p->tensor[root];
    if (s->block[root] || r->space != SP_arena)
        return NNC_OK;
    q->bytes[r->device] += r->bytes;
    return e->dev[r->device].api->alloc(e->dev[r->device].device, r->bytes, &s->block[root], sink);
}

/* Aliases of a moved tensor move with it. */
static void follow(const nnc_plan *p, slot *s)
{
    for (int t = 0; t < p->n_tensor; t++) {
        int root = root_of(p, t);
        if (s->block[root])
            s->t.at[t] = (char *)s->block[root] + (p->tensor[t].offset - p->tensor[root].offset);
    }
}

static nnc_status make_turns(nnc_pipe *q, slot *s, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    for (int d = 0; d < e->p->n_device; d++) {
        nnc_event **at[] = {&s->turn[d].filled, &s->turn[d].ran, &s->turn[d].emptied};
        for (size_t i = 0; i < NNC_COUNT(at); i++)
            NNC_TRY(e->dev[d].api->event_create(e->dev[d].device, at[i], sink));
    }
    return NNC_OK;
}

static nnc_status make_slot(nnc_pipe *q, int k, nnc_sink *sink)
{
    nnc_exec *e = q->e;
    const nnc_plan *p = e->p;
    slot *s = &q->slot[k];
    s->block = nnc_calloc((size_t)p->n_tensor + 1, sizeof *s->block);
    s->t.at = nnc_calloc((size_t)p->n_tensor + 1, sizeof *s->t.at);
    s->turn = nnc_calloc((size_t)p->n_device, sizeof *s->turn);
    if (!s->block || !s->t.at || !s->turn)
        return nnc_nomem(sink);
    for (int i = 0; i < p->n_input && k > 0; i++)
        NNC_TRY(move(q, s, p->input[i], sink));
    for (int i = 0; i < p->n_output; i++)
        NNC_TRY(move(q, s, p->output[i], sink));
    follow(p, s);
    s->t.no_replay = e->own.no_replay && !e->own.capture;
    nnc_status status = nnc_exec_fill(e, &s->t, sink);
    e->use = &e->own;
    return status == NNC_OK ? make_turns(q, s, sink) : status;
}

/* ---- streams and marks ------------------------------------------------------------------------ */

static nnc_status make_streams(nnc_pipe *q, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    const nnc_plan *p = e->p;
    q->up_dev = p->n_input ? p->tensor[p->input[0]].device : -1;
    q->down_dev = p->n_output ? p->tensor[p->output[0]].device : -1;
    for (int i = 0; i < p->n_input; i++) {
        int d = p->tensor[p->input[i]].device;
        if (!q->up[d])
            NNC_TRY(e->dev[d].api->stream_create(e->dev[d].device, 1, false, &q->up[d], sink));
    }
    for (int i = 0; i < p->n_output; i++) {
        int d = p->tensor[p->output[i]].device;
        if (!q->down[d])
            NNC_TRY(e->dev[d].api->stream_create(e->dev[d].device, 1, false, &q->down[d], sink));
    }
    return NNC_OK;
}

static int mark_device(const nnc_pipe *q, int m)
{
    return m <= U1 ? q->up_dev : m >= D0 ? q->down_dev : 0;
}

static nnc_status make_marks(nnc_pipe *q, int64_t n, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    for (int i = 0; i < n && i < NNC_PIPE_SPANS; i++)
        for (int m = 0; m < MARKS; m++)
            if (!q->mark[i][m] && mark_device(q, m) >= 0)
                NNC_TRY(e->dev[mark_device(q, m)].api->event_create(
                    e->dev[mark_device(q, m)].device, &q->mark[i][m], sink));
    return NNC_OK;
}

nnc_status nnc_pipe_create(nnc_exec *e, nnc_pipe **out, nnc_sink *sink)
{
    size_t n = (size_t)e->p->n_device;
    nnc_pipe *q = nnc_calloc(1, sizeof *q);
    *out = NULL;
    if (!q)
        return nnc_nomem(sink);
    q->e = e;
    q->up = nnc_calloc(n, sizeof *q->up);
    q->down = nnc_calloc(n, sizeof *q->down);
    q->bytes = nnc_calloc(n, sizeof *q->bytes);
    nnc_status status = q->up && q->down && q->bytes ? NNC_OK : nnc_nomem(sink);
    if (status == NNC_OK)
        status = make_streams(q, sink);
    for (int k = 0; k < SLOTS && status == NNC_OK; k++)
        status = make_slot(q, k, sink);
    if (status != NNC_OK) {
        nnc_pipe_destroy(q);
        return status;
    }
    *out = q;
    return NNC_OK;
}

static void drop_event(const nnc_exec *e, int device, nnc_event *x)
{
    if (x)
        e->dev[device].api->event_destroy(x);
}

static void drop_slot(nnc_exec *e, slot *s)
{
    if (s->t.capture)
        e->dev[0].api->capture_destroy(s->t.capture);
    for (int t = 0; s->block && t < e->p->n_tensor; t++) {
        const dev *d = &e->dev[e->p->tensor[t].device];
        if (s->block[t])
            d->api->free(d->device, s->block[t]);
    }
    for (int d = 0; s->turn && d < e->p->n_device; d++) {
        drop_event(e, d, s->turn[d].filled);
        drop_event(e, d, s->turn[d].ran);
        drop_event(e, d, s->turn[d].emptied);
    }
    nnc_free(s->block);
    nnc_free(s->turn);
    nnc_free(s->t.at);
    nnc_free(s->t.arg);
}

void nnc_pipe_destroy(nnc_pipe *q)
{
    if (!q)
        return;
    nnc_status ignored = nnc_exec_sync(q->e, NULL); /* slots may be in use after a failure */
    (void)ignored;
    for (int d = 0; d < q->e->p->n_device; d++) {
        if (q->up && q->up[d])
            q->e->dev[d].api->stream_destroy(q->up[d]);
        if (q->down && q->down[d])
            q->e->dev[d].api->stream_destroy(q->down[d]);
    }
    for (int k = 0; k < SLOTS; k++)
        drop_slot(q->e, &q->slot[k]);
    for (int i = 0; i < NNC_PIPE_SPANS; i++)
        for (int m = 0; m < MARKS; m++)
            drop_event(q->e, mark_device(q, m), q->mark[i][m]);
    nnc_free(q->up);
    nnc_free(q->down);
    nnc_free(q->bytes);
    nnc_free(q);
}

int64_t nnc_pipe_bytes(const nnc_pipe *q, int device)
{
    return q->bytes[device];
}

/* ---- runs ------------------------------------------------------------------------------------- */

/* The current run: its number, slot, and events (NULL: not timed). */
typedef struct one {
    int64_t i;
    slot *s;
    nnc_event **mark;
    int64_t *given;
} one;

static nnc_status mark(const nnc_pipe *q, const one *o, int m, nnc_stream *s)
{
    return o->mark ? q->e->dev[mark_device(q, m)].api->record(s, o->mark[m]) : NNC_OK;
}

/* Address of run i's part; step and last of memory k may be NULL. */
static char *part_of(char *const *at, int k, int64_t i, const int64_t *step, const int64_t *last)
{
    int64_t offset = step ? i * step[k] : 0;
    return at[k] + (last ? nnc_min64(offset, last[k]) : offset);
}

static nnc_status fill(nnc_pipe *q, const one *o, const nnc_pipe_io *io, int d)
{
    const nnc_exec *e = q->e;
    const nnc_device_api *api = e->dev[d].api;
    if (!q->up[d])
        return NNC_OK;
    NNC_TRY(api->wait(q->up[d], o->s->turn[d].ran));
    if (d == q->up_dev)
        NNC_TRY(mark(q, o, U0, q->up[d]));
    for (int k = 0; k < e->p->n_input; k++) {
        int t = e->p->input[k];
        if (e->p->tensor[t].device == d)
            NNC_TRY(api->upload(q->up[d], nnc_exec_address(e, t),
                part_of(io->in, k, o->i, io->in_step, io->in_last),
                nnc_type_bytes(&e->p->tensor[t].type)));
    }
    if (d == q->up_dev)
        NNC_TRY(mark(q, o, U1, q->up[d]));
    return api->record(q->up[d], o->s->turn[d].filled);
}

static nnc_status empty(nnc_pipe *q, const one *o, const nnc_pipe_io *io, int d)
{
    const nnc_exec *e = q->e;
    const nnc_device_api *api = e->dev[d].api;
    if (!q->down[d])
        return NNC_OK;
    NNC_TRY(api->wait(q->down[d], o->s->turn[d].ran));
    if (d == q->down_dev)
        NNC_TRY(mark(q, o, D0, q->down[d]));
    for (int k = 0; k < e->p->n_output; k++) {
        int t = e->p->output[k];
        if (e->p->tensor[t].device == d)
            NNC_TRY(api->download(q->down[d], part_of(io->out, k, o->i, io->out_step, io->out_last),
                nnc_exec_address(e, t), nnc_type_bytes(&e->p->tensor[t].type)));
    }
    if (d == q->down_dev)
        NNC_TRY(mark(q, o, D1, q->down[d]));
    return api->record(q->down[d], o->s->turn[d].emptied);
}

static nnc_status compute(nnc_pipe *q, const one *o, nnc_sink *sink)
{
    nnc_exec *e = q->e;
    for (int d = 0; d < e->p->n_device; d++) {
        NNC_TRY(e->dev[d].api->wait(e->dev[d].stream[0], o->s->turn[d].filled));
        NNC_TRY(e->dev[d].api->wait(e->dev[d].stream[0], o->s->turn[d].emptied));
    }
    NNC_TRY(mark(q, o, R0, e->dev[0].stream[0]));
    NNC_TRY(nnc_exec_run(e, sink));
    NNC_TRY(mark(q, o, R1, e->dev[0].stream[0]));
    for (int d = 0; d < e->p->n_device; d++)
        NNC_TRY(e->dev[d].api->record(e->dev[d].stream[0], o->s->turn[d].ran));
    return NNC_OK;
}

static nnc_status give(nnc_pipe *q, const one *o, const nnc_pipe_io *io, nnc_sink *sink)
{
    int n = q->e->p->n_device;
    nnc_status status = NNC_OK;
    q->e->use = &o->s->t;
    if (o->given)
        o->given[0] = nnc_now_ns();
    for (int d = 0; d < n && status == NNC_OK; d++)
        status = fill(q, o, io, d);
    if (status == NNC_OK)
        status = compute(q, o, sink);
    if (o->given)
        o->given[1] = nnc_now_ns();
    for (int d = 0; d < n && status == NNC_OK; d++)
        status = empty(q, o, io, d);
    q->e->use = &q->e->own;
    return status;
}

/* Waits for all streams; returns the first failure. */
static nnc_status wait_for_all(nnc_pipe *q, nnc_sink *sink)
{
    nnc_status first = NNC_OK;
    for (int d = 0; d < q->e->p->n_device; d++) {
        nnc_stream *s[] = {q->up[d], q->down[d]};
        for (int i = 0; i < 2; i++) {
            nnc_status status =
                s[i] ? q->e->dev[d].api->sync(s[i], first == NNC_OK ? sink : NULL) : NNC_OK;
            first = first == NNC_OK ? status : first;
        }
    }
    nnc_status status = nnc_exec_sync(q->e, first == NNC_OK ? sink : NULL);
    return first == NNC_OK ? status : first;
}

static void read_marks(const nnc_pipe *q, int64_t n, nnc_pipe_span *span)
{
    for (int i = 0; i < n && i < NNC_PIPE_SPANS; i++) {
        int64_t *to[MARKS] = {&span[i].up[0], &span[i].up[1], &span[i].run[0], &span[i].run[1],
            &span[i].down[0], &span[i].down[1]};
        for (int m = 0; m < MARKS; m++)
            *to[m] = q->mark[i][m] ? q->e->dev[mark_device(q, m)].api->event_ns(q->mark[i][m]) : -1;
        span[i].given_up = q->given[i][0];
        span[i].given_down = q->given[i][1];
    }
}

nnc_status nnc_pipe_run(
    nnc_pipe *q, const nnc_pipe_io *io, int64_t n, nnc_pipe_span *span, nnc_sink *sink)
{
    nnc_status status = span ? make_marks(q, n, sink) : NNC_OK;
    for (int64_t i = 0; i < n && status == NNC_OK; i++) {
        bool timed = span && i < NNC_PIPE_SPANS;
        one o = {i, &q->slot[i % SLOTS], timed ? q->mark[i] : NULL, timed ? q->given[i] : NULL};
        status = give(q, &o, io, sink);
    }
    nnc_status synced = wait_for_all(q, status == NNC_OK ? sink : NULL);
    NNC_TRY(status != NNC_OK ? status : synced);
    if (span)
        read_marks(q, n, span);
    return NNC_OK;
}

/* ---- host memory ------------------------------------------------------------------------------ */

nnc_status nnc_exec_host_alloc(nnc_exec *e, int64_t bytes, void **out, bool *direct, nnc_sink *sink)
{
    *out = NULL;
    *direct = e->dev[0].api->host_alloc(e->dev[0].device, bytes, out, NULL) == NNC_OK;
    if (!*direct)
        *out = nnc_aligned_alloc(64, (size_t)bytes);
    return *out || !bytes ? NNC_OK : nnc_nomem(sink);
}

void nnc_exec_host_free(nnc_exec *e, void *p, bool direct)
{
    if (direct)
        e->dev[0].api->host_free(e->dev[0].device, p);
    else
        nnc_free(p);
}

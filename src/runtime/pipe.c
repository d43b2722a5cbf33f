/* runtime/pipe.c -- runs of a plan with overlapped copies: three streams of each device, two slots.
 *
 *     up       | in 0 | in 1 |      | in 2 |      | in 3 |
 *     compute         | run 0       | run 1       | run 2       |
 *     down                          | out 0 |     | out 1 |
 *
 * A slot is a table of other addresses for the plan's inputs and outputs, so that nothing is copied on the device. The first slot
 * takes the plan's own inputs, which nothing else uses during main. It never takes the outputs, whose bytes a run may use for
 * something else while they are downloaded. Order: a slot is filled once the run before with it has read it. It is run once it is
 * filled and its outputs before are downloaded, and emptied once it has run. */
#include "runtime/exec.h"

enum { SLOTS = 2 };

/* A slot on one device. */
typedef struct turn {
    nnc_event *copied[NNC_WAYS], *ran; /* filled, emptied; run */
} turn;

typedef struct slot {
    table t;
    void **block; /* by tensor: memory owned by the slot */
    turn *turn; /* by device */
} slot;

enum { U0, U1, R0, R1, D0, D1, MARKS };

/* One direction of the copies. */
typedef struct way {
    int n;
    const int32_t *tensor; /* the plan's inputs or outputs */
    nnc_stream **stream; /* by device; NULL: it has none of them */
    int timed; /* device whose copies are timed: the first with any; -1: none */
} way;

struct nnc_pipe {
    nnc_exec *e;
    nnc_arena arena; /* of the arrays */
    events events; /* all of them */
    slot slot[SLOTS];
    way way[NNC_WAYS];
    int64_t *bytes; /* by device */
    bool
        passes; /* an output is an input's memory: it is copied down before the slot's next input comes */
    nnc_event *mark[NNC_PIPE_SPANS][MARKS];
    int64_t given[NNC_PIPE_SPANS][2];
};

/* ---- slots ------------------------------------------------------------------------------------ */

/* Allocates memory for the root of t, once. Results of init are not moved, since main only reads them. */
static nnc_status move(nnc_pipe *q, slot *s, int t, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    int root = nnc_plan_root(e->p, t);
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
        int root = nnc_plan_root(p, t);
        if (s->block[root])
            s->t.at[t] = (char *)s->block[root] + (p->tensor[t].offset - p->tensor[root].offset);
    }
}

static nnc_status make_event(nnc_pipe *q, int device, nnc_event **out, nnc_sink *sink)
{
    return nnc_exec_event(&q->events, &q->arena, &q->e->dev[device], out, sink);
}

static nnc_status make_slot(nnc_pipe *q, int k, nnc_sink *sink)
{
    nnc_exec *e = q->e;
    const nnc_plan *p = e->p;
    slot *s = &q->slot[k];
    s->turn = ARENA_NEW(&q->arena, turn, p->n_device);
    NNC_NEED(s->turn && ARENA_ARRAYS(&q->arena, p->n_tensor + 1, s->block, s->t.at), sink);
    for (int i = 0; i < p->n_input && k > 0; i++)
        NNC_TRY(move(q, s, p->input[i], sink));
    for (int i = 0; i < p->n_output; i++)
        NNC_TRY(move(q, s, p->output[i], sink));
    follow(p, s);
    const part_of_run *main = &e->own.part[SEC_main];
    s->t.part[SEC_main].no_replay = main->no_replay && !main->capture;
    nnc_status status = nnc_exec_fill(e, &s->t, &q->arena, sink);
    e->use = &e->own;
    NNC_TRY(status);
    for (int d = 0; d < p->n_device; d++) {
        NNC_TRY(make_event(q, d, &s->turn[d].ran, sink));
        for (int w = 0; w < NNC_WAYS; w++)
            NNC_TRY(make_event(q, d, &s->turn[d].copied[w], sink));
    }
    return NNC_OK;
}

static bool passes_input(const nnc_plan *p)
{
    for (int o = 0; o < p->n_output; o++)
        for (int i = 0; i < p->n_input; i++)
            if (nnc_plan_root(p, p->output[o]) == nnc_plan_root(p, p->input[i]))
                return true;
    return false;
}

/* ---- streams and marks ------------------------------------------------------------------------ */

static nnc_status make_streams(nnc_pipe *q, way *w, nnc_sink *sink)
{
    const nnc_exec *e = q->e;
    w->timed = w->n ? e->p->tensor[w->tensor[0]].device : -1;
    for (int i = 0; i < w->n; i++) {
        int d = e->p->tensor[w->tensor[i]].device;
        if (!w->stream[d])
            NNC_TRY(e->dev[d].api->stream_create(e->dev[d].device, 1, false, &w->stream[d], sink));
    }
    return NNC_OK;
}

static int mark_device(const nnc_pipe *q, int m)
{
    return m <= U1 ? q->way[NNC_UP].timed : m >= D0 ? q->way[NNC_DOWN].timed : 0;
}

static nnc_status make_marks(nnc_pipe *q, int64_t n, nnc_sink *sink)
{
    for (int i = 0; i < n && i < NNC_PIPE_SPANS; i++)
        for (int m = 0; m < MARKS; m++)
            if (!q->mark[i][m] && mark_device(q, m) >= 0)
                NNC_TRY(make_event(q, mark_device(q, m), &q->mark[i][m], sink));
    return NNC_OK;
}

static nnc_status create(nnc_pipe *q, nnc_sink *sink)
{
    const nnc_plan *p = q->e->p;
    q->bytes = ARENA_NEW(&q->arena, int64_t, p->n_device);
    q->way[NNC_UP] = (way){.n = p->n_input, .tensor = p->input};
    q->way[NNC_DOWN] = (way){.n = p->n_output, .tensor = p->output};
    for (int w = 0; w < NNC_WAYS; w++) {
        q->way[w].stream = ARENA_NEW(&q->arena, nnc_stream *, p->n_device);
        NNC_NEED(q->bytes && q->way[w].stream, sink);
        NNC_TRY(make_streams(q, &q->way[w], sink));
    }
    for (int k = 0; k < SLOTS; k++)
        NNC_TRY(make_slot(q, k, sink));
    return NNC_OK;
}

NNC_OWNER(nnc_pipe, nnc_pipe_destroy)

nnc_status nnc_pipe_create(nnc_exec *e, nnc_pipe **out, nnc_sink *sink)
{
    *out = NULL;
    if (e->ranks)
        return nnc_fail0(sink, NNC_E_USAGE,
            "copies are overlapped with runs (--io) in one process, not over %d ranks",
            nnc_comm_world(e->ranks->comm));
    NNC_OWNED(nnc_pipe) *q = nnc_calloc(1, sizeof *q);
    NNC_NEED(q, sink);
    q->e = e;
    q->passes = passes_input(e->p);
    NNC_TRY(create(q, sink));
    *out = q;
    q = NULL;
    return NNC_OK;
}

static void drop_slot(nnc_exec *e, slot *s)
{
    nnc_exec_drop_captures(e, &s->t);
    for (int t = 0; s->block && t < e->p->n_tensor; t++) {
        const dev *d = &e->dev[e->p->tensor[t].device];
        if (s->block[t])
            d->api->free(d->device, s->block[t]);
    }
}

void nnc_pipe_destroy(nnc_pipe *q)
{
    if (!q)
        return;
    nnc_status ignored = nnc_exec_sync(q->e, NULL); /* slots may be in use after a failure */
    (void)ignored;
    for (int w = 0; w < NNC_WAYS; w++)
        for (int d = 0; q->way[w].stream && d < q->e->p->n_device; d++)
            if (q->way[w].stream[d])
                q->e->dev[d].api->stream_destroy(q->way[w].stream[d]);
    for (int k = 0; k < SLOTS; k++)
        drop_slot(q->e, &q->slot[k]);
    nnc_exec_drop_events(&q->events);
    nnc_arena_deinit(&q->arena);
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

/* Address of run i's part of memory k. */
static char *part_of(const nnc_pipe_side *side, int k, int64_t i)
{
    int64_t offset = side->step ? i * side->step[k] : 0;
    return side->at[k] + (side->last ? nnc_min64(offset, side->last[k]) : offset);
}

/* Fills the slot on device d (NNC_UP) or empties it. */
static nnc_status copy_all(
    nnc_pipe *q, const one *o, const nnc_pipe_side io[NNC_WAYS], int which, int d)
{
    const nnc_exec *e = q->e;
    const nnc_device_api *api = e->dev[d].api;
    const way *w = &q->way[which];
    const int first = which == NNC_UP ? U0 : D0;
    nnc_stream *s = w->stream[d];
    if (!s)
        return NNC_OK;
    NNC_TRY(api->wait(s, o->s->turn[d].ran));
    if (which == NNC_UP && q->passes)
        NNC_TRY(api->wait(s, o->s->turn[d].copied[NNC_DOWN]));
    if (d == w->timed)
        NNC_TRY(mark(q, o, first, s));
    for (int k = 0; k < w->n; k++) {
        const nnc_ptensor *t = &e->p->tensor[w->tensor[k]];
        void *at = nnc_exec_address(e, w->tensor[k]), *host = part_of(&io[which], k, o->i);
        if (t->device == d)
            NNC_TRY(which == NNC_UP ? api->upload(s, at, host, nnc_type_bytes(&t->type))
                                    : api->download(s, host, at, nnc_type_bytes(&t->type)));
    }
    if (d == w->timed)
        NNC_TRY(mark(q, o, first + 1, s));
    return api->record(s, o->s->turn[d].copied[which]);
}

static nnc_status compute(nnc_pipe *q, const one *o, nnc_sink *sink)
{
    nnc_exec *e = q->e;
    for (int d = 0; d < e->p->n_device; d++) {
        NNC_TRY(e->dev[d].api->wait(e->dev[d].stream[0], o->s->turn[d].copied[NNC_UP]));
        NNC_TRY(e->dev[d].api->wait(e->dev[d].stream[0], o->s->turn[d].copied[NNC_DOWN]));
    }
    NNC_TRY(mark(q, o, R0, e->dev[0].stream[0]));
    NNC_TRY(nnc_exec_run(e, sink));
    NNC_TRY(mark(q, o, R1, e->dev[0].stream[0]));
    for (int d = 0; d < e->p->n_device; d++)
        NNC_TRY(e->dev[d].api->record(e->dev[d].stream[0], o->s->turn[d].ran));
    return NNC_OK;
}

static nnc_status give(nnc_pipe *q, const one *o, const nnc_pipe_side io[NNC_WAYS], nnc_sink *sink)
{
    int n = q->e->p->n_device;
    nnc_status status = NNC_OK;
    q->e->use = &o->s->t;
    if (o->given)
        o->given[0] = nnc_now_ns();
    for (int d = 0; d < n && status == NNC_OK; d++)
        status = copy_all(q, o, io, NNC_UP, d);
    if (status == NNC_OK)
        status = compute(q, o, sink);
    if (o->given)
        o->given[1] = nnc_now_ns();
    for (int d = 0; d < n && status == NNC_OK; d++)
        status = copy_all(q, o, io, NNC_DOWN, d);
    q->e->use = &q->e->own;
    return status;
}

/* Waits for all streams; returns the first failure. */
static nnc_status wait_for_all(nnc_pipe *q, nnc_sink *sink)
{
    nnc_status first = NNC_OK;
    for (int d = 0; d < q->e->p->n_device; d++)
        for (int w = 0; w < NNC_WAYS; w++) {
            nnc_stream *s = q->way[w].stream[d];
            nnc_status status =
                s ? q->e->dev[d].api->sync(s, first == NNC_OK ? sink : NULL) : NNC_OK;
            first = first == NNC_OK ? status : first;
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
    nnc_pipe *q, const nnc_pipe_side io[NNC_WAYS], int64_t n, nnc_pipe_span *span, nnc_sink *sink)
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

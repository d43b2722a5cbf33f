/* runtime/nccl_run.c -- calls of NCCL in a part of a run. NCCL matches calls by their order, so each rank makes them in the plan's order. A
 * collective is called when the streams of all its participants here have come to it, in one group. A copy to another rank is called when
 * its stream has come to it. One from another rank is called once the commands that use its memory before are submitted. All that a call
 * waits for is earlier in the plan, on the host as on the GPU. So the first call that is not done can always go on.
 *
 * Calls of one communicator run in their order. Those of several on one device are put in order by events. NCCL's kernels wait for other
 * GPUs, and must not take the room of one that another GPU waits for. */
#include "runtime/nccl_state.h"
#include "runtime/progress.h"
#include <string.h>

/* ---- the process's calls -------------------------------------------------------------------------------------------- */

static bool is_own_copy(const nnc_exec *e, const nccl *q, int32_t i, bool *sends)
{
    const nnc_cmd *c = &e->p->cmd[i];
    if (q->copies < 0 || !nnc_exec_between_ranks(e, i))
        return false;
    *sends = nnc_exec_owns(e, c->device);
    return *sends || nnc_exec_owns(e, e->p->tensor[c->arg[1]].device);
}

static int device_of(const nnc_exec *e, const nccl_op *o)
{
    const nnc_cmd *c = &e->p->cmd[o->cmd];
    return o->m || o->sends ? c->device : e->p->tensor[c->arg[1]].device;
}

static nnc_status add_op(nccl *q, nnc_exec *e, int32_t i, nnc_sink *sink)
{
    const nnc_cmd *c = &e->p->cmd[i];
    bool sends = false;
    meeting *m =
        c->kind == CMD_collective && nnc_exec_owns(e, c->device) && q->meeting[c->item].clique >= 0
            ? &q->meeting[c->item]
            : NULL;
    if (!m && !is_own_copy(e, q, i, &sends))
        return NNC_OK;
    const nccl_op o = {.m = m, .cmd = i, .clique = m ? m->clique : q->copies, .sends = sends};
    dev *d = &e->dev[device_of(e, &o)];
    if (e->ranks)
        NNC_TRY(nnc_exec_event(&e->events, &e->arena, d, &q->event[i], sink));
    if (m && m->op >= 0)
        return NNC_OK;
    q->op_of[i] = q->n_op;
    if (m)
        m->op = q->n_op;
    q->op[q->n_op++] = o;
    return NNC_OK;
}

nnc_status nccl_find_ops(nccl *q, nnc_exec *e, nnc_sink *sink)
{
    nnc_arena *a = &e->arena;
    const nnc_plan *p = e->p;
    NNC_NEED(ARENA_ARRAYS(a, p->n_cmd + 1, q->op, q->op_of, q->event) &&
                 ARENA_ARRAYS(a, p->n_device, q->last, q->called),
        sink);
    for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++)
        NNC_TRY(add_op(q, e, i, sink));
    for (int d = 0; d < p->n_device && q->n_clique > 1; d++)
        if (nnc_exec_owns(e, d))
            NNC_TRY(nnc_exec_event(&e->events, a, &e->dev[d], &q->last[d], sink));
    return NNC_OK;
}

void nnc_nccl_begin(nnc_exec *e, int32_t first)
{
    nccl *q = e->nccl;
    q->turn = 0;
    for (int i = 0; i < q->n_op; i++) {
        nccl_op *o = &q->op[i];
        o->given = o->done = false;
        q->turn += o->cmd < first;
        if (o->m)
            o->m->here = 0;
    }
    memset(q->called, 0, (size_t)e->p->n_device * sizeof *q->called);
}

static bool is_next(nccl *q, const nccl_op *o)
{
    while (q->turn < q->n_op && q->op[q->turn].done)
        q->turn++;
    return &q->op[q->turn] == o;
}

/* After the device's calls so far, of another communicator. */
static nnc_status in_order(nnc_exec *e, int device, nnc_stream *s)
{
    const nccl *q = e->nccl;
    return q->last[device] && q->called[device] ? e->dev[device].api->wait(s, q->last[device])
                                                : NNC_OK;
}

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

/* One participant: within a group. */
typedef struct call {
    const nccl *q;
    const meeting *m;
    nccl_comm end;
    size_t bytes_in, bytes_out, size;
    int type, result;
} call;

static nnc_status run_collective(void *handle, void *const *args, void *work)
{
    call *x = handle;
    const nnc_cuda_nccl *n = x->q->api;
    const cuda_stream s = nnc_cuda_current();
    const int op = x->m->c->reduction == RED_add   ? NCCL_SUM
                   : x->m->c->reduction == RED_min ? NCCL_MIN
                                                   : NCCL_MAX;
    const size_t in = x->bytes_in / x->size, out = x->bytes_out / x->size;
    (void)work;
    switch ((nnc_collective_kind)x->m->c->kind) {
    case COLL_allreduce:
        x->result = n->ncclAllReduce(args[0], args[1], in, x->type, op, x->end, s);
        break;
    case COLL_allgather:
        x->result = n->ncclAllGather(args[0], args[1], in, x->type, x->end, s);
        break;
    case COLL_reduce_scatter:
        x->result = n->ncclReduceScatter(args[0], args[1], out, x->type, op, x->end, s);
        break;
    case COLL__COUNT: break;
    }
    x->result = x->result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : x->result;
    return x->result ? NNC_E_DEVICE : NNC_OK;
}

static int give_one(nnc_exec *e, const meeting *m, int k)
{
    const int32_t i = m->cmd[k];
    const nnc_cmd *c = &e->p->cmd[i];
    const nnc_ptensor *from = &e->p->tensor[c->arg[0]], *to = &e->p->tensor[c->arg[1]];
    const nnc_dtype d = from->type.dtype;
    call x = {.q = e->nccl,
        .m = m,
        .end = e->nccl->clique[m->clique].end[k],
        .bytes_in = (size_t)from->bytes,
        .bytes_out = (size_t)to->bytes,
        .size = (size_t)nnc_dtype_size(d),
        .type = nccl_type(d),
        .result = 3 /* ncclInternalError: the stream has failed before */};
    if (in_order(e, c->device, e->dev[c->device].stream[c->stream]))
        return 3;
    const nnc_work w = nnc_exec_work(e, i, run_collective, &x);
    const nnc_status st = e->dev[c->device].api->launch(e->dev[c->device].stream[c->stream], &w);
    return st ? 3 : x.result;
}

/* One side of a copy. */
typedef struct side {
    const nccl *q;
    nccl_comm end;
    void *data;
    size_t bytes;
    int other, result;
    bool sends;
} side;

static nnc_status run_side(void *handle, void *const *args, void *work)
{
    side *x = handle;
    const nnc_cuda_nccl *n = x->q->api;
    const int type = nccl_type(DT_u8);
    (void)args, (void)work;
    x->result = x->sends
                    ? n->ncclSend(x->data, x->bytes, type, x->other, x->end, nnc_cuda_current())
                    : n->ncclRecv(x->data, x->bytes, type, x->other, x->end, nnc_cuda_current());
    x->result = x->result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : x->result;
    return x->result ? NNC_E_DEVICE : NNC_OK;
}

static int give_side(nnc_exec *e, const nccl_op *o, nnc_stream *s)
{
    const nnc_cmd *c = &e->p->cmd[o->cmd];
    const int32_t tensor = c->arg[o->sends ? 0 : 1];
    const int to = e->p->tensor[c->arg[1]].device, own = o->sends ? c->device : to;
    side x = {.q = e->nccl,
        .end = e->nccl->clique[o->clique].end[own],
        .data = nnc_exec_address(e, tensor),
        .bytes = (size_t)e->p->tensor[tensor].bytes,
        .other = o->sends ? to : c->device,
        .result = 3,
        .sends = o->sends};
    if (in_order(e, own, s))
        return 3;
    const nnc_status st = e->dev[own].api->launch(
        s, &(nnc_work){.run = run_side, .handle = &x, .name = c->layers, .op_class = "copy"});
    return st ? 3 : x.result;
}

static nnc_stream *stream_of(const nnc_exec *e, int32_t cmd)
{
    const nnc_cmd *c = &e->p->cmd[cmd];
    return e->dev[c->device].stream[c->stream];
}

static const char *what_of(const nnc_exec *e, const nccl_op *o)
{
    return o->m ? e->collective[o->cmd]->what : e->ranks->at[o->cmd].what;
}

/* The calls of this process, in one group. s: the stream of a copy. */
static nnc_status give(nnc_exec *e, nccl_op *o, nnc_stream *s)
{
    const nnc_cuda_nccl *api = e->nccl->api;
    int r = api->ncclGroupStart();
    if (!r && !o->m)
        r = give_side(e, o, s);
    for (int k = 0; o->m && k < o->m->n && !r; k++)
        if (nnc_exec_owns(e, e->p->cmd[o->m->cmd[k]].device))
            r = give_one(e, o->m, k);
    const int ended = api->ncclGroupEnd();
    r = r ? r : ended == NCCL_IN_PROGRESS ? NCCL_SUCCESS : ended;
    o->given = true;
    return r ? nccl_broken(e, NULL, r, what_of(e, o)) : NNC_OK;
}

static nnc_status record(nnc_exec *e, int device, nnc_stream *s, nnc_event *after)
{
    nccl *q = e->nccl;
    if (after)
        NNC_TRY(e->dev[device].api->record(s, after));
    if (q->last[device])
        NNC_TRY(e->dev[device].api->record(s, q->last[device]));
    q->called[device] = true;
    return NNC_OK;
}

/* Goes on with a call whose streams have come to it. */
static nnc_status go_on(nnc_exec *e, nccl_op *o, nnc_stream *s)
{
    nccl *q = e->nccl;
    if (q->broken)
        return NNC_E_PEER;
    if (!o->given && is_next(q, o))
        NNC_TRY(give(e, o, s));
    if (!o->given || o->done)
        return NNC_OK;
    NNC_TRY(nccl_settled(e, &q->clique[o->clique], what_of(e, o), &o->done));
    if (o->done && !o->m)
        return record(e, device_of(e, o), s, q->event[o->cmd]);
    for (int k = 0; o->done && k < o->m->n; k++) {
        const int32_t i = o->m->cmd[k];
        if (nnc_exec_owns(e, e->p->cmd[i].device))
            NNC_TRY(record(e, e->p->cmd[i].device, stream_of(e, i), q->event[i]));
    }
    return NNC_OK;
}

nnc_status nnc_nccl_try(nnc_exec *e, int32_t cmd, bool first, bool *done)
{
    meeting *m = &e->nccl->meeting[e->p->cmd[cmd].item];
    nccl_op *o = &e->nccl->op[m->op];
    m->here += first;
    if (m->here == m->own)
        NNC_TRY(go_on(e, o, NULL));
    *done = o->done;
    return NNC_OK;
}

nnc_status nnc_nccl_send(nnc_exec *e, int32_t cmd, bool *done)
{
    nccl_op *o = &e->nccl->op[e->nccl->op_of[cmd]];
    NNC_TRY(go_on(e, o, stream_of(e, cmd)));
    *done = o->done;
    return NNC_OK;
}

bool nnc_nccl_is_next(nnc_exec *e, int32_t cmd)
{
    return is_next(e->nccl, &e->nccl->op[e->nccl->op_of[cmd]]);
}

nnc_status nnc_nccl_receive(nnc_exec *e, int32_t cmd, nnc_stream *on, bool *done)
{
    nccl_op *o = &e->nccl->op[e->nccl->op_of[cmd]];
    NNC_TRY(go_on(e, o, on));
    *done = o->done;
    return NNC_OK;
}

nnc_event *nnc_nccl_event(const nnc_exec *e, int32_t cmd)
{
    return e->nccl->event[cmd];
}

/* ---- the end of a part ---------------------------------------------------------------------------------------------- */

enum { LOOK_NS = 1000000 }; /* how long a call may take before the other ranks are looked for */

/* Until the event after command cmd of the call has fired. */
static nnc_status wait_for(nnc_exec *e, const nccl_op *o, int32_t cmd, int64_t from)
{
    const nccl *q = e->nccl;
    const int device = o->m ? e->p->cmd[cmd].device : device_of(e, o);
    const dev *d = &e->dev[device];
    nnc_stream *s = o->m || o->sends ? stream_of(e, cmd) : nnc_progress_uploads(e, device);
    while (!d->api->fired(s, q->event[cmd])) {
        bool yes;
        const int64_t waited = nnc_now_ns() - from;
        NNC_TRY(nccl_settled(e, &q->clique[o->clique], what_of(e, o), &yes));
        if (nnc_comm_is_late(exec_comm(e), waited))
            return nccl_late(e, what_of(e, o));
        if (waited > LOOK_NS)
            NNC_TRY(nccl_look_for_ranks(e, what_of(e, o)));
        nnc_comm_pause(waited);
    }
    return NNC_OK;
}

nnc_status nnc_nccl_wait(nnc_exec *e)
{
    nccl *q = e->nccl;
    const int64_t from = nnc_now_ns();
    for (int i = 0; i < q->n_op && e->ranks && !q->broken; i++) {
        const nccl_op *o = &q->op[i];
        if (o->done && !o->m)
            NNC_TRY(wait_for(e, o, o->cmd, from));
        for (int k = 0; o->done && o->m && k < o->m->n; k++)
            if (nnc_exec_owns(e, e->p->cmd[o->m->cmd[k]].device))
                NNC_TRY(wait_for(e, o, o->m->cmd[k], from));
    }
    return q->broken ? NNC_E_PEER : NNC_OK;
}

/* runtime/stage.c -- inputs of the next run that are uploaded while the current one computes.
 *
 *     up       | stage k + 1 |                  | stage k + 2 |
 *     compute  | run k            | take k + 1 | run k + 1
 *
 * A device has a second copy of the inputs, which a stream of its own fills; `take` copies it to the inputs, within the device. Where
 * the host sees the device's memory there is nothing to overlap: `take` uploads. */
#include "runtime/exec.h"

typedef struct staged {
    const void *host; /* NULL: not staged */
    void *block; /* on the device; NULL: none so far */
} staged;

typedef struct up {
    nnc_stream *stream; /* NULL: none so far */
    nnc_event *taken; /* its blocks have been read */
} up;

struct nnc_stage {
    nnc_exec *e;
    nnc_arena arena;
    events events;
    staged *input;
    up *up; /* by device */
};

bool nnc_exec_returns_early(const nnc_exec *e)
{
    return !e->dev[0].api->host_memory;
}

NNC_OWNER(nnc_stage, nnc_stage_destroy)

nnc_status nnc_stage_create(nnc_exec *e, nnc_stage **out, nnc_sink *sink)
{
    NNC_OWNED(nnc_stage) *q = nnc_calloc(1, sizeof *q);
    *out = NULL;
    NNC_NEED(q, sink);
    q->e = e;
    q->input = ARENA_NEW(&q->arena, staged, e->p->n_input + 1);
    q->up = ARENA_NEW(&q->arena, up, e->p->n_device);
    NNC_NEED(q->input && q->up, sink);
    *out = q;
    q = NULL;
    return NNC_OK;
}

void nnc_stage_destroy(nnc_stage *q)
{
    if (!q)
        return;
    nnc_status ignored = nnc_exec_sync(q->e, NULL); /* blocks may be in use after a failure */
    (void)ignored;
    for (int d = 0; q->up && d < q->e->p->n_device; d++)
        if (q->up[d].stream)
            q->e->dev[d].api->stream_destroy(q->up[d].stream);
    for (int i = 0; q->input && i < q->e->p->n_input; i++) {
        const dev *d = &q->e->dev[q->e->p->tensor[q->e->p->input[i]].device];
        if (q->input[i].block)
            d->api->free(d->device, q->input[i].block);
    }
    nnc_exec_drop_events(&q->events);
    nnc_arena_deinit(&q->arena);
    nnc_free(q);
}

/* What is needed to upload to the block of input i, of device d. */
static nnc_status prepare(nnc_stage *q, int i, int d, int64_t bytes, nnc_sink *sink)
{
    const dev *at = &q->e->dev[d];
    up *u = &q->up[d];
    if (!u->stream)
        NNC_TRY(at->api->stream_create(at->device, 1, false, &u->stream, sink));
    if (!u->taken)
        NNC_TRY(nnc_exec_event(&q->events, &q->arena, at, &u->taken, sink));
    return q->input[i].block ? NNC_OK : at->api->alloc(at->device, bytes, &q->input[i].block, sink);
}

nnc_status nnc_stage_put(nnc_stage *q, int i, const void *host, nnc_sink *sink)
{
    const nnc_ptensor *t = &q->e->p->tensor[q->e->p->input[i]];
    const nnc_device_api *api = q->e->dev[t->device].api;
    const int64_t bytes = nnc_type_bytes(&t->type);
    q->input[i].host = host;
    if (api->host_memory)
        return NNC_OK;
    NNC_TRY(prepare(q, i, t->device, bytes, sink));
    NNC_TRY(api->wait(q->up[t->device].stream, q->up[t->device].taken));
    return api->upload(q->up[t->device].stream, q->input[i].block, host, bytes);
}

static nnc_status take_one(nnc_stage *q, int i)
{
    const int32_t tensor = q->e->p->input[i];
    const nnc_ptensor *t = &q->e->p->tensor[tensor];
    dev *d = &q->e->dev[t->device];
    if (d->api->host_memory)
        return nnc_exec_upload(q->e, i, q->input[i].host);
    return d->api->copy(d->stream[0], d->device, nnc_exec_address(q->e, tensor), q->input[i].block,
        nnc_type_bytes(&t->type));
}

nnc_status nnc_stage_take(nnc_stage *q, nnc_sink *sink)
{
    bool host = false;
    for (int d = 0; d < q->e->p->n_device; d++)
        if (q->up[d].stream)
            NNC_TRY(q->e->dev[d].api->sync(q->up[d].stream, sink));
    for (int i = 0; i < q->e->p->n_input; i++) {
        if (!q->input[i].host)
            continue;
        NNC_TRY(take_one(q, i));
        q->input[i].host = NULL;
        host |= q->e->dev[q->e->p->tensor[q->e->p->input[i]].device].api->host_memory;
    }
    for (int d = 0; d < q->e->p->n_device; d++)
        if (q->up[d].stream)
            NNC_TRY(q->e->dev[d].api->record(q->e->dev[d].stream[0], q->up[d].taken));
    return host ? nnc_exec_sync(q->e, sink) : NNC_OK;
}

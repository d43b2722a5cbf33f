/* runtime/between.c -- waits and copies between devices. Devices of one kind synchronise with each other; between kinds the host
 * waits. Commands are submitted in an executable order, so waiting for submitted work always terminates. */
#include "runtime/exec.h"

nnc_status nnc_exec_wait(place at, place from, nnc_event *recorded)
{
    return at.d->api == from.d->api ? at.d->api->wait(at.d->stream[at.stream], recorded)
                                    : from.d->api->sync(from.d->stream[from.stream], NULL);
}

bool nnc_exec_hidden_copy(const nnc_exec *e, const nnc_cmd *c)
{
    if (c->kind != CMD_copy)
        return false;
    const dev *from = &e->dev[c->device], *to = &e->dev[e->p->tensor[c->arg[1]].device];
    return from->api != to->api && !from->api->host_memory && !to->api->host_memory;
}

nnc_status nnc_exec_copy(nnc_exec *e, const nnc_cmd *c, place at)
{
    const nnc_ptensor *t = &e->p->tensor[c->arg[1]];
    const dev *from = at.d, *to = &e->dev[t->device];
    nnc_stream *s = from->stream[at.stream];
    void *dst = nnc_exec_address(e, c->arg[1]), *src = nnc_exec_address(e, c->arg[0]);
    if (from->api == to->api)
        return from->api->copy(s, to->device, dst, src, t->bytes);
    if (to->api->host_memory)
        return from->api->download(s, dst, src, t->bytes);
    if (!from->api->host_memory) {
        NNC_TRY(from->api->download(s, e->staging, src, t->bytes));
        src = e->staging;
    }
    NNC_TRY(from->api->sync(s, NULL));
    NNC_TRY(to->api->upload(to->stream[0], dst, src, t->bytes));
    return to->api->sync(to->stream[0], NULL);
}

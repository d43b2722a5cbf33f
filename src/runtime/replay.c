/* runtime/replay.c -- captures main, and what follows it in a training step, on the device. Replaying takes one driver call for each
 * instead of one per command.
 *
 * All of a part depends on stream 0 of device 0: the other streams wait for it first, and it waits for them last. Inputs and outputs of
 * other devices go through their own streams 0, which synchronise with it before and after. */
#include "runtime/exec.h"

static nnc_stream *origin(const nnc_exec *e)
{
    return e->dev[0].stream[0];
}

/* Every other stream waits for the origin, or (join) the origin waits for them. */
static nnc_status fork_or_join(nnc_exec *e, bool join)
{
    const nnc_device_api *api = e->dev[0].api;
    if (!join && e->n_stream > 1)
        NNC_TRY(api->record(origin(e), e->dev[0].begin));
    for (int d = 0; d < e->p->n_device; d++)
        for (int s = d == 0; s < e->p->device[d].streams; s++) {
            nnc_stream *other = e->dev[d].stream[s];
            if (join)
                NNC_TRY(api->record(other, e->dev[d].end[s]));
            NNC_TRY(api->wait(join ? origin(e) : other, join ? e->dev[d].end[s] : e->dev[0].begin));
        }
    return NNC_OK;
}

static void tell(nnc_sink *sink, const nnc_sink *why)
{
    const char *said =
        why && nnc_sink_count(why) ? nnc_sink_at(why, 0)->message : "the device does not say why";
    nnc_note(sink, (nnc_loc){0},
        "%s: its commands are given one by one, which costs some microseconds each", said);
}

/* Captures a part. A command that fails here fails again, and is reported, when it is submitted by itself. */
static void write_down(nnc_exec *e, nnc_section last, nnc_sink *sink)
{
    nnc_capture *c = NULL;
    int32_t at;
    NNC_OWNED(nnc_sink) *why = nnc_sink_create(); /* NULL: no reason is reported */
    if (e->dev[0].api->capture_begin(origin(e), why) != NNC_OK) {
        tell(sink, why);
        return;
    }
    nnc_status status = fork_or_join(e, false);
    if (status == NNC_OK)
        status = nnc_exec_issue_part(e, last, &at);
    if (status == NNC_OK)
        status = fork_or_join(e, true);
    nnc_status ended = e->dev[0].api->capture_end(origin(e), &c, why);
    nnc_status synced = nnc_exec_sync(e, NULL); /* failures of the other streams */
    if (ended == NNC_OK && status == NNC_OK && synced == NNC_OK)
        e->use->part[last].capture = c;
    else if (ended == NNC_OK)
        e->dev[0].api->capture_destroy(c);
    if (!e->use->part[last].capture)
        tell(sink, why);
}

/* Synchronises streams 0 of the other devices with the origin. */
static nnc_status meet(nnc_exec *e, bool before)
{
    const nnc_device_api *api = e->dev[0].api;
    if (!before && e->p->n_device > 1)
        NNC_TRY(api->record(origin(e), e->dev[0].begin));
    for (int d = 1; d < e->p->n_device; d++) {
        nnc_stream *other = e->dev[d].stream[0];
        if (before)
            NNC_TRY(api->record(other, e->dev[d].begin));
        NNC_TRY(api->wait(before ? origin(e) : other, e->dev[before ? d : 0].begin));
    }
    return NNC_OK;
}

void nnc_exec_drop_captures(const nnc_exec *e, table *t)
{
    for (int i = 0; i < SEC__COUNT; i++)
        if (t->part[i].capture) {
            e->dev[0].api->capture_destroy(t->part[i].capture);
            t->part[i].capture = NULL;
        }
}

nnc_status nnc_exec_replay(nnc_exec *e, nnc_section last, bool *done, nnc_sink *sink)
{
    part_of_run *part = &e->use->part[last];
    *done = false;
    if (!part->no_replay && part->runs > 0) {
        part->no_replay = true; /* once, whether it succeeds or not */
        NNC_TRY(nnc_exec_sync(e, sink));
        int64_t from = nnc_now_ns();
        write_down(e, last, sink);
        if (e->use == &e->own)
            nnc_exec_spent(e, NNC_PH_capture, from);
    }
    if (!part->capture)
        return NNC_OK;
    NNC_TRY(meet(e, true));
    NNC_TRY(e->dev[0].api->replay(origin(e), part->capture));
    NNC_TRY(meet(e, false));
    *done = true;
    return NNC_OK;
}

/* runtime/exec.c -- the executor: loads a plan onto devices and executes its commands. Engines, memory, streams and
 * arguments are looked up and allocated in create; a run submits prepared work to streams, or replays a capture of it (replay.c).
 *
 * Order between runs: with several streams, each run begins when all streams have finished the previous one. Copies between runs are
 * on stream 0 of their device. */
#include "runtime/nccl.h"
#include "runtime/progress.h"
#include "runtime/job.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams and events ---------------------------------------------------------------------- */

static int stream_count(const nnc_plan *p)
{
    int n = 0;
    for (int d = 0; d < p->n_device; d++)
        n += p->device[d].streams;
    return n;
}

/* Streams of this rank's devices. */
static int own_stream_count(const nnc_exec *e)
{
    int n = 0;
    for (int d = 0; d < e->p->n_device; d++)
        n += nnc_exec_owns(e, d) ? e->p->device[d].streams : 0;
    return n;
}

/* Threads of the teams of a device's streams: the plan divides the machine's among streams that work at the same time. */
static int team_size(const nnc_plan *p, int device)
{
    int most = 1;
    if (stream_count(p) == 1)
        return p->device[device].threads;
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        int threads = c->kind == CMD_kernel ? p->kernel[c->item].threads : 1;
        most = c->device == device && threads > most ? threads : most;
    }
    return most;
}

nnc_status nnc_exec_event(events *l, nnc_arena *a, const dev *d, nnc_event **out, nnc_sink *sink)
{
    NNC_NEED(ARENA_ROOM(a, l->at, l->cap, l->n + 1), sink);
    NNC_TRY(d->api->event_create(d->device, out, sink));
    l->at[l->n++] = (struct owned_event){d, *out};
    return NNC_OK;
}

void nnc_exec_drop_events(const events *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->at[i].on->api->event_destroy(l->at[i].event);
}

static bool same_kind(const nnc_plan_device *a, const nnc_plan_device *b)
{
    const size_t n = b->name ? strcspn(b->name, ":") + 1 : 0;
    return a->name && b->name && !strncmp(a->name, b->name, n);
}

/* The device of this host that stands for device i of the plan, which is number `ordinal` of its kind. Ranks of a host have the devices of
 * its kind one after the other; where the host has fewer, they share them. */
static int device_here(
    const nnc_exec *e, const nnc_device_api *api, int i, int ordinal, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const int n = api->count ? api->count() : 0;
    int at = 0;
    if (n < 1)
        return ordinal;
    /* ranks of a host follow each other, as launchers place them unless told otherwise */
    const int first = e->ranks ? e->ranks->rank - nnc_comm_local_rank(e->ranks->comm) : 0;
    for (int d = 0; d < i; d++)
        at += (!e->ranks || e->ranks->owner[d] >= first) && same_kind(&p->device[d], &p->device[i]);
    at = e->ranks ? at : ordinal;
    if (at >= n)
        nnc_note(sink, (nnc_loc){0}, "device %s of the plan is %s:%d here: this process sees %d",
            p->device[i].name, api->kind, at % n, n);
    return at % n;
}

static nnc_status open_device(nnc_exec *e, const nnc_exec_options *o, int i, nnc_sink *sink)
{
    const nnc_plan_device *pd = &e->p->device[i];
    dev *d = &e->dev[i];
    d->env = o->n_env ? o->env[i < o->n_env ? i : o->n_env - 1] : (nnc_engine_env){0};
    const char *colon = pd->name ? strchr(pd->name, ':') : NULL;
    char *end = "";
    long ordinal = colon ? strtol(colon + 1, &end, 10) : i;
    size_t kind = colon ? (size_t)(colon - pd->name) : 0;
    for (int k = 0; k < o->n_device && colon; k++)
        if (strlen(o->device[k]->kind) == kind && !strncmp(o->device[k]->kind, pd->name, kind))
            d->api = o->device[k];
    if (*end || ordinal < 0 || ordinal > INT_MAX)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "the plan is for the device '%s', whose number is not one of a device", pd->name);
    if (!d->api)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "the plan is for the device '%s', and no device of its kind is available",
            pd->name ? pd->name : "");
    int64_t from = nnc_now_ns();
    d->ordinal = device_here(e, d->api, i, (int)ordinal, sink);
    nnc_status opened = d->api->open(d->ordinal, &d->device, sink);
    nnc_exec_spent(e, NNC_PH_context, from);
    NNC_TRY(opened);
    from = nnc_now_ns();
    d->stream = ARENA_NEW(&e->arena, nnc_stream *, pd->streams);
    d->end = ARENA_NEW(&e->arena, nnc_event *, pd->streams);
    NNC_NEED(d->stream && d->end, sink);
    for (int s = 0; s < pd->streams; s++) {
        NNC_TRY(d->api->stream_create(
            d->device, team_size(e->p, i), own_stream_count(e) == 1, &d->stream[s], sink));
        NNC_TRY(nnc_exec_event(&e->events, &e->arena, d, &d->end[s], sink));
        e->n_stream++;
    }
    NNC_TRY(nnc_exec_event(&e->events, &e->arena, d, &d->begin, sink));
    NNC_TRY(d->api->alloc(d->device, pd->arena_bytes, &d->base[SP_arena], sink));
    nnc_exec_spent(e, NNC_PH_memory, from);
    d->requested.arena = pd->arena_bytes;
    return NNC_OK;
}

static void close_device(nnc_exec *e, int i)
{
    dev *d = &e->dev[i];
    if (!d->device)
        return;
    for (int s = 0; s < 3; s++)
        if (d->base[s])
            d->api->free(d->device, d->base[s]);
    d->api->close(d->device);
}

/* An event belongs to the device that records it. */
static nnc_status create_events(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_record || e->event[c->item])
            continue;
        e->record[c->item] = i;
        if (!nnc_exec_owns(e, c->device))
            continue;
        NNC_TRY(
            nnc_exec_event(&e->events, &e->arena, &e->dev[c->device], &e->event[c->item], sink));
    }
    return NNC_OK;
}

/* ---- commands -------------------------------------------------------------------------------- */

nnc_work nnc_exec_work(
    const nnc_exec *e, int i, nnc_status (*run)(void *, void *const *, void *), void *handle)
{
    const nnc_cmd *c = &e->p->cmd[i];
    return (nnc_work){.run = run,
        .handle = handle,
        .args = e->use->arg + e->first_arg[i],
        .n_arg = c->n_arg,
        .work = c->work >= 0 ? nnc_exec_address(e, c->work) : NULL,
        .name = c->layers,
        .flops = c->flops,
        .bytes = c->bytes,
        .op_class = c->op_class};
}

static nnc_status issue(nnc_exec *e, int i)
{
    const nnc_cmd *c = &e->p->cmd[i];
    const place at = {&e->dev[c->device], c->stream};
    const nnc_device_api *api = at.d->api;
    const nnc_cmd *recorded;
    nnc_work work;
    if (!nnc_exec_owns(e, c->device))
        return NNC_OK;
    NNC_TRY(nnc_sends_before(e, i));
    if (nnc_exec_crosses(e, i))
        return nnc_exec_issue_across(e, i);
    nnc_stream *s = e->dev[c->device].stream[c->stream];
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_kernel:
    case CMD_call:
        work = nnc_exec_work(e, i, e->engine[c->engine]->run, e->handle[i]->handle);
        return api->launch(s, &work);
    case CMD_copy: return nnc_exec_copy(e, c, at);
    case CMD_record: NNC_TRY(api->record(s, e->event[c->item])); return nnc_exec_signal(e, i);
    case CMD_wait:
        recorded = &e->p->cmd[e->record[c->item]];
        return nnc_exec_wait(
            at, (place){&e->dev[recorded->device], recorded->stream}, e->event[c->item]);
    case CMD_weight: return nnc_exec_weight(e, i);
    case CMD_collective: return nnc_exec_collective(e, i);
    case CMD__COUNT: break;
    }
    return NNC_E_BUG;
}

nnc_status nnc_exec_issue(nnc_exec *e, int i)
{
    if (e->activity)
        e->activity->mark(i);
    const nnc_status st = issue(e, i);
    if (e->activity)
        e->activity->mark(-1);
    NNC_TRY(st);
    if (!e->ranks || !nnc_exec_owns(e, e->p->cmd[i].device))
        return NNC_OK;
    NNC_TRY(nnc_exec_lent(e, i));
    return nnc_exec_poke(e, i);
}

/* Makes every stream wait for stream 0 of every device (begin), or stream 0 for every stream (end). */
static nnc_status fence(nnc_exec *e, bool begin)
{
    const nnc_plan *p = e->p;
    if (e->n_stream == 1)
        return NNC_OK;
    if (e->ranks)
        return NNC_OK; /* the host has waited for this rank's streams (ranks.c) */
    for (int d = 0; d < p->n_device; d++)
        for (int s = 0; s < (begin ? 1 : p->device[d].streams); s++)
            NNC_TRY(e->dev[d].api->record(
                e->dev[d].stream[s], begin ? e->dev[d].begin : e->dev[d].end[s]));
    for (int d = 0; d < p->n_device; d++)
        for (int s = 0; s < (begin ? p->device[d].streams : 1); s++)
            for (int from = 0; from < p->n_device; from++)
                for (int f = 0; f < (begin ? 1 : p->device[from].streams); f++)
                    if (from != d || f != s)
                        NNC_TRY(nnc_exec_wait((place){&e->dev[d], s}, (place){&e->dev[from], f},
                            begin ? e->dev[from].begin : e->dev[from].end[f]));
    return NNC_OK;
}

nnc_status nnc_exec_sync_own(nnc_exec *e, nnc_sink *sink)
{
    nnc_status first = e->nccl ? nnc_nccl_wait(e) : NNC_OK;
    for (int d = 0; d < e->p->n_device; d++)
        for (int s = 0; nnc_exec_owns(e, d) && s < e->p->device[d].streams; s++) {
            nnc_status status =
                e->dev[d].api->sync(e->dev[d].stream[s], first == NNC_OK ? sink : NULL);
            first = first == NNC_OK ? status : first;
        }
    if (!e->progress)
        return first;
    nnc_status status = nnc_progress_sync(e, first == NNC_OK ? sink : NULL);
    return first == NNC_OK ? status : first;
}

nnc_status nnc_exec_sync(nnc_exec *e, nnc_sink *sink)
{
    nnc_status first = e->ranks ? nnc_exec_sync_ranks(e, sink) : nnc_exec_sync_own(e, sink);
    e->self_broken = e->self && (e->self_broken || first != NNC_OK);
    nnc_status mended = nnc_exec_mend_collectives(e);
    first = first == NNC_OK ? mended : first;
    if (e->first_given > 0) {
        nnc_exec_spent(e, NNC_PH_first, e->first_given);
        e->first_given = -1;
    }
    return first;
}

nnc_exec_phases nnc_exec_first_run(const nnc_exec *e)
{
    return e->phase;
}

/* The device whose clock event k of the profile uses. */
static const dev *clocked(const nnc_exec *e, int k)
{
    return &e->dev[e->p->cmd[e->p->end[SEC_init] + k / 2].device];
}

/* Submits commands first..end-1, each between two records of time. */
static nnc_status issue_timed(nnc_exec *e, int first, int end)
{
    const nnc_plan *p = e->p;
    nnc_status status = NNC_OK;
    int32_t at;
    if (e->progress)
        return nnc_progress_run(e, first, end, true, &at);
    for (int i = first; i < end && status == NNC_OK; i++) {
        nnc_event **clock = e->clock + 2 * (i - p->end[SEC_init]);
        if (!nnc_exec_owns(e, p->cmd[i].device))
            continue;
        nnc_stream *s = e->dev[p->cmd[i].device].stream[p->cmd[i].stream];
        NNC_TRY(nnc_sends_before(e, i)); /* the command's time is without this wait */
        status = clocked(e, 2 * (i - p->end[SEC_init]))->api->record(s, clock[0]);
        if (status == NNC_OK)
            status = nnc_exec_issue(e, i);
        if (status == NNC_OK)
            status = clocked(e, 2 * (i - p->end[SEC_init]))->api->record(s, clock[1]);
    }
    return status;
}

nnc_status nnc_exec_issue_part(nnc_exec *e, nnc_section last, int32_t *at)
{
    const nnc_plan *p = e->p;
    const int32_t first = nnc_exec_first(e, last);
    nnc_status status = NNC_OK;
    if (e->progress)
        return nnc_progress_run(e, first, p->end[last], e->timed, at);
    for (int32_t i = first; i < p->end[last] && status == NNC_OK; i++) {
        *at = i;
        if (p->cmd[i].kind != CMD_wait || e->record[p->cmd[i].item] >= first)
            status = e->timed ? issue_timed(e, i, i + 1) : nnc_exec_issue(e, i);
    }
    return status;
}

nnc_status nnc_exec_refused(
    const nnc_exec *e, nnc_status status, int32_t cmd, const char *part, nnc_sink *sink)
{
    const char *layers = cmd >= 0 && cmd < e->p->n_cmd ? e->p->cmd[cmd].layers : NULL;
    return nnc_fail0(sink, status, "%s: the device refused the command: %s", layers ? layers : part,
        nnc_status_name(status));
}

/* Submits the commands from main's first up to `end`. */
static nnc_status give(nnc_exec *e, int32_t end, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    int32_t first = p->end[SEC_init], i = first;
    nnc_status status = fence(e, true);
    if (status == NNC_OK && e->progress) {
        status = nnc_progress_run(e, first, end, false, &i);
        i = status == NNC_OK ? end : i + 1;
    }
    while (status == NNC_OK && i < end)
        status = nnc_exec_issue(e, i++);
    if (status == NNC_OK)
        status = fence(e, false);
    if (status == NNC_OK)
        return NNC_OK;
    const bool told = e->self && nnc_comm_failure(e->self, sink);
    nnc_exec_break_collectives(e);
    return told ? status : nnc_exec_refused(e, status, i > first ? i - 1 : -1, "run", sink);
}

/* The phase of the first run or step begins. */
static void begin_first(nnc_exec *e)
{
    if (e->first_given == 0 && e->use == &e->own)
        e->first_given = nnc_now_ns();
}

nnc_status nnc_exec_run(nnc_exec *e, nnc_sink *sink)
{
    bool replayed = false;
    if (e->ranks)
        NNC_TRY(nnc_exec_order_run(e, SEC_main, sink));
    begin_first(e);
    if (e->ranks)
        return nnc_exec_run_part(e, SEC_main, sink);
    nnc_status status = nnc_exec_replay(e, SEC_main, &replayed, sink);
    if (replayed && status == NNC_OK)
        return NNC_OK;
    if (status != NNC_OK)
        return nnc_fail0(sink, status, "run: the device refused it: %s", nnc_status_name(status));
    NNC_TRY(give(e, e->p->end[SEC_main], sink));
    e->use->part[SEC_main].runs += e->use->part[SEC_main].runs < INT_MAX;
    return NNC_OK;
}

nnc_status nnc_exec_update(nnc_exec *e, bool step, nnc_sink *sink)
{
    const nnc_section last = step ? SEC_step : SEC_accumulate;
    bool replayed = false;
    int32_t at = -1;
    if (e->ranks) {
        NNC_TRY(nnc_exec_order_run(e, last, sink));
        return nnc_exec_run_part(e, last, sink);
    }
    nnc_status status = nnc_exec_replay(e, last, &replayed, sink);
    if (replayed && status == NNC_OK)
        return NNC_OK;
    status = status ? status : fence(e, true);
    status = status ? status : nnc_exec_issue_part(e, last, &at);
    status = status ? status : fence(e, false);
    if (status != NNC_OK) {
        nnc_exec_break_collectives(e);
        return nnc_exec_refused(e, status, at, "update", sink);
    }
    e->use->part[last].runs += e->use->part[last].runs < INT_MAX;
    return NNC_OK;
}

/* A whole batch: part by part where the device replays them. */
static nnc_status give_batch(nnc_exec *e, bool step, nnc_sink *sink)
{
    begin_first(e);
    if (!e->replays && !e->ranks)
        return give(e, e->p->end[step ? SEC_step : SEC_accumulate], sink);
    NNC_TRY(nnc_exec_run(e, sink));
    return nnc_exec_update(e, step, sink);
}

nnc_status nnc_exec_accumulate(nnc_exec *e, nnc_sink *sink)
{
    return give_batch(e, false, sink);
}

nnc_status nnc_exec_step(nnc_exec *e, nnc_sink *sink)
{
    return give_batch(e, true, sink);
}

static nnc_status put_tensor(nnc_exec *e, int32_t t, const void *data)
{
    const dev *d = &e->dev[e->p->tensor[t].device];
    if (!nnc_exec_owns(e, e->p->tensor[t].device))
        return nnc_exec_put_remote(e, t, data);
    if (e->ranks) /* where no fence orders stream 0 after the others */
        NNC_TRY(nnc_exec_sync_ranks(e, NULL));
    return d->api->upload(
        d->stream[0], nnc_exec_address(e, t), data, nnc_type_bytes(&e->p->tensor[t].type));
}

static nnc_status get_tensor(nnc_exec *e, int32_t t, int64_t offset, int64_t bytes, void *data)
{
    const dev *d = &e->dev[e->p->tensor[t].device];
    int64_t size = nnc_type_bytes(&e->p->tensor[t].type);
    if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset)
        return NNC_E_BUG;
    if (!nnc_exec_owns(e, e->p->tensor[t].device))
        return nnc_exec_get_remote(e, t, offset, bytes, data);
    if (e->ranks)
        NNC_TRY(nnc_exec_sync_ranks(e, NULL));
    return d->api->download(d->stream[0], data, (char *)nnc_exec_address(e, t) + offset, bytes);
}

void *nnc_exec_tensor(nnc_exec *e, int32_t t)
{
    const int device = t >= 0 && t < e->p->n_tensor ? e->p->tensor[t].device : -1;
    const bool seen = device >= 0 && !e->ranks && nnc_exec_owns(e, device);
    return seen && e->dev[device].api->host_memory ? nnc_exec_address(e, t) : NULL;
}

nnc_status nnc_exec_upload(nnc_exec *e, int i, const void *data)
{
    return i < 0 || i >= e->p->n_input ? NNC_E_BUG : put_tensor(e, e->p->input[i], data);
}

nnc_status nnc_exec_get_input(nnc_exec *e, int i, void *data)
{
    const nnc_plan *p = e->p;
    return i < 0 || i >= p->n_input
               ? NNC_E_BUG
               : get_tensor(e, p->input[i], 0, nnc_type_bytes(&p->tensor[p->input[i]].type), data);
}

nnc_status nnc_exec_download_part(nnc_exec *e, int i, int64_t offset, int64_t bytes, void *data)
{
    return i < 0 || i >= e->p->n_output ? NNC_E_BUG
                                        : get_tensor(e, e->p->output[i], offset, bytes, data);
}

nnc_status nnc_exec_download(nnc_exec *e, int i, void *data)
{
    if (i < 0 || i >= e->p->n_output)
        return NNC_E_BUG;
    return nnc_exec_download_part(
        e, i, 0, nnc_type_bytes(&e->p->tensor[e->p->output[i]].type), data);
}

nnc_status nnc_exec_get_state(nnc_exec *e, int i, int64_t offset, int64_t bytes, void *data)
{
    return i < 0 || i >= e->p->n_update ? NNC_E_BUG
                                        : get_tensor(e, e->p->update[i].state, offset, bytes, data);
}

nnc_status nnc_exec_set_state(nnc_exec *e, int i, const void *data)
{
    return i < 0 || i >= e->p->n_update ? NNC_E_BUG : put_tensor(e, e->p->update[i].state, data);
}

nnc_status nnc_exec_clock_events(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    int n = e->clock ? 0 : 2 * (p->n_cmd - p->end[SEC_init]);
    nnc_event **clock = e->clock ? e->clock : ARENA_NEW(&e->arena, nnc_event *, n + 1);
    NNC_NEED(clock, sink);
    for (int i = 0; i < n; i++)
        if (nnc_exec_owns(e, p->cmd[p->end[SEC_init] + i / 2].device))
            NNC_TRY(nnc_exec_event(&e->events, &e->arena, clocked(e, i), &clock[i], sink));
    e->clock = clock;
    return NNC_OK;
}

nnc_status nnc_exec_profile_behind(nnc_exec *e, int before, nnc_section first, nnc_section last,
    int64_t *start_ns, int64_t *end_ns, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const int from = nnc_plan_first(p, first);
    if (e->ranks)
        return nnc_exec_profile_ranks(e, first, last, start_ns, end_ns, sink);
    NNC_TRY(nnc_exec_clock_events(e, sink));
    for (int k = 0; k < before; k++)
        NNC_TRY(nnc_exec_run(e, sink));
    nnc_status status = fence(e, true);
    if (status == NNC_OK)
        status = issue_timed(e, from, p->end[last]);
    if (status == NNC_OK)
        status = fence(e, false);
    if (status != NNC_OK)
        nnc_exec_break_collectives(e);
    nnc_status synced = nnc_exec_sync(e, sink);
    if (status != NNC_OK)
        return nnc_fail0(
            sink, status, "profile: the device refused a command: %s", nnc_status_name(status));
    NNC_TRY(synced);
    for (int i = 0, k = from - p->end[SEC_init]; i < p->end[last] - from; i++, k++) {
        start_ns[i] = clocked(e, 2 * k)->api->event_ns(e->clock[2 * k]);
        end_ns[i] = clocked(e, 2 * k)->api->event_ns(e->clock[2 * k + 1]);
    }
    return NNC_OK;
}

nnc_exec_memory nnc_exec_requested(const nnc_exec *e, int device)
{
    return e->dev[device].requested;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

/* Divides the elapsed time of init among the phases: reading and uploading weights as measured, and packing and folding, which get the
 * rest. Nothing is left where concurrent streams together read weights for longer than the elapsed time. */
static void share_init(nnc_exec *e, int64_t ns)
{
    for (int i = 0; i < e->p->end[SEC_init]; i++)
        e->phase.ns[NNC_PH_weights] += e->weight[i].ns;
    int64_t rest = ns - e->phase.ns[NNC_PH_weights] - e->phase.ns[NNC_PH_upload];
    e->phase.ns[NNC_PH_prepare] = nnc_max64(rest, 0);
}

/* said: what the devices reported; a weight that could not be read is told first, since the others follow from it. */
static nnc_status init_failed(nnc_exec *e, nnc_status status, const nnc_sink *said, nnc_sink *sink)
{
    bool told = nnc_exec_weight_failure(e, sink);
    for (size_t i = 0; said && !told && i < nnc_sink_count(said); i++) {
        const nnc_diag *d = nnc_sink_at(said, i);
        told = d->severity == NNC_ERROR;
        if (told)
            status = nnc_fail(sink, d->code, d->loc, "preparing the weights: %s", d->message);
    }
    if (!told)
        return nnc_fail0(sink, status, "preparing the weights failed: %s", nnc_status_name(status));
    return status;
}

static nnc_status run_init(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    nnc_status status = NNC_OK;
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    int64_t from = nnc_now_ns();
    for (int i = 0; i < p->end[SEC_init] && status == NNC_OK; i++)
        if (!e->idle[i])
            status = nnc_exec_issue(e, i);
    nnc_status synced = nnc_exec_sync_own(e, said);
    share_init(e, nnc_now_ns() - from);
    if (status == NNC_OK)
        status = synced;
    return status == NNC_OK ? status : init_failed(e, status, said, sink);
}

/* Frees init's arena and the handles that only init used. */
static void release_init(nnc_exec *e)
{
    for (int d = 0; d < e->p->n_device; d++)
        if (e->dev[d].base[SP_init]) {
            e->dev[d].api->free(e->dev[d].device, e->dev[d].base[SP_init]);
            e->dev[d].base[SP_init] = NULL;
        }
    nnc_exec_unload(e, false);
    nnc_weight_files_deinit(&e->files);
}

static nnc_status allocate_tables(nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    nnc_arena *a = &e->arena;
    e->dev = ARENA_NEW(a, dev, p->n_device);
    e->event = ARENA_NEW(a, nnc_event *, p->n_event + 1);
    e->record = ARENA_NEW(a, int32_t, p->n_event + 1);
    e->first_arg = ARENA_NEW(a, int64_t, p->n_cmd + 1);
    e->handle = ARENA_NEW(a, prepared *, p->n_cmd + 1);
    e->owned = ARENA_NEW(a, prepared, p->n_cmd + 1);
    e->engine = ARENA_NEW(a, const nnc_engine *, p->n_engine + 1);
    e->weight = ARENA_NEW(a, weight_work, p->n_cmd + 1);
    e->owner = ARENA_NEW(a, int32_t, p->n_cmd + 1);
    e->object =
        nnc_arena_alloc(a, (size_t)p->n_engine * (size_t)p->n_object + 1, sizeof *e->object);
    bool ok = e->dev && e->event && e->record && e->first_arg && e->handle && e->owned &&
              e->engine && e->weight && e->owner && e->object;
    return ok ? NNC_OK : nnc_nomem(sink);
}

static nnc_status allocate_staging(nnc_exec *e, nnc_sink *sink)
{
    int64_t most = 0;
    for (int i = 0; i < e->p->n_cmd && !e->ranks; i++)
        if (nnc_exec_hidden_copy(e, &e->p->cmd[i]))
            most = nnc_max64(most, e->p->tensor[e->p->cmd[i].arg[1]].bytes);
    e->staging = most ? nnc_malloc((size_t)most) : NULL;
    return most && !e->staging ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_exec_fill(nnc_exec *e, table *t, nnc_arena *a, nnc_sink *sink)
{
    int64_t n = 0;
    for (int i = 0; i < e->p->n_cmd; i++) {
        e->first_arg[i] = n;
        n += e->p->cmd[i].n_arg;
    }
    t->arg = ARENA_NEW(a, void *, n + 1);
    NNC_NEED(t->arg, sink);
    e->use = t;
    t->e = e;
    for (int i = 0; i < e->p->n_cmd; i++)
        for (int k = 0; k < e->p->cmd[i].n_arg; k++)
            t->arg[e->first_arg[i] + k] = nnc_exec_address(e, e->p->cmd[i].arg[k]);
    return NNC_OK;
}

static nnc_status create(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    NNC_TRY(nnc_exec_check(p, sink));
    NNC_TRY(allocate_tables(e, sink));
    NNC_TRY(nnc_exec_join(e, o, sink));
    NNC_TRY(nnc_exec_find_engines(e, o, sink));
    for (int d = 0; d < p->n_device; d++)
        if (nnc_exec_owns(e, d))
            NNC_TRY(open_device(e, o, d, sink));
    NNC_TRY(create_events(e, sink));
    NNC_TRY(nnc_exec_find_collectives(e, sink));
    NNC_TRY(nnc_nccl_create(e, o->comm_by, sink));
    NNC_TRY(nnc_sends_find(e, o, sink));
    NNC_TRY(nnc_exec_find_lenders(e, sink));
    NNC_TRY(nnc_progress_create(e, sink));
    e->replays = !o->no_replay && !e->ranks && (!e->progress || nnc_nccl_takes_all(e));
    for (int d = 0; d < p->n_device && e->replays; d++) /* a device captures only its own work */
        e->replays = e->replays && e->dev[d].api->capture_begin && e->dev[d].api == e->dev[0].api;
    for (int s = SEC_main; s < SEC__COUNT; s++) /* submitting a single command is as cheap */
        e->own.part[s].no_replay = !e->replays || p->end[s] - nnc_exec_first(e, (nnc_section)s) < 2;
    NNC_TRY(allocate_staging(e, sink));
    NNC_TRY(nnc_exec_find_handles(e, sink));
    NNC_TRY(nnc_exec_load(e, true, sink));
    NNC_TRY(nnc_exec_place(e, o, sink));
    NNC_TRY(nnc_exec_find_kept(e, sink));
    NNC_TRY(nnc_exec_fill(e, &e->own, &e->arena, sink));
    NNC_TRY(nnc_exec_load(e, false, sink));
    NNC_TRY(nnc_need_library_room(sink));
    NNC_TRY(run_init(e, sink));
    nnc_exec_offer(e);
    release_init(e);
    NNC_TRY(nnc_need_library_room(sink));
    return nnc_exec_meet(e, NNC_OK, sink);
}

/* Reports a plan's bytes on each device and the free bytes, the reason why it does not fit. */
static void tell_needs(const nnc_exec *e, nnc_sink *sink)
{
    for (int i = 0; e->dev && i < e->p->n_device; i++) {
        const nnc_plan_device *d = &e->p->device[i];
        NNC_LOCAL(nnc_text) t = {0};
        if (!nnc_exec_owns(e, i))
            continue;
        nnc_put_bytes(&t, d->arena_bytes);
        nnc_puts(&t, " for inputs, outputs and what is computed between them, ");
        nnc_put_bytes(&t, d->persist_bytes);
        nnc_puts(&t, " for weights, ");
        nnc_put_bytes(&t, d->init_bytes);
        nnc_note(sink, (nnc_loc){0}, "%s needs %s while they are prepared (nnc memory shows it)",
            d->name ? d->name : "the device", nnc_text_str(&t));
    }
}

nnc_status nnc_exec_create(
    const nnc_plan *p, const nnc_exec_options *o, nnc_exec **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_exec *e = nnc_calloc(1, sizeof *e);
    NNC_NEED(e, sink);
    e->p = p;
    e->use = &e->own;
    nnc_status status = create(e, o, sink);
    if (status == NNC_E_FIT)
        tell_needs(e, sink);
    if (status != NNC_OK) {
        (void)nnc_exec_meet(e, status, NULL); /* the others hear of it */
        e->keep = NULL;
        nnc_exec_destroy(e);
        return status;
    }
    *out = e;
    return NNC_OK;
}

void nnc_exec_destroy(nnc_exec *e)
{
    if (!e)
        return;
    nnc_exec_activity_end(e);
    nnc_exec_break_collectives(e); /* where commands were submitted and others not */
    if (e->nccl && nnc_exec_sync_own(e, NULL) == NNC_OK) { /* otherwise they are aborted */
        nnc_exec_drop_captures(e, &e->own);
        nnc_nccl_destroy(e);
    }
    /* streams first: destroying waits for their work, which uses everything else */
    for (int d = 0; e->dev && d < e->p->n_device; d++)
        for (int s = 0; e->dev[d].stream && s < e->p->device[d].streams; s++)
            if (e->dev[d].stream[s])
                e->dev[d].api->stream_destroy(e->dev[d].stream[s]);
    nnc_progress_destroy(e, true);
    nnc_exec_keep(e);
    if (e->dev)
        nnc_exec_drop_captures(e, &e->own);
    if (e->owned)
        nnc_exec_unload(e, true);
    nnc_exec_drop_events(&e->events);
    nnc_exec_release(e);
    nnc_progress_destroy(e, false);
    nnc_exec_leave(e);
    nnc_comm_close(e->self);
    for (int d = 0; e->dev && d < e->p->n_device; d++)
        close_device(e, d);
    nnc_free(e->staging);
    nnc_arena_deinit(&e->arena);
    nnc_free(e);
}

/* sim/plan.c -- a plan on described hardware. Each command is a task in its stream's lane, as long as the device's kind needs for it.
 * Copies between devices, and collectives, use the cluster's links. */
#include "sim/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const nnc_plan *p;
    const nnc_cluster *c;
    const nnc_sim_plan_options *o;
    nnc_sim_plan *out;
    nnc_sim *sim;
    nnc_sink *sink;
    int32_t *device; /* of the cluster, by device of the plan */
    int *first_lane; /* of each device of the plan */
    int *host; /* lane of the host thread, by device of the plan */
    int32_t *recorded; /* by event: the task of its record, -1: none yet */
    int32_t *task; /* by command of the walk */
    int32_t *by_first, *by_last; /* tensors in the order of their first and last command */
    int n_tensor;
    struct meeting { /* the collective whose participants come one after the other */
        int n, n_record;
        int32_t *cmd, *lane, *device, *record; /* by participant; records after one of them */
    } meet;
} walk;

/* ---- devices -------------------------------------------------------------------------------------------------------- */

/* By default, the devices of a kind in their order. */
static nnc_status map_devices(walk *w)
{
    int next[2] = {0, 0};
    for (int d = 0; d < w->p->n_device; d++) {
        const nnc_tkind kind = strncmp(w->p->device[d].name, "cuda", 4) ? NNC_T_cpu : NNC_T_cuda;
        int at = w->o->device ? w->o->device[d] : next[kind];
        while (!w->o->device && at < w->c->n_device && nnc_cluster_target(w->c, at)->kind != kind)
            at++;
        if (at < 0 || at >= w->c->n_device || nnc_cluster_target(w->c, at)->kind != kind)
            return nnc_fail(w->sink, NNC_E_USAGE, (nnc_loc){.file = w->c->file},
                "%s has no device for %s of the plan: compile for its devices (--target=%s), at "
                "most "
                "%d of them",
                w->c->name, w->p->device[d].name, w->c->kind[0].target.name, w->c->n_device);
        w->device[d] = at;
        next[kind] = at + 1;
    }
    return NNC_OK;
}

static nnc_status add_lanes(walk *w)
{
    for (int d = 0; d < w->p->n_device; d++) {
        w->host[d] = d && !w->o->host_each ? w->host[0] : nnc_sim_lane(w->sim, -1);
        NNC_NEED(w->host[d] >= 0, w->sink);
        for (int s = 0; s < w->p->device[d].streams; s++) {
            const int lane = nnc_sim_lane(w->sim, w->device[d]);
            NNC_NEED(lane >= 0, w->sink);
            if (!s)
                w->first_lane[d] = lane;
        }
    }
    return NNC_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

/* The first simulated command that needs the tensor's memory; inputs exist before. */
static int32_t first_of(const walk *w, int32_t tensor)
{
    return (int32_t)nnc_max64(w->p->tensor[tensor].first, w->out->first);
}

static int32_t last_of(const walk *w, int32_t tensor)
{
    const int32_t end = w->out->first + w->out->n_cmd - 1;
    return (int32_t)nnc_min64(w->p->tensor[tensor].last, end);
}

static bool owns_memory(const walk *w, int32_t tensor)
{
    const nnc_ptensor *t = &w->p->tensor[tensor];
    return t->alias_of < 0 && t->space == SP_arena && first_of(w, tensor) <= last_of(w, tensor);
}

typedef struct order {
    const walk *w;
    bool last;
} order;

static int compare(const void *a, const void *b, void *ctx)
{
    const order *o = ctx;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const int32_t i = o->last ? last_of(o->w, x) : first_of(o->w, x),
                  k = o->last ? last_of(o->w, y) : first_of(o->w, y);
    return nnc_then(nnc_cmp(i, k), nnc_cmp(x, y));
}

static nnc_status sort_tensors(walk *w)
{
    int *n = &w->n_tensor;
    nnc_arena *a = &w->out->arena;
    NNC_NEED(ARENA_ARRAYS(a, w->p->n_tensor + 1, w->by_first, w->by_last), w->sink);
    for (int32_t t = 0; t < w->p->n_tensor; t++)
        if (owns_memory(w, t))
            w->by_first[(*n)++] = t;
    memcpy(w->by_last, w->by_first, (size_t)*n * sizeof *w->by_last);
    qsort_r(w->by_first, (size_t)*n, sizeof *w->by_first, compare, &(order){w, false});
    qsort_r(w->by_last, (size_t)*n, sizeof *w->by_last, compare, &(order){w, true});
    return NNC_OK;
}

/* ---- commands ----------------------------------------------------------------------------------------------------------- */

static int64_t elements(const nnc_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n = nnc_mul_sat(n, t->dim[i]);
    return n;
}

/* The share of a device that a command can keep busy. A block of a contraction computes some 8192 results, a thread of another kernel
 * one. On a CPU: its threads. */
double nnc_sim_command_share(const nnc_plan *p, const nnc_cmd *c, const nnc_target *t)
{
    enum { TILE = 8192 };
    const bool call = c->kind == CMD_call;
    const int threads = c->kind == CMD_kernel ? p->kernel[c->item].threads : 1;
    if (t->kind == NNC_T_cpu)
        return threads > 0 && threads < t->threads ? (double)threads / t->threads : 1;
    const nnc_ptensor *last = c->n_arg ? &p->tensor[c->arg[c->n_arg - 1]] : NULL;
    const double n = last ? (double)elements(&last->type) : 0;
    const double full = call ? (double)t->sms * TILE : (double)t->sms * t->sm_threads;
    return n >= full ? 1 : n > 0 ? n / full : 1.0 / t->sms;
}

/* Bytes of a call's own operands and result; of another command all of its bytes. */
static int64_t own_bytes(const nnc_plan *p, const nnc_cmd *c)
{
    if (c->kind != CMD_call)
        return c->bytes;
    const nnc_call *x = &p->call[c->item];
    int64_t n = nnc_add_sat(nnc_type_bytes(&x->src), nnc_type_bytes(&x->dst));
    if (x->kind == CALL_conv || x->kind == CALL_conv_transpose || x->kind == CALL_conv_wgrad ||
        x->kind == CALL_matmul)
        n = nnc_add_sat(n, nnc_type_bytes(&x->wei));
    return nnc_min64(n, c->bytes);
}

nnc_sim_op nnc_sim_command_op(const nnc_plan *p, const nnc_cmd *c)
{
    const nnc_ptensor *first = c->n_arg ? &p->tensor[c->arg[0]] : NULL;
    const int64_t own = own_bytes(p, c);
    return (nnc_sim_op){.op_class = c->op_class,
        .dtype = c->kind == CMD_call ? p->call[c->item].src.dtype
                 : first             ? first->type.dtype
                                     : DT_f32,
        .tf32 = c->kind == CMD_call && p->call[c->item].tf32,
        .trains = p->end[SEC_step] > p->end[SEC_main],
        .flops = c->flops,
        .bytes = own,
        .epilogue_bytes = c->bytes - own};
}

/* The op of a command alone on a device of kind k. */
static void fill_op(const nnc_plan *p, const nnc_cmd *c, const nnc_cluster_kind *k, nnc_sim_task *t)
{
    const nnc_target *g = &k->target;
    const char *how;
    const nnc_sim_op op = nnc_sim_command_op(p, c);
    const double share = nnc_sim_command_share(p, c, g);
    t->kind = SIM_op;
    t->latency_ps = (k->command_ns >= 0 ? k->command_ns : g->launch_ns) * 1000;
    t->work_ps = nnc_sim_op_ps(k, &op, &how);
    if (g->kind == NNC_T_cpu)
        t->cores = share * g->threads * nnc_sim_op_contention(k, &op);
    t->compute = share;
    t->memory = strcmp(how, "memory") ? 0 : 1;
    if (g->kind == NNC_T_cpu && share < 1) /* its threads alone */
        t->work_ps = (int64_t)((double)t->work_ps / share);
}

int64_t nnc_sim_command_ps(const nnc_plan *p, const nnc_cmd *c, const nnc_cluster_kind *k)
{
    nnc_sim_task t = {0};
    fill_op(p, c, k, &t);
    return nnc_add_sat(t.latency_ps, t.work_ps);
}

static int add_op(walk *w, nnc_sim_task *t, const nnc_cmd *c)
{
    fill_op(w->p, c, nnc_cluster_kind_of(w->c, t->device), t);
    const int64_t ps = w->o->command_ps ? w->o->command_ps(w->o->ctx, w->p, c) : -1;
    if (ps >= 0) {
        t->latency_ps = 0;
        t->work_ps = ps;
    }
    return nnc_sim_add(w->sim, t);
}

static int add_transfer(walk *w, nnc_sim_task *t, int32_t src, int32_t dst, int64_t bytes)
{
    t->kind = SIM_transfer;
    t->bytes = bytes;
    return nnc_sim_copies(w->sim, t, &src, &dst, 1, w->sink);
}

static int add_event(walk *w, nnc_sim_task *t, const nnc_cmd *c)
{
    t->kind = SIM_event;
    if (c->kind == CMD_wait && w->recorded[c->item] >= 0) {
        t->wakes = nnc_cluster_target(w->c, t->device)->kind == NNC_T_cpu;
        t->n_dep = 1;
        t->dep = &w->recorded[c->item];
    }
    const int id = nnc_sim_add(w->sim, t);
    if (c->kind == CMD_record)
        w->recorded[c->item] = id;
    return id;
}

/* ---- collectives: participants are consecutive, with waits and records between ------------------------------------------ */

static nnc_status prepare_meeting(walk *w)
{
    nnc_arena *a = &w->out->arena;
    int most = 0;
    for (int k = 0; k < w->p->n_collective; k++)
        most = w->p->collective[k].n > most ? w->p->collective[k].n : most;
    w->meet = (struct meeting){.cmd = ARENA_NEW(a, int32_t, most + 1),
        .lane = ARENA_NEW(a, int32_t, most + 1),
        .device = ARENA_NEW(a, int32_t, most + 1),
        .record = ARENA_NEW(a, int32_t, w->p->n_event + 1)};
    const struct meeting *m = &w->meet;
    NNC_NEED(m->cmd && m->lane && m->device && m->record, w->sink);
    return NNC_OK;
}

/* A participant arrives. */
static int add_arrival(walk *w, nnc_sim_task *t, int32_t i)
{
    struct meeting *m = &w->meet;
    m->cmd[m->n] = i;
    m->lane[m->n] = *t->lane;
    m->device[m->n++] = t->device;
    t->kind = SIM_event;
    return nnc_sim_add(w->sim, t);
}

/* All have arrived: one task for all of them, in all of their lanes. */
static nnc_status add_collective(walk *w)
{
    static const nnc_group_op group[COLL__COUNT] = {[COLL_allreduce] = GROUP_allreduce,
        [COLL_allgather] = GROUP_allgather,
        [COLL_reduce_scatter] = GROUP_reduce_scatter};
    struct meeting *m = &w->meet;
    const nnc_cmd *c = &w->p->cmd[m->cmd[0]];
    const nnc_collective *x = &w->p->collective[c->item];
    /* the tensor that is whole: a participant's operand; of an allgather its result */
    const int k = x->kind == COLL_allgather ? c->n_arg - 1 : 0;
    const nnc_sim_task t = {.kind = SIM_collective,
        .name = *c->layers ? c->layers : c->op_class,
        .device = -1,
        .wakes = nnc_cluster_target(w->c, m->device[0])->kind == NNC_T_cpu,
        .n_lane = m->n,
        .lane = m->lane,
        .bytes = nnc_type_bytes(&w->p->tensor[c->arg[k]].type)};
    const int id = nnc_sim_collectives(w->sim, &t, group[x->kind], m->device, m->n, 1, w->sink);
    if (id < 0)
        return nnc_sink_cause(w->sink, NNC_E_NOMEM);
    for (int p = 0; p < m->n; p++)
        w->task[m->cmd[p] - w->out->first] = id;
    for (int r = 0; r < m->n_record; r++) { /* they come after the collective in their lane */
        const nnc_cmd *record = &w->p->cmd[m->record[r]];
        const int32_t lane = w->first_lane[record->device] + record->stream;
        const int again = nnc_sim_add(w->sim, &(nnc_sim_task){.kind = SIM_event,
                                                  .name = record->op_class,
                                                  .device = w->device[record->device],
                                                  .n_lane = 1,
                                                  .lane = &lane});
        NNC_NEED(again >= 0, w->sink);
        w->task[m->record[r] - w->out->first] = w->recorded[record->item] = again;
    }
    m->n = m->n_record = 0;
    return NNC_OK;
}

/* After command i: the collective that is complete, or a record after a participant that waits. */
static nnc_status follow_meeting(walk *w, int32_t i)
{
    struct meeting *m = &w->meet;
    const nnc_cmd *c = &w->p->cmd[i];
    const int32_t lane = w->first_lane[c->device] + c->stream;
    for (int k = 0; c->kind == CMD_record && k < m->n; k++)
        if (m->lane[k] == lane)
            m->record[m->n_record++] = i;
    return c->kind == CMD_collective && m->n == w->p->collective[c->item].n ? add_collective(w)
                                                                            : NNC_OK;
}

static int add_command(walk *w, int32_t i)
{
    const nnc_cmd *c = &w->p->cmd[i];
    const int32_t lane = w->first_lane[c->device] + c->stream, device = w->device[c->device];
    const bool gpu = nnc_cluster_target(w->c, device)->kind == NNC_T_cuda;
    nnc_sim_task t = {.name = *c->layers ? c->layers : c->op_class,
        .device = device,
        .n_lane = 1,
        .lane = &lane,
        .launched = gpu && w->o->host_ns > 0 && c->kind != CMD_record && c->kind != CMD_wait,
        .host = w->host[c->device],
        .launch_ps = w->o->host_ns * 1000};
    const nnc_ptensor *dst = &w->p->tensor[c->n_arg ? c->arg[c->n_arg - 1] : 0];
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_weight: return add_transfer(w, &t, NNC_HOST, device, dst->bytes);
    case CMD_record:
    case CMD_wait: return add_event(w, &t, c);
    case CMD_collective: return add_arrival(w, &t, i);
    case CMD_copy:
        if (dst->device != c->device)
            return add_transfer(w, &t, device, w->device[dst->device], nnc_type_bytes(&dst->type));
        return add_op(w, &t, c);
    default: return add_op(w, &t, c);
    }
}

/* Cost of a run beside its commands, where several CPU devices take part. */
static int64_t run_ps(const walk *w)
{
    const bool several =
        w->p->n_device > 1 && nnc_cluster_target(w->c, w->device[0])->kind == NNC_T_cpu;
    return several ? nnc_cluster_host_of(w->c).run_ns * 1000 : 0;
}

/* A GPU's run is submitted as a whole, and waited for. */
static int64_t wait_ps(const walk *w)
{
    const nnc_cluster_kind *k = nnc_cluster_kind_of(w->c, w->device[0]);
    return k->target.kind == NNC_T_cuda ? k->run_ns * 1000 : 0;
}

/* Sections follow each other when all streams are done; of CPU devices of one process, stream by stream. */
static nnc_status add_barrier(walk *w)
{
    int n = 0;
    if (nnc_cluster_target(w->c, w->device[0])->kind == NNC_T_cpu &&
        !nnc_cluster_host_of(w->c).processes)
        return NNC_OK;
    for (int d = 0; d < w->p->n_device; d++)
        n += w->p->device[d].streams;
    int32_t *lane = ARENA_NEW(&w->out->arena, int32_t, n + 1);
    NNC_NEED(lane, w->sink);
    n = 0;
    for (int d = 0; d < w->p->n_device; d++)
        for (int s = 0; s < w->p->device[d].streams; s++)
            lane[n++] = w->first_lane[d] + s;
    const int id = nnc_sim_add(w->sim, &(nnc_sim_task){.kind = SIM_event,
                                           .name = "all streams",
                                           .device = -1,
                                           .n_lane = n,
                                           .lane = lane,
                                           .latency_ps = run_ps(w)});
    NNC_NEED(id >= 0, w->sink);
    return NNC_OK;
}

static nnc_status add_commands(walk *w)
{
    NNC_TRY(prepare_meeting(w));
    for (int32_t i = 0; i < w->out->n_cmd; i++) {
        const int32_t cmd = w->out->first + i;
        for (int s = SEC_init; i && s < SEC_step; s++)
            if (w->p->end[s] == cmd)
                NNC_TRY(add_barrier(w));
        w->task[i] = add_command(w, cmd);
        NNC_NEED(w->task[i] >= 0, w->sink);
        NNC_TRY(follow_meeting(w, cmd));
    }
    return NNC_OK;
}

/* ---- what the device is asked for ------------------------------------------------------------------------------------------ */

/* A plan's allocations, replayed with PyTorch's allocator. */
typedef struct replay {
    const walk *w;
    nnc_caching *c;
    int32_t *handle; /* by tensor */
    int d; /* device of the plan */
    bool oom;
    int32_t fails_at;
    int allocated, freed; /* tensors in the order of first and last command */
} replay;

static void allocate(replay *r, int32_t t, int stream, int32_t cmd)
{
    r->handle[t] = nnc_caching_alloc(r->c, r->w->p->tensor[t].bytes, stream);
    r->oom = r->handle[t] == -2;
    if (r->handle[t] == -1)
        r->fails_at = cmd;
}

static bool going(const replay *r)
{
    return !r->oom && r->fails_at < 0;
}

/* Allocates what exists before the first command: weights and results of init. */
static void replay_persistent(replay *r)
{
    for (int32_t t = 0; t < r->w->p->n_tensor && going(r); t++) {
        const nnc_ptensor *x = &r->w->p->tensor[t];
        if (x->device == r->d && x->space == SP_persist && x->alias_of < 0)
            allocate(r, t, 0, r->w->out->first);
    }
}

static void replay_command(replay *r, int32_t i)
{
    const walk *w = r->w;
    for (; r->allocated < w->n_tensor && first_of(w, w->by_first[r->allocated]) == i;
         r->allocated++)
        if (w->p->tensor[w->by_first[r->allocated]].device == r->d && going(r))
            allocate(r, w->by_first[r->allocated], w->p->cmd[i].stream, i);
    for (; r->freed < w->n_tensor && last_of(w, w->by_last[r->freed]) == i; r->freed++)
        if (w->p->tensor[w->by_last[r->freed]].device == r->d && going(r))
            nnc_caching_free(r->c, r->handle[w->by_last[r->freed]]);
}

static nnc_status replay_caching(const walk *w, int d, int64_t capacity, nnc_sim_device *out)
{
    replay r = {.w = w, .d = d, .fails_at = -1, .c = nnc_caching_create(capacity)};
    r.handle = nnc_calloc((size_t)w->p->n_tensor + 1, sizeof *r.handle);
    r.oom = !r.c || !r.handle;
    if (!r.oom)
        replay_persistent(&r);
    for (int32_t i = w->out->first; going(&r) && i < w->out->first + w->out->n_cmd; i++)
        replay_command(&r, i);
    out->bytes += r.c ? nnc_caching_get(r.c).peak_reserved : 0;
    out->fails_at = r.fails_at;
    out->fits = r.fails_at < 0;
    nnc_caching_destroy(r.c);
    nnc_free(r.handle);
    NNC_NEED(!r.oom, w->sink);
    return NNC_OK;
}

static nnc_status sum_device(const walk *w, int d, nnc_sim_device *out)
{
    const nnc_plan_device *x = &w->p->device[d];
    const nnc_cluster_kind *k = nnc_cluster_kind_of(w->c, w->device[d]);
    *out = (nnc_sim_device){.device = w->device[d],
        .busy_ps = nnc_sim_device_busy_ps(w->sim, w->device[d]),
        .tensor_bytes = nnc_add_sat(x->lower_bound, x->persist_bytes),
        .bytes = k->context_bytes + k->library_bytes,
        .capacity = k->target.memory_bytes,
        .fails_at = -1};
    out->idle_ps = w->out->total_ps - out->busy_ps;
    if (w->o->policy == SIM_torch_caching)
        return replay_caching(w, d, out->capacity - out->bytes, out);
    out->bytes = nnc_add_sat(out->bytes, nnc_device_needs(w->p, d));
    out->fits = out->bytes <= out->capacity;
    return NNC_OK;
}

static nnc_status simulate(walk *w)
{
    nnc_sim_plan *out = w->out;
    NNC_TRY(map_devices(w));
    w->sim = out->sim = nnc_sim_create(w->c, 0);
    NNC_NEED(w->sim, w->sink);
    NNC_TRY(add_lanes(w));
    NNC_TRY(add_commands(w));
    if (w->o->policy == SIM_torch_caching)
        NNC_TRY(sort_tensors(w));
    NNC_TRY(nnc_sim_run(w->sim, w->sink));
    out->total_ps = nnc_sim_end_ps(w->sim) + run_ps(w) + wait_ps(w);
    for (int32_t i = 0; i < out->n_cmd; i++) {
        out->span[i] = nnc_sim_span_of(w->sim, w->task[i]);
        out->start_ps[i] = out->span[i].start_ps;
        out->end_ps[i] = out->span[i].end_ps;
    }
    for (int d = 0; d < w->p->n_device; d++)
        NNC_TRY(sum_device(w, d, &out->by_device[d]));
    return NNC_OK;
}

nnc_status nnc_sim_plan_run(nnc_sim_plan *out, const nnc_plan *p, const nnc_cluster *c,
    const nnc_sim_plan_options *o, nnc_sink *sink)
{
    static const nnc_sim_plan_options defaults = {.first = SEC_main, .last = SEC_main};
    o = o ? o : &defaults;
    const bool main_only = o->first == SEC_init && o->last == SEC_init;
    const nnc_section first = main_only ? SEC_main : o->first,
                      last = main_only ? SEC_main : o->last;
    *out = (nnc_sim_plan){.first = nnc_plan_first(p, first), .n_device = p->n_device};
    out->n_cmd = p->end[last] - out->first;
    nnc_arena *a = &out->arena;
    walk w = {.p = p, .c = c, .o = o, .out = out, .sink = sink};
    w.device = ARENA_NEW(a, int32_t, p->n_device + 1);
    w.first_lane = ARENA_NEW(a, int, p->n_device + 1);
    w.host = ARENA_NEW(a, int, p->n_device + 1);
    w.recorded = ARENA_NEW(a, int32_t, p->n_event + 1);
    w.task = ARENA_NEW(a, int32_t, out->n_cmd + 1);
    out->span = ARENA_NEW(a, nnc_sim_span, out->n_cmd + 1);
    out->start_ps = ARENA_NEW(a, int64_t, out->n_cmd + 1);
    out->end_ps = ARENA_NEW(a, int64_t, out->n_cmd + 1);
    out->by_device = ARENA_NEW(a, nnc_sim_device, p->n_device + 1);
    nnc_status st = NNC_OK;
    if (!w.device || !w.first_lane || !w.host || !w.recorded || !w.task || !out->span ||
        !out->start_ps || !out->end_ps || !out->by_device)
        st = nnc_nomem(sink);
    for (int e = 0; !st && e < p->n_event; e++)
        w.recorded[e] = -1;
    if (!st)
        st = simulate(&w);
    if (st)
        nnc_sim_plan_deinit(out);
    return st;
}

void nnc_sim_plan_deinit(nnc_sim_plan *s)
{
    nnc_sim_destroy(s->sim);
    nnc_arena_deinit(&s->arena);
    *s = (nnc_sim_plan){0};
}

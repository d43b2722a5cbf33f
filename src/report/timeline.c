/* report/timeline.c -- a run of a plan as a timeline: what its commands are for, what they send, and the memory that is in use. */
#include "report/report.h"
#include "session/session.h"
#include <stdlib.h>
#include <string.h>

/* Lanes are in the order of devices and streams. */
static int lane_of(const nnc_plan *p, int device, int stream)
{
    int lane = stream;
    for (int d = 0; d < device; d++)
        lane += p->device[d].streams;
    return lane;
}

nnc_status nnc_timeline_of_plan(
    const char *name, const nnc_plan *p, nnc_timeline **out, nnc_sink *sink)
{
    nnc_timeline *t = *out = nnc_timeline_create(name, p->n_device);
    NNC_NEED(t, sink);
    for (int d = 0; d < p->n_device; d++) {
        nnc_timeline_name(t, d, p->device[d].name);
        t->requested[d] = nnc_device_needs(p, d);
        for (int s = 0; s < p->device[d].streams; s++) {
            char lane[32];
            nnc_snprintf(lane, sizeof lane, "stream %d", s);
            (void)nnc_timeline_lane(t, d, lane, false); /* a failure is noted in t */
        }
    }
    return t->oom ? nnc_nomem(sink) : NNC_OK;
}

/* ---- spans ----------------------------------------------------------------------------------------------- */

typedef struct run {
    const nnc_plan_times *times;
    const nnc_plan *p;
    nnc_timeline *t;
    uint8_t *part; /* by command: nnc_part */
    int32_t *span; /* by command of the run; -1: none */
    int64_t *met; /* by collective (nnc_find_meetings) */
    int64_t begin; /* start of its first command */
    int32_t micro; /* micro-batches of a run that its commands tell apart; 0: none */
    struct change *change;
    int n_change;
} run;

static bool is_sent(const nnc_plan *p, const nnc_cmd *c)
{
    return c->kind == CMD_copy && nnc_plan_connects(p, c);
}

static nnc_work_kind kind_of(const run *r, int32_t i)
{
    const nnc_cmd *c = &r->p->cmd[i];
    if (nnc_plan_connects(r->p, c))
        return WORK_communication;
    switch ((nnc_part)r->part[i]) {
    case PART_optimizer: /* sums of several micro-batches' gradients are no update yet */
        return i < r->p->end[SEC_accumulate] ? WORK_weight : WORK_update;
    case PART_backward:
        for (int k = nnc_plan_first_written(r->p, c); k < c->n_arg; k++)
            if (nnc_is_gradient(r->p, nnc_plan_root(r->p, c->arg[k])))
                return WORK_weight;
        return WORK_backward;
    default: return WORK_forward;
    }
}

static int64_t time_of(const run *r, int32_t cmd, bool end)
{
    const int64_t *v = end ? r->times->end_ps : r->times->start_ps;
    return v[cmd - r->times->first] + r->times->offset_ps;
}

static bool ran(const run *r, int32_t cmd)
{
    return r->times->start_ps[cmd - r->times->first] >= 0 &&
           r->times->end_ps[cmd - r->times->first] >= r->times->start_ps[cmd - r->times->first];
}

/* The micro-batch of a command; of an iteration of several runs, in which each run has as many. */
static int32_t micro_of(const run *r, const nnc_cmd *c)
{
    if (!r->micro)
        return r->times->micro;
    const int32_t before = r->times->micro > 0 ? r->times->micro * r->micro : 0;
    return c->micro > 0 ? before + c->micro - 1 : -1;
}

/* Adds what the participant of a collective waits for its last one, and returns when that starts. */
static int64_t add_waiting(run *r, int32_t i, nnc_slice s)
{
    const nnc_cmd *c = &r->p->cmd[i];
    const int64_t met = c->kind == CMD_collective
                            ? nnc_min64(r->met[c->item] + r->times->offset_ps, s.end_ps)
                            : s.start_ps;
    s.end_ps = met;
    s.bytes = 0;
    s.name = s.op = "waiting for the last participant";
    if (met > s.start_ps)
        (void)nnc_timeline_add(r->t, s); /* a failure is noted in t */
    return met;
}

static void add_spans(run *r)
{
    for (int k = 0; k < r->times->n; k++) {
        const int32_t i = r->times->first + k;
        const nnc_cmd *c = &r->p->cmd[i];
        r->span[k] = -1;
        if (c->kind == CMD_record || c->kind == CMD_wait || !ran(r, i))
            continue;
        const nnc_work_kind kind = kind_of(r, i);
        nnc_slice s = {.start_ps = time_of(r, i, false),
            .end_ps = time_of(r, i, true),
            .lane = lane_of(r->p, c->device, c->stream),
            .micro = micro_of(r, c),
            .kind = (uint8_t)kind,
            .bytes = kind == WORK_communication
                         ? nnc_type_bytes(&r->p->tensor[c->arg[c->n_arg - 1]].type)
                         : 0,
            .name = c->layers && *c->layers ? c->layers : c->op_class,
            .op = c->op_class};
        s.start_ps = add_waiting(r, i, s);
        r->span[k] = nnc_timeline_add(r->t, s);
    }
}

/* The first command of the receiving device that uses what command i sends. */
static int32_t receiver(const run *r, int32_t i)
{
    const int32_t sent = nnc_plan_root(r->p, r->p->cmd[i].arg[1]);
    for (int32_t k = i + 1; k < r->times->first + r->times->n && k <= r->p->tensor[sent].last;
         k++) {
        const nnc_cmd *c = &r->p->cmd[k];
        for (int a = 0; a < c->n_arg; a++)
            if (c->device == r->p->tensor[sent].device && nnc_plan_root(r->p, c->arg[a]) == sent)
                return k;
    }
    return -1;
}

static void add_arrows(run *r)
{
    for (int k = 0; k < r->times->n; k++) {
        const int32_t i = r->times->first + k;
        const int32_t to = r->span[k] >= 0 && is_sent(r->p, &r->p->cmd[i]) ? receiver(r, i) : -1;
        if (to >= 0 && r->span[to - r->times->first] >= 0)
            nnc_timeline_arrow(r->t, r->span[k], r->span[to - r->times->first]);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

typedef struct change {
    int64_t ps;
    int32_t device, cmd;
    uint8_t kind; /* nnc_hold_kind */
    int64_t bytes;
} change;

/* By device and time; what is released comes first, as the next command's result may take its place. */
NNC_ORDER(by_time, change, nnc_cmp(a->device, b->device), nnc_cmp(a->ps, b->ps),
    (b->bytes < 0) - (a->bytes < 0), nnc_cmp(a->cmd, b->cmd), nnc_cmp(a->bytes, b->bytes))

static void find_workspaces(const nnc_plan *p, bool *work)
{
    for (int32_t i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].work >= 0)
            work[nnc_plan_root(p, p->cmd[i].work)] = true;
}

static nnc_hold_kind hold_of(const nnc_plan *p, int32_t t, const bool *work)
{
    const nnc_ptensor *x = &p->tensor[t];
    const int32_t backward = nnc_backward_begin(p);
    if (work[t])
        return HOLD_workspace;
    if (x->is_input)
        return HOLD_inputs;
    if (nnc_is_step(p) && x->first < backward && x->last >= backward)
        return HOLD_kept;
    return x->first >= backward && nnc_is_gradient(p, t) ? HOLD_gradients : HOLD_activations;
}

/* The nearest command from `cmd` on, towards `step`, that ran here; -1: none. */
static int32_t nearest(const run *r, int32_t cmd, int step)
{
    const int32_t end = r->times->first + r->times->n;
    for (; cmd >= r->times->first && cmd < end; cmd += step)
        if (ran(r, cmd))
            return cmd;
    return -1;
}

static void add_changes(run *r, const bool *work)
{
    const nnc_plan *p = r->p;
    const int32_t end = r->times->first + r->times->n - 1;
    for (int32_t k = 0; k < p->n_tensor; k++) {
        const nnc_ptensor *x = &p->tensor[k];
        if (x->space != SP_arena || x->alias_of >= 0 || x->last < r->times->first || x->first > end)
            continue;
        const int32_t first = x->first < r->times->first ? -1 : nearest(r, x->first, 1),
                      last = x->last >= end ? -1 : nearest(r, x->last, -1);
        const nnc_hold_kind kind = hold_of(p, k, work);
        const int64_t bytes = nnc_align_up(x->bytes, nnc_plan_align(&p->device[x->device]));
        r->change[r->n_change++] = (change){first < 0 ? r->begin : time_of(r, first, false),
            x->device, first < 0 ? r->times->first : first, (uint8_t)kind, bytes};
        if (last >= 0)
            r->change[r->n_change++] =
                (change){time_of(r, last, true), x->device, last, (uint8_t)kind, -bytes};
    }
    qsort(r->change, (size_t)r->n_change, sizeof *r->change, by_time);
}

/* Persistent sums of several micro-batches' gradients: what holds states of the optimizer that accumulate. */
static int64_t bytes_of_sums(const nnc_plan *p, int device)
{
    int64_t sum = 0;
    for (int32_t t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        bool sums = false;
        for (int i = 0; i < p->n_update && x->device == device && x->alias_of < 0; i++) {
            const nnc_plan_update *u = &p->update[i];
            const int32_t made = p->tensor[u->value].first;
            sums = sums || (nnc_plan_root(p, u->state) == t && made >= p->end[SEC_main] &&
                               made < p->end[SEC_accumulate] &&
                               !strncmp(p->tensor[u->value].name, "/optimizer", 10));
        }
        if (sums)
            sum += nnc_align_up(x->bytes, nnc_plan_align(&p->device[device]));
    }
    return sum;
}

static void add_levels(run *r, const bool *work)
{
    const nnc_plan *p = r->p;
    int at = 0;
    add_changes(r, work);
    for (int d = 0; d < p->n_device; d++) {
        nnc_level l = {.ps = r->begin, .device = d};
        const int64_t sums = bytes_of_sums(p, d); /* counted as a state of the optimizer */
        l.bytes[HOLD_gradients] = sums;
        l.bytes[HOLD_optimizer] = nnc_max64(nnc_optimizer_bytes(p, d) - sums, 0);
        l.bytes[HOLD_weights] =
            nnc_max64(p->device[d].persist_bytes - sums - l.bytes[HOLD_optimizer], 0);
        if (at == r->n_change || r->change[at].device != d || r->change[at].ps > r->begin)
            nnc_timeline_level(r->t, l);
        while (at < r->n_change && r->change[at].device == d) {
            l.ps = r->change[at].ps;
            l.name = NULL;
            for (; at < r->n_change && r->change[at].device == d && r->change[at].ps == l.ps;
                 at++) {
                l.bytes[r->change[at].kind] += r->change[at].bytes;
                if (r->change[at].bytes > 0)
                    l.name = p->cmd[r->change[at].cmd].layers;
            }
            nnc_timeline_level(r->t, l);
        }
    }
}

nnc_status nnc_timeline_add_run(nnc_timeline *t, const nnc_plan_times *of, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    run r = {.times = of, .p = of->plan, .t = t};
    bool *work = ARENA_NEW(&a, bool, r.p->n_tensor + 1);
    r.part = ARENA_NEW(&a, uint8_t, r.p->n_cmd + 1);
    r.span = ARENA_NEW(&a, int32_t, of->n + 1);
    r.met = ARENA_NEW(&a, int64_t, r.p->n_collective + 1);
    r.change = ARENA_NEW(&a, change, 2 * r.p->n_tensor + 1);
    NNC_NEED(work && r.part && r.span && r.met && r.change, sink);
    nnc_find_meetings(of, r.met);
    NNC_TRY(nnc_step_parts(r.p, r.part, sink));
    find_workspaces(r.p, work);
    for (int32_t i = 0; i < r.p->n_cmd; i++)
        r.micro = r.p->cmd[i].micro > r.micro ? r.p->cmd[i].micro : r.micro;
    r.begin = INT64_MAX;
    for (int32_t i = of->first; i < of->first + of->n; i++)
        r.begin = ran(&r, i) ? nnc_min64(r.begin, time_of(&r, i, false)) : r.begin;
    r.begin = r.begin < INT64_MAX ? r.begin : of->offset_ps;
    add_spans(&r);
    add_arrows(&r);
    add_levels(&r, work);
    return t->oom ? nnc_nomem(sink) : NNC_OK;
}

/* ---- times by the cost rules --------------------------------------------------------------------------------- */

typedef struct clocks {
    const nnc_env *e;
    const nnc_plan *p;
    int64_t *lane, *event;
    int64_t *start, *end;
} clocks;

/* Participants i .. k - 1 of a collective start together; what is between them are waits and records. */
static void meet(clocks *c, int32_t i, int n, int64_t ps)
{
    const nnc_plan *p = c->p;
    int64_t from = 0;
    int left = n;
    for (int32_t k = i; left && k < p->n_cmd; k++)
        if (p->cmd[k].kind == CMD_collective) {
            from = nnc_max64(from, c->lane[lane_of(p, p->cmd[k].device, p->cmd[k].stream)]);
            left--;
        }
    left = n;
    for (int32_t k = i; left && k < p->n_cmd; k++)
        if (p->cmd[k].kind == CMD_collective) {
            c->start[k] = from;
            c->end[k] = from + ps;
            left--;
        }
}

void nnc_plan_clock(const nnc_env *e, const nnc_plan *p, nnc_section first, nnc_section last,
    int64_t *start_ps, int64_t *end_ps)
{
    NNC_LOCAL(nnc_arena) a = {0};
    clocks c = {e, p, NULL, NULL, start_ps, end_ps};
    c.lane = ARENA_NEW(&a, int64_t, lane_of(p, p->n_device, 0) + 1);
    c.event = ARENA_NEW(&a, int64_t, p->n_event + 1);
    int together = 0; /* participants of a collective that have begun already */
    for (int32_t i = nnc_plan_first(p, first); c.lane && c.event && i < p->end[last]; i++) {
        const nnc_cmd *x = &p->cmd[i];
        const nnc_target *t = nnc_target_on(e->target, e->n_target, x->device);
        const int64_t ps = nnc_mul_sat(nnc_target_time_ns(t, x->flops, x->bytes), 1000);
        int64_t *lane = &c.lane[lane_of(p, x->device, x->stream)];
        if (x->kind == CMD_wait)
            *lane = nnc_max64(*lane, c.event[x->item]);
        if (x->kind == CMD_record)
            c.event[x->item] = *lane;
        if (x->kind == CMD_collective && !together) {
            together = p->collective[x->item].n;
            meet(&c, i, together, ps);
        }
        if (x->kind != CMD_collective) {
            start_ps[i] = *lane;
            end_ps[i] =
                x->kind == CMD_wait || x->kind == CMD_record ? *lane : nnc_add_sat(*lane, ps);
        } else {
            together--;
        }
        *lane = nnc_max64(*lane, end_ps[i]);
    }
}

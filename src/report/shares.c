/* report/shares.c -- what each device spends a run's time on: parts of the step, communication that computing hides or not, waiting.
 *
 * A device's time is divided by one rule. Each instant counts for the first of the parts whose commands run then, in the order of nnc_part,
 * communication last; then for waiting, then as idle. So parts, waiting and idle time add up to the run, and communication beside
 * computing is hidden. A copy between devices is communication of both. A collective is communication from the arrival of its last
 * participant on; those before it wait. */
#include "report/report.h"
#include "session/session.h"

enum { WAITS = PART__COUNT };

typedef struct sharing {
    const nnc_plan_times *t;
    int64_t times; /* it counts so often */
    const uint8_t *part; /* by command */
    int64_t *met; /* by collective: when its last participant starts; INT64_MIN: it did not run */
    int64_t begin, end; /* of the run */
    nnc_stretch *s; /* of one device */
    int n;
} sharing;

/* Is it a command that takes time, and did it run? */
static bool ran(const nnc_plan_times *t, int i)
{
    const uint8_t kind = t->plan->cmd[t->first + i].kind;
    return kind != CMD_record && kind != CMD_wait && t->start_ps[i] >= 0 &&
           t->end_ps[i] >= t->start_ps[i];
}

static void find_bounds(sharing *x)
{
    x->begin = INT64_MAX;
    x->end = INT64_MIN;
    for (int i = 0; i < x->t->n; i++) {
        if (!ran(x->t, i))
            continue;
        x->begin = nnc_min64(x->begin, x->t->start_ps[i]);
        x->end = nnc_max64(x->end, x->t->end_ps[i]);
    }
}

void nnc_find_meetings(const nnc_plan_times *t, int64_t *met)
{
    for (int i = 0; i < t->plan->n_collective; i++)
        met[i] = INT64_MIN;
    for (int i = 0; i < t->n; i++) {
        const nnc_cmd *c = &t->plan->cmd[t->first + i];
        if (c->kind == CMD_collective && ran(t, i))
            met[c->item] = nnc_max64(met[c->item], t->start_ps[i]);
    }
}

/* Does the command run on the device, or copy to it or from it? */
static bool takes_part(const nnc_plan *p, const nnc_cmd *c, int device)
{
    return c->device == device ||
           (c->kind == CMD_copy &&
               (p->tensor[c->arg[0]].device == device || p->tensor[c->arg[1]].device == device));
}

static void gather(sharing *x, int device)
{
    const nnc_plan *p = x->t->plan;
    x->n = 0;
    for (int i = 0; i < x->t->n; i++) {
        const nnc_cmd *c = &p->cmd[x->t->first + i];
        if (!ran(x->t, i) || !takes_part(p, c, device))
            continue;
        const int64_t start = x->t->start_ps[i], end = x->t->end_ps[i],
                      met = c->kind == CMD_collective ? nnc_min64(x->met[c->item], end) : start;
        if (met > start)
            x->s[x->n++] = (nnc_stretch){start, met, WAITS};
        x->s[x->n++] = (nnc_stretch){met, end, x->part[x->t->first + i]};
    }
    nnc_sort_stretches(x->s, x->n);
}

static void add_device(sharing *x, int device, nnc_shares *out)
{
    int64_t sum[PART__COUNT + 1], before = 0;
    gather(x, device);
    for (int k = 0; k <= WAITS; k++) {
        const int64_t all = nnc_covered(x->s, x->n, 0, k);
        sum[k] = all - before;
        before = all;
    }
    for (int k = 0; k < PART__COUNT; k++)
        out->part[k] += x->times * sum[k];
    out->waits += x->times * sum[WAITS];
    out->idle += x->times * (x->end - x->begin - before);
    out->hidden += x->times * (nnc_covered(x->s, x->n, PART_communication, PART_communication) -
                                  sum[PART_communication]);
}

nnc_status nnc_add_shares(const nnc_plan_times *t, int64_t n, nnc_shares *device, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_plan *p = t->plan;
    uint8_t *part = ARENA_NEW(&a, uint8_t, p->n_cmd + 1);
    sharing x = {.t = t, .times = n, .part = part};
    x.met = ARENA_NEW(&a, int64_t, p->n_collective + 1);
    x.s = ARENA_NEW(&a, nnc_stretch, 2 * t->n + 1);
    NNC_NEED(part && x.met && x.s, sink);
    NNC_TRY(nnc_step_parts(p, part, sink));
    find_bounds(&x);
    nnc_find_meetings(t, x.met);
    for (int d = 0; d < p->n_device && x.begin <= x.end; d++)
        add_device(&x, d, &device[d]);
    return NNC_OK;
}

void nnc_sum_shares(nnc_shares *sum, const nnc_shares *of, int n)
{
    for (int d = 0; d < n; d++) {
        for (int k = 0; k < PART__COUNT; k++)
            sum->part[k] += of[d].part[k];
        sum->waits += of[d].waits;
        sum->idle += of[d].idle;
        sum->hidden += of[d].hidden;
    }
}

int64_t nnc_shares_computing(const nnc_shares *s)
{
    int64_t sum = 0;
    for (int k = 0; k < PART_communication; k++)
        sum += s->part[k];
    return sum;
}

int64_t nnc_shares_total(const nnc_shares *s)
{
    return nnc_shares_computing(s) + s->part[PART_communication] + s->waits + s->idle;
}

nnc_status nnc_session_device_shares(nnc_session *s, const nnc_env *behind, nnc_section first,
    nnc_section last, int times, nnc_shares *device, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_OWNED(nnc_tracing) *x = NULL;
    const int32_t from = nnc_plan_first(s->plan, first);
    const int n = s->plan->end[last] - from;
    int64_t *start = ARENA_NEW(&a, int64_t, n + 1), *end = ARENA_NEW(&a, int64_t, n + 1);
    NNC_NEED(start && end, sink);
    NNC_TRY(nnc_tracing_create(s, &x, sink));
    if (behind)
        nnc_tracing_behind(x, behind, last, false);
    NNC_TRY(nnc_tracing_times(x, first, last, start, end, sink));
    const nnc_plan_times t = {
        .plan = s->plan, .first = from, .n = n, .start_ps = start, .end_ps = end};
    return nnc_add_shares(&t, times, device, sink);
}

nnc_status nnc_session_shares(
    nnc_session *s, nnc_section first, nnc_section last, nnc_shares *sum, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_shares *device = ARENA_NEW(&a, nnc_shares, s->plan->n_device + 1);
    NNC_NEED(device, sink);
    NNC_TRY(nnc_session_device_shares(s, NULL, first, last, 1, device, sink));
    nnc_sum_shares(sum, device, s->plan->n_device);
    return NNC_OK;
}

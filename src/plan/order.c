/* plan/order.c -- which commands are ordered by streams and events. Used by the planner to decide and by the verifier to check.
 *
 * One walk over the list keeps a clock for each lane and for each event with remaining waits. A clock is shared by the lane and the
 * events that it recorded, copied when the lane learns more, and reused when unreferenced. So memory is bounded by (lanes + pending
 * events) * lanes, whatever the number of commands; with `keep`, by waits * lanes. */
#include "plan/internal.h"
#include <string.h>

/* Maximum of clock entries at a time (512 MiB), so that a plan from a file cannot use all memory by naming many streams. */
#define MOST_ENTRIES ((size_t)1 << 27)

/* Entries of a clock that are compared at once, in an SSE2 register; clocks have a multiple of them. */
enum { GROUP = 4 };
typedef int32_t group __attribute__((vector_size(4 * GROUP), aligned(4), may_alias));

/* Numbers the lanes that commands use, in order of first use. */
static bool number_lanes(plan_order *o)
{
    const nnc_plan *p = o->p;
    int *base = ARENA_NEW(o->a, int, p->n_device + 1); /* first lane slot of each device */
    if (!base)
        return false;
    for (int d = 0; d < p->n_device; d++)
        base[d + 1] = base[d] + p->device[d].streams;
    size_t n = (size_t)base[p->n_device] + 1;
    int32_t *slot = ARENA_NEW(o->a, int32_t, n); /* lane + 1, 0 = none yet */
    int32_t *count = ARENA_NEW(o->a, int32_t, n);
    if (!slot || !count)
        return false;
    for (int i = 0; i < p->n_cmd; i++) {
        if (i == p->end[SEC_init])
            memset(count, 0, n * sizeof *count);
        int s = base[p->cmd[i].device] + p->cmd[i].stream;
        if (!slot[s])
            slot[s] = ++o->n_lane;
        o->lane[i] = slot[s] - 1;
        o->pos[i] = count[s]++;
        if (p->cmd[i].kind == CMD_wait)
            o->waits[p->cmd[i].item]++;
    }
    return true;
}

bool plan_order_init(plan_order *o, const nnc_plan *p, bool keep, nnc_arena *a)
{
    *o = (plan_order){.p = p, .a = a};
    o->lane = ARENA_NEW(a, int32_t, p->n_cmd + 1);
    o->pos = ARENA_NEW(a, int32_t, p->n_cmd + 1);
    o->event = ARENA_NEW(a, plan_clock *, p->n_event + 1);
    o->record = ARENA_NEW(a, int32_t, p->n_event + 1);
    o->waits = ARENA_NEW(a, int32_t, p->n_event + 1);
    if (!o->lane || !o->pos || !o->event || !o->record || !o->waits || !number_lanes(o))
        return false;
    memset(o->record, 0xff, ((size_t)p->n_event + 1) * sizeof *o->record);
    o->now = ARENA_NEW(a, plan_clock *, o->n_lane + 1);
    o->at = keep ? ARENA_NEW(a, const int32_t *, p->n_cmd + 1) : NULL;
    if (!o->now || (keep && !o->at))
        return false;
    for (int32_t i = 0; keep && i < p->n_cmd; i++)
        if (!plan_order_step(o, i))
            return false;
    return true;
}

static plan_clock *hold(plan_clock *c)
{
    if (c)
        c->refs++;
    return c;
}

static void drop(plan_order *o, plan_clock *c)
{
    if (!c || --c->refs)
        return;
    memcpy(c->done, &o->spare, sizeof o->spare);
    o->spare = c;
}

/* A private copy of `from`, or a new clock. */
static plan_clock *copy(plan_order *o, const plan_clock *from)
{
    size_t n = ((size_t)o->n_lane + GROUP - 1) / GROUP * GROUP, bytes = n * sizeof *from->done;
    plan_clock *c = o->spare;
    if (c) {
        memcpy(&o->spare, c->done, sizeof o->spare);
    } else {
        c = nnc_arena_alloc(o->a, 1, sizeof *c + bytes);
        o->entries += n;
        if (!c || o->entries > MOST_ENTRIES)
            return NULL;
    }
    c->refs = 1;
    if (from)
        memcpy(c->done, from->done, bytes);
    else
        memset(c->done, 0, bytes);
    return c;
}

/* Lane l waits for the event recorded by command r: it now knows what r's lane knew then, and everything before r in that lane. */
static bool learn(plan_order *o, int32_t l, int32_t r, const plan_clock *theirs)
{
    if (o->lane[r] == l)
        return true;
    if (!o->now[l] || o->now[l]->refs > 1) {
        plan_clock *mine = copy(o, o->now[l]);
        if (!mine)
            return false;
        drop(o, o->now[l]);
        o->now[l] = mine;
    }
    int32_t *mine = o->now[l]->done;
    for (int k = 0; theirs && k < o->n_lane; k += GROUP) {
        group *m = (group *)(mine + k);
        const group t = *(const group *)(theirs->done + k), larger = *m > t;
        *m = (*m & larger) | (t & ~larger);
    }
    mine[o->lane[r]] = mine[o->lane[r]] > o->pos[r] ? mine[o->lane[r]] : o->pos[r];
    return true;
}

bool plan_order_step(plan_order *o, int32_t i)
{
    const nnc_plan *p = o->p;
    const nnc_cmd *c = &p->cmd[i];
    int32_t l = o->lane[i], first = p->end[SEC_init];
    for (int k = 0; i == first && k < o->n_lane; k++) {
        drop(o, o->now[k]);
        o->now[k] = NULL;
    }
    o->here = o->now[l] ? o->now[l]->done : NULL;
    if (o->at) {
        o->at[i] = o->here;
        hold(o->now[l]); /* never released */
    }
    if (c->kind == CMD_record) {
        o->record[c->item] = i;
        o->event[c->item] = o->waits[c->item] ? hold(o->now[l]) : NULL;
    } else if (c->kind == CMD_wait) {
        int32_t r = o->record[c->item];
        if (r >= 0 && (r < first) == (i < first) && !learn(o, l, r, o->event[c->item]))
            return false;
        if (--o->waits[c->item] == 0) {
            drop(o, o->event[c->item]);
            o->event[c->item] = NULL;
        }
    }
    return true;
}

bool plan_touch_add(plan_touches *s, const plan_order *o, int32_t tensor, int32_t cmd)
{
    for (int32_t t = s->head[tensor]; t >= 0; t = s->at[t].next)
        if (s->at[t].lane == o->lane[cmd]) {
            s->at[t].pos = o->pos[cmd];
            return true;
        }
    if (!ARENA_ROOM(o->a, s->at, s->cap, s->n + 1))
        return false;
    s->at[s->n] = (plan_touch){o->lane[cmd], o->pos[cmd], s->head[tensor]};
    s->head[tensor] = s->n++;
    return true;
}

bool plan_touches_done(const plan_touches *s, const plan_order *o, int32_t tensor, int32_t j)
{
    for (int32_t t = s->head[tensor]; t >= 0; t = s->at[t].next)
        if (!plan_done(o, s->at[t].lane, s->at[t].pos, j))
            return false;
    return true;
}

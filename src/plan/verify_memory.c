/* plan/verify_memory.c -- checks that each read finds the content that was written for it. Walks the commands in list order and keeps, for
 * each space of each device, which tensor's content each byte holds. A write replaces the content of its bytes. That is allowed only when
 * everything that touched that content is certainly done, or when the command itself may work in place. A read needs its tensor's content
 * untouched and its write certainly done.
 *
 * The commands may really run in list order. So if no event orders two touches, the check still meets the later one after the earlier. The
 * content map is a treap over segments: O(log n) a write. */
#include "plan/verify.h"
#include <string.h>

typedef struct seg {
    int64_t lo, hi;
    int32_t owner, left, right; /* 0 = none */
    uint32_t prio;
} seg;

/* A tensor that no command writes as a whole: commands write its parts, which tile it. */
typedef struct tiled {
    int32_t n, n_before;
    size_t cap;
    int32_t *part; /* tensors */
    int32_t
        *before; /* whose memory it took: each writer of a part comes after all that touched them */
} tiled;

typedef struct memory {
    const check *v;
    nnc_arena *a;
    const nnc_plan *p;
    plan_order order;
    seg *seg; /* [0] unused */
    int32_t n_seg;
    uint32_t rng;
    int32_t *map; /* by device * 3 + space: root segment */
    int32_t *writer; /* by tensor: command, -1 none yet, -2 before main (inputs) */
    int32_t *owner; /* by tensor: whose content it is: itself when anything writes it */
    bool *updates; /* by tensor: is it the new value of a state? */
    int32_t *whole; /* by owner: the tiled tensor that it is a part of, or itself */
    tiled **tiled; /* by tensor; NULL: it is not */
    bool *dead; /* by whole: its content was overwritten, if only in part */
    plan_touches touches; /* by whole */
    int32_t *read_by; /* by whole: last command that reads it */
} memory;

static nnc_status bad(const memory *m, int i, int32_t t, const char *why)
{
    return nnc_fail0(m->v->sink, m->v->code, "plan: command %d: tensor %d (%s) %s", i, t,
        m->p->tensor[t].name, why);
}

/* ---- segments ------------------------------------------------------------------------------ */

static int32_t new_seg(memory *m, int64_t lo, int64_t hi, int32_t owner)
{
    m->rng = m->rng * 1664525u + 1013904223u;
    m->seg[++m->n_seg] = (seg){lo, hi, owner, 0, 0, m->rng};
    return m->n_seg;
}

/* Parts t at key x: segments that begin before x, and the others. */
static void split(memory *m, int32_t t, int64_t x, int32_t *left, int32_t *right)
{
    if (!t) {
        *left = *right = 0;
    } else if (m->seg[t].lo < x) {
        split(m, m->seg[t].right, x, &m->seg[t].right, right);
        *left = t;
    } else {
        split(m, m->seg[t].left, x, left, &m->seg[t].left);
        *right = t;
    }
}

static int32_t merge(memory *m, int32_t a, int32_t b)
{
    if (!a || !b)
        return a ? a : b;
    if (m->seg[a].prio > m->seg[b].prio) {
        m->seg[a].right = merge(m, m->seg[a].right, b);
        return a;
    }
    m->seg[b].left = merge(m, a, m->seg[b].left);
    return b;
}

/* Cuts the segment that has x inside it, if any. */
static void cut(memory *m, int32_t *map, int64_t x)
{
    int32_t t = *map;
    while (t && !(m->seg[t].lo < x && x < m->seg[t].hi))
        t = x <= m->seg[t].lo ? m->seg[t].left : m->seg[t].right;
    if (!t)
        return;
    int32_t tail = new_seg(m, x, m->seg[t].hi, m->seg[t].owner), a, b;
    m->seg[t].hi = x;
    split(m, *map, x, &a, &b);
    *map = merge(m, merge(m, a, tail), b);
}

/* ---- order --------------------------------------------------------------------------------- */

static nnc_status read_owner(memory *m, int32_t t, int32_t o, int32_t cmd)
{
    int32_t w = m->writer[o];
    if (w == -1)
        return bad(m, cmd, t, "is read before it is written");
    if (m->dead[m->whole[o]])
        return bad(m, cmd, t, "is read after its memory was reused");
    bool same_phase = w >= 0 && (w < m->p->end[SEC_init]) == (cmd < m->p->end[SEC_init]);
    if (same_phase && !plan_before(&m->order, w, cmd))
        return bad(m, cmd, t, "is read on a stream that does not wait for its write");
    m->read_by[m->whole[o]] = cmd;
    return NNC_OK;
}

/* Parts of a tiled tensor are written one by one: each that t may overlap is there. */
static nnc_status read(memory *m, int32_t t, int32_t cmd)
{
    int32_t o = m->owner[t];
    const tiled *d = m->tiled[o];
    for (int32_t i = 0; d && i < d->n; i++)
        if (plan_overlap(m->p, o, t, d->part[i]))
            NNC_TRY(read_owner(m, t, d->part[i], cmd));
    return d ? NNC_OK : read_owner(m, t, o, cmd);
}

/* May this command write tensor t over the content of `o`, which it reads? */
static bool may_overwrite(const memory *m, const nnc_cmd *c, int32_t t, int32_t o)
{
    const nnc_plan *p = m->p;
    int32_t up = p->tensor[t].alias_of;
    int n_read = nnc_plan_first_written(p, c), result = n_read, seen = 0, which = -1;
    while (result < c->n_arg && c->arg[result] != t)
        result++;
    if (up < 0 || m->owner[up] != o || result == c->n_arg)
        return false;
    for (int a = 0; a < n_read; a++)
        if (m->owner[c->arg[a]] == o) {
            seen++;
            which = a;
        }
    if (c->kind == CMD_call)
        return seen == 0; /* read by the sum in place alone */
    const bool *in_place = c->kind == CMD_kernel ? m->v->in_place[c->item] : NULL;
    return in_place && seen == 1 && in_place[which * (c->n_arg - n_read) + result - n_read];
}

static bool keep_before(memory *m, tiled *d, int32_t o)
{
    int32_t *all = nnc_arena_grow(m->a, d->before, &d->cap, (size_t)d->n_before + 1, sizeof *all);
    if (!all)
        return false;
    d->before = all;
    all[d->n_before++] = o;
    return true;
}

/* Takes over the segments of subtree s. */
static nnc_status take_over(memory *m, int32_t s, const nnc_cmd *c, int32_t t, int32_t cmd)
{
    if (!s)
        return NNC_OK;
    NNC_TRY(take_over(m, m->seg[s].left, c, t, cmd));
    int32_t o = m->seg[s].owner;
    if (m->writer[o] == cmd && cmd >= 0)
        return bad(m, cmd, t, "is written over another result of the same command");
    if (m->tiled[m->whole[t]] && !keep_before(m, m->tiled[m->whole[t]], o))
        return nnc_nomem(m->v->sink);
    if (cmd >= 0 && m->read_by[o] == cmd && !may_overwrite(m, c, t, o))
        return bad(m, cmd, t, "is written over an operand of the same command");
    if (cmd >= 0 && !plan_touches_done(&m->touches, &m->order, o, cmd))
        return bad(m, cmd, t, "is written over memory that another stream may still use");
    m->dead[o] = true;
    return take_over(m, m->seg[s].right, c, t, cmd);
}

/* Tensor t, or the tiled tensor whose part t is, gets its bytes. */
static nnc_status begin(memory *m, int32_t t, const nnc_cmd *c, int32_t cmd)
{
    int32_t w = m->whole[t];
    const nnc_ptensor *x = &m->p->tensor[w];
    int32_t *map = &m->map[x->device * 3 + x->space], a, b, mid;
    int64_t lo = x->offset, hi = x->offset + x->bytes;
    cut(m, map, lo);
    cut(m, map, hi);
    split(m, *map, lo, &a, &b);
    split(m, b, hi, &mid, &b);
    NNC_TRY(take_over(m, mid, c, t, cmd));
    *map = merge(m, merge(m, a, new_seg(m, lo, hi, w)), b);
    m->writer[w] = cmd >= 0 ? cmd : -2;
    return NNC_OK;
}

/* A further part of a tensor that has its bytes. */
static nnc_status go_on(const memory *m, int32_t t, int32_t cmd)
{
    const tiled *d = m->tiled[m->whole[t]];
    if (m->dead[m->whole[t]])
        return bad(m, cmd, t, "is written after its memory was reused");
    for (int32_t i = 0; i < d->n_before; i++)
        if (!plan_touches_done(&m->touches, &m->order, d->before[i], cmd))
            return bad(m, cmd, t, "is written over memory that another stream may still use");
    return NNC_OK;
}

static nnc_status write(memory *m, int32_t t, const nnc_cmd *c, int32_t cmd)
{
    const nnc_ptensor *x = &m->p->tensor[t];
    if (m->writer[t] != -1)
        return bad(m, cmd < 0 ? m->p->end[SEC_init] : cmd, t,
            cmd < 0       ? "is two inputs"
            : x->is_input ? "is an input, and written"
                          : "is written twice");
    if (cmd >= m->p->end[SEC_init] && x->space != SP_arena &&
        !(cmd >= m->p->end[SEC_main] && m->updates[t]))
        return bad(m, cmd, t, "is persistent, and written by a run that does not update it");
    NNC_TRY(m->writer[m->whole[t]] == -1 ? begin(m, t, c, cmd) : go_on(m, t, cmd));
    m->writer[t] = cmd >= 0 ? cmd : -2;
    return NNC_OK;
}

/* ---- parts --------------------------------------------------------------------------------- */

static nnc_status add_part(memory *m, int32_t whole, int32_t t)
{
    tiled *d = m->tiled[whole];
    if (!d) {
        d = m->tiled[whole] = ARENA_NEW(m->a, tiled, 1);
        if (d)
            d->part = ARENA_NEW(m->a, int32_t, NNC_MAX_PARTS);
        NNC_NEED(d && d->part, m->v->sink);
    }
    if (d->n == NNC_MAX_PARTS)
        return bad(m, 0, whole, "has more than 1024 parts that are written");
    d->part[d->n++] = t;
    m->whole[t] = whole;
    return NNC_OK;
}

/* The parts have the strides of the whole, do not overlap, and leave nothing out. */
static nnc_status check_tiles(const memory *m, int32_t whole)
{
    const tiled *d = m->tiled[whole];
    int64_t elements = 0;
    for (int32_t i = 0; i < d->n; i++) {
        const nnc_type *t = &m->p->tensor[d->part[i]].type;
        int64_t from[NNC_MAX_RANK];
        if (!plan_box(m->p, whole, d->part[i], from))
            return bad(m, 0, d->part[i], "is written, and is not a box-shaped part of its tensor");
        elements += nnc_type_numel(t);
        for (int32_t k = 0; k < i; k++)
            if (plan_overlap(m->p, whole, d->part[i], d->part[k]))
                return bad(m, 0, d->part[i], "overlaps another part of the same tensor");
    }
    if (elements != nnc_type_numel(&m->p->tensor[whole].type))
        return bad(m, 0, whole, "is not written as a whole: its parts leave elements out");
    return NNC_OK;
}

/* ---- the walk ------------------------------------------------------------------------------ */

static nnc_status walk_cmd(memory *m, int32_t i)
{
    const nnc_plan *p = m->p;
    const nnc_cmd *c = &p->cmd[i];
    int n_read = nnc_plan_first_written(p, c);
    int32_t sum = plan_sum_operand(p, c);
    for (int a = 0; a < n_read; a++)
        NNC_TRY(read(m, c->arg[a], i));
    if (sum >= 0)
        NNC_TRY(read(m, sum, i));
    for (int a = n_read; a < c->n_arg; a++)
        NNC_TRY(write(m, c->arg[a], c, i));
    if (c->work >= 0)
        NNC_TRY(write(m, c->work, c, i));
    bool fits = sum < 0 || plan_touch_add(&m->touches, &m->order, m->whole[m->owner[sum]], i);
    for (int a = 0; a < c->n_arg; a++)
        fits = fits && plan_touch_add(&m->touches, &m->order, m->whole[m->owner[c->arg[a]]], i);
    if (c->work >= 0) {
        fits = fits && plan_touch_add(&m->touches, &m->order, c->work, i);
        m->dead[c->work] = true; /* what is in it afterwards is nothing */
    }
    return fits ? NNC_OK : nnc_nomem(m->v->sink);
}

static nnc_status check_end(const memory *m, nnc_arena *a)
{
    const nnc_plan *p = m->p;
    for (int i = 0; i < p->n_input; i++)
        if (m->dead[p->input[i]])
            return bad(m, p->n_cmd, p->input[i], "is an input, but its memory is reused");
    for (int i = 0; i < p->n_output; i++) {
        int32_t o = m->owner[p->output[i]];
        const tiled *d = m->tiled[o];
        bool there = !m->dead[m->whole[o]] && m->writer[o] != -1;
        for (int32_t k = 0; d && k < d->n; k++)
            there = there && m->writer[d->part[k]] != -1;
        if (!there)
            return bad(m, p->n_cmd, p->output[i],
                "is an output, but never written, or its memory is reused");
    }
    for (int i = 0; i < p->n_update; i++) {
        const int32_t o = m->owner[p->update[i].value];
        const bool kept = o == m->owner[p->update[i].state];
        if ((!kept && m->writer[o] < p->end[SEC_main]) || m->dead[m->whole[o]])
            return bad(m, p->n_cmd, p->update[i].value,
                "is a new value, but never written, or its memory is reused");
    }
    for (int t = 0; t < p->n_tensor; t++)
        if (m->tiled[t])
            NNC_TRY(check_tiles(m, t));
    int32_t *life = ARENA_NEW(a, int32_t, 3 * (size_t)p->n_tensor + 3);
    NNC_NEED(life, m->v->sink);
    plan_lifetimes(p, life, life + p->n_tensor, life + 2 * (size_t)p->n_tensor);
    for (int t = 0; t < p->n_tensor; t++)
        if (p->tensor[t].first != life[t] || p->tensor[t].last != life[p->n_tensor + t])
            return bad(m, p->n_cmd, t, "has another live range than the plan states");
    return NNC_OK;
}

static bool alloc_memory(memory *m, nnc_arena *a)
{
    const nnc_plan *p = m->p;
    size_t n = (size_t)p->n_tensor + 1;
    m->seg = ARENA_NEW(a, seg, 3 * n + 4);
    m->map = ARENA_NEW(a, int32_t, 3 * (size_t)p->n_device);
    m->writer = ARENA_NEW(a, int32_t, n);
    m->owner = ARENA_NEW(a, int32_t, n);
    m->whole = ARENA_NEW(a, int32_t, n);
    m->tiled = ARENA_NEW(a, tiled *, n);
    m->dead = ARENA_NEW(a, bool, n);
    m->updates = ARENA_NEW(a, bool, n);
    m->read_by = ARENA_NEW(a, int32_t, n);
    m->a = a;
    if (!m->seg || !m->map || !m->writer || !m->owner || !m->dead || !m->updates || !m->read_by ||
        !m->whole || !m->tiled)
        return false;
    m->touches.head = ARENA_NEW(a, int32_t, n);
    return m->touches.head && plan_order_init(&m->order, p, false, a);
}

/* A tensor that some command writes has content of its own; else it is a view. */
static nnc_status find_owners(memory *m)
{
    const nnc_plan *p = m->p;
    memset(m->writer, 0xff, (size_t)p->n_tensor * sizeof *m->writer);
    memset(m->read_by, 0xff, (size_t)p->n_tensor * sizeof *m->read_by);
    memset(m->owner, 0xff, (size_t)p->n_tensor * sizeof *m->owner);
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        for (int a = nnc_plan_first_written(p, c); a < c->n_arg; a++)
            m->owner[c->arg[a]] = c->arg[a];
        if (c->work >= 0)
            m->owner[c->work] = c->work;
    }
    int32_t *root = m->read_by; /* not in use yet */
    for (int t = 0; t < p->n_tensor; t++) {
        int32_t up = p->tensor[t].alias_of;
        root[t] = up < 0 ? t : root[up];
        /* of states that are parts, the new value of all is no further part */
        m->dead[root[t]] |= m->owner[t] == t && p->tensor[t].bytes < p->tensor[root[t]].bytes;
    }
    for (int t = 0; t < p->n_tensor; t++) {
        int32_t up = p->tensor[t].alias_of;
        m->whole[t] = t;
        /* a root that is neither written nor an input, but whose views are written */
        if (m->owner[t] == t && m->owner[root[t]] == -1 - root[t] &&
            (!m->dead[root[t]] || p->tensor[t].bytes < p->tensor[root[t]].bytes))
            NNC_TRY(add_part(m, root[t], t));
        if (m->owner[t] < 0)
            m->owner[t] = up < 0 ? (p->tensor[t].is_input ? t : -1 - t) : m->owner[up];
    }
    for (int t = 0; t < p->n_tensor; t++)
        if (m->owner[t] < 0)
            m->owner[t] = -1 - m->owner[t];
    memset(m->dead, 0, (size_t)p->n_tensor * sizeof *m->dead);
    memset(m->read_by, 0xff, (size_t)p->n_tensor * sizeof *m->read_by);
    return NNC_OK;
}

nnc_status plan_check_memory(check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    memory m = {.v = v, .p = p, .rng = 1};
    NNC_NEED(alloc_memory(&m, a), v->sink);
    size_t heads = (size_t)p->n_tensor * sizeof *m.touches.head;
    memset(m.touches.head, 0xff, heads);
    NNC_TRY(find_owners(&m));
    for (int i = 0; i < p->n_update; i++)
        m.updates[m.owner[p->update[i].value]] = true;
    for (int i = 0; i <= p->n_cmd; i++) {
        if (i == p->end[SEC_init]) {
            memset(m.touches.head, 0xff, heads);
            m.touches.n = 0;
            for (int k = 0; k < p->n_input; k++)
                NNC_TRY(write(&m, p->input[k], NULL, -1));
        }
        if (i < p->n_cmd && !plan_order_step(&m.order, i))
            return nnc_nomem(v->sink);
        if (i < p->n_cmd)
            NNC_TRY(walk_cmd(&m, i));
    }
    return check_end(&m, a);
}

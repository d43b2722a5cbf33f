/* plan/memory.c -- placement of tensors: offsets in each space of each device, and the sizes that the executor allocates. A block is a
 * tensor with its aliases. In main's arena two blocks may share bytes if every access to one is certainly done before the other is first
 * written. Command order ensures that within a stream, events between streams. */
#include "plan/maker.h"
#include <string.h>

typedef struct places {
    nnc_plan *p;
    plan_order order;
    int32_t *root;
    plan_touches touches; /* by root; main's */
    int32_t *writer,
        *next; /* lists of main's commands that write part of a root: head by root, next by tensor; -1 ends */
    int32_t *written_by; /* by tensor */
    nnc_block *block;
    int32_t *tensor_of; /* by block */
    int32_t *lane0, *lane_cmd; /* CSR: main's commands by lane */
} places;

static bool touch(places *s, int32_t t, int32_t cmd)
{
    return t < 0 || plan_touch_add(&s->touches, &s->order, s->root[t], cmd);
}

static bool find_touches(places *s)
{
    const nnc_plan *p = s->p;
    for (int i = p->end[SEC_init]; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        for (int k = nnc_plan_first_written(p, c); k < c->n_arg; k++) {
            int32_t t = c->arg[k], r = s->root[t];
            if (t == r)
                continue;
            s->written_by[t] = i;
            s->next[t] = s->writer[r];
            s->writer[r] = t;
        }
        if (!touch(s, plan_sum_operand(p, c), i) || !touch(s, c->work, i))
            return false;
        for (int k = 0; k < c->n_arg; k++)
            if (!touch(s, c->arg[k], i))
                return false;
    }
    return true;
}

/* True when all accesses to block a are done before block b is first written. */
static bool frees(const places *s, int32_t a, int32_t b)
{
    const nnc_ptensor *x = &s->p->tensor[a], *y = &s->p->tensor[b];
    if (y->first < s->p->end[SEC_init] || x->last == s->p->n_cmd - 1)
        return false;
    bool done = plan_touches_done(&s->touches, &s->order, a, y->first);
    for (int32_t t = s->writer[b]; t >= 0 && done; t = s->next[t]) /* of its parts each */
        done = plan_touches_done(&s->touches, &s->order, a, s->written_by[t]);
    return done;
}

static bool list_lanes(places *s, nnc_arena *a)
{
    const nnc_plan *p = s->p;
    s->lane0 = ARENA_NEW(a, int32_t, s->order.n_lane + 2);
    s->lane_cmd = ARENA_NEW(a, int32_t, p->n_cmd + 1);
    if (!s->lane0 || !s->lane_cmd)
        return false;
    for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++)
        s->lane0[s->order.lane[i] + 2]++;
    for (int l = 0; l < s->order.n_lane; l++)
        s->lane0[l + 2] += s->lane0[l + 1];
    for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++)
        s->lane_cmd[s->lane0[s->order.lane[i] + 1]++] = i;
    return true;
}

/* The last command that may write a block before all accesses to block a are certainly done. What a lane knows to be done stays done
 * for its later commands. */
static int32_t reach(const places *s, int32_t a)
{
    const nnc_plan *p = s->p;
    const nnc_ptensor *x = &p->tensor[a];
    int32_t most = nnc_max64(x->last, x->first < p->end[SEC_init] ? p->end[SEC_init] - 1 : 0);
    for (int l = 0; l < s->order.n_lane; l++) {
        int32_t lo = s->lane0[l], hi = s->lane0[l + 1];
        while (lo < hi) {
            int32_t mid = lo + (hi - lo) / 2;
            if (plan_touches_done(&s->touches, &s->order, a, s->lane_cmd[mid]))
                hi = mid;
            else
                lo = mid + 1;
        }
        if (lo > s->lane0[l] && s->lane_cmd[lo - 1] > most)
            most = s->lane_cmd[lo - 1];
    }
    return most;
}

static bool conflict(void *ctx, int i, int j)
{
    const places *s = ctx;
    int32_t a = s->tensor_of[i], b = s->tensor_of[j];
    return !frees(s, a, b) && !frees(s, b, a);
}

bool nnc_plan_on_gpu(const nnc_plan_device *d)
{
    return !strncmp(d->name, "cuda:", 5);
}

int64_t nnc_plan_align(const nnc_plan_device *d)
{
    return nnc_plan_on_gpu(d) ? 256 : 64;
}

/* Packs the roots of one device and space; *size: bytes, *least: the lower bound. */
static nnc_status pack(places *s, int device, nnc_space space, int64_t *size, int64_t *least,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_plan *p = s->p;
    int n = 0;
    bool events = space == SP_arena && s->order.n_lane > 1;
    for (int t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        if (s->root[t] != t || x->device != device || x->space != space)
            continue;
        s->tensor_of[n] = t;
        s->block[n++] = (nnc_block){x->bytes, x->first, x->last, 0, events ? reach(s, t) : x->last};
    }
    int64_t align = nnc_plan_align(&p->device[device]);
    const bool moves = space == SP_arena && !nnc_plan_on_gpu(&p->device[device]);
    *size = nnc_pack_blocks(s->block, n, align, moves ? p->device[device].threads : 1,
        events ? conflict : NULL, s, least, a);
    if (*size < 0)
        return nnc_nomem(sink);
    for (int k = 0; k < n; k++)
        p->tensor[s->tensor_of[k]].offset = s->block[k].offset;
    return NNC_OK;
}

/* Places persistent tensors one after the other, without reuse. */
static int64_t line_up(nnc_plan *p, int device)
{
    int64_t at = 0;
    for (int t = 0; t < p->n_tensor; t++) {
        nnc_ptensor *x = &p->tensor[t];
        if (x->device != device || x->space != SP_persist || x->alias_of >= 0)
            continue;
        x->offset = at;
        at += nnc_align_up(x->bytes, nnc_plan_align(&p->device[device]));
    }
    return at;
}

/* Finds the command with the most live bytes in main's arena, and how many of them are workspace. */
static nnc_status find_peak(places *s, int device, nnc_arena *a, nnc_sink *sink)
{
    nnc_plan *p = s->p;
    int64_t *delta = ARENA_NEW(a, int64_t, p->n_cmd + 2);
    NNC_NEED(delta, sink);
    for (int t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        if (s->root[t] != t || x->device != device || x->space != SP_arena)
            continue;
        int first = x->first < p->end[SEC_init] ? p->end[SEC_init] : x->first;
        int64_t bytes = nnc_align_up(x->bytes, nnc_plan_align(&p->device[device]));
        delta[first] += bytes;
        delta[(x->last < first ? first : x->last) + 1] -= bytes;
    }
    int64_t now = 0, most = -1;
    nnc_plan_device *d = &p->device[device];
    d->peak_cmd = p->end[SEC_init];
    for (int i = p->end[SEC_init]; i < p->n_cmd; i++) {
        now += delta[i];
        if (now > most) {
            most = now;
            d->peak_cmd = i;
        }
    }
    const nnc_cmd *c = d->peak_cmd < p->n_cmd ? &p->cmd[d->peak_cmd] : NULL;
    bool work = c && c->work >= 0 && c->device == device && p->end[SEC_init] < p->n_cmd;
    d->workspace_bytes = work ? p->tensor[c->work].bytes : 0;
    return NNC_OK;
}

static nnc_status place_device(places *s, int d, nnc_arena *a, nnc_sink *sink)
{
    nnc_plan_device *dev = &s->p->device[d];
    int64_t least;
    NNC_TRY(pack(s, d, SP_arena, &dev->arena_bytes, &dev->lower_bound, a, sink));
    NNC_TRY(pack(s, d, SP_init, &dev->init_bytes, &least, a, sink));
    dev->persist_bytes = line_up(s->p, d);
    return find_peak(s, d, a, sink);
}

nnc_status plan_place(nnc_plan *p, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    places s = {.p = p};
    size_t n = (size_t)p->n_tensor + 1;
    int32_t *first = ARENA_NEW(&a, int32_t, n), *last = ARENA_NEW(&a, int32_t, n);
    NNC_NEED(first && last && plan_order_init(&s.order, p, true, &a) &&
                 ARENA_ARRAYS(&a, n, s.root, s.block, s.tensor_of, s.touches.head, s.writer, s.next,
                     s.written_by),
        sink);
    memset(s.touches.head, 0xff, n * sizeof *s.touches.head);
    memset(s.writer, 0xff, n * sizeof *s.writer);
    plan_lifetimes(p, first, last, s.root);
    for (int t = 0; t < p->n_tensor; t++) {
        p->tensor[t].first = first[t];
        p->tensor[t].last = last[t];
    }
    NNC_NEED(find_touches(&s) && list_lanes(&s, &a), sink);
    for (int d = 0; d < p->n_device; d++)
        NNC_TRY(place_device(&s, d, &a, sink));
    for (int t = 0; t < p->n_tensor; t++)
        if (p->tensor[t].alias_of >= 0)
            p->tensor[t].offset += p->tensor[p->tensor[t].alias_of].offset;
    return NNC_OK;
}

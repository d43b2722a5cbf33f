/* picture/timeline.c -- spans of time in the lanes of devices. */
#include "picture/internal.h"
#include <stdlib.h>

const char *const nnc_work_names[WORK__COUNT] = {
#define X(id, name, colour, darker) name,
    NNC_WORKS(X)
#undef X
};
const char *const nnc_work_colours[2][WORK__COUNT] = {{
#define X(id, name, colour, darker) colour,
                                                          NNC_WORKS(X)
#undef X
                                                      },
    {
#define X(id, name, colour, darker) darker,
        NNC_WORKS(X)
#undef X
    }};
const char *const nnc_hold_names[HOLD__COUNT] = {
#define X(id, name, colour) name,
    NNC_HOLDS(X)
#undef X
};
const char *const nnc_hold_colours[HOLD__COUNT] = {
#define X(id, name, colour) colour,
    NNC_HOLDS(X)
#undef X
};

nnc_timeline *nnc_timeline_create(const char *name, int n_device)
{
    nnc_timeline *t = nnc_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->n_device = n_device;
    t->name = nnc_arena_strdup(&t->arena, name);
    t->device = ARENA_NEW(&t->arena, const char *, n_device + 1);
    t->capacity = ARENA_NEW(&t->arena, int64_t, n_device + 1);
    t->requested = ARENA_NEW(&t->arena, int64_t, n_device + 1);
    t->run_ps = ARENA_NEW(&t->arena, int64_t, n_device + 1);
    bool ok = t->name && t->device && t->capacity && t->requested && t->run_ps;
    for (int d = 0; ok && d < n_device; d++)
        ok = (t->device[d] = nnc_arena_printf(&t->arena, "device %d", d)) != NULL;
    if (ok)
        return t;
    nnc_timeline_destroy(t);
    return NULL;
}

void nnc_timeline_destroy(nnc_timeline *t)
{
    if (!t)
        return;
    nnc_arena_deinit(&t->arena);
    nnc_free(t);
}

static const char *copy(nnc_timeline *t, const char *s)
{
    char *p = s ? nnc_arena_strdup(&t->arena, s) : NULL;
    t->oom = t->oom || (s && !p);
    return p;
}

void nnc_timeline_name(nnc_timeline *t, int device, const char *name)
{
    const char *p = copy(t, name);
    t->device[device] = p ? p : t->device[device];
}

int nnc_timeline_lane(nnc_timeline *t, int device, const char *name, bool thin)
{
    if (!ARENA_ROOM(&t->arena, t->lane, t->cap_lane, t->n_lane + 1)) {
        t->oom = true;
        return -1;
    }
    t->lane[t->n_lane] = (nnc_lane){device, thin, copy(t, name)};
    return t->n_lane++;
}

int nnc_timeline_add(nnc_timeline *t, nnc_slice s)
{
    if (s.lane < 0 || !ARENA_ROOM(&t->arena, t->span, t->cap_span, t->n_span + 1)) {
        t->oom = true;
        return -1;
    }
    s.name = copy(t, s.name);
    s.op = copy(t, s.op);
    t->total_ps = nnc_max64(t->total_ps, s.end_ps);
    t->span[t->n_span] = s;
    return t->n_span++;
}

void nnc_timeline_arrow(nnc_timeline *t, int from, int to)
{
    if (from < 0 || to < 0 || !ARENA_ROOM(&t->arena, t->arrow, t->cap_arrow, t->n_arrow + 1))
        t->oom = true;
    else
        t->arrow[t->n_arrow++] = (nnc_arrow){from, to};
}

void nnc_timeline_level(nnc_timeline *t, nnc_level l)
{
    if (!ARENA_ROOM(&t->arena, t->level, t->cap_level, t->n_level + 1)) {
        t->oom = true;
        return;
    }
    l.name = copy(t, l.name);
    t->level[t->n_level++] = l;
}

/* ---- orders of spans ------------------------------------------------------------------------------------- */

static int by_lane(const void *a, const void *b, void *ctx)
{
    const nnc_slice *span = ctx;
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const nnc_slice *x = &span[i], *y = &span[k];
    return nnc_then(
        nnc_cmp(x->lane, y->lane), nnc_then(nnc_cmp(x->start_ps, y->start_ps), nnc_cmp(i, k)));
}

int32_t *timeline_order(const nnc_timeline *t)
{
    int32_t *order = nnc_malloc(((size_t)t->n_span + 1) * sizeof *order);
    for (int i = 0; order && i < t->n_span; i++)
        order[i] = i;
    if (order)
        qsort_r(order, (size_t)t->n_span, sizeof *order, by_lane, t->span);
    return order;
}

/* Lanes of the same kind beside each other, and when each is free. */
typedef struct beside {
    int64_t *end;
    int *lane;
    size_t cap_end, cap_lane;
    int n;
} beside;

static bool add_lane(nnc_timeline *t, beside *b, int first)
{
    char name[64];
    if (!ARENA_ROOM(&t->arena, b->end, b->cap_end, b->n + 1) ||
        !ARENA_ROOM(&t->arena, b->lane, b->cap_lane, b->n + 1))
        return false;
    nnc_snprintf(
        name, sizeof name, "%.40s %d", t->lane[first].name ? t->lane[first].name : "", b->n + 1);
    b->lane[b->n] =
        b->n ? nnc_timeline_lane(t, t->lane[first].device, name, t->lane[first].thin) : first;
    b->end[b->n] = INT64_MIN;
    return b->lane[b->n++] >= 0;
}

/* The spans of one lane, order[0..n): each goes to the first lane beside it that is free. */
static void pack_lane(nnc_timeline *t, const int32_t *order, int n)
{
    beside b = {0};
    const int first = t->span[order[0]].lane;
    for (int i = 0; i < n; i++) {
        nnc_slice *s = &t->span[order[i]];
        int k = 0;
        while (k < b.n && b.end[k] > s->start_ps)
            k++;
        if (k == b.n && !add_lane(t, &b, first)) {
            t->oom = true;
            return;
        }
        s->lane = b.lane[k];
        b.end[k] = s->end_ps;
    }
}

void nnc_timeline_pack(nnc_timeline *t)
{
    NNC_FREED int32_t *order = timeline_order(t);
    t->oom = t->oom || !order;
    for (int i = 0, end; order && !t->oom && i < t->n_span; i = end) {
        const int lane = t->span[order[i]].lane;
        for (end = i + 1; end < t->n_span && t->span[order[end]].lane == lane;)
            end++;
        pack_lane(t, order + i, end - i);
    }
}

NNC_ORDER(by_start, nnc_stretch, nnc_cmp(a->start, b->start))

void nnc_sort_stretches(nnc_stretch *s, int n)
{
    if (n)
        qsort(s, (size_t)n, sizeof *s, by_start);
}

int64_t nnc_covered(const nnc_stretch *s, int n, int first, int last)
{
    int64_t sum = 0, end = INT64_MIN;
    for (int i = 0; i < n; i++)
        if (s[i].kind >= first && s[i].kind <= last && s[i].end > end) {
            sum += s[i].end - nnc_max64(s[i].start, end);
            end = s[i].end;
        }
    return sum;
}

int64_t nnc_timeline_busy(const nnc_timeline *t, int device)
{
    NNC_FREED nnc_stretch *own = nnc_malloc(((size_t)t->n_span + 1) * sizeof *own);
    int n = 0;
    if (!own)
        return -1;
    for (int i = 0; i < t->n_span; i++)
        if (t->lane[t->span[i].lane].device == device && t->span[i].kind != WORK_communication)
            own[n++] = (nnc_stretch){t->span[i].start_ps, t->span[i].end_ps, 0};
    nnc_sort_stretches(own, n);
    return nnc_covered(own, n, 0, 0);
}

double nnc_timeline_idle(const nnc_timeline *t)
{
    const double all = (double)t->n_device * (double)t->total_ps;
    double busy = 0;
    for (int d = 0; d < t->n_device; d++) {
        const int64_t own = nnc_timeline_busy(t, d);
        if (own < 0)
            return -1;
        busy += (double)own;
    }
    return all > 0 ? 1 - busy / all : 0;
}

/* Appends device d of x, if there is one, as device `to`. */
static void copy_device(nnc_timeline *all, const nnc_timeline *x, int d, int to)
{
    char name[120];
    nnc_snprintf(name, sizeof name, "%.50s, %.50s", x->device[d], x->name);
    nnc_timeline_name(all, to, name);
    all->run_ps[to] = x->total_ps;
    for (int l = 0; l < x->n_lane; l++) {
        if (x->lane[l].device != d)
            continue;
        const int lane = nnc_timeline_lane(all, to, x->lane[l].name, x->lane[l].thin);
        for (int i = 0; i < x->n_span; i++)
            if (x->span[i].lane == l) {
                nnc_slice s = x->span[i];
                s.lane = lane;
                (void)nnc_timeline_add(all, s); /* a failure is noted in `all` */
            }
    }
}

nnc_timeline *nnc_timeline_beside(const nnc_timeline *const *t, int n)
{
    int devices = 0, most = 0, to = 0;
    for (int i = 0; i < n; i++) {
        devices += t[i]->n_device;
        most = t[i]->n_device > most ? t[i]->n_device : most;
    }
    nnc_timeline *all = nnc_timeline_create("", devices);
    for (int d = 0; all && d < most; d++)
        for (int i = 0; i < n; i++)
            if (d < t[i]->n_device)
                copy_device(all, t[i], d, to++);
    for (int i = 0; all && i < n; i++) {
        all->total_ps = nnc_max64(all->total_ps, t[i]->total_ps);
        all->known_ps = all->known_ps > 0 && t[i]->known_ps > 0
                            ? nnc_min64(all->known_ps, t[i]->known_ps)
                            : nnc_max64(all->known_ps, t[i]->known_ps);
        all->oom = all->oom || t[i]->oom;
    }
    return all;
}

/* schedule/verify.c -- verifies that a schedule fits the kernel's axes and that derived values printed with it are right. */
#include "schedule/schedule.h"

/* Checks that the choices of a GPU kernel are possible, and that the remaining fields follow from them. */
static nnc_status grid_ok(const nnc_kernel *k, nnc_sink *sink)
{
    const nnc_kgrid *g = &k->grid;
    nnc_kgrid want = *g;
    bool ok = g->cls <= KC_contract && k->sched.n == 0 && k->sched.domain == nnc_kernel_domain(k) &&
              nnc_cuda_derive(k, &want) && want.blocks == g->blocks && want.finish == g->finish &&
              want.shared == g->shared && want.work == g->work && want.index == g->index;
    if (want.oom)
        return nnc_nomem(sink);
    return ok ? NNC_OK : nnc_bad_kernel(k, sink, "the schedule contradicts the axes");
}

/* True when tiles and order name only axes that they may name. */
static bool axes_ok(const nnc_kernel *k)
{
    const bool parts = nnc_kernel_in_parts(k);
    const nnc_kschedule *s = &k->sched;
    uint32_t seen[KD__COUNT] = {0};
    for (int i = 0; i < s->n; i++) {
        const nnc_kdirective *d = &s->d[i];
        bool axis = d->what <= KD_ring, ring = d->what == KD_ring,
             number = d->what != KD_order && d->what != KD_transpose;
        if (d->what >= KD__COUNT || (d->axis >= 0) != axis || d->axis >= k->n_axis ||
            (d->n > 0) != (number && d->what < KD_nontemporal) || d->n < 0 ||
            ring != (d->buf >= 0) || (axis && !ring && seen[d->what] >> d->axis & 1) ||
            (!axis && seen[d->what]))
            return false;
        seen[d->what] |= axis ? 1u << d->axis : 1;
        bool outer = axis && d->axis < k->n_outer;
        const bool map = k->axis[nnc_max64(d->axis, 0)].kind == KA_map;
        if (d->what == KD_tile
                ? map && !parts
                : axis && !outer && d->what != KD_vector && !(parts && map && d->what == KD_unroll))
            return false;
    }
    uint32_t all = (1u << k->n_outer) - 1, v = seen[KD_vector];
    return (parts || !(v & (v - 1))) && (!seen[KD_order] || seen[KD_order] == all) &&
           !(seen[KD_transpose] & (seen[KD_transpose] - 1)) &&
           !((seen[KD_unroll] | seen[KD_transpose]) & v);
}

/* The tiled outer axes, without the vector axis. */
static uint32_t tiles(const nnc_kernel *k)
{
    uint32_t set = 0;
    for (int a = 0; a < k->n_outer; a++)
        if (a != nnc_sched_vec(&k->sched) && nnc_sched_n(&k->sched, KD_tile, a) > 0)
            set |= 1u << a;
    return set;
}

/* Checks transposing tiles: one stage without own axes, vectors of a power of 2 up to 16 that divides both tiles. */
static bool squares_ok(const nnc_kernel *k, int v)
{
    const nnc_kschedule *s = &k->sched;
    int a = nnc_sched_axis(s, KD_transpose), w = nnc_sched_width(s);
    return v >= 0 && v < k->n_outer && k->n_stage == 1 && !k->stage[0].axes && w >= 2 && w <= 16 &&
           !(w & (w - 1)) && nnc_sched_n(s, KD_tile, a) > 0 &&
           nnc_sched_n(s, KD_tile, a) % w == 0 && nnc_sched_n(s, KD_tile, v) % w == 0 &&
           tiles(k) == 1u << a;
}

/* May axis a be unrolled with vector axis v? With an inner vector axis, a must be the only tiled axis. */
static bool unroll_ok(const nnc_kernel *k, int v, int a)
{
    const nnc_kschedule *s = &k->sched;
    const bool rows = v >= k->n_outer;
    int64_t n = nnc_sched_n(s, KD_unroll, a);
    for (int m = k->n_outer; m < k->n_axis && !rows; m++)
        if (k->axis[m].kind == KA_map)
            return false;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_index && k->ins[i].i == a)
            return false;
    return v >= 0 && n >= 1 + rows && n <= NNC_STRIP && nnc_sched_n(s, KD_tile, a) % n == 0 &&
           nnc_sched_n(s, KD_tile, a) > 0 && !nnc_sched_has(s, KD_transpose) &&
           !(rows && (nnc_sched_has(s, KD_ring) || nnc_sched_has(s, KD_panel) ||
                         nnc_sched_axis(s, KD_unroll) != a || tiles(k) != 1u << a));
}

static bool has_ring(const nnc_kschedule *s, int axis)
{
    return nnc_sched_has_for(s, KD_ring, axis);
}

/* Checks directive i, a ring, whose axis must advance one by one within a work item. */
static const char *ring_wrong(const nnc_kernel *k, const nnc_kform *form, int i)
{
    const nnc_kschedule *s = &k->sched;
    const nnc_kdirective *d = &s->d[i];
    nnc_kring r;
    const char *why = nnc_kernel_ring(k, form, d->buf, d->axis, d->n, &r);
    for (int j = 0; j < i; j++)
        if (s->d[j].what == KD_ring && s->d[j].buf == d->buf)
            why = "a buffer has two rings";
    for (int a = d->axis + 1; a < k->n_outer; a++)
        if (nnc_sched_n(s, KD_tile, a) > 1)
            why = "an axis within the ring's axis is tiled";
    if (nnc_sched_n(s, KD_tile, d->axis) < 2)
        why = "the ring's axis has no tile";
    if (nnc_sched_vec(s) < k->n_outer)
        why = "a ring needs an inner vector axis";
    return why;
}

static const char *panel_wrong(const nnc_kernel *k)
{
    nnc_kpanel p;
    const char *why = nnc_kernel_panel(k, &p);
    return why || p.bytes == nnc_sched_n(&k->sched, KD_panel, -1) ? why
                                                                  : "the panel has another size";
}

/* Checks a kernel whose points run in order. Its schedule only chooses elements computed at once and by which thread. */
static const char *ordered_wrong(const nnc_kernel *k, int v)
{
    const nnc_kschedule *s = &k->sched;
    for (int i = 0; i < s->n; i++)
        if (s->d[i].what != KD_tile && s->d[i].what != KD_order && s->d[i].what != KD_vector &&
            s->d[i].what != KD_quick)
            return "its points run in order: only tile, order, vector and quick are possible";
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (nnc_sched_n(s, KD_tile, a) > 0)
            return "its points run in order: own axes have no tiles";
    return v >= 0 && k->axis[v].seq ? "vectors run along an axis whose points run in order" : NULL;
}

/* What is wrong with a CPU schedule, or NULL. part: the kernel is part of another, and its tiles hold blocks of rows. */
static const char *schedule_wrong(const nnc_kernel *k, const nnc_kform *form, bool part)
{
    const nnc_kschedule *s = &k->sched;
    int v = nnc_sched_vec(s);
    bool outer = v >= 0 && v < k->n_outer;
    if (!axes_ok(k) || s->grain < 1 || nnc_sched_width(s) > 4096 ||
        s->domain != nnc_kernel_domain(k))
        return "the schedule contradicts the axes";
    if (nnc_kernel_in_order(k) && ordered_wrong(k, v))
        return ordered_wrong(k, v);
    if (nnc_sched_has(s, KD_transpose) && !squares_ok(k, v))
        return "the schedule's tile does not fit the axes";
    for (int a = 0; a < k->n_outer; a++)
        if (nnc_sched_n(s, KD_unroll, a) > 0 && !unroll_ok(k, v, a))
            return "only an outer axis beside the vector axis, tiled by a multiple, is unrolled";
    for (int a = k->n_outer; a < k->n_axis; a++) {
        int64_t n = nnc_sched_n(s, KD_tile, a);
        if (n > 0 && !nnc_kernel_adds_ok(k) && (n > NNC_KBLOCK || !nnc_kernel_blocked_ok(k)))
            return "the reduce axis' tile does not fit the stages";
    }
    nnc_kahead ahead;
    if (nnc_sched_has(s, KD_prefetch) && outer && nnc_kernel_ahead(k, &ahead))
        return nnc_kernel_ahead(k, &ahead);
    if (nnc_sched_has(s, KD_prefetch) &&
        (v < 0 || k->n_outer == 0 || nnc_sched_n(s, KD_prefetch, -1) != 1))
        return "only a row kernel or a register block can prefetch";
    for (int a = 0; a < k->n_outer; a++)
        if (nnc_sched_n(s, KD_tile, a) > 0 && !outer && !part && !has_ring(s, a) &&
            nnc_sched_n(s, KD_unroll, a) == 0)
            return "an outer axis is tiled beside an inner vector axis, without a ring or unroll";
    for (int i = 0; i < s->n; i++) {
        const char *why = s->d[i].what == KD_ring ? ring_wrong(k, form, i) : NULL;
        if (why)
            return why;
    }
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp && outer)
            return "tmp buffers need an inner vector axis";
    return nnc_sched_has(s, KD_panel) ? panel_wrong(k) : NULL;
}

static nnc_status directives_ok(const nnc_kernel *k, bool part, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const bool rings = nnc_sched_has(&k->sched, KD_ring);
    const nnc_kform *form = rings ? nnc_kernel_forms(k, &a) : NULL;
    NNC_NEED(form || !rings, sink);
    const char *wrong = schedule_wrong(k, form, part);
    return wrong ? nnc_bad_kernel(k, sink, wrong) : NNC_OK;
}

/* Checks a kernel in parts. Each part has one vector axis, and must be valid as a kernel of its own. */
static nnc_status parts_ok(const nnc_kernel *k, nnc_sink *sink)
{
    const nnc_kschedule *s = &k->sched;
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kpart part[NNC_KPARTS];
    const int n = nnc_kernel_parts(k, part), tiled = nnc_parts_tiled(k);
    int vectors = 0, tiles = 0, ahead = nnc_sched_has(s, KD_prefetch);
    bool ok = axes_ok(k) && n > 0 && s->grain >= 1 && s->domain == nnc_kernel_domain(k) &&
              nnc_kernel_scratch(k) <= (int64_t)1 << 40;
    for (int i = 0; i < s->n && ok; i++) {
        const nnc_kdirective *d = &s->d[i];
        vectors += d->what == KD_vector;
        tiles += d->what == KD_tile && d->axis < k->n_outer;
        ok = d->what == KD_tile || d->what == KD_order || d->what == KD_unroll ||
             (d->what == KD_vector && d->axis >= k->n_outer) ||
             (d->what == KD_prefetch && d->n == 1);
    }
    if (!ok || vectors != n || tiles > 1)
        return nnc_bad_kernel(k, sink, "the schedule contradicts the parts");
    const int64_t *row = nnc_parts_rows(k, part, n, &a);
    NNC_NEED(row, sink);
    for (int i = 0; i < n; i++) {
        const char *why = nnc_kernel_part(k, tiled, row, &part[i], &a);
        NNC_NEED(!why || *why, sink);
        if (why || nnc_sched_vec(&part[i].k.sched) < 0)
            return nnc_bad_kernel(k, sink, why ? why : "a part has no vector axis");
        NNC_TRY(nnc_kernel_verify(&part[i].k, sink));
        NNC_TRY(directives_ok(&part[i].k, true, sink));
        ahead &= !nnc_sched_has(&part[i].k.sched, KD_prefetch);
    }
    return ahead ? nnc_bad_kernel(k, sink, "no part prefetches weights") : NNC_OK;
}

nnc_status nnc_schedule_verify(const nnc_kernel *k, nnc_sink *sink)
{
    NNC_TRY(nnc_kernel_verify(k, sink));
    if (!nnc_kernel_is_scheduled(k))
        return nnc_bad_kernel(k, sink, "has no schedule");
    if (k->grid.cls != KC_none) {
        NNC_TRY(directives_ok(k, false, sink));
        return grid_ok(k, sink);
    }
    return nnc_kernel_in_parts(k) ? parts_ok(k, sink) : directives_ok(k, false, sink);
}

nnc_kernel *nnc_schedule_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink)
{
    nnc_kernel *k = nnc_kernel_parse(s, a, sink);
    return k && nnc_schedule_verify(k, sink) == NNC_OK ? k : NULL;
}

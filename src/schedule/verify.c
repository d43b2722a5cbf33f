/* schedule/verify.c -- is the schedule possible: does it fit the axes, and does what was printed with it follow from it? */
#include "schedule/schedule.h"

static nnc_status bad_kernel(const nnc_kernel *k, nnc_sink *sink, const char *what)
{
    return nnc_fail0(sink, NNC_E_BUG, "kernel %s: %s", k->name ? k->name : "?", what);
}

/* The choices of a GPU's kernel are possible, and the rest is what follows from them. */
static nnc_status grid_ok(const nnc_kernel *k, nnc_sink *sink)
{
    const nnc_kgrid *g = &k->grid;
    nnc_kgrid want = *g;
    bool ok = g->cls <= KC_column && k->sched.vec_axis == -1 && k->sched.tile == 0 &&
              k->sched.domain == nnc_kernel_domain(k) && nnc_cuda_derive(k, &want) &&
              want.blocks == g->blocks && want.finish == g->finish && want.shared == g->shared &&
              want.work == g->work && want.index == g->index;
    if (want.oom)
        return nnc_nomem(sink);
    return ok ? NNC_OK : bad_kernel(k, sink, "the schedule contradicts the axes");
}

static nnc_status schedule_ok(const nnc_kernel *k, nnc_sink *sink)
{
    const nnc_kschedule *s = &k->sched;
    if (s->vec_axis < -1 || s->vec_axis >= k->n_axis || s->vec_width < 1 || s->chunk < 0 ||
        s->grain < 1 || s->tile < 0 || s->block < 0 || s->block > NNC_KBLOCK ||
        (s->tile > 0 && (s->tile_axis < 0 || s->tile_axis >= k->n_outer)) ||
        s->domain != nnc_kernel_domain(k))
        return bad_kernel(k, sink, "the schedule contradicts the axes");
    bool outer = s->vec_axis >= 0 && s->vec_axis < k->n_outer;
    if (s->tile > 0 &&
        (!outer || k->n_stage != 1 || k->stage[0].axes || s->tile_axis == s->vec_axis ||
            s->vec_width < 2 || s->vec_width > 16 || (s->vec_width & (s->vec_width - 1)) ||
            s->tile % s->vec_width || s->chunk % s->vec_width))
        return bad_kernel(k, sink, "the schedule's tile does not fit the axes");
    if (s->block > 0 && !nnc_kernel_blocked_ok(k))
        return bad_kernel(k, sink, "the schedule's block does not fit the stages");
    if (s->ahead && (outer || s->vec_axis < 0 || k->n_outer == 0))
        return bad_kernel(k, sink, "only rows are fetched ahead");
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp && outer)
            return bad_kernel(k, sink, "tmp buffers need an inner vector axis");
    return NNC_OK;
}

nnc_status nnc_schedule_verify(const nnc_kernel *k, nnc_sink *sink)
{
    NNC_TRY(nnc_kernel_verify(k, sink));
    NNC_TRY(schedule_ok(k, sink));
    return k->grid.cls != KC_none ? grid_ok(k, sink) : NNC_OK;
}

nnc_kernel *nnc_schedule_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink)
{
    nnc_kernel *k = nnc_kernel_parse(s, a, sink);
    return k && nnc_schedule_verify(k, sink) == NNC_OK ? k : NULL;
}

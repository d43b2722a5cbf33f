/* strategy/place.c -- layers on devices by the strategy "sequential", as --place takes them. */
#include "session/session.h"
#include "strategy/strategy.h"

nnc_status nnc_sequential_cut(nnc_env *e, const nnc_model *forward, const nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_sequential *out, nnc_arena *a, nnc_sink *sink)
{
    nnc_partition_model of;
    const nnc_partition_options p = {.compile = *o,
        .strategy = &nnc_strategy_names[NNC_STRATEGY_sequential],
        .n_strategy = 1,
        .micro = 1};
    NNC_TRY(nnc_partition_measure(e, forward, training, &p, &of, a, sink));
    nnc_partition_table t = {.m = &of,
        .o = &p,
        .target = &e->target[0],
        .cluster = e->cluster,
        .devices = devices,
        .micro = 1};
    NNC_TRY(nnc_partition_fill_table(&t, a, sink));
    if (of.n_block < devices || !t.row[0].place)
        return nnc_fail0(sink, NNC_E_FIT, "%s has %d blocks of layers, fewer than %d devices",
            of.name, of.n_block, devices);
    *out = (nnc_sequential){
        .devices = devices, .n_block = of.n_block, .first = of.first, .cut = t.row[0].cut};
    return NNC_OK;
}

void nnc_put_cut(const nnc_sequential *s, nnc_text *place)
{
    for (int d = 0; d < s->devices; d++) {
        const int first = s->first[s->cut[d]], last = s->first[s->cut[d + 1]] - 1;
        nnc_printf(place, "%s%d", d ? "," : "", first);
        if (last > first)
            nnc_printf(place, "-%d", last);
        nnc_printf(place, "=%d", d);
    }
}

nnc_status nnc_sequential_place(nnc_env *e, const nnc_model *forward, const nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_text *place, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_sequential s = {0};
    NNC_TRY(nnc_sequential_cut(e, forward, training, o, devices, &s, &a, sink));
    nnc_put_cut(&s, place);
    return place->oom ? nnc_nomem(sink) : NNC_OK;
}

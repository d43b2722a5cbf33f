/* api/partition_place.c -- layers on devices by the strategy "sequential", as --place takes them. */
#include "api/partition.h"

nnc_status nnc_sequential_place(nnc_env *e, const nnc_model *forward, const nnc_training *training,
    const nnc_compile_options *o, int devices, nnc_text *place, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    static const char *const strategy = "sequential";
    nnc_partition_model of;
    const nnc_partition_options p = {
        .compile = *o, .strategy = &strategy, .n_strategy = 1, .micro = 1, .no_code = true};
    NNC_TRY(nnc_partition_measure(e, forward, training, &p, &of, &a, sink));
    nnc_partition_table t = {.m = &of,
        .o = &p,
        .target = &e->target[0],
        .cluster = e->cluster,
        .devices = devices,
        .micro = 1};
    NNC_TRY(nnc_partition_fill_table(&t, &a, sink));
    if (of.n_block < devices || !t.row[0].place)
        return nnc_fail0(sink, NNC_E_FIT, "%s has %d blocks of layers, fewer than %d devices",
            of.name, of.n_block, devices);
    nnc_puts(place, t.row[0].place);
    return place->oom ? nnc_nomem(sink) : NNC_OK;
}

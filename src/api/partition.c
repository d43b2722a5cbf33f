/* api/partition.c -- nnc partition: measures a model, fills the table, prints it. */
#include "api/partition.h"

nnc_status nnc_partition_model_report(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_partition_model of;
    if (e->n_target > 1)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc partition takes one --target: its devices are equal");
    NNC_TRY(nnc_partition_measure(e, m, training, o, &of, &a, sink));
    int devices = o->compile.devices;
    for (int l = 0; l < of.n_layer && o->compile.devices < 2; l++)
        devices = of.device[l] + 1 > devices ? of.device[l] + 1 : devices;
    devices = devices < 2 ? 2 : devices;
    nnc_partition_table t = {.m = &of,
        .o = o,
        .target = &e->target[0],
        .devices = devices,
        .micro = o->micro > 0 ? o->micro : 4 * devices};
    NNC_TRY(nnc_partition_fill_table(&t, &a, sink));
    *fits = false;
    for (int i = 0; i < t.n_row; i++)
        *fits = *fits || (!t.row[i].why_not && t.row[i].fits);
    nnc_partition_print(&t, f, out);
    return out->oom ? nnc_nomem(sink) : NNC_OK;
}

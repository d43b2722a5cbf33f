/* strategy/sense.c -- what strategies would take with faster and slower links: each is planned again for them. */
#include "strategy/row.h"
#include "strategy/strategy.h"

const double nnc_partition_bandwidth[NNC_BANDWIDTHS] = {0.25, 0.5, 2, 4};

nnc_status nnc_partition_sense(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    nnc_partition_options o = *t->o;
    o.svg = o.trace = NULL;
    for (int k = 0; k < NNC_BANDWIDTHS; k++) {
        nnc_partition_table with = *t;
        with.bandwidth = nnc_partition_bandwidth[k];
        with.o = &o;
        with.row = NULL;
        with.n_row = 0;
        NNC_TRY(nnc_partition_fill_table(&with, a, sink));
        for (int i = 0; i < t->n_row; i++) /* the same strategies in the same order */
            if (!with.row[i].why_not) {
                t->row[i].at_bandwidth_ns[k] = with.row[i].iteration_ns;
                t->row[i].at_bandwidth[k] = with.row[i].strategy;
            }
    }
    return NNC_OK;
}

/* partition/internal.h -- shared by the files of partition/. */
#ifndef NNC_PARTITION_INTERNAL_H
#define NNC_PARTITION_INTERNAL_H

#include "partition/partition.h"

/* Sum of v[i] .. v[j - 1]; a NULL v holds zeros. */
static inline int64_t sum_of(const int64_t *v, int i, int j)
{
    int64_t t = 0;
    for (; v && i < j; i++)
        t = nnc_add_sat(t, v[i]);
    return t;
}
/* A cache of best cuts without limits of memory. Schedules and ZeRO stages share them. Each slot keeps the latest cut. */
typedef struct search_cut {
    nnc_combination key; /* the members that a cut depends on; pipeline 0: an empty slot */
    int *cut;
    size_t cap;
} search_cut;
enum { SEARCH_CUTS = 4096 };
typedef struct search_cuts {
    search_cut *slot; /* SEARCH_CUTS */
    nnc_arena *a;
} search_cuts;
/* search_cost.c: evaluates only the time of a combination. */
nnc_status search_time(const nnc_search_problem *p, const nnc_combination *c, search_cuts *cuts, int64_t *ns,
    nnc_prune *pruned, nnc_sink *sink) NNC_MUST;

#endif

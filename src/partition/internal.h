/* partition/internal.h -- shared by the files of partition/. */
#ifndef NNC_PARTITION_INTERNAL_H
#define NNC_PARTITION_INTERNAL_H

#include "partition/partition.h"

/* cut.c: a stage's time and bytes from the sums of its layers; the transfer over position `at` before stage s. */
int64_t cut_ns(const nnc_cut_problem *p, int s, int64_t compute, int64_t in, int64_t out);
int64_t cut_bytes(const nnc_cut_problem *p, int s, int64_t fixed, int64_t saved, int64_t kept);
int64_t cut_transfer(const nnc_cut_problem *p, int s, int at);
/* search_cost.c: the time of a combination alone. */
nnc_status search_time(const nnc_search_problem *p, const nnc_combination *c, int64_t *ns, nnc_prune *pruned,
    nnc_sink *sink) NNC_MUST;

#endif

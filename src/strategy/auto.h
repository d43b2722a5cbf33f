/* strategy/auto.h -- the strategies that combine data, tensor and pipeline parallelism. */
#ifndef NNC_STRATEGY_AUTO_H
#define NNC_STRATEGY_AUTO_H

#include "strategy/row.h"
#include "strategy/strategy.h"

/* auto_links.c: communication times of r's devices. All bandwidths are multiplied by `bandwidth`. */
typedef struct auto_links auto_links;
auto_links *auto_links_make(rows *r, double bandwidth); /* in r->a; NULL: out of memory */
nnc_search_links auto_search_links(const auto_links *l);
/* Time of a tensor group's collective, on the first n devices, while all other groups of the node do the same. */
extern const nnc_group_op auto_group_op[]; /* by nnc_search_collective */
int64_t auto_tensor_ns(const auto_links *l, nnc_search_collective kind, int n, int64_t bytes);
void auto_tensor_links(rows *r); /* r's collectives are those of tensor groups */

/* auto_costs.c: costs of m's blocks at a tensor degree, for micro-batches of m->batch samples. s: the split of r->m; degree 1 has none. */
nnc_status auto_costs(rows *r, const nnc_partition_model *m, int tensor, const row_split_cost *s, nnc_search_costs *out) NNC_MUST;
/* Marks the blocks whose inputs recomputation keeps: about sqrt(n_block) of them, with equal saved bytes between them. */
nnc_status auto_segments(rows *r, const nnc_partition_model *m, bool **out) NNC_MUST;

/* auto_tasks.c: nanoseconds of an iteration of x by the clock of tasks. 0: it has too many tasks, or with `few` more than the clock runs in
 * milliseconds. */
nnc_status auto_clock(rows *r, const nnc_search_problem *p, const nnc_search_result *x, bool few, int64_t *ns) NNC_MUST;
/* The row's times, and its timeline where one is asked for, by the clock; by the search's estimate where there are too many tasks. */
nnc_status auto_run(rows *r, nnc_partition_row *row, const nnc_search_problem *p, const nnc_search_result *x) NNC_MUST;

#endif

/* tests/plan/ranks.h -- plans run by the interpreter, in one process and over ranks that are threads. */
#ifndef TESTS_PLAN_RANKS_H
#define TESTS_PLAN_RANKS_H

#include "ir/ir.h"
#include "runtime/runtime.h"

/* A verified plan of g as it is; NULL, reported: there is none. */
nnc_plan *ranks_plan(const nnc_graph *g, int streams, int devices);
nnc_exec_options ranks_options(nnc_job *job);
/* Runs p in one process and over ranks, several times. Outputs and states must have the same bits, and the ranks together the memory of
 * one process. */
void ranks_check(const nnc_plan *p, int ranks, void *const *in, const char *what);

#endif

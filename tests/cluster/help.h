/* tests/cluster/help.h -- hardware files for the tests of cluster/. */
#ifndef NNC_TESTS_CLUSTER_HELP_H
#define NNC_TESTS_CLUSTER_HELP_H

#include "cluster/cluster.h"

nnc_cluster *hardware(const char *name); /* of models/hardware/; fails the test where it does not load */
/* The time in microseconds of a collective of devices 0..n-1. */
double collective_us(const nnc_cluster *c, nnc_group_op kind, int n, int64_t bytes);

#endif

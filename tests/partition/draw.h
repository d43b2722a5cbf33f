/* tests/partition/draw.h -- drawn instances. */
#ifndef TESTS_PARTITION_DRAW_H
#define TESTS_PARTITION_DRAW_H

#include "partition/partition.h"
#include "test.h"

/* The next number of a stream, 0 .. below - 1. */
typedef struct draw { uint64_t key, i; } draw;
static inline int64_t draw_below(draw *d, int64_t below)
{
    return below > 0 ? (int64_t)(nnc_rng_u32(d->key, d->i++) % (uint64_t)below) : 0;
}
static inline draw draw_from(const char *name, int round)
{
    return (draw){nnc_rng_key(name, test_seed + (uint64_t)round), 0};
}

#endif

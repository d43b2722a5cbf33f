/* train/distribute.h -- shared by tasks.c, which finds the purpose of each node of a step, and distribute.c, which copies the nodes. */
#ifndef NNC_TRAIN_DISTRIBUTE_H
#define NNC_TRAIN_DISTRIBUTE_H

#include "train/internal.h"

/* Purpose of a node of the one-device step, which decides how often it is copied. */
typedef enum node_use {
    USE_shared, /* independent of samples: once a run on each replica */
    USE_forward, /* for outputs: once a micro-batch */
    USE_backward, /* for gradients, and statistics that each micro-batch moves: once a micro-batch */
    USE_weight, /* only for the gradient of one layer's weights, if the schedule separates these: once a micro-batch */
    USE_once, /* for updates: once a run */
} node_use;

typedef struct step_facts {
    const nnc_graph *s;
    const nnc_distribution *o;
    uint8_t *use; /* by node: node_use; leaves have USE_shared */
    int32_t *
        rank; /* by node * micro + micro-batch: task of forward, backward and weight nodes; NULL: no tasks */
    int32_t n_rank; /* tasks are below this */
    nnc_ref *update; /* by value: new value of an accumulating state; otherwise NNC_NONE */
    nnc_ref *
        chain; /* by value: for joined accumulating states, their joined new values; otherwise NNC_NONE */
    nnc_ref first; /* the input NNC_TRAIN_FIRST, or NNC_NONE */
    nnc_arena *a;
    nnc_sink *sink;
} step_facts;

/* How replicas hold a value of the optimizer: each all of it or, with nnc_distribution.zero, a part. */
typedef enum node_share {
    SHARE_none,
    SHARE_part, /* replica r has the elements [n r / d, n (r + 1) / d) */
    SHARE_sum,  /* replica r has the sum over its part's elements; the value is the sum over the replicas */
    SHARE_most, /* the same with the maximum */
} node_share;

typedef struct copies {
    step_facts f;
    const nnc_graph *s;
    nnc_graph *g;
    int d, m; /* replicas, micro-batches */
    nnc_ref
        *map; /* by (value * d + replica) * m + micro-batch: the copy; shared and once have only micro-batch 0 */
    nnc_ref *whole; /* by value: inputs with the samples of all replicas and micro-batches */
    uint8_t *share; /* by node: node_share */
    nnc_ref *bucket; /* by value: next gradient or statistic of the same bucket, in a ring; NNC_NONE: no bucket */
    bool *statistic; /* by value: running statistics, in a bucket */
    bool *scattered; /* by value: each replica takes only a part of its mean */
    /* By value * d + replica: mean of gradients and statistics over the replicas; the whole of a part. NNC_NONE: not made yet */
    nnc_ref *mean;
    nnc_ref *part; /* indexed like map: the replica's part of a value that all have, or of a mean over the replicas */
    nnc_arena *a;
} copies;

static inline nnc_ref *slot(const copies *c, nnc_ref v, int r, int k)
{
    return &c->map[((size_t)v * (size_t)c->d + (size_t)r) * (size_t)c->m + (size_t)k];
}

static inline nnc_ref *part_slot(const copies *c, nnc_ref v, int r, int k)
{
    return &c->part[((size_t)v * (size_t)c->d + (size_t)r) * (size_t)c->m + (size_t)k];
}

/* Device of replica r that stands for `device` of the step. */
static inline int device_of(const copies *c, int device, int r)
{
    return (device < 0 || c->f.o->devices == 1 ? 0 : device) + r * c->f.o->devices;
}

static inline node_use use_of(const copies *c, nnc_ref v) { return (node_use)c->f.use[c->s->value[v].node]; }

static inline bool is_of_batch(node_use u) { return u == USE_forward || u == USE_backward || u == USE_weight; }

/* distribute.c: part of an input for replica r and micro-batch k. */
nnc_ref input_part(copies *c, nnc_ref v, int r, int k);
/* Copy of v that replica r reads in micro-batch k. */
nnc_ref value_at(copies *c, nnc_ref v, int r, int k);

/* exchange.c: finds what replicas send each other. */
nnc_status find_shares(copies *c) NNC_MUST;
nnc_status find_buckets(copies *c) NNC_MUST;
/* The output of this name, or NNC_NONE. */
nnc_ref output_named(const nnc_graph *s, const char *name);
/* Copy of v that a node of USE_once reads or a state gets: the whole value, or the replica's part. */
nnc_ref whole_once(copies *c, nnc_ref v, int r);
nnc_ref part_once(copies *c, nnc_ref v, int r);
/* Replica's part of the copy of v that micro-batch k reads. */
nnc_ref part_at(copies *c, nnc_ref v, int r, int k);

static inline bool in_optimizer(const nnc_node *n) { return n->origin && !strcmp(n->origin, NNC_TRAIN_OPTIMIZER); }
/* Whether the optimizer sums gradients in this state, for steps of several batches. */
static inline bool is_gradient_sum(const nnc_node *state) { return state->accumulates && in_optimizer(state); }
/* Fills *f. NNC_E_USAGE: the placement is not a pipeline of o->stages stages. */
nnc_status find_step_facts(step_facts *f) NNC_MUST;

#endif

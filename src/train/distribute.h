/* train/distribute.h -- shared by tasks.c, which says what each node of a step is for, and distribute.c, which copies it. */
#ifndef NNC_TRAIN_DISTRIBUTE_H
#define NNC_TRAIN_DISTRIBUTE_H

#include "train/internal.h"

/* What a node of the one-device step is computed for. */
typedef enum node_use {
    USE_shared, /* needs no samples: once a run on each replica */
    USE_forward, /* the outputs: for each micro-batch */
    USE_backward, /* the gradients, and statistics that each micro-batch moves: for each micro-batch */
    USE_weight, /* only the gradient of one layer's weights, where a schedule tells these apart: for each micro-batch */
    USE_once, /* the updates: once a run */
} node_use;

typedef struct step_facts {
    const nnc_graph *s;
    const nnc_distribution *o;
    uint8_t *use; /* by node: node_use; of leaves USE_shared */
    int32_t *
        rank; /* by node * micro + micro-batch: the task of forward, backward and weight; NULL: there are none */
    int32_t n_rank; /* tasks are below */
    nnc_ref *update; /* by value: of an accumulating state its new value; otherwise NNC_NONE */
    nnc_ref *
        chain; /* by value: of accumulating states side by side their new values, side by side; otherwise NNC_NONE */
    nnc_ref first; /* the input NNC_TRAIN_FIRST, or NNC_NONE */
    nnc_arena *a;
    nnc_sink *sink;
} step_facts;

/* How replicas hold what the optimizer computes: each all of it, or with nnc_distribution.zero a part of it. */
typedef enum node_share {
    SHARE_none,
    SHARE_part, /* replica r has the elements [n r / d, n (r + 1) / d) */
    SHARE_sum,  /* of its part's elements; the value is the sum over the replicas */
    SHARE_most, /* the same, the largest */
} node_share;

typedef struct copies {
    step_facts f;
    const nnc_graph *s;
    nnc_graph *g;
    int d, m; /* replicas, micro-batches */
    nnc_ref
        *map; /* by (value * d + replica) * m + micro-batch; of shared and once: micro-batch 0 */
    nnc_ref *whole; /* by value: inputs, with the samples of all */
    uint8_t *share; /* by node: node_share */
    nnc_ref *bucket; /* by value: of gradients or statistics that are summed together the next one, in a ring; NNC_NONE: none */
    bool *statistic; /* by value: running statistics, in a bucket */
    bool *scattered; /* by value: of its mean each replica takes a part, and none all of it */
    /* By value * d + replica; NNC_NONE: not made yet. Of gradients and statistics: the mean over the replicas; of a part: all of it */
    nnc_ref *mean;
    nnc_ref *part; /* as map: the replica's part of what all have, or of a mean over the replicas */
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

/* Of replica r; device: of the step. */
static inline int device_of(const copies *c, int device, int r)
{
    return (device < 0 || c->f.o->devices == 1 ? 0 : device) + r * c->f.o->devices;
}

static inline node_use use_of(const copies *c, nnc_ref v) { return (node_use)c->f.use[c->s->value[v].node]; }

static inline bool is_of_batch(node_use u) { return u == USE_forward || u == USE_backward || u == USE_weight; }

/* distribute.c: a replica's part of an input for a micro-batch; the value of v that a copy for micro-batch k reads. */
nnc_ref input_part(copies *c, nnc_ref v, int r, int k);
nnc_ref value_at(copies *c, nnc_ref v, int r, int k);

/* exchange.c: what replicas send each other. */
nnc_status find_shares(copies *c) NNC_MUST;
nnc_status find_buckets(copies *c) NNC_MUST;
/* The output of this name, or NNC_NONE. */
nnc_ref output_named(const nnc_graph *s, const char *name);
/* The value of v that a node computed once a step reads, or a state gets: all of it; or the replica's part. */
nnc_ref whole_once(copies *c, nnc_ref v, int r);
nnc_ref part_once(copies *c, nnc_ref v, int r);
/* The replica's part of the value of v that a copy for micro-batch k reads. */
nnc_ref part_at(copies *c, nnc_ref v, int r, int k);

/* Does the optimizer sum gradients in this state (where several batches make a step)? */
bool is_gradient_sum(const nnc_node *state);
bool in_optimizer(const nnc_node *n);
/* NNC_E_USAGE: the placement is no pipeline of as many stages. */
nnc_status find_step_facts(step_facts *f) NNC_MUST;

#endif

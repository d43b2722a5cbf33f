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

/* Does the optimizer sum gradients in this state (where several batches make a step)? */
bool is_gradient_sum(const nnc_node *state);
bool in_optimizer(const nnc_node *n);
/* NNC_E_USAGE: the placement is no pipeline of as many stages. */
nnc_status find_step_facts(step_facts *f) NNC_MUST;

#endif

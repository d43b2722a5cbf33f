/* train/internal.h -- shared by the files of train/. */
#ifndef NNC_TRAIN_INTERNAL_H
#define NNC_TRAIN_INTERNAL_H

#include "train/train.h"

/* op(r, v), v of r's dtype */
nnc_ref number_op(nnc_graph *g, nnc_op op, nnc_ref r, double v);
nnc_ref scalar_input(nnc_graph *g, const char *name, nnc_dtype d);
/* optimizer.c. Adds the gradients of all params that are trained, and their updates. */
nnc_status add_optimizer(
    nnc_graph *g, nnc_ref loss, const nnc_training *t, nnc_sink *sink) NNC_MUST;
/* Updates running statistics with every batch, also where a step takes several: of each all but a share of bn_momentum stays, and
 * `added` comes to it. */
void move_statistics(
    nnc_graph *g, const nnc_training *t, int n, nnc_ref *state, nnc_ref *added, nnc_arena *a);
/* freeze.c. NNC_E_USAGE: a pattern of t matches no weight of the model. */
nnc_status check_patterns(const nnc_graph *m, const nnc_training *t, nnc_sink *sink) NNC_MUST;
/* unused.c. A warning for each setting that others leave without effect. */
void warn_unused(const nnc_training *t, nnc_sink *sink);
void warn_unused_rate(const nnc_rate *r, nnc_sink *sink);
/* Makes states of all float params, which stay as they are. */
void add_identities(nnc_graph *g);

#endif

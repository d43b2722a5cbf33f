/* train/internal.h -- shared by the files of train/. */
#ifndef NNC_TRAIN_INTERNAL_H
#define NNC_TRAIN_INTERNAL_H

#include "train/train.h"

/* Returns p. If it is NULL, memory ran out, and g fails. */
static inline void *need(nnc_graph *g, void *p)
{
    if (!p)
        g->status = nnc_nomem(g->sink);
    return p;
}
/* Adds op(r, v), where the constant v has r's dtype. */
nnc_ref number_op(nnc_graph *g, nnc_op op, nnc_ref r, double v);
nnc_ref scalar_input(nnc_graph *g, const char *name, nnc_dtype d);
/* optimizer.c. Adds the gradients of all trained params, and their updates. */
nnc_status add_optimizer(
    nnc_graph *g, nnc_ref loss, const nnc_training *t, nnc_sink *sink) NNC_MUST;
/* Updates running statistics with every batch, even if a step has several: state = (1 - bn_momentum) state + added. */
void move_statistics(
    nnc_graph *g, const nnc_training *t, int n, nnc_ref *state, nnc_ref *added, nnc_arena *a);
/* freeze.c. NNC_E_USAGE: a pattern of t matches no weight of the model. */
nnc_status check_patterns(const nnc_graph *m, const nnc_training *t, nnc_sink *sink) NNC_MUST;
/* train.c. Whether the name is that of an input that training adds: target, learning rate, ... */
bool is_added_input(const char *name);
/* inputs.c. NNC_E_MODEL: model m has no input of floats; a note names the other inputs. */
nnc_status check_float_inputs(const nnc_graph *m, nnc_sink *sink) NNC_MUST;
/* Lists the model's float inputs in x, which has room for all nodes. Returns their number. */
int find_float_inputs(const nnc_graph *g, nnc_ref *x);
/* Makes the gradients with respect to inputs x outputs. They were computed from the loss times scale (NNC_NONE: from the loss). */
void add_input_gradients(nnc_graph *g, int n, const nnc_ref *x, const nnc_ref *grad, nnc_ref scale);
/* unused.c. Warns of each setting that others leave without effect. */
void warn_unused(const nnc_training *t, nnc_sink *sink);
void warn_unused_rate(const nnc_rate *r, nnc_sink *sink);
/* Makes all float params states whose new value is the old one. */
void add_identities(nnc_graph *g);

#endif

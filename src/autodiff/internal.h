/* autodiff/internal.h -- shared by the rules. */
#ifndef NNC_AUTODIFF_INTERNAL_H
#define NNC_AUTODIFF_INTERNAL_H

#include "autodiff/autodiff.h"

typedef struct diff {
    nnc_graph *g;
    nnc_ref *adjoint; /* by value: its gradient so far, or NNC_NONE */
    bool *needs;      /* by value: whether it depends on an x */
    size_t cap;       /* of both arrays */
    bool missing;     /* an op has no rule */
    nnc_sink *sink;
} diff;

/* A node to differentiate: a copy, since nodes move when others are added. dy[i]: the gradient of result i, or NNC_NONE. Rules are not
 * called where no result has one. */
typedef struct visit {
    diff *d;
    nnc_graph *g;
    nnc_node n;
    const nnc_ref *dy;
    const char *layer; /* the node's layer; n.origin has "/backward" */
} visit;

typedef void rule(visit *a);
#define RULE(op, f) rule f;
#include "autodiff/rules.def"
/* derivative.c: uses the derivatives of scalar.def, and its own table for ops with a lowering. */
bool has_derivative(nnc_op op);
void ewise_rule(visit *a);

/* Whether the gradient of operand k is needed. */
bool wanted(const visit *a, int k);
/* Sets the graph's status after a failed allocation of a rule. */
void no_memory(nnc_graph *g);
/* Reports that the node has no derivative, and why: "its batch_dims are not 0". */
void refuse(visit *a, const char *why);
/* Adds `grad` to the gradient of operand k, summed over broadcast dimensions. */
void give(visit *a, int k, nnc_ref grad);
/* Gradient of result i; zeros if there is none. */
nnc_ref result_grad(visit *a, int i);

static inline const nnc_type *in_type(const visit *a, int k) { return nnc_typeof(a->g, a->n.in[k]); }
static inline nnc_dtype dtype_of(const visit *a, nnc_ref r) { return nnc_typeof(a->g, r)->dtype; }
/* Adds op(r, v), where the constant v has r's dtype. */
nnc_ref with_number(visit *a, nnc_op op, nnc_ref r, double v);
nnc_ref full_like(visit *a, const nnc_type *t, double v);
/* rule_move.c: x[from:to] along axis. */
nnc_ref slice_along(visit *a, nnc_ref x, int axis, int64_t from, int64_t to);
/* x shifted by one along axis: each element becomes the next one (`before`: the previous one), and the last (first) one `edge`, of extent
 * 1. */
nnc_ref next_along(visit *a, nnc_ref x, int axis, bool before, nnc_ref edge);

#endif

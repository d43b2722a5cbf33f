/* autodiff/internal.h -- what the rules share. */
#ifndef NNC_AUTODIFF_INTERNAL_H
#define NNC_AUTODIFF_INTERNAL_H

#include "autodiff/autodiff.h"

typedef struct diff {
    nnc_graph *g;
    nnc_ref *adjoint; /* by value: its gradient so far, or NNC_NONE */
    bool *needs;      /* by value: does it depend on an x? */
    size_t cap;       /* of both */
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
    const char *layer; /* whose node it is; n.origin has "/backward" */
} visit;

typedef void rule(visit *a);
#define RULE(op, f) rule f;
#include "autodiff/rules.def"
/* derivative.c: by the derivatives of scalar.def, and for ops with a lowering those of its own table. */
bool has_derivative(nnc_op op);
void ewise_rule(visit *a);

/* Is the gradient of operand k needed? */
bool wanted(const visit *a, int k);
/* The graph's status after a failed allocation of a rule. */
void no_memory(nnc_graph *g);
/* Reports that the node has no derivative, and why: "its batch_dims are not 0". */
void refuse(visit *a, const char *why);
/* Adds `grad` to the gradient of operand k; a gradient over a broadcast operand is summed. */
void give(visit *a, int k, nnc_ref grad);
/* The gradient of result i; zeros where nobody gave one. */
nnc_ref result_grad(visit *a, int i);

static inline const nnc_type *in_type(const visit *a, int k) { return nnc_typeof(a->g, a->n.in[k]); }
static inline nnc_dtype dtype_of(const visit *a, nnc_ref r) { return (nnc_dtype)nnc_typeof(a->g, r)->dtype; }
/* op(r, v), v of r's dtype */
nnc_ref with_number(visit *a, nnc_op op, nnc_ref r, double v);
nnc_ref full_like(visit *a, const nnc_type *t, double v);
/* rule_move.c: x[from:to] along axis; the element after each one along axis, or before it, and at the end `edge`, of extent 1 there. */
nnc_ref slice_along(visit *a, nnc_ref x, int axis, int64_t from, int64_t to);
nnc_ref next_along(visit *a, nnc_ref x, int axis, bool before, nnc_ref edge);

#endif

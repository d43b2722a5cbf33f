/* autodiff/autodiff.h -- reverse-mode differentiation: adds to a graph the nodes that compute gradients.
 *
 * Each op has a rule (rule_*.c). Elementwise ops take their derivatives from ir/scalar.def. Named ops without a rule are differentiated
 * through their lowering (ir/expand.c). Gradients read values of the forward pass; passes/recompute.c decides later which of them are
 * kept and which are recomputed.
 *
 * Conventions where a function has no derivative follow PyTorch. relu and abs have 0 at 0. Equal operands of a maximum or minimum share its
 * gradient, as do equal elements of a row in a reduction. The first of equal elements of a window gets all of it. */
#ifndef NNC_AUTODIFF_H
#define NNC_AUTODIFF_H

#include "ir/ir.h"

/* Appends nodes that compute the gradient of a number L with respect to the values x[0..n_x) of g, and sets dx[i] to it. NNC_NONE: L does
 * not depend on x[i], or only through integers and comparisons. dy[i] is the gradient of L with respect to the value y[i]: a value of the
 * same shape and dtype, or NNC_NONE for 1 for each element. Only what x needs is built. The new nodes carry the path of the layer that they
 * differentiate, with "/backward". NNC_E_MODEL: an op on the way has no rule; all such are reported. Existing refs stay valid. */
nnc_status nnc_gradients(nnc_graph *g, int n_y, const nnc_ref *y, const nnc_ref *dy, int n_x, const nnc_ref *x, nnc_ref *dx,
    nnc_sink *sink) NNC_MUST;
/* Whether the op passes a gradient on. Comparisons, indices and integers do not. *missing: it should, but nnc has no rule for it. */
bool nnc_has_gradient(nnc_op op, bool *missing);

#endif

/* autodiff/rule_loop.c -- ops in order along an axis, and movement by computed indices. */
#include "autodiff/internal.h"

#include <string.h>

/* Each element gets the gradients of the sums that it is in: a running sum from the other side. */
void cumsum_rule(visit *a)
{
    const nnc_attr at[] = {nnc_ai(AT_axis, nnc_attr_int(&a->n, AT_axis, 0)),
        nnc_ai(AT_exclusive, nnc_attr_int(&a->n, AT_exclusive, 0)),
        nnc_ai(AT_reverse, !nnc_attr_int(&a->n, AT_reverse, 0))};
    give(a, 0, nnc_build(a->g, OP_cumsum, 1, a->dy, 3, at));
}

static nnc_ref edge_like(visit *a, const nnc_type *t, int axis)
{
    nnc_type one = nnc_type_dense(t);
    one.dim[axis] = 1;
    return full_like(a, &one, 0);
}

/* The gradient of each y[t] = a[t] y[t-1] + b[t]: what dy gives it and what the next one does, from the other side. */
static nnc_ref scanned_back(visit *a, nnc_ref factor, nnc_ref dy)
{
    const nnc_type t = *in_type(a, 0);
    const int axis = (int)nnc_attr_int(&a->n, AT_axis, 0);
    const bool reverse = nnc_attr_int(&a->n, AT_reverse, 0);
    const nnc_attr at[] = {nnc_ai(AT_axis, axis), nnc_ai(AT_reverse, !reverse)};
    const nnc_ref in[] = {next_along(a, factor, axis, reverse, edge_like(a, &t, axis)), dy};
    return nnc_build(a->g, OP_linear_scan, 2, in, 2, at);
}

/* With p[t] = x[t] p[t-1], dx[t] is p[t]'s gradient times p[t-1]: no division, so that zeros do no harm. */
void cumprod_rule(visit *a)
{
    const nnc_type t = *in_type(a, 0);
    const int axis = (int)nnc_attr_int(&a->n, AT_axis, 0);
    const bool reverse = nnc_attr_int(&a->n, AT_reverse, 0);
    nnc_ref dp = a->dy[0], before = a->n.out;
    if (nnc_attr_int(&a->n, AT_exclusive, 0)) { /* y[t] is p[t-1] */
        dp = next_along(a, dp, axis, reverse, edge_like(a, &t, axis));
    } else {
        const nnc_attr at[] = {
            nnc_ai(AT_axis, axis), nnc_ai(AT_exclusive, 1), nnc_ai(AT_reverse, reverse)};
        before = nnc_build(a->g, OP_cumprod, 1, a->n.in, 3, at);
    }
    give(a, 0, nnc_build2(a->g, OP_mul, scanned_back(a, a->n.in[0], dp), before));
}

void linear_scan_rule(visit *a)
{
    const nnc_type t = *in_type(a, 0);
    const int axis = (int)nnc_attr_int(&a->n, AT_axis, 0);
    const bool reverse = nnc_attr_int(&a->n, AT_reverse, 0);
    const int64_t first = reverse ? t.dim[axis] - 1 : 0;
    nnc_ref dy = scanned_back(a, a->n.in[0], a->dy[0]);
    nnc_ref edge = a->n.n_in > 2 ? a->n.in[2] : edge_like(a, &t, axis);
    give(a, 1, dy);
    if (wanted(a, 0))
        give(a, 0, nnc_build2(a->g, OP_mul, dy, next_along(a, a->n.out, axis, !reverse, edge)));
    if (wanted(a, 2))
        give(a, 2,
            nnc_build2(a->g, OP_mul, slice_along(a, a->n.in[0], axis, first, first + 1),
                slice_along(a, dy, axis, first, first + 1)));
}

/* Adds `from` at the indices along axis to zeros of x's type. */
static nnc_ref scattered(visit *a, const nnc_type *x, nnc_ref index, nnc_ref from)
{
    const nnc_attr at[] = {
        nnc_ai(AT_axis, nnc_attr_int(&a->n, AT_axis, 0)), nnc_aw(AT_reduction, "add")};
    const nnc_ref in[] = {full_like(a, x, 0), index, from};
    return nnc_build(a->g, OP_scatter, 3, in, 2, at);
}

void topk_rule(visit *a)
{
    const nnc_type x = *in_type(a, 0);
    give(a, 0, scattered(a, &x, a->n.out + 1, a->dy[0] == NNC_NONE ? result_grad(a, 0) : a->dy[0]));
}

void gather_elements_rule(visit *a)
{
    const nnc_type x = *in_type(a, 0);
    give(a, 0, scattered(a, &x, a->n.in[1], a->dy[0]));
}

/* Indices with the places along the first `batch` dimensions before their own. */
static nnc_ref with_places(visit *a, nnc_ref index, int batch)
{
    nnc_ref v[NNC_MAX_RANK + 1];
    nnc_type t = *nnc_typeof(a->g, index);
    const int last = t.rank - 1;
    v[batch] = index;
    t.dim[last] = 1;
    t = nnc_type_make(t.dtype, t.rank, t.dim);
    for (int d = 0; d < batch; d++) {
        const nnc_attr dim = nnc_ai(AT_dim, d);
        v[d] = nnc_build_typed(a->g, OP_iota, 0, NULL, 1, &dim, &t);
    }
    return batch ? nnc_concat(a->g, batch + 1, v, last) : index;
}

void gather_nd_rule(visit *a)
{
    const nnc_type x = *in_type(a, 0);
    const nnc_attr add = nnc_aw(AT_reduction, "add");
    nnc_ref index = with_places(a, a->n.in[1], (int)nnc_attr_int(&a->n, AT_batch_dims, 0));
    const nnc_ref in[] = {full_like(a, &x, 0), index, a->dy[0]};
    give(a, 0, nnc_build(a->g, OP_scatter_nd, 3, in, 1, &add));
}

/* Updates are read where they went. Without a reduction what they replaced gets nothing, and of several for one element each gets all
 * of it, as in PyTorch. */
void scatter_rule(visit *a)
{
    const bool nd = a->n.op == OP_scatter_nd;
    const nnc_attr *r = nnc_attr_find(&a->n, AT_reduction);
    const nnc_attr axis = nnc_ai(AT_axis, nnc_attr_int(&a->n, AT_axis, 0));
    const bool replaces = !r || !r->word || !strcmp(r->word, "none");
    nnc_ref dy = a->dy[0];
    if (!replaces && strcmp(r->word, "add")) {
        refuse(a, " with a reduction other than add");
        return;
    }
    if (wanted(a, 2)) {
        const nnc_ref in[] = {dy, a->n.in[1]};
        give(a, 2, nnc_build(a->g, nd ? OP_gather_nd : OP_gather_elements, 2, in, !nd, &axis));
    }
    if (!wanted(a, 0))
        return;
    if (replaces) {
        const nnc_type u = *in_type(a, 2);
        const nnc_ref in[] = {dy, a->n.in[1], full_like(a, &u, 0)};
        dy = nnc_build(a->g, a->n.op, 3, in, !nd, &axis);
    }
    give(a, 0, dy);
}

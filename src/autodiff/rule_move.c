/* autodiff/rule_move.c -- movement: what an element was copied from gets the gradients of its copies. */
#include "autodiff/internal.h"

#include <string.h>

/* Pads x with zeros, lo[d] before and hi[d] after along each dimension. */
static nnc_ref zero_padded(visit *a, nnc_ref x, const int64_t *lo, const int64_t *hi)
{
    int64_t pads[2 * NNC_MAX_RANK] = {0};
    if (x == NNC_NONE)
        return x;
    int rank = nnc_typeof(a->g, x)->rank;
    bool any = false;
    for (int d = 0; d < rank; d++) {
        pads[d] = lo[d];
        pads[rank + d] = hi[d];
        any = any || lo[d] || hi[d];
    }
    const nnc_attr at = nnc_av(AT_pads, 2 * rank, pads);
    return any ? nnc_build(a->g, OP_pad, 1, &x, 1, &at) : x;
}

/* The part of x from `from`, of these extents. */
static nnc_ref part(visit *a, nnc_ref x, const int64_t *from, const int64_t *dim)
{
    int64_t axes[NNC_MAX_RANK] = {0}, starts[NNC_MAX_RANK] = {0}, ends[NNC_MAX_RANK] = {0};
    int n = 0;
    if (x == NNC_NONE)
        return x;
    const nnc_type *t = nnc_typeof(a->g, x);
    for (int d = 0; d < t->rank; d++)
        if (from[d] || dim[d] != t->dim[d]) {
            axes[n] = d;
            starts[n] = from[d];
            ends[n++] = from[d] + dim[d];
        }
    const nnc_attr at[] = {
        nnc_av(AT_axes, n, axes), nnc_av(AT_starts, n, starts), nnc_av(AT_ends, n, ends)};
    return n ? nnc_build(a->g, OP_slice, 1, &x, 3, at) : x;
}

nnc_ref slice_along(visit *a, nnc_ref x, int axis, int64_t from, int64_t to)
{
    int64_t lo[NNC_MAX_RANK] = {0};
    nnc_type t;
    if (x == NNC_NONE)
        return x;
    t = *nnc_typeof(a->g, x);
    lo[axis] = from;
    t.dim[axis] = to - from;
    return part(a, x, lo, t.dim);
}

nnc_ref next_along(visit *a, nnc_ref x, int axis, bool before, nnc_ref edge)
{
    if (x == NNC_NONE || edge == NNC_NONE)
        return NNC_NONE;
    const int64_t n = nnc_typeof(a->g, x)->dim[axis];
    if (n == 1)
        return edge;
    nnc_ref most = slice_along(a, x, axis, !before, n - before);
    const nnc_ref in[] = {before ? edge : most, before ? most : edge};
    return nnc_concat(a->g, 2, in, axis);
}

void identity_rule(visit *a)
{
    give(a, 0, a->dy[0]);
}

void reshape_rule(visit *a)
{
    const nnc_type t = *in_type(a, 0);
    give(a, 0, nnc_reshape(a->g, a->dy[0], t.rank, t.dim));
}

void transpose_rule(visit *a)
{
    const int64_t *perm;
    int64_t back[NNC_MAX_RANK] = {0};
    int n = nnc_attr_ints(&a->n, AT_perm, &perm);
    for (int d = 0; d < n; d++)
        back[perm[d]] = d;
    give(a, 0, nnc_transpose(a->g, a->dy[0], back));
}

void flip_rule(visit *a)
{
    const int64_t *axes;
    int n = nnc_attr_ints(&a->n, AT_axes, &axes);
    const nnc_attr at = nnc_av(AT_axes, n, axes);
    give(a, 0, nnc_build(a->g, OP_flip, 1, a->dy, 1, &at));
}

/* dy with step - 1 zeros after each element along axis, and as long as the elements from the first to beyond the last. */
static nnc_ref spread(visit *a, nnc_ref dy, int axis, int64_t step)
{
    nnc_type t = *nnc_typeof(a->g, dy);
    int64_t lo[NNC_MAX_RANK + 1] = {0}, hi[NNC_MAX_RANK + 1] = {0};
    if (step == 1 || t.dim[axis] == 1)
        return dy;
    const int64_t rows[] = {
        nnc_type_extents(&t, 0, axis + 1), 1, nnc_type_extents(&t, axis + 1, t.rank)};
    hi[1] = step - 1;
    nnc_ref r = zero_padded(a, nnc_reshape(a->g, dy, 3, rows), lo, hi);
    t.dim[axis] *= step;
    return nnc_reshape(a->g, r, t.rank, t.dim);
}

void slice_rule(visit *a)
{
    const int64_t *axes, *starts, *ends, *steps;
    const nnc_type x = *in_type(a, 0);
    int64_t lo[NNC_MAX_RANK] = {0}, hi[NNC_MAX_RANK] = {0}, zero[NNC_MAX_RANK] = {0};
    int n = nnc_attr_ints(&a->n, AT_axes, &axes), n_steps = nnc_attr_ints(&a->n, AT_steps, &steps);
    nnc_attr_ints(&a->n, AT_starts, &starts);
    nnc_attr_ints(&a->n, AT_ends, &ends);
    nnc_ref dy = a->dy[0];
    for (int i = 0; i < n && dy != NNC_NONE; i++) {
        int d = (int)axes[i];
        dy = spread(a, dy, d, n_steps ? steps[i] : 1);
        lo[d] = starts[i];
    }
    if (dy == NNC_NONE)
        return;
    nnc_type t = *nnc_typeof(a->g, dy);
    for (int d = 0; d < x.rank; d++) { /* zeros beyond the end of x go */
        t.dim[d] = nnc_min64(t.dim[d], x.dim[d] - lo[d]);
        hi[d] = x.dim[d] - lo[d] - t.dim[d];
    }
    give(a, 0, zero_padded(a, part(a, dy, zero, t.dim), lo, hi));
}

/* Along dimension d, an element of x was copied to all of the mirrored or repeated ones: the sum of these. */
static nnc_ref unpad_copies(visit *a, nnc_ref dy, int d, int64_t lo, int64_t extent, bool reflect)
{
    nnc_type t = *nnc_typeof(a->g, dy);
    NNC_FREED int64_t *from = nnc_malloc((size_t)t.dim[d] * sizeof *from);
    int64_t period = extent > 1 ? 2 * (extent - 1) : 1;
    if (!from) {
        no_memory(a->g);
        return NNC_NONE;
    }
    for (int64_t i = 0; i < t.dim[d]; i++) {
        int64_t at = i - lo, m = (at % period + period) % period;
        from[i] = !reflect ? nnc_max64(nnc_min64(at, extent - 1), 0) : m < extent ? m : period - m;
    }
    nnc_type line = nnc_type_make(DT_i64, 1, &t.dim[d]);
    int64_t dim[NNC_MAX_RANK] = {0};
    for (int k = 0; k < t.rank; k++)
        dim[k] = k == d ? t.dim[d] : 1;
    nnc_ref index = nnc_reshape(a->g, nnc_constant(a->g, &line, from), t.rank, dim);
    index = nnc_broadcast(a->g, index, t.rank, t.dim);
    t.dim[d] = extent;
    const nnc_attr at[] = {nnc_ai(AT_axis, d), nnc_aw(AT_reduction, "add")};
    const nnc_ref in[] = {full_like(a, &t, 0), index, dy};
    return nnc_build(a->g, OP_scatter, 3, in, 2, at);
}

void pad_rule(visit *a)
{
    const int64_t *pads;
    const nnc_type x = *in_type(a, 0);
    const nnc_attr *mode = nnc_attr_find(&a->n, AT_mode);
    nnc_attr_ints(&a->n, AT_pads, &pads);
    nnc_ref dy = a->dy[0];
    if (!mode || !mode->word || !strcmp(mode->word, "constant")) {
        give(a, 0, part(a, dy, pads, x.dim));
        return;
    }
    for (int d = 0; d < x.rank && dy != NNC_NONE; d++)
        if (pads[d] || pads[x.rank + d])
            dy = unpad_copies(a, dy, d, pads[d], x.dim[d], !strcmp(mode->word, "reflect"));
    give(a, 0, dy);
}

void concat_rule(visit *a)
{
    int axis = (int)nnc_attr_int(&a->n, AT_axis, 0);
    int64_t from[NNC_MAX_RANK] = {0};
    for (int k = 0; k < a->n.n_in; k++) {
        const nnc_type t = *in_type(a, k);
        if (wanted(a, k))
            give(a, k, part(a, a->dy[0], from, t.dim));
        from[axis] += t.dim[axis];
    }
}

void split_rule(visit *a)
{
    NNC_FREED nnc_ref *dy = nnc_malloc(a->n.n_out * sizeof *dy);
    if (!dy) {
        no_memory(a->g);
        return;
    }
    for (int r = 0; r < a->n.n_out; r++)
        dy[r] = result_grad(a, r);
    give(a, 0, nnc_concat(a->g, a->n.n_out, dy, nnc_attr_int(&a->n, AT_axis, 0)));
}

/* Adds `rows`, of which there is one for each index, to zeros of type t along its first dimension. */
static nnc_ref add_rows(visit *a, const nnc_type *t, nnc_ref index, nnc_ref rows)
{
    nnc_type i = *nnc_typeof(a->g, index);
    i.dim[i.rank] = 1;
    const nnc_attr add = nnc_aw(AT_reduction, "add");
    const nnc_ref in[] = {full_like(a, t, 0), nnc_reshape(a->g, index, i.rank + 1, i.dim), rows};
    return nnc_build(a->g, OP_scatter_nd, 3, in, 1, &add);
}

/* x is [before, axis, after] and y [before, index.., after]: scattered with the axis first. */
void gather_rule(visit *a)
{
    int axis = (int)nnc_attr_int(&a->n, AT_axis, 0);
    const nnc_type x = *in_type(a, 0), index = *in_type(a, 1), y = *nnc_typeof(a->g, a->n.out);
    int64_t perm[NNC_MAX_RANK], back[NNC_MAX_RANK] = {0};
    nnc_type t = x;
    int n = 0;
    if (index.rank + 1 > NNC_MAX_RANK) {
        refuse(a, " by an index of 8 dimensions");
        return;
    }
    for (int d = 0; d < index.rank; d++)
        perm[n++] = axis + d;
    for (int d = 0; d < y.rank; d++)
        if (d < axis || d >= axis + index.rank)
            perm[n++] = d;
    t.dim[0] = x.dim[axis];
    for (int d = 0, k = 1; d < x.rank; d++) {
        back[d] = d < axis ? d + 1 : d == axis ? 0 : d;
        if (d != axis)
            t.dim[k++] = x.dim[d];
    }
    t = nnc_type_make(x.dtype, x.rank, t.dim);
    nnc_ref rows = axis && y.rank ? nnc_transpose(a->g, a->dy[0], perm) : a->dy[0];
    nnc_ref sum = add_rows(a, &t, a->n.in[1], rows);
    give(a, 0, axis ? nnc_transpose(a->g, sum, back) : sum);
}

/* onnx/build_index.c -- operators by computed indices: gathers, scatters, sums along an axis, the largest elements. */
#include "onnx/internal.h"
#include <string.h>

bool ox_cumulative(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    int64_t at;
    int axis;
    if (!ox_const_int(b, 1, &at) || !ox_axis(b, at, ox_type(b, x)->rank, &axis))
        return false;
    nnc_attr a[3] = {nnc_ai(AT_axis, axis), nnc_ai(AT_exclusive, ox_int(b, "exclusive", 0) != 0),
        nnc_ai(AT_reverse, ox_int(b, "reverse", 0) != 0)};
    return ox_give(b, ox_op(b, b->row->op, 1, &x, 3, a));
}

bool ox_topk(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    int64_t k = ox_int(b, "k", 0);
    int axis;
    if (b->row->from >= 10 && !ox_const_int(b, 1, &k))
        return false;
    const nnc_type t = *ox_type(b, x);
    if (!ox_axis(b, ox_int(b, "axis", -1), t.rank, &axis))
        return false;
    if (k == 0) {
        nnc_type none = t;
        none.dim[axis] = 0;
        return ox_none(b, 0, t.dtype, t.rank, none.dim) && ox_none(b, 1, DT_i64, t.rank, none.dim);
    }
    if (k < 1 || k > t.dim[axis])
        return ox_wrong(b, "%lld of %lld elements", (long long)k, (long long)t.dim[axis]);
    nnc_attr a[3] = {
        nnc_ai(AT_axis, axis), nnc_ai(AT_k, k), nnc_ai(AT_largest, ox_int(b, "largest", 1) != 0)};
    nnc_ref r = ox_op(b, OP_topk, 1, &x, 3, a);
    return ox_give(b, r) && ox_set(b, 1, r + 1);
}

/* ---- gathers --------------------------------------------------------------------------------- */

/* Indices [..., 0] name all of x. They become [..., 1], the only row of x with one more dimension. False: they are others. */
static bool name_all(ox_build *b, nnc_ref *x, nnc_ref *index)
{
    nnc_type t = ox_shape_of(b, 1);
    if (b->in[0].state == OX_empty || t.rank == 0 || t.dim[t.rank - 1] != 0)
        return false;
    t.dim[t.rank - 1] = 1;
    if (ox_any_0(t.rank, t.dim))
        return false;
    *x = ox_add_dim(b, *x, 0);
    *index = ox_broadcast(b, ox_num(b, DT_i64, 0), t.rank, t.dim);
    return true;
}

bool ox_gather_nd(ox_build *b)
{
    nnc_ref v[2] = {ox_in(b, 0), ox_in(b, 1)};
    nnc_attr a = nnc_ai(AT_batch_dims, ox_int(b, "batch_dims", 0));
    if (ox_has_empty(b) && (a.i != 0 || !name_all(b, &v[0], &v[1])))
        return ox_empty_results(b);
    return ox_give(b, ox_op(b, OP_gather_nd, 2, v, 1, &a));
}

/* The first numbers of each sequence, as many as `lengths` says, the other way round. */
bool ox_reverse_sequence(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    int time, batch;
    if (t.rank < 2)
        return ox_wrong(b, "it expects two dimensions");
    if (!ox_axis(b, ox_int(b, "time_axis", 0), t.rank, &time) ||
        !ox_axis(b, ox_int(b, "batch_axis", 1), t.rank, &batch))
        return false;
    return ox_give(b, ox_reversed(b, x, ox_in(b, 1), time, batch));
}

/* ---- scatters -------------------------------------------------------------------------------- */

/* x with `from` where the mask is true: one number, or one for each true element in their order. */
static nnc_ref masked(ox_build *b, nnc_ref x, nnc_ref mask, nnc_ref from)
{
    const nnc_type t = *ox_type(b, x), m = *ox_type(b, mask), f = *ox_type(b, from);
    int64_t d[NNC_MAX_RANK], n = nnc_type_numel(&m), all = nnc_type_numel(&f);
    bool fits = m.rank <= t.rank && (all == 1 || (m.rank == t.rank && f.rank == 1));
    for (int i = 0; i < t.rank; i++) {
        d[i] = i < m.rank ? m.dim[i] : 1;
        fits = fits && (i >= m.rank || d[i] == t.dim[i]);
    }
    if (!fits)
        return ox_refuse(b, "what it writes depends on the number of true elements"), NNC_NONE;
    nnc_ref where = ox_reshape(b, mask, t.rank, d);
    if (all == 1)
        return ox_select(b, where, ox_reshape(b, from, 0, NULL), x);
    nnc_ref one = ox_to(b, ox_reshape(b, mask, 1, &n), DT_i64);
    nnc_ref at = ox_2n(b, OP_sub, ox_on_axis(b, OP_cumsum, 1, &one, 0), 1);
    at = ox_2n(b, OP_min, ox_2n(b, OP_max, at, 0), (double)all - 1);
    nnc_ref v[2] = {from, at};
    return ox_select(b, where, ox_reshape(b, ox_on_axis(b, OP_gather, 2, v, 0), t.rank, t.dim), x);
}

bool ox_scatter(ox_build *b)
{
    nnc_ref v[3] = {ox_in(b, 0), ox_in(b, 1), ox_in(b, 2)};
    const bool all =
        b->row->op == OP_scatter_nd && b->in[2].state != OX_empty && name_all(b, &v[0], &v[1]);
    if (ox_has_empty(b) && !all) { /* nothing is written */
        b->out[0] = b->in[0];
        return true;
    }
    nnc_attr a[2] = {nnc_aw(AT_reduction, ox_word(b, "reduction", "none"))};
    if (b->row->op == OP_scatter_nd && ox_dt(b, v[1]) == DT_bool)
        return ox_give(b, masked(b, v[0], v[1], v[2]));
    int axis, n = 1;
    if (b->row->op == OP_scatter) {
        if (!ox_axis(b, ox_int(b, "axis", 0), ox_type(b, v[0])->rank, &axis))
            return false;
        a[n++] = nnc_ai(AT_axis, axis);
    }
    nnc_ref r = ox_op(b, b->row->op, 3, v, n, a);
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    return ox_give(b, all ? ox_reshape(b, r, x.rank, x.dim) : r);
}

/* Writes `update` into a cache from a row on, which each batch has its own of; circular: after the last row comes the first. */
bool ox_tensor_scatter(ox_build *b)
{
    nnc_ref x = ox_in(b, 0), update = ox_in(b, 1);
    const nnc_type t = *ox_type(b, x), u = *ox_type(b, update);
    bool circular = !strcmp(ox_word(b, "mode", "linear"), "circular");
    int axis;
    if (!ox_axis(b, ox_int(b, "axis", -2), t.rank, &axis))
        return false;
    if (u.rank != t.rank || axis == 0)
        return ox_wrong(b, "its operands have shapes that do not fit");
    nnc_ref at = ox_along(b, ox_iota(b, DT_i64, u.dim[axis]), t.rank, axis);
    if (ox_has(b, 2))
        at = ox_2(b, OP_add, at, ox_along(b, ox_to(b, ox_in(b, 2), DT_i64), t.rank, 0));
    if (circular)
        at = ox_2n(b, OP_mod, at, (double)t.dim[axis]);
    nnc_ref v[3] = {x, ox_broadcast(b, at, u.rank, u.dim), update};
    return ox_give(b, ox_on_axis(b, OP_scatter, 3, v, axis));
}

/* The numbers of x at their places in a tensor of zeros, counted through all of it; a larger shape is filled up with zeros. */
bool ox_max_unpool(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    int64_t dim[NNC_MAX_RANK], want[NNC_MAX_RANK], pads[2 * NNC_MAX_RANK] = {0}, all = 1,
                                                            count = nnc_type_numel(&t);
    ox_window w = {.kernel = {1, 1, 1}};
    int n = t.rank;
    bool larger = false;
    if (!ox_read_window(b, &t, &w) ||
        (ox_has(b, 2) && !ox_const_ints(b, 2, NNC_MAX_RANK, &n, want)))
        return false;
    if (n != t.rank)
        return ox_wrong(b, "its result has %d dimensions, its input %d", n, t.rank);
    for (int i = 0; i < n; i++) {
        int s = i - 2;
        dim[i] = i < 2 ? t.dim[i]
                       : (t.dim[i] - 1) * w.strides[s] + w.kernel[s] - w.pads[s] - w.pads[w.n + s];
        pads[n + i] = ox_has(b, 2) ? want[i] - dim[i] : 0;
        larger = larger || pads[n + i] > 0;
        if (dim[i] < 1 || pads[n + i] < 0 || pads[n + i] > NNC_MAX_STEP ||
            !nnc_mul_ok(all, dim[i], &all))
            return ox_wrong(b, "its result does not fit its input in dimension %d", i);
    }
    nnc_ref zeros = ox_broadcast(b, ox_num(b, t.dtype, 0), 1, &all);
    nnc_ref v[3] = {zeros, ox_reshape(b, ox_in(b, 1), 1, &count), ox_reshape(b, x, 1, &count)};
    nnc_attr pad = nnc_av(AT_pads, 2 * n, pads);
    nnc_ref r = ox_reshape(b, ox_on_axis(b, OP_scatter, 3, v, 0), n, dim);
    return ox_give(b, larger ? ox_op(b, OP_pad, 1, &r, 1, &pad) : r);
}

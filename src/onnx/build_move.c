/* onnx/build_move.c -- operators that move elements. */
#include "onnx/internal.h"
#include <string.h>

bool ox_reshape_op(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t d[NNC_MAX_RANK], known = 1, all = nnc_type_numel(&x);
    int n, open = -1;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, d))
        return false;
    for (int i = 0; i < n; i++) {
        if (d[i] == 0 && !ox_int(b, "allowzero", 0) && i < x.rank)
            d[i] = x.dim[i];
        if (d[i] == -1 && open >= 0)
            return ox_wrong(b, "two dimensions of the shape are -1");
        if (d[i] == -1)
            open = i;
        else if (!nnc_mul_ok(known, d[i], &known))
            return ox_wrong(b, "the shape has more than 2^63 elements");
    }
    if (open >= 0 && (known < 1 || all % known))
        return ox_wrong(b, "no extent for -1 gives the shape %lld elements", (long long)all);
    if (open >= 0)
        d[open] = all / known;
    if (all == 0 && !ox_any_0(n, d))
        return ox_wrong(b, "the shape has elements, and its input none");
    return ox_give_shape(b, ox_in(b, 0), x.dtype, n, d);
}

bool ox_flatten(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t axis = ox_int(b, "axis", 1), d[2] = {1, 1};
    axis += axis < 0 ? x.rank : 0;
    if (axis < 0 || axis > x.rank)
        return ox_wrong(b, "axis %lld of a tensor with %d dimensions", (long long)axis, x.rank);
    for (int i = 0; i < x.rank; i++)
        d[i >= axis] *= x.dim[i];
    return ox_give_shape(b, ox_in(b, 0), x.dtype, 2, d);
}

bool ox_squeeze(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK];
    int n, m = 0;
    bool given, drop[NNC_MAX_RANK] = {false};
    if (!ox_axes(b, 1, x.rank, &n, axes, &given))
        return false;
    for (int i = 0; i < n; i++) {
        if (x.dim[axes[i]] != 1)
            return ox_wrong(b, "dimension %d has extent %lld; 1 is expected", (int)axes[i],
                (long long)x.dim[axes[i]]);
        drop[axes[i]] = true;
    }
    for (int i = 0; i < x.rank; i++)
        if (given ? !drop[i] : x.dim[i] != 1)
            d[m++] = x.dim[i];
    return ox_give_shape(b, ox_in(b, 0), x.dtype, m, d);
}

bool ox_unsqueeze(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK];
    int n, k = 0;
    bool given;
    if (ox_has(b, 1) ? !ox_const_ints(b, 1, NNC_MAX_RANK, &n, axes)
                     : !ox_ints(b, "axes", NNC_MAX_RANK, &n, axes))
        return b->refused ? false : ox_wrong(b, "it has no axes");
    if (x.rank + n > NNC_MAX_RANK)
        return ox_refuse(b, "results of more than %d dimensions are unsupported", NNC_MAX_RANK);
    int rank = x.rank + n;
    if (!ox_axes(b, 1, rank, &n, axes, &given))
        return false;
    for (int i = 0, a = 0; i < rank; i++) {
        bool added = a < n && axes[a] == i;
        d[i] = added || k == x.rank ? 1 : x.dim[k++];
        a += added;
    }
    return ox_give_shape(b, ox_in(b, 0), x.dtype, rank, d);
}

bool ox_transpose(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    int64_t perm[NNC_MAX_RANK];
    int n;
    if (!ox_ints(b, "perm", NNC_MAX_RANK, &n, perm))
        for (n = 0; n < x.rank; n++)
            perm[n] = x.rank - 1 - n;
    if (n != x.rank)
        return ox_wrong(b, "perm has %d numbers for %d dimensions", n, x.rank);
    return ox_give(b, ox_transposed(b, ox_in(b, 0), perm));
}

bool ox_concat(ox_build *b)
{
    nnc_ref *v = ARENA_NEW(&b->x->a, nnc_ref, b->n_in + 1);
    int n = 0, axis;
    if (!v)
        return ox_nomem(b->x);
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i].state == OX_here)
            v[n++] = b->in[i].ref;
    nnc_type first = n ? *ox_type(b, v[0]) : ox_shape_of(b, 0);
    if (!ox_axis(b, ox_int(b, "axis", 0), first.rank, &axis))
        return false;
    for (int i = 1; n == 0 && i < b->n_in; i++)
        first.dim[axis] += b->in[i].rank > axis ? b->in[i].dim[axis] : 0;
    if (n == 0)
        return ox_none(b, 0, first.dtype, first.rank, first.dim);
    return ox_give(b, ox_joined(b, n, v, axis));
}

/* The sizes of n parts: equal, the last ones may be smaller. */
static void equal_parts(int64_t extent, int n, int64_t *size)
{
    int64_t each = nnc_ceildiv(extent, n);
    for (int i = 0; i < n; i++, extent -= size[i - 1])
        size[i] = nnc_min64(each, extent);
}

/* Parts that have elements are results of one op. */
static bool split(ox_build *b, const nnc_type *x, int axis, int n, const int64_t *size)
{
    int64_t *some = ARENA_NEW(&b->x->a, int64_t, n), d[NNC_MAX_RANK], sum = 0;
    nnc_ref x0 = ox_in(b, 0), r = NNC_NONE;
    int k = 0;
    if (!some)
        return ox_nomem(b->x);
    for (int i = 0; i < n; i++) {
        sum += size[i];
        if (size[i])
            some[k++] = size[i];
    }
    if (sum != x->dim[axis])
        return ox_wrong(
            b, "its parts have %lld rows, its input %lld", (long long)sum, (long long)x->dim[axis]);
    bool empty = b->in[0].state == OX_empty;
    nnc_attr a[2] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, k, some)};
    if (!empty && (r = ox_op(b, OP_split, 1, &x0, 2, a)) == NNC_NONE)
        return false;
    memcpy(d, x->dim, sizeof d);
    for (int i = 0; i < b->n_out; i++) {
        d[axis] = size[i];
        size[i] && !empty ? ox_set(b, i, r++) : ox_none(b, i, x->dtype, x->rank, d);
    }
    return true;
}

bool ox_split(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int axis, n = b->n_out;
    int64_t *size = ARENA_NEW(&b->x->a, int64_t, OX_MAX_OPERANDS);
    if (!size)
        return ox_nomem(b->x);
    if (!ox_axis(b, ox_int(b, "axis", 0), x.rank, &axis))
        return false;
    bool given = ox_has(b, 1) || (b->opset < 13 && ox_has_attr(b, "split"));
    if (ox_has(b, 1) && !ox_const_ints(b, 1, OX_MAX_OPERANDS, &n, size))
        return false;
    if (given && !ox_has(b, 1))
        ox_ints(b, "split", OX_MAX_OPERANDS, &n, size);
    if (b->x->status || n < 1 || n < b->n_out)
        return ox_wrong(b, "%d parts for %d outputs", n, b->n_out);
    if (!given)
        equal_parts(x.dim[axis], n, size);
    for (int i = 0; i < n; i++)
        if (size[i] < 0 || size[i] > x.dim[axis])
            return ox_wrong(b, "a part has %lld rows", (long long)size[i]);
    return split(b, &x, axis, n, size);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A slice of all dimensions: result index i of dimension d is x's index start[d] + i step[d]. */
typedef struct cut {
    int64_t start[NNC_MAX_RANK], count[NNC_MAX_RANK], step[NNC_MAX_RANK];
} cut;

static void whole(cut *c, const nnc_type *x)
{
    for (int i = 0; i < x->rank; i++) {
        c->start[i] = 0;
        c->step[i] = 1;
        c->count[i] = x->dim[i];
    }
}

static nnc_ref apply(ox_build *b, nnc_ref x, const cut *c)
{
    const nnc_type t = *ox_type(b, x);
    int64_t axes[NNC_MAX_RANK] = {0}, at[NNC_MAX_RANK], end[NNC_MAX_RANK], step[NNC_MAX_RANK],
            back[NNC_MAX_RANK];
    int n = 0, n_back = 0;
    for (int i = 0; i < t.rank; i++) {
        int64_t s = c->step[i], last = c->start[i] + (c->count[i] - 1) * s;
        if (s < 0)
            back[n_back++] = i;
        if (c->start[i] == 0 && s == 1 && c->count[i] == t.dim[i])
            continue;
        axes[n] = i;
        at[n] = s < 0 ? last : c->start[i];
        end[n] = (s < 0 ? c->start[i] : last) + 1;
        step[n++] = s < 0 ? -s : s;
    }
    nnc_attr a[4] = {nnc_av(AT_axes, n, axes), nnc_av(AT_starts, n, at), nnc_av(AT_ends, n, end),
        nnc_av(AT_steps, n, step)};
    nnc_attr flip = nnc_av(AT_axes, n_back, back);
    if (n)
        x = ox_op(b, OP_slice, 1, &x, 4, a);
    return n_back ? ox_op(b, OP_flip, 1, &x, 1, &flip) : x;
}

/* One dimension by numpy's rules: ends are clamped, negative ones count from the end. The largest number is no end, also of negative
 * steps, as in ONNX Runtime. */
static void cut_one(cut *c, int axis, int64_t extent, int64_t start, int64_t end, int64_t step)
{
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? extent - 1 : extent;
    start = start < -extent ? lo : start < 0 ? start + extent : start;
    if (step < 0 && (end == INT32_MAX || end == INT64_MAX))
        end = INT64_MIN;
    end = end < -extent ? lo : end < 0 ? end + extent : end;
    start = nnc_max64(lo, nnc_min64(start, hi));
    end = nnc_max64(lo, nnc_min64(end, hi));
    if (step > extent) /* one element at most */
        step = extent;
    if (step < -extent)
        step = -extent;
    int64_t gap = step < 0 ? start - end : end - start;
    c->start[axis] = start;
    c->step[axis] = step;
    c->count[axis] = gap > 0 ? nnc_ceildiv(gap, step < 0 ? -step : step) : 0;
}

/* Input i, or the attribute in older opsets; n stays -1 where neither is there. */
static bool list_of(ox_build *b, int i, const char *name, int *n, int64_t *v)
{
    *n = -1;
    if (b->opset >= 10)
        return !ox_has(b, i) || ox_const_ints(b, i, NNC_MAX_RANK, n, v);
    int k;
    if (ox_ints(b, name, NNC_MAX_RANK, &k, v))
        *n = k;
    return !b->x->status;
}

bool ox_slice_op(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t starts[NNC_MAX_RANK], ends[NNC_MAX_RANK], axes[NNC_MAX_RANK], steps[NNC_MAX_RANK];
    int n, n_ends, n_axes, n_steps = -1;
    cut c;
    if (!list_of(b, 1, "starts", &n, starts) || !list_of(b, 2, "ends", &n_ends, ends) ||
        !list_of(b, 3, "axes", &n_axes, axes))
        return false;
    if (b->opset >= 10 && !list_of(b, 4, "", &n_steps, steps))
        return false;
    if (n < 0 || n_ends != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n) ||
        n > x.rank)
        return ox_wrong(b, "starts, ends, axes and steps do not name the same dimensions");
    whole(&c, &x);
    for (int i = 0; i < n; i++) {
        int axis;
        int64_t step = n_steps >= 0 ? steps[i] : 1;
        if (!ox_axis(b, n_axes >= 0 ? axes[i] : i, x.rank, &axis))
            return false;
        if (step == 0 || step == INT64_MIN)
            return ox_wrong(b, "a step is 0");
        cut_one(&c, axis, x.dim[axis], starts[i], ends[i], step);
    }
    if (ox_any_0(x.rank, c.count))
        return ox_none(b, 0, x.dtype, x.rank, c.count);
    return ox_give(b, apply(b, ox_in(b, 0), &c));
}

/* ---- pad ------------------------------------------------------------------------------------- */

/* The pads of all dimensions: begins, then ends. */
static bool read_pads(ox_build *b, int rank, int64_t pads[2 * NNC_MAX_RANK])
{
    int64_t v[2 * NNC_MAX_RANK], axes[NNC_MAX_RANK];
    int n, n_axes = rank;
    for (int i = 0; i < NNC_MAX_RANK; i++)
        axes[i] = i;
    if (b->opset < 11 ? !ox_ints(b, "pads", 2 * NNC_MAX_RANK, &n, v)
                      : !ox_const_ints(b, 1, 2 * NNC_MAX_RANK, &n, v))
        return b->refused ? false : ox_wrong(b, "it has no pads");
    if (ox_has(b, 3) && !ox_const_ints(b, 3, NNC_MAX_RANK, &n_axes, axes))
        return false;
    if (n != 2 * n_axes)
        return ox_wrong(b, "%d pads for %d dimensions", n, n_axes);
    for (int i = 0; i < n_axes; i++) {
        int axis;
        if (!ox_axis(b, axes[i], rank, &axis))
            return false;
        for (int side = 0; side < 2; side++) {
            int64_t p = v[side * n_axes + i];
            if (p < -NNC_MAX_STEP || p > NNC_MAX_STEP)
                return ox_wrong(b, "a pad is out of range");
            pads[axis + side * rank] = p;
        }
    }
    return true;
}

/* The result of an operand without elements, which has the padding's value, or no elements either; so has one from which all is cut off. */
static bool pad_none(
    ox_build *b, const nnc_type *t, const int64_t *pads, const char *mode, nnc_ref value)
{
    int64_t d[NNC_MAX_RANK];
    for (int i = 0; i < t->rank; i++)
        if ((d[i] = t->dim[i] + pads[i] + pads[i + t->rank]) < 0)
            return ox_wrong(b, "more is cut off than there is");
    if (ox_any_0(t->rank, d))
        return ox_none(b, 0, t->dtype, t->rank, d);
    if (strcmp(mode, "constant") != 0)
        return ox_wrong(b, "%s of a tensor without elements", mode);
    return ox_give(b, ox_broadcast(b, value, t->rank, d));
}

static bool pads_to_none(const nnc_type *t, const int64_t *pads)
{
    bool none = false;
    for (int i = 0; i < t->rank; i++)
        none |= t->dim[i] == 0 || t->dim[i] + pads[i] + pads[i + t->rank] == 0;
    return none;
}

/* Cuts off what negative pads take away, and makes them 0. */
static bool crop(ox_build *b, nnc_ref *x, int64_t *pads)
{
    const nnc_type t = *ox_type(b, *x);
    cut c;
    whole(&c, &t);
    for (int i = 0; i < t.rank; i++) {
        int64_t *lo = &pads[i], *hi = &pads[i + t.rank];
        c.start[i] = *lo < 0 ? -*lo : 0;
        c.count[i] -= c.start[i] + (*hi < 0 ? -*hi : 0);
        if (c.count[i] < 1)
            return ox_refuse(b, "results without elements are unsupported");
        *lo = nnc_max64(*lo, 0);
        *hi = nnc_max64(*hi, 0);
    }
    *x = apply(b, *x, &c);
    return *x != NNC_NONE;
}

/* The end before the begin, and the begin after the end. */
static bool wrap(ox_build *b, nnc_ref x, const int64_t *pads)
{
    const nnc_type t = *ox_type(b, x);
    for (int i = 0; i < t.rank; i++) {
        int64_t lo = pads[i], hi = pads[i + t.rank], n = t.dim[i];
        nnc_ref v[3];
        int k = 0;
        if (lo > n || hi > n)
            return ox_refuse(b, "wrapping around more than once is unsupported");
        if (lo)
            v[k++] = ox_slice(b, x, i, n - lo, n);
        v[k++] = x;
        if (hi)
            v[k++] = ox_slice(b, x, i, 0, hi);
        x = ox_joined(b, k, v, i);
    }
    return ox_give(b, x);
}

/* Result 0: input 0 with these pads. fill: input 2, a value known only at run time, fills them; otherwise `value`. */
static bool give_padded(ox_build *b, int64_t *pads, const char *mode, double value, bool fill)
{
    const nnc_type t = ox_shape_of(b, 0);
    const bool constant = !strcmp(mode, "constant");
    nnc_ref x = ox_in(b, 0), v = fill ? ox_reshape(b, ox_in(b, 2), 0, NULL) : NNC_NONE;
    if (pads_to_none(&t, pads))
        return pad_none(b, &t, pads, mode, fill ? v : ox_num(b, t.dtype, value));
    if (!crop(b, &x, pads))
        return false;
    if (!strcmp(mode, "wrap"))
        return wrap(b, x, pads);
    nnc_attr a[3] = {
        nnc_av(AT_pads, 2 * t.rank, pads), nnc_aw(AT_mode, mode), nnc_af(AT_value, value)};
    if (!fill)
        return ox_give(b, ox_op(b, OP_pad, 1, &x, constant ? 3 : 2, a));
    const nnc_type from = *ox_type(b, x);
    nnc_ref in = ox_broadcast(b, ox_num(b, DT_bool, 1), t.rank, from.dim);
    in = ox_op(b, OP_pad, 1, &in, 3, a);
    return ox_give(b, ox_select(b, in, ox_op(b, OP_pad, 1, &x, 3, a), v));
}

/* Extents of some dimensions: larger ones are cut, smaller ones padded with 0, on both sides; the odd one at the end. */
bool ox_center_crop_pad(ox_build *b)
{
    const nnc_type t = ox_shape_of(b, 0);
    int64_t want[NNC_MAX_RANK], axes[NNC_MAX_RANK], pads[2 * NNC_MAX_RANK] = {0};
    int n, n_axes, axis;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, want))
        return false;
    if (!ox_ints(b, "axes", NNC_MAX_RANK, &n_axes, axes))
        for (n_axes = 0; n_axes < t.rank; n_axes++)
            axes[n_axes] = n_axes;
    if (b->x->status || n != n_axes)
        return ox_wrong(b, "%d extents for %d dimensions", n, n_axes);
    for (int i = 0; i < n; i++) {
        if (!ox_axis(b, axes[i], t.rank, &axis))
            return false;
        if (want[i] < 0 || want[i] - t.dim[axis] > NNC_MAX_STEP)
            return ox_wrong(b, "an extent is %lld", (long long)want[i]);
        const int64_t more = want[i] - t.dim[axis];
        pads[axis] = more / 2;
        pads[axis + t.rank] = more - more / 2;
    }
    return give_padded(b, pads, "constant", 0, false);
}

bool ox_pad(ox_build *b)
{
    int n = 1;
    int64_t pads[2 * NNC_MAX_RANK] = {0};
    double value = ox_float(b, "value", 0);
    const char *mode = ox_word(b, "mode", "constant");
    const bool constant = !strcmp(mode, "constant"), fill = constant && ox_is_data(b, 2);
    if (ox_has(b, 2) && !fill && constant && !ox_const_floats(b, 2, 1, &n, &value))
        return false;
    return read_pads(b, ox_shape_of(b, 0).rank, pads) && give_padded(b, pads, mode, value, fill);
}

/* ---- the rest -------------------------------------------------------------------------------- */

bool ox_gather(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0), at = ox_shape_of(b, 1);
    int axis;
    if (ox_has_empty(b) && b->row->op == OP_gather_elements) /* its result has the indices' shape */
        return b->in[1].state == OX_empty ? ox_none(b, 0, x.dtype, at.rank, at.dim)
                                          : ox_wrong(b, "indices of a tensor without elements");
    if (!ox_axis(b, ox_int(b, "axis", 0), x.rank, &axis))
        return false;
    nnc_ref v[2] = {ox_in(b, 0), ox_in(b, 1)};
    return ox_give(b, ox_on_axis(b, b->row->op, 2, v, axis));
}

bool ox_expand(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t d[NNC_MAX_RANK], out[NNC_MAX_RANK];
    int n;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, d))
        return false;
    int rank = n > x.rank ? n : x.rank;
    for (int i = 1; i <= rank; i++) { /* from the end */
        int64_t want = i <= n ? d[n - i] : 1, is = i <= x.rank ? x.dim[x.rank - i] : 1;
        out[rank - i] = want == 1 ? is : want;
        if (want != is && want != 1 && is != 1)
            return ox_wrong(b, "it expands %lld elements to %lld", (long long)is, (long long)want);
    }
    if (ox_any_0(rank, out))
        return ox_none(b, 0, x.dtype, rank, out);
    return ox_give(b, ox_broadcast(b, ox_in(b, 0), rank, out));
}

/* r times along axis i: [outer, inner] as [outer, 1, inner], broadcast to [outer, r, inner]. */
bool ox_tile(ox_build *b)
{
    nnc_type t = ox_shape_of(b, 0);
    int64_t r[NNC_MAX_RANK], all[NNC_MAX_RANK];
    int n;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, r))
        return false;
    if (n != t.rank)
        return ox_wrong(b, "%d repeats for %d dimensions", n, t.rank);
    for (int i = 0; i < n; i++)
        if (r[i] < 0 || !nnc_mul_ok(t.dim[i], r[i], &all[i]))
            return ox_wrong(b, r[i] < 0 ? "its repeats are negative" : "the result is too large");
    if (ox_any_0(n, all))
        return ox_none(b, 0, t.dtype, n, all);
    nnc_ref x = ox_in(b, 0);
    for (int i = 0; i < n; i++) {
        int64_t d[3] = {1, 1, 1};
        if (r[i] == 1)
            continue;
        for (int k = 0; k < n; k++)
            d[k < i ? 0 : 2] *= t.dim[k];
        x = ox_reshape(b, x, 3, d);
        d[1] = r[i];
        t.dim[i] = all[i];
        x = ox_reshape(b, ox_broadcast(b, x, 3, d), n, t.dim);
    }
    return ox_give(b, x);
}

/* [N, C, H, W] with blocks of s x s: reshape to `split`, permute, reshape to `out`. */
static bool blocks(ox_build *b, const int64_t split[6], const int64_t perm[6], const int64_t out[4])
{
    nnc_ref x = ox_reshape(b, ox_in(b, 0), 6, split);
    return ox_give(b, ox_reshape(b, ox_transposed(b, x, perm), 4, out));
}

static bool block_size(ox_build *b, const nnc_type *x, int64_t *s)
{
    *s = ox_int(b, "blocksize", 0);
    return (x->rank == 4 && *s >= 1 && *s < 65536) ||
           ox_wrong(b, "it expects four dimensions and a blocksize, found %d and %lld", x->rank,
               (long long)*s);
}

bool ox_depth_to_space(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    const int64_t *d = x.dim;
    int64_t s;
    bool crd = !strcmp(ox_word(b, "mode", "DCR"), "CRD");
    if (!block_size(b, &x, &s))
        return false;
    int64_t c = d[1] / (s * s), dcr[6] = {d[0], s, s, c, d[2], d[3]},
            split[6] = {d[0], c, s, s, d[2], d[3]}, out[4] = {d[0], c, d[2] * s, d[3] * s};
    return blocks(b, crd ? split : dcr,
        crd ? (const int64_t[]){0, 1, 4, 2, 5, 3} : (const int64_t[]){0, 3, 4, 1, 5, 2}, out);
}

bool ox_space_to_depth(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    const int64_t *d = x.dim;
    int64_t s;
    if (!block_size(b, &x, &s))
        return false;
    const int64_t split[6] = {d[0], d[1], d[2] / s, s, d[3] / s, s},
                  out[4] = {d[0], d[1] * s * s, d[2] / s, d[3] / s};
    bool crd = !strcmp(ox_word(b, "mode", "DCR"), "CRD");
    return blocks(b, split,
        crd ? (const int64_t[]){0, 1, 3, 5, 2, 4} : (const int64_t[]){0, 3, 5, 1, 2, 4}, out);
}

bool ox_trilu(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x);
    int64_t k = 0;
    int n;
    if (ox_has(b, 1) && !ox_const_ints(b, 1, 1, &n, &k))
        return false;
    if (t.rank < 2)
        return ox_wrong(b, "it expects two dimensions");
    int64_t rows = t.dim[t.rank - 2], cols = t.dim[t.rank - 1];
    nnc_ref row = ox_along(b, ox_iota(b, DT_i64, rows), 2, 0),
            col = ox_along(b, ox_iota(b, DT_i64, cols), 2, 1);
    k = nnc_max64(-rows, nnc_min64(k, cols));
    nnc_ref from = ox_2(b, OP_add, row, ox_num(b, DT_i64, (double)k));
    nnc_ref keep = ox_2(b, ox_int(b, "upper", 1) ? OP_ge : OP_le, col, from);
    nnc_ref zero = ox_num(b, t.dtype, 0);
    return ox_give(b, ox_select(b, keep, x, zero));
}

bool ox_one_hot(ox_build *b)
{
    const nnc_type t = *ox_type(b, ox_in(b, 0));
    double depth;
    int axis;
    if (!ox_const_float(b, 1, &depth) || !ox_axis(b, ox_int(b, "axis", -1), t.rank + 1, &axis))
        return false;
    if (!(depth >= 1 && depth < 1e9))
        return ox_wrong(b, "its depth %g is out of range", depth);
    nnc_ref index = ox_to(b, ox_in(b, 0), DT_i64), values = ox_in(b, 2);
    nnc_ref wrapped =
        ox_select(b, ox_2n(b, OP_lt, index, 0), ox_2n(b, OP_add, index, depth), index);
    nnc_ref hit = ox_2(b, OP_eq, ox_add_dim(b, wrapped, axis),
        ox_along(b, ox_iota(b, DT_i64, (int64_t)depth), t.rank + 1, axis));
    nnc_ref off = ox_reshape(b, ox_slice(b, values, 0, 0, 1), 0, NULL),
            on = ox_reshape(b, ox_slice(b, values, 0, 1, 2), 0, NULL);
    return ox_give(b, ox_select(b, hit, on, off));
}

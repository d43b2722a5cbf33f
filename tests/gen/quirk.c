/* tests/gen/quirk.c -- what models hold that nobody would write by intent, and what rewrites of graphs therefore meet. Constants
 * change nothing or decide a bound, the next op undoes one, the same thing comes twice. Windows and axes have one element; sums
 * surround contractions of one row. */
#include "gen/internal.h"

#include <math.h>
#include <string.h>

/* After a failure of the builder, which the graph's status reports, there are no values. */
static const nnc_type *type_of(const gen *m, nnc_ref r)
{
    static const nnc_type none = {0};
    return r == NNC_NONE ? &none : nnc_typeof(m->g, r);
}

static nnc_dtype dtype_of(const gen *m, nnc_ref r)
{
    return (nnc_dtype)type_of(m, r)->dtype;
}

/* ---- constants -------------------------------------------------------------------------------- */

/* v as a scalar, as one of extents 1, or as a scalar that is broadcast. */
static nnc_ref constant(gen *m, nnc_ref r, double v)
{
    const nnc_type t = *type_of(m, r);
    nnc_dtype d = (nnc_dtype)t.dtype;
    nnc_ref c = nnc_scalar(m->g, d, v);
    int64_t one[NNC_MAX_RANK];
    for (int i = 0; i < NNC_MAX_RANK; i++)
        one[i] = 1;
    switch (gen_draw(m, 6)) {
    case 0: return nnc_broadcast(m->g, c, t.rank, t.dim);
    case 1: return nnc_reshape(m->g, c, t.rank, one);
    default: return c;
    }
}

static double number(gen *m, nnc_dtype d)
{
    static const double any[] = {0, 1, 2, 4, 3, 0.5, -0.0, -1, -2, 0.25, 6, -0.375};
    static const double whole[] = {0, 1, 2, 4, 3, 6};
    if (nnc_is_float(d))
        return any[gen_draw(m, NNC_COUNT(any))];
    return nnc_dtype_kind(d) == NNC_INT && gen_chance(m, 20) ? -1
                                                             : whole[gen_draw(m, NNC_COUNT(whole))];
}

/* Elementwise with a constant, on either side. */
static void with_constant(gen *m, entry e)
{
    static const nnc_op ops[] = {
        OP_add, OP_sub, OP_mul, OP_div, OP_max, OP_min, OP_pow, OP_prelu, OP_max, OP_mul};
    nnc_dtype d = dtype_of(m, e.r);
    nnc_op op = ops[gen_draw(m, NNC_COUNT(ops))];
    double v = number(m, d), mag = e.mag + fabs(v);
    bool first = gen_chance(m, 30);
    if (op == OP_div)
        v = v == 0 ? 2 : v, first = false;
    if (op == OP_pow) {
        v = gen_chance(m, 50) ? 2 : 1;
        first = false;
    }
    if (op == OP_prelu) {
        first = false;
        v = nnc_is_float(d) ? v : 1;
    }
    if ((op == OP_pow || op == OP_prelu) && !nnc_is_float(d))
        op = OP_mul;
    if (op == OP_mul || op == OP_prelu)
        mag = e.mag * fmax(1, fabs(v));
    if (op == OP_div)
        mag = e.mag / fmin(1, fabs(v));
    if (op == OP_pow)
        mag = fmax(e.mag, e.mag * e.mag);
    nnc_ref c = constant(m, e.r, v), in[2] = {first ? c : e.r, first ? e.r : c};
    int64_t one[NNC_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1};
    if (gen_chance(m, 15) && type_of(m, e.r)->rank < 5 && op != OP_prelu) /* one rank more */
        in[!first] = nnc_reshape(m->g, nnc_scalar(m->g, d, v), type_of(m, e.r)->rank + 1, one);
    gen_keep(m, nnc_build(m->g, op, 2, in, 0, NULL), mag, false);
}

/* ---- chains that are less than they look --------------------------------------------------------- */

static nnc_ref bound(gen *m, nnc_ref x)
{
    /* + 0: no bound of -0, since which zero a maximum returns is left open */
    double v = number(m, dtype_of(m, x)) + 0.0, w = number(m, dtype_of(m, x)) + 0.0;
    nnc_attr at[2];
    int n = 0;
    switch (gen_draw(m, 5)) {
    case 0: return nnc_build1(m->g, OP_relu, x);
    case 1: return nnc_build1(m->g, OP_relu6, x);
    case 2: return nnc_build2(m->g, OP_max, x, constant(m, x, v));
    case 3: return nnc_build2(m->g, OP_min, x, constant(m, x, v));
    default:
        if (gen_chance(m, 70))
            at[n++] = nnc_af(AT_lo, fmin(v, w));
        if (gen_chance(m, 70))
            at[n++] = nnc_af(AT_hi, fmax(v, w));
        return nnc_build(m->g, OP_clip, 1, &x, n, at);
    }
}

static void bounds(gen *m, entry e)
{
    int64_t n = gen_between(m, 1, 3);
    for (int64_t i = 0; i < n; i++)
        e.r = bound(m, e.r);
    gen_keep(m, e.r, fmax(e.mag, 6), false);
}

/* f(f(x)), f(-x), x + -y and the like. */
static void undone(gen *m, entry e)
{
    static const nnc_op twice[] = {OP_neg, OP_abs, OP_relu, OP_identity, OP_dropout};
    static const nnc_op even[] = {OP_abs, OP_square, OP_neg};
    nnc_op op = twice[gen_draw(m, NNC_COUNT(twice))];
    nnc_ref n, in[2];
    switch (gen_draw(m, 3)) {
    case 0: gen_keep(m, nnc_build1(m->g, op, nnc_build1(m->g, op, e.r)), e.mag, false); return;
    case 1:
        n = nnc_build1(m->g, OP_neg, e.r);
        op = even[gen_draw(m, NNC_COUNT(even))];
        gen_keep(m, nnc_build1(m->g, op, n), e.mag * fmax(1, e.mag), false);
        return;
    default:
        n = nnc_build1(m->g, OP_neg, e.r);
        in[0] = gen_chance(m, 50) ? n : constant(m, e.r, number(m, dtype_of(m, e.r)));
        in[1] = gen_chance(m, 50) ? n : e.r;
        op = gen_chance(m, 40) ? OP_mul : gen_chance(m, 50) ? OP_add : OP_sub;
        gen_keep(m, nnc_build2(m->g, op, in[0], in[1]),
            op == OP_mul ? e.mag * fmax(6, e.mag) : 2 * e.mag + 6, false);
    }
}

static void casts(gen *m, entry e)
{
    nnc_dtype from = dtype_of(m, e.r), to = from;
    for (int tries = 0; tries < 20; tries++) {
        nnc_dtype d = (nnc_dtype)gen_draw(m, DT__COUNT);
        bool wider = nnc_is_float(from)
                         ? nnc_is_float(d) && nnc_dtype_size(d) > nnc_dtype_size(from)
                         : !nnc_is_float(d) && d != DT_bool;
        if (wider && m->o.dtypes >> d & 1)
            to = d;
    }
    nnc_ref wide = nnc_cast(m->g, e.r, to);
    gen_keep(m, nnc_cast(m->g, wide, from), e.mag, e.exact);
}

/* The same operand twice, or a node that stands already, once more. */
static void twice(gen *m, entry e)
{
    static const nnc_op ops[] = {OP_add, OP_sub, OP_mul, OP_max, OP_min};
    const nnc_node *n = nnc_def(m->g, e.r);
    nnc_ref in[3] = {e.r, e.r, e.r};
    if (gen_chance(m, 40) && nnc_op_class((nnc_op)n->op) != CL_leaf && n->n_out == 1) {
        nnc_node c = *n;
        bool swap = c.n_in == 2 && nnc_ops[c.op].flags & OF_comm && gen_chance(m, 50);
        nnc_ref two[2] = {c.in[c.n_in > 1], c.in[0]};
        gen_keep(m, nnc_build(m->g, (nnc_op)c.op, c.n_in, swap ? two : c.in, c.n_attr, c.attr),
            e.mag, e.exact);
    } else if (gen_chance(m, 20) && type_of(m, e.r)->rank) {
        nnc_attr at = nnc_ai(AT_axis, gen_draw(m, type_of(m, e.r)->rank));
        if (2 * nnc_type_numel(type_of(m, e.r)) <= m->o.max_elements)
            gen_keep(m, nnc_build(m->g, OP_concat, 2, in, 1, &at), e.mag, e.exact);
    } else if (gen_chance(m, 20)) {
        in[0] = nnc_build2(m->g, OP_gt, e.r, constant(m, e.r, 1));
        gen_keep(m, nnc_build(m->g, OP_select, 3, in, 0, NULL), e.mag, false);
    } else {
        nnc_op op = ops[gen_draw(m, NNC_COUNT(ops))];
        gen_keep(m, nnc_build(m->g, op, 2, in, 0, NULL), e.mag * fmax(2, e.mag), false);
    }
}

/* ---- movement ------------------------------------------------------------------------------------ */

static nnc_ref turned(gen *m, nnc_ref x, bool last_two)
{
    int rank = type_of(m, x)->rank;
    int64_t perm[NNC_MAX_RANK];
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    for (int d = rank - 1; d > 0 && !last_two; d--) {
        int at = (int)gen_draw(m, (uint32_t)d + 1);
        int64_t p = perm[d];
        perm[d] = perm[at];
        perm[at] = p;
    }
    if (last_two)
        perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
    return nnc_transpose(m->g, x, perm);
}

static nnc_ref flipped(gen *m, nnc_ref x, int64_t axis)
{
    nnc_attr at = nnc_av(AT_axes, 1, &axis);
    return nnc_build(m->g, OP_flip, 1, &x, 1, &at);
}

/* A move that moves nothing. */
static nnc_ref still(gen *m, nnc_ref x)
{
    const nnc_type t = *type_of(m, x);
    int64_t zero[2 * NNC_MAX_RANK] = {0}, axis = gen_draw(m, t.rank), end = t.dim[axis];
    nnc_attr at[3] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, 1, &end)};
    switch (gen_draw(m, 5)) {
    case 0: at[0] = nnc_av(AT_pads, 2 * t.rank, zero); return nnc_build(m->g, OP_pad, 1, &x, 1, at);
    case 1:
        at[0] = nnc_av(AT_axes, 1, &axis);
        at[1] = nnc_av(AT_starts, 1, zero);
        at[2] = nnc_av(AT_ends, 1, &end);
        return nnc_build(m->g, OP_slice, 1, &x, 3, at);
    case 2: return nnc_build(m->g, OP_concat, 1, &x, 1, at);
    case 3: return nnc_build(m->g, OP_split, 1, &x, 2, at);
    default: return nnc_broadcast(m->g, x, t.rank, t.dim);
    }
}

static void moves(gen *m, entry e)
{
    nnc_type t = *type_of(m, e.r);
    int64_t all = nnc_type_numel(&t), axis;
    if (!t.rank)
        return;
    axis = gen_draw(m, t.rank);
    switch (gen_draw(m, 5)) {
    case 0: e.r = turned(m, turned(m, e.r, false), false); break;
    case 1: e.r = nnc_reshape(m->g, nnc_reshape(m->g, e.r, 1, &all), t.rank, t.dim); break;
    case 2: e.r = flipped(m, flipped(m, e.r, axis), gen_chance(m, 70) ? axis : t.rank - 1); break;
    case 3: e.r = nnc_relayout(m->g, turned(m, e.r, false), t.order); break;
    default: e.r = still(m, e.r);
    }
    gen_keep(m, e.r, e.mag, e.exact);
}

/* Axes and windows of one element, and maxima of maxima. */
static void small_reductions(gen *m, entry e)
{
    nnc_type t = *type_of(m, e.r);
    int64_t one[3] = {1, 1, 1}, stride[3], axes[2];
    if (!t.rank || t.dtype == DT_bool)
        return;
    if (t.rank >= 3 && t.rank <= 5 && gen_chance(m, 40)) {
        for (int d = 0; d < 3; d++)
            stride[d] = gen_between(m, 1, 2);
        nnc_attr at[2] = {nnc_av(AT_kernel, t.rank - 2, one),
            nnc_av(AT_strides, t.rank - 2, gen_chance(m, 60) ? one : stride)};
        nnc_op op = nnc_is_float((nnc_dtype)t.dtype) && gen_chance(m, 50) ? OP_avgpool : OP_maxpool;
        gen_keep(m, nnc_build(m->g, op, 1, &e.r, 2, at), e.mag, e.exact);
        return;
    }
    nnc_op op = gen_chance(m, 50) ? OP_reduce_max : OP_reduce_min;
    axes[0] = gen_draw(m, t.rank);
    nnc_ref r = nnc_reduce(m->g, op, e.r, 1, axes, true);
    axes[1] = gen_draw(m, t.rank);
    op = gen_chance(m, 60) ? op : OP_reduce_max;
    bool both = axes[0] < axes[1] && gen_chance(m, 50);
    r = nnc_reduce(m->g, op, r, both ? 2 : 1, both ? axes : axes + 1, gen_chance(m, 70));
    gen_keep(m, r, e.mag, e.exact);
}

/* f, max pooling, f. */
static void around_pool(gen *m, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    int64_t k[3], s[3];
    static const nnc_op f[] = {OP_relu, OP_floor, OP_neg, OP_relu6, OP_abs, OP_tanh, OP_sigmoid};
    if (t.rank < 3 || t.rank > 5 || !nnc_is_float((nnc_dtype)t.dtype))
        return;
    for (int d = 0; d < t.rank - 2; d++) {
        k[d] = gen_between(m, 1, nnc_min64(3, t.dim[d + 2]));
        s[d] = gen_between(m, 1, k[d]);
    }
    for (int i = 0; i < 2; i++) {
        nnc_op op = f[gen_draw(m, NNC_COUNT(f))];
        if (op == OP_floor && !m->o.wild && !e.exact)
            op = OP_relu;
        if (gen_chance(m, 60))
            e.r = gen_chance(m, 50) ? bound(m, e.r) : nnc_build1(m->g, op, e.r);
        e.exact = false;
        nnc_attr at[2] = {nnc_av(AT_kernel, t.rank - 2, k), nnc_av(AT_strides, t.rank - 2, s)};
        if (i == 0)
            e.r = nnc_build(m->g, OP_maxpool, 1, &e.r, 2, at);
    }
    gen_keep(m, e.r, fmax(e.mag, 6), false);
}

/* ---- contractions -------------------------------------------------------------------------------- */

/* c(x), plus a bias, a vector or a tensor of its shape, and an activation. */
static void residual(gen *m, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    nnc_dtype d = (nnc_dtype)t.dtype;
    static const nnc_op after[] = {OP_relu, OP_tanh, OP_relu6, OP_silu};
    if (!nnc_is_float(d) || t.rank < 2 || t.rank > 5 || d == DT_f16)
        return;
    bool conv = t.rank > 2;
    int64_t c = conv ? t.dim[1] : t.dim[t.rank - 1], dim[5] = {c, c, 1, 1, 1};
    nnc_ref in[3] = {e.r, gen_weight(m, d, t.rank, dim, 1, 0), gen_weight(m, d, 1, &c, 1, 0)};
    nnc_ref y = nnc_build(m->g, conv ? OP_conv : OP_linear, gen_chance(m, 60) ? 3 : 2, in, 0, NULL);
    nnc_ref other = gen_chance(m, 60) ? e.r : nnc_build1(m->g, OP_tanh, e.r);
    if (gen_chance(m, 25)) {
        other = gen_weight(m, d, 1, &c, 1, 0);
        if (gen_chance(m, 40))
            other = nnc_build1(m->g, OP_tanh, other);
        if (conv)
            other = nnc_reshape(m->g, other, t.rank - 1, (int64_t[]){c, 1, 1, 1});
    }
    y = gen_chance(m, 50) ? nnc_build2(m->g, OP_add, y, other) : nnc_build2(m->g, OP_add, other, y);
    if (gen_chance(m, 30))
        y = nnc_build2(m->g, OP_add, y, other);
    if (gen_chance(m, 60))
        y = gen_chance(m, 30) ? bound(m, y) : nnc_build1(m->g, after[gen_draw(m, 4)], y);
    gen_keep(m, y, e.mag * (double)c + 2 * e.mag + 6, false);
}

/* Weights and a bias that are computed at run time, an operand that is turned first. */
static void at_run_time(gen *m, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    for (int tries = 0; tries < 12 && t.rank >= 2 && nnc_is_float((nnc_dtype)t.dtype); tries++) {
        entry w = *gen_pick(m);
        const nnc_type *u = type_of(m, w.r);
        int64_t k = t.dim[t.rank - 1];
        double mag = e.mag * w.mag * (double)k;
        if (u->dtype != t.dtype || u->rank != 2 || (t.dtype == DT_f16 && mag > 3e4))
            continue;
        nnc_ref x = e.r, in[2] = {x, w.r};
        if (u->dim[1] == k && nnc_type_numel(&t) / k * u->dim[0] <= m->o.max_elements) {
            gen_keep(m, nnc_build2(m->g, OP_linear, x, w.r), mag, false);
            return;
        }
        if (u->dim[0] != k || nnc_type_numel(&t) / k * u->dim[1] > m->o.max_elements)
            continue;
        in[1] = turned(m, w.r, true);
        nnc_attr at = nnc_ai(AT_transpose_b, 1);
        gen_keep(m, nnc_build(m->g, OP_matmul, 2, in, 1, &at), mag, false);
        return;
    }
}

void gen_quirk(gen *m)
{
    static void (*const kinds[])(gen *, entry) = {with_constant, with_constant, bounds, undone,
        casts, twice, moves, small_reductions, around_pool, residual, residual, at_run_time};
    entry e = *gen_pick(m);
    if (dtype_of(m, e.r) != DT_bool)
        kinds[gen_draw(m, NNC_COUNT(kinds))](m, e);
}

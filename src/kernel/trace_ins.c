/* kernel/trace_ins.c -- instructions of a kernel being built: elements of operands, scalar ops, reductions, stores. */
#include "kernel/trace.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- one instruction ---- */

/* Appends an instruction to t->ins; NULL: out of memory. */
static nx_ins *append_ins(nx *t, nnc_kop op, nnc_dtype d, nx_place at)
{
    if ((size_t)t->n_ins >=
        t->cap_ins) { /* not in the arena, which zeroes memory: traces are frequent and short */
        size_t cap = t->cap_ins ? 2 * t->cap_ins : 64 + 4 * (size_t)t->set->n;
        nx_ins *p = nnc_realloc(t->ins, cap * sizeof *p);
        t->oom |= !p;
        t->cap_ins = p ? cap : t->cap_ins;
        t->ins = p ? p : t->ins;
    }
    if (t->n_ins >= NNC_KMAX_INS) {
        t->limit = NX_TOO_LONG;
        t->oom = true;
    }
    if (t->oom)
        return NULL;
    nx_ins *q = &t->ins[t->n_ins++];
    memset(&q->k, 0, sizeof q->k);
    q->k.op = (uint8_t)op;
    q->k.dtype = (uint8_t)d;
    q->k.buf = -1;
    q->k.arg[0] = q->k.arg[1] = q->k.arg[2] = -1;
    q->k.lo = 1; /* no range computed */
    q->at = at;
    q->last_first = q->load = q->expensive = false;
    q->part = -1;
    q->v = NNC_NONE;
    q->guard = -1;
    q->idx = NULL;
    return q;
}

static int32_t last(const nx *t)
{
    return t->oom ? -1 : t->n_ins - 1;
}

nx_place nx_beside(const nx *t, int ctx, int n, const int32_t *args)
{
    nx_place at = {.ctx = (int16_t)ctx};
    for (int i = 0; i < n; i++) {
        const nx_place *b = &t->ins[args[i]].at;
        at.axes |= b->axes;
        at.level = at.level < b->level ? b->level : at.level;
    }
    return at;
}

/* Constants are created beside each user. */
int32_t nx_const(nx *t, nnc_dtype d, double v)
{
    nx_ins *q = append_ins(t, KO_const, d, (nx_place){0});
    if (!q)
        return -1;
    if (nnc_is_float(d)) {
        q->k.f = d == DT_f32 ? (float)v : v;
    } else {
        uint64_t w = 0;
        nnc_set_f64(d, &w, 0, v);
        q->k.i = nnc_get_i64(d, &w, 0);
    }
    return last(t);
}

int32_t nx_const_int(nx *t, nnc_dtype d, int64_t v)
{
    nx_ins *q = append_ins(t, KO_const, d, (nx_place){0});
    if (q)
        q->k.i = v;
    return last(t);
}

int32_t nx_number(nx *t, nnc_ref v, double f)
{
    return nx_count(t, v) ? nx_const(t, nx_dtype(t, v), f) : -1;
}

int32_t nx_sop(nx *t, nx_place at, nnc_sop op, nnc_dtype d, int32_t a, int32_t b, int32_t c)
{
    nx_ins *q = t->oom ? NULL : append_ins(t, KO_sop, d, at);
    if (q) {
        q->k.sop = (uint8_t)op;
        q->k.cast_to = op == SC_cast ? (uint8_t)d : 0;
        q->k.arg[0] = a;
        q->k.arg[1] = b;
        q->k.arg[2] = c;
    }
    return last(t);
}

/* condition ? x : fill, with the fill computed first. */
static int32_t select(nx *t, nx_place at, int32_t condition, int32_t x, int32_t fill)
{
    if (condition < 0 || x < 0 || fill < 0)
        return -1;
    int32_t y = nx_sop(t, at, SC_select, (nnc_dtype)t->ins[x].k.dtype, condition, x, fill);
    if (y >= 0)
        t->ins[y].last_first = true;
    return y;
}

/* ---- index forms ---- */

int32_t nx_index(nx *t, nx_place at, const nnc_affine *e)
{
    int32_t sum = -1;
    for (int a = 0; a < t->k->n_axis; a++) {
        if (e->k[a] == 0)
            continue;
        nx_ins *q = append_ins(t, KO_index, DT_i64, at);
        if (q)
            q->k.i = a;
        int32_t x = last(t);
        if (e->k[a] != 1)
            x = nx_sop(t, at, SC_mul, DT_i64, x, nx_const_int(t, DT_i64, e->k[a]), -1);
        sum = sum < 0 ? x : nx_sop(t, at, SC_add, DT_i64, sum, x, -1);
    }
    if (sum < 0)
        return nx_const_int(t, DT_i64, e->c);
    if (e->c != 0)
        sum = nx_sop(t, at, SC_add, DT_i64, sum, nx_const_int(t, DT_i64, e->c), -1);
    return sum;
}

int32_t nx_condition(nx *t, nx_place at, int32_t inner, int32_t outer)
{
    int32_t all = -1;
    for (int32_t i = inner; i >= 0 && i != outer; i = t->guard[i].parent) {
        const nx_guard_link g = t->guard[i];
        int64_t lo, hi;
        nx_span(t, &g.e, &lo, &hi);
        int32_t e = nx_index(t, at, &g.e);
        for (int side = 0; side < 2; side++) {
            if (side == 0 ? lo >= g.lo : hi < g.hi)
                continue;
            int32_t b = nx_const_int(t, DT_i64, side == 0 ? g.lo : g.hi);
            int32_t c = nx_sop(t, at, side == 0 ? SC_ge : SC_lt, DT_bool, e, b, -1);
            all = all < 0 ? c : nx_sop(t, at, SC_and, DT_bool, all, c, -1);
        }
    }
    return all >= 0 ? all : nx_const_int(t, DT_bool, 1);
}

/* ---- elements of operands ---- */

static int chain_length(const nx *t, int32_t guard)
{
    int n = 0;
    for (; guard >= 0; guard = t->guard[guard].parent)
        n++;
    return n;
}

nnc_ref nx_outside(const nx *t, nnc_ref v, const nnc_graph **g)
{
    const nx_set *s = t->set;
    for (int i = 0; s->owner && i < s->owner->n_in; i++)
        if (s->input[i] == v) {
            *g = s->outer;
            return s->owner->in[i];
        }
    *g = t->g;
    return v;
}

const nnc_type *nx_operand_type(const nx *t, nnc_ref v)
{
    const nnc_graph *g;
    const nnc_ref r = nx_outside(t, v, &g);
    return nnc_typeof(g, r);
}

/* The buffer of an operand; -1: out of memory, or a recorded failure. */
static int buffer_of(nx *t, nnc_ref v)
{
    const nnc_graph *g;
    nnc_ref r = nx_outside(t, v, &g);
    if (t->set->owner && g != t->set->outer) {
        if (nnc_op_class((nnc_op)nnc_def(g, v)->op) == CL_leaf)
            return nx_fail(t, v, "is data and cannot be inside a kernel");
        r |= NX_INNER;
    }
    for (int i = 0; i < t->n_buf_value; i++)
        if (t->buf_value[i] == r)
            return i;
    if (!NX_ROOM(t, buf_value))
        return -1;
    t->buf_value[t->n_buf_value] = r;
    return t->n_buf_value++;
}

static nnc_affine offset(const nnc_type *t, const nnc_affine *idx)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_affine at = {0};
    nnc_type_strides(t, stride);
    for (int d = 0; d < t->rank; d++)
        nnc_affine_add(&at, &idx[d], stride[d]);
    return at;
}

/* A load with its guards; a select follows when there are more than an instruction holds. `e`: its offset; `at` >= 0: an index that is
 * added `scale` times, clamped below `limit`. */
static int32_t add_load(nx *t, nx_place p, nnc_ref v, const nnc_affine *e, int32_t at,
    int64_t scale, int64_t limit, int32_t guard, int32_t fill)
{
    nnc_dtype d = nx_dtype(t, v);
    int n = chain_length(t, guard), buf = buffer_of(t, v);
    if (n > 0 && fill < 0)
        fill = nx_const(t, d, 0);
    nx_ins *q = buf < 0 || t->oom ? NULL : append_ins(t, KO_load, d, p);
    if (!q)
        return -1;
    q->k.buf = (int16_t)buf;
    q->k.at = *e;
    q->k.arg[0] = at;
    q->k.arg[1] = n > 0 ? fill : -1;
    q->k.scale = scale;
    q->k.limit = limit;
    q->guard = guard;
    int32_t x = last(t);
    return n <= NNC_KGUARDS ? x : select(t, p, nx_condition(t, p, guard, -1), x, fill);
}

int32_t nx_load(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, int32_t fill)
{
    const nnc_type *y = nx_operand_type(t, v);
    nx_place at = {.ctx = (int16_t)ctx, .axes = nx_axes(idx, y->rank) | nx_guard_axes(t, guard)};
    nnc_affine e = offset(y, idx);
    int32_t x = add_load(t, at, v, &e, -1, 0, 0, guard, fill);
    if (x >= 0) {
        t->ins[x].load = true;
        t->ins[x].v = v;
        t->ins[x].idx = idx;
        t->ins[x].guard = guard;
    }
    return x;
}

/* An index as i64: a negative one of a signed type counts from the end. */
static int32_t whole_index(nx *t, nx_place p, int32_t at, int64_t extent)
{
    nnc_dtype d = (nnc_dtype)t->ins[at].k.dtype;
    if (nnc_dtype_kind(d) != NNC_INT)
        return at;
    if (d != DT_i64)
        at = nx_sop(t, p, SC_cast, DT_i64, at, -1, -1);
    int32_t neg = nx_sop(t, p, SC_lt, DT_bool, at, nx_const_int(t, DT_i64, 0), -1);
    int32_t up = nx_sop(t, p, SC_add, DT_i64, at, nx_const_int(t, DT_i64, extent), -1);
    return nx_sop(t, p, SC_select, DT_i64, neg, up, at);
}

/* The part of an offset that belongs to an index: clamped, times the stride. */
static int32_t index_part(nx *t, nx_place p, int32_t at, int64_t extent, int64_t stride)
{
    nnc_dtype d = (nnc_dtype)t->ins[at].k.dtype;
    int64_t last =
        nnc_dtype_size(d) == 8 ? extent - 1 : nnc_min64(extent - 1, nnc_int_end(d, true));
    at = nx_sop(t, p, SC_min, d, at, nx_const_int(t, d, last), -1);
    if (d != DT_i64)
        at = nx_sop(t, p, SC_cast, DT_i64, at, -1, -1);
    at = nx_sop(t, p, SC_max, DT_i64, at, nx_const_int(t, DT_i64, 0), -1);
    return nx_sop(t, p, SC_mul, DT_i64, at, nx_const_int(t, DT_i64, stride), -1);
}

int32_t nx_gather(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int dim, int n,
    const int32_t *at, int32_t guard)
{
    const nnc_type *y = nx_operand_type(t, v);
    nx_place p = nx_beside(t, ctx, n, at);
    int64_t stride[NNC_MAX_RANK], reach = 0;
    const nnc_graph *g;
    const nnc_ref r = nx_outside(t, v, &g);
    double number;
    if (nnc_const_scalar(g, r, &number)) /* all elements are one number: not loaded */
        return nx_number(t, v, number);
    p.axes |= nx_axes(idx, y->rank) | nx_guard_axes(t, guard);
    nnc_affine e = offset(y, idx);
    nnc_type_strides(y, stride);
    int32_t sum = -1;
    for (int j = 0; j < n && !t->oom; j++) {
        int32_t x = whole_index(t, p, at[j], y->dim[dim + j]);
        if (n == 1)
            return add_load(t, p, v, &e, x, stride[dim], y->dim[dim], guard, -1);
        x = index_part(t, p, x, y->dim[dim + j], stride[dim + j]);
        sum = sum < 0 ? x : nx_sop(t, p, SC_add, DT_i64, sum, x, -1);
        reach += (y->dim[dim + j] - 1) * stride[dim + j];
    }
    return t->oom ? -1 : add_load(t, p, v, &e, sum, 1, reach + 1, guard, -1);
}

/* Reflects x at 0 and n-1 until it is inside; `least`: the smallest value of x. */
static int32_t reflected(nx *t, nx_place at, int32_t x, int64_t n, int64_t least)
{
    int64_t period = n > 1 ? 2 * (n - 1) : 1;
    int64_t up = least < 0 ? -nnc_floordiv(least, period) * period : 0;
    x = nx_sop(t, at, SC_add, DT_i64, x, nx_const_int(t, DT_i64, up), -1);
    x = nx_sop(t, at, SC_mod, DT_i64, x, nx_const_int(t, DT_i64, period), -1);
    int32_t y = nx_sop(t, at, SC_sub, DT_i64, nx_const_int(t, DT_i64, period), x, -1);
    return nx_sop(t, at, SC_min, DT_i64, x, y, -1);
}

int32_t nx_computed(
    nx *t, nx_how how, int ctx, nnc_ref v, const nnc_affine *idx, int n_idx, int32_t guard)
{
    const nnc_type *y = nx_operand_type(t, v);
    nx_place at = {.ctx = (int16_t)ctx, .axes = nx_axes(idx, n_idx) | nx_guard_axes(t, guard)};
    int64_t stride[NNC_MAX_RANK], place = 1, lo, hi;
    nnc_type_strides(y, stride);
    int32_t sum = nx_const_int(t, DT_i64, 0);
    for (int d = y->rank - 1; d >= 0 && !t->oom; d--) {
        const nnc_affine *e = &idx[how == NW_digits ? 0 : d];
        int32_t x = nx_index(t, at, e);
        nx_span(t, e, &lo, &hi);
        if (how == NW_digits) {
            int32_t by = nx_const_int(t, DT_i64, place);
            x = place > 1 ? nx_sop(t, at, SC_div, DT_i64, x, by, -1) : x;
            by = nx_const_int(t, DT_i64, y->dim[d]);
            x = d > 0 ? nx_sop(t, at, SC_mod, DT_i64, x, by, -1) : x;
        } else if (how == NW_reflect && (lo < 0 || hi >= y->dim[d])) {
            x = reflected(t, at, x, y->dim[d], lo);
        } else if (lo < 0 || hi >= y->dim[d]) {
            int32_t last = nx_const_int(t, DT_i64, y->dim[d] - 1);
            x = nx_sop(t, at, SC_min, DT_i64, x, last, -1);
            x = nx_sop(t, at, SC_max, DT_i64, x, nx_const_int(t, DT_i64, 0), -1);
        }
        place *= y->dim[d];
        x = nx_sop(t, at, SC_mul, DT_i64, x, nx_const_int(t, DT_i64, stride[d]), -1);
        sum = nx_sop(t, at, SC_add, DT_i64, sum, x, -1);
    }
    if (t->oom || !nx_count(t, v))
        return -1;
    return add_load(t, at, v, &(nnc_affine){0}, sum, 1, nnc_type_span(y), guard, -1);
}

int32_t nx_filled(nx *t, nx_place at, int32_t x, int32_t inner, int32_t outer, int32_t fill)
{
    const nx_ins *p = &t->ins[x];
    if (p->load && p->guard == inner) {
        int32_t y = nx_load(t, p->at.ctx, p->v, p->idx, inner, fill);
        if (y >= 0)
            t->ins[y].at = at;
        return y;
    }
    return select(t, at, nx_condition(t, at, inner, outer), x, fill);
}

/* ---- scalar ops ---- */

int32_t nx_iota(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_type *y = nnc_typeof(t->g, v);
    nnc_dtype d = (nnc_dtype)y->dtype;
    nx_place at = {.ctx = (int16_t)ctx, .axes = nx_axes(idx, y->rank) | nx_guard_axes(t, guard)};
    int32_t x = nx_index(t, at, &idx[nnc_attr_int(nnc_def(t->g, v), AT_dim, 0)]);
    if (d == DT_i64 || x < 0)
        return x;
    x = nx_sop(t, at, SC_cast, nnc_kdtype(d), x, -1, -1);
    if (x >= 0)
        t->ins[x].k.cast_to = (uint8_t)d;
    return x;
}

/* Receives the scalar ops of a named op's lowering. */
typedef struct parts {
    nx *t;
    nnc_ref v;
    const nnc_affine *idx;
    nnc_dtype d;
    int ctx;
    int32_t guard;
    int16_t n;
} parts;

static nnc_ref add_number(void *ctx, double v)
{
    parts *p = ctx;
    int32_t x = nx_const(p->t, p->d, v);
    return x < 0 ? NNC_NONE : (nnc_ref)x;
}

static nnc_ref add_op(void *ctx, nnc_op op, int n, const nnc_ref *in)
{
    parts *p = ctx;
    nnc_sop sop;
    int32_t arg[3] = {-1, -1, -1};
    assert(n <= 3);
    for (int i = 0; i < n && i < 3; i++) {
        if (in[i] == NNC_NONE)
            return NNC_NONE;
        arg[i] = (int32_t)in[i];
    }
    if (op == OP_identity)
        return in[0];
    if (!nnc_sop_of(op, &sop)) {
        p->t->limit = "one of its formulas has an op without a kernel instruction";
        p->t->oom = true;
        return NNC_NONE;
    }
    nnc_dtype d = nnc_sops[sop].res == SR_bool ? DT_bool : p->d;
    int32_t x = nx_sop(p->t, nx_beside(p->t, p->ctx, n, arg), sop, d, arg[0], arg[1], arg[2]);
    if (x < 0)
        return NNC_NONE;
    nx_ins *i = &p->t->ins[x];
    i->part = p->n++;
    i->v = p->v;
    i->idx = p->idx;
    i->guard = p->guard;
    i->expensive = nnc_op_is_expensive(op);
    return (nnc_ref)x;
}

int32_t nx_ewise(
    nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, const int32_t *args)
{
    const nnc_node *n = nnc_def(t->g, v);
    nnc_op op = (nnc_op)n->op;
    parts p = {t, v, idx, nx_dtype(t, v), ctx, guard, 0};
    nnc_ref in[3] = {NNC_NONE, NNC_NONE, NNC_NONE}, y;
    if (!nx_count(t, v))
        return -1;
    for (int i = 0; i < n->n_in && i < 3; i++)
        in[i] = (nnc_ref)args[i];
    if (nnc_op_class(op) == CL_ecomp &&
        t->strict) /* only asks if a kernel is possible: the lowering makes no difference */
        y = (nnc_ref)nx_sop(t, nx_beside(t, ctx, n->n_in, args), SC_identity, p.d, args[0], -1, -1);
    else if (nnc_op_class(op) == CL_ecomp)
        y = nnc_expand_ewise(n, p.d, in, &(nnc_expander){&p, add_op, add_number});
    else
        y = add_op(&p, op, n->n_in, in);
    if (y == NNC_NONE)
        return -1;
    if (op == OP_cast) /* rounds to the 16-bit type, and is f32 in the kernel */
        t->ins[y].k.cast_to = (uint8_t)nnc_typeof(t->g, v)->dtype;
    if (t->strict) {
        t->ins[y].v = v;
        t->ins[y].part = (int16_t)nnc_max64(t->ins[y].part, 0);
        t->ins[y].expensive = nnc_op_is_expensive(op);
    }
    return (int32_t)y;
}

int32_t nx_choose(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int dim, const int32_t *args)
{
    const nnc_node *n = nnc_def(t->g, v);
    int64_t end = nnc_typeof(t->g, v)->dim[dim];
    nx_place at = nx_beside(t, ctx, n->n_in, args);
    at.axes |= nx_axes(&idx[dim], 1);
    if (!nx_count(t, v))
        return -1;
    int32_t x = -1, e = nx_index(t, at, &idx[dim]);
    for (int i = n->n_in - 1; i >= 0 && !t->oom; i--) {
        if (x >= 0) {
            int32_t b = nx_const_int(t, DT_i64, end);
            x = select(t, at, nx_sop(t, at, SC_lt, DT_bool, e, b, -1), args[i], x);
        } else {
            x = args[i];
        }
        end -= nnc_typeof(t->g, n->in[i])->dim[dim];
    }
    return x;
}

/* ---- reductions and results ---- */

static nnc_kred kind_of(nnc_op op)
{
    switch (op) {
    case OP_reduce_prod: return KR_prod;
    case OP_reduce_max:
    case OP_maxpool: return KR_max;
    case OP_reduce_min: return KR_min;
    case OP_argmaxpool:
    case OP_argmax: return KR_argmax;
    case OP_argmin: return KR_argmin;
    default: return KR_sum;
    }
}

/* Initial value of a reduction; argmax and argmin: 0. */
static int32_t neutral(nx *t, nnc_op op, nnc_dtype d)
{
    static const double by_kind[] = {0, 1, -INFINITY, INFINITY, 0, 0};
    if (nnc_is_float(d) || op != OP_maxpool)
        return nx_const(t, d, by_kind[kind_of(op)]);
    return nx_const_int(t, d, nnc_int_end(d, false));
}

/* min(start + extent, end) - max(start, begin): elements of a window inside the operand, in one dimension. */
static int32_t window_count(
    nx *t, nx_place at, const nnc_affine *start, int64_t extent, int64_t begin, int64_t end)
{
    int64_t lo, hi;
    nx_span(t, start, &lo, &hi);
    if (lo >= begin && hi + extent <= end)
        return nx_const_int(t, DT_i64, extent);
    int32_t s = nx_index(t, at, start), from = s;
    int32_t to = nx_sop(t, at, SC_add, DT_i64, s, nx_const_int(t, DT_i64, extent), -1);
    if (hi + extent > end)
        to = nx_sop(t, at, SC_min, DT_i64, to, nx_const_int(t, DT_i64, end), -1);
    if (lo < begin)
        from = nx_sop(t, at, SC_max, DT_i64, s, nx_const_int(t, DT_i64, begin), -1);
    return nx_sop(t, at, SC_sub, DT_i64, to, from, -1);
}

/* Divisor of an average pooling: elements inside the operand, or the padded operand when padding counts. */
static int32_t pool_divisor(nx *t, nx_place at, const nnc_node *n, const nnc_affine *start)
{
    const nnc_type *x = nnc_typeof(t->g, n->in[0]);
    nnc_dtype d = nnc_kdtype((nnc_dtype)x->dtype);
    bool whole = nnc_attr_int(n, AT_count_include_pad, 0) != 0;
    const int64_t *kernel, *pads = NULL;
    int dims = nnc_attr_ints(n, AT_kernel, &kernel), np = nnc_attr_ints(n, AT_pads, &pads);
    int64_t fixed = 1;
    int32_t count = -1;
    for (int i = 0; i < dims; i++) {
        int64_t begin = whole && np ? -pads[i] : 0;
        int64_t end = x->dim[i + 2] + (whole && np ? pads[dims + i] : 0);
        int32_t c = window_count(t, at, &start[i], kernel[i], begin, end);
        if (c < 0)
            return -1;
        if (t->ins[c].k.op == KO_const)
            fixed *= t->ins[c].k.i;
        else
            count = count < 0 ? c : nx_sop(t, at, SC_mul, DT_i64, count, c, -1);
    }
    if (count < 0)
        return nx_const(t, d, (double)fixed);
    if (fixed != 1)
        count = nx_sop(t, at, SC_mul, DT_i64, count, nx_const_int(t, DT_i64, fixed), -1);
    return nx_sop(t, at, SC_cast, d, count, -1, -1);
}

int32_t nx_reduce(nx *t, nx_place at, nnc_ref v, int32_t x, int32_t inner, int32_t guard,
    const nnc_affine *start, int64_t count)
{
    const nnc_node *n = nnc_def(t->g, v);
    nnc_op op = (nnc_op)n->op;
    nnc_kred kind = kind_of(op);
    nnc_dtype d = nx_dtype(t, n->in[0]);
    at.home = NH_body;
    int32_t inside = op == OP_argmaxpool && inner != guard ? nx_condition(t, at, inner, guard) : -1;
    if (inner != guard && inside < 0)
        x = nx_filled(t, at, x, inner, guard, neutral(t, op, d));
    nx_ins *q = x < 0 ? NULL : append_ins(t, KO_reduce, kind >= KR_argmax ? DT_i64 : d, at);
    if (!q)
        return -1;
    q->k.sop = (uint8_t)kind;
    q->k.arg[0] = x;
    q->k.arg[1] = inside; /* padding has no index */
    int32_t y = last(t);
    at.home = NH_post;
    if (y >= 0 && op == OP_reduce_mean)
        y = nx_sop(t, at, SC_div, d, y, nx_const(t, d, (double)count), -1);
    else if (y >= 0 && op == OP_avgpool)
        y = nx_sop(t, at, SC_div, d, y, pool_divisor(t, at, n, start), -1);
    return t->oom ? -1 : y;
}

bool nx_store(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, int32_t x)
{
    const nx_set *s = t->set;
    nx_place at = {.ctx = (int16_t)ctx,
        .level = t->ins[x].at.level,
        .axes = nx_axes(idx, nnc_typeof(t->g, v)->rank)};
    for (int j = 0; j < s->n_out; j++) { /* a value may be several results */
        if (s->out[j] != v)
            continue;
        const nnc_type *type = s->owner && !s->inner
                                   ? nnc_typeof(s->outer, s->owner->out + (nnc_ref)j)
                                   : nnc_typeof(t->g, v);
        nx_ins *q =
            NX_ROOM(t, store) ? append_ins(t, KO_store, (nnc_dtype)t->ins[x].k.dtype, at) : NULL;
        if (!q)
            return false;
        t->store[t->n_store++] = last(t);
        q->k.buf = (int16_t)j; /* link.c counts the operands' buffers before it */
        q->k.at = offset(type, idx);
        q->k.arg[0] = x;
        q->guard = guard;
        q->v = v;
        q->idx = idx;
    }
    return true;
}

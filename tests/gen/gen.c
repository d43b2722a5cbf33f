/* tests/gen/gen.c -- see gen.h. Each op class has a function that draws attributes and operands
 * that fit, so that every node is valid by construction. `mag` bounds |value| of floats: ops
 * that would leave the bound get their operand squeezed first. */
#include "gen/internal.h"

#include <math.h>
#include <string.h>

/* ---- drawing ---- */

uint32_t gen_draw(gen *m, uint32_t n)
{
    return (uint32_t)((uint64_t)nnc_rng_u32(m->key, m->count++) * n >> 32);
}
bool gen_chance(gen *m, uint32_t percent)
{
    return gen_draw(m, 100) < percent;
}
int64_t gen_between(gen *m, int64_t lo, int64_t hi)
{
    return lo + gen_draw(m, (uint32_t)(hi - lo + 1));
}
static const nnc_type *type_of(const gen *m, nnc_ref r)
{
    return nnc_typeof(m->g, r);
}
static nnc_dtype dtype_of(const gen *m, nnc_ref r)
{
    return (nnc_dtype)type_of(m, r)->dtype;
}
static bool is_float(const gen *m, nnc_ref r)
{
    return nnc_is_float(dtype_of(m, r));
}

void gen_keep(gen *m, nnc_ref r, double mag, bool exact)
{
    if (r == NNC_NONE || m->n == MAX_POOL)
        return;
    if (!is_float(m, r) || m->o.wild) {
        mag = LIMIT;
    } else if (mag > LIMIT) { /* a power of two: exact but for underflow */
        r = nnc_build2(
            m->g, OP_mul, r, nnc_scalar(m->g, dtype_of(m, r), exp2(-ceil(log2(mag / LIMIT)))));
        mag = LIMIT;
    }
    m->pool[m->n++] = (entry){r, mag, exact};
}

/* A value, late ones more often: graphs become deep. */
entry *gen_pick(gen *m)
{
    uint32_t n = (uint32_t)m->n, last = n < 3 ? n : 3;
    return &m->pool[gen_chance(m, 55) ? n - 1 - gen_draw(m, last) : gen_draw(m, n)];
}

static entry *pick_where(gen *m, bool (*fits)(const gen *, const entry *))
{
    for (int tries = 0; tries < 12; tries++) {
        entry *e = gen_pick(m);
        if (fits(m, e))
            return e;
    }
    return NULL;
}

static bool any_float(const gen *m, const entry *e)
{
    return is_float(m, e->r);
}
static bool number(const gen *m, const entry *e)
{
    return dtype_of(m, e->r) != DT_bool;
}
static bool image(const gen *m, const entry *e)
{
    return number(m, e) && type_of(m, e->r)->rank >= 3 && type_of(m, e->r)->rank <= 5;
}
static bool matrix(const gen *m, const entry *e)
{
    return number(m, e) && type_of(m, e->r)->rank >= 2;
}
static bool shaped(const gen *m, const entry *e)
{
    return type_of(m, e->r)->rank >= 1;
}

static nnc_dtype draw_dtype(gen *m)
{
    nnc_dtype list[DT__COUNT];
    uint32_t n = 0;
    for (int d = 0; d < DT__COUNT; d++)
        if (m->o.dtypes >> d & 1)
            list[n++] = (nnc_dtype)d;
    return list[gen_draw(m, n)];
}

/* ---- leaves ---- */

/* A generated weight in [shift - scale, shift + scale]. */
nnc_ref gen_weight(gen *m, nnc_dtype d, int rank, const int64_t *dim, double scale, double shift)
{
    char name[32];
    snprintf(name, sizeof name, "w%d", m->weights++);
    nnc_type t = nnc_type_make(d, rank, dim);
    bool f = nnc_is_float(d);
    nnc_weight w = {.kind = NNC_W_gen,
        .name = name,
        .seed = m->o.seed,
        .scale = (float)(f ? scale : 5),
        .shift = (float)(f                               ? shift
                         : nnc_dtype_kind(d) == NNC_UINT ? 5
                                                         : 0)};
    return nnc_param(m->g, &t, &w);
}

static void add_input(gen *m, int kind)
{
    int64_t dim[NNC_MAX_RANK];
    int rank = 0;
    if (kind == 0) { /* [N,C,spatial...] */
        rank = 2 + (gen_chance(m, 70) ? 2 : (int)gen_between(m, 1, 3));
        dim[0] = gen_between(m, 1, 3);
        dim[1] = gen_between(m, 1, 8);
        for (int d = 2; d < rank; d++)
            dim[d] = gen_between(m, 3, rank == 5 ? 5 : 10);
    } else if (kind == 1) { /* [rows, features], sometimes long rows */
        rank = 2;
        dim[0] = gen_between(m, 1, 12);
        dim[1] = gen_chance(m, 30) ? gen_between(m, 60, 200) : gen_between(m, 1, 24);
    } else {
        rank = (int)gen_between(m, 0, 4);
        for (int d = 0; d < rank; d++)
            dim[d] = gen_chance(m, 20) ? 1 : gen_between(m, 1, 7);
    }
    nnc_type t = nnc_type_make(draw_dtype(m), rank, dim);
    while (nnc_type_numel(&t) > m->o.max_elements)
        for (int d = 0; d < rank; d++)
            t.dim[d] = (t.dim[d] + 1) / 2;
    gen_keep(m, nnc_input(m->g, NULL, &t), 2, true);
}

/* ---- taming operands (all continuous) ---- */

static nnc_ref number_like(gen *m, nnc_ref r, double v)
{
    return nnc_scalar(m->g, dtype_of(m, r), v);
}

/* |x| + 0.5 */
static nnc_ref away_from_zero(gen *m, nnc_ref r)
{
    return nnc_build2(m->g, OP_add, nnc_build1(m->g, OP_abs, r), number_like(m, r, 0.5));
}

/* 0.9 tanh(x) */
static nnc_ref squeeze(gen *m, nnc_ref r)
{
    return nnc_build2(m->g, OP_mul, nnc_build1(m->g, OP_tanh, r), number_like(m, r, 0.9));
}

/* ---- elementwise ---- */

static bool jumps(nnc_op op)
{
    return op == OP_sign || op == OP_floor || op == OP_ceil || op == OP_round || op == OP_trunc ||
           op == OP_mod || (nnc_ops[op].flags & OF_bool && op != OP_isnan && op != OP_isinf);
}

/* A cast that means the same everywhere and keeps the bound. Computed floats are not cut to
 * integers, negative ones not to unsigned, and large integers not to f16. */
static bool cast_fits(const gen *m, const entry *e, nnc_dtype to, double *mag)
{
    nnc_dtype from = dtype_of(m, e->r);
    int bits = nnc_dtype_kind(from) == NNC_BOOL ? 1 : nnc_dtype_size(from) * 8;
    if (m->o.wild)
        return true;
    if (nnc_is_float(from))
        return nnc_is_float(to) || (e->exact && nnc_dtype_kind(to) != NNC_UINT);
    if (nnc_is_float(to))
        *mag = ldexp(1, bits);
    return to != DT_f16 || bits <= 8;
}

static void add_unary(gen *m, nnc_op op, entry e)
{
    nnc_ref x = e.r;
    double mag = e.mag;
    nnc_attr at[2];
    int na = 0;
    if (!m->o.wild && is_float(m, x)) {
        if (op == OP_log || op == OP_log2 || op == OP_rsqrt || op == OP_recip || op == OP_sqrt ||
            op == OP_log1p) {
            x = away_from_zero(m, x);
            mag = fmax(mag + 0.5, 2);
        } else if (op == OP_asin || op == OP_acos || op == OP_tan || op == OP_sinh ||
                   op == OP_cosh ||
                   ((op == OP_exp || op == OP_exp2 || op == OP_expm1) && mag > 3)) {
            x = squeeze(m, x);
            mag = 1.6;
        }
        if (op == OP_exp || op == OP_exp2 || op == OP_expm1)
            mag = exp(mag);
        mag = op == OP_square ? mag * mag : op == OP_acos ? 4 : mag + 1.8;
    }
    if (op == OP_cast) {
        nnc_dtype to = draw_dtype(m);
        if (!cast_fits(m, &e, to, &mag))
            return;
        at[na++] = nnc_ai(AT_to, to);
    }
    if (op == OP_clip) {
        at[na++] = nnc_af(AT_lo, -1);
        at[na++] = nnc_af(AT_hi, (double)gen_between(m, 1, 3));
    }
    if (op == OP_gelu && gen_chance(m, 50))
        at[na++] = nnc_aw(AT_approximate, "tanh");
    if ((op == OP_leaky_relu || op == OP_elu) && gen_chance(m, 50))
        at[na++] = nnc_af(AT_alpha, 0.25);
    gen_keep(m, nnc_build(m->g, op, 1, &x, na, at), mag, false);
}

/* Something that broadcasts with a: a value if one fits, else a weight. */
static entry partner(gen *m, nnc_ref a)
{
    const nnc_type t = *type_of(m, a);
    for (int tries = 0; tries < 8 && gen_chance(m, 85); tries++) {
        const entry *e = gen_pick(m);
        const nnc_type *u = type_of(m, e->r);
        int64_t n = 1;
        bool ok = u->dtype == t.dtype;
        int rank = u->rank > t.rank ? u->rank : t.rank;
        for (int d = 1; ok && d <= rank; d++) {
            int64_t p = d <= t.rank ? t.dim[t.rank - d] : 1,
                    q = d <= u->rank ? u->dim[u->rank - d] : 1;
            ok = p == q || p == 1 || q == 1;
            n *= p > q ? p : q;
        }
        if (ok && n <= m->o.max_elements)
            return *e;
    }
    int drop = t.rank ? (int)gen_draw(m, (uint32_t)t.rank + 1) : 0;
    int64_t dim[NNC_MAX_RANK];
    for (int d = drop; d < t.rank; d++)
        dim[d - drop] = gen_chance(m, 40) ? 1 : t.dim[d];
    return (entry){gen_weight(m, (nnc_dtype)t.dtype, t.rank - drop, dim, 1, 0), 1, true};
}

static void add_binary(gen *m, nnc_op op, entry a)
{
    entry b = partner(m, a.r);
    double mag = op == OP_mul ? a.mag * b.mag : a.mag + b.mag;
    if (!m->o.wild && is_float(m, a.r)) {
        if (op == OP_div) {
            b.r = away_from_zero(m, b.r);
            mag = 2 * a.mag;
        }
        if (op == OP_pow) {
            a.r = away_from_zero(m, squeeze(m, a.r));
            b.r = squeeze(m, b.r);
            mag = 2;
        }
        if (op == OP_prelu)
            mag = fmax(a.mag, a.mag * b.mag);
    }
    nnc_ref two[2] = {a.r, b.r};
    if (gen_chance(m, 50) && op != OP_div && op != OP_pow && op != OP_prelu) {
        two[0] = b.r;
        two[1] = a.r;
    }
    gen_keep(m, nnc_build(m->g, op, 2, two, 0, NULL), mag, false);
}

/* a > b ? a : b+0, |a|-like choices: a jump in the condition, none in the value. */
static void add_select(gen *m, entry a)
{
    entry b = partner(m, a.r);
    if (dtype_of(m, a.r) == DT_bool)
        return;
    nnc_ref c = nnc_build2(m->g, gen_chance(m, 50) ? OP_gt : OP_le, a.r, b.r);
    gen_keep(m, nnc_build3(m->g, OP_select, c, a.r, b.r), fmax(a.mag, b.mag), false);
}

/* Is op allowed on this operand by shape inference, and by good conditioning? */
static bool allowed(const gen *m, nnc_op op, const entry *e)
{
    bool boolean = dtype_of(m, e->r) == DT_bool, f = is_float(m, e->r);
    bool logic = op == OP_not || op == OP_and || op == OP_or || op == OP_xor;
    if (logic || boolean)
        return logic == boolean ||
               (boolean && (op == OP_identity || op == OP_cast || op == OP_eq || op == OP_ne));
    if ((nnc_ops[op].flags & OF_float || op == OP_leaky_relu || op == OP_prelu) && !f)
        return false;
    if (nnc_ops[op].flags & OF_int && f)
        return false;
    return m->o.wild || !f || !jumps(op) || (e->exact && nnc_ops[op].n_max == 1);
}

static void add_ewise(gen *m, nnc_class cls)
{
    for (int tries = 0; tries < 40; tries++) {
        nnc_op op = (nnc_op)gen_draw(m, OP_cumsum + 1); /* elementwise rows come first */
        const entry *e = gen_pick(m);
        static const nnc_op logic[] = {OP_and, OP_or, OP_xor, OP_not};
        if (dtype_of(m, e->r) == DT_bool && cls == CL_ewise && gen_chance(m, 50))
            op = logic[gen_draw(m, NNC_COUNT(logic))];
        if (nnc_op_class(op) != cls || !allowed(m, op, e))
            continue;
        if (op == OP_select)
            add_select(m, *e);
        else if (nnc_ops[op].n_max == 1)
            add_unary(m, op, *e);
        else
            add_binary(m, op, *e);
        return;
    }
}

/* ---- reductions ---- */

/* Would a number of this size overflow before it is scaled back? */
static bool overflows(const gen *m, nnc_ref r, double mag)
{
    return !m->o.wild && dtype_of(m, r) == DT_f16 && mag > 3e4;
}

static void add_reduce(gen *m)
{
    entry *e = pick_where(m, shaped);
    nnc_op op = (nnc_op)(OP_reduce_sum + (int)gen_draw(m, OP_argmin - OP_reduce_sum + 1));
    if (!e || !number(m, e) || (op == OP_reduce_mean && !is_float(m, e->r)))
        return;
    const nnc_type t = *type_of(m, e->r);
    nnc_attr kd = nnc_ai(AT_keepdims, gen_chance(m, 60));
    if (op == OP_argmax || op == OP_argmin) {
        if (!e->exact && is_float(m, e->r) && !m->o.wild)
            return;
        nnc_attr at[2] = {nnc_ai(AT_axis, gen_between(m, 0, t.rank - 1)), kd};
        gen_keep(m, nnc_build(m->g, op, 1, &e->r, 2, at), 0, false);
        return;
    }
    int64_t axes[NNC_MAX_RANK], count = 1;
    int n = 0;
    for (int d = 0; d < t.rank; d++)
        if (gen_chance(m, 50) || (d == t.rank - 1 && n == 0)) {
            axes[n++] = d;
            count *= t.dim[d];
        }
    double mag = e->mag;
    nnc_ref x = e->r;
    if (op == OP_reduce_sum)
        mag *= (double)count;
    if (overflows(m, x, mag))
        return;
    if (op == OP_reduce_prod && is_float(m, x) && !m->o.wild) {
        x = squeeze(m, x);
        mag = 1;
    }
    nnc_attr at[2] = {nnc_av(AT_axes, n, axes), kd};
    gen_keep(m, nnc_build(m->g, op, 1, &x, 2, at), mag, false);
}

/* ---- in order along an axis ---- */

static void add_scan(gen *m)
{
    const entry *p = pick_where(m, shaped);
    if (!p || !number(m, p))
        return;
    entry e = *p;
    const nnc_type t = *type_of(m, e.r);
    const bool product = gen_chance(m, 25);
    nnc_attr at[3] = {nnc_ai(AT_axis, gen_between(m, 0, t.rank - 1)),
        nnc_ai(AT_exclusive, gen_chance(m, 30)), nnc_ai(AT_reverse, gen_chance(m, 30))};
    double mag = e.mag * (double)t.dim[at[0].i];
    if (product ? is_float(m, e.r) && !m->o.wild : overflows(m, e.r, mag)) {
        e.r = squeeze(m, e.r);
        mag = 1;
    }
    gen_keep(m, nnc_build(m->g, product ? OP_cumprod : OP_cumsum, 1, &e.r, 3, at), mag, false);
}

/* ---- movement ---- */

static nnc_ref draw_reshape(gen *m, nnc_ref x)
{
    nnc_type t = *type_of(m, x);
    int64_t dim[NNC_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < t.rank; d++) {
        if (rank > 0 && gen_chance(m, 40))
            dim[rank - 1] *= t.dim[d];
        else if (t.dim[d] % 2 == 0 && gen_chance(m, 30) && t.rank < 5) {
            dim[rank++] = t.dim[d] / 2;
            dim[rank++] = 2;
        } else {
            dim[rank++] = t.dim[d];
        }
        if (rank >= NNC_MAX_RANK - 1)
            return x;
    }
    return nnc_reshape(m->g, x, rank, dim);
}

static nnc_ref draw_broadcast(gen *m, nnc_ref x)
{
    nnc_type t = *type_of(m, x);
    int64_t dim[NNC_MAX_RANK], n = nnc_type_numel(&t);
    int lead = t.rank < 5 && gen_chance(m, 50);
    if (lead)
        n *= dim[0] = gen_between(m, 2, 4);
    for (int d = 0; d < t.rank; d++) {
        dim[d + lead] = t.dim[d] == 1 && gen_chance(m, 70) ? gen_between(m, 2, 5) : t.dim[d];
        n *= dim[d + lead] / t.dim[d];
    }
    return n <= m->o.max_elements ? nnc_broadcast(m->g, x, t.rank + lead, dim) : x;
}

static nnc_ref draw_slice(gen *m, nnc_ref x)
{
    const nnc_type t = *type_of(m, x);
    int64_t axes[NNC_MAX_RANK], from[NNC_MAX_RANK], to[NNC_MAX_RANK], by[NNC_MAX_RANK];
    int n = 0;
    for (int d = 0; d < t.rank; d++)
        if (gen_chance(m, 60) || d == t.rank - 1) {
            axes[n] = d;
            from[n] = gen_between(m, 0, t.dim[d] - 1);
            to[n] = gen_between(m, from[n] + 1, t.dim[d]);
            by[n++] = gen_between(m, 1, 3);
        }
    nnc_attr at[4] = {nnc_av(AT_axes, n, axes), nnc_av(AT_starts, n, from), nnc_av(AT_ends, n, to),
        nnc_av(AT_steps, n, by)};
    return nnc_build(m->g, OP_slice, 1, &x, 4, at);
}

static nnc_ref draw_pad(gen *m, nnc_ref x)
{
    const nnc_type t = *type_of(m, x);
    static const char *const mode[] = {"constant", "reflect", "edge"};
    uint32_t k = gen_draw(m, 3);
    int64_t pads[2 * NNC_MAX_RANK], n = 1;
    for (int d = 0; d < t.rank; d++) {
        int64_t most = k == 1 ? nnc_min64(2, t.dim[d] - 1) : 2;
        pads[d] = gen_chance(m, 40) ? gen_between(m, 0, most) : 0;
        pads[d + t.rank] = gen_chance(m, 40) ? gen_between(m, 0, most) : 0;
        n *= t.dim[d] + pads[d] + pads[d + t.rank];
    }
    if (n > m->o.max_elements)
        return x;
    nnc_attr at[3] = {nnc_av(AT_pads, 2 * t.rank, pads), nnc_aw(AT_mode, mode[k]),
        nnc_af(AT_value, gen_chance(m, 50))};
    return nnc_build(m->g, OP_pad, 1, &x, k == 0 ? 3 : 2, at);
}

static nnc_ref draw_concat(gen *m, nnc_ref x)
{
    const nnc_type t = *type_of(m, x);
    int axis = (int)gen_draw(m, t.rank);
    nnc_ref in[3] = {x};
    int n = 1;
    for (int tries = 0; tries < 6 && n < 3; tries++) {
        nnc_ref r = gen_pick(m)->r;
        const nnc_type *u = type_of(m, r);
        bool ok = u->dtype == t.dtype && u->rank == t.rank;
        for (int d = 0; ok && d < t.rank; d++)
            ok = d == axis || u->dim[d] == t.dim[d];
        if (ok && nnc_type_numel(u) + nnc_type_numel(&t) <= m->o.max_elements)
            in[n++] = r;
    }
    nnc_attr at = nnc_ai(AT_axis, axis);
    return nnc_build(m->g, OP_concat, n, in, 1, &at);
}

static void add_split(gen *m, const entry *e)
{
    const nnc_type t = *type_of(m, e->r);
    int axis = (int)gen_draw(m, t.rank);
    if (t.dim[axis] < 2)
        return;
    int64_t first = gen_between(m, 1, t.dim[axis] - 1), sizes[2] = {first, t.dim[axis] - first};
    nnc_attr at[2] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, 2, sizes)};
    entry from = *e;
    nnc_ref r = nnc_build(m->g, OP_split, 1, &from.r, 2, at);
    if (r == NNC_NONE)
        return;
    gen_keep(m, r, from.mag, from.exact);
    gen_keep(m, r + 1, from.mag, from.exact);
}

static nnc_ref draw_gather(gen *m, nnc_ref x)
{
    const nnc_type t = *type_of(m, x);
    int axis = (int)gen_draw(m, t.rank);
    int64_t n = gen_between(m, 1, 4);
    int32_t index[4];
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)gen_between(m, -t.dim[axis], t.dim[axis] - 1);
    nnc_type ti = nnc_type_make(DT_i32, 1, &n);
    nnc_ref two[2] = {x, nnc_constant(m->g, &ti, index)};
    nnc_attr at = nnc_ai(AT_axis, axis);
    if (nnc_type_numel(&t) * n > m->o.max_elements)
        return x;
    return nnc_build(m->g, OP_gather, 2, two, 1, &at);
}

static nnc_ref draw_order(gen *m, nnc_ref x, nnc_op op)
{
    const nnc_type t = *type_of(m, x);
    int64_t perm[NNC_MAX_RANK];
    uint8_t order[NNC_MAX_RANK];
    int n = 0;
    for (int d = 0; d < t.rank; d++) {
        int at = (int)gen_draw(m, (uint32_t)d + 1);
        perm[d] = perm[at];
        perm[at] = d;
    }
    if (op == OP_transpose)
        return nnc_transpose(m->g, x, perm);
    if (op == OP_relayout) {
        for (int d = 0; d < t.rank; d++)
            order[d] = (uint8_t)perm[d];
        return nnc_relayout(m->g, x, order);
    }
    for (int d = 0; d < t.rank; d++)
        if (gen_chance(m, 50) || (d == t.rank - 1 && n == 0))
            perm[n++] = d;
    nnc_attr at = nnc_av(AT_axes, n, perm);
    return nnc_build(m->g, OP_flip, 1, &x, 1, &at);
}

static void add_move(gen *m)
{
    const entry *p = pick_where(m, shaped);
    if (!p)
        return;
    entry e = *p;
    nnc_ref r = e.r;
    switch (gen_draw(m, 10)) {
    case 0: r = draw_reshape(m, e.r); break;
    case 1: r = draw_order(m, e.r, OP_transpose); break;
    case 2: r = draw_broadcast(m, e.r); break;
    case 3: r = draw_slice(m, e.r); break;
    case 4: r = draw_pad(m, e.r); break;
    case 5:
        r = draw_concat(m, e.r);
        e.exact = false;
        e.mag = LIMIT;
        break;
    case 6: add_split(m, &e); return;
    case 7: r = draw_gather(m, e.r); break;
    case 8: r = draw_order(m, e.r, OP_flip); break;
    default: r = draw_order(m, e.r, OP_relayout); break;
    }
    if (r != e.r)
        gen_keep(m, r, fmax(e.mag, 1), e.exact);
}

/* ---- windows and contractions ---- */

typedef struct window {
    int s;
    int64_t k[3], stride[3], pads[6], dil[3], size; /* size: kernel elements */
} window;

static window draw_window(gen *m, const nnc_type *t, bool dilate)
{
    window w = {.s = t->rank - 2, .size = 1};
    for (int d = 0; d < w.s; d++) {
        int64_t n = t->dim[d + 2];
        w.k[d] = gen_between(m, 1, nnc_min64(3, n));
        w.stride[d] = gen_between(m, 1, 2);
        w.dil[d] = dilate && gen_chance(m, 30) && 2 * (w.k[d] - 1) < n ? 2 : 1;
        w.pads[d] = gen_chance(m, 40) ? gen_between(m, 0, w.k[d] / 2) : 0;
        w.pads[d + w.s] = gen_chance(m, 40) ? gen_between(m, 0, w.k[d] / 2) : 0;
        w.size *= w.k[d];
    }
    return w;
}

static void add_window(gen *m)
{
    const entry *p = pick_where(m, image);
    if (!p)
        return;
    entry e = *p;
    nnc_op op = is_float(m, e.r) && gen_chance(m, 50) ? OP_avgpool : OP_maxpool;
    window w = draw_window(m, type_of(m, e.r), op == OP_maxpool);
    nnc_attr at[6] = {nnc_av(AT_kernel, w.s, w.k), nnc_av(AT_strides, w.s, w.stride),
        nnc_av(AT_pads, 2 * w.s, w.pads), nnc_ai(AT_ceil_mode, gen_chance(m, 30))};
    if (op == OP_maxpool)
        at[4] = nnc_av(AT_dilations, w.s, w.dil);
    else
        at[4] = nnc_ai(AT_count_include_pad, gen_chance(m, 50));
    gen_keep(m, nnc_build(m->g, op, 1, &e.r, 5, at), e.mag, e.exact && op == OP_maxpool);
}

static void add_conv(gen *m, entry e, bool transposed)
{
    const nnc_type t = *type_of(m, e.r);
    window w = draw_window(m, &t, true);
    int64_t c = t.dim[1], groups = gen_chance(m, 30) ? c : c % 2 == 0 && gen_chance(m, 30) ? 2 : 1;
    int64_t k = groups * gen_between(m, 1, nnc_max64(1, 8 / groups)), dim[5] = {k, c / groups};
    if (transposed) {
        memset(w.pads, 0, sizeof w.pads); /* the result must not vanish */
        dim[0] = c;
        dim[1] = k / groups;
    }
    for (int d = 0; d < w.s; d++)
        dim[d + 2] = w.k[d];
    int64_t out = t.dim[0] * k;
    for (int d = 0; d < w.s; d++)
        out *= t.dim[d + 2] * (transposed ? w.stride[d] : 1) + 8;
    double mag = e.mag * (double)(c / groups * w.size) + 1;
    if (out > 4 * m->o.max_elements || overflows(m, e.r, mag))
        return;
    nnc_dtype d = (nnc_dtype)t.dtype;
    nnc_ref in[3] = {e.r, gen_weight(m, d, t.rank, dim, 1, 0), NNC_NONE};
    int n = gen_chance(m, 50) ? 3 : 2;
    if (n == 3)
        in[2] = gen_weight(m, d, 1, &k, 1, 0);
    nnc_attr at[5] = {nnc_av(AT_strides, w.s, w.stride), nnc_av(AT_pads, 2 * w.s, w.pads),
        nnc_av(AT_dilations, w.s, w.dil), nnc_ai(AT_groups, groups)};
    gen_keep(
        m, nnc_build(m->g, transposed ? OP_conv_transpose : OP_conv, n, in, 4, at), mag, false);
}

/* The gradient of the weight of a convolution of e. */
static void add_wgrad(gen *m, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    const window w = draw_window(m, &t, true);
    int64_t c = t.dim[1], groups = gen_chance(m, 30) ? c : c % 2 == 0 && gen_chance(m, 30) ? 2 : 1;
    int64_t dim[5] = {t.dim[0], groups * gen_between(m, 1, nnc_max64(1, 8 / groups))};
    for (int d = 0; d < w.s; d++) {
        const int64_t reach = (w.k[d] - 1) * w.dil[d] + 1;
        dim[d + 2] = (t.dim[d + 2] + w.pads[d] + w.pads[d + w.s] - reach) / w.stride[d] + 1;
        if (dim[d + 2] > 1 && w.dil[d] > w.stride[d] && gen_chance(m, 50))
            dim[d + 2]--;
    }
    const nnc_type y = nnc_type_make((nnc_dtype)t.dtype, t.rank, dim);
    double mag = e.mag * (double)(nnc_type_numel(&y) / dim[1]) + 1;
    if (nnc_type_numel(&y) > m->o.max_elements || overflows(m, e.r, mag))
        return;
    nnc_ref in[] = {e.r, gen_weight(m, (nnc_dtype)t.dtype, t.rank, dim, 1, 0)};
    nnc_attr at[] = {nnc_av(AT_kernel, w.s, w.k), nnc_av(AT_strides, w.s, w.stride),
        nnc_av(AT_pads, 2 * w.s, w.pads), nnc_av(AT_dilations, w.s, w.dil),
        nnc_ai(AT_groups, groups)};
    gen_keep(m, nnc_build(m->g, OP_conv_wgrad, 2, in, 5, at), mag, false);
}

static void add_matmul(gen *m, entry a)
{
    const nnc_type t = *type_of(m, a.r);
    bool ta = gen_chance(m, 25), tb = gen_chance(m, 40);
    int64_t k = t.dim[t.rank - (ta ? 2 : 1)], rows = nnc_type_numel(&t) / k,
            n = gen_between(m, 1, 12);
    entry b = {NNC_NONE, 1, true};
    for (int tries = 0; tries < 6 && b.r == NNC_NONE;
         tries++) { /* a value [.., k, n], two-dimensional */
        const entry *e = gen_pick(m);
        const nnc_type *u = type_of(m, e->r);
        if (u->dtype == t.dtype && u->rank == 2 && u->dim[tb ? 1 : 0] == k) {
            b = *e;
            n = u->dim[tb ? 0 : 1];
        }
    }
    int64_t lead = t.rank > 2 && gen_chance(m, 40) ? t.dim[t.rank - 3] : 0;
    int64_t dim[3] = {lead, tb ? n : k, tb ? k : n};
    double mag = a.mag * b.mag * (double)k;
    if (rows * n > m->o.max_elements || overflows(m, a.r, mag))
        return;
    if (b.r == NNC_NONE)
        b.r = gen_weight(m, (nnc_dtype)t.dtype, lead ? 3 : 2, lead ? dim : dim + 1, 1, 0);
    nnc_ref two[2] = {a.r, b.r};
    nnc_attr at[2] = {nnc_ai(AT_transpose_a, ta), nnc_ai(AT_transpose_b, tb)};
    gen_keep(m, nnc_build(m->g, OP_matmul, 2, two, 2, at), mag, false);
}

static void add_linear(gen *m, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    int64_t in = t.dim[t.rank - 1], out = gen_between(m, 1, 16), dim[2] = {out, in};
    double mag = e.mag * (double)in + 1;
    if (nnc_type_numel(&t) / in * out > m->o.max_elements || overflows(m, e.r, mag))
        return;
    nnc_dtype d = (nnc_dtype)t.dtype;
    nnc_ref x[3] = {e.r, gen_weight(m, d, 2, dim, 1, 0), NNC_NONE};
    int n = gen_chance(m, 60) ? 3 : 2;
    if (n == 3)
        x[2] = gen_weight(m, d, 1, &out, 1, 0);
    gen_keep(m, nnc_build(m->g, OP_linear, n, x, 0, NULL), mag, false);
}

static void add_contract(gen *m)
{
    const entry *e = gen_chance(m, 60) ? pick_where(m, image) : NULL;
    int before = m->n;
    if (e && !m->o.no_gradients && gen_chance(m, 12))
        add_wgrad(m, *e);
    else if (e)
        add_conv(m, *e, gen_chance(m, 25));
    else if (!(e = pick_where(m, matrix)))
        return;
    else if (gen_chance(m, 50))
        add_matmul(m, *e);
    else
        add_linear(m, *e);
    if (m->n == before || !gen_chance(m, 70))
        return;
    /* an epilogue */
    static const nnc_op after[] = {
        OP_relu, OP_silu, OP_gelu, OP_sigmoid, OP_tanh, OP_relu6, OP_hardswish};
    entry last = m->pool[m->n - 1];
    if (gen_chance(m, 40)) {
        add_binary(m, OP_add, last);
        last = m->pool[m->n - 1];
    }
    nnc_op op = after[gen_draw(m, NNC_COUNT(after))];
    if (allowed(m, op, &last))
        add_unary(m, op, last);
}

/* ---- named ops with reductions ---- */

static void add_norm(gen *m, nnc_op op, entry e)
{
    const nnc_type t = *type_of(m, e.r);
    nnc_dtype d = (nnc_dtype)t.dtype;
    nnc_ref in[5] = {e.r};
    nnc_attr at[2] = {nnc_af(AT_eps, m->o.wild ? 1e-5 : 0.1)};
    int na = 1, n = 1, rank = 1;
    const int64_t *dim = &t.dim[1];
    if (op == OP_layernorm || op == OP_rmsnorm) {
        int axis = (int)gen_draw(m, t.rank);
        at[na++] = nnc_ai(AT_axis, axis);
        rank = t.rank - axis;
        dim = &t.dim[axis];
    }
    if (op == OP_groupnorm)
        at[na++] = nnc_ai(AT_num_groups, t.dim[1] % 2 == 0 && gen_chance(m, 60) ? 2
                                         : gen_chance(m, 50)                    ? t.dim[1]
                                                                                : 1);
    int most = op == OP_batchnorm ? 5
               : op == OP_rmsnorm ? (int)gen_between(m, 1, 2)
                                  : (int)gen_between(m, 1, 3);
    for (; n < most; n++)
        in[n] = gen_weight(m, d, rank, dim, n == 4 ? 0.4 : 1, n == 4 ? 1 : 0);
    /* |x - mean| / sqrt(var) <= sqrt(count); batchnorm divides by sqrt(0.7) at least */
    double mag = op == OP_batchnorm ? 1.3 * (e.mag + 1) + 1 : LIMIT;
    gen_keep(m, nnc_build(m->g, op, n, in, na, at), mag, false);
}

static void add_comp(gen *m)
{
    static const nnc_op ops[] = {OP_softmax, OP_log_softmax, OP_layernorm, OP_rmsnorm, OP_batchnorm,
        OP_groupnorm, OP_global_avgpool, OP_global_maxpool};
    nnc_op op = ops[gen_draw(m, NNC_COUNT(ops))];
    bool pool = op == OP_global_avgpool || op == OP_global_maxpool;
    const entry *p = pick_where(m, pool ? image : any_float);
    if (!p || (op == OP_global_avgpool && !is_float(m, p->r)))
        return;
    entry e = *p;
    int rank = type_of(m, e.r)->rank;
    if (pool) {
        gen_keep(m, nnc_build1(m->g, op, e.r), e.mag, false);
    } else if (op == OP_softmax || op == OP_log_softmax) {
        if (rank < 1)
            return;
        nnc_attr at = nnc_ai(AT_axis, gen_draw(m, (uint32_t)rank));
        gen_keep(
            m, nnc_build(m->g, op, 1, &e.r, 1, &at), op == OP_softmax ? 1 : 2 * e.mag + 9, false);
    } else if (rank >= 2) {
        add_norm(m, op, e);
    }
}

/* ---- the graph ---- */

static void add_node(gen *m)
{
    if (m->o.quirks && gen_chance(m, 35)) {
        gen_quirk(m);
        return;
    }
    static const struct {
        nnc_class cls;
        uint32_t weight;
    } row[] = {{CL_ewise, 30}, {CL_ecomp, 15}, {CL_reduce, 17}, {CL_move, 16}, {CL_window, 6},
        {CL_contract, 9}, {CL_comp, 9}, {CL_loop, 5}};
    uint32_t total = 0;
    for (size_t i = 0; i < NNC_COUNT(row); i++)
        total += m->o.classes >> row[i].cls & 1 ? row[i].weight : 0;
    uint32_t at = gen_draw(m, total ? total : 1);
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        if (!(m->o.classes >> row[i].cls & 1))
            continue;
        if (at >= row[i].weight) {
            at -= row[i].weight;
            continue;
        }
        switch (row[i].cls) {
        case CL_reduce: add_reduce(m); return;
        case CL_move: add_move(m); return;
        case CL_window: add_window(m); return;
        case CL_contract: add_contract(m); return;
        case CL_comp: add_comp(m); return;
        case CL_loop: add_scan(m); return;
        default: add_ewise(m, row[i].cls); return;
        }
    }
}

static void add_outputs(gen *m)
{
    nnc_graph *g = m->g;
    uint32_t *uses = nnc_use_counts(g, &g->arena);
    if (!uses) {
        g->status = NNC_E_NOMEM;
        return;
    }
    for (uint32_t r = 0; r < g->n_value; r++) {
        char name[32];
        snprintf(name, sizeof name, "y%u", (unsigned)g->n_output);
        if (uses[r] > 0 || nnc_op_class((nnc_op)nnc_def(g, r)->op) == CL_leaf)
            continue;
        if (!m->o.quirks || g->n_output == 0 ||
            gen_chance(m, 80)) /* else: a layer that nothing uses */
            nnc_output(g, r, name);
    }
    for (uint32_t r = 0, n = g->n_value; m->o.quirks && r < n; r++) {
        char name[32];
        snprintf(name, sizeof name, "also%u", (unsigned)r);
        bool jumps =
            !m->o.wild && nnc_typeof(g, r)->dtype == DT_bool; /* of a choice between equals */
        /* often the plain result of a contraction, which then is no epilogue's to overwrite */
        uint32_t percent = nnc_op_class((nnc_op)nnc_def(g, r)->op) == CL_contract ? 25 : 6;
        if (gen_chance(m, percent) && nnc_def(g, r)->op != OP_param && !jumps)
            nnc_output(g, r, name);
    }
    if (g->n_output == 0) /* nothing but leaves: one op after all */
        nnc_output(g, nnc_build1(g, OP_identity, m->pool[0].r), "y0");
}

nnc_graph *gen_graph(const gen_options *o, nnc_sink *sink)
{
    gen *m = nnc_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->o = *o;
    m->o.nodes = o->nodes ? o->nodes : 12;
    m->o.dtypes = o->dtypes ? o->dtypes : 1u << DT_f32;
    m->o.classes = o->classes ? o->classes : ~(1u << CL_loop);
    m->o.max_elements = o->max_elements ? o->max_elements : 4096;
    m->key = nnc_rng_key("gen_graph", o->seed);
    nnc_graph *g = m->g = nnc_graph_create("gen", sink);
    if (g) {
        int inputs = (int)gen_between(m, 2, 4);
        for (int i = 0; i < inputs; i++)
            add_input(m, i < 2 ? i : 2);
        uint32_t leaves = g->n_node;
        for (int tries = 0; tries < 4 * m->o.nodes && g->status == NNC_OK; tries++) {
            int weights = m->weights;
            if ((int)(g->n_node - leaves) >= m->o.nodes)
                break;
            add_node(m);
            leaves += (uint32_t)(m->weights - weights);
        }
        add_outputs(m);
        if (g->status == NNC_OK)
            g->status = nnc_verify(g, sink);
        if (g->status != NNC_OK) {
            nnc_graph_destroy(g);
            g = NULL;
        }
    }
    nnc_free(m);
    return g;
}

void gen_fill_input(const nnc_type *t, uint64_t seed, int index, void *dst)
{
    char name[32];
    snprintf(name, sizeof name, "input%d", index);
    uint64_t key = nnc_rng_key(name, seed);
    nnc_dtype d = (nnc_dtype)t->dtype;
    int64_t n = nnc_type_numel(t);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = nnc_rng_u32(key, (uint64_t)i);
        if (nnc_is_float(d))
            nnc_set_f64(d, dst, i, 4.0 * nnc_rng_uniform(key, (uint64_t)i) - 2);
        else if (d == DT_bool)
            nnc_set_i64(d, dst, i, u & 1);
        else if (u & 256) /* half are small, so that sums and comparisons are not all wrap */
            nnc_set_i64(d, dst, i, (int64_t)(u & 15) - (nnc_dtype_kind(d) == NNC_INT ? 8 : 0));
        else
            nnc_set_i64(d, dst, i, (int64_t)((uint64_t)u << 32 | nnc_rng_u32(~key, (uint64_t)i)));
    }
}

nnc_graph *gen_fused(const nnc_graph *g, nnc_sink *sink)
{
    nnc_graph *f = nnc_graph_create("fused", sink), *body = nnc_graph_clone(g, sink);
    nnc_ref in[64];
    int n = 0;
    if (!f || !body) {
        nnc_graph_destroy(f);
        nnc_graph_destroy(body);
        return NULL;
    }
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input && n < 64)
            in[n++] = nnc_input(f, NULL, nnc_typeof(g, g->node[i].out));
    nnc_ref r = nnc_fused(f, body, n, in);
    for (uint32_t i = 0; r != NNC_NONE && i < g->n_output; i++)
        nnc_output(f, r + i, NULL);
    if (f->status != NNC_OK) {
        nnc_graph_destroy(f);
        return NULL;
    }
    return f;
}

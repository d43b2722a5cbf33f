/* passes/algebra.c -- algebraic simplification by facts about ops. Each rule states its equation. Rules of level 1 change no bit of the
 * result. Exceptions: NaN payloads, and the sign of a zero from max and min, which IEEE leaves open. Level 2 may change the sign of a zero
 * or round less often. Terminates: every rule removes a node, shortens a chain of movements, or replaces an op by one that no rule turns
 * back. */
#include "passes/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

typedef nnc_ref (*rule_fn)(pass *p, const nnc_node *n);

/* ---- questions ------------------------------------------------------------------------------- */

static const nnc_node *def_by(pass *p, nnc_ref v, nnc_op op)
{
    const nnc_node *d = def_of(p, v);
    return d->op == op ? d : NULL;
}

static bool is_const(pass *p, nnc_ref v, double c)
{
    double x;
    return nnc_const_scalar(p->g, v, &x) && x == c && !signbit(x) == !signbit(c);
}

static bool any_zero(pass *p, nnc_ref v)
{
    double x;
    return nnc_const_scalar(p->g, v, &x) && x == 0;
}

static nnc_dtype dtype_of(pass *p, const nnc_node *n)
{
    return type_of(p, n->out)->dtype;
}

static bool is_int(pass *p, const nnc_node *n)
{
    nnc_dkind k = nnc_dtype_kind(dtype_of(p, n));
    return k == NNC_INT || k == NNC_UINT;
}

static nnc_ref rebuild(pass *p, const nnc_node *n, const nnc_ref *in)
{
    return nnc_build(p->g, n->op, n->n_in, in, n->n_attr, n->attr);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* identity(x) = x, dropout(x) = x at inference */
static nnc_ref copy_of(pass *p, const nnc_node *n)
{
    (void)p;
    return n->in[0];
}

/* f(f(x)) = x */
static nnc_ref involution(pass *p, const nnc_node *n)
{
    const nnc_node *d;
    if (!(nnc_ops[n->op].flags & OF_invol) || n->n_in != 1 || !(d = def_by(p, n->in[0], n->op)))
        return NNC_NONE;
    return d->in[0];
}

/* f(f(x)) = f(x) */
static nnc_ref idempotent(pass *p, const nnc_node *n)
{
    const nnc_node *d;
    if (!(nnc_ops[n->op].flags & OF_idem) || n->n_in != 1 || !(d = def_by(p, n->in[0], n->op)))
        return NNC_NONE;
    return attrs_equal(n, d) ? n->in[0] : NNC_NONE;
}

/* x / 2^k = x 2^-k, both powers normal numbers of the type */
static nnc_ref div_power(pass *p, const nnc_node *n)
{
    double c;
    int e;
    nnc_dtype d = dtype_of(p, n);
    if (!nnc_is_float(d) || !nnc_const_scalar(p->g, n->in[1], &c) || c == 0 || !isfinite(c) ||
        fabs(frexp(c, &e)) != 0.5 || abs(e) > (d == DT_f16 ? 12 : 120))
        return NNC_NONE;
    return nnc_build2(p->g, OP_mul, n->in[0], nnc_scalar(p->g, d, 1 / c));
}

/* a + (-b) = a - b, a - (-b) = a + b, (-a) (-b) = a b, (-a) / (-b) = a / b */
static nnc_ref negated(pass *p, const nnc_node *n)
{
    if (n->n_in != 2)
        return NNC_NONE;
    const nnc_node *a = def_by(p, n->in[0], OP_neg), *b = def_by(p, n->in[1], OP_neg);
    nnc_ref x = n->in[0], y = n->in[1];
    if (n->op == OP_add && b)
        return nnc_build2(p->g, OP_sub, x, b->in[0]);
    if (n->op == OP_add && a)
        return nnc_build2(p->g, OP_sub, y, a->in[0]);
    if (n->op == OP_sub && b)
        return nnc_build2(p->g, OP_add, x, b->in[0]);
    if ((n->op == OP_mul || (n->op == OP_div && nnc_is_float(dtype_of(p, n)))) && a && b)
        return nnc_build2(p->g, n->op, a->in[0], b->in[0]);
    return NNC_NONE;
}

/* |-x| = |x|, cos(-x) = cos x, x x = (-x)(-x) */
static nnc_ref even(pass *p, const nnc_node *n)
{
    bool e = n->op == OP_abs || n->op == OP_cos || n->op == OP_cosh || n->op == OP_square;
    const nnc_node *d = e ? def_by(p, n->in[0], OP_neg) : NULL;
    if (d && n->op == OP_abs && nnc_dtype_kind(dtype_of(p, n)) == NNC_UINT)
        return NNC_NONE; /* -x is 2^n - x there, and |x| is x */
    return d ? nnc_build1(p->g, n->op, d->in[0]) : NNC_NONE;
}

/* max(x,x) = min(x,x) = x and x = x or x = select(c,x,x) = x */
static nnc_ref same_operands(pass *p, const nnc_node *n)
{
    (void)p;
    bool two = n->op == OP_max || n->op == OP_min || n->op == OP_and || n->op == OP_or;
    if (two && n->in[0] == n->in[1])
        return n->in[0];
    return n->op == OP_select && n->in[1] == n->in[2] ? n->in[1] : NNC_NONE;
}

/* integers: x - x = 0, x 0 = 0 (not for floats: NaN and infinity) */
static nnc_ref int_zero(pass *p, const nnc_node *n)
{
    if (!is_int(p, n))
        return NNC_NONE;
    bool zero = (n->op == OP_sub && n->in[0] == n->in[1]) ||
                (n->op == OP_mul && (any_zero(p, n->in[0]) || any_zero(p, n->in[1])));
    if (!zero)
        return NNC_NONE;
    nnc_type t = *type_of(p, n->out);
    return nnc_broadcast(p->g, nnc_scalar(p->g, t.dtype, 0), t.rank, t.dim);
}

/* Is n a clip, relu, relu6, or a float max or min with a number? It bounds its operand *x to *lo .. *hi. */
static bool bounds(pass *p, const nnc_node *n, nnc_ref *x, double *lo, double *hi)
{
    double c;
    *lo = n->op == OP_relu || n->op == OP_relu6 ? 0 : nnc_attr_float(n, AT_lo, -INFINITY);
    *hi = n->op == OP_relu6 ? 6 : nnc_attr_float(n, AT_hi, INFINITY);
    *x = n->n_in ? n->in[0] : NNC_NONE;
    if (n->op == OP_max || n->op == OP_min) {
        int k = nnc_const_scalar(p->g, n->in[1], &c) ? 1 : 0;
        if ((k == 0 && !nnc_const_scalar(p->g, n->in[0], &c)) || c != c ||
            !nnc_is_float(dtype_of(p, n)))
            return false;
        *x = n->in[1 - k];
        *(n->op == OP_max ? lo : hi) = c;
        return true;
    }
    return (n->op == OP_clip || n->op == OP_relu || n->op == OP_relu6) && *lo <= *hi;
}

/* relu(x) = x where x >= 0, clip(x,lo,hi) = x where lo <= x <= hi, max(x,c) = x where x >= c, min
 * likewise */
static nnc_ref decided(pass *p, const nnc_node *n)
{
    double lo, hi, a, b;
    nnc_ref x;
    if (!nnc_is_float(dtype_of(p, n)) ||
        !bounds(p, n, &x, &a, &b)) /* integers wrap out of an op's range: |-128| */
        return NNC_NONE;
    nnc_value_range(p->g, x, &lo, &hi);
    return lo >= a && hi <= b ? x : NNC_NONE;
}

/* clip(clip(x,a,b),c,d) = clip(x, max(a,c), min(b,d)) where the intervals meet; relu and relu6 are
 * clips; min(clip(x,a,b),c) = clip(x,a,c), max(clip(x,a,b),c) = clip(x,c,b) likewise */
static nnc_ref clip_clip(pass *p, const nnc_node *n)
{
    double a, b, lo, hi;
    nnc_ref x;
    if (!bounds(p, n, &x, &lo, &hi))
        return NNC_NONE;
    const nnc_node *d = def_of(p, x);
    if (d->op == OP_max || d->op == OP_min || !bounds(p, d, &x, &a, &b) ||
        fmax(a, lo) > fmin(b, hi))
        return NNC_NONE;
    const nnc_attr both[] = {nnc_af(AT_lo, fmax(a, lo)), nnc_af(AT_hi, fmin(b, hi))};
    return nnc_build(p->g, OP_clip, 1, &x, 2, both);
}

/* not (a == b) = (a != b); integers also not (a < b) = (a >= b) */
static nnc_ref not_compare(pass *p, const nnc_node *n)
{
    static const nnc_op turned[][2] = {{OP_eq, OP_ne}, {OP_ne, OP_eq}, {OP_lt, OP_ge},
        {OP_ge, OP_lt}, {OP_gt, OP_le}, {OP_le, OP_gt}};
    const nnc_node *d = def_of(p, n->in[0]);
    for (size_t i = 0; i < NNC_COUNT(turned); i++)
        if (d->op == turned[i][0] && (i < 2 || !nnc_is_float(type_of(p, d->in[0])->dtype)))
            return nnc_build2(p->g, turned[i][1], d->in[0], d->in[1]);
    return NNC_NONE;
}

/* True when type b represents every value of type a. */
static bool widens(nnc_dtype a, nnc_dtype b)
{
    nnc_dkind ka = nnc_dtype_kind(a), kb = nnc_dtype_kind(b);
    int sa = nnc_dtype_size(a), sb = nnc_dtype_size(b);
    if (a == b || ka == NNC_BOOL)
        return true;
    if (kb == NNC_FLOAT) /* all bits fit in the significand */
        return sa * 8 <= (b == DT_f64 ? 53 : b == DT_f32 ? 24 : b == DT_f16 ? 11 : 8);
    return (ka == kb && sb >= sa) || (ka == NNC_UINT && kb == NNC_INT && sb > sa);
}

/* cast(x, its own type) = x; cast(cast(x, wider), t) = cast(x, t) */
static nnc_ref casts(pass *p, const nnc_node *n)
{
    if (type_of(p, n->in[0])->dtype == dtype_of(p, n))
        return n->in[0];
    const nnc_node *d = def_by(p, n->in[0], OP_cast);
    if (!d)
        return NNC_NONE;
    nnc_dtype from = type_of(p, d->in[0])->dtype, mid = dtype_of(p, d);
    bool to_bool = dtype_of(p, n) == DT_bool;
    return widens(from, mid) && !to_bool ? nnc_cast(p->g, d->in[0], dtype_of(p, n)) : NNC_NONE;
}

/* ---- movement -------------------------------------------------------------------------------- */

/* True when all numbers of a list are v. */
static bool all_are(const nnc_node *n, nnc_akey key, int64_t v)
{
    const int64_t *list;
    for (int i = nnc_attr_ints(n, key, &list); i-- > 0;)
        if (list[i] != v)
            return false;
    return true;
}

/* A reshape, broadcast, slice, transpose, flip, relayout, split or concat without effect. */
static nnc_ref no_move(pass *p, const nnc_node *n)
{
    const int64_t *v;
    if (n->n_in != 1 || n->n_out != 1)
        return NNC_NONE;
    /* in_place's copy of an operand to its place in another value */
    if (n->op == OP_concat && !nnc_type_is_dense(type_of(p, n->out)))
        return NNC_NONE;
    switch (n->op) {
    case OP_transpose: {
        int r = nnc_attr_ints(n, AT_perm, &v);
        for (int i = 0; i < r; i++)
            if (v[i] != i)
                return NNC_NONE;
        return n->in[0];
    }
    case OP_pad: return all_are(n, AT_pads, 0) ? n->in[0] : NNC_NONE;
    case OP_flip: {
        int r = nnc_attr_ints(n, AT_axes, &v);
        for (int i = 0; i < r; i++)
            if (type_of(p, n->out)->dim[v[i]] != 1)
                return NNC_NONE;
        return n->in[0];
    }
    case OP_reshape:
    case OP_broadcast:
    case OP_slice:
    case OP_concat:
    case OP_split:
    case OP_relayout: /* the driver of the rules checks that the types are equal */ return n->in[0];
    default: return NNC_NONE;
    }
}

/* True when merging node n with the movement d before it would need an additional copy. n is now a free view of d's result, which others
 * use too. */
static bool costs_a_copy(pass *p, const nnc_node *n, const nnc_node *d)
{
    return nnc_is_view(p->g, n) && !nnc_is_view(p->g, d) && !edit_only_user(p, d->out);
}

/* transpose(transpose(x,p),q) = transpose(x, p[q]) */
static nnc_ref transposes(pass *p, const nnc_node *n)
{
    const int64_t *a, *b;
    int64_t perm[NNC_MAX_RANK];
    const nnc_node *d = def_by(p, n->in[0], OP_transpose);
    if (!d || costs_a_copy(p, n, d))
        return NNC_NONE;
    nnc_attr_ints(d, AT_perm, &a);
    int r = nnc_attr_ints(n, AT_perm, &b);
    for (int i = 0; i < r; i++)
        perm[i] = a[b[i]];
    return nnc_transpose(p->g, d->in[0], perm);
}

/* reshape(reshape(x)) = reshape(x); broadcast, relayout likewise; flip(flip(x)) = x on the same
 * axes */
static nnc_ref move_move(pass *p, const nnc_node *n)
{
    bool op =
        n->op == OP_reshape || n->op == OP_broadcast || n->op == OP_relayout || n->op == OP_flip;
    const nnc_node *d = op ? def_by(p, n->in[0], n->op) : NULL;
    if (!d)
        return NNC_NONE;
    if (n->op == OP_flip)
        return attrs_equal(n, d) ? d->in[0] : NNC_NONE;
    if (costs_a_copy(p, n, d))
        return NNC_NONE;
    if (n->op == OP_broadcast) { /* extents that the first one adds in front must not move */
        const nnc_type *x = type_of(p, d->in[0]), *y = type_of(p, d->out);
        if (x->rank != y->rank && y->rank > type_of(p, n->out)->rank)
            return NNC_NONE;
    }
    return rebuild(p, n, d->in);
}

/* f(x, broadcast(b)) = f(x, b) where f broadcasts to the same shape */
static nnc_ref broadcast_operand(pass *p, const nnc_node *n)
{
    if (!nnc_op_is_ewise(n->op) || n->n_in < 2)
        return NNC_NONE;
    for (int k = 0; k < n->n_in; k++) {
        const nnc_node *d = def_by(p, n->in[k], OP_broadcast);
        if (!d)
            continue;
        assert(n->n_in <= 3);
        nnc_ref in[3] = {n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : 0};
        in[k] = d->in[0];
        int64_t dim[NNC_MAX_RANK];
        nnc_type t = *type_of(p, n->out);
        int rank = 0;
        for (int j = 0; j < n->n_in && j < 3; j++) { /* the shape without this broadcast */
            const nnc_type *o = type_of(p, in[j]);
            for (; rank < o->rank; rank++)
                memmove(dim + 1, dim, (size_t)rank * sizeof *dim), dim[0] = 1;
            for (int i = 0; i < o->rank; i++)
                dim[rank - o->rank + i] = nnc_max64(dim[rank - o->rank + i], o->dim[i]);
        }
        if (rank == t.rank && !memcmp(dim, t.dim, (size_t)rank * sizeof *dim))
            return rebuild(p, n, in);
    }
    return NNC_NONE;
}

/* matmul(transpose(a), b) = matmul(a, b) with transpose_a inverted, for a transposition of the last two dimensions. Level 2, since the
 * order of a kernel's sums depends on which operand is transposed. */
static nnc_ref matmul_transposed(pass *p, const nnc_node *n)
{
    bool flag[2] = {nnc_attr_int(n, AT_transpose_a, 0), nnc_attr_int(n, AT_transpose_b, 0)},
         any = false;
    nnc_ref in[2] = {n->in[0], n->in[1]};
    for (int k = 0; k < 2; k++) {
        const nnc_node *d = def_by(p, in[k], OP_transpose);
        const int64_t *v;
        if (!d || edit_static(p, in[k]))
            continue;
        int r = nnc_attr_ints(d, AT_perm, &v);
        bool swap = r >= 2 && v[r - 1] == r - 2 && v[r - 2] == r - 1;
        for (int i = 0; i < r - 2; i++)
            swap = swap && v[i] == i;
        if (swap)
            in[k] = d->in[0], flag[k] = !flag[k], any = true;
    }
    nnc_attr a[2] = {nnc_ai(AT_transpose_a, flag[0]), nnc_ai(AT_transpose_b, flag[1])};
    return any ? nnc_build(p->g, OP_matmul, 2, in, 2, a) : NNC_NONE;
}

/* ---- reductions and windows ------------------------------------------------------------------ */

/* A reduction over extents of 1 is a reshape; pooling with 1x1 windows, stride 1 and no padding is the identity. A sum begins with 0, so
 * the sum of a single -0 is 0: sums of floats are rewritten only from level 2 on. */
static nnc_ref nothing_to_reduce(pass *p, const nnc_node *n)
{
    const nnc_type *x = n->n_in ? type_of(p, n->in[0]) : NULL;
    const nnc_type y = *type_of(p, n->out);
    const bool sums = n->op == OP_reduce_sum || n->op == OP_reduce_mean || n->op == OP_avgpool;
    if (sums && nnc_is_float(y.dtype) && p->o->level == 1)
        return NNC_NONE;
    if (n->op == OP_maxpool || n->op == OP_avgpool)
        return all_are(n, AT_kernel, 1) && all_are(n, AT_pads, 0) ? n->in[0] : NNC_NONE;
    if (nnc_op_class(n->op) != CL_reduce || n->op == OP_argmax || n->op == OP_argmin ||
        nnc_type_numel(x) != nnc_type_numel(&y))
        return NNC_NONE;
    return nnc_reshape(p->g, n->in[0], y.rank, y.dim);
}

/* reduce_max(reduce_max(x)) = reduce_max(x) over both, kept dimensions only; min likewise */
static nnc_ref reduce_reduce(pass *p, const nnc_node *n)
{
    const nnc_node *d =
        n->op == OP_reduce_max || n->op == OP_reduce_min ? def_by(p, n->in[0], n->op) : NULL;
    const int64_t *a, *b;
    int64_t axes[2 * NNC_MAX_RANK];
    if (!d || !edit_only_user(p, d->out) || !nnc_attr_int(d, AT_keepdims, 1) ||
        !nnc_attr_int(n, AT_keepdims, 1))
        return NNC_NONE;
    int na = nnc_attr_ints(n, AT_axes, &a), nb = nnc_attr_ints(d, AT_axes, &b), c = 0;
    for (int64_t i = 0; i < NNC_MAX_RANK; i++) {
        bool in = false;
        for (int k = 0; k < na; k++)
            in = in || a[k] == i;
        for (int k = 0; k < nb; k++)
            in = in || b[k] == i;
        if (in)
            axes[c++] = i;
    }
    return nnc_reduce(p->g, n->op, d->in[0], c, axes, true);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The result if an operand is the number `c`: the other operand x, or op(x). */
typedef struct constant_rule {
    enum { NO_NUMBER, SECOND, EITHER } which; /* operand */
    enum { OF_ANY, OF_INTS, OF_FLOATS } types;
    double c;
    nnc_op result; /* identity: x itself */
} constant_rule;

static nnc_ref with_number(pass *p, const nnc_node *n, const constant_rule *r)
{
    if ((r->types == OF_INTS && !is_int(p, n)) ||
        (r->types == OF_FLOATS && !nnc_is_float(dtype_of(p, n))))
        return NNC_NONE;
    for (int k = r->which == EITHER ? 0 : 1; k < 2; k++)
        if (is_const(p, n->in[k], r->c))
            return r->result == OP_identity ? n->in[1 - k]
                                            : nnc_build1(p->g, r->result, n->in[1 - k]);
    return NNC_NONE;
}

#define ANY_OP OP_input /* no rule is for inputs */

static const struct rule {
    const char *name;
    int level;
    nnc_op op; /* of the node */
    rule_fn match; /* NULL: by `number` */
    constant_rule number;
    const char *equation;
} table[] = {
    {"copy", 1, OP_identity, copy_of, {0},
        "identity and dropout at inference return their operand"},
    {"copy", 1, OP_dropout, copy_of, {0}, "identity and dropout at inference return their operand"},
    {"involution", 1, ANY_OP, involution, {0}, "f(f(x)) = x"},
    {"idempotent", 1, ANY_OP, idempotent, {0}, "f(f(x)) = f(x)"},
    {"neutral operand", 1, OP_add, NULL, {EITHER, OF_FLOATS, -0.0, OP_identity}, "x + 0 = x"},
    {"neutral operand", 1, OP_add, NULL, {EITHER, OF_INTS, 0, OP_identity}, "x + 0 = x"},
    {"neutral operand", 1, OP_sub, NULL, {SECOND, OF_ANY, 0, OP_identity}, "x - 0 = x"},
    {"neutral operand", 1, OP_mul, NULL, {EITHER, OF_ANY, 1, OP_identity},
        "x * 1 = x / 1 = x^1 = x"},
    {"neutral operand", 1, OP_div, NULL, {SECOND, OF_ANY, 1, OP_identity},
        "x * 1 = x / 1 = x^1 = x"},
    {"neutral operand", 1, OP_pow, NULL, {SECOND, OF_ANY, 1, OP_identity},
        "x * 1 = x / 1 = x^1 = x"},
    {"negation", 1, OP_mul, NULL, {EITHER, OF_ANY, -1, OP_neg},
        "x * -1 = -x"}, /* x / -1 is x * -1 by then */
    {"negation", 1, ANY_OP, negated, {0}, "two negations meet"},
    {"negation", 1, ANY_OP, even, {0}, "f(-x) = f(x)"},
    {"division by a power of two", 1, OP_div, div_power, {0}, "x / 2^k = x * 2^-k"},
    {"equal operands", 1, ANY_OP, same_operands, {0}, "f(x, x) = x"},
    {"integer zero", 1, ANY_OP, int_zero, {0}, "x - x = x * 0 = 0 for integers"},
    {"decided bound", 1, ANY_OP, decided, {0},
        "the operand's range already lies within the bounds"},
    {"max with 0", 1, OP_max, NULL, {EITHER, OF_ANY, 0, OP_relu},
        "max(x, 0) = relu(x)"}, /* engines support relu by name */
    {"merged bounds", 1, ANY_OP, clip_clip, {0}, "clip(clip(x)) = one clip to the common interval"},
    {"negated comparison", 1, OP_not, not_compare, {0}, "not (a == b) = (a != b)"},
    {"merged casts", 1, OP_cast, casts, {0}, "a cast to a wider type and back loses nothing"},
    {"power", 2, OP_pow, NULL, {SECOND, OF_FLOATS, 2, OP_square}, "x^2 = x * x, x^-1 = 1/x"},
    {"power", 2, OP_pow, NULL, {SECOND, OF_FLOATS, -1, OP_recip}, "x^2 = x * x, x^-1 = 1/x"},
    {"empty move", 1, ANY_OP, no_move, {0}, "the result is the operand"},
    {"merged moves", 1, OP_transpose, transposes, {0}, "two transpositions are one"},
    {"merged moves", 1, ANY_OP, move_move, {0},
        "the first of two moves is undone or overtaken by the second"},
    {"implicit broadcast", 1, ANY_OP, broadcast_operand, {0},
        "elementwise ops broadcast by themselves"},
    {"transposed operand", 2, OP_matmul, matmul_transposed, {0},
        "matmul reads its operand transposed"},
    {"convolution of one place", 2, ANY_OP, rule_one_place, {0},
        "trained weights multiply one place: a matrix product for each group"},
    {"product of few terms", 2, OP_matmul, rule_few_terms, {0},
        "its sums are computed in the kernel that reads them"},
    {"gradient in its update", 2, OP_matmul, rule_update, {0},
        "the kernel that updates the weight computes it"},
    {"empty reduction", 1, ANY_OP, nothing_to_reduce, {0}, "windows and axes of extent 1"},
    {"merged reductions", 1, ANY_OP, reduce_reduce, {0},
        "max(max(x)) = max(x) over both sets of axes"},
};

static bool try_rule(pass *p, uint32_t i, const struct rule *r)
{
    nnc_node n = p->g->node[i];
    uint32_t first = p->g->n_node;
    edit_at(p, i);
    nnc_ref to = r->match ? r->match(p, &n) : with_number(p, &n, &r->number);
    if (!edit_sync(p) || to == NNC_NONE)
        return false;
    if (!nnc_type_equal(type_of(p, to), type_of(p, n.out)) || to == n.out) {
        for (uint32_t k = p->g->n_node; k-- > first;)
            edit_sweep(p, k);
        return false;
    }
    layers l = layers_of(p, i, NNC_NONE);
    const char *word = nnc_ops[n.op].name;
    edit_replace(p, n.out, to);
    remark_applied(p, &l, r->name, "%s: %s", word, r->equation);
    return true;
}

nnc_status pass_algebra(pass *p)
{
    int level = p->o->n_only > 0 && p->o->level == 0 ? 2 : p->o->level;
    int64_t left =
        4 * (int64_t)p->g->n_node + 64; /* no rule loops; this limits the damage of a mistake */
    for (bool again = true; again && p->status == NNC_OK && left > 0;) {
        again = false;
        for (uint32_t i = 0; i < p->g->n_node && p->status == NNC_OK && left > 0; i++)
            for (size_t k = 0; k < NNC_COUNT(table) && !p->e.dead[i]; k++)
                if (nnc_op_class(p->g->node[i].op) != CL_leaf && table[k].level <= level &&
                    (table[k].op == ANY_OP || table[k].op == p->g->node[i].op) &&
                    try_rule(p, i, &table[k])) {
                    again = true;
                    left--;
                    break;
                }
    }
    return p->status;
}

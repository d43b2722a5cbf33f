/* onnx/build_einsum.c -- Einsum: operands are contracted two by two, each time as one matrix product or, where nothing is summed, as one
 * elementwise product. */
#include "onnx/internal.h"
#include <string.h>

/* Letters of the equation are labels of dimensions; those of "..." are DOTS and on, the last dimension first. */
enum { DOTS = 128, MAX_LABEL = DOTS + NNC_MAX_RANK };

typedef struct term { /* a value and the labels of its dimensions */
    nnc_ref v;
    int rank;
    uint8_t label[NNC_MAX_RANK];
} term;

typedef struct einsum {
    ox_build *b;
    int64_t extent[MAX_LABEL];
    int times[MAX_LABEL]; /* in all operands */
    bool none[MAX_LABEL]; /* an operand has no elements along it */
    uint8_t out[2 * NNC_MAX_RANK];
    int n_out, dots; /* dimensions that "..." is, the most of all operands */
} einsum;

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int find_label(const uint8_t *label, int n, int which)
{
    for (int i = 0; i < n; i++)
        if (label[i] == which)
            return i;
    return -1;
}

/* Reads the labels of one operand, or of the result, up to ',' or '-' or the end. dots: dimensions of "...". */
static bool read_labels(einsum *e, const char **p, int dots, uint8_t *label, int most, int *n)
{
    *n = 0;
    for (; **p && **p != ',' && **p != '-'; ++*p) {
        bool ellipsis = !strncmp(*p, "...", 3);
        if (**p == ' ')
            continue;
        if (!ellipsis && !letter(**p))
            return ox_wrong(e->b, "the equation has `%.1s`", *p);
        for (int k = ellipsis ? dots - 1 : 0; k >= 0; k--) {
            if (*n == most)
                return ox_wrong(e->b, "a term of the equation has too many letters");
            label[(*n)++] = (uint8_t)(ellipsis ? DOTS + k : **p);
        }
        *p += ellipsis ? 2 : 0;
    }
    return true;
}

/* Letters of the operand that begins here, without dots and blanks. */
static int count_letters(const char *p)
{
    int n = 0;
    for (; *p && *p != ',' && *p != '-'; p++)
        n += letter(*p);
    return n;
}

static bool read_operand(einsum *e, const char **p, int i, term *t)
{
    const nnc_type shape = ox_shape_of(e->b, i), *x = &shape;
    int dots = x->rank - count_letters(*p);
    t->v = ox_in(e->b, i);
    if (!read_labels(e, p, dots > 0 ? dots : 0, t->label, NNC_MAX_RANK, &t->rank))
        return false;
    if (t->rank != x->rank)
        return ox_wrong(e->b, "input %d has %d dimensions, its term %d", i, x->rank, t->rank);
    for (int k = 0; k < t->rank; k++) {
        int64_t *n = &e->extent[t->label[k]];
        bool *none = &e->none[t->label[k]];
        if ((*n > 1 || *none) && x->dim[k] != 1 && *n != x->dim[k])
            return ox_wrong(
                e->b, "a letter stands for %lld and %lld", (long long)*n, (long long)x->dim[k]);
        *none |= x->dim[k] == 0;
        *n = *none ? 0 : nnc_max64(*n, x->dim[k]);
        e->times[t->label[k]]++;
        if (t->label[k] >= DOTS)
            e->dots = nnc_max64(e->dots, t->label[k] - DOTS + 1);
    }
    return true;
}

/* The labels of the result: stated, or those of "..." and the letters that occur once, in order. */
static bool read_result(einsum *e, const char *p)
{
    if (p[0] == '-' && p[1] == '>') {
        p += 2;
        if (!read_labels(e, &p, e->dots, e->out, NNC_MAX_RANK, &e->n_out))
            return false;
        for (int i = 0; i < e->n_out; i++)
            if (!e->times[e->out[i]] || find_label(e->out, i, e->out[i]) >= 0)
                return ox_wrong(e->b, "a letter of its result is in no operand, or there twice");
        return !*p || ox_wrong(e->b, "the equation has two results");
    }
    for (int k = e->dots - 1; k >= 0; k--)
        e->out[e->n_out++] = (uint8_t)(DOTS + k);
    for (int c = 0; c < DOTS && e->n_out <= NNC_MAX_RANK; c++)
        if (e->times[c] == 1)
            e->out[e->n_out++] = (uint8_t)c;
    return e->n_out <= NNC_MAX_RANK || ox_wrong(e->b, "the result has too many dimensions");
}

/* ---- one term -------------------------------------------------------------------------------- */

static void drop(term *t, int at)
{
    memmove(t->label + at, t->label + at + 1, (size_t)(--t->rank - at));
}

/* A label that occurs twice: only elements whose two indices are equal count. */
static bool take_diagonals(einsum *e, term *t)
{
    for (int i = t->rank - 1; i > 0; i--) {
        int first = find_label(t->label, i, t->label[i]);
        if (first < 0)
            continue;
        ox_build *b = e->b;
        int64_t n = e->extent[t->label[i]], axis = i;
        const int64_t *dim = ox_type(b, t->v)->dim;
        if (dim[i] != dim[first])
            return ox_wrong(
                b, "a letter stands for %lld and %lld", (long long)dim[i], (long long)dim[first]);
        nnc_ref at = ox_iota(b, DT_i32, n);
        nnc_ref same = ox_2(b, OP_eq, ox_along(b, at, t->rank, first), ox_along(b, at, t->rank, i));
        t->v = ox_select(b, same, t->v, ox_num(b, ox_dt(b, t->v), 0));
        t->v = ox_reduced(b, OP_reduce_sum, t->v, 1, &axis, false);
        drop(t, i);
    }
    return true;
}

/* Terms that are still to be contracted with one: another, and a list. */
typedef struct others {
    const term *one, *rest;
    int n_rest;
} others;

static bool needed(const einsum *e, const others *o, int label)
{
    bool yes = find_label(e->out, e->n_out, label) >= 0;
    if (o->one)
        yes = yes || find_label(o->one->label, o->one->rank, label) >= 0;
    for (int i = 0; i < o->n_rest; i++)
        yes = yes || find_label(o->rest[i].label, o->rest[i].rank, label) >= 0;
    return yes;
}

/* Sums over labels that neither the result nor another term has. */
static void sum_rest(einsum *e, term *t, const others *o)
{
    int64_t axes[NNC_MAX_RANK];
    int n = 0, to = 0;
    for (int i = 0; i < t->rank; i++)
        if (!needed(e, o, t->label[i]))
            axes[n++] = i;
        else
            t->label[to++] = t->label[i];
    t->rank = to;
    if (n)
        t->v = ox_reduced(e->b, OP_reduce_sum, t->v, n, axes, false);
}

/* The dimensions in the order of these labels, all of which it has. */
static nnc_ref in_order(einsum *e, const term *t, const uint8_t *label)
{
    int64_t perm[NNC_MAX_RANK];
    bool moved = false;
    for (int i = 0; i < t->rank; i++) {
        perm[i] = find_label(t->label, t->rank, label[i]);
        moved = moved || perm[i] != i;
    }
    return moved ? ox_transposed(e->b, t->v, perm) : t->v;
}

/* ---- two terms ------------------------------------------------------------------------------- */

typedef struct roles { /* of the labels of two terms */
    uint8_t batch[NNC_MAX_RANK], left[NNC_MAX_RANK], right[NNC_MAX_RANK], sum[NNC_MAX_RANK];
    int n_batch, n_left, n_right, n_sum;
} roles;

static void find_roles(const einsum *e, const term *x, const term *y, const others *o, roles *r)
{
    *r = (roles){.n_batch = 0};
    for (int i = 0; i < x->rank; i++) {
        uint8_t c = x->label[i];
        if (find_label(y->label, y->rank, c) < 0)
            r->left[r->n_left++] = c;
        else if (needed(e, o, c))
            r->batch[r->n_batch++] = c;
        else
            r->sum[r->n_sum++] = c;
    }
    for (int i = 0; i < y->rank; i++)
        if (find_label(x->label, x->rank, y->label[i]) < 0)
            r->right[r->n_right++] = y->label[i];
}

static int64_t product_of(const einsum *e, const uint8_t *label, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= e->extent[label[i]];
    return p;
}

/* Extents of 1 that stand for a larger one become that. */
static void widen(einsum *e, term *t)
{
    int64_t d[NNC_MAX_RANK];
    const nnc_type x = *ox_type(e->b, t->v);
    for (int i = 0; i < t->rank; i++)
        d[i] = e->extent[t->label[i]];
    if (memcmp(d, x.dim, (size_t)t->rank * sizeof *d) != 0)
        t->v = ox_broadcast(e->b, t->v, t->rank, d);
}

/* t as [batch ..., own, summed]; without matrix: [batch ..., own ...] with 1 for the other's own, which come `after` or before. */
static nnc_ref operand(einsum *e, const term *t, const roles *r, const uint8_t *own, int n_own,
    int n_other, bool after)
{
    uint8_t order[3 * NNC_MAX_RANK] = {0};
    int64_t d[3 * NNC_MAX_RANK];
    int n = r->n_batch, m = n;
    memcpy(order, r->batch, (size_t)n);
    memcpy(order + n, own, (size_t)n_own);
    memcpy(order + n + n_own, r->sum, (size_t)r->n_sum);
    nnc_ref v = in_order(e, t, order);
    for (int i = 0; i < n; i++)
        d[i] = e->extent[r->batch[i]];
    if (r->n_sum) {
        d[m++] = product_of(e, own, n_own);
        d[m++] = product_of(e, r->sum, r->n_sum);
    }
    for (int i = 0; !r->n_sum && i < n_own + n_other; i++) {
        int k = after ? i : i - n_other;
        d[m++] = k >= 0 && k < n_own ? e->extent[own[k]] : 1;
    }
    return ox_reshape(e->b, v, m, d);
}

static bool contract(einsum *e, term *x, term *y, const others *o)
{
    ox_build *b = e->b;
    roles r;
    int64_t d[3 * NNC_MAX_RANK];
    widen(e, x);
    widen(e, y);
    find_roles(e, x, y, o, &r);
    int n = r.n_batch + r.n_left + r.n_right;
    if (n > NNC_MAX_RANK || r.n_batch + 2 > NNC_MAX_RANK)
        return ox_refuse(b, "more than %d dimensions are unsupported", NNC_MAX_RANK);
    nnc_ref v[2] = {operand(e, x, &r, r.left, r.n_left, r.n_right, true),
        operand(e, y, &r, r.right, r.n_right, r.n_left, false)};
    nnc_attr a = nnc_ai(AT_transpose_b, 1);
    nnc_ref p = r.n_sum ? ox_op(b, OP_matmul, 2, v, 1, &a) : ox_op(b, OP_mul, 2, v, 0, NULL);
    memcpy(x->label, r.batch, (size_t)r.n_batch);
    memcpy(x->label + r.n_batch, r.left, (size_t)r.n_left);
    memcpy(x->label + r.n_batch + r.n_left, r.right, (size_t)r.n_right);
    x->rank = n;
    for (int i = 0; i < n; i++)
        d[i] = e->extent[x->label[i]];
    x->v = ox_reshape(b, p, n, d);
    return x->v != NNC_NONE;
}

/* Nothing is summed: the result is 0, or has no elements either. */
static bool sum_of_none(const einsum *e)
{
    const nnc_dtype d = ox_shape_of(e->b, 0).dtype;
    int64_t dim[2 * NNC_MAX_RANK];
    for (int i = 0; i < e->n_out; i++)
        dim[i] = e->extent[e->out[i]];
    return ox_any_0(e->n_out, dim)
               ? ox_none(e->b, 0, d, e->n_out, dim)
               : ox_give(e->b, ox_broadcast(e->b, ox_num(e->b, d, 0), e->n_out, dim));
}

bool ox_einsum(ox_build *b)
{
    const char *p = ox_word(b, "equation", "");
    einsum e = {.b = b};
    term *t = ARENA_NEW(&b->x->a, term, b->n_in);
    if (!t)
        return ox_nomem(b->x);
    for (int i = 0; i < b->n_in; i++) {
        if (i && *p++ != ',')
            return ox_wrong(b, "the equation has fewer terms than the node has inputs");
        if (!read_operand(&e, &p, i, &t[i]))
            return false;
    }
    if (*p == ',')
        return ox_wrong(b, "the equation has more terms than the node has inputs");
    if (!read_result(&e, p))
        return false;
    if (ox_has_empty(b))
        return sum_of_none(&e);
    for (int i = 0; i < b->n_in; i++)
        if (!take_diagonals(&e, &t[i]))
            return false;
    sum_rest(&e, &t[0], &(others){NULL, t + 1, b->n_in - 1});
    for (int i = 1; i < b->n_in; i++) {
        const others both = {NULL, t + i + 1, b->n_in - i - 1}, mine = {t, t + i + 1, both.n_rest};
        sum_rest(&e, &t[i], &mine);
        if (!contract(&e, &t[0], &t[i], &both))
            return false;
        sum_rest(&e, &t[0], &both);
    }
    return ox_give(b, in_order(&e, &t[0], e.out));
}

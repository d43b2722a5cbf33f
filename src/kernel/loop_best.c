/* kernel/loop_best.c -- the kernel of topk: the k best of a row of n elements, best first. Among equals the lower index is first, and a NaN
 * is larger than all numbers. Each result is the best of the elements after the previous result, in this order.
 *
 *     for t in order: y[t] = best of x[i], all i that come after y[t-1]                       k n comparisons.
 *
 * Long rows are divided into blocks of about sqrt(n) elements. A table keeps each block's best element that is not yet a result. A result
 * leaves a gap only in its own block: n + 2 k sqrt(n) comparisons, all of one step independent.
 *
 *     for b: best[b] = best of block b.
 *     for t in order: c = the block of y[t-1].
 *         best[c] = best of those of block c that come after y[t-1];  y[t] = best of best[b], all b.
 *
 * The second stage reduces over one axis for the best of block c and for the best of the table's other entries. */
#include "kernel/loop.h"

#include <float.h>
#include <math.h>

typedef struct row {
    lp *p;
    lp_map at; /* of element 0 */
    int axis;
    bool largest;
    int64_t k, n, stride;
    nnc_affine step,
        r; /* axes: results; elements of the row or of a block, and entries of the table */
    int64_t each, blocks; /* elements of a block; their number */
    int value,
        index; /* tmp buffers of the table; index -1: all elements of the block are results */
    nnc_dtype d; /* of indices: i32 if they fit, since a vector has twice as many */
} row;

/* The result of the step before. */
typedef struct previous {
    int32_t index, value, none; /* index -1, none: there is no such step */
} previous;

static int32_t integer(const row *w, int64_t v)
{
    return lp_int(w->p, w->d, v);
}

static int32_t position(const row *w, nnc_affine axis)
{
    return lp_cast(w->p, lp_index(w->p, &axis), w->d);
}

/* Does x at index i come after the element q? */
static int32_t comes_after(lp *p, bool largest, int32_t x, int32_t i, previous q)
{
    int32_t after = lp_sop(p, largest ? SC_lt : SC_gt, x, q.value, -1),
            tie = lp_sop(p, SC_eq, x, q.value, -1);
    if (!p->oom && nnc_is_float((nnc_dtype)p->k->ins[x].dtype)) {
        int32_t xn = lp_sop(p, SC_isnan, x, -1, -1), qn = lp_sop(p, SC_isnan, q.value, -1, -1);
        int32_t only =
            lp_sop(p, SC_and, largest ? qn : xn, lp_sop(p, SC_not, largest ? xn : qn, -1, -1), -1);
        after = lp_sop(p, SC_or, after, only, -1);
        tie = lp_sop(p, SC_or, tie, lp_sop(p, SC_and, xn, qn, -1), -1);
    }
    int32_t later = lp_sop(p, SC_and, tie, lp_sop(p, SC_gt, i, q.index, -1), -1);
    return lp_sop(p, SC_or, after, later, -1);
}

/* Element `from` + i, below n, of the row. */
static int32_t element(const row *w, nnc_affine from, int32_t i, int64_t n)
{
    lp_map m = w->at;
    m.d[w->axis] = from;
    int32_t v = lp_load(w->p, 0, &m);
    lp_at(w->p, i, w->stride, n);
    return v;
}

/* Reductions that find the index of the best element. For f64 where NaN comes last: the least number, the count of numbers, and the first
 * NaN. */
typedef struct best {
    int32_t first, numbers, nan;
} best;

/* A reduction takes NaN as the best. To find the smallest, NaN becomes infinity, and infinity a smaller f64, which exists only for narrower
 * types. */
static best best_of(const row *w, int32_t v, int32_t mask)
{
    lp *p = w->p;
    const nnc_dtype d = p->oom ? DT_f32 : (nnc_dtype)p->k->ins[v].dtype;
    if (w->largest || !nnc_is_float(d))
        return (best){lp_reduce(p, w->largest ? KR_argmax : KR_argmin, false, v, mask), -1, -1};
    int32_t nan = lp_sop(p, SC_isnan, v, -1, -1);
    if (d != DT_f64) {
        v = lp_sop(p, SC_min, lp_cast(p, v, DT_f64), lp_const(p, DT_f64, DBL_MAX), -1);
        v = lp_sop(p, SC_select, nan, lp_const(p, DT_f64, INFINITY), v);
        return (best){lp_reduce(p, KR_argmin, false, v, mask), -1, -1};
    }
    int32_t number = lp_sop(p, SC_not, nan, -1, -1);
    number = mask >= 0 ? lp_sop(p, SC_and, number, mask, -1) : number;
    best b = {.first = lp_reduce(p, KR_argmin, false, v, number)};
    b.numbers = lp_reduce(p, KR_sum, false, lp_cast(p, number, w->d), -1);
    b.nan = lp_reduce(p, KR_argmax, false, v, mask);
    return b;
}

/* In the post: the index that the reductions found. */
static int32_t found(const row *w, best b)
{
    return b.nan < 0 ? b.first
                     : lp_sop(w->p, SC_select, lp_sop(w->p, SC_gt, b.numbers, integer(w, 0), -1),
                           b.first, b.nan);
}

static previous last_result(const row *w)
{
    lp *p = w->p;
    lp_map m = w->at;
    m.d[w->axis] = lp_plus(w->step, -1);
    int32_t none = lp_const(p, DT_i64, -1), at = lp_load_result(p, 1, &m);
    lp_guard(p, &m.d[w->axis], w->k, none);
    previous q = {.index = lp_cast(p, at, w->d)};
    q.value = element(w, (nnc_affine){0}, q.index, w->n);
    q.none = lp_sop(p, SC_lt, q.index, integer(w, 0), -1);
    return q;
}

/* May x at index i be the next result? */
static int32_t is_left(const row *w, int32_t x, int32_t i, previous q)
{
    return lp_sop(w->p, SC_or, q.none, comes_after(w->p, w->largest, x, i, q), -1);
}

static void put_result(const row *w, int32_t value, int32_t index)
{
    lp_map m = w->at;
    m.d[w->axis] = w->step;
    lp_store(w->p, 1, &m, lp_cast(w->p, index, DT_i64));
    lp_store(w->p, 0, &m, value);
}

/* ---- short rows ------------------------------------------------------------------------------ */

static void search(row *w)
{
    lp *p = w->p;
    lp_map from = w->at;
    w->step = lp_axis(p, KA_map, true, w->k);
    w->r = from.d[w->axis] = lp_axis(p, KA_reduce, false, w->n);
    lp_stage(p, nnc_affine_axes(&w->step) | nnc_affine_axes(&w->r));
    previous q = last_result(w);
    int32_t v = lp_load(p, 0, &from), i = position(w, w->r);
    const best b = best_of(w, v, is_left(w, v, i, q));
    lp_post(p);
    int32_t at = found(w, b);
    put_result(w, element(w, (nnc_affine){0}, at, w->n), at);
}

/* ---- long rows ------------------------------------------------------------------------------- */

/* The block of an element: its number, its first element, and where reading begins. A last block that is not full is read together with the
 * end of the block before it. */
typedef struct block {
    int32_t number, begin, from;
} block;

static block block_of(const row *w, int32_t index)
{
    lp *p = w->p;
    block c = {.number = lp_sop(p, SC_div, index, integer(w, w->each), -1)};
    c.begin = c.from = lp_sop(p, SC_mul, c.number, integer(w, w->each), -1);
    if (w->blocks * w->each > w->n)
        c.from = lp_sop(p, SC_min, c.begin, integer(w, w->n - w->each), -1);
    return c;
}

/* The block of the previous result, or block 0. */
static block last_block(const row *w, previous q)
{
    return block_of(w, lp_sop(w->p, SC_max, q.index, integer(w, 0), -1));
}

/* May x at index i, read for block c, be this block's next result? */
static int32_t is_left_in(const row *w, int32_t x, int32_t i, previous q, block c)
{
    int32_t left = is_left(w, x, i, q);
    return c.from == c.begin ? left
                             : lp_sop(w->p, SC_and, left, lp_sop(w->p, SC_ge, i, c.begin, -1), -1);
}

static int32_t entry(const row *w, int table, nnc_affine at, int32_t i)
{
    int32_t x = lp_load_tmp(w->p, table, at);
    if (i >= 0)
        lp_at(w->p, i, 1, w->each);
    return x;
}

/* The table before the first step. */
static void fill_table(const row *w, nnc_affine b)
{
    lp *p = w->p;
    nnc_affine from = w->r;
    nnc_affine_add(&from, &b, w->each);
    lp_map m = w->at;
    m.d[w->axis] = from;
    lp_stage(p, nnc_affine_axes(&b) | nnc_affine_axes(&w->r));
    int32_t inside = -1, none = lp_const(p, nnc_kdtype(p->k->buf[w->value].dtype), 0);
    int32_t v = lp_load(p, 0, &m);
    if (w->blocks * w->each > w->n) {
        lp_guard(p, &from, w->n, none);
        int32_t begin = lp_sop(p, SC_mul, position(w, b), integer(w, w->each), -1);
        int32_t i = lp_sop(p, SC_add, begin, position(w, w->r), -1);
        inside = lp_sop(p, SC_lt, i, integer(w, w->n), -1);
    }
    const best first = best_of(w, v, inside);
    lp_post(p);
    int32_t at = lp_cast(p, found(w, first), w->d);
    int32_t i = lp_sop(p, SC_mul, position(w, b), integer(w, w->each), -1);
    i = lp_sop(p, SC_add, i, at, -1);
    lp_store_tmp(p, w->index, b, i);
    lp_store_tmp(p, w->value, b, element(w, (nnc_affine){0}, i, w->n));
}

/* Finds the best element of the last result's block, and the best of the table's other blocks. */
static void find_best(const row *w, best of[2])
{
    lp *p = w->p;
    previous q = last_result(w);
    block c = last_block(w, q);
    int32_t r = position(w, w->r), i = lp_sop(p, SC_add, c.from, r, -1);
    int32_t v = element(w, w->r, c.from, w->n - w->each + 1);
    of[0] = best_of(w, v, is_left_in(w, v, i, q, c));
    int32_t none = integer(w, -1), e = entry(w, w->index, w->r, -1);
    lp_guard(p, &w->r, w->blocks, none);
    int32_t other = lp_sop(
        p, SC_and, lp_sop(p, SC_ge, e, integer(w, 0), -1), lp_sop(p, SC_ne, r, c.number, -1), -1);
    of[1] = best_of(w, entry(w, w->value, w->r, -1), other);
}

static void tournament(row *w)
{
    static const nnc_affine zero = {0};
    lp *p = w->p;
    int32_t at[2];
    best of[2];
    w->value = lp_tmp(p, nnc_kdtype(p->k->buf[0].dtype), w->each);
    w->index = lp_tmp(p, w->d, w->each);
    nnc_affine b = lp_axis(p, KA_map, false, w->blocks);
    w->step = lp_axis(p, KA_map, true, w->k);
    w->r = lp_axis(p, KA_reduce, false, w->each);
    fill_table(w, b);
    lp_stage(p, nnc_affine_axes(&w->step) | nnc_affine_axes(&w->r));
    find_best(w, of);
    lp_post(p);
    for (int i = 0; i < 2; i++)
        at[i] = lp_cast(p, found(w, of[i]), w->d);
    previous q = last_result(w);
    block c = last_block(w, q);
    int32_t i = lp_sop(p, SC_add, c.from, at[0], -1), none = integer(w, -1);
    int32_t x = element(w, zero, i, w->n), left = is_left_in(w, x, i, q, c);
    previous other = {
        .index = entry(w, w->index, zero, at[1]), .value = entry(w, w->value, zero, at[1])};
    other.none = lp_sop(p, SC_or, lp_sop(p, SC_lt, other.index, integer(w, 0), -1),
        lp_sop(p, SC_eq, at[1], c.number, -1), -1);
    int32_t later = comes_after(p, w->largest, x, i, other);
    int32_t wins = lp_sop(
        p, SC_and, left, lp_sop(p, SC_or, other.none, lp_sop(p, SC_not, later, -1, -1), -1), -1);
    lp_store_tmp(p, w->index, zero, lp_sop(p, SC_select, left, i, none));
    lp_at(p, c.number, 1, w->each);
    lp_store_tmp(p, w->value, zero, x);
    lp_at(p, c.number, 1, w->each);
    put_result(
        w, lp_sop(p, SC_select, wins, x, other.value), lp_sop(p, SC_select, wins, i, other.index));
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* Two lists of the row's elements and indices, as tmp buffers. Passes read one and write the other, in turn. */
typedef struct lists {
    int value, index, widths, taken;
    nnc_affine pass, i; /* axes: passes of merging sorted runs; element i of a pass' output list */
} lists;

static int32_t at_index(const row *w, int buf, int32_t i)
{
    int32_t x = lp_load_tmp(w->p, buf, (nnc_affine){0});
    lp_at(w->p, i, 1, w->p->k->buf[buf].numel);
    return x;
}

static void put_at(const row *w, int buf, int32_t i, int32_t x)
{
    lp_store_tmp(w->p, buf, (nnc_affine){0}, x);
    lp_at(w->p, i, 1, w->p->k->buf[buf].numel);
}

/* The first list: sorted runs of w->each elements. An element's place in its run is the number of those that it comes after. */
static void sort_runs(const row *w, const lists *l)
{
    lp *p = w->p;
    lp_map m = w->at;
    m.d[w->axis] = l->i;
    lp_stage(p, nnc_affine_axes(&l->i) | nnc_affine_axes(&w->r));
    int32_t at = position(w, l->i), x = lp_load(p, 0, &m);
    block c = block_of(w, at);
    previous q = {.index = lp_sop(p, SC_add, c.from, position(w, w->r), -1),
        .value = element(w, w->r, c.from, w->n - w->each + 1)};
    int32_t after = comes_after(p, w->largest, x, at, q);
    if (c.from != c.begin)
        after = lp_sop(p, SC_and, after, lp_sop(p, SC_ge, q.index, c.begin, -1), -1);
    int32_t place = lp_reduce(p, KR_sum, false, lp_cast(p, after, w->d), -1);
    lp_post(p);
    at = position(w, l->i);
    place = lp_sop(p, SC_add, block_of(w, at).begin, place, -1);
    put_at(w, l->value, place, lp_load(p, 0, &m));
    put_at(w, l->index, place, at);
}

/* The runs that a pass makes have 2, 4, 8, ... times as many elements. */
static void find_widths(const row *w, const lists *l)
{
    lp *p = w->p;
    lp_stage(p, nnc_affine_axes(&l->pass));
    nnc_affine before = lp_plus(l->pass, -1);
    int32_t each = integer(w, w->each), n = lp_load_tmp(p, l->widths, before);
    lp_guard(p, &before, p->k->buf[l->widths].numel, each);
    lp_store_tmp(p, l->widths, l->pass, lp_sop(p, SC_add, n, n, -1));
}

/* One step of merging two neighbouring runs: element i is the next one of the first run, or the second run's if that is better. taken[0]:
 * position in the first run. */
static void merge(const row *w, const lists *l)
{
    lp *p = w->p;
    lp_stage(p, nnc_affine_axes(&l->pass) | nnc_affine_axes(&l->i));
    int32_t n = integer(w, w->n), two = integer(w, 2), width = lp_load_tmp(p, l->widths, l->pass);
    int32_t odd = lp_sop(p, SC_mod, position(w, l->pass), two, -1);
    int32_t from = lp_sop(p, SC_mul, odd, n, -1), to = lp_sop(p, SC_sub, n, from, -1);
    int32_t at = position(w, l->i);
    int32_t begin = lp_sop(p, SC_sub, at, lp_sop(p, SC_mod, at, width, -1), -1);
    int32_t mid = lp_sop(p, SC_add, begin, lp_sop(p, SC_div, width, two, -1), -1);
    int32_t end = lp_sop(p, SC_min, lp_sop(p, SC_add, begin, width, -1), n, -1);
    int32_t first = lp_load_tmp(p, l->taken, (nnc_affine){0});
    first = lp_sop(p, SC_select, lp_sop(p, SC_eq, at, begin, -1), begin, first);
    int32_t second = lp_sop(p, SC_add, mid, lp_sop(p, SC_sub, at, first, -1), -1);
    int32_t in_first = lp_sop(p, SC_add, from, first, -1),
            in_second = lp_sop(p, SC_add, from, second, -1);
    int32_t x = at_index(w, l->value, in_first), y = at_index(w, l->value, in_second);
    int32_t left = lp_sop(p, w->largest ? SC_ge : SC_le, x, y, -1);
    if (!p->oom && nnc_is_float((nnc_dtype)p->k->ins[x].dtype))
        left = lp_sop(p, SC_or, left, lp_sop(p, SC_isnan, w->largest ? x : y, -1, -1), -1);
    left = lp_sop(p, SC_or, left, lp_sop(p, SC_ge, second, end, -1), -1);
    left = lp_sop(p, SC_and, left, lp_sop(p, SC_lt, first, mid, -1), -1);
    lp_store_tmp(
        p, l->taken, (nnc_affine){0}, lp_sop(p, SC_add, first, lp_cast(p, left, w->d), -1));
    int32_t index = at_index(w, l->index, lp_sop(p, SC_select, left, in_first, in_second));
    to = lp_sop(p, SC_add, to, at, -1);
    put_at(w, l->index, to, index);
    put_at(w, l->value, to, lp_sop(p, SC_select, left, x, y));
}

static void sort(row *w)
{
    enum { RUN = 64 };
    lp *p = w->p;
    int64_t passes = 0;
    w->each = nnc_min64(w->n, RUN);
    w->blocks = nnc_ceildiv(w->n, w->each);
    while (w->each << passes < w->n)
        passes++;
    lists l = {.value = lp_tmp(p, nnc_kdtype(p->k->buf[0].dtype), 2 * w->n),
        .index = lp_tmp(p, w->d, 2 * w->n)};
    if (passes) {
        l.widths = lp_tmp(p, w->d, passes);
        l.taken = lp_tmp(p, w->d, 1);
        l.pass = lp_axis(p, KA_map, true, passes);
    }
    l.i = lp_axis(p, KA_map, true, w->n);
    w->step = lp_axis(p, KA_map, false, w->k);
    w->r = lp_axis(p, KA_reduce, false, w->each);
    sort_runs(w, &l);
    if (passes) {
        find_widths(w, &l);
        merge(w, &l);
    }
    nnc_affine from = lp_plus(w->step, passes % 2 * w->n);
    lp_stage(p, nnc_affine_axes(&w->step));
    int32_t index = lp_load_tmp(p, l.index, from);
    put_result(w, lp_load_tmp(p, l.value, from), index);
}

void lp_best(lp *p)
{
    /* LEAST: elements of a block, a vector of them. LISTS: most bytes of a sort's lists; a GPU's thread has 512 KiB. */
    enum { LEAST = 16, LISTS = 480 << 10 };
    const nnc_type *x = nnc_typeof(p->g, p->n->in[0]);
    int64_t stride[NNC_MAX_RANK], bytes;
    row w = {.p = p,
        .axis = (int)nnc_attr_int(p->n, AT_axis, 0),
        .largest = nnc_attr_int(p->n, AT_largest, 1),
        .k = nnc_attr_int(p->n, AT_k, 1)};
    nnc_type_strides(x, stride);
    w.n = x->dim[w.axis];
    w.d = w.n < INT32_MAX / 2 ? DT_i32 : DT_i64;
    w.stride = stride[w.axis];
    w.at = lp_outer(p, x, 1u << w.axis);
    w.each = nnc_align_up((int64_t)ceil(sqrt((double)w.n)), LEAST);
    w.blocks = nnc_ceildiv(w.n, w.each);
    bytes = 2 * (nnc_dtype_size(nnc_kdtype((nnc_dtype)x->dtype)) + nnc_dtype_size(w.d));
    if (w.k > w.n / 4 && w.k > 1 && w.n <= LISTS / bytes)
        sort(&w);
    else if (w.k > 1 && w.n >= 4 * LEAST)
        tournament(&w);
    else
        search(&w);
}

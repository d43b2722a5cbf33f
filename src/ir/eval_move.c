/* ir/eval_move.c -- reference evaluation of movement ops: each is a copy with an index map per dimension.
 *
 * Result element (i0, i1, ...) is the source's element at base + sum of map_d(i_d), where a map is a stride or a table of offsets; a
 * table entry of -1 is outside the source and gives the fill value. So slice, flip, transpose, broadcast, pad in all modes and gather
 * share one loop. */
#include "ir/eval_internal.h"

#include <string.h>

typedef struct map {
    int64_t stride;
    int64_t *table; /* owned; NULL: i * stride */
} map;

typedef struct copy {
    int rank;
    int64_t dim[NNC_MAX_RANK]; /* of the region being written */
    int64_t out_stride[NNC_MAX_RANK];
    map from[NNC_MAX_RANK];
    int64_t own[NNC_MAX_RANK]; /* strides of the source */
    int64_t base, out_base;
    const uint64_t *src;
    uint64_t *dst;
    uint64_t fill;
} copy;

/* Copies one row along the innermost dimension; `off` < 0: fill only. */
static void copy_row(const copy *c, int64_t off, uint64_t *dst, int64_t first, int64_t n)
{
    const map *m = &c->from[c->rank - 1];
    int64_t os = c->out_stride[c->rank - 1];
    if (off < 0) {
        for (int64_t i = 0; i < n; i++)
            dst[(first + i) * os] = c->fill;
    } else if (m->table) {
        for (int64_t i = first; i < first + n; i++)
            dst[i * os] = m->table[i] < 0 ? c->fill : c->src[off + m->table[i]];
    } else if (m->stride == 1 && os == 1) {
        memcpy(dst + first, c->src + off + first, (size_t)n * 8);
    } else {
        for (int64_t i = first; i < first + n; i++)
            dst[i * os] = c->src[off + i * m->stride];
    }
}

/* The offset of map `m` at i plus `off`; -1 if either is -1. */
static int64_t follow(const map *m, int64_t i, int64_t off)
{
    if (off < 0 || !m->table)
        return off < 0 ? -1 : off + i * m->stride;
    return m->table[i] < 0 ? -1 : off + m->table[i];
}

static nnc_status copy_range(void *ctx, int64_t begin, int64_t end)
{
    const copy *c = ctx;
    int last = c->rank - 1;
    for (int64_t i = begin; i < end;) {
        int64_t at[NNC_MAX_RANK], rest = i, off = c->base, out = c->out_base;
        for (int d = last; d >= 0; d--) {
            at[d] = rest % c->dim[d];
            rest /= c->dim[d];
        }
        /* base may be large and a stride negative (flip): the sum is never negative, so -1 is unambiguous */
        for (int d = 0; d < last; d++) {
            off = follow(&c->from[d], at[d], off);
            out += at[d] * c->out_stride[d];
        }
        int64_t n = nnc_min64(c->dim[last] - at[last], end - i);
        copy_row(c, off, c->dst + out, at[last], n);
        i += n;
    }
    return NNC_OK;
}

static nnc_status run_copy(const ev *e, copy *c)
{
    if (c->rank == 0) {
        c->rank = 1;
        c->dim[0] = 1;
        c->out_stride[0] = 1;
        c->from[0] = (map){.stride = 1};
    }
    int64_t n = 1;
    for (int d = 0; d < c->rank; d++)
        n *= c->dim[d];
    return ev_for(e, n, 1, 1, copy_range, c);
}

/* Initialises a copy of the whole result, each dimension mapped to the same dimension of the source. */
static copy start(const ev_arg *x, const ev_arg *out)
{
    copy c = {.rank = out->type->rank, .src = x->w, .dst = out->w};
    ev_strides(out->type, c.out_stride);
    ev_strides(x->type, c.own);
    for (int d = 0; d < c.rank; d++) {
        c.dim[d] = out->type->dim[d];
        if (d < x->type->rank)
            c.from[d].stride = c.own[d];
    }
    return c;
}

/* ---- maps by dimension: what they change of start() ---- */

static void map_transpose(copy *c, const nnc_node *n, const nnc_type *t)
{
    const int64_t *perm = NULL;
    (void)t;
    for (int d = nnc_attr_ints(n, AT_perm, &perm) - 1; d >= 0; d--)
        c->from[d].stride = c->own[perm[d]];
}

static void map_broadcast(copy *c, const nnc_node *n, const nnc_type *t)
{
    (void)n;
    for (int d = 0; d < c->rank; d++) {
        int od = d - (c->rank - t->rank);
        c->from[d].stride = od < 0 || t->dim[od] == 1 ? 0 : c->own[od];
    }
}

static void map_slice(copy *c, const nnc_node *n, const nnc_type *t)
{
    const int64_t *axes = NULL, *starts = NULL, *steps = NULL;
    int na = nnc_attr_ints(n, AT_axes, &axes), ns = nnc_attr_ints(n, AT_steps, &steps);
    (void)t;
    nnc_attr_ints(n, AT_starts, &starts);
    for (int k = 0; k < na; k++) {
        c->base += starts[k] * c->own[axes[k]];
        c->from[axes[k]].stride *= ns ? steps[k] : 1;
    }
}

static void map_flip(copy *c, const nnc_node *n, const nnc_type *t)
{
    const int64_t *axes = NULL;
    for (int k = nnc_attr_ints(n, AT_axes, &axes) - 1; k >= 0; k--) {
        c->base += (t->dim[axes[k]] - 1) * c->own[axes[k]];
        c->from[axes[k]].stride = -c->own[axes[k]];
    }
}

/* ---- the others ---- */

/* Source index of padded index i in a dimension of n elements, -1 outside (constant mode).
 * reflect: ...2 1 0 1 2... */
static int64_t pad_index(int64_t i, int64_t n, char mode)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == 'e')
        return i < 0 ? 0 : n - 1;
    if (mode != 'r')
        return -1;
    if (n == 1)
        return 0;
    int64_t period = 2 * (n - 1), r = i % period;
    if (r < 0)
        r += period;
    return r < n ? r : period - r;
}

static nnc_status run_pad(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    copy c = start(&in[0], out);
    const int64_t *pads = NULL;
    nnc_attr_ints(n, AT_pads, &pads);
    const nnc_attr *mode = nnc_attr_find(n, AT_mode);
    char m = mode && mode->word ? mode->word[0] : 'c';
    nnc_dtype d = (nnc_dtype)out->type->dtype;
    double value = ev_attr_value(d, nnc_attr_float(n, AT_value, 0));
    if (nnc_is_float(d))
        memcpy(&c.fill, &value, 8);
    else
        c.fill = (uint64_t)ev_int(d, value);

    nnc_status status = NNC_OK;
    for (int k = 0; k < c.rank && status == NNC_OK; k++) {
        int64_t s = c.from[k].stride, from = in[0].type->dim[k];
        if (from == c.dim[k])
            continue;
        c.from[k].table = nnc_malloc((size_t)c.dim[k] * 8);
        if (!c.from[k].table)
            status = nnc_nomem(e->sink);
        for (int64_t i = 0; c.from[k].table && i < c.dim[k]; i++) {
            int64_t j = pad_index(i - pads[k], from, m);
            c.from[k].table[i] = j < 0 ? -1 : j * s;
        }
    }
    if (status == NNC_OK)
        status = run_copy(e, &c);
    for (int k = 0; k < c.rank; k++)
        nnc_free(c.from[k].table);
    return status;
}

static nnc_status run_concat(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    int64_t axis = nnc_attr_int(n, AT_axis, 0), at = 0;
    for (int k = 0; k < n->n_in; k++) {
        copy c = start(&in[k], out);
        c.dim[axis] = in[k].type->dim[axis];
        c.out_base = at * c.out_stride[axis];
        at += c.dim[axis];
        NNC_TRY(run_copy(e, &c));
    }
    return NNC_OK;
}

static nnc_status run_split(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    int64_t axis = nnc_attr_int(n, AT_axis, 0), at = 0;
    for (int k = 0; k < n->n_out; k++) {
        copy c = start(&in[0], &out[k]);
        c.base = at * c.from[axis].stride;
        at += c.dim[axis];
        NNC_TRY(run_copy(e, &c));
    }
    return NNC_OK;
}

/* x[outer, n, inner] taken at index[m] -> y[outer, m, inner]; -1 is the last. */
static nnc_status run_gather(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    int axis = (int)nnc_attr_int(n, AT_axis, 0);
    const nnc_type *t = in[0].type;
    int64_t outer = 1, inner = 1, extent = t->dim[axis], m = nnc_type_numel(in[1].type);
    for (int d = 0; d < t->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : t->dim[d];
    int64_t *table = nnc_malloc((size_t)m * 8);
    if (!table)
        return nnc_nomem(e->sink);
    bool wraps = nnc_dtype_kind((nnc_dtype)in[1].type->dtype) == NNC_INT;
    for (int64_t i = 0; i < m; i++) {
        int64_t j = in[1].i[i];
        if (j < 0 && wraps)
            j += extent;
        if (j < 0 || j >= extent) {
            nnc_free(table);
            return nnc_fail(e->sink, NNC_E_MODEL, n->loc,
                "gather: index %lld is outside dimension %d of extent %lld", (long long)in[1].i[i],
                axis, (long long)extent);
        }
        table[i] = j * inner;
    }
    copy c = {.rank = 3, .src = in[0].w, .dst = out->w};
    int64_t dim[3] = {outer, m, inner}, os[3] = {m * inner, inner, 1};
    memcpy(c.dim, dim, sizeof dim);
    memcpy(c.out_stride, os, sizeof os);
    c.from[0] = (map){.stride = extent * inner};
    c.from[1] = (map){.table = table};
    c.from[2] = (map){.stride = 1};
    nnc_status status = run_copy(e, &c);
    nnc_free(table);
    return status;
}

nnc_status ev_move(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    static ev_run *const run[OP__COUNT] = {[OP_pad] = run_pad,
        [OP_concat] = run_concat,
        [OP_split] = run_split,
        [OP_gather] = run_gather};
    static void (*const maps[OP__COUNT])(copy *, const nnc_node *, const nnc_type *) = {
        [OP_transpose] = map_transpose,
        [OP_broadcast] = map_broadcast,
        [OP_slice] = map_slice,
        [OP_flip] = map_flip};
    if (run[n->op])
        return run[n->op](e, n, in, out);
    if (!maps[n->op]) { /* reshape, relayout: the same elements in the same order */
        memcpy(out->w, in[0].w, (size_t)nnc_type_numel(out->type) * 8);
        return NNC_OK;
    }
    copy c = start(&in[0], out);
    maps[n->op](&c, n, in[0].type);
    return run_copy(e, &c);
}

/* ir/eval_move.c -- reference evaluation of movement ops: the operand read in another order (eval_walk.c), or copied row by row. */
#include "ir/eval_internal.h"

#include <string.h>

typedef struct reading {
    ev_walk x;
    uint64_t *y;
} reading;

static nnc_status read_range(void *ctx, int64_t begin, int64_t end)
{
    const reading *r = ctx;
    ev_read(&r->x, begin, end - begin, r->y + begin);
    return NNC_OK;
}

static nnc_status run_walk(const ev *e, const ev_walk *w, const ev_arg *in, const ev_arg *out)
{
    reading r = {*w, out->w};
    r.x.src = in[0].w;
    return ev_for(e, nnc_type_numel(out->type), 1, 1, read_range, &r);
}

/* ---- an index map per dimension: base + sum of index times stride ---- */

static void map_transpose(const nnc_node *n, const int64_t *own, int64_t *stride)
{
    const int64_t *perm = NULL;
    for (int d = nnc_attr_ints(n, AT_perm, &perm) - 1; d >= 0; d--)
        stride[d] = own[perm[d]];
}

static int64_t map_slice(const nnc_node *n, const int64_t *own, int64_t *stride)
{
    const int64_t *axes = NULL, *starts = NULL, *steps = NULL;
    int na = nnc_attr_ints(n, AT_axes, &axes), ns = nnc_attr_ints(n, AT_steps, &steps);
    int64_t base = 0;
    nnc_attr_ints(n, AT_starts, &starts);
    for (int k = 0; k < na; k++) {
        base += starts[k] * own[axes[k]];
        stride[axes[k]] *= ns ? steps[k] : 1;
    }
    return base;
}

static int64_t map_flip(const nnc_node *n, const nnc_type *t, int64_t *stride)
{
    const int64_t *axes = NULL;
    int64_t base = 0;
    for (int k = nnc_attr_ints(n, AT_axes, &axes) - 1; k >= 0; k--) {
        base += (t->dim[axes[k]] - 1) * stride[axes[k]];
        stride[axes[k]] *= -1;
    }
    return base;
}

static nnc_status run_map(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const nnc_type *t = in[0].type;
    int64_t own[NNC_MAX_RANK], stride[NNC_MAX_RANK];
    ev_walk w = {0};
    ev_strides(t, own);
    memcpy(stride, own, sizeof own);
    if (n->op == OP_transpose)
        map_transpose(n, own, stride);
    else
        w.base = n->op == OP_slice ? map_slice(n, own, stride) : map_flip(n, t, stride);
    for (int d = 0; d < t->rank; d++)
        ev_walk_add(&w, out->type->dim[d], stride[d]);
    return run_walk(e, &w, in, out);
}

static nnc_status run_broadcast(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    ev_walk w = {0};
    (void)n;
    ev_walk_broadcast(&w, in[0].type, out->type, 0);
    return run_walk(e, &w, in, out);
}

/* ---- index tables ---- */

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

static nnc_status run_pad(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const nnc_type *x = in[0].type, *y = out->type;
    const nnc_attr *mode = nnc_attr_find(n, AT_mode);
    nnc_dtype d = y->dtype;
    double value = ev_attr_value(d, nnc_attr_float(n, AT_value, 0));
    const int64_t *pads = NULL;
    int64_t own[NNC_MAX_RANK] = {0}, entries = 0;
    ev_walk w = {.fill = ev_bits(d, value)};
    nnc_attr_ints(n, AT_pads, &pads);
    ev_strides(x, own);
    for (int k = 0; k < y->rank; k++)
        entries += y->dim[k];
    NNC_FREED int64_t *table = nnc_malloc((size_t)entries * 8 + 8);
    int64_t *t = table;
    NNC_NEED(table, e->sink);
    for (int k = 0; k < y->rank; k++) {
        if (x->dim[k] == y->dim[k]) {
            ev_walk_add(&w, y->dim[k], own[k]);
            continue;
        }
        ev_walk_table(&w, y->dim[k], t, -1);
        for (int64_t i = 0; i < y->dim[k]; i++) {
            int64_t j = pad_index(i - pads[k], x->dim[k], mode && mode->word ? mode->word[0] : 'c');
            *t++ = j < 0 ? -1 : j * own[k];
        }
    }
    return run_walk(e, &w, in, out);
}

/* x[outer, n, inner] taken at index[m] -> y[outer, m, inner]; -1 is the last. */
static nnc_status run_gather(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    int axis = (int)nnc_attr_int(n, AT_axis, 0);
    const nnc_type *t = in[0].type;
    int64_t own[NNC_MAX_RANK], extent = t->dim[axis], m = nnc_type_numel(in[1].type);
    NNC_FREED int64_t *table = nnc_malloc((size_t)m * 8);
    NNC_NEED(table, e->sink);
    ev_strides(t, own);
    bool wraps = nnc_dtype_kind(in[1].type->dtype) == NNC_INT, warned = false;
    for (int64_t i = 0; i < m; i++) {
        int64_t j = in[1].i[i];
        if (j < 0 && wraps)
            j += extent;
        if (j < 0 || j >= extent) {
            if (!warned)
                nnc_warn(e->sink, n->loc,
                    "gather: index %lld is outside dimension %d of extent %lld: the nearest one is "
                    "taken",
                    (long long)in[1].i[i], axis, (long long)extent);
            warned = true;
            j = j < 0 ? 0 : extent - 1;
        }
        table[i] = j * own[axis];
    }
    ev_walk w = {0};
    for (int d = 0; d < t->rank; d++)
        if (d == axis)
            ev_walk_table(&w, m, table, -1);
        else
            ev_walk_add(&w, t->dim[d], own[d]);
    return run_walk(e, &w, in, out);
}

/* ---- rows ---- */

typedef struct rows {
    const uint64_t *src;
    uint64_t *dst;
    int64_t from, to, n; /* elements from one row to the next; of a row */
} rows;

static nnc_status copy_rows(void *ctx, int64_t begin, int64_t end)
{
    const rows *r = ctx;
    for (int64_t i = begin; i < end; i++)
        memcpy(r->dst + i * r->to, r->src + i * r->from, (size_t)r->n * 8);
    return NNC_OK;
}

/* concat: the rows of each operand, of which the result's rows consist; split: the other way around. */
static nnc_status run_rows(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    bool joins = n->op == OP_concat;
    const ev_arg *part = joins ? in : out, *whole = joins ? out : in;
    const int axis = (int)nnc_attr_int(n, AT_axis, 0);
    const int64_t row = nnc_type_extents(whole->type, axis, whole->type->rank),
                  count = nnc_type_extents(whole->type, 0, axis);
    int64_t at = 0;
    for (int k = 0; k < (joins ? n->n_in : n->n_out); k++) {
        int64_t m = nnc_type_numel(part[k].type) / count;
        rows r = joins ? (rows){part[k].w, whole->w + at, m, row, m}
                       : (rows){whole->w + at, part[k].w, row, m, m};
        NNC_TRY(ev_for(e, count, 1, m, copy_rows, &r));
        at += m;
    }
    return NNC_OK;
}

nnc_status ev_move(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    switch (n->op) {
    case OP_transpose:
    case OP_slice:
    case OP_flip: return run_map(e, n, in, out);
    case OP_broadcast: return run_broadcast(e, n, in, out);
    case OP_pad: return run_pad(e, n, in, out);
    case OP_gather: return run_gather(e, n, in, out);
    case OP_gather_elements:
    case OP_gather_nd: ev_gather_computed(n, in, out); return NNC_OK;
    case OP_concat:
    case OP_split: return run_rows(e, n, in, out);
    default: /* reshape, relayout: the same elements in the same order */
        memcpy(out->w, in[0].w, (size_t)nnc_type_numel(out->type) * 8);
        return NNC_OK;
    }
}

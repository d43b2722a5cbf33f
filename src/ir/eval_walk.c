/* ir/eval_walk.c -- reads a source in the order of an iteration space. The reference evaluator's common loop of broadcasting, movement,
 * reductions, windows and matrix products. */
#include "ir/eval_internal.h"

#include <string.h>

void ev_walk_add(ev_walk *w, int64_t dim, int64_t stride)
{
    int last = w->rank - 1;
    if (dim == 1)
        return;
    if (last >= 0 && !w->table[last] && w->stride[last] == stride * dim) {
        w->dim[last] *= dim;
        w->stride[last] = stride;
        return;
    }
    w->stride[w->rank] = stride;
    w->dim[w->rank++] = dim;
}

void ev_walk_table(ev_walk *w, int64_t dim, const int64_t *table, int row)
{
    w->row[w->rank] = row;
    w->table[w->rank] = table;
    w->dim[w->rank++] = dim;
}

void ev_walk_broadcast(ev_walk *w, const nnc_type *t, const nnc_type *out, int inner)
{
    int64_t own[NNC_MAX_RANK];
    ev_strides(t, own);
    for (int d = 0; d < out->rank - inner; d++) {
        int od = d - (out->rank - t->rank);
        ev_walk_add(w, out->dim[d], od < 0 || t->dim[od] == 1 ? 0 : own[od]);
    }
}

/* The table of dimension d at the current indices; NULL: it has none. */
static const int64_t *table_at(const ev_walk *w, int d, const int64_t *at)
{
    int row = w->row[d];
    return w->table[d] && row >= 0 ? w->table[d] + at[row] * w->dim[d] : w->table[d];
}

/* Copies n elements along the last dimension, from index `first` on; x: the source at index 0. */
static void copy_line(const ev_walk *w, const uint64_t *x, const int64_t *table, int64_t first,
    int64_t n, uint64_t *to)
{
    int64_t stride = w->rank ? w->stride[w->rank - 1] : 1;
    if (!table && stride == 1)
        memcpy(to, x + first, (size_t)n * 8);
    else if (!table)
        for (int64_t i = 0; i < n; i++)
            to[i] = x[(first + i) * stride];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = table[first + i] < 0 ? w->fill : x[table[first + i]];
}

const uint64_t *ev_gather(const ev_walk *w, int64_t first, int64_t n, uint64_t *to)
{
    int64_t at[NNC_MAX_RANK + 2] = {0}, rest = first;
    int last = w->rank ? w->rank - 1 : 0;
    int64_t line = w->rank ? w->dim[last] : 1;
    for (int d = last; d >= 0 && w->rank; d--) {
        at[d] = rest % w->dim[d];
        rest /= w->dim[d];
    }
    for (int64_t done = 0, run; done < n; done += run) {
        const int64_t *table = table_at(w, last, at);
        int64_t off = w->base;
        bool outside = false;
        for (int d = 0; d < last; d++) {
            const int64_t *t = table_at(w, d, at);
            int64_t o = t ? t[at[d]] : at[d] * w->stride[d];
            outside = outside || (t && o < 0);
            off += o;
        }
        run = nnc_min64(line - at[last], n - done);
        if (!outside && !table && run == n && (n == 1 || w->stride[last] == 1))
            return w->src + off + at[last] * w->stride[last];
        if (outside)
            for (int64_t i = 0; i < run; i++)
                to[done + i] = w->fill;
        else
            copy_line(w, w->src + off, table, at[last], run, to + done);
        at[last] += run;
        for (int d = last; d > 0 && at[d] == w->dim[d]; d--) {
            at[d] = 0;
            at[d - 1]++;
        }
    }
    return to;
}

void ev_read(const ev_walk *w, int64_t first, int64_t n, uint64_t *to)
{
    const uint64_t *from = ev_gather(w, first, n, to);
    if (from != to)
        memcpy(to, from, (size_t)n * 8);
}

/* ---- windows ---- */

/* Source index along dimension d for kernel index k at output index o; -1: outside the source. */
static int64_t source_index(const ev_window *s, int d, int64_t o, int64_t k)
{
    int64_t i = s->transposed ? o + s->begin[d] - k * s->dil[d]
                              : o * s->stride[d] - s->begin[d] + k * s->dil[d];
    if (s->transposed && (i < 0 || i % s->stride[d]))
        return -1;
    i /= s->transposed ? s->stride[d] : 1;
    return i >= 0 && i < s->in[d] ? i : -1;
}

ev_window ev_window_shape(
    const nnc_node *n, const nnc_type *x, const nnc_type *y, const int64_t *kernel)
{
    const int64_t *stride = NULL, *pads = NULL, *dil = NULL;
    int ns = nnc_attr_ints(n, AT_strides, &stride), np = nnc_attr_ints(n, AT_pads, &pads);
    int nd = nnc_attr_ints(n, AT_dilations, &dil);
    ev_window s = {.rank = x->rank - 2,
        .transposed = n->op == OP_conv_transpose,
        .plane = 1,
        .results = 1,
        .elements = 1};
    for (int d = 0; d < s.rank; d++) {
        s.in[d] = x->dim[2 + d];
        s.out[d] = y->dim[2 + d];
        s.k[d] = kernel[d];
        s.stride[d] = ns ? stride[d] : 1;
        s.begin[d] = np ? pads[d] : 0;
        s.end[d] = np ? pads[s.rank + d] : 0;
        s.dil[d] = nd ? dil[d] : 1;
        s.plane *= s.in[d];
        s.results *= s.out[d];
        s.elements *= s.k[d];
    }
    return s;
}

nnc_status ev_window_of(const ev *e, ev_window *s, const nnc_node *n, const nnc_type *x,
    const nnc_type *y, const int64_t *kernel)
{
    int64_t entries = 0;
    *s = ev_window_shape(n, x, y, kernel);
    for (int d = 0; d < s->rank; d++)
        entries += s->out[d] * s->k[d];
    s->table = nnc_malloc((size_t)entries * 8);
    return s->table ? NNC_OK : nnc_nomem(e->sink);
}

void ev_walk_window(
    ev_walk *w, const ev_window *s, bool kernel_first, int64_t between, int64_t stride)
{
    const int64_t *outer = kernel_first ? s->k : s->out, *inner = kernel_first ? s->out : s->k;
    int64_t *t = s->table, step = s->plane;
    int row[3];
    for (int d = 0; d < s->rank; d++) {
        row[d] = outer[d] > 1 ? w->rank : -1;
        if (outer[d] > 1)
            ev_walk_table(w, outer[d], NULL, -1);
    }
    ev_walk_add(w, between, stride);
    for (int d = 0; d < s->rank; d++) {
        step /= s->in[d];
        ev_walk_table(w, inner[d], t, row[d]);
        for (int64_t a = 0; a < outer[d]; a++)
            for (int64_t b = 0; b < inner[d]; b++) {
                int64_t i = kernel_first ? source_index(s, d, b, a) : source_index(s, d, a, b);
                *t++ = i < 0 ? -1 : i * step;
            }
    }
}

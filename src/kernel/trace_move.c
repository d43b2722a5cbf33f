/* kernel/trace_move.c -- index maps of movement ops and windows: from the map `idx` at which a result is demanded to the operand's.
 *
 * Termination: each rule demands an operand, which is defined earlier; restarts are bounded in trace.c. */
#include "kernel/trace.h"

#include <string.h>

static const nnc_type *type_of(const nx *t, nnc_ref v)
{
    return nnc_typeof(t->g, v);
}

/* ---- reshape ---- */

bool nx_divide(nx *t, const nnc_affine *e, int64_t d, nnc_affine *q, nnc_affine *r)
{
    int64_t lo, hi;
    *q = *r = (nnc_affine){0};
    q->c = nnc_floordiv(e->c, d);
    r->c = e->c - q->c * d;
    for (int a = 0; a < t->k->n_axis; a++) {
        if (e->k[a] % d == 0)
            q->k[a] = e->k[a] / d;
        else
            r->k[a] = e->k[a];
    }
    nx_span(t, r, &lo, &hi);
    if (lo < 0 || hi >= d) { /* flipped digits: c - k a; the constant belongs to them */
        int64_t shift = nnc_floordiv(lo, d);
        if (hi - shift * d < d) {
            r->c -= shift * d;
            q->c += shift;
            return true;
        }
    } else {
        return true;
    }
    for (int a = 0; a < t->k->n_axis; a++) {
        int64_t k = r->k[a] < 0 ? -r->k[a] : r->k[a];
        if (k != 0 && k < d && d % k == 0 && k * t->k->axis[a].extent > d && nx_split(t, a, d / k))
            return false;
    }
    return false;
}

/* Row-major index of the element of `to` at idx, added to *e. */
static void add_linear(nnc_affine *e, const nnc_type *to, const nnc_affine *idx)
{
    int64_t place = 1;
    for (int d = to->rank - 1; d >= 0; d--) {
        nnc_affine_add(e, &idx[d], place);
        place *= to->dim[d];
    }
}

/* Reshape of dense row-major memory from outside: the linear index, put into the dimension of stride 1, is the place. */
static int32_t reshape_memory(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    nnc_ref x = nnc_def(t->g, v)->in[0];
    const nnc_type *from = type_of(t, x);
    nnc_affine *in = nx_maps(t, from->rank);
    if (!in)
        return -1;
    add_linear(&in[from->order[from->rank - 1]], type_of(t, v), idx);
    return nx_demand(t, ctx, x, in, guard);
}

/* Computes the digits of the row-major index at run time. */
static int32_t reshape_computed(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    nnc_ref x = nnc_def(t->g, v)->in[0];
    if (!t->computed || nx_is_inside(t, t->g->value[x].node))
        return nx_fail(t, v, "regroups elements in a way that loops cannot follow");
    nnc_affine *e = nx_maps(t, 1);
    if (!e)
        return -1;
    add_linear(e, type_of(t, v), idx);
    return nx_computed(t, NW_digits, ctx, x, e, 1, guard);
}

/* Reshape: neighbouring dimensions with equal products form groups; within each, the linear index is divided again. */
static int32_t reshape(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    nnc_ref x = nnc_def(t->g, v)->in[0];
    const nnc_type *to = type_of(t, v), *from = type_of(t, x);
    if (from->rank > 0 && !nx_is_inside(t, t->g->value[x].node) &&
        nnc_type_is_row_major(nx_operand_type(t, x)))
        return reshape_memory(t, ctx, v, idx, guard);
    nnc_affine *in = nx_maps(t, from->rank);
    if (!in)
        return -1;
    int i = to->rank, j = from->rank; /* from the last dimension to the first */
    while (j > 0) {
        int64_t have = 1, want = from->dim[--j];
        int top = j + 1;
        nnc_affine lin = {0};
        while (have != want) {
            if (have < want && i > 0) {
                nnc_affine_add(&lin, &idx[--i], have);
                have *= to->dim[i];
            } else if (j > 0) {
                want *= from->dim[--j];
            } else {
                return nx_fail(t, v, "reshape does not fit");
            }
        }
        for (int d = top - 1; d > j; d--) {
            nnc_affine q;
            if (!nx_divide(t, &lin, from->dim[d], &q, &in[d]))
                return t->restart ? -1 : reshape_computed(t, ctx, v, idx, guard);
            lin = q;
        }
        in[j] = lin;
        if (from->dim[j] == 1)
            in[j] = (nnc_affine){0};
    }
    return nx_demand(t, ctx, x, in, guard);
}

/* ---- maps by dimension: `in` holds idx, from the operand's first dimension on ---- */

static void transpose(
    const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in)
{
    const int64_t *perm = NULL;
    (void)t, (void)v;
    for (int d = nnc_attr_ints(n, AT_perm, &perm) - 1; d >= 0; d--)
        in[perm[d]] = idx[d];
}

static void broadcast(
    const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in)
{
    const nnc_type *from = type_of(t, n->in[0]);
    (void)v, (void)idx;
    for (int d = 0; d < from->rank; d++)
        if (from->dim[d] == 1)
            in[d] = (nnc_affine){0};
}

static void slice(const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in)
{
    const int64_t *axes = NULL, *starts = NULL, *steps = NULL;
    int k = nnc_attr_ints(n, AT_axes, &axes), ns = nnc_attr_ints(n, AT_steps, &steps);
    nnc_attr_ints(n, AT_starts, &starts);
    (void)t, (void)v;
    for (int i = 0; i < k; i++) {
        nnc_affine *e = &in[axes[i]];
        *e = (nnc_affine){.c = starts[i]};
        nnc_affine_add(e, &idx[axes[i]], ns ? steps[i] : 1);
    }
}

static void flip(const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in)
{
    const int64_t *axes = NULL;
    for (int i = nnc_attr_ints(n, AT_axes, &axes) - 1; i >= 0; i--) {
        in[axes[i]] = (nnc_affine){.c = type_of(t, v)->dim[axes[i]] - 1};
        nnc_affine_add(&in[axes[i]], &idx[axes[i]], -1);
    }
}

static void split(const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in)
{
    const int64_t *sizes = NULL;
    (void)idx;
    nnc_attr_ints(n, AT_sizes, &sizes);
    for (int i = 0; i < t->g->value[v].result; i++)
        in[nnc_attr_int(n, AT_axis, 0)].c += sizes[i];
}

typedef void move_map(
    const nx *t, const nnc_node *n, nnc_ref v, const nnc_affine *idx, nnc_affine *in);

static int32_t moved(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, move_map *map)
{
    const nnc_node *n = nnc_def(t->g, v);
    int rank = type_of(t, n->in[0])->rank;
    nnc_affine *in = nx_maps(t, rank);
    if (!in)
        return -1;
    memcpy(in, idx + type_of(t, v)->rank - rank, sizeof *in * (size_t)rank);
    map(t, n, v, idx, in);
    return nx_demand(t, ctx, n->in[0], in, guard);
}

/* ---- pad and concat ---- */

static int32_t pad_constant(nx *t, int ctx, nnc_ref v, nnc_affine *in, int32_t guard)
{
    nnc_ref x = nnc_def(t->g, v)->in[0];
    const nnc_type *from = type_of(t, x);
    int32_t inner = guard;
    for (int d = 0; d < from->rank; d++) {
        int64_t lo, hi;
        nx_span(t, &in[d], &lo, &hi);
        if (hi < 0 || lo >= from->dim[d]) { /* only padding is read */
            return nx_number(t, v, nnc_attr_float(nnc_def(t->g, v), AT_value, 0));
        }
    }
    for (int d = 0; d < from->rank; d++)
        if ((inner = nx_guard(t, inner, &in[d], 0, from->dim[d])) == -2)
            return -1;
    for (int d = 0; d < from->rank; d++)
        if (from->dim[d] == 1)
            in[d] = (nnc_affine){0};
    int32_t arg = nx_demand(t, ctx, x, in, inner);
    if (arg < 0 || inner == guard)
        return arg;
    if (!nx_count(t, v))
        return -1;
    nx_place at = nx_beside(t, ctx, 1, &arg);
    at.axes |= nx_guard_axes(t, inner);
    double fill = nnc_attr_float(nnc_def(t->g, v), AT_value, 0);
    return nx_filled(t, at, arg, inner, guard, nx_const(t, nx_dtype(t, v), fill));
}

/* One dimension of reflect or edge padding: e is the index into n elements before reflecting or clamping. */
static bool fold_edge(nx *t, nnc_ref v, nnc_affine *e, int64_t n, bool reflect)
{
    int64_t lo, hi;
    nx_span(t, e, &lo, &hi);
    if (lo >= 0 && hi < n)
        return true;
    if (lo < 0 && hi >= 0) {
        int64_t b[2] = {0, n};
        return nx_segment(t, e, hi >= n ? 2 : 1, b) ||
               nx_fail(t, v, "mirrored or repeated edges are needed inside the kernel") == 0;
    }
    if (lo < n && hi >= n)
        return nx_segment(t, e, 1, &n) ||
               nx_fail(t, v, "mirrored or repeated edges are needed inside the kernel") == 0;
    if (!reflect || n == 1) {
        *e = (nnc_affine){.c = lo < 0 ? 0 : n - 1};
        return true;
    }
    nnc_affine mirrored = {.c = lo < 0 ? 0 : 2 * (n - 1)};
    nnc_affine_add(&mirrored, e, -1);
    *e = mirrored;
    return fold_edge(
        t, v, e, n, true); /* padding wider than the dimension is reflected repeatedly */
}

static int32_t pad(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *from = type_of(t, n->in[0]);
    const nnc_attr *mode = nnc_attr_find(n, AT_mode);
    char m = mode && mode->word ? mode->word[0] : 'c';
    const int64_t *pads = NULL;
    nnc_attr_ints(n, AT_pads, &pads);
    nnc_affine *in = nx_maps(t, from->rank);
    bool computed = t->computed && t->no_segments && !nx_is_inside(t, t->g->value[n->in[0]].node);
    if (!in)
        return -1;
    for (int d = 0; d < from->rank; d++) {
        in[d] = idx[d];
        in[d].c -= pads[d];
        if (m != 'c' && !computed &&
            (!fold_edge(t, v, &in[d], from->dim[d], m == 'r') || t->restart))
            return -1;
    }
    if (m == 'c')
        return pad_constant(t, ctx, v, in, guard);
    if (computed)
        return nx_computed(
            t, m == 'r' ? NW_reflect : NW_edge, ctx, n->in[0], in, from->rank, guard);
    return nx_demand(t, ctx, n->in[0], in, guard);
}

/* The map of operand i of a concat, and the guard under which it is read; NULL: out of memory. `at`: where the operand begins. */
static nnc_affine *piece(nx *t, nnc_ref v, int i, const nnc_affine *idx, int64_t at, int32_t *guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    int rank = type_of(t, v)->rank, axis = (int)nnc_attr_int(n, AT_axis, 0);
    int64_t size = type_of(t, n->in[i])->dim[axis];
    nnc_affine *in = nx_maps(t, rank);
    if (!in)
        return NULL;
    memcpy(in, idx, sizeof *in * (size_t)rank);
    in[axis].c -= at;
    *guard = nx_guard(t, *guard, &in[axis], 0, size);
    if (size == 1)
        in[axis] = (nnc_affine){0};
    return *guard == -2 ? NULL : in;
}

static int32_t concat_guarded(
    nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, int axis)
{
    const nnc_node *n = nnc_def(t->g, v);
    int32_t *args = ARENA_NEW(t->a, int32_t, n->n_in);
    int64_t at = 0;
    t->oom |= !args;
    if (!args || (n->n_in > 16 && !t->computed))
        return nx_fail(t, v, "concatenates too many operands inside the kernel");
    for (int i = 0; i < n->n_in; i++) {
        int32_t inner = guard;
        nnc_affine *in = piece(t, v, i, idx, at, &inner);
        if (!in || (args[i] = nx_demand(t, ctx, n->in[i], in, inner)) < 0)
            return -1;
        at += type_of(t, n->in[i])->dim[axis];
    }
    return nx_choose(t, ctx, v, idx, axis, args);
}

static int32_t concat(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *to = type_of(t, v);
    int axis = (int)nnc_attr_int(n, AT_axis, 0), n_bound = 0;
    int64_t lo, hi, at = 0, bound[NX_SEGMENTS];
    nx_span(t, &idx[axis], &lo, &hi);
    for (int i = 0; i < n->n_in; i++) {
        int64_t size = type_of(t, n->in[i])->dim[axis];
        if (lo >= at && hi < at + size) {
            nnc_affine *in = piece(t, v, i, idx, at, &guard);
            return in ? nx_demand(t, ctx, n->in[i], in, guard) : -1;
        }
        at += size;
        if (n_bound < NX_SEGMENTS)
            bound[n_bound++] = at;
    }
    /* One stage per operand, unless little other parallelism is left. */
    int64_t numel = nnc_type_numel(to), other = numel / to->dim[axis];
    if (n->n_in <= NX_SEGMENTS && t->ctx[ctx].output && (other >= 16 || numel <= 65536) &&
        nx_segment(t, &idx[axis], n_bound - 1, bound))
        return -1;
    return concat_guarded(t, ctx, v, idx, guard, axis);
}

/* ---- gather ---- */

static int32_t gather(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *data = type_of(t, n->in[0]), *index = type_of(t, n->in[1]);
    int axis = (int)nnc_attr_int(n, AT_axis, 0);
    if (nx_is_inside(t, t->g->value[n->in[0]].node))
        return nx_fail(t, v, "looks up a table that is computed in the same kernel");
    nnc_affine *in = nx_maps(t, data->rank), *at = nx_maps(t, index->rank);
    if (!in || !at)
        return -1;
    for (int d = 0; d < data->rank; d++)
        if (d != axis)
            in[d] = idx[d < axis ? d : d + index->rank - 1];
    memcpy(at, idx + axis, sizeof *at * index->rank);
    int32_t arg = nx_demand(t, ctx, n->in[1], at, guard);
    if (arg < 0)
        return -1;
    return nx_count(t, n->in[0]) ? nx_gather(t, ctx, n->in[0], in, axis, 1, &arg, guard) : -1;
}

/* y[i..] = x[i.., index[i..], ..] */
static int32_t gather_elements(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const int rank = type_of(t, v)->rank, axis = (int)nnc_attr_int(n, AT_axis, 0);
    if (nx_is_inside(t, t->g->value[n->in[0]].node))
        return nx_fail(t, v, "looks up a table that is computed in the same kernel");
    nnc_affine *in = nx_maps(t, rank);
    if (!in)
        return -1;
    memcpy(in, idx, sizeof *in * (size_t)rank);
    in[axis] = (nnc_affine){0};
    int32_t arg = nx_demand(t, ctx, n->in[1], idx, guard);
    if (arg < 0)
        return -1;
    return nx_count(t, n->in[0]) ? nx_gather(t, ctx, n->in[0], in, axis, 1, &arg, guard) : -1;
}

/* y[b.., i.., s..] = x[b.., index[b.., i.., :], s..] */
static int32_t gather_nd(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *x = type_of(t, n->in[0]), *index = type_of(t, n->in[1]);
    const int batch = (int)nnc_attr_int(n, AT_batch_dims, 0), k = (int)index->dim[index->rank - 1];
    int32_t arg[NNC_MAX_RANK] = {0};
    if (nx_is_inside(t, t->g->value[n->in[0]].node))
        return nx_fail(t, v, "looks up a table that is computed in the same kernel");
    nnc_affine *in = nx_maps(t, x->rank);
    for (int j = 0; j < k && in; j++) {
        nnc_affine *at = nx_maps(t, index->rank);
        if (!at)
            return -1;
        memcpy(at, idx, sizeof *at * (size_t)(index->rank - 1));
        at[index->rank - 1].c = j;
        if ((arg[j] = nx_demand(t, ctx, n->in[1], at, guard)) < 0)
            return -1;
    }
    for (int d = 0; d < x->rank && in; d++)
        if (d < batch || d >= batch + k)
            in[d] = idx[d < batch ? d : d - batch - k + index->rank - 1];
    return in && nx_count(t, n->in[0]) ? nx_gather(t, ctx, n->in[0], in, batch, k, arg, guard) : -1;
}

static int32_t relayout(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    return nx_demand(t, ctx, nnc_def(t->g, v)->in[0], idx, guard);
}

int32_t nx_move(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    static int32_t (*const rule[OP__COUNT])(nx *, int, nnc_ref, const nnc_affine *, int32_t) = {
        [OP_reshape] = reshape,
        [OP_pad] = pad,
        [OP_concat] = concat,
        [OP_gather] = gather,
        [OP_gather_elements] = gather_elements,
        [OP_gather_nd] = gather_nd,
        [OP_relayout] = relayout,
    };
    static move_map *const map[OP__COUNT] = {
        [OP_transpose] = transpose,
        [OP_broadcast] = broadcast,
        [OP_slice] = slice,
        [OP_split] = split,
        [OP_flip] = flip,
    };
    nnc_op op = (nnc_op)nnc_def(t->g, v)->op;
    return map[op] ? moved(t, ctx, v, idx, guard, map[op]) : rule[op](t, ctx, v, idx, guard);
}

/* ---- windows ---- */

nnc_affine *nx_window(nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *const *win,
    int32_t *guard, const nnc_affine **start)
{
    const nnc_type *from = type_of(t, n->in[0]);
    const int64_t *stride = NULL, *pads = NULL, *dil = NULL;
    int ns = nnc_attr_ints(n, AT_strides, &stride), np = nnc_attr_ints(n, AT_pads, &pads);
    int nd = nnc_attr_ints(n, AT_dilations, &dil), r = from->rank - 2;
    nnc_affine *in = nx_maps(t, from->rank), *first = nx_maps(t, r);
    if (!in || !first)
        return NULL;
    in[0] = idx[0];
    in[1] = idx[1];
    for (int d = 0; d < r; d++) {
        nnc_affine *e = &in[d + 2];
        e->c = np ? -pads[d] : 0;
        nnc_affine_add(e, &idx[d + 2], ns ? stride[d] : 1);
        first[d] = *e;
        nnc_affine_add(e, win[d], nd ? dil[d] : 1);
        if ((*guard = nx_guard(t, *guard, e, 0, from->dim[d + 2])) == -2)
            return NULL;
    }
    *start = first;
    return in;
}

/* kernel/trace.c -- whether a set of nodes can be one generated kernel, and its instructions. See trace.h for the idea, trace_move.c for
 * movement, trace_contract.c for contractions, trace_ins.c for the instructions.
 *
 * Cost: each attempt visits a value once per context that needs it. Attempts are repeated once per split axis or segmented dimension, of
 * which there are at most NNC_KAXES. */
#include "kernel/trace.h"

#include <assert.h>
#include <string.h>

/* ---- small parts ---- */

void nx_span(const nx *t, const nnc_affine *e, int64_t *lo, int64_t *hi)
{
    *lo = *hi = e->c;
    for (int a = 0; a < t->k->n_axis; a++)
        *(e->k[a] < 0 ? lo : hi) += e->k[a] * (t->k->axis[a].extent - 1);
}

nnc_affine *nx_maps(nx *t, int n)
{
    nnc_affine *m = ARENA_NEW(t->a, nnc_affine, n + 1);
    t->oom |= !m;
    return m;
}

uint32_t nx_axes(const nnc_affine *e, int n)
{
    uint32_t m = 0;
    for (int i = 0; i < n; i++)
        m |= nnc_affine_axes(&e[i]);
    return m;
}

uint32_t nx_guard_axes(const nx *t, int32_t guard)
{
    uint32_t m = 0;
    for (; guard >= 0; guard = t->guard[guard].parent)
        m |= nx_axes(&t->guard[guard].e, 1);
    return m;
}

int32_t nx_fail(nx *t, nnc_ref v, const char *what)
{
    if (t->oom || t->restart || *t->why)
        return -1;
    const nnc_node *n = nnc_def(t->g, v);
    *t->why = n->origin && *n->origin
                  ? nnc_arena_printf(t->a, "%s at %s %s", nnc_ops[n->op].name, n->origin, what)
                  : nnc_arena_printf(t->a, "%s %s", nnc_ops[n->op].name, what);
    t->oom |= !*t->why;
    return -1;
}

static int32_t fail_all(nx *t, const char *why)
{
    if (!t->oom && !t->restart && !*t->why)
        *t->why = why;
    return -1;
}

int32_t nx_guard(nx *t, int32_t parent, const nnc_affine *e, int64_t lo, int64_t hi)
{
    int64_t least, most;
    nx_span(t, e, &least, &most);
    if (least >= lo && most < hi)
        return parent;
    for (int i = 0; i < t->n_guard; i++)
        if (t->guard[i].parent == parent && t->guard[i].lo == lo && t->guard[i].hi == hi &&
            nnc_affine_equal(&t->guard[i].e, e))
            return i;
    if (!NX_ROOM(t, guard))
        return -2;
    t->guard[t->n_guard] = (nx_guard_link){*e, lo, hi, parent};
    return t->n_guard++;
}

/* ---- keys, axes ---- */

int nx_find_key(nx *t, int64_t extent, bool root)
{
    if (!NX_ROOM(t, key))
        return -1;
    t->key[t->n_key] = (nx_key){.extent = extent, .root = root};
    return t->n_key++;
}

static bool new_axis(nx *t, nnc_affine *e, int key, int64_t extent, int64_t base)
{
    nnc_kernel *k = t->k;
    if (extent == 1)
        return true;
    if (k->n_axis == NNC_KAXES) {
        fail_all(t, "together they need more than 16 loops");
        return false;
    }
    e->k[k->n_axis] = base;
    t->axis_key[k->n_axis] = (int16_t)key;
    t->axis_base[k->n_axis] = base;
    k->axis[k->n_axis++] = (nnc_kaxis){.extent = extent};
    return true;
}

const nnc_affine *nx_key_expr(nx *t, int key, int piece)
{
    nx_key *k = &t->key[key];
    nnc_affine *e = &k->expr[piece];
    if (k->made[piece])
        return e;
    *e = (nnc_affine){0};
    if (k->step > 1) { /* all residues share the axes */
        if (piece > 0 && !nx_key_expr(t, key, 0))
            return NULL;
        if (piece > 0)
            *e = k->expr[0];
        else if (!new_axis(t, e, key, nnc_ceildiv(k->extent, k->step), k->step) ||
                 (k->n_seg <= 1 && !new_axis(t, e, key, nnc_min64(k->step, k->extent), 1)))
            return NULL;
        e->c = piece;
    } else if (k->n_seg > 1) {
        e->c = k->seg[piece];
        if (!new_axis(t, e, key, k->seg[piece + 1] - k->seg[piece], 1))
            return NULL;
    } else {
        int64_t top = k->extent;
        for (int i = k->n_cut - 1; i >= -1; i--) {
            int64_t base = i >= 0 ? k->cut[i] : 1;
            if (!new_axis(t, e, key, top / base, base))
                return NULL;
            top = base;
        }
    }
    k->made[piece] = true;
    return e;
}

bool nx_split(nx *t, int axis, int64_t place)
{
    nx_key *k = &t->key[t->axis_key[axis]];
    if (t->no_split || place <= 1 || t->k->axis[axis].extent % place != 0 || k->n_seg > 1 ||
        k->step > 1 || k->n_cut == NX_CUTS)
        return false;
    int64_t cut = t->axis_base[axis] * place;
    int i = k->n_cut++;
    for (; i > 0 && k->cut[i - 1] > cut; i--)
        k->cut[i] = k->cut[i - 1];
    k->cut[i] = cut;
    return t->restart = true;
}

/* The dimension of an output that e covers wholly by its only axis *a; NULL: there is none. */
static nx_key *whole_key(nx *t, const nnc_affine *e, int *a)
{
    uint32_t m = nx_axes(e, 1);
    if (t->no_segments || m == 0 || (m & (m - 1)))
        return NULL;
    *a = __builtin_ctz(m);
    nx_key *k = &t->key[t->axis_key[*a]];
    bool whole = k->root && k->n_cut == 0 && k->n_seg <= 1 && k->step <= 1;
    return whole && (e->k[*a] == 1 || e->k[*a] == -1) ? k : NULL;
}

bool nx_residues(nx *t, const nnc_affine *e, int64_t step, bool apart)
{
    int a;
    nx_key *k = whole_key(t, e, &a);
    if (!k)
        return false;
    apart = apart && step <= NX_SEGMENTS;
    k->step = step;
    k->n_seg = apart ? (int)nnc_min64(step, k->extent) : 0;
    return t->restart = true;
}

bool nx_segment(nx *t, const nnc_affine *e, int n, const int64_t *bounds)
{
    int a;
    nx_key *k = whole_key(t, e, &a);
    if (!k)
        return false;
    int64_t seg[NX_SEGMENTS + 1] = {0};
    int n_seg = 1;
    for (int i = 0; i < n;
         i++) { /* where c + k x reaches the bound, from the other side when mirrored */
        int j = e->k[a] > 0 ? i : n - 1 - i;
        int64_t x = e->k[a] > 0 ? bounds[j] - e->c : e->c - bounds[j] + 1;
        if (x > seg[n_seg - 1] && x < k->extent) {
            if (n_seg == NX_SEGMENTS)
                return false;
            seg[n_seg++] = x;
        }
    }
    if (n_seg == 1 || t->k->n_axis + n_seg - 1 > NNC_KAXES)
        return false;
    seg[n_seg] = k->extent;
    memcpy(k->seg, seg, sizeof seg);
    k->n_seg = n_seg;
    return t->restart = true;
}

/* ---- values ---- */

bool nx_count(nx *t, nnc_ref v)
{
    if (t->n_value++ > t->most)
        return nx_fail(t, v, "would be computed at too many different indices") == 0;
    return true;
}

static int32_t ewise(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *to = nnc_typeof(t->g, v);
    int32_t args[4] = {-1, -1, -1, -1};
    for (int i = 0; i < n->n_in && i < 4; i++) {
        const nnc_type *from = nnc_typeof(t->g, n->in[i]);
        const nnc_affine *in = idx;
        if (!nnc_type_same_shape(from, to)) {
            nnc_affine *m = nx_maps(t, from->rank);
            if (!m)
                return -1;
            for (int d = 0; d < from->rank; d++)
                if (from->dim[d] != 1)
                    m[d] = idx[d + to->rank - from->rank];
            in = m;
        }
        if ((args[i] = nx_demand(t, ctx, n->in[i], in, guard)) < 0)
            return -1;
    }
    return n->op == OP_identity ? args[0] : nx_ewise(t, ctx, v, idx, guard, args);
}

/* Is n a sum whose terms have several operands? */
static bool is_contraction(const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) == CL_contract || n->op == OP_maxpool_grad;
}

static int32_t contraction(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    if (nx_is_transposed(n)) {
        int32_t other = guard;
        if (nx_phases(t, n, idx))
            return -1;
        while (other >= 0 && t->guard[other].rounding)
            other = t->guard[other].parent;
        guard = other < 0 ? -1 : guard; /* the guards of its source suffice */
    }
    int32_t arg[2] = {nx_row(t, ctx, v, idx, guard), -1};
    if (n->n_in < 3 || arg[0] < 0)
        return arg[0];
    int channel = n->op == OP_linear ? nnc_typeof(t->g, v)->rank - 1 : 1;
    arg[1] = nx_demand(t, ctx, n->in[2], &idx[channel], guard);
    if (arg[1] < 0 || !nx_count(t, v))
        return -1;
    return nx_sop(t, nx_beside(t, ctx, 2, arg), SC_add, nx_dtype(t, v), arg[0], arg[1], -1);
}

static int32_t trace(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    const nnc_node *n = nnc_def(t->g, v);
    double f;
    const bool inside = nx_is_inside(t, t->g->value[v].node);
    const nnc_graph *g;
    const nnc_ref r = inside ? v : nx_outside(t, v, &g);
    if (nnc_const_scalar(inside ? t->g : g, r, &f))
        return nx_number(t, v, f);
    if (!inside)
        return nx_count(t, v) ? nx_load(t, ctx, v, idx, guard, -1) : -1;
    switch (nnc_op_class((nnc_op)n->op)) {
    case CL_leaf:
        if (n->op == OP_iota)
            return nx_count(t, v) ? nx_iota(t, ctx, v, idx, guard) : -1;
        return nx_fail(t, v, "is data and cannot be inside a kernel");
    case CL_ewise:
    case CL_ecomp: return ewise(t, ctx, v, idx, guard);
    case CL_move: return nx_move(t, ctx, v, idx, guard);
    case CL_reduce: return nx_row(t, ctx, v, idx, guard);
    case CL_window: return (n->op == OP_maxpool_grad ? contraction : nx_row)(t, ctx, v, idx, guard);
    case CL_contract:
        if (!t->strict || nnc_is_depthwise(t->g, n) || nnc_attr_int(n, AT_as_kernel, 0))
            return contraction(t, ctx, v, idx, guard);
        return nx_fail(t, v, "is a contraction: a library call or a kernel of its own");
    case CL_loop: return nx_fail(t, v, "runs in order along an axis: a kernel of its own");
    case CL_collective: return nx_fail(t, v, "runs on several devices: a command of its own");
    default: return nx_fail(t, v, "must be expanded first");
    }
}

int32_t nx_demand(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    size_t bytes = sizeof *idx * nnc_typeof(t->g, v)->rank;
    int32_t *head = &t->bucket[(v * 31u + (uint32_t)ctx) % 256u];
    for (int32_t i = *head; i >= 0; i = t->memo[i].next) {
        const nx_memo *m = &t->memo[i];
        if (m->v == v && m->ctx == ctx && m->guard == guard &&
            (m->idx == idx || memcmp(m->idx, idx, bytes) == 0))
            return m->ins;
    }
    int32_t p = trace(t, ctx, v, idx, guard);
    if (p < 0)
        return -1;
    if (!NX_ROOM(t, memo))
        return -1;
    t->memo[t->n_memo] = (nx_memo){v, (int16_t)ctx, guard, p, *head, idx};
    *head = t->n_memo++;
    return p;
}

/* ---- reductions ---- */

static int new_ctx(nx *t, bool output, uint32_t axes)
{
    if (t->n_ctx == NX_CTX)
        return fail_all(t, "together they need too many loop nests");
    if (!NX_ROOM(t, ctx))
        return -1;
    t->ctx[t->n_ctx] = (nx_ctx){.output = output, .axes = axes};
    return t->n_ctx++;
}

/* The key of an earlier space whose dimension d has this extent, or a new one. */
static int shared_key(nx *t, int rank, int d, int64_t extent)
{
    for (int i = 0; i < t->n_space; i++)
        if (t->space[i].rank == rank && t->key[t->space[i].key[d]].extent == extent)
            return t->space[i].key[d];
    return nx_find_key(t, extent, false);
}

/* `share`: dimensions use the axes of other spaces' dimensions with equal extents. */
static int find_space(nx *t, int rank, const int64_t *dim, bool share)
{
    for (int i = 0; i < t->n_space; i++) {
        int d = 0;
        while (d < rank && t->space[i].rank == rank && t->key[t->space[i].key[d]].extent == dim[d])
            d++;
        if (t->space[i].rank == rank && d == rank)
            return i;
    }
    if (!NX_ROOM(t, space))
        return -1;
    nx_space *p = &t->space[t->n_space];
    p->rank = rank;
    for (int d = 0; d < rank; d++) {
        p->key[d] = share ? shared_key(t, rank, d, dim[d]) : nx_find_key(t, dim[d], false);
        if (p->key[d] < 0)
            return -1;
    }
    return t->n_space++;
}

/* Makes the kept axes of reductions the kernel's outer axes. */
static bool agree_on_rows(nx *t, nnc_ref v, const nnc_affine *idx)
{
    const nnc_type *y = nnc_typeof(t->g, v);
    uint32_t m = nx_axes(idx, y->rank);
    int64_t rows = 1;
    for (int a = 0; a < t->k->n_axis; a++)
        if (m >> a & 1) {
            const nx_key *k = &t->key[t->axis_key[a]];
            bool rounded = k->step > 1 && t->axis_base[a] == k->step;
            rows *= rounded ? nnc_max64(k->extent / k->step, 1) : t->k->axis[a].extent;
            if (!k->root)
                return nx_fail(t, v, "is reduced again over other dimensions") == 0;
        }
    if (t->outer_set && m != t->outer)
        return nx_fail(t, v, "keeps other dimensions than the kernel's other reductions") == 0;
    if (rows > nnc_type_numel(y) + nnc_type_numel(y) / 2)
        return nx_fail(t, v, "would be reduced again for every element that reads it") == 0;
    t->outer_set = true;
    t->outer = m;
    return true;
}

static bool is_window(const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) == CL_window;
}

/* Finds the dimensions of its operand that a reduction to index idx reduces, with their extents; for a window: its kernel. */
static int reduced_dims(
    const nx *t, const nnc_node *n, const nnc_affine *idx, bool reduced[NNC_MAX_RANK], int64_t *dim)
{
    const nnc_type *x = nnc_typeof(t->g, n->in[0]);
    const int64_t *axes = NULL;
    int64_t one;
    memset(reduced, 0, sizeof *reduced * NNC_MAX_RANK);
    if (is_contraction(n))
        return nx_summed(t, n, idx, dim);
    if (nnc_op_class((nnc_op)n->op) == CL_window) {
        int k = nnc_attr_ints(n, AT_kernel, &axes);
        memcpy(dim, axes, sizeof *dim * (size_t)k);
        return k;
    }
    int k = nnc_attr_ints(n, AT_axes, &axes), r = 0;
    if (n->op == OP_argmax || n->op == OP_argmin) {
        one = nnc_attr_int(n, AT_axis, 0);
        axes = &one;
        k = 1;
    }
    for (int i = 0; i < k; i++)
        reduced[axes[i]] = true;
    for (int d = 0; d < x->rank; d++)
        if (reduced[d])
            dim[r++] = x->dim[d];
    return r;
}

/* The operand's map: kept dimensions from the result's map, reduced ones from the space's. */
static const nnc_affine *operand_map(nx *t, const nnc_node *n, const nnc_affine *idx,
    const bool *reduced, const nnc_affine *const *win, int32_t *guard, const nnc_affine **start)
{
    *start = NULL;
    if (is_contraction(n))
        return nx_source(t, n, idx, win, guard, start);
    if (is_window(n))
        return nx_window(t, n, idx, win, guard, start);
    const nnc_type *x = nnc_typeof(t->g, n->in[0]);
    nnc_affine *in = nx_maps(t, x->rank);
    bool keep = nnc_typeof(t->g, n->out)->rank == x->rank;
    if (!in)
        return NULL;
    for (int d = 0, r = 0, k = 0; d < x->rank; d++) {
        assert(!reduced[d] || win[r]); /* the space's rank is the number of reduced dimensions */
        const nnc_affine *w = reduced[d] ? win[r++] : NULL;
        in[d] = w ? *w : idx[keep ? d : k];
        k += !reduced[d];
    }
    return in;
}

static int32_t add_reduce(
    nx *t, nnc_ref v, const nnc_affine *idx, int32_t guard, int space, const bool *reduced)
{
    static const nnc_affine zero;
    const nnc_affine *win[NNC_MAX_RANK], *start;
    uint32_t axes = 0;
    int64_t count = 1;
    for (int d = 0; d < NNC_MAX_RANK;
         d++) /* the space's rank is the number of reduced dimensions */
        win[d] = &zero;
    for (int d = 0; d < t->space[space].rank; d++) {
        if (!(win[d] = nx_key_expr(t, t->space[space].key[d], 0)))
            return -1;
        axes |= nx_axes(win[d], 1);
        count *= t->key[t->space[space].key[d]].extent;
    }
    int32_t inner = guard;
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_affine *in = operand_map(t, n, idx, reduced, win, &inner, &start);
    int ctx = in ? new_ctx(t, false, axes) : -1;
    if (ctx >= 0)
        t->ctx[ctx].window = is_window(n) || is_contraction(n);
    int32_t x = ctx < 0             ? -1
                : is_contraction(n) ? nx_product(t, ctx, n, idx, in, win, guard, inner)
                                    : nx_demand(t, ctx, n->in[0], in, inner);
    if (x < 0)
        return -1;
    if (is_contraction(n))
        inner = guard;
    if (!NX_ROOM(t, reduce))
        return -1;
    int level = t->ins[x].at.level + 1;
    if (nx_is_transposed(n) && t->n_reduce) /* a stage of its own, before its users' */
        level = (int)nnc_max64(level, t->reduce[t->n_reduce - 1].level + 1);
    nx_place at = {.ctx = (int16_t)ctx,
        .level = (int16_t)level,
        .reduction = (int16_t)t->n_reduce,
        .axes = t->outer};
    int32_t y = nx_reduce(t, at, v, x, inner, guard, start, count);
    if (y < 0)
        return -1;
    t->reduce[t->n_reduce] = (nx_reduction){.v = v,
        .ctx = (int16_t)ctx,
        .space = (int16_t)space,
        .level = (int16_t)level,
        .result = y,
        .guard = guard,
        .idx = idx};
    return t->n_reduce++;
}

/* All reduced extents are 1: the result is the operand. */
static int32_t trivial(
    nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, const bool *reduced)
{
    const nnc_node *n = nnc_def(t->g, v);
    static const nnc_affine zero;
    const nnc_affine *win[NNC_MAX_RANK], *start;
    for (int d = 0; d < NNC_MAX_RANK; d++)
        win[d] = &zero;
    if (n->op == OP_argmax || n->op == OP_argmin || n->op == OP_argmaxpool)
        return nx_number(t, v, 0);
    int32_t inner = guard;
    const nnc_affine *in = operand_map(t, n, idx, reduced, win, &inner, &start);
    if (in && is_contraction(n))
        return nx_product(t, ctx, n, idx, in, win, guard, inner);
    if (in && inner != guard)
        return nx_fail(t, v, "has windows of one element outside its operand");
    return in ? nx_demand(t, ctx, n->in[0], in, guard) : -1;
}

/* The guards that depend on a row's own axes only; the others must not bound the operand's access. -2: out of memory, or a guard
 * depends on both (then why is set). */
static int32_t row_guard(nx *t, nnc_ref v, uint32_t axes, int32_t guard)
{
    int32_t chain[NNC_KAXES], kept = -1;
    int n = 0;
    for (; guard >= 0; guard = t->guard[guard].parent) {
        uint32_t m = nx_axes(&t->guard[guard].e, 1);
        if ((m & axes) && ((m & ~axes) || n == NNC_KAXES)) {
            nx_fail(t, v, "is read beyond its edge along other loops as well");
            return -2;
        }
        if (m & axes)
            chain[n++] = guard;
    }
    while (n > 0 && kept != -2) {
        nx_guard_link g = t->guard[chain[--n]];
        kept = nx_guard(t, kept, &g.e, g.lo, g.hi);
    }
    return kept;
}

int32_t nx_row(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard)
{
    bool reduced[NNC_MAX_RANK];
    int64_t dim[NNC_MAX_RANK], count = 1;
    int n = reduced_dims(t, nnc_def(t->g, v), idx, reduced, dim), rank = nnc_typeof(t->g, v)->rank;
    for (int d = 0; d < n; d++)
        count *= dim[d];
    if (count == 0 && is_contraction(nnc_def(t->g, v))) /* no element of the window reaches it */
        return nx_number(t, v, 0);
    if (count == 1)
        return trivial(t, ctx, v, idx, guard, reduced);
    if ((guard = row_guard(t, v, nx_axes(idx, rank), guard)) == -2)
        return -1;
    int32_t r = 0;
    while (r < t->n_reduce && !(t->reduce[r].v == v && t->reduce[r].guard == guard &&
                                  memcmp(t->reduce[r].idx, idx, sizeof *idx * (size_t)rank) == 0))
        r++;
    if (r == t->n_reduce) {
        bool phases = nx_is_transposed(nnc_def(t->g, v));
        int space = agree_on_rows(t, v, idx) ? find_space(t, n, dim, phases) : -1;
        if (space < 0 || (r = add_reduce(t, v, idx, guard, space, reduced)) < 0)
            return -1;
    }
    return nx_count(t, v) ? t->reduce[r].result : -1;
}

/* ---- outputs ---- */

/* True when each element of the value corresponds to exactly one point of the map's axes. */
static bool is_bijective(const nx *t, const nnc_affine *idx, const nnc_type *ty)
{
    uint32_t seen = 0;
    for (int d = 0; d < ty->rank; d++) {
        uint32_t m = nx_axes(&idx[d], 1);
        if ((m & seen) || idx[d].c != 0)
            return false;
        seen |= m;
        int64_t place = 1;
        while (m) {
            int a = 0;
            while (a < t->k->n_axis && !((m >> a & 1) && idx[d].k[a] == place))
                a++;
            if (a == t->k->n_axis)
                return false;
            m &= ~(1u << a);
            place *= t->k->axis[a].extent;
        }
        if (place != ty->dim[d])
            return false;
    }
    return true;
}

static const nnc_affine *find_visited(const nx *t, int ctx, nnc_ref v)
{
    for (int32_t i = t->bucket[(v * 31u + (uint32_t)ctx) % 256u]; i >= 0; i = t->memo[i].next) {
        const nx_memo *m = &t->memo[i];
        if (m->v == v && m->ctx == ctx && m->guard < 0 &&
            is_bijective(t, m->idx, nnc_typeof(t->g, v)))
            return m->idx;
    }
    return NULL;
}

/* The map of v in ctx, derived from operands already demanded there; NULL: unknown. */
static const nnc_affine *forward(nx *t, int ctx, nnc_ref v)
{
    const nnc_affine *f = find_visited(t, ctx, v);
    const nnc_node *n = nnc_def(t->g, v);
    const nnc_type *y = nnc_typeof(t->g, v);
    if (f || t->steps++ > 4096 || !nx_is_inside(t, t->g->value[v].node))
        return f;
    nnc_class cls = nnc_op_class((nnc_op)n->op);
    if (cls == CL_ewise || cls == CL_ecomp || n->op == OP_relayout)
        for (int i = 0; i < n->n_in; i++)
            if (nnc_type_same_shape(nnc_typeof(t->g, n->in[i]), y) &&
                (f = forward(t, ctx, n->in[i])))
                return f;
    if (cls != CL_reduce && n->op != OP_transpose)
        return NULL;
    f = forward(t, ctx, n->in[0]);
    nnc_affine *m = f ? nx_maps(t, y->rank) : NULL;
    if (!m)
        return NULL;
    const int64_t *perm = NULL;
    if (n->op == OP_transpose) {
        nnc_attr_ints(n, AT_perm, &perm);
        for (int d = 0; d < y->rank; d++)
            m[d] = f[perm[d]];
        return m;
    }
    bool reduced[NNC_MAX_RANK];
    int64_t dim[NNC_MAX_RANK];
    reduced_dims(t, n, NULL, reduced, dim);
    int rank = nnc_typeof(t->g, n->in[0])->rank;
    for (int d = 0, k = 0; d < rank; d++)
        if (!reduced[d])
            m[y->rank == rank ? d : k++] = f[d];
    return m;
}

/* Contexts and maps of a root in this attempt, one per combination of segments. */
static bool open_root(nx *t, nx_root *r)
{
    r->n_combo = 1;
    for (int d = 0; d < r->rank; d++)
        if (t->key[r->key[d]].n_seg > 1)
            r->n_combo *= t->key[r->key[d]].n_seg;
    if (r->n_combo > 64) {
        fail_all(t, "together they need too many loop nests");
        return false;
    }
    r->idx = ARENA_NEW(t->a, const nnc_affine *, r->n_combo);
    t->oom |= !r->idx;
    for (int c = 0; r->idx && c < r->n_combo; c++) {
        nnc_affine *m = nx_maps(t, r->rank);
        if (!m)
            return false;
        for (int d = 0, rest = c; d < r->rank; d++) {
            int n = t->key[r->key[d]].n_seg > 1 ? t->key[r->key[d]].n_seg : 1;
            const nnc_affine *e = nx_key_expr(t, r->key[d], rest % n);
            if (!e)
                return false;
            m[d] = *e;
            rest /= n;
        }
        r->idx[c] = m;
        int ctx = new_ctx(t, true, nx_axes(m, r->rank));
        if (ctx < 0)
            return false;
        if (c == 0)
            r->ctx0 = ctx;
    }
    return r->idx != NULL;
}

/* The root of outputs with v's dimensions; dimensions shared with an earlier root use its axes. */
static nx_root *find_root(nx *t, nnc_ref v)
{
    const nnc_type *y = nnc_typeof(t->g, v);
    for (int i = 0; i < t->n_root; i++)
        if (t->root[i].rank == y->rank &&
            memcmp(t->root[i].dim, y->dim, sizeof *y->dim * y->rank) == 0)
            return &t->root[i];
    if (!NX_ROOM(t, root))
        return NULL;
    const nx_root *first = t->n_root ? &t->root[0] : NULL;
    nx_root *r = &t->root[t->n_root];
    *r = (nx_root){.rank = y->rank};
    bool shared = !first;
    for (int d = 0; d < y->rank; d++) {
        r->dim[d] = y->dim[d];
        if (first && first->rank == y->rank && first->dim[d] == y->dim[d] &&
            t->key[first->key[d]].n_seg <= 1) {
            r->key[d] = first->key[d];
            shared = true;
        } else if ((r->key[d] = nx_find_key(t, y->dim[d], true)) < 0) {
            return NULL;
        }
    }
    if (!shared &&
        t->strict) { /* only a split's results may, which are stored one after the other */
        nx_fail(t, v, "has a result of another shape than the rest");
        return NULL;
    }
    t->n_root++;
    return r;
}

static bool add_store(nx *t, nnc_ref v, int ctx, const nnc_affine *idx, int32_t guard)
{
    int32_t x = nx_demand(t, ctx, v, idx, guard);
    return x >= 0 && nx_store(t, ctx, v, idx, guard, x);
}

/* A result of a split that shares no axis with the larger ones. A guard computes it together with the largest, whose other dimensions are
 * equal. */
static bool is_piece(const nx *t, nnc_ref v)
{
    const nnc_node *n = nnc_def(t->g, v);
    const nx_root *first = &t->root[0];
    if (!t->computed || n->op != OP_split || t->n_root == 0 || !first->idx || first->n_combo != 1)
        return false;
    const nnc_type *y = nnc_typeof(t->g, v);
    int axis = (int)nnc_attr_int(n, AT_axis, 0);
    bool shared = false;
    if (first->rank != y->rank || y->dim[axis] >= first->dim[axis])
        return false;
    for (int d = 0; d < y->rank; d++) {
        if (d != axis && first->dim[d] != y->dim[d])
            return false;
        shared |= d != axis && y->dim[d] > 1;
    }
    return !shared || t->no_split;
}

static bool add_piece(nx *t, nnc_ref v)
{
    const nnc_affine *idx = t->root[0].idx[0];
    int axis = (int)nnc_attr_int(nnc_def(t->g, v), AT_axis, 0);
    int32_t guard = nx_guard(t, -1, &idx[axis], 0, nnc_typeof(t->g, v)->dim[axis]);
    return guard != -2 && add_store(t, v, t->root[0].ctx0, idx, guard);
}

/* Guards that keep combination c of root i inside dimensions that residues round up. -2: out of memory. */
static int32_t root_guard(nx *t, int i, int c)
{
    const nx_root *r = &t->root[i];
    int32_t guard = -1, outer = -1;
    for (int d = 0; d < r->rank && guard != -2; d++) {
        if (t->key[r->key[d]].step > 1)
            guard = nx_guard(t, outer, &r->idx[c][d], 0, r->dim[d]);
        if (guard >= 0 && guard != outer)
            t->guard[guard].rounding = true;
        outer = guard;
    }
    return guard;
}

/* First choice: the map that an open root's trace already determines for the value. */
static bool trace_output(nx *t, nnc_ref v)
{
    int rank = nnc_typeof(t->g, v)->rank;
    for (int i = 0; i < t->n_root; i++) {
        if (!t->root[i].idx)
            continue;
        t->steps = 0;
        const nnc_affine *f = forward(t, t->root[i].ctx0, v);
        if (f && t->root[i].n_combo == 1)
            return add_store(t, v, t->root[i].ctx0, f, -1);
        if (f && !(nx_axes(f, rank) & ~t->ctx[t->root[i].ctx0].axes)) {
            uint32_t common = ~0u;
            for (int c = 0; c < t->root[i].n_combo; c++)
                common &= t->ctx[t->root[i].ctx0 + c].axes;
            if (!(nx_axes(f, rank) & ~common))
                return add_store(t, v, t->root[i].ctx0, f, -1);
        }
    }
    if (is_piece(t, v))
        return add_piece(t, v);
    nx_root *r = find_root(t, v);
    if (!r || (!r->idx && !open_root(t, r)))
        return false;
    int i = (int)(r - t->root);
    for (int c = 0; c < t->root[i].n_combo; c++) {
        int32_t guard = root_guard(t, i, c);
        if (guard == -2 || !add_store(t, v, t->root[i].ctx0 + c, t->root[i].idx[c], guard))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

/* Sets outer axes and the other axes' kinds, and makes the checks that are possible only at the end. */
static bool finish(nx *t)
{
    uint32_t common = ~0u;
    for (int i = 0; i < t->n_store; i++)
        common &= t->ctx[t->ins[t->store[i]].at.ctx].axes;
    if (!t->outer_set)
        t->outer = common;
    if (t->outer & ~common) {
        bool segments = false;
        for (int i = 0; i < t->n_key; i++)
            segments |= t->key[i].n_seg > 1;
        if (segments && !t->no_segments) {
            t->no_segments = t->restart = true;
            for (int i = 0; i < t->n_key; i++)
                t->key[i].n_seg = t->key[i].step = 0;
            return false;
        }
        return fail_all(t, "the results do not share the rows that are reduced") == 0;
    }
    for (int i = 0; i < t->n_store; i++)
        if (t->outer & ~t->ins[t->store[i]].at.axes)
            return nx_fail(t, t->ins[t->store[i]].v,
                       "has a result smaller than the loops around it") == 0;
    for (int a = 0; a < t->k->n_axis; a++)
        t->k->axis[a].kind = t->outer >> a & 1             ? KA_outer
                             : t->key[t->axis_key[a]].root ? KA_map
                                                           : KA_reduce;
    return true;
}

/* True for expensive work that one kernel would repeat for longer than the launch of a second kernel takes. Notes in t->windowed cheap work
 * repeated for windows, where there are local buffers. */
static bool repeats_work(nx *t)
{
    for (int i = 0; i < t->n_ins; i++) {
        const nx_ins *p = &t->ins[i];
        bool stored = t->set->local > 0 && p->part >= 0 && t->ctx[p->at.ctx].window;
        if (!p->expensive && !stored)
            continue;
        uint32_t run = t->outer | (p->at.axes & ~t->outer ? t->ctx[p->at.ctx].axes : 0);
        int64_t times = nnc_kernel_points(t->k, run),
                numel = nnc_type_numel(nnc_typeof(t->g, p->v));
        if (times / 2 <= numel || times - numel <= t->set->spare)
            continue;
        if (stored)
            t->windowed = p->v;
        else
            return nx_fail(t, p->v, "would be computed several times for each element") == -1;
    }
    return false;
}

static bool attempt(nx *t, const nnc_ref *outs, int n_out)
{
    t->restart = t->outer_set = false;
    t->windowed = NNC_NONE;
    t->outer = 0;
    t->k->n_axis = 0;
    t->n_ins = t->n_reduce = t->n_ctx = t->n_guard = t->n_store = t->n_memo = t->n_value = 0;
    t->n_buf_value = t->set->n_operand;
    memset(t->bucket, -1, sizeof t->bucket);
    for (int i = 0; i < t->n_key; i++)
        memset(t->key[i].made, 0, sizeof t->key[i].made);
    for (int i = 0; i < t->n_root; i++)
        t->root[i].idx = NULL;
    for (int i = 0; i < n_out; i++)
        if (!trace_output(t, outs[i]))
            return false;
    return finish(t) && !(t->strict && repeats_work(t));
}

/* The distinct results, larger ones first (stable): their index space is the kernel's. */
static nnc_ref *by_size(nx *t, const nnc_ref *outs, int n, int *count)
{
    nnc_ref *o = ARENA_NEW(t->a, nnc_ref, n);
    t->oom |= !o;
    *count = 0;
    for (int i = 0; o && i < n; i++) {
        int64_t size = nnc_type_numel(nnc_typeof(t->g, outs[i]));
        int j = 0;
        while (j < *count && o[j] != outs[i])
            j++;
        if (j < *count)
            continue;
        for (j = (*count)++; j > 0 && nnc_type_numel(nnc_typeof(t->g, o[j - 1])) < size; j--)
            o[j] = o[j - 1];
        o[j] = outs[i];
    }
    return o;
}

static bool try_all(nx *t, const nnc_ref *outs, int n_out)
{
    t->n_key = t->n_root = t->n_space = 0;
    *t->why = NULL;
    for (int tries = 0; tries < 2 * NNC_KAXES; tries++) {
        if (attempt(t, outs, n_out))
            return true;
        if (!t->restart || t->oom)
            return false;
        *t->why = NULL;
    }
    return false;
}

static bool mark_inside(nx *t, const uint32_t *nodes, int n)
{
    t->first = nodes[0];
    t->last = nodes[n - 1];
    t->inside = ARENA_NEW(t->a, uint8_t, (t->last - t->first) / 8 + 1);
    for (int i = 0; t->inside && i < n; i++)
        t->inside[(nodes[i] - t->first) / 8] |= (uint8_t)(1u << ((nodes[i] - t->first) & 7));
    return t->inside != NULL;
}

bool nx_trace(nx *t, const nx_set *set, nnc_arena *a, const char **why)
{
    *t = (nx){.g = set->g,
        .set = set,
        .a = a,
        .why = why,
        .strict = set->spare >= 0,
        .buf_value = set->operand,
        .cap_buf_value = (size_t)set->n_operand};
    *why = NULL;
    if (set->n < 1 || set->n_out < 1 || set->n > NX_NODES) {
        *why = set->n > NX_NODES ? "more than 1024 ops" : "nothing to compute";
        return false;
    }
    t->most = 512;
    for (int i = 0; i < set->n; i++) {
        const nnc_node *m = &set->g->node[set->node[i]];
        t->most += 16 + 4 * m->n_in + 4 * m->n_out;
    }
    int n_out = 0;
    t->k = ARENA_NEW(a, nnc_kernel, 1);
    const nnc_ref *order =
        t->k && mark_inside(t, set->node, set->n) ? by_size(t, set->out, set->n_out, &n_out) : NULL;
    t->oom |= !order;
    if (!order)
        return false;
    t->computed = set->n == 1; /* first without computed indices, as nnc_kernel_possible requires */
    bool ok = try_all(t, order, n_out);
    if (!ok && !t->oom && !t->computed && !t->strict) {
        t->computed = true;
        ok = try_all(t, order, n_out);
    }
    if (!ok && !t->oom && t->computed) {
        t->no_split = t->no_segments = true;
        ok = try_all(t, order, n_out);
    }
    if (t->oom)
        *why = t->limit;
    else if (!ok && !*why)
        *why = "its reshapes regroup elements in too many ways";
    return ok;
}

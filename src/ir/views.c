/* ir/views.c -- nodes that compute nothing because their results share the memory of their operands. Finds them, and where in which value's
 * memory each value is stored.
 *
 *   reshape, transpose, ...   The operand's bytes under another type.
 *   slice, split in place     A part of the operand.
 *   concat in place           The operands are parts of the result: their producers write them there. States are always stored there. */
#include "ir/graph.h"

#include <string.h>

/* An address as a function of the row-major index: digits of a mixed radix, fastest first, each
 * with a stride. */
typedef struct digits {
    int n;
    int64_t extent[NNC_MAX_RANK], stride[NNC_MAX_RANK];
} digits;

/* Drops extents of 1 and merges contiguous digits, so that equal functions have equal digits. */
static digits canonical(int rank, const int64_t *dim, const int64_t *stride)
{
    digits d = {0};
    for (int i = rank - 1; i >= 0; i--) {
        if (dim[i] == 1)
            continue;
        if (d.n && stride[i] == d.extent[d.n - 1] * d.stride[d.n - 1]) {
            d.extent[d.n - 1] *= dim[i];
            continue;
        }
        d.extent[d.n] = dim[i];
        d.stride[d.n++] = stride[i];
    }
    return d;
}

static bool same_digits(const digits *a, const digits *b)
{
    return a->n == b->n && !memcmp(a->extent, b->extent, (size_t)a->n * sizeof a->extent[0]) &&
           !memcmp(a->stride, b->stride, (size_t)a->n * sizeof a->stride[0]);
}

/* Can a value of type t be part of one of type `whole`? It must have whole's memory order and strides, and no larger dimension. */
bool nnc_is_part(const nnc_type *t, const nnc_type *whole)
{
    nnc_type like = nnc_type_dense(t);
    if (t->dtype != whole->dtype || t->rank != whole->rank)
        return false;
    memcpy(like.order, whole->order, sizeof like.order);
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] > whole->dim[i])
            return false;
    nnc_type_set_part(&like, whole);
    return nnc_type_same_strides(t, &like);
}

bool nnc_is_in_place(const nnc_node *n)
{
    return n->op != OP_fused && nnc_op_class(n->op) == CL_move && nnc_attr_int(n, AT_in_place, 0);
}

bool nnc_is_view(const nnc_graph *g, const nnc_node *n)
{
    if (nnc_is_in_place(n))
        return true;
    if (n->n_in != 1 || n->n_out != 1)
        return false;
    const nnc_type *x = nnc_typeof(g, n->in[0]), *y = nnc_typeof(g, n->out);
    int64_t sx[NNC_MAX_RANK], sy[NNC_MAX_RANK], moved[NNC_MAX_RANK];
    const int64_t *perm;
    nnc_type_strides(x, sx);
    nnc_type_strides(y, sy);
    digits from = canonical(x->rank, x->dim, sx), to = canonical(y->rank, y->dim, sy);
    switch (n->op) {
    case OP_identity:
    case OP_dropout:
    case OP_cast:
    case OP_relayout: return nnc_type_same_memory(x, y);
    case OP_broadcast: return nnc_type_numel(x) == nnc_type_numel(y) && same_digits(&from, &to);
    case OP_reshape: return same_digits(&from, &to);
    case OP_transpose:
        nnc_attr_ints(n, AT_perm, &perm);
        for (int i = 0; i < y->rank; i++)
            moved[i] = sx[perm[i]];
        from = canonical(y->rank, y->dim, moved);
        return same_digits(&from, &to);
    default: return false;
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

static nnc_place part_of(nnc_place whole, const nnc_type *t, int64_t axis, int64_t start)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_type_strides(t, stride);
    whole.at += start * stride[axis];
    return whole;
}

int16_t nnc_home(const nnc_graph *g, nnc_ref v)
{
    for (;;) {
        const nnc_node *d = nnc_def(g, v);
        const nnc_class c = nnc_op_class(d->op);
        if (c == CL_collective && nnc_attr_find(d, AT_devices))
            return (int16_t)nnc_attr_find(d, AT_devices)->ints[v - d->out];
        if (c == CL_collective)
            v = d->in[v - d->out];
        else if (c != CL_leaf && nnc_is_view(g, d))
            v = d->in[0];
        else
            return d->device < 0 ? 0 : d->device;
    }
}

nnc_ref nnc_reshaped(const nnc_graph *g, nnc_ref v)
{
    const nnc_node *d = nnc_def(g, v);
    for (; d->op == OP_reshape && nnc_type_is_dense(nnc_typeof(g, v)) && nnc_is_view(g, d);
         d = nnc_def(g, v))
        v = d->in[0];
    return v;
}

/* Places the operands of a concat, or the values that they reshape, one after the other in its result. If they have a place already, as the
 * first operands of a larger concat, the result is there, too. */
static void place_operands(const nnc_graph *g, const nnc_node *n, nnc_place *place)
{
    int64_t axis = nnc_attr_int(n, AT_axis, 0), start = 0;
    const nnc_ref first = nnc_reshaped(g, n->in[0]);
    if (place[n->out].root == n->out && place[first].root != first)
        place[n->out] = place[first];
    for (int k = 0; k < n->n_in; k++) {
        const nnc_ref v = nnc_reshaped(g, n->in[k]);
        if (place[v].root == v)
            place[v] = part_of(place[n->out], nnc_typeof(g, n->out), axis, start);
        start += nnc_typeof(g, n->in[k])->dim[axis];
    }
}

static void place_results(const nnc_graph *g, const nnc_node *n, nnc_place *place)
{
    const nnc_type *x = nnc_typeof(g, n->in[0]);
    const int64_t *axes = NULL, *starts = NULL, *sizes = NULL;
    int64_t axis = nnc_attr_int(n, AT_axis, 0), at = 0;
    int n_axes = nnc_attr_ints(n, AT_axes, &axes);
    nnc_attr_ints(n, AT_starts, &starts);
    nnc_attr_ints(n, AT_sizes, &sizes);
    for (uint32_t o = 0; o < n->n_out; o++) {
        nnc_place *p = &place[n->out + o];
        *p = place[n->in[0]];
        for (int i = 0; n->op == OP_slice && i < n_axes; i++)
            *p = part_of(*p, x, axes[i], starts[i]);
        if (n->op == OP_split) {
            *p = part_of(*p, x, axis, at);
            at += sizes[o];
        }
    }
}

nnc_place *nnc_places(const nnc_graph *g, nnc_arena *a)
{
    nnc_place *place = ARENA_NEW(a, nnc_place, g->n_value + (size_t)1);
    if (!place)
        return NULL;
    for (nnc_ref v = 0; v < g->n_value; v++)
        place[v].root = v;
    for (uint32_t i = g->n_node; i-- > 0;)
        if (g->node[i].op == OP_concat && nnc_is_in_place(&g->node[i]))
            place_operands(g, &g->node[i], place);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (nnc_op_class(n->op) != CL_leaf && n->op != OP_concat && nnc_is_view(g, n))
            place_results(g, n, place);
    }
    return place;
}

/* Which requirement of an in-place node its operands violate, or NULL. */
static const char *in_place_fault(
    const nnc_graph *g, const nnc_node *n, const nnc_place *place, const bool *is_static)
{
    const nnc_type *y = nnc_typeof(g, n->out);
    const int64_t *steps = NULL;
    int64_t axis = nnc_attr_int(n, AT_axis, 0), start = 0;
    for (int i = nnc_attr_ints(n, AT_steps, &steps); i-- > 0;)
        if (steps[i] != 1)
            return "a slice in place has steps of 1";
    for (uint32_t o = 0; n->op != OP_concat && o < n->n_out; o++)
        if (!nnc_is_part(nnc_typeof(g, n->out + o), nnc_typeof(g, n->in[0])))
            return "a result in place has the strides of its operand";
    for (int k = 0; n->op == OP_concat && k < n->n_in; k++) {
        nnc_ref v = n->in[k];
        const nnc_node *d = nnc_def(g, nnc_reshaped(g, v));
        nnc_place want = part_of(place[n->out], y, axis, start);
        if (!nnc_is_part(nnc_typeof(g, v), y))
            return "an operand in place has the strides of the result";
        if (place[v].root != want.root || place[v].at != want.at)
            return "an operand in place lies where the result has it, and nowhere else";
        const bool leaf = nnc_op_class(d->op) == CL_leaf;
        if (leaf ? !d->state : d->op != OP_concat && nnc_is_view(g, d))
            return "an operand in place is computed or a state, and has no memory of another's";
        if (is_static[v] && !is_static[want.root])
            return "an operand in place is computed in each run, as the result is";
        start += nnc_typeof(g, v)->dim[axis];
    }
    return NULL;
}

nnc_status nnc_check_places(const nnc_graph *g, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_place *place = NULL;
    bool *is_static = NULL;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (!nnc_is_in_place(n))
            continue;
        if (!place && (!(place = nnc_places(g, &a)) || !(is_static = nnc_static_values(g, &a))))
            return nnc_nomem(sink);
        const char *why = in_place_fault(g, n, place, is_static);
        if (why)
            return nnc_fail(
                sink, NNC_E_BUG, nnc_node_loc(n), "verify: %s: %s", nnc_ops[n->op].name, why);
    }
    return NNC_OK;
}

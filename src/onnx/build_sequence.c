/* onnx/build_sequence.c -- sequences whose length is known while the model is read: lists of values, which no op of the graph knows. */
#include "onnx/internal.h"
#include <string.h>

/* Result 0: a list of n values. */
static bool give_list(ox_build *b, int n, const ox_value *item)
{
    b->out[0] = (ox_value){.state = OX_sequence, .ref = NNC_NONE, .n_item = n, .item = item};
    return true;
}

static ox_value *new_list(ox_build *b, int n)
{
    ox_value *v = ARENA_NEW(&b->x->a, ox_value, n + 1);
    if (!v)
        ox_nomem(b->x);
    return v;
}

/* Place *i in a list of n values by input `in`, the last one if that is left out. With `end` the end of the list is a place, too. */
static bool place_of(ox_build *b, int in, int n, bool end, int *i)
{
    int64_t at = n - !end;
    if (ox_has(b, in) && !ox_const_int(b, in, &at))
        return false;
    *i = (int)(at < 0 ? at + n : at);
    return (at >= -n && at < n + end) ||
           ox_wrong(b, "place %lld of a sequence of %d", (long long)at, n);
}

bool ox_sequence_construct(ox_build *b)
{
    return give_list(b, b->n_in, b->in);
}

bool ox_sequence_at(ox_build *b)
{
    int i;
    if (!place_of(b, 1, b->in[0].n_item, false, &i))
        return false;
    b->out[0] = b->in[0].item[i];
    return true;
}

/* SequenceInsert of input 1 at input 2; SequenceErase at input 1, by default the last one. */
bool ox_sequence_change(ox_build *b)
{
    const bool erase = !strcmp(b->n->op, "SequenceErase");
    const ox_value *old = b->in[0].item;
    const int n = b->in[0].n_item, now = erase ? n - 1 : n + 1;
    ox_value *v = new_list(b, n + 1);
    int at;
    if (!v || !place_of(b, erase ? 1 : 2, n, !erase, &at))
        return false;
    if (!erase && b->in[1].state == OX_sequence)
        return ox_refuse(b, "sequences of sequences are unsupported");
    for (int i = 0; i < now; i++)
        v[i] = i < at ? old[i] : erase ? old[i + 1] : i == at ? b->in[1] : old[i - 1];
    return give_list(b, now, v);
}

bool ox_sequence_length(ox_build *b)
{
    return ox_give(b, ox_num(b, DT_i64, b->in[0].n_item));
}

static void drop_dim(nnc_type *t, int axis)
{
    t->rank--;
    memmove(t->dim + axis, t->dim + axis + 1, (size_t)(t->rank - axis) * sizeof *t->dim);
}

static ox_value empty_of(const nnc_type *t)
{
    ox_value v = {.state = OX_empty, .ref = NNC_NONE, .dtype = t->dtype, .rank = t->rank};
    memcpy(v.dim, t->dim, sizeof v.dim);
    return v;
}

/* x without dimension `axis`, of extent 1. */
static nnc_ref without(ox_build *b, nnc_ref x, int axis)
{
    if (x == NNC_NONE)
        return x;
    nnc_type t = *ox_type(b, x);
    drop_dim(&t, axis);
    return ox_reshape(b, x, t.rank, t.dim);
}

bool ox_split_to_sequence(ox_build *b)
{
    const nnc_type t = ox_shape_of(b, 0);
    const bool keep = ox_has(b, 1) || ox_int(b, "keepdims", 1) != 0;
    const uint32_t first = b->x->g->n_node;
    int64_t size[OX_MAX_OPERANDS] = {1}, end = 0;
    int n = 1, axis;
    if (!ox_axis(b, ox_int(b, "axis", 0), t.rank, &axis) ||
        (ox_has(b, 1) && !ox_const_ints(b, 1, OX_MAX_OPERANDS, &n, size)))
        return false;
    if (!ox_has(b, 1) || ox_shape_of(b, 1).rank == 0) { /* of this size, the last one of the rest */
        if (size[0] < 1)
            return ox_wrong(b, "its parts have %lld rows", (long long)size[0]);
        if (nnc_ceildiv(t.dim[axis], size[0]) > OX_MAX_OPERANDS)
            return ox_refuse(b, "more than %d parts are unsupported", OX_MAX_OPERANDS);
        n = (int)nnc_ceildiv(t.dim[axis], size[0]);
        for (int i = 1; i < n; i++)
            size[i] = size[0];
        if (n)
            size[n - 1] = t.dim[axis] - (n - 1) * size[0];
    }
    ox_value *v = new_list(b, n);
    for (int i = 0; v && i < n; i++) {
        nnc_type cut = t;
        cut.dim[axis] = size[i];
        if (size[i] < 0 || size[i] > t.dim[axis] - end)
            return ox_wrong(b, "part %d has %lld rows", i, (long long)size[i]);
        end += size[i];
        if (ox_any_0(cut.rank, cut.dim)) {
            if (!keep)
                drop_dim(&cut, axis);
            v[i] = empty_of(&cut);
            continue;
        }
        nnc_ref r = ox_slice(b, ox_in(b, 0), axis, end - size[i], end);
        r = keep ? r : without(b, r, axis);
        if (r == NNC_NONE)
            return false;
        v[i] = (ox_value){.state = OX_here, .ref = r, .dtype = t.dtype};
    }
    if (v && end != t.dim[axis])
        return ox_wrong(
            b, "its parts have %lld of %lld rows", (long long)end, (long long)t.dim[axis]);
    return v && ox_fold(b->x, first, v, n) && give_list(b, n, v);
}

bool ox_concat_from_sequence(ox_build *b)
{
    const bool new_axis = ox_int(b, "new_axis", 0) != 0;
    const int n = b->in[0].n_item;
    nnc_ref *v = ARENA_NEW(&b->x->a, nnc_ref, n + 1);
    int axis, here = 0;
    int64_t rows = 0;
    if (!v)
        return ox_nomem(b->x);
    if (n == 0)
        return ox_wrong(b, "its sequence is empty");
    nnc_type t = ox_type_of(b, &b->in[0].item[0]);
    if (!ox_axis(b, ox_int(b, "axis", 0), t.rank + new_axis, &axis))
        return false;
    /* Those without elements add none, or the result has none either. */
    for (int i = 0; i < n; i++) {
        const ox_value *item = &b->in[0].item[i];
        const nnc_type type = ox_type_of(b, item);
        rows += new_axis || type.rank <= axis ? 1 : type.dim[axis];
        if (item->state != OX_here)
            continue;
        v[here] = item->ref;
        v[here] = new_axis ? ox_add_dim(b, v[here], axis) : v[here];
        here++;
    }
    if (here)
        return ox_give(b, ox_joined(b, here, v, axis));
    if (new_axis)
        memmove(t.dim + axis + 1, t.dim + axis, (size_t)(t.rank++ - axis) * sizeof *t.dim);
    t.dim[axis] = rows;
    return ox_none(b, 0, t.dtype, t.rank, t.dim);
}

/* onnx/build.c -- what builders of operators share: attributes, constants, and ops on values. */
#include "onnx/internal.h"
#include <string.h>

/* ---- attributes ------------------------------------------------------------------------------ */

static const ox_attr *find_attr(const ox_attr *a, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(a[i].name, name))
            return &a[i];
    return NULL;
}

static const ox_attr *given(const ox_build *b, const char *name)
{
    const ox_attr *a = find_attr(b->n->attr, b->n->n_attr, name);
    const ox_build *call = b->scope->call;
    if (!a || !a->ref)
        return a;
    if (!call)
        return NULL;
    const char *ref = a->ref;
    a = given(call, ref);
    return a ? a : find_attr(call->function->attr, call->function->n_attr, ref);
}

const ox_attr *ox_attr_find(const ox_build *b, const char *name, int type)
{
    const ox_attr *a = given(b, name);
    if (!a || a->type == type || !a->type)
        return a;
    ox_wrong(b, "its attribute `%s` has another type than the operator's", name);
    return NULL;
}

int64_t ox_int(const ox_build *b, const char *name, int64_t dflt)
{
    const ox_attr *a = ox_attr_find(b, name, OXA_int);
    return a ? a->i : dflt;
}

double ox_float(const ox_build *b, const char *name, double dflt)
{
    const ox_attr *a = ox_attr_find(b, name, OXA_float);
    return a ? a->f : dflt;
}

const char *ox_word(const ox_build *b, const char *name, const char *dflt)
{
    const ox_attr *a = ox_attr_find(b, name, OXA_string);
    return a ? a->s : dflt;
}

const char *ox_words(const ox_build *b, const char *name)
{
    const ox_attr *a = ox_attr_find(b, name, OXA_strings);
    return a ? a->s : "";
}

bool ox_has_attr(const ox_build *b, const char *name)
{
    return given(b, name) != NULL;
}

bool ox_ints(ox_build *b, const char *name, int most, int *n, int64_t *out)
{
    const ox_attr *a = ox_attr_find(b, name, OXA_ints);
    *n = 0;
    if (!a)
        return false;
    if (a->n > (size_t)most)
        return ox_wrong(
            b, "attribute %s has %zu numbers; at most %d are expected", name, a->n, most);
    *n = (int)a->n;
    if (*n)
        memcpy(out, a->ints, a->n * sizeof *out);
    return true;
}

/* ---- constants ------------------------------------------------------------------------------- */

/* Appends the names of the model's inputs that v is computed from. Returns their number. */
static int put_sources(const ox_build *b, nnc_ref v, nnc_text *t)
{
    const nnc_graph *g = b->x->g;
    int found = 0;
    NNC_FREED bool *needed = nnc_calloc(g->n_node + 1, sizeof *needed);
    if (needed)
        needed[g->value[v].node] = true;
    for (uint32_t i = needed ? g->value[v].node + 1 : 0; i-- > 0;) {
        const nnc_node *n = &g->node[i];
        for (int k = 0; needed[i] && k < n->n_in; k++)
            needed[g->value[n->in[k]].node] = true;
        if (needed[i] && n->op == OP_input)
            nnc_printf(t, "%s`%.60s`", found++ ? ", " : "", g->value[n->out].name);
    }
    return found;
}

static bool refuse_data(ox_build *b, int i)
{
    NNC_LOCAL(nnc_text) t = {0};
    const int n = put_sources(b, b->in[i].ref, &t);
    return n ? ox_refuse(b,
                   "the value of its input %d decides a shape, and is computed from the model's "
                   "input%s %s: shapes are static; export the model with a constant there",
                   i, n > 1 ? "s" : "", nnc_text_str(&t))
             : ox_refuse(b, "the value of its input %d decides a shape, and is not a constant", i);
}

/* The numbers of input i; NULL with *n = 0: without elements. */
static bool known(ox_build *b, int i, int most, int *n, const void **data)
{
    const ox_value *v = &b->in[i];
    *n = 0;
    *data = NULL;
    if (v->state == OX_empty)
        return true;
    int64_t all = nnc_type_numel(ox_type(b, v->ref));
    if (!(*data = ox_known(b->x, v->ref)))
        return refuse_data(b, i);
    if (all > most)
        return ox_wrong(
            b, "its input %d has %lld elements; expected at most %d", i, (long long)all, most);
    *n = (int)all;
    return true;
}

bool ox_is_data(ox_build *b, int i)
{
    return ox_has(b, i) && b->in[i].state == OX_here && !ox_known(b->x, b->in[i].ref);
}

bool ox_const_ints(ox_build *b, int i, int most, int *n, int64_t *out)
{
    const void *data;
    if (!known(b, i, most, n, &data))
        return false;
    nnc_dtype d = *n ? ox_dt(b, ox_in(b, i)) : DT_i64;
    if (nnc_is_float(d))
        return ox_wrong(b, "its input %d is %s; integers are expected", i, nnc_dtype_name(d));
    for (int k = 0; k < *n; k++)
        out[k] = nnc_get_i64(d, data, k);
    return true;
}

bool ox_const_int(ox_build *b, int i, int64_t *out)
{
    int n;
    return ox_const_ints(b, i, 1, &n, out) && (n || ox_wrong(b, "its input %d has no elements", i));
}

bool ox_const_floats(ox_build *b, int i, int most, int *n, double *out)
{
    const void *data;
    if (!known(b, i, most, n, &data))
        return false;
    for (int k = 0; k < *n; k++)
        out[k] = nnc_get_f64(ox_dt(b, ox_in(b, i)), data, k);
    return true;
}

bool ox_axis(ox_build *b, int64_t axis, int rank, int *out)
{
    *out = (int)(axis < 0 ? axis + rank : axis);
    return (axis >= -rank && axis < rank) ||
           ox_wrong(b, "axis %lld of a tensor with %d dimensions", (long long)axis, rank);
}

bool ox_axes(ox_build *b, int i, int rank, int *n, int64_t *out, bool *given)
{
    int64_t v[NNC_MAX_RANK] = {0};
    bool set[NNC_MAX_RANK] = {false};
    *given = ox_has(b, i);
    if (*given && !ox_const_ints(b, i, NNC_MAX_RANK, n, v))
        return false;
    if (!*given)
        *given = ox_ints(b, "axes", NNC_MAX_RANK, n, v);
    if (b->x->status)
        return false;
    for (int k = 0; k < *n; k++) {
        int axis;
        if (!ox_axis(b, v[k], rank, &axis))
            return false;
        if (set[axis])
            return ox_wrong(b, "axis %d is named twice", axis);
        set[axis] = true;
    }
    *n = 0;
    for (int k = 0; k < rank; k++)
        if (set[k])
            out[(*n)++] = k;
    return true;
}

bool ox_const_float(ox_build *b, int i, double *out)
{
    int n;
    return ox_const_floats(b, i, 1, &n, out) &&
           (n || ox_wrong(b, "its input %d has no elements", i));
}

/* ---- ops ------------------------------------------------------------------------------------- */

bool ox_set(ox_build *b, int i, nnc_ref r)
{
    if (r == NNC_NONE)
        return false;
    if (i < b->n_out)
        b->out[i] = (ox_value){.state = OX_here, .ref = r, .dtype = ox_dt(b, r)};
    return true;
}

bool ox_none(ox_build *b, int i, nnc_dtype d, int rank, const int64_t *dim)
{
    if (i >= b->n_out)
        return true;
    b->out[i] = (ox_value){.state = OX_empty, .ref = NNC_NONE, .dtype = d, .rank = rank};
    if (rank)
        memcpy(b->out[i].dim, dim, (size_t)rank * sizeof *dim);
    return true;
}

bool ox_any_0(int n, const int64_t *dim)
{
    for (int i = 0; i < n; i++)
        if (dim[i] == 0)
            return true;
    return false;
}

bool ox_has_empty(const ox_build *b)
{
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i].state == OX_empty)
            return true;
    return false;
}

nnc_type ox_type_of(const ox_build *b, const ox_value *v)
{
    return v->state == OX_empty ? nnc_type_make(v->dtype, v->rank, v->dim) : *ox_type(b, v->ref);
}

bool ox_give_shape(ox_build *b, nnc_ref x, nnc_dtype d, int rank, const int64_t *dim)
{
    return ox_any_0(rank, dim) ? ox_none(b, 0, d, rank, dim)
                               : ox_give(b, ox_reshape(b, x, rank, dim));
}

nnc_ref ox_op(ox_build *b, nnc_op op, int n_in, const nnc_ref *in, int n_attr, const nnc_attr *attr)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] == NNC_NONE)
            return NNC_NONE;
    return nnc_build(b->x->g, op, n_in, in, n_attr, attr);
}

nnc_ref ox_inner(ox_build *b, const char *op, int64_t opset, int n_in, const nnc_ref *in,
    int n_attr, const ox_attr *attr)
{
    bool known;
    ox_node node = *b->n;
    ox_build part = *b;
    ox_value *v = ARENA_NEW(&b->x->a, ox_value, n_in + 1), result = {0};
    const char *one[] = {"y"};
    if (!v)
        return ox_nomem(b->x), NNC_NONE;
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NNC_NONE)
            return NNC_NONE;
        v[i] = (ox_value){.state = OX_here, .ref = in[i], .dtype = ox_dt(b, in[i])};
    }
    if (attr) {
        node.attr = (ox_attr *)attr;
        node.n_attr = (size_t)n_attr;
    }
    node.out = one;
    node.n_out = 1;
    part.n = &node;
    part.row = ox_find_row("", op, opset, &known);
    part.opset = opset;
    part.in = v;
    part.n_in = n_in;
    part.out = &result;
    part.n_out = 1;
    if (!part.row || !part.row->build || n_in < part.row->n_min)
        return ox_refuse(b, "%.60s in it is unsupported", op), NNC_NONE;
    return part.row->build(&part) ? result.ref : NNC_NONE;
}

static nnc_ref channels_moved(ox_build *b, nnc_ref x, bool last)
{
    int64_t perm[NNC_MAX_RANK] = {0};
    const int rank = ox_type(b, x)->rank;
    for (int i = 1; i < rank; i++)
        perm[i] = last ? (i + 1 < rank ? i + 1 : 1) : (i > 1 ? i - 1 : rank - 1);
    return ox_transposed(b, x, perm);
}

nnc_ref ox_channels_first(ox_build *b, nnc_ref x)
{
    return channels_moved(b, x, false);
}

nnc_ref ox_channels_last(ox_build *b, nnc_ref x)
{
    return channels_moved(b, x, true);
}

nnc_ref ox_to(ox_build *b, nnc_ref x, nnc_dtype d)
{
    if (x == NNC_NONE || ox_dt(b, x) == d)
        return x;
    return d == DT_bool ? ox_2n(b, OP_ne, x, 0) : nnc_cast(b->x->g, x, d);
}

nnc_ref ox_list(ox_build *b, int n, const int64_t *v)
{
    int64_t dim = n;
    nnc_type t = nnc_type_make(DT_i64, 1, &dim);
    return nnc_constant(b->x->g, &t, v);
}

nnc_ref ox_iota(ox_build *b, nnc_dtype d, int64_t n)
{
    nnc_type t = nnc_type_make(d, 1, &n);
    nnc_attr a = nnc_ai(AT_dim, 0);
    return nnc_build_typed(b->x->g, OP_iota, 0, NULL, 1, &a, &t);
}

nnc_ref ox_along(ox_build *b, nnc_ref x, int rank, int axis)
{
    int64_t dim[NNC_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dim[i] = i == axis ? nnc_type_numel(ox_type(b, x)) : 1;
    return ox_reshape(b, x, rank, dim);
}

nnc_ref ox_per_index(ox_build *b, nnc_ref v, int rank, int axis)
{
    const nnc_type t = *ox_type(b, v);
    return t.rank != 1 ? v : t.dim[0] == 1 ? ox_reshape(b, v, 0, NULL) : ox_along(b, v, rank, axis);
}

nnc_ref ox_add_dim(ox_build *b, nnc_ref x, int axis)
{
    const nnc_type t = *ox_type(b, x);
    int64_t d[NNC_MAX_RANK];
    if (t.rank == NNC_MAX_RANK)
        return ox_refuse(b, "more than %d dimensions are unsupported", NNC_MAX_RANK), NNC_NONE;
    for (int i = 0; i <= t.rank; i++)
        d[i] = i == axis ? 1 : t.dim[i - (i > axis)];
    return ox_reshape(b, x, t.rank + 1, d);
}

nnc_ref ox_reversed(ox_build *b, nnc_ref x, nnc_ref lengths, int axis, int batch)
{
    if (x == NNC_NONE || lengths == NNC_NONE)
        return NNC_NONE;
    const nnc_type t = *ox_type(b, x);
    nnc_ref at = ox_along(b, ox_iota(b, DT_i64, t.dim[axis]), t.rank, axis),
            length = ox_along(b, ox_to(b, lengths, DT_i64), t.rank, batch);
    nnc_ref back = ox_2n(b, OP_sub, ox_2(b, OP_sub, length, at), 1);
    nnc_ref from = ox_select(b, ox_2(b, OP_lt, at, length), back, at);
    nnc_ref v[2] = {x, ox_broadcast(b, from, t.rank, t.dim)};
    return ox_on_axis(b, OP_gather_elements, 2, v, axis);
}

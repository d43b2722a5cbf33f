/* onnx/build_shape.c -- constants, shapes, and the branches that constants choose. */
#include "onnx/internal.h"
#include <math.h>

/* Result 0 is the list; without elements it is no value of the graph. */
static bool give_list(ox_build *b, int n, const int64_t *v)
{
    return n ? ox_give(b, ox_list(b, n, v)) : ox_none(b, 0, DT_i64, 1, (int64_t[]){0});
}

bool ox_shape(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t from = ox_int(b, "start", 0), to = ox_int(b, "end", x.rank);
    from = nnc_max64(0, nnc_min64(from < 0 ? from + x.rank : from, x.rank));
    to = nnc_max64(from, nnc_min64(to < 0 ? to + x.rank : to, x.rank));
    return give_list(b, (int)(to - from), x.dim + from);
}

bool ox_size(ox_build *b)
{
    const nnc_type x = ox_shape_of(b, 0);
    int64_t n = nnc_type_numel(&x);
    nnc_type t = nnc_type_make(DT_i64, 0, NULL);
    return ox_give(b, nnc_constant(b->x->g, &t, &n));
}

/* The tensor of an attribute. */
static bool attr_tensor(ox_build *b, const ox_attr *a, ox_value *out)
{
    ox_tensor t;
    if (!ox_read_tensor(&b->x->r, a->bytes, &t))
        return ox_stop(b->x, b->x->r.status);
    if (t.code == OXD_string)
        return ox_refuse(b, "strings are unsupported");
    t.name = b->path;
    return ox_constant(b->x, &t, "constant", out);
}

bool ox_constant_op(ox_build *b)
{
    const ox_attr *a;
    if ((a = ox_attr_find(b, "value", OXA_tensor)))
        return attr_tensor(b, a, &b->out[0]);
    if ((a = ox_attr_find(b, "value_int", OXA_int))) {
        nnc_type t = nnc_type_make(DT_i64, 0, NULL);
        return ox_give(b, nnc_constant(b->x->g, &t, &a->i));
    }
    if ((a = ox_attr_find(b, "value_float", OXA_float)))
        return ox_give(b, ox_num(b, DT_f32, a->f));
    if ((a = ox_attr_find(b, "value_ints", OXA_ints)))
        return give_list(b, (int)a->n, a->ints);
    if (!(a = ox_attr_find(b, "value_floats", OXA_floats)))
        return ox_wrong(b, "it has no value");
    if (!a->n)
        return ox_none(b, 0, DT_f32, 1, (int64_t[]){0});
    float *v = ARENA_NEW(&b->x->a, float, a->n);
    int64_t n = (int64_t)a->n;
    nnc_type t = nnc_type_make(DT_f32, 1, &n);
    if (!v)
        return ox_nomem(b->x);
    for (size_t i = 0; i < a->n; i++)
        v[i] = (float)a->floats[i];
    return ox_give(b, nnc_constant(b->x->g, &t, v));
}

bool ox_constant_of_shape(ox_build *b)
{
    int64_t d[NNC_MAX_RANK];
    int n;
    const ox_attr *a = ox_attr_find(b, "value", OXA_tensor);
    ox_value v = {OX_here, NNC_NONE, DT_f32};
    if (!ox_const_ints(b, 0, NNC_MAX_RANK, &n, d) || (a && !attr_tensor(b, a, &v)))
        return false;
    if (ox_any_0(n, d))
        return ox_none(b, 0, v.dtype, n, d);
    if (a && (v.state != OX_here || nnc_type_numel(ox_type(b, v.ref)) != 1))
        return ox_wrong(b, "its value is not one number");
    nnc_ref r = a ? ox_reshape(b, v.ref, 0, NULL) : ox_num(b, DT_f32, 0);
    return ox_give(b, ox_broadcast(b, r, n, d));
}

bool ox_range(ox_build *b)
{
    double v[3];
    for (int i = 0; i < 3; i++)
        if (!ox_const_float(b, i, &v[i]))
            return false;
    double count = ceil((v[1] - v[0]) / v[2]);
    nnc_dtype d = ox_dt(b, ox_in(b, 0));
    if (!(count < 0x1p40) || v[2] == 0)
        return ox_wrong(b, "it has no end, or too many elements");
    if (!(count > 0))
        return ox_none(b, 0, d, 1, (int64_t[]){0});
    nnc_ref i = ox_iota(b, d, (int64_t)count);
    return ox_give(b, ox_2(b, OP_add, ox_2(b, OP_mul, i, ox_in(b, 2)), ox_in(b, 0)));
}

/* PyTorch writes x[mask] as a gather of NonZero(mask), also where the mask is a constant. */
bool ox_non_zero(ox_build *b)
{
    const nnc_type t = ox_shape_of(b, 0);
    const bool empty = b->in[0].state == OX_empty;
    const uint8_t *data = empty ? NULL : ox_known(b->x, ox_in(b, 0));
    const int64_t n = empty ? 0 : nnc_type_numel(&t);
    int64_t count = 0;
    if (!data && !empty)
        return b->x->status
                   ? false
                   : ox_refuse(b, "unsupported: needs a result whose shape depends on data");
    for (int64_t i = 0; i < n; i++)
        count += nnc_get_f64(t.dtype, data, i) != 0;
    const int64_t dim[] = {t.rank ? t.rank : 1, count};
    if (!count)
        return ox_none(b, 0, DT_i64, 2, dim);
    int64_t *at = ARENA_NEW(&b->x->a, int64_t, dim[0] * count), k = 0;
    if (!at)
        return ox_nomem(b->x);
    for (int64_t i = 0; i < n; i++) {
        if (nnc_get_f64(t.dtype, data, i) == 0)
            continue;
        int64_t rest = i;
        for (int d = t.rank; d-- > 0; rest /= t.dim[d])
            at[d * count + k] = rest % t.dim[d];
        k++;
    }
    const nnc_type list = nnc_type_make(DT_i64, 2, dim);
    return ox_give(b, nnc_constant(b->x->g, &list, at));
}

bool ox_eye_like(ox_build *b)
{
    const nnc_type x = *ox_type(b, ox_in(b, 0));
    nnc_dtype d = x.dtype;
    int64_t code = ox_int(b, "dtype", 0), k = ox_int(b, "k", 0);
    if (code && !ox_dtype(code, &d))
        return ox_refuse(b, "the type %s is unsupported", ox_dtype_name(code));
    if (x.rank != 2)
        return ox_wrong(b, "it expects two dimensions");
    k = nnc_max64(-x.dim[0], nnc_min64(k, x.dim[1]));
    nnc_ref row = ox_along(b, ox_iota(b, DT_i64, x.dim[0]), 2, 0),
            col = ox_along(b, ox_iota(b, DT_i64, x.dim[1]), 2, 1);
    nnc_ref diagonal = ox_2(b, OP_eq, ox_2(b, OP_add, row, ox_num(b, DT_i64, (double)k)), col);
    return ox_give(b, ox_to(b, diagonal, d));
}

/* Imports a branch; its results are put at out. */
static bool run_branch(ox_build *b, const char *name, ox_value *out)
{
    ox_graph g;
    const ox_attr *a = ox_attr_find(b, name, OXA_graph);
    if (!a)
        return ox_wrong(b, "its %s is missing", name);
    if (!ox_open_graph(b->x, a->bytes, &g))
        return false;
    ox_scope s = {.up = b->scope,
        .opset = b->scope->opset,
        .n_opset = b->scope->n_opset,
        .call = b->scope->call,
        .prefix = b->path};
    if (ox_run_graph(b->x, &s, &g))
        return false;
    if (g.n_out != (size_t)b->n_out)
        return ox_wrong(b, "its branch has %zu outputs, the node %d", g.n_out, b->n_out);
    for (int i = 0; i < b->n_out; i++) {
        ox_value *v = ox_lookup(&s, g.out[i].name);
        if (!v)
            return ox_wrong(b, "its branch does not compute `%.60s`", g.out[i].name);
        out[i] = *v;
    }
    return true;
}

/* Data decide: both branches are computed, and their results selected. */
static bool select_branch(ox_build *b)
{
    ox_value *other = ARENA_NEW(&b->x->a, ox_value, b->n_out + 1);
    nnc_ref c = ox_to(b, ox_in(b, 0), DT_bool);
    if (!other)
        return ox_nomem(b->x);
    if (c == NNC_NONE || nnc_type_numel(ox_type(b, c)) != 1)
        return ox_wrong(b, "its condition is not one number");
    c = ox_reshape(b, c, 0, NULL);
    if (!run_branch(b, "then_branch", b->out) || !run_branch(b, "else_branch", other))
        return false;
    for (int i = 0; i < b->n_out; i++) {
        const ox_value *yes = &b->out[i], *no = &other[i];
        if (yes->state == OX_missing || no->state == OX_missing) {
            b->out[i].state = OX_missing;
            continue;
        }
        if (yes->state != OX_here || no->state != OX_here ||
            !nnc_type_same_shape(ox_type(b, yes->ref), ox_type(b, no->ref)) ||
            ox_dt(b, yes->ref) != ox_dt(b, no->ref))
            return ox_refuse(b,
                "its condition is not a constant, and its branches differ in the shape or type of "
                "output %d",
                i);
        if (!ox_set(b, i, ox_select(b, c, yes->ref, no->ref)))
            return false;
    }
    return true;
}

bool ox_if(ox_build *b)
{
    int64_t yes;
    if (b->in[0].state == OX_here && !ox_known(b->x, b->in[0].ref))
        return select_branch(b);
    return ox_const_int(b, 0, &yes) && run_branch(b, yes ? "then_branch" : "else_branch", b->out);
}

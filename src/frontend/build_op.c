/* frontend/build_op.c -- layers that are one op: movement with its conveniences (negative axes,
 * -1, defaults), and every other op of ops.def by its attributes. */
#include "frontend/internal.h"
#include <string.h>

static const nnc_type *in_type(const fe_layer *l)
{
    return nnc_typeof(l->f->g, l->in[0]);
}

/* axes = [] of a reduction means all of them. */
static bool reduce_axes(fe_layer *l, int rank, int *n, int64_t axes[NNC_MAX_RANK])
{
    for (*n = 0; *n < rank; ++*n)
        axes[*n] = *n;
    return fe_axes(l, "axes", rank, n, axes);
}

static int64_t usual_axis(nnc_op op)
{
    return op == OP_gather ? 0 : -1;
}

/* One attribute of a generic op from the key of its name. false on error; *have = is there one? */
static bool read_attr(fe_layer *l, nnc_akey k, bool must, nnc_attr *a, int64_t *room, bool *have)
{
    const char *key = nnc_attrs[k].name;
    int rank = l->n_in ? in_type(l)->rank : 0, n = 0;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    nnc_dtype d = DT_f32;
    const char *word = NULL;
    *have = must || fe_key(l, key) || k == AT_axis || k == AT_axes;
    if (!*have)
        return true;
    if (k == AT_axis) {
        i = usual_axis(l->row.op);
        if (rank == 0)
            return fe_bad(l, key, "%s expects an input with dimensions", l->row.name) != NNC_NONE;
        if (!fe_axis(l, key, rank, &i))
            return false;
        *a = nnc_ai(k, i);
        return true;
    }
    if (k == AT_axes) {
        if (!(nnc_op_class(l->row.op) == CL_reduce ? reduce_axes(l, rank, &n, room)
                                                   : fe_axes(l, key, rank, &n, room)))
            return false;
        *a = nnc_av(k, n, room);
        return true;
    }
    switch (nnc_attrs[k].kind) {
    case AK_int:
        *a = nnc_ai(k, 0);
        return fe_int(l, key, INT32_MIN, INT32_MAX, &a->i);
    case AK_bool:
        if (!fe_bool(l, key, &b))
            return false;
        *a = nnc_ai(k, b);
        return true;
    case AK_float:
        if (!fe_float(l, key, &f))
            return false;
        *a = nnc_af(k, f);
        return true;
    case AK_ints:
        if (!fe_ints(l, key, INT32_MIN, FE_MAX_DIM, &n, room))
            return false;
        *a = nnc_av(k, n, room);
        return true;
    case AK_dtype:
        if (!fe_read_dtype(l->f, fe_key(l, key), l->path, l->ctx->env, &d))
            return false;
        *a = nnc_ai(k, d);
        return true;
    case AK_word:
        if (!fe_word(l, key, &word))
            return false;
        *a = (nnc_attr){.key = (uint8_t)k, .word = word};
        return true;
    }
    return false;
}

nnc_ref fe_build_op(fe_layer *l)
{
    enum { MAX = 8 };
    nnc_attr a[MAX];
    int64_t room[MAX][2 * NNC_MAX_RANK];
    int n = 0;
    char key[32];
    bool must, have;
    for (const char *p = l->row.keys; fe_keys_next(&p, key, &must);) {
        nnc_akey k;
        if (n == MAX || !nnc_attr_parse(key, strlen(key), &k))
            return fe_bad(l, NULL, "%s: key %s cannot be used", l->row.name, key);
        if (!read_attr(l, k, must, &a[n], room[n], &have))
            return NNC_NONE;
        n += have;
    }
    return nnc_build(l->f->g, l->row.op, l->n_in, l->in, n, a);
}

nnc_ref fe_build_binary(fe_layer *l)
{
    double v = 0;
    const cJSON *value = fe_key(l, "value");
    if (!value && l->n_in != 2)
        return fe_bad(l, NULL,
            "%s takes 2 inputs, found %d: name them, as in \"in\": [\"prev\", \"skip\"], or give a "
            "number as \"value\"",
            l->row.name, l->n_in);
    if (!value)
        return nnc_build2(l->f->g, l->row.op, l->in[0], l->in[1]);
    if (l->n_in != 1)
        return fe_bad(l, "value", "%s takes 2 inputs, or 1 and \"value\", not both", l->row.name);
    nnc_dtype d = (nnc_dtype)in_type(l)->dtype;
    if (!fe_number(l, "value", d, "the input", &v))
        return NNC_NONE;
    return nnc_build2(l->f->g, l->row.op, l->in[0], nnc_scalar(l->f->g, d, v));
}

nnc_ref fe_build_flatten(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t axis = 1, d[NNC_MAX_RANK];
    if (x.rank == 0)
        return fe_bad(
            l, NULL, "flatten expects an input with dimensions, found %s", fe_type_text(l->f, &x));
    if (x.rank == 1 && !fe_key(l, "axis"))
        return l->in[0];
    if (!fe_axis(l, "axis", x.rank, &axis))
        return NNC_NONE;
    int64_t rest = 1;
    for (int i = 0; i < x.rank; i++) {
        if (i < axis)
            d[i] = x.dim[i];
        else
            rest *= x.dim[i]; /* cannot overflow: part of the input's checked size */
    }
    d[axis] = rest;
    return nnc_reshape(l->f->g, l->in[0], (int)axis + 1, d);
}

nnc_ref fe_build_squeeze(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK];
    int n = 0, m = 0;
    bool drop[NNC_MAX_RANK] = {false};
    if (!fe_axes(l, "axes", x.rank, &n, axes))
        return NNC_NONE;
    for (int i = 0; i < x.rank && !fe_key(l, "axes"); i++)
        drop[i] = x.dim[i] == 1;
    for (int i = 0; i < n; i++) {
        if (x.dim[axes[i]] != 1)
            return fe_bad(l, "axes", "squeeze: dimension %lld of %s has extent %lld, expected 1",
                (long long)axes[i], fe_type_text(l->f, &x), (long long)x.dim[axes[i]]);
        drop[axes[i]] = true;
    }
    for (int i = 0; i < x.rank; i++)
        if (!drop[i])
            d[m++] = x.dim[i];
    return nnc_reshape(l->f->g, l->in[0], m, d);
}

nnc_ref fe_build_unsqueeze(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK], v[2 * NNC_MAX_RANK];
    int n = 0, k = 0;
    if (!fe_ints(l, "axes", INT32_MIN, INT32_MAX, &n, v))
        return NNC_NONE;
    if (n + x.rank > NNC_MAX_RANK)
        return fe_bad(l, "axes",
            "unsqueeze: the result would have %d dimensions; expected at most %d", n + x.rank,
            NNC_MAX_RANK);
    if (!fe_axes(l, "axes", n + x.rank, &n, axes))
        return NNC_NONE;
    for (int i = 0, a = 0; i < n + x.rank; i++) {
        bool added = a < n && axes[a] == i;
        d[i] = added ? 1 : x.dim[k++];
        a += added;
    }
    return nnc_reshape(l->f->g, l->in[0], n + x.rank, d);
}

nnc_ref fe_build_reshape(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t d[2 * NNC_MAX_RANK], known = 1, all = nnc_type_numel(&x);
    int n = 0, open = -1;
    if (!fe_ints(l, "shape", -1, FE_MAX_DIM, &n, d))
        return NNC_NONE;
    if (n > NNC_MAX_RANK)
        return fe_bad(l, "shape", "reshape: %d dimensions; expected at most %d", n, NNC_MAX_RANK);
    for (int i = 0; i < n; i++) {
        if (d[i] == 0 && i >= x.rank)
            return fe_bad(l, "shape", "reshape: 0 keeps the input's dimension %d, but %s has none",
                i, fe_type_text(l->f, &x));
        if (d[i] == 0)
            d[i] = x.dim[i];
        if (d[i] == -1 && open >= 0)
            return fe_bad(l, "shape", "reshape: only one extent may be -1");
        if (d[i] == -1)
            open = i;
        else if (!nnc_mul_ok(known, d[i], &known))
            return fe_bad(l, "shape", "reshape: the shape has more than 2^63 elements");
    }
    if (open >= 0 && all % known == 0)
        d[open] = all / known;
    if (open >= 0 ? all % known != 0 : known != all)
        return fe_bad(l, "shape", "reshape: %s has %lld elements, the shape %s",
            fe_type_text(l->f, &x), (long long)all,
            nnc_arena_printf(
                &l->f->a, open >= 0 ? "needs a multiple of %lld" : "%lld", (long long)known));
    return nnc_reshape(l->f->g, l->in[0], n, d);
}

nnc_ref fe_build_transpose(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t p[2 * NNC_MAX_RANK];
    bool seen[NNC_MAX_RANK] = {false};
    int n = x.rank;
    if (x.rank < 2 && !fe_key(l, "perm"))
        return fe_bad(
            l, NULL, "transpose expects at least 2 dimensions, found %s", fe_type_text(l->f, &x));
    for (int i = 0; i < n; i++)
        p[i] = i < n - 2 ? i : 2 * n - 3 - i;
    if (!fe_ints(l, "perm", INT32_MIN, INT32_MAX, &n, p))
        return NNC_NONE;
    for (int i = 0; i < n && n == x.rank; i++) {
        p[i] += p[i] < 0 ? x.rank : 0;
        if (p[i] < 0 || p[i] >= x.rank || seen[p[i]])
            n = -1;
        else
            seen[p[i]] = true;
    }
    if (n != x.rank)
        return fe_bad(l, "perm", "perm: expected each of 0 to %d once (the input is %s)",
            x.rank - 1, fe_type_text(l->f, &x));
    return nnc_transpose(l->f->g, l->in[0], p);
}

nnc_ref fe_build_slice(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t axes[2 * NNC_MAX_RANK], v[3][2 * NNC_MAX_RANK];
    int n = 0, m[3] = {0, -1, -1}, na = -1; /* -1: left out; ends are then the extents */
    if (!fe_ints(l, "starts", INT32_MIN, FE_MAX_DIM, &m[0], v[0]) ||
        !fe_ints(l, "ends", INT32_MIN, FE_MAX_DIM, &m[1], v[1]) ||
        !fe_ints(l, "steps", 1, FE_MAX_DIM, &m[2], v[2]) ||
        !fe_ints(l, "axes", INT32_MIN, INT32_MAX, &na, axes))
        return NNC_NONE;
    n = m[0];
    if (na < 0) /* the first n dimensions */
        for (na = 0; na < n; na++)
            axes[na] = na;
    if (n > x.rank || na != n || (m[1] >= 0 && m[1] != n) || (m[2] >= 0 && m[2] != n))
        return fe_bad(l, NULL,
            "slice: starts, ends, axes and steps name %d, %d, %d and %d dimensions; expected the "
            "same number, at most %d",
            n, m[1] < 0 ? n : m[1], na, m[2] < 0 ? n : m[2], x.rank);
    for (int i = 0; i < n; i++) {
        axes[i] += axes[i] < 0 ? x.rank : 0;
        if (axes[i] < 0 || axes[i] >= x.rank || (i && axes[i] <= axes[i - 1]))
            return fe_bad(l, "axes", "slice: axes must ascend within 0 to %d", x.rank - 1);
        int64_t e = x.dim[axes[i]];
        v[0][i] += v[0][i] < 0 ? e : 0;
        v[1][i] += m[1] >= 0 && v[1][i] < 0 ? e : 0;
        v[1][i] = m[1] < 0 ? e : nnc_min64(v[1][i], e);
        if (v[0][i] < 0 || v[0][i] >= v[1][i])
            return fe_bad(l, NULL,
                "slice: %lld to %lld of dimension %lld is empty (its extent is %lld)",
                (long long)v[0][i], (long long)v[1][i], (long long)axes[i], (long long)e);
    }
    nnc_attr a[4] = {nnc_av(AT_axes, n, axes), nnc_av(AT_starts, n, v[0]), nnc_av(AT_ends, n, v[1]),
        nnc_av(AT_steps, n, v[2])};
    return nnc_build(l->f->g, OP_slice, 1, l->in, m[2] < 0 ? 3 : 4, a);
}

nnc_ref fe_build_pad(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t p[2 * NNC_MAX_RANK];
    int n = 0, k = 0;
    double v = 0;
    const char *mode = "constant";
    nnc_attr a[3];
    if (!fe_ints(l, "pads", 0, FE_MAX_DIM, &n, p) || !fe_float(l, "value", &v) ||
        !fe_word(l, "mode", &mode))
        return NNC_NONE;
    if (n != 2 * x.rank)
        return fe_bad(l, "pads",
            "pads: expected %d numbers (begin of each of the %d dimensions, then their ends), "
            "found %d",
            2 * x.rank, x.rank, n);
    a[k++] = nnc_av(AT_pads, n, p);
    if (fe_key(l, "value"))
        a[k++] = nnc_af(AT_value, v);
    if (fe_key(l, "mode"))
        a[k++] = (nnc_attr){.key = AT_mode, .word = mode};
    return nnc_build(l->f->g, OP_pad, 1, l->in, k, a);
}

nnc_ref fe_build_concat(fe_layer *l)
{
    const nnc_type *x = in_type(l);
    int64_t axis = 1;
    if (x->rank == 0)
        return fe_bad(
            l, NULL, "concat expects inputs with dimensions, found %s", fe_type_text(l->f, x));
    if (x->rank == 1)
        axis = 0;
    if (!fe_axis(l, "axis", x->rank, &axis))
        return NNC_NONE;
    nnc_attr a = nnc_ai(AT_axis, axis);
    return nnc_build(l->f->g, OP_concat, l->n_in, l->in, 1, &a);
}

nnc_ref fe_build_split(fe_layer *l)
{
    const nnc_type x = *in_type(l);
    int64_t axis = 1, parts = 0, sizes[2 * NNC_MAX_RANK], *s = sizes;
    int n = 0;
    if (x.rank == 0)
        return fe_bad(
            l, NULL, "split expects an input with dimensions, found %s", fe_type_text(l->f, &x));
    axis = x.rank == 1 ? 0 : 1;
    if (!fe_axis(l, "axis", x.rank, &axis))
        return NNC_NONE;
    if (!fe_key(l, "sizes") == !fe_key(l, "parts"))
        return fe_bad(l, NULL, "split: expected either \"sizes\": [2, 3, ...] or \"parts\": 3");
    int64_t e = x.dim[axis], sum = 0;
    if (fe_key(l, "parts")) {
        if (!fe_int(l, "parts", 1, FE_MAX_INPUTS, &parts))
            return NNC_NONE;
        if (e % parts)
            return fe_bad(l, "parts",
                "split: %lld parts do not divide extent %lld of dimension %lld", (long long)parts,
                (long long)e, (long long)axis);
        n = (int)parts;
        s = ARENA_NEW(&l->f->a, int64_t, parts);
        if (!s)
            return fe_nomem(l->f);
        for (int i = 0; i < n; i++)
            s[i] = e / parts;
    } else if (!fe_ints(l, "sizes", 1, FE_MAX_DIM, &n, s)) {
        return NNC_NONE;
    }
    for (int i = 0; i < n; i++)
        sum += s[i]; /* <= 16 * 2^40, or e */
    if (sum != e)
        return fe_bad(l, "sizes",
            "split: sizes add up to %lld, expected the extent %lld of dimension %lld",
            (long long)sum, (long long)e, (long long)axis);
    nnc_attr a[2] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, n, s)};
    l->n_out = n;
    return nnc_build(l->f->g, OP_split, 1, l->in, 2, a);
}

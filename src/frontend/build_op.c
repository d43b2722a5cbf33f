/* frontend/build_op.c -- builders of layers without weights: movement with its conveniences (negative axes, -1, defaults), and all
 * other ops of ops.def by their attributes. */
#include "frontend/internal.h"
#include <string.h>

static bool has_dimensions(fe_layer *l)
{
    return fe_in_type(l)->rank > 0 ||
           FE_FALSE(l, NULL, "%s expects an input with dimensions, found %s", l->row.name,
               fe_type_text(l->f, fe_in_type(l)));
}

/* Makes the attribute of a generic op from the key of the same name. Axes are made non-negative; a reduction without axes reduces all. */
static bool make_attr(
    fe_layer *l, const fe_key_row *k, nnc_akey key, nnc_attr *a, int64_t room[2 * NNC_MAX_RANK])
{
    const void *v = (const char *)&l->s + k->at;
    int rank = l->n_in ? fe_in_type(l)->rank : 0, n;
    *a = (nnc_attr){.key = (uint8_t)key};
    switch (nnc_attrs[key].kind) {
    case AK_int:
        a->i = *(const int64_t *)v;
        return key != AT_axis || (has_dimensions(l) && fe_axis(l, k->name, rank, &a->i));
    case AK_bool: a->i = *(const bool *)v; return true;
    case AK_dtype: a->i = *(const nnc_dtype *)v; return true;
    case AK_float: a->f = *(const double *)v; return true;
    case AK_word: a->word = *(const char *const *)v; return true;
    case AK_ints: {
        const fe_list *list = v;
        n = list->n;
        memcpy(room, list->v, sizeof list->v);
        if (key == AT_axes && !fe_axes(l, k->name, rank, list, &n, room))
            return false;
        for (; key == AT_axes && !fe_has(l, FK_axes) && n < rank; n++)
            room[n] = n;
        *a = nnc_av(key, n, room);
        return true;
    }
    }
    return false;
}

nnc_ref fe_build_op(fe_layer *l)
{
    enum { MAX = 8 };
    nnc_attr a[MAX];
    int64_t room[MAX][2 * NNC_MAX_RANK];
    int n = 0;
    fe_use u;
    for (const char *p = l->row.keys; fe_use_next(&p, &u);) {
        const fe_key_row *k = &fe_keys[u.key];
        nnc_akey key;
        if (n == MAX || !nnc_attr_parse(k->name, strlen(k->name), &key))
            return fe_bad(l, NULL, "%s: key %s cannot be used", l->row.name, k->name);
        if (!fe_has(l, u.key) && key != AT_axis && key != AT_axes)
            continue; /* the op's own default */
        if (!make_attr(l, k, key, &a[n], room[n]))
            return NNC_NONE;
        n++;
    }
    nnc_ref r = nnc_build(l->f->g, l->row.op, l->n_in, l->in, n, a);
    l->n_out = r == NNC_NONE ? 1 : nnc_def(l->f->g, r)->n_out;
    return r;
}

nnc_ref fe_build_sort(fe_layer *l)
{
    int64_t axis = l->s.axis;
    if (!has_dimensions(l) || !fe_axis(l, "axis", fe_in_type(l)->rank, &axis))
        return NNC_NONE;
    nnc_attr a[3] = {nnc_ai(AT_axis, axis), nnc_ai(AT_k, fe_in_type(l)->dim[axis]),
        nnc_ai(AT_largest, l->s.descending)};
    l->n_out = 2;
    return nnc_build(l->f->g, OP_topk, 1, l->in, 3, a);
}

nnc_ref fe_build_binary(fe_layer *l)
{
    bool value = fe_has(l, FK_value);
    if (!value && l->n_in != 2)
        return fe_bad(l, NULL,
            "%s takes 2 inputs, found %d: name them, as in \"in\": [\"prev\", \"skip\"], or give a "
            "number as \"value\"",
            l->row.name, l->n_in);
    if (!value)
        return nnc_build2(l->f->g, l->row.op, l->in[0], l->in[1]);
    if (l->n_in != 1)
        return fe_bad(l, "value", "%s takes 2 inputs, or 1 and \"value\", not both", l->row.name);
    nnc_dtype d = fe_in_type(l)->dtype;
    if (!fe_fits(l, "value", l->s.value, d, "the input"))
        return NNC_NONE;
    return nnc_build2(l->f->g, l->row.op, l->in[0], nnc_scalar(l->f->g, d, l->s.value));
}

nnc_ref fe_build_flatten(fe_layer *l)
{
    const nnc_type x = *fe_in_type(l);
    int64_t axis = l->s.axis, d[NNC_MAX_RANK], rest = 1;
    if (!has_dimensions(l))
        return NNC_NONE;
    if (x.rank == 1 && !fe_has(l, FK_axis))
        return l->in[0];
    if (!fe_axis(l, "axis", x.rank, &axis))
        return NNC_NONE;
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
    const nnc_type x = *fe_in_type(l);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK];
    int n = 0, m = 0;
    bool drop[NNC_MAX_RANK] = {false};
    if (!fe_axes(l, "axes", x.rank, &l->s.axes, &n, axes))
        return NNC_NONE;
    for (int i = 0; i < x.rank && !fe_has(l, FK_axes); i++)
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
    const nnc_type x = *fe_in_type(l);
    int64_t axes[NNC_MAX_RANK], d[NNC_MAX_RANK];
    int n = l->s.axes.n, k = 0;
    if (n + x.rank > NNC_MAX_RANK)
        return fe_bad(l, "axes",
            "unsqueeze: the result would have %d dimensions; expected at most %d", n + x.rank,
            NNC_MAX_RANK);
    if (!fe_axes(l, "axes", n + x.rank, &l->s.axes, &n, axes))
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
    const nnc_type x = *fe_in_type(l);
    int64_t *d = l->s.shape.v, known = 1, all = nnc_type_numel(&x);
    int n = l->s.shape.n, open = -1;
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
    const nnc_type x = *fe_in_type(l);
    int64_t *p = l->s.perm.v;
    bool seen[NNC_MAX_RANK] = {false};
    int n = fe_has(l, FK_perm) ? l->s.perm.n : x.rank;
    if (x.rank < 2 && !fe_has(l, FK_perm))
        return fe_bad(
            l, NULL, "transpose expects at least 2 dimensions, found %s", fe_type_text(l->f, &x));
    for (int i = 0; i < n && !fe_has(l, FK_perm); i++)
        p[i] = i < n - 2 ? i : 2 * n - 3 - i;
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
    const nnc_type x = *fe_in_type(l);
    fe_spec *s = &l->s;
    int64_t *axes = s->axes.v, *starts = s->starts.v, *ends = s->ends.v;
    int n = s->starts.n, n_axes = fe_has(l, FK_axes) ? s->axes.n : n,
        n_ends = fe_has(l, FK_ends) ? s->ends.n : n, n_steps = fe_has(l, FK_steps) ? s->steps.n : n;
    if (n > x.rank || n_axes != n || n_ends != n || n_steps != n)
        return fe_bad(l, NULL,
            "slice: starts, ends, axes and steps name %d, %d, %d and %d dimensions; expected the "
            "same number, at most %d",
            n, n_ends, n_axes, n_steps, x.rank);
    for (int i = 0; i < n; i++) {
        axes[i] = fe_has(l, FK_axes) ? axes[i] : i;
        axes[i] += axes[i] < 0 ? x.rank : 0;
        if (axes[i] < 0 || axes[i] >= x.rank || (i && axes[i] <= axes[i - 1]))
            return fe_bad(l, "axes", "slice: axes must ascend within 0 to %d", x.rank - 1);
        int64_t e = x.dim[axes[i]], from = starts[i], to = fe_has(l, FK_ends) ? ends[i] : e;
        starts[i] = nnc_max64(from + (from < 0 ? e : 0), 0); /* clamped, as NumPy does */
        ends[i] = nnc_min64(to + (to < 0 ? e : 0), e);
        if (starts[i] >= ends[i])
            return fe_bad(l, NULL,
                "slice: %lld to %lld of dimension %lld is empty (its extent is %lld)",
                (long long)from, (long long)to, (long long)axes[i], (long long)e);
    }
    nnc_attr a[4] = {nnc_av(AT_axes, n, axes), nnc_av(AT_starts, n, starts),
        nnc_av(AT_ends, n, ends), nnc_av(AT_steps, n, s->steps.v)};
    return nnc_build(l->f->g, OP_slice, 1, l->in, fe_has(l, FK_steps) ? 4 : 3, a);
}

nnc_ref fe_build_pad(fe_layer *l)
{
    const nnc_type x = *fe_in_type(l);
    const fe_list *p = &l->s.pads;
    nnc_attr a[3] = {nnc_av(AT_pads, p->n, p->v)};
    int n = 1;
    if (p->n != 2 * x.rank)
        return fe_bad(l, "pads",
            "pads: expected %d numbers (begin of each of the %d dimensions, then their ends), "
            "found %d",
            2 * x.rank, x.rank, p->n);
    if (fe_has(l, FK_value) && strcmp(l->s.mode, "constant") != 0)
        return fe_bad(l, "value",
            "value: mode %s fills with the input's own elements; leave value out", l->s.mode);
    if (!fe_fits(l, "value", l->s.value, x.dtype, "the input"))
        return NNC_NONE;
    if (fe_has(l, FK_value))
        a[n++] = nnc_af(AT_value, l->s.value);
    if (fe_has(l, FK_mode))
        a[n++] = nnc_aw(AT_mode, l->s.mode);
    return nnc_build(l->f->g, OP_pad, 1, l->in, n, a);
}

/* The axis of concat and split: 1 (channels) unless given; 0 for rank 1. */
static bool channel_axis(fe_layer *l, int64_t *axis)
{
    int rank = fe_in_type(l)->rank;
    *axis = rank == 1 && !fe_has(l, FK_axis) ? 0 : l->s.axis;
    return has_dimensions(l) && fe_axis(l, "axis", rank, axis);
}

nnc_ref fe_build_concat(fe_layer *l)
{
    int64_t axis;
    if (!channel_axis(l, &axis))
        return NNC_NONE;
    nnc_attr a = nnc_ai(AT_axis, axis);
    return nnc_build(l->f->g, OP_concat, l->n_in, l->in, 1, &a);
}

nnc_ref fe_build_split(fe_layer *l)
{
    int64_t axis, parts = l->s.parts, *s = l->s.sizes.v, sum = 0;
    int n = fe_has(l, FK_parts) ? (int)parts : l->s.sizes.n;
    if (!channel_axis(l, &axis))
        return NNC_NONE;
    if (fe_has(l, FK_sizes) == fe_has(l, FK_parts))
        return fe_bad(l, NULL, "split: expected either \"sizes\": [2, 3, ...] or \"parts\": 3");
    int64_t e = fe_in_type(l)->dim[axis];
    if (parts && e % parts)
        return fe_bad(l, "parts", "split: %lld parts do not divide extent %lld of dimension %lld",
            (long long)parts, (long long)e, (long long)axis);
    if (parts && !(s = ARENA_NEW(&l->f->a, int64_t, parts)))
        return fe_nomem(l->f);
    for (int i = 0; i < n; i++) {
        s[i] = parts ? e / parts : s[i];
        sum += s[i]; /* <= 16 * 2^40, or e */
    }
    if (sum != e)
        return fe_bad(l, "sizes",
            "split: sizes add up to %lld, expected the extent %lld of dimension %lld",
            (long long)sum, (long long)e, (long long)axis);
    nnc_attr a[2] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, n, s)};
    l->n_out = n;
    return nnc_build(l->f->g, OP_split, 1, l->in, 2, a);
}

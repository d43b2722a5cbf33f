/* frontend/build_attention.c -- builders of attention layers: softmax(q k^T scale + mask) v of each head, from products, transposes and
 * a softmax, which passes fuse like any others. */
#include "frontend/internal.h"
#include <math.h>

/* x[.., T, heads D] as [.., heads, T, D]. */
static nnc_ref split_heads(nnc_graph *g, nnc_ref x, int64_t heads)
{
    if (x == NNC_NONE || heads == 1)
        return x;
    const nnc_type t = *nnc_typeof(g, x);
    int64_t d[NNC_MAX_RANK + 1], perm[NNC_MAX_RANK + 1];
    for (int i = 0; i < t.rank; i++)
        d[i] = t.dim[i], perm[i] = i;
    d[t.rank - 1] = heads;
    d[t.rank] = t.dim[t.rank - 1] / heads;
    perm[t.rank - 2] = t.rank - 1;
    perm[t.rank - 1] = t.rank - 2;
    perm[t.rank] = t.rank;
    return nnc_transpose(g, nnc_reshape(g, x, t.rank + 1, d), perm);
}

/* The inverse. */
static nnc_ref join_heads(nnc_graph *g, nnc_ref y, int64_t heads)
{
    if (y == NNC_NONE || heads == 1)
        return y;
    const nnc_type t = *nnc_typeof(g, y);
    int64_t d[NNC_MAX_RANK], perm[NNC_MAX_RANK];
    for (int i = 0; i < t.rank; i++)
        d[i] = t.dim[i], perm[i] = i;
    perm[t.rank - 3] = t.rank - 2;
    perm[t.rank - 2] = t.rank - 3;
    d[t.rank - 3] = t.dim[t.rank - 2];
    d[t.rank - 2] = heads * t.dim[t.rank - 1];
    return nnc_reshape(g, nnc_transpose(g, y, perm), t.rank - 1, d);
}

/* Scores where `keep`, -inf elsewhere. */
static nnc_ref keep_scores(nnc_graph *g, nnc_ref keep, nnc_ref scores)
{
    nnc_dtype d = nnc_typeof(g, scores)->dtype;
    return nnc_build3(g, OP_select, keep, scores, nnc_scalar(g, d, -INFINITY));
}

/* Row i keeps columns 0 to i. */
static nnc_ref causal_mask(nnc_graph *g, const nnc_type *scores)
{
    nnc_type t = nnc_type_make(DT_i32, 2, &scores->dim[scores->rank - 2]);
    nnc_attr row = nnc_ai(AT_dim, 0), column = nnc_ai(AT_dim, 1);
    nnc_ref i = nnc_build_typed(g, OP_iota, 0, NULL, 1, &row, &t),
            j = nnc_build_typed(g, OP_iota, 0, NULL, 1, &column, &t);
    return nnc_build2(g, OP_ge, i, j);
}

static bool check_mask(fe_layer *l, nnc_ref mask, const nnc_type *scores)
{
    const nnc_type *m = nnc_typeof(l->f->g, mask);
    bool fits = m->rank <= scores->rank && (m->dtype == DT_bool || m->dtype == scores->dtype);
    for (int i = 1; fits && i <= m->rank; i++)
        fits = m->dim[m->rank - i] == 1 || m->dim[m->rank - i] == scores->dim[scores->rank - i];
    return fits || FE_FALSE(l, "in",
                       "%s: the mask is %s; expected bool (true: takes part) or %s (added), which "
                       "broadcasts to the scores %s",
                       l->row.name, fe_type_text(l->f, m), nnc_dtype_name(scores->dtype),
                       fe_dims_text(l->f, scores->rank, scores->dim));
}

/* A mask for [.., heads, T, S] where "heads" names one head, of which the scores [.., T, S] have no dimension: without it. */
static nnc_ref mask_of_one_head(fe_layer *l, nnc_ref mask, const nnc_type *scores)
{
    const nnc_type m = *nnc_typeof(l->f->g, mask);
    int64_t dim[NNC_MAX_RANK];
    if (l->s.heads != 1 || !fe_has(l, FK_heads) || m.rank != scores->rank + 1 ||
        m.dim[m.rank - 3] != 1)
        return mask;
    for (int d = 0; d < m.rank - 1; d++)
        dim[d] = m.dim[d + (d >= m.rank - 3)];
    return nnc_reshape(l->f->g, mask, m.rank - 1, dim);
}

/* q[.., T, heads D], k[.., S, heads D], v[.., S, heads E] and a mask, or NNC_NONE, to [.., T, heads E]. */
static nnc_ref attend(fe_layer *l, nnc_ref q, nnc_ref k, nnc_ref v, nnc_ref mask)
{
    nnc_graph *g = l->f->g;
    int64_t heads = l->s.heads;
    const nnc_attr swap = nnc_ai(AT_transpose_b, 1);
    q = split_heads(g, q, heads), k = split_heads(g, k, heads), v = split_heads(g, v, heads);
    nnc_ref s = nnc_build(g, OP_matmul, 2, (nnc_ref[]){q, k}, 1, &swap);
    if (s == NNC_NONE)
        return s;
    const nnc_type t = *nnc_typeof(g, s);
    double width = (double)nnc_typeof(g, q)->dim[nnc_typeof(g, q)->rank - 1];
    double scale = fe_has(l, FK_scale) ? l->s.scale : 1 / sqrt(width);
    if (!fe_fits(l, "scale", scale, t.dtype, "the scores"))
        return NNC_NONE;
    if (scale != 1)
        s = nnc_build2(g, OP_mul, s, nnc_scalar(g, t.dtype, scale));
    if (l->s.causal)
        s = keep_scores(g, causal_mask(g, &t), s);
    if (mask != NNC_NONE)
        mask = mask_of_one_head(l, mask, &t);
    if (mask != NNC_NONE && !check_mask(l, mask, &t))
        return NNC_NONE;
    if (mask != NNC_NONE)
        s = nnc_typeof(g, mask)->dtype == DT_bool ? keep_scores(g, mask, s)
                                                  : nnc_build2(g, OP_add, s, mask);
    const nnc_attr last = nnc_ai(AT_axis, t.rank - 1);
    s = nnc_build(g, OP_softmax, 1, &s, 1, &last);
    return join_heads(g, nnc_build2(g, OP_matmul, s, v), heads);
}

/* Checks query, key and value: floats [.., tokens, features] of equal leading dimensions, whose features the heads divide. */
static bool check_operands(fe_layer *l, int n)
{
    const nnc_type *q = nnc_typeof(l->f->g, l->in[0]);
    for (int i = 0; i < n; i++) {
        const nnc_type *x = nnc_typeof(l->f->g, l->in[i]);
        bool fits = nnc_is_float(x->dtype) && x->rank >= 2 && x->rank == q->rank &&
                    x->rank + (l->s.heads > 1) <= NNC_MAX_RANK;
        for (int d = 0; fits && d < x->rank - 2; d++)
            fits = x->dim[d] == q->dim[d];
        if (!fits)
            return FE_FALSE(l, "in",
                "%s expects floats [.., tokens, features] with the same leading dimensions, found "
                "%s%s%s",
                l->row.name, fe_type_text(l->f, x), i ? " beside " : "",
                i ? fe_type_text(l->f, q) : "");
        if (x->dim[x->rank - 1] % l->s.heads)
            return FE_FALSE(l, "heads", "%s: %lld heads do not divide the %lld features of %s",
                l->row.name, (long long)l->s.heads, (long long)x->dim[x->rank - 1],
                fe_type_text(l->f, x));
    }
    return true;
}

nnc_ref fe_build_attention(fe_layer *l)
{
    if (!check_operands(l, 3))
        return NNC_NONE;
    return attend(l, l->in[0], l->in[1], l->in[2], l->n_in > 3 ? l->in[3] : NNC_NONE);
}

/* x times rows from.. of the weight [.., E] that are `rows`, plus those of the bias. */
static nnc_ref project(fe_layer *l, nnc_ref x, nnc_ref w, nnc_ref b, int64_t from, int64_t rows)
{
    nnc_graph *g = l->f->g;
    nnc_ref in[3] = {x, w, b};
    if (w != NNC_NONE && rows != nnc_typeof(g, w)->dim[0])
        for (int i = 1; i < 3; i++)
            in[i] = in[i] == NNC_NONE ? NNC_NONE : nnc_cut(g, in[i], 0, from, from + rows);
    return nnc_build(g, OP_linear, b == NNC_NONE ? 2 : 3, in, 0, NULL);
}

/* A weight [rows, E] and, with "bias", one of [rows]. */
static bool add_weights(
    fe_layer *l, const char *weight, const char *bias, int64_t rows, int64_t e, nnc_ref out[2])
{
    nnc_dtype d = nnc_typeof(l->f->g, l->in[0])->dtype;
    nnc_type w = nnc_type_make(d, 2, (int64_t[]){rows, e}), b = nnc_type_make(d, 1, &rows);
    out[0] = fe_weight(l, weight, &w, 1, 0);
    out[1] = l->s.bias ? fe_weight(l, bias, &b, 0.05f, 0) : NNC_NONE;
    return out[0] != NNC_NONE && (!l->s.bias || out[1] != NNC_NONE);
}

/* nn.MultiheadAttention: one weight for the projections of query, key and value, which are one product where the three are equal. */
nnc_ref fe_build_multihead_attention(fe_layer *l)
{
    nnc_graph *g = l->f->g;
    bool self = l->n_in < 3, masked = l->n_in == 2 || l->n_in == 4;
    nnc_ref in[2], out[2], x[3], y;
    if (!check_operands(l, self ? 1 : 3))
        return NNC_NONE;
    const nnc_type t = *nnc_typeof(g, l->in[0]);
    const int64_t e = t.dim[t.rank - 1], sizes[] = {e, e, e};
    for (int i = 1; i < 3 && !self; i++)
        if (nnc_typeof(g, l->in[i])->dim[t.rank - 1] != e)
            return fe_bad(l, "in", "%s expects query, key and value with %lld features, found %s",
                l->row.name, (long long)e, fe_type_text(l->f, nnc_typeof(g, l->in[i])));
    if (!add_weights(l, "in_proj_weight", "in_proj_bias", 3 * e, e, in) ||
        !add_weights(l, "out_proj.weight", "out_proj.bias", e, e, out))
        return NNC_NONE;
    if (self) {
        const nnc_attr cut[] = {nnc_ai(AT_axis, t.rank - 1), nnc_av(AT_sizes, 3, sizes)};
        y = project(l, l->in[0], in[0], in[1], 0, 3 * e);
        if (!fe_scale_later(l->f, in[0], y, (double)e))
            return NNC_NONE;
        x[0] = nnc_build(g, OP_split, 1, &y, 2, cut);
        x[1] = x[0] == NNC_NONE ? x[0] : x[0] + 1;
        x[2] = x[0] == NNC_NONE ? x[0] : x[0] + 2;
    } else {
        for (int i = 0; i < 3; i++)
            x[i] = project(l, l->in[i], in[0], in[1], i * e, e);
        if (!fe_scale_later(l->f, in[0], x[0], (double)e))
            return NNC_NONE;
    }
    y = attend(l, x[0], x[1], x[2], masked ? l->in[l->n_in - 1] : NNC_NONE);
    y = project(l, y, out[0], out[1], 0, e);
    return fe_scale_later(l->f, out[0], y, (double)e) ? y : NNC_NONE;
}

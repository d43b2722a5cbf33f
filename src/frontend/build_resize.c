/* frontend/build_resize.c -- builders of layers whose results are given by their extents: interpolation and adaptive pooling. They
 * work on one spatial dimension after another. */
#include "frontend/internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static bool has_spatial(fe_layer *l)
{
    int rank = fe_in_type(l)->rank;
    return (rank >= 3 && rank <= 5) ||
           FE_FALSE(l, NULL,
               "%s expects an input with batch, channels and 1 to 3 spatial dimensions, found %s",
               l->row.name, fe_type_text(l->f, fe_in_type(l)));
}

/* One number for all spatial dimensions, or one each. */
static bool spread(fe_layer *l, fe_key key, const fe_list *v, int64_t out[3])
{
    int n = fe_in_type(l)->rank - 2;
    if (!v->one && v->n != n)
        return FE_FALSE(l, fe_keys[key].name,
            "%s: expected one number, or %d (one per spatial dimension of the input), found %d",
            fe_keys[key].name, n, v->n);
    for (int i = 0; i < n; i++)
        out[i] = v->v[v->one ? 0 : i];
    return true;
}

/* ---- interpolate ----------------------------------------------------------------------------- */

enum { MOST_PLACES = 1 << 22 }; /* of a dimension, whose positions are constants of the graph */

/* One dimension: element i of the result lies between elements at[0][i] and at[1][i], weight[i] of the way. */
typedef struct between {
    int dim;
    int64_t n;
    bool nearest;
    int32_t *at[2];
    double *weight;
} between;

/* Distance of neighbours of the result in the input, as PyTorch has it. `factor`: the scale_factor, or 0. */
static double step_of(const fe_layer *l, const between *b, int64_t extent, double factor)
{
    if (l->s.align_corners)
        return b->n > 1 ? (double)(extent - 1) / (double)(b->n - 1) : 0;
    return factor > 0 ? 1 / factor : (double)extent / (double)b->n;
}

/* Fills in the positions: centres of elements, or with align_corners the corners, lie on each other. */
static bool place_sample(fe_layer *l, between *b, int64_t extent, double step)
{
    for (int k = 0; k < 2; k++)
        if (!(b->at[k] = ARENA_NEW(&l->f->a, int32_t, b->n)))
            return fe_oom(l->f);
    if (!(b->weight = ARENA_NEW(&l->f->a, double, b->n)))
        return fe_oom(l->f);
    for (int64_t i = 0; i < b->n; i++) {
        double x = b->nearest || l->s.align_corners ? step * (double)i
                                                    : fmax(step * ((double)i + 0.5) - 0.5, 0);
        if (b->nearest) /* PyTorch computes it in f32 */
            x = floorf((float)step * (float)i);
        int64_t lo = nnc_min64((int64_t)x, extent - 1);
        b->at[0][i] = (int32_t)lo;
        b->at[1][i] = (int32_t)nnc_min64(lo + 1, extent - 1);
        b->weight[i] = fmin(x - (double)lo, 1);
    }
    return true;
}

/* x with each element of a dimension repeated. */
static nnc_ref repeat(nnc_graph *g, nnc_ref x, const between *b)
{
    if (x == NNC_NONE)
        return x;
    const nnc_type t = *nnc_typeof(g, x);
    int64_t d[NNC_MAX_RANK], result[NNC_MAX_RANK];
    for (int i = 0, k = 0; i < t.rank; i++) {
        d[k++] = t.dim[i];
        result[i] = i == b->dim ? b->n : t.dim[i];
        if (i == b->dim)
            d[k++] = 1;
    }
    x = nnc_reshape(g, x, t.rank + 1, d);
    d[b->dim + 1] = b->n / t.dim[b->dim];
    return nnc_reshape(g, nnc_broadcast(g, x, t.rank + 1, d), t.rank, result);
}

static nnc_ref gather_at(nnc_graph *g, nnc_ref x, const between *b, int which)
{
    const nnc_type t = nnc_type_make(DT_i32, 1, &b->n);
    const nnc_attr axis = nnc_ai(AT_axis, b->dim);
    nnc_ref in[] = {x, nnc_constant(g, &t, b->at[which])};
    return nnc_build(g, OP_gather, 2, in, 1, &axis);
}

/* lo + weight (hi - lo) would lose a weight of 1: lo (1 - weight) + hi weight. */
static nnc_ref mix(fe_layer *l, nnc_ref x, const between *b)
{
    nnc_graph *g = l->f->g;
    nnc_dtype dt = fe_in_type(l)->dtype;
    int rank = fe_in_type(l)->rank;
    int64_t d[3] = {b->n, 1, 1};
    const nnc_type t = nnc_type_make(dt, rank - b->dim, d);
    void *w = nnc_arena_alloc(&l->f->a, (size_t)b->n, (size_t)nnc_dtype_size(dt));
    if (!w)
        return fe_nomem(l->f);
    nnc_ref y[2];
    assert(b->weight); /* `place_sample` succeeded */
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < b->n; i++)
            nnc_set_f64(dt, w, i, k ? b->weight[i] : 1 - b->weight[i]);
        y[k] = nnc_build2(g, OP_mul, gather_at(g, x, b, k), nnc_constant(g, &t, w));
    }
    return nnc_build2(g, OP_add, y[0], y[1]);
}

static nnc_ref resize(fe_layer *l, nnc_ref x, between *b, double factor)
{
    int64_t extent = fe_in_type(l)->dim[b->dim];
    double step = step_of(l, b, extent, factor);
    if (b->n == extent && step == 1)
        return x;
    if (b->nearest && b->n % extent == 0 && step * (double)b->n == (double)extent)
        return repeat(l->f->g, x, b);
    if (b->n > MOST_PLACES || extent > INT32_MAX)
        return fe_bad(l, fe_has(l, FK_size) ? "size" : "scale_factor",
            "%s: extent %lld to %lld: at most %d is supported, more only for mode nearest and a "
            "multiple of the input",
            l->row.name, (long long)extent, (long long)b->n, MOST_PLACES);
    if (!place_sample(l, b, extent, step))
        return NNC_NONE;
    return b->nearest ? gather_at(l->f->g, x, b, 0) : mix(l, x, b);
}

nnc_ref fe_build_interpolate(fe_layer *l)
{
    bool size = fe_has(l, FK_size), nearest = !strcmp(l->s.mode, "nearest");
    int64_t to[3] = {0};
    double factor = l->s.scale_factor;
    nnc_ref x = l->in[0];
    if (size == fe_has(l, FK_scale_factor))
        return fe_bad(
            l, NULL, "%s: expected either \"size\": 64 or \"scale_factor\": 2", l->row.name);
    if (!has_spatial(l) || (size && !spread(l, FK_size, &l->s.size, to)))
        return NNC_NONE;
    if (!nnc_is_float(fe_in_type(l)->dtype) && !nearest)
        return fe_bad(l, "mode", "%s: mode %s expects floats, found %s", l->row.name, l->s.mode,
            fe_type_text(l->f, fe_in_type(l)));
    if (nearest && l->s.align_corners)
        return fe_bad(l, "align_corners", "align_corners: mode nearest has no corners to align");
    for (int i = 2; i < fe_in_type(l)->rank && x != NNC_NONE; i++) {
        double extent = floor((double)fe_in_type(l)->dim[i] * factor);
        if (!size && !(extent >= 1 && extent < 0x1p31))
            return fe_bad(l, "scale_factor",
                "scale_factor: %g times extent %lld is no extent; expected at least 1", factor,
                (long long)fe_in_type(l)->dim[i]);
        between b = {.dim = i, .n = size ? to[i - 2] : (int64_t)extent, .nearest = nearest};
        x = resize(l, x, &b, size ? 0 : factor);
    }
    return x;
}

/* ---- adaptive pooling ------------------------------------------------------------------------- */

static nnc_ref reduce_part(fe_layer *l, nnc_ref x, int dim, int64_t from, int64_t to)
{
    nnc_graph *g = l->f->g;
    const int64_t axis = dim;
    x = nnc_cut(g, x, axis, from, to);
    return nnc_reduce(
        g, l->row.op == OP_maxpool ? OP_reduce_max : OP_reduce_mean, x, 1, &axis, true);
}

/* Window i of n covers floor(i extent / n) to ceil((i + 1) extent / n), as in PyTorch. */
static nnc_ref pool_dimension(fe_layer *l, nnc_ref x, int dim, int64_t n)
{
    nnc_graph *g = l->f->g;
    int64_t extent = fe_in_type(l)->dim[dim];
    nnc_ref *part = ARENA_NEW(&l->f->a, nnc_ref, n);
    if (!part)
        return fe_nomem(l->f);
    for (int64_t i = 0; i < n; i++)
        part[i] = reduce_part(l, x, dim, i * extent / n, nnc_ceildiv((i + 1) * extent, n));
    const nnc_attr axis = nnc_ai(AT_axis, dim);
    return nnc_build(g, OP_concat, (int)n, part, 1, &axis);
}

nnc_ref fe_build_adaptive_pool(fe_layer *l)
{
    int64_t to[3] = {0}, kernel[3];
    bool even = true, all = true;
    nnc_ref x = l->in[0];
    if (!has_spatial(l) || !spread(l, FK_output_size, &l->s.output_size, to))
        return NNC_NONE;
    int n = fe_in_type(l)->rank - 2;
    for (int i = 0; i < n; i++) {
        int64_t extent = fe_in_type(l)->dim[2 + i];
        if (to[i] > FE_MAX_INPUTS)
            return fe_bad(l, "output_size", "output_size: %lld: expected at most %d",
                (long long)to[i], FE_MAX_INPUTS);
        all = all && to[i] == 1;
        even = even && extent % to[i] == 0;
        kernel[i] = extent / to[i];
    }
    const nnc_attr a[] = {nnc_av(AT_kernel, n, kernel), nnc_av(AT_strides, n, kernel)};
    if (all)
        return nnc_build1(
            l->f->g, l->row.op == OP_maxpool ? OP_global_maxpool : OP_global_avgpool, x);
    if (even)
        return nnc_build(l->f->g, l->row.op, 1, &x, 2, a);
    for (int i = 0; i < n && x != NNC_NONE; i++)
        if (to[i] != fe_in_type(l)->dim[2 + i])
            x = pool_dimension(l, x, 2 + i, to[i]);
    return x;
}

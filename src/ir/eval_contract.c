/* ir/eval_contract.c -- reference evaluation of matmul, linear, conv and conv_transpose as matrix products (eval_gemm.c). Convolutions
 * do not build their window matrix; panels of it are gathered on demand.
 *
 *   conv            y[n,g,i,o] = sum over k = (c,kz,ky,kx) of w[g,i,k] x[n,g,c, index]
 *                   with index = o*stride - begin + kk*dil
 *   conv_transpose  the same with w[g,c,i,kk] and index = (o + begin - kk*dil) / stride
 *                   where that is an integer */
#include "ir/eval_internal.h"

#include <string.h>

/* ---- matmul and linear ---- */

typedef struct product {
    const uint64_t *a, *b, *bias;
    uint64_t *c;
    int64_t b_k, b_j; /* strides of B(k, j) */
    int64_t a_size, b_size, c_size; /* of one problem */
    int lead; /* leading dimensions of the result, and the operands' strides along them */
    int64_t dim[NNC_MAX_RANK], a_lead[NNC_MAX_RANK], b_lead[NNC_MAX_RANK];
} product;

static int64_t lead_offset(const product *p, const int64_t *stride, int64_t b)
{
    int64_t off = 0;
    for (int d = p->lead - 1; d >= 0; d--) {
        off += b % p->dim[d] * stride[d];
        b /= p->dim[d];
    }
    return off;
}

static void product_problem(
    const void *ctx, int64_t b, const uint64_t **a, uint64_t **c, const uint64_t **bias)
{
    const product *p = ctx;
    *a = p->a + lead_offset(p, p->a_lead, b);
    *c = p->c + b * p->c_size;
    *bias = p->bias;
}

static void product_pack(const void *ctx, int64_t b, int64_t k0, int64_t nk, int64_t j0, int64_t nj,
    uint64_t *dst, int64_t ld)
{
    const product *p = ctx;
    const uint64_t *src = p->b + lead_offset(p, p->b_lead, b) + k0 * p->b_k + j0 * p->b_j;
    if (p->b_j == 1) {
        for (int64_t k = 0; k < nk; k++)
            memcpy(dst + k * ld, src + k * p->b_k, (size_t)nj * 8);
        return;
    }
    for (int64_t j = 0; j < nj; j++)
        for (int64_t k = 0; k < nk; k++)
            dst[k * ld + j] = src[k * p->b_k + j * p->b_j];
}

/* The offsets of A along k: k*step. */
static int64_t *steps_along(int64_t k, int64_t step)
{
    int64_t *t = nnc_malloc((size_t)k * 8);
    for (int64_t i = 0; t && i < k; i++)
        t[i] = i * step;
    return t;
}

static nnc_status run_product(const ev *e, product *p, ev_gemm *g, int64_t a_step)
{
    int64_t *a_k = steps_along(g->k, a_step);
    if (!a_k)
        return nnc_nomem(e->sink);
    g->a_k = a_k;
    g->problem = product_problem;
    g->pack = product_pack;
    g->ctx = p;
    nnc_status s = ev_run_gemm(e, g);
    nnc_free(a_k);
    return s;
}

/* Strides of an operand along the result's leading dimensions. */
static void follow_lead(const product *p, const nnc_type *t, int64_t *lead)
{
    int64_t own[NNC_MAX_RANK];
    ev_strides(t, own);
    for (int d = 0; d < p->lead; d++) {
        int od = d - (p->lead - (t->rank - 2));
        lead[d] = od < 0 || t->dim[od] == 1 ? 0 : own[od];
    }
}

static nnc_status run_matmul(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *ta = in[0].type, *tb = in[1].type, *ty = out->type;
    bool tra = nnc_attr_int(n, AT_transpose_a, 0) != 0,
         trb = nnc_attr_int(n, AT_transpose_b, 0) != 0;
    int64_t a0 = ta->dim[ta->rank - 2], a1 = ta->dim[ta->rank - 1], b1 = tb->dim[tb->rank - 1];
    product p = {.a = in[0].w, .b = in[1].w, .c = out->w, .lead = ty->rank - 2};
    ev_gemm g = {.is_int = !nnc_is_float((nnc_dtype)ty->dtype), .batch = 1};
    g.m = ty->dim[ty->rank - 2];
    g.n = ty->dim[ty->rank - 1];
    g.k = tra ? a0 : a1;
    g.a_row = tra ? 1 : a1;
    g.c_row = g.n;
    g.c_col = 1;
    p.b_k = trb ? 1 : b1;
    p.b_j = trb ? b1 : 1;
    p.c_size = g.m * g.n;
    for (int d = 0; d < p.lead; d++) {
        p.dim[d] = ty->dim[d];
        g.batch *= p.dim[d];
    }
    follow_lead(&p, ta, p.a_lead);
    follow_lead(&p, tb, p.b_lead);
    return run_product(e, &p, &g, tra ? a1 : 1);
}

/* Rows of the product are output features: the weights are read once, in order, even for a single row of x. */
static nnc_status run_linear(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *w = in[1].type;
    product p = {.a = in[1].w, .b = in[0].w, .c = out->w, .bias = n->n_in > 2 ? in[2].w : NULL};
    ev_gemm g = {.is_int = !nnc_is_float((nnc_dtype)w->dtype), .batch = 1};
    g.m = w->dim[0];
    g.k = w->dim[1];
    g.n = nnc_type_numel(in[0].type) / g.k;
    g.a_row = g.k;
    g.c_row = 1;
    g.c_col = g.m;
    p.b_k = 1;
    p.b_j = g.k;
    return run_product(e, &p, &g, 1);
}

/* ---- convolutions ---- */

typedef struct conv {
    ev_space s;
    bool transposed;
    int64_t groups, kk; /* kk: kernel elements per channel */
    int64_t x_size, w_size, y_size, m, in_size;
    const uint64_t *x, *w, *bias;
    uint64_t *y;
} conv;

static void conv_problem(
    const void *ctx, int64_t b, const uint64_t **a, uint64_t **c, const uint64_t **bias)
{
    const conv *v = ctx;
    *a = v->w + b % v->groups * v->w_size;
    *c = v->y + b * v->y_size;
    *bias = v->bias ? v->bias + b % v->groups * v->m : NULL;
}

/* The input index for kernel index k of dimension d at output index o; -1 outside. */
static int64_t input_index(const conv *v, int d, int64_t o, int64_t k)
{
    const ev_space *s = &v->s;
    int64_t i = v->transposed ? o + s->begin[d] - k * s->dil[d]
                              : o * s->stride[d] - s->begin[d] + k * s->dil[d];
    if (v->transposed) {
        if (i < 0 || i % s->stride[d])
            return -1;
        i /= s->stride[d];
    }
    return i >= 0 && i < s->in[d] ? i : -1;
}

/* n outputs of one row from column o: dst[i] = row[input_index(o + i)] or 0. */
static void pack_row(
    const conv *v, const uint64_t *row, int64_t o, int64_t n, int64_t kx, uint64_t *dst)
{
    const ev_space *s = &v->s;
    int64_t at = o - s->begin[2] + kx * s->dil[2];
    if (!v->transposed && s->stride[2] == 1 && at >= 0 && at + n <= s->in[2]) {
        memcpy(dst, row + at, (size_t)n * 8);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t ix = input_index(v, 2, o + i, kx);
        dst[i] = ix < 0 ? 0 : row[ix];
    }
}

static void conv_pack(const void *ctx, int64_t b, int64_t k0, int64_t nk, int64_t j0, int64_t nj,
    uint64_t *dst, int64_t ld)
{
    const conv *v = ctx;
    const ev_space *s = &v->s;
    const uint64_t *x = v->x + b * v->x_size;
    for (int64_t j = 0; j < nj;) { /* outputs in one row are consecutive */
        int64_t ox = (j0 + j) % s->out[2], oy = (j0 + j) / s->out[2] % s->out[1];
        int64_t oz = (j0 + j) / s->out[2] / s->out[1], n = nnc_min64(nj - j, s->out[2] - ox);
        for (int64_t k = 0; k < nk; k++) {
            int64_t at = (k0 + k) % v->kk, c = (k0 + k) / v->kk, kx = at % s->k[2];
            int64_t iz = input_index(v, 0, oz, at / s->k[2] / s->k[1]);
            int64_t iy = input_index(v, 1, oy, at / s->k[2] % s->k[1]);
            uint64_t *d = dst + k * ld + j;
            if (iz < 0 || iy < 0)
                memset(d, 0, (size_t)n * 8);
            else
                pack_row(v, x + c * v->in_size + (iz * s->in[1] + iy) * s->in[2], ox, n, kx, d);
        }
        j += n;
    }
}

static nnc_status run_conv(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *tx = in[0].type, *tw = in[1].type, *ty = out->type;
    conv v = {.transposed = n->op == OP_conv_transpose, .x = in[0].w, .w = in[1].w, .y = out->w};
    v.bias = n->n_in > 2 ? in[2].w : NULL;
    v.groups = nnc_attr_int(n, AT_groups, 1);
    ev_space_of(&v.s, n, tx, ty, tw->dim + 2);
    v.kk = v.s.k[0] * v.s.k[1] * v.s.k[2];
    v.in_size = v.s.in[0] * v.s.in[1] * v.s.in[2];
    v.m = ty->dim[1] / v.groups;
    int64_t cg = tx->dim[1] / v.groups;
    v.x_size = cg * v.in_size;
    v.w_size = cg * v.m * v.kk;
    ev_gemm g = {.is_int = !nnc_is_float((nnc_dtype)ty->dtype), .batch = tx->dim[0] * v.groups};
    g.m = v.m;
    g.n = v.s.out[0] * v.s.out[1] * v.s.out[2];
    g.k = cg * v.kk;
    v.y_size = g.m * g.n;
    g.a_row = v.transposed ? v.kk : g.k;
    g.c_row = g.n;
    g.c_col = 1;
    g.problem = conv_problem;
    g.pack = conv_pack;
    g.ctx = &v;
    int64_t *a_k = nnc_malloc((size_t)g.k * 8);
    if (!a_k)
        return nnc_nomem(e->sink);
    for (int64_t k = 0; k < g.k; k++)
        a_k[k] = v.transposed ? k / v.kk * v.m * v.kk + k % v.kk : k;
    g.a_k = a_k;
    nnc_status s = ev_run_gemm(e, &g);
    nnc_free(a_k);
    return s;
}

typedef struct wrap_job {
    int64_t *y;
    nnc_dtype d;
} wrap_job;

static nnc_status wrap_range(void *ctx, int64_t begin, int64_t end)
{
    const wrap_job *w = ctx;
    for (int64_t i = begin; i < end; i++)
        w->y[i] = nnc_sop_eval_i64(SC_cast, w->d, w->y[i], 0, 0);
    return NNC_OK;
}

nnc_status ev_contract(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    ev_run *run = n->op == OP_matmul ? run_matmul : n->op == OP_linear ? run_linear : run_conv;
    NNC_TRY(run(e, n, in, out));
    nnc_dtype d = (nnc_dtype)out->type->dtype;
    if (nnc_is_float(d))
        return NNC_OK;
    wrap_job w = {
        out->i, d}; /* sums modulo 2^64, then modulo the type, equal wrapping at each step */
    return ev_for(e, nnc_type_numel(out->type), 1, 1, wrap_range, &w);
}

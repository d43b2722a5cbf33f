/* ir/eval_contract.c -- reference evaluation of matmul, linear and convolutions as matrix products (eval_gemm.c). Convolutions do not build
 * their window matrix; panels of it are gathered on demand.
 *
 *   conv            y[n,g,i,o] = sum over k = (c,kz,ky,kx) of w[g,i,k] x[n,g,c, index]
 *                   with index = o*stride - begin + kk*dil.
 *   conv_transpose  The same with w[g,c,i,kk] and index = (o + begin - kk*dil) / stride
 *                   where that is an integer.
 *   conv_wgrad      w[g,i,(c,kk)] = sum over images and results o of dy[n,g,i,o] x[n,g,c, index of conv] */
#include "ir/eval_internal.h"

static ev_gemm product(const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    return (ev_gemm){.d = out->type->dtype,
        .batch = 1,
        .a.src = in[0].w,
        .b.src = in[1].w,
        .c = out->w,
        .bias = n->n_in > 2 ? in[2].w : NULL,
        .groups = 1};
}

static nnc_status run_matmul(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *ta = in[0].type, *tb = in[1].type, *ty = out->type;
    bool tra = nnc_attr_int(n, AT_transpose_a, 0) != 0,
         trb = nnc_attr_int(n, AT_transpose_b, 0) != 0;
    int64_t a0 = ta->dim[ta->rank - 2], a1 = ta->dim[ta->rank - 1], b1 = tb->dim[tb->rank - 1];
    ev_gemm g = product(n, in, out);
    g.m = ty->dim[ty->rank - 2];
    g.n = ty->dim[ty->rank - 1];
    g.k = tra ? a0 : a1;
    g.batch = nnc_type_numel(ty) / (g.m * g.n);
    ev_walk_broadcast(&g.a, ta, ty, 2);
    ev_walk_add(&g.a, g.m, tra ? 1 : a1);
    ev_walk_add(&g.a, g.k, tra ? a1 : 1);
    ev_walk_broadcast(&g.b, tb, ty, 2);
    ev_walk_add(&g.b, g.k, trb ? 1 : b1);
    ev_walk_add(&g.b, g.n, trb ? b1 : 1);
    return ev_run_gemm(e, &g);
}

static nnc_status run_linear(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *w = in[1].type;
    ev_gemm g = product(n, in, out);
    g.n = w->dim[0];
    g.k = w->dim[1];
    g.m = nnc_type_numel(in[0].type) / g.k;
    g.bias_col = 1;
    ev_walk_add(&g.a, g.m * g.k, 1);
    ev_walk_add(&g.b, g.k, 1);
    ev_walk_add(&g.b, g.n, g.k);
    return ev_run_gemm(e, &g);
}

static nnc_status run_conv(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *tx = in[0].type, *tw = in[1].type, *ty = out->type;
    const ev_arg swapped[] = {in[1], in[0], n->n_in > 2 ? in[2] : in[0]};
    ev_gemm g = product(n, swapped, out);
    ev_window s;
    NNC_TRY(ev_window_of(e, &s, n, tx, ty, tw->dim + 2));
    g.groups = nnc_attr_int(n, AT_groups, 1);
    int64_t cg = tx->dim[1] / g.groups;
    g.batch = tx->dim[0] * g.groups;
    g.m = ty->dim[1] / g.groups;
    g.n = s.results;
    g.k = cg * s.elements;
    g.bias_row = 1;
    ev_walk_add(&g.a, tx->dim[0], 0);
    ev_walk_add(&g.a, g.groups, g.m * g.k);
    ev_walk_add(&g.a, g.m, s.transposed ? s.elements : g.k);
    ev_walk_add(&g.a, cg, s.transposed ? g.m * s.elements : s.elements);
    ev_walk_add(&g.a, s.elements, 1);
    ev_walk_add(&g.b, g.batch * cg, s.plane);
    ev_walk_window(&g.b, &s, true, 1, 0);
    nnc_status status = ev_run_gemm(e, &g);
    nnc_free(s.table);
    return status;
}

static nnc_status run_wgrad(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const nnc_type *tx = in[0].type, *ty = in[1].type, *tw = out->type;
    const ev_arg swapped[] = {in[1], in[0], in[0]};
    ev_gemm g = product(n, swapped, out);
    ev_window s;
    NNC_TRY(ev_window_of(e, &s, n, tx, ty, tw->dim + 2));
    const int64_t images = tx->dim[0], each = tw->dim[1];
    g.batch = nnc_attr_int(n, AT_groups, 1);
    g.m = tw->dim[0] / g.batch;
    g.n = each * s.elements;
    g.k = images * s.results;
    ev_walk_add(&g.a, tw->dim[0], s.results);
    ev_walk_add(&g.a, images, tw->dim[0] * s.results);
    ev_walk_add(&g.a, s.results, 1);
    ev_walk_add(&g.b, g.batch, each * s.plane);
    ev_walk_add(&g.b, images, tx->dim[1] * s.plane);
    ev_walk_window(&g.b, &s, false, each, s.plane);
    nnc_status status = ev_run_gemm(e, &g);
    nnc_free(s.table);
    return status;
}

nnc_status ev_contract(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    return (n->op == OP_matmul           ? run_matmul
            : n->op == OP_linear         ? run_linear
            : n->op == OP_conv_wgrad     ? run_wgrad
            : n->op == OP_winograd       ? ev_winograd
            : n->op == OP_winograd_wgrad ? ev_winograd_wgrad
                                         : run_conv)(e, n, in, out);
}

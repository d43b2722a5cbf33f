/* passes/small_products.c -- rules of algebra.c: contractions that are cheaper as another op.
 *
 *   one place     conv, conv_transpose and conv_wgrad of one place, whose window is that place, with weights that training changes.
 *                 -> matrix products, one for each group, which engines compute without their convolutions' copies.
 *   outer         y[m,n] = a[m,0] b[0,n]   -> a b, elementwise, part of its consumer's kernel.
 *   few terms     y[m,n] = sum_k a[k,m] b[k,n], a weight's gradient from few rows that only elementwise ops of the update read.
 *                 -> a sum of elementwise products, part of their kernel: the gradient is never stored.
 *   update        The same with more terms, as far as b stays in a core's cache.
 *                 -> a product with the attribute as_kernel: a generated kernel, which the update joins.
 *
 * Terminates: a convolution becomes a product, and a product becomes elementwise ops or gets the attribute. */
#include "passes/internal.h"

enum { FEW_TERMS = 8, UPDATE_TERMS = 256 };

/* ---- one place ------------------------------------------------------------------------------------------------------------- */

/* Have all spatial dimensions of v, [N,C,s..], extent 1? */
static bool is_one_place(const pass *p, nnc_ref v)
{
    const nnc_type *t = type_of(p, v);
    return t->rank > 2 && nnc_type_is_row_major(t) && nnc_type_numel(t) == t->dim[0] * t->dim[1];
}

bool has_one_place(const pass *p, const nnc_node *c)
{
    const int64_t *pads;
    bool ok = is_one_place(p, c->in[0]) && is_one_place(p, c->in[1]) && is_one_place(p, c->out);
    for (int i = nnc_attr_ints(c, AT_pads, &pads); i-- > 0;)
        ok = ok && pads[i] == 0;
    return ok;
}

/* v as [groups, n, c], for one group as [n, c]. With `rows` v is [n, groups c, 1..], otherwise [groups n, c, 1..]. */
static nnc_ref by_group(pass *p, nnc_ref v, int64_t groups, bool rows)
{
    const nnc_type t = *type_of(p, v);
    const int64_t n = rows ? t.dim[0] : t.dim[0] / groups, c = rows ? t.dim[1] / groups : t.dim[1];
    const int64_t swap[] = {1, 0, 2}, apart[] = {n, groups, c}, to[] = {groups, n, c};
    const bool moved = rows && n > 1 && groups > 1;
    if (groups == 1)
        return nnc_reshape(p->g, nnc_reshaped(p->g, v), 2, to + 1);
    v = nnc_reshape(p->g, nnc_reshaped(p->g, v), 3, moved ? apart : to);
    return moved ? nnc_transpose(p->g, v, swap) : v;
}

/* r, [groups, n, c] or [n, c], as the convolution's result of type y. */
static nnc_ref as_result(pass *p, nnc_ref r, const nnc_type *y, bool rows)
{
    const nnc_type t = *type_of(p, r);
    const int64_t swap[] = {1, 0, 2};
    if (rows && t.rank == 3 && t.dim[0] > 1 && t.dim[1] > 1)
        r = nnc_transpose(p->g, r, swap);
    return nnc_reshape(p->g, r, y->rank, y->dim);
}

/* The result of convolution c as a product for each group. */
static nnc_ref build_product(pass *p, const nnc_node *c)
{
    const nnc_type y = *type_of(p, c->out);
    const int64_t groups = nnc_attr_int(c, AT_groups, 1), each = y.dim[1] / groups;
    const bool wgrad = c->op == OP_conv_wgrad;
    nnc_ref x = by_group(p, c->in[0], groups, true), w = by_group(p, c->in[1], groups, wgrad);
    const nnc_ref in[] = {wgrad ? w : x, wgrad ? x : w, c->n_in == 3 ? c->in[2] : NNC_NONE};
    const nnc_attr flag = nnc_ai(wgrad ? AT_transpose_a : AT_transpose_b, 1);
    if (x == NNC_NONE || w == NNC_NONE)
        return NNC_NONE;
    const bool linear = groups == 1 && c->op == OP_conv;
    nnc_ref r = linear ? nnc_build(p->g, OP_linear, c->n_in, in, 0, NULL)
                       : nnc_build(p->g, OP_matmul, 2, in, c->op != OP_conv_transpose, &flag);
    if (c->n_in == 3 && !linear)
        r = nnc_build2(p->g, OP_add, r, nnc_reshape(p->g, in[2], 3, (int64_t[]){groups, 1, each}));
    return r == NNC_NONE ? r : as_result(p, r, &y, !wgrad);
}

/* ---- few terms ------------------------------------------------------------------------------------------------------------- */

/* Number of terms of each sum of product n. */
static int64_t terms_of(const pass *p, const nnc_node *n)
{
    const nnc_type *a = type_of(p, n->in[0]);
    return a->dim[a->rank - (nnc_attr_int(n, AT_transpose_a, 0) ? 2 : 1)];
}

/* Do only elementwise ops as large as v read it, or a reshape of it? Their kernel can then compute v without storing it. */
static bool is_read_elementwise(const pass *p, nnc_ref v)
{
    bool ok = !edit_is_output(p, v) && p->will_run[PASS_fuse];
    for (uint32_t u = 0, i; ok && edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        ok = n->op == OP_reshape ? is_read_elementwise(p, n->out)
                                 : nnc_op_is_ewise(n->op) && !placed_apart(def_of(p, v), n) &&
                                       numel_of(p, v) == numel_of(p, n->out);
    }
    return ok;
}

static bool is_product(const pass *p, const nnc_node *n)
{
    bool ok = n->op == OP_matmul && type_of(p, n->out)->rank >= 2;
    for (int k = 0; k < 2 && ok; k++)
        ok = type_of(p, n->in[k])->rank >= 2;
    return ok;
}

/* Is n the gradient of a weight on a CPU, a^T b, which only the kernel of the weight's update reads? */
static bool is_gradient(const pass *p, const nnc_node *n)
{
    const nnc_type *y = type_of(p, n->out);
    const nnc_target *t = target_of(p, n);
    return is_product(p, n) && t && t->kind == NNC_T_cpu && !nnc_target_interprets(t) &&
           y->dtype == DT_f32 && y->rank < NNC_MAX_RANK && nnc_attr_int(n, AT_transpose_a, 0) &&
           !nnc_attr_int(n, AT_transpose_b, 0) && is_read_elementwise(p, n->out);
}

/* Does b stay in a core's cache while the weight streams past it? */
static bool is_update(const pass *p, const nnc_node *n)
{
    const nnc_type *b = type_of(p, n->in[1]);
    return !nnc_attr_int(n, AT_as_kernel, 0) && is_gradient(p, n) &&
           terms_of(p, n) <= UPDATE_TERMS &&
           nnc_mul_sat(nnc_type_bytes(b), 2) <= nnc_target_local_bytes(target_of(p, n));
}

/* Operand k of product n, as [.., terms, m, 1] or [.., terms, 1, n]; with one term, without that dimension. */
static nnc_ref as_factor(pass *p, const nnc_node *n, int k, int64_t terms)
{
    const nnc_type t = *type_of(p, n->in[k]);
    const int64_t points = t.dim[t.rank - 1] * t.dim[t.rank - 2] / terms;
    int64_t dim[NNC_MAX_RANK + 1];
    int rank = t.rank - 2;
    memcpy(dim, t.dim, sizeof *dim * (size_t)rank);
    if (terms > 1)
        dim[rank++] = terms;
    dim[rank++] = k ? 1 : points;
    dim[rank++] = k ? points : 1;
    return nnc_reshape(p->g, nnc_reshaped(p->g, n->in[k]), rank, dim);
}

static nnc_ref build_sum(pass *p, const nnc_node *n)
{
    const int64_t terms = terms_of(p, n), axis = type_of(p, n->out)->rank - 2;
    nnc_ref a = as_factor(p, n, 0, terms), b = as_factor(p, n, 1, terms);
    nnc_ref y = a == NNC_NONE || b == NNC_NONE ? NNC_NONE : nnc_build2(p->g, OP_mul, a, b);
    return terms == 1 ? y : nnc_reduce(p->g, OP_reduce_sum, y, 1, &axis, false);
}

/* ---- rules ----------------------------------------------------------------------------------------------------------------- */

nnc_ref rule_one_place(pass *p, const nnc_node *n)
{
    return nnc_op_is_conv(n->op) && !edit_static(p, n->in[1]) && has_one_place(p, n)
               ? build_product(p, n)
               : NNC_NONE;
}

nnc_ref rule_update(pass *p, const nnc_node *n)
{
    nnc_attr a[8];
    if (edit_static(p, n->out) || !is_update(p, n) || n->n_attr >= (int)NNC_COUNT(a))
        return NNC_NONE;
    memcpy(a, n->attr, sizeof *a * n->n_attr);
    a[n->n_attr] = nnc_ai(AT_as_kernel, 1);
    return nnc_build(p->g, OP_matmul, 2, n->in, n->n_attr + 1, a);
}

nnc_ref rule_few_terms(pass *p, const nnc_node *n)
{
    const int64_t terms = is_product(p, n) && !edit_static(p, n->out) ? terms_of(p, n) : INT64_MAX;
    return terms == 1 || (terms <= FEW_TERMS && is_gradient(p, n)) ? build_sum(p, n) : NNC_NONE;
}

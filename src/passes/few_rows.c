/* passes/few_rows.c -- products of 1 to 4 rows on a GPU as generated kernels. A linear layer, a product (one matrix for all rows, or one
 * each) or a convolution of one place becomes a matmul with as_kernel.
 *
 * Its kernel reads the weights once for all rows, at the memory's speed, and contains bias and activation (schedule/contract.c,
 * few_row_strips). Applied where it should take no longer than cuBLASLt or cuDNN (nnc_target_row_product), for weights that do not change.
 * `init` transposes weights that are not contiguous along the sum. Runs after `siblings`, so that products of models side by side are one,
 * and before `precision`, whose casts become part of the kernel. */
#include "passes/internal.h"

#include <string.h>

static const char rule[] = "product of few rows";
enum { LEAST_TERMS = 2 };

/* A product of the rows x[.., m, k] by weights that are contiguous along the sum, or are to be transposed. */
typedef struct row_product {
    nnc_row_product is;
    bool turned; /* weights [.., terms, outputs] */
} row_product;

/* A matrix product: of one matrix for all rows, or of as many as there are, each for rows of its own. */
static bool matmul_rows(const nnc_node *n, const nnc_type *x, const nnc_type *w, row_product *r)
{
    const bool flat = w->rank == 2;
    r->turned = !nnc_attr_int(n, AT_transpose_b, 0);
    if (nnc_attr_int(n, AT_transpose_a, 0) || nnc_attr_int(n, AT_as_kernel, 0) || x->rank < 2 ||
        w->rank < 2 || (!flat && (w->rank != x->rank || w->rank > 3 || x->dim[0] != w->dim[0])))
        return false;
    r->is.matrices = flat ? 1 : w->dim[0];
    r->is.terms = w->dim[w->rank - (r->turned ? 2 : 1)];
    r->is.outputs = w->dim[w->rank - (r->turned ? 1 : 2)];
    return true;
}

/* Is n, on a GPU, a product of few rows and weights that do not change? */
static bool has_few_rows(const pass *p, const nnc_node *n, row_product *r)
{
    const nnc_target *t = target_of(p, n);
    if ((n->op != OP_linear && n->op != OP_conv && n->op != OP_matmul) || !t ||
        t->kind != NNC_T_cuda || !edit_static(p, n->in[1]))
        return false;
    const nnc_type *x = type_of(p, n->in[0]), *w = type_of(p, n->in[1]);
    if ((x->dtype != DT_f32 && x->dtype != DT_f16 && x->dtype != DT_bf16) ||
        !nnc_type_is_row_major(x) || !nnc_type_is_row_major(w) ||
        !nnc_type_in_order(type_of(p, n->out)))
        return false;
    *r = (row_product){.is = {.matrices = 1,
                           .dtype = later_dtype(p, t, (nnc_dtype)x->dtype),
                           .tf32 = uses_tf32(p, t),
                           .kind = n->op == OP_conv ? ASK_conv : ASK_matmul}};
    if (n->op == OP_matmul && !matmul_rows(n, x, w, r))
        return false;
    if (n->op != OP_matmul) {
        r->is.outputs = w->dim[0];
        r->is.terms = w->dim[1];
    }
    const int64_t numel = nnc_type_numel(x), each = nnc_mul_sat(r->is.terms, r->is.matrices);
    r->is.rows = each > 0 ? numel / each : 0;
    return r->is.rows >= 1 && r->is.rows <= NNC_ROWS && r->is.terms >= LEAST_TERMS &&
           (n->op != OP_conv || (nnc_attr_int(n, AT_groups, 1) == 1 && has_one_place(p, n)));
}

static nnc_ref reshaped(pass *p, nnc_ref v, int rank, const int64_t *dim)
{
    if (v == NNC_NONE)
        return v;
    const nnc_type *t = type_of(p, v);
    const bool same = t->rank == rank && memcmp(t->dim, dim, sizeof *dim * (size_t)rank) == 0;
    return same ? v : nnc_reshape(p->g, nnc_reshaped(p->g, v), rank, dim);
}

/* Returns v as [matrices, rows, n], or with one matrix as [rows, n]. */
static nnc_ref as_matrices(pass *p, nnc_ref v, const row_product *r, int64_t rows, int64_t n)
{
    const int64_t dim[] = {r->is.matrices, rows, n};
    const int skip = r->is.matrices == 1;
    return reshaped(p, v, 3 - skip, dim + skip);
}

static nnc_ref build_rows(pass *p, const nnc_node *n, const row_product *r)
{
    const nnc_type y = *type_of(p, n->out);
    const nnc_attr a[] = {nnc_ai(AT_transpose_b, 1), nnc_ai(AT_as_kernel, 1)};
    const int64_t one[] = {1, r->is.outputs}, swap[] = {0, 2, 1}, flat[] = {1, 0};
    nnc_ref x = as_matrices(p, n->in[0], r, r->is.rows, r->is.terms),
            w = r->turned ? as_matrices(p, n->in[1], r, r->is.terms, r->is.outputs)
                          : as_matrices(p, n->in[1], r, r->is.outputs, r->is.terms);
    if (r->turned && w != NNC_NONE)
        w = nnc_transpose(p->g, w, r->is.matrices == 1 ? flat : swap);
    const nnc_ref in[] = {x, w};
    nnc_ref v = x == NNC_NONE || w == NNC_NONE ? NNC_NONE
                                               : nnc_build(p->g, OP_matmul, 2, in, NNC_COUNT(a), a);
    if (n->n_in == 3 && v != NNC_NONE)
        v = nnc_build2(p->g, OP_add, v, reshaped(p, n->in[2], 2, one));
    return reshaped(p, v, y.rank, y.dim);
}

static void replace(pass *p, uint32_t i)
{
    const nnc_node n = p->g->node[i];
    const char *why = NULL;
    row_product r;
    if (!has_few_rows(p, &n, &r))
        return;
    const bool better = nnc_target_row_product(target_of(p, &n), &r.is, &why);
    const char *rows = remark_text(p, r.is.rows > 1 ? "%d rows" : "%d row", (int)r.is.rows);
    if (!better && !why)
        return;
    if (!better) {
        decline_node(p, i, rule, "%s of %s: a generated kernel would take %s", nnc_ops[n.op].name,
            rows, why);
        return;
    }
    layers l = layers_of(p, i, NNC_NONE);
    edit_at(p, i);
    const nnc_ref v = build_rows(p, &n, &r);
    if (!edit_sync(p) || v == NNC_NONE)
        return;
    edit_replace(p, n.out, v);
    remark_applied(p, &l, rule,
        "%s of %s: a generated kernel, the activation inside, reads the weights once: %s",
        nnc_ops[n.op].name, rows, why);
}

nnc_status pass_few_rows(pass *p)
{
    const uint32_t n = p->g->n_node;
    if (!p->will_run[PASS_fuse]) /* bias and activation would be kernels of their own */
        return p->status;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++)
        if (!p->e.dead[i] && !edit_static(p, p->g->node[i].out))
            replace(p, i);
    return p->status;
}

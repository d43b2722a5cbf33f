/* passes/turned_operands.c -- second step of fuse_epilogue, on GPUs: transpositions that only library products read become views. Their
 * results keep the operand's memory, with dimensions in another order. A library reads that as one stride between matrices and one between
 * rows.
 *
 *   x [rows, n k];  t = transpose(reshape(x, [rows, n, k]), [1,0,2]);  y = matmul(t, w [n, k, m]). t: memory order rows, n, k.
 *
 * Applies only where one dimension counts the matrices. With several, the matrices would not follow each other in memory, and the library
 * would be called for each. Terminates: each transposition is visited once. */
#include "passes/internal.h"

/* The type of transposition n as a view of its row-major operand; false: no single product call can read that view. */
static bool view_type(const pass *p, const nnc_node *n, nnc_type *t)
{
    const nnc_type *x = type_of(p, n->in[0]);
    const int64_t *perm;
    uint8_t order[NNC_MAX_RANK];
    const int last = x->rank - 1;
    *t = *type_of(p, n->out);
    if (x->rank != 3 || !nnc_type_is_row_major(x) || !nnc_type_is_dense(x) ||
        !nnc_type_is_row_major(t) || !nnc_type_is_dense(t))
        return false;
    nnc_attr_ints(n, AT_perm, &perm);
    for (int d = 0; d < x->rank; d++)
        order[perm[d]] = (uint8_t)d;
    nnc_type_set_order(t, order);
    return order[last] > 0; /* rows or columns are contiguous, not the first dimension */
}

/* Is node i a library's batched product, with as many matrices in both operands? */
static bool is_library_product(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    return n->op == OP_matmul && !nnc_attr_int(n, AT_as_kernel, 0) && engine_of(p, n) &&
           type_of(p, n->out)->rank == 3 && target_of(p, n)->kind == NNC_T_cuda;
}

static bool only_products_read(const pass *p, nnc_ref v)
{
    bool all = !edit_is_output(p, v) && p->e.n_use[v] > 0;
    for (uint32_t u = 0, i; all && edit_next_user(p, v, &u, &i);)
        all = is_library_product(p, i);
    return all;
}

void read_turned(pass *p)
{
    for (uint32_t i = 0, n = p->g->n_node; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        nnc_type t;
        if (c->op != OP_transpose || p->e.dead[i] || edit_static(p, c->out) ||
            nnc_is_view(p->g, c) || !view_type(p, c, &t) || !only_products_read(p, c->out))
            continue;
        layers l = layers_of(p, i, NNC_NONE);
        p->g->value[c->out].type = t;
        edit_refresh(p, i);
        remark_applied(p, &l, "transpose into matmul",
            "the product reads its operand's memory: %s are not copied",
            text_bytes(p, nnc_type_bytes(&t)));
    }
}

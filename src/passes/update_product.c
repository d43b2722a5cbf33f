/* passes/update_product.c -- first step of fuse_epilogue, for plain gradient descent on a GPU. The product that is a weight's gradient adds
 * it to the weight, so that the gradient is neither stored nor read again.
 *
 *   g = a^T b;  w <- w - lr g      ->   w <- w + (-lr a)^T b, the sum in the product's epilogue.
 *
 * a has few rows, is small beside the weight, and is scaled in the kernel that computes it. Momentum, weight decay, clipping and adam need
 * the gradient itself and stay as they are. Terminates: each subtraction is visited once and becomes a sum. */
#include "passes/internal.h"

/* The sum that replaces a subtraction. */
typedef struct update {
    uint32_t sub, product; /* nodes */
    nnc_ref weight, factor; /* values */
    int scaled; /* operand of the product */
} update;

/* The value behind v's reshapes, if it and each reshape have only one reader; otherwise NNC_NONE. */
static nnc_ref read_once(const pass *p, nnc_ref v)
{
    for (;;) {
        const nnc_node *d = def_of(p, v);
        if (!edit_only_user(p, v))
            return NNC_NONE;
        if (d->op != OP_reshape)
            return v;
        v = d->in[0];
    }
}

/* Is v a product times a number, without other readers? */
static bool is_scaled_product(const pass *p, nnc_ref v, update *u)
{
    const nnc_ref m = read_once(p, v);
    const nnc_node *d = m == NNC_NONE ? NULL : def_of(p, m);
    for (int k = 0; d && d->op == OP_mul && k < 2; k++) {
        const nnc_ref r = d->in[k] == d->in[1 - k] ? NNC_NONE : read_once(p, d->in[k]);
        const nnc_node *c = r == NNC_NONE ? NULL : def_of(p, r);
        if (!c || c->op != OP_matmul || nnc_attr_int(c, AT_as_kernel, 0) ||
            numel_of(p, d->in[1 - k]) != 1)
            continue;
        u->product = node_index(p, c);
        u->factor = d->in[1 - k];
        return true;
    }
    return false;
}

/* Is node i the update of a weight by a product, and can a library compute both? */
static bool find_update(pass *p, uint32_t i, update *u)
{
    const nnc_node *n = &p->g->node[i];
    const nnc_target *t = target_of(p, n);
    nnc_ask a;
    *u = (update){.sub = i, .weight = n->in[0]};
    if (!t || t->kind != NNC_T_cuda || !is_scaled_product(p, n->in[1], u))
        return false;
    const nnc_node *c = &p->g->node[u->product];
    const nnc_type *g = type_of(p, c->out), *w = type_of(p, n->in[0]);
    if (g->dtype != DT_f32 || w->dtype != DT_f32 || nnc_type_numel(g) != nnc_type_numel(w) ||
        nnc_type_numel(w) != numel_of(p, n->out) || placed_apart(n, c) ||
        !nnc_type_is_row_major(g) || !nnc_type_is_row_major(w) || !nnc_type_is_dense(w) ||
        numel_of(p, u->factor) != 1)
        return false;
    u->scaled = bytes_of(p, c->in[1]) < bytes_of(p, c->in[0]);
    contraction_ask(p, c, &a);
    a.post[a.n_post++] = (nnc_post){.kind = PO_sum, .in_place = true};
    return nnc_target_offer(t, &a).ok;
}

/* Time saved: storing and loading the gradient, and a launch, less one more pass over the rows. */
static int64_t saved_ns(const pass *p, const update *u, int64_t *added)
{
    const nnc_node *c = &p->g->node[u->product];
    const nnc_target *t = target_of(p, c);
    *added = nnc_target_time_ns(t, 0, 2 * bytes_of(p, c->in[u->scaled]));
    return nnc_target_time_ns(t, 0, 2 * bytes_of(p, c->out));
}

/* Returns -number v. For a transposition, scales its operand instead, so that it may be a view (turned_operands.c). */
static nnc_ref scaled(pass *p, nnc_ref v, nnc_ref number)
{
    nnc_graph *g = p->g;
    const nnc_node d = *def_of(p, v);
    const nnc_ref x = d.op == OP_transpose ? d.in[0] : v;
    const nnc_ref y = nnc_build1(g, OP_neg, nnc_build2(g, OP_mul, x, number));
    return d.op == OP_transpose ? nnc_build(g, OP_transpose, 1, &y, d.n_attr, d.attr) : y;
}

static void apply(pass *p, const update *u)
{
    nnc_graph *g = p->g;
    const nnc_node c = g->node[u->product], n = g->node[u->sub];
    const nnc_type out = *type_of(p, c.out), y = *type_of(p, n.out);
    nnc_ref in[] = {c.in[0], c.in[1]}, number = u->factor;
    edit_at(p, u->sub);
    if (type_of(p, number)->rank > 0)
        number = nnc_reshape(g, number, 0, NULL);
    in[u->scaled] = scaled(p, in[u->scaled], number);
    const char *origin = g->origin;
    g->origin = union_origin(p, (uint32_t[]){u->product, u->sub}, 2);
    nnc_ref r = nnc_build(g, OP_matmul, 2, in, c.n_attr, c.attr);
    r = nnc_build2(g, OP_add, nnc_reshape(g, u->weight, out.rank, out.dim), r);
    g->origin = origin;
    r = nnc_reshape(g, r, y.rank, y.dim);
    edit_sync(p);
    edit_replace(p, n.out, r);
}

void add_to_weights(pass *p)
{
    for (uint32_t i = 0, n = p->g->n_node; i < n && p->status == NNC_OK; i++) {
        update u;
        int64_t added;
        if (p->e.dead[i] || p->g->node[i].op != OP_sub || !find_update(p, i, &u))
            continue;
        layers l = layers_of(p, u.product, i);
        const int64_t saved = saved_ns(p, &u, &added);
        if (saved <= added) {
            remark_declined(p, &l, "update into matmul",
                "the rows that would be scaled take %s, the gradient and its kernel %s",
                text_us_beside(p, added, saved), text_us_beside(p, saved, added));
            continue;
        }
        const char *bytes = text_bytes(p, 2 * bytes_of(p, p->g->node[u.product].out));
        apply(p, &u);
        remark_applied(p, &l, "update into matmul",
            "the product adds the step to the weight: %s of gradient are neither stored nor "
            "loaded, %s instead of %s",
            bytes, text_us_beside(p, added, saved), text_us_beside(p, saved, added));
    }
}

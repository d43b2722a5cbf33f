/* passes/swap_pool_step.c -- applies a relu after a max pooling in a training step, where the backward pass reads the relu's result, too.
 *
 *   r = relu(x);     p = maxpool(r);  dx = select(r <= 0, 0, maxpool_grad(dp, argmaxpool(r))).
 *   q = maxpool(x);  p = relu(q);     dx = maxpool_grad(select(p <= 0, 0, dp), argmaxpool(x)).
 *
 * Results and gradients are equal. Where a window's largest element is not positive, no gradient passes; elsewhere it is the same element.
 * Windows that share an element have the same result. The backward pass then needs only the indices of the largest elements, and a mask of
 * the smaller result. The same holds for relu6, with r >= 6. */
#include "passes/internal.h"

/* The nodes of the backward pass. */
typedef struct backward {
    uint32_t index, low, high, either, scatter, choose; /* high, either: of relu6 */
    nnc_ref dp;
    double most; /* bound of relu6 */
} backward;

static bool is_compared(const pass *p, const nnc_node *n, nnc_op op, nnc_ref r, double number)
{
    double c;
    return n->op == op && n->in[0] == r && nnc_const_scalar(p->g, n->in[1], &c) && c == number;
}

/* The only user of v as its operand k; NULL: there are others. */
static const nnc_node *only_user(const pass *p, nnc_ref v, nnc_op op, int k)
{
    const nnc_node *u = edit_only_user(p, v);
    return u && u->op == op && u->in[k] == v ? u : NULL;
}

/* Sorts the readers of r = relu(x) other than the pooling i. False: one of them is not part of the two ops' backward pass. */
static bool find_readers(const pass *p, uint32_t i, const nnc_node *relu, backward *b)
{
    const nnc_ref r = relu->out;
    int n = 0;
    *b = (backward){NNC_NONE, NNC_NONE, NNC_NONE, NNC_NONE, NNC_NONE, NNC_NONE, NNC_NONE, 6};
    for (uint32_t u = 0, at; edit_next_user(p, r, &u, &at); n++) {
        const nnc_node *m = &p->g->node[at];
        if (m->op == OP_argmaxpool && attrs_equal(m, &p->g->node[i]))
            b->index = at;
        else if (is_compared(p, m, OP_le, r, 0))
            b->low = at;
        else if (relu->op == OP_relu6 && is_compared(p, m, OP_ge, r, b->most))
            b->high = at;
        else if (at != i)
            return false;
    }
    const bool six = relu->op == OP_relu6;
    return n == (six ? 4 : 3) && b->index != NNC_NONE && b->low != NNC_NONE &&
           six == (b->high != NNC_NONE);
}

static bool find_backward(const pass *p, uint32_t i, const nnc_node *relu, backward *b)
{
    const nnc_graph *g = p->g;
    if (!find_readers(p, i, relu, b) || edit_is_output(p, relu->out))
        return false;
    const nnc_node *flat = &g->node[b->low], *at = &g->node[b->index];
    if (b->high != NNC_NONE) {
        flat = only_user(p, flat->out, OP_or, 0);
        if (!flat || only_user(p, g->node[b->high].out, OP_or, 1) != flat)
            return false;
        b->either = node_index(p, flat);
    }
    for (const nnc_node *u; (u = only_user(p, at->out, OP_cast, 0));)
        at = u;
    const nnc_node *scatter = only_user(p, at->out, OP_maxpool_grad, 1);
    const nnc_node *choose = scatter ? only_user(p, scatter->out, OP_select, 2) : NULL;
    double c;
    if (!choose || choose->in[0] != flat->out || edit_only_user(p, flat->out) != choose ||
        !nnc_const_scalar(g, choose->in[1], &c) || c != 0 || placed_apart(scatter, choose))
        return false;
    b->scatter = node_index(p, scatter);
    b->choose = node_index(p, choose);
    b->dp = scatter->in[0];
    return true;
}

/* The node again, of other operands. */
static nnc_ref again(pass *p, uint32_t i, int n, const nnc_ref *in)
{
    const nnc_node old = p->g->node[i];
    edit_at(p, i);
    return nnc_build(p->g, old.op, n, in, old.n_attr, old.attr);
}

/* Builds dx from the results of the two ops in their new order. */
static nnc_ref gradient(pass *p, const backward *b, nnc_ref x, nnc_ref y)
{
    const nnc_node low = p->g->node[b->low], choose = p->g->node[b->choose];
    nnc_ref flat = again(p, b->low, 2, (nnc_ref[]){y, low.in[1]});
    if (b->high != NNC_NONE) {
        const nnc_ref six = p->g->node[b->high].in[1];
        const nnc_ref high = again(p, b->high, 2, (nnc_ref[]){y, six});
        flat = again(p, b->either, 2, (nnc_ref[]){flat, high});
    }
    const nnc_ref masked = again(p, b->choose, 3, (nnc_ref[]){flat, choose.in[1], b->dp});
    nnc_ref index = again(p, b->index, 1, &x);
    const nnc_ref last = p->g->node[b->scatter].in[1];
    for (nnc_ref v = p->g->node[b->index].out; v != last && index != NNC_NONE;) {
        const uint32_t cast = node_index(p, edit_only_user(p, v));
        index = again(p, cast, 1, &index);
        v = p->g->node[cast].out;
    }
    return again(p, b->scatter, 2, (nnc_ref[]){masked, index});
}

bool swap_pool_in_step(pass *p, uint32_t i, uint32_t *pooling)
{
    const nnc_node pool = p->g->node[i];
    const uint32_t at = p->g->value[pool.in[0]].node;
    const nnc_node relu = p->g->node[at];
    backward b;
    if ((relu.op != OP_relu && relu.op != OP_relu6) || placed_apart(&relu, &pool) ||
        !find_backward(p, i, &relu, &b))
        return false;
    const int64_t before = bytes_of(p, relu.out), after = bytes_of(p, pool.out);
    const nnc_ref old = p->g->node[b.choose].out;
    layers l = layers_of(p, at, i);
    layers_add(p, &l, b.scatter);
    layers_add(p, &l, b.choose);
    const nnc_ref q = again(p, i, 1, relu.in);
    const nnc_ref y = again(p, at, 1, &q), dx = gradient(p, &b, relu.in[0], y);
    if (!edit_sync(p))
        return false;
    edit_replace(p, pool.out, y);
    edit_replace(p, old, dx);
    remark_applied(p, &l, "max pooling first",
        "%s and its derivative keep the order of elements: after pooling it works on %s instead of "
        "%s, and gradients need only the pooling's indices",
        nnc_ops[relu.op].name, text_bytes(p, after), text_bytes(p, before));
    *pooling = p->g->value[q].node;
    return true;
}

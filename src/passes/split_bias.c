/* passes/split_bias.c -- turns a contraction's bias that its engine does not support (cuDNN's transposed convolution) into a separate add.
 * The add joins a kernel of its users: conv_transpose(x, w, b) = conv_transpose(x, w) + b. Runs at every level, since otherwise no engine
 * supports the op. Terminates: every application removes a bias. */
#include "passes/internal.h"

static void split(pass *p, uint32_t i)
{
    nnc_node c = p->g->node[i];
    nnc_type y = *type_of(p, c.out);
    int64_t dim[NNC_MAX_RANK];
    layers l = layers_of(p, i, NNC_NONE);
    edit_at(p, i);
    dim[0] = y.dim[1];
    for (int d = 2; d < y.rank; d++)
        dim[d - 1] = 1;
    nnc_ref bare = nnc_build_typed(p->g, c.op, 2, c.in, c.n_attr, c.attr, &y);
    nnc_ref in[2] = {bare, nnc_reshape(p->g, c.in[2], y.rank - 1, dim)};
    nnc_ref r = nnc_build_typed(p->g, OP_add, 2, in, 0, NULL, &y);
    if (!edit_sync(p))
        return;
    edit_replace(p, c.out, r);
    remark_applied(p, &l, remark_text(p, "bias out of %s", nnc_ops[c.op].name),
        "%s supports no bias in transposed convolutions: a generated kernel adds it",
        nnc_target_engine_for(target_of(p, &c), ASK_conv)->name);
}

/* Does the engine of node n's device support no bias in transposed convolutions? */
static bool lacks_bias(const pass *p, const nnc_node *n)
{
    const nnc_ask a = {.kind = ASK_conv_transpose, .dtype = DT_f32, .bias = true};
    const nnc_offer o = nnc_target_offer(target_of(p, n), &a);
    return o.engine && !o.ok;
}

nnc_status pass_split_bias(pass *p)
{
    uint32_t n = p->g->n_node;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++)
        if (p->g->node[i].op == OP_conv_transpose && p->g->node[i].n_in == 3 && !p->e.dead[i] &&
            !edit_static(p, p->g->node[i].out) && lacks_bias(p, &p->g->node[i]))
            split(p, i);
    return p->status;
}

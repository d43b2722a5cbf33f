/* passes/expand.c -- replaces named ops with reductions (softmax, layernorm, batchnorm, ...) by their lowering, so that fusion can group it
 * with neighbours by its general rules. New nodes keep the layer's path. `fuse` first groups the nodes of one named op, which thus gets no
 * more kernels than before, unless they have more parallelism. Terminates: lowerings contain no such named ops. */
#include "passes/internal.h"

/* The layer's name for an op without a path, which graph text allows. `fuse` knows the ops of one layer by their path. */
static const char *layer_name(pass *p, const nnc_node *n)
{
    const char *name = p->g->value[n->out].name,
               *s = name ? nnc_arena_printf(&p->g->arena, "%%%s", name)
                         : nnc_arena_printf(&p->g->arena, "%s %u", nnc_ops[n->op].name, n->out);
    if (!s)
        pass_nomem(p);
    return s;
}

nnc_status pass_expand(pass *p)
{
    uint32_t n_node = p->g->n_node;
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        nnc_node n = p->g->node[i];
        if (nnc_op_class(n.op) != CL_comp || p->e.dead[i])
            continue;
        layers l = layers_of(p, i, NNC_NONE);
        edit_at(p, i);
        if (!n.origin || !*n.origin)
            n.origin = layer_name(p, &n);
        nnc_ref r = nnc_expand(p->g, &n, n.in);
        if (!edit_sync(p))
            break;
        if (r == NNC_NONE)
            return nnc_fail(p->sink, NNC_E_BUG, n.loc, "%s has no lowering", nnc_ops[n.op].name);
        edit_replace(p, n.out, edit_like(p, r, n.out));
        remark_applied(p, &l, "expanded",
            "%s is expanded into simpler ops for fusion to group (fuse regains the cost)",
            nnc_ops[n.op].name);
    }
    return p->status;
}

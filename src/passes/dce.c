/* passes/dce.c -- what no output needs goes. One remark for each dead end, with everything that only it needed. */
#include "passes/internal.h"

static bool used(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    for (uint32_t k = 0; k < n->n_out; k++)
        if (p->e.n_use[n->out + k])
            return true;
    return false;
}

nnc_status pass_dce(pass *p)
{
    uint32_t n_node = p->g->n_node;
    /* Backwards: a dead end's producers come before it, so they die with it and get no remark of their own. */
    for (uint32_t i = n_node; i-- > 0 && p->status == NNC_OK;) {
        if (p->e.dead[i] || p->g->node[i].op == OP_input || used(p, i))
            continue;
        layers l = {0};
        layers_add(p, &l, i);
        bool leaf = nnc_op_class(p->g->node[i].op) == CL_leaf;
        bool constant = p->g->node[i].op == OP_constant;
        edit_sweep(p, i);
        if (constant) /* nobody wrote it as a layer */
            continue;
        remark_applied(p, &l, leaf ? "unused weight" : "dead code",
            leaf ? "no layer reads this weight" : "no output depends on this layer's result");
    }
    return p->status;
}

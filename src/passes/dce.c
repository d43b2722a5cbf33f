/* passes/dce.c -- dead code elimination: removes what no output needs. One remark per unused result, including everything that only it
 * needed. */
#include "passes/internal.h"

/* Collects the layers of node i and of all nodes removed with it; listed[] prevents repetition. */
static void cascade(pass *p, uint32_t i, bool *listed, uint32_t *stack, layers *l)
{
    uint32_t n = 0;
    listed[i] = true;
    stack[n++] = i;
    while (n) {
        const nnc_node *d = &p->g->node[stack[--n]];
        if (nnc_op_class(d->op) != CL_leaf || stack[n] == i)
            layers_add(p, l, stack[n]);
        for (int k = 0; k < d->n_in; k++) {
            uint32_t j = p->g->value[d->in[k]].node;
            if (p->e.dead[j] && !listed[j]) {
                listed[j] = true;
                stack[n++] = j;
            }
        }
    }
}

nnc_status pass_dce(pass *p)
{
    uint32_t n_node = p->g->n_node;
    bool *listed = ARENA_NEW(p->a, bool, n_node + 1);
    uint32_t *stack = ARENA_NEW(p->a, uint32_t, n_node + 1);
    NNC_NEED(listed && stack, p->sink);
    /* Backwards: producers of an unused result come before it, so they are removed with it and get no remark of their own. */
    for (uint32_t i = n_node; i-- > 0 && p->status == NNC_OK;) {
        if (p->e.dead[i] || p->g->node[i].op == OP_input || !edit_unused(p, i))
            continue;
        layers l = {0};
        bool leaf = nnc_op_class(p->g->node[i].op) == CL_leaf;
        bool constant = p->g->node[i].op == OP_constant;
        edit_sweep(p, i);
        cascade(p, i, listed, stack, &l);
        if (constant) /* not a layer of the user */
            continue;
        remark_applied(p, &l, leaf ? "unused weight" : "dead code",
            leaf ? "no layer reads this weight" : "no output depends on this layer's result");
    }
    return p->status;
}

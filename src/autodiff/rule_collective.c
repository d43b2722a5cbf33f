/* autodiff/rule_collective.c -- gradients of collectives are collectives: each participant's operand reaches all results, so its gradient
 * is made of all of theirs. */
#include "autodiff/internal.h"
#include <string.h>

static bool adds(const nnc_node *n)
{
    const nnc_attr *a = nnc_attr_find(n, AT_reduction);
    return !a || !strcmp(a->word, "add");
}

static void collective_rule(visit *a)
{
    const nnc_op op = a->n.op == OP_allreduce   ? OP_allreduce
                      : a->n.op == OP_allgather ? OP_reduce_scatter
                                                : OP_allgather;
    const nnc_attr axis = nnc_ai(AT_axis, nnc_attr_int(&a->n, AT_axis, 0));
    if (!adds(&a->n)) {
        refuse(a, " with a reduction other than add");
        return;
    }
    for (int i = 1; a->n.op == OP_allgather && i < a->n.n_in; i++)
        if (!nnc_type_same_shape(in_type(a, i), in_type(a, 0))) {
            refuse(a, " of operands of different extents");
            return;
        }
    nnc_ref *dy = nnc_malloc(sizeof *dy * a->n.n_out);
    if (!dy) {
        no_memory(a->g);
        return;
    }
    const int16_t device = a->g->device;
    for (int i = 0; i < a->n.n_out; i++) { /* zeros for an unused result: on its device */
        a->g->device = nnc_home(a->g, a->n.in[i]);
        dy[i] = result_grad(a, i);
    }
    a->g->device = device;
    const nnc_ref dx = nnc_build(a->g, op, a->n.n_out, dy, op == OP_allreduce ? 0 : 1, &axis);
    for (int i = 0; i < a->n.n_in && dx != NNC_NONE; i++)
        give(a, i, dx + (nnc_ref)i);
    nnc_free(dy);
}

rule *collective_rule_of(nnc_op op)
{
    return nnc_op_class(op) == CL_collective ? collective_rule : NULL;
}

/* autodiff/rule_collective.c -- gradients of collectives are collectives: each participant's operand reaches all results, so its gradient
 * is made of all of theirs. */
#include "autodiff/internal.h"
#include <string.h>

static bool adds(const nnc_node *n)
{
    const nnc_attr *a = nnc_attr_find(n, AT_reduction);
    return !a || !strcmp(a->word, "add");
}

void collective_rule(visit *a)
{
    const nnc_op op = a->n.op == OP_allreduce   ? OP_allreduce
                      : a->n.op == OP_allgather ? OP_reduce_scatter
                                                : OP_allgather;
    if (!adds(&a->n)) {
        refuse(a, " with a reduction other than add");
        return;
    }
    for (int i = 1; a->n.op == OP_allgather && i < a->n.n_in; i++)
        if (!nnc_type_same_shape(in_type(a, i), in_type(a, 0))) {
            refuse(a, " of operands of different extents");
            return;
        }
    NNC_FREED nnc_ref *dy = nnc_calloc((size_t)a->n.n_out, sizeof *dy);
    NNC_FREED int64_t *on = nnc_calloc((size_t)a->n.n_out, sizeof *on);
    if (!dy || !on) {
        no_memory(a->g);
        return;
    }
    const int16_t device = a->g->device;
    bool elsewhere = false; /* a gradient that only ops of another device made */
    for (int i = 0; i < a->n.n_out; i++) { /* zeros for an unused result: on its device */
        a->g->device = nnc_home(a->g, a->n.out + (nnc_ref)i);
        on[i] = a->g->device;
        dy[i] = result_grad(a, i);
        elsewhere = elsewhere || (dy[i] != NNC_NONE && nnc_home(a->g, dy[i]) != on[i]);
    }
    a->g->device = device;
    nnc_attr attr[2];
    int n_attr = 0;
    if (op != OP_allreduce)
        attr[n_attr++] = nnc_ai(AT_axis, nnc_attr_int(&a->n, AT_axis, 0));
    if (elsewhere)
        attr[n_attr++] = nnc_av(AT_devices, a->n.n_out, on);
    const nnc_ref dx = nnc_build(a->g, op, a->n.n_out, dy, n_attr, attr);
    for (int i = 0; i < a->n.n_in && dx != NNC_NONE; i++)
        give(a, i, dx + (nnc_ref)i);
}

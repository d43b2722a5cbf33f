/* onnx/statistics.c -- running statistics of batch norms that share their tensor with a weight.
 *
 * Exporters merge equal tensors. In a model that is not trained yet a bias and a running mean are both 0, a scale and a running variance
 * both 1. For inference that is right; in training the one is moved by the optimizer, the other by the batches. */
#include "onnx/internal.h"

/* Gives operand k of node i, a param, a param of its own with the same numbers. */
static bool separate(ox *x, uint32_t i, int k)
{
    const nnc_node *n = &x->g->node[i];
    const nnc_ref was = n->in[k];
    const nnc_type type = *nnc_typeof(x->g, was);
    nnc_weight w = *nnc_def(x->g, was)->weight;
    const char *layer = n->origin ? n->origin : w.name;
    w.name = nnc_arena_printf(
        &x->a, "%s.%s", layer ? layer : "", k == 3 ? "running_mean" : "running_var");
    if (!w.name)
        return ox_nomem(x);
    x->g->origin = n->origin;
    x->g->loc = n->loc;
    const nnc_ref own = nnc_param(x->g, &type, &w);
    if (own == NNC_NONE)
        return ox_stop(x, x->g->status);
    x->g->node[i].in[k] = own;
    return true;
}

bool ox_separate_statistics(ox *x)
{
    nnc_graph *g = x->g;
    const uint32_t n_node = g->n_node;
    bool *weight = ARENA_NEW(&x->a, bool, g->n_value + 1);
    if (!weight)
        return ox_nomem(x);
    for (uint32_t i = 0; i < n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            weight[g->node[i].in[k]] |= !nnc_reads_statistic(&g->node[i], k);
    for (uint32_t i = 0; i < n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const nnc_ref r = g->node[i].in[k];
            if (nnc_reads_statistic(&g->node[i], k) && weight[r] && nnc_def(g, r)->op == OP_param &&
                !separate(x, i, k))
                return false;
        }
    return true;
}

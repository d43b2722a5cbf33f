/* ir/cost.c -- the cost of running a node once (docs/graph-ir.md, "Cost"). Sums and products saturate.
 * bytes: each distinct operand read once and each result written once. slice and gather count only the elements that they read, also
 * inside a fused node when nothing else there reads that operand. A view moves nothing.
 * flops: 2 per multiply-add of a contraction and 1 per bias. Elementwise ops and reductions: 1 per scalar operation of the lowering and
 * element (ops.def's column `work`). Windows of k elements: k. Movement: 0.
 * launches: 1; of a collective one for each participant; 0 for leaves and views. */
#include "ir/eval_internal.h"

#include <math.h>
#include <string.h>

/* Scalar operations in the lowering of a CL_ecomp node; depends on attributes. */
static int64_t ecomp_ops(const nnc_node *n)
{
    const nnc_attr *form = nnc_attr_find(n, AT_approximate);
    switch (n->op) {
    case OP_clip: /* bounds that never apply are omitted */
        return (nnc_attr_float(n, AT_lo, -INFINITY) != -INFINITY) +
               (nnc_attr_float(n, AT_hi, INFINITY) != INFINITY);
    case OP_gelu: return form && !strcmp(form->word, "tanh") ? 9 : nnc_ops[OP_gelu].work;
    default: return nnc_ops[n->op].work;
    }
}

/* Multiply-adds of a contraction. */
static int64_t multiply_adds(const nnc_graph *g, const nnc_node *n)
{
    const nnc_type *x = nnc_typeof(g, n->in[0]), *w = nnc_typeof(g, n->in[1]);
    int64_t results = nnc_type_numel(nnc_typeof(g, n->out));
    if (n->op == OP_matmul)
        return nnc_mul_sat(results, x->dim[x->rank - 1 - nnc_attr_int(n, AT_transpose_a, 0)]);
    if (n->op == OP_conv_wgrad) /* each element of dy is multiplied with its channel's weights */
        return nnc_mul_sat(nnc_type_numel(w), results / w->dim[1]);
    if (nnc_op_is_winograd(n->op)) { /* each tile is multiplied with all weights */
        const nnc_type *y = n->op == OP_winograd ? nnc_typeof(g, n->out) : w;
        const int64_t points = nnc_winograd_points(g, n), tile = points == 36 ? 4 : 2;
        return nnc_mul_sat(nnc_mul_sat(points * x->dim[1], y->dim[1]),
            y->dim[0] * nnc_ceildiv(y->dim[2], tile) * nnc_ceildiv(y->dim[3], tile));
    }
    /* linear, conv: each result uses its channel's weights; conv_transpose: each element of the input does */
    int64_t meets = n->op == OP_conv_transpose ? nnc_type_numel(x) : results;
    return nnc_mul_sat(meets, nnc_type_numel(w) / w->dim[0]);
}

/* Scalar operations of a node that runs in order. */
static int64_t loop_ops(const nnc_graph *g, const nnc_node *n)
{
    int64_t x = nnc_type_numel(nnc_typeof(g, n->in[0]));
    if (n->op == OP_topk) /* each result compares all elements */
        return nnc_mul_sat(x, nnc_attr_int(n, AT_k, 1));
    if (nnc_op_is_recurrent(n->op)) /* multiply-adds with R */
        return nnc_mul_sat(2 * nnc_typeof(g, n->out)->dim[2], x);
    if (n->op == OP_linear_scan)
        return nnc_mul_sat(2, x);
    return n->op == OP_scatter || n->op == OP_scatter_nd ? nnc_type_numel(nnc_typeof(g, n->in[2]))
                                                         : x;
}

static int64_t node_flops(const nnc_graph *g, const nnc_node *n)
{
    int64_t out = n->n_out ? nnc_type_numel(nnc_typeof(g, n->out)) : 0;
    int64_t in = n->n_in ? nnc_type_numel(nnc_typeof(g, n->in[0])) : 0;
    const int64_t *kernel;
    switch (nnc_op_class(n->op)) {
    case CL_leaf:
    case CL_move: return 0;
    case CL_ewise: return n->op == OP_identity ? 0 : out;
    case CL_ecomp: return nnc_mul_sat(out, ecomp_ops(n));
    case CL_comp: return nnc_mul_sat(in, nnc_ops[n->op].work);
    case CL_loop: return loop_ops(g, n);
    case CL_collective: return n->op == OP_allgather ? 0 : nnc_mul_sat(in, n->n_in);
    case CL_reduce: return nnc_add_sat(in, n->op == OP_reduce_mean ? out : 0);
    case CL_window:
        for (int i = nnc_attr_ints(n, AT_kernel, &kernel) - 1; i >= 0; i--)
            out = nnc_mul_sat(out, kernel[i]);
        return out;
    case CL_contract:
        return nnc_add_sat(nnc_mul_sat(2, multiply_adds(g, n)), n->n_in == 3 ? out : 0);
    case CL_fused: break;
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < n->body->n_node; i++)
        sum = nnc_add_sat(sum, node_flops(n->body, &n->body->node[i]));
    return sum;
}

double ev_node_ops(const nnc_graph *g, const nnc_node *n)
{
    switch (nnc_op_class(n->op)) {
    case CL_contract: return (double)multiply_adds(g, n);
    case CL_loop:
    case CL_collective:
    case CL_window: return (double)node_flops(g, n);
    case CL_reduce: return (double)nnc_type_numel(nnc_typeof(g, n->in[0]));
    case CL_comp: return 8 * (double)nnc_type_numel(nnc_typeof(g, n->in[0]));
    default: return (double)nnc_type_numel(nnc_typeof(g, n->out));
    }
}

/* Bytes that node n reads of operand i. */
static int64_t fetched(const nnc_graph *g, const nnc_node *n, int i)
{
    int64_t all = nnc_type_bytes(nnc_typeof(g, n->in[i]));
    if (i == 0 && (n->op == OP_slice || nnc_index_operand(n) > 0) && nnc_op_class(n->op) == CL_move)
        return nnc_min64(all, nnc_type_bytes(nnc_typeof(g, n->out)));
    return all;
}

/* Bytes that a body reads of its input r. */
static int64_t body_fetched(const nnc_graph *b, nnc_ref r)
{
    int64_t sum = 0, all = nnc_type_bytes(nnc_typeof(b, r));
    for (uint32_t i = 0; i < b->n_node && sum < all; i++)
        for (int k = 0; k < b->node[i].n_in; k++)
            if (b->node[i].in[k] == r)
                sum += fetched(b, &b->node[i], k);
    for (uint32_t i = 0; i < b->n_output; i++)
        if (b->output[i] == r)
            sum = all;
    return nnc_min64(sum, all);
}

static int64_t node_bytes(const nnc_graph *g, const nnc_node *n)
{
    int64_t sum = 0;
    uint32_t input = 0; /* node of the body that is the next input */
    nnc_ref top = 0;
    for (int i = 0; i < n->n_in; i++) {
        int64_t bytes;
        if (n->op == OP_fused) {
            while (n->body->node[input].op != OP_input)
                input++;
            bytes = body_fetched(n->body, n->body->node[input++].out);
        } else {
            bytes = fetched(g, n, i);
        }
        bool later =
            i == 0 ||
            n->in[i] > top; /* greater than all before: avoids the search if there are many */
        top = later ? n->in[i] : top;
        if (later || !nnc_operand_repeats(n, i))
            sum = nnc_add_sat(sum, bytes);
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        sum = nnc_add_sat(sum, nnc_type_bytes(nnc_typeof(g, n->out + i)));
    return sum;
}

nnc_cost nnc_node_cost(const nnc_graph *g, const nnc_node *n)
{
    if (nnc_op_class(n->op) == CL_leaf || nnc_is_view(g, n))
        return (nnc_cost){0};
    return (nnc_cost){.flops = node_flops(g, n),
        .bytes = node_bytes(g, n),
        .launches = nnc_op_class(n->op) == CL_collective ? n->n_in : 1};
}

nnc_cost nnc_graph_cost(const nnc_graph *g)
{
    nnc_cost sum = {0};
    NNC_LOCAL(nnc_arena) scratch = {0};
    bool *fixed = nnc_static_values(g, &scratch);
    if (!fixed)
        sum = (nnc_cost){-1, -1, -1};
    for (uint32_t i = 0; fixed && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->n_out && fixed[n->out])
            continue;
        nnc_cost c = nnc_node_cost(g, n);
        sum.flops = nnc_add_sat(sum.flops, c.flops);
        sum.bytes = nnc_add_sat(sum.bytes, c.bytes);
        sum.launches += c.launches;
    }
    return sum;
}

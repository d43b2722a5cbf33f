/* strategy/auto_costs.c -- a model's blocks divided over a tensor group of t devices.
 *
 * A block is computed in one of these ways (Megatron-LM's columns and rows, for convolutions output and input channels):
 *
 *     whole      x whole, y whole   everything on each device
 *     columns    x whole, y split   weights divided by output channels; backwards an allreduce of x's gradient
 *     rows       x split, y whole   weights divided by input channels; an allreduce of y
 *     between    x split, y split   elementwise, pooling, norms by channel, attention by heads
 *     pair       x whole, y whole   columns and rows within the block: both allreduces
 *
 * nnc_layout_graph chooses. Where a block needs a tensor otherwise than it was made, a split one is gathered, and of a whole one each
 * device takes its part, whose gradients are gathered backwards. Batches are never split: that is data parallelism. */
#include "strategy/auto.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include <math.h>

/* What of a block's ops decides about its ways. */
typedef struct block {
    int depth; /* contractions with weights, one after the other */
    bool whole[3]; /* by contractions before it, 2: or more: an op that needs all channels */
    int64_t in, out; /* greatest common divisor of the contractions' channels */
    int64_t heads; /* of attention; 0: none */
} block;

typedef enum way { WAY_whole, WAY_columns, WAY_rows, WAY_between, WAY_pair } way;

typedef struct division {
    rows *r;
    const nnc_partition_model *m;
    const auto_links *l;
    int t;
    block *b;
    int64_t *in_bytes,
        *out_bytes; /* by block: of what it is the first to contract, of what it makes */
    bool *makes_output;
    int *n_way;
    nnc_layout_way (*way)[LAYOUT_WAYS];
    uint8_t (*kind)[LAYOUT_WAYS];
    int *choice;
} division;

/* ---- ops -------------------------------------------------------------------------------------------------- */

static bool is_weight(const nnc_graph *g, nnc_ref r)
{
    const nnc_node *n = nnc_def(g, r);
    return n->op == OP_param || n->op == OP_constant ||
           (n->op == OP_cast && n->n_in && is_weight(g, n->in[0]));
}

/* Does the op mix channels with a weight? */
static bool mixes(const nnc_graph *g, const nnc_node *n)
{
    if (n->op == OP_conv || n->op == OP_conv_transpose)
        return nnc_attr_int(n, AT_groups, 1) == 1;
    return n->op == OP_linear || (n->op == OP_matmul && is_weight(g, n->in[1]));
}

/* Does it need all channels of what it reads? */
static bool needs_all(const nnc_graph *g, const nnc_node *n)
{
    const int64_t *axes = NULL;
    if (!n->n_in)
        return false;
    const nnc_type *x = nnc_typeof(g, n->in[0]);
    switch ((nnc_op)n->op) {
    case OP_layernorm:
    case OP_rmsnorm: return true;
    case OP_softmax:
    case OP_log_softmax: return x->rank < 4;
    case OP_gather:
    case OP_gather_elements:
    case OP_gather_nd: return true;
    default: break;
    }
    if (nnc_op_class((nnc_op)n->op) == CL_reduce) {
        for (int k = nnc_attr_ints(n, AT_axes, &axes); k > 0; k--)
            if (axes[k - 1] == (x->rank > 3 ? 1 : x->rank - 1))
                return true;
        return nnc_attr_find(n, AT_axis) != NULL;
    }
    return nnc_op_class((nnc_op)n->op) == CL_loop || nnc_op_class((nnc_op)n->op) == CL_fused;
}

static void look_at(const nnc_graph *g, const nnc_node *n, int depth, block *b)
{
    if (needs_all(g, n))
        b->whole[depth < 2 ? depth : 2] = true;
    if (n->op == OP_matmul && !is_weight(g, n->in[1]) && nnc_typeof(g, n->out)->rank == 4)
        b->heads = nnc_gcd(b->heads, nnc_typeof(g, n->out)->dim[1]);
    else if (n->op == OP_matmul && !mixes(g, n))
        b->whole[depth < 2 ? depth : 2] = true;
    if (!mixes(g, n))
        return;
    const nnc_type *w = nnc_typeof(g, n->in[1]);
    const bool turned =
        n->op == OP_conv_transpose || (n->op == OP_matmul && !nnc_attr_int(n, AT_transpose_b, 0));
    b->out = nnc_gcd(b->out, w->dim[turned ? 1 : 0]);
    b->in = nnc_gcd(b->in, w->dim[turned ? 0 : 1]);
}

/* b[] of the model's graph. Depths count contractions within a block only. */
static nnc_status find_blocks(division *v)
{
    const nnc_graph *g = v->r->t->graph;
    nnc_arena *a = v->r->a;
    const char **path = ARENA_NEW(a, const char *, g->n_node + 1);
    int32_t *layer = ARENA_NEW(a, int32_t, g->n_node + 1);
    int *of = ARENA_NEW(a, int, v->m->n_layer + 1), *depth = ARENA_NEW(a, int, g->n_node + 1);
    NNC_NEED(path && layer && of && depth, v->r->sink);
    (void)nnc_model_layers(g, path, layer);
    for (int b = 0; b < v->m->n_block; b++)
        for (int l = v->m->first[b]; l < v->m->first[b + 1]; l++)
            of[l] = b;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (layer[i] < 0)
            continue;
        const int at = of[layer[i]];
        for (int k = 0; k < n->n_in; k++) {
            const uint32_t by = g->value[n->in[k]].node;
            if (layer[by] >= 0 && of[layer[by]] == at && depth[by] > depth[i])
                depth[i] = depth[by];
        }
        look_at(g, n, depth[i], &v->b[at]);
        depth[i] += mixes(g, n);
        v->b[at].depth = depth[i] > v->b[at].depth ? depth[i] : v->b[at].depth;
    }
    return NNC_OK;
}

/* ---- ways ------------------------------------------------------------------------------------------------- */

static bool possible(const division *v, int b, way w)
{
    const block *k = &v->b[b];
    const int t = v->t;
    if (v->makes_output[b] && (w == WAY_columns || w == WAY_between))
        return false;
    switch (w) {
    case WAY_whole: return true;
    case WAY_columns: return k->depth == 1 && k->out % t == 0 && !k->whole[1] && k->heads % t == 0;
    case WAY_rows: return k->depth == 1 && k->in % t == 0 && !k->whole[0] && k->heads % t == 0;
    case WAY_between: return !k->depth && !k->whole[0] && k->heads % t == 0;
    case WAY_pair: return k->depth == 2 && k->in % t == 0 && k->out % t == 0 && !k->whole[1];
    }
    return false;
}

/* Time of a pass over a t-th: launches remain. */
static int64_t part_ns(const division *v, int64_t ns)
{
    const nnc_target *target = v->r->t->target;
    const int64_t fixed = nnc_min64(ns, target->launch_ns);
    return fixed + nnc_ceildiv(ns - fixed, v->t);
}

/* Allreduces of a way, forwards and backwards. */
static int64_t reduced_ns(const division *v, int b, way w, bool backward)
{
    if (backward && !v->m->step)
        return 0;
    if (backward ? w == WAY_columns || w == WAY_pair : w == WAY_rows || w == WAY_pair)
        return auto_tensor_ns(
            v->l, SEARCH_allreduce, v->t, backward ? v->in_bytes[b] : v->out_bytes[b]);
    return 0;
}

static nnc_layout_way way_of(const division *v, int b, way w)
{
    const nnc_layer_costs *of = &v->m->cost;
    const int64_t pass[] = {of->forward[b], of->backward[b], of->weight[b]};
    nnc_layout_way x = {
        .in = w == WAY_rows || w == WAY_between, .out = w == WAY_columns || w == WAY_between};
    for (size_t k = 0; k < NNC_COUNT(pass); k++)
        x.cost = nnc_add_sat(x.cost, w == WAY_whole ? pass[k] : part_ns(v, pass[k]));
    x.cost =
        nnc_add_sat(x.cost, nnc_add_sat(reduced_ns(v, b, w, false), reduced_ns(v, b, w, true)));
    return x;
}

static nnc_status prepare(division *v)
{
    nnc_arena *a = v->r->a;
    const int n = v->m->n_block;
    v->b = ARENA_NEW(a, block, n + 1);
    v->in_bytes = ARENA_NEW(a, int64_t, n + 1);
    v->out_bytes = ARENA_NEW(a, int64_t, n + 1);
    v->makes_output = ARENA_NEW(a, bool, n + 1);
    v->n_way = ARENA_NEW(a, int, n + 1);
    v->choice = ARENA_NEW(a, int, n + 1);
    v->way = nnc_arena_alloc(a, (size_t)n + 1, sizeof *v->way);
    v->kind = nnc_arena_alloc(a, (size_t)n + 1, sizeof *v->kind);
    NNC_NEED(v->b && v->in_bytes && v->out_bytes && v->makes_output && v->n_way && v->choice &&
                 v->way && v->kind,
        v->r->sink);
    if (v->t < 2)
        return NNC_OK;
    NNC_TRY(find_blocks(v));
    for (int e = 0; e < v->m->n_edge; e++) {
        const nnc_edge *x = &v->m->edge[e];
        /* Gradients of several contractions are added before one allreduce: query, key, value. */
        bool contracted = false;
        if (x->maker >= 0)
            v->out_bytes[x->maker] = nnc_add_sat(v->out_bytes[x->maker], x->bytes);
        for (int k = 0; k < x->n_user; k++) {
            const int u = x->user[k];
            if (u >= n && x->maker >= 0)
                v->makes_output[x->maker] = true;
            if (u >= n || !v->b[u].depth || contracted)
                continue;
            v->in_bytes[u] = nnc_add_sat(v->in_bytes[u], x->bytes);
            contracted = true;
        }
    }
    for (int b = 0; b < n; b++)
        for (int w = WAY_whole; w <= WAY_pair; w++)
            if (possible(v, b, (way)w)) {
                v->kind[b][v->n_way[b]] = (uint8_t)w;
                v->way[b][v->n_way[b]++] = way_of(v, b, (way)w);
            }
    return NNC_OK;
}

/* Conversions of edges: gathering forwards; taking a part is free forwards and gathers the gradient backwards. */
static nnc_status choose_conversions(
    division *v, int64_t *to_whole, int64_t *to_split, bool *divides)
{
    const nnc_partition_model *m = v->m;
    int64_t total;
    bool exact;
    for (int e = 0; e < m->n_edge; e++) {
        to_whole[e] = auto_tensor_ns(v->l, SEARCH_allgather, v->t, m->edge[e].bytes);
        to_split[e] = m->step ? to_whole[e] : 0;
    }
    const nnc_layout_problem p = {.n_layer = m->n_block,
        .n_edge = m->n_edge,
        .edge = m->edge,
        .to_whole = to_whole,
        .to_split = to_split,
        .n_way = v->n_way,
        .way = (const nnc_layout_way(*)[LAYOUT_WAYS])v->way};
    NNC_TRY(nnc_layout_graph(&p, v->choice, &total, &exact, v->r->sink));
    *divides = false;
    for (int b = 0; b < m->n_block; b++)
        *divides = *divides || v->kind[b][v->choice[b]] != WAY_whole;
    return NNC_OK;
}

/* ---- costs ------------------------------------------------------------------------------------------------ */

static void fill_block(const division *v, int b, int64_t *const *to)
{
    const nnc_layer_costs *of = &v->m->cost;
    const way w = v->t > 1 ? (way)v->kind[b][v->choice[b]] : WAY_whole;
    const bool whole = w == WAY_whole;
    const int64_t t = whole ? 1 : v->t, made = w == WAY_rows ? 1 : t;
    to[0][b] = whole ? of->forward[b] : part_ns(v, of->forward[b]);
    to[1][b] = whole ? of->backward[b] : part_ns(v, of->backward[b]);
    to[2][b] = whole ? of->weight[b] : part_ns(v, of->weight[b]);
    to[3][b] = reduced_ns(v, b, w, false);
    to[4][b] = reduced_ns(v, b, w, true);
    to[5][b] = nnc_ceildiv(of->optimizer[b], t);
    to[6][b] = nnc_ceildiv(of->weights[b], t);
    to[7][b] = nnc_ceildiv(of->gradients[b], t);
    to[8][b] = nnc_ceildiv(of->states[b], t);
    to[9][b] = nnc_ceildiv(of->saved[b], made);
    to[10][b] = nnc_ceildiv(of->working[b], made);
    to[13][b] = nnc_ceildiv(of->accumulate[b], t);
    to[14][b] = of->small[b] / t;
}

static bool out_split(const division *v, int maker)
{
    return v->t > 1 && maker >= 0 && v->way[maker][v->choice[maker]].out;
}

/* Conversions are part of their users' collectives; to[11], to[12]: what is sent and kept over each position. */
static nnc_status fill_edges(
    const division *v, const int64_t *to_whole, const int64_t *to_split, int64_t *const *to)
{
    const nnc_partition_model *m = v->m;
    nnc_edge *sent = ARENA_NEW(v->r->a, nnc_edge, m->n_edge + 1),
             *kept = ARENA_NEW(v->r->a, nnc_edge, m->n_edge + 1);
    NNC_NEED(sent && kept, v->r->sink);
    for (int e = 0; e < m->n_edge; e++) {
        const bool split = out_split(v, m->edge[e].maker);
        for (int k = 0; v->t > 1 && k < m->edge[e].n_user; k++) {
            const int u = m->edge[e].user[k];
            const bool wants = u < m->n_block && v->way[u][v->choice[u]].in;
            if (u < m->n_block && wants != split)
                *(wants ? &to[4][u] : &to[3][u]) += wants ? to_split[e] : to_whole[e];
        }
        sent[e] = kept[e] = m->edge[e];
        sent[e].bytes = nnc_ceildiv(m->edge[e].bytes, v->t);
        kept[e].bytes = split ? sent[e].bytes : m->edge[e].bytes;
    }
    nnc_edges_boundary(sent, m->n_edge, m->n_block, to[11]);
    nnc_edges_boundary(kept, m->n_edge, m->n_block, to[12]);
    return NNC_OK;
}

nnc_status auto_costs(rows *r, const nnc_partition_model *m, const auto_links *l, int tensor,
    nnc_search_costs *out, bool *ok)
{
    division v = {.r = r, .m = m, .l = l, .t = tensor};
    int64_t *to[15], *to_whole = ARENA_NEW(r->a, int64_t, m->n_edge + 1),
                     *to_split = ARENA_NEW(r->a, int64_t, m->n_edge + 1);
    NNC_NEED(to_whole && to_split, r->sink);
    for (size_t k = 0; k < NNC_COUNT(to); k++)
        NNC_NEED(to[k] = ARENA_NEW(r->a, int64_t, m->n_block + 2), r->sink);
    *ok = tensor == 1;
    NNC_TRY(prepare(&v));
    if (tensor > 1)
        NNC_TRY(choose_conversions(&v, to_whole, to_split, ok));
    if (!*ok)
        return NNC_OK;
    for (int b = 0; b < m->n_block; b++)
        fill_block(&v, b, to);
    NNC_TRY(fill_edges(&v, to_whole, to_split, to));
    *out = (nnc_search_costs){.tensor = tensor,
        .size = (int)m->batch,
        .forward = to[0],
        .backward = to[1],
        .weight = to[2],
        .forward_comm = to[3],
        .backward_comm = to[4],
        .optimizer = to[5],
        .weights = to[6],
        .gradients = to[7],
        .states = to[8],
        .saved = to[9],
        .working = to[10],
        .boundary = to[11],
        .input = to[12],
        .accumulate = to[13],
        .small = to[14]};
    return NNC_OK;
}

nnc_status auto_segments(rows *r, const nnc_partition_model *m, bool **out)
{
    int n = 1;
    while (n < m->n_block && n * n < m->n_block)
        n++;
    int *cut = ARENA_NEW(r->a, int, n + 1);
    NNC_NEED(cut && (*out = ARENA_NEW(r->a, bool, m->n_block + 1)), r->sink);
    NNC_TRY(nnc_cut_balance(m->cost.saved, m->n_block, n, cut, r->sink));
    for (int s = 0; s < n; s++)
        (*out)[cut[s]] = true;
    return NNC_OK;
}

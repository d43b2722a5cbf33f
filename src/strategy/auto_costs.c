/* strategy/auto_costs.c -- a model's blocks divided over a tensor group of t devices, as split.c divides graphs. The plan's own
 * micro-batch is split, and others take in proportion. Batches are never split: that is data parallelism. */
#include "strategy/auto.h"
#include "strategy/strategy.h"

/* A device's shares, as nnc_search_costs names them. */
enum {
    C_forward,
    C_backward,
    C_weight,
    C_forward_comm,
    C_backward_comm,
    C_optimizer,
    C_weights,
    C_gradients,
    C_states,
    C_saved,
    C_working,
    C_boundary,
    C_accumulate,
    C_small,
    C__COUNT
};

/* v, which belongs to `was`, for `is` instead; nothing is known of 0. */
static int64_t in_proportion(int64_t v, int64_t is, int64_t was, double otherwise)
{
    return (int64_t)((double)v * (was > 0 ? (double)is / (double)was : otherwise));
}

static int64_t share_of(int64_t v, double share)
{
    return (int64_t)((double)v * share + 0.5);
}

/* Passes of block b, whose backward pass is divided in proportion to its parts on one device. */
static void fill_passes(
    const rows *r, const nnc_partition_model *m, const row_split_cost *s, int b, int64_t *const *to)
{
    const nnc_layer_costs *own = &r->m->cost, *of = &m->cost;
    const double more = (double)m->batch / (double)nnc_max64(r->m->batch, 1);
    const int64_t back = nnc_add_sat(nnc_add_sat(own->backward[b], own->weight[b]),
                      row_adding_ns(r, b, b + 1, r->micro)),
                  all = s->compute.pass[1][b];
    to[C_forward][b] = in_proportion(s->compute.pass[0][b], of->forward[b], own->forward[b], more);
    to[C_backward][b] = in_proportion(all, of->backward[b], back, more);
    to[C_weight][b] = in_proportion(all, of->weight[b], back, 0);
    to[C_forward_comm][b] = (int64_t)((double)s->moves.pass[0][b] * more);
    to[C_backward_comm][b] = (int64_t)((double)s->moves.pass[1][b] * more);
    to[C_accumulate][b] = in_proportion(all, of->accumulate[b], back, 0);
}

static void fill_bytes(
    const rows *r, const nnc_partition_model *m, const row_split_cost *s, int b, int64_t *const *to)
{
    const nnc_layer_costs *own = &r->m->cost, *of = &m->cost;
    to[C_weights][b] = share_of(of->weights[b], s->weights);
    to[C_gradients][b] = share_of(of->gradients[b], s->weights);
    to[C_states][b] = share_of(of->states[b], s->weights);
    to[C_saved][b] = in_proportion(s->saved[b], of->saved[b], own->saved[b], 0);
    to[C_working][b] = in_proportion(s->working[b], of->working[b], own->working[b], 0);
    to[C_small][b] = share_of(of->small[b], s->weights);
}

nnc_status auto_costs(rows *r, const nnc_partition_model *m, int tensor, const row_split_cost *s,
    nnc_search_costs *out)
{
    const nnc_layer_costs *of = &m->cost;
    int64_t *to[C__COUNT], *none = ARENA_NEW(r->a, int64_t, m->n_block + 1);
    NNC_NEED(none, r->sink);
    *out = (nnc_search_costs){.tensor = tensor,
        .size = (int)m->batch,
        .forward = of->forward,
        .backward = of->backward,
        .weight = of->weight,
        .forward_comm = none,
        .backward_comm = none,
        .optimizer = of->optimizer,
        .weights = of->weights,
        .gradients = of->gradients,
        .states = of->states,
        .saved = of->saved,
        .working = of->working,
        .boundary = m->boundary,
        .input = m->boundary,
        .accumulate = of->accumulate,
        .small = of->small};
    if (tensor == 1)
        return NNC_OK;
    for (size_t k = 0; k < NNC_COUNT(to); k++)
        NNC_NEED(to[k] = ARENA_NEW(r->a, int64_t, m->n_block + 2), r->sink);
    const int64_t update = row_range(of->optimizer, 0, m->n_block);
    for (int b = 0; b < m->n_block; b++) {
        fill_passes(r, m, s, b, to);
        fill_bytes(r, m, s, b, to);
        to[C_optimizer][b] = in_proportion(s->once, of->optimizer[b], update, 0);
    }
    for (int b = 0; b <= m->n_block; b++)
        to[C_boundary][b] = nnc_ceildiv(m->boundary[b], tensor);
    out->forward = to[C_forward];
    out->backward = to[C_backward];
    out->weight = to[C_weight];
    out->forward_comm = to[C_forward_comm];
    out->backward_comm = to[C_backward_comm];
    out->optimizer = to[C_optimizer];
    out->weights = to[C_weights];
    out->gradients = to[C_gradients];
    out->states = to[C_states];
    out->saved = to[C_saved];
    out->working = to[C_working];
    out->boundary = to[C_boundary];
    out->accumulate = to[C_accumulate];
    out->small = to[C_small];
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

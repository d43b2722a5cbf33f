/* train/exchange.c -- what replicas send each other once a step: means of gradients and of statistics. With ZeRO's stages 1 and 2, where
 * each updates a part of the weights, also the parts.
 *
 * With nnc_distribution.zero, each of d replicas computes n / d elements of the optimizer's elementwise nodes over vectors of n, and of the
 * states that they update. Gradients are reduce-scattered instead of allreduced, weights sliced. Other nodes (the slices that become new
 * weights) read an allgather. Sums and maxima over such a vector, of a common norm or of what is not finite, are taken over the replica's
 * part first. Then they are combined over the replicas. A reduce-scatter adds in the order of the replicas, as an allreduce does, so that
 * updates have the same bits.
 *
 * At stage 1 each replica sums the gradients of all its batches, and the sums are reduce-scattered. At stage 2 the gradients of each batch
 * are, and the sums are of parts: the states that keep them, and the elementwise nodes between. Sums are in another order then: of all
 * replicas' gradients of a batch, then over the batches. Without sums, of one batch a step, both stages are the same graph. */
#include "train/distribute.h"
#include <string.h>

nnc_ref output_named(const nnc_graph *s, const char *name)
{
    for (uint32_t i = 0; i < nnc_result_outputs(s) && s->output_name; i++)
        if (s->output_name[i] && !strcmp(s->output_name[i], name))
            return s->output[i];
    return NNC_NONE;
}

/* ---- shares -------------------------------------------------------------------------------------------------------------- */

static node_share share_of(const copies *c, nnc_ref v)
{
    return (node_share)c->share[c->s->value[v].node];
}

/* A state that each replica has a part of: a moment, or at stage 2 a sum of gradients. */
static bool is_divided_state(const copies *c, const nnc_node *n)
{
    const nnc_type *t = nnc_typeof(c->s, n->out);
    return n->op == OP_param && (!n->accumulates || c->f.o->zero > 1) && t->rank == 1 &&
           t->dim[0] % c->d == 0;
}

/* An elementwise node of the optimizer over a vector that the replicas share evenly, or a sum of such vectors of a replica's devices. */
static bool is_divided_update(const copies *c, const nnc_node *n)
{
    const nnc_type *t = nnc_typeof(c->s, n->out);
    const bool each = nnc_op_is_ewise((nnc_op)n->op) || n->op == OP_allreduce;
    bool all = each && t->rank == 1 && t->dim[0] % c->d == 0;
    for (int k = 0; k < n->n_in && all; k++) {
        const nnc_type *x = nnc_typeof(c->s, n->in[k]);
        all = !x->rank || (x->rank == 1 && x->dim[0] == t->dim[0]);
    }
    return all;
}

/* The same, which adds the gradients of a micro-batch to a sum of which each replica has a part. */
static bool is_divided_sum(const copies *c, const nnc_node *n)
{
    bool any = false;
    for (int k = 0; k < n->n_in; k++)
        any = any || share_of(c, n->in[k]) == SHARE_part;
    return any && is_divided_update(c, n);
}

nnc_status find_shares(copies *c)
{
    const nnc_graph *s = c->s;
    c->share = ARENA_NEW(c->a, uint8_t, s->n_node + 1);
    NNC_NEED(c->share, c->g->sink);
    for (uint32_t i = 0; i < s->n_node && c->f.o->zero && c->d > 1; i++) {
        const nnc_node *n = &s->node[i];
        const nnc_type *t = nnc_typeof(s, n->out);
        const bool once = c->f.use[i] == USE_once, sum = n->op == OP_reduce_sum,
                   most = n->op == OP_reduce_max;
        if (!in_optimizer(n))
            continue;
        if (is_divided_state(c, n))
            c->share[i] = SHARE_part;
        else if (once && (sum || most) && share_of(c, n->in[0]) == SHARE_part && !t->rank)
            c->share[i] = sum ? SHARE_sum : SHARE_most;
        else if (once ? is_divided_update(c, n) : is_divided_sum(c, n))
            c->share[i] = SHARE_part;
    }
    return NNC_OK;
}

/* ---- buckets ------------------------------------------------------------------------------------------------------------- */

/* Does node i take the mean of v, a vector in f32 that each batch has; or `part`: its part of the mean? Means are taken once a step, parts
 * also of each micro-batch. */
static bool takes_mean(const copies *c, uint32_t i, nnc_ref v, bool part)
{
    const nnc_type *t = nnc_typeof(c->s, v);
    const bool divided = c->share[i] == SHARE_part && share_of(c, v) == SHARE_none;
    return in_optimizer(&c->s->node[i]) && is_of_batch(use_of(c, v)) && t->rank == 1 &&
           t->dtype == DT_f32 && (part ? divided : !c->share[i] && c->f.use[i] == USE_once);
}

/* moves[i]: node i, computed once a run, moves running statistics in runs that accumulate, too, where gradients are not reduced. */
static bool *find_moves(const copies *c)
{
    const nnc_graph *s = c->s;
    bool *moves = ARENA_NEW(c->a, bool, s->n_node + 1);
    for (uint32_t o = nnc_result_outputs(s); moves && o < s->n_output; o++) {
        const nnc_node *state = nnc_def(s, s->output_state[o]);
        if (state->accumulates && !is_gradient_sum(state))
            moves[s->value[s->output[o]].node] = true;
    }
    for (uint32_t i = s->n_node; moves && i-- > 0;) {
        moves[i] = moves[i] && c->f.use[i] == USE_once;
        for (int k = 0; k < s->node[i].n_in && moves[i]; k++)
            moves[s->value[s->node[i].in[k]].node] = true;
    }
    return moves;
}

/* summed[v]: v is a gradient, which the optimizer takes the mean of; or of the nodes that move statistics, one of these. */
static bool *find_summed(const copies *c, const bool *moves, bool statistics, bool part)
{
    const nnc_graph *s = c->s;
    bool *summed = ARENA_NEW(c->a, bool, s->n_value + 1);
    for (uint32_t i = 0; summed && i < s->n_node; i++)
        for (int k = 0; k < s->node[i].n_in; k++)
            if (moves[i] == statistics && takes_mean(c, i, s->node[i].in[k], part))
                summed[s->node[i].in[k]] = true;
    return summed;
}

/* The vector that v, of the statistics of one layer, is a slice of: the optimizer moves many layers' together. Otherwise v. */
static nnc_ref moved_with(const copies *c, nnc_ref v)
{
    const nnc_node *n = nnc_def(c->s, v);
    const bool cut = n->op == OP_slice && nnc_typeof(c->s, n->in[0])->rank == 1 &&
                     is_of_batch(use_of(c, n->in[0]));
    return cut ? n->in[0] : v;
}

/* The same for statistics: also vectors that micro-batches have moved, of which states become the mean. */
static bool *find_statistics(const copies *c, const bool *moves)
{
    const nnc_graph *s = c->s;
    bool *summed = find_summed(c, moves, true, false);
    for (uint32_t i = nnc_result_outputs(s); summed && i < s->n_output; i++) {
        const nnc_ref v = moved_with(c, s->output[i]);
        const nnc_type *t = nnc_typeof(s, v);
        if (is_of_batch(use_of(c, v)) && !is_gradient_sum(nnc_def(s, s->output_state[i])) &&
            t->rank == 1 && t->dtype == DT_f32)
            summed[v] = true;
    }
    return summed;
}

/* Values of one device are in the order in which they are computed. A bucket is full with its bytes; one more would be computed later.
 * small: only of values that the optimizer has no kernel of their own for. */
static void fill_buckets(copies *c, const bool *summed, int64_t most, bool small)
{
    const nnc_graph *s = c->s;
    for (int device = 0; device < c->f.o->devices; device++) {
        nnc_ref first = NNC_NONE, last = NNC_NONE;
        int64_t bytes = 0;
        for (nnc_ref v = 0; v < s->n_value; v++) {
            if (!summed[v] || (c->f.o->devices > 1 && nnc_home(s, v) != device) ||
                (small && nnc_train_updates_alone(nnc_typeof(s, v))))
                continue;
            if (first != NNC_NONE && bytes < most) {
                c->bucket[last] = v;
                c->bucket[v] = first;
            } else {
                first = v;
                bytes = 0;
            }
            last = v;
            bytes = nnc_add_sat(bytes, nnc_type_bytes(nnc_typeof(s, v)));
        }
    }
}

/* Running statistics are a few numbers of each of many layers, so those of a device are always one collective. So are gradients of small
 * weights that the optimizer does not update together (those of 24, 40 or 72 channels). In a step of one batch, statistics are beside
 * them. */
nnc_status find_buckets(copies *c)
{
    const nnc_graph *s = c->s;
    const int64_t most = c->f.o->bucket_bytes;
    c->bucket = ARENA_NEW(c->a, nnc_ref, s->n_value + 1);
    NNC_NEED(c->bucket, c->g->sink);
    memset(c->bucket, 0xff, (s->n_value + 1) * sizeof *c->bucket);
    if (c->d < 2)
        return NNC_OK;
    const bool *moves = find_moves(c);
    NNC_NEED(moves, c->g->sink);
    bool *whole = find_summed(c, moves, false, false);
    NNC_NEED(whole && (c->scattered = find_summed(c, moves, false, true)), c->g->sink);
    for (nnc_ref v = 0; v < s->n_value; v++)
        c->scattered[v] = c->scattered[v] && !whole[v];
    fill_buckets(c, whole, most > 0 ? most : INT64_MAX, most <= 0);
    fill_buckets(c, c->scattered, most > 0 ? most : INT64_MAX, most <= 0);
    NNC_NEED(c->statistic = find_statistics(c, moves), c->g->sink);
    fill_buckets(c, c->statistic, INT64_MAX, false);
    return NNC_OK;
}

/* ---- collectives --------------------------------------------------------------------------------------------------------- */

/* The first of d results of a collective over in[], by replica, on the devices of v. */
static nnc_ref collective(copies *c, nnc_op op, nnc_ref v, const nnc_ref *in, const char *reduction)
{
    nnc_graph *g = c->g;
    int64_t on[NNC_MAX_REPLICAS];
    const int16_t device = g->device;
    const int32_t micro = g->micro;
    for (int i = 0; i < c->d; i++)
        on[i] = device_of(c, nnc_home(c->s, v), i);
    const nnc_attr devices = nnc_av(AT_devices, c->d, on), axis = nnc_ai(AT_axis, 0),
                   how = nnc_aw(AT_reduction, reduction);
    const bool scatters = op == OP_reduce_scatter;
    const nnc_attr reduce[] = {how, devices, axis}, gather[] = {axis, devices};
    g->device = -1;
    g->micro = 0; /* those of all replicas */
    const nnc_ref y = op == OP_allgather ? nnc_build(g, op, c->d, in, 2, gather)
                                         : nnc_build(g, op, c->d, in, scatters ? 3 : 2, reduce);
    g->device = device;
    g->micro = micro;
    return y;
}

/* The same over the values of v, those of micro-batch k. */
static nnc_ref over_replicas(copies *c, nnc_op op, nnc_ref v, int k, const char *reduction)
{
    nnc_ref in[NNC_MAX_REPLICAS];
    for (int i = 0; i < c->d; i++)
        in[i] = *slot(c, v, i, k);
    return collective(c, op, v, in, reduction);
}

/* The micro-batch whose value of v is there when all are done. */
static int last_of(const copies *c, nnc_ref v)
{
    return is_of_batch(use_of(c, v)) ? c->m - 1 : 0;
}

/* in[i]: replica i's values of v's bucket side by side, those of micro-batch k; `matrices`: each has a row for each replica. */
static bool join_bucket(copies *c, nnc_ref v, int k, bool matrices, nnc_ref *in)
{
    nnc_graph *g = c->g;
    const int16_t device = g->device;
    const nnc_attr axis = nnc_ai(AT_axis, matrices);
    nnc_ref *of = need(g, ARENA_NEW(c->a, nnc_ref, c->s->n_value + 1));
    for (int i = 0; of && i < c->d; i++) {
        nnc_ref u = v;
        int n = 0;
        g->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
        do {
            const int64_t dim[] = {c->d, nnc_typeof(c->s, u)->dim[0] / c->d};
            const nnc_ref x = *slot(c, u, i, k);
            of[n++] = matrices ? nnc_reshape(g, x, 2, dim) : x;
        } while ((u = c->bucket[u]) != v);
        in[i] = nnc_build(g, OP_concat, n, of, 1, &axis);
    }
    g->device = device;
    return of != NULL;
}

/* The means of all gradients of v's bucket: one allreduce of them side by side. */
static void sum_bucket(copies *c, nnc_ref v)
{
    nnc_graph *g = c->g;
    const int16_t device = g->device;
    nnc_ref in[NNC_MAX_REPLICAS];
    if (!join_bucket(c, v, c->m - 1, false, in))
        return;
    const nnc_ref sum = collective(c, OP_allreduce, v, in, "add");
    const bool divided =
        c->statistic[v]; /* one kernel for all; gradients are divided by those that update */
    for (int i = 0; i < c->d; i++) {
        g->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
        in[i] = sum == NNC_NONE ? sum : sum + (nnc_ref)i;
        in[i] = sum != NNC_NONE && divided ? number_op(g, OP_div, in[i], c->d) : in[i];
    }
    nnc_ref u = v;
    int64_t from = 0;
    do {
        const int64_t to = from + nnc_typeof(c->s, u)->dim[0];
        for (int i = 0; i < c->d && sum != NNC_NONE; i++) {
            g->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
            const nnc_ref part = nnc_cut(g, in[i], 0, from, to);
            c->mean[(size_t)u * (size_t)c->d + (size_t)i] =
                divided ? part : number_op(g, OP_div, part, c->d);
        }
        from = to;
        u = c->bucket[u];
    } while (u != v);
    g->device = device;
}

/* Divides a sum over the replicas: of[i * stride], i being the replica, becomes the mean. */
static void divide_sum(copies *c, nnc_ref v, nnc_ref sum, nnc_ref *of, int stride)
{
    const int16_t device = c->g->device;
    const int32_t micro = c->g->micro, first = micro > 0 ? micro - (micro - 1) % c->d : 0;
    for (int i = 0; i < c->d; i++) {
        c->g->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
        c->g->micro = first ? first + i : 0;
        of[i * stride] = sum == NNC_NONE ? sum : number_op(c->g, OP_div, sum + (nnc_ref)i, c->d);
    }
    c->g->device = device;
    c->g->micro = micro;
}

static bool is_uneven(copies *c)
{
    if (c->g->status != NNC_OK || output_named(c->s, "counted") == NNC_NONE)
        return c->g->status != NNC_OK; /* said once */
    c->g->status = nnc_fail0(c->g->sink, NNC_E_USAGE,
        "--strategy=data with --ignore-index: the devices' parts of a batch may count "
        "differently many targets, so the mean of their gradients is not that of the batch");
    return true;
}

/* The mean over the replicas of what the last micro-batch has left in v. */
static nnc_ref mean_of(copies *c, nnc_ref v, int r)
{
    nnc_ref *mean = &c->mean[(size_t)v * (size_t)c->d];
    if (c->d == 1)
        return *slot(c, v, 0, c->m - 1);
    if (mean[0] != NNC_NONE || is_uneven(c))
        return mean[r];
    const nnc_ref whole = moved_with(c, v);
    if (whole != v && c->statistic[whole]) {
        for (int i = 0; i < c->d; i++) {
            const nnc_ref all = mean_of(c, whole, i);
            mean[i] = nnc_copy_node(c->g, c->s, nnc_def(c->s, v), &all);
            if (mean[i] != NNC_NONE)
                nnc_def(c->g, mean[i])->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
        }
        return mean[r];
    }
    if (c->bucket[v] != NNC_NONE && !c->scattered[v])
        sum_bucket(c, v);
    else
        divide_sum(c, v, over_replicas(c, OP_allreduce, v, last_of(c, v), "add"), mean, 1);
    return mean[r];
}

/* All of a value of which each replica has computed a part. */
static nnc_ref joined_of(copies *c, nnc_ref v, int r)
{
    nnc_ref *all = &c->mean[(size_t)v * (size_t)c->d];
    const node_share how = share_of(c, v);
    if (all[0] != NNC_NONE)
        return all[r];
    const int k = last_of(c, v);
    const nnc_ref y = how == SHARE_part  ? over_replicas(c, OP_allgather, v, k, NULL)
                      : how == SHARE_sum ? over_replicas(c, OP_allreduce, v, k, "add")
                                         : over_replicas(c, OP_allreduce, v, k, "max");
    for (int i = 0; i < c->d; i++)
        all[i] = y == NNC_NONE ? y : y + (nnc_ref)i;
    return all[r];
}

nnc_ref whole_once(copies *c, nnc_ref v, int r)
{
    if (nnc_def(c->s, v)->op == OP_input)
        return input_part(c, v, r, 0);
    if (share_of(c, v) != SHARE_none)
        return joined_of(c, v, r);
    return is_of_batch(use_of(c, v)) ? mean_of(c, v, r) : *slot(c, v, r, 0);
}

/* Elements [n r / d, n (r + 1) / d). */
static nnc_ref slice_of(copies *c, nnc_ref v, int r)
{
    const int64_t n = nnc_typeof(c->s, v)->dim[0] / c->d;
    const int16_t device = c->g->device;
    nnc_ref all = whole_once(c, v, r);
    c->g->device = (int16_t)device_of(c, nnc_home(c->s, v), r);
    all = nnc_cut(c->g, all, 0, n * r, n * (r + 1));
    c->g->device = device;
    return all;
}

/* Can the bucket of v be scattered for micro-batch k: are all its gradients there, and none scattered by itself? */
static bool is_bucket_there(copies *c, nnc_ref v, int k)
{
    nnc_ref u = v;
    if (c->bucket[v] == NNC_NONE || !c->scattered[v])
        return false;
    do
        for (int i = 0; i < c->d; i++)
            if (*slot(c, u, i, k) == NNC_NONE || *part_slot(c, u, i, k) != NNC_NONE)
                return false;
    while ((u = c->bucket[u]) != v);
    return true;
}

/* The replicas' parts of the mean gradients of v's bucket for micro-batch k. As a matrix, a gradient has a row for each replica. One
 * reduce-scatter gives each its row of all matrices side by side. */
static void scatter_bucket(copies *c, nnc_ref v, int k)
{
    nnc_graph *g = c->g;
    const int16_t device = g->device;
    nnc_ref in[NNC_MAX_REPLICAS];
    if (!join_bucket(c, v, k, true, in))
        return;
    const nnc_ref sum = collective(c, OP_reduce_scatter, v, in, "add");
    for (int i = 0; i < c->d && sum != NNC_NONE; i++) {
        int64_t from = 0;
        nnc_ref u = v;
        g->device = (int16_t)device_of(c, nnc_home(c->s, v), i);
        do {
            const int64_t n = nnc_typeof(c->s, u)->dim[0] / c->d, to = from + n;
            const nnc_ref row = nnc_cut(g, sum + (nnc_ref)i, 1, from, to);
            const nnc_ref part = nnc_reshape(g, row, 1, &n);
            *part_slot(c, u, i, k) = number_op(g, OP_div, part, c->d);
            from = to;
        } while ((u = c->bucket[u]) != v);
    }
    g->device = device;
}

/* Replica r's part of a vector that all of them have, or of the mean of their vectors for micro-batch k. */
static nnc_ref divided(copies *c, nnc_ref v, int r, int k)
{
    nnc_ref *part = part_slot(c, v, r, k);
    if (*part != NNC_NONE)
        return *part;
    if (!is_of_batch(use_of(c, v)))
        return *part = slice_of(c, v, r);
    if (is_uneven(c))
        return *part;
    if (is_bucket_there(c, v, k))
        scatter_bucket(c, v, k);
    else
        divide_sum(
            c, v, over_replicas(c, OP_reduce_scatter, v, k, "add"), part_slot(c, v, 0, k), c->m);
    return *part;
}

nnc_ref part_once(copies *c, nnc_ref v, int r)
{
    if (!nnc_typeof(c->s, v)->rank)
        return whole_once(c, v, r);
    const int k = last_of(c, v);
    return share_of(c, v) == SHARE_part ? *slot(c, v, r, k) : divided(c, v, r, k);
}

nnc_ref part_at(copies *c, nnc_ref v, int r, int k)
{
    const bool whole = !nnc_typeof(c->s, v)->rank || share_of(c, v) == SHARE_part;
    return whole ? value_at(c, v, r, k) : divided(c, v, r, is_of_batch(use_of(c, v)) ? k : 0);
}

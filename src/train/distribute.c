/* train/distribute.c -- replicas and micro-batches: the step (or evaluation, or inference) of one batch becomes one of several batches.
 *
 * Each replica has a copy of the states on devices of its own, as many as the step is placed on. A micro-batch has a copy of the forward
 * and the backward pass in each replica. A run takes the batches of all, one after the other: those of the replicas for micro-batch 0, for
 * micro-batch 1, ... States that accumulate, the sums of gradients and the running statistics, pass from micro-batch to micro-batch. They
 * pass from run to run in the same way if batches are accumulated (nnc_training.accumulate), so all numbers have the same bits. Then comes
 * the optimizer, once.
 *
 * Where gradients go into the optimizer, they are replaced by their mean over the replicas (exchange.c): an allreduce, and a division, once
 * a step. So all copies of a weight are updated alike. For losses that are means over the samples the step is that of one device with the
 * whole batch, up to rounding. Batch norms use the statistics of their own batch, as PyTorch's do without SyncBatchNorm. Running statistics
 * move by the mean over the replicas, so that these are alike, too.
 *
 * Gradients that the optimizer updates in one kernel (optimizer.c: side by side in one tensor) are in one allreduce. With ZeRO's stage 2
 * the gradients of each micro-batch are reduce-scattered, and their sums are of the replica's part.
 *
 * Nodes are copied task after task (tasks.c), and the copies carry their tasks' numbers: the planner keeps their order on each device. */
#include "train/distribute.h"
#include <assert.h>
#include <string.h>

/* ---- inputs -------------------------------------------------------------------------------------------------------------- */

/* Is the scalar input different for each micro-batch? */
static bool is_key(const copies *c, nnc_ref v)
{
    const char *name = c->s->value[v].name;
    return name && !strcmp(name, NNC_TRAIN_KEY);
}

static bool is_divided(const copies *c, nnc_ref v)
{
    const bool *whole = c->f.o->whole;
    return nnc_typeof(c->s, v)->rank && !(whole && whole[c->s->value[v].node]);
}

/* The input of all replicas and micro-batches, on the device that reads it first. */
static void add_input(copies *c, uint32_t i)
{
    const nnc_node *n = &c->s->node[i];
    nnc_graph *g = c->g;
    nnc_type t = *nnc_typeof(c->s, n->out);
    if (is_divided(c, n->out))
        t.dim[0] = nnc_mul_sat(t.dim[0], c->d * c->m);
    else if (is_key(c, n->out) && c->m > 1)
        t = nnc_type_make((nnc_dtype)t.dtype, 1, &(int64_t){c->m});
    g->device = 0;
    for (uint32_t u = c->s->n_node; u-- > i + 1 && t.rank;)
        for (int k = 0; k < c->s->node[u].n_in; k++)
            if (c->s->node[u].in[k] == n->out)
                g->device = (int16_t)device_of(c, c->s->node[u].device, 0);
    g->origin = n->origin;
    g->loc = n->loc;
    c->whole[n->out] = nnc_input(g, c->s->value[n->out].name, &t);
}

/* Rows [from, to) of an input, which are taken where it is: to other devices go these rows only. */
static nnc_ref rows_of(nnc_graph *g, nnc_ref all, int64_t from, int64_t to)
{
    g->device = nnc_def(g, all)->device;
    return nnc_cut(g, all, 0, from, to);
}

/* A replica's part of an input for a micro-batch. Numbers are the same for all; but dropouts differ. */
nnc_ref input_part(copies *c, nnc_ref v, int r, int k)
{
    nnc_graph *g = c->g;
    nnc_ref *to = slot(c, v, r, k);
    const nnc_type t = *nnc_typeof(c->s, v);
    if (*to != NNC_NONE)
        return *to;
    const char *origin = g->origin;
    const int16_t device = g->device;
    g->origin = nnc_def(c->s, v)->origin;
    *to = c->whole[v];
    if (is_divided(c, v)) {
        const int64_t each = t.dim[0], at = k * c->d + r;
        if (c->d * c->m > 1)
            *to = rows_of(g, *to, each * at, each * (at + 1));
    } else if (is_key(c, v)) {
        if (c->m > 1)
            *to = nnc_reshape(g, rows_of(g, *to, k, k + 1), 0, NULL);
        if (r)
            *to = number_op(g, OP_bit_xor, *to, (double)(uint32_t)nnc_hash64(&r, sizeof r, 0));
    }
    g->origin = origin;
    g->device = device;
    return *to;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

/* Where the step is one of several runs, the first micro-batch takes the states' values. */
static bool continues(const copies *c)
{
    return c->f.o->batches > 1;
}

nnc_ref value_at(copies *c, nnc_ref v, int r, int k)
{
    const nnc_node *n = nnc_def(c->s, v);
    const nnc_ref next = c->f.chain[v] != NNC_NONE ? c->f.chain[v] : c->f.update[v];
    if (n->op == OP_input)
        return input_part(c, v, r, k);
    if (next != NNC_NONE && c->m > 1 && k > 0)
        return *slot(c, next, r, k - 1);
    return *slot(c, v, r, is_of_batch(use_of(c, v)) ? k : 0);
}

/* A copy's own name: states of several replicas differ in it. */
static void set_name(copies *c, nnc_ref was, nnc_ref now, int r)
{
    const char *name = c->s->value[was].name;
    const char *own = name && r ? nnc_arena_printf(c->a, "%s.device%d", name, r) : NULL;
    if (name && r && !own)
        c->g->status = nnc_nomem(c->g->sink);
    if (own && now != NNC_NONE)
        nnc_set_name(c->g, now, own);
}

/* Operand j of node n's copy for micro-batch k. */
static nnc_ref operand_at(copies *c, const nnc_node *n, int j, int r, int k)
{
    const bool part = c->share[c->s->value[n->out].node] == SHARE_part;
    return part ? part_at(c, n->in[j], r, k) : value_at(c, n->in[j], r, k);
}

/* first ? gradient : sum + gradient. Returns the operand that is known here to be chosen; NNC_NONE otherwise. */
static nnc_ref sum_known(copies *c, const nnc_node *n, int r, int k)
{
    if (n->op != OP_select || c->f.first == NNC_NONE || n->in[0] != c->f.first || c->m == 1)
        return NNC_NONE;
    if (!k && continues(c))
        return NNC_NONE;
    return operand_at(c, n, k ? 2 : 1, r, k);
}

/* The copy of a collective among the devices of replica r. */
static nnc_ref copied_collective(copies *c, const nnc_node *n, int r, const nnc_ref *in)
{
    nnc_node own = *n;
    const nnc_attr *had = nnc_attr_find(n, AT_devices);
    nnc_attr *attr = ARENA_NEW(c->a, nnc_attr, n->n_attr + 1);
    int64_t *on = ARENA_NEW(c->a, int64_t, n->n_in + 1);
    if (!attr || !on) {
        c->g->status = nnc_nomem(c->g->sink);
        return NNC_NONE;
    }
    own.attr = attr;
    own.n_attr = 0;
    for (int k = 0; k < n->n_attr; k++)
        if (&n->attr[k] != had)
            attr[own.n_attr++] = n->attr[k];
    for (int k = 0; k < n->n_in; k++)
        on[k] = device_of(c, nnc_home(c->s, n->out + (nnc_ref)k), r);
    attr[own.n_attr++] = nnc_av(AT_devices, n->n_in, on);
    return nnc_copy_node(c->g, c->s, &own, in);
}

static nnc_ref copied(copies *c, uint32_t i, int r, const nnc_ref *in)
{
    const nnc_node *n = &c->s->node[i];
    if (nnc_op_class((nnc_op)n->op) == CL_collective)
        return copied_collective(c, n, r, in);
    if (c->share[i] != SHARE_part || n->op != OP_param)
        return nnc_copy_node(c->g, c->s, n, in);
    nnc_type t = *nnc_typeof(c->s, n->out);
    t.dim[0] /= c->d;
    return nnc_param(c->g, &t, n->weight);
}

/* The copy of node i for a replica and a micro-batch (or once), whose task is g->task. */
static void copy_node(copies *c, uint32_t i, int r, int k, bool once)
{
    const nnc_node *n = &c->s->node[i];
    nnc_graph *g = c->g;
    nnc_ref known = once ? NNC_NONE : sum_known(c, n, r, k);
    NNC_FREED nnc_ref *in = nnc_malloc(((size_t)n->n_in + 1) * sizeof *in);
    if (!in)
        g->status = nnc_nomem(g->sink);
    g->origin = n->origin;
    g->loc = n->loc;
    const bool part = c->share[i] != SHARE_none;
    for (int j = 0; in && j < n->n_in && known == NNC_NONE; j++)
        in[j] = !once  ? operand_at(c, n, j, r, k)
                : part ? part_once(c, n->in[j], r)
                       : whole_once(c, n->in[j], r);
    if (g->status != NNC_OK)
        return;
    if (known != NNC_NONE) {
        *slot(c, n->out, r, k) = known;
        return;
    }
    const nnc_ref v = copied(c, i, r, in);
    if (v == NNC_NONE)
        return;
    nnc_node *x = nnc_def(g, v);
    if (nnc_op_class((nnc_op)n->op) != CL_collective)
        x->device = (int16_t)device_of(c, n->device, r);
    x->task = g->task;
    x->micro = g->micro;
    x->frozen = n->frozen;
    set_name(c, n->out, v, r);
    for (uint32_t o = 0; o < n->n_out; o++)
        *slot(c, n->out + o, r, k) = v + o;
}

/* Copies nodes for which the same is computed once. */
static void copy_uses(copies *c, node_use use)
{
    c->g->task = -1;
    for (uint32_t i = 0; i < c->s->n_node && c->g->status == NNC_OK; i++) {
        const nnc_node *n = &c->s->node[i];
        if (c->f.use[i] != use)
            continue;
        if (n->op == OP_input)
            add_input(c, i);
        for (int r = 0; r < c->d && n->op != OP_input; r++)
            copy_node(c, i, r, 0, true);
    }
}

typedef struct item {
    uint32_t node;
    int micro;
} item;

/* States side by side, which later micro-batches have as a value. */
static bool is_passed_on(const copies *c, uint32_t i, int k)
{
    return k > 0 && c->f.chain[c->s->node[i].out] != NNC_NONE;
}

/* The nodes of all micro-batches in the order of their tasks; without tasks, micro-batch after micro-batch. */
static item *in_order(copies *c, size_t *n)
{
    const step_facts *f = &c->f;
    const size_t m = (size_t)c->m;
    size_t *at = ARENA_NEW(c->a, size_t, f->n_rank + 2);
    for (uint32_t i = 0; at && i < c->s->n_node; i++)
        for (size_t k = 0; k < m && is_of_batch((node_use)f->use[i]); k++)
            at[f->rank ? f->rank[i * m + k] + 1 : 1] += !is_passed_on(c, i, (int)k);
    for (int32_t r = 0; at && r <= f->n_rank; r++)
        at[r + 1] += at[r];
    *n = at ? at[f->n_rank + 1] : 0;
    item *all = at ? ARENA_NEW(c->a, item, *n + 1) : NULL;
    for (size_t k = 0; all && k < m; k++)
        for (uint32_t i = 0; i < c->s->n_node; i++)
            if (is_of_batch((node_use)f->use[i]) && !is_passed_on(c, i, (int)k))
                all[at[f->rank ? f->rank[i * m + k] : 0]++] = (item){i, (int)k};
    return all;
}

static void copy_batches(copies *c)
{
    size_t n;
    const item *all = need(c->g, in_order(c, &n));
    for (size_t i = 0; i < n && c->g->status == NNC_OK; i++)
        for (int r = 0; r < c->d; r++) {
            c->g->task = c->f.rank
                             ? c->f.rank[(size_t)all[i].node * (size_t)c->m + (size_t)all[i].micro]
                             : -1;
            c->g->micro = c->d * c->m > 1 ? 1 + all[i].micro * c->d + r : 0;
            copy_node(c, all[i].node, r, all[i].micro, false);
        }
    c->g->task = -1;
    c->g->micro = 0;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------- */

static nnc_ref sum_of(nnc_graph *g, int n, const nnc_ref *v)
{
    nnc_ref y = v[0];
    for (int d = 1; d < n; d++)
        y = nnc_build2(g, OP_add, y, v[d]);
    return y;
}

/* The values of a micro-batch on all replicas. */
static void on_replicas(const copies *c, nnc_ref v, int k, nnc_ref *out)
{
    for (int r = 0; r < c->d; r++)
        out[r] = *slot(c, v, r, k);
}

/* The mean of the replicas' losses: each is a mean over its targets, or over those that count. */
static nnc_ref mean_loss(copies *c, const nnc_ref *loss, int k)
{
    nnc_graph *g = c->g;
    const nnc_ref counted = output_named(c->s, "counted");
    nnc_ref sum = NNC_NONE, n[NNC_MAX_REPLICAS] = {0};
    if (c->d == 1)
        return loss[0];
    if (counted == NNC_NONE)
        return number_op(g, OP_div, sum_of(g, c->d, loss), c->d);
    assert(c->d > 1);
    on_replicas(c, counted, k, n);
    for (int r = 0; r < c->d; r++) {
        const nnc_ref own = nnc_build2(g, OP_mul, loss[r], n[r]);
        sum = r ? nnc_build2(g, OP_add, sum, own) : own;
    }
    return nnc_build2(g, OP_div, sum, number_op(g, OP_max, sum_of(g, c->d, n), 1));
}

/* Numbers of micro-batches, counts being sums over the replicas: a vector of them; of tensors all rows. */
static void add_output(copies *c, uint32_t i)
{
    nnc_graph *g = c->g;
    const nnc_ref v = c->s->output[i];
    const bool number = !nnc_typeof(c->s, v)->rank, loss = v == output_named(c->s, "loss");
    const int n = number ? c->m : c->m * c->d;
    nnc_ref *part = need(g, ARENA_NEW(c->a, nnc_ref, n + 1)), of[NNC_MAX_REPLICAS] = {0};
    assert(c->d > 0);
    g->device = (int16_t)device_of(c, nnc_home(c->s, v), 0);
    g->origin = number ? "/loss" : nnc_def(c->s, v)->origin;
    g->loc = nnc_def(c->s, v)->loc;
    for (int k = 0; part && k < c->m; k++) {
        on_replicas(c, v, is_of_batch(use_of(c, v)) ? k : 0, of);
        for (int r = 0; r < c->d && !number; r++)
            part[k * c->d + r] = of[r];
        if (number)
            part[k] = loss ? mean_loss(c, of, k) : sum_of(g, c->d, of);
        if (number && c->m > 1)
            part[k] = nnc_reshape(g, part[k], 1, &(int64_t){1});
    }
    g->task = c->m > 1 && c->f.rank ? c->f.n_rank
                                    : -1; /* after all tasks: they are of the same section */
    if (part && g->status == NNC_OK)
        nnc_output(g, nnc_concat(g, n, part, 0), c->s->output_name ? c->s->output_name[i] : NULL);
    g->task = -1;
}

static void add_update(copies *c, uint32_t i)
{
    const nnc_graph *s = c->s;
    const nnc_ref state = s->output_state[i], value = s->output[i];
    const nnc_node *n = nnc_def(s, state);
    const bool sum = is_gradient_sum(n);
    if (sum && c->m > 1 && !continues(c))
        return;
    c->g->origin = nnc_def(s, value)->origin;
    c->g->loc = nnc_def(s, value)->loc;
    for (int r = 0; r < c->d && c->g->status == NNC_OK; r++) {
        const bool part = c->share[s->value[state].node] == SHARE_part;
        const nnc_ref v = sum    ? *slot(c, value, r, c->m - 1)
                          : part ? part_once(c, value, r)
                                 : whole_once(c, value, r);
        const bool accumulates = n->accumulates && (c->m == 1 || continues(c));
        (accumulates ? nnc_accumulate : nnc_update)(c->g, *slot(c, state, r, 0), v);
    }
}

/* ---- together ------------------------------------------------------------------------------------------------------------ */

static nnc_status distribute(copies *c)
{
    const nnc_graph *s = c->s;
    NNC_TRY(find_step_facts(&c->f));
    NNC_TRY(find_shares(c));
    NNC_TRY(find_buckets(c));
    copy_uses(c, USE_shared);
    copy_batches(c);
    copy_uses(c, USE_once);
    for (uint32_t i = 0; i < s->n_output && c->g->status == NNC_OK; i++)
        if (i < nnc_result_outputs(s))
            add_output(c, i);
        else
            add_update(c, i);
    NNC_TRY(c->g->status);
    NNC_TRY(nnc_graph_tidy(c->g));
    return nnc_verify(c->g, c->g->sink);
}

static nnc_status check_options(const nnc_distribution *o, nnc_sink *sink)
{
    if (o->replicas < 1 || o->replicas > NNC_MAX_REPLICAS || o->devices < 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "%d replicas of %d device%s: expected 1 to %d replicas (--strategy=data has one on "
            "each of --devices)",
            o->replicas, o->devices, o->devices == 1 ? "" : "s", NNC_MAX_REPLICAS);
    if (o->micro < 1 || o->batches < 1)
        return nnc_fail0(sink, NNC_E_USAGE, "a step of %d micro-batches", o->micro);
    return NNC_OK;
}

nnc_status nnc_distribute(
    const nnc_graph *step, const nnc_distribution *o, nnc_graph **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    *out = NULL;
    NNC_TRY(check_options(o, sink));
    const size_t values = (size_t)step->n_value + 1, replicas = (size_t)o->replicas,
                 slots = values * replicas * (size_t)o->micro;
    copies c = {.f = {.s = step, .o = o, .a = &a, .sink = sink},
        .s = step,
        .g = nnc_graph_create(step->name, sink),
        .d = o->replicas,
        .m = o->micro,
        .map = ARENA_NEW(&a, nnc_ref, slots),
        .mean = ARENA_NEW(&a, nnc_ref, values * replicas),
        .part = ARENA_NEW(&a, nnc_ref, slots),
        .whole = ARENA_NEW(&a, nnc_ref, values),
        .a = &a};
    if (!c.g || !c.map || !c.mean || !c.part || !c.whole) {
        nnc_graph_destroy(c.g);
        return nnc_nomem(sink);
    }
    memset(c.map, 0xff, slots * sizeof *c.map);
    memset(c.mean, 0xff, values * replicas * sizeof *c.mean);
    memset(c.part, 0xff, slots * sizeof *c.part);
    const nnc_status s = distribute(&c);
    if (s)
        nnc_graph_destroy(c.g);
    else
        *out = c.g;
    return s;
}

nnc_status nnc_replicate(const nnc_graph *step, int n, int devices, nnc_graph **out, nnc_sink *sink)
{
    const nnc_distribution o = {
        .replicas = n, .micro = 1, .batches = 1, .devices = devices, .stages = devices};
    return nnc_distribute(step, &o, out, sink);
}

/* strategy/split.c -- strategies that split ops: tensor, channel, spatial. The pass splits the model, whose nodes are the tasks
 * (split_tasks.c); a device holds its share of a block's memory. */
#include "session/session.h"
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"
#include <math.h>
#include <string.h>

typedef struct shares {
    rows *r;
    nnc_strategy strategy;
    const nnc_graph *g; /* split */
    const bool *fixed; /* by value of g */
    int n;
    double *memory; /* by block and device: of the block's results' bytes on one device */
    int64_t *weights; /* by device */
    row_tasks t;
    row_split_cost *cost; /* also filled, by block; NULL: not asked for */
    nnc_arena *a;
} shares;

static double result_bytes(const nnc_graph *g, const nnc_node *x)
{
    double bytes = 0;
    for (uint32_t k = 0; k < x->n_out && !nnc_is_view(g, x); k++)
        bytes += (double)nnc_type_bytes(nnc_typeof(g, x->out + k));
    return bytes;
}

/* Adds results of the nodes of g to memory[block * n + device]. */
static void add_nodes(const rows *r, const nnc_graph *g, const bool *fixed, int n, double *memory)
{
    int last = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        const nnc_class cls = nnc_op_class((nnc_op)x->op);
        if (cls == CL_leaf || cls == CL_collective || fixed[x->out])
            continue;
        const int b = row_block_of(r->m, x->origin, last),
                  d = x->device < 0 || n == 1 ? 0 : x->device;
        if (b < 0)
            continue;
        last = r->m->first[b];
        memory[b * n + d] += result_bytes(g, x);
    }
}

/* Weights that a device reads, by itself or through what is computed of weights. */
static nnc_status add_weights(shares *s)
{
    uint64_t *reads = ARENA_NEW(s->a, uint64_t, s->g->n_value + 1);
    NNC_NEED(reads, s->r->sink);
    for (uint32_t i = s->g->n_node; i-- > 0;) {
        const nnc_node *x = &s->g->node[i];
        for (int k = 0; k < x->n_in; k++)
            if (s->fixed[x->in[k]])
                reads[x->in[k]] |= s->fixed[x->out]
                                       ? reads[x->out]
                                       : UINT64_C(1) << (x->device < 0 ? 0 : x->device);
        for (int d = 0; x->op == OP_param && d < s->n; d++)
            s->weights[d] += reads[x->out] >> d & 1 ? nnc_type_bytes(nnc_typeof(s->g, x->out)) : 0;
    }
    return NNC_OK;
}

static double share(const double *of, const double *whole, int n, int b, int d)
{
    return whole[b] > 0 ? of[b * n + d] / whole[b] : d == 0;
}

/* Part of a block's bytes that device d holds: in proportion to its results. Halos and gathered parts, by which all devices' results exceed
 * one device's, count once. */
static int64_t held(int64_t bytes, const double *of, const double *whole, int n, int b, int d)
{
    const double more = of[b * n + d] - whole[b];
    const double all = (double)bytes * share(of, whole, n, b, d);
    return (int64_t)(more > 0 && bytes > 0 ? fmin(all, (double)bytes + more) : all);
}

/* Memory of the devices, and their updates. whole: of one device. */
static nnc_status fill(shares *s, nnc_partition_row *row, const double *memory, int64_t weights)
{
    rows *r = s->r;
    const nnc_partition_model *m = r->m;
    for (int d = 0; d < s->n; d++) {
        const double part = weights ? (double)s->weights[d] / (double)weights : 0;
        nnc_device_use *u = &row->use[d];
        const int64_t *const of[] = {m->cost.weights, m->cost.gradients, m->cost.states};
        for (int k = 0; k < 3; k++)
            u->fill[k] = (int64_t)((double)row_range(of[k], 0, m->n_block) * part);
        for (int b = 0; b < m->n_block; b++) {
            const int64_t saved = held(m->cost.saved[b], s->memory, memory, s->n, b, d),
                          working = held(m->cost.working[b], s->memory, memory, s->n, b, d);
            u->fill[FILLED_saved] += saved;
            u->fill[FILLED_working] = nnc_max64(u->fill[FILLED_working], working);
            if (s->cost && !d) {
                s->cost->saved[b] = saved;
                s->cost->working[b] = working;
            }
        }
        if (s->cost)
            s->cost->weights = fmax(s->cost->weights, part);
        (void)row_task_compute(&s->t, d, WORK_update, -1,
            (int64_t)((double)row_range(m->cost.optimizer, 0, m->n_block) * part));
        NNC_NEED(u->layers = row_layers(r, NULL, 0, m->n_block), r->sink);
    }
    return NNC_OK;
}

static int64_t weight_bytes(const nnc_graph *g)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        bytes += g->node[i].op == OP_param ? nnc_type_bytes(nnc_typeof(g, g->node[i].out)) : 0;
    return bytes;
}

/* The model as if nothing was placed. NULL: out of memory. */
static nnc_graph *unplaced(const rows *r)
{
    nnc_graph *g = nnc_graph_clone(r->t->graph, r->sink);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        g->node[i].device = -1;
    return g;
}

/* The graph of a micro-batch of a step with its backward pass, whole or split, as gradients of whole weights are summed, too. *own NULL:
 * there is no step. */
static nnc_status micro_batch(const rows *r, const nnc_compile_options *split, nnc_graph **own)
{
    const nnc_partition_table *t = r->t;
    *own = NULL;
    if (!t->training || !r->m->step)
        return NNC_OK;
    nnc_training training = *t->training;
    training.accumulate = 1; /* micro-batches take its place */
    NNC_OWNED(nnc_graph) *g = unplaced(r);
    NNC_NEED(g, r->sink);
    if (split)
        nnc_split_training(&training, split);
    return nnc_train_graph(g, &training, own, r->sink);
}

/* Time of one device's blocks for each nanosecond of their nodes, forwards and backwards. A block without nodes that take time, since
 * others' kernels compute them, has its time in all factors. */
static nnc_status find_factors(rows *r, double *factor[2], bool *pieces)
{
    const nnc_layer_costs *of = &r->m->cost;
    double all[2] = {0, 0}, found[2] = {0, 0};
    NNC_OWNED(nnc_graph) *step = NULL;
    NNC_TRY(micro_batch(r, NULL, &step));
    NNC_TRY(row_node_times(r, step ? step : r->t->graph, factor, pieces));
    for (int k = 0; k < 2; k++) {
        for (int b = 0; b < r->m->n_block; b++) {
            const int64_t back = nnc_add_sat(
                nnc_add_sat(of->backward[b], of->weight[b]), row_adding_ns(r, b, b + 1, r->micro));
            const double ns = (double)(k ? back : of->forward[b]);
            all[k] += ns;
            found[k] += factor[k][b] > 0 ? ns : 0;
            factor[k][b] = factor[k][b] > 0 ? ns / factor[k][b] : 1;
        }
        for (int b = 0; b < r->m->n_block && found[k] > 0; b++)
            factor[k][b] *= all[k] / found[k];
    }
    return NNC_OK;
}

/* Sums of the gradients of weights that several devices have copies of: once a step. */
static void add_sums(shares *s, const nnc_graph *step)
{
    int device[NNC_MAX_DEVICES];
    for (uint32_t i = 0; step && i < step->n_node; i++) {
        const nnc_node *x = &step->node[i];
        if (x->op != OP_allreduce || x->n_in > NNC_MAX_DEVICES || !x->origin ||
            strcmp(x->origin, NNC_TRAIN_OPTIMIZER) != 0)
            continue;
        const int64_t bytes = nnc_type_bytes(nnc_typeof(step, x->out));
        for (int k = 0; k < x->n_in; k++)
            device[k] = nnc_home(step, x->out + (nnc_ref)k);
        (void)row_task_move(&s->t,
            (row_task){.collective = true,
                .all = true,
                .micro = -1,
                .ns = nnc_links_allreduce(&s->r->links, device, x->n_in, bytes),
                .bytes = bytes,
                .name = "sum gradients"},
            -1);
    }
}

/* A micro-batch, and what is done once. */
static nnc_status add_tasks(shares *s)
{
    rows *r = s->r;
    const nnc_compile_options o = {.devices = s->n, .strategy = nnc_strategy_names[s->strategy]};
    double *factor[2];
    bool *pieces = ARENA_NEW(r->a, bool, r->m->n_block + 1);
    NNC_OWNED(nnc_graph) *step = NULL;
    for (int k = 0; k < 2; k++)
        NNC_NEED(pieces && (factor[k] = ARENA_NEW(r->a, double, r->m->n_block + 1)), r->sink);
    NNC_TRY(find_factors(r, factor, pieces));
    NNC_TRY(micro_batch(r, &o, &step));
    row_graph g = {step ? step : s->g, {factor[0], factor[1]}, pieces};
    if (s->cost) {
        g.compute = s->cost->compute;
        g.moves = s->cost->moves;
    }
    s->t.repeat = r->micro;
    s->t.each = 1;
    s->t.lane = "transfers";
    NNC_TRY(row_add_graph(r, &g, &s->t));
    row_tasks_meet(&s->t);
    add_sums(s, step);
    return NNC_OK;
}

static nnc_status make_tasks(
    rows *r, nnc_partition_row *row, const nnc_graph *split, row_split_cost *cost, shares *s)
{
    const size_t b = (size_t)r->m->n_block + 1, n = (size_t)r->n;
    const nnc_graph *g = r->t->graph;
    *s = (shares){.r = r,
        .strategy = row->id,
        .g = split,
        .n = r->n,
        .fixed = nnc_static_values(split, r->a),
        .memory = ARENA_NEW(r->a, double, b *n),
        .weights = ARENA_NEW(r->a, int64_t, n),
        .cost = cost,
        .a = r->a};
    double *memory = ARENA_NEW(r->a, double, b);
    const bool *fixed = nnc_static_values(g, r->a);
    NNC_NEED(s->fixed && s->memory && s->weights && memory && fixed, r->sink);
    NNC_TRY(row_tasks_make(r, r->n, &s->t));
    add_nodes(r, g, fixed, 1, memory);
    add_nodes(r, split, s->fixed, r->n, s->memory);
    NNC_TRY(add_weights(s));
    NNC_TRY(add_tasks(s));
    return fill(s, row, memory, weight_bytes(g));
}

/* The model, split over n devices; *why: it cannot be. */
static nnc_status split_model(
    rows *r, nnc_strategy strategy, int n, nnc_graph **out, const char **why)
{
    const nnc_compile_options o = {.devices = n, .strategy = nnc_strategy_names[strategy]};
    nnc_split_cost cost = {0};
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    *out = unplaced(r);
    *why = NULL;
    NNC_NEED(*out && own, r->sink);
    const nnc_status st = nnc_split_graph(&o, r->m->step, out, &cost, NULL, own);
    if (st != NNC_E_USAGE && st != NNC_E_MODEL) {
        if (!st && !cost.n_split)
            *why = "no layer has enough features, channels or rows for the devices";
        return st;
    }
    const nnc_diag *d = nnc_sink_at(own, 0);
    NNC_NEED(*why = nnc_arena_strdup(r->a, d ? d->message : "cannot be split"), r->sink);
    return NNC_OK;
}

/* Scales computing and transfers, which overlap, so that together they take ns. */
static void scale(const rows *r, const row_split_cost *of, int64_t ns)
{
    int64_t *const v[] = {
        of->compute.pass[0], of->compute.pass[1], of->moves.pass[0], of->moves.pass[1]};
    int64_t all = 0;
    for (size_t k = 0; k < NNC_COUNT(v); k++)
        all = nnc_add_sat(all, row_range(v[k], 0, r->m->n_block));
    for (size_t k = 0; k < NNC_COUNT(v) && all > 0; k++)
        for (int b = 0; b < r->m->n_block; b++)
            v[k][b] = (int64_t)((double)v[k][b] * ((double)ns / (double)all));
}

nnc_status row_split_costs(
    const rows *r, nnc_strategy strategy, int n, row_split_cost *out, bool *ok)
{
    rows sub = *r;
    nnc_partition_row row = {.id = strategy, .use = ARENA_NEW(r->a, nnc_device_use, n)};
    NNC_OWNED(nnc_graph) *g = NULL;
    shares s;
    int64_t micro, all = 0,
                   **const v[] = {&out->compute.pass[0], &out->compute.pass[1], &out->moves.pass[0],
                       &out->moves.pass[1], &out->saved, &out->working};
    *out = (row_split_cost){0};
    for (size_t k = 0; k < NNC_COUNT(v); k++)
        NNC_NEED(*v[k] = ARENA_NEW(r->a, int64_t, r->m->n_block + 1), r->sink);
    NNC_NEED(row.use, r->sink);
    sub.n = n;
    NNC_TRY(split_model(&sub, strategy, n, &g, &row.why_not));
    *ok = !row.why_not;
    if (!*ok)
        return NNC_OK;
    NNC_TRY(make_tasks(&sub, &row, g, out, &s));
    NNC_TRY(row_tasks_time(&s.t, &micro, &all));
    out->once = nnc_max64(all - r->micro * micro, 0);
    scale(r, out, micro);
    return NNC_OK;
}

nnc_status row_split(rows *r, nnc_partition_row *row)
{
    if (r->n > NNC_MAX_DEVICES) {
        row->why_not = "splits are planned for at most 64 devices";
        return NNC_OK;
    }
    if (!r->t->graph)
        return nnc_fail0(r->sink, NNC_E_BUG, "a table of strategies without the model's graph");
    NNC_OWNED(nnc_graph) *g = NULL;
    shares s;
    NNC_TRY(split_model(r, row->id, r->n, &g, &row->why_not));
    if (row->why_not)
        return NNC_OK;
    NNC_TRY(make_tasks(r, row, g, NULL, &s));
    NNC_TRY(row_tasks_run(&s.t, row));
    row_executes(r, row, (nnc_partition_way){.runs = r->micro, .strategy = row->id});
    return row_finish(r, row);
}

/* api/partition_split.c -- strategies that split ops: tensor, channel, spatial. The pass splits the model; a block takes its share of the
 * block's time, by the roofline of its ops' parts; what devices send each other is exposed, since ops wait for it. */
#include "api/partition_row.h"
#include <string.h>

typedef struct shares {
    rows *r;
    const char *strategy;
    const nnc_graph *g; /* split */
    const bool *fixed; /* by value of g */
    int n;
    double *time; /* by block and device: of the block's roofline on one device */
    double *memory; /* the same, of its results' bytes */
    int64_t *weights; /* by device */
    /* By device: nanoseconds of transfers to it and from it, which take its time; forwards, then backwards */
    int64_t *received[2], *sent[2];
    int64_t collectives; /* nanoseconds */
    nnc_arena *a;
} shares;

/* The block of a node's layer, near the last one; -1: none. */
static int block_of(const nnc_partition_model *m, const char *origin, int last)
{
    for (int k = 0; origin && k < m->n_layer; k++) {
        const int l = (last + k) % m->n_layer;
        if (strcmp(m->layer[l], origin) != 0)
            continue;
        int b = 0;
        while (m->first[b + 1] <= l)
            b++;
        return b;
    }
    return -1;
}

static double roofline(const rows *r, const nnc_graph *g, const nnc_node *x)
{
    const nnc_cost c = nnc_node_cost(g, x);
    return (double)nnc_target_time_ns(r->t->target, c.flops, c.bytes);
}

static double result_bytes(const nnc_graph *g, const nnc_node *x)
{
    double bytes = 0;
    for (uint32_t k = 0; k < x->n_out && !nnc_is_view(g, x); k++)
        bytes += (double)nnc_type_bytes(nnc_typeof(g, x->out + k));
    return bytes;
}

/* Adds the nodes of g to time[block * n + device] and memory[]. */
static void add_nodes(
    const rows *r, const nnc_graph *g, const bool *fixed, int n, double *time, double *memory)
{
    int last = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        const nnc_class cls = nnc_op_class((nnc_op)x->op);
        if (cls == CL_leaf || cls == CL_collective || fixed[x->out])
            continue;
        const int b = block_of(r->m, x->origin, last), d = x->device < 0 || n == 1 ? 0 : x->device;
        if (b < 0)
            continue;
        last = r->m->first[b];
        time[b * n + d] += roofline(r, g, x);
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

static void add_collective(shares *s, const nnc_node *x, const int *all)
{
    const int64_t bytes = nnc_max64(
        nnc_type_bytes(nnc_typeof(s->g, x->in[0])), nnc_type_bytes(nnc_typeof(s->g, x->out)));
    const int64_t ns = nnc_links_allreduce(&s->r->links, all, s->n, bytes);
    s->collectives = nnc_add_sat(s->collectives, x->op == OP_allreduce ? ns : ns / 2);
}

static bool is_backward(const nnc_node *x)
{
    return x->origin && strstr(x->origin, "/backward");
}

/* Values that a device reads and another one computes: each is sent once. */
static nnc_status add_transfers(shares *s)
{
    uint64_t *has = ARENA_NEW(s->a, uint64_t, s->g->n_value + 1);
    int *all = ARENA_NEW(s->a, int, s->n);
    NNC_NEED(has && all, s->r->sink);
    for (int d = 0; d < s->n; d++)
        all[d] = d;
    for (uint32_t i = 0; i < s->g->n_node; i++) {
        const nnc_node *x = &s->g->node[i];
        const int d = x->device < 0 ? 0 : x->device;
        if (nnc_op_class((nnc_op)x->op) == CL_collective) {
            add_collective(s, x, all);
            continue;
        }
        for (int k = 0; k < x->n_in; k++) {
            const nnc_ref v = x->in[k];
            const int home = nnc_home(s->g, v);
            if (s->fixed[v] || s->fixed[x->out] || home == d || has[v] >> d & 1)
                continue;
            has[v] |= UINT64_C(1) << d;
            const int64_t ns =
                nnc_links_p2p(&s->r->links, home, d, nnc_type_bytes(nnc_typeof(s->g, v)));
            int64_t *to = &s->received[is_backward(x)][d], *from = &s->sent[is_backward(x)][home];
            *to = nnc_add_sat(*to, ns);
            *from = nnc_add_sat(*from, ns);
        }
    }
    return NNC_OK;
}

static double share(const double *of, const double *whole, int n, int b, int d)
{
    return whole[b] > 0 ? of[b * n + d] / whole[b] : d == 0;
}

/* Row of the split graph; whole: of one device. */
static nnc_status fill(
    shares *s, nnc_partition_row *row, const double *time, const double *memory, int64_t weights)
{
    rows *r = s->r;
    const nnc_partition_model *m = r->m;
    int64_t passes = 0, optimizer = 0, sends = s->collectives, most[2] = {0, 0};
    for (int b = 0; b < m->n_block; b++) {
        int64_t slowest = 0;
        for (int d = 0; d < s->n; d++) {
            const double part = share(s->time, time, s->n, b, d),
                         kept = share(s->memory, memory, s->n, b, d);
            const int64_t ns = (int64_t)((double)row_pass_ns(r, b, b + 1) * part);
            nnc_device_use *u = &row->use[d];
            slowest = nnc_max64(slowest, ns);
            u->busy_ns = nnc_add_sat(u->busy_ns, nnc_mul_sat(r->micro, ns));
            u->fill[3] += (int64_t)((double)m->of.saved[b] * kept);
            u->fill[4] = nnc_max64(u->fill[4], (int64_t)((double)m->of.working[b] * kept));
        }
        passes = nnc_add_sat(passes, slowest);
    }
    for (int d = 0; d < s->n; d++) {
        const double part = weights ? (double)s->weights[d] / (double)weights : 0;
        nnc_device_use *u = &row->use[d];
        const int64_t *const of[] = {m->of.weights, m->of.gradients, m->of.states};
        for (int k = 0; k < 3; k++)
            u->fill[k] = (int64_t)((double)row_range(of[k], 0, m->n_block) * part);
        const int64_t update = (int64_t)((double)row_range(m->of.optimizer, 0, m->n_block) * part);
        u->busy_ns = nnc_add_sat(u->busy_ns, update);
        optimizer = nnc_max64(optimizer, update);
        for (int k = 0; k < 2; k++)
            most[k] = nnc_max64(most[k], nnc_max64(s->received[k][d], s->sent[k][d]));
        u->layers = row_layers(r, NULL, 0, m->n_block);
        NNC_NEED(u->layers, r->sink);
    }
    sends = nnc_add_sat(sends, nnc_add_sat(most[0], most[1]));
    row->exposed_ns = nnc_mul_sat(r->micro, sends);
    row->iteration_ns = nnc_add_sat(nnc_mul_sat(r->micro, nnc_add_sat(passes, sends)), optimizer);
    row_executes(r, row, (nnc_partition_way){.runs = r->micro, .strategy = row->strategy});
    return row_finish(r, row);
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

/* What devices send each other in a micro-batch: of a step by its own graph, as gradients of whole weights are summed, too. */
static nnc_status find_moves(shares *s)
{
    const nnc_partition_table *t = s->r->t;
    nnc_compile_options o = {.devices = s->n, .strategy = s->strategy};
    shares of = *s;
    nnc_graph *step = NULL;
    nnc_status st = NNC_OK;
    if (t->training && s->r->m->step) {
        nnc_training training = *t->training;
        training.accumulate = 1; /* micro-batches take its place */
        nnc_graph *g = unplaced(s->r);
        NNC_NEED(g, s->r->sink);
        nnc_split_training(&training, &o);
        st = nnc_train_graph(g, &training, &step, s->r->sink);
        nnc_graph_destroy(g);
        NNC_TRY(st);
        of.g = step;
        of.fixed = nnc_static_values(step, s->a);
        st = of.fixed ? NNC_OK : nnc_nomem(s->r->sink);
    }
    if (!st)
        st = add_transfers(&of);
    s->collectives = of.collectives;
    nnc_graph_destroy(step);
    return st;
}

static nnc_status with_graph(rows *r, nnc_partition_row *row, const nnc_graph *split)
{
    const size_t b = (size_t)r->m->n_block + 1, n = (size_t)r->n;
    const nnc_graph *g = r->t->graph;
    shares s = {.r = r,
        .strategy = row->strategy,
        .g = split,
        .n = r->n,
        .fixed = nnc_static_values(split, r->a),
        .time = ARENA_NEW(r->a, double, b *n),
        .memory = ARENA_NEW(r->a, double, b *n),
        .weights = ARENA_NEW(r->a, int64_t, n),
        .received = {ARENA_NEW(r->a, int64_t, n), ARENA_NEW(r->a, int64_t, n)},
        .sent = {ARENA_NEW(r->a, int64_t, n), ARENA_NEW(r->a, int64_t, n)},
        .a = r->a};
    double *time = ARENA_NEW(r->a, double, b), *memory = ARENA_NEW(r->a, double, b);
    const bool *fixed = nnc_static_values(g, r->a);
    NNC_NEED(s.fixed && s.time && s.memory && s.weights && s.received[0] && s.received[1] &&
                 s.sent[0] && s.sent[1] && time && memory && fixed,
        r->sink);
    add_nodes(r, g, fixed, 1, time, memory);
    add_nodes(r, split, s.fixed, r->n, s.time, s.memory);
    NNC_TRY(add_weights(&s));
    NNC_TRY(find_moves(&s));
    return fill(&s, row, time, memory, weight_bytes(g));
}

nnc_status row_split(rows *r, nnc_partition_row *row)
{
    const nnc_compile_options o = {.devices = r->n, .strategy = row->strategy};
    if (r->n > NNC_MAX_DEVICES) {
        row->why_not = "splits are planned for at most 64 devices";
        return NNC_OK;
    }
    if (!r->t->graph)
        return nnc_fail0(r->sink, NNC_E_BUG, "a table of strategies without the model's graph");
    nnc_graph *g = unplaced(r);
    nnc_split_cost cost = {0};
    nnc_sink *own = nnc_sink_create();
    nnc_status st = g && own ? NNC_OK : nnc_nomem(r->sink);
    if (!st)
        st = nnc_split_graph(&o, r->m->step, &g, &cost, NULL, own);
    if (st == NNC_E_USAGE) {
        const nnc_diag *d = nnc_sink_at(own, 0);
        row->why_not = nnc_arena_strdup(r->a, d ? d->message : "cannot be split");
        st = row->why_not ? NNC_OK : nnc_nomem(r->sink);
    } else if (!st && !cost.n_split) {
        row->why_not = "no layer has enough features, channels or rows for the devices";
    } else if (!st) {
        st = with_graph(r, row, g);
    }
    nnc_sink_destroy(own);
    nnc_graph_destroy(g);
    return st;
}

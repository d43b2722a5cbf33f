/* strategy/split_tasks.c -- the tasks of a graph of several devices.
 *
 * A device computes its nodes in program order. As in the plan, it sends a value right after computing it, which takes its time. Slices
 * that other devices read come right after their operand. Inputs, and the few weights that one device trains and others read, are sent
 * before everything else. A collective is in the lanes of all devices, and the backward pass begins on all devices together.
 *
 * Ops that the plan fuses into others take no time of their own. These are elementwise ops, slices and paddings that elementwise ops and
 * reductions of the same pass read, and the elementwise epilogues of contractions. */
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"
#include "sim/sim.h"
#include <string.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* Nanoseconds of the node as a command by itself, with its launch; 0: it is none. */
static double node_ns(const rows *r, const nnc_graph *g, const nnc_node *x)
{
    const nnc_cost c = nnc_node_cost(g, x);
    const nnc_target *t = r->t->target;
    if (!c.launches)
        return 0;
    if (!r->t->cluster)
        return (double)nnc_target_time_ns(t, c.flops, c.bytes);
    const nnc_cluster_kind *k = nnc_cluster_kind_of(r->t->cluster, 0);
    const nnc_sim_op op = {.op_class = nnc_plan_class(g, x),
        .dtype = (nnc_dtype)nnc_typeof(g, x->n_in ? x->in[0] : x->out)->dtype,
        .trains = r->m->step,
        .flops = c.flops,
        .bytes = c.bytes};
    const int64_t launch = k->command_ns >= 0 ? k->command_ns : t->launch_ns;
    return (double)launch + (double)nnc_sim_op_ps(k, &op, NULL) * 1e-3;
}

/* The layer of a path, looked for around layer `last`; -1: none. */
static int layer_of(const nnc_partition_model *m, const char *origin, int last)
{
    static const char back[] = "/backward";
    const size_t end = sizeof back - 1;
    size_t n = origin ? strlen(origin) : 0;
    if (n > end && !strcmp(origin + n - end, back))
        n -= end;
    for (int k = 0; n && k < 2 * m->n_layer; k++) {
        const int l = k & 1 ? last + (k + 1) / 2 : last - k / 2;
        if (l >= 0 && l < m->n_layer && !strncmp(m->layer[l], origin, n) && !m->layer[l][n])
            return l;
    }
    return -1;
}

int row_block_of(const nnc_partition_model *m, const char *origin, int last)
{
    if (origin && !strncmp(origin, "/loss", 5))
        return m->n_block - 1;
    const int l = layer_of(m, origin, last);
    int b = 0;
    while (l >= 0 && m->first[b + 1] <= l)
        b++;
    return l < 0 ? -1 : b;
}

static int device_of(const nnc_node *x)
{
    return x->device < 0 ? 0 : x->device;
}

static int pass_of(const nnc_node *x)
{
    return x->origin && strstr(x->origin, "/backward");
}

/* Nodes that compute something in a pass of a layer. */
static bool runs(const nnc_node *x, const bool *fixed)
{
    return nnc_op_class((nnc_op)x->op) != CL_leaf && !fixed[x->out] &&
           !(x->origin && !strcmp(x->origin, NNC_TRAIN_OPTIMIZER));
}

/* Slices and concats: parts of operands that a split puts together. */
static bool is_piece(const nnc_node *x)
{
    return x->op == OP_slice || x->op == OP_concat;
}

/* Are the parts of concat x by height dense in it? On CPUs images between convolutions are channels-last. */
static bool is_dense(const rows *r, const nnc_graph *g, const nnc_node *x)
{
    const nnc_type *t = nnc_typeof(g, x->out);
    bool dense = r->t->target->kind == NNC_T_cpu && t->rank == 4 && t->dim[0] == 1 &&
                 nnc_attr_int(x, AT_axis, 0) == 2;
    for (int k = 0; k < x->n_in && dense; k++) {
        const nnc_node *d = nnc_def(g, x->in[k]);
        dense = d->op != OP_input && !(d->op == OP_slice && nnc_def(g, d->in[0])->op == OP_input);
    }
    return dense;
}

/* joined[v]: v is a concat that the forward pass need not copy. Either the device's own part is written where it stands in the concat, as
 * libraries do where parts are dense. Or generated kernels are its only readers, and read or find it in parts (passes/in_place.c). */
static bool *find_joined(const rows *r, const nnc_graph *g, nnc_arena *a)
{
    const nnc_partition_model *m = r->m;
    bool *joined = ARENA_NEW(a, bool, g->n_value + 1);
    for (uint32_t i = 0; joined && i < g->n_node; i++)
        if (g->node[i].op == OP_concat)
            joined[g->node[i].out] = true;
    for (uint32_t i = 0, last = 0; joined && i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        const bool reads = x->op == OP_conv || nnc_op_class((nnc_op)x->op) == CL_window;
        const int l = reads && !pass_of(x) ? layer_of(m, x->origin, (int)last) : -1;
        last = l < 0 ? last : (uint32_t)l;
        for (int k = 0; k < x->n_in; k++)
            joined[x->in[k]] = joined[x->in[k]] && !k && l >= 0 && m->generated[l];
    }
    for (uint32_t i = 0; joined && i < g->n_node; i++)
        if (g->node[i].op == OP_concat && !pass_of(&g->node[i]) && is_dense(r, g, &g->node[i]))
            joined[g->node[i].out] = true;
    return joined;
}

/* By node: the plan computes it in the kernel of another one. */
static bool *find_absorbed(const nnc_graph *g, nnc_arena *a)
{
    bool *absorbed = ARENA_NEW(a, bool, g->n_node + 1),
         *stored = ARENA_NEW(a, bool, g->n_value + 1); /* a reader needs it in memory */
    const uint32_t *uses = nnc_use_counts(g, a);
    if (!absorbed || !stored || !uses)
        return NULL;
    for (uint32_t i = 0; i < g->n_output; i++)
        stored[g->output[i]] = true;
    for (uint32_t i = g->n_node; i-- > 0;) {
        const nnc_node *x = &g->node[i];
        const nnc_class c = nnc_op_class((nnc_op)x->op);
        const bool index = x->op == OP_pad; /* a condition in its readers */
        absorbed[i] = (nnc_is_elementwise(x) || index) && !stored[x->out];
        for (int k = 0; k < x->n_in; k++) {
            const nnc_node *d = nnc_def(g, x->in[k]);
            const bool through =
                nnc_is_view(g, x) ? !stored[x->out] : nnc_is_elementwise(x) || c == CL_reduce;
            if (!through || pass_of(d) != pass_of(x) || device_of(d) != device_of(x))
                stored[x->in[k]] = true;
        }
    }
    for (uint32_t i = 0; i < g->n_node; i++) { /* epilogues: a chain after a contraction */
        const nnc_node *x = &g->node[i], *d = x->n_in ? nnc_def(g, x->in[0]) : x;
        const bool ends = nnc_op_class((nnc_op)d->op) == CL_contract ||
                          (nnc_is_elementwise(d) && absorbed[d - g->node]);
        if (nnc_is_elementwise(x) && ends && uses[x->in[0]] == 1 && device_of(d) == device_of(x))
            absorbed[i] = true;
    }
    return absorbed;
}

nnc_status row_node_times(const rows *r, const nnc_graph *g, double *sum[2], bool *pieces)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const bool *fixed = nnc_static_values(g, &a), *absorbed = find_absorbed(g, &a);
    int last = 0;
    NNC_NEED(fixed && absorbed, r->sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        if (!runs(x, fixed) || absorbed[i] || nnc_op_class((nnc_op)x->op) == CL_collective)
            continue;
        const int b = row_block_of(r->m, x->origin, last);
        if (b < 0)
            continue;
        last = r->m->first[b];
        sum[pass_of(x)][b] += node_ns(r, g, x);
        pieces[b] = pieces[b] || is_piece(x);
    }
    return NNC_OK;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------ */

typedef struct lister {
    const row_graph *graph;
    const rows *r;
    row_tasks *t;
    const bool *fixed;
    const nnc_place *place;
    uint64_t *need; /* by root: devices that read it from another one */
    int *there; /* by root and device: the task that sends it; -1: none */
    int *by; /* by value: the task of an absorbed node or a view; -1: none */
    int last; /* layer */
    const bool *absorbed; /* by node */
    const bool *joined; /* by value */
    bool *done; /* by node */
    uint32_t *early,
        *next; /* by node: first slice of its results that is sent, the next one; NNC_NONE */
} lister;

static int *sent(const lister *c, nnc_ref root, int d)
{
    return &c->there[(size_t)root * (size_t)c->t->parts + (size_t)d];
}

/* Adds nanoseconds of node x on device d, where those of blocks are asked for. */
static void spend(const lister *c, const row_spent *to, const nnc_node *x, int d, int64_t ns)
{
    const int b = to->pass[0] ? row_block_of(c->r->m, x->origin, c->last) : -1;
    if (b >= 0 && !d)
        to->pass[pass_of(x)][b] = nnc_add_sat(to->pass[pass_of(x)][b], ns);
}

static bool is_collective(const nnc_node *x)
{
    return nnc_op_class((nnc_op)x->op) == CL_collective;
}

static void find_needs(lister *c)
{
    const nnc_graph *g = c->graph->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        for (int k = 0; k < x->n_in && runs(x, c->fixed); k++) {
            const nnc_ref root = c->place[x->in[k]].root;
            const int d = is_collective(x) ? nnc_home(g, x->out + (nnc_ref)k) : device_of(x);
            if (!c->fixed[root] && nnc_home(g, root) != d)
                c->need[root] |= UINT64_C(1) << d;
        }
    }
    for (uint32_t i = g->n_node; i-- > 0;) {
        const nnc_node *x = &g->node[i];
        if (x->op != OP_slice || !c->need[x->out] || pass_of(x) != pass_of(nnc_def(g, x->in[0])))
            continue;
        c->next[i] = c->early[g->value[x->in[0]].node];
        c->early[g->value[x->in[0]].node] = i;
    }
}

/* Sends v to all devices that read it, one after the other. */
static void send(lister *c, nnc_ref v, int after)
{
    const int home = nnc_home(c->graph->g, v);
    const int64_t bytes = nnc_type_bytes(nnc_typeof(c->graph->g, v));
    for (int d = 0; c->place[v].root == v && d < c->t->parts; d++)
        if (c->need[v] >> d & 1) {
            const int64_t ns = nnc_links_p2p(&c->r->links, home, d, bytes);
            *sent(c, v, d) = row_task_move(c->t,
                (row_task){
                    .part = home, .holds = true, .ns = ns, .bytes = bytes, .name = "send a part"},
                after);
            spend(c, &c->graph->moves, nnc_def(c->graph->g, v), home, ns);
        }
}

static int add_collective(const lister *c, const nnc_node *x)
{
    const nnc_graph *g = c->graph->g;
    const int64_t bytes =
        nnc_max64(nnc_type_bytes(nnc_typeof(g, x->in[0])), nnc_type_bytes(nnc_typeof(g, x->out)));
    const nnc_links *l = x->op == OP_allreduce ? &c->r->links : &c->r->half;
    int device[NNC_MAX_DEVICES];
    for (int k = 0; k < x->n_in; k++)
        device[k] = nnc_home(g, x->out + (nnc_ref)k);
    const int64_t ns = nnc_links_allreduce(l, device, x->n_in, bytes);
    spend(c, &c->graph->moves, x, 0, ns);
    return row_task_move(c->t,
        (row_task){
            .collective = true, .all = true, .ns = ns, .bytes = bytes, .name = nnc_ops[x->op].name},
        -1);
}

/* Time of a joined concat: a CPU puts the parts of other devices in their places. */
static double received_ns(const lister *c, const nnc_node *x)
{
    const nnc_graph *g = c->graph->g;
    int64_t bytes = 0;
    for (int k = 0; k < x->n_in; k++)
        bytes +=
            nnc_home(g, x->in[k]) != device_of(x) ? nnc_type_bytes(nnc_typeof(g, x->in[k])) : 0;
    const double all = (double)nnc_type_bytes(nnc_typeof(g, x->out));
    return c->r->t->target->kind == NNC_T_cuda ? 0 : node_ns(c->r, g, x) * (double)bytes / all;
}

/* Absorbed nodes and views are in no lane: what reads them waits for what they read. */
static int add_compute(lister *c, uint32_t i)
{
    const nnc_graph *g = c->graph->g;
    const nnc_node *x = &g->node[i];
    const int b = row_block_of(c->r->m, x->origin, c->last), d = device_of(x), pass = pass_of(x);
    const bool runs_alone = !c->absorbed[i] && !nnc_is_view(g, x),
               extra = b < 0 || (is_piece(x) && !c->graph->pieces[b]);
    c->last = b < 0 ? c->last : c->r->m->first[b];
    double ns = 0;
    if (runs_alone)
        ns = (c->joined[x->out] ? received_ns(c, x) : node_ns(c->r, g, x)) *
             (extra ? 1 : c->graph->factor[pass][b]);
    spend(c, &c->graph->compute, x, d, (int64_t)ns);
    const int task = row_task_add(c->t, (row_task){.kind = pass ? WORK_backward : WORK_forward,
                                            .free = !runs_alone,
                                            .part = d,
                                            .ns = (int64_t)ns});
    for (int k = 0; k < x->n_in; k++) {
        row_task_wait(c->t, task, *sent(c, c->place[x->in[k]].root, d));
        row_task_wait(c->t, task, c->by[x->in[k]]);
    }
    for (nnc_ref v = x->out; v < x->out + x->n_out && !runs_alone; v++)
        c->by[v] = task;
    return task;
}

static void add_node(lister *c, uint32_t i)
{
    const nnc_node *x = &c->graph->g->node[i];
    if (c->done[i])
        return;
    c->done[i] = true;
    const int task = !runs(x, c->fixed) ? -1
                     : is_collective(x) ? add_collective(c, x)
                                        : add_compute(c, i);
    for (nnc_ref v = x->out; v < x->out + x->n_out; v++)
        send(c, v, task);
    for (uint32_t k = c->early[i]; k != NNC_NONE; k = c->next[k])
        add_node(c, k);
}

nnc_status row_add_graph(const rows *r, const row_graph *graph, row_tasks *t)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_graph *g = graph->g;
    const size_t values = (size_t)g->n_value + 1, n = (size_t)t->parts,
                 nodes = (size_t)g->n_node + 1;
    lister c = {.graph = graph,
        .r = r,
        .t = t,
        .fixed = nnc_static_values(g, &a),
        .place = nnc_places(g, &a),
        .need = ARENA_NEW(&a, uint64_t, values),
        .there = ARENA_NEW(&a, int, values *n),
        .by = ARENA_NEW(&a, int, values),
        .absorbed = find_absorbed(g, &a),
        .joined = find_joined(r, g, &a),
        .done = ARENA_NEW(&a, bool, nodes),
        .early = ARENA_NEW(&a, uint32_t, nodes),
        .next = ARENA_NEW(&a, uint32_t, nodes)};
    NNC_NEED(c.fixed && c.place && c.need && c.there && c.by && c.absorbed && c.joined && c.done &&
                 c.early && c.next,
        r->sink);
    memset(c.there, 0xff, values * n * sizeof *c.there);
    memset(c.by, 0xff, values * sizeof *c.by);
    memset(c.early, 0xff, nodes * sizeof *c.early);
    find_needs(&c);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_leaf && !c.fixed[g->node[i].out])
            add_node(&c, i);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < g->n_node; i++)
            if (runs(&g->node[i], c.fixed) && pass_of(&g->node[i]) == pass)
                add_node(&c, i);
        if (!pass)
            (void)row_task_add(t, (row_task){.all = true, .micro = -1, .name = "all devices"});
    }
    return NNC_OK;
}

/* strategy/clocks.c -- what a graph of several devices takes: a clock for each device.
 *
 * A device runs the node that can start first of the next few in program order, as a kernel stands where the last of its ops did. A node
 * starts when its device is free and its operands are there. As in the plan, a value is sent to other devices right after it was
 * computed, which takes its device's time; inputs, and what few weights one device trains and others read, before everything else;
 * collectives begin when the last participant has come; and the backward pass begins on all devices together. So devices that wait for
 * each other take the sum of their times.
 *
 * Ops that the plan fuses into others take no time of their own: elementwise ops, slices and paddings that elementwise ops and reductions
 * of the same pass read, and elementwise ops that end a contraction. */
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "sim/sim.h"
#include <string.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* The convolution as a library's call has it, as far as its class goes. */
static nnc_call conv_of(const nnc_graph *g, const nnc_node *x)
{
    const bool wgrad = x->op == OP_conv_wgrad;
    nnc_call c = {.src = *nnc_typeof(g, x->in[0]),
        .kind = wgrad                        ? CALL_conv_wgrad
                : x->op == OP_conv_transpose ? CALL_conv_transpose
                                             : CALL_conv,
        .groups = nnc_attr_int(x, AT_groups, 1)};
    const nnc_type *w = wgrad ? nnc_typeof(g, x->out) : nnc_typeof(g, x->in[1]);
    const int64_t *stride, *dilation;
    const int strides = nnc_attr_ints(x, AT_strides, &stride),
              dilations = nnc_attr_ints(x, AT_dilations, &dilation);
    c.spatial = (uint8_t)nnc_min64(w->rank - 2, NNC_COUNT(c.kernel));
    for (int i = 0; i < c.spatial; i++) {
        c.kernel[i] = w->dim[2 + i];
        c.stride[i] = i < strides ? stride[i] : 1;
        c.dilation[i] = i < dilations ? dilation[i] : 1;
    }
    return c;
}

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
    const bool conv = x->op == OP_conv || x->op == OP_conv_transpose || x->op == OP_conv_wgrad;
    nnc_call call;
    nnc_sim_op op = {.op_class = nnc_plan_class(x),
        .dtype = (nnc_dtype)nnc_typeof(g, x->n_in ? x->in[0] : x->out)->dtype,
        .flops = c.flops,
        .bytes = c.bytes};
    if (conv) {
        call = conv_of(g, x);
        op.op_class = nnc_sim_conv_class(&call);
    }
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

/* joined[v]: v is a concat that the forward pass need not copy: the device's own part is written where it stands in the concat, as
 * libraries do where parts are dense; or generated kernels are its only readers, and read or find it in parts (passes/in_place.c). */
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
        absorbed[i] = (nnc_op_is_absorbed((nnc_op)x->op) || index) && !stored[x->out];
        for (int k = 0; k < x->n_in; k++) {
            const nnc_node *d = nnc_def(g, x->in[k]);
            const bool through = nnc_is_view(g, x)
                                     ? !stored[x->out]
                                     : nnc_op_is_absorbed((nnc_op)x->op) || c == CL_reduce;
            if (!through || pass_of(d) != pass_of(x) || device_of(d) != device_of(x))
                stored[x->in[k]] = true;
        }
    }
    for (uint32_t i = 0; i < g->n_node; i++) { /* epilogues: a chain after a contraction */
        const nnc_node *x = &g->node[i], *d = x->n_in ? nnc_def(g, x->in[0]) : x;
        const bool ends = nnc_op_class((nnc_op)d->op) == CL_contract ||
                          (nnc_op_is_absorbed((nnc_op)d->op) && absorbed[d - g->node]);
        if (nnc_op_is_absorbed((nnc_op)x->op) && ends && uses[x->in[0]] == 1 &&
            device_of(d) == device_of(x))
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

/* ---- devices ---------------------------------------------------------------------------------------------------- */

typedef struct clocks {
    const rows *r;
    row_run *run;
    const bool *fixed;
    const nnc_place *place;
    uint64_t *need; /* by root: devices that read it from another one */
    int64_t *now,
        *there; /* by device: its clock; by root and device: when a value that was sent is there */
    int *all;
    int last; /* layer */
    const bool *absorbed; /* by node */
    const bool *joined; /* by value */
    uint32_t **
        list; /* by device: its nodes in program order; collectives are in the list of each participant */
    uint32_t *n, *head;
    uint32_t *next; /* by device: the node that it runs next, unless stale; NNC_NONE */
    int64_t *next_at;
    bool *stale;
    uint32_t *feeds,
        *missing; /* by value: 1 + the collective that reads it; by collective: operands to come */
    bool *done; /* by node */
    bool *made; /* by value */
} clocks;

static int64_t *arrival(const clocks *c, nnc_ref root, int d)
{
    return &c->there[(size_t)root * (size_t)c->run->n + (size_t)d];
}

/* The device that operand k of x is read on. */
static int reader_of(const clocks *c, const nnc_node *x, int k)
{
    return nnc_op_class((nnc_op)x->op) == CL_collective ? nnc_home(c->run->g, x->out + (nnc_ref)k)
                                                        : device_of(x);
}

static void find_needs(clocks *c)
{
    const nnc_graph *g = c->run->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        for (int k = 0; k < x->n_in && runs(x, c->fixed); k++) {
            const nnc_ref root = c->place[x->in[k]].root;
            const int d = reader_of(c, x, k);
            if (!c->fixed[root] && nnc_home(g, root) != d)
                c->need[root] |= UINT64_C(1) << d;
        }
    }
}

/* Sends v to all devices that read it, one after the other. */
static void send(clocks *c, nnc_ref v)
{
    const nnc_ref root = c->place[v].root;
    const int home = nnc_home(c->run->g, root);
    for (int d = 0; root == v && d < c->run->n; d++) {
        if (!(c->need[v] >> d & 1))
            continue;
        const int64_t ns =
            nnc_links_p2p(c->run->links, home, d, nnc_type_bytes(nnc_typeof(c->run->g, v)));
        c->now[home] = nnc_add_sat(c->now[home], ns);
        c->run->sent = nnc_add_sat(c->run->sent, ns);
        *arrival(c, v, d) = c->now[home];
        c->stale[d] = true;
    }
}

/* When device d is free and operand k of x is there. */
static int64_t ready(const clocks *c, const nnc_node *x, int k, int d)
{
    return nnc_max64(c->now[d], *arrival(c, c->place[x->in[k]].root, d));
}

static void run_collective(clocks *c, const nnc_node *x)
{
    const nnc_graph *g = c->run->g;
    const int64_t bytes =
        nnc_max64(nnc_type_bytes(nnc_typeof(g, x->in[0])), nnc_type_bytes(nnc_typeof(g, x->out)));
    const nnc_links *l = x->op == OP_allreduce ? c->run->links : c->run->half;
    const int64_t ns = nnc_links_allreduce(l, c->all, c->run->n, bytes);
    int64_t start = 0;
    for (int k = 0; k < x->n_in; k++)
        start = nnc_max64(start, ready(c, x, k, reader_of(c, x, k)));
    for (int k = 0; k < x->n_in; k++)
        c->now[reader_of(c, x, k)] = nnc_add_sat(start, ns);
    c->run->sent = nnc_add_sat(c->run->sent, ns);
}

static void meet(clocks *c)
{
    int64_t latest = 0;
    for (int d = 0; d < c->run->n; d++)
        latest = nnc_max64(latest, c->now[d]);
    for (int d = 0; d < c->run->n; d++)
        c->now[d] = latest;
    c->run->total = latest;
}

/* When node x can start; -1: an operand was not computed yet. */
static int64_t start_of(const clocks *c, const nnc_node *x)
{
    int64_t start = 0;
    for (int k = 0; k < x->n_in; k++) {
        if (!c->made[x->in[k]])
            return -1;
        start = nnc_max64(start, ready(c, x, k, reader_of(c, x, k)));
    }
    return x->n_in ? start : c->now[device_of(x)];
}

/* What a joined concat takes: a CPU puts the parts of other devices in their places. */
static double received_ns(const clocks *c, const nnc_node *x)
{
    const nnc_graph *g = c->run->g;
    int64_t bytes = 0;
    for (int k = 0; k < x->n_in; k++)
        bytes +=
            nnc_home(g, x->in[k]) != device_of(x) ? nnc_type_bytes(nnc_typeof(g, x->in[k])) : 0;
    const double all = (double)nnc_type_bytes(nnc_typeof(g, x->out));
    return c->r->t->target->kind == NNC_T_cuda ? 0 : node_ns(c->r, g, x) * (double)bytes / all;
}

static void run_node(clocks *c, uint32_t i, int64_t start)
{
    const nnc_node *x = &c->run->g->node[i];
    const int b = row_block_of(c->r->m, x->origin, c->last), d = device_of(x), pass = pass_of(x);
    c->last = b < 0 ? c->last : c->r->m->first[b];
    c->done[i] = true;
    if (nnc_op_class((nnc_op)x->op) == CL_collective) {
        run_collective(c, x);
    } else if (!c->absorbed[i] && !nnc_is_view(c->run->g, x)) {
        const bool extra = b < 0 || (is_piece(x) && !c->run->pieces[b]);
        const double alone = c->joined[x->out] ? received_ns(c, x) : node_ns(c->r, c->run->g, x);
        const int64_t ns = (int64_t)(alone * (extra ? 1 : c->run->factor[pass][b]));
        c->now[d] = nnc_add_sat(start, ns);
        c->run->busy[d] = nnc_add_sat(c->run->busy[d], ns);
    }
    bool all = nnc_op_class((nnc_op)x->op) == CL_collective;
    for (nnc_ref v = x->out; v < x->out + x->n_out; v++) {
        c->made[v] = true;
        all = (c->feeds[v] && --c->missing[c->feeds[v] - 1] == 0) || all;
        send(c, v);
    }
    c->stale[d] = true;
    for (int k = 0; k < c->run->n && all; k++)
        c->stale[k] = true;
}

/* Does another device wait for a result of x? */
static bool is_sent(const clocks *c, const nnc_node *x)
{
    uint64_t need = 0;
    for (nnc_ref v = x->out; v < x->out + x->n_out; v++)
        need |= c->need[v];
    return need != 0;
}

/* The node of device d, of the next few in its list and in this pass, that can start first; of several, one that others wait for, as the
 * slices before a convolution, which stands where its epilogue's last op did. NNC_NONE: each waits for others. */
static uint32_t next_of(clocks *c, int d, int pass, uint32_t ahead, int64_t *start)
{
    uint32_t best = NNC_NONE;
    bool sent = false;
    while (c->head[d] < c->n[d] && c->done[c->list[d][c->head[d]]])
        c->head[d]++;
    for (uint32_t k = c->head[d], seen = 0; k < c->n[d] && seen < ahead; k++) {
        const uint32_t i = c->list[d][k];
        const nnc_node *x = &c->run->g->node[i];
        if (c->done[i] || pass_of(x) > pass)
            continue;
        const int64_t at = start_of(c, x);
        seen += !c->absorbed[i] && !nnc_is_view(c->run->g, x);
        const bool sends = at >= 0 && is_sent(c, x);
        if (at < 0 || (best != NNC_NONE && (at > *start || (at == *start && (sent || !sends)))))
            continue;
        best = i;
        sent = sends;
        *start = at;
    }
    return best;
}

/* The node that can start first, and when; of any device, of the next `ahead` of its list. */
static uint32_t first_of(clocks *c, int pass, uint32_t ahead, int64_t *start)
{
    uint32_t best = NNC_NONE;
    for (int d = 0; d < c->run->n; d++) {
        if (c->stale[d] || ahead == UINT32_MAX)
            c->next[d] = next_of(c, d, pass, ahead, &c->next_at[d]);
        c->stale[d] = false;
        if (c->next[d] == NNC_NONE || (best != NNC_NONE && c->next_at[d] >= *start))
            continue;
        best = c->next[d];
        *start = c->next_at[d];
    }
    return best;
}

/* Runs the nodes of a pass: the forward one, or all that are left. */
static void run_pass(clocks *c, int pass)
{
    enum { AHEAD = 8 };
    for (int d = 0; d < c->run->n; d++)
        c->stale[d] = true;
    for (;;) {
        int64_t start = 0;
        uint32_t best = first_of(c, pass, AHEAD, &start);
        if (best == NNC_NONE) /* each one of the next few waits */
            best = first_of(c, pass, UINT32_MAX, &start);
        if (best == NNC_NONE)
            return;
        const nnc_node *x = &c->run->g->node[best];
        const int64_t now = start_of(c, x);
        if (nnc_op_class((nnc_op)x->op) == CL_collective && now > start) {
            for (int k = 0; k < x->n_in; k++) /* another participant has gone on */
                c->stale[reader_of(c, x, k)] = true;
            continue;
        }
        run_node(c, best, start);
    }
}

static bool make_lists(clocks *c, nnc_arena *a)
{
    const nnc_graph *g = c->run->g;
    c->list = ARENA_NEW(a, uint32_t *, c->run->n);
    c->n = ARENA_NEW(a, uint32_t, c->run->n);
    c->head = ARENA_NEW(a, uint32_t, c->run->n);
    bool ok = c->list && c->n && c->head;
    for (int d = 0; ok && d < c->run->n; d++)
        ok = (c->list[d] = ARENA_NEW(a, uint32_t, g->n_node + 1)) != NULL;
    for (uint32_t i = 0; ok && i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        const bool collective = nnc_op_class((nnc_op)x->op) == CL_collective;
        c->made[x->out] = nnc_op_class((nnc_op)x->op) == CL_leaf || c->fixed[x->out];
        for (nnc_ref v = x->out; v < x->out + x->n_out; v++)
            c->made[v] = c->made[x->out];
        for (int k = 0; runs(x, c->fixed) && k < (collective ? x->n_in : 1); k++) {
            const int d = collective ? reader_of(c, x, k) : device_of(x);
            if (collective) {
                c->feeds[x->in[k]] = i + 1;
                c->missing[i]++;
            }
            c->list[d][c->n[d]++] = i;
        }
    }
    return ok;
}

nnc_status row_run_clocks(const rows *r, row_run *run)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_graph *g = run->g;
    const size_t values = (size_t)g->n_value + 1, n = (size_t)run->n;
    clocks c = {.r = r,
        .run = run,
        .fixed = nnc_static_values(g, &a),
        .place = nnc_places(g, &a),
        .need = ARENA_NEW(&a, uint64_t, values),
        .now = ARENA_NEW(&a, int64_t, n),
        .there = ARENA_NEW(&a, int64_t, values * n),
        .all = ARENA_NEW(&a, int, n),
        .absorbed = find_absorbed(g, &a),
        .joined = find_joined(r, g, &a),
        .next = ARENA_NEW(&a, uint32_t, n),
        .next_at = ARENA_NEW(&a, int64_t, n),
        .stale = ARENA_NEW(&a, bool, n),
        .feeds = ARENA_NEW(&a, uint32_t, values),
        .missing = ARENA_NEW(&a, uint32_t, g->n_node + 1),
        .done = ARENA_NEW(&a, bool, g->n_node + 1),
        .made = ARENA_NEW(&a, bool, values)};
    NNC_NEED(c.fixed && c.place && c.need && c.now && c.there && c.all && c.absorbed && c.joined &&
                 c.done && c.made,
        r->sink);
    for (int d = 0; d < run->n; d++)
        c.all[d] = d;
    NNC_NEED(make_lists(&c, &a), r->sink);
    find_needs(&c);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) == CL_leaf && !c.fixed[g->node[i].out])
            send(&c, g->node[i].out);
    run_pass(&c, 0);
    meet(&c);
    run_pass(&c, 1);
    meet(&c);
    return NNC_OK;
}

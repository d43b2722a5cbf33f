/* cluster/collective.c -- times of collectives: latency by hops, bandwidth by links, the least of several algorithms. The structure is
 * NCCL's model (src/graph/tuning.cc): steps times a latency per hop, and bus bandwidth = rings x link; latencies and rates are the
 * hardware file's. bench/results/hardware-errors-2026-11-29.txt compares it with measured tables.
 *
 * A ring moves 2(n-1)/n of the tensor over each hop for an allreduce, half of it for its two halves, all of it for a broadcast. Beside the
 * links, each device reads and writes the tensor locally (local_bytes_s), which does not overlap with the links. So an A100's bus bandwidth
 * grows with the number of GPUs. */
#include "cluster/internal.h"
#include <math.h>
#include <stdlib.h>

enum { TREE_PERCENT = 92 }; /* of a link's rate that trees reach (tuning.cc) */

/* The devices of a collective, by node. */
typedef struct group {
    const nnc_cluster *c;
    nnc_group_op kind;
    int64_t bytes;
    int n, n_node;
    int most; /* devices in one node */
    bool even; /* as many in each */
    int *device; /* sorted: by node */
    int *first; /* of each node, n_node + 1 */
} group;

typedef struct algorithm {
    const char *how;
    int64_t latency_ps;
    double bytes_s;
} algorithm;

/* Bytes on each hop of a ring of n, per byte of the tensor, and its steps. */
static double ring_volume(nnc_group_op kind, int n)
{
    const double part = (double)(n - 1) / n;
    return kind == GROUP_allreduce ? 2 * part : kind == GROUP_broadcast ? 1 : part;
}

static int64_t ring_steps(nnc_group_op kind, int n)
{
    return kind == GROUP_allreduce ? 2 * (n - 1) : n - 1;
}

/* Rate when a payload must also pass the devices' own memory. */
static double with_local(const nnc_fabric *f, nnc_group_op kind, double rate)
{
    if (!f->local_bytes_s)
        return rate;
    const double part = kind == GROUP_allreduce ? 1 : 0.5;
    return 1 / (1 / rate + part / (double)f->local_bytes_s);
}

double nnc_measured_ns(const nnc_point *p, int n, double work)
{
    if (work <= (double)p[0].work)
        return (double)p[0].ns * (0.5 + 0.5 * work / (double)p[0].work);
    if (work >= (double)p[n - 1].work)
        return (double)p[n - 1].ns * work / (double)p[n - 1].work;
    int i = 1;
    while ((double)p[i].work < work)
        i++;
    const double at =
        log(work / (double)p[i - 1].work) / log((double)p[i].work / (double)p[i - 1].work);
    return exp(log((double)p[i - 1].ns) + at * (log((double)p[i].ns) - log((double)p[i - 1].ns)));
}

/* ---- efficiency of the network ----------------------------------------------------------------------------------- */

/* Where x lies in a row of increasing numbers, in log scale: between i and i + 1, at *part. */
static int bracket(const double *row, int n, double x, double *part)
{
    int i = 0;
    *part = 0;
    if (n == 1 || x <= row[0])
        return 0;
    while (i < n - 2 && x > row[i + 1])
        i++;
    *part = log(x / row[i]) / log(row[i + 1] / row[i]);
    *part = *part > 1 ? 1 : *part;
    return i;
}

/* The table is of all devices of each node. A ring's step sends bytes / (rings x ranks), and the table depends on little else. A group of
 * `most` devices in each node has fewer rings and ranks. So its steps are as those of more bytes on all devices. */
static int64_t as_of_all_devices(const group *g)
{
    const double times = (double)g->c->per_node / g->most, bytes = (double)g->bytes * times * times;
    return bytes < 0x1p62 ? (int64_t)bytes : INT64_C(1) << 62;
}

/* Share of the NICs' rate that a ring over `nodes` nodes reaches for a tensor of `bytes`. Beyond the table its edge holds. */
static double nic_share(const nnc_fabric *f, int nodes, int64_t bytes)
{
    double size[64] = {0}, count[64] = {0}, down, across;
    if (!f->n_size || nodes < 2)
        return 1;
    for (int i = 0; i < f->n_size; i++)
        size[i] = (double)f->size[i];
    for (int i = 0; i < f->n_nodes; i++)
        count[i] = f->nodes[i];
    const int r = bracket(size, f->n_size, (double)bytes, &down);
    const int k = bracket(count, f->n_nodes, nodes, &across);
    double at[2];
    for (int i = 0; i < 2; i++) {
        const int row = r + i < f->n_size ? r + i : r;
        const double *s = &f->share[row * f->n_nodes];
        at[i] = s[k] + (across > 0 ? across * (s[k + 1] - s[k]) : 0);
    }
    return at[0] + down * (at[1] - at[0]);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

static bool all_gpus(const group *g)
{
    for (int i = 0; i < g->n; i++)
        if (nnc_cluster_target(g->c, g->device[i])->kind != NNC_T_cuda)
            return false;
    return true;
}

/* Rings over NVLinks between `n` devices of one node; false: there are none. *share: of the links' rate. */
static bool use_mesh(const group *g, int from, int n, double volume, usage *u, double *share)
{
    const nnc_cluster *c = g->c;
    const nnc_fabric *f = c->fabric;
    const int base = nnc_cluster_node(c, g->device[from]) * f->n_link;
    ring rings[CL_MAX_RINGS];
    int local[CL_MAX_NODE];
    bool relayed = false;
    for (int i = 0; i < n && i < CL_MAX_NODE; i++)
        local[i] = g->device[from + i] % c->per_node;
    const int k = cluster_rings(f, local, n, rings, &relayed);
    for (int r = 0; r < k; r++)
        for (int i = 0; i < n; i++) {
            const int a = rings[r].at[i], b = rings[r].at[(i + 1) % n], via = rings[r].via[i];
            if (via >= 0)
                usage_add(u, base + f->pair_link[a * f->n + via], volume / k);
            usage_add(u, base + f->pair_link[(via >= 0 ? via : a) * f->n + b], volume / k);
        }
    /* Alone, a ring has the rate of one link per ring, also where a pair has more links than the rings need. */
    if (k > 0) {
        const double rings_rate = (double)f->nvlink_bytes_s * k / volume, links = usage_rate(u);
        *share = rings_rate < links ? rings_rate / links : 1;
        *share *= relayed ? f->relay_share : 1;
    }
    return k > 0;
}

/* The hops of a ring within one node: closed, or a chain where the ring goes on in other nodes. Returns the share of the links' rate that
 * it reaches; *cap: of a host copy, bytes per second. */
static double use_node(const group *g, int node, double volume, usage *u, double *cap)
{
    const nnc_cluster *c = g->c;
    const nnc_fabric *f = c->fabric;
    const int from = g->first[node], n = g->first[node + 1] - from;
    const int base = nnc_cluster_node(c, g->device[from]) * f->n_link;
    double share = 1;
    if (n < 2)
        return 1;
    if (f->has_nvswitch && all_gpus(g)) {
        for (int i = 0; i < n; i++) {
            const int d = g->device[from + i] % c->per_node;
            usage_add(u, base + f->port_out[d], volume);
            usage_add(u, base + f->port_in[d], volume);
        }
        return 1;
    }
    if (use_mesh(g, from, n, volume, u, &share))
        return share;
    for (int i = 0; i < (g->n_node > 1 ? n - 1 : n); i++) {
        hop h;
        p2p_path(c, g->device[from + i], g->device[from + (i + 1) % n], volume, u, &h);
        share = h.share < share ? h.share : share;
        if (h.bytes_s > 0 && h.bytes_s / volume < *cap)
            *cap = h.bytes_s / volume;
    }
    return share;
}

/* The NICs of one node's devices, each with its part of `volume`; returns how many. */
static int use_nics(const group *g, int node, double volume, usage *u)
{
    const nnc_cluster *c = g->c;
    const nnc_fabric *f = c->fabric;
    const int from = g->first[node], n = g->first[node + 1] - from;
    const int base = nnc_cluster_node(c, g->device[from]) * f->n_link;
    bool used[CL_MAX_NODE] = {false};
    int nics = 0;
    for (int i = 0; i < n; i++) {
        const int nic = f->nic_of[g->device[from + i] % c->per_node];
        nics += !used[nic];
        used[nic] = true;
    }
    for (int i = 0; i < f->n_nic; i++)
        if (used[i]) {
            usage_add(u, base + f->nic_out[i], volume / nics);
            usage_add(u, base + f->nic_in[i], volume / nics);
        }
    return nics;
}

static int log2_up(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}

/* An algorithm through NICs: by its steps (a), or by the measured efficiency (b), which includes their latency. Below the measured sizes,
 * the slower of both. */
static algorithm measured_or_steps(const group *g, algorithm a, algorithm b)
{
    const nnc_fabric *f = g->c->fabric;
    if (!f->n_size)
        return a;
    if (as_of_all_devices(g) >= f->size[0])
        return b;
    const nnc_transfer x = {.latency_ps = a.latency_ps, .bytes_s = a.bytes_s},
                       y = {.latency_ps = b.latency_ps, .bytes_s = b.bytes_s};
    return nnc_transfer_ps(&x, g->bytes) >= nnc_transfer_ps(&y, g->bytes) ? a : b;
}

/* One ring over all devices. */
static algorithm ring_all(const group *g, usage *u)
{
    const nnc_fabric *f = g->c->fabric;
    const double volume = ring_volume(g->kind, g->n);
    const int64_t steps = ring_steps(g->kind, g->n);
    const int64_t net = g->n_node > 1 ? steps * g->n_node / g->n : 0;
    double cap = INFINITY, share = 1;
    algorithm a = {.how = "ring"};
    a.latency_ps = 1000 * (f->base_ns + (steps - net) * f->hop_ns + net * f->net_hop_ns);
    for (int k = 0; k < g->n_node; k++) {
        const double s = use_node(g, k, volume, u, &cap);
        share = s < share ? s : share;
    }
    const double inside = fmin(usage_rate(u) * share, cap);
    if (g->n_node == 1) {
        a.bytes_s = with_local(f, g->kind, inside);
        return a;
    }
    algorithm b = {.how = "ring", .latency_ps = 1000 * f->base_ns};
    double across = INFINITY;
    for (int k = 0; k < g->n_node; k++)
        across = fmin(across, use_nics(g, k, volume, u) * (double)f->nic_bytes_s / volume);
    a.bytes_s = with_local(f, g->kind, fmin(inside, across));
    b.bytes_s = with_local(
        f, g->kind, fmin(inside, across * nic_share(f, g->n_node, as_of_all_devices(g))));
    return measured_or_steps(g, a, b);
}

/* NCCL's double binary tree between nodes, with a chain in each. */
static algorithm tree(const group *g, usage *u)
{
    const nnc_fabric *f = g->c->fabric;
    const double half = g->kind == GROUP_allreduce ? 2 : 1, part = 100.0 / TREE_PERCENT;
    const int64_t deep = log2_up(g->n_node), ways = g->kind == GROUP_allreduce ? 2 : 1;
    double cap = INFINITY, share = 1;
    for (int k = 0; k < g->n_node; k++) {
        const double s = use_node(g, k, half * part, u, &cap);
        share = s < share ? s : share;
        use_nics(g, k, half * part * (g->n_node - 1) / g->n_node, u);
    }
    const double rate = usage_rate(u) * share;
    return (algorithm){.how = "tree",
        .latency_ps =
            1000 * (f->base_ns + ways * ((g->most - 1) * f->hop_ns + deep * f->tree_hop_ns)),
        .bytes_s = with_local(f, g->kind, rate < cap ? rate : cap)};
}

/* Reduction in the switch of each node; between nodes, a tree. */
static algorithm in_switch(const group *g, usage *u)
{
    const nnc_fabric *f = g->c->fabric;
    const double volume = ring_volume(GROUP_allreduce, g->most);
    double cap = INFINITY;
    for (int k = 0; k < g->n_node; k++) {
        /* Each device sends and receives the tensor once. */
        use_node(g, k, volume * (double)f->nvswitch_bytes_s / (double)f->reduce_bytes_s, u, &cap);
        if (g->n_node > 1)
            use_nics(g, k, 2.0 * (g->n_node - 1) / g->n_node * 100 / TREE_PERCENT, u);
    }
    return (algorithm){.how = g->n_node > 1 ? "in-switch tree" : "in-switch",
        .latency_ps = 1000 * (f->base_ns + f->reduce_latency_ns +
                                 2 * (int64_t)log2_up(g->n_node) * f->tree_hop_ns),
        .bytes_s = usage_rate(u)};
}

/* Reduce-scatter in each node, the collective between nodes on each device's part, allgather in each node; one after the other. */
static algorithm hierarchical(const group *g, usage *u, usage *net)
{
    const nnc_fabric *f = g->c->fabric;
    const bool both = g->kind == GROUP_allreduce;
    const double inner = ring_volume(GROUP_allgather, g->most),
                 outer = ring_volume(g->kind, g->n_node);
    double cap = INFINITY, share = 1;
    usage_clear(net);
    for (int k = 0; k < g->n_node; k++) {
        const double s = use_node(g, k, inner * (both ? 2 : 1), u, &cap);
        share = s < share ? s : share;
        use_nics(g, k, outer, net);
    }
    double inside = usage_rate(u) * share;
    inside = with_local(f, g->kind, inside < cap ? inside : cap);
    const double across = usage_rate(net), part = nic_share(f, g->n_node, as_of_all_devices(g));
    for (int i = 0; i < net->n; i++)
        usage_add(u, usage_link(net, i), usage_weight(net, i));
    const int64_t within = (both ? 3 : 2) * f->base_ns + (both ? 2 : 1) * (g->most - 1) * f->hop_ns;
    algorithm a = {.how = "hierarchical", .latency_ps = 1000 * within};
    algorithm b = a;
    a.latency_ps += 1000 * ring_steps(g->kind, g->n_node) * f->net_hop_ns;
    a.bytes_s = 1 / (1 / inside + 1 / across);
    b.bytes_s = 1 / (1 / inside + 1 / (across * part));
    return measured_or_steps(g, a, b);
}

/* ---- the fastest -------------------------------------------------------------------------------------------------- */

typedef enum way { WAY_ring, WAY_tree, WAY_in_switch, WAY_hierarchical, WAY__COUNT } way;

static bool possible(const group *g, way w)
{
    const nnc_fabric *f = g->c->fabric;
    const bool split = g->kind != GROUP_broadcast;
    switch (w) {
    case WAY_ring: return true;
    case WAY_tree: return g->n_node > 1 && (g->kind == GROUP_allreduce || !split);
    case WAY_in_switch:
        return f->has_nvswitch && f->reduce_bytes_s && g->kind == GROUP_allreduce && g->most > 2 &&
               g->even && all_gpus(g);
    default: return g->n_node > 1 && g->most > 1 && g->even && split;
    }
}

static algorithm evaluate(const group *g, way w, usage *u, usage *net)
{
    usage_clear(u);
    switch (w) {
    case WAY_ring: return ring_all(g, u);
    case WAY_tree: return tree(g, u);
    case WAY_in_switch: return in_switch(g, u);
    default: return hierarchical(g, u, net);
    }
}

static const measured *measured_of(const group *g)
{
    const nnc_fabric *f = g->c->fabric;
    for (int i = 0; i < f->n_measured && g->n_node == 1; i++)
        if (f->measured[i].kind == g->kind && f->measured[i].devices == g->n)
            return &f->measured[i];
    return NULL;
}

static void choose_way(const group *g, nnc_transfer *out, usage *u, usage *net)
{
    int64_t least = INT64_MAX;
    way best = WAY_ring;
    for (int w = 0; w < WAY__COUNT; w++) {
        if (!possible(g, (way)w))
            continue;
        const algorithm a = evaluate(g, (way)w, u, net);
        const nnc_transfer t = {.latency_ps = a.latency_ps, .bytes_s = a.bytes_s};
        const int64_t ps = nnc_transfer_ps(&t, g->bytes);
        if (ps < least) {
            least = ps;
            best = (way)w;
        }
    }
    const algorithm a = evaluate(g, best, u, net); /* its uses */
    *out = (nnc_transfer){.latency_ps = a.latency_ps, .bytes_s = a.bytes_s, .how = a.how};
    const measured *m = measured_of(g);
    if (m) { /* all of the time that the rate does not explain is latency */
        const double ps = nnc_measured_ns(m->point, m->n, (double)g->bytes) * 1000;
        const double moving = (double)g->bytes / usage_rate(u) * 1e12;
        out->how = "measured";
        out->latency_ps = ps > moving ? (int64_t)(ps - moving) : 0;
        out->bytes_s = ps > moving ? usage_rate(u) : (double)g->bytes / ps * 1e12;
    }
}

static nnc_status make_group(group *g, const int32_t *device, nnc_arena *a, nnc_sink *sink)
{
    const nnc_cluster *c = g->c;
    g->device = ARENA_NEW(a, int, g->n);
    g->first = ARENA_NEW(a, int, g->n + 1);
    NNC_NEED(g->device && g->first, sink);
    for (int i = 0; i < g->n; i++) {
        g->device[i] = device[i];
        if (device[i] < 0 || device[i] >= c->n_device)
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file},
                "there is no device %d: the devices are 0 to %d", (int)device[i], c->n_device - 1);
    }
    qsort(g->device, (size_t)g->n, sizeof *g->device, nnc_by_index);
    g->even = true;
    for (int i = 0; i < g->n; i++) {
        if (i && g->device[i] == g->device[i - 1])
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file},
                "device %d takes part twice in one %s", g->device[i], nnc_group_op_names[g->kind]);
        if (!i || nnc_cluster_node(c, g->device[i]) != nnc_cluster_node(c, g->device[i - 1]))
            g->first[g->n_node++] = i;
    }
    g->first[g->n_node] = g->n;
    for (int k = 0; k < g->n_node; k++) {
        const int in = g->first[k + 1] - g->first[k];
        g->even = g->even && in == g->first[1];
        g->most = in > g->most ? in : g->most;
    }
    return NNC_OK;
}

nnc_status nnc_cluster_collective(const nnc_cluster *c, nnc_group_op kind, const int32_t *device,
    int n, int64_t bytes, nnc_transfer *out, nnc_arena *a, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) scratch = {0};
    group g = {.c = c, .kind = kind, .bytes = nnc_max64(bytes, 1), .n = n};
    NNC_LOCAL(usage) u = {0}, net = {0};
    *out = (nnc_transfer){.bytes_s = INFINITY, .how = "none"};
    if (n < 1)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file}, "a %s of no devices",
            nnc_group_op_names[kind]);
    NNC_TRY(make_group(&g, device, &scratch, sink));
    if (n == 1)
        return NNC_OK;
    NNC_NEED(usage_init(&u, c) && usage_init(&net, c), sink);
    choose_way(&g, out, &u, &net);
    NNC_NEED(usage_store(&u, out, a), sink);
    return NNC_OK;
}

int64_t nnc_cluster_collective_ps(
    const nnc_cluster *c, nnc_group_op kind, const int32_t *device, int n, int64_t bytes)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_transfer t;
    if (nnc_cluster_collective(c, kind, device, n, bytes, &t, &a, NULL))
        return INT64_MAX;
    return n == 1 ? 0 : nnc_transfer_ps(&t, bytes);
}

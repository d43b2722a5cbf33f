/* strategy/auto_links.c -- communication times: by the hardware file's links, or by links of two numbers, which nothing shares. For the
 * search over combinations also of many equal groups of devices at the same time, which share the links of a node.
 *
 * Nodes are equal, so what differs is which devices of a node take part and on how many nodes. The search's times of collectives are known
 * at powers of two of the bytes and interpolated. A message takes no longer than a larger one, to which it could be padded. */
#include "strategy/auto.h"
#include <math.h>
#include <string.h>

enum { FIRST_POWER = 8, POWERS = 34, MOST_KEPT = 4096 };

/* Groups first + i * apart + k * stride, k < n, i < beside. n 0: sends from first + i to first + stride + i. */
typedef struct groups {
    int kind, first, stride, n, beside, apart;
} groups;

typedef struct curve {
    bool known;
    groups groups;
    nnc_transfer way; /* of sends */
    int64_t ns[POWERS]; /* of collectives; 0: not known */
} curve;

struct auto_links {
    const nnc_cluster *c; /* NULL: flat */
    nnc_flat_links flat;
    double bandwidth;
    curve *kept, *last; /* last: of the latest question */
    int32_t *device;
    double *load; /* by link of c: bytes for a byte of payload */
};

auto_links *auto_links_make(rows *r, double bandwidth)
{
    const nnc_cluster *c = r->t->cluster;
    auto_links *l = ARENA_NEW(r->a, auto_links, 1);
    if (!l)
        return NULL;
    *l = (auto_links){.c = c, .flat = *r->flat, .bandwidth = bandwidth};
    l->flat.bytes_per_s = nnc_max64(1, (int64_t)((double)l->flat.bytes_per_s * bandwidth));
    l->kept = ARENA_NEW(r->a, curve, MOST_KEPT);
    l->device = ARENA_NEW(r->a, int32_t, r->n + 1);
    l->load = ARENA_NEW(r->a, double, (c ? c->n_link : 0) + 1);
    return l->kept && l->device && l->load ? l : NULL;
}

/* ---- described hardware ----------------------------------------------------------------------------------- */

const nnc_group_op auto_group_op[] = {GROUP_allreduce, GROUP_reduce_scatter, GROUP_allgather};

/* One of the groups. */
static nnc_status transfer_of(
    const auto_links *l, const groups *g, int i, int64_t bytes, nnc_transfer *t, nnc_arena *a)
{
    const int first = g->first + i * g->apart;
    if (!g->n)
        return nnc_cluster_p2p(l->c, first, first + g->stride, t, a, NULL);
    for (int k = 0; k < g->n; k++)
        l->device[k] = first + k * g->stride;
    return nnc_cluster_collective(l->c, auto_group_op[g->kind], l->device, g->n, bytes, t, a, NULL);
}

static int64_t scaled_ns(const auto_links *l, const nnc_transfer *t, int64_t bytes)
{
    const int64_t ps = nnc_transfer_ps(t, (int64_t)ceil((double)bytes / l->bandwidth));
    return ps == INT64_MAX ? ps : nnc_max64(1, nnc_ceildiv(ps, 1000));
}

/* All groups that have devices in the first one's node, side by side. */
static nnc_transfer together(const auto_links *l, const groups *g, int64_t bytes)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_transfer all = {0};
    memset(l->load, 0, ((size_t)l->c->n_link + 1) * sizeof *l->load);
    for (int i = 0; i < g->beside; i++) {
        nnc_transfer t;
        if (i && (g->first + i * g->apart) / l->c->per_node != g->first / l->c->per_node)
            break;
        if (transfer_of(l, g, i, bytes, &t, &a))
            return (nnc_transfer){.latency_ps = INT64_MAX, .bytes_s = 1};
        all.latency_ps = nnc_max64(all.latency_ps, t.latency_ps);
        all.bytes_s = i ? fmin(all.bytes_s, t.bytes_s) : t.bytes_s;
        for (int k = 0; k < t.n_use; k++) {
            double *load = &l->load[t.use[k].link];
            *load += t.use[k].weight;
            if (*load > t.use[k].weight)
                all.bytes_s = fmin(all.bytes_s, (double)l->c->link[t.use[k].link].bytes_s / *load);
        }
    }
    return all;
}

static int64_t point_ns(const auto_links *l, curve *v, int power)
{
    const int64_t bytes = INT64_C(1) << (FIRST_POWER + power);
    if (!v->ns[power]) {
        const nnc_transfer t = together(l, &v->groups, bytes);
        v->ns[power] = scaled_ns(l, &t, bytes);
    }
    return v->ns[power];
}

/* The same groups on the first nodes, sends to another node as those to the next one. Which device of its node takes part does not matter
 * where a group has one of each. */
static groups normal(const nnc_cluster *c, groups g)
{
    const int node = c->per_node, to = g.first + g.stride;
    if (!g.n && to / node != g.first / node)
        g.stride = node + to % node - g.first % node;
    if (g.n && g.stride >= node) {
        g.stride = node;
        g.first = 0;
    }
    g.first %= node;
    g.beside = g.beside < c->per_node ? g.beside : c->per_node;
    return g;
}

static curve *curve_of(auto_links *l, groups g)
{
    g = normal(l->c, g);
    if (l->last && !memcmp(&l->last->groups, &g, sizeof g))
        return l->last;
    l->last = &l->kept[nnc_hash64(&g, sizeof g, 0) % MOST_KEPT];
    if (!l->last->known || memcmp(&l->last->groups, &g, sizeof g) != 0)
        *l->last = (curve){
            .known = true, .groups = g, .way = g.n ? (nnc_transfer){0} : together(l, &g, 1)};
    return l->last;
}

static int64_t described_ns(auto_links *l, groups g, int64_t bytes)
{
    curve *v = curve_of(l, g);
    const int power = ilogb((double)bytes) - FIRST_POWER;
    if (!v->groups.n)
        return scaled_ns(l, &v->way, bytes);
    if (power < 0)
        return point_ns(l, v, 0);
    if (power >= POWERS - 1)
        return (int64_t)((double)point_ns(l, v, POWERS - 1) *
                         ldexp((double)bytes, -FIRST_POWER - POWERS + 1));
    int64_t high = point_ns(l, v, power + 1), low = nnc_min64(point_ns(l, v, power), high);
    const double part = ldexp((double)bytes, -FIRST_POWER - power) - 1;
    return high == INT64_MAX ? high : low + (int64_t)ceil(part * (double)(high - low));
}

/* ---- both ------------------------------------------------------------------------------------------------- */

static int64_t send_ns(const void *ctx, int src, int dst, int beside, int64_t bytes)
{
    auto_links *l = (auto_links *)ctx;
    if (bytes <= 0 || src == dst)
        return 0;
    if (!l->c) {
        const nnc_links flat = nnc_links_flat(&l->flat);
        return nnc_links_p2p(&flat, src, dst, bytes);
    }
    return described_ns(l, (groups){0, src, dst - src, 0, beside, 1}, bytes);
}

/* Reduce-scatters and allgathers take half of an allreduce. */
static int64_t flat_ns(const auto_links *l, nnc_search_collective kind, int n, int64_t bytes)
{
    const nnc_links flat = nnc_links_flat(&l->flat);
    const int64_t all = nnc_links_allreduce(&flat, l->device, n, bytes);
    return kind == SEARCH_allreduce ? all : nnc_ceildiv(all, 2);
}

static int64_t collective(auto_links *l, groups g, int64_t bytes)
{
    if (bytes <= 0 || g.n < 2)
        return 0;
    return l->c ? described_ns(l, g, bytes) : flat_ns(l, (nnc_search_collective)g.kind, g.n, bytes);
}

static int64_t collective_ns(const void *ctx, nnc_search_collective kind, int first, int stride,
    int n, int beside, int64_t bytes)
{
    return collective((auto_links *)ctx, (groups){(int)kind, first, stride, n, beside, 1}, bytes);
}

int64_t auto_tensor_ns(const auto_links *l, nnc_search_collective kind, int n, int64_t bytes)
{
    const int beside = l->c ? l->c->per_node / n : 1;
    return collective(
        (auto_links *)l, (groups){(int)kind, 0, 1, n, beside > 1 ? beside : 1, n}, bytes);
}

nnc_search_links auto_search_links(const auto_links *l)
{
    return (nnc_search_links){send_ns, collective_ns, l};
}

/* ---- alone ------------------------------------------------------------------------------------------------ */

static int64_t alone_p2p(const void *ctx, int src, int dst, int64_t bytes)
{
    return send_ns(ctx, src, dst, 1, bytes);
}

static int64_t alone_ns(
    const auto_links *l, nnc_search_collective kind, const int *device, int n, int64_t bytes)
{
    if (!l->c)
        return flat_ns(l, kind, n, bytes);
    const int64_t ps = nnc_cluster_collective_ps(
        l->c, auto_group_op[kind], device, n, (int64_t)((double)bytes / l->bandwidth));
    return ps == INT64_MAX ? ps : nnc_ceildiv(ps, 1000);
}

static int64_t alone_allreduce(const void *ctx, const int *device, int n, int64_t bytes)
{
    return alone_ns(ctx, SEARCH_allreduce, device, n, bytes);
}

/* An allgather takes as long as a reduce-scatter. */
static int64_t alone_half(const void *ctx, const int *device, int n, int64_t bytes)
{
    return alone_ns(ctx, SEARCH_reduce_scatter, device, n, bytes);
}

static int64_t tensor_allreduce(const void *ctx, const int *device, int n, int64_t bytes)
{
    (void)device;
    return auto_tensor_ns(ctx, SEARCH_allreduce, n, bytes);
}

static int64_t tensor_half(const void *ctx, const int *device, int n, int64_t bytes)
{
    (void)device;
    return auto_tensor_ns(ctx, SEARCH_reduce_scatter, n, bytes);
}

void auto_tensor_links(rows *r)
{
    r->links.allreduce_ns = tensor_allreduce;
    r->half.allreduce_ns = tensor_half;
}

nnc_status row_make_links(rows *r)
{
    const auto_links *l = r->shared = auto_links_make(r, r->t->bandwidth > 0 ? r->t->bandwidth : 1);
    NNC_NEED(l, r->sink);
    r->links = (nnc_links){alone_p2p, alone_allreduce, l};
    r->half = (nnc_links){NULL, alone_half, l};
    return NNC_OK;
}

/* cluster/p2p.c -- the way of a copy between two devices or a device and its host, and the links that it occupies. */
#include "cluster/internal.h"
#include <math.h>

/* ---- uses of links ----------------------------------------------------------------------------------------------- */

bool usage_init(usage *u, const nnc_cluster *c)
{
    *u = (usage){.c = c};
    u->weight = nnc_calloc((size_t)c->n_link + 1, sizeof *u->weight);
    u->touched = nnc_calloc((size_t)c->n_link + 1, sizeof *u->touched);
    return u->weight && u->touched;
}

void usage_deinit(usage *u)
{
    nnc_free(u->weight);
    nnc_free(u->touched);
}

void usage_clear(usage *u)
{
    for (int i = 0; i < u->n && u->weight; i++)
        u->weight[u->touched[i]] = 0;
    u->n = 0;
}

static void add_few(usage *u, int link, double weight)
{
    int i = 0;
    while (i < u->n && u->few_link[i] != link)
        i++;
    if (i == u->n) {
        u->few_link[u->n] = link;
        u->few_weight[u->n++] = 0;
    }
    u->few_weight[i] += weight;
}

void usage_add(usage *u, int link, double weight)
{
    if (!u->weight) {
        add_few(u, link, weight);
        return;
    }
    if (u->weight[link] == 0)
        u->touched[u->n++] = link;
    u->weight[link] += weight;
}

double usage_rate(const usage *u)
{
    double rate = INFINITY;
    for (int i = 0; i < u->n; i++)
        rate = fmin(rate, (double)u->c->link[usage_link(u, i)].bytes_s / usage_weight(u, i));
    return rate;
}

bool usage_store(const usage *u, nnc_transfer *t, nnc_arena *a)
{
    t->n_use = u->n;
    t->use = ARENA_NEW(a, nnc_use, u->n + 1);
    for (int i = 0; i < u->n && t->use; i++)
        t->use[i] = (nnc_use){usage_link(u, i), usage_weight(u, i)};
    return t->use != NULL;
}

/* ---- ways ---------------------------------------------------------------------------------------------------------- */

typedef struct way {
    const nnc_fabric *f;
    usage *u;
    int base; /* first link of the node */
    double weight;
} way;

static void use(const way *w, int link)
{
    usage_add(w->u, w->base + link, w->weight);
}

/* From device d to its socket's memory (down false), or back. */
static void use_pcie(const way *w, int d, bool down)
{
    const nnc_fabric *f = w->f;
    const int s = f->switch_of[d];
    use(w, down ? f->down[d] : f->up[d]);
    use(w, down ? f->switch_down[s] : f->switch_up[s]);
}

static void use_sockets(const way *w, int from, int to)
{
    if (from != to) {
        use(w, w->f->socket_out[from]);
        use(w, w->f->socket_in[to]);
    }
}

static bool is_gpu(const nnc_cluster *c, int local)
{
    return c->kind[c->kind_of[local]].target.kind == NNC_T_cuda;
}

/* True when the driver lets GPUs a and b copy through PCIe without host memory. */
static bool direct(const nnc_fabric *f, int a, int b)
{
    const bool same = f->switch_of[a] == f->switch_of[b];
    return f->p2p == P2P_all || (f->p2p == P2P_switch && same) ||
           (f->p2p == P2P_socket && f->socket_of[a] == f->socket_of[b]);
}

static void pcie_pair(const way *w, int a, int b, hop *out)
{
    const nnc_fabric *f = w->f;
    const int sa = f->socket_of[a], sb = f->socket_of[b];
    *out = (hop){.latency_ps = f->pcie_latency_ns * 1000, .share = 1, .how = "pcie"};
    if (f->switch_of[a] == f->switch_of[b] && direct(f, a, b)) {
        use(w, f->up[a]);
        use(w, f->down[b]);
        return;
    }
    use_pcie(w, a, false);
    use_sockets(w, sa, sb);
    use_pcie(w, b, true);
    out->latency_ps += sa != sb ? f->socket_latency_ns * 1000 : 0;
    if (direct(f, a, b))
        return;
    use(w, f->memory[sa]); /* written and read there */
    use(w, f->memory[sa]);
    out->latency_ps += f->staged_latency_ns * 1000;
    out->share = f->staged_share;
    out->how = "host-staged";
}

/* A GPU and memory of socket s. */
static void pcie_host(const way *w, int gpu, bool to_gpu, int s, hop *out)
{
    const nnc_fabric *f = w->f;
    const int own = f->socket_of[gpu];
    use_pcie(w, gpu, to_gpu);
    use_sockets(w, to_gpu ? s : own, to_gpu ? own : s);
    use(w, f->memory[s]);
    *out = (hop){.latency_ps = f->pcie_latency_ns * 1000, .share = 1, .how = "pcie"};
}

/* Between processes on CPUs, or within one: read and written. */
static void through_memory(const way *w, int a, int b, hop *out)
{
    const nnc_fabric *f = w->f;
    use(w, f->memory[a]);
    use(w, f->memory[b]);
    use_sockets(w, a, b);
    *out = (hop){.latency_ps = f->socket_latency_ns * 1000,
        .bytes_s = (double)f->host_copy_bytes_s,
        .share = 1,
        .how = "host memory"};
}

static void within_node(const way *w, const nnc_cluster *c, int a, int b, hop *out)
{
    const nnc_fabric *f = w->f;
    const bool gpu_a = is_gpu(c, a), gpu_b = is_gpu(c, b);
    const int pair = f->pair_link[a * f->n + b];
    if (!gpu_a && !gpu_b) {
        through_memory(w, f->socket_of[a], f->socket_of[b], out);
    } else if (!gpu_a || !gpu_b) {
        pcie_host(w, gpu_a ? a : b, gpu_b, f->socket_of[gpu_a ? b : a], out);
    } else if (f->has_nvswitch) {
        use(w, f->port_out[a]);
        use(w, f->port_in[b]);
        *out = (hop){.latency_ps = f->nvswitch_latency_ns * 1000, .share = 1, .how = "nvswitch"};
    } else if (f->has_nvlink && pair >= 0) {
        use(w, pair);
        *out = (hop){.latency_ps = f->nvlink_latency_ns * 1000, .share = 1, .how = "nvlink"};
    } else {
        pcie_pair(w, a, b, out);
    }
}

/* One end in another node: through the device's NIC, which a GPU reaches through PCIe. */
static void net_end(const way *w, const nnc_cluster *c, int d, bool in)
{
    const nnc_fabric *f = w->f;
    use(w, in ? f->nic_in[f->nic_of[d]] : f->nic_out[f->nic_of[d]]);
    if (is_gpu(c, d))
        use(w, in ? f->down[d] : f->up[d]);
    else
        use(w, f->memory[f->socket_of[d]]);
}

void p2p_path(const nnc_cluster *c, int src, int dst, double weight, usage *u, hop *out)
{
    const nnc_fabric *f = c->fabric;
    const int node = nnc_cluster_node(c, src == NNC_HOST ? dst : src);
    const int a = src % c->per_node, b = dst % c->per_node;
    const way w = {f, u, node * f->n_link, weight};
    *out = (hop){.share = 1};
    if (src == NNC_HOST || dst == NNC_HOST) {
        const int d = src == NNC_HOST ? b : a, s = f->socket_of[d];
        if (is_gpu(c, d))
            pcie_host(&w, d, src == NNC_HOST, s, out);
        else
            through_memory(&w, s, s, out);
    } else if (src == dst) {
        *out = (hop){.bytes_s = (double)nnc_cluster_target(c, src)->copy_bytes_s / 2,
            .share = 1,
            .how = "local"};
    } else if (nnc_cluster_node(c, dst) == node) {
        within_node(&w, c, a, b, out);
    } else {
        const way far = {f, u, nnc_cluster_node(c, dst) * f->n_link, weight};
        net_end(&w, c, a, false);
        net_end(&far, c, b, true);
        *out = (hop){.latency_ps = f->nic_latency_ns * 1000, .share = 1, .how = "network"};
    }
}

static nnc_status check_device(const nnc_cluster *c, int device, nnc_sink *sink)
{
    return device >= 0 && device < c->n_device
               ? NNC_OK
               : nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file},
                     "there is no device %d: the devices are 0 to %d", device, c->n_device - 1);
}

nnc_status nnc_cluster_p2p(
    const nnc_cluster *c, int src, int dst, nnc_transfer *out, nnc_arena *a, nnc_sink *sink)
{
    usage u = {.c = c};
    hop h;
    *out = (nnc_transfer){0};
    if (src != NNC_HOST || dst == NNC_HOST)
        NNC_TRY(check_device(c, src, sink));
    if (dst != NNC_HOST)
        NNC_TRY(check_device(c, dst, sink));
    p2p_path(c, src, dst, 1, &u, &h);
    const double rate = usage_rate(&u) * h.share;
    *out = (nnc_transfer){.latency_ps = h.latency_ps,
        .bytes_s = h.bytes_s > 0 ? fmin(h.bytes_s, rate) : rate,
        .how = h.how};
    return usage_store(&u, out, a) ? NNC_OK : nnc_nomem(sink);
}

int64_t nnc_transfer_ps(const nnc_transfer *t, int64_t bytes)
{
    if (bytes <= 0)
        return t->latency_ps;
    double ps = ceil((double)bytes / t->bytes_s * 1e12);
    return ps < 0x1p62 ? nnc_add_sat(t->latency_ps, (int64_t)ps) : INT64_MAX;
}

int64_t nnc_cluster_p2p_ps(const nnc_cluster *c, int src, int dst, int64_t bytes)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_transfer t;
    return nnc_cluster_p2p(c, src, dst, &t, &a, NULL) ? INT64_MAX : nnc_transfer_ps(&t, bytes);
}

/* cluster/cluster.c -- loads a hardware file, numbers its links, and answers questions about devices. */
#include "cluster/internal.h"

const char *const nnc_group_op_names[GROUP__COUNT] = {
    "allreduce", "reduce_scatter", "allgather", "broadcast"};

/* ---- links ------------------------------------------------------------------------------------------------------- */

typedef struct linker {
    nnc_cluster *c;
    nnc_link *link; /* of one node; NULL: they are only counted */
    int n;
} linker;

static int add_link(linker *l, nnc_link_kind kind, int from, int to, int64_t bytes_s)
{
    if (l->link)
        l->link[l->n] = (nnc_link){
            .kind = (uint8_t)kind, .from = (int16_t)from, .to = (int16_t)to, .bytes_s = bytes_s};
    return l->n++;
}

/* Two links for each of n things: out (or up), in (or down). */
static void add_pairs(
    linker *l, nnc_link_kind kind, int n, int64_t bytes_s, int32_t *out, int32_t *in)
{
    for (int i = 0; i < n; i++) {
        out[i] = add_link(l, kind, i, 0, bytes_s);
        in[i] = add_link(l, kind, i, 1, bytes_s);
    }
}

static void number_links(linker *l)
{
    nnc_fabric *f = l->c->fabric;
    for (int a = 0; a < f->n && f->has_nvlink; a++)
        for (int b = 0; b < f->n; b++) {
            int links = f->pair[a * f->n + b];
            f->pair_link[a * f->n + b] =
                links ? add_link(l, LINK_nvlink, a, b, links * f->nvlink_bytes_s) : -1;
        }
    if (f->has_nvswitch)
        add_pairs(l, LINK_nvswitch, f->n, f->nvswitch_bytes_s, f->port_out, f->port_in);
    if (f->has_pcie) {
        add_pairs(l, LINK_pcie, f->n, f->pcie_bytes_s, f->up, f->down);
        add_pairs(l, LINK_switch, f->n_switch, f->uplink_bytes_s, f->switch_up, f->switch_down);
    }
    if (f->n_socket > 1)
        add_pairs(l, LINK_socket, f->n_socket, f->socket_bytes_s, f->socket_out, f->socket_in);
    for (int s = 0; s < f->n_socket; s++)
        f->memory[s] = add_link(l, LINK_memory, s, 0, f->memory_bytes_s);
    if (f->has_nics)
        add_pairs(l, LINK_nic, f->n_nic, f->nic_bytes_s, f->nic_out, f->nic_in);
}

/* CPUs are spread over the sockets in order, GPUs are at their switch's. NICs are, in order, those of as many neighbouring devices. */
static void place_devices(nnc_cluster *c)
{
    nnc_fabric *f = c->fabric;
    int cpus = 0, cpu = 0;
    for (int d = 0; d < f->n; d++)
        cpus += f->switch_of[d] < 0;
    for (int d = 0; d < f->n; d++) {
        f->socket_of[d] =
            f->switch_of[d] >= 0 ? f->switch_socket[f->switch_of[d]] : cpu++ * f->n_socket / cpus;
        f->nic_of[d] = f->n_nic ? d * f->n_nic / f->n : -1;
    }
}

/* Fills the fabric's link numbers and the cluster's links. */
static nnc_status make_links(nnc_cluster *c, nnc_sink *sink)
{
    nnc_fabric *f = c->fabric;
    linker l = {.c = c};
    struct {
        int32_t **at;
        int n;
    } arrays[] = {{&f->pair_link, f->n * f->n}, {&f->port_out, f->n}, {&f->port_in, f->n},
        {&f->up, f->n}, {&f->down, f->n}, {&f->switch_up, f->n_switch},
        {&f->switch_down, f->n_switch}, {&f->socket_out, f->n_socket}, {&f->socket_in, f->n_socket},
        {&f->memory, f->n_socket}, {&f->nic_out, f->n_nic}, {&f->nic_in, f->n_nic},
        {&f->socket_of, f->n}, {&f->nic_of, f->n}};
    for (size_t i = 0; i < NNC_COUNT(arrays); i++) {
        *arrays[i].at = ARENA_NEW(&c->arena, int32_t, arrays[i].n + 1);
        NNC_NEED(*arrays[i].at, sink);
    }
    place_devices(c);
    number_links(&l);
    f->n_link = l.n;
    c->n_link = l.n * c->n_node;
    c->link = ARENA_NEW(&c->arena, nnc_link, c->n_link + 1);
    NNC_NEED(c->link, sink);
    l.link = c->link;
    l.n = 0;
    number_links(&l);
    for (int i = f->n_link; i < c->n_link; i++) {
        c->link[i] = c->link[i % f->n_link];
        c->link[i].node = i / f->n_link;
    }
    return NNC_OK;
}

void nnc_cluster_link_name(const nnc_cluster *c, int link, nnc_text *out)
{
    static const char *const names[LINK__COUNT] = {"nvlink", "nvswitch port of", "pcie of",
        "pcie switch", "socket", "memory of socket", "nic"};
    const nnc_link *l = &c->link[link];
    const bool lanes = l->kind == LINK_pcie || l->kind == LINK_switch;
    nnc_printf(out, "node %d: %s %d", l->node, names[l->kind], l->from);
    if (l->kind == LINK_nvlink)
        nnc_printf(out, " -> %d", l->to);
    else if (l->kind != LINK_memory)
        nnc_printf(out, ", %s", lanes ? (l->to ? "down" : "up") : (l->to ? "in" : "out"));
}

/* ---- loading ------------------------------------------------------------------------------------------------------- */

static nnc_cluster *make(nnc_json *json, nnc_status st, const char *file, nnc_sink *sink)
{
    nnc_cluster *c = st ? NULL : nnc_calloc(1, sizeof *c);
    if (c) {
        c->file = nnc_arena_strdup(&c->arena, file);
        st = c->file ? cluster_read(c, json, sink) : nnc_nomem(sink);
        if (!st)
            st = make_links(c, sink);
    } else if (!st) {
        nnc_report_nomem(sink);
    }
    nnc_json_deinit(json);
    if (!st)
        return c;
    nnc_cluster_destroy(c);
    return NULL;
}

nnc_cluster *nnc_cluster_load(const char *file, nnc_sink *sink)
{
    nnc_json json;
    nnc_status st = nnc_json_load(&json, file, sink);
    return make(&json, st, file, sink);
}

nnc_cluster *nnc_cluster_parse(const char *file, const char *text, size_t n, nnc_sink *sink)
{
    nnc_json json;
    nnc_status st = nnc_json_parse(&json, file, text, n, sink);
    return make(&json, st, file, sink);
}

void nnc_cluster_destroy(nnc_cluster *c)
{
    if (!c)
        return;
    for (int k = 0; k < c->n_kind; k++)
        nnc_target_deinit(&c->kind[k].target);
    nnc_arena_deinit(&c->arena);
    nnc_free(c);
}

nnc_cluster_host nnc_cluster_host_of(const nnc_cluster *c)
{
    return c->fabric->host;
}

int64_t nnc_cluster_usable_bytes(const nnc_cluster *c, int device)
{
    const nnc_cluster_kind *k = nnc_cluster_kind_of(c, device);
    return nnc_max64(k->target.memory_bytes - k->context_bytes - k->library_bytes, 0);
}

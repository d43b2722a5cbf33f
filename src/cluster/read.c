/* cluster/read.c -- reads a hardware file (docs/hardware.md; docs/schema/hardware.schema.json describes the same format for editors). */
#include "base/fields.h"
#include "cluster/internal.h"
#include <math.h>
#include <string.h>

#define RATE_MAX 9007199254740991.0

typedef struct reader {
    nnc_field_reader f;
    nnc_cluster *c;
    nnc_fabric *fabric;
    int n_gpu;
} reader;

static const char *const reach[] = {"none", "switch", "socket", "all"}; /* p2p_reach */
enum { REACHES = NNC_COUNT(reach) };

#define F(x) offsetof(nnc_fabric, x)
static const nnc_field nvlink_fields[] = {
    {"bytes_s", NNC_F_int64, F(nvlink_bytes_s), true, 1, RATE_MAX},
    {"latency_ns", NNC_F_int64, F(nvlink_latency_ns), false, 0, 1e9},
    {"relay_share", NNC_F_double, F(relay_share), false, 0, 1},
};
static const nnc_field nvswitch_fields[] = {
    {"bytes_s", NNC_F_int64, F(nvswitch_bytes_s), true, 1, RATE_MAX},
    {"latency_ns", NNC_F_int64, F(nvswitch_latency_ns), false, 0, 1e9},
    {"reduce_bytes_s", NNC_F_int64, F(reduce_bytes_s), false, 0, RATE_MAX},
    {"reduce_latency_ns", NNC_F_int64, F(reduce_latency_ns), false, 0, 1e9},
};
static const nnc_field pcie_fields[] = {
    {"bytes_s", NNC_F_int64, F(pcie_bytes_s), true, 1, RATE_MAX},
    {"uplink_bytes_s", NNC_F_int64, F(uplink_bytes_s), false, 1, RATE_MAX},
    {"pageable_bytes_s", NNC_F_int64, F(pageable_bytes_s), false, 1, RATE_MAX},
    {"latency_ns", NNC_F_int64, F(pcie_latency_ns), false, 0, 1e9},
    {"p2p", NNC_F_word, F(p2p), true, 0, REACHES, reach},
    {"staged_share", NNC_F_double, F(staged_share), false, 0.001, 1},
    {"staged_latency_ns", NNC_F_int64, F(staged_latency_ns), false, 0, 1e9},
};
static const nnc_field socket_fields[] = {
    {"count", NNC_F_int, F(n_socket), true, 1, CL_MAX_NODE},
    {"memory_bytes_s", NNC_F_int64, F(memory_bytes_s), true, 1, RATE_MAX},
    {"copy_bytes_s", NNC_F_int64, F(host_copy_bytes_s), false, 1, RATE_MAX},
    {"link_bytes_s", NNC_F_int64, F(socket_bytes_s), false, 1, RATE_MAX},
    {"latency_ns", NNC_F_int64, F(socket_latency_ns), false, 0, 1e9},
    {"cores", NNC_F_double, F(host.cores), false, 0.001, 65536},
    {"run_ns", NNC_F_int64, F(host.run_ns), false, 0, 1e9},
    {"wake_ns", NNC_F_int64, F(host.wake_ns), false, 0, 1e9},
    {"wake_after_ns", NNC_F_int64, F(host.wake_after_ns), false, 0, 1e9},
    {"wake_from_ns", NNC_F_int64, F(host.wake_from_ns), false, 0, 1e9},
    {"processes", NNC_F_bool, F(host.processes), false, 0, 0},
};
static const nnc_field nic_fields[] = {
    {"count", NNC_F_int, F(n_nic), true, 1, CL_MAX_NODE},
    {"bytes_s", NNC_F_int64, F(nic_bytes_s), true, 1, RATE_MAX},
    {"latency_ns", NNC_F_int64, F(nic_latency_ns), false, 0, 1e9},
};
static const nnc_field collective_fields[] = {
    {"base_ns", NNC_F_int64, F(base_ns), true, 0, 1e9},
    {"hop_ns", NNC_F_int64, F(hop_ns), true, 0, 1e9},
    {"net_hop_ns", NNC_F_int64, F(net_hop_ns), false, 0, 1e9},
    {"tree_hop_ns", NNC_F_int64, F(tree_hop_ns), false, 0, 1e9},
    {"local_bytes_s", NNC_F_int64, F(local_bytes_s), false, 0, RATE_MAX},
};
#undef F
#define K(x) offsetof(nnc_cluster_kind, x)
static const nnc_field kind_fields[] = {
    {"count", NNC_F_int, K(count), true, 1, CL_MAX_NODE},
    {"source", NNC_F_string, K(source), false, 0, 0},
    {"command_ns", NNC_F_int64, K(command_ns), false, 0, 1e9},
    {"host_ns", NNC_F_int64, K(host_ns), false, 0, 1e9},
    {"run_ns", NNC_F_int64, K(run_ns), false, 0, 1e9},
    {"context_bytes", NNC_F_int64, K(context_bytes), false, 0, RATE_MAX},
    {"library_bytes", NNC_F_int64, K(library_bytes), false, 0, RATE_MAX},
    {"copy_engines", NNC_F_int, K(copy_engines), false, 1, 16},
    {"overlap", NNC_F_double, K(overlap), false, 1, 100},
};
#undef K
#define O(x) offsetof(nnc_op_speed, x)
static const nnc_field op_fields[] = {
    {"class", NNC_F_string, O(op_class), true, 0, 0},
    {"efficiency", NNC_F_double, O(efficiency), false, 0.000001, 16},
    {"memory", NNC_F_double, O(memory), false, 0.000001, 16},
    {"ramp_ns", NNC_F_int64, O(ramp_ns), false, 0, 1e9},
    {"contention", NNC_F_double, O(contention), false, 0.001, 1000},
    {"spread", NNC_F_double, O(spread), false, 0, 1e6},
};
#undef O
#define C(x) offsetof(nnc_cluster, x)
static const nnc_field root_fields[] = {
    {"name", NNC_F_string, C(name), true, 0, 0},
    {"source", NNC_F_string, C(source), false, 0, 0},
    {"nodes", NNC_F_int, C(n_node), false, 1, 65536},
};
#undef C

static nnc_status bad(reader *r, const nnc_item *at, const char *name, const char *expected)
{
    return nnc_fields_bad(&r->f, at, name, expected);
}

/* A member that is an object; NULL with NNC_OK: absent. */
static nnc_status object(reader *r, const nnc_item *of, const char *name, const nnc_item **out)
{
    *out = nnc_json_get(of, name);
    return *out && !nnc_is_object(*out) ? bad(r, *out, name, "an object") : NNC_OK;
}

/* A member that is a list of 1 to `most` elements. */
static nnc_status list(
    reader *r, const nnc_item *of, const char *name, int most, const nnc_item **out)
{
    char expected[64];
    *out = nnc_json_get(of, name);
    if (!*out)
        return nnc_fields_missing(&r->f, of, name);
    nnc_snprintf(expected, sizeof expected, "a list of 1 to %d elements", most);
    return nnc_is_list(*out) && (*out)->n >= 1 && (*out)->n <= most ? NNC_OK
                                                                    : bad(r, *out, name, expected);
}

static nnc_status read_number(
    reader *r, const nnc_item *v, const char *name, double lo, double hi, bool integer, double *out)
{
    char range[96];
    nnc_snprintf(
        range, sizeof range, "%s from %.16g to %.16g", integer ? "an integer" : "a number", lo, hi);
    if (!nnc_is_number(v) || !(v->number >= lo && v->number <= hi) ||
        (integer && v->number != floor(v->number)))
        return bad(r, v, name, range);
    *out = v->number;
    return NNC_OK;
}

/* [[work, ns], ...] with increasing work. */
static nnc_status read_points(reader *r, const nnc_item *of, int *n, nnc_point **out)
{
    const nnc_item *points;
    NNC_TRY(list(r, of, "points", 4096, &points));
    *out = ARENA_NEW(&r->c->arena, nnc_point, points->n);
    NNC_NEED(*out, r->f.sink);
    *n = 0;
    for (const nnc_item *v = points->child; v; v = v->next, ++*n) {
        double work = 0, ns = 0;
        if (!nnc_is_list(v) || v->n != 2)
            return bad(r, v, "points", "pairs of work and nanoseconds");
        NNC_TRY(read_number(r, v->child, "points", 1, RATE_MAX, true, &work));
        NNC_TRY(read_number(r, v->child->next, "points", 1, 1e15, true, &ns));
        (*out)[*n] = (nnc_point){(int64_t)work, (int64_t)ns};
        if (*n && (*out)[*n].work <= (*out)[*n - 1].work)
            return bad(r, v, "points", "increasing work");
    }
    return NNC_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static nnc_dtype dtype_named(const char *name)
{
    nnc_dtype d;
    return nnc_dtype_parse(name, strlen(name), &d) ? d : DT__COUNT;
}

static nnc_status unknown_dtype(reader *r, const nnc_item *at, bool key, const char *name)
{
    const char *names[DT__COUNT + 1];
    int n = 0;
    for (int d = 0; d < DT__COUNT; d++)
        names[n++] = nnc_dtype_name((nnc_dtype)d);
    names[n++] = "tf32";
    const char *near = nnc_nearest(name, names, (size_t)n);
    NNC_LOCAL(nnc_text) all = {0};
    for (int i = 0; i < n; i++)
        nnc_printf(&all, "%s%s", i ? " " : "", names[i]);
    return nnc_fail(r->f.sink, NNC_E_USAGE, nnc_json_loc(r->f.json, at, key),
        "%s: unknown dtype \"%s\"%s%s%s (there are: %s)", r->f.what, name,
        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", nnc_text_str(&all));
}

/* Peaks by dtype; those that a target has too are its own then. */
static nnc_status read_flops(reader *r, nnc_cluster_kind *k, const nnc_item *of)
{
    const nnc_item *flops;
    NNC_TRY(object(r, of, "flops", &flops));
    k->flops[DT_f32] = k->target.flops_f32;
    k->flops[DT_f16] = k->flops[DT_bf16] = k->target.flops_f16;
    for (const nnc_item *v = nnc_json_first(flops); v; v = v->next) {
        double rate = 0;
        const nnc_dtype d = dtype_named(v->key);
        const bool tf32 = !strcmp(v->key, "tf32");
        if (d == DT__COUNT && !tf32)
            return unknown_dtype(r, v, true, v->key);
        NNC_TRY(read_number(r, v, v->key, d == DT_f32 ? 1 : 0, RATE_MAX, true, &rate));
        if (tf32)
            k->target.flops_tf32 = (int64_t)rate;
        else
            k->flops[d] = (int64_t)rate;
    }
    k->target.flops_f32 = k->flops[DT_f32];
    if (k->target.flops_f16 > 0) /* tensor cores; without them nnc computes f16 in f32 */
        k->target.flops_f16 = k->flops[DT_f16];
    return NNC_OK;
}

static nnc_status read_op(reader *r, const nnc_item *v, nnc_op_speed *op)
{
    if (!nnc_is_object(v))
        return bad(r, v, "ops", "objects with a class");
    const double share = nnc_json_get(v, "points") ? 0 : 1; /* of what points do not replace */
    *op = (nnc_op_speed){.efficiency = share, .memory = share, .any_dtype = true};
    NNC_TRY(NNC_FIELDS(&r->f, v, op_fields, "dtype points", op));
    const nnc_item *dtype = nnc_json_get(v, "dtype");
    if (dtype && !nnc_is_string(dtype))
        return bad(r, dtype, "dtype", "a string");
    if (dtype) {
        op->any_dtype = false;
        op->tf32 = !strcmp(dtype->text, "tf32");
        op->dtype = op->tf32 ? DT_f32 : dtype_named(dtype->text);
        if (op->dtype == DT__COUNT)
            return unknown_dtype(r, dtype, false, dtype->text);
    }
    return nnc_json_get(v, "points") ? read_points(r, v, &op->n_point, &op->point) : NNC_OK;
}

static nnc_status read_ops(reader *r, nnc_cluster_kind *k, const nnc_item *of)
{
    const nnc_item *ops;
    if (!nnc_json_get(of, "ops"))
        return NNC_OK;
    NNC_TRY(list(r, of, "ops", 1024, &ops));
    k->op = ARENA_NEW(&r->c->arena, nnc_op_speed, ops->n);
    NNC_NEED(k->op, r->f.sink);
    for (const nnc_item *v = ops->child; v; v = v->next)
        NNC_TRY(read_op(r, v, &k->op[k->n_op++]));
    return NNC_OK;
}

/* Reports an unknown target twice: what would be right, and where it is. */
static nnc_status check_target(reader *r, const nnc_item *target)
{
    nnc_target probe;
    if (!strcmp(target->text, "cpu"))
        return NNC_OK;
    nnc_status st = nnc_target_cuda(&probe, target->text, NULL);
    nnc_target_deinit(&probe);
    if (st == NNC_OK)
        return st;
    st = nnc_target_cuda(&probe, target->text, r->f.sink);
    nnc_target_deinit(&probe);
    if (st != NNC_E_USAGE) /* memory ran out, then or now */
        return st ? st : nnc_nomem(r->f.sink);
    return bad(r, target, "target", "cpu, or a GPU as above");
}

static nnc_status read_kind(reader *r, const nnc_item *v, nnc_cluster_kind *k)
{
    if (!nnc_is_object(v))
        return bad(r, v, "devices", "objects with a target and a count");
    k->copy_engines = 1;
    k->command_ns = -1;
    k->overlap = 1;
    k->source = "";
    NNC_TRY(NNC_FIELDS(&r->f, v, kind_fields, "target machine flops ops", k));
    const nnc_item *target = nnc_json_get(v, "target"), *machine = nnc_json_get(v, "machine");
    if (!target)
        return nnc_fields_missing(&r->f, v, "target");
    if (!nnc_is_string(target))
        return bad(r, target, "target", "a string: cpu, cuda:sm_80");
    if (!strcmp(target->text, "cpu") && !machine)
        return nnc_fields_missing(&r->f, v, "machine");
    NNC_TRY(check_target(r, target));
    NNC_TRY(
        nnc_target_described(&k->target, target->text, r->f.what, r->f.json, machine, r->f.sink));
    NNC_TRY(read_flops(r, k, v));
    return read_ops(r, k, v);
}

static nnc_status read_devices(reader *r, const nnc_item *root)
{
    const nnc_item *devices;
    nnc_cluster *c = r->c;
    NNC_TRY(list(r, root, "devices", 16, &devices));
    c->kind = ARENA_NEW(&c->arena, nnc_cluster_kind, devices->n);
    c->kind_of = ARENA_NEW(&c->arena, uint8_t, CL_MAX_NODE);
    NNC_NEED(c->kind && c->kind_of, r->f.sink);
    for (const nnc_item *v = devices->child; v; v = v->next) {
        const int at = c->n_kind++; /* released with the cluster, however far it was read */
        nnc_cluster_kind *k = &c->kind[at];
        NNC_TRY(read_kind(r, v, k));
        if (c->per_node + k->count > CL_MAX_NODE)
            return bad(r, v, "devices", "at most 64 devices in a node");
        for (int i = 0; i < k->count; i++)
            c->kind_of[c->per_node++] = (uint8_t)at;
        r->n_gpu += k->target.kind == NNC_T_cuda ? k->count : 0;
    }
    if ((int64_t)c->per_node * c->n_node > 65536)
        return bad(r, nnc_json_get(root, "nodes"), "nodes", "at most 65536 devices in all");
    c->n_device = c->per_node * c->n_node;
    return NNC_OK;
}

/* ---- links ----------------------------------------------------------------------------------------------------------- */

static bool is_gpu(const reader *r, int device)
{
    return r->c->kind[r->c->kind_of[device]].target.kind == NNC_T_cuda;
}

static nnc_status read_device(reader *r, const nnc_item *v, const char *name, int *out)
{
    double d = 0;
    NNC_TRY(read_number(r, v, name, 0, r->c->per_node - 1, true, &d));
    *out = (int)d;
    return is_gpu(r, *out) ? NNC_OK : bad(r, v, name, "the number of a GPU");
}

/* "pairs": [[device, device, links], ...] */
static nnc_status read_nvlink(reader *r, const nnc_item *of)
{
    const nnc_item *pairs;
    nnc_fabric *f = r->fabric;
    f->has_nvlink = true;
    NNC_TRY(NNC_FIELDS(&r->f, of, nvlink_fields, "pairs source", f));
    NNC_TRY(list(r, of, "pairs", CL_MAX_MESH * CL_MAX_MESH, &pairs));
    for (const nnc_item *v = pairs->child; v; v = v->next) {
        int a, b;
        double count = 0;
        if (!nnc_is_list(v) || v->n != 3)
            return bad(r, v, "pairs", "[device, device, number of links]");
        NNC_TRY(read_device(r, v->child, "pairs", &a));
        NNC_TRY(read_device(r, v->child->next, "pairs", &b));
        NNC_TRY(read_number(r, v->child->next->next, "pairs", 1, CL_MAX_RINGS, true, &count));
        if (a == b || f->pair[a * f->n + b])
            return bad(r, v, "pairs", "each pair of different devices once");
        if (a >= CL_MAX_MESH || b >= CL_MAX_MESH)
            return bad(r, v, "pairs", "devices below 16; larger nodes have an nvswitch");
        f->pair[a * f->n + b] = f->pair[b * f->n + a] = (uint8_t)count;
    }
    return NNC_OK;
}

static nnc_status read_switch(reader *r, const nnc_item *v, int at)
{
    static const nnc_field socket[] = {{"socket", NNC_F_int, 0, false, 0, CL_MAX_NODE - 1}};
    const nnc_item *devices;
    nnc_fabric *f = r->fabric;
    if (!nnc_is_object(v))
        return bad(r, v, "switches", "objects with devices and a socket");
    NNC_TRY(NNC_FIELDS(&r->f, v, socket, "devices", &f->switch_socket[at]));
    if (f->switch_socket[at] >= f->n_socket)
        return bad(r, nnc_json_get(v, "socket"), "socket", "one of the node's sockets, from 0");
    NNC_TRY(list(r, v, "devices", CL_MAX_NODE, &devices));
    for (const nnc_item *d = devices->child; d; d = d->next) {
        int device;
        NNC_TRY(read_device(r, d, "devices", &device));
        if (f->switch_of[device] >= 0)
            return bad(r, d, "devices", "each GPU at one switch");
        f->switch_of[device] = at;
    }
    return NNC_OK;
}

static nnc_status read_pcie(reader *r, const nnc_item *of)
{
    const nnc_item *switches;
    nnc_fabric *f = r->fabric;
    f->has_pcie = true;
    f->staged_share = 1;
    NNC_TRY(NNC_FIELDS(&r->f, of, pcie_fields, "switches source", f));
    f->uplink_bytes_s = f->uplink_bytes_s ? f->uplink_bytes_s : f->pcie_bytes_s;
    NNC_TRY(list(r, of, "switches", CL_MAX_NODE, &switches));
    f->n_switch = switches->n;
    int at = 0;
    for (const nnc_item *v = switches->child; v; v = v->next)
        NNC_TRY(read_switch(r, v, at++));
    for (int d = 0; d < f->n; d++)
        if (is_gpu(r, d) && f->switch_of[d] < 0)
            return nnc_fail(r->f.sink, NNC_E_USAGE, nnc_json_loc(r->f.json, switches, false),
                "%s: switches: GPU %d is at none of them", r->f.what, d);
    return NNC_OK;
}

/* "efficiency": {"bytes": [...], "nodes": [...], "share": [[by nodes], ...by bytes]} */
static nnc_status read_efficiency(reader *r, const nnc_item *of)
{
    const nnc_item *bytes, *nodes, *rows;
    nnc_fabric *f = r->fabric;
    double x = 0, before = 0;
    int i = 0;
    NNC_TRY(nnc_fields_read(&r->f, of, NULL, 0, "bytes nodes share source", f));
    NNC_TRY(list(r, of, "bytes", 64, &bytes));
    NNC_TRY(list(r, of, "nodes", 64, &nodes));
    NNC_TRY(list(r, of, "share", 64, &rows));
    f->size = ARENA_NEW(&r->c->arena, int64_t, bytes->n);
    f->nodes = ARENA_NEW(&r->c->arena, int, nodes->n);
    f->share = ARENA_NEW(&r->c->arena, double, bytes->n * nodes->n);
    NNC_NEED(f->size && f->nodes && f->share, r->f.sink);
    for (const nnc_item *v = bytes->child; v; v = v->next, before = x) {
        NNC_TRY(read_number(r, v, "bytes", before + 1, RATE_MAX, true, &x));
        f->size[f->n_size++] = (int64_t)x;
    }
    before = 0;
    for (const nnc_item *v = nodes->child; v; v = v->next, before = x) {
        NNC_TRY(read_number(r, v, "nodes", before + 1, 65536, true, &x));
        f->nodes[f->n_nodes++] = (int)x;
    }
    if (rows->n != bytes->n)
        return bad(r, rows, "share", "a row for each element of \"bytes\"");
    for (const nnc_item *row = rows->child; row; row = row->next) {
        if (!nnc_is_list(row) || row->n != nodes->n)
            return bad(r, row, "share", "a number for each element of \"nodes\"");
        for (const nnc_item *v = row->child; v; v = v->next)
            NNC_TRY(read_number(r, v, "share", 0.000001, 1, false, &f->share[i++]));
    }
    return NNC_OK;
}

static nnc_status read_nics(reader *r, const nnc_item *of)
{
    const nnc_item *table;
    r->fabric->has_nics = true;
    NNC_TRY(NNC_FIELDS(&r->f, of, nic_fields, "efficiency source", r->fabric));
    NNC_TRY(object(r, of, "efficiency", &table));
    return table ? read_efficiency(r, table) : NNC_OK;
}

static nnc_status read_measured(reader *r, const nnc_item *v, measured *m)
{
    static const nnc_field fields[] = {{"collective", NNC_F_word, offsetof(measured, kind), true, 0,
                                           GROUP__COUNT, nnc_group_op_names},
        {"devices", NNC_F_int, offsetof(measured, devices), true, 2, CL_MAX_NODE}};
    if (!nnc_is_object(v))
        return bad(r, v, "measured", "objects with collective, devices and points");
    NNC_TRY(NNC_FIELDS(&r->f, v, fields, "points", m));
    return read_points(r, v, &m->n, &m->point);
}

static nnc_status read_collectives(reader *r, const nnc_item *of)
{
    const nnc_item *rows;
    nnc_fabric *f = r->fabric;
    NNC_TRY(NNC_FIELDS(&r->f, of, collective_fields, "measured source", f));
    if (!nnc_json_get(of, "measured"))
        return NNC_OK;
    NNC_TRY(list(r, of, "measured", 1024, &rows));
    f->measured = ARENA_NEW(&r->c->arena, measured, rows->n);
    NNC_NEED(f->measured, r->f.sink);
    for (const nnc_item *v = rows->child; v; v = v->next)
        NNC_TRY(read_measured(r, v, &f->measured[f->n_measured++]));
    return NNC_OK;
}

static nnc_status read_sockets(reader *r, const nnc_item *root)
{
    const nnc_item *sockets;
    nnc_fabric *f = r->fabric;
    NNC_TRY(object(r, root, "sockets", &sockets));
    if (!sockets)
        return nnc_fields_missing(&r->f, root, "sockets");
    NNC_TRY(NNC_FIELDS(&r->f, sockets, socket_fields, "source", f));
    if (f->n_socket > 1 && !f->socket_bytes_s)
        return nnc_fields_missing(&r->f, sockets, "link_bytes_s");
    f->host_copy_bytes_s = f->host_copy_bytes_s ? f->host_copy_bytes_s : f->memory_bytes_s / 2;
    return NNC_OK;
}

static nnc_status make_fabric(reader *r)
{
    nnc_cluster *c = r->c;
    nnc_arena *a = &c->arena;
    nnc_fabric *f = c->fabric = r->fabric = ARENA_NEW(a, nnc_fabric, 1);
    NNC_NEED(f, r->f.sink);
    f->n = c->per_node;
    f->host.processes = true;
    f->pair = ARENA_NEW(a, uint8_t, f->n * f->n);
    f->switch_of = ARENA_NEW(a, int, f->n);
    f->switch_socket = ARENA_NEW(a, int, CL_MAX_NODE);
    NNC_NEED(f->pair && f->switch_of && f->switch_socket, r->f.sink);
    for (int i = 0; i < f->n; i++)
        f->switch_of[i] = -1;
    return NNC_OK;
}

static nnc_status read_links(reader *r, const nnc_item *root)
{
    static const struct {
        const char *name;
        nnc_status (*read)(reader *r, const nnc_item *of);
    } parts[] = {{"nvlink", read_nvlink}, {"pcie", read_pcie}, {"nics", read_nics},
        {"collectives", read_collectives}};
    const nnc_item *v;
    NNC_TRY(make_fabric(r));
    NNC_TRY(read_sockets(r, root));
    for (size_t i = 0; i < NNC_COUNT(parts); i++) {
        NNC_TRY(object(r, root, parts[i].name, &v));
        if (v)
            NNC_TRY(parts[i].read(r, v));
    }
    NNC_TRY(object(r, root, "nvswitch", &v));
    if (v) {
        r->fabric->has_nvswitch = true;
        NNC_TRY(NNC_FIELDS(&r->f, v, nvswitch_fields, "source", r->fabric));
    }
    if (r->n_gpu && !r->fabric->has_pcie)
        return nnc_fields_missing(&r->f, root, "pcie");
    if (r->c->n_node > 1 && !r->fabric->has_nics)
        return nnc_fields_missing(&r->f, root, "nics");
    if (!nnc_json_get(root, "collectives"))
        return nnc_fields_missing(&r->f, root, "collectives");
    return NNC_OK;
}

nnc_status cluster_read(nnc_cluster *c, const nnc_json *json, nnc_sink *sink)
{
    static const char also[] = "$schema devices sockets nvlink nvswitch pcie nics collectives";
    const nnc_item *root = json->root;
    reader r = {.f = {json, "hardware file", &c->arena, sink}, .c = c};
    if (!nnc_is_object(root))
        return bad(&r, root, "the file", "an object");
    c->n_node = 1;
    c->source = "";
    NNC_TRY(NNC_FIELDS(&r.f, root, root_fields, also, c));
    NNC_TRY(read_devices(&r, root));
    return read_links(&r, root);
}

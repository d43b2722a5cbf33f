/* bench/gpu_share.c -- see gpu_share.h. */
#include "gpu_share.h"
#include "plan/plan.h"
#include <math.h>
#include <string.h>

enum {
    SM_REGISTERS = 65536,
    WARP_REGISTERS = 256, /* registers are allocated to warps in multiples of this */
    RESERVED_SHARED = 1024, /* of each block */
    SCHEDULERS = 4,
    FLOAT_LANES = 128,
    INTEGER_LANES = 64,
    SPECIAL_LANES = 16,
    L1_BYTES = 128, /* a clock */
    L1_SIZE = 128 << 10, /* what shared memory leaves of it, on sm_80 and sm_90 */
    L2_BYTES = 64,
    L2_CLOCKS = 300, /* latency, loaded */
    OTHER_CLOCKS = 30 /* latency of shared memory, shuffles, special functions */
};
static const double memory_latency_s = 700e-9;

const char *const nnc_gpu_limit_names[GL__COUNT] = {
    "memory", "issue", "float", "integer", "special", "L1", "L2", "latency"};

double nnc_gpu_needed(const nnc_target *t)
{
    return (double)t->copy_bytes_s / 0.9 * memory_latency_s / t->sms;
}

static int most_blocks(int sm)
{
    return sm == 75 || sm == 86 ? 16 : sm == 89 || sm == 120 ? 24 : 32;
}

int nnc_gpu_resident(const nnc_target *t, int threads, int registers, int64_t shared)
{
    const int warps = (threads + 31) / 32;
    const int64_t regs = nnc_align_up((int64_t)registers * 32, WARP_REGISTERS) * warps,
                  of_sm = t->sm == 75 ? 64 << 10 : t->shared_bytes + RESERVED_SHARED,
                  bytes = shared + (t->sm >= 80 ? RESERVED_SHARED : 0);
    int64_t n = nnc_min64(most_blocks(t->sm), t->sm_threads / threads);
    n = regs > 0 ? nnc_min64(n, SM_REGISTERS / regs) : n;
    n = bytes > 0 ? nnc_min64(n, of_sm / bytes) : n;
    return n < 1 ? 1 : (int)n;
}

/* ---- iterations of loops ------------------------------------------------------------------------------------------- */

/* Elements that a load is executed for, in vectors of which it is one where it is the same for all lanes. */
static double executions(
    const nnc_kernel *k, const cu_rows *r, int stage, int32_t id, const nnc_kins *in)
{
    const nnc_kgrid *g = &k->grid;
    const nnc_kstage *s = &k->stage[stage];
    uint32_t axes = ((1u << k->n_outer) - 1) | s->axes;
    for (int a = 0; a < k->n_axis && id >= s->body1; a++)
        axes &= ~((uint32_t)(k->axis[a].kind == KA_reduce) << a);
    double n = (double)nnc_kernel_points(k, axes);
    nnc_walk w;
    cu_contract x;
    cu_ctile tile;
    if (g->cls == KC_contract && cu_contract_of(k, &x) && cu_contract_tile(g, &x, &tile)) {
        const double steps = (double)nnc_align_up(x.k, tile.terms);
        return id == x.w            ? (double)g->blocks * g->vec * steps
               : id < s->body1      ? (double)g->blocks * g->group * steps
               : in->at.k[x.column] ? (double)(x.m * x.n)
                                    : (double)(x.m * x.n) / tile.lanes;
    }
    if (nnc_walk_of(k, &w)) { /* rows of the source are loaded once, and the last one again */
        const bool source = id < s->body1 && in->at.k[w.map] != 0;
        const double both = (double)k->axis[w.map].extent * (double)k->axis[w.taps].extent;
        n = source                 ? n / both * (double)(w.rows + 1)
            : in->at.k[w.map] == 0 ? n / (double)k->axis[w.map].extent
                                   : n;
    }
    const bool row = g->cls == KC_row;
    const int axis = row ? cu_last_axis(r->stage[stage].spread) : g->axis,
              vec = row ? r->stage[stage].vec : g->vec;
    return axis >= 0 && in->at.k[axis] == 0 ? n / vec : n;
}

/* Bytes that a thread loads from global memory, by the kernel IR. */
static double loads_of_thread(const nnc_kernel *k, const cu_rows *r)
{
    double bytes = 0;
    for (int i = 0; i < k->n_stage; i++)
        for (int32_t id = k->stage[i].body0; id < k->stage[i].post1; id++) {
            const nnc_kins *in = &k->ins[id];
            const bool tmp = in->op == KO_load && k->buf[in->buf].role == KB_tmp;
            if (in->op == KO_load && r->as[id] < 0 && (!tmp || k->grid.spill))
                bytes += executions(k, r, i, id, in) * nnc_dtype_size(k->buf[in->buf].dtype);
        }
    return bytes / ((double)k->grid.blocks * k->grid.threads);
}

/* The loops' code loads what is not loaded outside of them. It is a part of an iteration where the path has unrolled code that few
 * threads go through. Without such loads: one iteration. */
static double trips_of(double loads, const nnc_cubin_path *c)
{
    return c->loop.loads > 0 ? fmax(loads - c->once.loads, 0) / c->loop.loads : 1;
}

/* ---- times --------------------------------------------------------------------------------------------------------- */

typedef struct launch {
    const nnc_target *t;
    const nnc_cubin_path *c;
    double blocks, bytes, trips;
    int threads, resident, stack; /* stack: bytes of a thread's local memory */
    bool cached;
} launch;

static double of_path(const launch *l, int once, int loop)
{
    return once + loop * l->trips;
}

static double of_class(const launch *l, nnc_cubin_class class)
{
    return of_path(l, l->c->once.n[class], l->c->loop.n[class]);
}

/* Average latency of a load: what is loaded beyond the bytes that the kernel must move comes from caches. */
static double latency_s(const launch *l)
{
    const double cache = L2_CLOCKS / (double)l->t->clock_hz, threads = l->blocks * l->threads,
                 loads = of_path(l, l->c->once.loads, l->c->loop.loads) * threads,
                 stores = of_path(l, l->c->once.stores, l->c->loop.stores) * threads,
                 must = fmin(loads, fmax(l->bytes - stores, 0));
    return l->cached || loads <= 0 ? cache : cache + (memory_latency_s - cache) * must / loads;
}

/* Seconds of a block that has an SM to itself. */
static double block_s(const launch *l)
{
    const nnc_cubin_work *o = &l->c->once, *p = &l->c->loop;
    const double clock = (double)l->t->clock_hz, ahead = of_path(l, o->ahead, p->ahead) / clock,
                 waits = fmax(of_path(l, o->waits, p->waits) * latency_s(l) - ahead, 0),
                 others = of_path(l, o->other_waits, p->other_waits) * OTHER_CLOCKS,
                 stalls = of_path(l, o->stalls, p->stalls),
                 issue = of_path(l, o->issued, p->issued) * l->threads / 32 / SCHEDULERS,
                 port = l->bytes / l->blocks / L2_BYTES;
    return waits + (others + fmax(stalls, issue) + port) / clock;
}

/* Warps of the busiest SM; where each SM has many blocks, of the average. */
static double warps_of_sm(const launch *l)
{
    const double each = l->blocks / l->t->sms;
    return (each > 2.0 * l->resident ? each : ceil(each)) * l->threads / 32;
}

static void times(const launch *l, nnc_gpu_share *s)
{
    const double clock = (double)l->t->clock_hz, warps = warps_of_sm(l),
                 waves = l->blocks / ((double)l->resident * l->t->sms),
                 rate = (double)(l->cached ? l->t->cache_bytes_s : l->t->copy_bytes_s),
                 loads = of_path(l, l->c->once.loads, l->c->loop.loads),
                 local = of_path(l, l->c->once.local, l->c->loop.local),
                 stacks = (double)l->stack * l->threads * l->resident,
                 integer = of_class(l, CC_integer) + of_class(l, CC_move);
    s->us[GL_memory] = l->bytes / rate;
    s->us[GL_issue] = warps * of_path(l, l->c->once.issued, l->c->loop.issued) / SCHEDULERS / clock;
    s->us[GL_float] = warps * 32 * of_class(l, CC_real) / FLOAT_LANES / clock;
    s->us[GL_integer] = warps * 32 * integer / INTEGER_LANES / clock;
    s->us[GL_special] = warps * 32 * of_class(l, CC_mufu) / SPECIAL_LANES / clock;
    s->us[GL_l1] = warps * 32 * (loads + local) / L1_BYTES / clock;
    s->us[GL_l2] = stacks > L1_SIZE ? warps * 32 * local / L2_BYTES / clock : 0;
    s->us[GL_latency] = fmax(waves, 1) * block_s(l);
    for (int i = 0; i < GL__COUNT; i++) {
        s->us[i] *= 1e6;
        s->bound = s->us[i] > s->us[s->bound] ? (nnc_gpu_limit)i : s->bound;
    }
    s->total_us = s->us[s->bound] + (s->bound == GL_latency ? 0 : latency_s(l) * 1e6);
    s->share = l->bytes / (double)l->t->copy_bytes_s * 1e6 / s->total_us;
}

static double stored_elements(const nnc_kernel *k)
{
    double n = 0;
    for (int b = 0; b < k->n_buf; b++)
        n += k->buf[b].role == KB_out ? (double)k->buf[b].numel : 0;
    return n > 0 ? n : 1;
}

nnc_status nnc_gpu_share_of(const nnc_target *t, const nnc_kernel *k, const nnc_cubin_kernel *c,
    bool finish, double bytes, bool cached, nnc_gpu_share *out, nnc_sink *sink)
{
    const nnc_kgrid *g = &k->grid;
    cu_rows rows = {0};
    nnc_cubin_path p;
    *out = (nnc_gpu_share){0};
    NNC_NEED(nnc_cubin_path_of(c, &p), sink);
    if (!cu_rows_plan(&rows, k, g)) {
        cu_rows_deinit(&rows);
        return nnc_nomem(sink);
    }
    launch l = {.t = t,
        .c = &p,
        .bytes = bytes,
        .threads = g->threads,
        .stack = c->stack_bytes,
        .cached = cached || finish};
    l.blocks = (double)(finish ? g->finish : g->blocks);
    const double loads =
        finish ? (double)g->work / (l.blocks * g->threads) : loads_of_thread(k, &rows);
    l.trips = trips_of(loads, &p);
    cu_rows_deinit(&rows);
    l.resident =
        nnc_gpu_resident(t, g->threads, c->registers, c->shared_bytes + (finish ? 0 : g->shared));
    out->resident = l.resident;
    out->trips = l.trips;
    out->seen = loads > 0 ? of_path(&l, p.once.loads, p.loop.loads) / loads : 1;
    out->instructions =
        of_path(&l, p.once.issued, p.loop.issued) * l.blocks * l.threads / stored_elements(k);
    out->flight = (double)p.flight * l.threads * fmin(l.resident, ceil(l.blocks / t->sms));
    times(&l, out);
    return NNC_OK;
}

/* ---- plans --------------------------------------------------------------------------------------------------------- */

typedef struct table { /* machine code of all of a plan's kernels */
    nnc_cubin_kernel **code;
    int *n, objects;
} table;

static nnc_status read_objects(const nnc_plan *p, nnc_arena *a, table *out, nnc_sink *sink)
{
    *out = (table){0};
    out->objects = p->n_object;
    out->code = ARENA_NEW(a, nnc_cubin_kernel *, p->n_object + 1);
    out->n = ARENA_NEW(a, int, p->n_object + 1);
    NNC_NEED(out->code && out->n, sink);
    for (int i = 0; i < p->n_object; i++) {
        int sm;
        if (nnc_cubin_read(
                p->object[i].data, p->object[i].n, a, &out->code[i], &out->n[i], &sm, NULL))
            out->n[i] = 0; /* PTX, or another GPU's code */
    }
    return NNC_OK;
}

/* The code of a kernel's launch, or of the second one of a split kernel, whose name ends in `suffix`. */
static const nnc_cubin_kernel *find(const table *t, const nnc_pkernel *pk, const char *suffix)
{
    const char *name;
    const size_t n = nnc_pkernel_function(pk, &name);
    for (int i = 0; i < t->objects; i++)
        for (int j = 0; j < t->n[i]; j++)
            if (!strncmp(t->code[i][j].name, name, n) && !strcmp(t->code[i][j].name + n, suffix))
                return &t->code[i][j];
    return NULL;
}

static nnc_status add(const nnc_cmd *cmd, const nnc_pkernel *pk, const nnc_kernel *k,
    const table *codes, const nnc_target *t, bool finish, bool cached, nnc_gpu_launches *out,
    nnc_sink *sink)
{
    const nnc_cubin_kernel *c = find(codes, pk, finish ? "_finish" : "");
    if (!c) {
        out->others++;
        return NNC_OK;
    }
    nnc_gpu_launch *l = &out->launch[out->n++];
    *l = (nnc_gpu_launch){.symbol = pk->code ? pk->symbol : c->name,
        .layers = cmd->layers,
        .threads = k->grid.threads,
        .blocks = finish ? k->grid.finish : k->grid.blocks,
        .bytes = finish ? (double)k->grid.work : (double)cmd->bytes,
        .elements = stored_elements(k),
        .code = c};
    NNC_TRY(nnc_gpu_share_of(t, k, c, finish, l->bytes, cached, &l->share, sink));
    out->us += l->share.total_us;
    return NNC_OK;
}

nnc_status nnc_gpu_launches_of(
    const nnc_plan *p, const nnc_target *t, nnc_arena *a, nnc_gpu_launches *out, nnc_sink *sink)
{
    table codes;
    double bytes = 0;
    *out = (nnc_gpu_launches){.launch = ARENA_NEW(a, nnc_gpu_launch, 2 * p->n_cmd + 1)};
    NNC_NEED(out->launch, sink);
    NNC_TRY(read_objects(p, a, &codes, sink));
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        bytes += (double)p->cmd[i].bytes;
    const bool cached = bytes < (double)t->l3_bytes;
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        out->others += c->kind == CMD_call || c->kind == CMD_copy || c->kind == CMD_collective;
        if (c->kind != CMD_kernel)
            continue;
        const nnc_pkernel *pk = &p->kernel[c->item];
        nnc_scan s;
        nnc_scan_init(&s, pk->symbol, pk->ir, strlen(pk->ir));
        const nnc_kernel *k = nnc_schedule_parse(&s, a, sink);
        NNC_NEED(k, sink);
        NNC_TRY(add(c, pk, k, &codes, t, false, cached, out, sink));
        if (k->grid.finish > 0)
            NNC_TRY(add(c, pk, k, &codes, t, true, cached, out, sink));
    }
    return NNC_OK;
}

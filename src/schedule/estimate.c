/* schedule/estimate.c -- the time that a scheduled kernel is expected to take on a CPU. A linear model: the number of machine-vector
 * instructions of each kind, times the kind's price (cost/prices.def). It accounts for unused lanes, accesses that are not contiguous,
 * values computed again, rows too short for their fixed costs, and idle threads.
 *
 * The stages of a row wait for each other. Only rows that fit the reorder window hide the path through all of them, or on AMD's cores those
 * that fit the registers. There each iteration of a stage is a chain, too, beside the others that fit. */
#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Instructions with a vector result that are in flight on AMD's cores: 192 vector registers less those that loops keep. */
    WAITING = 160,
    STREAMS = 16,
    LINE = 64, /* bytes */
};

typedef struct counter {
    const nnc_kernel *k;
    const uint32_t *dep; /* by instruction: the axes that its value depends on */
    const nnc_kring *ring;
    nnc_core_prices core;
    int64_t lanes; /* f32 elements of a machine vector */
    int64_t streams,
        lines; /* rows that iterations of an outer vector axis access in turn, and their accesses */
    int64_t n[NNC_P__COUNT];
    int64_t steps; /* independent iterations of an outer vector axis at each point */
    int64_t rows; /* rows at once, whose chains overlap */
    int64_t idle; /* ps that stages wait for their own chains, beyond their work */
    int64_t path,
        *depth; /* ps: of a point's stages; by instruction, from the beginning of its section */
} counter;

/* A stage's loops. */
typedef struct loops {
    int vax; /* the vector axis, or -1 */
    bool outer, reduces; /* whether vax is an outer axis; a reduce axis */
    int64_t steps, vectors; /* of the vector axis: iterations, and machine vectors in them all */
    bool masked; /* the last vector is not full */
    uint32_t map; /* the stage's map axes */
    int64_t points; /* of the outer axes */
    int row; /* axis of a ring, which computes `rows` new rows for each point; -1: none */
    int64_t rows;
    uint32_t own; /* the stage's own axes ... */
    int64_t streams; /* ... and their points */
} loops;

static void find_axes(const nnc_kernel *k, uint32_t *dep)
{
    for (int i = 0; i < k->n_ins; i++) {
        dep[i] = nnc_kins_axes(&k->ins[i]);
        for (int a = 0; a < 3; a++)
            dep[i] |= k->ins[i].arg[a] >= 0 ? dep[k->ins[i].arg[a]] : 0;
        if (k->ins[i].op == KO_reduce)
            dep[i] &= ~nnc_reduce_axes(k, i);
    }
}

static int vector_axis(const counter *c, const nnc_kstage *g)
{
    const nnc_kernel *k = c->k;
    int v = nnc_sched_vec(&k->sched);
    if (v < 0 || (v >= k->n_outer && !g->axes))
        return -1;
    if (v >= k->n_outer && !(g->axes >> v & 1))
        v = 31 - __builtin_clz(g->axes);
    return v >= k->n_outer && k->axis[v].extent < 3 ? -1 : v;
}

/* Machine vectors along the vector axis: whole IR vectors, then a remainder that is a power of two. */
static void count_vectors(const counter *c, loops *l)
{
    int64_t n = c->k->axis[l->vax].extent, width = nnc_sched_width(&c->k->sched);
    while (width / 2 >= n && width > 1)
        width /= 2;
    int64_t rest = n % width, last = width;
    while (last / 2 >= rest && last > 1)
        last /= 2;
    l->steps = nnc_ceildiv(n, width);
    l->vectors =
        n / width * nnc_max64(width / c->lanes, 1) + (rest ? nnc_max64(last / c->lanes, 1) : 0);
    l->masked = rest && last != rest;
}

/* Executions, for all points, of an instruction that depends on these axes of the stage, without its vector axis. */
static int64_t executions(const counter *c, const loops *l, uint32_t axes)
{
    int64_t n = l->points;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++)
        if (axes >> a & 1 && a != l->vax)
            n = nnc_mul_sat(n, a == l->row ? l->rows : c->k->axis[a].extent);
    return n;
}

static void add_count(counter *c, int what, int64_t n, int64_t times)
{
    c->n[what] = nnc_add_sat(c->n[what], nnc_mul_sat(n, times));
}

/* Instructions for a vector of f32. ln(1 + e^-|x|), of softplus and mish, becomes a polynomial (math/collapse.c). */
static int64_t steps_of(const nnc_kernel *k, const nnc_kins *in)
{
    enum { UNKNOWN = 60, LOG1P_OF_EXP = 12 };
    const nnc_sop op = (nnc_sop)in->sop;
    int cost = nnc_sops[op].cost;
    if (op == SC_log1p && k->ins[in->arg[0]].op == KO_sop && k->ins[in->arg[0]].sop == SC_exp)
        return LOG1P_OF_EXP;
    return cost > 0 ? cost : nnc_sops[op].flags & OF_slow ? UNKNOWN : 1;
}

/* Math functions of several rows at once take a quarter more (measured on Zen 4). A row has one vector of a function at a time, where
 * elementwise kernels have four or eight. */
static int64_t function_steps(const counter *c, const nnc_kins *in)
{
    const int64_t steps = steps_of(c->k, in);
    return c->rows > 1 && nnc_sops[in->sop].flags & OF_slow ? steps + steps / 4 : steps;
}

/* Does the access move to another page with each step along these axes? A reduce axis' tile goes along memory instead. */
static bool leaves_page(const nnc_kernel *k, const nnc_kins *in, uint32_t axes)
{
    enum { PAGE = 4096 };
    int64_t size = nnc_dtype_size(k->buf[in->buf].dtype);
    for (int a = 0; a < k->n_axis; a++)
        if (axes >> a & 1 && (in->at.k[a] < PAGE / size || nnc_sched_n(&k->sched, KD_tile, a) > 0))
            return false;
    return axes != 0;
}

/* n vectors of an access. */
static void count_access(counter *c, const loops *l, const nnc_kins *in, int64_t n, int64_t size)
{
    bool store = in->op == KO_store;
    int64_t stride = in->at.k[l->vax];
    int across = nnc_sched_axis(&c->k->sched, KD_transpose);
    if (across >= 0 && !store && nnc_kernel_tiles(c->k, in, l->vax, across))
        add_count(c, NNC_P_tile, n, 1);
    else if (in->arg[0] >= 0 && !store && c->dep[in->arg[0]] >> l->vax & 1)
        add_count(c, NNC_P_gather, n, c->lanes);
    else if (stride == 0 || stride == 1 || stride == -1)
        add_count(c, store ? NNC_P_store : NNC_P_load, n, stride ? size : 1);
    else if (stride == 2 && !store)
        add_count(c, NNC_P_load, n, 3);
    else if (store)
        add_count(c, NNC_P_scatter, n, c->lanes);
    else
        add_count(c, labs(stride) < LINE / 4 ? NNC_P_gather : NNC_P_far, n, c->lanes);
    if (l->outer && c->k->buf[in->buf].role != KB_tmp && leaves_page(c->k, in, l->own)) {
        c->streams = nnc_add_sat(c->streams, l->streams);
        c->lines = nnc_add_sat(c->lines, n);
    }
    if (store && l->masked)
        add_count(c, NNC_P_masked, n / l->vectors, 1);
}

/* Is instruction i a function that the posts of a kernel in strips evaluate for several results at once (plugins/llvm/pack.c)? *first: for
 * the first lane of a vector. */
static bool packed_post(const counter *c, const nnc_kstage *g, int i, bool *first)
{
    const nnc_kernel *k = c->k;
    const nnc_kins *in = &k->ins[i];
    int same = 0, before = 0;
    if (i < g->post0 || k->n_stage > 1 || in->op != KO_sop || !(nnc_sops[in->sop].flags & OF_slow))
        return false;
    for (int j = g->post0; j < g->post1; j++) {
        const bool is = k->ins[j].op == KO_sop && k->ins[j].sop == in->sop;
        same += is;
        before += is && j < i;
    }
    *first = before % c->lanes == 0;
    return same > 1;
}

/* Counts n executions of an instruction, on vectors or, without `wide`, on single values. */
static void count_ins(counter *c, const loops *l, const nnc_kins *in, int64_t n, bool wide)
{
    int64_t size = nnc_max64(nnc_dtype_size((nnc_dtype)in->dtype) / 4, 1);
    if (in->op == KO_const || in->op == KO_index)
        return;
    const bool divides = in->op == KO_sop && (in->sop == SC_div || in->sop == SC_sqrt ||
                                                 in->sop == SC_recip || in->sop == SC_rsqrt);
    if (!wide && divides)
        add_count(c, NNC_P_one_divide, n, in->sop == SC_rsqrt ? 2 : 1);
    else if (!wide)
        add_count(c, NNC_P_scalar, n, in->op == KO_sop ? steps_of(c->k, in) : 1);
    else if (in->op == KO_load || in->op == KO_store)
        count_access(c, l, in, n, size);
    else if (in->op == KO_reduce)
        add_count(c, NNC_P_op, n, size * (in->sop >= KR_argmax ? 4 : in->sop >= KR_max ? 2 : 1));
    else if (divides)
        add_count(c, NNC_P_divide, n, in->sop == SC_rsqrt ? 2 * size : size);
    else
        add_count(c, NNC_P_op, n, size * function_steps(c, in));
    if (wide)
        add_count(c, NNC_P_guard, n, in->n_guard);
}

/* lanes_ps: time to combine the lanes of a sum. */
static int64_t latency_of(const counter *c, const nnc_kins *in, int64_t lanes_ps)
{
    const int64_t *ps = c->core.ps;
    switch ((nnc_kop)in->op) {
    case KO_load: return ps[NNC_P_load_wait];
    case KO_reduce: return ps[NNC_P_op_wait] + lanes_ps;
    case KO_sop:
        if (in->sop == SC_div || in->sop == SC_sqrt || in->sop == SC_recip)
            return ps[NNC_P_divide_wait];
        if (in->sop == SC_rsqrt)
            return 2 * ps[NNC_P_divide_wait];
        return nnc_max64(ps[NNC_P_op_wait], steps_of(c->k, in) * ps[NNC_P_function_wait]);
    default: return 0;
    }
}

/* Adds the longest path of dependent instructions first .. end - 1, and returns it. */
static int64_t add_path(counter *c, int first, int end, int64_t lanes_ps)
{
    int64_t longest = 0;
    for (int i = first; i < end; i++) {
        const nnc_kins *in = &c->k->ins[i];
        int64_t from = 0;
        for (int a = 0; a < 3; a++)
            from = nnc_max64(from, in->arg[a] >= first ? c->depth[in->arg[a]] : 0);
        c->depth[i] = from + latency_of(c, in, lanes_ps);
        longest = nnc_max64(longest, c->depth[i]);
    }
    c->path += longest;
    return longest;
}

static int64_t instructions_of(const int64_t *n)
{
    static const int counted[] = {NNC_P_op, NNC_P_load, NNC_P_store, NNC_P_gather, NNC_P_far,
        NNC_P_scatter, NNC_P_scalar, NNC_P_iteration};
    int64_t sum = 0;
    for (int i = 0; i < (int)(sizeof counted / sizeof *counted); i++)
        sum = nnc_add_sat(sum, n[counted[i]]);
    return sum;
}

static int64_t price_of(const counter *c, const int64_t *n)
{
    int64_t ps = 0;
    for (int i = 0; i < NNC_P__COUNT; i++)
        ps = nnc_add_sat(ps, nnc_mul_sat(n[i], c->core.ps[i]));
    return ps;
}

/* Adds the idle time of a stage. Its n iterations are independent but for their sums. Each has a chain of `path` ps, and as many run at a
 * time as fit the registers. before: the counters without the stage. */
static void add_idle(counter *c, const int64_t *before, int64_t n, int64_t path)
{
    int64_t own[NNC_P__COUNT];
    for (int i = 0; i < NNC_P__COUNT; i++)
        own[i] = c->n[i] - before[i];
    const double fit = (double)WAITING * (double)n / (double)nnc_max64(instructions_of(own), 1),
                 waits = (double)path * (double)n / fmax(fmin(fit, (double)n), 1);
    const int64_t work = price_of(c, own), ps = (int64_t)fmin(waits, 1e18);
    c->idle = nnc_add_sat(c->idle, nnc_max64(ps - work, 0));
}

/* Rows that a ring keeps are not computed again. */
static void find_row(const counter *c, const nnc_kstage *g, loops *l)
{
    l->row = -1;
    for (int i = g->body0; i < g->body1; i++) {
        const nnc_kins *in = &c->k->ins[i];
        if (in->op == KO_store && c->ring[in->buf].rows > 0) {
            l->row = c->ring[in->buf].row;
            l->rows = c->ring[in->buf].step;
        }
    }
}

/* Number of steps that combine the lanes of a vector along axis vax; *all: of a full vector. */
static int64_t lane_steps(const counter *c, int vax, int64_t *all)
{
    const int64_t used = nnc_min64(c->k->axis[vax].extent, c->lanes);
    int64_t steps = 0;
    while (1 << steps < used)
        steps++;
    for (*all = 0; 1 << *all < c->lanes;)
        (*all)++;
    *all = nnc_max64(*all, 1);
    return steps;
}

/* Adds the combining of each result's lanes, in halving steps: few lanes take fewer. Rows at once combine theirs together, four in 20
 * instructions instead of 36. */
static void add_lanes(counter *c, const loops *l, int what)
{
    int64_t all, n = executions(c, l, l->map);
    const int64_t steps = lane_steps(c, l->vax, &all);
    n = c->rows > 2   ? nnc_ceildiv(nnc_mul_sat(n, 5), 9)
        : c->rows > 1 ? nnc_ceildiv(nnc_mul_sat(n, 2), 3)
                      : n;
    add_count(c, what, nnc_ceildiv(nnc_mul_sat(n, steps * steps), all * all), 1);
}

/* True for a load of a local buffer that reads what another point stored in the stage before: overlapping windows, or a stride. */
static bool moves_in_tmp(const nnc_kernel *k, const nnc_kins *in, int vax)
{
    bool moves = labs(in->at.k[vax]) > 1;
    for (int a = k->n_outer; a < k->n_axis; a++)
        moves = moves || (k->axis[a].kind == KA_reduce && a != vax && in->at.k[a] != 0);
    return moves && in->op == KO_load && k->buf[in->buf].role == KB_tmp;
}

static void count_stage(counter *c, const nnc_kstage *g, int64_t points)
{
    const nnc_kernel *k = c->k;
    loops l = {.vax = vector_axis(c, g), .steps = 1, .vectors = 1, .points = points};
    l.outer = l.vax >= 0 && l.vax < k->n_outer;
    l.reduces = l.vax >= 0 && k->axis[l.vax].kind == KA_reduce;
    for (int a = k->n_outer; a < k->n_axis; a++)
        l.map |= k->axis[a].kind == KA_map ? g->axes & 1u << a : 0;
    if (l.vax >= 0)
        count_vectors(c, &l);
    find_row(c, g, &l);
    l.own = g->axes;
    l.streams = nnc_own_points(k, g);
    int64_t before[NNC_P__COUNT];
    memcpy(before, c->n, sizeof before);
    bool shuffled = false;
    for (int i = g->body0; i < g->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        bool body = i < g->body1, all = in->op == KO_store || in->op == KO_reduce;
        uint32_t axes = !body ? l.map : all ? g->axes : c->dep[i] & g->axes;
        bool wide = l.vax >= 0 && (l.outer ? all || c->dep[i] >> l.vax & 1 : axes >> l.vax & 1);
        int64_t n = executions(c, &l, axes);
        bool first = false;
        const bool packed = !wide && l.reduces && packed_post(c, g, i, &first);
        if (!packed || first)
            count_ins(c, &l, in,
                nnc_mul_sat(n, wide      ? l.vectors
                               : l.outer ? l.steps
                                         : 1),
                wide || packed);
        if (in->op == KO_reduce && l.reduces)
            add_lanes(c, &l, in->sop >= KR_max ? NNC_P_extreme : NNC_P_sum);
        shuffled = shuffled || (wide && moves_in_tmp(k, in, l.vax));
    }
    if (shuffled)
        add_count(c, NNC_P_forward, points, 1);
    if (l.outer)
        c->steps = l.steps;
    int64_t body = 0;
    if (!l.outer || c->core.by_registers) {
        int64_t all = 1;
        const int64_t steps = l.reduces ? lane_steps(c, l.vax, &all) : 0;
        body = add_path(c, g->body0, g->body1, c->core.ps[NNC_P_lanes_wait] * steps / all);
        add_path(c, g->post0, g->post1, 0);
    }
    if (g->axes || l.outer)
        add_count(c, NNC_P_iteration, executions(c, &l, g->axes), l.steps);
    if (c->core.by_registers && l.vax >= 0)
        add_idle(c, before, nnc_mul_sat(executions(c, &l, g->axes), l.steps), body);
}

/* Picoseconds of all points on one thread. */
static int64_t work_ps(const counter *c, int64_t points)
{
    int64_t per[NNC_P__COUNT], ps = nnc_add_sat(price_of(c, c->n), c->idle), instructions = 1;
    for (int i = 0; i < NNC_P__COUNT; i++)
        per[i] = c->n[i] / points;
    instructions = nnc_add_sat(instructions, instructions_of(per));
    if (c->core.by_registers) {
        const double chains = (double)points * (double)c->steps / (double)c->rows,
                     fit = WAITING * (double)c->steps / (double)(instructions * c->rows),
                     waits = (double)c->path * chains / fmax(fmin(fit, chains), 1);
        const int64_t path = (int64_t)fmin(waits, 1e18); /* the shorter time is not fully hidden */
        return nnc_add_sat(nnc_max64(ps, path), nnc_min64(ps, path) / 4);
    }
    int64_t overlap = nnc_max64(
        c->rows * nnc_min64(c->core.window / nnc_mul_sat(instructions, c->rows), points / c->rows),
        nnc_min64(c->rows, points));
    return nnc_max64(ps, nnc_add_sat(ps, nnc_mul_sat(c->path, points)) / overlap);
}

/* Bytes accessed in all buffers: for part of a larger tensor only the part's. elements: zeroed scratch, by buffer. */
static int64_t accessed_bytes(const nnc_kernel *k, int64_t *elements)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_load && in->op != KO_store)
            continue;
        bool any = nnc_kins_index(in) >= 0;
        int64_t n = any ? INT64_MAX : nnc_kernel_points(k, nnc_affine_axes(&in->at));
        elements[in->buf] = nnc_min64(nnc_add_sat(elements[in->buf], n), k->buf[in->buf].numel);
    }
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role != KB_tmp)
            bytes = nnc_add_sat(bytes, nnc_mul_sat(elements[b], nnc_dtype_size(k->buf[b].dtype)));
    return bytes;
}

static int64_t cpu_ns(const nnc_kernel *k, const nnc_target *t, int64_t *work, nnc_arena *mem)
{
    const bool compiled = !nnc_target_interprets(t);
    uint32_t *dep = ARENA_NEW(mem, uint32_t, k->n_ins + 1);
    nnc_kring *ring;
    int axis;
    counter c = {.k = k, .dep = dep, .steps = 1, .rows = nnc_kernel_rows(k, &axis)};
    int64_t points = 1, *elements = ARENA_NEW(mem, int64_t, k->n_buf + 1);
    const int v = nnc_sched_vec(&k->sched);
    c.depth = ARENA_NEW(mem, int64_t, k->n_ins + 1);
    if (!dep || !c.depth || !elements || !nnc_kernel_rings(k, mem, &ring))
        return -1;
    const int64_t bytes = accessed_bytes(k, elements);
    c.core = nnc_target_prices(t);
    c.ring = ring;
    c.lanes = nnc_max64(t->vector_bits, 128) / 32;
    find_axes(k, dep);
    for (int a = 0; a < k->n_outer; a++)
        points = a == v ? points : nnc_mul_sat(points, k->axis[a].extent);
    for (int s = 0; s < k->n_stage; s++)
        count_stage(&c, &k->stage[s], points);
    add_count(&c, NNC_P_item, k->sched.domain, 1);
    if (c.streams > STREAMS && bytes > t->l1_bytes)
        add_count(&c, NNC_P_jump, c.lines, 1);
    int64_t parts = nnc_par_parts(k->sched.domain, k->sched.grain, t->threads);
    int64_t all = compiled ? work_ps(&c, points) : nnc_interpreted_ps(k, dep, ring);
    if (compiled && bytes > t->l1_bytes)
        all = nnc_max64(all, nnc_mul_sat(bytes, c.core.ps[NNC_P_lower]));
    *work = all / 1000 + NNC_T_kernel_ns;
    int64_t ps = nnc_mul_sat(all / k->sched.domain, nnc_ceildiv(k->sched.domain, parts));
    int64_t move = bytes > t->l2_bytes ? nnc_target_move_ns(t, bytes, parts) : 0;
    return nnc_max64(ps / 1000, move) + nnc_target_start_ns(t, parts);
}

int64_t nnc_kernel_interpreted_ns(const nnc_kernel *k, nnc_arena *mem)
{
    uint32_t *dep = ARENA_NEW(mem, uint32_t, k->n_ins + 1);
    nnc_kring *ring;
    if (!dep || !nnc_kernel_rings(k, mem, &ring))
        return -1;
    find_axes(k, dep);
    return nnc_interpreted_ps(k, dep, ring) / 1000;
}

int64_t nnc_kernel_ns(const nnc_kernel *k, const nnc_target *t, int64_t *work, nnc_arena *mem)
{
    int64_t one = 0;
    const int64_t ns = t->kind == NNC_T_cuda ? (one = cu_kernel_ns(k, t)) : cpu_ns(k, t, &one, mem);
    if (work)
        *work = one;
    return ns;
}

/* schedule/schedule.c -- analytic choices for CPUs: the vector axis, the number of vectors at once, and the size of a work item (prices:
 * cost/prices.def). Chains of math functions gain from IR vectors of four machine registers. Row reductions use one or two, with a shorter
 * masked remainder. They use four where registers suffice and the remainder is no longer: a sum has a latency of four cycles. */
#include "schedule/schedule.h"
#include <math.h>

enum {
    MAX_CHUNK = 65536,
    LONG = 30,
    LONG_BODY = 400,
    TILE_CHUNK = 256,
    TILE_AREA = 32768,
    TILE_STREAM = 8 << 20,
    AHEAD_LEAST = 1024,
    BLOCK = 8,
    BLOCK_COLUMNS = 2048
};

static bool is_expensive(const nnc_kins *in)
{
    return in->op == KO_sop && nnc_is_float((nnc_dtype)in->dtype) &&
           nnc_sops[in->sop].flags & OF_slow;
}

static double cost_ns(const nnc_kernel *k, const nnc_kins *in)
{
    switch (in->op) {
    case KO_load:
    case KO_store:
        return in->arg[0] >= 0 && in->op == KO_load
                   ? nnc_element_ns[NNC_N_gather]
                   : nnc_element_ns[NNC_N_access] * nnc_dtype_size(k->buf[in->buf].dtype) / 4;
    case KO_reduce: return nnc_element_ns[NNC_N_access];
    case KO_sop:
        if (is_expensive(in))
            return nnc_element_ns[NNC_N_function];
        return in->sop == SC_div || in->sop == SC_sqrt || in->sop == SC_rsqrt || in->sop == SC_recip
                   ? nnc_element_ns[NNC_N_divide]
                   : nnc_element_ns[NNC_N_op];
    default: return nnc_element_ns[NNC_N_other];
    }
}

/* Executions of a section per outer point. */
static double runs(const nnc_kernel *k, uint32_t axes, bool body)
{
    double n = 1;
    for (int a = 0; a < k->n_axis; a++)
        if ((axes >> a & 1) && (body || k->axis[a].kind == KA_map))
            n *= (double)k->axis[a].extent;
    return n;
}

/* Nanoseconds per outer point, vectorised, on one core. */
static double point_ns(const nnc_kernel *k)
{
    double ns = 0;
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        for (int i = g->body0; i < g->post1; i++)
            ns += cost_ns(k, &k->ins[i]) * runs(k, g->axes, i < g->body1);
    }
    return ns;
}

double nnc_points_ns(const nnc_kernel *k)
{
    return point_ns(k) * (double)nnc_kernel_points(k, (1u << k->n_outer) - 1);
}

double nnc_posts_ns(const nnc_kernel *k)
{
    double ns = 0;
    for (int s = 0; s < k->n_stage; s++)
        for (int i = k->stage[s].post0; i < k->stage[s].post1; i++)
            ns += cost_ns(k, &k->ins[i]);
    return ns;
}

double nnc_value_ns(const nnc_kernel *k, int32_t id)
{
    double ns = 0;
    nnc_kset cone;
    nnc_kernel_cone(k, id, &cone);
    for (int i = 0; i <= id; i++)
        ns += nnc_kset_has(&cone, i) ? cost_ns(k, &k->ins[i]) : 0;
    return ns;
}

/* Share of lanes in use when n elements are computed in vectors. */
static double fill(int64_t n, int lanes)
{
    return (double)n / (double)nnc_align_up(n, lanes);
}

/* Cost of the stage's memory accesses with vectors along axis v. Unit: a contiguous access of a full vector. A gather or scatter costs
 * about ten. */
static double access_cost(const nnc_kernel *k, const nnc_kstage *g, int v, int lanes)
{
    double cost = 0;
    if (v < 0 && !g->axes)
        return 0;
    for (int i = g->body0; i < g->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_load && in->op != KO_store)
            continue;
        int64_t stride =
            v < 0 ? INT64_MAX : in->at.k[v]; /* points run in order: one element at a time */
        bool direct = nnc_kins_index(in) < 0;
        double c = !direct ? 10 : stride == 1 ? 1 : stride == 0 ? 0.5 : stride == 2 ? 2 : 10;
        cost += c * runs(k, g->axes, i < g->body1);
    }
    return v < 0 ? cost : cost / fill(k->axis[v].extent, lanes);
}

/* The own axis along which a row's vectors run: the last one, unless its points run in order; -1: none. If other axes run in order, an
 * own axis around it with cheaper accesses is possible: sums for neighbouring results at once. */
static int row_axis(const nnc_kernel *k, const nnc_kstage *g, int lanes)
{
    int best = g->axes ? 31 - __builtin_clz(g->axes) : -1;
    if (best < 0 || !nnc_stage_in_order(k, g))
        return best;
    best = k->axis[best].seq ? -1 : best;
    for (int a = best - 1; best >= 0 && a >= k->n_outer; a--)
        if ((g->axes >> a & 1) && !k->axis[a].seq &&
            access_cost(k, g, a, lanes) < access_cost(k, g, best, lanes))
            best = a;
    return best;
}

static double cost_along(const nnc_kernel *k, int v, int lanes)
{
    double sum = 0;
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        sum += access_cost(k, g, v < k->n_outer ? v : row_axis(k, g, lanes), lanes);
    }
    return v < k->n_outer ? sum : sum / 0.95; /* lanes are combined at the end of each row */
}

/* The row axis of the most expensive stage. */
static int inner_axis(const nnc_kernel *k, int lanes)
{
    double most = -1;
    int axis = -1;
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        double n = runs(k, g->axes, true) * (g->body1 - g->body0);
        if (row_axis(k, g, lanes) >= 0 && n > most) {
            most = n;
            axis = row_axis(k, g, lanes);
        }
    }
    return axis;
}

static int pick_axis(const nnc_kernel *k, int lanes)
{
    bool tmp = nnc_kernel_scratch(k) > 0;
    int inner = inner_axis(k, lanes), best = inner;
    double least = inner >= 0 ? cost_along(k, inner, lanes) : INFINITY;
    for (int a = 0; !tmp && a < k->n_outer; a++) {
        double cost = cost_along(k, a, lanes);
        if (cost <= least) {
            least = cost;
            best = a;
        }
    }
    return best;
}

/* Maximum of live values in a stage's body, of at most LONG_BODY instructions: the register pressure. */
static int pressure(const nnc_kernel *k, const nnc_kstage *g)
{
    int last[LONG_BODY + 1] = {0}; /* by value: its last user */
    int ends[LONG_BODY + 1] = {0}; /* by user: values of which it is the last */
    int most = 0, live = 0;
    for (int u = g->body0; u < g->body1; u++)
        for (int a = 0; a < 3; a++)
            if (k->ins[u].arg[a] >= g->body0)
                last[k->ins[u].arg[a] - g->body0] = u - g->body0;
    for (int i = 0; i < g->body1 - g->body0; i++)
        ends[last[i]] += last[i] > 0;
    for (int i = 0; i < g->body1 - g->body0; i++) {
        live += (last[i] > 0) - ends[i];
        most = live > most ? live : most;
    }
    return most;
}

/* Length of the longest chain of dependent instructions. Two math functions are a long one. */
static int path_length(const nnc_kernel *k)
{
    int path[LONG_BODY], most = 0;
    for (int i = 0; i < k->n_ins && i < LONG_BODY; i++) {
        int from = 0;
        for (int a = 0; a < 3; a++)
            if (k->ins[i].arg[a] >= 0 && path[k->ins[i].arg[a]] > from)
                from = path[k->ins[i].arg[a]];
        path[i] = from + (is_expensive(&k->ins[i]) ? LONG / 2 : k->ins[i].op == KO_sop);
        most = path[i] > most ? path[i] : most;
    }
    return most;
}

/* True when four vectors at a time compute no more unused lanes of a row than two. */
static bool fits_four(const nnc_kernel *k, int v, int lanes)
{
    int64_t n = k->axis[v].extent;
    return n >= 16 * lanes && nnc_align_up(n, 4 * lanes) == nnc_align_up(n, 2 * lanes);
}

/* Does the stage compute, into a tmp buffer, values only for later stages? */
static bool stores_locally(const nnc_kernel *k, const nnc_kstage *g)
{
    bool stores = false;
    for (int i = g->body0; i < g->body1; i++) {
        if (k->ins[i].op == KO_reduce)
            return false;
        stores |= k->ins[i].op == KO_store && k->buf[k->ins[i].buf].role == KB_tmp;
    }
    return stores && g->post0 == g->post1;
}

/* Vector width for stores to local buffers; 0: there are none. Their sections have no conditions along the row, so that a value's chain is
 * the same as in a kernel of its own. */
static int local_width(const nnc_kernel *k, int lanes)
{
    int64_t math = 0, size = 0;
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        if (!g->axes || !stores_locally(k, g))
            continue;
        for (int i = g->body0; i < g->body1; i++)
            math += is_expensive(&k->ins[i]);
        size = nnc_max64(size, nnc_dtype_size((nnc_dtype)k->ins[g->body1 - 1].dtype));
    }
    return size == 0 ? 0 : (int)((math > 0 ? 4 : 2) * lanes * 4 / nnc_max64(size, 4));
}

static int vector_bits(const nnc_target *t)
{
    return t && t->vector_bits >= 128 ? t->vector_bits : 128;
}

/* Is the value a vector of 64-bit elements where vectors run along axis v? Values after sums along v are single numbers. */
static bool is_wide(const nnc_kernel *k, int id, int v)
{
    const nnc_kins *in = &k->ins[id];
    if (nnc_dtype_size((nnc_dtype)in->dtype) != 8 || in->op == KO_index || in->op == KO_const ||
        in->op == KO_reduce)
        return false;
    if (in->op == KO_load && in->at.k[v] == 0 && nnc_kins_index(in) < 0)
        return false;
    bool post = k->axis[v].kind == KA_reduce;
    for (int s = 0; post && s < k->n_stage; s++)
        post = id < k->stage[s].post0 || id >= k->stage[s].post1;
    return k->axis[v].kind != KA_reduce || post;
}

/* Vector width. A multiply-add has a latency of four cycles and two start per cycle: eight independent chains saturate the machine. Of a
 * long chain, such as nested functions or a polynomial, few iterations fit its reorder window. Such a body uses eight vectors even where
 * registers are too few: spills cost less than stalls. */
static int pick_width(const nnc_kernel *k, int v, const nnc_target *t)
{
    const int bits = vector_bits(t), vectors = nnc_ordered_vectors(k, v, t);
    int lanes = bits / 32, math = 0, live = 0, width = local_width(k, lanes);
    int sums = 0;
    bool wide = false, reduces = false;
    if (width > 0)
        return width;
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        int p = g->body1 - g->body0 > LONG_BODY ? 32 : pressure(k, g);
        live = p > live ? p : live;
    }
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        wide |= is_wide(k, i, v);
        reduces |= in->op == KO_reduce;
        sums += in->op == KO_reduce;
        math += is_expensive(in);
    }
    bool rows = v >= k->n_outer && bits == 512 && live <= 5 && !wide && fits_four(k, v, lanes);
    if (wide)
        lanes /= 2;
    bool chain = path_length(k) >= LONG && (math > 0 || live <= 5);
    width = rows                         ? 4 * lanes
            : reduces || v >= k->n_outer ? 2 * lanes
            : chain && !wide             ? 8 * lanes
            : math > 0                   ? 4 * lanes
                                         : 2 * lanes;
    int64_t n = k->axis[v].extent;
    for (int at = 8; chain && math > 0 && !wide && v >= k->n_outer && at > 2; at /= 2)
        if (width < at * lanes && nnc_align_up(n, at * lanes) == nnc_align_up(n, 2 * lanes))
            width = at * lanes; /* of a row that fills the vectors */
    while (v >= k->n_outer && sums > 2 && width > lanes &&
           sums * (width / lanes) > (bits >= 512 ? 24 : 12)) /* they stay in registers */
        width /= 2;
    if (live >
        10) /* few iterations of a chain along columns fit the window, as above, and more code takes longer to compile */
        width = chain && math > 0 && v < k->n_outer && live < 32
                    ? nnc_max64(nnc_min64(width, 4 * lanes), lanes)
                    : lanes;
    if (vectors > 0)
        width = vectors * lanes;
    while (width > 4 && width / 2 >= k->axis[v].extent)
        width /= 2;
    return width < 1 ? 1 : width;
}

/* Bytes of all operands and results. */
static int64_t footprint(const nnc_kernel *k)
{
    int64_t sum = 0;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role != KB_tmp)
            sum += k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype);
    return sum;
}

/* True for non-temporal stores, in whole vectors. A line of a result larger than the last-level cache would be read from memory only to be
 * overwritten, and evicted before its consumer. Kernels that prefetch rows benefit once operands and results together exceed the cache. A
 * flat kernel may run in place, and its consumer finds half of the data there. A transposing kernel writes lines far apart, each read first
 * and soon evicted from its set, so it benefits from TILE_STREAM bytes on. */
static bool streams(const nnc_kernel *k, int v, const nnc_target *t)
{
    int64_t cache = t && t->l3_bytes > 0 ? t->l3_bytes : (int64_t)32 << 20;
    bool any = false;
    bool rows = v >= k->n_outer && footprint(k) > cache;
    int64_t least = nnc_sched_has(&k->sched, KD_transpose) ? nnc_min64(cache, TILE_STREAM)
                    : rows                                 ? cache / 4
                                                           : cache; /* per result */
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_store || k->buf[in->buf].role != KB_out)
            continue;
        int64_t bytes = k->buf[in->buf].numel * nnc_dtype_size(k->buf[in->buf].dtype);
        if (bytes <= least)
            return false;
        any |= v >= 0;
    }
    return any;
}

/* True for prefetching the next work item's rows. Stages read a row once from memory and then from the nearest cache: memory would be idle
 * in all stages but the first. The hardware prefetcher handles short rows. */
static bool fetches(const nnc_kernel *k, int v, const nnc_target *t)
{
    int64_t cache = t && t->l2_bytes > 0 ? t->l2_bytes : (int64_t)1 << 20;
    int own = 0;
    if (v < k->n_outer || k->n_outer == 0 || footprint(k) <= cache)
        return false;
    for (int s = 0; s < k->n_stage; s++)
        own += k->stage[s].axes != 0;
    int64_t row = k->axis[v].extent * 4;
    return own > 1 && row >= AHEAD_LEAST && row <= cache / 8;
}

/* ---- transposing kernels ---- */

/* Chooses a transposing tile where loads are contiguous along another axis than stores. Tiles of `width` x `width` elements are read along
 * one, transposed, and written along the other. */
static bool pick_tile(nnc_kernel *k, int bits)
{
    nnc_kschedule *s = &k->sched;
    int64_t most;
    int v = nnc_store_axis(k), w = nnc_across_axis(k, v, &most), size = 1;
    if (w < 0)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_store || k->ins[i].op == KO_load)
            size = nnc_max64(size, nnc_dtype_size(k->buf[k->ins[i].buf].dtype));
    int width = bits / 8 / size > 16 ? 16 : bits / 8 / size;
    if (width < 2)
        return false;
    int64_t rows = TILE_AREA / nnc_min64(nnc_align_up(k->axis[v].extent, width), TILE_CHUNK);
    rows = nnc_min64(rows / 16 * 16, nnc_align_up(k->axis[w].extent, width));
    return nnc_sched_put(s, KD_vector, v, width) && nnc_sched_put(s, KD_transpose, w, 0) &&
           nnc_sched_put(s, KD_tile, w, rows);
}

/* ---- sums over columns ---- */

/* True when sums are computed in blocks of the reduce axis. */
static bool column_blocks(const nnc_kernel *k)
{
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (nnc_sched_n(&k->sched, KD_tile, a) > 0)
            return true;
    return false;
}

/* Columns per thread of a kernel with blocked sums: few blocks, so that rows are read in long pieces, but at least one per thread. */
static int64_t block_columns(const nnc_kernel *k, int v, const nnc_target *t)
{
    int64_t others = nnc_kernel_points(k, ((1u << k->n_outer) - 1) & ~(1u << v));
    int64_t n = k->axis[v].extent, threads = t && t->threads > 0 ? t->threads : 1;
    int64_t parts = (threads + others - 1) / others;
    parts = nnc_max64(nnc_min64(parts, n / 32), (n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);
    int64_t chunk = parts > 1 ? (n + parts - 1) / parts : n;
    return nnc_align_up(chunk, nnc_max64(nnc_sched_width(&k->sched), 16));
}

/* Blocks the reduce axis of short bodies that read a few lines of every row. They then read along memory, as hardware prefetches. A math
 * function takes so much longer than its sum that half as many rows suffice. */
static void pick_block(nnc_kernel *k, int v, const nnc_target *t)
{
    nnc_kschedule *s = &k->sched;
    const nnc_kstage *sums = nnc_kernel_sums(k);
    if (v < 0 || v >= k->n_outer || !sums)
        return;
    int r = __builtin_ctz(sums->axes), cost = 0;
    bool along = false, functions = false;
    for (int i = sums->body0; i < sums->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        functions |= is_expensive(in);
        cost += is_expensive(in) ? 20 : 1;
        if (in->op == KO_load && (in->arg[0] >= 0 || in->n_guard || (in->at.k[v] & ~INT64_C(1))))
            return;
        along |= in->op == KO_load && in->at.k[v] == 1 && in->at.k[r] != 0;
    }
    if (!along || cost > LONG || k->axis[r].extent < 2 * BLOCK)
        return;
    int64_t columns = block_columns(k, v, t);
    (void)nnc_sched_put(s, KD_tile, v, columns);
    bool ok = nnc_kernel_blocked_ok(k);
    if (ok)
        (void)nnc_sched_put(s, KD_tile, r, functions ? BLOCK / 2 : BLOCK);
    if (!ok || columns >= k->axis[v].extent)
        nnc_sched_drop(s, KD_tile, v);
}

/* ---- local buffers ---- */

/* Rows of a work item along the ring's axis. The first point of a block computes all `rows` rows again. So each thread gets one block, or
 * two where that repeats at most an eighth of a block. */
static int64_t ring_tile(const nnc_kernel *k, const nnc_kring *r, const nnc_target *t)
{
    int64_t others = 1, n = k->axis[r->axis].extent, threads = t && t->threads > 0 ? t->threads : 1;
    for (int a = 0; a < k->n_outer; a++)
        if (a != r->axis)
            others *= k->axis[a].extent;
    if (threads == 1)
        return n;
    int64_t tile = nnc_ceildiv(n, nnc_ceildiv(2 * threads, others));
    if (tile * r->step < 8 * (r->rows - r->step))
        tile = nnc_ceildiv(n, nnc_ceildiv(threads, others));
    return nnc_max64(tile, 1);
}

static bool has_tmp(const nnc_kernel *k)
{
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            return true;
    return false;
}

/* Keeps the rows of tmp buffers that overlap from one point of the last outer axis to the next. False: out of memory. */
static bool pick_rings(nnc_kernel *k, const nnc_target *t)
{
    nnc_kschedule *s = &k->sched;
    int a = k->n_outer - 1;
    NNC_LOCAL(nnc_arena) scratch = {0};
    if (a < 0 || nnc_sched_vec(s) < k->n_outer || !has_tmp(k))
        return true;
    const nnc_kform *form = nnc_kernel_forms(k, &scratch);
    for (int g = 0; form && g < k->n_stage; g++)
        for (int i = k->stage[g].body0; i < k->stage[g].body1; i++) {
            const nnc_kins *in = &k->ins[i];
            nnc_kring r;
            if (in->op != KO_store || k->buf[in->buf].role != KB_tmp || !k->stage[g].axes ||
                nnc_sched_has_ring(s, in->buf) ||
                nnc_kernel_ring(
                    k, form, in->buf, a, k->axis[__builtin_ctz(k->stage[g].axes)].extent, &r))
                continue;
            int64_t tile = ring_tile(k, &r, t);
            if (tile > 1 && nnc_sched_put(s, KD_tile, a, tile))
                (void)nnc_sched_put_ring(s, in->buf, a, r.rows);
        }
    return form != NULL;
}

/* Factor on the times in this file, which are for machine code. */
static double slowdown(const nnc_target *t)
{
    return t && nnc_target_interprets(t) ? 20 : 1;
}

int64_t nnc_grain(const nnc_target *t, double ns, int64_t domain)
{
    double n = ns > 0 ? NNC_T_grain_ns / (ns * slowdown(t)) : 1;
    return (int64_t)fmin(fmax(n, 1), (double)nnc_min64(domain, (int64_t)1 << 50));
}

/* Elements of an outer vector axis per work item: about NNC_T_item_ns of work, or less to give each worthwhile thread an item. All threads
 * have the same number of work items. */
static int64_t unit_columns(const nnc_kernel *k, int v, double ns, double cap, const nnc_target *t)
{
    int64_t n = k->axis[v].extent;
    double all = ns * (double)n, threads = t && t->threads > 0 ? t->threads : 1;
    for (int a = 0; a < k->n_outer; a++)
        all *= a == v ? 1 : (double)nnc_kernel_blocks(k, a);
    double units = fmin(floor(all * slowdown(t) / NNC_T_grain_ns), threads);
    double want = fmin(all / fmax(units, 1), NNC_T_item_ns);
    int64_t chunk = (int64_t)fmax(fmin(ns > 0 ? want / ns : cap, cap), 1);
    if (chunk < n && units >= threads)
        chunk = nnc_ceildiv(n, nnc_align_up(nnc_ceildiv(n, chunk), (int64_t)threads));
    chunk = nnc_align_up(chunk, nnc_max64(nnc_sched_width(&k->sched), 16));
    return chunk < n ? chunk : n;
}

static void split_domain(nnc_kernel *k, const nnc_target *t)
{
    nnc_kschedule *s = &k->sched;
    int v = nnc_sched_vec(s);
    int across = nnc_sched_axis(s, KD_transpose);
    double ns = point_ns(k) * (double)(across >= 0 ? nnc_sched_n(s, KD_tile, across) : 1);
    if (v >= 0 && v < k->n_outer) {
        int64_t n = k->axis[v].extent, chunk = nnc_sched_n(s, KD_tile, v);
        double cap = across >= 0 ? TILE_CHUNK : MAX_CHUNK;
        if (!column_blocks(k) && (chunk = unit_columns(k, v, ns, cap, t)) < n)
            (void)nnc_sched_put(s, KD_tile, v, chunk);
        ns *= (double)(chunk > 0 ? chunk : n);
    } else if (v >= 0 && nnc_sched_axis(s, KD_tile) >= 0) { /* tile of a ring, or of rows at once */
        ns *= (double)nnc_sched_n(s, KD_tile, -1);
    }
    s->domain = nnc_kernel_domain(k);
    s->grain = nnc_grain(t, ns, s->domain);
}

/* ---- rows at once ---- */

/* True for a sum of products. Its strips have several results at once (contract.c). */
static bool sums_products(const nnc_kernel *k, const nnc_kins *sum)
{
    const nnc_kins *x = &k->ins[sum->arg[0]];
    return x->op == KO_sop && x->sop == SC_fma && nnc_kins_is_zero(k, x->arg[2]);
}

/* The outer axis along which rows may be computed at once: the longest one; -1: none, or the kernel is of another kind. */
static int rows_axis(const nnc_kernel *k, const nnc_target *t)
{
    const nnc_kschedule *s = &k->sched;
    bool reduces = false, products = false;
    int best = -1;
    if (!t || nnc_target_interprets(t) || nnc_sched_vec(s) < k->n_outer ||
        nnc_sched_has(s, KD_tile) || nnc_sched_has(s, KD_prefetch) ||
        nnc_sched_has(s, KD_nontemporal))
        return -1;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_reduce) {
            reduces = true;
            products |= sums_products(k, &k->ins[i]);
        }
    for (int a = 0; a < k->n_outer && reduces && !products; a++) {
        bool index = false;
        for (int i = 0; i < k->n_ins; i++)
            index |= k->ins[i].op == KO_index && k->ins[i].i == a;
        if (!index && (best < 0 || k->axis[a].extent >= k->axis[best].extent))
            best = a;
    }
    return best;
}

/* Instructions of a row, including those of math functions; *functions: whether it has any. */
static int64_t row_code(const nnc_kernel *k, bool *functions)
{
    enum { FUNCTION = 20 };
    int64_t n = 0;
    *functions = false;
    for (int i = 0; i < k->n_ins; i++) {
        n += is_expensive(&k->ins[i]) ? FUNCTION : 1;
        *functions |= is_expensive(&k->ins[i]);
    }
    return n;
}

/* Schedules n rows at once along axis a, with fewer vectors each. */
static bool put_rows(nnc_kernel *k, const nnc_target *t, int a, int n)
{
    nnc_kschedule *s = &k->sched;
    const int64_t extent = k->axis[a].extent, lanes = vector_bits(t) / 32,
                  others = nnc_kernel_points(k, (1u << k->n_outer) - 1) / extent,
                  want = nnc_max64((int64_t)fmin(NNC_T_item_ns / point_ns(k), 1e6), n),
                  tile = nnc_even_tile(extent, want, n, others, t),
                  most = nnc_max64(nnc_sched_width(s), 4 * lanes), /* of all rows */
        width = nnc_min64(nnc_sched_width(s), nnc_max64(most / n, lanes));
    const bool ok = nnc_sched_put(s, KD_vector, nnc_sched_vec(s), width) &&
                    nnc_sched_put(s, KD_tile, a, tile) && nnc_sched_put(s, KD_unroll, a, n);
    k->scratch_bytes = nnc_kernel_scratch(k);
    split_domain(k, t);
    return ok;
}

/* Each stage of a row waits for the one before it, its sums for their lanes, and the row's functions for the sums. The next row hides this
 * chain only where it fits the CPU's reorder window. Several rows at once run their chains side by side, combine the lanes of their sums
 * together, and fill the machine with one vector each. Measured on Zen 4: a tenth faster with four rows, on average. Rows shorter than a
 * vector and without functions do not gain, since the CPU overlaps them already. */
static bool pick_rows(nnc_kernel *k, const nnc_target *t)
{
    enum { MOST_CODE = 640 };
    const int a = rows_axis(k, t);
    bool functions = false;
    if (a < 0)
        return true;
    const int64_t extent = k->axis[a].extent, code = row_code(k, &functions),
                  points = nnc_kernel_points(k, (1u << k->n_outer) - 1),
                  row = k->axis[nnc_sched_vec(&k->sched)].extent, lanes = vector_bits(t) / 32;
    if (row < lanes && row & (row - 1) && !functions)
        return true;
    for (int n = 4; n >= 2; n /= 2)
        if (extent >= n && points / n >= t->threads && code * (n + (extent % n > 0)) <= MOST_CODE)
            return put_rows(k, t, a, n);
    return true;
}

bool nnc_kernel_schedule(nnc_kernel *k, const nnc_target *t)
{
    if (t && t->kind == NNC_T_cuda)
        return nnc_cuda_schedule(k, t);
    k->grid = (nnc_kgrid){0};
    const int bits = vector_bits(t);
    nnc_kschedule *s = &k->sched;
    *s = (nnc_kschedule){0};
    bool done = false, ordered = nnc_kernel_in_order(k);
    if (!ordered && (!nnc_contract_schedule(k, t, &done) || done))
        return done;
    bool tiled = !ordered && pick_tile(k, bits);
    int v = tiled ? nnc_sched_vec(s) : pick_axis(k, bits / 32);
    if (v >= 0 && !tiled)
        (void)nnc_sched_put(s, KD_vector, v, pick_width(k, v, t));
    if (ordered) {
        split_domain(k, t);
        return true;
    }
    if (streams(k, v, t))
        (void)nnc_sched_put(s, KD_nontemporal, -1, 0);
    if (fetches(k, v, t))
        (void)nnc_sched_put(s, KD_prefetch, -1, 1);
    if (!tiled)
        pick_block(k, v, t);
    if (!pick_rings(k, t))
        return false;
    split_domain(k, t);
    return pick_rows(k, t);
}

bool nnc_kernel_arrange(nnc_kernel *k, const nnc_target *t, nnc_arena *a)
{
    bool gpu = t && t->kind == NNC_T_cuda, local, done = false;
    if (gpu && nnc_kernel_in_order(k) && !cu_scatter_sums(k, a))
        return false;
    if (nnc_kernel_in_order(k)) { /* its loops stay; only outer ones are merged */
        nnc_kernel_merge_axes(k, !gpu);
        return (gpu || nnc_ordered_strips(k, t, a)) && nnc_kernel_schedule(k, t);
    }
    if (nnc_kernel_parts(k, NULL) && !gpu) { /* the axes that the parts have */
        nnc_kernel_merge_axes(k, true);
        if (!nnc_parts_schedule(k, t, a, &done) || done)
            return done;
    }
    nnc_kernel_order_axes(k, gpu);
    nnc_kernel_merge_axes(k, !gpu);
    if (gpu && cu_contract_fits(k, t))
        return nnc_kernel_schedule(k, t);
    return (gpu || nnc_kernel_local(k, nnc_target_local_bytes(t), a, &local)) &&
           nnc_window_strips(k, t, a) && nnc_tap_strips(k, t, a) && nnc_pixel_strips(k, t, a) &&
           nnc_product_strips(k, t, a) && nnc_kernel_schedule(k, t);
}

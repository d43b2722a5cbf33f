/* schedule/contract.c -- contractions on a CPU: sums of products of a source and weights. Weights are contiguous along the vector axis, and
 * the source does not depend on it. A block of neighbouring sums stays in registers: vectors of weights times neighbours along one axis of
 * the source (`unroll`). Each load then serves several multiply-adds.
 *
 *     for blocks of the source that fit half of the nearest large cache       ("pixels").
 *       for panels of the weights                                             (the vector axis' tiles, and outer axes of the weights).
 *         for strips of the block: n x width accumulators, the sum inside, the epilogue on them.
 *
 * With AVX-512 (2 FMA units), 14 x 2, 8 x 2 and 6 x 4 vectors reach 97 to 100 % of the FMA peak in cache; 7 x 4 spills. */
#include "schedule/schedule.h"

#include <math.h>
#include <string.h>

enum {
    UNITS = 8, /* least work items of a thread, so that threads end together */
    LINE = 64, /* bytes, of a cache */
};

typedef struct product {
    int32_t x, w; /* loads */
    int sum; /* the reduction */
    uint32_t xs, ws; /* outer axes that they depend on */
    int64_t terms; /* of each sum */
    int stages; /* each has a product: several in transposed convolutions, whose phases have the same outer axes */
} product;

static uint32_t outer_axes(const nnc_kernel *k, const nnc_kins *in)
{
    return nnc_affine_axes(&in->at) & ((1u << k->n_outer) - 1);
}

/* The load that a factor is, apart from casts; -1: none. */
static int32_t load_of(const nnc_kernel *k, int32_t id)
{
    while (id >= 0 && k->ins[id].op == KO_sop && k->ins[id].sop == SC_cast)
        id = k->ins[id].arg[0];
    return id >= 0 && k->ins[id].op == KO_load && k->ins[id].arg[0] < 0 ? id : -1;
}

/* Returns the load that depends on most outer axes among those that factor `id` is computed from (its prologue); *axes: those of all. */
static int32_t source_of(const nnc_kernel *k, int32_t id, uint32_t *axes)
{
    int32_t best = -1;
    nnc_kset cone;
    nnc_kernel_cone(k, id, &cone);
    *axes = 0;
    for (int32_t i = 0; i <= id; i++) {
        if (!nnc_kset_has(&cone, i) || load_of(k, i) != i)
            continue;
        *axes |= outer_axes(k, &k->ins[i]);
        if (best < 0 || __builtin_popcount(outer_axes(k, &k->ins[i])) >
                            __builtin_popcount(outer_axes(k, &k->ins[best])))
            best = i;
    }
    return best;
}

/* Do both loads depend on the outer axes in the same way? */
static bool alike(const nnc_kernel *k, int32_t i, int32_t j)
{
    return memcmp(k->ins[i].at.k, k->ins[j].at.k, sizeof(int64_t) * (size_t)k->n_outer) == 0;
}

/* Finds the stage's only reduction, a sum of products; all own axes must be reduce axes. turned: the first factor counts as weights. */
static bool stage_product(const nnc_kernel *k, const nnc_kstage *s, bool turned, product *p)
{
    *p = (product){.sum = -1, .terms = 1};
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (s->axes >> a & 1 &&
            (k->axis[a].kind != KA_reduce || !nnc_mul_ok(p->terms, k->axis[a].extent, &p->terms)))
            return false;
    for (int i = s->body0; i < s->body1; i++) {
        if (k->ins[i].op == KO_store || (k->ins[i].op == KO_reduce && p->sum >= 0))
            return false;
        if (k->ins[i].op == KO_reduce)
            p->sum = i;
    }
    if (p->sum < 0 || k->ins[p->sum].sop != KR_sum || k->ins[p->sum].arg[1] >= 0)
        return false;
    const nnc_kins *f = &k->ins[k->ins[p->sum].arg[0]];
    if (f->op != KO_sop || (f->sop != SC_fma && f->sop != SC_mul))
        return false;
    p->x = source_of(k, f->arg[turned], &p->xs);
    p->w = load_of(k, f->arg[!turned]);
    return p->x >= 0 && p->w >= 0;
}

/* Is every stage with axes such a product of the same operands? *p: the one with the longest sum. */
static bool find_roles(const nnc_kernel *k, bool turned, product *p)
{
    int stages = 0;
    *p = (product){0};
    for (int s = 0; s < k->n_stage; s++) {
        product q;
        if (!k->stage[s].axes)
            continue;
        if (!stage_product(k, &k->stage[s], turned, &q) ||
            (stages && (!alike(k, p->x, q.x) || !alike(k, p->w, q.w))))
            return false;
        *p = stages++ && p->terms >= q.terms ? *p : q;
    }
    if (stages == 0)
        return false;
    p->stages = stages;
    p->ws = outer_axes(k, &k->ins[p->w]);
    return true;
}

static bool find_product(const nnc_kernel *k, product *p)
{
    return find_roles(k, false, p);
}

/* Does the kernel compute with its index along axis a? Then a has neither vectors nor strips. */
static bool counts(const nnc_kernel *k, int a)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_index && k->ins[i].i == a)
            return true;
    return false;
}

/* The outer axis along which weights and all results are contiguous, and the source is, too, or does not depend on it; -1: none. */
static int weights_axis(const nnc_kernel *k, const product *p)
{
    for (int a = 0; a < k->n_outer; a++) {
        bool ok = k->ins[p->w].at.k[a] == 1 && (k->ins[p->x].at.k[a] == 1 || !(p->xs >> a & 1)) &&
                  k->axis[a].extent >= 2 && !counts(k, a);
        for (int i = 0; i < k->n_ins && ok; i++)
            if (k->ins[i].op == KO_store)
                ok = k->ins[i].at.k[a] == 1;
        if (ok)
            return a;
    }
    return -1;
}

/* Do the terms of a sum share elements of the weights along outer axis v, as those of a window do? */
static bool slides(const nnc_kernel *k, const product *p, int v)
{
    for (int a = k->n_outer; a < k->n_axis; a++) {
        const int64_t step = k->ins[p->w].at.k[a];
        if (step && (step < 0 ? -step : step) < k->axis[v].extent)
            return true;
    }
    return false;
}

/* The axis to block in registers: of the source but not of the weights, with enough points, and nearest in memory; -1: none. */
static int source_axis(const nnc_kernel *k, const product *p)
{
    int best = -1;
    for (int a = 0; a < k->n_outer; a++) {
        const bool ok =
            p->xs >> a & 1 && !(p->ws >> a & 1) && k->axis[a].extent > 1 && !counts(k, a);
        if (ok && (best < 0 || k->axis[a].extent >= 4 || k->axis[best].extent < 4))
            best = a;
    }
    return best;
}

/* A second axis to block, next to u in memory, if registers remain beside all points along u; -1: none. */
static int second_axis(const nnc_kernel *k, const product *p, int u)
{
    int a = u - 1;
    while (a >= 0 && !(p->xs >> a & 1 && !(p->ws >> a & 1) && k->axis[a].extent > 1))
        a--;
    return a >= 0 && counts(k, a) ? -1 : a;
}

/* Number of vectors of weights at once; *lanes: sums in a machine vector. */
static int vectors_at_once(const nnc_kernel *k, const product *p, int v, int bits, int *lanes)
{
    *lanes = bits / 8 / nnc_max64(nnc_dtype_size((nnc_dtype)k->ins[p->sum].dtype), 4);
    int64_t n = k->axis[v].extent;
    return n > *lanes ? 2 : 1;
}

/* Bytes from one point of axis a to the next in the source. */
static int64_t step_bytes(const nnc_kernel *k, const product *p, int a)
{
    const nnc_kins *x = &k->ins[p->x];
    return (x->at.k[a] < 0 ? -x->at.k[a] : x->at.k[a]) * nnc_dtype_size(k->buf[x->buf].dtype);
}

/* Number of neighbours along axis a, beside `others`, whose lines stay in the nearest cache. Neighbours at multiples of a power of two
 * compete for few cache sets, which also hold lines of the weights. A line serves a dozen steps of the sum. Measured limits: 7 of 8 ways
 * (Zen 4), 9 of 12 (Emerald Rapids). */
static int64_t cached_lines(
    const nnc_kernel *k, const product *p, int a, int others, const nnc_target *t)
{
    enum { WAYS = 8 };
    /* bytes of a cache way: 64 lines on x86 CPUs, 256 on those of target/aarch64.c */
    const int64_t span = t && nnc_target_core(t->core) ? 16384 : 4096;
    const int64_t ways = t ? t->l1_bytes / span : WAYS;
    const int64_t rows = ways > WAYS || span > 4096 ? ways * 3 / 4 : WAYS - 1;
    return span / nnc_gcd(step_bytes(k, p, a), span) * rows / others;
}

/* Number of neighbours along axis a in a strip, each of `others` points with `vectors` accumulators. They fill the registers, beside the
 * weights and one value of the source; all strips have one length. A source that varies along the vector axis also needs registers for its
 * vectors, each used once. */
static int neighbours(
    const nnc_kernel *k, const product *p, int a, int vectors, int others, const nnc_target *t)
{
    const int registers = nnc_target_registers(t);
    bool each = p->xs >> nnc_sched_vec(&k->sched) & 1;
    int64_t extent = k->axis[a].extent;
    int64_t most = (registers - vectors - 1) / vectors / others / (each ? 2 : 1);
    most =
        nnc_min64(most, each ? NNC_STRIP : nnc_min64(NNC_STRIP, cached_lines(k, p, a, others, t)));
    most = nnc_max64(most, 1);
    int64_t n = nnc_ceildiv(extent, nnc_ceildiv(extent, most));
    for (int64_t whole = n; 4 * whole >= 3 * most; whole--)
        if (extent % whole == 0)
            return (int)whole;
    return (int)n;
}

/* Points times panels of the busiest thread, when blocks of `tile` points are distributed over the threads in order. */
static int64_t busiest(int64_t extent, int64_t tile, int64_t panels, int threads)
{
    int64_t blocks = nnc_ceildiv(extent, tile), units = blocks * panels, most = 0;
    for (int t = 0; t < threads; t++) {
        int64_t begin, end;
        nnc_par_range(units, 1, t, threads, &begin, &end);
        int64_t last = nnc_max64(end - nnc_max64(begin, units - panels), 0);
        most = nnc_max64(most, (end - begin) * tile - last * (blocks * tile - extent));
    }
    return most;
}

/* Tile of a multiple of n points, at most about `tile`, so that threads have equal numbers of points and blocks equal sizes. rows: if
 * equally even, threads divide points instead of the panels of one block. */
static int64_t even(int64_t extent, int64_t tile, int64_t n, int64_t panels, int threads, bool rows)
{
    int64_t most = tile >= extent ? nnc_align_up(extent, n) : nnc_max64(tile / n, 1) * n;
    int64_t best = most;
    int64_t least = busiest(extent, best, panels, threads);
    for (int64_t i = best - n; i >= n && 3 * i >= most; i -= n) {
        int64_t load = busiest(extent, i, panels, threads);
        const int64_t blocks = nnc_ceildiv(extent, i);
        const bool alike = blocks == nnc_ceildiv(extent, best) ||
                           (rows && threads > 1 && best >= extent && blocks % threads == 0);
        if (load > least || (load == least && !alike))
            continue;
        best = i;
        least = load;
    }
    return best;
}

int64_t nnc_even_tile(int64_t extent, int64_t tile, int64_t n, int64_t panels, const nnc_target *t)
{
    return even(extent, tile, n, panels, t && t->threads > 0 ? t->threads : 1, false);
}

/* Do threads divide the points of axis a instead of panels of the weights? Each then reads mostly data that it wrote in the kernel before,
 * not data in another core's cache, but all of the weights. */
static bool divides_points(const nnc_kernel *k, const product *p, int a)
{
    const nnc_kbuf *w = &k->buf[k->ins[p->w].buf], *x = &k->buf[k->ins[p->x].buf];
    int64_t results = 0;
    for (int b = 0; b < k->n_outer; b++) { /* the source's axes outside of a, or axes of groups */
        const bool groups = b != nnc_sched_vec(&k->sched) && p->ws >> b & 1;
        if (p->xs >> b & 1 && k->axis[b].extent > 1 && (groups || (b < a && !(p->ws >> b & 1))))
            return false;
    }
    for (int b = 0; b < k->n_buf; b++)
        results += k->buf[b].role == KB_out ? k->buf[b].numel : 0;
    return w->numel <= nnc_add_sat(x->numel, results);
}

/* The axis of groups whose sources share a cache line; -1: there is none. */
static int groups_axis(const nnc_kernel *k, const product *p)
{
    int v = nnc_sched_vec(&k->sched), best = -1;
    for (int a = 0; a < k->n_outer && !(p->xs >> v & 1); a++)
        if (a != v && p->ws >> a & 1 && p->xs >> a & 1 && step_bytes(k, p, a) < LINE)
            best = a;
    return best;
}

/* Does the kernel update an operand at least as large as its weights, with a source that stays in a core's cache? Memory is then read in
 * order: strip by strip, each with all panels of the weights. */
static bool streams_results(const nnc_kernel *k, const product *p, const nnc_target *t)
{
    const nnc_kbuf *w = &k->buf[k->ins[p->w].buf];
    const int64_t weights = nnc_mul_sat(w->numel, nnc_dtype_size(w->dtype));
    bool updates = false;
    for (int i = 0; i < k->n_ins; i++)
        updates |= k->ins[i].op == KO_load && k->buf[k->ins[i].buf].numel >= w->numel &&
                   nnc_kernel_updates(k, &k->ins[i]);
    return updates && weights <= nnc_target_local_bytes(t);
}

/* The tile of axis u: at most `fits` and about `most` points. If few rows divide unevenly over threads, but panels evenly, threads get
 * whole panels. Each panel is read once, and each thread computes all of a cheap prologue. */
static int64_t even_points(const nnc_kernel *k, const product *p, int u, int n, int64_t fits,
    int64_t most, int64_t panels, const nnc_target *t)
{
    enum { CHEAP = 16 };
    const int threads = t && t->threads > 0 ? t->threads : 1;
    const int64_t extent = k->axis[u].extent, whole = nnc_align_up(extent, n),
                  width = nnc_sched_width(&k->sched), v = nnc_sched_vec(&k->sched),
                  tile = even(extent, nnc_min64(fits, nnc_max64(most, n)), n, panels, threads,
                      divides_points(k, p, u));
    const bool all = fits == extent && panels % threads == 0 && k->axis[v].extent % width == 0 &&
                     CHEAP * nnc_value_ns(k, k->ins[k->ins[p->sum].arg[0]].arg[0]) <
                         nnc_element_ns[NNC_N_multiply_add] * (double)panels;
    const bool less =
        busiest(extent, whole, panels, threads) < busiest(extent, tile, panels, threads);
    return streams_results(k, p, t) ? n : all && less ? whole : tile;
}

/* Sets tiles of the source's axes, from the nearest in memory outwards, while the block fits half of the cache. They are multiples of n
 * points of axis u and of `each` points of axis `next`. */
static bool tile_source(
    nnc_kernel *k, const product *p, int u, int n, int next, int each, const nnc_target *t)
{
    nnc_kschedule *s = &k->sched;
    int64_t half = nnc_target_local_bytes(t);
    int threads = t && t->threads > 0 ? t->threads : 1;
    int64_t panels = 1, points = 1;
    for (int a = 0; a < k->n_outer; a++)
        *(p->ws >> a & 1 || a == nnc_sched_vec(s) ? &panels : &points) *= nnc_kernel_blocks(k, a);
    int64_t most = nnc_max64(points * panels / (UNITS * threads), 1); /* points of a block */
    int64_t extent = k->axis[u].extent,
            tile = nnc_max64(half / nnc_max64(step_bytes(k, p, u), 1), 1);
    int64_t others = points / extent * panels; /* units for each block */
    tile = even_points(k, p, u, n, nnc_min64(tile, extent), most, others, t);
    int groups = groups_axis(k, p);
    bool ok = true;
    if (groups >= 0) { /* a strip for all groups of a few cache lines, one after another */
        int64_t step = nnc_max64(step_bytes(k, p, groups), 1), few = LINE / nnc_gcd(step, LINE);
        few = nnc_min64(few, k->axis[groups].extent);
        ok = nnc_sched_put(s, KD_tile, groups, few);
        most = nnc_max64(most / few, 1);
        extent = tile = n;
    }
    ok = ok && nnc_sched_put(s, KD_tile, u, tile);
    if (next >= 0 && each > 1)
        ok = ok && nnc_sched_put(s, KD_tile, next, each);
    if (tile < extent)
        return ok;
    most /= extent;
    for (int a = u - 1; a >= 0 && most > 1; a--) { /* rows, then images */
        if (p->ws >> a & 1 || !(p->xs >> a & 1))
            continue;
        int64_t rows = nnc_min64(half / nnc_max64(step_bytes(k, p, a), 1), most);
        rows = nnc_max64(nnc_min64(rows, k->axis[a].extent), 1);
        others /= k->axis[a].extent;
        rows = even(k->axis[a].extent, rows, a == next ? each : 1, others, threads,
            divides_points(k, p, a));
        if (rows > 1)
            ok = ok && nnc_sched_put(s, KD_tile, a, rows);
        if (rows < k->axis[a].extent)
            break;
        most /= rows;
    }
    return ok;
}

/* ---- products of few rows ------------------------------------------------------------------------------------------- */

/* The longest strip of at most `most` points that divides `extent`. */
static int strip_of(int64_t extent, int64_t most)
{
    int64_t n = nnc_min64(extent, nnc_max64(most, 1));
    while (extent % n)
        n--;
    return (int)n;
}

enum { FEW_ROWS = 8 }; /* of a strip */
_Static_assert(FEW_ROWS <= NNC_STRIP, "nnc_kernel_strip");

/* Sums that registers hold. */
static int most_sums(const nnc_target *t)
{
    return nnc_target_registers(t) * 3 / 4;
}

static int sums_in_order(const nnc_kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->n_ins && k->n_stage == 1; i++)
        n += k->ins[i].op == KO_reduce && k->ins[i].sop == KR_sum && !k->ins[i].running;
    return n;
}

int nnc_recurrent_rows(int64_t rows, int sums, const nnc_target *t)
{
    const int threads = t && t->threads > 0 ? t->threads : 1;
    const int64_t most =
        nnc_min64(nnc_ceildiv(rows, threads), nnc_min64(most_sums(t) / sums, FEW_ROWS));
    const int n = strip_of(rows, most);
    /* else the last strip stores fewer rows than it computes */
    return 2 * n > most ? n : (int)nnc_ceildiv(rows, nnc_ceildiv(rows, most));
}

int nnc_recurrent_vectors(int sums, const nnc_target *t)
{
    return sums * 4 <= most_sums(t) ? 4 : sums * 2 <= most_sums(t) ? 2 : 1;
}

/* Number of vectors at once along own axis v, in a kernel with points in order and sums for neighbours along v; otherwise 0. */
int nnc_ordered_vectors(const nnc_kernel *k, int v, const nnc_target *t)
{
    const int sums = sums_in_order(k);
    return v >= k->n_outer && k->axis[v].kind == KA_map && sums > 0 ? nnc_recurrent_vectors(sums, t)
                                                                    : 0;
}

bool nnc_ordered_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem)
{
    const int sums = sums_in_order(k);
    const int n = sums > 0 && k->n_outer == 1 ? nnc_recurrent_rows(k->axis[0].extent, sums, t) : 1;
    return n == 1 || nnc_kernel_strip(k, 0, n, mem);
}

/* Unrolls the gradient of a depthwise convolution's weight. Both factors have vectors of channels, and the second is the same along a row
 * of the window. One pass sums the whole row, with a sum in registers for each element, and reads the second factor once. */
static bool row_of_taps(nnc_kernel *k, const product *p, nnc_arena *mem)
{
    enum { LONG = 64, MOST_TAPS = 8 };
    int row = -1;
    bool vectors = false;
    for (int a = 0; a < k->n_outer; a++) {
        const int64_t x = k->ins[p->x].at.k[a], n = k->axis[a].extent;
        vectors |= x == 1 && k->ins[p->w].at.k[a] == 1;
        if (x > 1 && !(p->ws >> a & 1) && n > 1 && n <= MOST_TAPS)
            row = row < 0 || x < k->ins[p->x].at.k[row] ? a : row;
    }
    return !vectors || row < 0 || p->terms < LONG || p->stages > 1 ||
           nnc_kernel_strip(k, row, (int)k->axis[row].extent, mem);
}

/* The outer axis of the source but not of the weights (*m: rows), and the reverse (*n); -1: none, -2: several. */
static void row_axes(const nnc_kernel *k, const product *p, int *m, int *n)
{
    *m = *n = -1;
    for (int a = 0; a < k->n_outer; a++) {
        if (k->axis[a].extent < 2)
            continue;
        if (p->xs >> a & 1 && !(p->ws >> a & 1))
            *m = *m == -1 ? a : -2;
        if (p->ws >> a & 1 && !(p->xs >> a & 1))
            *n = *n == -1 ? a : -2;
    }
}

/* Are source and weights contiguous along the product's only reduce axis, without indices and guards? */
static bool lie_along_sum(const nnc_kernel *k, const product *p)
{
    const int r = k->n_outer;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_index || (k->ins[i].op == KO_load && k->ins[i].n_guard))
            return false;
    return k->n_axis == r + 1 && k->ins[p->w].at.k[r] == 1 && k->ins[p->x].at.k[r] == 1;
}

/* A product of 2 to NNC_ROWS rows on a GPU. All rows are one point, with a sum each in registers: the weights are read once. Several
 * results of a row are summed together, while each point still has a group of threads. That divides the source's loads (from L1) and
 * conversions by their number. */
static bool few_row_strips(nnc_kernel *k, const product *p, const nnc_target *t, nnc_arena *mem)
{
    enum { SHORT = 16, MOST_SUMS = 16 };
    int m, n;
    row_axes(k, p, &m, &n);
    if (m < 0 || n < 0 || p->terms < SHORT || k->axis[m].extent > NNC_ROWS || !lie_along_sum(k, p))
        return true;
    const int rows = (int)k->axis[m].extent;
    int64_t points = nnc_kernel_points(k, (1u << k->n_outer) - 1) / rows;
    int each = 1;
    while (each < 4 && rows * each * 2 <= MOST_SUMS && k->axis[n].extent % (each * 2) == 0 &&
           points / (each * 2) >= 4 * (int64_t)t->sms)
        each *= 2;
    return nnc_kernel_strip(k, m, rows, mem) && (each == 1 || nnc_kernel_strip(k, n, each, mem));
}

/* Chooses strips where weights are contiguous along the sum. They are read once for several rows of the source, several of their rows at a
 * time. These are spread over the matrix, since hardware prefetches a page for only one reader (measured on Zen 4 beyond L2). */
bool nnc_product_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem)
{
    enum { SHORT = 64 };
    int sums = most_sums(t);
    product p;
    if (!find_product(k, &p) || p.stages > 1)
        return true;
    if (t && t->kind == NNC_T_cuda)
        return few_row_strips(k, &p, t, mem);
    if (p.terms < SHORT)
        return true;
    if (weights_axis(k, &p) < 0 && k->n_axis > k->n_outer + 1)
        return row_of_taps(k, &p, mem);
    int r = k->n_outer, m = -1, n = -1;
    for (int a = 0; a < k->n_outer; a++) {
        if (p.xs >> a & 1 && !(p.ws >> a & 1))
            m = a;
        if (p.ws >> a & 1 && !(p.xs >> a & 1))
            n = a;
    }
    for (int i = 0; i < k->n_ins; i++) /* indices would be computed for each */
        if (k->ins[i].op == KO_index || (k->ins[i].op == KO_load && k->ins[i].n_guard))
            return true;
    if (k->n_axis != r + 1 || k->ins[p.w].at.k[r] != 1 || k->ins[p.x].at.k[r] != 1 || n < 0)
        return true;
    int rows = m < 0 ? 1 : strip_of(k->axis[m].extent, FEW_ROWS);
    int each = strip_of(k->axis[n].extent, nnc_min64(sums / rows, 4));
    return (rows == 1 || nnc_kernel_strip(k, m, rows, mem)) &&
           (each == 1 || nnc_kernel_spread(k, n, each, mem));
}

/* Nanoseconds of all sums and their epilogue on one thread, in vectors of results of which the last may not be full. */
static double block_ns(const nnc_kernel *k, const product *p, int v, int lanes)
{
    enum { ENDS = 8 }; /* cost of starting and finishing a vector's sums, in multiply-adds */
    double results = 1;
    for (int a = 0; a < k->n_outer; a++)
        results *= (double)(a == v ? nnc_align_up(k->axis[a].extent, lanes) : k->axis[a].extent);
    return results / lanes * (double)(p->terms * p->stages + ENDS) *
               nnc_element_ns[NNC_N_multiply_add] +
           results * nnc_posts_ns(k);
}

double nnc_contract_ns(const nnc_kernel *k, const nnc_target *t)
{
    product p;
    int lanes, bits = t && t->vector_bits >= 128 ? t->vector_bits : 128;
    const int v = nnc_sched_vec(&k->sched);
    if (!find_product(k, &p))
        return 0;
    (void)vectors_at_once(k, &p, v, bits, &lanes);
    return block_ns(k, &p, v, lanes);
}

bool nnc_contract_part(nnc_kernel *k, const nnc_target *t, int u, int *n, double *ns)
{
    nnc_kschedule *s = &k->sched;
    product p;
    int bits = t && t->vector_bits >= 128 ? t->vector_bits : 128, lanes;
    int v = find_product(k, &p) ? weights_axis(k, &p) : -1;
    for (int i = 0; i < k->n_ins; i++)
        v = k->ins[i].op == KO_index && k->ins[i].i == u ? -1 : v;
    if (v < 0 || u == v || !(p.xs >> u & 1) || p.ws >> u & 1 || k->ins[p.x].op != KO_load)
        return false;
    const int vectors = vectors_at_once(k, &p, v, bits, &lanes);
    *ns = block_ns(k, &p, v, lanes);
    bool ok =
        nnc_sched_put(s, KD_vector, v, lanes * vectors) &&
        (k->axis[v].extent <= lanes * vectors || nnc_sched_put(s, KD_tile, v, lanes * vectors));
    *n = neighbours(k, &p, u, vectors, 1, t);
    return ok;
}

/* Is the source computed (a prologue)? A block computes it once. */
static bool computes_source(const nnc_kernel *k, const product *p)
{
    return load_of(k, k->ins[k->ins[p->sum].arg[0]].arg[0]) < 0;
}

/* Are few terms added to an operand as large as the result? Both stream through the caches, in memory order. Blocks took twice as long (Zen
 * 4). */
static bool is_short_update(const nnc_kernel *k, const product *p)
{
    enum { SHORT = 8 };
    int64_t results = 0;
    bool found = false;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_out)
            results = nnc_max64(results, k->buf[b].numel);
    for (int i = 0; i < k->n_ins; i++)
        found |= k->ins[i].op == KO_load && i != p->x && i != p->w &&
                 k->buf[k->ins[i].buf].numel >= results;
    return found && p->terms <= SHORT && !computes_source(k, p);
}

/* A gradient of weights sums over all places of large tensors, which each strip would read from memory again. So a work item sums blocks of
 * places whose vectors fit the nearest cache. It computes all strips and elements of the window of a block before the next. */
static bool tile_sum(nnc_kernel *k, const product *p, int u, int v, const nnc_target *t)
{
    enum { PLACES = 192 }; /* places of a block: 24 KiB of two vectors with AVX-512 */
    const int threads = t && t->threads > 0 ? t->threads : 1;
    int64_t inner = p->terms;
    int r = k->n_outer;
    if (u < 0 || k->n_axis < r + 2 || k->ins[p->x].at.k[u] != 1 || p->terms < 2 * PLACES ||
        !nnc_kernel_adds_ok(k))
        return true;
    while (r + 2 < k->n_axis && inner / k->axis[r].extent >= PLACES)
        inner /= k->axis[r++].extent;
    inner /= k->axis[r].extent;
    const int64_t n = nnc_min64(nnc_max64(PLACES / inner, 1), k->axis[r].extent);
    bool ok = nnc_sched_put(&k->sched, KD_tile, r, n);
    for (int a = k->n_outer - 1; a >= 0 && ok; a--) /* the window */
        if (a != v && p->ws >> a & 1 && !(p->xs >> a & 1) && k->axis[a].extent > 1 &&
            nnc_kernel_domain(k) / k->axis[a].extent >= (threads > 1 ? UNITS * threads : 1))
            ok = nnc_sched_put(&k->sched, KD_tile, a, k->axis[a].extent);
    return ok;
}

/* Do math functions follow a sum? They are computed point by point (plugins/llvm/block.c), which needs all totals of a strip at once. */
static bool ends_in_functions(const nnc_kernel *k)
{
    bool found = false;
    for (int i = k->stage[0].post0; i < k->stage[0].post1; i++)
        found |= k->ins[i].op == KO_sop && nnc_sops[k->ins[i].sop].flags & OF_slow;
    return found;
}

/* The panels of a product with a long sum do not fit a core's cache beside its source. Each strip would read them from memory again. So a
 * work item sums blocks of terms whose panels fit, for all its strips (Goto, van de Geijn: Anatomy of High-Performance Matrix
 * Multiplication, 2008). Fewer rows than LEAST only wait for the panels, and are not divided. Block sizes depend only on the terms, so all
 * parts with LEAST rows or more sum in the same order. */
static bool tile_terms(nnc_kernel *k, const product *p, int u, int n, const nnc_target *t)
{
    enum { TERMS = 512, LEAST = 32, ROWS = 128 };
    const int r = k->n_outer, v = nnc_sched_vec(&k->sched),
              units = t && t->threads > 1 ? UNITS * t->threads : 1;
    const int64_t panel = nnc_sched_width(&k->sched) *
                          nnc_dtype_size((nnc_dtype)k->buf[k->ins[p->w].buf].dtype),
                  local = nnc_target_local_bytes(t);
    if (u < 0 || k->axis[u].extent < LEAST || n < 2 || k->n_axis != r + 1 ||
        k->ins[p->x].at.k[r] != 1 || 4 * p->terms * panel <= 3 * local || p->terms < 2 * TERMS ||
        !nnc_kernel_adds_ok(k) || ends_in_functions(k))
        return true;
    bool ok = nnc_sched_put(&k->sched, KD_tile, r, TERMS);
    for (int a = r - 1; a >= 0 && ok; a--)
        if (a != v && p->ws >> a & 1 && !(p->xs >> a & 1) && !counts(k, a))
            ok = nnc_sched_put(&k->sched, KD_tile, a, nnc_max64(local / (TERMS * panel), 1)) &&
                 nnc_sched_put(&k->sched, KD_unroll, a, 1);
    const int64_t extent = k->axis[u].extent,
                  others = nnc_kernel_domain(k) / nnc_kernel_blocks(k, u),
                  rows = nnc_max64(extent * others / units, ROWS);
    return ok && nnc_sched_put(&k->sched, KD_tile, u,
                     nnc_even_tile(extent, nnc_min64(rows, extent), n, others, t));
}

/* Time to read all weights once. A net reads each weight once a run, hence from memory. */
static double weights_ns(const nnc_kernel *k, const product *p)
{
    const nnc_kbuf *w = &k->buf[k->ins[p->w].buf];
    return (double)w->numel * nnc_dtype_size(w->dtype) / NNC_W_cold_weights;
}

/* Are weights prefetched? Beyond a core's own cache they come from memory at the beginning of each work item. With few strips that is
 * faster than the CPU's own prefetches. */
static bool wants_ahead(const nnc_kernel *k, const product *p, const nnc_target *t)
{
    enum { LEAST = 256 << 10, MOST_STRIPS = 32 };
    const nnc_kbuf *w = &k->buf[k->ins[p->w].buf];
    nnc_kahead ahead;
    return nnc_mul_sat(w->numel, nnc_dtype_size(w->dtype)) >= LEAST && !streams_results(k, p, t) &&
           !nnc_kernel_ahead(k, &ahead) && ahead.load == p->w && ahead.strips <= MOST_STRIPS;
}

bool nnc_contract_schedule(nnc_kernel *k, const nnc_target *t, bool *done)
{
    nnc_kschedule *s = &k->sched;
    product p;
    int bits = t && t->vector_bits >= 128 ? t->vector_bits : 128, lanes;
    nnc_kpanel panel;
    *done = false;
    int v = -1;
    for (int turned = 0; turned < 2 && v < 0; turned++) { /* gradients of weights have no weights */
        if (!find_roles(k, turned, &p) || p.terms < 4 || is_short_update(k, &p))
            continue;
        v = weights_axis(k, &p);
        v = turned && v >= 0 && slides(k, &p, v) ? -1 : v;
    }
    if (v < 0)
        return true;
    int u = source_axis(k, &p);
    int vectors = vectors_at_once(k, &p, v, bits, &lanes);
    *s = (nnc_kschedule){0};
    bool ok = nnc_sched_put(s, KD_vector, v, lanes * vectors);
    if (k->axis[v].extent > lanes * vectors)
        ok = ok && nnc_sched_put(s, KD_tile, v, lanes * vectors);
    if (u >= 0) {
        int n = neighbours(k, &p, u, vectors, 1, t), rows = 1;
        int next = second_axis(k, &p, u);
        if (next >= 0 && n == k->axis[u].extent)
            rows = neighbours(k, &p, next, vectors, n, t);
        ok = ok && tile_source(k, &p, u, n, next, rows, t);
        if (n > 1)
            ok = ok && nnc_sched_put(s, KD_unroll, u, n);
        if (rows > 1)
            ok = ok && nnc_sched_put(s, KD_unroll, next, rows);
        if (nnc_kernel_panel(k, &panel)) /* a block of terms would be part of a panel */
            ok = ok && tile_sum(k, &p, u, v, t) && tile_terms(k, &p, u, n, t);
    }
    double ns = block_ns(k, &p, v, lanes);
    if (ok && nnc_kernel_added_axis(k) < 0 && !nnc_kernel_panel(k, &panel)) {
        ok = nnc_sched_put(s, KD_panel, -1, panel.bytes);
        k->scratch_bytes = nnc_kernel_scratch(k);
        ns += (double)nnc_kernel_points(k, panel.axes) * nnc_value_ns(k, panel.x);
    }
    for (int late = 0; late < 2; late++) /* the source's digits first, the weights' fastest */
        for (int a = 0; a < k->n_outer; a++)
            if ((a == v || (p.ws >> a & 1 && !(p.xs >> a & 1))) == late)
                ok = ok && nnc_sched_put(s, KD_order, a, 0);
    if (wants_ahead(k, &p, t))
        ok = ok && nnc_sched_put(s, KD_prefetch, -1, 1);
    ns = fmax(ns, weights_ns(k, &p));
    s->domain = nnc_kernel_domain(k);
    s->grain = nnc_grain(t, ns / (double)s->domain, s->domain);
    *done = ok;
    return ok;
}

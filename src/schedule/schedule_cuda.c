/* schedule/schedule_cuda.c -- schedules for GPUs: analytic choices and values derived from them. The constants suit memory-bound kernels on
 * an H200: a copy reaches its bandwidth with two 16-byte loads in flight in each of an SM's 2048 threads. */
#include "schedule/schedule.h"

#include <math.h>

enum {
    MAX_THREADS = 1024,
    POINT_THREADS = 256,
    POINT_TMP = 1024, /* bytes of a thread's local arrays */
    MAX_GRID = 0x7fffffff,
    MAX_STAGES = 64, /* for rows and columns, since stages are compared pairwise */
    MAX_PARTS = 32, /* reductions of a split kernel */
    MAX_KEEP = 32, /* maximum of a row's vectors in one thread's registers */
    KEEP_REGISTERS = 64, /* maximum of elements in them */
    KEEP_IN_ALL = 160, /* the same for all rows that a kernel keeps: a thread has 255 registers */
    KEEP_PARKED =
        24, /* the same if others are in shared memory: two blocks of PARKED_THREADS have 64 registers per thread */
    PARKED_THREADS = 512, /* more threads have 32 registers, enough for one such row */
    KEEP_WITH_MORE = 16 /* the same beside registers for other operands */
};

/* ---- accesses ---- */

/* True when e, without axis a's term, is a multiple of vec. */
static bool whole(const nnc_kernel *k, const nnc_affine *e, int a, int64_t c, int vec)
{
    for (int b = 0; b < k->n_axis; b++)
        if (b != a && k->axis[b].extent > 1 && e->k[b] % vec)
            return false;
    return c % vec == 0;
}

bool cu_vector(const nnc_kernel *k, const nnc_kins *in, int a, int vec)
{
    if (in->at.k[a] != 1 || !whole(k, &in->at, a, in->at.c, vec))
        return false;
    if (nnc_kins_index(in) >= 0 && (in->op == KO_store || in->scale % vec))
        return false;
    if (in->op == KO_store) { /* elements are converted one by one */
        const nnc_kins *x = &k->ins[in->arg[0]];
        if (x->op == KO_index || (x->op == KO_reduce && x->sop >= KR_argmax))
            return false;
    }
    for (int g = 0; g < in->n_guard; g++) { /* holds for all lanes or for none */
        const nnc_kguard *q = &in->guard[g];
        if (q->e.k[a] == 0)
            continue;
        if (q->e.k[a] != 1 || !whole(k, &q->e, a, q->lo - q->e.c, vec) || (q->hi - q->e.c) % vec)
            return false;
    }
    return true;
}

static bool apart(const nnc_kins *in, int a)
{
    bool same = in->at.k[a] == 0 && nnc_kins_index(in) < 0;
    for (int g = 0; g < in->n_guard; g++)
        same &= in->guard[g].e.k[a] == 0;
    return same;
}

/* True when the last vector along axis a may be partial. Rows must not begin inside a vector, and everything that depends on a must be
 * vectorised. */
static bool may_end_short(const nnc_kernel *k, int a, int vec)
{
    for (int b = 0; b < k->n_outer; b++)
        if (b != a && k->axis[b].extent > 1)
            return false;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if ((in->op == KO_load || in->op == KO_store) && !cu_vector(k, in, a, vec) && !apart(in, a))
            return false;
    }
    return true;
}

static bool has_tmp(const nnc_kernel *k)
{
    return nnc_kernel_scratch(k) > 0;
}

static bool flat(const nnc_kernel *k)
{
    return k->n_stage == 1 && k->stage[0].axes == 0 && !has_tmp(k);
}

/* ---- derived values ---- */

int64_t nnc_own_points(const nnc_kernel *k, const nnc_kstage *s)
{
    return nnc_kernel_points(k, s->axes >> k->n_outer << k->n_outer);
}

/* True when partial sums of the offset fit in 32 bits in any order. Terms of both signs may cancel only at the end. */
static bool fits32(const nnc_kernel *k, const nnc_affine *e)
{
    const int64_t most = INT32_MAX - 65536;
    int64_t up = nnc_max64(e->c, 0), down = nnc_max64(-e->c, 0), far;
    for (int a = 0; a < k->n_axis; a++) {
        bool ok = nnc_mul_ok(e->k[a], k->axis[a].extent - 1, &far) && far <= most && far >= -most;
        if (!ok)
            return false;
        *(far > 0 ? &up : &down) += far > 0 ? far : -far;
    }
    return up <= most && down <= most;
}

/* True when all offsets and counters fit in 32 bits. */
bool cu_narrow(const nnc_kernel *k, int64_t units)
{
    if (units > INT32_MAX - (1 << 20))
        return false;
    for (int a = 0; a < k->n_axis; a++)
        if (k->axis[a].extent > INT32_MAX / 2)
            return false;
    for (int i = 0; i < k->n_stage; i++)
        if (nnc_own_points(k, &k->stage[i]) > INT32_MAX / 2)
            return false;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].numel > INT32_MAX)
            return false;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_load && in->op != KO_store)
            continue;
        if (!fits32(k, &in->at))
            return false;
        for (int g = 0; g < in->n_guard; g++)
            if (!fits32(k, &in->guard[g].e))
                return false;
    }
    return true;
}

int64_t cu_points(const nnc_kernel *k, int axis, int vec)
{
    int64_t n = 1;
    for (int a = 0; a < k->n_outer; a++)
        if (!nnc_mul_ok(n, a == axis ? (k->axis[a].extent + vec - 1) / vec : k->axis[a].extent, &n))
            return -1;
    return n;
}

static bool derive_point(const nnc_kernel *k, nnc_kgrid *g)
{
    if (g->vec > 1 && (g->axis < 0 || g->vec > 16 || (g->vec & (g->vec - 1)) || has_tmp(k) ||
                          (k->axis[g->axis].extent % g->vec && !may_end_short(k, g->axis, g->vec))))
        return false;
    if (g->flight > 1 && (!flat(k) || g->flight > 8))
        return false;
    int64_t units = cu_points(k, g->axis, g->vec), each = (int64_t)g->threads * g->flight;
    if (units < 1 || g->group != 1 || g->split != 1 || g->keep != 0 ||
        nnc_kernel_scratch(k) > 256 << 10)
        return false;
    g->blocks = (units + each - 1) / each;
    g->index = cu_narrow(k, units) ? 32 : 64;
    return true;
}

int64_t cu_tile_bytes(const nnc_kernel *k, const nnc_kgrid *g)
{
    int64_t n = 0, side = 32 * g->vec;
    for (int i = 0; i < k->n_ins; i++)
        if (nnc_kernel_tiles(k, &k->ins[i], g->axis, g->across))
            n += side * (side + 1) * nnc_dtype_size(k->buf[k->ins[i].buf].dtype);
    return n;
}

static bool derive_tile(const nnc_kernel *k, nnc_kgrid *g)
{
    int v = g->axis, w = g->across, side = 32 * g->vec, count = 0;
    if (g->threads != 256 || !flat(k) || v < 0 || w < 0 || w >= k->n_outer || v == w ||
        g->flight != 1 || g->group != 1 || g->split != 1 || g->keep || g->vec > 4 ||
        (g->vec & (g->vec - 1)) || k->axis[v].extent < 2 || k->axis[w].extent < 2 ||
        k->axis[v].extent % g->vec || k->axis[w].extent % g->vec || cu_tile_bytes(k, g) > 48 << 10)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (nnc_kernel_tiles(k, &k->ins[i], v, w)) {
            count++;
            if (g->vec > 1 && !cu_vector(k, &k->ins[i], w, g->vec))
                return false;
        }
    int64_t nv = (k->axis[v].extent + side - 1) / side, nw = (k->axis[w].extent + side - 1) / side;
    int64_t all = cu_points(k, -1, 1) / k->axis[v].extent / k->axis[w].extent;
    g->index = cu_narrow(k, cu_points(k, -1, 1)) ? 32 : 64;
    return count > 0 && nnc_mul_ok(nv, nw, &nv) && nnc_mul_ok(nv, all, &g->blocks);
}

static int reductions(const nnc_kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->n_ins; i++)
        n += k->ins[i].op == KO_reduce;
    return n;
}

/* The stage whose reductions may be split over blocks; -1: none. It is the last one, its own axes are all reduced, and stages before it
 * depend only on outer axes. Elements that it stores are stored by the block that has them. */
int cu_split_stage(const nnc_kernel *k)
{
    const int last = k->n_stage - 1;
    if (has_tmp(k))
        return -1;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (k->axis[a].kind == KA_map && k->axis[a].extent > 1)
            return -1;
    for (int s = 0; s < last; s++)
        for (int i = k->stage[s].body0; i < k->stage[s].post1; i++)
            if (k->stage[s].axes || k->ins[i].op == KO_reduce || k->ins[i].op == KO_store)
                return -1;
    for (int i = 0; i < k->n_ins; i++)
        if ((k->ins[i].op == KO_reduce && k->ins[i].sop >= KR_argmax) ||
            (k->ins[i].op == KO_load && k->buf[k->ins[i].buf].role != KB_in))
            return -1;
    return last;
}

/* True for independent stages that store what they load: blocks may process any part of them. */
static bool may_share(const nnc_kernel *k)
{
    if (has_tmp(k) || reductions(k) > 0)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_load && k->buf[k->ins[i].buf].role != KB_in)
            return false;
    return true;
}

/* For kernels whose points are split over blocks: derives the partial results, and the launch that combines them. */
static bool derive_split(const nnc_kernel *k, nnc_kgrid *g, const cu_rows *r)
{
    const int sum = cu_split_stage(k);
    if (g->split == 1)
        return true;
    if (may_share(k))
        return g->keep == 0 && nnc_mul_ok(g->blocks, g->split, &g->blocks);
    g->work = sum >= 0 && reductions(k) <= MAX_PARTS && g->keep == 0 && !g->spill &&
                      g->split <= r->stage[sum].units
                  ? cu_work(k, g)
                  : -1;
    int64_t n = cu_points(k, -1, 1), each = g->threads / cu_finish_group(k, g);
    g->finish = (n + each - 1) / each;
    return g->work > 0 && g->finish <= MAX_GRID && nnc_mul_ok(g->blocks, g->split, &g->blocks);
}

static bool finds_places(const nnc_kernel *k)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_reduce && k->ins[i].sop >= KR_argmax)
            return true;
    return false;
}

/* cu_rows_plan; g->oom when out of memory. */
static bool rows_planned(cu_rows *r, const nnc_kernel *k, nnc_kgrid *g)
{
    bool ok = cu_rows_plan(r, k, g);
    g->oom |= !ok;
    return ok;
}

static bool derive_column(const nnc_kernel *k, nnc_kgrid *g)
{
    cu_rows r = {0};
    if (cu_rows_mixed(k) || g->threads != 32 * g->group || g->axis < 0 || g->flight != 1 ||
        g->keep > MAX_KEEP || g->spill || g->vec > 8 || (g->vec & (g->vec - 1)) ||
        k->axis[g->axis].extent % g->vec || (g->vec > 1 && finds_places(k)) ||
        cu_part_bytes(k) * g->threads * g->vec > 48 << 10)
        return false;
    int64_t n = cu_points(k, g->axis, g->vec);
    bool ok = k->n_stage <= MAX_STAGES && rows_planned(&r, k, g) && r.scratch == 0 && n > 0;
    g->blocks = (n + 31) / 32;
    g->index = cu_narrow(k, n * g->vec) ? 32 : 64;
    ok = ok && derive_split(k, g, &r);
    cu_rows_deinit(&r);
    return ok;
}

/* Static and dynamic shared memory of a block; the static part is the partial results of its warps, each array 16-byte aligned. */
static int64_t shared_bytes(const nnc_kernel *k, const nnc_kgrid *g)
{
    int64_t warps = g->cls == KC_row && g->group > 32 ? g->threads / 32 : 0;
    return g->shared + (warps ? warps * cu_part_bytes(k) + 16 * reductions(k) : 0);
}

static bool derive_row(const nnc_kernel *k, nnc_kgrid *g)
{
    cu_rows r = {0};
    int rows = g->threads / g->group;
    if (cu_rows_mixed(k) || g->threads % g->group || g->group > MAX_THREADS || g->axis != -1 ||
        g->flight != 1 || g->keep > MAX_KEEP || g->park < 0 ||
        (g->park > 0 && g->park >= g->keep) || g->vec > 16 || (g->vec & (g->vec - 1)) ||
        g->spill > 1 || (g->group > 32 ? g->group % 32 != 0 : (g->group & (g->group - 1)) != 0))
        return false;
    int64_t n = cu_points(k, -1, 1);
    bool ok = k->n_stage <= MAX_STAGES && rows_planned(&r, k, g) && n > 0;
    if (ok) {
        g->blocks = (n + rows - 1) / rows;
        if (g->spill)
            ok = nnc_mul_ok(g->blocks * rows, r.scratch, &g->work);
        else
            g->shared = r.scratch * rows + r.slots * r.slot_bytes;
        ok = ok && (g->park == 0 || (r.slots > 0 && rows == 1 && !g->spill && g->split == 1));
        g->index = cu_narrow(k, n) ? 32 : 64;
    }
    ok = ok && derive_split(k, g, &r);
    cu_rows_deinit(&r);
    return ok && shared_bytes(k, g) <= NNC_SM_shared;
}

static bool derive_attend(const nnc_kernel *k, nnc_kgrid *g)
{
    int64_t n;
    bool ok = nnc_attend_derive(k, g, &n);
    g->index = ok && !cu_narrow(k, n) ? 64 : 32;
    return ok;
}

bool nnc_cuda_derive(const nnc_kernel *k, nnc_kgrid *g)
{
    static bool (*const derive[])(const nnc_kernel *, nnc_kgrid *) = {[KC_point] = derive_point,
        [KC_tile] = derive_tile,
        [KC_row] = derive_row,
        [KC_column] = derive_column,
        [KC_steps] = cu_steps_derive,
        [KC_scatter] = cu_scatter_derive,
        [KC_attend] = derive_attend,
        [KC_contract] = cu_contract_derive};
    g->finish = g->shared = g->work = 0;
    if (g->threads < 32 || g->threads > MAX_THREADS || g->threads % 32 || g->vec < 1 ||
        g->flight < 1 || g->group < 1 || g->split < 1 || g->keep < 0 || g->axis < -1 ||
        g->axis >= k->n_outer || g->regs < 0 || g->regs * g->threads > NNC_SM_registers)
        return false;
    return g->cls != KC_none && derive[g->cls](k, g) && g->blocks >= 1 && g->blocks <= MAX_GRID;
}

double nnc_cuda_fastest(nnc_kernel *k, const nnc_target *t, const nnc_kgrid *all, int n,
    double (*ns)(const nnc_kernel *k, const void *of, const nnc_target *t), const void *of)
{
    nnc_kgrid best = k->grid;
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        k->grid = all[i];
        const bool fits = nnc_cuda_derive(k, &k->grid) && k->grid.shared <= cu_most_shared(t);
        const double time = fits ? ns(k, of, t) : INFINITY;
        if (time < least) {
            least = time;
            best = k->grid;
        }
    }
    k->grid = best;
    return least;
}

/* ---- choices ---- */

/* The outer axis along which most bytes are stored, and then loaded, contiguously. */
int nnc_cuda_fast_axis(const nnc_kernel *k)
{
    int64_t most = -1;
    int axis = k->n_outer - 1;
    for (int a = 0; a < k->n_outer; a++) {
        int64_t n = 0;
        for (int i = 0; i < k->n_ins; i++) {
            const nnc_kins *in = &k->ins[i];
            if ((in->op == KO_load || in->op == KO_store) && in->at.k[a] == 1 &&
                k->axis[a].extent > 1)
                n += k->buf[in->buf].numel * (in->op == KO_store ? 4 : 1);
        }
        if (n >= most) {
            most = n;
            axis = a;
        }
    }
    return axis;
}

/* Elements of one access along axis a: 16 bytes of the narrowest type, at most 8 elements. */
int nnc_cuda_vec(const nnc_kernel *k, int a)
{
    int narrowest = 16, run;
    bool stores = false;
    if (a < 0 || has_tmp(k))
        return 1;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if ((in->op != KO_load && in->op != KO_store) ||
            (!cu_vector(k, in, a, 1) && cu_store_run(k, i, a, 16, &run) < 0))
            continue;
        int size = nnc_dtype_size(k->buf[in->buf].dtype);
        narrowest = size < narrowest ? size : narrowest;
    }
    int vec = 16 / narrowest > 8 ? 8 : 16 / narrowest;
    for (; vec > 1; vec /= 2) {
        stores = true;
        for (int i = 0; i < k->n_ins; i++)
            if (k->ins[i].op == KO_store)
                stores &= cu_vector(k, &k->ins[i], a, vec) || cu_store_run(k, i, a, vec, &run) >= 0;
        if (stores && (k->axis[a].extent % vec == 0 ||
                          (vec * 2 > 16 / narrowest && may_end_short(k, a, vec))))
            break;
    }
    return vec;
}

int64_t nnc_cuda_resident(const nnc_target *t)
{
    return nnc_target_sms(t) * (t->sm_threads > 0 ? t->sm_threads : 2048);
}

static int inputs(const nnc_kernel *k)
{
    int n = 0;
    for (int b = 0; b < k->n_buf; b++)
        n += k->buf[b].role == KB_in;
    return n;
}

/* Chooses class `point`. One vector of each of many operands keeps enough bytes in flight; two would need too many registers. */
static void choose_point(nnc_kernel *k, const nnc_target *t)
{
    enum { VALUES = 64 };
    nnc_kgrid *g = &k->grid;
    int64_t resident = nnc_cuda_resident(t);
    bool small = true;
    g->cls = KC_point;
    g->threads = POINT_THREADS;
    g->axis = (int16_t)nnc_cuda_fast_axis(k);
    int vec = nnc_window_vec(k, nnc_cuda_vec(k, g->axis));
    while (vec > 1 &&
           cu_points(k, g->axis, vec) < resident / 4) /* prefer more threads to wider accesses */
        vec /= 2;
    if (vec > 1 && k->axis[g->axis].extent % vec && !may_end_short(k, g->axis, vec))
        vec = 1;
    g->vec = (int16_t)vec;
    for (int b = 0; b < k->n_buf; b++)
        small &= nnc_dtype_size(k->buf[b].dtype) <= 2;
    if (flat(k) && vec > 1 && cu_points(k, g->axis, vec) >= 4 * resident &&
        inputs(k) * vec <= VALUES)
        g->flight = small && inputs(k) == 1 ? 4 : 2;
}

/* ---- transposing tiles ---- */

/* Chooses transposing tiles where most bytes are loaded along another axis than stored; 8-bit and 16-bit elements as vectors. */
static bool choose_tile(nnc_kernel *k)
{
    nnc_kgrid *g = &k->grid;
    int64_t most;
    int v = flat(k) ? nnc_store_axis(k) : -1, w = nnc_across_axis(k, v, &most), size = 8;
    if (w < 0 || most < 4096)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        if (nnc_kernel_tiles(k, &k->ins[i], v, w)) {
            int n = nnc_dtype_size(k->buf[k->ins[i].buf].dtype);
            size = n < size ? n : size;
        }
    g->cls = KC_tile;
    g->axis = (int16_t)v;
    g->across = (int16_t)w;
    g->threads = 256;
    for (g->vec = size == 1 ? 4 : size == 2 ? 2 : 1; g->vec >= 1; g->vec /= 2)
        if (nnc_cuda_derive(k, g))
            return true;
    return false;
}

/* True for several sums of several products each (taps.c). */
static bool shares_terms(const nnc_kernel *k)
{
    int terms = 0;
    for (int i = 0; i < k->n_ins; i++)
        terms += k->ins[i].op == KO_sop && k->ins[i].sop == SC_fma;
    return k->n_stage == 1 && reductions(k) > 2 && terms >= 2 * reductions(k) &&
           cu_split_stage(k) >= 0;
}

/* Splits points over several blocks where points are few and long. Each thread keeps at least eight steps of a sum, or two of a copy.
 * Blocks of sums that share terms take long, so they are no more than the machine can hold at a time. */
static void choose_split(nnc_kernel *k, const nnc_target *t, int64_t units)
{
    nnc_kgrid *g = &k->grid, one = *g;
    bool share = may_share(k);
    if (g->blocks < 1 || !(share || cu_split_stage(k) >= 0))
        return;
    int64_t blocks = share ? (int64_t)t->sms * t->sm_threads / g->threads : 2 * t->sms;
    int64_t want = shares_terms(k) ? blocks / g->blocks : (blocks + g->blocks - 1) / g->blocks,
            most = units / g->group / (share ? 2 : 8);
    want = want > most ? most : want;
    if (want < 2)
        return;
    g->split = (int16_t)(want > 1024 ? 1024 : want);
    g->keep = 0;
    if (!nnc_cuda_derive(k, g)) {
        one.oom = g->oom;
        *g = one;
        (void)nnc_cuda_derive(k, g);
    }
}

/* Number of rows that stay in registers, by buffer; -1: out of memory. */
static int kept_rows(nnc_kernel *k)
{
    cu_rows r = {0};
    int n = rows_planned(&r, k, &k->grid) ? 0 : -1;
    bool other = false;
    for (int i = 0; n >= 0 && i < k->n_ins; i++) {
        bool first = r.held[i] && k->ins[i].op == KO_load;
        other = other || (r.held[i] && !first);
        for (int j = 0; first && j < i; j++)
            first = !r.held[j] || k->ins[j].op != KO_load || k->ins[j].buf != k->ins[i].buf;
        n += first;
    }
    cu_rows_deinit(&r);
    return n == 0 ? other : n;
}

/* Resets `keep` when nothing is kept, so that it is not printed. Also resets it when it exceeds a thread's registers, except for computed
 * rows (tmp), which would need as much shared memory. */
static void drop_keep(nnc_kernel *k)
{
    const int kept = kept_rows(k);
    const bool many = kept * k->grid.keep * k->grid.vec > KEEP_IN_ALL && !has_tmp(k);
    if (kept == 0 || many)
        k->grid.keep = 0;
    if (many)
        (void)nnc_cuda_derive(k, &k->grid);
}

/* ---- rows ---- */

/* True when more bytes are contiguous along own axes than along an outer one. */
static bool rows_along_memory(const nnc_kernel *k)
{
    double inner = 0, outer = 0;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_load && in->op != KO_store)
            continue;
        for (int a = 0; a < k->n_axis; a++)
            if (in->at.k[a] == 1 && k->axis[a].extent > 1 && k->buf[in->buf].role != KB_tmp)
                *(a < k->n_outer ? &outer : &inner) += (double)k->buf[in->buf].numel;
    }
    return inner > outer;
}

static int row_vec(const nnc_kernel *k)
{
    int narrowest = 16;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_load || k->ins[i].op == KO_store) {
            int size = nnc_dtype_size(k->buf[k->ins[i].buf].dtype);
            narrowest = size < narrowest ? size : narrowest;
        }
    return 16 / narrowest > 8 ? 8 : 16 / narrowest;
}

/* Registers per value. */
static int words(const nnc_kernel *k)
{
    for (int b = 0; b < k->n_buf; b++)
        if (nnc_dtype_size(k->buf[b].dtype) == 8)
            return 2;
    return 1;
}

/* Threads for a row of n elements: about four vectors each; more where there are too few rows to fill the machine. */
static int row_group(int64_t n, int64_t rows, int vec, int64_t resident)
{
    int64_t vectors = (n + vec - 1) / vec, group = 1;
    while (group < 32 && group * 2 < vectors)
        group *= 2;
    while (group < 512 && group * 4 < vectors && group >= 32)
        group *= 2;
    while (group < MAX_THREADS && group >= 32 && group < vectors && rows * group < resident / 2)
        group *= 2;
    return (int)group;
}

/* If rows fill an SM's registers, moves part of each to shared memory where a second block then fits: one transfers while the other
 * computes. Rows that fill shared memory get the most threads that a block may have. */
static void make_room(nnc_kernel *k, const nnc_target *t)
{
    nnc_kgrid *g = &k->grid, one = *g;
    const bool fits = 2 * (shared_bytes(k, g) + NNC_SM_block_shared) <= t->shared_bytes;
    if (g->group != g->threads || g->split > 1)
        return;
    if (g->keep * g->vec > KEEP_REGISTERS / 2 && 2 * g->threads <= t->sm_threads &&
        (g->threads <= PARKED_THREADS || kept_rows(k) == 1) && words(k) == 1) {
        g->park = (int16_t)(g->keep - (inputs(k) > 1 ? KEEP_WITH_MORE : KEEP_PARKED) / g->vec);
        g->regs = (int16_t)(NNC_SM_registers / 2 / g->threads);
        if (nnc_cuda_derive(k, g) &&
            2 * (shared_bytes(k, g) + NNC_SM_block_shared) <= t->shared_bytes)
            return;
    } else if (g->keep == 0 && !fits &&
               2 * g->threads <= MAX_THREADS) { /* only one block fits: makes it larger */
        g->threads = g->group = (int16_t)(2 * g->threads);
        if (nnc_cuda_derive(k, g))
            return;
    } else {
        return;
    }
    one.oom = g->oom;
    *g = one;
    (void)nnc_cuda_derive(k, g);
}

/* has_to: no other schedule class supports the kernel's tmp buffers, or none reads contiguously. */
static bool choose_row(nnc_kernel *k, const nnc_target *t, bool has_to)
{
    nnc_kgrid *g = &k->grid;
    int64_t resident = (int64_t)t->sms * t->sm_threads, longest = 1, rows = cu_points(k, -1, 1);
    for (int i = 0; i < k->n_stage; i++)
        longest = nnc_max64(longest, nnc_own_points(k, &k->stage[i]));
    if (!has_to && (longest < 8 || (!rows_along_memory(k) && rows >= resident / 8)))
        return false;
    g->cls = KC_row;
    g->axis = -1;
    g->flight = 1;
    g->vec = (int16_t)row_vec(k);
    g->group = (int16_t)row_group(longest, rows, g->vec, resident > 0 ? resident : 132 * 2048);
    if (g->group == 1 && !has_to)
        return false;
    g->threads = (int16_t)(g->group > 128 ? g->group : 128);
    while (g->threads > 32 && g->threads > g->group && rows * g->group <= g->threads / 2)
        g->threads /= 2;
    int64_t trips = (longest + (int64_t)g->vec * g->group - 1) / ((int64_t)g->vec * g->group);
    int64_t most = g->threads > 512 ? KEEP_REGISTERS / 2 : KEEP_REGISTERS;
    g->keep = (int16_t)(trips * g->vec * words(k) <= most && trips <= MAX_KEEP ? trips : 0);
    if (nnc_cuda_derive(k, g) && shared_bytes(k, g) <= cu_most_shared(t)) {
        drop_keep(k);
        choose_split(k, t, longest / g->vec);
        make_room(k, t);
        return true;
    }
    g->spill = 1;
    return nnc_cuda_derive(k, g);
}

/* ---- columns ---- */

/* True when columns of vec points fill the machine: there are many, or blocks can share their sums. */
static bool columns_fill(const nnc_kernel *k, const nnc_target *t, int vec, int64_t longest)
{
    const nnc_kgrid *g = &k->grid;
    int64_t n = cu_points(k, g->axis, vec);
    if (k->axis[g->axis].extent % vec || finds_places(k))
        return false;
    if (n >= 32 * (int64_t)t->sms)
        return true;
    /* warps more than half full; 16 per column, and eight steps of each thread's sum */
    const int64_t warps = (n + 31) / 32;
    return cu_split_stage(k) >= 0 && 2 * n > 32 * warps && warps * (longest / 16 / 8) >= 2 * t->sms;
}

/* Columns: reductions over strided elements, where there are too few points to fill the machine. */
static bool choose_column(nnc_kernel *k, const nnc_target *t)
{
    nnc_kgrid *g = &k->grid;
    int64_t resident = (int64_t)t->sms * t->sm_threads, longest = 1;
    for (int i = 0; i < k->n_stage; i++)
        longest = nnc_max64(longest, nnc_own_points(k, &k->stage[i]));
    int axis = nnc_cuda_fast_axis(k);
    if (axis < 0 || k->axis[axis].extent < 8 || longest < 16 || has_tmp(k))
        return false;
    g->cls = KC_column;
    g->axis = (int16_t)axis;
    /* sums that share loads in registers: pairs of columns, even without full warps */
    const bool many = shares_terms(k) && k->axis[axis].extent % 2 == 0;
    g->vec = (int16_t)(many ? 2 : nnc_cuda_vec(k, axis));
    while (g->vec > 1 && !many && !columns_fill(k, t, g->vec, longest))
        g->vec /= 2;
    int64_t n = cu_points(k, axis, g->vec);
    if (n >= resident / 2)
        return false;
    g->group = 1;
    while (g->group < 16 && g->group * 4 <= longest && n * g->group < resident)
        g->group *= 2;
    while (g->group > 1 && cu_part_bytes(k) * 32 * g->group * g->vec > 48 << 10)
        g->group /= 2;
    g->threads = (int16_t)(32 * g->group);
    g->regs = (int16_t)(many && g->threads == 512 ? NNC_SM_registers / 1024
                                                  : 0); /* two blocks of an SM */
    int64_t trips = (longest + g->group - 1) / g->group;
    g->keep = (int16_t)(k->n_stage > 1 && trips * g->vec <= KEEP_REGISTERS / 2 && trips <= MAX_KEEP
                            ? trips
                            : 0);
    if (g->group == 1 || !nnc_cuda_derive(k, g))
        return false;
    drop_keep(k);
    choose_split(k, t, longest);
    return true;
}

/* Long sums that read each element once, as pooling over all places: windows beside each other have nothing in common. */
static bool sums_apart(const nnc_kernel *k)
{
    int64_t longest = 1;
    for (int i = 0; i < k->n_stage; i++)
        longest = nnc_max64(longest, nnc_own_points(k, &k->stage[i]));
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_load && k->buf[k->ins[i].buf].numel / longest < cu_points(k, -1, 1))
            return false;
    return longest >= 16;
}

/* Resets all choices, but not the out-of-memory flag. */
static void choose_none(nnc_kernel *k)
{
    k->grid = (nnc_kgrid){.axis = -1,
        .across = -1,
        .vec = 1,
        .flight = 1,
        .group = 1,
        .split = 1,
        .oom = k->grid.oom};
}

bool nnc_cuda_schedule(nnc_kernel *k, const nnc_target *t)
{
    k->sched = nnc_cuda_sched(k);
    static bool (*const of_form[])(nnc_kernel *, const nnc_target *) = {
        cu_steps_choose, cu_scatter_choose, nnc_attend_schedule, cu_contract_choose};
    k->grid.oom = false;
    for (size_t i = 0; i < NNC_COUNT(of_form); i++) {
        choose_none(k);
        if (of_form[i](k, t))
            return !k->grid.oom;
    }
    choose_none(k);
    nnc_walk walk;
    if (nnc_walk_of(k, &walk)) {
        nnc_walk_choose(k, &walk);
        if (nnc_cuda_derive(k, &k->grid))
            return !k->grid.oom;
        choose_none(k);
    }
    bool large = nnc_kernel_scratch(k) > POINT_TMP, along = rows_along_memory(k);
    bool windows =
        nnc_window_kernel(k) && cu_points(k, -1, 1) >= nnc_cuda_resident(t) / 4 && !sums_apart(k);
    if (windows && !large) {
        choose_point(k, t);
        if (nnc_cuda_derive(k, &k->grid))
            return !k->grid.oom;
        choose_none(k);
    }
    if ((large || along) && choose_row(k, t, large))
        return !k->grid.oom;
    if (choose_none(k), choose_tile(k))
        return !k->grid.oom;
    if (choose_none(k), choose_column(k, t))
        return !k->grid.oom;
    if (choose_none(k), !along && choose_row(k, t, false))
        return !k->grid.oom;
    choose_none(k);
    choose_point(k, t);
    if (!nnc_cuda_derive(
            k, &k->grid)) { /* the class `point` is possible with one element at a time */
        k->grid.vec = k->grid.flight = 1;
        (void)nnc_cuda_derive(k, &k->grid);
    }
    return !k->grid.oom;
}

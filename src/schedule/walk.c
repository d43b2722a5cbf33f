/* schedule/walk.c -- windows of which a GPU's thread computes several rows, one after the other (a walk).
 *
 *     for m0: for r0: sum[m0] += x[m0 + r0] w[r0]; store y[m0].
 *
 * The kernel's text says that, with a map axis for the rows. The emitter (codegen/cuda_walk.c) goes through the rows of x instead. Each is
 * loaded and converted once, while the previous row is added to the sums of all result rows that see it.
 *
 *     for t: for r0: sum[t - r0] += x[t] w[r0]; store y[t - last r0].
 *
 * So registers hold only as many sums as the window has rows, and each new one uses the register of the one before. */
#include "schedule/schedule.h"

enum {
    MOST_ROWS = 8, /* rows of the window: the loop over these is unrolled */
    VEC = 2, /* channels of a thread */
    WIDEST = 8, /* results of a thread along the row */
    THREADS = 64, /* small blocks: the last ones of the busiest SM wait least */
    FEW_REGISTERS = 128, /* eight blocks of an SM */
    REGISTERS = 168, /* six */
    OTHER_REGISTERS = 20, /* addresses, places, temporaries of the compiler */
    MOST_REGISTERS =
        176, /* by nnc_walk_registers, which also counts values that are never live at once */
    LEAST_ROWS = 4 /* of results */
};

/* ---- finding -------------------------------------------------------------------------------------------------------- */

/* Is q a guard on the source's rows, which depends only on the walk's place? */
static bool is_row(const nnc_kernel *k, const nnc_walk *w, const nnc_kguard *q)
{
    const uint32_t own = nnc_affine_axes(&q->e) >> k->n_outer << k->n_outer;
    return q->e.k[w->map] == 1 && q->e.k[w->taps] == 1 && own == ((1u << w->map) | (1u << w->taps));
}

/* Is the load one of the source? It moves along both axes; its guards are on columns, plus one on rows that all sources share. */
static bool is_source(const nnc_kernel *k, nnc_walk *w, const nnc_kins *in)
{
    int rows = 0;
    if (in->at.k[w->map] == 0 || in->at.k[w->map] != in->at.k[w->taps])
        return false;
    for (int g = 0; g < in->n_guard; g++) {
        const nnc_kguard *q = &in->guard[g];
        if (!(nnc_affine_axes(&q->e) >> k->n_outer))
            continue;
        if (!is_row(k, w, q) || (w->row && !nnc_kguard_equal(w->row, q)))
            return false;
        w->row = q;
        rows++;
    }
    w->sources++;
    w->guarded += rows;
    return rows <= 1 && (in->arg[1] < 0 || nnc_kins_is_zero(k, in->arg[1]));
}

static bool is_weight(const nnc_walk *w, const nnc_kins *in)
{
    return in->at.k[w->map] == 0 && in->at.k[w->taps] != 0 && in->n_guard == 0;
}

/* Does the body consist of products of sources and weights and their sums? */
static bool body_ok(const nnc_kernel *k, nnc_walk *w, const nnc_kins *in)
{
    const nnc_dtype d = in->buf >= 0 ? k->buf[in->buf].dtype : DT_f32;
    switch ((nnc_kop)in->op) {
    case KO_const: return true;
    case KO_load:
        return nnc_kins_index(in) < 0 && (d == DT_f16 || d == DT_bf16 || d == DT_f32) &&
               (is_weight(w, in) || is_source(k, w, in));
    case KO_sop: return in->sop == SC_fma && in->dtype == DT_f32 && !(in->hint & KH_exact);
    case KO_reduce: return in->sop == KR_sum && in->dtype == DT_f32 && in->arg[1] < 0;
    default: return false;
    }
}

/* Does every window contain a row of the source, since the first and the last source row of a walk are inside? */
static bool rows_ok(const nnc_kernel *k, const nnc_walk *w)
{
    if (!w->row)
        return true;
    nnc_affine e = w->row->e;
    e.k[w->map] = e.k[w->taps] = 0;
    const nnc_span s = nnc_affine_span(k, &e);
    return s.ok && w->guarded == w->sources && w->row->lo < w->row->hi &&
           w->row->lo - s.lo < k->axis[w->taps].extent &&
           s.hi + k->axis[w->map].extent - 1 < w->row->hi;
}

bool nnc_walk_of(const nnc_kernel *k, nnc_walk *w)
{
    *w = (nnc_walk){.map = -1, .taps = -1};
    if (k->n_stage != 1 || nnc_kernel_scratch(k) > 0 || nnc_kernel_in_order(k))
        return false;
    const nnc_kstage *s = &k->stage[0];
    for (int a = k->n_outer; a < k->n_axis; a++) {
        int *to = k->axis[a].kind == KA_map ? &w->map : &w->taps;
        if (!(s->axes >> a & 1) || k->axis[a].extent == 1)
            continue;
        if (*to >= 0)
            return false;
        *to = a;
    }
    if (w->map < 0 || w->taps < 0 || k->axis[w->taps].extent > MOST_ROWS)
        return false;
    for (int32_t id = s->body0; id < s->body1; id++)
        if (!body_ok(k, w, &k->ins[id]))
            return false;
    w->rows = k->axis[w->map].extent + k->axis[w->taps].extent - 1;
    if (w->row)
        w->rows = nnc_min64(w->rows, w->row->hi - w->row->lo);
    return w->sources > 0 && rows_ok(k, w);
}

/* ---- rewriting ------------------------------------------------------------------------------------------------------ */

/* Direction in which the source moves as the taps advance: 1 along rows, -1 against them; 0: not in steps of one row, or an index is
 * read. */
static int direction(const nnc_kernel *k, int rows, int taps)
{
    int way = 0;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        const int64_t m = in->at.k[rows], q = in->at.k[taps];
        if (in->op == KO_index && (in->i == rows || in->i == taps))
            return 0;
        if (in->op != KO_load || m == 0 || q == 0)
            continue;
        if ((m != q && m != -q) || (way != 0 && way != (m == q ? 1 : -1)))
            return 0;
        way = m == q ? 1 : -1;
    }
    return way;
}

/* Reverses axis a in a form. */
static void turn(nnc_affine *e, int a, int64_t extent)
{
    e->c += e->k[a] * (extent - 1);
    e->k[a] = -e->k[a];
}

/* Divides outer axis `rows` into walks of n rows, along which the source moves as `taps` advances. False: out of memory. */
static bool divide(nnc_kernel *k, int rows, int taps, int64_t n, nnc_arena *a)
{
    const int way = direction(k, rows, taps), r = taps + 1;
    if (!nnc_kernel_divide(k, rows, k->n_outer, KA_map, n, a))
        return false;
    for (int i = 0; i < k->n_ins && way < 0; i++) {
        turn(&k->ins[i].at, r, k->axis[r].extent);
        for (int g = 0; g < k->ins[i].n_guard; g++)
            turn(&k->ins[i].guard[g].e, r, k->axis[r].extent);
    }
    return true;
}

/* ---- choosing ------------------------------------------------------------------------------------------------------- */

bool nnc_walk_rows(const nnc_kernel *k, int fast, int a, int r, int rows[2])
{
    for (int b = 0; b < k->n_outer; b++)
        for (int q = k->n_outer; q < k->n_axis; q++)
            if (b != fast && b != a && q != r && k->axis[b].extent >= LEAST_ROWS &&
                k->axis[q].extent > 1 && k->axis[q].extent <= MOST_ROWS &&
                direction(k, b, q) != 0) {
                rows[0] = b;
                rows[1] = q;
                return true;
            }
    return false;
}

int nnc_walk_registers(const nnc_kernel *k, const nnc_walk *w)
{
    int sums = 0, weights = 0;
    const int taps = (int)k->axis[w->taps].extent;
    for (int i = 0; i < k->n_ins; i++) {
        sums += k->ins[i].op == KO_reduce;
        weights += k->ins[i].op == KO_load && i < k->stage[0].body1 && is_weight(w, &k->ins[i]);
    }
    return VEC * (sums * taps + weights * taps + w->sources) + w->sources + OTHER_REGISTERS;
}

/* Limit of registers per thread, which determines the blocks of an SM. */
static int registers_of(const nnc_kernel *k, const nnc_walk *w)
{
    return nnc_walk_registers(k, w) <= FEW_REGISTERS + 8 ? FEW_REGISTERS : REGISTERS;
}

/* Instructions per result, without those after the sums. Elements of the source are loaded, converted and, at the edge, checked for their
 * place. Weights are loaded once. A row has some of its own. */
static double cost_of(const nnc_kernel *k, const nnc_walk *w, int rows, int64_t results)
{
    const double taps = (double)k->axis[w->taps].extent, walks = (double)k->axis[rows].extent;
    const double all = (double)(k->axis[w->map].extent - 1) + taps;
    double terms = 0, weights = 0, read = all * walks;
    if (w->row) /* rows beyond the edge are not read */
        read -=
            walks * (double)k->axis[w->map].extent + taps - 1 - (double)(w->row->hi - w->row->lo);
    for (int i = 0; i < k->stage[0].body1; i++) {
        terms += k->ins[i].op == KO_sop;
        weights += k->ins[i].op == KO_load && is_weight(w, &k->ins[i]);
    }
    const double row = w->sources * (VEC + nnc_gpu_price[NNC_G_walk_load]) + terms * VEC * taps +
                       nnc_gpu_price[NNC_G_walk_row];
    const double once = weights * taps * (VEC + 1) + nnc_gpu_price[NNC_G_walk];
    return (read * row + walks * once) / (double)(results * VEC);
}

/* The same by latency: each row is loaded while the one before is summed, which takes at least the memory's latency. */
static double waiting_of(
    const nnc_kernel *k, const nnc_walk *w, const nnc_target *t, int64_t threads, int64_t results)
{
    const double clocks = (double)t->clock_hz * NNC_SM_latency * 1e-9;
    const int64_t sms = nnc_target_sms(t),
                  resident = NNC_SM_registers / registers_of(k, w) / THREADS * sms;
    const double waves = (double)nnc_ceildiv(threads, THREADS) / (double)resident;
    return (waves > 1 ? waves : 1) * (double)(w->rows + 1) * clocks * NNC_SM_lanes * (double)sms /
           (double)results;
}

/* Rewrites k as walks of n by m results; *cost: instructions per result, negative if k is no walk. False: out of memory. */
static bool try_walk(nnc_kernel *k, const nnc_target *t, const int pair[2][2], int n, int64_t m,
    double *cost, nnc_arena *mem)
{
    const int a = pair[0][0], b = pair[1][0];
    const int64_t results = nnc_kernel_points(k, (1u << k->n_outer) - 1),
                  image = k->axis[a].extent * k->axis[b].extent;
    nnc_walk w;
    *cost = -1;
    if (!nnc_kernel_strip(k, a, n, mem) || !nnc_kernel_unroll(k, pair[0][1], mem) ||
        !divide(k, b, pair[1][1], m, mem))
        return false;
    if (!nnc_walk_of(k, &w) || nnc_walk_registers(k, &w) > MOST_REGISTERS)
        return true;
    const int64_t threads = nnc_kernel_points(k, (1u << k->n_outer) - 1) / VEC;
    const double waiting = waiting_of(k, &w, t, threads, results);
    /* the cost of a row includes one strip's sources and terms */
    *cost = cost_of(k, &w, b, image) * (double)k->axis[a].extent *
            nnc_window_rounded(t, threads, THREADS);
    *cost = waiting > *cost ? waiting : *cost;
    return true;
}

bool nnc_window_walk(nnc_kernel *k, const nnc_target *t, const int pair[2][2], double most,
    bool *done, nnc_arena *mem)
{
    const int fast = nnc_cuda_fast_axis(k);
    const int64_t wide = k->axis[pair[0][0]].extent, high = k->axis[pair[1][0]].extent;
    nnc_kernel best;
    *done = false;
    if (k->n_axis == NNC_KAXES || k->axis[fast].extent % VEC || nnc_cuda_vec(k, fast) < VEC)
        return true;
    for (int n = 2; n <= WIDEST && n <= wide; n++)
        for (int64_t m = high; m >= LEAST_ROWS; m--) {
            nnc_kernel to = *k;
            double cost = -1;
            if (high % m == 0 && !try_walk(&to, t, pair, n, m, &cost, mem))
                return false;
            if (cost < 0 || cost >= most)
                continue;
            most = cost;
            best = to;
            *done = true;
        }
    if (*done)
        *k = best;
    return true;
}

void nnc_walk_choose(nnc_kernel *k, const nnc_walk *w)
{
    nnc_kgrid *g = &k->grid;
    g->cls = KC_point;
    g->threads = THREADS;
    g->axis = (int16_t)nnc_cuda_fast_axis(k);
    g->vec = VEC;
    g->regs = (int16_t)registers_of(k, w);
}

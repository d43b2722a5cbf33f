/* schedule/cuda_contract.c -- contractions on the tensor cores of a GPU: a kernel of one sum of products of 16-bit factors.
 *
 *     y[row, column] = epilogue(sum over terms of prologue(x)[row, term] * w[column, term]).
 *
 * Examples are a linear layer and a 1x1 convolution of channels-last images, with any elementwise ops before and after the sum. A block of
 * threads computes a tile of `group` rows by `vec` columns.
 *
 *     for blocks of 32 * flight terms, of which the next is loaded while one is multiplied:
 *       prologue(x) and w, rounded to 16 bits, to shared memory. Each warp multiplies 32 rows by some of the columns (mma.m16n8k16).
 *     sums through shared memory to threads that have neighbouring columns; epilogue; stores.
 *
 * Sums are f32. A prologue is computed once for each tile of columns. Tiles of the same rows are neighbours, so that x comes from L2 for
 * all but the first. The emitter is codegen/cuda_contract.c. */
#include "schedule/schedule.h"

#include <math.h>
#include <string.h>

enum {
    LEAST_ROWS = 32,
    LEAST_COLUMNS = 8,
    LEAST_SM = 80,
    RESIDENT = 512, /* threads of an SM, for their loads in flight */
    MOST_AHEAD = 8 /* bytes of loads in flight for a term: 32 registers of a thread */
};

/* ---- what the kernel computes ---- */

static bool is_plain(const nnc_kins *in)
{
    return in->n_guard == 0 && nnc_kins_index(in) < 0;
}

static nnc_dtype stored_type(const nnc_kernel *k, const nnc_kins *in)
{
    return (nnc_dtype)k->buf[in->buf].dtype;
}

/* The only own axis of more than one point, if it is summed; otherwise -1. */
static int term_axis(const nnc_kernel *k)
{
    int term = -1;
    for (int a = k->n_outer; a < k->n_axis; a++) {
        if (k->axis[a].kind != KA_reduce || k->axis[a].seq || (term >= 0 && k->axis[a].extent > 1))
            return -1;
        term = k->axis[a].extent > 1 ? a : term;
    }
    return term;
}

/* The kernel's only reduction, if it is a sum of f32; otherwise -1. */
static int32_t only_sum(const nnc_kernel *k)
{
    int32_t sum = -1;
    for (int32_t i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_reduce)
            continue;
        if (sum >= 0 || in->sop != KR_sum || in->dtype != DT_f32 || in->arg[1] >= 0 || in->running)
            return -1;
        sum = i;
    }
    return sum;
}

/* The outer axis along which every store is contiguous: columns. -1: none. */
static int column_axis(const nnc_kernel *k)
{
    int column = -1;
    for (int a = 0; a < k->n_outer && column < 0; a++) {
        int stores = 0, along = 0;
        for (int32_t i = 0; i < k->n_ins; i++)
            if (k->ins[i].op == KO_store) {
                stores++;
                along += k->ins[i].at.k[a] == 1 && is_plain(&k->ins[i]) &&
                         k->buf[k->ins[i].buf].role == KB_out;
            }
        column = stores && stores == along && k->axis[a].extent > 1 ? a : -1;
    }
    return column;
}

/* Is v the load of a matrix [column, term]? */
static bool is_matrix(const nnc_kernel *k, const cu_contract *x, int32_t v)
{
    const nnc_kins *in = &k->ins[v];
    return in->op == KO_load && k->buf[in->buf].role == KB_in && is_plain(in) &&
           nnc_dtype_size(stored_type(k, in)) == 2 && nnc_kdtype(stored_type(k, in)) == DT_f32 &&
           in->at.k[x->column] && !(nnc_affine_axes(&in->at) & x->rows) &&
           cu_vector(k, in, x->term, CU_CONTRACT_VEC);
}

/* Does v have that type without further rounding, as a load or a rounded value? */
static bool is_of_type(const nnc_kernel *k, int32_t v, nnc_dtype d)
{
    const nnc_kins *in = &k->ins[v];
    return in->op == KO_load ? stored_type(k, in) == d
                             : in->op == KO_sop && in->sop == SC_cast && in->cast_to == d;
}

bool cu_contract_ahead(const nnc_kernel *k, const cu_contract *x, int32_t id)
{
    const nnc_kins *in = &k->ins[id];
    return in->op == KO_load && id != x->w && in->at.k[x->term] == 1 &&
           (nnc_affine_axes(&in->at) & x->rows);
}

/* Is the first factor computed elementwise from loads, and does it depend on both rows and terms? */
static bool has_rows(const nnc_kernel *k, const cu_contract *x, bool *cone)
{
    bool ok = true, any = false;
    cone[x->x] = true;
    for (int32_t i = x->x; i >= 0 && ok; i--) {
        const nnc_kins *in = &k->ins[i];
        if (!cone[i])
            continue;
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                cone[in->arg[j]] = true;
        ok = in->op != KO_reduce && !(nnc_kins_axes(in) >> x->column & 1) &&
             (in->op != KO_load ||
                 (in->dtype == DT_f32 &&
                     (in->at.k[x->term] == 0 || cu_vector(k, in, x->term, CU_CONTRACT_VEC))));
        any = any || cu_contract_ahead(k, x, i);
    }
    return ok && any;
}

/* Are all accesses plain, all stores results of the last stage, and not read by loads? */
static bool is_simple(const nnc_kernel *k, const nnc_kstage *last)
{
    for (int32_t i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if ((in->op == KO_load && (!is_plain(in) || k->buf[in->buf].role != KB_in)) ||
            (in->op == KO_store && i < last->post0) ||
            (in->op == KO_reduce && (i < last->body0 || i >= last->body1)))
            return false;
    }
    return true;
}

bool cu_contract_of(const nnc_kernel *k, cu_contract *x)
{
    *x = (cu_contract){.w = -1};
    if (k->n_stage < 1 || nnc_kernel_scratch(k) > 0 || nnc_kernel_in_order(k))
        return false;
    for (int i = 0; i < k->n_stage - 1; i++) /* values that rows and columns share for all terms */
        if (nnc_own_points(k, &k->stage[i]) != 1)
            return false;
    x->term = term_axis(k);
    x->sum = only_sum(k);
    x->column = x->term >= 0 && x->sum >= 0 ? column_axis(k) : -1;
    const int32_t product = x->column >= 0 ? k->ins[x->sum].arg[0] : -1;
    if (product < 0 || k->axis[x->term].extent % CU_CONTRACT_VEC || k->ins[product].op != KO_sop ||
        !(k->ins[product].sop == SC_mul ||
            (k->ins[product].sop == SC_fma && nnc_kins_is_zero(k, k->ins[product].arg[2]))))
        return false;
    for (int a = 0; a < k->n_outer; a++)
        if (a != x->column && k->axis[a].extent > 1)
            x->rows |= 1u << a;
    for (int j = 1; j >= 0 && x->w < 0; j--)
        if (is_matrix(k, x, k->ins[product].arg[j])) {
            x->w = k->ins[product].arg[j];
            x->x = k->ins[product].arg[!j];
        }
    if (x->w < 0 || x->w == x->x)
        return false;
    x->type = stored_type(k, &k->ins[x->w]);
    x->m = nnc_kernel_points(k, x->rows);
    x->n = k->axis[x->column].extent;
    x->k = k->axis[x->term].extent;
    if (!is_of_type(k, x->x, x->type) || !is_simple(k, &k->stage[k->n_stage - 1]) ||
        x->m < LEAST_ROWS || x->n < LEAST_COLUMNS)
        return false;
    for (int32_t i = 0; i < x->x; i++)
        if (cu_contract_ahead(k, x, i))
            x->ahead += nnc_dtype_size(stored_type(k, &k->ins[i]));
    bool *cone = nnc_calloc((size_t)k->n_ins, sizeof *cone);
    const bool ok = cone && has_rows(k, x, cone);
    nnc_free(cone);
    return ok;
}

/* ---- the grid ---- */

bool cu_contract_tile(const nnc_kgrid *g, const cu_contract *x, cu_ctile *t)
{
    const int warps = g->threads / 32;
    if ((g->group != 64 && g->group != 128) || (g->vec != 32 && g->vec != 64 && g->vec != 128) ||
        (g->threads != 128 && g->threads != 256) ||
        (g->flight != 1 && g->flight != 2 && g->flight != 4) ||
        (g->flight > 1 && g->flight * x->ahead > MOST_AHEAD))
        return false;
    t->down = g->group / CU_CONTRACT_ROWS;
    if (warps % t->down)
        return false;
    t->across = warps / t->down;
    t->wide = g->vec / t->across;
    t->terms = CU_CONTRACT_TERMS * g->flight;
    t->threads = t->terms / CU_CONTRACT_VEC;
    t->pitch = t->terms + CU_CONTRACT_VEC;
    if (t->wide < 16 || t->wide > 64 || t->threads * g->vec % g->threads)
        return false;
    t->line = t->wide + 8; /* so that rows begin in different banks */
    t->lanes = 8;
    while (x->n % t->lanes)
        t->lanes /= 2;
    const int64_t tiles = 2 * (int64_t)(g->group + g->vec) * t->pitch * 2,
                  sums = (int64_t)warps * 16 * t->line * 4;
    t->shared = nnc_max64(tiles, sums);
    return true;
}

bool cu_contract_derive(const nnc_kernel *k, nnc_kgrid *g)
{
    cu_contract x;
    cu_ctile t;
    if (!cu_contract_of(k, &x) || g->axis != x.column || g->split != 1 || g->keep || g->park ||
        g->spill || !cu_contract_tile(g, &x, &t))
        return false;
    g->index = 32;
    g->shared = t.shared;
    return nnc_mul_ok(nnc_ceildiv(x.m, g->group), nnc_ceildiv(x.n, g->vec), &g->blocks) &&
           cu_narrow(k, cu_all_points(k)) && cu_all_points(k) > 0;
}

/* ---- time ---- */

/* Bytes that are accessed of the buffers, each once. */
static int64_t buffer_bytes(const nnc_kernel *k)
{
    int64_t bytes = 0;
    for (int b = 0; b < k->n_buf; b++) {
        int64_t n = 0;
        for (int32_t i = 0; i < k->n_ins; i++)
            if ((k->ins[i].op == KO_load || k->ins[i].op == KO_store) && k->ins[i].buf == b)
                n = nnc_max64(n, cu_elements(k, &k->ins[i]));
        bytes = nnc_add_sat(bytes, nnc_mul_sat(n, nnc_dtype_size(k->buf[b].dtype)));
    }
    return bytes;
}

/* Instructions per element of ops from .. to - 1, including its share of accesses and of the transfer through shared memory. Math functions
 * have the fast forms for 16-bit results. */
static double elementwise(const nnc_kernel *k, int32_t from, int32_t to)
{
    enum { SHARED = 4, FUNCTION = 10 };
    double n = SHARED;
    for (int32_t i = from; i < to; i++)
        n += k->ins[i].op == KO_sop ? (double)nnc_min64(cu_cost(&k->ins[i]), FUNCTION)
                                    : k->ins[i].op == KO_load;
    return n;
}

/* Nanoseconds without the launch, the longest of: an SM's multiply-adds, its resident blocks' latency, memory, and L2, from which each tile
 * loads both factors. */
static double contract_ns(const nnc_kernel *k, const void *of, const nnc_target *t)
{
    const cu_contract *x = of;
    const nnc_kgrid *g = &k->grid;
    cu_ctile tile;
    if (!cu_contract_tile(g, x, &tile))
        return INFINITY;
    const int64_t sms = nnc_target_sms(t), each = nnc_ceildiv(g->blocks, sms),
                  shared = cu_most_shared(t);
    int64_t n = nnc_min64(shared / (g->shared + NNC_SM_block_shared), RESIDENT / g->threads);
    n = nnc_max64(nnc_min64(n, each), 1);
    const double clock = (double)nnc_max64(t->clock_hz, 1), lanes = NNC_SM_lanes,
                 rate = nnc_gpu_price[NNC_G_contract_rate] *
                        (double)nnc_target_peak_flops(t, x->type, false) / 2 / (double)sms / clock,
                 step = (double)g->group * tile.terms *
                        (g->vec / rate + elementwise(k, 0, x->x) / lanes),
                 end = (double)g->group * g->vec * elementwise(k, x->sum + 1, k->n_ins) / lanes,
                 steps = (double)nnc_ceildiv(x->k, tile.terms),
                 wait = nnc_gpu_price[NNC_G_contract_step] +
                        (g->flight - 1) * nnc_gpu_price[NNC_G_contract_more],
                 busy = steps * step + end, /* of the SM; blocks wait while others are */
        alone = nnc_gpu_price[NNC_G_contract_start] + steps * wait + busy,
                 clocks = (double)nnc_ceildiv(each, n) * fmax((double)n * busy, alone),
                 computes = clocks / clock, copy = (double)nnc_max64(t->copy_bytes_s, 1),
                 moves = (double)buffer_bytes(k) / copy / nnc_gpu_price[NNC_G_contract_copy],
                 loads = 2.0 * (double)g->blocks * (g->group + g->vec) * (double)x->k / copy /
                         nnc_gpu_price[NNC_G_contract_l2];
    return fmin(fmax(computes, fmax(moves, loads)) * 1e9, 1e15);
}

int64_t cu_contract_ns(const nnc_kernel *k, const nnc_target *t)
{
    cu_contract x;
    if (k->grid.cls != KC_contract || !cu_contract_of(k, &x))
        return -1;
    return nnc_add_sat(t->launch_ns, (int64_t)contract_ns(k, &x, t));
}

bool cu_contract_fits(const nnc_kernel *k, const nnc_target *t)
{
    cu_contract x;
    return t->sm >= LEAST_SM && cu_contract_of(k, &x);
}

bool cu_contract_choose(nnc_kernel *k, const nnc_target *t)
{
    static const struct {
        int16_t rows, columns, threads, flight;
    } shape[] = {{128, 128, 256, 1}, {128, 64, 256, 1}, {128, 32, 128, 1}, {64, 128, 128, 1},
        {64, 64, 128, 1}, {64, 32, 128, 1}, {64, 64, 128, 2}, {64, 32, 128, 2}, {64, 64, 128, 4},
        {64, 32, 128, 4}};
    cu_contract x;
    nnc_kgrid grid[NNC_COUNT(shape)];
    if (t->sm < LEAST_SM || !cu_contract_of(k, &x))
        return false;
    for (size_t i = 0; i < NNC_COUNT(shape); i++) {
        grid[i] = k->grid;
        grid[i].cls = KC_contract;
        grid[i].axis = (int16_t)x.column;
        grid[i].group = shape[i].rows;
        grid[i].vec = shape[i].columns;
        grid[i].threads = shape[i].threads;
        grid[i].flight = shape[i].flight;
        grid[i].regs = NNC_SM_registers / RESIDENT;
    }
    return nnc_cuda_fastest(k, t, grid, NNC_COUNT(shape), contract_ns, &x) < INFINITY;
}

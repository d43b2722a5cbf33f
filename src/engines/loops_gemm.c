/* engines/loops_gemm.c -- one blocked matrix product under convolutions and matmul. Both
 * operands come in panels of accumulators made by callbacks (which know layouts, padding,
 * strides and dtypes); tiles of the result are summed in a thread's own block and handed out row
 * by row. Block sizes keep both panels and the block within 1 MB of cache (f32). */
#include "engines/loops.h"
#include <string.h>

enum { MC = 96, NC = 256, KC = 256 };
_Static_assert(MC % 12 == 0 && MC % 4 == 0 && NC % LP_PANEL == 0, "whole tiles");

typedef struct blocking {
    int64_t mc, nc, tiles_m, tiles_n, tiles;
} blocking;

/* Bytes of one thread: panel of A, panel of B, block of C. */
static int64_t thread_work(lp_acc a)
{
    int64_t e = a == LP_F32 ? 4 : 8;
    return e * (MC * KC + KC * NC + MC * NC);
}

int64_t lp_gemm_work(lp_acc a, int threads)
{
    return thread_work(a) * (threads > 1 ? threads : 1);
}

/* Smaller blocks until every thread has a few, but not below what amortises a panel. */
static blocking block(const lp_gemm *g, int threads)
{
    blocking b = {.mc = MC, .nc = NC};
    for (;;) {
        b.tiles_m = nnc_ceildiv(g->m, b.mc);
        b.tiles_n = nnc_ceildiv(g->n, b.nc);
        b.tiles = g->batches * b.tiles_m * b.tiles_n;
        if (b.tiles >= 2 * threads || (b.mc <= 24 && b.nc <= LP_PANEL))
            return b;
        if (b.nc > 64 || b.mc <= 24)
            b.nc /= 2;
        else
            b.mc /= 2;
    }
}

typedef struct job {
    const lp_gemm *g;
    blocking b;
} job;

static void multiply(const lp_gemm *g, int64_t batch, int64_t n0, int64_t nn, int64_t k0,
    int64_t kn, int64_t rows, const char *pa, char *pb, char *pc)
{
    const lp_kernels *k = g->h->k;
    const int64_t e = g->h->esize, panels = nnc_ceildiv(g->n, LP_PANEL);
    for (int64_t j = 0; j < nn; j += LP_PANEL) {
        const char *b = pb;
        if (g->fill_b)
            g->fill_b(g, batch, n0 + j, k0, kn, pb);
        else
            b = g->packed +
                (((batch % g->packed_batches) * panels + (n0 + j) / LP_PANEL) * g->k + k0) *
                    LP_PANEL * e;
        for (int64_t i = 0; i < rows; i += k->rows)
            k->tile(kn, pa + i * KC * e, KC, b, pc + (i * NC + j) * e, NC);
    }
}

static void run_tile(const lp_gemm *g, const blocking *bl, int64_t tile, char *work)
{
    const int64_t e = g->h->esize;
    char *pa = work, *pb = pa + e * MC * KC, *pc = pb + e * KC * NC;
    int64_t m0 = tile % bl->tiles_m * bl->mc, n0 = tile / bl->tiles_m % bl->tiles_n * bl->nc;
    int64_t batch = tile / bl->tiles_m / bl->tiles_n;
    int64_t mn = g->m - m0 < bl->mc ? g->m - m0 : bl->mc;
    int64_t nn = g->n - n0 < bl->nc ? g->n - n0 : bl->nc;
    int64_t rows = nnc_align_up(mn, g->h->k->rows);
    memset(pc, 0, (size_t)(e * rows * NC));
    memset(pa + e * mn * KC, 0, (size_t)(e * (rows - mn) * KC));
    for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
        int64_t kn = g->k - k0 < KC ? g->k - k0 : KC;
        g->fill_a(g, batch, m0, mn, k0, kn, pa, KC);
        multiply(g, batch, n0, nn, k0, kn, rows, pa, pb, pc);
    }
    for (int64_t i = 0; i < mn; i++)
        g->row(g, batch, m0 + i, n0, nn, pc + e * i * NC);
}

static void part(void *ctx, int p, int parts)
{
    const job *j = ctx;
    int64_t t, end;
    nnc_par_range(j->b.tiles, 1, p, parts, &t, &end);
    for (; t < end; t++)
        run_tile(j->g, &j->b, t, j->g->work + p * thread_work(j->g->h->acc));
}

void lp_gemm_run(const lp_gemm *g, int threads)
{
    job j = {g, block(g, threads > 1 ? threads : 1)};
    nnc_par_run(threads, part, &j);
}

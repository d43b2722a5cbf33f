/* ir/eval_gemm.c -- the matrix product behind the reference's matmul, linear, conv and conv_transpose.
 *
 * A block of rows of A is packed in strips of MR rows. Then B (of a convolution, its windows) is packed for each panel of NR columns, and
 * multiplied strip by strip in registers. A strip, a panel and the tile fit L1, a block of A fits L2. Sums run over k in order, so that
 * results do not depend on the number of threads. */
#include "ir/eval_internal.h"

#include <string.h>

enum { MR = 4, NR = 16, KC = 192, MB = 256, NB = 512 };

/* tile[MR][NR] = sum over k of a[k][MR] b[k][NR], two vectors of columns at a time; b and tile are 64-byte aligned. */
#define MICRO(name, elem, bytes) \
    NNC_BODY name(const elem *a, const elem *b, int64_t nk, elem *tile) \
    { \
        typedef elem vec __attribute__((vector_size(bytes))); \
        enum { W = (bytes) / 8 }; \
        for (int j = 0; j < NR; j += 2 * W) { \
            vec s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}; \
            vec s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0}; \
            const elem *p = a, *q = b + j; \
            for (int64_t k = 0; k < nk; k++, p += MR, q += NR) { \
                vec b0 = *(const vec *)q, b1 = *(const vec *)(q + W); \
                s00 += p[0] * b0, s01 += p[0] * b1; \
                s10 += p[1] * b0, s11 += p[1] * b1; \
                s20 += p[2] * b0, s21 += p[2] * b1; \
                s30 += p[3] * b0, s31 += p[3] * b1; \
            } \
            elem *t = tile + j; \
            *(vec *)t = s00, *(vec *)(t + W) = s01; \
            *(vec *)(t + NR) = s10, *(vec *)(t + NR + W) = s11; \
            *(vec *)(t + 2 * NR) = s20, *(vec *)(t + 2 * NR + W) = s21; \
            *(vec *)(t + 3 * NR) = s30, *(vec *)(t + 3 * NR + W) = s31; \
        } \
    }
#define MICROS(name, elem) \
    MICRO(name##_zmm, elem, 64) \
    MICRO(name##_ymm, elem, 32) \
    MICRO(name##_xmm, elem, 16) \
    NNC_DISPATCH_OF(name, (const elem *a, const elem *b, int64_t nk, elem *tile), \
        (a, b, nk, tile), name##_zmm, name##_ymm, name##_xmm)
MICROS(micro_f64, double)
MICROS(micro_u64, uint64_t)

typedef struct bufs {
    uint64_t *a, *b, *tile;
} bufs;

/* Rows i0.. of problem p's A in strips: dst[strip][k][MR], missing rows zero. */
static void pack_a(
    const ev_gemm *g, int64_t p, int64_t i0, int64_t ni, int64_t k0, int64_t nk, uint64_t *dst)
{
    uint64_t tmp[KC];
    static const uint64_t zero[KC];
    for (int64_t s = 0; s < ni; s += MR)
        for (int r = 0; r < MR; r++) {
            uint64_t *d = dst + s * nk + r;
            const uint64_t *row =
                s + r < ni ? ev_gather(&g->a, (p * g->m + i0 + s + r) * g->k + k0, nk, tmp) : zero;
            for (int64_t k = 0; k < nk; k++)
                d[k * MR] = row[k];
        }
}

/* Columns j0.. of problem p's B: dst[k][NR], missing columns zero. */
static void pack_b(
    const ev_gemm *g, int64_t p, int64_t k0, int64_t nk, int64_t j0, int64_t nj, uint64_t *dst)
{
    if (nj < NR)
        memset(dst, 0, (size_t)(nk * NR) * 8);
    for (int64_t k = 0; k < nk; k++)
        ev_read(&g->b, (p * g->k + k0 + k) * g->n + j0, nj, dst + k * NR);
}

/* C tile = (first ? bias : C) + tile */
static void store(const ev_gemm *g, const uint64_t *tile, uint64_t *c, const uint64_t *bias,
    int64_t ni, int64_t nj, bool first)
{
    const bool is_float = nnc_is_float(g->d);
    for (int64_t i = 0; i < ni; i++)
        for (int64_t j = 0; j < nj; j++) {
            uint64_t *p = c + i * g->n + j;
            uint64_t base = !first ? *p : bias ? bias[i * g->bias_row + j * g->bias_col] : 0;
            if (!is_float) {
                /* the sum modulo 2^64, then modulo the type: as if each step wrapped */
                *p = (uint64_t)nnc_sop_eval_i64(
                    SC_cast, g->d, (int64_t)(base + tile[i * NR + j]), 0, 0);
            } else {
                double x, y;
                memcpy(&x, &base, 8);
                memcpy(&y, &tile[i * NR + j], 8);
                x += y;
                memcpy(p, &x, 8);
            }
        }
}

/* Rows i0..i0+ni and columns j0..j0+nj of problem p. */
static void run_job(
    const ev_gemm *g, const bufs *w, int64_t p, int64_t i0, int64_t ni, int64_t j0, int64_t nj)
{
    const uint64_t *bias = g->bias ? g->bias + p % g->groups * g->m * g->bias_row : NULL;
    for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
        int64_t nk = nnc_min64(KC, g->k - k0);
        pack_a(g, p, i0, ni, k0, nk, w->a);
        for (int64_t j = j0; j < j0 + nj; j += NR) {
            int64_t cols = nnc_min64(NR, j0 + nj - j);
            pack_b(g, p, k0, nk, j, cols, w->b);
            for (int64_t s = 0; s < ni; s += MR) {
                if (nnc_is_float(g->d))
                    micro_f64(
                        (const double *)w->a + s * nk, (const double *)w->b, nk, (double *)w->tile);
                else
                    micro_u64(w->a + s * nk, w->b, nk, w->tile);
                store(g, w->tile, g->c + (p * g->m + i0 + s) * g->n + j,
                    bias ? bias + (i0 + s) * g->bias_row + j * g->bias_col : NULL,
                    nnc_min64(MR, ni - s), cols, k0 == 0);
            }
        }
    }
}

static nnc_status run_jobs(void *ctx, int64_t begin, int64_t end)
{
    const ev_gemm *g = ctx;
    bufs w;
    w.a = nnc_aligned_alloc(64, (size_t)(MB * KC + KC * NR + MR * NR) * 8);
    if (!w.a)
        return NNC_E_NOMEM;
    w.b = w.a + MB * KC;
    w.tile = w.b + KC * NR;
    int64_t mj = nnc_ceildiv(g->m, MB), nj = nnc_ceildiv(g->n, NB);
    for (int64_t job = begin; job < end; job++) {
        int64_t i0 = job / nj % mj * MB, j0 = job % nj * NB;
        run_job(g, &w, job / nj / mj, i0, nnc_min64(MB, g->m - i0), j0, nnc_min64(NB, g->n - j0));
    }
    nnc_free(w.a);
    return NNC_OK;
}

nnc_status ev_run_gemm(const ev *e, const ev_gemm *g)
{
    int64_t jobs = g->batch * nnc_ceildiv(g->m, MB) * nnc_ceildiv(g->n, NB);
    int64_t cost = nnc_min64(g->m, MB) * nnc_min64(g->n, NB) * nnc_min64(g->k, 1 << 20);
    nnc_status s = ev_for(e, jobs, 1, cost, run_jobs, (void *)g);
    return s == NNC_E_NOMEM ? nnc_nomem(e->sink) : s;
}

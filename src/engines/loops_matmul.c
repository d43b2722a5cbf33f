/* engines/loops_matmul.c -- batched matrix products with broadcast leading dimensions, two ways.
 *
 * Skinny: few rows against a large second operand (linear layers at batch 1 to 8). Memory-bound,
 * so the weights must stream through exactly once, straight from where they lie: no panels,
 * every weight multiplied by all rows while in a register. General: the blocked product of
 * loops_gemm.c. */
#include "engines/loops.h"
#include <string.h>

typedef struct shape {
    int64_t batches, m, n, k;
    int64_t am, ak, bk, bn, cm, cn; /* strides of a[m][k], b[k][n], c[m][n] */
} shape;

/* All leading dimensions of a and c one after the other in memory, so that they can join m? (b
 * must not have any.) */
static bool joins(const nnc_type *t, const int64_t *s)
{
    for (int d = t->rank - 3; d >= 0; d--)
        if (t->dim[d] != 1 && s[d] != s[d + 1] * t->dim[d + 1])
            return false;
    return true;
}

static shape shape_of(const lp_handle *h)
{
    const nnc_call *c = &h->c;
    const int ra = c->src.rank, rb = c->wei.rank, rc = c->dst.rank;
    shape s = {.batches = 1};
    s.n = c->dst.dim[rc - 1];
    s.m = c->dst.dim[rc - 2];
    s.k = c->src.dim[c->trans_a ? ra - 2 : ra - 1];
    s.am = h->xs[c->trans_a ? ra - 1 : ra - 2];
    s.ak = h->xs[c->trans_a ? ra - 2 : ra - 1];
    s.bn = h->ws[c->trans_b ? rb - 2 : rb - 1];
    s.bk = h->ws[c->trans_b ? rb - 1 : rb - 2];
    s.cm = h->ys[rc - 2];
    s.cn = h->ys[rc - 1];
    int64_t b_batches = 1;
    for (int d = 0; d < rb - 2; d++)
        b_batches *= c->wei.dim[d];
    for (int d = 0; d < rc - 2; d++)
        s.batches *= c->dst.dim[d];
    if (s.batches > 1 && b_batches == 1 && !c->trans_a && ra == rc &&
        nnc_type_numel(&c->src) == s.batches * s.m * s.k && joins(&c->src, h->xs) &&
        joins(&c->dst, h->ys)) {
        s.m *= s.batches;
        s.batches = 1;
    }
    return s;
}

/* Offset of a batch in an operand whose leading dimensions broadcast to dst's. */
static int64_t batch_offset(
    const nnc_call *c, int64_t batch, const nnc_type *t, const int64_t *stride)
{
    int64_t off = 0;
    for (int d = c->dst.rank - 3; d >= 0; d--) {
        int64_t i = batch % c->dst.dim[d];
        int own = d - (c->dst.rank - t->rank);
        batch /= c->dst.dim[d];
        if (own >= 0 && t->dim[own] > 1)
            off += i * stride[own];
    }
    return off;
}

/* ---- general --------------------------------------------------------------------------------- */

static void fill_a(const lp_gemm *g, int64_t batch, int64_t m0, int64_t mn, int64_t k0, int64_t kn,
    char *out, int64_t ld)
{
    const lp_handle *h = g->h;
    const shape s = shape_of(h);
    int64_t off = batch_offset(&h->c, batch, &h->c.src, h->xs) + k0 * s.ak;
    for (int64_t i = 0; i < mn; i++)
        lp_load(h->acc, h->c.src.dtype, g->a->src, off + (m0 + i) * s.am, s.ak, kn,
            out + h->esize * i * ld);
}

/* Rows along n where n is the nearer dimension in memory, else columns along k scattered into
 * the panel. */
static void fill_b(const lp_gemm *g, int64_t batch, int64_t n0, int64_t k0, int64_t kn, char *out)
{
    const lp_handle *h = g->h;
    const shape s = shape_of(h);
    const int64_t e = h->esize, nn = s.n - n0 < LP_PANEL ? s.n - n0 : LP_PANEL;
    int64_t off = batch_offset(&h->c, batch, &h->c.wei, h->ws) + k0 * s.bk + n0 * s.bn;
    nnc_dtype d = h->c.wei.dtype;
    if (nn < LP_PANEL)
        memset(out, 0, (size_t)(kn * LP_PANEL * e));
    if (s.bn <= s.bk) {
        for (int64_t k = 0; k < kn; k++)
            lp_load(h->acc, d, g->a->wei, off + k * s.bk, s.bn, nn, out + k * LP_PANEL * e);
        return;
    }
    for (int64_t k = 0; k < kn; k += 64) {
        int64_t kk = kn - k < 64 ? kn - k : 64;
        for (int64_t j = 0; j < nn; j++) {
            union {
                double f[64];
                int64_t i[64];
                float s[64];
            } u;
            lp_load(h->acc, d, g->a->wei, off + j * s.bn + k * s.bk, s.bk, kk, &u);
            if (e == 4)
                for (int64_t t = 0; t < kk; t++)
                    ((float *)out)[(k + t) * LP_PANEL + j] = u.s[t];
            else
                for (int64_t t = 0; t < kk; t++)
                    ((int64_t *)out)[(k + t) * LP_PANEL + j] = u.i[t];
        }
    }
}

static void finish(const lp_handle *h, const lp_args *a, const shape *s, int64_t batch, int64_t m,
    int64_t n0, int64_t nn, char *row)
{
    int64_t off = batch_offset(&h->c, batch, &h->c.dst, h->ys) + m * s->cm + n0 * s->cn;
    lp_finish(h, a, row, nn, n0, 1, off, s->cn);
}

static void finish_row(
    const lp_gemm *g, int64_t batch, int64_t m, int64_t n0, int64_t nn, char *row)
{
    const shape s = shape_of(g->h);
    finish(g->h, g->a, &s, batch, m, n0, nn, row);
}

static nnc_status run_blocked(const lp_handle *h, const lp_args *a, char *work)
{
    shape s = shape_of(h);
    lp_gemm g = {.h = h,
        .a = a,
        .batches = s.batches,
        .m = s.m,
        .n = s.n,
        .k = s.k,
        .fill_a = fill_a,
        .fill_b = fill_b,
        .row = finish_row,
        .work = work};
    lp_gemm_run(&g, h->c.threads);
    return NNC_OK;
}

/* ---- skinny ---------------------------------------------------------------------------------- */

typedef struct skinny {
    const lp_handle *h;
    const lp_args *a;
    char *work;
    shape s;
} skinny;

/* Columns n0..n0+nn of all rows. y: this thread's LP_SKINNY rows of LP_ROW accumulators. */
static void skinny_block(const skinny *k, int64_t n0, int64_t nn, char *y)
{
    const shape *s = &k->s;
    const lp_handle *h = k->h;
    const char *w = k->a->wei + n0 * s->bn * h->esize;
    if (s->bk == 1) {
        h->k->dot(s->m, nn, s->k, k->a->src, s->am, w, s->bn, y, LP_ROW);
    } else {
        memset(y, 0, (size_t)(LP_SKINNY * LP_ROW * h->esize));
        h->k->axpy(s->m, nn, s->k, k->a->src, s->am, w, s->bk, y, LP_ROW);
    }
    for (int64_t m = 0; m < s->m; m++)
        finish(h, k->a, s, 0, m, n0, nn, y + m * LP_ROW * h->esize);
}

static void skinny_part(void *ctx, int part, int parts)
{
    const skinny *k = ctx;
    char *y = k->work + (int64_t)part * LP_SKINNY * LP_ROW * k->h->esize;
    /* along k: pieces of 48 columns keep many short streams; along n: rows of the weights in
     * pieces a page long */
    int64_t step = k->s.bk == 1 ? 48 : LP_ROW, n, end;
    nnc_par_range(k->s.n, 16, part, parts, &n, &end);
    for (; n < end; n += step)
        skinny_block(k, n, end - n < step ? end - n : step, y);
}

static nnc_status run_skinny(const lp_handle *h, const lp_args *a, char *work)
{
    skinny k = {h, a, work, shape_of(h)};
    nnc_par_run(h->c.threads, skinny_part, &k);
    return NNC_OK;
}

/* f32 or f64 throughout, at most LP_SKINNY rows contiguous in k, and enough weights that they
 * cannot stay in a cache: below, packing pays instead. */
bool lp_is_skinny(const nnc_call *c)
{
    if (c->kind != CALL_matmul || (c->src.dtype != DT_f32 && c->src.dtype != DT_f64) ||
        c->wei.dtype != c->src.dtype || c->wei.rank != 2)
        return false;
    lp_handle h = {.c = *c};
    nnc_type_strides(&c->src, h.xs);
    nnc_type_strides(&c->wei, h.ws);
    nnc_type_strides(&c->dst, h.ys);
    shape s = shape_of(&h);
    return s.batches == 1 && s.m <= LP_SKINNY && s.ak == 1 && (s.bk == 1 || s.bn == 1);
}

void lp_prepare_matmul(lp_handle *h)
{
    if (lp_is_skinny(&h->c)) {
        h->work = (int64_t)(h->c.threads > 1 ? h->c.threads : 1) * LP_SKINNY * LP_ROW * h->esize;
        h->run = run_skinny;
    } else {
        h->work = lp_gemm_work(h->acc, h->c.threads);
        h->run = run_blocked;
    }
}

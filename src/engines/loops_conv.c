/* engines/loops_conv.c -- convolution and transposed convolution, 1 to 3 spatial dimensions,
 * groups, dilation and any padding, as a blocked product: rows are output positions, columns
 * output channels of a group, the inner dimension is (tap, input channel). Weights are brought
 * into panels once per run, in the workspace; rows of the other operand are gathered per block.
 * Depthwise convolution is in loops_window.c. */
#include "engines/loops.h"
#include <string.h>

bool lp_position(const nnc_call *c, int dim, int64_t o, int64_t t, int64_t *pos)
{
    int64_t in = c->src.dim[2 + dim], p;
    if (c->kind == CALL_conv_transpose) {
        p = o + c->pad_lo[dim] - t * c->dilation[dim];
        if (p < 0 || p % c->stride[dim])
            return false;
        p /= c->stride[dim];
    } else {
        p = o * c->stride[dim] + t * c->dilation[dim] - c->pad_lo[dim];
    }
    *pos = p;
    return p >= 0 && p < in;
}

void lp_inside(const nnc_call *c, int dim, int64_t t, int64_t *lo, int64_t *hi)
{
    int64_t s = c->stride[dim], d = t * c->dilation[dim] - c->pad_lo[dim];
    int64_t out = c->dst.dim[2 + dim];
    *lo = d >= 0 ? 0 : nnc_ceildiv(-d, s);
    *hi = nnc_floordiv(c->src.dim[2 + dim] - 1 - d, s) + 1;
    *hi = *hi > out ? out : *hi;
    *lo = *lo > *hi ? *hi : *lo;
}

typedef struct geometry {
    int64_t groups, icg, ocg, taps, positions;
    int64_t w_oc, w_ic, w_group; /* weight strides, elements */
} geometry;

static geometry geometry_of(const lp_handle *h)
{
    const nnc_call *c = &h->c;
    bool t = c->kind == CALL_conv_transpose;
    geometry g = {.groups = c->groups, .taps = 1, .positions = 1};
    g.icg = c->src.dim[1] / c->groups;
    g.ocg = c->dst.dim[1] / c->groups;
    for (int i = 0; i < c->spatial; i++) {
        g.taps *= c->kernel[i];
        g.positions *= c->dst.dim[2 + i];
    }
    g.w_oc = t ? h->ws[1] : h->ws[0];
    g.w_ic = t ? h->ws[0] : h->ws[1];
    g.w_group = t ? g.icg * h->ws[0] : g.ocg * h->ws[0];
    return g;
}

/* Splits a flat index over the spatial extents `dim`. */
static void split(const int64_t *dim, int n, int64_t i, int64_t *at)
{
    for (int d = n - 1; d >= 0; d--) {
        at[d] = i % dim[d];
        i /= dim[d];
    }
}

/* Element offset of the input under tap t of an output position, or -1 in the padding. */
static int64_t tap_offset(const lp_handle *h, const int64_t *out, int64_t t)
{
    int64_t tap[3], off = 0;
    split(h->c.kernel, h->c.spatial, t, tap);
    for (int d = 0; d < h->c.spatial; d++) {
        int64_t p;
        if (!lp_position(&h->c, d, out[d], tap[d], &p))
            return -1;
        off += p * h->xs[2 + d];
    }
    return off;
}

static void fill_a(const lp_gemm *g, int64_t batch, int64_t m0, int64_t mn, int64_t k0, int64_t kn,
    char *out, int64_t ld)
{
    const lp_handle *h = g->h;
    const geometry ge = geometry_of(h);
    const int64_t e = h->esize, image = batch / ge.groups, group = batch % ge.groups;
    const int64_t base = image * h->xs[0] + group * ge.icg * h->xs[1];
    for (int64_t i = 0; i < mn; i++) {
        int64_t at[3];
        char *row = out + e * i * ld;
        split(h->c.dst.dim + 2, h->c.spatial, m0 + i, at);
        for (int64_t k = k0; k < k0 + kn;) {
            int64_t t = k / ge.icg, ic = k % ge.icg;
            int64_t n = ge.icg - ic < k0 + kn - k ? ge.icg - ic : k0 + kn - k;
            int64_t off = tap_offset(h, at, t);
            if (off < 0)
                memset(row + e * (k - k0), 0, (size_t)(e * n));
            else
                lp_load(h->acc, h->c.src.dtype, g->a->src, base + off + ic * h->xs[1], h->xs[1], n,
                    row + e * (k - k0));
            k += n;
        }
    }
}

static void finish_row(
    const lp_gemm *g, int64_t batch, int64_t m, int64_t n0, int64_t nn, char *row)
{
    const lp_handle *h = g->h;
    const nnc_call *c = &h->c;
    int64_t ocg = c->dst.dim[1] / c->groups, image = batch / c->groups,
            oc = batch % c->groups * ocg + n0;
    int64_t at[3], off = image * h->ys[0] + oc * h->ys[1];
    split(c->dst.dim + 2, c->spatial, m, at);
    for (int d = 0; d < c->spatial; d++)
        off += at[d] * h->ys[2 + d];
    lp_finish(h, g->a, row, nn, oc, 1, off, h->ys[1]);
}

/* ---- weights into panels: [group][panel][k = (tap, ic)][LP_PANEL] ---------------------------- */

typedef struct pack {
    const lp_handle *h;
    const lp_args *a;
    char *out;
    geometry g;
} pack;

static void pack_panel(const pack *p, int64_t group, int64_t panel)
{
    const lp_handle *h = p->h;
    const geometry *g = &p->g;
    const int64_t e = h->esize, K = g->taps * g->icg, panels = nnc_ceildiv(g->ocg, LP_PANEL);
    char *out = p->out + (group * panels + panel) * K * LP_PANEL * e;
    double buf[LP_PANEL];
    int64_t n0 = panel * LP_PANEL, nn = g->ocg - n0 < LP_PANEL ? g->ocg - n0 : LP_PANEL;
    memset(buf, 0, sizeof buf);
    for (int64_t t = 0; t < g->taps; t++) {
        int64_t tap[3], off = group * g->w_group + n0 * g->w_oc;
        split(h->c.kernel, h->c.spatial, t, tap);
        for (int d = 0; d < h->c.spatial; d++)
            off += tap[d] * h->ws[2 + d];
        for (int64_t ic = 0; ic < g->icg; ic++) {
            lp_load(h->acc, h->c.wei.dtype, p->a->wei, off + ic * g->w_ic, g->w_oc, nn, buf);
            memcpy(out + ((t * g->icg + ic) * LP_PANEL) * e, buf, (size_t)(LP_PANEL * e));
        }
    }
}

static void pack_part(void *ctx, int part, int parts)
{
    const pack *p = ctx;
    int64_t panels = nnc_ceildiv(p->g.ocg, LP_PANEL), i, end;
    nnc_par_range(p->g.groups * panels, 1, part, parts, &i, &end);
    for (; i < end; i++)
        pack_panel(p, i / panels, i % panels);
}

static int64_t packed_bytes(const lp_handle *h)
{
    geometry g = geometry_of(h);
    return g.groups * nnc_ceildiv(g.ocg, LP_PANEL) * LP_PANEL * g.taps * g.icg * h->esize;
}

static nnc_status run_conv(const lp_handle *h, const lp_args *a, char *work)
{
    geometry ge = geometry_of(h);
    pack p = {h, a, work, ge};
    nnc_par_run(h->c.threads, pack_part, &p);
    lp_gemm g = {.h = h,
        .a = a,
        .batches = h->c.dst.dim[0] * ge.groups,
        .m = ge.positions,
        .n = ge.ocg,
        .k = ge.taps * ge.icg,
        .fill_a = fill_a,
        .packed = work,
        .packed_batches = ge.groups,
        .row = finish_row,
        .work = work + nnc_align_up(packed_bytes(h), 64)};
    lp_gemm_run(&g, h->c.threads);
    return NNC_OK;
}

void lp_prepare_conv(lp_handle *h)
{
    const nnc_call *c = &h->c;
    if (c->kind == CALL_conv && c->src.dim[1] == c->groups && c->dst.dim[1] == c->groups) {
        lp_prepare_window(h);
        return;
    }
    h->work = nnc_align_up(packed_bytes(h), 64) + lp_gemm_work(h->acc, c->threads);
    h->run = run_conv;
}

/* tests/cudac/taps.c -- gradients of depthwise weights, whose threads sum several elements of a window (schedule/taps.c): against loops in
 * f64 over the same operands. */
#include "base/num.h"
#include "ct.h"

#include <math.h>

typedef struct grad {
    const char *type;
    int n, c, h, w, kh, kw;
    int pad[4], stride;
    int sums; /* of a point */
} grad;

/* Rows of whole blocks of places, and with some beyond the end. Windows of one row, all elements of a 2x2 window, odd channels, few places,
 * and windows that are too wide. */
static const grad grads[] = {
    {"bf16", 6, 8, 14, 14, 5, 5, {2, 2, 2, 2}, 1, 5},
    {"f16", 3, 6, 19, 23, 5, 3, {2, 0, 1, 2}, 1, 3},
    {"f32", 14, 4, 17, 19, 3, 4, {1, 3, 1, 0}, 2, 4},
    {"bf16", 30, 2, 7, 7, 5, 5, {2, 2, 2, 2}, 1, 5},
    {"f16", 12, 4, 11, 13, 1, 3, {0, 1, 0, 1}, 1, 3},
    {"f16", 12, 4, 12, 11, 2, 2, {0, 0, 0, 0}, 1, 4},
    {"f16", 40, 4, 13, 11, 2, 2, {0, 0, 0, 0}, 2, 4},
    {"bf16", 6, 7, 14, 14, 5, 5, {2, 2, 2, 2}, 1, 1},
    {"bf16", 2, 8, 14, 14, 5, 5, {2, 2, 2, 2}, 1, 1},
    {"f16", 6, 4, 14, 14, 3, 9, {1, 4, 1, 4}, 1, 1},
};

static int out_of(const grad *g, int d)
{
    return ((d ? g->w : g->h) + g->pad[d] + g->pad[d + 2] - (d ? g->kw : g->kh)) / g->stride + 1;
}

static int sums_of(const nnc_kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->n_ins; i++)
        n += k->ins[i].op == KO_reduce;
    return n;
}

static void add(ct_set *s, const grad *g)
{
    char text[500];
    snprintf(text, sizeof text,
        "graph @t {\n%%x = input : %s[%d,%d,%d,%d]{0,2,3,1}\n%%d = input : "
        "%s[%d,%d,%d,%d]{0,2,3,1}\n"
        "%%y = conv_wgrad %%x, %%d {kernel=[%d,%d], groups=%d, pads=[%d,%d,%d,%d], "
        "strides=[%d,%d]}\nreturn %%y }",
        g->type, g->n, g->c, g->h, g->w, g->type, g->n, g->c, out_of(g, 0), out_of(g, 1), g->kh,
        g->kw, g->c, g->pad[0], g->pad[1], g->pad[2], g->pad[3], g->stride, g->stride);
    ct_add_fused(s, text);
    const nnc_kernel *k = s->n > 0 ? s->k[s->n - 1] : NULL;
    if (k && sums_of(k) != g->sums)
        test_fail(__FILE__, __LINE__, "%dx%d of %dx%d: %d sums of a point, not %d", g->kh, g->kw,
            g->h, g->w, sums_of(k), g->sums);
}

/* The gradient of element (r, q) of channel c; *most: the same of absolute values. */
static double grad_of(
    const grad *g, nnc_dtype d, void *const *arg, int c, int r, int q, double *most)
{
    const int oh = out_of(g, 0), ow = out_of(g, 1);
    double sum = *most = 0;
    for (int n = 0; n < g->n; n++)
        for (int i = 0; i < oh; i++)
            for (int j = 0; j < ow; j++) {
                const int y = i * g->stride + r - g->pad[0], x = j * g->stride + q - g->pad[1];
                if (y < 0 || y >= g->h || x < 0 || x >= g->w)
                    continue;
                const double term =
                    nnc_get_f64(d, arg[0], (((int64_t)n * g->h + y) * g->w + x) * g->c + c) *
                    nnc_get_f64(d, arg[1], (((int64_t)n * oh + i) * ow + j) * g->c + c);
                sum += term;
                *most += fabs(term);
            }
    return sum;
}

static void check(const grad *g, ct_set *s, int kernel)
{
    const nnc_dtype d = g->type[0] == 'b' ? DT_bf16 : g->type[1] == '3' ? DT_f32 : DT_f16;
    const double step = d == DT_bf16 ? 0x1p-8 : d == DT_f16 ? 0x1p-11 : 0x1p-24;
    const int64_t size[] = {(int64_t)g->n * g->c * g->h * g->w,
        (int64_t)g->n * g->c * out_of(g, 0) * out_of(g, 1), (int64_t)g->c * g->kh * g->kw};
    const int bytes = nnc_dtype_size(d);
    void *arg[4] = {NULL}, *base[4];
    const int64_t work = s->k[kernel]->grid.work;
    for (int b = 0; b < 3; b++) {
        const uint64_t key = nnc_rng_key("taps", test_seed + (uint64_t)(4 * kernel + b));
        arg[b] = ct_guarded((size_t)(size[b] * bytes), &base[b]);
        for (int64_t i = 0; i < size[b]; i++)
            nnc_set_f64(
                d, arg[b], i, b == 2 ? NAN : (double)nnc_rng_uniform(key, (uint64_t)i) * 2 - 1);
    }
    if (work > 0)
        arg[3] = ct_guarded((size_t)work, &base[3]);
    const char *bad = ct_call(s, kernel, arg);
    if (bad)
        test_fail(__FILE__, __LINE__, "%s", bad);
    int wrong = 0;
    for (int64_t i = 0; i < size[2] && !wrong; i++) {
        const int q = (int)(i % g->kw), r = (int)(i / g->kw % g->kh), c = (int)(i / g->kw / g->kh);
        double most;
        const double want = grad_of(g, d, arg, c, r, q, &most), got = nnc_get_f64(d, arg[2], i);
        wrong = !(fabs(got - want) <= 2 * step * fabs(want) + most * 0x1p-20);
        if (wrong)
            test_fail(__FILE__, __LINE__, "%s %dx%d of %dx%d: [%d,%d,%d] is %g, not %g", g->type,
                g->kh, g->kw, g->h, g->w, c, r, q, got, want);
    }
    for (int b = 0; b < 3; b++)
        ct_unguard(base[b], (size_t)(size[b] * bytes));
    if (work > 0)
        ct_unguard(base[3], (size_t)work);
}

TEST(gradients_of_taps_against_loops)
{
    ct_set s = {.tiny = true, .sums = true};
    for (size_t i = 0; i < NNC_COUNT(grads); i++)
        add(&s, &grads[i]);
    CHECK_INT(s.n, NNC_COUNT(grads));
    if (s.n == NNC_COUNT(grads) && ct_build(&s, NULL))
        for (int i = 0; i < s.n; i++)
            check(&grads[i], &s, i);
    ct_set_deinit(&s);
}

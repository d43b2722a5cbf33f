/* tests/cudac/walk.c -- windows that a thread goes along row by row (schedule/walk.c): against loops in f64 over the same operands. */
#include "base/num.h"
#include "ct.h"
#include "gen/gen.h"

#include <math.h>

typedef struct walk {
    const char *type;
    int n, c, h, w, kh, kw;
    int pad[4], dilation[2];
    bool transposed, silu;
    int sms; /* 0: one */
    int rows; /* of a walk; 0: it is none */
} walk;

static const walk walks[] = {
    {"f16", 2, 4, 14, 14, 5, 5, {2, 2, 2, 2}, {1, 1}, false, true, 0, 14},
    {"bf16", 1, 6, 13, 15, 5, 5, {2, 2, 2, 2}, {1, 1}, false, false, 0,
        13}, /* strips beyond the edge */
    {"f16", 3, 2, 7, 7, 5, 5, {2, 2, 2, 2}, {1, 1}, false, true, 0, 7},
    {"f16", 2, 4, 9, 9, 3, 3, {1, 1, 1, 1}, {1, 1}, false, false, 0, 9},
    {"bf16", 1, 4, 20, 11, 3, 3, {0, 0, 0, 0}, {1, 1}, false, true, 0,
        18}, /* no rows beyond the edge */
    {"bf16", 1, 4, 9, 12, 5, 3, {4, 0, 4, 1}, {1, 1}, false, false, 0, 13},
    {"f16", 1, 4, 4, 12, 5, 4, {3, 0, 3, 0}, {1, 1}, false, false, 0,
        6}, /* fewer rows than the window */
    {"f16", 1, 4, 9, 12, 5, 3, {5, 0, 4, 1}, {1, 1}, false, false, 0,
        0}, /* a window of edge alone */
    {"bf16", 1, 4, 14, 14, 5, 3, {4, 1, 4, 1}, {2, 1}, false, true, 0, 0},
    {"f16", 1, 7, 14, 14, 5, 5, {2, 2, 2, 2}, {1, 1}, false, true, 0, 0}, /* no pairs of channels */
    {"bf16", 4, 128, 32, 5, 5, 5, {0, 2, 4, 2}, {1, 1}, false, false, 3,
        16}, /* two walks to a column */
    {"bf16", 2, 4, 14, 14, 5, 5, {2, 2, 2, 2}, {1, 1}, true, false, 0,
        14}, /* the gradient of the source */
    {"f16", 1, 4, 13, 10, 3, 4, {1, 0, 1, 3}, {1, 1}, true, false, 0, 13},
};

static int out_of(const walk *w, int d)
{
    const int size = d ? w->w : w->h, reach = ((d ? w->kw : w->kh) - 1) * w->dilation[d];
    const int pads = w->pad[d] + w->pad[d + 2];
    return w->transposed ? size + reach - pads : size + pads - reach;
}

static nnc_graph *graph_of(const walk *w)
{
    nnc_text t = {0};
    nnc_printf(&t,
        "graph @t {\n%%x = input : %s[%d,%d,%d,%d]{0,2,3,1}\n%%w = input : "
        "%s[%d,1,%d,%d]{2,3,1,0}\n"
        "%%b = input : %s[%d]\n%%c = %s %%x, %%w, %%b {groups=%d, pads=[%d,%d,%d,%d], "
        "dilations=[%d,%d]} : %s[%d,%d,%d,%d]{0,2,3,1}\n",
        w->type, w->n, w->c, w->h, w->w, w->type, w->c, w->kh, w->kw, w->type, w->c,
        w->transposed ? "conv_transpose" : "conv", w->c, w->pad[0], w->pad[1], w->pad[2], w->pad[3],
        w->dilation[0], w->dilation[1], w->type, w->n, w->c, out_of(w, 0), out_of(w, 1));
    nnc_puts(&t, w->silu ? "%y = silu %c\nreturn %y }" : "return %c }");
    nnc_graph *g = ct_parse(nnc_text_str(&t));
    nnc_graph *f = g ? ct_fuse(g) : NULL;
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
    return f;
}

/* Adds the kernel and checks whether it is a walk. */
static void add(ct_set *s, const walk *w)
{
    nnc_target t = *ct_tiny();
    nnc_walk found;
    t.sms = t.cores = w->sms ? w->sms : 1;
    t.clock_hz = 1000000; /* the latency of memory is no clock */
    nnc_graph *f = graph_of(w);
    const nnc_kernel *k =
        f ? nnc_lower(f, &f->node[f->n_node - 1], &t, MATH_ulp2, &s->arena, test_sink) : NULL;
    CHECK(k != NULL);
    if (k) {
        ct_add(s, k);
        const int64_t rows = nnc_walk_of(k, &found) ? k->axis[found.map].extent : 0;
        if (rows != w->rows)
            test_fail(__FILE__, __LINE__, "%dx%d of %dx%d: %d rows of %d", w->kh, w->kw, w->h, w->w,
                (int)rows, w->rows);
    }
    nnc_graph_destroy(f);
}

/* The sum for result (i, j) of image n and channel c. */
static double sum_of(const walk *w, nnc_dtype d, void *const *arg, int n, int c, int i, int j)
{
    double sum = 0;
    for (int r = 0; r < w->kh; r++)
        for (int q = 0; q < w->kw; q++) {
            const int sign = w->transposed ? -1 : 1;
            const int y = i + sign * (r * w->dilation[0] - w->pad[0]),
                      x = j + sign * (q * w->dilation[1] - w->pad[1]);
            if (y >= 0 && y < w->h && x >= 0 && x < w->w)
                sum += nnc_get_f64(d, arg[0], (((int64_t)n * w->h + y) * w->w + x) * w->c + c) *
                       nnc_get_f64(d, arg[1], ((int64_t)r * w->kw + q) * w->c + c);
        }
    return sum + nnc_get_f64(d, arg[2], c);
}

static void check(const walk *w, ct_set *s, int kernel)
{
    const nnc_dtype d = w->type[0] == 'b' ? DT_bf16 : DT_f16;
    const int oh = out_of(w, 0), ow = out_of(w, 1);
    const int64_t size[] = {(int64_t)w->n * w->c * w->h * w->w, (int64_t)w->c * w->kh * w->kw, w->c,
        (int64_t)w->n * w->c * oh * ow};
    void *arg[4], *base[4];
    uint64_t seed = test_seed + (uint64_t)kernel;
    for (int b = 0; b < 4; b++) {
        arg[b] = ct_guarded((size_t)size[b] * 2, &base[b]);
        for (int64_t i = 0; i < size[b]; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            nnc_set_f64(d, arg[b], i, b == 3 ? NAN : (double)(int32_t)(seed >> 32) / 2147483648.0);
        }
    }
    const char *bad = ct_call(s, kernel, arg);
    if (bad)
        test_fail(__FILE__, __LINE__, "%s", bad);
    int wrong = 0;
    for (int n = 0; n < w->n; n++)
        for (int i = 0; i < oh * ow * w->c && !wrong; i++) {
            const int c = i % w->c, x = i / w->c % ow, y = i / w->c / ow;
            double want = sum_of(w, d, arg, n, c, y, x);
            if (w->silu)
                want /= 1 + exp(-want);
            const double got = nnc_get_f64(d, arg[3], (int64_t)n * oh * ow * w->c + i);
            wrong = !(fabs(got - want) <= (d == DT_f16 ? 0x1p-10 : 0x1p-7) * (1 + fabs(want)));
            if (wrong)
                test_fail(__FILE__, __LINE__, "%s %dx%d of %dx%d%s: [%d,%d,%d,%d] is %g, not %g",
                    w->type, w->kh, w->kw, w->h, w->w, w->transposed ? ", transposed" : "", n, c, y,
                    x, got, want);
        }
    for (int b = 0; b < 4; b++)
        ct_unguard(base[b], (size_t)size[b] * 2);
}

TEST(walks_against_loops)
{
    ct_set s = {.open = true};
    nnc_arena_init(&s.arena, 0);
    for (size_t i = 0; i < NNC_COUNT(walks); i++)
        add(&s, &walks[i]);
    CHECK_INT(s.n, NNC_COUNT(walks));
    if (s.n == NNC_COUNT(walks) && ct_build(&s, NULL))
        for (int i = 0; i < s.n; i++)
            check(&walks[i], &s, i);
    ct_set_deinit(&s);
}

/* tests/ir/eval_contract.c -- the reference of matmul, linear, conv and conv_transpose: against
 * the definition written as loops, over strides, pads, dilations, groups and 1 to 3 dimensions;
 * conv_transpose against conv's adjoint. */
#include "eval_util.h"

TEST(eval_matmul)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(2, 3)), b = arg_of(g, DT_f64, DIMS(3, 2));
    const double x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 0, 0, 1, 2, 2};
    EXPECT(g, nnc_build2(g, OP_matmul, a, b), IN(x, y), 4, NUMS(7, 8, 16, 17), 0);
    g = new_graph(); /* [2,3]^T [3,2]^T: both transposed */
    a = arg_of(g, DT_f64, DIMS(3, 2));
    b = arg_of(g, DT_f64, DIMS(2, 3));
    nnc_ref two[2] = {a, b};
    nnc_attr at[2] = {nnc_ai(AT_transpose_a, 1), nnc_ai(AT_transpose_b, 1)};
    EXPECT(g, nnc_build(g, OP_matmul, 2, two, 2, at), IN(x, y), 4,
        NUMS(1, 1 + 6 + 10, 2, 2 + 8 + 12), 0);
    g = new_graph(); /* batch broadcasting: [2,1,1,2] x [3,2,1] */
    a = arg_of(g, DT_f64, DIMS(2, 1, 1, 2));
    b = arg_of(g, DT_f64, DIMS(3, 2, 1));
    EXPECT(g, nnc_build2(g, OP_matmul, a, b), IN(x, y), 6, NUMS(1, 2, 6, 3, 4, 14), 0);
    g = new_graph(); /* integers wrap */
    a = arg_of(g, DT_i8, DIMS(1, 2));
    b = arg_of(g, DT_i8, DIMS(2, 1));
    EXPECT(g, nnc_build2(g, OP_matmul, a, b),
        IN(((const int8_t[]){100, 100}), ((const int8_t[]){1, 1})), 1, LONGS(-56), 0);
}

/* Sizes around and across every block boundary of the product, against plain loops. */
TEST(eval_matmul_blocks)
{
    static const int64_t size[][3] = {
        {1, 1, 1}, {4, 16, 192}, {5, 17, 193}, {257, 3, 7}, {3, 513, 5}, {259, 520, 200}};
    static double x[300 * 200], y[520 * 200], z[300 * 520];
    fill(x, 300 * 200, 1);
    fill(y, 520 * 200, 2);
    for (size_t s = 0; s < NNC_COUNT(size); s++) {
        int64_t m = size[s][0], n = size[s][1], k = size[s][2];
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += x[i * k + l] * y[l * n + j];
                z[i * n + j] = sum;
            }
        nnc_graph *g = new_graph();
        nnc_ref a = arg_of(g, DT_f64, DIMS(m, k)), b = arg_of(g, DT_f64, DIMS(k, n));
        EXPECT(g, nnc_build2(g, OP_matmul, a, b), IN(x, y), m * n, z, 1e-12);
    }
}

TEST(eval_linear)
{
    nnc_graph *g = new_graph();
    nnc_ref in[3] = {
        arg_of(g, DT_f64, DIMS(2, 3)), arg_of(g, DT_f64, DIMS(2, 3)), arg_of(g, DT_f64, DIMS(2))};
    const double x[6] = {1, 2, 3, 4, 5, 6}, w[6] = {1, 1, 1, 0, 1, 0}, b[2] = {10, 20};
    EXPECT(g, nnc_build(g, OP_linear, 3, in, 0, NULL), IN(x, w, b), 4, NUMS(16, 22, 25, 25), 0);
}

/* ---- convolutions ---- */

/* Beyond the edge lie zeros, and 0 times infinity is NaN. */
TEST(eval_conv_infinite_weights)
{
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(1, 1, 3, 3)), w = arg_of(g, DT_f64, DIMS(1, 1, 3, 3));
    static const double one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    double inf[9];
    nnc_attr at = nnc_av(AT_pads, 4, INTS(1, 1, 1, 1));
    for (int i = 0; i < 9; i++)
        inf[i] = INFINITY;
    nnc_ref y = nnc_build(g, OP_conv, 2, (nnc_ref[]){x, w}, 1, &at);
    EXPECT(g, nnc_cast(g, nnc_build1(g, OP_isnan, y), DT_f64), IN(one, inf), 9,
        NUMS(1, 1, 1, 1, 0, 1, 1, 1, 1), 0);
}

typedef struct conv_case {
    int s; /* spatial dimensions, the last s of three */
    int64_t n, c, k, groups, in[3], kernel[3], stride[3], begin[3], end[3], dil[3];
} conv_case;

static const conv_case cases[] = {
    {2, 1, 1, 1, 1, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}},
    {2, 2, 4, 6, 2, {1, 7, 5}, {1, 3, 2}, {1, 2, 1}, {0, 1, 0}, {0, 2, 1}, {1, 1, 2}},
    {2, 1, 3, 3, 3, {1, 6, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 2, 2, 3, 1, {1, 1, 11}, {1, 1, 4}, {1, 1, 3}, {0, 0, 2}, {0, 0, 1}, {1, 1, 2}},
    {3, 1, 2, 2, 1, {4, 5, 3}, {2, 3, 2}, {2, 1, 1}, {1, 0, 1}, {0, 1, 1}, {1, 2, 1}},
    {2, 1, 3, 5, 1, {1, 20, 40}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}},
};

static int64_t out_extent(const conv_case *q, int d)
{
    return (q->in[d] + q->begin[d] + q->end[d] - q->dil[d] * (q->kernel[d] - 1) - 1) /
               q->stride[d] +
           1;
}

/* y = conv(x, w), or with `back` x = its adjoint applied to y: both from the definition. */
static void direct(const conv_case *q, double *x, const double *w, double *y, bool back)
{
    int64_t o[3], cg = q->c / q->groups, kg = q->k / q->groups, at = 0;
    for (int d = 0; d < 3; d++)
        o[d] = out_extent(q, d);
    for (int64_t n = 0; n < q->n; n++)
        for (int64_t k = 0; k < q->k; k++)
            for (int64_t z = 0; z < o[0]; z++)
                for (int64_t i = 0; i < o[1]; i++)
                    for (int64_t j = 0; j < o[2]; j++, at++)
                        for (int64_t c = 0; c < cg; c++)
                            for (int64_t e = 0; e < q->kernel[0] * q->kernel[1] * q->kernel[2];
                                 e++) {
                                int64_t p[3] = {e / q->kernel[2] / q->kernel[1],
                                    e / q->kernel[2] % q->kernel[1], e % q->kernel[2]};
                                int64_t r[3] = {z, i, j};
                                bool in = true;
                                for (int d = 0; d < 3; d++) {
                                    r[d] = r[d] * q->stride[d] - q->begin[d] + p[d] * q->dil[d];
                                    in = in && r[d] >= 0 && r[d] < q->in[d];
                                }
                                int64_t xi =
                                    (((n * q->c + k / kg * cg + c) * q->in[0] + r[0]) * q->in[1] +
                                        r[1]) *
                                        q->in[2] +
                                    r[2];
                                int64_t wi =
                                    (k * cg + c) * q->kernel[0] * q->kernel[1] * q->kernel[2] + e;
                                if (in && back)
                                    x[xi] += y[at] * w[wi];
                                else if (in)
                                    y[at] += x[xi] * w[wi];
                            }
}

static nnc_ref build_conv(
    nnc_graph *g, nnc_op op, const conv_case *q, nnc_ref x, nnc_ref w, const int64_t *extra)
{
    int f = 3 - q->s;
    int64_t pads[6];
    memcpy(pads, q->begin + f, (size_t)q->s * 8);
    memcpy(pads + q->s, q->end + f, (size_t)q->s * 8);
    nnc_ref in[2] = {x, w};
    nnc_attr at[5] = {nnc_av(AT_strides, q->s, q->stride + f), nnc_av(AT_pads, 2 * q->s, pads),
        nnc_av(AT_dilations, q->s, q->dil + f), nnc_ai(AT_groups, q->groups)};
    if (extra)
        at[4] = nnc_av(AT_output_padding, q->s, extra + f);
    return nnc_build(g, op, 2, in, extra ? 5 : 4, at);
}

TEST(eval_conv_and_its_adjoint)
{
    static double x[8000], y[8000], w[1000], wx[8000], wy[8000];
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        const conv_case *q = &cases[i];
        int f = 3 - q->s;
        int64_t dx[5] = {q->n, q->c}, dy[5] = {q->n, q->k}, dw[5] = {q->k, q->c / q->groups},
                extra[3];
        int64_t nx = q->n * q->c, ny = q->n * q->k;
        for (int d = 0; d < 3; d++) {
            int64_t o = out_extent(q, d);
            extra[d] = q->in[d] - ((o - 1) * q->stride[d] - q->begin[d] - q->end[d] +
                                      q->dil[d] * (q->kernel[d] - 1) + 1);
            nx *= q->in[d];
            ny *= o;
            if (d >= f) {
                dx[2 + d - f] = q->in[d];
                dy[2 + d - f] = o;
                dw[2 + d - f] = q->kernel[d];
            }
        }
        fill(x, 8000, i);
        fill(y, 8000, i + 50);
        fill(w, 1000, i + 100);
        memset(wx, 0, sizeof wx);
        memset(wy, 0, sizeof wy);
        direct(q, x, w, wy, false);
        direct(q, wx, w, y, true);
        nnc_graph *g = new_graph();
        nnc_ref a = arg_of(g, DT_f64, 2 + q->s, dx), b = arg_of(g, DT_f64, 2 + q->s, dw);
        EXPECT(g, build_conv(g, OP_conv, q, a, b, NULL), IN(x, w), ny, wy, 1e-12);
        /* conv's weight [K, C/groups, ..] is conv_transpose's [its C, its K/groups, ..] as it
         * stands */
        g = new_graph();
        a = arg_of(g, DT_f64, 2 + q->s, dy);
        b = arg_of(g, DT_f64, 2 + q->s, dw);
        EXPECT(g, build_conv(g, OP_conv_transpose, q, a, b, extra), IN(y, w), nx, wx, 1e-12);
        double lhs = 0, rhs = 0; /* <conv(x), y> = <x, convT(y)> */
        for (int64_t j = 0; j < ny; j++)
            lhs += wy[j] * y[j];
        for (int64_t j = 0; j < nx; j++)
            rhs += x[j] * wx[j];
        CHECK_NEAR(lhs, rhs, 1e-9);
    }
}

TEST(eval_conv_bias_and_integers)
{
    nnc_graph *g = new_graph();
    nnc_ref in[3] = {arg_of(g, DT_i16, DIMS(1, 1, 3)), arg_of(g, DT_i16, DIMS(2, 1, 2)),
        arg_of(g, DT_i16, DIMS(2))};
    EXPECT(g, nnc_build(g, OP_conv, 3, in, 0, NULL),
        IN(((const int16_t[]){1, 2, 3}), ((const int16_t[]){1, 1, 20000, 0}),
            ((const int16_t[]){5, -1})),
        4, LONGS(8, 10, 19999, 40000 - 65536 - 1), 0);
}

/* ---- reductions and nests ---- */

static nnc_ref over(nnc_graph *g, nnc_op op, nnc_ref x, int n, const int64_t *axes)
{
    return nnc_reduce(g, op, x, n, axes, false);
}

TEST(eval_reductions)
{
    const double v[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, NAN};
    static const struct {
        nnc_op op;
        int n;
        int64_t axes[3];
        int64_t count;
        double want[6];
    } row[] = {
        {OP_reduce_sum, 1, {2}, 4, {6, 15, 24, NAN}},
        {OP_reduce_sum, 1, {0}, 6, {8, 10, 12, 14, 16, NAN}},
        {OP_reduce_sum, 1, {1}, 6, {5, 7, 9, 17, 19, NAN}},
        {OP_reduce_mean, 2, {0, 2}, 2, {5, NAN}},
        {OP_reduce_max, 1, {2}, 4, {3, 6, 9, NAN}},
        {OP_reduce_min, 2, {1, 2}, 2, {1, NAN}},
        {OP_reduce_prod, 1, {2}, 4, {6, 120, 504, NAN}},
        {OP_reduce_max, 3, {0, 1, 2}, 1, {NAN}},
        {OP_reduce_min, 1, {0}, 6, {1, 2, 3, 4, 5, NAN}},
    };
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        nnc_graph *g = new_graph();
        nnc_ref x = arg_of(g, DT_f64, DIMS(2, 2, 3));
        EXPECT(
            g, over(g, row[i].op, x, row[i].n, row[i].axes), IN(v), row[i].count, row[i].want, 0);
    }
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_u8, DIMS(3));
    EXPECT(g, over(g, OP_reduce_sum, x, 1, INTS(0)), IN(((const uint8_t[]){200, 50, 7})), 1,
        LONGS(1), 0);
    g = new_graph();
    x = arg_of(g, DT_u64, DIMS(2));
    EXPECT(g, over(g, OP_reduce_max, x, 1, INTS(0)), IN(LONGS(-1, 3)), 1, LONGS(-1), 0);
    enum { N = 100003 }; /* long and odd: every path of the blocked sum */
    static double big[N];
    for (int i = 0; i < N; i++)
        big[i] = i;
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(N));
    EXPECT(g, over(g, OP_reduce_sum, x, 1, INTS(0)), IN(big), 1, NUMS((double)N * (N - 1) / 2), 0);
}

TEST(eval_argmax)
{
    const double v[8] = {3, 7, 7, 1, 2, NAN, 5, NAN};
    nnc_attr ax = nnc_ai(AT_axis, 1);
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(2, 4));
    EXPECT(g, nnc_build(g, OP_argmax, 1, &x, 1, &ax), IN(v), 2, LONGS(1, 1), 0);
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(2, 4));
    EXPECT(g, nnc_build(g, OP_argmin, 1, &x, 1, &ax), IN(v), 2, LONGS(3, 1), 0);
    ax = nnc_ai(AT_axis, 0);
    g = new_graph();
    x = arg_of(g, DT_i32, DIMS(2, 2));
    EXPECT(g, nnc_build(g, OP_argmin, 1, &x, 1, &ax), IN(((const int32_t[]){4, -1, 4, -2})), 2,
        LONGS(0, 1), 0);
}

TEST(eval_named_nests)
{
    const double ln[3] = {0, 0.6931471805599453, 1.0986122886681098}; /* e^x = 1, 2, 3 */
    nnc_attr ax = nnc_ai(AT_axis, 0);
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(3));
    EXPECT(
        g, nnc_build(g, OP_softmax, 1, &x, 1, &ax), IN(ln), 3, NUMS(1.0 / 6, 2.0 / 6, 0.5), 1e-15);
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(2));
    EXPECT(g, nnc_build(g, OP_log_softmax, 1, &x, 1, &ax), IN(NUMS(1000, 0)), 2, NUMS(0, -1000), 0);
    g = new_graph(); /* [1,2,2]: channels 0 and 1 */
    nnc_ref in[5] = {arg_of(g, DT_f64, DIMS(1, 2, 2))};
    for (int i = 1; i < 5; i++)
        in[i] = arg_of(g, DT_f64, DIMS(2));
    nnc_attr eps = nnc_af(AT_eps, 0);
    EXPECT(g, nnc_build(g, OP_batchnorm, 5, in, 1, &eps),
        IN(NUMS(1, 2, 3, 4), NUMS(1, 2), NUMS(0, 5), NUMS(1, 3), NUMS(4, 0.25)), 4,
        NUMS(0, 0.5, 5, 9), 1e-15);
    g = new_graph();
    in[0] = arg_of(g, DT_f64, DIMS(2, 2));
    in[1] = arg_of(g, DT_f64, DIMS(2));
    in[2] = arg_of(g, DT_f64, DIMS(2));
    EXPECT(g, nnc_build(g, OP_layernorm, 3, in, 1, &eps),
        IN(NUMS(1, 3, -4, -8), NUMS(2, 3), NUMS(0, 1)), 4, NUMS(-2, 4, 2, -2), 1e-15);
    g = new_graph();
    in[0] = arg_of(g, DT_f64, DIMS(1, 2));
    EXPECT(g, nnc_build(g, OP_rmsnorm, 1, in, 1, &eps), IN(NUMS(1, 7)), 2, NUMS(0.2, 1.4), 1e-15);
    g = new_graph(); /* two groups of one channel, gamma per channel */
    in[0] = arg_of(g, DT_f64, DIMS(1, 2, 2));
    in[1] = arg_of(g, DT_f64, DIMS(2));
    nnc_attr gn[2] = {eps, nnc_ai(AT_num_groups, 2)};
    EXPECT(g, nnc_build(g, OP_groupnorm, 2, in, 2, gn), IN(NUMS(1, 3, 10, 30), NUMS(1, 5)), 4,
        NUMS(-1, 1, -5, 5), 1e-15);
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(1, 2, 2));
    EXPECT(g, nnc_build1(g, OP_global_avgpool, x), IN(NUMS(1, 3, 10, 30)), 2, NUMS(2, 20), 0);
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(1, 2, 2));
    EXPECT(g, nnc_build1(g, OP_global_maxpool, x), IN(NUMS(1, 3, NAN, 30)), 2, NUMS(3, NAN), 0);
}

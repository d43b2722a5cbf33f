/* tests/ir/eval_loop.c -- the reference of ops that run in order along an axis. */
#include "eval_util.h"
#include "help.h"

static const double x6[6] = {1, 2, 3, 4, 5, 6};

static void scan_is(nnc_op op, int axis, bool exclusive, bool reverse, const double *want)
{
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(2, 3));
    nnc_attr at[] = {
        nnc_ai(AT_axis, axis), nnc_ai(AT_exclusive, exclusive), nnc_ai(AT_reverse, reverse)};
    EXPECT(g, nnc_build(g, op, 1, &x, 3, at), IN(x6), 6, want, 0);
}

TEST(eval_scan)
{
    scan_is(OP_cumsum, 1, false, false, NUMS(1, 3, 6, 4, 9, 15));
    scan_is(OP_cumsum, 0, false, false, NUMS(1, 2, 3, 5, 7, 9));
    scan_is(OP_cumsum, 1, true, false, NUMS(0, 1, 3, 0, 4, 9));
    scan_is(OP_cumsum, 1, false, true, NUMS(6, 5, 3, 15, 11, 6));
    scan_is(OP_cumsum, 1, true, true, NUMS(5, 3, 0, 11, 6, 0));
    scan_is(OP_cumprod, 1, false, false, NUMS(1, 2, 6, 4, 20, 120));
    scan_is(OP_cumprod, 0, true, true, NUMS(4, 5, 6, 1, 1, 1));
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_u8, DIMS(4));
    nnc_attr axis = nnc_ai(AT_axis, 0);
    EXPECT(g, nnc_build(g, OP_cumsum, 1, &x, 1, &axis), IN(((const uint8_t[]){200, 100, 1, 255})),
        4, LONGS(200, 44, 45, 44), 0);
}

static void topk_is(
    int result, int axis, int64_t k, bool largest, const double *x, int64_t n, const void *want)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(2, 3));
    nnc_attr at[] = {nnc_ai(AT_axis, axis), nnc_ai(AT_k, k), nnc_ai(AT_largest, largest)};
    EXPECT(g, nnc_build(g, OP_topk, 1, &a, 3, at) + (nnc_ref)result, IN(x), n, want, 0);
}

TEST(eval_topk)
{
    const double x[6] = {2, 7, 2, NAN, 1, 9};
    topk_is(0, 1, 2, true, x, 4, NUMS(7, 2, NAN, 9));
    topk_is(1, 1, 2, true, x, 4, LONGS(1, 0, 0, 2));
    topk_is(1, 1, 3, false, x, 6, LONGS(0, 2, 1, 1, 2, 0));
    topk_is(0, 0, 1, false, x, 3, NUMS(2, 1, 2));
    topk_is(1, 0, 2, true, x, 6, LONGS(1, 0, 1, 0, 1, 0));
}

/* x is 1..6 as [2,3]. */
static void updated_is(nnc_op op, int rank, const int64_t *dim, const int64_t *index, int u_rank,
    const int64_t *u_dim, const char *how, const double *want)
{
    nnc_graph *g = new_graph();
    nnc_ref in[3] = {arg_of(g, DT_f64, DIMS(2, 3)), arg_of(g, DT_i64, rank, dim),
        arg_of(g, DT_f64, u_rank, u_dim)};
    nnc_attr at[2] = {nnc_aw(AT_reduction, how), nnc_ai(AT_axis, 1)};
    EXPECT(g, nnc_build(g, op, 3, in, op == OP_scatter ? 2 : 1, at),
        IN(x6, index, NUMS(10, 20, 30, 40, 50, 60)), 6, want, 0);
}

TEST(eval_scatter)
{
    updated_is(
        OP_scatter, DIMS(2, 2), LONGS(0, 2, -1, 2), DIMS(2, 2), "none", NUMS(10, 2, 20, 4, 5, 40));
    updated_is(
        OP_scatter, DIMS(1, 4), LONGS(1, 1, 1, 0), DIMS(1, 4), "add", NUMS(41, 62, 3, 4, 5, 6));
    updated_is(OP_scatter, DIMS(1, 2), LONGS(1, 9), DIMS(1, 2), "mul", NUMS(1, 20, 60, 4, 5, 6));
    updated_is(
        OP_scatter_nd, DIMS(2, 1), LONGS(1, 1), DIMS(2, 3), "none", NUMS(1, 2, 3, 40, 50, 60));
    updated_is(
        OP_scatter_nd, DIMS(2, 2), LONGS(0, -1, 0, 2), DIMS(2), "max", NUMS(1, 2, 20, 4, 5, 6));
    updated_is(OP_scatter_nd, DIMS(1), LONGS(1), DIMS(3), "min", NUMS(1, 2, 3, 4, 5, 6));
}

TEST(eval_gathers)
{
    nnc_graph *g = new_graph();
    nnc_ref in[2] = {arg_of(g, DT_f64, DIMS(2, 3)), arg_of(g, DT_i32, DIMS(1, 4))};
    nnc_attr axis = nnc_ai(AT_axis, 1), batch = nnc_ai(AT_batch_dims, 1);
    EXPECT(g, nnc_build(g, OP_gather_elements, 2, in, 1, &axis),
        IN(x6, ((const int32_t[]){2, -3, 7, 1})), 4, NUMS(3, 1, 3, 2), 0);
    g = new_graph();
    in[0] = arg_of(g, DT_f64, DIMS(2, 3));
    in[1] = arg_of(g, DT_i64, DIMS(3, 2));
    EXPECT(g, nnc_build(g, OP_gather_nd, 2, in, 0, NULL), IN(x6, LONGS(1, 0, 0, -1, 9, 1)), 3,
        NUMS(4, 3, 5), 0);
    g = new_graph();
    in[0] = arg_of(g, DT_f64, DIMS(2, 3));
    in[1] = arg_of(g, DT_i64, DIMS(2, 2, 1));
    EXPECT(g, nnc_build(g, OP_gather_nd, 2, in, 1, &batch), IN(x6, LONGS(1, 0, 2, 2)), 4,
        NUMS(2, 1, 6, 6), 0);
}

/* PyTorch's numbers for two steps of one row with two features. */
TEST(eval_recurrent)
{
    static const double x[2][8] = {
        {0.5, -0.25, 1, 0, -0.5, 0.25, 0.75, -1}, {-1, 0.5, 0.25, 0.75, 1, -0.5, 0, 0.5}};
    static const double r[16] = {
        0.5, -1, 0.25, 0.75, 1, 0.5, -0.5, 0.25, 0.75, -0.25, 0.5, 0.5, -1, 1, 0.25, -0.75};
    static const double bias[2] = {0.25, -0.5}, h0[2] = {0.5, -0.5}, c0[2] = {1, -0.25};
    static const int64_t one = 1;
    static const int gates[] = {4, 3, 1};
    static const nnc_op ops[] = {OP_lstm, OP_gru, OP_rnn};
    static const double want[3][4] = {
        {0.28509059462149, -0.0035361669042221345, 0.26952972225266547, -0.1421679836294851},
        {0.40708616070225645, -0.1674232041364201, 0.5616825644263059, -0.3399894470082759},
        {0.8482836399575129, -0.46211715726000974, -0.11325305775910537, 0.35003447454671777}};
    for (int k = 0; k < 6; k++) {
        const int which = k % 3, g2 = 2 * gates[which];
        const bool ends = k >= 3; /* after one step */
        double part[16], turned[16];
        for (int i = 0; i < 2 * g2; i++) {
            part[i] = x[i / g2][i % g2];
            turned[i % 2 * g2 + i / 2] = r[i];
        }
        nnc_graph *g = new_graph();
        nnc_ref in[5] = {arg_of(g, DT_f64, DIMS(2, 1, g2)), arg_of(g, DT_f64, DIMS(2, g2))};
        int n = 2;
        if (which == 1)
            in[n++] = arg_of(g, DT_f64, DIMS(2));
        in[n++] = arg_of(g, DT_f64, DIMS(1, 2));
        if (which == 0)
            in[n++] = arg_of(g, DT_f64, DIMS(1, 2));
        if (ends)
            in[n++] = arg_of(g, DT_i64, DIMS(1));
        const void *data[5] = {part, turned};
        int m = 2;
        if (which == 1)
            data[m++] = bias;
        data[m++] = h0;
        if (which == 0)
            data[m++] = c0;
        data[m++] = &one;
        double y[4];
        for (int i = 0; i < 4; i++)
            y[i] = want[which][ends ? i % 2 : i];
        expect_(__FILE__, __LINE__, g, nnc_build(g, ops[which], n, in, 0, NULL), data, 4, y, 1e-15);
    }
    nnc_graph *g = new_graph();
    double turned[16];
    nnc_ref in[4] = {arg_of(g, DT_f64, DIMS(2, 1, 8)), arg_of(g, DT_f64, DIMS(2, 8)),
        arg_of(g, DT_f64, DIMS(1, 2)), arg_of(g, DT_f64, DIMS(1, 2))};
    for (int i = 0; i < 16; i++)
        turned[i % 2 * 8 + i / 2] = r[i];
    EXPECT(g, nnc_build(g, OP_lstm, 4, in, 0, NULL) + 1, IN(x, turned, h0, c0), 2,
        NUMS(0.7401608632922636, -0.22602458429237168), 1e-15);
}

/* Simulated rounding rounds the states that later steps read, also where the last one is 0. */
TEST(rounded_states)
{
    nnc_graph *g = new_graph();
    nnc_ref in[2];
    for (int i = 0; i < 2; i++)
        in[i] = nnc_cast(g, arg_of(g, DT_f32, DIMS(2)), DT_f16);
    const nnc_attr at = nnc_ai(AT_axis, 0);
    nnc_output(g, nnc_build(g, OP_linear_scan, 2, in, 1, &at), "y");
    const float a[] = {1, 1}, b[] = {1000, -1000};
    const void *const data[] = {a, b};
    double square = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const nnc_rounding r = {.seed = seed};
        nnc_rval y = {0};
        CHECK_OK(nnc_eval_rounded(g, data, 1, &r, &y, test_sink));
        square += y.f ? y.f[1] * y.f[1] / 16 : 0;
        nnc_rval_free(&y);
    }
    CHECK(square > 0.01 && square < 4); /* an f16 near 1000 has a unit in the last place of 0.5 */
    nnc_graph_destroy(g);
}

/* Simulated rounding rounds gates, too: 1 - z cancels where z is nearly 1. */
TEST(rounded_gates)
{
    nnc_graph *g = new_graph();
    const nnc_ref in[4] = {arg_of(g, DT_f32, DIMS(1, 1, 3)), arg_of(g, DT_f32, DIMS(1, 3)),
        arg_of(g, DT_f32, DIMS(1)), arg_of(g, DT_f32, DIMS(1, 1))};
    nnc_output(g, nnc_build(g, OP_gru, 4, in, 0, NULL), "y");
    const float x[] = {0, 8, 2}, none[3] = {0};
    const void *const data[] = {x, none, none, none};
    const double want = (1 - 1 / (1 + exp(-8))) * tanh(2);
    double square = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const nnc_rounding r = {.seed = seed};
        nnc_rval y = {0};
        CHECK_OK(nnc_eval_rounded(g, data, 1, &r, &y, test_sink));
        square += y.f ? (y.f[0] - want) * (y.f[0] - want) / 16 : 0;
        nnc_rval_free(&y);
    }
    CHECK(square > 1e-16 && square < 1e-12);
    nnc_graph_destroy(g);
}

/* An element of the result of `op` on x under simulated rounding; %m is x as a matrix times itself. */
static double rounded(const char *dtype, const char *op, const float *x, uint64_t seed)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_rval y = {0};
    const void *const data[] = {x};
    nnc_printf(&t,
        "graph @t {\n%%i = input : f32[4]\n%%x = cast %%i {to=%s}\n"
        "%%r = reshape %%x {shape=[2,2]}\n%%m = matmul %%r, %%r\n%%y = %s\nreturn %%y }",
        dtype, op);
    nnc_graph *g = parse_text(nnc_text_str(&t));
    if (g)
        CHECK_OK(nnc_eval_rounded(g, data, 1, &(nnc_rounding){.seed = seed}, &y, test_sink));
    const double first = y.f ? y.f[0] : INFINITY;
    nnc_rval_free(&y);
    nnc_graph_destroy(g);
    return first;
}

/* Simulated rounding makes results NaN that some order takes beyond the range of f32, and no others. */
TEST(rounded_range)
{
    static const struct row {
        const char *op, *dtype;
        float x[4];
        bool open;
    } rows[] = {
        {"reduce_prod %x {axes=[0]}", "f32", {1e30F, 1e30F, 0, 1}, true},
        {"reduce_prod %x {axes=[0]}", "f32", {-1e30F, 1e-30F, 1e30F, 1e-30F}, true},
        {"reduce_prod %x {axes=[0]}", "f32", {1e19F, 1e19F, 0, 1e-3F}, false},
        {"reduce_prod %x {axes=[0]}", "f64", {1e30F, 1e30F, 0, 1}, false},
        {"reduce_sum %x {axes=[0]}", "f32", {3e38F, -3e38F, 3e38F, -3e38F}, true},
        {"reduce_sum %x {axes=[0]}", "f32", {1e38F, -1e38F, 1e38F, 0}, false},
        {"reduce_mean %x {axes=[0]}", "f32", {2e38F, 2e38F, 2e38F, 2e38F}, true},
        {"reduce_mean %x {axes=[0]}", "f32", {8e37F, 8e37F, 8e37F, 8e37F}, false},
        {"reduce_max %x {axes=[0]}", "f32", {3e38F, 3e38F, 3e38F, 3e38F}, false},
        {"cumsum %x {axis=0}", "f32", {3e38F, -1e38F, 3e38F, -3e38F}, false},
        {"identity %m", "f32", {2e19F, -2e19F, 1, 2e19F}, true},
        {"identity %m", "f32", {1e19F, -1e19F, 1, 1e19F}, false},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            const double y = rounded(rows[i].dtype, rows[i].op, rows[i].x, seed);
            if (isnan(y) != rows[i].open || isinf(y))
                test_fail(__FILE__, __LINE__, "row %zu: %g", i, y);
        }
}

/* A product of small factors may be subnormal or 0 before large ones follow: its error is that of a subnormal times the large ones. */
TEST(rounded_subnormals)
{
    static const float rows[][4] = {
        {1e-20F, 1e-22F, 1e18F, 1e18F}, {1e-15F, 1e-15F, 1e15F, 1e15F}, {0, 1e-20F, 1e18F, 1e18F}};
    static const double want[] = {1e-6, 1, 0}, least[] = {1e-4, 0, 0}, most[] = {1, 1e-6, 0};
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        double off = 0;
        for (uint64_t seed = 1; seed <= 16; seed++)
            off = fmax(
                off, fabs(rounded("f32", "reduce_prod %x {axes=[0]}", rows[i], seed) - want[i]));
        if (!(off >= least[i] * want[i] && off <= most[i] * want[i]))
            test_fail(__FILE__, __LINE__, "row %zu: %g", i, off);
    }
}

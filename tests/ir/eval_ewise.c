/* tests/ir/eval_ewise.c -- the reference of elementwise ops: numbers known on paper, NaN,
 * infinities, integer wrap. */
#include "eval_util.h"

static void one(nnc_op op, double x, double want)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(1));
    EXPECT(g, nnc_build1(g, op, a), IN(&x), 1, &want, 1e-14);
}

static void two(nnc_op op, double x, double y, double want)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(1)), b = arg_of(g, DT_f64, DIMS(1));
    EXPECT(g, nnc_build2(g, op, a, b), IN(&x, &y), 1, &want, 1e-14);
}

static void one_attr(nnc_op op, double x, nnc_attr attr, double want)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(1));
    EXPECT(g, nnc_build(g, op, 1, &a, 1, &attr), IN(&x), 1, &want, 1e-14);
}

/* Operands and result of dtype d (results of comparisons are bool). */
static void ints(nnc_op op, nnc_dtype d, int64_t x, int64_t y, int64_t want)
{
    nnc_graph *g = new_graph();
    int64_t a[1] = {0}, b[1] = {0};
    nnc_set_i64(d, a, 0, x);
    nnc_set_i64(d, b, 0, y);
    nnc_ref p = arg_of(g, d, DIMS(1));
    nnc_ref r =
        nnc_ops[op].n_max == 1 ? nnc_build1(g, op, p) : nnc_build2(g, op, p, arg_of(g, d, DIMS(1)));
    EXPECT(g, r, IN(a, b), 1, &want, 0);
}

static const struct {
    nnc_op op;
    double x, y;
} unary_rows[] = {
    {OP_identity, 2.5, 2.5},
    {OP_neg, 2, -2},
    {OP_abs, -3, 3},
    {OP_sign, -0.1, -1},
    {OP_sign, 7, 1},
    {OP_sign, 0, 0},
    {OP_floor, -1.5, -2},
    {OP_ceil, -1.5, -1},
    {OP_round, 2.5, 2},
    {OP_round, 3.5, 4},
    {OP_round, -0.5, 0},
    {OP_trunc, -1.7, -1},
    {OP_sqrt, 9, 3},
    {OP_sqrt, -1, NAN},
    {OP_rsqrt, 4, 0.5},
    {OP_rsqrt, 0, INFINITY},
    {OP_recip, 4, 0.25},
    {OP_exp, 1, 2.718281828459045},
    {OP_exp, -INFINITY, 0},
    {OP_exp2, 10, 1024},
    {OP_expm1, 0, 0},
    {OP_expm1, 1e-10, 1.00000000005e-10},
    {OP_log, 1, 0},
    {OP_log, 0, -INFINITY},
    {OP_log, -1, NAN},
    {OP_log2, 8, 3},
    {OP_log1p, 0, 0},
    {OP_sin, 0, 0},
    {OP_sin, 1, 0.8414709848078965},
    {OP_sin, INFINITY, NAN},
    {OP_cos, 0, 1},
    {OP_tan, 0.7853981633974483, 1},
    {OP_asin, 1, 1.5707963267948966},
    {OP_acos, 1, 0},
    {OP_atan, 1, 0.7853981633974483},
    {OP_sinh, 1, 1.1752011936438014},
    {OP_cosh, 0, 1},
    {OP_tanh, 0.5, 0.46211715726000973},
    {OP_tanh, 1000, 1},
    {OP_sigmoid, 0, 0.5},
    {OP_sigmoid, -1000, 0},
    {OP_sigmoid, 1000, 1},
    {OP_erf, 1, 0.8427007929497149},
    {OP_relu, -2, 0},
    {OP_relu, 2, 2},
    {OP_relu, NAN, NAN},
    {OP_leaky_relu, -2, -0.02},
    {OP_leaky_relu, 2, 2},
    {OP_relu6, 7, 6},
    {OP_relu6, -1, 0},
    {OP_relu6, NAN, NAN},
    {OP_clip, -5, -5},
    {OP_gelu, 1, 0.8413447460685429},
    {OP_gelu, 0, 0},
    {OP_gelu, -10, -7.619853024160583e-23},
    {OP_silu, 1, 0.7310585786300049},
    {OP_hardswish, 1, 2.0 / 3},
    {OP_hardswish, 4, 4},
    {OP_hardswish, -4, 0},
    {OP_hardsigmoid, 0, 0.5},
    {OP_hardsigmoid, 3, 1},
    {OP_softplus, 0, 0.6931471805599453},
    {OP_softplus, 1000, 1000},
    {OP_softplus, -1000, 0},
    {OP_softplus, NAN, NAN},
    {OP_softsign, 1, 0.5},
    {OP_softsign, -3, -0.75},
    {OP_elu, -1, -0.6321205588285577},
    {OP_elu, 3, 3},
    {OP_selu, 1, 1.0507009873554805},
    {OP_selu, -1, -1.1113307378125625},
    {OP_mish, 1, 0.8650983882673103},
    {OP_mish, NAN, NAN},
    {OP_square, -3, 9},
    {OP_dropout, 1.25, 1.25},
    {OP_elu, NAN, NAN},
    {OP_hardswish, NAN, NAN},
    {OP_abs, NAN, NAN},
    {OP_sign, NAN, NAN},
};

TEST(eval_unary)
{
    for (size_t i = 0; i < NNC_COUNT(unary_rows); i++)
        one(unary_rows[i].op, unary_rows[i].x, unary_rows[i].y);
    one_attr(OP_leaky_relu, -2, nnc_af(AT_alpha, 0.5), -1);
    one_attr(OP_clip, 9, nnc_af(AT_hi, 1.5), 1.5);
    one_attr(OP_clip, -9, nnc_af(AT_lo, -1.5), -1.5);
    one_attr(OP_clip, NAN, nnc_af(AT_lo, -1.5), NAN);
    one_attr(OP_elu, -1, nnc_af(AT_alpha, 2), -1.2642411176571153);
    one_attr(OP_gelu, 1, nnc_aw(AT_approximate, "tanh"), 0.8411919906082768);
}

TEST(eval_binary)
{
    static const struct {
        nnc_op op;
        double x, y, z;
    } row[] = {
        {OP_add, 1, 2, 3},
        {OP_sub, 1, 2, -1},
        {OP_mul, 3, -2, -6},
        {OP_div, 1, 4, 0.25},
        {OP_div, 1, 0, INFINITY},
        {OP_div, 0, 0, NAN},
        {OP_mod, -7, 3, -1},
        {OP_mod, 7, -3, 1},
        {OP_mod, 1, 0, NAN},
        {OP_pow, 2, 10, 1024},
        {OP_pow, -8, 3, -512},
        {OP_min, 1, 2, 1},
        {OP_min, NAN, 2, NAN},
        {OP_min, 2, NAN, NAN},
        {OP_max, 1, 2, 2},
        {OP_max, NAN, 2, NAN},
        {OP_max, 2, NAN, NAN},
        {OP_max, -INFINITY, 1, 1},
        {OP_prelu, -2, 0.25, -0.5},
        {OP_prelu, 2, 0.25, 2},
    };
    for (size_t i = 0; i < NNC_COUNT(row); i++)
        two(row[i].op, row[i].x, row[i].y, row[i].z);
}

TEST(eval_compare_and_select)
{
    const double a[4] = {1, 2, NAN, INFINITY}, b[4] = {2, 2, 1, INFINITY};
    static const struct {
        nnc_op op;
        int64_t want[4];
    } row[] = {
        {OP_eq, {0, 1, 0, 1}},
        {OP_ne, {1, 0, 1, 0}},
        {OP_lt, {1, 0, 0, 0}},
        {OP_le, {1, 1, 0, 1}},
        {OP_gt, {0, 0, 0, 0}},
        {OP_ge, {0, 1, 0, 1}},
    };
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        nnc_graph *g = new_graph();
        nnc_ref x = arg_of(g, DT_f64, DIMS(4)), y = arg_of(g, DT_f64, DIMS(4));
        EXPECT(g, nnc_build2(g, row[i].op, x, y), IN(a, b), 4, row[i].want, 0);
    }
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(4)), y = arg_of(g, DT_f64, DIMS(4));
    nnc_ref c = nnc_build2(g, OP_and, nnc_build1(g, OP_not, nnc_build1(g, OP_isnan, x)),
        nnc_build2(g, OP_xor, nnc_build1(g, OP_isinf, x), nnc_build2(g, OP_lt, x, y)));
    EXPECT(g, nnc_build3(g, OP_select, c, x, y), IN(a, b), 4, NUMS(1, 2, 1, INFINITY), 0);
    const uint8_t p[4] = {0, 0, 1, 1}, q[4] = {0, 1, 0, 1};
    g = new_graph();
    nnc_ref u = arg_of(g, DT_bool, DIMS(4)), v = arg_of(g, DT_bool, DIMS(4));
    EXPECT(g, nnc_build2(g, OP_or, u, v), IN(p, q), 4, LONGS(0, 1, 1, 1), 0);
}

TEST(eval_integers_wrap)
{
    ints(OP_add, DT_i8, 127, 1, -128);
    ints(OP_sub, DT_u8, 0, 1, 255);
    ints(OP_mul, DT_i16, 300, 300, 300 * 300 - 65536);
    ints(OP_mul, DT_i32, 1 << 20, 1 << 12, 0);
    ints(OP_add, DT_i64, INT64_MAX, 1, INT64_MIN);
    ints(OP_neg, DT_i8, -128, 0, -128);
    ints(OP_abs, DT_i8, -128, 0, -128);
    ints(OP_neg, DT_u32, 1, 0, UINT32_MAX);
    ints(OP_div, DT_i32, -7, 2, -3);
    ints(OP_div, DT_i32, 5, 0, 0);
    ints(OP_div, DT_i64, INT64_MIN, -1, INT64_MIN);
    ints(OP_div, DT_i64, 7, -1, -7);
    ints(OP_div, DT_i8, -128, -1, -128);
    ints(OP_div, DT_u64, -1, 2, INT64_MAX);
    ints(OP_mod, DT_i32, -7, 3, -1);
    ints(OP_mod, DT_i32, 7, 0, 0);
    ints(OP_mod, DT_i64, INT64_MIN, -1, 0);
    ints(OP_bit_and, DT_i8, -2, 0x55, 0x54);
    ints(OP_bit_or, DT_i8, -128, 5, -123);
    ints(OP_bit_xor, DT_u16, 0xff0f, 0x0ff0, 0xf0ff);
    ints(OP_bit_xor, DT_i64, INT64_MIN, -1, INT64_MAX);
    ints(OP_shl, DT_u8, 0x81, 1, 2);
    ints(OP_shl, DT_i32, 1, 31, INT32_MIN);
    ints(OP_shl, DT_i32, 1, 32, 0);
    ints(OP_shl, DT_i64, 1, -1, 0);
    ints(OP_shr, DT_i8, -3, 1, -2);
    ints(OP_shr, DT_i8, -3, 100, -1);
    ints(OP_shr, DT_i32, 7, -1, 0);
    ints(OP_shr, DT_u8, 255, 8, 0);
    ints(OP_shr, DT_u64, -1, 63, 1);
    ints(OP_shr, DT_u64, -1, 64, 0);
    ints(OP_pow, DT_i32, 3, 4, 81);
    ints(OP_pow, DT_u8, 2, 8, 0);
    ints(OP_pow, DT_i32, 2, -1, 0);
    ints(OP_pow, DT_i32, -1, -3, -1);
    ints(OP_max, DT_u64, -1, 1, -1);
    ints(OP_max, DT_i64, -1, 1, 1);
    ints(OP_min, DT_u64, -1, 1, 1);
    ints(OP_lt, DT_u64, 1, -1, 1);
    ints(OP_lt, DT_i64, 1, -1, 0);
    ints(OP_sign, DT_u64, -1, 0, 1);
    ints(OP_relu, DT_i16, -5, 0, 0);
    ints(OP_square, DT_i8, 16, 0, 0);
    ints(OP_relu6, DT_u8, 200, 0, 6);
}

static void cast(nnc_dtype from, const void *x, nnc_dtype to, const void *want)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, from, DIMS(1));
    EXPECT(g, nnc_cast(g, a, to), IN(x), 1, want, 0);
}

TEST(eval_cast_rounds)
{
    cast(DT_f64, NUMS(0.1), DT_f32, NUMS((double)0.1f));
    cast(DT_f64, NUMS(1 + 0x1p-11), DT_f16, NUMS(1)); /* half to even */
    cast(DT_f64, NUMS(1 + 3 * 0x1p-11), DT_f16, NUMS(1 + 2 * 0x1p-10)); /* half to even, up */
    cast(DT_f64, NUMS(1e6), DT_f16, NUMS(INFINITY));
    cast(DT_f64, NUMS(1 + 0x1p-8), DT_bf16, NUMS(1));
    cast(DT_f64, NUMS(-2.9), DT_i32, LONGS(-2));
    cast(DT_f64, NUMS(NAN), DT_i32, LONGS(0));
    cast(DT_f64, NUMS(300), DT_u8, LONGS(44));
    cast(DT_f64, NUMS(0.5), DT_bool, LONGS(1));
    cast(DT_i64, LONGS(-1), DT_u8, LONGS(255));
    cast(DT_i64, LONGS((1 << 24) + 1), DT_f32, NUMS(1 << 24));
    cast(DT_u64, LONGS(-1), DT_f64, NUMS(0x1p64));
    cast(DT_i64, LONGS(256), DT_bool, LONGS(1));
}

TEST(eval_broadcast_elementwise)
{
    nnc_graph *g = new_graph();
    nnc_ref a = arg_of(g, DT_f64, DIMS(2, 1, 3)), b = arg_of(g, DT_f64, DIMS(4, 1));
    const double x[6] = {0, 1, 2, 10, 11, 12}, y[4] = {100, 200, 300, 400};
    double want[24];
    for (int i = 0; i < 24; i++)
        want[i] = x[i / 12 * 3 + i % 3] + y[i / 3 % 4];
    EXPECT(g, nnc_build2(g, OP_add, a, b), IN(x, y), 24, want, 0);

    g = new_graph(); /* a scalar against everything, a value with itself, long rows */
    enum { N = 3000 };
    static double big[N], twice[N];
    for (int i = 0; i < N; i++)
        twice[i] = 2 * (big[i] = i) + 1;
    nnc_ref v = arg_of(g, DT_f64, DIMS(2, N / 2));
    EXPECT(g, nnc_build2(g, OP_add, nnc_build2(g, OP_add, v, v), nnc_scalar(g, DT_f64, 1)), IN(big),
        N, twice, 0);
}

TEST(eval_keeps_shared_values)
{ /* x is used again after an op that could overwrite it, and is an output itself */
    nnc_graph *g = new_graph();
    nnc_ref x = arg_of(g, DT_f64, DIMS(2));
    nnc_ref y = nnc_build1(g, OP_neg, x), z = nnc_build2(g, OP_mul, y, x);
    nnc_output(g, z, "z");
    nnc_output(g, x, "x");
    nnc_output(g, z, "again");
    nnc_rval r[3];
    const double v[2] = {3, 4};
    CHECK_OK(nnc_eval(g, (const void *const[])IN(v), 1, r, test_sink));
    CHECK_NEAR(r[0].f[0], -9, 0);
    CHECK_NEAR(r[1].f[1], 4, 0);
    CHECK_NEAR(r[2].f[1], -16, 0);
    CHECK(r[0].f != r[2].f);
    for (int i = 0; i < 3; i++)
        nnc_rval_free(&r[i]);
    nnc_graph_destroy(g);
}

/* tests/ir/eval_move.c -- the reference of leaves, movement and pooling, in any memory order. */
#include "eval_util.h"

static const double x6[6] = {0, 1, 2, 3, 4, 5};

static nnc_graph *g;
static nnc_ref x; /* f64[2,3] = 0..5 */
static void start(void)
{
    g = new_graph();
    x = arg_of(g, DT_f64, DIMS(2, 3));
}

TEST(eval_movement)
{
    start();
    EXPECT(g, nnc_reshape(g, x, DIMS(3, 2)), IN(x6), 6, x6, 0);
    start();
    EXPECT(g, nnc_transpose(g, x, INTS(1, 0)), IN(x6), 6, NUMS(0, 3, 1, 4, 2, 5), 0);
    start();
    EXPECT(g, nnc_broadcast(g, x, DIMS(2, 2, 3)), IN(x6), 12,
        NUMS(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5), 0);
    start();
    nnc_attr sl[] = {nnc_av(AT_axes, 2, INTS(0, 1)), nnc_av(AT_starts, 2, INTS(1, 0)),
        nnc_av(AT_ends, 2, INTS(2, 3)), nnc_av(AT_steps, 2, INTS(1, 2))};
    EXPECT(g, nnc_build(g, OP_slice, 1, &x, 4, sl), IN(x6), 2, NUMS(3, 5), 0);
    start();
    nnc_attr fl = nnc_av(AT_axes, 2, INTS(0, 1));
    EXPECT(g, nnc_build(g, OP_flip, 1, &x, 1, &fl), IN(x6), 6, NUMS(5, 4, 3, 2, 1, 0), 0);
    start();
    nnc_attr pad[] = {nnc_av(AT_pads, 4, INTS(0, 1, 1, 0)), nnc_af(AT_value, 7)};
    EXPECT(g, nnc_build(g, OP_pad, 1, &x, 2, pad), IN(x6), 12,
        NUMS(7, 0, 1, 2, 7, 3, 4, 5, 7, 7, 7, 7), 0);
    start();
    nnc_attr edge[] = {nnc_av(AT_pads, 4, INTS(1, 0, 0, 2)), nnc_aw(AT_mode, "edge")};
    EXPECT(g, nnc_build(g, OP_pad, 1, &x, 2, edge), IN(x6), 15,
        NUMS(0, 1, 2, 2, 2, 0, 1, 2, 2, 2, 3, 4, 5, 5, 5), 0);
    start();
    nnc_attr refl[] = {nnc_av(AT_pads, 4, INTS(0, 2, 0, 2)), nnc_aw(AT_mode, "reflect")};
    EXPECT(g, nnc_build(g, OP_pad, 1, &x, 2, refl), IN(x6), 14,
        NUMS(2, 1, 0, 1, 2, 1, 0, 5, 4, 3, 4, 5, 4, 3), 0);
    start();
    nnc_attr ax1 = nnc_ai(AT_axis, 1);
    nnc_ref two[2] = {x, arg_of(g, DT_f64, DIMS(2, 1))};
    EXPECT(g, nnc_build(g, OP_concat, 2, two, 1, &ax1), IN(x6, NUMS(8, 9)), 8,
        NUMS(0, 1, 2, 8, 3, 4, 5, 9), 0);
    start();
    nnc_attr cut[] = {nnc_ai(AT_axis, 1), nnc_av(AT_sizes, 2, INTS(1, 2))};
    EXPECT(g, nnc_build(g, OP_split, 1, &x, 2, cut) + 1, IN(x6), 4, NUMS(1, 2, 4, 5), 0);
}

TEST(eval_gather)
{
    start();
    nnc_attr ax1 = nnc_ai(AT_axis, 1);
    nnc_ref two[2] = {x, arg_of(g, DT_i32, DIMS(2))};
    EXPECT(g, nnc_build(g, OP_gather, 2, two, 1, &ax1), IN(x6, ((const int32_t[]){-1, 0})), 4,
        NUMS(2, 0, 5, 3), 0);
    start();
    two[0] = x;
    two[1] = arg_of(g, DT_i64, DIMS(1));
    nnc_output(g, nnc_build(g, OP_gather, 2, two, 0, NULL), "y");
    nnc_rval y;
    CHECK_OK(nnc_eval(g, (const void *const[])IN(x6, LONGS(2)), 1, &y, test_sink));
    CHECK_DIAG("index 2 is outside dimension 0 of extent 2: the nearest one is taken");
    nnc_rval_free(&y);
    nnc_graph_destroy(g);
}

TEST(eval_leaves)
{
    g = new_graph();
    nnc_type t = nnc_type_make(DT_i32, DIMS(2, 3));
    nnc_attr dim = nnc_ai(AT_dim, 1);
    EXPECT(g, nnc_build_typed(g, OP_iota, 0, NULL, 1, &dim, &t), IN(NULL), 6,
        LONGS(0, 1, 2, 0, 1, 2), 0);
    g = new_graph();
    EXPECT(g, nnc_constant(g, &t, (const int32_t[]){5, -1, 2, 3, 9, 8}), IN(NULL), 6,
        LONGS(5, -1, 2, 3, 9, 8), 0);
    g = new_graph(); /* a generated weight: the documented stream, rounded to f32; long enough for several chunks */
    enum { N = 20000 };
    nnc_type tw = nnc_type_make(DT_f32, DIMS(N));
    nnc_weight w = {.kind = NNC_W_gen, .name = "w", .seed = 3, .scale = 0.5f, .shift = 1};
    static float u[N];
    static double want[N];
    nnc_rng_fill(nnc_rng_key("w", 3), 0, N, 1, u);
    for (int i = 0; i < N; i++)
        want[i] = 1 + 0.5 * (double)u[i];
    EXPECT(g, nnc_param(g, &tw, &w), IN(NULL), N, want, 1e-7);
    g = new_graph();
    nnc_weight gone = {.kind = NNC_W_file,
        .name = "conv.weight",
        .file = "/nonexistent/w.safetensors",
        .size = 4 * N};
    nnc_output(g, nnc_param(g, &tw, &gone), "y");
    nnc_rval y;
    CHECK_INT(nnc_eval(g, NULL, 2, &y, test_sink), NNC_E_IO);
    CHECK_DIAG("w.safetensors");
    nnc_graph_destroy(g);
}

TEST(eval_memory_orders)
{ /* values are what they are, however they lie: relayout changes nothing that is seen */
    g = new_graph();
    nnc_ref v = arg_of(g, DT_f64, DIMS(1, 2, 2, 2));
    nnc_ref r = nnc_relayout(g, v, (const uint8_t[]){0, 2, 3, 1});
    nnc_ref y = nnc_build2(g, OP_add, r, v);
    const double in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT(g, y, IN(in), 8, NUMS(2, 4, 6, 8, 10, 12, 14, 16), 0);
}

static nnc_ref pool(nnc_op op, nnc_ref v, int s, const int64_t *k, const int64_t *stride,
    const int64_t *pads, int flag)
{
    nnc_attr at[4] = {nnc_av(AT_kernel, s, k), nnc_av(AT_strides, s, stride),
        nnc_av(AT_pads, 2 * s, pads),
        flag == 2 ? nnc_ai(AT_count_include_pad, 1) : nnc_ai(AT_ceil_mode, flag)};
    return nnc_build(g, op, 1, &v, 4, at);
}

TEST(eval_pooling)
{
    const double in[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, NAN, 12, 13, 14, 15, -16};
    g = new_graph();
    nnc_ref v = arg_of(g, DT_f64, DIMS(1, 1, 4, 4));
    EXPECT(g, pool(OP_maxpool, v, 2, INTS(2, 2), INTS(2, 2), INTS(0, 0, 0, 0), 0), IN(in), 4,
        NUMS(6, 8, 14, NAN), 0);
    /* 1-d: 5 elements, k 2 s 2: floor gives 2 windows, ceil 3 (the last hangs over) */
    const double five[5] = {-1, -2, -3, -4, -5};
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    EXPECT(g, pool(OP_maxpool, v, 1, INTS(2), INTS(2), INTS(0, 0), 1), IN(five), 3,
        NUMS(-1, -3, -5), 0);
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    EXPECT(g, pool(OP_avgpool, v, 1, INTS(2), INTS(2), INTS(0, 0), 1), IN(five), 3,
        NUMS(-1.5, -3.5, -5), 0);
    /* padding never wins, and counts only when asked */
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    EXPECT(g, pool(OP_maxpool, v, 1, INTS(3), INTS(2), INTS(1, 1), 0), IN(five), 3,
        NUMS(-1, -2, -4), 0);
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    EXPECT(g, pool(OP_avgpool, v, 1, INTS(3), INTS(2), INTS(1, 1), 0), IN(five), 3,
        NUMS(-1.5, -3, -4.5), 1e-15);
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    EXPECT(g, pool(OP_avgpool, v, 1, INTS(3), INTS(2), INTS(1, 1), 2), IN(five), 3,
        NUMS(-1, -3, -3), 1e-15);
    /* ceil with count_include_pad: the last window is the 5th element and one pad, its third
     * place is outside */
    g = new_graph();
    v = arg_of(g, DT_f64, DIMS(1, 1, 5));
    nnc_attr at[5] = {nnc_av(AT_kernel, 1, INTS(3)), nnc_av(AT_strides, 1, INTS(4)),
        nnc_av(AT_pads, 2, INTS(0, 1)), nnc_ai(AT_ceil_mode, 1), nnc_ai(AT_count_include_pad, 1)};
    EXPECT(g, nnc_build(g, OP_avgpool, 1, &v, 5, at), IN(five), 2, NUMS(-2, -2.5), 1e-15);
    /* dilation, and integers below zero against padding */
    g = new_graph();
    v = arg_of(g, DT_i8, DIMS(1, 1, 5));
    nnc_attr dil[3] = {nnc_av(AT_kernel, 1, INTS(2)), nnc_av(AT_dilations, 1, INTS(2)),
        nnc_av(AT_pads, 2, INTS(1, 1))};
    EXPECT(g, nnc_build(g, OP_maxpool, 1, &v, 3, dil), IN(((const int8_t[]){-1, -2, -3, -4, -5})),
        5, LONGS(-2, -1, -2, -3, -4), 0);
}

/* tests/ir/facts_test.c -- facts about nodes: order, NaN, constants, static values, views, cost. */
#include "help.h"

#include <math.h>

static const nnc_node *last(const nnc_graph *g)
{
    return nnc_def(g, g->output[0]);
}

TEST(facts_nondecreasing)
{
    static const struct {
        const char *text; /* %x, %c; then the node %y */
        int operand;
        bool yes;
    } rows[] = {
        {"%y = relu %x", 0, true},
        {"%y = sqrt %x", 0, false}, /* NaN below 0 */
        {"%p = square %x %y = sqrt %p", 0, true},
        {"%p = clip %x {lo=0, hi=1} %q = transpose %p {perm=[0]} %y = sqrt %q", 0, true},
        {"%p = rsqrt %x %y = sqrt %p", 0, false}, /* 1/sqrt(-0) = -inf */
        {"%y = neg %x", 0, false},
        {"%y = abs %x", 0, false},
        {"%y = exp %x", 0, true},
        {"%y = sigmoid %x", 0, false},
        {"%y = add %x, %c", 0, true},
        {"%y = add %c, %x", 1, true},
        {"%y = add %x, %x", 0, false},
        {"%y = sub %x, %c", 0, true},
        {"%y = sub %c, %x", 1, false},
        {"%y = mul %x, %c", 0, true},
        {"%y = mul %x, %m", 0, false},
        {"%y = mul %x, %z", 0, false}, /* inf * 0 */
        {"%y = div %x, %c", 0, true},
        {"%y = div %c, %x", 1, false},
        {"%y = add %x, %inf", 0, false}, /* -inf + inf */
        {"%y = max %x, %inf", 0, true},
        {"%y = max %x, %nan", 0, false},
        {"%y = min %c, %x", 1, true},
        {"%y = add %x, %v", 0, false}, /* not one number */
        {"%y = leaky_relu %x", 0, true},
        {"%y = leaky_relu %x {alpha=-1}", 0, false},
        {"%y = clip %x {lo=0, hi=1}", 0, true},
        {"%y = hardsigmoid %x {alpha=-1}", 0, false},
        {"%y = cast %x {to=f16}", 0, true},
        {"%y = cast %x {to=i32}", 0, false},
        {"%y = cast %i {to=f32}", 0, true},
        {"%y = cast %i {to=i64}", 0, true},
        {"%y = cast %i {to=i16}", 0, false},
        {"%y = cast %i {to=u64}", 0, false},
        {"%y = cast %i {to=bool}", 0, false}, /* -1 is true, 0 false */
        {"%u = cast %i {to=u8} %y = cast %u {to=bool}", 0, true},
        {"%b = not %t %y = cast %b {to=i8}", 0, true},
        {"%y = add %i, %ic", 0, false}, /* wraps */
        {"%y = max %i, %ic", 0, true},
        {"%y = reduce_max %x {axes=[0]}", 0, false},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        nnc_text t = {0};
        nnc_printf(&t,
            "graph @t { %%x = input : f32[4] %%i = input : i32[4] %%c = constant : f32[] = [2]\n"
            " %%m = constant : f32[] = [-2] %%z = constant : f32[] = [0] %%inf = constant : f32[] "
            "= [inf]\n"
            " %%nan = constant : f32[] = [nan] %%v = constant : f32[4] = [1,2,3,4]\n"
            " %%ic = constant : i32[4] = splat 1 %%t = input : bool[4] %s return %%y }",
            rows[i].text);
        nnc_graph *g = parse_text(nnc_text_str(&t));
        if (!g || nnc_is_nondecreasing(g, last(g), rows[i].operand) != rows[i].yes)
            test_fail(__FILE__, __LINE__, "%s: not %d", rows[i].text, rows[i].yes);
        nnc_graph_destroy(g);
        nnc_text_deinit(&t);
    }
}

/* Ascending, with what is special: both zeros, infinities, numbers whose squares leave the range. */
static const double grid[] = {-INFINITY, -1e200, -800, -7.5, -3, -2.5, -1.6, -1, -0.9, -0.7525,
    -0.5, -1e-3, -1e-200, -0.0, 0.0, 1e-200, 1e-3, 0.4, 0.5, 0.9, 1, 1.5, 2, 2.5, 3, 6.5, 90, 800,
    1e200, INFINITY, NAN};
enum { N_GRID = NNC_COUNT(grid), AT_ZERO = 14 };

/* y = f(grid), z = f(f(grid)), m = f(-grid) for "op %x {attrs}". */
static void apply(const char *op, const char *attrs, nnc_rval out[3])
{
    nnc_text t = {0};
    nnc_printf(&t,
        "graph @t { %%x = input : f64[%d] %%n = neg %%x %%y = %s %%x %s %%z = %s %%y %s %%m = %s "
        "%%n "
        "%s return %%y, %%z, %%m }",
        (int)N_GRID, op, attrs, op, attrs, op, attrs);
    nnc_graph *g = parse_text(nnc_text_str(&t));
    const void *in = grid;
    memset(out, 0, 3 * sizeof *out);
    CHECK(g != NULL);
    if (g)
        CHECK_OK(nnc_eval(g, &in, 1, out, test_sink));
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

static bool same_number(double a, double b)
{
    return a == b || (a != a && b != b);
}

static void check_facts(nnc_op op, const char *attrs)
{
    const nnc_op_info *o = &nnc_ops[op];
    nnc_rval r[3];
    apply(o->name, attrs, r);
    const double *y = r[0].f, *z = r[1].f, *m = r[2].f;
    for (int i = 0; y && i < N_GRID; i++) {
        const char *wrong = NULL;
        bool nan = grid[i] != grid[i];
        if (!nan && (y[i] < o->lo || y[i] > o->hi))
            wrong = "leaves its range";
        if (o->flags & OF_nan && nan && y[i] == y[i])
            wrong = "loses NaN";
        if (o->flags & OF_nondec && nan && y[i] == y[i])
            wrong = "is called non-decreasing and loses NaN";
        if (o->flags & OF_zero && i == AT_ZERO && y[i] != 0)
            wrong = "is not 0";
        if (o->flags & OF_nondec && i > 0 && !nan && y[i] < y[i - 1])
            wrong = "decreases";
        if (o->flags & OF_idem && !same_number(z[i], y[i]))
            wrong = "is not idempotent";
        if (o->flags & OF_invol && !same_number(z[i], grid[i]))
            wrong = "is no involution";
        if (o->flags & OF_sign && !same_number(m[i], -y[i]))
            wrong = "is not odd";
        if (wrong)
            test_fail(
                __FILE__, __LINE__, "%s %s of %g = %g %s", o->name, attrs, grid[i], y[i], wrong);
    }
    for (int i = 0; i < 3; i++)
        nnc_rval_free(&r[i]);
}

/* What ops.def says of elementwise ops of one operand, held against their reference. */
TEST(facts_hold)
{
    for (int op = 0; op < OP__COUNT; op++)
        if (nnc_op_is_ewise((nnc_op)op) && nnc_ops[op].n_max == 1 && op != OP_cast &&
            !(nnc_ops[op].flags & OF_bool))
            check_facts((nnc_op)op, "");
    check_facts(OP_gelu, "{approximate=tanh}");
    check_facts(OP_clip, "{lo=-1, hi=2}");
    check_facts(OP_leaky_relu, "{alpha=-3}");
    check_facts(OP_hardsigmoid, "{alpha=-3, beta=7}");
    check_facts(OP_elu, "{alpha=-3}");
}

TEST(facts_order_and_constants)
{
    nnc_graph *g = parse_text("graph @t { %x = input : f32[4] %c = constant : f32[2,2] = splat 3 "
                              "%r = reshape %c {shape=[4]}\n"
                              " %v = constant : f32[2] = [1,2] %b = broadcast %r {shape=[5,4]} %p "
                              "= prelu %x, %r %k = clip %x {lo=0}\n"
                              " %s = pow %x, %r %t = transpose %x {perm=[0]} %i = cast %x {to=i32} "
                              "%h = cast %x {to=f16}\n"
                              " return %p, %k, %s, %t, %i, %h }");
    double d = 0;
    CHECK(nnc_const_scalar(g, 1, &d) && d == 3);
    CHECK(nnc_const_scalar(g, 4, &d) && d == 3);
    CHECK(!nnc_const_scalar(g, 3, &d));
    CHECK(!nnc_const_scalar(g, 0, &d));
    const bool nondecreasing[] = {true, true, false, false, false, true}; /* a NaN has no integer */
    for (uint32_t i = 0; i < 6; i++)
        CHECK_INT(nnc_is_nondecreasing(g, nnc_def(g, g->output[i]), 0), nondecreasing[i]);
    CHECK(!nnc_is_nondecreasing(g, nnc_def(g, g->output[0]), 1));
    nnc_graph_destroy(g);
}

TEST(facts_static)
{
    nnc_graph *g = parse_text("graph @t { %x = input : f32[4] %w = param : f32[4] = [1,2,3,4] %c = "
                              "iota {dim=0} : f32[4]\n"
                              " %s = mul %w, %c %y = add %x, %s return %y }");
    nnc_arena a;
    nnc_arena_init(&a, 0);
    bool *s = nnc_static_values(g, &a);
    CHECK(!s[0] && s[1] && s[2] && s[3] && !s[4]);
    int64_t parameters, statistics;
    CHECK(nnc_param_count(g, &parameters, &statistics));
    CHECK_INT(parameters, 4);
    CHECK_INT(statistics, 0);
    nnc_cost c = nnc_graph_cost(g); /* the add alone */
    CHECK_INT(c.flops, 4);
    CHECK_INT(c.bytes, 48);
    CHECK_INT(c.launches, 1);
    nnc_arena_deinit(&a);
    nnc_graph_destroy(g);
}

TEST(facts_home)
{
    nnc_graph *g =
        parse_text("graph @t { %x = input : f32[4] %w = param : f32[4] = [1,2,3,4] device 2\n"
                   "%p = neg %x device 1 %q = reshape %p {shape=[2,2]} device 3\n"
                   "%r = reshape %w {shape=[2,2]}\n"
                   "%a, %b = allreduce %q, %r %c = reshape %b {shape=[4]} device 5\n"
                   "%d = neg %c device 4 return %d }");
    static const int16_t home[] = {0, 2, 1, 1, 2, 1, 2, 2, 4};
    CHECK_INT(g->n_value, NNC_COUNT(home));
    for (nnc_ref v = 0; v < g->n_value; v++)
        CHECK_INT(nnc_home(g, v), home[v]);
    nnc_arena a;
    nnc_arena_init(&a, 0);
    bool *s = nnc_static_values(g, &a); /* a collective runs in each run, whatever it reads */
    CHECK(s[1] && s[4] && !s[5] && !s[6]);
    nnc_arena_deinit(&a);
    nnc_graph_destroy(g);
}

TEST(facts_view)
{
    static const struct {
        const char *in, *op, *attrs;
        bool yes;
    } rows[] = {
        {"f32[2,3]", "identity", "", true},
        {"f32[2,3]", "dropout", "", true},
        {"f32[1,3,2,2]{0,2,3,1}", "identity", ": f32[1,3,2,2]", false},
        {"f32[2,3]", "cast", "{to=f32}", true},
        {"f32[2,3]", "cast", "{to=i32}", false},
        {"f32[2,3,4]", "reshape", "{shape=[6,4]}", true},
        {"f32[2,3,4]", "reshape", "{shape=[4,6]}", true},
        {"f32[1,512,1,1]{0,2,3,1}", "reshape", "{shape=[1,512]}", true},
        {"f32[2,512,1,1]{0,2,3,1}", "reshape", "{shape=[2,512]}", true},
        {"f32[2,512,7,7]{0,2,3,1}", "reshape", "{shape=[2,25088]}", false},
        {"f32[2,512,7,7]{0,2,3,1}", "reshape", "{shape=[2,512,49]}", false},
        {"f32[2,512,7,7]{0,2,3,1}", "reshape", "{shape=[2,512,49]} : f32[2,512,49]{0,2,1}", true},
        {"f32[2,6,7,7]{0,2,3,1}", "reshape", "{shape=[2,2,3,7,7]} : f32[2,2,3,7,7]{0,3,4,1,2}",
            true},
        {"f32[2,6,7,7]{0,2,3,1}", "reshape", "{shape=[2,2,3,7,7]} : f32[2,2,3,7,7]{0,3,4,2,1}",
            false},
        {"f32[4,6]{1,0}", "reshape", "{shape=[6,4]} : f32[6,4]{1,0}", false},
        {"f32[2,3,4]", "transpose", "{perm=[0,2,1]}", false},
        {"f32[2,1,4]", "transpose", "{perm=[0,2,1]}", true},
        {"f32[2,3,4,5]", "transpose", "{perm=[0,2,3,1]} : f32[2,4,5,3]{0,3,1,2}", true},
        {"f32[2,3,4,5]{0,2,3,1}", "transpose", "{perm=[0,2,3,1]}", true},
        {"f32[2,3,4,5]{0,2,3,1}", "relayout", "{order=[0,1,2,3]}", false},
        {"f32[2,1,4,5]{0,2,3,1}", "relayout", "{order=[0,1,2,3]}", true},
        {"f32[3]", "broadcast", "{shape=[1,3]}", true},
        {"f32[3]", "broadcast", "{shape=[2,3]}", false},
        {"f32[4]", "slice", "{axes=[0], starts=[0], ends=[2]}", false},
        {"f32[4]", "neg", "", false},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        nnc_graph *g = parse_node_text(rows[i].in, rows[i].op, rows[i].attrs, 1);
        if (!g || nnc_is_view(g, last(g)) != rows[i].yes) {
            test_fail(__FILE__, __LINE__, "%s(%s) %s: view is not %d", rows[i].op, rows[i].in,
                rows[i].attrs, rows[i].yes);
            nnc_sink_print(test_sink, stderr);
        }
        nnc_graph_destroy(g);
    }
}

TEST(facts_cost)
{
    static const struct {
        const char *in, *op, *attrs;
        int64_t flops, bytes, launches;
    } rows[] = {
        {"f32[10];f32[10]", "add", "", 10, 120, 1},
        {"f32[10,1];f32[1,10]", "add", "", 100, 480, 1},
        {"f32[10]", "gelu", "", 50, 80, 1},
        {"f32[10]", "identity", "", 0, 0, 0},
        {"f16[10]", "cast", "{to=f32}", 10, 60, 1},
        {"f32[4,5]", "reshape", "{shape=[20]}", 0, 0, 0},
        {"f32[4,5]", "transpose", "{perm=[1,0]}", 0, 160, 1},
        {"f32[4,5]", "reduce_sum", "{axes=[1]}", 20, 96, 1},
        {"f32[4,5]", "reduce_mean", "{axes=[1]}", 24, 96, 1},
        {"f32[3,4];f32[4,5]", "matmul", "", 2 * 3 * 4 * 5, (12 + 20 + 15) * 4, 1},
        {"f32[4,3];f32[4,5]", "matmul", "{transpose_a=1}", 2 * 3 * 4 * 5, (12 + 20 + 15) * 4, 1},
        {"f32[2,10];f32[5,10];f32[5]", "linear", "", 2 * 2 * 10 * 5 + 10, (20 + 50 + 5 + 10) * 4,
            1},
        {"f32[1,3,224,224];f32[64,3,7,7]", "conv", "{strides=[2,2], pads=[3,3,3,3]}", 236027904,
            (150528 + 9408 + 802816) * 4, 1},
        {"f32[1,8,4,4];f32[8,1,3,3]", "conv", "{groups=8, pads=[1,1,1,1]}", 2 * 128 * 9,
            (128 + 72 + 128) * 4, 1},
        {"f32[1,2,4];f32[2,3,2]", "conv_transpose", "{strides=[2]}", 2 * 8 * 6, (8 + 12 + 24) * 4,
            1},
        {"f32[1,1,4,4]", "maxpool", "{kernel=[2,2], strides=[2,2]}", 16, 80, 1},
        {"f32[1000,8];i64[2]", "gather", "", 0, 2 * 8 * 4 * 2 + 16, 1}, /* reads what it fetches */
        {"f32[1000]", "slice", "{axes=[0], starts=[5], ends=[15]}", 0, 80, 1},
        {"f32[2,10]", "softmax", "{axis=1}", 100, 160, 1},
        {"f32[4,4]", "split", "{axis=0, sizes=[1,3]}", 0, 128, 1},
    };
    for (size_t i = 0; i < NNC_COUNT(rows); i++) {
        nnc_graph *g = parse_node_text(
            rows[i].in, rows[i].op, rows[i].attrs, strcmp(rows[i].op, "split") ? 1 : 2);
        nnc_cost c = g ? nnc_node_cost(g, last(g)) : (nnc_cost){-1, -1, -1};
        if (c.flops != rows[i].flops || c.bytes != rows[i].bytes || c.launches != rows[i].launches)
            test_fail(__FILE__, __LINE__, "%s(%s) %s: %lld flops, %lld bytes, %d launches",
                rows[i].op, rows[i].in, rows[i].attrs, (long long)c.flops, (long long)c.bytes,
                c.launches);
        nnc_graph_destroy(g);
    }
}

TEST(facts_cost_fused)
{
    /* x read once though named twice; of the table only what the gather fetches; one result of two
     * dropped nowhere */
    nnc_graph *g = parse_text(
        "graph @t { %x = input : f32[8] %table = input : f32[1000,8] %i = input : i32[1]\n"
        " %f, %h = fused %x, %table, %i, %x { %a = input : f32[8] %t = input : f32[1000,8] %k = "
        "input : i32[1]\n"
        "  %b = input : f32[8] %r = gather %t, %k %s = add %a, %r %m = mul %s, %b %q = relu %m "
        "return %q, %s }\n"
        " return %f, %h }");
    nnc_cost c = nnc_node_cost(g, last(g));
    CHECK_INT(c.bytes, 32 + 32 + 4 + 32 + 32);
    CHECK_INT(c.flops, 8 * 3);
    CHECK_INT(c.launches, 1);
    nnc_graph_destroy(g);
}

/* Flops of op(x) and of the nodes that its lowering adds. */
static void check_lowering(const char *op, int operands, const char *attrs)
{
    nnc_graph *g = parse_node_text(operands == 2 ? "f32[10];f32[10]" : "f32[10]", op, attrs, 1);
    CHECK(g != NULL);
    if (!g)
        return;
    nnc_node n = *last(g);
    nnc_cost before = nnc_node_cost(g, &n);
    uint32_t first = g->n_node;
    int64_t flops = 0;
    CHECK(nnc_expand(g, &n, n.in) != NNC_NONE);
    for (uint32_t k = first; k < g->n_node; k++)
        flops += nnc_node_cost(g, &g->node[k]).flops;
    if (before.flops != flops)
        test_fail(__FILE__, __LINE__, "%s %s counts %lld per element, its lowering %lld", op, attrs,
            (long long)before.flops / 10, (long long)flops / 10);
    nnc_graph_destroy(g);
}

/* The cost of a named elementwise op is that of its lowering. */
TEST(facts_cost_matches_lowering)
{
    for (int i = 0; i < OP__COUNT; i++)
        if (nnc_ops[i].cls == CL_ecomp)
            check_lowering(nnc_ops[i].name, nnc_ops[i].n_min, "");
    check_lowering("clip", 1, "{lo=0}");
    check_lowering("clip", 1, "{lo=0, hi=1}");
    check_lowering("elu", 1, "{alpha=2}");
    check_lowering("gelu", 1, "{approximate=tanh}");
}

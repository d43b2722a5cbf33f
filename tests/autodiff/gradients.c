/* tests/autodiff/gradients.c -- chosen graphs: ops that are not drawn, shared and unused values, and which value a kink's gradient has. */
#include "help.h"

#include <math.h>

#define INDEX "%i = constant : i64[2,3] = [0, 2, 1, 3, 3, 0]\n"

static const char *const graphs[] = {
    "graph @allreduce {\n%x = input : f64[2,3]\n%z = input : f64[2,3]\n%a, %b, %c = allreduce %x, "
    "%z, "
    "%x\n%s = sin %a\n%m = mul %b, %z\nreturn %s, %m\n}",
    "graph @allgather {\n%x = input : f64[2,3]\n%z = input : f64[2,3]\n%a, %b = allgather %x, %z "
    "{axis=1}\n%s = sin %a\n%m = exp %b\nreturn %s, %m\n}",
    "graph @reduce_scatter {\n%x = input : f64[2,6]\n%z = input : f64[2,6]\n%w = sin %x\n%a, %b, "
    "%c = "
    "reduce_scatter %x, %z, %w {axis=1}\n%s = sin %a\n%m = mul %b, %b\nreturn %s, %m\n}",
    "graph @mod {\n%x = input : f64[7]\n%c = constant : f64[] = [0.7]\n%y = mod %x, %c : "
    "f64[7]\nreturn %y\n}",
    "graph @topk {\n%x = input : f64[3,9]\n%v, %i = topk %x {axis=1, k=4, largest=1} : f64[3,4], "
    "i64[3,4]\nreturn %v\n}",
    "graph @unused_indices {\n%x = input : f64[9]\n%v, %i = topk %x {axis=0, k=2, largest=0}\n%f = "
    "cast %i {to=f64}\n%y = mul "
    "%v, %f\nreturn %y\n}",
    "graph @elements {\n%x = input : f64[2,5]\n" INDEX
    "%y = gather_elements %x, %i {axis=1}\nreturn %y\n}",
    "graph @rows {\n%x = input : f64[5,4]\n" INDEX "%y = gather %x, %i {axis=0}\nreturn %y\n}",
    "graph @columns {\n%x = input : f64[2,5,3]\n" INDEX "%y = gather %x, %i {axis=1}\nreturn %y\n}",
    "graph @last {\n%x = input : f64[2,2,5]\n%i = constant : i64[] = [-2]\n%y = gather %x, %i "
    "{axis=2}\nreturn %y\n}",
    "graph @tuples {\n%x = input : f64[4,4,2,3]\n" INDEX "%y = gather_nd %x, %i\nreturn %y\n}",
    "graph @tuples_of_batches {\n%x = input : f64[2,4,3]\n%i = constant : i64[2,3,1] = [0, 2, 1, "
    "3, "
    "3, 0]\n%y = gather_nd %x, %i {batch_dims=1}\nreturn %y\n}",
    "graph @put {\n%x = input : f64[2,5]\n%u = input : f64[2,3]\n" INDEX
    "%y = scatter %x, %i, %u {axis=1, reduction=add}\nreturn %y\n}",
    "graph @replace {\n%x = input : f64[2,5]\n%u = input : f64[2,2]\n%i = constant : i64[2,2] = "
    "[4, 1, 0, 3]\n%y = scatter %x, %i, %u "
    "{axis=1}\nreturn %y\n}",
    "graph @put_rows {\n%x = input : f64[4,3]\n%u = input : f64[2,3]\n%i = constant : i64[2,1] = "
    "[2, 0]\n%y = scatter_nd %x, %i, %u\n"
    "%z = scatter_nd %x, %i, %u {reduction=add}\n%s = mul %y, %z\nreturn %s\n}",
    "graph @shared {\n%x = input : f64[4]\n%y = mul %x, %x\n%z = add %y, %x\n%s = sin %z\nreturn "
    "%s, %y\n}",
    "graph @part_of_split {\n%x = input : f64[2,6]\n%a, %b, %c = split %x {axis=1, "
    "sizes=[1,2,3]}\n%y = exp %b\nreturn %y\n}",
    "graph @batch_statistics {\n%x = input : f64[3,2,4,4]\n%g = input : f64[2]\n%b = input : "
    "f64[2]\n%m = reduce_mean %x {axes=[0,2,3], "
    "keepdims=0}\n%k = reshape %m {shape=[2,1,1]}\n%d = sub %x, %k\n%q = mul %d, %d\n%v = "
    "reduce_mean %q {axes=[0,2,3], "
    "keepdims=0}\n%y = batchnorm %x, %g, %b, %m, %v\nreturn %y\n}",
    "graph @steps {\n%x = input : f64[7,11]\n%y = slice %x {axes=[0,1], starts=[1,2], ends=[7,10], "
    "steps=[2,3]}\nreturn %y\n}",
    "graph @mirrored {\n%x = input : f64[2,4,5]\n%y = pad %x {pads=[0,3,2,1,0,4], "
    "mode=reflect}\n%z = pad %x {pads=[1,0,2,1,3,4], "
    "mode=edge}\nreturn %y, %z\n}",
    "graph @grouped {\n%x = input : f64[2,6,9,8]\n%w = input : f64[4,3,3,2]\n%b = input : "
    "f64[4]\n%y = conv %x, %w, %b {strides=[2,3], "
    "pads=[1,0,2,1], dilations=[2,1], groups=2}\nreturn %y\n}",
    "graph @back {\n%x = input : f64[2,4,3,5]\n%w = input : f64[4,2,3,2]\n%b = input : f64[4]\n%y "
    "= conv_transpose %x, %w, %b "
    "{strides=[3,1], pads=[1,0,0,1], dilations=[1,2], groups=2, output_padding=[2,1]}\nreturn "
    "%y\n}",
    "graph @of_weights {\n%x = input : f64[2,6,9,8]\n%d = input : f64[2,4,4,3]\n%y = conv_wgrad "
    "%x, %d {kernel=[3,2], strides=[2,3], pads=[1,0,2,1], dilations=[2,1], groups=2}\n%z = "
    "conv_wgrad %x, %d {kernel=[3,3], strides=[2,2], groups=2}\n%p = conv_wgrad %x, %x "
    "{kernel=[1,1]}\nreturn %y, %z, %p\n}",
    "graph @pools {\n%x = input : f64[1,2,8,7]\n%y = maxpool %x {kernel=[3,2], strides=[2,3], "
    "pads=[1,0,1,1], dilations=[2,1], "
    "ceil_mode=1}\n%z = avgpool %x {kernel=[3,2], strides=[2,3], pads=[1,0,1,1], ceil_mode=1}\n%u "
    "= avgpool %x {kernel=[3,3], "
    "strides=[2,2], pads=[1,1,1,1], count_include_pad=1}\nreturn %y, %z, %u\n}",
    "graph @products {\n%x = input : f64[3,5]\n%y = cumprod %x {axis=1}\n%z = cumprod %x {axis=0, "
    "exclusive=1}\n%u = cumprod %x {axis=1, reverse=1}\n%v = cumprod %x {axis=1, exclusive=1, "
    "reverse=1}\nreturn %y, %z, %u, %v\n}",
    "graph @scan {\n%a = input : f64[3,5]\n%b = input : f64[3,5]\n%c = input : f64[1,5]\n%y = "
    "linear_scan %a, %b, %c {axis=0}\n%z = linear_scan %b, %y {axis=1, reverse=1}\nreturn %y, "
    "%z\n}",
    "graph @one {\n%a = input : f64[1,5]\n%b = input : f64[1,5]\n%y = linear_scan %a, %b "
    "{axis=0}\n%z "
    "= cumprod %y {axis=0, exclusive=1}\n%s = add %y, %z\nreturn %s\n}",
    "graph @lstm {\n%x = input : f64[4,2,12]\n%r = input : f64[3,12]\n%h = input : f64[2,3]\n%c = "
    "input : f64[2,3]\n%y, %d = lstm %x, %r, %h, %c\nreturn %y, %d\n}",
    "graph @state {\n%x = input : f64[1,2,12]\n%r = input : f64[3,12]\n%h = input : f64[2,3]\n%y, "
    "%d = "
    "lstm %x, %r, %h, %h\nreturn %d\n}",
    "graph @ends {\n%x = input : f64[5,4,8]\n%r = input : f64[2,8]\n%h = input : f64[4,2]\n%c = "
    "input : f64[4,2]\n%n = constant : i32[4] = [3, 0, 5, 1]\n%y, %d = lstm %x, %r, %h, %c, %n\n"
    "return %y, %d\n}",
    "graph @gru {\n%x = input : f64[4,2,9]\n%r = input : f64[3,9]\n%b = input : f64[3]\n%h = input "
    ": "
    "f64[2,3]\n%y = gru %x, %r, %b, %h\nreturn %y\n}",
    "graph @gru_ends {\n%x = input : f64[4,3,6]\n%r = input : f64[2,6]\n%b = input : f64[2]\n%h = "
    "input : f64[3,2]\n%n = constant : u64[3] = [4, 0, 2]\n%y = gru %x, %r, %b, %h, %n\nreturn "
    "%y\n}",
    "graph @rnn {\n%x = input : f64[4,3,2]\n%r = input : f64[2,2]\n%h = input : f64[3,2]\n%n = "
    "constant "
    ": i64[3] = [2, -1, 9]\n%y = rnn %x, %r, %h, %n\n%z = rnn %x, %r, %h {activation=relu}\nreturn "
    "%y, %z\n}",
    "graph @heads {\n%x = input : f64[3,1,4,5]\n%w = input : f64[2,6,5]\n%y = matmul %x, %w "
    "{transpose_b=1}\n%z = matmul %y, %x "
    "{transpose_a=1}\nreturn %z\n}",
};

TEST(chosen_graphs)
{
    for (size_t i = 0; i < NNC_COUNT(graphs); i++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            int before = test_failures;
            help_check_text(graphs[i], test_seed + seed);
            if (test_failures > before) {
                printf("%.30s...\n", graphs[i]);
                break;
            }
        }
}

/* The gradient of sum(y) at x. */
static void gradient_at(const char *text, const double *x, double *dx, int n)
{
    nnc_scan s;
    nnc_scan_init(&s, "test", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    nnc_ref y = g->output[0], v = g->node[0].out, d;
    CHECK_OK(nnc_gradients(g, 1, &y, NULL, 1, &v, &d, test_sink));
    g->n_output = 0;
    nnc_output(g, d, "dx");
    nnc_rval out = {0};
    CHECK_OK(nnc_eval(g, (const void *const[]){x}, 1, &out, test_sink));
    for (int i = 0; i < n && out.f; i++)
        dx[i] = out.f[i];
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
}

/* The derivative of an op with one operand. */
static double slope(const char *op, const char *attributes, double x)
{
    char text[200];
    double dx = NAN;
    snprintf(text, sizeof text, "graph @k {\n%%x = input : f64[1]\n%%y = %s %%x %s\nreturn %%y\n}",
        op, attributes);
    gradient_at(text, &x, &dx, 1);
    return dx;
}

/* Norms and deviations, written out: of zeros and of equal numbers they have gradient 0, other roots an infinite one. */
TEST(norms_of_zeros)
{
    static const struct {
        const char *body;
        double x, dx;
    } at[] = {
        {"%q = mul %x, %x\n%s = reduce_sum %q {axes=[0], keepdims=0}\n%y = sqrt %s", 0, 0},
        {"%a = abs %x\n%e = constant : f64[] = [3]\n%q = pow %a, %e\n%s = reduce_sum %q {axes=[0], "
         "keepdims=0}\n%r = constant : f64[] = [0.25]\n%y = pow %s, %r",
            0, 0},
        {"%m = reduce_mean %x {axes=[0], keepdims=1}\n%d = sub %x, %m\n%q = square %d\n%s = "
         "reduce_sum %q {axes=[0], keepdims=0}\n%n = constant : f64[] = [2]\n%v = div %s, %n\n%y = "
         "sqrt %v",
            5, 0},
        {"%a = square %x\n%b = mul %x, %x\n%s = add %a, %b\n%y = sqrt %s", 0, 0},
        {"%a = reduce_sum %x {axes=[0], keepdims=0}\n%p = square %a\n%b = square %x\n%s = mul %p, "
         "%b\n%y = sqrt %s",
            0, 0},
        {"%q = square %x\n%y = sqrt %q", -3, -1},
        {"%y = sqrt %x", 0, INFINITY},
    };
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        char text[400];
        double x[2] = {at[i].x, at[i].x}, dx[2] = {NAN, NAN};
        snprintf(text, sizeof text, "graph @norm {\n%%x = input : f64[2]\n%s\nreturn %%y\n}",
            at[i].body);
        gradient_at(text, x, dx, 2);
        for (int k = 0; k < 2; k++)
            if (!(dx[k] == at[i].dx))
                test_fail(__FILE__, __LINE__, "%s at %g: %g", at[i].body, x[k], dx[k]);
    }
}

/* The gradient of a batch norm by the statistics of its batch takes two sums a channel, beside the mean and the variance. */
TEST(batch_statistics_take_two_sums)
{
    const char *text = NULL;
    int sums = 0;
    for (size_t i = 0; i < NNC_COUNT(graphs); i++)
        text = strstr(graphs[i], "@batch_statistics") ? graphs[i] : text;
    nnc_scan s;
    nnc_scan_init(&s, "test", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    nnc_ref y = g->output[0], x[] = {g->node[0].out, g->node[1].out, g->node[2].out}, d[3];
    CHECK_OK(nnc_gradients(g, 1, &y, NULL, 3, x, d, test_sink));
    for (int i = 0; i < 3; i++)
        nnc_output(g, d[i], "d");
    CHECK_OK(nnc_graph_tidy(g));
    for (uint32_t i = 0; i < g->n_node; i++)
        sums += nnc_op_class((nnc_op)g->node[i].op) == CL_reduce;
    CHECK_INT(sums, 4);
    nnc_graph_destroy(g);
}

TEST(kinks_are_those_of_pytorch)
{
    static const struct {
        const char *op;
        double x, dx;
    } kinks[] = {{"relu", 0, 0}, {"relu6", 6, 0}, {"relu6", 0, 0}, {"abs", 0, 0},
        {"leaky_relu", 0, 0.01}, {"softsign", 0, 1}, {"relu", NAN, 1}, {"hardswish", -3, 0},
        {"hardswish", 3, 1}, {"hardsigmoid", -3, 0}, {"hardsigmoid", 3, 0}, {"elu", 0, 1},
        {"selu", 0, 1.7580993408473766}};
    for (size_t i = 0; i < NNC_COUNT(kinks); i++)
        CHECK_NEAR(slope(kinks[i].op, "", kinks[i].x), kinks[i].dx, 1e-12);
    CHECK_NEAR(slope("elu", "{alpha=0.5}", 0), 0.5, 1e-12);
    CHECK_NEAR(slope("clip", "{lo=-1, hi=2}", -1), 1, 0);
    CHECK_NEAR(slope("clip", "{lo=-1, hi=2}", 2), 1, 0);
    static const double equal[] = {3, 1, 3, 3};
    double dx[4];
    gradient_at("graph @m {\n%x = input : f64[1,1,4]\n%y = maxpool %x {kernel=[4]}\nreturn %y\n}",
        equal, dx, 4);
    CHECK(dx[0] == 1 && dx[1] == 0 && dx[2] == 0 && dx[3] == 0);
    gradient_at("graph @m {\n%x = input : f64[4]\n%y = reduce_max %x {axes=[0]}\nreturn %y\n}",
        equal, dx, 4);
    CHECK_NEAR(dx[2], 1.0 / 3, 1e-15);
    CHECK(dx[1] == 0);
}

/* Of two tensors that are equal each gets half; a number gets nothing. */
TEST(ties_of_two_operands)
{
    static const double x[] = {3, NAN, 2, 4}, half[] = {0.5, 1, 0, 1}, all[] = {1, 0, 0, 1};
    double dx[4];
    gradient_at(
        "graph @m {\n%x = input : f64[4]\n%c = constant : f64[4] = [3, 3, 3, 3.5]\n%y = max "
        "%x, %c\nreturn %y\n}",
        x, dx, 4);
    for (int i = 0; i < 4; i++)
        CHECK(dx[i] == half[i]);
    gradient_at("graph @m {\n%x = input : f64[4]\n%c = constant : f64[] = [3]\n%y = max %c, "
                "%x\nreturn %y\n}",
        x, dx, 4);
    for (int i = 0; i < 4; i++)
        CHECK(dx[i] == all[i]);
}

/* The value of an op with one operand; NAN where it has none. */
static double value_at(const char *op, double x)
{
    char text[200];
    snprintf(
        text, sizeof text, "graph @k {\n%%x = input : f64[1]\n%%y = %s %%x\nreturn %%y\n}", op);
    nnc_scan s;
    nnc_scan_init(&s, "test", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    nnc_rval out = {0};
    const void *in[] = {&x};
    CHECK(g != NULL);
    CHECK_OK(nnc_eval(g, in, 1, &out, test_sink));
    double y = out.f ? out.f[0] : NAN;
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
    return y;
}

static bool between(double v, double a, double b)
{
    const double near = 1e-6 * (1 + fabs(a) + fabs(b));
    return v >= fmin(a, b) - near && v <= fmax(a, b) + near;
}

/* Where a function has one derivative, that is it; at a kink, one between those of both sides. Zeros, ties with the constants of
 * lowerings, and places where one piece of a function overflows and another is taken. */
TEST(derivatives_lie_between_those_of_both_sides)
{
    static const double at[] = {
        0, -0.0, 1, -1, 0.5, -0.5, 3, -3, 6, 1e-30, -1e-30, 50, -50, 800, -800, 1e5};
    int checked = 0;
    for (int op = 0; op < OP__COUNT; op++) {
        bool missing;
        if (nnc_ops[op].n_min != 1 || nnc_ops[op].n_max != 1 ||
            !nnc_has_gradient((nnc_op)op, &missing) || op == OP_cast ||
            (nnc_op_class((nnc_op)op) != CL_ewise && nnc_op_class((nnc_op)op) != CL_ecomp))
            continue;
        for (size_t i = 0; i < NNC_COUNT(at); i++) {
            const char *name = nnc_ops[op].name;
            const double h = 1e-7 * (1 + fabs(at[i])), y = value_at(name, at[i]);
            const double up = (value_at(name, at[i] + h) - y) / h,
                         down = (y - value_at(name, at[i] - h)) / h;
            const double dx = slope(name, "", at[i]);
            if (!isfinite(up) || !isfinite(down) || fabs(up) > 1e6 || fabs(down) > 1e6)
                continue;
            checked++;
            if (!between(dx, up, down))
                test_fail(__FILE__, __LINE__, "%s'(%g) is %.9g; from both sides %.9g, %.9g", name,
                    at[i], dx, down, up);
        }
    }
    CHECK(checked > 300);
}

TEST(only_what_is_needed)
{
    static const char text[] = "graph @n {\n%x = input : f64[2,3]\n%w = input : f64[4,3]\n%y = "
                               "linear %x, %w\n%z = input : f64[3]\n"
                               "return %y\n}";
    nnc_scan s;
    nnc_scan_init(&s, "test", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    nnc_ref y = g->output[0], x[2] = {g->node[1].out, g->node[3].out}, dx[2];
    uint32_t before = g->n_node;
    CHECK_OK(nnc_gradients(g, 1, &y, NULL, 2, x, dx, test_sink));
    CHECK(dx[0] != NNC_NONE && dx[1] == NNC_NONE);
    for (uint32_t i = before; i < g->n_node; i++) /* dy^T x, and no gradient of x */
        CHECK(g->node[i].op != OP_matmul || nnc_attr_int(&g->node[i], AT_transpose_a, 0));
    CHECK_STR(g->node[g->n_node - 1].origin, "/backward");
    nnc_graph_destroy(g);
}

/* The graph of a text with the gradients of its first two nodes; *before: nodes without them. */
static nnc_graph *with_gradients(const char *text, uint32_t *before)
{
    nnc_scan s;
    nnc_scan_init(&s, "test", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    nnc_ref y = g->output[0], x[2] = {g->node[0].out, g->node[1].out}, dx[2];
    *before = g->n_node;
    CHECK_OK(nnc_gradients(g, 1, &y, NULL, 2, x, dx, test_sink));
    return g;
}

/* Zeros of an unused result are on its participant's device, not all on device 0. */
TEST(unused_results_of_collectives)
{
    uint32_t before;
    nnc_graph *g = with_gradients("graph @c {\n%x = input : f64[4] device 0\n"
                                  "%z = input : f64[4] device 1\n%p = neg %x device 0\n"
                                  "%q = neg %z device 1\n%a, %b = allreduce %p, %q\n"
                                  "%y = neg %a device 0\nreturn %y\n}",
        &before);
    int n = 0;
    for (uint32_t i = before; i < g->n_node; i++)
        for (int k = 0; g->node[i].op == OP_allreduce && k < g->node[i].n_in; k++, n++)
            CHECK_INT(nnc_home(g, g->node[i].in[k]), k);
    CHECK_INT(n, 2);
    nnc_graph_destroy(g);
}

/* Both results are read on device 0, where their gradients are made; the gradient's participants are those of the collective. */
TEST(collectives_of_results_read_elsewhere)
{
    uint32_t before;
    nnc_graph *g = with_gradients("graph @c {\n%x = input : f64[4] device 0\n"
                                  "%z = input : f64[4] device 1\n%p = neg %x device 0\n"
                                  "%q = neg %z device 1\n%a, %b = reduce_scatter %p, %q {axis=0}\n"
                                  "%y = concat %b, %a {axis=0} device 0\nreturn %y\n}",
        &before);
    int n = 0;
    for (uint32_t i = before; i < g->n_node; i++)
        for (int k = 0; g->node[i].op == OP_allgather && k < g->node[i].n_in; k++, n++)
            CHECK_INT(nnc_home(g, g->node[i].out + (nnc_ref)k), k);
    CHECK_INT(n, 2);
    nnc_graph_destroy(g);
}

TEST(ops_without_a_derivative_are_listed)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"graph @l {\n%x = input : f32[4]\n%y = neg %x loc \"/layers/3\"\n"
                  "%i = constant : i64[4,1] = [0, 1, 3, 2]\n"
                  "%z = scatter_nd %y, %i, %x {reduction=mul} loc \"/layers/4\"\nreturn %z\n}",
                     "/layers/4: scatter_nd with a reduction other than add has no derivative"},
        {"graph @l {\n%x = input : f32[2,3,4]\n%w = input : f32[4,4]\n"
         "%y, %e = recurrent_grad %x, %x, %w loc \"/layers/3\"\nreturn %y\n}",
            "/layers/3: recurrent_grad has no derivative"}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_scan s;
        nnc_scan_init(&s, "test", cases[i].text, strlen(cases[i].text));
        nnc_graph *g = nnc_graph_parse(&s, test_sink);
        CHECK(g != NULL);
        nnc_ref y = g->output[0], x = g->node[0].out, dx;
        CHECK_INT(nnc_gradients(g, 1, &y, NULL, 1, &x, &dx, test_sink), NNC_E_MODEL);
        CHECK_DIAG(cases[i].says);
        nnc_graph_destroy(g);
    }
}

/* tests/onnx/recurrent_test.c -- LSTM, GRU and RNN whose steps are written out: the same as the op where both can, and the formulas of
 * what the op cannot. */
#include "writer.h"
#include <math.h>

enum { STEPS = 3, BATCH = 2, IN = 2, MOST = 64 };

typedef struct numbers {
    int n;
    double v[3][MOST]; /* of each output */
} numbers;

/* Evaluates a node with `gates` blocks of `hidden` rows; inputs beyond x, w and r by name: b, n (lengths), h, c, p. */
static numbers eval(
    const char *op, int gates, int hidden, int ways, const char *in, const char *attrs)
{
    static const float x[STEPS * BATCH * IN] = {
        0.5f, -1.25f, 2, 0.25f, -0.75f, 1.5f, 1, -2, 0.125f, 3, -1.5f, 0.625f};
    om m = {0};
    numbers r = {0};
    char dims[64];
    const int64_t lengths[BATCH] = {3, 2};
    om_input(&m, "x", OM_F32, "3 2 2");
#define FLOATS(name, scale, ...) \
    snprintf(dims, sizeof dims, __VA_ARGS__); \
    om_floats(&m, name, dims, scale);
    FLOATS("w", 0.15f, "%d %d %d", ways, gates * hidden, IN)
    FLOATS("r", 0.1f, "%d %d %d", ways, gates * hidden, hidden)
    FLOATS("b", 0.05f, "%d %d", ways, 2 * gates * hidden)
    FLOATS("h", 0.125f, "%d %d %d", ways, BATCH, hidden)
    FLOATS("c", 0.25f, "%d %d %d", ways, BATCH, hidden)
    FLOATS("p", 0.3f, "%d %d", ways, 3 * hidden)
    om_ints(&m, "long", BATCH, lengths);
    om_node(&m, "Cast", "long", "n", "to=6");
    om_node(&m, op, in, gates == 4 ? "y y_h y_c" : "y y_h", attrs);
    om_output(&m, "y");
    om_output(&m, "y_h");
    if (gates == 4)
        om_output(&m, "y_c");
    nnc_graph *g = om_parse(&m, NULL);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s %s: refused", op, attrs);
        nnc_sink_print(test_sink, stderr);
        return r;
    }
    nnc_rval out[3];
    CHECK_OK(nnc_eval(g, (const void *const[]){x}, 1, out, test_sink));
    for (r.n = 0; r.n < (gates == 4 ? 3 : 2); r.n++) {
        const int64_t n = nnc_type_numel(&out[r.n].type);
        for (int64_t i = 0; i < n && i < MOST; i++)
            r.v[r.n][i] = out[r.n].f[i];
        nnc_rval_free(&out[r.n]);
    }
    nnc_graph_destroy(g);
    return r;
}

static void same(const numbers *a, const numbers *b, const char *what)
{
    CHECK(a->n == b->n && a->n >= 2);
    for (int k = 0; k < a->n; k++)
        for (int i = 0; i < MOST; i++)
            if (fabs(a->v[k][i] - b->v[k][i]) > 1e-12) {
                test_fail(__FILE__, __LINE__, "%s: output %d at %d: %.17g and %.17g", what, k, i,
                    a->v[k][i], b->v[k][i]);
                return;
            }
}

/* A bound that nothing reaches changes nothing, but the steps are written out. */
TEST(written_out_as_the_op)
{
    static const struct {
        const char *op;
        int gates;
        const char *in, *attrs;
    } c[] = {{"LSTM", 4, "x w r b n h c", ""}, {"LSTM", 4, "x w r", ""},
        {"GRU", 3, "x w r b n h", "linear_before_reset=1"}, {"RNN", 1, "x w r b n h", ""},
        {"RNN", 1, "x w r b", ""}};
    for (size_t i = 0; i < NNC_COUNT(c); i++)
        for (int ways = 1; ways <= 2; ways++) {
            char attrs[2][128];
            for (int k = 0; k < 2; k++)
                snprintf(attrs[k], sizeof attrs[k], "hidden_size=3 direction='%s' %s %s",
                    ways == 2 ? "bidirectional" : "reverse", c[i].attrs, k ? "clip=100.0" : "");
            numbers a = eval(c[i].op, c[i].gates, 3, ways, c[i].in, attrs[0]);
            numbers b = eval(c[i].op, c[i].gates, 3, ways, c[i].in, attrs[1]);
            same(&a, &b, c[i].op);
        }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double bounded(double x, double clip)
{
    return clip > 0 ? fmax(-clip, fmin(clip, x)) : x;
}

/* What om_floats writes. */
static double number(int i, float scale)
{
    return (double)(scale * (float)(i % 7) * (i % 2 ? 1 : -1));
}

/* An LSTM of one unit with f = hard sigmoid, g = leaky relu, h = softsign, by the formulas of ONNX. */
static void one_unit(double clip, bool forget, bool peep, numbers *r)
{
    static const double x[STEPS][BATCH][IN] = {
        {{0.5, -1.25}, {2, 0.25}}, {{-0.75, 1.5}, {1, -2}}, {{0.125, 3}, {-1.5, 0.625}}};
    r->n = 3;
    for (int b = 0; b < BATCH; b++) {
        double h = 0, c = 0;
        for (int t = 0; t < STEPS; t++) {
            double a[4], p[3];
            for (int k = 0; k < 4; k++) /* i o f g */
                a[k] = x[t][b][0] * number(2 * k, 0.15f) + x[t][b][1] * number(2 * k + 1, 0.15f) +
                       h * number(k, 0.1f) + number(k, 0.05f) + number(4 + k, 0.05f);
            for (int k = 0; k < 3; k++)
                p[k] = peep ? number(k, 0.3f) : 0;
#define F(v) fmax(0, fmin(1, 0.25 * bounded(v, clip) + 0.375))
            double i = F(a[0] + p[0] * c), f = forget ? 1 - i : F(a[2] + p[2] * c);
            double g = bounded(a[3], clip);
            c = f * c + i * (g > 0 ? g : 0.125 * g);
            double o = F(a[1] + p[1] * c), s = bounded(c, clip);
            h = o * s / (1 + fabs(s));
            r->v[0][t * BATCH + b] = h;
        }
        r->v[1][b] = h;
        r->v[2][b] = c;
    }
}

TEST(lstm_by_its_formulas)
{
#define ACTS \
    "activations=['HardSigmoid','LeakyRelu','Softsign'] " \
    "activation_alpha=[0.25,0.125] activation_beta=[0.375] "
    static const struct {
        double clip;
        bool forget, peep;
        const char *attrs;
    } c[] = {{0, false, false, ACTS}, {0.1, false, false, ACTS "clip=0.1"},
        {0, true, false, ACTS "input_forget=1"}, {0, false, true, ACTS},
        {0.2, true, true, ACTS "clip=0.2 input_forget=1"}};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        char attrs[256];
        numbers want = {0};
        snprintf(attrs, sizeof attrs, "hidden_size=1 %s", c[i].attrs);
        one_unit(c[i].clip ? (double)(float)c[i].clip : 0, c[i].forget, c[i].peep, &want);
        numbers got = eval("LSTM", 4, 1, 1, c[i].peep ? "x w r b - - - p" : "x w r b", attrs);
        same(&got, &want, attrs);
    }
}

/* x as an RNN's state after one step, through the activation. */
static double rnn_of(const char *attrs, int unit)
{
    char all[160];
    snprintf(all, sizeof all, "hidden_size=2 %s", attrs);
    numbers r = eval("RNN", 1, 2, 1, "x w r", all);
    return r.v[0][unit];
}

/* The first row of x is (0.5, -1.25), that of w (0, 0.15), (-0.3, 0.45): the units get -0.1875 and -0.7125. */
TEST(activations_of_rnn)
{
    const double a = -1.25 * number(1, 0.15f), b = 0.5 * number(2, 0.15f) - 1.25 * number(3, 0.15f);
    CHECK_NEAR(rnn_of("", 0), tanh(a), 1e-12);
    CHECK_NEAR(rnn_of("activations=['Relu']", 1), 0, 1e-12);
    CHECK_NEAR(rnn_of("activations=['Sigmoid']", 1), sigmoid(b), 1e-12);
    CHECK_NEAR(rnn_of("activations=['Softplus']", 0), log1p(exp(a)), 1e-12);
    CHECK_NEAR(rnn_of("activations=['Elu'] activation_alpha=[0.5]", 1), 0.5 * expm1(b), 1e-12);
    CHECK_NEAR(rnn_of("activations=['Affine'] activation_alpha=[2.0] activation_beta=[0.25]", 0),
        2 * a + 0.25, 1e-12);
    CHECK_NEAR(rnn_of("activations=['ScaledTanh'] activation_alpha=[1.5] activation_beta=[0.5]", 1),
        1.5 * tanh(0.5 * b), 1e-12);
    CHECK_NEAR(rnn_of("activations=['ThresholdedRelu'] activation_alpha=[-0.5]", 0), a, 1e-12);
    CHECK_NEAR(rnn_of("activations=['ThresholdedRelu'] activation_alpha=[-0.5]", 1), 0, 1e-12);
}

TEST(activations_that_are_refused)
{
    static const struct {
        const char *attrs, *want;
    } c[] = {{"activations=['Cube']", "the activations `Cube` are unsupported"},
        {"activations=['Affine']", "Affine needs activation_alpha"},
        {"activations=['Tanh','Tanh']", "it has more activations than it needs"},
        {"activations=['Tanh'] activation_alpha=[0.5]",
            "activation_alpha has 1 numbers for 0 activations"}};
    for (size_t i = 0; i < NNC_COUNT(c); i++) {
        om m = {0};
        om_input(&m, "x", OM_F32, "3 2 2");
        om_floats(&m, "w", "1 2 2", 0.5f);
        om_floats(&m, "r", "1 2 2", 0.5f);
        om_node(&m, "RNN", "x w r", "y", c[i].attrs);
        om_output(&m, "y");
        nnc_sink_clear(test_sink);
        CHECK(!om_parse(&m, NULL));
        CHECK_DIAG(c[i].want);
    }
}

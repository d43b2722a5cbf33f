/* api/calibrate_nets.c -- the nets that nnc calibrate measures, as graph text: small ones whose layers follow each other as those of the
 * models in models/ do, so that caches hold what they hold there. Each device has a copy with an input of its own. */
#include "api/calibrate.h"

/* A graph that grows: `at` is the current value, of channels c and pixels h x h (or of n rows and c columns). */
struct cal_writer {
    nnc_text *t;
    int value, device, n, c, h, at;
};
typedef struct cal_writer writer;

static int next(writer *w)
{
    return ++w->value;
}

/* The end of a node's line. */
static void end_node(const writer *w, const char *layer)
{
    nnc_printf(w->t, " device %d loc \"/%s\"\n", w->device, layer);
}

/* Weights in shift - scale .. shift + scale. */
static int param(writer *w, const char *dims, double scale, double shift)
{
    const int v = next(w);
    nnc_printf(w->t, "  %%%d = param : f32[%s] = gen(\"w%d\", seed=1, scale=%g, shift=%g)\n", v,
        dims, v, scale, shift);
    return v;
}

static void unary(writer *w, const char *op, const char *attrs)
{
    const int y = next(w);
    nnc_printf(w->t, "  %%%d = %s %%%d%s", y, op, w->at, attrs);
    end_node(w, op);
    w->at = y;
}

static void input(writer *w, int channels, bool picture)
{
    w->at = next(w);
    w->c = channels;
    nnc_printf(w->t, "  %%%d = input : f32[%d,%d", w->at, w->n, channels);
    if (picture)
        nnc_printf(w->t, ",%d,%d", w->h, w->h);
    nnc_puts(w->t, "]\n");
}

static void conv(writer *w, int out, int kernel, int stride, bool depthwise)
{
    char dims[64], name[24];
    const int pad = kernel / 2, groups = depthwise ? w->c : 1;
    nnc_snprintf(dims, sizeof dims, "%d,%d,%d,%d", out, w->c / groups, kernel, kernel);
    const int wei = param(w, dims, 0.1, 0), y = next(w);
    nnc_printf(w->t, "  %%%d = conv %%%d, %%%d {strides=[%d,%d], pads=[%d,%d,%d,%d], groups=%d}", y,
        w->at, wei, stride, stride, pad, pad, pad, pad, groups);
    nnc_snprintf(name, sizeof name, "conv%d", y);
    end_node(w, name);
    w->at = y;
    w->c = out;
    w->h = (w->h + 2 * pad - kernel) / stride + 1;
}

static void norm(writer *w)
{
    char dims[16];
    nnc_snprintf(dims, sizeof dims, "%d", w->c);
    const int g = param(w, dims, 0.1, 1), b = param(w, dims, 0.1, 0), m = param(w, dims, 0.1, 0),
              v = param(w, dims, 0.1, 1), y = next(w);
    nnc_printf(w->t, "  %%%d = batchnorm %%%d, %%%d, %%%d, %%%d, %%%d", y, w->at, g, b, m, v);
    end_node(w, "norm");
    w->at = y;
}

static void conv_norm(writer *w, int out, int kernel, int stride, const char *then)
{
    conv(w, out, kernel, stride, false);
    norm(w);
    if (then)
        unary(w, then, "");
}

static void add(writer *w, int other)
{
    const int y = next(w);
    nnc_printf(w->t, "  %%%d = add %%%d, %%%d", y, w->at, other);
    end_node(w, "add");
    w->at = y;
}

static void linear(writer *w, int out)
{
    char dims[32];
    nnc_snprintf(dims, sizeof dims, "%d,%d", out, w->c);
    const int wei = param(w, dims, 0.1, 0), y = next(w);
    nnc_printf(w->t, "  %%%d = linear %%%d, %%%d", y, w->at, wei);
    end_node(w, "linear");
    w->at = y;
    w->c = out;
}

/* Pixels to one column of features. */
static void flatten(writer *w, bool average)
{
    const int y = next(w);
    const int64_t all = average ? w->c : (int64_t)w->c * w->h * w->h;
    if (average)
        unary(w, "global_avgpool", "");
    nnc_printf(w->t, "  %%%d = reshape %%%d {shape=[%d,%lld]}", y, w->at, w->n, (long long)all);
    end_node(w, "flatten");
    w->at = y;
    w->c = (int)all;
}

/* What classifiers end in. */
static void classify(writer *w)
{
    linear(w, 10);
    unary(w, "softmax", " {axis=1}");
}

/* ---- the nets ------------------------------------------------------------------------------------------- */

/* Convolutions 3x3, poolings, a classifier: as VGG's. */
static void plain(writer *w, const cal_net *net)
{
    input(w, 3, true);
    for (int k = 0; k < 3; k++) {
        conv(w, net->c << k, 3, 1, false);
        unary(w, "relu", "");
        conv(w, net->c << k, 3, 1, false);
        unary(w, "relu", "");
        unary(w, "maxpool", " {kernel=[2,2], strides=[2,2]}");
        w->h /= 2;
    }
    flatten(w, false);
    linear(w, 16 * net->c);
    unary(w, "relu", "");
    classify(w);
}

/* Bottlenecks of 1x1, 3x3, 1x1 with batch norms and sums: as ResNet's. */
static void residual(writer *w, const cal_net *net)
{
    input(w, 3, true);
    conv_norm(w, net->c, 7, 2, "relu");
    unary(w, "maxpool", " {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}");
    w->h = (w->h + 2 - 3) / 2 + 1;
    for (int k = 0; k < 3; k++) {
        const int inner = net->c << k, stride = k ? 2 : 1, x = w->at, c = w->c, h = w->h;
        conv_norm(w, 4 * inner, 1, stride, NULL);
        const int beside = w->at;
        w->at = x;
        w->c = c;
        w->h = h;
        conv_norm(w, inner, 1, 1, "relu");
        conv_norm(w, inner, 3, stride, "relu");
        conv_norm(w, 4 * inner, 1, 1, NULL);
        add(w, beside);
        unary(w, "relu", "");
    }
    flatten(w, true);
    classify(w);
}

/* 1x1, depthwise 3x3, 1x1 with a sum: as MobileNet's and EfficientNet's. */
static void inverted(writer *w, const cal_net *net)
{
    input(w, 3, true);
    conv_norm(w, net->c, 3, 2, "relu6");
    for (int k = 0; k < 4; k++) {
        const int x = w->at, c = w->c;
        const int stride = k % 2 ? 2 : 1;
        conv_norm(w, 6 * c, 1, 1, "relu6");
        conv(w, 6 * c, 3, stride, true);
        norm(w);
        unary(w, "relu6", "");
        conv_norm(w, stride == 1 ? c : 2 * c, 1, 1, NULL);
        if (stride == 1)
            add(w, x);
    }
    flatten(w, true);
    classify(w);
}

/* A bottleneck of many channels and few pixels, as ResNet's last: its weights decide. */
static void wide(writer *w, const cal_net *net)
{
    input(w, net->c, true);
    const int x = w->at;
    conv_norm(w, net->c / 4, 1, 1, "relu");
    conv_norm(w, net->c / 4, 3, 1, "relu");
    conv_norm(w, net->c, 1, 1, NULL);
    add(w, x);
    unary(w, "relu", "");
    flatten(w, true);
    classify(w);
}

/* Linear layers with activations and sums: as a transformer's. */
static void dense(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    for (int k = 0; k < 3; k++) {
        const int x = w->at;
        linear(w, 4 * net->c);
        unary(w, k % 2 ? "gelu" : "relu", "");
        linear(w, net->c);
        add(w, x);
        unary(w, "softmax", " {axis=1}");
    }
    classify(w);
}

/* Two LSTM layers over h sequences of n steps. */
static void recurrent(writer *w, const cal_net *net)
{
    const int length = net->n, rows = net->h, hidden = net->c;
    char dims[32];
    w->n = length * rows;
    input(w, hidden, false);
    for (int k = 0; k < 2; k++) {
        linear(w, 4 * hidden);
        const int x = next(w);
        nnc_printf(w->t, "  %%%d = reshape %%%d {shape=[%d,%d,%d]}", x, w->at, length, rows, w->c);
        end_node(w, "lstm");
        nnc_snprintf(dims, sizeof dims, "%d,%d", hidden, 4 * hidden);
        const int r = param(w, dims, 0.06, 0), zero = next(w), y = next(w), c = next(w),
                  flat = next(w);
        nnc_printf(w->t, "  %%%d = constant : f32[%d,%d] = splat 0\n", zero, rows, hidden);
        nnc_printf(w->t, "  %%%d, %%%d = lstm %%%d, %%%d, %%%d, %%%d", y, c, x, r, zero, zero);
        end_node(w, "lstm");
        nnc_printf(w->t, "  %%%d = reshape %%%d {shape=[%d,%d]}", flat, y, w->n, hidden);
        end_node(w, "lstm");
        w->at = flat;
        w->c = hidden;
    }
    classify(w);
}

/* Elementwise ops on tensors of many sizes, beyond the caches: squares, each of its own input. */
static void stream(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    const int y = next(w);
    nnc_printf(w->t, "  %%%d = mul %%%d, %%%d", y, w->at, w->at);
    end_node(w, "square");
    w->at = y;
}

/* The last one, `stream`, shows the memory's bandwidth. */
const cal_net cal_nets[] = {
    {"plain", plain, 1, 16, 32, true},
    {"plain", plain, 4, 32, 32, true},
    {"plain", plain, 2, 64, 64, false},
    {"residual", residual, 1, 16, 64, true},
    {"residual", residual, 4, 32, 64, true},
    {"residual", residual, 2, 64, 128, false},
    {"inverted", inverted, 1, 16, 32, true},
    {"inverted", inverted, 4, 24, 64, true},
    {"wide", wide, 2, 256, 4, true},
    {"wide", wide, 2, 1024, 4, true},
    {"wide", wide, 2, 2048, 2, true},
    {"dense", dense, 1, 256, 0, true},
    {"dense", dense, 32, 256, 0, true},
    {"dense", dense, 128, 512, 0, false},
    {"recurrent", recurrent, 16, 64, 1, true},
    {"recurrent", recurrent, 16, 128, 8, true},
    {"recurrent", recurrent, 32, 256, 4, false},
    {"stream", stream, 64, 262144, 0, false},
};
const int cal_n_nets = NNC_COUNT(cal_nets);

void cal_net_write(nnc_text *t, const cal_net *net, int devices)
{
    int out[NNC_MAX_DEVICES] = {0};
    writer w = {.t = t};
    nnc_puts(t, "graph @calibrate {\n");
    for (int d = 0; d < devices; d++) {
        w.device = d;
        w.n = net->n;
        w.c = net->c;
        w.h = net->h;
        net->body(&w, net);
        out[d] = w.at;
    }
    nnc_puts(t, "  return ");
    for (int d = 0; d < devices; d++)
        nnc_printf(t, "%s%%%d as \"y%d\"", d ? ", " : "", out[d], d);
    nnc_puts(t, "\n}\n");
}

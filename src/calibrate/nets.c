/* calibrate/nets.c -- the nets that nnc calibrate measures, as graph text: small ones whose layers follow each other as those of the
 * models in models/ do, so that caches hold what they hold there. Each device has a copy with an input of its own. */
#include "calibrate/measure.h"
#include "session/session.h"

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

static void convs(writer *w, const cal_net *net)
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
}

/* Convolutions 3x3, poolings, a classifier: as VGG's. */
static void plain(writer *w, const cal_net *net)
{
    convs(w, net);
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

/* ---- GPUs ----------------------------------------------------------------------------------------------- */

/* A linear layer with its bias, of any value whose last dimension has `in` elements. */
static void linear_of(writer *w, int in, int out)
{
    char dims[32];
    nnc_snprintf(dims, sizeof dims, "%d,%d", out, in);
    const int wei = param(w, dims, 0.05, 0);
    nnc_snprintf(dims, sizeof dims, "%d", out);
    const int bias = param(w, dims, 0.05, 0), y = next(w);
    nnc_printf(w->t, "  %%%d = linear %%%d, %%%d, %%%d", y, w->at, wei, bias);
    end_node(w, "linear");
    w->at = y;
}

static void layernorm(writer *w)
{
    char dims[16];
    nnc_snprintf(dims, sizeof dims, "%d", w->c);
    const int g = param(w, dims, 0.1, 1), b = param(w, dims, 0.1, 0), y = next(w);
    nnc_printf(w->t, "  %%%d = layernorm %%%d, %%%d, %%%d", y, w->at, g, b);
    end_node(w, "layernorm");
    w->at = y;
}

/* Rows to [batch, heads, sequence, 64]. */
static void heads(writer *w, int batch, int sequence, int width)
{
    char attrs[96];
    nnc_snprintf(
        attrs, sizeof attrs, " {shape=[%d,%d,%d,%d]}", batch, sequence, w->c / width, width);
    unary(w, "reshape", attrs);
    unary(w, "transpose", " {perm=[0,2,1,3]}");
}

static void product(writer *w, int x, int y, const char *attrs)
{
    const int z = next(w);
    nnc_printf(w->t, "  %%%d = matmul %%%d, %%%d%s", z, x, y, attrs);
    end_node(w, "matmul");
    w->at = z;
}

/* A transformer's layer on n tokens, in sequences of up to 128. */
static void encoder(writer *w, const cal_net *net)
{
    enum { SEQUENCE = 128, WIDTH = 64 };
    const int sequence = net->n < SEQUENCE ? net->n : SEQUENCE, batch = net->n / sequence;
    int part[3];
    char attrs[64];
    input(w, net->c, false);
    const int x = w->at;
    for (int k = 0; k < 3; k++) {
        w->at = x;
        linear_of(w, w->c, w->c);
        heads(w, batch, sequence, WIDTH);
        part[k] = w->at;
    }
    product(w, part[0], part[1], " {transpose_b=1}");
    const int scale = next(w), scores = w->at, y = next(w);
    nnc_printf(w->t, "  %%%d = constant : f32[] = [0.125]\n", scale);
    nnc_printf(w->t, "  %%%d = mul %%%d, %%%d", y, scores, scale);
    end_node(w, "scale");
    w->at = y;
    unary(w, "softmax", " {axis=3}");
    product(w, w->at, part[2], "");
    unary(w, "transpose", " {perm=[0,2,1,3]}");
    nnc_snprintf(attrs, sizeof attrs, " {shape=[%d,%d]}", net->n, w->c);
    unary(w, "reshape", attrs);
    linear_of(w, w->c, w->c);
    add(w, x);
    layernorm(w);
    const int inner = w->at;
    linear_of(w, w->c, 4 * w->c);
    unary(w, "gelu", "");
    linear_of(w, 4 * w->c, w->c);
    add(w, inner);
    layernorm(w);
}

/* The same as a classifier of tokens, which can be trained. */
static void transformer(writer *w, const cal_net *net)
{
    encoder(w, net);
    classify(w);
}

/* 1x1, depthwise 5x5, a gate from the channels' means, 1x1: as EfficientNet's. */
static void gated(writer *w, const cal_net *net)
{
    input(w, net->c, true);
    for (int k = 0; k < 2; k++) {
        const int x = w->at, c = w->c;
        conv_norm(w, 6 * c, 1, 1, "silu");
        conv(w, 6 * c, k ? 3 : 5, 1, true);
        norm(w);
        unary(w, "silu", "");
        const int wide = w->at, h = w->h;
        unary(w, "global_avgpool", "");
        w->h = 1;
        conv(w, c / 4, 1, 1, false);
        unary(w, "silu", "");
        conv(w, 6 * c, 1, 1, false);
        unary(w, "sigmoid", "");
        const int y = next(w);
        nnc_printf(w->t, "  %%%d = mul %%%d, %%%d", y, wide, w->at);
        end_node(w, "gate");
        w->at = y;
        w->h = h;
        conv_norm(w, c, 1, 1, NULL);
        add(w, x);
    }
    flatten(w, true);
}

/* A classifier's layer: its weights decide. */
static void wide_linear(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    linear(w, net->c / 4);
    unary(w, "relu", "");
}

/* One op on rows of a tensor of its own. */
static void softmaxes(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    unary(w, "softmax", " {axis=1}");
}

static void layernorms(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    layernorm(w);
}

static void sums(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    unary(w, "reduce_sum", " {axes=[1]}");
}

static void transposes(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    unary(w, "transpose", " {perm=[1,0]}");
}

/* A chain of the smallest commands, each of which waits for the one before it: h of them. */
static void chain(writer *w, const cal_net *net)
{
    input(w, net->c, false);
    for (int k = 0; k < net->h; k++)
        unary(w, k % 2 ? "abs" : "neg", "");
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

const cal_net cal_gpu_chain = {"chain", chain, 1, 1024, 64, false};

static const cal_net tiny[] = {{"plain", plain, 1, 8, 32, false},
    {"residual", residual, 1, 16, 64, false}, {"inverted", inverted, 1, 8, 32, false},
    {"gated", gated, 1, 8, 8, false}, {"encoder", encoder, 16, 64, 0, false}};
static const cal_net single[] = {{"convs", convs, 1, 64, 112, false},
    {"linear", wide_linear, 1, 8192, 0, false}, {"residual", residual, 1, 64, 224, false},
    {"inverted", inverted, 1, 32, 224, false}, {"gated", gated, 1, 112, 14, false},
    {"wide", wide, 1, 2048, 7, false}, {"encoder", encoder, 128, 768, 0, false}};
static const cal_net batch[] = {{"convs", convs, 32, 64, 112, false},
    {"linear", wide_linear, 32, 8192, 0, false}, {"residual", residual, 32, 64, 224, false},
    {"inverted", inverted, 32, 32, 224, false}, {"gated", gated, 32, 112, 14, false},
    {"wide", wide, 32, 2048, 7, false}, {"encoder", encoder, 4096, 768, 0, false}};
/* Between those. */
static const cal_net some[] = {{"convs", convs, 6, 64, 112, false},
    {"linear", wide_linear, 6, 8192, 0, false}, {"residual", residual, 6, 64, 224, false},
    {"inverted", inverted, 6, 32, 224, false}, {"gated", gated, 6, 112, 14, false},
    {"wide", wide, 6, 2048, 7, false}, {"encoder", encoder, 768, 768, 0, false}};
static const cal_net rows_tiny[] = {{"stream", stream, 16, 256, 0, false},
    {"softmax", softmaxes, 16, 256, 0, false}, {"layernorm", layernorms, 16, 256, 0, false},
    {"sum", sums, 16, 256, 0, false}, {"transpose", transposes, 16, 256, 0, false}};
static const cal_net rows_single[] = {{"stream", stream, 1024, 1024, 0, false},
    {"softmax", softmaxes, 1024, 1024, 0, false}, {"layernorm", layernorms, 1024, 1024, 0, false},
    {"sum", sums, 1024, 1024, 0, false}, {"transpose", transposes, 1024, 1024, 0, false}};
static const cal_net rows_batch[] = {{"stream", stream, 32768, 1024, 0, false},
    {"softmax", softmaxes, 16384, 1024, 0, false}, {"layernorm", layernorms, 16384, 1024, 0, false},
    {"sum", sums, 16384, 1024, 0, false}, {"transpose", transposes, 16384, 1024, 0, false}};
/* Training steps, each a program of its own. */
static const cal_net steps_tiny[] = {
    {"residual", residual, 2, 16, 64, true}, {"transformer", transformer, 16, 64, 0, true}};
static const cal_net steps_single[] = {
    {"residual", residual, 2, 64, 224, true}, {"transformer", transformer, 128, 768, 0, true}};
static const cal_net steps_batch[] = {
    {"residual", residual, 32, 64, 224, true}, {"transformer", transformer, 4096, 768, 0, true}};

const cal_net *cal_gpu_nets(int tier, cal_kind kind, int *n)
{
    static const struct {
        const cal_net *net;
        int n;
    } of[CAL_KINDS][CAL_TIERS] = {{{tiny, NNC_COUNT(tiny)}, {single, NNC_COUNT(single)},
                                      {batch, NNC_COUNT(batch)}, {some, NNC_COUNT(some)}},
        {{rows_tiny, NNC_COUNT(rows_tiny)}, {rows_single, NNC_COUNT(rows_single)},
            {rows_batch, NNC_COUNT(rows_batch)}, {NULL, 0}},
        {{steps_tiny, NNC_COUNT(steps_tiny)}, {steps_single, NNC_COUNT(steps_single)},
            {steps_batch, NNC_COUNT(steps_batch)}, {NULL, 0}}};
    *n = of[kind][tier].n;
    return of[kind][tier].net;
}

void cal_nets_write(nnc_text *t, const cal_net *net, int n)
{
    int out[CAL_NETS] = {0};
    writer w = {.t = t};
    nnc_puts(t, "graph @calibrate {\n");
    for (int i = 0; i < n && i < CAL_NETS; i++) {
        w.n = net[i].n;
        w.c = net[i].c;
        w.h = net[i].h;
        net[i].body(&w, &net[i]);
        out[i] = w.at;
    }
    nnc_puts(t, "  return ");
    for (int i = 0; i < n && i < CAL_NETS; i++)
        nnc_printf(t, "%s%%%d as \"y%d\"", i ? ", " : "", out[i], i);
    nnc_puts(t, "\n}\n");
}

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

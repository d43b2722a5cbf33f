/* calibrate/nets.c -- the nets that nnc calibrate measures (nets.def), beside each other in one model. Each has an input of its own. */
#include "calibrate/measure.h"

static const char *const blocks[] = {
#define BLOCK(...) #__VA_ARGS__,
#include "calibrate/nets.def"
};

/* The last one, `stream`, shows the memory's bandwidth. */
const cal_net cal_nets[] = {
    {"plain", CAL_picture, 1, 16, 32, true},
    {"plain", CAL_picture, 4, 32, 32, true},
    {"plain", CAL_picture, 2, 64, 64, true},
    {"residual", CAL_picture, 1, 16, 64, true},
    {"residual", CAL_picture, 4, 32, 64, true},
    {"residual", CAL_picture, 2, 64, 128, false},
    {"inverted", CAL_picture, 1, 16, 32, true},
    {"inverted", CAL_picture, 4, 24, 64, true},
    {"wide", CAL_channels, 2, 256, 4, true},
    {"wide", CAL_channels, 2, 1024, 4, true},
    {"wide", CAL_channels, 2, 2048, 2, true},
    {"resized", CAL_channels, 2, 64, 8, true},
    {"resized", CAL_channels, 2, 32, 32, false},
    {"dense", CAL_rows, 1, 256, 0, true},
    {"dense", CAL_rows, 32, 256, 0, true},
    {"dense", CAL_rows, 128, 512, 0, true},
    {"recurrent", CAL_sequences, 16, 64, 1, true},
    {"recurrent", CAL_sequences, 16, 128, 8, true},
    {"recurrent", CAL_sequences, 32, 256, 4, false},
    {"stream", CAL_rows, 64, 262144, 0, false},
};
const int cal_n_nets = NNC_COUNT(cal_nets);

const cal_net cal_gpu_chain = {"chain", CAL_rows, 1, 1024, 64, false};

static const cal_net tiny[] = {{"plain", CAL_picture, 1, 8, 32, false},
    {"residual", CAL_picture, 1, 16, 64, false}, {"inverted", CAL_picture, 1, 8, 32, false},
    {"gated", CAL_channels, 1, 8, 8, false}, {"encoder", CAL_tokens, 16, 64, 0, false}};
static const cal_net single[] = {{"convs", CAL_picture, 1, 64, 112, false},
    {"classifier", CAL_rows, 1, 8192, 0, false}, {"residual", CAL_picture, 1, 64, 224, false},
    {"inverted", CAL_picture, 1, 32, 224, false}, {"gated", CAL_channels, 1, 112, 14, false},
    {"wide", CAL_channels, 1, 2048, 7, false}, {"encoder", CAL_tokens, 128, 768, 0, false}};
static const cal_net batch[] = {{"convs", CAL_picture, 32, 64, 112, false},
    {"classifier", CAL_rows, 32, 8192, 0, false}, {"residual", CAL_picture, 32, 64, 224, false},
    {"inverted", CAL_picture, 32, 32, 224, false}, {"gated", CAL_channels, 32, 112, 14, false},
    {"wide", CAL_channels, 32, 2048, 7, false}, {"encoder", CAL_tokens, 4096, 768, 0, false}};
/* Between those. */
static const cal_net some[] = {{"convs", CAL_picture, 6, 64, 112, false},
    {"classifier", CAL_rows, 6, 8192, 0, false}, {"residual", CAL_picture, 6, 64, 224, false},
    {"inverted", CAL_picture, 6, 32, 224, false}, {"gated", CAL_channels, 6, 112, 14, false},
    {"wide", CAL_channels, 6, 2048, 7, false}, {"encoder", CAL_tokens, 768, 768, 0, false}};
static const cal_net rows_tiny[] = {{"stream", CAL_rows, 16, 256, 0, false},
    {"softmaxes", CAL_rows, 16, 256, 0, false}, {"layernorms", CAL_rows, 16, 256, 0, false},
    {"sums", CAL_rows, 16, 256, 0, false}, {"transposes", CAL_rows, 16, 256, 0, false}};
static const cal_net rows_single[] = {{"stream", CAL_rows, 1024, 1024, 0, false},
    {"softmaxes", CAL_rows, 1024, 1024, 0, false}, {"layernorms", CAL_rows, 1024, 1024, 0, false},
    {"sums", CAL_rows, 1024, 1024, 0, false}, {"transposes", CAL_rows, 1024, 1024, 0, false}};
static const cal_net rows_batch[] = {{"stream", CAL_rows, 32768, 1024, 0, false},
    {"softmaxes", CAL_rows, 16384, 1024, 0, false}, {"layernorms", CAL_rows, 16384, 1024, 0, false},
    {"sums", CAL_rows, 16384, 1024, 0, false}, {"transposes", CAL_rows, 16384, 1024, 0, false}};
/* Training steps, each a program of its own. */
static const cal_net steps_tiny[] = {
    {"residual", CAL_picture, 2, 16, 64, true}, {"transformer", CAL_tokens, 16, 64, 0, true}};
static const cal_net steps_single[] = {
    {"residual", CAL_picture, 2, 64, 224, true}, {"transformer", CAL_tokens, 128, 768, 0, true}};
static const cal_net steps_batch[] = {
    {"residual", CAL_picture, 32, 64, 224, true}, {"transformer", CAL_tokens, 4096, 768, 0, true}};

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

/* The shape of a net's input. */
static void put_shape(nnc_text *t, const cal_net *net)
{
    enum { SEQUENCE = 128 };
    const int tokens = net->n < SEQUENCE ? net->n : SEQUENCE;
    switch (net->input) {
    case CAL_picture: nnc_printf(t, "[%d, 3, %d, %d]", net->n, net->h, net->h); break;
    case CAL_channels: nnc_printf(t, "[%d, %d, %d, %d]", net->n, net->c, net->h, net->h); break;
    case CAL_rows: nnc_printf(t, "[%d, %d]", net->n, net->c); break;
    case CAL_sequences: nnc_printf(t, "[%d, %d, %d]", net->n, net->h, net->c); break;
    case CAL_tokens: nnc_printf(t, "[%d, %d, %d]", net->n / tokens, tokens, net->c); break;
    }
}

void cal_nets_write(nnc_text *t, const cal_net *net, int n, int devices)
{
    const int all = n * devices;
    const bool joined = devices > 1 && net->step; /* a step has one prediction */
    nnc_puts(t, "{\"name\": \"calibrate\", \"blocks\": {");
    for (size_t i = 0; i < NNC_COUNT(blocks); i++)
        nnc_printf(t, "%s%s", i ? ",\n" : "\n", blocks[i]);
    nnc_puts(t, "},\n\"inputs\": {");
    for (int i = 0; i < all; i++) {
        nnc_printf(t, "%s\"x%d\": ", i ? ", " : "", i);
        put_shape(t, &net[i % n]);
    }
    nnc_puts(t, "},\n\"layers\": [");
    for (int i = 0; i < all; i++) {
        const cal_net *of = &net[i % n];
        nnc_printf(t,
            "%s{\"op\": \"%s\", \"name\": \"y%d\", \"in\": \"x%d\", \"device\": %d, \"n\": %d, "
            "\"c\": %d, \"h\": %d}",
            i ? ",\n" : "\n", of->name, i, i, i / n, of->n, of->c, of->h);
    }
    nnc_puts(t, joined ? ",\n{\"op\": \"concat\", \"axis\": 0, \"device\": 0, \"in\": ["
                       : "],\n\"outputs\": [");
    for (int i = 0; i < all; i++)
        nnc_printf(t, "%s\"y%d\"", i ? ", " : "", i);
    nnc_puts(t, joined ? "]}]}\n" : "]}\n");
}

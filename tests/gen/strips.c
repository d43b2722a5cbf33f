/* tests/gen/strips.c -- random text graphs of convolutions channels last, of which the second is depthwise, as in an inverted residual. */
#include "gen.h"

typedef struct draw {
    uint64_t key, at;
    const char *type;
    int images;
} draw;

static int between(draw *d, int lo, int hi)
{
    return lo + (int)(nnc_rng_u32(d->key, d->at++) % (uint32_t)(hi - lo + 1));
}

typedef struct image {
    int channels, size[2]; /* height, width */
} image;

static void put_type(draw *d, nnc_text *t, const char *name, const image *x)
{
    nnc_printf(t, "%%%s = input : %s[%d,%d,%d,%d]{0,2,3,1}\n", name, d->type, d->images,
        x->channels, x->size[0], x->size[1]);
}

/* Convolution number i of %from to %ci, with its ops after it %yi. Returns false where the window does not fit. */
static bool put_conv(draw *d, nnc_text *t, const char *from, image *x, int i, int outputs, int most)
{
    static const char *const ops[] = {"relu", "silu", "neg", "relu6"};
    const bool depthwise = outputs == 0;
    int k[2], stride[2], dilation[2], pad[4];
    for (int a = 0; a < 2; a++) {
        k[a] = between(d, 1, most);
        stride[a] = most > 1 ? between(d, 1, 3) : 1;
        dilation[a] = between(d, 0, 3) ? 1 : 2;
        pad[a] = most > 1 ? between(d, 0, k[a] - 1) : 0;
        pad[a + 2] = most > 1 ? between(d, 0, k[a] - 1) : 0;
        const int room = x->size[a] + pad[a] + pad[a + 2] - dilation[a] * (k[a] - 1) - 1;
        if (room < 0)
            return false;
        x->size[a] = room / stride[a] + 1;
    }
    const int o = depthwise ? x->channels : outputs;
    nnc_printf(t, "%%w%d = input : %s[%d,%d,%d,%d]\n%%v%d = transpose %%w%d {perm=[3,2,0,1]}\n", i,
        d->type, k[0], k[1], depthwise ? 1 : x->channels, o, i, i);
    nnc_printf(t,
        "%%c%d = conv %%%s, %%v%d {strides=[%d,%d], pads=[%d,%d,%d,%d], dilations=[%d,%d], "
        "groups=%d}\n",
        i, from, i, stride[0], stride[1], pad[0], pad[1], pad[2], pad[3], dilation[0], dilation[1],
        depthwise ? x->channels : 1);
    x->channels = o;
    nnc_printf(t, "%%y%d = %s %%c%d\n", i, ops[between(d, 0, 3)], i);
    return true;
}

bool gen_strips(nnc_text *t, uint64_t seed)
{
    static const int outputs[] = {1, 3, 8, 16, 20, 32, 33, 64};
    draw d = {nnc_rng_key("strips", seed), 0, NULL, 0};
    d.type = between(&d, 0, 3) ? "f32" : "f64";
    d.images = between(&d, 1, 2);
    const image first = {between(&d, 2, 9), {between(&d, 3, 30), between(&d, 3, 19)}};
    image x = first;
    const int stem = between(&d, 0, 2) ? 1 : 3;
    int last = between(&d, 0, 2) ? 2 : 1;
    nnc_puts(t, "graph @t {\n");
    put_type(&d, t, "x", &x);
    bool ok = put_conv(&d, t, "x", &x, 0, outputs[between(&d, 1, 7)], stem) &&
              put_conv(&d, t, "y0", &x, 1, 0, 5);
    if (ok && last == 2)
        ok = put_conv(&d, t, "y1", &x, 2, outputs[between(&d, 0, 7)], 1);
    const bool residual =
        x.channels == first.channels && x.size[0] == first.size[0] && x.size[1] == first.size[1];
    if (ok && !residual && between(&d, 0, 1))
        put_type(&d, t, "z", &x);
    else if (!residual)
        last = -last;
    if (last > 0)
        nnc_printf(t, "%%y = add %%y%d, %%%s\nreturn %%y }", last, residual ? "x" : "z");
    else
        nnc_printf(t, "return %%y%d }", -last);
    return ok && x.size[0] > 1; /* rows to share */
}

/* tests/engines/drawn.c -- drawn convolutions, transposed convolutions and gradients of weights on the engine "onednn" against float64
 * loops: few channels, groups, windows whose extents, steps, distances and borders differ by dimension. */
#include "calls.h"
#include <stdlib.h>

typedef struct draws {
    uint64_t key, n;
} draws;

static int64_t below(draws *d, int n)
{
    return nnc_rng_u32(d->key, d->n++) % (uint32_t)n;
}

static void draw_window(nnc_call *c, draws *d)
{
    static const int64_t kernel[] = {1, 1, 2, 3, 3, 5}, stride[] = {1, 1, 1, 2, 3};
    const int64_t most = c->spatial == 3 ? 6 : 13;
    for (int i = 0; i < c->spatial; i++) {
        c->kernel[i] = kernel[below(d, 6)];
        c->stride[i] = stride[below(d, 5)];
        c->dilation[i] = 1 + (below(d, 5) == 0);
        const int64_t reach = (c->kernel[i] - 1) * c->dilation[i] + 1;
        c->pad_lo[i] = below(d, 2) * below(d, (int)reach);
        c->pad_hi[i] = below(d, 2) * below(d, (int)reach);
        const int64_t least =
            c->kind == CALL_conv_transpose ? 2 : nnc_max64(reach - c->pad_lo[i] - c->pad_hi[i], 1);
        c->src.dim[2 + i] = least + below(d, (int)nnc_max64(most - least, 1));
        c->wei.dim[2 + i] = c->kernel[i];
    }
    call_fix_dst(c);
}

static nnc_call draw(draws *d)
{
    static const int channels[] = {1, 2, 3, 8, 16, 17, 40};
    static const nnc_call_kind kinds[] = {CALL_conv, CALL_conv_transpose, CALL_conv_wgrad};
    const nnc_call_kind kind = kinds[below(d, 3)];
    const int64_t groups = below(d, 3) ? 1 : 1 + below(d, 5);
    const bool depthwise = groups > 1 && below(d, 2);
    const int64_t in = depthwise ? 1 : channels[below(d, 7)],
                  out = depthwise ? 1 : channels[below(d, 7)];
    nnc_call c =
        conv_call(1 + (int)below(d, 3), 1 + below(d, 3), groups * in, 1, groups * out, 1, 1, 0);
    c.groups = (int)groups;
    c.kind = (uint8_t)(kind == CALL_conv_transpose ? kind : CALL_conv);
    c.wei.dim[0] = kind == CALL_conv_transpose ? groups * in : groups * out;
    c.wei.dim[1] = kind == CALL_conv_transpose ? out : in;
    draw_window(&c, d);
    if (kind == CALL_conv_wgrad)
        call_wgrad(&c);
    else if (below(d, 2))
        call_bias(&c);
    call_dtype(&c, below(d, 2) ? DT_f32 : DT_bf16);
    if (below(d, 2))
        call_channels_last(&c);
    c.threads = 1 + (int)below(d, 2);
    return c;
}

static bool is_possible(const nnc_call *c)
{
    for (int i = 0; i < c->spatial; i++)
        if (c->src.dim[2 + i] < 1 || c->dst.dim[2 + i] < 1 || c->wei.dim[2 + i] < 1 ||
            c->dst.dim[2 + i] > 40)
            return false;
    return true;
}

static const char *describe(const nnc_call *c, uint64_t seed, nnc_text *t)
{
    static const char *const kind[] = {[CALL_conv] = "conv",
        [CALL_conv_transpose] = "conv_transpose",
        [CALL_conv_wgrad] = "conv_wgrad"};
    nnc_text_clear(t);
    nnc_printf(t, "case %llu, %s %s%s, %d threads, %lld groups:", (unsigned long long)seed,
        nnc_dtype_name((nnc_dtype)c->src.dtype), kind[c->kind],
        nnc_type_is_row_major(&c->src) ? "" : " channels last", c->threads, (long long)c->groups);
    const nnc_type *of[] = {&c->src, &c->wei, &c->dst};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < of[i]->rank; k++)
            nnc_printf(t, "%s%lld", k ? "x" : " ", (long long)of[i]->dim[k]);
    for (int i = 0; i < c->spatial; i++)
        nnc_printf(t, ", kernel %lld stride %lld dilation %lld pads %lld %lld",
            (long long)c->kernel[i], (long long)c->stride[i], (long long)c->dilation[i],
            (long long)c->pad_lo[i], (long long)c->pad_hi[i]);
    return nnc_text_str(t);
}

TEST(onednn_drawn_convolutions)
{
    const char *why, *cases = getenv("NNC_TEST_CASES");
    const nnc_engine *e = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    NNC_LOCAL(nnc_text) what = {0};
    const int n = cases ? atoi(cases) : 200;
    int took = 0;
    if (!e)
        test_skip("the plug-in onednn is not there: %s", why ? why : "");
    for (int i = 0; e && i < n; i++) {
        draws d = {.key = nnc_rng_key("drawn", test_seed + (uint64_t)i)};
        const nnc_call c = draw(&d);
        if (is_possible(&c))
            took += call_check(e, &c, c.kind != CALL_conv_wgrad && below(&d, 2) ? PACKED : RAW,
                c.src.dtype == DT_f32 ? 2e-6 : 8e-3, describe(&c, test_seed + (uint64_t)i, &what));
    }
    CHECK_USUAL(!e || took > n / 4);
}

/* Short sources, where windows that begin before one and windows that end after it meet: in f32 along the first of three dimensions, in
 * bf16 along the only one. False: there is no such window. */
static bool take_border(const nnc_engine *e, int64_t n, bool half, nnc_text *what)
{
    const int64_t size = 1 + n % 5, kernel = 2 + n / 5 % 4, lo = n / 60 % 5, hi = n / 300;
    nnc_call c =
        half ? conv_call(1, 1, 16, size, 16, kernel, 1, 0) : conv_call(3, 1, 1, size, 1, 1, 1, 0);
    if (size + lo + hi < kernel || nnc_max64(lo, hi) >= kernel)
        return false;
    c.kernel[0] = c.wei.dim[2] = kernel;
    c.stride[0] = 1 + n / 20 % 3;
    c.pad_lo[0] = lo;
    c.pad_hi[0] = hi;
    call_fix_dst(&c);
    call_wgrad(&c);
    call_dtype(&c, half ? DT_bf16 : DT_f32);
    call_channels_last(&c);
    return call_check(e, &c, RAW, half ? 8e-3 : 2e-6, describe(&c, (uint64_t)n, what));
}

TEST(onednn_gradients_of_borders)
{
    const char *why;
    const nnc_engine *e = nnc_plugin("onednn", "nnc_engine_onednn", &why);
    NNC_LOCAL(nnc_text) what = {0};
    int took = 0;
    if (!e)
        test_skip("the plug-in onednn is not there: %s", why ? why : "");
    for (int64_t n = 0; e && n < 5 * 4 * 3 * 25; n++) {
        took += take_border(e, n, false, &what);
        (void)take_border(e, n, true, &what); /* as far as the machine has it */
    }
    CHECK(!e || took > 300);
}

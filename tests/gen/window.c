/* tests/gen/window.c -- random windows: depthwise convolutions and pooling of every stride, dilation, border, memory order and
 * element type, with what often stands behind them. */
#include "gen.h"

typedef struct dice {
    uint64_t s;
} dice;

static int64_t roll(dice *d, int64_t n)
{
    d->s = d->s * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((d->s >> 33) % (uint64_t)n);
}

typedef struct window {
    int rank; /* of the picture: 1..3 */
    int64_t n, c, each, in[3], k[3], stride[3], dil[3], lo[3], hi[3], out[3];
} window;

static void draw(dice *d, window *w)
{
    static const int64_t kernels[] = {3, 5, 2, 3, 1, 7, 4};
    bool same = roll(d, 2); /* borders that keep the picture's size */
    w->rank = roll(d, 8) == 0 ? 1 : roll(d, 12) == 0 ? 3 : 2;
    w->n = 1 + roll(d, 2);
    w->c = roll(d, 3) ? 8 * (1 + roll(d, 3)) : 1 + roll(d, 13);
    w->each = roll(d, 5) ? 1 : 2 + roll(d, 3);
    for (int i = 0; i < w->rank; i++) {
        w->k[i] = i && roll(d, 4) ? w->k[0] : kernels[roll(d, w->rank == 3 ? 4 : 7)];
        w->stride[i] = i && roll(d, 4) ? w->stride[0] : 1 + roll(d, 5) / 3;
        w->dil[i] = roll(d, 5) ? 1 : 2;
        int64_t reach = (w->k[i] - 1) * w->dil[i] + 1;
        w->lo[i] = same ? reach / 2 : roll(d, reach < 4 ? reach : 4);
        w->hi[i] = same ? (reach - 1) / 2 : roll(d, reach < 4 ? reach : 4);
        w->in[i] = reach + roll(d, w->rank == 3 ? 5 : 17);
        w->out[i] = (w->in[i] + w->lo[i] + w->hi[i] - reach) / w->stride[i] + 1;
    }
}

static void list(nnc_text *t, const char *name, const int64_t *v, int n, const int64_t *more)
{
    nnc_printf(t, "%s=[", name);
    for (int i = 0; i < (more ? 2 * n : n); i++)
        nnc_printf(t, "%s%lld", i ? "," : "", (long long)(i < n ? v[i] : more[i - n]));
    nnc_puts(t, "]");
}

static void dims(nnc_text *t, const char *type, int64_t n, int64_t c, const int64_t *d, int rank)
{
    nnc_printf(t, "%s[%lld,%lld", type, (long long)n, (long long)c);
    for (int i = 0; i < rank; i++)
        nnc_printf(t, ",%lld", (long long)d[i]);
    nnc_puts(t, "]");
}

/* Dimensions by decreasing stride: channels last, or of weights channels innermost. */
static void order(nnc_text *t, int rank, bool weights)
{
    static const char *const last[2][4] = {
        {"", "{0,2,1}", "{0,2,3,1}", "{0,2,3,4,1}"}, {"", "{1,2,0}", "{2,3,1,0}", "{2,3,4,1,0}"}};
    nnc_puts(t, last[weights][rank]);
}

static void put_conv(nnc_text *t, dice *d, const window *w, const char *type, bool last)
{
    bool bias = roll(d, 2);
    nnc_puts(t, "%w = input : ");
    dims(t, type, w->c * w->each, 1, w->k, w->rank);
    if (roll(d, 2))
        order(t, w->rank, true);
    if (bias)
        nnc_printf(t, "\n%%b = input : %s[%lld]", type, (long long)(w->c * w->each));
    nnc_printf(t, "\n%%c = conv %%x, %%w%s {groups=%lld, ", bias ? ", %b" : "", (long long)w->c);
    list(t, "strides", w->stride, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "pads", w->lo, w->rank, w->hi);
    nnc_puts(t, ", ");
    list(t, "dilations", w->dil, w->rank, NULL);
    nnc_puts(t, "} : ");
    dims(t, type, w->n, w->c * w->each, w->out, w->rank);
    if (last)
        order(t, w->rank, false);
    nnc_puts(t, "\n");
}

static void put_pool(nnc_text *t, dice *d, window *w, const char *type, bool last)
{
    bool max = roll(d, 2);
    w->each = 1;
    for (int i = 0; i < w->rank; i++) { /* no window stands in the border alone */
        w->dil[i] = 1;
        w->lo[i] = nnc_min64(w->lo[i], w->k[i] - 1);
        w->hi[i] = nnc_min64(w->hi[i], w->k[i] - 1);
        w->out[i] = (w->in[i] + w->lo[i] + w->hi[i] - w->k[i]) / w->stride[i] + 1;
    }
    nnc_printf(t, "%%c = %s %%x {", max ? "maxpool" : "avgpool");
    list(t, "kernel", w->k, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "strides", w->stride, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "pads", w->lo, w->rank, w->hi);
    if (!max && roll(d, 2))
        nnc_puts(t, ", count_include_pad=1");
    nnc_puts(t, "} : ");
    dims(t, type, w->n, w->c, w->out, w->rank);
    if (last)
        order(t, w->rank, false);
    nnc_puts(t, "\n");
}

void gen_window(nnc_text *t, uint64_t seed, bool pool)
{
    static const char *const types[] = {"f32", "f32", "f16", "bf16"};
    static const char *const after[] = {
        "%y = relu %c", "%y = silu %c", "%y = hardswish %c", "%y = relu6 %c"};
    dice d = {seed * 0x9e3779b97f4a7c15u + 1};
    window w = {0};
    for (int i = 0; i < 4; i++)
        roll(&d, 2);
    draw(&d, &w);
    bool last = roll(&d, 3) > 0;
    const char *type = types[roll(&d, 4)];
    nnc_puts(t, "graph @window {\n%x = input : ");
    dims(t, type, w.n, w.c, w.in, w.rank);
    if (last)
        order(t, w.rank, false);
    nnc_puts(t, "\n");
    if (pool)
        put_pool(t, &d, &w, type, last);
    else
        put_conv(t, &d, &w, type, last);
    int64_t end = roll(&d, 6);
    if (end < 4) {
        nnc_printf(t, "%s\nreturn %%y }\n", after[end]);
    } else if (end == 4) {
        nnc_puts(t, "%r = input : ");
        dims(t, type, w.n, w.c * w.each, w.out, w.rank);
        if (last)
            order(t, w.rank, false);
        nnc_puts(t, "\n%s = add %c, %r\n%y = relu %s\nreturn %y }\n");
    } else {
        nnc_puts(t, "return %c }\n");
    }
}

/* tests/gen/products.c -- random text graphs of two products with rows between them, as in attention. */
#include "gen.h"

typedef struct draw {
    uint64_t key, at;
} draw;

static int between(draw *d, int lo, int hi)
{
    return lo + (int)(nnc_rng_u32(d->key, d->at++) % (uint32_t)(hi - lo + 1));
}

static const char *pick(draw *d, const char *const *of, int n)
{
    return of[between(d, 0, n - 1)];
}

/* What masks the scores %s, or nothing; *s: their name afterwards. */
static void put_mask(draw *d, nnc_text *t, const char *type, const char *lead, int rows, int keys)
{
    switch (between(d, 0, 5)) {
    case 0: nnc_printf(t, "%%m = input : %s[%d,%d]\n%%t = add %%s, %%m\n", type, rows, keys); break;
    case 1: nnc_printf(t, "%%m = input : %s[1,%d]\n%%t = sub %%s, %%m\n", type, keys); break;
    case 2:
        nnc_printf(t,
            "%%m = input : bool[%s%d,%d]\n%%low = constant : %s[] = [-8]\n%%t = select %%m, %%s, "
            "%%low\n",
            lead, rows, keys, type);
        break;
    case 3:
        nnc_printf(t,
            "%%i = iota {dim=0} : i32[%d,%d]\n%%j = iota {dim=1} : i32[%d,%d]\n%%m = ge %%i, "
            "%%j\n%%low = constant : %s[] = [-8]\n%%t = select %%m, %%s, %%low\n",
            rows, keys, rows, keys, type);
        break;
    default: nnc_puts(t, "%t = neg %s\n");
    }
}

/* Ops on rows %t of the scores, whose last dimension is number `last`: %p. */
static void put_rows(draw *d, nnc_text *t, const char *type, int last)
{
    switch (between(d, 0, 4)) {
    case 0:
        nnc_printf(t, "%%ss = mul %%t, %%t\n%%r = reduce_sum %%ss {axes=[%d], keepdims=1}\n", last);
        nnc_printf(t,
            "%%one = constant : %s[] = [1]\n%%e = add %%r, %%one\n%%g = sqrt %%e\n%%p = div %%t, "
            "%%g\n",
            type);
        break;
    case 1:
        nnc_printf(t, "%%r = reduce_max %%t {axes=[%d], keepdims=1}\n%%p = sub %%t, %%r\n", last);
        break;
    default:
        nnc_printf(t, "%%r = reduce_max %%t {axes=[%d], keepdims=1}\n%%u = sub %%t, %%r\n", last);
        nnc_printf(t,
            "%%e = exp %%u\n%%z = reduce_sum %%e {axes=[%d], keepdims=1}\n%%p = div %%e, %%z\n",
            last);
    }
}

/* What follows the product %y of shape lead, rows, width. */
static void put_end(draw *d, nnc_text *t, const char *type, int heads, int width)
{
    int k = between(d, 0, 3);
    if (k == 1)
        nnc_printf(t, "%%b = input : %s[%d]\n%%o = add %%y, %%b\n", type, width);
    else if (k == 2)
        nnc_puts(t, "%o = abs %y\n");
    else if (k == 3 && heads)
        nnc_puts(t, "%o = transpose %y {perm=[1,0,2]}\n");
    nnc_printf(t, "return %%%s }", k == 0 || (k == 3 && !heads) ? "y" : "o");
}

void gen_products(nnc_text *t, uint64_t seed, bool turned)
{
    static const char *const types[] = {"f32", "f32", "f64"};
    draw d = {nnc_rng_key("two products", seed), 0};
    const char *type = pick(&d, types, 3);
    int heads = between(&d, 0, 4), rows = between(&d, 1, 50), keys = between(&d, 2, 90),
        sum = between(&d, 1, 40), width = between(&d, 2, 50);
    bool tall = turned && between(&d, 0, 1), moved = heads && between(&d, 0, 1);
    char lead[16] = "";
    if (heads)
        snprintf(lead, sizeof lead, "%d,", heads);
    nnc_puts(t, "graph @t {\n");
    if (moved)
        nnc_printf(t, "%%x = input : %s[%d,%d,%d]\n%%q = transpose %%x {perm=[1,0,2]}\n", type,
            rows, heads, sum);
    else
        nnc_printf(t, "%%q = input : %s[%s%d,%d]\n", type, lead, rows, sum);
    nnc_printf(t, "%%k = input : %s[%s%d,%d]\n", type, lead, tall ? keys : sum, tall ? sum : keys);
    nnc_printf(t, "%%v = input : %s[%s%d,%d]\n", type, lead, keys, width);
    nnc_printf(t,
        "%%f = constant : %s[] = [0.125]\n%%c = matmul %%q, %%k {transpose_b=%d}\n%%s = mul %%c, "
        "%%f\n",
        type, tall);
    put_mask(&d, t, type, lead, rows, keys);
    put_rows(&d, t, type, heads ? 2 : 1);
    nnc_puts(t, "%y = matmul %p, %v\n");
    put_end(&d, t, type, heads, width);
}

void gen_winograd(nnc_text *t, uint64_t seed, bool turned)
{
    draw d = {nnc_rng_key("winograd", seed), 0};
    const int tile = between(&d, 0, 2) ? 4 : 2, images = between(&d, 1, 3),
              channels = between(&d, 1, 40), panel = between(&d, 1, 40), panels = between(&d, 1, 2),
              h = between(&d, 3, 19), w = between(&d, 3, 19), end = between(&d, 0, 2);
    const char *order = turned ? "" : "{0,2,3,1}";
    int pad[4];
    for (int i = 0; i < 4; i++)
        pad[i] = between(&d, 0, 1);
    const int rows = h + pad[0] + pad[2] - 2, columns = w + pad[1] + pad[3] - 2,
              block[] = {between(&d, 0, 1) ? images : 1, between(&d, 1, 5)};
    if (between(&d, 0, 3) == 0) {
        nnc_printf(t,
            "graph @t {\n%%x = input : f32[%d,%d,%d,%d]%s\n%%g = input : f32[%d,%d,%d,%d]%s\n"
            "%%z = winograd_wgrad %%x, %%g {tile=%d, pads=[%d,%d,%d,%d], block=[%d,%d]}\n"
            "return %%z }",
            images, channels, h, w, order, images, panel, rows, columns, order, tile, pad[0],
            pad[1], pad[2], pad[3], block[0], block[1]);
        return;
    }
    nnc_printf(t, "graph @t {\n%%x = input : f32[%d,%d,%d,%d]%s\n%%u = input : f32[%d,%d,%d,%d]\n",
        images, channels, h, w, order, (tile + 2) * (tile + 2), panels, channels, panel);
    if (end)
        nnc_printf(
            t, "%%r = input : f32[%d,%d,%d,%d]%s\n", images, panel * panels, rows, columns, order);
    nnc_printf(t,
        "%%b = input : f32[%d,1,1]\n%%y = winograd %%x, %%u {pads=[%d,%d,%d,%d], block=[%d,%d]}\n"
        "%%c = add %%y, %%b\n%s",
        panel * panels, pad[0], pad[1], pad[2], pad[3], block[0], block[1],
        end == 0   ? "%z = silu %c\n"
        : end == 1 ? "%s = add %c, %r\n%z = relu %s\n"
                   : "%z = mul %c, %r\n");
    nnc_puts(t, rows > 1 && columns > 1 && between(&d, 0, 1)
                    ? "%p = maxpool %z {kernel=[2,2], strides=[2,2]}\nreturn %p }"
                    : "return %z }");
}

/* tests/codegen/contractions.c -- contractions as loop nests, which stand in where no library takes one: every op and type against the
 * reference, with strides, borders, groups and dilations drawn at random, alone and with what follows. */
#include "help.h"

static const char *const types[] = {
    "f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const ck_bound sums = {1e-4, 1e-4};

typedef struct draw {
    uint64_t key, at;
} draw;

static int between(draw *d, int lo, int hi)
{
    return lo + (int)(nnc_rng_u32(d->key, d->at++) % (uint32_t)(hi - lo + 1));
}

static void check(nnc_text *t, int i)
{
    nnc_sink_clear(test_sink);
    if (!ck_text(nnc_text_str(t), sums)) {
        nnc_sink_print(test_sink, stderr);
        test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(t));
    }
    nnc_text_deinit(t);
}

/* What follows, and the graph's end. */
static void put_end(draw *d, nnc_text *t)
{
    static const char *const after[] = {"", "%z = abs %y\n", "%z = add %y, %y\n"};
    int k = between(d, 0, 2);
    nnc_printf(t, "%sreturn %%%s }", after[k], k ? "z" : "y");
}

static void put_list(nnc_text *t, const char *name, const int *v, int n)
{
    nnc_printf(t, ", %s=[", name);
    for (int i = 0; i < n; i++)
        nnc_printf(t, "%s%d", i ? "," : "", v[i]);
    nnc_putc(t, ']');
}

static void products(int i, const char *type)
{
    nnc_text t = {0};
    draw d = {nnc_rng_key("products", test_seed + (uint64_t)i), 0};
    int m = between(&d, 1, 9), n = between(&d, 1, 9), k = between(&d, 1, 20),
        lead = between(&d, 0, 3);
    nnc_puts(&t, "graph @t {\n");
    if (between(&d, 0, 1)) {
        bool bias = between(&d, 0, 1);
        nnc_printf(&t, "%%x = input : %s[%s%d]\n%%w = input : %s[%d,%d]\n", type,
            lead == 0   ? ""
            : lead == 1 ? "3,"
                        : "2,3,",
            k, type, n, k);
        if (bias)
            nnc_printf(&t, "%%b = input : %s[%d]\n", type, n);
        nnc_printf(&t, "%%y = linear %%x, %%w%s\n", bias ? ", %b" : "");
    } else {
        static const char *const leads[4][2] = {{"", ""}, {"4,", ""}, {"2,1,", "3,"}, {"", "2,3,"}};
        bool ta = between(&d, 0, 1), tb = between(&d, 0, 1);
        nnc_printf(&t, "%%a = input : %s[%s%d,%d]\n%%c = input : %s[%s%d,%d]\n", type,
            leads[lead][0], ta ? k : m, ta ? m : k, type, leads[lead][1], tb ? n : k, tb ? k : n);
        nnc_printf(&t, "%%y = matmul %%a, %%c {transpose_a=%d, transpose_b=%d}\n", ta, tb);
    }
    put_end(&d, &t);
    check(&t, i);
}

static void convolution(int i, const char *type)
{
    nnc_text t = {0};
    draw d = {nnc_rng_key("convolution", test_seed + (uint64_t)i), 0};
    bool back = between(&d, 0, 1), bias = between(&d, 0, 1);
    int rank = between(&d, 1, i % 5 ? 2 : 3), groups = between(&d, 0, 2) ? 1 : between(&d, 2, 3);
    int in = groups * between(&d, 1, 3), out = groups * between(&d, 1, 3);
    int size[3], kernel[3], stride[3], dilation[3], pads[6] = {0};
    for (int r = 0; r < rank; r++) {
        kernel[r] = between(&d, 1, 3);
        stride[r] = between(&d, 1, 3);
        dilation[r] = between(&d, 0, 3) ? 1 : 2;
        size[r] = dilation[r] * (kernel[r] - 1) + between(&d, 1, 5);
        for (int e = 0; e < 2; e++)
            pads[r + e * rank] = !back || size[r] > 2 ? between(&d, 0, kernel[r] - 1) : 0;
    }
    nnc_printf(&t, "graph @t {\n%%x = input : %s[%d,%d", type, between(&d, 1, 2), in);
    for (int r = 0; r < rank; r++)
        nnc_printf(&t, ",%d", size[r]);
    nnc_printf(&t, "]%s\n%%w = input : %s[%d,%d",
        rank == 2 && between(&d, 0, 2) == 0 ? "{0,2,3,1}" : "", type, back ? in : out,
        (back ? out : in) / groups);
    for (int r = 0; r < rank; r++)
        nnc_printf(&t, ",%d", kernel[r]);
    nnc_puts(&t, "]\n");
    if (bias)
        nnc_printf(&t, "%%b = input : %s[%d]\n", type, out);
    nnc_printf(&t, "%%y = %s %%x, %%w%s {groups=%d", back ? "conv_transpose" : "conv",
        bias ? ", %b" : "", groups);
    put_list(&t, "strides", stride, rank);
    put_list(&t, "dilations", dilation, rank);
    put_list(&t, "pads", pads, 2 * rank);
    nnc_puts(&t, "}\n");
    put_end(&d, &t);
    check(&t, i);
}

TEST(products_are_nests)
{
    for (int i = 0; i < 300; i++)
        products(i, types[i % (int)NNC_COUNT(types)]);
}

TEST(convolutions_are_nests)
{
    for (int i = 0; i < 120; i++)
        convolution(i, types[i % (int)NNC_COUNT(types)]);
}

/* Fusion does not take them for kernels: what a library may compute is no part of another nest. */
TEST(contractions_are_not_fused_into_nests)
{
    nnc_arena a;
    const char *why = NULL;
    nnc_arena_init(&a, 0);
    nnc_graph *g = ck_parse("graph @t {\n%a = input : f64[8,9]\n%b = input : f64[9,4]\n"
                            "%y = matmul %a, %b\n%z = exp %y\nreturn %z }");
    CHECK(g && !ck_one_kernel(g, &a, &why) && strstr(why, "is a contraction"));
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

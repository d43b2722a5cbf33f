/* tests/codegen/contractions.c -- contractions as loop nests, which replace a library where none takes one. Every op and type is
 * compared with the reference, with drawn strides, borders, groups and dilations, alone and with epilogues. */
#include "help.h"

static const char *const types[] = {
    "f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const ck_bound bound = {1e-4, 1e-4};

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
    if (!ck_text(nnc_text_str(t), bound)) {
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
    int size[3], kernel[3], stride[3], dilation[3], extra[3], pads[6] = {0};
    for (int r = 0; r < rank; r++) {
        kernel[r] = between(&d, 1, back ? 5 : 3);
        stride[r] = between(&d, 1, back ? 5 : 3);
        extra[r] = between(&d, 0, stride[r] - 1);
        dilation[r] = between(&d, 0, 3) ? 1 : 2;
        size[r] = (back ? 0 : dilation[r] * (kernel[r] - 1)) + between(&d, 1, 5);
        for (int e = 0; e < 2; e++)
            pads[r + e * rank] = !back || size[r] > 2 ? between(&d, 0, kernel[r] - 1) : 0;
        if (back && (size[r] - 1) * stride[r] + dilation[r] * (kernel[r] - 1) + extra[r] <
                        pads[r] + pads[r + rank])
            pads[r] = 0; /* they would take away the whole result */
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
    if (back)
        put_list(&t, "output_padding", extra, rank);
    nnc_puts(&t, "}\n");
    put_end(&d, &t);
    check(&t, i);
}

/* The gradient of a weight, of operands in either order, in row-major order or with its inputs or outputs innermost. */
static void weight_gradient(int i, const char *type)
{
    static const char *const orders[] = {"", "{0,2,3,1}", "{2,3,1,0}"};
    nnc_text t = {0};
    draw d = {nnc_rng_key("weight gradient", test_seed + (uint64_t)i), 0};
    const bool last = between(&d, 0, 3) != 0;
    const int groups = between(&d, 0, 3) ? 1 : between(&d, 2, 3), n = between(&d, 1, 2);
    const int in = between(&d, 1, 40), out = between(&d, 1, 40);
    int kernel[2], stride[2], dilation[2], pads[4], size[2], places[2];
    for (int r = 0; r < 2; r++) {
        kernel[r] = between(&d, 1, 3);
        stride[r] = between(&d, 1, 2);
        dilation[r] = between(&d, 0, 3) ? 1 : 2;
        pads[r] = between(&d, 0, kernel[r] - 1);
        pads[r + 2] = between(&d, 0, kernel[r] - 1);
        size[r] = dilation[r] * (kernel[r] - 1) + between(&d, 1, 17);
        places[r] =
            (size[r] + pads[r] + pads[r + 2] - dilation[r] * (kernel[r] - 1) - 1) / stride[r] + 1;
    }
    nnc_printf(&t, "graph @t {\n%%x = input : %s[%d,%d,%d,%d]%s\n", type, n, groups * in, size[0],
        size[1], last ? orders[1] : "");
    nnc_printf(&t, "%%d = input : %s[%d,%d,%d,%d]%s\n", type, n, groups * out, places[0], places[1],
        last ? orders[1] : "");
    nnc_printf(
        &t, "%%y = conv_wgrad %%x, %%d {kernel=[%d,%d], groups=%d", kernel[0], kernel[1], groups);
    put_list(&t, "strides", stride, 2);
    put_list(&t, "dilations", dilation, 2);
    put_list(&t, "pads", pads, 4);
    nnc_printf(&t, "} : %s[%d,%d,%d,%d]%s\n", type, groups * out, in, kernel[0], kernel[1],
        orders[between(&d, 0, 2)]);
    put_end(&d, &t);
    check(&t, i);
}

TEST(gradients_of_weights_are_nests)
{
    static const char *const floats[] = {"f32", "bf16", "f16", "f64"};
    for (int i = 0; i < test_draws(80); i++)
        weight_gradient(i, floats[i % 8 > 3 ? 0 : i % 4]);
}

TEST(products_are_nests)
{
    for (int i = 0; i < test_draws(300); i++)
        products(i, types[i % (int)NNC_COUNT(types)]);
}

TEST(convolutions_are_nests)
{
    for (int i = 0; i < test_draws(240); i++)
        convolution(i, types[i % (int)NNC_COUNT(types)]);
}

/* Terms of all sums of the kernel for one point of its outer axes, and the number of stages with a sum. */
static int64_t terms_of(const nnc_kernel *k, int *sums)
{
    int64_t all = 0;
    *sums = 0;
    for (int s = 0; s < k->n_stage; s++) {
        int64_t n = 1;
        for (int a = k->n_outer; a < k->n_axis; a++)
            n *= k->stage[s].axes >> a & 1 ? k->axis[a].extent : 1;
        all += k->stage[s].axes ? n : 0;
        *sums += k->stage[s].axes != 0;
    }
    return all;
}

/* Each phase of the stride is a sum of its own, over the elements of the window that meet it and no others. Where there would be too many,
 * one sum tells by guards. A source shorter than the window is summed itself. */
TEST(transposed_convolutions_by_phases)
{
    static const struct {
        const char *x, *w, *attrs;
        int sums, outer;
        int64_t terms;
    } at[] = {{"1,8,6,6", "8,5,4,4", "strides=[2,2], pads=[1,1,1,1]", 4, 3, 4 * 8 * 2 * 2},
        {"1,8,6,6", "8,5,3,3", "strides=[2,2]", 4, 3, 8 * 9},
        {"2,8,6,6", "8,5,2,2", "strides=[2,2]", 4, 4, 8 * 4},
        {"1,8,6", "8,5,7", "strides=[3], output_padding=[1]", 3, 2, 8 * 7},
        {"1,8,6", "8,5,2", "strides=[3]", 2, 2, 8 * 2},
        {"1,8,9", "8,5,3", "strides=[4], dilations=[2]", 2, 2, 8 * 3},
        {"1,8,4,4,4", "8,5,3,3,3", "strides=[2,2,2]", 8, 4, 8 * 27},
        {"1,8,6,6", "8,5,10,10", "strides=[5,5], pads=[2,2,2,2]", 1, 5, 8 * 3 * 3},
        {"1,8,9", "8,5,32", "strides=[14]", 1, 3, 8 * 3},
        {"1,8,1,1", "8,5,4,4", "strides=[1,1]", 1, 3, 8}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        char text[300];
        int sums = 0;
        nnc_arena a;
        nnc_arena_init(&a, 0);
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[%s]\n%%w = input : f32[%s]\n%%y = conv_transpose %%x, "
            "%%w {%s}\nreturn %%y }",
            at[i].x, at[i].w, at[i].attrs);
        nnc_graph *g = ck_parse(text);
        const nnc_kernel *k =
            g ? nnc_kernel_build(g, &g->node[g->n_node - 1], &a, test_sink) : NULL;
        CHECK(k != NULL && ck_text(text, bound));
        if (k) {
            CHECK_INT(terms_of(k, &sums), at[i].terms);
            CHECK_INT(sums, at[i].sums);
            CHECK_INT(k->n_outer, at[i].outer);
        }
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
    }
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

/* tests/codegen/winograd.c -- Winograd's convolution as a kernel. Drawn shapes, with what may follow, are compared with the reference
 * evaluator, and the op itself with the convolution that it replaces. */
#include "gen/gen.h"
#include "help.h"

#include <math.h>

TEST(winograd_kernels)
{
    for (int i = 0; i < test_draws(60); i++) {
        nnc_text t = {0};
        gen_winograd(&t, test_seed + (uint64_t)i, i % 5 == 0);
        nnc_sink_clear(test_sink);
        if (!ck_text(nnc_text_str(&t), (ck_bound){1e-4, 2e-3})) {
            nnc_sink_print(test_sink, stderr);
            test_fail(__FILE__, __LINE__, "case %d:\n%s", i, nnc_text_str(&t));
        }
        nnc_text_deinit(&t);
    }
}

/* y = R [(W g W^T) * (S x S^T)] R^T is the convolution of each tile: exact polynomials, up to the rounding of doubles. */
TEST(winograd_is_the_convolution)
{
    for (int points = 16; points <= 36; points += 20) {
        nnc_winograd w;
        CHECK(nnc_winograd_of(points, &w));
        for (int y = 0; y < w.tile; y++)
            for (int k = 0; k < NNC_WINOGRAD_TAPS; k++)
                for (int x = 0; x < w.side;
                     x++) { /* along one dimension: x's weight in y by tap k */
                    double sum = 0;
                    for (int p = 0; p < w.side; p++)
                        sum += w.result[y][p] * w.weight[p][k] * w.source[p][x];
                    CHECK(fabs(sum - (x == y + k)) < 1e-14);
                }
    }
    CHECK(!nnc_winograd_of(25, &(nnc_winograd){0}));
}

/* The stages of a transform are nested in the axes along which both reach the same tile, and in no others. */
TEST(winograd_nests)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kpart part[NNC_KPARTS];
    nnc_kernel *k = NULL;
    nnc_graph *g = ck_parse("graph @t {\n%x = input : f32[2,3,16,16]{0,2,3,1}\n"
                            "%u = input : f32[36,1,3,4]\n%y = winograd %x, %u {pads=[1,1,1,1], "
                            "block=[2,2]}\nreturn %y }");
    CHECK(g && ck_check(g, (ck_bound){1e-4, 2e-3}, 1, "nests", &a, &k) && k);
    CHECK(k && nnc_kernel_parts(k, part) == 3);
    CHECK(k && part[0].nest && !part[1].nest && part[2].nest);
    const uint32_t nest = k ? part[0].nest : 0;
    for (int i = 0; i < NNC_KAXES; i++) {
        if (!(nest >> i & 1))
            continue;
        nnc_kins *in = &k->ins[k->stage[1].body0];
        const int64_t step = in->at.k[i];
        CHECK_INT(in->op, KO_load);
        in->at.k[i] = 0; /* all tiles would read the elements of one */
        CHECK(nnc_kernel_parts(k, part) == 3 && !(part[0].nest >> i & 1));
        in->at.k[i] = step;
    }
    CHECK(k && nnc_kernel_parts(k, part) == 3 && part[0].nest == nest);
    nnc_graph_destroy(g);
}

/* What the kernel cannot contain is a kernel of its own. */
TEST(winograd_refuses)
{
    static const char *const after[] = {"%z = transpose %y {perm=[0,1,3,2]}",
        "%z = softmax %y {axis=1}", "%z = maxpool %y {kernel=[3,3], strides=[2,2]}",
        "%z = reshape %y {shape=[1,4,64]}"};
    for (size_t i = 0; i < NNC_COUNT(after); i++) {
        char text[300];
        const char *why = NULL;
        nnc_arena a;
        nnc_arena_init(&a, 0);
        snprintf(text, sizeof text,
            "graph @t {\n%%x = input : f32[1,3,8,8]{0,2,3,1}\n%%u = input : f32[36,1,3,4]\n"
            "%%y = winograd %%x, %%u {pads=[1,1,1,1]}\n%s\nreturn %%z }",
            after[i]);
        nnc_graph *g = ck_parse(text);
        CHECK(g && !ck_one_kernel(g, &a, &why));
        CHECK(why && *why);
        nnc_graph_destroy(g);
        nnc_arena_deinit(&a);
    }
}

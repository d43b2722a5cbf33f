/* tests/cuda_fake/generated.c -- generated graphs on the fake GPU in every precision. Unfused, fused and float64 agree within the
 * stated limits, or within what the conditioning of the outputs explains. */
#include "session/session.h"
#include "fake.h"
#include "help.h"
#include "gen/gen.h"
#include "test.h"
#include <stdlib.h>

/* Limits of nmse: of 16 bits as in tests/passes/props.c, for graphs of about as many roundings. */
static const double limit[NNC_PRECISION__COUNT] = {[NNC_PRECISION_f32] = 1e-10,
    [NNC_PRECISION_tf32] = 1e-10, /* the fake's sums are f32 */
    [NNC_PRECISION_f16] = 1e-4,
    [NNC_PRECISION_bf16] = 64e-4};

typedef struct graph_case {
    nnc_env *e;
    uint64_t seed;
    nnc_precision precision;
} graph_case;

static void check_graph(const nnc_graph *g, const void *ctx)
{
    const graph_case *c = ctx;
    nnc_compare_options o = {.compile = nnc_compile_defaults,
        .warmup = 1,
        .iterations = 1,
        .tolerance = limit[c->precision]};
    o.compile.precision = c->precision;
    NNC_LOCAL(nnc_text) t = {0};
    if (!compared(c->e, g, &o, &t))
        test_fail(__FILE__, __LINE__, "seed %llu, %s\n%s", (unsigned long long)c->seed,
            nnc_precision_name(c->precision), nnc_text_str(&t));
}

/* devices: nodes are placed on so many at random. */
static void compare(nnc_env *e, uint64_t seed, nnc_precision precision, uint32_t devices)
{
    gen_options go = {.seed = seed,
        .nodes = 14,
        .classes = 1u << CL_contract | 1u << CL_ewise | 1u << CL_ecomp | 1u << CL_comp |
                   1u << CL_move | 1u << CL_window | (seed % 4 == 1 ? 1u << CL_loop : 0)};
    nnc_graph *g = gen_graph(&go, test_sink);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        g->node[i].device = (int16_t)(nnc_rng_u32(nnc_rng_key("place", seed), i) % devices);
    gen_check(g, check_graph, &(graph_case){e, seed, precision});
}

TEST(generated_in_every_precision)
{
    const int n = test_draws(16);
    int calls = 0;
    if (!*NNC_TEST_CXX) {
        test_skip("no C++ compiler to build kernels for the CPU");
        return;
    }
    for (int k = 0; k < n; k++)
        for (nnc_precision p = NNC_PRECISION_f32; p < NNC_PRECISION__COUNT; p++) {
            char why[512];
            nnc_env *e = NULL;
            if (p == NNC_PRECISION_tf32 && k)
                continue; /* on the fake as f32 */
            fake_begin((uint64_t)k);
            CHECK_OK(nnc_env_create(
                &(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
            if (e)
                compare(e, test_seed + 40000 + (uint64_t)k, p, 1);
            nnc_env_destroy(e);
            calls += fake_count.library_calls;
            if (fake_end(why))
                test_fail(__FILE__, __LINE__, "case %d: %s", k, why);
        }
    CHECK_USUAL(calls > 0);
}

/* The same graphs with their nodes spread over devices of several kinds. */
TEST(generated_over_several_kinds)
{
    static const char *const lists[] = {"cpu,cuda:sm_90", "cuda:sm_75,cpu,cuda:sm_90"};
    const int n = test_draws(16);
    if (!*NNC_TEST_CXX) {
        test_skip("no C++ compiler to build kernels for the CPU");
        return;
    }
    for (int k = 0; k < n; k++) {
        char why[512];
        nnc_env *e = NULL;
        fake_begin((uint64_t)k);
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = lists[k % 2], .no_cache = true}, &e, test_sink));
        if (e)
            compare(e, test_seed + 40000 + (uint64_t)k,
                k % 4 < 2 ? NNC_PRECISION_f32 : NNC_PRECISION_bf16, 2 + (uint32_t)k % 2);
        nnc_env_destroy(e);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "case %d: %s", k, why);
    }
}

/* No library takes products of f64 or of integers: generated kernels do, and every graph of every type runs. */
TEST(generated_of_every_type)
{
    static const uint32_t types[] = {1u << DT_f64, 1u << DT_i32 | 1u << DT_i8,
        1u << DT_i64 | 1u << DT_u16, 1u << DT_f64 | 1u << DT_f32 | 1u << DT_i32};
    const int n = test_draws(16);
    int sums = 0;
    if (!*NNC_TEST_CXX) {
        test_skip("no C++ compiler to build kernels for the CPU");
        return;
    }
    for (int k = 0; k < n; k++) {
        char why[512];
        nnc_env *e = NULL;
        gen_options go = {.seed = test_seed + 41008 + (uint64_t)k,
            .nodes = 10,
            .dtypes = types[k % (int)NNC_COUNT(types)],
            .classes = 1u << CL_contract | 1u << CL_ewise};
        fake_begin((uint64_t)k);
        CHECK_OK(
            nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
        if (e)
            gen_check(gen_graph(&go, test_sink), check_graph,
                &(graph_case){e, go.seed, NNC_PRECISION_f32});
        sums += test_has_diag("no library computes this");
        nnc_env_destroy(e);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "case %d: %s", k, why);
    }
    CHECK_USUAL(sums > n / 2);
}

/* Contractions that no library takes for one reason have one note, at the first of them. */
TEST(one_note_for_each_reason)
{
    static const char text[] =
        "graph @t {\n%x = input : f64[2,4,6,6]\n"
        "%w = param : f64[4,4,3,3] = gen(\"w\", seed=1, scale=0.2, shift=0)\n"
        "%a = conv %x, %w {pads=[1,1,1,1]}\n%b = conv %a, %w {pads=[1,1,1,1]}\n"
        "%c = conv %b, %w {pads=[1,1,1,1]}\n%d = conv_transpose %c, %w\n"
        "%e = conv_transpose %d, %w\nreturn %e as \"y\" }\n";
    loaded l;
    char why[512];
    if (no_compiler())
        return;
    fake_begin(0);
    compile(&l, text, "cuda:sm_90", 1, 1);
    CHECK_DIAG("no library computes this conv and 2 others (");
    CHECK_DIAG("no library computes this conv_transpose and 1 other (");
    int notes = 0;
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++)
        notes += nnc_sink_at(test_sink, i)->severity == NNC_NOTE;
    CHECK_INT(notes, 2);
    unload(&l);
    CHECK_INT(fake_end(why), 0);
}

/* tests/cudnn/compiled.c -- convolutions that cuDNN ends in one kernel that it compiles: when they are chosen, what they compute over the
 * false library, and what happens where nothing becomes of them. */
#include "help.h"

/* b bias, z sum, r relu, s silu, S sigmoid, t tanh, g gelu, h its tanh form, c clip, l leaky. */
static nnc_call call_with(nnc_dtype d, const char *ends)
{
    static const struct {
        char op;
        nnc_post_kind kind;
        float alpha, beta;
    } post[] = {{'z', PO_sum, 0, 0}, {'r', PO_relu, 0, 0}, {'s', PO_silu, 0, 0},
        {'S', PO_sigmoid, 0, 0}, {'t', PO_tanh, 0, 0}, {'g', PO_gelu_erf, 0, 0},
        {'h', PO_gelu_tanh, 0, 0}, {'c', PO_clip, -0.5f, 1.5f}, {'l', PO_leaky, 0.1f, 0}};
    nnc_call c = conv_call(2, 2, 5, 7, 6, 3, 1, 1);
    call_channels_last(&c);
    nnc_type_channels_last(&c.wei);
    call_dtype(&c, d);
    for (const char *o = ends; *o; o++) {
        if (*o == 'b')
            call_bias(&c);
        for (size_t i = 0; i < NNC_COUNT(post); i++)
            if (post[i].op == *o)
                call_post(&c, post[i].kind, post[i].alpha, post[i].beta);
        if (*o == 'z')
            c.post[c.n_post - 1].in_place = false;
    }
    c.env = &gpu_env;
    c.compiled = true;
    c.tf32 = d == DT_f32;
    return c;
}

static nnc_choice choose(const nnc_call *c)
{
    nnc_choice choice = {0};
    CHECK_OK(nnc_engine_cudnn.choose(c, &choice, test_sink));
    return choice;
}

static bool check(const nnc_engine *e, const nnc_call *c, const char *what)
{
    return call_check(e, c, RAW, c->src.dtype == DT_f32 ? 1e-5 : 2e-2, what);
}

TEST(compiled_ends)
{
    static const char *const ends[] = {"bs", "s", "bS", "bt", "bg", "bh", "bc", "bl", "bzs", "bsz",
        "zs", "brz", "bzrz", "bszr", "bsr"};
    static const nnc_dtype types[] = {DT_f16, DT_bf16, DT_f32};
    gpu_begin("cuda:sm_90", true);
    for (size_t t = 0; t < NNC_COUNT(types); t++)
        for (size_t i = 0; i < NNC_COUNT(ends); i++) {
            nnc_call c = call_with(types[t], ends[i]);
            nnc_choice k = choose(&c);
            CHECK(k.ok && k.compiled && !k.apart);
            CHECK(strstr(k.reason, "one kernel with its epilogue, compiled when loaded") != NULL);
            fake_compiled = fake_precompiled = 0;
            CHECK(check(&nnc_engine_cudnn, &c, ends[i]));
            CHECK_INT(fake_compiled, 1);
            CHECK_INT(fake_precompiled, 1); /* that choose() asked for, for its workspace */
        }
    gpu_end();
}

/* What the precompiled engines have, and where nobody allowed it, stays theirs. */
TEST(compiled_only_where_it_must)
{
    gpu_begin("cuda:sm_90", true);
    for (int i = 0; i < 3; i++) {
        static const char *const plain[] = {"b", "bzr", "r"};
        nnc_call c = call_with(DT_f16, plain[i]);
        CHECK(!choose(&c).compiled);
    }
    nnc_call c = call_with(DT_f16, "bs");
    c.compiled = false;
    CHECK(!choose(&c).compiled && !choose(&c).apart);
    c = call_with(
        DT_f32, "bs"); /* strict f32: no tensor cores, and engines without them are slow */
    c.tf32 = false;
    CHECK(!choose(&c).compiled);
    CHECK(strstr(choose(&c).apart, "cuDNN has no runtime-compiled engine for it on sm_90") != NULL);
    CHECK(check(&nnc_engine_cudnn, &c, "strict f32"));
    gpu_end();
}

TEST(compiled_without_a_driver)
{
    gpu_begin("cuda:sm_90", false);
    nnc_call c = call_with(DT_f16, "bs");
    nnc_choice k = choose(&c);
    CHECK(k.ok && !k.compiled);
    CHECK_STR(k.apart, "cuDNN cannot compile a kernel here: the GPU driver's library "
                       "(libcuda.so.1) is missing");
    fake_compiled = 0;
    CHECK(check(&nnc_engine_cudnn, &c, "in two kernels"));
    CHECK_INT(fake_compiled, 1); /* the second */
    gpu_end();
    gpu_begin("cuda:sm_90", true);
    nnc_cuda_override(CUDA_cudnn, NULL);
    k = choose(&c);
    CHECK(k.ok && !k.compiled);
    CHECK_STR(k.apart, "cuDNN cannot compile a kernel here: libcudnn is missing");
    gpu_end();
}

/* No listed configuration can be finalized: then a precompiled kernel and a second one, within the same workspace. */
TEST(compiled_nothing_at_load)
{
    gpu_begin("cuda:sm_90", true);
    nnc_call c = call_with(DT_f16, "bszr");
    fake_compiles_nothing = true;
    CHECK(choose(&c).compiled);
    fake_compiled = fake_precompiled = 0;
    CHECK(check(&nnc_engine_cudnn, &c, "listed, but no plan"));
    CHECK_INT(fake_compiled, 1); /* elementwise */
    CHECK_INT(fake_precompiled, 2); /* when chosen and when loaded */
    bool said = false;
    for (size_t i = 0; i < nnc_sink_count(test_sink); i++)
        said = said || strstr(nnc_sink_at(test_sink, i)->message,
                           "the epilogue runs as a second kernel") != NULL;
    CHECK(said);
    nnc_sink_clear(test_sink);
    gpu_end();
}

TEST(compiled_in_a_wrong_order_is_found)
{
    const nnc_engine wrong = wrong_order();
    int found = 0;
    gpu_begin("cuda:sm_90", true);
    nnc_call c = call_with(DT_f16, "bsz");
    call_found = &found;
    CHECK(check(&nnc_engine_cudnn, &c, "silu and sum in order"));
    CHECK_INT(found, 0);
    CHECK(check(&wrong, &c, "sum before silu"));
    CHECK(found > 0);
    call_found = NULL;
    gpu_end();
}

/* tests/cudnn/rules.c -- the rules of the engine cudnn on drawn convolutions, against the real cuDNN, which answers for GPUs that are not
 * there. What the rules support has an engine within the planned workspace. What they decline for its type has none. Skipped where there
 * is no cuDNN. */
#include "golden.h"
#include "help.h"
#include <stdlib.h>

typedef struct draw {
    uint64_t key, n;
} draw;

static int64_t below(draw *d, int64_t n)
{
    return (int64_t)(nnc_rng_uniform(d->key, d->n++) * (double)n);
}

static int64_t one_of(draw *d, const int64_t *from, int64_t n)
{
    return from[below(d, n)];
}

static nnc_call drawn_call(draw *d, const nnc_target *t)
{
    static const int64_t channels[] = {1, 3, 6, 8, 16, 24, 30, 64, 128, 256},
                         window[] = {1, 1, 3, 3, 3, 5, 7};
    static const nnc_dtype type[] = {DT_f32, DT_f32, DT_f16, DT_bf16};
    const int spatial = below(d, 4) ? 2 : 1 + (int)below(d, 3);
    const int64_t k = one_of(d, window, NNC_COUNT(window)),
                  groups = below(d, 4) ? 1 : 1 + below(d, 8);
    const int64_t in = groups * one_of(d, channels, NNC_COUNT(channels)),
                  out = groups * one_of(d, channels, NNC_COUNT(channels));
    nnc_call c = conv_call(spatial, one_of(d, (int64_t[]){1, 4, 32}, 3), in,
        k + below(d, spatial == 3 ? 12 : 60), out, k, 1 + below(d, 2), below(d, k / 2 + 1));
    c.groups = groups;
    c.wei.dim[1] = in / groups;
    if (!below(d, 6)) {
        c.dilation[0] = c.kernel[0] < 4 ? 2 : 1;
        c.pad_lo[0] = c.pad_hi[0] = c.kernel[0];
        call_fix_dst(&c);
    }
    if (below(d, 4))
        call_channels_last(&c);
    call_dtype(&c, type[below(d, NNC_COUNT(type))]);
    c.tf32 = c.src.dtype == DT_f32 && t->flops_tf32 > 0 && below(d, 2);
    const int64_t kind = below(d, 4);
    if (kind == 0) {
        call_wgrad(&c);
    } else if (kind == 1) {
        const nnc_type src = c.src;
        c.kind = CALL_conv_transpose;
        c.src = c.dst;
        c.dst = src;
    } else if (below(d, 2)) {
        call_bias(&c);
        if (below(d, 2))
            call_post(&c, PO_relu);
    }
    return c;
}

static void put_call(nnc_text *t, const nnc_call *c)
{
    nnc_printf(t, "%s",
        c->kind == CALL_conv         ? "conv"
        : c->kind == CALL_conv_wgrad ? "wgrad"
                                     : "transposed");
    const nnc_type *const types[] = {&c->src, &c->wei, &c->dst};
    for (int i = 0; i < 3; i++) {
        nnc_putc(t, ' ');
        nnc_put_type(t, types[i]);
    }
    nnc_printf(t, ", %lld groups, stride %lld, padding %lld, dilation %lld%s", (long long)c->groups,
        (long long)c->stride[0], (long long)c->pad_lo[0], (long long)c->dilation[0],
        c->tf32 ? ", tf32" : "");
}

typedef struct counts {
    int supported, declined, same; /* same: the engine that it would get without a limit */
} counts;

static void check_draw(draw *d, counts *n)
{
    const nnc_cudnn_device device = described_device(&gpu);
    nnc_call c = drawn_call(d, &gpu);
    nnc_choice choice;
    NNC_LOCAL(nnc_text) t = {0};
    c.env = &gpu_env;
    CHECK_OK(nnc_engine_cudnn.choose(&c, &choice, test_sink));
    if (!choice.ok && !strstr(choice.reason, "cuDNN does not support"))
        return; /* for another reason than its type or the GPU */
    const selection most = selected(&device, &c, call_plenty(&c)),
                    got = choice.ok ? selected(&device, &c, choice.workspace_bytes) : most;
    put_call(&t, &c);
    if (choice.ok && got.engine < 0)
        test_fail(__FILE__, __LINE__,
            "sm_%d, %s: no engine within %lld bytes (%s), engine %lld with %lld bytes", gpu.sm,
            nnc_text_str(&t), (long long)choice.workspace_bytes, got.why, (long long)most.engine,
            (long long)most.workspace);
    if (!choice.ok && most.engine >= 0)
        test_fail(__FILE__, __LINE__, "sm_%d, %s: declined by rule, but cuDNN has engine %lld",
            gpu.sm, nnc_text_str(&t), (long long)most.engine);
    n->supported += choice.ok;
    n->declined += !choice.ok;
    n->same += choice.ok && got.engine == most.engine;
    if (choice.ok && got.engine != most.engine && getenv("NNC_VERBOSE"))
        printf("     sm_%d %s: engine %lld of %lld bytes in %lld, else %lld of %lld\n", gpu.sm,
            nnc_text_str(&t), (long long)got.engine, (long long)got.workspace,
            (long long)choice.workspace_bytes, (long long)most.engine, (long long)most.workspace);
}

TEST(rules_hold_for_drawn_convolutions)
{
    enum { DRAWS = 150 };
    const char *more = getenv("NNC_EXHAUSTIVE");
    counts n = {0};
    if (golden_absent())
        return;
    for (size_t g = 0; g < golden_gpus(); g++) {
        draw d = {nnc_rng_key(golden_gpu[g], test_seed), 0};
        CHECK_OK(nnc_target_cuda(&gpu, golden_gpu[g], test_sink));
        for (int i = 0; i < (more ? 20 * DRAWS : DRAWS); i++)
            check_draw(&d, &n);
        nnc_target_deinit(&gpu);
    }
    printf("     %d convolutions have an engine within the planned workspace, %d of them the one "
           "that they get without a limit; %d are "
           "declined, rightly\n",
        n.supported, n.same, n.declined);
    CHECK_USUAL(n.supported > 100 && n.same * 10 >= n.supported * 9);
}

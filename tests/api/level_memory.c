/* tests/api/level_memory.c -- a training step needs no more memory at -O2 than at -O1, on a described CPU: drawn networks, and models/. */
#include "frontend/frontend.h"
#include "help.h"
#include "train/train.h"
#include <string.h>

enum { CASES = 64, SHARE = 24 };

static uint32_t roll(uint64_t key, uint64_t at, uint32_t n)
{
    return nnc_rng_u32(key, at) % n;
}

static void put_layer(nnc_text *t, const char *op)
{
    if (*op)
        nnc_printf(t, ", \"%s\"", op);
}

/* Convolutions with batch norms, activations and poolings, and what classifies. */
static void draw_images(nnc_text *t, uint64_t key)
{
    static const char *const acts[] = {"", "relu", "relu", "silu", "gelu", "sigmoid", "tanh"};
    const uint32_t n = 1 + roll(key, 1, 4), size = 8 << roll(key, 2, 3);
    nnc_printf(t, "[%u, 3, %u, %u]}, \"layers\": [", 1u << roll(key, 3, 5), size, size);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = 10 * (i + 1);
        nnc_printf(t, "%s{\"op\": \"conv\", \"channels\": %u, \"kernel\": %u, \"pad\": 1}",
            i ? ", " : "", 8u << roll(key, at, 4), 1 + 2 * roll(key, at + 1, 2));
        put_layer(t, roll(key, at + 2, 2) ? "batchnorm" : "");
        put_layer(t, acts[roll(key, at + 3, NNC_COUNT(acts))]);
        if (i < 2 && !roll(key, at + 4, 3))
            nnc_printf(t, ", {\"op\": \"%s\", \"kernel\": 2}",
                roll(key, at + 5, 2) ? "maxpool" : "avgpool");
    }
    if (roll(key, 4, 2))
        nnc_puts(t, ", \"global_avgpool\"");
    if (roll(key, 5, 2))
        nnc_puts(t, ", \"flatten\", {\"op\": \"linear\", \"out\": 10}");
}

/* Linear layers, norms and activations, of rows or of sequences. */
static void draw_rows(nnc_text *t, uint64_t key)
{
    static const char *const acts[] = {"", "relu", "gelu", "tanh", "layernorm", "softmax"};
    const uint32_t n = 1 + roll(key, 1, 4);
    nnc_printf(t, "[%u, %s%u]}, \"layers\": [", 1u << roll(key, 3, 6),
        roll(key, 2, 2) ? "" : "16, ", 32u << roll(key, 4, 5));
    for (uint32_t i = 0; i < n; i++) {
        nnc_printf(t, "%s{\"op\": \"linear\", \"out\": %u}", i ? ", " : "",
            32u << roll(key, 10 * i + 11, 5));
        put_layer(t, acts[roll(key, 10 * i + 12, NNC_COUNT(acts))]);
    }
}

static nnc_graph *draw_step(nnc_text *t, uint64_t key)
{
    nnc_training how = nnc_training_defaults;
    nnc_graph *step = NULL;
    how.loss = (nnc_loss)roll(key, 6, 3);
    how.momentum = roll(key, 7, 2) ? 0.9 : 0;
    nnc_puts(t, "{\"inputs\": {\"x\": ");
    (roll(key, 0, 3) ? draw_images : draw_rows)(t, key);
    nnc_puts(t, "]}");
    nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(t), t->n, NULL, test_sink);
    CHECK_OK(g ? nnc_train_graph(g, &how, &step, test_sink) : NNC_E_MODEL);
    nnc_graph_destroy(g);
    return step;
}

/* Is v in memory only while the step runs, and no gradient of a weight? */
static bool is_activation(const nnc_graph *g, const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) != CL_leaf && !nnc_is_view(g, n) &&
           strncmp(n->origin ? n->origin : "", "/optimizer", 10) != 0 && n->op != OP_conv_wgrad;
}

/* What -O2 may need beside -O1: packed weights and operands of contractions (the largest result of a move). Small weights' gradients wait
 * in one tensor for one kernel (the largest concat). The order of kernels takes a part of all. In drawn networks also two of the largest
 * results, which a kernel computes beside others where separate kernels would compute them in turn. An example is batch norm, tanh and max
 * pooling after a convolution of 3 channels to 64. And their workspace: the points of Winograd's tiles take more than the activations of
 * small images. */
static int64_t allowance(const nnc_artifact *a, int64_t before, bool drawn)
{
    const nnc_graph *g = a->graph;
    int64_t moved = 0, joined = 0, largest = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        const int64_t bytes = nnc_type_bytes(nnc_typeof(g, n->out));
        int64_t *of = n->op == OP_concat                                             ? &joined
                      : nnc_op_class((nnc_op)n->op) == CL_move && !nnc_is_view(g, n) ? &moved
                      : is_activation(g, n)                                          ? &largest
                                                                                     : NULL;
        if (of)
            *of = nnc_max64(*of, bytes);
    }
    return moved + joined + (drawn ? 2 * largest + a->plan->device[0].workspace_bytes : 0) +
           before / SHARE;
}

static void check_levels(nnc_env *e, const nnc_graph *step, bool drawn, const char *text)
{
    int64_t bytes[2] = {0}, allowed = 0;
    for (int k = 0; k < 2 && step; k++) {
        nnc_compile_options o = nnc_compile_defaults;
        nnc_artifact *a = NULL;
        o.level = k + 1;
        CHECK_OK(nnc_compile_plan(e, step, &o, &a, test_sink));
        if (!a)
            return;
        bytes[k] = a->plan->device[0].arena_bytes + a->plan->device[0].persist_bytes;
        allowed = k ? allowance(a, bytes[0], drawn) : 0;
        nnc_artifact_destroy(a);
    }
    if (bytes[1] > bytes[0] + allowed)
        test_fail(__FILE__, __LINE__,
            "-O1: %lld bytes, -O2: %lld, %.3f times, allowed %lld more: %s", (long long)bytes[0],
            (long long)bytes[1], (double)bytes[1] / (double)bytes[0], (long long)allowed, text);
}

static nnc_env *described(void)
{
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){TEST_CACHED, .target = "tests/cli/machine.json"}, &e, test_sink));
    return e;
}

TEST(step_memory_by_level)
{
    nnc_env *e = described();
    for (int i = 0, n = test_draws(CASES); i < n && e; i++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_graph *step = draw_step(&t, nnc_rng_key("levels", test_seed + (uint64_t)i));
        check_levels(e, step, true, nnc_text_str(&t));
        nnc_graph_destroy(step);
    }
    nnc_env_destroy(e);
}

/* Sums over few channels of a large tensor: what is summed, (x - mean)^2 and dy (x - mean), is not stored. */
TEST(batchnorm_step_memory_by_level)
{
    static const char *const acts[] = {"relu", "tanh", "silu"};
    nnc_env *e = described();
    for (int i = 0; i < (int)NNC_COUNT(acts) && e; i++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_graph *step = NULL;
        nnc_puts(&t, "{\"inputs\": {\"x\": [8, 3, 32, 32]}, \"layers\": [");
        for (int k = 0; k < 4; k++)
            nnc_printf(&t,
                "{\"op\": \"conv\", \"channels\": 32, \"kernel\": 1, \"bias\": 0}, "
                "\"batchnorm\", \"%s\", ",
                acts[i]);
        nnc_puts(&t, "\"global_avgpool\", \"flatten\", {\"op\": \"linear\", \"out\": 10}]}");
        nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(&t), t.n, NULL, test_sink);
        CHECK_OK(g ? nnc_train_graph(g, &nnc_training_defaults, &step, test_sink) : NNC_E_MODEL);
        check_levels(e, step, false, acts[i]);
        nnc_graph_destroy(step);
        nnc_graph_destroy(g);
    }
    nnc_env_destroy(e);
}

TEST(models_step_memory_by_level)
{
    static const char *const models[] = {"conv", "conv_fc_stack", "unet", "linear", "layernorm",
        "mlp", "transformer_mlp", "lstm_classifier", "multi_conv1d", "vgg16", "vit_b16",
        "googlenet"};
    nnc_env *e = described();
    for (int i = 0; i < (int)NNC_COUNT(models) && e; i++) {
        char file[64];
        nnc_graph *step = NULL;
        if (!test_takes((uint64_t)i, 4))
            continue;
        snprintf(file, sizeof file, "models/%s.json", models[i]);
        nnc_graph *g = nnc_model_load(file, NULL, test_sink);
        CHECK_OK(g ? nnc_train_graph(g, &nnc_training_defaults, &step, test_sink) : NNC_E_MODEL);
        check_levels(e, step, false, models[i]);
        nnc_graph_destroy(step);
        nnc_graph_destroy(g);
    }
    nnc_env_destroy(e);
}

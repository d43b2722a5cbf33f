/* tests/frontend/models.c -- the models of models/: shapes and parameter counts known from the
 * papers. */
#include "frontend/frontend.h"
#include "test.h"

#include <math.h>

static nnc_graph *load(
    const char *file, const nnc_set *set, int n_set, const nnc_set_word *word, int n_word)
{
    nnc_model_options o = {.set = set, .n_set = n_set, .word = word, .n_word = n_word, .seed = 1};
    nnc_graph *g = nnc_model_load(file, &o, test_sink);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s does not load", file);
        nnc_sink_print(test_sink, stderr);
        return NULL;
    }
    CHECK_OK(nnc_verify(g, test_sink));
    CHECK_INT(nnc_sink_count(test_sink), 0);
    return g;
}

static void check_type(const nnc_graph *g, nnc_ref r, const char *want)
{
    nnc_text t = {0};
    nnc_put_type(&t, nnc_typeof(g, r));
    CHECK_STR(nnc_text_str(&t), want);
    nnc_text_deinit(&t);
}

/* Loads with at most one integer and one word set; checks the only output's type, and the
 * numbers of parameters and of running statistics. */
static void expect_both(const char *file, nnc_set set, nnc_set_word word, const char *out,
    int64_t params, int64_t stats)
{
    nnc_graph *g = load(file, &set, set.name != NULL, &word, word.name != NULL);
    if (!g)
        return;
    CHECK_INT(g->n_output, 1);
    check_type(g, g->output[0], out);
    int64_t parameters, statistics;
    CHECK(nnc_param_count(g, &parameters, &statistics));
    CHECK_INT(parameters, params);
    CHECK_INT(statistics, stats);
    nnc_text a = {0}, b = {0};
    nnc_graph_print(&a, g); /* models survive the text form */
    nnc_graph *again = nnc_model_parse("text", nnc_text_str(&a), a.n, NULL, test_sink);
    CHECK(again != NULL);
    if (again) {
        nnc_graph_print(&b, again);
        CHECK_STR(nnc_text_str(&b), nnc_text_str(&a));
    }
    nnc_graph_destroy(again);
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    nnc_graph_destroy(g);
}

static void expect(
    const char *file, nnc_set set, nnc_set_word word, const char *out, int64_t params)
{
    expect_both(file, set, word, out, params, 0);
}

static const nnc_node *find_param(const nnc_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && !strcmp(g->node[i].weight->name, name))
            return &g->node[i];
    return NULL;
}

#define NO_SET ((nnc_set){0})
#define NO_WORD ((nnc_set_word){0})

TEST(vgg16)
{
    expect("models/vgg16.json", NO_SET, NO_WORD, "f32[1,1000]", 138357544);
    expect("models/vgg16.json", (nnc_set){"batch", 8}, (nnc_set_word){"order", "pool-relu"},
        "f32[8,1000]", 138357544);
    /* gamma, beta and mean, var of 4224 channels */
    expect_both("models/vgg16.json", (nnc_set){"bn", 1}, NO_WORD, "f32[1,1000]",
        138357544 + 2 * 4224, 2 * 4224);
    /* 32: the last map is 1x1, so the first linear layer has 512 inputs instead of 25088 */
    expect("models/vgg16.json", (nnc_set){"image", 32}, NO_WORD, "f32[1,1000]",
        138357544 - 4096 * (25088 - 512));
}

/* torchvision's efficientnet_b0 has 5288548 parameters; its batchnorms have 21008 channels. */
TEST(efficientnet_b0)
{
    static const char file[] = "models/efficientnet_b0.json";
    expect_both(file, NO_SET, NO_WORD, "f32[1,1000]", 5288548, 2 * 21008);
    expect_both(file, (nnc_set){"image", 33}, NO_WORD, "f32[1,1000]", 5288548, 2 * 21008);
    expect_both(file, (nnc_set){"classes", 10}, NO_WORD, "f32[1,10]", 5288548 - 990 * 1281, 42016);
    nnc_graph *g = load(file, NULL, 0, NULL, 0);
    if (!g)
        return;
    CHECK(find_param(g, "features.0.0.weight") && find_param(g, "features.0.1.running_var") &&
          find_param(g, "features.1.0.block.0.0.weight") &&
          find_param(g, "features.1.0.block.1.fc2.bias") &&
          find_param(g, "features.6.3.block.1.0.weight") &&
          find_param(g, "features.6.3.block.2.fc1.weight") &&
          find_param(g, "features.6.3.block.3.1.bias") && find_param(g, "classifier.1.bias"));
    nnc_graph_destroy(g);
}

/* torchvision's mobilenet_v2 has 3504872 parameters; its batchnorms have 17056 channels. */
TEST(mobilenet_v2)
{
    static const char file[] = "models/mobilenet_v2.json";
    expect_both(file, NO_SET, NO_WORD, "f32[1,1000]", 3504872, 2 * 17056);
    expect_both(file, (nnc_set){"image", 33}, NO_WORD, "f32[1,1000]", 3504872, 2 * 17056);
    expect_both(file, (nnc_set){"classes", 10}, NO_WORD, "f32[1,10]", 3504872 - 990 * 1281, 34112);
    nnc_graph *g = load(file, NULL, 0, NULL, 0);
    if (!g)
        return;
    static const struct {
        const char *name, *type;
    } some[] = {{"features.0.0.weight", "f32[32,3,3,3]"}, {"features.0.1.running_var", "f32[32]"},
        {"features.1.conv.0.0.weight", "f32[32,1,3,3]"},
        {"features.1.conv.1.weight", "f32[16,32,1,1]"}, {"features.1.conv.2.bias", "f32[16]"},
        {"features.2.conv.0.0.weight", "f32[96,16,1,1]"},
        {"features.14.conv.1.0.weight", "f32[576,1,3,3]"},
        {"features.17.conv.2.weight", "f32[320,960,1,1]"},
        {"features.17.conv.3.running_mean", "f32[320]"},
        {"features.18.0.weight", "f32[1280,320,1,1]"}, {"features.18.1.weight", "f32[1280]"},
        {"classifier.1.weight", "f32[1000,1280]"}, {"classifier.1.bias", "f32[1000]"}};
    for (size_t i = 0; i < NNC_COUNT(some); i++) {
        const nnc_node *n = find_param(g, some[i].name);
        CHECK(n != NULL);
        if (n)
            check_type(g, n->out, some[i].type);
    }
    nnc_graph_destroy(g);
}

/* A first convolution of 3x3 instead of 7x7. No pooling after it, so that the last map of an image of 32x32 is
 * 4x4. */
TEST(stems_for_small_images)
{
    static const nnc_set_word cifar = {"stem", "cifar"};
    const int64_t fewer = 64 * 3 * (49 - 9);
    expect_both("models/resnet50.json", NO_SET, cifar, "f32[1,1000]", 25557032 - fewer, 53120);
    expect_both("models/resnet101.json", NO_SET, cifar, "f32[1,1000]", 44549160 - fewer, 105344);
    expect_both("models/densenet121.json", NO_SET, cifar, "f32[1,1000]", 7978856 - fewer, 83648);
    nnc_graph *g = load("models/resnet50.json", &(nnc_set){"image", 32}, 1, &cifar, 1);
    if (!g)
        return;
    const nnc_node *pool = NULL;
    for (uint32_t i = 0; i < g->n_node; i++)
        pool = g->node[i].op == OP_global_avgpool ? &g->node[i] : pool;
    CHECK(pool != NULL);
    if (pool)
        check_type(g, pool->in[0], "f32[1,2048,4,4]");
    nnc_graph_destroy(g);
}

/* torchvision's densenet121 has 7978856 parameters; its batchnorms have 41824 channels. */
TEST(densenet121)
{
    static const char file[] = "models/densenet121.json";
    expect_both(file, NO_SET, NO_WORD, "f32[1,1000]", 7978856, 2 * 41824);
    expect_both(file, (nnc_set){"classes", 10}, NO_WORD, "f32[1,10]", 7978856 - 990 * 1025, 83648);
    nnc_graph *g = load(file, NULL, 0, NULL, 0);
    if (!g)
        return;
    CHECK(find_param(g, "features.conv0.weight") && find_param(g, "features.norm0.bias") &&
          find_param(g, "features.denseblock1.denselayer1.norm1.weight") &&
          find_param(g, "features.denseblock3.denselayer24.conv2.weight") &&
          find_param(g, "features.transition3.conv.weight") &&
          find_param(g, "features.norm5.running_mean") && find_param(g, "classifier.bias"));
    nnc_graph_destroy(g);
}

TEST(small_models)
{
    expect("models/nested_sin.json", NO_SET, NO_WORD, "f32[16777216]", 0);
    expect("models/nested_sin.json", (nnc_set){"n", 100}, (nnc_set_word){"dtype", "f16"},
        "f16[100]", 0);
    expect("models/matmul.json", (nnc_set){"dim", 512}, NO_WORD, "f32[512,512]", 0);
    expect("models/relu.json", NO_SET, NO_WORD, "f32[256,3,224,224]", 0);
    expect("models/maxpool.json", NO_SET, NO_WORD, "f32[256,3,112,112]", 0);
    expect("models/conv.json", NO_SET, NO_WORD, "f32[256,128,224,224]", 128 * 27 + 128);
    expect("models/linear.json", (nnc_set){"batch", 2}, NO_WORD, "f32[2,4096]",
        INT64_C(25088) * 4096 + 4096);
    expect("models/mlp.json", NO_SET, (nnc_set_word){"act", "silu"}, "f32[256,10]",
        785 * 512 + 2 * 513 * 512 + 513 * 10);
    expect("models/conv_fc_stack.json", NO_SET, NO_WORD, "f32[16,4096]",
        4 * (64 * 64 * 9 + 64) + 65 * 4096 + 4097 * 4096);
    expect("models/softmax.json", NO_SET, NO_WORD, "f32[4096,4096]", 0);
    expect("models/layernorm.json", NO_SET, NO_WORD, "f32[4096,4096]", 8192);
    expect("models/transformer_mlp.json", NO_SET, NO_WORD, "f32[8,128,768]",
        2 * (2 * 768 + 769 * 3072 + 3073 * 768) + 2 * 768);
}

TEST(vgg16_names_and_scales)
{
    nnc_graph *g = load("models/vgg16.json", NULL, 0, NULL, 0);
    if (!g)
        return;
    const nnc_node *first = find_param(g, "features.0.weight"),
                   *last = find_param(g, "classifier.6.weight");
    CHECK(first && find_param(g, "features.28.bias") && find_param(g, "classifier.3.bias") && last);
    if (first && last) {
        CHECK_STR(first->origin, "/layers/0/conv1[0]/0/conv");
        CHECK_INT(first->loc.line, 10);
        CHECK_NEAR(first->weight->scale, 0.47140452, 1e-6); /* sqrt(6/27): relu follows */
        CHECK_NEAR(last->weight->scale, 0.027063293, 1e-7); /* sqrt(3/4096): nothing follows */
    }
    nnc_graph_destroy(g);
}

/* What follows a contraction decides its scale, also after a batchnorm: relu, a residual sum, nothing. */
TEST(scales_by_what_follows)
{
    static const char text[] =
        "{\"inputs\": {\"x\": [1, 6, 4, 4]}, \"layers\": ["
        "{\"op\": \"conv\", \"name\": \"a\", \"channels\": 6, \"kernel\": 1}, \"batchnorm\", "
        "{\"op\": \"relu\", \"name\": \"r\"}, "
        "{\"op\": \"conv\", \"name\": \"b\", \"channels\": 6, \"kernel\": 1}, \"batchnorm\", "
        "{\"op\": \"add\", \"in\": [\"prev\", \"r\"], \"name\": \"sum\"}, "
        "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 6, \"kernel\": 1}, \"softmax\"]}";
    static const struct {
        const char *name;
        double variance; /* times the fan-in */
    } want[] = {{"a.weight", 6}, {"b.weight", 0.75}, {"c.weight", 3}};
    nnc_graph *g = nnc_model_parse("m.json", text, strlen(text), NULL, test_sink);
    CHECK(g != NULL);
    for (size_t i = 0; g && i < NNC_COUNT(want); i++) {
        const nnc_node *n = find_param(g, want[i].name);
        CHECK(n != NULL);
        if (n)
            CHECK_NEAR(n->weight->scale, sqrt(want[i].variance / 6), 1e-6);
    }
    nnc_graph_destroy(g);
}

TEST(nested_sin_origins)
{
    nnc_set set[2] = {{"n", 8}, {"depth", 3}};
    nnc_graph *g = load("models/nested_sin.json", set, 2, NULL, 0);
    if (!g)
        return;
    CHECK_INT(g->n_node, 4);
    CHECK_STR(g->node[3].origin, "/layers/0/sin[2]");
    CHECK_STR(g->node[0].origin, "/inputs/x");
    nnc_graph_destroy(g);
}

/* Sixteen convolutions and two linear layers deep, activations still have the size of the input. */
TEST(activations_keep_their_size)
{
    nnc_set set[] = {{"batch", 1}, {"image", 6}, {"conv", 16}, {"channels", 32}, {"features", 64}};
    nnc_graph *g = load("models/conv_fc_stack.json", set, 5, NULL, 0);
    static float x[64 * 36];
    const void *in[1] = {x};
    nnc_rval out = {0};
    double sum = 0;
    if (!g)
        return;
    nnc_rng_fill(nnc_rng_key("x", 1), 0, NNC_COUNT(x), 1.7320508f, x); /* variance 1 */
    CHECK_OK(nnc_eval(g, in, 1, &out, test_sink));
    for (int i = 0; i < 64 && out.f; i++)
        sum += out.f[i] * out.f[i];
    /* The mean over the map shrinks it, borders lose taps: within a factor of 30 after 18 layers. */
    CHECK(sum / 64 > 1.0 / 900 && sum / 64 < 900);
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
}

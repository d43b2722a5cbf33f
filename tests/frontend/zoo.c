/* tests/frontend/zoo.c -- the models that people know, against what their authors and torchvision publish. Compared are parameters,
 * layers by kind, multiply-adds and names of weights. Layers that some of them are made of are compared with numbers of PyTorch's
 * documentation and with loops. */
#include "frontend/frontend.h"
#include "test.h"

#include <math.h>

enum { MAX_ARGS = 2 };
typedef struct published {
    const char *file;
    nnc_set set[MAX_ARGS];
    int64_t parameters, statistics;
    int conv, depthwise, batchnorm, linear, matmul;
    double gmacs; /* 10^9 multiply-adds of contractions */
    const char *weight,
        *type; /* one of the last weights by its name in torchvision's or Hugging Face's state dict */
} published;

/* Parameters and multiply-adds ("GFLOPS") of torchvision.models' weights' meta data; those of bert_base and unet are derived. BERT's
 * layer has 4 d^2 + 2 d 3072 weights, each used once a token, and two products of 12 heads, 128 x 128 x 64. */
static const published all[] = {
    {"vgg16", {{0}}, 138357544, 0, 13, 0, 0, 3, 0, 15.47, "classifier.6.weight", "f32[1000,4096]"},
    {"resnet50", {{0}}, 25557032, 53120, 53, 0, 53, 1, 0, 4.089, "layer4.2.bn3.running_var",
        "f32[2048]"},
    {"resnet101", {{0}}, 44549160, 105344, 104, 0, 104, 1, 0, 7.801, "layer3.22.conv3.weight",
        "f32[1024,256,1,1]"},
    {"densenet121", {{0}}, 7978856, 83648, 120, 0, 121, 1, 0, 2.834, "features.norm5.weight",
        "f32[1024]"},
    {"densenet121", {{"image", 32}, {"batch", 200}}, 7978856, 83648, 120, 0, 121, 1, 0,
        200 * ((2.834 - 0.001024) / 49 + 0.001024), "features.norm5.weight", "f32[1024]"},
    {"efficientnet_b0", {{0}}, 5288548, 42016, 81, 16, 49, 1, 0, 0.386,
        "features.7.0.block.3.1.bias", "f32[320]"},
    {"efficientnet_b3", {{0}}, 12233232, 87296, 130, 26, 78, 1, 0, 1.827,
        "features.7.1.block.3.1.bias", "f32[384]"},
    {"efficientnet_b5", {{0}}, 30389784, 172736, 194, 39, 116, 1, 0, 10.266,
        "features.7.2.block.3.1.bias", "f32[512]"},
    {"mobilenet_v2", {{0}}, 3504872, 34112, 52, 17, 52, 1, 0, 0.301, "features.18.1.weight",
        "f32[1280]"},
    {"googlenet", {{0}}, 6624904, 14560, 57, 0, 57, 1, 0, 1.498,
        "inception5b.branch4.1.conv.weight", "f32[128,832,1,1]"},
    {"inception_v3", {{0}}, 23834568, 34432, 94, 0, 94, 1, 0, 5.713,
        "Mixed_7c.branch_pool.conv.weight",
        "f32[192,2048,1,1]"}, /* 27161264 with the auxiliary classifier */
    {"vit_b16", {{0}}, 86567656, 0, 1, 0, 0, 49, 24, 17.564,
        "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", "f32[2304,768]"},
    {"bert_base", {{0}}, 109482240, 0, 0, 0, 0, 73, 24,
        (12 * (128. * (4 * 768 * 768 + 2 * 768 * 3072) + 2. * 12 * 128 * 128 * 64) + 768 * 768) *
            1e-9,
        "encoder.layer.11.output.LayerNorm.weight", "f32[768]"},
    /* the tutorial's count; the products of the inputs, those of the states are in the recurrence */
    {"lstm_classifier", {{"classes", 1}}, 4810857, 0, 0, 0, 0, 5, 0,
        (128. * 2 * 1024 * (100 + 512) + 512) * 1e-9, "rnn.bias_hh_l1_reverse", "f32[1024]"},
    {"unet", {{"channels", 64}, {"image", 512}}, 17263042, 8832, 19, 0, 18, 0, 0, 160.0,
        "up4.conv.double_conv.3.weight", "f32[64,64,3,3]"},
    {"multi_linear", {{"models", 1}}, 131584, 0, 0, 0, 0, 1, 0, 131072e-9, "model.0.weight",
        "f32[512,256]"},
    {"multi_linear", {{"models", 64}}, 64 * 131584, 0, 0, 0, 0, 64, 0, 64 * 131072e-9,
        "model.63.bias", "f32[512]"},
    {"multi_conv1d", {{"models", 8}}, 8 * 131584, 0, 8, 0, 0, 0, 0, 8 * 131072e-9, "model.7.weight",
        "f32[512,256,1]"},
    {"multi_conv1d", {{"models", 32}, {"batch", 3}}, 32 * 131584, 0, 32, 0, 0, 0, 0,
        3 * 32 * 131072e-9, "model.31.weight", "f32[512,256,1]"},
    {"multi_gconv1d", {{"models", 64}}, 64 * 131584, 0, 1, 0, 0, 0, 0, 64 * 131072e-9,
        "model.weight", "f32[32768,256,1]"},
};

static double macs_of(const nnc_graph *g, const nnc_node *n)
{
    nnc_cost c = nnc_node_cost(g, n);
    bool bias = n->op != OP_matmul && n->n_in == 3;
    return (double)(c.flops - (bias ? nnc_type_numel(nnc_typeof(g, n->out)) : 0)) / 2;
}

static void check_weight(const nnc_graph *g, const published *p)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && !strcmp(g->node[i].weight->name, p->weight)) {
            nnc_text t = {0};
            nnc_put_type(&t, nnc_typeof(g, g->node[i].out));
            CHECK_STR(nnc_text_str(&t), p->type);
            nnc_text_deinit(&t);
            return;
        }
    test_fail(__FILE__, __LINE__, "%s has no weight %s", p->file, p->weight);
}

TEST(published_numbers)
{
    for (size_t m = 0; m < NNC_COUNT(all); m++) {
        const published *p = &all[m];
        char file[100];
        int n_set = 0, count[OP__COUNT] = {0}, depthwise = 0;
        double macs = 0;
        int64_t parameters, statistics;
        while (n_set < MAX_ARGS && p->set[n_set].name)
            n_set++;
        snprintf(file, sizeof file, "models/%s.json", p->file);
        nnc_model_options o = {.set = p->set, .n_set = n_set};
        nnc_graph *g = nnc_model_load(file, &o, test_sink);
        if (!g) {
            test_fail(__FILE__, __LINE__, "%s does not load", file);
            nnc_sink_print(test_sink, stderr);
            continue;
        }
        for (uint32_t i = 0; i < g->n_node; i++) {
            const nnc_node *n = &g->node[i];
            count[n->op]++;
            depthwise += nnc_is_depthwise(g, n);
            macs += nnc_op_class((nnc_op)n->op) == CL_contract ? macs_of(g, n) : 0;
        }
        CHECK(nnc_param_count(g, &parameters, &statistics));
        CHECK_INT(parameters, p->parameters);
        CHECK_INT(statistics, p->statistics);
        CHECK_INT(count[OP_conv], p->conv);
        CHECK_INT(depthwise, p->depthwise);
        CHECK_INT(count[OP_batchnorm], p->batchnorm);
        CHECK_INT(count[OP_linear], p->linear);
        CHECK_INT(count[OP_matmul], p->matmul);
        if (fabs(macs * 1e-9 / p->gmacs - 1) > 0.01)
            test_fail(__FILE__, __LINE__, "%s: %.4f multiply-adds, expected %.4f (10^9)", p->file,
                macs * 1e-9, p->gmacs);
        check_weight(g, p);
        nnc_graph_destroy(g);
    }
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

static void yields(
    const char *inputs, const char *layers, const void *const *in, const double *want, int64_t n)
{
    nnc_text t = {0};
    nnc_rval out = {0};
    nnc_printf(&t, "{\"inputs\": {%s}, \"layers\": [%s]}", inputs, layers);
    nnc_graph *g = nnc_model_parse("m", nnc_text_str(&t), t.n, NULL, test_sink);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s", nnc_text_str(&t));
        nnc_sink_print(test_sink, stderr);
    } else {
        CHECK_OK(nnc_eval(g, in, 1, &out, test_sink));
        CHECK_INT(nnc_type_numel(&out.type), n);
        for (int64_t i = 0; out.f && i < n && i < nnc_type_numel(&out.type); i++)
            if (!(fabs(out.f[i] - want[i]) < 1e-6))
                test_fail(__FILE__, __LINE__, "%s: element %lld is %g, not %g", layers,
                    (long long)i, out.f[i], want[i]);
    }
    nnc_rval_free(&out);
    nnc_graph_destroy(g);
    nnc_text_deinit(&t);
}

#define INTERPOLATE(more) "{\"op\": \"interpolate\", " more "}"
#define LINEAR "\"mode\": \"linear\""

/* The examples of torch.nn.Upsample's documentation, and sizes that are no multiples. */
TEST(interpolation)
{
    static const float x[] = {1, 2, 3, 4}, row[] = {0, 1, 2, 3, 4}, far[] = {3, 7};
    const void *in[] = {x}, *in5[] = {row}, *in2[] = {far};
    static const char image[] = "\"x\": [1, 1, 2, 2]", line[] = "\"x\": [1, 1, 5]";
    yields(image, INTERPOLATE("\"scale_factor\": 2"), in,
        (double[]){1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, 16);
    yields(image, INTERPOLATE("\"scale_factor\": 2, " LINEAR), in,
        (double[]){1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4},
        16);
    yields(image, INTERPOLATE("\"size\": 4, \"align_corners\": true, " LINEAR), in,
        (double[]){1, 4. / 3, 5. / 3, 2, 5. / 3, 2, 7. / 3, 8. / 3, 7. / 3, 8. / 3, 3, 10. / 3, 3,
            10. / 3, 11. / 3, 4},
        16);
    yields(image, INTERPOLATE("\"size\": [1, 3]"), in, (double[]){1, 1, 2}, 3);
    yields(line, INTERPOLATE("\"size\": 8"), in5, (double[]){0, 0, 1, 1, 2, 3, 3, 4}, 8);
    yields(line, INTERPOLATE("\"scale_factor\": 0.5"), in5, (double[]){0, 2}, 2);
    yields(line, INTERPOLATE("\"size\": 2, " LINEAR), in5, (double[]){0.75, 3.25}, 2);
    yields(line, INTERPOLATE("\"size\": 5, " LINEAR), in5, (double[]){0, 1, 2, 3, 4}, 5);
    yields(
        line, INTERPOLATE("\"size\": 1, \"align_corners\": true, " LINEAR), in5, (double[]){0}, 1);
    yields("\"x\": [1, 1, 2]", INTERPOLATE("\"scale_factor\": 2.7, " LINEAR), in2,
        (double[]){
            3, 3 + 4 * (1.5 / 2.7 - 0.5), 3 + 4 * (2.5 / 2.7 - 0.5), 3 + 4 * (3.5 / 2.7 - 0.5), 7},
        5);
}

/* Windows overlap where the extent is no multiple: of 8, the thirds are 0 to 2, 2 to 5 and 5 to 7. */
TEST(adaptive_pooling)
{
    static const float x[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const void *in[] = {x};
    static const char line[] = "\"x\": [1, 1, 8]", image[] = "\"x\": [1, 1, 2, 4]";
    yields(
        line, "{\"op\": \"adaptive_avgpool\", \"output_size\": 3}", in, (double[]){1, 3.5, 6}, 3);
    yields(line, "{\"op\": \"adaptive_maxpool\", \"output_size\": 3}", in, (double[]){2, 5, 7}, 3);
    yields(line, "{\"op\": \"adaptive_avgpool\", \"output_size\": 4}", in,
        (double[]){0.5, 2.5, 4.5, 6.5}, 4);
    yields(line, "{\"op\": \"adaptive_maxpool\", \"output_size\": 1}", in, (double[]){7}, 1);
    yields(image, "{\"op\": \"adaptive_avgpool\", \"output_size\": [1, 3]}", in,
        (double[]){2.5, 3.5, 4.5}, 3);
    yields(image, "{\"op\": \"adaptive_maxpool\", \"output_size\": [3, 1]}", in,
        (double[]){3, 7, 7}, 3);
}

enum { T = 3, S = 4, HEADS = 2, D = 2, E = 3 };

/* softmax(q k^T scale + mask) v by loops; keep: which of the S keys each of the T queries sees; add: a number per key. */
static void attend(const float *q, const float *k, const float *v, double scale, const bool *keep,
    const float *add, double *y)
{
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < T; t++) {
            double p[S], sum = 0;
            for (int s = 0; s < S; s++) {
                p[s] = add ? add[s] : 0;
                for (int d = 0; d < D; d++)
                    p[s] += scale * q[(t * HEADS + h) * D + d] * k[(s * HEADS + h) * D + d];
                sum += p[s] = !keep || keep[t * S + s] ? exp(p[s]) : 0;
            }
            for (int e = 0; e < E; e++) {
                double *out = &y[(t * HEADS + h) * E + e];
                *out = 0;
                for (int s = 0; s < S; s++)
                    *out += p[s] / sum * v[(s * HEADS + h) * E + e];
            }
        }
}

TEST(attention_by_loops)
{
    float q[T * HEADS * D], k[S * HEADS * D], v[S * HEADS * E];
    static const float add[S] = {0.5f, -1, 0, 2};
    static const bool keep[T * S] = {1, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1},
                               causal[T * S] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0};
    double y[T * HEADS * E];
    nnc_rng_fill(1, 0, NNC_COUNT(q), 2, q);
    nnc_rng_fill(2, 0, NNC_COUNT(k), 2, k);
    nnc_rng_fill(3, 0, NNC_COUNT(v), 2, v);
    const void *plain[] = {q, k, v}, *masked[] = {q, k, v, keep}, *added[] = {q, k, v, add};
#define QKV "\"q\": [1, 3, 4], \"k\": [1, 4, 4], \"v\": [1, 4, 6]"
#define ATTENTION(more) \
    "{\"op\": \"attention\", \"heads\": 2, \"in\": [\"q\", \"k\", \"v\"" more "}"
    attend(q, k, v, 1 / sqrt(D), NULL, NULL, y);
    yields(QKV, ATTENTION("]"), plain, y, NNC_COUNT(y));
    attend(q, k, v, 0.3, causal, NULL, y);
    yields(QKV, ATTENTION("], \"causal\": true, \"scale\": 0.3"), plain, y, NNC_COUNT(y));
    attend(q, k, v, 1 / sqrt(D), keep, NULL, y);
    yields(QKV ", \"m\": {\"shape\": [3, 4], \"dtype\": \"bool\"}", ATTENTION(", \"m\"]"), masked,
        y, NNC_COUNT(y));
    attend(q, k, v, 1 / sqrt(D), NULL, add, y);
    yields(QKV ", \"m\": [1, 1, 1, 4]", ATTENTION(", \"m\"]"), added, y, NNC_COUNT(y));
}

/* One head that is named: masks have its dimension, [.., 1, T, S], or not. */
TEST(attention_of_one_head)
{
    static const char *const heads[] = {"\"heads\": 1, ", "\"heads\": 1, ", ""}, *const shape[] = {
                                                                                     "[2, 1, 1, 4]",
                                                                                     "[2, 1, 4]",
                                                                                     "[2, 1, 4]"};
    static const bool keep[2 * S] = {1, 0, 1, 1, 0, 1, 1, 0};
    float q[2 * T * D], k[2 * S * D], v[2 * S * E];
    nnc_rval out[3] = {{{0}, NULL, NULL}};
    nnc_rng_fill(1, 0, NNC_COUNT(q), 2, q);
    nnc_rng_fill(2, 0, NNC_COUNT(k), 2, k);
    nnc_rng_fill(3, 0, NNC_COUNT(v), 2, v);
    const void *data[] = {q, k, v, keep};
    for (int i = 0; i < 3; i++) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_printf(&t,
            "{\"inputs\": {\"q\": [2, %d, %d], \"k\": [2, %d, %d], \"v\": [2, %d, %d], \"m\": "
            "{\"shape\": %s, \"dtype\": \"bool\"}}, \"layers\": [{\"op\": \"attention\", %s\"in\": "
            "[\"q\", \"k\", \"v\", \"m\"]}]}",
            T, D, S, D, S, E, shape[i], heads[i]);
        nnc_graph *g = nnc_model_parse("m", nnc_text_str(&t), t.n, NULL, test_sink);
        CHECK(g != NULL);
        if (g)
            CHECK_OK(nnc_eval(g, data, 1, &out[i], test_sink));
        nnc_graph_destroy(g);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; out[i].f && out[2].f && j < 2 * T * E; j++)
            CHECK(out[i].f[j] == out[2].f[j]);
    CHECK(out[0].f && out[1].f && out[2].f && out[2].f[0] != out[2].f[T * E]);
    for (int i = 0; i < 3; i++)
        nnc_rval_free(&out[i]);
}

/* nn.MultiheadAttention of x alone is that of x, x and x, whatever form its projections have. */
TEST(multihead_attention_forms)
{
    static const char *const in[] = {"\"x\"", "[\"x\", \"y\", \"x\"]"};
    float x[2 * 5 * 6];
    nnc_rng_fill(7, 0, NNC_COUNT(x), 1.7f, x);
    const void *data[] = {x, x};
    nnc_rval out[2] = {{{0}, NULL, NULL}};
    for (int i = 0; i < 2; i++) {
        nnc_text t = {0};
        nnc_printf(&t,
            "{\"inputs\": {\"x\": [2, 5, 6], \"y\": [2, 5, 6]}, \"layers\": [{\"op\": "
            "\"multihead_attention\", \"name\": \"a\", \"heads\": 3, \"causal\": true, \"in\": "
            "%s}]}",
            in[i]);
        nnc_graph *g = nnc_model_parse("m", nnc_text_str(&t), t.n, NULL, test_sink);
        CHECK(g != NULL);
        if (g) {
            int64_t parameters, statistics;
            CHECK(nnc_param_count(g, &parameters, &statistics));
            CHECK_INT(parameters, 4 * 6 * 6 + 4 * 6);
            CHECK_OK(nnc_eval(g, data, 1, &out[i], test_sink));
        }
        nnc_graph_destroy(g);
        nnc_text_deinit(&t);
    }
    double sum = 0;
    for (int i = 0; out[0].f && out[1].f && i < (int)NNC_COUNT(x); i++) {
        CHECK_NEAR(out[0].f[i], out[1].f[i], 1e-12);
        sum += fabs(out[0].f[i]);
    }
    CHECK(sum > 1);
    nnc_rval_free(&out[0]);
    nnc_rval_free(&out[1]);
}

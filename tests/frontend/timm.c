/* tests/frontend/timm.c -- files of weights with timm's names. The names are made as timm's modules make them (timm 1.0.31:
 * _efficientnet_blocks.py, vgg.py, vision_transformer.py, resnet.py, densenet.py). They are in the order of its state dicts, which
 * is torchvision's: tensor k of the file is weight k of the model. */
#include "session/session.h"
#include "ir/ir.h"
#include "tensors/tensors.h"
#include "test.h"

#include <unistd.h>

enum { MOST = 1500 };

typedef struct names {
    char name[MOST][80];
    int n;
} names;

static void add(names *t, const char *path, const char *const *ends)
{
    for (; *ends && t->n < MOST; ends++)
        snprintf(t->name[t->n++], sizeof t->name[0], "%s.%s", path, *ends);
}

static const char *const weight[] = {"weight", NULL}, *const both[] = {"weight", "bias", NULL},
                         *const norm[] = {"weight", "bias", "running_mean", "running_var", NULL};

/* A path with what is in it. */
static void put(names *t, const char *const *ends, const char *path, int a, int b)
{
    char text[80];
    snprintf(text, sizeof text, path, a, b);
    add(t, text, ends);
}

/* se: without it a MobileNetV2. */
static void efficientnet(names *t, const int *depth, bool se)
{
    add(t, "conv_stem", weight);
    add(t, "bn1", norm);
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < depth[s]; i++) {
            if (s) {
                put(t, weight, "blocks.%d.%d.conv_pw", s, i);
                put(t, norm, "blocks.%d.%d.bn1", s, i);
            }
            put(t, weight, "blocks.%d.%d.conv_dw", s, i);
            put(t, norm, s ? "blocks.%d.%d.bn2" : "blocks.%d.%d.bn1", s, i);
            if (se) {
                put(t, both, "blocks.%d.%d.se.conv_reduce", s, i);
                put(t, both, "blocks.%d.%d.se.conv_expand", s, i);
            }
            put(t, weight, s ? "blocks.%d.%d.conv_pwl" : "blocks.%d.%d.conv_pw", s, i);
            put(t, norm, s ? "blocks.%d.%d.bn3" : "blocks.%d.%d.bn2", s, i);
        }
    add(t, "conv_head", weight);
    add(t, "bn2", norm);
    add(t, "classifier", both);
}

static void vgg16(names *t, bool bn)
{
    static const int units[] = {2, 2, 3, 3, 3};
    for (int s = 0, at = 0; s < 5; s++, at++) /* a pooling */
        for (int i = 0; i < units[s]; i++, at += 2 + bn) {
            put(t, both, "features.%d", at, 0);
            if (bn)
                put(t, norm, "features.%d", at + 1, 0);
        }
    add(t, "pre_logits.fc1", both);
    add(t, "pre_logits.fc2", both);
    add(t, "head.fc", both);
}

static void vit(names *t, int layers)
{
    static const char *const parts[] = {
        "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"};
    snprintf(t->name[t->n++], sizeof t->name[0], "cls_token");
    snprintf(t->name[t->n++], sizeof t->name[0], "pos_embed");
    add(t, "patch_embed.proj", both);
    for (int i = 0; i < layers; i++)
        for (size_t k = 0; k < NNC_COUNT(parts); k++) {
            char path[40];
            snprintf(path, sizeof path, "blocks.%d.%s", i, parts[k]);
            add(t, path, both);
        }
    add(t, "norm", both);
    add(t, "head", both);
}

static void resnet(names *t, const int *depth)
{
    static const char *const parts[] = {"conv1", "bn1", "conv2", "bn2", "conv3", "bn3"};
    add(t, "conv1", weight);
    add(t, "bn1", norm);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < depth[s]; i++) {
            for (size_t k = 0; k < NNC_COUNT(parts); k++) {
                char path[40];
                snprintf(path, sizeof path, "layer%d.%d.%s", s + 1, i, parts[k]);
                add(t, path, *parts[k] == 'c' ? weight : norm);
            }
            if (!i) {
                put(t, weight, "layer%d.0.downsample.0", s + 1, 0);
                put(t, norm, "layer%d.0.downsample.1", s + 1, 0);
            }
        }
    add(t, "fc", both);
}

static void densenet121(names *t)
{
    static const int depth[] = {6, 12, 24, 16};
    add(t, "features.conv0", weight);
    add(t, "features.norm0", norm);
    for (int b = 0; b < 4; b++) {
        for (int i = 0; i < depth[b]; i++)
            for (int k = 1; k <= 2; k++) {
                char path[80];
                snprintf(path, sizeof path, "features.denseblock%d.denselayer%d.norm%d", b + 1,
                    i + 1, k);
                add(t, path, norm);
                memcpy(strstr(path, "norm"), "conv", 4);
                add(t, path, weight);
            }
        if (b < 3) {
            put(t, norm, "features.transition%d.norm", b + 1, 0);
            put(t, weight, "features.transition%d.conv", b + 1, 0);
        }
    }
    add(t, "features.norm5", norm);
    add(t, "classifier", both);
}

/* ---- files ---------------------------------------------------------------------------------------- */

typedef struct file {
    const char *name[MOST];
    nnc_type type[MOST];
    const nnc_type *types[MOST];
    float *zeros;
} file;

static nnc_status give(void *ctx, int i, const void **out, nnc_sink *sink)
{
    (void)i;
    (void)sink;
    *out = ((file *)ctx)->zeros;
    return NNC_OK;
}

/* The file's tensors have the types of the model's weights; linear layers that timm makes by convolutions have four dimensions. */
static void write_file(const names *t, const nnc_graph *g, const char *path)
{
    static file f;
    int n = 0;
    int64_t most = 1;
    for (uint32_t i = 0; i < g->n_node && n < t->n; i++) {
        if (g->node[i].op != OP_param)
            continue;
        nnc_type type = nnc_type_dense(nnc_typeof(g, g->node[i].out));
        if (!strncmp(t->name[n], "pre_logits", 10) && type.rank == 2)
            type = nnc_type_make(DT_f32, 4, (int64_t[]){type.dim[0], type.dim[1], 1, 1});
        f.name[n] = t->name[n];
        f.type[n] = type;
        f.types[n] = &f.type[n];
        most = nnc_max64(most, nnc_type_bytes(&type));
        n++;
    }
    CHECK_INT(n, t->n);
    f.zeros = nnc_calloc((size_t)most, 1);
    const nnc_tensor_source s = {.n = n, .name = f.name, .type = f.types, .data = give, .ctx = &f};
    CHECK_OK(nnc_tensors_write(path, &s, test_sink));
    nnc_free(f.zeros);
}

/* Weight k of the model is tensor k of the file. */
static void check_weights(const names *t, const nnc_graph *g, const char *path, const char *model)
{
    nnc_tensors *st = NULL;
    int n = 0;
    CHECK_OK(nnc_tensors_open(path, NULL, &st, test_sink));
    for (uint32_t i = 0; g && i < g->n_node; i++) {
        const nnc_node *p = &g->node[i];
        if (p->op != OP_param || n == t->n)
            continue;
        const nnc_tensor_entry *e = nnc_tensors_find(st, t->name[n++]);
        if (!e || p->weight->kind != NNC_W_file || p->weight->offset != e->offset)
            test_fail(__FILE__, __LINE__, "%s: %s is not read from %s", model, p->weight->name,
                t->name[n - 1]);
    }
    nnc_tensors_close(st);
}

/* note: said; NULL: nothing, since the names are torchvision's. */
static void check(const char *model, const char *const *args, const names *t, const char *note)
{
    char path[64];
    nnc_open_options *o = nnc_open_options_create();
    snprintf(path, sizeof path, "/tmp/nnc_timm_%d.safetensors", (int)getpid());
    for (; *args; args++)
        CHECK_OK(nnc_open_options_set(o, "set", *args, test_sink));
    nnc_graph *g = nnc_model_open(model, o, test_sink);
    CHECK(g != NULL);
    if (g)
        write_file(t, g, path);
    nnc_model_close(g);
    CHECK_OK(nnc_open_options_set(o, "weights", path, test_sink));
    nnc_sink_clear(test_sink);
    g = nnc_model_open(model, o, test_sink);
    CHECK(g != NULL);
    if (note)
        CHECK_DIAG(note);
    else
        CHECK_INT(nnc_sink_count(test_sink), 0);
    check_weights(t, g, path, model);
    nnc_model_close(g);
    if (note &&
        strstr(note, "EfficientNet")) { /* with another head only that of the file is left out */
        CHECK_OK(nnc_open_options_set(o, "replace-head", "7", test_sink));
        g = nnc_model_open(model, o, test_sink);
        CHECK(g != NULL);
        CHECK_DIAG("2 of its tensors are left out (1 bias, 1 weight)");
        nnc_model_close(g);
    }
    nnc_open_options_destroy(o);
    unlink(path);
}

/* A model with timm's names reads the tensors by them. */
TEST(models_with_timm_names)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [1, 3, 4, 4]}, \"layers\": [{\"op\": \"conv\", \"name\": "
        "\"conv_stem\", \"channels\": 4, \"kernel\": 1, \"bias\": 0}, {\"op\": \"conv\", "
        "\"name\": \"blocks.0.0.se.conv_reduce\", \"channels\": 2, \"kernel\": 1}]}";
    static names t;
    char path[64];
    t.n = 0;
    add(&t, "conv_stem", weight);
    add(&t, "blocks.0.0.se.conv_reduce", both);
    snprintf(path, sizeof path, "/tmp/nnc_timm_%d.json", (int)getpid());
    CHECK_OK(nnc_file_write(path, json, sizeof json - 1, false, test_sink));
    check(path, (const char *const[]){NULL}, &t, NULL);
    unlink(path);
}

TEST(timm_efficientnet)
{
    static const struct {
        const char *model;
        int depth[7];
    } of[] = {{"models/efficientnet_b0.json", {1, 2, 2, 3, 3, 4, 1}},
        {"models/efficientnet_b3.json", {2, 3, 3, 5, 5, 6, 2}},
        {"models/efficientnet_b5.json", {3, 5, 5, 7, 7, 9, 3}}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        static names t;
        t.n = 0;
        efficientnet(&t, of[i].depth, true);
        check(of[i].model, (const char *const[]){"slim=16", NULL}, &t,
            "timm's names (EfficientNet) were recognised");
    }
}

TEST(timm_mobilenet_v2)
{
    static names t;
    t.n = 0;
    efficientnet(&t, (const int[]){1, 2, 3, 4, 3, 3, 1}, false);
    check("models/mobilenet_v2.json", (const char *const[]){NULL}, &t,
        "timm's names (MobileNetV2) were recognised: 262 tensors");
}

TEST(timm_vgg_and_vit)
{
    static names t;
    for (int bn = 0; bn < 2; bn++) {
        t.n = 0;
        vgg16(&t, bn);
        check("models/vgg16.json",
            (const char *const[]){"slim=32", "image=32", bn ? "bn=1" : "bn=0", NULL}, &t,
            "the convolutions of its head are linear layers here");
    }
    t.n = 0;
    vit(&t, 3);
    check("models/vit_b16.json",
        (const char *const[]){"layers=3", "dim=32", "heads=2", "mlp=64", "image=32", NULL}, &t,
        "timm's names (ViT) were recognised");
}

/* These have the same names in both. */
TEST(timm_resnet_and_densenet)
{
    static names t;
    t.n = 0;
    resnet(&t, (const int[]){3, 4, 6, 3});
    check("models/resnet50.json", (const char *const[]){NULL}, &t, NULL);
    t.n = 0;
    resnet(&t, (const int[]){3, 4, 23, 3});
    check("models/resnet101.json", (const char *const[]){NULL}, &t, NULL);
    t.n = 0;
    densenet121(&t);
    check("models/densenet121.json", (const char *const[]){NULL}, &t, NULL);
}

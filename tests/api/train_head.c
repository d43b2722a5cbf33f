/* tests/api/train_head.c -- a new head on weights that were saved with another one. */
#include "frontend/frontend.h"
#include "help.h"
#include <math.h>
#include <unistd.h>

#define LINEAR(classes) \
    "{\"inputs\": {\"x\": [2, 4]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": " \
    "5}, " \
    "\"relu\", {\"op\": \"linear\", \"name\": \"b\", \"out\": " classes "}, \"softmax\"]}"
#define CONV(classes) \
    "{\"inputs\": {\"x\": [2, 3, 4, 4]}, \"layers\": [{\"op\": \"conv\", \"name\": \"a\", " \
    "\"channels\": 5, \"kernel\": 1}, \"relu\", {\"op\": \"conv\", \"name\": \"b\", " \
    "\"channels\": " classes ", \"kernel\": 1}, \"relu\", \"global_avgpool\", \"flatten\"]}"

static nnc_graph *open_with(const char *json, const char *weights, int classes, uint64_t seed)
{
    const nnc_model_options o = {.weights = weights, .classes = classes, .seed = seed};
    nnc_sink_clear(test_sink);
    return nnc_model_parse("m.json", json, strlen(json), &o, test_sink);
}

static const nnc_node *param(const nnc_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && !strcmp(g->node[i].weight->name, name))
            return &g->node[i];
    return NULL;
}

/* The head has 3 outputs and generated numbers, the rest is from the file. */
static void check_head(const nnc_graph *g, const char *file)
{
    const nnc_type *y = g ? nnc_typeof(g, g->output[0]) : NULL;
    CHECK(y && y->rank == 2 && y->dim[0] == 2 && y->dim[1] == 3);
    if (!g)
        return;
    const nnc_node *a = param(g, "a.weight"), *b = param(g, "b.weight"), *c = param(g, "b.bias");
    CHECK(a->weight->kind == NNC_W_file && !strcmp(a->weight->file, file));
    CHECK(b->weight->kind == NNC_W_gen && b->weight->scale > 0);
    CHECK(c->weight->kind == NNC_W_gen);
    CHECK_INT(nnc_typeof(g, b->out)->dim[0], 3);
    CHECK_INT(nnc_typeof(g, c->out)->dim[0], 3);
    CHECK_DIAG("new head: 3 classes instead of ");
    CHECK_DIAG("2 other weights are read from");
    CHECK_DIAG(", 2 of its tensors are left out (1 bias, 1 weight)");
    CHECK(g->head && strstr(g->head, "read a.weight f32[5,") &&
          strstr(g->head, "read a.bias f32[5]"));
    CHECK(strstr(g->head, "generated b.weight f32[3,5") &&
          strstr(g->head, "left out b.bias f32[10]"));
    CHECK_OK(nnc_verify(g, test_sink));
}

/* An artifact of a model with another head is planned for other shapes with that head, without its files. */
TEST(heads_in_artifacts)
{
    static const char json[] =
        "{\"args\": {\"n\": 2}, \"inputs\": {\"x\": [\"n\", 4]}, \"layers\": [{\"op\": \"linear\", "
        "\"name\": \"a\", \"out\": 5}, \"relu\", {\"op\": \"linear\", \"name\": \"b\", \"out\": "
        "10}]}";
    char dir[256], weights[300], model[300], artifact[300];
    float y[2][14];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(weights, sizeof weights, "%s/w.npz", dir);
    snprintf(model, sizeof model, "%s/m.json", dir);
    snprintf(artifact, sizeof artifact, "%s/m.nnc", dir);
    CHECK_OK(nnc_file_write(model, json, sizeof json - 1, false, test_sink));
    nnc_graph *g = open_with(json, NULL, 0, 1);
    CHECK_OK(nnc_model_write_weights(g, weights, test_sink));
    nnc_graph_destroy(g);
    nnc_env *e = NULL;
    nnc_artifact *a = NULL, *b = NULL, *of[2];
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    const nnc_open_options o = {.classes = 7, .weights = weights};
    nnc_model *m = nnc_model_open(model, &o, test_sink);
    CHECK(m != NULL);
    CHECK_OK(nnc_compile(e, m, NULL, &a, test_sink));
    CHECK_OK(nnc_artifact_save(a, artifact, false, test_sink));
    nnc_artifact_destroy(a);
    unlink(model);
    CHECK_OK(nnc_artifact_load(e, artifact, &a, test_sink));
    const nnc_arg one = {"n", "1"};
    CHECK_OK(nnc_artifact_for(e, a, &(nnc_open_options){.arg = &one, .n_arg = 1}, &b, test_sink));
    of[0] = a;
    of[1] = b;
    for (int i = 0; i < 2 && of[i]; i++) {
        static const float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
        nnc_session *s = NULL;
        CHECK_OK(nnc_session_create(e, of[i], &s, test_sink));
        CHECK_INT(nnc_type_numel(nnc_session_output_type(s, 0)), 14 >> i);
        CHECK_OK(nnc_session_input(s, 0, x, test_sink));
        CHECK_OK(nnc_session_run(s, test_sink));
        CHECK_OK(nnc_session_output(s, 0, y[i], test_sink));
        nnc_session_destroy(s);
    }
    for (int i = 0; i < 7; i++)
        CHECK(fabsf(y[0][i] - y[1][i]) <= 1e-5f * fabsf(y[0][i]) + 1e-6f);
    nnc_artifact_destroy(b);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
    api_rmdir(dir);
}

TEST(heads_that_are_replaced)
{
    static const char *const saved[] = {LINEAR("10"), CONV("10")}, *const other[] = {
                                                                       LINEAR("7"), CONV("7")};
    char dir[256], file[300];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/w.safetensors", dir);
    for (int i = 0; i < 2; i++) {
        nnc_graph *g = open_with(saved[i], NULL, 0, 1);
        CHECK_OK(nnc_model_write_weights(g, file, test_sink));
        nnc_graph_destroy(g);
        g = open_with(saved[i], file, 3, 2); /* the file's head is the model's */
        check_head(g, file);
        nnc_graph_destroy(g);
        g = open_with(other[i], file, 3, 2); /* neither is the new one */
        check_head(g, file);
        nnc_graph_destroy(g);
        CHECK(open_with(other[i], file, 0, 2) == NULL);
        CHECK_DIAG("differs `b.weight`");
    }
    CHECK(open_with("{\"inputs\": {\"x\": [2, 4]}, \"layers\": [\"relu\", \"tanh\"]}", NULL, 3,
              0) == NULL);
    CHECK_DIAG("--replace-head: ");
    api_rmdir(dir);
}

/* Weights that another layer uses have its size, and those of groups are of as many groups as before. */
TEST(heads_that_cannot_be_replaced)
{
    static const char *const json[] = {
        "{\"inputs\": {\"x\": [2, 6]}, \"layers\": [{\"op\": \"linear\", \"out\": 6, \"weights\": "
        "\"w\"}, \"relu\", {\"op\": \"linear\", \"out\": 6, \"weights\": \"w\"}]}",
        "{\"inputs\": {\"x\": [2, 6, 4, 4]}, \"layers\": [{\"op\": \"conv\", \"channels\": 6, "
        "\"kernel\": 1, \"groups\": 2}]}"};
    for (size_t i = 0; i < NNC_COUNT(json); i++) {
        nnc_graph *g = open_with(json[i], NULL, 12, 1);
        CHECK(g == NULL);
        CHECK_DIAG("--replace-head: other layers use the weight");
        nnc_graph_destroy(g);
    }
}

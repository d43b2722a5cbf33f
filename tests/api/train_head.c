/* tests/api/train_head.c -- a new head on weights that were saved with another one. */
#include "frontend/frontend.h"
#include "help.h"

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
    CHECK_OK(nnc_verify(g, test_sink));
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

/* tests/api/several.c -- several models in one run. The joined graph has their names and paths, its devices and streams. The bits are
 * those of each model alone, forward and as training steps. */
#include "session/session.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include "help.h"
#include "train/train.h"
#include <stdlib.h>
#include <string.h>

enum { MODELS = 2 };

static const char *const texts[MODELS] = {
    "{\"name\": \"a\", \"args\": {\"batch\": 3}, \"inputs\": {\"x\": [\"batch\", 3, 12, 12]}, "
    "\"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 16, \"kernel\": 3, \"pad\": 1}, {\"op\": "
    "\"batchnorm\", \"name\": \"n\"}, \"relu\", \"global_avgpool\", \"flatten\", {\"op\": "
    "\"linear\", \"name\": \"out\", \"out\": 5}]}",
    "{\"name\": \"b\", \"args\": {\"batch\": 3}, \"inputs\": {\"x\": [\"batch\", 3, 12, 12]}, "
    "\"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 8, \"kernel\": 5, \"pad\": 2}, \"silu\", "
    "{\"op\": \"conv\", \"name\": \"d\", \"channels\": 8, \"kernel\": 3, \"pad\": 1}, \"relu\", "
    "\"flatten\", {\"op\": \"linear\", \"name\": \"out\", \"out\": 7}]}"};
static const char *const names[MODELS] = {"first", "second"};

static nnc_graph *model(int k, bool step)
{
    nnc_graph *g = nnc_model_parse("m.json", texts[k], strlen(texts[k]), NULL, test_sink),
              *s = NULL;
    CHECK(g != NULL);
    if (!step || !g)
        return g;
    nnc_training t = nnc_training_defaults;
    t.momentum = 0.9;
    CHECK_OK(nnc_train_graph(g, &t, &s, test_sink));
    nnc_graph_destroy(g);
    return s;
}

static nnc_graph *joined(nnc_graph *const *m, int devices)
{
    const int device[MODELS] = {0, devices > 1};
    nnc_graph *g = NULL;
    CHECK_OK(nnc_models_join(m, names, devices > 1 ? device : NULL, MODELS, NULL, &g, test_sink));
    return g;
}

TEST(names_of_files)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const char *const file[] = {
        "models/resnet101.json", "x/resnet101.onnx", "my-net.v2.json", "1.json", "resnet101"};
    const char *const want[] = {"resnet101", "resnet101_2", "my_net_v2", "model1", "resnet101_3"};
    const char *name[NNC_COUNT(file)];
    CHECK_OK(nnc_models_name(file, NNC_COUNT(file), name, &a, test_sink));
    for (size_t i = 0; i < NNC_COUNT(file); i++)
        CHECK_STR(name[i], want[i]);
}

TEST(paths_have_a_part_of_the_model)
{
    CHECK(nnc_path_is("/loss", 5, "/loss") && nnc_path_is("/loss/backward", 14, "/loss"));
    CHECK(nnc_path_is("/net/loss", 9, "/loss") && nnc_path_is("/net/optimizer", 14, "/optimizer"));
    CHECK(!nnc_path_is("/losses", 7, "/loss") && !nnc_path_is("/net/losses", 11, "/loss"));
    CHECK(!nnc_path_is("/layers/0/loss", 14, "/loss") && !nnc_path_is("", 0, "/loss"));
}

TEST(a_joined_graph)
{
    nnc_graph *m[MODELS] = {model(0, false), model(1, false)}, *g = joined(m, 2);
    int n = 0;
    CHECK_INT(g->n_output, MODELS);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        const bool first = !strncmp(x->origin, "/first", 6),
                   second = !strncmp(x->origin, "/second", 7);
        CHECK(first != second);
        CHECK_INT(x->device, second);
        if (x->op != OP_input)
            continue;
        CHECK_STR(g->value[x->out].name, n ? "second.x" : "first.x");
        CHECK_STR(nnc_own_name(g, x), "x");
        n++;
    }
    CHECK_INT(n, MODELS);
    CHECK(!strncmp(g->output_name[0], "first.", 6) && !strncmp(g->output_name[1], "second.", 7));
    nnc_graph_destroy(g);
    for (int k = 0; k < MODELS; k++)
        nnc_graph_destroy(m[k]);
}

/* Runs it once, a step of a training; all results one after the other. */
static char *run(
    nnc_env *e, const nnc_graph *g, int devices, int streams, int lanes, bool step, size_t *n)
{
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .momentum = 0.9};
    nnc_compare_options o = nnc_compare_defaults;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    void *data[32];
    char *all = NULL;
    o.compile.devices = devices;
    o.compile.streams = streams;
    o.compile.lanes = lanes;
    o.training = step ? &t : NULL;
    *n = 0;
    CHECK_OK(nnc_compile(e, g, &o.compile, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_OK(nnc_artifact_make_inputs(a, &o, 7, data, test_sink));
    for (int i = 0; i < nnc_session_inputs(s); i++) {
        if (!strcmp(nnc_artifact_own_input(a, i), NNC_TRAIN_LR))
            *(float *)data[i] = 0.1f;
        CHECK_OK(nnc_session_input(s, i, data[i], test_sink));
        nnc_free(data[i]);
    }
    CHECK_OK(step ? nnc_session_step(s, test_sink) : nnc_session_run(s, test_sink));
    const int outputs = nnc_session_outputs(s);
    for (int i = 0; i < outputs + nnc_session_states(s); i++) {
        const size_t bytes = (size_t)nnc_type_bytes(
            i < outputs ? nnc_session_output_type(s, i) : nnc_session_state_type(s, i - outputs));
        all = realloc(all, *n + bytes);
        CHECK_OK(i < outputs ? nnc_session_output(s, i, all + *n, test_sink)
                             : nnc_session_state(s, i - outputs, all + *n, test_sink));
        *n += bytes;
        for (int k = outputs; k < i; k++)
            CHECK(strcmp(nnc_session_state_name(s, k - outputs),
                      nnc_session_state_name(s, i - outputs)) != 0);
    }
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    return all;
}

static size_t bytes_of_outputs(const nnc_graph *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < nnc_result_outputs(g); i++)
        n += (size_t)nnc_type_bytes(nnc_typeof(g, g->output[i]));
    return n;
}

/* One thread each, alone and together. */
static void check_bits(bool step, int devices, int streams)
{
    nnc_env_options eo = nnc_env_defaults;
    nnc_env *e = NULL;
    nnc_graph *m[MODELS] = {model(0, step), model(1, step)}, *g = joined(m, devices);
    char *alone[MODELS], *all;
    size_t n[MODELS], total, out[MODELS];
    eo.threads = 2;
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    for (int k = 0; k < MODELS; k++) {
        alone[k] = run(e, m[k], 1, 1, 2, step, &n[k]);
        out[k] = bytes_of_outputs(m[k]);
    }
    all = run(e, g, devices, streams, 0, step, &total);
    CHECK_INT(total, n[0] + n[1]);
    size_t output = 0, state = out[0] + out[1];
    for (int k = 0; k < MODELS && total == n[0] + n[1]; k++) {
        CHECK(!memcmp(all + output, alone[k], out[k]));
        CHECK(!memcmp(all + state, alone[k] + out[k], n[k] - out[k]));
        output += out[k];
        state += n[k] - out[k];
        free(alone[k]);
        nnc_graph_destroy(m[k]);
    }
    free(all);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}

TEST(together_computes_the_bits_of_alone)
{
    for (int step = 0; step < 2; step++) {
        check_bits(step, 2, 1);
        check_bits(step, 1, 2);
    }
}

/* On streams of one device each model stays on its own, and no command waits for another model. */
TEST(a_stream_for_each_model)
{
    nnc_env *e = NULL;
    nnc_env_options eo = nnc_env_defaults;
    nnc_artifact *a = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_graph *m[MODELS] = {model(0, true), model(1, true)}, *g = joined(m, 1);
    int stream[MODELS] = {-1, -1};
    eo.target = "tests/cli/machine.json";
    o.streams = 3;
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    CHECK_OK(nnc_compile_plan(e, g, &o, &a, test_sink));
    const nnc_plan *p = a->plan;
    CHECK_INT(p->device[0].streams, MODELS);
    CHECK_INT(p->n_event, 0);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const int k = !strncmp(p->cmd[i].layers, "/second", 7);
        CHECK(stream[k] < 0 || stream[k] == p->cmd[i].stream);
        stream[k] = p->cmd[i].stream;
    }
    CHECK(stream[0] >= 0 && stream[1] >= 0 && stream[0] != stream[1]);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    for (int k = 0; k < MODELS; k++)
        nnc_graph_destroy(m[k]);
    nnc_env_destroy(e);
}

/* The first model is longer: LPT puts the two others beside each other where there are two devices. */
TEST(more_models_than_devices)
{
    nnc_env *e = NULL;
    nnc_env_options eo = nnc_env_defaults;
    nnc_arg large = {"batch", "64"};
    int device[3];
    eo.target = "tests/cli/machine.json";
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    nnc_model *m[3] = {NULL};
    for (int k = 0; k < 3; k++) {
        nnc_open_options o = nnc_open_defaults;
        o.arg = &large;
        o.n_arg = k > 0;
        m[k] = nnc_model_open("models/mlp.json", &o, test_sink);
        CHECK(m[k] != NULL);
    }
    CHECK_OK(nnc_models_place(e, m, 3, 2, device, test_sink));
    CHECK_INT(device[0], 0); /* batch 256 */
    CHECK_INT(device[1], 1);
    CHECK_INT(device[2], 1);
    CHECK_OK(nnc_models_place(e, m, 3, 3, device, test_sink));
    for (int k = 0; k < 3; k++)
        CHECK_INT(device[k], k);
    CHECK_OK(nnc_models_place(e, m, 3, 1, device, test_sink));
    for (int k = 0; k < 3; k++)
        CHECK_INT(device[k], -1);
    for (int k = 0; k < 3; k++)
        nnc_model_close(m[k]);
    nnc_env_destroy(e);
}

/* Each allocation of a join fails. */
TEST(join_without_host_memory)
{
    nnc_graph *m[MODELS] = {model(0, true), model(1, false)};
    const int device[MODELS] = {0, 1};
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        nnc_sink *sink = nnc_sink_create();
        nnc_graph *g = NULL;
        nnc_fail_alloc_after(n);
        const nnc_status st = nnc_models_join(m, names, device, MODELS, NULL, &g, sink);
        nnc_fail_alloc_after(0);
        CHECK(st == NNC_OK ? g != NULL : st == NNC_E_NOMEM && !g && nnc_sink_errors(sink));
        done = !st;
        nnc_graph_destroy(g);
        nnc_sink_destroy(sink);
    }
    for (int k = 0; k < MODELS; k++)
        nnc_graph_destroy(m[k]);
}

/* Predictions of several models: all one after the other take the sum of each alone; on a device for each, the longest. */
TEST(predicted_together)
{
    nnc_env *e = NULL;
    nnc_env_options eo = nnc_env_defaults;
    nnc_graph *m[MODELS] = {model(0, true), model(1, true)};
    NNC_LOCAL(nnc_text) t = {0};
    nnc_partition_options o = {.compile = nnc_compile_defaults};
    bool fits;
    eo.hardware = "models/hardware/cpu.json";
    o.compile.devices = 2;
    CHECK_OK(nnc_env_create(&eo, &e, test_sink));
    CHECK_OK(nnc_partition_several_report(
        e, m, names, MODELS, true, &o, NNC_JSON, &t, &fits, test_sink));
    CHECK(fits);
    cJSON *r = cJSON_Parse(nnc_text_str(&t));
    double alone[MODELS], ms[4];
    for (int k = 0; k < MODELS; k++)
        alone[k] =
            cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(r, "models"), k), "alone_ms")
                ->valuedouble;
    for (int i = 0; i < 4; i++) /* one after the other, streams, two devices */
        ms[i] = cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(r, "together"), i), "ms")
                    ->valuedouble;
    CHECK_NEAR(ms[0], alone[0] + alone[1], 1e-3 * ms[0]);
    CHECK(ms[1] <= ms[0] * 1.001);
    CHECK_NEAR(ms[2], alone[0] > alone[1] ? alone[0] : alone[1], 1e-3 * ms[2]);
    CHECK_NEAR(ms[3], ms[2], 1e-9);
    cJSON_Delete(r);
    nnc_env_destroy(e);
    for (int k = 0; k < MODELS; k++)
        nnc_graph_destroy(m[k]);
}

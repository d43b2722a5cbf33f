/* tests/api/step.c -- training steps compared and timed: results of compare with training, the parts of a step, and planted faults. */
#include "check/compare.h"
#include "report/report.h"
#include "session/session.h"
#include "frontend/frontend.h"
#include "help.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

static const char cnn[] =
    "{\"name\": \"cnn\", \"inputs\": {\"x\": [4, 3, 9, 8]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 8, \"kernel\": 3, \"pad\": 1, \"bias\": "
    "false}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, {\"op\": \"relu\", \"name\": \"r\"}, "
    "{\"op\": \"maxpool\", \"name\": \"p\", \"kernel\": 3, \"stride\": 2, \"pad\": 1}, "
    "{\"op\": \"depthwise\", \"name\": \"d\", \"kernel\": 3, \"pad\": 1}, \"silu\", "
    "{\"op\": \"avgpool\", \"kernel\": 2}, \"flatten\", {\"op\": \"linear\", \"name\": \"f\", "
    "\"out\": 5}]}";
static const char encoder[] =
    "{\"name\": \"encoder\", \"inputs\": {\"x\": [2, 7, 12]}, \"layers\": ["
    "{\"op\": \"layernorm\", \"name\": \"l\"}, {\"op\": \"multihead_attention\", \"name\": \"m\", "
    "\"heads\": 3}, {\"op\": \"add\", \"in\": [\"m\", \"x\"]}, {\"op\": \"dropout\", \"alpha\": "
    "0.25}, "
    "{\"op\": \"reduce_mean\", \"axes\": [1], \"keepdims\": false}, "
    "{\"op\": \"linear\", \"name\": \"h\", \"out\": 5}]}";

static nnc_graph *step_of(const char *json, const nnc_training *t)
{
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink), *step = NULL;
    CHECK(g != NULL);
    CHECK_OK(nnc_train_graph(g, t, &step, test_sink));
    nnc_graph_destroy(g);
    return step;
}

static double number(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItem(j, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

enum { ONE_DEVICE = PART_communication }; /* parts of a step on one device, which has none */

/* Every run of the report has its parts and all results; more timed steps give the same verdict. */
static void check_report(const cJSON *j, const char *what)
{
    const cJSON *run, *result, *runs = cJSON_GetObjectItem(j, "runs");
    CHECK(cJSON_GetArraySize(runs) >= 2);
    cJSON_ArrayForEach(run, runs)
    {
        int outputs = 0, states = 0;
        const cJSON *parts = cJSON_GetObjectItem(run, "parts");
        CHECK(number(parts, "communication_ms") == 0);
        for (int i = 0; i < ONE_DEVICE; i++) {
            char key[32];
            snprintf(key, sizeof key, "%s_ms", nnc_part_names[i]);
            if (!(number(parts, key) > 0) && i != PART_loss) /* it may be in kernels of others */
                test_fail(__FILE__, __LINE__, "%s: %s is not measured", what, key);
        }
        CHECK(number(run, "memory_bytes") > number(run, "arena_bytes"));
        cJSON_ArrayForEach(result, cJSON_GetObjectItem(run, "outputs"))
        {
            const bool state = cJSON_IsTrue(cJSON_GetObjectItem(result, "state"));
            state ? states++ : outputs++;
            CHECK(number(result, "nmse") <= number(result, "limit"));
        }
        CHECK(outputs >= 1 && states >= 4);
    }
}

/* The parts' commands are those of the whole programs, and each fusion of a pass counts for one part. */
static void check_parts(const cJSON *j, const char *what)
{
    static const char *const sides[] = {"unfused", "fused"};
    const cJSON *parts = cJSON_GetObjectItem(j, "step_parts"), *part, *one;
    int fusions[ONE_DEVICE] = {0}, i = 0;
    CHECK_INT(cJSON_GetArraySize(parts), ONE_DEVICE);
    for (int side = 0; side < 2; side++) {
        double launches = 0, bytes = 0;
        char key[2][32];
        const cJSON *run = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "runs"),
            cJSON_GetArraySize(cJSON_GetObjectItem(j, "runs")) - 2 + side);
        CHECK_STR(cJSON_GetObjectItem(run, "name")->valuestring, sides[side]);
        snprintf(key[0], sizeof key[0], "launches_%s", sides[side]);
        snprintf(key[1], sizeof key[1], "bytes_moved_%s", sides[side]);
        cJSON_ArrayForEach(part, parts)
        {
            launches += number(part, key[0]);
            bytes += number(part, key[1]);
        }
        CHECK_INT(launches, number(run, "launches"));
        CHECK_INT(bytes, number(run, "bytes_moved"));
    }
    cJSON_ArrayForEach(part, parts)
    {
        CHECK_STR(cJSON_GetObjectItem(part, "part")->valuestring, nnc_part_names[i]);
        cJSON_ArrayForEach(one, cJSON_GetObjectItem(part, "fusions"))
        {
            CHECK(number(one, "fusions") >= 1);
            CHECK(*cJSON_GetObjectItem(one, "rules")->valuestring);
            CHECK(number(one, "across") <= number(one, "fusions") && (i || !number(one, "across")));
            fusions[i] += (int)number(one, "fusions");
        }
        i++;
    }
    for (i = 0; i < ONE_DEVICE; i++)
        if (!fusions[i] && i != PART_loss)
            test_fail(__FILE__, __LINE__, "%s: no fusion in %s", what, nnc_part_names[i]);
}

/* The report says for each part what fusion did, with a count of what it saves. */
TEST(step_compare_words)
{
    const nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    nnc_env *e = NULL;
    NNC_LOCAL(nnc_text) text = {0};
    bool agrees;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    nnc_graph *g = step_of(encoder, &t);
    o.training = &t;
    o.iterations = 1;
    o.steps = false;
    o.no_reference = true;
    CHECK_OK(nnc_compare(e, g, &o, NNC_TEXT, &text, &agrees, test_sink));
    const char *at = strstr(nnc_text_str(&text), "What fusion did to each part"), *end = NULL;
    CHECK(at != NULL);
    static const char *const titles[ONE_DEVICE + 1] = {"\n  forward pass  time ",
        "\n  loss          time ", "\n  backward pass time ", "\n  optimizer     time ",
        "\nFused:"};
    for (int i = 0; at && i < ONE_DEVICE; i++) {
        at = strstr(at, titles[i]);
        end = at ? strstr(at + 1, titles[i + 1]) : NULL;
        if (!end || !strstr(at, "launches ") || strstr(at, "launches ") > end)
            test_fail(__FILE__, __LINE__, "%s is not explained:\n%s", nnc_part_names[i],
                nnc_text_str(&text));
    }
    for (const char *const *w =
             (const char *const[]){"run as one kernel", " times", " less\n", NULL};
         *w; w++)
        if (!strstr(nnc_text_str(&text), *w))
            test_fail(__FILE__, __LINE__, "no \"%s\" in:\n%s", *w, nnc_text_str(&text));
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}

TEST(step_compare)
{
    static const char *const models[] = {cnn, encoder};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    for (int i = 0; i < 6; i++) {
        if (!test_takes((uint64_t)i, 3))
            continue;
        nnc_training t = nnc_training_defaults;
        nnc_compare_options o = nnc_compare_defaults;
        NNC_LOCAL(nnc_text) text = {0};
        bool agrees = false;
        char what[64];
        t.optimizer = (nnc_optimizer)(i % 3);
        t.loss = (nnc_loss)(i % 2 * (i / 2));
        t.momentum = 0.9;
        t.weight_decay = i % 2 ? 0.01 : 0;
        t.clip_norm = i == 5 ? 0.5 : 0;
        snprintf(what, sizeof what, "comparison %d", i);
        nnc_graph *g = step_of(models[i % 2], &t);
        o.training = &t;
        o.iterations = 1 + 9 * (i % 2);
        o.steps = i == 0;
        CHECK_OK(nnc_compare(e, g, &o, NNC_JSON, &text, &agrees, test_sink));
        cJSON *j = cJSON_Parse(nnc_text_str(&text));
        if (!agrees)
            test_fail(__FILE__, __LINE__, "%s: %s", what, nnc_text_str(&text));
        check_report(j, what);
        check_parts(j, what);
        cJSON_Delete(j);
        nnc_graph_destroy(g);
    }
    nnc_env_destroy(e);
}

/* The fused program computes a wrong gradient, by a factor of 1.001 in one layer. The new weight differs by far less than a limit
 * relative to the weight, and is found by its change. */
TEST(step_compare_planted)
{
    const nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    comparison c = {.o = &o, .sink = test_sink, .n = 2, .fused = 1};
    nnc_graph *right = step_of(cnn, &t), *wrong = nnc_graph_clone(right, test_sink);
    o.training = &t;
    o.iterations = 1;
    for (uint32_t i = nnc_result_outputs(wrong); i < wrong->n_output; i++) {
        const nnc_ref w = wrong->output_state[i];
        if (strcmp(wrong->value[w].name, "f.weight") != 0)
            continue;
        nnc_ref change = nnc_build2(wrong, OP_sub, wrong->output[i], w);
        nnc_ref more = nnc_build2(wrong, OP_mul, change, nnc_scalar(wrong, DT_f32, 1.001));
        wrong->output[i] = nnc_build2(wrong, OP_add, w, more);
    }
    CHECK_OK(nnc_graph_tidy(wrong));
    nnc_arena_init(&c.arena, 0);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 1}, &c.env, test_sink));
    for (int i = 0; i < 2; i++) {
        c.p[i] = (program){.name = i ? "fused" : "unfused", .last = SEC_step};
        CHECK_OK(nnc_compile(c.env, i ? wrong : right, &o.compile, &c.p[i].a, test_sink));
    }
    c.model = right;
    c.n_input = c.p[0].a->plan->n_input;
    c.n_result = c.p[0].a->plan->n_output + c.p[0].a->plan->n_update;
    c.input = nnc_calloc((size_t)c.n_input, sizeof *c.input);
    c.initial = ARENA_NEW(&c.arena, void *, c.n_result + 1);
    for (int i = 0; i < 2; i++)
        c.p[i].output = ARENA_NEW(&c.arena, judged, c.n_result + 1);
    CHECK_OK(nnc_artifact_make_inputs(c.p[0].a, &o, 0, c.input, test_sink));
    for (int i = 0; i < c.n_input; i++)
        if (!strcmp(c.p[0].a->plan->input_name[i], "lr"))
            *(float *)c.input[i] = 1e-2f;
    CHECK_OK(nnc_reference_make(right, c.input, 1, &c.reference, test_sink));
    CHECK_OK(nnc_measure(&c));
    CHECK_OK(nnc_judge(&c));
    CHECK(!c.agrees);
    for (int i = 0; i < c.n_result; i++) {
        const bool planted = !strcmp(nnc_result_name(&c.p[1], i), "f.weight");
        CHECK(c.p[0].output[i].agrees);
        if (c.p[1].output[i].agrees == planted)
            test_fail(__FILE__, __LINE__, "%s: %s", nnc_result_name(&c.p[1], i),
                planted ? "the fault is not found" : "differs");
    }
    CHECK(!strcmp(nnc_result_name(&c.p[1], nnc_worst_output(&c, &c.p[1])), "f.weight"));
    for (int i = 0; i < 2; i++) {
        nnc_artifact_destroy(c.p[i].a);
        nnc_free(c.p[i].t[0].run.ns);
        nnc_free(c.p[i].t[0].burst_ms);
    }
    for (int i = 0; i < c.n_input; i++)
        nnc_free(c.input[i]);
    for (int i = 0; i < c.n_result; i++)
        nnc_free(c.initial[i]);
    for (int i = 0; i < c.n_kept; i++)
        nnc_free(c.kept[i].data);
    nnc_free(c.input);
    nnc_reference_deinit(&c.reference);
    nnc_env_destroy(c.env);
    nnc_arena_deinit(&c.arena);
    nnc_graph_destroy(right);
    nnc_graph_destroy(wrong);
}

/* Models beside each other, their contractions joined in training: the weights are put together in each step. */
TEST(step_compare_joined)
{
    static const char *const kinds[] = {"linear", "conv"};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    for (int i = 0; i < 2; i++) {
        nnc_training t = nnc_training_defaults;
        nnc_compare_options o = nnc_compare_defaults;
        NNC_LOCAL(nnc_text) text = {0};
        bool agrees = false;
        char file[64];
        snprintf(file, sizeof file, "models/multi_%s.json", i ? "conv1d" : "linear");
        const nnc_arg set[] = {{"models", "3"}, {"in", "16"}, {"out", "8"}, {"batch", "4"}};
        nnc_model *m = nnc_model_open(
            file, &(nnc_open_options){.arg = set, .n_arg = NNC_COUNT(set)}, test_sink);
        nnc_graph *g = NULL;
        t.loss = NNC_LOSS_mse;
        CHECK(m != NULL);
        CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
        o.training = &t;
        o.iterations = 1;
        o.compile.join_siblings = true;
        CHECK_OK(nnc_compare(e, g, &o, NNC_TEXT, &text, &agrees, test_sink));
        const char *joined = strstr(nnc_text_str(&text), "joined (chosen)");
        if (!agrees || !joined)
            test_fail(__FILE__, __LINE__, "%s: %s", kinds[i], nnc_text_str(&text));
        nnc_model_close(m);
        nnc_graph_destroy(g);
    }
    nnc_env_destroy(e);
}

/* Each command of a step by its layers: those of one part are of that part; copies into weights are the optimizer's. */
TEST(step_parts)
{
    nnc_training t = nnc_training_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_graph *g = step_of(cnn, &t);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    CHECK_OK(nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink));
    const nnc_plan *p = a->plan;
    uint8_t *part = nnc_malloc((size_t)p->n_cmd);
    int count[PART__COUNT] = {0}, mixed = 0;
    CHECK_OK(nnc_step_parts(p, part, test_sink));
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        const char *l = c->layers;
        count[part[i]]++;
        mixed += strstr(l, "/backward+") != NULL;
        if (c->kind == CMD_copy)
            CHECK(part[i] == PART_optimizer || strstr(l, "/n")); /* or a running statistic */
        else if (!strcmp(l, "/optimizer"))
            CHECK_INT(part[i], PART_optimizer);
        else if (!strcmp(l, "/loss"))
            CHECK_INT(part[i], PART_loss);
        else if (!strstr(l, "/backward") && !strstr(l, "/loss") && !strstr(l, "/optimizer"))
            CHECK_INT(part[i], PART_forward);
        else if (!strstr(l, "+") && strstr(l, "/backward"))
            CHECK_INT(part[i], PART_backward);
    }
    for (int i = 0; i < ONE_DEVICE; i++)
        CHECK(count[i] > 0);
    CHECK(mixed > 0);
    nnc_free(part);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

/* Generated inputs of a step: classes that exist, numbers of the first step. */
TEST(step_inputs)
{
    nnc_training t = nnc_training_defaults;
    nnc_compare_options o = nnc_compare_defaults;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    void *in[8] = {NULL};
    t.optimizer = NNC_OPT_adam;
    nnc_graph *g = step_of(cnn, &t);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 1}, &e, test_sink));
    CHECK_OK(nnc_compile(e, g, &o.compile, &a, test_sink));
    o.training = &t;
    CHECK_OK(nnc_artifact_make_inputs(a, &o, 0, in, test_sink));
    int found = 0;
    for (int i = 0; i < a->plan->n_input; i++) {
        const char *name = a->plan->input_name[i];
        const int64_t *target = !strcmp(name, "target") ? in[i] : NULL;
        for (int k = 0; target && k < 4; k++)
            CHECK(target[k] >= 0 && target[k] < 5);
        found += target != NULL;
        if (!strcmp(name, "lr"))
            found += *(float *)in[i] == 0;
        if (!strcmp(name, "m_scale"))
            found += fabsf(*(float *)in[i] - 10) < 1e-4f;
        if (!strcmp(name, "v_scale"))
            found += fabsf(*(float *)in[i] - 31.6228f) < 1e-3f;
        nnc_free(in[i]);
    }
    CHECK_INT(found, 4);
    nnc_artifact_destroy(a);
    nnc_env_destroy(e);
    nnc_graph_destroy(g);
}

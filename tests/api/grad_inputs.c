/* tests/api/grad_inputs.c -- gradients with respect to inputs (--grad-inputs): layers without weights against central differences, steps
 * layer by layer against float64, and what the C API says about them. */
#include "check/check.h"
#include "session/session.h"
#include "session/train.h"
#include "help.h"

#include <math.h>

static nnc_graph *step_of(const nnc_graph *m, nnc_training t)
{
    nnc_graph *step = NULL;
    t.grad_inputs = true;
    CHECK_OK(nnc_train_graph(m, &t, &step, test_sink));
    return step;
}

static int output_named(const nnc_graph *g, const char *name)
{
    for (uint32_t i = 0; i < nnc_result_outputs(g); i++)
        if (!strcmp(g->output_name[i], name))
            return (int)i;
    return -1;
}

/* ---- layers without weights -------------------------------------------------------------------- */

/* The loss in float64 where element i of the first input is v. */
static double loss_at(const nnc_graph *g, const api_data *d, int64_t i, float v)
{
    nnc_rval *out = nnc_calloc(g->n_output + (size_t)1, sizeof *out);
    float *x = d->in[0], was = x[i];
    x[i] = v;
    CHECK_OK(nnc_eval(g, (const void *const *)d->in, 1, out, test_sink));
    x[i] = was;
    const double loss = out[0].f ? out[0].f[0] : NAN;
    for (uint32_t o = 0; o < g->n_output; o++)
        nnc_rval_free(&out[o]);
    nnc_free(out);
    return loss;
}

/* Of some elements of the input, those that are no kink within the difference. The loss mse is a quadratic function there, of which a
 * central difference is the derivative. */
static void check_elements(const nnc_graph *g, const api_data *d, const float *grad, const char *of)
{
    enum { ELEMENTS = 12 };
    const float h = 0x1p-10F, *x = d->in[0];
    const int64_t n = nnc_type_numel(nnc_typeof(g, g->node[0].out));
    int seen = 0, moved = 0;
    for (uint64_t k = 0; k < ELEMENTS; k++) {
        int64_t i = nnc_rng_u32(nnc_rng_key(of, test_seed), k) % n;
        while (k % 2 && grad[i] == 0 && i + 1 < n) /* half of those of a relu are 0 */
            i++;
        const double at = loss_at(g, d, i, x[i]), up = loss_at(g, d, i, x[i] + h),
                     down = loss_at(g, d, i, x[i] - h);
        const double two = (double)(x[i] + h) - (double)(x[i] - h), slope = (up - down) / two;
        if (fabs(up + down - 2 * at) * (double)n > 16 * (double)h * (double)h) /* a kink */
            continue;
        seen++;
        moved += slope != 0;
        if (!(fabs(slope - (double)grad[i]) <= 1e-4 * fabs(slope) + 1e-12))
            test_fail(__FILE__, __LINE__, "%s: element %lld: gradient %.9g, differences %.9g", of,
                (long long)i, (double)grad[i], slope);
    }
    CHECK_USUAL(seen > ELEMENTS / 2 && moved > 0);
}

static void check_single(const char *file)
{
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .loss = NNC_LOSS_mse};
    const nnc_set batch = {"batch", 1};
    const nnc_model_options mo = {.set = &batch, .n_set = 1};
    NNC_LOCAL(nnc_text) why = {0};
    char *text = NULL;
    size_t n = 0;
    api_data d = {0};
    api_run r = {0};
    nnc_env *e = NULL;
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    nnc_graph *m = nnc_model_parse(file, text, n, &mo, test_sink), *g = m ? step_of(m, t) : NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    const int grad = g ? output_named(g, "x.gradient") : -1;
    CHECK(grad > 0 && nnc_result_outputs(g) == g->n_output && api_inputs(&d, g, test_seed, false));
    if (grad > 0 && api_compile_and_run(e, g, &nnc_compile_defaults, &d, &r, &why, test_sink))
        check_elements(g, &d, r.out[grad], file);
    else
        test_fail(__FILE__, __LINE__, "%s: %s", file, nnc_text_str(&why));
    api_run_free(&r);
    api_data_free(&d);
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
    nnc_free(text);
}

TEST(layers_without_weights_have_a_step)
{
    check_single("models/relu.json");
    check_single("models/maxpool.json");
}

/* ---- layer by layer ---------------------------------------------------------------------------- */

static const char cnn[] =
    "{\"inputs\": {\"x\": [2, 3, 7, 6]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 4, \"kernel\": 3, \"pad\": 1}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"maxpool\", \"kernel\": 3, "
    "\"stride\": 2, \"pad\": 1}, {\"op\": \"depthwise\", \"name\": \"d\", \"kernel\": 3, "
    "\"pad\": 1}, \"silu\", {\"op\": \"conv\", \"name\": \"e\", \"channels\": 4, \"kernel\": 1}, "
    "\"tanh\", \"flatten\", {\"op\": \"linear\", \"name\": \"f\", \"out\": 5}]}";
/* One input is no number, and the loss does not depend on another one. */
static const char words[] =
    "{\"inputs\": {\"ids\": {\"shape\": [4, 6], \"dtype\": \"i64\"}, \"x\": [4, 6, 8], "
    "\"unused\": [4, 8]}, \"layers\": [{\"op\": \"embedding\", \"name\": \"e\", \"rows\": 20, "
    "\"channels\": 8, \"in\": \"ids\"}, {\"op\": \"add\", \"in\": [\"e\", \"x\"]}, "
    "{\"op\": \"layernorm\", \"name\": \"l\"}, {\"op\": \"reduce_mean\", \"axes\": [1], "
    "\"keepdims\": false}, "
    "{\"op\": \"linear\", \"name\": \"f\", \"out\": 5}]}";

static void check_layers(const char *json, nnc_training t, nnc_compile_options with, const char *as)
{
    NNC_LOCAL(nnc_text) out = {0};
    nnc_compare_options o = nnc_compare_defaults;
    nnc_env *e = NULL;
    bool agrees = false;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    nnc_graph *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    CHECK(m != NULL);
    nnc_graph *g = m ? step_of(m, t) : NULL;
    t.grad_inputs = true;
    o.training = &t;
    o.compile = with;
    if (g)
        CHECK_OK(nnc_verify_model(e, g, &o, NULL, NNC_TEXT, &out, &agrees, test_sink));
    if (!agrees || !strstr(nnc_text_str(&out), "\nx.gradient "))
        test_fail(__FILE__, __LINE__, "%s:\n%s", as, nnc_text_str(&out));
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

TEST(input_gradients_agree_with_float64)
{
    static const char *const base[] = {"c", "n", "d"}, *const all[] = {"*"};
    const nnc_training t = nnc_training_defaults;
    nnc_training frozen = t, none = t, scaled = t;
    nnc_compile_options o = nnc_compile_defaults, half = o, level = o;
    frozen.freeze = base;
    frozen.n_freeze = 3;
    none.freeze = all;
    none.n_freeze = 1;
    scaled.loss_scale = 1;
    half.precision = NNC_PRECISION_f16;
    level.level = 0;
    check_layers(cnn, frozen, level, "frozen base, -O0");
    check_layers(cnn, none, o, "nothing trained");
    check_layers(cnn, scaled, half, "f16");
    check_layers(words, t, o, "words, one input no floats, one unused");
    CHECK_DIAG("no gradients with respect to inputs that are no floats: ids (i64)");
}

/* Results of the forward pass are computed again for the gradients of inputs as for those of weights. */
TEST(input_gradients_and_recomputing)
{
    static const char *const all[] = {"*"};
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .freeze = all, .n_freeze = 1};
    NNC_LOCAL(nnc_text) chain = {0};
    nnc_compile_options budget = nnc_compile_defaults;
    int64_t bytes[2] = {0};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 2}, &e, test_sink));
    nnc_puts(&chain, "{\"inputs\": {\"x\": [4, 8, 12, 12]}, \"layers\": [");
    for (int i = 0; i < 5; i++)
        nnc_puts(&chain, "{\"op\": \"conv\", \"channels\": 16, \"kernel\": 3, \"pad\": 1}, "
                         "\"batchnorm\", \"silu\", ");
    nnc_puts(&chain, "\"global_avgpool\", \"flatten\"]}");
    const char *json = nnc_text_str(&chain);
    nnc_graph *m = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    nnc_graph *g = m ? step_of(m, t) : NULL;
    for (int k = 0; k < 2 && g; k++) {
        nnc_compile_options o = nnc_compile_defaults;
        nnc_artifact *a = NULL;
        o.memory_budget = k ? "80%" : NULL;
        CHECK_OK(nnc_compile_plan(e, g, &o, &a, test_sink));
        bytes[k] = a ? a->plan->device[0].arena_bytes + a->plan->device[0].persist_bytes : 0;
        nnc_artifact_destroy(a);
    }
    CHECK(bytes[1] > 0 && bytes[1] <= bytes[0] * 8 / 10);
    budget.memory_budget = "80%";
    check_layers(json, t, budget, "in 80 % of its memory");
    nnc_graph_destroy(g);
    nnc_graph_destroy(m);
    nnc_env_destroy(e);
}

TEST(models_without_float_inputs)
{
    static const char ids[] =
        "{\"inputs\": {\"ids\": {\"shape\": [4], \"dtype\": \"i64\"}}, \"layers\": [{\"op\": "
        "\"embedding\", \"name\": \"e\", \"rows\": 20, \"channels\": 8}]}";
    nnc_graph *m = nnc_model_parse("m.json", ids, strlen(ids), NULL, test_sink), *step = NULL;
    const nnc_training t = {NNC_TRAINING_DEFAULTS, .grad_inputs = true};
    CHECK(m != NULL);
    CHECK_INT(nnc_train_graph(m, &t, &step, test_sink), NNC_E_MODEL);
    CHECK_DIAG("no input of floats, and there are no gradients with respect to ids (i64)");
    nnc_graph_destroy(m);
}

/* ---- nnc.h ------------------------------------------------------------------------------------- */

static nnc_trainer *trainer_of(nnc_env *e, const nnc_model *m, const char *inputs)
{
    nnc_trainer *t = NULL;
    nnc_train_options *o = nnc_train_options_create();
    CHECK_OK(nnc_train_options_set(o, "grad-inputs", inputs, test_sink));
    CHECK_OK(nnc_trainer_create(e, m, o, &t, test_sink));
    nnc_train_options_destroy(o);
    return t;
}

/* Those of each batch, while the weights change; other numbers are as without them. */
TEST(trainers_have_input_gradients)
{
    enum { ROWS = 2, WIDE = 3 * 7 * 6 };
    static float x[ROWS][WIDE], grad[2][ROWS][WIDE];
    int64_t classes[ROWS] = {0, 4};
    const void *const batch[] = {x, classes};
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED, .threads = 1}, &e, test_sink));
    nnc_graph *m = nnc_model_parse("m.json", cnn, strlen(cnn), NULL, test_sink);
    nnc_trainer *t = trainer_of(e, m, "1"), *without = trainer_of(e, m, "0");
    nnc_rng_fill(nnc_rng_key("x", test_seed), 0, ROWS * WIDE, 1, x[0]);
    CHECK_INT(nnc_trainer_gradient(t, 0, grad, test_sink), NNC_E_USAGE);
    CHECK_DIAG("before the first step");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(nnc_trainer_step(t, batch, test_sink));
        CHECK_OK(nnc_trainer_step(without, batch, test_sink));
        CHECK_OK(nnc_trainer_gradient(t, 0, grad[i], test_sink));
        CHECK(fabs(nnc_trainer_loss(t) - nnc_trainer_loss(without)) < 1e-5);
    }
    CHECK(memcmp(grad[0], grad[1], sizeof grad[0]) != 0);
    CHECK_INT(nnc_trainer_gradient(t, 1, grad, test_sink), NNC_E_USAGE);
    CHECK_DIAG("there is no gradient with respect to target, which is no model's input of floats");
    CHECK_INT(nnc_trainer_gradient(t, 2, grad, test_sink), NNC_E_USAGE);
    CHECK_DIAG("a batch has inputs 0 to 1, not 2");
    CHECK_INT(nnc_trainer_gradient(without, 0, grad, test_sink), NNC_E_USAGE);
    CHECK_DIAG("create the trainer with the option grad-inputs");
    nnc_trainer_destroy(without);
    nnc_trainer_destroy(t);
    nnc_model_close(m);
    nnc_env_destroy(e);
}

/* A model's own output may be called like the gradient of its input. */
TEST(outputs_called_gradient)
{
    static const char text[] =
        "graph @g { %x = input : f32[4] %y = neg %x : f32[4] loc \"/loss_of/backward\" "
        "return %y as \"x.gradient\" }";
    nnc_scan s;
    nnc_scan_init(&s, "g", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g && !nnc_output_is_gradient(g, 0) && !nnc_graph_is_step(g));
    nnc_graph_destroy(g);
}

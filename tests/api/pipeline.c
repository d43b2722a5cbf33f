/* tests/api/pipeline.c -- pipelines of micro-batches train with the bits of one device that accumulates as many batches: weights,
 * statistics, losses, validation; whatever the schedule. */
#include "session/session.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include "trainer/trainer.h"
#include "help.h"
#include "tensors/tensors.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS = 96, IMAGE = 3 * 6 * 6, CLASSES = 4, LAYERS = 10, MOST = 1 << 16 };

typedef struct fixture {
    char dir[256], x[300], y[300];
    nnc_env *e;
} fixture;

static bool begin(fixture *f)
{
    static float x[ROWS][IMAGE];
    int64_t y[ROWS];
    if (!api_tmpdir(f->dir, sizeof f->dir))
        return false;
    nnc_rng_fill(nnc_rng_key("x", 1), 0, (size_t)ROWS * IMAGE, 1, x[0]);
    for (int r = 0; r < ROWS; r++)
        y[r] = (x[r][0] > 0) + 2 * (x[r][1] > 0);
    const int64_t dim[] = {ROWS, 3, 6, 6};
    const nnc_type tx = nnc_type_make(DT_f32, 4, dim), ty = nnc_type_make(DT_i64, 1, dim);
    snprintf(f->x, sizeof f->x, "%s/x.npy", f->dir);
    snprintf(f->y, sizeof f->y, "%s/y.npy", f->dir);
    CHECK_OK(nnc_write_output(f->x, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(f->y, &ty, y, test_sink));
    return nnc_env_create(&(nnc_env_options){.threads = 1}, &f->e, test_sink) == NNC_OK;
}

static void end(fixture *f)
{
    nnc_env_destroy(f->e);
    api_rmdir(f->dir);
}

/* A net of LAYERS layers; device[]: where each one is, NULL: nowhere said. */
static nnc_graph *net(const int *device, int batch)
{
    static const char *const layer[LAYERS] = {
        "\"conv\", \"channels\": 8, \"kernel\": 3, \"pad\": 1", "\"batchnorm\"", "\"relu\"",
        "\"conv\", \"channels\": 8, \"kernel\": 3, \"pad\": 1", "\"batchnorm\"", "\"relu\"",
        "\"dropout\", \"alpha\": 0.25", "\"flatten\"", "\"linear\", \"out\": 16",
        "\"linear\", \"out\": 4"};
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "{\"inputs\": {\"x\": [%d, 3, 6, 6]}, \"layers\": [", batch);
    for (int i = 0; i < LAYERS; i++) {
        nnc_printf(&t, "%s{\"op\": %s", i ? ", " : "", layer[i]);
        if (device)
            nnc_printf(&t, ", \"device\": %d", device[i]);
        nnc_puts(&t, "}");
    }
    nnc_puts(&t, "]}");
    const nnc_model_options with = {.seed = 3};
    nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(&t), t.n, &with, test_sink);
    CHECK(g != NULL);
    return g;
}

/* What a training leaves: its table of losses, without times, and the file of its weights. */
typedef struct trained {
    double loss[4], valid[4];
    char *weights;
    size_t n;
} trained;

static void read_losses(const char *csv, trained *out)
{
    for (int e = 0; e < 2; e++) {
        csv += strcspn(csv, "\n");
        csv += *csv == '\n';
        const char *p = csv;
        for (int c = 0; c < 6; c++) {
            const double v = strtod(p, NULL);
            if (c == 2)
                out->loss[e] = v;
            if (c == 5)
                out->valid[e] = v;
            p += strcspn(p, ",\n");
            p += *p == ',';
        }
    }
}

static nnc_status train(
    const fixture *f, const int *device, const nnc_train_options *o, trained *out)
{
    NNC_LOCAL(nnc_text) csv = {0};
    char save[300];
    nnc_train_options own = *o;
    nnc_graph *g = net(device, 4);
    *out = (trained){{0}};
    snprintf(save, sizeof save, "%s/w.npz", f->dir);
    own.data.path = f->x;
    own.data.labels = f->y;
    own.data.validation = 0.25;
    own.epochs = 2;
    own.seed = 5;
    own.rate.lr = 0.05;
    own.save = save;
    const nnc_status s = g ? nnc_train(f->e, g, &own, NNC_CSV, &csv, test_sink) : NNC_E_MODEL;
    nnc_graph_destroy(g);
    if (s)
        return s;
    FILE *w = fopen(save, "rb");
    out->weights = nnc_calloc(MOST, 1);
    out->n = w ? fread(out->weights, 1, MOST, w) : 0;
    CHECK(w && out->n > 1000 && out->n < MOST);
    if (w)
        fclose(w);
    remove(save);
    read_losses(nnc_text_str(&csv), out);
    return NNC_OK;
}

static void check_same(const trained *a, const trained *b, const char *what)
{
    bool same = a->n == b->n && a->weights && b->weights && !memcmp(a->weights, b->weights, a->n);
    for (int e = 0; e < 2; e++)
        same = same && a->loss[e] == b->loss[e] && a->valid[e] == b->valid[e] && a->loss[e] > 0;
    if (!same)
        test_fail(__FILE__, __LINE__,
            "%s: other numbers than one device: loss %.9g %.9g, not %.9g %.9g", what, b->loss[0],
            b->loss[1], a->loss[0], a->loss[1]);
}

static const int two[LAYERS] = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1},
                 four[LAYERS] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3},
                 around[LAYERS] = {0, 0, 0, 1, 1, 1, 0, 0, 0, 1};

static const struct {
    const char *what;
    nnc_strategy strategy;
    int devices, micro, accumulate;
    const int *device;
} shared[] = {{"micro-batches on one device", NNC_STRATEGY_layers, 1, 4, 1, NULL},
    {"placed layers", NNC_STRATEGY_layers, 2, 4, 1, two},
    {"gpipe, 2", NNC_STRATEGY_gpipe, 2, 4, 1, two}, {"gpipe, 4", NNC_STRATEGY_gpipe, 4, 4, 1, four},
    {"1f1b, 2", NNC_STRATEGY_1f1b, 2, 4, 1, two}, {"1f1b, 4", NNC_STRATEGY_1f1b, 4, 4, 1, four},
    {"1f1b, cut by nnc", NNC_STRATEGY_1f1b, 3, 4, 1, NULL},
    {"1f1b, accumulated, too", NNC_STRATEGY_1f1b, 2, 2, 2, two},
    {"interleaved", NNC_STRATEGY_interleaved, 2, 4, 1, around},
    {"zb-h1", NNC_STRATEGY_zb_h1, 4, 4, 1, four}};

/* level: -O; where it is 2, kernels that a cut divides round otherwise, and so do tasks of weight gradients. The cuts of these tests are
 * elsewhere, but one that follows from the engines at hand may be anywhere. */
static void check_all(const fixture *f, const nnc_training *of, int level, const char *what)
{
    trained one;
    nnc_train_options o = nnc_train_defaults;
    o.training = *of;
    o.training.accumulate = 4;
    o.compile.level = level;
    CHECK_OK(train(f, NULL, &o, &one));
    for (size_t i = 0; i < NNC_COUNT(shared); i++) {
        trained t;
        char text[100];
        const bool anywhere = !shared[i].device && shared[i].devices > 1;
        if ((shared[i].strategy == NNC_STRATEGY_zb_h1 || anywhere) && level > 1)
            continue;
        snprintf(text, sizeof text, "%s, -O%d: %s", what, level, shared[i].what);
        o.training = *of;
        o.training.accumulate = shared[i].accumulate;
        o.strategy = shared[i].strategy;
        o.micro = shared[i].micro;
        o.compile.devices = shared[i].devices;
        CHECK_OK(train(f, shared[i].device, &o, &t));
        check_same(&one, &t, text);
        nnc_free(t.weights);
    }
    nnc_free(one.weights);
}

TEST(pipelines_train_as_one_device)
{
    static const struct {
        const char *what;
        nnc_training t;
    } cases[] = {{"momentum", {NNC_TRAINING_DEFAULTS, .momentum = 0.9, .weight_decay = 0.01}},
        {"adamw, scaled", {NNC_TRAINING_DEFAULTS, .optimizer = NNC_OPT_adamw, .weight_decay = 0.1,
                              .loss_scale = 1024}}};
    fixture f;
    CHECK(begin(&f));
    for (size_t i = 0; i < NNC_COUNT(cases); i++)
        for (int level = 1; level <= 2; level++)
            if (test_takes(i + (uint64_t)level, 2))
                check_all(&f, &cases[i].t, level, cases[i].what);
    end(&f);
}

/* Rows of a batch's input gradients, of four micro-batches; -O1. */
static void input_gradients(const fixture *f, size_t way, float *grad)
{
    enum { MICRO = 4, EACH = 4 };
    static float x[MICRO * EACH * IMAGE];
    static int64_t target[MICRO * EACH];
    nnc_train_options o = nnc_train_defaults;
    nnc_trainer *t = NULL;
    nnc_graph *g = net(way ? shared[way - 1].device : NULL, EACH);
    nnc_rng_fill(nnc_rng_key("x", 2), 0, NNC_COUNT(x), 1, x);
    for (int r = 0; r < MICRO * EACH; r++)
        target[r] = r % CLASSES;
    o.training.grad_inputs = true;
    o.training.accumulate = way ? shared[way - 1].accumulate : MICRO;
    o.strategy = way ? shared[way - 1].strategy : NNC_STRATEGY_layers;
    o.micro = way ? shared[way - 1].micro : 0;
    o.compile.level = 1;
    o.compile.devices = way ? shared[way - 1].devices : 1;
    CHECK_OK(nnc_trainer_create(f->e, g, &o, &t, test_sink));
    const int rows = EACH * (way ? shared[way - 1].micro : 1);
    for (int r = 0; t && r < MICRO * EACH; r += rows) {
        const void *const batch[] = {&x[r * IMAGE], &target[r]};
        CHECK_OK(nnc_trainer_step(t, batch, test_sink));
        CHECK_OK(nnc_trainer_gradient(t, 0, &grad[r * IMAGE], test_sink));
    }
    nnc_trainer_destroy(t);
    nnc_graph_destroy(g);
}

/* Gradients with respect to inputs are those of each micro-batch's loss, whatever the schedule. */
TEST(pipelines_have_input_gradients)
{
    enum { N = 16 * IMAGE };
    static float want[N], grad[N];
    fixture f;
    CHECK(begin(&f));
    input_gradients(&f, 0, want);
    CHECK(want[0] != 0 && want[N - 1] != 0);
    for (size_t i = 0; i < NNC_COUNT(shared); i++) {
        input_gradients(&f, i + 1, grad);
        for (int k = 0; k < N; k++)
            if (grad[k] != want[k] && (shared[i].device || shared[i].devices == 1)) {
                test_fail(__FILE__, __LINE__, "%s: element %d is %.9g, not %.9g", shared[i].what, k,
                    (double)grad[k], (double)want[k]);
                break;
            }
    }
    end(&f);
}

/* The common norm of gradients is a sum over the devices: equal up to rounding. */
TEST(clipped_pipelines)
{
    nnc_train_options o = nnc_train_defaults;
    trained one, t;
    fixture f;
    CHECK(begin(&f));
    o.training.clip_norm = 0.5;
    o.training.accumulate = 4;
    CHECK_OK(train(&f, NULL, &o, &one));
    o.strategy = NNC_STRATEGY_1f1b;
    o.compile.devices = 2;
    CHECK_OK(train(&f, two, &o, &t));
    CHECK(one.loss[1] > 0 && fabs(one.loss[1] - t.loss[1]) < 1e-5 * one.loss[1]);
    nnc_free(one.weights);
    nnc_free(t.weights);
    end(&f);
}

/* Two pipelines side by side are the data parallelism of two devices, up to the order of sums. */
TEST(replicated_pipelines)
{
    nnc_train_options o = nnc_train_defaults;
    trained data, t;
    fixture f;
    CHECK(begin(&f));
    o.training.accumulate = 3;
    o.strategy = NNC_STRATEGY_data;
    o.compile.devices = 2;
    CHECK_OK(train(&f, NULL, &o, &data));
    o.training.accumulate = 0;
    o.micro = 3;
    CHECK_OK(train(&f, NULL, &o, &t));
    CHECK(data.loss[1] > 0 && fabs(data.loss[1] - t.loss[1]) < 1e-4 * data.loss[1]);
    nnc_free(t.weights);
    o.strategy = NNC_STRATEGY_1f1b;
    o.compile.devices = 4;
    o.replicas = 2;
    CHECK_OK(train(&f, two, &o, &t));
    CHECK(fabs(data.loss[1] - t.loss[1]) < 1e-4 * data.loss[1]);
    CHECK(fabs(data.valid[1] - t.valid[1]) < 1e-4 * data.valid[1]);
    nnc_free(t.weights);
    nnc_free(data.weights);
    o.compile.devices = 2;
    CHECK_INT(train(&f, two, &o, &t), NNC_E_USAGE);
    CHECK_DIAG("the layers are placed on 2 devices, but each of 2 replicas has 1 of 2");
    end(&f);
}

/* Collectives on a stream of their own change no number. */
TEST(collectives_beside_the_backward_pass)
{
    nnc_train_options o = nnc_train_defaults;
    trained one, t;
    fixture f;
    CHECK(begin(&f));
    o.strategy = NNC_STRATEGY_data;
    o.compile.devices = 3;
    o.training.momentum = 0.9;
    for (int micro = 1; micro <= 2; micro++) {
        o.micro = micro;
        o.compile.streams = 1;
        CHECK_OK(train(&f, NULL, &o, &one));
        o.compile.streams = 2;
        CHECK_OK(train(&f, NULL, &o, &t));
        check_same(&one, &t, "data, 2 streams");
        nnc_free(one.weights);
        nnc_free(t.weights);
    }
    end(&f);
}

/* What cannot be a pipeline says so. */
TEST(pipelines_that_are_none)
{
    static const int back[LAYERS] = {0, 0, 0, 1, 1, 1, 0, 0, 0, 0};
    nnc_train_options o = nnc_train_defaults;
    fixture f;
    trained t;
    CHECK(begin(&f));
    o.strategy = NNC_STRATEGY_1f1b;
    o.compile.devices = 2;
    CHECK_INT(train(&f, two, &o, &t), NNC_E_USAGE);
    CHECK_DIAG("give --micro-batches=M");
    o.micro = 4;
    CHECK_INT(train(&f, back, &o, &t), NNC_E_USAGE);
    CHECK_DIAG("the layers of a pipeline are on devices 0, 1, ... in the order of the layers");
    o.strategy = NNC_STRATEGY_interleaved;
    o.micro = 3;
    CHECK_INT(train(&f, around, &o, &t), NNC_E_USAGE);
    CHECK_DIAG("needs a number of micro-batches that is a multiple of the devices");
    end(&f);
}

/* Runs g on x: its output; *bytes: of weights, on all devices. */
static float *run(const fixture *f, const nnc_graph *g, int devices, const float *x, int64_t *bytes)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    float *y = nnc_calloc(64, sizeof *y);
    o.devices = devices;
    CHECK_OK(nnc_compile(f->e, g, &o, &a, test_sink));
    CHECK_OK(a ? nnc_session_create(f->e, a, &s, test_sink) : NNC_E_MODEL);
    if (s) {
        CHECK_OK(nnc_session_input(s, 0, x, test_sink));
        CHECK_OK(nnc_session_run(s, test_sink));
        CHECK(nnc_type_bytes(nnc_session_output_type(s, 0)) <= 64 * (int64_t)sizeof *y);
        CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    }
    *bytes = 0;
    for (int d = 0; a && d < devices; d++)
        *bytes += nnc_artifact_plan(a)->device[d].persist_bytes;
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    return y;
}

/* Parts of a batch give what the model gives for each by itself, with one copy of the weights. */
TEST(pipelines_of_inference)
{
    enum { BATCH = 8, OUT = 4 };
    static float x[BATCH * IMAGE];
    const int *const places[] = {two, four, NULL};
    const nnc_compile_options four_devices = {.level = 2, .streams = 1, .devices = 4};
    fixture f;
    int64_t bytes = 0, one = 0;
    CHECK(begin(&f));
    nnc_rng_fill(nnc_rng_key("pictures", 1), 0, BATCH * IMAGE, 1, x);
    for (int micro = 2; micro <= BATCH; micro *= 2) {
        const int each = BATCH / micro;
        float want[BATCH * OUT];
        nnc_graph *part = net(NULL, each);
        for (int k = 0; k < micro; k++) {
            float *y = run(&f, part, 1, x + k * each * IMAGE, &one);
            memcpy(want + k * each * OUT, y, (size_t)each * OUT * sizeof *y);
            nnc_free(y);
        }
        for (size_t p = 0; p < NNC_COUNT(places); p++) {
            nnc_graph *g = net(places[p], BATCH), *all = NULL;
            CHECK_OK(nnc_shared_model(
                f.e, g, &four_devices, NNC_STRATEGY_forward, 1, micro, &all, test_sink));
            float *y = all ? run(&f, all, 4, x, &bytes) : NULL;
            CHECK(y && !memcmp(want, y, sizeof want));
            CHECK(bytes < one + one / 4);
            nnc_free(y);
            nnc_graph_destroy(all);
            nnc_graph_destroy(g);
        }
        nnc_graph_destroy(part);
    }
    nnc_graph *g = net(two, BATCH), *all = NULL;
    CHECK_INT(nnc_shared_model(f.e, g, &four_devices, NNC_STRATEGY_forward, 1, 3, &all, test_sink),
        NNC_E_USAGE);
    CHECK_DIAG("a batch of 8 cannot be divided into 3 equal micro-batches");
    nnc_graph_destroy(g);
    end(&f);
}

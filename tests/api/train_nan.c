/* tests/api/train_nan.c -- where numbers that are NaN or infinite arise: in the data, a layer, a gradient, an update some steps ago. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "frontend/frontend.h"
#include "help.h"
#include "tensors/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 32, WIDE = 4 };

typedef struct place {
    char dir[256], x[300], y[300], c[300], w[300];
    nnc_env *e;
} place;

static float samples[ROWS][WIDE];

static void write_samples(const place *p)
{
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    int64_t y[ROWS];
    for (int r = 0; r < ROWS; r++)
        y[r] = r % 2;
    CHECK_OK(nnc_write_output(p->x, &tx, samples, test_sink));
    CHECK_OK(nnc_write_output(p->y, &ty, y, test_sink));
}

static void open_place(place *p)
{
    CHECK(api_tmpdir(p->dir, sizeof p->dir));
    snprintf(p->x, sizeof p->x, "%s/x.npy", p->dir);
    snprintf(p->y, sizeof p->y, "%s/y.npy", p->dir);
    snprintf(p->c, sizeof p->c, "%s/c.npz", p->dir);
    snprintf(p->w, sizeof p->w, "%s/w.npz", p->dir);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDE; i++)
            samples[r][i] = 1 + nnc_rng_uniform(nnc_rng_key("s", 1), (uint64_t)(r * WIDE + i));
    CHECK_OK(nnc_env_create(NULL, &p->e, test_sink));
}

static void close_place(place *p)
{
    nnc_env_destroy(p->e);
    api_rmdir(p->dir);
}

static nnc_train_options options(const place *p)
{
    nnc_train_options o = nnc_train_defaults;
    o.data.path = p->x;
    o.data.labels = p->y;
    o.data.no_shuffle = true;
    o.epochs = 4;
    o.rate.lr = 0.1;
    return o;
}

#define MODEL(layer) \
    "{\"inputs\": {\"x\": [4, 4]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": " \
    "4}, " layer ", {\"op\": \"linear\", \"name\": \"b\", \"out\": 2}]}"
static const char
    plain[] = MODEL("\"tanh\""),
    steep[] = MODEL("{\"op\": \"sub\", \"in\": [\"a\", \"a\"]}, \"sqrt\""),
    one[] = "{\"inputs\": {\"x\": [4, 4]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
            "\"out\": 2, \"bias\": false}]}",
    roots[] = MODEL("\"sqrt\"");

static char said[2000]; /* the last report */

static nnc_status train(const place *p, const char *json, const nnc_train_options *o)
{
    NNC_LOCAL(nnc_text) out = {0};
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    nnc_sink_clear(test_sink);
    write_samples(p);
    const nnc_status s = nnc_train(p->e, g, o, NNC_TEXT, &out, test_sink);
    snprintf(said, sizeof said, "%s", nnc_text_str(&out));
    nnc_graph_destroy(g);
    return s;
}

TEST(nan_in_the_data)
{
    place p;
    open_place(&p);
    nnc_train_options o = options(&p);
    samples[21][2] = NAN;
    CHECK_INT(train(&p, plain, &o), NNC_E_DIFFERS);
    CHECK_DIAG("step 6: the data are not finite: x has nan at number 2 of");
    CHECK_DIAG("21"); /* the row */
    o.on_nan = NNC_NAN_skip; /* the step changes nothing, and the weights stay finite */
    o.save = p.w;
    CHECK_OK(train(&p, plain, &o));
    CHECK(strstr(said, "; 1 step skipped, whose loss was not finite;"));
    CHECK(nnc_file_exists(p.w));
    close_place(&p);
}

/* Writes the samples but rows `from` to `to`, trains, and returns the file of the weights, which the caller frees. */
static char *weights_without(
    const place *p, const char *json, const nnc_train_options *o, int from, int to, size_t *n)
{
    float x[ROWS][WIDE];
    int64_t y[ROWS];
    int rows = 0;
    char *file = NULL;
    NNC_LOCAL(nnc_text) out = {0};
    for (int r = 0; r < ROWS; r++)
        if (r < from || r >= to) {
            memcpy(x[rows], samples[r], sizeof x[0]);
            y[rows++] = r % 2;
        }
    const int64_t dim[] = {rows, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    CHECK_OK(nnc_write_output(p->x, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(p->y, &ty, y, test_sink));
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    CHECK_OK(nnc_train(p->e, g, o, NNC_TEXT, &out, test_sink));
    nnc_graph_destroy(g);
    CHECK_OK(nnc_file_read(p->w, 0, &file, n, test_sink));
    return file;
}

/* A step that is skipped leaves every state, including running statistics of its earlier batches and the count of the optimizer's steps.
 * The weights are those of the same samples without its own, bit for bit, also where the training stopped in between. */
TEST(skipped_steps_leave_all_states)
{
    static const char normed[] = MODEL("{\"op\": \"batchnorm\", \"name\": \"n\"}");
    place p;
    open_place(&p);
    for (int i = 0; i < 12; i++) {
        nnc_train_options o = options(&p);
        size_t n = 0, m = 0;
        const int each = i % 2 ? 2 : 1, bad = i % 2 ? 1 : 2; /* the second batch of a step */
        const int rows = 4 * each, from = i % 2 ? 8 : 12;
        char *whole, *without;
        o.training.optimizer = (nnc_optimizer)(i / 2 % 3);
        o.training.momentum = 0.9 * !o.training.optimizer;
        o.training.accumulate = each;
        o.epochs = 1;
        o.save = p.w;
        samples[from + 4 * (bad - (i % 2 ? 0 : 2))][1] = NAN;
        o.on_nan = NNC_NAN_skip;
        if (i >= 6) { /* stops right after the skipped step, and goes on */
            o.checkpoint = p.c;
            o.checkpoint_every = from / rows + 1;
            o.steps = from / rows + 1;
            free(weights_without(&p, normed, &o, 0, 0, &n));
            o.steps = 0;
            o.resume = true;
        }
        whole = weights_without(&p, normed, &o, 0, 0, &n);
        unlink(p.c);
        o.checkpoint = NULL;
        o.resume = false;
        o.checkpoint_every = 0;
        without = weights_without(&p, normed, &o, from, from + rows, &m);
        if (!whole || !without || n != m || memcmp(whole, without, n) != 0)
            test_fail(__FILE__, __LINE__, "case %d: a skipped step has changed states", i);
        free(whole);
        free(without);
        samples[from + 4 * (bad - (i % 2 ? 0 : 2))][1] = 1;
    }
    close_place(&p);
}

/* The layer and line of the last message. */
static void check_layer(const char *path)
{
    const size_t n = nnc_sink_count(test_sink);
    const nnc_loc loc = n ? nnc_sink_at(test_sink, n - 1)->loc : (nnc_loc){0};
    CHECK_STR(loc.path, path);
    CHECK(loc.line == 1 && loc.col > 30);
}

/* The root of a negative number is in the model's second layer; that of 0 has an infinite gradient. */
TEST(nan_of_a_layer)
{
    place p;
    open_place(&p);
    const nnc_train_options o = options(&p);
    CHECK_INT(train(&p, roots, &o), NNC_E_DIFFERS);
    CHECK_DIAG("step 1: the loss is nan. It arose here: ");
    check_layer("/layers/1/sqrt");
    CHECK_DIAG("of the result (op sqrt)");
    CHECK_INT(train(&p, steep, &o), NNC_E_DIFFERS);
    CHECK_DIAG("step 1: its update makes ");
    check_layer("/layers/2/sqrt/backward");
    CHECK_DIAG("of the gradient (op ");
    close_place(&p);
}

/* The loss scale makes gradients infinite, so the step is skipped: nothing else is wrong, also where their sums are a state. A scale that
 * grows with each step stays finite. */
TEST(infinite_sums_of_a_skipped_step)
{
    place p;
    open_place(&p);
    nnc_train_options o = options(&p);
    for (int i = 0; i < ROWS * WIDE; i++)
        (&samples[0][0])[i] *= 100;
    o.training.accumulate = 2;
    o.training.loss_scale = 3e38;
    o.steps = 1;
    CHECK_OK(train(&p, one, &o));
    memset(samples, 0, sizeof samples);
    o = options(&p);
    o.training.loss_scale = 0x1p120;
    o.training.scale_growth = 1;
    o.epochs = 4;
    CHECK_OK(train(&p, one, &o)); /* gradients of samples that are 0 are 0 at any scale */
    close_place(&p);
}

/* Samples are 0 but for one of step 2, whose update overflows. The loss of step 2 is finite, that of step 3 is not: the steps are taken
 * again, from the first or from the checkpoint. */
TEST(nan_of_an_earlier_update)
{
    place p;
    open_place(&p);
    nnc_train_options o = options(&p);
    o.rate.lr = 3e38;
    memset(samples, 0, sizeof samples);
    samples[5][1] = 100;
    CHECK_INT(train(&p, one, &o), NNC_E_DIFFERS);
    CHECK_DIAG("step 2: its update makes a.weight infinite or NaN");
    check_layer("/optimizer");
    o.checkpoint = p.c;
    o.checkpoint_every = 1;
    CHECK_INT(train(&p, one, &o), NNC_E_DIFFERS);
    CHECK_DIAG("step 2: its update makes a.weight infinite or NaN");
    check_layer("/optimizer");
    o.resume = true; /* from step 1, which was good */
    samples[5][1] = 0;
    CHECK_OK(train(&p, one, &o));
    close_place(&p);
}

/* Not NaN, but as hard to find: an index outside the table of an embedding is told with its row of the file. */
TEST(rows_with_indices_out_of_range)
{
    static const char json[] =
        "{\"inputs\": {\"x\": {\"shape\": [4, 3], \"dtype\": \"i64\"}}, \"layers\": [{\"op\": "
        "\"embedding\", \"rows\": 10, \"channels\": 4}, \"flatten\", {\"op\": \"linear\", \"out\": "
        "2}]}";
    int64_t x[ROWS][3] = {{0}};
    const int64_t dim[] = {ROWS, 3};
    const nnc_type tx = nnc_type_make(DT_i64, 2, dim);
    NNC_LOCAL(nnc_text) out = {0};
    place p;
    open_place(&p);
    const nnc_train_options o = options(&p);
    nnc_graph *g = nnc_model_parse("m.json", json, sizeof json - 1, NULL, test_sink);
    write_samples(&p);
    x[14][1] = 10;
    CHECK_OK(nnc_write_output(p.x, &tx, x, test_sink));
    CHECK_INT(nnc_train(p.e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_MODEL);
    CHECK_DIAG("index 10 is in ");
    CHECK_DIAG("14");
    nnc_graph_destroy(g);
    close_place(&p);
}

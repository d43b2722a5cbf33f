/* tests/api/train_loop.c -- the loop of nnc train: validation of all samples, weights that are kept, files of two processes, what a
 * checkpoint is refused for. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "help.h"
#include <math.h>
#include "tensors/tensors.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum { ROWS = 90, WIDE = 8, CLASSES = 4 };

typedef struct fixture {
    char dir[256], x[300], y[300], save[300];
    nnc_env *e;
} fixture;

static bool begin(fixture *f)
{
    static float x[ROWS][WIDE];
    int64_t y[ROWS];
    if (!api_tmpdir(f->dir, sizeof f->dir))
        return false;
    for (int r = 0; r < ROWS; r++) {
        y[r] = r * CLASSES / ROWS; /* in order: the last batch is all of one class */
        for (int i = 0; i < WIDE; i++)
            x[r][i] = 0.4f * (float)(i == y[r]) +
                      nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    snprintf(f->x, sizeof f->x, "%s/x.npy", f->dir);
    snprintf(f->y, sizeof f->y, "%s/y.npy", f->dir);
    snprintf(f->save, sizeof f->save, "%s/w.npz", f->dir);
    CHECK_OK(nnc_write_output(f->x, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(f->y, &ty, y, test_sink));
    return nnc_env_create(&(nnc_env_options){.threads = 1}, &f->e, test_sink) == NNC_OK;
}

static void end(fixture *f)
{
    nnc_env_destroy(f->e);
    api_rmdir(f->dir);
}

static nnc_train_options options_of(const fixture *f)
{
    nnc_train_options o = nnc_train_defaults;
    o.data.path = f->x;
    o.data.labels = f->y;
    o.data.validation_path = f->x;
    o.data.validation_labels = f->y;
    o.rate.lr = 0.3;
    return o;
}

/* names: of the two layers, with their keys */
static nnc_status train_named(const fixture *f, const char *const names[2], int batch,
    const char *weights, const nnc_train_options *o, nnc_text *out)
{
    char json[300];
    snprintf(json, sizeof json,
        "{\"inputs\": {\"x\": [%d, 8]}, \"layers\": [{\"op\": \"linear\", %s\"out\": 12}, "
        "\"relu\", "
        "{\"op\": \"linear\", %s\"out\": 4}]}",
        batch, names[0], names[1]);
    const nnc_model_options with = {.weights = weights, .seed = 3};
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), &with, test_sink);
    if (!g)
        return NNC_E_MODEL;
    const nnc_status s = nnc_train(f->e, g, o, NNC_CSV, out, test_sink);
    nnc_graph_destroy(g);
    return s;
}

static nnc_status train(
    const fixture *f, int batch, const char *weights, const nnc_train_options *o, nnc_text *out)
{
    static const char *const names[] = {"\"name\": \"a\", ", "\"name\": \"b\", "};
    return train_named(f, names, batch, weights, o, out);
}

/* The number in this column of row `row` (0 is the head) of a table. */
static double cell(const nnc_text *csv, int row, const char *column)
{
    const char *p = nnc_text_str(csv), *at = strstr(p, column);
    int k = 0;
    for (const char *q = p; at && q < at; q++)
        k += *q == ',';
    for (; row > 0 && *p; row--)
        p += strcspn(p, "\n") + 1;
    for (; k > 0; k--)
        p += strcspn(p, ",") + 1;
    return at ? strtod(p, NULL) : NAN;
}

/* Weights of layers without a name, with a dash in it, and of two that differ in it only: a graph's values have other names. What is saved
 * is what was trained, and a checkpoint holds each weight once. */
TEST(trained_weights_of_any_name)
{
    static const char *const names[][2] = {{"", ""}, {"\"name\": \"a-b\", ", "\"name\": \"a_b\", "},
        {"\"name\": \"a_b\", ", "\"name\": \"a-b\", "}};
    fixture f;
    char checkpoint[300];
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    for (size_t i = 0; i < NNC_COUNT(names); i++) {
        NNC_LOCAL(nnc_text) first = {0}, again = {0};
        nnc_train_options o = options_of(&f);
        nnc_tensors *c = NULL;
        o.epochs = 2;
        o.save = f.save;
        o.checkpoint = checkpoint;
        CHECK_OK(train_named(&f, names[i], 8, NULL, &o, &first));
        CHECK_OK(nnc_tensors_open(checkpoint, NULL, &c, test_sink));
        CHECK_INT(nnc_tensors_count(c), 4 + 4); /* and position, sums, options, checksums */
        nnc_tensors_close(c);
        o = options_of(&f);
        o.rate.lr = 0;
        CHECK_OK(train_named(&f, names[i], 8, f.save, &o, &again));
        const double loss = cell(&first, 2, "validation_loss");
        CHECK(fabs(cell(&again, 1, "validation_loss") - loss) < 1e-6 * loss);
        CHECK(cell(&first, 1, "validation_loss") > loss * 1.001);
        unlink(checkpoint);
    }
    end(&f);
}

/* Loss and accuracy of a validation are those of all samples, whatever the batch. */
TEST(validation_is_of_all_samples)
{
    static const int batch[] = {1, 7, 32, 64, 90};
    fixture f;
    double loss = 0, accuracy = 0;
    CHECK(begin(&f));
    for (size_t i = 0; i < NNC_COUNT(batch); i++)
        for (int ignores = 0; ignores < 2; ignores++) {
            NNC_LOCAL(nnc_text) out = {0};
            nnc_train_options o = options_of(&f);
            o.rate.lr = 0;
            o.training.ignore_index = ignores ? -100 : NNC_IGNORE_none;
            CHECK_OK(train(&f, batch[i], NULL, &o, &out));
            const double now = cell(&out, 1, "validation_loss"),
                         right = cell(&out, 1, "validation_accuracy");
            loss = i + (size_t)ignores ? loss : now;
            accuracy = i + (size_t)ignores ? accuracy : right;
            CHECK(fabs(now - loss) < 1e-5 * loss);
            CHECK(fabs(right - accuracy) < 1e-9 && fabs(right * ROWS - rint(right * ROWS)) < 1e-6);
        }
    end(&f);
}

/* best: the file has the weights whose validation was the best. all: a file for each epoch. */
TEST(weights_that_are_kept)
{
    enum { EPOCHS = 8 };
    fixture f;
    NNC_LOCAL(nnc_text) out = {0}, again = {0}, third = {0};
    char name[330];
    CHECK(begin(&f));
    nnc_train_options o = options_of(&f);
    o.epochs = EPOCHS;
    o.rate.lr = 1.5; /* so that epochs are not each better than the one before */
    o.save = f.save;
    o.keep = NNC_KEEP_best;
    CHECK_OK(train(&f, 16, NULL, &o, &out));
    int best = 1;
    for (int k = 2; k <= EPOCHS; k++) {
        const double a = cell(&out, k, "validation_accuracy"),
                     b = cell(&out, best, "validation_accuracy");
        if (a > b ||
            (a == b && cell(&out, k, "validation_loss") < cell(&out, best, "validation_loss")))
            best = k;
    }
    CHECK(best < EPOCHS); /* otherwise the test shows nothing */
    nnc_train_options check = options_of(&f);
    check.rate.lr = 0;
    CHECK_OK(train(&f, 16, f.save, &check, &again));
    CHECK(fabs(cell(&again, 1, "validation_loss") - cell(&out, best, "validation_loss")) < 1e-5);
    o.keep = NNC_KEEP_all;
    CHECK_OK(train(&f, 16, NULL, &o, &third));
    for (int k = 1; k <= EPOCHS; k++) {
        NNC_LOCAL(nnc_text) of = {0};
        snprintf(name, sizeof name, "%s/w-%d.npz", f.dir, k);
        CHECK_OK(train(&f, 16, name, &check, &of));
        CHECK(fabs(cell(&of, 1, "validation_loss") - cell(&out, k, "validation_loss")) < 1e-5);
    }
    o.keep = NNC_KEEP_best;
    o.data.validation_path = o.data.validation_labels = NULL;
    CHECK_INT(train(&f, 16, NULL, &o, &out), NNC_E_USAGE);
    CHECK_DIAG("--keep=best is by the validation");
    o.save = NULL;
    CHECK_INT(train(&f, 16, NULL, &o, &out), NNC_E_USAGE);
    CHECK_DIAG("--keep is of the weights that --save=FILE names");
    end(&f);
}

/* Replaces the checkpoint by a copy of it, as another training with the same file does. */
static void replace(void *ctx, const char *line)
{
    const char *file = ctx;
    char *text = NULL;
    size_t n = 0;
    if (!strstr(line, "epoch 3:"))
        return;
    CHECK_OK(nnc_file_read(file, 0, &text, &n, test_sink));
    CHECK_OK(nnc_file_write(file, text, n, false, test_sink));
    nnc_free(text);
}

/* Two trainings do not destroy each other's checkpoint or log: one of them ends. */
TEST(files_of_two_trainings)
{
    fixture f;
    NNC_LOCAL(nnc_text) out = {0};
    char checkpoint[330], log[330];
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    snprintf(log, sizeof log, "%s/log", f.dir);
    nnc_train_options o = options_of(&f);
    o.epochs = 5;
    o.log = log;
    const int fd = open(log, O_CREAT | O_RDWR, 0666);
    CHECK(fd >= 0 && write(fd, "theirs\n", 7) == 7 && flock(fd, LOCK_EX) == 0);
    CHECK_INT(train(&f, 16, NULL, &o, &out), NNC_E_IO);
    CHECK_DIAG("another program writes to it");
    CHECK_INT(lseek(fd, 0, SEEK_END), 7);
    close(fd);
    CHECK_OK(train(&f, 16, NULL, &o, &out));
    o.checkpoint = checkpoint;
    char json[] = "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": \"linear\", \"out\": 4}]}";
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    o.report = replace;
    o.ctx = checkpoint;
    CHECK_INT(nnc_train(f.e, g, &o, NNC_TEXT, &out, test_sink), NNC_E_IO);
    CHECK_DIAG("another program has written it since");
    o.report = NULL;
    o.resume = true;
    CHECK_OK(nnc_train(f.e, g, &o, NNC_TEXT, &out, test_sink)); /* it is whole */
    nnc_graph_destroy(g);
    end(&f);
}

/* An epoch's time is that of its parts; without loader threads all loading is waited for, and two devices communicate. */
TEST(times_of_an_epoch)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
        "\"out\": "
        "512}, \"relu\", {\"op\": \"linear\", \"name\": \"b\", \"out\": 512%s}, \"relu\", {\"op\": "
        "\"linear\", \"name\": \"c\", \"out\": 4}]}";
    fixture f;
    CHECK(begin(&f));
    for (int devices = 1; devices <= 2; devices++) {
        NNC_LOCAL(nnc_text) out = {0}, m = {0};
        nnc_printf(&m, json, devices > 1 ? ", \"device\": 1" : "");
        nnc_graph *g = nnc_model_parse("m.json", nnc_text_str(&m), m.n, NULL, test_sink);
        nnc_train_options o = options_of(&f);
        o.training.optimizer = NNC_OPT_adam;
        o.data.loaders = -1;
        o.compile.devices = devices;
        o.epochs = 8;
        double most = 0;
        const int64_t begin_ns = nnc_now_ns();
        CHECK_OK(nnc_train(f.e, g, &o, NNC_CSV, &out, test_sink));
        const double all = (double)(nnc_now_ns() - begin_ns);
        for (int row = 1; row <= o.epochs; row++) {
            static const char *const part[] = {"forward_ns", "backward_ns", "optimizer_ns",
                "copy_ns", "communication_ns", "idle_ns", "other_ns", "load_wait_ns",
                "checkpoint_ns"};
            double sum = 0;
            for (size_t i = 0; i < NNC_COUNT(part); i++) {
                const double ns = cell(&out, row, part[i]);
                if (!(ns > 0 || (i >= 4 && ns == 0)))
                    test_fail(__FILE__, __LINE__, "%d devices, %s: %g ns\n%s", devices, part[i], ns,
                        nnc_text_str(&out));
                sum += ns;
            }
            const double compute = cell(&out, row, "compute_ns");
            const double between =
                cell(&out, row, "communication_ns") + cell(&out, row, "communication_hidden_ns");
            CHECK(sum == cell(&out, row, "total_ns") && compute < all);
            CHECK((between > 0) == (devices > 1));
            most = fmax(most, 1 - cell(&out, row, "other_ns") / compute);
            CHECK(cell(&out, row, "load_ns") == cell(&out, row, "load_wait_ns"));
        }
        CHECK(most > 0.5); /* the rest is the loop */
        nnc_graph_destroy(g);
    }
    end(&f);
}

/* A training that is resumed at its last step reports the rest of its epoch, in which nothing is computed. The batch that is read to
 * compare the data with the checkpoint's is not counted. */
TEST(times_of_an_epoch_without_steps)
{
    fixture f;
    NNC_LOCAL(nnc_text) out = {0};
    char file[330],
        json[] = "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": \"linear\", \"out\": 4}]}";
    const volatile sig_atomic_t stop = 1;
    CHECK(begin(&f));
    snprintf(file, sizeof file, "%s/rest.npz", f.dir);
    nnc_train_options o = options_of(&f);
    o.checkpoint = file;
    o.data.loaders = -1;
    o.epochs = 2;
    for (int resumed = 0; resumed < 2; resumed++) {
        nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
        o.stop = resumed ? NULL : &stop;
        o.steps = resumed;
        o.resume = resumed;
        out.n = 0;
        CHECK_OK(nnc_train(f.e, g, &o, NNC_CSV, &out, test_sink));
        nnc_graph_destroy(g);
    }
    CHECK(cell(&out, 1, "steps") == 1);
    CHECK(cell(&out, 1, "compute_ns") >= 0);
    CHECK(cell(&out, 1, "load_wait_ns") == 0);
    end(&f);
}

/* ---- single steps ------------------------------------------------------------------------------------------------------------- */

/* Number k (from 0) of this member in a log. */
static double logged(const char *log, const char *member, int k)
{
    const char *p = log;
    for (; p && k >= 0; k--) {
        p = strstr(p, member);
        p = p ? p + strlen(member) : NULL;
    }
    return p ? strtod(p, NULL) : NAN;
}

static char *train_with_log(const fixture *f, const char *json, nnc_train_options o, char *log)
{
    NNC_LOCAL(nnc_text) out = {0};
    size_t n;
    char *text = NULL;
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    o.log = log;
    CHECK_OK(nnc_train(f->e, g, &o, NNC_CSV, &out, test_sink));
    CHECK_OK(nnc_file_read(log, 0, &text, &n, test_sink));
    nnc_graph_destroy(g);
    return text;
}

/* The rate of the first step is that of step 1 of the warm-up, and so on. */
TEST(rates_of_first_steps)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [10, 8]}, \"layers\": [{\"op\": \"linear\", \"out\": 4}]}";
    static const double want[] = {0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.04};
    fixture f;
    char log[330];
    CHECK(begin(&f));
    snprintf(log, sizeof log, "%s/log", f.dir);
    nnc_train_options o = options_of(&f);
    o.rate.lr = 0.4;
    o.rate.warmup = 4;
    o.rate.schedule = NNC_LR_step;
    o.rate.every = "9steps";
    o.epochs = 2;
    NNC_FREED char *text = train_with_log(&f, json, o, log);
    for (int i = 0; i < 10; i++)
        CHECK(fabs(logged(text, "\"lr\": ", i) - want[i]) < 1e-8);
    end(&f);
}

/* Each batch and each layer drops other elements; those of a batch do not depend on the number of batches of a step. */
TEST(dropouts_of_steps)
{
    static const char one
        [] = "{\"inputs\": {\"x\": [90, 8]}, \"layers\": [{\"op\": \"dropout\", \"alpha\": 0.5}, "
             "{\"op\": \"linear\", \"out\": 4}]}",
     half[] = "{\"inputs\": {\"x\": [45, 8]}, \"layers\": [{\"op\": \"dropout\", \"alpha\": 0.5}, "
              "{\"op\": \"linear\", \"out\": 4}]}",
     two[] =
         "{\"inputs\": {\"x\": [90, 8]}, \"layers\": [{\"op\": \"dropout\", \"name\": \"a\", "
         "\"alpha\": 0.5}, {\"op\": \"dropout\", \"name\": \"b\", \"alpha\": 0.5, \"in\": \"x\"}, "
         "{\"op\": \"sub\", \"in\": [\"a\", \"b\"]}, {\"op\": \"linear\", \"out\": 4, \"bias\": "
         "false}]}";
    fixture f;
    char log[330];
    CHECK(begin(&f));
    snprintf(log, sizeof log, "%s/log", f.dir);
    nnc_train_options o = options_of(&f);
    o.rate.lr = 0;
    o.epochs = 4;
    o.data.no_shuffle = true;
    NNC_FREED char *text = train_with_log(&f, one, o, log);
    double loss[4];
    for (int i = 0; i < 4; i++) {
        loss[i] = logged(text, "\"loss\": ", i);
        for (int k = 0; k < i; k++)
            CHECK(loss[i] != loss[k]);
    }
    o.training.accumulate = 2;
    NNC_FREED char *sums = train_with_log(&f, half, o, log);
    o.training.accumulate = 1;
    NNC_FREED char *parts = train_with_log(&f, half, o, log);
    for (int i = 0; i < 4; i++) {
        const double a = logged(parts, "\"loss\": ", 2 * i),
                     b = logged(parts, "\"loss\": ", 2 * i + 1);
        CHECK(fabs(logged(sums, "\"loss\": ", i) - (a + b) / 2) < 1e-6);
    }
    o.seed = 1;
    NNC_FREED char *other = train_with_log(&f, one, o, log);
    CHECK(logged(other, "\"loss\": ", 0) != loss[0]);
    NNC_FREED char *apart = train_with_log(&f, two, o, log);
    CHECK(fabs(logged(apart, "\"loss\": ", 0) - 1.38629436) > 1e-3); /* equal masks: all logits 0 */
    end(&f);
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------------------- */

static bool same_files(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    CHECK_OK(nnc_file_read(a, 0, &x, &n, test_sink));
    CHECK_OK(nnc_file_read(b, 0, &y, &m, test_sink));
    const bool same = x && y && n == m && !memcmp(x, y, n);
    nnc_free(x);
    nnc_free(y);
    return same;
}

/* The best weights of a training that was resumed after its best epoch are those of one that did not stop. */
TEST(weights_that_are_kept_when_resumed)
{
    fixture f;
    NNC_LOCAL(nnc_text) whole = {0}, first = {0}, rest = {0};
    char other[330], checkpoint[330];
    CHECK(begin(&f));
    snprintf(other, sizeof other, "%s/w2.npz", f.dir);
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    nnc_train_options o = options_of(&f);
    o.epochs = 8;
    o.rate.lr = 1.5;
    o.save = f.save;
    o.keep = NNC_KEEP_best;
    CHECK_OK(train(&f, 16, NULL, &o, &whole));
    int best = 1;
    for (int k = 2; k <= o.epochs; k++)
        if (cell(&whole, k, "validation_accuracy") > cell(&whole, best, "validation_accuracy"))
            best = k;
    CHECK(best < o.epochs); /* otherwise the test shows nothing */
    o.save = other;
    o.checkpoint = checkpoint;
    o.epochs = best;
    CHECK_OK(train(&f, 16, NULL, &o, &first));
    CHECK(same_files(f.save, other));
    o.resume = true;
    o.epochs = 8;
    CHECK_OK(train(&f, 16, NULL, &o, &rest));
    CHECK(same_files(f.save, other));
    end(&f);
}

/* Several devices, each with the whole model and a part of the batch. Names of layers are given, not given, and no names of a graph. */
static nnc_status train_copies(
    const fixture *f, const char *name, const nnc_train_options *o, nnc_text *out)
{
    char json[400];
    snprintf(json, sizeof json,
        "{\"inputs\": {\"x\": [8, 8]}, \"layers\": [{\"op\": \"linear\", %s\"out\": 12}, "
        "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"dropout\", "
        "\"alpha\": 0.1}, {\"op\": \"linear\", \"out\": 4}]}",
        name);
    const nnc_model_options with = {.seed = 3};
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), &with, test_sink);
    if (!g)
        return NNC_E_MODEL;
    const nnc_status s = nnc_train(f->e, g, o, NNC_CSV, out, test_sink);
    nnc_graph_destroy(g);
    return s;
}

/* Each state is in the checkpoint once for each device: also running statistics, moments, and sums of gradients. */
static void check_copies(const char *checkpoint, int devices, const char *what)
{
    nnc_tensors *c = NULL;
    char name[300];
    int own[3] = {0};
    CHECK_OK(nnc_tensors_open(checkpoint, NULL, &c, test_sink));
    for (int i = 0; c && i < nnc_tensors_count(c); i++) {
        const char *is = nnc_tensors_at(c, i)->name, *end = strstr(is, ".device");
        if (!strcmp(is, "/train/position") || !strcmp(is, "/train/sums") ||
            !strcmp(is, "/train/options") || !strcmp(is, "/train/checksums"))
            continue;
        own[end ? atoi(end + 7) : 0]++;
        snprintf(name, sizeof name, "%s", is + (end && !strncmp(is, "/train/state/", 13) ? 13 : 0));
        if (end)
            name[strlen(name) - strlen(end)] = 0;
        NNC_LOCAL(nnc_text) moment = {0};
        nnc_printf(&moment, "/train/state/%s", name);
        if (end && !nnc_tensors_find(c, name) && !nnc_tensors_find(c, nnc_text_str(&moment)))
            test_fail(__FILE__, __LINE__, "%s: %s is a copy of nothing", what, is);
    }
    for (int d = 1; d < devices; d++)
        if (own[d] != own[0] || own[0] < 8)
            test_fail(__FILE__, __LINE__, "%s: %d states of device 0, %d of device %d", what,
                own[0], own[d], d);
    nnc_tensors_close(c);
}

/* A training on several devices that ends within an epoch and is resumed has the weights and the checkpoint of one that did not end. */
TEST(copies_on_several_devices_when_resumed)
{
    static const struct {
        const char *what, *name, *ext;
        int devices, optimizer, accumulate;
        double momentum, lr;
    } cases[] = {{"sgd", "\"name\": \"a\", ", "npz", 2, NNC_OPT_sgd, 1, 0, 0.3},
        {"momentum", "\"name\": \"a\", ", "npz", 2, NNC_OPT_sgd, 1, 0.9, 0.05},
        {"momentum, no names", "", "safetensors", 3, NNC_OPT_sgd, 1, 0.9, 0.05},
        {"adam", "\"name\": \"a-b\", ", "npz", 2, NNC_OPT_adam, 1, 0, 0.01},
        {"accumulated", "\"name\": \"a\", ", "safetensors", 2, NNC_OPT_adamw, 2, 0, 0.01}};
    fixture f;
    char w[330], c[2][340];
    CHECK(begin(&f));
    snprintf(w, sizeof w, "%s/w1.npz", f.dir);
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        if (!test_takes(i, 3))
            continue;
        NNC_LOCAL(nnc_text) whole = {0}, part = {0}, rest = {0};
        nnc_train_options o = options_of(&f);
        for (int k = 0; k < 2; k++)
            snprintf(c[k], sizeof c[k], "%s/c%d.%s", f.dir, k, cases[i].ext);
        o.compile.devices = cases[i].devices;
        o.strategy = NNC_STRATEGY_data;
        o.training.optimizer = cases[i].optimizer;
        o.training.accumulate = cases[i].accumulate;
        o.training.momentum = cases[i].momentum;
        o.checkpoint_every = 1;
        o.rate.lr = cases[i].lr;
        o.epochs = 3;
        o.save = f.save;
        o.checkpoint = c[0];
        CHECK_OK(train_copies(&f, cases[i].name, &o, &whole));
        check_copies(c[0], cases[i].devices, cases[i].what);
        o.save = w;
        o.checkpoint = c[1];
        o.steps = 3 + 1;
        CHECK_OK(train_copies(&f, cases[i].name, &o, &part));
        o.steps = 0;
        o.resume = true;
        CHECK_OK(train_copies(&f, cases[i].name, &o, &rest));
        if (!same_files(f.save, w))
            test_fail(__FILE__, __LINE__, "%s: other weights than without a stop", cases[i].what);
        if (!same_files(c[0], c[1]))
            test_fail(
                __FILE__, __LINE__, "%s: another checkpoint than without a stop", cases[i].what);
        unlink(c[0]);
        unlink(c[1]);
    }
    end(&f);
}

/* Sums of gradients that are infinite are replaced by the next step, which a loss scale makes finite: on each device. */
TEST(infinite_sums_on_several_devices)
{
    static float x[ROWS][WIDE];
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type type = nnc_type_make(DT_f32, 2, dim);
    fixture f;
    char checkpoint[330], large[330];
    NNC_LOCAL(nnc_text) out = {0};
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    snprintf(large, sizeof large, "%s/large.npy", f.dir);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDE; i++)
            x[r][i] = 1e4f * nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    CHECK_OK(nnc_write_output(large, &type, x, test_sink));
    nnc_train_options o = options_of(&f);
    o.data.path = large;
    o.compile.devices = 2;
    o.strategy = NNC_STRATEGY_data;
    o.training.accumulate = 2;
    o.training.loss_scale = 0x1p120;
    o.rate.lr = 1e-9;
    o.checkpoint = checkpoint;
    o.checkpoint_every = 1;
    CHECK_OK(train(&f, 8, NULL, &o, &out));
    end(&f);
}

/* A step of two weights, the second one of this name, on two devices. */
static nnc_status train_second(const fixture *f, const char *name, const char *checkpoint)
{
    NNC_LOCAL(nnc_text) text = {0}, out = {0};
    nnc_scan scan;
    nnc_printf(&text,
        "graph @net {\n"
        "%%x = input : f32[8,8]\n"
        "%%v = param : f32[4,8] = gen(\"w\", seed=1, scale=0.3)\n"
        "%%w = param : f32[4,8] = gen(\"%s\", seed=2, scale=0.3)\n"
        "%%y = linear %%x, %%v loc \"/a\"\n"
        "%%z = linear %%x, %%w loc \"/b\"\n"
        "%%s = add %%y, %%z loc \"/sum\"\n"
        "return %%s }\n",
        name);
    nnc_scan_init(&scan, "net", nnc_text_str(&text), text.n);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    if (!g)
        return NNC_E_BUG;
    nnc_train_options o = options_of(f);
    o.compile.devices = 2;
    o.strategy = NNC_STRATEGY_data;
    o.checkpoint = checkpoint;
    const nnc_status s = nnc_train(f->e, g, &o, NNC_CSV, &out, test_sink);
    CHECK(!s == (out.n > 0)); /* what is refused is refused before the first step */
    nnc_graph_destroy(g);
    return s;
}

/* A checkpoint that could not be read is not written: of two weights of one name. A weight may be called as another one's copy. */
TEST(states_of_one_name_are_not_written)
{
    fixture f;
    nnc_tensors *c = NULL;
    char checkpoint[330];
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    CHECK_INT(train_second(&f, "w", checkpoint), NNC_E_MODEL);
    CHECK_DIAG("two states of the training are called ");
    CHECK(!nnc_file_exists(checkpoint));
    CHECK_OK(train_second(&f, "w.device1", checkpoint));
    CHECK_OK(nnc_tensors_open(checkpoint, NULL, &c, test_sink));
    CHECK_INT(nnc_tensors_count(c), 2 * 2 + 4);
    CHECK(nnc_tensors_find(c, "w.device1") && nnc_tensors_find(c, "/train/state/w.device1_"));
    nnc_tensors_close(c);
    end(&f);
}

/* Frozen weights are no states: those of --weights must be the checkpoint's. */
TEST(other_frozen_weights_are_no_checkpoint)
{
    static const char json[] =
        "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
        "\"out\": 12, \"frozen\": true}, \"relu\", {\"op\": \"linear\", \"name\": \"b\", "
        "\"out\": 4}]}";
    fixture f;
    NNC_LOCAL(nnc_text) out = {0};
    char checkpoint[330];
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.npz", f.dir);
    for (int other = 0; other < 2; other++) {
        nnc_train_options o = options_of(&f);
        o.save = f.save;
        o.rate.lr = other ? 0.3 : 0;
        CHECK_OK(train(&f, 16, NULL, &o, &out)); /* makes the weights */
        o = options_of(&f);
        o.checkpoint = checkpoint;
        o.resume = true;
        o.epochs = 1 + other;
        const nnc_model_options with = {.weights = f.save};
        for (int again = 0; again < 2; again++) {
            nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), &with, test_sink);
            CHECK_INT(
                nnc_train(f.e, g, &o, NNC_CSV, &out, test_sink), other ? NNC_E_MODEL : NNC_OK);
            nnc_graph_destroy(g);
        }
    }
    CHECK_DIAG("the frozen weight a.weight has other numbers in the checkpoint");
    end(&f);
}

/* A checkpoint with a position before the first epoch or after an epoch's last step is refused. */
TEST(impossible_positions_are_refused)
{
    static const int64_t place[] = {8, 2, 3},
                         damage[][2] = {{1, 0}, {1, -1}, {2, 6}, {0, -1}, {7, 9}};
    fixture f;
    NNC_LOCAL(nnc_text) out = {0};
    NNC_FREED char *text = NULL;
    char checkpoint[330];
    size_t n = 0;
    CHECK(begin(&f));
    snprintf(checkpoint, sizeof checkpoint, "%s/c.safetensors", f.dir);
    nnc_train_options o = options_of(&f);
    o.checkpoint = checkpoint;
    o.epochs = 3;
    o.steps = 8; /* of 5 an epoch */
    CHECK_OK(train(&f, 16, NULL, &o, &out));
    o.resume = true;
    CHECK_OK(nnc_file_read(checkpoint, 0, &text, &n, test_sink));
    char *at = text ? memmem(text, n, place, sizeof place) : NULL;
    char *sum = text ? memmem(text, n, " /train/position\n", 17) : NULL;
    CHECK(at != NULL && sum != NULL);
    for (size_t i = 0; at && sum && i < NNC_COUNT(damage); i++) {
        char digits[17];
        memcpy(at + sizeof *place * (size_t)damage[i][0], &damage[i][1], sizeof *place);
        snprintf(digits, sizeof digits, "%016llx",
            (unsigned long long)nnc_hash64(at, 8 * sizeof *place, 0));
        memcpy(sum - 16, digits, 16);
        CHECK_OK(nnc_file_write(checkpoint, text, n, false, test_sink));
        CHECK_INT(train(&f, 16, NULL, &o, &out), NNC_E_MODEL);
        CHECK_DIAG("is damaged: it has an impossible position");
        memcpy(at, place, sizeof place);
    }
    end(&f);
}

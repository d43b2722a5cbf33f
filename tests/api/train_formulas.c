/* tests/api/train_formulas.c -- nnc train against the formulas of its losses and optimizers, written again in C: a linear layer whose
 * gradient is known in closed form. (Other tests compare a step's kernels with the reference evaluation of the same graph.) */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "help.h"
#include "tensors/tensors.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS = 48, WIDE = 6, CLASSES = 3, BATCH = 12, W = CLASSES * WIDE, ALL = W + CLASSES };

typedef struct fixture {
    char dir[256], x[300], y[300], save[300], log[300];
    float at[ROWS][WIDE];
    int64_t class[ROWS];
    nnc_env *e;
} fixture;

static bool begin(fixture *f)
{
    if (!api_tmpdir(f->dir, sizeof f->dir))
        return false;
    for (int r = 0; r < ROWS; r++) {
        f->class[r] = r % 7 == 3 ? -100 : r % CLASSES;
        for (int i = 0; i < WIDE; i++)
            f->at[r][i] = 2 * nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i)) - 0.7f;
    }
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    snprintf(f->x, sizeof f->x, "%s/x.npy", f->dir);
    snprintf(f->y, sizeof f->y, "%s/y.npy", f->dir);
    snprintf(f->save, sizeof f->save, "%s/w.npz", f->dir);
    snprintf(f->log, sizeof f->log, "%s/log", f->dir);
    CHECK_OK(nnc_write_output(f->x, &tx, f->at, test_sink));
    CHECK_OK(nnc_write_output(f->y, &ty, f->class, test_sink));
    return nnc_env_create(&(nnc_env_options){.threads = 1}, &f->e, test_sink) == NNC_OK;
}

static void end(fixture *f)
{
    nnc_env_destroy(f->e);
    api_rmdir(f->dir);
}

/* ---- the formulas ------------------------------------------------------------------------------------------------------------- */

/* Adds the gradient of the mean over a batch of -sum_c q_c log p_c, q = (1 - s) [c = class] + s / CLASSES, to g; returns the loss. */
static double add_gradient(
    const fixture *f, const double *w, int first, const nnc_training *t, double *g)
{
    double loss = 0;
    int counted = 0;
    for (int r = first; r < first + BATCH; r++)
        counted += f->class[r] != t->ignore_index;
    for (int r = first; r < first + BATCH; r++) {
        double y[CLASSES], sum = 0;
        if (f->class[r] == t->ignore_index)
            continue;
        for (int c = 0; c < CLASSES; c++) {
            y[c] = w[W + c];
            for (int i = 0; i < WIDE; i++)
                y[c] += w[c * WIDE + i] * (double)f->at[r][i];
            sum += exp(y[c]);
        }
        for (int c = 0; c < CLASSES; c++) {
            const double q = (1 - t->label_smoothing) * (c == f->class[r]) +
                             t->label_smoothing / CLASSES,
                         d = (exp(y[c]) / sum - q) / counted;
            loss -= q * (y[c] - log(sum)) / counted;
            g[W + c] += d;
            for (int i = 0; i < WIDE; i++)
                g[c * WIDE + i] += d * (double)f->at[r][i];
        }
    }
    return loss;
}

typedef struct moments {
    double m[ALL], v[ALL];
} moments;

static void clip(const nnc_training *t, double *g)
{
    double norm = 0;
    for (int i = 0; i < ALL; i++)
        norm += g[i] * g[i];
    const double factor = t->clip_norm > 0 ? fmin(1, t->clip_norm / (sqrt(norm) + 1e-6)) : 1;
    for (int i = 0; i < ALL; i++)
        g[i] *= factor;
}

/* Step n (from 1), as PyTorch's documentation of SGD, Adam and AdamW has it. */
static void update(
    const nnc_training *t, double lr, int n, const double *grad, moments *s, double *w)
{
    for (int i = 0; i < ALL; i++) {
        double g = grad[i];
        if (t->optimizer == NNC_OPT_adamw)
            w[i] -= lr * t->weight_decay * w[i];
        else
            g += t->weight_decay * w[i];
        if (t->optimizer == NNC_OPT_sgd) {
            s->m[i] = n == 1 ? g : t->momentum * s->m[i] + g;
            w[i] -= lr * (t->nesterov ? g + t->momentum * s->m[i] : s->m[i]);
            continue;
        }
        s->m[i] = t->beta1 * s->m[i] + (1 - t->beta1) * g;
        s->v[i] = t->beta2 * s->v[i] + (1 - t->beta2) * g * g;
        w[i] -= lr * s->m[i] / (1 - pow(t->beta1, n)) /
                (sqrt(s->v[i] / (1 - pow(t->beta2, n))) + t->eps);
    }
}

/* Two epochs; the loss of the last step. */
static double train_plainly(const fixture *f, const nnc_training *t, const nnc_rate *r, double *w)
{
    const int batches = t->accumulate > 1 ? t->accumulate : 1, steps = ROWS / BATCH / batches;
    moments s = {{0}};
    double loss = 0;
    for (int n = 0; n < 2 * steps; n++) {
        double g[ALL] = {0};
        loss = 0;
        for (int k = 0; k < batches; k++)
            loss += add_gradient(f, w, (n % steps * batches + k) * BATCH, t, g) / batches;
        for (int i = 0; i < ALL; i++)
            g[i] /= batches;
        clip(t, g);
        const double lr = n < r->warmup ? r->lr * (n + 1) / r->warmup : r->lr;
        update(t, lr, n + 1, g, &s, w);
    }
    return loss;
}

/* ---- nnc ------------------------------------------------------------------------------------------------------------------------ */

static void read_tensor(const char *file, const char *name, int n, double *to)
{
    nnc_tensors *t = NULL;
    float v[ALL] = {0};
    CHECK_OK(nnc_tensors_open(file, NULL, &t, test_sink));
    const nnc_tensor_entry *e = t ? nnc_tensors_find(t, name) : NULL;
    CHECK(e && nnc_type_numel(&e->type) == n && n <= ALL);
    if (e && nnc_type_numel(&e->type) == n)
        CHECK_OK(nnc_tensors_read(t, e, v, test_sink));
    for (int i = 0; i < n; i++)
        to[i] = (double)v[i];
    nnc_tensors_close(t);
}

/* Trains the model, and reads the weights w and b of layer l. */
static void train(const fixture *f, const char *layers, nnc_train_options o, double *w)
{
    char json[400];
    NNC_LOCAL(nnc_text) out = {0};
    snprintf(json, sizeof json, "{\"inputs\": {\"x\": [12, 6]}, \"layers\": [%s]}", layers);
    nnc_graph *g = nnc_model_parse("m.json", json, strlen(json), NULL, test_sink);
    o.data.path = f->x;
    o.data.labels = f->y;
    o.data.no_shuffle = true;
    o.save = f->save;
    o.log = f->log;
    CHECK_OK(nnc_train(f->e, g, &o, NNC_TEXT, &out, test_sink));
    read_tensor(f->save, "l.weight", W, w);
    read_tensor(f->save, "l.bias", CLASSES, w + W);
    nnc_graph_destroy(g);
}

#define LINEAR "{\"op\": \"linear\", \"name\": \"l\", \"out\": 3}"

/* The last loss in the log. */
static double last_loss(const fixture *f)
{
    char *text = NULL;
    size_t n;
    double loss = NAN;
    CHECK_OK(nnc_file_read(f->log, 0, &text, &n, test_sink));
    for (const char *p = text; p && (p = strstr(p, "\"loss\": ")) != NULL;)
        loss = strtod(p += 8, NULL);
    nnc_free(text);
    return loss;
}

TEST(optimizers_by_their_formulas)
{
    static const struct {
        nnc_optimizer optimizer;
        double momentum, decay, smoothing, clip, beta1, beta2, eps, scale;
        bool nesterov;
        int accumulate, warmup;
    } cases[] = {
        {NNC_OPT_sgd},
        {NNC_OPT_sgd, .momentum = 0.9, .smoothing = 0.2},
        {NNC_OPT_sgd, .momentum = 0.8, .nesterov = true, .decay = 0.1, .warmup = 3},
        {NNC_OPT_sgd, .momentum = 0.9, .clip = 0.1},
        {NNC_OPT_sgd, .clip = 100, .accumulate = 2},
        {NNC_OPT_adam},
        {NNC_OPT_adam, .decay = 0.1, .beta1 = 0.7, .beta2 = 0.8, .eps = 0.01, .warmup = 5},
        {NNC_OPT_adam, .scale = 1024, .smoothing = 0.1},
        {NNC_OPT_adamw, .decay = 0.3},
        {NNC_OPT_adamw, .decay = 0.1, .accumulate = 4, .clip = 0.05, .smoothing = 0.1},
        {NNC_OPT_adamw, .scale = 64, .accumulate = 2, .eps = 1e-3},
    };
    fixture f;
    CHECK(begin(&f));
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        double want[ALL], got[ALL];
        nnc_train_options o = nnc_train_defaults;
        nnc_training *t = &o.training;
        t->ignore_index = -100;
        o.rate.lr = 0;
        train(&f, LINEAR, o, want);
        o.epochs = 2;
        o.rate.lr = 0.07;
        o.rate.warmup = cases[i].warmup;
        t->optimizer = cases[i].optimizer;
        t->momentum = cases[i].momentum;
        t->nesterov = cases[i].nesterov;
        t->weight_decay = cases[i].decay;
        t->label_smoothing = cases[i].smoothing;
        t->clip_norm = cases[i].clip;
        t->beta1 = cases[i].beta1 > 0 ? cases[i].beta1 : t->beta1;
        t->beta2 = cases[i].beta2 > 0 ? cases[i].beta2 : t->beta2;
        t->eps = cases[i].eps > 0 ? cases[i].eps : t->eps;
        t->loss_scale = cases[i].scale;
        t->accumulate = cases[i].accumulate;
        train(&f, LINEAR, o, got);
        const double loss = train_plainly(&f, t, &o.rate, want);
        double most = fabs(last_loss(&f) - loss);
        for (int k = 0; k < ALL; k++)
            most = fmax(most, fabs(got[k] - want[k]));
        if (!(most < 2e-5))
            test_fail(__FILE__, __LINE__, "case %zu: largest difference %g", i, most);
    }
    end(&f);
}

/* The last loss is that of the batch normalised by its own mean and biased variance. */
static void check_normalised(fixture *f, const double *w, const nnc_training *t)
{
    double gamma[WIDE], beta[WIDE], g[ALL] = {0};
    read_tensor(f->save, "n.weight", WIDE, gamma);
    read_tensor(f->save, "n.bias", WIDE, beta);
    for (int c = 0; c < WIDE; c++) {
        double m = 0, v = 0;
        for (int r = ROWS - BATCH; r < ROWS; r++)
            m += (double)f->at[r][c] / BATCH;
        for (int r = ROWS - BATCH; r < ROWS; r++)
            v += pow((double)f->at[r][c] - m, 2) / BATCH;
        for (int r = ROWS - BATCH; r < ROWS; r++)
            f->at[r][c] = (float)(((double)f->at[r][c] - m) / sqrt(v + 1e-5) * gamma[c] + beta[c]);
    }
    CHECK(fabs(last_loss(f) - add_gradient(f, w, ROWS - BATCH, t, g)) < 1e-5);
}

/* Running statistics move by a tenth to those of the batch, the variance without bias; PyTorch's BatchNorm. */
TEST(running_statistics_by_their_formulas)
{
    fixture f;
    double w[ALL], mean[WIDE], var[WIDE];
    CHECK(begin(&f));
    nnc_train_options o = nnc_train_defaults;
    o.training.ignore_index = -100;
    o.rate.lr = 0;
    char layers[200];
    double was[2][WIDE];
    for (int trains = 0; trains < 2; trains++) {
        snprintf(layers, sizeof layers,
            "{\"op\": \"batchnorm\", \"name\": \"n\", \"bn\": \"%s\"}, " LINEAR,
            trains ? "train" : "eval");
        train(&f, layers, o, w);
        read_tensor(f.save, "n.running_mean", WIDE, trains ? mean : was[0]);
        read_tensor(f.save, "n.running_var", WIDE, trains ? var : was[1]);
    }
    for (int c = 0; c < WIDE; c++) {
        for (int b = 0; b < ROWS / BATCH; b++) {
            double m = 0, v = 0;
            for (int r = 0; r < BATCH; r++)
                m += (double)f.at[b * BATCH + r][c] / BATCH;
            for (int r = 0; r < BATCH; r++)
                v += pow((double)f.at[b * BATCH + r][c] - m, 2) / (BATCH - 1);
            was[0][c] += 0.1 * (m - was[0][c]);
            was[1][c] += 0.1 * (v - was[1][c]);
        }
        CHECK(fabs(mean[c] - was[0][c]) < 1e-6 && fabs(var[c] - was[1][c]) < 1e-6);
    }
    check_normalised(&f, w, &o.training);
    end(&f);
}

/* What is kept is scaled, so that means stay: seen in the running means of a batch norm after a dropout. */
TEST(dropouts_keep_means)
{
    fixture f;
    double w[ALL], was[WIDE], now[WIDE], all = 0, seen = 0;
    CHECK(begin(&f));
    nnc_train_options o = nnc_train_defaults;
    o.training.ignore_index = -100;
    o.rate.lr = 0;
    train(&f, "{\"op\": \"batchnorm\", \"name\": \"n\", \"bn\": \"eval\"}, " LINEAR, o, w);
    read_tensor(f.save, "n.running_mean", WIDE, was);
    o.epochs = 50;
    train(&f,
        "{\"op\": \"dropout\", \"alpha\": 0.5}, {\"op\": \"batchnorm\", \"name\": \"n\"}, " LINEAR,
        o, w);
    read_tensor(f.save, "n.running_mean", WIDE, now);
    for (int c = 0; c < WIDE; c++) {
        seen += now[c] / WIDE; /* of the first ones 0.9^200 is left */
        for (int r = 0; r < ROWS; r++)
            all += (double)f.at[r][c] / (ROWS * WIDE);
    }
    CHECK(all > 0.2 && fabs(seen - all) < 0.1);
    end(&f);
}

/* tests/api/trainer.c -- trainers of nnc.h: the steps of nnc train on batches of the caller, their checkpoints, and what is refused. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "help.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 48, WIDE = 6, EACH = 4, CLASSES = 3, STEPS = ROWS / EACH };

static const char model[] =
    "{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": 5}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"dropout\", \"alpha\": 0.1}, "
    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 3}], \"train\": {\"lr\": 0.02}}";

typedef struct school {
    char dir[256];
    nnc_env *e;
    nnc_model *m;
    float x[ROWS][WIDE];
    int64_t y[ROWS];
} school;

static void begin(school *s)
{
    CHECK(api_tmpdir(s->dir, sizeof s->dir));
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &s->e, test_sink));
    const nnc_model_options o = {.trains = true};
    s->m = nnc_model_parse("m.json", model, sizeof model - 1, &o, test_sink);
    CHECK(s->m != NULL);
    for (int r = 0; r < ROWS; r++) {
        s->y[r] = r % CLASSES;
        for (int i = 0; i < WIDE; i++)
            s->x[r][i] = (float)(i % 3 == r % 3) +
                         nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
}

static void end(school *s)
{
    nnc_model_close(s->m);
    nnc_env_destroy(s->e);
    api_rmdir(s->dir);
}

static nnc_train_options *options(const char *const *settings)
{
    nnc_train_options *o = nnc_train_options_create();
    for (; *settings; settings += 2)
        CHECK_OK(nnc_train_options_set(o, settings[0], settings[1], test_sink));
    return o;
}

/* The options are destroyed before the first step. */
static nnc_trainer *open_trainer(const school *s, const char *const *settings)
{
    nnc_trainer *t = NULL;
    nnc_train_options *o = options(settings);
    CHECK_OK(nnc_trainer_create(s->e, s->m, o, &t, test_sink));
    nnc_train_options_destroy(o);
    return t;
}

static nnc_status step(nnc_trainer *t, const school *s, int i)
{
    const void *batch[] = {s->x[i % STEPS * EACH], &s->y[i % STEPS * EACH]};
    return nnc_trainer_step(t, batch, test_sink);
}

static bool same_files(const char *a, const char *b)
{
    char *p = NULL, *q = NULL;
    size_t n = 0, m = 0;
    CHECK_OK(nnc_file_read(a, 0, &p, &n, test_sink));
    CHECK_OK(nnc_file_read(b, 0, &q, &m, test_sink));
    const bool same = n && n == m && !memcmp(p, q, n);
    nnc_free(p);
    nnc_free(q);
    return same;
}

static const char *const adam[] = {"optimizer", "adamw", "clip-norm", "1", "weight-decay", "0.1",
    "accumulate", "2", "seed", "7", "schedule", "step", "decay-every", "2steps", "O", "1", NULL};

/* What nnc train makes of the same samples, in the same order. */
static void train_by_command(const school *s, const char *save, const char *checkpoint)
{
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    NNC_LOCAL(nnc_text) out = {0};
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_train_options o = nnc_train_defaults;
    CHECK_OK(nnc_write_output(api_in(s->dir, "x.npy"), &tx, s->x, test_sink));
    CHECK_OK(nnc_write_output(api_in(s->dir, "y.npy"), &ty, s->y, test_sink));
    o.data.path = api_in(s->dir, "x.npy");
    o.data.labels = api_in(s->dir, "y.npy");
    o.data.no_shuffle = true;
    o.training.optimizer = NNC_OPT_adamw;
    o.training.clip_norm = 1;
    o.training.weight_decay = 0.1;
    o.training.accumulate = 2;
    o.seed = 7;
    o.rate.schedule = NNC_LR_step;
    o.rate.every = "2steps";
    o.compile.level = 1;
    o.save = save;
    o.checkpoint = checkpoint;
    CHECK_OK(nnc_train_read(s->m, &o, &a, test_sink)); /* lr */
    CHECK_OK(nnc_train(s->e, s->m, &o, NNC_TEXT, &out, test_sink));
}

TEST(trainers_are_nnc_train)
{
    school s;
    begin(&s);
    char want[300], got[300], c[300];
    snprintf(want, sizeof want, "%s/want.npz", s.dir);
    snprintf(got, sizeof got, "%s/got.npz", s.dir);
    snprintf(c, sizeof c, "%s/c.npz", s.dir);
    train_by_command(&s, want, c);
    nnc_trainer *t = open_trainer(&s, adam);
    nnc_model_close(s.m);
    s.m = NULL;
    CHECK_INT(nnc_trainer_inputs(t), 2);
    CHECK_STR(nnc_trainer_input_name(t, 0), "x");
    CHECK_STR(nnc_trainer_input_name(t, 1), "target");
    CHECK(nnc_trainer_input_name(t, 2) == NULL && nnc_trainer_input_type(t, -1) == NULL);
    CHECK_INT(nnc_type_numel(nnc_trainer_input_type(t, 0)), EACH * WIDE);
    CHECK(isnan(nnc_trainer_loss(t)));
    CHECK_NEAR(nnc_trainer_rate(t), 0.02, 0);
    for (int i = 0; i < STEPS; i++) {
        CHECK_INT(nnc_trainer_steps(t), i / 2);
        CHECK_OK(step(t, &s, i));
        CHECK(nnc_trainer_loss(t) > 0 && nnc_trainer_correct(t) <= EACH);
    }
    CHECK_NEAR(nnc_trainer_rate(t), 0.02 * 1e-3, 1e-12);
    CHECK_OK(nnc_trainer_save(t, got, test_sink));
    CHECK(same_files(want, got));
    CHECK_OK(step(t, &s, 0));
    CHECK_OK(step(t, &s, 1));
    CHECK_OK(nnc_trainer_read_checkpoint(t, c, test_sink)); /* of nnc train */
    CHECK_INT(nnc_trainer_steps(t), STEPS / 2);
    CHECK_OK(nnc_trainer_save(t, got, test_sink));
    CHECK(same_files(want, got));
    nnc_trainer_destroy(t);
    end(&s);
}

/* A checkpoint at any step, read by another trainer: the same bits at the end. */
TEST(trainers_that_are_resumed)
{
    school s;
    begin(&s);
    char want[300], got[300], c[300];
    snprintf(want, sizeof want, "%s/want.safetensors", s.dir);
    snprintf(got, sizeof got, "%s/got.safetensors", s.dir);
    snprintf(c, sizeof c, "%s/c.safetensors", s.dir);
    nnc_trainer *t = open_trainer(&s, adam), *u = open_trainer(&s, adam);
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(step(t, &s, i));
        if (i % 2) {
            CHECK_OK(nnc_trainer_write_checkpoint(t, c, test_sink));
            continue;
        }
        CHECK_INT(nnc_trainer_write_checkpoint(t, c, test_sink), NNC_E_USAGE);
        CHECK_DIAG("a checkpoint is of whole steps: batch 1 of 2 of step");
        if (!i)
            continue;
        CHECK_OK(nnc_trainer_read_checkpoint(u, c, test_sink)); /* of i batches, again and again */
        CHECK_INT(nnc_trainer_steps(u), i / 2);
        CHECK_OK(step(u, &s, i));
        CHECK_NEAR(nnc_trainer_loss(u), nnc_trainer_loss(t), 0);
    }
    CHECK_OK(step(u, &s, STEPS - 1));
    CHECK_OK(nnc_trainer_save(t, want, test_sink));
    CHECK_OK(nnc_trainer_save(u, got, test_sink));
    CHECK(same_files(want, got));
    nnc_trainer_destroy(u);
    u = open_trainer(&s, (const char *const[]){"optimizer", "adam", NULL});
    CHECK_INT(nnc_trainer_read_checkpoint(u, c, test_sink), NNC_E_MODEL);
    CHECK_DIAG("--optimizer: adam, the checkpoint has adamw");
    CHECK_INT(nnc_trainer_read_checkpoint(u, "/nonexistent/c.npz", test_sink), NNC_E_IO);
    CHECK_INT(nnc_trainer_write_checkpoint(u, "/tmp/c.bin", test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_trainer_save(u, "w.npy", test_sink), NNC_E_USAGE);
    nnc_trainer_destroy(u);
    nnc_trainer_destroy(t);
    end(&s);
}

TEST(trainers_with_nan)
{
    school s;
    begin(&s);
    char before[300], after[300];
    snprintf(before, sizeof before, "%s/before.npz", s.dir);
    snprintf(after, sizeof after, "%s/after.npz", s.dir);
    s.x[6][1] = NAN; /* batch 1 */
    for (int skip = 0; skip < 2; skip++) {
        nnc_trainer *t = open_trainer(
            &s, (const char *const[]){"optimizer", "adam", "on-nan", skip ? "skip" : "stop", NULL});
        CHECK_OK(step(t, &s, 0));
        CHECK_OK(nnc_trainer_save(t, before, test_sink));
        CHECK_INT(step(t, &s, 1), skip ? NNC_OK : NNC_E_DIFFERS);
        if (!skip)
            CHECK_DIAG("step 2: the loss is ");
        CHECK(isnan(nnc_trainer_loss(t)));
        CHECK_OK(nnc_trainer_save(t, after, test_sink));
        CHECK(same_files(before, after));
        CHECK_INT(nnc_trainer_steps(t), 1 + skip);
        CHECK_INT(nnc_trainer_skipped(t), skip);
        CHECK_OK(step(t, &s, 2));
        nnc_trainer_destroy(t);
    }
    end(&s);
}

/* An evaluation changes nothing, and sees the trained weights. */
TEST(trainers_that_evaluate)
{
    school s;
    begin(&s);
    double first = 0, right = 0;
    nnc_trainer *t = open_trainer(&s, (const char *const[]){"optimizer", "adam", NULL}),
                *u = open_trainer(&s, (const char *const[]){"optimizer", "adam", NULL});
    for (int i = 0; i < 10 * STEPS; i++) {
        const void *batch[] = {s.x[0], &s.y[0]};
        CHECK_OK(nnc_trainer_evaluate(t, batch, test_sink));
        first = i ? first : nnc_trainer_loss(t);
        right = nnc_trainer_correct(t);
        CHECK_OK(step(t, &s, i));
        CHECK_OK(step(u, &s, i));
        CHECK_NEAR(nnc_trainer_loss(t), nnc_trainer_loss(u), 0);
    }
    CHECK_OK(nnc_trainer_evaluate(t, (const void *[]){s.x[0], &s.y[0]}, test_sink));
    CHECK(nnc_trainer_loss(t) < 0.5 * first);
    CHECK_INT(right, EACH);
    CHECK_OK(nnc_trainer_set_rate(u, 0, test_sink));
    CHECK_OK(step(u, &s, 0));
    const double before = nnc_trainer_loss(u);
    CHECK_NEAR(nnc_trainer_rate(u), 0, 0);
    CHECK_INT(nnc_trainer_set_rate(u, -1, test_sink), NNC_E_USAGE);
    CHECK_INT(nnc_trainer_set_rate(u, NAN, test_sink), NNC_E_USAGE);
    CHECK(before > 0);
    nnc_trainer_destroy(t);
    nnc_trainer_destroy(u);
    end(&s);
}

TEST(trainers_that_are_refused)
{
    static const struct {
        const char *name, *value, *says;
    } wrong[] = {{"learning_rate", "1", "no option is named learning_rate; did you mean lr"},
        {"data", "x.npy", "no option is named data"}, {"save", "w.npz", "no option is named save"},
        {"optimizer", "sdg", "optimizer"}, {"math", "slow", "math"}, {"lr", "-1", "lr"},
        {"epochs", "3", "no option is named epochs"}};
    static const struct {
        const char *const set[7], *says;
    } together[] = {{{"schedule", "cosine"}, "set steps=N, the number of its steps"},
        {{"schedule", "step", "decay-every", "3"}, "set steps-per-epoch=N"},
        {{"schedule", "step"}, "needs --decay-every"},
        {{"strategy", "1f1b", "devices", "2"}, "--micro-batches=M"}};
    school s;
    begin(&s);
    nnc_train_options *o = nnc_train_options_create();
    for (size_t i = 0; i < NNC_COUNT(wrong); i++) {
        CHECK_INT(nnc_train_options_set(o, wrong[i].name, wrong[i].value, test_sink), NNC_E_USAGE);
        CHECK_DIAG(wrong[i].says);
    }
    nnc_train_options_destroy(o);
    for (size_t i = 0; i < NNC_COUNT(together); i++) {
        nnc_trainer *t = NULL;
        o = options(together[i].set);
        CHECK_INT(nnc_trainer_create(s.e, s.m, o, &t, test_sink), NNC_E_USAGE);
        CHECK_DIAG(together[i].says);
        CHECK(t == NULL);
        nnc_train_options_destroy(o);
    }
    nnc_trainer *t = open_trainer(&s, (const char *const[]){"schedule", "step", "decay-every", "1",
                                          "steps-per-epoch", "3", "precision", "bf16", NULL});
    s.y[5] = CLASSES;
    CHECK_OK(step(t, &s, 0));
    CHECK_INT(step(t, &s, 1), NNC_E_MODEL);
    CHECK_DIAG("target has class 3 in sample 1 of the batch; the model predicts classes 0 to 2");
    for (int i = 0; i < 3; i++)
        CHECK_OK(step(t, &s, 2 + i));
    CHECK_NEAR(nnc_trainer_rate(t), 0.02 * 0.1, 1e-9); /* of step 5 of 3 an epoch */
    nnc_trainer_destroy(t);
    end(&s);
}

/* Four batches of two replicas; the weights after them. */
static void train_shared(const school *s, const char *const *settings, const char *save)
{
    nnc_trainer *t = open_trainer(s, settings);
    for (int i = 0; i < 4; i++) {
        const void *batch[] = {s->x[i * 2 * EACH], &s->y[i * 2 * EACH]};
        CHECK_OK(nnc_trainer_step(t, batch, test_sink));
    }
    CHECK_OK(nnc_trainer_save(t, save, test_sink));
    nnc_trainer_destroy(t);
}

/* How replicas share the optimizer's states and sum gradients changes no bit; a checkpoint of parts is of as many. */
TEST(trainers_of_replicas)
{
    school s;
    begin(&s);
    char plain[300], other[300], c[300];
    snprintf(plain, sizeof plain, "%s/plain.npz", s.dir);
    snprintf(other, sizeof other, "%s/other.npz", s.dir);
    snprintf(c, sizeof c, "%s/c.npz", s.dir);
#define REPLICAS "strategy", "data", "devices", "2", "momentum", "0.9"
    static const char *const whole[] = {REPLICAS, NULL};
    static const char *const parts[] = {REPLICAS, "zero", "1", NULL};
    static const char *const buckets[] = {REPLICAS, "bucket-mb", "0.0001", NULL};
    train_shared(&s, whole, plain);
    train_shared(&s, parts, other);
    CHECK(same_files(plain, other));
    train_shared(&s, buckets, other);
    CHECK(same_files(plain, other));
    nnc_trainer *t = open_trainer(&s, parts), *without = open_trainer(&s, whole);
    const void *batch[] = {s.x[0], &s.y[0]};
    CHECK_INT(nnc_type_numel(nnc_trainer_input_type(t, 1)), 2 * EACH);
    CHECK_OK(nnc_trainer_step(t, batch, test_sink));
    CHECK_OK(nnc_trainer_write_checkpoint(t, c, test_sink));
    CHECK_OK(nnc_trainer_read_checkpoint(t, c, test_sink));
    CHECK_INT(nnc_trainer_read_checkpoint(without, c, test_sink), NNC_E_MODEL);
    CHECK_DIAG("--zero: none, the checkpoint has 1 or 2 over 2 devices");
    CHECK_INT(nnc_trainer_read_checkpoint(t, api_in(s.dir, "no.npz"), test_sink), NNC_E_IO);
    nnc_trainer_destroy(t);
    nnc_trainer_destroy(without);
    nnc_train_options *o = options((const char *const[]){"zero", "1", NULL});
    CHECK_INT(nnc_trainer_create(s.e, s.m, o, &t, test_sink), NNC_E_USAGE);
    CHECK_DIAG("--zero=1 divides the optimizer's states among replicas");
    nnc_train_options_destroy(o);
    end(&s);
}

/* Gradients that are sums over batches, which are states: a bucket has copies of them. Large enough for the concat to be worth it. */
TEST(trainers_with_buckets_of_sums)
{
    static const char deep[] =
        "{\"inputs\": {\"x\": [4, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", "
        "\"out\": 96}, \"gelu\", {\"op\": \"layernorm\", \"name\": \"n\"}, {\"op\": \"linear\", "
        "\"name\": \"b\", \"out\": 96}, \"relu\", {\"op\": \"linear\", \"name\": \"c\", \"out\": "
        "3}]}";
    school s;
    begin(&s);
    char plain[300], other[300];
    snprintf(plain, sizeof plain, "%s/plain.npz", s.dir);
    snprintf(other, sizeof other, "%s/other.npz", s.dir);
    nnc_model_close(s.m);
    s.m = nnc_model_parse(
        "m.json", deep, sizeof deep - 1, &(nnc_model_options){.trains = true}, test_sink);
    CHECK(s.m != NULL);
#define SUMS "strategy", "tensor", "devices", "4", "replicas", "2", "accumulate", "2", "O", "1"
    train_shared(&s, (const char *const[]){SUMS, NULL}, plain);
    train_shared(&s, (const char *const[]){SUMS, "bucket-mb", "1", NULL}, other);
    CHECK(same_files(plain, other));
    end(&s);
}

/* Each allocation of a trainer's life fails once: a status and a message, nothing is left over. */
TEST(trainers_without_memory)
{
    school s;
    int fine = 0, failed = 0;
    begin(&s);
    nnc_env_destroy(s.e);
    const nnc_env_options plain = {.threads = 1, .no_cache = true, .no_llvm = true};
    CHECK_OK(nnc_env_create(&plain, &s.e, test_sink));
    char c[300];
    snprintf(c, sizeof c, "%s/c.safetensors", s.dir);
    for (int64_t n = 1, tried = 0; fine < 8 && tried < 1000; n += 1 + n / test_draws(20), tried++) {
        nnc_trainer *t = NULL;
        nnc_train_options *o = options((const char *const[]){
            "optimizer", "adam", "accumulate", "2", "on-nan", "skip", "jobs", "1", NULL});
        const void *batch[] = {s.x[0], &s.y[0]};
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_status st = nnc_trainer_create(s.e, s.m, o, &t, test_sink);
        for (int i = 0; !st && i < 2; i++)
            st = step(t, &s, i);
        st = st ? st : nnc_trainer_write_checkpoint(t, c, test_sink);
        st = st ? st : nnc_trainer_read_checkpoint(t, c, test_sink);
        st = st ? st : nnc_trainer_evaluate(t, batch, test_sink);
        nnc_trainer_destroy(t);
        nnc_fail_alloc_after(0);
        nnc_train_options_destroy(o);
        fine = st ? 0 : fine + 1;
        failed += st != NNC_OK;
        if (st && st != NNC_E_NOMEM && st != NNC_E_FIT)
            test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(st));
        CHECK(!st == !nnc_sink_errors(test_sink));
    }
    CHECK(failed > test_draws(40) && fine == 8);
    end(&s);
}

/* tests/cuda_fake/train.c -- nnc train on the fake GPU, where inputs are uploaded while the step before computes: the numbers of the CPU,
 * also when calls fail. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "help.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Steps whose inputs are uploaded while the step before computes. */
typedef struct ahead {
    loaded l;
    float x[2][1000]; /* of this step and the next */
    int at;
    nnc_status status;
} ahead;

static void stage_next(void *ctx)
{
    ahead *a = ctx;
    float *x = a->x[++a->at % 2];
    nnc_fill_input("x", nnc_session_input_type(a->l.s, 0), (uint64_t)a->at, x);
    a->status = nnc_session_stage(a->l.s, 0, x, test_sink);
}

/* The numbers of take_steps(), where both are steps. */
static nnc_status step_ahead(const char *target, float *numbers)
{
    static const char text[] = "graph @s {\n%x = input : f32[1000]\n"
                               "%w = param : f32[1000] = gen(\"w\", seed=1, scale=0.5)\n"
                               "%c = constant : f32[] = [0.125]\n%y = mul %x, %w\n%d = mul %y, %c\n"
                               "%v = sub %w, %d\nreturn %y\nupdate %w <- %v }";
    static ahead a;
    a = (ahead){.at = -1};
    compile(&a.l, text, target, 2, 1);
    fake_calls = 0;
    nnc_status s = nnc_session_create(a.l.e, a.l.a, &a.l.s, test_sink);
    bool staged = false;
    for (int i = 0; i < 6 && !s; i++, numbers += 2000) {
        if (!staged)
            stage_next(&a);
        s = a.status;
        s = s ? s : nnc_session_take(a.l.s, test_sink);
        staged = nnc_session_beside(a.l.s, stage_next, &a);
        CHECK(staged == (target != NULL));
        s = s ? s : nnc_session_step(a.l.s, test_sink);
        s = s ? s : nnc_session_output(a.l.s, 0, numbers, test_sink);
        s = s ? s : nnc_session_state(a.l.s, 0, numbers + 1000, test_sink);
    }
    fake_fail_at = 0;
    unload(&a.l);
    return s;
}

TEST(inputs_are_uploaded_ahead)
{
    static float cpu[6 * 2000], gpu[6 * 2000];
    char why[512];
    if (no_compiler())
        return;
    CHECK_OK(step_ahead(NULL, cpu));
    CHECK(memcmp(cpu, cpu + 2000, 4000) != 0);
    for (uint64_t seed = 0; seed < 8; seed++) {
        fake_begin(seed);
        CHECK_OK(step_ahead("cuda:sm_90", gpu));
        for (int i = 0; i < 6 * 2000; i++)
            if (!(fabsf(gpu[i] - cpu[i]) < 1e-6f)) {
                CHECK_NEAR(gpu[i], cpu[i], 1e-6);
                break;
            }
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
    }
}

TEST(any_call_of_an_upload_ahead_may_fail)
{
    static float gpu[6 * 2000];
    bool all = false;
    int at = 1, failed = 0;
    if (no_compiler())
        return;
    for (; at < 2000 && !all; at++) {
        char why[512];
        fake_begin(0);
        fake_fail_with = 46;
        fake_fail_at = at;
        const nnc_status s = step_ahead("cuda:sm_90", gpu);
        all = fake_calls < at;
        failed += s != NNC_OK;
        CHECK(s == NNC_OK || s == NNC_E_DEVICE);
        fake_fail_at = 0;
        fake_fail_with = 0;
        int wrong = fake_end(why);
        if (s == NNC_OK ? wrong : fake_left)
            test_fail(__FILE__, __LINE__, "call %d fails: %s", at, why);
    }
    CHECK(all && failed > 20);
}

/* ---- nnc train ----------------------------------------------------------------------------- */

enum { ROWS = 96, WIDE = 8, CLASSES = 4 };

static const char text[] =
    "{\"inputs\": {\"x\": [16, 8]}, \"layers\": [{\"op\": \"linear\", \"name\": "
    "\"a\", \"out\": 16}, \"relu\", {\"op\": \"linear\", \"name\": \"b\", "
    "\"out\": 4}]}";

static void write_samples(const char *x_path, const char *y_path)
{
    static float x[ROWS][WIDE];
    static int64_t y[ROWS];
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    for (int r = 0; r < ROWS; r++) {
        y[r] = r % CLASSES;
        for (int i = 0; i < WIDE; i++)
            x[r][i] = (float)(i == y[r]) +
                      0.3f * nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
    CHECK_OK(nnc_write_output(x_path, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(y_path, &ty, y, test_sink));
}

/* The report of three epochs, as JSON. */
static void train(const char *target, int accumulate, const char *x, const char *y, nnc_text *out)
{
    loaded l = {.m = model(text)};
    nnc_train_options o = nnc_train_defaults;
    o.data.path = x;
    o.data.labels = y;
    o.data.validation = 0.2;
    o.data.loaders = 2;
    o.training.accumulate = accumulate;
    o.training.optimizer = NNC_OPT_adam;
    o.rate.lr = 0.01;
    o.epochs = 3;
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){.target = target, .no_cache = true}, &l.e, test_sink));
    CHECK_OK(nnc_train(l.e, l.m, &o, NNC_JSON, out, test_sink));
    unload(&l);
}

TEST(training_on_a_device)
{
    char dir[] = "/tmp/nnc-train-XXXXXX", x[64], y[64], why[512];
    if (no_compiler())
        return;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(x, sizeof x, "%s/x.npy", dir);
    snprintf(y, sizeof y, "%s/y.npy", dir);
    write_samples(x, y);
    for (uint64_t seed = 0; seed < 4; seed++) {
        NNC_LOCAL(nnc_text) cpu = {0}, gpu = {0};
        const int accumulate = seed % 2 ? 2 : 1;
        train(NULL, accumulate, x, y, &cpu);
        fake_begin(seed);
        train("cuda:sm_90", accumulate, x, y, &gpu);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
        const char *p = nnc_text_str(&cpu), *q = nnc_text_str(&gpu);
        int epochs = 0;
        for (; (p = strstr(p, "loss\": ")) != NULL && (q = strstr(q, "loss\": ")) != NULL;
             epochs++) {
            p += 7;
            q += 7;
            CHECK_NEAR(nnc_strtod(q, NULL), nnc_strtod(p, NULL), 1e-4);
        }
        CHECK_INT(epochs, 6); /* of training and of validation */
    }
    unlink(x);
    unlink(y);
    rmdir(dir);
}

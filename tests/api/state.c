/* tests/api/state.c -- a training loop of a program that knows nnc.h alone: steps, states and checkpoints. */
#include "api/nnc.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 8, IN = 6, OUT = 4, STEPS = 24 };

/* y = x w + b; SGD with momentum on w and b's mean error: v2 = 0.9 v + x^T (y - t) / 8, w2 = w - v2 / 20, b2 = b - mean(y - t) / 20. */
static const char sgd[] =
    "graph @sgd {\n"
    "%x = input : f32[8,6]\n"
    "%t = input : f32[8,4]\n"
    "%w = param : f32[6,4] = gen(\"w\", seed=1, scale=0.5)\n"
    "%b = param : f32[4] = gen(\"b\", seed=1, scale=0.5)\n"
    "%v = param : f32[6,4] = gen(\"v\", seed=1, scale=0)\n"
    "%lr = constant : f32[] = [0.05]\n%m = constant : f32[] = [0.9]\n%n = constant : f32[] = "
    "[0.125]\n"
    "%xw = matmul %x, %w\n%y = add %xw, %b\n%e = sub %y, %t\n"
    "%xe = matmul %x, %e {transpose_a=1}\n%g = mul %xe, %n\n"
    "%mv = mul %v, %m\n%v2 = add %mv, %g\n%s = mul %v2, %lr\n%w2 = sub %w, %s\n"
    "%eb = reduce_mean %e {axes=[0], keepdims=0}\n%bs = mul %eb, %lr\n%b2 = sub %b, %bs\n"
    "return %y as \"y\"\nupdate %w <- %w2\nupdate %b <- %b2\nupdate %v <- %v2\n}\n";

/* The same loop in f64. */
typedef struct truth {
    double w[IN][OUT], b[OUT], v[IN][OUT], y[ROWS][OUT];
} truth;

static void step(truth *s, const float *x, const float *t)
{
    double e[ROWS][OUT];
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            s->y[r][o] = s->b[o];
            for (int i = 0; i < IN; i++)
                s->y[r][o] += (double)x[r * IN + i] * s->w[i][o];
            e[r][o] = s->y[r][o] - (double)t[r * OUT + o];
        }
    for (int o = 0; o < OUT; o++) {
        double mean = 0;
        for (int r = 0; r < ROWS; r++)
            mean += e[r][o] / ROWS;
        s->b[o] -= 0.05 * mean;
        for (int i = 0; i < IN; i++) {
            double g = 0;
            for (int r = 0; r < ROWS; r++)
                g += (double)x[r * IN + i] * e[r][o];
            s->v[i][o] = 0.9 * s->v[i][o] + g / 8;
            s->w[i][o] -= 0.05 * s->v[i][o];
        }
    }
}

static bool close_to(const float *got, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) < 2e-5))
            return false;
    return true;
}

static float x[ROWS * IN], t[ROWS * OUT];

/* Takes steps first..last, each after a run that must not change anything. */
static void train(nnc_session *s, truth *want, int first, int last)
{
    float y[ROWS * OUT], w[IN * OUT], b[OUT], v[IN * OUT];
    for (int i = first; i < last; i++) {
        x[i % (ROWS * IN)] += 0.125f; /* another batch */
        CHECK_OK(nnc_session_input(s, 0, x, test_sink));
        if (i % 3 == 0)
            CHECK_OK(nnc_session_run(s, test_sink));
        CHECK_OK(nnc_session_step(s, test_sink));
        CHECK_OK(nnc_session_output(s, 0, y, test_sink));
        step(want, x, t);
        CHECK(close_to(y, want->y[0], ROWS * OUT));
        CHECK_OK(nnc_session_state(s, 0, w, test_sink));
        CHECK_OK(nnc_session_state(s, 1, b, test_sink));
        CHECK_OK(nnc_session_state(s, 2, v, test_sink));
        CHECK(close_to(w, want->w[0], IN * OUT) && close_to(b, want->b, OUT) &&
              close_to(v, want->v[0], IN * OUT));
    }
}

static void begin(nnc_session *s, truth *want)
{
    static const char *const name[] = {"w", "b", "v"};
    float w[IN * OUT], b[OUT];
    memset(want, 0, sizeof *want);
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)(i * 7 % 11 - 5) * 0.2f;
    for (int i = 0; i < ROWS * OUT; i++)
        t[i] = (float)(i * 5 % 13 - 6) * 0.1f;
    CHECK_INT(nnc_session_states(s), 3);
    for (int i = 0; i < 3; i++)
        CHECK_STR(nnc_session_state_name(s, i), name[i]);
    CHECK(!nnc_session_state_name(s, 3) && !nnc_session_state_type(s, -1));
    CHECK_INT(nnc_type_bytes(nnc_session_state_type(s, 0)), (int64_t)sizeof w);
    CHECK_OK(nnc_session_state(s, 0, w, test_sink));
    CHECK_OK(nnc_session_state(s, 1, b, test_sink));
    for (int i = 0; i < IN * OUT; i++)
        want->w[i / OUT][i % OUT] = (double)w[i];
    for (int i = 0; i < OUT; i++)
        want->b[i] = (double)b[i];
    CHECK_OK(nnc_session_input(s, 1, t, test_sink));
}

/* Trains, goes back to a checkpoint, and trains on from it. */
static void check(nnc_env *e, const nnc_artifact *a)
{
    float kept[2][IN * OUT], bias[OUT], other[IN * OUT];
    truth want, then;
    nnc_session *s = NULL, *fresh = NULL;
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_OK(nnc_session_create(e, a, &fresh, test_sink));
    if (!s || !fresh)
        return;
    begin(s, &want);
    train(s, &want, 0, STEPS / 2);
    then = want;
    for (int i = 0; i < 2; i++)
        CHECK_OK(nnc_session_state(s, 2 * i, kept[i], test_sink));
    CHECK_OK(nnc_session_state(s, 1, bias, test_sink));
    train(s, &want, STEPS / 2, STEPS);
    for (int i = 0; i < 2; i++)
        CHECK_OK(nnc_session_set_state(s, 2 * i, kept[i], test_sink));
    CHECK_OK(nnc_session_set_state(s, 1, bias, test_sink));
    train(s, &then, STEPS / 2, STEPS);
    CHECK_OK(
        nnc_session_state(fresh, 2, other, test_sink)); /* each session has states of its own */
    for (int i = 0; i < IN * OUT; i++)
        CHECK(other[i] == 0);
    CHECK_INT(nnc_session_state(s, 3, other, test_sink), NNC_E_USAGE);
    CHECK_DIAG("state 3 does not exist; the model has 3");
    CHECK_INT(nnc_session_set_state(s, -1, other, test_sink), NNC_E_USAGE);
    nnc_session_destroy(fresh);
    nnc_session_destroy(s);
}

static void write_text(const char *file, const char *text)
{
    FILE *f = fopen(file, "w");
    CHECK(f && fwrite(text, 1, strlen(text), f) == strlen(text));
    if (f)
        fclose(f);
}

/* Sums of inputs, added to a state by each third run: at all levels, streams, from a file. */
static const char sums[] = "graph @sums {\n%x = input : f32[8]\n%first = input : bool[]\n"
                           "%w = param : f32[8] = gen(\"w\", seed=1, scale=0)\n"
                           "%g = param : f32[8] = gen(\"g\", seed=1, scale=0)\n"
                           "%n = constant : f32[] = [0.5]\n"
                           "%y = mul %x, %n\n%s = add %g, %y\n%g2 = select %first, %y, %s\n"
                           "%w2 = add %w, %g2\n"
                           "return %y as \"y\"\nupdate %w <- %w2\naccumulate %g <- %g2\n}\n";

static void check_sums(nnc_env *e, const nnc_artifact *a)
{
    nnc_session *s = NULL;
    float in[8], w[8], g[8], sum = 0, all = 0;
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    for (int i = 0; s && i < 12; i++) {
        const bool first = i % 3 == 0;
        for (int k = 0; k < 8; k++)
            in[k] = (float)(i + 1);
        CHECK_OK(nnc_session_input(s, 0, in, test_sink));
        CHECK_OK(nnc_session_input(s, 1, &first, test_sink));
        CHECK_OK(nnc_session_run(s, test_sink)); /* changes nothing */
        CHECK_OK((i % 3 == 2 ? nnc_session_step : nnc_session_accumulate)(s, test_sink));
        sum = (first ? 0 : sum) + (float)(i + 1) / 2;
        all += i % 3 == 2 ? sum : 0;
        CHECK_OK(nnc_session_state(s, 0, w, test_sink));
        CHECK_OK(nnc_session_state(s, 1, g, test_sink));
        CHECK(w[0] == all && w[7] == all && g[0] == sum && g[7] == sum);
    }
    nnc_session_destroy(s);
}

/* Two weights that are updated as one value: w <- w + x / 2, while y is computed from the old ones. */
static const char joined[] =
    "graph @joined {\n%x = input : f32[22]\n"
    "%a = param : f32[4,4] = gen(\"a\", seed=1, scale=1)\n%b = param : f32[6] = gen(\"b\", seed=1, "
    "scale=1)\n"
    "%n = constant : f32[] = [0.5]\n"
    "%y = matmul %a, %a\n%z = mul %b, %b\n"
    "%l = reshape %a {shape=[16]}\n%w = concat %l, %b {axis=0}\n%d = mul %x, %n\n%v = add %w, %d\n"
    "%l2 = slice %v {axes=[0], starts=[0], ends=[16]}\n%a2 = reshape %l2 {shape=[4,4]}\n"
    "%b2 = slice %v {axes=[0], starts=[16], ends=[22]}\n"
    "return %y as \"y\", %z as \"z\"\nupdate %a <- %a2\nupdate %b <- %b2\n}\n";

static void check_joined(nnc_env *e, const nnc_artifact *art)
{
    nnc_session *s = NULL;
    float in[22], a[16], b[6], y[16], z[6], was[22];
    CHECK_OK(nnc_session_create(e, art, &s, test_sink));
    for (int i = 0; s && i < 5; i++) {
        CHECK_STR(nnc_session_state_name(s, 0), "a");
        CHECK_OK(nnc_session_state(s, 0, was, test_sink));
        CHECK_OK(nnc_session_state(s, 1, was + 16, test_sink));
        if (i == 2) {
            was[16] = 7;
            CHECK_OK(nnc_session_set_state(s, 1, was + 16, test_sink));
        }
        for (int k = 0; k < 22; k++)
            in[k] = (float)(i - k);
        CHECK_OK(nnc_session_input(s, 0, in, test_sink));
        CHECK_OK(nnc_session_step(s, test_sink));
        CHECK_OK(nnc_session_output(s, 0, y, test_sink));
        CHECK_OK(nnc_session_output(s, 1, z, test_sink));
        CHECK_OK(nnc_session_state(s, 0, a, test_sink));
        CHECK_OK(nnc_session_state(s, 1, b, test_sink));
        for (int k = 0; k < 22; k++)
            CHECK((k < 16 ? a[k] : b[k - 16]) == was[k] + in[k] / 2);
        for (int k = 0; k < 16; k++) {
            double sum = 0;
            for (int j = 0; j < 4; j++)
                sum += (double)was[k / 4 * 4 + j] * (double)was[j * 4 + k % 4];
            CHECK_NEAR(y[k], sum, 1e-4 * fmax(1, fabs(sum)));
        }
        CHECK(z[0] == was[16] * was[16] && z[5] == was[21] * was[21]);
    }
    nnc_session_destroy(s);
}

/* Compiles the model at levels and with streams; checks it, and again from a file. */
static void check_everywhere(const char *text, void (*check_it)(nnc_env *e, const nnc_artifact *a))
{
    char dir[] = "/tmp/nnc-state-XXXXXX", model[64], saved[64];
    static const char *const levels[] = {"0", "2"}, *const streams[] = {"1", "3"};
    CHECK(mkdtemp(dir) != NULL);
    snprintf(model, sizeof model, "%s/model.txt", dir);
    snprintf(saved, sizeof saved, "%s/model.nnc", dir);
    write_text(model, text);
    nnc_env *e = NULL;
    nnc_env_options *eo = nnc_env_options_create();
    CHECK_OK(nnc_env_options_set(eo, "no-cache", "1", test_sink));
    CHECK_OK(nnc_env_create(eo, &e, test_sink));
    nnc_model *m = nnc_model_open(model, NULL, test_sink);
    CHECK(e && m);
    for (int i = 0; e && m && i < 4; i++) {
        nnc_artifact *a = NULL, *again = NULL;
        nnc_compile_options *o = nnc_compile_options_create();
        CHECK_OK(nnc_compile_options_set(o, "O", levels[i % 2], test_sink));
        CHECK_OK(nnc_compile_options_set(o, "streams", streams[i / 2], test_sink));
        CHECK_OK(nnc_compile(e, m, o, &a, test_sink));
        if (a) {
            check_it(e, a);
            CHECK_OK(nnc_artifact_save(a, saved, i % 2, test_sink));
            CHECK_OK(nnc_artifact_load(e, saved, &again, test_sink));
            check_it(e, again);
        }
        nnc_artifact_destroy(again);
        nnc_artifact_destroy(a);
        nnc_compile_options_destroy(o);
    }
    nnc_model_close(m);
    nnc_env_destroy(e);
    nnc_env_options_destroy(eo);
    unlink(model);
    unlink(saved);
    rmdir(dir);
}

/* An output without elements, after the others. */
static const char none[] = "graph @none {\n%x = input : f32[2]\n%y = neg %x\nreturn %y as \"y\"\n"
                           "empty \"q\" i64 3 0\n}\n";

static void check_none(nnc_env *e, const nnc_artifact *a)
{
    nnc_session *s = NULL;
    float y[2] = {0, 0};
    char q = 'q';
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    if (!s)
        return;
    CHECK_INT(nnc_session_outputs(s), 2);
    CHECK_STR(nnc_session_output_name(s, 1), "q");
    const nnc_type *type = nnc_session_output_type(s, 1);
    CHECK(type->dtype == DT_i64 && type->rank == 2 && type->dim[0] == 3 && type->dim[1] == 0);
    CHECK(nnc_type_bytes(type) == 0 && nnc_session_output_type(s, 2) == NULL);
    CHECK_OK(nnc_session_input(s, 0, (float[]){1, 2}, test_sink));
    CHECK_OK(nnc_session_run(s, test_sink));
    CHECK_OK(nnc_session_output(s, 0, y, test_sink));
    CHECK_OK(nnc_session_output(s, 1, &q, test_sink));
    CHECK(y[0] == -1 && y[1] == -2 && q == 'q');
    CHECK_INT(nnc_session_output(s, 2, &q, test_sink), NNC_E_USAGE);
    nnc_sink_clear(test_sink);
    nnc_session_destroy(s);
}

TEST(outputs_without_elements)
{
    check_everywhere(none, check_none);
}

TEST(training_through_the_public_api)
{
    check_everywhere(sgd, check);
}

TEST(accumulating_through_the_public_api)
{
    check_everywhere(sums, check_sums);
}

TEST(states_that_are_updated_as_one)
{
    check_everywhere(joined, check_joined);
}

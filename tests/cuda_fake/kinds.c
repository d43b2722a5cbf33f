/* tests/cuda_fake/kinds.c -- devices of several kinds, each with its own target, planned for at once. Tests a plan's devices, code and
 * copies, and what its verifier refuses. Models whose layers are spread over a CPU and GPUs are compared with float64. */
#include "session/session.h"
#include "../cudnn/plan_text.h"
#include "help.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 1000 };

static const char *const lists[] = {
    "cpu,cuda:sm_90", "cuda:sm_75,cuda:sm_90", "cuda:sm_90,cpu", "cuda:sm_90,cpu,cuda:sm_75"};

/* Compiles for the targets; with both, as `nnc compile` and `nnc run` do on the same day. */
static bool open(loaded *l, const char *text, const char *targets, size_t seed)
{
    fake_begin(seed);
    compile(l, text, targets, 1, 1);
    return l->a != NULL;
}

static void close_all(loaded *l)
{
    char why[512];
    unload(l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* ---- one plan -------------------------------------------------------------------------------------- */

static const char line[] =
    "graph @s {\n%x = input : f32[1000] device 0\n%y = sin %x device 0\n"
    "%h = constant : f32[] = [0.5]\n%o = constant : f32[] = [1]\n%m = mul %y, %h device 1\n"
    "%z = add %m, %o device 1\nreturn %z }";

/* Its text is read again; it runs, and gives sin(x) / 2 + 1. */
static void check(loaded *l)
{
    float x[N], y[N];
    check_plan_text(nnc_artifact_plan(l->a));
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.01f;
    CHECK_OK(nnc_session_create(l->e, l->a, &l->s, test_sink));
    for (int run = 0; l->s && run < 3; run++) {
        x[0] = (float)run;
        CHECK_OK(nnc_session_input(l->s, 0, x, test_sink));
        CHECK_OK(nnc_session_run(l->s, test_sink));
        CHECK_OK(nnc_session_output(l->s, 0, y, test_sink));
        for (int i = 0; i < N; i++)
            if (!(fabs((double)y[i] - (sin((double)x[i]) / 2 + 1)) < 1e-6)) {
                CHECK_NEAR(y[i], sin((double)x[i]) / 2 + 1, 1e-6);
                break;
            }
    }
    nnc_session_destroy(l->s);
    l->s = NULL;
}

static void refused(const nnc_plan *p, const char *why)
{
    nnc_sink_clear(test_sink);
    CHECK_INT(nnc_plan_verify(p, test_sink), NNC_E_MODEL);
    CHECK_DIAG(why);
    nnc_sink_clear(test_sink);
}

/* A kernel of the first device's on both. */
static void check_pairings(nnc_plan *p, size_t list)
{
    nnc_cmd *c = &p->cmd[4], was = *c;
    c->item = 0;
    if (list < 2) {
        c->engine = p->cmd[0].engine;
        refused(p, list ? "also runs on a device of another target"
                        : "works on CPUs, its device is a GPU");
        c->engine = was.engine;
        refused(p,
            list ? "also runs on a device of another target" : "its kernel has a CPU's schedule");
    } else { /* by an engine that could be of both */
        p->engine[c->engine] = "both";
        refused(p, "its kernel has a GPU's schedule, its device is none");
    }
    *c = was;
}

TEST(devices_of_several_kinds)
{
    static const char *const names[][3] = {{"cpu:0", "cuda:0"}, {"cuda:0", "cuda:1"},
        {"cuda:0", "cpu:0"}, {"cuda:0", "cpu:0", "cuda:1"}};
    loaded l;
    if (no_compiler())
        return;
    for (size_t i = 0; i < NNC_COUNT(lists); i++) {
        if (!open(&l, line, lists[i], i))
            continue;
        nnc_plan *p = (nnc_plan *)nnc_artifact_plan(l.a);
        CHECK_INT(p->n_device, i < 3 ? 2 : 3);
        for (int d = 0; d < p->n_device; d++)
            CHECK_STR(p->device[d].name, names[i][d]);
        CHECK_INT(p->n_cmd, 5); /* kernel, copy, record, wait, kernel */
        CHECK(p->n_kernel == 2 && p->kernel[0].object != p->kernel[1].object);
        check(&l);
        if (p->n_cmd == 5)
            check_pairings(p, i);
        close_all(&l);
    }
}

/* Three devices, whose CPU waits for one GPU only: that has waited for the other one, whose copies to the CPU have therefore come, too. */
TEST(copies_of_another_device_have_come)
{
    static const char text[] = "graph @s {\n%x = input : f32[1000] device 2\n%y = sin %x device "
                               "1\n%z = add %x, %y device 0\nreturn %z }";
    static float x[N], y[N];
    loaded l;
    if (no_compiler())
        return;
    for (size_t i = 0; i < 4; i++) {
        if (!open(&l, text, "cpu,cuda:sm_90,cuda:sm_90", i))
            continue;
        const nnc_plan *p = nnc_artifact_plan(l.a);
        int waits = 0;
        for (int k = 0; k < p->n_cmd; k++)
            waits += p->cmd[k].kind == CMD_wait && p->cmd[k].device == 0;
        CHECK_INT(waits, 1);
        CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
        for (int run = 0; l.s && run < 3; run++) {
            for (int k = 0; k < N; k++)
                x[k] = (float)(k + run) * 0.01F;
            CHECK_OK(nnc_session_input(l.s, 0, x, test_sink));
            CHECK_OK(nnc_session_run(l.s, test_sink));
            CHECK_OK(nnc_session_output(l.s, 0, y, test_sink));
            int wrong = 0;
            for (int k = 0; k < N; k++)
                wrong += !(fabs((double)y[k] - (double)x[k] - sin((double)x[k])) < 1e-5);
            CHECK_INT(wrong, 0);
        }
        close_all(&l);
    }
}

/* One kernel on three devices: those of one target share it, names and all, and the third has its own. */
TEST(kernels_are_shared_by_target)
{
    static const char text[] = "graph @s {\n%x = input : f32[1000] device 0\n"
                               "%a = exp %x device 0\n%b = exp %x device 1\n"
                               "%c = exp %x device 2\nreturn %a, %b, %c }";
    loaded l;
    if (no_compiler() || !open(&l, text, "cuda:sm_90,cuda:sm_75,cuda:sm_90", 1))
        return;
    const nnc_plan *p = nnc_artifact_plan(l.a);
    CHECK_INT(p->n_kernel, 2);
    CHECK_INT(p->n_object, 2);
    CHECK_STR(p->kernel[0].symbol, p->kernel[1].symbol);
    CHECK_OK(nnc_plan_verify(p, test_sink));
    close_all(&l);
}

/* ---- artifacts --------------------------------------------------------------------------------------- */

/* Saved, refused where the devices are others, and run where they are these. */
TEST(artifacts_of_several_kinds)
{
    static const struct {
        const char *targets, *why; /* NULL: it is loaded */
    } cases[] = {
        {"cpu", "was compiled for cpu,cuda:sm_90, this is cpu; use --target=cpu,cuda:sm_90"},
        {"cuda:sm_90", "was compiled for cpu,cuda:sm_90, this is cuda:sm_90"},
        {"cuda:sm_90,cpu", "use --target=cpu,cuda:sm_90"},
        {"cpu,cuda:sm_75", "was compiled for another machine"}, {"cpu,cuda:sm_90", NULL},
        {"cpu,cuda:sm_90,cuda:sm_75", NULL}};
    char file[] = "/tmp/nnc_kinds_XXXXXX.nnc";
    loaded l;
    int fd = no_compiler() ? -1 : mkstemps(file, 4);
    if (fd < 0)
        return;
    close(fd);
    if (open(&l, line, "cpu,cuda:sm_90", 7))
        CHECK_OK(nnc_artifact_save(l.a, file, false, test_sink));
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        loaded other = {0};
        nnc_env_options o = {.target = cases[i].targets, .no_cache = true};
        CHECK_OK(nnc_env_create(&o, &other.e, test_sink));
        nnc_status st = nnc_artifact_load(other.e, file, &other.a, test_sink);
        CHECK_INT(st, cases[i].why ? NNC_E_DEVICE : NNC_OK);
        if (cases[i].why)
            CHECK_DIAG(cases[i].why);
        else if (!st)
            check(&other);
        nnc_sink_clear(test_sink);
        unload(&other);
    }
    unlink(file);
    close_all(&l);
}

/* ---- models -------------------------------------------------------------------------------------------- */

static const char *const models[] = {
    /* a convolution, its epilogue on another device, pooling between them */
    "{\"inputs\": {\"x\": [2, 3, 16, 16]}, \"layers\": [\n"
    "{\"op\": \"conv\", \"channels\": 8, \"kernel\": 3}, {\"op\": \"relu\", \"device\": 1},\n"
    "{\"op\": \"maxpool\", \"kernel\": 2, \"stride\": 2, \"device\": 1},\n"
    "{\"op\": \"conv\", \"channels\": 16, \"kernel\": 3, \"device\": 1}, {\"op\": \"relu\", "
    "\"device\": 1},\n"
    "{\"op\": \"flatten\"}, {\"op\": \"linear\", \"out\": 10, \"device\": 1}, {\"op\": "
    "\"softmax\"}]}",
    /* both ends of a sum, a concat of results of both devices, weights read on both */
    "{\"inputs\": {\"x\": [4, 32]}, \"layers\": [\n"
    "{\"op\": \"linear\", \"out\": 32, \"name\": \"a\"},\n"
    "{\"op\": \"linear\", \"out\": 32, \"name\": \"b\", \"in\": [\"x\"], \"device\": 1},\n"
    "{\"op\": \"add\", \"in\": [\"a\", \"b\"], \"name\": \"c\"}, {\"op\": \"gelu\", \"device\": 1, "
    "\"name\": \"d\"},\n"
    "{\"op\": \"concat\", \"axis\": 1, \"in\": [\"a\", \"c\", \"d\"], \"device\": 1},\n"
    "{\"op\": \"layernorm\"}, {\"op\": \"linear\", \"out\": 8, \"device\": 1}]}",
};

static void compare(
    const char *text, const char *targets, const nnc_compile_options *c, size_t seed)
{
    char why[512];
    nnc_text t = {0};
    bool agrees = false;
    nnc_env *e = NULL;
    fake_begin(seed);
    nnc_model *m = model(text);
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){.target = targets, .no_cache = true}, &e, test_sink));
    nnc_compare_options o = {.compile = *c, .warmup = 1, .iterations = 1};
    if (m && e)
        CHECK_OK(nnc_compare(e, m, &o, NNC_TEXT, &t, &agrees, test_sink));
    if (!agrees)
        test_fail(__FILE__, __LINE__, "%s: differs\n%s", targets, nnc_text_str(&t));
    CHECK(strstr(nnc_text_str(&t), targets) != NULL);
    CHECK(fake_count.launches + fake_count.library_calls > 0);
    nnc_text_deinit(&t);
    nnc_model_close(m);
    nnc_env_destroy(e);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s: %s", targets, why);
}

TEST(models_over_several_kinds)
{
    static const nnc_precision precision[] = {
        NNC_PRECISION_default, NNC_PRECISION_tf32, NNC_PRECISION_f16, NNC_PRECISION_bf16};
    if (no_compiler())
        return;
    for (size_t i = 0; i < 2 * NNC_COUNT(lists); i++) {
        if (!test_takes(i, 4))
            continue;
        nnc_compile_options c = nnc_compile_defaults;
        c.streams = 1 + (int)(i / 2 % 2);
        c.precision = precision[i / 2];
        compare(models[i % 2], lists[(i + i / 4) % 4], &c, i);
    }
}

/* tests/cuda_fake/sessions.c -- a model loaded on the fake GPU and run repeatedly. First it runs command by command, then as a graph.
 * Every call of the runtime fails once, and a kernel breaks. */
#include "help.h"
#include "runtime/runtime.h"
#include "test.h"
#include "train/train.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Branches that streams may share, and products. */
static const char branches[] = "{\"inputs\": {\"x\": [16, 40]}, \"layers\": ["
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"a\", \"out\": 24},"
                               "{\"op\": \"softmax\", \"in\": \"a\", \"name\": \"b\"},"
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"c\", \"out\": 24},"
                               "{\"op\": \"layernorm\", \"in\": \"c\", \"name\": \"d\"},"
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"e\", \"out\": 24},"
                               "{\"op\": \"add\", \"in\": [\"b\", \"d\"], \"name\": \"f\"},"
                               "{\"op\": \"add\", \"in\": [\"f\", \"e\"], \"name\": \"g\"}]}";
/* The same over four devices, each with copies to others. */
static const char spread[] =
    "{\"inputs\": {\"x\": [16, 40]}, \"layers\": ["
    "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"a\", \"out\": 24, \"device\": 1},"
    "{\"op\": \"softmax\", \"in\": \"a\", \"name\": \"b\", \"device\": 3},"
    "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"c\", \"out\": 24, \"device\": 2},"
    "{\"op\": \"layernorm\", \"in\": \"c\", \"name\": \"d\", \"device\": 2},"
    "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"e\", \"out\": 24},"
    "{\"op\": \"add\", \"in\": [\"b\", \"d\"], \"name\": \"f\", \"device\": 3},"
    "{\"op\": \"add\", \"in\": [\"f\", \"e\"], \"name\": \"g\", \"device\": 1}]}";
enum { IN = 16 * 40, OUT = 16 * 24 };

/* One run with inputs of this seed. */
static nnc_status run(loaded *l, uint64_t seed, float out[OUT])
{
    float in[IN];
    nnc_fill_input("x", nnc_session_input_type(l->s, 0), seed, in);
    NNC_TRY(nnc_session_input(l->s, 0, in, test_sink));
    NNC_TRY(nnc_session_run(l->s, test_sink));
    return nnc_session_output(l->s, 0, out, test_sink);
}

static void check_near(const float *got, const float *want)
{
    for (int i = 0; i < OUT; i++)
        if (!(fabsf(got[i] - want[i]) < 1e-4f)) {
            CHECK_NEAR(got[i], want[i], 1e-4);
            break;
        }
}

enum { RUNS = 4 };
static float want[RUNS][OUT];

/* What the CPU makes of it. */
static void make_want(void)
{
    loaded l;
    compile(&l, branches, NULL, 1, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int i = 0; i < RUNS; i++)
        CHECK_OK(run(&l, (uint64_t)i, want[i]));
    unload(&l);
}

/* Eager, captured, replayed, replayed; each run on inputs of its own. */
static void check_runs(const char *text, uint64_t seed, int streams, int devices)
{
    float got[OUT];
    char why[512];
    loaded l;
    fake_begin(seed);
    compile(&l, text, "cuda:sm_90", streams, devices);
    const nnc_plan *p = nnc_artifact_plan(l.a);
    CHECK_INT(p->n_device, devices);
    CHECK(p->device[0].streams > 1 || streams == 1);
    for (int i = 0; i < p->n_tensor; i++)
        CHECK(p->tensor[i].alias_of >= 0 || p->tensor[i].offset % 256 == 0);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int i = 0; i < RUNS && l.s; i++) {
        CHECK_OK(run(&l, (uint64_t)i, got));
        check_near(got, want[i]);
        CHECK_INT(fake_count.replays, i);
    }
    CHECK(devices == 1 || fake_count.peer_copies > 0);
    unload(&l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
}

TEST(runs_are_replayed)
{
    if (no_compiler())
        return;
    make_want();
    for (uint64_t seed = 0; seed < 8; seed++)
        check_runs(branches, seed, 3, 1);
}

/* y = x w, w2 = w - y / 8; numbers[]: y after each run and step, w after each step. */
static void take_steps(const char *target, float *numbers)
{
    static const char text[] = "graph @s {\n%x = input : f32[1000]\n"
                               "%w = param : f32[1000] = gen(\"w\", seed=1, scale=0.5)\n"
                               "%c = constant : f32[] = [0.125]\n%y = mul %x, %w\n%d = mul %y, %c\n"
                               "%v = sub %w, %d\nreturn %y\nupdate %w <- %v }";
    float x[1000];
    loaded l;
    compile(&l, text, target, 2, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int i = 0; i < 6 && l.s; i++, numbers += 2000) {
        nnc_fill_input("x", nnc_session_input_type(l.s, 0), (uint64_t)i, x);
        CHECK_OK(nnc_session_input(l.s, 0, x, test_sink));
        CHECK_OK(i % 2 ? nnc_session_step(l.s, test_sink) : nnc_session_run(l.s, test_sink));
        CHECK_OK(nnc_session_output(l.s, 0, numbers, test_sink));
        CHECK_OK(nnc_session_state(l.s, 0, numbers + 1000, test_sink));
        if (i == 3) /* back to what it was: read, written */
            CHECK_OK(nnc_session_set_state(l.s, 0, numbers - 1000, test_sink));
    }
    unload(&l);
}

TEST(steps_update_the_state)
{
    static float cpu[6 * 2000], gpu[6 * 2000];
    char why[512];
    if (no_compiler())
        return;
    take_steps(NULL, cpu);
    for (uint64_t seed = 0; seed < 4; seed++) {
        fake_begin(seed);
        take_steps("cuda:sm_90", gpu);
        for (int i = 0; i < 6 * 2000; i++)
            if (!(fabsf(gpu[i] - cpu[i]) < 1e-6f)) {
                CHECK_NEAR(gpu[i], cpu[i], 1e-6);
                break;
            }
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
    }
    CHECK(memcmp(cpu + 1000, cpu + 3000, 4000) != 0 && !memcmp(cpu + 3000, cpu + 5000, 4000) &&
          memcmp(cpu + 5000, cpu + 7000, 4000) != 0 && !memcmp(cpu + 5000, cpu + 9000, 4000));
}

/* Steps of the model on the target; losses to loss[], and the last weights, in order, to w[]. */
static int train(const char *target, int streams, float *loss, float *w)
{
    static const char text[] =
        "{\"inputs\": {\"x\": [4, 3, 8, 8]}, \"layers\": ["
        "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 16, \"kernel\": 3, \"pad\": 1, "
        "\"bias\": false},"
        "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"avgpool\", \"kernel\": 2}, "
        "\"flatten\","
        "{\"op\": \"linear\", \"name\": \"f\", \"out\": 16}, \"silu\", {\"op\": \"linear\", "
        "\"name\": \"g\", \"out\": 5}]}";
    nnc_training t = nnc_training_defaults;
    nnc_graph *g = NULL;
    loaded l = {0};
    int n = 0;
    t.optimizer = NNC_OPT_adamw;
    t.weight_decay = 0.1;
    t.clip_norm = 0.5;
    t.accumulate = 2;
    nnc_model *m = model(text);
    CHECK_OK(nnc_train_graph(m, &t, &g, test_sink));
    nnc_compile_options o = nnc_compile_defaults;
    o.streams = streams;
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = target, .no_cache = true, .threads = 2}, &l.e, test_sink));
    CHECK_OK(nnc_compile(l.e, g, &o, &l.a, test_sink));
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int at = 0; l.s && at < 6; at++) {
        for (int i = 0; i < nnc_session_inputs(l.s); i++) {
            const char *name = nnc_session_input_name(l.s, i);
            float x[4 * 3 * 8 * 8];
            const float number = !strcmp(name, "lr") ? 0.02f : 2;
            const int64_t target_of[4] = {at % 5, 1, 2, (at + 2) % 5};
            const bool first = at % 2 == 0;
            nnc_fill_input("x", nnc_session_input_type(l.s, i), (uint64_t)at, x);
            const void *data = !strcmp(name, "x")        ? (const void *)x
                               : !strcmp(name, "target") ? (const void *)target_of
                               : !strcmp(name, "first")  ? (const void *)&first
                                                         : &number;
            CHECK_OK(nnc_session_input(l.s, i, data, test_sink));
        }
        CHECK_OK((at % 2 ? nnc_session_step : nnc_session_accumulate)(l.s, test_sink));
        CHECK_OK(nnc_session_output(l.s, 0, &loss[at], test_sink));
    }
    for (int i = 0; l.s && i < nnc_session_states(l.s); i++) {
        CHECK_OK(nnc_session_state(l.s, i, w + n, test_sink));
        n += (int)nnc_type_numel(nnc_session_state_type(l.s, i));
    }
    nnc_model_close(g);
    l.m = m;
    unload(&l);
    return n;
}

TEST(training_on_the_gpu)
{
    static float cpu[40000], gpu[40000];
    float losses[6], got[6];
    char why[512];
    if (no_compiler())
        return;
    const int n = train(NULL, 1, losses, cpu);
    CHECK(n > 18000 && n < 40000);
    for (uint64_t seed = 0; seed < 2; seed++) {
        fake_begin(seed);
        CHECK_INT(train("cuda:sm_90", seed ? 3 : 1, got, gpu), n);
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(got[i], losses[i], 1e-4);
        for (int i = 0; i < n; i++)
            if (!(fabsf(gpu[i] - cpu[i]) < 1e-3f)) {
                CHECK_NEAR(gpu[i], cpu[i], 1e-3);
                break;
            }
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
    }
}

TEST(several_devices)
{
    if (no_compiler())
        return;
    make_want();
    for (uint64_t seed = 0; seed < 8; seed++)
        check_runs(spread, seed, 1, 4);
}

/* The same model twice in one graph, on streams of a GPU or on two: the numbers of each, replayed. */
static void check_two(uint64_t seed, int streams, int devices)
{
    static const char *const name[] = {"first", "second"};
    const int device[] = {0, 1};
    nnc_compile_options o = nnc_compile_defaults;
    float in[IN], got[OUT];
    char why[512];
    loaded l = {0};
    nnc_model *m[] = {model(branches), model(branches)};
    fake_begin(seed);
    o.streams = streams;
    o.devices = devices;
    CHECK_OK(nnc_models_join(m, name, devices > 1 ? device : NULL, 2, NULL, &l.m, test_sink));
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &l.e, test_sink));
    CHECK_OK(nnc_compile(l.e, l.m, &o, &l.a, test_sink));
    CHECK_INT(nnc_artifact_plan(l.a)->device[0].streams, streams);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int i = 0; i < RUNS && l.s; i++) {
        for (int k = 0; k < 2; k++) {
            nnc_fill_input("x", nnc_session_input_type(l.s, k), (uint64_t)(i + k) % RUNS, in);
            CHECK_OK(nnc_session_input(l.s, k, in, test_sink));
        }
        CHECK_OK(nnc_session_run(l.s, test_sink));
        for (int k = 0; k < 2; k++) {
            CHECK_OK(nnc_session_output(l.s, k, got, test_sink));
            check_near(got, want[(i + k) % RUNS]);
        }
        CHECK_INT(fake_count.replays, i);
    }
    CHECK_INT(fake_count.peer_copies, 0);
    unload(&l);
    for (int k = 0; k < 2; k++)
        nnc_model_close(m[k]);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
}

TEST(several_models)
{
    if (no_compiler())
        return;
    make_want();
    for (uint64_t seed = 0; seed < 4; seed++) {
        check_two(seed, 2, 1);
        check_two(seed, 1, 2);
    }
}

/* A run that cannot be captured goes on as it did; any other call that fails is an error; and nothing is left behind. */
TEST(any_call_of_a_session_may_fail)
{
    bool all = false;
    int went = 0, at = 1;
    if (no_compiler())
        return;
    make_want();
    for (; at < 2000 && !all; at++) {
        float got[OUT];
        char why[512];
        loaded l;
        fake_begin(0);
        compile(&l, branches, "cuda:sm_90", 2, 1);
        fake_calls = 0;
        fake_fail_at = at;
        fake_fail_with = 46;
        nnc_status st = nnc_session_create(l.e, l.a, &l.s, test_sink);
        for (int i = 0; i < RUNS && st == NNC_OK; i++) {
            st = run(&l, (uint64_t)i, got);
            if (st == NNC_OK)
                check_near(got, want[i]);
        }
        all = fake_calls < at;
        went += st == NNC_OK;
        CHECK(st == NNC_OK || st == NNC_E_DEVICE);
        fake_fail_at = 0;
        unload(&l);
        /* where a record or a wait failed, another stream may have read too early: the error is told, and no result is */
        int wrong = fake_end(why);
        if (st == NNC_OK ? wrong : fake_left)
            test_fail(__FILE__, __LINE__, "call %d fails: %s", at, why);
    }
    CHECK(all);
    CHECK(at > 50);
    CHECK(went > 5); /* those of the capture, of pinned memory, of what is given back */
}

/* Each call that belongs to a capture fails, and leaves CUDA's last error behind. The run goes on uncaptured and says so. cuBLASLt and
 * cuDNN ask for the last error after their launches, and do not take it for theirs. */
static const char convs[] =
    "{\"inputs\": {\"x\": [2, 4, 8, 10]}, \"layers\": ["
    "{\"op\": \"conv\", \"in\": \"x\", \"channels\": 8, \"kernel\": 3, "
    "\"pad\": 1}, {\"op\": \"relu\"},"
    "{\"op\": \"conv\", \"channels\": 2, \"kernel\": 3, \"pad\": 1, \"bias\": false}, "
    "{\"op\": \"flatten\"}, {\"op\": \"linear\", "
    "\"out\": 24}, {\"op\": \"softmax\"}]}";
static void fail_in_graphs(const char *text, int call, int error, bool told)
{
    float in[IN], got[OUT], first[OUT];
    char why[512];
    loaded l;
    fake_begin(0);
    compile(&l, text, "cuda:sm_90", 1, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    nnc_fill_input("x", nnc_session_input_type(l.s, 0), 3, in);
    fake_graph_fail = call;
    fake_fail_with = error;
    for (int i = 0; i < RUNS; i++) {
        CHECK_OK(nnc_session_input(l.s, 0, in, test_sink));
        CHECK_OK(nnc_session_run(l.s, test_sink));
        CHECK_OK(nnc_session_output(l.s, 0, i ? got : first, test_sink));
        CHECK(!i || !memcmp(got, first, (size_t)nnc_type_bytes(nnc_session_output_type(l.s, 0))));
        CHECK_INT(fake_last_error(), 0);
        if (i == 1)
            CHECK(test_has_diag("its commands are given one by one") == told);
    }
    CHECK_INT(fake_graph_fail, 0); /* it did fail, once */
    CHECK_INT(fake_count.replays, told ? 0 : RUNS - 1);
    nnc_sink_clear(test_sink);
    unload(&l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "graph call %d: %s", call, why);
}

TEST(a_failed_capture_leaves_no_error)
{
    if (no_compiler())
        return;
    for (int call = FAKE_CAPTURE_BEGIN; call <= FAKE_GRAPH_UPLOAD; call++) {
        fail_in_graphs(branches, call, 901, call != FAKE_GRAPH_UPLOAD);
        fail_in_graphs(convs, call, 2, call != FAKE_GRAPH_UPLOAD);
    }
}

TEST(a_kernel_that_breaks_is_told)
{
    float got[OUT];
    char why[512];
    loaded l;
    if (no_compiler())
        return;
    fake_begin(0);
    compile(&l, branches, "cuda:sm_90", 1, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    fake_break_launch = fake_count.launches + 1;
    if (l.s)
        CHECK_INT(run(&l, 0, got), NNC_E_DEVICE);
    CHECK_DIAG("cuda:0: at or before /layers/");
    CHECK_DIAG("an illegal memory access was encountered (cudaErrorIllegalAddress)");
    CHECK_DIAG("CUDA_LAUNCH_BLOCKING=1");
    unload(&l);
    (void)fake_end(why); /* after such an error nothing is given back */
}

/* ---- the executor itself ------------------------------------------------------------------------------------------- */

static const nnc_engine *const engines[] = {
    &nnc_engine_cudnn, &nnc_engine_cublaslt, &nnc_engine_cuda};

static nnc_exec *load(const loaded *l, bool no_replay)
{
    nnc_exec *x = NULL;
    CHECK_OK(nnc_exec_create(nnc_artifact_plan(l->a),
        &(nnc_exec_options){.device = (const nnc_device_api *[]){&nnc_device_cuda},
            .n_device = 1,
            .engine = engines,
            .n_engine = NNC_COUNT(engines),
            .no_replay = no_replay},
        &x, test_sink));
    return x;
}

/* Inputs up, runs and outputs down are given one after the other, and the host waits once. */
TEST(nothing_waits_before_sync)
{
    static float in[RUNS][IN], got[RUNS][OUT];
    if (no_compiler())
        return;
    make_want();
    for (uint64_t seed = 0; seed < 8; seed++) {
        char why[512];
        loaded l;
        fake_begin(seed);
        compile(&l, branches, "cuda:sm_90", 2, 1);
        const nnc_plan *p = nnc_artifact_plan(l.a);
        nnc_exec *x = load(&l, seed % 2 == 0);
        int before = fake_count.launches;
        for (int i = 0; i < RUNS && x; i++) {
            nnc_fill_input("x", &p->tensor[p->input[0]].type, (uint64_t)i, in[i]);
            CHECK_OK(nnc_exec_upload(x, 0, in[i]));
            CHECK_OK(nnc_exec_run(x, test_sink));
            CHECK_OK(nnc_exec_download(x, 0, got[i]));
        }
        CHECK_OK(nnc_exec_sync(x, test_sink));
        for (int i = 0; i < RUNS; i++)
            check_near(got[i], want[i]);
        CHECK_INT(fake_count.replays, seed % 2 ? RUNS - 1 : 0);
        CHECK(fake_count.launches > before);
        nnc_exec_destroy(x);
        unload(&l);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, why);
    }
}

/* Profiles are command by command, also once runs are replayed. */
TEST(profiles_between_replays)
{
    char why[512];
    loaded l;
    if (no_compiler())
        return;
    fake_begin(3);
    compile(&l, branches, "cuda:sm_90", 2, 1);
    const nnc_plan *p = nnc_artifact_plan(l.a);
    int n = p->n_cmd - nnc_plan_first(p, SEC_main);
    int64_t *begin = calloc((size_t)n, sizeof *begin), *end = calloc((size_t)n, sizeof *end);
    static float in[IN];
    nnc_exec *x = load(&l, false);
    CHECK_OK(nnc_exec_upload(x, 0, in));
    for (int round = 0; round < 3; round++) {
        CHECK_OK(nnc_exec_run(x, test_sink));
        CHECK_OK(nnc_exec_run(x, test_sink));
        CHECK_OK(nnc_exec_profile_behind(x, 0, SEC_main, SEC_main, begin, end, test_sink));
        for (int i = 0; i < n; i++)
            CHECK(begin[i] > 0 && end[i] >= begin[i]);
    }
    CHECK_INT(fake_count.replays, 5);
    nnc_exec_destroy(x);
    free(begin);
    free(end);
    unload(&l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* A saved artifact on another day: code, plan and launch geometry from the file. */
TEST(artifacts_run)
{
    char file[] = "/tmp/nnc_artifact_XXXXXX.nnc", why[512];
    float got[OUT];
    loaded l;
    if (no_compiler())
        return;
    make_want();
    fake_begin(2);
    int fd = mkstemps(file, 4);
    if (fd >= 0)
        close(fd);
    compile(&l, branches, "cuda:sm_90", 2, 1);
    CHECK_OK(nnc_artifact_save(l.a, file, true, test_sink));
    nnc_artifact_destroy(l.a);
    l.a = NULL;
    CHECK_OK(nnc_artifact_load(l.e, file, &l.a, test_sink));
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    for (int i = 0; i < 3 && l.s; i++) {
        CHECK_OK(run(&l, (uint64_t)i, got));
        check_near(got, want[i]);
    }
    unload(&l);
    unlink(file);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* Each allocation of loading and running fails once: NNC_E_NOMEM, or it is done without (the capture), and nothing is left. */
TEST(out_of_memory)
{
    int fine = 0;
    if (no_compiler())
        return;
    make_want();
    for (int64_t n = 1; fine < 20 && n < 5000; n++) {
        float got[OUT];
        char why[512];
        loaded l;
        fake_begin(0);
        compile(&l, branches, "cuda:sm_90", 2, 1);
        nnc_fail_alloc_after(n);
        nnc_status st = nnc_session_create(l.e, l.a, &l.s, test_sink);
        for (int i = 0; i < RUNS && st == NNC_OK; i++) {
            st = run(&l, (uint64_t)i, got);
            if (st == NNC_OK)
                check_near(got, want[i]);
        }
        nnc_fail_alloc_after(0);
        fine = st == NNC_OK ? fine + 1 : 0;
        if (st != NNC_OK && st != NNC_E_NOMEM)
            test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(st));
        unload(&l);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, why);
    }
    CHECK_INT(fine, 20);
}

/* tests/cuda_fake/activity.c -- times of commands by CUPTI's records. They are those by events, with and without capture, over streams,
 * devices and parts of a step. Where records are lost, or CUPTI belongs to another, times are by events. */
#include "help.h"
#include "profile/profile.h"
#include "report/report.h"
#include "test.h"
#include "train/train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char branches[] = "{\"inputs\": {\"x\": [16, 40]}, \"layers\": ["
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"a\", \"out\": 24},"
                               "{\"op\": \"softmax\", \"in\": \"a\", \"name\": \"b\"},"
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"c\", \"out\": 24},"
                               "{\"op\": \"layernorm\", \"in\": \"c\", \"name\": \"d\"},"
                               "{\"op\": \"add\", \"in\": [\"b\", \"d\"], \"name\": \"f\"}]}";
static const char alone[] =
    "{\"inputs\": {\"x\": [16, 40]}, \"layers\": [{\"op\": \"softmax\", \"name\": \"a\"}]}";
static const char spread[] =
    "{\"inputs\": {\"x\": [16, 40]}, \"layers\": ["
    "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"a\", \"out\": 24, \"device\": 1},"
    "{\"op\": \"softmax\", \"in\": \"a\", \"name\": \"b\", \"device\": 1},"
    "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"c\", \"out\": 24},"
    "{\"op\": \"add\", \"in\": [\"b\", \"c\"], \"name\": \"f\"}]}";
static const char step[] = "graph @s {\n%x = input : f32[1000]\n"
                           "%w = param : f32[1000] = gen(\"w\", seed=1, scale=0.5)\n"
                           "%c = constant : f32[] = [0.125]\n%y = mul %x, %w\n%d = mul %y, %c\n"
                           "%v = sub %w, %d\nreturn %y\nupdate %w <- %v }";

/* A model on the fake GPU whose work takes 100 ns a byte, much longer than submitting it. */
static bool begin(loaded *l, uint64_t seed, const char *text, int streams, int devices, int level)
{
    nnc_compile_options o = nnc_compile_defaults;
    o.streams = streams;
    o.devices = devices;
    o.level = level;
    fake_begin(seed);
    fake_clock(&(fake_speeds){1, 1, 0.01, false});
    *l = (loaded){.m = model(text)};
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &l->e, test_sink));
    nnc_status st = nnc_compile(l->e, l->m, &o, &l->a, test_sink);
    if (!st)
        st = nnc_session_create(l->e, l->a, &l->s, test_sink);
    if (!st)
        st = nnc_session_make_inputs(l->s, &nnc_compare_defaults, 0, test_sink);
    CHECK_OK(st);
    return !st;
}

static void end(loaded *l)
{
    char why[512];
    unload(l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* Times of the model's commands by both ways: events stand a few submissions, of 1 us each, around the work. Parts of a run of at least two
 * commands are replayed. */
static void check_times(const loaded *l, nnc_section last)
{
    enum { RUNS = 3 };
    const nnc_plan *p = nnc_artifact_plan(l->a);
    const int32_t first = nnc_plan_first(p, SEC_main), n = p->end[last] - first;
    const int replayed =
        (p->end[SEC_main] - first > 1) + (last > SEC_main && p->end[last] - p->end[SEC_main] > 1);
    int64_t *time = calloc(4 * (size_t)n + 1, sizeof *time), *start = time, *to = time + n;
    nnc_tracing *x[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
        CHECK_OK(nnc_tracing_create(l->s, &x[k], test_sink));
        nnc_tracing_behind(x[k], l->e, last, k == 1);
        CHECK_INT(nnc_tracing_clock_of(x[k])->activity, k == 0);
        CHECK_STR(nnc_tracing_clock_of(x[k])->why, k ? "--gpu-times" : "");
        const int replays = fake_count.replays;
        for (int run = 0; run < RUNS; run++)
            CHECK_OK(nnc_tracing_times(
                x[k], SEC_main, last, start + 2 * k * n, to + 2 * k * n, test_sink));
        if (k == 0)
            CHECK_INT(fake_count.replays - replays, RUNS * replayed);
        nnc_tracing_destroy(x[k]);
    }
    int timed = 0;
    for (int i = 0; i < n; i++) {
        const nnc_cmd *c = &p->cmd[first + i];
        const double ns = 1e-3 * (double)(to[i] - start[i]),
                     events = 1e-3 * (double)(to[2 * n + i] - start[2 * n + i]);
        if (c->kind == CMD_record || c->kind == CMD_wait)
            continue;
        CHECK(ns > 1e4);
        CHECK(fabs(ns - events) < 4e3);
        timed++;
    }
    CHECK(timed > 0);
    free(time);
}

TEST(times_are_those_of_events)
{
    loaded l;
    if (no_compiler())
        return;
    for (uint64_t seed = 0; seed < 6; seed++) {
        if (begin(&l, seed, branches, 1 + (int)(seed % 3), 1, 2))
            check_times(&l, SEC_main);
        end(&l);
        if (begin(&l, seed, spread, 1, 2, (int)(seed % 3)))
            check_times(&l, SEC_main);
        end(&l);
    }
    if (begin(&l, 1, alone, 1, 1, 2)) /* one command, which is not captured */
        check_times(&l, SEC_main);
    end(&l);
}

TEST(times_of_steps)
{
    loaded l;
    if (no_compiler())
        return;
    for (int level = 0; level < 3; level++) {
        if (begin(&l, 2, step, 1, 1, level))
            check_times(&l, SEC_step);
        end(&l);
    }
}

/* The profile, as text; what it says of its clock. */
static void check_profile(loaded *l, nnc_gpu_times times, const char *says)
{
    const nnc_profile_options o = {.active = 4, .gpu_times = times};
    nnc_compare_options t = nnc_compare_defaults;
    NNC_LOCAL(nnc_text) text = {0};
    nnc_profile p = {0};
    t.iterations = 2;
    CHECK_OK(nnc_profile_measure(l->e, l->s, false, &t, &o, &p, test_sink));
    double sum = p.idle_ms;
    for (int i = 0; i < p.n; i++)
        sum += p.cmd[i].ms;
    CHECK_NEAR(sum, p.wall_ms * p.lanes, 1e-6 * sum);
    CHECK_INT(p.active, 4);
    CHECK(
        p.overhead.ratio > 0.9 && p.overhead.ratio < 1.1 && (p.outside_ms > 0) == p.clock.activity);
    CHECK_OK(nnc_profile_print(l->e, &p, &o, NNC_TEXT, &text, test_sink));
    nnc_text words = {0};
    for (const char *s = nnc_text_str(&text); *s; s++)
        nnc_putc(&words, *s == '\n' ? ' ' : *s);
    if (!strstr(nnc_text_str(&words), says))
        test_fail(__FILE__, __LINE__, "no \"%s\" in\n%s", says, nnc_text_str(&text));
    nnc_text_deinit(&words);
    nnc_arena_deinit(&p.arena);
}

TEST(profiles_say_what_times_are_by)
{
    loaded l;
    if (no_compiler())
        return;
    if (begin(&l, 3, branches, 2, 1, 2)) {
        check_profile(&l, GPU_TIMES_auto, "times of commands are those of CUPTI's records");
        check_profile(&l, GPU_TIMES_events, "by CUDA events (not CUPTI: --gpu-times)");
        fake_cupti_drops = 2; /* tried again */
        check_profile(&l, GPU_TIMES_auto, "times of commands are those of CUPTI's records");
        CHECK_INT(fake_cupti_drops, 0);
        fake_cupti_drops = 1000; /* from the first run on */
        check_profile(&l, GPU_TIMES_auto, "not CUPTI: it lacks records of commands");
        nnc_cuda_override(CUDA_cupti, NULL);
        check_profile(&l, GPU_TIMES_auto, "not CUPTI: cupti is missing");
    }
    end(&l);
}

/* A part whose capture failed is launched command by command in profiled runs, too. */
TEST(failed_captures_are_not_tried_again)
{
    loaded l;
    if (no_compiler())
        return;
    if (begin(&l, 6, branches, 1, 1, 2)) {
        fake_graph_fail = FAKE_CAPTURE_BEGIN;
        fake_fail_with = 900;
        for (int i = 0; i < 2; i++)
            CHECK_OK(nnc_session_run(l.s, test_sink));
        CHECK(test_has_diag("its commands are given one by one"));
        check_profile(&l, GPU_TIMES_auto, "times of commands are those of CUPTI's records");
        CHECK_INT(fake_count.replays, 0);
        nnc_sink_clear(test_sink);
    }
    end(&l);
}

static int calls_left;
static int (*flush)(uint32_t forced);
static int flush_then_drop(uint32_t forced)
{
    if (--calls_left == 0)
        fake_cupti_drops = 1000;
    return flush(forced);
}

/* After some runs that were profiled already. */
TEST(records_are_lost_on_the_way)
{
    loaded l;
    if (no_compiler())
        return;
    if (begin(&l, 4, branches, 1, 1, 2)) {
        nnc_cuda_cupti table = *NNC_CUDA(cupti, NULL);
        flush = table.cuptiActivityFlushAll;
        table.cuptiActivityFlushAll = flush_then_drop;
        nnc_cuda_override(CUDA_cupti, &table);
        for (int from = 2; from < 20; from += 4) {
            calls_left = from;
            fake_cupti_drops = 0;
            check_profile(
                &l, GPU_TIMES_auto, "by CUDA events (not CUPTI: it lacks records of commands");
        }
    }
    end(&l);
}

static void nothing(void *user, int domain, uint32_t id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
}

static int forbidden(int kind)
{
    return kind == 10 ? 35 : 0;
}

TEST(cupti_does_not_start)
{
    loaded l;
    if (no_compiler())
        return;
    if (begin(&l, 5, branches, 1, 1, 2)) {
        nnc_cuda_cupti table = *NNC_CUDA(cupti, NULL);
        table.cuptiActivityEnable = forbidden;
        nnc_cuda_override(CUDA_cupti, &table);
        check_profile(&l, GPU_TIMES_auto,
            "not CUPTI: it does not start: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
    }
    end(&l);
}

TEST(cupti_has_one_client)
{
    loaded l;
    void *other = NULL;
    if (no_compiler())
        return;
    if (begin(&l, 5, branches, 1, 1, 2)) {
        const nnc_cuda_cupti *api = NNC_CUDA(cupti, NULL);
        CHECK_INT(api->cuptiSubscribe(&other, nothing, NULL), 0);
        check_profile(&l, GPU_TIMES_auto, "another profiler of this process uses it");
        CHECK_INT(api->cuptiUnsubscribe(other), 0);
        check_profile(&l, GPU_TIMES_auto, "those of CUPTI's records");
    }
    end(&l);
}

/* tests/cuda_fake/io.c -- overlapped copies on the fake GPU: order under every seed, and verdicts that its clocks decide. */
#include "help.h"
#include "report/report.h"
#include "runtime/runtime.h"
#include <math.h>
#include <stdlib.h>

static const char relu[] = "{\"inputs\": {\"x\": [64, 512]}, \"layers\": [{\"op\": \"relu\"}]}";
/* Two branches for two streams. */
static const char branches[] = "{\"inputs\": {\"x\": [16, 40]}, \"layers\": ["
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"a\", \"out\": 24},"
                               "{\"op\": \"softmax\", \"in\": \"a\", \"name\": \"b\"},"
                               "{\"op\": \"linear\", \"in\": \"x\", \"name\": \"c\", \"out\": 24},"
                               "{\"op\": \"add\", \"in\": [\"b\", \"c\"], \"name\": \"d\"}]}";

static void end(void)
{
    char why[512];
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

static nnc_status fill_inputs(loaded *l)
{
    for (int i = 0; i < nnc_session_inputs(l->s); i++) {
        const nnc_type *t = nnc_session_input_type(l->s, i);
        void *x = nnc_malloc((size_t)nnc_type_bytes(t));
        nnc_fill_input(nnc_session_input_name(l->s, i), t, 3, x);
        nnc_status st = nnc_session_input(l->s, i, x, test_sink);
        nnc_free(x);
        NNC_TRY(st);
    }
    return NNC_OK;
}

/* n runs with their copies, the first of them after a row that warms up. */
static nnc_io_report measure(const fake_speeds *speed, const char *text, int n, bool pinned)
{
    int64_t ns[NNC_STREAM_RUNS] = {0};
    nnc_io_report r = {0};
    loaded l;
    fake_begin(0);
    compile(&l, text, "cuda:sm_90", 1, 1);
    fake_clock(speed);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    fake_no_pinned = !pinned;
    CHECK_OK(nnc_session_stream_open(l.s, test_sink));
    CHECK_OK(fill_inputs(&l));
    CHECK_OK(nnc_session_stream(l.s, n, ns, test_sink));
    nnc_session_stream_reset(l.s);
    CHECK_OK(nnc_session_stream(l.s, n, ns, test_sink));
    for (int i = 0; i < n; i++)
        CHECK(ns[i] > 0);
    r = nnc_session_stream_report(l.s);
    unload(&l);
    end();
    return r;
}

static void check_cause(const nnc_overlap *o, const char *cause)
{
    CHECK_STR(o->cause ? o->cause : "overlaps", cause);
    CHECK(o->overlaps == !o->cause);
}

/* 128 KiB each way. */
TEST(copies_overlap_where_they_can)
{
    if (no_compiler())
        return;
    nnc_io_report r = measure(&(fake_speeds){1, 1, 0.1, false}, relu, 10, true);
    check_cause(&r.up, "overlaps");
    check_cause(&r.down, "overlaps");
    CHECK(r.up.share > 0.95 && r.down.share > 0.95);
    CHECK_NEAR(r.up.ms, 0.1311, 0.01);
    CHECK_NEAR(r.run_ms, 2.621, 0.1);
    CHECK_INT(r.up.bytes, 128 << 10);
    CHECK_INT(r.device_bytes, 3 * (128 << 10));
}

TEST(why_copies_do_not_overlap)
{
    if (no_compiler())
        return;
    nnc_io_report r = measure(&(fake_speeds){1, 1, 0.1, false}, relu, 10, false);
    check_cause(&r.up, "pageable memory");
    CHECK(r.up.share < 0.5);
    r = measure(&(fake_speeds){1, 1, 0.1, false}, relu, 1, true);
    check_cause(&r.up, "one iteration");
    check_cause(&r.down, "one iteration");
    CHECK(isnan(r.up.share));
    r = measure(&(fake_speeds){1, 1, 0.1, true}, relu, 10, true);
    check_cause(&r.up, "host synchronisation");
    check_cause(&r.down, "host synchronisation");
    CHECK(r.up.share < 0.1);
    r = measure(&(fake_speeds){0.02, 1, 1, false}, relu, 10, true);
    check_cause(&r.up, "copies take longer than computing");
    CHECK_NEAR(r.up.share, 0.04, 0.02);
}

static void check_first_run(const char *target, const char *const *zero, const char *const *more)
{
    loaded l;
    nnc_text t = {0};
    fake_begin(0);
    fake_clock(&(fake_speeds){1, 1, 0.1, false});
    compile(&l, branches, target, 1, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    CHECK_OK(fill_inputs(&l));
    for (int i = 0; i < 3; i++)
        CHECK_OK(nnc_session_run(l.s, test_sink));
    nnc_report_first_run_json(l.s, &(nnc_json_writer){.out = &t});
    for (; *zero || *more; zero += *zero != NULL, more += *more != NULL) {
        const char *a = *zero ? strstr(nnc_text_str(&t), *zero) : NULL;
        const char *b = *more ? strstr(nnc_text_str(&t), *more) : NULL;
        if ((*zero && (!a || atoll(a + strlen(*zero) + 2) != 0)) ||
            (*more && (!b || atoll(b + strlen(*more) + 2) <= 0)))
            test_fail(__FILE__, __LINE__, "%s: %s or %s in %s", target ? target : "cpu",
                *zero ? *zero : "", *more ? *more : "", nnc_text_str(&t));
    }
    nnc_text_deinit(&t);
    unload(&l);
    end();
}

/* The fake's kernels are text that it compiles when they are loaded, as a driver does with PTX; a CPU's are machine code. */
TEST(the_first_run_is_broken_down)
{
    if (no_compiler())
        return;
    check_first_run("cuda:sm_90", (const char *const[]){"\"code_ns\"", NULL},
        (const char *const[]){"\"context_ns\"", "\"jit_ns\"", "\"libraries_ns\"", "\"weights_ns\"",
            "\"upload_ns\"", "\"first_run_ns\"", "\"capture_ns\"", NULL});
    check_first_run(NULL,
        (const char *const[]){"\"jit_ns\"", "\"upload_ns\"", "\"capture_ns\"", NULL},
        (const char *const[]){"\"weights_ns\"", "\"code_ns\"", "\"first_run_ns\"", NULL});
}

/* The report of a comparison with both kinds of times. */
TEST(compare_says_both)
{
    nnc_text t = {0}, u = {0};
    nnc_env *e = NULL;
    bool agrees = false;
    nnc_compare_options o = {.compile = nnc_compile_defaults, .iterations = 6, .io = NNC_IO_BOTH};
    if (no_compiler())
        return;
    fake_begin(0);
    fake_clock(&(fake_speeds){1, 1, 0.1, false});
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    nnc_model *m = model(relu);
    CHECK_OK(nnc_compare(e, m, &o, NNC_JSON, &t, &agrees, test_sink));
    CHECK(agrees);
    static const char *const parts[] = {"\"io\": \"both\"", "\"with_copies\": {\"median_ms\": ",
        "\"upload\": {\"overlaps\": true, \"share\": 1, \"cause\": null",
        "\"io_device_bytes\": 393216"};
    for (size_t i = 0; i < NNC_COUNT(parts); i++)
        if (!strstr(nnc_text_str(&t), parts[i]))
            test_fail(__FILE__, __LINE__, "no %s in\n%s", parts[i], nnc_text_str(&t));
    o.io = NNC_IO_INCLUDE;
    CHECK_OK(nnc_compare(e, m, &o, NNC_TEXT, &u, &agrees, test_sink));
    CHECK(agrees);
    CHECK(strstr(nnc_text_str(&u), "copies to and from the device timed") != NULL);
    CHECK(strstr(nnc_text_str(&u), "upload overlaps compute: yes, 100 % of 0.13") != NULL);
    nnc_text_deinit(&t);
    nnc_text_deinit(&u);
    nnc_model_close(m);
    nnc_env_destroy(e);
    end();
}

/* Another run's data is never touched, whatever runs first; and the numbers are those of runs alone. */
TEST(streamed_runs_race_nowhere)
{
    if (no_compiler())
        return;
    for (uint64_t seed = 0; seed < 8; seed++) {
        float alone[16 * 24], streamed[16 * 24];
        int64_t ns[NNC_STREAM_RUNS];
        loaded l;
        fake_begin(seed);
        compile(&l, branches, "cuda:sm_90", seed & 1 ? 2 : 1, 1);
        CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
        CHECK_OK(nnc_session_stream_open(l.s, test_sink));
        CHECK_OK(fill_inputs(&l));
        CHECK_OK(nnc_session_run(l.s, test_sink));
        CHECK_OK(nnc_session_output(l.s, 0, alone, test_sink));
        for (int i = 0; i < 3; i++) {
            memset(streamed, 0, sizeof streamed);
            CHECK_OK(nnc_session_stream(l.s, 7, ns, test_sink));
            CHECK_OK(nnc_session_output(l.s, 0, streamed, test_sink));
            CHECK(!memcmp(alone, streamed, sizeof alone));
        }
        CHECK(fake_count.replays >= 15); /* slots are captured, too */
        unload(&l);
        end();
    }
}

/* Each call of CUDA fails once: an error, and nothing is left. */
TEST(any_call_of_a_stream_may_fail)
{
    bool all = false;
    if (no_compiler())
        return;
    for (int at = 1; at < 3000 && !all; at += at < test_draws(120) ? 1 : 12 / test_draws(4)) {
        int64_t ns[NNC_STREAM_RUNS];
        char why[512];
        loaded l;
        fake_begin(0);
        compile(&l, branches, "cuda:sm_90", 1, 1);
        int before = fake_calls;
        fake_fail_at = before + at;
        fake_fail_with = 46;
        nnc_status st = nnc_session_create(l.e, l.a, &l.s, test_sink);
        st = st ? st : nnc_session_stream_open(l.s, test_sink);
        st = st ? st : fill_inputs(&l);
        st = st ? st : nnc_session_stream(l.s, 5, ns, test_sink);
        all = fake_calls < fake_fail_at;
        CHECK(st == NNC_OK || st == NNC_E_DEVICE || st == NNC_E_FIT);
        unload(&l);
        int wrong = fake_end(why);
        if (st == NNC_OK ? wrong
                         : fake_left) /* what ran on after a failure may have read anything */
            test_fail(__FILE__, __LINE__, "call %d fails: %s: %s", at, nnc_status_name(st), why);
    }
    CHECK(all);
}

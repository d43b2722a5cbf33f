/* tests/cuda_fake/device.c -- the device "cuda" as device.h has it: order, events, copies, failures that stay until sync; and that the
 * fake's checker finds what it is there for. */
#include "fake.h"
#include "runtime/runtime.h"
#include "test.h"
#include <stdlib.h>

enum { SEEDS = 6, N = 1000 };

static const nnc_device_api *const api = &nnc_device_cuda;

typedef struct fixture {
    nnc_device *d;
    nnc_stream *s[3];
    nnc_event *e[2];
    int *a; /* N of them on the device, filled with 7 */
} fixture;

static void up(fixture *f, uint64_t seed)
{
    static const int seven[N] = {[0 ... N - 1] = 7};
    void *p;
    fake_begin(seed);
    CHECK_OK(api->open(0, &f->d, test_sink));
    for (int i = 0; i < 3; i++)
        CHECK_OK(api->stream_create(f->d, 1, false, &f->s[i], test_sink));
    for (int i = 0; i < 2; i++)
        CHECK_OK(api->event_create(f->d, &f->e[i], test_sink));
    CHECK_OK(api->alloc(f->d, sizeof seven, &p, test_sink));
    f->a = p;
    CHECK_OK(api->upload(f->s[0], f->a, seven, sizeof seven));
    CHECK_OK(api->sync(f->s[0], test_sink));
}

/* Returns what the fake found wrong. */
static int down(fixture *f, char why[512])
{
    for (int i = 0; i < 3; i++)
        api->stream_destroy(f->s[i]);
    for (int i = 0; i < 2; i++)
        api->event_destroy(f->e[i]);
    api->free(f->d, f->a);
    api->close(f->d);
    return fake_end(why);
}

static void down_well(fixture *f)
{
    char why[512];
    if (down(f, why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* ---- work that the fake runs in the stream's turn ------------------------------------------------------------------ */

typedef struct change {
    int *a;
    int times, plus;
} change;

static void run_change(void *ctx)
{
    const change *c = ctx;
    for (int i = 0; i < N; i++)
        c->a[i] = c->a[i] * c->times + c->plus;
}

/* An engine's run: handle is {times, plus}. */
static nnc_status run(void *handle, void *const *args, void *work)
{
    const int *h = handle;
    change *c = malloc(sizeof *c);
    (void)work;
    *c = (change){args[0], h[0], h[1]};
    fake_access a[] = {{c->a, N * sizeof(int), false}, {c->a, N * sizeof(int), true}};
    return fake_enqueue(nnc_cuda_current(), run_change, c, a, 2, "change") ? NNC_E_DEVICE : NNC_OK;
}

static nnc_status launch(fixture *f, int s, int times, int plus)
{
    return api->launch(f->s[s], &(nnc_work){.run = run,
                                    .handle = (int[]){times, plus},
                                    .args = (void *[]){f->a},
                                    .n_arg = 1,
                                    .name = "/layers/2"});
}

static int first(fixture *f, int s)
{
    int got[N];
    CHECK_OK(api->download(f->s[s], got, f->a, sizeof got));
    CHECK_OK(api->sync(f->s[s], test_sink));
    for (int i = 1; i < N; i++)
        if (got[i] != got[0]) {
            CHECK_INT(got[i], got[0]);
            break;
        }
    return got[0];
}

TEST(stream_order)
{
    fixture f;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        up(&f, seed);
        CHECK_OK(launch(&f, 1, 2, 1)); /* 15 */
        CHECK_OK(launch(&f, 1, 3, 0)); /* 45 */
        CHECK_OK(launch(&f, 1, 1, -40));
        CHECK_INT(first(&f, 1), 5);
        down_well(&f);
    }
}

TEST(events_order_streams)
{
    fixture f;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        up(&f, seed);
        CHECK_INT(api->event_ns(f.e[0]), -1);
        CHECK_OK(api->wait(f.s[0], f.e[1])); /* never recorded: passes */
        for (int round = 0; round < 3; round++) { /* the latest record counts */
            CHECK_OK(launch(&f, 2, 2, 0));
            CHECK_OK(api->record(f.s[2], f.e[0]));
            CHECK_OK(api->wait(f.s[0], f.e[0]));
            CHECK_OK(launch(&f, 0, 1, 1));
            CHECK_OK(api->record(f.s[0], f.e[1]));
            CHECK_OK(api->wait(f.s[2], f.e[1]));
        }
        CHECK_INT(api->event_ns(f.e[0]), -1); /* nothing has run */
        CHECK_INT(first(&f, 0), 7 * 8 + 4 + 2 + 1);
        CHECK(api->event_ns(f.e[0]) > 0);
        CHECK_OK(api->sync(f.s[2], test_sink));
        CHECK(api->event_ns(f.e[1]) >= api->event_ns(f.e[0]));
        down_well(&f);
    }
}

/* What the checker is for: the same without the event. */
TEST(a_missing_event_is_found)
{
    fixture f;
    char why[512];
    bool differs = false;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        up(&f, seed);
        CHECK_OK(launch(&f, 2, 2, 0));
        CHECK_OK(launch(&f, 0, 1, 1));
        CHECK_OK(api->sync(f.s[2], test_sink));
        differs |= first(&f, 0) != 15;
        CHECK(down(&f, why) > 0);
        CHECK(strstr(why, "nothing puts one after the other") != NULL);
    }
    CHECK(differs); /* and shows in the numbers */
}

TEST(a_wrong_pointer_is_found)
{
    fixture f;
    char why[512];
    int here[N] = {0}, *own;
    up(&f, 0);
    own = f.a;
    f.a = here;
    CHECK_OK(launch(&f, 0, 1, 0));
    CHECK_OK(api->sync(f.s[0], test_sink));
    f.a = own;
    CHECK(down(&f, why) > 0);
    CHECK(strstr(why, "no device memory") != NULL);
}

/* ---- copies -------------------------------------------------------------------------------------------------------- */

/* Larger than the pinned blocks together, and no multiple of them. */
TEST(copies)
{
    enum { BIG = (19 << 20) + 5 };
    char *from = malloc(BIG), *to = malloc(BIG);
    fixture f;
    for (uint64_t seed = 0; seed < 3; seed++) {
        void *a, *b, *none = &f;
        up(&f, seed);
        CHECK_OK(api->alloc(f.d, BIG, &a, test_sink));
        CHECK_OK(api->alloc(f.d, BIG, &b, test_sink));
        CHECK_OK(api->alloc(f.d, 0, &none, test_sink));
        CHECK(!none);
        for (int i = 0; i < BIG; i++)
            from[i] = (char)(i * 31 + (i >> 13));
        memset(to, 0, BIG);
        CHECK_OK(api->upload(f.s[0], a, from, BIG));
        CHECK_OK(api->copy(f.s[0], f.d, b, a, BIG));
        CHECK_OK(api->copy(f.s[0], f.d, b, a, 0));
        CHECK_OK(api->download(f.s[0], to, b, BIG));
        CHECK_OK(api->sync(f.s[0], test_sink));
        CHECK(!memcmp(from, to, BIG));
        api->free(f.d, a);
        api->free(f.d, b);
        down_well(&f);
    }
    free(from);
    free(to);
}

/* To pageable memory: an event after it, and one of another stream that waits for that, comes after all of the data. */
TEST(events_come_after_downloads)
{
    enum { MOST = (9 << 20) + 4 };
    static const size_t bytes[] = {4, 4 << 20, MOST};
    char *to = malloc(MOST);
    fixture f;
    for (uint64_t seed = 0; seed < 2 * NNC_COUNT(bytes); seed++) {
        const size_t n = bytes[seed / 2];
        void *a;
        up(&f, seed);
        CHECK_OK(api->alloc(f.d, MOST, &a, test_sink));
        memset(to, 1, MOST);
        CHECK_OK(api->upload(f.s[0], a, to, MOST));
        memset(to, 0, MOST);
        CHECK_OK(api->download(f.s[0], to, a, (int64_t)n));
        CHECK_OK(api->record(f.s[0], f.e[0]));
        CHECK_OK(api->wait(f.s[1], f.e[0]));
        CHECK_OK(api->sync(f.s[1], test_sink));
        CHECK(to[0] && !memcmp(to, to + 1, n - 1));
        CHECK(n == MOST || !to[n]);
        api->free(f.d, a);
        down_well(&f);
    }
    free(to);
}

/* Devices 0 and 1 reach each other, 0 and 3 do not: CUDA goes through the host. */
TEST(copies_between_devices)
{
    fixture f;
    for (int other = 1; other < fake_devices; other += 2) {
        nnc_device *d;
        nnc_stream *s;
        void *p;
        int got[N] = {0};
        up(&f, 2);
        CHECK_OK(api->open(other, &d, test_sink));
        CHECK_OK(api->stream_create(d, 1, false, &s, test_sink));
        CHECK_OK(api->alloc(d, sizeof got, &p, test_sink));
        CHECK_OK(api->copy(f.s[0], d, p, f.a, sizeof got));
        CHECK_OK(api->record(f.s[0], f.e[0]));
        CHECK_OK(api->wait(s, f.e[0]));
        CHECK_OK(api->download(s, got, p, sizeof got));
        CHECK_OK(api->sync(s, test_sink));
        CHECK_INT(got[N - 1], 7);
        CHECK_INT(fake_count.peer_copies, 1);
        api->stream_destroy(s);
        api->free(d, p);
        api->close(d);
        down_well(&f);
    }
}

/* ---- what goes wrong ----------------------------------------------------------------------------------------------- */

static nnc_status broken(void *handle, void *const *args, void *work)
{
    (void)handle;
    (void)args;
    (void)work;
    return NNC_E_NOMEM;
}

TEST(failures_stick_until_sync)
{
    fixture f;
    up(&f, 0);
    CHECK_OK(launch(&f, 0, 2, 0));
    CHECK_OK(api->launch(f.s[0], &(nnc_work){.run = broken, .name = "/layers/9"}));
    CHECK_OK(launch(&f, 0, 0, 0)); /* skipped */
    CHECK_OK(api->record(f.s[0], f.e[0]));
    CHECK_OK(api->wait(f.s[1], f.e[0])); /* does not wait for ever */
    CHECK_OK(api->sync(f.s[1], test_sink));
    CHECK_INT(api->sync(f.s[0], test_sink), NNC_E_NOMEM);
    CHECK_DIAG("cuda:0: /layers/9");
    CHECK_INT(first(&f, 0), 14);
    down_well(&f);
}

TEST(memory_does_not_fit)
{
    fixture f;
    void *p = &f;
    up(&f, 0);
    CHECK_INT(api->alloc(f.d, (int64_t)1 << 46, &p, test_sink), NNC_E_FIT);
    CHECK(p == NULL);
    CHECK_DIAG("do not fit");
    down_well(&f);
}

TEST(no_such_device)
{
    char why[512];
    nnc_device *d;
    fake_begin(0);
    CHECK_INT(api->open(fake_devices, &d, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("there is no device cuda:4: this machine has 4 GPUs");
    nnc_cuda_override(CUDA_cudart, NULL);
    CHECK_INT(api->open(0, &d, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("cudart is missing");
    CHECK_INT(fake_end(why), 0);
}

/* Whatever call fails: an error, and nothing is left behind. */
TEST(any_call_may_fail)
{
    bool all = false;
    for (int at = 1; at < 200 && !all; at++) {
        char why[512];
        nnc_device *d = NULL;
        nnc_stream *s = NULL;
        nnc_event *e = NULL;
        void *p = NULL;
        int host[N] = {0};
        fake_begin(0);
        fake_fail_at = at;
        fake_fail_with = 46;
        nnc_status st = api->open(0, &d, test_sink);
        st = st ? st : api->stream_create(d, 1, false, &s, test_sink);
        st = st ? st : api->event_create(d, &e, test_sink);
        st = st ? st : api->alloc(d, sizeof host, &p, test_sink);
        st = st ? st : api->upload(s, p, host, sizeof host);
        st = st ? st : api->record(s, e);
        st = st ? st : api->wait(s, e);
        st = st ? st : api->copy(s, d, p, p, sizeof host);
        st = st ? st : api->download(s, host, p, sizeof host);
        st = st ? st : api->sync(s, test_sink);
        all = fake_calls < at;
        if (s)
            api->stream_destroy(s);
        if (e)
            api->event_destroy(e);
        if (p)
            api->free(d, p);
        if (d)
            api->close(d);
        CHECK(st == NNC_OK || st == NNC_E_DEVICE);
        CHECK(!all || st == NNC_OK);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "call %d fails: %s", at, why);
    }
    CHECK(all);
}

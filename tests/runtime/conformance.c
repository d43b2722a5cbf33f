/* tests/runtime/conformance.c -- what every device that runs host work must do: order within a
 * stream, streams that overlap, events, copies, errors that stay until sync. Runs over all such
 * devices (the faulty one without a fault, too). Overlap is proven by a rendezvous: two works
 * that each wait for the other cannot finish one after the other. */
#include "plans.h"
#include <stdatomic.h>
#include <time.h>

static const nnc_device_api *const devices[] = {&nnc_device_cpu, &faulty_device};

typedef struct fixture {
    const nnc_device_api *api;
    nnc_device *d;
    nnc_stream *s[2];
    nnc_event *e[2];
} fixture;

static bool up(fixture *f, const nnc_device_api *api)
{
    *f = (fixture){.api = api};
    faulty_at = 0;
    if (api->open(0, &f->d, test_sink) != NNC_OK) {
        test_fail(__FILE__, __LINE__, "%s does not open", api->kind);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(api->stream_create(f->d, 2, i == 0, &f->s[i], test_sink));
        CHECK_OK(api->event_create(f->d, &f->e[i], test_sink));
    }
    return true;
}

static void down(fixture *f)
{
    for (int i = 0; i < 2; i++) {
        f->api->stream_destroy(f->s[i]);
        f->api->event_destroy(f->e[i]);
    }
    f->api->close(f->d);
}

#define EACH_DEVICE(f) \
    for (size_t i_ = 0; i_ < NNC_COUNT(devices); i_++) \
        for (bool once_ = up(&f, devices[i_]); once_; once_ = (down(&f), false))

/* Appends args[1] (a number) to the list args[0], whose first element is its length. */
static nnc_status append(void *handle, void *const *args, void *work)
{
    int *list = args[0];
    (void)handle;
    (void)work;
    list[++list[0]] = (int)(intptr_t)args[1];
    return NNC_OK;
}

static nnc_status launch(
    fixture *f, int s, nnc_status (*run)(void *, void *const *, void *), void *a, intptr_t b)
{
    static void
        *args[4096][2]; /* stay until the work is done: no test has so many pieces under way */
    static int next;
    void **arg = args[next++ % 4096];
    arg[0] = a;
    arg[1] = (void *)b;
    return f->api->launch(
        f->s[s], &(nnc_work){.run = run, .args = arg, .n_arg = 2, .name = "/work"});
}

TEST(stream_order)
{
    static int list[3001];
    fixture f;
    EACH_DEVICE(f)
    {
        list[0] = 0;
        for (int i = 0; i < 3000; i++) /* many more than a ring holds */
            CHECK_OK(launch(&f, 0, append, list, i));
        CHECK_OK(f.api->sync(f.s[0], test_sink));
        CHECK_INT(list[0], 3000);
        for (int i = 0; i < 3000; i++)
            if (list[i + 1] != i) {
                CHECK_INT(list[i + 1], i);
                break;
            }
    }
}

static nnc_status meet(void *handle, void *const *args, void *work)
{
    atomic_int *at = args[0];
    (void)handle;
    (void)work;
    atomic_fetch_add(at, 1);
    for (int64_t start = nnc_now_ns(); atomic_load(at) < 2;) {
        if (nnc_now_ns() - start > 5000000000)
            return NNC_E_PEER;
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return NNC_OK;
}

TEST(streams_overlap)
{
    fixture f;
    EACH_DEVICE(f)
    {
        atomic_int at = 0;
        CHECK_OK(launch(&f, 0, meet, &at, 0));
        CHECK_OK(launch(&f, 1, meet, &at, 0));
        CHECK_OK(f.api->sync(f.s[0], test_sink));
        CHECK_OK(f.api->sync(f.s[1], test_sink));
    }
}

static nnc_status hold(void *handle, void *const *args, void *work)
{
    (void)handle;
    (void)work;
    while (!atomic_load((atomic_int *)args[0]))
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    return NNC_OK;
}

TEST(launch_is_asynchronous)
{
    fixture f;
    EACH_DEVICE(f)
    {
        atomic_int go = 0;
        CHECK_OK(launch(&f, 0, hold, &go, 0));
        CHECK_OK(f.api->record(f.s[0], f.e[0]));
        CHECK_INT(f.api->event_ns(f.e[0]), -1); /* launch came back before the work was done */
        atomic_store(&go, 1);
        CHECK_OK(f.api->sync(f.s[0], test_sink));
        CHECK(f.api->event_ns(f.e[0]) > 0);
    }
}

TEST(event_orders_streams)
{
    static int list[4];
    fixture f;
    EACH_DEVICE(f)
    {
        for (int round = 0; round < 50;
             round++) { /* the same event again and again: the latest record counts */
            atomic_int go = 0;
            list[0] = 0;
            CHECK_OK(launch(&f, 0, hold, &go, 0));
            CHECK_OK(launch(&f, 0, append, list, 1));
            CHECK_OK(f.api->record(f.s[0], f.e[0]));
            CHECK_OK(f.api->wait(f.s[1], f.e[0]));
            CHECK_OK(launch(&f, 1, append, list, 2));
            CHECK_OK(f.api->record(f.s[1], f.e[1]));
            atomic_store(&go, 1);
            CHECK_OK(f.api->sync(f.s[1], test_sink));
            CHECK_INT(list[0], 2);
            CHECK_INT(list[1], 1);
            CHECK_INT(list[2], 2);
            CHECK(f.api->event_ns(f.e[1]) >= f.api->event_ns(f.e[0]));
        }
        CHECK_OK(f.api->sync(f.s[0], test_sink));
    }
}

TEST(wait_without_record_passes)
{
    fixture f;
    EACH_DEVICE(f)
    {
        CHECK_INT(f.api->event_ns(f.e[0]), -1);
        CHECK_OK(f.api->wait(f.s[0], f.e[0]));
        CHECK_OK(f.api->sync(f.s[0], test_sink));
    }
}

TEST(copies)
{
    fixture f;
    EACH_DEVICE(f)
    {
        enum { N = 100001 };
        static char from[N], to[N];
        void *a, *b, *none = &f;
        CHECK_OK(f.api->alloc(f.d, N, &a, test_sink));
        CHECK_OK(f.api->alloc(f.d, N, &b, test_sink));
        CHECK_OK(f.api->alloc(f.d, 0, &none, test_sink));
        CHECK(none == NULL);
        CHECK_INT((intptr_t)a % 64, 0);
        CHECK_INT((intptr_t)b % 64, 0);
        for (int i = 0; i < N; i++)
            from[i] = (char)(i * 31);
        memset(to, 0, N);
        CHECK_OK(f.api->upload(f.s[0], a, from, N));
        CHECK_OK(f.api->copy(f.s[0], f.d, b, a, N));
        CHECK_OK(f.api->download(f.s[0], to, b, N));
        CHECK_OK(f.api->copy(f.s[0], f.d, b, a, 0));
        CHECK_OK(f.api->sync(f.s[0], test_sink));
        CHECK(!memcmp(from, to, N));
        f.api->free(f.d, a);
        f.api->free(f.d, b);
    }
}

static nnc_status broken(void *handle, void *const *args, void *work)
{
    (void)handle;
    (void)args;
    (void)work;
    return NNC_E_NOMEM;
}

TEST(failures_stick_until_sync)
{
    static int list[8];
    fixture f;
    EACH_DEVICE(f)
    {
        list[0] = 0;
        CHECK_OK(launch(&f, 0, append, list, 1));
        CHECK_OK(launch(&f, 0, broken, NULL, 0));
        CHECK_OK(launch(&f, 0, append, list, 2)); /* skipped */
        CHECK_OK(f.api->record(f.s[0], f.e[0]));
        CHECK_OK(f.api->wait(f.s[1], f.e[0])); /* does not wait for ever */
        CHECK_OK(f.api->sync(f.s[1], test_sink));
        CHECK_INT(f.api->sync(f.s[0], test_sink), NNC_E_NOMEM);
        CHECK_DIAG("/work");
        CHECK_INT(list[0], 1);
        CHECK_OK(launch(&f, 0, append, list, 3));
        CHECK_OK(f.api->sync(f.s[0], test_sink));
        CHECK_INT(list[0], 2);
    }
}

TEST(memory_does_not_fit)
{
    fixture f;
    EACH_DEVICE(f)
    {
        void *p = &f;
        CHECK_INT(f.api->alloc(f.d, (int64_t)1 << 46, &p, test_sink), NNC_E_FIT);
        CHECK(p == NULL);
        CHECK_DIAG("do not fit");
    }
}

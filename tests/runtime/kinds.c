/* tests/runtime/kinds.c -- devices of several kinds in one executor. Each gets its own streams, events and memory and nobody else's.
 * Results are those of one kind, and launches say what they cost. */
#include "plans.h"
#include <string.h>

/* A kind of device of its own. It is the cpu's, but the host may not look at its memory, and what is not its own is refused. */
enum { MOST = 256 };
static struct {
    const void *mine[MOST];
    int n;
} owned;
static int foreign, launches;
static int64_t flops, bytes;
static bool classed;

static nnc_status keep(nnc_status s, const void *p)
{
    if (s == NNC_OK && owned.n < MOST)
        owned.mine[owned.n++] = p;
    return s;
}

static void look(const void *p)
{
    for (int i = 0; i < owned.n; i++)
        if (owned.mine[i] == p)
            return;
    foreign++;
}

static nnc_status k_open(int ordinal, nnc_device **out, nnc_sink *sink)
{
    nnc_status s = nnc_device_cpu.open(ordinal, out, sink);
    return keep(s, *out);
}
static nnc_status k_stream_create(
    nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink)
{
    look(d);
    nnc_status s = nnc_device_cpu.stream_create(d, threads, alone, out, sink);
    return keep(s, *out);
}
static nnc_status k_event_create(nnc_device *d, nnc_event **out, nnc_sink *sink)
{
    look(d);
    nnc_status s = nnc_device_cpu.event_create(d, out, sink);
    return keep(s, *out);
}
static nnc_status k_upload(nnc_stream *s, void *dst, const void *src, int64_t n)
{
    look(s);
    return nnc_device_cpu.upload(s, dst, src, n);
}
static nnc_status k_download(nnc_stream *s, void *dst, const void *src, int64_t n)
{
    look(s);
    return nnc_device_cpu.download(s, dst, src, n);
}
static nnc_status k_copy(nnc_stream *s, nnc_device *d, void *dst, const void *src, int64_t n)
{
    look(s);
    look(d);
    return nnc_device_cpu.copy(s, d, dst, src, n);
}
static nnc_status k_launch(nnc_stream *s, const nnc_work *w)
{
    look(s);
    launches++;
    flops += w->flops;
    bytes += w->bytes;
    classed = w->op_class && !strcmp(w->op_class, "ewise");
    return nnc_device_cpu.launch(s, w);
}
static nnc_status k_record(nnc_stream *s, nnc_event *e)
{
    look(s);
    look(e);
    return nnc_device_cpu.record(s, e);
}
static nnc_status k_wait(nnc_stream *s, nnc_event *e)
{
    look(s);
    look(e);
    return nnc_device_cpu.wait(s, e);
}
static nnc_status k_sync(nnc_stream *s, nnc_sink *sink)
{
    look(s);
    return nnc_device_cpu.sync(s, sink);
}

static nnc_device_api other(const char *kind)
{
    nnc_device_api api = nnc_device_cpu;
    api.kind = kind;
    api.host_memory = false;
    api.open = k_open;
    api.stream_create = k_stream_create;
    api.event_create = k_event_create;
    api.upload = k_upload;
    api.download = k_download;
    api.copy = k_copy;
    api.launch = k_launch;
    api.record = k_record;
    api.wait = k_wait;
    api.sync = k_sync;
    return api;
}

static nnc_device_api first_kind, second_kind;

/* Runs the diamond with its devices named so, several rounds. */
static void run_named(const char *first, const char *second)
{
    const nnc_device_api *const devices[] = {&nnc_device_cpu, &first_kind, &second_kind};
    static float x[VALUES], y[VALUES];
    nnc_exec_options o = exec_options(NULL);
    nnc_plan *p = plan_diamond();
    nnc_exec *e = NULL;
    first_kind = other("first");
    second_kind = other("second");
    memset(&owned, 0, sizeof owned);
    foreign = launches = 0;
    flops = bytes = 0;
    p->device[0].name = first;
    p->device[1].name = second;
    for (int i = 0; i < p->n_cmd; i++) {
        p->cmd[i].flops = i;
        p->cmd[i].bytes = 100;
    }
    o.device = devices;
    o.n_device = NNC_COUNT(devices);
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    for (int r = 0; e && r < 20; r++) {
        for (int i = 0; i < VALUES; i++)
            x[i] = (float)(i + r);
        CHECK_OK(nnc_exec_upload(e, 0, x));
        CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, y));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        for (int i = 0; i < VALUES; i += 97)
            CHECK_NEAR(y[i], diamond_result(i, x[i]), 0);
    }
    nnc_exec_destroy(e);
    CHECK_INT(foreign, 0);
    plan_free(p);
}

TEST(kinds_side_by_side)
{
    run_named("cpu:0", "first:0");
    /* on the second device main has one kernel, the tenth command, for 20 rounds */
    CHECK_INT(launches, 20);
    CHECK_INT(flops, 20 * 9);
    CHECK_INT(bytes, 20 * 100);
    CHECK(classed);
    run_named("first:0", "cpu:0");
    run_named("second:0", "first:0"); /* neither lets the host look: copies are staged */
    run_named("first:0", "first:1");
}

TEST(kinds_missing)
{
    nnc_plan *p = plan_line();
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    nnc_exec *e = NULL;
    p->device[0].name = "sim:0";
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("the plan is for the device 'sim:0', and no device of its kind is available");
    static const char *const name[] = {"cpu:x", "cpu:-1", "cpu:99999999999"};
    for (size_t i = 0; i < NNC_COUNT(name); i++) {
        p->device[0].name = (char *)name[i];
        CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_DEVICE);
        CHECK_DIAG("whose number is not one of a device");
    }
    plan_free(p);
}

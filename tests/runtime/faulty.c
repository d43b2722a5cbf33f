/* tests/runtime/faulty.c -- the cpu device with a counter: the N-th call that returns a status
 * fails, as a driver's would. Whatever it gave out is counted, so that a leak on any path shows. */
#include "plans.h"
#include <stdatomic.h>

int faulty_at, faulty_calls, faulty_alive;

static bool fails(void)
{
    return ++faulty_calls == faulty_at;
}

static nnc_status refuse(nnc_sink *sink, const char *what)
{
    return nnc_fail0(sink, NNC_E_DEVICE, "%s failed, as the test wants", what);
}

#define CREATE(name, call) \
    if (fails()) \
        return refuse(sink, name); \
    nnc_status s = call; \
    faulty_alive += s == NNC_OK; \
    return s

static nnc_status f_open(int ordinal, nnc_device **out, nnc_sink *sink)
{
    CREATE("open", nnc_device_cpu.open(ordinal, out, sink));
}
static nnc_status f_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    if (!fails() && bytes == 0)
        return nnc_device_cpu.alloc(d, bytes, out, sink);
    faulty_calls--;
    CREATE("alloc", nnc_device_cpu.alloc(d, bytes, out, sink));
}
static nnc_status f_host_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    CREATE("host_alloc", nnc_device_cpu.host_alloc(d, bytes, out, sink));
}
static nnc_status f_stream_create(
    nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink)
{
    CREATE("stream_create", nnc_device_cpu.stream_create(d, threads, alone, out, sink));
}
static nnc_status f_event_create(nnc_device *d, nnc_event **out, nnc_sink *sink)
{
    CREATE("event_create", nnc_device_cpu.event_create(d, out, sink));
}
static void f_close(nnc_device *d)
{
    faulty_alive--;
    nnc_device_cpu.close(d);
}
static void f_free(nnc_device *d, void *p)
{
    faulty_alive--;
    nnc_device_cpu.free(d, p);
}
static void f_stream_destroy(nnc_stream *s)
{
    faulty_alive--;
    nnc_device_cpu.stream_destroy(s);
}
static void f_event_destroy(nnc_event *e)
{
    faulty_alive--;
    nnc_device_cpu.event_destroy(e);
}
static nnc_status f_upload(nnc_stream *s, void *dst, const void *src, int64_t n)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.upload(s, dst, src, n);
}
static nnc_status f_download(nnc_stream *s, void *dst, const void *src, int64_t n)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.download(s, dst, src, n);
}
static nnc_status f_copy(nnc_stream *s, nnc_device *d, void *dst, const void *src, int64_t n)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.copy(s, d, dst, src, n);
}
static nnc_status f_launch(nnc_stream *s, const nnc_work *w)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.launch(s, w);
}
static nnc_status f_record(nnc_stream *s, nnc_event *e)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.record(s, e);
}
static nnc_status f_wait(nnc_stream *s, nnc_event *e)
{
    return fails() ? NNC_E_DEVICE : nnc_device_cpu.wait(s, e);
}
static nnc_status f_sync(nnc_stream *s, nnc_sink *sink)
{
    bool f = fails();
    nnc_status status = nnc_device_cpu.sync(s, sink); /* the work is done even if the news is bad */
    return f ? refuse(sink, "sync") : status;
}
static int64_t f_event_ns(const nnc_event *e)
{
    return nnc_device_cpu.event_ns(e);
}

const nnc_device_api faulty_device = {
    .kind = "cpu",
    .host_memory = true,
    .open = f_open,
    .close = f_close,
    .alloc = f_alloc,
    .free = f_free,
    .host_alloc = f_host_alloc,
    .host_free = f_free,
    .stream_create = f_stream_create,
    .stream_destroy = f_stream_destroy,
    .event_create = f_event_create,
    .event_destroy = f_event_destroy,
    .upload = f_upload,
    .download = f_download,
    .copy = f_copy,
    .launch = f_launch,
    .record = f_record,
    .wait = f_wait,
    .sync = f_sync,
    .event_ns = f_event_ns,
};

/* runtime/cuda.c -- the device "cuda": a GPU through CUDA's runtime library, opened on first use.
 *
 * A launch runs the engine on the host, which submits its kernels to the stream. A failure is known at once (the engine's status), or by
 * a later call. CUDA's own errors may be of any earlier work, and persist for the process. The stream keeps both until sync.
 *
 * Copies from and to pageable memory go through two pinned blocks per stream: one is copied while the host fills or empties the other.
 * Downloaded data leaves its block when the block is needed again; the last of it leaves in the stream's order (a host function). So an
 * event recorded after a download, and work that waits for it, comes after all of the data, whichever stream the host looks at. */
#include "cuda/cuda.h"
#include "runtime/runtime.h"
#include <string.h>

enum {
    ERROR_MEMORY = 2, /* cudaErrorMemoryAllocation */
    NOT_READY = 600, /* cudaErrorNotReady */
    FIRST_OF_KERNELS =
        700, /* cudaErrorIllegalAddress to cudaErrorLaunchFailure: what a kernel did */
    LAST_OF_KERNELS = 719,
    MAX_DEVICES = 64,
    BLOCK = 4 << 20, /* bytes of pinned memory, whose copy takes much longer than a command costs */
};
#define REBASE_NS INT64_C(1000000000)

/* Pinned memory allocated by a caller. */
typedef struct pinned {
    char *p;
    size_t bytes;
    struct pinned *next;
} pinned;

struct nnc_device {
    pinned *pinned;
    const nnc_cuda_cudart *rt;
    int ordinal;
    uint64_t peers; /* devices with peer access, enabled once each */
    cuda_event base; /* fired at base_ns of the host's clock */
    int64_t base_ns;
};

struct nnc_event {
    nnc_device *d;
    cuda_event e;
    bool recorded;
};

/* A pinned block in use by a copy. */
typedef struct block {
    char *p;
    cuda_event done; /* of the copy that uses it */
    bool busy;
    void *out; /* destination after the copy; NULL: an upload */
    size_t bytes;
    bool lands; /* the stream copies it out, before `done` */
} block;

struct nnc_stream {
    nnc_device *d;
    cuda_stream s;
    block pin[2];
    int turn;
    bool unpinned; /* no pinned memory available: CUDA copies through its own */
    nnc_status failed; /* the first failure since the last sync */
    int error; /* CUDA's error code, 0: only the engine knows */
    const char *name; /* of the work that failed, or else of the last one launched */
};

static int use(const nnc_device *d)
{
    return d->rt->cudaSetDevice(d->ordinal);
}

/* The runtime also frees objects of a device whose context is dead, so that no call on it succeeds. */
static const nnc_cuda_cudart *for_destruction(const nnc_device *d)
{
    (void)use(d);
    return d->rt;
}

static nnc_status cuda_use(nnc_device *d)
{
    return use(d) ? NNC_E_DEVICE : NNC_OK;
}

static nnc_status cuda_fail(const nnc_device *d, int error, const char *what, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_status st = nnc_cuda_explain(&t, error, d->ordinal);
    return nnc_fail0(sink, st, "cuda:%d: %s: %s", d->ordinal, what, nnc_text_str(&t));
}

/* ---- device and memory --------------------------------------------------------------------------------------------- */

static nnc_status check_ordinal(const nnc_cuda_cudart *rt, int ordinal, nnc_sink *sink)
{
    int n = 0, error = rt->cudaGetDeviceCount(&n);
    if (error) {
        NNC_LOCAL(nnc_text) t = {0};
        nnc_status st = nnc_cuda_explain(&t, error, -1);
        return nnc_fail0(sink, st, "cuda:%d: no GPU can be used: %s", ordinal, nnc_text_str(&t));
    }
    if (ordinal < 0 || ordinal >= n || ordinal >= MAX_DEVICES)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "there is no device cuda:%d: this machine has %d GPU%s", ordinal, n, n == 1 ? "" : "s");
    return NNC_OK;
}

/* The reference point of the device's clock. Recorded on the default stream, which is not used otherwise. */
static int set_base(nnc_device *d)
{
    int error = d->rt->cudaEventRecord(d->base, NULL);
    error = error ? error : d->rt->cudaEventSynchronize(d->base);
    d->base_ns = nnc_now_ns();
    return error;
}

static void cuda_close(nnc_device *d)
{
    if (d->base)
        for_destruction(d)->cudaEventDestroy(d->base);
    nnc_free(d);
}

static int cuda_count(void)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    int n = 0;
    return rt && !rt->cudaGetDeviceCount(&n) ? n : 0;
}

static nnc_status cuda_open(int ordinal, nnc_device **out, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, sink);
    *out = NULL;
    if (!rt)
        return NNC_E_DEVICE;
    NNC_TRY(check_ordinal(rt, ordinal, sink));
    nnc_device *d = nnc_calloc(1, sizeof *d);
    NNC_NEED(d, sink);
    d->rt = rt;
    d->ordinal = ordinal;
    int error = use(d);
    error = error ? error : rt->cudaEventCreateWithFlags(&d->base, 0);
    error = error ? error : set_base(d);
    if (error) {
        nnc_status st = cuda_fail(d, error, "does not start", sink);
        cuda_close(d);
        return st;
    }
    *out = d;
    return NNC_OK;
}

static nnc_status cuda_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    *out = NULL;
    if (bytes == 0)
        return NNC_OK;
    int error = use(d);
    error = error ? error : d->rt->cudaMalloc(out, (size_t)bytes);
    if (!error)
        return NNC_OK;
    *out = NULL;
    (void)d->rt->cudaGetLastError(); /* clears this error */
    if (error != ERROR_MEMORY)
        return cuda_fail(d, error, "cannot allocate memory", sink);
    NNC_LOCAL(nnc_text) what = {0};
    nnc_put_bytes(&what, bytes);
    nnc_puts(&what, " more do not fit");
    return cuda_fail(d, error, nnc_text_str(&what), sink);
}

static void cuda_free(nnc_device *d, void *p)
{
    if (p)
        for_destruction(d)->cudaFree(p);
}

static nnc_status cuda_host_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    *out = NULL;
    if (bytes == 0)
        return NNC_OK;
    pinned *b = nnc_calloc(1, sizeof *b);
    NNC_NEED(b, sink);
    int error = use(d);
    error = error ? error : d->rt->cudaMallocHost((void **)&b->p, (size_t)bytes);
    if (error) {
        nnc_free(b);
        (void)d->rt->cudaGetLastError();
        if (error != ERROR_MEMORY)
            return cuda_fail(d, error, "cannot pin memory", sink);
        return nnc_fail0(sink, NNC_E_FIT,
            "cuda:%d: %lld bytes of pinned memory are not available: %s", d->ordinal,
            (long long)bytes, d->rt->cudaGetErrorString(error));
    }
    b->bytes = (size_t)bytes;
    b->next = d->pinned;
    d->pinned = b;
    *out = b->p;
    return NNC_OK;
}

static void cuda_host_free(nnc_device *d, void *p)
{
    for (pinned **b = &d->pinned; *b; b = &(*b)->next)
        if ((*b)->p == p) {
            NNC_FREED pinned *gone = *b;
            *b = gone->next;
            for_destruction(d)->cudaFreeHost(gone->p);
            return;
        }
}

static bool is_pinned(const nnc_device *d, const void *p)
{
    for (const pinned *b = d->pinned; b; b = b->next)
        if ((const char *)p >= b->p && (const char *)p < b->p + b->bytes)
            return true;
    return false;
}

/* ---- failures ------------------------------------------------------------------------------------------------------ */

static void keep_failure(nnc_stream *s, nnc_status status, int error)
{
    if (s->failed == NNC_OK) {
        s->failed = status;
        s->error = error;
    }
}

/* Records a CUDA call's result in the stream; true on success. */
static bool went(nnc_stream *s, int error)
{
    if (error && s->failed == NNC_OK)
        s->name = NULL; /* not an error of a specific work */
    if (error)
        keep_failure(s, NNC_E_DEVICE, error);
    return !error;
}

/* ---- pinned memory ------------------------------------------------------------------------------------------------- */

/* Waits until the block is free; copies downloaded data to its destination. */
static void settle(nnc_stream *s, block *b)
{
    if (!b->busy)
        return;
    b->busy = false;
    int error = s->d->rt->cudaEventSynchronize(b->done);
    if (error)
        keep_failure(s, NNC_E_DEVICE, error);
    else if (b->out && !b->lands)
        memcpy(b->out, b->p, b->bytes);
}

static void copy_out(void *ctx)
{
    const block *b = ctx;
    memcpy(b->out, b->p, b->bytes);
}

/* Has the stream copy out what was downloaded, in the order in which the blocks were filled. */
static void land(nnc_stream *s)
{
    const nnc_cuda_cudart *rt = s->d->rt;
    for (int i = 0; i < 2; i++) {
        block *b = &s->pin[s->turn ^ i];
        if (!b->busy || !b->out || b->lands)
            continue;
        b->lands = went(s, rt->cudaLaunchHostFunc(s->s, copy_out, b));
        (void)went(s, rt->cudaEventRecord(b->done, s->s));
    }
}

/* The next free block; NULL: no pinned memory. */
static block *next_block(nnc_stream *s)
{
    const nnc_cuda_cudart *rt = s->d->rt;
    block *b = &s->pin[s->turn];
    if (s->unpinned)
        return NULL;
    if (!b->done && rt->cudaEventCreateWithFlags(&b->done, CUDA_EVENT_DISABLE_TIMING))
        b->done = NULL;
    if (b->done && !b->p && rt->cudaMallocHost((void **)&b->p, BLOCK))
        b->p = NULL;
    if (!b->p) {
        (void)rt->cudaGetLastError();
        s->unpinned = true;
        return NULL;
    }
    s->turn ^= 1;
    settle(s, b);
    return b;
}

static void drop_blocks(nnc_stream *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->pin[i].p)
            s->d->rt->cudaFreeHost(s->pin[i].p);
        if (s->pin[i].done)
            s->d->rt->cudaEventDestroy(s->pin[i].done);
    }
}

static bool copy_piece(nnc_stream *s, void *dst, const void *src, size_t n, int kind)
{
    const nnc_cuda_cudart *rt = s->d->rt;
    block *b = next_block(s);
    bool up = kind == CUDA_MEMCPY_TO_DEVICE;
    if (!b)
        return went(s, rt->cudaMemcpyAsync(dst, src, n, kind, s->s));
    if (up)
        memcpy(b->p, src, n);
    if (!went(s, rt->cudaMemcpyAsync(up ? dst : b->p, up ? b->p : src, n, kind, s->s)) ||
        !went(s, rt->cudaEventRecord(b->done, s->s)))
        return false;
    b->busy = true;
    b->out = up ? NULL : dst;
    b->bytes = n;
    b->lands = false;
    return true;
}

static nnc_status transfer(nnc_stream *s, void *dst, const void *src, int64_t bytes, int kind)
{
    if (s->failed != NNC_OK || !went(s, use(s->d)))
        return NNC_OK; /* reported by sync */
    bool up = kind == CUDA_MEMCPY_TO_DEVICE;
    if (bytes && is_pinned(s->d, up ? src : dst)) {
        (void)went(s, s->d->rt->cudaMemcpyAsync(dst, src, (size_t)bytes, kind, s->s));
        return NNC_OK;
    }
    for (int64_t i = 0; i < bytes; i += BLOCK) {
        size_t n = (size_t)(bytes - i < BLOCK ? bytes - i : BLOCK);
        if (!copy_piece(s, (char *)dst + i, (const char *)src + i, n, kind))
            break;
    }
    if (!up)
        land(s);
    return NNC_OK;
}

static nnc_status cuda_upload(nnc_stream *s, void *dst, const void *src, int64_t bytes)
{
    return transfer(s, dst, src, bytes, CUDA_MEMCPY_TO_DEVICE);
}

static nnc_status cuda_download(nnc_stream *s, void *dst, const void *src, int64_t bytes)
{
    return transfer(s, dst, src, bytes, CUDA_MEMCPY_TO_HOST);
}

/* ---- streams and events -------------------------------------------------------------------------------------------- */

static nnc_status cuda_stream_create(
    nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink)
{
    (void)threads, (void)alone;
    nnc_stream *s = nnc_calloc(1, sizeof *s);
    NNC_NEED(s, sink);
    s->d = d;
    int error = use(d);
    error = error ? error : d->rt->cudaStreamCreateWithPriority(&s->s, CUDA_STREAM_NON_BLOCKING, 0);
    if (error) {
        nnc_free(s);
        return cuda_fail(d, error, "cannot create a stream", sink);
    }
    *out = s;
    return NNC_OK;
}

static void cuda_stream_destroy(nnc_stream *s)
{
    if (!s)
        return;
    (void)for_destruction(s->d)->cudaStreamSynchronize(s->s);
    drop_blocks(s);
    s->d->rt->cudaStreamDestroy(s->s);
    nnc_free(s);
}

static nnc_status cuda_event_create(nnc_device *d, nnc_event **out, nnc_sink *sink)
{
    nnc_event *e = nnc_calloc(1, sizeof *e);
    NNC_NEED(e, sink);
    e->d = d;
    int error = use(d);
    error = error ? error : d->rt->cudaEventCreateWithFlags(&e->e, 0);
    if (error) {
        nnc_free(e);
        return cuda_fail(d, error, "cannot create an event", sink);
    }
    *out = e;
    return NNC_OK;
}

static void cuda_event_destroy(nnc_event *e)
{
    if (!e)
        return;
    for_destruction(e->d)->cudaEventDestroy(e->e);
    nnc_free(e);
}

/* Records and waits continue after a failure, since other streams wait for them. */
static nnc_status cuda_record(nnc_stream *s, nnc_event *e)
{
    if (went(s, use(s->d)) && went(s, s->d->rt->cudaEventRecord(e->e, s->s)))
        e->recorded = true;
    return NNC_OK;
}

static nnc_status cuda_wait(nnc_stream *s, nnc_event *e)
{
    if (e->recorded && went(s, use(s->d)))
        (void)went(s, s->d->rt->cudaStreamWaitEvent(s->s, e->e, 0));
    return NNC_OK;
}

static bool cuda_fired(nnc_stream *s, const nnc_event *e)
{
    if (s->failed != NNC_OK || !e->recorded || !went(s, use(s->d)))
        return true;
    const int error = s->d->rt->cudaEventQuery(e->e);
    if (error == NOT_READY)
        (void)s->d->rt->cudaGetLastError(); /* no failure */
    else
        (void)went(s, error);
    return error != NOT_READY;
}

static int64_t cuda_event_ns(const nnc_event *e)
{
    const nnc_device *d = e->d;
    float ms = 0;
    if (!e->recorded || use(d) || d->rt->cudaEventQuery(e->e)) {
        (void)d->rt->cudaGetLastError(); /* "not ready" is not a failure */
        return -1;
    }
    if (d->rt->cudaEventElapsedTime(&ms, d->base, e->e))
        return -1;
    return d->base_ns + (int64_t)((double)ms * 1e6);
}

/* ---- work ---------------------------------------------------------------------------------------------------------- */

/* Enables direct writes from d to the memory of `to`, where the GPUs support that; otherwise CUDA copies through the host. */
static void reach(nnc_device *d, const nnc_device *to)
{
    uint64_t bit = UINT64_C(1) << to->ordinal;
    int can = 0;
    if (d->peers & bit)
        return;
    d->peers |= bit;
    if (!d->rt->cudaDeviceCanAccessPeer(&can, d->ordinal, to->ordinal) && can)
        (void)d->rt->cudaDeviceEnablePeerAccess(to->ordinal, 0);
    (void)d->rt->cudaGetLastError(); /* enabled by another plan */
}

static nnc_status cuda_copy(
    nnc_stream *s, nnc_device *dst_dev, void *dst, const void *src, int64_t bytes)
{
    nnc_device *d = s->d;
    if (bytes == 0 || s->failed != NNC_OK || !went(s, use(d)))
        return NNC_OK;
    if (dst_dev->ordinal == d->ordinal) {
        (void)went(s, d->rt->cudaMemcpyAsync(dst, src, (size_t)bytes, CUDA_MEMCPY_ON_DEVICE, s->s));
        return NNC_OK;
    }
    reach(d, dst_dev);
    (void)went(
        s, d->rt->cudaMemcpyPeerAsync(dst, dst_dev->ordinal, src, d->ordinal, (size_t)bytes, s->s));
    return NNC_OK;
}

static nnc_status cuda_work(nnc_stream *s, const nnc_work *w)
{
    if (s->failed != NNC_OK || !went(s, use(s->d)))
        return NNC_OK;
    s->name = w->name;
    nnc_cuda_set_current(s->s);
    nnc_status status = w->run(w->handle, w->args, w->work);
    nnc_cuda_set_current(NULL);
    if (status != NNC_OK)
        keep_failure(s, status, s->d->rt->cudaGetLastError());
    return NNC_OK;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

struct nnc_capture {
    nnc_device *d;
    cuda_graph_exec x;
};

/* A failed capture is not a failure of the run: its error is cleared, since libraries would mistake it for their own. */
static nnc_status not_captured(nnc_stream *s, int error, nnc_sink *sink)
{
    (void)s->d->rt->cudaGetLastError();
    return error ? cuda_fail(s->d, error, "the run cannot be captured", sink) : NNC_E_DEVICE;
}

static nnc_status cuda_capture_begin(nnc_stream *s, nnc_sink *sink)
{
    if (s->failed != NNC_OK || !went(s, use(s->d)))
        return NNC_E_DEVICE; /* reported by sync */
    int error = s->d->rt->cudaStreamBeginCapture(s->s, CUDA_CAPTURE_THREAD_LOCAL);
    return error ? not_captured(s, error, sink) : NNC_OK;
}

static nnc_status cuda_capture_end(nnc_stream *s, nnc_capture **out, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = s->d->rt;
    cuda_graph g = NULL;
    nnc_capture *c = nnc_calloc(1, sizeof *c);
    *out = c;
    int lost = use(s->d), error = rt->cudaStreamEndCapture(s->s, &g);
    error = lost                              ? lost
            : s->failed != NNC_OK && s->error ? s->error
                                              : error; /* the first of them */
    if (!error && c && s->failed == NNC_OK)
        error = rt->cudaGraphInstantiate(&c->x, g, 0);
    if (!error && c && c->x && rt->cudaGraphUpload(c->x, s->s))
        (void)rt->cudaGetLastError(); /* done by the first replay */
    if (g)
        (void)rt->cudaGraphDestroy(g);
    if (!error && c && c->x) {
        c->d = s->d;
        return NNC_OK;
    }
    if (c && c->x)
        (void)rt->cudaGraphExecDestroy(c->x);
    s->failed = NNC_OK;
    s->error = 0;
    nnc_status status = not_captured(s, error, sink);
    nnc_free(c);
    *out = NULL;
    return c ? status : nnc_nomem(sink);
}

static nnc_status cuda_replay(nnc_stream *s, nnc_capture *c)
{
    if (s->failed == NNC_OK && went(s, use(s->d)))
        (void)went(s, s->d->rt->cudaGraphLaunch(c->x, s->s));
    return NNC_OK;
}

static void cuda_capture_destroy(nnc_capture *c)
{
    for_destruction(c->d)->cudaGraphExecDestroy(c->x);
    nnc_free(c);
}

/* ---- sync ---------------------------------------------------------------------------------------------------------- */

/* An error that CUDA found while kernels ran may belong to any earlier work. With launches one at a time it belongs to the last one. */
static nnc_status report(nnc_stream *s, int late, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = s->d->rt;
    nnc_status status = s->failed != NNC_OK ? s->failed : NNC_E_DEVICE;
    int error = s->failed != NNC_OK ? s->error : late;
    const char *name = s->name ? s->name : "a copy or an event";
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "cuda:%d: %s%s: %s", s->d->ordinal, late ? "at or before " : "", name,
        error ? "" : nnc_status_name(status));
    if (error) {
        nnc_status st = nnc_cuda_explain(&t, error, s->d->ordinal);
        status = st == NNC_E_FIT ? st : status;
    }
    if (late >= FIRST_OF_KERNELS && late <= LAST_OF_KERNELS)
        nnc_puts(&t, "; CUDA_LAUNCH_BLOCKING=1 in the environment tells which layer it is");
    (void)rt->cudaGetLastError(); /* cleared; later work starts without it, where CUDA allows */
    return nnc_fail0(sink, status, "%s", nnc_text_str(&t));
}

static nnc_status cuda_sync(nnc_stream *s, nnc_sink *sink)
{
    int late = use(s->d);
    late = late ? late : s->d->rt->cudaStreamSynchronize(s->s);
    /* in the order in which they were filled */
    settle(s, &s->pin[s->turn]);
    settle(s, &s->pin[s->turn ^ 1]);
    nnc_status status = NNC_OK;
    if (late || s->failed != NNC_OK)
        status = report(s, late, sink);
    else if (nnc_now_ns() - s->d->base_ns > REBASE_NS)
        /* a float of milliseconds resolves microseconds only for some seconds; never moved between the events of one run */
        (void)set_base(s->d);
    s->failed = NNC_OK;
    s->error = 0;
    s->name = NULL;
    return status;
}

static const nnc_activity_api cupti = {
    nnc_cupti_open, nnc_cupti_close, nnc_cupti_mark, nnc_cupti_begin, nnc_cupti_read};

const nnc_device_api nnc_device_cuda = {
    .kind = "cuda",
    .host_memory = false,
    .open = cuda_open,
    .close = cuda_close,
    .count = cuda_count,
    .use = cuda_use,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .launch = cuda_work,
    .record = cuda_record,
    .wait = cuda_wait,
    .sync = cuda_sync,
    .fired = cuda_fired,
    .event_ns = cuda_event_ns,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .capture_destroy = cuda_capture_destroy,
    .activity = &cupti,
};

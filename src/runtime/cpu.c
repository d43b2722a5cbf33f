/* runtime/cpu.c -- the device "cpu": any number of virtual devices on this machine's memory. A stream is a ring of items that one host
 * thread fills, and a team of threads for the parallel loops of its work.
 *
 * The only stream of an executor has no thread of its own. The host's thread performs the items when it would wait for them (sync, or a
 * full ring), so a run costs no handing over. Several streams have a worker thread each, which sleeps while there is nothing to do, and the
 * host waits only for room or in sync. Handing over costs some three microseconds: whoever waits sleeps at once, because the host, the
 * streams and their teams are more threads than cores. These waits are Dekker-style: the waiter publishes that it sleeps, then looks again;
 * the other side publishes progress, then looks for sleepers. */
#include "base/signals.h"
#include "runtime/runtime.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RING = 256 }; /* items; the host waits when a stream is this far behind */
/* Blocks of at least this size are mapped with huge pages. In pages of 4 KiB, which lie anywhere, blocks of a part of the L2 cache conflict
 * in it by chance. */
enum { PAGED = 256 << 10 };
/* Blocks of at least this size are compared with the machine's memory, and with the limits of control groups and ulimit. */
enum { ASKED = 16 << 20 };

/* A counter that only grows, and the smallest value that a sleeper waits for (so that nobody is woken needlessly). */
typedef struct gate {
    _Atomic uint64_t value, wanted; /* wanted: UINT64_MAX when nobody sleeps */
    pthread_mutex_t lock;
    pthread_cond_t wake;
} gate;

typedef struct block {
    void *p;
    int64_t bytes;
    struct block *next;
} block;

struct nnc_device {
    int ordinal;
    int64_t bytes; /* currently allocated */
    block *blocks; /* a few: arenas */
    nnc_stream *alone; /* the stream without a worker, or NULL */
};

struct nnc_event {
    gate fired; /* number of records that have fired */
    uint64_t recorded; /* number of records submitted; host thread */
    _Atomic int64_t ns;
};

typedef enum item_kind { IT_work, IT_copy, IT_record, IT_wait, IT_exit } item_kind;

typedef struct item {
    item_kind kind;
    nnc_work w;
    nnc_event *e;
    uint64_t count; /* of e: value to fire, value to wait for */
    void *dst;
    const void *src;
    int64_t bytes;
} item;

struct nnc_stream {
    nnc_device *d;
    nnc_team *team;
    bool has_worker;
    uint32_t forks; /* nnc_forks when the worker was started */
    pthread_t thread;
    gate pushed, done; /* items */
    nnc_status
        failed; /* first failure since the last sync; owned by the worker until `done` covers it */
    const char *failed_name;
    item ring[RING];
};

/* ---- gates ----------------------------------------------------------------------------------- */

static bool gate_init(gate *g)
{
    memset(g, 0, sizeof *g);
    atomic_store(&g->wanted, UINT64_MAX);
    if (pthread_mutex_init(&g->lock, NULL))
        return false;
    if (!pthread_cond_init(&g->wake, NULL))
        return true;
    pthread_mutex_destroy(&g->lock);
    return false;
}

/* In a forked process: of a gate that a thread of the parent waits in, or holds. */
static bool gate_renew(gate *g)
{
    const uint64_t value = atomic_load(&g->value);
    const bool ok = gate_init(g);
    atomic_store(&g->value, value);
    return ok;
}

static void gate_deinit(gate *g)
{
    pthread_cond_destroy(&g->wake);
    pthread_mutex_destroy(&g->lock);
}

static void gate_set(gate *g, uint64_t value)
{
    atomic_store(&g->value, value);
    if (value >= atomic_load(&g->wanted)) {
        pthread_mutex_lock(&g->lock);
        atomic_store(&g->wanted, UINT64_MAX); /* remaining sleepers set it again */
        pthread_cond_broadcast(&g->wake);
        pthread_mutex_unlock(&g->lock);
    }
}

/* Returns once the gate has reached `value`. */
static void gate_wait(gate *g, uint64_t value)
{
    if (atomic_load_explicit(&g->value, memory_order_acquire) >= value)
        return;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        if (atomic_load(&g->wanted) > value)
            atomic_store(&g->wanted, value);
        if (atomic_load(&g->value) >= value)
            break;
        pthread_cond_wait(&g->wake, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- device and memory ----------------------------------------------------------------------- */

static nnc_status cpu_open(int ordinal, nnc_device **out, nnc_sink *sink)
{
    if (ordinal < 0)
        return nnc_fail0(sink, NNC_E_DEVICE, "there is no device cpu:%d", ordinal);
    nnc_device *d = nnc_calloc(1, sizeof *d);
    NNC_NEED(d, sink);
    d->ordinal = ordinal;
    *out = d;
    return NNC_OK;
}

static void cpu_close(nnc_device *d)
{
    nnc_free(d);
}

static nnc_status cpu_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    *out = NULL;
    if (bytes == 0)
        return NNC_OK;
    /* Linux would promise more than there is and kill the process later */
    const nnc_memory room = bytes >= ASKED ? nnc_memory_limit() : (nnc_memory){INT64_MAX, NULL};
    if (bytes > room.bytes - d->bytes || bytes < 0)
        return nnc_fail0(sink, NNC_E_FIT,
            "cpu:%d: %lld bytes more than the %lld in use do not fit in %lld bytes of memory%s%s",
            d->ordinal, (long long)bytes, (long long)d->bytes, (long long)room.bytes,
            room.by ? " by " : "", room.by ? room.by : "");
    block *b = nnc_malloc(sizeof *b);
    void *p = !b               ? NULL
              : bytes >= PAGED ? nnc_pages_alloc((size_t)bytes)
                               : nnc_aligned_alloc(64, (size_t)nnc_align_up(bytes, 64));
    if (!p) {
        nnc_free(b);
        const nnc_memory left = nnc_memory_free();
        return nnc_fail0(sink, NNC_E_FIT,
            "cpu:%d: the system has no %lld bytes of memory left: %lld are available%s%s",
            d->ordinal, (long long)bytes, (long long)left.bytes, left.by ? " by " : "",
            left.by ? left.by : "");
    }
    *b = (block){p, bytes, d->blocks};
    d->blocks = b;
    d->bytes += bytes;
    *out = p;
    return NNC_OK;
}

static void cpu_free(nnc_device *d, void *p)
{
    for (block **b = &d->blocks; *b; b = &(*b)->next)
        if ((*b)->p == p) {
            NNC_FREED block *gone = *b;
            *b = gone->next;
            d->bytes -= gone->bytes;
            if (gone->bytes >= PAGED)
                nnc_pages_free(p, (size_t)gone->bytes);
            else
                nnc_free(p);
            return;
        }
}

/* Copies are done by the stream's own thread from any memory. */
static nnc_status cpu_host_alloc(nnc_device *d, int64_t bytes, void **out, nnc_sink *sink)
{
    return cpu_alloc(d, bytes, out, sink);
}

/* ---- the worker ------------------------------------------------------------------------------ */

static void fail(nnc_stream *s, nnc_status status, const char *name)
{
    if (s->failed == NNC_OK) {
        s->failed = status;
        s->failed_name = name;
    }
}

/* After a failure copies and most work are skipped until sync; records still fire, so that waiters continue. */
static void perform(nnc_stream *s, item *i)
{
    switch (i->kind) {
    case IT_work:
        if (s->failed == NNC_OK || i->w.always) {
            nnc_status status = i->w.run(i->w.handle, i->w.args, i->w.work);
            if (status != NNC_OK)
                fail(s, status, i->w.name);
        }
        break;
    case IT_copy:
        if (s->failed == NNC_OK && i->bytes && i->dst != i->src)
            memmove(i->dst, i->src, (size_t)i->bytes);
        break;
    case IT_record:
        atomic_store(&i->e->ns, nnc_now_ns());
        gate_set(&i->e->fired, i->count);
        break;
    case IT_wait: gate_wait(&i->e->fired, i->count); break;
    case IT_exit: break;
    }
}

static void *worker(void *arg)
{
    nnc_stream *s = arg;
    bool more = true;
    for (uint64_t n = atomic_load(&s->done.value); more; n++) {
        if (atomic_load(&s->pushed.value) == n) {
            nnc_team_leave(s->team);
            gate_wait(&s->pushed, n + 1);
            nnc_team_enter(s->team);
        }
        item *i = &s->ring[n % RING];
        more = i->kind != IT_exit;
        perform(s, i);
        gate_set(&s->done, n + 1);
    }
    nnc_team_leave(s->team);
    return NULL;
}

/* On the host's thread, for a stream without a worker. */
static void perform_pushed(nnc_stream *s)
{
    uint64_t end = atomic_load(&s->pushed.value), n = atomic_load(&s->done.value);
    if (n == end)
        return;
    nnc_team_enter(s->team);
    for (; n < end; n++) {
        perform(s, &s->ring[n % RING]);
        atomic_store(&s->done.value, n + 1);
    }
    nnc_team_leave(s->team);
}

/* ---- streams and events ---------------------------------------------------------------------- */

static bool start_worker(nnc_stream *s)
{
    if (s->has_worker && s->forks != nnc_forks()) { /* the parent's */
        s->has_worker = false;
        if (!gate_renew(&s->pushed) || !gate_renew(&s->done))
            return false;
    }
    sigset_t before;
    s->forks = nnc_forks();
    nnc_signals_hold(&before);
    s->has_worker = s->has_worker || !pthread_create(&s->thread, NULL, worker, s);
    nnc_signals_release(&before);
    return s->has_worker;
}

static nnc_status cpu_stream_create(
    nnc_device *d, int threads, bool alone, nnc_stream **out, nnc_sink *sink)
{
    if (d->alone && !start_worker(d->alone))
        return nnc_fail0(sink, NNC_E_DEVICE, "cpu:%d: no thread for a stream", d->ordinal);
    d->alone = NULL;
    nnc_stream *s = nnc_calloc(1, sizeof *s);
    NNC_NEED(s, sink);
    nnc_status status = nnc_team_create(threads, &s->team, sink);
    if (status != NNC_OK) {
        nnc_free(s);
        return status;
    }
    s->d = d;
    bool a = gate_init(&s->pushed), b = gate_init(&s->done);
    if (a && b && (alone || start_worker(s))) {
        d->alone = alone ? s : NULL;
        *out = s;
        return NNC_OK;
    }
    if (a)
        gate_deinit(&s->pushed);
    if (b)
        gate_deinit(&s->done);
    nnc_team_destroy(s->team);
    nnc_free(s);
    return nnc_fail0(sink, NNC_E_DEVICE, "cpu:%d: no thread for a stream", d->ordinal);
}

/* The next free slot; waits for room. Published by push. */
static item *slot(nnc_stream *s, item_kind kind)
{
    uint64_t n = atomic_load_explicit(&s->pushed.value, memory_order_relaxed);
    if (!s->has_worker && n - atomic_load(&s->done.value) >= RING)
        perform_pushed(s);
    else if (n >= RING)
        gate_wait(&s->done, n - RING + 1);
    item *i = &s->ring[n % RING];
    i->kind = kind;
    return i;
}

static nnc_status push(nnc_stream *s)
{
    if (s->has_worker && s->forks != nnc_forks() && !start_worker(s))
        return NNC_E_DEVICE;
    gate_set(&s->pushed, atomic_load_explicit(&s->pushed.value, memory_order_relaxed) + 1);
    return NNC_OK;
}

static void drain(nnc_stream *s)
{
    if (s->has_worker)
        gate_wait(&s->done, atomic_load_explicit(&s->pushed.value, memory_order_relaxed));
    else
        perform_pushed(s);
}

static void cpu_stream_destroy(nnc_stream *s)
{
    if (!s)
        return;
    drain(s);
    if (s->has_worker) {
        slot(s, IT_exit);
        if (push(s) == NNC_OK)
            pthread_join(s->thread, NULL);
    }
    s->d->alone = s->d->alone == s ? NULL : s->d->alone;
    nnc_team_destroy(s->team);
    gate_deinit(&s->pushed);
    gate_deinit(&s->done);
    nnc_free(s);
}

static nnc_status cpu_event_create(nnc_device *d, nnc_event **out, nnc_sink *sink)
{
    nnc_event *e = nnc_calloc(1, sizeof *e);
    NNC_NEED(e, sink);
    if (!gate_init(&e->fired)) {
        nnc_free(e);
        return nnc_fail0(sink, NNC_E_DEVICE, "cpu:%d: no event", d->ordinal);
    }
    *out = e;
    return NNC_OK;
}

static void cpu_event_destroy(nnc_event *e)
{
    if (!e)
        return;
    gate_deinit(&e->fired);
    nnc_free(e);
}

/* ---- work ------------------------------------------------------------------------------------ */

static nnc_status copy(nnc_stream *s, void *dst, const void *src, int64_t bytes)
{
    item *i = slot(s, IT_copy);
    i->dst = dst;
    i->src = src;
    i->bytes = bytes;
    return push(s);
}

static nnc_status cpu_copy(
    nnc_stream *s, nnc_device *dst_dev, void *dst, const void *src, int64_t bytes)
{
    (void)dst_dev; /* virtual devices share the machine's memory */
    return copy(s, dst, src, bytes);
}

static nnc_status cpu_launch(nnc_stream *s, const nnc_work *w)
{
    item *i = slot(s, IT_work);
    i->w = *w;
    return push(s);
}

static nnc_status cpu_record(nnc_stream *s, nnc_event *e)
{
    item *i = slot(s, IT_record);
    i->e = e;
    i->count = ++e->recorded;
    return push(s);
}

static nnc_status cpu_wait(nnc_stream *s, nnc_event *e)
{
    item *i = slot(s, IT_wait);
    i->e = e;
    i->count = e->recorded;
    return push(s);
}

static nnc_status cpu_sync(nnc_stream *s, nnc_sink *sink)
{
    drain(s);
    nnc_status status = s->failed;
    s->failed = NNC_OK;
    if (status != NNC_OK)
        return nnc_fail0(sink, status, "cpu:%d: %s%s%s", s->d->ordinal,
            s->failed_name ? s->failed_name : "", s->failed_name ? ": " : "",
            nnc_status_name(status));
    return NNC_OK;
}

static int64_t cpu_event_ns(const nnc_event *e)
{
    uint64_t fired = atomic_load(&((nnc_event *)e)->fired.value);
    return e->recorded && fired >= e->recorded ? atomic_load(&((nnc_event *)e)->ns) : -1;
}

const nnc_device_api nnc_device_cpu = {
    .kind = "cpu",
    .host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .upload = copy,
    .download = copy,
    .copy = cpu_copy,
    .launch = cpu_launch,
    .record = cpu_record,
    .wait = cpu_wait,
    .sync = cpu_sync,
    .event_ns = cpu_event_ns,
};

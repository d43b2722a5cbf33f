/* cuda/cupti.c -- times of commands on GPUs by the Activity API of CUPTI.
 *
 * CUPTI writes a record of each kernel, copy and fill that a GPU executes, with its begin and end on one clock for all GPUs. Which command
 * it belongs to follows from
 *   - the call that submitted it: calls that a thread makes while an external id is pushed are recorded as (external id, correlation id);
 *   - within a graph, its node: callbacks tell of each node when capture creates it, and when instantiation clones it. Records have the ids
 *     of clones.
 * Layouts of records are those of CUPTI 12.0 to 13.0, of which later versions only append members; sources: cupti_activity.h, and NVIDIA's
 * sample cuda_graphs_trace. CUPTI is never finalized, as graphs captured before may crash after (github.com/pytorch/pytorch, pull request
 * 150957). Kinds of records are switched once each, since CUPTI 13.0.0 may deadlock there. */
#include "cuda/internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* CUpti_ActivityKind, CUpti_CallbackIdResource and others. */
enum {
    MEMCPY = 1,
    MEMSET = 2,
    DRIVER_CALL = 4,
    RUNTIME_CALL = 5,
    KERNEL = 10,
    MEMCPY_PEER = 22,
    EXTERNAL = 39,
    EXTERNAL_CUSTOM = 3,
    DOMAIN_RESOURCE = 3,
    NODE_CREATED = 13,
    NODE_CLONED = 20,
    MULTIPLE_SUBSCRIBERS = 39,
    FLUSH_FORCED = 1,
    BUFFER = 1 << 20 /* bytes: about 5000 records */
};

/* The first GPU_KINDS are of GPUs; the others are of calls, without which external ids are not recorded. */
static const int kinds[] = {
    KERNEL, MEMCPY, MEMSET, MEMCPY_PEER, EXTERNAL, RUNTIME_CALL, DRIVER_CALL};
enum { GPU_KINDS = 4 };

/* Offsets in the record of a kind that has times: begin and end are at 16 and 24 in all. */
static const struct layout {
    int kind, correlation, node;
} layouts[] = {{KERNEL, 92, 144}, {MEMCPY, 44, 64}, {MEMSET, 44, 64}, {MEMCPY_PEER, 60, 72}};

/* CUpti_ResourceData and, for nodes, what its descriptor points to: CUpti_GraphData. */
typedef struct resource {
    void *context, *handle;
    const struct graph_data {
        void *graph, *original_graph, *node, *original_node;
    } * descriptor;
} resource;

typedef struct activity {
    uint64_t id; /* of its node, or of its call where it is not of a graph */
    int64_t start, end;
} activity;
#define CALL (UINT64_C(1) << 63) /* marks a correlation id, among ids of nodes */
typedef struct mark_of {
    uint64_t id;
    int32_t mark;
} mark_of;

/* CUPTI has one client in a process. Its worker thread delivers buffers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tracing {
    const nnc_cuda_cupti *api; /* NULL: closed */
    void *subscriber;
    int32_t mark;
    int n_kind; /* kinds that are on */
    bool lost; /* records of the run */
    nnc_arena arena; /* until it is closed */
    mark_of *mark_of;
    activity *activity; /* of the run */
    size_t n_mark, cap_mark, n, cap;
} t;

/* ---- records ------------------------------------------------------------------------------------------------------- */

static void add_mark(uint64_t id, int32_t mark)
{
    if (!ARENA_ROOM(&t.arena, t.mark_of, t.cap_mark, t.n_mark + 1))
        t.lost = true;
    else
        t.mark_of[t.n_mark++] = (mark_of){id, mark};
}

/* The mark with this id, the latest of several; -1: none. */
static int32_t find_mark(uint64_t id)
{
    for (size_t i = t.n_mark; i-- > 0;)
        if (t.mark_of[i].id == id)
            return t.mark_of[i].mark;
    return -1;
}

static uint64_t member(const char *record, int at, size_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, record + at, bytes); /* little-endian, as all hosts of NVIDIA's driver */
    return v;
}

static void keep_record(const char *record)
{
    const int kind = (int)member(record, 0, 4);
    if (kind == EXTERNAL)
        add_mark(CALL | member(record, 16, 4), (int32_t)member(record, 8, 8));
    for (size_t i = 0; i < NNC_COUNT(layouts); i++) {
        const struct layout *l = &layouts[i];
        if (l->kind != kind)
            continue;
        const uint64_t node = member(record, l->node, 8);
        const activity a = {node ? node : CALL | member(record, l->correlation, 4),
            (int64_t)member(record, 16, 8), (int64_t)member(record, 24, 8)};
        if (a.start <= 0 || a.end < a.start || !ARENA_ROOM(&t.arena, t.activity, t.cap, t.n + 1))
            t.lost = true; /* CUPTI does not know its times, or there is no memory */
        else
            t.activity[t.n++] = a;
    }
}

/* Without a buffer CUPTI drops records, and counts them. */
static void give_buffer(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *buffer = nnc_malloc(BUFFER);
    *bytes = *buffer ? BUFFER : 0;
    *records = 0; /* as many as fit */
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    void *record = NULL;
    (void)context, (void)stream, (void)bytes;
    pthread_mutex_lock(&lock);
    while (t.api && valid && !t.api->cuptiActivityGetNextRecord(buffer, valid, &record))
        keep_record(record);
    pthread_mutex_unlock(&lock);
    nnc_free(buffer);
}

/* ---- nodes of graphs ----------------------------------------------------------------------------------------------- */

/* Instantiation creates and clones nodes while no mark is set. */
static void on_resource(void *user, int domain, uint32_t id, const void *data)
{
    const resource *r = data;
    uint64_t node, original = 0;
    const bool cloned = id == NODE_CLONED;
    (void)user;
    if (domain != DOMAIN_RESOURCE || (!cloned && (id != NODE_CREATED || t.mark < 0)) ||
        t.api->cuptiGetGraphNodeId(r->descriptor->node, &node) ||
        (cloned && t.api->cuptiGetGraphNodeId(r->descriptor->original_node, &original)))
        return;
    pthread_mutex_lock(&lock);
    add_mark(node, cloned ? find_mark(original) : t.mark);
    pthread_mutex_unlock(&lock);
}

/* ---- for the runtime ----------------------------------------------------------------------------------------------- */

nnc_status nnc_cupti_open(bool calls, nnc_sink *sink)
{
    const nnc_cuda_cupti *api = NNC_CUDA(cupti, sink);
    if (!api || t.api)
        return api ? nnc_fail0(sink, NNC_E_DEVICE, "another profile uses it") : NNC_E_DEVICE;
    pthread_mutex_lock(&lock);
    t.api = api;
    t.mark = -1;
    pthread_mutex_unlock(&lock);
    int error = t.api->cuptiSubscribe(&t.subscriber, on_resource, NULL);
    if (error)
        t.subscriber = NULL;
    for (int k = 0; !error && k < 2; k++)
        error = t.api->cuptiEnableCallback(
            1, t.subscriber, DOMAIN_RESOURCE, k ? NODE_CLONED : NODE_CREATED);
    error = error ? error : t.api->cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (int n = calls ? (int)NNC_COUNT(kinds) : GPU_KINDS; !error && t.n_kind < n; t.n_kind++)
        error = t.api->cuptiActivityEnable(kinds[t.n_kind]);
    if (!error)
        return NNC_OK;
    nnc_cupti_close();
    const char *name = "an unknown error";
    (void)api->cuptiGetResultString(error, &name);
    return error == MULTIPLE_SUBSCRIBERS
               ? nnc_fail0(sink, NNC_E_DEVICE, "another profiler of this process uses it")
               : nnc_fail0(sink, NNC_E_DEVICE, "it does not start: %s", name);
}

void nnc_cupti_close(void)
{
    for (; t.n_kind > 0; t.n_kind--)
        (void)t.api->cuptiActivityDisable(kinds[t.n_kind - 1]);
    if (t.subscriber && !t.api->cuptiUnsubscribe(t.subscriber))
        (void)t.api->cuptiActivityFlushAll(FLUSH_FORCED); /* gives all buffers back */
    pthread_mutex_lock(&lock);
    nnc_arena_deinit(&t.arena);
    t = (struct tracing){0};
    pthread_mutex_unlock(&lock);
}

void nnc_cupti_mark(int32_t mark)
{
    uint64_t last;
    if (t.mark >= 0)
        (void)t.api->cuptiActivityPopExternalCorrelationId(EXTERNAL_CUSTOM, &last);
    t.mark = mark;
    if (mark >= 0)
        (void)t.api->cuptiActivityPushExternalCorrelationId(EXTERNAL_CUSTOM, (uint64_t)mark);
}

/* Delivers the records of finished work, in complete buffers or (all) in any. */
static void flush(bool all)
{
    size_t dropped = 0;
    const bool failed = t.api->cuptiActivityFlushAll(all ? FLUSH_FORCED : 0) ||
                        t.api->cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
    pthread_mutex_lock(&lock);
    t.lost = t.lost || failed || dropped;
    pthread_mutex_unlock(&lock);
}

void nnc_cupti_begin(void)
{
    flush(true);
    pthread_mutex_lock(&lock);
    t.n = 0;
    t.lost = false;
    pthread_mutex_unlock(&lock);
}

void nnc_cupti_read(bool all, int64_t *start_ns, int64_t *end_ns, int32_t first, int n)
{
    flush(all);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        start_ns[i] = end_ns[i] = -1;
    for (size_t i = 0; !t.lost && i < t.n; i++) {
        const activity *a = &t.activity[i];
        const int32_t mark = find_mark(a->id), k = mark - first;
        if (mark < 0 || k < 0 || k >= n)
            continue;
        start_ns[k] = start_ns[k] < 0 ? a->start : nnc_min64(start_ns[k], a->start);
        end_ns[k] = nnc_max64(end_ns[k], a->end);
    }
    pthread_mutex_unlock(&lock);
}

/* tests/cuda_fake/cupti.c -- CUPTI's Activity API over queue.c and graph.c. Records come in any order, in several buffers, some of them
 * only when they are forced; a test may have some dropped. Layouts are those of cupti_activity.h. */
#include "internal.h"
#include <stdlib.h>
#include <string.h>

enum {
    INVALID = 1,
    LIMIT = 12, /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    MULTIPLE_SUBSCRIBERS = 39,
    IN_BUFFER = 5, /* records of a buffer */
    KINDS = 64,
    DEEP = 8,
    MEMCPY = 1,
    MEMSET = 2,
    DRIVER = 4,
    RUNTIME = 5,
    KERNEL = 10,
    PEER = 22,
    EXTERNAL = 39
};

#define PACKED __attribute__((packed, aligned(8)))
typedef struct PACKED kernel_record {
    uint32_t kind;
    uint8_t cache, shared_config;
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local, local_total, correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout[2], padding;
    uint32_t shared_executed;
    uint64_t node;
    uint32_t shmem_limit, graph;
    void *policy;
    uint32_t channel, channel_type, cluster[3], cluster_policy;
    uint64_t local_total2;
    uint32_t clusters[2];
} kernel_record;
typedef struct PACKED copy_record {
    uint32_t kind;
    uint8_t copy_kind, from_kind, to_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t node;
    uint32_t graph, channel, channel_type, pad2;
    uint64_t copies;
} copy_record;
typedef struct PACKED fill_record {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory_kind;
    uint32_t pad;
    void *reserved;
    uint64_t node;
    uint32_t graph, channel, channel_type, pad2;
} fill_record;
typedef struct PACKED peer_record {
    uint32_t kind;
    uint8_t copy_kind, from_kind, to_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, from[2], to[2], correlation;
    void *reserved;
    uint64_t node;
    uint32_t graph, channel, channel_type;
} peer_record;
typedef struct PACKED external_record {
    uint32_t kind, external_kind;
    uint64_t external;
    uint32_t correlation, reserved;
} external_record;
typedef union any_record {
    uint32_t kind;
    kernel_record kernel;
    copy_record copy;
    fill_record fill;
    peer_record peer;
    external_record external;
} any_record;

static size_t size_of(uint32_t kind)
{
    return kind == KERNEL     ? sizeof(kernel_record)
           : kind == MEMCPY   ? sizeof(copy_record)
           : kind == MEMSET   ? sizeof(fill_record)
           : kind == PEER     ? sizeof(peer_record)
           : kind == EXTERNAL ? sizeof(external_record)
                              : 0;
}

int fake_cupti_drops;
static uint64_t seed, draws, next_node, stack[DEEP];
static uint32_t next_call;
static int depth;
static bool on[KINDS];
static any_record *pending;
static size_t n_pending, cap_pending, dropped;
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static void (*callback)(void *, int, uint32_t, const void *);
static bool node_callbacks[2];

static void add(any_record r)
{
    if (n_pending == cap_pending)
        pending = realloc(pending, sizeof *pending * (cap_pending = 2 * cap_pending + 16));
    pending[n_pending++] = r;
}

/* ---- what the queues tell ------------------------------------------------------------------------------------------ */

uint32_t fake_cupti_call(void)
{
    const uint32_t id = ++next_call;
    if (on[EXTERNAL] && (on[RUNTIME] || on[DRIVER]) && depth)
        for (int both = 0; both < 2;
             both++) /* of the runtime's call, and of the driver's within it */
            add((any_record){.external = {EXTERNAL, 3, stack[depth - 1], id, 0}});
    return id;
}

void fake_cupti_ran(const command *c, int device, int64_t start, int64_t end)
{
    const bool copy = !strcmp(c->what, "a copy"), fill = !strcmp(c->what, "a fill");
    const uint32_t kind = copy ? (c->any_device ? PEER : MEMCPY) : fill ? MEMSET : KERNEL;
    any_record r;
    if (!on[kind] || !strcmp(c->what, "a host function"))
        return;
    memset(&r, 0xa5, sizeof r);
    const uint64_t from = (uint64_t)start, to = (uint64_t)end;
    const uint32_t d = (uint32_t)device, call = c->correlation;
    r.kind = kind;
    if (kind == KERNEL)
        r.kernel.start = from, r.kernel.end = to, r.kernel.node = c->node, r.kernel.device = d,
        r.kernel.correlation = call;
    else if (kind == PEER)
        r.peer.start = from, r.peer.end = to, r.peer.node = c->node, r.peer.device = d,
        r.peer.correlation = call;
    else if (kind == MEMCPY)
        r.copy.start = from, r.copy.end = to, r.copy.node = c->node, r.copy.device = d,
        r.copy.correlation = call;
    else
        r.fill.start = from, r.fill.end = to, r.fill.node = c->node, r.fill.device = d,
        r.fill.correlation = call;
    add(r);
}

uint64_t fake_cupti_node(uint64_t original)
{
    const struct {
        void *graph, *original_graph, *node, *original_node;
        int type;
        void *dependency, *exec;
    } of = {.node = (void *)(uintptr_t)++next_node, .original_node = (void *)(uintptr_t)original};
    const struct {
        void *context, *handle;
        const void *descriptor;
    } data = {NULL, NULL, &of};
    const uint64_t id = next_node;
    if (callback && node_callbacks[0])
        callback(NULL, 3, 13, &data);
    if (callback && node_callbacks[1] && original)
        callback(NULL, 3, 20, &data);
    return id;
}

/* ---- the API ------------------------------------------------------------------------------------------------------- */

static int subscribe(void **subscriber, void (*fn)(void *, int, uint32_t, const void *), void *user)
{
    (void)user;
    if (callback)
        return MULTIPLE_SUBSCRIBERS;
    callback = fn;
    *subscriber = &callback;
    return 0;
}

static int unsubscribe(void *subscriber)
{
    if (!callback || subscriber != &callback)
        return INVALID;
    callback = NULL;
    node_callbacks[0] = node_callbacks[1] = false;
    return 0;
}

static int enable_callback(uint32_t enable, void *subscriber, int domain, uint32_t id)
{
    if (subscriber != &callback || domain != 3 || (id != 13 && id != 20))
        return INVALID;
    node_callbacks[id == 20] = enable;
    return 0;
}

static int register_callbacks(void (*asks)(uint8_t **, size_t *, size_t *),
    void (*gives)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    request = asks;
    complete = gives;
    return 0;
}

static int enable(int kind)
{
    if (kind < 1 || kind >= KINDS || !request)
        return INVALID;
    on[kind] = true;
    return 0;
}

static int disable(int kind)
{
    if (kind < 1 || kind >= KINDS)
        return INVALID;
    on[kind] = false;
    return 0;
}

static void swap_records(size_t i, size_t k)
{
    const any_record r = pending[i];
    pending[i] = pending[k];
    pending[k] = r;
}

static void deliver(const any_record *r, size_t n)
{
    uint8_t *buffer = NULL;
    size_t room = 0, most = 0, used = 0;
    request(&buffer, &room, &most);
    if (!buffer || room < IN_BUFFER * sizeof *r || (uintptr_t)buffer % 8) {
        dropped += n;
        return;
    }
    memset(buffer, 0xff, room);
    for (size_t i = 0; i < n; used += size_of(r[i++].kind))
        memcpy(buffer + used, &r[i], size_of(r[i].kind));
    complete(NULL, 0, buffer, room, used);
}

static int flush_all(uint32_t forced)
{
    for (size_t i = n_pending; i > 1; i--)
        swap_records(i - 1, nnc_rng_u32(seed, draws++) % (uint32_t)i);
    if (fake_cupti_drops > 0 && n_pending) {
        fake_cupti_drops--;
        n_pending--;
        dropped++;
    }
    const size_t keep = forced ? 0 : n_pending / 3;
    while (n_pending > keep) {
        const size_t n = n_pending - keep < IN_BUFFER ? n_pending - keep : IN_BUFFER;
        deliver(pending + n_pending - n, n);
        n_pending -= n;
    }
    return 0;
}

static int next_record(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *at = *record;
    at = at ? at + size_of(((const any_record *)(const void *)at)->kind) : buffer;
    if ((size_t)(at - buffer) >= valid)
        return LIMIT;
    *record = at;
    return 0;
}

static int number_dropped(void *context, uint32_t stream, size_t *n)
{
    if (context || stream)
        return INVALID;
    *n = dropped;
    dropped = 0;
    return 0;
}

static int push(int kind, uint64_t id)
{
    if (kind != 3 || depth == DEEP)
        return INVALID;
    stack[depth++] = id;
    return 0;
}

static int pop(int kind, uint64_t *last)
{
    if (kind != 3 || !depth) {
        fake_wrong("CUPTI: an external id is popped that was not pushed");
        return INVALID;
    }
    *last = stack[--depth];
    return 0;
}

static int node_id(void *node, uint64_t *id)
{
    *id = (uint64_t)(uintptr_t)node;
    return node ? 0 : INVALID;
}

static int result_string(int error, const char **name)
{
    if (error != 35)
        return INVALID;
    *name = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
    return 0;
}

static const nnc_cuda_cupti cupti = {.cuptiSubscribe = subscribe,
    .cuptiUnsubscribe = unsubscribe,
    .cuptiEnableCallback = enable_callback,
    .cuptiActivityRegisterCallbacks = register_callbacks,
    .cuptiActivityEnable = enable,
    .cuptiActivityDisable = disable,
    .cuptiActivityFlushAll = flush_all,
    .cuptiActivityGetNextRecord = next_record,
    .cuptiActivityGetNumDroppedRecords = number_dropped,
    .cuptiActivityPushExternalCorrelationId = push,
    .cuptiActivityPopExternalCorrelationId = pop,
    .cuptiGetGraphNodeId = node_id,
    .cuptiGetResultString = result_string};

void fake_cupti_begin(uint64_t from)
{
    seed = from;
    draws = next_node = next_call = 0;
    fake_cupti_drops = depth = 0;
    n_pending = dropped = 0;
    nnc_cuda_override(CUDA_cupti, &cupti);
}

void fake_cupti_end(void)
{
    bool any = callback || depth;
    for (int i = 0; i < KINDS; i++)
        any = any || on[i];
    if (any)
        fake_wrong("CUPTI is left on");
    memset(on, 0, sizeof on);
    callback = NULL;
    free(pending);
    pending = NULL;
    n_pending = cap_pending = 0;
}

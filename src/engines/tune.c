/* engines/tune.c -- measured choices of algorithms in a text file that is replayed later:
 *
 *     <library> <key> choice=<index in its list> number=<its own number> ns=<measured>
 *
 * one line per call, sorted by key; lines of other keys are kept. */
#include "engines/tune.h"
#include "target/target.h"
#include "cuda/cuda.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    char library[24], key[33];
    nnc_tuned t;
} entry;

struct nnc_tuning {
    pthread_mutex_t lock; /* of the entries and of writing the file */
    char *file;
    bool measure;
    entry *at;
    size_t n, cap;
};

/* ---- the file ----------------------------------------------------------------------------------------------------- */

NNC_ORDER(by_key, entry, strcmp(a->key, b->key))

static entry *find_entry(const nnc_tuning *all, const char *key)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->at[i].key, key))
            return &all->at[i];
    return NULL;
}

static entry *insert(nnc_tuning *all, const entry *e)
{
    entry *old = find_entry(all, e->key);
    if (old) {
        *old = *e;
        return old;
    }
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 32;
        entry *more = nnc_realloc(all->at, cap * sizeof *more);
        if (!more)
            return NULL;
        all->at = more;
        all->cap = cap;
    }
    all->at[all->n] = *e;
    return &all->at[all->n++];
}

static nnc_status read_file(nnc_tuning *all, char *text, nnc_sink *sink)
{
    int number = 0;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        entry e = {0};
        long long engine, ns;
        char more;
        number++;
        if (sscanf(line, "%23s %32[0-9a-f] choice=%d number=%lld ns=%lld %c", e.library, e.key,
                &e.t.choice, &engine, &ns, &more) != 5 ||
            strlen(e.key) != 32 || e.t.choice < 0)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = all->file, .line = number},
                "no measured choice; expected LIBRARY KEY choice=N number=N ns=N");
        e.t.number = engine;
        e.t.ns = ns;
        NNC_NEED(insert(all, &e), sink);
    }
    return NNC_OK;
}

nnc_status nnc_tuning_open(const char *file, bool measure, nnc_tuning **out, nnc_sink *sink)
{
    char *text = NULL;
    size_t n, length = strlen(file) + 1;
    nnc_tuning *t = nnc_calloc(1, sizeof *t);
    *out = NULL;
    if (!t || pthread_mutex_init(&t->lock, NULL)) {
        nnc_free(t);
        return nnc_nomem(sink);
    }
    t->measure = measure;
    t->file = nnc_malloc(length);
    if (t->file)
        memcpy(t->file, file, length);
    nnc_status st = t->file ? NNC_OK : nnc_nomem(sink);
    if (!st && (!measure || nnc_file_exists(file)))
        st = nnc_file_read(file, 64 << 20, &text, &n, sink);
    if (!st && text)
        st = read_file(t, text, sink);
    nnc_free(text);
    if (st)
        nnc_tuning_close(t);
    else
        *out = t;
    return st;
}

void nnc_tuning_close(nnc_tuning *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    nnc_free(t->file);
    nnc_free(t->at);
    nnc_free(t);
}

bool nnc_tune_measures(const nnc_tuning *t)
{
    return t && t->measure;
}

bool nnc_tune_find(nnc_tuning *t, nnc_hash128 key, nnc_tuned *out)
{
    char hex[33];
    if (!t)
        return false;
    nnc_hash_hex(key, hex);
    pthread_mutex_lock(&t->lock);
    const entry *e = find_entry(t, hex);
    if (e)
        *out = e->t;
    pthread_mutex_unlock(&t->lock);
    return e != NULL;
}

static nnc_status write_file(nnc_tuning *all, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    qsort(all->at, all->n, sizeof *all->at, by_key);
    for (size_t i = 0; i < all->n; i++) {
        const entry *e = &all->at[i];
        nnc_printf(&t, "%s %s choice=%d number=%lld ns=%lld\n", e->library, e->key, e->t.choice,
            (long long)e->t.number, (long long)e->t.ns);
    }
    return t.oom ? nnc_nomem(sink) : nnc_file_write(all->file, nnc_text_str(&t), t.n, false, sink);
}

nnc_status nnc_tune_record(
    nnc_tuning *t, nnc_hash128 key, const char *library, const nnc_tuned *result, nnc_sink *sink)
{
    entry e = {.t = *result};
    snprintf(e.library, sizeof e.library, "%s", library);
    nnc_hash_hex(key, e.key);
    pthread_mutex_lock(&t->lock);
    nnc_status st = insert(t, &e) ? write_file(t, sink) : nnc_nomem(sink);
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

void nnc_tune_gpu(nnc_text *t)
{
    nnc_cuda_device d[64];
    int device = 0, n = nnc_cuda_devices(d, 64, NULL);
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    if (rt && !rt->cudaGetDevice(&device) && device < n)
        nnc_printf(t, "%s sm=%d sms=%d ", d[device].name, d[device].sm, d[device].sms);
}

/* Architecture of the current GPU; 0: unknown. */
static int current_sm(void)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    int device = 0, n = 0, major = 0, minor = 0;
    if (!rt || rt->cudaGetDevice(&device) || rt->cudaGetDeviceCount(&n) || device >= n ||
        rt->cudaDeviceGetAttribute(&major, CUDA_ATTR_MAJOR, device) ||
        rt->cudaDeviceGetAttribute(&minor, CUDA_ATTR_MINOR, device))
        return 0;
    return major * 10 + minor;
}

nnc_status nnc_library_supports(const char *library, int64_t number, nnc_sink *sink)
{
    const int sm = current_sm(), major = (int)(number / 10000), minor = (int)(number / 100 % 100),
              first = nnc_target_library_first_sm(library, major, minor);
    nnc_target needs = {.kind = NNC_T_cuda, .sm = sm};
    if (!sm || sm >= first)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_DEVICE,
        "%s %d.%d on this machine supports sm_%d and newer, and this GPU is sm_%d: it needs a "
        "version "
        "like %s, of CUDA 12 (set NNC_CUDA_PATH to a folder that has it)",
        library, major, minor, first, sm, nnc_target_library_default(&needs, library));
}

nnc_hash128 nnc_tune_key(const char *library, const nnc_call *c, int64_t workspace)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_tune_gpu(&t);
    nnc_printf(&t, "%s work=%lld kind=%d groups=%lld flags=%d%d%d%d%d ", library,
        (long long)workspace, c->kind, (long long)c->groups, c->has_bias, c->trans_a, c->trans_b,
        c->tf32, c->exact);
    nnc_put_type(&t, &c->src);
    nnc_put_type(&t, &c->wei);
    nnc_put_type(&t, &c->dst);
    for (int i = 0; i < c->spatial; i++)
        nnc_printf(&t, " %lld,%lld,%lld,%lld,%lld", (long long)c->kernel[i],
            (long long)c->stride[i], (long long)c->dilation[i], (long long)c->pad_lo[i],
            (long long)c->pad_hi[i]);
    for (int i = 0; i < c->n_post; i++)
        nnc_printf(&t, " post %d%s", c->post[i].kind, c->post[i].in_place ? " here" : "");
    nnc_hash128 h = nnc_hash(nnc_text_str(&t), t.n);
    if (t.oom)
        h = (nnc_hash128){0};
    return h;
}

/* ---- measuring ---------------------------------------------------------------------------------------------------- */

enum {
    RUNS = 4,
    SERIES = 3,
    LONG_NS = 1000000,
    HOST_NS = 20000, /* more than the host takes to submit a call */
    PATTERN = 1 << 16, /* random numbers, which repeat */
};

/* Fills the buffers with numbers in -1..1: with zeros a GPU needs less power, so that its clock is higher. */
static int fill(nnc_trial *t, nnc_dtype d, int64_t bytes)
{
    const int64_t each = nnc_dtype_size(d);
    const uint64_t key = nnc_rng_key("trial", 0);
    int64_t have = nnc_min64(PATTERN * each, bytes);
    NNC_FREED char *pattern = nnc_malloc((size_t)(PATTERN * each));
    if (!pattern)
        return 1;
    for (int64_t i = 0; i < PATTERN; i++)
        nnc_set_f64(d, pattern, i, 2 * (double)nnc_rng_uniform(key, (uint64_t)i) - 1);
    int error =
        t->rt->cudaMemcpyAsync(t->memory, pattern, (size_t)have, CUDA_MEMCPY_TO_DEVICE, t->stream);
    for (int64_t n; have < bytes && !error; have += n) {
        n = nnc_min64(have, bytes - have);
        error = t->rt->cudaMemcpyAsync(
            t->memory + have, t->memory, (size_t)n, CUDA_MEMCPY_ON_DEVICE, t->stream);
    }
    const int late = t->rt->cudaStreamSynchronize(t->stream);
    return error ? error : late;
}

/* Captures RUNS times: a write to more memory than the L2 cache has, then the call twice, cold and warm. NULL run: the writes alone. */
static cuda_graph_exec capture(nnc_trial *t, nnc_status (*run)(void *), void *ctx)
{
    cuda_graph g = NULL;
    cuda_graph_exec x = NULL;
    bool ok = !t->rt->cudaStreamBeginCapture(t->stream, CUDA_CAPTURE_THREAD_LOCAL);
    if (!ok)
        return NULL;
    for (int i = 0; i < RUNS && ok; i++) {
        ok = !t->flush_bytes || !t->rt->cudaMemsetAsync(t->flush, i, t->flush_bytes, t->stream);
        for (int k = 0; k < 2 && run && ok; k++)
            ok = run(ctx) == NNC_OK;
    }
    ok = !t->rt->cudaStreamEndCapture(t->stream, &g) && ok;
    if (ok && t->rt->cudaGraphInstantiate(&x, g, 0))
        x = NULL;
    if (g)
        t->rt->cudaGraphDestroy(g);
    return x;
}

/* Time of the graph, or where x is NULL of one run, in ns; -1: failure. */
static int64_t once(nnc_trial *t, cuda_graph_exec x, nnc_status (*run)(void *), void *ctx)
{
    float ms = 0;
    bool ok = !t->rt->cudaEventRecord(t->event[0], t->stream);
    ok = ok && (x ? !t->rt->cudaGraphLaunch(x, t->stream) : run(ctx) == NNC_OK);
    ok = ok && !t->rt->cudaEventRecord(t->event[1], t->stream) &&
         !t->rt->cudaEventSynchronize(t->event[1]) &&
         !t->rt->cudaEventElapsedTime(&ms, t->event[0], t->event[1]);
    return ok ? (int64_t)((double)ms * 1e6) : -1;
}

/* The least time of a captured graph in ns; -1: failure. */
static int64_t graph_ns(nnc_trial *t, nnc_status (*run)(void *), void *ctx)
{
    cuda_graph_exec x = capture(t, run, ctx);
    int64_t best = x ? INT64_MAX : -1;
    for (int i = 0; i < SERIES && best >= 0; i++)
        best = nnc_min64(best, once(t, x, NULL, NULL));
    if (x)
        t->rt->cudaGraphExecDestroy(x);
    return best;
}

static bool allocate(nnc_trial *t, int64_t bytes)
{
    return !t->rt->cudaMalloc((void **)&t->memory, (size_t)bytes) &&
           !t->rt->cudaStreamCreateWithPriority(&t->stream, CUDA_STREAM_NON_BLOCKING, 0) &&
           !t->rt->cudaEventCreateWithFlags(&t->event[0], 0) &&
           !t->rt->cudaEventCreateWithFlags(&t->event[1], 0);
}

nnc_status nnc_trial_open(nnc_trial *t, nnc_dtype d, const int64_t *bytes, int n, int64_t work)
{
    int device = 0, l2 = 0;
    int64_t total = 0, at = 0;
    *t = (nnc_trial){.rt = NNC_CUDA(cudart, NULL)};
    if (!t->rt || t->rt->cudaGetDevice(&device))
        return NNC_E_DEVICE;
    if (t->rt->cudaDeviceGetAttribute(&l2, CUDA_ATTR_L2_BYTES, device))
        l2 = 0;
    t->flush_bytes = 2 * (size_t)l2;
    for (int i = 0; i < n; i++)
        total += nnc_align_up(bytes[i], 256);
    if (!allocate(t, total + nnc_align_up(work, 256) + (int64_t)t->flush_bytes + 256) ||
        fill(t, d, total)) {
        nnc_trial_close(t);
        return NNC_E_DEVICE;
    }
    for (int i = 0; i < n; at += nnc_align_up(bytes[i++], 256))
        t->arg[i] = t->memory + at;
    t->work = t->memory + total;
    t->flush = t->memory + total + nnc_align_up(work, 256);
    t->flush_ns = t->flush_bytes ? nnc_max64(graph_ns(t, NULL, NULL), 0) : 0;
    return NNC_OK;
}

void nnc_trial_close(nnc_trial *t)
{
    for (int i = 0; i < 2; i++)
        if (t->event[i])
            t->rt->cudaEventDestroy(t->event[i]);
    if (t->stream)
        t->rt->cudaStreamDestroy(t->stream);
    if (t->memory)
        t->rt->cudaFree(t->memory);
    /* the last call's error would be taken for the next one's */
    (void)t->rt->cudaGetLastError();
}

int64_t nnc_trial_ns(nnc_trial *t, nnc_status (*run)(void *ctx), void *ctx, int64_t least)
{
    cuda_stream before = nnc_cuda_current();
    nnc_cuda_set_current(t->stream);
    /* libraries load code in their first call */
    int64_t ns = run(ctx) == NNC_OK ? once(t, NULL, run, ctx) : -1;
    if (ns >= 0 && ns <= LONG_NS && (least < 0 || ns <= 2 * least + HOST_NS)) {
        ns = graph_ns(t, run, ctx);
        ns = ns < 0 ? ns : nnc_max64((ns - t->flush_ns) / (2 * RUNS), 1);
    }
    if (ns < 0)
        (void)t->rt->cudaGetLastError();
    nnc_cuda_set_current(before);
    return ns;
}

nnc_tuned nnc_trial_fastest(
    nnc_trial *t, int n, bool (*take)(void *ctx, int i), nnc_status (*run)(void *ctx), void *ctx)
{
    nnc_tuned best = {.choice = -1, .ns = -1};
    for (int i = 0; i < n; i++) {
        const int64_t ns = take(ctx, i) ? nnc_trial_ns(t, run, ctx, best.ns) : -1;
        if (ns >= 0 && (best.choice < 0 || ns < best.ns))
            best = (nnc_tuned){.choice = i, .ns = ns};
    }
    return best;
}

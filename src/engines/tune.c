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

nnc_status nnc_trial_open(nnc_trial *t, const int64_t *bytes, int n, int64_t work, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, sink);
    int64_t total = work;
    *t = (nnc_trial){.n = n};
    for (int i = 0; i < n; i++)
        total += nnc_align_up(bytes[i], 256);
    if (!rt || rt->cudaMalloc((void **)&t->memory, (size_t)total + 256)) {
        t->memory = NULL;
        if (rt)
            (void)rt->cudaGetLastError();
        return nnc_fail0(sink, NNC_E_DEVICE,
            "cannot allocate %lld bytes on the GPU to measure algorithms", (long long)total);
    }
    if (rt->cudaMemsetAsync(t->memory, 0, (size_t)total, NULL)) {
        nnc_trial_close(t);
        return nnc_fail0(sink, NNC_E_DEVICE, "the GPU cannot clear a buffer");
    }
    char *p = t->memory;
    for (int i = 0; i < n; i++, p += nnc_align_up(bytes[i - 1], 256))
        t->arg[i] = p;
    t->work = p;
    return NNC_OK;
}

void nnc_trial_close(nnc_trial *t)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    if (rt && t->memory)
        rt->cudaFree(t->memory);
    t->memory = NULL;
}

enum { SERIES = 3, RUNS = 5, LONG_NS = 1000000 };

/* Duration of a run, of `runs` between two events, in ns; -1: failure. */
static int64_t series(
    const nnc_cuda_cudart *rt, cuda_event e[2], int runs, nnc_status (*run)(void *), void *ctx)
{
    float ms = 0;
    bool ok = !rt->cudaEventRecord(e[0], NULL);
    for (int i = 0; i < runs && ok; i++)
        ok = run(ctx) == NNC_OK;
    ok = ok && !rt->cudaEventRecord(e[1], NULL) && !rt->cudaEventSynchronize(e[1]) &&
         !rt->cudaEventElapsedTime(&ms, e[0], e[1]);
    return ok ? (int64_t)((double)ms * 1e6 / runs) : -1;
}

int64_t nnc_trial_ns(nnc_status (*run)(void *ctx), void *ctx, int64_t least)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    cuda_event e[2] = {NULL, NULL};
    int64_t best = -1;
    cuda_stream before = nnc_cuda_current();
    nnc_cuda_set_current(NULL);
    bool ok = rt && !rt->cudaEventCreateWithFlags(&e[0], 0) &&
              !rt->cudaEventCreateWithFlags(&e[1], 0) && run(ctx) == NNC_OK;
    /* what takes milliseconds is timed once, and no longer than it takes to see that it is not the fastest */
    for (int i = 0, runs = 1; i <= SERIES && ok; i++) {
        int64_t ns = series(rt, e, runs, run, ctx);
        ok = ns >= 0;
        best = best < 0 || ns < best ? ns : best;
        if (best > LONG_NS || (least > 0 && best > 2 * least))
            break;
        runs = RUNS;
    }
    for (int i = 0; i < 2; i++)
        if (e[i])
            rt->cudaEventDestroy(e[i]);
    nnc_cuda_set_current(before);
    if (!ok && rt)
        (void)rt
            ->cudaGetLastError(); /* clears this algorithm's error, so that the next call does not report it */
    return ok ? best : -1;
}

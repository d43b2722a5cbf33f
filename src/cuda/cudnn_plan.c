/* cuda/cudnn_plan.c -- from a graph to a plan: the heuristics' configurations filtered by notes and workspace, the
 * first one that can be finalized, its text, its execution. */
#include "cuda/cudnn_internal.h"
#include <pthread.h>
#include <string.h>

enum { ASKED = 128, MAX_NOTES = 16 };

/* ---- configurations ----------------------------------------------------------------------------------------------- */

static uint32_t notes(nnc_cudnn *g, void *engine, int attribute, int type)
{
    int note[MAX_NOTES];
    int64_t n = 0;
    uint32_t bits = 0;
    if (g->api->cudnnBackendGetAttribute(engine, attribute, type, MAX_NOTES, &n, note))
        return 0;
    for (int i = 0; i < n && i < MAX_NOTES; i++)
        if (note[i] >= 0 && note[i] < 32)
            bits |= 1u << note[i];
    return bits;
}

/* False: cuDNN does not describe the configuration. */
static bool read_config(nnc_cudnn *g, void *desc, bool fallback, nnc_cudnn_config *c)
{
    void *engine = NULL;
    int64_t n = 0;
    *c = (nnc_cudnn_config){.workspace = -1, .fallback = fallback};
    if (g->api->cudnnBackendCreateDescriptor(D_ENGINE, &engine))
        return false;
    bool ok = !g->api->cudnnBackendGetAttribute(desc, A_CONFIG_ENGINE, T_DESC, 1, &n, &engine) &&
              !g->api->cudnnBackendGetAttribute(engine, A_ENGINE_INDEX, T_INT64, 1, &n, &c->engine);
    if (ok) {
        c->numerical = notes(g, engine, A_ENGINE_NUMERICAL, T_NUMERICAL_NOTE);
        c->behavior = notes(g, engine, A_ENGINE_BEHAVIOR, T_BEHAVIOR_NOTE);
        if (g->api->cudnnBackendGetAttribute(
                desc, A_CONFIG_WORKSPACE, T_INT64, 1, &n, &c->workspace))
            c->workspace = -1; /* since 9.2 */
    }
    g->api->cudnnBackendDestroyDescriptor(engine);
    return ok;
}

static bool passes(const nnc_cudnn_config *c, const nnc_cudnn_filter *f)
{
    return (c->numerical & f->with) == f->with && !(c->numerical & f->without) &&
           !(f->precompiled && (c->behavior & CUDNN_COMPILES)) &&
           c->workspace <= f->workspace_limit;
}

/* Appends the configurations of one heuristic mode. All descriptors must exist before cuDNN is asked; those not kept
 * are destroyed at once. */
static void ask(nnc_cudnn *g, int mode, const nnc_cudnn_filter *f, int *refused)
{
    void *desc[ASKED];
    int made = 0;
    int64_t n = 0;
    void *h = cudnn_desc(g, D_HEURISTIC, true);
    cudnn_set(g, h, A_HEUR_GRAPH, T_DESC, 1, &g->graph);
    cudnn_set(g, h, A_HEUR_MODE, T_HEUR_MODE, 1, &mode);
    cudnn_set(g, h, A_HEUR_DEVICE, T_DESC, 1, &g->device);
    if (!cudnn_final(g, h))
        return;
    while (made < ASKED && !g->api->cudnnBackendCreateDescriptor(D_CONFIG, &desc[made]))
        made++;
    int status = g->api->cudnnBackendGetAttribute(h, A_HEUR_RESULTS, T_DESC, made, &n, desc);
    if (status)
        (void)cudnn_refused(g, status);
    for (int i = 0; i < made; i++) {
        cudnn_found *to = &g->found[g->n_found];
        bool there = !status && i < n && read_config(g, desc[i], mode == HEUR_FALLBACK, &to->c);
        if (there && passes(&to->c, f)) {
            to->desc = desc[i];
            g->n_found++;
            continue;
        }
        *refused += there;
        g->api->cudnnBackendDestroyDescriptor(desc[i]);
    }
}

static bool listed(const nnc_cudnn *g, int64_t engine)
{
    for (int i = 0; i < g->n_found; i++)
        if (g->found[i].c.engine == engine)
            return true;
    return false;
}

/* Appends engine `index` with its default knobs, where it supports the graph and passes. */
static void ask_engine(nnc_cudnn *g, int64_t index, const nnc_cudnn_filter *f)
{
    cudnn_found *to = &g->found[g->n_found];
    void *engine = cudnn_desc(g, D_ENGINE, true), *config = NULL;
    cudnn_set(g, engine, A_ENGINE_GRAPH, T_DESC, 1, &g->graph);
    cudnn_set(g, engine, A_ENGINE_INDEX, T_INT64, 1, &index);
    cudnn_set(g, engine, A_ENGINE_DEVICE, T_DESC, 1, &g->device);
    engine = cudnn_final(g, engine);
    if (engine)
        config = cudnn_desc(g, D_CONFIG, false);
    cudnn_set(g, config, A_CONFIG_ENGINE, T_DESC, 1, &engine);
    if (cudnn_final(g, config) && read_config(g, config, false, &to->c) && passes(&to->c, f)) {
        to->desc = config;
        g->n_found++;
    } else if (config) {
        g->api->cudnnBackendDestroyDescriptor(config);
    }
    if (g->status == NNC_E_DEVICE) /* it does not support the graph */
        g->status = NNC_OK;
}

static void ask_every(nnc_cudnn *g, const nnc_cudnn_filter *f)
{
    int64_t n = 0, engines = 0;
    if (g->api->cudnnBackendGetAttribute(g->graph, A_GRAPH_ENGINES, T_INT64, 1, &n, &engines) ||
        n < 1)
        return;
    for (int64_t i = 0; i < engines && g->n_found < 2 * ASKED; i++)
        if (!listed(g, i))
            ask_engine(g, i, f);
}

void cudnn_forget_found(nnc_cudnn *g)
{
    while (g->n_found)
        g->api->cudnnBackendDestroyDescriptor(g->found[--g->n_found].desc);
}

int nnc_cudnn_query(nnc_cudnn *g, const nnc_cudnn_filter *f)
{
    int refused = 0;
    cudnn_forget_found(g);
    if (g->status || !g->graph)
        return g->status == NNC_E_NOMEM ? -1 : 0;
    if (!g->found)
        g->found = ARENA_NEW(&g->mem, cudnn_found, 2 * ASKED);
    if (!g->found) {
        (void)nnc_nomem(g->sink);
        return -1;
    }
    g->why[0] = 0;
    ask(g, HEUR_A, f, &refused);
    if (g->status ==
        NNC_E_DEVICE) /* unsupported by this mode; the fallbacks are asked separately */
        g->status = NNC_OK;
    ask(g, HEUR_FALLBACK, f, &refused);
    if (g->status == NNC_E_DEVICE)
        g->status = NNC_OK;
    if (f->every)
        ask_every(g, f);
    if (!g->n_found && refused)
        snprintf(g->why, sizeof g->why, "none of its %d configurations %sstays within the limits",
            refused, f->with & CUDNN_TENSOR_CORE ? "runs on tensor cores and " : "");
    else if (!g->n_found && !g->why[0])
        snprintf(g->why, sizeof g->why, "no engine supports it");
    return g->status ? -1 : g->n_found;
}

const nnc_cudnn_config *nnc_cudnn_config_at(const nnc_cudnn *g, int i)
{
    return &g->found[i].c;
}

/* ---- plans -------------------------------------------------------------------------------------------------------- */

static void drop_plan(nnc_cudnn *g)
{
    if (g->plan)
        g->api->cudnnBackendDestroyDescriptor(g->plan);
    g->plan = NULL;
    g->workspace = -1;
}

/* Finalizes g->plan, which holds a configuration or text. */
static nnc_status make_plan(nnc_cudnn *g, int status, int64_t limit)
{
    int64_t n = 0;
    if (!status)
        status = g->api->cudnnBackendSetAttribute(g->plan, A_PLAN_DEVICE, T_DESC, 1, &g->device);
    if (!status)
        status = g->api->cudnnBackendFinalize(g->plan);
    if (!status)
        status = g->api->cudnnBackendGetAttribute(
            g->plan, A_PLAN_WORKSPACE, T_INT64, 1, &n, &g->workspace);
    if (status) {
        nnc_status refused = cudnn_refused(g, status);
        drop_plan(g);
        return refused;
    }
    if (g->workspace <= limit)
        return NNC_OK;
    snprintf(g->why, sizeof g->why, "it needs %lld bytes of workspace; %lld are allowed",
        (long long)g->workspace, (long long)limit);
    drop_plan(g);
    return NNC_E_DEVICE;
}

static nnc_status new_plan(nnc_cudnn *g)
{
    drop_plan(g);
    int status = g->api->cudnnBackendCreateDescriptor(D_PLAN, &g->plan);
    if (!status)
        return NNC_OK;
    g->plan = NULL;
    return cudnn_refused(g, status);
}

nnc_status nnc_cudnn_plan(nnc_cudnn *g, int i, int64_t limit)
{
    NNC_TRY(new_plan(g));
    int status =
        g->api->cudnnBackendSetAttribute(g->plan, A_PLAN_CONFIG, T_DESC, 1, &g->found[i].desc);
    return make_plan(g, status, limit);
}

int nnc_cudnn_plan_first(nnc_cudnn *g, int from, int64_t limit)
{
    for (int i = from; i < g->n_found; i++)
        if (nnc_cudnn_plan(g, i, limit) == NNC_OK)
            return i;
    return -1;
}

int64_t nnc_cudnn_workspace(const nnc_cudnn *g)
{
    return g->workspace;
}

void nnc_cudnn_plan_text(nnc_cudnn *g, nnc_text *out)
{
    int64_t n = 0, got = 0;
    if (!g->plan || g->api->cudnnBackendGetAttribute(g->plan, A_PLAN_JSON, T_CHAR, 0, &n, NULL) ||
        n < 1)
        return;
    char *text = nnc_malloc((size_t)n);
    if (!text) {
        out->oom = true;
        return;
    }
    if (!g->api->cudnnBackendGetAttribute(g->plan, A_PLAN_JSON, T_CHAR, n, &got, text))
        nnc_putn(out, text, strnlen(text, (size_t)n));
    nnc_free(text);
}

nnc_status nnc_cudnn_plan_read(nnc_cudnn *g, const char *text, size_t n)
{
    NNC_TRY(new_plan(g));
    int status = g->api->cudnnBackendSetAttribute(g->plan, A_PLAN_JSON, T_CHAR, (int64_t)n, text);
    return make_plan(g, status, INT64_MAX);
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

enum {
    MAX_DEVICES = 64,
    HOST_ALLOC_FAILED =
        4003, /* CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED: cuDNN 8's ALLOC_FAILED */
    ALLOC_FAILED = 4004, /* CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED */
};

/* cuDNN's handle for one device. Its stream is set before each call, under the lock. */
static struct held {
    void *handle;
    int users;
} held[MAX_DEVICES];
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static struct held *of_device(void)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    int device = 0;
    return rt && !rt->cudaGetDevice(&device) && device >= 0 && device < MAX_DEVICES ? &held[device]
                                                                                    : NULL;
}

/* A handle takes memory of the device, which other processes may have taken. */
static nnc_status no_handle(const nnc_cuda_cudnn *api, int device, int status, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) room = {0};
    const bool memory = status == HOST_ALLOC_FAILED || status == ALLOC_FAILED;
    if (memory)
        nnc_cuda_room(&room, device);
    return nnc_fail0(sink, memory ? NNC_E_FIT : NNC_E_DEVICE, "cuda:%d: cuDNN does not start: %s%s",
        device, api->cudnnGetErrorString(status), nnc_text_str(&room));
}

nnc_status nnc_cudnn_hold(nnc_sink *sink)
{
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, sink);
    struct held *h = of_device();
    int status = 0;
    if (!api || !h)
        return api ? nnc_fail0(sink, NNC_E_DEVICE, "cuDNN needs a current GPU") : NNC_E_DEVICE;
    pthread_mutex_lock(&held_lock);
    if (!h->users)
        status = api->cudnnCreate(&h->handle);
    h->users += !status;
    pthread_mutex_unlock(&held_lock);
    return status ? no_handle(api, (int)(h - held), status, sink) : NNC_OK;
}

void nnc_cudnn_release(void)
{
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    struct held *h = of_device();
    if (!api || !h)
        return;
    pthread_mutex_lock(&held_lock);
    if (h->users > 0 && !--h->users) {
        api->cudnnDestroy(h->handle);
        h->handle = NULL;
    }
    pthread_mutex_unlock(&held_lock);
}

static int run_pack(nnc_cudnn *g, const struct held *h, void *pack)
{
    int status = g->api->cudnnSetStream(h->handle, nnc_cuda_current());
    return status ? status : g->api->cudnnBackendExecute(h->handle, g->plan, pack);
}

nnc_status nnc_cudnn_run(nnc_cudnn *g, int n, const int64_t *id, void *const *ptr, void *work)
{
    struct held *h = of_device();
    void *pack = NULL;
    if (!h || !g->plan)
        return NNC_E_DEVICE;
    int status = g->api->cudnnBackendCreateDescriptor(D_PACK, &pack);
    if (!status)
        status = g->api->cudnnBackendSetAttribute(pack, A_PACK_IDS, T_INT64, n, id);
    if (!status)
        status = g->api->cudnnBackendSetAttribute(pack, A_PACK_POINTERS, T_POINTER, n, ptr);
    if (!status)
        status = g->api->cudnnBackendSetAttribute(pack, A_PACK_WORKSPACE, T_POINTER, 1, &work);
    if (!status)
        status = g->api->cudnnBackendFinalize(pack);
    if (!status) {
        pthread_mutex_lock(&held_lock);
        status = h->handle ? run_pack(g, h, pack) : 1001; /* not initialized */
        pthread_mutex_unlock(&held_lock);
    }
    if (status)
        (void)cudnn_refused(g, status);
    if (pack)
        g->api->cudnnBackendDestroyDescriptor(pack);
    return status ? NNC_E_DEVICE : NNC_OK;
}

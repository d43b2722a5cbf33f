/* engines/cudnn.c -- the engine "cudnn": convolutions on NVIDIA GPUs, and kernels of attention (cudnn_attend.c).
 *
 * choose() goes by rules (cudnn_rule.c), so that a plan is the same on every machine. load_call() asks cuDNN on the device, within the
 * plan's workspace. It takes the plan cached for this call, cuDNN version and GPU, otherwise the heuristics' first configuration that
 * can be finalized. */
#include "engines/cudnn.h"
#include "engines/cudnn_attend.h"
#include "engines/tune.h"
#include <string.h>

nnc_cudnn_filter cudnn_filter_of(const nnc_call *c, int64_t limit)
{
    uint32_t strict = c->src.dtype == DT_f32 && !c->tf32 ? CUDNN_TENSOR_CORE : 0;
    strict |= c->exact ? CUDNN_FFT | CUDNN_WINOGRAD : 0;
    return (nnc_cudnn_filter){.every = strict != 0 && c->kind == CALL_conv,
        .without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC | strict,
        .precompiled = true,
        .workspace_limit = limit};
}

/* ---- the order of configurations --------------------------------------------------------------------------------- */

enum {
    PROMISING = 8,
    SMALL_WORK = 1 << 20
}; /* configurations considered at the head of the list; bytes */

/* The heuristics list slow 16-bit engines before those on tensor cores. */
int cudnn_query(nnc_cudnn *g, nnc_cudnn_filter f)
{
    uint32_t with = f.with;
    f.with |= f.without & CUDNN_TENSOR_CORE ? 0 : CUDNN_TENSOR_CORE;
    int n = nnc_cudnn_query(g, &f);
    if (n || f.with == with)
        return n;
    f.with = with;
    return nnc_cudnn_query(g, &f);
}

static int64_t large_work(const nnc_call *c)
{
    const nnc_type *other = c->kind == CALL_conv_wgrad ? &c->wei : &c->dst; /* activations */
    const int64_t least = nnc_min64(nnc_type_bytes(&c->src), nnc_type_bytes(other));
    return nnc_max64(least / 2, SMALL_WORK);
}

/* Tells whether a configuration relayouts one of the tensors. The workspace of a Winograd or FFT transform does not count. */
static bool copies(const nnc_cudnn_config *k, const nnc_call *c)
{
    return k->workspace > large_work(c) && !(k->numerical & CUDNN_WINOGRAD);
}

/* The implicit product whose offsets lie in a small workspace. It is the only engine for strict f32 that comes near the peak. The
 * heuristics list it last or, with an epilogue, not at all. If they begin with Winograd's algorithm, which sm_90 lacks, that stays first,
 * as it needs fewer FLOPs. */
static bool precomputes(const nnc_cudnn_config *k, const nnc_call *c)
{
    enum { TAPS = 4, CHANNELS = 16 };
    int64_t taps = 1;
    for (int d = 0; d < c->spatial; d++)
        taps *= c->kernel[d];
    return c->kind == CALL_conv && c->src.dtype == DT_f32 && !c->tf32 && taps >= TAPS &&
           c->src.dim[1] / c->groups >= CHANNELS && k->numerical == 0 && k->workspace > 0 &&
           k->workspace <= SMALL_WORK;
}

/* Makes the plan of the first configuration that can be finalized. Promising ones that relayout no tensor come first. Returns its
 * index, -1: none. */
int cudnn_plan_first(nnc_cudnn *g, const nnc_call *c, int n, int64_t limit)
{
    const bool fewer = n > 0 && nnc_cudnn_config_at(g, 0)->numerical & CUDNN_WINOGRAD;
    for (int i = 0; i < n && !fewer; i++)
        if (precomputes(nnc_cudnn_config_at(g, i), c) && nnc_cudnn_plan(g, i, limit) == NNC_OK)
            return i;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n && i < PROMISING; i++)
            if (copies(nnc_cudnn_config_at(g, i), c) == pass &&
                nnc_cudnn_plan(g, i, limit) == NNC_OK)
                return i;
    return nnc_cudnn_plan_first(g, PROMISING, limit);
}

/* ---- cached plans ------------------------------------------------------------------------------------------------- */

/* Everything besides the call that a plan depends on. */
static nnc_hash128 plan_key(const nnc_call *c, int64_t limit)
{
    char library[48];
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    const long long v = api ? (long long)api->cudnnGetVersion() : 0;
    snprintf(library, sizeof library, "cudnn %lld.%lld.%lld", v / 10000, v / 100 % 100, v % 100);
    return nnc_tune_key(library, c, limit);
}

static bool kept_plan(nnc_cudnn *g, nnc_cache *cache, nnc_hash128 key, int64_t limit)
{
    char *text;
    size_t n;
    if (!nnc_cache_get(cache, "cudnn", key, &text, &n))
        return false;
    bool ok = nnc_cudnn_plan_read(g, text, n) == NNC_OK && nnc_cudnn_workspace(g) <= limit;
    nnc_free(text);
    return ok;
}

static void keep_plan(nnc_cudnn *g, nnc_cache *cache, nnc_hash128 key)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_cudnn_plan_text(g, &t);
    if (t.n && !t.oom)
        nnc_cache_put(cache, "cudnn", key, nnc_text_str(&t), t.n);
}

/* ---- load time ---------------------------------------------------------------------------------------------------- */

enum { MAX_ARGS = NNC_MAX_POST + 5 };
_Static_assert(MAX_ARGS <= (int)NNC_TRIAL_ARGS, "one buffer per argument");

typedef struct cudnn_handle {
    attend_handle *attend; /* of a kernel; NULL: of a call */
    nnc_cudnn *g;
    int n_arg; /* of the call; the id beyond is that of the zeros */
    int64_t zero_at, zero_bytes;
    bool held;
} cudnn_handle;

/* Ids of tensors are positions. */
static const int64_t ids[MAX_ARGS + 1] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
_Static_assert(MAX_ARGS == 11, "each position has its id");

enum {
    MEASURED = 16, /* configurations to measure with --tune ... */
    MEASURED_ONCE = 8 /* ... and when a call is first loaded on a GPU */
};

/* A graph being measured: buffers of the arguments' sizes, and one of the result's size for the ids beyond them. */
typedef struct trial {
    nnc_cudnn *g;
    int n_arg, n;
    int order[MEASURED]; /* configurations: those near the peak, then the list's first ones */
    int64_t limit;
    nnc_trial t;
} trial;

static nnc_status run_trial(void *ctx)
{
    const trial *t = ctx;
    return nnc_cudnn_run(t->g, t->n_arg, ids, t->t.arg, t->t.work);
}

static bool take_trial(void *ctx, int i)
{
    const trial *t = ctx;
    return nnc_cudnn_plan(t->g, t->order[i], t->limit) == NNC_OK;
}

static void order_trials(trial *t, const nnc_call *c, int n, int most)
{
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < n && t->n < most; i++)
            if (precomputes(nnc_cudnn_config_at(t->g, i), c) == first)
                t->order[t->n++] = i;
}

/* Makes the plan of the fastest of n configurations, of which the first `most` are measured. NNC_E_DEVICE: none could be measured. */
static nnc_status fastest(
    nnc_cudnn *g, const nnc_call *c, int n, int most, int64_t limit, nnc_tuned *best)
{
    trial t = {.g = g, .n_arg = nnc_call_args(c) + cudnn_adds_zeros(c), .limit = limit};
    const int n_arg = nnc_call_args(c);
    int64_t bytes[MAX_ARGS] = {nnc_type_bytes(&c->src), nnc_type_bytes(&c->wei)};
    for (int i = 2; i <= n_arg; i++)
        bytes[i] = nnc_type_bytes(&c->dst);
    order_trials(&t, c, n, most);
    NNC_TRY(nnc_trial_open(&t.t, (nnc_dtype)c->src.dtype, bytes, n_arg + 1, limit));
    *best = nnc_trial_fastest(&t.t, t.n, take_trial, run_trial, &t);
    nnc_trial_close(&t.t);
    if (best->choice < 0)
        return NNC_E_DEVICE;
    best->choice = t.order[best->choice];
    best->number = nnc_cudnn_config_at(g, best->choice)->engine;
    return nnc_cudnn_plan(g, best->choice, limit);
}

/* Selects the recorded configuration, or the fastest measured one. NNC_E_DEVICE: use the list's order. */
static nnc_status tuned(
    nnc_cudnn *g, const nnc_call *c, int n, int64_t limit, nnc_hash128 key, nnc_sink *sink)
{
    nnc_tuned t;
    if (!nnc_tune_find(c->env->tuning, key, &t)) {
        if (!nnc_tune_measures(c->env->tuning))
            return NNC_E_DEVICE;
        NNC_TRY(fastest(g, c, n, MEASURED, limit, &t));
        return nnc_tune_record(c->env->tuning, key, "cudnn", &t, sink);
    }
    bool same = t.choice < n && nnc_cudnn_config_at(g, t.choice)->engine == t.number;
    return same ? nnc_cudnn_plan(g, t.choice, limit) : NNC_E_DEVICE;
}

/* True for convolutions in strict f32 and their gradients, whose engines cuDNN lists in an order that is wrong for many shapes (H200:
 * factors of two). Without a cache, each load would have its own choice. */
static bool is_measured_once(const nnc_call *c)
{
    return c->src.dtype == DT_f32 && !c->tf32 && nnc_cache_writable(c->env->cache);
}

/* Selects the configuration that was the fastest when such a call was first loaded on such a GPU. NNC_E_DEVICE: use the list's order. */
static nnc_status measured_once(
    nnc_cudnn *g, const nnc_call *c, int n, int64_t limit, nnc_hash128 key)
{
    int64_t kept[2]; /* index in the list, engine */
    nnc_tuned t;
    nnc_cache *cache = c->env->cache;
    if (nnc_cache_read(cache, "engine", key, kept, sizeof kept, 1) && kept[0] >= 0 && kept[0] < n &&
        nnc_cudnn_config_at(g, (int)kept[0])->engine == kept[1])
        return nnc_cudnn_plan(g, (int)kept[0], limit);
    NNC_TRY(fastest(g, c, n, MEASURED_ONCE, limit, &t));
    nnc_cache_put(cache, "engine", key, (int64_t[]){t.choice, t.number}, sizeof kept);
    return NNC_OK;
}

/* Builds the call's graph on the current device and makes its plan. */
static nnc_status settle(nnc_cudnn **out, const nnc_call *c, int64_t limit, nnc_sink *sink)
{
    NNC_TRY(nnc_cudnn_create(NULL, out, sink));
    nnc_cudnn *g = *out;
    nnc_hash128 key = plan_key(c, limit);
    nnc_cudnn_filter filter = cudnn_filter_of(c, limit);
    nnc_tuned known;
    bool tunes = nnc_tune_measures(c->env->tuning) || nnc_tune_find(c->env->tuning, key, &known);
    if (!tunes && kept_plan(g, c->env->cache, key, limit))
        return NNC_OK;
    cudnn_describe(g, c);
    filter.every |= is_measured_once(c);
    nnc_status status = nnc_cudnn_finish(g);
    int n = status ? 0 : cudnn_query(g, filter);
    if (n < 0 || status == NNC_E_NOMEM)
        return nnc_nomem(sink);
    status = NNC_E_DEVICE;
    const bool measures = !tunes && n > 1 && is_measured_once(c);
    if (n > 0 && tunes)
        status = tuned(g, c, n, limit, key, sink);
    else if (measures)
        status = measured_once(g, c, n, limit, key);
    if (status != NNC_OK && status != NNC_E_DEVICE)
        return status;
    if (status && (n == 0 || cudnn_plan_first(g, c, n, limit) < 0))
        return nnc_fail0(sink, NNC_E_DEVICE,
            "cuDNN has no plan for a convolution of the model with %lld bytes of workspace: %s",
            (long long)limit, nnc_cudnn_why(g));
    if (!tunes && !(measures && status)) /* not measured, for lack of memory: next time */
        keep_plan(g, c->env->cache, key);
    return NNC_OK;
}

static void cudnn_unload(void *handle)
{
    NNC_FREED cudnn_handle *h = handle;
    attend_unload(h->attend);
    nnc_cudnn_destroy(h->g);
    if (h->held)
        nnc_cudnn_release();
}

static nnc_status prepare_call(cudnn_handle *h, const nnc_call *c, nnc_sink *sink)
{
    const char *why = "not supported";
    if (!cudnn_supports(c, &why))
        return nnc_fail0(sink, NNC_E_DEVICE, "engine cudnn cannot run a call of the plan: %s", why);
    h->n_arg = nnc_call_args(c);
    h->zero_bytes = cudnn_zero_bytes(c);
    h->zero_at = (c->work_bytes - h->zero_bytes) / CUDNN_ALIGN * CUDNN_ALIGN;
    if (c->work_bytes < h->zero_bytes)
        return nnc_fail0(
            sink, NNC_E_MODEL, "the workspace of a convolution in the plan is too small");
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    if (api)
        NNC_TRY(nnc_library_supports("cudnn", (int64_t)api->cudnnGetVersion(), sink));
    NNC_TRY(nnc_cudnn_hold(sink));
    h->held = true;
    return settle(&h->g, c, h->zero_bytes ? h->zero_at : c->work_bytes, sink);
}

static nnc_status cudnn_load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    nnc_call c = nnc_load_call(l);
    cudnn_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_status status = prepare_call(h, &c, sink);
    if (status) {
        cudnn_unload(h);
        return status;
    }
    *handle = h;
    return NNC_OK;
}

/* Kernels of attention, with the machine code that stands by for them. */
static nnc_status cudnn_load_kernel(const nnc_load *l, void **handle, nnc_sink *sink)
{
    cudnn_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_status status = attend_load(l, &h->attend, sink);
    if (status) {
        cudnn_unload(h);
        return status;
    }
    *handle = h;
    return NNC_OK;
}

static nnc_status cudnn_load_object(
    const nnc_plan *p, const nnc_blob *b, void **object, nnc_sink *sink)
{
    return nnc_engine_cuda.load_object(p, b, object, sink);
}

static void cudnn_unload_object(void *object)
{
    nnc_engine_cuda.unload_object(object);
}

static nnc_status cudnn_run(void *handle, void *const *args, void *work)
{
    const cudnn_handle *h = handle;
    if (h->attend)
        return attend_run(h->attend, args, work);
    if (!h->zero_bytes)
        return nnc_cudnn_run(h->g, h->n_arg, ids, args, work);
    void *all[MAX_ARGS + 1];
    memcpy(all, args, (size_t)h->n_arg * sizeof *all);
    all[h->n_arg] = (char *)work + h->zero_at;
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    if (!rt || rt->cudaMemsetAsync(all[h->n_arg], 0, (size_t)h->zero_bytes, nnc_cuda_current()))
        return NNC_E_DEVICE;
    return nnc_cudnn_run(h->g, h->n_arg + 1, ids, all, work);
}

const nnc_engine nnc_engine_cudnn = {
    .name = "cudnn",
    .version = "9",
    .choose = cudnn_choose,
    .load_call = cudnn_load,
    .load_kernel = cudnn_load_kernel,
    .load_object = cudnn_load_object,
    .unload_object = cudnn_unload_object,
    .run = cudnn_run,
    .unload = cudnn_unload,
};

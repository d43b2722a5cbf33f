/* engines/cudnn.c -- the engine "cudnn": convolutions on NVIDIA GPUs, and kernels of attention (cudnn_attend.c).
 *
 * choose() asks cuDNN about the target's GPU, which need not be present, and accepts precompiled engines only, so that the answer does
 * not depend on a driver. It fixes the workspace. Without cuDNN, by_rule() decides from what cuDNN 9 is known to support, with the
 * largest workspace allowed, and the reason says so.
 *
 * Where the call allows runtime compilation (-O3), epilogues that no precompiled engine supports are offered to cuDNN's
 * runtime-compiled engines: as one graph, on tensor cores only (the other engines that accept it, 0 and 8, are slow). Making such a
 * plan takes a second, so choose() asks the heuristics without making one, and only where the driver's library is present, since these
 * engines need it. If no listed configuration can be finalized at load time, the call falls back to a precompiled convolution and a
 * second kernel for the epilogue.
 *
 * load_call() selects the algorithm on the device, within that workspace: the plan cached for this call, cuDNN version and GPU,
 * otherwise the first configuration of the heuristics that can be finalized. */
#include "engines/cudnn.h"
#include "engines/cudnn_attend.h"
#include "engines/tune.h"
#include "target/target.h"
#include <stdatomic.h>
#include <string.h>

enum { WORK_ALIGN = 256 };

static _Thread_local char reason[256], apart[256]; /* copied by the plan */
static _Atomic(const void *)
    mute; /* a cuDNN that cannot be asked, so that the failure is not repeated for each call */

/* The activations beside the source: the result, or its gradient. */
static const nnc_type *other_of(const nnc_call *c)
{
    return c->kind == CALL_conv_wgrad ? &c->wei : &c->dst;
}

/* cuDNN may relayout both tensors, and use 32 MiB besides. */
static int64_t workspace_limit(const nnc_call *c)
{
    return nnc_type_bytes(&c->src) + nnc_type_bytes(other_of(c)) + (INT64_C(32) << 20);
}

static int64_t zero_bytes(const nnc_call *c, const cudnn_lowering *w)
{
    return w->zero_bias ? c->dst.dim[1] * nnc_dtype_size((nnc_dtype)c->dst.dtype) : 0;
}

nnc_cudnn_filter cudnn_filter_of(const nnc_call *c, const cudnn_lowering *w, int64_t limit)
{
    uint32_t strict = c->src.dtype == DT_f32 && !c->tf32 ? CUDNN_TENSOR_CORE : 0;
    strict |= c->exact ? CUDNN_FFT | CUDNN_WINOGRAD : 0;
    return (nnc_cudnn_filter){.with = w->whole ? CUDNN_TENSOR_CORE : 0,
        .every = strict != 0 && c->kind == CALL_conv && !w->whole,
        .without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC | strict,
        .precompiled = !w->whole,
        .workspace_limit = limit};
}

/* ---- compile time ------------------------------------------------------------------------------------------------- */

static const char *precision(const nnc_call *c)
{
    return c->src.dtype != DT_f32 ? "" : c->tf32 ? ", tf32 allowed" : ", strict f32";
}

static int64_t version(void)
{
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    return api ? (int64_t)api->cudnnGetVersion() : 0;
}

static void version_text(int64_t v, char out[32])
{
    snprintf(out, 32, "%lld.%lld.%lld", (long long)(v / 10000), (long long)(v / 100 % 100),
        (long long)(v % 100));
}

static void take(const nnc_call *c, const cudnn_lowering *w, nnc_choice *out, int64_t workspace)
{
    out->ok = true;
    out->compiled = w->whole;
    out->workspace_bytes =
        w->zero_bias ? nnc_align_up(workspace, WORK_ALIGN) + zero_bytes(c, w) : workspace;
    out->reason = reason;
}

/* The answer without cuDNN: all three types, bf16 from sm_80 on (golden table of tests/cudnn). */
static void by_rule(const nnc_call *c, const cudnn_lowering *w, nnc_choice *out)
{
    if (c->env->target->sm < 75 || (c->src.dtype == DT_bf16 && c->env->target->sm < 80)) {
        snprintf(reason, sizeof reason, "cuDNN 9 does not support %s convolutions on sm_%d",
            nnc_dtype_name((nnc_dtype)c->src.dtype), c->env->target->sm);
        out->reason = reason;
        return;
    }
    snprintf(reason, sizeof reason,
        "cudnn by rule%s: %s; its engine is selected when the plan is loaded", precision(c),
        NNC_CUDA(cudnn, NULL) ? "this cuDNN needs a driver to be asked" : "libcudnn is missing");
    take(c, w, out, workspace_limit(c));
}

/* Turns cuDNN's answer into the plan's choice. */
static void settle_choice(
    const nnc_call *c, const cudnn_lowering *w, const cudnn_answer *a, nnc_choice *out)
{
    char v[32];
    version_text(a->version, v);
    if (!a->ok) {
        snprintf(
            reason, sizeof reason, "cuDNN declines on sm_%d: %.180s", c->env->target->sm, a->why);
        out->reason = reason;
        return;
    }
    snprintf(reason, sizeof reason, "cudnn %s: engine %lld%s%s%s%s%s", v, (long long)a->engine,
        a->numerical & CUDNN_TENSOR_CORE ? ", tensor cores" : "",
        a->numerical & CUDNN_WINOGRAD ? ", Winograd" : "", a->fallback ? ", a fallback" : "",
        precision(c),
        w->whole       ? "; one kernel with its epilogue, compiled when loaded"
        : w->split     ? "; its epilogue is a second kernel, compiled when loaded"
        : w->zero_bias ? "; with a bias of zeros"
                       : "");
    take(c, w, out, a->workspace);
}

enum {
    PROMISING = 8,
    SMALL_WORK = 1 << 20
}; /* configurations considered at the head of the list; bytes */

/* Lists configurations; where some use tensor cores, only those, since the heuristics list slow 16-bit engines before them. Returns
 * their number, -1: out of memory. */
static int query(nnc_cudnn *g, nnc_cudnn_filter f)
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
    int64_t least = nnc_min64(nnc_type_bytes(&c->src), nnc_type_bytes(other_of(c)));
    return nnc_max64(least / 2, SMALL_WORK);
}

/* Tells whether a configuration relayouts one of the tensors. The workspace of a Winograd or FFT transform does not count. */
static bool copies(const nnc_cudnn_config *k, const nnc_call *c)
{
    return k->workspace > large_work(c) && !(k->numerical & CUDNN_WINOGRAD);
}

/* The implicit product whose offsets lie in a small workspace: of the engines for strict f32 it is the one that comes near the peak, and
 * the heuristics list it last or, with an epilogue, not at all. (H200, VGG-16's convolutions: the listed ones reach 28 TFLOP/s, PyTorch's
 * choice among the rest 58.) Where they begin with Winograd's algorithm, which needs fewer FLOPs and which sm_90
 * lacks, that stays first. */
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

/* Makes the plan of the first configuration that can be finalized, of the promising ones preferring those that relayout no tensor.
 * Returns its index, -1: none. */
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

/* Workspace of a call whose configuration needs `chosen` bytes: enough for the other promising configurations, except those that need
 * much more, since the device may prefer one of them. */
static int64_t workspace_of(const nnc_cudnn *g, const nnc_call *c, int n, int64_t chosen)
{
    int64_t enough = nnc_max64(chosen, large_work(c)), most = nnc_max64(chosen, SMALL_WORK);
    for (int k = 0; k < n && k < PROMISING; k++)
        if (nnc_cudnn_config_at(g, k)->workspace <= enough)
            most = nnc_max64(most, nnc_cudnn_config_at(g, k)->workspace);
    return most;
}

/* Asks the open cuDNN. NNC_E_DEVICE: it cannot be asked here. */
static nnc_status ask(const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f,
    cudnn_answer *a, nnc_sink *sink)
{
    nnc_cudnn_device d;
    nnc_cudnn *g;
    cudnn_device_of(c->env->target, &d);
    nnc_status status = nnc_cudnn_create(&d, &g, NULL);
    if (status)
        return status == NNC_E_NOMEM ? nnc_nomem(sink) : status;
    cudnn_describe_core(g, c, w);
    status = nnc_cudnn_finish(g);
    int n = status ? 0 : query(g, *f), i = n <= 0 ? -1
                                           : w->whole
                                               ? 0
                                               : cudnn_plan_first(g, c, n, f->workspace_limit);
    *a = (cudnn_answer){.ok = i >= 0, .version = version()};
    if (n < 0 || status == NNC_E_NOMEM) {
        status = nnc_nomem(sink);
    } else if (i >= 0) {
        const nnc_cudnn_config *k = nnc_cudnn_config_at(g, i);
        a->engine = k->engine;
        a->numerical = k->numerical;
        a->fallback = k->fallback;
        a->workspace = workspace_of(g, c, n, w->whole ? k->workspace : nnc_cudnn_workspace(g));
    } else {
        snprintf(a->why, sizeof a->why, "%.180s", nnc_cudnn_why(g));
        status = status == NNC_E_DEVICE ? NNC_OK : status;
    }
    nnc_cudnn_destroy(g);
    return status;
}

/* Returns the cached answer, otherwise asks cuDNN. NNC_E_DEVICE: neither. */
static nnc_status answer(
    const nnc_call *c, const cudnn_lowering *w, cudnn_answer *a, nnc_sink *sink)
{
    const nnc_cudnn_filter f = cudnn_filter_of(c, w, workspace_limit(c));
    if (cudnn_answer_load(c, w, &f, a))
        return NNC_OK;
    const void *api = NNC_CUDA(cudnn, NULL);
    if (!api || api == atomic_load(&mute) || (w->whole && !NNC_CUDA(driver, NULL)))
        return NNC_E_DEVICE;
    nnc_status st = ask(c, w, &f, a, sink);
    if (st == NNC_E_DEVICE)
        atomic_store(&mute, api);
    if (st == NNC_OK)
        cudnn_answer_store(c, w, &f, a);
    return st;
}

/* Sets *out when a runtime-compiled engine supports the whole call. Its workspace is large enough for the fallback too. */
static nnc_status choose_whole(
    const nnc_call *c, const cudnn_answer *parts, nnc_choice *out, nnc_sink *sink)
{
    cudnn_lowering whole;
    cudnn_answer a;
    if (!c->compiled || !cudnn_lower_whole(c, &whole))
        return NNC_OK;
    nnc_status st = answer(c, &whole, &a, sink);
    out->apart = apart;
    if (st == NNC_E_DEVICE)
        snprintf(apart, sizeof apart, "cuDNN cannot compile a kernel here: %s",
            NNC_CUDA(cudnn, NULL) ? "the GPU driver's library (libcuda.so.1) is missing"
                                  : "libcudnn is missing");
    else if (!st && !a.ok)
        snprintf(apart, sizeof apart,
            "cuDNN has no runtime-compiled engine for it on sm_%d: %.180s", c->env->target->sm,
            a.why);
    if (st || !a.ok)
        return st == NNC_E_DEVICE ? NNC_OK : st;
    out->apart = NULL;
    a.workspace = nnc_max64(a.workspace, parts->workspace);
    settle_choice(c, &whole, &a, out);
    return NNC_OK;
}

static nnc_status cudnn_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    cudnn_lowering w;
    cudnn_answer a;
    *out = (nnc_choice){.reason = "cuDNN needs an NVIDIA GPU"};
    if (!c->env || c->env->target->kind != NNC_T_cuda || !cudnn_lower(c, &w, &out->reason))
        return NNC_OK;
    out->reason = "cuDNN uses unpacked weights";
    if (c->packed)
        return NNC_OK; /* asked again without packing */
    nnc_status st = answer(c, &w, &a, sink);
    if (st && st != NNC_E_DEVICE)
        return st;
    bool asked = st == NNC_OK;
    if (!asked)
        a = (cudnn_answer){.ok = true, .workspace = workspace_limit(c)};
    if (a.ok)
        NNC_TRY(choose_whole(c, &a, out, sink));
    if (!out->ok && asked)
        settle_choice(c, &w, &a, out);
    else if (!out->ok)
        by_rule(c, &w, out);
    return NNC_OK;
}

/* ---- cached plans ------------------------------------------------------------------------------------------------- */

/* Everything besides the call that a plan depends on. */
static nnc_hash128 plan_key(const nnc_call *c, const cudnn_lowering *w, bool tail, int64_t limit)
{
    char v[32], library[48];
    version_text(version(), v);
    snprintf(library, sizeof library, "cudnn %s%s", v, tail ? " tail" : w->whole ? " whole" : "");
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
    nnc_cudnn *core, *tail; /* tail NULL: one graph */
    int n_arg; /* of the call; ids beyond are zeros (core) or the result (tail) */
    uint32_t core_used, tail_used;
    int64_t zero_at, zero_bytes;
    bool held;
} cudnn_handle;

typedef enum part { CORE, TAIL } part;

/* Packs the used ids of 0..n-1. */
static int pack_ids(uint32_t used, int n, void *const *from, int64_t *id, void **ptr)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (used >> i & 1) {
            id[k] = i;
            ptr[k++] = from[i];
        }
    return k;
}

/* A graph being measured: buffers of the arguments' sizes, and one of the result's size for the ids beyond them. */
typedef struct trial {
    nnc_cudnn *g;
    uint32_t used;
    nnc_trial t;
} trial;

static nnc_status run_trial(void *ctx)
{
    const trial *t = ctx;
    int64_t id[MAX_ARGS];
    void *ptr[MAX_ARGS];
    return nnc_cudnn_run(t->g, pack_ids(t->used, t->t.n, t->t.arg, id, ptr), id, ptr, t->t.work);
}

static nnc_status open_trial(trial *t, const nnc_call *c, int64_t work)
{
    int n = cudnn_n_args(c);
    int64_t bytes[MAX_ARGS] = {nnc_type_bytes(&c->src), nnc_type_bytes(&c->wei)};
    for (int i = 2; i <= n; i++)
        bytes[i] = nnc_type_bytes(&c->dst);
    return nnc_trial_open(&t->t, bytes, n + 1, work, NULL);
}

enum { MEASURED = 16 }; /* configurations to measure; the promising ones are listed first */

/* Selects and records the fastest of n configurations. NNC_E_DEVICE: none could be measured. */
static nnc_status fastest(
    trial *t, const nnc_call *c, int n, int64_t limit, nnc_hash128 key, nnc_sink *sink)
{
    nnc_tuned best = {.choice = -1};
    NNC_TRY(open_trial(t, c, limit));
    for (int i = 0; i < n && i < MEASURED; i++) {
        if (nnc_cudnn_plan(t->g, i, limit) != NNC_OK)
            continue;
        int64_t ns = nnc_trial_ns(run_trial, t, best.choice < 0 ? 0 : best.ns);
        if (ns >= 0 && (best.choice < 0 || ns < best.ns))
            best = (nnc_tuned){i, nnc_cudnn_config_at(t->g, i)->engine, ns};
    }
    nnc_trial_close(&t->t);
    if (best.choice < 0)
        return NNC_E_DEVICE;
    NNC_TRY(nnc_tune_record(c->env->tuning, key, "cudnn", &best, sink));
    return nnc_cudnn_plan(t->g, best.choice, limit);
}

/* Selects the recorded configuration, or the fastest measured one. NNC_E_DEVICE: use the list's order. */
static nnc_status tuned(nnc_cudnn *g, const nnc_call *c, const cudnn_lowering *w, int n,
    int64_t limit, nnc_hash128 key, nnc_sink *sink)
{
    nnc_tuned t;
    trial run = {.g = g, .used = cudnn_used_ids(c, w, false)};
    if (!nnc_tune_find(c->env->tuning, key, &t))
        return nnc_tune_measures(c->env->tuning) ? fastest(&run, c, n, limit, key, sink)
                                                 : NNC_E_DEVICE;
    bool same = t.choice < n && nnc_cudnn_config_at(g, t.choice)->engine == t.number;
    return same ? nnc_cudnn_plan(g, t.choice, limit) : NNC_E_DEVICE;
}

/* Builds the graph of a part on the current device and makes its plan. */
static nnc_status settle(nnc_cudnn **out, const nnc_call *c, const cudnn_lowering *w, part what,
    int64_t limit, nnc_sink *sink)
{
    NNC_TRY(nnc_cudnn_create(NULL, out, sink));
    nnc_cudnn *g = *out;
    nnc_hash128 key = plan_key(c, w, what == TAIL, limit);
    nnc_cudnn_filter f = cudnn_filter_of(c, w, limit);
    nnc_tuned known;
    bool tunes = what == CORE &&
                 (nnc_tune_measures(c->env->tuning) || nnc_tune_find(c->env->tuning, key, &known));
    if (!tunes && kept_plan(g, c->env->cache, key, limit))
        return NNC_OK;
    if (what == CORE)
        cudnn_describe_core(g, c, w);
    else
        cudnn_describe_tail(g, c);
    if (what ==
        TAIL) /* elementwise: always runtime-compiled, and has no contraction whose precision matters */
        f = (nnc_cudnn_filter){.workspace_limit = limit};
    nnc_status status = nnc_cudnn_finish(g);
    int n = status ? 0 : query(g, f);
    if (n < 0 || status == NNC_E_NOMEM)
        return nnc_nomem(sink);
    status = n > 0 && tunes ? tuned(g, c, w, n, limit, key, sink) : NNC_E_DEVICE;
    if (status != NNC_E_DEVICE)
        return status;
    if (n == 0 || cudnn_plan_first(g, c, n, limit) < 0)
        return w->whole ? NNC_E_DEVICE
                        : nnc_fail0(sink, NNC_E_DEVICE,
                              "cuDNN has no plan for a convolution of the model with %lld bytes of "
                              "workspace: %s",
                              (long long)limit, nnc_cudnn_why(g));
    if (!tunes)
        keep_plan(g, c->env->cache, key);
    return NNC_OK;
}

/* A runtime-compiled plan takes 0.4 to 3 s. One after another where algorithms are measured. */
static bool cudnn_compiles(const nnc_call *c)
{
    return c->compiled && !nnc_tune_measures(c->env->tuning);
}

static void cudnn_unload(void *handle)
{
    NNC_FREED cudnn_handle *h = handle;
    attend_unload(h->attend);
    nnc_cudnn_destroy(h->core);
    nnc_cudnn_destroy(h->tail);
    if (h->held)
        nnc_cudnn_release();
}

/* Prepares the call as one runtime-compiled kernel. *done false: no configuration can be finalized here; a note says so. */
static nnc_status prepare_whole(cudnn_handle *h, const nnc_call *c, bool *done, nnc_sink *sink)
{
    cudnn_lowering w;
    *done = false;
    if (!c->compiled || !cudnn_lower_whole(c, &w))
        return NNC_OK;
    h->core_used = cudnn_used_ids(c, &w, false);
    nnc_status st = settle(&h->core, c, &w, CORE, c->work_bytes, sink);
    *done = st == NNC_OK;
    if (st != NNC_E_DEVICE || !h->core)
        return st;
    nnc_note(sink, (nnc_loc){0},
        "cuDNN cannot compile a convolution of the model with its epilogue (%s): "
        "the epilogue runs as a second kernel",
        nnc_cudnn_why(h->core));
    nnc_cudnn_destroy(h->core);
    h->core = NULL;
    return NNC_OK;
}

static nnc_status prepare(cudnn_handle *h, const nnc_call *c, nnc_sink *sink)
{
    const char *why = "the weights are packed for another engine";
    cudnn_lowering w;
    bool whole;
    if (c->packed || !cudnn_lower(c, &w, &why))
        return nnc_fail0(sink, NNC_E_DEVICE, "engine cudnn cannot run a call of the plan: %s", why);
    h->n_arg = cudnn_n_args(c);
    h->tail_used = cudnn_used_ids(c, &w, true);
    h->zero_bytes = zero_bytes(c, &w);
    h->zero_at = (c->work_bytes - h->zero_bytes) / WORK_ALIGN * WORK_ALIGN;
    if (c->work_bytes < h->zero_bytes)
        return nnc_fail0(
            sink, NNC_E_MODEL, "the workspace of a convolution in the plan is too small");
    NNC_TRY(nnc_cudnn_hold(sink));
    h->held = true;
    NNC_TRY(prepare_whole(h, c, &whole, sink));
    if (whole)
        return NNC_OK;
    h->core_used = cudnn_used_ids(c, &w, false);
    NNC_TRY(settle(&h->core, c, &w, CORE, h->zero_bytes ? h->zero_at : c->work_bytes, sink));
    return w.split ? settle(&h->tail, c, &w, TAIL, c->work_bytes, sink) : NNC_OK;
}

static nnc_status cudnn_load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    nnc_call c = nnc_load_call(l);
    cudnn_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_status status = prepare(h, &c, sink);
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
    void *all[MAX_ARGS], *ptr[MAX_ARGS];
    int64_t id[MAX_ARGS];
    int n = h->n_arg;
    memcpy(all, args, (size_t)n * sizeof *all);
    all[n] = h->zero_bytes ? (char *)work + h->zero_at : args[n - 1];
    if (h->zero_bytes) {
        const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
        if (!rt || rt->cudaMemsetAsync(all[n], 0, (size_t)h->zero_bytes, nnc_cuda_current()))
            return NNC_E_DEVICE;
    }
    int k = pack_ids(h->core_used, n + 1, all, id, ptr);
    NNC_TRY(nnc_cudnn_run(h->core, k, id, ptr, work));
    if (!h->tail)
        return NNC_OK;
    k = pack_ids(h->tail_used, n + 1, all, id, ptr);
    return nnc_cudnn_run(h->tail, k, id, ptr, work);
}

const nnc_engine nnc_engine_cudnn = {
    .name = "cudnn",
    .version = "9",
    .choose = cudnn_choose,
    .load_call = cudnn_load,
    .load_kernel = cudnn_load_kernel,
    .load_object = cudnn_load_object,
    .unload_object = cudnn_unload_object,
    .compiles = cudnn_compiles,
    .run = cudnn_run,
    .unload = cudnn_unload,
};

/* engines/cudnn.c -- the engine "cudnn": convolutions on NVIDIA GPUs.
 *
 * choose() asks cuDNN about the target's GPU, which need not be there, and lets in only engines that are compiled already: so the
 * answer is the same with a driver and without one. It fixes the workspace. Where there is no cuDNN at all, the rule below stands in
 * for it (what cuDNN 9 is known to compute, with all the workspace that it may have) and the reason says so.
 *
 * load_call() settles the algorithm on the device, within that workspace: the plan that is kept for this call, cuDNN's version and
 * GPU, else the first of the heuristics' list that becomes a plan. */
#include "engines/cudnn.h"
#include "engines/engines.h"
#include "target/target.h"
#include <string.h>

enum { WORK_ALIGN = 256 };

static _Thread_local char reason[256]; /* the plan maker copies it */

/* cuDNN may copy both tensors into an order of its own, and take 32 MiB besides. */
static int64_t workspace_limit(const nnc_call *c)
{
    return nnc_type_bytes(&c->src) + nnc_type_bytes(&c->dst) + (INT64_C(32) << 20);
}

static int64_t zero_bytes(const nnc_call *c, const dn_way *w)
{
    return w->zero_bias ? c->dst.dim[1] * nnc_dtype_size((nnc_dtype)c->dst.dtype) : 0;
}

static nnc_cudnn_filter filter_of(const nnc_call *c, int64_t limit)
{
    uint32_t strict = c->src.dtype == DT_f32 && !c->tf32 ? CUDNN_TENSOR_CORE : 0;
    return (nnc_cudnn_filter){.without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC | strict,
        .precompiled = true,
        .workspace_limit = limit};
}

/* ---- compile time -------------------------------------------------------------------------------------------------- */

static int64_t time_ns(const nnc_call *c)
{
    const nnc_target *t = c->target;
    const nnc_target_engine *row = nnc_target_engine_named(t, "cudnn");
    double points = (double)nnc_type_numel(c->kind == CALL_conv ? &c->dst : &c->src);
    for (int d = 1; d < c->wei.rank; d++)
        points *= (double)c->wei.dim[d];
    double peak = (double)nnc_target_peak_flops(t, (nnc_dtype)c->src.dtype) *
                  (row && row->efficiency > 0 ? row->efficiency : 1);
    double bytes =
        (double)(nnc_type_bytes(&c->src) + nnc_type_bytes(&c->wei)) +
        (double)nnc_type_bytes(&c->dst) * (c->n_post && c->post[0].kind == PO_sum ? 2 : 1);
    double compute = 2 * points / peak * 1e9, move = bytes / (double)t->copy_bytes_s * 1e9;
    return (int64_t)(compute > move ? compute : move) + t->launch_ns;
}

static const char *precision(const nnc_call *c)
{
    return c->src.dtype != DT_f32 ? "" : c->tf32 ? ", tf32 allowed" : ", strict f32";
}

static void version(char out[24])
{
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    size_t v = api ? api->cudnnGetVersion() : 0;
    snprintf(out, 24, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

static void take(const nnc_call *c, const dn_way *w, nnc_choice *out, int64_t workspace)
{
    out->ok = true;
    out->workspace_bytes =
        w->zero_bias ? nnc_align_up(workspace, WORK_ALIGN) + zero_bytes(c, w) : workspace;
    out->time_ns = time_ns(c);
    out->reason = reason;
}

/* Without cuDNN: all three types, bf16 from sm_80 on (golden table of tests/cudnn). */
static void by_rule(const nnc_call *c, const dn_way *w, nnc_choice *out)
{
    if (c->target->sm < 75 || (c->src.dtype == DT_bf16 && c->target->sm < 80)) {
        snprintf(reason, sizeof reason, "cuDNN 9 does not convolve %s on sm_%d",
            nnc_dtype_name((nnc_dtype)c->src.dtype), c->target->sm);
        out->reason = reason;
        return;
    }
    snprintf(reason, sizeof reason,
        "cudnn by rule%s: libcudnn is not here to be asked; its engine is settled when the plan is "
        "loaded",
        precision(c));
    take(c, w, out, workspace_limit(c));
}

static void say(const nnc_cudnn *g, int i, const nnc_call *c, const dn_way *w)
{
    const nnc_cudnn_config *k = nnc_cudnn_config_at(g, i);
    char v[24];
    version(v);
    snprintf(reason, sizeof reason, "cudnn %s: engine %lld%s%s%s%s%s", v, (long long)k->engine,
        k->numerical & CUDNN_TENSOR_CORE ? ", tensor cores" : "",
        k->numerical & CUDNN_WINOGRAD ? ", Winograd" : "", k->fallback ? ", a fallback" : "",
        precision(c),
        w->split       ? "; what follows is a second kernel, compiled when loaded"
        : w->zero_bias ? "; behind a bias of zeros"
                       : "");
}

static nnc_status ask(const nnc_call *c, const dn_way *w, nnc_choice *out, nnc_sink *sink)
{
    const nnc_target *t = c->target;
    const nnc_cudnn_device d = {.name = t->card,
        .sm = t->sm,
        .sms = t->sms,
        .sm_threads = t->sm_threads,
        .memory_bytes = t->memory_bytes,
        .shared_bytes = t->shared_bytes,
        .l2_bytes = t->l3_bytes,
        .clock_hz = t->clock_hz};
    nnc_cudnn *g = nnc_cudnn_create(&d, sink);
    if (!g)
        return nnc_sink_cause(sink, NNC_E_DEVICE);
    const int64_t limit = workspace_limit(c);
    const nnc_cudnn_filter f = filter_of(c, limit);
    dn_describe_core(g, c, w);
    nnc_status status = nnc_cudnn_finish(g);
    int n = status ? 0 : nnc_cudnn_query(g, &f), i = n > 0 ? nnc_cudnn_plan_first(g, 0, limit) : -1;
    if (n < 0 || status == NNC_E_NOMEM)
        status = NNC_E_NOMEM;
    else if (i >= 0) {
        say(g, i, c, w);
        take(c, w, out, nnc_cudnn_workspace(g));
        status = NNC_OK;
    } else if (status == NNC_OK || status == NNC_E_DEVICE) {
        snprintf(reason, sizeof reason, "cuDNN declines on sm_%d: %.180s", t->sm, nnc_cudnn_why(g));
        out->reason = reason;
        status = NNC_OK;
    }
    nnc_cudnn_destroy(g);
    return status;
}

static nnc_status cudnn_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    dn_way w;
    *out = (nnc_choice){.reason = "cuDNN runs on NVIDIA GPUs"};
    if (!c->target || c->target->kind != NNC_T_cuda || !dn_way_of(c, &w, &out->reason))
        return NNC_OK;
    out->reason = "cuDNN packs no weights";
    if (c->packed)
        return NNC_OK; /* asked again without */
    if (NNC_CUDA(cudnn, NULL))
        return ask(c, &w, out, sink);
    by_rule(c, &w, out);
    return NNC_OK;
}

/* ---- plans that are kept ------------------------------------------------------------------------------------------- */

/* What a plan's text depends on: cuDNN, the GPU, the graph, what it may use. */
static nnc_hash128 plan_key(const nnc_call *c, const dn_way *w, bool tail, int64_t limit)
{
    nnc_text t = {0};
    char v[24];
    nnc_cuda_device d[64];
    int device = 0, n = nnc_cuda_devices(d, 64, NULL);
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    version(v);
    if (rt && !rt->cudaGetDevice(&device) && device < n)
        nnc_printf(&t, "%s sm=%d sms=%d ", d[device].name, d[device].sm, d[device].sms);
    nnc_printf(&t, "cudnn %s limit=%lld %d%d%d tf32=%d ", v, (long long)limit, w->split, tail,
        w->zero_bias, c->tf32);
    nnc_printf(&t, "kind=%d groups=%lld bias=%d ", c->kind, (long long)c->groups, c->has_bias);
    nnc_put_type(&t, &c->src);
    nnc_put_type(&t, &c->wei);
    nnc_put_type(&t, &c->dst);
    for (int i = 0; i < c->spatial; i++)
        nnc_printf(&t, " %lld,%lld,%lld,%lld", (long long)c->kernel[i], (long long)c->stride[i],
            (long long)c->dilation[i], (long long)c->pad_lo[i]);
    for (int i = 0; i < c->n_post; i++)
        nnc_printf(&t, " post %d %a %a", c->post[i].kind, (double)c->post[i].alpha,
            (double)c->post[i].beta);
    nnc_hash128 h = nnc_hash(nnc_text_str(&t), t.n);
    if (t.oom)
        h = (nnc_hash128){0};
    nnc_text_deinit(&t);
    return h;
}

static bool kept_plan(nnc_cudnn *g, nnc_hash128 key, int64_t limit)
{
    char *text;
    size_t n;
    if (!nnc_engines_kept("cudnn", key, &text, &n))
        return false;
    bool ok = nnc_cudnn_plan_read(g, text, n) == NNC_OK && nnc_cudnn_workspace(g) <= limit;
    nnc_free(text);
    return ok;
}

static void keep_plan(nnc_cudnn *g, nnc_hash128 key)
{
    nnc_text t = {0};
    nnc_cudnn_plan_text(g, &t);
    if (t.n && !t.oom)
        nnc_engines_put("cudnn", key, nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
}

/* ---- load time ----------------------------------------------------------------------------------------------------- */

enum { MAX_ARGS = NNC_MAX_POST + 5 };

typedef struct cudnn_handle {
    nnc_cudnn *core, *tail; /* tail NULL: one graph */
    int n_arg; /* of the call; ids beyond are zeros (core) or the result (tail) */
    int64_t zero_at, zero_bytes;
    bool held;
} cudnn_handle;

typedef enum part { CORE, TAIL } part;

/* Describes a part on the current device and makes its plan. */
static nnc_status settle(
    nnc_cudnn **out, const nnc_call *c, const dn_way *w, part what, int64_t limit, nnc_sink *sink)
{
    nnc_cudnn *g = nnc_cudnn_create(NULL, sink);
    if (!g)
        return nnc_sink_cause(sink, NNC_E_DEVICE);
    *out = g;
    nnc_hash128 key = plan_key(c, w, what != CORE, limit);
    nnc_cudnn_filter f = filter_of(c, limit);
    if (kept_plan(g, key, limit))
        return NNC_OK;
    if (what == CORE)
        dn_describe_core(g, c, w);
    else
        dn_describe_tail(g, c);
    if (what == TAIL) /* elementwise: compiled on the device, no products to round */
        f = (nnc_cudnn_filter){.workspace_limit = limit};
    nnc_status status = nnc_cudnn_finish(g);
    int n = status ? 0 : nnc_cudnn_query(g, &f);
    if (n < 0 || status == NNC_E_NOMEM)
        return nnc_nomem(sink);
    if (n == 0 || nnc_cudnn_plan_first(g, 0, limit) < 0)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "cuDNN has no plan for a convolution of the model with %lld bytes of workspace: %s",
            (long long)limit, nnc_cudnn_why(g));
    keep_plan(g, key);
    return NNC_OK;
}

static void cudnn_unload(void *handle)
{
    cudnn_handle *h = handle;
    nnc_cudnn_destroy(h->core);
    nnc_cudnn_destroy(h->tail);
    if (h->held)
        nnc_cudnn_release();
    nnc_free(h);
}

static nnc_status prepare(cudnn_handle *h, const nnc_call *c, nnc_sink *sink)
{
    const char *why = "its weights are packed for another engine";
    dn_way w;
    if (c->packed || !dn_way_of(c, &w, &why))
        return nnc_fail0(sink, NNC_E_DEVICE, "engine cudnn cannot run a call of the plan: %s", why);
    h->n_arg = dn_args(c);
    h->zero_bytes = zero_bytes(c, &w);
    h->zero_at = (c->work_bytes - h->zero_bytes) / WORK_ALIGN * WORK_ALIGN;
    if (c->work_bytes < h->zero_bytes)
        return nnc_fail0(sink, NNC_E_MODEL, "a convolution of the plan has too little workspace");
    NNC_TRY(nnc_cudnn_hold(sink));
    h->held = true;
    NNC_TRY(settle(&h->core, c, &w, CORE, h->zero_bytes ? h->zero_at : c->work_bytes, sink));
    return w.split ? settle(&h->tail, c, &w, TAIL, c->work_bytes, sink) : NNC_OK;
}

static nnc_status cudnn_load(const nnc_plan *p, int item, void **handle, nnc_sink *sink)
{
    cudnn_handle *h = nnc_calloc(1, sizeof *h);
    if (!h)
        return nnc_nomem(sink);
    nnc_status status = prepare(h, &p->call[item], sink);
    if (status) {
        cudnn_unload(h);
        return status;
    }
    *handle = h;
    return NNC_OK;
}

static nnc_status cudnn_run(void *handle, void *const *args, void *work)
{
    const cudnn_handle *h = handle;
    int64_t id[MAX_ARGS];
    void *ptr[MAX_ARGS];
    int n = h->n_arg;
    for (int i = 0; i < n; i++) {
        id[i] = i;
        ptr[i] = args[i];
    }
    id[n] = n;
    ptr[n] = h->zero_bytes ? (char *)work + h->zero_at : args[n - 1];
    if (h->zero_bytes) {
        const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
        if (!rt || rt->cudaMemsetAsync(ptr[n], 0, (size_t)h->zero_bytes, nnc_cuda_current()))
            return NNC_E_DEVICE;
    }
    nnc_status status = nnc_cudnn_run(h->core, n + (h->zero_bytes > 0), id, ptr, work);
    return status || !h->tail ? status : nnc_cudnn_run(h->tail, n + 1, id, ptr, work);
}

const nnc_engine nnc_engine_cudnn = {
    .name = "cudnn",
    .version = "9",
    .choose = cudnn_choose,
    .load_call = cudnn_load,
    .run = cudnn_run,
    .unload = cudnn_unload,
};

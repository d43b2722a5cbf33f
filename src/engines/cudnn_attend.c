/* engines/cudnn_attend.c -- attention as one graph of cuDNN: product, scale, mask, softmax, product, which its runtime-compiled engines
 * compute in one kernel. A plan names this engine for a generated kernel of class `attend` that cuDNN supports by rule. The graph is made
 * from the kernel's text. If cuDNN has no plan for it on the device, the generated kernel runs. cuDNN 9.19 supports the graph of inference
 * only where it also writes the rows' statistics (maximum + log of the sum): they go to the workspace. */
#include "engines/cudnn_attend.h"
#include "engines/tune.h"
#include <math.h>
#include <string.h>

/* ---- the graph ---------------------------------------------------------------------------------------------------- */

/* A tensor [batch, head, row, column] of what an instruction accesses. */
typedef struct view {
    int outer[2]; /* axes of batches and heads, -1: none */
    int64_t extent[2];
} view;

static view batches_of(const nnc_kernel *k, const nnc_attend *a)
{
    view v = {{-1, -1}, {1, 1}};
    int n = 0;
    for (int x = k->n_outer - 1; x >= 0; x--)
        if (x != a->row && k->axis[x].extent > 1 && n < 2) {
            v.outer[1 - n] = x;
            v.extent[1 - n++] = k->axis[x].extent;
        }
    return v;
}

/* Dimensions of which nothing depends are 1. row, column: axes, -1: 1. */
static nnc_cudnn_tensor accessed(
    const nnc_kernel *k, const nnc_kins *in, const view *v, int row, int column)
{
    const int axis[4] = {v->outer[0], v->outer[1], row, column};
    nnc_cudnn_tensor t = {.dtype = k->buf[in->buf].dtype, .rank = 4};
    int64_t below = 1;
    for (int d = 3; d >= 0; d--) {
        const bool moves = axis[d] >= 0 && in->at.k[axis[d]];
        t.dim[d] = moves ? k->axis[axis[d]].extent : 1;
        t.stride[d] = moves ? in->at.k[axis[d]] : below;
        below = nnc_max64(below, t.stride[d] * t.dim[d]);
    }
    return t;
}

static int inner(nnc_cudnn *g, nnc_dtype d, const int64_t dim[4])
{
    nnc_cudnn_tensor t = {.dtype = d, .rank = 4, .is_virtual = true};
    for (int i = 3; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.stride[i] = i == 3 ? 1 : t.stride[i + 1] * t.dim[i + 1];
    }
    return nnc_cudnn_add_tensor(g, &t);
}

/* The scores' mask; returns the masked scores. */
static int masked(nnc_cudnn *g, const nnc_aform *f, const attend_ids *id, const int64_t s[4], int x)
{
    int y = x;
    if (f->mask >= 0) {
        y = inner(g, DT_f32, s);
        nnc_cudnn_pointwise(g, CUDNN_ADD, x, id->mask, y);
    }
    if (f->causal) {
        const int row = inner(g, DT_i32, s), key = inner(g, DT_i32, s), sees = inner(g, DT_bool, s);
        y = inner(g, DT_f32, s);
        nnc_cudnn_index(g, 2, x, row);
        nnc_cudnn_index(g, 3, x, key);
        nnc_cudnn_not_less(g, row, key, sees);
        nnc_cudnn_select(g, sees, x, id->low, y);
    }
    return y;
}

/* Probabilities of the scores x, and the rows' statistics. */
static int softmax(nnc_cudnn *g, nnc_dtype d, const attend_ids *id, const int64_t s[4], int x)
{
    const int64_t one[4] = {s[0], s[1], s[2], 1};
    const int max = inner(g, DT_f32, one), less = inner(g, DT_f32, s), e = inner(g, DT_f32, s),
              sum = inner(g, DT_f32, one), log = inner(g, DT_f32, one), p = inner(g, d, s);
    nnc_cudnn_reduce(g, true, x, max);
    nnc_cudnn_pointwise(g, CUDNN_SUB, x, max, less);
    nnc_cudnn_pointwise(g, CUDNN_EXP, less, -1, e);
    nnc_cudnn_reduce(g, false, e, sum);
    nnc_cudnn_pointwise(g, CUDNN_LOG, sum, -1, log);
    nnc_cudnn_pointwise(g, CUDNN_ADD, max, log, id->stats);
    nnc_cudnn_pointwise(g, CUDNN_DIV, e, sum, p);
    return p;
}

void attend_describe(nnc_cudnn *g, const nnc_kernel *k, attend_ids *id)
{
    nnc_attend a;
    nnc_aform f;
    *id = (attend_ids){.mask = -1, .low = -1};
    if (!nnc_attend_find(k, &a) || !nnc_attend_form(k, &a, &f))
        return;
    const view b = batches_of(k, &a);
    const int64_t s[4] = {
        b.extent[0], b.extent[1], k->axis[a.row].extent, k->axis[a.key[0]].extent};
    nnc_cudnn_tensor q = accessed(k, &k->ins[a.q], &b, a.row, a.depth),
                     key = accessed(k, &k->ins[a.k], &b, a.depth, a.key[0]),
                     v = accessed(k, &k->ins[a.v], &b, a.key[4], a.wide),
                     y = accessed(k, &k->ins[a.store], &b, a.row, a.wide),
                     number = {.dtype = DT_f32,
                         .rank = 4,
                         .dim = {1, 1, 1, 1},
                         .stride = {1, 1, 1, 1},
                         .by_value = true},
                     stats = {.dtype = DT_f32,
                         .rank = 4,
                         .dim = {s[0], s[1], s[2], 1},
                         .stride = {s[1] * s[2], s[2], 1, 1}};
    id->q = nnc_cudnn_add_tensor(g, &q);
    id->k = nnc_cudnn_add_tensor(g, &key);
    id->v = nnc_cudnn_add_tensor(g, &v);
    id->y = nnc_cudnn_add_tensor(g, &y);
    id->scale = nnc_cudnn_add_tensor(g, &number);
    id->stats = nnc_cudnn_add_tensor(g, &stats);
    if (f.mask >= 0) {
        const bool late = f.mask >= k->stage[1].body0;
        nnc_cudnn_tensor m = accessed(k, &k->ins[f.mask], &b, a.row, a.key[late]);
        id->mask = nnc_cudnn_add_tensor(g, &m);
    }
    if (f.causal)
        id->low = nnc_cudnn_add_tensor(g, &number);
    const int dot = inner(g, DT_f32, s), scaled = inner(g, DT_f32, s);
    nnc_cudnn_matmul(g, id->q, id->k, dot);
    nnc_cudnn_pointwise(g, CUDNN_MUL, dot, id->scale, scaled);
    const int p = softmax(g, q.dtype, id, s, masked(g, &f, id, s, scaled));
    nnc_cudnn_matmul(g, p, id->v, id->y);
}

/* ---- load time ---------------------------------------------------------------------------------------------------- */

enum { TENSORS = 8 };

struct attend_handle {
    nnc_cudnn *g; /* NULL: the generated kernel runs */
    void *kernel; /* nnc_engine_cuda's handle; NULL: none was needed */
    bool held;
    float scale, low;
    attend_ids id;
    int arg[5]; /* arguments of q, k, v, y, mask (-1) */
    int64_t at[5]; /* bytes from their beginning */
    int64_t stats; /* bytes */
};

static int argument(const nnc_kernel *k, int b)
{
    int n = 0;
    for (int i = 0; i < b; i++)
        n += k->buf[i].role != KB_tmp;
    return n;
}

static void find_arguments(
    attend_handle *h, const nnc_kernel *k, const nnc_attend *a, const nnc_aform *f)
{
    const int32_t access[5] = {a->q, a->k, a->v, a->store, f->mask};
    for (int i = 0; i < 5; i++) {
        h->arg[i] = -1;
        if (access[i] < 0)
            continue;
        const nnc_kins *in = &k->ins[access[i]];
        h->arg[i] = argument(k, in->buf);
        h->at[i] = in->at.c * nnc_dtype_size(k->buf[in->buf].dtype);
    }
    h->scale = (float)f->scale;
    h->low = -INFINITY;
    h->stats = nnc_attend_stats(k);
}

static nnc_hash128 graph_key(const nnc_kernel *k)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_cudnn *sketch;
    attend_ids id;
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, NULL);
    nnc_printf(&t, "attention 1 cudnn %lld ", api ? (long long)api->cudnnGetVersion() : 0);
    nnc_tune_gpu(&t);
    if (nnc_cudnn_sketch(&t, &sketch) == NNC_OK) {
        attend_describe(sketch, k, &id);
        nnc_cudnn_destroy(sketch);
    }
    return t.oom ? (nnc_hash128){0} : nnc_hash(nnc_text_str(&t), t.n);
}

/* Makes the plan: the one cached for this graph, cuDNN and GPU, otherwise the first that can be finalized. NNC_E_DEVICE: none. */
static nnc_status make_plan(attend_handle *h, const nnc_kernel *k, nnc_cache *cache, nnc_sink *sink)
{
    NNC_TRY(nnc_cudnn_create(NULL, &h->g, sink));
    const nnc_hash128 key = graph_key(k);
    char *text;
    size_t n;
    attend_describe(h->g, k, &h->id);
    if (nnc_cache_get(cache, "cudnn", key, &text, &n)) {
        const bool ok = nnc_cudnn_plan_read(h->g, text, n) == NNC_OK &&
                        nnc_cudnn_workspace(h->g) <= NNC_ATTEND_WORK;
        nnc_free(text);
        if (ok)
            return NNC_OK;
    }
    NNC_TRY(nnc_cudnn_finish(h->g));
    const nnc_cudnn_filter f = {.with = CUDNN_TENSOR_CORE,
        .without = CUDNN_DOWN_CONVERT | CUDNN_NONDETERMINISTIC,
        .workspace_limit = NNC_ATTEND_WORK};
    if (nnc_cudnn_query(h->g, &f) < 0)
        return nnc_nomem(sink);
    if (nnc_cudnn_plan_first(h->g, 0, NNC_ATTEND_WORK) < 0)
        return NNC_E_DEVICE;
    NNC_LOCAL(nnc_text) t = {0};
    nnc_cudnn_plan_text(h->g, &t);
    if (t.n && !t.oom)
        nnc_cache_put(cache, "cudnn", key, nnc_text_str(&t), t.n);
    return NNC_OK;
}

/* The kernel's text, which was verified. */
static nnc_kernel *kernel_of(const nnc_load *l, nnc_arena *a, nnc_sink *sink)
{
    const nnc_pkernel *pk = &l->plan->kernel[l->item];
    nnc_scan s;
    nnc_scan_init(&s, pk->symbol, pk->ir, strlen(pk->ir));
    return nnc_schedule_parse(&s, a, sink);
}

/* By the generated kernel; why: cuDNN's reason. */
static nnc_status generated(attend_handle *h, const nnc_load *l, const char *why, nnc_sink *sink)
{
    nnc_note(sink, (nnc_loc){0},
        "cuDNN does not compute an attention of the model here (%s): its generated kernel runs",
        why);
    return nnc_engine_cuda.load_kernel(l, &h->kernel, sink);
}

static nnc_status prepare_call(attend_handle *h, const nnc_load *l, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) mem = {0};
    nnc_attend a;
    nnc_aform f;
    const nnc_kernel *k = kernel_of(l, &mem, sink);
    if (!k)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    if (k->grid.cls != KC_attend || !k->grid.spill || !nnc_attend_find(k, &a) ||
        !nnc_attend_form(k, &a, &f))
        return nnc_fail0(sink, NNC_E_MODEL,
            "engine cudnn runs kernels of attention alone, and %s is another one",
            l->plan->kernel[l->item].symbol);
    find_arguments(h, k, &a, &f);
    if (!NNC_CUDA(cudnn, NULL))
        return generated(h, l, "libcudnn is missing", sink);
    NNC_TRY(nnc_cudnn_hold(sink));
    h->held = true;
    nnc_status st = make_plan(h, k, l->env ? l->env->cache : NULL, NULL);
    if (st != NNC_E_DEVICE)
        return st == NNC_E_NOMEM ? nnc_nomem(sink) : st;
    char why[200];
    snprintf(why, sizeof why, "%.199s", h->g ? nnc_cudnn_why(h->g) : "it cannot be asked");
    nnc_cudnn_destroy(h->g);
    h->g = NULL;
    return generated(h, l, why, sink);
}

nnc_status attend_load(const nnc_load *l, attend_handle **out, nnc_sink *sink)
{
    attend_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_status st = prepare_call(h, l, sink);
    if (st) {
        attend_unload(h);
        return st;
    }
    *out = h;
    return NNC_OK;
}

nnc_status attend_run(attend_handle *h, void *const *args, void *work)
{
    if (!h->g)
        return nnc_engine_cuda.run(h->kernel, args, work);
    const int ids[5] = {h->id.q, h->id.k, h->id.v, h->id.y, h->id.mask};
    int64_t id[TENSORS];
    void *ptr[TENSORS];
    int n = 0;
    for (int i = 0; i < 5; i++)
        if (h->arg[i] >= 0) {
            id[n] = ids[i];
            ptr[n++] = (char *)args[h->arg[i]] + h->at[i];
        }
    id[n] = h->id.scale;
    ptr[n++] = &h->scale;
    id[n] = h->id.stats;
    ptr[n++] = work;
    if (h->id.low >= 0) {
        id[n] = h->id.low;
        ptr[n++] = &h->low;
    }
    return nnc_cudnn_run(h->g, n, id, ptr, (char *)work + h->stats);
}

void attend_unload(attend_handle *h)
{
    if (!h)
        return;
    nnc_cudnn_destroy(h->g);
    if (h->kernel)
        nnc_engine_cuda.unload(h->kernel);
    if (h->held)
        nnc_cudnn_release();
    nnc_free(h);
}

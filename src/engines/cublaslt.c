/* engines/cublaslt.c -- the engine "cublaslt": matrix products on NVIDIA GPUs with an epilogue of bias, one sum, and relu or gelu
 * (tanh form).
 *
 * cuBLASLt's matrices are column-major. A row-major Y = X W is the column-major Y' = W' X' of the transposes, which have the same bytes. W
 * is passed as cuBLASLt's A, X as its B. A bias per feature is a bias per row, which is the form its epilogues support.
 *
 * cuBLASLt answers nothing without a GPU, so choose() goes by rules on types, strides and the order of the epilogue, and fixes the
 * workspace. The algorithm is the heuristic's first when the plan is loaded. */
#include "cuda/cuda.h"
#include "engines/tune.h"
#include "target/target.h"
#include <pthread.h>

/* Numbers of cuBLASLt's API (cublasLt.h, library_types.h of CUDA 12 and 13). */
enum {
    ALLOC_FAILED = 3, /* CUBLAS_STATUS_ALLOC_FAILED */
    R_32F = 0,
    R_64F = 1,
    R_16F = 2,
    R_16BF = 14,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32F_FAST_TF32 = 77,
    DESC_TRANS_A = 3,
    DESC_TRANS_B = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS = 8,
    LAYOUT_BATCH = 5,
    LAYOUT_BATCH_STRIDE = 6,
    PREF_WORKSPACE = 1,
    PREF_ALIGN_A = 5, /* then B, C, D */
    EPILOGUE_NONE = 1,
    EPILOGUE_RELU = 2,
    EPILOGUE_BIAS = 4,
    EPILOGUE_GELU = 32,
    ARENA_ALIGN = 64, /* alignment of every tensor of a plan */
};

typedef struct heuristic { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

/* ---- the product -------------------------------------------------------------------------------------------------- */

typedef struct matrix { /* column-major, as stored */
    int64_t rows, cols, ld;
    bool trans;
} matrix;

/* One loop over batches: elements between consecutive matrices of each operand. */
typedef struct batch {
    int64_t count, a, b, d;
} batch;

typedef struct product {
    int type, compute, scale, epilogue;
    matrix a, b, d;
    bool sums, in_place;
    int n_batch; /* batch[0] is cuBLASLt's own, the others are loops around it; at least 1 */
    batch batch[NNC_MAX_RANK];
} product;

/* Describes a matrix of r x c elements with these strides: column-major where columns are contiguous, otherwise as its transpose. */
static bool lay(int64_t r, int64_t rs, int64_t c, int64_t cs, matrix *m)
{
    bool plain = rs == 1 || r == 1;
    if (!plain && cs != 1 && c != 1)
        return false;
    *m = plain ? (matrix){r, c, c == 1 ? r : cs, false} : (matrix){c, r, r == 1 ? c : rs, true};
    return m->ld >= m->rows;
}

static bool lay_all(const nnc_call *c, product *p)
{
    int64_t xs[NNC_MAX_RANK], ws[NNC_MAX_RANK], ys[NNC_MAX_RANK];
    int rx = c->src.rank, rw = c->wei.rank, ry = c->dst.rank;
    nnc_type_strides(&c->src, xs);
    nnc_type_strides(&c->wei, ws);
    nnc_type_strides(&c->dst, ys);
    int xm = rx - (c->trans_a ? 1 : 2), xk = rx - (c->trans_a ? 2 : 1);
    int wk = rw - (c->trans_b ? 1 : 2), wn = rw - (c->trans_b ? 2 : 1);
    int64_t m = c->dst.dim[ry - 2], n = c->dst.dim[ry - 1], k = c->src.dim[xk];
    return lay(n, ws[wn], k, ws[wk], &p->a) && lay(k, xs[xk], m, xs[xm], &p->b) &&
           lay(n, ys[ry - 1], m, ys[ry - 2], &p->d) && !p->d.trans;
}

static int64_t step(const nnc_type *t, const int64_t *stride, int from_end)
{
    int i = t->rank - from_end;
    return i < 0 || t->dim[i] == 1 ? 0 : stride[i];
}

/* Batch dimensions from the innermost out; adjacent ones that are contiguous are merged. */
static void walk_batches(const nnc_call *c, product *p)
{
    int64_t xs[NNC_MAX_RANK], ws[NNC_MAX_RANK], ys[NNC_MAX_RANK];
    nnc_type_strides(&c->src, xs);
    nnc_type_strides(&c->wei, ws);
    nnc_type_strides(&c->dst, ys);
    p->n_batch = 1;
    p->batch[0] = (batch){.count = 1};
    for (int e = 3; e <= c->dst.rank; e++) {
        batch b = {c->dst.dim[c->dst.rank - e], step(&c->wei, ws, e), step(&c->src, xs, e),
            step(&c->dst, ys, e)};
        batch *last = &p->batch[p->n_batch - 1];
        if (b.count == 1)
            continue;
        if (last->count == 1)
            *last = b;
        else if (b.a == last->a * last->count && b.b == last->b * last->count &&
                 b.d == last->d * last->count)
            last->count *= b.count;
        else
            p->batch[p->n_batch++] = b;
    }
}

static bool types_ok(const nnc_call *c, product *p, const char **why)
{
    nnc_dtype d = c->src.dtype;
    *why = "cuBLASLt supports f16, bf16, f32 and f64";
    if (d != DT_f32 && d != DT_f64 && d != DT_f16 && d != DT_bf16)
        return false;
    *why = "cuBLASLt needs operands and result of one type";
    if (c->wei.dtype != d || c->dst.dtype != d || (c->has_bias && c->bias.dtype != d))
        return false;
    p->type = d == DT_f64 ? R_64F : d == DT_f16 ? R_16F : d == DT_bf16 ? R_16BF : R_32F;
    p->compute = d == DT_f64 ? COMPUTE_64F : c->tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
    p->scale = d == DT_f64 ? R_64F : R_32F;
    return true;
}

static bool end_ok(const nnc_call *c, product *p, const char **why)
{
    int end = 0;
    p->sums = c->n_post > 0 && c->post[0].kind == PO_sum;
    p->in_place = p->sums && c->post[0].in_place;
    for (int i = p->sums; i < c->n_post; i++) {
        bool relu = c->post[i].kind == PO_relu, gelu = c->post[i].kind == PO_gelu_tanh;
        *why = "cuBLASLt's epilogue is a sum, then relu or gelu (tanh form), in this order";
        if ((!relu && !gelu) || i > p->sums)
            return false;
        end = relu ? EPILOGUE_RELU : EPILOGUE_GELU;
    }
    p->epilogue = end | (c->has_bias ? EPILOGUE_BIAS : 0);
    *why = "cuBLASLt has no f64 epilogues";
    if (p->epilogue && p->type == R_64F)
        return false;
    p->epilogue = p->epilogue ? p->epilogue : EPILOGUE_NONE;
    return true;
}

static bool product_of(const nnc_call *c, product *p, const char **why)
{
    *p = (product){0};
    *why = "cuBLASLt multiplies matrices";
    if (c->kind != CALL_matmul || c->src.rank < 2 || c->wei.rank < 2 || c->dst.rank < 2 ||
        c->n_post < 0 || c->n_post > NNC_MAX_POST)
        return false;
    if (!types_ok(c, p, why) || !end_ok(c, p, why))
        return false;
    *why = "cuBLASLt supports extents below 2^31";
    if (!nnc_call_fits_32_bits(c))
        return false;
    *why = "cuBLASLt needs contiguous rows or columns";
    if (!lay_all(c, p))
        return false;
    walk_batches(c, p);
    return true;
}

/* ---- compile time ------------------------------------------------------------------------------------------------- */

/* NVIDIA's recommended workspace for cuBLAS; PyTorch uses the same. */
static int64_t workspace(int sm)
{
    return INT64_C(1) << (sm >= 90 ? 25 : 22);
}

static nnc_status lt_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    static _Thread_local char reason[160]; /* copied by the plan */
    product p;
    (void)sink;
    *out = (nnc_choice){.reason = "cuBLASLt needs an NVIDIA GPU"};
    if (!c->env || c->env->target->kind != NNC_T_cuda || !product_of(c, &p, &out->reason))
        return NNC_OK;
    int64_t calls = 1;
    for (int i = 1; i < p.n_batch; i++)
        calls *= p.batch[i].count;
    out->ok = true;
    out->workspace_bytes = workspace(c->env->target->sm);
    int n = snprintf(reason, sizeof reason, "cublaslt %s%s%s%s%s%s", c->env->target->cublaslt,
        c->src.dtype != DT_f32 ? ""
        : c->tf32              ? ", tf32 allowed"
                               : ", strict f32",
        p.epilogue & EPILOGUE_BIAS ? ", bias" : "", p.sums ? ", sum" : "",
        p.epilogue & EPILOGUE_RELU ? ", relu" : "", p.epilogue & EPILOGUE_GELU ? ", gelu" : "");
    if (p.batch[0].count > 1 || calls > 1)
        snprintf(reason + n, sizeof reason - (size_t)n, ", batches of %lld, %lld calls",
            (long long)p.batch[0].count, (long long)calls);
    out->reason = reason;
    return NNC_OK;
}

/* ---- load time ---------------------------------------------------------------------------------------------------- */

enum { MAX_DEVICES = 64 };

/* cuBLASLt's handle of one device, kept while plans are loaded there. */
static struct held {
    void *handle;
    int users;
} held[MAX_DEVICES];
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct lt_handle {
    const nnc_cuda_cublaslt *api;
    struct held *held;
    product p;
    void *desc, *a, *b, *d;
    heuristic best;
    int64_t work_bytes;
    int64_t element; /* bytes per element */
    bool has_bias;
} lt_handle;

static nnc_status failed(nnc_sink *sink, const lt_handle *h, const char *what, int status)
{
    return nnc_fail0(
        sink, NNC_E_DEVICE, "cuBLASLt %s: %s", what, h->api->cublasLtGetStatusString(status));
}

/* A handle takes memory of the device, which other processes may have taken. */
static nnc_status no_handle(const lt_handle *h, int device, int status, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) room = {0};
    if (status == ALLOC_FAILED)
        nnc_cuda_room(&room, device);
    return nnc_fail0(sink, status == ALLOC_FAILED ? NNC_E_FIT : NNC_E_DEVICE,
        "cuda:%d: cuBLASLt does not start: %s%s", device, h->api->cublasLtGetStatusString(status),
        nnc_text_str(&room));
}

static nnc_status hold(lt_handle *h, nnc_sink *sink)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, sink);
    int device = 0, status = 0;
    h->api = NNC_CUDA(cublaslt, sink);
    if (!h->api || !rt)
        return NNC_E_DEVICE;
    if (rt->cudaGetDevice(&device) || device < 0 || device >= MAX_DEVICES)
        return nnc_fail0(sink, NNC_E_DEVICE, "cuBLASLt needs a current GPU");
    NNC_TRY(nnc_library_supports("cublaslt", (int64_t)h->api->cublasLtGetVersion(), sink));
    pthread_mutex_lock(&held_lock);
    if (!held[device].users)
        status = h->api->cublasLtCreate(&held[device].handle);
    held[device].users += !status;
    pthread_mutex_unlock(&held_lock);
    if (status)
        return no_handle(h, device, status, sink);
    h->held = &held[device];
    return NNC_OK;
}

static void release(lt_handle *h)
{
    if (!h->held)
        return;
    pthread_mutex_lock(&held_lock);
    if (!--h->held->users) {
        h->api->cublasLtDestroy(h->held->handle);
        h->held->handle = NULL;
    }
    pthread_mutex_unlock(&held_lock);
}

static void lt_unload(void *handle)
{
    NNC_FREED lt_handle *h = handle;
    if (h->desc)
        h->api->cublasLtMatmulDescDestroy(h->desc);
    void *layout[] = {h->a, h->b, h->d};
    for (size_t i = 0; i < NNC_COUNT(layout); i++)
        if (layout[i])
            h->api->cublasLtMatrixLayoutDestroy(layout[i]);
    release(h);
}

static int make_layout(const lt_handle *h, void **out, const matrix *m, int64_t stride)
{
    int32_t count = (int32_t)h->p.batch[0].count;
    int s = h->api->cublasLtMatrixLayoutCreate(
        out, h->p.type, (uint64_t)m->rows, (uint64_t)m->cols, m->ld);
    if (!s && count > 1)
        s = h->api->cublasLtMatrixLayoutSetAttribute(*out, LAYOUT_BATCH, &count, sizeof count);
    if (!s && count > 1)
        s = h->api->cublasLtMatrixLayoutSetAttribute(
            *out, LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
    return s;
}

static int set(const lt_handle *h, int attribute, const void *value, size_t n)
{
    return h->api->cublasLtMatmulDescSetAttribute(h->desc, attribute, value, n);
}

static int describe(lt_handle *h)
{
    const product *p = &h->p;
    const int32_t ta = p->a.trans, tb = p->b.trans, epilogue = p->epilogue;
    int s = h->api->cublasLtMatmulDescCreate(&h->desc, p->compute, p->scale);
    s = s ? s : set(h, DESC_TRANS_A, &ta, sizeof ta);
    s = s ? s : set(h, DESC_TRANS_B, &tb, sizeof tb);
    s = s ? s : set(h, DESC_EPILOGUE, &epilogue, sizeof epilogue);
    s = s ? s : make_layout(h, &h->a, &p->a, p->batch[0].a);
    s = s ? s : make_layout(h, &h->b, &p->b, p->batch[0].b);
    return s ? s : make_layout(h, &h->d, &p->d, p->batch[0].d);
}

/* Alignment of every address of an operand in bytes: tensors are 64-byte aligned, batches start in between. */
static uint32_t alignment(const lt_handle *h, int operand)
{
    int64_t bits = ARENA_ALIGN;
    for (int i = 0; i < h->p.n_batch; i++) {
        const batch *b = &h->p.batch[i];
        bits |= (operand == 0 ? b->a : operand == 1 ? b->b : b->d) * h->element;
    }
    return (uint32_t)(bits & -bits);
}

enum { MEASURED = 16 }; /* algorithms to measure */

/* Gets up to `want` algorithms, best first. Returns cuBLASLt's status. */
static int ask(const lt_handle *h, int want, heuristic *out, int *got)
{
    void *pref = NULL;
    uint64_t limit = (uint64_t)h->work_bytes;
    int s = h->api->cublasLtMatmulPreferenceCreate(&pref);
    s = s ? s
          : h->api->cublasLtMatmulPreferenceSetAttribute(
                pref, PREF_WORKSPACE, &limit, sizeof limit);
    for (int i = 0; i < 4 && !s; i++) {
        uint32_t align = alignment(h, i < 2 ? i : 2);
        s = h->api->cublasLtMatmulPreferenceSetAttribute(
            pref, PREF_ALIGN_A + i, &align, sizeof align);
    }
    s = s ? s
          : h->api->cublasLtMatmulAlgoGetHeuristic(
                h->held->handle, h->desc, h->a, h->b, h->d, h->d, pref, want, out, got);
    if (pref)
        h->api->cublasLtMatmulPreferenceDestroy(pref);
    return s;
}

static nnc_status run_trial(void *ctx);

typedef struct trial {
    lt_handle *h;
    const heuristic *r;
    nnc_trial t;
} trial;

static bool take_trial(void *ctx, int i)
{
    const trial *t = ctx;
    t->h->best = t->r[i];
    return !t->r[i].state;
}

/* Selects and records the fastest of n algorithms; NNC_E_DEVICE: none could be measured. */
static nnc_status fastest(
    lt_handle *h, const nnc_call *c, const heuristic *r, int n, nnc_hash128 key, nnc_sink *sink)
{
    trial t = {.h = h, .r = r};
    const int64_t y = nnc_type_bytes(&c->dst),
                  bytes[] = {nnc_type_bytes(&c->src), nnc_type_bytes(&c->wei), y, y, y};
    NNC_TRY(nnc_trial_open(&t.t, (nnc_dtype)c->src.dtype, bytes, NNC_COUNT(bytes), h->work_bytes));
    const nnc_tuned best = nnc_trial_fastest(&t.t, n, take_trial, run_trial, &t);
    nnc_trial_close(&t.t);
    if (best.choice < 0)
        return NNC_E_DEVICE;
    h->best = r[best.choice];
    return nnc_tune_record(c->env->tuning, key, "cublaslt", &best, sink);
}

static nnc_status find_algorithm(lt_handle *h, const nnc_call *c, nnc_sink *sink)
{
    heuristic r[MEASURED];
    char library[40];
    nnc_tuned t = {0};
    int got = 0;
    const void *somewhere = (const void *)(uintptr_t)ARENA_ALIGN; /* only its alignment matters */
    snprintf(library, sizeof library, "cublaslt %zu", h->api->cublasLtGetVersion());
    nnc_hash128 key = nnc_tune_key(library, c, h->work_bytes);
    bool known = nnc_tune_find(c->env->tuning, key, &t),
         measures = !known && nnc_tune_measures(c->env->tuning);
    int s = h->has_bias ? set(h, DESC_BIAS, &somewhere, sizeof somewhere) : 0;
    s = s ? s : ask(h, known || measures ? MEASURED : 1, r, &got);
    if (s || got < 1)
        return failed(sink, h, "has no algorithm for a matrix product of the model", s ? s : 15);
    if (measures) {
        nnc_status status = fastest(h, c, r, got, key, sink);
        if (status != NNC_E_DEVICE)
            return status;
    }
    h->best = r[known && t.choice < got ? t.choice : 0];
    return h->best.state ? failed(sink, h, "has no algorithm for a matrix product of the model",
                               h->best.state)
                         : NNC_OK;
}

static nnc_status prepare_call(lt_handle *h, const nnc_call *c, nnc_sink *sink)
{
    const char *why;
    if (!product_of(c, &h->p, &why))
        return nnc_fail0(
            sink, NNC_E_DEVICE, "engine cublaslt cannot run a call of the plan: %s", why);
    h->work_bytes = c->work_bytes;
    h->has_bias = c->has_bias;
    h->element = nnc_dtype_size(c->src.dtype);
    if (h->p.batch[0].count > INT32_MAX)
        return nnc_fail0(sink, NNC_E_DEVICE, "cuBLASLt supports batches below 2^31");
    NNC_TRY(hold(h, sink));
    int s = describe(h);
    return s ? failed(sink, h, "rejects a matrix product of the model", s)
             : find_algorithm(h, c, sink);
}

static nnc_status lt_load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    nnc_call c = nnc_load_call(l);
    lt_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_status status = prepare_call(h, &c, sink);
    if (status) {
        lt_unload(h);
        return status;
    }
    *handle = h;
    return NNC_OK;
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

typedef struct operands {
    const char *a, *b, *c;
    char *d;
} operands;

static int multiply(const lt_handle *h, const operands *o, void *work)
{
    static const double one = 1, none = 0;
    static const float one_f = 1, none_f = 0;
    const bool wide = h->p.scale == R_64F;
    const void *alpha = wide ? (const void *)&one : &one_f;
    const void *zero = wide ? (const void *)&none : &none_f;
    return h->api->cublasLtMatmul(h->held->handle, h->desc, alpha, o->a, h->a, o->b, h->b,
        h->p.sums ? alpha : zero, o->c, h->d, o->d, h->d, h->best.algo, work, (size_t)h->work_bytes,
        nnc_cuda_current());
}

/* Loops over the batch dimensions beyond cuBLASLt's own, outermost first. */
static int walk(const lt_handle *h, operands o, int i, void *work)
{
    if (!i)
        return multiply(h, &o, work);
    const batch *b = &h->p.batch[i];
    for (int64_t k = 0; k < b->count; k++) {
        int s = walk(h, o, i - 1, work);
        if (s)
            return s;
        o.a += b->a * h->element;
        o.b += b->b * h->element;
        o.c += b->d * h->element;
        o.d += b->d * h->element;
    }
    return 0;
}

static nnc_status lt_run(void *handle, void *const *args, void *work)
{
    const lt_handle *h = handle;
    const void *bias = args[2];
    int i = 2 + h->has_bias;
    operands o = {.a = args[1], .b = args[0]};
    const void *sum = h->p.sums && !h->p.in_place ? args[i++] : NULL;
    o.d = args[i];
    o.c = sum ? sum : o.d;
    if (h->has_bias && set(h, DESC_BIAS, &bias, sizeof bias))
        return NNC_E_DEVICE;
    return walk(h, o, h->p.n_batch - 1, work) ? NNC_E_DEVICE : NNC_OK;
}

/* Arguments in the order of the call, without absent ones. */
static nnc_status run_trial(void *ctx)
{
    const trial *t = ctx;
    return lt_run(t->h, t->t.arg, t->t.work);
}

const nnc_engine nnc_engine_cublaslt = {
    .name = "cublaslt",
    .version = "12",
    .choose = lt_choose,
    .load_call = lt_load,
    .run = lt_run,
    .unload = lt_unload,
};

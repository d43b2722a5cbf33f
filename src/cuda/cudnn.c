/* cuda/cudnn.c -- builds cuDNN graphs: each descriptor is created, given its attributes and finalized once; after
 * the first error the remaining calls do nothing. */
#include "cuda/cudnn_internal.h"
#include <string.h>

nnc_status cudnn_refused(nnc_cudnn *g, int status)
{
    char text[1024] = "";
    g->api->cudnnGetLastErrorString(text, sizeof text);
    char *nl = strchr(text, '\n');
    if (nl)
        *nl = 0;
    const char *name = g->api->cudnnGetErrorString(status);
    snprintf(g->why, sizeof g->why, "%s%s%.400s", name ? name : "error", *text ? ": " : "", text);
    return NNC_E_DEVICE;
}

static void *own(nnc_cudnn *g, void *desc)
{
    if (ARENA_ROOM(&g->mem, g->own, g->cap_own, g->n_own + 1))
        return g->own[g->n_own++] = desc;
    g->api->cudnnBackendDestroyDescriptor(desc);
    g->status = nnc_nomem(g->sink);
    return NULL;
}

void *cudnn_desc(nnc_cudnn *g, int type, bool mine)
{
    void *d = NULL;
    if (g->status)
        return NULL;
    int status = g->api->cudnnBackendCreateDescriptor(type, &d);
    if (status || !d) {
        g->status = cudnn_refused(g, status);
        return NULL;
    }
    return mine ? own(g, d) : d;
}

void cudnn_set(nnc_cudnn *g, void *desc, int attribute, int type, int64_t n, const void *value)
{
    if (g->status || !desc)
        return;
    int status = g->api->cudnnBackendSetAttribute(desc, attribute, type, n, value);
    if (status)
        g->status = cudnn_refused(g, status);
}

void *cudnn_final(nnc_cudnn *g, void *desc)
{
    if (g->status || !desc)
        return NULL;
    int status = g->api->cudnnBackendFinalize(desc);
    if (!status)
        return desc;
    g->status = cudnn_refused(g, status);
    return NULL;
}

/* ---- the graph ---------------------------------------------------------------------------------------------------- */

/* Writes the description as cuDNN reads it: attribute names of cudaDeviceGetAttribute in JSON. */
static void put_device(nnc_text *out, const nnc_cudnn_device *d)
{
    int64_t limits[][2] = {
        {75, 16}, {86, 16}, {89, 24}, {120, 24}}; /* maximum resident blocks per SM; others 32 */
    int64_t blocks = 32;
    for (size_t i = 0; i < NNC_COUNT(limits); i++)
        if (limits[i][0] == d->sm)
            blocks = limits[i][1];
    nnc_puts(out, "{\"deviceName\":");
    nnc_put_json_string(out, d->name && *d->name ? d->name : "GPU");
    nnc_printf(out,
        ",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":%lld,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":"
        "65536,"
        "\"multiProcessorCount\":%d,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%lld,\"reservedSharedMemoryPerBlock\":%d,"
        "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%lld,\"maxThreadsPerBlock\":1024,"
        "\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
        "\"smClockRateKHz\":%lld,\"memClockRateKHz\":%lld,\"l2CacheSize\":%lld}",
        d->sm * 10, (long long)d->memory_bytes, d->sms, (long long)d->shared_bytes,
        d->sm >= 80 ? 1024 : 0, (long long)blocks, d->sm_threads, (long long)(d->clock_hz / 1000),
        (long long)(d->clock_hz / 1000), (long long)d->l2_bytes);
}

static void describe_device(nnc_cudnn *g, const nnc_cudnn_device *d)
{
    NNC_LOCAL(nnc_text) json = {0};
    put_device(&json, d);
    if (json.oom)
        g->status = nnc_nomem(g->sink);
    void *desc = cudnn_desc(g, D_DEVICE, true);
    cudnn_set(g, desc, A_DEVICE_JSON, T_CHAR, (int64_t)json.n, nnc_text_str(&json));
    g->device = cudnn_final(g, desc);
}

/* A graph without a device has no engines (9.19: few of them, whose plans cannot be run), and one with a handle shares it between
 * threads. */
static void describe_current(nnc_cudnn *g)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, g->sink);
    int32_t device = 0;
    if (!rt || rt->cudaGetDevice(&device)) {
        snprintf(g->why, sizeof g->why, "there is no current GPU");
        g->status = NNC_E_DEVICE;
    }
    void *desc = cudnn_desc(g, D_DEVICE, true);
    cudnn_set(g, desc, A_DEVICE_ID, T_INT32, 1, &device);
    g->device = cudnn_final(g, desc);
}

nnc_status nnc_cudnn_create(const nnc_cudnn_device *d, nnc_cudnn **out, nnc_sink *sink)
{
    *out = NULL;
    const nnc_cuda_cudnn *api = NNC_CUDA(cudnn, sink);
    if (!api)
        return NNC_E_DEVICE;
    /* cuDNN opens and closes these at each query, which takes longer than the query itself: keep them open */
    (void)NNC_CUDA(cublaslt, NULL);
    (void)NNC_CUDA(nvrtc, NULL);
    nnc_cudnn *g = nnc_calloc(1, sizeof *g);
    NNC_NEED(g, sink);
    g->api = api;
    g->sink = sink;
    g->workspace = -1;
    if (d)
        describe_device(g, d);
    else
        describe_current(g);
    nnc_status status = g->status;
    if (!status) {
        *out = g;
        return NNC_OK;
    }
    if (status == NNC_E_DEVICE)
        (void)nnc_fail0(sink, NNC_E_DEVICE, "cuDNN cannot be asked about %s: %s",
            d && d->name ? d->name : "the GPU", g->why);
    nnc_cudnn_destroy(g);
    return status;
}

nnc_status nnc_cudnn_sketch(nnc_text *out, nnc_cudnn **g)
{
    *g = nnc_calloc(1, sizeof **g);
    if (!*g)
        return NNC_E_NOMEM;
    (*g)->words = out;
    return NNC_OK;
}

void nnc_cudnn_destroy(nnc_cudnn *g)
{
    if (!g)
        return;
    if (g->plan)
        g->api->cudnnBackendDestroyDescriptor(g->plan);
    cudnn_forget_found(g);
    while (g->n_own)
        g->api->cudnnBackendDestroyDescriptor(g->own[--g->n_own]);
    nnc_arena_deinit(&g->mem);
    nnc_free(g);
}

const char *nnc_cudnn_why(const nnc_cudnn *g)
{
    return g->why;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

static bool data_type(nnc_dtype d, int *out)
{
    *out = d == DT_f32    ? 0
           : d == DT_f64  ? 1
           : d == DT_f16  ? 2
           : d == DT_i32  ? 4
           : d == DT_bool ? 11
                          : 9;
    return d == DT_f32 || d == DT_f64 || d == DT_f16 || d == DT_bf16 || d == DT_i32 || d == DT_bool;
}

static bool keep_tensor(nnc_cudnn *g, void *desc)
{
    if (ARENA_ROOM(&g->mem, g->tensor, g->cap_tensor, g->n_tensor + 1))
        g->tensor[g->n_tensor++] = desc;
    else
        g->status = nnc_nomem(g->sink);
    return g->status == NNC_OK;
}

static int sketch_tensor(nnc_cudnn *g, const nnc_cudnn_tensor *t)
{
    nnc_printf(g->words, "\ntensor %s%s%s", nnc_dtype_name(t->dtype),
        t->is_virtual ? " virtual" : "", t->by_value ? " value" : "");
    for (int i = 0; i < t->rank; i++)
        nnc_printf(g->words, " %lld:%lld", (long long)t->dim[i], (long long)t->stride[i]);
    return (int)g->n_tensor++;
}

int nnc_cudnn_add_tensor(nnc_cudnn *g, const nnc_cudnn_tensor *t)
{
    int64_t id = (int64_t)g->n_tensor, alignment = 16;
    int type;
    if (g->words)
        return sketch_tensor(g, t);
    if (!data_type(t->dtype, &type) && !g->status) {
        snprintf(g->why, sizeof g->why, "no tensors of %s", nnc_dtype_name(t->dtype));
        g->status = NNC_E_DEVICE;
    }
    void *d = cudnn_desc(g, D_TENSOR, true);
    cudnn_set(g, d, A_TENSOR_TYPE, T_DATA_TYPE, 1, &type);
    cudnn_set(g, d, A_TENSOR_DIMS, T_INT64, t->rank, t->dim);
    cudnn_set(g, d, A_TENSOR_STRIDES, T_INT64, t->rank, t->stride);
    cudnn_set(g, d, A_TENSOR_ID, T_INT64, 1, &id);
    cudnn_set(g, d, A_TENSOR_ALIGNMENT, T_INT64, 1, &alignment);
    cudnn_set(g, d, A_TENSOR_VIRTUAL, T_BOOL, 1, &t->is_virtual);
    if (t->by_value)
        cudnn_set(g, d, A_TENSOR_BY_VALUE, T_BOOL, 1, &t->by_value);
    d = cudnn_final(g, d);
    return d && keep_tensor(g, d) ? (int)id : -1;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static void set_tensor(nnc_cudnn *g, void *op, int attribute, int tensor)
{
    if (!g->status && (tensor < 0 || (size_t)tensor >= g->n_tensor))
        g->status = nnc_fail0(g->sink, NNC_E_BUG, "cuDNN graph: tensor %d does not exist", tensor);
    if (!g->status)
        cudnn_set(g, op, attribute, T_DESC, 1, &g->tensor[tensor]);
}

static void set_desc(nnc_cudnn *g, void *op, int attribute, void *desc)
{
    if (desc)
        cudnn_set(g, op, attribute, T_DESC, 1, &desc);
}

static void end_op(nnc_cudnn *g, void *op)
{
    op = cudnn_final(g, op);
    if (op && g->n_op == MAX_OPS)
        g->status = nnc_fail0(g->sink, NNC_E_BUG, "cuDNN graph: more than %d operations", MAX_OPS);
    else if (op)
        g->op[g->n_op++] = op;
}

static void *convolution(nnc_cudnn *g, const nnc_cudnn_window *w)
{
    const int precision = 0, mode = CROSS_CORRELATION; /* accumulate in f32 */
    int64_t n = w->spatial;
    void *d = cudnn_desc(g, D_CONVOLUTION, true);
    cudnn_set(g, d, A_CONV_SPATIAL, T_INT64, 1, &n);
    cudnn_set(g, d, A_CONV_PREC, T_DATA_TYPE, 1, &precision);
    cudnn_set(g, d, A_CONV_MODE, T_CONV_MODE, 1, &mode);
    cudnn_set(g, d, A_CONV_PAD_LO, T_INT64, n, w->pad_lo);
    cudnn_set(g, d, A_CONV_PAD_HI, T_INT64, n, w->pad_hi);
    cudnn_set(g, d, A_CONV_STRIDES, T_INT64, n, w->stride);
    cudnn_set(g, d, A_CONV_DILATIONS, T_INT64, n, w->dilation);
    return cudnn_final(g, d);
}

static void sketch_window(nnc_cudnn *g, const nnc_cudnn_window *w)
{
    for (int i = 0; i < w->spatial; i++)
        nnc_printf(g->words, " %lld,%lld,%lld,%lld", (long long)w->stride[i],
            (long long)w->dilation[i], (long long)w->pad_lo[i], (long long)w->pad_hi[i]);
}

void nnc_cudnn_conv(
    nnc_cudnn *g, nnc_cudnn_conv_kind kind, const nnc_cudnn_window *w, int x, int filter, int y)
{
    static const int desc[] = {D_OP_CONV, D_OP_CONV_BWD_DATA, D_OP_CONV_BWD_FILTER},
                     first[] = {A_OP_CONV, A_OP_BWD_DATA, A_OP_BWD_FILTER};
    const float alpha = 1, beta = 0;
    const int a = first[kind];
    if (g->words) {
        nnc_printf(g->words, "\nconv %d of %d %d %d", (int)kind, x, filter, y);
        sketch_window(g, w);
        return;
    }
    void *c = convolution(g, w), *op = cudnn_desc(g, desc[kind], true);
    cudnn_set(g, op, a, T_FLOAT, 1, &alpha);
    cudnn_set(g, op, a + 1, T_FLOAT, 1, &beta);
    set_desc(g, op, a + 2, c);
    set_tensor(g, op, a + 3, filter);
    set_tensor(g, op, a + 4, x);
    set_tensor(g, op, a + 5, y);
    end_op(g, op);
}

/* Operands b and when, -1: none; axis -1: none. */
static void pointwise_of(
    nnc_cudnn *g, int mode, nnc_dtype prec, int axis, int a, int b, int when, int y)
{
    int type;
    const int64_t along = axis;
    (void)data_type(prec, &type);
    if (g->words) {
        nnc_printf(g->words, "\npointwise %d of %d %d %d %d axis %d", mode, a, b, when, y, axis);
        return;
    }
    void *p = cudnn_desc(g, D_POINTWISE, true);
    cudnn_set(g, p, A_POINTWISE_MODE, T_POINTWISE_MODE, 1, &mode);
    cudnn_set(g, p, A_POINTWISE_PREC, T_DATA_TYPE, 1, &type);
    if (axis >= 0)
        cudnn_set(g, p, A_POINTWISE_AXIS, T_INT64, 1, &along);
    p = cudnn_final(g, p);
    void *op = cudnn_desc(g, D_OP_POINTWISE, true);
    set_desc(g, op, A_OP_POINTWISE_DESC, p);
    set_tensor(g, op, A_OP_POINTWISE_X, a);
    if (b >= 0)
        set_tensor(g, op, A_OP_POINTWISE_B, b);
    if (when >= 0)
        set_tensor(g, op, A_OP_POINTWISE_T, when);
    set_tensor(g, op, A_OP_POINTWISE_Y, y);
    end_op(g, op);
}

void nnc_cudnn_pointwise(nnc_cudnn *g, nnc_cudnn_pointwise_mode mode, int x, int b, int y)
{
    pointwise_of(g, (int)mode, DT_f32, -1, x, b, -1, y);
}

void nnc_cudnn_index(nnc_cudnn *g, int axis, int x, int y)
{
    pointwise_of(g, CUDNN_GEN_INDEX, DT_i32, axis, x, -1, -1, y);
}

void nnc_cudnn_not_less(nnc_cudnn *g, int a, int b, int y)
{
    pointwise_of(g, CUDNN_CMP_GE, DT_bool, -1, a, b, -1, y);
}

void nnc_cudnn_select(nnc_cudnn *g, int when, int a, int b, int y)
{
    pointwise_of(g, CUDNN_BINARY_SELECT, DT_f32, -1, a, b, when, y);
}

void nnc_cudnn_matmul(nnc_cudnn *g, int a, int b, int c)
{
    const int precision = 0;
    if (g->words) {
        nnc_printf(g->words, "\nmatmul of %d %d %d", a, b, c);
        return;
    }
    void *d = cudnn_desc(g, D_MATMUL, true);
    cudnn_set(g, d, A_MATMUL_PREC, T_DATA_TYPE, 1, &precision);
    d = cudnn_final(g, d);
    void *op = cudnn_desc(g, D_OP_MATMUL, true);
    set_tensor(g, op, A_OP_MATMUL, a);
    set_tensor(g, op, A_OP_MATMUL + 1, b);
    set_tensor(g, op, A_OP_MATMUL + 2, c);
    set_desc(g, op, A_OP_MATMUL + 3, d);
    end_op(g, op);
}

void nnc_cudnn_reduce(nnc_cudnn *g, bool max, int x, int y)
{
    const int precision = 0, kind = max ? REDUCE_MAX : REDUCE_ADD;
    if (g->words) {
        nnc_printf(g->words, "\nreduce %d of %d %d", kind, x, y);
        return;
    }
    void *d = cudnn_desc(g, D_REDUCTION, true);
    cudnn_set(g, d, A_REDUCE_PREC, T_DATA_TYPE, 1, &precision);
    cudnn_set(g, d, A_REDUCE_OP, T_REDUCE_OP, 1, &kind);
    d = cudnn_final(g, d);
    void *op = cudnn_desc(g, D_OP_REDUCTION, true);
    set_tensor(g, op, A_OP_REDUCE, x);
    set_tensor(g, op, A_OP_REDUCE + 1, y);
    set_desc(g, op, A_OP_REDUCE + 2, d);
    end_op(g, op);
}

nnc_status nnc_cudnn_finish(nnc_cudnn *g)
{
    void *d = cudnn_desc(g, D_GRAPH, true);
    cudnn_set(g, d, A_GRAPH_OPS, T_DESC, g->n_op, g->op);
    g->graph = cudnn_final(g, d);
    return g->status;
}

/* tests/cudnn/fake.c -- cuBLASLt over plain loops, column-major as it is; CUDA's runtime with one device; switching all of them on. */
#include "fake.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

int fake_multiplies, fake_choice, fake_timed;
float fake_ms[FAKE_CHOICES] = {1, 1, 1};
extern const nnc_cuda_cudnn fake_cudnn;

/* ---- cuBLASLt ------------------------------------------------------------------------------------------------------ */

typedef struct layout {
    int type;
    int64_t rows, cols, ld, stride;
    int32_t count;
} layout;

typedef struct product {
    int compute, scale;
    int32_t trans_a, trans_b, epilogue;
    const void *bias;
} product;

static int lt_create(void **handle)
{
    static int something;
    fake_handles++;
    *handle = &something;
    return 0;
}

static int lt_destroy(void *handle)
{
    (void)handle;
    fake_handles--;
    return 0;
}

static int free_one(void *p)
{
    fake_alive--;
    free(p);
    return 0;
}

static int desc_create(void **out, int compute, int scale)
{
    product *p = calloc(1, sizeof *p);
    *p = (product){.compute = compute, .scale = scale, .epilogue = 1};
    fake_alive++;
    *out = p;
    return 0;
}

static int desc_set(void *desc, int attribute, const void *value, size_t n)
{
    product *p = desc;
    void *to[] = {[3] = &p->trans_a, [4] = &p->trans_b, [7] = &p->epilogue, [8] = &p->bias};
    if (attribute < 3 || attribute > 8 || !to[attribute] || n != (attribute == 8 ? 8u : 4u))
        return 7;
    memcpy(to[attribute], value, n);
    return 0;
}

static int layout_create(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    layout *l = calloc(1, sizeof *l);
    *l = (layout){type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    fake_alive++;
    *out = l;
    return 0;
}

static int layout_set(void *p, int attribute, const void *value, size_t n)
{
    layout *l = p;
    if (attribute == 5 && n == 4)
        memcpy(&l->count, value, n);
    else if (attribute == 6 && n == 8)
        memcpy(&l->stride, value, n);
    else
        return 7;
    return 0;
}

static int pref_create(void **out)
{
    fake_alive++;
    return (*out = calloc(1, 8)) ? 0 : 3;
}

static int pref_set(void *pref, int attribute, const void *value, size_t n)
{
    (void)pref;
    uint32_t align = 0;
    if (attribute >= 5 && attribute <= 8 && n == 4)
        memcpy(&align, value, n);
    return attribute == 1 ? n != 8 : !align || (align & (align - 1));
}

/* Extents, leading dimensions and batches that belong together. */
static bool fits(const product *p, const layout *a, const layout *b, const layout *c)
{
    int64_t m = p->trans_a ? a->cols : a->rows, ka = p->trans_a ? a->rows : a->cols;
    int64_t n = p->trans_b ? b->rows : b->cols, kb = p->trans_b ? b->cols : b->rows;
    return ka == kb && m == c->rows && n == c->cols && a->ld >= a->rows && b->ld >= b->rows &&
           c->ld >= c->rows && a->count == c->count && b->count == c->count;
}

static int heuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref,
    int want, void *results, int *got)
{
    struct {
        uint64_t algo[8];
        size_t workspace;
        int state;
        float waves;
        int reserved[4];
    } r[FAKE_CHOICES] = {{.algo = {42}}, {.algo = {43}}, {.algo = {44}}};
    (void)pref;
    *got = 0;
    if (!handle || want < 1 || c != d || !fits(desc, a, b, c))
        return 15; /* not supported */
    *got = want < FAKE_CHOICES ? want : FAKE_CHOICES;
    memcpy(results, r, (size_t)*got * sizeof *r);
    return 0;
}

static nnc_dtype dtype_of(const layout *l)
{
    return l->type == 1 ? DT_f64 : l->type == 2 ? DT_f16 : l->type == 14 ? DT_bf16 : DT_f32;
}

static double element(
    const layout *l, const void *p, bool trans, int64_t i, int64_t j, int64_t batch)
{
    int64_t r = trans ? j : i, c = trans ? i : j;
    return nnc_get_f64(dtype_of(l), p, batch * l->stride + c * l->ld + r);
}

double fake_dot(const double *a, const double *b, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Row i of the first factor as doubles, of `depth` elements. */
static void row_of(
    const layout *l, const void *p, bool trans, int64_t i, int64_t batch, int64_t depth, double *to)
{
    for (int64_t x = 0; x < depth; x++)
        to[x] = element(l, p, trans, i, x, batch);
}

/* Columns of the second factor as doubles, one after the other: each is read for every row of the first. */
static double *columns_of(
    const layout *l, const void *p, bool trans, int64_t batch, int64_t columns, int64_t depth)
{
    double *v = malloc((size_t)(columns * depth + 1) * sizeof *v);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t x = 0; x < depth; x++)
            v[j * depth + x] = element(l, p, trans, x, j, batch);
    return v;
}

static double finish(const product *p, const layout *d, double v, int64_t row)
{
    if (p->epilogue & 4)
        v += nnc_get_f64(dtype_of(d), p->bias, row);
    if (p->epilogue & 2)
        v = v > 0 ? v : 0;
    if (p->epilogue & 32)
        v = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    return v;
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *la,
    const void *b, void *lb, const void *beta, const void *c, void *lc, void *d, void *ld,
    const void *algo, void *work, size_t work_bytes, cuda_stream s)
{
    const product *p = desc;
    const layout *A = la, *B = lb, *C = lc, *D = ld;
    (void)alpha;
    (void)work;
    (void)s;
    double keep = p->scale == 1 ? *(const double *)beta : *(const float *)beta;
    uint64_t id = *(const uint64_t *)algo;
    if (!handle || !work_bytes || id < 42 || id >= 42 + FAKE_CHOICES || !fits(p, A, B, D))
        return 7;
    fake_ran((int)(id - 42));
    fake_multiplies++;
    int64_t k = p->trans_a ? A->rows : A->cols;
    double *row = malloc((size_t)(k + 1) * sizeof *row);
    for (int64_t t = 0; t < D->count; t++) {
        double *columns = columns_of(B, b, p->trans_b, t, D->cols, k);
        for (int64_t i = 0; i < D->rows; i++) {
            row_of(A, a, p->trans_a, i, t, k, row);
            for (int64_t j = 0; j < D->cols; j++) {
                const double v = (keep != 0 ? keep * element(C, c, false, i, j, t) : 0) +
                                 fake_dot(row, columns + j * k, k);
                nnc_set_f64(dtype_of(D), d, t * D->stride + j * D->ld + i, finish(p, D, v, i));
            }
        }
        free(columns);
    }
    free(row);
    return 0;
}

/* From the first element to the last. */
static fake_touch whole(const void *p, const layout *l, bool write)
{
    int64_t n = (l->count - 1) * l->stride + (l->cols - 1) * l->ld + l->rows;
    return (fake_touch){p, n * nnc_dtype_size(dtype_of(l)), write};
}

int fake_matmul_touches(const void *desc, const void *a, const void *la, const void *b,
    const void *lb, const void *c, const void *lc, const void *d, const void *ld, fake_touch *t,
    const void **bias)
{
    const product *p = desc;
    const layout *D = ld;
    int n = 0;
    t[n++] = whole(a, la, false);
    t[n++] = whole(b, lb, false);
    t[n++] = whole(d, ld, true);
    if (c != d)
        t[n++] = whole(c, lc, false);
    if (p->bias)
        t[n++] = (fake_touch){p->bias, D->rows * nnc_dtype_size(dtype_of(D)), false};
    *bias = p->bias;
    return n;
}

static size_t lt_version(void)
{
    return 130100;
}

static const char *status_string(int status)
{
    return status == 1   ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == 3 ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status      ? "CUBLAS_STATUS_FAKE"
                         : "CUBLAS_STATUS_SUCCESS";
}

static const nnc_cuda_cublaslt fake_cublaslt = {
    .cublasLtGetVersion = lt_version,
    .cublasLtGetStatusString = status_string,
    .cublasLtCreate = lt_create,
    .cublasLtDestroy = lt_destroy,
    .cublasLtMatmul = matmul,
    .cublasLtMatmulAlgoGetHeuristic = heuristic,
    .cublasLtMatmulDescCreate = desc_create,
    .cublasLtMatmulDescDestroy = free_one,
    .cublasLtMatmulDescSetAttribute = desc_set,
    .cublasLtMatrixLayoutCreate = layout_create,
    .cublasLtMatrixLayoutDestroy = free_one,
    .cublasLtMatrixLayoutSetAttribute = layout_set,
    .cublasLtMatmulPreferenceCreate = pref_create,
    .cublasLtMatmulPreferenceDestroy = free_one,
    .cublasLtMatmulPreferenceSetAttribute = pref_set,
};

/* ---- CUDA's runtime ------------------------------------------------------------------------------------------------ */

static int get_device(int *device)
{
    *device = 0;
    return 0;
}

/* The GPU's time in ms, and of the graph that is being captured. */
static double clock_ms, captured_ms;
static bool capturing;
float fake_host_ms;
bool fake_no_memory;

static void take_ms(double ms)
{
    *(capturing ? &captured_ms : &clock_ms) += ms;
}

void fake_ran(int choice)
{
    fake_choice = choice;
    take_ms(
        capturing ? (double)fake_ms[choice] : fmax((double)fake_ms[choice], (double)fake_host_ms));
}

static int memset_async(void *p, int value, size_t bytes, cuda_stream s)
{
    (void)s;
    memset(p, value, bytes);
    if (bytes >= FAKE_L2)
        take_ms(FAKE_FLUSH_MS);
    return 0;
}

static int memcpy_async(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    (void)kind;
    (void)s;
    memcpy(to, from, bytes);
    return 0;
}

static int new_one(void **out)
{
    fake_alive++;
    return (*out = calloc(1, sizeof(double))) ? 0 : 2;
}

static int stream_create(cuda_stream *s, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    return new_one((void **)s);
}

static int stream_destroy(cuda_stream s)
{
    return free_one(s);
}

static int stream_synchronize(cuda_stream s)
{
    return !s;
}

/* A graph is the time that it takes: what was captured has run. */
static int begin_capture(cuda_stream s, int mode)
{
    captured_ms = 0;
    capturing = true;
    return !s || mode != CUDA_CAPTURE_THREAD_LOCAL;
}

static int end_capture(cuda_stream s, cuda_graph *g)
{
    capturing = false;
    const int error = !s || new_one((void **)g);
    if (!error)
        *(double *)*g = captured_ms;
    return error;
}

static int instantiate(cuda_graph_exec *x, cuda_graph g, unsigned long long flags)
{
    (void)flags;
    const int error = new_one((void **)x);
    if (!error)
        *(double *)*x = *(double *)g;
    return error;
}

static int graph_destroy(cuda_graph g)
{
    return free_one(g);
}

static int exec_destroy(cuda_graph_exec x)
{
    return free_one(x);
}

static int graph_launch(cuda_graph_exec x, cuda_stream s)
{
    clock_ms += *(double *)x;
    return !s;
}

static int no_error(void)
{
    return 0;
}

int fake_sm;

static int device_count(int *n)
{
    *n = fake_sm != 0;
    return 0;
}

static int device_attribute(int *value, int attribute, int device)
{
    *value = attribute == CUDA_ATTR_L2_BYTES ? FAKE_L2
             : attribute == CUDA_ATTR_MAJOR  ? fake_sm / 10
                                             : fake_sm % 10;
    return device != 0;
}

static int cu_malloc(void **p, size_t bytes)
{
    if (fake_no_memory)
        return 2;
    fake_alive++;
    return (*p = aligned_alloc(256, (size_t)nnc_align_up((int64_t)bytes, 256))) ? 0 : 2;
}

static int event_create(cuda_event *e, unsigned flags)
{
    (void)flags;
    return new_one((void **)e);
}

static int event_destroy(cuda_event e)
{
    return free_one(e);
}

static int event_record(cuda_event e, cuda_stream s)
{
    (void)s;
    *(double *)e = clock_ms;
    return !e;
}

static int event_synchronize(cuda_event e)
{
    return !e;
}

static int elapsed(float *ms, cuda_event a, cuda_event b)
{
    fake_timed++;
    *ms = (float)(*(double *)b - *(double *)a);
    return !a || !b;
}

static const nnc_cuda_cudart fake_cudart = {.cudaMalloc = cu_malloc,
    .cudaFree = free_one,
    .cudaEventCreateWithFlags = event_create,
    .cudaEventDestroy = event_destroy,
    .cudaEventRecord = event_record,
    .cudaEventSynchronize = event_synchronize,
    .cudaEventElapsedTime = elapsed,
    .cudaGetDevice = get_device,
    .cudaMemsetAsync = memset_async,
    .cudaMemcpyAsync = memcpy_async,
    .cudaStreamCreateWithPriority = stream_create,
    .cudaStreamDestroy = stream_destroy,
    .cudaStreamSynchronize = stream_synchronize,
    .cudaStreamBeginCapture = begin_capture,
    .cudaStreamEndCapture = end_capture,
    .cudaGraphInstantiate = instantiate,
    .cudaGraphDestroy = graph_destroy,
    .cudaGraphLaunch = graph_launch,
    .cudaGraphExecDestroy = exec_destroy,
    .cudaGetLastError = no_error,
    .cudaGetDeviceCount = device_count,
    .cudaDeviceGetAttribute = device_attribute};

void fake_install(void)
{
    nnc_cuda_override(CUDA_cudnn, &fake_cudnn);
    nnc_cuda_override(CUDA_cublaslt, &fake_cublaslt);
    nnc_cuda_override(CUDA_cudart, &fake_cudart);
    nnc_cuda_override(CUDA_driver, NULL);
    fake_alive = fake_handles = fake_compiled = fake_precompiled = fake_multiplies = fake_timed = 0;
}

static int no_driver(unsigned flags)
{
    (void)flags;
    return 100;
}

void fake_driver(void)
{
    static const nnc_cuda_driver driver = {.cuInit = no_driver};
    nnc_cuda_override(CUDA_driver, &driver);
}

void fake_remove(void)
{
    fake_compiles_nothing = false;
    nnc_cuda_forget();
}

/* bench/device/ceilings.c -- the part "ceilings": what this GPU reaches at most, with kernels and products that do nothing else.
 * Nothing of nnc's plans is involved; process and clock (CUDA's events) are the same. Tables of results hold models against it.
 *
 * The kernels are written as nnc's emitter writes them (comment, launch bounds, thunk), so that the tests' fake of CUDA runs them. */
#include "cuda/cuda.h"
#include "device.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 256, EACH = 16, BURSTS = 7, FMA_LOOPS = 512, FMA_CHAINS = 8 };

/* $N elements, $B blocks. Loads are 16 bytes and four of them are under way; sums are kept alive by a store that never happens. */
static const char source[] =
    "struct alignas(16) four { float a, b, c, d; };\n"
    "/* peak_copy\n *   reads     x0 f32[$N]\n *   writes    y0 f32[$N]\n */\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "peak_copy(const float *__restrict__ x0, float *__restrict__ y0)\n"
    "{\n"
    "    const four *x = (const four *)x0 + (long long)blockIdx.x * 1024 + threadIdx.x;\n"
    "    four *y = (four *)y0 + (long long)blockIdx.x * 1024 + threadIdx.x;\n"
    "    const four a = x[0], b = x[256], c = x[512], d = x[768];\n"
    "    y[0] = a;\n    y[256] = b;\n    y[512] = c;\n    y[768] = d;\n"
    "}\n"
    "/* peak_read\n *   reads     x0 f32[$N]\n *   writes    y0 f32[$N]\n */\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "peak_read(const float *__restrict__ x0, float *__restrict__ y0)\n"
    "{\n"
    "    const four *x = (const four *)x0 + (long long)blockIdx.x * 1024 + threadIdx.x;\n"
    "    const four a = x[0], b = x[256], c = x[512], d = x[768];\n"
    "    const float s = a.a + a.b + a.c + a.d + b.a + b.b + b.c + b.d + c.a + c.b + c.c + c.d + "
    "d.a + d.b + d.c + d.d;\n"
    "    if (s == 123456.75f)\n"
    "        y0[threadIdx.x] = s;\n"
    "}\n"
    "/* peak_write\n *   writes    y0 f32[$N]\n */\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "peak_write(float *__restrict__ y0)\n"
    "{\n"
    "    four *y = (four *)y0 + (long long)blockIdx.x * 1024 + threadIdx.x;\n"
    "    const four a = {1.0f, 2.0f, 3.0f, 4.0f};\n"
    "    y[0] = a;\n    y[256] = a;\n    y[512] = a;\n    y[768] = a;\n"
    "}\n"
    "/* peak_fma\n *   writes    y0 f32[$N]\n */\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "peak_fma(float *__restrict__ y0)\n"
    "{\n"
    "    float a[8];\n"
    "    const float x = 0.5f + threadIdx.x * 0.001f;\n"
    "    for (int i = 0; i < 8; i++)\n"
    "        a[i] = x + i;\n"
    "    for (int k = 0; k < 512; k++) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 8; i++)\n"
    "            a[i] = fmaf(a[i], 0.999f, x);\n"
    "    }\n"
    "    y0[(long long)blockIdx.x * 256 + threadIdx.x] = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + "
    "a[6] "
    "+ a[7];\n"
    "}\n"
    "#ifdef NNC_THUNKS\n"
    "extern \"C\" void peak_copy_thunk(void *const *a) { peak_copy((const float *)a[0], (float "
    "*)a[1]); }\n"
    "extern \"C\" void peak_read_thunk(void *const *a) { peak_read((const float *)a[0], (float "
    "*)a[1]); }\n"
    "extern \"C\" void peak_write_thunk(void *const *a) { peak_write((float *)a[0]); }\n"
    "extern \"C\" void peak_fma_thunk(void *const *a) { peak_fma((float *)a[0]); }\n"
    "#endif\n";

typedef struct bench {
    job *j;
    const nnc_cuda_cudart *rt;
    const nnc_cuda_cublaslt *lt;
    nnc_cuda_device gpu;
    cuda_library library;
    cuda_stream stream;
    cuda_event begin, end;
    void *x, *y, *work;
    int64_t n; /* elements of x and of y, f32 */
} bench;

static nnc_status cuda(bench *b, int error, const char *what)
{
    return error ? nnc_fail0(
                       b->j->sink, NNC_E_DEVICE, "%s: %s", what, b->rt->cudaGetErrorString(error))
                 : NNC_OK;
}

/* ---- timing -------------------------------------------------------------------------------------------------------- */

typedef int once(bench *b, const void *what);

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static nnc_status burst(bench *b, once *fn, const void *what, int n, float *ms)
{
    NNC_TRY(cuda(b, b->rt->cudaEventRecord(b->begin, b->stream), "an event"));
    for (int i = 0; i < n; i++)
        NNC_TRY(cuda(b, fn(b, what), "a launch"));
    NNC_TRY(cuda(b, b->rt->cudaEventRecord(b->end, b->stream), "an event"));
    NNC_TRY(cuda(b, b->rt->cudaStreamSynchronize(b->stream), "a kernel"));
    return cuda(b, b->rt->cudaEventElapsedTime(ms, b->begin, b->end), "an event");
}

/* Milliseconds of one: the median of bursts after a first that warms up, each of a BURSTS-th of the duration. */
static nnc_status time_of(bench *b, once *fn, const void *what, double *ms)
{
    float at[BURSTS], one;
    NNC_TRY(burst(b, fn, what, 1, &one));
    NNC_TRY(burst(b, fn, what, 2, &one));
    int n = (int)fmax(1, fmin(1000, b->j->duration_ms / (double)BURSTS / fmax(one / 2, 1e-4)));
    for (int i = 0; i < BURSTS; i++)
        NNC_TRY(burst(b, fn, what, n, &at[i]));
    qsort(at, BURSTS, sizeof *at, by_value);
    *ms = (double)at[BURSTS / 2] / n;
    return NNC_OK;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */

typedef struct kernel {
    cuda_kernel fn;
    bool reads;
    int64_t blocks;
} kernel;

static int launch(bench *b, const void *what)
{
    const kernel *k = what;
    void *x = b->x, *y = b->y, *both[] = {&x, &y}, *only[] = {&y};
    cuda_launch l = {
        .grid = {(unsigned)k->blocks, 1, 1}, .block = {THREADS, 1, 1}, .stream = b->stream};
    return b->rt->cudaLaunchKernelExC(&l, k->fn, k->reads ? both : only);
}

static int copy(bench *b, const void *what)
{
    (void)what;
    return b->rt->cudaMemcpyAsync(b->y, b->x, (size_t)b->n * 4, CUDA_MEMCPY_ON_DEVICE, b->stream);
}

static nnc_status put_kernel(bench *b, const char *name, bool reads, double work, nnc_text *t)
{
    kernel k = {.reads = reads, .blocks = b->n / THREADS / (strcmp(name, "fma") ? EACH : 1)};
    char symbol[32];
    double ms;
    snprintf(symbol, sizeof symbol, "peak_%s", name);
    if (!strcmp(name, "fma")) /* enough waves to drown the last */
        k.blocks = nnc_min64(k.blocks, (int64_t)b->gpu.sms * 64);
    NNC_TRY(cuda(b, b->rt->cudaLibraryGetKernel(&k.fn, b->library, symbol), symbol));
    NNC_TRY(time_of(b, launch, &k, &ms));
    if (!strcmp(name, "fma"))
        work = (double)k.blocks * THREADS * FMA_LOOPS * FMA_CHAINS * 2;
    nnc_printf(t, "%s\"%s\": %.6g", t->n ? ",\n " : "", name, work / (ms * 1e-3));
    return NNC_OK;
}

static char *source_for(int64_t n)
{
    nnc_text t = {0};
    for (const char *p = source; *p; p++)
        if (p[0] == '$' && p[1] == 'N')
            nnc_printf(&t, "%lld", (long long)n), p++;
        else
            nnc_putc(&t, *p);
    if (!t.oom)
        return t.s;
    nnc_text_deinit(&t);
    return NULL;
}

static nnc_status load_kernels(bench *b)
{
    static const char *const option[] = {"--fmad=false"};
    char *text = source_for(b->n);
    if (!text)
        return nnc_nomem(b->j->sink);
    nnc_nvrtc_unit u = {.name = "peaks.cu", .source = text};
    nnc_status st = nnc_nvrtc_compile(&u, 1,
        &(nnc_nvrtc_options){.sm = b->gpu.sm, .jobs = 1, .option = option, .n_option = 1},
        b->j->sink);
    nnc_free(text);
    if (!st)
        st = cuda(b, b->rt->cudaLibraryLoadData(&b->library, u.code, NULL, NULL, 0, NULL, NULL, 0),
            "the kernels");
    nnc_free(u.code);
    return st;
}

static nnc_status memory_part(bench *b, nnc_text *t)
{
    double bytes = (double)b->n * 4, ms;
    NNC_TRY(put_kernel(b, "copy", true, 2 * bytes, t));
    NNC_TRY(put_kernel(b, "read", true, bytes, t));
    NNC_TRY(put_kernel(b, "write", false, bytes, t));
    NNC_TRY(put_kernel(b, "fma", false, 0, t));
    NNC_TRY(time_of(b, copy, NULL, &ms));
    nnc_printf(t, ",\n \"memcpy\": %.6g, \"bytes\": %.0f", 2 * bytes / (ms * 1e-3), bytes);
    return NNC_OK;
}

/* ---- products ------------------------------------------------------------------------------------------------------ */

/* Numbers of cuBLASLt's API, as in engines/cublaslt.c. */
enum {
    R_32F = 0,
    R_16F = 2,
    R_16BF = 14,
    COMPUTE_32F = 68,
    COMPUTE_TF32 = 77,
    DESC_TRANS_A = 3,
    PREF_WORKSPACE = 1
};
enum { WORKSPACE = 32 << 20 };

static const struct gemm {
    const char *name;
    int type, compute, size;
} gemms[] = {{"f32", R_32F, COMPUTE_32F, 4}, {"tf32", R_32F, COMPUTE_TF32, 4},
    {"f16", R_16F, COMPUTE_32F, 2}, {"bf16", R_16BF, COMPUTE_32F, 2}};

typedef struct product {
    void *handle, *desc, *layout;
    struct { /* cublasLtMatmulHeuristicResult_t */
        uint64_t algo[8];
        size_t workspace;
        int state;
        float waves;
        int reserved[4];
    } found;
    int64_t dim, bytes; /* of a matrix */
} product;

static int multiply(bench *b, const void *what)
{
    const product *p = what;
    static const float one = 1, zero = 0;
    void *second = (char *)b->x + p->bytes;
    return b->lt->cublasLtMatmul(p->handle, p->desc, &one, b->x, p->layout, second, p->layout,
        &zero, b->y, p->layout, b->y, p->layout, p->found.algo, b->work, WORKSPACE, b->stream);
}

static nnc_status lt(bench *b, int status, const char *what)
{
    return status ? nnc_fail0(b->j->sink, NNC_E_DEVICE, "cuBLASLt: %s: %s", what,
                        b->lt->cublasLtGetStatusString(status))
                  : NNC_OK;
}

static nnc_status prepare_product(bench *b, const struct gemm *g, product *p, void **pref)
{
    size_t work = WORKSPACE;
    int got = 0,
        trans =
            1; /* A transposed: rows of operands side by side in k, what tensor cores like most */
    uint64_t dim = (uint64_t)p->dim;
    NNC_TRY(lt(b, b->lt->cublasLtCreate(&p->handle), "no handle"));
    NNC_TRY(lt(b, b->lt->cublasLtMatmulDescCreate(&p->desc, g->compute, R_32F), "no description"));
    NNC_TRY(
        lt(b, b->lt->cublasLtMatmulDescSetAttribute(p->desc, DESC_TRANS_A, &trans, sizeof trans),
            "no transpose"));
    NNC_TRY(lt(
        b, b->lt->cublasLtMatrixLayoutCreate(&p->layout, g->type, dim, dim, p->dim), "no layout"));
    NNC_TRY(lt(b, b->lt->cublasLtMatmulPreferenceCreate(pref), "no preference"));
    NNC_TRY(lt(b,
        b->lt->cublasLtMatmulPreferenceSetAttribute(*pref, PREF_WORKSPACE, &work, sizeof work),
        "no workspace"));
    NNC_TRY(lt(b,
        b->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->layout, p->layout, p->layout,
            p->layout, *pref, 1, &p->found, &got),
        "no algorithm"));
    return got > 0
               ? NNC_OK
               : nnc_fail0(b->j->sink, NNC_E_DEVICE, "cuBLASLt has no algorithm for %s", g->name);
}

static nnc_status gemm(bench *b, const struct gemm *g, nnc_text *t)
{
    product p = {.dim = 8192};
    void *pref = NULL;
    double ms = NAN;
    while (p.dim > 16 && (p.dim * p.dim * g->size * 2 > b->n * 4))
        p.dim /= 2;
    p.bytes = p.dim * p.dim * g->size;
    nnc_status st = prepare_product(b, g, &p, &pref);
    if (!st)
        st = time_of(b, multiply, &p, &ms);
    if (pref)
        b->lt->cublasLtMatmulPreferenceDestroy(pref);
    if (p.layout)
        b->lt->cublasLtMatrixLayoutDestroy(p.layout);
    if (p.desc)
        b->lt->cublasLtMatmulDescDestroy(p.desc);
    if (p.handle)
        b->lt->cublasLtDestroy(p.handle);
    NNC_TRY(st);
    double d = (double)p.dim;
    nnc_printf(t, "%s\"%s\": %.6g, \"%s_dim\": %.0f", t->n ? ",\n " : "", g->name,
        2 * d * d * d / (ms * 1e-3), g->name, d);
    return NNC_OK;
}

/* Products go faster on numbers that do not vary: these do. Every two bytes are a half between -2 and 2 (and so are two of them as
 * bfloat16 and four as float, of another spread). */
static nnc_status fill(bench *b)
{
    enum { PIECE = 1 << 20 };
    uint16_t *host = nnc_malloc(PIECE * 2);
    if (!host)
        return nnc_nomem(b->j->sink);
    uint64_t key = nnc_rng_key("ceilings", 0);
    for (int i = 0; i < PIECE; i++) {
        uint32_t u = nnc_rng_u32(key, (uint64_t)i);
        host[i] = (uint16_t)((u & 0x83ff) | (0x3800 + ((u >> 16) % 2 << 10)));
    }
    nnc_status st = NNC_OK;
    for (int64_t at = 0; !st && at < b->n * 4; at += PIECE * 2) {
        size_t n = (size_t)nnc_min64(PIECE * 2, b->n * 4 - at);
        st = cuda(b,
            b->rt->cudaMemcpyAsync((char *)b->x + at, host, n, CUDA_MEMCPY_TO_DEVICE, b->stream),
            "an upload");
        if (!st)
            st = cuda(b, b->rt->cudaStreamSynchronize(b->stream), "an upload");
    }
    nnc_free(host);
    return st;
}

static nnc_status products_part(bench *b, nnc_text *t)
{
    b->lt = NNC_CUDA(cublaslt, b->j->sink);
    if (!b->lt)
        return NNC_E_DEVICE;
    for (size_t i = 0; i < NNC_COUNT(gemms); i++)
        NNC_TRY(gemm(b, &gemms[i], t));
    return NNC_OK;
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */

static nnc_status open_bench(bench *b)
{
    int64_t block = THREADS * EACH;
    int64_t bytes = b->j->most_bytes ? b->j->most_bytes : INT64_C(1) << 30;
    b->n = nnc_max64(bytes / 4 / block, 1) * block;
    b->rt = NNC_CUDA(cudart, b->j->sink);
    if (!b->rt || !nnc_cuda_devices(&b->gpu, 1, b->j->sink))
        return nnc_fail0(b->j->sink, NNC_E_DEVICE, "there is no GPU");
    NNC_TRY(cuda(b, b->rt->cudaSetDevice(0), "the GPU"));
    NNC_TRY(cuda(b, b->rt->cudaStreamCreateWithPriority(&b->stream, CUDA_STREAM_NON_BLOCKING, 0),
        "a stream"));
    NNC_TRY(cuda(b, b->rt->cudaEventCreateWithFlags(&b->begin, 0), "an event"));
    NNC_TRY(cuda(b, b->rt->cudaEventCreateWithFlags(&b->end, 0), "an event"));
    NNC_TRY(cuda(b, b->rt->cudaMalloc(&b->x, (size_t)b->n * 4), "memory"));
    NNC_TRY(cuda(b, b->rt->cudaMalloc(&b->y, (size_t)b->n * 4), "memory"));
    NNC_TRY(cuda(b, b->rt->cudaMalloc(&b->work, WORKSPACE), "memory"));
    return fill(b);
}

static void close_bench(bench *b)
{
    if (b->rt && b->stream)
        (void)b->rt->cudaStreamSynchronize(b->stream);
    if (b->library)
        b->rt->cudaLibraryUnload(b->library);
    void *const block[] = {b->x, b->y, b->work};
    for (size_t i = 0; i < NNC_COUNT(block); i++)
        if (block[i])
            b->rt->cudaFree(block[i]);
    if (b->begin)
        b->rt->cudaEventDestroy(b->begin);
    if (b->end)
        b->rt->cudaEventDestroy(b->end);
    if (b->stream)
        b->rt->cudaStreamDestroy(b->stream);
}

static void one(bench *b, const char *id, nnc_status (*fn)(bench *b, nnc_text *t), bool kernels)
{
    nnc_text t = {0};
    if (!results_begin(&b->j->results, id))
        return;
    nnc_sink_clear(b->j->sink);
    nnc_status st = b->x ? NNC_OK : open_bench(b);
    if (!st && kernels)
        st = load_kernels(b);
    if (!st)
        st = fn(b, &t);
    if (!st)
        st = results_end(&b->j->results, id, &t, b->j->sink);
    if (st)
        results_fail(&b->j->results, id, st, b->j->sink);
    nnc_text_deinit(&t);
}

int part_ceilings(job *j)
{
    bench b = {.j = j};
    one(&b, "ceilings,memory", memory_part, true);
    one(&b, "ceilings,products", products_part, false);
    close_bench(&b);
    return results_exit(&j->results);
}

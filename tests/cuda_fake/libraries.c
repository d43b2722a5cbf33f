/* tests/cuda_fake/libraries.c -- cuBLASLt and cuDNN of tests/cudnn, which compute at once, given to streams instead. */
#include "../cudnn/fake.h"
#include "fake.h"
#include <stdlib.h>
#include <string.h>

static nnc_cuda_cublaslt lt;
static nnc_cuda_cudnn dnn;
static const nnc_cuda_cublaslt *lt_now; /* those that compute at once */
static const nnc_cuda_cudnn *dnn_now;

enum {
    EXECUTION_FAILED = 13, /* CUBLAS_STATUS_EXECUTION_FAILED */
    DNN_EXECUTION_FAILED = 5000, /* CUDNN_STATUS_EXECUTION_FAILED */
    WORK_ALIGN = 256,
    WORKSPACE = 64
}; /* bytes of it that are held to be written: who shares it shares its beginning */

static int give(cuda_stream s, void (*run)(void *), void *ctx, const fake_touch *t, int n,
    const void *work, const char *what)
{
    fake_access a[FAKE_TOUCHES + 1];
    for (int i = 0; i < n; i++)
        a[i] = (fake_access){t[i].p, (size_t)t[i].bytes, t[i].write};
    if (work)
        a[n++] = (fake_access){work, WORKSPACE, true};
    fake_count.library_calls++;
    return fake_enqueue(fake_stream_of(s), run, ctx, a, n, what);
}

/* ---- cuBLASLt ------------------------------------------------------------------------------------------------------ */

enum { DESC_BIAS = 8 };

typedef struct product {
    void *handle, *desc, *d, *la, *lb, *lc, *ld, *work;
    const void *alpha, *a, *b, *beta, *c, *bias;
    uint64_t algo[8];
    size_t work_bytes;
} product;

static void run_product(void *ctx)
{
    const product *p = ctx;
    if (p->bias) /* as it was when the call was made */
        (void)lt_now->cublasLtMatmulDescSetAttribute(p->desc, DESC_BIAS, &p->bias, sizeof p->bias);
    if (lt_now->cublasLtMatmul(p->handle, p->desc, p->alpha, p->a, p->la, p->b, p->lb, p->beta,
            p->c, p->lc, p->d, p->ld, p->algo, p->work, p->work_bytes, NULL))
        fake_wrong("cuBLASLt refuses a product");
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *la,
    const void *b, void *lb, const void *beta, const void *c, void *lc, void *d, void *ld,
    const void *algo, void *work, size_t work_bytes, cuda_stream s)
{
    fake_touch t[FAKE_TOUCHES];
    if (fake_last_error())
        return EXECUTION_FAILED;
    if ((uintptr_t)work % WORK_ALIGN) /* Hopper's kernels refuse it */
        fake_wrong("cuBLASLt gets a workspace that is not %d-byte aligned", WORK_ALIGN);
    product *p = calloc(1, sizeof *p);
    *p = (product){
        handle, desc, d, la, lb, lc, ld, work, alpha, a, b, beta, c, NULL, {0}, work_bytes};
    memcpy(p->algo, algo, sizeof p->algo);
    int n = fake_matmul_touches(desc, a, la, b, lb, c, lc, d, ld, t, &p->bias);
    return give(s, run_product, p, t, n, work, "cuBLASLt");
}

/* ---- cuDNN --------------------------------------------------------------------------------------------------------- */

static cuda_stream dnn_stream;

/* A pack of pointers that calls need, and whether its owner has destroyed it. Graphs may execute it again: it is kept to the end. */
typedef struct execution {
    void *handle, *plan, *pack;
    bool orphan;
    struct execution *next;
} execution;
static execution *all;

static void run_execution(void *ctx)
{
    const execution *x = *(execution **)ctx;
    if (dnn_now->cudnnBackendExecute(x->handle, x->plan, x->pack))
        fake_wrong("cuDNN refuses to execute a plan");
}

static int execute(void *handle, void *plan, void *pack)
{
    fake_touch t[FAKE_TOUCHES];
    if (fake_last_error())
        return DNN_EXECUTION_FAILED;
    execution *x = calloc(1, sizeof *x), **ctx = malloc(sizeof(execution *));
    *x = (execution){handle, plan, pack, false, all};
    all = *ctx = x;
    return give(
        dnn_stream, run_execution, ctx, t, fake_cudnn_touches(plan, pack, t), NULL, "cuDNN");
}

static int destroy(void *desc)
{
    for (execution *x = all; x; x = x->next)
        if (x->pack == desc) {
            x->orphan = true;
            return 0;
        }
    return dnn_now->cudnnBackendDestroyDescriptor(desc);
}

static int set_stream(void *handle, cuda_stream s)
{
    (void)handle;
    dnn_stream = s;
    return 0;
}

void fake_compiles(void)
{
    fake_driver();
}

void fake_plans_nothing(bool on)
{
    fake_compiles_nothing = on;
}

void fake_libraries_begin(void)
{
    fake_install();
    lt_now = NNC_CUDA(cublaslt, NULL);
    dnn_now = NNC_CUDA(cudnn, NULL);
    lt = *lt_now;
    lt.cublasLtMatmul = matmul;
    dnn = *dnn_now;
    dnn.cudnnBackendExecute = execute;
    dnn.cudnnBackendDestroyDescriptor = destroy;
    dnn.cudnnSetStream = set_stream;
    nnc_cuda_override(CUDA_cublaslt, &lt);
    nnc_cuda_override(CUDA_cudnn, &dnn);
}

void fake_libraries_end(void)
{
    while (all) {
        execution *x = all;
        all = x->next;
        if (x->orphan)
            (void)dnn_now->cudnnBackendDestroyDescriptor(x->pack);
        free(x);
    }
    if (fake_alive || fake_handles)
        fake_wrong("left: %d descriptors, %d handles of libraries", fake_alive, fake_handles);
    nnc_cuda_forget();
}

/* cuda/cudnn.h -- cuDNN 9 graphs: built, planned with or without a GPU, run.
 *
 * A graph consists of convolutions, matrix products, reductions and pointwise operations over tensors; intermediate
 * tensors are virtual. cuDNN's
 * heuristics return engine configurations, best first; a plan is a finalized configuration.
 * Everything except running works without a GPU when the GPU is described (NVIDIA, "Deviceless ahead-of-time
 * compilation", since cuDNN 9.8). Runtime-compiled engines still need the driver's library: without it the
 * heuristics do not list them.
 *
 * A graph is used by one thread at a time. Building it records the first error, which nnc_cudnn_finish returns. */
#ifndef NNC_CUDNN_H
#define NNC_CUDNN_H

#include "cuda/cuda.h"

/* A GPU that need not be present. Strings are borrowed during nnc_cudnn_create. */
typedef struct nnc_cudnn_device {
    const char *name;
    int sm, sms, sm_threads;            /* 90 = sm_90 */
    int64_t memory_bytes, shared_bytes; /* shared memory: maximum per block */
    int64_t l2_bytes, clock_hz;
} nnc_cudnn_device;

typedef struct nnc_cudnn nnc_cudnn;

/* Creates an empty graph for the GPU described, or for the current device where `d` is NULL. NNC_E_DEVICE: cuDNN is
 * missing, or cannot be used here: the libraries of 9.28 load only beside the driver's, those of 9.19 need none. */
nnc_status nnc_cudnn_create(const nnc_cudnn_device *d, nnc_cudnn **out, nnc_sink *sink) NNC_MUST;
void nnc_cudnn_destroy(nnc_cudnn *g); /* NULL is allowed */

/* Creates a graph that is only recorded as text, one line per tensor and operation, and needs no cuDNN. Graphs with
 * the same text get the same answer from cuDNN. `out` must outlive the graph; only building functions may be called
 * on it. */
nnc_status nnc_cudnn_sketch(nnc_text *out, nnc_cudnn **g) NNC_MUST;

/* ---- building ----------------------------------------------------------------------------------------------------- */

/* Adds a tensor and returns its id, which is also used when the plan runs; -1 after an error. Strides are in
 * elements. At least 3 dimensions in cuDNN's logical order N, C, spatial (filters: K, C / groups, spatial),
 * independent of the memory order. Virtual tensors have no memory. */
typedef struct nnc_cudnn_tensor {
    nnc_dtype dtype; /* f32, f16, bf16; virtual ones also i32 and bool */
    int rank;
    int64_t dim[NNC_MAX_RANK], stride[NNC_MAX_RANK];
    bool is_virtual;
    bool by_value;   /* one number, at a pointer of the host when the plan runs */
} nnc_cudnn_tensor;
int nnc_cudnn_add_tensor(nnc_cudnn *g, const nnc_cudnn_tensor *t);

typedef enum nnc_cudnn_conv_kind {
    CUDNN_FORWARD,         /* y = x * w */
    CUDNN_BACKWARD_DATA,   /* x = w * y: dgrad, transposed convolution */
    CUDNN_BACKWARD_FILTER, /* w = x * y: wgrad */
} nnc_cudnn_conv_kind;
/* 1 to 3 spatial dimensions; the number of groups follows from the filter's second dimension. */
typedef struct nnc_cudnn_window {
    int spatial;
    int64_t stride[3], dilation[3], pad_lo[3], pad_hi[3];
} nnc_cudnn_window;
void nnc_cudnn_conv(nnc_cudnn *g, nnc_cudnn_conv_kind kind, const nnc_cudnn_window *w, int x, int filter, int y);

/* CUDNN_POINTWISE_* */
typedef enum nnc_cudnn_pointwise_mode {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_RELU = 100,
    CUDNN_CMP_GE = 303,
    CUDNN_GEN_INDEX = 501,
    CUDNN_BINARY_SELECT = 601,
} nnc_cudnn_pointwise_mode;
/* y = mode(x), or mode(x, b); b is -1 for unary modes. */
void nnc_cudnn_pointwise(nnc_cudnn *g, nnc_cudnn_pointwise_mode mode, int x, int b, int y);

/* y (i32) = the index of x's elements along dimension `axis`. */
void nnc_cudnn_index(nnc_cudnn *g, int axis, int x, int y);
/* y (bool) = a >= b, of i32. */
void nnc_cudnn_not_less(nnc_cudnn *g, int a, int b, int y);
/* y = when (bool) ? a : b */
void nnc_cudnn_select(nnc_cudnn *g, int when, int a, int b, int y);
/* c[.., m, n] = a[.., m, k] b[.., k, n], accumulated in f32; batches of one are broadcast. */
void nnc_cudnn_matmul(nnc_cudnn *g, int a, int b, int c);
/* y = sum or maximum of x over the dimensions that are 1 in y. */
void nnc_cudnn_reduce(nnc_cudnn *g, bool max, int x, int y);

/* Finishes building. NNC_E_DEVICE: cuDNN does not support the graph; nnc_cudnn_why returns the reason (the sink gets
 * nothing, since a refusal is a valid answer). */
nnc_status nnc_cudnn_finish(nnc_cudnn *g) NNC_MUST;
/* The reason of the last refusal as cuDNN states it, "" without one. */
const char *nnc_cudnn_why(const nnc_cudnn *g);

/* ---- planning ----------------------------------------------------------------------------------------------------- */

/* cuDNN's notes on an engine, as bits. */
enum {
    CUDNN_TENSOR_CORE = 1 << 0,
    CUDNN_DOWN_CONVERT = 1 << 1,
    CUDNN_FFT = 1 << 3,
    CUDNN_NONDETERMINISTIC = 1 << 4,
    CUDNN_WINOGRAD = 0xf << 5, /* in any form */
};
enum {
    CUDNN_COMPILES = 1 << 0, /* compiles a kernel when the plan is made */
    CUDNN_CUBLASLT = 1 << 4, /* needs cuBLASLt */
};

typedef struct nnc_cudnn_filter {
    uint32_t with, without;  /* numerical notes required, excluded */
    bool every; /* engines that the heuristics do not list are listed after them, as they are by default */
    bool precompiled;        /* exclude runtime-compiled engines */
    int64_t workspace_limit; /* bytes */
} nnc_cudnn_filter;

typedef struct nnc_cudnn_config {
    int64_t engine;              /* cuDNN's engine number */
    int64_t workspace;           /* bytes that the plan needs; -1: unknown until the plan is made */
    uint32_t numerical, behavior; /* notes */
    bool fallback;               /* from the list of fallbacks */
} nnc_cudnn_config;

/* Asks the heuristics (mode A, then the fallbacks) for configurations that pass the filter. Returns their number,
 * best first; 0 with the reason in nnc_cudnn_why; -1: out of memory. */
int nnc_cudnn_query(nnc_cudnn *g, const nnc_cudnn_filter *f);
const nnc_cudnn_config *nnc_cudnn_config_at(const nnc_cudnn *g, int i);

/* Makes configuration i the graph's plan. NNC_E_DEVICE: it cannot be finalized (the heuristics list such
 * configurations too) or needs more than `limit` bytes, see nnc_cudnn_why; try the next one. */
nnc_status nnc_cudnn_plan(nnc_cudnn *g, int i, int64_t limit) NNC_MUST;
/* Makes the first configuration that can be finalized the plan, beginning at `from`. Returns its index, or -1 with
 * nnc_cudnn_why. */
int nnc_cudnn_plan_first(nnc_cudnn *g, int from, int64_t limit);
int64_t nnc_cudnn_workspace(const nnc_cudnn *g); /* bytes of the plan; -1 without one */

/* Appends the plan as text that cuDNN reads back, valid for the same cuDNN version and GPU. Appends nothing when
 * cuDNN cannot write it. */
void nnc_cudnn_plan_text(nnc_cudnn *g, nnc_text *out);
/* Reads a plan from such text; tensors keep their ids. The graph may be empty. */
nnc_status nnc_cudnn_plan_read(nnc_cudnn *g, const char *text, size_t n) NNC_MUST;

/* ---- running ------------------------------------------------------------------------------------------------------ */

/* Runs the plan on nnc_cuda_current() of the current device. The tensor id[i] is at ptr[i]; work:
 * nnc_cudnn_workspace bytes. */
nnc_status nnc_cudnn_run(nnc_cudnn *g, int n, const int64_t *id, void *const *ptr, void *work) NNC_MUST;

/* Creates cuDNN's handle for the current device; it is kept while plans are loaded. A handle cannot be created
 * during a stream capture, so this is called before. */
nnc_status nnc_cudnn_hold(nnc_sink *sink) NNC_MUST;
void nnc_cudnn_release(void);

#endif

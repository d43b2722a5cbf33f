/* cuda/cudnn.h -- graphs of cuDNN 9: described, planned with or without a GPU, run.
 *
 * A graph is convolutions, pointwise ops and resampling over tensors; intermediate ones are virtual. cuDNN's heuristics answer with
 * engine configurations, best first; a plan is one of them made ready. All of it but running works on a machine without a GPU when the
 * GPU is described (NVIDIA, "Deviceless ahead-of-time compilation", since cuDNN 9.8). Engines that compile at run time need the driver's
 * library even so: without it they are not among the configurations.
 *
 * One thread at a time uses a graph. Its descriptions collect the first error: nnc_cudnn_finish returns it. */
#ifndef NNC_CUDNN_H
#define NNC_CUDNN_H

#include "cuda/cuda.h"

/* A GPU that need not be there. Strings are borrowed during nnc_cudnn_create. */
typedef struct nnc_cudnn_device {
    const char *name;
    int sm, sms, sm_threads;            /* 90 = sm_90 */
    int64_t memory_bytes, shared_bytes; /* shared memory that a block may ask for */
    int64_t l2_bytes, clock_hz;
} nnc_cudnn_device;

/* The description as cuDNN reads it: the names of cudaDeviceGetAttribute in JSON. */
void nnc_cudnn_device_json(nnc_text *out, const nnc_cudnn_device *d);

typedef struct nnc_cudnn nnc_cudnn;

/* An empty graph for the GPU described, or for the current device where `d` is NULL. NNC_E_DEVICE: no cuDNN, or one that cannot be asked
 * here: 9.28's libraries load only beside the driver's, 9.19's need none. */
nnc_status nnc_cudnn_create(const nnc_cudnn_device *d, nnc_cudnn **out, nnc_sink *sink) NNC_MUST;
void nnc_cudnn_destroy(nnc_cudnn *g); /* NULL is allowed */

/* A graph that is only written down: describing it appends a line a tensor and an operation, and needs no cuDNN. Two graphs of the same
 * text are the same question. `out` lives until nnc_cudnn_destroy; nothing else may be asked of it. */
nnc_status nnc_cudnn_sketch(nnc_text *out, nnc_cudnn **g) NNC_MUST;

/* ---- describing ---------------------------------------------------------------------------------------------------- */

/* A tensor's number, its id when the plan runs; -1 after an error. Strides in elements. At least 3 dimensions: cuDNN's are N, C,
 * spatial (filters K, C / groups, spatial), whatever order they lie in. Virtual ones have no memory. */
typedef struct nnc_cudnn_tensor {
    nnc_dtype dtype; /* f32, f16, bf16 */
    int rank;
    int64_t dim[NNC_MAX_RANK], stride[NNC_MAX_RANK];
    bool is_virtual;
} nnc_cudnn_tensor;
int nnc_cudnn_add_tensor(nnc_cudnn *g, const nnc_cudnn_tensor *t);

typedef enum nnc_cudnn_conv_kind {
    CUDNN_FORWARD,         /* y = x * w */
    CUDNN_BACKWARD_DATA,   /* x = w * y: dgrad, transposed convolution */
    CUDNN_BACKWARD_FILTER, /* w = x * y: wgrad */
} nnc_cudnn_conv_kind;
/* Spatial dimensions 1..3; groups follow from the filter's second dimension. */
typedef struct nnc_cudnn_window {
    int spatial;
    int64_t kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3]; /* kernel: of resampling alone */
} nnc_cudnn_window;
void nnc_cudnn_conv(nnc_cudnn *g, nnc_cudnn_conv_kind kind, const nnc_cudnn_window *w, int x, int filter, int y);

/* CUDNN_POINTWISE_* */
typedef enum nnc_cudnn_pointwise_mode {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_IDENTITY = 21,
    CUDNN_RELU = 100,
    CUDNN_TANH = 101,
    CUDNN_SIGMOID = 102,
    CUDNN_GELU = 104,
    CUDNN_SWISH = 106,
    CUDNN_GELU_TANH = 107,
    CUDNN_RELU_GRAD = 200, /* y = b where x > 0, else 0 */
} nnc_cudnn_pointwise_mode;
/* y = mode(x), or mode(x, b); b -1 where there is none. RELU clips to [lo, hi] and has `slope` below lo: 0, infinity, 0 is plain. */
typedef struct nnc_cudnn_clip {
    double lo, hi, slope;
} nnc_cudnn_clip;
void nnc_cudnn_pointwise(
    nnc_cudnn *g, nnc_cudnn_pointwise_mode mode, const nnc_cudnn_clip *clip, int x, int b, int y);

typedef enum nnc_cudnn_pool { CUDNN_AVERAGE_PADDED = 2, CUDNN_MAXIMUM = 3, CUDNN_AVERAGE = 4 } nnc_cudnn_pool;
void nnc_cudnn_resample(nnc_cudnn *g, nnc_cudnn_pool mode, const nnc_cudnn_window *w, int x, int y);

/* Ends the description. NNC_E_DEVICE: cuDNN refuses it, nnc_cudnn_why says why (nothing goes to the sink: refusing is an answer). */
nnc_status nnc_cudnn_finish(nnc_cudnn *g) NNC_MUST;
/* The last refusal in cuDNN's words, "" without one; the graph's text. */
const char *nnc_cudnn_why(const nnc_cudnn *g);

/* ---- planning ------------------------------------------------------------------------------------------------------ */

/* Bits of cuDNN's notes on an engine. */
enum {
    CUDNN_TENSOR_CORE = 1 << 0,
    CUDNN_DOWN_CONVERT = 1 << 1,
    CUDNN_NONDETERMINISTIC = 1 << 4,
    CUDNN_WINOGRAD = 0xf << 5, /* any of its forms */
};
enum {
    CUDNN_COMPILES = 1 << 0, /* a kernel, when the plan is made */
    CUDNN_CUBLASLT = 1 << 4, /* needs cuBLASLt */
};

typedef struct nnc_cudnn_filter {
    uint32_t with, without;  /* numerical notes that an engine must have, must not have */
    bool precompiled;        /* no engine that compiles */
    int64_t workspace_limit; /* bytes */
} nnc_cudnn_filter;

typedef struct nnc_cudnn_config {
    int64_t engine;              /* cuDNN's number of it */
    int64_t workspace;           /* bytes, as the plan will ask for; -1: cuDNN does not say before the plan is made */
    uint32_t numerical, behavior; /* notes */
    bool fallback;               /* from the list of what always works */
} nnc_cudnn_config;

/* Asks the heuristics (mode A, then the fallbacks) for configurations that pass the filter. Returns how many there are, best first;
 * 0 with nnc_cudnn_why; -1: out of memory. */
int nnc_cudnn_query(nnc_cudnn *g, const nnc_cudnn_filter *f);
const nnc_cudnn_config *nnc_cudnn_config_at(const nnc_cudnn *g, int i);

/* Makes configuration i the graph's plan. NNC_E_DEVICE: it does not become one, or needs more than `limit` bytes (nnc_cudnn_why); the
 * heuristics list such, too: go on with the next. */
nnc_status nnc_cudnn_plan(nnc_cudnn *g, int i, int64_t limit) NNC_MUST;
/* The first that becomes a plan, from configuration `from` on: its index, or -1 with nnc_cudnn_why. */
int nnc_cudnn_plan_first(nnc_cudnn *g, int from, int64_t limit);
int64_t nnc_cudnn_workspace(const nnc_cudnn *g); /* of the plan; -1 without one */

/* The plan as text that cuDNN reads again: tied to its version and to the GPU. Appends nothing when cuDNN cannot. */
void nnc_cudnn_plan_text(nnc_cudnn *g, nnc_text *out);
/* The plan that a text holds; tensors keep their numbers. The graph may be empty. */
nnc_status nnc_cudnn_plan_read(nnc_cudnn *g, const char *text, size_t n) NNC_MUST;

/* ---- running ------------------------------------------------------------------------------------------------------- */

/* Runs the plan on nnc_cuda_current() of the current device. id[i] has its memory at ptr[i]; work: nnc_cudnn_workspace bytes. */
nnc_status nnc_cudnn_run(nnc_cudnn *g, int n, const int64_t *id, void *const *ptr, void *work) NNC_MUST;

/* What cuDNN keeps for the current device: held while plans are loaded. It must not be made while a stream is captured. */
nnc_status nnc_cudnn_hold(nnc_sink *sink) NNC_MUST;
void nnc_cudnn_release(void);

#endif

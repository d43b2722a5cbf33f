/* cuda/cudnn_internal.h -- shared by cudnn*.c: the values of cuDNN's backend API in use (cuDNN 9 API reference,
 * "cudnn_graph"; stable within version 9), and the graph. */
#ifndef NNC_CUDNN_INTERNAL_H
#define NNC_CUDNN_INTERNAL_H

#include "cuda/cudnn.h"

/* cudnnBackendDescriptorType_t */
enum {
    D_POINTWISE = 0, D_CONVOLUTION = 1, D_ENGINE = 2, D_CONFIG = 3, D_HEURISTIC = 4, D_PLAN = 5,
    D_OP_CONV = 10, D_OP_CONV_BWD_FILTER = 11, D_OP_CONV_BWD_DATA = 12, D_OP_POINTWISE = 13,
    D_GRAPH = 15, D_PACK = 16, D_TENSOR = 17, D_MATMUL = 18, D_OP_MATMUL = 19, D_REDUCTION = 21, D_OP_REDUCTION = 22,
    D_DEVICE = 38,
};

/* cudnnBackendAttributeType_t */
enum {
    T_HANDLE = 0, T_DATA_TYPE = 1, T_BOOL = 2, T_INT64 = 3, T_FLOAT = 4, T_DOUBLE = 5, T_POINTER = 6, T_CONV_MODE = 7,
    T_HEUR_MODE = 8, T_NUMERICAL_NOTE = 11, T_POINTWISE_MODE = 14, T_DESC = 15, T_REDUCE_OP = 18, T_BEHAVIOR_NOTE = 19,
    T_INT32 = 23, T_CHAR = 24,
};

/* cudnnBackendAttributeName_t */
enum {
    A_POINTWISE_MODE = 0, A_POINTWISE_PREC = 1, A_POINTWISE_AXIS = 9,
    A_CONV_PREC = 100, A_CONV_MODE = 101, A_CONV_DILATIONS = 102, A_CONV_STRIDES = 103, A_CONV_PAD_HI = 104, A_CONV_PAD_LO = 105,
    A_CONV_SPATIAL = 106,
    A_HEUR_MODE = 200, A_HEUR_GRAPH = 201, A_HEUR_RESULTS = 202, A_HEUR_DEVICE = 204,
    A_CONFIG_ENGINE = 300, A_CONFIG_WORKSPACE = 303,
    A_PLAN_HANDLE = 400, A_PLAN_CONFIG = 401, A_PLAN_WORKSPACE = 402, A_PLAN_JSON = 405, A_PLAN_DEVICE = 407,
    A_OP_CONV = 700, /* alpha, beta, convolution, w, x, y */
    A_OP_BWD_DATA = 706, /* alpha, beta, convolution, w, dx, dy */
    A_OP_BWD_FILTER = 712, /* alpha, beta, convolution, dw, x, dy */
    A_OP_POINTWISE_DESC = 750, A_OP_POINTWISE_X = 751, A_OP_POINTWISE_B = 752, A_OP_POINTWISE_Y = 753,
    A_OP_POINTWISE_T = 758,
    A_GRAPH_OPS = 801,
    A_GRAPH_ENGINES = 802, /* their number */
    A_TENSOR_ALIGNMENT = 900, A_TENSOR_TYPE = 901, A_TENSOR_DIMS = 902, A_TENSOR_STRIDES = 903, A_TENSOR_ID = 906,
    A_TENSOR_VIRTUAL = 907, A_TENSOR_BY_VALUE = 908,
    A_PACK_IDS = 1000, A_PACK_POINTERS = 1001, A_PACK_WORKSPACE = 1003,
    A_ENGINE_GRAPH = 1300, A_ENGINE_INDEX = 1301, A_ENGINE_NUMERICAL = 1303, A_ENGINE_BEHAVIOR = 1305, A_ENGINE_DEVICE = 1307,
    A_MATMUL_PREC = 1500,
    A_OP_MATMUL = 1520, /* a, b, c, descriptor */
    A_REDUCE_OP = 1600, A_REDUCE_PREC = 1601,
    A_OP_REDUCE = 1610, /* x, y, descriptor */
    A_DEVICE_ID = 2700, A_DEVICE_JSON = 2702,
};

enum { HEUR_FALLBACK = 2, HEUR_A = 3 };
enum { CROSS_CORRELATION = 1 };
enum { REDUCE_ADD = 0, REDUCE_MAX = 3 }; /* cudnnReduceTensorOp_t */

enum { MAX_OPS = 16 };

typedef struct cudnn_found {
    nnc_cudnn_config c;
    void *desc;
} cudnn_found;

struct nnc_cudnn {
    const nnc_cuda_cudnn *api;
    nnc_text *words;   /* text of a recorded graph (nnc_cudnn_sketch); api is NULL then */
    nnc_sink *sink;    /* during create and building */
    nnc_status status; /* first error of building */
    char why[512];
    nnc_arena mem; /* of the lists below */
    void *device; /* whose engines and plans are asked for */
    void **own; /* all descriptors except those below, in order of creation */
    size_t n_own, cap_own;
    void **tensor;
    size_t n_tensor, cap_tensor;
    void *op[MAX_OPS];
    int n_op;
    void *graph;
    cudnn_found *found;
    int n_found;
    void *plan;
    int64_t workspace;
};

/* Stores cuDNN's last error text without the file names around it. */
nnc_status cudnn_refused(nnc_cudnn *g, int status);
/* Creates a descriptor; NULL after an error. `mine`: destroyed with the graph. */
void *cudnn_desc(nnc_cudnn *g, int type, bool mine);
void cudnn_set(nnc_cudnn *g, void *desc, int attribute, int type, int64_t n, const void *value);
/* Finalizes a descriptor; NULL after an error. */
void *cudnn_final(nnc_cudnn *g, void *desc);
/* cudnn_plan.c: drops the configurations of the last query. */
void cudnn_forget_found(nnc_cudnn *g);

#endif

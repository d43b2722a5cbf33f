/* base/tensor.h -- element types and tensor types: shape, dtype and memory order. Plain data, shared by all three IRs and the runtime. */
#ifndef NNC_TENSOR_H
#define NNC_TENSOR_H

#include "base/arena.h"
#include "base/text.h"

#define NNC_MAX_RANK 8
#define NNC_MAX_PARTS 1024 /* most parts of one tensor that are written each by itself */

typedef enum nnc_dtype {
#define DT(name, bytes, kind, ctype, doc) DT_##name,
#include "base/dtypes.def"
    DT__COUNT
} nnc_dtype;

typedef enum nnc_dkind { NNC_FLOAT, NNC_INT, NNC_UINT, NNC_BOOL } nnc_dkind;

int nnc_dtype_size(nnc_dtype d); /* bytes */
nnc_dkind nnc_dtype_kind(nnc_dtype d);
const char *nnc_dtype_name(nnc_dtype d);
bool nnc_dtype_parse(const char *name, size_t n, nnc_dtype *out);
static inline bool nnc_is_float(nnc_dtype d) { return nnc_dtype_kind(d) == NNC_FLOAT; }
/* The greatest or least value of an integer type, from which a minimum or a maximum starts. It has the bits that are kept (u64:
 * int64_t of the same bits). */
int64_t nnc_int_end(nnc_dtype d, bool top);

/* Precision to which contractions may round their f32 operands; accumulation stays in f32. */
typedef enum nnc_precision {
    NNC_PRECISION_default, /* f32, or tf32 where --math=fast allows it */
    NNC_PRECISION_f32,
    NNC_PRECISION_tf32, /* within the call, on tensor cores: 10-bit mantissa; tensors stay f32 */
    NNC_PRECISION_f16,  /* including tensors between contractions */
    NNC_PRECISION_bf16,
    NNC_PRECISION__COUNT
} nnc_precision;
const char *nnc_precision_name(nnc_precision p); /* "default", "f32", ... */
bool nnc_precision_parse(const char *name, nnc_precision *out); /* not "default" */
nnc_dtype nnc_precision_dtype(nnc_precision p); /* of the operands in memory: f32, f16 or bf16 */

/* Accuracy of math functions in generated kernels, --math (docs/math.md), by growing error. */
typedef enum nnc_math { MATH_exact = -1, MATH_ulp2 = 0, MATH_fast = 1 } nnc_math;

/* Options of a compilation that passes, lowering, engine choice and plan read. Zeros are the defaults. */
typedef struct nnc_policy {
    nnc_math math;
    nnc_precision precision; /* of contractions, as requested */
    bool tf32;               /* contractions may round f32 operands to 10 bits of mantissa; needs tensor cores for tf32 */
} nnc_policy;
nnc_precision nnc_policy_precision(const nnc_policy *p); /* the precision that results: never the default */

/* A tensor type. Logical dimensions keep the user's order (NCHW); `order` says how they lie in memory:
 * order[0] is the outermost stored dimension, order[rank-1] the one with stride 1. Identity = row-major.
 * NHWC of a 4-d value is {0,2,3,1}. A strided type is a part of a larger tensor: dimension i has dim[i] + gap[i] indices in memory, of
 * which only the first dim[i] are its own. A type without gaps is dense. */
struct nnc_type {
    uint8_t dtype; /* nnc_dtype */
    uint8_t rank;
    uint8_t order[NNC_MAX_RANK];
    int64_t dim[NNC_MAX_RANK];
    int64_t gap[NNC_MAX_RANK]; /* 0 where it decides no stride */
};

nnc_type nnc_type_make(nnc_dtype d, int rank, const int64_t *dim); /* row-major */
int64_t nnc_type_extents(const nnc_type *t, int from, int to); /* product of the extents of dimensions from..to-1 */
/* nnc_type_numel and nnc_type_bytes (base/codes.h) need a type that nnc_type_check has checked for overflow. */
/* Strides in elements by logical dimension. */
void nnc_type_strides(const nnc_type *t, int64_t stride[NNC_MAX_RANK]);
/* Elements and bytes of memory from the first element to the last, those of gaps between them included. nnc_type_numel and
 * nnc_type_bytes leave the gaps out. */
int64_t nnc_type_span(const nnc_type *t);
static inline int64_t nnc_type_span_bytes(const nnc_type *t) { return nnc_type_span(t) * nnc_dtype_size((nnc_dtype)t->dtype); }
bool nnc_type_is_dense(const nnc_type *t);
nnc_type nnc_type_dense(const nnc_type *t); /* without its gaps */
/* Gives part t, of whole's memory order and with extents of at most whole's, the strides of whole. */
void nnc_type_set_part(nnc_type *t, const nnc_type *whole);
bool nnc_type_is_row_major(const nnc_type *t); /* dense, memory order equals row-major (size-1 dims do not matter) */
bool nnc_type_in_order(const nnc_type *t); /* memory order spelled as row-major, as a reshape's result has it */
bool nnc_type_same_shape(const nnc_type *a, const nnc_type *b); /* dims only */
bool nnc_type_same_strides(const nnc_type *a, const nnc_type *b); /* of dimensions that have more than one element in either */
bool nnc_type_same_memory(const nnc_type *a, const nnc_type *b); /* same dims and the same byte for each element */
bool nnc_type_equal(const nnc_type *a, const nnc_type *b); /* dtype, dims, order and gaps */
static inline void nnc_type_set_order(nnc_type *t, const uint8_t *order) { memcpy(t->order, order, t->rank); }
bool nnc_type_orders_differ(const nnc_type *t); /* rank >= 3, and channels last is another order in memory than row-major */
void nnc_type_channels_last(nnc_type *t); /* N, spatial..., C for rank >= 3 */
/* rank <= NNC_MAX_RANK, every dim >= 1, bytes <= 2^46; otherwise false, with the reason in *what (static text). */
bool nnc_type_check(const nnc_type *t, const char **what);
/* "f32[1,64,224,224]", with "{0,2,3,1}" appended when the order is not row-major; "64/256": 64 of 256 indices. */
void nnc_put_type(nnc_text *t, const nnc_type *ty);
nnc_status nnc_scan_type(nnc_scan *s, nnc_sink *sink, nnc_type *out) NNC_MUST;

/* One element to and from double / int64 (conversions follow C for ints, round to nearest even for floats). */
double nnc_get_f64(nnc_dtype d, const void *p, int64_t i);
void nnc_set_f64(nnc_dtype d, void *p, int64_t i, double v); /* ints: truncated towards zero and wrapped; NaN -> 0 */
int64_t nnc_get_i64(nnc_dtype d, const void *p, int64_t i);
void nnc_set_i64(nnc_dtype d, void *p, int64_t i, int64_t v); /* wraps */

/* Dense host tensor that owns its data (64-byte aligned), in the memory order of its type. */
typedef struct nnc_tensor {
    nnc_type type;
    void *data;
} nnc_tensor;
nnc_status nnc_tensor_alloc(nnc_tensor *t, const nnc_type *type, nnc_sink *sink) NNC_MUST;
void nnc_tensor_deinit(nnc_tensor *t);

#endif

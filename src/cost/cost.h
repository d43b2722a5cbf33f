/* cost/cost.h -- the machine model: what a kernel, a library call or a copy takes on a described machine. Passes, schedules, plans,
 * strategies and the simulator ask here. */
#ifndef NNC_COST_H
#define NNC_COST_H

#include "base/post.h"
#include "target/target.h"

/* ---- moving and computing (time.c) ------------------------------------------------------------------------------------------- */

/* Peak FLOP/s of contractions of this element type, on tensor cores where there are some; tf32: f32 may use them. */
int64_t nnc_target_peak_flops(const nnc_target *t, nnc_dtype d, bool tf32);
/* Estimated nanoseconds of reading and writing so many bytes on `threads` of a CPU's cores (0: all); data that fits the caches moves
 * at their bandwidth. */
int64_t nnc_target_move_ns(const nnc_target *t, int64_t bytes, int64_t threads);
/* Least nanoseconds of moving `bytes` and computing `flops` in this type at the same time (roofline). */
int64_t nnc_target_least_ns(const nnc_target *t, nnc_dtype d, bool tf32, int64_t flops, int64_t bytes);
/* The same at `rate` FLOP/s of all cores. */
int64_t nnc_target_rate_ns(const nnc_target *t, int64_t flops, int64_t rate, int64_t bytes);
/* Estimated nanoseconds of a command that moves `bytes` and does `flops` in f32: the least, plus launch. */
int64_t nnc_target_time_ns(const nnc_target *t, int64_t flops, int64_t bytes);
/* Nanoseconds until so many threads of a CPU have started a generated kernel, or a GPU a command. */
int64_t nnc_target_start_ns(const nnc_target *t, int64_t threads);
/* Estimated nanoseconds of copying `bytes` between devices of different kinds, without the launch. */
int64_t nnc_target_link_ns(int64_t bytes);
/* Number of exp-like evaluations that cost as much as one kernel launch, over the whole device. */
int64_t nnc_target_spare_ops(const nnc_target *t);

/* ---- offers (offer.c) -------------------------------------------------------------------------------------------------------- */

/* A contraction with its epilogue, as a question to its engine before there is a plan. */
typedef struct nnc_ask {
    uint8_t kind;                  /* nnc_ask_kind */
    uint8_t dtype;                 /* of operands and result */
    bool bias;                     /* a bias per channel is added first */
    bool exact;                    /* --math=exact */
    bool tf32;                     /* f32 operands may be rounded to tf32 */
    bool grouped;
    int n_post;
    nnc_post post[NNC_MAX_POST];
    bool dynamic;                  /* its second operand is computed at run time */
    bool dynamic_k_major;          /* it is dynamic, and contiguous along the sum, as the weight of a trained linear layer */
    bool static_k_major;           /* it is static, and contiguous along the sum, as the weight of a linear layer or 1x1 convolution */
    bool packable;                 /* its second operand is computed in init, so that packing it into panels costs nothing */
    bool strided;                  /* an operand or the result is a part of a larger tensor: generated kernels only */
    int64_t flops, bytes;          /* of the contraction; bytes include added tensors */
    int64_t results;
    int64_t outputs; /* results of one place: channels of a group, columns of a product; 0: unknown */
    int64_t channels; /* of a convolution's group that are summed */
    int64_t groups; /* of a convolution; 0: unknown */
    int64_t width; /* of a channel's results, the length of the innermost dimension */
    int64_t places; /* of a convolution's channel in one image, the number of results; 0: unknown */
    int64_t weights; /* elements of each matrix that a product multiplies by, where they and the rows are row-major; 0: other */
    int64_t matrices; /* of a batched product, each for rows of its own; 0, 1: one for all rows */
    bool nchw; /* a convolution of row-major tensors: a channel's elements are neighbours */
    int64_t prologue; /* FLOPs of elementwise ops that compute an element of the first operand; 0: it is in memory */
} nnc_ask;

/* Sets matrices and weights of a product of x, not transposed, and w; a convolution of one place in one group is one, too. */
void nnc_ask_product(nnc_ask *a, const nnc_type *x, const nnc_type *w);

typedef struct nnc_offer {
    bool ok;
    const nnc_target_engine *engine; /* of this kind of contraction; NULL: the target has none */
    int64_t time_ns;  /* estimate */
    const char *why;  /* not ok: the reason, or NULL; valid until the thread's next offer */
} nnc_offer;

/* The offer of the target's engine, by rules and without a library, so that the answer is the same on every machine. */
nnc_offer nnc_target_offer(const nnc_target *t, const nnc_ask *a);
/* Estimated nanoseconds of a convolution by a GPU's library, of f32 in one group, which may be rounded to tf32. Tensor cores multiply
 * channels-last tensors as they are. Row-major tensors take the faster way: strict f32 engines, which copy nothing (*strict, may be
 * NULL), or tensor cores between copies of source and result. */
int64_t nnc_target_tf32_conv_ns(const nnc_target *t, const nnc_ask *a, bool planes, bool *strict);

/* ---- instructions of generated kernels (prices.def) -------------------------------------------------------------------------- */

enum {
#define PRICE(name, intel, amd, aarch64, what) NNC_P_##name,
#include "cost/prices.def"
    NNC_P__COUNT
};
/* Prices of instructions on the cores of a family, by NNC_P_*. */
typedef struct nnc_core_prices {
    bool by_registers; /* so many instructions wait as have registers for their results; else as many as the reorder window has */
    int window; /* instructions of the reorder window */
    int64_t ps[NNC_P__COUNT];
} nnc_core_prices;
nnc_core_prices nnc_target_prices(const nnc_target *t);
enum {
#define INTERPRETED(name, ps, what) NNC_I_##name,
#include "cost/prices.def"
    NNC_I__COUNT
};
extern const int64_t nnc_interpreted_price[]; /* ps, by NNC_I_* */
enum {
#define ELEMENT(name, ps, what) NNC_N_##name,
#include "cost/prices.def"
};
extern const double nnc_element_ns[]; /* by NNC_N_* */

/* Constants of the tables of this name. */
enum {
#define TIME(name, ns, what) NNC_T_##name##_ns = ns,
#define FLOPS(name, flops, what) NNC_F_##name = flops,
#define TILES(name, value, what) NNC_W_##name = value,
#define SM(name, value, what) NNC_SM_##name = value,
#include "cost/prices.def"
};
enum {
#define GPU(name, price, what) NNC_G_##name,
#include "cost/prices.def"
};
extern const double nnc_gpu_price[]; /* by NNC_G_* */
/* Number of SMs; instructions that all of them start in a second. */
static inline int64_t nnc_target_sms(const nnc_target *t) { return t->sms > 0 ? t->sms : NNC_SM_described; }
static inline double nnc_target_issue(const nnc_target *t)
{
    return (double)NNC_SM_lanes * (double)nnc_target_sms(t) * (double)nnc_max64(t->clock_hz, 1);
}

/* ---- generated kernels of GPUs (gpu.c) --------------------------------------------------------------------------------------- */

/* True when generated kernels should compute a convolution of one input channel per group instead of the convolution engine. It has
 * `taps` weights of type d per result. Decided by bytes and FLOPs; *why (may be NULL; static per thread) explains it. */
bool nnc_target_depthwise(const nnc_target *t, nnc_dtype d, int64_t taps, const char **why);
/* A product y[rows, outputs] of few rows on a GPU, for each of `matrices` weights of [outputs, terms]. */
#define NNC_ROWS 4 /* rows whose sums a kernel keeps in registers */
typedef struct nnc_row_product {
    int64_t rows, terms, outputs, matrices;
    nnc_dtype dtype; /* of the weights in memory */
    bool tf32;
    nnc_ask_kind kind; /* of the contraction that a library computes otherwise */
} nnc_row_product;
/* True when a generated row kernel (schedule/contract.c, few_row_strips) is expected to take no longer than the library. *why (may be
 * NULL; static per thread) has both estimates, if there are a library and a kernel. */
bool nnc_target_row_product(const nnc_target *t, const nnc_row_product *r, const char **why);

#endif

/* ir/eval_internal.h -- shared by the files of the reference evaluator (eval*.c) and expand.c.
 *
 * Inside the evaluator every element takes 8 bytes: a double for float types, an int64_t for integers and bool. Values are dense and
 * row-major, whatever memory order their type has: the evaluator computes a graph's meaning. */
#ifndef NNC_IR_EVAL_INTERNAL_H
#define NNC_IR_EVAL_INTERNAL_H

#include "ir/ir.h"

typedef struct ev {
    int threads;
    const char *weight_dir;
    nnc_sink *sink;
    const nnc_rounding *rounding; /* NULL: none */
    const nnc_rval *before; /* by output: current values of states with updates; NULL: those of their weights */
} ev;

/* An operand or result: its type and its elements. */
typedef struct ev_arg {
    const nnc_type *type;
    union {
        void *p;
        double *f;
        int64_t *i;
        uint64_t *w; /* either, for ops that only move elements */
    };
} ev_arg;

typedef nnc_status ev_run(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out);
ev_run ev_ewise, ev_reduce, ev_move, ev_window, ev_contract, ev_comp;

/* ---- simulated rounding (eval_rounding.c) ---- */

typedef struct ev_errors {
    double operand, result; /* relative; 0: exact */
} ev_errors;
ev_errors ev_errors_of(const ev *e, const nnc_graph *g, const nnc_node *n);
/* A copy of g in which named ops (CL_ecomp, CL_comp) are replaced by their lowering; NULL: out of memory. */
nnc_graph *ev_expanded(const nnc_graph *g, nnc_sink *sink);
/* y[i] = x[i] perturbed by the relative errors of `a`; y may be x. operand >= 0: values that n reads; -1: n's result, rounded to its
 * dtype. */
nnc_status ev_perturb(
    const ev *e, const nnc_node *n, int operand, const nnc_type *t, double a, const double *x, double *y) NNC_MUST;
/* Multiply-adds or element operations of n. */
double ev_node_ops(const nnc_graph *g, const nnc_node *n);

/* Splits 0..n into ranges (boundaries at multiples of `grain`) and calls fn for each on the evaluator's threads. `cost` is the work
 * per item in elements; small work stays on this thread. fn may run concurrently and returns a status; the worst is returned. */
typedef nnc_status ev_body(void *ctx, int64_t begin, int64_t end);
nnc_status ev_for(
    const ev *e, int64_t n, int64_t grain, int64_t cost, ev_body *fn, void *ctx) NNC_MUST;

/* C[m,n] = A B (+ bias) over 8-byte elements, doubles or wrapping integers; a batch of products, divided among threads. A(i,k) =
 * a[i*a_row + a_k[k]]. B is packed on demand by pack: dst[k*ld + j] = B(k0+k, j0+j) for k < nk, j < nj; C(i,j) = c[i*c_row + j*c_col].
 * bias: one per row i, or NULL. */
typedef struct ev_gemm {
    bool is_int;
    int64_t m, n, k;
    const int64_t *a_k;
    int64_t a_row, c_row, c_col;
    int64_t batch; /* problems; problem(ctx, b, ...) gives the pointers of each */
    void (*problem)(
        const void *ctx, int64_t b, const uint64_t **a, uint64_t **c, const uint64_t **bias);
    void (*pack)(const void *ctx, int64_t b, int64_t k0, int64_t nk, int64_t j0, int64_t nj,
        uint64_t *dst, int64_t ld);
    const void *ctx;
} ev_gemm;
nnc_status ev_run_gemm(const ev *e, const ev_gemm *g) NNC_MUST;

/* Row-major strides of a shape. */
static inline void ev_strides(const nnc_type *t, int64_t stride[NNC_MAX_RANK])
{
    int64_t s = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        stride[d] = s;
        s *= t->dim[d];
    }
}

/* A float attribute as a number of type d; for integers the nearest value of d (an unbounded clip stays unbounded). */
double ev_attr_value(nnc_dtype d, double v);
/* Such a number of an integer type, in the evaluator's representation. */
static inline int64_t ev_int(nnc_dtype d, double v)
{
    int64_t i = 0;
    nnc_set_f64(d == DT_u64 ? DT_u64 : DT_i64, &i, 0, v);
    return i;
}

/* Per-spatial-dimension attributes of windows and convolutions, padded to three dimensions at
 * the front. */
typedef struct ev_space {
    int rank; /* 1..3 given */
    int64_t in[3], out[3], k[3], stride[3], begin[3], end[3], dil[3];
} ev_space;
void ev_space_of(ev_space *s, const nnc_node *n, const nnc_type *x, const nnc_type *y,
    const int64_t *kernel);

#endif

/* ir/eval_internal.h -- shared by the files of the reference evaluator (eval*.c) and expand.c.
 *
 * Inside the evaluator every element takes 8 bytes: a double for float types, an int64_t for integers and bool. Values are dense and
 * row-major, whatever memory order their type has: the evaluator computes a graph's meaning. */
#ifndef NNC_IR_EVAL_INTERNAL_H
#define NNC_IR_EVAL_INTERNAL_H

#include "ir/ir.h"

#include <string.h>

typedef struct ev_errors {
    double operand, result; /* relative; 0: exact */
    double terms; /* of each sum, or factors of each product, that a program may evaluate in any order; 0: none */
} ev_errors;

typedef struct ev {
    int threads;
    nnc_weight_files *files;
    nnc_sink *sink;
    const nnc_rounding *rounding; /* NULL: none */
    ev_errors errors; /* of the current node */
    const nnc_rval *before; /* by output: current values of states with updates; NULL: those of their weights */
    const nnc_replaced *edit; /* edits of the graph's values, not of those in bodies */
    size_t n_edit;
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
ev_run ev_ewise, ev_reduce, ev_move, ev_pool, ev_contract, ev_comp, ev_loop, ev_collective, ev_argmaxpool, ev_maxpool_grad, ev_winograd,
    ev_winograd_wgrad;

/* gather_elements, gather_nd (eval_loop.c) */
void ev_gather_computed(const nnc_node *n, const ev_arg *in, const ev_arg *out);

/* ---- simulated rounding (eval_rounding.c) ---- */

ev_errors ev_errors_of(const ev *e, const nnc_graph *g, const nnc_node *n);
/* A copy of g in which named ops (CL_ecomp, CL_comp) are replaced by their lowering; NULL: out of memory. */
nnc_graph *ev_expanded(const nnc_graph *g, nnc_sink *sink);
/* y[i] = x[i] perturbed by the relative errors of `a`; y may be x. operand >= 0: values that n reads; -1: n's result, rounded to its
 * dtype. */
nnc_status ev_perturb(
    const ev *e, const nnc_node *n, int operand, const nnc_type *t, double a, const double *x, double *y) NNC_MUST;
/* Makes those of n's results NaN that some order of the terms may take beyond the range of their accumulators, f32 or f64. `run` evaluates
 * n; the results follow the operands `in`. */
nnc_status ev_mark_overflow(const ev *e, const nnc_node *n, double terms, ev_run *run, const ev_arg *in) NNC_MUST;
/* Rounding of single elements. Recurrences round the states that later steps read, so their results are not perturbed again. */
typedef struct ev_noise {
    nnc_dtype d;
    bool round; /* round to d */
    double a, bias;
    double least; /* largest error of a small number */
    uint64_t key;
} ev_noise;
/* Noise of result k of n during its evaluation; without simulated rounding it has no effect. */
ev_noise ev_noise_of_result(const ev *e, const nnc_node *n, int k, const nnc_type *t);
/* Noise of the gates of recurrent op n, which are in f32, or f64. */
ev_noise ev_noise_of_gates(const ev *e, const nnc_node *n, const nnc_type *t);
/* Noise of the terms of its sums, which differs between steps. The operands' noise is the same in all steps. */
ev_noise ev_noise_of_terms(const ev *e, const nnc_node *n, const nnc_type *t);
double ev_noisy(const ev_noise *w, int64_t i, double x);
bool ev_is_recurrent(const nnc_node *n);
/* Multiply-adds or element operations of n. */
double ev_node_ops(const nnc_graph *g, const nnc_node *n);

/* Splits 0..n into ranges (boundaries at multiples of `grain`) and calls fn for each on the evaluator's threads. `cost` is the work
 * per item in elements; small work stays on this thread. fn may run concurrently and returns a status; the worst is returned. */
typedef nnc_status ev_body(void *ctx, int64_t begin, int64_t end);
nnc_status ev_for(
    const ev *e, int64_t n, int64_t grain, int64_t cost, ev_body *fn, void *ctx) NNC_MUST;

/* Row-major strides of a shape. */
static inline void ev_strides(const nnc_type *t, int64_t stride[NNC_MAX_RANK])
{
    int64_t s = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        stride[d] = s;
        s *= t->dim[d];
    }
}

/* ---- reading a source in the order of an iteration space (eval_walk.c) ---- */

/* An iteration space of row-major points, and the element of a source that belongs to each. The element is at `base` plus, for each
 * dimension, the index times a stride or an entry of a table. A table may have a row for each index of another dimension. An entry of -1
 * lies outside the source: the element is `fill`. */
typedef struct ev_walk {
    const uint64_t *src;
    int64_t base;
    uint64_t fill;
    int rank;
    int64_t dim[NNC_MAX_RANK + 1], stride[NNC_MAX_RANK + 1];
    const int64_t *table[NNC_MAX_RANK + 1]; /* NULL: a stride */
    int row[NNC_MAX_RANK + 1]; /* dimension that selects the table's row; -1: it has one row */
} ev_walk;
/* Appends a dimension, merged with the last one if one stride covers both. */
void ev_walk_add(ev_walk *w, int64_t dim, int64_t stride);
void ev_walk_table(ev_walk *w, int64_t dim, const int64_t *table, int row);
/* Appends the dimensions of `out` except the last `inner`, to which operand t is broadcast (without its last `inner`). */
void ev_walk_broadcast(ev_walk *w, const nnc_type *t, const nnc_type *out, int inner);
/* Elements of points first..first+n: a pointer to them if they are consecutive, otherwise copied to `to`. */
const uint64_t *ev_gather(const ev_walk *w, int64_t first, int64_t n, uint64_t *to);
void ev_read(const ev_walk *w, int64_t first, int64_t n, uint64_t *to); /* always copied */

/* The spatial dimensions of a convolution or pooling. */
typedef struct ev_window {
    int rank; /* 1..3 */
    bool transposed;
    int64_t in[3], out[3], k[3], stride[3], begin[3], end[3], dil[3];
    int64_t plane, results, elements; /* products of in, out, k */
    int64_t *table; /* owned */
} ev_window;
/* Without a table. */
ev_window ev_window_shape(const nnc_node *n, const nnc_type *x, const nnc_type *y, const int64_t *kernel);
nnc_status ev_window_of(const ev *e, ev_window *s, const nnc_node *n, const nnc_type *x, const nnc_type *y,
    const int64_t *kernel) NNC_MUST;
/* Appends the dimensions of kernel and result, or (without kernel_first) of result and kernel, at which a plane of the source is read.
 * `between` inserts a dimension of as many planes between them (1: none). Once per window. */
void ev_walk_window(ev_walk *w, const ev_window *s, bool kernel_first, int64_t between, int64_t stride);

/* C[batch,m,n] = A B (+ bias) over 8-byte elements, doubles or integers that wrap to d, divided among threads. Walks a and b visit the
 * points (batch, m, k) and (batch, k, n). */
typedef struct ev_gemm {
    nnc_dtype d;
    int64_t batch, m, n, k;
    ev_walk a, b;
    uint64_t *c;
    const uint64_t *bias; /* or NULL */
    int64_t bias_row, bias_col, groups; /* bias[b % groups * m + i * bias_row + j * bias_col] */
} ev_gemm;
nnc_status ev_run_gemm(const ev *e, const ev_gemm *g) NNC_MUST;

/* A float attribute as a number of type d; for integers the nearest value of d (an unbounded clip stays unbounded). */
double ev_attr_value(nnc_dtype d, double v);
/* A number of an integer type in the evaluator's representation. */
static inline int64_t ev_int(nnc_dtype d, double v)
{
    int64_t i = 0;
    nnc_set_f64(d == DT_u64 ? DT_u64 : DT_i64, &i, 0, v);
    return i;
}
/* The same as an 8-byte element. For float types it is the double's bits. */
static inline uint64_t ev_bits(nnc_dtype d, double v)
{
    uint64_t w;
    memcpy(&w, &v, 8);
    return nnc_is_float(d) ? w : (uint64_t)ev_int(d, v);
}

#endif

/* engines/loops.h -- what the files of the "loops" engine share.
 *
 * Every call is run in one of three accumulator types: f64 tensors in double, the other floats in float, integers in
 * int64 (sums wrap modulo 2^64, so they wrap in every narrower type when stored). Tensors are read and written in rows
 * through lp_load and lp_store, which know dtypes and strides; what lies between sees accumulators only. */
#ifndef NNC_LOOPS_H
#define NNC_LOOPS_H

#include "plan/plan.h"

typedef enum lp_acc { LP_F32, LP_F64, LP_I64, LP_ACCS } lp_acc;

enum { LP_PANEL = 32 }; /* columns of a panel of the second operand; a multiple of every kernel's width */
enum { LP_ROW = 512 };  /* longest row of accumulators that a window or a store works on at once */

/* Kernels of one accumulator type, compiled once per instruction set (loops_tile.h). Strides in elements. */
typedef struct lp_kernels {
    int rows; /* of one tile */
    /* c[rows][LP_PANEL] += a[rows][kn] b[kn][LP_PANEL] */
    void (*tile)(int64_t kn, const void *a, int64_t lda, const void *b, void *c, int64_t ldc);
    /* y[m * ldy + j] = x_m . w_j for n weight rows (k contiguous), m <= LP_SKINNY */
    void (*dot)(int64_t m, int64_t n, int64_t k, const void *x, int64_t ldx, const void *w,
        int64_t ldw, void *y, int64_t ldy);
    /* y[m][n] += x[m][k] w[k][n], n contiguous, m <= LP_SKINNY */
    void (*axpy)(int64_t m, int64_t n, int64_t k, const void *x, int64_t ldx, const void *w,
        int64_t ldw, void *y, int64_t ldy);
    void (*add)(int64_t n, const void *x, void *acc);
    void (*max)(int64_t n, const void *x, void *acc); /* keeps NaN */
    void (*fma)(int64_t n, const void *x, const void *w, void *acc);
    void (*fma1)(int64_t n, const void *x, const void *w, void *acc); /* one weight for all */
} lp_kernels;

enum { LP_SKINNY = 8 }; /* rows of a product that streams its weights once */

typedef struct lp_args {
    const char *src, *wei, *bias;
    const char *sum[NNC_MAX_POST]; /* operand of each PO_sum: its argument, or dst */
    char *dst;
} lp_args;

typedef struct lp_handle lp_handle;
struct lp_handle {
    nnc_call c;
    lp_acc acc;
    int esize; /* bytes of an accumulator */
    const lp_kernels *k;
    int64_t xs[NNC_MAX_RANK], ws[NNC_MAX_RANK], ys[NNC_MAX_RANK]; /* strides, elements */
    int n_arg;
    int64_t work; /* bytes */
    nnc_status (*run)(const lp_handle *h, const lp_args *a, char *work);
};

/* The kernels for this machine, chosen once. */
const lp_kernels *lp_kernels_of(lp_acc a);

/* n elements at base[off + i * stride] of dtype d, to and from accumulators. */
void lp_load(lp_acc a, nnc_dtype d, const void *base, int64_t off, int64_t stride, int64_t n, void *out);
void lp_store(lp_acc a, nnc_dtype d, void *base, int64_t off, int64_t stride, int64_t n, const void *in);
/* Adds bias (bias_off, bias_stride; stride 0 = one for the row), applies the post-ops and stores a row. */
void lp_finish(const lp_handle *h, const lp_args *a, void *row, int64_t n, int64_t bias_off,
    int64_t bias_stride, int64_t dst_off, int64_t dst_stride);
bool lp_post_ok(lp_acc a, const nnc_post *p, const char **why);

/* Window geometry of convolutions and pooling over one spatial dimension: the input position that tap t of output o
 * reads; false when it lies in the padding (or between strides, transposed). */
bool lp_position(const nnc_call *c, int dim, int64_t o, int64_t t, int64_t *pos);
/* Outputs [lo, hi) whose tap t along `dim` reads inside the input (not transposed). */
void lp_inside(const nnc_call *c, int dim, int64_t t, int64_t *lo, int64_t *hi);

/* Each fills run, work. The handle's acc, strides and kernels are set. */
void lp_prepare_conv(lp_handle *h);
void lp_prepare_matmul(lp_handle *h);
void lp_prepare_window(lp_handle *h); /* pooling and depthwise convolution */
/* Is this product one whose weights stream through once, at memory speed? */
bool lp_is_skinny(const nnc_call *c);

/* ---- blocked product: loops_gemm.c ------------------------------------------------------------------------------ */

/* C[batch][m][n] = sum_k A B, both operands delivered in panels of accumulators. */
typedef struct lp_gemm lp_gemm;
struct lp_gemm {
    const lp_handle *h;
    const lp_args *a;
    int64_t batches, m, n, k;
    /* out[i * ld + j] = A[m0 + i][k0 + j] */
    void (*fill_a)(const lp_gemm *g, int64_t batch, int64_t m0, int64_t mn, int64_t k0, int64_t kn, char *out, int64_t ld);
    /* out[j][c] = B[k0 + j][n0 + c] for c < LP_PANEL, 0 beyond n; NULL: panels are ready in `packed` */
    void (*fill_b)(const lp_gemm *g, int64_t batch, int64_t n0, int64_t k0, int64_t kn, char *out);
    const char *packed; /* [packed batch][panel of n][k][LP_PANEL] */
    int64_t packed_batches; /* batch % packed_batches is the packed one (groups) */
    /* one finished row: n0..n0+nn of row m */
    void (*row)(const lp_gemm *g, int64_t batch, int64_t m, int64_t n0, int64_t nn, char *row);
    char *work;
};
int64_t lp_gemm_work(lp_acc a, int threads); /* bytes */
void lp_gemm_run(const lp_gemm *g, int threads);

#endif

/* engines/loops_tile.h -- the inner loops of the "loops" engine, a template. loops_simd.c
 * includes it once per element type and instruction set with T (element), V (lanes of a
 * register), R (rows of a tile), X(name) defined. Written with GNU vector types: two registers
 * of V lanes across, so that R x 2 accumulators and both operands stay in registers. */

typedef T X(vec) __attribute__((vector_size(sizeof(T) * V), aligned(sizeof(T)), may_alias));

static void X(tile)(int64_t kn, const void *a_, int64_t lda, const void *b_, void *c_, int64_t ldc)
{
    const T *a = a_;
    T *cp = c_;
    for (int j = 0; j < LP_PANEL; j += 2 * V) {
        const T *b = (const T *)b_ + j;
        X(vec) c[R][2];
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            c[i][0] = *(const X(vec) *)(cp + i * ldc + j);
            c[i][1] = *(const X(vec) *)(cp + i * ldc + j + V);
        }
        for (int64_t k = 0; k < kn; k++, b += LP_PANEL) {
            X(vec) b0 = *(const X(vec) *)b, b1 = *(const X(vec) *)(b + V);
#pragma GCC unroll 16
            for (int i = 0; i < R; i++) {
                T s = a[i * lda + k];
                c[i][0] += s * b0;
                c[i][1] += s * b1;
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            *(X(vec) *)(cp + i * ldc + j) = c[i][0];
            *(X(vec) *)(cp + i * ldc + j + V) = c[i][1];
        }
    }
}

/* rn weight rows against m rows of x. m and rn are constants after inlining: m x rn accumulators
 * in registers, each weight read once. Prefetches a few kB ahead of each stream: hardware stops
 * at page ends. */
static inline __attribute__((always_inline)) void X(dots)(const int m, const int rn, int64_t k, const T *x,
    int64_t ldx, const T *w, int64_t ldw, T *y, int64_t ldy)
{
    X(vec) c[LP_SKINNY][8] = {0};
    int64_t i = 0;
    for (; i + V <= k; i += V) {
        X(vec) wv[8];
#pragma GCC unroll 8
        for (int r = 0; r < rn; r++) {
            __builtin_prefetch((const char *)(w + r * ldw + i) + 2048, 0, 3);
            wv[r] = *(const X(vec) *)(w + r * ldw + i);
        }
#pragma GCC unroll 8
        for (int j = 0; j < m; j++) {
            X(vec) xv = *(const X(vec) *)(x + j * ldx + i);
#pragma GCC unroll 8
            for (int r = 0; r < rn; r++)
                c[j][r] += wv[r] * xv;
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < m; j++)
#pragma GCC unroll 8
        for (int r = 0; r < rn; r++) {
            T s = 0;
            for (int l = 0; l < V; l++)
                s += c[j][r][l];
            for (int64_t t = i; t < k; t++)
                s += x[j * ldx + t] * w[r * ldw + t];
            y[j * ldy + r] = s;
        }
}

#define ROWS_(M, RN) \
    for (; j + RN <= n; j += RN) \
        X(dots)(M, RN, k, x, ldx, w + j * ldw, ldw, y + j, ldy); \
    for (; j < n; j++) \
        X(dots)(M, 1, k, x, ldx, w + j * ldw, ldw, y + j, ldy)

static void X(dot)(int64_t m, int64_t n, int64_t k, const void *x_, int64_t ldx, const void *w_,
    int64_t ldw, void *y_, int64_t ldy)
{
    const T *x = x_, *w = w_;
    T *y = y_;
    int64_t j = 0;
    switch (m) {
    case 1: ROWS_(1, 4); break;
    case 2: ROWS_(2, 4); break;
    case 3: ROWS_(3, 4); break;
    case 4: ROWS_(4, 4); break;
    case 5: ROWS_(5, 3); break;
    case 6: ROWS_(6, 3); break;
    case 7: ROWS_(7, 3); break;
    default: ROWS_(8, 3); break;
    }
}
#undef ROWS_

static inline __attribute__((always_inline)) void X(axpys)(const int m, int64_t n, int64_t k, const T *x,
    int64_t ldx, const T *w, int64_t ldw, T *y, int64_t ldy)
{
    int64_t j = 0;
    for (; j + 2 * V <= n; j += 2 * V) {
        X(vec) c[LP_SKINNY][2];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            c[i][0] = *(const X(vec) *)(y + i * ldy + j);
            c[i][1] = *(const X(vec) *)(y + i * ldy + j + V);
        }
        for (int64_t t = 0; t < k; t++) {
            const T *wr = w + t * ldw + j;
            X(vec) b0 = *(const X(vec) *)wr, b1 = *(const X(vec) *)(wr + V);
#pragma GCC unroll 8
            for (int i = 0; i < m; i++) {
                T s = x[i * ldx + t];
                c[i][0] += s * b0;
                c[i][1] += s * b1;
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            *(X(vec) *)(y + i * ldy + j) = c[i][0];
            *(X(vec) *)(y + i * ldy + j + V) = c[i][1];
        }
    }
    for (; j < n; j++)
        for (int i = 0; i < m; i++) {
            T s = y[i * ldy + j];
            for (int64_t t = 0; t < k; t++)
                s += x[i * ldx + t] * w[t * ldw + j];
            y[i * ldy + j] = s;
        }
}

static void X(axpy)(int64_t m, int64_t n, int64_t k, const void *x, int64_t ldx, const void *w,
    int64_t ldw, void *y, int64_t ldy)
{
    switch (m) {
    case 1: X(axpys)(1, n, k, x, ldx, w, ldw, y, ldy); break;
    case 2: X(axpys)(2, n, k, x, ldx, w, ldw, y, ldy); break;
    case 3: X(axpys)(3, n, k, x, ldx, w, ldw, y, ldy); break;
    case 4: X(axpys)(4, n, k, x, ldx, w, ldw, y, ldy); break;
    case 5: X(axpys)(5, n, k, x, ldx, w, ldw, y, ldy); break;
    case 6: X(axpys)(6, n, k, x, ldx, w, ldw, y, ldy); break;
    case 7: X(axpys)(7, n, k, x, ldx, w, ldw, y, ldy); break;
    default: X(axpys)(8, n, k, x, ldx, w, ldw, y, ldy); break;
    }
}

static void X(add)(int64_t n, const void *x_, void *acc_)
{
    const T *restrict x = x_;
    T *restrict acc = acc_;
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i];
}

static void X(max)(int64_t n, const void *x_, void *acc_)
{
    const T *restrict x = x_;
    T *restrict acc = acc_;
    /* a NaN on either side stays: as x it is not <= acc, as acc nothing is > it */
    for (int64_t i = 0; i < n; i++)
        acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i]; /* NOLINT(misc-redundant-expression): u64 has no NaN */
}

static void X(fma)(int64_t n, const void *x_, const void *w_, void *acc_)
{
    const T *restrict x = x_, *restrict w = w_;
    T *restrict acc = acc_;
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i] * w[i];
}

static void X(fma1)(int64_t n, const void *x_, const void *w_, void *acc_)
{
    const T *restrict x = x_;
    const T w = *(const T *)w_;
    T *restrict acc = acc_;
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i] * w;
}

static const lp_kernels X(table) = {
    .rows = R,
    .tile = X(tile),
    .dot = X(dot),
    .axpy = X(axpy),
    .add = X(add),
    .max = X(max),
    .fma = X(fma),
    .fma1 = X(fma1),
};

#undef T
#undef V
#undef R
#undef X

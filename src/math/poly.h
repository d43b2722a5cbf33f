/* math/poly.h -- polynomials in place of functions of one value on a bounded interval: fitted in
 * double, rounded to f32, and measured in the arithmetic that the kernel will use. */
#ifndef NNC_POLY_H
#define NNC_POLY_H

#include "kernel/kernel.h"

#define NNC_POLY_COEFS 15
#define NNC_POLY_STEPS (3 * NNC_POLY_COEFS + 12)
#define NNC_POLY_NODES 32   /* of a fit */
#define NNC_POLY_ULP 1.75   /* what a sample may show; everywhere it is then below 2 */
#define NNC_POLY_CONDITION 8.0
#define NNC_POLY_TOLERANCE 0x1p-24
#define NNC_POLY_FAST_ULP 224.0 /* the same of --math=fast, everywhere below 256 */
#define NNC_POLY_FAST_TOLERANCE 0x1p-16
#define NNC_POLY_FAST_CONDITION 256.0

/* sop on doubles (kinds of scalar.def that give floats), the same bits on every machine. Thread-safe. */
double nnc_steady_f64(nnc_sop op, double a, double b, double c);

/* One instruction of a polynomial. Arguments are earlier steps; step 0 is the argument x itself. */
typedef struct nnc_poly_step {
    bool is_const;
    uint8_t sop;       /* mul, add, sub, fma, cast */
    int8_t arg[3];
    double f;          /* of a constant */
} nnc_poly_step;

typedef struct nnc_poly {
    double lo, hi;          /* where it holds */
    bool squared;           /* in x^2 */
    int order;              /* times x^order */
    double offset;          /* plus this: odd about the value at 0, as sigmoid is */
    double shift;           /* else in x - shift */
    int n;
    double c[NNC_POLY_COEFS]; /* ascending; c[0] of order 1 stands apart: c0 x + x (rest), rest = tail + c1 w + .. */
    double tail;
    bool wide;              /* steps work in f64 (machines without fused multiply-add) */
    int n_step, cost;       /* cost: machine instructions per vector */
    nnc_poly_step step[NNC_POLY_STEPS];
    double condition;       /* sum |c_i w^i| over the result, at most: digits that cancellation costs */
    double ulp;             /* largest error found by nnc_poly_check, ulp of f32; < 0: not measured */
} nnc_poly;

/* Points where the function must be known: x[] holds NODES places for a fit in x, then NODES for one
 * in x^2, then their negatives. */
typedef struct nnc_poly_nodes {
    double lo, hi;
    double cosine[4 * NNC_POLY_NODES]; /* cos(pi k / (2 NODES)) */
    double x[3 * NNC_POLY_NODES];
    double tolerance;  /* relative error of a series that is cut: 2^-24, unless set otherwise after nnc_poly_place */
    double condition;  /* most that cancellation may cost: NNC_POLY_CONDITION */
} nnc_poly_nodes;

void nnc_poly_place(nnc_poly_nodes *p, double lo, double hi);
/* Fits values y[] at the nodes with as few coefficients as `loose` steps beyond the first guess (0, 1, 2)
 * ask. zero: the value at 0 (NaN when 0 is outside). False: no polynomial of NNC_POLY_COEFS does, or it is
 * ill-conditioned. */
bool nnc_poly_fit(nnc_poly *p, const nnc_poly_nodes *at, const double *y, double zero, bool wide, int loose);
/* Writes the steps from the coefficients. Part of nnc_poly_fit. */
void nnc_poly_steps(nnc_poly *p);

/* Sample of the interval, f32 numbers: `n` evenly, then towards 0 by powers of two when 0 is inside. Returns how many,
 * at most n + 320. */
int nnc_poly_sample(double lo, double hi, int n, float *x);
/* Runs the steps on each x, with fused multiply-adds as f32 has them. */
void nnc_poly_run(const nnc_poly *p, const float *x, int n, float *y);
/* |y - want| in units of the last place of f32 at want. */
double nnc_ulp_error(float y, double want);
/* Largest error against want[] at x[]; sets p->ulp. */
double nnc_poly_check(nnc_poly *p, const float *x, const double *want, int n);

#endif

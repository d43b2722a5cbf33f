/* math/poly.h -- polynomials that replace functions of one value on a bounded interval: fitted in double, rounded to f32, and measured
 * in the kernel's arithmetic. */
#ifndef NNC_POLY_H
#define NNC_POLY_H

#include "math/formula.h"

#define NNC_POLY_COEFS 15
#define NNC_POLY_NODES 32   /* of a fit */
#define NNC_POLY_ULP 1.75   /* largest error in a sample; the true maximum is then below 2 */
#define NNC_POLY_CONDITION 8.0
#define NNC_POLY_TOLERANCE 0x1p-24
#define NNC_POLY_FAST_ULP 224.0 /* the same for --math=fast, true maximum below 256 */
#define NNC_POLY_FAST_TOLERANCE 0x1p-16
#define NNC_POLY_FAST_CONDITION 256.0

/* sop on doubles (scalar.def kinds with float results), bit-identical on all machines. Thread-safe. */
double nnc_steady_f64(nnc_sop op, double a, double b, double c);

typedef struct nnc_poly {
    double lo, hi;          /* interval on which it is valid */
    bool squared;           /* a polynomial in x^2 */
    int order;              /* multiplied by x^order */
    double offset;          /* added to the result: odd about the value at 0, like sigmoid */
    double shift;           /* otherwise a polynomial in x - shift */
    int n;
    double c[NNC_POLY_COEFS]; /* ascending; for order 1, c[0] is separate: c0 x + x (rest), rest = tail + c1 w + .. */
    double tail;
    bool wide;              /* computed in f64 (machines without fused multiply-add) */
    nnc_formula f;          /* of x: the kernel's steps */
    int cost;               /* machine instructions per vector */
    double condition;       /* maximum of sum |c_i w^i| over the result: amplification of rounding errors by cancellation */
    double ulp;             /* largest error found by nnc_poly_check, ulp of f32; < 0: not measured */
} nnc_poly;

/* Points where the function is evaluated: x[] has NODES points for a fit in x, then NODES for one in x^2, then their negatives. */
typedef struct nnc_poly_nodes {
    double lo, hi;
    double cosine[4 * NNC_POLY_NODES]; /* cos(pi k / (2 NODES)) */
    double x[3 * NNC_POLY_NODES];
    double tolerance;  /* relative truncation error: 2^-24, unless set otherwise after nnc_poly_place */
    double condition;  /* maximum amplification by cancellation: NNC_POLY_CONDITION */
} nnc_poly_nodes;

void nnc_poly_place(nnc_poly_nodes *p, double lo, double hi);
/* Fits values y[] at the nodes with as few coefficients as possible, plus `loose` (0, 1, 2) more. zero: the value at 0 (NaN when 0 is
 * outside). False: NNC_POLY_COEFS coefficients are not enough, or the fit is ill-conditioned. */
bool nnc_poly_fit(nnc_poly *p, const nnc_poly_nodes *at, const double *y, double zero, bool wide, int loose);
/* Derives the formula from the coefficients. Part of nnc_poly_fit. */
void nnc_poly_steps(nnc_poly *p);

/* Sample of f32 numbers in the interval: `n` evenly spaced, then towards 0 by powers of two when 0 is inside. Returns their number, at
 * most n + 320. */
int nnc_poly_sample(double lo, double hi, int n, float *x);
/* |y - want| in units of the last place of f32 at want. */
double nnc_ulp_error(float y, double want);
/* Largest error against want[] at x[]; sets p->ulp. */
double nnc_poly_check(nnc_poly *p, const float *x, const double *want, int n);

#endif

/* check/reference.h -- the float64 reference of a comparison, errors against it, and how much error rounding alone explains. */
#ifndef NNC_CHECK_REFERENCE_H
#define NNC_CHECK_REFERENCE_H

#include "session/session.h"

/* The part of a run that was computed in float64. */
typedef struct nnc_reference {
    bool ran;
    char scope[160];    /* "all outputs", "3 of 256 rows, evenly spaced", or why it did not run */
    int64_t rows;       /* 0 = all rows */
    int64_t *row;       /* their indices */
    bool *carried_out;  /* per output: dimension 0 is sampled */
    nnc_rval *value;    /* per output */
    bool **open;        /* per output: the elements that nnc_reference_conditioning found open; NULL: none of it */
    bool any_open;
    int n_out;
} nnc_reference;

/* Evaluates the reference of `g` for `inputs`, completely if that is affordable, otherwise on sampled rows. */
nnc_status nnc_reference_make(const nnc_graph *g, void *const *inputs, int threads, nnc_reference *r, nnc_sink *sink) NNC_MUST;
void nnc_reference_deinit(nnc_reference *r);
/* Conditioning: the mean square by which simulated rounding changes an element of each output (nnc_eval_rounded), over finite elements
 * that are not open. Open are elements that rounding makes finite, infinite or NaN where float64 has another of these. There a partial
 * result leaves the range of its dtype, or an operand the domain of a function. They are added to r->open. */
nnc_status nnc_reference_conditioning(nnc_reference *r, const nnc_graph *g, void *const *inputs, int threads,
    nnc_rounding rounding, double *mean_square, nnc_sink *sink) NNC_MUST;
static inline bool nnc_is_open(const nnc_reference *r, int o, int64_t i)
{
    return r->open[o] && r->open[o][i];
}
#define FAST_ERROR 0x1p-15 /* relative, of functions under --math=fast */
/* The rounding of a program's values, for nnc_reference_conditioning. contracted: precision applies to some of its contractions. */
nnc_rounding nnc_rounding_of(nnc_precision precision, nnc_math math, bool contracted);

/* Accumulated difference of two arrays. */
typedef struct nnc_error {
    double diff2, ref2, max_abs, ref_max; /* over pairs where both are finite */
    int64_t n;          /* pairs */
    int64_t not_finite; /* both are the same infinity, or both NaN */
    int64_t mismatched; /* only one is finite, or they are different infinities, or an infinity and NaN */
    int64_t open;       /* not compared */
} nnc_error;
/* Why not. */
#define NNC_OPEN "an order of evaluation leaves the range of their dtype, or rounding a function's domain"
void nnc_error_add(nnc_error *e, double got, double want);
/* Adds the error of `got` as element i of output o of the reference; without `all` only counts it if the element is open. Both have changed
 * from `was`. */
void nnc_error_add_reference(nnc_error *e, const nnc_reference *r, int o, int64_t i, double got, double was, bool all);
/* Element i as a number; u64 is kept as the bits of an int64_t. */
double nnc_rval_number(const nnc_rval *v, int64_t i);
/* Whether the sum of the squared differences is at most diff2, and no element is finite on one side only. Elements that are NaN or the same
 * infinity on both sides agree. */
bool nnc_error_within(const nnc_error *e, double diff2);
double nnc_error_nmse(const nnc_error *e);    /* sum (got-want)^2 / sum want^2; infinite with a mismatch */
double nnc_error_max_rel(const nnc_error *e); /* max |got-want| / max |want|; infinite with a mismatch */

/* Default limit of the nmse for results of dtype d: about 50 roundings. */
double nnc_default_tolerance(nnc_dtype d);
/* The same for a model whose contractions have precision p, for any result type. It is about a hundred layers' roundings of
 * operands and result. Rounding to f16 or tf32 has a relative mean square of 4e-8, to bf16 64 times that. 0 for f32. */
double nnc_precision_tolerance(nnc_precision p);
/* The coarsest float type among the values that output i is computed from. *contracted: a contraction computes one of them. */
nnc_dtype nnc_coarsest_dtype(const nnc_graph *g, int i, bool *contracted, nnc_arena *a);

#endif

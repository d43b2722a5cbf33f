/* check/ties.h -- near ties: choices (comparisons, which element is largest, rounding to integers) that a program's rounding may decide
 * otherwise than float64. A relu's operand may be 1e-8 in f32 and -1e-8 in float64. Both are right, but an element of the gradient is dy in
 * one and 0 in the other.
 *
 * An edit resolves a near tie as the program did. It moves the operand to the other side of the tie, by less than its rounding error. The
 * reference is evaluated with the edit, so all that depends on the operand follows. */
#ifndef NNC_CHECK_TIES_H
#define NNC_CHECK_TIES_H

#include "check/reference.h"
#include "session/session.h"

typedef struct nnc_tie {
    nnc_replaced edit;   /* moves the operand across the tie */
    nnc_ref result;  /* result of the choice */
    double gap;      /* distance from the tie in float64 */
    double error;    /* rounding error of that distance: root mean square of simulated rounding */
} nnc_tie;

typedef struct nnc_ties {
    nnc_tie *at; /* nearest first, in units of the error */
    size_t n;
} nnc_ties;

/* Finds the near ties that g's outputs depend on, under simulated rounding r. Finds none if the values do not fit into memory. */
nnc_status nnc_ties_find(const nnc_graph *g, void *const *inputs, int threads, nnc_rounding r, nnc_ties *ties, nnc_sink *sink) NNC_MUST;
void nnc_ties_deinit(nnc_ties *t);
/* By output of g: the sum of the squares by which single near ties change its elements (as far as they do not overlap). Elements that are
 * open in the reference r do not count. */
nnc_status nnc_ties_spread(const nnc_graph *g, void *const *inputs, int threads, const nnc_ties *t, const nnc_reference *r,
    double *sum, nnc_sink *sink) NNC_MUST;
/* Evaluates g with the edits of n ties of t, those that `which` lists. */
nnc_status nnc_ties_eval(const nnc_graph *g, void *const *inputs, int threads, const nnc_ties *t, const size_t *which, size_t n,
    nnc_rval *value, nnc_sink *sink) NNC_MUST;

#endif

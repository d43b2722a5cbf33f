/* tests/api/special.h -- special values of dtypes, and the ways in which a graph of ops is run over them. */
#ifndef NNC_TESTS_API_SPECIAL_H
#define NNC_TESTS_API_SPECIAL_H

#include "help.h"

enum { SPECIAL_MOST = 40, SPECIAL_OPERANDS = 6 };

/* A way to run a graph; folded: with constants for its inputs. threads: 0 means 2. */
typedef struct special_how {
    const char *name;
    int level;
    nnc_math math;
    bool interpreted, folded;
    int threads;
} special_how;

/* The dtype's special values, of a float in f, of an integer in k, at most SPECIAL_MOST. Returns how many. */
int special_values(nnc_dtype t, double *f, int64_t *k);
/* Is op one of the elementwise ops of operands of dtype t alone that special.c runs? */
bool special_takes(nnc_op op, nnc_dtype t);
/* g with constants for its inputs. */
nnc_graph *special_folded(const nnc_graph *g, void **in);
/* Compiles and runs g. False: reported. */
bool special_run(const nnc_graph *g, const special_how *how, const api_data *d, api_run *r);

#endif

/* tests/gen/internal.h -- what gen.c and quirk.c share: the graph in the making, and drawing from its seed. */
#ifndef NNC_TESTS_GEN_INTERNAL_H
#define NNC_TESTS_GEN_INTERNAL_H

#include "gen/gen.h"

enum { MAX_POOL = 1024, LIMIT = 16 };

typedef struct entry {
    nnc_ref r;
    double mag;
    bool exact; /* a leaf, or moved from one: no rounding has touched it */
} entry;

typedef struct gen {
    gen_options o;
    nnc_graph *g;
    uint64_t key, count;
    int weights;
    entry pool[MAX_POOL];
    int n;
} gen;

uint32_t gen_draw(gen *m, uint32_t n); /* 0..n-1 */
bool gen_chance(gen *m, uint32_t percent);
int64_t gen_between(gen *m, int64_t lo, int64_t hi);
/* Puts a value of at most `mag` into the pool, scaled down where it could leave the bound. */
void gen_keep(gen *m, nnc_ref r, double mag, bool exact);
entry *gen_pick(gen *m); /* late ones more often */
/* A generated weight in [shift - scale, shift + scale]. */
nnc_ref gen_weight(gen *m, nnc_dtype d, int rank, const int64_t *dim, double scale, double shift);

/* quirk.c: what models hold that nobody would write by intent. Neutral and decided operands, ops undone by the next, the same thing
 * twice, residuals around contractions of one row. */
void gen_quirk(gen *m);

#endif

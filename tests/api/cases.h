/* tests/api/cases.h -- generated cases: what graph, which inputs, and by which configurations it is compiled. All of it
 * follows from test_seed and the case's index. */
#ifndef NNC_TESTS_API_CASES_H
#define NNC_TESTS_API_CASES_H

#include "gen/gen.h"
#include "help.h"

typedef enum case_kind {
    CK_plain,  /* f32, all ops */
    CK_nest,   /* f32 reductions, elementwise ops, broadcasts, movement */
    CK_window, /* f32 pooling between elementwise ops */
    CK_conv,   /* f32 contractions and epilogues */
    CK_half,   /* f32, f16 and bf16 mixed */
    CK_double, /* f64 and f32 */
    CK_mixed,  /* all dtypes */
    CK_ints,   /* integers alone, any op on anything: exact */
    CK_wild,   /* floats, any op on anything: only the same arithmetic agrees */
    CK__COUNT
} case_kind;

typedef struct test_graph {
    case_kind kind;
    uint64_t seed;
    bool odd;     /* NaN, infinities and subnormals among the inputs */
    int nodes;
    nnc_graph *g; /* caller's */
} test_graph;

/* Graph of a case; g is NULL when the generator fails. */
test_graph case_make(uint64_t index, nnc_sink *sink);

/* The same graph with its nodes in another order that keeps operands before their users; inputs stay in order. */
nnc_graph *case_permuted(const nnc_graph *g, uint64_t seed, nnc_sink *sink);
/* Puts nodes on devices 0..devices, at random. */
void case_place(nnc_graph *g, uint64_t seed, int devices);

#endif

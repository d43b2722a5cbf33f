/* tests/codegen/help.h -- graphs from text lowered to one kernel, checked (verifier, text round
 * trip), interpreted and compared with the reference evaluator. */
#ifndef TESTS_CODEGEN_HELP_H
#define TESTS_CODEGEN_HELP_H

#include "codegen/codegen.h"
#include "test.h"

/* A 512-bit host with 2 threads. */
extern const nnc_target ck_target;

/* What kernels are lowered for: ck_target, unless a test says otherwise for a while. */
extern const nnc_target *ck_lowered_for;

nnc_graph *ck_parse(const char *text); /* NULL: reported in test_sink */
/* The graph's nodes as one fused node of a new graph. */
nnc_graph *ck_fuse(const nnc_graph *g);
/* Lowers the only node of g that is not a leaf. */
nnc_kernel *ck_lower(const nnc_graph *g, nnc_arena *a);

typedef struct ck_bound {
    double rel, abs; /* |got - want| <= abs + rel |want|, or what simulated rounding changes, 16 times */
} ck_bound;
/* Lowers g whole into one kernel, runs it with `parts` ranges of units and compares every
 * output. False: a check failed (told with `what`). *out (may be NULL): the kernel, in `a`. */
bool ck_check(const nnc_graph *g, ck_bound bound, int parts, const char *what, nnc_arena *a, nnc_kernel **out);
/* The same from text, on its own arena. */
bool ck_text(const char *text, ck_bound bound);
/* Whether the nodes of g that are no leaves may be one kernel. */
bool ck_one_kernel(const nnc_graph *g, nnc_arena *a, const char **why);

int ck_count(const nnc_kernel *k, nnc_kop op, int sop); /* instructions; sop -1: any */

#endif

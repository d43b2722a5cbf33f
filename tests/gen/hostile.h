/* tests/gen/hostile.h -- kernels whose text somebody changed: numbers and words of real kernels are replaced by others, as they pass
 * the verifier. Memory stops what leaves its buffers. */
#ifndef NNC_TESTS_HOSTILE_H
#define NNC_TESTS_HOSTILE_H

#include "codegen/codegen.h"

/* A changed text, read. NULL: refused (the usual case), or of more work than a test has time for. *text: what was read. */
nnc_kernel *gen_hostile(uint64_t seed, const nnc_target *t, nnc_text *text, nnc_arena *a, nnc_sink *sink);

typedef struct gen_guarded { /* arguments, and scratch, that end where a page may not be touched; begin at a multiple of 64 */
    void *arg[64], *scratch;
    void *base[65];
    size_t size[65];
    int n;
} gen_guarded;

bool gen_guard(gen_guarded *g, const nnc_kernel *k); /* false: no memory, or too many arguments */
void gen_unguard(gen_guarded *g);

#endif

/* tests/cudac/ct.h -- kernels as CUDA C, built by the C++ compiler over shim.h, run, and compared with the interpreter. */
#ifndef TESTS_CUDA_CT_H
#define TESTS_CUDA_CT_H

#include "codegen/codegen.h"
#include "test.h"

#define CT_KERNELS 512

/* Kernels that are built together. Zero-initialise, ct_set_deinit. */
typedef struct ct_set {
    nnc_arena arena;
    bool open;
    const nnc_kernel *k[CT_KERNELS];
    int n;
    bool tiny; /* for ct_tiny */
    bool sums; /* contractions, too: those that no library takes */
    int sms; /* for a GPU of so many SMs; 0: ct_h200 or ct_tiny */
    int64_t most; /* elements that a result may have for ct_add_graph; 0 = any */
    long long first, count; /* blocks that ct_call runs; count 0: all */
    void *lib;
    const char *(*launch)(void (*)(void *const *), void *const *, long long, long long, long long,
        int, long long, int);
} ct_set;

const nnc_target *ct_h200(void);
/* The same with one SM of few threads: small tensors fill it, so kernels use vectors, several in flight, long rows. */
const nnc_target *ct_tiny(void);
nnc_graph *ct_parse(const char *text);
/* The graph's nodes as one fused node. */
nnc_graph *ct_fuse(const nnc_graph *g);
/* Lowers every node that becomes a kernel; also checks the verifier and the text's round trip. */
void ct_add_graph(ct_set *s, const nnc_graph *g);
void ct_add_text(ct_set *s, const char *text); /* each node a kernel of its own */
void ct_add_fused(ct_set *s, const char *text); /* all nodes one kernel */
/* A text of one kernel, which is returned; NULL: reported. */
const nnc_kernel *ct_add_one(ct_set *s, const char *fmt, ...) NNC_PRINTF(2, 3);
void ct_add(ct_set *s, const nnc_kernel *k);
/* Compiles; false and a line when there is no C++ compiler. edit (may be NULL) may change the text: a planted fault. */
bool ct_build(ct_set *s, void (*edit)(char *text));
/* Runs kernel i on random data in both orders and compares with the interpreter. False: told in *why. */
bool ct_run(ct_set *s, int i, uint64_t seed, char why[256]);
/* Runs kernel i once on these arguments. NULL, or what went wrong. */
const char *ct_call(ct_set *s, int i, void *const *arg);
/* All of them; test failures are reported. Returns how many agreed. */
int ct_run_all(ct_set *s, uint64_t seed);
/* Compiles and runs the kernels, of many by default a third, which must agree where there is a C++ compiler, and frees the set. */
void ct_all_agree(ct_set *s);
void ct_set_deinit(ct_set *s);
/* Memory whose end and beginning touch pages that may not be accessed. */
void *ct_guarded(size_t bytes, void **base);
void ct_unguard(void *base, size_t bytes);

#endif

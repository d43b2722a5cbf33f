/* tests/cuda/cu.h -- kernels as CUDA C, built by the C++ compiler over shim.h, run, and compared with the interpreter. */
#ifndef TESTS_CUDA_CU_H
#define TESTS_CUDA_CU_H

#include "codegen/codegen.h"
#include "test.h"

#define CU_KERNELS 512

/* Kernels that are built together. Zero-initialise, cu_set_deinit. */
typedef struct cu_set {
    nnc_arena arena;
    bool open;
    const nnc_kernel *k[CU_KERNELS];
    int n;
    void *lib;
    const char *(*launch)(void (*)(void *const *), void *const *, long long, int, long long, int);
} cu_set;

const nnc_target *cu_h200(void);
nnc_graph *cu_parse(const char *text);
/* The graph's nodes as one fused node. */
nnc_graph *cu_fuse(const nnc_graph *g);
/* Lowers every node that becomes a kernel; also checks the verifier and the text's round trip. */
void cu_add_graph(cu_set *s, const nnc_graph *g);
void cu_add_text(cu_set *s, const char *text);       /* each node a kernel of its own */
void cu_add_fused(cu_set *s, const char *text);      /* all nodes one kernel */
void cu_add(cu_set *s, const nnc_kernel *k);
/* Compiles; false and a line when there is no C++ compiler. edit (may be NULL) may change the text: a planted fault. */
bool cu_build(cu_set *s, void (*edit)(char *text));
/* Runs kernel i on random data in both orders and compares with the interpreter. False: told in *why. */
bool cu_run(cu_set *s, int i, uint64_t seed, char why[256]);
/* All of them; test failures are reported. Returns how many agreed. */
int cu_run_all(cu_set *s, uint64_t seed);
void cu_set_deinit(cu_set *s);
/* Memory whose end and beginning touch pages that may not be accessed. */
void *cu_guarded(size_t bytes, void **base);
void cu_unguard(void *base, size_t bytes);

#endif

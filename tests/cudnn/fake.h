/* tests/cudnn/fake.h -- false libraries behind the tables of cuda/: cuDNN and cuBLASLt that compute on the CPU, and as much of CUDA's
 * runtime as engines need. They refuse what the real ones refuse, as far as nnc's engines depend on it. */
#ifndef TEST_CUDNN_FAKE_H
#define TEST_CUDNN_FAKE_H

#include "cuda/cuda.h"

void fake_install(void); /* all three in place of the real ones */
void fake_remove(void);
/* With a driver beside them, until they are installed again or removed: cuDNN compiles there alone. */
void fake_driver(void);
extern bool fake_compiles_nothing; /* cuDNN lists runtime-compiled engines, of which none can be finalized */
/* As cuDNN has descriptors, as cuBLASLt has: those made and not destroyed. */
extern _Atomic int fake_alive;
extern _Atomic int fake_handles; /* of both libraries */
/* Plans of cuDNN made: precompiled engines take conv [[+ sum] + bias [+ relu]] alone. */
extern _Atomic int fake_precompiled, fake_compiled; /* compiled: when the plan is made */
enum { FAKE_CHOICES = 3 }; /* engines of cuDNN (7, 8, 9) and algorithms of cuBLASLt for everything */
extern int fake_note;       /* of cuDNN's engine number fake_noted (0: the first), numerical; -1: it has none */
extern int fake_noted;
enum { FAKE_WORK = 4096 };
extern int64_t fake_work[FAKE_CHOICES]; /* workspaces of cuDNN's precompiled engines, at first FAKE_WORK */
extern int fake_choice;     /* of the last run */
extern float fake_ms[FAKE_CHOICES]; /* of a run, by choice */
extern bool fake_no_memory; /* cudaMalloc fails */
extern float fake_host_ms; /* least time of a run that is not in a captured graph */
void fake_ran(int choice); /* libraries tell the runtime's clock */
enum { FAKE_L2 = 1 << 16 };
#define FAKE_FLUSH_MS 0.5 /* of a write to as much memory */
extern int fake_timed;      /* times taken */
extern int fake_sm;         /* architecture of the only GPU; 0: the runtime counts none */
extern int fake_multiplies; /* calls of cublasLtMatmul */

/* Sum of products, as four sums: an addition does not wait for the one before it. */
double fake_dot(const double *a, const double *b, int64_t n);

/* What a call touches: bytes at p. At most FAKE_TOUCHES of one call; they return how many. */
enum { FAKE_TOUCHES = 32 };
typedef struct fake_touch {
    const void *p;
    int64_t bytes;
    bool write;
} fake_touch;
int fake_cudnn_touches(const void *plan, const void *pack, fake_touch *t);
/* As cublasLtMatmul is called; *bias: what the description has. */
int fake_matmul_touches(const void *desc, const void *a, const void *la, const void *b, const void *lb, const void *c,
    const void *lc, const void *d, const void *ld, fake_touch *t, const void **bias);

#endif

/* tests/llvm/kb.h -- builds kernels by hand and compiles them with the LLVM plug-in, for tests
 * of emitted code. */
#ifndef KB_H
#define KB_H

#include "codegen/codegen.h"
#include "test.h"

#define KB_INS 256

typedef struct kb {
    nnc_kernel k;
    nnc_kbuf buf[16];
    nnc_kstage stage[8];
    nnc_kins ins[KB_INS];
    nnc_kguard guard[64];
    int n_guard;
} kb;

typedef struct kb_code {
    nnc_object *o;
    nnc_kernel_fn fn;
    char *bytes;
    size_t n;
} kb_code;

void kb_init(kb *b, const char *name);
int kb_axis(kb *b, nnc_kaxis_kind kind, int64_t extent); /* outer axes first */
int kb_buf(kb *b, nnc_kbuf_role role, nnc_dtype d, int64_t numel);
/* A stage begins: instructions go to its body until kb_post. axes: its own, as bits. */
void kb_stage(kb *b, uint32_t axes);
void kb_post(kb *b);
int kb_fconst(kb *b, nnc_dtype d, double v);
int kb_iconst(kb *b, nnc_dtype d, int64_t v);
int kb_index(kb *b, int axis);
int kb_load(kb *b, int buf, nnc_affine at);
int kb_load_if(kb *b, int buf, nnc_affine at, int fill, const nnc_kguard *g, int n);
int kb_load_at(kb *b, int buf, nnc_affine at, int index, int64_t scale, int64_t limit);
void kb_store(kb *b, int buf, nnc_affine at, int value);
int kb_op(kb *b, nnc_sop op, nnc_dtype d, int x, int y, int z);
int kb_reduce(kb *b, nnc_kred r, nnc_dtype d, int x, int mask);
/* Schedule: vec axis, width, chunk; computes the domain. Closes the last stage. */
void kb_done(kb *b, int vec_axis, int width, int64_t chunk);

/* The emitter, or NULL (and the test is counted as skipped). */
const nnc_emitter *kb_emitter(void);
const nnc_target *kb_host(void);
nnc_target kb_plain(void); /* a CPU of its first generation: 128-bit vectors, no SSE4.1, no FMA, no F16C */
/* Compiles; false (reported) when it fails. */
bool kb_compile(const kb *b, const nnc_target *t, kb_code *c);
bool kb_compile_kernel(const nnc_kernel *k, const nnc_target *t, kb_code *c);
void kb_free(kb_code *c);

/* Runs k point by point: the oracle (ref.c). */
void kb_reference(const nnc_kernel *k, void *const *args, void *scratch);
/* Runs the kernel compiled, by the oracle and by nnc_interp on the same generated inputs and
 * compares every output: integers exactly, floats within rel * |value| + abs. The compiled run
 * is split at every `split` units. */
bool kb_check(const kb *b, const nnc_target *t, double rel, double abs, int64_t split);

#endif

/* codegen/codegen.h -- lowers graph nodes to scheduled kernels, and kernels to code; emitters are tables of functions. */
#ifndef NNC_CODEGEN_H
#define NNC_CODEGEN_H

#include "interp/interp.h"
#include "kernel/kernel.h"
#include "math/math.h"
#include "schedule/schedule.h"

/* Lowers node n of g (a fused node, or any single generated op) to one kernel in `a`. Operand buffers: the distinct operands in order,
 * then the results. NULL on failure (reason in the sink, NNC_E_BUG: passes asked nnc_kernel_possible before). n must not be a view. */
nnc_kernel *nnc_lower(const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_math math, nnc_arena *a, nnc_sink *sink);

/* An emitter translates kernels to machine code or text. LLVM's is the plug-in "llvm", symbol "nnc_emitter_llvm". Thread-safe. */
typedef enum nnc_emit {
    EMIT_object,
    EMIT_idle, /* an object; none (*out is NULL) if the call would wait for another thread that compiles the same code */
    EMIT_llvm,
    EMIT_asm,
    EMIT_cuda,
    EMIT_ptx,
    EMIT_cubin
} nnc_emit;
typedef struct nnc_emitter {
    const char *name;
    const char *version; /* part of cache keys */
    /* Writes one output (allocated with nnc_malloc) for all kernels. Each object symbol is k->name, of type nnc_kernel_fn. */
    nnc_status (*emit)(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what, char **out, size_t *size, nnc_sink *sink);
} nnc_emitter;

/* Revision of the LLVM emitter. Must grow whenever the emitted code changes, since it is part of a cached object's key: in
 * nnc_emitter_llvm.version or, in processes that never load libLLVM, nnc_engine_llvm.version. */
#define NNC_LLVM_EMITTER_REVISION "46"

/* The emitter "cuda" (EMIT_cuda only): one CUDA C translation unit for all kernels, C++17, without #include. Each kernel is extern "C"
 * __global__ under its name; its parameters are pointers to the KB_in and KB_out buffers in order, then `work` where k->grid.work > 0.
 * All pointers are 16-byte aligned and do not alias, except those that nnc_kernel_in_place allows (declared without __restrict__).
 * Compile with --fmad=false: the kernel IR states which products and sums are fused. Kernels without a grid: NNC_E_BUG. */
extern const nnc_emitter nnc_emitter_cuda;

/* Finds kernels that differ only in extents and constants. They share a function, which the emitter writes once. code[i] is NULL if
 * kernel i has its own function, under its name. Otherwise it is the function's name and the sizes that are its last arguments:
 * "k_add_0123456789abcdef i64 d12544 f3f000000". It depends only on k. Strings are in `a`. */
nnc_status nnc_cuda_share(const nnc_kernel *const *k, int n, nnc_arena *a, const char **code, nnc_sink *sink) NNC_MUST;
/* Reads the next size after the name into `out`, as the bytes of an argument (at most NNC_CUDA_ARGUMENT), and advances *code past it.
 * Returns the number of bytes; 0: no further size, or it is malformed. */
enum { NNC_CODE_NAME = 320, NNC_CUDA_ARGUMENT = 12, NNC_CUDA_SIZES = 32 };
size_t nnc_cuda_argument(const char **code, void *out);

/* Revision of the text that the CUDA emitter writes. */
#define NNC_CUDA_EMITTER_REVISION "26"

/* A compiled kernel: runs work items begin..end of the domain. args: the KB_in and KB_out buffers; scratch: scratch_bytes. */
typedef void (*nnc_kernel_fn)(void *const *args, int64_t begin, int64_t end, void *scratch);

/* A minimal loader for the LLVM emitter's relocatable objects (ELF of x86-64 or AArch64; text, rodata, relative relocations). NULL with the
 * reason in *why (NULL: out of memory). The symbol "zeros" is a read-only block of zero bytes, at a multiple of 64. Objects may follow each
 * other in `bytes`: each may call functions of those before it. */
enum { NNC_OBJECT_ZEROS = 32 << 10 };
typedef struct nnc_object nnc_object;
nnc_object *nnc_object_load(const void *bytes, size_t n, const char **why);
void *nnc_object_symbol(const nnc_object *o, const char *name); /* NULL when absent */
void nnc_object_unload(nnc_object *o);

#endif

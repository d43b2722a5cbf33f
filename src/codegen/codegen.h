/* codegen/codegen.h -- from a node of a graph to a kernel with a schedule, and from kernels to code: emitters are tables. */
#ifndef NNC_CODEGEN_H
#define NNC_CODEGEN_H

#include "interp/interp.h"
#include "kernel/kernel.h"
#include "math/math.h"
#include "schedule/schedule.h"

/* Lowers node n of g (a fused node, or any single generated op) to one kernel in `a`. Operand buffers: the distinct operands in
 * order, then the results. NULL when no rule does (why in the sink, NNC_E_BUG: passes asked nnc_kernel_possible). Views must not
 * come here. */
nnc_kernel *nnc_lower(const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_arena *a, nnc_sink *sink);

/* An emitter: kernels to machine code or text. LLVM's is the plug-in "llvm", symbol "nnc_emitter_llvm". Thread-safe. */
typedef enum nnc_emit { EMIT_object, EMIT_llvm, EMIT_asm, EMIT_cuda, EMIT_ptx, EMIT_cubin } nnc_emit;
typedef struct nnc_emitter {
    const char *name;
    const char *version; /* enters cache keys */
    /* One output (malloc'd with nnc_malloc) for all kernels together. Each object symbol: k->name with the type nnc_kernel_fn. */
    nnc_status (*emit)(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what, char **out, size_t *size, nnc_sink *sink);
} nnc_emitter;

/* Counts changes of the LLVM emitter: it must grow whenever the code it makes changes, since cached objects are found
 * by it (in nnc_emitter_llvm.version and, for a process that never loads libLLVM, in nnc_engine_llvm.version). */
#define NNC_LLVM_EMITTER_REVISION "17"

/* CUDA C, the emitter "cuda" (EMIT_cuda alone): one translation unit for all kernels, C++17, without #include. Each kernel is
 * extern "C" __global__ under its name; its parameters are pointers to the KB_in and KB_out buffers in order, then `work` where
 * k->grid.work > 0. All pointers are aligned to 16 bytes, and apart
 * from all others, but for those that nnc_kernel_in_place allows (they stand without __restrict__). Compile it with --fmad=false: the
 * kernel IR says where a product and a sum are one operation. Kernels without a grid: NNC_E_BUG. */
extern const nnc_emitter nnc_emitter_cuda;

/* Counts changes of the text that the CUDA emitter makes. */
#define NNC_CUDA_EMITTER_REVISION "11"

/* A compiled kernel: runs units begin..end of the domain. args: the KB_in and KB_out buffers; scratch: scratch_bytes. */
typedef void (*nnc_kernel_fn)(void *const *args, int64_t begin, int64_t end, void *scratch);

/* A minimal loader for the relocatable objects that the LLVM emitter makes (x86-64 ELF; text, rodata, PC-relative relocations).
 * NULL with why in *why (NULL: out of memory): the caller falls back to the plug-in's linker. */
typedef struct nnc_object nnc_object;
nnc_object *nnc_object_load(const void *bytes, size_t n, const char **why);
void *nnc_object_symbol(const nnc_object *o, const char *name); /* NULL when absent */
void nnc_object_unload(nnc_object *o);

#endif

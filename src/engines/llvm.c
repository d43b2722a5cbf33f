/* engines/llvm.c -- the engine "llvm": machine code from the plan's objects, loaded by codegen's ELF loader. libLLVM is not needed:
 * the emitter plug-in compiled the code earlier, perhaps in another process. Kernels whose object is empty are interpreted.
 * An object holds many kernels. */
#include "engines/engines.h"
#include "codegen/codegen.h"

#include <string.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

typedef struct handle {
    const nnc_pkernel *k;
    nnc_kernel_fn fn;
    void *interpreted; /* the interpreter's handle; NULL: there is machine code */
} handle;

static nnc_status load_object(const nnc_plan *p, const nnc_blob *b, void **out, nnc_sink *sink)
{
    const char *why = "";
    (void)p;
    *out = nnc_object_load(b->data, b->n, &why);
    if (*out)
        return NNC_OK;
    return why ? nnc_fail0(sink, NNC_E_DEVICE, "machine code cannot be loaded: %s", why)
               : nnc_nomem(sink);
}

static void unload_object(void *object)
{
    nnc_object_unload(object);
}

static nnc_status load_kernel(const nnc_load *l, void **out, nnc_sink *sink)
{
    const nnc_pkernel *k = &l->plan->kernel[l->item];
    void *fn = l->object ? nnc_object_symbol(l->object, k->symbol) : NULL;
    *out = NULL;
    if (l->object && !fn)
        return nnc_fail0(sink, NNC_E_DEVICE, "the machine code has no kernel %s", k->symbol);
    NNC_FREED handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    h->k = k;
    memcpy(&h->fn, &fn, sizeof fn);
    if (!fn)
        NNC_TRY(nnc_engine_interp.load_kernel(l, &h->interpreted, sink));
    *out = h;
    h = NULL;
    return NNC_OK;
}

static void unload(void *p)
{
    handle *h = p;
    if (h && h->interpreted)
        nnc_engine_interp.unload(h->interpreted);
    nnc_free(h);
}

static void call(void *ctx, void *const *args, int64_t begin, int64_t end, void *scratch)
{
    const handle *h = ctx;
    h->fn(args, begin, end, scratch);
}

static nnc_status run_kernel(void *p, void *const *args, void *work)
{
    handle *h = p;
    if (h->interpreted)
        return nnc_engine_interp.run(h->interpreted, args, work);
    nnc_run_domain(call, h, h->k, args, work);
    return NNC_OK;
}

/* Key of cached code: the emitter's version (known here without loading it) and the CPU's feature words. So code compiled on
 * another machine is not used. */
#ifndef NNC_LLVM_VERSION
#define NNC_LLVM_VERSION "none"
#endif
static char version[96] = "llvm";

__attribute__((constructor)) static void name_version(void)
{
    uint32_t w[16] = {0};
#if defined __x86_64__
    __get_cpuid(1, &w[0], &w[1], &w[2], &w[3]);
    w[1] = 0; /* contains the number of the executing core */
    w[2] &= ~(UINT32_C(1) << 27); /* OSXSAVE: set by the operating system */
    __get_cpuid_count(7, 0, &w[4], &w[5], &w[6], &w[7]);
    __get_cpuid_count(7, 1, &w[8], &w[9], &w[10], &w[11]);
    __get_cpuid_count(0xd, 0, &w[12], &w[13], &w[14], &w[15]);
    w[13] = 0;
#endif
    snprintf(version, sizeof version,
        "llvm-" NNC_LLVM_VERSION "/" NNC_LLVM_EMITTER_REVISION " cpu-%016llx",
        (unsigned long long)nnc_hash64(w, sizeof w, 0));
}

const nnc_engine nnc_engine_llvm = {
    .name = "llvm",
    .version = version,
    .load_kernel = load_kernel,
    .load_object = load_object,
    .unload_object = unload_object,
    .run = run_kernel,
    .unload = unload,
};

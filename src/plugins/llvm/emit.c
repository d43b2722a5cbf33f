/* plugins/llvm/emit.c -- entry points of the emitter: kernels in, one object, LLVM text or assembly out. Every call has its own
 * context and module and borrows a target machine (0.5 ms to create, with its subtarget), so calls run in parallel. No IR passes run:
 * the IR is emitted in its final form. The object of a single kernel shares its code with those of kernels that differ in sizes only
 * (share.c). Kernels with the directive `quick` are compiled without code-generator optimisation, in a third of the time. */
#include "plugins/llvm/internal.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/Config/llvm-config.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *host_cpu, *host_features; /* for the process's lifetime */

/* Loop strength reduction takes a fifth of the time, and saves an instruction in a loop. The others find nothing in kernels. */
static const char *const options[] = {
    "nnc", "-disable-lsr", "-disable-x86-domain-reassignment", "-disable-constant-hoisting",
    "-disable-mergeicmps", "-disable-partial-libcall-inlining",
#ifdef NNC_LLVM_AARCH64
    "-aarch64-enable-global-isel-at-O=-1", /* kernels with `quick`: as on x86-64 */
#endif
};
static const char *const triples[] = {"x86_64-pc-linux-gnu", "aarch64-unknown-linux-gnu"};

static void init_llvm(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
#ifdef NNC_LLVM_AARCH64
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
#endif
    LLVMParseCommandLineOptions((int)NNC_COUNT(options), options, NULL);
    host_cpu = LLVMGetHostCPUName();
    host_features = LLVMGetHostCPUFeatures();
}

/* ---- target machines ---------------------------------------------------------------------------------------------- */

/* Idle target machines, kept for the process's lifetime: as many as there were concurrent calls. */
enum { MAX_IDLE = 64 };
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct idle {
    LLVMTargetMachineRef tm;
    nnc_hash128 key;
} idle[MAX_IDLE];
static int n_idle;

typedef struct machine {
    LLVMTargetMachineRef tm;
    nnc_hash128 key; /* hash of the description it was made from; all ones: not kept */
} machine;

static LLVMTargetMachineRef take_idle(nnc_hash128 key)
{
    LLVMTargetMachineRef tm = NULL;
    pthread_mutex_lock(&idle_lock);
    for (int i = 0; i < n_idle && !tm; i++)
        if (idle[i].key.lo == key.lo && idle[i].key.hi == key.hi) {
            tm = idle[i].tm;
            idle[i] = idle[--n_idle];
        }
    pthread_mutex_unlock(&idle_lock);
    return tm;
}

static void give_back(machine m)
{
    pthread_mutex_lock(&idle_lock);
    bool kept = n_idle < MAX_IDLE && m.key.hi != ~(uint64_t)0;
    if (kept)
        idle[n_idle++] = (struct idle){m.tm, m.key};
    pthread_mutex_unlock(&idle_lock);
    if (!kept)
        LLVMDisposeTargetMachine(m.tm);
}

/* Returns a machine for LLVM's description of the host, narrowed by the target; a described CPU is used as it is. tm is NULL when
 * there is none. */
static machine take_machine(const nnc_target *t, bool quick, nnc_sink *sink)
{
    pthread_once(&once, init_llvm);
    bool host = !t->cpu || !t->cpu[0], featured = t->features && t->features[0];
    const char *cpu = host ? host_cpu : t->cpu;
    const char *features = featured ? t->features : host ? host_features : "";
    char *error = NULL;
    LLVMTargetRef target;
    NNC_LOCAL(nnc_text) text = {0};
    const char *triple = triples[nnc_target_core(t->core) != NULL];
    nnc_printf(&text, "%d %s %s %s", quick, triple, cpu, features);
    machine m = {.key = nnc_hash(nnc_text_str(&text), text.n)};
    if (text.oom)
        m.key.hi = ~(uint64_t)0;
    m.tm = take_idle(m.key);
    if (m.tm)
        return m;
    if (!LLVMGetTargetFromTriple(triple, &target, &error))
        m.tm = LLVMCreateTargetMachine(target, triple, cpu, features,
            quick ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault, LLVMRelocPIC,
            LLVMCodeModelSmall);
    if (!m.tm)
        nnc_fail0(sink, NNC_E_DEVICE, "LLVM has no code generator for %s: %s", triple,
            error ? error : "no target machine");
    LLVMDisposeMessage(error);
    return m;
}

/* x86-64-v2, -v3 or -v4, whose features are defined; 0: another CPU. */
static int level_of(const nnc_target *t)
{
    const bool named = t->cpu && !strncmp(t->cpu, "x86-64-v", 8) && !(t->features && *t->features);
    return named && t->cpu[8] >= '2' && t->cpu[8] <= '4' && !t->cpu[9] ? t->cpu[8] - '0' : 0;
}

/* True when the code generator may use AVX-512. Only explicit features count, since an unsupported instruction ends the process. */
static bool has_avx512(const nnc_target *t)
{
    const char *f = t->features && t->features[0] ? t->features
                    : !t->cpu || !t->cpu[0]       ? host_features
                    : level_of(t) == 4            ? "+avx512f,+avx512dq"
                                                  : "";
    return t->vector_bits >= 512 && strstr(f, "+avx512f") && strstr(f, "+avx512dq");
}

static void open_module(ll_mod *m, const nnc_target *t, LLVMTargetMachineRef tm)
{
    *m = (ll_mod){.c = LLVMContextCreate(), .t = t};
    m->m = LLVMModuleCreateWithNameInContext("nnc", m->c);
    m->b = LLVMCreateBuilderInContext(m->c);
    char *triple = LLVMGetTargetMachineTriple(tm);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetTarget(m->m, triple);
    LLVMSetModuleDataLayout(m->m, layout);
    LLVMDisposeTargetData(layout);
    LLVMDisposeMessage(triple);
    m->fma = t->fma;
    m->f16c = t->f16c;
    m->scalef = has_avx512(t);
    m->aarch64 = nnc_target_core(t->core) != NULL;
    m->rounds =
        m->aarch64 || t->vector_bits >= 256 || level_of(t) > 0; /* SSE4.1 comes before AVX */
    m->f32 = LLVMFloatTypeInContext(m->c);
    m->f64 = LLVMDoubleTypeInContext(m->c);
    m->i1 = LLVMInt1TypeInContext(m->c);
    m->i8 = LLVMInt8TypeInContext(m->c);
    m->i16 = LLVMInt16TypeInContext(m->c);
    m->i32 = LLVMInt32TypeInContext(m->c);
    m->i64 = LLVMInt64TypeInContext(m->c);
    m->ptr = LLVMPointerTypeInContext(m->c, 0);
}

static void close_module(ll_mod *m)
{
    LLVMDisposeBuilder(m->b);
    LLVMDisposeModule(m->m);
    LLVMContextDispose(m->c);
    nnc_free(m->size);
}

static nnc_status copy_out(const char *p, size_t n, char **out, size_t *size, nnc_sink *sink)
{
    *out = nnc_malloc(n + 1);
    NNC_NEED(*out, sink);
    memcpy(*out, p, n);
    (*out)[n] = 0;
    *size = n;
    return NNC_OK;
}

static nnc_status finish(
    ll_mod *m, LLVMTargetMachineRef tm, nnc_emit what, char **out, size_t *size, nnc_sink *sink)
{
    char *error = NULL;
    nnc_status s = NNC_OK;
    if (LLVMVerifyModule(m->m, LLVMReturnStatusAction, &error))
        s = nnc_fail0(sink, NNC_E_BUG, "emitted LLVM IR is invalid: %.300s", error);
    LLVMDisposeMessage(error);
    if (s != NNC_OK)
        return s;
    if (what == EMIT_llvm) {
        char *text = LLVMPrintModuleToString(m->m);
        s = copy_out(text, strlen(text), out, size, sink);
        LLVMDisposeMessage(text);
        return s;
    }
    LLVMMemoryBufferRef buf = NULL;
    LLVMCodeGenFileType type = what == EMIT_asm ? LLVMAssemblyFile : LLVMObjectFile;
    error = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, m->m, type, &error, &buf)) {
        s = nnc_fail0(sink, NNC_E_BUG, "LLVM code generation failed: %.300s", error ? error : "?");
        LLVMDisposeMessage(error);
        return s;
    }
    s = copy_out(LLVMGetBufferStart(buf), LLVMGetBufferSize(buf), out, size, sink);
    LLVMDisposeMemoryBuffer(buf);
    return s;
}

/* ---- one kernel --------------------------------------------------------------------------------------------------- */

typedef struct alone {
    const nnc_target *t;
    const machine *own;
    bool quick;
    bool waits; /* for threads that compile the same code */
    bool busy; /* it does not, and there is one: objects are missing */
    nnc_text objects;
} alone;

/* A copy of the kernel under a neutral name, *neutral (nnc_malloc), at least as long as `name` and mostly of one length. */
static nnc_status hide_name(
    const nnc_kernel *k, const char *name, nnc_kernel *out, char **neutral, nnc_sink *sink)
{
    enum { MOST = 128 };
    const size_t n = strlen(name) > MOST ? strlen(name) : MOST;
    *out = *k;
    *neutral = nnc_malloc(n + 1);
    NNC_NEED(*neutral, sink);
    memset(*neutral, 'k', n);
    (*neutral)[n] = 0;
    out->name = *neutral;
    return NNC_OK;
}

/* Appends the object of the module's function, under its name, from the code of another that differs in sizes only if there is one. */
static nnc_status add_object(ll_mod *m, const char *name, alone *x, nnc_sink *sink)
{
    NNC_FREED char *code = NULL;
    size_t n = 0;
    nnc_status s = NNC_OK;
    NNC_NEED(!m->oom, sink);
    const nnc_hash128 key = ll_code_key(m, x->own->key);
    const enum ll_found found = ll_code_get(key, x->waits, &code, &n);
    if (found == LL_NEW) {
        s = finish(m, x->own->tm, EMIT_object, &code, &n, sink);
        ll_code_put(key, s ? NULL : code, n);
    }
    x->busy = x->busy || found == LL_BUSY;
    if (s != NNC_OK || x->busy)
        return s;
    ll_define_sizes(m, code, name);
    nnc_putn(&x->objects, code, n);
    return NNC_OK;
}

/* Appends the object of a kernel without parts, or of the function that calls its parts. AArch64's code would load each size from memory,
 * since its immediates are too short for symbols. */
static nnc_status add_function(
    const nnc_kernel *k, const ll_parts *p, const char *name, alone *x, nnc_sink *sink)
{
    NNC_FREED char *neutral = NULL;
    nnc_kernel hidden;
    ll_mod m;
    nnc_status s = NNC_OK;
    NNC_TRY(hide_name(k, name, &hidden, &neutral, sink));
    open_module(&m, x->t, x->own->tm);
    m.quick = x->quick;
    m.shared = !m.aarch64 && k->sched.domain <= INT32_MAX; /* as ll_quotient needs it */
    if (p && p->n)
        ll_parts_call(&m, &hidden, p, NULL);
    else
        s = ll_kernel(&m, &hidden, sink);
    if (!s)
        s = add_object(&m, name, x, sink);
    close_module(&m);
    return s;
}

/* The objects of a kernel's parts, so that each is shared by itself, and that of the kernel. */
static nnc_status emit_alone(const nnc_kernel *k, alone *x, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    ll_parts p = {0};
    char name[LL_PART_NAME];
    if (nnc_kernel_in_parts(k))
        NNC_TRY(ll_parts_open(&p, k, &a, sink));
    for (int i = 0; i < p.n; i++)
        NNC_TRY(add_function(&p.part[i].k, NULL, ll_part_name(name, i), x, sink));
    return add_function(k, &p, k->name, x, sink);
}

static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    *out = NULL;
    *size = 0;
    const bool object = what == EMIT_object || what == EMIT_idle;
    if (!object && what != EMIT_llvm && what != EMIT_asm)
        return nnc_fail0(sink, NNC_E_USAGE, "the LLVM emitter supports only object, llvm and asm");
    if (t->kind != NNC_T_cpu)
        return nnc_fail0(sink, NNC_E_USAGE, "the LLVM emitter supports only CPUs");
    bool quick = true;
    for (int i = 0; i < n; i++)
        quick = quick && nnc_sched_has(&k[i]->sched, KD_quick);
    machine own = take_machine(t, quick, sink);
    if (!own.tm)
        return NNC_E_DEVICE;
    nnc_status s = NNC_OK;
    if (n == 1 && object && own.key.hi != ~(uint64_t)0) {
        alone x = {.t = t, .own = &own, .quick = quick, .waits = what == EMIT_object};
        s = emit_alone(k[0], &x, sink);
        s = s == NNC_OK && x.objects.oom ? nnc_nomem(sink) : s;
        if (s != NNC_OK || x.busy)
            nnc_text_deinit(&x.objects);
        *out = x.objects.s;
        *size = x.objects.n;
    } else {
        ll_mod m;
        open_module(&m, t, own.tm);
        m.quick = quick;
        for (int i = 0; i < n && s == NNC_OK; i++)
            if (!LLVMGetNamedFunction(m.m, k[i]->name)) /* equal names are equal kernels */
                s = ll_kernel(&m, k[i], sink);
        if (s == NNC_OK)
            s = finish(&m, own.tm, what, out, size, sink);
        close_module(&m);
    }
    give_back(own);
    return s;
}

__attribute__((visibility("default"))) const nnc_emitter nnc_emitter_llvm = {
    .name = "llvm",
    .version = "llvm-" LLVM_VERSION_STRING "/" NNC_LLVM_EMITTER_REVISION,
    .emit = emit,
};

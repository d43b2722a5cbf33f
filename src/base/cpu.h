/* base/cpu.h -- instruction sets: what this CPU has, the limit that users set (NNC_CPU), and functions compiled for several of them. */
#ifndef NNC_CPU_H
#define NNC_CPU_H

#include "base/status.h"

/* Sets of features, one bit for each row of cpu.def. */
enum {
#define FEATURE(id, name, leaf, sub, reg, bit, state) NNC_F_##id,
#include "base/cpu.def"
    NNC_F__COUNT
};
#define NNC_HAS(feature) (UINT64_C(1) << NNC_F_##feature)
/* Levels of the System V psABI x86-64, "Micro-Architecture Levels"; each contains the one before it. */
#define NNC_X86_V2 (NNC_HAS(sse3) | NNC_HAS(ssse3) | NNC_HAS(sse4_1) | NNC_HAS(sse4_2) | NNC_HAS(popcnt))
#define NNC_X86_V3 \
    (NNC_X86_V2 | NNC_HAS(avx) | NNC_HAS(avx2) | NNC_HAS(fma) | NNC_HAS(f16c) | NNC_HAS(bmi) | \
        NNC_HAS(bmi2) | NNC_HAS(lzcnt) | NNC_HAS(movbe))
#define NNC_X86_V4 \
    (NNC_X86_V3 | NNC_HAS(avx512f) | NNC_HAS(avx512bw) | NNC_HAS(avx512dq) | NNC_HAS(avx512vl) | \
        NNC_HAS(avx512cd))

/* LLVM's name of a feature. */
const char *nnc_cpu_feature_name(int feature);
/* Features that this CPU has, whose registers the system saves, within the limit; 0 on other architectures than x86-64. */
uint64_t nnc_cpu_features(void);
/* The limit: "x86-64-v3"; "": none. */
const char *nnc_cpu_limit(void);
/* Limits this process, its plug-ins and its child processes, to a level, as NNC_CPU does for a program: "x86-64-v2", "-v3" or "-v4".
 * A limit can be lowered, not raised. Programs with several threads call it before these begin. `option`: how the user gave it, for
 * messages: "--target=cpu:". Usage errors: an unknown level, or one that this CPU, or an earlier limit, does not reach. */
nnc_status nnc_cpu_limit_to(const char *level, const char *option, nnc_sink *sink);
/* Reports a value of NNC_CPU that cannot be obeyed; it is ignored otherwise. */
nnc_status nnc_cpu_check(nnc_sink *sink);

/* Highest level that the CPU reaches within the limit: 2, 3 or 4 for x86-64-v2 to -v4, else 1. */
extern _Atomic int nnc_cpu_level_found; /* 0: not yet */
int nnc_cpu_find_level(void);
static inline int nnc_cpu_level(void)
{
    const int found = nnc_cpu_level_found;
    return found ? found : nnc_cpu_find_level();
}

/* Defines `static void name params`, compiled for each of the levels that vectorised loops gain from; a call takes the one of
 * nnc_cpu_level. Its body is the function name_body, declared NNC_BODY. (GCC's target_clones choose before the limit is known, test
 * names of CPUs, and are not available under sanitizers.)
 *     NNC_BODY add_body(int n, const float *x, float *y) { ... }
 *     NNC_DISPATCH(add, (int n, const float *x, float *y), (n, x, y))
 * NNC_DISPATCH_OF takes a body for each level: vectors of GCC (vector_size) that are wider than the registers are computed in memory. */
#define NNC_BODY static inline __attribute__((always_inline)) void
#if defined(__x86_64__)
#define NNC_DISPATCH_OF(name, params, args, v4_body, v3_body, v1_body) \
    __attribute__((target("arch=x86-64-v4"))) static void name##_v4 params { v4_body args; } \
    __attribute__((target("arch=x86-64-v3"))) static void name##_v3 params { v3_body args; } \
    static void name##_v1 params { v1_body args; } \
    static void name params \
    { \
        const int level = nnc_cpu_level(); \
        (level > 3 ? name##_v4 : level > 2 ? name##_v3 : name##_v1) args; \
    }
#else
#define NNC_DISPATCH_OF(name, params, args, v4_body, v3_body, v1_body) \
    static void name params { v1_body args; }
#endif
#define NNC_DISPATCH(name, params, args) \
    NNC_DISPATCH_OF(name, params, args, name##_body, name##_body, name##_body)

#endif

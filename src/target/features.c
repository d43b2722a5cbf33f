/* target/features.c -- the name of this machine's CPU, and whether it has the instructions that code for a described CPU may use.
 * Source of the levels' members: System V psABI x86-64, "Micro-Architecture Levels". */
#include "target/internal.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

#define BIT NNC_HAS
#define V3 NNC_X86_V3
#define V4 NNC_X86_V4
#define KERNELS_512 \
    (BIT(avx512f) | BIT(avx512bw) | BIT(avx512dq) | BIT(avx512vl)) /* what generated kernels need */
#define ICELAKE \
    (V4 | BIT(avx512vnni) | BIT(avx512vbmi) | BIT(avx512vbmi2) | BIT(avx512ifma) | BIT(gfni) | \
        BIT(avx512bitalg) | BIT(avx512vpopcntdq))
#define SAPPHIRE \
    (ICELAKE | BIT(avx512bf16) | BIT(avx512fp16) | BIT(avxvnni) | BIT(amx_tile) | BIT(amx_bf16) | \
        BIT(amx_int8))

/* CPUs by LLVM's names; code for other CPUs is not checked. */
static const struct {
    const char *name;
    uint64_t has;
} cpus[] = {
    {"x86-64-v2", NNC_X86_V2},
    {"x86-64-v3", V3},
    {"haswell", V3},
    {"broadwell", V3},
    {"skylake", V3},
    {"alderlake", V3 | BIT(gfni) | BIT(avxvnni)},
    {"znver1", V3},
    {"znver2", V3},
    {"znver3", V3},
    {"x86-64-v4", V4},
    {"skylake-avx512", V4},
    {"cascadelake", V4 | BIT(avx512vnni)},
    {"cooperlake", V4 | BIT(avx512vnni) | BIT(avx512bf16)},
    {"icelake-client", ICELAKE},
    {"icelake-server", ICELAKE},
    {"znver4", ICELAKE | BIT(avx512bf16)},
    {"sapphirerapids", SAPPHIRE},
    {"graniterapids", SAPPHIRE},
};

/* The features of a list in LLVM's form ("+avx2,-fma") on top of those of the named CPU. Unknown names add nothing. */
static uint64_t asked_for(const char *cpu, const char *features)
{
    uint64_t f = 0;
    for (size_t i = 0; i < NNC_COUNT(cpus); i++)
        if (!strcmp(cpu, cpus[i].name))
            f = cpus[i].has;
    for (const char *s = features; *s; s += strcspn(s, ","), s += *s == ',') {
        size_t n = strcspn(s, ",");
        for (int i = 0; i < NNC_F__COUNT; i++)
            if (n == strlen(nnc_cpu_feature_name(i)) + 1 &&
                !strncmp(s + 1, nnc_cpu_feature_name(i), n - 1))
                f = *s == '-' ? f & ~(UINT64_C(1) << i) : f | UINT64_C(1) << i;
    }
    return f;
}

const char *nnc_target_host_lacks(const nnc_target *t)
{
    uint64_t want = asked_for(t->cpu ? t->cpu : "", t->features ? t->features : "");
    if (t->kind != NNC_T_cpu)
        return NULL;
    if (nnc_target_core(t->core))
        return "AArch64 instructions";
    want |= t->vector_bits >= 512 ? KERNELS_512 : t->vector_bits >= 256 ? BIT(avx2) : 0;
    want |= (t->fma ? BIT(fma) : 0) | (t->f16c ? BIT(f16c) : 0) |
            (t->avx512_bf16 ? BIT(avx512bf16) : 0);
    want &= ~nnc_cpu_features();
    for (int i = 0; i < NNC_F__COUNT; i++)
        if (want >> i & 1)
            return nnc_cpu_feature_name(i);
    return NULL;
}

void target_instructions(nnc_target *t)
{
    uint64_t has = nnc_cpu_features();
    bool wide = (has & KERNELS_512) == KERNELS_512;
    t->vector_bits = wide ? 512 : has & BIT(avx2) ? 256 : 128;
    t->fma = has & BIT(fma);
    t->f16c = has & BIT(f16c);
    t->avx512_bf16 = wide && has & BIT(avx512bf16);
}

void nnc_target_host_name(nnc_text *t)
{
    uint32_t r[12] = {0};
    char brand[sizeof r + 1] = "";
    for (uint32_t i = 0; i < 3; i++)
        (void)__get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    memcpy(brand, r, sizeof r);
    const char *s = brand + strspn(brand, " ");
    uint64_t f = nnc_cpu_features();
    nnc_printf(t, "%s with %s", *s ? s : "an x86-64 CPU",
        f & BIT(amx_tile)     ? "AVX-512 and AMX"
        : f & BIT(avx512fp16) ? "AVX-512 and FP16"
        : f & BIT(avx512bf16) ? "AVX-512 and BF16"
        : f & BIT(avx512f)    ? "AVX-512"
        : f & BIT(avx2)       ? "AVX2"
                              : "SSE");
    if (*nnc_cpu_limit())
        nnc_printf(t, ", limited to %s", nnc_cpu_limit());
}
#elif defined(__aarch64__)
const char *nnc_target_host_lacks(const nnc_target *t)
{
    return t->kind == NNC_T_cpu && !nnc_target_core(t->core) ? "x86-64 instructions" : NULL;
}

void nnc_target_host_name(nnc_text *t)
{
    const nnc_core *c = target_host_core();
    nnc_printf(t, "an AArch64 CPU (%s)", c->part ? c->name : "core unknown");
}
#else
#error "nnc runs on x86-64 and AArch64 CPUs"
#endif

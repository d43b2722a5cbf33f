/* target/features.c -- the name of this machine's CPU, and whether it has the instructions that code for a described CPU may use.
 * Source of the levels' members: System V psABI x86-64, "Micro-Architecture Levels". */
#include "target/internal.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

/* Rows: LLVM's name of the feature; leaf, subleaf, register and bit of cpuid; the register state that the operating system must save. */
enum { IN_a, IN_b, IN_c, IN_d };
enum { ANY = 0, YMM = 6, ZMM = 0xe6, TILE = 0x60006 };
#define FEATURES(X) \
    X(sse4_1, "sse4.1", 1, 0, c, 19, ANY) \
    X(avx, "avx", 1, 0, c, 28, YMM) \
    X(fma, "fma", 1, 0, c, 12, YMM) \
    X(f16c, "f16c", 1, 0, c, 29, YMM) \
    X(movbe, "movbe", 1, 0, c, 22, ANY) \
    X(avx2, "avx2", 7, 0, b, 5, YMM) \
    X(bmi, "bmi", 7, 0, b, 3, ANY) \
    X(bmi2, "bmi2", 7, 0, b, 8, ANY) \
    X(lzcnt, "lzcnt", 0x80000001, 0, c, 5, ANY) \
    X(xop, "xop", 0x80000001, 0, c, 11, YMM) \
    X(fma4, "fma4", 0x80000001, 0, c, 16, YMM) \
    X(tbm, "tbm", 0x80000001, 0, c, 21, ANY) \
    X(avx512f, "avx512f", 7, 0, b, 16, ZMM) \
    X(avx512dq, "avx512dq", 7, 0, b, 17, ZMM) \
    X(avx512ifma, "avx512ifma", 7, 0, b, 21, ZMM) \
    X(avx512cd, "avx512cd", 7, 0, b, 28, ZMM) \
    X(avx512bw, "avx512bw", 7, 0, b, 30, ZMM) \
    X(avx512vl, "avx512vl", 7, 0, b, 31, ZMM) \
    X(avx512vbmi, "avx512vbmi", 7, 0, c, 1, ZMM) \
    X(avx512vbmi2, "avx512vbmi2", 7, 0, c, 6, ZMM) \
    X(gfni, "gfni", 7, 0, c, 8, ANY) \
    X(avx512vnni, "avx512vnni", 7, 0, c, 11, ZMM) \
    X(avx512bitalg, "avx512bitalg", 7, 0, c, 12, ZMM) \
    X(avx512vpopcntdq, "avx512vpopcntdq", 7, 0, c, 14, ZMM) \
    X(amx_bf16, "amx-bf16", 7, 0, d, 22, TILE) \
    X(avx512fp16, "avx512fp16", 7, 0, d, 23, ZMM) \
    X(amx_tile, "amx-tile", 7, 0, d, 24, TILE) \
    X(amx_int8, "amx-int8", 7, 0, d, 25, TILE) \
    X(avxvnni, "avxvnni", 7, 1, a, 4, YMM) \
    X(avx512bf16, "avx512bf16", 7, 1, a, 5, ZMM)
enum {
#define X(id, name, leaf, sub, reg, bit, state) F_##id,
    FEATURES(X)
#undef X
        F__COUNT
};
#define BIT(f) (UINT64_C(1) << F_##f)
#define V3 \
    (BIT(avx) | BIT(avx2) | BIT(fma) | BIT(f16c) | BIT(bmi) | BIT(bmi2) | BIT(lzcnt) | BIT(movbe))
#define KERNELS_512 \
    (BIT(avx512f) | BIT(avx512bw) | BIT(avx512dq) | BIT(avx512vl)) /* what generated kernels need */
#define V4 (V3 | KERNELS_512 | BIT(avx512cd))
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

static const char *const names[] = {
#define X(id, name, leaf, sub, reg, bit, state) name,
    FEATURES(X)
#undef X
};

static uint64_t host_features(void)
{
    static const struct {
        uint32_t leaf, sub, reg, bit, state;
    } row[] = {
#define X(id, name, leaf, sub, reg, bit, state) {leaf, sub, IN_##reg, bit, state},
        FEATURES(X)
#undef X
    };
    uint64_t found = 0, saved = target_saved_state();
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        uint32_t r[4] = {0};
        if (__get_cpuid_count(row[i].leaf, row[i].sub, &r[0], &r[1], &r[2], &r[3]) &&
            (r[row[i].reg] >> row[i].bit & 1) && (saved & row[i].state) == row[i].state)
            found |= UINT64_C(1) << i;
    }
    return found;
}

/* The features of a list in LLVM's form ("+avx2,-fma") on top of those of the named CPU. Unknown names add nothing. */
static uint64_t asked_for(const char *cpu, const char *features)
{
    uint64_t f = 0;
    for (size_t i = 0; i < NNC_COUNT(cpus); i++)
        if (!strcmp(cpu, cpus[i].name))
            f = cpus[i].has;
    for (const char *s = features; *s; s += strcspn(s, ","), s += *s == ',') {
        size_t n = strcspn(s, ",");
        for (int i = 0; i < F__COUNT; i++)
            if (n == strlen(names[i]) + 1 && !strncmp(s + 1, names[i], n - 1))
                f = *s == '-' ? f & ~(UINT64_C(1) << i) : f | UINT64_C(1) << i;
    }
    return f;
}

const char *nnc_target_host_lacks(const nnc_target *t)
{
    uint64_t want = asked_for(t->cpu ? t->cpu : "", t->features ? t->features : "");
    if (t->kind != NNC_T_cpu)
        return NULL;
    want |= t->vector_bits >= 512 ? KERNELS_512 : t->vector_bits >= 256 ? BIT(avx2) : 0;
    want |= (t->fma ? BIT(fma) : 0) | (t->f16c ? BIT(f16c) : 0) |
            (t->avx512_bf16 ? BIT(avx512bf16) : 0);
    want &= ~host_features();
    for (int i = 0; i < F__COUNT; i++)
        if (want >> i & 1)
            return names[i];
    return NULL;
}

void target_instructions(nnc_target *t)
{
    uint64_t has = host_features();
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
    uint64_t f = host_features();
    nnc_printf(t, "%s with %s", *s ? s : "an x86-64 CPU",
        f & BIT(amx_tile)     ? "AVX-512 and AMX"
        : f & BIT(avx512fp16) ? "AVX-512 and FP16"
        : f & BIT(avx512bf16) ? "AVX-512 and BF16"
        : f & BIT(avx512f)    ? "AVX-512"
        : f & BIT(avx2)       ? "AVX2"
                              : "SSE");
}
#else
const char *nnc_target_host_lacks(const nnc_target *t)
{
    (void)t;
    return NULL; /* the only code generator is the machine's own */
}

void target_instructions(nnc_target *t)
{
    t->vector_bits = 128;
#if defined(__aarch64__)
    t->fma = t->f16c = true;
#endif
}

void nnc_target_host_name(nnc_text *t)
{
    nnc_puts(t, "a CPU");
    target_host_signature(t);
}
#endif

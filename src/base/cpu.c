/* base/cpu.c -- see cpu.h. */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define FEATURE(id, name, leaf, sub, reg, bit, state) name,
#include "base/cpu.def"
};

const char *nnc_cpu_feature_name(int feature)
{
    return names[feature];
}

/* ---- what the CPU has ----------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>

/* Register state that the system saves on a task switch (XCR0). Registers that it does not save must not be used. */
static uint64_t saved_state(void)
{
    uint32_t a, b, c = 0, d, lo, hi;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static uint64_t read_features(void)
{
    enum { IN_a, IN_b, IN_c, IN_d };
    enum { ANY = 0, YMM = 6, ZMM = 0xe6, TILE = 0x60006 };
    static const struct {
        uint32_t leaf, sub, reg, bit, state;
    } row[] = {
#define FEATURE(id, name, leaf, sub, reg, bit, state) {leaf, sub, IN_##reg, bit, state},
#include "base/cpu.def"
    };
    uint64_t found = 0, saved = saved_state();
    for (size_t i = 0; i < NNC_COUNT(row); i++) {
        uint32_t r[4] = {0};
        if (__get_cpuid_count(row[i].leaf, row[i].sub, &r[0], &r[1], &r[2], &r[3]) &&
            (r[row[i].reg] >> row[i].bit & 1) && (saved & row[i].state) == row[i].state)
            found |= UINT64_C(1) << i;
    }
    return found;
}
#else
static uint64_t read_features(void)
{
    return 0;
}
#endif

/* Read once for a process: each CPUID leaves a virtual machine, and all of them take about a millisecond there. */
static uint64_t features_of_cpu(void)
{
    static _Atomic uint64_t found;
    static _Atomic bool known;
    if (!known) {
        found = read_features();
        known = true;
    }
    return found;
}

/* ---- the limit ------------------------------------------------------------------------------------------------------ */

enum { LOWEST = 2, HIGHEST = 4 };
static const char *const level_names[] = {"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
static const uint64_t level_features[] = {0, 0, NNC_X86_V2, NNC_X86_V3, NNC_X86_V4};

_Atomic int nnc_cpu_level_found;
static _Atomic int limit; /* LOWEST to HIGHEST; 0: not read yet, 1: none */

static int level_named(const char *name)
{
    for (int i = LOWEST; i <= HIGHEST; i++)
        if (!strcmp(name, level_names[i]))
            return i;
    return 0;
}

static int highest(uint64_t has)
{
    int level = 1;
    for (int i = LOWEST; i <= HIGHEST; i++)
        if ((has & level_features[i]) == level_features[i])
            level = i;
    return level;
}

/* NNC_CPU; "": not set. */
static const char *given(void)
{
    const char *level = getenv("NNC_CPU");
    return level ? level : "";
}

static int the_limit(void)
{
    int now = limit;
    if (now)
        return now;
    now = level_named(given());
    now = now && now <= highest(features_of_cpu()) ? now : 1;
    limit = now;
    return now;
}

const char *nnc_cpu_limit(void)
{
    const int most = the_limit();
    return most >= LOWEST ? level_names[most] : "";
}

uint64_t nnc_cpu_features(void)
{
    const int most = the_limit();
    return features_of_cpu() & (most >= LOWEST ? level_features[most] : ~UINT64_C(0));
}

int nnc_cpu_find_level(void)
{
    const int found = highest(nnc_cpu_features());
    nnc_cpu_level_found = found;
    return found;
}

#if defined(__x86_64__)
/* `within`: features to choose from. */
static nnc_status check(const char *level, uint64_t within, const char *option, nnc_sink *sink)
{
    const int want = level_named(level);
    const uint64_t lacks = level_features[want] & ~within;
    if (!want)
        return nnc_fail0(sink, NNC_E_USAGE,
            "%s%s: expected x86-64-v2 (SSE4.2), x86-64-v3 (AVX2, FMA) or x86-64-v4 (AVX-512)",
            option, level);
    if (lacks && !(level_features[want] & ~features_of_cpu()))
        return nnc_fail0(sink, NNC_E_USAGE, "%s%s: this process is limited to %s already", option,
            level, nnc_cpu_limit());
    if (lacks)
        return nnc_fail0(sink, NNC_E_USAGE, "%s%s: this CPU lacks %s; its level is %s", option,
            level, names[__builtin_ctzll(lacks)], level_names[highest(within)]);
    return NNC_OK;
}
#else
static nnc_status check(const char *level, uint64_t within, const char *option, nnc_sink *sink)
{
    (void)within;
    return nnc_fail0(sink, NNC_E_USAGE,
        "%s%s: levels are those of x86-64 CPUs, and this CPU is of another architecture", option,
        level);
}
#endif

nnc_status nnc_cpu_check(nnc_sink *sink)
{
    return *given() ? check(given(), features_of_cpu(), "NNC_CPU=", sink) : NNC_OK;
}

nnc_status nnc_cpu_limit_to(const char *level, const char *option, nnc_sink *sink)
{
    NNC_TRY(check(level, nnc_cpu_features(), option, sink));
    if (!strcmp(level, nnc_cpu_limit()))
        return NNC_OK;
    if (setenv("NNC_CPU", level, 1)) /* plug-ins and child processes read it */
        return nnc_nomem(sink);
    limit = level_named(level);
    nnc_cpu_level_found = 0;
    return NNC_OK;
}

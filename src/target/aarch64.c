/* target/aarch64.c -- described AArch64 CPUs: cores, and a machine that has them. A target's `core` names the row, so that a machine file
 * or --target=cpu:neoverse-n1 compiles for it anywhere. Kernels use the base instruction set, Armv8.0-A with Advanced SIMD, so code for
 * one of these CPUs runs on all of them. It has 32 vector registers of 128 bits, fused multiply-adds and conversions of f16. `llvm` orders
 * instructions for the core only. SVE is not used: a Neoverse V1 starts two vectors of 256 bits or four of 128 in a cycle.
 *
 * Sources of the numbers:
 *   - instructions: LLVM 19's scheduling models, made from Arm's Software Optimization Guides (llvm-mca of fmla, ldr, str and fdiv of q
 *     registers; a Cortex-A72 has the model of the A57); their MicroOpBufferSize is the window. Apple's Firestorm: D. Johnson, "Apple M1
 *     Microarchitecture Research".
 *   - caches, cores, memory channels: the data sheets of AWS Graviton2, 3 and 4, Apple's M1 and the Raspberry Pi 4 (BCM2711). An L2 that
 *     cores share is divided among them.
 * Assumed: a copy reaches 0.8 of the memory's bandwidth, a core moves 16 bytes a clock within its caches. No time was measured. */
#include "target/internal.h"
#include <stdlib.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const nnc_core cores[] = {
    {"armv8-a", "cortex-a72", 0, .vectors = 1, .loads = 1, .stores = 0.5, .op_latency = 10,
        .load_latency = 5, .divide = 34, .divide_latency = 34, .window = 128,
        .machine = "Raspberry Pi 4", 4, 1500, 32, 256, 0, 4, 12.8},
    {"neoverse-n1", "neoverse-n1", 0x41d0c, .vectors = 2, .loads = 2, .stores = 1, .op_latency = 4,
        .load_latency = 5, .divide = 7, .divide_latency = 10, .window = 128, .machine = "Graviton2",
        64, 2500, 64, 1024, 32, 128, 204.8},
    {"neoverse-v1", "neoverse-v1", 0x41d40, .vectors = 4, .loads = 3, .stores = 2, .op_latency = 4,
        .load_latency = 6, .divide = 3.5, .divide_latency = 10, .window = 256,
        .machine = "Graviton3", 64, 2600, 64, 1024, 32, 128, 307.2},
    {"neoverse-v2", "neoverse-v2", 0x41d4f, .vectors = 4, .loads = 3, .stores = 2, .op_latency = 4,
        .load_latency = 6, .divide = 5, .divide_latency = 10, .window = 320, .machine = "Graviton4",
        96, 2800, 64, 2048, 36, 192, 537.6},
    {"apple-m1", "apple-m1", 0x61023, .vectors = 4, .loads = 3, .stores = 2, .op_latency = 4,
        .load_latency = 5, .divide = 1, .divide_latency = 8, .window = 630, .machine = "Apple M1",
        4, 3200, 128, 3072, 8, 16, 68.3},
};

const nnc_core *nnc_target_core_at(int i)
{
    return i < (int)NNC_COUNT(cores) ? &cores[i] : NULL;
}

const nnc_core *nnc_target_core(const char *name)
{
    for (size_t i = 0; i < NNC_COUNT(cores) && name; i++)
        if (!strcmp(cores[i].name, name))
            return &cores[i];
    return NULL;
}

void target_core(nnc_target *t, const nnc_core *c)
{
    t->core = c->name;
    t->cpu = "generic";
    t->vector_bits = 128;
    t->fma = t->f16c = true;
}

int64_t target_core_flops(const nnc_core *c, int64_t clock_hz, int n)
{
    return (int64_t)(c->vectors * 4 * 2 * (double)clock_hz) * n;
}

/* As nnc_target_cuda for a GPU: the machine of the row, whose cores are all used. */
nnc_status nnc_target_aarch64(nnc_target *t, const char *name, int threads, nnc_sink *sink)
{
    const nnc_core *c = nnc_target_core(strncmp(name, "cpu:", 4) ? NULL : name + 4);
    const int64_t hz = c ? c->mhz * INT64_C(1000000) : 0;
    *t = (nnc_target){.kind = NNC_T_cpu, .features = "", .card = ""};
    if (!c)
        return nnc_fail0(sink, NNC_E_USAGE, "target %s: expected cpu: and a described core", name);
    t->name = nnc_arena_strdup(&t->arena, name);
    NNC_NEED(t->name, sink);
    target_core(t, c);
    t->cores = c->cores;
    t->threads = threads > 0 ? threads : c->cores;
    t->memory_bytes = (int64_t)c->memory_gib << 30;
    t->l1_bytes = (int64_t)c->l1_kib << 10;
    t->l2_bytes = (int64_t)c->l2_kib << 10;
    t->l3_bytes = (int64_t)c->l3_mib << 20;
    t->flops_f32 = target_core_flops(c, hz, c->cores);
    t->copy_bytes_s = (int64_t)(c->gb_s * 0.8e9);
    t->cache_bytes_s = 16 * hz * c->cores;
    target_cpu_numbers(t);
    return NNC_OK;
}

#if defined(__aarch64__)
/* The row of this machine's first core by its main ID register (MIDR_EL1: implementer, part number), else the generic one. sysfs
 * shows the register, and Linux lets programs read it. */
const nnc_core *target_host_core(void)
{
    char text[64];
    uint64_t midr =
        strtoull(target_slurp("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", text,
                     sizeof text),
            NULL, 0);
    if (!midr && getauxval(AT_HWCAP) & HWCAP_CPUID)
        __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
    const int part = (int)(midr >> 24 & 0xff) << 12 | (int)(midr >> 4 & 0xfff);
    for (size_t i = 1; i < NNC_COUNT(cores); i++)
        if (cores[i].part == part)
            return &cores[i];
    return &cores[0];
}
#endif

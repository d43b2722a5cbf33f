/* tests/cpu.h -- a described CPU, so that decisions which tests compare do not depend on the machine that runs them. */
#ifndef NNC_TESTS_CPU_H
#define NNC_TESTS_CPU_H

#include "target/target.h"

/* Two cores with AVX-512; release with nnc_target_deinit. */
static inline nnc_target test_cpu(int threads, bool llvm)
{
    nnc_target t = {.kind = NNC_T_cpu,
        .name = "cpu",
        .cpu = "x86-64-v4",
        .features = "",
        .core = "",
        .card = "",
        .vector_bits = 512,
        .fma = true,
        .f16c = true,
        .cores = 2,
        .threads = threads,
        .memory_bytes = INT64_C(16) << 30,
        .l1_bytes = 48 << 10,
        .l2_bytes = 2 << 20,
        .l3_bytes = 64 << 20,
        .flops_f32 = INT64_C(268800000000),
        .copy_bytes_s = INT64_C(30000000000),
        .cache_bytes_s = INT64_C(120000000000),
        .launch_ns = 1500};
    if (llvm)
        t.engine[t.n_engines++] = (nnc_target_engine){.name = "llvm", .efficiency = 0.92};
    t.engine[t.n_engines++] = (nnc_target_engine){.name = "interp", .efficiency = 0.02};
    nnc_arena_init(&t.arena, 0);
    return t;
}

#endif

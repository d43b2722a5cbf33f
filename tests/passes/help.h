/* tests/passes/help.h -- targets described by hand, graphs from text, and running passes on them. */
#ifndef TESTS_PASSES_HELP_H
#define TESTS_PASSES_HELP_H

#include "passes/passes.h"
#include "test.h"

/* A machine of round numbers: 1e11 FLOP/s, 1e10 B/s, 1 us a launch. Its kernels are interpreted. */
static inline nnc_target help_target(void)
{
    nnc_target t = {.name = "cpu",
        .cpu = "",
        .features = "",
        .vector_bits = 256,
        .cores = 4,
        .threads = 4,
        .memory_bytes = (int64_t)16 << 30,
        .l1_bytes = 32 << 10,
        .l2_bytes = 1 << 20,
        .l3_bytes = 4 << 20,
        .flops_f32 = 100000000000,
        .copy_bytes_s = 10000000000,
        .cache_bytes_s = 40000000000,
        .launch_ns = 1000};
    t.engine[t.n_engines++] = (nnc_target_engine){.name = "interp", .efficiency = 0.1};
    return t;
}

/* A target whose generated kernels are compiled. */
static inline nnc_target help_kernels(void)
{
    nnc_target t = help_target();
    t.engine[0] = (nnc_target_engine){.name = "llvm", .efficiency = 0.5};
    return t;
}

static inline nnc_graph *help_parse(const char *file, const char *text, size_t n)
{
    nnc_scan s;
    nnc_scan_init(&s, file, text, n);
    return nnc_graph_parse(&s, test_sink);
}

#endif

/* bench/gpu_share.h -- the share of a GPU's memory bandwidth that a generated kernel is predicted to reach. It is computed from machine
 * code and launch, so that a measurement can prove it wrong.
 *
 * A launch takes the longest of these times, and one latency of memory for its first loads. W: warps of the busiest SM, n: instructions of
 * a warp on the full path, loops times their iterations:
 *
 *     memory    bytes / bandwidth of a copy; of L2 where all that a run moves fits there
 *     issue     W * n / 4: an SM issues 4 instructions a clock
 *     float, integer, special   W * 32 * n of that class / lanes of the class
 *     L1        bytes of loads and of local memory, those served by L1 included / 128 bytes a clock and SM
 *     L2        bytes of local memory / 64 bytes a clock and SM, where the stacks of the resident threads are larger than L1
 *     latency   blocks / (resident blocks * SMs) * time of a block that is alone: its waits for memory * latency
 *               + the longer of its stalls and its share of `issue` + its bytes / 64 bytes a clock
 *
 * The last is Little's law: resident blocks times bytes of a block are in flight for the time of a block. Bytes that an SM must have in
 * flight: bandwidth * latency / SMs, on an H200 4.8 TB/s * 700 ns / 132 = 25 KB.
 *
 * Sources. 128 lanes for floats, 64 for integers, 16 for special functions, resident blocks and registers of an SM. From the CUDA C++
 * Programming Guide: throughput of native arithmetic instructions, and technical specifications per compute capability. 128 bytes of L1
 * and 64 of L2 a clock and SM: Jia et al. 2018, arXiv 1804.06826, and the A100 white paper. Latencies, of loaded memory 700 ns, of L2 and
 * shared memory: assumed (an idle H100: 479, 264 and 30 clocks, Luo et al. 2024, arXiv 2402.13499). */
#ifndef NNC_BENCH_GPU_SHARE_H
#define NNC_BENCH_GPU_SHARE_H

#include "codegen/codegen.h"
#include "cuda/cuda.h"
#include "target/target.h"

struct nnc_plan;

/* What a thread does in a part of the full path. Some paths from entry to exit store the most to global
 * memory. Among these it is the shortest of those that load the most from it. Threads inside of all edges execute it. */
typedef struct nnc_cubin_work {
    int n[CC__COUNT];   /* instructions by class */
    int issued;         /* sum of n without padding */
    int stalls;         /* clocks between instructions where nothing is waited for, from their control codes */
    int loads, stores;  /* bytes of global memory */
    int local;          /* bytes of local memory, loaded and stored */
    int waits;          /* for global loads: those that were issued before count as arrived together */
    int ahead;          /* clocks of the thread between loads of an iteration and the next one's wait for them */
    int other_waits;    /* for shared memory, shuffles, special functions, conversions; barriers */
} nnc_cubin_work;
typedef struct nnc_cubin_path { /* the full path of a kernel */
    nnc_cubin_work once, loop; /* outside of loops; one iteration of each of its loops, added up */
    int flight;                /* most bytes of global loads that it has issued and not waited for */
} nnc_cubin_path;
/* cubin_work.c. The cubin that k was read from is still there. False: out of memory. */
bool nnc_cubin_path_of(const nnc_cubin_kernel *k, nnc_cubin_path *out);
/* The usual path: among the paths from entry to exit that store the most to global memory, the shortest. Threads that take no slow path and
 * process no remainder execute it. A loop counts once, or not at all where it can be skipped. */
typedef struct nnc_cubin_usual {
    int length, n[CC__COUNT]; /* instructions, and by class */
    int stored; /* bytes in global memory */
    int arrays; /* loads and stores of local memory at computed addresses: arrays, not saved registers */
    int load_bits[CUBIN_WIDTHS]; /* global loads of 8, 16, 32, 64 and 128 bits */
    int store_bits[CUBIN_WIDTHS];
} nnc_cubin_usual;
/* The same conditions. */
bool nnc_cubin_usual_of(const nnc_cubin_kernel *k, nnc_cubin_usual *out);

typedef enum nnc_gpu_limit {
    GL_memory,
    GL_issue,
    GL_float,
    GL_integer,
    GL_special,
    GL_l1,
    GL_l2,
    GL_latency,
    GL__COUNT
} nnc_gpu_limit;
extern const char *const nnc_gpu_limit_names[GL__COUNT];

typedef struct nnc_gpu_share {
    int resident;        /* blocks of an SM */
    double trips;        /* iterations of the loops on the full path */
    double seen;         /* bytes that the full path loads, of those that the kernel IR loads for a thread; without guards 1 */
    double instructions; /* of a thread, for each element that the kernel stores */
    double flight;       /* bytes of loads in flight per SM */
    double us[GL__COUNT], total_us;
    nnc_gpu_limit bound;
    double share; /* bytes / copy bandwidth / total_us */
} nnc_gpu_share;

/* Bytes in flight that an SM of the target needs for its memory's bandwidth. */
double nnc_gpu_needed(const nnc_target *t);
/* Blocks of `threads` threads that an SM holds at once. */
int nnc_gpu_resident(const nnc_target *t, int threads, int registers, int64_t shared);
/* The kernel's launch, or with `finish` the second one of a split kernel, which moves `bytes`. `cached`: they are in L2. */
nnc_status nnc_gpu_share_of(const nnc_target *t, const nnc_kernel *k, const nnc_cubin_kernel *c, bool finish, double bytes, bool cached,
    nnc_gpu_share *out, nnc_sink *sink) NNC_MUST;

/* One launch of a generated kernel in a plan. */
typedef struct nnc_gpu_launch {
    const char *symbol, *layers;
    int threads;
    int64_t blocks;
    double bytes, elements; /* moved, stored */
    const nnc_cubin_kernel *code;
    nnc_gpu_share share;
} nnc_gpu_launch;
typedef struct nnc_gpu_launches {
    nnc_gpu_launch *launch; /* of main, accumulate and step */
    int n, others;      /* others: library calls, copies, kernels without machine code that can be read */
    double us;          /* sum of total_us */
} nnc_gpu_launches;

/* Predicts every launch of the plan's first device; strings and code are in `a`. */
nnc_status nnc_gpu_launches_of(const struct nnc_plan *p, const nnc_target *t, nnc_arena *a, nnc_gpu_launches *out, nnc_sink *sink) NNC_MUST;

#endif

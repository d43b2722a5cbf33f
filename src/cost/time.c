/* cost/time.c -- what moving and computing take on a machine, by its description: the roofline, and what is asked of it. */
#include "cost/cost.h"

int64_t nnc_target_peak_flops(const nnc_target *t, nnc_dtype d, bool tf32)
{
    if ((d == DT_f16 || d == DT_bf16) && t->flops_f16 > 0)
        return t->flops_f16;
    return d == DT_f32 && tf32 && t->flops_tf32 > 0 ? t->flops_tf32 : t->flops_f32;
}

/* Time in ns of `amount` at `rate` per second, rounded up, at most 2^53 (104 days: sums of many do not overflow); 0 when the rate is
 * unknown. */
static int64_t ns_of(int64_t amount, int64_t rate)
{
    if (rate <= 0 || amount <= 0)
        return 0;
    double ns = (double)amount * 1e9 / (double)rate;
    return ns < 0x1p53 ? (int64_t)(ns + 0.999) : (int64_t)1 << 53;
}

/* The share that `threads` reach of a rate that takes so many cores; 0 threads: all of it. */
static int64_t reached(const nnc_target *t, int64_t rate, int64_t threads, int cores)
{
    bool part = rate > 0 && t->kind == NNC_T_cpu && threads > 0 && threads < cores;
    return part ? nnc_max64(rate / cores * threads, 1) : rate;
}

int64_t nnc_target_move_ns(const nnc_target *t, int64_t bytes, int64_t threads)
{
    int64_t caches = t->l2_bytes * (t->cores > 0 ? t->cores : 1) + t->l3_bytes;
    if (bytes <= caches && t->cache_bytes_s > 0)
        return ns_of(bytes, reached(t, t->cache_bytes_s, threads, t->cores));
    int busy = t->cores < NNC_T_MEMORY_CORES ? t->cores : NNC_T_MEMORY_CORES;
    return ns_of(bytes, reached(t, t->copy_bytes_s, threads, busy));
}

/* Roofline model: the maximum of computing and moving. */
int64_t nnc_target_rate_ns(const nnc_target *t, int64_t flops, int64_t rate, int64_t bytes)
{
    return nnc_max64(ns_of(flops, reached(t, rate, t->threads, t->cores)),
        nnc_target_move_ns(t, bytes, t->threads));
}

int64_t nnc_target_least_ns(
    const nnc_target *t, nnc_dtype d, bool tf32, int64_t flops, int64_t bytes)
{
    return nnc_target_rate_ns(t, flops, nnc_target_peak_flops(t, d, tf32), bytes);
}

int64_t nnc_target_time_ns(const nnc_target *t, int64_t flops, int64_t bytes)
{
    return nnc_target_least_ns(t, DT_f32, false, flops, bytes) + t->launch_ns;
}

int64_t nnc_target_start_ns(const nnc_target *t, int64_t threads)
{
    if (t->kind == NNC_T_cuda)
        return t->launch_ns;
    return NNC_T_kernel_ns + (threads > 1 ? NNC_T_wake_ns : 0);
}

int64_t nnc_target_link_ns(int64_t bytes)
{
    return ns_of(
        bytes, INT64_C(25000000000)); /* PCIe 4.0 x16: 31.5 GB/s, of which copies reach 25 */
}

int64_t nnc_target_spare_ops(const nnc_target *t)
{
    return (int64_t)((double)t->flops_f32 / NNC_F_launched * (double)t->launch_ns * 1e-9);
}

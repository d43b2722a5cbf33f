/* partition/links.c -- communication times: behind two functions, and those of equal devices with equal links. */
#include "partition/partition.h"

int64_t nnc_links_p2p(const nnc_links *l, int src, int dst, int64_t bytes)
{
    return !l || src == dst || bytes <= 0 ? 0 : l->p2p_ns(l->ctx, src, dst, bytes);
}

int64_t nnc_links_allreduce(const nnc_links *l, const int *device, int n, int64_t bytes)
{
    return !l || n < 2 || bytes <= 0 ? 0 : l->allreduce_ns(l->ctx, device, n, bytes);
}

/* Rounded up. */
static int64_t transfer_ns(const nnc_flat_links *f, int64_t bytes)
{
    const __int128 ns = ((__int128)bytes * 1000000000 + f->bytes_per_s - 1) / f->bytes_per_s;
    return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

static int64_t flat_p2p(const void *ctx, int src, int dst, int64_t bytes)
{
    (void)src;
    (void)dst;
    const nnc_flat_links *f = ctx;
    return nnc_add_sat(f->latency_ns, transfer_ns(f, bytes));
}

/* Bytes that each device sends in a ring allreduce, rounded up. */
static int64_t ring_bytes(int n, int64_t bytes)
{
    const __int128 sent = ((__int128)bytes * 2 * (n - 1) + n - 1) / n;
    return sent > INT64_MAX ? INT64_MAX : (int64_t)sent;
}

/* A ring: each device sends 2(n-1) messages of 1/n of the bytes. */
static int64_t flat_allreduce(const void *ctx, const int *device, int n, int64_t bytes)
{
    (void)device;
    const nnc_flat_links *f = ctx;
    return nnc_add_sat(
        nnc_mul_sat(2 * (n - 1), f->latency_ns), transfer_ns(f, ring_bytes(n, bytes)));
}

nnc_links nnc_links_flat(const nnc_flat_links *f)
{
    return (nnc_links){flat_p2p, flat_allreduce, f};
}

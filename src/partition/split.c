/* partition/split.c -- bytes that collectives send. */
#include "partition/partition.h"

/* times (n-1)/n, rounded up */
static int64_t ring_share(int n, int64_t bytes, int64_t times)
{
    if (n < 2)
        return 0;
    const __int128 sent = ((__int128)bytes * times * (n - 1) + n - 1) / n;
    return sent > INT64_MAX ? INT64_MAX : (int64_t)sent;
}

int64_t nnc_allreduce_bytes(int n, int64_t bytes)
{
    return ring_share(n, bytes, 2);
}

int64_t nnc_allgather_bytes(int n, int64_t bytes)
{
    return ring_share(n, bytes, 1);
}

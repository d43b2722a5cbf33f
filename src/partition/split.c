/* partition/split.c -- bytes that split tensors move, and the cheapest layouts of a chain of layers. */
#include "partition/partition.h"

int64_t nnc_halo_bytes(
    int64_t n, int64_t c, int64_t w, int64_t kernel, int64_t dilation, int64_t element_bytes)
{
    const int64_t rows = nnc_mul_sat(kernel / 2, dilation);
    return nnc_mul_sat(nnc_mul_sat(nnc_mul_sat(rows, w), nnc_mul_sat(c, n)), element_bytes);
}

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

nnc_status nnc_layout_chain(int n_layer, int n_layout, const int64_t *cost, const int64_t *move,
    int *choice, int64_t *total, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const size_t k = (size_t)n_layout;
    int64_t *best = ARENA_NEW(&a, int64_t, (size_t)n_layer * k + 1);
    int *from = ARENA_NEW(&a, int, (size_t)n_layer *k + 1);
    NNC_NEED(best && from, sink);
    for (size_t x = 0; x < k; x++)
        best[x] = cost[x];
    for (size_t i = 1; i < (size_t)n_layer; i++)
        for (size_t x = 0; x < k; x++) {
            int64_t least = INT64_MAX;
            for (size_t y = 0; y < k; y++) {
                const int64_t t = nnc_add_sat(best[(i - 1) * k + y], move[(i * k + y) * k + x]);
                if (t < least || !y) {
                    least = t;
                    from[i * k + x] = (int)y;
                }
            }
            best[i * k + x] = nnc_add_sat(least, cost[i * k + x]);
        }
    int at = 0;
    for (int x = 1; n_layer > 0 && x < n_layout; x++)
        if (best[(size_t)(n_layer - 1) * k + (size_t)x] <
            best[(size_t)(n_layer - 1) * k + (size_t)at])
            at = x;
    *total = n_layer > 0 ? best[(size_t)(n_layer - 1) * k + (size_t)at] : 0;
    for (int i = n_layer - 1; i >= 0; i--) {
        choice[i] = at;
        at = from[(size_t)i * k + (size_t)at];
    }
    return NNC_OK;
}

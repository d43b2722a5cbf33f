/* partition/data_parallel.c -- the bytes of ZeRO's stages. */
#include "partition/partition.h"

nnc_zero_bytes nnc_zero(int stage, int n, int64_t weights, int64_t gradients, int64_t optimizer,
    int64_t largest_unit, bool prefetch)
{
    nnc_zero_bytes z = {.weights = stage >= 3 ? nnc_ceildiv(weights, n) : weights,
        .gradients = stage >= 2 ? nnc_ceildiv(gradients, n) : gradients,
        .optimizer = stage >= 1 ? nnc_ceildiv(optimizer, n) : optimizer};
    if (stage >= 3)
        z.gathered = nnc_mul_sat(largest_unit, prefetch ? 2 : 1);
    if (!stage)
        z.traffic = nnc_allreduce_bytes(n, gradients);
    else /* gradients are reduce-scattered, weights gathered: at stage 3 for both passes */
        z.traffic = nnc_add_sat(nnc_allgather_bytes(n, gradients),
            nnc_mul_sat(nnc_allgather_bytes(n, weights), stage >= 3 ? 2 : 1));
    return z;
}

/* partition/boundary.c -- bytes between the parts of a model: over each position of its order, and from device to device. */
#include "partition/partition.h"
#include <string.h>

static int last_user(const nnc_edge *e)
{
    int last = -1;
    for (int k = 0; k < e->n_user; k++)
        last = e->user[k] > last ? e->user[k] : last;
    return last;
}

void nnc_edges_boundary(const nnc_edge *e, int n, int n_layer, int64_t *at)
{
    memset(at, 0, ((size_t)n_layer + 1) * sizeof *at);
    for (int t = 0; t < n; t++) {
        const int last = last_user(&e[t]);
        for (int i = e[t].maker + 1; i <= last; i++)
            at[i] = nnc_add_sat(at[i], e[t].bytes);
    }
}

/* True when an earlier user of e is on the same device as user k. */
static bool has_it(const nnc_edge *e, int k, int n_layer, const int *device)
{
    for (int i = 0; i < k; i++)
        if (e->user[i] < n_layer && device[e->user[i]] == device[e->user[k]])
            return true;
    return false;
}

void nnc_edges_traffic(
    const nnc_edge *e, int n, int n_layer, const int *device, int n_device, int64_t *traffic)
{
    memset(traffic, 0, (size_t)n_device * (size_t)n_device * sizeof *traffic);
    for (int t = 0; t < n; t++) {
        if (e[t].maker < 0)
            continue;
        const int from = device[e[t].maker];
        for (int k = 0; k < e[t].n_user; k++) {
            if (e[t].user[k] >= n_layer)
                continue;
            const int to = device[e[t].user[k]];
            int64_t *sum = &traffic[(size_t)from * (size_t)n_device + (size_t)to];
            if (to != from && !has_it(&e[t], k, n_layer, device))
                *sum = nnc_add_sat(*sum, e[t].bytes);
        }
    }
}

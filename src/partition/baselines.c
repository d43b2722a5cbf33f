/* partition/baselines.c -- ways to balance a sequence that other programs use, for comparison. */
#include "partition/partition.h"

/* ---- block partition ----------------------------------------------------------------------------------- */

/* Blocks of a sequence: block b is v[at[b]] .. v[at[b+1]-1]. */
typedef struct blocks {
    const int64_t *v;
    int64_t least; /* subtracted from each element */
    int n, *at;
    int64_t *size;
} blocks;

static void measure(blocks *p, int b)
{
    p->size[b] = 0;
    for (int i = p->at[b]; i < p->at[b + 1]; i++)
        p->size[b] += p->v[i] - p->least;
}

static int largest(const blocks *p)
{
    int at = 0;
    for (int b = 1; b < p->n; b++)
        if (p->size[b] >= p->size[at])
            at = b;
    return at;
}

/* The smallest block, of equals the nearest to `from`. */
static int smallest(const blocks *p, int from)
{
    int at = 0;
    for (int b = 1; b < p->n; b++) {
        const int near = b > from ? b - from : from - b, old = at > from ? at - from : from - at;
        if (p->size[b] < p->size[at] || (p->size[b] == p->size[at] && near < old))
            at = b;
    }
    return at;
}

/* Moves an element to small block q from its neighbour on the side of large block b; returns the neighbour. */
static int grow(blocks *p, int q, int b)
{
    const int from = b < q ? q - 1 : q + 1;
    p->at[b < q ? q : q + 1] += b < q ? -1 : 1;
    measure(p, q);
    measure(p, from);
    return from;
}

nnc_status nnc_cut_block_partition(
    const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink)
{
    NNC_FREED int64_t *size = nnc_calloc((size_t)n_stage + 1, sizeof *size);
    NNC_NEED(size, sink);
    int64_t most = weight[0], least = weight[0];
    for (int i = 1; i < n; i++) {
        most = nnc_max64(most, weight[i]);
        least = nnc_min64(least, weight[i]);
    }
    blocks p = {.v = weight, .least = least, .n = n_stage, .at = cut, .size = size};
    for (int b = 0; b <= n_stage; b++)
        cut[b] = b < n_stage ? n / n_stage * b : n;
    for (int b = 0; b < n_stage; b++)
        measure(&p, b);
    for (;;) { /* the largest block loses an element in each turn */
        const int b = largest(&p);
        const int64_t size_b = size[b];
        for (int from = -1; from != b;) {
            const int q = smallest(&p, b);
            if (size_b <= size[q] + (most - least))
                return NNC_OK;
            from = grow(&p, q, b);
        }
    }
}

/* ---- max - min ------------------------------------------------------------------------------------------- */

typedef struct spread {
    int64_t max, min;
    int from;
} spread;

nnc_status nnc_cut_max_min(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const size_t row = (size_t)n + 1;
    int64_t *sum = ARENA_NEW(&a, int64_t, row);
    spread *best = ARENA_NEW(&a, spread, row * ((size_t)n_stage + 1));
    NNC_NEED(sum && best, sink);
    for (int i = 0; i < n; i++)
        sum[i + 1] = sum[i] + weight[i];
    best[0] = (spread){.max = 0, .min = INT64_MAX, .from = 0};
    for (int s = 1; s <= n_stage; s++)
        for (int j = s; j <= n; j++) {
            spread *to = &best[(size_t)s * row + (size_t)j];
            *to = (spread){INT64_MAX, 0, -1};
            for (int i = s - 1; i < (s == 1 ? 1 : j); i++) {
                const spread *p = &best[(size_t)(s - 1) * row + (size_t)i];
                const int64_t x = sum[j] - sum[i], max = nnc_max64(p->max, x),
                              min = nnc_min64(p->min, x);
                if (max - min <= to->max - to->min)
                    *to = (spread){max, min, i};
            }
        }
    cut[n_stage] = n;
    for (int s = n_stage; s > 0; s--)
        cut[s - 1] = best[(size_t)s * row + (size_t)cut[s]].from;
    return NNC_OK;
}

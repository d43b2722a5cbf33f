/* cluster/rings.c -- edge-disjoint rings over NVLinks. In a mesh, the bandwidth of a collective is the number of rings times that of a
 * link. That number is not monotone in the devices: a DGX-1's hybrid cube mesh has 1, 2, 4, 2, 2, 4, 6 for its first 2..8 GPUs.
 *
 * Undirected Hamiltonian cycles that share no link are searched for, depth first; each is a ring in both directions, since links are full
 * duplex. Terminates: the search is cut off after a fixed number of steps, and keeps the most cycles found. */
#include "cluster/internal.h"
#include <string.h>

enum { STEPS = 200000 };

typedef struct search {
    const nnc_fabric *f;
    const int *device;
    int n;
    bool relays;
    uint8_t left[CL_MAX_MESH][CL_MAX_MESH]; /* unused links */
    ring now[CL_MAX_RINGS], best[CL_MAX_RINGS];
    int n_now, n_best, bound;
    int steps;
} search;

static void take_links(search *s, int a, int b, int by)
{
    s->left[a][b] = (uint8_t)(s->left[a][b] - by);
    s->left[b][a] = s->left[a][b];
}

/* Takes (by 1) or returns (by -1) the links of a hop. */
static void take_hop(search *s, int a, int via, int b, int by)
{
    if (via < 0) {
        take_links(s, a, b, by);
        return;
    }
    take_links(s, a, via, by);
    take_links(s, via, b, by);
}

/* The first way from a to b that is not before `via`: direct (-1), then through others, where the two are not connected. -2: none. */
static int next_via(const search *s, int a, int b, int via)
{
    if (via <= -1 && s->left[a][b])
        return -1;
    const bool joined = s->f->pair[s->device[a] * s->f->n + s->device[b]] != 0;
    for (int w = via < 0 ? 0 : via; s->relays && !joined && w < s->n; w++)
        if (w != a && w != b && s->left[a][w] && s->left[w][b])
            return w;
    return -2;
}

static void pack(search *s);

static bool finished(const search *s)
{
    return s->n_best >= s->bound || s->steps >= STEPS;
}

/* Takes the hop that continues the current cycle from its depth-th device to b, goes on, and returns it. */
static void try_hop(search *s, int depth, unsigned seen, int b);

/* Extends the current cycle, whose first `depth` devices are fixed. */
static void extend(search *s, int depth, unsigned seen)
{
    s->steps++;
    if (depth == s->n) {
        try_hop(s, depth, seen, 0);
        return;
    }
    for (int b = 1; b < s->n && !finished(s); b++)
        if (!(seen >> b & 1))
            try_hop(s, depth, seen, b);
}

static void try_hop(search *s, int depth, unsigned seen, int b)
{
    ring *r = &s->now[s->n_now];
    const int a = r->at[depth - 1];
    for (int via = -1; (via = next_via(s, a, b, via)) != -2 && !finished(s); via++) {
        take_hop(s, a, via, b, 1);
        r->via[depth - 1] = (int8_t)via;
        if (depth == s->n) {
            s->n_now++;
            pack(s);
            s->n_now--;
        } else {
            r->at[depth] = (int8_t)b;
            extend(s, depth + 1, seen | 1u << b);
        }
        take_hop(s, a, via, b, -1);
    }
}

/* Looks for one cycle more. */
static void pack(search *s)
{
    if (s->n_now > s->n_best) {
        memcpy(s->best, s->now, sizeof s->now);
        s->n_best = s->n_now;
    }
    if (finished(s) || s->n_now == CL_MAX_RINGS / 2)
        return;
    s->now[s->n_now] = (ring){.n = s->n};
    s->now[s->n_now].at[0] = 0;
    extend(s, 1, 1);
}

static void start(search *s)
{
    int least = CL_MAX_RINGS;
    for (int a = 0; a < s->n; a++) {
        int degree = 0;
        for (int b = 0; b < s->n; b++) {
            s->left[a][b] = s->f->pair[s->device[a] * s->f->n + s->device[b]];
            degree += s->left[a][b];
        }
        least = degree < least ? degree : least;
    }
    s->bound = least / 2;
    s->n_now = s->n_best = s->steps = 0;
    if (s->bound > 0)
        pack(s);
}

/* Device numbers instead of positions; and the same cycle backwards. */
static void both_ways(const search *s, const ring *r, ring *to, ring *back)
{
    const int n = s->n;
    to->n = back->n = n;
    for (int i = 0; i < n; i++) {
        const int at = (n - 1 - i) % n; /* backwards, hop i goes from at[n - i] to at[n - 1 - i] */
        to->at[i] = (int8_t)s->device[r->at[i]];
        to->via[i] = (int8_t)(r->via[i] < 0 ? -1 : s->device[r->via[i]]);
        back->at[i] = (int8_t)s->device[r->at[(n - i) % n]];
        back->via[i] = (int8_t)(r->via[at] < 0 ? -1 : s->device[r->via[at]]);
    }
}

static int ring_of_two(const nnc_fabric *f, const int *device, ring *out)
{
    int links = f->pair[device[0] * f->n + device[1]];
    for (int i = 0; i < links; i++)
        out[i] = (ring){2, {(int8_t)device[0], (int8_t)device[1]}, {-1, -1}};
    return links;
}

int cluster_rings(const nnc_fabric *f, const int *device, int n, ring *out, bool *relayed)
{
    search s = {.f = f, .device = device, .n = n};
    *relayed = false;
    if (!f->has_nvlink || n < 2 || n > CL_MAX_MESH)
        return 0;
    for (int i = 0; i < n; i++)
        if (device[i] >= CL_MAX_MESH)
            return 0;
    if (n == 2)
        return ring_of_two(f, device, out);
    start(&s);
    if (!s.n_best && f->relay_share > 0) {
        s.relays = true;
        start(&s);
        *relayed = s.n_best > 0;
    }
    for (int i = 0; i < s.n_best; i++)
        both_ways(&s, &s.best[i], &out[2 * i], &out[2 * i + 1]);
    return 2 * s.n_best;
}

int nnc_cluster_rings(const nnc_cluster *c, const int32_t *device, int n, bool *relayed)
{
    ring rings[CL_MAX_RINGS];
    int local[CL_MAX_MESH];
    *relayed = false;
    for (int i = 0; i < n; i++) {
        if (n > CL_MAX_MESH || device[i] / c->per_node != device[0] / c->per_node)
            return 0;
        local[i] = device[i] % c->per_node;
    }
    return cluster_rings(c->fabric, local, n, rings, relayed);
}

/* partition/cut.c -- contiguous cuts by dynamic programming.
 *
 *     best(s, i) = min over j > i of  join(value(s, i, j), best(s + 1, j)),   best(n_stage, n_layer) = neutral
 *
 * where stage s runs layers i .. j-1 and join is max or +. It runs from the last stage backwards. A stage's time and bytes do not fall as j
 * grows. So the loop over j ends where they alone exceed the limit, the capacity or the best value so far. */
#include "partition/internal.h"
#include <string.h>

/* Transfers overlap with computing. */
static int64_t cut_ns(int64_t compute, int64_t in, int64_t out)
{
    return nnc_max64(compute, nnc_max64(in, out));
}

static int64_t cut_bytes(
    const nnc_cut_problem *p, int s, int64_t fixed, int64_t saved, int64_t kept)
{
    const int64_t n = p->in_flight ? p->in_flight[s] : 1;
    return nnc_add_sat(fixed, nnc_mul_sat(n, nnc_add_sat(saved, kept)));
}

static int64_t cut_transfer(const nnc_cut_problem *p, int s, int at)
{
    if (!p->boundary || !p->links || s < 1 || s >= p->n_stage)
        return 0;
    const int from = p->device ? p->device[s - 1] : s - 1, to = p->device ? p->device[s] : s;
    return nnc_links_p2p(p->links, from, to, p->boundary[at]);
}

int64_t nnc_cut_stage_ns(const nnc_cut_problem *p, int s, int i, int j)
{
    return cut_ns(sum_of(p->time, i, j), cut_transfer(p, s, i),
        s + 1 < p->n_stage ? cut_transfer(p, s + 1, j) : 0);
}

int64_t nnc_cut_stage_bytes(const nnc_cut_problem *p, int s, int i, int j)
{
    return cut_bytes(
        p, s, sum_of(p->fixed, i, j), sum_of(p->saved, i, j), p->kept ? p->kept[i] : 0);
}

/* ---- one dynamic program ------------------------------------------------------------------------------- */

typedef enum goal { G_max, G_sum, G_squares, G_bytes } goal;

typedef struct program {
    const nnc_cut_problem *p;
    goal goal;
    int64_t limit; /* of a stage's time */
    int shift; /* G_squares: of times before they are squared */
    int64_t *time, *fixed, *saved; /* sums of the layers before position i */
    int64_t *
        transfer; /* [stage][i]: over position i before the stage; one more stage than there are, of zeros */
    const int64_t *in, *out; /* of the current stage and the one after it */
    int64_t *best, *next; /* of the current stage, and of the one after it, by first layer */
    int64_t *most,
        *next_most; /* G_sum: of the cuts with the best sum, the least maximum of the stages' times */
    int32_t *choice; /* [stage][i]: end of the stage that begins at i */
} program;

static int64_t *sums(nnc_arena *a, const int64_t *v, int n)
{
    int64_t *to = ARENA_NEW(a, int64_t, n + 1);
    for (int i = 0; to && v && i < n; i++)
        to[i + 1] = nnc_add_sat(to[i], v[i]);
    return to;
}

static bool prepare_program(program *d, nnc_arena *a)
{
    const nnc_cut_problem *p = d->p;
    const int n = p->n_layer;
    d->time = sums(a, p->time, n);
    d->fixed = sums(a, p->fixed, n);
    d->saved = sums(a, p->saved, n);
    d->transfer = ARENA_NEW(a, int64_t, ((size_t)p->n_stage + 1) * ((size_t)n + 1));
    d->best = ARENA_NEW(a, int64_t, n + 1);
    d->next = ARENA_NEW(a, int64_t, n + 1);
    d->most = ARENA_NEW(a, int64_t, n + 1);
    d->next_most = ARENA_NEW(a, int64_t, n + 1);
    d->choice = ARENA_NEW(a, int32_t, (size_t)p->n_stage * ((size_t)n + 1));
    if (!d->transfer)
        return false;
    for (int s = 1; s < p->n_stage && p->boundary && p->links; s++)
        for (int i = s; i <= n - (p->n_stage - s); i++)
            d->transfer[(size_t)s * ((size_t)n + 1) + (size_t)i] = cut_transfer(p, s, i);
    return d->time && d->fixed && d->saved && d->best && d->next && d->most && d->next_most &&
           d->choice;
}

/* The value of a stage; the values are joined by max or +. */
static int64_t value(const program *d, int64_t ns, int64_t bytes)
{
    const int64_t t = ns >> d->shift;
    return d->goal == G_bytes ? bytes : d->goal == G_squares ? nnc_mul_sat(t, t) : ns;
}

/* The best end of stage s that begins at layer i. */
static void choose_end(program *d, int s, int i)
{
    const nnc_cut_problem *p = d->p;
    const bool joins_max = d->goal == G_max || d->goal == G_bytes;
    const int end = p->n_layer - (p->n_stage - 1 - s);
    int64_t best = INT64_MAX, most = INT64_MAX;
    int32_t at = -1;
    for (int j = s + 1 == p->n_stage ? end : i + 1; j <= end; j++) {
        const int64_t bytes = cut_bytes(
            p, s, d->fixed[j] - d->fixed[i], d->saved[j] - d->saved[i], p->kept ? p->kept[i] : 0);
        const int64_t compute = d->time[j] - d->time[i];
        if ((p->capacity && bytes > p->capacity[s]) || (d->goal != G_bytes && compute > d->limit) ||
            value(d, compute, bytes) >= best)
            break;
        const int64_t ns = cut_ns(compute, d->in[i], d->out[j]), rest = d->next[j];
        if (rest == INT64_MAX || (d->goal != G_bytes && ns > d->limit))
            continue;
        const int64_t v = value(d, ns, bytes);
        const int64_t all = joins_max ? nnc_max64(v, rest) : nnc_add_sat(v, rest);
        const int64_t larger = nnc_max64(ns, d->next_most[j]);
        if (all < best || (d->goal == G_sum && all == best && larger < most)) {
            best = all;
            most = larger;
            at = j;
        }
    }
    d->best[i] = best;
    d->most[i] = most;
    d->choice[(size_t)s * ((size_t)p->n_layer + 1) + (size_t)i] = at;
}

static void swap(int64_t **a, int64_t **b)
{
    int64_t *old = *a;
    *a = *b;
    *b = old;
}

/* Returns the best value, INT64_MAX for none, and its cut. */
static int64_t solve(program *d, int *cut)
{
    const nnc_cut_problem *p = d->p;
    const int n = p->n_layer, stages = p->n_stage;
    for (int i = 0; i <= n; i++)
        d->next[i] = i < n ? INT64_MAX : 0;
    memset(d->next_most, 0, ((size_t)n + 1) * sizeof *d->next_most);
    for (int s = stages - 1; s >= 0; s--) {
        d->in = d->transfer + (size_t)s * ((size_t)n + 1);
        d->out = d->in + n + 1;
        for (int i = 0; i <= n; i++)
            d->best[i] = INT64_MAX;
        for (int i = s; i <= (s ? n - (stages - s) : 0); i++)
            choose_end(d, s, i);
        swap(&d->next, &d->best);
        swap(&d->next_most, &d->most);
    }
    if (d->next[0] == INT64_MAX)
        return INT64_MAX;
    cut[0] = 0;
    for (int s = 0; s < stages; s++)
        cut[s + 1] = d->choice[(size_t)s * ((size_t)n + 1) + (size_t)cut[s]];
    return d->next[0];
}

/* ---- objectives ---------------------------------------------------------------------------------------- */

static void fill(const nnc_cut_problem *p, const int *cut, nnc_cut_result *r)
{
    *r = (nnc_cut_result){.ok = true};
    for (int s = 0; s < p->n_stage; s++) {
        const int64_t t = nnc_cut_stage_ns(p, s, cut[s], cut[s + 1]);
        r->max = nnc_max64(r->max, t);
        r->sum = nnc_add_sat(r->sum, t);
    }
}

/* So much that the squares of n_stage times up to `max` have a sum below 2^62. */
static int square_shift(int n_stage, int64_t max)
{
    int bits = 62, shift = 0;
    while (n_stage > 1 && bits > 8 && (n_stage - 1) >> (62 - bits))
        bits--;
    while (max >> shift >> (bits / 2))
        shift++;
    return shift;
}

nnc_status nnc_cut_min_max(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    program d = {.p = p, .goal = G_max, .limit = INT64_MAX};
    *r = (nnc_cut_result){0};
    if (p->n_stage < 1 || p->n_layer < p->n_stage)
        return NNC_OK;
    NNC_NEED(prepare_program(&d, &a), sink);
    const int64_t max = solve(&d, cut);
    if (max == INT64_MAX)
        return NNC_OK;
    d.goal = G_squares;
    d.limit = max;
    d.shift = square_shift(p->n_stage, max);
    solve(&d, cut);
    fill(p, cut, r);
    return NNC_OK;
}

nnc_status nnc_cut_min_memory(const nnc_cut_problem *p, int *cut, nnc_cut_result *r, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    program d = {.p = p, .goal = G_bytes, .limit = INT64_MAX};
    *r = (nnc_cut_result){0};
    if (p->n_stage < 1 || p->n_layer < p->n_stage)
        return NNC_OK;
    NNC_NEED(prepare_program(&d, &a), sink);
    if (solve(&d, cut) < INT64_MAX)
        fill(p, cut, r);
    return NNC_OK;
}

/* Finds the least sum of stage times under falling limits of the maximum. Below a cut's maximum sums are no smaller, so another cut is
 * better only with a maximum under (best - sum) / times. The first limit follows from the least sum that there could be. */
static void descend(program *d, int64_t times, int *at, int *cut, nnc_cut_result *r)
{
    const nnc_cut_problem *p = d->p;
    const int64_t least_max = d->limit,
                  lower = sum_of(p->time, 0, p->n_layer); /* no cut's stages have a smaller sum */
    int64_t best = INT64_MAX;
    d->goal = G_sum;
    for (bool first = true; d->limit >= least_max; first = false) {
        nnc_cut_result x;
        if (solve(d, at) == INT64_MAX)
            break;
        fill(p, at, &x);
        const int64_t total = nnc_add_sat(x.sum, nnc_mul_sat(times, x.max));
        if (total < best) {
            best = total;
            *r = x;
            for (int s = 0; s <= p->n_stage; s++)
                cut[s] = at[s];
        }
        if (!times)
            break;
        const int64_t under = (best - (first ? lower : x.sum) - 1) / times;
        d->limit = first ? under : nnc_min64(x.max - 1, under);
    }
}

nnc_status nnc_cut_min_latency(
    const nnc_cut_problem *p, int micro, int *cut, nnc_cut_result *r, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    program d = {.p = p, .goal = G_max, .limit = INT64_MAX};
    *r = (nnc_cut_result){0};
    if (p->n_stage < 1 || p->n_layer < p->n_stage)
        return NNC_OK;
    int *at = ARENA_NEW(&a, int, p->n_stage + 1);
    NNC_NEED(at && prepare_program(&d, &a), sink);
    const int64_t least_max = solve(&d, at);
    if (least_max == INT64_MAX)
        return NNC_OK;
    d.limit = micro > 1 ? least_max : INT64_MAX;
    descend(&d, micro > 1 ? micro - 1 : 0, at, cut, r);
    return NNC_OK;
}

nnc_status nnc_cut_balance(const int64_t *weight, int n, int n_stage, int *cut, nnc_sink *sink)
{
    const nnc_cut_problem p = {.n_layer = n, .n_stage = n_stage, .time = weight};
    nnc_cut_result r;
    return nnc_cut_min_max(&p, cut, &r, sink);
}

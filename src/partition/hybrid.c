/* partition/hybrid.c -- PipeDream's planner (Narayanan et al. 2019), stages replicated on equal devices.
 *
 *     T(i, j, m) = (inner(i, j) + allreduce(m, weights of i .. j-1)) / m          no overlap, as PipeDream's optimizer has it
 *     A(i, m)    = min over j, k of  max( T(i, j, k), p2p(boundary[j]), A(j, m-k) )       suffix i .. n_layer-1 on m units
 *
 * On one level units are devices and inner is the sum of times. On two levels units are servers and inner(i, j) is the best A of layers
 * i .. j-1 on the devices of one server. Suffixes, not PipeDream's prefixes: the number of devices after a stage decides how many
 * versions it stashes, and is known then. */
#include "partition/internal.h"
#include <string.h>

typedef struct choice {
    int64_t ns;
    int end, units; /* the first stage; end 0: there is none */
} choice;

typedef struct planner {
    const nnc_hybrid_problem *p;
    int64_t *time, *weight, *bytes; /* sums of the layers before a position */
    int *id; /* 0, 1, ...: units of a level */
    int64_t *inner; /* two levels: [i * (n+1) + j] of a server; INT64_MAX: none */
    int64_t *
        stage; /* [j * (count + 1) + k]: T of the current i, which does not depend on m; -1: not computed yet */
    int64_t *send; /* p2p(boundary[j]) of the current level */
    choice *best; /* [i * (count + 1) + m] of the current range */
} planner;

static int64_t span(const int64_t *sum, int i, int j)
{
    return sum[j] - sum[i];
}

/* T(i, j, k) on a level. */
static int64_t stage_ns(const planner *s, int level, int i, int j, int k)
{
    const int64_t one =
        level ? s->inner[(size_t)i * (size_t)(s->p->n_layer + 1) + (size_t)j] : span(s->time, i, j);
    const int64_t sync = nnc_links_allreduce(&s->p->links[level], s->id, k, span(s->weight, i, j));
    return one == INT64_MAX ? one : nnc_ceildiv(nnc_add_sat(one, sync), k);
}

static int64_t known_stage_ns(const planner *s, int level, int i, int j, int k)
{
    int64_t *t = &s->stage[(size_t)j * (size_t)(s->p->count[level] + 1) + (size_t)k];
    if (*t < 0)
        *t = stage_ns(s, level, i, j, k);
    return *t;
}

static bool fits(const planner *s, int i, int j, int k, int units)
{
    const nnc_hybrid_problem *p = s->p;
    return p->n_level > 1 || p->capacity <= 0 ||
           nnc_mul_sat(span(s->bytes, i, j), nnc_ceildiv(units, k)) <= p->capacity;
}

/* Best plan for layers i .. end-1 on exactly m units of a level; all shorter suffixes are known. */
static choice solve_one(const planner *s, int level, int i, int end, int m)
{
    const int width = s->p->count[level] + 1;
    choice best = {INT64_MAX, 0, 0};
    for (int k = m; k >= 1; k--)
        for (int j = k == m ? end : i + 1; j <= (k == m ? end : end - 1); j++) {
            const int64_t t = known_stage_ns(s, level, i, j, k);
            if (t >= best.ns && !level) /* longer stages take longer */
                break;
            if (!fits(s, i, j, k, m))
                break;
            const int64_t rest =
                j < end ? s->best[(size_t)j * (size_t)width + (size_t)(m - k)].ns : 0;
            const int64_t send = j < end ? s->send[j] : 0;
            const int64_t all = nnc_max64(t, nnc_max64(rest, send));
            if (all < best.ns)
                best = (choice){all, j, k};
        }
    return best;
}

static void solve_suffixes(planner *s, int level, int first, int end)
{
    const int width = s->p->count[level] + 1;
    for (int j = first; j < end; j++)
        s->send[j] = nnc_links_p2p(&s->p->links[level], 0, 1, s->p->boundary[j]);
    for (int i = end - 1; i >= first; i--) {
        memset(&s->stage[(size_t)(i + 1) * (size_t)width], 0xff,
            (size_t)(end - i) * (size_t)width * sizeof *s->stage);
        for (int m = 1; m < width; m++)
            s->best[(size_t)i * (size_t)width + (size_t)m] = solve_one(s, level, i, end, m);
    }
}

/* Fewer units where that is faster. */
static int best_units(const planner *s, int level, int i)
{
    const int n = s->p->count[level];
    const choice *of = &s->best[(size_t)i * (size_t)(n + 1)];
    int at = n;
    for (int m = n - 1; m >= 1; m--)
        if (of[m].ns < of[at].ns)
            at = m;
    return at;
}

/* inner[] of a server: all ranges of layers, end by end. */
static void solve_servers(planner *s)
{
    const int n = s->p->n_layer, width = s->p->count[0] + 1;
    for (int end = 1; end <= n; end++) {
        solve_suffixes(s, 0, 0, end);
        for (int i = 0; i < end; i++)
            s->inner[(size_t)i * (size_t)(n + 1) + (size_t)end] =
                s->best[(size_t)i * (size_t)width + (size_t)best_units(s, 0, i)].ns;
    }
}

static int64_t *sums(nnc_arena *a, const int64_t *v, const int64_t *more, int n)
{
    int64_t *to = ARENA_NEW(a, int64_t, n + 1);
    for (int i = 0; to && i < n; i++)
        to[i + 1] = nnc_add_sat(to[i], nnc_add_sat(v ? v[i] : 0, more ? more[i] : 0));
    return to;
}

static bool prepare(planner *s, nnc_arena *a)
{
    const nnc_hybrid_problem *p = s->p;
    const size_t n = (size_t)p->n_layer;
    int most = p->count[0];
    if (p->n_level > 1 && p->count[1] > most)
        most = p->count[1];
    s->time = sums(a, p->time, NULL, p->n_layer);
    s->weight = sums(a, p->weight, NULL, p->n_layer);
    s->bytes = sums(a, p->fixed, p->saved, p->n_layer);
    s->id = ARENA_NEW(a, int, most);
    s->best = ARENA_NEW(a, choice, (n + 1) * ((size_t)most + 1));
    s->stage = ARENA_NEW(a, int64_t, (n + 1) * ((size_t)most + 1));
    s->send = ARENA_NEW(a, int64_t, n + 1);
    s->inner = p->n_level > 1 ? ARENA_NEW(a, int64_t, (n + 1) * (n + 1)) : NULL;
    for (int i = 0; s->id && i < most; i++)
        s->id[i] = i;
    return s->time && s->weight && s->bytes && s->id && s->best && s->stage && s->send &&
           (p->n_level < 2 || s->inner);
}

nnc_status nnc_hybrid_solve(
    const nnc_hybrid_problem *p, nnc_arena *a, nnc_hybrid_plan *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) mine = {0};
    planner s = {.p = p};
    const int top = p->n_level - 1, n = p->n_layer, each = top ? p->count[0] : 1;
    *out = (nnc_hybrid_plan){0};
    NNC_NEED(prepare(&s, &mine), sink);
    out->stage = ARENA_NEW(a, nnc_hybrid_stage, n + 1);
    NNC_NEED(out->stage, sink);
    if (top)
        solve_servers(&s);
    solve_suffixes(&s, top, 0, n);
    int m = best_units(&s, top, 0);
    const choice *at = &s.best[m];
    out->ok = n > 0 && at->ns < INT64_MAX;
    out->ns = at->ns;
    for (int i = 0; out->ok && i < n;) {
        at = &s.best[(size_t)i * (size_t)(p->count[top] + 1) + (size_t)m];
        out->stage[out->n_stage++] = (nnc_hybrid_stage){i, at->end, at->units * each};
        i = at->end;
        m -= at->units;
    }
    /* every device has all layers: within servers, then between them */
    const int64_t sync = nnc_links_allreduce(&p->links[0], s.id, p->count[0], s.weight[n]);
    int64_t dp = nnc_ceildiv(nnc_add_sat(s.time[n], sync), p->count[0]);
    if (top)
        dp = nnc_ceildiv(
            nnc_add_sat(dp, nnc_links_allreduce(&p->links[1], s.id, p->count[1], s.weight[n])),
            p->count[1]);
    out->data_parallel_ns = dp;
    return NNC_OK;
}

/* partition/search.c -- the search over combinations of data, tensor and pipeline parallelism.
 *
 * All combinations are listed with a lower bound of their time, sorted by it, and evaluated in this order. The search ends where the bound
 * is above the times of as many others as are asked for. So the best are exact, and few are evaluated. The bound of an iteration of m
 * micro-batches of p stages, S the sum of all layers' times, holds for every cut:
 *
 *     stage s waits for the passes of the stages before it, then computes m times:  T_1 + .. + T_(s-1) + m T_s <= X
 *     with T_1 + .. + T_p = S it follows that  X >= S / (1 - (1 - 1/m)^p)
 *
 * for schedules without chunks in which stages before s have no other work for the first and last micro-batch; otherwise X >= m S / p.
 * Gradients of at least 1/p of all bytes are reduced on some device after the first micro-batch has passed forwards. */
#include "partition/internal.h"
#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    int64_t bound;
    int index;
    nnc_combination c;
} candidate;

/* Sums over all layers of one entry of the costs. */
typedef struct totals {
    int64_t forward, backward, weight, optimizer, gradients, weights, states;
} totals;

typedef struct search {
    const nnc_search_problem *p;
    nnc_search_found *out;
    nnc_arena *a;
    nnc_sink *sink;
    candidate *list;
    size_t cap;
    int n;
    const nnc_search_costs *costs; /* of the entry whose combinations are listed */
    totals sum;
    nnc_combination known; /* whose least_reduction is known_ns; -1: none */
    int64_t known_ns;
} search;

static totals sum_up(const nnc_search_costs *of, int n)
{
    return (totals){
        .forward = nnc_add_sat(sum_of(of->forward, 0, n), sum_of(of->forward_comm, 0, n)),
        .backward = nnc_add_sat(sum_of(of->backward, 0, n), sum_of(of->backward_comm, 0, n)),
        .weight = sum_of(of->weight, 0, n),
        .optimizer = sum_of(of->optimizer, 0, n),
        .gradients = sum_of(of->gradients, 0, n),
        .weights = sum_of(of->weights, 0, n),
        .states = sum_of(of->states, 0, n)};
}

/* ---- bounds --------------------------------------------------------------------------------------------- */

/* Slightly less, so that rounding cannot raise a bound above the time. */
static int64_t rounded_down(double x)
{
    x *= 1 - 1e-9;
    return x < 0x1p62 ? (int64_t)x : INT64_C(1) << 62;
}

/* Lower bound of reducing 1/p of all gradient bytes among the replicas of the stage with the fastest links. */
static int64_t least_reduction(search *s, const nnc_combination *c)
{
    const nnc_search_links *l = &s->p->links;
    const int64_t bytes = s->sum.gradients / c->pipeline;
    const nnc_combination *k = &s->known;
    if (bytes <= 0)
        return 0;
    if (s->known_ns >= 0 && k->data == c->data && k->tensor == c->tensor &&
        k->pipeline == c->pipeline && k->data_first == c->data_first && !k->zero == !c->zero)
        return s->known_ns;
    s->known = *c;
    s->known_ns = INT64_MAX;
    for (int g = 0; g < (c->data_first ? c->pipeline : 1); g++) {
        const int first = nnc_combination_device(c, 0, g, 0),
                  stride = nnc_combination_device(c, 1, g, 0) - first;
        s->known_ns = nnc_min64(s->known_ns,
            l->collective_ns(l->ctx, c->zero ? SEARCH_reduce_scatter : SEARCH_allreduce, first,
                stride, c->data, c->tensor, bytes));
    }
    return s->known_ns;
}

static int64_t bound_ns(search *s, const nnc_combination *c)
{
    const totals *t = &s->sum;
    const bool split = c->schedule == PIPE_zb_h1 || c->schedule == PIPE_zb_h2,
               forward = s->p->forward;
    const double m = c->micro, p = c->pipeline, f = (double)t->forward,
                 back = forward ? 0 : (double)t->backward + (c->recompute ? f : 0),
                 all = f + back + (forward ? 0 : (double)t->weight);
    double ns = fmax(m * all / p, f + back);
    if (c->chunks == 1 && !split)
        ns = fmax(ns, m > 1 ? all / (1 - pow(1 - 1 / m, p)) : all);
    if (forward)
        return rounded_down(ns);
    if (c->data > 1)
        ns = fmax(ns, f + (double)least_reduction(s, c));
    if (c->pipeline == 1) /* otherwise a stage's update may fill the bubble after its last pass */
        ns += (double)t->optimizer / (c->zero ? c->data : 1);
    return rounded_down(ns);
}

/* Does the least that the fullest device must hold fit? */
static bool may_fit(const search *s, const nnc_combination *c)
{
    const totals *t = &s->sum;
    const double d = c->data, bytes = (double)t->weights / (c->zero >= 3 ? d : 1) +
                                      (double)t->gradients / (c->zero >= 2 ? d : 1) +
                                      (double)t->states / (c->zero >= 1 ? d : 1);
    return bytes / c->pipeline * (1 - 1e-9) <= (double)s->p->capacity;
}

/* ---- the list ------------------------------------------------------------------------------------------- */

static nnc_status add_combination(search *s, nnc_combination c)
{
    const char *why;
    if (s->p->takes && !s->p->takes(s->p->takes_ctx, &c))
        return NNC_OK;
    s->out->tried++;
    if (c.pipeline * c.chunks > s->p->n_layer) {
        s->out->pruned[PRUNE_layers]++;
        return NNC_OK;
    }
    if (!nnc_pipeline_possible(c.schedule, c.pipeline, c.micro, c.chunks, &why)) {
        s->out->pruned[PRUNE_schedule]++;
        return NNC_OK;
    }
    if (!may_fit(s, &c)) {
        s->out->pruned[PRUNE_memory]++;
        return NNC_OK;
    }
    NNC_NEED(ARENA_ROOM(s->a, s->list, s->cap, s->n + 1), s->sink);
    s->list[s->n] = (candidate){bound_ns(s, &c), s->n, c};
    s->n++;
    return NNC_OK;
}

/* Placements, ZeRO, recomputation of one schedule. ZeRO-2 and 3 reduce gradients of each micro-batch: without pipelines only. */
static nnc_status add_variants(search *s, nnc_combination c)
{
    const nnc_search_problem *p = s->p;
    const bool orders = c.data > 1 && c.pipeline > 1, again_too = p->segment && !p->forward;
    const int zeros = p->forward || c.data == 1 ? 0 : c.pipeline > 1 ? 1 : 3;
    for (int order = 0; order <= orders; order++)
        for (int zero = 0; zero <= zeros; zero++)
            for (int again = 0; again <= again_too; again++) {
                c.data_first = order;
                c.zero = (uint8_t)zero;
                c.recompute = again;
                NNC_TRY(add_combination(s, c));
            }
    return NNC_OK;
}

static nnc_status add_schedules(search *s, nnc_combination c)
{
    const nnc_search_problem *p = s->p;
    const int chunks = p->max_chunks ? p->max_chunks : 4;
    c.chunks = 1;
    if (c.pipeline == 1) {
        c.schedule = p->forward ? PIPE_forward : PIPE_1f1b;
        return add_variants(s, c);
    }
    for (int k = 0; k < PIPE__COUNT; k++) {
        c.schedule = (uint8_t)k;
        if ((k == PIPE_forward) != p->forward)
            continue;
        for (c.chunks = k == PIPE_interleaved ? 2 : 1;
             c.chunks <= (k == PIPE_interleaved ? chunks : 1);
             c.chunks = p->even ? c.chunks + 1 : 2 * c.chunks)
            if (!p->even || p->n_layer % (c.pipeline * c.chunks) == 0)
                NNC_TRY(add_variants(s, c));
    }
    return NNC_OK;
}

static nnc_status add_entry(search *s)
{
    const nnc_search_problem *p = s->p;
    const int t = s->costs->tensor, most = p->devices / t;
    for (int pipe = 1; pipe <= most; pipe++) {
        if (pipe > p->n_layer) {
            s->out->tried += most - pipe + 1;
            s->out->pruned[PRUNE_layers] += most - pipe + 1;
            break;
        }
        for (int d = 1; d <= most / pipe; d++) {
            const int64_t step = nnc_mul_sat(d, s->costs->size);
            if (p->samples % step) {
                s->out->tried++;
                s->out->pruned[PRUNE_samples]++;
                continue;
            }
            NNC_TRY(add_schedules(s, (nnc_combination){.data = d,
                                         .tensor = t,
                                         .pipeline = pipe,
                                         .size = s->costs->size,
                                         .micro = (int)nnc_min64(p->samples / step, INT32_MAX)}));
        }
    }
    return NNC_OK;
}

static nnc_status list_all(search *s)
{
    for (int i = 0; i < s->p->n_costs; i++) {
        s->costs = &s->p->costs[i];
        s->sum = sum_up(s->costs, s->p->n_layer);
        s->known_ns = -1;
        NNC_TRY(add_entry(s));
    }
    return NNC_OK;
}

/* ---- the best ------------------------------------------------------------------------------------------- */

/* The best combination of each triple of degrees that was evaluated, best first. */
typedef struct ranked {
    int64_t ns, clock_ns;
    int index;
    nnc_combination c;
} ranked;

static bool before(int64_t a, int ia, int64_t b, int ib)
{
    return a < b || (a == b && ia < ib);
}

static bool same_degrees(const nnc_combination *a, const nnc_combination *b)
{
    return a->data == b->data && a->tensor == b->tensor && a->pipeline == b->pipeline;
}

/* Puts x in its place; n entries, of which one may have its degrees. Returns how many there are then. */
static int rank(ranked *r, int n, ranked x)
{
    int k = 0;
    while (k < n && !same_degrees(&r[k].c, &x.c))
        k++;
    if (k < n && !before(x.ns, x.index, r[k].ns, r[k].index))
        return n;
    n += k == n;
    for (; k > 0 && before(x.ns, x.index, r[k - 1].ns, r[k - 1].index); k--)
        r[k] = r[k - 1];
    r[k] = x;
    return n;
}

NNC_ORDER(compare, candidate, before(a->bound, a->index, b->bound, b->index) ? -1 : 1)

/* Can a combination with this bound still be among the best? */
static bool worth(const ranked *r, int n, int keep, const candidate *x, int64_t bound)
{
    if (n >= keep && !before(bound, x->index, r[keep - 1].ns, r[keep - 1].index))
        return false;
    for (int k = 0; k < n && k < keep; k++)
        if (same_degrees(&r[k].c, &x->c))
            return before(bound, x->index, r[k].ns, r[k].index);
    return true;
}

static nnc_status run_clock(const search *s, const nnc_combination *c, int64_t *ns)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_search_result r;
    NNC_TRY(nnc_search_evaluate(s->p, c, &a, &r, s->sink));
    return s->p->clock(s->p->clock_ctx, &r, ns);
}

static nnc_status find_best(search *s, int keep, ranked *r, int *n)
{
    search_cuts cuts = {.slot = ARENA_NEW(s->a, search_cut, SEARCH_CUTS), .a = s->a};
    NNC_NEED(cuts.slot, s->sink);
    if (s->n)
        qsort(s->list, (size_t)s->n, sizeof *s->list, compare);
    for (int i = 0; i < s->n; i++) {
        const candidate *x = &s->list[i];
        int64_t ns, clock_ns = 0;
        nnc_prune pruned;
        if (!worth(r, *n, keep, x, x->bound)) {
            s->out->pruned[PRUNE_slower]++;
            continue;
        }
        NNC_TRY(search_time(s->p, &x->c, &cuts, &ns, &pruned, s->sink));
        s->out->pruned[pruned] += pruned != PRUNE_none;
        s->out->evaluated += pruned == PRUNE_none;
        if (pruned || !worth(r, *n, keep, x, ns))
            continue;
        if (s->p->clock)
            NNC_TRY(run_clock(s, &x->c, &clock_ns));
        *n = rank(r, *n, (ranked){clock_ns ? clock_ns : ns, clock_ns, x->index, x->c});
    }
    return NNC_OK;
}

nnc_status nnc_search(
    const nnc_search_problem *p, int keep, nnc_arena *a, nnc_search_found *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) mine = {0};
    search s = {.p = p, .out = out, .a = &mine, .sink = sink};
    int n = 0;
    *out = (nnc_search_found){0};
    NNC_TRY(list_all(&s));
    ranked *r = ARENA_NEW(&mine, ranked, s.n + 1);
    NNC_NEED(r, sink);
    NNC_TRY(find_best(&s, keep, r, &n));
    out->n = n < keep ? n : keep;
    out->best = ARENA_NEW(a, nnc_search_result, out->n + 1);
    NNC_NEED(out->best, sink);
    for (int k = 0; k < out->n; k++) {
        NNC_TRY(nnc_search_evaluate(p, &r[k].c, a, &out->best[k], sink));
        out->best[k].clock_ns = r[k].clock_ns;
    }
    return NNC_OK;
}

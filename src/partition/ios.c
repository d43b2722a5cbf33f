/* partition/ios.c -- the dynamic program of IOS (Ding et al., MLSys 2021) over sets of finished ops:
 *
 *     best(finished + stage) = min over the sets that precede it of  best(finished) + time(stage)
 *
 * A stage is a set of ops whose operands are finished or in it. Sets are 64-bit masks, taken by their number of ops, so that each is
 * complete before it is extended. */
#include "partition/partition.h"

typedef struct state {
    uint64_t set, stage; /* finished ops; those of the last stage */
    int64_t best;
    int32_t from; /* state before the last stage */
    int32_t next; /* state with as many ops, -1: none */
} state;

typedef struct search {
    const nnc_ios_problem *p;
    nnc_arena *a;
    uint64_t *need, *near; /* by op: operands; operands and users */
    state *state;
    size_t n, cap;
    int32_t *slot; /* hash table of states, -1: empty */
    size_t n_slot; /* power of two */
    int32_t first[65], last[65]; /* states by number of ops */
    int64_t steps;
    bool oom;
} search;

/* Components of the ops in `set`: their number, and the stage's time. False: more or larger ones than allowed. */
static bool stage_ns(const search *s, uint64_t set, int64_t *ns)
{
    const nnc_ios_problem *p = s->p;
    int64_t longest = 0, work = 0;
    int groups = 0;
    for (uint64_t left = set; left; groups++) {
        uint64_t group = left & -left, old = 0;
        while (group != old) {
            const uint64_t fresh = group & ~old;
            old = group;
            for (uint64_t f = fresh; f; f &= f - 1)
                group |= s->near[__builtin_ctzll(f)] & set;
        }
        int64_t t = 0;
        for (uint64_t f = group; f; f &= f - 1) {
            const int i = __builtin_ctzll(f);
            t = nnc_add_sat(t, p->time[i]);
            work = nnc_add_sat(work, nnc_mul_sat(p->time[i], p->share ? p->share[i] : 0));
        }
        if (p->group_ops && __builtin_popcountll(group) > p->group_ops)
            return false;
        longest = nnc_max64(longest, t);
        left &= ~group;
    }
    *ns = nnc_add_sat(p->sync_ns, nnc_max64(longest, nnc_ceildiv(work, 1000)));
    return groups <= p->streams;
}

static size_t find_slot(const search *s, uint64_t set)
{
    size_t at = (size_t)nnc_hash64(&set, sizeof set, 0) & (s->n_slot - 1);
    while (s->slot[at] >= 0 && s->state[s->slot[at]].set != set)
        at = (at + 1) & (s->n_slot - 1);
    return at;
}

static bool grow_table(search *s)
{
    const size_t n = s->n_slot ? 2 * s->n_slot : 256;
    int32_t *slot = ARENA_NEW(s->a, int32_t, n);
    if (!slot)
        return false;
    for (size_t i = 0; i < n; i++)
        slot[i] = -1;
    s->slot = slot;
    s->n_slot = n;
    for (size_t i = 0; i < s->n; i++)
        s->slot[find_slot(s, s->state[i].set)] = (int32_t)i;
    return true;
}

/* The set is reached from state `from` by `stage` at time t. */
static void reach(search *s, uint64_t set, uint64_t stage, int32_t from, int64_t t)
{
    if ((s->n + 1) * 2 > s->n_slot && !grow_table(s)) {
        s->oom = true;
        return;
    }
    const size_t at = find_slot(s, set);
    if (s->slot[at] >= 0) {
        state *x = &s->state[s->slot[at]];
        if (t < x->best) {
            x->best = t;
            x->stage = stage;
            x->from = from;
        }
        return;
    }
    if (!ARENA_ROOM(s->a, s->state, s->cap, s->n + 1)) {
        s->oom = true;
        return;
    }
    const int32_t k = (int32_t)s->n++;
    const int ops = __builtin_popcountll(set);
    s->state[k] = (state){set, stage, t, from, -1};
    s->slot[at] = k;
    if (s->first[ops] < 0)
        s->first[ops] = k;
    else
        s->state[s->last[ops]].next = k;
    s->last[ops] = k;
}

/* All stages after state `from` that contain `stage` and otherwise only ops from i on. */
static void extend(search *s, int32_t from, uint64_t stage, int i)
{
    const uint64_t finished = s->state[from].set;
    for (; i < s->p->n_op; i++) {
        const uint64_t op = 1ull << i;
        if (finished & op || s->need[i] & ~(finished | stage))
            continue;
        if (++s->steps > s->p->max_steps || s->oom)
            return;
        int64_t ns;
        if (stage_ns(s, stage | op, &ns))
            reach(s, finished | stage | op, stage | op, from, nnc_add_sat(s->state[from].best, ns));
        extend(s, from, stage | op, i + 1);
    }
}

static bool prepare_search(search *s)
{
    const nnc_ios_problem *p = s->p;
    s->need = ARENA_NEW(s->a, uint64_t, p->n_op + 1);
    s->near = ARENA_NEW(s->a, uint64_t, p->n_op + 1);
    if (!s->need || !s->near)
        return false;
    for (int i = 0; i < p->n_op; i++)
        for (int k = p->start[i]; k < p->start[i + 1]; k++) {
            s->need[i] |= 1ull << p->need[k];
            s->near[i] |= 1ull << p->need[k];
            s->near[p->need[k]] |= 1ull << i;
        }
    for (int i = 0; i <= 64; i++)
        s->first[i] = s->last[i] = -1;
    reach(s, 0, 0, -1, 0);
    return !s->oom;
}

nnc_status nnc_ios_solve(
    const nnc_ios_problem *problem, int *stage, int64_t *ns, int64_t *total, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_ios_problem p = *problem;
    p.max_steps = p.max_steps ? p.max_steps : 1 << 24;
    search s = {.p = &p, .a = &a};
    if (p.n_op > 64)
        return nnc_fail0(sink, NNC_E_FIT, "IOS: %d ops; at most 64 in one block", p.n_op);
    NNC_NEED(prepare_search(&s), sink);
    for (int ops = 0; ops < p.n_op; ops++)
        for (int32_t k = s.first[ops]; k >= 0 && s.steps <= p.max_steps; k = s.state[k].next)
            extend(&s, k, 0, 0);
    NNC_NEED(!s.oom, sink);
    if (s.steps > p.max_steps)
        return nnc_fail0(sink, NNC_E_FIT,
            "IOS: more than %lld stages to look at; a list schedule, or fewer ops in a component, "
            "is possible",
            (long long)p.max_steps);
    int32_t at = s.first[p.n_op];
    int n = 0;
    for (int32_t k = at; k > 0; k = s.state[k].from)
        n++;
    *total = s.state[at].best;
    for (; at > 0; at = s.state[at].from, n--) {
        if (ns)
            ns[n - 1] = s.state[at].best - s.state[s.state[at].from].best;
        for (uint64_t f = s.state[at].stage; f; f &= f - 1)
            stage[__builtin_ctzll(f)] = n - 1;
    }
    return NNC_OK;
}

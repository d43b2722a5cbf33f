/* partition/ios_segments.c -- IOS for graphs of any size. Where all values that cross a position of the order have the same readers, ops
 * before it cannot run beside ops after it. Each segment between two such positions, as a module of Inception, is solved by itself (ios.c),
 * exactly. One that is too large or too wide is solved with components of few ops, and if that is still too much in halves. */
#include "partition/partition.h"

/* More takes seconds of a compilation. */
enum { SEGMENT_STEPS = 1 << 18, FEW_OPS = 3, MOST_OPS = 64 };

typedef struct segments {
    const nnc_ios_problem *p;
    nnc_arena *a;
    int *last; /* by op: its last user, or itself */
    int *start, *need; /* of a segment */
    int *stage, n_stage;
    int64_t *ns, *own; /* by stage; of a segment */
    int last_from; /* first op of the segment before; -1: none */
    bool *mark;
    int64_t total;
    bool exact;
} segments;

/* May ops [from, at), those before being finished, be finished before the others begin? Yes where each op that reads any op before reads
 * all results of the segment, and none of these is an output. */
static bool is_cut(const segments *s, int from, int at)
{
    const nnc_ios_problem *p = s->p;
    int crosses = 0;
    for (int i = from; i < at; i++)
        crosses += s->last[i] >= at || s->last[i] == i;
    for (int j = at; j < p->n_op; j++) {
        int reads = 0;
        bool inner = false;
        for (int k = p->start[j]; k < p->start[j + 1]; k++) {
            bool again = false;
            for (int e = p->start[j]; e < k; e++)
                again = again || p->need[e] == p->need[k];
            inner = inner || p->need[k] >= at;
            reads += p->need[k] >= from && p->need[k] < at && !again;
        }
        if (reads != crosses && !(inner && !reads))
            return false;
    }
    return true;
}

/* Ops [from, to) as a problem of their own: what they need of others is finished. */
static nnc_status solve(segments *s, int from, int to, int group_ops, int64_t *total)
{
    nnc_ios_problem x = *s->p;
    int n = 0;
    for (int i = from; i < to; i++) {
        s->start[i - from] = n;
        for (int k = s->p->start[i]; k < s->p->start[i + 1]; k++)
            if (s->p->need[k] >= from)
                s->need[n++] = s->p->need[k] - from;
    }
    s->start[to - from] = n;
    x.n_op = to - from;
    x.time += from;
    x.share = x.share ? x.share + from : NULL;
    x.start = s->start;
    x.need = s->need;
    x.group_ops = group_ops;
    x.max_steps = s->p->max_steps ? s->p->max_steps : SEGMENT_STEPS;
    return nnc_ios_solve(&x, s->stage + from, s->own, total, NULL);
}

/* Are the ops of [from, to) in stage k connected? */
static bool is_one(const segments *s, int from, int to, int k)
{
    const nnc_ios_problem *p = s->p;
    int first = from;
    while (first < to && s->stage[first] != k)
        first++;
    for (int i = from; i < to; i++)
        s->mark[i] = i == first;
    for (bool more = true; more;) {
        more = false;
        for (int i = from; i < to; i++)
            for (int e = p->start[i]; e < p->start[i + 1] && s->stage[i] == k; e++) {
                const int of = p->need[e];
                if (of < from || s->stage[of] != k || s->mark[of] == s->mark[i])
                    continue;
                s->mark[of] = s->mark[i] = more = true;
            }
    }
    for (int i = from; i < to; i++)
        if (s->stage[i] == k && !s->mark[i])
            return false;
    return true;
}

/* Two stages on one stream, one after the other at a cut, are one, without a wait between them. */
static bool is_continued(const segments *s, int from, int to)
{
    bool reads = false;
    for (int i = from; i < to && s->last_from >= 0; i++)
        for (int e = s->p->start[i]; e < s->p->start[i + 1] && !s->stage[i]; e++) {
            const int of = s->p->need[e];
            reads = reads || (of >= s->last_from && of < from && s->stage[of] == s->n_stage - 1);
        }
    return reads && !s->p->group_ops && is_one(s, s->last_from, from, s->n_stage - 1) &&
           is_one(s, from, to, 0);
}

static nnc_status segment(segments *s, int from, int to, nnc_sink *sink)
{
    nnc_status st = NNC_E_FIT;
    int64_t total = 0;
    if (to - from <= MOST_OPS) {
        st = solve(s, from, to, s->p->group_ops, &total);
        if (st == NNC_E_FIT && !s->p->group_ops) {
            s->exact = false;
            st = solve(s, from, to, FEW_OPS, &total);
        }
    }
    if (st == NNC_E_FIT && to - from > 1) {
        const int half = from + (to - from) / 2;
        s->exact = false;
        NNC_TRY(segment(s, from, half, sink));
        return segment(s, half, to, sink);
    }
    if (st)
        return st == NNC_E_NOMEM ? nnc_nomem(sink) : nnc_fail0(sink, st, "IOS: an op has no stage");
    int most = 0;
    const bool continued = is_continued(s, from, to);
    for (int i = from; i < to; i++) {
        most = s->stage[i] + 1 > most ? s->stage[i] + 1 : most;
        s->stage[i] += s->n_stage - continued;
    }
    if (continued)
        s->own[0] -= s->p->sync_ns;
    for (int k = 0; k < most; k++)
        s->ns[s->n_stage - continued + k] =
            nnc_add_sat(s->ns[s->n_stage - continued + k], s->own[k]);
    s->n_stage += most - continued;
    s->total = nnc_add_sat(s->total, total - (continued ? s->p->sync_ns : 0));
    s->last_from = from;
    return NNC_OK;
}

nnc_status nnc_ios_segments(
    const nnc_ios_problem *p, int *stage, int64_t *ns, int64_t *total, bool *exact, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    segments s = {.p = p,
        .a = &a,
        .stage = stage,
        .ns = ns ? ns : ARENA_NEW(&a, int64_t, p->n_op + 1),
        .own = ARENA_NEW(&a, int64_t, p->n_op + 1),
        .exact = true,
        .last_from = -1,
        .mark = ARENA_NEW(&a, bool, p->n_op + 1),
        .last = ARENA_NEW(&a, int, p->n_op + 1),
        .start = ARENA_NEW(&a, int, p->n_op + 2),
        .need = ARENA_NEW(&a, int, p->start[p->n_op] + 1)};
    NNC_NEED(s.ns && s.own && s.mark && s.last && s.start && s.need, sink);
    for (int i = 0; i < p->n_op; i++) {
        s.last[i] = i;
        s.ns[i] = 0;
        for (int k = p->start[i]; k < p->start[i + 1]; k++)
            s.last[p->need[k]] = i;
    }
    for (int from = 0, to; from < p->n_op; from = to) {
        for (to = from + 1; to < p->n_op && !is_cut(&s, from, to);)
            to++;
        NNC_TRY(segment(&s, from, to, sink));
    }
    *total = s.total;
    *exact = s.exact;
    return NNC_OK;
}

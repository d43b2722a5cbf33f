/* plan/stages.c -- nnc_plan_options.ios: main's commands of one device in stages, found by the dynamic program of IOS (partition/ios.c).
 * Connected nodes of a stage are on one stream, unconnected ones side by side. Times are the roofline of the device's target. A node fills
 * the part of a GPU that its results have threads for. Streams of a CPU have their part of its threads. */
#include "partition/partition.h"
#include "plan/maker.h"

typedef struct staging {
    maker *m;
    uint32_t *node; /* by op */
    int *op; /* by node; -1: it does not run in main */
    int n, n_need;
    int *start, *need, *share, *stage, *group; /* by op; group: the first op of its component */
    int64_t *time;
} staging;

/* Is the graph suitable: nodes of one section, without tasks, on one device? */
static bool is_possible(const maker *m)
{
    bool ok = m->n_dev == 1 && !m->task && m->o->streams > 1;
    for (uint32_t i = 0; i < m->g->n_node && ok; i++)
        ok = !runs_in_main(m, &m->g->node[i]) || m->section[i] == SEC_main;
    return ok;
}

/* Factor by which nodes take longer on one stream than on the whole device. */
static int slower_of(const maker *m)
{
    const nnc_target *t = target_of(m, 0);
    return t->kind == NNC_T_cuda ? 1 : t->threads < m->o->streams ? t->threads : m->o->streams;
}

/* Per mille of the device. */
static int share_of(const maker *m, const nnc_node *n)
{
    enum { TILE = 8192 }; /* results of a contraction's block, as in the simulator */
    const nnc_target *t = target_of(m, 0);
    const double results = (double)nnc_type_numel(nnc_typeof(m->g, n->out));
    if (t->kind != NNC_T_cuda)
        return 1000 / slower_of(m);
    const bool contracts = (double)nnc_node_cost(m->g, n).flops > 32 * results;
    const double part = results / ((double)t->sms * (contracts ? TILE : t->sm_threads));
    return part >= 1 ? 1000 : (int)(1000 * part);
}

static nnc_status find_ops(staging *s)
{
    maker *m = s->m;
    s->need = ARENA_NEW(&m->scratch, int, m->from.first[m->g->n_node] + 1);
    NNC_NEED(s->need, m->sink);
    for (uint32_t i = 0; i < m->g->n_node; i++) {
        const nnc_node *n = &m->g->node[i];
        s->op[i] = -1;
        if (!runs_in_main(m, n))
            continue;
        s->op[i] = s->n;
        s->node[s->n] = i;
        s->time[s->n] = nnc_mul_sat(slower_of(m), nnc_node_ns(target_of(m, 0), m->g, n));
        s->share[s->n] = share_of(m, n);
        s->start[s->n++] = s->n_need;
        for (uint32_t e = m->from.first[i]; e < m->from.first[i + 1]; e++)
            s->need[s->n_need++] = s->op[m->from.at[e]];
    }
    s->start[s->n] = s->n_need;
    return NNC_OK;
}

/* The components of each stage. */
static void find_groups(staging *s)
{
    for (int i = 0; i < s->n; i++) {
        s->group[i] = i;
        for (int k = s->start[i]; k < s->start[i + 1]; k++) {
            const int producer = s->need[k];
            if (s->stage[producer] != s->stage[i] || s->group[producer] == s->group[i])
                continue;
            const bool later = s->group[producer] > s->group[i];
            const int from = s->group[later ? producer : i], to = s->group[later ? i : producer];
            for (int j = 0; j <= i; j++)
                s->group[j] = s->group[j] == from ? to : s->group[j];
        }
    }
}

/* The stream for a stage's component that begins at op i: that of a producer, if it is free in this stage. */
static int stream_of(const staging *s, int i, const int16_t *stream, uint64_t taken)
{
    for (int k = s->start[i]; k < s->start[i + 1]; k++) {
        const int before = stream[s->node[s->need[k]]];
        if (!(taken >> before & 1))
            return before;
    }
    return __builtin_ctzll(~taken);
}

nnc_status make_stages(maker *m, uint32_t *order, uint32_t *n_order, int16_t *stream, bool *done)
{
    const size_t n = (size_t)m->g->n_node + 2;
    nnc_arena *a = &m->scratch;
    staging s = {.m = m,
        .node = ARENA_NEW(a, uint32_t, n),
        .op = ARENA_NEW(a, int, n),
        .start = ARENA_NEW(a, int, n),
        .share = ARENA_NEW(a, int, n),
        .stage = ARENA_NEW(a, int, n),
        .group = ARENA_NEW(a, int, n),
        .time = ARENA_NEW(a, int64_t, n)};
    int64_t total;
    bool exact;
    NNC_NEED(s.node && s.op && s.start && s.share && s.stage && s.group && s.time, m->sink);
    *done = m->o->ios && is_possible(m);
    if (!*done)
        return NNC_OK;
    NNC_TRY(find_ops(&s));
    const nnc_ios_problem p = {.n_op = s.n,
        .time = s.time,
        .share = s.share,
        .start = s.start,
        .need = s.need,
        .streams = m->o->streams,
        .sync_ns = target_of(m, 0)->launch_ns};
    NNC_TRY(nnc_ios_segments(&p, s.stage, NULL, &total, &exact, m->sink));
    find_groups(&s);
    *n_order = 0;
    for (int k = 0, left = s.n; left > 0; k++) {
        uint64_t taken = 0;
        for (int i = 0; i < s.n; i++) {
            if (s.stage[i] != k)
                continue;
            const uint32_t node = s.node[i];
            stream[node] = s.group[i] == i ? (int16_t)stream_of(&s, i, stream, taken)
                                           : stream[s.node[s.group[i]]];
            taken |= 1ull << stream[node];
            order[(*n_order)++] = node;
            left--;
        }
    }
    return NNC_OK;
}

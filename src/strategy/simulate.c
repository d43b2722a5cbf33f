/* strategy/simulate.c -- strategies that nnc executes, from the very plans that it would execute, by the simulator: placements of
 * layers, splits, pipelines, replicas. An iteration is as many runs of the plan as the row says, one after the other; in a step all but
 * the last accumulate gradients. */
#include "report/report.h"
#include "session/session.h"
#include "session/train.h"
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include "sim/sim.h"
#include <string.h>

typedef struct simulation {
    nnc_env *e;
    const nnc_model *m;
    const nnc_training *training; /* NULL: inference */
    const nnc_partition_table *t;
    nnc_sink *sink;
} simulation;

/* How many times each device runs its plan in an iteration; 0: the strategy is not executed. */
static int runs_of(const simulation *s, const nnc_partition_row *row)
{
    return row->why_not || s->t->devices > NNC_MAX_DEVICES ? 0 : row->way.runs;
}

/* The model as the row places it. */
static nnc_status place_model(
    const simulation *s, const nnc_partition_row *row, bool cleared, nnc_graph **out)
{
    nnc_graph *g = nnc_graph_clone(s->m, s->sink);
    *out = g;
    if (!g)
        return nnc_sink_cause(s->sink, NNC_E_MODEL);
    for (uint32_t i = 0; i < g->n_node && cleared; i++)
        g->node[i].device = -1;
    return row->place ? nnc_model_place(g, row->place, s->sink) : NNC_OK;
}

/* The graph that is executed; *devices: of its plan. */
static nnc_status make_graph(
    const simulation *s, const nnc_partition_row *row, int runs, nnc_graph **out, int *devices)
{
    const nnc_partition_way *w = &row->way;
    const nnc_sharing o = {.strategy = w->strategy,
        .devices = *devices = w->devices,
        .replicas = w->replicas > 1 ? w->replicas : 1,
        .micro = w->micro > 1 ? w->micro : 1,
        .batches = runs,
        .chunks = w->chunks > 0 ? w->chunks : 2,
        .bucket_bytes = w->buckets ? (int64_t)(s->t->o->bucket_mb * 1e6) : 0,
        .zero = w->zero};
    const bool splits = nnc_is_split(o.strategy);
    const nnc_compile_options split = {
        .devices = w->devices / o.replicas, .strategy = nnc_strategy_names[o.strategy]};
    nnc_graph *step = NULL, *all = NULL;
    NNC_TRY(place_model(s, row, w->strategy || w->devices == 1, out));
    if (splits && !s->training)
        NNC_TRY(nnc_split_graph(&split, false, out, NULL, NULL, s->sink));
    if (s->training) {
        nnc_training training = *s->training;
        if (splits)
            nnc_split_training(&training, &split);
        training.accumulate = runs * o.micro;
        training.shards = w->zero ? o.replicas : 0;
        NNC_TRY(nnc_train_graph(*out, &training, &step, s->sink));
        nnc_graph_destroy(*out);
        *out = step;
    }
    NNC_TRY(nnc_strategy_graph(*out, &o, !s->training, &all, s->sink));
    if (all) {
        nnc_graph_destroy(*out);
        *out = all;
    }
    return NNC_OK;
}

nnc_status nnc_partition_execution(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, const nnc_partition_row *row, bool code, nnc_artifact **out,
    int *runs, nnc_sink *sink)
{
    const simulation s = {e, m, training, t, sink};
    nnc_compile_options o = t->o->compile;
    NNC_OWNED(nnc_graph) *g = NULL;
    *out = NULL;
    *runs = runs_of(&s, row);
    if (!*runs)
        return NNC_OK;
    NNC_TRY(make_graph(&s, row, *runs, &g, &o.devices));
    o.schedule = row->way.schedule;
    o.streams = row->way.streams > o.streams ? row->way.streams : o.streams;
    return nnc_partition_compile(e, g, &o, code, out, sink);
}

/* Over ranks nothing is captured: each rank's host submits its commands one by one. A plan of one device runs in rank 0 alone. */
static int64_t host_ns(const simulation *s, const nnc_plan *p)
{
    return nnc_env_world(s->e) > 1 && p->n_device > 1
               ? nnc_cluster_kind_of(s->t->cluster, 0)->host_ns
               : 0;
}

/* Time of the sections from main to `last`, bytes of the fullest device; device[]: their shares, ps, are added, `times` times.
 * timeline: NULL, or gets runs first .. first + times - 1. */
static nnc_status simulate_sections(const simulation *s, const nnc_artifact *a, nnc_section last,
    int times, int64_t *ps, int64_t *bytes, nnc_shares *device, nnc_timeline *timeline, int first)
{
    const nnc_sim_plan_options o = {.first = SEC_main,
        .last = last,
        .host_ns = host_ns(s, a->plan),
        .host_each = true,
        .command_ps = s->t->m->times ? nnc_command_times_ps : NULL,
        .ctx = s->t->m->times};
    NNC_LOCAL(nnc_sim_plan) p = {0};
    NNC_TRY(nnc_sim_plan_run(&p, a->plan, s->t->cluster, &o, s->sink));
    *ps = nnc_mul_sat(p.total_ps, a->chunks);
    for (int d = 0; d < p.n_device; d++) {
        const int64_t all = nnc_cluster_target(s->t->cluster, d)->memory_bytes,
                      taken = all - nnc_cluster_usable_bytes(s->t->cluster, d);
        *bytes = nnc_max64(*bytes, p.by_device[d].bytes - taken);
    }
    const nnc_plan_times t = {.plan = a->plan,
        .first = p.first,
        .n = p.n_cmd,
        .start_ps = p.start_ps,
        .end_ps = p.end_ps};
    NNC_TRY(nnc_add_shares(&t, times, device, s->sink));
    return timeline
               ? nnc_timeline_add_simulated(timeline, a->plan, &p, first, first + times, s->sink)
               : NNC_OK;
}

/* A timeline for the plan, where a picture or a trace is asked for. */
static nnc_status begin_timeline(const simulation *s, nnc_partition_row *row, const nnc_artifact *a)
{
    if (!nnc_partition_has_timelines(s->t->o) || a->chunks > 1)
        return NNC_OK;
    NNC_TRY(nnc_timeline_of_plan("simulated", a->plan, &row->simulated, s->sink));
    for (int d = 0; d < a->plan->n_device; d++)
        row->simulated->capacity[d] = nnc_partition_capacity(s->t);
    return NNC_OK;
}

/* device[]: zeros. */
static nnc_status simulate(const simulation *s, nnc_partition_row *row, nnc_shares *device)
{
    NNC_OWNED(nnc_artifact) *a = NULL;
    int runs = 0;
    int64_t last = 0, others = 0, bytes = 0;
    NNC_TRY(nnc_partition_execution(
        s->e, s->m, s->training, s->t, row, s->t->o->run || s->t->o->measure, &a, &runs, s->sink));
    if (!runs)
        return NNC_OK;
    if (s->t->m->times)
        NNC_TRY(nnc_partition_time_others(s->e, a, s->training, s->t->m->times, s->sink));
    NNC_TRY(begin_timeline(s, row, a));
    if (runs > 1)
        NNC_TRY(simulate_sections(s, a, s->training ? SEC_accumulate : SEC_step, runs - 1, &others,
            &bytes, device, row->simulated, 0));
    NNC_TRY(simulate_sections(s, a, SEC_step, 1, &last, &bytes, device, row->simulated, runs - 1));
    row->simulated_shares = device;
    row->simulated_ns = nnc_ceildiv(nnc_add_sat(last, nnc_mul_sat(runs - 1, others)), 1000);
    row->simulated_bytes = bytes;
    nnc_partition_take_plan(s->e, s->t, row, a);
    return NNC_OK;
}

bool nnc_partition_same_plan(const nnc_partition_row *a, const nnc_partition_row *b)
{
    const nnc_partition_way *x = &a->way, *y = &b->way;
    return x->runs == y->runs && x->devices == y->devices && x->replicas == y->replicas &&
           x->micro == y->micro && x->chunks == y->chunks && x->zero == y->zero &&
           x->streams == y->streams && x->schedule == y->schedule && x->buckets == y->buckets &&
           x->strategy == y->strategy && nnc_same_text(a->place, b->place);
}

/* Takes the numbers of an earlier row with the same plan; false: there is none, or the row has a picture of its own. */
static bool take_earlier(const nnc_partition_table *t, int i)
{
    nnc_partition_row *to = &t->row[i];
    int k = 0;
    while (k < i && !((t->row[k].simulated_ns || t->row[k].not_simulated) &&
                        nnc_partition_same_plan(&t->row[k], to)))
        k++;
    if (k == i || to->why_not || nnc_partition_has_timelines(t->o))
        return false;
    to->simulated_shares = t->row[k].simulated_shares;
    to->simulated_ns = t->row[k].simulated_ns;
    to->simulated_bytes = t->row[k].simulated_bytes;
    to->not_simulated = t->row[k].not_simulated;
    return true;
}

nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, nnc_arena *arena, nnc_sink *sink)
{
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    simulation s = {e, m, training, t, own};
    NNC_NEED(own, sink);
    for (int i = 0; i < t->n_row; i++) {
        if (take_earlier(t, i))
            continue;
        nnc_shares *device = ARENA_NEW(arena, nnc_shares, t->devices + 1);
        nnc_sink_clear(own);
        NNC_NEED(device, sink);
        if (!simulate(&s, &t->row[i], device))
            continue;
        if (nnc_sink_cause(own, NNC_E_MODEL) == NNC_E_NOMEM)
            return nnc_nomem(sink);
        /* what the planner refuses is estimated only, for the reason that it gives */
        t->row[i].not_simulated = nnc_arena_strdup(arena, nnc_partition_refusal(own));
        NNC_NEED(t->row[i].not_simulated, sink);
    }
    return NNC_OK;
}

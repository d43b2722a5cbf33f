/* strategy/simulate.c -- strategies that nnc executes, from the very plans that it would execute: placements, splits, pipelines,
 * replicas. Memory is the plan's; times are the simulator's where hardware is described. An iteration is as many consecutive runs of the
 * plan as the row says. In a step all but the last accumulate gradients. */
#include "report/report.h"
#include "session/session.h"
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
    *runs = row->why_not || s.t->devices > NNC_MAX_DEVICES ? 0 : row->way.runs;
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

/* Time of the sections from main to `last`, in all chunks; device[]: their shares, ps, are added, `times` times.
 * timeline: NULL, or gets runs first .. first + times - 1. */
static nnc_status simulate_sections(const simulation *s, const nnc_artifact *a, nnc_section last,
    int times, int64_t *ps, nnc_shares *device, nnc_timeline *timeline, int first)
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
    const nnc_plan_times t = {.plan = a->plan,
        .first = p.first,
        .n = p.n_cmd,
        .start_ps = p.start_ps,
        .end_ps = p.end_ps};
    NNC_TRY(nnc_add_shares(&t, times * a->chunks, device, s->sink));
    return timeline
               ? nnc_timeline_add_simulated(timeline, a->plan, &p, first, first + times, s->sink)
               : NNC_OK;
}

/* A timeline for the plan, where a picture or a trace is asked for; of chunks the estimate's stays. */
static nnc_status begin_timeline(const simulation *s, const nnc_artifact *a, nnc_timeline **out)
{
    if (!nnc_partition_has_timelines(s->t->o) || a->chunks > 1)
        return NNC_OK;
    NNC_TRY(nnc_timeline_of_plan("simulated", a->plan, out, s->sink));
    for (int d = 0; d < a->plan->n_device; d++)
        (*out)->capacity[d] = nnc_partition_capacity(s->t);
    return NNC_OK;
}

/* The row's times are the plan's: ns, and by device what it does. Estimates for other bandwidths keep their ratios. */
static void take_times(
    const nnc_partition_table *t, nnc_partition_row *row, int64_t ns, nnc_shares *device)
{
    nnc_shares all = {0};
    nnc_sum_shares(&all, device, t->devices);
    const int64_t mean = INT64_C(1000) * t->devices;
    const double ratio = (double)ns / (double)nnc_max64(row->iteration_ns, 1);
    for (int k = 0; k < NNC_BANDWIDTHS; k++)
        row->at_bandwidth_ns[k] = (int64_t)((double)row->at_bandwidth_ns[k] * ratio);
    for (int d = 0; d < t->devices; d++)
        row->use[d].busy_ns = nnc_ceildiv(nnc_shares_computing(&device[d]), 1000);
    row->iteration_ns = ns;
    row->exposed_ns = all.part[PART_communication] / mean;
    row->hidden_ns = all.hidden / mean;
    row->bubble = ns ? 1 - (double)nnc_shares_computing(&all) / ((double)ns * (double)mean) : 0;
    row->simulated_shares = device;
}

static nnc_status simulate(
    const simulation *s, nnc_partition_row *row, const nnc_artifact *a, int runs, nnc_arena *arena)
{
    int64_t last = 0, others = 0;
    NNC_OWNED(nnc_timeline) *timeline = NULL;
    nnc_shares *device = ARENA_NEW(arena, nnc_shares, s->t->devices + 1);
    NNC_NEED(device, s->sink);
    if (s->t->m->times)
        NNC_TRY(nnc_partition_time_others(s->e, a, s->training, s->t->m->times, s->sink));
    NNC_TRY(begin_timeline(s, a, &timeline));
    if (runs > 1)
        NNC_TRY(simulate_sections(
            s, a, s->training ? SEC_accumulate : SEC_step, runs - 1, &others, device, timeline, 0));
    NNC_TRY(simulate_sections(s, a, SEC_step, 1, &last, device, timeline, runs - 1));
    take_times(
        s->t, row, nnc_ceildiv(nnc_add_sat(last, nnc_mul_sat(runs - 1, others)), 1000), device);
    if (timeline) {
        nnc_timeline_destroy(row->timeline);
        row->timeline = timeline;
        timeline = NULL;
    }
    return NNC_OK;
}

static nnc_status plan_row(const simulation *s, nnc_partition_row *row, nnc_arena *arena)
{
    NNC_OWNED(nnc_artifact) *a = NULL;
    nnc_room room[NNC_MAX_DEVICES];
    int runs = 0;
    NNC_TRY(nnc_partition_execution(
        s->e, s->m, s->training, s->t, row, s->t->o->run || s->t->o->measure, &a, &runs, s->sink));
    if (!runs)
        return NNC_OK;
    if (s->t->cluster && (s->t->o->simulate || nnc_partition_named(s->t)))
        NNC_TRY(simulate(s, row, a, runs, arena));
    for (int d = 0; d < s->t->devices; d++)
        row->use[d].bytes = d < a->plan->n_device ? nnc_device_needs(a->plan, d) : 0;
    row->fits = nnc_rooms_suffice(room, nnc_find_rooms(s->e, a, room));
    row->planned = true;
    row->open = false;
    return NNC_OK;
}

static bool same_plan(const nnc_partition_row *a, const nnc_partition_row *b)
{
    const nnc_partition_way *x = &a->way, *y = &b->way;
    return x->runs == y->runs && x->devices == y->devices && x->replicas == y->replicas &&
           x->micro == y->micro && x->chunks == y->chunks && x->zero == y->zero &&
           x->streams == y->streams && x->schedule == y->schedule && x->buckets == y->buckets &&
           x->strategy == y->strategy && nnc_same_text(a->place, b->place);
}

bool nnc_partition_take_equal(const nnc_partition_table *t, nnc_partition_row *row)
{
    const nnc_partition_row *from = t->row, *end = t->row + t->n_row;
    while (
        from < end && (from == row || !(from->planned || from->refused) || !same_plan(from, row)))
        from++;
    if (from == end || nnc_partition_has_timelines(t->o))
        return false;
    row->refused = from->refused;
    row->not_simulated = from->not_simulated;
    if (from->refused)
        return true;
    for (int d = 0; d < t->devices; d++)
        row->use[d].bytes = from->use[d].bytes;
    row->fits = from->fits;
    row->planned = true;
    row->open = false;
    if (from->simulated_shares)
        take_times(t, row, from->iteration_ns, from->simulated_shares);
    return true;
}

nnc_status nnc_partition_plan_row(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, nnc_partition_row *row, nnc_arena *arena, nnc_sink *sink)
{
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    const simulation s = {e, m, training, t, own};
    NNC_NEED(own, sink);
    const nnc_status st = plan_row(&s, row, arena);
    row->refused = !row->planned;
    if (!st)
        return NNC_OK;
    if (nnc_sink_cause(own, NNC_E_MODEL) == NNC_E_NOMEM)
        return nnc_nomem(sink);
    if (t->cluster) /* what the planner refuses is estimated, for the reason that it gives */
        NNC_NEED(row->not_simulated = nnc_arena_strdup(arena, nnc_partition_refusal(own)), sink);
    return NNC_OK;
}

nnc_status nnc_partition_simulate(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, nnc_arena *arena, nnc_sink *sink)
{
    for (int i = 0; i < t->n_row; i++) {
        nnc_partition_row *row = &t->row[i];
        const int runs = row->why_not || t->devices > NNC_MAX_DEVICES ? 0 : row->way.runs;
        if (runs && !nnc_partition_take_equal(t, row))
            NNC_TRY(nnc_partition_plan_row(e, m, training, t, row, arena, sink));
    }
    return NNC_OK;
}

/* strategy/strategy.c -- strategies as graphs: replicas, and pipelines whose tasks run in the order of src/partition's schedules.
 *
 * A schedule's lists, one for each device, become one numbering of all tasks. Tasks are numbered by the time at which they would begin if
 * each pass of a stage took the same time. So no task needs one with a higher number, and on each device the order is the schedule's. */
#include "session/session.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include <assert.h>
#include <stdlib.h>

bool nnc_is_placed(const nnc_graph *g)
{
    return nnc_graph_devices(g) > 1;
}

/* ---- stages -------------------------------------------------------------------------------------------------------------- */

nnc_status nnc_strategy_place(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_compile_options *compile, const nnc_sharing *o, nnc_model **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) place = {0};
    const nnc_partition_options p = {.compile = *compile, .micro = o->micro, .chunks = o->chunks};
    *out = NULL;
    NNC_TRY(nnc_partition_place(
        e, m, training, &p, o->devices / o->replicas, o->strategy, &place, sink));
    NNC_OWNED(nnc_graph) *g = nnc_graph_clone(m, sink);
    NNC_NEED(g, sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        g->node[i].device = -1;
    NNC_TRY(nnc_model_place(g, nnc_text_str(&place), sink));
    *out = g;
    g = NULL;
    return NNC_OK;
}

/* ---- tasks --------------------------------------------------------------------------------------------------------------- */

typedef struct begun {
    int64_t start;
    int device;
    const nnc_task *task;
} begun;

NNC_ORDER(by_start, begun, nnc_cmp(a->start, b->start), nnc_cmp(a->device, b->device))

/* Numbers the tasks of a schedule. */
static nnc_status rank_tasks(const nnc_pipeline *p, int32_t *rank, nnc_arena *a, nnc_sink *sink)
{
    const int stages = p->devices * p->chunks, n = p->devices * p->n_task;
    int64_t *unit = ARENA_NEW(a, int64_t, stages);
    begun *all = ARENA_NEW(a, begun, n);
    nnc_pipeline_time t;
    NNC_NEED(unit && all, sink);
    for (int s = 0; s < stages; s++)
        unit[s] = 1;
    const nnc_pipeline_costs costs = {.forward = unit, .backward = unit, .weight = unit};
    NNC_TRY(nnc_pipeline_run(p, &costs, a, &t, sink));
    for (int d = 0; d < p->devices; d++)
        for (int i = 0; i < p->n_task; i++)
            all[d * p->n_task + i] = (begun){t.start[d][i], d, &p->task[d][i]};
    qsort(all, (size_t)n, sizeof *all, by_start);
    for (int i = 0; i < n; i++) {
        const nnc_task *x = all[i].task;
        rank[((size_t)x->kind * (size_t)stages + (size_t)x->stage) * (size_t)p->micro +
             (size_t)x->micro] = i;
    }
    return NNC_OK;
}

/* Each micro-batch passes all stages, and back, before the next one. */
static void rank_in_turn(int stages, int micro, bool forward, int32_t *rank)
{
    int32_t n = 0;
    for (int k = 0; k < micro; k++) {
        for (int s = 0; s < stages; s++)
            rank[s * micro + k] = n++;
        for (int s = stages; !forward && s-- > 0;)
            rank[(stages + s) * micro + k] = n++;
    }
}

static nnc_status find_ranks(const nnc_sharing *o, bool forward, nnc_distribution *d, int32_t *rank,
    nnc_arena *a, nnc_sink *sink)
{
    const int kind = forward && d->stages == d->devices ? (int)PIPE_forward
                                                        : nnc_strategies[o->strategy].schedule;
    nnc_pipeline p;
    d->rank = rank;
    if (!nnc_is_pipeline(o->strategy) || (forward && d->stages > d->devices)) {
        rank_in_turn(d->stages, d->micro, forward, rank);
        return NNC_OK;
    }
    NNC_TRY(nnc_pipeline_make(
        (nnc_pipeline_kind)kind, d->devices, d->micro, d->stages / d->devices, a, &p, sink));
    d->split = p.split;
    return rank_tasks(&p, rank, a, sink);
}

/* whole: by node, inputs that all micro-batches read; NULL: none. */
static nnc_status make_graph(const nnc_graph *g, const nnc_sharing *o, bool forward,
    const bool *whole, nnc_graph **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const int placed = o->strategy == NNC_STRATEGY_data ? 1 : nnc_graph_devices(g);
    assert(placed > 0); /* a divisor; clang-tidy does not see nnc_graph_devices */
    const int replicas = o->replicas;
    const int chunks = o->strategy == NNC_STRATEGY_interleaved ? o->chunks : 1;
    nnc_distribution d = {.replicas = replicas,
        .micro = o->micro,
        .devices = placed,
        .batches = o->batches,
        .stages = placed * chunks,
        .zero = o->zero,
        .bucket_bytes = o->bucket_bytes,
        .whole = whole};
    *out = NULL;
    if (replicas > 1 && placed > o->devices / replicas)
        return nnc_fail0(sink, NNC_E_USAGE,
            "the layers are placed on %d devices, but each of %d replicas has %d of %d: give "
            "--devices=%d",
            placed, replicas, o->devices / replicas, o->devices, placed * replicas);
    if (replicas == 1 && o->micro == 1)
        return NNC_OK;
    int32_t *rank = ARENA_NEW(&a, int32_t, 3 * (size_t)d.stages * (size_t)d.micro);
    NNC_NEED(rank, sink);
    if (o->micro > 1)
        NNC_TRY(find_ranks(o, forward, &d, rank, &a, sink));
    return nnc_distribute(g, &d, out, sink);
}

nnc_status nnc_strategy_graph(
    const nnc_graph *g, const nnc_sharing *o, bool forward, nnc_graph **out, nnc_sink *sink)
{
    return make_graph(g, o, forward, NULL, out, sink);
}

/* ---- inference ----------------------------------------------------------------------------------------------------------- */

/* The model of one of n parts of the batch; *whole: by its nodes, inputs that are not divided. */
static nnc_status part_of_batch(const nnc_model *m, int n, const char *what, nnc_graph **out,
    bool **whole, nnc_arena *a, nnc_sink *sink)
{
    const nnc_type *t = m->n_output ? nnc_typeof(m, m->output[0]) : NULL;
    bool *in = ARENA_NEW(a, bool, m->n_node + 1), *outs = ARENA_NEW(a, bool, m->n_output + 1);
    NNC_NEED(in && outs, sink);
    if (!t || !t->rank || t->dim[0] % n)
        return nnc_fail0(sink, NNC_E_USAGE,
            "a batch of %lld cannot be divided into %d equal %s: set another batch (--set "
            "batch=...), or another number of them",
            (long long)(t && t->rank ? t->dim[0] : 1), n, what);
    NNC_TRY(nnc_graph_sample(m, t->dim[0] / n, out, in, outs, sink));
    bool ok = *out != NULL;
    for (uint32_t i = 0; i < m->n_output; i++)
        ok = ok && outs[i];
    if (!ok) {
        nnc_graph_destroy(*out);
        *out = NULL;
        return nnc_fail0(sink, NNC_E_MODEL,
            "the rows of a batch of %s depend on each other, so that it cannot be divided into %s",
            m->name, what);
    }
    *whole = ARENA_NEW(a, bool, m->n_node + 1);
    NNC_NEED(*whole, sink);
    for (uint32_t i = 0, k = 0; i < m->n_node; i++) /* by the inputs' numbers */
        if (m->node[i].op == OP_input)
            (*whole)[k++] = !in[i];
    return NNC_OK;
}

/* By node of g, whose inputs are in the order of `of`. NULL: out of memory. */
static bool *by_node(const nnc_graph *g, const bool *of, nnc_arena *a)
{
    bool *whole = ARENA_NEW(a, bool, g->n_node + 1);
    for (uint32_t i = 0, k = 0; whole && i < g->n_node; i++)
        if (g->node[i].op == OP_input)
            whole[i] = of[k++];
    return whole;
}

/* The model of a replica, *g, on the devices that it has: placed, or split. */
static nnc_status divide_layers(
    nnc_env *e, nnc_graph **g, const nnc_compile_options *o, const nnc_sharing *s, nnc_sink *sink)
{
    nnc_graph *placed = NULL;
    const nnc_compile_options split = {
        .devices = o->devices / s->replicas, .strategy = nnc_strategy_names[s->strategy]};
    if (nnc_is_split(s->strategy))
        return nnc_split_graph(&split, false, g, NULL, NULL, sink);
    if (!nnc_is_pipeline(s->strategy) || nnc_is_placed(*g))
        return NNC_OK;
    NNC_TRY(nnc_strategy_place(e, *g, NULL, o, s, &placed, sink));
    nnc_graph_destroy(*g);
    *g = placed;
    return NNC_OK;
}

nnc_status nnc_shared_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_strategy strategy, int replicas, int micro, nnc_model **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_sharing s = {.strategy = strategy,
        .devices = o->devices,
        .replicas = replicas,
        .micro = micro,
        .batches = 1};
    NNC_OWNED(nnc_graph) *part = NULL;
    bool *whole = NULL;
    *out = NULL;
    NNC_TRY(part_of_batch(m, replicas * micro,
        micro == 1      ? "parts, one for each replica"
        : replicas == 1 ? "micro-batches"
                        : "micro-batches of all replicas",
        &part, &whole, &a, sink));
    NNC_NEED(part, sink);
    NNC_TRY(divide_layers(e, &part, o, &s, sink));
    NNC_NEED(whole = by_node(part, whole, &a), sink);
    NNC_TRY(make_graph(part, &s, true, whole, out, sink));
    if (!*out) { /* one micro-batch of one replica */
        *out = part;
        part = NULL;
    }
    return NNC_OK;
}

/* partition/search_cost.c -- what one combination of data, tensor and pipeline parallelism costs. It finds the best cut under the
 * devices' memory, runs the schedule with it and reduces gradients over the replicas.
 *
 *     iteration = pipeline (computing, collectives of tensor groups, bubble, exposed sends) + exposed reduction of gradients + update
 *
 * All replicas do the same, so that one of them is looked at. */
#include "partition/internal.h"
#include <string.h>

const char *const nnc_prune_reasons[PRUNE__COUNT] = {"", "more stages than blocks of layers",
    "replicas x micro-batch do not divide the samples",
    "the schedule does not exist for the numbers", "does not fit the memory",
    "slower than those evaluated, by a bound"};

int nnc_combination_device(const nnc_combination *c, int replica, int stage, int rank)
{
    return rank +
           c->tensor * (c->data_first ? replica + c->data * stage : stage + c->pipeline * replica);
}

void nnc_combination_name(const nnc_combination *c, nnc_text *out)
{
    nnc_printf(out, "data %d x tensor %d x pipeline %d", c->data, c->tensor, c->pipeline);
    if (c->pipeline > 1 && c->schedule != PIPE_forward)
        nnc_printf(out, ", %s", nnc_schedule_name(c->schedule));
    if (c->chunks > 1)
        nnc_printf(out, " of %d chunks", c->chunks);
    if (c->zero)
        nnc_printf(out, ", zero%d", c->zero);
    if (c->recompute)
        nnc_puts(out, ", recompute");
    if (c->data_first)
        nnc_puts(out, ", replicas neighbours");
}

typedef struct evaluation {
    const nnc_search_problem *p;
    const nnc_search_costs *costs;
    const nnc_combination *c;
    nnc_search_result *out;
    bool brief; /* only the time */
    search_cuts *cuts; /* kept from one evaluation to the next; or NULL */
    int stages; /* pipeline * chunks */
    int64_t *forward, *backward, *weight; /* by layer, with collectives and recomputation */
    int64_t *fixed, *saved, *kept; /* of nnc_cut_problem */
    int64_t
        transient; /* bytes that a device needs beside: working set, a recomputed segment, gathered weights */
    nnc_pipeline pipe;
    nnc_arena *keep, *a; /* of the result, of the rest */
    nnc_sink *sink;
} evaluation;

static int64_t most(const int64_t *v, int n)
{
    int64_t t = 0;
    for (int i = 0; v && i < n; i++)
        t = nnc_max64(t, v[i]);
    return t;
}

static int64_t at(const int64_t *v, int i)
{
    return v ? v[i] : 0;
}

/* ---- communication -------------------------------------------------------------------------------------- */

/* The replicas of a stage. */
typedef struct group {
    const nnc_search_links *l;
    nnc_search_collective kind;
    int first, stride, n, beside;
} group;

static group replicas_of(const evaluation *e, int stage, nnc_search_collective kind)
{
    const nnc_combination *c = e->c;
    const int first = nnc_combination_device(c, 0, stage, 0);
    return (group){.l = &e->p->links,
        .kind = kind,
        .first = first,
        .stride = c->data > 1 ? nnc_combination_device(c, 1, stage, 0) - first : 1,
        .n = c->data,
        .beside = c->tensor};
}

static int64_t group_ns(const group *g, int64_t bytes)
{
    return g->n < 2 || bytes <= 0 ? 0
                                  : g->l->collective_ns(g->l->ctx, g->kind, g->first, g->stride,
                                        g->n, g->beside, bytes);
}

/* A send from one stage of the pipeline to another. */
static int64_t stage_send(const void *ctx, int src, int dst, int64_t bytes)
{
    const evaluation *e = ctx;
    const nnc_combination *c = e->c;
    const int from = nnc_combination_device(c, 0, src, 0),
              to = nnc_combination_device(c, 0, dst, 0);
    return e->p->links.send_ns(
        e->p->links.ctx, from, to, c->data_first ? c->tensor * c->data : c->tensor, bytes);
}

/* ---- layers --------------------------------------------------------------------------------------------- */

static int64_t shared(int64_t bytes, bool divided, int n)
{
    return divided ? nnc_ceildiv(bytes, n) : bytes;
}

/* The largest segment's saved tensors, which recomputation makes again one segment at a time. */
static int64_t largest_segment(const evaluation *e)
{
    int64_t largest = 0, now = 0;
    for (int i = 0; i < e->p->n_layer; i++) {
        now = e->p->segment[i] ? 0 : now;
        now = nnc_add_sat(now, at(e->costs->saved, i));
        largest = nnc_max64(largest, now);
    }
    return largest;
}

static nnc_status prepare_evaluation(evaluation *e)
{
    const nnc_search_costs *of = e->costs;
    const nnc_combination *c = e->c;
    const int n = e->p->n_layer, d = c->data;
    int64_t **const v[] = {&e->forward, &e->backward, &e->weight, &e->fixed, &e->saved, &e->kept};
    for (size_t k = 0; k < NNC_COUNT(v); k++)
        NNC_NEED(*v[k] = ARENA_NEW(e->a, int64_t, n + 1), e->sink);
    for (int i = 0; i < n; i++) {
        const bool begins = c->recompute && e->p->segment[i];
        e->forward[i] = nnc_add_sat(at(of->forward, i), at(of->forward_comm, i));
        e->backward[i] = nnc_add_sat(at(of->backward, i), at(of->backward_comm, i));
        if (c->recompute)
            e->backward[i] = nnc_add_sat(e->backward[i], e->forward[i]);
        e->weight[i] = nnc_add_sat(at(of->weight, i), c->micro > 1 ? at(of->accumulate, i) : 0);
        e->fixed[i] = nnc_add_sat(shared(at(of->weights, i), c->zero >= 3, d),
            nnc_add_sat(shared(at(of->gradients, i), c->zero >= 2, d),
                shared(at(of->states, i), c->zero >= 1, d)));
        const int64_t input = at(of->input ? of->input : of->boundary, i);
        e->saved[i] = !c->recompute ? at(of->saved, i) : begins ? input : 0;
        /* plans have the model's inputs among what is saved */
        e->kept[i] = begins || (!i && e->p->planned) ? 0 : input;
    }
    e->transient = nnc_add_sat(most(of->working, n), c->recompute ? largest_segment(e) : 0);
    if (c->zero >= 3)
        e->transient = nnc_add_sat(e->transient, nnc_mul_sat(2, most(of->weights, n)));
    return NNC_OK;
}

/* ---- the cut -------------------------------------------------------------------------------------------- */

/* The stages' problem. Its arrays are e's. */
static nnc_status cut_problem(evaluation *e, nnc_links *links, int64_t **room, nnc_cut_problem *q)
{
    const nnc_search_problem *p = e->p;
    const nnc_combination *c = e->c;
    const int n = p->n_layer, stages = e->stages;
    int64_t *time = ARENA_NEW(e->a, int64_t, n + 1), *both = ARENA_NEW(e->a, int64_t, n + 1);
    int *flight = ARENA_NEW(e->a, int, stages), *device = ARENA_NEW(e->a, int, stages);
    *room = ARENA_NEW(e->a, int64_t, stages);
    NNC_NEED(time && both && *room && flight && device, e->sink);
    for (int i = 0; i <= n; i++) {
        both[i] = nnc_mul_sat(p->forward ? 1 : 2, at(e->costs->boundary, i));
        if (i < n)
            time[i] = nnc_add_sat(e->forward[i], nnc_add_sat(e->backward[i], e->weight[i]));
    }
    for (int s = 0; s < stages; s++) {
        device[s] = s % c->pipeline;
        flight[s] = s < c->pipeline
                        ? (nnc_pipeline_in_flight(&e->pipe, s) + c->chunks - 1) / c->chunks
                        : flight[s - c->pipeline];
        (*room)[s] = nnc_max64(p->capacity - e->transient, 0) / c->chunks;
    }
    *links = (nnc_links){stage_send, NULL, e};
    *q = (nnc_cut_problem){.n_layer = n,
        .n_stage = stages,
        .time = time,
        .boundary = both,
        .links = links,
        .device = device,
        .fixed = e->fixed,
        .saved = e->saved,
        .kept = e->kept,
        .in_flight = flight};
    return NNC_OK;
}

static bool fits(const nnc_cut_problem *q, const int *cut_at, const int64_t *room)
{
    bool all = true;
    for (int s = 0; s < q->n_stage; s++)
        all = all && nnc_cut_stage_bytes(q, s, cut_at[s], cut_at[s + 1]) <= room[s];
    return all;
}

/* The best cut without limits of memory, from the kept ones if it is there. */
static nnc_status free_cut(evaluation *e, const nnc_cut_problem *q, int *to)
{
    nnc_combination key = *e->c;
    nnc_cut_result r;
    key.schedule = key.zero = 0;
    search_cut *k = e->cuts ? &e->cuts->slot[nnc_hash64(&key, sizeof key, 0) % SEARCH_CUTS] : NULL;
    const size_t bytes = ((size_t)e->stages + 1) * sizeof *to;
    if (k && k->key.pipeline && !memcmp(&k->key, &key, sizeof key)) {
        memcpy(to, k->cut, bytes);
        return NNC_OK;
    }
    NNC_TRY(nnc_cut_min_latency(q, e->c->micro, to, &r, e->sink));
    if (!k)
        return NNC_OK;
    NNC_NEED(ARENA_ROOM(e->cuts->a, k->cut, k->cap, e->stages + 1), e->sink);
    memcpy(k->cut, to, bytes);
    k->key = key;
    return NNC_OK;
}

static nnc_status cut(evaluation *e, int **at_)
{
    const int stages = e->stages, n = e->p->n_layer;
    nnc_links links;
    nnc_cut_problem q;
    nnc_cut_result r = {.ok = true};
    int64_t *room;
    int *to = *at_ = ARENA_NEW(e->a, int, stages + 1);
    NNC_NEED(to, e->sink);
    NNC_TRY(cut_problem(e, &links, &room, &q));
    if (e->p->even && stages > 0) {
        for (int s = 0; s <= stages; s++)
            to[s] = s * (n / stages);
        e->out->pruned = n % stages ? PRUNE_layers : fits(&q, to, room) ? PRUNE_none : PRUNE_memory;
        return NNC_OK;
    }
    NNC_TRY(free_cut(e, &q, to));
    if (!fits(&q, to, room)) {
        q.capacity = room;
        NNC_TRY(nnc_cut_min_latency(&q, e->c->micro, to, &r, e->sink));
    }
    e->out->pruned = r.ok ? PRUNE_none : PRUNE_memory;
    return NNC_OK;
}

/* ---- gradients ------------------------------------------------------------------------------------------ */

/* Times of the replicas' communication of a stage, from the start of the pipeline. */
typedef struct reduction {
    int64_t end; /* of the device's work and its gradients' reduction */
    int64_t all; /* of its collectives */
} reduction;

/* Are gradients reduced after the passes? Plans of pipelines begin what follows their passes on all devices together. */
static bool is_serial(const evaluation *e)
{
    const nnc_search_problem *p = e->p;
    if (p->planned && e->c->pipeline > 1)
        return true;
    return p->is_serial ? p->is_serial(p->serial_ctx, e->c) : p->serial;
}

int64_t nnc_exchanged_bytes(const nnc_search_costs *of, nnc_search_collective kind, int i)
{
    return kind == SEARCH_allgather ? nnc_min64(at(of->weights, i), at(of->gradients, i))
                                    : at(of->gradients, i);
}

/* Collectives of the gradients of device d's layers: in buckets, or one of each layer's large gradients and one of all small ones.
 * *tail: the last of them. */
static int64_t exchange_ns(const evaluation *e, int d, const int *cut_at,
    nnc_search_collective kind, int64_t bucket_bytes, int64_t *tail)
{
    const group g = replicas_of(e, d, kind);
    const nnc_search_costs *of = e->costs;
    int64_t ns = 0, open = 0, small = 0;
    for (int s = e->stages - e->c->pipeline + d; s >= 0; s -= e->c->pipeline)
        for (int i = cut_at[s + 1] - 1; i >= cut_at[s]; i--) {
            const int64_t all = nnc_exchanged_bytes(of, kind, i);
            small = nnc_add_sat(small, nnc_min64(all, at(of->small, i)));
            open = nnc_add_sat(open, nnc_max64(all - at(of->small, i), 0));
            if (of->small || open >= bucket_bytes || i == cut_at[s]) {
                *tail = open ? group_ns(&g, open) : *tail;
                ns = nnc_add_sat(ns, open ? *tail : 0);
                open = 0;
            }
        }
    *tail = small ? group_ns(&g, small) : *tail;
    return nnc_add_sat(ns, small ? *tail : 0);
}

/* Time of `run` nanoseconds of computing beside `moves` of collectives, which slow it. */
static int64_t beside_ns(const evaluation *e, int64_t run, int64_t moves)
{
    const int slow = e->p->slowdown;
    const int64_t both = nnc_min64(nnc_mul_sat(run, slow) / 1000, moves),
                  lost = (int64_t)((__int128)both * (slow - 1000) / slow);
    return nnc_max64(nnc_add_sat(run, lost), moves);
}

/* From the start of the first of device d's last passes that compute gradients, one of each chunk, to the end of the last one. */
static int64_t reducing_ns(const evaluation *e, int d, const nnc_pipeline_time *t)
{
    const nnc_task_kind kind = e->pipe.split ? TASK_weight : TASK_backward;
    uint64_t seen = 0;
    int first = e->pipe.n_task;
    for (int i = first - 1; i >= 0; i--) {
        const nnc_task *k = &e->pipe.task[d][i];
        const uint64_t chunk = UINT64_C(1) << (k->stage / e->c->pipeline);
        if (k->kind != kind || seen & chunk)
            continue;
        seen |= chunk;
        first = i;
    }
    return t->last[d] - t->start[d][first];
}

/* ZeRO-3 gathers the weights of each layer for each pass, and scatters its gradients. */
static void zero3(const evaluation *e, reduction *r)
{
    const group gather = replicas_of(e, 0, SEARCH_allgather),
                scatter = replicas_of(e, 0, SEARCH_reduce_scatter);
    int64_t run[2] = {0, 0}, moves[2] = {0, 0};
    for (int i = 0; i < e->p->n_layer; i++) {
        const int64_t ns = group_ns(&gather, at(e->costs->weights, i));
        run[0] = nnc_add_sat(run[0], e->forward[i]);
        run[1] = nnc_add_sat(run[1], nnc_add_sat(e->backward[i], e->weight[i]));
        moves[0] = nnc_add_sat(moves[0], ns);
        moves[1] =
            nnc_add_sat(moves[1], nnc_add_sat(ns, group_ns(&scatter, at(e->costs->gradients, i))));
    }
    const int passes = e->p->forward ? 1 : 2, micro = e->c->micro;
    *r = (reduction){0};
    for (int k = 0; k < passes; k++) {
        r->end = nnc_add_sat(r->end, nnc_mul_sat(micro, beside_ns(e, run[k], moves[k])));
        r->all = nnc_add_sat(r->all, nnc_mul_sat(micro, moves[k]));
    }
}

/* A lower bound: the device's collectives follow each other from its first reducing pass on, and the last one follows all passes. With
 * ZeRO-2 each micro-batch has its own. */
static void reduce(
    const evaluation *e, int d, const int *cut_at, const nnc_pipeline_time *t, reduction *r)
{
    const nnc_search_problem *p = e->p;
    const nnc_search_collective kind = e->c->zero ? SEARCH_reduce_scatter : SEARCH_allreduce;
    const int times = e->c->zero == 2 ? e->c->micro : 1;
    *r = (reduction){.end = p->planned ? t->total : t->last[d]};
    if (e->c->data < 2 || p->forward)
        return;
    int64_t tail = 0;
    const int64_t ns = exchange_ns(
                      e, d, cut_at, kind, p->serial ? INT64_MAX : p->bucket_bytes, &tail),
                  run = reducing_ns(e, d, t);
    const int64_t exposed = is_serial(e) ? ns : nnc_max64(beside_ns(e, run, ns) - run, tail);
    r->all = nnc_mul_sat(times, ns);
    r->end = nnc_add_sat(r->end, nnc_mul_sat(times, exposed));
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

/* Virtual stages' times; *compute, *tensor: sums over all of an iteration's passes. */
static nnc_status stage_costs(
    evaluation *e, const int *cut_at, nnc_pipeline_costs *x, int64_t *compute, int64_t *tensor)
{
    int64_t *v[4];
    for (int k = 0; k < 4; k++)
        NNC_NEED(v[k] = ARENA_NEW(e->keep, int64_t, e->stages), e->sink);
    for (int k = 0; k < 3; k++)
        e->out->pass[k] = v[k];
    for (int s = 0; s < e->stages; s++) {
        const int i = cut_at[s], j = cut_at[s + 1];
        v[0][s] = sum_of(e->forward, i, j);
        v[1][s] = e->p->forward ? 0 : sum_of(e->backward, i, j);
        v[2][s] = e->p->forward ? 0 : sum_of(e->weight, i, j);
        if (s + 1 < e->stages)
            v[3][s] = stage_send(
                e, s % e->c->pipeline, (s + 1) % e->c->pipeline, at(e->costs->boundary, j));
        *compute = nnc_add_sat(*compute, nnc_add_sat(v[0][s], nnc_add_sat(v[1][s], v[2][s])));
        int64_t moves = nnc_mul_sat(e->c->recompute ? 2 : 1, sum_of(e->costs->forward_comm, i, j));
        if (!e->p->forward)
            moves = nnc_add_sat(moves, sum_of(e->costs->backward_comm, i, j));
        *tensor = nnc_add_sat(*tensor, moves);
        nnc_search_stage *of = &e->out->stage[s % e->c->pipeline];
        of->tensor = nnc_add_sat(of->tensor, nnc_mul_sat(e->c->micro, moves));
    }
    *compute = nnc_mul_sat(e->c->micro, *compute);
    *tensor = nnc_mul_sat(e->c->micro, *tensor);
    *compute -= *tensor;
    *x = (nnc_pipeline_costs){v[0], v[1], v[2], v[3], .senders_wait = e->p->planned};
    return NNC_OK;
}

/* Memory of a device, in parts. */
static void fill(evaluation *e, int d, const int *cut_at)
{
    const nnc_search_costs *of = e->costs;
    const nnc_combination *c = e->c;
    nnc_search_stage *u = &e->out->stage[d];
    const int64_t flight = (nnc_pipeline_in_flight(&e->pipe, d) + c->chunks - 1) / c->chunks;
    for (int k = 0; k < c->chunks; k++)
        for (int i = cut_at[k * c->pipeline + d]; i < cut_at[k * c->pipeline + d + 1]; i++) {
            u->fill[FILLED_weights] = nnc_add_sat(
                u->fill[FILLED_weights], shared(at(of->weights, i), c->zero >= 3, c->data));
            u->fill[FILLED_gradients] = nnc_add_sat(
                u->fill[FILLED_gradients], shared(at(of->gradients, i), c->zero >= 2, c->data));
            u->fill[FILLED_optimizer] = nnc_add_sat(
                u->fill[FILLED_optimizer], shared(at(of->states, i), c->zero >= 1, c->data));
            const bool first = i == cut_at[k * c->pipeline + d];
            u->fill[FILLED_saved] = nnc_add_sat(u->fill[FILLED_saved],
                nnc_mul_sat(flight, nnc_add_sat(e->saved[i], first ? e->kept[i] : 0)));
        }
    u->fill[FILLED_working] = e->transient;
    u->bytes = 0;
    for (int k = 0; k < SEARCH_FILLS; k++)
        u->bytes = nnc_add_sat(u->bytes, u->fill[k]);
    e->out->bytes = nnc_max64(e->out->bytes, u->bytes);
}

/* The end of device d: its gradients, then its update. */
static void finish_device(const evaluation *e, int d, const int *cut_at, const nnc_pipeline_time *t,
    int64_t *end, int64_t *reduced, int64_t *update, int64_t *all)
{
    const nnc_combination *c = e->c;
    reduction r;
    *update = 0;
    for (int k = 0; k < c->chunks && !e->p->forward; k++) {
        const int s = k * c->pipeline + d;
        *update = nnc_add_sat(*update, sum_of(e->costs->optimizer, cut_at[s], cut_at[s + 1]));
    }
    *update = shared(*update, c->zero > 0, c->data);
    if (c->zero == 3)
        zero3(e, &r);
    else
        reduce(e, d, cut_at, t, &r);
    int64_t tail = 0;
    const int64_t gather = c->zero == 1 || c->zero == 2
                               ? exchange_ns(e, d, cut_at, SEARCH_allgather, INT64_MAX, &tail)
                               : 0; /* what was updated */
    *reduced = nnc_add_sat(r.end, gather);
    *end = nnc_add_sat(*reduced, *update);
    *all = nnc_add_sat(r.all, gather);
}

static nnc_status evaluate_cut(evaluation *e, const int *cut_at)
{
    const nnc_combination *c = e->c;
    nnc_search_result *o = e->out;
    nnc_pipeline_costs x;
    nnc_pipeline_time t, bare;
    int64_t compute = 0, tensor = 0, sends = 0;
    NNC_TRY(stage_costs(e, cut_at, &x, &compute, &tensor));
    NNC_TRY(nnc_pipeline_run(&e->pipe, &x, e->a, &t, e->sink));
    bare = t;
    for (int s = 0; s + 1 < e->stages; s++)
        sends = nnc_max64(sends, x.send[s]);
    x.send = NULL;
    if (sends && !e->brief)
        NNC_TRY(nnc_pipeline_run(&e->pipe, &x, e->a, &bare, e->sink));
    int64_t end = 0, reduced = 0, all = 0;
    for (int d = 0; d < c->pipeline; d++) {
        int64_t device_end, device_reduced, update, collectives;
        finish_device(e, d, cut_at, &t, &device_end, &device_reduced, &update, &collectives);
        if (device_end > end) {
            end = device_end;
            reduced = device_reduced;
            all = collectives;
        }
        o->stage[d].busy = nnc_add_sat(t.busy[d], update);
        fill(e, d, cut_at);
    }
    o->ns = end;
    o->optimizer = end - reduced;
    o->data = nnc_max64(reduced - t.total, 0);
    o->compute = compute / c->pipeline;
    o->tensor = tensor / c->pipeline;
    o->send = nnc_max64(t.total - bare.total, 0);
    o->bubble = o->ns - o->optimizer - o->data - o->compute - o->tensor - o->send;
    sends = nnc_mul_sat(c->micro * (e->p->forward ? 1 : 2), nnc_mul_sat(sends, c->chunks));
    o->hidden = nnc_max64(sends - o->send, 0) + nnc_max64(all - o->data, 0);
    return NNC_OK;
}

static const nnc_search_costs *costs_of(const nnc_search_problem *p, const nnc_combination *c)
{
    for (int i = 0; i < p->n_costs; i++)
        if (p->costs[i].tensor == c->tensor && p->costs[i].size == c->size)
            return &p->costs[i];
    return NULL;
}

static nnc_status evaluate(const nnc_search_problem *p, const nnc_combination *c, bool brief,
    search_cuts *cuts, nnc_arena *a, nnc_search_result *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) mine = {0};
    evaluation e = {.p = p,
        .costs = costs_of(p, c),
        .c = c,
        .out = out,
        .brief = brief,
        .cuts = cuts,
        .stages = c->pipeline * c->chunks,
        .keep = a,
        .a = &mine,
        .sink = sink};
    const char *why;
    *out = (nnc_search_result){.c = *c};
    if (!e.costs || e.stages > p->n_layer) {
        out->pruned = PRUNE_layers;
        return NNC_OK;
    }
    if (!nnc_pipeline_possible(c->schedule, c->pipeline, c->micro, c->chunks, &why) ||
        (c->recompute && !p->segment)) {
        out->pruned = PRUNE_schedule;
        return NNC_OK;
    }
    int *cut_at;
    NNC_TRY(nnc_pipeline_make(c->schedule, c->pipeline, c->micro, c->chunks, &mine, &e.pipe, sink));
    NNC_TRY(prepare_evaluation(&e));
    NNC_TRY(cut(&e, &cut_at));
    if (out->pruned)
        return NNC_OK;
    out->cut = ARENA_NEW(a, int, e.stages + 1);
    out->stage = ARENA_NEW(a, nnc_search_stage, c->pipeline);
    NNC_NEED(out->cut && out->stage, sink);
    memcpy(out->cut, cut_at, ((size_t)e.stages + 1) * sizeof *cut_at);
    return evaluate_cut(&e, cut_at);
}

nnc_status nnc_search_evaluate(const nnc_search_problem *p, const nnc_combination *c, nnc_arena *a,
    nnc_search_result *out, nnc_sink *sink)
{
    return evaluate(p, c, false, NULL, a, out, sink);
}

nnc_status search_time(const nnc_search_problem *p, const nnc_combination *c, search_cuts *cuts,
    int64_t *ns, nnc_prune *pruned, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_search_result r;
    NNC_TRY(evaluate(p, c, true, cuts, &a, &r, sink));
    *ns = r.ns;
    *pruned = r.pruned;
    return NNC_OK;
}

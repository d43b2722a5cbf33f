/* strategy/auto.c -- the strategy `auto`: the best combination of data, tensor and pipeline parallelism, micro-batch, schedule, ZeRO
 * and recomputation for a model on its devices. */
#include "session/session.h"
#include "strategy/auto.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include "picture/picture.h"
#include <string.h>

enum { KEEP = 5, MOST_TENSOR = 64 };

/* The strategy by which nnc executes tensor groups. */
#define SPLIT_BY NNC_STRATEGY_channel

/* ---- other micro-batches ------------------------------------------------------------------------------------ */

static bool same_blocks(const nnc_partition_model *a, const nnc_partition_model *b)
{
    return a->n_layer == b->n_layer && a->n_block == b->n_block && a->n_edge == b->n_edge &&
           !memcmp(a->first, b->first, (size_t)a->n_block * sizeof *a->first);
}

static bool has_arg(const nnc_model *m, const char *name, int64_t value)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_printf(&text, "%lld", (long long)value);
    for (int i = 0; m->given && i < m->given->n_arg; i++)
        if (!strcmp(m->given->arg[i].name, name))
            return !strcmp(m->given->arg[i].value, nnc_text_str(&text));
    return m->given != NULL;
}

/* Measures m for micro-batches of another batch; *ok false: it has no arg of this name, or is fused otherwise then. */
static nnc_status measure_size(nnc_env *e, const nnc_model *m, const nnc_training *training,
    nnc_partition_table *t, int64_t batch, nnc_partition_model *out, bool *ok, nnc_arena *a,
    nnc_sink *sink)
{
    NNC_OWNED(nnc_sink) *quiet = nnc_sink_create();
    NNC_NEED(quiet, sink);
    const nnc_set set = {"batch", batch};
    const nnc_model_options o = {.set = &set, .n_set = 1};
    NNC_OWNED(nnc_graph) *g = nnc_model_again(m, &o, quiet);
    *ok = g && !nnc_partition_measure(e, g, training, t->o, out, a, quiet) && out->batch == batch &&
          same_blocks(out, t->m);
    return nnc_sink_cause(quiet, NNC_OK) == NNC_E_NOMEM ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_partition_sizes(nnc_env *e, const nnc_model *m, const nnc_training *training,
    nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    const int64_t own = t->m->batch, all = t->micro * own,
                  batch[] = {own % 4 ? 0 : own / 4, 4 * own, 16 * own};
    nnc_partition_model *size = ARENA_NEW(a, nnc_partition_model, NNC_COUNT(batch));
    NNC_NEED(size, sink);
    t->size = size;
    if (!m->given || t->o->measure || !has_arg(m, "batch", own))
        return NNC_OK;
    for (size_t k = 0; k < NNC_COUNT(batch); k++) {
        bool ok = false;
        if (batch[k] > 0 && batch[k] <= all)
            NNC_TRY(measure_size(e, m, training, t, batch[k], &size[t->n_size], &ok, a, sink));
        t->n_size += ok;
    }
    return NNC_OK;
}

/* ---- the search --------------------------------------------------------------------------------------------- */

typedef struct auto_problem {
    nnc_search_problem p;
    rows *r;
} auto_problem;

/* Tensor groups lie within a node: degrees that divide its devices. */
static bool tensor_degree(const rows *r, int t)
{
    const nnc_cluster *c = r->t->cluster;
    const int node = c && c->per_node < r->n ? c->per_node : r->n;
    return t == 1 || (r->t->graph && t <= node && node % t == 0);
}

static nnc_status make_costs(rows *r, auto_problem *x)
{
    size_t cap = 0;
    nnc_search_costs *costs = NULL;
    rows group = *r;
    if (!x->p.planned)
        auto_tensor_links(&group);
    for (int t = 1; t <= r->n && t <= MOST_TENSOR; t++) {
        row_split_cost split;
        bool ok = tensor_degree(r, t);
        if (ok && t > 1)
            NNC_TRY(row_split_costs(&group, SPLIT_BY, t, &split, &ok));
        for (int k = 0; ok && k <= (x->p.planned ? 0 : r->t->n_size); k++) {
            NNC_NEED(ARENA_ROOM(r->a, costs, cap, x->p.n_costs + 1), r->sink);
            nnc_search_costs *to = &costs[x->p.n_costs++];
            NNC_TRY(auto_costs(r, k ? &r->t->size[k - 1] : r->m, t, &split, to));
            if (!x->p.planned || r->t->o->bucket_mb > 0)
                to->small = NULL;
        }
    }
    x->p.costs = costs;
    return NNC_OK;
}

/* Plans of replicas without a pipeline, where each has one device, may reduce gradients beside the backward pass. */
static bool is_serial(const void *ctx, const nnc_combination *c)
{
    const rows *r = ctx;
    return c->tensor > 1 || !row_is_beside(r, c->micro, c->zero);
}

/* Does nnc execute it? Tensor groups within stages it does not have, nor ZeRO's stage 3. Replicas are side by side in its plans. */
static bool can_execute(const void *ctx, const nnc_combination *c)
{
    const rows *r = ctx;
    return r->n <= NNC_MAX_DEVICES && c->data * c->tensor * c->pipeline == r->n &&
           (c->tensor == 1 || c->pipeline == 1) && c->zero <= (c->data > 1 ? NNC_ZERO_MOST : 0) &&
           !c->recompute && c->size == r->m->batch &&
           (c->pipeline == 1 || (c->micro > 1 && !c->data_first));
}

static nnc_status clock_of(void *ctx, const nnc_search_result *found, int64_t *ns)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const auto_problem *x = ctx;
    rows r = *x->r;
    r.a = &a;
    return auto_clock(&r, &x->p, found, true, ns);
}

/* planned: combinations that nnc executes, as it executes them. */
static nnc_status make_problem(rows *r, bool planned, auto_problem *x)
{
    bool *segment;
    *x = (auto_problem){
        .p = {.n_layer = r->m->n_block,
            .devices = r->n,
            .samples = r->micro * r->m->batch,
            .capacity = r->capacity,
            .bucket_bytes = (int64_t)(nnc_option_or(r->t->o->bucket_mb, NNC_BUCKET_MB) * 1e6),
            .slowdown = r->slowdown,
            .planned = planned,
            .is_serial = planned ? is_serial : NULL,
            .serial_ctx = r,
            .takes = planned ? can_execute : NULL,
            .takes_ctx = r,
            .clock = clock_of,
            .clock_ctx = x,
            .forward = !r->m->step}};
    x->r = r;
    x->p.links = auto_search_links(r->shared);
    NNC_TRY(auto_segments(r, r->m, &segment));
    x->p.segment = segment;
    return make_costs(r, x);
}

/* ---- the row ------------------------------------------------------------------------------------------------ */

static const char *name_of(rows *r, const nnc_combination *c)
{
    NNC_LOCAL(nnc_text) text = {0};
    nnc_combination_name(c, &text);
    if (c->size != r->m->batch)
        nnc_printf(&text, ", micro-batches of %d", c->size);
    return text.oom ? NULL : nnc_arena_strdup(r->a, nnc_text_str(&text));
}

static nnc_status execute(rows *r, nnc_partition_row *row, const nnc_search_result *x)
{
    const nnc_combination *c = &x->c;
    bool can;
    nnc_partition_way way = {.runs = c->micro, .replicas = c->data, .zero = c->zero};
    NNC_TRY(row_can_divide(r, &can));
    if (!can && c->data * c->pipeline > 1)
        return NNC_OK;
    if (c->pipeline > 1) {
        way.runs = 1;
        way.micro = c->micro;
        way.strategy = nnc_strategy_of(c->schedule);
        way.chunks = c->chunks > 1 ? c->chunks : 0;
        NNC_NEED(row->place = row_place_of_stages(r, c->pipeline, c->pipeline * c->chunks, x->cut),
            r->sink);
        if (c->data > 1)
            way.streams = row_way_of_data(r, 1, c->zero).streams;
    } else if (c->data > 1 && c->tensor == 1) {
        way = row_way_of_data(r, c->micro, c->zero);
    } else {
        way.strategy = c->tensor > 1 ? SPLIT_BY : NNC_STRATEGY_layers;
        way.devices = c->tensor > 1 ? 0 : 1;
    }
    row_executes(r, row, way);
    return NNC_OK;
}

/* The row of a plan that another strategy has, too, is that strategy's: one plan has one estimate. *done false: no other has it. */
static nnc_status same_plan(rows *r, nnc_partition_row *row, const nnc_search_result *x, bool *done)
{
    const nnc_combination *c = &x->c;
    const nnc_strategy own = row->id;
    nnc_status st;
    *done = can_execute(r, c) && (c->data == r->n || c->pipeline == r->n || c->tensor == r->n);
    if (!*done)
        return NNC_OK;
    if (r->n == 1)
        return row_single(r, row);
    if (c->pipeline > 1)
        return row_stages(r, row, (nnc_pipeline_kind)c->schedule, c->chunks, x->cut);
    if (c->data > 1) {
        r->zero = c->zero;
        st = row_data(r, row);
        r->zero = 0;
        return st;
    }
    row->id = SPLIT_BY;
    st = row_split(r, row);
    row->id = own;
    *done = !row->why_not;
    row->why_not = NULL;
    return st;
}

/* Devices that no replica uses stay empty. */
static nnc_status fill_devices(rows *r, nnc_partition_row *row, const nnc_search_result *x)
{
    const nnc_combination *c = &x->c;
    for (int s = 0; s < c->pipeline; s++) {
        const char *layers = NULL;
        for (int k = 0; k < c->chunks; k++) {
            const int at = k * c->pipeline + s;
            layers = row_layers(r, layers, x->cut[at], x->cut[at + 1]);
            NNC_NEED(layers, r->sink);
        }
        for (int d = 0; d < c->data; d++)
            for (int t = 0; t < c->tensor; t++) {
                nnc_device_use *u = &row->use[nnc_combination_device(c, d, s, t)];
                u->layers = layers;
                u->busy_ns = x->stage[s].busy - x->stage[s].tensor;
                memcpy(u->fill, x->stage[s].fill, sizeof u->fill);
            }
    }
    row->exposed_ns = nnc_add_sat(row->exposed_ns, x->tensor);
    if (can_execute(r, c))
        NNC_TRY(execute(r, row, x));
    return row_finish(r, row);
}

/* Combinations with too many tasks during the search are judged by the clock, too. Best first. */
static nnc_status order(rows *r, const auto_problem *x, const nnc_auto_search *s)
{
    nnc_search_result *best = s->found.best;
    for (int i = 0; i < s->found.n; i++) {
        if (!best[i].clock_ns)
            NNC_TRY(auto_clock(r, &x->p, &best[i], false, &best[i].clock_ns));
        const nnc_search_result now = best[i];
        int k = i;
        for (; k > 0 && nnc_search_ns(&now) < nnc_search_ns(&best[k - 1]); k--)
            best[k] = best[k - 1];
        best[k] = now;
    }
    return NNC_OK;
}

/* The row of what was found, best first. */
static nnc_status search_row(
    rows *r, nnc_partition_row *row, const auto_problem *x, nnc_auto_search *s)
{
    NNC_NEED(s->name = ARENA_NEW(r->a, const char *, KEEP), r->sink);
    NNC_TRY(order(r, x, s));
    for (int k = 0; k < s->found.n; k++)
        NNC_NEED(s->name[k] = name_of(r, &s->found.best[k].c), r->sink);
    NNC_NEED(row->strategy = nnc_arena_printf(r->a, "%s: %s", row->strategy, s->name[0]), r->sink);
    row->search = s;
    bool done = false;
    if (x->p.planned)
        NNC_TRY(same_plan(r, row, &s->found.best[0], &done));
    if (done)
        return NNC_OK;
    NNC_TRY(auto_run(r, row, &x->p, &s->found.best[0]));
    return fill_devices(r, row, &s->found.best[0]);
}

static nnc_status searched_row(
    rows *r, nnc_partition_row *row, bool planned, const char *nothing_fits)
{
    auto_problem x;
    nnc_auto_search *s = ARENA_NEW(r->a, nnc_auto_search, 1);
    NNC_NEED(s, r->sink);
    NNC_TRY(make_problem(r, planned, &x));
    NNC_TRY(nnc_search(&x.p, KEEP, r->a, &s->found, r->sink));
    if (s->found.n)
        return search_row(r, row, &x, s);
    row->lacks_memory = true;
    row->why_not = nothing_fits;
    return NNC_OK;
}

nnc_status row_auto(rows *r, nnc_partition_row *row)
{
    return searched_row(
        r, row, false, "no combination of data, tensor and pipeline parallelism fits the memory");
}

nnc_status row_hybrid(rows *r, nnc_partition_row *row)
{
    if (r->n <= NNC_MAX_DEVICES)
        return searched_row(r, row, true,
            "nnc executes no combination of replicas with pipelines or splits that fits");
    row->why_not =
        nnc_arena_printf(r->a, "nnc executes plans of at most %d devices", NNC_MAX_DEVICES);
    return row->why_not ? NNC_OK : nnc_nomem(r->sink);
}

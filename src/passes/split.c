/* passes/split.c -- ops divided among devices: a graph of one device becomes one of several, whose nodes compute parts of its values. */
#include "passes/split.h"

const nnc_pass_info nnc_split_notes = {"split", 0, false, "divides ops among devices (--split)"};

const char *const nnc_split_words[NNC_SPLIT__COUNT] = {[NNC_SPLIT_follow] = "follow",
    [NNC_SPLIT_whole] = "whole",
    [NNC_SPLIT_columns] = "columns",
    [NNC_SPLIT_rows] = "rows",
    [NNC_SPLIT_batch] = "batch",
    [NNC_SPLIT_height] = "height",
    [NNC_SPLIT_width] = "width",
    [NNC_SPLIT_features] = "features",
    [NNC_SPLIT_space] = "space"};

/* The pass places nodes itself, and does not support states. */
static nnc_status check(const nnc_graph *g, int n, nnc_sink *sink)
{
    if (n < 1 || n > INT16_MAX)
        return nnc_fail0(
            sink, NNC_E_USAGE, "ops are split over 1 to %d devices, not %d", INT16_MAX, n);
    if (nnc_result_outputs(g) != g->n_output)
        return nnc_fail0(sink, NNC_E_USAGE,
            "%s updates states: its forward graph is split, and the training step made of that",
            g->name);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        nnc_loc loc = x->loc;
        loc.path = x->origin;
        if (x->device > 0)
            return nnc_fail(sink, NNC_E_USAGE, loc,
                "is placed on device %d: layers are either placed or split, leave --place or "
                "\"device\" out",
                x->device);
    }
    return NNC_OK;
}

static bool alloc(splitter *c)
{
    const size_t v = (size_t)c->s->n_value + 1, n = (size_t)c->s->n_node + 1;
    c->fixed = nnc_static_values(c->s, c->a);
    c->uses = nnc_use_counts(c->s, c->a);
    c->choice = ARENA_NEW(c->a, choice, n);
    c->pick = ARENA_NEW(c->a, uint8_t, n);
    c->gathered = ARENA_NEW(c->a, bool, v);
    c->have = ARENA_NEW(c->a, uint16_t, v);
    c->everywhere = ARENA_NEW(c->a, bool, v);
    c->local = ARENA_NEW(c->a, bool, n);
    c->broadcast = ARENA_NEW(c->a, bool, v);
    c->statistic = ARENA_NEW(c->a, bool, v);
    c->demand = ARENA_NEW(c->a, uint8_t, v);
    c->form = ARENA_NEW(c->a, nnc_ref *, v * LAYOUTS);
    c->g = nnc_graph_create(c->s->name, c->sink);
    for (uint32_t i = 0; c->statistic && i < c->s->n_node; i++)
        for (int k = 0; k < c->s->node[i].n_in; k++)
            if (nnc_reads_statistic(&c->s->node[i], k))
                c->statistic[c->s->node[i].in[k]] = true;
    return c->fixed && c->statistic && c->pick && c->gathered && c->uses && c->choice && c->have &&
           c->everywhere && c->local && c->broadcast && c->demand && c->form && c->g;
}

/* Remarks that account for the difference between both graphs: repeated computations, and data moved between devices. */
static nnc_status remark_all(const splitter *c)
{
    const nnc_cost before = nnc_graph_cost(c->s), after = nnc_graph_cost(c->g);
    nnc_remark m = {.pass = nnc_split_notes.name,
        .applied = true,
        .rule = "all devices",
        .n_layers = 1,
        .bytes_saved = before.bytes - after.bytes,
        .launches_saved = before.launches - after.launches};
    NNC_LOCAL(nnc_text) t = {0};
    if (!c->remarks)
        return NNC_OK;
    nnc_printf(&t, "%d devices run %d commands instead of %d, and send each other ", c->n,
        after.launches, before.launches);
    nnc_put_bytes(&t, c->cost.bytes);
    m.reason = nnc_arena_strdup(&c->remarks->arena, nnc_text_str(&t));
    m.layer = ARENA_NEW(&c->remarks->arena, const char *, 1);
    NNC_NEED(before.launches >= 0 && after.launches >= 0 && !t.oom && m.reason && m.layer, c->sink);
    m.layer[0] = nnc_arena_strdup(&c->remarks->arena, c->s->name);
    NNC_NEED(m.layer[0] && nnc_remarks_add(c->remarks, &m), c->sink);
    return NNC_OK;
}

nnc_status nnc_split(const nnc_graph *g, const nnc_split_options *o, nnc_graph **out,
    nnc_split_cost *cost, nnc_remarks *remarks, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    splitter c = {.s = g,
        .n = o->n_device,
        .by = o->by,
        .heard = o->heard,
        .trains = o->trains,
        .a = &a,
        .sink = sink,
        .remarks = remarks};
    *out = NULL;
    NNC_TRY(check(g, o->n_device, sink));
    nnc_status st = alloc(&c) ? NNC_OK : nnc_nomem(sink);
    if (!st)
        st = split_search(&c);
    if (!st)
        st = split_build(&c);
    if (!st)
        st = c.g->status;
    if (!st)
        st = nnc_graph_tidy(c.g);
    if (!st)
        st = nnc_verify(c.g, sink);
    if (!st)
        st = remark_all(&c);
    if (st) {
        nnc_graph_destroy(c.g);
        return st;
    }
    c.g->origin = NULL;
    c.g->loc = (nnc_loc){0};
    c.g->device = -1;
    if (cost)
        *cost = c.cost;
    *out = c.g;
    return NNC_OK;
}

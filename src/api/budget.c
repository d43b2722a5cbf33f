/* api/budget.c -- --memory-budget: of several ways to divide what a training step keeps from what it computes again (passes/recompute.c)
 * the one that is expected to take least time among those whose plan fits. Each is planned, without machine code. */
#include "api/internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct way {
    int price, segments;
    int64_t bytes, ns; /* of its plan */
} way;

enum { DEAR = 100000 }; /* a price at which everything is computed again that may be */

/* "300MiB", "1.5 GiB", "2000000000", "60%": a share of `usual`. -1: none of these. */
static int64_t parse_budget(const char *s, int64_t usual)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
        {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"%", 0}};
    char *end;
    const double v = nnc_strtod(s, &end);
    if (end == s || !(v > 0) || v > 1e15)
        return -1;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < NNC_COUNT(units); i++)
        if (!strcmp(end, units[i].unit))
            return (int64_t)(v * (units[i].factor ? units[i].factor : (double)usual / 100));
    return -1;
}

/* What the plan needs on the device that needs most, and the time of a step. */
static void measure_plan(const nnc_env *e, const nnc_plan *p, way *w)
{
    for (int d = 0; d < p->n_device; d++) {
        const nnc_plan_device *v = &p->device[d];
        w->bytes = nnc_max64(
            w->bytes, nnc_add_sat(v->persist_bytes, nnc_max64(v->arena_bytes, v->init_bytes)));
    }
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy)
            w->ns = nnc_add_sat(
                w->ns, nnc_target_time_ns(
                           nnc_target_on(e->target, e->n_target, c->device), c->flops, c->bytes));
    }
}

static nnc_status try_way(
    nnc_env *e, const nnc_compile_options *o, const nnc_graph *source, way *w, nnc_sink *sink)
{
    nnc_artifact *a = nnc_artifact_create(o);
    NNC_NEED(a, sink);
    a->memory_price = w->price;
    a->segments = w->segments;
    a->graph = nnc_graph_clone(source, sink);
    nnc_status st = a->graph ? nnc_compile_graph(e, o, false, a, sink) : nnc_nomem(sink);
    if (!st)
        measure_plan(e, a->plan, w);
    nnc_artifact_destroy(a);
    return st;
}

static nnc_status tell(nnc_artifact *a, const way *usual, const way *w, int tried, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t,
        "of %d ways to compute results again, this one is expected to be the fastest within %s: ",
        tried, a->options->memory_budget);
    nnc_put_bytes(&t, w->bytes);
    nnc_printf(&t, " and %.3g ms by estimate, usually ", (double)w->ns * 1e-6);
    nnc_put_bytes(&t, usual->bytes);
    nnc_printf(&t, " and %.3g ms", (double)usual->ns * 1e-6);
    const nnc_remark r = {.pass = "recompute",
        .applied = true,
        .rule = "memory budget",
        .reason = t.oom ? NULL : nnc_arena_strdup(&a->remarks.arena, nnc_text_str(&t))};
    return r.reason && nnc_remarks_add(&a->remarks, &r) ? NNC_OK : nnc_nomem(sink);
}

static nnc_status refuse(const nnc_compile_options *o, int64_t least, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_put_bytes(&t, least);
    return nnc_fail0(sink, NNC_E_FIT,
        "a training step does not fit into --memory-budget=%s: the smallest plan found needs %s "
        "(%lld bytes), weights included",
        o->memory_budget, nnc_text_str(&t), (long long)least);
}

nnc_status nnc_fit_budget(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink)
{
    static const int price[] = {1000, DEAR}, segments[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    way usual = {NNC_MEMORY_PRICE, 0, 0, 0}, best = {0};
    int64_t budget;
    int tried = 1;
    if (!o->memory_budget)
        return NNC_OK;
    if (nnc_result_outputs(a->source) == a->source->n_output)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--memory-budget is of training steps: it needs --mode=step");
    NNC_TRY(try_way(e, o, a->source, &usual, sink));
    if ((budget = parse_budget(o->memory_budget, usual.bytes)) < 0)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--memory-budget=%s: expected bytes, as in 2000000000, 1.5GiB or 800MiB, or a share of "
            "what "
            "a step usually needs, as in 60%%",
            o->memory_budget);
    int64_t least = usual.bytes;
    best = usual;
    for (size_t i = 0; usual.bytes > budget && i < NNC_COUNT(price) * NNC_COUNT(segments); i++) {
        way w = {price[i % NNC_COUNT(price)], segments[i / NNC_COUNT(price)], 0, 0};
        NNC_TRY(try_way(e, o, a->source, &w, sink));
        least = nnc_min64(least, w.bytes);
        tried++;
        if (w.bytes <= budget && (best.bytes > budget || w.ns < best.ns))
            best = w;
    }
    if (best.bytes > budget)
        return refuse(o, least, sink);
    a->memory_price = best.price;
    a->segments = best.segments;
    return tell(a, &usual, &best, tried, sink);
}

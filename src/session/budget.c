/* session/budget.c -- --memory-budget divides what a training step keeps from what it computes again (passes/recompute.c). Among the
 * ways whose plan fits it takes the one with the least expected time. The passes before recompute run once for all ways. Memory and
 * time of each are estimated from the graph that recompute leaves (plan/estimate.c). Few are planned, without machine code: the
 * fastest by estimate of those that may fit, until one does. */
#include "session/session.h"
#include <string.h>

typedef struct way {
    int price, segments;
    int64_t rough_bytes, rough_ns; /* estimates, of the arena and of most commands */
    int64_t bytes, ns; /* of its plan; 0: not planned */
} way;

/* recompute at every price, or with so many segments; MANY: at a price at which everything is computed again that may be */
enum { DEAR = 100000, WAYS = 22, PLANS = 3, LEAST = 6 };
static const int prices[] = {1000, DEAR}, segments[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
static const char *const first_pass = "recompute", *const next_pass = "in_place";

typedef struct search {
    nnc_env *e;
    const nnc_compile_options *o; /* without functions that are told of passes */
    const nnc_artifact *a; /* its graph: what the passes before recompute left */
    nnc_work_memo memo;
    way usual, way[WAYS], *best;
    int n, planned;
    int64_t budget;
    nnc_sink *sink;
} search;

/* "300MiB", "1.5 GiB", "2000000000", "60%": a share of `usual`. -1: none of these. */
int64_t nnc_parse_budget(const char *s, int64_t usual)
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

/* Memory that the plan needs on the fullest device, and the time of a step. */
void nnc_plan_needs(const nnc_env *e, const nnc_plan *p, int64_t *bytes, int64_t *ns)
{
    *bytes = *ns = 0;
    for (int d = 0; d < p->n_device; d++)
        *bytes = nnc_max64(*bytes, nnc_device_needs(p, d));
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy ||
            c->kind == CMD_collective)
            *ns = nnc_add_sat(
                *ns, nnc_target_time_ns(
                         nnc_target_on(e->target, e->n_target, c->device), c->flops, c->bytes));
    }
}

/* A copy of what the passes before recompute left. NULL: out of memory. */
static nnc_artifact *start(const search *s, const way *w)
{
    nnc_artifact *b = nnc_artifact_create(s->o);
    if (!b)
        return NULL;
    b->memory_price = w->price;
    b->segments = w->segments;
    b->graph = nnc_graph_clone(s->a->graph, s->sink);
    if (b->graph)
        return b;
    nnc_artifact_destroy(b);
    return NULL;
}

static nnc_status estimate(search *s, way *w)
{
    NNC_OWNED(nnc_artifact) *b = start(s, w);
    NNC_NEED(b, s->sink);
    NNC_TRY(nnc_compile_passes(s->e, s->o, first_pass, next_pass, b, s->sink));
    return nnc_estimate_graph(
        s->e, s->o, b->graph, &s->memo, &w->rough_bytes, &w->rough_ns, s->sink);
}

static nnc_status plan(search *s, way *w)
{
    NNC_OWNED(nnc_artifact) *b = start(s, w);
    NNC_NEED(b, s->sink);
    NNC_TRY(nnc_compile_passes(s->e, s->o, first_pass, NULL, b, s->sink));
    NNC_TRY(nnc_plan_graph(s->e, s->o, false, b, s->sink));
    nnc_plan_needs(s->e, b->plan, &w->bytes, &w->ns);
    s->planned++;
    return NNC_OK;
}

void nnc_put_slowdown(nnc_text *t, int64_t ns, int64_t usual_ns)
{
    char times[32];
    nnc_snprintf(times, sizeof times, "%.3g", (double)ns / (double)nnc_max64(usual_ns, 1));
    if (strcmp(times, "1") != 0)
        nnc_printf(t, ", %s times the usual time by estimate", times);
}

/* ---- the search -------------------------------------------------------------------------------------------------------------- */

static bool is_alike(const way *a, const way *b)
{
    return a->rough_bytes == b->rough_bytes && a->rough_ns == b->rough_ns;
}

/* Estimates all ways, and keeps those that differ, the fastest first. */
static nnc_status list_ways(search *s)
{
    for (int i = 0; i < WAYS; i++) {
        way w = {.price = prices[i % NNC_COUNT(prices)],
            .segments = segments[(size_t)i / NNC_COUNT(prices)]};
        NNC_TRY(estimate(s, &w));
        bool known = is_alike(&w, &s->usual);
        for (int k = 0; k < s->n; k++)
            known = known || is_alike(&w, &s->way[k]);
        int at = s->n;
        for (; !known && at > 0 && s->way[at - 1].rough_ns > w.rough_ns; at--)
            s->way[at] = s->way[at - 1];
        if (!known)
            s->way[at] = w;
        s->n += !known;
    }
    return NNC_OK;
}

/* The memory that w's plan is expected to need: as much more than the usual one's as its estimate is more. */
static int64_t expected(const search *s, const way *w)
{
    return s->usual.bytes + w->rough_bytes - s->usual.rough_bytes;
}

/* May w fit, where estimates are up to a seventh of the arena too high? */
static bool may_fit(const search *s, const way *w)
{
    const int64_t slack = s->planned < PLANS ? w->rough_bytes / 8 : 0;
    return !w->bytes && expected(s, w) - slack <= s->budget;
}

static nnc_status try_way(search *s, way *w)
{
    NNC_TRY(plan(s, w));
    if (w->bytes <= s->budget && (!s->best || w->ns < s->best->ns))
        s->best = w;
    return NNC_OK;
}

/* The way that was not planned yet and is expected to need least memory. First those that compute only cheap ops again: estimates of many
 * segments are too low where concats are copied. NULL: all were planned. */
static way *next_least(search *s)
{
    way *least = NULL;
    for (int i = 0; i < s->n; i++) {
        way *w = &s->way[i];
        const bool cheap = w->price != DEAR && w->segments <= 1,
                   first = least && least->price != DEAR && least->segments <= 1;
        if (!w->bytes &&
            (!least || cheap > first || (cheap == first && w->rough_bytes < least->rough_bytes)))
            least = w;
    }
    return least;
}

static nnc_status find_best(search *s)
{
    NNC_TRY(list_ways(s));
    for (int i = 0; i < s->n && !s->best; i++)
        if (may_fit(s, &s->way[i]))
            NNC_TRY(try_way(s, &s->way[i]));
    way *w;
    for (int i = 0; i < LEAST && !s->best && (w = next_least(s)); i++)
        NNC_TRY(try_way(s, w));
    return NNC_OK;
}

static nnc_status tell(nnc_artifact *a, const search *s, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t,
        "of %d ways to compute results again, %d of which were planned, this one is expected to be "
        "the fastest within %s: ",
        s->n + 1, s->planned, a->options->memory_budget);
    nnc_put_bytes(&t, s->best->bytes);
    nnc_printf(&t, " and %.3g ms by estimate, usually ", (double)s->best->ns * 1e-6);
    nnc_put_bytes(&t, s->usual.bytes);
    nnc_printf(&t, " and %.3g ms", (double)s->usual.ns * 1e-6);
    const nnc_remark r = {.pass = "recompute",
        .applied = true,
        .rule = "memory budget",
        .reason = t.oom ? NULL : nnc_arena_strdup(&a->remarks.arena, nnc_text_str(&t))};
    return r.reason && nnc_remarks_add(&a->remarks, &r) ? NNC_OK : nnc_nomem(sink);
}

static nnc_status refuse(const search *s, const char *budget)
{
    const way *least = &s->usual;
    NNC_LOCAL(nnc_text) t = {0}, slowdown = {0};
    for (int i = 0; i < s->n; i++)
        if (s->way[i].bytes && s->way[i].bytes < least->bytes)
            least = &s->way[i];
    if (strchr(budget, '%')) {
        nnc_puts(&t, " (");
        nnc_put_bytes(&t, s->budget);
        nnc_puts(&t, ")");
    }
    nnc_puts(&t, ": the smallest plan found needs ");
    nnc_put_bytes(&t, least->bytes);
    nnc_put_slowdown(&slowdown, least->ns, s->usual.ns);
    return nnc_fail0(s->sink, NNC_E_FIT,
        "a training step does not fit into --memory-budget=%s%s, weights included "
        "(--memory-budget=%lld%s)",
        budget, nnc_text_str(&t), (long long)least->bytes, nnc_text_str(&slowdown));
}

static nnc_status choose_plan(search *s, const char *budget)
{
    NNC_TRY(estimate(s, &s->usual));
    NNC_TRY(plan(s, &s->usual));
    if ((s->budget = nnc_parse_budget(budget, s->usual.bytes)) < 0)
        return nnc_fail0(s->sink, NNC_E_USAGE,
            "--memory-budget=%s: expected bytes, as in 2000000000, 1.5GiB or 800MiB, or a share of "
            "what a step usually needs, as in 60%%",
            budget);
    if (s->usual.bytes <= s->budget)
        s->best = &s->usual;
    else
        NNC_TRY(find_best(s));
    return s->best ? NNC_OK : refuse(s, budget);
}

nnc_status nnc_fit_budget(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) arena = {0};
    nnc_compile_options quiet = *o;
    search s = {.e = e,
        .o = &quiet,
        .a = a,
        .memo = {.arena = &arena},
        .usual = {.price = NNC_MEMORY_PRICE},
        .sink = sink};
    quiet.after_pass = NULL;
    quiet.on_kernel = NULL;
    if (!nnc_graph_is_step(a->source))
        return nnc_fail0(
            sink, NNC_E_USAGE, "--memory-budget is of training steps: it needs --mode=step");
    NNC_TRY(nnc_compile_passes(e, o, NULL, first_pass, a, sink));
    NNC_TRY(choose_plan(&s, o->memory_budget));
    a->memory_price = s.best->price;
    a->segments = s.best->segments;
    NNC_TRY(tell(a, &s, sink));
    return nnc_compile_passes(e, o, first_pass, NULL, a, sink);
}

/* strategy/pictures.c -- the pictures of nnc partition: strategies by time and memory, Gantt charts, memory over time, the graph by
 * device; and the trace. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "frontend/frontend.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef struct drawing {
    const nnc_partition_table *t;
    const char *dir; /* of several pictures; NULL: one, in `file` */
    const char *file;
    nnc_sink *sink;
} drawing;

/* "vgg16, training step on 4 devices (8x A100)" */
static void put_title(const nnc_partition_table *t, nnc_text *out)
{
    nnc_printf(out, "%s, %s on %d device%s: %s", t->m->name,
        t->m->step ? "training step" : "inference", t->devices, nnc_plural(t->devices, "s"),
        t->cluster ? t->cluster->name : t->target->name);
}

static void put_work(const nnc_partition_table *t, nnc_text *out)
{
    nnc_printf(out, "An iteration is %d micro-batch%s of %lld sample%s", t->micro,
        nnc_plural(t->micro, "es"), (long long)t->m->batch, nnc_plural(t->m->batch, "s"));
}

static nnc_status write_file(const drawing *x, const char *name, const nnc_text *svg)
{
    char path[4096];
    if (!x->dir)
        return nnc_write_picture(svg, x->file, x->sink);
    if (snprintf(path, sizeof path, "%s/%s.svg", x->dir, name) >= (int)sizeof path)
        return nnc_fail(x->sink, NNC_E_IO, (nnc_loc){.file = x->dir}, "the path is too long");
    return nnc_write_picture(svg, path, x->sink);
}

/* ---- strategies ------------------------------------------------------------------------------------------ */

static nnc_status draw_strategies(const drawing *x)
{
    const nnc_partition_table *t = x->t;
    NNC_LOCAL(nnc_text) svg = {0};
    NNC_LOCAL(nnc_text) title = {0};
    NNC_LOCAL(nnc_text) note = {0};
    NNC_FREED nnc_scatter_point *point = nnc_calloc((size_t)t->n_row + 1, sizeof *point);
    int n = 0;
    NNC_NEED(point, x->sink);
    for (int i = 0; i < t->n_row; i++) {
        const nnc_partition_row *r = &t->row[i];
        if (r->why_not || r->iteration_ns <= 0)
            continue;
        point[n++] = (nnc_scatter_point){.name = r->strategy,
            .x = (double)r->iteration_ns * 1e-6,
            .y = nnc_partition_fullest(t, r),
            .fits = r->fits,
            .runs = r->executable};
    }
    put_title(t, &title);
    put_work(t, &note);
    const nnc_scatter s = {.title = nnc_text_str(&title),
        .note = nnc_text_str(&note),
        .x_axis = "time of an iteration, ms",
        .y_axis = "memory of the fullest device",
        .capacity = nnc_partition_capacity(t),
        .n = n,
        .point = point};
    nnc_scatter_put(&s, &svg);
    NNC_NEED(!title.oom && !note.oom, x->sink);
    return write_file(x, "strategies", &svg);
}

/* A file's name: the strategy's without the combination that `auto` and `hybrid` found. */
static void put_name(nnc_text *out, const char *prefix, const nnc_partition_row *r)
{
    nnc_printf(out, "%s%.*s", prefix, (int)strcspn(r->strategy, ":"), r->strategy);
}

/* ---- one strategy ---------------------------------------------------------------------------------------- */

static void put_iteration(
    const nnc_partition_table *t, const nnc_partition_row *r, const nnc_timeline *of, nnc_text *out)
{
    const double idle = of->known_ps ? r->bubble : nnc_timeline_idle(of);
    out->oom = out->oom || (!of->known_ps && idle < 0);
    put_work(t, out);
    nnc_puts(out, "; it takes ");
    nnc_put_ms(out, (double)of->total_ps * 1e-9, 0);
    nnc_puts(out, " ms, in which devices are idle for ");
    nnc_printf(out, "%.1f %% of the time", 100 * idle);
    if (of->n_level) /* only a plan's timeline has them */
        nnc_puts(out, ". Simulated from the plan that nnc executes");
    if (r->note)
        nnc_printf(out, "\n%s", r->note);
}

/* A Gantt chart, or the memory over simulated time. */
static nnc_status draw_timeline(
    const drawing *x, const nnc_partition_row *r, bool memory, const char *prefix)
{
    const nnc_timeline *of = r->timeline;
    NNC_LOCAL(nnc_text) svg = {0}, title = {0}, note = {0}, name = {0};
    nnc_printf(&title, "%s%s: ", memory ? "memory of " : "", r->strategy);
    put_title(x->t, &title);
    put_name(&name, prefix, r);
    if (memory) {
        put_work(x->t, &note);
        nnc_puts(&note, ". Simulated from the plan that nnc executes");
        nnc_holds_put(of, nnc_text_str(&title), nnc_text_str(&note), "simulated time", &svg);
    } else {
        put_iteration(x->t, r, of, &note);
        nnc_gantt_put(of, nnc_text_str(&title), nnc_text_str(&note), &svg);
    }
    NNC_NEED(!title.oom && !note.oom && !name.oom, x->sink);
    return write_file(x, nnc_text_str(&name), &svg);
}

/* The strategy that is possible; NULL: there is none, or are several. */
static const nnc_partition_row *only_row(const nnc_partition_table *t)
{
    const nnc_partition_row *only = NULL;
    int n = 0;
    for (int i = 0; i < t->n_row; i++)
        if (!t->row[i].why_not) {
            only = &t->row[i];
            n++;
        }
    return n == 1 ? only : NULL;
}

/* One file: the strategies' scatter, or of a single strategy its Gantt chart. */
static nnc_status draw_one(const drawing *x)
{
    const nnc_partition_row *only = only_row(x->t);
    return only && only->timeline ? draw_timeline(x, only, false, "") : draw_strategies(x);
}

static nnc_status draw_all(const drawing *x)
{
    NNC_TRY(draw_strategies(x));
    for (int i = 0; i < x->t->n_row; i++) {
        const nnc_partition_row *r = &x->t->row[i];
        if (r->timeline)
            NNC_TRY(draw_timeline(x, r, false, "gantt-"));
        if (r->timeline && r->timeline->n_level)
            NNC_TRY(draw_timeline(x, r, true, "memory-"));
    }
    return NNC_OK;
}

static nnc_status draw_svg(const nnc_partition_table *t, nnc_sink *sink)
{
    drawing x = {.t = t, .file = t->o->svg, .sink = sink};
    if (nnc_is_svg(t->o->svg))
        return draw_one(&x);
    x.dir = t->o->svg;
    if (mkdir(x.dir, 0777) != 0 && errno != EEXIST)
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = x.dir},
            "cannot make the folder of --svg: %s (a name that ends in .svg is one picture)",
            strerror(errno));
    return draw_all(&x);
}

/* ---- trace, graph ---------------------------------------------------------------------------------------- */

/* All timelines; of several strategies, each is called by its strategy's name. */
static nnc_status write_trace(const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    const nnc_timeline **all = ARENA_NEW(a, const nnc_timeline *, t->n_row + 1);
    int n = 0;
    NNC_NEED(all, sink);
    for (int i = 0; i < t->n_row; i++) {
        nnc_timeline *of = t->row[i].timeline;
        if (!of)
            continue;
        of->name = nnc_arena_printf(a, "%s, %s", t->row[i].strategy, of->name);
        NNC_NEED(of->name, sink);
        if (!nnc_is_svg(t->o->trace)) /* links are not shared: transfers overlap */
            nnc_timeline_pack(of);
        of->group = i;
        all[n++] = of;
    }
    if (!n) /* no strategy is possible: the report says why */
        return NNC_OK;
    NNC_LOCAL(nnc_text) title = {0};
    put_title(t, &title);
    NNC_NEED(!title.oom, sink);
    return nnc_write_trace(all, n, nnc_text_str(&title), t->o->trace, sink);
}

/* The strategy's layers on devices, as --place says them; NULL: no placement. */
static const char *place_of(const nnc_partition_table *t, const nnc_partition_row *r, nnc_arena *a)
{
    const char *text = "";
    int placed = 0;
    if (r->place)
        return r->place;
    for (int d = 0; d < t->devices && text; d++)
        for (const char *p = r->use[d].layers; *p && text;) {
            const size_t n = strcspn(p, ",");
            text = nnc_arena_printf(a, "%s%s%.*s=%d", text, *text ? "," : "", (int)n, p, d);
            int first = 0, last = 0;
            const int parts = sscanf(p, "%d-%d", &first, &last);
            placed += parts == 2 ? last - first + 1 : 1;
            p += n + (p[n] == ',');
        }
    return placed == t->m->n_layer ? text : NULL; /* otherwise a layer is on several devices */
}

nnc_status nnc_refuse_dot(nnc_sink *sink)
{
    return nnc_fail0(sink, NNC_E_USAGE,
        "--dot draws the graph of one strategy that puts each layer on one device: name it, as in "
        "--strategy=sequential");
}

static nnc_status write_graph(
    nnc_env *e, const nnc_model *m, const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    const nnc_partition_row *only = only_row(t);
    const char *place = only ? place_of(t, only, a) : NULL;
    const bool manual = only && only->id == NNC_STRATEGY_manual; /* m is placed already */
    if (!place && !manual)
        return nnc_refuse_dot(sink);
    NNC_OWNED(nnc_graph) *g = nnc_graph_clone(m, sink);
    NNC_LOCAL(nnc_text) dot = {0};
    nnc_compile_options o = t->o->compile;
    o.devices = t->devices;
    if (!g)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    if (!manual)
        NNC_TRY(nnc_model_place(g, place, sink));
    NNC_TRY(nnc_optimize(e, &g, NULL, 0, &o, sink));
    nnc_graph_dot(&dot, g);
    return nnc_write_dot(&dot, t->o->dot, sink);
}

nnc_status nnc_partition_draw(
    nnc_env *e, const nnc_model *m, const nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    if (t->o->svg)
        NNC_TRY(draw_svg(t, sink));
    if (t->o->trace)
        NNC_TRY(write_trace(t, a, sink));
    return t->o->dot ? write_graph(e, m, t, a, sink) : NNC_OK;
}

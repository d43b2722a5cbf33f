/* sweep/chart.c -- curves of a sweep: time, rate and memory over size, each as SVG, and a page with all of them. */
#include "sweep/page.h"
#include "sweep/sweep.h"
#include <math.h>

/* Whether rates are of bytes: where memory bounds the largest sizes. */
static bool rates_bytes(const nnc_sweep *s)
{
    for (int i = s->n; i-- > 0;)
        if (s->row[i].p.median_ms > 0 && s->row[i].p.limit_ms > 0)
            return s->row[i].p.bound != LEVEL_arithmetic;
    return false;
}

/* The number that a chart shows of a point; `limit`: of its least time. */
static double value_of(const nnc_sweep_point *p, nnc_sweep_chart what, bool bytes, bool limit)
{
    const double ms = limit ? p->limit_ms : p->median_ms;
    if (what == CHART_memory)
        return p->need > 0 && !limit ? (double)p->need : NAN;
    if (!(ms > 0))
        return NAN;
    return what == CHART_time ? ms : (double)(bytes ? p->bytes : p->flops) / ms * 1e-6;
}

static const char *tip_of(const nnc_sweep *s, const nnc_sweep_row *r, nnc_arena *a)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_sweep_point *p = &r->p;
    nnc_printf(
        &t, "%s %lld, %s: ", s->o->sizes.name, (long long)r->size, s->o->series[r->series].name);
    if (p->median_ms > 0) {
        nnc_put_ms(&t, p->median_ms, 0);
        nnc_printf(&t, " ms%s, %.4g GFLOP/s, %.4g GB/s, ",
            p->kind == SWEEP_predicted ? " (predicted)" : "", nnc_sweep_gflops(p),
            nnc_sweep_gbs(p));
    } else {
        nnc_printf(&t, "%s, ", nnc_sweep_kind_names[p->kind]);
    }
    nnc_put_bytes(&t, p->need);
    return t.oom ? NULL : nnc_arena_strdup(a, nnc_text_str(&t));
}

/* The curve of a series, or of its limit. false: out of memory. */
static bool make_curve(
    const nnc_sweep *s, int series, nnc_sweep_chart what, bool limit, nnc_curve *out, nnc_arena *a)
{
    double *x = ARENA_NEW(a, double, s->n + 1), *y = ARENA_NEW(a, double, s->n + 1);
    const char **tip = ARENA_NEW(a, const char *, s->n + 1);
    bool ok = x && y && tip;
    *out =
        (nnc_curve){.name = s->o->series[series].name, .x = x, .y = y, .tip = tip, .limit = limit};
    for (int i = 0; ok && i < s->n; i++) {
        if (s->row[i].series != series)
            continue;
        x[out->n] = (double)s->row[i].size;
        y[out->n] = value_of(&s->row[i].p, what, rates_bytes(s), limit);
        tip[out->n] = tip_of(s, &s->row[i], a);
        ok = tip[out->n++] != NULL;
    }
    return ok;
}

/* Where curves of time cross. */
static bool find_marks(const nnc_sweep *s, nnc_curves *c, nnc_arena *a)
{
    double(*mark)[2] = NULL;
    size_t cap = 0;
    for (int i = 0; i < s->o->n_series; i++)
        for (int k = i + 1; k < s->o->n_series; k++) {
            nnc_crossing *x;
            const int n = nnc_sweep_cross(s, i, k, &x, a);
            if (n < 0 || !nnc_arena_room(a, &mark, &cap, (size_t)(c->n_mark + n) + 1, sizeof *mark))
                return false;
            for (int j = 0; j < n; j++)
                if (isfinite(x[j].at)) {
                    mark[c->n_mark][0] = x[j].at;
                    mark[c->n_mark++][1] = x[j].at_ms;
                }
        }
    c->mark = (const double(*)[2])mark;
    return true;
}

/* The least room of the rows that do not fit. */
static double least_room(const nnc_sweep *s)
{
    int64_t room = 0;
    for (int i = 0; i < s->n; i++)
        if (s->row[i].p.need > s->row[i].p.room && (!room || s->row[i].p.room < room))
            room = s->row[i].p.room;
    return (double)room;
}

void nnc_sweep_svg(const nnc_sweep *s, nnc_sweep_chart what, double width, nnc_text *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const char *const of[CHART__COUNT] = {"ms", rates_bytes(s) ? "GB/s" : "GFLOP/s", "bytes"},
                      *const titles[CHART__COUNT] = {"time of a run", "rate", "planned memory"};
    const char *title = nnc_arena_printf(
        &a, "%s over %s: %s", s->model ? s->model : "", s->o->sizes.name, titles[what]);
    nnc_curve *curve = ARENA_NEW(&a, nnc_curve, 2 * s->o->n_series);
    nnc_curves c = {.title = title,
        .x_axis = s->o->sizes.name,
        .y_axis = of[what],
        .width = width,
        .height = fmin(width * 0.62, 380),
        .bytes = what == CHART_memory,
        .room = what == CHART_memory ? least_room(s) : 0,
        .room_name = "what there is",
        .curve = curve};
    bool ok = title && curve && (what != CHART_time || find_marks(s, &c, &a));
    for (int i = 0; ok && i < s->o->n_series; i++) {
        ok = make_curve(s, i, what, false, &curve[c.n++], &a);
        if (ok && what != CHART_memory)
            ok = make_curve(s, i, what, true, &curve[c.n++], &a);
    }
    if (ok)
        nnc_curves_put(&c, out);
    out->oom |= !ok;
}

/* Text within HTML. */
static void put_escaped(nnc_text *out, const char *s)
{
    for (; *s; s++)
        *s == '<' ? nnc_puts(out, "&lt;") : *s == '&' ? nnc_puts(out, "&amp;") : nnc_putc(out, *s);
}

void nnc_sweep_html(const nnc_sweep *s, nnc_text *out)
{
    enum { WIDE = 530, NARROW = 290 };
    NNC_LOCAL(nnc_text) said = {.into = out}, json = {.into = out};
    nnc_json_writer w = {.out = &json};
    nnc_page_begin(out, "nnc sweep", page_style);
    nnc_puts(out, "<h1>");
    put_escaped(out, s->model ? s->model : "");
    nnc_puts(out, " over ");
    put_escaped(out, s->o->sizes.name);
    nnc_puts(out, "</h1>\n<p class=soft>");
    for (int i = 0; i < s->o->n_series; i++) {
        put_escaped(out, i ? "; " : "");
        put_escaped(out, s->o->series[i].name);
        put_escaped(out, s->o->series[i].predict ? ", predicted: " : ": ");
        put_escaped(out, s->machine[i]);
    }
    nnc_puts(out, "</p>\n<p>");
    nnc_sweep_say(s, &said);
    put_escaped(out, nnc_text_str(&said));
    nnc_puts(out, "</p>\n<main>\n");
    for (int k = 0; k < 2 * CHART__COUNT; k++) {
        nnc_printf(out, "<figure class=%s>", k % 2 ? "small" : "large");
        nnc_sweep_svg(s, (nnc_sweep_chart)(k / 2), k % 2 ? NARROW : WIDE, out);
        nnc_puts(out, "</figure>\n");
    }
    nnc_puts(out, "</main>\n");
    nnc_sweep_json(s, &w);
    nnc_page_end(out, "", nnc_text_str(&json), page_script);
}

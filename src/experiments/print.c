/* experiments/print.c -- the report as text, CSV and JSON. */
#include "experiments/experiments.h"
#include <math.h>
#include <string.h>

enum { LABEL = 28, WIDE_LABEL = 42, WIDE = 100, CELL = 12, OVER = 7 };
#define NEAR 1.25 /* predictions within this factor are counted as near */

/* ---- text ------------------------------------------------------------------------------------------------ */

static void put_value(nnc_text *t, nnc_quantity q, double v)
{
    if (q == QUANTITY_ratio)
        nnc_printf(t, "%.3f", v);
    else if (q == QUANTITY_allreduces)
        nnc_printf(t, "%.1f %%", v);
    else if (q == QUANTITY_largest)
        nnc_printf(t, "%.0f", v);
    else {
        nnc_put_ms(t, v, 0);
        nnc_puts(t, " ms");
    }
}

/* An end of a range, shorter than put_value. */
static void put_end(nnc_text *t, double v)
{
    nnc_printf(t, v < 1000 ? "%.3g" : "%.0f", v);
}

static void published_cell(nnc_text *t, const nnc_experiment *e, int run, const nnc_number *n)
{
    double low, high;
    NNC_LOCAL(nnc_text) s = {.into = t};
    const char *unit = n->what == QUANTITY_allreduces ? " %" : "";
    if (nnc_number_published(e, run, n, &low, &high)) {
        if (low < high) {
            put_end(&s, low);
            nnc_putc(&s, '-');
            put_end(&s, high);
            nnc_puts(&s, n->passes ? " ms" : unit);
        } else {
            put_value(&s, n->what, low);
        }
    } else if (isnan(n->low)) {
        nnc_puts(&s, "-");
    } else if (n->low < n->high) {
        nnc_printf(&s, "%.4g-%.4g %s", n->low, n->high, n->unit);
    } else {
        nnc_printf(&s, "%.4g %s", n->low, n->unit);
    }
    nnc_printf(t, "%*s", CELL, nnc_text_str(&s));
}

/* Why a cell has no number, in a word or two. */
static const char *missing(const nnc_taken *t)
{
    if (!t->taken)
        return t->why ? "not run" : "-";
    return t->point.kind == SWEEP_no_fit   ? "does not fit"
           : t->point.kind == SWEEP_failed ? "failed"
                                           : "-";
}

static void taken_cell(
    nnc_text *t, const nnc_experiment *e, int run, const nnc_number *n, bool here)
{
    bool reduced;
    const double v = nnc_number_taken(e, run, n, here, &reduced),
                 over = nnc_number_over(e, run, n, here);
    NNC_LOCAL(nnc_text) s = {.into = t};
    if (isnan(v)) {
        nnc_puts(&s, missing(here ? &e->run[run].here : &e->run[run].predicted));
    } else {
        put_value(&s, n->what, v);
        nnc_puts(&s, reduced ? "*" : "");
    }
    nnc_printf(t, "%*s", CELL + 1, nnc_text_str(&s));
    isnan(over) ? nnc_printf(t, "%*s", OVER, "") : nnc_printf(t, "%*.2f", OVER, over);
}

static void put_label(nnc_text *t, const nnc_experiment *e, const nnc_experiment_run *r,
    const nnc_number *n, int width)
{
    NNC_LOCAL(nnc_text) s = {.into = t};
    const bool first = n == r->number;
    if (first && (n->what == QUANTITY_time || n->what == QUANTITY_largest))
        nnc_puts(&s, r->name);
    else if (first)
        nnc_printf(t, "  %s\n", r->name);
    if (n->what == QUANTITY_ratio)
        nnc_printf(&s, "  / %s", e->run[n->to].name);
    else if (!s.n)
        nnc_printf(&s, "  %s", nnc_quantity_names[n->what]);
    nnc_printf(t, "  %s", nnc_text_str(&s));
    if ((int)s.n > width)
        nnc_printf(t, "\n%*s", width + 2, "");
    else
        nnc_printf(t, "%*s", width - (int)s.n, "");
}

static void put_paragraph(nnc_text *t, const char *head, const char *s, int columns)
{
    if (!s)
        return;
    nnc_printf(t, "  %s", head);
    nnc_put_wrapped(t, s, 2 + (int)strlen(head), 4, columns);
    nnc_putc(t, '\n');
}

/* Whether only the smaller sizes were measured. */
static bool is_reduced(const nnc_experiment_run *r)
{
    return r->reduced.taken && !r->reduced.why && isnan(r->here.value[QUANTITY_time]);
}

/* The part of r whose `why` says why this machine has no number, or only one of the smaller sizes. NULL there: no reason. */
static const nnc_taken *lacking(const nnc_experiment_run *r)
{
    return r->here.why ? &r->here : &r->reduced;
}

/* Two runs that have one note about this machine: of equal smaller sizes or not measured, for the same kind of reason. */
static bool share_note(const nnc_experiment_run *a, const nnc_experiment_run *b)
{
    const nnc_taken *x = lacking(a), *y = lacking(b);
    if (is_reduced(a) != is_reduced(b) || (is_reduced(a) && strcmp(a->sizes, b->sizes) != 0))
        return false;
    if (!x->why || !y->why)
        return x->why == y->why;
    return x->point.kind == y->point.kind &&
           (x->point.kind != SWEEP_failed || !strcmp(x->why, y->why));
}

/* Which runs were measured with smaller sizes or not at all, and why; once for all that are alike. */
static void put_here(nnc_text *t, const nnc_experiment *e, int i, int columns)
{
    const nnc_experiment_run *r = &e->run[i];
    const char *why = lacking(r)->why;
    NNC_LOCAL(nnc_text) s = {.into = t};
    int more = 0;
    for (int k = 0; k < e->n_run; k++)
        if (k != i && share_note(r, &e->run[k])) {
            if (k < i)
                return;
            more++;
        }
    if (is_reduced(r))
        nnc_printf(&s, "with %s%s", r->sizes, why ? ". " : "");
    if (why)
        nnc_puts(&s, r->name);
    if (why && more)
        nnc_printf(&s, " and %d more", more);
    nnc_printf(&s, "%s%s", why ? ": " : "", why ? why : "");
    if (s.n)
        put_paragraph(t, is_reduced(r) ? "* Here " : "Here: ", nnc_text_str(&s), columns);
}

static void put_note(
    nnc_text *t, const char *head, const nnc_experiment_run *r, const char *note, int columns)
{
    NNC_LOCAL(nnc_text) s = {.into = t};
    nnc_printf(&s, "%s: %s", r->name, note ? note : "");
    if (note)
        put_paragraph(t, head, nnc_text_str(&s), columns);
}

/* Prints why a run has no number or was made smaller, and what its file says about it. */
static void put_notes(nnc_text *t, const nnc_experiment *e, int columns)
{
    for (int i = 0; i < e->n_run; i++) {
        const nnc_experiment_run *r = &e->run[i];
        put_note(t, "Predicted: ", r, r->predicted.why, columns);
        put_here(t, e, i, columns);
        put_note(t, "Note: ", r, r->note, columns);
    }
}

/* The names of the machines that the runs are predicted for. */
static void put_machines(nnc_text *t, const nnc_experiment *e)
{
    for (int i = 0; i < e->n_run; i++) {
        bool said = false;
        for (int k = 0; k < i; k++)
            said = said || !strcmp(e->run[k].predicted_on, e->run[i].predicted_on);
        if (!said)
            nnc_printf(t, "%s%s", i ? " and " : "", e->run[i].predicted_on);
    }
}

static void text_experiment(
    const nnc_experiments *x, const nnc_experiment *e, int columns, nnc_text *t)
{
    NNC_LOCAL(nnc_text) s = {.into = t};
    const int label = columns < WIDE ? LABEL : WIDE_LABEL;
    nnc_printf(t, "%s (%s)\n", e->title, e->file);
    put_paragraph(t, "", e->about, columns);
    nnc_printf(&s, "published for %s; predicted for ", e->machine);
    put_machines(&s, e);
    if (x->here)
        nnc_printf(&s, "; here %s", x->here);
    put_paragraph(t, "Machines: ", nnc_text_str(&s), columns);
    nnc_printf(
        t, "  %-*s%*s%*s%*s", label, "", CELL, "published", CELL + 1, "predicted", OVER, "over");
    if (x->here)
        nnc_printf(t, "%*s%*s", CELL + 1, "here", OVER, "over");
    nnc_putc(t, '\n');
    for (int i = 0; i < e->n_run; i++)
        for (int k = 0; k < e->run[i].n_number; k++) {
            const nnc_number *n = &e->run[i].number[k];
            put_label(t, e, &e->run[i], n, label);
            published_cell(t, e, i, n);
            taken_cell(t, e, i, n, false);
            if (x->here)
                taken_cell(t, e, i, n, true);
            nnc_trim(t);
            nnc_putc(t, '\n');
        }
    put_notes(t, e, columns);
    put_paragraph(t, "Source: ", e->source, columns);
    put_paragraph(t, "Doubts: ", e->doubts, columns);
    nnc_putc(t, '\n');
}

static bool is_near(double over)
{
    return over <= NEAR && over >= 1 / NEAR;
}

/* How many predictions are near what was published, and which are not. */
static void text_sum(const nnc_experiments *x, int columns, nnc_text *t)
{
    NNC_LOCAL(nnc_text) s = {.into = t}, far = {.into = t};
    int all = 0, near = 0;
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < x->at[i].n_run; j++)
            for (int k = 0; k < x->at[i].run[j].n_number; k++) {
                const nnc_number *n = &x->at[i].run[j].number[k];
                const double over = nnc_number_over(&x->at[i], j, n, false);
                if (isnan(over))
                    continue;
                all++;
                near += is_near(over);
                if (!is_near(over))
                    nnc_printf(&far, "%s%s, %s (%.2f)", far.n ? "; " : "", x->at[i].run[j].name,
                        nnc_quantity_names[n->what], over);
            }
    if (!all)
        return;
    nnc_printf(&s, "%d of %d predictions are within a factor of %.2f of what was published.", near,
        all, NEAR);
    if (far.n)
        nnc_printf(&s, " Further off: %s.", nnc_text_str(&far));
    nnc_put_wrapped(t, nnc_text_str(&s), 0, 2, columns);
    nnc_putc(t, '\n');
}

/* ---- JSON and CSV ---------------------------------------------------------------------------------------- */

static const char *kind_of(const nnc_taken *t)
{
    return t->taken ? nnc_sweep_kind_names[t->point.kind] : "";
}

static const char *or_none(const char *s)
{
    return s ? s : "";
}

static void put_number(nnc_json_writer *w, const nnc_experiment *e, int run, const nnc_number *n)
{
    const nnc_experiment_run *r = &e->run[run];
    bool reduced;
    double low, high;
    if (!nnc_number_published(e, run, n, &low, &high))
        low = high = NAN;
    const double here = nnc_number_taken(e, run, n, true, &reduced);
    NNC_JSON_ROW(w, 4, J_STRING("experiment", e->title), J_STRING("run", r->name),
        J_STRING("what", nnc_quantity_names[n->what]),
        J_STRING("to", n->to >= 0 ? e->run[n->to].name : ""), J_REAL("published_low", n->low),
        J_REAL("published_high", n->high), J_STRING("unit", n->unit), J_INT("passes", n->passes),
        J_REAL("low", nnc_decimals(low, 6)), J_REAL("high", nnc_decimals(high, 6)),
        J_REAL("predicted", nnc_decimals(nnc_number_taken(e, run, n, false, NULL), 6)),
        J_REAL("predicted_over", nnc_decimals(nnc_number_over(e, run, n, false), 4)),
        J_STRING("predicted_is", kind_of(&r->predicted)), J_STRING("predicted_on", r->predicted_on),
        J_REAL("here", nnc_decimals(here, 6)),
        J_REAL("here_over", nnc_decimals(nnc_number_over(e, run, n, true), 4)),
        J_STRING("here_is", kind_of(reduced ? &r->reduced : &r->here)),
        J_STRING("reduced", reduced ? r->sizes : ""));
}

static void put_run(nnc_json_writer *w, const nnc_experiment *e, int i)
{
    const nnc_experiment_run *r = &e->run[i];
    nnc_json_line(w, 3);
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("name", r->name), J_STRING("hardware", r->hardware),
        J_WORDS("arguments", r->word, r->n_word), J_STRING("note", or_none(r->note)),
        J_STRING("predicted_note", or_none(r->predicted.why)),
        J_STRING("here_note", or_none(lacking(r)->why)));
    nnc_json_open(w, "numbers", '[');
    for (int k = 0; k < r->n_number; k++)
        put_number(w, e, i, &r->number[k]);
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

static void put_experiment(nnc_json_writer *w, const nnc_experiment *e)
{
    nnc_json_line(w, 1);
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("file", e->file), J_STRING("title", e->title),
        J_STRING("about", or_none(e->about)), J_STRING("machine", e->machine),
        J_STRING("source", e->source), J_STRING("doubts", or_none(e->doubts)));
    nnc_json_open(w, "runs", '[');
    for (int i = 0; i < e->n_run; i++)
        put_run(w, e, i);
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

nnc_status nnc_experiments_print(
    const nnc_experiments *x, nnc_format f, int columns, nnc_text *out, nnc_sink *sink)
{
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    columns = columns > 0 && columns < REPORT_WIDTH ? columns : REPORT_WIDTH;
    if (f == NNC_TEXT) {
        for (int i = 0; i < x->n; i++)
            text_experiment(x, &x->at[i], columns, out);
        text_sum(x, columns, out);
    } else { /* as CSV only the rows are written */
        nnc_json_open(&w, NULL, '{');
        NNC_JSON(&w, J_STRING("here", or_none(x->here)), J_REAL("near", NEAR));
        nnc_json_open(&w, "experiments", '[');
        for (int i = 0; i < x->n; i++)
            put_experiment(&w, &x->at[i]);
        nnc_json_close(&w, ']');
        nnc_json_end(&w, '}');
    }
    return out->oom ? nnc_nomem(sink) : NNC_OK;
}

/* sweep/cross.c -- which series is faster from which size on. Series differ at a size if the quartiles of their runs do not overlap and
 * their medians are more than 1 % apart. Drift between two measurements is of that size. Below three runs the spread is unknown. */
#include "sweep/sweep.h"
#include <math.h>

static bool has_few_runs(const nnc_sweep_row *r)
{
    enum { LEAST_RUNS = 3 };
    return r->p.kind == SWEEP_measured && r->p.runs < LEAST_RUNS;
}

/* 1: a is faster at this size, -1: b is, 0: no difference, or not both have a time. */
static int faster(const nnc_sweep_row *a, const nnc_sweep_row *b)
{
    if (!a || !b || !(a->p.median_ms > 0) || !(b->p.median_ms > 0))
        return 0;
    if (has_few_runs(a) || has_few_runs(b))
        return 0;
    const double ratio = a->p.median_ms / b->p.median_ms;
    return ratio < 1 / 1.01 && a->p.high_ms < b->p.low_ms ? 1
           : ratio > 1.01 && b->p.high_ms < a->p.low_ms   ? -1
                                                          : 0;
}

/* Logarithm of the ratio of their times; NaN: not both have one. */
static double log_ratio(const nnc_sweep *s, int64_t size, int a, int b)
{
    const nnc_sweep_row *x = nnc_sweep_find(s, size, a), *y = nnc_sweep_find(s, size, b);
    const bool both = x && y && x->p.median_ms > 0 && y->p.median_ms > 0;
    return both ? log(x->p.median_ms / y->p.median_ms) : NAN;
}

static double along(double from, double to, double part)
{
    return from * pow(to / from, part);
}

/* Where the ratio passes 1 from size `low` to x->from, at both of which they differ. Between them are only sizes at which they do not:
 * the last change of its sign counts. */
static void find_crossing(const nnc_sweep *s, int64_t low, int a, int b, nnc_crossing *x)
{
    const nnc_sweep_row *last = NULL;
    double was = NAN;
    for (int i = 0; i < s->n; i++) {
        const nnc_sweep_row *r = &s->row[i];
        const bool within = r->series == a && r->size >= low && r->size <= x->from;
        const double now = within ? log_ratio(s, r->size, a, b) : NAN;
        if (isnan(now))
            continue;
        if (last && last->size > 0 && (was < 0) != (now < 0)) {
            x->at = along((double)last->size, (double)r->size, was / (was - now));
            x->at_ms = along(last->p.median_ms, r->p.median_ms, was / (was - now));
        }
        was = now;
        last = r;
    }
}

int nnc_sweep_cross(const nnc_sweep *s, int a, int b, nnc_crossing **out, nnc_arena *arena)
{
    size_t cap = 0;
    int n = 0, was = 0;
    int64_t last = 0; /* size at which they differed last */
    *out = NULL;
    for (int i = 0; i < s->n; i++) {
        if (s->row[i].series != a)
            continue;
        const int64_t size = s->row[i].size;
        const int now = faster(&s->row[i], nnc_sweep_find(s, size, b));
        if (now && now != was) {
            if (!ARENA_ROOM(arena, *out, cap, n + 1))
                return -1;
            (*out)[n++] = (nnc_crossing){
                .faster = now > 0 ? a : b, .slower = now > 0 ? b : a, .from = size, .at = NAN};
            if (was)
                find_crossing(s, last, a, b, &(*out)[n - 1]);
        }
        if (now) {
            (*out)[n - 1].to = last = size;
            (*out)[n - 1].times = exp(fabs(log_ratio(s, size, a, b)));
            was = now;
        }
    }
    return n;
}

/* ---- sentences ------------------------------------------------------------------------------------------- */

/* The first size at which both have times that can be compared; false: none. */
static bool first_common(const nnc_sweep *s, int a, int b, int64_t *first)
{
    for (int i = 0; i < s->n; i++)
        if (s->row[i].series == a && !isnan(log_ratio(s, s->row[i].size, a, b)) &&
            !has_few_runs(&s->row[i]) && !has_few_runs(nnc_sweep_find(s, s->row[i].size, b))) {
            *first = s->row[i].size;
            return true;
        }
    return false;
}

static void say_pair(const nnc_sweep *s, int a, int b, nnc_text *t)
{
    NNC_LOCAL(nnc_arena) arena = {0};
    nnc_crossing *x;
    int64_t first;
    const char *const arg = s->o->sizes.name;
    if (!first_common(s, a, b, &first))
        return;
    const int n = nnc_sweep_cross(s, a, b, &x, &arena);
    t->oom |= n < 0;
    if (n == 0)
        nnc_printf(t, "%s and %s do not differ by more than the spread of their runs",
            s->o->series[a].name, s->o->series[b].name);
    for (int i = 0; i < n; i++) {
        nnc_puts(t, i ? "; " : "");
        if (i || x[i].from != first)
            nnc_printf(t, "%s %s %lld on ", i ? "from" : "From", arg, (long long)x[i].from);
        nnc_printf(t, "%s is faster than %s", s->o->series[x[i].faster].name,
            s->o->series[x[i].slower].name);
        if (isfinite(x[i].at))
            nnc_printf(t,
                x[i].at < 1000 ? " (the curves cross at about %.3g)"
                               : " (the curves cross at about %.0f)",
                x[i].at);
    }
    if (n > 0)
        nnc_printf(t, x[n - 1].times < 10 ? ": %.2f times at %lld" : ": %.0f times at %lld",
            x[n - 1].times, (long long)x[n - 1].to);
    nnc_puts(t, ".\n");
}

void nnc_sweep_say(const nnc_sweep *s, nnc_text *out)
{
    enum { FEW = 4 };
    const int n = s->o->n_series;
    for (int a = 0; a < (n > FEW ? 1 : n); a++)
        for (int b = a + 1; b < n; b++)
            say_pair(s, a, b, out);
}

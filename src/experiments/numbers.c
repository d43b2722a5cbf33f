/* experiments/numbers.c -- what was published beside what was predicted and measured, made comparable. */
#include "experiments/experiments.h"
#include <math.h>
#include <string.h>

static const nnc_number *time_of(const nnc_experiment_run *r)
{
    for (int i = 0; i < r->n_number; i++)
        if (r->number[i].what == QUANTITY_time && !isnan(r->number[i].low))
            return &r->number[i];
    return NULL;
}

/* A published time as milliseconds of one run; of all where their number is not known. */
static void find_time(const nnc_number *n, double *low, double *high)
{
    const double passes = (double)nnc_max64(n->passes, 1), ms = strcmp(n->unit, "ms") ? 1e3 : 1;
    const bool rate = !strcmp(n->unit, "samples/s");
    *low = rate ? passes * ms / n->high : n->low * ms / passes;
    *high = rate ? passes * ms / n->low : n->high * ms / passes;
}

/* The ratio of two published times. */
static bool find_ratio(
    const nnc_experiment_run *r, const nnc_experiment_run *to, double *low, double *high)
{
    const nnc_number *n = time_of(r), *d = time_of(to);
    double least, most;
    if (!n || !d || !n->passes != !d->passes)
        return false;
    find_time(n, low, high);
    find_time(d, &least, &most);
    *low /= most;
    *high /= least;
    return true;
}

bool nnc_number_published(
    const nnc_experiment *e, int run, const nnc_number *n, double *low, double *high)
{
    *low = n->low;
    *high = n->high;
    if (isnan(n->low))
        return n->what == QUANTITY_ratio && find_ratio(&e->run[run], &e->run[n->to], low, high);
    if (!*n->unit) /* not a time */
        return true;
    find_time(n, low, high);
    return n->passes > 0;
}

double nnc_number_taken(
    const nnc_experiment *e, int run, const nnc_number *n, bool here, bool *reduced)
{
    const nnc_experiment_run *r = &e->run[run], *to = n->to >= 0 ? &e->run[n->to] : r;
    const nnc_taken *own[] = {&r->predicted, &r->here, &r->reduced},
                    *other[] = {&to->predicted, &to->here, &to->reduced};
    const int end = here ? 3 : 1;
    double v = NAN;
    int k = here ? 1 : 0;
    for (; k < end && isnan(v); k++)
        v = n->what != QUANTITY_ratio
                ? own[k]->value[n->what]
                : own[k]->value[QUANTITY_time] / other[k]->value[QUANTITY_time];
    if (reduced)
        *reduced = k == 3 && !isnan(v);
    return v;
}

double nnc_number_over(const nnc_experiment *e, int run, const nnc_number *n, bool here)
{
    bool reduced;
    double low, high, v = nnc_number_taken(e, run, n, here, &reduced);
    if (!nnc_number_published(e, run, n, &low, &high) || reduced || isnan(v))
        return NAN;
    return v < low ? v / low : v > high ? v / high : 1;
}

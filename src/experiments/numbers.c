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

/* The ratio of two published times, which are of equally many runs. */
static bool published_ratio(
    const nnc_experiment_run *r, const nnc_experiment_run *to, double *low, double *high)
{
    const nnc_number *n = time_of(r), *d = time_of(to);
    if (!n || !d || n->passes != d->passes || strcmp(n->unit, d->unit) != 0)
        return false;
    *low = n->low / d->high;
    *high = n->high / d->low;
    return true;
}

bool nnc_number_published(
    const nnc_experiment *e, int run, const nnc_number *n, double *low, double *high)
{
    *low = n->low;
    *high = n->high;
    if (isnan(n->low))
        return n->what == QUANTITY_ratio &&
               published_ratio(&e->run[run], &e->run[n->to], low, high);
    if (!n->passes && !strcmp(n->unit, "s"))
        return false;
    if (n->passes) {
        const double ms = (!strcmp(n->unit, "s") ? 1e3 : 1) / (double)n->passes;
        *low *= ms;
        *high *= ms;
    }
    return true;
}

double nnc_number_taken(
    const nnc_experiment *e, int run, const nnc_number *n, bool here, bool *reduced)
{
    const nnc_experiment_run *r = &e->run[run], *to = n->to >= 0 ? &e->run[n->to] : NULL;
    const nnc_taken *own[] = {&r->predicted, &r->here, &r->reduced},
                    *other[] = {to ? &to->predicted : NULL, to ? &to->here : NULL,
                        to ? &to->reduced : NULL};
    double v = NAN;
    int k = here;
    for (; k < (here ? 3 : 1) && isnan(v); k++)
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

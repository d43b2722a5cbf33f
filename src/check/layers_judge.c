/* check/layers_judge.c -- decides which layers agree with float64.
 *
 * A layer agrees when the nmse of each program is within the limit of its dtype, or within CONDITIONING_FACTOR times what simulated
 * rounding changes. Layers still beyond that may depend on near ties (ties.h). Where all of them together cannot explain the error,
 * the layer differs. Otherwise its limit allows for what they change. */
#include "check/layers.h"
#include <math.h>

enum { CONDITIONING_FACTOR = 16 }; /* as between the programs of a comparison */
/* Times the sum of all ties' squares: the change that ties decided differently can cause, though effects may add up. */
enum { TIES_FACTOR = 4 };
/* An nmse that rounding explains, beyond which no choice can be told from it: less than a digit is right. */
static const double no_digits = 1e-2;

/* Is the program's error of the layer within its limit, or `sum` of squares? */
static bool side_within(const layer *y, int k, double sum)
{
    const nnc_error *e = &y->side[k].e;
    return !y->side[k].there || nnc_error_within(e, fmax(y->limit * e->ref2, sum));
}

static bool both_within(const layer *y, double sum)
{
    return side_within(y, FUSED, sum) && side_within(y, UNFUSED, sum);
}

static nnc_rounding rounding_of(const layers *l)
{
    return nnc_rounding_of(l->program[FUSED]->plan->precision, l->o->compile.math, true);
}

/* Number of layers and states: outputs of l->source. */
static int count(const layers *l)
{
    return l->n + l->n_state;
}

static bool all_agree(const layers *l)
{
    bool ok = true;
    for (int i = 0; i < count(l); i++)
        ok &= l->at[i].agrees;
    return ok;
}

/* Raises the limits of layers beyond theirs to what simulated rounding explains. */
static nnc_status allow_rounding(layers *l)
{
    double *mean_square = ARENA_NEW(&l->a, double, l->reference.n_out + 1);
    NNC_NEED(mean_square, l->sink);
    NNC_TRY(nnc_reference_conditioning(&l->reference, l->source, l->input, nnc_env_threads(l->env),
        rounding_of(l), mean_square, l->sink));
    for (int i = 0; i < count(l); i++) {
        layer *y = &l->at[i];
        const nnc_error *e = &y->side[y->side[FUSED].there ? FUSED : UNFUSED].e;
        if (y->agrees)
            continue;
        y->agrees = both_within(y, CONDITIONING_FACTOR * mean_square[i] * (double)e->n);
        if (e->ref2 > 0)
            y->limit =
                fmax(y->limit, CONDITIONING_FACTOR * mean_square[i] * (double)e->n / e->ref2);
    }
    return NNC_OK;
}

/* ---- near ties ------------------------------------------------------------------------------- */

/* Can all near ties together explain what is beyond the limits? sum: of their squares, by layer. */
static bool possible(const layers *l, const double *sum)
{
    bool ok = true;
    for (int i = 0; i < count(l); i++) {
        const layer *y = &l->at[i];
        for (int k = 0; k < SIDES && !y->agrees; k++)
            ok &= side_within(y, k, TIES_FACTOR * (sum[i] + y->limit * y->side[k].e.ref2));
    }
    return ok;
}

/* Allows for all near ties together. */
static void widen(layers *l, const double *sum)
{
    for (int i = 0; i < count(l); i++) {
        layer *y = &l->at[i];
        const nnc_error *e = &y->side[y->side[FUSED].there ? FUSED : UNFUSED].e;
        if (y->agrees || !(e->ref2 > 0))
            continue;
        y->limit = TIES_FACTOR * (sum[i] / e->ref2 + y->limit);
        y->agrees = both_within(y, 0);
        l->widened = true;
    }
}

/* Where a tie changes a layer less, on average, than rounding does, or rounding leaves no digit, none can be told from it. Simulated
 * rounding decides such ties otherwise, too, so that its limit has their scale; it is one sample of a sum of few. */
static void widen_faint(layers *l, const double *sum)
{
    for (int i = 0; i < count(l); i++) {
        layer *y = &l->at[i];
        const nnc_error *e = &y->side[y->side[FUSED].there ? FUSED : UNFUSED].e;
        if (y->agrees || (y->limit < no_digits && sum[i] > (double)l->ties.n * y->limit * e->ref2))
            continue;
        y->limit *= TIES_FACTOR;
        y->agrees = both_within(y, 0);
        l->widened = true;
    }
}

static nnc_status allow_ties(layers *l)
{
    const int threads = nnc_env_threads(l->env);
    if (l->reference.rows)
        return NNC_OK; /* sampled rows of a forward pass */
    NNC_TRY(nnc_ties_find(l->source, l->input, threads, rounding_of(l), &l->ties, l->sink));
    if (!l->ties.n)
        return NNC_OK;
    NNC_FREED double *sum = nnc_calloc((size_t)count(l) + 1, sizeof *sum);
    NNC_NEED(sum, l->sink);
    NNC_TRY(nnc_ties_spread(l->source, l->input, threads, &l->ties, &l->reference, sum, l->sink));
    if (!possible(l, sum))
        return NNC_OK;
    widen_faint(l, sum);
    if (!all_agree(l))
        widen(l, sum);
    return NNC_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

nnc_status nnc_layers_judge(layers *l)
{
    l->first = -1;
    l->widened = false;
    for (int i = 0; i < count(l); i++) {
        l->at[i].limit = nnc_layer_limit(l, i);
        l->at[i].agrees = both_within(&l->at[i], 0);
    }
    if (l->o->tolerance == 0 && !all_agree(l))
        NNC_TRY(allow_rounding(l));
    if (l->o->tolerance == 0 && !all_agree(l))
        NNC_TRY(allow_ties(l));
    l->agrees = all_agree(l);
    for (int k = count(l) - 1; k >= 0; k--) {
        const int i =
            k < l->n ? (k + l->n_output) % l->n : k; /* the model's outputs, then states */
        if (!l->at[i].agrees)
            l->first = i;
    }
    return NNC_OK;
}

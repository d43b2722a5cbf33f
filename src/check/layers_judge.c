/* check/layers_judge.c -- decides which layers agree with float64.
 *
 * A layer agrees when the nmse of each program is within the limit of its dtype, or within CONDITIONING_FACTOR times what simulated
 * rounding changes. What is still beyond may depend on near ties (ties.h). Where all of them together cannot explain the error, the
 * layer differs. Otherwise those that a program decided differently from float64 are searched, and the layer is judged again by float64
 * with the program's choices, within the same limits: a fault elsewhere is not hidden. */
#include "check/layers.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

enum { CONDITIONING_FACTOR = 16 }; /* as between the programs of a comparison */
/* Times the sum of all ties' squares: what those that a program decided otherwise can change, though effects may add up. */
enum { TIES_FACTOR = 4 };
/* Limits of a search: ties, operations of all its evaluations, and evaluations that are made even where these are more. */
enum { MOST_SEARCHED = 512, LEAST_EVALUATIONS = 12 };
static const double most_ops = 4e10; /* of a program; about 10 seconds on two cores */
/* An nmse that rounding explains, beyond which no choice can be told from it: less than a digit is right. */
static const double no_digits = 1e-2;

static bool within(const nnc_error *e, double nmse, double sum)
{
    return !e->mismatched && e->diff2 <= fmax(nmse * e->ref2, sum);
}

/* Is the program's error of the layer within its limit, or `sum` of squares? */
static bool side_within(const layer *y, int k, double sum)
{
    return !y->side[k].there || within(&y->side[k].e, y->limit, sum);
}

static bool both_within(const layer *y, double sum)
{
    return side_within(y, FUSED, sum) && side_within(y, UNFUSED, sum);
}

static nnc_rounding rounding_of(const layers *l)
{
    const nnc_precision p = l->program[FUSED]->plan->precision;
    const double unit = p == NNC_PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    nnc_rounding r = {.function_error = l->o->compile.math == MATH_fast ? 0x1p-15 : 0};
    if (nnc_precision_tolerance(p) > 0) {
        r.operand_unit = unit;
        r.result_unit = nnc_precision_dtype(p) == DT_f32 ? 0 : unit;
    }
    return r;
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

/* A search for the ties that one program decided otherwise than float64. */
typedef struct search {
    layers *l;
    int which; /* program */
    nnc_graph *g; /* l->source with the layers in question as its outputs */
    int *layer; /* of each output */
    size_t *chosen, n_chosen; /* found so far */
    bool *taken; /* by tie: chosen, or no gain */
    nnc_rval *now; /* of g, with the chosen ties */
    int evaluations, most;
} search;

static bool in_question(const layers *l, int i, int which)
{
    return !l->at[i].agrees && !side_within(&l->at[i], which, 0) && l->at[i].side[which].data;
}

static nnc_status make_graph(search *s)
{
    layers *l = s->l;
    s->g = nnc_graph_clone(l->source, l->sink);
    s->layer = ARENA_NEW(&l->a, int, count(l) + 1);
    NNC_NEED(s->g && s->layer, l->sink);
    uint32_t n = 0;
    for (int i = 0; i < count(l); i++)
        if (in_question(l, i, s->which)) {
            s->layer[n] = i;
            s->g->output[n] = s->g->output[i];
            s->g->output_name[n] = s->g->output_name[i];
            s->g->output_state[n++] = NNC_NONE;
        }
    s->g->n_output = n;
    for (uint32_t i = 0; i < s->g->n_node; i++)
        s->g->node[i].state = s->g->node[i].accumulates = false;
    return NNC_OK;
}

static void free_values(const search *s, nnc_rval *v)
{
    for (uint32_t i = 0; s->g && i < s->g->n_output; i++)
        nnc_rval_free(&v[i]);
}

/* The outputs with the chosen ties and n more. */
static nnc_status evaluate(search *s, const size_t *more, size_t n, nnc_rval *v)
{
    layers *l = s->l;
    NNC_FREED size_t *which = nnc_calloc(s->n_chosen + n + 1, sizeof *which);
    NNC_NEED(which, l->sink);
    memcpy(which, s->chosen, s->n_chosen * sizeof *which);
    for (size_t i = 0; i < n; i++)
        which[s->n_chosen + i] = more[i];
    s->evaluations++;
    return nnc_ties_eval(
        s->g, l->input, nnc_env_threads(l->env), &l->ties, which, s->n_chosen + n, v, l->sink);
}

/* What of the remaining error the change from s->now to v explains: their scalar product, of each output relative to its size. */
static double explained(const search *s, const nnc_rval *v)
{
    double all = 0;
    for (uint32_t o = 0; o < s->g->n_output; o++) {
        const layer *y = &s->l->at[s->layer[o]];
        const side *p = &y->side[s->which];
        double sum = 0;
        for (int64_t i = 0; i < nnc_type_numel(&y->type); i++) {
            const double was = nnc_rval_number(&s->now[o], i),
                         d = (nnc_get_f64((nnc_dtype)p->type.dtype, p->data, i) - was) *
                             (nnc_rval_number(&v[o], i) - was);
            sum += isfinite(d) ? d : 0;
        }
        all += p->e.ref2 > 0 ? sum / p->e.ref2 : 0;
    }
    return all;
}

/* The remaining error against v; *agree: all layers are within their limits. */
static double remaining(const search *s, const nnc_rval *v, bool *agree)
{
    double all = 0;
    *agree = true;
    for (uint32_t o = 0; o < s->g->n_output; o++) {
        const int i = s->layer[o];
        const side *p = &s->l->at[i].side[s->which];
        side now = {.there = true};
        nnc_layer_errors(s->l, i, &v[o], &p->type, p->data,
            i < s->l->n ? NULL : s->l->initial[i - s->l->n], &now);
        *agree &= within(&now.e, s->l->at[i].limit, 0);
        all += p->e.ref2 > 0 ? now.e.diff2 / p->e.ref2 : 0;
    }
    return all;
}

/* Of n ties the one that explains most of the error: the half that explains more is halved again. */
static nnc_status descend(search *s, size_t *tie, size_t n, size_t *best)
{
    double of_all = NAN;
    NNC_FREED nnc_rval *v = nnc_calloc(s->g->n_output + 1, sizeof *v);
    NNC_NEED(v, s->l->sink);
    while (n > 1 && s->evaluations < s->most) {
        const size_t half = n / 2;
        if (isnan(of_all)) {
            NNC_TRY(evaluate(s, tie, n, v));
            of_all = explained(s, v);
            free_values(s, v);
        }
        NNC_TRY(evaluate(s, tie, half, v));
        const double of_half = explained(s, v);
        free_values(s, v);
        const bool second = of_all - of_half > of_half; /* effects add up, nearly */
        tie += second ? half : 0;
        n = second ? n - half : half;
        of_all = second ? of_all - of_half : of_half;
    }
    *best = tie[0];
    return NNC_OK;
}

/* Takes the tie if the error decreases with it. */
static nnc_status try_tie(search *s, size_t tie, double *error, bool *agree, bool *gain)
{
    NNC_FREED nnc_rval *next = nnc_calloc(s->g->n_output + 1, sizeof *next);
    NNC_NEED(next, s->l->sink);
    NNC_TRY(evaluate(s, &tie, 1, next));
    bool all;
    const double now = remaining(s, next, &all);
    *gain = now < *error;
    s->taken[tie] = true;
    if (*gain) {
        s->chosen[s->n_chosen++] = tie;
        free_values(s, s->now);
        memcpy(s->now, next, s->g->n_output * sizeof *next);
        *error = now;
        *agree = all;
    } else {
        free_values(s, next);
    }
    return NNC_OK;
}

/* Takes one tie after the other, first of those that the other program decided so, as long as the error decreases. */
static nnc_status take_ties(search *s)
{
    layers *l = s->l;
    bool agree, gain = true;
    NNC_FREED size_t *left = nnc_calloc(l->ties.n + 1, sizeof *left);
    NNC_NEED(left, l->sink);
    NNC_TRY(evaluate(s, NULL, 0, s->now));
    double error = remaining(s, s->now, &agree);
    for (int i = 0; i < l->n_followed && !agree; i++)
        NNC_TRY(try_tie(s, (size_t)(l->followed[i].tie - l->ties.at), &error, &agree, &gain));
    for (gain = true; gain && !agree && s->evaluations < s->most;) {
        size_t n = 0, best;
        for (size_t i = 0; i < l->ties.n; i++)
            if (!s->taken[i])
                left[n++] = i;
        if (!n)
            break;
        NNC_TRY(descend(s, left, n, &best));
        NNC_TRY(try_tie(s, best, &error, &agree, &gain));
    }
    return NNC_OK;
}

static nnc_status note(layers *l, size_t tie, int which)
{
    for (int i = 0; i < l->n_followed; i++)
        if (l->followed[i].tie == &l->ties.at[tie]) {
            l->followed[i].by[which] = true;
            return NNC_OK;
        }
    if (!l->followed)
        l->followed = ARENA_NEW(&l->a, followed, l->ties.n + 1);
    NNC_NEED(l->followed, l->sink);
    followed *f = &l->followed[l->n_followed++];
    *f = (followed){.tie = &l->ties.at[tie]};
    f->by[which] = true;
    return NNC_OK;
}

/* The program's errors against float64 with its choices. */
static nnc_status follow(search *s)
{
    layers *l = s->l;
    for (size_t i = 0; i < s->n_chosen; i++)
        NNC_TRY(note(l, s->chosen[i], s->which));
    for (uint32_t o = 0; o < s->g->n_output; o++) {
        const int i = s->layer[o];
        side *p = &l->at[i].side[s->which], now = *p;
        now.e = (nnc_error){0};
        nnc_layer_errors(
            l, i, &s->now[o], &p->type, p->data, i < l->n ? NULL : l->initial[i - l->n], &now);
        *p = now;
    }
    return NNC_OK;
}

static nnc_status search_program(layers *l, int which, int most)
{
    search s = {.l = l, .which = which, .most = most};
    s.now = ARENA_NEW(&l->a, nnc_rval, count(l) + 1);
    s.taken = ARENA_NEW(&l->a, bool, l->ties.n + 1);
    s.chosen = ARENA_NEW(&l->a, size_t, l->ties.n + 1);
    NNC_NEED(s.now && s.taken && s.chosen, l->sink);
    nnc_status st = make_graph(&s);
    if (!st && s.g->n_output)
        st = take_ties(&s);
    if (!st && s.n_chosen)
        st = follow(&s);
    free_values(&s, s.now);
    nnc_graph_destroy(s.g);
    return st;
}

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
    int64_t ops, bytes;
    const int threads = nnc_env_threads(l->env);
    if (l->reference.rows)
        return NNC_OK; /* sampled rows of a forward pass */
    NNC_TRY(nnc_ties_find(l->source, l->input, threads, rounding_of(l), &l->ties, l->sink));
    if (!l->ties.n)
        return NNC_OK;
    NNC_FREED double *sum = nnc_calloc((size_t)count(l) + 1, sizeof *sum);
    NNC_NEED(sum, l->sink);
    NNC_TRY(
        nnc_ties_spread(l->source, l->input, threads, &l->ties, l->reference.value, sum, l->sink));
    if (!possible(l, sum))
        return NNC_OK;
    widen_faint(l, sum);
    if (all_agree(l))
        return NNC_OK;
    nnc_eval_cost(l->source, &ops, &bytes);
    const double most = fmax(most_ops / (double)(ops + 1), LEAST_EVALUATIONS);
    if (l->ties.n > MOST_SEARCHED || log2((double)l->ties.n) + 4 > most) {
        widen(l, sum);
        return NNC_OK;
    }
    for (int k = 0; k < SIDES; k++)
        NNC_TRY(search_program(l, k, (int)fmin(most, 1000)));
    for (int i = 0; i < count(l); i++)
        l->at[i].agrees = l->at[i].agrees || both_within(&l->at[i], 0);
    return NNC_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

nnc_status nnc_layers_judge(layers *l)
{
    l->first = -1;
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

/* check/judge.c -- decides whether the programs of a comparison give the same numbers, output by output.
 *
 * An output agrees when its nmse is within the limit of its dtype, about 50 roundings of the result. An output beyond it may still be
 * right, where intermediate values of a coarser type or cancellation lose digits in any program. The reference is then evaluated again with
 * simulated rounding, and a program's error may be CONDITIONING_FACTOR times (in mean square) the change. Beyond that it may depend on
 * choices that rounding decides, as gradients do on the sign of a relu's operand. The change by those near ties is allowed, too. Elements
 * that are finite on one side only never agree. Those that are NaN or the same infinity on both sides do, which the report says. Open
 * elements (reference.h) are not compared, and it says this, too. */
#include "check/compare.h"
#include "check/ties.h"
#include <math.h>
#include <string.h>

enum { CONDITIONING_FACTOR = 16 };

/* How output o is computed: the coarsest intermediate type, and whether the program rounds operands of a contraction to a precision below
 * their dtype's. */
typedef struct way {
    nnc_dtype coarsest;
    bool rounded;
} way;

static way way_to(comparison *c, const program *p, int o)
{
    bool contracted;
    way w = {.coarsest = nnc_coarsest_dtype(c->model, o, &contracted, &c->arena)};
    nnc_precision precision = p->a->plan->precision;
    bool runs = true; /* the pass that changes types */
    for (int i = 0; i < p->n_skip && nnc_precision_dtype(precision) != DT_f32; i++)
        runs &= strcmp(p->skip[i], "precision") != 0;
    w.rounded = contracted && runs && nnc_precision_tolerance(precision) > 0;
    return w;
}

/* The nmse limit without conditioning. Without a reference it is that of the coarsest intermediate type. */
static double plain_limit(comparison *c, const program *p, int o)
{
    if (c->o->tolerance != 0)
        return fmax(c->o->tolerance, 0);
    way w = way_to(c, p, o);
    double limit = nnc_default_tolerance(
        c->reference.ran ? (nnc_dtype)nnc_result_type(p, o)->dtype : w.coarsest);
    if (!c->reference.ran && c->o->compile.math == MATH_fast) /* which conditioning counts */
        limit = fmax(limit, 4 * FAST_ERROR * FAST_ERROR);
    return w.rounded ? fmax(limit, nnc_precision_tolerance(p->a->plan->precision)) : limit;
}

nnc_status nnc_conditioning(comparison *c, const program *p, int o, double *mean_square)
{
    bool rounded = way_to(c, p, o).rounded;
    double **at = &c->conditioning[rounded];
    if (!*at) {
        const nnc_rounding r = nnc_rounding_of(p->a->plan->precision, c->o->compile.math, rounded);
        nnc_compare_say(c, "evaluating the conditioning", NULL);
        *at = ARENA_NEW(&c->arena, double, c->reference.n_out + 1);
        NNC_NEED(*at, c->sink);
        NNC_TRY(nnc_reference_conditioning(
            &c->reference, c->model, c->input, nnc_env_threads(c->env), r, *at, c->sink));
    }
    *mean_square = (*at)[o];
    return NNC_OK;
}

/* Error allowed for a program: nmse or mean square of an element; and the sum of the squares that near ties explain. */
typedef struct bound {
    double nmse, mean_square, ties;
} bound;

static bool within(const nnc_error *e, bound b, double factor)
{
    return nnc_error_within(
        e, factor * (fmax(b.nmse * e->ref2, b.mean_square * (double)e->n) + b.ties));
}

/* Both programs of a pair may be at their limits: their difference may be twice as large, its square four times as large. */
static bool agrees(const judged *j, bool ran, bound own, bound unfused)
{
    const bound pair = {fmax(own.nmse, unfused.nmse), fmax(own.mean_square, unfused.mean_square),
        fmax(own.ties, unfused.ties)};
    return (!ran || within(&j->reference, own, 1)) && within(&j->unfused, pair, 4);
}

/* Sum of the squares by which near ties may change output o (ties.h), measured on first use. */
static nnc_status near_ties(comparison *c, const program *p, int o, double *sum)
{
    enum { TIES_FACTOR = 4 }; /* effects of several may add up */
    *sum = 0;
    if (c->reference.rows)
        return NNC_OK;
    if (!c->ties) {
        NNC_LOCAL(nnc_ties) t = {0};
        const int threads = nnc_env_threads(c->env);
        c->ties = ARENA_NEW(&c->arena, double, c->reference.n_out + 1);
        NNC_NEED(c->ties, c->sink);
        nnc_compare_say(c, "evaluating near ties", NULL);
        const nnc_rounding r =
            nnc_rounding_of(p->a->plan->precision, c->o->compile.math, way_to(c, p, o).rounded);
        NNC_TRY(nnc_ties_find(c->model, c->input, threads, r, &t, c->sink));
        c->n_tie = t.n;
        NNC_TRY(
            nnc_ties_spread(c->model, c->input, threads, &t, c->reference.value, c->ties, c->sink));
    }
    *sum = TIES_FACTOR * c->ties[o];
    return NNC_OK;
}

static nnc_status judge_output(comparison *c, const program *p, int o)
{
    const program *u = &c->p[c->unfused];
    judged *j = &p->output[o];
    bool ran = c->reference.ran;
    bound own = {plain_limit(c, p, o), 0, 0}, unfused = {plain_limit(c, u, o), 0, 0};
    j->limit = own.nmse;
    j->agrees = agrees(j, ran, own, unfused);
    if (j->agrees || !ran || c->o->tolerance != 0)
        return NNC_OK;
    NNC_TRY(nnc_conditioning(c, p, o, &own.mean_square));
    NNC_TRY(nnc_conditioning(c, u, o, &unfused.mean_square));
    if (j->reference.ref2 > 0) {
        j->conditioning = own.mean_square * (double)j->reference.n / j->reference.ref2;
        j->limit = fmax(j->limit, CONDITIONING_FACTOR * j->conditioning);
    }
    own.mean_square *= CONDITIONING_FACTOR;
    unfused.mean_square *= CONDITIONING_FACTOR;
    j->agrees = agrees(j, ran, own, unfused);
    if (j->agrees)
        return NNC_OK;
    NNC_TRY(near_ties(c, p, o, &own.ties));
    unfused.ties = own.ties;
    j->agrees = agrees(j, ran, own, unfused);
    if (j->reference.ref2 > 0)
        j->limit += own.ties / j->reference.ref2;
    return NNC_OK;
}

nnc_status nnc_judge(comparison *c)
{
    c->agrees = true;
    for (int i = 0; i < c->n; i++)
        for (int o = 0; o < c->n_result; o++) {
            NNC_TRY(judge_output(c, &c->p[i], o));
            c->agrees &= c->p[i].output[o].agrees;
        }
    return NNC_OK;
}

int nnc_worst_output(const comparison *c, const program *p)
{
    int worst = -1;
    double most = -1;
    for (int o = 0; o < c->n_result; o++) {
        const judged *j = &p->output[o];
        double nmse = nnc_error_nmse(c->reference.ran ? &j->reference : &j->unfused);
        double excess = !j->agrees ? INFINITY : j->limit > 0 ? nmse / j->limit : nmse > 0;
        if (excess > most) {
            most = excess;
            worst = o;
        }
    }
    return worst;
}

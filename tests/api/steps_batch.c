/* tests/api/steps_batch.c -- see steps_batch.h. */
#include "steps_batch.h"
#include "check/ties.h"
#include "session/session.h"
#include "help.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { DRAWS = 16, FACTOR = 16 /* of simulated rounding, as `nnc verify` allows */ };

/* Limit of the nmse of states after a few steps: some units in the last place of their contractions' numbers. bf16 has 8 bits, f16 11,
 * but fewer for gradients below 2^-14. */
static double limit_of(nnc_precision p)
{
    return p == NNC_PRECISION_bf16 ? 1e-4 : p == NNC_PRECISION_f16 ? 2e-5 : 1e-7;
}

double steps_state_error(const steps_batch *b, uint32_t k, const nnc_rval *want)
{
    const nnc_node *n = nnc_def(b->g, b->g->output_state[k]);
    const nnc_type t = nnc_type_dense(nnc_typeof(b->g, n->out));
    const char *name = b->g->value[n->out].name, *end = strrchr(name, '.');
    const bool sum = end && !strcmp(end, ".grad"); /* no weight, of which it is a small part */
    if (!strncmp(name, "m.in_proj_bias", 14))
        return 0; /* the gradient of a key's bias is 0: what is left are rounding errors, which adam scales up */
    if (!b->steps && !n->accumulates)
        return 0;
    const api_diff d = api_compare(&t, b->after[k], &want[k]);
    return d.wrong ? INFINITY : d.nmse / ((sum ? 50 : 1) * limit_of(b->precision));
}

/* ---- the step as a function ---------------------------------------------------------------------- */

/* The step with states as inputs, and what it is given. */
typedef struct opened {
    const steps_batch *b;
    nnc_graph *g;
    void **in; /* borrowed from the batch */
    nnc_rval *want; /* by output */
} opened;

static nnc_status open_step(const steps_batch *b, opened *o)
{
    const nnc_graph *g = b->g;
    int n = 0, n_in = 0;
    *o = (opened){b, nnc_graph_clone(g, test_sink), nnc_calloc(g->n_node + 1, sizeof *o->in),
        nnc_calloc(g->n_output + 1, sizeof *o->want)};
    NNC_NEED(o->g && o->in && o->want, test_sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_node *x = &o->g->node[i];
        if (x->op == OP_input)
            o->in[n++] = b->in[n_in++];
        for (uint32_t k = nnc_result_outputs(g); x->state && k < g->n_output; k++)
            if (g->output_state[k] == x->out) {
                x->op = OP_input;
                o->in[n++] = b->before[k];
                break;
            }
        x->state = x->accumulates = false;
    }
    return nnc_eval(o->g, (const void *const *)o->in, 1, o->want, test_sink);
}

static void free_values(const opened *o, nnc_rval *v)
{
    for (uint32_t k = 0; o->g && v && k < o->g->n_output; k++)
        nnc_rval_free(&v[k]);
}

static void close_step(opened *o)
{
    free_values(o, o->want);
    nnc_free(o->want);
    nnc_free(o->in);
    nnc_graph_destroy(o->g);
}

/* Sum of the states' errors, and *most, the largest of them. */
static double errors(const opened *o, const nnc_rval *want, double *most)
{
    double sum = 0;
    *most = 0;
    for (uint32_t k = nnc_result_outputs(o->g); k < o->g->n_output; k++) {
        const double e = steps_state_error(o->b, k, want);
        *most = fmax(*most, e);
        sum += e;
    }
    return sum;
}

/* ---- choices ----------------------------------------------------------------------------------- */

/* Tries the ties, nearest first; one with which the errors decrease is kept. */
static nnc_status take_ties(opened *o, const nnc_ties *t)
{
    enum { MOST = 1000 };
    NNC_FREED size_t *chosen = nnc_calloc(t->n + 1, sizeof *chosen);
    size_t n = 0;
    double most = 0, least = errors(o, o->want, &most);
    NNC_NEED(chosen, test_sink);
    for (size_t i = 0; i < t->n && i < MOST && most > 1; i++) {
        nnc_rval *v = nnc_calloc(o->g->n_output + 1, sizeof *v), *other = v;
        NNC_NEED(v, test_sink);
        chosen[n] = i;
        nnc_status st = nnc_ties_eval(o->g, o->in, 1, t, chosen, n + 1, v, test_sink);
        double most_now = 0, now = st ? INFINITY : errors(o, v, &most_now);
        if (now < least) {
            other = o->want;
            o->want = v;
            least = now;
            most = most_now;
            n++;
        }
        free_values(o, other);
        nnc_free(other);
        NNC_TRY(st);
    }
    return NNC_OK;
}

static nnc_status follow(opened *o)
{
    nnc_ties ties = {0};
    nnc_status st = nnc_ties_find(o->g, o->in, 1, api_rounding(o->b->precision), &ties, test_sink);
    if (!st)
        st = take_ties(o, &ties);
    nnc_ties_deinit(&ties);
    return st;
}

/* ---- conditioning --------------------------------------------------------------------------------- */

/* Squares by which simulated rounding changes each output: the mean of some draws. */
static nnc_status conditioning(const opened *o, double *square)
{
    NNC_FREED nnc_rval *plain = nnc_calloc(o->g->n_output + 1, sizeof *plain);
    NNC_FREED nnc_rval *v = nnc_calloc(o->g->n_output + 1, sizeof *v);
    const void *const *in = (const void *const *)o->in;
    NNC_NEED(plain && v, test_sink);
    NNC_TRY(nnc_eval(o->g, in, 1, plain, test_sink));
    for (int d = 0; d < DRAWS; d++) {
        nnc_rounding r = api_rounding(o->b->precision);
        r.seed = (uint64_t)d + 1;
        NNC_TRY(nnc_eval_rounded(o->g, in, 1, &r, v, test_sink));
        for (uint32_t k = 0; k < o->g->n_output; k++)
            for (int64_t i = 0; i < nnc_type_numel(&v[k].type) && v[k].f; i++) {
                const double e = v[k].f[i] - plain[k].f[i];
                square[k] += isfinite(e) ? e * e / DRAWS : 0;
            }
        free_values(o, v);
    }
    free_values(o, plain);
    return NNC_OK;
}

static double square_of(const opened *o, uint32_t k)
{
    const nnc_type *t = &o->want[k].type;
    const api_diff d = api_compare(t, o->b->after[k], &o->want[k]);
    double sum = 0;
    for (int64_t i = 0; i < nnc_type_numel(t) && o->want[k].f; i++) {
        const double e = nnc_get_f64((nnc_dtype)t->dtype, o->b->after[k], i) - o->want[k].f[i];
        sum += isfinite(e) ? e * e : 0;
    }
    return d.wrong ? INFINITY : sum;
}

/* ---- all ------------------------------------------------------------------------------------------ */

static nnc_status judge(opened *o, const char *what)
{
    double most;
    (void)errors(o, o->want, &most);
    if (most > 1)
        NNC_TRY(follow(o));
    (void)errors(o, o->want, &most);
    if (most <= 1)
        return NNC_OK;
    NNC_FREED double *square = nnc_calloc(o->g->n_output + 1, sizeof *square);
    NNC_NEED(square, test_sink);
    NNC_TRY(conditioning(o, square));
    for (uint32_t k = nnc_result_outputs(o->g); k < o->g->n_output; k++) {
        const double e = steps_state_error(o->b, k, o->want);
        if (!(e <= 1) && !(square_of(o, k) <= FACTOR * square[k]))
            test_fail(__FILE__, __LINE__, "%s: state %s: nmse is %g times its limit", what,
                o->g->value[o->b->g->output_state[k]].name, e);
    }
    return NNC_OK;
}

nnc_status steps_batch_check(const steps_batch *b, const char *what)
{
    opened o;
    nnc_status st = open_step(b, &o);
    if (!st)
        st = judge(&o, what);
    close_step(&o);
    return st;
}

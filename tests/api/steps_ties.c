/* tests/api/steps_ties.c -- see steps_ties.h. */
#include "steps_ties.h"
#include "api/ties.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

static double error_of(const steps_batch *b, const nnc_rval *want)
{
    double sum = 0;
    for (uint32_t k = nnc_result_outputs(b->g); k < b->g->n_output; k++)
        sum += steps_state_error(b, k, want);
    return sum;
}

/* The step with states as inputs: a graph that any evaluator takes from given states. */
static nnc_graph *opened(const nnc_graph *g)
{
    nnc_graph *to = nnc_graph_clone(g, test_sink);
    for (uint32_t i = 0; to && i < to->n_node; i++)
        if (to->node[i].state) {
            to->node[i].op = OP_input;
            to->node[i].state = to->node[i].accumulates = false;
        }
    return to;
}

/* Inputs of the opened graph: those of the batch are borrowed, states are stored[]. */
static void all_inputs(const steps_batch *b, void **to, void **stored)
{
    const nnc_graph *g = b->g;
    int n = 0, n_in = 0;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *x = &g->node[i];
        if (x->op == OP_input)
            to[n++] = b->in[n_in++];
        for (uint32_t k = nnc_result_outputs(g); x->state && k < g->n_output; k++)
            if (g->output_state[k] == x->out) {
                const nnc_type t = nnc_type_dense(nnc_typeof(g, x->out));
                stored[k] = nnc_malloc((size_t)nnc_type_bytes(&t));
                nnc_rval_store(&b->before[k], stored[k]);
                to[n++] = stored[k];
            }
    }
}

static void swap_values(nnc_rval *a, nnc_rval *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const nnc_rval v = a[i];
        a[i] = b[i];
        b[i] = v;
    }
}

/* Tries the ties, nearest first; one with which the error decreases is kept. */
static nnc_status take_ties(
    const steps_batch *b, const nnc_graph *g, void *const *in, const nnc_ties *t, nnc_rval *now)
{
    enum { MOST = 1000 };
    NNC_FREED size_t *chosen = nnc_calloc(t->n + 1, sizeof *chosen);
    NNC_FREED nnc_rval *v = nnc_calloc(g->n_output + 1, sizeof *v);
    size_t n = 0;
    double least = error_of(b, now);
    for (size_t i = 0; i < t->n && i < MOST; i++) {
        chosen[n] = i;
        NNC_TRY(nnc_ties_eval(g, in, 1, t, chosen, n + 1, v, test_sink));
        const double e = error_of(b, v);
        if (e < least) {
            swap_values(now, v, g->n_output);
            least = e;
            n++;
        }
        for (uint32_t k = 0; k < g->n_output; k++)
            nnc_rval_free(&v[k]);
    }
    return NNC_OK;
}

static nnc_rounding rounding_of(nnc_precision p)
{
    const double unit = p == NNC_PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    const bool narrow = p >= NNC_PRECISION_f16;
    return (nnc_rounding){.operand_unit = narrow || p == NNC_PRECISION_tf32 ? unit : 0,
        .result_unit = narrow ? unit : 0};
}

nnc_status steps_follow(const steps_batch *b, nnc_rval *now)
{
    nnc_graph *g = opened(b->g);
    NNC_FREED void **in = calloc(b->g->n_node + 1, sizeof *in);
    NNC_FREED void **stored = calloc(b->g->n_output + 1, sizeof *stored);
    nnc_ties ties = {0};
    NNC_NEED(g, test_sink);
    all_inputs(b, in, stored);
    nnc_status st = nnc_ties_find(g, in, 1, rounding_of(b->precision), &ties, test_sink);
    if (!st)
        st = take_ties(b, g, in, &ties, now);
    nnc_ties_deinit(&ties);
    for (uint32_t k = 0; k < g->n_output; k++)
        nnc_free(stored[k]);
    nnc_graph_destroy(g);
    return st;
}

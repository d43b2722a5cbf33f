/* check/reference.c -- the float64 reference of a run, and errors against it. Where a complete reference would take too long or too much
 * memory, some rows of the batch are computed, and the scope says which. */
#include "check/reference.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

/* Budget of a reference: about ten seconds on two cores, and 1/6 of the free memory. */
enum { MAX_SAMPLE_ROWS = 65536 };
static const double max_ops = 6e10;

/* Number of rows out of `all` that fits the budget; 0 = all. */
static int64_t choose_rows(const nnc_graph *g, int64_t all)
{
    int64_t ops, bytes;
    nnc_eval_cost(g, &ops, &bytes);
    double share = fmin(
        max_ops / (double)(ops + 1), (double)nnc_memory_free().bytes / 6 / (double)(bytes + 1));
    if (share >= 1)
        return 0;
    int64_t rows = (int64_t)((double)all * share);
    return nnc_max64(1, nnc_min64(rows, MAX_SAMPLE_ROWS));
}

/* Gathers the sampled rows of one input. */
static void *gather_rows(const nnc_type *whole, const void *data, const nnc_reference *t)
{
    int64_t row_bytes = nnc_type_bytes(whole) / whole->dim[0];
    char *p = nnc_malloc((size_t)(row_bytes * t->rows));
    for (int64_t i = 0; p && i < t->rows; i++)
        memcpy(p + i * row_bytes, (const char *)data + t->row[i] * row_bytes, (size_t)row_bytes);
    return p;
}

static nnc_status eval_sample(const nnc_graph *g, const nnc_graph *small, const bool *carried,
    void *const *inputs, int threads, const nnc_reference *t, const nnc_rounding *rounding,
    nnc_rval *value, nnc_sink *sink)
{
    NNC_FREED const void **in = nnc_calloc(g->n_node, sizeof *in);
    nnc_status st = in ? NNC_OK : nnc_nomem(sink);
    int n = 0;
    for (uint32_t i = 0; !st && i < g->n_node; i++) {
        if (g->node[i].op != OP_input)
            continue;
        in[n] = carried[n] ? gather_rows(nnc_typeof(g, g->node[i].out), inputs[n], t) : inputs[n];
        if (!in[n])
            st = nnc_nomem(sink);
        n++;
    }
    if (!st)
        st = nnc_eval_rounded(small, in, threads, rounding, value, sink);
    for (int i = 0; in && i < n; i++)
        if (carried[i])
            nnc_free((void *)in[i]);
    return st;
}

/* Evaluates all or the sampled rows into value[]. *possible: sampled rows are independent. */
static nnc_status evaluate(const nnc_reference *t, const nnc_graph *g, void *const *inputs,
    int threads, const nnc_rounding *rounding, bool *possible, nnc_rval *value, nnc_sink *sink)
{
    *possible = true;
    if (!t->rows)
        return nnc_eval_rounded(g, (const void *const *)inputs, threads, rounding, value, sink);
    NNC_OWNED(nnc_graph) *small = NULL;
    NNC_FREED bool *carried = nnc_calloc(g->n_node, sizeof *carried);
    NNC_NEED(carried, sink);
    NNC_TRY(nnc_graph_sample(g, t->rows, &small, carried, t->carried_out, sink));
    *possible = small != NULL;
    return small ? eval_sample(g, small, carried, inputs, threads, t, rounding, value, sink)
                 : NNC_OK;
}

nnc_status nnc_reference_make(
    const nnc_graph *g, void *const *inputs, int threads, nnc_reference *t, nnc_sink *sink)
{
    *t = (nnc_reference){.n_out = (int)g->n_output};
    bool possible;
    int64_t all = nnc_rows_of(g);
    t->value = nnc_calloc(g->n_output, sizeof *t->value);
    t->carried_out = nnc_calloc(g->n_output, sizeof *t->carried_out);
    t->open = nnc_calloc(g->n_output, sizeof *t->open);
    t->rows = choose_rows(g, all);
    t->rows = t->rows < all ? t->rows : 0;
    t->row = nnc_calloc((size_t)t->rows, sizeof *t->row);
    NNC_NEED(t->value && t->carried_out && t->open && t->row, sink);
    for (int64_t i = 0; i < t->rows; i++)
        t->row[i] = t->rows > 1 ? i * (all - 1) / (t->rows - 1) : all / 2;
    NNC_TRY(evaluate(t, g, inputs, threads, NULL, &possible, t->value, sink));
    t->ran = possible;
    if (!possible)
        snprintf(t->scope, sizeof t->scope, "not run: too large, and its rows are not independent");
    else if (t->rows)
        snprintf(t->scope, sizeof t->scope, "%lld of %lld rows, evenly spaced", (long long)t->rows,
            (long long)all);
    else
        snprintf(t->scope, sizeof t->scope, "all outputs");
    return NNC_OK;
}

static void free_values(nnc_rval *value, int n)
{
    for (int i = 0; value && i < n; i++)
        nnc_rval_free(&value[i]);
    nnc_free(value);
}

double nnc_rval_number(const nnc_rval *v, int64_t i)
{
    return v->f ? v->f[i] : v->type.dtype == DT_u64 ? (double)(uint64_t)v->i[i] : (double)v->i[i];
}

/* Adds the squares of a draw's differences in output o, by element, and marks elements of another kind as open. */
static nnc_status add_draw(
    nnc_reference *r, int o, const nnc_rval *drawn, double *square, nnc_sink *sink)
{
    const int64_t n = nnc_type_numel(&drawn->type);
    for (int64_t i = 0; i < n; i++) {
        nnc_error e = {0};
        nnc_error_add(&e, nnc_rval_number(drawn, i), nnc_rval_number(&r->value[o], i));
        square[i] += e.diff2;
        if (!e.mismatched)
            continue;
        if (!r->open[o])
            NNC_NEED(r->open[o] = nnc_calloc((size_t)n, sizeof **r->open), sink);
        r->open[o][i] = r->any_open = true;
    }
    return NNC_OK;
}

static double mean_of_draws(const nnc_reference *r, int o, const double *square, int draws)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < nnc_type_numel(&r->value[o].type); i++) {
        const bool counts = isfinite(nnc_rval_number(&r->value[o], i)) && !nnc_is_open(r, o, i);
        sum += counts ? square[i] : 0;
        n += counts;
    }
    return n ? sum / ((double)n * draws) : 0;
}

nnc_rounding nnc_rounding_of(nnc_precision precision, nnc_math math, bool contracted)
{
    const double unit = precision == NNC_PRECISION_bf16 ? 0x1p-8 : 0x1p-11;
    nnc_rounding r = {.function_error = math == MATH_fast ? FAST_ERROR : 0};
    if (contracted && nnc_precision_tolerance(precision) > 0) {
        r.operand_unit = unit;
        r.result_unit = nnc_precision_dtype(precision) == DT_f32 ? 0 : unit;
    }
    return r;
}

nnc_status nnc_reference_conditioning(nnc_reference *r, const nnc_graph *g, void *const *inputs,
    int threads, nnc_rounding rounding, double *mean_square, nnc_sink *sink)
{
    /* Draws may all be small by chance in an output of few elements. If the error of a one-element output is distributed as the draws are,
     * 1 in 60 is above 16 times the mean square of 4, 1 in 1000 above that of 16. */
    enum { DRAWS = 16 };
    static const double most_ops = 8e9; /* of all draws */
    int64_t ops, bytes;
    nnc_eval_cost(g, &ops, &bytes);
    const int draws = (int)fmin(fmax(most_ops / fmax((double)ops, 1), 1), DRAWS);
    NNC_LOCAL(nnc_arena) a = {0};
    double **square = ARENA_NEW(&a, double *, r->n_out + 1);
    nnc_status st = square ? NNC_OK : nnc_nomem(sink);
    for (int o = 0; !st && o < r->n_out; o++)
        if (!(square[o] = ARENA_NEW(&a, double, nnc_type_numel(&r->value[o].type) + 1)))
            st = nnc_nomem(sink);
    for (int k = 0; !st && k < draws; k++) {
        bool possible;
        nnc_rval *value = nnc_calloc((size_t)r->n_out, sizeof *value);
        rounding.seed = (uint64_t)k + 1;
        st = value ? evaluate(r, g, inputs, threads, &rounding, &possible, value, sink)
                   : nnc_nomem(sink);
        for (int o = 0; !st && o < r->n_out; o++)
            st = add_draw(r, o, &value[o], square[o], sink);
        free_values(value, r->n_out);
    }
    for (int o = 0; !st && o < r->n_out; o++)
        mean_square[o] = mean_of_draws(r, o, square[o], draws);
    return st;
}

void nnc_reference_deinit(nnc_reference *t)
{
    free_values(t->value, t->n_out);
    for (int o = 0; t->open && o < t->n_out; o++)
        nnc_free(t->open[o]);
    nnc_free(t->open);
    nnc_free(t->carried_out);
    nnc_free(t->row);
    *t = (nnc_reference){0};
}

/* ---- errors ------------------------------------------------------------------------------------------ */

void nnc_error_add(nnc_error *e, double got, double want)
{
    if (!isfinite(got) || !isfinite(want)) {
        bool same = got == want || (isnan(got) && isnan(want));
        e->not_finite += same;
        e->mismatched += !same;
        return;
    }
    e->n++;
    double d = got - want;
    e->diff2 += d * d;
    e->ref2 += want * want;
    e->max_abs = fmax(e->max_abs, fabs(d));
    e->ref_max = fmax(e->ref_max, fabs(want));
}

void nnc_error_add_reference(
    nnc_error *e, const nnc_reference *r, int o, int64_t i, double got, double was, bool all)
{
    if (!all && nnc_is_open(r, o, i))
        e->open++;
    else
        nnc_error_add(e, got - was, nnc_rval_number(&r->value[o], i) - was);
}

bool nnc_error_within(const nnc_error *e, double diff2)
{
    return !e->mismatched && e->diff2 <= diff2;
}

double nnc_error_nmse(const nnc_error *e)
{
    if (e->mismatched)
        return INFINITY;
    return e->diff2 == 0 ? 0 : e->ref2 == 0 ? INFINITY : e->diff2 / e->ref2;
}

double nnc_error_max_rel(const nnc_error *e)
{
    if (e->mismatched)
        return INFINITY;
    return e->max_abs == 0 ? 0 : e->ref_max == 0 ? INFINITY : e->max_abs / e->ref_max;
}

double nnc_default_tolerance(nnc_dtype d)
{
    switch (d) {
    case DT_f64: return 1e-24;
    case DT_f32: return 1e-11;
    case DT_f16: return 1e-6;
    case DT_bf16: return 1e-4;
    default: return 0;
    }
}

nnc_dtype nnc_coarsest_dtype(const nnc_graph *g, int i, bool *contracted, nnc_arena *a)
{
    nnc_dtype coarsest = (nnc_dtype)nnc_typeof(g, g->output[i])->dtype;
    bool *used = ARENA_NEW(a, bool, g->n_value + 1);
    *contracted = !used;
    if (!used)
        return coarsest;
    used[g->output[i]] = true;
    for (uint32_t k = g->n_node; k-- > 0;) {
        const nnc_node *n = &g->node[k];
        bool needed = false;
        for (int o = 0; o < n->n_out; o++) {
            nnc_dtype d = (nnc_dtype)nnc_typeof(g, n->out + (nnc_ref)o)->dtype;
            if (!used[n->out + (nnc_ref)o])
                continue;
            needed = true;
            if (nnc_default_tolerance(d) > nnc_default_tolerance(coarsest))
                coarsest = d;
        }
        *contracted |= needed && nnc_op_class(n->op) == CL_contract;
        for (int o = 0; needed && o < n->n_in; o++)
            used[n->in[o]] = true;
    }
    return coarsest;
}

double nnc_precision_tolerance(nnc_precision p)
{
    switch (p) {
    case NNC_PRECISION_tf32:
    case NNC_PRECISION_f16: return 1e-5;
    case NNC_PRECISION_bf16: return 1e-3;
    default: return 0;
    }
}

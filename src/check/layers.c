/* check/layers.c -- runs a model with all of its intermediate values as outputs: once in float64, once fused, once unfused.
 *
 * A program's values are those of its graph after the passes, planned with further outputs. So its kernels are the ones that users
 * run. The origin of such a value is the union of the layers that it was made from. It belongs to the one of them whose float64 value
 * it is near. A value that is near none may have been introduced by a pass (an activation and a pooling that changed places). Then it
 * is right as the float64 value of its own graph. Errors of the passes themselves are seen in the model's outputs. */
#include "check/layers.h"
#include "session/session.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

/* An nmse that tells one layer's value from another's, not right from wrong. */
#define NEAR 1e-2
/* Part of a value's error as a layer's: a smaller error as its own says that it is another value. A wrong kernel's is the same as both; a
 * right one's may be large in a model that amplifies rounding, as DenseNet-121 with small images. */
#define FAR 1e-1

/* ---- graphs whose values are outputs --------------------------------------------------------- */

static void keep_states(nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        g->node[i].state = g->node[i].accumulates = false;
}

void nnc_drop_updates(nnc_graph *g)
{
    g->n_output = nnc_result_outputs(g);
    keep_states(g);
}

void nnc_expose_updates(nnc_graph *g)
{
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++) {
        g->output_name[i] = g->value[g->output_state[i]].name;
        g->output_state[i] = NNC_NONE;
    }
    keep_states(g);
}

void nnc_judged_lr(const nnc_artifact *a, void *const *input)
{
    for (int i = 0; i < a->plan->n_input; i++)
        if (!strcmp(nnc_artifact_own_input(a, i), NNC_TRAIN_LR) && *(float *)input[i] == 0)
            *(float *)input[i] = 1024;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = s ? strlen(s) : 0, m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

void nnc_judged_moments(nnc_graph *g)
{
    static const float usual = 1e-2F;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && ends_with(g->node[i].weight->name, NNC_TRAIN_MOMENT2))
            g->node[i].weight->shift = usual * usual;
}

static bool is_output(const nnc_graph *g, nnc_ref r)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i] == r)
            return true;
    return false;
}

/* Is r a view of a param that is updated? Its old value cannot be an output. */
static bool shows_state(const nnc_graph *g, nnc_ref r)
{
    const nnc_node *n = nnc_def(g, r);
    while (nnc_op_class((nnc_op)n->op) != CL_leaf && nnc_is_view(g, n))
        n = nnc_def(g, n->in[0]);
    return n->state;
}

/* Makes value r an output, in the user's memory order, unless it lies inside another value. */
static void expose(nnc_graph *g, nnc_ref r)
{
    char name[32];
    if (shows_state(g, r))
        return;
    snprintf(name, sizeof name, "value %u", g->n_output);
    r = nnc_row_major(g, r);
    if (r != NNC_NONE && nnc_type_is_row_major(nnc_typeof(g, r)) && !is_output(g, r))
        nnc_output(g, r, name);
}

/* By value: is it, or does it consist of, the old value of a state? */
static bool *old_states(const nnc_graph *g, nnc_arena *a)
{
    const nnc_place *place = nnc_places(g, a);
    bool *old = ARENA_NEW(a, bool, 2 * (size_t)g->n_value + 1), *root = old + g->n_value;
    if (!place || !old)
        return NULL;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].state)
            root[place[g->node[i].out].root] = true;
    for (nnc_ref r = 0; r < g->n_value; r++)
        old[r] = root[place[r].root];
    return old;
}

/* Values that depend on inputs; with `only`, those that it marks. */
static nnc_status expose_values(nnc_graph *g, const bool *only, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const uint32_t n_value = g->n_value;
    const bool *fixed = nnc_static_values(g, &a), *old = old_states(g, &a);
    NNC_NEED(fixed && old, sink);
    for (nnc_ref r = 0; r < n_value; r++)
        if (!fixed[r] && !old[r] && (!only || only[r]) &&
            nnc_op_class((nnc_op)nnc_def(g, r)->op) != CL_leaf)
            expose(g, r);
    return g->status;
}

static nnc_status expose_all(void *ctx, nnc_graph *g, nnc_sink *sink)
{
    (void)ctx;
    return expose_values(g, NULL, sink);
}

/* Marks the values that another layer reads than the one that computes them. */
static bool *results_of_layers(const nnc_graph *g, nnc_arena *a)
{
    bool *result = ARENA_NEW(a, bool, g->n_value + 1);
    for (uint32_t i = 0; result && i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const char *from = nnc_def(g, g->node[i].in[k])->origin, *to = g->node[i].origin;
            result[g->node[i].in[k]] |= !from || !to || strcmp(from, to) != 0;
        }
    return result;
}

static const char *name_of(const nnc_graph *g, nnc_ref state)
{
    return g->value[state].name ? g->value[state].name : "a state";
}

/* The name of the weight whose gradient value r is; NULL: it is none. */
static const char *gradient_of(layers *l, nnc_ref r)
{
    const char *name = l->source->value[r].name;
    if (!ends_with(name, NNC_TRAIN_GRADIENT))
        return NULL;
    return nnc_arena_printf(
        &l->a, "gradient of %.*s", (int)(strlen(name) - strlen(NNC_TRAIN_GRADIENT)), name);
}

static void set_layer(layers *l, int at, nnc_ref r)
{
    const nnc_graph *g = l->source;
    const nnc_node *n = nnc_def(g, r);
    const char *name = n->origin          ? n->origin
                       : g->value[r].name ? g->value[r].name
                                          : nnc_ops[n->op].name;
    const char *gradient = gradient_of(l, r);
    l->at[at].name = gradient       ? gradient
                     : n->n_out > 1 ? nnc_arena_printf(&l->a, "%s:%u", name, r - n->out)
                                    : name;
    l->at[at].loc = n->loc;
    l->at[at].origin = n->origin;
    l->at[at].type = *nnc_typeof(g, r);
}

/* The model with every layer's value as an output. */
static nnc_status make_source(layers *l, const nnc_graph *written)
{
    nnc_graph *g = l->source = nnc_graph_clone(written, l->sink);
    NNC_NEED(g, l->sink);
    l->n_output = (int)nnc_result_outputs(g);
    const bool *result = results_of_layers(g, &l->a);
    NNC_NEED(result, l->sink);
    NNC_TRY(expose_values(g, result, l->sink));
    l->n = (int)nnc_result_outputs(g);
    l->n_state = (int)g->n_output - l->n;
    l->at = ARENA_NEW(&l->a, layer, g->n_output + 1);
    l->initial = ARENA_NEW(&l->a, void *, l->n_state + 1);
    NNC_NEED(l->at && l->initial, l->sink);
    for (int i = 0; i < (int)g->n_output; i++) {
        const nnc_ref r = i < l->n ? g->output[i] : g->output_state[i];
        set_layer(l, i, r);
        l->at[i].name = i < l->n ? l->at[i].name : name_of(g, r);
        NNC_NEED(l->at[i].name, l->sink);
    }
    return NNC_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static nnc_status compile(layers *l, const nnc_graph *model, int which)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_compile_options c = l->o->compile;
    const char **skip = ARENA_NEW(&a, const char *, c.n_skip + nnc_pass_count);
    int n = c.n_skip;
    NNC_NEED(skip, l->sink);
    memcpy(skip, c.skip ? c.skip : skip, (size_t)n * sizeof *skip);
    for (int i = 0; i < nnc_pass_count && which == UNFUSED; i++)
        if (nnc_pass_table[i].fusion)
            skip[n++] = nnc_pass_table[i].name;
    c.skip = skip;
    c.n_skip = n;
    return nnc_compile_edited(l->env, model, &c, expose_all, NULL, &l->program[which], l->sink);
}

/* Adds the error of the value data of layer `want` over the rows that the reference has. A state's error is that of its change from
 * `was`. */
static void add_errors(
    const layers *l, int want, const nnc_type *t, const void *data, const void *was, side *s)
{
    const nnc_reference *r = &l->reference;
    const nnc_rval *value = &r->value[want];
    const bool rows = r->rows && r->carried_out[want];
    const int64_t n_row = rows ? r->rows : 1, row = nnc_type_numel(t) / (rows ? t->dim[0] : 1);
    double most = -1;
    for (int64_t k = 0; k < n_row; k++)
        for (int64_t i = 0; i < row; i++) {
            const int64_t at = (rows ? r->row[k] : 0) * row + i, open = s->e.open;
            const double got = nnc_get_f64((nnc_dtype)t->dtype, data, at),
                         v = nnc_rval_number(value, k * row + i), d = fabs(got - v);
            nnc_error_add_reference(&s->e, r, want, k * row + i, got,
                was ? nnc_get_f64((nnc_dtype)t->dtype, was, at) : 0, false);
            if (s->e.open > open)
                continue;
            if (d > most || (isnan(d) && !(isnan(got) && isnan(v)) && most < INFINITY)) {
                most = isnan(d) ? INFINITY : d;
                s->worst = at;
                s->got = got;
                s->want = v;
            }
        }
}

/* Is the layer one of the origin's, "a+b+c"? */
static bool made_from(const char *origin, const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    for (const char *p = origin; p && n && (p = strstr(p, path)) != NULL; p += n)
        if ((p == origin || p[-1] == '+') && (p[n] == '+' || !p[n]))
            return true;
    return false;
}

static bool may_be(const layer *y, const char *origin, const nnc_type *t)
{
    const nnc_dtype a = (nnc_dtype)y->type.dtype, b = (nnc_dtype)t->dtype;
    return nnc_type_same_shape(&y->type, t) && (a == b || (nnc_is_float(a) && nnc_is_float(b))) &&
           made_from(origin, y->origin);
}

double nnc_layer_limit(layers *l, int i)
{
    const nnc_compare_options *o = l->o;
    bool contracted;
    if (o->tolerance != 0)
        return fmax(o->tolerance, 0);
    (void)nnc_coarsest_dtype(l->source, i, &contracted, &l->a);
    const double limit = nnc_default_tolerance((nnc_dtype)l->at[i].type.dtype);
    return contracted ? fmax(limit, nnc_precision_tolerance(l->program[FUSED]->plan->precision))
                      : limit;
}

/* One value of a program, as it was computed. */
typedef struct value {
    int output;
    const char *origin;
    const nnc_type *type;
    const void *data;
} value;

static void keep_nearer(layers *l, int i, int which, const side *s, value *v)
{
    side *now = &l->at[i].side[which];
    if (now->there && nnc_error_nmse(&now->e) <= nnc_error_nmse(&s->e))
        return;
    *now = *s;
    now->there = true;
    now->in = v->origin;
}

/* The layer whose value it may be: the nearest, or the last where it is near none. -1: no layer. */
static int which_layer(layers *l, const value *v, side *s, bool *within_limit)
{
    int best = -1;
    double least = INFINITY;
    *within_limit = false;
    for (int i = l->n - 1; i >= 0 && !*within_limit; i--) {
        side this = {.there = true};
        if (!may_be(&l->at[i], v->origin, v->type))
            continue;
        add_errors(l, i, v->type, v->data, NULL, &this);
        const double nmse = layers_all_open(&this) ? INFINITY : nnc_error_nmse(&this.e);
        if (best >= 0 && !(nmse < least && nmse < NEAR))
            continue;
        best = i;
        least = nmse;
        *s = this;
        *within_limit = nmse <= nnc_layer_limit(l, i);
    }
    return best;
}

/* Is the value right as its own float64 value, where that is known, while e is its error as a layer's? A value that is 0 but for rounding,
 * as gradients may be, has a relative error of about 1. Relative to the layer's value it is small. */
static nnc_status is_other(
    layers *l, int which, nnc_reference *own, const value *v, const nnc_error *e, bool *other)
{
    const nnc_graph *g = l->program[which]->graph;
    side s = {.there = true};
    if (!own->value)
        NNC_TRY(nnc_reference_make(g, l->input, nnc_env_threads(l->env), own, l->sink));
    const layers as = {.reference = *own};
    *other = false;
    if (!own->ran)
        return NNC_OK;
    add_errors(&as, v->output, v->type, v->data, NULL, &s);
    *other = nnc_error_nmse(&s.e) < FAR * nnc_error_nmse(e) ||
             (!s.e.mismatched && s.e.n == e->n && s.e.diff2 < FAR * e->diff2);
    return NNC_OK;
}

/* Finds the value's layer. A value that is wrong as the layer's and right as its own was invented by a pass. */
static nnc_status place(layers *l, int which, nnc_reference *own, value *v)
{
    side s = {.there = true};
    bool within_limit, other = false;
    if (v->output < l->n_output) { /* known by its number */
        add_errors(l, v->output, v->type, v->data, NULL, &s);
        keep_nearer(l, v->output, which, &s, v);
        return NNC_OK;
    }
    const int i = which_layer(l, v, &s, &within_limit);
    if (i < 0)
        return NNC_OK;
    if (!within_limit)
        NNC_TRY(is_other(l, which, own, v, &s.e, &other));
    if (other)
        l->at[i].side[which].other = true;
    else
        keep_nearer(l, i, which, &s, v);
    return NNC_OK;
}

/* Layers of a program that have no value of their own: the command that computes them. */
static void find_groups(layers *l, int which)
{
    const nnc_graph *g = l->program[which]->graph;
    for (int i = l->n_output; i < l->n; i++)
        for (uint32_t n = 0; n < g->n_node && !l->at[i].side[which].in; n++)
            if (made_from(g->node[n].origin, l->at[i].origin))
                l->at[i].side[which].in = g->node[n].origin;
}

/* The states before the step, which are the same in all programs. */
static nnc_status keep_initial(layers *l, nnc_session *s)
{
    for (int i = 0; i < l->n_state && !l->initial[i]; i++) {
        l->initial[i] = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(nnc_session_state_type(s, i)));
        NNC_NEED(l->initial[i], l->sink);
        NNC_TRY(nnc_session_state(s, i, l->initial[i], l->sink));
    }
    return NNC_OK;
}

/* Layers of the command that computes the new value of state i. */
static const char *updater(const nnc_plan *p, int i)
{
    const char *by = NULL;
    for (int c = nnc_plan_first(p, SEC_main); c < p->n_cmd; c++)
        for (int k = 0; k < p->cmd[c].n_arg; k++)
            if (p->cmd[c].arg[k] == p->update[i].value)
                by = p->cmd[c].layers;
    return by;
}

static nnc_status place_states(layers *l, int which, nnc_session *s)
{
    for (int i = 0; i < l->n_state; i++) {
        const nnc_type *t = nnc_session_state_type(s, i);
        NNC_FREED void *data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        NNC_NEED(data, l->sink);
        NNC_TRY(nnc_session_state(s, i, data, l->sink));
        side *to = &l->at[l->n + i].side[which];
        to->there = true;
        to->in = updater(l->program[which]->plan, i);
        add_errors(l, l->n + i, t, data, l->initial[i], to);
    }
    return NNC_OK;
}

static nnc_status keep_result(layers *l, int i, const value *v)
{
    const size_t bytes = (size_t)nnc_type_bytes(v->type);
    l->result[i] = nnc_aligned_alloc(64, bytes);
    NNC_NEED(l->result[i], l->sink);
    memcpy(l->result[i], v->data, bytes);
    return NNC_OK;
}

static nnc_status run_program(layers *l, int which)
{
    NNC_OWNED(nnc_session) *s = NULL;
    NNC_LOCAL(nnc_reference) own = {0};
    const nnc_graph *g = l->program[which]->graph;
    NNC_TRY(nnc_session_create(l->env, l->program[which], &s, l->sink));
    for (int i = 0; i < l->n_input; i++)
        NNC_TRY(nnc_session_input(s, i, l->input[i], l->sink));
    NNC_TRY(keep_initial(l, s));
    NNC_TRY(l->n_state ? nnc_session_step(s, l->sink) : nnc_session_run(s, l->sink));
    NNC_TRY(place_states(l, which, s));
    for (int i = 0; i < nnc_session_results(s); i++) {
        const nnc_type *t = nnc_session_output_type(s, i);
        NNC_FREED void *data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        value v = {i, nnc_def(g, g->output[i])->origin, t, data};
        NNC_NEED(data, l->sink);
        NNC_TRY(nnc_session_output(s, i, data, l->sink));
        if (l->against && which == FUSED && i < l->n_output && !l->result[i])
            NNC_TRY(keep_result(l, i, &v));
        NNC_TRY(place(l, which, &own, &v));
    }
    find_groups(l, which);
    return NNC_OK;
}

static nnc_status run_and_judge(layers *l)
{
    for (int k = 0; k < SIDES; k++)
        NNC_TRY(run_program(l, k));
    return nnc_layers_judge(l);
}

/* ---- all of it ------------------------------------------------------------------------------- */

nnc_status nnc_layers_verify(
    layers *l, nnc_env *e, const nnc_model *m, const nnc_compare_options *o, nnc_sink *sink)
{
    l->env = e;
    l->o = o;
    l->sink = sink;
    NNC_NEED((l->model = nnc_graph_clone(m, sink)), sink);
    if (o->training)
        nnc_judged_moments(l->model);
    else
        nnc_drop_updates(l->model);
    for (int k = 0; k < SIDES; k++)
        NNC_TRY(compile(l, l->model, k));
    NNC_TRY(make_source(l, l->program[FUSED]->source));
    l->n_input = l->program[FUSED]->plan->n_input;
    l->input = ARENA_NEW(&l->a, void *, l->n_input + 1);
    l->result = ARENA_NEW(&l->a, void *, l->n_output + 1);
    NNC_NEED(l->input && l->result, sink);
    NNC_TRY(nnc_artifact_make_inputs(l->program[FUSED], o, o->seed, l->input, sink));
    if (o->training)
        nnc_judged_lr(l->program[FUSED], l->input);
    NNC_TRY(nnc_reference_make(l->source, l->input, nnc_env_threads(e), &l->reference, sink));
    if (!l->reference.ran)
        return nnc_fail0(
            sink, NNC_E_FIT, "the float64 reference of all layers is %s", l->reference.scope);
    NNC_TRY(run_and_judge(l));
    if (l->agrees || !l->reference.any_open)
        return NNC_OK;
    for (int i = 0; i < l->n + l->n_state; i++) /* once more, without the open elements */
        memset(l->at[i].side, 0, sizeof l->at[i].side);
    nnc_ties_deinit(&l->ties);
    return run_and_judge(l);
}

void layers_deinit(layers *l)
{
    for (int i = 0; l->input && i < l->n_input; i++)
        nnc_free(l->input[i]);
    for (int i = 0; l->result && i < l->n_output; i++)
        nnc_free(l->result[i]);
    for (int i = 0; l->initial && i < l->n_state; i++)
        nnc_free(l->initial[i]);
    for (int k = 0; k < SIDES; k++)
        nnc_artifact_destroy(l->program[k]);
    nnc_ties_deinit(&l->ties);
    nnc_reference_deinit(&l->reference);
    nnc_graph_destroy(l->source);
    nnc_graph_destroy(l->model);
    nnc_arena_deinit(&l->a);
}

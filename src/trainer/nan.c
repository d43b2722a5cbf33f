/* trainer/nan.c -- where a number that is NaN or infinite arose: in the data, in a layer, in a gradient, or in an update.
 *
 * A step updates states only if its loss is finite. So after a bad loss the states are those before the step. That step runs once more as
 * a graph that also counts, for each layer, the numbers of its result that are not finite. Where a state is not finite already, an
 * earlier update made it so. The steps since the last checkpoint (without one, since the first) run once more. All states are checked
 * after each, until the first bad one is known. Then that step is examined. Over ranks the others follow the programs of the training
 * only: rank 0 does all of this by itself, with copies of the states. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/state.h"

#include <math.h>
#include <string.h>

#define ADVICE "a smaller --lr or --clip-norm may help; nothing was saved"

/* The first number that is not finite; -1: there is none. */
static int64_t first_bad(const nnc_type *t, const void *data)
{
    const int64_t n = nnc_type_numel(t);
    const nnc_dtype d = (nnc_dtype)t->dtype;
    const float *f = data;
    if (d == DT_f32) { /* states, many of them: quickly */
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(f[i]))
                return i;
        return -1;
    }
    for (int64_t i = 0; nnc_is_float(d) && i < n; i++)
        if (!isfinite(nnc_get_f64(d, data, i)))
            return i;
    return -1;
}

bool nan_is_sum(const trainer *t, const char *state)
{
    const size_t n = strlen(state), end = strlen(NNC_TRAIN_SUM);
    bool ends = t->o->training.accumulate > 1 && n > end && !strcmp(state + n - end, NNC_TRAIN_SUM);
    for (uint32_t i = 0; ends && i < t->model->n_node; i++) { /* or a weight of that name */
        const nnc_node *p = &t->model->node[i];
        ends = p->op != OP_param || !p->weight->name || strcmp(p->weight->name, state) != 0;
    }
    return ends;
}

/* The first state that has a number that is not finite; -1: none. */
static nnc_status bad_state(trainer *t, nnc_session *s, int *state)
{
    for (*state = 0; *state < nnc_session_states(s); ++*state) {
        if (nan_is_sum(t, nnc_session_state_of(s, *state)))
            continue;
        const nnc_type *type = nnc_session_state_type(s, *state);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(type));
        NNC_NEED(data, t->sink);
        NNC_TRY(nnc_session_state(s, *state, data, t->sink));
        if (first_bad(type, data) >= 0)
            return NNC_OK;
    }
    *state = -1;
    return NNC_OK;
}

/* ---- data -------------------------------------------------------------------------------------------------------------------- */

static void begin_batch(trainer *t, int k)
{
    trainer_begin(t, NNC_DATA_train, t->epoch, t->at * t->accumulate + k);
}

/* NNC_E_DIFFERS, reported: batch k of the step holds a number that is not finite. */
static nnc_status check_data(trainer *t, int k)
{
    const void *batch[NNC_COUNT(t->in)];
    begin_batch(t, k);
    NNC_TRY(nnc_data_next(t->data, batch, t->sink));
    for (int i = 0; i < t->n_in; i++) {
        const nnc_type *type = &t->in[i].type;
        const int64_t at = first_bad(type, batch[i]), row = nnc_type_numel(type) / type->dim[0];
        NNC_LOCAL(nnc_text) where = {0};
        if (at < 0)
            continue;
        nnc_data_where(t->data, at / row, &where);
        return nnc_fail0(t->sink, NNC_E_DIFFERS,
            "step %lld: the data are not finite: %s has %g at number %lld of %s; nothing was saved",
            (long long)t->step + 1, t->in[i].name,
            nnc_get_f64((nnc_dtype)type->dtype, batch[i], at), (long long)(at % row),
            nnc_text_str(&where));
    }
    return NNC_OK;
}

/* ---- a step looked into -------------------------------------------------------------------------------------------------------- */

typedef struct probe {
    program p;
    nnc_ref *value; /* of each output that counts */
    int first, n; /* these outputs */
} probe;

static void probe_deinit(probe *x)
{
    trainer_close(&x->p);
}

/* Marks the float values that another layer reads, or an update stores. */
static void mark(const nnc_graph *g, bool *look)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const char *from = nnc_def(g, g->node[i].in[k])->origin, *to = g->node[i].origin;
            look[g->node[i].in[k]] |= !from || !to || strcmp(from, to) != 0;
        }
    for (uint32_t i = 0; i < g->n_output; i++)
        look[g->output[i]] = true;
    for (nnc_ref r = 0; r < g->n_value; r++)
        look[r] = look[r] && nnc_is_float((nnc_dtype)nnc_typeof(g, r)->dtype) &&
                  nnc_op_class((nnc_op)nnc_def(g, r)->op) != CL_leaf;
}

/* An output that counts the numbers of r that are not finite. */
static void count_bad(nnc_graph *g, nnc_ref r)
{
    int64_t axes[NNC_MAX_RANK];
    const int rank = nnc_typeof(g, r)->rank;
    const nnc_dtype d = (nnc_dtype)nnc_typeof(g, r)->dtype;
    char name[32];
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    snprintf(name, sizeof name, "bad %u", r);
    nnc_ref size = nnc_build1(g, OP_abs, r);
    nnc_ref good = nnc_build2(g, OP_lt, size, nnc_scalar(g, d, INFINITY));
    nnc_ref bad =
        nnc_build3(g, OP_select, good, nnc_scalar(g, DT_f32, 0), nnc_scalar(g, DT_f32, 1));
    nnc_output(g, rank ? nnc_reduce(g, OP_reduce_sum, bad, rank, axes, false) : bad, name);
}

/* The graph of the step with those outputs; its updates stay, so that its params are the states. */
static nnc_status probe_graph(trainer *t, probe *x, nnc_arena *a)
{
    nnc_graph *g = x->p.graph = nnc_graph_clone(t->train.graph, t->sink);
    NNC_NEED(g, t->sink);
    const uint32_t n = g->n_value;
    bool *look = ARENA_NEW(a, bool, n + 1);
    x->value = ARENA_NEW(a, nnc_ref, n + 1);
    NNC_NEED(look && x->value, t->sink);
    mark(g, look);
    g->origin = "/probe";
    x->first = (int)nnc_result_outputs(g);
    for (nnc_ref r = 0; r < n; r++)
        if (look[r]) {
            x->value[x->n++] = r;
            count_bad(g, r);
        }
    return g->status;
}

/* Gives s the numbers of all states of `from`. */
static nnc_status take_copies(nnc_session *s, nnc_session *from, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_states(s); i++) {
        const nnc_type *type = nnc_session_state_type(s, i);
        const int k = trainer_state_named(from, nnc_session_state_name(s, i));
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(type));
        NNC_NEED(data, sink);
        if (k < 0 || nnc_type_bytes(nnc_session_state_type(from, k)) != nnc_type_bytes(type))
            return nnc_fail0(
                sink, NNC_E_BUG, "%s is no state of both programs", nnc_session_state_name(s, i));
        NNC_TRY(nnc_session_state(from, k, data, sink));
        NNC_TRY(nnc_session_set_state(s, i, data, sink));
    }
    return NNC_OK;
}

/* A session of this process, with the states of `from` (NULL: its own). */
static nnc_status open_alone(
    const trainer *t, const nnc_artifact *a, nnc_session *from, nnc_session **out)
{
    if (nnc_env_world(t->e) == 1)
        return nnc_session_create_with(t->e, a, from, out, t->sink);
    NNC_TRY(nnc_session_create_alone(t->e, a, false, out, t->sink));
    return from ? take_copies(*out, from, t->sink) : NNC_OK;
}

/* Layer by layer, with the states of s. Lower precision than f32 is a matter of -O2. */
static nnc_status open_probe(trainer *t, nnc_session *s, probe *x, nnc_arena *a)
{
    nnc_compile_options o = t->o->compile;
    if (o.precision == nnc_compile_defaults.precision)
        o.level = 0;
    NNC_TRY(probe_graph(t, x, a));
    NNC_TRY(nnc_compile(t->e, x->p.graph, &o, &x->p.artifact, t->sink));
    return open_alone(t, x->p.artifact, s, &x->p.session);
}

/* Runs batch k of the step: the first of the probe's values with a number that is not finite, and how many; -1: none. */
static nnc_status run_probe(trainer *t, probe *x, int k, int *first, float *count)
{
    double loss;
    begin_batch(t, k);
    NNC_TRY(trainer_run(t, &x->p, k, &loss));
    for (*first = 0; *first < x->n; ++*first) {
        NNC_TRY(nnc_session_output(x->p.session, x->first + *first, count, t->sink));
        if (*count > 0)
            return NNC_OK;
    }
    *first = -1;
    return NNC_OK;
}

/* what: "the loss is nan" */
static nnc_status report_value(
    const trainer *t, const probe *x, int first, float count, const char *what)
{
    const nnc_graph *g = x->p.graph;
    const nnc_ref r = x->value[first];
    const nnc_node *n = nnc_def(g, r);
    const char *back = n->origin ? strstr(n->origin, "/backward") : NULL;
    nnc_loc loc = n->loc;
    loc.path = n->origin;
    return nnc_fail(t->sink, NNC_E_DIFFERS, loc,
        "step %lld: %s. It arose here: %.0f of %lld numbers of the %s (op %s) are not finite, "
        "data, "
        "weights and all layers before are; " ADVICE,
        (long long)t->step + 1, what, (double)count, (long long)nnc_type_numel(nnc_typeof(g, r)),
        back ? "gradient" : "result", nnc_ops[n->op].name);
}

static nnc_status report_nothing(const trainer *t, const char *what)
{
    return nnc_fail0(t->sink, NNC_E_DIFFERS,
        "step %lld: %s; computed layer by layer the step is finite: fused layers round "
        "otherwise; " ADVICE,
        (long long)t->step + 1, what);
}

/* ---- the step that made a state bad ------------------------------------------------------------------------------------------------ */

static nnc_status take_again(trainer *r, int k, double *loss)
{
    begin_batch(r, k);
    NNC_TRY(trainer_run(r, &r->train, k, loss));
    if (!isfinite(*loss) && r->o->on_nan == NNC_NAN_skip)
        return skip_step(r, k);
    return nnc_session_update(r->train.session, k == r->accumulate - 1, r->sink);
}

/* Looks into the step, batch by batch: gradients are accumulated in between. */
static nnc_status look_into(trainer *r, const char *what)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(probe) x = {0};
    int first = -1;
    float count = 0;
    double loss;
    NNC_TRY(open_probe(r, r->train.session, &x, &a));
    for (int k = 0; first < 0 && k < r->accumulate; k++) {
        NNC_TRY(run_probe(r, &x, k, &first, &count));
        if (first < 0 && k < r->accumulate - 1)
            NNC_TRY(take_again(r, k, &loss));
    }
    return first < 0 ? report_nothing(r, what) : report_value(r, &x, first, count, what);
}

/* Takes steps until a state is not finite; `before` has the states from before that step. *bad: the state. */
static nnc_status find_step(trainer *r, int64_t last, char *before, int *bad)
{
    for (*bad = -1; r->step < last && !(r->o->stop && *r->o->stop); r->step++, r->at++) {
        if (r->at == r->per_epoch) {
            r->epoch++;
            r->at = 0;
        }
        if (r->o->progress)
            r->o->progress(r->o->ctx, "looking for the step that made a state infinite", NULL);
        double loss = 0;
        NNC_TRY(trainer_copy(r, NULL, nnc_session_states(r->train.session), before, false));
        NNC_TRY(skip_begin(r));
        for (int k = 0; k < r->accumulate && isfinite(loss); k++)
            NNC_TRY(take_again(r, k, &loss));
        r->updates += isfinite(loss) || r->o->on_nan != NNC_NAN_skip;
        NNC_TRY(bad_state(r, r->train.session, bad));
        if (*bad >= 0)
            return NNC_OK;
    }
    return NNC_OK;
}

static nnc_status replay(trainer *r, int64_t last, const char *state)
{
    int64_t log, bytes = 1;
    int bad;
    char what[256];
    nnc_session *s = r->train.session;
    for (int i = 0; i < nnc_session_states(s); i++)
        bytes += nnc_type_bytes(nnc_session_state_type(s, i));
    NNC_FREED char *before = nnc_malloc((size_t)bytes);
    NNC_NEED(before, r->sink);
    if (r->o->checkpoint && nnc_file_exists(r->o->checkpoint))
        NNC_TRY(checkpoint_read(r, &log));
    NNC_TRY(find_step(r, last, before, &bad));
    if (bad < 0)
        return nnc_fail0(r->sink, NNC_E_DIFFERS, "%s is no longer finite after step %lld; " ADVICE,
            state, (long long)last);
    snprintf(what, sizeof what, "its update makes %.200s infinite or NaN",
        nnc_session_state_name(s, bad));
    NNC_TRY(trainer_copy(r, NULL, nnc_session_states(s), before, true));
    return look_into(r, what);
}

/* The state is not finite after step t->step. */
static nnc_status report_update(trainer *t, int state)
{
    trainer r = *t;
    r.train.session = NULL;
    r.log = NULL;
    r.step = r.at = r.updates = 0;
    r.before = (skip_copy){0};
    r.epoch = 1;
    nnc_status st = open_alone(t, t->train.artifact, NULL, &r.train.session);
    if (!st)
        st = replay(&r, t->step, nnc_session_state_name(t->train.session, state));
    nnc_session_destroy(r.train.session);
    skip_end(&r);
    return st;
}

/* ---- both --------------------------------------------------------------------------------------------------------------------------- */

nnc_status nan_check(trainer *t)
{
    int state;
    NNC_TRY(bad_state(t, t->train.session, &state));
    if (state >= 0 && !t->data) /* the steps cannot be taken again */
        return nnc_fail0(t->sink, NNC_E_DIFFERS, "%s is not finite after step %lld; " ADVICE,
            nnc_session_state_name(t->train.session, state), (long long)t->step);
    return state < 0 ? NNC_OK : report_update(t, state);
}

nnc_status nan_report(trainer *t, double loss, int k)
{
    char what[64];
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(probe) x = {0};
    int first;
    float count;
    nnc_snprintf(what, sizeof what, "the loss is %g", loss);
    NNC_TRY(nan_check(t));
    NNC_TRY(check_data(t, k));
    NNC_TRY(open_probe(t, t->train.session, &x, &a));
    NNC_TRY(run_probe(t, &x, k, &first, &count));
    return first < 0 ? report_nothing(t, what) : report_value(t, &x, first, count, what);
}

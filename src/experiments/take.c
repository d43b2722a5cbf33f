/* experiments/take.c -- predicts the runs of experiments on their hardware, and measures those that fit this machine. */
#include "experiments/experiments.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include <math.h>
#include <string.h>

/* A measurement takes at least LEAST_RUNS runs, warm-up included. A run takes up to SLOW times its estimate by peak rates: memory is
 * touched for the first time, other programs run. */
enum { LEAST_RUNS = 5, SLOW = 4, QUICK_MS = 20 };

typedef struct taking {
    nnc_experiments *x;
    const nnc_opener *by;
    const nnc_experiments_options *o;
    int64_t end_ns; /* of the budget */
    int left; /* runs that are not measured yet */
    nnc_sink *sink;
} taking;

static bool is_part(nnc_quantity q)
{
    return q >= QUANTITY_forward && q <= QUANTITY_optimizer;
}

static bool needs_commands(const nnc_experiment_run *r)
{
    bool needs = false;
    for (int i = 0; i < r->n_number; i++)
        needs = needs || is_part(r->number[i].what) || r->number[i].what == QUANTITY_allreduces;
    return needs;
}

/* ---- numbers of commands --------------------------------------------------------------------------------- */

static void add_share(const nnc_profile *p, nnc_taken *t)
{
    double all = 0, collective = 0;
    for (int i = 0; i < p->n; i++) {
        all += p->cmd[i].ms;
        if (p->artifact->plan->cmd[p->cmd[i].cmd].kind == CMD_collective)
            collective += p->cmd[i].ms;
    }
    if (all > 0)
        t->value[QUANTITY_allreduces] = 100 * collective / all;
}

static nnc_status add_parts(const nnc_profile *p, nnc_taken *t, nnc_sink *sink)
{
    const nnc_profile_options by = {.by = BY_part};
    nnc_profile_rows rows;
    const nnc_status st = nnc_profile_group(p, &by, &rows, sink);
    for (int k = 0; !st && k <= PART_optimizer; k++) {
        double *ms = &t->value[QUANTITY_forward + k];
        *ms = 0;
        for (int i = 0; i < rows.n; i++)
            if (!strcmp(rows.row[i].name, nnc_part_names[k]))
                *ms += rows.row[i].ms;
    }
    nnc_arena_deinit(&rows.arena);
    return st;
}
_Static_assert(
    QUANTITY_optimizer - QUANTITY_forward == PART_optimizer, "parts are in nnc_part's order");

/* Numbers that follow from the times of single commands. */
static nnc_status add_commands(const nnc_opened *o, bool predict, nnc_taken *t, nnc_sink *sink)
{
    const bool step = o->time.training != NULL;
    NNC_OWNED(nnc_artifact) *a = NULL;
    NNC_OWNED(nnc_session) *s = NULL;
    const nnc_profile_options all = {0};
    nnc_profile p = {0};
    NNC_TRY(
        (predict ? nnc_compile_plan : nnc_compile)(o->env, o->model, &o->time.compile, &a, sink));
    nnc_status st = NNC_OK;
    if (predict) {
        st = nnc_profile_predict(o->env, a, step, &all, &p, sink);
    } else {
        NNC_TRY(nnc_session_create(o->env, a, &s, sink));
        NNC_TRY(nnc_session_make_inputs(s, &o->time, o->time.seed, sink));
        st = nnc_profile_measure(o->env, s, step, &o->time, &all, &p, sink);
    }
    if (!st)
        add_share(&p, t);
    if (!st && step)
        st = add_parts(&p, t, sink);
    nnc_arena_deinit(&p.arena);
    return st;
}

/* ---- one run --------------------------------------------------------------------------------------------- */

/* Reports what is wrong with the words of a run, at its location; a device or library that is missing is a result. */
static nnc_status blame(
    const taking *k, const nnc_experiment_run *r, nnc_status st, const nnc_sink *said, nnc_taken *t)
{
    if (st == NNC_E_FIT || st == NNC_E_DEVICE || st == NNC_E_BUG) {
        t->taken = true;
        NNC_TRY(nnc_sweep_fail(&t->point, st, said, &k->x->arena, k->sink));
        t->why = t->point.message;
        return NNC_OK;
    }
    nnc_sink_pass_errors(said, k->sink);
    if (st != NNC_E_NOMEM)
        nnc_note(k->sink, r->loc, "in the run \"%s\" of this experiment", r->name);
    return st;
}

static nnc_status take_point(const taking *k, const nnc_experiment_run *r, const nnc_opened *o,
    bool predict, nnc_taken *t, nnc_sink *said)
{
    const nnc_sweep_point_options how = {.time = &o->time, .predict = predict};
    NNC_TRY(nnc_sweep_take(o->env, o->model, &how, &t->point, &k->x->arena, said));
    t->taken = true;
    if (t->point.kind == SWEEP_no_fit || t->point.kind == SWEEP_failed) {
        t->why = t->point.message;
        return NNC_OK;
    }
    t->value[QUANTITY_time] = t->point.median_ms;
    return needs_commands(r) && t->point.chunks == 1 ? add_commands(o, predict, t, said) : NNC_OK;
}

static nnc_status predict(const taking *k, nnc_experiment_run *r, nnc_sink *said)
{
    const nnc_opener *by = k->by;
    nnc_taken *t = &r->predicted;
    int64_t largest = 0;
    nnc_opened o;
    if (!r->fits) {
        NNC_TRY(by->open(by->ctx, r->word, r->n_word, r->hardware, &o, said));
        const nnc_status st = take_point(k, r, &o, true, t, said);
        by->close(by->ctx, &o);
        return st;
    }
    NNC_TRY(by->largest(by->ctx, r->word, r->n_word, r->hardware, &largest, said));
    t->taken = true;
    t->point.kind = SWEEP_predicted;
    t->value[QUANTITY_largest] = (double)largest;
    t->why = largest ? NULL : "none fits";
    return NNC_OK;
}

/* Least seconds of a run, by the cost rules of this machine. */
static double run_s(const nnc_opened *o)
{
    const nnc_cost c = nnc_graph_cost(o->model);
    return 1e-9 * (double)nnc_target_time_ns(&o->env->target[0], c.flops, c.bytes);
}

static nnc_status name_machine(nnc_experiments *x, nnc_env *e, nnc_sink *sink)
{
    const int n = nnc_env_threads(e);
    if (!x->here)
        x->here = nnc_arena_printf(
            &x->arena, "%s, %d thread%s", nnc_env_target(e), n, nnc_plural(n, "s"));
    NNC_NEED(x->here, sink);
    return NNC_OK;
}

/* Whether a measurement is expected to end within s seconds. Otherwise t->why says that, or that the plan does not fit this machine. */
static nnc_status has_time(
    const taking *k, const nnc_opened *o, double s, bool *has, nnc_taken *t, nnc_sink *said)
{
    const double least = run_s(o);
    const nnc_sweep_point_options how = {.time = &o->time, .predict = true};
    *has = least * LEAST_RUNS * SLOW <= s;
    if (*has)
        return NNC_OK;
    t->why = "the time of --budget is over";
    if (s <= 0)
        return NNC_OK;
    NNC_TRY(nnc_sweep_take(o->env, o->model, &how, &t->point, &k->x->arena, said));
    t->taken = t->point.kind == SWEEP_no_fit;
    t->why = t->taken ? t->point.message
                      : nnc_arena_printf(&k->x->arena,
                            "a run takes at least %.2g s, too long for the %.2g s of --budget that "
                            "are left for it",
                            least, s);
    NNC_NEED(t->why, said);
    return NNC_OK;
}

/* Measures the words, for at most ms milliseconds of runs, where that is expected to end within s seconds. */
static nnc_status measure(const taking *k, const nnc_experiment_run *r, const char *const *word,
    int n, double s, double ms, nnc_taken *t, nnc_sink *said)
{
    nnc_opened o;
    bool has = false;
    NNC_TRY(k->by->open(k->by->ctx, word, n, NULL, &o, said));
    nnc_status st = name_machine(k->x, o.env, said);
    o.time.duration_ms = k->o->quick ? QUICK_MS : (int)fmin(fmax(ms, QUICK_MS), 1000);
    if (!st)
        st = has_time(k, &o, s, &has, t, said);
    if (!st && has)
        st = take_point(k, r, &o, false, t, said);
    k->by->close(k->by->ctx, &o);
    return st;
}

/* What a run is taken for. */
typedef enum stage { PREDICTION, REDUCED, FULL } stage;

static bool is_taken(const nnc_experiment_run *r, const nnc_experiments_options *o, stage what)
{
    return what == PREDICTION ||
           (!r->fits && (what == REDUCED ? r->small != NULL : !o->quick || !r->small));
}

static nnc_status take_run(
    const taking *k, const nnc_experiment *e, nnc_experiment_run *r, stage what)
{
    static const char *const phase[] = {"predicting", "measuring", "measuring"};
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    nnc_taken *t = what == PREDICTION ? &r->predicted : what == REDUCED ? &r->reduced : &r->here;
    const double left = (double)(k->end_ns - nnc_now_ns()) * 1e-9,
                 own = what == PREDICTION ? 0 : left / k->left;
    NNC_NEED(said, k->sink);
    if (k->by->progress)
        k->by->progress(k->by->ctx, phase[what], e->title);
    nnc_status st;
    if (what == PREDICTION)
        st = predict(k, r, said);
    else if (what == REDUCED)
        st = measure(k, r, r->small, r->n_small, left, own * 100, t, said);
    else
        st = measure(k, r, r->word, r->n_word, own, own * 300, t, said);
    return st ? blame(k, r, st, said, t) : NNC_OK;
}

/* All runs of a round. */
static nnc_status take_round(taking *k, stage what)
{
    k->left = 0;
    for (int i = 0; i < k->x->n; i++)
        for (int j = 0; j < k->x->at[i].n_run; j++)
            k->left += is_taken(&k->x->at[i].run[j], k->o, what);
    for (int i = 0; i < k->x->n; i++)
        for (int j = 0; j < k->x->at[i].n_run; j++) {
            nnc_experiment_run *r = &k->x->at[i].run[j];
            if (!is_taken(r, k->o, what))
                continue;
            NNC_TRY(take_run(k, &k->x->at[i], r, what));
            k->left--;
        }
    return NNC_OK;
}

static nnc_status name_hardware(nnc_experiments *x, nnc_experiment_run *r, nnc_sink *sink)
{
    NNC_OWNED(nnc_cluster) *c = nnc_cluster_load(r->hardware, sink);
    if (!c) {
        nnc_note(sink, r->loc, "in the run \"%s\" of this experiment", r->name);
        return nnc_sink_cause(sink, NNC_E_USAGE);
    }
    r->predicted_on = nnc_arena_strdup(&x->arena, c->name);
    NNC_NEED(r->predicted_on, sink);
    return NNC_OK;
}

nnc_status nnc_experiments_take(
    nnc_experiments *x, const nnc_opener *by, const nnc_experiments_options *o, nnc_sink *sink)
{
    taking k = {.x = x, .by = by, .o = o, .sink = sink};
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < x->at[i].n_run; j++)
            NNC_TRY(name_hardware(x, &x->at[i].run[j], sink));
    NNC_TRY(take_round(&k, PREDICTION));
    if (o->budget_s <= 0)
        return NNC_OK;
    k.end_ns = nnc_now_ns() + (int64_t)(o->budget_s * 1e9);
    NNC_TRY(take_round(&k, REDUCED)); /* so that each run has a number when the time is over */
    return take_round(&k, FULL);
}

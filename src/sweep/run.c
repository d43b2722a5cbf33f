/* sweep/run.c -- makes the rows of a sweep, size by size, and keeps them in its file after each.
 *
 * The clock rate and other load drift between two measurements. Where several series are measured, each has half of its runs in one turn
 * through the series and half in a second, reversed turn. So drift is part of the spread of a row's runs. */
#include "sweep/sweep.h"
#include "session/session.h"
#include <stdlib.h>

/* Machines of the series; equal ones are opened once. */
typedef struct machine {
    int first; /* series with the same options: its env and rates are used */
    nnc_env *env;
    nnc_rates rates;
} machine;
typedef struct machines {
    int n;
    machine *at; /* by series */
} machines;

static bool same_env(const nnc_env_options *a, const nnc_env_options *b)
{
    return nnc_same_text(a->target, b->target) && nnc_same_text(a->hardware, b->hardware) &&
           a->threads == b->threads;
}

static void close_machines(machines *m)
{
    for (int i = 0; i < m->n; i++) {
        if (m->at[i].env)
            nnc_rates_close(&m->at[i].rates, m->at[i].env);
        nnc_env_destroy(m->at[i].env);
    }
}

static nnc_status open_machines(
    const nnc_sweep_options *o, machines *m, nnc_arena *a, nnc_sink *sink)
{
    NNC_NEED(m->at = ARENA_NEW(a, machine, o->n_series), sink);
    for (; m->n < o->n_series; m->n++) {
        machine *own = &m->at[m->n];
        while (!same_env(&o->series[own->first].env, &o->series[m->n].env))
            own->first++;
        if (own->first < m->n)
            continue;
        NNC_TRY(nnc_env_create(&o->series[m->n].env, &own->env, sink));
        nnc_rates_open(&own->rates, own->env);
    }
    return NNC_OK;
}

static machine *machine_of(const machines *m, int series)
{
    return &m->at[m->at[series].first];
}

/* The machine that a series' rows are of: of described hardware the contents of its file. */
static nnc_status name_machine(
    const nnc_sweep_series *s, const nnc_env *e, const char **out, nnc_arena *a, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, nnc_env_target(e));
    if (e->cluster) {
        NNC_FREED char *text = NULL;
        size_t n;
        char hex[33];
        NNC_TRY(nnc_file_read(s->env.hardware, 0, &text, &n, sink));
        nnc_hash_hex(nnc_hash(text, n), hex);
        nnc_printf(&t, " of %s (%.8s)", e->cluster->name, hex);
    } else if (!s->predict && nnc_env_has_host(e)) {
        nnc_puts(&t, ", ");
        nnc_target_host_name(&t);
    } else if (*e->target->card) {
        nnc_printf(&t, ", %s", e->target->card);
    }
    if (nnc_env_has(e, NNC_T_cpu))
        nnc_printf(&t, ", %d thread%s", nnc_env_threads(e), nnc_plural(nnc_env_threads(e), "s"));
    *out = nnc_arena_strdup(a, nnc_text_str(&t));
    NNC_NEED(*out && !t.oom, sink);
    return NNC_OK;
}

/* The model at a size, and its hash; its name becomes the sweep's. */
static nnc_status open_at(
    nnc_sweep *to, int series, int64_t size, nnc_model **m, char hash[33], nnc_sink *sink)
{
    const nnc_sweep_options *o = to->o;
    const nnc_sweep_series *s = &o->series[series];
    char value[24];
    nnc_snprintf(value, sizeof value, "%lld", (long long)size);
    NNC_FREED nnc_arg *arg = nnc_calloc((size_t)s->n_arg + 1, sizeof *arg);
    NNC_NEED(arg, sink);
    for (int i = 0; i < s->n_arg; i++)
        arg[i] = s->arg[i];
    arg[s->n_arg] = (nnc_arg){o->sizes.name, value};
    const nnc_reopening how = {.arg = arg, .n_arg = s->n_arg + 1};
    NNC_TRY(s->model.open(s->model.ctx, &how, m, sink));
    nnc_hash_hex(nnc_graph_hash(*m), hash);
    if (!to->model)
        to->model = nnc_arena_strdup(&to->arena, (*m)->name);
    if (to->model)
        return NNC_OK;
    nnc_model_close(*m);
    *m = NULL;
    return nnc_nomem(sink);
}

static bool stopped(const nnc_sweep_options *o)
{
    return o->stop && *o->stop;
}

static int by_size(const void *a, const void *b)
{
    const nnc_sweep_row *x = a, *y = b;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : x->series - y->series;
}

const nnc_sweep_row *nnc_sweep_find(const nnc_sweep *s, int64_t size, int series)
{
    const nnc_sweep_row key = {.size = size, .series = series};
    return s->n ? bsearch(&key, s->row, (size_t)s->n, sizeof key, by_size) : NULL;
}

int nnc_sweep_made(const nnc_sweep *s)
{
    int made = 0;
    for (int i = 0; i < s->o->sizes.n; i++)
        for (int k = 0; k < s->o->n_series; k++)
            made += nnc_sweep_find(s, s->o->sizes.at[i], k) != NULL;
    return made;
}

nnc_status nnc_sweep_add(nnc_sweep *s, const nnc_sweep_row *row, nnc_sink *sink)
{
    NNC_NEED(ARENA_ROOM(&s->arena, s->row, s->cap, s->n + 1), sink);
    s->row[s->n++] = *row;
    qsort(s->row, (size_t)s->n, sizeof *s->row, by_size);
    return NNC_OK;
}

static nnc_status write_file(const nnc_sweep *s, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_json_writer w = {.out = &t};
    if (!s->o->file)
        return NNC_OK;
    nnc_sweep_json(s, &w);
    return t.oom ? nnc_nomem(sink) : nnc_file_write(s->o->file, nnc_text_str(&t), t.n, true, sink);
}

/* The rows that the file had are of the same model as now, also those of other sizes than this sweep's. */
static nnc_status check_models(nnc_sweep *s, nnc_sink *sink)
{
    for (int i = 0; i < s->n; i++) {
        const nnc_sweep_row *row = &s->row[i];
        nnc_model *m = NULL;
        char hash[33];
        if (!*row->model)
            continue;
        NNC_TRY(open_at(s, row->series, row->size, &m, hash, sink));
        nnc_model_close(m);
        if (strcmp(row->model, hash) != 0)
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = s->o->file},
                "its row of %s=%lld is of another model, or of this one before it was changed: "
                "give -o another file, or remove this one",
                s->o->sizes.name, (long long)row->size);
    }
    return NNC_OK;
}

/* The rows of a size while they are made. */
typedef struct size_rows {
    int64_t size;
    int turn, turns;
    nnc_times *times; /* by series: those of this sweep, none of rows that the file had */
} size_rows;

/* What is measured in a turn. The second one of a model that is slow takes two runs. */
static nnc_compare_options part_of(const nnc_compare_options *all, const size_rows *at, int series)
{
    enum { DEFAULT_MS = 1000, FEW = 2 };
    nnc_compare_options part = *all;
    if (at->turns == 1)
        return part;
    part.duration_ms = (int)nnc_max64((all->duration_ms ? all->duration_ms : DEFAULT_MS) / 2, 1);
    if (all->iterations)
        part.iterations = (all->iterations + 1 - at->turn) / 2;
    else if (at->turn && at->times[series].spent_ns > 2000000 * (int64_t)part.duration_ms)
        part.iterations = FEW;
    return part;
}

/* Measures or predicts the row of a series, or in the second turn adds to its measurement. */
static nnc_status take_row(nnc_sweep *s, const machines *m, const size_rows *at,
    const nnc_model *model, nnc_sweep_row *row, nnc_sink *sink)
{
    const nnc_sweep_series *of = &s->o->series[row->series];
    const nnc_compare_options part = part_of(&of->time, at, row->series);
    machine *on = machine_of(m, row->series);
    const nnc_sweep_point_options o = {.time = &part,
        .predict = of->predict,
        .budget_ms = s->o->budget_ms,
        .times = &at->times[row->series],
        .rates = &on->rates};
    const double compile_ms = row->p.compile_ms;
    NNC_TRY(nnc_sweep_take(on->env, model, &o, &row->p, &s->arena, sink));
    row->p.compile_ms = at->turn ? compile_ms : row->p.compile_ms;
    return NNC_OK;
}

static nnc_status add_row(
    nnc_sweep *s, const machines *m, const size_rows *at, int series, nnc_sink *sink)
{
    nnc_model *model = NULL;
    nnc_sweep_row row = {.size = at->size, .series = series};
    nnc_sweep_row *had = (nnc_sweep_row *)nnc_sweep_find(s, at->size, series);
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    NNC_NEED(said, sink);
    nnc_status st = open_at(s, series, at->size, &model, row.model, said);
    if (st && (!s->n || had)) { /* the model or the arg's name is wrong, not this size */
        nnc_sink_pass_errors(said, sink);
        return st;
    }
    if (st) {
        st = nnc_sweep_fail(&row.p, st, said, &s->arena, sink);
    } else {
        row.p = had ? had->p : row.p;
        st = take_row(s, m, at, model, &row, sink);
    }
    nnc_model_close(model);
    if (st || stopped(s->o)) /* the runs of what was stopped may be too few */
        return st;
    if (had)
        *had = row;
    else
        NNC_TRY(nnc_sweep_add(s, &row, sink));
    return write_file(s, sink);
}

/* Whether the series has a turn. It has the first unless the file had its row. It has the second if it was measured in the first, is
 * to have more than one run and has the time. A row that did not fit is tried again: other programs may have left memory since. */
static bool takes_turn(const nnc_sweep *s, const size_rows *at, int series)
{
    const nnc_sweep_row *had = nnc_sweep_find(s, at->size, series);
    const double budget_ns = s->o->budget_ms * 1e6, spent_ns = (double)at->times[series].spent_ns;
    return at->turn ? at->times[series].n && s->o->series[series].time.iterations != 1 &&
                          (budget_ns <= 0 || 2 * spent_ns < budget_ns)
                    : !had || had->p.kind == SWEEP_no_fit;
}

static nnc_status add_size(
    nnc_sweep *s, const machines *m, size_rows *at, int number, nnc_sink *sink)
{
    const nnc_sweep_options *o = s->o;
    const int n = o->n_series;
    nnc_status st = NNC_OK;
    for (at->turn = 0; !st && at->turn < at->turns; at->turn++)
        for (int k = 0; !st && k < n; k++) {
            const int series = at->turn ? n - 1 - k : k;
            char detail[128];
            nnc_snprintf(detail, sizeof detail, "%s=%lld, %s%s, row %d of %d", o->sizes.name,
                (long long)at->size, o->series[series].name, at->turn ? " again" : "",
                number * n + series + 1, o->sizes.n * n);
            if (!takes_turn(s, at, series))
                continue;
            if (o->progress)
                o->progress(o->progress_ctx, "sweeping", detail);
            if (stopped(o))
                return NNC_OK;
            st = add_row(s, m, at, series, sink);
        }
    return st;
}

static nnc_status add_rows(nnc_sweep *s, const machines *m, nnc_sink *sink)
{
    const nnc_sweep_options *o = s->o;
    size_rows at = {0};
    nnc_status st = NNC_OK;
    for (int i = 0; i < o->n_series; i++)
        at.turns += !o->series[i].predict;
    at.turns = at.turns > 1 ? 2 : 1;
    at.times = nnc_calloc((size_t)o->n_series, sizeof *at.times);
    NNC_NEED(at.times, sink);
    for (int i = 0; !st && i < o->sizes.n && !stopped(o); i++) {
        at.size = o->sizes.at[i];
        st = add_size(s, m, &at, i, sink);
        for (int k = 0; k < o->n_series; k++) {
            nnc_free(at.times[k].ns);
            at.times[k] = (nnc_times){0};
        }
    }
    nnc_free(at.times);
    s->complete = nnc_sweep_made(s) == o->sizes.n * o->n_series;
    return st ? st : write_file(s, sink);
}

/* Rows of a file name their series. */
static nnc_status check_names(const nnc_sweep_options *o, nnc_sink *sink)
{
    for (int i = 0; i < o->n_series; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(o->series[i].name, o->series[k].name))
                return nnc_fail0(sink, NNC_E_USAGE,
                    "two series have the name `%s`: give each value of a flag once, and files "
                    "different names",
                    o->series[i].name);
    return NNC_OK;
}

nnc_status nnc_sweep_run(const nnc_sweep_options *o, nnc_sweep *out, nnc_sink *sink)
{
    machines m = {0};
    *out = (nnc_sweep){.o = o};
    out->machine = ARENA_NEW(&out->arena, const char *, o->n_series);
    NNC_NEED(out->machine, sink);
    NNC_TRY(check_names(o, sink));
    nnc_status st = open_machines(o, &m, &out->arena, sink);
    for (int i = 0; !st && i < o->n_series; i++)
        st = name_machine(
            &o->series[i], machine_of(&m, i)->env, &out->machine[i], &out->arena, sink);
    if (!st && o->file && nnc_file_exists(o->file))
        st = nnc_sweep_read(out, o->file, sink);
    if (!st)
        st = check_models(out, sink);
    if (!st)
        st = add_rows(out, &m, sink);
    close_machines(&m);
    return st;
}

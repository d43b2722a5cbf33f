/* sweep/run.c -- makes the rows of a sweep, size by size, and keeps them in its file after each.
 *
 * The clock rate and other load drift between two measurements. Where several series are measured, each has half of its runs in one turn
 * through the series and half in a second turn, in reverse order: drift is then part of the spread of a row's runs. */
#include "sweep/sweep.h"
#include "session/session.h"
#include <stdlib.h>

/* Machines of the series; equal ones are opened once. */
typedef struct machines {
    int n;
    nnc_env **env; /* by series: of the first with the same options */
    nnc_rates *rates;
    bool *own;
} machines;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_env(const nnc_env_options *a, const nnc_env_options *b)
{
    return same_text(a->target, b->target) && same_text(a->hardware, b->hardware) &&
           a->threads == b->threads;
}

static void close_machines(machines *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->own[i])
            nnc_env_destroy(m->env[i]);
}

static nnc_status open_machines(
    const nnc_sweep_options *o, machines *m, nnc_arena *a, nnc_sink *sink)
{
    m->env = ARENA_NEW(a, nnc_env *, o->n_series);
    m->rates = ARENA_NEW(a, nnc_rates, o->n_series);
    m->own = ARENA_NEW(a, bool, o->n_series);
    NNC_NEED(m->env && m->rates && m->own, sink);
    for (; m->n < o->n_series; m->n++) {
        int k = 0;
        while (!same_env(&o->series[k].env, &o->series[m->n].env))
            k++;
        m->own[m->n] = k == m->n;
        m->env[m->n] = m->env[k];
        if (k == m->n)
            NNC_TRY(nnc_env_create(&o->series[k].env, &m->env[k], sink));
    }
    return NNC_OK;
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

/* The model at a size, and its hash. */
static nnc_status open_at(const nnc_sweep_options *o, int series, int64_t size, nnc_model **m,
    char hash[33], nnc_sink *sink)
{
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
    return NNC_OK;
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

/* A row that the file had is of the same model as now. */
static nnc_status check_model(
    const nnc_sweep *s, const nnc_sweep_row *row, const char *hash, nnc_sink *sink)
{
    return !strcmp(row->model, hash)
               ? NNC_OK
               : nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = s->o->file},
                     "its row of %s=%lld is of another model, or of this one before it was "
                     "changed: give -o another file, or remove this one",
                     s->o->sizes.name, (long long)row->size);
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
    int first = 0;
    while (m->env[first] != m->env[row->series])
        first++;
    const nnc_sweep_point_options o = {.time = &part,
        .predict = of->predict,
        .times = &at->times[row->series],
        .rates = &m->rates[first]};
    const double compile_ms = row->p.compile_ms;
    NNC_TRY(nnc_sweep_take(m->env[row->series], model, &o, &row->p, &s->arena, sink));
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
    nnc_status st = open_at(s->o, series, at->size, &model, row.model, said);
    if (st && (!s->n || had)) { /* the model or the arg's name is wrong, not this size */
        nnc_sink_pass_errors(said, sink);
        return st;
    }
    if (st)
        st = nnc_sweep_fail(&row.p, st, said, &s->arena, sink);
    else if (had && !at->turn)
        st = check_model(s, had, row.model, sink);
    else {
        row.p = had ? had->p : row.p;
        st = take_row(s, m, at, model, &row, sink);
    }
    if (model && !s->model)
        s->model = nnc_arena_strdup(&s->arena, model->name);
    const bool named = !model || s->model;
    nnc_model_close(model);
    NNC_NEED(named, sink);
    if (st || (had && !at->turn) || stopped(s->o)) /* the runs of what was stopped may be too few */
        return st;
    if (had)
        *had = row;
    else
        NNC_TRY(nnc_sweep_add(s, &row, sink));
    return write_file(s, sink);
}

/* Whether a second turn has runs for the series: it was measured in the first, and is to have more than one run. */
static bool takes_turn(const nnc_sweep *s, const size_rows *at, int series)
{
    return !at->turn || (at->times[series].n && s->o->series[series].time.iterations != 1);
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
    s->complete = !stopped(o);
    return st ? st : write_file(s, sink);
}

nnc_status nnc_sweep_run(const nnc_sweep_options *o, nnc_sweep *out, nnc_sink *sink)
{
    machines m = {0};
    *out = (nnc_sweep){.o = o};
    out->machine = ARENA_NEW(&out->arena, const char *, o->n_series);
    NNC_NEED(out->machine, sink);
    nnc_status st = open_machines(o, &m, &out->arena, sink);
    for (int i = 0; !st && i < o->n_series; i++)
        st = name_machine(&o->series[i], m.env[i], &out->machine[i], &out->arena, sink);
    if (!st && o->file && nnc_file_exists(o->file))
        st = nnc_sweep_read(out, o->file, sink);
    out->kept = out->n;
    if (!st)
        st = add_rows(out, &m, sink);
    close_machines(&m);
    return st;
}

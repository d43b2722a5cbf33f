/* bench/device/run.c -- the parts "run", "graphs" and "compile": compiles, loads and measures each cell of a table. It keeps what another
 * program needs to do the same (graph.c) and some elements of the first output. */
#include "cuda/cuda.h"
#include "report/report.h"
#include "measure.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

enum { SAMPLES = 64, PERIOD = INPUT_PERIOD, MOST_INPUTS = 16 };

/* ---- inputs -------------------------------------------------------------------------------------------------------- */

/* Numbers of an input, kept for the cells that have it larger or smaller. Past PERIOD elements they repeat: generating more takes longer
 * than anything that is measured on them. */
typedef struct pool {
    char name[64];
    nnc_dtype dtype;
    void *data;
    int64_t n;
} pool;
static pool pools[MOST_INPUTS];

static pool *pool_of(const char *name, nnc_dtype d)
{
    pool *free = NULL;
    for (int i = 0; i < MOST_INPUTS; i++) {
        if (pools[i].data && pools[i].dtype == d && !strcmp(pools[i].name, name))
            return &pools[i];
        if (!pools[i].data)
            free = &pools[i];
    }
    if (!free) { /* the first goes: cells of one kind stand together */
        free = &pools[0];
        nnc_free(free->data);
    }
    *free = (pool){.dtype = d};
    snprintf(free->name, sizeof free->name, "%s", name);
    return free;
}

static void *input_data(const char *name, const nnc_type *t)
{
    pool *p = pool_of(name, (nnc_dtype)t->dtype);
    int64_t n = nnc_type_numel(t), size = nnc_dtype_size(p->dtype), at = nnc_min64(n, PERIOD);
    if (p->data && p->n >= n)
        return p->data;
    nnc_free(p->data);
    p->n = 0;
    p->data = nnc_aligned_alloc(64, (size_t)(n * size));
    if (!p->data)
        return NULL;
    nnc_type first = nnc_type_make(p->dtype, 1, &at);
    nnc_fill_input(name, &first, 0, p->data);
    for (int64_t more; at < n; at += more) {
        more = nnc_min64(n - at, PERIOD);
        memcpy((char *)p->data + at * size, p->data, (size_t)(more * size));
    }
    p->n = n;
    return p->data;
}

static void forget_inputs(void)
{
    for (int i = 0; i < MOST_INPUTS; i++)
        nnc_free(pools[i].data);
    memset(pools, 0, sizeof pools);
}

static nnc_status set_inputs(nnc_session *s, void **in, nnc_sink *sink)
{
    static float still = 0; /* the learning rate: all steps compute the same */
    if (s->plan->n_input > MOST_INPUTS || s->plan->n_output > MOST_INPUTS)
        return nnc_fail0(sink, NNC_E_USAGE, "more than %d inputs or outputs", (int)MOST_INPUTS);
    for (int i = 0; i < s->plan->n_input; i++) {
        const nnc_type *t = nnc_session_input_type(s, i);
        const bool lr = s->plan->n_update && !strcmp(nnc_session_input_name(s, i), NNC_TRAIN_LR);
        in[i] = lr ? &still : input_data(nnc_session_input_name(s, i), t);
        if (!in[i])
            return nnc_nomem(sink);
        if (!nnc_is_float((nnc_dtype)t->dtype)) /* indices of its tables */
            NNC_TRY(nnc_artifact_fill_input(s->a, i, 0, in[i], sink));
        NNC_TRY(nnc_session_input(s, i, in[i], sink));
    }
    return NNC_OK;
}

/* ---- what is written ----------------------------------------------------------------------------------------------- */

static void put_number(nnc_text *t, const char *name, double v)
{
    nnc_printf(t, ", \"%s\": ", name);
    if (isfinite(v))
        nnc_printf(t, "%.9g", v);
    else
        nnc_puts(t, "null");
}

static void put_time(nnc_text *t, const char *name, const measure_time *m)
{
    if (m->runs)
        nnc_printf(t,
            ",\n \"%s\": {\"median_ms\": %.9g, \"least_ms\": %.9g, \"most_ms\": %.9g, \"runs\": "
            "%d}",
            name, m->median_ms, m->least_ms, m->most_ms, m->runs);
}

/* SAMPLES elements of output 0, evenly spread from the first to the last. */
static nnc_status put_sample(nnc_session *s, nnc_text *t, nnc_sink *sink)
{
    const nnc_type *y = nnc_session_output_type(s, 0);
    int64_t n = nnc_type_numel(y), size = nnc_dtype_size((nnc_dtype)y->dtype);
    nnc_puts(t, ",\n \"output\": {");
    type_json(y, t);
    nnc_puts(t, ", \"sample\": [");
    for (int64_t i = 0; i < SAMPLES; i++) {
        char at[8];
        int64_t where = (n - 1) / (SAMPLES - 1) * i + (n - 1) % (SAMPLES - 1) * i / (SAMPLES - 1);
        NNC_TRY(nnc_exec_download_part(s->exec, 0, where * size, size, at));
        NNC_TRY(nnc_exec_sync(s->exec, sink));
        double v = nnc_get_f64((nnc_dtype)y->dtype, at, 0);
        nnc_puts(t, i ? ", " : "");
        if (isfinite(v))
            nnc_printf(t, "%.9g", v);
        else
            nnc_puts(t, "null");
    }
    nnc_puts(t, "]}");
    return NNC_OK;
}

/* ---- one cell ------------------------------------------------------------------------------------------------------ */

typedef struct running {
    job *j;
    nnc_env *env;
    const power *power;
    bool gpu;
    nnc_model *model, *step; /* step: its training graph, or NULL */
    nnc_training training;
    nnc_artifact *a;
    nnc_session *s;
    void *in[MOST_INPUTS], *out[MOST_INPUTS];
    double compile_ms, load_ms, device_bytes;
} running;

static double bytes_free(const running *r)
{
    size_t now = 0, total = 0;
    const nnc_cuda_cudart *rt = r->gpu ? NNC_CUDA(cudart, NULL) : NULL;
    return rt && !rt->cudaMemGetInfo(&now, &total) ? (double)now : NAN;
}

nnc_status cell_graphs(
    const cell *c, nnc_model **model, nnc_training *t, nnc_model **step, nnc_sink *sink)
{
    *step = NULL;
    *model = nnc_model_open(c->model, &(nnc_open_options){.arg = c->set, .n_arg = c->n_set}, sink);
    if (!*model)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    if (!c->training)
        return NNC_OK;
    *t = nnc_training_defaults;
    if (!training_of(c->loss, c->training, t))
        return nnc_fail0(sink, NNC_E_USAGE,
            "training is sgd, adam or adamw, and its loss cross_entropy, mse or bce");
    if (c->precision && !strcmp(c->precision, "f16"))
        t->loss_scale = 65536; /* as nnc train has it */
    return nnc_train_graph(*model, t, step, sink);
}

static nnc_status open_graphs(running *r, const cell *c)
{
    return cell_graphs(c, &r->model, &r->training, &r->step, r->j->sink);
}

static nnc_status compile(running *r, const cell *c)
{
    nnc_sink *sink = r->j->sink;
    nnc_compile_options o;
    NNC_TRY(cell_options(c, &o, sink));
    NNC_TRY(open_graphs(r, c));
    r->env->target->no_clusters = c->no_clusters;
    int64_t t0 = nnc_now_ns();
    NNC_TRY(nnc_compile(r->env, r->step ? r->step : r->model, &o, &r->a, sink));
    r->compile_ms = (double)(nnc_now_ns() - t0) * 1e-6;
    return NNC_OK;
}

static nnc_status prepare(running *r, const cell *c)
{
    NNC_TRY(compile(r, c));
    turn_take(&r->j->turn, true);
    double before = bytes_free(r);
    int64_t t0 = nnc_now_ns();
    NNC_TRY(nnc_session_create(r->env, r->a, &r->s, r->j->sink));
    r->load_ms = (double)(nnc_now_ns() - t0) * 1e-6;
    r->device_bytes = before - bytes_free(r);
    return set_inputs(r->s, r->in, r->j->sink);
}

static nnc_status alloc_outputs(running *r)
{
    for (int i = 0; i < r->s->plan->n_output; i++) {
        size_t n = (size_t)nnc_type_bytes(nnc_session_output_type(r->s, i));
        r->out[i] = nnc_aligned_alloc(64, n);
        if (!r->out[i])
            return nnc_nomem(r->j->sink);
        memset(r->out[i], 0, n); /* its pages are there before the clock runs */
    }
    return NNC_OK;
}

static void put_graphs(const running *r, nnc_text *t)
{
    graph_json(r->model, t);
    if (r->step)
        training_json(&r->training, r->step, t);
}

static void put_all(const running *r, const cell *c, const measured *m, nnc_text *t)
{
    const nnc_compile_stats *st = nnc_artifact_stats(r->a);
    const nnc_plan_device *d = &r->a->plan->device[0];
    int64_t flops, bytes, launches;
    nnc_run_work(r->a, SEC_step, &flops, &bytes, &launches);
    nnc_puts(t, "\"group\": ");
    nnc_put_json_string(t, c->group);
    nnc_puts(t, ", \"target\": ");
    nnc_put_json_string(t, nnc_env_target(r->env));
    nnc_printf(t,
        ", \"threads\": %d,\n \"flops\": %lld, \"bytes\": %lld, \"launches\": %lld, "
        "\"arena_bytes\": "
        "%lld, \"weight_bytes\": %lld, \"cache_hits\": %d, \"cache_misses\": %d",
        nnc_env_threads(r->env), (long long)flops, (long long)bytes, (long long)launches,
        (long long)d->arena_bytes, (long long)d->persist_bytes, st->cache_hits, st->cache_misses);
    put_number(t, "device_bytes", r->device_bytes);
    put_number(t, "compile_ms", r->compile_ms);
    put_number(t, "load_ms", r->load_ms);
    put_number(t, "first_ms", m->first_ms);
    put_number(t, "joules", m->joules);
    put_number(t, "watts", m->watts);
    put_number(t, "sm_mhz", m->mhz);
    put_time(t, "waited", &m->waited);
    put_time(t, "queued", &m->queued);
    put_time(t, "copied", &m->copied);
    put_time(t, "streamed", &m->streamed);
    predicted_json(r->a->plan, r->env->target, t);
    put_graphs(r, t);
}

/* A session of its own: a second set of inputs and outputs is laid out when it is made. Where that does not fit, there is no such time. */
static nnc_status streamed(running *r, measured *m)
{
    nnc_session *s = NULL;
    nnc_sink *sink = r->j->sink;
    void *in[MOST_INPUTS];
    nnc_status st = nnc_session_create(r->env, r->a, &s, sink);
    if (!st)
        st = nnc_session_stream_open(s, sink);
    if (!st)
        st = set_inputs(s, in, sink);
    if (!st)
        st = measure_streamed(s, r->j->duration_ms, &m->streamed, sink);
    nnc_session_destroy(s);
    return st == NNC_E_FIT ? NNC_OK : st;
}

static nnc_status measure_cell(running *r, const cell *c, nnc_text *t)
{
    measured m = {0};
    measure_how how = {.ms = r->j->duration_ms,
        .warm_ms = r->gpu ? r->j->warm_ms : 0,
        .energy_ms = r->j->duration_ms * 20,
        .copies = cell_has(c, "io"),
        .power = r->gpu && cell_has(c, "energy") ? r->power : NULL};
    NNC_TRY(prepare(r, c));
    if (how.copies)
        NNC_TRY(alloc_outputs(r));
    NNC_TRY(measure(r->s, &(measure_data){r->in, r->out}, &how, &m, r->j->sink));
    if (how.copies)
        NNC_TRY(streamed(r, &m));
    put_all(r, c, &m, t);
    return put_sample(r->s, t, r->j->sink);
}

/* The times of the commands of one run, of a cell marked profile. */
static nnc_status trace(running *r, const cell *c)
{
    char file[1024];
    if (!r->j->traces || !cell_has(c, "profile"))
        return NNC_OK;
    snprintf(file, sizeof file, "%s/%s.trace", r->j->traces, c->id);
    return nnc_session_trace(r->env, r->s, r->step != NULL, file, NULL, r->j->sink);
}

static void release(running *r)
{
    for (int i = 0; i < MOST_INPUTS; i++) {
        nnc_free(r->out[i]);
        r->out[i] = NULL;
    }
    nnc_session_destroy(r->s);
    nnc_artifact_destroy(r->a);
    nnc_graph_destroy(r->step);
    nnc_model_close(r->model);
    r->s = NULL;
    r->a = NULL;
    r->model = r->step = NULL;
}

static void run_cell(running *r, const cell *c)
{
    results *to = &r->j->results;
    nnc_text t = {0};
    if (!cell_has_all(c, r->j->only) || !results_begin(to, c->id))
        return;
    nnc_sink_clear(r->j->sink);
    int64_t t0 = nnc_now_ns();
    nnc_status st = measure_cell(r, c, &t);
    if (!st)
        st = trace(r, c);
    release(r);
    turn_give(&r->j->turn);
    if (!st)
        put_number(&t, "seconds", (double)(nnc_now_ns() - t0) * 1e-9);
    if (!st)
        st = results_end(to, c->id, &t, r->j->sink);
    if (st)
        results_fail(to, c->id, st, r->j->sink);
    nnc_text_deinit(&t);
}

int part_run(job *j)
{
    cells c;
    power p = {NULL, NULL};
    running r = {.j = j, .power = &p, .gpu = !strncmp(j->target, "cuda", 4)};
    nnc_status st = cells_read(j->cells, &c, j->sink);
    if (!st)
        st = nnc_env_create(&(nnc_env_options){.target = j->target,
                                .cache_dir = j->cache_dir,
                                .tuning = j->tuning,
                                .tune = j->tuning != NULL},
            &r.env, j->sink);
    if (!st && r.gpu)
        p = power_open();
    for (int i = 0; !st && i < c.n; i++)
        run_cell(&r, &c.cell[i]);
    if (st)
        nnc_sink_print(j->sink, stderr);
    power_close(&p);
    nnc_env_destroy(r.env);
    forget_inputs();
    cells_deinit(&c);
    return st ? nnc_exit_code(st) : results_exit(&j->results);
}

/* ---- graphs alone -------------------------------------------------------------------------------------------------- */

/* What a peer's compiler needs to begin before nnc has measured the cells. */
int part_graphs(job *j)
{
    cells c;
    nnc_status st = cells_read(j->cells, &c, j->sink);
    for (int i = 0; !st && i < c.n; i++) {
        running r = {.j = j};
        nnc_text t = {0};
        if (!cell_has_all(&c.cell[i], j->only) || !results_begin(&j->results, c.cell[i].id))
            continue;
        nnc_sink_clear(j->sink);
        nnc_status one = open_graphs(&r, &c.cell[i]);
        nnc_puts(&t, "\"group\": ");
        nnc_put_json_string(&t, c.cell[i].group);
        if (!one)
            put_graphs(&r, &t);
        release(&r);
        if (!one)
            one = results_end(&j->results, c.cell[i].id, &t, j->sink);
        if (one)
            results_fail(&j->results, c.cell[i].id, one, j->sink);
        nnc_text_deinit(&t);
    }
    if (st)
        nnc_sink_print(j->sink, stderr);
    cells_deinit(&c);
    return st ? nnc_exit_code(st) : results_exit(&j->results);
}

/* ---- compiling alone ----------------------------------------------------------------------------------------------- */

/* Fills the cache with the code of all cells, for a GPU that is elsewhere, and predicts their times. */
int part_compile(job *j)
{
    cells c;
    nnc_env *e = NULL;
    int failed = 0;
    nnc_status st = cells_read(j->cells, &c, j->sink);
    if (!st)
        st = nnc_env_create(
            &(nnc_env_options){.target = j->target, .cache_dir = j->cache_dir}, &e, j->sink);
    for (int i = 0; !st && i < c.n; i++) {
        running r = {.j = j, .env = e};
        nnc_sink_clear(j->sink);
        if (compile(&r, &c.cell[i])) {
            fprintf(stderr, "%s:\n", c.cell[i].id);
            nnc_sink_print(j->sink, stderr);
            failed++;
        } else {
            predicted_line(r.a->plan, e->target, c.cell[i].id);
        }
        release(&r);
    }
    if (st)
        nnc_sink_print(j->sink, stderr);
    printf("%d of %d cells compiled for %s\n", c.n - failed, c.n, j->target);
    nnc_env_destroy(e);
    cells_deinit(&c);
    return st ? nnc_exit_code(st) : failed != 0;
}

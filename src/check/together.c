/* check/together.c -- several models in one run beside each of them alone: the same bits, and what each takes. Alone, a model's plan has as
 * many threads as its stream has in the joined one, for the same machine. On CPUs a second plan has all threads, since the model would be
 * alone there. */
#include "check/check.h"
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include <math.h>
#include <string.h>

enum { BURST_MS = 30, WARM_MS = 5, LEAST = 3, MOST_SUBJECTS = 64 };

typedef struct subject {
    nnc_artifact *a;
    nnc_session *s;
    nnc_times t;
    bool borrowed; /* the joined one */
} subject;

typedef struct measure {
    nnc_env *e;
    const nnc_compare_options *o;
    const nnc_artifact *joined;
    nnc_session *x; /* of it; NULL: described hardware, where nothing runs */
    nnc_model *const *m;
    int n;
    /* by model: the machine that it is alone on; e, or one of its own; one with its stream's threads alone */
    nnc_env **on, **own, **slow;
    int cpu_lanes;
    subject *at; /* joined, alone[n], then with all threads [n] where these are more */
    int n_at;
    nnc_together *out;
    nnc_sink *sink;
} measure;

/* ---- where the models are --------------------------------------------------------------------------------------- */

bool nnc_layers_of_model(const char *layers, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = layers ? layers : ""; *p; p += strcspn(p, "+"), p += *p == '+')
        if (*p == '/' && !strncmp(p + 1, name, n) &&
            (p[n + 1] == '/' || !p[n + 1] || p[n + 1] == '+'))
            return true;
    return false;
}

/* Device and stream of each model's first command, and how many of them there are. */
static nnc_status find_lanes(measure *s)
{
    const nnc_plan *p = s->joined->plan;
    nnc_together *t = s->out;
    bool used[2][NNC_MAX_DEVICES * 64] = {{false}}, device[NNC_MAX_DEVICES] = {false};
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        used[nnc_plan_on_gpu(&p->device[c->device])][c->device * 64 + c->stream % 64] = true;
        device[c->device] = true;
        for (int k = 0; k < t->n; k++)
            if (t->model[k].device < 0 && nnc_layers_of_model(c->layers, t->model[k].name)) {
                t->model[k].device = c->device;
                t->model[k].stream = c->stream;
            }
    }
    for (int i = 0; i < NNC_MAX_DEVICES * 64; i++) {
        s->cpu_lanes += used[0][i];
        t->lanes += used[0][i] + used[1][i];
    }
    for (int d = 0; d < p->n_device; d++) {
        t->devices += device[d];
        if (!nnc_plan_on_gpu(&p->device[d])) {
            t->all = p->device[d].threads;
            t->threads = (int)nnc_max64(t->all / nnc_max64(s->cpu_lanes, 1), 1);
        } else if (p->device[d].streams > 1) {
            t->shares = true;
        }
    }
    return NNC_OK;
}

static const char *target_of(const char *list, int d, nnc_arena *a)
{
    const char *p = list ? list : "cpu";
    for (; d > 0 && strchr(p, ','); d--)
        p = strchr(p, ',') + 1;
    return nnc_arena_printf(a, "%.*s", (int)strcspn(p, ","), p);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* With the threads of its stream in the joined plan, or all. */
static nnc_status compile_alone(measure *s, int k, bool all, nnc_artifact **out)
{
    nnc_compile_options o = s->o->compile;
    NNC_OWNED(nnc_graph) *g = nnc_graph_clone(s->m[k], s->sink);
    NNC_NEED(g, s->sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        g->node[i].device = -1;
    o.devices = o.streams = 1;
    o.lanes = all ? 0 : s->cpu_lanes;
    return (s->x ? nnc_compile : nnc_compile_plan)(s->on[k], g, &o, out, s->sink);
}

/* Opens the machine of each model: e itself, or with several targets that of the model's device. Another one, for predictions, has the
 * threads of its stream. */
static nnc_status open_machines(measure *s, const nnc_env_options *eo)
{
    nnc_together *t = s->out;
    for (int k = 0; k < s->n; k++) {
        nnc_env_options own = *eo;
        const int d = (int)nnc_max64(t->model[k].device, 0);
        own.target = target_of(eo->target, d, &t->a);
        own.ranked = false;
        own.world = own.rank = 0;
        NNC_NEED(own.target, s->sink);
        if (s->e->n_target > 1 && s->x)
            NNC_TRY(nnc_env_create(&own, &s->own[k], s->sink));
        s->on[k] = s->own[k] ? s->own[k] : s->e;
        if (!s->x)
            continue;
        own.threads = nnc_plan_on_gpu(&s->joined->plan->device[d]) ? eo->threads : t->threads;
        NNC_TRY(nnc_env_create(&own, &s->slow[k], s->sink));
    }
    return NNC_OK;
}

static nnc_status compile_all(measure *s)
{
    nnc_together *t = s->out;
    for (int k = 0; k < s->n; k++)
        NNC_TRY(compile_alone(s, k, false, &s->at[1 + k].a));
    s->n_at = 1 + s->n;
    for (int k = 0; k < s->n && t->threads < t->all && s->e->n_target == 1 && t->measured; k++) {
        NNC_TRY(compile_alone(s, k, true, &s->at[1 + s->n + k].a));
        s->n_at++;
    }
    return NNC_OK;
}

/* Time of a run of the plan on described hardware, whose device d its only one is. */
static nnc_status simulate(const measure *s, const nnc_artifact *a, int d, int64_t *ns)
{
    const int32_t device[NNC_MAX_DEVICES] = {d};
    const nnc_sim_plan_options o = {.device = d < 0 ? NULL : device,
        .first = SEC_main,
        .last = s->o->training ? SEC_step : SEC_main};
    NNC_LOCAL(nnc_sim_plan) p = {0};
    NNC_TRY(nnc_sim_plan_run(&p, a->plan, s->e->cluster, &o, s->sink));
    *ns = nnc_ceildiv(p.total_ps, 1000);
    return NNC_OK;
}

static nnc_status simulate_all(measure *s)
{
    nnc_together *t = s->out;
    NNC_TRY(simulate(s, s->joined, -1, &t->predicted_ns));
    for (int k = 0; k < s->n; k++)
        NNC_TRY(simulate(
            s, s->at[1 + k].a, (int)nnc_max64(t->model[k].device, 0), &t->model[k].predicted_ns));
    return NNC_OK;
}

static void predict(measure *s)
{
    nnc_together *t = s->out;
    int64_t lane[MOST_SUBJECTS] = {0};
    for (int k = 0; k < s->n; k++) {
        const nnc_plan *p = s->at[1 + k].a->plan;
        nnc_together_model *m = &t->model[k];
        int first = k; /* of its lane */
        for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
            if (p->cmd[i].kind != CMD_record && p->cmd[i].kind != CMD_wait)
                m->predicted_ns =
                    nnc_add_sat(m->predicted_ns, nnc_predict_command_ns(s->slow[k], p, &p->cmd[i]));
        for (int i = k; i-- > 0;)
            if (t->model[i].device == m->device && t->model[i].stream == m->stream)
                first = i;
        lane[first] = nnc_add_sat(lane[first], m->predicted_ns);
        t->predicted_ns = nnc_max64(t->predicted_ns, lane[first]);
    }
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

/* The inputs of the joined model are those of the models, one after the other. */
static nnc_status set_inputs(measure *s)
{
    const int n = s->joined->plan->n_input;
    NNC_FREED void **data = nnc_calloc((size_t)n + 1, sizeof *data);
    NNC_NEED(data, s->sink);
    nnc_status st = nnc_artifact_make_inputs(s->joined, s->o, s->o->seed, data, s->sink);
    for (int i = 1, at = 0; i < s->n_at; i++) {
        at = i == 1 + s->n ? 0 : at;
        const int own = s->at[i].a->plan->n_input;
        for (int k = 0; k < own && !st; k++)
            st = at < n ? nnc_session_input(s->at[i].s, k, data[at++], s->sink)
                        : nnc_fail0(s->sink, NNC_E_BUG, "the joined models have fewer inputs");
    }
    for (int i = 0; i < n; i++)
        nnc_free(data[i]);
    return st;
}

static nnc_status run_once(const measure *s, nnc_session *x)
{
    return s->o->training ? nnc_session_step(x, s->sink) : nnc_session_run(x, s->sink);
}

/* Result i of a session: outputs, then states. */
static nnc_status result(nnc_session *x, int i, void **data, int64_t *bytes, nnc_sink *sink)
{
    const int n = nnc_session_results(x);
    *bytes =
        nnc_type_bytes(i < n ? nnc_session_output_type(x, i) : nnc_session_state_type(x, i - n));
    *data = nnc_aligned_alloc(64, (size_t)*bytes);
    NNC_NEED(*data, sink);
    return i < n ? nnc_session_output(x, i, *data, sink) : nnc_session_state(x, i - n, *data, sink);
}

static nnc_status compare_one(measure *s, int k, int own, int joined, bool *same)
{
    NNC_FREED void *a = NULL, *b = NULL;
    int64_t n = 0, m = 0;
    NNC_TRY(result(s->at[1 + k].s, own, &a, &n, s->sink));
    NNC_TRY(result(s->at[0].s, joined, &b, &m, s->sink));
    *same = *same && n == m && !memcmp(a, b, (size_t)n);
    return NNC_OK;
}

/* One run of each: outputs, and of a step new states, that differ in a bit. */
static nnc_status compare_all(measure *s)
{
    nnc_session *joined = s->at[0].s;
    const int outputs = nnc_session_results(joined), states = nnc_session_states(joined);
    int output = 0, state = 0, all_states = 0;
    NNC_TRY(run_once(s, joined));
    for (int k = 0; k < s->n; k++)
        all_states += nnc_session_states(s->at[1 + k].s);
    for (int k = 0; k < s->n; k++) {
        nnc_session *own = s->at[1 + k].s;
        const int no = nnc_session_results(own), ns = nnc_session_states(own);
        bool *same = &s->out->model[k].same;
        NNC_TRY(run_once(s, own));
        *same = output + no <= outputs && all_states == states;
        for (int i = 0; *same && i < no; i++)
            NNC_TRY(compare_one(s, k, i, output + i, same));
        for (int i = 0; *same && i < ns; i++)
            NNC_TRY(compare_one(s, k, no + i, outputs + state + i, same));
        output += no;
        state += ns;
    }
    return NNC_OK;
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

static bool has_enough(const measure *s, const subject *x)
{
    const int64_t goal = (s->o->duration_ms ? s->o->duration_ms : 1000) * INT64_C(1000000);
    return s->o->iterations ? x->t.n >= s->o->iterations : x->t.n >= LEAST && x->t.spent_ns >= goal;
}

static nnc_status burst(measure *s, subject *x)
{
    int64_t spent = 0;
    /* caches hold another program's data, and threads sleep */
    for (int64_t t0 = nnc_now_ns(), warmed = 0; warmed < WARM_MS * INT64_C(1000000);
         warmed = nnc_now_ns() - t0)
        NNC_TRY(run_once(s, x->s));
    while (spent < BURST_MS * INT64_C(1000000) && !has_enough(s, x)) {
        const int64_t t0 = nnc_now_ns();
        NNC_TRY(run_once(s, x->s));
        const int64_t ns = nnc_now_ns() - t0;
        NNC_TRY(nnc_times_add(&x->t, &ns, 1, s->sink));
        spent += ns;
    }
    return NNC_OK;
}

static double median_ms(const measure *s, int i)
{
    const nnc_times *t = &s->at[i].t;
    if (i >= s->n_at || !t->n)
        return NAN;
    nnc_sort64(t->ns, (size_t)t->n);
    return nnc_times_at(t, 0.5);
}

static nnc_status time_all(measure *s)
{
    bool more = true;
    for (int round = 0; more; round++) {
        more = false;
        for (int i = 0; i < s->n_at; i++) {
            subject *x = &s->at[round % 2 ? s->n_at - 1 - i : i];
            if (has_enough(s, x))
                continue;
            if (s->o->progress)
                s->o->progress(s->o->progress_ctx, "timing together and alone", NULL);
            NNC_TRY(burst(s, x));
            more |= !has_enough(s, x);
        }
    }
    nnc_together *t = s->out;
    t->ms = median_ms(s, 0);
    for (int k = 0; k < s->n; k++) {
        t->model[k].alone_ms = median_ms(s, 1 + k);
        t->model[k].all_ms = median_ms(s, 1 + s->n + k);
    }
    return NNC_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

/* All sessions exist at once. Where this machine's memory is too small, leaves out those with all threads, or measures nothing. Memory of
 * GPUs is not checked here. */
static nnc_status find_room(measure *s)
{
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    NNC_LOCAL(nnc_text) t = {0};
    int64_t beside = 0;
    NNC_NEED(said, s->sink);
    for (; s->n_at > 1; s->n_at -= s->n) {
        beside = 0;
        for (int i = 1; i < s->n_at; i++)
            if (!nnc_plan_on_gpu(&s->at[i].a->plan->device[0]))
                beside = nnc_add_sat(beside, nnc_device_needs(s->at[i].a->plan, 0));
        if (!nnc_check_room(s->e, s->joined, beside, said))
            return NNC_OK;
    }
    nnc_puts(
        &t, "no model is timed alone: there is no memory for all of them beside the joined one (");
    nnc_put_bytes(&t, beside);
    nnc_puts(&t, ")");
    s->out->measured = false;
    s->out->why_not = nnc_arena_strdup(&s->out->a, nnc_text_str(&t));
    NNC_NEED(s->out->why_not && !t.oom, s->sink);
    return NNC_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static nnc_status measure_all(measure *s, const nnc_env_options *eo)
{
    NNC_TRY(find_lanes(s));
    NNC_TRY(open_machines(s, eo));
    NNC_TRY(compile_all(s));
    if (!s->x)
        return simulate_all(s);
    predict(s);
    if (s->out->measured)
        NNC_TRY(find_room(s));
    if (!s->out->measured)
        return NNC_OK;
    for (int i = 1; i < s->n_at; i++)
        NNC_TRY(nnc_session_create(s->on[(i - 1) % s->n], s->at[i].a, &s->at[i].s, s->sink));
    NNC_TRY(set_inputs(s));
    NNC_TRY(compare_all(s));
    return time_all(s);
}

nnc_status nnc_measure_together(nnc_env *e, const nnc_env_options *eo, const nnc_artifact *joined,
    nnc_session *x, nnc_model *const *m, const char *const *name, int n,
    const nnc_compare_options *o, nnc_together *out, nnc_sink *sink)
{
    measure s = {
        .e = e, .o = o, .joined = joined, .x = x, .m = m, .n = n, .out = out, .sink = sink};
    *out = (nnc_together){.n = n, .measured = x && e->ranks.world <= 1, .simulated = !x, .ms = NAN};
    if (x && !out->measured)
        out->why_not = "over several ranks no model is timed alone";
    s.at = ARENA_NEW(&out->a, subject, 2 * n + 1);
    NNC_NEED(s.at && ARENA_ARRAYS(&out->a, n + 1, out->model, s.on, s.own, s.slow), sink);
    for (int k = 0; k < n; k++)
        out->model[k] = (nnc_together_model){name[k], -1, 0, NAN, NAN, 0, false};
    s.at[0] = (subject){.s = x, .borrowed = true};
    const nnc_status st = measure_all(&s, eo);
    for (int i = 0; i <= 2 * n; i++) {
        nnc_free(s.at[i].t.ns);
        if (s.at[i].borrowed)
            continue;
        nnc_session_destroy(s.at[i].s);
        nnc_artifact_destroy(s.at[i].a);
    }
    for (int k = 0; k < n; k++) {
        nnc_env_destroy(s.own[k]);
        nnc_env_destroy(s.slow[k]);
    }
    return st;
}

void nnc_together_free(nnc_together *t)
{
    nnc_arena_deinit(&t->a);
}

/* ---- report ------------------------------------------------------------------------------------------------------- */

/* Sums over the models. */
static void sums(
    const nnc_together *t, double *alone, double *all, double *longest, double *predicted)
{
    *alone = *all = *longest = *predicted = 0;
    for (int k = 0; k < t->n; k++) {
        *alone += t->model[k].alone_ms;
        *all += t->model[k].all_ms;
        *longest = fmax(*longest, t->model[k].alone_ms);
        *predicted += (double)t->model[k].predicted_ns * 1e-6;
    }
}

static void put_ms_or_none(nnc_text *out, double ms)
{
    if (isnan(ms))
        nnc_printf(out, "%14s", "-");
    else
        nnc_put_ms(out, ms, 14);
}

static void put_models(const nnc_together *t, bool all, nnc_text *out)
{
    char title[32];
    nnc_snprintf(title, sizeof title, "%d threads ms", t->all);
    nnc_printf(out, "  %-24s%8s%8s%14s%s%*s%14s  %s", "model", "device", "stream", "alone ms", "",
        all ? 16 : 0, all ? title : "", "predicted ms", t->measured ? "results" : "");
    nnc_trim(out);
    nnc_putc(out, '\n');
    for (int k = 0; k < t->n; k++) {
        const nnc_together_model *m = &t->model[k];
        nnc_printf(out, "  %-24s%8d%8d", m->name, m->device, m->stream);
        put_ms_or_none(out, m->alone_ms);
        if (all) {
            nnc_puts(out, "  ");
            put_ms_or_none(out, m->all_ms);
        }
        nnc_put_ms(out, (double)m->predicted_ns * 1e-6, 14);
        nnc_printf(out, "  %s",
            !t->measured ? ""
            : m->same    ? "the same bits as alone"
                         : "differ from those alone");
        nnc_trim(out);
        nnc_putc(out, '\n');
    }
}

void nnc_report_together(const nnc_together *t, nnc_text *out)
{
    double alone, all, longest, predicted;
    sums(t, &alone, &all, &longest, &predicted);
    nnc_printf(
        out, "%d models together on %d device%s", t->n, t->devices, nnc_plural(t->devices, "s"));
    if (t->lanes > t->devices)
        nnc_printf(out, ", %d streams", t->lanes);
    if (t->threads)
        nnc_printf(out, ", %d of %d thread%s each", t->threads, t->all, nnc_plural(t->all, "s"));
    nnc_puts(out, t->simulated ? "\n" : "; alone: the same number of threads\n");
    put_models(t, !isnan(all), out);
    if (t->measured) {
        nnc_puts(out, "  together ");
        nnc_put_ms(out, t->ms, 0);
        nnc_puts(out, " ms; one after the other ");
        nnc_put_ms(out, alone, 0);
        nnc_printf(out, " ms: %.2f times as fast; longest alone ", alone / t->ms);
        nnc_put_ms(out, longest, 0);
        nnc_printf(out, " ms: %+.1f %%", 100 * (t->ms / longest - 1));
        if (!isnan(all)) {
            nnc_printf(out, "\n  one after the other with all %d threads ", t->all);
            nnc_put_ms(out, all, 0);
            nnc_printf(out, " ms: together is %.2f times as fast", all / t->ms);
        }
        nnc_putc(out, '\n');
    } else if (t->why_not) {
        nnc_printf(out, "  %s\n", t->why_not);
    }
    const bool bound = t->shares && !t->simulated;
    nnc_printf(out, "  by the %s: together %s", t->simulated ? "simulator" : "cost rules",
        bound ? "at least " : "");
    nnc_put_ms(out, (double)t->predicted_ns * 1e-6, 0);
    nnc_puts(out, " ms; one after the other ");
    nnc_put_ms(out, predicted, 0);
    nnc_printf(out, " ms: %s%.2f times as fast\n", bound ? "at most " : "",
        predicted * 1e6 / (double)nnc_max64(t->predicted_ns, 1));
}

void nnc_report_together_json(const nnc_together *t, nnc_json_writer *w)
{
    nnc_json_open(w, "together", '{');
    if (t->measured)
        NNC_JSON(w, J_MS("together_ms", t->ms));
    NNC_JSON(w, J_NS("predicted_together_ms", t->predicted_ns),
        J_BOOL("predicted_is_bound", t->shares && !t->simulated));
    nnc_json_open(w, "models", '[');
    for (int k = 0; k < t->n; k++) {
        const nnc_together_model *m = &t->model[k];
        nnc_json_open(w, NULL, '{');
        NNC_JSON(w, J_STRING("model", m->name), J_INT("device", m->device),
            J_INT("stream", m->stream), J_NS("predicted_ms", m->predicted_ns));
        if (t->measured)
            NNC_JSON(w, J_MS("alone_ms", m->alone_ms), J_BOOL("same", m->same));
        if (!isnan(m->all_ms))
            NNC_JSON(w, J_MS("all_threads_ms", m->all_ms));
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

/* sweep/point.c -- one measurement or prediction: compile, compare memory with room, time. */
#include "sweep/point.h"
#include "strategy/strategy.h"
#include <math.h>
#include <string.h>

const char *const nnc_sweep_kind_names[SWEEP__COUNT] = {
    "measured", "predicted", "does not fit", "failed"};

static double rate(double work, const nnc_sweep_point *p)
{
    return p->median_ms > 0 ? work / p->median_ms * 1e-6 : NAN;
}

double nnc_sweep_gflops(const nnc_sweep_point *p)
{
    return rate((double)p->flops, p);
}

double nnc_sweep_gbs(const nnc_sweep_point *p)
{
    return rate((double)p->bytes, p);
}

nnc_status nnc_sweep_fail(
    nnc_sweep_point *out, nnc_status why, const nnc_sink *said, nnc_arena *a, nnc_sink *sink)
{
    const char *text = nnc_status_name(why);
    for (size_t i = nnc_sink_count(said); i-- > 0;)
        if (nnc_sink_at(said, i)->severity == NNC_ERROR)
            text = nnc_sink_at(said, i)->message;
    out->kind = why == NNC_E_FIT || why == NNC_E_NOMEM ? SWEEP_no_fit : SWEEP_failed;
    out->status = why;
    out->message = nnc_arena_strdup(a, text);
    out->best_ms = out->median_ms = out->low_ms = out->high_ms = NAN;
    NNC_NEED(out->message, sink);
    return NNC_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Sets need and room of the device with least left. Memory that other programs, and this one so far, have taken is no room. */
static void find_room(const nnc_env *e, const nnc_artifact *a, bool copies, nnc_sweep_point *out)
{
    nnc_room at[NNC_MAX_DEVICES];
    const int n = nnc_find_rooms(e, a, at);
    for (int i = 0; i < n; i++) {
        const bool limited = e->memory_limit > 0 && at[i].have == e->memory_limit;
        const char *by = limited ? "--memory-limit" : at[i].host ? nnc_memory_limit().by : NULL;
        const nnc_memory now = at[i].host ? nnc_memory_free() : (nnc_memory){INT64_MAX, NULL};
        if (now.bytes < at[i].have) {
            at[i].have = now.bytes;
            by = now.by ? now.by : "free at the moment";
        }
        if (copies)
            at[i].need = nnc_add_sat(
                at[i].need, at[i].host ? nnc_copies_bytes(a)
                                       : nnc_chunks_need(a, true) - nnc_chunks_need(a, false));
        if (i && at[i].have - at[i].need >= out->room - out->need)
            continue;
        out->need = at[i].need;
        out->room = at[i].have;
        out->room_by = by;
    }
}

static nnc_status say_no_fit(nnc_sweep_point *out, nnc_sink *said)
{
    NNC_LOCAL(nnc_text) need = {0}, room = {0};
    nnc_put_bytes(&need, out->need);
    nnc_put_bytes(&room, out->room);
    return nnc_fail0(said, NNC_E_FIT, "needs %s, and has %s%s%s%s", nnc_text_str(&need),
        nnc_text_str(&room), out->room_by ? " (" : "", out->room_by ? out->room_by : "",
        out->room_by ? ")" : "");
}

/* Divides a model that does not fit this CPU's memory, without inputs of files, into parts that take half of it. Other programs need some,
 * too. Sessions run one of them. */
static nnc_status divide_model(nnc_env *e, const nnc_sweep_point_options *o, nnc_artifact *a,
    nnc_sweep_point *out, nnc_sink *said)
{
    const nnc_compare_options *t = o->time;
    const nnc_target *on = e->target;
    if (out->need <= out->room || e->n_target > 1 || a->plan->n_device > 1 || !on->host ||
        on->kind != NNC_T_cpu || t->training || t->io != NNC_IO_EXCLUDE || t->inputs || t->n_input)
        return NNC_OK;
    NNC_TRY(nnc_chunks_part(e, &t->compile, a, out->room / 2, &out->chunks, said));
    if (out->chunks > 1)
        find_room(e, a, false, out);
    return NNC_OK;
}

/* Runs of the artifact that are a run of the model: of a divided one. A session runs all chunks of others itself. */
static int64_t parts_of(const nnc_sweep_point *p, const nnc_artifact *a)
{
    return p->chunks / a->chunks;
}

/* ---- predictions ----------------------------------------------------------------------------------------- */

/* Sets *ms to the time of the stream that is busy longest, by the cost rules. */
static nnc_status predict_by_rules(
    const nnc_env *e, const nnc_plan *p, nnc_section last, double *ms, nnc_sink *sink)
{
    int streams = 1;
    for (int d = 0; d < p->n_device; d++)
        streams = (int)nnc_max64(streams, p->device[d].streams);
    NNC_FREED int64_t *lane = nnc_calloc((size_t)p->n_device * (size_t)streams, sizeof *lane);
    NNC_NEED(lane, sink);
    *ms = 0;
    for (int32_t i = nnc_plan_first(p, SEC_main); i < p->end[last]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        int64_t *at = &lane[c->device * streams + c->stream % streams];
        if (c->kind != CMD_record && c->kind != CMD_wait)
            *at = nnc_add_sat(*at, nnc_predict_command_ns(e, p, c));
        *ms = fmax(*ms, (double)*at * 1e-6);
    }
    return NNC_OK;
}

/* Copies of a run's inputs to the devices and of its outputs back, where they overlap with computing: *ms becomes the longest of the
 * three. A device with one copy engine copies one way at a time. */
static void add_copies(const nnc_cluster *c, const nnc_plan *p, double *ms)
{
    for (int d = 0; d < p->n_device; d++) {
        int64_t in = 0, out = 0;
        for (int i = 0; i < p->n_input; i++)
            in += p->tensor[p->input[i]].device == d ? p->tensor[p->input[i]].bytes : 0;
        for (int i = 0; i < p->n_output; i++)
            out += p->tensor[p->output[i]].device == d ? p->tensor[p->output[i]].bytes : 0;
        const double up = in ? (double)nnc_cluster_p2p_ps(c, NNC_HOST, d, in) * 1e-9 : 0,
                     down = out ? (double)nnc_cluster_p2p_ps(c, d, NNC_HOST, out) * 1e-9 : 0;
        const bool both = nnc_cluster_kind_of(c, d)->copy_engines > 1;
        *ms = fmax(*ms, both ? fmax(up, down) : up + down);
    }
}

static nnc_status predict(nnc_env *e, const nnc_artifact *a, const nnc_sweep_point_options *o,
    nnc_section last, nnc_sweep_point *out, nnc_sink *said)
{
    const bool copies = o->time->io != NNC_IO_EXCLUDE || a->chunks > 1;
    const nnc_sim_plan_options how = {.first = SEC_main, .last = last};
    double ms;
    if (!e->cluster && copies)
        return nnc_fail0(said, NNC_E_USAGE,
            "copies to and from a device%s are predicted with --hardware=FILE, which describes its "
            "links",
            out->chunks > 1 ? ", which a model in chunks always has," : "");
    if (e->cluster) {
        NNC_LOCAL(nnc_sim_plan) s = {0};
        NNC_TRY(nnc_sim_plan_run(&s, a->plan, e->cluster, &how, said));
        ms = (double)s.total_ps * 1e-9;
    } else {
        NNC_TRY(predict_by_rules(e, a->plan, last, &ms, said));
    }
    if (copies)
        add_copies(e->cluster, a->plan, &ms);
    out->kind = SWEEP_predicted;
    out->median_ms = ms * (double)out->chunks;
    out->best_ms = out->low_ms = out->high_ms = out->median_ms;
    return NNC_OK;
}

/* ---- measurements ---------------------------------------------------------------------------------------- */

/* Adds the runs of `more` to t and sorts them. */
static nnc_status add_times(nnc_times *t, const nnc_times *more, nnc_sink *sink)
{
    int64_t *all = nnc_realloc(t->ns, (size_t)(t->n + more->n) * sizeof *all);
    NNC_NEED(all, sink);
    memcpy(all + t->n, more->ns, (size_t)more->n * sizeof *all);
    t->ns = all;
    t->cpu_share = t->n ? fmin(t->cpu_share, more->cpu_share) : more->cpu_share;
    t->n += more->n;
    t->cap = t->n;
    t->spent_ns += more->spent_ns;
    nnc_sort64(t->ns, (size_t)t->n);
    return NNC_OK;
}

/* Makes other numbers for the inputs that are divided, each smaller than m's. */
static nnc_status make_part(
    nnc_session *s, const nnc_model *m, const nnc_artifact *a, uint64_t seed, nnc_sink *said)
{
    int i = 0;
    for (uint32_t k = 0; k < m->n_node; k++) { /* a plan's inputs are the graph's, in order */
        if (m->node[k].op != OP_input || i >= a->plan->n_input)
            continue;
        void *own = nnc_session_input_memory(s, i);
        if (own && nnc_type_numel(nnc_session_input_type(s, i)) <
                       nnc_type_numel(nnc_typeof(m, m->node[k].out))) {
            NNC_TRY(nnc_artifact_fill_input(a, i, seed, own, said));
            NNC_TRY(nnc_session_input(s, i, own, said));
        }
        i++;
    }
    return NNC_OK;
}

/* Adds runs of a model in n parts, of which only the parts' runs are timed: one, unless there are to be so many iterations. */
static nnc_status time_parts(nnc_session *s, const nnc_model *m, const nnc_artifact *a,
    const nnc_compare_options *t, int64_t n, nnc_times *out, nnc_sink *said)
{
    nnc_compare_options one = *t;
    const int runs = t->iterations ? t->iterations : 1;
    one.iterations = 1;
    one.warmup = t->warmup ? t->warmup : 1;
    for (int i = 0; i < runs; i++) {
        int64_t sum = 0;
        double share = NAN;
        for (int64_t k = 0; k < n; k++) {
            nnc_times now = {0};
            if (k || i)
                NNC_TRY(make_part(s, m, a, t->seed + (uint64_t)k, said));
            const nnc_status st = nnc_session_time(s, &one, false, &now, said);
            sum += now.spent_ns;
            share = fmin(share, now.cpu_share);
            const bool stopped = !now.n;
            nnc_free(now.ns);
            one.warmup = -1;
            if (st || stopped)
                return st;
        }
        NNC_TRY(add_times(
            out, &(nnc_times){.ns = &sum, .n = 1, .spent_ns = sum, .cpu_share = share}, said));
    }
    return NNC_OK;
}

static nnc_status measure(nnc_env *e, const nnc_model *m, const nnc_artifact *a,
    const nnc_compare_options *time, nnc_times *t, nnc_sweep_point *out, nnc_sink *said)
{
    NNC_OWNED(nnc_session) *s = NULL;
    nnc_times now = {0};
    const bool copies = time->io != NNC_IO_EXCLUDE || a->chunks > 1;
    NNC_TRY(nnc_session_create(e, a, &s, said));
    NNC_TRY(nnc_session_make_inputs(s, time, time->seed, said));
    nnc_status st = parts_of(out, a) > 1 ? time_parts(s, m, a, time, parts_of(out, a), t, said)
                                         : nnc_session_time(s, time, copies, &now, said);
    if (!st && now.n)
        st = add_times(t, &now, said);
    out->kind = SWEEP_measured;
    out->runs = t->n;
    out->cpu_share = t->n ? t->cpu_share : NAN;
    out->best_ms = nnc_times_at(t, 0);
    out->low_ms = nnc_times_at(t, 0.25);
    out->median_ms = nnc_times_at(t, 0.5);
    out->high_ms = nnc_times_at(t, 0.75);
    nnc_free(now.ns);
    return st;
}

/* Measures, or predicts what takes too long: a run longer than the budget. Where only several runs are, there is one, without warm-up. */
static nnc_status measure_within(nnc_env *e, const nnc_model *m, const nnc_artifact *a,
    const nnc_sweep_point_options *o, nnc_section last, nnc_sweep_point *out, nnc_arena *arena,
    nnc_sink *said)
{
    enum { RUNS = 4 }; /* at least: a warm-up and those that are timed */
    nnc_compare_options time = *o->time;
    nnc_times own = {0};
    double ms = 0;
    if (o->budget_ms > 0)
        NNC_TRY(predict_by_rules(e, a->plan, last, &ms, said));
    ms *= (double)out->chunks;
    if (ms > o->budget_ms && o->budget_ms > 0) {
        out->message = nnc_arena_printf(
            arena, "a run takes longer than the %.4g s of --budget", o->budget_ms * 1e-3);
        NNC_NEED(out->message, said);
        return predict(e, a, o, last, out, said);
    }
    if (RUNS * ms > o->budget_ms && o->budget_ms > 0) {
        time.iterations = 1;
        time.warmup = -1;
    }
    const nnc_status st = measure(e, m, a, &time, o->times ? o->times : &own, out, said);
    nnc_free(own.ns);
    return st;
}

/* Sets the least time, by rates that are measured again where it contradicts the time. */
static void find_limit(
    nnc_env *e, nnc_rates *rates, const nnc_artifact *a, nnc_section last, nnc_sweep_point *out)
{
    do {
        const nnc_roofline r = nnc_artifact_roofline(e, rates, a, last);
        out->limit_ms = r.ms * (double)parts_of(out, a);
        out->bound = r.level;
    } while (out->kind == SWEEP_measured && nnc_rates_again(rates, out->limit_ms, out->best_ms));
}

static nnc_status take(nnc_env *e, const nnc_model *m, const nnc_sweep_point_options *o,
    nnc_artifact **keep, nnc_sweep_point *out, nnc_arena *arena, nnc_sink *said)
{
    const nnc_section last = o->time->training ? SEC_step : SEC_main;
    NNC_TRY((o->predict ? nnc_compile_plan : nnc_compile)(e, m, &o->time->compile, keep, said));
    nnc_artifact *a = *keep;
    out->chunks = a->chunks;
    if (!o->predict)
        out->compile_ms = (double)nnc_artifact_stats(a)->total_ns * 1e-6;
    find_room(e, a, o->time->io != NNC_IO_EXCLUDE, out);
    NNC_TRY(divide_model(e, o, a, out, said));
    nnc_run_work(a, last, &out->flops, &out->bytes, &out->launches);
    out->flops = nnc_mul_sat(out->flops, parts_of(out, a));
    out->bytes = nnc_mul_sat(out->bytes, parts_of(out, a));
    out->launches = nnc_mul_sat(out->launches, parts_of(out, a));
    if (out->need > out->room)
        return say_no_fit(out, said);
    NNC_TRY(o->predict ? predict(e, a, o, last, out, said)
                       : measure_within(e, m, a, o, last, out, arena, said));
    if (o->rates)
        find_limit(e, o->rates, a, last, out);
    return NNC_OK;
}

nnc_status nnc_sweep_take(nnc_env *e, const nnc_model *m, const nnc_sweep_point_options *o,
    nnc_sweep_point *out, nnc_arena *a, nnc_sink *sink)
{
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    NNC_OWNED(nnc_artifact) *kept = NULL;
    *out = (nnc_sweep_point){.chunks = 1, .compile_ms = NAN, .cpu_share = NAN};
    NNC_NEED(said, sink);
    if (o->predict && o->rates)
        nnc_rates_described(o->rates, nnc_target_on(e->target, e->n_target, 0), e->cluster != NULL);
    const nnc_status st = take(e, m, o, &kept, out, a, said);
    return st ? nnc_sweep_fail(out, st, said, a, sink) : NNC_OK;
}

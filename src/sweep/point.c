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

/* Sets need and room of the device with least left. What this machine's other programs, and this one so far, have taken is no room. */
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
    const bool copies = o->time->io != NNC_IO_EXCLUDE || out->chunks > 1;
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
    t->n += more->n;
    t->cap = t->n;
    t->spent_ns += more->spent_ns;
    nnc_sort64(t->ns, (size_t)t->n);
    return NNC_OK;
}

static nnc_status measure(nnc_env *e, const nnc_artifact *a, const nnc_sweep_point_options *o,
    nnc_sweep_point *out, nnc_sink *said)
{
    NNC_OWNED(nnc_session) *s = NULL;
    nnc_times now = {0}, own = {0}, *t = o->times ? o->times : &own;
    const bool copies = o->time->io != NNC_IO_EXCLUDE || out->chunks > 1;
    NNC_TRY(nnc_session_create(e, a, &s, said));
    NNC_TRY(nnc_session_make_inputs(s, o->time, o->time->seed, said));
    nnc_status st = nnc_session_time(s, o->time, copies, &now, said);
    if (!st && now.n)
        st = add_times(t, &now, said);
    out->kind = SWEEP_measured;
    out->runs = t->n;
    out->best_ms = nnc_times_at(t, 0);
    out->low_ms = nnc_times_at(t, 0.25);
    out->median_ms = nnc_times_at(t, 0.5);
    out->high_ms = nnc_times_at(t, 0.75);
    nnc_free(now.ns);
    nnc_free(own.ns);
    return st;
}

static nnc_status take(nnc_env *e, const nnc_model *m, const nnc_sweep_point_options *o,
    nnc_artifact **keep, nnc_sweep_point *out, nnc_sink *said)
{
    const nnc_section last = o->time->training ? SEC_step : SEC_main;
    NNC_TRY((o->predict ? nnc_compile_plan : nnc_compile)(e, m, &o->time->compile, keep, said));
    const nnc_artifact *a = *keep;
    out->chunks = a->chunks;
    nnc_run_work(a, last, &out->flops, &out->bytes, &out->launches);
    if (!o->predict)
        out->compile_ms = (double)nnc_artifact_stats(a)->total_ns * 1e-6;
    find_room(e, a, o->time->io != NNC_IO_EXCLUDE, out);
    if (out->need > out->room)
        return say_no_fit(out, said);
    NNC_TRY(o->predict ? predict(e, a, o, last, out, said) : measure(e, a, o, out, said));
    if (o->rates) {
        const nnc_roofline r = nnc_artifact_roofline(e, o->rates, a, last);
        out->limit_ms = r.ms;
        out->bound = r.level;
    }
    return NNC_OK;
}

nnc_status nnc_sweep_take(nnc_env *e, const nnc_model *m, const nnc_sweep_point_options *o,
    nnc_sweep_point *out, nnc_arena *a, nnc_sink *sink)
{
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    NNC_OWNED(nnc_artifact) *kept = NULL;
    *out = (nnc_sweep_point){.chunks = 1, .compile_ms = NAN};
    NNC_NEED(said, sink);
    if (o->predict && o->rates)
        nnc_rates_described(o->rates, nnc_target_on(e->target, e->n_target, 0));
    const nnc_status st = take(e, m, o, &kept, out, said);
    return st ? nnc_sweep_fail(out, st, said, a, sink) : NNC_OK;
}

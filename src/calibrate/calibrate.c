/* calibrate/calibrate.c -- nnc calibrate: measures this machine, or the ranks of a job on it, and prints a hardware file. Ops are commands
 * of plans that nnc compiles for small nets (nets.c); links are copies and collectives of plans for several devices. So what is measured
 * is what nnc executes, with its synchronisation.
 *
 * Rank 0 leads: it decides what there is time for, and has the times. A program of one device runs in rank 0 alone. */
#include "calibrate/calibrate.h"
#include "calibrate/measure.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "train/train.h"
#include <string.h>

enum { BUDGET_S = 25, TAG_GO = 0 };

/* ---- programs ------------------------------------------------------------------------------------------- */

static nnc_status compile(
    const calibration *c, const nnc_text *text, int devices, bool step, nnc_artifact **out)
{
    NNC_OWNED(nnc_graph) *g = NULL, *training = NULL;
    nnc_compile_options o = c->with;
    o.devices = devices;
    NNC_NEED(!text->oom, c->sink);
    g = nnc_model_parse("calibrate", nnc_text_str(text), text->n, NULL, c->sink);
    if (!g)
        return nnc_sink_cause(c->sink, NNC_E_BUG);
    if (step) {
        nnc_training t = nnc_training_defaults;
        t.momentum = 0.9;
        if (o.precision == NNC_PRECISION_f16)
            t.loss_scale = 1; /* the usual one might skip the step */
        NNC_TRY(nnc_train_graph(g, &t, &training, c->sink));
    }
    return nnc_compile(c->e, training ? training : g, &o, out, c->sink);
}

nnc_status cal_load(
    calibration *c, const nnc_text *model, int devices, bool alone, bool step, cal_program *out)
{
    const nnc_training training = nnc_training_defaults;
    *out = (cal_program){.alone = alone, .step = step};
    if (alone && !cal_leads(c))
        return NNC_OK;
    NNC_TRY(compile(c, model, devices, step, &out->a));
    if (out->a->chunks > 1)
        return nnc_fail0(c->sink, NNC_E_FIT, "a net does not fit the device as a whole");
    const nnc_plan *p = out->a->plan;
    out->n_cmd = p->end[step ? SEC_step : SEC_main] - nnc_plan_first(p, SEC_main);
    NNC_TRY(alone ? nnc_session_create_alone(c->e, out->a, c->no_replay, &out->s, c->sink)
                  : nnc_session_create(c->e, out->a, &out->s, c->sink));
    if (!cal_leads(c))
        return NNC_OK;
    const size_t n = (size_t)out->n_cmd;
    out->ns = ARENA_NEW(&c->a, int64_t, n * CAL_RUNS + 1);
    NNC_NEED(out->ns && ARENA_ARRAYS(&c->a, n + 1, out->from, out->to), c->sink);
    c->n_program++;
    return nnc_partition_set_inputs(out->s, step ? &training : NULL, c->sink);
}

void cal_program_deinit(cal_program *p)
{
    nnc_session_destroy(p->s);
    nnc_artifact_destroy(p->a);
    p->s = NULL;
    p->a = NULL;
}

nnc_status cal_profile(calibration *c, cal_program *p, bool keep)
{
    NNC_TRY(nnc_exec_profile_behind(
        p->s->exec, p->before, SEC_main, p->step ? SEC_step : SEC_main, p->from, p->to, c->sink));
    if (!keep || p->runs == CAL_RUNS)
        return NNC_OK;
    for (int i = 0; i < p->n_cmd; i++)
        p->ns[(size_t)i * CAL_RUNS + (size_t)p->runs] = p->to[i] - p->from[i];
    p->runs++;
    c->n_profile++;
    return NNC_OK;
}

int64_t cal_median_of(int64_t *v, int n, double *spread)
{
    if (n < 1)
        return 0;
    nnc_sort64(v, (size_t)n);
    const int p10 = (n - 1) / 10, p90 = (n - 1) * 9 / 10;
    const int64_t median = v[n / 2];
    if (spread)
        *spread = median > 0 ? (double)(v[p90] - v[p10]) / (double)median : 0;
    return median;
}

int64_t cal_median(const cal_program *p, int i, double *spread)
{
    int64_t v[CAL_RUNS];
    memcpy(v, p->ns + (size_t)i * CAL_RUNS, (size_t)p->runs * sizeof *v);
    return cal_median_of(v, p->runs, spread);
}

/* ---- ranks ------------------------------------------------------------------------------------------------ */

nnc_status cal_has_time(const calibration *c, double share, bool *yes)
{
    static const char what[] = "deciding what to measure next";
    nnc_comm *comm = c->e->comm;
    int32_t go = nnc_now_ns() - c->begin_ns < (int64_t)(share * (double)c->budget_ns) ? 1 : 0;
    nnc_status st = NNC_OK;
    if (comm && !cal_leads(c))
        st = nnc_comm_recv(comm, &go, sizeof go, 0, TAG_GO, what);
    for (int r = 1; comm && cal_leads(c) && r < nnc_comm_world(comm) && !st; r++)
        st = nnc_comm_send(comm, &go, sizeof go, r, TAG_GO, what);
    if (st)
        (void)nnc_comm_failure(comm, c->sink);
    *yes = go;
    return st;
}

nnc_status cal_lead(calibration *c, cal_program *p,
    nnc_status (*measure)(calibration *c, cal_program *p, void *ctx), void *ctx)
{
    if (!cal_leads(c))
        return nnc_job_follow(c->e->job, c->sink);
    NNC_TRY(measure(c, p, ctx));
    return c->e->job && !p->alone ? nnc_job_pause(c->e->job) : NNC_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

/* A device has an equal part of the machine's threads, as many cores, and their share of what cores have. */
static nnc_status describe_device(calibration *c)
{
    nnc_env *e = c->e;
    nnc_target *t = &e->target[0];
    const char *lacks = nnc_target_host_lacks(t);
    if (lacks)
        return nnc_fail0(c->sink, NNC_E_DEVICE,
            "--target=%s needs %s, which this machine's CPU lacks: it cannot be measured here",
            t->name, lacks);
    const int world = nnc_env_world(e);
    c->cores = nnc_env_cores(e);
    c->devices = c->o->devices > 0 ? c->o->devices
                 : world > 1       ? world
                                   : (int)nnc_max64(2, t->threads);
    if (c->devices < world || c->devices > NNC_MAX_DEVICES)
        return nnc_fail0(c->sink, NNC_E_USAGE, "--devices=%d: expected %d to %d%s", c->devices,
            world, NNC_MAX_DEVICES, world > 1 ? ", one for each rank or more" : "");
    c->threads = (int)nnc_max64(1, t->threads / c->devices);
    const double part = (double)c->threads / (t->cores > 0 ? t->cores : 1);
    t->flops_f32 = nnc_max64(1, (int64_t)((double)t->flops_f32 * part));
    t->copy_bytes_s = nnc_max64(1, (int64_t)((double)t->copy_bytes_s * part));
    t->cache_bytes_s = nnc_max64(1, (int64_t)((double)t->cache_bytes_s * part));
    t->memory_bytes /= c->devices;
    t->cores = t->threads = c->threads;
    e->own_threads = true;
    c->target = *t;
    return NNC_OK;
}

/* GPUs: all that this process sees, or one for each rank. */
static nnc_status describe_gpus(calibration *c)
{
    nnc_env *e = c->e;
    const int world = nnc_env_world(e), seen = nnc_device_cuda.count();
    if (!e->target[0].asked)
        return nnc_fail0(c->sink, NNC_E_USAGE,
            "nnc calibrate measures the machine at hand, and --target=%s describes one: "
            "--target=cuda is its GPU",
            nnc_env_target(e));
    c->cores = nnc_env_cores(e);
    c->threads = 1;
    c->devices = c->o->devices > 0 ? c->o->devices : world > 1 ? world : seen;
    if (c->devices < world || (world == 1 && c->devices > seen) || c->devices > NNC_MAX_DEVICES)
        return nnc_fail0(c->sink, NNC_E_USAGE, "--devices=%d: expected %d to %d, %s", c->devices,
            world, world > 1 ? NNC_MAX_DEVICES : seen,
            world > 1 ? "one for each rank or more" : "the GPUs that this process sees");
    c->target = e->target[0];
    return NNC_OK;
}

static nnc_status describe(calibration *c)
{
    const nnc_env *e = c->e;
    if (e->n_target > 1)
        return nnc_fail0(c->sink, NNC_E_USAGE,
            "nnc calibrate measures devices of one kind, and --target is %s", nnc_env_target(e));
    return e->target[0].kind == NNC_T_cuda ? describe_gpus(c) : describe_device(c);
}

static nnc_status measure(calibration *c, nnc_text *out)
{
    if (c->target.kind == NNC_T_cuda) {
        NNC_TRY(cal_gpu(c));
    } else {
        NNC_TRY(cal_ops(c));
        if (c->devices > 1)
            NNC_TRY(cal_links(c));
    }
    if (cal_leads(c))
        (c->target.kind == NNC_T_cuda ? cal_gpu_print : cal_print)(c, out);
    return NNC_OK;
}

nnc_status nnc_calibrate(nnc_env *e, const nnc_calibrate_options *o, nnc_text *out, nnc_sink *sink)
{
    calibration c = {
        .e = e, .o = o, .sink = sink, .begin_ns = nnc_now_ns(), .with = nnc_compile_defaults};
    c.budget_ns = (int64_t)((o->budget_s > 0 ? o->budget_s : BUDGET_S) * 1e9);
    NNC_TRY(describe(&c));
    const nnc_status st = measure(&c, out);
    nnc_text_deinit(&c.gpu.done);
    nnc_arena_deinit(&c.a);
    return st || !out->oom ? st : nnc_nomem(sink);
}

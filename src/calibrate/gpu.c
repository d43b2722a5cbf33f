/* calibrate/gpu.c -- nnc calibrate of GPUs: launches and op classes.
 *
 * A GPU computes beside the host, so no time here is that of a call. A whole run's time is that of many replayed runs, which are waited for
 * once. A command's time is that between two events of the device, after runs that keep the device busy while the host submits them. Events
 * between commands take time of their own. The time of all commands beyond a run without events is subtracted from each of them. So the
 * commands of a program add up to its run.
 *
 * Programs come in three sizes. A device that computes a small one slowly is not asked for a larger one. */
#include "calibrate/measure.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "cuda/cuda.h"
#include <string.h>

enum {
    SPIN_NS = 200000000, /* until clocks are up: an idle GPU's are a fifth of what they can be */
    BURST_NS = 20000000,
    MOST_BURST = 2000,
    BURSTS = 5,
    PROFILES = 15,
    LEAST_PROFILES = 3,
    SUBMIT_NS = 20000, /* of the host, to submit a command between two events, at most */
    MOST_BEFORE = 32
};
static const double NETS_SHARE = 0.95, NETS_SHARE_OF_SEVERAL = 0.55;

/* ---- times ------------------------------------------------------------------------------------------------ */

static nnc_status submit(calibration *c, const cal_program *p)
{
    nnc_exec *e = p->s->exec;
    return p->step ? nnc_exec_step(e, c->sink) : nnc_exec_run(e, c->sink);
}

/* Nanoseconds of n runs, submitted without a pause. */
static nnc_status time_runs(calibration *c, const cal_program *p, int n, int64_t *ns)
{
    const int64_t from = nnc_now_ns();
    for (int k = 0; k < n; k++)
        NNC_TRY(submit(c, p));
    NNC_TRY(nnc_exec_sync(p->s->exec, c->sink));
    *ns = nnc_now_ns() - from;
    return NNC_OK;
}

/* The first runs are captured, the next ones raise the clocks; *each: about a run's nanoseconds. */
static nnc_status spin(calibration *c, const cal_program *p, int64_t *each)
{
    int64_t ns = 0, spent = 0;
    NNC_TRY(time_runs(c, p, 2, &ns));
    for (int n = 1; spent < SPIN_NS; n = n < MOST_BURST / 2 ? 2 * n : n) {
        NNC_TRY(time_runs(c, p, n, &ns));
        spent += ns;
        *each = nnc_max64(ns / n, 1);
    }
    return NNC_OK;
}

nnc_status cal_gpu_burst(calibration *c, cal_program *p, int64_t *ns)
{
    int64_t each = 1, v[BURSTS];
    NNC_TRY(spin(c, p, &each));
    const int n = (int)nnc_min64(nnc_max64(BURST_NS / each, 1), MOST_BURST),
              bursts = each > BURST_NS ? 1 : BURSTS;
    for (int k = 0; k < bursts; k++) {
        NNC_TRY(time_runs(c, p, n, &v[k]));
        v[k] /= n;
    }
    *ns = nnc_max64(cal_median_of(v, bursts, NULL), 1);
    return NNC_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------- */

static nnc_status load_nets(
    calibration *c, const cal_net *net, int n, bool no_replay, cal_program *out)
{
    NNC_LOCAL(nnc_text) text = {0};
    cal_nets_write(&text, net, n, 1);
    c->no_replay = no_replay;
    const nnc_status st = cal_load(c, &text, 1, true, false, out);
    c->no_replay = false;
    return st;
}

/* A run that is waited for, beside what it takes among others. */
static nnc_status measure_run(calibration *c, const cal_program *p, int64_t each)
{
    int64_t v[CAL_RUNS];
    for (int k = 0; k < CAL_RUNS; k++)
        NNC_TRY(time_runs(c, p, 1, &v[k]));
    c->run_ns = nnc_max64(cal_median_of(v, CAL_RUNS, NULL) - each, 1);
    return NNC_OK;
}

/* A chain of commands as small as there are: in a replayed run, and submitted one by one. */
static nnc_status measure_launches(calibration *c)
{
    c->with = nnc_compile_defaults;
    c->with.level = 0; /* nothing is fused */
    for (int plain = 0; plain < 2; plain++) {
        NNC_LOCAL(cal_program) p = {0};
        int64_t ns = 0;
        NNC_TRY(load_nets(c, &cal_gpu_chain, 1, plain, &p));
        NNC_TRY(cal_gpu_burst(c, &p, &ns));
        if (!plain)
            NNC_TRY(measure_run(c, &p, ns));
        *(plain ? &c->gpu.host_ns : &c->command_ns) = p.n_cmd ? nnc_max64(ns / p.n_cmd, 1) : 1;
    }
    return NNC_OK;
}

/* ---- ops -------------------------------------------------------------------------------------------------- */

/* Programs in the order of what they are worth. */
static const struct {
    nnc_precision precision;
    int tier;
    cal_kind kind;
} programs[] = {{NNC_PRECISION_f32, 0, CAL_nets}, {NNC_PRECISION_f32, 0, CAL_ops},
    {NNC_PRECISION_f32, 1, CAL_ops}, {NNC_PRECISION_f32, 2, CAL_ops},
    {NNC_PRECISION_f16, 1, CAL_nets}, {NNC_PRECISION_f32, 1, CAL_nets},
    {NNC_PRECISION_f16, 2, CAL_nets}, {NNC_PRECISION_f32, 2, CAL_nets},
    {NNC_PRECISION_tf32, 1, CAL_nets}, {NNC_PRECISION_tf32, 2, CAL_nets},
    {NNC_PRECISION_bf16, 1, CAL_nets}, {NNC_PRECISION_bf16, 2, CAL_nets},
    {NNC_PRECISION_f16, 0, CAL_nets}, {NNC_PRECISION_tf32, 0, CAL_nets},
    {NNC_PRECISION_f16, 3, CAL_nets}, {NNC_PRECISION_f32, 3, CAL_nets},
    {NNC_PRECISION_tf32, 3, CAL_nets}, {NNC_PRECISION_bf16, 3, CAL_nets},
    {NNC_PRECISION_f32, 0, CAL_steps}, {NNC_PRECISION_tf32, 1, CAL_steps},
    {NNC_PRECISION_tf32, 2, CAL_steps}, {NNC_PRECISION_f16, 1, CAL_steps},
    {NNC_PRECISION_f16, 2, CAL_steps}, {NNC_PRECISION_f32, 1, CAL_steps},
    {NNC_PRECISION_f32, 2, CAL_steps}, {NNC_PRECISION_bf16, 1, CAL_steps},
    {NNC_PRECISION_bf16, 2, CAL_steps}, {NNC_PRECISION_bf16, 0, CAL_nets}};

/* Times of programs of a kind and size: all of one, and a run. 0: unknown. */
typedef struct ladder {
    int64_t whole_ns[CAL_TIERS][CAL_KINDS];
    int64_t run_ns[CAL_TIERS][CAL_KINDS];
    int64_t end_ns;
} ladder;

/* Median times of the commands, less what the events take. */
static nnc_status measure_program(calibration *c, cal_program *p, int64_t *run_ns, int64_t end_ns)
{
    int64_t sum = 0;
    int n = 0;
    NNC_TRY(cal_gpu_burst(c, p, run_ns));
    p->before = (int)nnc_min64(nnc_max64((int64_t)p->n_cmd * SUBMIT_NS / *run_ns, 1), MOST_BEFORE);
    NNC_TRY(cal_profile(c, p, false));
    for (int k = 0; k < PROFILES && (k < LEAST_PROFILES || nnc_now_ns() < end_ns); k++)
        NNC_TRY(cal_profile(c, p, true));
    for (int i = 0; i < p->n_cmd; i++) {
        sum += cal_median(p, i, NULL);
        n += nnc_plan_computes(
            p->a->plan, &p->a->plan->cmd[nnc_plan_first(p->a->plan, SEC_main) + i]);
    }
    return cal_add_samples(c, p, (n ? nnc_max64(sum - *run_ns, 0) / n : 0) + c->command_ns);
}

/* About a run's nanoseconds: as measured, or from a smaller size by the ratio of FLOPs or bytes. Times as short as a launch do not grow
 * with them. 0: unknown. */
static double expected_ns(const ladder *l, int tier, cal_kind kind)
{
    enum { LAUNCHES_NS = 2000000 };
    static const double grows[CAL_KINDS][CAL_TIERS] = {
        {1, 500, 30, 0.2}, {1, 256, 32, 1}, {1, 500, 20, 1}};
    if (l->run_ns[tier][kind] || !tier)
        return (double)l->run_ns[tier][kind];
    const double below = expected_ns(l, tier - 1, kind);
    return below > LAUNCHES_NS ? below * grows[kind][tier] : below;
}

/* Would the program be too slow, or take too long to compile? */
static bool is_too_long(const ladder *l, int tier, cal_kind kind)
{
    enum { RUNS = 16, STEPS = 4 }; /* RUNS: of spinning, bursts and profiles, at least */
    const int64_t left = l->end_ns - nnc_now_ns();
    int64_t before = l->whole_ns[tier][kind];
    if (!before && tier)
        before = l->whole_ns[tier - 1][kind];
    if (!before && kind == CAL_steps) /* some times as many kernels as the forward passes have */
        before = nnc_mul_sat(l->whole_ns[tier][CAL_nets], STEPS);
    return before > left || expected_ns(l, tier, kind) * RUNS > (double)left;
}

/* Loads and measures nets as one program. *fits: the device has the memory. */
static nnc_status one_program(
    calibration *c, ladder *l, size_t i, const cal_net *net, int n, bool *fits)
{
    NNC_LOCAL(cal_program) p = {0};
    NNC_LOCAL(nnc_text) text = {0};
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    nnc_sink *told = c->sink;
    NNC_NEED(own, told);
    cal_nets_write(&text, net, n, 1);
    c->sink = own;
    nnc_status st = cal_load(c, &text, 1, true, programs[i].kind == CAL_steps, &p);
    c->sink = told;
    *fits = st != NNC_E_FIT;
    if (st && *fits)
        nnc_sink_pass_errors(own, told);
    if (!st)
        st = measure_program(c, &p, &l->run_ns[programs[i].tier][programs[i].kind], l->end_ns);
    return *fits ? st : NNC_OK;
}

/* Measures the nets of programs[i]. A device that is too small for them is none that they are asked of. */
static nnc_status measure_nets(calibration *c, ladder *l, size_t i)
{
    static const char *const kinds[CAL_KINDS] = {"nets", "ops", "training steps"};
    const int tier = programs[i].tier;
    const cal_kind kind = programs[i].kind;
    const int64_t from = nnc_now_ns();
    bool fits = true;
    int n = 0;
    const cal_net *net = cal_gpu_nets(tier, kind, &n);
    c->with = nnc_compile_defaults;
    c->with.precision = programs[i].precision;
    for (int k = 0; k < (kind == CAL_steps ? n : 1) && fits; k++)
        NNC_TRY(one_program(c, l, i, net + k, kind == CAL_steps ? 1 : n, &fits));
    if (fits)
        nnc_printf(&c->gpu.done, "%s%s %s of size %d", c->gpu.done.n ? ", " : "",
            nnc_precision_name(programs[i].precision), kinds[kind], tier);
    l->whole_ns[tier][kind] = fits ? nnc_now_ns() - from : INT64_MAX;
    return NNC_OK;
}

/* The rate at which the largest elementwise op reads and writes. */
static void find_memory(calibration *c)
{
    const cal_sample *most = NULL;
    for (size_t i = 0; i < c->n_sample; i++)
        if (!strcmp(c->sample[i].op.op_class, "ewise") &&
            (!most || c->sample[i].op.bytes > most->op.bytes))
            most = &c->sample[i];
    if (most)
        c->memory_bytes_s =
            nnc_max64((int64_t)((double)most->op.bytes / (double)most->ns * 1e9), 1);
}

/* Tensor cores compute both 16-bit types at one rate: where there was no time for bf16, it has the rows of f16. */
static nnc_status assume_bf16(calibration *c)
{
    bool any = false;
    const size_t n = c->n_sample;
    for (size_t i = 0; i < n; i++)
        any = any || c->sample[i].op.dtype == DT_bf16;
    for (size_t i = 0; i < n && !any; i++) {
        if (c->sample[i].op.dtype != DT_f16)
            continue;
        NNC_NEED(ARENA_ROOM(&c->a, c->sample, c->cap_sample, c->n_sample + 1), c->sink);
        cal_sample *s = &c->sample[c->n_sample++];
        *s = c->sample[i];
        s->op.dtype = DT_bf16;
    }
    if (!any && c->n_sample > n)
        nnc_puts(&c->gpu.done, "; bf16 as f16");
    return NNC_OK;
}

static nnc_status measure_ops(calibration *c)
{
    const double share = c->devices > 1 ? NETS_SHARE_OF_SEVERAL : NETS_SHARE;
    ladder l = {.end_ns = c->begin_ns + (int64_t)(share * (double)c->budget_ns)};
    for (size_t i = 0; i < NNC_COUNT(programs); i++)
        if (i < 2 || !is_too_long(&l, programs[i].tier, programs[i].kind))
            NNC_TRY(measure_nets(c, &l, i));
    NNC_TRY(assume_bf16(c));
    find_memory(c);
    c->target.copy_bytes_s = c->memory_bytes_s > 0 ? c->memory_bytes_s : c->target.copy_bytes_s;
    return cal_make_tables(c);
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

int64_t cal_gpu_taken(const calibration *c)
{
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, c->sink);
    size_t left = 0, all = 0;
    return !rt || rt->cudaMemGetInfo(&left, &all) ? 0 : (int64_t)(all - left);
}

nnc_status cal_gpu(calibration *c)
{
    if (cal_leads(c)) {
        NNC_TRY(cal_gpu_host(c));
        NNC_TRY(measure_launches(c));
        NNC_TRY(measure_ops(c));
        c->gpu.library_bytes = nnc_max64(cal_gpu_taken(c) - c->gpu.context_bytes, 0);
    }
    return c->devices > 1 ? cal_gpu_links(c) : NNC_OK;
}

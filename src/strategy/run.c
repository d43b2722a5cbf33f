/* strategy/run.c -- nnc partition --run: runs the plan of every strategy that nnc executes, and measures iterations and each device's
 * commands. Devices are virtual CPUs or GPUs of this process, or belong to the ranks that a launcher has started.
 *
 * Strategies run in turn, an iteration each, every other round in reverse order, so that drift of the machine's speed meets all of them.
 * Strategies whose memory does not fit together are measured one after the other. `single` runs in rank 0 alone.
 *
 * All ranks compile the same plans and create the same sessions; then rank 0 leads, and the others follow. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "cuda/cuda.h"

enum {
    RUN_MS = 2000,
    LEAST = 3,
    MOST = 1000,
    PROFILES = 3,
    SPIN_NS = 200000000 /* of a GPU: until its clocks are up */
};

typedef struct program {
    nnc_partition_row *row;
    nnc_artifact *a;
    int runs; /* of the plan, in an iteration */
    bool alone; /* in rank 0 */
    nnc_session *s;
    int64_t *ns; /* of iterations */
    size_t n, cap;
    int64_t spent_ns;
} program;

typedef struct run {
    nnc_env *e;
    const nnc_model *m;
    const nnc_training *training; /* NULL: inference */
    const nnc_partition_table *t;
    nnc_arena *a; /* of results */
    nnc_sink *sink;
    program *p;
    int n;
} run;

static bool leads(const run *r)
{
    return nnc_env_rank(r->e) == 0;
}

static bool on_gpus(const run *r)
{
    return r->e->target[0].kind == NNC_T_cuda;
}

/* ---- plans --------------------------------------------------------------------------------------------- */

const char *nnc_partition_refusal(const nnc_sink *s)
{
    size_t k = 0;
    while (k + 1 < nnc_sink_count(s) && nnc_sink_at(s, k)->severity != NNC_ERROR)
        k++;
    const nnc_diag *d = nnc_sink_at(s, k);
    return d ? d->message : "";
}

/* Why the plan is not run here; NULL: it is. */
static const char *check_plan(const run *r, const nnc_artifact *a, bool alone)
{
    if (a->chunks > 1)
        return "the model runs in chunks of its batch: set a smaller one";
    if (!alone && nnc_env_world(r->e) > a->plan->n_device)
        return "there are more ranks than devices";
    if (on_gpus(r) && nnc_env_world(r->e) == 1 && nnc_device_cuda.count() < a->plan->n_device)
        return "this machine has fewer GPUs than the plan has devices";
    return NULL;
}

/* Compiles the plans of all strategies that are executed. */
static nnc_status make_programs(run *r)
{
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    NNC_NEED(own, r->sink);
    for (int i = 0; i < r->t->n_row; i++) {
        nnc_partition_row *row = &r->t->row[i];
        program p = {.row = row, .alone = nnc_env_world(r->e) > 1 && row->way.devices == 1};
        nnc_sink_clear(own);
        const nnc_status made =
            nnc_partition_execution(r->e, r->m, r->training, r->t, row, true, &p.a, &p.runs, own);
        if (made && nnc_sink_cause(own, NNC_E_MODEL) == NNC_E_NOMEM)
            return nnc_nomem(r->sink);
        const char *why = made     ? nnc_partition_refusal(own)
                          : p.runs ? check_plan(r, p.a, p.alone)
                                   : NULL;
        row->not_run = why ? nnc_arena_strdup(r->a, why) : NULL;
        if (!why && p.runs)
            r->p[r->n++] = p;
        else
            nnc_artifact_destroy(p.a);
        NNC_NEED(row->not_run || !why, r->sink);
    }
    return NNC_OK;
}

static int64_t bytes_of(const program *p)
{
    int64_t n = 0;
    for (int d = 0; d < p->a->plan->n_device; d++)
        n += nnc_device_needs(p->a->plan, d);
    return n;
}

/* ---- iterations ------------------------------------------------------------------------------------------ */

static nnc_status iterate(const run *r, const program *p)
{
    for (int k = 0; k < p->runs - 1; k++)
        NNC_TRY(
            r->training ? nnc_session_accumulate(p->s, r->sink) : nnc_session_run(p->s, r->sink));
    return r->training ? nnc_session_step(p->s, r->sink) : nnc_session_run(p->s, r->sink);
}

static nnc_status time_iteration(const run *r, program *p)
{
    const int64_t from = nnc_now_ns();
    NNC_TRY(iterate(r, p));
    NNC_NEED(ARENA_ROOM(r->a, p->ns, p->cap, p->n + 1), r->sink);
    p->ns[p->n] = nnc_now_ns() - from;
    p->spent_ns += p->ns[p->n++];
    return NNC_OK;
}

static bool has_enough(const run *r, const program *p)
{
    const nnc_partition_options *o = r->t->o;
    if (o->run_iterations)
        return p->n >= (size_t)o->run_iterations;
    const int64_t goal = (int64_t)(o->run_ms > 0 ? o->run_ms : RUN_MS) * 1000000;
    return p->n >= MOST || (p->n >= LEAST && p->spent_ns >= goal);
}

/* Each once; GPUs until their clocks are up, as an idle one's are a fifth of what they can be. */
static nnc_status warm_up(const run *r, const program *p, int n)
{
    const int64_t from = nnc_now_ns();
    do {
        for (int i = 0; i < n; i++)
            NNC_TRY(iterate(r, &p[i]));
    } while (on_gpus(r) && nnc_now_ns() - from < SPIN_NS);
    return NNC_OK;
}

static nnc_status time_programs(const run *r, program *p, int n)
{
    bool more = true;
    NNC_TRY(warm_up(r, p, n));
    for (int round = 0; more; round++) {
        more = false;
        for (int k = 0; k < n; k++) {
            program *now = &p[round % 2 ? n - 1 - k : k];
            if (has_enough(r, now))
                continue;
            NNC_TRY(time_iteration(r, now));
            more = more || !has_enough(r, now);
        }
    }
    return NNC_OK;
}

static int64_t quantile(const int64_t *sorted, size_t n, double share)
{
    const double at = share * (double)(n - 1);
    const size_t i = (size_t)at, k = i + 1 < n ? i + 1 : i;
    return sorted[i] + (int64_t)((double)(sorted[k] - sorted[i]) * (at - (double)i));
}

/* ---- devices ---------------------------------------------------------------------------------------------- */

/* Profiles each device in an iteration: the profile whose time is the median. */
static nnc_status profile_devices(const run *r, const program *p, nnc_partition_measured *out)
{
    const nnc_section last = r->training ? SEC_step : SEC_main,
                      others = r->training ? SEC_accumulate : SEC_main;
    nnc_shares *of[PROFILES];
    for (int i = 0; i < PROFILES; i++) {
        of[i] = ARENA_NEW(r->a, nnc_shares, r->t->devices + 1);
        NNC_NEED(of[i], r->sink);
        NNC_TRY(nnc_session_device_shares(p->s, r->e, SEC_main, last, 1, of[i], r->sink));
        if (p->runs > 1)
            NNC_TRY(nnc_session_device_shares(
                p->s, r->e, SEC_main, others, p->runs - 1, of[i], r->sink));
        for (int k = i; k > 0 && nnc_shares_total(of[k]) < nnc_shares_total(of[k - 1]); k--) {
            nnc_shares *longer = of[k - 1];
            of[k - 1] = of[k];
            of[k] = longer;
        }
    }
    out->shares = of[PROFILES / 2];
    return NNC_OK;
}

static nnc_status keep_result(const run *r, program *p)
{
    nnc_partition_measured *x = ARENA_NEW(r->a, nnc_partition_measured, 1);
    NNC_NEED(x, r->sink);
    nnc_sort64(p->ns, p->n);
    x->n = (int)p->n;
    x->least_ns = p->ns[0];
    x->median_ns = quantile(p->ns, p->n, 0.5);
    x->p10_ns = quantile(p->ns, p->n, 0.1);
    x->p90_ns = quantile(p->ns, p->n, 0.9);
    NNC_TRY(profile_devices(r, p, x));
    p->row->measured = x;
    return NNC_OK;
}

/* ---- groups that fit memory together ------------------------------------------------------------------------ */

static nnc_status load(const run *r, program *p)
{
    if (p->alone && !leads(r))
        return NNC_OK;
    return p->alone ? nnc_session_create_alone(r->e, p->a, false, &p->s, r->sink)
                    : nnc_session_create(r->e, p->a, &p->s, r->sink);
}

/* Sends inputs to ranks that follow once all of them have created all sessions. MPI's sends wait for the receiver where a message is not
 * small. */
static nnc_status lead(const run *r, program *p, int n)
{
    for (int i = 0; i < n; i++)
        NNC_TRY(nnc_partition_set_inputs(p[i].s, r->training, r->sink));
    NNC_TRY(time_programs(r, p, n));
    for (int i = 0; i < n; i++)
        NNC_TRY(keep_result(r, &p[i]));
    return r->e->job ? nnc_job_pause(r->e->job) : NNC_OK;
}

static nnc_status run_group(const run *r, program *p, int n)
{
    nnc_status st = NNC_OK;
    for (int i = 0; i < n && !st; i++)
        st = load(r, &p[i]);
    if (!st)
        st = leads(r) ? lead(r, p, n) : nnc_job_follow(r->e->job, r->sink);
    for (int i = 0; i < n; i++) {
        nnc_session_destroy(p[i].s);
        p[i].s = NULL;
    }
    return st;
}

/* Machine code runs on GPUs of its major architecture, not older than itself. */
static nnc_status check_gpu(const nnc_target *t, nnc_sink *sink)
{
    nnc_cuda_device d = {0};
    if (!nnc_cuda_devices(&d, 1, sink))
        return nnc_fail0(sink, NNC_E_DEVICE,
            "--run needs a usable GPU for %s (nnc doctor); without --run it is predicted only",
            t->name);
    if (d.sm / 10 != t->sm / 10 || d.sm < t->sm)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "--run: plans for %s do not run on this machine's GPU, cuda:sm_%d: describe it with "
            "nnc calibrate --target=cuda",
            t->name, d.sm);
    return NNC_OK;
}

/* Is this machine the one that the plans are for? */
static nnc_status check_machine(const nnc_env *e, nnc_sink *sink)
{
    const nnc_target *t = &e->target[0];
    if (t->kind == NNC_T_cuda)
        return check_gpu(t, sink);
    const char *lacks = nnc_target_host_lacks(t);
    if (lacks)
        return nnc_fail0(sink, NNC_E_DEVICE,
            "--run: plans for %s need %s, which this machine's CPU lacks: describe this machine "
            "with nnc calibrate",
            e->cluster ? e->cluster->name : t->name, lacks);
    return NNC_OK;
}

nnc_status nnc_partition_run(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, nnc_arena *arena, nnc_sink *sink)
{
    run r = {e, m, training, t, arena, sink, NULL, 0};
    NNC_TRY(check_machine(e, sink));
    r.p = ARENA_NEW(arena, program, t->n_row + 1);
    NNC_NEED(r.p, sink);
    nnc_status st = make_programs(&r);
    /* the same on all ranks: half of the memory that the system has, or of one GPU's */
    const int64_t room = on_gpus(&r) ? e->target[0].memory_bytes / 2 : nnc_memory_limit().bytes / 2;
    int64_t all = 0;
    for (int i = 0; i < r.n; i++)
        all = nnc_add_sat(all, bytes_of(&r.p[i]));
    if (!st && r.n && all <= room)
        st = run_group(&r, r.p, r.n);
    for (int i = 0; i < r.n && all > room && !st; i++)
        st = run_group(&r, &r.p[i], 1);
    for (int i = 0; i < r.n; i++)
        nnc_artifact_destroy(r.p[i].a);
    return st;
}

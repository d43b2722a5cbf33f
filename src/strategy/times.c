/* strategy/times.c -- measured times of commands, found again by what a command computes: the kernel or call, its tensors' types
 * and its threads. So a plan for several devices has the times that were measured in a plan for one. */
#include "session/session.h"
#include "strategy/strategy.h"

typedef struct known {
    nnc_hash128 key;
    int64_t ns; /* sum */
    int n;
} known;

struct nnc_command_times {
    nnc_arena *a;
    known *at;
    size_t n, cap;
};

nnc_command_times *nnc_command_times_create(nnc_arena *a)
{
    nnc_command_times *t = ARENA_NEW(a, nnc_command_times, 1);
    if (t)
        t->a = a;
    return t;
}

static void put_numbers(nnc_text *t, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        nnc_printf(t, " %lld", (long long)v[i]);
}

static void put_call(nnc_text *t, const nnc_call *c)
{
    const nnc_type *const types[] = {&c->src, &c->wei, &c->bias, &c->dst};
    nnc_printf(t, "call %d %d %d%d%d%d%d groups %lld:", c->kind, c->spatial, c->has_bias,
        c->trans_a, c->trans_b, c->tf32, c->exact, (long long)c->groups);
    put_numbers(t, c->kernel, c->spatial);
    put_numbers(t, c->stride, c->spatial);
    put_numbers(t, c->dilation, c->spatial);
    put_numbers(t, c->pad_lo, c->spatial);
    put_numbers(t, c->pad_hi, c->spatial);
    for (size_t i = 0; i < NNC_COUNT(types); i++) {
        nnc_putc(t, ' ');
        nnc_put_type(t, types[i]);
    }
    for (int i = 0; i < c->n_post; i++)
        nnc_printf(t, " post %d %d", c->post[i].kind, c->post[i].in_place);
}

/* The key's text; nothing for a command that does not compute. */
static void put_command(nnc_text *t, const nnc_plan *p, const nnc_cmd *c)
{
    if (c->kind == CMD_kernel)
        nnc_printf(
            t, "kernel %s threads %d", p->kernel[c->item].symbol, p->kernel[c->item].threads);
    else if (c->kind == CMD_call)
        put_call(t, &p->call[c->item]);
    else if (c->kind == CMD_copy && p->tensor[c->arg[0]].device == p->tensor[c->arg[1]].device)
        nnc_printf(t, "copy %lld", (long long)p->tensor[c->arg[1]].bytes);
}

static known *find_known(const nnc_command_times *t, nnc_hash128 key)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->at[i].key.lo == key.lo && t->at[i].key.hi == key.hi)
            return &t->at[i];
    return NULL;
}

bool nnc_command_times_add(nnc_command_times *t, const nnc_plan *p, const nnc_cmd *c, int64_t ns)
{
    NNC_LOCAL(nnc_text) text = {0};
    put_command(&text, p, c);
    if (text.oom)
        return false;
    if (!text.n)
        return true;
    const nnc_hash128 key = nnc_hash(nnc_text_str(&text), text.n);
    known *k = find_known(t, key);
    if (!k) {
        if (!ARENA_ROOM(t->a, t->at, t->cap, t->n + 1))
            return false;
        k = &t->at[t->n++];
        *k = (known){.key = key};
    }
    k->ns += ns;
    k->n++;
    return true;
}

int64_t nnc_command_times_ps(void *ctx, const nnc_plan *p, const nnc_cmd *c)
{
    NNC_LOCAL(nnc_text) text = {0};
    put_command(&text, p, c);
    if (!text.n || text.oom)
        return -1;
    const known *k = find_known(ctx, nnc_hash(nnc_text_str(&text), text.n));
    return k ? nnc_mul_sat(k->ns / k->n, 1000) : -1;
}

/* ---- measuring a plan ------------------------------------------------------------------------------------------ */

nnc_status nnc_partition_set_inputs(nnc_session *run, const nnc_training *training, nnc_sink *sink)
{
    nnc_compare_options o = nnc_compare_defaults;
    o.training = training;
    return nnc_session_make_inputs(run, &o, 0, sink);
}

/* Medians over some runs, after one that warms up. Medians add up to the time of a run; least times do not. */
static nnc_status time_commands(const nnc_env *e, nnc_session *run, const nnc_artifact *a,
    const nnc_training *training, int64_t *ns, nnc_sink *sink)
{
    enum { RUNS = 9 };
    const nnc_plan *p = a->plan;
    const nnc_section last = training ? SEC_step : SEC_main;
    const int from = nnc_plan_first(p, SEC_main), n = p->end[last] - from;
    NNC_FREED int64_t *all = nnc_malloc(((size_t)n * (RUNS + 2) + 1) * sizeof *all);
    NNC_NEED(all, sink);
    int64_t *start = all + (size_t)n * RUNS, *end = start + n;
    NNC_TRY(nnc_partition_set_inputs(run, training, sink));
    for (int k = -1; k < RUNS; k++) {
        NNC_TRY(nnc_exec_profile_behind(
            run->exec, nnc_env_profile_after(e), SEC_main, last, start, end, sink));
        for (int i = 0; k >= 0 && i < n; i++)
            all[(size_t)i * RUNS + (size_t)k] = end[i] - start[i];
    }
    for (int i = 0; i < n; i++) {
        nnc_sort64(all + (size_t)i * RUNS, RUNS);
        ns[from + i] = all[(size_t)i * RUNS + RUNS / 2];
    }
    return NNC_OK;
}

/* All ranks count with the times of rank 0. */
static nnc_status share_times(const nnc_env *e, const nnc_plan *p, int64_t *ns, nnc_sink *sink)
{
    enum { TAG = 0 };
    static const char what[] = "exchanging the times of commands";
    const int64_t bytes = (int64_t)(((size_t)p->n_cmd + 1) * sizeof *ns);
    nnc_comm *c = e->comm;
    nnc_status st = NNC_OK;
    if (!c)
        return NNC_OK;
    if (nnc_comm_rank(c))
        st = nnc_comm_recv(c, ns, bytes, 0, TAG, what);
    for (int r = 1; !st && !nnc_comm_rank(c) && r < nnc_comm_world(c); r++)
        st = nnc_comm_send(c, ns, bytes, r, TAG, what);
    if (st)
        (void)nnc_comm_failure(c, sink);
    return st;
}

nnc_status nnc_partition_time_plan(
    nnc_env *e, const nnc_artifact *a, const nnc_training *training, int64_t *ns, nnc_sink *sink)
{
    if (a->chunks > 1)
        return nnc_fail0(sink, NNC_E_FIT,
            "--measure: the model does not fit the device as a whole: set a smaller batch");
    if (!nnc_env_rank(e)) {
        NNC_OWNED(nnc_session) *run = NULL;
        NNC_TRY(nnc_session_create_alone(e, a, false, &run, sink));
        NNC_TRY(time_commands(e, run, a, training, ns, sink));
    }
    return share_times(e, a->plan, ns, sink);
}

nnc_status nnc_partition_time_others(nnc_env *e, const nnc_artifact *a,
    const nnc_training *training, nnc_command_times *t, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const int from = nnc_plan_first(p, SEC_main);
    NNC_FREED int64_t *ns = nnc_calloc((size_t)p->n_cmd + 1, sizeof *ns);
    NNC_FREED bool *other = nnc_calloc((size_t)p->n_cmd + 1, sizeof *other);
    bool any = false;
    NNC_NEED(ns && other, sink);
    for (int i = from; i < p->n_cmd; i++) {
        other[i] = nnc_plan_computes(p, &p->cmd[i]) && nnc_command_times_ps(t, p, &p->cmd[i]) < 0;
        any = any || other[i];
    }
    if (!any)
        return NNC_OK;
    NNC_TRY(nnc_partition_time_plan(e, a, training, ns, sink));
    for (int i = from; i < p->n_cmd; i++)
        if (other[i] && !nnc_command_times_add(t, p, &p->cmd[i], ns[i]))
            return nnc_nomem(sink);
    return NNC_OK;
}

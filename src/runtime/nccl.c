/* runtime/nccl.c -- NCCL between the GPUs of a plan: what of it can go through NCCL, communicators, and their end (nccl_run.c: runs).
 *
 * A communicator connects the devices of one list of participants, in their order; plans have one or few. One of all devices is for copies
 * between ranks. Calls do not block: NCCL's answer "in progress" is asked for again until it is another one.
 *
 * A lost rank leaves NCCL's kernels waiting on the GPU. So the host checks whether they are done, the communicators' errors and the other
 * ranks, before it waits for a stream. When a rank is lost, or after the deadline, it aborts them, which ends the kernels. */
#include "runtime/job.h"
#include "runtime/nccl_state.h"
#include <string.h>

/* ---- what NCCL can do ------------------------------------------------------------------------------------------------ */

int nccl_type(nnc_dtype d)
{
    switch (d) {
    case DT_i8: return 0;
    case DT_bool:
    case DT_u8: return 1;
    case DT_i32: return 2;
    case DT_u32: return 3;
    case DT_i64: return 4;
    case DT_u64: return 5;
    case DT_f16: return 6;
    case DT_f32: return 7;
    case DT_f64: return 8;
    case DT_bf16: return 9;
    default: return -1;
    }
}

/* NCCL gathers and scatters equal, contiguous parts. */
static bool can(const nnc_exec *e, const meeting *m)
{
    const nnc_plan *p = e->p;
    bool ok = m->c->n > 1 && m->c->outer == 1;
    for (int k = 0; k < m->n && ok; k++) {
        const nnc_cmd *c = &p->cmd[m->cmd[k]];
        const nnc_ptensor *x = &p->tensor[c->arg[0]];
        ok = !strncmp(p->device[c->device].name, "cuda:", 5) &&
             x->bytes == p->tensor[p->cmd[m->cmd[0]].arg[0]].bytes && nccl_type(x->type.dtype) >= 0;
    }
    return ok;
}

/* The clique of these devices, added where there is none. */
static nnc_status find_clique(
    nccl *q, nnc_exec *e, const int *device, int n, int *out, nnc_sink *sink)
{
    for (*out = 0; *out < q->n_clique; ++*out) {
        const clique *c = &q->clique[*out];
        if (c->n == n && !memcmp(c->device, device, (size_t)n * sizeof *device))
            return NNC_OK;
    }
    clique *c = &q->clique[*out];
    *c = (clique){
        .n = n, .device = ARENA_NEW(&e->arena, int, n), .end = ARENA_NEW(&e->arena, nccl_comm, n)};
    NNC_NEED(c->device && c->end, sink);
    memcpy(c->device, device, (size_t)n * sizeof *device);
    q->n_clique++;
    return NNC_OK;
}

/* Collectives, their participants and the communicators that they need. */
static nnc_status find_meetings(nccl *q, nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    q->meeting = ARENA_NEW(&e->arena, meeting, p->n_collective + 1);
    q->clique = ARENA_NEW(&e->arena, clique, p->n_collective + 2);
    NNC_NEED(q->meeting && q->clique, sink);
    for (int i = 0; i < p->n_collective; i++) {
        q->meeting[i] = (meeting){.c = &p->collective[i], .clique = -1, .op = -1};
        q->meeting[i].cmd = ARENA_NEW(&e->arena, int32_t, p->collective[i].n);
        NNC_NEED(q->meeting[i].cmd, sink);
    }
    for (int32_t i = 0; i < p->n_cmd; i++) {
        if (p->cmd[i].kind != CMD_collective)
            continue;
        meeting *m = &q->meeting[p->cmd[i].item];
        m->cmd[m->n++] = i;
        m->own += nnc_exec_owns(e, p->cmd[i].device);
    }
    for (int i = 0, last = -1; i < p->n_collective; last = q->meeting[i++].cmd[0]) {
        meeting *m = &q->meeting[i];
        if (m->cmd[0] < last) { /* numbered in another order than the plan's */
            for (int k = 0; k < i; k++)
                q->meeting[k].clique = -1;
            q->n_clique = 0;
            return NNC_OK;
        }
        if (!can(e, m))
            continue;
        NNC_FREED int *device = nnc_calloc((size_t)m->n, sizeof *device);
        NNC_NEED(device, sink);
        for (int k = 0; k < m->n; k++)
            device[k] = p->cmd[m->cmd[k]].device;
        NNC_TRY(find_clique(q, e, device, m->n, &m->clique, sink));
    }
    return NNC_OK;
}

/* Copies between ranks, where all devices are GPUs. */
static nnc_status find_copies(nccl *q, nnc_exec *e, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    bool any = false;
    q->copies = -1;
    for (int32_t i = p->end[SEC_init]; i < p->n_cmd; i++)
        any = any || nnc_exec_between_ranks(e, i);
    NNC_FREED int *device = nnc_calloc((size_t)p->n_device, sizeof *device);
    NNC_NEED(device, sink);
    for (int d = 0; d < p->n_device; d++) {
        device[d] = d;
        any = any && !strncmp(p->device[d].name, "cuda:", 5);
    }
    return any ? find_clique(q, e, device, p->n_device, &q->copies, sink) : NNC_OK;
}

/* ---- what this machine can do ---------------------------------------------------------------------------------------- */

/* A rank's message about its devices. */
typedef struct said {
    bool has; /* NCCL */
    bool mixed; /* it has CPUs, too */
    char why[120];
    nnc_hash128 host;
    char pci[][24]; /* by device; "": another rank's */
} said;

static nnc_hash128 host_of(void)
{
    char id[64] = {0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(id, sizeof id, f))
        id[0] = 0;
    if (f)
        (void)fclose(f);
    return nnc_hash(id, sizeof id);
}

static void say(const nnc_exec *e, said *s)
{
    NNC_OWNED(nnc_sink) *why = nnc_sink_create();
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    s->host = host_of();
    s->has = rt && NNC_CUDA(nccl, why);
    if (!s->has)
        snprintf(s->why, sizeof s->why, "%s",
            why && nnc_sink_count(why) ? nnc_sink_at(why, 0)->message : "NCCL is missing");
    for (int d = 0; d < e->p->n_device; d++) {
        if (!nnc_exec_owns(e, d))
            continue;
        s->mixed = s->mixed || e->dev[d].api->host_memory;
        if (rt && !e->dev[d].api->host_memory)
            (void)rt->cudaDeviceGetPCIBusId(s->pci[d], sizeof s->pci[d], e->dev[d].ordinal);
    }
}

static const said *owner_of(const nnc_exec *e, const said *all, size_t bytes, int d)
{
    return (const said *)((const char *)all + (size_t)(e->ranks ? e->ranks->owner[d] : 0) * bytes);
}

/* Why NCCL cannot be used, from what all ranks say; false: it can. */
static bool refuses(nccl *q, const nnc_exec *e, const said *all, size_t bytes)
{
    for (int d = 0; d < e->p->n_device; d++) {
        const said *s = owner_of(e, all, bytes, d);
        if (!s->has || s->mixed) {
            snprintf(q->why, sizeof q->why, "%s: %s", e->p->device[d].name,
                s->has ? "its process has devices of several kinds" : s->why);
            return true;
        }
    }
    for (int a = 0; a < e->p->n_device; a++)
        for (int b = 0; b < a; b++) {
            const said *x = owner_of(e, all, bytes, a), *y = owner_of(e, all, bytes, b);
            if (strcmp(x->pci[a], y->pci[b]) != 0 || memcmp(&x->host, &y->host, sizeof x->host))
                continue;
            snprintf(q->why, sizeof q->why,
                "devices %s and %s are one GPU (%s), which NCCL does not support",
                e->p->device[b].name, e->p->device[a].name, x->pci[a]);
            return true;
        }
    return false;
}

/* What rank 0 tells. */
typedef struct verdict {
    bool refuses;
    char why[160];
    nccl_id id[]; /* by clique */
} verdict;

static nnc_status decide(nccl *q, nnc_exec *e, verdict *v, nnc_sink *sink)
{
    const int world = e->ranks ? nnc_job_world(e->ranks->job) : 1;
    const size_t bytes = sizeof(said) + (size_t)e->p->n_device * sizeof((said *)0)->pci[0];
    const size_t each = (size_t)nnc_align_up((int64_t)bytes, 16);
    NNC_FREED said *all = nnc_calloc((size_t)world, each), *mine = nnc_calloc(1, each);
    NNC_NEED(all && mine, sink);
    say(e, mine);
    memcpy(all, mine, each);
    if (e->ranks)
        NNC_TRY(nnc_ranks_gather(e->ranks, mine, all, (int64_t)each, "looking for NCCL"));
    if (e->ranks && e->ranks->rank)
        return NNC_OK;
    v->refuses = refuses(q, e, all, each);
    for (int i = 0; i < q->n_clique && !v->refuses; i++) {
        const int r = NNC_CUDA(nccl, NULL)->ncclGetUniqueId(&v->id[i]);
        v->refuses = r != NCCL_SUCCESS;
        if (r)
            snprintf(q->why, sizeof q->why, "%s", NNC_CUDA(nccl, NULL)->ncclGetErrorString(r));
    }
    memcpy(v->why, q->why, sizeof v->why);
    return NNC_OK;
}

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

nnc_status nccl_broken(nnc_exec *e, nccl_comm c, int result, const char *what)
{
    nccl *q = e->nccl;
    const char *more = c ? q->api->ncclGetLastError(c) : NULL;
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "rank %d: %s: NCCL: %s%s%s", e->ranks ? e->ranks->rank : 0, what,
        q->api->ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
    nnc_comm_break(exec_comm(e), nnc_text_str(&t));
    nnc_nccl_abort(e);
    return NNC_E_PEER;
}

nnc_status nccl_late(nnc_exec *e, const char *what)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t,
        "rank %d: %s: through NCCL: another rank has not joined for %g s (--comm-timeout): it is "
        "lost, stopped, or slower than that",
        e->ranks ? e->ranks->rank : 0, what, nnc_comm_timeout(exec_comm(e)));
    nnc_comm_break(exec_comm(e), nnc_text_str(&t));
    nnc_nccl_abort(e);
    return NNC_E_PEER;
}

nnc_status nccl_settled(nnc_exec *e, const clique *c, const char *what, bool *yes)
{
    *yes = true;
    for (int k = 0; k < c->n; k++) {
        int state = NCCL_SUCCESS;
        if (!c->end[k])
            continue;
        const int r = e->nccl->api->ncclCommGetAsyncError(c->end[k], &state);
        if (r || (state && state != NCCL_IN_PROGRESS))
            return nccl_broken(e, c->end[k], r ? r : state, what);
        *yes = *yes && state == NCCL_SUCCESS;
    }
    return NNC_OK;
}

nnc_status nccl_look_for_ranks(nnc_exec *e, const char *what)
{
    const nnc_status st = nnc_comm_look(exec_comm(e), what);
    if (st)
        nnc_nccl_abort(e);
    return st;
}

nnc_status nnc_nccl_look(nnc_exec *e, const char *what)
{
    nccl *q = e->nccl;
    bool yes;
    NNC_TRY(nccl_look_for_ranks(e, what));
    for (int i = 0; i < q->n_clique && !q->broken; i++)
        NNC_TRY(nccl_settled(e, &q->clique[i], what, &yes));
    return q->broken ? NNC_E_PEER : NNC_OK;
}

static nnc_status settle(nnc_exec *e, const clique *c, const char *what)
{
    const int64_t from = nnc_now_ns();
    for (;;) {
        bool yes;
        NNC_TRY(nccl_settled(e, c, what, &yes));
        if (yes)
            return NNC_OK;
        const int64_t waited = nnc_now_ns() - from;
        if (nnc_comm_is_late(exec_comm(e), waited))
            return nccl_late(e, what);
        NNC_TRY(nccl_look_for_ranks(e, what));
        nnc_comm_pause(waited);
    }
}

static nnc_status connect(nnc_exec *e, clique *c)
{
    static const char what[] = "connecting the GPUs";
    const nnc_cuda_nccl *api = e->nccl->api;
    nccl_config config = NCCL_CONFIG(0);
    int r = api->ncclGroupStart(), own = 0;
    for (int k = 0; k < c->n && !r; k++) {
        const dev *d = &e->dev[c->device[k]];
        if (!nnc_exec_owns(e, c->device[k]))
            continue;
        own++;
        r = d->api->use(d->device)
                ? 1 /* ncclUnhandledCudaError */
                : api->ncclCommInitRankConfig(&c->end[k], c->n, c->id, k, &config);
        r = r == NCCL_IN_PROGRESS ? NCCL_SUCCESS : r;
    }
    const int ended = api->ncclGroupEnd();
    r = r ? r : ended == NCCL_IN_PROGRESS ? NCCL_SUCCESS : ended;
    return r ? nccl_broken(e, NULL, r, what) : own ? settle(e, c, what) : NNC_OK;
}

/* ---- loading -------------------------------------------------------------------------------------------------------- */

static nnc_status start(nccl *q, nnc_exec *e, const verdict *v, nnc_sink *sink)
{
    q->api = NNC_CUDA(nccl, sink);
    if (!q->api)
        return NNC_E_DEVICE;
    NNC_TRY(nccl_find_ops(q, e, sink));
    e->nccl = q;
    for (int i = 0; i < q->n_clique; i++) {
        q->clique[i].id = v->id[i];
        NNC_TRY(nnc_job_told(exec_comm(e), connect(e, &q->clique[i]), sink));
    }
    return NNC_OK;
}

nnc_status nnc_nccl_create(nnc_exec *e, nnc_comm_by by, nnc_sink *sink)
{
    if ((!e->p->n_collective && !e->ranks) || by == NNC_COMM_staged)
        return NNC_OK;
    nccl *q = ARENA_NEW(&e->arena, nccl, 1);
    NNC_NEED(q, sink);
    NNC_TRY(find_meetings(q, e, sink));
    NNC_TRY(find_copies(q, e, sink));
    if (!q->n_clique)
        return NNC_OK;
    const size_t bytes = sizeof(verdict) + (size_t)q->n_clique * sizeof(nccl_id);
    NNC_FREED verdict *v = nnc_calloc(1, bytes);
    NNC_NEED(v, sink);
    NNC_TRY(nnc_exec_meet(e, NNC_OK, sink)); /* all ranks have come so far */
    NNC_TRY(decide(q, e, v, sink));
    if (e->ranks)
        NNC_TRY(nnc_ranks_spread(e->ranks, v, (int64_t)bytes, "looking for NCCL"));
    if (!v->refuses)
        return start(q, e, v, sink);
    if (by == NNC_COMM_nccl)
        return nnc_fail0(sink, NNC_E_DEVICE, "--comm=nccl: %s", v->why);
    if (!e->ranks || e->ranks->rank == 0)
        nnc_note(sink, (nnc_loc){0},
            "data between GPUs goes through host memory (--comm=staged): %s", v->why);
    return NNC_OK;
}

bool nnc_nccl_takes(const nnc_exec *e, int32_t cmd)
{
    return e->nccl && e->nccl->meeting[e->p->cmd[cmd].item].clique >= 0;
}

bool nnc_nccl_copies(const nnc_exec *e, int32_t cmd)
{
    return e->nccl && e->nccl->copies >= 0 && nnc_exec_between_ranks(e, cmd);
}

bool nnc_nccl_takes_all(const nnc_exec *e)
{
    bool all = e->nccl != NULL;
    for (int i = 0; i < e->p->n_collective && all; i++)
        all = e->nccl->meeting[i].clique >= 0;
    return all;
}

void nnc_nccl_abort(nnc_exec *e)
{
    nccl *q = e->nccl;
    q->broken = true;
    for (int i = 0; i < q->n_clique; i++)
        for (int k = 0; k < q->clique[i].n; k++) {
            nccl_comm c = q->clique[i].end[k];
            q->clique[i].end[k] = NULL;
            if (c)
                (void)q->api->ncclCommAbort(c);
        }
}

void nnc_nccl_destroy(nnc_exec *e)
{
    nccl *q = e->nccl;
    for (int i = 0; q && i < q->n_clique && !q->broken; i++) {
        clique *c = &q->clique[i];
        for (int k = 0; k < c->n; k++)
            if (c->end[k])
                (void)q->api->ncclCommFinalize(c->end[k]);
        if (settle(e, c, "disconnecting the GPUs") != NNC_OK)
            return;
        for (int k = 0; k < c->n; k++) {
            if (c->end[k])
                (void)q->api->ncclCommDestroy(c->end[k]);
            c->end[k] = NULL;
        }
    }
}

/* sim/build.c -- a simulation's lanes, links and tasks. */
#include "sim/internal.h"
#include <math.h>
#include <string.h>

static void set_device(const nnc_sim *s, int d)
{
    s->resource[s->n_link + 2 * d].capacity = 1;
    s->resource[s->n_link + 2 * d + 1].capacity = 1;
    s->device[d].overlap = s->c ? nnc_cluster_kind_of(s->c, d)->overlap : 1;
    s->device[d].engines = s->c ? nnc_cluster_kind_of(s->c, d)->copy_engines : INT32_MAX;
    s->device[d].waiting = s->device[d].last_waiting = -1;
}

nnc_sim *nnc_sim_create(const nnc_cluster *c, int n_device)
{
    nnc_sim *s = nnc_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->c = c;
    s->n_link = c ? c->n_link : 0;
    s->n_device = c ? c->n_device : n_device;
    s->host = c ? nnc_cluster_host_of(c) : (nnc_cluster_host){0};
    const int nodes = c && s->host.cores > 0 ? c->n_node : 0;
    s->n_resource = s->n_link + 2 * s->n_device + nodes;
    s->device = ARENA_NEW(&s->arena, sim_device, s->n_device + 1);
    if (!s->device || !ARENA_ROOM(&s->arena, s->resource, s->cap_resource, s->n_resource + 1)) {
        nnc_sim_destroy(s);
        return NULL;
    }
    for (int i = 0; c && i < c->n_link; i++)
        s->resource[i].capacity = (double)c->link[i].bytes_s * 1e-12;
    for (int d = 0; d < s->n_device; d++)
        set_device(s, d);
    for (int i = 0; i < nodes; i++)
        s->resource[s->n_link + 2 * s->n_device + i].capacity = s->host.cores;
    return s;
}

void nnc_sim_destroy(nnc_sim *s)
{
    if (!s)
        return;
    nnc_free(s->task);
    nnc_free(s->heap);
    nnc_arena_deinit(&s->arena);
    nnc_free(s);
}

int nnc_sim_lane(nnc_sim *s, int device)
{
    if (!ARENA_ROOM(&s->arena, s->lane, s->cap_lane, s->n_lane + 1))
        return -1;
    s->lane[s->n_lane] = (sim_lane){.device = device};
    return s->n_lane++;
}

int nnc_sim_link(nnc_sim *s, int64_t bytes_s)
{
    if (!ARENA_ROOM(&s->arena, s->resource, s->cap_resource, s->n_resource + 1))
        return -1;
    s->resource[s->n_resource] = (sim_resource){.capacity = (double)bytes_s * 1e-12};
    return s->n_resource++;
}

void nnc_sim_engines(nnc_sim *s, int device, int n)
{
    s->device[device].engines = n;
}

void nnc_sim_overlap(nnc_sim *s, int device, double factor)
{
    s->device[device].overlap = factor;
}

/* Room for one task more, which doubles. */
static bool room(nnc_sim *s)
{
    if ((size_t)s->n_task < s->cap_task)
        return true;
    size_t cap = s->cap_task ? 2 * s->cap_task : 256;
    sim_task *p = nnc_realloc(s->task, cap * sizeof *p);
    if (!p)
        return false;
    s->task = p;
    s->cap_task = cap;
    return true;
}

static bool join_lane(nnc_sim *s, int lane, int task)
{
    sim_lane *l = &s->lane[lane];
    size_t cap = (size_t)l->cap;
    if (!ARENA_ROOM(&s->arena, l->task, cap, l->n + 1))
        return false;
    l->cap = (int)cap;
    s->task[task].n_wait += l->n > l->head;
    l->task[l->n++] = task;
    return true;
}

bool nnc_sim_after(nnc_sim *s, int task, int dep)
{
    sim_task *d = &s->task[dep];
    size_t cap = (size_t)d->cap_next;
    if (!ARENA_ROOM(&s->arena, d->next, cap, d->n_next + 1))
        return false;
    d->cap_next = (int)cap;
    d->next[d->n_next++] = task;
    s->task[task].n_wait++;
    return true;
}

/* Sets the resources that the task shares while it runs, and its work. */
static bool set_work(nnc_sim *s, sim_task *x, const nnc_sim_task *t)
{
    const bool op = t->kind == SIM_op && t->device >= 0;
    x->most = 1;
    x->work = (double)t->work_ps;
    x->latency_ps = t->latency_ps;
    if (op) {
        const int at = sim_compute_of(s, t->device);
        const double compute = t->compute == 0 && t->memory == 0 ? 1 : t->compute;
        x->use = ARENA_NEW(&s->arena, sim_use, 3);
        if (!x->use)
            return false;
        x->use[x->n_use++] = (sim_use){at, compute};
        if (t->memory > 0)
            x->use[x->n_use++] = (sim_use){at + 1, t->memory};
        if (t->cores > 0 && s->host.cores > 0)
            x->use[x->n_use++] = (sim_use){sim_cores_of(s, t->device), t->cores};
    } else if (t->transfer) {
        x->latency_ps = t->transfer->latency_ps;
        x->work = (double)nnc_max64(t->bytes, 0);
        x->most = t->transfer->bytes_s * 1e-12;
        x->n_use = t->transfer->n_use;
        x->use = ARENA_NEW(&s->arena, sim_use, x->n_use + 1);
        if (!x->use)
            return false;
        const nnc_use *u = t->transfer->use;
        for (int i = 0; u && i < x->n_use; i++)
            x->use[i] = (sim_use){u[i].link, u[i].weight};
    }
    for (int i = 0; x->use && i < x->n_use; i++)
        x->unit = fmax(x->unit, x->use[i].weight);
    x->unit = t->unit > 0 ? t->unit : x->unit;
    return true;
}

static bool copy_arrays(nnc_sim *s, sim_task *x, const nnc_sim_task *t)
{
    x->n_lane = t->n_lane;
    x->lane = t->n_lane ? nnc_arena_memdup(&s->arena, t->lane, (size_t)t->n_lane * sizeof *t->lane)
                        : NULL;
    return x->lane || !t->n_lane;
}

static int add_one(nnc_sim *s, const nnc_sim_task *t)
{
    if (!room(s))
        return -1;
    const int id = s->n_task;
    sim_task *x = &s->task[id];
    *x = (sim_task){.kind = t->kind,
        .name = t->name ? t->name : "",
        .device = t->device,
        .wakes = t->wakes,
        .queued = -1};
    if (!set_work(s, x, t) || !copy_arrays(s, x, t))
        return -1;
    s->n_task++;
    for (int i = 0; i < t->n_lane; i++)
        if (!join_lane(s, t->lane[i], id))
            return -1;
    for (int i = 0; i < t->n_dep; i++)
        if (!nnc_sim_after(s, id, t->dep[i]))
            return -1;
    return id;
}

int nnc_sim_add(nnc_sim *s, const nnc_sim_task *t)
{
    int launch = -1;
    if (t->launched) {
        launch = add_one(s, &(nnc_sim_task){.kind = SIM_launch,
                                .name = t->name,
                                .device = -1,
                                .n_lane = 1,
                                .lane = &t->host,
                                .work_ps = t->launch_ps});
        if (launch < 0)
            return -1;
    }
    const int id = add_one(s, t);
    return id >= 0 && (launch < 0 || nnc_sim_after(s, id, launch)) ? id : -1;
}

/* ---- transfers of the cluster ------------------------------------------------------------------------------------- */

/* Adds up the uses of several transfers that run side by side. */
typedef struct sum {
    nnc_transfer t;
    double unit; /* the heaviest use of one of them */
    size_t cap;
    nnc_arena *a;
} sum;

static bool add_uses(sum *m, const nnc_transfer *t)
{
    for (int i = 0; i < t->n_use; i++)
        m->unit = fmax(m->unit, t->use[i].weight);
    if (!m->t.n_use) {
        const nnc_use *use = t->use;
        m->t = *t;
        m->t.use = NULL;
        if (!ARENA_ROOM(m->a, m->t.use, m->cap, t->n_use + 1))
            return false;
        if (t->n_use)
            memcpy(m->t.use, use, (size_t)t->n_use * sizeof *use);
        return true;
    }
    m->t.bytes_s = fmin(m->t.bytes_s, t->bytes_s);
    m->t.latency_ps = nnc_max64(m->t.latency_ps, t->latency_ps);
    for (int i = 0; i < t->n_use; i++) {
        int k = 0;
        while (k < m->t.n_use && m->t.use[k].link != t->use[i].link)
            k++;
        if (k == m->t.n_use) {
            if (!ARENA_ROOM(m->a, m->t.use, m->cap, k + 1))
                return false;
            m->t.use[m->t.n_use++] = (nnc_use){t->use[i].link, 0};
        }
        m->t.use[k].weight += t->use[i].weight;
    }
    return true;
}

static int add_sum(nnc_sim *s, const nnc_sim_task *t, sum *m)
{
    for (int i = 0; i < m->t.n_use; i++)
        m->t.bytes_s =
            fmin(m->t.bytes_s, (double)s->c->link[m->t.use[i].link].bytes_s / m->t.use[i].weight);
    nnc_sim_task with = *t;
    with.transfer = &m->t;
    with.unit = m->unit;
    return nnc_sim_add(s, &with);
}

/* A task that is n_group transfers side by side; one(): of group g. */
static int add_groups(nnc_sim *s, const nnc_sim_task *t, int n_group,
    nnc_status (*one)(const void *ctx, int g, nnc_transfer *out, nnc_arena *a, nnc_sink *sink),
    const void *ctx, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    sum m = {.a = &a};
    for (int g = 0; g < n_group; g++) {
        nnc_transfer x;
        if (one(ctx, g, &x, &a, sink))
            return -1;
        if (!add_uses(&m, &x)) {
            nnc_report_nomem(sink);
            return -1;
        }
    }
    const int id = add_sum(s, t, &m);
    if (id < 0)
        nnc_report_nomem(sink);
    return id;
}

typedef struct groups {
    const nnc_cluster *c;
    const int32_t *src, *dst;
    nnc_group_op kind;
    int n;
    int64_t bytes;
} groups;

static nnc_status copy_of(const void *ctx, int g, nnc_transfer *out, nnc_arena *a, nnc_sink *sink)
{
    const groups *x = ctx;
    return nnc_cluster_p2p(x->c, x->src[g], x->dst[g], out, a, sink);
}

static nnc_status collective_of(
    const void *ctx, int g, nnc_transfer *out, nnc_arena *a, nnc_sink *sink)
{
    const groups *x = ctx;
    const int32_t *device = x->src + (ptrdiff_t)g * x->n;
    return nnc_cluster_collective(x->c, x->kind, device, x->n, x->bytes, out, a, sink);
}

int nnc_sim_copies(nnc_sim *s, const nnc_sim_task *t, const int32_t *src, const int32_t *dst,
    int n_group, nnc_sink *sink)
{
    const groups x = {.c = s->c, .src = src, .dst = dst};
    return add_groups(s, t, n_group, copy_of, &x, sink);
}

int nnc_sim_collectives(nnc_sim *s, const nnc_sim_task *t, nnc_group_op kind, const int32_t *device,
    int n, int n_group, nnc_sink *sink)
{
    const groups x = {.c = s->c, .src = device, .kind = kind, .n = n, .bytes = t->bytes};
    return add_groups(s, t, n_group, collective_of, &x, sink);
}

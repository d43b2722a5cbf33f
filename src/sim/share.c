/* sim/share.c -- max-min fair rates. Tasks that run at the same time are connected when they use a common resource; only the connected sets
 * with a change are computed again. In such a set all rates grow together, in terms of what a task takes from its most loaded resource.
 * When a task has its own maximum, or a resource is full, its tasks are done, and the others grow on.
 *
 * Terminates: each round fixes at least one task. */
#include "sim/internal.h"
#include <math.h>

typedef struct set {
    nnc_sim *s;
    int n_task, n_resource; /* in s->flow, s->found */
} set;

/* The tasks that are connected with resource r. Resources are marked by 2 * round + 1, tasks by the round. */
static void collect(set *c, int r)
{
    nnc_sim *s = c->s;
    c->n_task = 0;
    c->n_resource = 0;
    s->found[c->n_resource++] = r;
    for (int i = 0; i < c->n_resource; i++) {
        const sim_resource *x = &s->resource[s->found[i]];
        for (int k = 0; k < x->n_active; k++) {
            sim_task *t = &s->task[x->active[k]];
            if (t->mark == s->mark)
                continue;
            t->mark = s->mark;
            s->flow[c->n_task++] = x->active[k];
            for (int u = 0; u < t->n_use; u++) {
                sim_resource *y = &s->resource[t->use[u].resource];
                if (y->mark != s->mark + 1) {
                    y->mark = s->mark + 1;
                    s->found[c->n_resource++] = t->use[u].resource;
                }
            }
        }
    }
}

/* Rate that the task has where nobody else uses its resources. */
static double alone(const nnc_sim *s, const sim_task *t)
{
    const bool slowed = t->kind == SIM_op && t->device >= 0 && s->device[t->device].collectives > 0;
    return slowed ? t->most / s->device[t->device].overlap : t->most;
}

static void set_rate(nnc_sim *s, int32_t id, double rate)
{
    sim_task *t = &s->task[id];
    if (rate == t->rate)
        return;
    t->left = fmax(t->left - t->rate * (double)(s->now_ps - t->since_ps), 0);
    t->since_ps = s->now_ps;
    t->rate = rate;
    const double ps = ceil(t->left / rate);
    sim_push(s, s->now_ps + (ps < 0x1p61 ? (int64_t)ps : (int64_t)1 << 61), id);
}

static void fix(nnc_sim *s, int32_t id, double rate)
{
    sim_task *t = &s->task[id];
    t->fixed = true;
    for (int i = 0; i < t->n_use; i++)
        s->resource[t->use[i].resource].frozen += rate * t->use[i].weight;
    set_rate(s, id, rate);
}

/* The level at which resource r is full; infinite: never. */
static double full_at(const nnc_sim *s, int r)
{
    const sim_resource *x = &s->resource[r];
    double growth = 0;
    for (int k = 0; k < x->n_active; k++) {
        const sim_task *t = &s->task[x->active[k]];
        for (int u = 0; u < t->n_use && !t->fixed; u++)
            if (t->use[u].resource == r)
                growth += t->use[u].weight / t->unit;
    }
    return growth > 0 ? fmax(x->capacity - x->frozen, 0) / growth : INFINITY;
}

static double lowest_level(const set *c)
{
    const nnc_sim *s = c->s;
    double level = INFINITY;
    for (int i = 0; i < c->n_task; i++) {
        const sim_task *t = &s->task[s->flow[i]];
        if (!t->fixed)
            level = fmin(level, alone(s, t) * t->unit);
    }
    for (int i = 0; i < c->n_resource; i++)
        level = fmin(level, full_at(s, s->found[i]));
    return level;
}

/* Fixes the tasks that cannot grow beyond the level; returns how many. A least rate keeps every task moving. */
static int fix_at(const set *c, double level)
{
    nnc_sim *s = c->s;
    const double limit = level * (1 + 1e-12);
    int n = 0;
    for (int i = 0; i < c->n_resource; i++) {
        const int r = s->found[i];
        if (full_at(s, r) > limit)
            continue;
        for (int k = 0; k < s->resource[r].n_active; k++) {
            const int32_t id = s->resource[r].active[k];
            const sim_task *t = &s->task[id];
            if (t->fixed)
                continue;
            const double rate = fmin(level / t->unit, alone(s, t));
            fix(s, id, fmax(rate, alone(s, t) * 1e-9));
            n++;
        }
    }
    for (int i = 0; i < c->n_task; i++) {
        const sim_task *t = &s->task[s->flow[i]];
        if (!t->fixed && alone(s, t) * t->unit <= limit) {
            fix(s, s->flow[i], alone(s, t));
            n++;
        }
    }
    return n;
}

static void share_set(const set *c)
{
    nnc_sim *s = c->s;
    int left = c->n_task;
    if (left == 1) { /* the usual case */
        set_rate(s, s->flow[0], alone(s, &s->task[s->flow[0]]));
        return;
    }
    for (int i = 0; i < c->n_task; i++)
        s->task[s->flow[i]].fixed = false;
    for (int i = 0; i < c->n_resource; i++)
        s->resource[s->found[i]].frozen = 0;
    while (left > 0)
        left -= fix_at(c, lowest_level(c));
}

void sim_share(nnc_sim *s)
{
    set c = {.s = s};
    for (int i = 0; i < s->n_dirty; i++) {
        if (s->resource[s->dirty[i]].mark == s->mark + 1)
            continue; /* in an earlier set */
        s->resource[s->dirty[i]].mark = s->mark + 1;
        collect(&c, s->dirty[i]);
        share_set(&c);
    }
    s->n_dirty = 0;
    s->mark += 2;
}

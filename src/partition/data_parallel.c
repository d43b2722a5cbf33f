/* partition/data_parallel.c -- the backward pass of data parallelism: gradients are summed bucket by bucket while it runs; and the bytes
 * of ZeRO's stages. */
#include "partition/partition.h"

/* A backward pass and a queue of collectives, each a machine that does one thing at a time. */
typedef struct race {
    const nnc_buckets_problem *p;
    int layer; /* that runs; -1: the pass has ended */
    int64_t left; /* of the layer, in nanoseconds x slowdown */
    int64_t open; /* bytes of the bucket that is being filled */
    int64_t queued_ns; /* collectives that wait, in order: only their sum matters */
    int n_bucket;
    int64_t now;
} race;

static void close_bucket(race *r)
{
    if (!r->open)
        return;
    const int64_t start = nnc_add_sat(r->now, r->queued_ns);
    r->queued_ns = nnc_add_sat(
        r->queued_ns, nnc_links_allreduce(r->p->links, r->p->device, r->p->n_device, r->open));
    if (r->p->bucket)
        r->p->bucket[r->n_bucket] = (nnc_bucket){start, nnc_add_sat(r->now, r->queued_ns), r->open};
    r->n_bucket++;
    r->open = 0;
}

/* Starts the next layer that takes time; gradients of those that end go to buckets. */
static void next_layer(race *r)
{
    for (; r->layer >= 0 && !r->left; r->layer--) {
        r->open = nnc_add_sat(r->open, r->p->gradient[r->layer]);
        if (r->open >= r->p->bucket_bytes)
            close_bucket(r);
        if (r->layer > 0)
            r->left = nnc_mul_sat(r->p->backward[r->layer - 1], r->p->slowdown);
        else
            close_bucket(r);
    }
}

nnc_buckets_time nnc_buckets_run(const nnc_buckets_problem *p)
{
    nnc_buckets_time t = {0};
    race r = {.p = p, .layer = p->n_layer - 1};
    if (!p->n_layer)
        return t;
    r.left = nnc_mul_sat(p->backward[r.layer], p->slowdown);
    next_layer(&r);
    while (r.layer >= 0) {
        const bool both = r.queued_ns > 0;
        const int64_t rate = both ? 1000 : p->slowdown, all = nnc_ceildiv(r.left, rate);
        const int64_t step = both ? nnc_min64(all, r.queued_ns) : all;
        r.now = nnc_add_sat(r.now, step);
        r.left = nnc_max64(r.left - step * rate, 0);
        if (both) {
            r.queued_ns -= step;
            t.hidden += step;
        }
        next_layer(&r);
    }
    t.n_bucket = r.n_bucket;
    t.compute = r.now;
    t.exposed = r.queued_ns;
    t.collective = nnc_add_sat(t.hidden, t.exposed);
    t.end = nnc_add_sat(r.now, r.queued_ns);
    return t;
}

nnc_zero_bytes nnc_zero(int stage, int n, int64_t weights, int64_t gradients, int64_t optimizer,
    int64_t largest_unit, bool prefetch)
{
    nnc_zero_bytes z = {.weights = stage >= 3 ? nnc_ceildiv(weights, n) : weights,
        .gradients = stage >= 2 ? nnc_ceildiv(gradients, n) : gradients,
        .optimizer = stage >= 1 ? nnc_ceildiv(optimizer, n) : optimizer};
    if (stage >= 3)
        z.gathered = nnc_mul_sat(largest_unit, prefetch ? 2 : 1);
    if (!stage)
        z.traffic = nnc_allreduce_bytes(n, gradients);
    else /* gradients are reduce-scattered, weights gathered: at stage 3 for both passes */
        z.traffic = nnc_add_sat(nnc_allgather_bytes(n, gradients),
            nnc_mul_sat(nnc_allgather_bytes(n, weights), stage >= 3 ? 2 : 1));
    return z;
}

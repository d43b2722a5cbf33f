/* strategy/sense.c -- what strategies would take with faster and slower links: each is planned again for them. */
#include "strategy/row.h"
#include "strategy/strategy.h"

const double nnc_partition_bandwidth[NNC_BANDWIDTHS] = {0.25, 0.5, 2, 4};

/* Links of the same latency and `factor` times the bandwidth: they take as long for as many times fewer bytes. */
struct scaled_links {
    nnc_links links;
    double factor;
};

static int64_t scaled(const struct scaled_links *l, int64_t bytes)
{
    return (int64_t)((double)bytes / l->factor);
}

static int64_t scaled_p2p(const void *ctx, int src, int dst, int64_t bytes)
{
    const struct scaled_links *l = ctx;
    return l->links.p2p_ns(l->links.ctx, src, dst, scaled(l, bytes));
}

static int64_t scaled_allreduce(const void *ctx, const int *device, int n, int64_t bytes)
{
    const struct scaled_links *l = ctx;
    return l->links.allreduce_ns(l->links.ctx, device, n, scaled(l, bytes));
}

nnc_status row_scale_links(rows *r, double factor)
{
    struct scaled_links *l = ARENA_NEW(r->a, struct scaled_links, 2);
    NNC_NEED(l, r->sink);
    l[0] = (struct scaled_links){r->links, factor};
    l[1] = (struct scaled_links){r->half, factor};
    r->links = (nnc_links){scaled_p2p, scaled_allreduce, l};
    if (r->t->cluster) /* otherwise they are computed from r->links */
        r->half = (nnc_links){NULL, scaled_allreduce, l + 1};
    return NNC_OK;
}

nnc_status nnc_partition_sense(nnc_partition_table *t, nnc_arena *a, nnc_sink *sink)
{
    nnc_partition_options o = *t->o;
    o.svg = o.trace = NULL;
    for (int k = 0; k < NNC_BANDWIDTHS; k++) {
        nnc_partition_table with = *t;
        with.bandwidth = nnc_partition_bandwidth[k];
        with.o = &o;
        with.row = NULL;
        with.n_row = 0;
        NNC_TRY(nnc_partition_fill_table(&with, a, sink));
        for (int i = 0; i < t->n_row; i++) /* the same strategies in the same order */
            if (!with.row[i].why_not) {
                t->row[i].at_bandwidth_ns[k] = with.row[i].iteration_ns;
                t->row[i].at_bandwidth[k] = with.row[i].strategy;
            }
    }
    return NNC_OK;
}

/* strategy/data.c -- strategies with replicas: data parallelism, ZeRO, PipeDream's replicated stages. */
#include "strategy/row.h"
#include "strategy/strategy.h"

/* ---- data parallelism ---------------------------------------------------------------------------------------- */

/* A reduce-scatter or an allgather: of described hardware as its own collective, otherwise half of an allreduce. */
static int64_t half_of_flat_ns(const void *ctx, const int *device, int n, int64_t bytes)
{
    return nnc_ceildiv(nnc_links_allreduce(ctx, device, n, bytes), 2);
}

nnc_links row_half_links(rows *r)
{
    return r->t->cluster ? row_described_half(r) : (nnc_links){NULL, half_of_flat_ns, &r->links};
}

static int64_t half_ns(const nnc_links *half, const int *device, int n, int64_t bytes)
{
    return nnc_links_allreduce(half, device, n, bytes);
}

/* The backward pass of a block, of one of a device's micro-batches. */
static int64_t backward_ns(const rows *r, int b, int micro)
{
    const nnc_layer_costs *of = &r->m->of;
    return nnc_add_sat(
        nnc_add_sat(of->backward[b], of->weight[b]), row_adding_ns(r, b, b + 1, micro));
}

/* A pass over blocks, each of whose weights is gathered while the block before it runs; backwards: its gradients are scattered, too.
 * step: NULL, or gets the n_block + 2 parts of the pass: what is moved before it, with each of its blocks, after it. */
static int64_t gathered_ns(
    const rows *r, const int *device, int n, int micro, bool backward, row_gathered *step)
{
    const nnc_layer_costs *of = &r->m->of;
    const int last = r->m->n_block - 1;
    int64_t t = half_ns(&r->half, device, n, of->weights[backward ? last : 0]);
    if (step)
        *step++ = (row_gathered){.start = 0, .moves = t, .bytes = of->weights[backward ? last : 0]};
    for (int k = 0; k <= last; k++) {
        const int b = backward ? last - k : k, next = backward ? b - 1 : b + 1;
        const int64_t run = backward ? backward_ns(r, b, micro) : of->forward[b];
        int64_t moves = k < last ? half_ns(&r->half, device, n, of->weights[next]) : 0;
        if (backward && k > 0)
            moves = nnc_add_sat(moves, half_ns(&r->half, device, n, of->gradients[b + 1]));
        /* beside the collective the block runs at 1000 / slowdown of its speed */
        const int64_t both = nnc_min64(nnc_mul_sat(run, r->slowdown) / 1000, moves),
                      lost = (int64_t)((__int128)both * (r->slowdown - 1000) / r->slowdown);
        if (step)
            *step++ = (row_gathered){.start = t,
                .run = nnc_add_sat(run, lost),
                .moves = moves,
                .bytes = (k < last ? of->weights[next] : 0) +
                         (backward && k > 0 ? of->gradients[b + 1] : 0)};
        t = nnc_add_sat(t, nnc_max64(nnc_add_sat(run, lost), moves));
    }
    const int64_t end = backward ? half_ns(&r->half, device, n, of->gradients[0]) : 0;
    if (step)
        *step = (row_gathered){.start = t, .moves = end, .bytes = backward ? of->gradients[0] : 0};
    return nnc_add_sat(t, end);
}

/* The buckets of a backward pass, and how many of the passes reduce them. */
typedef struct reduction {
    nnc_buckets_time t;
    nnc_bucket *bucket;
    int passes;
    int64_t gather;
    row_gathered *forward, *backward; /* of stage 3 */
} reduction;

/* The plan of replicas with k micro-batches each. Collectives run beside the last backward pass on a stream of their own, where one run has
 * all micro-batches: runs that accumulate have sums of gradients, which are complete, and reduced, after all of the pass. On GPUs plans
 * have that stream; CPUs share their cores with it, and with ZeRO's stage 2 gradients that wait for it take the memory that the stage is
 * there to save, so that it is the user's choice (--streams=2). */
nnc_partition_way row_way_of_data(const rows *r, int k, int zero)
{
    enum { MOST_COPIES = 32 }; /* of the passes, of all devices: each is compiled */
    const int own = r->t->o->compile.streams;
    const int streams = r->t->target->kind == NNC_T_cuda && own < 2 && zero < 2 ? 2 : own;
    const bool one = r->m->step && streams > 1 && zero < 2 && r->n * k <= MOST_COPIES;
    const int micro = one ? k : 1;
    return (nnc_partition_way){.runs = k / micro,
        .strategy = NNC_STRATEGY_data,
        .replicas = r->n,
        .micro = micro,
        .zero = zero,
        .streams = r->m->step && streams > own ? streams : 0,
        .buckets = r->m->step && r->t->o->bucket_mb > 0};
}

bool row_is_beside(const rows *r, int k, int zero)
{
    const nnc_partition_way w = row_way_of_data(r, k, zero);
    const bool two = w.streams > 1 || r->t->o->compile.streams > 1;
    return two && (w.runs == 1 || zero == 2);
}

/* Otherwise the buckets follow the pass. */
static void in_turn(nnc_buckets_time *t, nnc_bucket *bucket, int64_t backward)
{
    int64_t now = backward;
    for (int i = 0; i < t->n_bucket; i++) {
        const int64_t ns = bucket[i].end - bucket[i].start;
        bucket[i].start = now;
        bucket[i].end = now = nnc_add_sat(now, ns);
    }
    t->compute = backward;
    t->end = nnc_add_sat(backward, t->collective);
    t->hidden = 0;
    t->exposed = t->collective;
}

/* Collectives of the plan: in buckets of --bucket-mb, which are copied together and apart again, or one for each weight that is updated
 * alone and one, at the end, for all others. Those that are too many devices for plans have buckets of the default size. */
typedef struct exchange {
    bool buckets;
    int64_t bytes, copy_ns, small;
    const int64_t *gradient; /* by block */
} exchange;

/* Bytes of gradients that share a bucket with others, and so are copied. */
static int64_t copied_bytes(const rows *r, int64_t most)
{
    const nnc_layer_costs *of = &r->m->of;
    int64_t all = 0, open = 0, first = 0;
    for (int b = r->m->n_block; b-- > 0;) {
        const int64_t large = of->gradients[b] - of->small[b];
        if (open > 0)
            all = nnc_add_sat(all, nnc_add_sat(first, large));
        first = open > 0 ? 0 : large;
        open = nnc_add_sat(open, large);
        open = open >= most ? 0 : open;
    }
    return nnc_add_sat(all, row_range(of->small, 0, r->m->n_block));
}

static nnc_status find_exchange(const rows *r, int n, exchange *x)
{
    const nnc_layer_costs *of = &r->m->of;
    const double mb = r->t->o->bucket_mb;
    int64_t *large = ARENA_NEW(r->a, int64_t, r->m->n_block + 1);
    NNC_NEED(large, r->sink);
    *x = (exchange){.buckets = mb > 0 || n > NNC_MAX_DEVICES,
        .bytes = (int64_t)(nnc_option_or(mb, mb < 0 ? 0 : NNC_BUCKET_MB) * 1e6),
        .gradient = of->gradients};
    if (x->buckets) {
        x->copy_ns =
            mb > 0 ? nnc_target_time_ns(r->t->target, 0, nnc_mul_sat(2, copied_bytes(r, x->bytes)))
                   : 0;
        return NNC_OK;
    }
    for (int b = 0; b < r->m->n_block; b++)
        large[b] = of->gradients[b] - of->small[b];
    x->bytes = 0;
    x->gradient = large;
    x->small = row_range(of->small, 0, r->m->n_block);
    return NNC_OK;
}

/* One more collective behind all others. */
static void add_last(nnc_buckets_time *t, nnc_bucket *bucket, const nnc_links *links,
    const int *device, int n, int64_t bytes)
{
    const int64_t ns = bytes ? nnc_links_allreduce(links, device, n, bytes) : 0;
    if (!ns)
        return;
    bucket[t->n_bucket++] = (nnc_bucket){t->end, nnc_add_sat(t->end, ns), bytes};
    t->end = nnc_add_sat(t->end, ns);
    t->exposed = nnc_add_sat(t->exposed, ns);
    t->collective = nnc_add_sat(t->collective, ns);
}

/* What was updated is gathered: the trained weights, large ones each by itself. */
static int64_t gather_ns(const rows *r, const int *device, int n)
{
    const nnc_layer_costs *of = &r->m->of;
    const int blocks = r->m->n_block;
    int64_t ns = 0;
    if (!r->zero || n > NNC_MAX_DEVICES)
        return r->zero ? half_ns(&r->half, device, n, row_range(of->gradients, 0, blocks)) : 0;
    for (int b = 0; b <= blocks; b++) {
        const int64_t bytes =
            b < blocks ? of->gradients[b] - of->small[b] : row_range(of->small, 0, blocks);
        ns = nnc_add_sat(ns, bytes ? half_ns(&r->half, device, n, bytes) : 0);
    }
    return ns;
}

/* Time of a device with k micro-batches; *collective: of all collectives; *compute: without them. */
static nnc_status replica_ns(rows *r, const int *device, int n, int k, int64_t *total,
    int64_t *compute, int64_t *collective, reduction *how)
{
    const nnc_layer_costs *of = &r->m->of;
    const int blocks = r->m->n_block;
    exchange x;
    int64_t *back = ARENA_NEW(r->a, int64_t, blocks + 1);
    NNC_NEED(back, r->sink);
    for (int b = 0; b < blocks; b++)
        back[b] = backward_ns(r, b, k);
    const int64_t forward = row_range(of->forward, 0, blocks),
                  backward = row_range(back, 0, blocks);
    *compute = nnc_mul_sat(k, nnc_add_sat(forward, backward));
    *total = *compute;
    *collective = 0;
    if (!r->m->step)
        return NNC_OK;
    const int64_t weights = row_range(of->weights, 0, blocks),
                  gradients = row_range(of->gradients, 0, blocks);
    if (r->zero == 3) {
        *total = nnc_mul_sat(k, nnc_add_sat(gathered_ns(r, device, n, k, false, how->forward),
                                    gathered_ns(r, device, n, k, true, how->backward)));
        *collective = nnc_mul_sat(
            k, 2 * half_ns(&r->half, device, n, weights) + half_ns(&r->half, device, n, gradients));
        return NNC_OK;
    }
    NNC_TRY(find_exchange(r, n, &x));
    const nnc_buckets_problem p = {.n_layer = blocks,
        .backward = back,
        .gradient = x.gradient,
        .bucket_bytes = x.bytes,
        .links = r->zero ? &r->half : &r->links,
        .device = device,
        .n_device = n,
        .slowdown = r->slowdown,
        .bucket = how->bucket};
    nnc_buckets_time t = nnc_buckets_run(&p);
    if (!row_is_beside(r, k, r->zero))
        in_turn(&t, how->bucket, backward);
    add_last(&t, how->bucket, p.links, device, n, x.small);
    how->t = t;
    /* A device that keeps only its part of the gradients reduce-scatters those of each micro-batch; with all gradients it reduces the
     * sums, in the last backward pass. */
    const int passes = r->zero == 2 ? k : 1;
    const int64_t gather = gather_ns(r, device, n);
    how->passes = passes;
    how->gather = gather;
    *total = nnc_add_sat(*compute - nnc_mul_sat(passes, backward),
        nnc_add_sat(nnc_mul_sat(passes, nnc_add_sat(t.end, x.copy_ns)), gather));
    *compute = nnc_add_sat(*compute, nnc_mul_sat(passes, x.copy_ns));
    *collective = nnc_add_sat(nnc_mul_sat(passes, t.collective), gather);
    return NNC_OK;
}

static void replica_memory(rows *r, nnc_device_use *u, int n)
{
    const nnc_layer_costs *of = &r->m->of;
    int64_t largest = 0;
    row_add_blocks(r, u, 0, r->m->n_block, 1);
    for (int b = 0; b < r->m->n_block; b++)
        largest = nnc_max64(largest, of->weights[b]);
    const nnc_zero_bytes z =
        nnc_zero(r->zero, n, u->fill[0], u->fill[1], u->fill[2], largest, true);
    u->fill[0] = z.weights + z.gathered;
    u->fill[1] = z.gradients;
    u->fill[2] = z.optimizer;
}

/* nnc train and run give each device a batch of its own: equal numbers of them. ZeRO's stage 3 is not executed. */
static nnc_status execute_data(const rows *r, nnc_partition_row *row)
{
    bool can;
    NNC_TRY(row_can_divide(r, &can));
    if (can && r->micro % r->n == 0 && r->zero <= NNC_ZERO_MOST && r->n <= NNC_MAX_DEVICES)
        row_executes(r, row, row_way_of_data(r, r->micro / r->n, r->zero));
    return NNC_OK;
}

nnc_status row_data(rows *r, nnc_partition_row *row)
{
    const int n = r->n < r->micro ? r->n : r->micro;
    int *device = ARENA_NEW(r->a, int, r->n);
    int64_t total, compute, collective;
    reduction how = {.bucket = ARENA_NEW(r->a, nnc_bucket, r->m->n_block + 2),
        .forward = ARENA_NEW(r->a, row_gathered, r->m->n_block + 2),
        .backward = ARENA_NEW(r->a, row_gathered, r->m->n_block + 2)};
    NNC_NEED(device && how.bucket && how.forward && how.backward, r->sink);
    for (int d = 0; d < n; d++)
        device[d] = d;
    NNC_TRY(replica_ns(r, device, n, (r->micro + n - 1) / n, &total, &compute, &collective, &how));
    int64_t update = row_range(r->m->of.optimizer, 0, r->m->n_block);
    update = r->zero ? nnc_ceildiv(update, n) : update; /* each device updates its part */
    if (r->zero == 3 && r->m->step)
        NNC_TRY(row_gathered_timeline(r, row, how.forward, how.backward, n, update));
    else
        NNC_TRY(row_data_timeline(r, row, &how.t, how.bucket, n, how.passes, how.gather, update));
    for (int d = 0; d < n; d++) {
        nnc_device_use *u = &row->use[d];
        const int micro = r->micro / n + (d < r->micro % n);
        replica_memory(r, u, n);
        u->layers = row_layers(r, NULL, 0, r->m->n_block);
        NNC_NEED(u->layers, r->sink);
        u->busy_ns = update;
        for (int b = 0; b < r->m->n_block; b++)
            u->busy_ns = nnc_add_sat(u->busy_ns,
                nnc_mul_sat(micro, nnc_add_sat(r->m->of.forward[b], backward_ns(r, b, micro))));
    }
    row->iteration_ns = nnc_add_sat(total, update);
    row->exposed_ns = total - compute;
    row->hidden_ns = collective - row->exposed_ns;
    NNC_TRY(execute_data(r, row));
    if (n < r->n)
        row->note = "there are fewer micro-batches than devices";
    return row_finish(r, row);
}

/* ---- PipeDream ------------------------------------------------------------------------------------------------- */

static nnc_status solve(rows *r, double factor, nnc_hybrid_plan *out)
{
    const double bandwidth = factor * (r->t->bandwidth > 0 ? r->t->bandwidth : 1);
    const nnc_partition_model *m = r->m;
    const nnc_cluster *c = r->t->cluster;
    const int n = m->n_block, servers = c && r->n > c->per_node ? r->n / c->per_node : 1;
    const nnc_flat_links flat = {
        .bytes_per_s = nnc_max64(1, (int64_t)((double)r->flat->bytes_per_s * bandwidth)),
        .latency_ns = r->flat->latency_ns};
    int64_t *time = ARENA_NEW(r->a, int64_t, n + 1), *both = ARENA_NEW(r->a, int64_t, n + 1),
            *fixed = ARENA_NEW(r->a, int64_t, n + 1), *saved = ARENA_NEW(r->a, int64_t, n + 1),
            working = 0;
    NNC_NEED(time && both && fixed && saved, r->sink);
    for (int b = 0; b <= n; b++) {
        both[b] = 2 * m->boundary[b];
        if (b == n)
            break;
        time[b] = row_pass_ns(r, b, b + 1);
        fixed[b] = m->of.weights[b] + m->of.gradients[b] + m->of.states[b];
        saved[b] = m->of.saved[b];
        working = nnc_max64(working, m->of.working[b]);
    }
    nnc_hybrid_problem p = {.n_layer = n,
        .time = time,
        .weight = m->of.gradients,
        .boundary = both,
        .n_level = servers > 1 ? 2 : 1,
        .count = {r->n / servers, servers},
        .links = {nnc_links_flat(&flat)},
        .fixed = fixed,
        .saved = saved};
    if (c)
        NNC_TRY(row_level_links(r, c, 1, p.count[0], bandwidth, &p.links[0]));
    if (c && servers > 1)
        NNC_TRY(row_level_links(r, c, c->per_node, servers, bandwidth, &p.links[1]));
    /* On one level the fastest plan that fits; of several, and where none does, the fastest. The planner keeps versions of gradients and
     * states, too, which the row does not count. */
    p.capacity = servers > 1 ? 0 : nnc_max64(r->capacity - working, 1);
    NNC_TRY(nnc_hybrid_solve(&p, r->a, out, r->sink));
    p.capacity = 0;
    return out->ok ? NNC_OK : nnc_hybrid_solve(&p, r->a, out, r->sink);
}

/* "3-1": replicas of the stages. */
static const char *shape(const rows *r, const nnc_hybrid_plan *p)
{
    const char *text = "";
    for (int s = 0; s < p->n_stage && text; s++)
        text = nnc_arena_printf(r->a, "%s%s%d", text, s ? "-" : "", p->stage[s].replicas);
    return text;
}

/* Transfers of all micro-batches into a stage and out of it backwards, and the allreduces of its replicas, devices at, at + 1, ... */
static int64_t stage_moves_ns(const rows *r, const nnc_hybrid_stage *g, const int *device, int at)
{
    const int64_t weights = row_range(r->m->of.gradients, g->first, g->end);
    int64_t ns = nnc_links_allreduce(&r->links, device + at, g->replicas, weights);
    ns = nnc_mul_sat(r->micro, ns) / g->replicas; /* one of as many micro-batches */
    if (g->first)
        ns = nnc_add_sat(ns, nnc_mul_sat(r->micro, nnc_links_p2p(&r->links, at - 1, at,
                                                       2 * r->m->boundary[g->first])));
    return ns;
}

nnc_status row_pipedream(rows *r, nnc_partition_row *row)
{
    static const double factor[] = {0.25, 1, 4};
    nnc_hybrid_plan p[NNC_COUNT(factor)];
    const char *text[NNC_COUNT(factor)];
    const nnc_cluster *c = r->t->cluster;
    if (c && r->n > c->per_node && r->n % c->per_node) {
        row->why_not = "needs whole nodes, where there are several";
        return NNC_OK;
    }
    for (size_t i = 0; i < NNC_COUNT(factor); i++) {
        NNC_TRY(solve(r, factor[i], &p[i]));
        NNC_NEED(text[i] = shape(r, &p[i]), r->sink);
    }
    row->note = nnc_arena_printf(r->a,
        "stages of %s devices, steady state, with stale weights; links of a quarter of the "
        "bandwidth: %s, of four times: %s",
        text[1], text[0], text[2]);
    NNC_NEED(row->note, r->sink);
    int at = 0, left = 0;
    int64_t moves = 0;
    int *device = ARENA_NEW(r->a, int, r->n);
    NNC_NEED(device, r->sink);
    for (int d = 0; d < r->n; d++)
        device[d] = d;
    for (int s = 0; s < p[1].n_stage; s++)
        left += p[1].stage[s].replicas;
    for (int s = 0; s < p[1].n_stage; s++) {
        const nnc_hybrid_stage *g = &p[1].stage[s];
        const int64_t versions = nnc_ceildiv(left, g->replicas);
        for (int k = 0; k < g->replicas; k++, at++) {
            nnc_device_use *u = &row->use[at];
            row_add_blocks(r, u, g->first, g->end, versions);
            u->fill[0] = nnc_mul_sat(u->fill[0], versions);
            u->layers = row_layers(r, NULL, g->first, g->end);
            NNC_NEED(u->layers, r->sink);
            u->busy_ns = nnc_mul_sat(r->micro, row_pass_ns(r, g->first, g->end)) / g->replicas;
        }
        moves = nnc_add_sat(moves, stage_moves_ns(r, g, device, at - g->replicas));
        left -= g->replicas;
    }
    row->iteration_ns = nnc_mul_sat(r->micro, p[1].ns);
    int64_t busiest = 0;
    for (int d = 0; d < at; d++)
        busiest = nnc_max64(busiest, row->use[d].busy_ns);
    row->exposed_ns = row->iteration_ns - busiest;
    row->hidden_ns = moves - row->exposed_ns;
    return row_finish(r, row);
}

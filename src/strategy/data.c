/* strategy/data.c -- strategies with replicas: data parallelism, ZeRO. */
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"

/* ---- data parallelism ---------------------------------------------------------------------------------------- */

/* The backward pass of a block, of one of a device's micro-batches. */
static int64_t backward_ns(const rows *r, int b, int micro)
{
    const nnc_layer_costs *of = &r->m->cost;
    return nnc_add_sat(
        nnc_add_sat(of->backward[b], of->weight[b]), row_adding_ns(r, b, b + 1, micro));
}

/* The plan of replicas with k micro-batches each. Collectives run beside the last backward pass on a stream of their own, where one run has
 * all micro-batches. Runs that accumulate have sums of gradients, which are complete, and reduced, after all of the pass. On GPUs plans
 * have that stream. CPUs share their cores with it. With ZeRO's stage 2, gradients that wait for it also take the memory that the stage
 * saves. There it is the user's choice (--streams=2). */
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

/* Collectives of the plan: in buckets of --bucket-mb, which are copied together and apart again. Otherwise one for each weight that is
 * updated alone and one, at the end, for all others. Those that are too many devices for plans have buckets of the default size. */
typedef struct exchange {
    bool buckets;
    int64_t bytes, copy_ns, small;
    const int64_t *gradient; /* by block */
} exchange;

/* Bytes of gradients that share a bucket with others, and so are copied. */
static int64_t copied_bytes(const rows *r, int64_t most)
{
    const nnc_layer_costs *of = &r->m->cost;
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
    const nnc_layer_costs *of = &r->m->cost;
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

/* ---- tasks of a replica: all of them do the same ---- */

typedef struct replica {
    rows *r;
    row_tasks t;
    const int *device; /* of all replicas */
    int n, micro; /* replicas; micro-batches of each */
    int last; /* task; -1: none */
} replica;

static void compute(replica *p, int kind, int micro, int64_t ns)
{
    p->last = row_task_compute(&p->t, 0, kind, micro, ns);
}

/* A collective after a task; half: a reduce-scatter or an allgather instead of an allreduce. */
static int collective(replica *p, const char *name, int micro, bool half, int64_t bytes, int after)
{
    const nnc_links *l = half ? &p->r->half : &p->r->links;
    const int64_t ns = bytes > 0 ? nnc_links_allreduce(l, p->device, p->n, bytes) : 0;
    if (ns <= 0)
        return after;
    return row_task_move(&p->t,
        (row_task){.collective = true, .micro = micro, .ns = ns, .bytes = bytes, .name = name},
        after);
}

static void add_passes(replica *p, int micro)
{
    const nnc_layer_costs *of = &p->r->m->cost;
    int64_t back = 0;
    compute(p, WORK_forward, micro, row_range(of->forward, 0, p->r->m->n_block));
    for (int b = 0; b < p->r->m->n_block; b++)
        back = nnc_add_sat(back, backward_ns(p->r, b, p->micro));
    if (p->r->m->step)
        compute(p, WORK_backward, micro, back);
}

/* Passes whose gradients are reduced: beside the backward pass, each bucket when it is full, or after it. */
static void add_reducing(replica *p, int micro, const exchange *x)
{
    static const char name[] = "sum a bucket of gradients";
    const nnc_layer_costs *of = &p->r->m->cost;
    const bool beside = row_is_beside(p->r, p->micro, p->r->zero), half = p->r->zero > 0;
    const int blocks = p->r->m->n_block, first = p->t.n + 1;
    int64_t open = 0;
    int sum = -1;
    compute(p, WORK_forward, micro, row_range(of->forward, 0, blocks));
    for (int b = blocks - 1; b >= 0; b--)
        compute(p, WORK_backward, micro, backward_ns(p->r, b, p->micro));
    for (int b = blocks - 1; b >= 0; b--) {
        open = nnc_add_sat(open, x->gradient[b]);
        if (open < x->bytes && b)
            continue;
        sum = collective(p, name, -1, half, open, beside ? first + blocks - 1 - b : p->last);
        open = 0;
    }
    if (x->small)
        sum = collective(p, name, -1, half, x->small, p->last);
    if (x->copy_ns) {
        compute(p, WORK_other, -1, x->copy_ns);
        row_task_wait(&p->t, p->last, sum);
    }
}

int row_add_gathered(const row_gathered *x, bool back, int last)
{
    int ran[2] = {last, last}, scattered = -1; /* the two blocks before */
    for (int k = 0; k < x->blocks; k++) {
        const int b = back ? x->blocks - 1 - k : k;
        const int there = x->move(x->ctx, false, x->weights[b], ran[0]);
        if (back && k > 1)
            scattered = x->move(x->ctx, true, x->gradients[b + 2], ran[0]);
        const int task = row_task_compute(
            x->t, 0, back ? WORK_backward : WORK_forward, 0, back ? x->backward[b] : x->forward[b]);
        row_task_wait(x->t, task, there);
        row_task_wait(x->t, task, scattered);
        ran[0] = ran[1];
        ran[1] = last = task;
    }
    for (int b = back ? (int)nnc_min64(x->blocks - 1, 1) : -1; b >= 0; b--)
        last = x->move(x->ctx, true, x->gradients[b], ran[1 - b]);
    return last;
}

static int move_gathered(void *ctx, bool scatters, int64_t bytes, int after)
{
    return collective(
        ctx, scatters ? "scatter gradients" : "gather weights", 0, true, bytes, after);
}

static nnc_status add_gathered(replica *p)
{
    const nnc_partition_model *m = p->r->m;
    int64_t *back = ARENA_NEW(p->r->a, int64_t, m->n_block + 1);
    NNC_NEED(back, p->r->sink);
    for (int b = 0; b < m->n_block; b++)
        back[b] = backward_ns(p->r, b, p->micro);
    const row_gathered x = {&p->t, m->n_block, m->cost.forward, back, m->cost.weights,
        m->cost.gradients, move_gathered, p};
    p->last = row_add_gathered(&x, true, row_add_gathered(&x, false, p->last));
    row_tasks_meet(&p->t);
    return NNC_OK;
}

/* Gathers what was updated: the trained weights, large ones each by itself. */
static void add_gather(replica *p)
{
    static const char name[] = "gather what was updated";
    const nnc_layer_costs *of = &p->r->m->cost;
    const int blocks = p->r->m->n_block;
    const bool whole = p->n > NNC_MAX_DEVICES;
    for (int b = 0; b < blocks && !whole; b++)
        p->last = collective(p, name, -1, true, of->gradients[b] - of->small[b], p->last);
    p->last = collective(
        p, name, -1, true, row_range(whole ? of->gradients : of->small, 0, blocks), p->last);
}

/* A device that keeps only its part of the gradients reduce-scatters those of each micro-batch. One with all gradients reduces the sums,
 * in the last backward pass. */
static nnc_status add_replica(replica *p)
{
    const rows *r = p->r;
    exchange x;
    p->t.lane = "collectives";
    p->t.repeat = r->zero >= 2 && r->m->step ? p->micro : 1;
    p->t.each = p->t.repeat > 1;
    if (r->zero == 3 && r->m->step)
        return add_gathered(p);
    for (int k = p->t.repeat; k < p->micro + !r->m->step; k++)
        add_passes(p, k - p->t.repeat);
    if (!r->m->step)
        return NNC_OK;
    NNC_TRY(find_exchange(r, p->n, &x));
    add_reducing(p, p->micro - p->t.repeat, &x);
    row_tasks_meet(&p->t);
    if (r->zero)
        add_gather(p);
    return NNC_OK;
}

static void replica_memory(rows *r, nnc_device_use *u, int n)
{
    const nnc_layer_costs *of = &r->m->cost;
    int64_t largest = 0;
    row_add_blocks(r, u, 0, r->m->n_block, 1);
    for (int b = 0; b < r->m->n_block; b++)
        largest = nnc_max64(largest, of->weights[b]);
    static const int shards[] = {
        [FILLED_weights] = 3, [FILLED_gradients] = 2, [FILLED_optimizer] = 1}; /* from this stage */
    for (size_t k = 0; k < NNC_COUNT(shards); k++)
        u->fill[k] = r->zero >= shards[k] ? nnc_ceildiv(u->fill[k], n) : u->fill[k];
    if (r->zero == 3) /* a block's weights, and those of the next one */
        u->fill[FILLED_weights] = nnc_add_sat(u->fill[FILLED_weights], nnc_mul_sat(2, largest));
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
    const int n = r->n < r->micro ? r->n : r->micro, most = (r->micro + n - 1) / n;
    int *device = ARENA_NEW(r->a, int, r->n);
    replica p = {.r = r, .device = device, .n = n, .micro = most, .last = -1};
    NNC_NEED(device, r->sink);
    NNC_TRY(row_tasks_make(r, 1, &p.t));
    for (int d = 0; d < n; d++) {
        device[d] = d;
        row_tasks_copy(&p.t, d, (row_copy){0, d * most, r->micro / n + (d < r->micro % n)});
    }
    NNC_TRY(add_replica(&p));
    const int64_t update = row_range(r->m->cost.optimizer, 0, r->m->n_block);
    const int task = row_task_compute(&p.t, 0, WORK_update, -1,
        r->zero ? nnc_ceildiv(update, n) : update); /* each device updates its part */
    row_task_wait(&p.t, task, p.last);
    for (int d = 0; d < n; d++) {
        nnc_device_use *u = &row->use[d];
        replica_memory(r, u, n);
        u->layers = row_layers(r, NULL, 0, r->m->n_block);
        NNC_NEED(u->layers, r->sink);
    }
    NNC_TRY(row_tasks_run(&p.t, row));
    NNC_TRY(execute_data(r, row));
    for (int d = 0; d < n; d++) /* nnc run's inputs and outputs are whole on the first device */
        row_add_batches(
            r, &row->use[d], 0, r->m->n_block, row->way.micro * (r->m->step || d ? 1 : n));
    if (n < r->n)
        row->note = "there are fewer micro-batches than devices";
    return row_finish(r, row);
}

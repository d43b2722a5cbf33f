/* tests/partition/search.c -- the search over combinations equals the evaluation of all of them; combinations cost what formulas say. */
#include "draw.h"
#include <stdlib.h>

enum { LAYERS = 9, ENTRIES = 6 };

/* ---- drawn problems -------------------------------------------------------------------------------------- */

typedef struct drawn {
    nnc_search_problem p;
    nnc_search_costs costs[ENTRIES];
    int64_t v[ENTRIES][13][LAYERS + 1];
    bool segment[LAYERS];
    int64_t rate, latency;
    int node;
} drawn;

/* A device in a node of `node` devices; links between nodes are four times slower and shared by those beside. */
static int64_t send_ns(const void *ctx, int src, int dst, int beside, int64_t bytes)
{
    const drawn *x = ctx;
    const bool far = src / x->node != dst / x->node;
    return bytes ? x->latency + bytes * (far ? 4 * beside : 1) / x->rate : 0;
}

static int64_t collective_ns(const void *ctx, nnc_search_collective kind, int first, int stride,
    int n, int beside, int64_t bytes)
{
    const drawn *x = ctx;
    const bool far = first / x->node != (first + stride * (n - 1)) / x->node;
    const int64_t all = x->latency * n + bytes * (far ? 4 * beside : 1) / x->rate;
    return kind == SEARCH_allreduce ? 2 * all : all;
}

static void draw_costs(drawn *x, draw *d, int i, int tensor, int size)
{
    static const int64_t most[13] = {
        4000, 6000, 3000, 1500, 1500, 500, 1000, 9000, 2000, 9000, 900, 900, 600};
    for (int k = 0; k < 13; k++)
        for (int l = 0; l <= x->p.n_layer; l++) {
            /* the same layers, divided by the tensor degree, times the size; collectives where there is a group */
            draw one = draw_from("search layer", k * 1000 + l);
            one.key ^= d->key;
            const int64_t v = draw_below(&one, most[k]);
            x->v[i][k][l] = k == 3 || k == 4               ? (tensor > 1) * v * size
                            : (k >= 5 && k < 9) || k == 12 ? v / tensor
                                                           : v * size / tensor + (k < 3);
        }
    int64_t(*v)[LAYERS + 1] = x->v[i];
    x->costs[i] = (nnc_search_costs){tensor, size, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7],
        v[8], v[9], v[10], v[11], NULL, v[12]};
}

static bool takes(const void *ctx, const nnc_combination *c)
{
    (void)ctx;
    return c->schedule == PIPE_1f1b || c->schedule == PIPE_interleaved;
}

static void make(drawn *x, int round)
{
    draw d = draw_from("search", round);
    memset(x, 0, sizeof *x);
    d.key ^= (uint64_t)round * 0x9e3779b97f4a7c15;
    x->rate = 1 + draw_below(&d, 8);
    x->latency = draw_below(&d, 30);
    x->node = 2 + (int)draw_below(&d, 3);
    x->p = (nnc_search_problem){.n_layer = 2 + (int)draw_below(&d, LAYERS - 2),
        .devices = 1 + (int)draw_below(&d, 8),
        .samples = 4 * (1 + draw_below(&d, 4)) - draw_below(&d, 4),
        .costs = x->costs,
        .links = {send_ns, collective_ns, x},
        .capacity = draw_below(&d, 3) ? 15000 + draw_below(&d, 60000) : INT64_C(1) << 40,
        .segment = draw_below(&d, 2) ? x->segment : NULL,
        .bucket_bytes = draw_below(&d, 5000),
        .slowdown = 1000 + (int)draw_below(&d, 2) * 126,
        .serial = draw_below(&d, 2),
        .takes = draw_below(&d, 2) ? NULL : takes,
        .even = !draw_below(&d, 6)};
    for (int l = 0; l < x->p.n_layer; l++)
        x->segment[l] = !l || !draw_below(&d, 3);
    for (int t = 1; t <= 4; t *= 2)
        for (int size = 1; size <= 2; size++)
            draw_costs(x, &d, x->p.n_costs++, t, size);
}

/* ---- every combination ------------------------------------------------------------------------------------ */

typedef struct exhaustive {
    int n, fit;
    nnc_search_result best[400]; /* of each degrees, any order */
} exhaustive;

static bool same_degrees(const nnc_combination *a, const nnc_combination *b)
{
    return a->data == b->data && a->tensor == b->tensor && a->pipeline == b->pipeline;
}

static void consider(exhaustive *x, const drawn *d, nnc_combination c)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_search_result r;
    CHECK_OK(nnc_search_evaluate(&d->p, &c, &a, &r, test_sink));
    x->n++;
    if (r.pruned)
        return;
    int k = 0;
    while (k < x->fit && !same_degrees(&x->best[k].c, &c))
        k++;
    if (k == x->fit && x->fit < (int)NNC_COUNT(x->best))
        x->best[x->fit++] = r;
    else if (r.ns < x->best[k].ns)
        x->best[k] = r;
}

/* All placements, schedules, ZeRO stages, with and without recomputation. */
static void consider_kinds(exhaustive *x, const drawn *d, nnc_combination c)
{
    for (int variant = 0; variant < 2 * 2 * 4 * PIPE__COUNT * 4; variant++) {
        int v = variant;
        c.recompute = v % 2;
        c.data_first = v / 2 % 2;
        c.zero = (uint8_t)(v / 4 % 4);
        c.schedule = (uint8_t)(v / 16 % PIPE__COUNT);
        c.chunks = 1 + v / 16 / PIPE__COUNT;
        if ((c.recompute && !d->p.segment) || (c.data_first && (c.data == 1 || c.pipeline == 1)) ||
            (c.zero && c.data == 1) || (c.zero > 1 && c.pipeline > 1) ||
            c.schedule == PIPE_forward || (c.chunks == 3 && !d->p.even) ||
            (d->p.takes && !takes(NULL, &c)) ||
            (c.pipeline == 1 && (c.schedule != PIPE_1f1b || c.chunks > 1)))
            continue;
        consider(x, d, c);
    }
}

static void consider_all(exhaustive *x, const drawn *d)
{
    for (int i = 0; i < d->p.n_costs; i++)
        for (int p = 1; p <= d->p.devices; p++)
            for (int n = 1; n * p * d->costs[i].tensor <= d->p.devices; n++)
                if (d->p.samples % (n * d->costs[i].size) == 0)
                    consider_kinds(x, d,
                        (nnc_combination){.data = n,
                            .tensor = d->costs[i].tensor,
                            .pipeline = p,
                            .size = d->costs[i].size,
                            .micro = (int)(d->p.samples / (n * d->costs[i].size))});
}

static int by_time(const void *a, const void *b)
{
    const nnc_search_result *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? -1 : 1) : 0;
}

TEST(search_equals_all_combinations)
{
    static exhaustive all;
    int64_t evaluated = 0, every = 0;
    int none = 0, pipelines = 0, tensors = 0, replicas = 0, recomputed = 0, interleaved = 0;
    for (int round = 0; round < 250; round++) {
        NNC_LOCAL(nnc_arena) a = {0};
        static drawn d;
        nnc_search_found found;
        enum { KEEP = 4 };
        make(&d, round);
        memset(&all, 0, sizeof all);
        consider_all(&all, &d);
        qsort(all.best, (size_t)all.fit, sizeof *all.best, by_time);
        CHECK_OK(nnc_search(&d.p, KEEP, &a, &found, test_sink));
        CHECK_INT(found.n, all.fit < KEEP ? all.fit : KEEP);
        for (int k = 0; k < found.n; k++)
            CHECK_INT(found.best[k].ns, all.best[k].ns);
        if (test_failures) {
            test_fail(__FILE__, __LINE__, "round %d", round);
            return;
        }
        evaluated += found.evaluated;
        every += all.n;
        none += !all.fit;
        for (int k = 0; k < found.n; k++) {
            const nnc_combination *c = &found.best[k].c;
            pipelines += c->pipeline > 1;
            tensors += c->tensor > 1;
            replicas += c->data > 1;
            recomputed += c->recompute;
            interleaved += c->chunks > 1;
        }
    }
    printf("    %lld combinations, %lld evaluated; those found: pipeline %d, tensor %d, data %d, "
           "recompute %d, chunks %d; none fits: %d of 250\n",
        (long long)every, (long long)evaluated, pipelines, tensors, replicas, recomputed,
        interleaved, none);
    CHECK(evaluated < every / 2);
    CHECK(none > 3 && pipelines > 20 && tensors > 20 && replicas > 20 && recomputed > 3 &&
          interleaved > 3);
}

/* ---- formulas ---------------------------------------------------------------------------------------------- */

/* Equal layers whose numbers are easy to multiply. */
static void uniform(drawn *x, int layers, int devices, int samples)
{
    static const int64_t one[13] = {1000, 1500, 500, 0, 0, 40, 300, 300, 600, 2000, 50, 10, 0};
    memset(x, 0, sizeof *x);
    x->rate = 1;
    x->latency = 10;
    x->node = 1000;
    x->p = (nnc_search_problem){.n_layer = layers,
        .devices = devices,
        .samples = samples,
        .n_costs = 1,
        .costs = x->costs,
        .links = {send_ns, collective_ns, x},
        .capacity = INT64_C(1) << 40,
        .slowdown = 1000,
        .serial = true};
    for (int k = 0; k < 13; k++)
        for (int l = 0; l <= layers; l++)
            x->v[0][k][l] = one[k];
    int64_t(*v)[LAYERS + 1] = x->v[0];
    x->costs[0] = (nnc_search_costs){1, 1, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8],
        v[9], v[10], v[11], NULL, v[12]};
}

static nnc_search_result cost_of(const drawn *d, nnc_combination c, nnc_arena *a)
{
    nnc_search_result r;
    CHECK_OK(nnc_search_evaluate(&d->p, &c, a, &r, test_sink));
    CHECK_INT(r.pruned, PRUNE_none);
    CHECK_INT(r.ns, r.compute + r.tensor + r.bubble + r.send + r.data + r.optimizer);
    return r;
}

TEST(combinations_cost_what_formulas_say)
{
    static drawn d;
    NNC_LOCAL(nnc_arena) a = {0};
    uniform(&d, 8, 8, 16);
    /* one device: 16 micro-batches of 8 layers of 3,000 ns, updates of 40 */
    nnc_search_result r = cost_of(&d, (nnc_combination){1, 1, 1, 1, 1, 16, PIPE_1f1b, 0, 0, 0}, &a);
    CHECK_INT(r.ns, 16 * 8 * 3000 + 8 * 40);
    CHECK_INT(r.bytes, 8 * (300 + 300 + 600) + 8 * 2000 + 50 + 10);
    /* sums of gradients take 80 a layer and micro-batch where there are several */
    for (int l = 0; l < 8; l++)
        d.v[0][12][l] = 80;
    r = cost_of(&d, (nnc_combination){1, 1, 1, 1, 1, 16, PIPE_1f1b, 0, 0, 0}, &a);
    CHECK_INT(r.ns, 16 * 8 * (3000 + 80) + 8 * 40);
    memset(d.v[0][12], 0, sizeof d.v[0][12]);
    /* four replicas: allreduce of 8 x 300 bytes: 2 (4 x 10 + 2400) */
    r = cost_of(&d, (nnc_combination){4, 1, 1, 1, 1, 4, PIPE_1f1b, 0, 0, 0}, &a);
    CHECK_INT(r.ns, 4 * 8 * 3000 + 2 * (40 + 2400) + 8 * 40);
    CHECK_INT(r.data, 2 * (40 + 2400));
    /* ZeRO-1: a reduce-scatter and an allgather; a quarter of the update and of the states */
    r = cost_of(&d, (nnc_combination){4, 1, 1, 1, 1, 4, PIPE_1f1b, 1, 0, 0}, &a);
    CHECK_INT(r.ns, 4 * 8 * 3000 + 2 * (40 + 2400) + 8 * 40 / 4);
    CHECK_INT(r.stage[0].fill[FILLED_optimizer], 8 * 600 / 4);
    /* four stages: (m + p - 1) x 2 layers, and six sends of 10 + 10 on the way of the first and the last micro-batch */
    r = cost_of(&d, (nnc_combination){1, 1, 4, 1, 1, 16, PIPE_1f1b, 0, 0, 0}, &a);
    CHECK_INT(r.compute, 16 * 2 * 3000);
    CHECK_INT(r.bubble, 3 * 2 * 3000);
    CHECK(r.send >= 6 * 20 && r.send < 20 * 6 * 16);
    CHECK_INT(r.stage[0].fill[FILLED_saved], 4 * (2 * 2000 + 10)); /* p micro-batches in flight */
    CHECK_INT(r.stage[3].fill[FILLED_saved], 2 * 2000 + 10);
    /* two chunks: half of the bubble */
    r = cost_of(&d, (nnc_combination){1, 1, 4, 2, 1, 16, PIPE_interleaved, 0, 0, 0}, &a);
    CHECK_INT(r.bubble, 3 * 1 * 3000);
}

/* Recomputation takes another forward pass, and keeps the inputs of segments only. */
TEST(recomputation_costs_a_forward_pass)
{
    static drawn d;
    NNC_LOCAL(nnc_arena) a = {0};
    uniform(&d, 8, 8, 16);
    d.p.segment = d.segment;
    for (int l = 0; l < 8; l += 2)
        d.segment[l] = true;
    const nnc_search_result r =
        cost_of(&d, (nnc_combination){1, 1, 1, 1, 1, 16, PIPE_1f1b, 0, true, 0}, &a);
    CHECK_INT(r.ns, 16 * 8 * 4000 + 8 * 40);
    CHECK_INT(r.stage[0].fill[FILLED_saved], 4 * 10);
    CHECK_INT(r.stage[0].fill[FILLED_working], 50 + 2 * 2000);
}

/* Faster links never cost time, and more memory neither. */
TEST(search_is_monotone)
{
    for (int round = 0; round < 60; round++) {
        static drawn d;
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_search_found x, y;
        make(&d, round);
        d.p.slowdown = 1000;
        CHECK_OK(nnc_search(&d.p, 1, &a, &x, test_sink));
        d.rate *= 4;
        d.p.capacity *= 2;
        CHECK_OK(nnc_search(&d.p, 1, &a, &y, test_sink));
        CHECK(!x.n || (y.n && y.best[0].ns <= x.best[0].ns));
    }
}

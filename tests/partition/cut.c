/* tests/partition/cut.c -- cuts against brute force: every cut of drawn problems is looked at. */
#include "draw.h"

enum { LAYERS = 12, STAGES = 6 };

typedef struct instance {
    nnc_cut_problem p;
    int64_t time[LAYERS], fixed[LAYERS], saved[LAYERS], boundary[LAYERS + 1], kept[LAYERS + 1];
    int64_t capacity[STAGES];
    int in_flight[STAGES], device[STAGES];
    nnc_flat_links flat;
    nnc_links links;
} instance;

/* Links whose speed depends on the devices: a stage's device matters. */
static int64_t uneven_p2p(const void *ctx, int src, int dst, int64_t bytes)
{
    (void)ctx;
    return 3 + bytes * (1 + (src * 7 + dst * 3) % 4) / 2;
}

static void make(instance *x, int round)
{
    draw d = draw_from("cut", round);
    memset(x, 0, sizeof *x);
    nnc_cut_problem *p = &x->p;
    p->n_layer = 1 + (int)draw_below(&d, LAYERS);
    p->n_stage = 1 + (int)draw_below(&d, STAGES);
    const int64_t scale = draw_below(&d, 3) ? 1000 : 8; /* small numbers: ties */
    for (int i = 0; i <= p->n_layer; i++) {
        if (i < p->n_layer) {
            x->time[i] = draw_below(&d, scale);
            x->fixed[i] = draw_below(&d, 100);
            x->saved[i] = draw_below(&d, 100);
        }
        x->boundary[i] = draw_below(&d, scale);
        x->kept[i] = draw_below(&d, 50);
    }
    for (int s = 0; s < p->n_stage; s++) {
        x->capacity[s] = 200 + draw_below(&d, 1500);
        x->in_flight[s] = p->n_stage - s;
        x->device[s] = (int)draw_below(&d, 16);
    }
    p->time = x->time;
    if (draw_below(&d, 2)) {
        x->links = (nnc_links){uneven_p2p, NULL, NULL};
        p->links = &x->links;
        p->boundary = x->boundary;
        p->device = draw_below(&d, 2) ? x->device : NULL;
    }
    if (draw_below(&d, 2)) {
        p->capacity = x->capacity;
        p->fixed = x->fixed;
        p->saved = x->saved;
        p->kept = x->kept;
        p->in_flight = x->in_flight;
    }
}

typedef struct brute {
    bool any;
    int64_t max, latency, memory, squares;
} brute;

/* Times without prefix sums, from the definition in partition.h. */
static int64_t stage_time(const nnc_cut_problem *p, int s, int i, int j)
{
    int64_t t = 0, in = 0, out = 0;
    for (int k = i; k < j; k++)
        t += p->time[k];
    for (int side = 0; side < 2 && p->boundary; side++) {
        const int to = s + side, at = side ? j : i;
        if (to < 1 || to >= p->n_stage)
            continue;
        const int a = p->device ? p->device[to - 1] : to - 1, b = p->device ? p->device[to] : to;
        *(side ? &out : &in) =
            a == b || !p->boundary[at] ? 0 : uneven_p2p(NULL, a, b, p->boundary[at]);
    }
    return nnc_max64(t, nnc_max64(in, out));
}

static int64_t stage_memory(const nnc_cut_problem *p, int s, int i, int j)
{
    int64_t fixed = 0, saved = 0;
    if (!p->capacity)
        return 0;
    for (int k = i; k < j; k++) {
        fixed += p->fixed[k];
        saved += p->saved[k];
    }
    const int64_t n = p->in_flight[s];
    return fixed + n * (saved + p->kept[i]);
}

static void look(const nnc_cut_problem *p, const int *cut, int micro, brute *b)
{
    int64_t max = 0, sum = 0, memory = 0;
    for (int s = 0; s < p->n_stage; s++) {
        const int64_t t = stage_time(p, s, cut[s], cut[s + 1]),
                      m = stage_memory(p, s, cut[s], cut[s + 1]);
        CHECK_INT(t, nnc_cut_stage_ns(p, s, cut[s], cut[s + 1]));
        if (p->capacity) {
            CHECK_INT(m, nnc_cut_stage_bytes(p, s, cut[s], cut[s + 1]));
            if (m > p->capacity[s])
                return;
        }
        max = nnc_max64(max, t);
        memory = nnc_max64(memory, m);
        sum += t;
    }
    const int64_t latency = sum + (micro - 1) * max;
    if (!b->any || max < b->max)
        b->max = max;
    if (!b->any || latency < b->latency)
        b->latency = latency;
    if (!b->any || memory < b->memory)
        b->memory = memory;
    b->any = true;
}

static void try_all(const nnc_cut_problem *p, int *cut, int s, int micro, brute *b)
{
    if (s == p->n_stage) {
        if (cut[s - 1] < p->n_layer) {
            cut[s] = p->n_layer;
            look(p, cut, micro, b);
        }
        return;
    }
    for (cut[s] = cut[s - 1] + 1; cut[s] < p->n_layer; cut[s]++)
        try_all(p, cut, s + 1, micro, b);
}

static bool valid(const nnc_cut_problem *p, const int *cut)
{
    bool ok = cut[0] == 0 && cut[p->n_stage] == p->n_layer;
    for (int s = 0; s < p->n_stage; s++)
        ok = ok && cut[s] < cut[s + 1] &&
             (!p->capacity || stage_memory(p, s, cut[s], cut[s + 1]) <= p->capacity[s]);
    return ok;
}

static void check_one(int round, int *solved)
{
    instance x;
    make(&x, round);
    const int micro = 1 + round % 9;
    int cut[STAGES + 1] = {0};
    brute b = {0};
    nnc_cut_result r;
    try_all(&x.p, cut, 1, micro, &b);
    *solved += b.any;
    CHECK_OK(nnc_cut_min_max(&x.p, cut, &r, test_sink));
    CHECK_INT(r.ok, b.any);
    if (r.ok) {
        CHECK(valid(&x.p, cut));
        CHECK_INT(r.max, b.max);
    }
    CHECK_OK(nnc_cut_min_latency(&x.p, micro, cut, &r, test_sink));
    CHECK_INT(r.ok, b.any);
    if (r.ok) {
        CHECK(valid(&x.p, cut));
        CHECK_INT(r.sum + (micro - 1) * r.max, b.latency);
    }
    CHECK_OK(nnc_cut_min_memory(&x.p, cut, &r, test_sink));
    CHECK_INT(r.ok, b.any);
    if (r.ok && x.p.capacity) {
        int64_t memory = 0;
        for (int s = 0; s < x.p.n_stage; s++)
            memory = nnc_max64(memory, stage_memory(&x.p, s, cut[s], cut[s + 1]));
        CHECK_INT(memory, b.memory);
    }
    if (test_failures)
        test_fail(__FILE__, __LINE__, "round %d, seed %llu", round, (unsigned long long)test_seed);
}

TEST(cuts_equal_brute_force)
{
    enum { ROUNDS = 6000 };
    int solved = 0;
    for (int round = 0; round < ROUNDS && !test_failures; round++)
        check_one(round, &solved);
    CHECK_USUAL(solved > ROUNDS / 3); /* and some do not fit */
    CHECK_USUAL(solved < ROUNDS * 9 / 10);
}

static int64_t largest(const int64_t *w, const int *cut, int k)
{
    int64_t most = 0;
    for (int s = 0; s < k; s++) {
        int64_t t = 0;
        for (int i = cut[s]; i < cut[s + 1]; i++)
            t += w[i];
        most = nnc_max64(most, t);
    }
    return most;
}

/* Baselines are cuts, never better than the exact one, and worse on some. */
TEST(baselines_are_never_better)
{
    int worse[2] = {0};
    for (int round = 0; round < 2000; round++) {
        draw d = draw_from("baseline", round);
        int64_t w[40];
        const int n = 2 + (int)draw_below(&d, 38), k = 1 + (int)draw_below(&d, nnc_min64(n, 8));
        int cut[9], other[2][9];
        for (int i = 0; i < n; i++)
            w[i] = 1 + draw_below(&d, draw_below(&d, 4) ? 20 : 400);
        CHECK_OK(nnc_cut_balance(w, n, k, cut, test_sink));
        CHECK_OK(nnc_cut_block_partition(w, n, k, other[0], test_sink));
        CHECK_OK(nnc_cut_max_min(w, n, k, other[1], test_sink));
        for (int b = 0; b < 2; b++) {
            CHECK(other[b][0] == 0 && other[b][k] == n);
            for (int s = 0; s < k; s++)
                CHECK(other[b][s] < other[b][s + 1] || (!b && other[b][s] <= other[b][s + 1]));
            CHECK(largest(w, other[b], k) >= largest(w, cut, k));
            worse[b] += largest(w, other[b], k) > largest(w, cut, k);
        }
    }
    CHECK_USUAL(worse[0] > 100);
    CHECK_USUAL(worse[1] > 100);
}

/* torchgpipe's own test of its block partition, by hand: [1, 2, 3, 4, 5, 6] in two is [1 2 3 4 | 5 6]. */
TEST(block_partition_of_known_sequences)
{
    static const int64_t w[] = {1, 2, 3, 4, 5, 6};
    int cut[4];
    CHECK_OK(nnc_cut_block_partition(w, 6, 2, cut, test_sink));
    CHECK_INT(cut[1], 4);
    CHECK_OK(nnc_cut_block_partition(w, 6, 3, cut, test_sink));
    CHECK_INT(cut[1], 3);
    CHECK_INT(cut[2], 5);
}

TEST(equal_weights_are_cut_evenly)
{
    int64_t w[10];
    int cut[5];
    for (int i = 0; i < 10; i++)
        w[i] = 1;
    CHECK_OK(nnc_cut_balance(w, 10, 4, cut, test_sink));
    for (int s = 0; s < 4; s++)
        CHECK(cut[s + 1] - cut[s] == 2 || cut[s + 1] - cut[s] == 3);
}

/* A residual block: the shortcut crosses all positions inside, once. */
TEST(boundaries_count_each_tensor_once)
{
    static const int in_user[] = {0}, a_user[] = {1, 3, 3}, b_user[] = {2}, c_user[] = {3},
                     d_user[] = {4};
    const nnc_edge e[] = {{7, -1, 1, in_user}, {10, 0, 3, a_user}, {20, 1, 1, b_user},
        {30, 2, 1, c_user}, {40, 3, 1, d_user}};
    int64_t at[5], traffic[9];
    nnc_edges_boundary(e, 5, 4, at);
    const int64_t want[] = {7, 10, 30, 40, 40};
    for (int i = 0; i < 5; i++)
        CHECK_INT(at[i], want[i]);
    static const int device[] = {0, 1, 1, 1}, other[] = {0, 1, 2, 1};
    nnc_edges_traffic(e, 5, 4, device, 3, traffic);
    CHECK_INT(traffic[0 * 3 + 1], 10);
    CHECK_INT(traffic[1 * 3 + 2], 0);
    nnc_edges_traffic(e, 5, 4, other, 3, traffic);
    CHECK_INT(traffic[0 * 3 + 1], 10);
    CHECK_INT(traffic[1 * 3 + 2], 20);
    CHECK_INT(traffic[2 * 3 + 1], 30);
}

TEST(a_failed_allocation_is_a_status)
{
    instance x;
    make(&x, 1);
    x.p.n_stage = x.p.n_stage > x.p.n_layer ? x.p.n_layer : x.p.n_stage;
    int cut[STAGES + 1], failed = 0;
    nnc_cut_result r;
    nnc_status st = NNC_E_NOMEM;
    for (int n = 1; st == NNC_E_NOMEM && n < 50; n++) {
        nnc_fail_alloc_after(n);
        st = nnc_cut_min_latency(&x.p, 3, cut, &r, NULL);
        failed += st == NNC_E_NOMEM;
    }
    nnc_fail_alloc_after(0);
    CHECK_INT(st, NNC_OK);
    CHECK(failed > 0);
}

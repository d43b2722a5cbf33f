/* tests/partition/pipeline.c -- schedules: each task once, no deadlock, bubbles and memory as published. */
#include "draw.h"

typedef struct made {
    nnc_arena a;
    nnc_pipeline p;
    nnc_pipeline_time t;
    double bubble, span_bubble; /* idle share of devices * total, of the devices' own spans */
} made;

/* All stages alike: a forward pass of f, b and w nanoseconds for the gradients. */
static void make(
    made *m, nnc_pipeline_kind k, int p, int micro, int v, int64_t f, int64_t b, int64_t w)
{
    int64_t cost[3][128];
    for (int s = 0; s < p * v; s++) {
        cost[0][s] = f;
        cost[1][s] = b;
        cost[2][s] = w;
    }
    memset(m, 0, sizeof *m);
    nnc_arena_init(&m->a, 0);
    CHECK_OK(nnc_pipeline_make(k, p, micro, v, &m->a, &m->p, test_sink));
    const nnc_pipeline_costs c = {.forward = cost[0], .backward = cost[1], .weight = cost[2]};
    CHECK_OK(nnc_pipeline_run(&m->p, &c, &m->a, &m->t, test_sink));
    int64_t busy = 0, spans = 0;
    for (int d = 0; d < p; d++) {
        busy += m->t.busy[d];
        spans += m->t.last[d] - m->t.first[d];
    }
    m->bubble = 1 - (double)busy / ((double)p * (double)m->t.total);
    m->span_bubble = 1 - (double)busy / (double)spans;
}

static void check_each_task_once(const nnc_pipeline *p)
{
    const int kinds = p->kind == PIPE_forward ? 1
                      : p->split              ? 3
                                              : 2,
              tasks = p->micro * p->chunks * kinds;
    for (int d = 0; d < p->devices; d++) {
        bool *seen = nnc_calloc((size_t)(p->micro * p->devices * p->chunks * 3), sizeof *seen);
        CHECK_INT(p->n_task, tasks);
        for (int i = 0; i < p->n_task; i++) {
            const nnc_task *t = &p->task[d][i];
            const int at = (t->stage * 3 + t->kind) * p->micro + t->micro;
            CHECK(t->stage % p->devices == d && t->stage < p->devices * p->chunks);
            CHECK(t->micro >= 0 && t->micro < p->micro && t->kind < kinds);
            CHECK(!seen[at]);
            seen[at] = true;
        }
        nnc_free(seen);
    }
}

TEST(bubbles_are_those_of_the_formulas)
{
    made m;
    for (int p = 2; p <= 16; p++)
        for (int n = 1; n <= 64; n++) {
            for (int k = PIPE_gpipe; k <= PIPE_1f1b; k++) {
                make(&m, (nnc_pipeline_kind)k, p, n, 1, 100, 100, 100);
                check_each_task_once(&m.p);
                CHECK_NEAR(m.bubble, (double)(p - 1) / (n + p - 1), 1e-12);
                for (int d = 0; d < p; d++)
                    CHECK_INT(
                        nnc_pipeline_in_flight(&m.p, d), k == PIPE_gpipe ? n : nnc_min64(n, p - d));
                nnc_arena_deinit(&m.a);
            }
            make(&m, PIPE_forward, p, n, 1, 100, 0, 0);
            check_each_task_once(&m.p);
            CHECK_NEAR(m.bubble, (double)(p - 1) / (n + p - 1), 1e-12);
            CHECK_INT(m.t.total, 100 * (n + p - 1));
            nnc_arena_deinit(&m.a);
        }
}

TEST(interleaved_bubbles_are_v_times_smaller)
{
    made m;
    for (int p = 2; p <= 16; p++)
        for (int v = 2; v <= 4; v++)
            for (int n = p; n <= 4 * p; n += p) {
                make(&m, PIPE_interleaved, p, n, v, 100, 100, 100);
                check_each_task_once(&m.p);
                CHECK_NEAR(m.bubble, (double)(p - 1) / (v * n + p - 1), 1e-12);
                /* p (1 + (p-1)/(p v)) micro-batches on the first device, in chunks */
                CHECK_INT(nnc_pipeline_in_flight(&m.p, 0), nnc_min64(v * n, p * v + p - 1));
                nnc_arena_deinit(&m.a);
            }
}

TEST(zero_bubble_h1_waits_a_third_in_the_memory_of_1f1b)
{
    made m;
    make(&m, PIPE_1f1b, 8, 32, 1, 100, 100, 100);
    CHECK_NEAR(m.bubble, 0.1795, 5e-5);
    nnc_arena_deinit(&m.a);
    make(&m, PIPE_zb_h1, 8, 32, 1, 100, 100, 100);
    CHECK_NEAR(m.bubble, 0.0680, 5e-5);
    nnc_arena_deinit(&m.a);
    for (int p = 2; p <= 16; p++)
        for (int n = 1; n <= 64; n++) {
            make(&m, PIPE_zb_h1, p, n, 1, 100, 100, 100);
            check_each_task_once(&m.p);
            if (n >= 2 * p - 1) /* (p-1)(F + B - W) */
                CHECK_INT(m.t.total, 100 * (3 * n + p - 1));
            for (int d = 0; d < p; d++)
                CHECK(nnc_pipeline_in_flight(&m.p, d) <= nnc_min64(n, p));
            nnc_arena_deinit(&m.a);
        }
}

TEST(zero_bubble_h2_has_none_within_a_device)
{
    made m;
    for (int p = 2; p <= 12; p++)
        for (int n = 4 * p; n <= 64; n += 7) {
            make(&m, PIPE_zb_h2, p, n, 1, 100, 100, 100);
            check_each_task_once(&m.p);
            CHECK_NEAR(m.span_bubble, 0, 1e-12);
            for (int d = 0; d < p; d++)
                CHECK(nnc_pipeline_in_flight(&m.p, d) <= 2 * p - 1);
            nnc_arena_deinit(&m.a);
        }
}

/* Stages of any costs: no deadlock; times are possible: nothing overlaps on a device, operands come first, the bound holds. */
TEST(drawn_pipelines_run)
{
    for (int round = 0; round < 3000; round++) {
        draw d = draw_from("pipeline", round);
        const nnc_pipeline_kind k = (nnc_pipeline_kind)draw_below(&d, PIPE__COUNT);
        const int p = 1 + (int)draw_below(&d, 8),
                  v = k == PIPE_interleaved ? 2 + (int)draw_below(&d, 3) : 1;
        const int n =
            k == PIPE_interleaved ? p * (1 + (int)draw_below(&d, 4)) : 1 + (int)draw_below(&d, 20);
        int64_t cost[4][32];
        for (int i = 0; i < 4 * 32; i++)
            cost[i / 32][i % 32] = draw_below(&d, 100);
        const nnc_pipeline_costs c = {cost[0], cost[1], cost[2], cost[3], draw_below(&d, 2)};
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_pipeline pipe;
        nnc_pipeline_time t;
        CHECK_OK(nnc_pipeline_make(k, p, n, v, &a, &pipe, test_sink));
        check_each_task_once(&pipe);
        CHECK_OK(nnc_pipeline_run(&pipe, &c, &a, &t, test_sink));
        int64_t busiest = 0;
        for (int dev = 0; dev < p; dev++) {
            busiest = nnc_max64(busiest, t.busy[dev]);
            for (int i = 1; i < pipe.n_task; i++)
                CHECK(t.start[dev][i] >= t.end[dev][i - 1]);
            CHECK(t.busy[dev] <= t.last[dev] - t.first[dev]);
        }
        CHECK(t.total >= busiest);
    }
}

/* By hand: two stages of 10 + 20 (F + B) and 30 + 60, sends of 5, two micro-batches, 1F1B. */
TEST(a_pipeline_by_hand)
{
    static const int64_t f[] = {10, 30}, b[] = {20, 60}, send[] = {5, 0};
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_pipeline p;
    nnc_pipeline_time t;
    CHECK_OK(nnc_pipeline_make(PIPE_1f1b, 2, 2, 1, &a, &p, test_sink));
    CHECK_OK(nnc_pipeline_run(
        &p, &(nnc_pipeline_costs){.forward = f, .backward = b, .send = send}, &a, &t, test_sink));
    /* device 1: F0 15-45, B0 45-105, F1 105-135, B1 135-195; device 0: F0 0-10, F1 10-20, B0 110-130, B1 200-220 */
    CHECK_INT(t.start[1][0], 15);
    CHECK_INT(t.end[1][3], 195);
    CHECK_INT(t.start[0][2], 110);
    CHECK_INT(t.total, 220);
    CHECK_INT(t.busy[0], 60);
}

TEST(a_list_in_the_wrong_order_deadlocks_and_says_where)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_pipeline p;
    nnc_pipeline_time t;
    CHECK_OK(nnc_pipeline_make(PIPE_1f1b, 2, 2, 1, &a, &p, test_sink));
    const nnc_task first = p.task[0][0];
    p.task[0][0] = p.task[0][2];
    p.task[0][2] = first;
    CHECK_INT(nnc_pipeline_run(&p, &(nnc_pipeline_costs){0}, &a, &t, test_sink), NNC_E_BUG);
    CHECK_DIAG("device 0 waits before task 0 (stage 0, micro-batch 0)");
}

TEST(schedules_that_do_not_exist_are_refused)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_pipeline p;
    CHECK_INT(nnc_pipeline_make(PIPE_interleaved, 4, 6, 2, &a, &p, test_sink), NNC_E_USAGE);
    CHECK_DIAG("multiple of the devices: 4 devices, 6 micro-batches, 2 chunks");
    CHECK_INT(nnc_pipeline_make(PIPE_1f1b, 4, 6, 2, &a, &p, test_sink), NNC_E_USAGE);
    CHECK_DIAG("one chunk");
}

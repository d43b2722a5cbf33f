/* tests/partition/others.c -- branches, several models: against brute force and by hand. */
#include "draw.h"

enum { MOST = 10 };

/* ---- branches ----------------------------------------------------------------------------------------------- */

typedef struct dag {
    int n, start[MOST + 1], need[MOST * MOST], share[MOST];
    int64_t time[MOST], bytes[MOST];
} dag;

static void make_dag(dag *g, draw *d, int n)
{
    memset(g, 0, sizeof *g);
    g->n = n;
    for (int i = 0, k = 0; i < n; i++) {
        g->time[i] = 1 + draw_below(d, 50);
        g->bytes[i] = draw_below(d, 100);
        g->share[i] = (int)draw_below(d, 1000);
        for (int j = 0; j < i; j++)
            if (!draw_below(d, 4))
                g->need[k++] = j;
        g->start[i + 1] = k;
    }
}

static int64_t critical_path(const dag *g)
{
    int64_t end[MOST], most = 0;
    for (int i = 0; i < g->n; i++) {
        end[i] = g->time[i];
        for (int k = g->start[i]; k < g->start[i + 1]; k++)
            end[i] = nnc_max64(end[i], g->time[i] + end[g->need[k]]);
        most = nnc_max64(most, end[i]);
    }
    return most;
}

TEST(list_schedules_are_possible_and_within_their_bound)
{
    for (int round = 0; round < 3000; round++) {
        draw d = draw_from("list", round);
        dag g;
        make_dag(&g, &d, 1 + (int)draw_below(&d, MOST));
        const int places = 1 + (int)draw_below(&d, 4);
        const bool sends = draw_below(&d, 2);
        const nnc_flat_links f = {1000000000, 5};
        const nnc_links l = nnc_links_flat(&f);
        const nnc_branch_problem p = {.n_op = g.n,
            .time = g.time,
            .start = g.start,
            .need = g.need,
            .bytes = sends ? g.bytes : NULL,
            .n_place = places,
            .links = sends ? &l : NULL};
        int place[MOST];
        int64_t begin[MOST], total, work = 0;
        CHECK_OK(nnc_branch_list(&p, place, begin, &total, test_sink));
        for (int i = 0; i < g.n; i++) {
            work += g.time[i];
            CHECK(place[i] >= 0 && place[i] < places && begin[i] + g.time[i] <= total);
            for (int k = g.start[i]; k < g.start[i + 1]; k++) {
                const int j = g.need[k];
                const int64_t send =
                    sends && place[i] != place[j] ? nnc_links_p2p(&l, 0, 1, g.bytes[j]) : 0;
                CHECK(begin[i] >= begin[j] + g.time[j] + send);
            }
            for (int j = 0; j < i; j++)
                CHECK(place[i] != place[j] || begin[i] >= begin[j] + g.time[j] ||
                      begin[j] >= begin[i] + g.time[i]);
        }
        const int64_t path = critical_path(&g);
        CHECK(total >= path && total * places >= work);
        if (!sends) /* Graham: (2 - 1/m) times the best */
            CHECK(total <= work / places + path);
    }
}

/* Every sequence of stages, by recursion without memory. */
static int64_t brute_ios(const nnc_ios_problem *p, unsigned done);

static int64_t brute_stage(const nnc_ios_problem *p, unsigned stage)
{
    int group[MOST], groups = 0;
    int64_t longest = 0, work = 0;
    for (int i = 0; i < p->n_op; i++)
        group[i] = i;
    for (int again = 1; again;) {
        again = 0;
        for (int i = 0; i < p->n_op; i++)
            for (int k = p->start[i]; stage >> i & 1 && k < p->start[i + 1]; k++) {
                const int j = p->need[k];
                if (stage >> j & 1 && group[i] != group[j]) {
                    group[i] = group[j] = group[i] < group[j] ? group[i] : group[j];
                    again = 1;
                }
            }
    }
    for (int g = 0; g < p->n_op; g++) {
        int64_t t = 0;
        int ops = 0;
        for (int i = 0; i < p->n_op; i++)
            if (stage >> i & 1 && group[i] == g) {
                t += p->time[i];
                work += p->time[i] * p->share[i];
                ops++;
            }
        groups += ops > 0;
        longest = nnc_max64(longest, t);
        if (p->group_ops && ops > p->group_ops)
            return INT64_MAX;
    }
    return groups > p->streams ? INT64_MAX : p->sync_ns + nnc_max64(longest, (work + 999) / 1000);
}

static int64_t brute_ios(const nnc_ios_problem *p, unsigned done)
{
    const unsigned all = (1u << p->n_op) - 1;
    int64_t best = INT64_MAX;
    if (done == all)
        return 0;
    for (unsigned stage = 1; stage <= all; stage++) {
        bool ok = !(stage & done);
        for (int i = 0; i < p->n_op && ok; i++)
            for (int k = p->start[i]; stage >> i & 1 && k < p->start[i + 1]; k++)
                ok = ok && (done | stage) >> p->need[k] & 1;
        const int64_t t = ok ? brute_stage(p, stage) : INT64_MAX;
        if (t < INT64_MAX)
            best = nnc_min64(best, t + brute_ios(p, done | stage));
    }
    return best;
}

/* The time of these stages. */
static int64_t stages_ns(const nnc_ios_problem *p, const int *stage)
{
    int64_t sum = 0;
    for (int s = 0; s < p->n_op; s++) {
        unsigned set = 0;
        for (int i = 0; i < p->n_op; i++)
            set |= (unsigned)(stage[i] == s) << i;
        sum += set ? brute_stage(p, set) : 0;
    }
    return sum;
}

TEST(ios_equals_brute_force)
{
    for (int round = 0; round < 300; round++) {
        draw d = draw_from("ios", round);
        dag g;
        make_dag(&g, &d, 1 + (int)draw_below(&d, 6));
        const nnc_ios_problem p = {.n_op = g.n,
            .time = g.time,
            .share = g.share,
            .start = g.start,
            .need = g.need,
            .streams = 1 + (int)draw_below(&d, 3),
            .sync_ns = draw_below(&d, 10),
            .group_ops = (int)draw_below(&d, 4)};
        int stage[MOST];
        int64_t total;
        CHECK_OK(nnc_ios_solve(&p, stage, NULL, &total, test_sink));
        CHECK_INT(total, brute_ios(&p, 0));
        CHECK_INT(stages_ns(&p, stage), total);
    }
}

/* Segment by segment: stages of the time that is said, never better than all at once, and seldom worse. */
TEST(ios_by_segments)
{
    int same = 0, rounds = 300;
    for (int round = 0; round < rounds; round++) {
        draw d = draw_from("segments", round);
        dag g;
        make_dag(&g, &d, 1 + (int)draw_below(&d, 8));
        const nnc_ios_problem p = {.n_op = g.n,
            .time = g.time,
            .share = g.share,
            .start = g.start,
            .need = g.need,
            .streams = 1 + (int)draw_below(&d, 3),
            .sync_ns = draw_below(&d, 10)};
        int stage[MOST], by[MOST];
        int64_t total, best;
        bool exact;
        CHECK_OK(nnc_ios_solve(&p, by, NULL, &best, test_sink));
        CHECK_OK(nnc_ios_segments(&p, stage, NULL, &total, &exact, test_sink));
        for (int i = 0; i < g.n; i++)
            for (int k = g.start[i]; k < g.start[i + 1]; k++)
                CHECK(stage[g.need[k]] <= stage[i]);
        CHECK(exact && total >= best);
        CHECK_INT(stages_ns(&p, stage), total);
        same += total == best;
    }
    CHECK(same * 20 >= rounds * 19);
}

/* Longer than one problem may be, and wider than can be searched. */
TEST(ios_of_any_size)
{
    enum { N = 300 };
    int64_t time[N], total;
    int start[N + 1], need[2 * N], stage[N], n = 0;
    bool exact;
    for (int i = 0; i < N; i++) { /* two branches, and what joins them */
        time[i] = 10;
        start[i] = n;
        for (int k = 1; i % 3 == 0 ? k <= 2 && i : k <= i % 3 && k < 2; k++)
            need[n++] = i % 3 == 0 ? i - k : i - i % 3;
    }
    start[N] = n;
    nnc_ios_problem p = {.n_op = N, .time = time, .start = start, .need = need, .streams = 2};
    CHECK_OK(nnc_ios_segments(&p, stage, NULL, &total, &exact, test_sink));
    CHECK(exact);
    CHECK_INT(total, N / 3 * 2 * 10);
    for (int i = 0; i <= N; i++)
        start[i] = 0;
    p.streams = 8;
    p.n_op = 40;
    CHECK_OK(nnc_ios_segments(&p, stage, NULL, &total, &exact, test_sink));
    CHECK(!exact && total >= 40 / 8 * 10 && total < 40 * 10);
}

TEST(ios_of_too_wide_a_graph_is_refused)
{
    int64_t time[40];
    int start[41] = {0}, stage[40];
    int64_t total;
    for (int i = 0; i < 40; i++)
        time[i] = 1;
    const nnc_ios_problem p = {
        .n_op = 40, .time = time, .start = start, .need = start, .streams = 8, .max_steps = 100000};
    CHECK_INT(nnc_ios_solve(&p, stage, NULL, &total, test_sink), NNC_E_FIT);
    CHECK_DIAG("more than 100000 stages");
}

/* ---- several models ------------------------------------------------------------------------------------------ */

static int64_t brute_models(const int64_t *t, int n, int64_t *load, int m)
{
    if (!n) {
        int64_t most = 0;
        for (int d = 0; d < m; d++)
            most = nnc_max64(most, load[d]);
        return most;
    }
    int64_t best = INT64_MAX;
    for (int d = 0; d < m; d++) {
        load[d] += t[n - 1];
        best = nnc_min64(best, brute_models(t, n - 1, load, m));
        load[d] -= t[n - 1];
    }
    return best;
}

TEST(models_longest_first_are_within_four_thirds)
{
    int optimal = 0;
    for (int round = 0; round < 500; round++) {
        draw d = draw_from("lpt", round);
        int64_t t[8], total, load[3] = {0}, sum[3] = {0};
        int device[8];
        const int n = 1 + (int)draw_below(&d, 8), m = 1 + (int)draw_below(&d, 3);
        for (int i = 0; i < n; i++)
            t[i] = 1 + draw_below(&d, 30);
        CHECK_OK(nnc_models_lpt(t, NULL, n, m, NULL, device, &total, test_sink));
        const int64_t best = brute_models(t, n, load, m);
        for (int i = 0; i < n; i++)
            sum[device[i]] += t[i];
        CHECK_INT(total, nnc_max64(sum[0], nnc_max64(sum[1], sum[2])));
        CHECK(total >= best && 3 * m * total <= (4 * m - 1) * best);
        optimal += total == best;
    }
    CHECK(optimal > 300);
    static const int64_t t[] = {10, 9, 8}, bytes[] = {60, 60, 200}, room[] = {100, 100};
    int64_t total;
    int device[3];
    CHECK_OK(nnc_models_lpt(t, bytes, 3, 2, room, device, &total, test_sink));
    CHECK_INT(device[0], 0);
    CHECK_INT(device[1], 1);
    CHECK_INT(device[2], -1);
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

typedef nnc_status (*attempt)(void);

static nnc_status try_list(void)
{
    draw d = draw_from("oom", 0);
    dag g;
    int place[MOST];
    int64_t begin[MOST], total;
    make_dag(&g, &d, MOST);
    const nnc_branch_problem p = {
        .n_op = g.n, .time = g.time, .start = g.start, .need = g.need, .n_place = 2};
    return nnc_branch_list(&p, place, begin, &total, NULL);
}

static nnc_status try_ios(void)
{
    int64_t time[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, total;
    int start[10] = {0}, stage[9]; /* 512 sets: the table grows */
    const nnc_ios_problem p = {
        .n_op = 9, .time = time, .start = start, .need = start, .streams = 3};
    return nnc_ios_solve(&p, stage, NULL, &total, NULL);
}

static nnc_status try_models(void)
{
    static const int64_t time[] = {3, 2, 1};
    int device[3];
    int64_t total;
    return nnc_models_lpt(time, NULL, 3, 2, NULL, device, &total, NULL);
}

static nnc_status try_baselines(void)
{
    static const int64_t w[] = {3, 2, 1, 5};
    int cut[3];
    NNC_TRY(nnc_cut_block_partition(w, 4, 2, cut, NULL));
    return nnc_cut_max_min(w, 4, 2, cut, NULL);
}

static nnc_status try_pipeline(void)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_pipeline p;
    nnc_pipeline_time t;
    NNC_TRY(nnc_pipeline_make(PIPE_zb_h1, 40, 200, 1, &a, &p, NULL));
    return nnc_pipeline_run(&p, &(nnc_pipeline_costs){0}, &a, &t, NULL);
}

TEST(each_failed_allocation_is_a_status)
{
    static const attempt all[] = {try_list, try_ios, try_models, try_baselines, try_pipeline};
    for (size_t i = 0; i < NNC_COUNT(all); i++) {
        nnc_status st = NNC_E_NOMEM;
        int failed = 0;
        for (int n = 1; st == NNC_E_NOMEM && n < 500; n++) {
            nnc_fail_alloc_after(n);
            st = all[i]();
            failed += st == NNC_E_NOMEM;
        }
        nnc_fail_alloc_after(0);
        CHECK_INT(st, NNC_OK);
        CHECK(failed > 0);
    }
}

/* tests/sim/pipeline.c -- collapsed replicas of simulated 1F1B schedules. The schedules are made here;
 * the partitioner's own, and their bubbles, are tested there and in tasks.c. */
#include "sim/sim.h"
#include "test.h"

#define US ((int64_t)1000000)

typedef struct pipeline {
    int p, m; /* stages, micro-batches */
    int64_t f_ps, b_ps;
    int replicas; /* data parallel; device = replica * p + stage unless collapsed */
    bool collapsed;
    const nnc_cluster *c;
    int64_t bytes, gradients;
} pipeline;

typedef struct built {
    const pipeline *o;
    nnc_sim *s;
    int *lane, *comm; /* by replica and stage */
    int32_t *f, *b; /* by replica, stage, micro-batch */
    int32_t *last; /* by replica and stage */
} built;

static int at(const pipeline *o, int r, int s, int m)
{
    return (r * o->p + s) * o->m + m;
}

static int add(built *x, int r, int s, int64_t ps, bool backward)
{
    const int32_t device = r * x->o->p + s;
    return nnc_sim_add(x->s, &(nnc_sim_task){.kind = SIM_op,
                                 .name = backward ? "B" : "F",
                                 .device = device,
                                 .n_lane = 1,
                                 .lane = &x->lane[r * x->o->p + s],
                                 .work_ps = ps});
}

/* Order of one stage: p - s - 1 forwards, then one of each in turn. */
static void add_stage(built *x, int r, int s)
{
    const pipeline *o = x->o;
    const int warm = o->p - s - 1 < o->m ? o->p - s - 1 : o->m;
    int f = 0, b = 0;
    while (f < warm) {
        x->f[at(o, r, s, f)] = add(x, r, s, o->f_ps, false);
        f++;
    }
    while (b < o->m) {
        if (f < o->m) {
            x->f[at(o, r, s, f)] = add(x, r, s, o->f_ps, false);
            f++;
        }
        x->b[at(o, r, s, b)] = x->last[r * o->p + s] = add(x, r, s, o->b_ps, true);
        b++;
    }
}

/* `to` depends on `from`, in another stage of all replicas that the task represents. */
static void connect(built *x, int r, int from_stage, int from, int to_stage, int to)
{
    const pipeline *o = x->o;
    int32_t src[64], dst[64], dep = from;
    const int n = o->collapsed ? o->replicas : 1;
    for (int k = 0; k < n; k++) {
        src[k] = (r + k) * o->p + from_stage;
        dst[k] = (r + k) * o->p + to_stage;
    }
    const int t = nnc_sim_copies(x->s,
        &(nnc_sim_task){.kind = SIM_transfer,
            .name = "send",
            .device = -1,
            .n_dep = 1,
            .dep = &dep,
            .bytes = o->bytes},
        src, dst, n, test_sink);
    CHECK(t >= 0 && nnc_sim_after(x->s, to, t));
}

/* Gradients of each stage are reduced over its replicas. */
static void reduce(built *x, int s)
{
    const pipeline *o = x->o;
    int32_t device[64], lane[64], dep[64];
    const int n = o->collapsed ? 1 : o->replicas;
    for (int r = 0; r < o->replicas; r++)
        device[r] = r * o->p + s;
    for (int r = 0; r < n; r++) {
        lane[r] = x->comm[r * o->p + s];
        dep[r] = x->last[r * o->p + s];
    }
    CHECK(nnc_sim_collectives(x->s,
              &(nnc_sim_task){.kind = SIM_collective,
                  .name = "allreduce",
                  .device = -1,
                  .n_lane = n,
                  .lane = lane,
                  .n_dep = n,
                  .dep = dep,
                  .bytes = o->gradients},
              GROUP_allreduce, device, o->replicas, 1, test_sink) >= 0);
}

static nnc_sim *build(const pipeline *o)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const int r = o->collapsed || !o->replicas ? 1 : o->replicas, n = r * o->p;
    built x = {.o = o,
        .s = nnc_sim_create(o->c, n),
        .lane = ARENA_NEW(&a, int, n),
        .comm = ARENA_NEW(&a, int, n),
        .f = ARENA_NEW(&a, int32_t, n * o->m),
        .b = ARENA_NEW(&a, int32_t, n * o->m),
        .last = ARENA_NEW(&a, int32_t, n)};
    for (int i = 0; i < n; i++) {
        x.lane[i] = nnc_sim_lane(x.s, i);
        x.comm[i] = nnc_sim_lane(x.s, i);
    }
    for (int k = 0; k < r; k++)
        for (int s = 0; s < o->p; s++)
            add_stage(&x, k, s);
    for (int k = 0; k < r; k++)
        for (int s = 0; s + 1 < o->p; s++)
            for (int m = 0; m < o->m; m++) {
                connect(&x, k, s, x.f[at(o, k, s, m)], s + 1, x.f[at(o, k, s + 1, m)]);
                connect(&x, k, s + 1, x.b[at(o, k, s + 1, m)], s, x.b[at(o, k, s, m)]);
            }
    for (int s = 0; s < o->p && o->replicas > 1; s++)
        reduce(&x, s);
    return x.s;
}

static int64_t run(const pipeline *o)
{
    nnc_sim *s = build(o);
    CHECK_OK(nnc_sim_run(s, test_sink));
    const int64_t end = nnc_sim_end_ps(s);
    nnc_sim_destroy(s);
    return end;
}

/* Replicas of which only one is simulated, with the links of all, take as long as when all are. */
TEST(collapsed_replicas)
{
    static const struct {
        const char *file;
        int p, replicas;
    } cases[] = {{"models/hardware/a100x8.json", 2, 4}, {"models/hardware/a100x8.json", 4, 2},
        {"models/hardware/h100x1024.json", 8, 4}, {"models/hardware/p40x8.json", 2, 4},
        {"models/hardware/cpu.json", 2, 2}};
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_cluster *c = nnc_cluster_load(cases[i].file, test_sink);
        CHECK(c != NULL);
        pipeline o = {.p = cases[i].p,
            .m = 8,
            .f_ps = 500 * US,
            .b_ps = 900 * US,
            .replicas = cases[i].replicas,
            .c = c,
            .bytes = 8 << 20,
            .gradients = 40 << 20};
        const int64_t all = run(&o);
        o.collapsed = true;
        const int64_t one = run(&o);
        if (all - one > all / 1000000 || one - all > all / 1000000)
            test_fail(__FILE__, __LINE__, "%s: all replicas take %lld ps, one %lld", cases[i].file,
                (long long)all, (long long)one);
        nnc_cluster_destroy(c);
    }
}

/* tests/sim/sim.c -- the event engine: lanes, launches, sharing by hand, memory, deadlocks, determinism. */
#include "sim/sim.h"
#include "test.h"

#define PS(us) ((int64_t)(us)*1000000)

static int op(nnc_sim *s, int lane, int device, int64_t us, int dep)
{
    return nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_op,
                              .name = "op",
                              .device = device,
                              .n_lane = 1,
                              .lane = (int32_t[]){lane},
                              .n_dep = dep >= 0,
                              .dep = (int32_t[]){dep},
                              .work_ps = PS(us)});
}

static int copy(nnc_sim *s, int lane, const nnc_transfer *t, int64_t bytes, int dep)
{
    return nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_transfer,
                              .name = "copy",
                              .device = -1,
                              .n_lane = 1,
                              .lane = (int32_t[]){lane},
                              .n_dep = dep >= 0,
                              .dep = (int32_t[]){dep},
                              .bytes = bytes,
                              .transfer = t});
}

static void check_span(const nnc_sim *s, int task, int64_t start_us, int64_t end_us)
{
    CHECK_INT(nnc_sim_span_of(s, task).start_ps, PS(start_us));
    CHECK_INT(nnc_sim_span_of(s, task).end_ps, PS(end_us));
}

TEST(lanes_and_dependencies)
{
    nnc_sim *s = nnc_sim_create(NULL, 2);
    const int a = nnc_sim_lane(s, 0), b = nnc_sim_lane(s, 1);
    const int x = op(s, a, 0, 10, -1), y = op(s, b, 1, 4, x), z = op(s, a, 0, 5, -1),
              w = op(s, b, 1, 1, z);
    CHECK_OK(nnc_sim_run(s, test_sink));
    check_span(s, x, 0, 10);
    check_span(s, y, 10, 14);
    check_span(s, z, 10, 15);
    check_span(s, w, 15, 16);
    CHECK_INT(nnc_sim_end_ps(s), PS(16));
    CHECK_INT(nnc_sim_device_busy_ps(s, 0), PS(15));
    nnc_sim_destroy(s);
}

/* Launches of one host thread come one after the other: short ops are bound by them. */
TEST(launches)
{
    nnc_sim *s = nnc_sim_create(NULL, 2);
    const int host = nnc_sim_lane(s, -1);
    int lane[2], last[2] = {-1, -1};
    for (int d = 0; d < 2; d++)
        lane[d] = nnc_sim_lane(s, d);
    for (int i = 0; i < 10; i++)
        for (int d = 0; d < 2; d++)
            last[d] = nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_op,
                                         .name = "k",
                                         .device = d,
                                         .n_lane = 1,
                                         .lane = &lane[d],
                                         .launched = true,
                                         .host = host,
                                         .launch_ps = PS(3),
                                         .work_ps = PS(1)});
    CHECK_OK(nnc_sim_run(s, test_sink));
    check_span(s, last[0], 57, 58); /* the 19th of 20 launches ends after 57 us */
    check_span(s, last[1], 60, 61);
    nnc_sim_destroy(s);
}

/* Two ops of one device. Each uses all multiprocessors, so both together take as long as one after the other. Two that use 0.4 and 0.5
 * of them do not disturb each other; memory-bound ones share the bandwidth. */
TEST(ops_share_a_device)
{
    static const struct {
        double compute[2], memory[2];
        int64_t end_us[2];
    } cases[] = {
        {{1, 1}, {0, 0}, {20, 20}}, {{0.4, 0.5}, {0, 0}, {10, 10}}, {{0.2, 0.2}, {1, 1}, {20, 20}},
        {{0.75, 0.75}, {0, 0}, {15, 15}},
        {{1, 0.25}, {0, 0},
            {13,
                10}}, /* the smaller one has its quarter; 7.5 us of the other's work in 10 us, 2.5 after it */
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_sim *s = nnc_sim_create(NULL, 1);
        int id[2];
        for (int k = 0; k < 2; k++) {
            const int lane = nnc_sim_lane(s, 0);
            id[k] = nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_op,
                                       .n_lane = 1,
                                       .lane = &lane,
                                       .work_ps = PS(10),
                                       .compute = cases[i].compute[k],
                                       .memory = cases[i].memory[k]});
        }
        CHECK_OK(nnc_sim_run(s, test_sink));
        for (int k = 0; k < 2; k++)
            CHECK_NEAR((double)nnc_sim_span_of(s, id[k]).end_ps * 1e-6,
                (double)cases[i].end_us[k] - (i == 4 && k == 0 ? 0.5 : 0), 1e-5);
        nnc_sim_destroy(s);
    }
}

/* A link of 10 GB/s and one of 4 GB/s. Copies a: first link; b: both; c: second. Max-min: b and c have 2 GB/s each, a the remaining 8. */
TEST(links_are_shared_fairly)
{
    nnc_sim *s = nnc_sim_create(NULL, 0);
    const int wide = nnc_sim_link(s, 10000000000), narrow = nnc_sim_link(s, 4000000000);
    nnc_use ua[] = {{wide, 1}}, ub[] = {{wide, 1}, {narrow, 1}}, uc[] = {{narrow, 1}};
    const nnc_transfer a = {.bytes_s = 10e9, .n_use = 1, .use = ua},
                       b = {.bytes_s = 4e9, .n_use = 2, .use = ub},
                       c = {.bytes_s = 4e9, .n_use = 1, .use = uc};
    int id[3];
    const nnc_transfer *const t[] = {&a, &b, &c};
    static const int64_t bytes[] = {80000, 40000, 20000};
    for (int i = 0; i < 3; i++)
        id[i] = copy(s, nnc_sim_lane(s, -1), t[i], bytes[i], -1);
    CHECK_OK(nnc_sim_run(s, test_sink));
    check_span(s, id[0], 0, 10); /* 80 kB at 8 GB/s */
    check_span(s, id[2], 0, 10); /* 20 kB at 2 GB/s */
    check_span(s, id[1], 0, 15); /* 20 kB at 2, then 20 kB at 4 GB/s */
    nnc_sim_destroy(s);
}

/* A copy that starts later takes half of the link from then on. */
TEST(rates_change_at_starts)
{
    nnc_sim *s = nnc_sim_create(NULL, 1);
    const int link = nnc_sim_link(s, 1000000000), lane = nnc_sim_lane(s, 0);
    nnc_use u[] = {{link, 1}};
    const nnc_transfer t = {.latency_ps = PS(2), .bytes_s = 1e9, .n_use = 1, .use = u};
    const int first = copy(s, nnc_sim_lane(s, -1), &t, 10000, -1);
    const int wait = op(s, lane, 0, 4, -1), second = copy(s, nnc_sim_lane(s, -1), &t, 10000, wait);
    CHECK_OK(nnc_sim_run(s, test_sink));
    check_span(s, first, 0, 18); /* 2..6 alone: 4 kB; the remaining 6 kB at half the rate: 12 us */
    check_span(s, second, 4, 22); /* from 6: 6 kB until 18, the remaining 4 kB alone */
    nnc_sim_destroy(s);
}

/* Ops are slower while a collective runs on their device, and only then. */
TEST(collectives_slow_ops)
{
    nnc_sim *s = nnc_sim_create(NULL, 2);
    const int link = nnc_sim_link(s, 1000000000);
    nnc_use u[] = {{link, 1}};
    const nnc_transfer t = {.bytes_s = 1e9, .n_use = 1, .use = u};
    const int32_t comm[] = {nnc_sim_lane(s, 0), nnc_sim_lane(s, 1)};
    const int a = nnc_sim_lane(s, 0), b = nnc_sim_lane(s, 1);
    nnc_sim_overlap(s, 0, 1.25);
    const int slowed = op(s, a, 0, 20, -1), free = op(s, b, 1, 20, -1);
    const int c = nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_collective,
                                     .name = "allreduce",
                                     .device = -1,
                                     .n_lane = 2,
                                     .lane = comm,
                                     .bytes = 10000,
                                     .transfer = &t});
    CHECK_OK(nnc_sim_run(s, test_sink));
    check_span(s, c, 0, 10);
    check_span(s, slowed, 0, 22); /* 10 us do 8 us of work */
    check_span(s, free, 0, 20);
    nnc_sim_destroy(s);
}

/* Three copies on links of their own, and one copy engine: one after the other, in the order in which they are ready. Two engines: two at
 * a time. */
TEST(copy_engines)
{
    for (int engines = 1; engines <= 3; engines++) {
        nnc_sim *s = nnc_sim_create(NULL, 1);
        int id[3];
        nnc_use use[3];
        nnc_transfer t[3];
        nnc_sim_engines(s, 0, engines);
        for (int i = 0; i < 3; i++) {
            const int lane = nnc_sim_lane(s, 0);
            const int before = op(s, lane, 0, 3 - i,
                -1); /* share the device: done after 3, 5, 6 us in reverse order */
            use[i] = (nnc_use){nnc_sim_link(s, 1000000000), 1};
            t[i] = (nnc_transfer){.bytes_s = 1e9, .n_use = 1, .use = &use[i]};
            id[i] = nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_transfer,
                                       .name = "copy",
                                       .n_dep = 1,
                                       .dep = &before,
                                       .n_lane = 1,
                                       .lane = &lane,
                                       .bytes = 10000,
                                       .transfer = &t[i]});
        }
        CHECK_OK(nnc_sim_run(s, test_sink));
        static const int64_t start[3][3] = {{23, 13, 3}, {13, 5, 3}, {6, 5, 3}};
        for (int i = 0; i < 3; i++)
            check_span(s, id[i], start[engines - 1][i], start[engines - 1][i] + 10);
        nnc_sim_destroy(s);
    }
}

TEST(deadlocks_are_named)
{
    nnc_sim *s = nnc_sim_create(NULL, 2);
    const int a = nnc_sim_lane(s, 0), b = nnc_sim_lane(s, 1);
    nnc_sim_task t = {.kind = SIM_op, .n_lane = 1, .work_ps = 1};
    t.lane = (int32_t[]){a};
    t.name = "receive on 0";
    const int r0 = nnc_sim_add(s, &t);
    t.name = "send on 0";
    const int s0 = nnc_sim_add(s, &t);
    t.lane = (int32_t[]){b};
    t.device = 1;
    t.name = "receive on 1";
    const int r1 = nnc_sim_add(s, &t);
    t.name = "send on 1";
    const int s1 = nnc_sim_add(s, &t);
    CHECK(nnc_sim_after(s, r0, s1) && nnc_sim_after(s, r1, s0));
    CHECK_INT(nnc_sim_run(s, test_sink), NNC_E_MODEL);
    CHECK_DIAG("4 of 4 tasks can never start");
    CHECK_DIAG("`receive on 0`, which waits for `send on 1`, which waits for `receive on 1`, which "
               "waits for `send on 0`");
    nnc_sim_destroy(s);
}

enum { TASKS = 400 };

/* When the tasks of a random program on a DGX-1 run. */
static void run_random(uint64_t seed, const nnc_cluster *c, nnc_sim_span out[TASKS])
{
    nnc_sim *s = nnc_sim_create(c, 0);
    int main[8], comm[8], n = 0;
    uint64_t at = 0;
    int32_t task[TASKS];
    for (int d = 0; d < 8; d++) {
        main[d] = nnc_sim_lane(s, d);
        comm[d] = nnc_sim_lane(s, d);
    }
    for (int i = 0; i < TASKS; i++) {
        const int d = (int)(nnc_rng_u32(seed, at++) % 8), kind = (int)(nnc_rng_u32(seed, at++) % 8);
        nnc_sim_task t = {.name = "t",
            .device = d,
            .n_lane = 1,
            .lane = kind < 6 ? &main[d] : &comm[d],
            .work_ps = nnc_rng_u32(seed, at++) % 1000000,
            .bytes = nnc_rng_u32(seed, at++) % 10000000};
        if (n) {
            t.n_dep = 1;
            t.dep = &task[nnc_rng_u32(seed, at++) % (uint32_t)n];
        }
        const int32_t to = (d + 1 + (int)(nnc_rng_u32(seed, at++) % 7)) % 8, from = d;
        int32_t all[8], lanes[8];
        for (int k = 0; k < 8; k++) {
            all[k] = k;
            lanes[k] = comm[k];
        }
        if (kind < 6) {
            t.bytes = 0;
            task[n++] = nnc_sim_add(s, &t);
        } else if (kind == 6) {
            t.kind = SIM_transfer;
            task[n++] = nnc_sim_copies(s, &t, &from, &to, 1, test_sink);
        } else {
            t.kind = SIM_collective;
            t.n_lane = 8;
            t.lane = lanes;
            task[n++] = nnc_sim_collectives(s, &t, GROUP_allreduce, all, 8, 1, test_sink);
        }
    }
    CHECK_OK(nnc_sim_run(s, test_sink));
    for (int i = 0; i < TASKS; i++)
        out[i] = nnc_sim_span_of(s, task[i]);
    nnc_sim_destroy(s);
}

/* Collectives and copies of many groups, each of whose allocations fails once: reported, and no task. */
TEST(groups_without_memory)
{
    enum { GROUPS = 32, EACH = 8 };
    nnc_cluster *c = nnc_cluster_load("models/hardware/h100x1024.json", test_sink);
    int32_t device[GROUPS * EACH], next[GROUPS * EACH];
    for (int i = 0; i < GROUPS * EACH; i++) {
        device[i] = i;
        next[i] = (i + EACH) % (GROUPS * EACH);
    }
    for (int copies = 0; c && copies < 2; copies++) {
        int id = -1, failed = 0;
        for (int64_t k = 1; id < 0 && k < 2000; k++) {
            nnc_sim *s = nnc_sim_create(c, 0);
            const int32_t lane = s ? nnc_sim_lane(s, 0) : -1;
            CHECK(lane >= 0);
            const nnc_sim_task t = {.kind = SIM_collective,
                .name = "all",
                .device = -1,
                .n_lane = 1,
                .lane = &lane,
                .bytes = 1 << 20};
            nnc_sink_clear(test_sink);
            nnc_fail_alloc_after(k);
            id = copies
                     ? nnc_sim_copies(s, &t, device, next, GROUPS * EACH, test_sink)
                     : nnc_sim_collectives(s, &t, GROUP_allreduce, device, EACH, GROUPS, test_sink);
            nnc_fail_alloc_after(0);
            failed += id < 0;
            CHECK(id >= 0 || nnc_sink_errors(test_sink) > 0);
            nnc_sim_destroy(s);
        }
        CHECK_INT(id, 0);
        CHECK(failed > 3);
    }
    nnc_cluster_destroy(c);
}

TEST(runs_are_deterministic)
{
    nnc_cluster *c = nnc_cluster_load("models/hardware/v100x8.json", test_sink);
    CHECK(c != NULL);
    for (uint64_t round = 0; c && round < 8; round++) {
        nnc_sim_span x[TASKS], y[TASKS];
        run_random(nnc_rng_key("sim", test_seed) + round, c, x);
        run_random(nnc_rng_key("sim", test_seed) + round, c, y);
        CHECK(!memcmp(x, y, sizeof x));
    }
    nnc_cluster_destroy(c);
}

TEST(op_times)
{
    nnc_cluster *c = nnc_cluster_load("models/hardware/v100x8.json", test_sink);
    nnc_cluster_kind k = *nnc_cluster_kind_of(c, 0);
    const char *how;
    /* VGG-16's convolutions of 512 channels: 64 images of 28 x 28 */
    const int64_t flops = INT64_C(2) * 64 * 28 * 28 * 512 * 512 * 9,
                  bytes = INT64_C(4) * (2 * 64 * 28 * 28 * 512 + 512 * 512 * 9);
    const int64_t ps = nnc_sim_op_ps(&k,
        &(nnc_sim_op){.op_class = "conv3x3", .dtype = DT_f32, .flops = flops, .bytes = bytes},
        &how);
    CHECK_STR(how, "compute");
    const double tflops = (double)flops / (double)ps;
    CHECK(tflops > 21 && tflops < 31); /* Winograd: more than the peak, as measured */
    /* ... and of 64 channels, 224 x 224: bound by its transforms, 46.2 ms of 128 images */
    const int64_t wide = nnc_sim_op_ps(&k,
        &(nnc_sim_op){.op_class = "conv3x3",
            .dtype = DT_f32,
            .flops = INT64_C(2) * 128 * 224 * 224 * 64 * 64 * 9,
            .bytes = INT64_C(4) * 2 * 128 * 224 * 224 * 64},
        &how);
    CHECK_STR(how, "memory");
    CHECK(wide > INT64_C(30000000000) && wide < INT64_C(60000000000));
    const int64_t relu = nnc_sim_op_ps(
        &k, &(nnc_sim_op){.op_class = "ewise", .dtype = DT_f32, .bytes = 1600000000}, &how);
    CHECK_STR(how, "memory");
    CHECK_NEAR((double)relu * 1e-12, 1.6e9 / 739e9, 1e-5);
    /* Without tensor cores f16 is computed in f32, and a V100 has none for bf16. */
    nnc_sim_op product = {.op_class = "matmul", .dtype = DT_f32, .flops = INT64_C(100000000000)};
    const int64_t f32 = nnc_sim_op_ps(&k, &product, NULL);
    product.dtype = DT_bf16;
    CHECK_INT(nnc_sim_op_ps(&k, &product, NULL), f32);
    product.dtype = DT_f16;
    CHECK(nnc_sim_op_ps(&k, &product, NULL) * 6 < f32);
    nnc_cluster *pascal = nnc_cluster_load("models/hardware/gtx1080ti_x2.json", test_sink);
    const nnc_cluster_kind *p = pascal ? nnc_cluster_kind_of(pascal, 0) : &k;
    const int64_t half = nnc_sim_op_ps(p, &product, NULL);
    product.dtype = DT_f32;
    CHECK_INT(nnc_sim_op_ps(p, &product, NULL), half);
    nnc_cluster_destroy(pascal);
    /* One block more than a wave takes two. */
    nnc_sim_op wave = {.op_class = "matmul", .dtype = DT_f32, .flops = 100000000000, .blocks = 80};
    const int64_t one = nnc_sim_op_ps(&k, &wave, NULL);
    wave.blocks = 81;
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &wave, NULL) / (double)one, 160.0 / 81, 0.01);
    /* A table wins over the roofline, and is interpolated in log(work). */
    nnc_point points[] = {{1000000, 10000}, {100000000, 1000000}};
    nnc_op_speed row = {.op_class = "conv", .any_dtype = true, .n_point = 2, .point = points};
    k.op = &row;
    k.n_op = 1;
    const nnc_sim_op conv = {.op_class = "conv1x1", .dtype = DT_f32, .flops = 10000000};
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &conv, &how) * 1e-3, 100000, 1);
    CHECK_STR(how, "table");
    nnc_cluster_destroy(c);
}

/* Tables of contractions go by FLOPs, those of other classes by bytes; what points do not replace is a lower bound where it is given. */
TEST(measured_tables)
{
    nnc_cluster *c = nnc_cluster_load("models/hardware/cpu.json", test_sink);
    nnc_cluster_kind k = *nnc_cluster_kind_of(c, 0);
    nnc_point conv[] = {{1000000, 10000}, {100000000, 1000000}},
              moves[] = {{1000, 1000}, {100000, 10000}};
    nnc_op_speed row[] = {
        {.op_class = "conv3x3", .any_dtype = true, .n_point = 2, .point = conv, .contention = 1.5},
        {.op_class = "ewise", .any_dtype = true, .n_point = 2, .point = moves}};
    k.op = row;
    k.n_op = 2;
    nnc_sim_op x = {.op_class = "conv3x3", .dtype = DT_f32, .flops = 10000000, .bytes = 12000000};
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 100000, 1);
    row[0].memory = 1; /* 12 MB at 12 GB/s */
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 1000000, 1);
    row[0].memory = 0;
    CHECK_NEAR(nnc_sim_op_contention(&k, &x), 1.5, 0);
    /* The gradient of its weights has no row of its own. */
    x.op_class = "conv3x3_wgrad";
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 100000, 1);
    nnc_sim_op y = {.op_class = "ewise", .dtype = DT_f32, .flops = 1600000, .bytes = 10000};
    const char *how;
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &y, &how) * 1e-3, 3162.3, 0.1); /* halfway in log scale */
    CHECK_STR(how, "table");
    row[1].efficiency = 0.5; /* 1.6 MFLOP at half of 160 GFLOP/s */
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &y, NULL) * 1e-3, 20000, 0.1);
    CHECK_NEAR(nnc_sim_op_contention(&k, &y), 1, 0);
    /* Few FLOPs for its bytes: by the table of bytes, where there is one. */
    nnc_op_speed thin[] = {row[0], row[1]};
    thin[1].op_class = "conv3x3_wgrad_thin";
    k.op = thin;
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 10000 * 120.0, 1);
    x.flops = 100000000; /* 8.3 a byte */
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 1000000, 1);
    /* In a plan that trains, by the row of such plans, or else by the other. */
    x.trains = true;
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 1000000, 1);
    thin[1].op_class = "conv3x3_wgrad_step";
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 1000000 * 10.0, 1);
    x.trains = false;
    CHECK_NEAR((double)nnc_sim_op_ps(&k, &x, NULL) * 1e-3, 1000000, 1);
    CHECK(!nnc_sim_class_contracts("conv_thin_step") && nnc_sim_class_contracts("conv_step"));
    CHECK(!nnc_sim_class_contracts("conv_thin") && nnc_sim_class_contracts("conv"));
    CHECK(nnc_sim_class_contracts("conv3x3_wgrad") && nnc_sim_class_contracts("winograd"));
    CHECK(!nnc_sim_class_contracts("ewise") && !nnc_sim_class_contracts("reduce"));
    nnc_cluster_destroy(c);
}

/* Rows of tf32 are of ops that may use it, which take those of f32 where there are none; strict f32 takes no row of tf32. */
TEST(tables_of_tf32)
{
    static const char json[] =
        "{\"name\": \"x\", \"devices\": [{\"count\": 1, \"target\": \"cuda:sm_90\", \"run_ns\": "
        "7000, \"host_ns\": 3000, \"ops\": [{\"class\": \"conv\", \"dtype\": \"tf32\", \"memory\": "
        "0.5, "
        "\"points\": [[1000000, 100]]}, {\"class\": \"conv\", \"dtype\": \"f32\", \"points\": "
        "[[1000000, 800]]}, {\"class\": \"matmul\", \"dtype\": \"f32\", \"points\": [[1000000, "
        "500]]}],"
        " \"machine\": {\"copy_bytes_s\": 1000000000000}}], \"sockets\": {\"count\": 1, "
        "\"memory_bytes_s\": 1}, \"pcie\": {\"bytes_s\": 1, \"pageable_bytes_s\": 1, \"p2p\": "
        "\"none\", \"switches\": [{\"devices\": [0]}]}, \"collectives\": {\"base_ns\": 0, "
        "\"hop_ns\": 0}}";
    nnc_cluster *c = nnc_cluster_parse("x", json, sizeof json - 1, test_sink);
    CHECK(c != NULL);
    if (!c)
        return;
    const nnc_cluster_kind *k = nnc_cluster_kind_of(c, 0);
    CHECK_INT(k->run_ns, 7000);
    CHECK_INT(k->host_ns, 3000);
    nnc_sim_op x = {.op_class = "conv1x1", .dtype = DT_f32, .flops = 1000000, .tf32 = true};
    CHECK_INT(nnc_sim_op_ps(k, &x, NULL), 100000);
    x.bytes = 1000000; /* 2 us at half of 1000 GB/s, and 1 us of the epilogue */
    x.epilogue_bytes = 1000000;
    CHECK_NEAR((double)nnc_sim_op_ps(k, &x, NULL), 3000000, 1);
    x.tf32 = false;
    CHECK_INT(nnc_sim_op_ps(k, &x, NULL), 800000);
    x.op_class = "matmul";
    x.tf32 = true;
    CHECK_INT(nnc_sim_op_ps(k, &x, NULL), 500000);
    nnc_cluster_destroy(c);
}

/* The file of four CPU ranks with further members of its sockets. */
static nnc_cluster *ranks_with(const char *members)
{
    NNC_LOCAL(nnc_text) json = {0};
    char *text;
    size_t n;
    CHECK_OK(nnc_file_read("models/hardware/cpu.json", 0, &text, &n, test_sink));
    const char *at = strstr(text, "\"latency_ns\": 2000\n");
    CHECK(at != NULL);
    nnc_putn(&json, text, (size_t)(at - text));
    nnc_printf(&json, "%s, ", members);
    nnc_puts(&json, at);
    nnc_free(text);
    return nnc_cluster_parse("cores", nnc_text_str(&json), json.n, test_sink);
}

/* Devices that compute at the same time share the host's cores; one that waits takes none. */
TEST(devices_share_cores)
{
    nnc_cluster *c = ranks_with("\"cores\": 2");
    CHECK(c != NULL);
    for (int n = 1; c && n <= 4; n++)
        for (int contention = 2; contention <= 3; contention++) { /* halves */
            nnc_sim *s = nnc_sim_create(c, 0);
            for (int d = 0; d < n; d++) {
                const int32_t lane = nnc_sim_lane(s, d);
                (void)nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_op,
                                         .name = "op",
                                         .device = d,
                                         .n_lane = 1,
                                         .lane = &lane,
                                         .work_ps = PS(6),
                                         .cores = contention / 2.0});
            }
            CHECK_OK(nnc_sim_run(s, test_sink));
            const double asked = n * contention / 2.0, slower = asked > 2 ? asked / 2 : 1;
            CHECK_NEAR((double)nnc_sim_end_ps(s), (double)PS(6) * slower, 2);
            nnc_sim_destroy(s);
        }
    nnc_cluster_destroy(c);
}

/* A device that has waited goes on late, in proportion to its wait up to a limit; one that has not waited at once. */
TEST(devices_wake_late)
{
    static const struct {
        bool polls; /* at once below 20 us, a quarter at least beyond */
        int64_t first_us, own_us, late_us;
    } cases[] = {{false, 10, 0, 1}, {false, 50, 0, 5}, {false, 500, 0, 10}, {false, 50, 40, 1},
        {false, 50, 60, 0}, {true, 10, 0, 0}, {true, 20, 0, 3}, {true, 50, 0, 6},
        {true, 99, 80, 0}};
    nnc_cluster *of[] = {ranks_with("\"wake_ns\": 10000, \"wake_after_ns\": 100000"),
        ranks_with("\"wake_ns\": 12000, \"wake_after_ns\": 100000, \"wake_from_ns\": 20000")};
    CHECK(of[0] && of[1]);
    for (size_t i = 0; of[0] && of[1] && i < NNC_COUNT(cases); i++) {
        const nnc_cluster *c = of[cases[i].polls];
        nnc_sim *s = nnc_sim_create(c, 0);
        const int a = nnc_sim_lane(s, 0), b = nnc_sim_lane(s, 1);
        const int x = op(s, a, 0, cases[i].first_us, -1);
        if (cases[i].own_us)
            (void)op(s, b, 1, cases[i].own_us, -1);
        const int wait = nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_event,
                                            .name = "wait",
                                            .device = 1,
                                            .wakes = true,
                                            .n_lane = 1,
                                            .lane = (int32_t[]){b},
                                            .n_dep = 1,
                                            .dep = (int32_t[]){x}});
        CHECK_OK(nnc_sim_run(s, test_sink));
        const int64_t come = nnc_max64(cases[i].first_us, cases[i].own_us);
        CHECK_INT(nnc_sim_span_of(s, wait).end_ps, PS(come + cases[i].late_us));
        nnc_sim_destroy(s);
    }
    nnc_cluster_destroy(of[0]);
    nnc_cluster_destroy(of[1]);
}

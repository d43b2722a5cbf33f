/* tests/cluster/times.c -- times of transfers and collectives: against measured tables, and by hand. */
#include "help.h"
#include "test.h"
#include <math.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

nnc_cluster *hardware(const char *name)
{
    char file[128];
    snprintf(file, sizeof file, "models/hardware/%s.json", name);
    nnc_cluster *c = nnc_cluster_load(file, test_sink);
    if (!c) {
        test_fail(__FILE__, __LINE__, "%s does not load", file);
        nnc_sink_print(test_sink, stderr);
    }
    return c;
}

double collective_us(const nnc_cluster *c, nnc_group_op kind, int n, int64_t bytes)
{
    int32_t device[2048];
    for (int i = 0; i < n && i < 2048; i++)
        device[i] = i;
    return (double)nnc_cluster_collective_ps(c, kind, device, n, bytes) * 1e-6;
}

/* Allreduces of 1, 4, 16, 64, 256 and 1024 MiB on the first 2..8 GPUs, nanoseconds: vTrain, trace/<gpu>/AR_GPU<n>_1M_1024M_LUT
 * (copyright 2024 VIA Research Group at KAIST, MIT licence). */
enum { SIZES = 6 };
static const int64_t mib[SIZES] = {1, 4, 16, 64, 256, 1024};
static const int v100[7][SIZES] = {{70140, 208600, 764100, 2998900, 11915000, 47610000},
    {75040, 148900, 518200, 2003900, 7949500, 31714000},
    {67260, 142100, 324200, 1202100, 4714000, 18869000},
    {90870, 220800, 759400, 2953300, 11647000, 46223000},
    {99480, 194700, 635900, 2471400, 9803200, 39121000},
    {81740, 157800, 365700, 1365700, 5343600, 21156000},
    {79930, 150900, 273800, 911300, 3527400, 13969000}};
static const int a100[7][SIZES] = {{44210, 61180, 131900, 404700, 1455800, 5442800},
    {63910, 79230, 155000, 500300, 1786000, 6757100},
    {51400, 77320, 179600, 543800, 1929000, 7259400},
    {62770, 78620, 198800, 568300, 2037000, 7653200},
    {73000, 82550, 203200, 565700, 2115900, 7883300},
    {77960, 84180, 227600, 599900, 2190900, 8112800},
    {92790, 95800, 232400, 579900, 2162300, 8193000}};

typedef struct errors {
    double mean, worst, large;
} errors; /* percent; large: the worst from 64 MiB on */

static errors against(const char *name, const int table[7][SIZES])
{
    nnc_cluster *c = hardware(name);
    errors e = {0};
    for (int n = 2; c && n <= 8; n++) {
        printf("    %s allreduce on %d:", name, n);
        for (int s = 0; s < SIZES; s++) {
            const double us = collective_us(c, GROUP_allreduce, n, mib[s] * MIB);
            const double error = (us / (table[n - 2][s] * 1e-3) - 1) * 100;
            printf(" %lld MiB %+.1f%%", (long long)mib[s], error);
            e.mean += fabs(error) / (7 * SIZES);
            e.worst = fmax(e.worst, fabs(error));
            e.large = fmax(e.large, mib[s] >= 64 ? fabs(error) : 0);
        }
        printf("\n");
    }
    printf("    %s: mean %.1f %%, worst %.1f %%, worst from 64 MiB on %.1f %%\n", name, e.mean,
        e.worst, e.large);
    nnc_cluster_destroy(c);
    return e;
}

TEST(allreduce_against_measured_v100)
{
    const errors e = against("v100x8", v100);
    CHECK(e.mean > 0.1 && e.mean < 5);
    CHECK(e.large < 6);
    CHECK(e.worst < 25);
}

TEST(allreduce_against_measured_a100)
{
    const errors e = against("a100x8", a100);
    CHECK(e.mean > 0.1 && e.mean < 8);
    CHECK(e.large < 6);
    CHECK(e.worst < 30);
}

/* Bus bandwidth of 1 GiB on the first n GPUs of a DGX-1 is not monotone in n, since the number of rings is not. */
TEST(rings_of_a_hybrid_cube_mesh)
{
    static const int rings[] = {1, 2, 4, 2, 2, 4, 6};
    static const double busbw[] = {22.6, 45.2, 85.8, 37.1, 45.9, 87.6, 136};
    nnc_cluster *c = hardware("v100x8");
    int32_t device[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int n = 2; c && n <= 8; n++) {
        bool relayed;
        CHECK_INT(nnc_cluster_rings(c, device, n, &relayed), rings[n - 2]);
        CHECK(relayed == (n == 5));
        const double us = collective_us(c, GROUP_allreduce, n, 1024 * MIB);
        const double got = 2.0 * (n - 1) / n * 1024 * (double)MIB / us * 1e-3;
        if (fabs(got / busbw[n - 2] - 1) > 0.06)
            test_fail(__FILE__, __LINE__, "busbw of %d GPUs is %.1f GB/s, measured %.1f", n, got,
                busbw[n - 2]);
    }
    bool relayed;
    const int32_t other[] = {0, 3}, opposite[] = {0, 5}, quad[] = {4, 5, 6, 7};
    CHECK_INT(nnc_cluster_rings(c, other, 2, &relayed), 2);
    CHECK_INT(nnc_cluster_rings(c, opposite, 2, &relayed), 0);
    CHECK_INT(nnc_cluster_rings(c, quad, 4, &relayed), 4);
    nnc_cluster_destroy(c);
}

/* Rings share no link: no directed link carries more than one ring for each NVLink of its pair. */
TEST(rings_share_no_link)
{
    nnc_cluster *c = hardware("v100x8");
    for (unsigned set = 0; c && set < 256; set++) {
        int32_t device[8];
        int n = 0;
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_transfer t;
        bool relayed;
        for (int d = 0; d < 8; d++)
            if (set >> d & 1)
                device[n++] = d;
        const int k = n > 1 ? nnc_cluster_rings(c, device, n, &relayed) : 0;
        if (!k)
            continue;
        CHECK_OK(nnc_cluster_collective(c, GROUP_broadcast, device, n, MIB, &t, &a, test_sink));
        double hops = 0;
        for (int i = 0; i < t.n_use; i++) { /* a broadcast moves 1/k of the payload on each ring */
            const nnc_link *l = &c->link[t.use[i].link];
            CHECK_INT(l->kind, LINK_nvlink);
            CHECK(t.use[i].weight * k <= (double)l->bytes_s / 22.6e9 + 1e-9);
            hops += t.use[i].weight * k;
        }
        CHECK(hops >= (double)k * n - 1e-6);
    }
    nnc_cluster_destroy(c);
}

/* The most links that a file may give a pair: so many rings, on two devices and on three. */
TEST(as_many_rings_as_links)
{
    static const char pairs[] = "\"pairs\": [";
    const int32_t device[] = {0, 1, 2};
    char *text;
    size_t n;
    bool relayed;
    NNC_LOCAL(nnc_text) with = {0};
    CHECK_OK(nnc_file_read("models/hardware/v100x8.json", 0, &text, &n, test_sink));
    const char *from = strstr(text, pairs), *to = from ? strstr(from, "\n        ]") : NULL;
    CHECK(from && to);
    nnc_putn(&with, text, (size_t)(from - text) + sizeof pairs - 1);
    nnc_printf(&with, "[0, 1, 36], [1, 2, 36], [0, 2, 36]%s", to);
    nnc_cluster *c = nnc_cluster_parse("h.json", nnc_text_str(&with), with.n, test_sink);
    CHECK(c != NULL);
    if (c) {
        CHECK_INT(nnc_cluster_rings(c, device, 2, &relayed), 36);
        CHECK_INT(nnc_cluster_rings(c, device, 3, &relayed), 36);
        CHECK(collective_us(c, GROUP_allreduce, 2, MIB) > 0);
    }
    nnc_cluster_destroy(c);
    nnc_free(text);
}

TEST(point_to_point_by_hand)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_transfer t;
    nnc_cluster *c = hardware("v100x8");
    CHECK_OK(nnc_cluster_p2p(c, 0, 3, &t, &a, test_sink)); /* two NVLinks */
    CHECK_STR(t.how, "nvlink");
    CHECK_NEAR(t.bytes_s, 45.2e9, 1);
    CHECK_INT(nnc_transfer_ps(&t, 45200), 2000 * 1000 + 1000 * 1000);
    CHECK_OK(nnc_cluster_p2p(c, 0, 5, &t, &a, test_sink)); /* no link; other switch and socket */
    CHECK_STR(t.how, "host-staged");
    CHECK_NEAR(t.bytes_s, 12e9 * 0.8, 1);
    CHECK_INT(t.latency_ps, (8000 + 1000 + 20000) * 1000);
    CHECK_OK(nnc_cluster_p2p(c, NNC_HOST, 5, &t, &a, test_sink));
    CHECK_STR(t.how, "pcie");
    CHECK_INT(t.n_use, 3); /* memory, switch, lanes */
    CHECK_OK(nnc_cluster_p2p(c, 2, 2, &t, &a, test_sink));
    CHECK_STR(t.how, "local");
    CHECK_INT(nnc_cluster_p2p(c, 0, 8, &t, &a, test_sink), NNC_E_USAGE);
    CHECK_DIAG("there is no device 8");
    CHECK_INT(nnc_cluster_p2p(c, NNC_HOST, NNC_HOST, &t, &a, test_sink), NNC_E_USAGE);
    nnc_cluster_destroy(c);
    c = hardware("gtx1080ti_x2");
    CHECK_OK(nnc_cluster_p2p(c, 0, 1, &t, &a, test_sink));
    CHECK_STR(t.how, "pcie");
    nnc_cluster_destroy(c);
    c = hardware("cpu");
    CHECK_OK(nnc_cluster_p2p(c, 0, 1, &t, &a, test_sink));
    CHECK_STR(t.how, "host memory");
    CHECK_NEAR(t.bytes_s, 5e9, 1);
    CHECK_INT(t.n_use, 1); /* written and read: twice the bytes */
    CHECK_NEAR(t.use[0].weight, 2, 1e-12);
    nnc_cluster_destroy(c);
    c = hardware("h100x1024");
    CHECK_OK(nnc_cluster_p2p(c, 3, 8 * 77 + 5, &t, &a, test_sink));
    CHECK_STR(t.how, "network");
    CHECK_NEAR(t.bytes_s, 48.5e9, 1);
    NNC_LOCAL(nnc_text) name = {0};
    nnc_cluster_link_name(c, t.use[0].link, &name);
    CHECK_STR(nnc_text_str(&name), "node 0: nic 3, out");
    nnc_cluster_destroy(c);
}

/* The transfer never promises more than its links have. */
static void check_uses(const nnc_cluster *c, const nnc_transfer *t)
{
    for (int i = 0; i < t->n_use; i++)
        if (t->bytes_s * t->use[i].weight > (double)c->link[t->use[i].link].bytes_s * (1 + 1e-9))
            test_fail(__FILE__, __LINE__, "%s: %s takes %g of link %d's %lld bytes/s", c->name,
                t->how, t->bytes_s * t->use[i].weight, t->use[i].link,
                (long long)c->link[t->use[i].link].bytes_s);
}

static const char *const all[] = {"gtx1080ti_x2", "v100x8", "a100x8", "h100x8", "h200x8",
    "h100x1024", "p100x8", "p40x8", "k80x8", "cpu"};

/* Larger is slower; no link is overbooked; in a node, a reduce-scatter is not slower than an allreduce. */
TEST(collectives_everywhere)
{
    for (size_t m = 0; m < NNC_COUNT(all); m++) {
        nnc_cluster *c = hardware(all[m]);
        for (int n = 2; c && n <= c->n_device && n <= 64; n = n < 8 ? n + 1 : 2 * n) {
            int32_t device[64];
            for (int i = 0; i < n; i++)
                device[i] = n <= 8 ? (i * 3) % c->per_node : i;
            for (int i = 0; i < n; i++)
                device[i] = n <= c->per_node && n <= 8 ? i : device[i];
            for (int kind = 0; kind < GROUP__COUNT; kind++) {
                NNC_LOCAL(nnc_arena) a = {0};
                nnc_transfer t;
                int64_t before = 0;
                for (int64_t bytes = 1024; bytes <= 4096 * MIB; bytes *= 8) {
                    CHECK_OK(nnc_cluster_collective(
                        c, (nnc_group_op)kind, device, n, bytes, &t, &a, test_sink));
                    check_uses(c, &t);
                    CHECK(nnc_transfer_ps(&t, bytes) >= before);
                    before = nnc_transfer_ps(&t, bytes);
                }
            }
            if (n <= c->per_node) /* over nodes, NCCL has trees for an allreduce only */
                CHECK(collective_us(c, GROUP_reduce_scatter, n, 64 * MIB) <=
                      collective_us(c, GROUP_allreduce, n, 64 * MIB));
        }
        nnc_cluster_destroy(c);
    }
}

TEST(collectives_over_nodes)
{
    nnc_cluster *c = hardware("h100x1024");
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_transfer t;
    int32_t every[1024], rail[128];
    for (int i = 0; i < 1024; i++)
        every[i] = i;
    for (int i = 0; i < 128; i++)
        rail[i] = 8 * i;
    CHECK_OK(nnc_cluster_collective(c, GROUP_allreduce, every, 8, 1024 * MIB, &t, &a, test_sink));
    CHECK_STR(t.how, "in-switch");
    /* A gathered tensor over rings through all NICs: SimAI's shares of their rate at 1 GiB. */
    static const double share[] = {.92, .93, .9, .76, .74, .563, .314575};
    for (int k = 0; k < 7; k++) {
        const int n = 16 << k;
        CHECK_OK(
            nnc_cluster_collective(c, GROUP_allgather, every, n, 1024 * MIB, &t, &a, test_sink));
        const double table =
            1073741824.0 * (n - 1) / n / fmin(370.8e9, 8 * 48.5e9 * share[k]) * 1e12;
        const double ratio = (double)nnc_transfer_ps(&t, 1024 * MIB) / table;
        printf("    allgather of 1 GiB on %d nodes: %s, %.3f of the time by the table\n", 2 << k,
            t.how, ratio);
        CHECK(ratio > 0.7 && ratio < 1.02); /* hierarchical may be faster than NCCL's ring */
    }
    /* One GPU of each node has one NIC: slower than with all eight, whose smaller steps reach 0.31 of the rate. */
    const int64_t one = nnc_cluster_collective_ps(c, GROUP_allreduce, rail, 128, 1024 * MIB);
    const int64_t eight = nnc_cluster_collective_ps(c, GROUP_allreduce, every, 1024, 1024 * MIB);
    CHECK(one > 2 * eight);
    /* Its steps are as long as those of 64 times the bytes on all devices: 0.919 of the rate. */
    const double share_of_16_gib = 1073741824.0 * 127 / 128 / (48.5e9 * .919175) * 1e12;
    const int64_t gathered = nnc_cluster_collective_ps(c, GROUP_allgather, rail, 128, 1024 * MIB);
    CHECK((double)gathered > share_of_16_gib && (double)gathered < 1.01 * share_of_16_gib);
    /* 1,024 GPUs reduce a kilobyte by a tree: some dozen hops, not two thousand. */
    CHECK_OK(nnc_cluster_collective(c, GROUP_allreduce, every, 1024, 1024, &t, &a, test_sink));
    CHECK(nnc_transfer_ps(&t, 1024) < INT64_C(500000000));
    every[5] = 6;
    CHECK_INT(
        nnc_cluster_collective(c, GROUP_allreduce, every, 8, 1, &t, &a, test_sink), NNC_E_USAGE);
    CHECK_DIAG("device 6 takes part twice in one allreduce");
    nnc_cluster_destroy(c);
}

TEST(targets_of_devices)
{
    nnc_cluster *c = hardware("a100x8");
    const nnc_target *t = nnc_cluster_target(c, 7);
    CHECK_STR(t->name, "cuda:sm_80");
    CHECK_STR(t->card, "A100 SXM4 40GB");
    CHECK_INT(t->memory_bytes, INT64_C(40441) * MIB);
    CHECK_INT(t->cores, t->sms);
    CHECK_INT(nnc_cluster_kind_of(c, 0)->flops[DT_bf16], INT64_C(312000000000000));
    CHECK_INT(nnc_cluster_usable_bytes(c, 0), (INT64_C(40441) - 600) * MIB);
    nnc_cluster_destroy(c);
    c = hardware("v100x8");
    CHECK_INT(nnc_cluster_kind_of(c, 0)->flops[DT_bf16], 0);
    nnc_cluster_destroy(c);
}

/* Device memory of NCCL's buffers: by channels of the fabric. Twice that for allreduces of more than two, which have trees, and for heads
 * in the switch. */
TEST(buffers_of_nccl)
{
    static const struct {
        const char *file;
        int n;
        bool allreduce;
        int mib;
    } cases[] = {{"gtx1080ti_x2", 2, true, 24}, {"v100x8", 8, false, 144}, {"v100x8", 8, true, 288},
        {"a100x8", 8, false, 288}, {"a100x8", 8, true, 576}, {"a100x8", 2, true, 288},
        {"h100x8", 8, true, 832}, {"h100x8", 4, true, 704}, {"h100x8", 4, false, 288},
        {"h100x1024", 16, true, 640}, {"p40x8", 8, true, 48}};
    int32_t device[16];
    for (int i = 0; i < 16; i++)
        device[i] = i;
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_cluster *c = hardware(cases[i].file);
        CHECK_INT(
            nnc_group_buffers(c, nnc_cluster_target(c, 0), device, cases[i].n, cases[i].allreduce) /
                MIB,
            cases[i].mib);
        nnc_cluster_destroy(c);
    }
    nnc_cluster *c = hardware("h100x1024");
    const nnc_target *t = nnc_cluster_target(c, 0);
    CHECK_INT(nnc_peer_buffers(c, t, 0, 7, true) / MIB, 320);
    CHECK_INT(nnc_peer_buffers(c, t, 0, 7, false) / MIB, 64);
    CHECK_INT(nnc_peer_buffers(c, t, 0, 8, true) / MIB, 20);
    /* without a file: one node with a switch */
    CHECK_INT(nnc_group_buffers(NULL, t, device, 8, true) / MIB, 832);
    nnc_cluster_destroy(c);
}

/* What a calibration writes: points of collectives and of ops. */
TEST(measured_points)
{
    static const char *const changes[][2] = {
        {"\"hop_ns\": 2000", "\"hop_ns\": 2000, \"measured\": [{\"collective\": \"allreduce\", "
                             "\"devices\": 2, \"points\": "
                             "[[1000, 5000], [1000000, 500000], [10000000, 6000000]]}]"},
        {"\"count\": 4", "\"count\": 4, \"overlap\": 1.5, \"ops\": [{\"class\": \"matmul\", "
                         "\"dtype\": \"f32\", \"points\": "
                         "[[1000, 20], [1000000, 9000]]}, {\"class\": \"conv\", \"efficiency\": "
                         "0.5, \"ramp_ns\": 7}]"}};
    NNC_LOCAL(nnc_text) json = {0};
    char *text, *p;
    size_t n;
    CHECK_OK(nnc_file_read("models/hardware/cpu.json", 0, &text, &n, test_sink));
    p = text;
    for (int i = 1; i >= 0; i--) { /* in the order of the file */
        char *at = strstr(p, changes[i][0]);
        CHECK(at != NULL);
        if (!at)
            break;
        nnc_putn(&json, p, (size_t)(at - p));
        nnc_puts(&json, changes[i][1]);
        p = at + strlen(changes[i][0]);
    }
    nnc_puts(&json, p);
    nnc_cluster *c = nnc_cluster_parse("measured", nnc_text_str(&json), json.n, test_sink);
    CHECK(c != NULL);
    if (c) {
        CHECK_NEAR(collective_us(c, GROUP_allreduce, 2, 1000), 5, 0.001);
        CHECK_NEAR(collective_us(c, GROUP_allreduce, 2, 1000000), 500, 0.001);
        CHECK_NEAR(
            collective_us(c, GROUP_allreduce, 2, 31623), 50, 0.01); /* halfway in log scale */
        CHECK_NEAR(collective_us(c, GROUP_allreduce, 2, 20000000), 12000, 0.01);
        const double three = collective_us(c, GROUP_allreduce, 3, 1000000); /* by the model */
        CHECK(three > 2 + 2 * 4 && three < 500);
        const nnc_cluster_kind *k = nnc_cluster_kind_of(c, 3);
        CHECK_INT(k->n_op, 2);
        CHECK(k->op[0].n_point == 2 && k->op[0].point[1].ns == 9000 && !k->op[0].any_dtype);
        CHECK(k->op[0].efficiency == 0 && k->op[0].memory == 0); /* points alone */
        CHECK(k->op[1].any_dtype && k->op[1].ramp_ns == 7 && k->op[1].efficiency == 0.5);
        CHECK(k->op[1].memory == 1 && k->command_ns == -1 && nnc_cluster_host_of(c).cores == 0);
        CHECK_NEAR(k->overlap, 1.5, 0);
    }
    nnc_cluster_destroy(c);
    nnc_free(text);
}

/* tests/sim/torchgpipe.c -- a pipeline on described hardware against published throughput: ResNet-101 cut over 1 to 8 P40 by torchgpipe,
 * with its balances and micro-batches. Times of the stages are those of nnc's unfused training step on the described P40; nothing was
 * fitted to a P40 or to a pipeline. */
#include "session/session.h"
#include "sim/sim.h"
#include "train/train.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

/* docs/benchmarks.rst, "ResNet-101 Speed Benchmark"; balances, batches and chunks: benchmarks/resnet101-speed/main.py (torchgpipe,
 * Apache-2.0). The sequence has 370 layers: four of the stem, eleven of each of 33 blocks, three at the end. */
static const struct {
    int p, batch, chunks, balance[8];
    double images_s;
} published[] = {
    {1, 220, 2, {370}, 81.796},
    {2, 25000, 1667, {135, 235}, 135.539},
    {4, 5632, 256, {44, 92, 124, 110}, 265.958},
    {8, 5400, 150, {26, 22, 33, 44, 44, 66, 66, 69}, 411.662},
};

/* Position in torchgpipe's sequence of a layer of models/resnet101.json; a block is identity, conv1, bn1, relu, conv2, bn2, relu, conv3,
 * bn3, residual, relu there, and has its downsampling in the residual. */
static int position(const char *path)
{
    static const int first[] = {0, 3, 7, 30}, in_block[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10};
    int stem, group, block, part;
    if (sscanf(path, "/layers/%*d/layer%d[%d]/%d/", &group, &block, &part) == 3 && group >= 1 &&
        group <= 4 && part <= 10)
        return 4 + 11 * (first[group - 1] + block) + in_block[part];
    if (sscanf(path, "/layers/%d/", &stem) == 1 && stem < 4)
        return stem;
    return 369;
}

typedef struct stages {
    int64_t f_ps[8], b_ps[8];
} stages;

/* Times of the stages' commands, forwards and backwards, for one micro-batch. */
static bool stage_times(const nnc_cluster *c, int p, const int *balance, int batch, stages *out)
{
    char text[16];
    nnc_open_options open = nnc_open_defaults;
    nnc_compile_options o = nnc_compile_defaults;
    const nnc_env_options env = {.target = "cuda:sm_61", .no_cache = true};
    const nnc_training t = nnc_training_defaults;
    nnc_env *e = NULL;
    nnc_model *step = NULL;
    nnc_artifact *a = NULL;
    nnc_sim_plan s;
    snprintf(text, sizeof text, "%d", batch);
    const nnc_arg arg = {"batch", text};
    open.arg = &arg;
    open.n_arg = 1;
    open.trains = true;
    o.level = 0;
    *out = (stages){0};
    nnc_status st = nnc_env_create(&env, &e, test_sink);
    nnc_model *m = st ? NULL : nnc_model_open("models/resnet101.json", &open, test_sink);
    st = m ? nnc_train_graph(m, &t, &step, test_sink) : NNC_E_MODEL;
    if (!st)
        st = nnc_compile(e, step, &o, &a, test_sink);
    const nnc_plan *plan = st ? NULL : nnc_artifact_plan(a);
    if (!st)
        st = nnc_sim_plan_run(
            &s, plan, c, &(nnc_sim_plan_options){.first = SEC_main, .last = SEC_step}, test_sink);
    for (int i = 0; !st && i < s.n_cmd; i++) {
        const nnc_cmd *x = &plan->cmd[s.first + i];
        int at = position(x->layers), stage = 0;
        while (stage < p - 1 && at >= balance[stage])
            at -= balance[stage++];
        const int64_t ps = s.span[i].end_ps - s.span[i].start_ps;
        if (strstr(x->layers, "/backward"))
            out->b_ps[stage] += ps;
        else if (s.first + i < plan->end[SEC_main]) /* the rest updates weights, once a batch */
            out->f_ps[stage] += ps;
    }
    if (!st)
        nnc_sim_plan_deinit(&s);
    nnc_artifact_destroy(a);
    nnc_model_close(step);
    nnc_model_close(m);
    nnc_env_destroy(e);
    return st == NNC_OK;
}

static int op(nnc_sim *s, int lane, int device, int64_t ps)
{
    return nnc_sim_add(s, &(nnc_sim_task){.kind = SIM_op,
                              .name = "stage",
                              .device = device,
                              .n_lane = 1,
                              .lane = &lane,
                              .work_ps = ps});
}

/* What crosses the cut before position `at`: the block's input and the tensor in it, of one micro-batch. */
static int64_t cut_bytes(int at, int batch)
{
    static const struct {
        int until;
        int64_t elements;
    } sizes[] = {{37, 802816}, {81, 401408}, {334, 200704}, {370, 100352}};
    int i = 0;
    while (i < 3 && at >= sizes[i].until)
        i++;
    return sizes[i].elements * 5 / 4 * batch * 4;
}

static void send(nnc_sim *s, int32_t from, int32_t to, int task, int next, int64_t bytes)
{
    const int copy = nnc_sim_copies(s,
        &(nnc_sim_task){.kind = SIM_transfer,
            .name = "copy",
            .device = from,
            .n_dep = 1,
            .dep = &task,
            .bytes = bytes},
        &from, &to, 1, test_sink);
    CHECK(copy >= 0 && nnc_sim_after(s, next, copy));
}

/* GPipe with recomputation of all micro-batches but the last, as torchgpipe does by default (checkpoint="except_last"). */
static int64_t gpipe_ps(
    const nnc_cluster *c, int p, int m, const int *balance, int batch, const stages *x)
{
    nnc_sim *s = nnc_sim_create(c, 0);
    int32_t *f = nnc_calloc((size_t)p * (size_t)m, sizeof *f),
            *b = nnc_calloc((size_t)p * (size_t)m, sizeof *b);
    int at = 0;
    for (int k = 0; k < p; k++) {
        const int lane = nnc_sim_lane(s, k);
        for (int i = 0; i < m; i++)
            f[k * m + i] = op(s, lane, k, x->f_ps[k]);
        for (int i = m - 1; i >= 0; i--)
            b[k * m + i] = op(s, lane, k, x->b_ps[k] + (i == m - 1 ? 0 : x->f_ps[k]));
    }
    for (int k = 0; k + 1 < p; k++) {
        at += balance[k];
        for (int i = 0; i < m; i++) {
            send(s, k, k + 1, f[k * m + i], f[(k + 1) * m + i], cut_bytes(at, batch));
            send(s, k + 1, k, b[(k + 1) * m + i], b[k * m + i], cut_bytes(at, batch));
        }
    }
    CHECK_OK(nnc_sim_run(s, test_sink));
    const int64_t end = nnc_sim_end_ps(s);
    nnc_sim_destroy(s);
    nnc_free(f);
    nnc_free(b);
    return end;
}

TEST(pipelines_of_resnet101)
{
    nnc_cluster *c = nnc_cluster_load("models/hardware/p40x8.json", test_sink);
    double one = 0, scaling = 0, ideal = 0;
    CHECK(c != NULL);
    for (size_t i = 0; c && i < NNC_COUNT(published); i++) {
        const int p = published[i].p, m = published[i].chunks,
                  batch = (published[i].batch + m - 1) / m;
        stages x;
        if (!stage_times(c, p, published[i].balance, batch, &x)) {
            test_fail(__FILE__, __LINE__, "no times of the stages");
            continue;
        }
        int64_t sum = 0, most = 0;
        for (int k = 0; k < p; k++) {
            sum += x.f_ps[k] + x.b_ps[k];
            most = nnc_max64(most, x.f_ps[k] + x.b_ps[k]);
        }
        const double rate = (double)batch * m /
                            ((double)gpipe_ps(c, p, m, published[i].balance, batch, &x) * 1e-12);
        one = i == 0 ? rate : one;
        const double want = published[i].images_s / published[0].images_s;
        printf("    %d P40, %d x %d images: %.1f images/s, published %.1f: %+.1f %%; speed-up "
               "%.2f, published %.2f: %+.1f %%; balance "
               "%.2f\n",
            p, m, batch, rate, published[i].images_s, (rate / published[i].images_s - 1) * 100,
            rate / one, want, (rate / one / want - 1) * 100, (double)sum / (double)(most * p));
        scaling += fabs(rate / one / want - 1) * 100 / 3;
        ideal += fabs(p * (double)m / (m + p - 1) / (2.0 / 2) / want - 1) * 100 / 3 * (p > 1);
    }
    printf(
        "    mean error of the speed-up: %.1f %%; of n m / (m + n - 1): %.1f %%\n", scaling, ideal);
    CHECK(scaling < 25);
    CHECK(scaling < ideal);
    nnc_cluster_destroy(c);
}

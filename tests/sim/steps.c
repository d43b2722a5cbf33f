/* tests/sim/steps.c -- whole training steps on described GPUs against published images per second. None of these numbers was used to
 * describe a machine or to fit a speed: the convolutions' speeds come from a V100's forward passes. */
#include "session/session.h"
#include "sim/sim.h"
#include "train/train.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

/* TensorFlow, docs_src/performance/benchmarks.md (May 2017, one GPU, synthetic data): DGX-1 P100, Amazon EC2 K80. torchgpipe,
 * docs/benchmarks.rst: ResNet-101 on a P40, baseline. */
static const struct {
    const char *hardware, *model, *batch;
    double images_s;
} published[] = {
    {"p100x8", "inception_v3", "64", 142},
    {"p100x8", "resnet50", "64", 219},
    {"p100x8", "vgg16", "64", 154},
    {"p100x8", "inception_v3", "32", 128},
    {"p100x8", "resnet50", "32", 195},
    {"p100x8", "vgg16", "32", 144},
    {"p40x8", "resnet101", "118", 95.862},
    {"k80x8", "inception_v3", "64", 30.8},
    {"k80x8", "resnet50", "64", 51.5},
    {"k80x8", "vgg16", "32", 36.3},
};

/* Images per second of a training step without fusion; 0: it failed. */
static double simulated(const nnc_cluster *c, const char *file, const char *batch)
{
    const nnc_arg arg = {"batch", batch};
    nnc_open_options open = nnc_open_defaults;
    nnc_compile_options o = nnc_compile_defaults;
    const nnc_env_options env = {.target = nnc_cluster_target(c, 0)->name, .no_cache = true};
    nnc_env *e = NULL;
    nnc_model *step = NULL;
    nnc_artifact *a = NULL;
    nnc_sim_plan s;
    double rate = 0;
    open.arg = &arg;
    open.n_arg = 1;
    open.trains = true;
    o.level = 0;
    nnc_status st = nnc_env_create(&env, &e, test_sink);
    nnc_model *m = st ? NULL : nnc_model_open(file, &open, test_sink);
    const nnc_training t = nnc_training_defaults;
    st = m ? nnc_train_graph(m, &t, &step, test_sink) : NNC_E_MODEL;
    if (!st)
        st = nnc_compile(e, step, &o, &a, test_sink);
    const nnc_sim_plan_options all = {.first = SEC_main, .last = SEC_step};
    if (!st && !nnc_sim_plan_run(&s, nnc_artifact_plan(a), c, &all, test_sink)) {
        rate = strtod(batch, NULL) / ((double)s.total_ps * 1e-12);
        nnc_sim_plan_deinit(&s);
    }
    nnc_artifact_destroy(a);
    nnc_model_close(step);
    nnc_model_close(m);
    nnc_env_destroy(e);
    return rate;
}

TEST(training_steps_of_published_machines)
{
    double error[3] = {0}, count[3] = {0}; /* P100, P40, K80 */
    for (size_t i = 0; i < NNC_COUNT(published); i++) {
        char hardware[80], model[80];
        snprintf(hardware, sizeof hardware, "models/hardware/%s.json", published[i].hardware);
        snprintf(model, sizeof model, "models/%s.json", published[i].model);
        nnc_cluster *c = nnc_cluster_load(hardware, test_sink);
        const double rate = c ? simulated(c, model, published[i].batch) : 0;
        const double off = (rate / published[i].images_s - 1) * 100;
        const int of = published[i].hardware[1] == '1'   ? 0
                       : published[i].hardware[0] == 'p' ? 1
                                                         : 2;
        printf("    %s, %s, %s images: %.1f images/s, published %.1f: %+.1f %%\n",
            published[i].hardware, published[i].model, published[i].batch, rate,
            published[i].images_s, off);
        CHECK(rate > 0);
        error[of] += fabs(off);
        count[of]++;
        nnc_cluster_destroy(c);
    }
    printf("    mean error: P100 %.1f %%, P40 %.1f %%, K80 %.1f %%\n", error[0] / count[0],
        error[1] / count[1], error[2] / count[2]);
    CHECK(error[0] / count[0] < 15);
    CHECK(error[1] / count[1] < 30);
    CHECK(
        error[2] / count[2] <
        60); /* at boost clock, which the published runs may not have had; an older cuDNN and architecture */
}

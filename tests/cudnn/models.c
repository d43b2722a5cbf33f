/* tests/cudnn/models.c -- every convolution of every model finds a plan of cuDNN for three GPUs that are not there, in every precision,
 * within the stated workspace: the bytes of its source and result, and 32 MiB. */
#include "frontend/frontend.h"
#include "golden.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "test.h"
#include <stdlib.h>

static const char *const models[] = {"conv", "conv_fc_stack", "efficientnet_b0", "vgg16"};
static const char *const gpus[] = {"cuda:sm_90", "cuda:sm_80", "cuda:sm_75"};

static nnc_status no_kernels(const nnc_plan *p, int item, void **handle, nnc_sink *sink)
{
    (void)p;
    (void)item;
    *handle = NULL;
    return nnc_fail0(sink, NNC_E_BUG, "plans are made here, not run");
}

static const nnc_engine kernels = {.name = "cuda", .version = "1", .load_kernel = no_kernels};

static nnc_plan *plan_for(const char *model, const char *gpu, nnc_precision precision)
{
    static const nnc_engine *const engine[] = {&nnc_engine_cudnn, &nnc_engine_cublaslt, &kernels};
    char file[64];
    nnc_target t;
    nnc_plan *p = NULL;
    snprintf(file, sizeof file, "models/%s.json", model);
    CHECK_OK(nnc_target_cuda(&t, gpu, test_sink));
    nnc_target_allow_tf32(&t, precision == NNC_PRECISION_tf32);
    nnc_graph *g = nnc_model_load(file, &(nnc_model_options){0}, test_sink);
    nnc_plan_options o = {
        .target = &t, .engine = engine, .n_engine = 3, .jobs = 1, .streams = 1, .devices = 1};
    CHECK(g != NULL);
    if (g) {
        nnc_pass_options po = {.level = 2, .target = &t, .precision = precision};
        CHECK_OK(nnc_passes_run(&g, &po, NULL, test_sink));
        CHECK_OK(nnc_plan_make(g, &o, &p, test_sink));
    }
    nnc_graph_destroy(g);
    nnc_target_deinit(&t);
    return p;
}

static void put_convs(
    nnc_text *out, const nnc_plan *p, const char *model, const char *gpu, nnc_precision precision)
{
    const bool turing = !strcmp(gpu, "cuda:sm_75");
    const nnc_dtype d =
        turing && precision == NNC_PRECISION_bf16 ? DT_f32 : nnc_precision_dtype(precision);
    for (int i = p->main_first; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_call)
            continue;
        const nnc_call *k = &p->call[c->item];
        CHECK_STR(p->engine[c->engine], k->kind == CALL_matmul ? "cublaslt" : "cudnn");
        CHECK_INT(k->tf32, precision == NNC_PRECISION_tf32 && !turing);
        CHECK_INT(k->src.dtype, d);
        CHECK(!k->has_bias || k->bias.dtype == d);
        if (k->kind == CALL_matmul)
            continue;
        nnc_printf(out, "%s %s %s %s: %s, workspace %lld\n", model, gpu,
            nnc_precision_name(precision), c->layers, c->reason, (long long)k->work_bytes);
        CHECK(k->work_bytes <= nnc_type_bytes(&k->src) + nnc_type_bytes(&k->dst) + (32 << 20));
    }
}

TEST(models_find_plans)
{
    if (golden_absent())
        return;
    nnc_text t = {0};
    golden_head(&t);
    for (size_t m = 0; m < NNC_COUNT(models); m++)
        for (size_t g = 0; g < NNC_COUNT(gpus); g++)
            for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
                nnc_plan *p = plan_for(models[m], gpus[g], f);
                if (!p)
                    continue;
                CHECK_OK(nnc_plan_verify(p, test_sink));
                put_convs(&t, p, models[m], gpus[g], f);
                nnc_plan_destroy(p);
            }
    golden_check(&t, "tests/cudnn/models.txt");
}

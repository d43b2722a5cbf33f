/* tests/cudnn/models.c -- the rules by which convolutions of models are planned, against the real cuDNN, which answers for GPUs that are
 * not there. Within the planned workspace each convolution gets the engine that it would get within much more. In every precision, for
 * the architectures that the installed cuDNN supports. */
#include "engines/engines.h"
#include "frontend/frontend.h"
#include "golden.h"
#include "help.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "test.h"
#include "train/train.h"
#include <stdlib.h>

static const char *const models[] = {"conv", "conv_fc_stack", "efficientnet_b0", "vgg16"};

static nnc_status no_kernels(const nnc_load *l, void **handle, nnc_sink *sink)
{
    (void)l;
    *handle = NULL;
    return nnc_fail0(sink, NNC_E_BUG, "plans are made here, not run");
}

static const nnc_engine kernels = {.name = "cuda", .version = "1", .load_kernel = no_kernels};

static const nnc_engine *const engine[] = {&nnc_engine_cudnn, &nnc_engine_cublaslt, &kernels};

/* The graph of a training step instead of g. */
static void train(nnc_graph **g)
{
    nnc_graph *step = NULL;
    CHECK_OK(*g ? nnc_train_graph(*g, &nnc_training_defaults, &step, test_sink) : NNC_E_MODEL);
    nnc_graph_destroy(*g);
    *g = step;
}

static nnc_plan *plan_for(const char *model, const char *on, nnc_precision precision, bool trains)
{
    char file[64];
    nnc_target t;
    nnc_plan *p = NULL;
    snprintf(file, sizeof file, "models/%s.json", model);
    CHECK_OK(nnc_target_cuda(&t, on, test_sink));
    const nnc_policy policy = {
        .precision = precision, .tf32 = precision == NNC_PRECISION_tf32 && t.flops_tf32 > 0};
    nnc_graph *g = nnc_model_load(file, &(nnc_model_options){0}, test_sink);
    nnc_plan_options o = {.target = &t,
        .policy = policy,
        .engine = engine,
        .n_engine = 3,
        .jobs = 1,
        .streams = 1,
        .devices = 1};
    if (trains)
        train(&g);
    CHECK(g != NULL);
    if (g) {
        nnc_pass_options po = {.level = 2, .target = &t, .policy = policy};
        CHECK_OK(nnc_passes_run(&g, &po, NULL, test_sink));
        CHECK_OK(nnc_plan_make(g, &o, &p, test_sink));
    }
    nnc_graph_destroy(g);
    nnc_target_deinit(&t);
    return p;
}

/* Appends what is selected for a call within its planned workspace. */
static void put_selection(nnc_text *out, const nnc_cudnn_device *d, const nnc_call *k)
{
    const selection got = selected(d, k, k->work_bytes), most = selected(d, k, call_plenty(k));
    nnc_printf(out, "engine %lld%s%s%s, %lld of %lld bytes\n", (long long)got.engine,
        got.numerical & CUDNN_TENSOR_CORE ? ", tensor cores" : "",
        got.numerical & CUDNN_WINOGRAD ? ", Winograd" : "", got.fallback ? ", a fallback" : "",
        (long long)got.workspace, (long long)k->work_bytes);
    if (got.engine != most.engine)
        test_fail(__FILE__, __LINE__,
            "%s: engine %lld within %lld bytes (%s), but %lld with %lld bytes", d->name,
            (long long)got.engine, (long long)k->work_bytes, got.why, (long long)most.engine,
            (long long)most.workspace);
}

static void put_convs(
    nnc_text *out, const nnc_plan *p, const char *model, const char *on, nnc_precision precision)
{
    nnc_target t;
    CHECK_OK(nnc_target_cuda(&t, on, test_sink));
    const nnc_cudnn_device device = described_device(&t);
    const nnc_dtype d = precision == NNC_PRECISION_bf16 && !nnc_target_contracts(&t, DT_bf16)
                            ? DT_f32
                            : nnc_precision_dtype(precision);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_call)
            continue;
        const nnc_call *k = &p->call[c->item];
        CHECK_STR(p->engine[c->engine], k->kind == CALL_matmul ? "cublaslt" : "cudnn");
        const bool rows =
            k->spatial && nnc_type_orders_differ(&k->src) &&
            nnc_type_is_row_major(&k->src); /* may be strict, so that nothing is copied */
        CHECK(
            k->tf32 == (precision == NNC_PRECISION_tf32 && t.flops_tf32 > 0) || (rows && !k->tf32));
        CHECK_INT(k->src.dtype, d);
        CHECK(!k->has_bias || k->bias.dtype == d);
        if (k->kind == CALL_matmul)
            continue;
        nnc_printf(out, "%s %s %s %s: ", model, on, nnc_precision_name(precision), c->layers);
        put_selection(out, &device, k);
    }
    nnc_target_deinit(&t);
}

TEST(models_find_plans)
{
    if (golden_absent())
        return;
    nnc_text t = {0};
    golden_head(&t);
    for (size_t m = 0; m < NNC_COUNT(models); m++)
        for (size_t g = 0; g < golden_gpus(); g++)
            for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
                nnc_plan *p = plan_for(models[m], golden_gpu[g], f, false);
                if (!p)
                    continue;
                CHECK_OK(nnc_plan_verify(p, test_sink));
                put_convs(&t, p, models[m], golden_gpu[g], f);
                nnc_plan_destroy(p);
            }
    golden_check(&t, "tests/cudnn/models.txt");
}

/* All convolutions of a training step, gradients included. */
TEST(steps_find_plans)
{
    if (golden_absent())
        return;
    nnc_text t = {0};
    golden_head(&t);
    for (size_t g = 0; g < golden_gpus(); g++)
        for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
            nnc_plan *p = plan_for("conv_fc_stack", golden_gpu[g], f, true);
            if (!p)
                continue;
            CHECK_OK(nnc_plan_verify(p, test_sink));
            int gradients[2] = {0};
            for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
                if (p->cmd[i].kind == CMD_call) {
                    gradients[0] += p->call[p->cmd[i].item].kind == CALL_conv_transpose;
                    gradients[1] += p->call[p->cmd[i].item].kind == CALL_conv_wgrad;
                }
            CHECK_INT(gradients[0], 3); /* not of the model's input */
            CHECK_INT(gradients[1], 4);
            put_convs(&t, p, "conv_fc_stack", golden_gpu[g], f);
            nnc_plan_destroy(p);
        }
    golden_check(&t, "tests/cudnn/steps.txt");
}

/* A plan is the same beside all libraries, beside none, and beside a cuDNN that is told to round otherwise. */
TEST(plans_ask_no_library)
{
    static const char *const on[] = {"cuda:sm_61", "cuda:sm_70", "cuda:sm_90"};
    for (size_t g = 0; g < NNC_COUNT(on); g++)
        for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
            nnc_text t[2] = {{0}, {0}};
            for (int without = 0; without < 2; without++) {
                CHECK(setenv("NVIDIA_TF32_OVERRIDE", without ? "0" : "1", 1) == 0);
                for (int l = 0; without && l < CUDA__LIBS; l++)
                    nnc_cuda_override((nnc_cuda_lib)l, NULL);
                nnc_plan *p = plan_for("conv_fc_stack", on[g], f, true);
                if (p)
                    nnc_plan_print(&t[without], p);
                nnc_plan_destroy(p);
            }
            nnc_cuda_forget();
            CHECK(t[0].n > 1000);
            CHECK_STR(nnc_text_str(&t[0]), nnc_text_str(&t[1]));
            nnc_text_deinit(&t[0]);
            nnc_text_deinit(&t[1]);
        }
    CHECK(unsetenv("NVIDIA_TF32_OVERRIDE") == 0);
}

/* The gradients of linear layers are products of what is there: no operand is copied or transposed, with any number of dimensions. */
TEST(gradients_of_products_copy_nothing)
{
    static const struct {
        const char *model;
        int products, of_sources;
    } some[] = {{"mlp", 4, 3}, {"transformer_mlp", 4, 4}}; /* the first reads the model's input */
    for (size_t i = 0; i < NNC_COUNT(some); i++)
        for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
            nnc_plan *p = plan_for(some[i].model, "cuda:sm_90", f, true);
            int calls[2][2] = {0}, moves = 0;
            for (int k = p ? nnc_plan_first(p, SEC_main) : 0; p && k < p->n_cmd; k++) {
                const nnc_cmd *c = &p->cmd[k];
                moves += c->kind == CMD_kernel && !strcmp(c->op_class, "move");
                if (c->kind == CMD_call) {
                    CHECK_STR(p->engine[c->engine], "cublaslt");
                    calls[p->call[c->item].trans_a][p->call[c->item].trans_b]++;
                }
            }
            CHECK_INT(calls[0][1], some[i].products); /* x w^T */
            CHECK_INT(calls[0][0], some[i].of_sources); /* dy w */
            CHECK_INT(calls[1][0], some[i].products); /* dy^T x */
            CHECK_INT(moves, 0);
            nnc_plan_destroy(p);
        }
}

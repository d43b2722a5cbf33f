/* tests/cudnn/models.c -- every convolution of every model finds a plan of cuDNN for three GPUs that are not there, in every precision,
 * within the stated workspace: the bytes of its source and result, and 32 MiB. */
#include "engines/engines.h"
#include "frontend/frontend.h"
#include "golden.h"
#include "plan_text.h"
#include "passes/passes.h"
#include "plan/make.h"
#include "test.h"
#include "train/train.h"
#include <stdlib.h>

static const char *const models[] = {"conv", "conv_fc_stack", "efficientnet_b0", "vgg16"};
static const char *const gpus[] = {"cuda:sm_90", "cuda:sm_80", "cuda:sm_75"};

static nnc_status no_kernels(const nnc_load *l, void **handle, nnc_sink *sink)
{
    (void)l;
    *handle = NULL;
    return nnc_fail0(sink, NNC_E_BUG, "plans are made here, not run");
}

static const nnc_engine kernels = {.name = "cuda", .version = "1", .load_kernel = no_kernels};

static const nnc_engine *const engine[] = {&nnc_engine_cudnn, &nnc_engine_cublaslt, &kernels};

static nnc_cache *answers; /* of plan_for's questions */

static nnc_status compiles(void *target, const nnc_policy *policy, const nnc_graph *g,
    const nnc_node *n, bool *yes, const char **why, nnc_sink *sink)
{
    const nnc_plan_options o = {
        .target = target, .policy = *policy, .answers = answers, .engine = engine, .n_engine = 3};
    return nnc_plan_compiles(&o, g, n, yes, why, sink);
}

/* The graph of a training step instead of g. */
static void train(nnc_graph **g)
{
    nnc_graph *step = NULL;
    CHECK_OK(*g ? nnc_train_graph(*g, &nnc_training_defaults, &step, test_sink) : NNC_E_MODEL);
    nnc_graph_destroy(*g);
    *g = step;
}

static nnc_plan *plan_for(
    const char *model, const char *gpu, nnc_precision precision, int level, int batch, bool trains)
{
    char file[64];
    nnc_target t;
    nnc_plan *p = NULL;
    snprintf(file, sizeof file, "models/%s.json", model);
    CHECK_OK(nnc_target_cuda(&t, gpu, test_sink));
    const nnc_policy policy = {.precision = precision,
        .tf32 = precision == NNC_PRECISION_tf32 && t.flops_tf32 > 0,
        .compiles = level >= 3};
    const nnc_set set = {"batch", batch};
    nnc_graph *g =
        nnc_model_load(file, &(nnc_model_options){.set = &set, .n_set = batch > 0}, test_sink);
    nnc_plan_options o = {.target = &t,
        .policy = policy,
        .answers = answers,
        .engine = engine,
        .n_engine = 3,
        .jobs = 1,
        .streams = 1,
        .devices = 1};
    if (trains)
        train(&g);
    CHECK(g != NULL);
    if (g) {
        nnc_pass_options po = {.level = level,
            .target = &t,
            .policy = policy,
            .compiles = compiles,
            .compiles_ctx = &t};
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
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_call)
            continue;
        const nnc_call *k = &p->call[c->item];
        CHECK_STR(p->engine[c->engine], k->kind == CALL_matmul ? "cublaslt" : "cudnn");
        const bool rows =
            k->spatial && nnc_type_orders_differ(&k->src) &&
            nnc_type_is_row_major(&k->src); /* may be strict, so that nothing is copied */
        CHECK(k->tf32 == (precision == NNC_PRECISION_tf32 && !turing) || (rows && !k->tf32));
        CHECK_INT(k->src.dtype, d);
        CHECK(!k->has_bias || k->bias.dtype == d);
        if (k->kind == CALL_matmul)
            continue;
        nnc_printf(out, "%s %s %s %s: %s, workspace %lld\n", model, gpu,
            nnc_precision_name(precision), c->layers, c->reason, (long long)k->work_bytes);
        const nnc_type *other = k->kind == CALL_conv_wgrad ? &k->wei : &k->dst;
        CHECK(k->work_bytes <= nnc_type_bytes(&k->src) + nnc_type_bytes(other) + (32 << 20));
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
                nnc_plan *p = plan_for(models[m], gpus[g], f, 2, 0, false);
                if (!p)
                    continue;
                CHECK_OK(nnc_plan_verify(p, test_sink));
                put_convs(&t, p, models[m], gpus[g], f);
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
    for (size_t g = 0; g < NNC_COUNT(gpus); g++)
        for (nnc_precision f = NNC_PRECISION_f32; f < NNC_PRECISION__COUNT; f++) {
            nnc_plan *p = plan_for("conv_fc_stack", gpus[g], f, 2, 0, true);
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
            put_convs(&t, p, "conv_fc_stack", gpus[g], f);
            nnc_plan_destroy(p);
        }
    golden_check(&t, "tests/cudnn/steps.txt");
}

/* ---- with kernels that cuDNN compiles ------------------------------------------------------------------------------ */

typedef struct totals {
    int launches, compiled;
    int64_t bytes, ns;
} totals;

/* Of main; times by the machine file: contractions as fast as their engine reaches, kernels as their bytes move. */
static totals count(const nnc_plan *p, const nnc_target *t)
{
    totals r = {0};
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_call && c->kind != CMD_kernel)
            continue;
        const nnc_call *k = c->kind == CMD_call ? &p->call[c->item] : NULL;
        r.launches++;
        r.compiled += k && k->compiled;
        r.bytes += c->bytes;
        const nnc_ask a = {.dtype = k ? k->src.dtype : 0, .tf32 = k && k->tf32, .bytes = c->bytes};
        r.ns += k ? nnc_target_contraction_ns(t, nnc_target_engine_named(t, p->engine[c->engine]),
                        &a, k->compiled, c->flops)
                  : nnc_target_time_ns(t, c->flops, c->bytes);
    }
    return r;
}

/* A line for each kernel, those of the same reason as one. */
static void put_compiled(nnc_text *out, const nnc_plan *p)
{
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_call && p->call[c->item].compiled)
            nnc_printf(out, "    %s: %s\n", c->layers, c->reason);
    }
}

/* EfficientNet-B0 ends 48 of its convolutions with silu or sigmoid. Batch 32. */
TEST(models_compiled)
{
    static const struct {
        const char *gpu;
        nnc_precision precision;
        bool lists;
    } some[] = {{"cuda:sm_90", NNC_PRECISION_f16, true}, {"cuda:sm_90", NNC_PRECISION_bf16, false},
        {"cuda:sm_80", NNC_PRECISION_f16, false}, {"cuda:sm_75", NNC_PRECISION_f16, false}};
    nnc_text t = {0};
    if (golden_without_driver())
        return;
    answers = nnc_cache_open(ANSWERS); /* each question once, in all builds' lives */
    golden_head(&t);
    for (size_t i = 0; i < NNC_COUNT(some); i++) {
        nnc_target gpu;
        totals n[2];
        CHECK_OK(nnc_target_cuda(&gpu, some[i].gpu, test_sink));
        for (int level = 2; level <= 3; level++) {
            nnc_plan *p =
                plan_for("efficientnet_b0", some[i].gpu, some[i].precision, level, 32, false);
            if (!p)
                continue;
            check_plan_text(p);
            n[level - 2] = count(p, &gpu);
            nnc_printf(&t,
                "efficientnet_b0 %s %s -O%d: %d launches, %d of them compiled, %.1f MB, %.0f us\n",
                some[i].gpu, nnc_precision_name(some[i].precision), level, n[level - 2].launches,
                n[level - 2].compiled, (double)n[level - 2].bytes * 1e-6,
                (double)n[level - 2].ns * 1e-3);
            if (some[i].lists)
                put_compiled(&t, p);
            nnc_plan_destroy(p);
        }
        /* an end that is computed again as its reader reads it was no launch */
        CHECK(n[1].compiled > 10 && n[0].launches - n[1].launches >= n[1].compiled - 1);
        CHECK(n[1].bytes < n[0].bytes && n[1].ns < n[0].ns);
        nnc_target_deinit(&gpu);
    }
    nnc_cache_close(answers);
    answers = NULL;
    golden_check(&t, "tests/cudnn/compiled_models.txt");
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
            nnc_plan *p = plan_for(some[i].model, "cuda:sm_90", f, 2, 0, true);
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

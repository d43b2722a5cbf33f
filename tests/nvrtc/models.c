/* tests/nvrtc/models.c -- what NVRTC makes of the models' generated kernels: nothing spilled, nothing in local memory, accesses as wide
 * as the schedules say, on every architecture: models without contractions, and in 16 bits those with. */
#include "api/nnc.h"
#include "codegen/codegen.h"
#include "cuda/cuda.h"
#include "plan/plan.h"
#include "test.h"

static const char *const archs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};

typedef struct model {
    const char *file;
    nnc_arg arg[2];
    int n_arg;
    bool
        slow_sin; /* an argument without bounds: the slow path of its reduction keeps a table on the stack */
    nnc_precision precision;
} model;

static const model models[] = {
    {"relu", {{0}}, 0, false},
    {"maxpool", {{0}}, 0, false},
    {"softmax", {{0}}, 0, false},
    {"layernorm", {{0}}, 0, false},
    {"nested_sin", {{"depth", "4"}}, 1, true},
    {"nested_sin", {{"depth", "16"}}, 1, true},
};

static const model models_16[] = {
    {"vgg16", {{"batch", "8"}}, 1, false, NNC_PRECISION_f16},
    {"vgg16", {{"batch", "8"}}, 1, false, NNC_PRECISION_bf16},
    {"conv_fc_stack", {{0}}, 0, false, NNC_PRECISION_bf16},
    {"transformer_mlp", {{0}}, 0, false, NNC_PRECISION_f16},
    {"mlp", {{0}}, 0, false, NNC_PRECISION_bf16},
};

static bool have_nvrtc(void)
{
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_nvrtc, &f);
    if (!f.ok)
        test_skip("no NVRTC: %s", f.why);
    return f.ok;
}

/* Elements of one access, as the plan's text of the kernel says. */
static int access_of(const nnc_pkernel *k)
{
    nnc_arena a;
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, k->symbol, k->ir, strlen(k->ir));
    const nnc_kernel *kernel = nnc_kernel_parse(&s, &a, test_sink);
    int vec = kernel ? kernel->grid.vec : 0;
    nnc_arena_deinit(&a);
    return vec;
}

static void check_kernel(
    const model *m, const char *arch, const nnc_pkernel *p, const nnc_cubin_kernel *k)
{
    char what[128];
    snprintf(what, sizeof what, "%s on %s: %s", m->file, arch, k->name);
    if (k->n[CC_unknown])
        test_fail(__FILE__, __LINE__, "%s: %d unknown instructions", what, k->n[CC_unknown]);
    if (k->registers < 8 || k->registers > 128)
        test_fail(__FILE__, __LINE__, "%s: %d registers", what, k->registers);
    if (!m->slow_sin && (k->stack_bytes || k->n[CC_load_local] || k->n[CC_store_local]))
        test_fail(__FILE__, __LINE__, "%s: %d bytes of stack, %d local loads, %d local stores",
            what, k->stack_bytes, k->n[CC_load_local], k->n[CC_store_local]);
    if (k->stack_bytes > 32)
        test_fail(__FILE__, __LINE__, "%s: %d bytes of stack", what, k->stack_bytes);
    int vec = access_of(p);
    if ((vec == 8 || (vec == 4 && !m->precision)) && /* 4 of 16 bits are 64: small tensors */
        (!k->store_bits[4] ||
            k->store_bits[0] + k->store_bits[1] + k->store_bits[2] + k->store_bits[3]))
        test_fail(__FILE__, __LINE__, "%s: stores are not all of 128 bits", what);
}

static void check_model(nnc_env *e, const model *m, const char *arch)
{
    char file[64];
    snprintf(file, sizeof file, "models/%s.json", m->file);
    nnc_model *g =
        nnc_model_open(file, &(nnc_open_options){.arg = m->arg, .n_arg = m->n_arg}, test_sink);
    nnc_artifact *a = NULL;
    nnc_arena mem;
    nnc_cubin_kernel *k;
    nnc_compile_options o = nnc_compile_defaults;
    int n, sm, all = 0;
    nnc_arena_init(&mem, 0);
    o.precision = m->precision;
    CHECK(g != NULL);
    if (g)
        CHECK_OK(nnc_compile(e, g, &o, &a, test_sink));
    const nnc_plan *p = a ? nnc_artifact_plan(a) : NULL;
    CHECK(p && p->n_object >= 1 && p->n_kernel >= 1);
    for (int b = 0; p && b < p->n_object; b++) {
        CHECK_OK(nnc_cubin_read(p->object[b].data, p->object[b].n, &mem, &k, &n, &sm, test_sink));
        all += n;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < p->n_kernel; j++)
                if (!strcmp(p->kernel[j].symbol, k[i].name))
                    check_kernel(m, arch, &p->kernel[j], &k[i]);
    }
    CHECK(!p || all >= p->n_kernel); /* some have a second one that finishes */
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_model_close(g);
}

TEST(nvrtc_models)
{
    if (!have_nvrtc())
        return;
    for (size_t t = 0; t < NNC_COUNT(archs); t++) {
        nnc_env *e;
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = archs[t], .no_cache = true}, &e, test_sink));
        for (size_t i = 0; e && i < NNC_COUNT(models); i++)
            check_model(e, &models[i], archs[t]);
        nnc_env_destroy(e);
    }
}

TEST(nvrtc_models_in_16_bits)
{
    if (!have_nvrtc())
        return;
    for (size_t t = 1; t < NNC_COUNT(archs); t++) {
        nnc_env *e;
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = archs[t], .no_cache = true}, &e, test_sink));
        for (size_t i = 0; e && i < NNC_COUNT(models_16); i++)
            check_model(e, &models_16[i], archs[t]);
        nnc_env_destroy(e);
    }
}

/* The same bytes whatever compiled beside, and from the cache without any compiling. */
TEST(nvrtc_artifact_is_the_same_twice)
{
    if (!have_nvrtc())
        return;
    nnc_env *e;
    nnc_artifact *a[2] = {0};
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_80", .no_cache = true}, &e, test_sink));
    nnc_model *g = nnc_model_open("models/layernorm.json", &(nnc_open_options){0}, test_sink);
    nnc_compile_options o = nnc_compile_defaults;
    for (int i = 0; e && g && i < 2; i++) {
        o.jobs = i ? 4 : 1;
        CHECK_OK(nnc_compile(e, g, &o, &a[i], test_sink));
    }
    if (a[0] && a[1]) {
        const nnc_plan *p = nnc_artifact_plan(a[0]), *q = nnc_artifact_plan(a[1]);
        CHECK_INT(p->n_object, q->n_object);
        for (int i = 0; i < p->n_object; i++)
            CHECK(p->object[i].n == q->object[i].n &&
                  !memcmp(p->object[i].data, q->object[i].data, p->object[i].n));
    }
    for (int i = 0; i < 2; i++)
        nnc_artifact_destroy(a[i]);
    nnc_model_close(g);
    nnc_env_destroy(e);
}

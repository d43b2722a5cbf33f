/* tests/nvrtc/compile.c -- see compile.h. */
#include "compile.h"
#include "budget.h"
#include "gen/gen.h"
#include "plan/plan.h"
#include "share.h"
#include "test.h"
#include "train/train.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct all {
    const compile_job *job;
    int n;
    atomic_int next, kernels;
    const char *cache;
} all;

bool compile_absent(void)
{
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_nvrtc, &f);
    if (!f.ok)
        test_skip("no NVRTC: %s", f.why);
    return !f.ok;
}

/* Every third graph has all types; the others are f32 alone, or floats. */
static nnc_model *graph_of(uint64_t seed, nnc_sink *sink)
{
    const uint32_t floats = 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16,
                   more = 1u << DT_f64 | 1u << DT_i32 | 1u << DT_i64 | 1u << DT_u8;
    const gen_options o = {.seed = seed,
        .nodes = 12,
        .classes = ~(1u << CL_contract | 1u << CL_loop),
        .dtypes = seed % 3 == 0   ? 1u << DT_f32
                  : seed % 3 == 1 ? floats
                                  : floats | more,
        .wild = seed & 1};
    return gen_graph(&o, sink);
}

static void name_of(const compile_job *j, char out[96])
{
    if (!j->file)
        snprintf(out, 96, "seed %llu on %s", (unsigned long long)j->seed, j->target);
    else
        snprintf(out, 96, "%s%s%s%s%s%s%s on %s", j->step ? "step of " : "", j->file,
            j->n_arg ? " " : "", j->n_arg ? j->arg[0].value : "", j->n_arg > 1 ? " " : "",
            j->n_arg > 1 ? j->arg[1].value : "",
            j->precision == NNC_PRECISION_f16    ? " f16"
            : j->precision == NNC_PRECISION_bf16 ? " bf16"
                                                 : "",
            j->target);
}

static nnc_status compile(all *a, const compile_job *j, const char *what, nnc_sink *sink)
{
    nnc_env *e = NULL;
    nnc_artifact *out = NULL;
    nnc_graph *step = NULL;
    nnc_training training = nnc_training_defaults;
    nnc_compile_options o = nnc_compile_defaults;
    training.momentum = 0.9;
    o.jobs = 1;
    o.precision = j->precision;
    nnc_model *g = j->file ? nnc_model_open(j->file,
                                 &(nnc_open_options){.arg = j->arg, .n_arg = j->n_arg}, sink)
                           : graph_of(j->seed, sink);
    nnc_status st =
        g ? nnc_env_create(&(nnc_env_options){.target = j->target, .cache_dir = a->cache}, &e, sink)
          : NNC_E_MODEL;
    if (!st && j->step)
        st = nnc_train_graph(g, &training, &step, sink);
    if (!st)
        st = nnc_compile(e, step ? step : g, &o, &out, sink);
    const nnc_plan *p = out ? nnc_artifact_plan(out) : NULL;
    if (p && p->n_object != (nnc_plan_functions(p) + 23) / 24)
        st = NNC_E_BUG;
    if (!st)
        atomic_fetch_add(
            &a->kernels, budget_plan(what, p, !j->step && (j->file || test_seed_is_usual())));
    if (!st && j->file && !j->step && !strcmp(j->target, "cuda:sm_90"))
        share_plan(what, p, j->target);
    nnc_artifact_destroy(out);
    nnc_env_destroy(e);
    nnc_graph_destroy(step);
    nnc_model_close(g);
    return st;
}

static void some(void *ctx, int part, int parts)
{
    all *a = ctx;
    (void)part;
    (void)parts;
    for (int i; (i = atomic_fetch_add(&a->next, 1)) < a->n;) {
        char what[96];
        nnc_sink *sink = nnc_sink_create();
        name_of(&a->job[i], what);
        nnc_status st = compile(a, &a->job[i], what, sink);
        if (st) {
            test_fail(__FILE__, __LINE__, "%s: %s", what, nnc_status_name(st));
            nnc_sink_print(sink, stderr);
        }
        nnc_sink_destroy(sink);
    }
}

void compile_all(const char *what, const compile_job *job, int n)
{
    char own[] = "/tmp/nnc-code-XXXXXX", command[96];
    const char *shared = test_cache();
    all a = {.job = job, .n = n, .cache = shared ? shared : mkdtemp(own)};
    int cpus = nnc_cpu_count();
    CHECK(a.cache != NULL);
    budget_reset();
    share_reset();
    nnc_par_run(cpus > 2 ? cpus : 2, some, &a);
    printf("     %s: %d compiles, %d kernels\n", what, n, a.kernels);
    budget_print();
    share_print();
    snprintf(command, sizeof command, "rm -rf %s", own);
    if (!shared)
        CHECK_INT(system(command), 0);
}

/* tests/nvrtc/generated.c -- kernels of random graphs go through NVRTC: the CUDA C that is generated is accepted, whatever the ops and
 * element types, and its machine code holds no instruction that the reader of cubins does not know. (tests/cudac runs them on this
 * machine for their numbers.) */
#include "api/nnc.h"
#include "cuda/cuda.h"
#include "gen/gen.h"
#include "plan/plan.h"
#include "test.h"

static void check_code(uint64_t seed, const nnc_plan *p)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    for (int o = 0; o < p->n_object; o++) {
        nnc_cubin_kernel *k;
        int n, sm;
        CHECK_OK(nnc_cubin_read(p->object[o].data, p->object[o].n, &a, &k, &n, &sm, test_sink));
        for (int i = 0; i < n; i++)
            for (int op = 0; op < CUBIN_OPS && k[i].n[CC_unknown]; op++)
                if (k[i].op[op] && !nnc_cubin_op(op))
                    test_fail(__FILE__, __LINE__,
                        "seed %llu, sm_%d: %s: %d instructions with bits %03x are unknown",
                        (unsigned long long)seed, sm, k[i].name, k[i].op[op], (unsigned)op);
    }
    nnc_arena_deinit(&a);
}

static void check_graph(nnc_env *e, uint64_t seed)
{
    gen_options o = {.seed = seed,
        .nodes = 24,
        .classes = ~(1u << CL_contract),
        .dtypes = 1u << DT_f32 | 1u << DT_f16 | 1u << DT_bf16 | 1u << DT_f64 | 1u << DT_i32 |
                  1u << DT_i64 | 1u << DT_u8,
        .wild = seed & 1};
    nnc_graph *g = gen_graph(&o, test_sink);
    nnc_artifact *a = NULL;
    nnc_sink_clear(test_sink);
    nnc_status st = g ? nnc_compile(e, g, &nnc_compile_defaults, &a, test_sink) : NNC_E_NOMEM;
    if (st) {
        test_fail(__FILE__, __LINE__, "seed %llu on %s: %s", (unsigned long long)seed,
            nnc_env_target(e), nnc_status_name(st));
        nnc_sink_print(test_sink, stderr);
    } else {
        const nnc_plan *p = nnc_artifact_plan(a);
        CHECK(p->n_object == (p->n_kernel + 23) / 24);
        check_code(seed, p);
    }
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
}

TEST(nvrtc_generated)
{
    static const char *const archs[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_120"};
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_nvrtc, &f);
    if (!f.ok) {
        test_skip("no NVRTC: %s", f.why);
        return;
    }
    for (uint64_t i = 0; i < 16; i++) {
        nnc_env *e;
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = archs[i % NNC_COUNT(archs)], .no_cache = true}, &e,
            test_sink));
        if (e)
            check_graph(e, test_seed + i);
        nnc_env_destroy(e);
    }
}

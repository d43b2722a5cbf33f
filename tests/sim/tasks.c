/* tests/sim/tasks.c -- pipelines as plans: graphs whose nodes carry a schedule's tasks, planned and simulated. Equal stages and links that
 * take next to no time leave the devices idle for the share that theory says, (p-1)/(m+p-1). 1F1B needs less memory than GPipe. */
#include "session/session.h"
#include "ir/ir.h"
#include "partition/partition.h"
#include "sim/sim.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

enum { THIN = 16, WIDE = 65536, MOST = 3 * 8 * 32 };

/* The tasks of a schedule, numbered by the times at which they begin. */
static void rank_tasks(nnc_pipeline_kind kind, int p, int m, int *rank)
{
    NNC_LOCAL(nnc_arena) a = {0};
    int64_t one[8];
    nnc_pipeline pipe;
    nnc_pipeline_time t;
    for (int s = 0; s < 8; s++)
        one[s] = 1;
    const nnc_pipeline_costs c = {.forward = one, .backward = one};
    CHECK_OK(nnc_pipeline_make(kind, p, m, 1, &a, &pipe, test_sink));
    CHECK_OK(nnc_pipeline_run(&pipe, &c, &a, &t, test_sink));
    int n = 0;
    for (int64_t now = 0; now < t.total; now++)
        for (int d = 0; d < p; d++)
            for (int i = 0; i < pipe.n_task; i++)
                if (t.start[d][i] == now) {
                    const nnc_task *x = &pipe.task[d][i];
                    rank[(x->kind * p + x->stage) * m + x->micro] = n++;
                }
}

/* Stage s keeps h = x a, wide, from its forward pass y = h b to its backward pass, whose products are as large. */
static nnc_graph *graph_of(int p, int m, const int *rank)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, "graph @pipe {\n");
    for (int s = 0; s < p; s++)
        nnc_printf(&t,
            "%%a%d = param : f32[%d,%d] = gen(\"a%d\", seed=1, scale=0.1) device %d\n"
            "%%b%d = param : f32[%d,%d] = gen(\"b%d\", seed=1, scale=0.1) device %d\n",
            s, THIN, WIDE, s, s, s, WIDE, THIN, s, s);
    for (int k = 0; k < m; k++) {
        nnc_printf(&t, "%%f0_%d = input : f32[1,%d]\n", k, THIN);
        for (int s = 0; s < p; s++)
            nnc_printf(&t,
                "%%h%d_%d = matmul %%f%d_%d, %%a%d device %d task %d\n"
                "%%f%d_%d = matmul %%h%d_%d, %%b%d device %d task %d\n",
                s, k, s, k, s, s, rank[s * m + k], s + 1, k, s, k, s, s, rank[s * m + k]);
        nnc_printf(&t, "%%g%d_%d = identity %%f%d_%d device %d task %d\n", p, k, p, k, p - 1,
            rank[(p + p - 1) * m + k]);
        for (int s = p; s-- > 0;) {
            const int task = rank[(p + s) * m + k];
            nnc_printf(&t,
                "%%i%d_%d = matmul %%g%d_%d, %%b%d {transpose_b=1} device %d task %d\n"
                "%%j%d_%d = mul %%i%d_%d, %%h%d_%d device %d task %d\n"
                "%%g%d_%d = matmul %%j%d_%d, %%a%d {transpose_b=1} device %d task %d\n",
                s, k, s + 1, k, s, s, task, s, k, s, k, s, k, s, task, s, k, s, k, s, s, task);
        }
    }
    nnc_puts(&t, "return ");
    for (int k = 0; k < m; k++)
        nnc_printf(&t, "%s%%g0_%d", k ? ", " : "", k);
    nnc_puts(&t, " }\n");
    nnc_scan s;
    nnc_scan_init(&s, "pipe", nnc_text_str(&t), t.n);
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    return g;
}

/* Idle share of p devices; *bytes: of the arena of device 0. */
static double simulate(
    nnc_env *e, const nnc_cluster *c, nnc_pipeline_kind kind, int p, int m, int64_t *bytes)
{
    int rank[MOST] = {0};
    nnc_artifact *a = NULL;
    nnc_sim_plan s;
    double idle = 0;
    nnc_compile_options o = nnc_compile_defaults;
    o.devices = p;
    rank_tasks(kind, p, m, rank);
    nnc_graph *g = graph_of(p, m, rank);
    CHECK_OK(g ? nnc_compile(e, g, &o, &a, test_sink) : NNC_E_MODEL);
    const nnc_plan *plan = a ? nnc_artifact_plan(a) : NULL;
    CHECK(plan != NULL);
    if (plan) {
        CHECK_OK(nnc_plan_verify(plan, test_sink));
        CHECK_OK(nnc_sim_plan_run(&s, plan, c, NULL, test_sink));
        for (int d = 0; d < p; d++)
            idle += (double)s.by_device[d].idle_ps / ((double)p * (double)s.total_ps);
        *bytes = plan->device[0].arena_bytes;
        nnc_sim_plan_deinit(&s);
    }
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    return idle;
}

TEST(planned_pipelines_idle_as_in_theory)
{
    nnc_cluster *c = nnc_cluster_load("models/hardware/cpu.json", test_sink);
    nnc_env *e = NULL;
    CHECK(c != NULL);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    for (int p = 2; p <= 4; p++)
        for (int m = p; m <= 8; m += 3) {
            int64_t bytes[2] = {0};
            for (int k = 0; k < 2; k++) {
                const double want = (double)(p - 1) / (m + p - 1),
                             got = simulate(e, c, k ? PIPE_1f1b : PIPE_gpipe, p, m, &bytes[k]);
                if (!(fabs(got - want) < 0.02))
                    test_fail(__FILE__, __LINE__,
                        "%s, %d devices, %d micro-batches: idle %.4f, not %.4f",
                        k ? "1f1b" : "gpipe", p, m, got, want);
            }
            /* p micro-batches in flight at most, not m */
            CHECK(m == p || (bytes[1] < bytes[0] && bytes[1] >= (int64_t)p * WIDE * 4));
        }
    nnc_env_destroy(e);
    nnc_cluster_destroy(c);
}

/* Is the plan rejected with command i changed so? */
static bool rejects(nnc_plan *p, int i, nnc_cmd with)
{
    const nnc_cmd was = p->cmd[i];
    const int events = p->n_event;
    p->cmd[i] = with;
    p->n_event += with.kind == CMD_record && with.item == events;
    const nnc_status s = nnc_plan_verify(p, test_sink);
    p->cmd[i] = was;
    p->n_event = events;
    nnc_sink_clear(test_sink);
    return s != NNC_OK;
}

/* A stage that does not wait for its operands, one that is sent to another micro-batch's place, tensors of two micro-batches in one
 * place. */
TEST(broken_pipelines_are_rejected)
{
    enum { P = 3, M = 4 };
    int rank[MOST] = {0}, waits = 0, copies = 0, kept = 0, other[P] = {-1, -1, -1};
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    o.devices = P;
    rank_tasks(PIPE_1f1b, P, M, rank);
    nnc_graph *g = graph_of(P, M, rank);
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 1}, &e, test_sink));
    CHECK_OK(nnc_compile(e, g, &o, &a, test_sink));
    nnc_plan *p = a ? (nnc_plan *)nnc_artifact_plan(a) : NULL;
    for (int i = p ? p->end[SEC_init] : 0; p && i < p->n_cmd; i++) {
        nnc_cmd c = p->cmd[i];
        int32_t arg[2] = {0};
        if (c.kind == CMD_wait) {
            c.kind = CMD_record;
            c.item = p->n_event;
            CHECK(rejects(p, i, c));
            waits++;
        }
        if (c.kind == CMD_copy) { /* to where the last copy to this device went */
            const int d = p->tensor[c.arg[1]].device;
            arg[0] = c.arg[0];
            arg[1] = other[d];
            other[d] = c.arg[1];
            c.arg = arg;
            CHECK(arg[1] < 0 || rejects(p, i, c));
            copies++;
        }
    }
    for (int32_t t = 0, last = -1; p && t < p->n_tensor; t++) {
        nnc_ptensor *x = &p->tensor[t];
        if (x->device || x->space != SP_arena || x->bytes != WIDE * 4 || x->alias_of >= 0)
            continue;
        const int64_t was = x->offset;
        const bool both =
            last >= 0 && p->tensor[last].last > x->first && p->tensor[last].first < x->last;
        if (both) {
            x->offset = p->tensor[last].offset;
            CHECK(nnc_plan_verify(p, test_sink) != NNC_OK);
            nnc_sink_clear(test_sink);
            x->offset = was;
            kept++;
        }
        last = t;
    }
    CHECK(waits >= 2 * (P - 1) * M && copies >= 2 * (P - 1) * M && kept > 0);
    CHECK_OK(p ? nnc_plan_verify(p, test_sink) : NNC_E_BUG);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
    nnc_env_destroy(e);
}

/* bench/device/engines.c -- the part "engines": for each strict f32 convolution of the cells, of a training step with its gradients, the
 * time of every configuration that cuDNN has. Those that its heuristics list come first, then the others, then nondeterministic ones, which
 * nnc never takes; what nnc takes without measuring is marked. */
#include "session/session.h"
#include "cuda/cudnn.h"
#include "device.h"
#include "engines/cudnn.h"
#include "engines/tune.h"
#include "target/target.h"
#include <string.h>

enum { MOST_CONFIGS = 48, MOST_IDS = 16 };

typedef struct trial {
    nnc_cudnn *g;
    int n;
    nnc_trial t;
} trial;

static nnc_status run_once(void *ctx)
{
    const trial *t = ctx;
    int64_t id[MOST_IDS];
    for (int i = 0; i < t->n; i++)
        id[i] = i;
    return nnc_cudnn_run(t->g, t->n, id, t->t.arg, t->t.work);
}

/* Configurations listed by the heuristics alone, or followed by all others. */
static int listed(const nnc_call *c, nnc_cudnn_filter f, bool every, nnc_cudnn **g, nnc_sink *sink)
{
    if (nnc_cudnn_create(NULL, g, sink))
        return -1;
    f.every = every;
    cudnn_describe(*g, c);
    return nnc_cudnn_finish(*g) ? 0 : nnc_cudnn_query(*g, &f);
}

static const char *word_of(const nnc_call *c)
{
    return c->kind == CALL_conv ? "conv" : c->kind == CALL_conv_wgrad ? "wgrad" : "dgrad";
}

static void put_call(const nnc_call *c, nnc_text *t)
{
    nnc_printf(t, "\"conv\": \"%s %lldx%lld ", word_of(c), (long long)c->kernel[0],
        (long long)c->kernel[1]);
    for (int i = 0; i < c->src.rank; i++)
        nnc_printf(t, "%s%lld", i ? "x" : "", (long long)c->src.dim[i]);
    nnc_printf(t, " to %lld channels\"", (long long)c->dst.dim[1]);
}

static double flops_of(const nnc_call *c)
{
    const bool wgrad = c->kind == CALL_conv_wgrad;
    const nnc_type *filter = wgrad ? &c->dst : &c->wei, *y = wgrad                  ? &c->wei
                                                             : c->kind == CALL_conv ? &c->dst
                                                                                    : &c->src;
    return 2.0 * (double)nnc_type_numel(y) * (double)nnc_type_numel(filter) / (double)y->dim[1];
}

/* Appends the times of the graph's configurations from..n, in which `ours` are listed and `taken` is nnc's. */
static void put_times(trial *x, const nnc_call *c, int n, int ours, int taken, uint32_t only,
    int64_t *least, nnc_text *t)
{
    for (int i = 0; i < n && i < MOST_CONFIGS; i++) {
        const nnc_cudnn_config *k = nnc_cudnn_config_at(x->g, i);
        if ((k->numerical & only) != only || nnc_cudnn_plan(x->g, i, c->work_bytes))
            continue;
        const int64_t ns = nnc_trial_ns(&x->t, run_once, x, *least);
        *least = ns > 0 && (*least < 0 || ns < *least) ? ns : *least;
        nnc_printf(t,
            "%s\n  {\"engine\": %lld, \"workspace\": %lld, \"numerical\": %u, \"listed\": %s, "
            "\"taken\": %s, \"ns\": %lld}",
            nnc_text_str(t)[t->n - 1] == '[' ? "" : ",", (long long)k->engine,
            (long long)nnc_cudnn_workspace(x->g), (unsigned)k->numerical,
            i < ours ? "true" : "false", i == taken ? "true" : "false", (long long)ns);
    }
}

/* Times all configurations; the members of the result's object. */
static nnc_status time_all(const nnc_call *c, nnc_text *t, nnc_sink *sink)
{
    const char *why = "";
    nnc_cudnn *some = NULL, *all = NULL, *loose = NULL;
    if (!cudnn_supports(c, &why))
        return nnc_fail0(sink, NNC_E_DEVICE, "cuDNN does not take it: %s", why);
    const int64_t limit = c->work_bytes;
    nnc_cudnn_filter f = cudnn_filter_of(c, limit);
    const int ours = listed(c, f, false, &some, sink), n = listed(c, f, true, &all, sink);
    nnc_cudnn_destroy(some);
    f.without &= ~(uint32_t)CUDNN_NONDETERMINISTIC;
    const int more = listed(c, f, true, &loose, sink);
    trial x = {.g = all, .n = nnc_call_args(c) + cudnn_adds_zeros(c)};
    int64_t bytes[MOST_IDS] = {nnc_type_bytes(&c->src), nnc_type_bytes(&c->wei)}, least = -1;
    for (int i = 2; i <= nnc_call_args(c); i++)
        bytes[i] = nnc_type_bytes(&c->dst);
    nnc_status st = n <= 0 ? nnc_fail0(sink, NNC_E_DEVICE, "cuDNN lists no configuration: %s",
                                 all ? nnc_cudnn_why(all) : "")
                           : nnc_trial_open(&x.t, DT_f32, bytes, nnc_call_args(c) + 1, limit);
    put_call(c, t);
    nnc_printf(t, ", \"flops\": %.0f, \"configs\": [", flops_of(c));
    if (!st) {
        put_times(&x, c, n, ours, cudnn_plan_first(all, c, n, limit), 0, &least, t);
        x.g = loose;
        put_times(&x, c, more, 0, -1, CUDNN_NONDETERMINISTIC, &least, t);
        nnc_trial_close(&x.t);
    } else if (n > 0) {
        st = nnc_fail0(sink, NNC_E_DEVICE, "its buffers do not fit on the GPU");
    }
    nnc_puts(t, "]");
    nnc_cudnn_destroy(all);
    nnc_cudnn_destroy(loose);
    return st;
}

static void one(job *j, const nnc_call *c, const char *id)
{
    nnc_text t = {0};
    if (!results_begin(&j->results, id))
        return;
    nnc_sink_clear(j->sink);
    turn_take(&j->turn, true);
    nnc_status st = nnc_cudnn_hold(j->sink);
    if (!st) {
        st = time_all(c, &t, j->sink);
        nnc_cudnn_release();
    }
    turn_give(&j->turn);
    if (!st)
        st = results_end(&j->results, id, &t, j->sink);
    if (st)
        results_fail(&j->results, id, st, j->sink);
    nnc_text_deinit(&t);
}

static bool strict_conv(const nnc_call *c)
{
    return c->kind != CALL_matmul && c->spatial == 2 && c->src.dtype == DT_f32 && !c->tf32;
}

static nnc_status engines_of(job *j, nnc_env *e, const cell *c)
{
    nnc_compile_options o;
    nnc_artifact *a = NULL;
    nnc_model *m = NULL, *step = NULL;
    nnc_training t;
    nnc_status st = cell_options(c, &o, j->sink);
    st = st ? st : cell_graphs(c, &m, &t, &step, j->sink);
    st = st ? st : nnc_compile(e, step ? step : m, &o, &a, j->sink);
    for (int i = 0; !st && i < a->plan->n_call; i++) {
        const nnc_engine_env env = {.target = e->target};
        nnc_call call = a->plan->call[i];
        char id[256];
        call.env = &env;
        snprintf(id, sizeof id,
            "engines,%s,%lldx%lld,stride=%lld,batch=%lld,from=%lld,to=%lld,image=%lld",
            word_of(&call), (long long)call.kernel[0], (long long)call.kernel[1],
            (long long)call.stride[0], (long long)call.src.dim[0], (long long)call.src.dim[1],
            (long long)call.dst.dim[1], (long long)call.src.dim[2]);
        if (strict_conv(&call))
            one(j, &call, id);
    }
    nnc_artifact_destroy(a);
    nnc_graph_destroy(step);
    nnc_model_close(m);
    return st;
}

int part_engines(job *j)
{
    cells c;
    nnc_env *e = NULL;
    nnc_status st = cells_read(j->cells, &c, j->sink);
    if (!st)
        st = nnc_env_create(
            &(nnc_env_options){.target = j->target, .cache_dir = j->cache_dir}, &e, j->sink);
    for (int i = 0; !st && i < c.n; i++)
        if (cell_has_all(&c.cell[i], j->only))
            st = engines_of(j, e, &c.cell[i]);
    if (st)
        nnc_sink_print(j->sink, stderr);
    nnc_env_destroy(e);
    cells_deinit(&c);
    return st ? nnc_exit_code(st) : results_exit(&j->results);
}

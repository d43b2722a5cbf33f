/* tests/cudnn/help.c -- see help.h. */
#include "help.h"
#include "engines/cudnn.h"

nnc_target gpu;
const nnc_engine_env gpu_env = {.target = &gpu};

void gpu_begin(const char *name, bool driver)
{
    CHECK_OK(nnc_target_cuda(&gpu, name, test_sink));
    fake_install();
    if (driver)
        fake_driver();
}

void gpu_end(void)
{
    CHECK_INT(fake_alive, 0);
    CHECK_INT(fake_handles, 0);
    fake_remove();
    nnc_target_deinit(&gpu);
}

nnc_cudnn_device described_device(const nnc_target *t)
{
    return (nnc_cudnn_device){.name = t->card,
        .sm = t->sm,
        .sms = t->sms,
        .sm_threads = t->sm_threads,
        .memory_bytes = t->memory_bytes,
        .shared_bytes = t->shared_bytes,
        .l2_bytes = t->l3_bytes,
        .clock_hz = t->clock_hz};
}

int64_t call_plenty(const nnc_call *c)
{
    const nnc_type *other = c->kind == CALL_conv_wgrad ? &c->wei : &c->dst;
    return nnc_type_bytes(&c->src) + nnc_type_bytes(other) + (INT64_C(64) << 20);
}

selection selected(const nnc_cudnn_device *d, const nnc_call *c, int64_t limit)
{
    selection s = {.engine = -1};
    const char *why;
    nnc_cudnn *g = NULL;
    CHECK(cudnn_supports(c, &why));
    CHECK_OK(nnc_cudnn_create(d, &g, test_sink));
    if (!g)
        return s;
    cudnn_describe(g, c);
    const int n = nnc_cudnn_finish(g) ? 0 : cudnn_query(g, cudnn_filter_of(c, limit)),
              i = n > 0 ? cudnn_plan_first(g, c, n, limit) : -1;
    CHECK(n >= 0);
    if (i >= 0) {
        const nnc_cudnn_config *k = nnc_cudnn_config_at(g, i);
        s = (selection){k->engine, nnc_cudnn_workspace(g), k->numerical, k->fallback, ""};
    } else {
        snprintf(s.why, sizeof s.why, "%.191s", nnc_cudnn_why(g));
    }
    nnc_cudnn_destroy(g);
    return s;
}

static nnc_status load_without_end(const nnc_load *l, void **handle, nnc_sink *sink)
{
    nnc_call c = l->plan->call[l->item];
    nnc_plan q = *l->plan;
    c.n_post--;
    q.call = &c;
    q.n_call = 1;
    return nnc_engine_cudnn.load_call(&(nnc_load){.plan = &q, .item = 0}, handle, sink);
}

nnc_engine wrong_end(void)
{
    nnc_engine e = nnc_engine_cudnn;
    e.load_call = load_without_end;
    return e;
}

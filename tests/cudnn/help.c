/* tests/cudnn/help.c -- see help.h. */
#include "help.h"

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

static nnc_status load_swapped(const nnc_load *l, void **handle, nnc_sink *sink)
{
    nnc_call c = l->plan->call[l->item];
    nnc_plan q = *l->plan;
    const nnc_post first = c.post[0];
    c.post[0] = c.post[1];
    c.post[1] = first;
    q.call = &c;
    q.n_call = 1;
    return nnc_engine_cudnn.load_call(&(nnc_load){.plan = &q, .item = 0}, handle, sink);
}

nnc_engine wrong_order(void)
{
    nnc_engine e = nnc_engine_cudnn;
    e.load_call = load_swapped;
    return e;
}

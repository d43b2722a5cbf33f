/* fit/torch.c -- what a framework's allocator would request for the tensors of a plan. Tells where PyTorch would be out of memory
 * in the same commands. */
#include "fit/fit.h"
#include "report/report.h"
#include "session/session.h"
#include "sim/sim.h"

static void put_line(nnc_text *t, const char *what, int64_t bytes, const char *note)
{
    nnc_printf(t, "  %-12s%16lld B", what, (long long)bytes);
    nnc_put_bytes_column(t, bytes, 12, false);
    nnc_printf(t, "  %s\n", note);
}

static void put_device(
    nnc_text *t, const nnc_plan *p, int d, const nnc_sim_device *x, int64_t context)
{
    nnc_printf(t, "\n%s with PyTorch's caching allocator\n", p->device[d].name);
    put_line(t, "context", context, "and libraries, by the hardware file");
    put_line(t, "tensors", x->tensor_bytes, "most bytes live at once, weights included");
    put_line(
        t, "reserved", x->bytes - context, "segments that the allocator requests from the device");
    put_line(t, "total", x->bytes, x->fits ? "fits" : "until it is out of memory");
    put_line(t, "nnc", nnc_device_needs(p, d) + context, "context and the plan's own bytes");
    if (x->fits)
        return;
    nnc_puts(t, "  out of memory at ");
    nnc_put_layers(t, p->cmd[x->fails_at].layers, 90);
    nnc_putc(t, '\n');
}

nnc_status nnc_report_torch(
    nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, nnc_sink *sink)
{
    const nnc_sim_plan_options o = {
        .first = SEC_main, .last = SEC_step, .policy = SIM_torch_caching};
    NNC_LOCAL(nnc_sim_plan) s = {0};
    if (f != NNC_TEXT)
        return NNC_OK;
    NNC_TRY(nnc_sim_plan_run(&s, a->plan, e->cluster, &o, sink));
    for (int d = 0; d < s.n_device; d++)
        put_device(out, a->plan, d, &s.by_device[d],
            s.by_device[d].capacity - nnc_cluster_usable_bytes(e->cluster, s.by_device[d].device));
    return out->oom ? nnc_nomem(sink) : NNC_OK;
}

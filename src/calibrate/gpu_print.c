/* calibrate/gpu_print.c -- the hardware file of a machine with GPUs, as nnc calibrate measured it (docs/hardware.md). */
#include "calibrate/measure.h"
#include "report/report.h"
#include "session/session.h"
#include <math.h>

static void put_peak(nnc_text *t, const char *name, int64_t flops, bool last)
{
    nnc_printf(t, "\"%s\": %lld%s", name, (long long)flops, last ? "" : ", ");
}

/* Peaks are the driver's clock and multiprocessors times what the architecture does: not measured. */
static void put_machine(const calibration *c, nnc_text *t)
{
    const nnc_target *g = &c->target;
    nnc_printf(t,
        "            \"machine\": {\"memory_bytes\": %lld, \"l3_bytes\": %lld, \"copy_bytes_s\": "
        "%lld, \"cache_bytes_s\": %lld, \"launch_ns\": %lld, \"measured\": true,\n"
        "                \"gpu\": {\"card\": ",
        (long long)g->memory_bytes, (long long)g->l3_bytes, (long long)g->copy_bytes_s,
        (long long)g->cache_bytes_s, (long long)c->command_ns);
    nnc_put_json_string(t, g->card);
    nnc_printf(t,
        ", \"sms\": %d, \"sm_threads\": %d, \"shared_bytes\": %lld, \"clock_hz\": %lld}},\n",
        g->sms, g->sm_threads, (long long)g->shared_bytes, (long long)g->clock_hz);
    nnc_puts(t, "            \"flops\": {");
    put_peak(t, "f32", g->flops_f32, false);
    put_peak(t, "tf32", g->flops_tf32, false);
    put_peak(t, "f16", g->flops_f16, false);
    put_peak(t, "bf16", g->flops_f16, true);
    nnc_puts(t, "},\n");
}

static void put_devices(const calibration *c, nnc_text *t)
{
    nnc_printf(t,
        "    \"devices\": [\n        {\n            \"count\": %d,\n            \"target\": "
        "\"cuda:sm_%d\",\n            \"source\": \"measured: %d profiles of %d programs (%s), "
        "behind runs that keep the GPU busy, less what events take; launches of a chain of the "
        "smallest kernels. Peaks are the driver's clocks times the architecture's rates; memory "
        "of the context and the libraries with that of other processes\",\n",
        c->devices, c->target.sm, c->n_profile, c->n_program, nnc_text_str(&c->gpu.done));
    nnc_printf(t,
        "            \"command_ns\": %lld,\n            \"host_ns\": %lld,\n            "
        "\"run_ns\": %lld,\n            \"context_bytes\": %lld,\n            "
        "\"library_bytes\": %lld,\n            \"copy_engines\": 2,\n",
        (long long)c->command_ns, (long long)c->gpu.host_ns, (long long)c->run_ns,
        (long long)c->gpu.context_bytes, (long long)c->gpu.library_bytes);
    put_machine(c, t);
    cal_put_ops(c, t);
    nnc_puts(t, "        }\n    ],\n");
}

static double rate_of(const nnc_point *p)
{
    return (double)p->work / (double)nnc_max64(p->ns, 1);
}

/* Bytes a second of the largest copy of this kind. */
static int64_t copy_rate(const nnc_point p[CAL_SIZES])
{
    return nnc_max64((int64_t)(rate_of(&p[CAL_SIZES - 1]) * 1e9), 1);
}

/* Of uploads and downloads, the mean. */
static int64_t pcie_rate(const calibration *c)
{
    return nnc_max64(copy_rate(c->gpu.up) / 2 + copy_rate(c->gpu.down) / 2, 1);
}

static void put_pcie(const calibration *c, bool peers, nnc_text *t)
{
    const int last = CAL_SIZES - 1;
    const int64_t rate = pcie_rate(c), pageable = copy_rate(c->gpu.pageable_up),
                  latency = c->gpu.up[0].ns;
    nnc_printf(t,
        "    \"pcie\": {\n        \"source\": \"copies of %lld bytes to %lld MiB, in bursts. GB/s "
        "of the largest: up %.4g, down %.4g; of pageable memory up %.4g, down %.4g\",\n"
        "        \"bytes_s\": %lld,\n        \"pageable_bytes_s\": %lld,\n        \"latency_ns\": "
        "%lld,\n        \"p2p\": \"%s\",\n",
        (long long)c->gpu.up[0].work, (long long)(c->gpu.up[last].work >> 20),
        rate_of(&c->gpu.up[last]), rate_of(&c->gpu.down[last]), rate_of(&c->gpu.pageable_up[last]),
        rate_of(&c->gpu.pageable_down[last]), (long long)rate, (long long)pageable,
        (long long)nnc_min64(latency, 1000000000), peers ? "all" : "none");
    if (c->n_copy && !peers) /* through the host's memory */
        nnc_printf(t, "        \"staged_share\": %.4g,\n        \"staged_latency_ns\": %lld,\n",
            fmin(fmax((double)c->copy_bytes_s / (double)rate, 0.001), 1),
            (long long)nnc_min64(c->copy_latency_ns, 1000000000));
    nnc_puts(t, "        \"switches\": [{\"devices\": [");
    for (int d = 0; d < c->devices; d++)
        nnc_printf(t, "%s%d", d ? ", " : "", d);
    nnc_puts(t, "]}]\n    },\n");
}

static void put_links(const calibration *c, nnc_text *t)
{
    const double pcie = (double)pcie_rate(c);
    /* a copy by DMA reads or writes what a thread's copy does both of */
    const int64_t memory = nnc_max64(c->gpu.host_copy_bytes_s, 2 * pcie_rate(c) * c->devices);
    const bool fast = c->n_copy && (double)c->copy_bytes_s > 1.2 * pcie,
               peers = c->n_copy && !fast && (double)c->copy_bytes_s > 0.8 * pcie;
    nnc_printf(t,
        "    \"sockets\": {\n        \"source\": \"at least what all devices' uploads and "
        "downloads take; "
        "a thread's copies read and write %.4g GB/s\",\n        \"count\": 1,\n        "
        "\"memory_bytes_s\": %lld\n    },\n",
        (double)c->gpu.host_copy_bytes_s * 1e-9, (long long)memory);
    put_pcie(c, peers || fast, t);
    if (fast)
        nnc_printf(t,
            "    \"nvswitch\": {\n        \"source\": \"copies of %d sizes between devices 0 and "
            "1, whole runs less the same commands on one device; faster than PCIe\",\n        "
            "\"bytes_s\": %lld,\n        \"latency_ns\": %lld\n    },\n",
            c->n_copy, (long long)c->copy_bytes_s,
            (long long)nnc_min64(c->copy_latency_ns, 1000000000));
    nnc_printf(t,
        "    \"collectives\": {\n        \"source\": \"%s\",\n        \"base_ns\": %lld,\n        "
        "\"hop_ns\": 0",
        c->n_group ? "runs of collectives, a share each, less a launch; base_ns of the smallest "
                     "allreduce"
                   : "one device: none were measured; base_ns is that of a command",
        (long long)nnc_min64(c->n_group ? c->group[0].point[0].ns : c->command_ns, 1000000000));
    cal_put_groups(t, c);
}

void cal_gpu_print(const calibration *c, nnc_text *t)
{
    const int world = nnc_env_world(c->e);
    NNC_LOCAL(nnc_text) name = {0};
    nnc_printf(&name, "%d x %s", c->devices, *c->target.card ? c->target.card : c->target.name);
    nnc_puts(t, "{\n    \"name\": ");
    nnc_put_json_string(t, nnc_text_str(&name));
    nnc_printf(t, ",\n    \"source\": \"nnc calibrate in %.1f s: %d GPU%s, %d rank%s\",\n",
        (double)(nnc_now_ns() - c->begin_ns) * 1e-9, c->devices, nnc_plural(c->devices, "s"), world,
        nnc_plural(world, "s"));
    put_devices(c, t);
    put_links(c, t);
    nnc_puts(t, "}\n");
}

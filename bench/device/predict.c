/* bench/device/predict.c -- what a run is predicted to take by the machine code of its generated kernels (../gpu_share.h), to stand
 * beside what it takes. */
#include "gpu_share.h"
#include "measure.h"

/* Time of the launches, each with the target's overhead, and the share of a copy's bandwidth at that time. Nothing where a library's
 * call is among them, whose time no machine code says. Per kernel: all launches. */
bool predicted_of(const nnc_plan *p, const nnc_target *t, nnc_arena *a, predicted *out)
{
    nnc_gpu_launches l;
    *out = (predicted){0};
    if (t->kind != NNC_T_cuda || nnc_gpu_launches_of(p, t, a, &l, NULL) || l.n == 0)
        return false;
    double bytes = 0;
    for (int i = 0; i < l.n; i++)
        bytes += l.launch[i].bytes;
    out->launches = l.n;
    out->others = l.others;
    out->kernels_us = l.us;
    out->us = l.us + l.n * (double)t->launch_ns * 1e-3;
    out->share = bytes / (double)t->copy_bytes_s * 1e6 / out->us;
    out->launch = l.launch;
    return true;
}

void predicted_json(const nnc_plan *p, const nnc_target *t, nnc_text *out)
{
    nnc_arena a;
    predicted s;
    nnc_arena_init(&a, 0);
    if (predicted_of(p, t, &a, &s)) {
        nnc_printf(out,
            ",\n \"predicted\": {\"kernels_us\": %.4g, \"launches\": %d, \"others\": %d",
            s.kernels_us, s.launches, s.others);
        if (!s.others)
            nnc_printf(out, ", \"us\": %.4g, \"share\": %.4g", s.us, s.share);
        nnc_puts(out, ", \"kernels\": [");
        for (int i = 0; i < s.launches; i++) {
            const nnc_gpu_launch *l = &s.launch[i];
            nnc_printf(out,
                "%s\n  {\"kernel\": \"%s\", \"us\": %.4g, \"share\": %.3g, \"bound\": \"%s\", "
                "\"registers\": %d, "
                "\"resident\": %d, \"flight\": %.0f, \"instructions\": %.4g}",
                i ? "," : "", l->symbol, l->share.total_us, l->share.share,
                nnc_gpu_limit_names[l->share.bound], l->code->registers, l->share.resident,
                l->share.flight, l->share.instructions);
        }
        nnc_puts(out, "]}");
    }
    nnc_arena_deinit(&a);
}

void predicted_line(const nnc_plan *p, const nnc_target *t, const char *name)
{
    nnc_arena a;
    predicted s;
    nnc_arena_init(&a, 0);
    if (predicted_of(p, t, &a, &s)) {
        const nnc_gpu_launch *longest = s.launch;
        for (int i = 1; i < s.launches; i++)
            longest = s.launch[i].share.total_us > longest->share.total_us ? &s.launch[i] : longest;
        printf("%-60s %4d launches %4d others  %9.1f us in kernels", name, s.launches, s.others,
            s.kernels_us);
        if (!s.others)
            printf(", %9.1f us in all, share %5.2f", s.us, s.share);
        printf("; longest %s: %s, share %.2f, %.1f us\n", longest->symbol,
            nnc_gpu_limit_names[longest->share.bound], longest->share.share,
            longest->share.total_us);
    }
    nnc_arena_deinit(&a);
}

/* session/compatible.c -- rejects artifacts of other or described machines if their code uses instructions that this CPU lacks. */
#include "session/session.h"
#include <string.h>

/* Does a CPU run machine code? */
static bool has_machine_code(const nnc_plan *p)
{
    for (int i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel && nnc_pkernel_code(p, &p->kernel[p->cmd[i].item]) &&
            !nnc_plan_on_gpu(&p->device[p->cmd[i].device]))
            return true;
    return false;
}

static nnc_status refuse_code(const nnc_target *of, const nnc_artifact *a, nnc_sink *sink)
{
    const char *lacks = has_machine_code(a->plan) ? nnc_target_host_lacks(of) : NULL;
    NNC_LOCAL(nnc_text) cpu = {0};
    if (!lacks)
        return NNC_OK;
    nnc_target_host_name(&cpu);
    return nnc_fail0(sink, NNC_E_DEVICE,
        "%s was compiled for the CPU that --target=%s describes, whose code may use %s; this is "
        "%s, which lacks it. Run it there, or compile the model for this machine (--target=cpu)",
        a->source->name, of->name, lacks, nnc_text_str(&cpu));
}

nnc_status nnc_check_compatible(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink)
{
    for (int i = 0; i < e->n_target; i++)
        NNC_TRY(refuse_code(&e->target[i], a, sink));
    return NNC_OK;
}

/* ---- the machine of a plan --------------------------------------------------------------------- */

void nnc_put_targets(nnc_text *t, const nnc_plan *p, bool names)
{
    int n = p->n_device;
    while (n > 1 && !strcmp(p->device[n - 1].target, p->device[n - 2].target))
        n--;
    for (int d = 0; d < n; d++) {
        const char *s = p->device[d].target;
        nnc_printf(t, "%s%.*s", d ? "," : "", (int)strcspn(s, names ? "#" : ""), s);
    }
}

static nnc_loc loc_of(const nnc_artifact *a)
{
    return (nnc_loc){.file = a->named ? a->named : a->source->name};
}

/* Kernels of an architecture run on all of its GPUs; GPUs with other numbers only prefer other schedules. */
static bool runs_there(
    const nnc_artifact *a, const char *name, int kind, const nnc_target *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) here = {0};
    if (t->kind != NNC_T_cuda || strncmp(t->name, name, (size_t)kind) != 0 || t->name[kind])
        return false;
    nnc_plan_target_text(&here, t);
    if (strncmp(nnc_text_str(&here), name, (size_t)kind + 33) != 0) /* #hash */
        nnc_note(sink, loc_of(a),
            "was compiled for a GPU of the same architecture with other numbers (SMs, caches): it "
            "runs as it is; compiled again, it may run faster");
    return true;
}

static nnc_status other_machine(
    const nnc_artifact *a, bool described, const char *target, const char *here, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) cpu = {0};
    nnc_target_host_name(&cpu);
    const char *was = a->machine;
    if (described)
        return nnc_fail(sink, NNC_E_DEVICE, loc_of(a),
            "was compiled for a described CPU (%s; this is %s, %s): name the same file with "
            "--target or --hardware, or compile the model again",
            target, here, nnc_text_str(&cpu));
    if (*was && !cpu.oom && !strcmp(was, nnc_text_str(&cpu)) &&
        strcspn(target, "#") == strcspn(here, "#") && !strncmp(target, here, strcspn(here, "#")))
        return nnc_fail(sink, NNC_E_DEVICE, loc_of(a),
            "was compiled for this CPU, %s, with other cores or caches than the process has here "
            "(%s; this is %s). Run it on as many cores as there (mpirun --bind-to none, taskset), "
            "or compile the model again",
            was, target, here);
    return nnc_fail(sink, NNC_E_DEVICE, loc_of(a),
        "was compiled for another machine (%s%s%s; this is %s%s%s); compile the model again",
        target, *was ? ", " : "", was, here, *was ? ", " : "", *was ? nnc_text_str(&cpu) : "");
}

/* The devices' targets are of other kinds than the environment's. */
static nnc_status other_kinds(const nnc_artifact *a, const nnc_env *e, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) was = {0};
    nnc_put_targets(&was, a->plan, true);
    return nnc_fail(sink, NNC_E_DEVICE, loc_of(a),
        "was compiled for %s, this is %s; use --target=%s", nnc_text_str(&was),
        nnc_text_str(&e->name), nnc_text_str(&was));
}

static nnc_status check_device(const nnc_artifact *a, const nnc_plan_device *d, const nnc_env *e,
    const nnc_target *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) here = {0};
    nnc_plan_target_text(&here, t);
    int kind = (int)strcspn(d->target, "#"); /* name#hash */
    if (here.oom)
        return nnc_nomem(sink);
    if (nnc_plan_on_gpu(d) != (t->kind == NNC_T_cuda))
        return other_kinds(a, e, sink);
    if (d->threads != t->threads)
        return nnc_fail(sink, NNC_E_DEVICE, loc_of(a),
            "was compiled for %d thread%s, this is %d; use --threads=%d or compile the model again",
            d->threads, d->threads == 1 ? "" : "s", t->threads, d->threads);
    return runs_there(a, d->target, kind, t, sink) || !strcmp(nnc_text_str(&here), d->target)
               ? NNC_OK
               : other_machine(
                     a, !*a->machine && !nnc_plan_on_gpu(d), d->target, nnc_text_str(&here), sink);
}

nnc_status nnc_check_machine(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink)
{
    for (int d = 0; d < a->plan->n_device; d++)
        NNC_TRY(check_device(
            a, &a->plan->device[d], e, nnc_target_on(e->target, e->n_target, d), sink));
    return NNC_OK;
}

int nnc_artifact_threads(const nnc_artifact *a)
{
    for (int d = 0; d < a->plan->n_device; d++)
        if (!nnc_plan_on_gpu(&a->plan->device[d]))
            return a->plan->device[d].threads;
    return 0;
}

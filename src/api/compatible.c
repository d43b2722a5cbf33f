/* api/compatible.c -- rejects artifacts that were compiled elsewhere, or for a described machine, and would crash or have wrong sizes
 * here. A plan contains sizes of packed weights and workspaces that oneDNN chose for a CPU, and code for a CPU's instructions. */
#include "api/internal.h"
#include <string.h>

static bool has_engine(const nnc_plan *p, const char *name)
{
    for (int i = 0; i < p->n_engine; i++)
        if (!strcmp(p->engine[i], name))
            return true;
    return false;
}

void nnc_put_libraries(nnc_text *t, const nnc_plan *p)
{
    const nnc_engine *e =
        has_engine(p, "onednn") ? nnc_plugin("onednn", "nnc_engine_onednn", NULL) : NULL;
    if (e)
        nnc_printf(t, "oneDNN %s", e->version);
}

/* Does a CPU run machine code? */
static bool has_machine_code(const nnc_plan *p)
{
    for (int i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel && p->kernel[p->cmd[i].item].object >= 0 &&
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
        "%s, "
        "which lacks it; run it there, or compile the model for this machine (--target=cpu)",
        a->source->name, of->name, lacks, nnc_text_str(&cpu));
}

nnc_status nnc_check_compatible(const nnc_env *e, const nnc_artifact *a, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) here = {0};
    for (int i = 0; i < e->n_target; i++)
        NNC_TRY(refuse_code(&e->target[i], a, sink));
    if (!a->libraries || !e->has_onednn || !has_engine(a->plan, "onednn"))
        return NNC_OK;
    nnc_put_libraries(&here, a->plan);
    if (here.oom)
        return nnc_nomem(sink);
    if (here.n && strcmp(nnc_text_str(&here), a->libraries))
        return nnc_fail0(sink, NNC_E_DEVICE,
            "%s was compiled with %s, this is %s: another library, another CPU or another "
            "ONEDNN_MAX_CPU_ISA; compile the model again",
            a->source->name, *a->libraries ? a->libraries : "an unknown oneDNN",
            nnc_text_str(&here));
    return NNC_OK;
}

/* report/emit_cuda.c -- CUDA C, PTX and machine code of a compiled model, as text or files. */
#include "report/report.h"
#include "session/session.h"
#include "cuda/cuda.h"
#include <string.h>

/* ---- a compiled model's sources and code -------------------------------------------------------------------------- */

nnc_status nnc_cuda_emit_unit(nnc_env *e, const nnc_artifact *art, const nnc_unit *u, nnc_emit what,
    nnc_text *out, nnc_sink *sink)
{
    const nnc_target *t = nnc_target_on(e->target, e->n_target, u->device);
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kernel **k = ARENA_NEW(&a, nnc_kernel *, u->n);
    NNC_FREED char *text = NULL;
    size_t size = 0;
    NNC_NEED(k, sink);
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    NNC_NEED(own, sink);
    nnc_status st = nnc_plan_kernels(art->plan, u, k, &a, own);
    if (!st)
        st =
            nnc_cuda_make((const nnc_kernel *const *)k, u->n, t, what, e->cache, &text, &size, own);
    /* The fallback for an unknown GPU was reported when the plan was made. */
    nnc_sink_pass_errors(own, sink);
    if (!st && what == EMIT_cuda)
        nnc_cuda_annotate(out, art, u, text, size);
    else if (!st)
        nnc_putn(out, text, what == EMIT_ptx && size ? size - 1 : size);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}

/* Each translation unit has a cubin of its own: only a single one can be written as a stream. */
static nnc_status emit_cubin(
    const nnc_plan *p, const nnc_unit *u, int n, nnc_text *out, nnc_sink *sink)
{
    int cubins = 0, kernels = 0;
    const nnc_blob *b = NULL;
    for (int i = 0; i < n; i++) {
        const nnc_blob *object = nnc_pkernel_code(p, &p->kernel[u[i].kernel[0]]);
        b = object ? object : b;
        cubins += object != NULL;
        kernels += u[i].n;
    }
    if (!b)
        return nnc_fail0(
            sink, NNC_E_DEVICE, "--emit=cubin: the model's kernels have no machine code");
    if (cubins > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit=cubin: the model's %d kernels are %d cubins; --dump-dir=FOLDER writes each to "
            "a file",
            kernels, cubins);
    nnc_putn(out, b->data, b->n);
    return NNC_OK;
}

nnc_status nnc_cuda_emit(
    nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink)
{
    NNC_FREED nnc_unit *unit = NULL;
    if (!nnc_env_has(e, NNC_T_cuda))
        return nnc_fail0(
            sink, NNC_E_USAGE, "--emit=%s needs a GPU target, as in --target=cuda:sm_90", stage);
    int n = nnc_plan_units(a->plan, true, NNC_UNIT_FUNCTIONS, &unit);
    if (n < 0)
        return nnc_nomem(sink);
    if (!strcmp(stage, "cubin"))
        return emit_cubin(a->plan, unit, n, out, sink);
    for (int u = 0; u < n; u++) {
        if (u)
            nnc_printf(out, "\n/* ---- unit %d ---- */\n\n", u);
        NNC_TRY(nnc_cuda_emit_unit(
            e, a, &unit[u], strcmp(stage, "ptx") ? EMIT_cuda : EMIT_ptx, out, sink));
    }
    return NNC_OK;
}

/* ---- description of the code --------------------------------------------------------------------------------------- */

/* Lists the launches of kernel i with their layers. */
static void describe_launches(nnc_text *out, const nnc_plan *p, int i)
{
    int n = 0;
    for (int c = 0; c < p->n_cmd; c++)
        if (p->cmd[c].kind == CMD_kernel && p->cmd[c].item == i) {
            nnc_printf(out, "  %s %s\n", c < nnc_plan_first(p, SEC_main) ? "at load" : "each run",
                p->cmd[c].layers && *p->cmd[c].layers ? p->cmd[c].layers : "(no layer)");
            n++;
        }
    if (!n)
        nnc_puts(out, "  never launched\n");
}

/* Describes the kernel's code, and that of the second launch that combines partial results. */
static void describe_code(nnc_text *out, const nnc_pkernel *pk, const nnc_cubin_kernel *k, int n)
{
    const char *name;
    size_t len = nnc_pkernel_function(pk, &name);
    if (pk->code)
        nnc_printf(out, "  shares its code: %s\n", pk->code);
    for (int i = 0; i < n; i++)
        if (!strncmp(k[i].name, name, len) &&
            (!k[i].name[len] || !strcmp(k[i].name + len, "_finish"))) {
            nnc_puts(out, "  ");
            nnc_cubin_print(out, &k[i], 1);
        }
}

nnc_status nnc_cuda_describe(
    const nnc_plan *p, const nnc_unit *u, int number, int sm, nnc_text *out, nnc_sink *sink)
{
    enum { READABLE = 70 }; /* first architecture that cubin.c supports */
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_cubin_kernel *k = NULL;
    int n = 0, of;
    const nnc_blob *b = nnc_pkernel_code(p, &p->kernel[u->kernel[0]]);
    bool cubin = b && b->n > 4 && !memcmp(b->data, "\177ELF", 4);
    if (cubin && sm >= READABLE)
        NNC_TRY(nnc_cubin_read(b->data, b->n, &a, &k, &n, &of, sink));
    for (int j = 0; j < u->n; j++) {
        const int i = u->kernel[j];
        nnc_printf(out, "%s in unit%d.cu\n", p->kernel[i].symbol, number);
        describe_launches(out, p, i);
        if (n)
            describe_code(out, &p->kernel[i], k, n);
        else
            nnc_printf(out, "  %s\n",
                !b       ? "no machine code: NVRTC is missing"
                : !cubin ? "PTX, which the driver compiles"
                         : "machine code of an architecture too old to be described");
    }
    return NNC_OK;
}

/* api/emit_cuda.c -- compiling for NVIDIA GPUs: CUDA C from codegen, machine code from NVRTC, and both as text or files. Needs neither
 * a GPU nor a driver. */
#include "api/internal.h"
#include "cuda/cuda.h"
#include <string.h>

/* the kernel IR states which products and sums are fused; NVRTC must not fuse others */
static const char *const options[] = {"--fmad=false"};

/* ---- the emitter -------------------------------------------------------------------------------------------------- */

static nnc_status source_of(
    const nnc_kernel *const *k, int n, const nnc_target *t, char **out, nnc_sink *sink)
{
    size_t size;
    return nnc_emitter_cuda.emit(k, n, t, EMIT_cuda, out, &size, sink);
}

/* EMIT_cuda: source; EMIT_ptx: PTX; otherwise machine code (PTX for a GPU newer than NVRTC). cache: keeps NVRTC's results; may be
 * NULL. */
static nnc_status make(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    nnc_cache *cache, char **out, size_t *size, nnc_sink *sink)
{
    char *source;
    NNC_TRY(source_of(k, n, t, &source, sink));
    if (what == EMIT_cuda) {
        *out = source;
        *size = strlen(source);
        return NNC_OK;
    }
    nnc_nvrtc_unit u = {.name = n == 1 ? k[0]->name : "kernels.cu", .source = source};
    nnc_nvrtc_options o = {.sm = t->sm,
        .ptx = what == EMIT_ptx,
        .jobs = 1,
        .cache = cache,
        .option = options,
        .n_option = NNC_COUNT(options)};
    nnc_status st = nnc_nvrtc_compile(&u, 1, &o, sink);
    nnc_free(source);
    *out = u.code;
    *size = u.n;
    return st;
}

/* The emitter of plans. */
static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    return make(k, n, t, what, NULL, out, size, sink);
}

static const nnc_emitter emitter = {"nvrtc", "", emit};

static const nnc_emitter *get_emitter(void)
{
    return &emitter;
}

/* Without NVRTC the plan has no code, which is enough for every question about it. */
nnc_compiler nnc_env_cuda_compiler(
    nnc_env *e, const nnc_target *t, char version[NNC_VERSION_BYTES], nnc_sink *said)
{
    nnc_nvrtc_target w = {0};
    nnc_status st = nnc_nvrtc_resolve(t->sm, false, e->cache, &w, said);
    snprintf(version, NNC_VERSION_BYTES, "%s nvrtc %s %s_%d %s", nnc_emitter_cuda.version,
        w.version, w.ptx ? "compute" : "sm", w.arch, options[0]);
    return (nnc_compiler){st ? NULL : get_emitter, version, NNC_UNIT_FUNCTIONS, nnc_cuda_share};
}

void nnc_env_cuda_tell(
    const nnc_env *e, const nnc_compiler *of_target, const nnc_sink *said, nnc_sink *sink)
{
    bool code = true;
    for (int i = 0; i < e->n_target; i++)
        code = code && (e->target[i].kind != NNC_T_cuda || of_target[i].emitter);
    for (size_t i = 0; i < nnc_sink_count(said); i++) {
        const nnc_diag *d = nnc_sink_at(said, i);
        if (!code)
            nnc_warn(sink, (nnc_loc){0}, "kernels get no machine code: %s", d->message);
        else
            nnc_note(sink, (nnc_loc){0}, "%s", d->message);
    }
}

/* ---- the target --------------------------------------------------------------------------------------------------- */

/* "cuda" is this machine's first GPU with the numbers that its driver reports. */
nnc_status nnc_env_cuda(nnc_target *t, const char *name, nnc_sink *sink)
{
    nnc_cuda_device d = {0};
    char of_first[32];
    if (strcmp(name, "cuda") != 0)
        return nnc_target_cuda(t, name, sink);
    if (!nnc_cuda_devices(&d, 1, sink))
        return nnc_fail0(sink, NNC_E_DEVICE,
            "--target=cuda needs a usable GPU in this machine (nnc doctor); "
            "--target=cuda:sm_90 compiles for a GPU elsewhere");
    snprintf(of_first, sizeof of_first, "cuda:sm_%d", d.sm);
    NNC_TRY(nnc_target_cuda(t, of_first, sink));
    nnc_target_gpu g = {d.name, d.sms, d.sm_threads, d.shared_bytes, d.l2_bytes, d.memory_bytes,
        d.clock_hz, d.bytes_s};
    nnc_status st = nnc_target_cuda_ask(t, &g, sink);
    if (st)
        nnc_target_deinit(t);
    return st;
}

void nnc_env_cuda_engines(nnc_env *e)
{
    e->engine[e->n_engine++] = &nnc_engine_cudnn;
    e->engine[e->n_engine++] = &nnc_engine_cublaslt;
    e->engine[e->n_engine++] = &nnc_engine_cuda;
}

/* ---- a compiled model's sources and code -------------------------------------------------------------------------- */

/* Passes on errors only: the fallback for an unknown GPU was reported when the plan was made. */
static void pass_errors(const nnc_sink *own, nnc_sink *sink)
{
    for (size_t i = 0; i < nnc_sink_count(own); i++) {
        const nnc_diag *d = nnc_sink_at(own, i);
        if (d->severity == NNC_ERROR)
            (void)nnc_fail(sink, d->code, d->loc, "%s", d->message);
    }
}

nnc_status nnc_cuda_emit_unit(nnc_env *e, const nnc_artifact *art, const nnc_unit *u, nnc_emit what,
    nnc_text *out, nnc_sink *sink)
{
    const nnc_target *t = nnc_target_on(e->target, e->n_target, u->device);
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kernel **k = ARENA_NEW(&a, nnc_kernel *, u->n);
    NNC_FREED char *text = NULL;
    size_t size = 0;
    NNC_NEED(k, sink);
    nnc_sink *own = nnc_sink_create();
    NNC_NEED(own, sink);
    nnc_status st = nnc_plan_kernels(art->plan, u, k, &a, own);
    if (!st)
        st = make((const nnc_kernel *const *)k, u->n, t, what, e->cache, &text, &size, own);
    pass_errors(own, sink);
    nnc_sink_destroy(own);
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
